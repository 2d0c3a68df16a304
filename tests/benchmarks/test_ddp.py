"""Expected times of published data-parallel training steps."""

import pytest

from benchmarks import ddp


@pytest.mark.parametrize(("model", "largest_error"), [("resnet50", 0.10), ("resnext50_32x4d", 0.1)])
def test_efficiencies_and_times_of_a_published_model_are_reproduced(
    monkeypatch: pytest.MonkeyPatch, model: str, largest_error: float
) -> None:
    """The limits are the largest errors of the table in docs/accuracy.md, rounded up to the next 5 %."""
    monkeypatch.setattr(ddp, "PUBLISHED", [row for row in ddp.PUBLISHED if row.name == model])
    found = ddp.steps()
    assert [step.gpus for step in found] == [1, 2, 4, 8, 16]
    for step in found:
        assert abs(step.efficiency - step.measured_efficiency) < 0.03
        assert abs(step.expected / step.measured - 1) < largest_error, step.gpus
