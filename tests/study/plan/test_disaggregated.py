"""Engines of their own for prefill and decode: their rates and latencies are those of `roofmodel.estimate`."""

from functools import cache

import pytest

import roofmodel
from roofmodel.devices.device import Device
from roofmodel.models import hub
from roofmodel.study.plan.candidate import Candidate
from roofmodel.study.plan.disaggregated import link_bandwidth
from roofmodel.study.plan.plan import Plan, plan

MODEL, ISL, OSL = "llama-3.1-8b", 2048, 64
H100 = Device.load("h100")


@cache
def planned(gpus: int = 2, tpot: str | None = None) -> Plan:
    return plan(
        hub.load(MODEL), [H100], gpus=gpus, isl=ISL, osl=OSL, tpot=tpot, mode="disaggregated", dtype="bf16", kv="bf16"
    )


def best(gpus: int = 2, tpot: str | None = None) -> Candidate:
    return planned(gpus, tpot).ranked[0].candidate


def test_a_pair_of_engines_serves_as_fast_as_its_slower_side() -> None:
    one = best()
    assert one.prefill is not None
    options = {"runtime": "graph", "dtype": "bf16"}
    prefill = roofmodel.estimate(MODEL, "h100", phase="prefill", batch=one.prefill.batch, seq=ISL, **options)  # type: ignore[arg-type]
    decode = roofmodel.estimate(MODEL, "h100", phase="decode", batch=one.batch, context=ISL + OSL // 2, **options)  # type: ignore[arg-type]
    first = prefill.totals["prefill"]["expected_seconds"]
    each = decode.totals["decode"]["expected_seconds"]
    assert one.tpot.value == pytest.approx(each)
    assert one.requests.value == pytest.approx(min(one.prefill.batch / first, one.batch / ((OSL - 1) * each)))
    cache = 2 * ISL * 32 * 8 * 128 * 2  # K and V, tokens, layers, heads, head size, bf16
    bandwidth = link_bandwidth(H100, 2)
    assert bandwidth == 450e9  # NVLink 4 per direction
    assert one.ttft.value == pytest.approx(first + cache / bandwidth)


def test_no_number_of_prefill_and_decode_engines_is_better() -> None:
    found = best(4)
    assert found.prefill is not None
    engine = best()
    assert found.requests.value >= 2 * engine.requests.value * (1 - 1e-9)  # two pairs of one engine each
    assert found.prefill.layout.gpus + found.layout.gpus <= 4


def test_at_an_equal_rate_the_first_token_comes_as_early_as_possible() -> None:
    """Where decode limits the rate, neither more prompts in a pass nor slower prefill engines are chosen."""
    found = plan(
        hub.load(MODEL), [H100], gpus=4, isl=256, osl=1024, mode="disaggregated", dtype="bf16", kv="bf16", pp=1,
        tp=[1, 2],
    )  # fmt: skip
    assert not any(each.candidate.prefill and each.candidate.prefill.limits for each in found.ranked)
    assert {each.candidate.prefill.batch for each in found.ranked if each.candidate.prefill} == {1}
    (two,) = (each.candidate for each in found.ranked if each.candidate.layout.tp == 2)
    assert two.prefill is not None
    assert two.prefill.layout.tp == 2  # two engines with tp 1 compute more prompts, but each of them takes longer


def test_a_decode_engine_serves_more_within_a_short_target_than_mixed_steps() -> None:
    """On GPUs with the whole model; sharded over both GPUs, mixed steps are shorter as well."""
    options = {"gpus": 2, "isl": ISL, "osl": OSL, "tpot": "7ms", "dtype": "bf16", "kv": "bf16", "tp": 1}
    mixed, separate = (
        plan(hub.load(MODEL), [H100], mode=mode, **options).ranked[0].candidate  # type: ignore[arg-type]
        for mode in ("mixed", "disaggregated")
    )
    assert separate.tpot.value <= 7e-3
    assert separate.requests.value > mixed.requests.value


def test_the_limit_is_the_latency_target_where_memory_is_free() -> None:
    """The prefill engine's memory must not hide that TPOT limits the batch of the decode engine."""
    found = plan(
        hub.load("llama-3.1-70b"), [H100], gpus=8, isl=4096, osl=1024, ttft="500ms", tpot="30ms", mode="disaggregated",
        dtype="fp8", kv="bf16", tp=[1, 4], dp=[2, 8], pp=1,
    )  # fmt: skip
    one = next(each for each in found.ranked if each.candidate.layout.tp == 4)
    assert one.candidate.prefill is not None
    assert not one.candidate.prefill.limits
    assert one.candidate.batch < 0.8 * one.candidate.largest_batch
    assert "a larger batch, which the latency targets exclude" in one.limit


def test_a_note_states_that_busy_prefill_engines_have_an_unlimited_queue() -> None:
    found = planned(2)
    limited = [each.rank for each in found.ranked if each.candidate.prefill and each.candidate.prefill.limits]
    assert bool(limited) == any("TTFT does not include a queue" in str(note) for note in found.notes)


def test_one_gpu_has_no_engines_to_divide() -> None:
    found = planned(1)
    assert not found.ranked
