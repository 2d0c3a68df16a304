"""Fixtures and hooks for all tests.

With `ROOF_NO_SKIPS=1`, as CI sets it, a skipped test fails: CI has to provide the measured data, a browser and TeX. A
skip whose reason begins with "not applicable" stays a skip: no installation would change it.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

SLOW_FIXTURES = ("tests/views/explore/test_page.py", "tests/study/test_explore.py")
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")  # a busy machine draws examples slowly, which shows nothing about the code
NO_SKIPS = bool(os.environ.get("ROOF_NO_SKIPS"))


@pytest.fixture(autouse=True)
def no_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    """No progress line precedes a message, however slow the machine; `test_progress.py` sets its own delay."""
    monkeypatch.setattr("roofmodel.views.kit.progress.BAR_AFTER", 3600.0)
    monkeypatch.setattr("roofmodel.views.kit.progress.LINES_EVERY", 3600.0)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the modules with slow fixtures first: one worker builds each fixture.

    `--dist=worksteal` gives every worker a contiguous part of the tests and splits only the rest at the end.
    """
    items.sort(key=lambda item: not item.nodeid.startswith(SLOW_FIXTURES))


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
