"""Read Nsight Compute reports (`.ncu-rep`) with NVIDIA's package `ncu-report`.

Only NVIDIA's package can read the format. It is optional (`pip install ncu-report`, or the extra `ncu`), needs no GPU,
and reads reports of its own version and older ones.
"""

from __future__ import annotations

import math
import os
import re
import shlex
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, BinaryIO

from roofmodel.errors import ProfileError, shorten
from roofmodel.files.text_files import printable
from roofmodel.profiles.kernel import Evidence, SourceLine, ToolRule, extent
from roofmodel.profiles.ncu import metric_names, tool_rules
from roofmodel.profiles.ncu.device_attributes import ATTRIBUTE, ATTRIBUTES, evidence, in_base_units, scale
from roofmodel.profiles.ncu.launch_tables import LaunchTable
from roofmodel.profiles.signatures import NCU_REPORT
from roofmodel.profiles.streams import as_file, limited_name

WITH_SOURCE = 100  # results whose lines are read: a metric has a value for each instruction
LINES = 3
_SAMPLED = re.compile(r"smsp__pcsamp_warps_issue_stalled_(?!selected|\w*not_issued)\w+$")


def parse(stream: BinaryIO, file: str) -> LaunchTable:
    """All launches of a report. Raises ProfileError if the package is not installed or cannot read the report."""
    import multiprocessing
    from concurrent.futures.process import BrokenProcessPool, ProcessPoolExecutor

    _import_package(file)
    with as_file(stream, NCU_REPORT, file) as path:
        if sys.platform != "linux":
            return _table(str(path), file)
        # The package aborts the process on some damaged reports, so it runs in a child process.
        with ProcessPoolExecutor(1, multiprocessing.get_context("fork"), _discard_stderr) as pool:
            try:
                return pool.submit(_table, str(path), file).result()
            except BrokenProcessPool:
                why = "the report is damaged: ncu-report aborted"
                raise ProfileError(f"{file}: {why}; {_csv_command(file)}") from None


