"""The rows of a sweep as a data frame, as dicts and as a JSON document."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from roofmodel.sweep.arrays import concatenated, full_column, known_values
from roofmodel.sweep.scaling_laws import Scaling
from roofmodel.sweep.sweep import Sweep

if TYPE_CHECKING:
    import pandas


def frame(sweep: Sweep, columns: Iterable[str] | None = None) -> pandas.DataFrame:
    """A row per point, in base units: counts as exact ints, NaN or None for unknown."""
    import pandas

    columns = list(sweep.columns if columns is None else columns)
    blocks = [[full_column(block, name) for name in columns] for block in sweep.blocks()]
    return pandas.DataFrame(
        {name: concatenated(parts) for name, parts in zip(columns, zip(*blocks, strict=True), strict=True)}
    )


def rows(sweep: Sweep) -> Iterator[dict[str, Any]]:
    """A dict per point, with the same keys as an estimate's totals."""
    for block in sweep.blocks():
        for values in zip(*(known_values(full_column(block, name)) for name in sweep.columns), strict=True):
            yield dict(zip(sweep.columns, values, strict=True))


def document(sweep: Sweep) -> dict[str, Any]:
    """The document `roofmodel.sweep/1`."""
    return {**summary(sweep), "rows": list(rows(sweep))}


def summary(sweep: Sweep) -> dict[str, Any]:
    """The document without its rows."""
    return {
        "schema": "roofmodel.sweep/1",
        "points": sweep.points,
        "where": [*map(str, sweep.where)],
        "sort": sweep.sort and sweep.sort.text,
        **({"scaling": _scaling(sweep.scaling)} if sweep.scaling else {}),
        "notes": list(map(str, sweep.notes)),
    }


def _scaling(scaling: Scaling) -> dict[str, Any]:
    """The settings of a scaling table, the measured runs, and the fitted laws."""
    return {
        "mode": scaling.mode,
        "share": scaling.share,
        "gpus": list(scaling.gpus),
        "measured": [{**run._asdict(), "efficiency": run.efficiency} for run in scaling.measured],
        "fits": [{"of": of, **law._asdict()} for of, law in scaling.fits],
    }
