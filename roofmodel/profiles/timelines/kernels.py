"""The kernels of a run, with the ranges and the framework operator that enclose each launch."""

from __future__ import annotations

from collections.abc import Iterator

from roofmodel.errors import ProfileError
from roofmodel.numbers import units
from roofmodel.profiles.kernel import Call, KernelTable, Profile, ReaderWarning, copies_warning
from roofmodel.profiles.timelines.timeline import UNKNOWN, Timeline, kernel_rows


def profile(timeline: Timeline) -> Profile:
    """The kernels and the copies, in the order of the file or of their starts; impossible values are unknown.

    Raises ProfileError if the tool always records kernels, and the file has none.
    """
    if timeline.without_kernels:
        raise ProfileError(f"{timeline.file}: {timeline.without_kernels}")
    work, chosen = timeline.work_table, kernel_rows(timeline.work_table)
    kernels = _numbered(timeline, work.select(chosen) if len(chosen) < len(work) else work.copy())
    copies = _numbered(timeline, work.select(kernel_rows(work, others=True)))
    warnings = [text if isinstance(text, ReaderWarning) else ReaderWarning(text) for text in timeline.warnings]
    if any(map(len, (timeline.call_table, timeline.operator_table, timeline.range_table))):
        warnings = [*_add_places(kernels, timeline, warnings)]
    warnings += copies_warning(sum(copies.launches()))
    if untimed := len(kernels) - kernels.cells("untimed").count(None):
        text = f"{units.count(untimed, 'kernel')} with a missing or negative duration: time unknown"
        warnings.append(ReaderWarning(text, "times"))
    warnings += kernels.without_impossible_values()
    files = timeline.files or (timeline.file,)
    return Profile(timeline.tool, files, kernels, timeline.evidence, tuple(warnings), copies)


def _numbered(timeline: Timeline, work: KernelTable) -> KernelTable:
    """The rows with their numbers, their file and the start of the trace."""
    if not work.has("number"):
        work.set("number", range(len(work)))
    if not work.has("file"):
        work.fill(file=timeline.file)
    if timeline.begin:
        work.fill(begin=timeline.begin)
    return work


def _add_places(kernels: KernelTable, timeline: Timeline, warnings: list[ReaderWarning]) -> Iterator[ReaderWarning]:
    """Add to each kernel the ranges and the operator around its launch; yields warnings about them."""
    from roofmodel.profiles.timelines import enclosing

    placement = enclosing.place(kernels, timeline.range_table)
    yield from placement.warnings()
    yield from warnings
    kernels.set("nvtx", enclosing.names_outermost_first(kernels, timeline.range_table, placement))
    calls = _calls(enclosing.with_captured_launches(kernels, timeline.call_table), timeline)
    if any(calls):
        kernels.set("call", calls)
    elif len(kernels) and len(timeline.operator_table):
        yield ReaderWarning(f"none of {len(kernels)} kernels could be joined with a framework operator")
    in_graph = ["GraphLaunch" in (name or "") for name in kernels.cells("launch_call")]
    if timeline.tool == "torch" and (
        unknown := sum(graph and (call is None or call.in_graph) for graph, call in zip(in_graph, calls, strict=True))
    ):
        yield ReaderWarning(
            f"{unknown} kernels of CUDA graphs have no shapes: the trace has no capture of their graph, or "
            "several of its size. Start the profiler with record_shapes=True before the capture, or run without graphs"
        )
    if len(timeline.range_table) and (missing := kernels.cells("launch_start").count(None)):
        yield ReaderWarning(f"{missing} of {len(kernels)} kernels have no launch in the file: their ranges are unknown")


def _calls(work: KernelTable, timeline: Timeline) -> list[Call | None]:
    """The operator that launched each kernel: the one whose number the file states, else the one around the launch.

    Profilers of 2022 and 2023 gave all kernels their correlation id as number, which then identifies no operator.
    """
    import numpy as np

    from roofmodel.profiles.timelines import enclosing
    from roofmodel.profiles.torch_fields import parse_inputs

    table = timeline.operator_table
    if not len(table):
        return [None] * len(work)
    operator_rows, parents = enclosing.calls(work, table)
    numbers, stated_numbers = table.array("number"), work.array("operator")
    if (stated_numbers != work.array("correlation")).any():
        rows = {number: row for row, number in enumerate(numbers.tolist()) if number != UNKNOWN}
        operator_rows = np.array(
            [rows.get(number, row) for number, row in zip(stated_numbers.tolist(), operator_rows.tolist(), strict=True)]
        )
    names, texts = table.cells("name"), table.cells("inputs")
    outer, calls = parents.tolist(), dict[int, Call]()
    inputs = {text: parse_inputs(text) for text in table.distinct("inputs")}

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

    of_graphs = ["GraphLaunch" in str(name) for name in work.cells("launch_call")]
    return [
        each._replace(in_graph=True) if in_graph and (each := call(row)) else call(row)
        for row, in_graph in zip(operator_rows.tolist(), of_graphs, strict=True)
    ]
