"""The list of kernels of a run, with the ranges and the framework operator that enclose each launch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from roofmodel.profiles.kernel import (
    Call,
    CopySize,
    Extent,
    Kernel,
    Profile,
    ReaderWarning,
    copies_warning,
)
from roofmodel.profiles.timelines import enclosing
from roofmodel.profiles.timelines.timeline import KERNEL, UNKNOWN, Timeline
from roofmodel.profiles.torch_fields import parse_inputs

if TYPE_CHECKING:
    import pandas


def profile(timeline: Timeline) -> Profile:
    """The kernels and the copies in order of start; times in seconds from `timeline.begin`."""
    work = timeline.work[timeline.work["kind"] == KERNEL]
    placement = enclosing.place(work, timeline.ranges)
    ranges = enclosing.names_outermost_first(work, timeline.ranges, placement)
    calls = _calls(enclosing.with_captured_launches(work, timeline.calls), timeline.operators)
    columns = _Columns(work)
    untimed = (work["untimed"] != UNKNOWN).tolist()
    begin, starts, ends, launches = timeline.begin, columns.start, columns.end, columns.launch_start
    kernels = tuple(
        Kernel(
            id=str(i),
            file=timeline.file,
            name=name,
            process=process,
            device=device,
            stream=stream,
            grid=grid,
            block=block,
            nvtx=ranges[i],
            call=calls[i],
            seconds=None if untimed[i] else (ends[i] - starts[i]) / 1e9,
            start=(starts[i] - begin) / 1e9,
            launch=None if launches[i] == UNKNOWN else (launches[i] - begin) / 1e9,
            occupancy=occupancy,
            registers=registers,
            shared_bytes=shared,
        )
        for i, (name, process, device, stream, grid, block, occupancy, registers, shared) in enumerate(
            zip(
                columns.name, columns.process, columns.device, columns.stream, _extents(work["grid"]),
                _extents(work["block"]), _occupancies(work["occupancy"]), _texts(work["registers"], int),
                _texts(work["shared_bytes"], int), strict=True,
            )
        )
    )  # fmt: skip
    warnings = [*placement.warnings(), *map(ReaderWarning, timeline.warnings)]
    if kernels and len(timeline.operators) and not any(calls):
        warnings.append(ReaderWarning(f"none of {len(kernels)} kernels could be joined with a framework operator"))
    in_graph = work["launch_call"].astype(object).str.contains("GraphLaunch", na=False, regex=False).tolist()
    if timeline.tool == "torch" and (
        unknown := sum(graph and (call is None or call.in_graph) for graph, call in zip(in_graph, calls, strict=True))
    ):
        text = (
            f"{unknown} kernels of CUDA graphs have no shapes: the trace has no capture of their graph, or "
            "several of its size. Start the profiler with record_shapes=True before the capture, or run without graphs"
        )
        warnings.append(ReaderWarning(text))
    if len(timeline.ranges) and (missing := launches.count(UNKNOWN)):
        text = f"{missing} of {len(kernels)} kernels have no launch in the file: their ranges are unknown"
        warnings.append(ReaderWarning(text))
    warnings += copies_warning(len(timeline.work) - len(work))
    if any(untimed):
        text = f"{sum(untimed)} kernels have a missing or negative duration: their times are unknown"
        warnings.append(ReaderWarning(text, "times"))
    return Profile(timeline.tool, (timeline.file,), kernels, timeline.evidence, tuple(warnings), _copies(timeline))


def _copies(timeline: Timeline) -> tuple[Kernel, ...]:
    """The memory copies and memsets."""
    work = timeline.work[timeline.work["kind"] != KERNEL]
    columns = _Columns(work)
    return tuple(
        Kernel(
            id=str(i),
            file=timeline.file,
            name=name,
            process=process,
            device=device,
            stream=stream,
            seconds=(end - start) / 1e9 if untimed == UNKNOWN else None,
            start=(start - timeline.begin) / 1e9,
            copy=CopySize(None if size == UNKNOWN else size, *between),
        )
        for i, (name, process, device, stream, start, end, untimed, size, *between) in enumerate(
            zip(
                columns.name, columns.process, columns.device, columns.stream, columns.start, columns.end,
                columns.untimed, columns.bytes, columns.direction, columns.memory, columns.source, columns.destination,
                strict=True,
            )
        )
    )  # fmt: skip


class _Columns:
    """The columns of a table as lists; None for a missing text."""

    def __init__(self, table: pandas.DataFrame) -> None:
        self._table = table

    def __getattr__(self, name: str) -> list[Any]:
        column = self._table[name]
        return column.tolist() if column.dtype == np.int64 else _texts(column)


def _texts(column: pandas.Series, convert: Any = str) -> list[Any]:
    """What `convert` makes of each text, which occurs often and is read once; None for a missing text."""
    texts = [*map(convert, column.cat.categories), None]
    return [texts[code] for code in column.cat.codes.tolist()]


def _extents(column: pandas.Series) -> list[Extent | None]:
    return _texts(column, lambda text: tuple(map(int, text.split(","))))


def _occupancies(column: pandas.Series) -> list[float | None]:
    return _texts(column, lambda text: float(text) / 100 or None)  # 0 means that it is unknown


def _calls(work: pandas.DataFrame, operators: pandas.DataFrame) -> list[Call | None]:
    """The operator that launched each kernel: the one whose number the file states, else the one around the launch.

    Profilers of 2022 and 2023 gave all kernels their correlation id as number, which then identifies no operator.
    """
    if not len(operators):
        return [None] * len(work)
    operator_rows, parents = enclosing.calls(work, operators)
    numbers, stated_numbers = operators["number"].to_numpy(), work["operator"].to_numpy()
    if (stated_numbers != work["correlation"]).any():
        rows = {number: row for row, number in enumerate(numbers.tolist()) if number != UNKNOWN}
        operator_rows = np.array(
            [rows.get(number, row) for number, row in zip(stated_numbers.tolist(), operator_rows.tolist(), strict=True)]
        )
    names, texts = _texts(operators["name"]), _texts(operators["inputs"])
    outer, calls = parents.tolist(), dict[int, Call]()
    inputs = {text: parse_inputs(text) for text in operators["inputs"].cat.categories}

    def call(row: int) -> Call | None:
        chain = []
        while row >= 0 and row not in calls:
            chain.append(row)
            row = outer[row]
        for each in reversed(chain):
            recorded = inputs.get(texts[each])
            shapes = recorded.shapes if recorded else ()
            plain = tuple(() if any(isinstance(size, tuple) for size in shape) else shape for shape in shapes)
            number = len(calls) if numbers[each] == UNKNOWN else int(numbers[each])
            calls[each] = Call(number, names[each], plain, recorded, calls.get(outer[each]))  # type: ignore[arg-type]
        return calls.get(chain[0] if chain else row)

    of_graphs = work["launch_call"].astype(object).str.contains("GraphLaunch", na=False, regex=False).tolist()
    return [
        each._replace(in_graph=True) if in_graph and (each := call(row)) else call(row)
        for row, in_graph in zip(operator_rows.tolist(), of_graphs, strict=True)
    ]
