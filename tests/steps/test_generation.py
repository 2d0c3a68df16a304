"""A generation equals its prefill and its decodes; counts do not depend on the engine."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from roofmodel.devices.device import Device
from roofmodel.engines import engine
from roofmodel.errors import RoofError
from roofmodel.models import hub
from roofmodel.options.values import Phase
from roofmodel.steps.estimate import estimate
from roofmodel.steps.phase import PhaseEstimate

MODELS = (
    "gpt2-xl", "llama-3.1-8b", "gemma-2-9b", "qwen3-30b-a3b", "deepseek-v3", "gpt-oss-120b", "bloom-560m", "gopher",
    "mamba-130m-hf", "qwen3-next-80b-a3b-instruct", "t5-large", "whisper-large-v3",
)  # fmt: skip
ENGINES = tuple(engine.names())
LAYOUTS: tuple[dict[str, int], ...] = ({}, {"tp": 2}, {"pp": 2}, {"pp": 3})


@example(
    model="gpt2-xl", hw="a100", engine="torch", attention="eager", graph=True, batch=1, seq=128, new_tokens=4, layout={}
)
@settings(max_examples=30, deadline=None)
@given(
    model=st.sampled_from(MODELS), hw=st.sampled_from(("a100", "h100", "b200", "v100", "l40s", "mi300x")),
    engine=st.sampled_from(ENGINES), attention=st.sampled_from(("flash", "eager")), graph=st.booleans(),
    batch=st.sampled_from((1, 3, 64)), seq=st.sampled_from((1, 30, 400)), new_tokens=st.integers(1, 6),
    layout=st.sampled_from(LAYOUTS),
)  # fmt: skip
def test_a_generation_is_its_prefill_and_its_decodes(
    model: str, hw: str, engine: str, graph: bool, seq: int, new_tokens: int, layout: dict[str, int], **options: Any
) -> None:
    """Expected times are those of a mean decode, which differ from their sum where a formula is not linear in it."""
    arch, device = hub.load(model), Device.load(hw)
    options |= {"engine": engine, "seq": seq, **layout}
    if graph and engine == "torch":
        options["engine_option"] = "launch=graph"

    def phase(name: Phase, **more: int) -> PhaseEstimate:
        return estimate(arch, device, phase=name, **options, **more).phases[0]

    try:
        whole = phase("generate", new_tokens=new_tokens)
    except RoofError:  # the layout or the engine does not apply to the model
        assume(False)
    parts = [phase("prefill"), *(phase("decode", context=seq + number) for number in range(new_tokens))]
    assert float(whole.bound_seconds) == pytest.approx(sum(float(part.bound_seconds) for part in parts), rel=1e-9)
    if whole.expected is not None:
        total = sum(float(part.expected.value) for part in parts if part.expected)
        assert float(whole.expected.value) == pytest.approx(total, rel=1e-3)
    if "pp" not in layout:  # a prefill and a decode may have different slowest stages
        assert float(whole.cost.matmul_flops) == pytest.approx(sum(float(part.cost.matmul_flops) for part in parts))
        assert float(whole.cost.bytes) == pytest.approx(sum(float(part.cost.bytes) for part in parts))


@settings(max_examples=20, deadline=None)
@given(
    model=st.sampled_from((*MODELS, "distilgpt2")), phase=st.sampled_from(("prefill", "decode", "generate", "train")),
    attention=st.sampled_from(("flash", "eager")), batch=st.sampled_from((6, 24)), layout=st.sampled_from(LAYOUTS[1:]),
    pair=st.sampled_from(tuple((first, second) for first in ENGINES for second in ENGINES if first < second)),
)  # fmt: skip
def test_no_engine_changes_a_count_or_a_bound(
    model: str, pair: tuple[str, str], layout: dict[str, int], **options: Any
) -> None:
    """With pipeline stages as well: the totals are of the stage with the longest bound, under every engine."""
    arch, device = hub.load(model), Device.load("a100")
    try:
        found = [estimate(arch, device, engine=name, **options, **layout).phases[0] for name in pair]
    except RoofError:
        assume(False)
    first, second = ((phase.cost, phase.bound_seconds) for phase in found)
    assert first == second
