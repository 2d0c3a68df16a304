"""A table of measurements -> its rows as operators: those of one operation, type and kernel as one over columns."""

from __future__ import annotations

import csv
import gzip
import io
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from roofmodel.counting.operator import Operator
from roofmodel.errors import ProfileError, WorkloadError, choices, shorten
from roofmodel.study.benchmark.operations import OPERATIONS, PRECISIONS, widths

Array = np.ndarray[Any, np.dtype[Any]]
Table = Mapping[str, Sequence[str]]  # column -> cells, as they stand in the file

MOST = 10**12
"""The largest size that means something: elements that GPUs exchange are beyond any other."""

HOST_CLOCK = "by the host's clock"
"""Of operations whose table says that the host timed them, and no kernel: what fits them has the launch in it."""

_HOST = re.compile(r"\bhost\b")


def read(path: str) -> Table:
    """The columns of a CSV with a header, gzip or not."""
    try:
        content = Path(path).read_bytes()
        if content.startswith(b"\x1f\x8b"):
            content = gzip.decompress(content)
        if not content.strip():
            raise ValueError("it is empty")
        header, *rows = csv.reader(io.StringIO(content.decode("utf-8-sig"), newline=""), strict=True)
    except (OSError, EOFError, zlib.error, UnicodeDecodeError, csv.Error, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise ProfileError(f"{path}: not a table of measurements that can be read ({reason})") from None
    if wrong := _wrong(header):
        raise ProfileError(f"{path}: {wrong}")
    for number, row in enumerate(rows, 2):
        if len(row) != len(header):
            raise ProfileError(f"{path}:{number}: a row of {len(row)} cells under a header of {len(header)}")
    return dict(zip(header, zip(*rows, strict=True) if rows else [()] * len(header), strict=True))


def _wrong(header: Sequence[str]) -> str:
    """What keeps this header from being one of measurements; empty where nothing does."""
    for name, sign in {"semicolons": ";", "tabs": "\t"}.items():
        if len(header) == 1 and sign in header[0]:
            return f"its columns are separated by {name}, where commas are read; save it as comma-separated values"
    if lacking := [column for column in ("op", "dtype", "latency_us") if column not in header]:
        otherwise = [column for column in header if column.strip().lower() in lacking]
        spelt = f" (it has {', '.join(map(repr, otherwise))}: small letters, no blanks)" if otherwise else ""
        return (
            f"lacks the column {' and '.join(map(repr, lacking))}{spelt}; a table of measurements has op, dtype, "
            "latency_us and the columns of each op's shape, as gemm has m, n, k"
        )
    twice = [column for column in dict.fromkeys(header) if header.count(column) > 1]
    return f"the column {twice[0]!r} stands {header.count(twice[0])} times in its header; keep one" if twice else ""


class Group(NamedTuple):
    """Rows of one operation, type and kernel, as one operator whose sizes are columns."""

    op: str
    compute: str  # the type of the arithmetic
    kernel: str
    l2: str  # cold, warm, or empty where the table does not tell
    rows: Array  # which of the table's
    shape: Mapping[str, Array]
    operator: Operator


def groups(table: Table) -> tuple[list[Group], Array]:
    """The rows that mean something, and a note for each row: empty, or why it does not."""
    count = len(table["op"])
    notes, found = np.full(count, "", dtype=object), []
    rows_of: dict[tuple[str, ...], list[int]] = {}
    more = {name for operation in OPERATIONS.values() for name in (*operation.words, *operation.alike)}
    keys = tuple(dict.fromkeys(("op", "dtype", "kv_dtype", "kernel", "l2", "framework", *sorted(more))))
    # Of who measured, only whether by the host, so that its launch is in the time.
    cells = {**table, "framework": ["host"[: 4 * bool(_HOST.search(cell))] for cell in table.get("framework", ())]}
    for row, key in enumerate(zip(*(cells.get(name) or [""] * count for name in keys), strict=True)):
        rows_of.setdefault(key, []).append(row)
    for key, rows in rows_of.items():
        here, words = np.array(rows), dict(zip(keys, key, strict=True))
        op, dtype, kv, kernel, l2 = key[:5]
        if words["framework"]:
            kernel = kernel or f"{op}, {HOST_CLOCK}"
        try:
            shape, wrong = _shape(table, here, op, dtype, kv)
            notes[here], good = wrong, wrong == ""
            alike = {name: int(shape[name][0]) for name in OPERATIONS[op].alike if good.any()}
            for some in _by_kernel(shape):
                part = {name: values[some] for name, values in shape.items()}
                operator = OPERATIONS[op].operator({**words, **part, **alike}, widths(PRECISIONS[dtype], kv or None))
                found.append(Group(op, PRECISIONS[dtype].compute, kernel, l2, here[good][some], part, operator))
        except WorkloadError as error:
            notes[here] = str(error)
    return found, notes


def _by_kernel(shape: Mapping[str, Array]) -> list[Array]:
    """Which rows go together: one query over keys of earlier ones is a decode, which another kernel runs."""
    if "kv_len" not in shape:
        return [np.arange(len(next(iter(shape.values()))))]
    decodes = (shape["seq"] == 1) & (shape["kv_len"] > 1)
    return [rows for rows in (np.flatnonzero(~decodes), np.flatnonzero(decodes)) if len(rows)]


def skipped(notes: Sequence[str]) -> dict[str, list[int]]:
    """Reason -> the lines of the file that it skips, the header being the first."""
    lines: dict[str, list[int]] = {}
    for line, reason in enumerate(notes, 2):
        if reason:
            lines.setdefault(reason, []).append(line)
    return lines


def listed(reasons: Mapping[str, list[int]], most: int = 10) -> Iterator[str]:
    """Which lines are skipped and why: the first reasons, and how many more there are."""
    for reason, lines in [*reasons.items()][:most]:
        yield f"{first_few(lines)}: {reason}"
    if rest := [*reasons.values()][most:]:
        yield f"{sum(map(len, rest))} more lines, for {len(rest)} more reasons"


def first_few(lines: Sequence[int], most: int = 3) -> str:
    """The first few lines, in words, and how many they are."""
    more = f" … ({len(lines)})" if len(lines) > most else ""
    return f"line{'s' * (len(lines) > 1)} {', '.join(map(str, lines[:most]))}{more}"


def seconds(table: Table) -> Array:
    """What was measured, in seconds."""
    return _numbers(table["latency_us"]) / 1e6


def _shape(table: Table, rows: Array, op: str, dtype: str, kv: str) -> tuple[dict[str, Array], Array]:
    """The columns of those of these rows that have a shape and a latency, and what is wrong with each row, or "".

    Raises WorkloadError where none can: an operation or a type that is not known, a column that is not there.
    """
    if op not in OPERATIONS:
        raise WorkloadError(f"unknown op {shorten(op)}{choices(op, OPERATIONS)}")
    for name in filter(None, (dtype, kv)):
        if name not in PRECISIONS:
            raise WorkloadError(f"unknown dtype {shorten(name)}{choices(name, PRECISIONS)}")
    wanted, optional = OPERATIONS[op].columns, OPERATIONS[op].optional
    if lacking := [column for column in wanted if column not in table]:
        raise WorkloadError(f"{op}: the table lacks its column {' and '.join(map(repr, lacking))}")
    names = [*wanted, *(column for column in optional if column in table)]
    columns = {name: _numbers([table[name][row] for row in rows]) for name in names}
    wrong = np.full(len(rows), "", dtype=object)

    def refuse(good: Array, name: str, why: str) -> None:
        for at in np.flatnonzero(~good & (wrong == "")):
            wrong[at] = f"{op}: {name} is {shorten(table[name][rows[at]])}; it must be {why}"

    for name, values in columns.items():
        least = 0 if name == "window" else 1
        whole = (values >= least) & (values <= MOST) & (values == np.floor(values))
        refuse(whole, name, f"a whole number from {least} to {MOST}")
    for less, more in (("topk", "experts"), ("moe_ep", "experts"), ("kv_heads", "heads"), ("seq", "kv_len")):
        if less in columns and more in columns:
            refuse(columns[less] <= columns[more], less, f"at most {more}")
    if "kv_heads" in columns and "heads" in columns:
        refuse(columns["heads"] % np.maximum(columns["kv_heads"], 1) == 0, "heads", "a multiple of kv_heads")
    latency = _numbers([table["latency_us"][row] for row in rows])
    refuse((latency > 0) & np.isfinite(latency), "latency_us", "a number above zero")
    return {name: values[wrong == ""] for name, values in columns.items()}, wrong


def _numbers(cells: Sequence[str]) -> Array:
    def number(cell: str) -> float:
        try:
            return float(cell)
        except ValueError:
            return np.nan

    return np.array([number(cell) for cell in cells], dtype=float)
