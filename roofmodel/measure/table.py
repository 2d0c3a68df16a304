"""Read tables of measurements; group their rows by operation and kernel into operators whose sizes are columns.

A benchmark that repeats one operation may have the data of a row in the L2 cache, which lowers the least possible time.
"""

from __future__ import annotations

import csv
import gzip
import io
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from roofmodel.counting.operator import Operator
from roofmodel.devices.device import Device
from roofmodel.engines.engine import benchmark_of
from roofmodel.engines.engine_file import Benchmark
from roofmodel.errors import ProfileError, WorkloadError, choices, shorten
from roofmodel.files.text_files import decode
from roofmodel.measure.layer_kernels import SEPARATE_FILTERS
from roofmodel.measure.operations import AT_MOST, OPERATIONS, PRECISIONS, widths, with_groups, without_gates
from roofmodel.numbers.algebra import Number
from roofmodel.timing.formula import chip, dram_share, l2_bytes
from roofmodel.timing.roofline import Placement
from roofmodel.timing.timing import gemm_work

Array = np.ndarray[Any, np.dtype[Any]]
Table = Mapping[str, Sequence[str]]  # column -> cells, as in the file


class FileTable(dict[str, Sequence[str]]):
    """The columns of a file, with the line of the file on which each row begins; blank lines are not rows."""

    def __init__(self, columns: Iterable[tuple[str, Sequence[str]]] = (), lines: Sequence[int] = ()) -> None:
        super().__init__(columns)
        self.lines = lines


MAX_SIZE = 10**12
"""The largest accepted size; the elements of a collective are the largest sizes."""

MAX_TABLE = 256 * 2**20
"""Bytes of a table of measurements, decompressed. Published ones have up to 5 MB."""

MAX_SHARED_CELLS = 2**16

LATENCY_LIMITS = 1e-3, 1e12
"""The accepted latencies in microseconds: from a nanosecond, shorter than any launch, to eleven days.

Other values are of another unit or damaged, and one of them would dominate all mean errors."""

REQUIRED = ("op", "dtype", "latency_us")
"""Columns of every table; `dtype` only where an operation does not imply it."""

OTHER_UNITS = {
    "latency_ms": "multiply its values by 1000",
    "latency_s": "multiply its values by 1000000",
    "latency_ns": "divide its values by 1000",
}
"""Columns of times in other units, and the conversion to microseconds."""

REPEATED_HEADER = "the row repeats the header"

HOST_CLOCK = "by the host's clock"
"""Part of a parameter set's name: for rows without a kernel that the host timed, so that the launch is included."""

ROTATING_BENCHMARKS = "aiconfigurator"
"""Source of the GEMM benchmarks that use copies of the operands in turn, in a number that depends on the framework."""

_HOST_TIMED = re.compile(r"\bhost\b")


def read(path: str) -> FileTable:
    """The columns of a CSV file with a header, gzipped or not. Raises ProfileError if it is not such a table."""
    try:
        numbered = list(_rows(decode(_content(path))))
        if not numbered:
            raise ValueError("the file is empty")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError, csv.Error, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise ProfileError(f"{path}: not a readable table of measurements ({reason})") from None
    (_, header), *numbered = numbered
    lines, rows = [line for line, _ in numbered], [row for _, row in numbered]
    complete = (row for row in rows if len(row) == len(header) and row != header)
    ops = {row[header.index("op")] for row in complete} if header.count("op") == 1 else set()
    implied = bool(ops) and all(op in OPERATIONS and OPERATIONS[op].dtype for op in ops)
    if problem := _header_problem(header, ("op", "latency_us") if implied else REQUIRED):
        raise ProfileError(f"{path}: {problem}")
    for line, row in numbered:
        if len(row) != len(header):
            raise ProfileError(f"{path}:{line}: the row has {len(row)} cells, but the header has {len(header)}")
    return FileTable(zip(header, zip(*rows, strict=True) if rows else [()] * len(header), strict=True), lines)


