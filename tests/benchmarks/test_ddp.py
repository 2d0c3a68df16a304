"""Expected times of published data-parallel training steps."""

import pytest

from benchmarks import ddp


def test_efficiency_and_time_of_the_smallest_published_model_are_reproduced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ddp, "PUBLISHED", ddp.PUBLISHED[:1])
    found = ddp.steps()
    assert [one.gpus for one in found] == [1, 2, 4, 8, 16]
    for one in found:
        assert abs(one.efficiency - one.measured_efficiency) < 0.03
        assert abs(one.expected / one.measured - 1) < 0.12
