"""Published serving benchmarks (`served_rows.py`), predicted by the simulation of `roof estimate --phase serve`.

A benchmark sends ten requests per client, and its TTFT is the mean over all of them: also over the first ones, which
arrive together. Its token budget, which no row states, is that of the engines' servers on these GPUs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.errors import RelativeErrors, by_name
from benchmarks.served_rows import (
    MEAN_LENGTH,
    PROMPT_TOKENS,
    REQUESTS_PER_CLIENT,
    SHORTEST,
    RowErrors,
    ServedRow,
    replica_of,
)
from roofmodel.engines.engine_file import Host
from roofmodel.serve.simulation import ClientLoad, simulate
from roofmodel.serve.step_table import StepTable

Latencies = tuple[float, float]
"""Seconds of TTFT and TPOT."""


def simulated(table: Path, formula: Sequence[RowErrors]) -> list[RowErrors]:
    """The errors of the simulation on the rows of these errors of the formula, whose bounds they keep."""
    pairs = (
        ((each.row.model, each.row.hw, each.row.layout, each.row.formats, each.row.engine_file, each.row.isl,
          each.row.osl, each.row.drawn), each)
        for each in formula
    )  # fmt: skip
    return [error for some in by_name(pairs).values() for error in _of_lengths(table, some)]


def _of_lengths(table: Path, some: Sequence[RowErrors]) -> Iterator[RowErrors]:
    """The errors of rows that differ in their requests in flight."""
    row = some[0].row
    served = replica_of(table, row)
    steps = StepTable(served, None, max(each.row.batch for each in some), (row.isl, 0, row.osl), PROMPT_TOKENS)
    engine = served.work.engine
    for each in some:
        load = _load(each.row, engine.prompts_first, float(engine.host.outside_steps(row.isl)))
        expected, low, high = (_latencies(load, steps, kind) for kind in ("seconds", "low", "high"))
        ttft, tpot = (
            RelativeErrors(of_formula.bound, value / measured - 1, min(ends) <= measured <= max(ends))
            for of_formula, measured, value, ends in (
                (each.ttft, each.row.ttft, expected[0], (low[0], expected[0], high[0])),
                (each.tpot, each.row.tpot, expected[1], (low[1], expected[1], high[1])),
            )
        )  # fmt: skip
        yield RowErrors(each.row, ttft, tpot)


def latencies_of(table: Path, some: Sequence[ServedRow], host: Host) -> list[tuple[float, float, float]]:
    """TTFT, TPOT, and the sequences of a mean step, of rows that differ in their requests in flight, with a host."""
    row = some[0]
    served = replica_of(table, row)
    served = served._replace(work=served.work._replace(engine=served.work.engine._replace(host=host)))
    steps = StepTable(served, None, max(each.batch for each in some), (row.isl, 0, row.osl), PROMPT_TOKENS)
    prompts_first, outside = served.work.engine.prompts_first, float(host.outside_steps(row.isl))
    loads = [_load(each, prompts_first, outside) for each in some]
    return [(*_latencies(load, steps, "seconds"), simulate(load, steps.of("seconds")).decodes) for load in loads]


def _load(row: ServedRow, prompts_first: bool, outside: float) -> ClientLoad:
    """The requests of a row; the table has the mean of drawn lengths."""
    isl, osl = (round(length / MEAN_LENGTH) if row.drawn else length for length in (row.isl, row.osl))
    return ClientLoad(
        row.batch, isl, osl, budget=PROMPT_TOKENS, chunk=PROMPT_TOKENS, most=row.batch,
        shortest=SHORTEST if row.drawn else 1.0, outside=outside, prompts_first=prompts_first,
    )  # fmt: skip


def _latencies(load: ClientLoad, steps: StepTable, kind: str) -> Latencies:
    found = simulate(load, steps.of(kind))
    ttft = found.ttft + (found.first_ttft - found.ttft) / REQUESTS_PER_CLIENT
    return ttft, found.tpot
