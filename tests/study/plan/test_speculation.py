"""Speculative decoding: expected tokens per step against a simulation, and its effect on a plan."""

import random

import pytest

from roofmodel.devices.device import Device
from roofmodel.errors import WorkloadError
from roofmodel.models import hub
from roofmodel.study.plan.candidate import Candidate
from roofmodel.study.plan.plan import plan
from roofmodel.study.plan.speculation import Speculation, prediction_module

MODEL = hub.load("llama-3.1-8b")
SMALL = hub.load("llama-3.2-1b")


def best(**options: object) -> Candidate:
    found = plan(
        MODEL, [Device.load("h100")], gpus=1, isl=512, osl=256, tpot="6ms", dtype="bf16", kv="bf16", mode="mixed",
        **options,  # type: ignore[arg-type]
    )  # fmt: skip
    return found.ranked[0].candidate


@pytest.mark.parametrize(("tokens", "probability"), [(1, 0.9), (4, 0.6), (3, 0.0), (5, 1.0)])
def test_expected_tokens_are_those_of_a_simulation(tokens: int, probability: float) -> None:
    draw = random.Random(7)

    def accepted() -> int:
        return next((n for n in range(tokens) if draw.random() >= probability), tokens) + 1

    mean = sum(accepted() for _ in range(20_000)) / 20_000
    assert Speculation(SMALL, tokens, probability).accepted == pytest.approx(mean, rel=0.02)


def test_a_good_draft_model_raises_the_rate_and_a_bad_one_lowers_it() -> None:
    rates = [best(draft=SMALL, draft_tokens=3, acceptance=share).requests.value for share in (0.0, 0.5, 0.9)]
    assert rates == sorted(rates)
    assert rates[0] < best().requests.value < rates[2]


def test_the_draft_model_needs_memory() -> None:
    assert best(draft=SMALL).largest_batch < best().largest_batch


def test_a_module_of_multi_token_prediction_is_one_layer() -> None:
    module = prediction_module(hub.load("deepseek-v3"))
    assert len(module.stack.layers) == 1
    assert module.stack.layers[0] == hub.load("deepseek-v3").stack.layers[-1]
    assert best(draft="mtp", draft_tokens=1, acceptance=0.9).requests.value > best().requests.value


def test_options_of_speculation_need_a_draft_model() -> None:
    with pytest.raises(WorkloadError, match=r"acceptance=0\.5 needs a draft model"):
        best(acceptance=0.5)
    with pytest.raises(WorkloadError, match="acceptance is 2; it must be a number from 0 to 1"):
        best(draft="mtp", acceptance=2)
