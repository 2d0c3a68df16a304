"""Measure how often `roof jitter` finds a planted delay, and how often it names a cause in runs without one.

    python benchmarks/jitter_detection.py [--runs 50] [--noise 0.005]

The time of each rank and step is normally distributed; the noise is its standard deviation, relative to the step.
Prints a row per number of ranks and steps: runs without a delay in which a cause is named, with normal noise and with
noise of long tails (Student's t with 3 degrees of freedom); the delay that is detectable; runs in which a delay of 1,
2, 4 and 8 % in every step is found; runs in which a delay of 8 % in one step is found, with its rank and step.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator

import numpy as np

from roofmodel.jitter.causes import LEVEL, SIGNIFICANT, Cause, find_causes
from roofmodel.jitter.lateness import Lateness
from roofmodel.jitter.ranks import ComparedRank

STEP = 0.1  # seconds
RANKS, STEPS = (2, 4, 16), (3, 5, 10, 50)
DELAYS = (0.01, 0.02, 0.04, 0.08)
POWER = 0.95  # probability of each of the two conditions, so that both hold in 90 % of the runs


def detectable_delay(ranks: int, steps: int, noise: float) -> float:
    """The delay, as a share of the step, that is found in 90 % of the runs.

    The mean excess must exceed the quantile of Student's t test, with a noise estimate that may be too high, and the
    median excess must exceed SIGNIFICANT.
    """
    from scipy.stats import chi2, norm, t

    freedom = (steps - 1) * (ranks - 1)
    error = noise * math.sqrt((1 + 1 / max(1, ranks // 2)) / steps)
    high = math.sqrt(chi2.ppf(POWER, freedom) / freedom)
    margin = norm.ppf(POWER)
    level = LEVEL / ranks
    if 0.5**steps < level / 2:  # the sign test has the other half
        level /= 2
    return float(
        max(
            error * (t.isf(level, freedom) * high + margin),
            SIGNIFICANT + margin * math.sqrt(math.pi / 2) * error,
        )
    )


def causes_of_run(
    ranks: int, steps: int, noise: float, delay: float, seed: int, in_steps: slice = slice(None), tails: bool = False
) -> list[Cause]:
    """The causes of a simulated run in which the kernels of rank 1 are longer by `delay` in these steps."""
    random = np.random.default_rng(seed)
    deviations = random.standard_t(3, (steps, ranks)) if tails else random.normal(0, 1, (steps, ranks))
    compute = STEP * (1 + noise * deviations)
    compute[in_steps, 1] += delay * STEP
    parts = {name: compute if name == "compute" else np.zeros_like(compute) for name in Lateness._fields}
    compared = [ComparedRank(number, f"rank{number}", None, None, None, 1) for number in range(ranks)]
    return find_causes(parts, compared, range(steps), STEP, np.zeros(steps))


def count_false(ranks: int, steps: int, noise: float, runs: int, tails: bool = False) -> int:
    """Runs without a delay in which a cause is named."""
    return sum(bool(causes_of_run(ranks, steps, noise, 0, seed, tails=tails)) for seed in range(runs))


def count_found(ranks: int, steps: int, noise: float, delay: float, runs: int) -> int:
    """Runs in which the longer kernels of rank 1 are the only cause."""
    causes_by_run = (causes_of_run(ranks, steps, noise, delay, seed) for seed in range(runs))
    return sum([(cause.kind, cause.ranks) for cause in causes] == [("gpu", (1,))] for causes in causes_by_run)


def count_found_step(ranks: int, steps: int, noise: float, runs: int) -> int:
    """Runs in which the first cause is rank 1 in its only slow step."""
    found = 0
    for seed in range(runs):
        step = seed % steps
        causes = causes_of_run(ranks, steps, noise, DELAYS[-1], seed, slice(step, step + 1))
        found += bool(causes) and causes[0].ranks == (1,) and f"in step {step}:" in causes[0].evidence
    return found


def table(noise: float, runs: int) -> Iterator[str]:
    """The rows of the table."""
    yield f"{'ranks':>5} {'steps':>5} {'false':>5} {'tails':>5} {'detectable':>10}  " + " ".join(
        [*(f"{delay:>5.0%}" for delay in DELAYS), "one step"]
    )
    for ranks in RANKS:
        for steps in STEPS:
            counts = [count_found(ranks, steps, noise, delay, runs) for delay in DELAYS]
            yield (
                f"{ranks:>5} {steps:>5} {count_false(ranks, steps, noise, runs):>5} "
                f"{count_false(ranks, steps, noise, runs, tails=True):>5} "
                f"{detectable_delay(ranks, steps, noise):>10.1%}  "
                + " ".join(f"{number:>5}" for number in counts)
                + f" {count_found_step(ranks, steps, noise, runs):>8}"
            )


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description="Measure which delays roof jitter finds.")
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--noise", type=float, default=0.005)
    arguments = parser.parse_args()
    for row in table(arguments.noise, arguments.runs):
        print(row)
    return 0


if __name__ == "__main__":
    sys.exit(main())