def _rows(text: str) -> Iterator[tuple[int, list[str]]]:
    """The rows of a CSV text that are not blank, each with the line on which it begins.

    Equal cells are one text in memory, up to MAX_SHARED_CELLS different ones: most columns have few values.
    """
    reader, line = csv.reader(io.StringIO(text, newline=""), strict=True), 1
    cells = dict[str, str]()
    for row in reader:
        if len(row) > 1 or any(map(str.strip, row)):
            share = cells.setdefault if len(cells) < MAX_SHARED_CELLS else cells.get
            yield line, [share(cell, cell) for cell in row]
        line = reader.line_num + 1


def row_lines(table: Table) -> Sequence[int]:
    """The line of the file of each row. The rows of a table that is not from a file follow a header on line 1."""
    return table.lines if isinstance(table, FileTable) else range(2, len(table["op"]) + 2)


def gpus(table: Table) -> list[str]:
    """The cells of the column `gpu`, if the table has one, without those of repeated headers."""
    repeated = _repeated_headers(table)
    return [cell for row, cell in enumerate(table.get("gpu", ())) if row not in repeated]


def _repeated_headers(table: Table) -> set[int]:
    """The numbers of the rows that repeat the header, as in several tables written to one file."""
    rows = (row for row, op in enumerate(table["op"]) if op == "op")
    return {row for row in rows if all(table[name][row] == name for name in REQUIRED if name in table)}


def _content(path: str) -> bytes:
    """The decompressed bytes of a file. Raises ValueError if it is larger than MAX_TABLE."""
    with Path(path).open("rb") as file:
        content = file.read(MAX_TABLE + 1)
    if content.startswith(b"\x1f\x8b"):
        content = gzip.GzipFile(fileobj=io.BytesIO(content)).read(MAX_TABLE + 1)
    if len(content) > MAX_TABLE:
        raise ValueError(f"larger than {MAX_TABLE // 2**20} MiB")
    return content


def _header_problem(header: Sequence[str], required: Sequence[str]) -> str:
    """Why this is not the header of a table of measurements; empty if it is one."""
    for name, sign in {"semicolons": ";", "tabs": "\t"}.items():
        if len(header) == 1 and sign in header[0]:
            return f"the columns are separated by {name}; save the file with commas (CSV)"
    if missing := [column for column in required if column not in header]:
        misspelled = [column for column in header if column.strip().lower() in missing]
        hints = [f" (it has {', '.join(map(repr, misspelled))}: use lower case, no spaces)"] if misspelled else []
        if "latency_us" in missing:
            hints += [
                f" (it has {column!r}: {conversion} and rename the column to latency_us, for microseconds)"
                for column in header
                if (conversion := OTHER_UNITS.get(column.strip().lower()))
            ]
        return (
            f"missing columns: {', '.join(missing)}{''.join(hints)}; a table of measurements has op, dtype, latency_us "
            "and the shape columns of each op, such as m, n, k for gemm"
        )
    repeated = [column for column in dict.fromkeys(header) if header.count(column) > 1]
    return f"the header has the column {repeated[0]!r} {header.count(repeated[0])} times; keep one" if repeated else ""


class RowGroup(NamedTuple):
    """Rows of one operation, format and kernel, as one operator whose sizes are columns."""

    op: str
    compute: str  # the format of the arithmetic
    kernel: str
    l2: str  # cold, warm, or empty if the table does not state it
    benchmark: Benchmark
    rows: Array  # row numbers in the table, from 0
    shape: Mapping[str, Array]
    operator: Operator


