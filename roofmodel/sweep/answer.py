"""The answer of `roof sweep`: its first rows, with a column for each varying option.

Of a scaling sweep: speed-up and efficiency by number of GPUs, expected and measured.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

from roofmodel.errors import Command, Message, Option
from roofmodel.numbers import units
from roofmodel.options.values import SERVE, SweepPicture
from roofmodel.report.document import Block, Document, Figure, Paragraph, Rows
from roofmodel.report.table import COUNT, NUMBER, SECONDS, TEXT, Column, Table
from roofmodel.sweep import data
from roofmodel.sweep.case import BEYOND_POSITIONS
from roofmodel.sweep.scaling_laws import LawFit, MeasuredRun, Scaling
from roofmodel.sweep.sweep import Sweep
from roofmodel.sweep.tables import BY_KEY, TIME, WATTS
from roofmodel.sweep.titles import (
    LAW_NAMES,
    LAWS_OF_MODES,
    TITLES,
    described,
    option_values,
    subtitle,
    suits,
    sweeps_power,
    varying_names,
)

SHOWN, SHOWN_IN_FILES = 40, 1000
"""Rows in a terminal, and in pages and Markdown; the last line counts the others."""
RESULTS = (
    "bound_seconds", "bound", "expected_seconds", "bound_tokens_per_second", "tokens_per_second",
    "bound_images_per_second", "images_per_second", "mfu", "memory_total", "bound_dollars_per_million_tokens",
    "dollars_per_million_tokens",
)  # fmt: skip
"""The results that every table shows; other ones precede `mfu`."""
SERVED_RESULTS = (
    "ttft_seconds", "tpot_seconds", "itl_p99_seconds", "requests_per_second", "output_tokens_per_second",
    "output_tokens_per_second_per_gpu", "tokens_per_second_per_user", "wait_seconds", "memory_total",
    "dollars_per_million_tokens",
)  # fmt: skip
"""The results of every table of `--phase serve`."""
ALL_ROWS = Command("-o FILE .csv, .json or .parquet", "save() to .csv, .json or .parquet")
MARKS: dict[str, str | Message] = {
    "!": Message("! does not fit in the usable memory (", Option("memory_utilization"), ")"),
    "†": "† beyond the model's maximum positions; the limit is not enforced",
}
NOTE_MARKS = {"†": BEYOND_POSITIONS}
ALT_TEXTS: dict[SweepPicture, str] = {
    "rates": "rate against latency, with the Pareto front",
    "roofs": "the ceiling that limits each point",
    "costs": "dollars per million tokens",
    "scaling": "speed-up and efficiency against the number of GPUs",
    "power": "rate and energy against the power limit",
    "front": "output tokens/s per GPU against tokens/s per user",
}
"""What each kind of picture shows."""
MAX_PICTURE_POINTS = 2_000_000
"""A picture needs all points in memory, about 300 bytes each."""


def document(sweep: Sweep, picture: SweepPicture | None = None, most: int = SHOWN) -> Document:
    """The first `most` rows of a sweep, or all rows of a scaling sweep, and a picture of this kind.

    Default: scaling if the sweep scales, front if it serves requests, power with several power limits, costs if tokens
    have prices, else rates. There is no picture of a grid that is too large for one, and of rows without a time.
    """
    shown = list(islice(data.rows(sweep), None if sweep.scaling else most))
    title, blocks = _scaling_blocks(sweep.scaling, shown) if sweep.scaling else _grid_blocks(sweep, shown)
    if sweep.points <= MAX_PICTURE_POINTS and any(row["bound_seconds"] is not None for row in shown):
        kind = picture or default_picture(sweep, shown)
        blocks.append(Figure(partial(_draw, sweep, kind), f"{described(sweep)}: {ALT_TEXTS[kind]}"))
    return Document(title, blocks, partial(data.document, sweep))


def default_picture(sweep: Sweep, shown: Sequence[dict[str, Any]]) -> SweepPicture:
    """The kind of the picture of a sweep with these rows, if none is given."""
    if sweep.scaling:
        return "scaling"
    if sweep.serving:
        return "front"
    if sweeps_power(sweep):
        return "power"
    return "costs" if any(row["bound_dollars_per_million_tokens"] is not None for row in shown) else "rates"


def _draw(sweep: Sweep, kind: SweepPicture, path: Path, form: str) -> None:
    from roofmodel.sweep.picture import draw

    draw(sweep, path, form, kind)


def _grid_blocks(sweep: Sweep, shown: Sequence[dict[str, Any]]) -> tuple[str, list[Block]]:
    """Varying options are columns; the title gives the others."""
    title, blocks = f"{described(sweep)} · {counted(sweep)}", list[Block]()
    if shown:
        varying = [name for name in TITLES if len(option_values(sweep, name)) > 1]
        blocks.append(Rows(_table(sweep, shown, varying), shown))
    if (rest := sweep.row_count - len(shown)) > 0:
        blocks.append(Paragraph(f"and {rest} more; {ALL_ROWS} writes all of them", dim=True))
    signs = "".join(map(_mark, shown))
    blocks += [Paragraph(str(meaning), dim=True) for sign, meaning in MARKS.items() if sign in signs]
    blocks += [Paragraph(f"– {note}", dim=True) for note in _refusals(shown)]
    return title, blocks


def _table(sweep: Sweep, shown: Sequence[dict[str, Any]], varying: Sequence[str]) -> Table:
    """Columns of the varying options, of the results, and of the mark of a row."""
    if any(row["phase"] == SERVE for row in shown):
        others = _chosen_columns(sweep, (*varying, *SERVED_RESULTS))
        return Table("rows", (*map(_column, (*varying, *SERVED_RESULTS, *others)), Column(None, "", text=_mark)))
    place = RESULTS.index("mfu")
    names = (*varying, *RESULTS[:place], *_other_columns(sweep, shown, varying), *RESULTS[place:])
    return Table("rows", (*map(_column, names), Column(None, "", text=_mark)))


def _other_columns(sweep: Sweep, shown: Sequence[dict[str, Any]], varying: Sequence[str]) -> list[str]:
    """Latencies of generation, the rate per GPU of several GPUs, power, and the columns that were chosen."""
    generated = any(row["phase"] == "generate" for row in shown)
    several = any((row["tp"] or 1) * (row["dp"] or 1) * (row["pp"] or 1) > 1 for row in shown)
    candidates = [
        *(("ttft_seconds", "tpot_seconds", "tokens_per_second_per_user") if generated else ()),
        *(["tokens_per_second_per_gpu"] if several else []),
        *(("power_watts", "energy_joules") if any(row["power_limit_watts"] for row in shown) else ()),
    ]
    others = [name for name in candidates if name not in (*varying, *RESULTS)]
    return list(dict.fromkeys([*others, *_chosen_columns(sweep, (*varying, *RESULTS))]))


def _chosen_columns(sweep: Sweep, shown: Sequence[str]) -> list[str]:
    """The columns of conditions and of the order that the table does not show otherwise."""
    candidates = [
        *(column for condition in sweep.where for each in condition.comparisons for column in each.columns),
        *(sweep.sort.columns if sweep.sort else ()),
    ]
    return [name for name in dict.fromkeys(candidates) if name not in (*shown, "fits", "note")]


def counted(sweep: Sweep) -> str:
    """The number of points, and of those that satisfy the conditions."""
    text = units.count(sweep.points, "point")
    if sweep.where:
        text = f"{sweep.row_count} of {text} with {' and '.join(map(str, sweep.where))}"
    return f"{text}, sorted by {sweep.sort.text}" if sweep.sort else text


def _mark(row: dict[str, Any]) -> str:
    """`–` for a refused point, `!` for one that does not fit, and the signs of its notes."""
    signs = (sign for sign, note in NOTE_MARKS.items() if note in (row["note"] or ""))
    return "–" * (row["bound_seconds"] is None) + "!" * (row["fits"] is False) + "".join(signs)


def _column(name: str) -> Column:
    """The column of an option or of a result."""
    if name in TITLES:
        units_by_name = {"launch_seconds": SECONDS, "power_limit_watts": WATTS, "requests": NUMBER}
        unit = units_by_name.get(name, TEXT if name in ("model", "hardware", "phase") else COUNT)
        return Column(None, TITLES[name], unit, name)
    column = BY_KEY[name]
    return column if column.title else column._replace(title=name)


def _refusals(shown: Sequence[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(row["note"] for row in shown if row["bound_seconds"] is None))


# --- Scaling --------------------------------------------------------------------------------------


def _scaling_blocks(scaling: Scaling, shown: Sequence[dict[str, Any]]) -> tuple[str, list[Block]]:
    """The rows, the measured runs, and the serial fractions of the fitted laws."""
    names = varying_names(shown, scaling)
    curves = [Column(None, name, text=lambda row, name=name: str(row[name] or "")) for name in names]  # type: ignore[misc]
    measured = {run.gpus: run for run in scaling.measured}
    run_column = Column(None, "measured", COUNT, text=lambda row: _measured(measured.get(row["gpus"])))
    table = Table("rows", (*curves, *SCALING_COLUMNS, run_column))
    return heading(scaling, shown), [
        Rows(table, shown),
        *(Paragraph(line, dim=True) for line in remarks(scaling, shown)),
    ]


def _measured(run: MeasuredRun | None) -> str | None:
    if run is None:
        return None
    return f"{units.seconds(run.seconds)}, {run.efficiency:.1%}" if run.seconds is not None else f"{run.efficiency:.1%}"


def _bound(row: dict[str, Any]) -> str | None:
    """The bound where no time is expected."""
    unknown = row["expected_seconds"] is None and row["bound_seconds"] is not None
    return units.seconds(row["bound_seconds"]) if unknown else None


def _exposed(row: dict[str, Any]) -> float | None:
    kind = "" if row["expected_seconds"] is None else "expected_"
    exposed: float | None = row[f"{kind}communication_exposed_seconds"]
    return exposed


def _memory(row: dict[str, Any]) -> str | None:
    total = row["memory_total"]
    return None if total is None else units.binary(total) + "!" * (row["fits"] is False)


SCALING_COLUMNS = (
    BY_KEY["gpus"],
    Column(None, "batch", COUNT, "batch", priority=2),
    BY_KEY["expected_seconds"]._replace(title="time"),
    Column(None, "bound", COUNT, text=_bound),
    BY_KEY["speedup"],
    BY_KEY["efficiency"],
    Column(None, "exposed", TIME, _exposed),
    BY_KEY["communication_share"],
    BY_KEY["communication_hidden_seconds"],
    Column(None, "replicas", TIME, "expected_replica_seconds", priority=5),
    Column(None, "memory", COUNT, text=_memory, priority=3),
    BY_KEY["bound"]._replace(priority=1),
)


def heading(scaling: Scaling, sweep_rows: Sequence[dict[str, Any]]) -> str:
    """`gpt2 · a100-sxm-80gb · train · weak scaling over dp`."""
    return " · ".join([*filter(None, [subtitle(sweep_rows)]), f"{scaling.mode} scaling over {scaling.share}"])


def remarks(scaling: Scaling, sweep_rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    """The serial fractions, the meaning of columns, and the reasons of rows without results."""
    yield (
        "exposed: time of communication without overlap; share: exposed / time; hidden: time of communication that "
        "overlaps with the backward pass"
    )
    if any(row["expected_replica_seconds"] for row in sweep_rows):
        yield (
            "replicas: copies of gradients into buckets or shards, slowdown of the backward pass, and wait for the "
            "slowest GPU; the time includes them"
        )
    if any(row["fits"] is False for row in sweep_rows):
        yield "! does not fit in the usable memory"
    yield from _replica_memory({row["zero"] for row in sweep_rows if row["phase"] == "train" and (row["dp"] or 1) > 1})
    for of, law in sorted(scaling.fits, key=lambda each: (each[0] == "measured", not suits(each[1], scaling.mode))):
        if of == "measured" or suits(law, scaling.mode):
            yield f"{of}: {describe_fit(law, scaling.mode)}"
    yield from dict.fromkeys(f"– {row['note']}" for row in sweep_rows if row["bound_seconds"] is None and row["note"])


def _replica_memory(stages: Collection[int]) -> Iterator[str]:
    """What each replica stores in training, with these stages of ZeRO; nothing for no stage."""
    if 0 in stages:
        without = f" without {Option('zero', 1)}" if 1 in stages else ""
        yield f"memory{without}: each of the --dp replicas stores all gradients and all of the optimizer state"
    if 1 in stages:
        sharded = f" with {Option('zero', 1)}" if 0 in stages else ""
        yield f"memory{sharded}: each of the --dp replicas stores all gradients; they shard the optimizer state"
    if 2 in stages:
        yield f"memory with {Option('zero', 2)}: the --dp replicas shard gradients and the optimizer state"
    if 3 in stages:
        yield f"memory with {Option('zero', 3)}: the --dp replicas shard weights, gradients and the optimizer state"


def describe_fit(law: LawFit, mode: str) -> str:
    """`Amdahl's law: serial fraction 4.1 % (95 %: 3.2 % to 5.0 %)`, with a remark on values outside 0 to 100 %."""
    suited = next(name for name, its_law in LAWS_OF_MODES.items() if its_law == law.law)
    text = f"{LAW_NAMES[law.law]}'s law{'' if suited == mode else f' (for {suited} scaling)'}"
    text += f": serial fraction {law.serial_fraction:.2%}"
    interval = "one point, no interval"
    if law.points > 1 and law.too_few_points:
        return f"{text} ({law.points} points: too few for an interval)"
    if law.low is not None and law.high is not None:
        interval = f"95 % interval {law.low:.2%} to {law.high:.2%}, {law.points} points"
    limits = impossible(law)
    return f"{text} ({interval})" + (f"; {limits}" if limits else "")


def impossible(law: LawFit) -> str:
    """What a serial fraction or an interval outside 0 to 100 % means; empty for one inside."""
    if law.serial_fraction > 1:
        return "above 100 %: slower than one GPU"
    if law.serial_fraction < 0:
        return "below 0 %: faster than ideal"
    if law.low is not None and law.high is not None and (law.low < 0 or law.high > 1):
        return "only 0 % to 100 % of the interval is possible"
    return ""
