"""The host's seconds of the engines' files, fitted to TPOT of published serving benchmarks (`served_rows.py`).

What an engine without a host expects is subtracted; the rest is step + sequence x batch, fitted to all rows of a
file by a robust regression of the relative error, in which each model on each GPU has the same weight. No rows show a
time per prompt token. Each model on each GPU is also predicted with the terms of the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize

from benchmarks.errors import by_name
from benchmarks.served_rows import RowErrors

Array = Any
SOFT = 0.05
"""Relative error from which on a row counts linearly, not as a square (soft L1 loss)."""


class HostFit(NamedTuple):
    """Milliseconds of a step, microseconds of a sequence; relative errors of TPOT without a host, with it, and with the
    terms of the other models and GPUs."""

    step: float
    sequence: float
    without: Array
    fitted: Array
    left_out: Array


def host_fit(some: Sequence[RowErrors]) -> HostFit:
    """The terms for rows that were predicted without a host."""
    batch, measured = (np.array([getattr(each.row, name) for each in some]) for name in ("batch", "tpot"))
    without = np.array([each.tpot.expected for each in some])
    terms = np.stack((1e-3 / measured, 1e-6 * batch / measured), axis=1)

    groups = [(each.row.model, each.row.hw) for each in some]
    weights = 1 / np.array([groups.count(group) for group in groups])

    def fit(chosen: Array) -> Array:
        def loss(values: Array) -> float:
            scaled = (without[chosen] + terms[chosen] @ values) / SOFT
            return float(weights[chosen] @ np.sqrt(1 + scaled**2))

        return minimize(loss, [0.5, 10.0], bounds=[(0, None)] * 2, method="Nelder-Mead").x

    left_out = np.zeros(len(some))
    for group in set(groups):
        here = np.array([each == group for each in groups])
        left_out[here] = (without + terms @ fit(~here))[here]
    step, sequence = values = fit(np.full(len(some), True))
    return HostFit(step, sequence, without, without + terms @ values, left_out)


def table_of_hosts(row_errors: Iterable[RowErrors]) -> str:
    """Markdown: the terms by engine file, from predictions without a host, and the median errors of TPOT."""
    lines = [
        "| engine file | rows | step | sequence | without: median error | bias | fitted | bias | left out | bias |",
        "|---|" + "---:|" * 9,
    ]
    for name, some in sorted(by_name((each.row.engine_file, each) for each in row_errors).items()):
        host = host_fit(some)
        errors = (
            f"{median(np.abs(each)):.1%} | {median(each):+.1%}" for each in (host.without, host.fitted, host.left_out)
        )
        lines.append(f"| {name} | {len(some)} | {host.step:.2f} ms | {host.sequence:.0f} µs | {' | '.join(errors)} |")
    return "\n".join(lines)
