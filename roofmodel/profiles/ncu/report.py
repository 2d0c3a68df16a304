"""Nsight Compute's reports (`.ncu-rep`) -> launches, through NVIDIA's own package `ncu-report`.

The format is NVIDIA's, and only its package knows it. It is installed on wish (`pip install ncu-report`, the
extra `ncu`), runs without a GPU, and reads reports of its own version and of older ones.
"""

from __future__ import annotations

import math
import os
import shlex
import sys
from array import array
from functools import cache
from typing import Any, BinaryIO

from roofmodel.errors import ProfileError, shorten
from roofmodel.profiles.kernel import Evidence, extent
from roofmodel.profiles.ncu import metric_names
from roofmodel.profiles.ncu.device_attributes import ATTRIBUTE, ATTRIBUTES, evidence, in_base_units, scale
from roofmodel.profiles.ncu.launch_tables import Kind, Table, pad
from roofmodel.profiles.streams import on_disk, printable

MAGIC = b"NVR\0"  # how a report begins


def parse(stream: BinaryIO, file: str) -> Table:
    """All launches of a report. Raises ProfileError: without the package, and for a report that it cannot read."""
    import multiprocessing
    from concurrent.futures.process import BrokenProcessPool, ProcessPoolExecutor

    _package(file)
    with on_disk(stream, MAGIC) as path:
        if sys.platform != "linux":
            return _table(str(path), file)
        # On some damaged reports the package ends the whole process: let that be another one.
        with ProcessPoolExecutor(1, multiprocessing.get_context("fork"), _silent) as pool:
            try:
                return pool.submit(_table, str(path), file).result()
            except BrokenProcessPool:
                why = "ncu-report breaks off in this report, which is damaged"
                raise ProfileError(f"{file}: {why}; {_instead(file)}") from None


def _silent() -> None:
    """What the package's own library writes before it gives up tells a reader nothing."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


def _table(path: str, file: str) -> Table:
    package, table = _package(file), Table(file, summary=False)
    try:
        report = package.load_report(path)
        results = [action for part in report for action in part]
    except (RuntimeError, OSError, ValueError) as error:
        raise ProfileError(f"{file}: ncu-report cannot read this report: {error}; {_instead(file)}") from None
    for number, action in enumerate(results):
        _read(action, number, table)
    table.pad()
    if not table.ids:
        raise ProfileError(
            f"{file}: ncu-report finds no results in this report: it is empty, damaged, or written by a newer Nsight "
            f"Compute (pip install -U ncu-report); {_instead(file)}"
        )
    return table


def _package(file: str) -> Any:
    try:
        import ncu_report
    except ImportError as error:
        raise ProfileError(
            f"{file}: a report of Nsight Compute, which only NVIDIA's package can read ({error}): "
            f"pip install ncu-report; {_instead(file)}"
        ) from None
    return ncu_report


def _instead(file: str) -> str:
    return f"or run: ncu --import {shlex.quote(file)} --csv --page raw --print-units base --log-file report.csv"


def _read(action: Any, number: int, table: Table) -> None:
    """One result, of a kernel or, in range replay, of a range, as a launch of the table."""
    names, kernel = action.metric_names(), action.name(action.NameBase_DEMANGLED) or action.name()
    if not kernel:
        raise ProfileError(f"{table.file}: result {number} has no name: the report is cut short or damaged")
    table.metrics.update(names)
    known = {name: _value(action, name) for name in names if _identifies(name)}
    attributes = {name: known.get(ATTRIBUTE + name) or "" for name in ATTRIBUTES}
    seen = evidence(attributes, lambda name: _unit(action, ATTRIBUTE + name))
    if seen != Evidence() and seen not in table.evidence:
        table.evidence.append(seen)
    kind = Kind(
        name=sys.intern(printable(kernel)),
        device=known.get("launch__device_id"),
        stream=known.get("launch__stream_id"),
        grid=extent(_whole(known.get(f"launch__grid_dim_{axis}")) for axis in "xyz"),
        block=extent(_whole(known.get(f"launch__block_dim_{axis}")) for axis in "xyz"),
        capability=seen.compute_capability,
        nvtx=_ranges(action.nvtx_state()),
    )
    if kind not in table.kinds[-1:]:
        table.kinds.append(kind)
    table.ids.append(number)
    table.kind.append(len(table.kinds) - 1)
    for name in filter(_wanted, names):
        value = action.metric_by_name(name).value()
        if isinstance(value, int | float) and math.isfinite(value):
            unit = _unit(action, name)
            factor = scale(name, unit)
            if factor is None:
                raise ProfileError(f"{table.file}: {name} is in {shorten(unit)}, which is not read here")
            if value < 0:
                raise ProfileError(f"{table.file}: {name} is {value}, and no count or time is below zero")
            column = table.values.setdefault(name, array("d"))
            pad(column, number)
            column.append(in_base_units(value, factor))


# The same names come back with every result.
_wanted = cache(metric_names.wanted)


@cache
def _identifies(name: str) -> bool:
    return name.startswith(("launch__grid_dim_", "launch__block_dim_", "launch__device_id", "launch__stream_id")) or (
        name.startswith(ATTRIBUTE) and name.removeprefix(ATTRIBUTE) in ATTRIBUTES
    )


def _value(action: Any, name: str) -> str | None:
    """What a table would have in its cell: whole numbers without a point."""
    value = action.metric_by_name(name).value()
    whole = isinstance(value, float) and value.is_integer()
    return None if value is None else printable(str(int(value) if whole else value))


def _whole(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None


def _unit(action: Any, name: str) -> str:
    metric = action.metric_by_name(name)
    return metric.unit() if metric is not None else ""


def _ranges(state: Any) -> tuple[str, ...]:
    """NVTX ranges, outermost first; those that start and stop anywhere stand outside of those that are pushed."""
    domains = [state.domain_by_id(number) for number in state.domains()] if state is not None else []
    started = (name for domain in domains for name in domain.start_end_ranges())
    pushed = (name for domain in domains for name in domain.push_pop_ranges())
    return tuple(sys.intern(printable(name)) for name in (*started, *pushed) if name)