def groups(table: Table) -> tuple[list[RowGroup], Array]:
    """The valid rows in groups, and a note for each row: empty if it is valid, else what is wrong."""
    count = len(table["op"])
    notes, row_groups = np.full(count, "", dtype=object), []
    rows_of: dict[tuple[Any, ...], list[int]] = {}
    more = {name for operation in OPERATIONS.values() for name in (*operation.text_columns, *operation.required_texts)}
    keys = tuple(
        dict.fromkeys(
            (
                "op",
                "dtype",
                "kv_dtype",
                "kernel",
                "l2",
                "benchmark",
                "framework",
                "engine",
                *sorted(more),
            )
        )
    )
    frameworks = table.get("framework", [""] * count)
    benchmarks = {cell: benchmark_of(cell) for cell in {*frameworks}}
    # The framework matters only if the host timed the rows, because the launch is then included.
    cells = {
        **table,
        "framework": ["host" if _HOST_TIMED.search(cell) else "" for cell in table.get("framework", ())],
        "engine": [
            cell.partition(" ")[0].lower() if op in OPERATIONS and OPERATIONS[op].by_engine else ""
            for op, cell in zip(table["op"], table.get("framework", ()), strict=False)
        ],
        "benchmark": [
            benchmarks[cell] if op != "gemm" or source.startswith(ROTATING_BENCHMARKS) else Benchmark()
            for op, source, cell in zip(table["op"], table.get("source", [""] * count), frameworks, strict=False)
        ],
        "dtype": dtypes(table),
    }
    repeated = _repeated_headers(table)
    for row, key in enumerate(zip(*(cells.get(name) or [""] * count for name in keys), strict=True)):
        if row not in repeated:
            rows_of.setdefault(key, []).append(row)
    notes[list(repeated)] = REPEATED_HEADER
    for key, rows in rows_of.items():
        here, texts = np.array(rows), dict(zip(keys, key, strict=True))
        op, dtype, kv, kernel, l2, benchmark = key[:6]
        if texts["framework"]:
            kernel = kernel or f"{op}, {HOST_CLOCK}"
        try:
            shape, problems = _shape(table, here, op, dtype, kv)
            notes[here], valid = problems, problems == ""
            for some in _by_kernel(op, shape):
                part = {name: values[some] for name, values in shape.items()}
                operator = OPERATIONS[op].operator({**texts, **part}, widths(PRECISIONS[dtype], kv or None))
                kernel = kernel.removesuffix(f"_{SEPARATE_FILTERS}")  # the same kernel, three times
                label = " ".join(filter(None, (texts["engine"], OPERATIONS[op].label, kernel)))
                row_groups.append(
                    RowGroup(op, PRECISIONS[dtype].compute, label, l2, benchmark, here[valid][some], part, operator)
                )
        except WorkloadError as error:
            notes[here] = str(error)
    return row_groups, notes


def dtypes(table: Table) -> Sequence[str]:
    """The dtype of each row: its cell, or that of the operation where the table has no such column."""
    return table.get("dtype") or [OPERATIONS[op].dtype if op in OPERATIONS else "" for op in table["op"]]


def _by_kernel(op: str, shape: Mapping[str, Array]) -> list[Array]:
    """Row numbers by kernel: decode (one query over more keys) apart, and so are experts without gates or in groups."""
    kernel = np.zeros(len(next(iter(shape.values()))), int)
    if "kv_len" in shape:
        kernel = 1 * ((shape["seq"] == 1) & (shape["kv_len"] > 1))
    elif op == "moe":
        kernel = 1 * (without_gates(shape) > 0) + 2 * with_groups(shape)
    return [np.flatnonzero(kernel == number) for number in np.unique(kernel)]


def skipped(notes: Sequence[str], lines: Sequence[int]) -> dict[str, list[int]]:
    """The skipped lines of the file by reason. `lines` are those of the rows."""
    lines_by_reason: dict[str, list[int]] = {}
    for line, reason in zip(lines, notes, strict=True):
        if reason:
            lines_by_reason.setdefault(reason, []).append(line)
    return lines_by_reason


