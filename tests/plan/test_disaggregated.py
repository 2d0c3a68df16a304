"""Engines of their own for prefill and decode: their rates and latencies are those of `roofmodel.estimate`."""

from functools import cache
from typing import Any

import numpy as np
import pytest

import roofmodel
from roofmodel.devices.device import Device
from roofmodel.engines.engine import Engine
from roofmodel.models import hub
from roofmodel.plan import disaggregated
from roofmodel.plan.candidate import Candidate, PrefillEngines, Supply, Targets
from roofmodel.plan.disaggregated import DecodeRates, EngineMatching, PrefillRates, ServiceLink, service_links
from roofmodel.plan.layouts import Formats, Layout
from roofmodel.plan.plan import ServingPlan
from roofmodel.plan.ranking import reasons
from roofmodel.plan.serving import RequestLengths
from roofmodel.plan.step_times import StepTimes
from roofmodel.timing.timing import Expected
from tests.plan.searching import plan

MODEL, ISL, OSL = "llama-3.1-8b", 2048, 64
OUTSIDE = Engine.load("vllm").host.outside_steps(ISL)
"""Seconds of TTFT outside the steps."""
H100 = Device.load("h100")


@cache
def planned(gpus: int = 2, tpot: str | None = None) -> ServingPlan:
    return plan(
        hub.load(MODEL), [H100], gpus=gpus, isl=ISL, osl=OSL, tpot=tpot, mode="disaggregated", dtype="bf16", kv="bf16"
    )


def best(gpus: int = 2, tpot: str | None = None) -> Candidate:
    return planned(gpus, tpot).ranked[0].candidate


