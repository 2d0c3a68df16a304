"""Kernels for tests, each in a table of its own, and tables of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from roofmodel.profiles.kernel import COLUMNS, Kernel, KernelTable


def table(kernels: Iterable[Kernel]) -> KernelTable:
    """A table of these rows of other tables."""
    every = KernelTable()
    for kernel in kernels:
        every.append(kernel.table.select([kernel.row]))
    return every


def kernel(id: object = 0, file: str = "file", name: str = "kernel", **more: Any) -> Kernel:
    """A kernel with these attributes; `start` in seconds from the start of the trace."""
    one = KernelTable()
    one.extend(1)
    return changed(one[0], id=id, file=file, name=name, **more)


def changed(kernel: Kernel, **more: Any) -> Kernel:
    """The kernel with other attributes."""
    one = kernel.table.select([kernel.row])
    cells: dict[str, Any] = {}
    for attribute, value in more.items():
        if attribute in ("flops", "bytes"):
            cells |= value._asdict()
        elif attribute == "counters":
            cells |= value
        elif attribute == "start":
            cells["start"] = round(value * 1e9)
        else:
            cells["number" if attribute == "id" else attribute] = value
    for column, cell in cells.items():
        if column not in COLUMNS:
            one.declare(**{column: float})
        one.set(column, [cell])
    return one[0]


def columns(rows: Iterable[Mapping[str, Any]]) -> KernelTable:
    """A table of kernels with these attributes."""
    return table(kernel(**row) for row in rows)