def reason_lines(reasons: Mapping[str, list[int]], limit: int = 10) -> Iterator[str]:
    """One text per reason with its line numbers, for the first reasons, then the number of the other ones."""
    for reason, lines in [*reasons.items()][:limit]:
        yield f"{line_numbers(lines)}: {reason}"
    if rest := [*reasons.values()][limit:]:
        yield f"{sum(map(len, rest))} more lines, for {len(rest)} more reasons"


def line_numbers(lines: Sequence[int], limit: int = 3) -> str:
    """`lines 3, 4, 5 … (9)`: the first line numbers, and how many there are."""
    more = f" … ({len(lines)})" if len(lines) > limit else ""
    return f"line{'s' * (len(lines) > 1)} {', '.join(map(str, lines[:limit]))}{more}"


def seconds(table: Table) -> Array:
    """The measured times in seconds; NaN for a cell that is not a number. A row may be of several calls (`sites`)."""
    return _numbers(table["latency_us"]) / 1e6 / (_numbers(table["sites"]) if "sites" in table else 1)


def _shape(table: Table, rows: Array, op: str, dtype: str, kv: str) -> tuple[dict[str, Array], Array]:
    """The shape columns of the valid rows, and for each row what is wrong with it, or "".

    Raises WorkloadError if the operation or a format is unknown, or if a shape column is missing.
    """
    if op not in OPERATIONS:
        raise WorkloadError(f"unknown op {shorten(op)}{choices(op, OPERATIONS)}")
    if not dtype:
        raise WorkloadError(f"{op}: dtype is empty; known: {', '.join(PRECISIONS)}")
    for name in filter(None, (dtype, kv)):
        if name not in PRECISIONS:
            raise WorkloadError(f"unknown dtype {shorten(name)}{choices(name, PRECISIONS)}")
    required, optional = OPERATIONS[op].columns, OPERATIONS[op].optional
    if missing := [column for column in required if column not in table]:
        raise WorkloadError(f"{op}: the table lacks the column {', '.join(map(repr, missing))}")
    numbers = [column for column in required if column not in OPERATIONS[op].required_texts]
    names = [*numbers, *(column for column in optional if column in table)]
    columns = {name: _numbers([table[name][row] for row in rows]) for name in names}
    problems = np.full(len(rows), "", dtype=object)

    def require(valid: Array, name: str, rule: str) -> None:
        for row in np.flatnonzero(~valid & (problems == "")):
            problems[row] = f"{op}: {name} is {shorten(table[name][rows[row]])}; it must be {rule}"

    for name, values in columns.items():
        least = 0 if name == "window" else 1
        is_size = (values >= least) & (values <= MAX_SIZE) & (values == np.floor(values))
        require(is_size, name, f"a whole number from {least} to {MAX_SIZE}")
    for less, more in AT_MOST:
        if less in columns and more in columns:
            require(columns[less] <= columns[more], less, f"at most {more}")
    if "kv_heads" in columns and "heads" in columns:
        require(columns["heads"] % np.maximum(columns["kv_heads"], 1) == 0, "heads", "a multiple of kv_heads")
    latency = _numbers([table["latency_us"][row] for row in rows])
    low, high = LATENCY_LIMITS
    require((latency >= low) & (latency <= high), "latency_us", f"a number of microseconds from {low:g} to {high:g}")
    return {name: values[problems == ""] for name, values in columns.items()}, problems


def _numbers(cells: Sequence[str]) -> Array:
    def number(cell: str) -> float:
        try:
            return float(cell) if cell.isascii() and "_" not in cell else np.nan  # Python reads 1_28 and other digits
        except ValueError:
            return np.nan

    return np.array([number(cell) for cell in cells], dtype=float)


