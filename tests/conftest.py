"""Fixtures and hooks for all tests.

With `ROOF_NO_SKIPS=1`, as CI sets it, a skipped test fails: CI has to provide the measured data, a browser and TeX. A
skip whose reason begins with "not applicable" stays a skip: no installation would change it. Hypothesis then draws the
same examples in each run, so that CI does not fail by chance on a change that is not the cause; without it, each run
draws new ones.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

from roofmodel.measure import operations
from roofmodel.measure.routing import ExpertGroups, Load, busiest_gpu

pytest_plugins = ["tests.browser"]

ON_ONE_WORKER = (
    "tests/explore/test_page.py", "tests/explore/test_traced_estimate.py",
    "tests/benchmarks/test_anchors.py", "tests/measure/test_accuracy.py",
)  # fmt: skip
NO_SKIPS = bool(os.environ.get("ROOF_NO_SKIPS"))
settings.register_profile(
    "any machine",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],  # a busy machine draws examples slowly
    derandomize=NO_SKIPS,
)
settings.load_profile("any machine")


@pytest.fixture(autouse=True)
def no_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    """No progress lines on slow machines; `test_progress.py` sets another delay."""
    monkeypatch.setattr("roofmodel.report.printing.BAR_AFTER", 3600.0)
    monkeypatch.setattr("roofmodel.report.printing.LINES_EVERY", 3600.0)


@pytest.fixture
def only_times_and_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """Estimates without layouts that fit, largest batch and largest context, which need most of the time."""
    monkeypatch.setattr("roofmodel.steps.alternatives.fitting_notes", lambda *_: ())
    for limit in ("largest_batch", "largest_context"):
        monkeypatch.setattr(f"roofmodel.steps.estimate.{limit}", lambda *_: None)


KNOWN_LOADS = dict[tuple[str, ExpertGroups | None], dict[tuple[float, ...], Load]]()


@pytest.fixture
def each_load_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The load of the busiest GPU, by row of a table: the tables of all devices have the same few thousand shapes."""

    def load(distribution: str, tokens: Any, active: Any, experts: Any, gpus: Any, groups: ExpertGroups | None) -> Load:
        columns = np.broadcast_arrays(tokens, active, experts, gpus)
        rows = list(zip(*(column.ravel().tolist() for column in columns), strict=True))
        known = KNOWN_LOADS.setdefault((distribution, groups), {})
        if unknown := [row for row in dict.fromkeys(rows) if row not in known]:
            found = busiest_gpu(distribution, *map(np.array, zip(*unknown, strict=True)), groups)
            known.update(zip(unknown, map(Load, *found), strict=True))
        loads = np.array([known[row] for row in rows]).T
        return Load(*loads.reshape(2, *columns[0].shape))

    monkeypatch.setattr(operations, "busiest_gpu", load)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the modules that share slow results first: one worker computes each result.

    `--dist=worksteal` gives every worker a contiguous part of the tests and splits only the rest at the end.
    """
    items.sort(key=lambda item: not item.nodeid.startswith(ON_ONE_WORKER))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    return _without_skip((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    return _without_skip((yield))


def _without_skip(report: Any) -> Any:
    if NO_SKIPS and report.skipped and not hasattr(report, "wasxfail"):
        reason = str(report.longrepr[2]).removeprefix("Skipped: ")
        if not reason.startswith("not applicable"):
            report.outcome = "failed"
            report.longrepr = f"skipped although ROOF_NO_SKIPS is set: {reason}"
    return report
