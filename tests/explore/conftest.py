"""The estimate with which the page of sliders is compared."""

from __future__ import annotations

import pytest


@pytest.fixture
def replicas_as_on_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """Estimates of training in which replicas exchange gradients without overlap, waits and wider sums."""
    monkeypatch.setattr("roofmodel.steps.parallelism.data_parallel", lambda *_: None)
