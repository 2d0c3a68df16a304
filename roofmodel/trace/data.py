"""The analysis of a run as a JSON document, records, CSV and files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from roofmodel.errors import ProfileError
from roofmodel.files import output_files
from roofmodel.report import encoding
from roofmodel.trace import comparison_tables as comparison
from roofmodel.trace import intervals, perfetto
from roofmodel.trace.achieved import Achieved, RunRoofline
from roofmodel.trace.copies import HOST_DIRECTIONS, Copies
from roofmodel.trace.groups import GroupTime, lecture_shares
from roofmodel.trace.ranks import Rank
from roofmodel.trace.steps import PARTS, StepWindow, total
from roofmodel.trace.trace import RankReport, RunAnalysis

SUFFIXES = (*output_files.PICTURES, "html", "json", "csv", *perfetto.SUFFIXES)


def document(trace: RunAnalysis) -> dict[str, Any]:
    """The document `roofmodel.trace/1`; times in seconds, steps relative to the first activity of their file."""
    identified = trace.identified
    link = identified.device.host_bandwidth if identified else None
    return {
        "schema": "roofmodel.trace/1",
        "source": {"tool": trace.tool, "files": list(trace.names.values())},
        "hardware": identified and identified.device.id,
        "hardware_from": identified and identified.source,
        "ranks": [_rank(each, trace.names, link) for each in trace.ranks],
        "by": trace.by,
        "groups": group_rows(trace),
        "top": [{"device": trace.ranks[row.rank].rank.device} | _group(row, "name") for row in trace.top],
        "steps": step_rows(trace),
        "roofline": _roofline(trace.roofline),
        "findings": [finding._asdict() for finding in trace.findings],
        "reading": None if trace.reading is None else str(trace.reading),
        "comparison": trace.comparison and comparison.document(trace.comparison),
        "warnings": list(map(str, trace.warnings)),
    }


def _rank(report: RankReport, names: dict[str, str], link: float | None) -> dict[str, Any]:
    rank = report.rank
    shares = lecture_shares(rank)
    whole = total(rank)
    return {
        "rank": rank.number,
        "file": names[rank.timeline.file],
        "process": rank.process,
        "device": rank.device,
        "run": rank.run,
        "kernels": int(rank.is_kernel.sum()),
        "kernel_seconds": rank.kernel_seconds,
        "busy_seconds": intervals.length(rank.kernels) / 1e9,
        "span_seconds": rank.kernel_span_seconds,
        "wall_seconds": whole.length / 1e9,
        "compute_only_seconds": whole.compute_only / 1e9,
        "compute_seconds": intervals.length(rank.compute) / 1e9,
        "communication_seconds": intervals.length(rank.communication) / 1e9,
        "communication_exposed_seconds": intervals.length(rank.exposed_communication) / 1e9,
        "communication_overlap": rank.overlap,
        "overlap_seconds": whole.overlap / 1e9,
        "memory_mgmt_share": shares and shares.memory_mgmt,
        "collective_share": shares and shares.collectives,
        "copies_exposed_seconds": intervals.length(rank.exposed_copies) / 1e9,
        "copies": [_copies(each, link) for each in report.copies],
        "collectives": [_counted(each._asdict()) for each in report.collectives],
        "idle_seconds": intervals.length(rank.idle) / 1e9,
        "idle_by_cause": report.idle_by_cause,
        "launch_to_start_median_seconds": rank.launch_to_start_median_seconds,
        "queue_depth_median": report.queue_depth_median,
        "mean_gap_seconds": rank.mean_gap_seconds,
        "graph_kernels": int(rank.in_graph.sum()),
        "graph_launches": rank.graph_launches,
    }


def _copies(copies: Copies, link: float | None) -> dict[str, Any]:
    rate = copies.bytes_per_second
    share = rate / link if copies.kind in HOST_DIRECTIONS and rate is not None and link else None
    return _counted(copies._asdict()) | {"bytes_per_second": rate, "link_share": share}


def _counted(record: dict[str, Any]) -> dict[str, Any]:
    """The key `number` is `count` in JSON; a named tuple cannot have this field."""
    return {"count" if key == "number" else key: value for key, value in record.items()}


def table_rows(trace: RunAnalysis) -> list[dict[str, Any]]:
    """One record per rank and group; of two runs one per group, with its change."""
    if trace.comparison is not None:
        return [comparison.change_record(row, "group") for row in trace.comparison.groups]
    return group_rows(trace)


def group_rows(trace: RunAnalysis) -> list[dict[str, Any]]:
    """One record per rank and group."""
    return [_group(row, "group") for row in trace.groups]


def _group(row: GroupTime, key: str) -> dict[str, Any]:
    return {
        "rank": row.rank, key: row.group, "kernels": row.kernels, "seconds": row.seconds, "share": row.share,
        "mean_seconds": row.mean, "median_seconds": row.median, "min_seconds": row.min, "max_seconds": row.max,
        **_achieved(row.achieved),
    }  # fmt: skip


def _achieved(found: Achieved | None) -> dict[str, Any]:
    """What kernels achieve against the ceilings; null where FLOPs and bytes, or the device, are unknown."""
    return {
        "counted_seconds": found and found.seconds,
        "flops": found and found.flops,
        "bytes": found and found.bytes,
        "flops_per_second": found and found.flops_per_second,
        "bytes_per_second": found and found.bytes_per_second,
        "attainable_seconds": found and found.minimum_seconds,
        "fraction": found and found.attainable_share,
        "bound": found and found.bound,
    }


def _roofline(roofline: RunRoofline | None) -> dict[str, Any] | None:
    """How much of the kernel time has known FLOPs and bytes; null if the files have no shapes of operators."""
    if roofline is None:
        return None
    return {
        "counted_from": "shapes",
        "kernel_seconds": roofline.kernel_seconds,
        "explained": roofline.explained_share,
        **_achieved(roofline.achieved),
        "not_counted": [
            {"reason": reason, "kernels": kernels, "seconds": seconds}
            for reason, (kernels, seconds) in roofline.unknown.items()
        ],
    }


def step_rows(trace: RunAnalysis) -> list[dict[str, Any]]:
    """One record per rank and step; the parts sum to `seconds`."""
    return [_step(each.rank, step) for each in trace.ranks for step in each.steps.steps]


def _step(rank: Rank, step: StepWindow) -> dict[str, Any]:
    return {
        "rank": rank.number,
        "step": step.label,
        "start_seconds": (step.start - rank.timeline.origin) / 1e9,
        "seconds": step.length / 1e9,
        **{part: getattr(step, part) / 1e9 for part in PARTS},
        "kernels": step.kernels,
        "complete": step.complete,
    }


def as_csv(trace: RunAnalysis) -> str:
    """One line per rank and group; of two runs one per group."""
    return encoding.as_csv(table_rows(trace))


def save(trace: RunAnalysis, path: str, note: Callable[[str], None]) -> Path:
    """Write a picture (png, svg, pdf), the timeline (html, perfetto.json[.gz]) or the data (json, csv), by the suffix.

    `note` receives what a file leaves out. Raises ProfileError for a picture of a trace without GPU work.
    """
    from roofmodel.trace import picture, timeline_page

    target = output_files.check(path, SUFFIXES)
    form = output_files.form(target, SUFFIXES)
    if form in output_files.PICTURES and not trace.ranks:
        raise ProfileError(f"{', '.join([*trace.names.values()][:3])}: no GPU work: a picture would be empty")
    if form in perfetto.SUFFIXES:
        output_files.replace(target, lambda file: perfetto.write(trace, file, compressed=form.endswith("gz")))
        return target

    def page() -> str:
        text, left_out = timeline_page.html(trace)
        for line in left_out:
            note(line)
        return text

    return output_files.write(
        path,
        draw=lambda file, form: picture.draw(trace, file, form),
        texts={"html": page, "json": lambda: encoding.as_json(document(trace)), "csv": lambda: as_csv(trace)},
    )
