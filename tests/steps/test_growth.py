"""An expected time never falls when the batch or a length grows."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from roofmodel.devices.device import Device
from roofmodel.errors import WorkloadError
from roofmodel.models import hub
from roofmodel.options.values import Phase
from roofmodel.steps.estimate import estimate
from roofmodel.timing.formula import elementwise_seconds
from roofmodel.timing.timing import chip

MODELS = sorted(entry.id for entry in hub.catalog())
DEVICES = ("a100", "h100", "v100", "l40s", "b200", "gb200", "rtx-pro-6000-server", "h20", "a30", "t4")
GROWTH = st.sampled_from((1, 1.01, 1.5, 2, 4))


@settings(max_examples=40, deadline=None)
@given(
    model=st.sampled_from(MODELS), device=st.sampled_from(DEVICES), phase=st.sampled_from(get_args(Phase)),
    batch=st.integers(1, 256), seq=st.integers(1, 2048), more_batch=GROWTH, more_seq=GROWTH,
)  # fmt: skip
def test_an_expected_time_never_falls_when_batch_or_length_grows(
    model: str, device: str, phase: Phase, batch: int, seq: int, more_batch: float, more_seq: float
) -> None:
    def seconds(batch: int, seq: int) -> float:
        found = estimate(hub.load(model), Device.load(device), phase=phase, batch=batch, seq=seq)
        expected = found.phases[-1].expected
        assert expected is not None
        return float(expected.value)

    try:
        before = seconds(batch, seq)
        after = seconds(int(batch * more_batch), int(seq * more_seq))
    except WorkloadError:
        assume(False)
    assert after >= before * (1 - 1e-9)


@pytest.mark.parametrize("device", ["a100", "h200", "b200", "h20"])
def test_data_that_l2_just_holds_take_no_longer_than_more_data(device: str) -> None:
    """On B200 and H20, the share of L2's bandwidth is another device's, and less than the bandwidth of their DRAM."""
    found = Device.load(device)
    figures, calibration = chip(found, "fp16"), found.calibration
    assert figures is not None
    assert calibration is not None
    for kinds in calibration.elementwise.values():
        timing = kinds["fp16/fp16"].timing
        fits, more = (elementwise_seconds(figures.l2 + extra, 0, figures, timing) for extra in (0, 1))
        assert more >= fits


def test_attention_on_one_cached_key_is_a_decode_as_on_more() -> None:
    """Whisper's cross attention over one encoder token had the parameters of a prefill, which takes longer on V100."""
    one, two = (
        estimate(
            hub.load("whisper-base"), Device.load("v100"), phase="decode", batch=32, seq=seq, engine="trtllm"
        ).phases[-1]
        for seq in (1, 2)
    )
    names = [{op.operator.name: op.run.implementation for op in found.placed if op.run} for found in (one, two)]
    assert names[0] == names[1]
    assert one.expected is not None
    assert two.expected is not None
    assert one.expected.value <= two.expected.value