def _discard_stderr() -> None:
    """Discard stderr: the library prints internal messages before it aborts."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


def _table(path: str, file: str) -> LaunchTable:
    package, table = _import_package(file), LaunchTable(file, summary=False)
    try:
        report = package.load_report(path)
        results = [action for part in report for action in part]
    except (RuntimeError, OSError, ValueError) as error:
        raise ProfileError(f"{file}: ncu-report cannot read this report: {error}; {_csv_command(file)}") from None
    for number, action in enumerate(results):
        _read(action, number, table)
    table.launches.fill(file=file)
    if not len(table.launches):
        raise ProfileError(
            f"{file}: ncu-report found no results: the report is empty, damaged, or from a newer Nsight Compute "
            f"(pip install -U ncu-report); {_csv_command(file)}"
        )
    return table


def _import_package(file: str) -> Any:
    try:
        import ncu_report
    except ImportError as error:
        raise ProfileError(
            f"{file}: reading an Nsight Compute report needs NVIDIA's package ncu-report ({error}): "
            f"pip install ncu-report; {_csv_command(file)}"
        ) from None
    return ncu_report


def _csv_command(file: str) -> str:
    return f"or run: ncu --import {shlex.quote(file)} --csv --page raw --print-units base --log-file report.csv"


def _read(action: Any, number: int, table: LaunchTable) -> None:
    """Add one result (a kernel or, in range replay, a range) to the table as a launch."""
    names, kernel = action.metric_names(), action.name(action.NameBase_DEMANGLED) or action.name()
    if not kernel:
        raise ProfileError(f"{table.file}: result {number} has no name: the report is cut short or damaged")
    table.metrics.update(names)
    identity = {name: _value(action, name) for name in names if _identifies(name)}
    attributes = {name: identity.get(ATTRIBUTE + name) or "" for name in ATTRIBUTES}
    device_evidence = evidence(attributes, lambda name: _unit(action, ATTRIBUTE + name))
    if device_evidence != Evidence() and device_evidence not in table.evidence:
        table.evidence.append(device_evidence)
    cells: dict[str, object] = dict(
        number=number,
        name=sys.intern(limited_name(printable(kernel))),
        device=identity.get("launch__device_id"),
        stream=identity.get("launch__stream_id"),
        grid=extent(_whole(identity.get(f"launch__grid_dim_{axis}")) for axis in "xyz"),
        block=extent(_whole(identity.get(f"launch__block_dim_{axis}")) for axis in "xyz"),
        capability=device_evidence.compute_capability,
        nvtx=_ranges(action.nvtx_state()),
        rules=tuple(_rules(action)) or None,
        lines=tuple(_lines(action, names)) or None if number < WITH_SOURCE else None,
    )
    for name in filter(_is_read, names):
        value = action.metric_by_name(name).value()
        if isinstance(value, int | float) and math.isfinite(value):
            unit = _unit(action, name)
            factor = scale(name, unit)
            if factor is None and not metric_names.is_interpreted(name):
                continue
            if factor is None:
                raise ProfileError(f"{table.file}: {name} is in {shorten(unit)}, which does not fit this metric")
            if value < 0:
                raise ProfileError(f"{table.file}: {name} is {value}, but counts and times cannot be negative")
            table.launches.declare(**{name: float})
            cells[name] = in_base_units(value, factor)
    table.launches.add(**cells)


def _lines(action: Any, names: Sequence[str]) -> list[SourceLine]:
    """The lines with most samples of stalled warps, or else most executed instructions; [] without counters of SASS."""
    places: dict[int, str] = {}
    stalled = [name for name in names if _SAMPLED.match(name)]
    for measure, counted in (("stall samples", stalled), ("instructions", ["inst_executed"])):
        costs: dict[str, float] = {}
        for name in counted:
            metric = action.metric_by_name(name)
            addresses = metric.correlation_ids() if metric is not None and metric.num_instances() else None
            if addresses is None:
                continue
            for i in range(metric.num_instances()):
                address = addresses.as_uint64(i)
                if address not in places:
                    places[address] = _place(action, address)
                costs[places[address]] = costs.get(places[address], 0.0) + metric.as_double(i)
        if total := sum(costs.values()):
            longest = sorted(costs, key=lambda place: -costs[place])[:LINES]
            return [SourceLine(place, costs[place] / total, measure) for place in longest if costs[place]]
    return []


def _place(action: Any, address: int) -> str:
    """`gemm.cu:42` of an instruction; the instruction itself where the report has no source line."""
    info = action.source_info(address)
    if info is not None and info.line():
        file = re.split(r"[/\\]", printable(info.file_name()))[-1]
        return f"{file}:{info.line()}"
    return printable(" ".join((action.sass_by_pc(address) or f"address {address:#x}").split()))


def _rules(action: Any) -> Iterator[ToolRule]:
    """The rules of the tool that state a reason. Reports and packages before 2022 have no method for them."""
    results = action.rule_results_as_dicts() if hasattr(action, "rule_results_as_dicts") else ()
    for result in results:
        message, estimate = result.get("rule_message") or {}, result.get("speedup_estimation") or {}
        kind = "OPT" if "OPT" in str(message.get("type", "")).upper() else "INF"
        scope = "local" if "LOCAL" in str(estimate.get("type", "")).upper() else "global"
        speedup = estimate.get("speedup")
        share = min(speedup / 100, 1.0) if isinstance(speedup, int | float) and speedup > 0 else None
        text = printable(str(message.get("message", "")))
        if rule := tool_rules.tool_rule("OPT" if share is not None else kind, text, share, scope):
            yield rule


# Cached: every result has the same names.
_is_read = cache(metric_names.is_read)


@cache
def _identifies(name: str) -> bool:
    return name.startswith(("launch__grid_dim_", "launch__block_dim_", "launch__device_id", "launch__stream_id")) or (
        name.startswith(ATTRIBUTE) and name.removeprefix(ATTRIBUTE) in ATTRIBUTES
    )


def _value(action: Any, name: str) -> str | None:
    """The value as a CSV table would show it: integers without a decimal point."""
    value = action.metric_by_name(name).value()
    whole = isinstance(value, float) and value.is_integer()
    return None if value is None else printable(str(int(value) if whole else value))


def _whole(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None


def _unit(action: Any, name: str) -> str:
    metric = action.metric_by_name(name)
    return metric.unit() if metric is not None else ""


def _ranges(state: Any) -> tuple[str, ...]:
    """NVTX ranges, outermost first: start/stop ranges of the process, then push/pop ranges of the thread."""
    domains = [state.domain_by_id(number) for number in state.domains()] if state is not None else []
    started = (name for domain in domains for name in domain.start_end_ranges())
    pushed = (name for domain in domains for name in domain.push_pop_ranges())
    return tuple(sys.intern(limited_name(printable(name))) for name in (*started, *pushed) if name)
