"""Files of a plan: rows as CSV, the document as JSON, the Pareto front as a picture."""

from __future__ import annotations

from pathlib import Path

from roofmodel.files import output_files
from roofmodel.plan.columns import CANDIDATES
from roofmodel.plan.data import document
from roofmodel.plan.plan import ServingPlan
from roofmodel.report.encoding import as_json

SUFFIXES = (*output_files.PICTURES, "csv", "json")
FORMATS = ("json", "csv")


def as_text(plan: ServingPlan, form: str) -> str:
    """The text of a format."""
    if form == "json":
        return as_json(document(plan))
    return CANDIDATES.csv(plan.ranked)


def save(plan: ServingPlan, path: str) -> Path:
    """Write the file, in the format that the suffix names."""

    def draw(file: Path, form: str) -> None:
        from roofmodel.plan.picture import draw

        draw(plan, file, form)

    return output_files.write(path, draw, {form: lambda form=form: as_text(plan, form) for form in FORMATS})  # type: ignore[misc]
