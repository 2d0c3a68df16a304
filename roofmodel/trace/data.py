"""The analysis of a run as a JSON document, records, CSV and files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from roofmodel.errors import ProfileError
from roofmodel.files import output_files
from roofmodel.report import encoding
from roofmodel.report.table import Table
from roofmodel.trace import perfetto
from roofmodel.trace.achieved import RunRoofline
from roofmodel.trace.columns import ACHIEVED, PEERS, RANKS, STEPS, groups_table, rank_rows, step_rows
from roofmodel.trace.several_runs import comparison_tables as comparison
from roofmodel.trace.several_runs import run_tables
from roofmodel.trace.trace import RunAnalysis

SUFFIXES = (*output_files.PICTURES, "html", "json", "csv", *perfetto.SUFFIXES)


def document(trace: RunAnalysis) -> dict[str, Any]:
    """The document `roofmodel.trace/1`; times in seconds, steps relative to the first activity of their file."""
    identified = trace.identified
    names = groups_table("name")
    devices = {report.rank.number: report.rank.device for report in trace.ranks}
    return {
        "schema": "roofmodel.trace/1",
        "source": {"tool": trace.tool, "files": list(trace.names.values())},
        "hardware": identified and identified.device.id,
        "hardware_from": identified and identified.source,
        "ranks": RANKS.records(rank_rows(trace)),
        "peer_copies": PEERS.records(trace.peers),
        "by": trace.by,
        "groups": groups_table().records(trace.groups),
        "top": [{"device": devices[row.rank]} | names.record(row) for row in trace.top],
        "steps": STEPS.records(step_rows(trace)),
        "roofline": _roofline(trace.roofline),
        "findings": [{"kind": f.kind, "seconds": f.seconds, "text": f.text} for f in trace.findings],
        "reading": None if trace.reading is None else str(trace.reading),
        "runs": run_tables.records(trace),
        "comparison": trace.comparison and comparison.document(trace.comparison),
        "warnings": list(map(str, trace.warnings)),
    }


def table_and_rows(trace: RunAnalysis) -> tuple[Table, Sequence[Any]]:
    """The CSV's table: a row per rank and group; of two runs one per group, with its change."""
    if trace.comparison is not None:
        return comparison.changes_table("group"), trace.comparison.groups
    return groups_table(), trace.groups


def _roofline(roofline: RunRoofline | None) -> dict[str, Any] | None:
    """How much of the kernel time has known FLOPs and bytes; null if the files have no shapes of operators."""
    if roofline is None:
        return None
    return {
        "counted_from": "shapes",
        "kernel_seconds": roofline.kernel_seconds,
        "explained": roofline.explained_share,
        **Table("", ACHIEVED).record(roofline),
        "not_counted": [
            {"reason": reason, "kernels": kernels, "seconds": seconds}
            for reason, (kernels, seconds) in roofline.unknown.items()
        ],
    }


def as_csv(trace: RunAnalysis) -> str:
    """One line per rank and group; of two runs one per group."""
    table, rows = table_and_rows(trace)
    return table.csv(rows)


def save(trace: RunAnalysis, path: str) -> Path:
    """Write a picture (png, svg, pdf), a page (html), the lanes (perfetto.json[.gz]) or the data (json, csv).

    Raises ProfileError for a picture of a trace without GPU work.
    """
    from roofmodel.trace import page, picture

    target = output_files.check(path, SUFFIXES)
    form = output_files.form(target, SUFFIXES)
    if form in output_files.PICTURES and not trace.ranks:
        raise ProfileError(f"{', '.join([*trace.names.values()][:3])}: no GPU work: a picture would be empty")
    if form in perfetto.SUFFIXES:
        output_files.replace(target, lambda file: perfetto.write(trace, file, compressed=form.endswith("gz")))
        return target
    return output_files.write(
        path,
        draw=lambda file, form: picture.draw(trace, file, form),
        texts={
            "html": lambda: page.html(trace),
            "json": lambda: encoding.as_json(document(trace)),
            "csv": lambda: as_csv(trace),
        },
    )