THIRDS = 3
MODEL_COLUMNS = {
    "gemm": ("n", "k"),
    "attn_context": ("heads", "kv_heads", "head_dim"),
    "attn_generation": ("heads", "kv_heads", "head_dim"),
    "attn_encoder": ("heads", "head_dim"),
    "moe": ("hidden", "inter", "experts", "topk"),
    "gdn": ("d_model", "k_heads", "v_heads"),
    "mamba2": ("d_model", "heads"),
}
"""The columns of an operation that belong to a model: its matrices, heads or experts. A row that was not in a fit is a
row of a model that was not in the fit, since users ask about other models rather than about other batches."""


def held_out(op: str, shape: Mapping[str, Array]) -> Array:
    """Mask of the rows that a fit does not use: the first of the `thirds`."""
    return np.asarray(thirds(op, shape) == 0)


def thirds(op: str, shape: Mapping[str, Array]) -> Array:
    """The third of the models (0, 1 or 2) that each row belongs to; of the cells, for operations without models."""
    columns = [name for name in MODEL_COLUMNS.get(op, ()) if name in shape]
    return _third([shape[name] for name in columns]) if columns else thirds_of_cells(shape)


def thirds_of_cells(shape: Mapping[str, Array]) -> Array:
    """The third of the cells (0, 1 or 2) that each row belongs to: all shapes that round to the same powers of two."""
    return _third([np.round(np.log2(np.maximum(shape[name], 1))) for name in sorted(shape)])


def _third(columns: Sequence[Array]) -> Array:
    """A number from 0 to 2 for each row, equal for rows that are equal in these columns."""
    rows = np.ascontiguousarray(np.stack(columns).astype(int).T)
    return np.array([zlib.crc32(row.tobytes()) % THIRDS for row in rows])


def repeated(group: RowGroup) -> int:
    """1 where L2 may keep data from one launch to the next; 0 where the table says that the benchmark evicts them."""
    return int(group.l2 != "cold")


def copies(group: RowGroup, device: Device) -> tuple[Number, Number]:
    """How many copies of A and B a GEMM benchmark uses in turn."""
    work, benchmark = gemm_work(group.operator, group.compute), group.benchmark if group.op == "gemm" else Benchmark()
    if group.l2 == "warm" or work is None:
        return 1, 1
    of_a, of_b = benchmark.gemm_copies
    stored = group.operator.widths.format(group.operator.lines[0].factors[1])
    if stored.name in benchmark.single_weights:
        return of_a, 1
    if benchmark.fills_l2:
        return of_a, np.clip(np.ceil(l2_bytes(device) / (work.n * work.k * stored.bits / 8)), 1, of_b)
    return of_a, of_b


def least_seconds(group: RowGroup, placed: Placement, device: Device) -> Array:
    """The bound in seconds, without the DRAM time of data that may be in L2."""
    if OPERATIONS[group.op].warm and repeated(group):
        return _least_from_l2(placed, device, group.compute)
    streamed = 1 - repeated(group) * (1 - dram_share(np.asarray(placed.cost.bytes, dtype=float), l2_bytes(device)))
    least = np.maximum(placed.memory_seconds * streamed, np.maximum(placed.compute_seconds, placed.link_seconds))
    return np.asarray(least)


def _least_from_l2(placed: Placement, device: Device, dtype: str) -> Array:
    """The bound in seconds of a call that is repeated on the same operands.

    Only the bytes that L2 cannot hold come from DRAM, and a state is written where it was read. All bytes pass the
    ports between L2 and the SMs.
    """
    data, repeated_bytes = (np.asarray(b, dtype=float) for b in (placed.cost.bytes, _larger_direction(placed)))
    missing = data * np.maximum(1 - l2_bytes(device) / repeated_bytes, 0)
    ceilings = chip(device, dtype)
    ports = data / ceilings.port if ceilings else 0.0
    return np.asarray(np.maximum(np.maximum(placed.compute_seconds, missing / device.bandwidth), ports))


def _larger_direction(placed: Placement) -> Array:
    return np.asarray(np.maximum(placed.cost.bytes_read, placed.cost.bytes_written))