def test_a_pair_of_engines_serves_as_fast_as_its_slower_side() -> None:
    one = best()
    assert one.prefill is not None
    options = {"engine": "vllm", "dtype": "bf16", "sustained": "on"}
    prefill = roofmodel.estimate(MODEL, "h100", phase="prefill", batch=one.prefill.batch, seq=ISL, **options)  # type: ignore[arg-type]
    decode = roofmodel.estimate(MODEL, "h100", phase="decode", batch=one.batch, context=ISL + OSL // 2, **options)  # type: ignore[arg-type]
    first = prefill.totals["prefill"]["expected_seconds"]
    each = decode.totals["decode"]["expected_seconds"]
    assert one.tpot.value == pytest.approx(each)
    assert one.requests.value == pytest.approx(min(one.prefill.batch / first, one.batch / ((OSL - 1) * each)))
    cache = 2 * ISL * 32 * 8 * 128 * 2  # K and V, tokens, layers, heads, head size, bf16
    (link,) = service_links(H100, 2)
    assert link.bandwidth == 450e9  # NVLink 4 per direction
    assert one.ttft.value == pytest.approx(first + cache / link.bandwidth + OUTSIDE)


def test_a_prompt_passes_all_stages_of_a_pipeline_without_the_time_that_a_stage_waits() -> None:
    """Two stages, a microbatch of prompts in each: it takes s1 + s2, and the slower stage starts one every max(s1, s2).

    An estimate of two microbatches takes s1 + s2 + max(s1, s2): it includes the time in which a stage has no prompts.
    """
    found = plan(
        hub.load(MODEL),
        [H100],
        gpus=4,
        isl=ISL,
        osl=OSL,
        mode="disaggregated",
        dtype="bf16",
        kv="bf16",
        tp=1,
        pp=2,
        sustained="off",
    )
    one = found.ranked[0].candidate
    assert one.prefill is not None
    assert one.prefill.limits
    assert one.prefill.layout == Layout(pp=2)
    micro = one.prefill.batch // 2
    through, both = (
        roofmodel.estimate(
            MODEL, "h100", phase="prefill", batch=batch, micro_batch=micro, seq=ISL, pp=2, engine="vllm", dtype="bf16"
        ).totals["prefill"]["expected_seconds"]
        for batch in (micro, 2 * micro)
    )
    assert one.ttft.value == pytest.approx(through + one.prefill.transfer + OUTSIDE, rel=1e-3)
    assert one.requests.value == pytest.approx(micro / (both - through), rel=1e-3)


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
    assert (two.gpus, two.prefill.layout) == (4, Layout(tp=2))  # faster than one GPU, and both are paid for


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
        hub.load("llama-3.1-70b"), [H100], gpus=8, isl=4096, osl=1024, ttft="500ms", tpot="20ms", mode="disaggregated",
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


def matched(*, prefill: Layout, each: float, decode: Layout, batch: int, **changes: Any) -> Candidate:
    """A candidate on 8 GPUs whose prefill engines compute `each` prompts per second; a token takes 30 ms."""
    computed, tpot = prefill.engines * each, 0.03
    decoded = batch / ((OSL - 1) * tpot)
    rate = min(computed, decoded)
    return best()._replace(
        gpus=8, layout=decode, batch=batch, tpot=Expected(tpot, tpot, tpot), requests=Expected(rate, rate, rate),
        prefill=PrefillEngines(prefill, 1, 0.0, computed < decoded, computed), **changes,
    )  # fmt: skip


def cause(one: Candidate, other: Candidate) -> str:
    ordered = sorted((one, other), key=lambda each: -each.per_gpu.value)
    return reasons(one, 1 + ordered.index(one), ordered)[0].partition(": ")[2]


FASTEST = matched(prefill=Layout(dp=5), each=4.0, decode=Layout(dp=3), batch=36)  # 20 prompts, 19.05 answers per second


def test_the_number_of_prefill_engines_is_the_cause_where_they_limit_the_rate() -> None:
    """4 engines compute 16 prompts per second, whatever the batch and the format of the KV cache."""
    slower = matched(
        prefill=Layout(dp=4), each=4.0, decode=Layout(tp=4), batch=32, formats=Formats("bf16", "bf16", "fp8", "bf16")
    )
    assert slower.requests.value == 16
    assert cause(slower, FASTEST) == "4 prefill engines, not 5"
    assert cause(FASTEST, slower) == "5 prefill engines, not 4"


def test_prefill_engines_of_another_layout_are_counted_in_gpus_if_their_number_is_the_cause() -> None:
    fewer = matched(prefill=Layout(tp=4), each=16.0, decode=Layout(tp=4), batch=36)
    assert cause(fewer, FASTEST) == "4 prefill GPUs, not 5"
    slower = matched(prefill=Layout(tp=5), each=15.0, decode=Layout(dp=3), batch=36)
    longer = "prefill takes 333 ms of GPU time per prompt, not 250 ms"  # 5 GPUs / 15 prompts/s, 1 GPU / 4 prompts/s
    assert cause(slower, FASTEST) == f"{longer}; prefill engines of tp 5, not tp 1"
    same = matched(prefill=Layout(dp=5), each=3.0, decode=Layout(dp=3), batch=36)
    assert cause(same, FASTEST) == longer


def test_times_of_engines_of_the_same_stage_are_compared() -> None:
    """5 GPUs that compute 15 and 10 prompts per second: a prompt takes 333 and 500 ms of GPU time. Passes follow each
    other, so the 20 % of a pass in which stages idle are no part of it: 40 % of a pass are half of the rest."""
    busy = FASTEST.shares._replace(communication=0.4, idle=0.2)
    one = matched(prefill=Layout(tp=5), each=15.0, decode=Layout(dp=3), batch=36, shares=busy._replace(idle=0.6))
    other = matched(prefill=Layout(pp=5), each=10.0, decode=Layout(dp=3), batch=36, shares=busy)
    assert cause(other, one) == (
        "computation takes 250 ms of GPU time per prompt, not 0; prefill engines of pp 5, not tp 5"
    )


def test_the_engines_that_decode_are_the_cause_where_they_limit_the_rate() -> None:
    fewer = matched(prefill=Layout(dp=6), each=4.0, decode=Layout(dp=2), batch=24)
    assert cause(fewer, FASTEST) == "2 decode engines, not 3"
    smaller = matched(prefill=Layout(dp=5), each=4.0, decode=Layout(dp=3), batch=18)
    assert cause(smaller, FASTEST) == "batch 18, not 36"
    more = matched(prefill=Layout(dp=4), each=5.0, decode=Layout(dp=4), batch=32)
    assert cause(more, FASTEST) == "batch 8 per decode GPU, not 12"


def test_shares_of_a_prefill_and_of_a_decode_are_not_compared() -> None:
    """A prefill-limited candidate has the shares of its prefill, any other those of its decode."""
    busy = FASTEST.shares._replace(communication=0.6)
    slower = matched(prefill=Layout(dp=5), each=3.0, decode=Layout(dp=3), batch=36, shares=busy)
    assert "communication" not in cause(slower, FASTEST)


def test_the_batch_is_no_cause_against_mixed_steps() -> None:
    mixed = FASTEST._replace(mode="mixed", prefill=None, layout=Layout(dp=8), batch=1000)
    slower = matched(prefill=Layout(dp=4), each=4.0, decode=Layout(tp=4), batch=32)
    assert cause(slower, mixed) == "separate engines for prefill and decode"
    assert cause(mixed, slower) == "prefill and decode on the same engines"


def test_a_plan_names_the_engines_that_limit_each_rate() -> None:
    found = plan(
        hub.load("llama-3.1-70b"), [Device.load("h200")], gpus=8, isl=4096, osl=512, ttft="500ms", tpot="30ms",
        mode="disaggregated", dtype="fp8", pp=1,
    )  # fmt: skip
    first, *others = found.ranked
    for each in others:
        one, fastest = each.candidate.prefill, first.candidate.prefill
        assert one is not None
        assert fastest is not None
        if one.limits and one.layout.engine == fastest.layout.engine:
            assert each.reason.endswith(f": {one.layout.engines} prefill engines, not {fastest.layout.engines}")
    assert any("prefill engines, not" in each.reason for each in others)


def test_the_gpu_that_sends_or_receives_most_of_a_prompts_cache_sets_the_time_of_its_transfer() -> None:
    """One prefill GPU sends 400 MB, each of two decode GPUs receives 200 MB, or the reverse, at 100 MB/s."""
    step = StepTimes(*[np.ones(1)] * 11)
    one, two, formats = (np.ones(1),) * 3, (np.full(1, 0.01),) * 3, Formats("bf16")
    for sent, received in ((400e6, 200e6), (200e6, 400e6)):
        prefill = PrefillRates("h100", Layout(), formats, np.ones(1), one, one, np.ones(1), step, sent)
        decode = DecodeRates("h100", Layout(tp=2), formats, np.ones(1), two, one, np.ones(1), None, step, received)
        common = EngineMatching(Supply(3), RequestLengths(8, 8), Targets(), [ServiceLink(0, 3, 100e6)])
        ((_, found, _),) = disaggregated.matched([prefill], [decode], common)
        assert found.prefill is not None
        assert found.prefill.transfer == 4
        assert found.ttft.value == 1 + 4
