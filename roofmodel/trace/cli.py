"""`roof trace`: where the time of a run goes."""

from __future__ import annotations

from roofmodel.report.command import command
from roofmodel.trace.api import trace

app = command(
    trace,
    formats=("table", "json", "csv"),
    files=".png .svg .pdf .html .json .csv .perfetto.json[.gz]",
    settings={"steps": {"metavar": "A:B"}},
    checks=("groups", "seconds>5ms"),
    examples=(
        "roof trace trace.json.gz",
        "roof trace report.sqlite --by nvtx --top 20",
        "roof trace trace.json --steps 5:8 -o steps.png",
        "roof trace trace.json -o trace.html -o timeline.perfetto.json",
        "roof trace old.json.gz new.json.gz",
        "roof trace 'new/*.json' --before 'old/*.json'",
    ),
)
