"""Plans of a service: they fit, meet their targets, and no brute-force candidate is better."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import product
from math import exp, inf, sqrt
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import roofmodel
from roofmodel.devices.device import Device
from roofmodel.engines.engine import Engine
from roofmodel.errors import WorkloadError
from roofmodel.models import hub
from roofmodel.plan.candidate import Candidate
from roofmodel.plan.layouts import Layout, TrainingLayout, formats, service_layouts, training_layouts
from roofmodel.plan.plan import ServingPlan
from roofmodel.plan.ranking import ranked, reasons, ties
from roofmodel.plan.serving import batches
from roofmodel.steps.estimate import estimate
from roofmodel.steps.options import workload
from roofmodel.timing.timing import Expected
from tests.plan.searching import plan, plan_training

MODEL, ISL, OSL = "llama-3.1-8b", 1024, 128
ONE_FORMAT = {"dtype": "bf16", "kv": "bf16"}


OUTSIDE = Engine.load("vllm").host.outside_steps(ISL)
"""Seconds of TTFT outside the steps."""


@cache
def planned(**options: Any) -> ServingPlan:
    asked = {"gpus": 2, "isl": ISL, "osl": OSL, **ONE_FORMAT, **options}
    return plan(hub.load(MODEL), [Device.load("h100")], **asked)


def served(tpot: float, communication: float, idle: float, **changes: Any) -> Candidate:
    """200 sequences on 2 GPUs with mixed steps: a token takes 2 / 200 × `tpot` seconds of GPU time, of which these are
    the shares; 129 tokens are 128 decodes."""
    one = planned().ranked[0].candidate
    shares = one.shares._replace(communication=communication, idle=idle)
    found = one._replace(osl=129, gpus=2, layout=Layout(tp=2), batch=200, chunk=512, shares=shares)
    found = found._replace(tpot=Expected(tpot, tpot, tpot), **changes)
    rate = found.batch / (128 * tpot)
    return found._replace(requests=Expected(rate, rate, rate))


def cause(one: Candidate, other: Candidate) -> str:
    ordered = sorted((one, other), key=lambda each: -each.per_gpu.value)
    return reasons(one, 1 + ordered.index(one), ordered)[0].partition(": ")[2]


FAST = {"tpot": 0.0129, "communication": 0.2, "idle": 0.0}
"""128 µs of GPU time per output token (128 of 129 are decoded): 25.6 µs of communication, 102 µs of computation."""


def test_the_reason_is_the_part_of_the_gpu_time_that_differs_most() -> None:
    """A step of 25.8 ms takes 256 µs per token: half of it is 128 µs of communication, 102 more; 26 more are idle."""
    slow = served(0.0258, 0.5, 0.1, layout=Layout(pp=2))
    assert cause(slow, served(**FAST)) == (
        "communication takes 128 µs of GPU time per output token, not 25.6 µs"
    )  # fmt: skip
    assert cause(served(**FAST), slow) == "communication takes 25.6 µs of GPU time per output token, not 128 µs"
    idle = served(0.0258, 0.1, 0.5, layout=Layout(pp=2))
    assert cause(idle, served(**FAST)) == "pipeline stages idle 128 µs of GPU time per output token, not 0"
    computing = served(0.0258, 0.0, 0.0, layout=Layout(pp=2))
    assert cause(computing, served(**FAST)) == "computation takes 256 µs of GPU time per output token, not 102 µs"


def test_a_part_that_differs_against_the_rates_is_no_reason() -> None:
    """20 % slower with 26 µs less communication: computation takes 51 µs more."""
    slow = served(0.0129 * 1.2, 0.0, 0.0, layout=Layout(pp=2))
    assert cause(slow, served(**FAST)) == "computation takes 154 µs of GPU time per output token, not 102 µs"


def test_options_that_differ_follow_the_largest_part_of_the_time() -> None:
    slow = served(0.0129, 0.6, 0.0, batch=100, chunk=256)
    # Half of the batch takes 2 / 100 × 12.9 ms × 128 / 129 = 256 µs per token, 60 % of it 154 µs.
    assert cause(slow, served(**FAST)) == (
        "communication takes 154 µs of GPU time per output token, not 25.6 µs; batch 100, not 200; up to 256 prompt "
        "tokens in a step, not 512"
    )


def test_one_option_that_differs_is_the_reason() -> None:
    fast = served(**FAST)
    assert cause(served(0.0258, 0.5, 0.1, batch=100), fast) == "batch 100, not 200"
    narrow = fast.formats._replace(kv="fp8")
    assert cause(served(0.0258, 0.5, 0.1, formats=narrow), fast) == "bf16 kv fp8, not bf16"
    assert cause(served(0.0258, 0.5, 0.1, device="a100"), fast) == "a100, not h100-sxm"


def test_the_first_candidate_is_compared_with_the_best_other_layout_even_if_they_tie() -> None:
    best = planned().ranked[0].candidate

    def slower(factor: float, **changes: Any) -> Candidate:
        return best._replace(requests=Expected(*(rate / factor for rate in best.requests)), **changes)

    smaller = slower(1.01, batch=best.batch // 2)  # the same layout
    close, far = slower(1.02, layout=Layout(pp=2)), slower(4, layout=Layout(tp=2))
    found = ranked([far, smaller, best, close], count=4)
    assert [one.candidate for one in found] == [best, smaller, close, far]
    assert 3 in found[0].ties_with
    assert found[0].reason.startswith("2% more tokens/s than pp 2:")


def test_a_rate_without_a_unit_is_in_requests_per_second() -> None:
    assert planned(requests="2").service == planned(requests=2).service == planned(requests="120/min").service


def test_every_reported_layout_fits_and_meets_the_targets() -> None:
    found = planned(ttft="100ms", tpot="15ms", requests="2/s")
    assert found.meets
    for one in found.ranked:
        each = one.candidate
        assert each.fits
        assert each.memory <= 0.9 * 80 * 2**30
        assert each.ttft.value <= 0.1
        assert each.tpot.value <= 0.015
        assert each.requests.value >= 2
        assert each.layout.gpus + (each.prefill.layout.gpus if each.prefill else 0) == each.gpus == each.gpus_paid <= 2
        assert each.ttft.low <= each.ttft.value <= each.ttft.high
        assert each.requests.low <= each.requests.value <= each.requests.high


def test_at_an_equal_rate_the_earlier_first_token_comes_first() -> None:
    one = planned().ranked[0].candidate
    later = one._replace(
        ttft=Expected(*(2 * t for t in one.ttft)), requests=Expected(*(rate * (1 + 1e-12) for rate in one.requests))
    )
    assert [each.candidate for each in ranked([later, one], 2)] == [one, later]
    faster = later._replace(requests=Expected(*(rate * 1.001 for rate in one.requests)))
    assert [each.candidate for each in ranked([one, faster], 2)] == [faster, one]


def test_the_best_row_of_each_device_is_shown_with_its_rank() -> None:
    one = planned().ranked[0].candidate

    def slower(device: str, factor: float) -> Candidate:
        return one._replace(device=device, requests=Expected(*(rate / factor for rate in one.requests)))

    candidates = [slower("a", 1), slower("a", 2), slower("a", 3), slower("b", 4), slower("b", 5), slower("c", 6)]
    found = ranked(candidates, 4)
    assert [(each.rank, each.candidate.device) for each in found] == [(1, "a"), (2, "a"), (4, "b"), (6, "c")]
    assert [each.rank for each in ranked(candidates, 1)] == [1, 4, 6]
    tied = [one, one, slower("b", 1.0000001)]
    assert [(each.rank, each.ties_with) for each in ranked(tied, 2)] == [(1, (3,)), (3, (1,))]


def test_memory_holds_the_cache_of_all_requests_at_full_length() -> None:
    best = planned(mode="mixed", tpot=0.012).ranked[0].candidate
    assert best.layout.pp == 1
    estimated = roofmodel.estimate(
        MODEL, "h100", phase="decode", batch=best.batch, context=ISL + OSL - 1, dtype="bf16", tp=best.layout.tp,
        dp=best.layout.dp,
    ).to_dict()["memory"]  # fmt: skip
    assert best.memory > estimated["weights"] + estimated["kv_cache"]
    assert best.largest_batch >= best.batch


def test_the_best_is_no_worse_than_prefills_that_alternate_with_decodes() -> None:
    """Without chunks, a step is a decode, or the prefill of one prompt: both are estimates of `roofmodel.estimate`."""
    found = {tpot: planned(tpot=tpot).ranked[0].candidate.requests.value for tpot in (None, 0.012)}
    for (tp, dp), batch in product(((1, 2), (2, 1)), (8, 128)):
        options: dict[str, Any] = {"engine": "vllm", "dtype": "bf16", "tp": tp}
        decode = roofmodel.estimate(MODEL, "h100", phase="decode", batch=batch, context=ISL + OSL // 2, **options)
        prefill = roofmodel.estimate(MODEL, "h100", phase="prefill", seq=ISL, **options)
        prompts = batch / (OSL - 1)  # per decode
        step = decode.totals["decode"]["expected_seconds"] + prompts * prefill.totals["prefill"]["expected_seconds"]
        assert decode.to_dict()["memory"]["largest_batch"] > 1.2 * batch  # the cache of a full-length request is larger
        for tpot, best in found.items():
            if tpot is None or step <= tpot:
                assert best >= dp * prompts / step * (1 - 1e-9)


def test_the_largest_latency_between_tokens_is_a_step_with_a_chunk() -> None:
    for one in (each.candidate for each in planned().ranked):
        if one.chunk is None:
            assert one.largest_itl == pytest.approx(one.tpot.value)
        else:
            assert one.largest_itl >= one.itl_p99 > one.tpot.value
            whole = roofmodel.estimate(
                MODEL, "h100", phase="prefill", batch=one.chunk // ISL, seq=ISL, dtype="bf16", tp=one.layout.tp,
            ).totals["prefill"]["expected_seconds"]  # fmt: skip
            assert one.largest_itl > 0.5 * whole / one.layout.pp


def test_serving_messages_do_not_name_training() -> None:
    with pytest.raises(WorkloadError) as caught:
        planned(tp=3)
    assert "training" not in str(caught.value)


def test_a_stricter_target_never_raises_the_rate() -> None:
    rates = [planned(tpot=tpot).ranked[0].candidate.requests.value for tpot in (None, 0.012, "8ms")]
    assert rates == sorted(rates, reverse=True)


def test_more_memory_never_lowers_the_rate() -> None:
    rates = [planned(memory_utilization=share).ranked[0].candidate.requests.value for share in (0.6, 0.9)]
    assert rates == sorted(rates)


def test_no_candidate_of_the_front_is_beaten_in_both_rates() -> None:
    front = planned().front
    assert len(front) > 5
    assert [one.per_gpu.value for one in front] == sorted((one.per_gpu.value for one in front), reverse=True)
    assert [one.tpot.value for one in front] == sorted((one.tpot.value for one in front), reverse=True)


def test_targets_that_nothing_meets_name_the_nearest_layout() -> None:
    found = planned(tpot="1ms")
    assert not found.meets
    assert found.ranked
    violations = [one.candidate.violation for one in found.ranked]
    assert violations == sorted(violations)
    assert violations[0] > 1
    assert any("no layout meets the targets; the nearest is tp 2" in str(note) for note in found.notes)


def test_candidates_state_their_engine() -> None:
    for engine in ("vllm", "sglang"):
        report = roofmodel.plan("llama-3.1-8b", "h100", gpus=1, isl=64, osl=8, engine=engine, dtype="bf16", top=1)
        assert [row["engine"] for row in report.to_dict()["candidates"]] == [engine]
    trained = roofmodel.plan_training("gpt2", "a100", gpus=2, tokens="1B", batch=2, seq=64, tp=1, dp=2, top=1)
    assert [row["engine"] for row in trained.to_dict()["candidates"]] == ["megatron"]


def test_documents_state_the_version_and_the_options_of_the_engine_as_those_of_an_estimate() -> None:
    keys = ("engine", "engine_version", "engine_file", "engine_option", "runtime", "launch_seconds")
    trained: dict[str, Any] = {"engine": "torch", "engine_option": "launch=8us"}
    served: dict[str, Any] = {"engine": "trtllm@0.9", "dtype": "fp16", "kv": "fp16"}
    for found, alike in (
        (
            roofmodel.plan_training("gpt2", "a100", gpus=1, tokens="1B", batch=2, seq=64, top=1, **trained),
            roofmodel.estimate("gpt2", "a100", phase="train", **trained),
        ),
        (
            roofmodel.plan("gpt2", "a100", gpus=1, isl=64, osl=8, mode="mixed", top=1, **served),
            roofmodel.estimate("gpt2", "a100", phase="decode", **served),
        ),
    ):
        own, other = (each.to_dict()["workload"] for each in (found, alike))
        assert {key: own[key] for key in keys} == {key: other[key] for key in keys}


def test_kernels_without_parameters_of_their_own_are_noted_as_in_an_estimate() -> None:
    def of_kernels(notes: Any) -> set[str]:
        return {str(note) for note in notes if " kernels " in str(note)}

    h100, v100 = Device.load("h100"), Device.load("v100")
    served = plan(hub.load(MODEL), [h100], gpus=1, isl=512, osl=64, mode="mixed", dtype="fp8", kv="fp8", top=1)
    alike = estimate(hub.load(MODEL), h100, seq=512, dtype="fp8", activations="bf16", kv="fp8")
    assert of_kernels(served.notes) == of_kernels(alike.notes)
    assert any("prefill attention kernels of vLLM have no parameters for h100-sxm" in str(n) for n in served.notes)
    trained = plan_training(hub.load("gpt2"), [v100], gpus=2, tokens="1B", batch=2, seq=64, dtype="fp16", tp=2, top=1)
    alike = estimate(hub.load("gpt2"), v100, phase="train", batch=2, seq=64, dtype="fp16", tp=2)
    assert of_kernels(trained.notes) == of_kernels(alike.notes)
    assert any("collective kernels are not calibrated on v100" in str(note) for note in trained.notes)


def warning(**options: Any) -> str:
    return next(str(note) for note in planned(**options).notes if "no layout meets the targets" in str(note))


def test_a_rate_that_no_layout_reaches_names_the_highest_rate() -> None:
    latencies = {"ttft": "200ms", "tpot": "12ms"}
    highest = planned(**latencies).ranked[0].candidate.requests.value
    text = warning(requests=5.5 * highest, **latencies)
    assert f"with these latencies, the highest rate without a queue is {highest:.3g} requests/s" in text
    assert text.endswith("; the smallest number of GPUs that suffices is the answer without gpus")
    assert "GPUs" not in warning(requests=highest, tpot="1us")
    assert "GPUs" not in warning(tpot="1us")


@pytest.mark.parametrize("limits", [{}, {"ttft": "120ms"}, {"tpot": "9ms", "itl_p99": "60ms"}])
def test_without_a_number_the_fewest_gpus_that_meet_rate_and_targets_are_found(limits: dict[str, Any]) -> None:
    highest = planned(**limits, mode="mixed").ranked[0].candidate.requests.value
    asked = {"requests": 2.3 * highest, **limits, "mode": "mixed"}
    fewest = planned(gpus=None, **asked).ranked[0].candidate
    assert fewest.meets
    assert fewest.gpus_paid == fewest.gpus > 2
    assert planned(gpus=fewest.gpus, **asked).ranked[0].candidate == fewest
    assert not planned(gpus=fewest.gpus - 1, **asked).meets


def test_any_number_of_engines_is_found() -> None:
    one = planned(gpus=1, mode="mixed").ranked[0].candidate.requests.value
    for engines in (3, 5, 7, 11):
        found = planned(gpus=16, tp=1, pp=1, mode="mixed", requests=(engines - 0.5) * one).ranked[0].candidate
        assert (found.layout.dp, found.gpus, found.gpus_needed) == (engines,) * 3


def test_the_number_of_gpus_or_a_rate_is_needed() -> None:
    with pytest.raises(WorkloadError, match="gpus is missing; try gpus=8, or requests="):
        planned(gpus=None)


def test_all_given_gpus_are_paid_for() -> None:
    """A model of 8 KV heads runs on 2 of 3 GPUs, or on 3 alone: the rate decides, and the cost is that of 3."""
    found = planned(gpus=3, price=2.0, mode="mixed")
    rates = [each.candidate.requests.value for each in found.ranked]
    assert rates == sorted(rates, reverse=True)
    for one in (each.candidate for each in found.ranked):
        assert one.gpus <= one.gpus_paid == 3
        assert one.dollars_per_million_tokens == pytest.approx(3 * 2 / 3600 / (OSL * one.requests.value) * 1e6)
    (two,) = (each for each in found.ranked if each.candidate.layout == Layout(tp=2))
    assert two.candidate.gpus == 2
    assert two.reason.endswith("2 of 3 GPUs used, not 3")


def test_at_a_required_rate_the_cost_is_that_of_the_used_gpus_at_this_rate() -> None:
    found = planned(gpus=8, price=2.0, requests="30/s")
    assert [each.candidate.gpus for each in found.ranked] == sorted(each.candidate.gpus for each in found.ranked)
    for one in (each.candidate for each in found.ranked):
        assert one.gpus_paid == one.gpus
        assert one.dollars_per_million_tokens == pytest.approx(one.gpus * 2 / 3600 / (OSL * 30) * 1e6)


def test_the_limit_of_the_gaps_excludes_large_batches() -> None:
    loose = planned(mode="mixed").ranked[0].candidate
    limited = planned(mode="mixed", itl_p99=0.5 * loose.itl_p99).ranked[0].candidate
    assert limited.meets
    assert limited.itl_p99 <= 0.5 * loose.itl_p99
    assert limited.requests.value < loose.requests.value
    chunked = planned(mode="mixed", itl_p99=0.5 * loose.itl_p99, chunk=256).ranked[0].candidate
    assert chunked.chunk == 256
    assert chunked.largest_itl < loose.largest_itl


def test_joules_per_token_are_those_of_the_steps() -> None:
    """At the highest rate, power × GPUs / tokens per second."""
    for one in (each.candidate for each in planned(mode="mixed").ranked):
        assert one.watts is not None
        assert 128 < one.watts <= 700 * 1.001  # idle, limit: hardware/h100-sxm.yaml
        assert one.joules_per_token == pytest.approx(one.watts * one.gpus / one.tokens_per_second.value)
    apart = planned(mode="disaggregated").ranked[0].candidate
    assert apart.joules_per_token == pytest.approx(apart.watts * apart.gpus / apart.tokens_per_second.value)
    unknown = plan(hub.load("gpt2"), [Device.load("a100")], gpus=1, isl=64, osl=16, dtype="fp16", kv="fp16")
    assert unknown.ranked[0].candidate.joules_per_token is None


def test_a_model_that_does_not_fit_names_the_layout_that_lacks_least() -> None:
    found = plan(hub.load("llama-3.1-405b"), [Device.load("a100")], gpus=4, isl=ISL, osl=OSL, **ONE_FORMAT)
    assert not found.ranked
    assert not found.meets
    assert found.shortage is not None
    assert found.shortage.needed > found.shortage.usable
    assert any("does not fit: the nearest layout" in str(note) for note in found.notes)


def test_requests_beyond_the_positions_of_the_model_are_a_warning() -> None:
    found = plan(hub.load("gpt2"), [Device.load("a100")], gpus=1, isl=1000, osl=100, dtype="fp16", kv="fp16")
    assert any("exceed the maximum positions of openai-community/gpt2, 1024" in str(note) for note in found.notes)


def test_a_required_rate_needs_only_some_of_the_replicas() -> None:
    rate = planned().ranked[0].candidate.requests.value
    found = planned(requests=rate / 4, dp=2)
    best = found.ranked[0].candidate
    assert best.layout == Layout(1, 1, 1, 2)
    assert best.gpus_needed == 1


def test_the_needed_gpus_meet_the_limit_of_ttft_with_the_wait() -> None:
    """Rates at which one engine of four is not enough only because of the wait."""
    options: dict[str, Any] = {"gpus": 4, "tp": 1, "pp": 1, "dp": 4, "mode": "mixed"}
    most = planned(**options).ranked[0].candidate.requests.value
    needed = {}
    for ttft in ("10s", "150ms", "120ms"):
        (one, *_) = planned(**options, requests=0.24 * most, ttft=ttft).ranked
        assert one.candidate.meets
        needed[ttft] = gpus = one.candidate.gpus_needed
        assert planned(**options | {"gpus": gpus, "dp": gpus}, requests=0.24 * most, ttft=ttft).meets
    assert sorted(needed.values()) == [needed["10s"], needed["150ms"], needed["120ms"]]  # type: ignore[type-var]
    assert needed["10s"] == 1 < needed["120ms"]  # type: ignore[operator]


def test_cost_decides_where_all_devices_have_prices() -> None:
    devices = [Device.load("h100"), Device.load("a100")]
    found = plan(hub.load(MODEL), devices, gpus=1, isl=ISL, osl=OSL, price="h100=100,a100=1", **ONE_FORMAT)
    first, last = found.ranked[0].candidate, found.ranked[-1].candidate
    assert first.device == "a100-sxm-80gb"
    assert last.device == "h100-sxm"
    assert first.dollars_per_million_tokens == pytest.approx(1 / 3600 * 1e6 / first.per_gpu.value)
    assert found.ranked[0].candidate.per_gpu.value < last.per_gpu.value


def test_a_device_without_calibration_shows_bounds_after_the_expected_times_of_others() -> None:
    options: dict[str, Any] = {"gpus": 1, "isl": ISL, "osl": OSL, "mode": "mixed", **ONE_FORMAT}
    h100, mi300x = Device.load("h100"), Device.load("mi300x")
    found, alone = (plan(hub.load(MODEL), devices, top=1000, **options) for devices in ([mi300x, h100], [h100]))
    known, bound = found.ranked
    assert known.candidate == alone.ranked[0].candidate
    assert (bound.candidate.device, bound.candidate.calibrated) == (mi300x.id, False)
    assert bound.reason == "a lower bound of its time, as the device is not calibrated"
    assert (known.ties_with, bound.ties_with) == ((), ())
    note = "mi300x: not calibrated, so times are lower bounds; they are ranked after"
    assert [str(each).startswith(note) for each in found.notes].count(True) == 1
    rows = roofmodel.plan(MODEL, ["h100", "mi300x"], **options).to_dict()["candidates"]
    assert [(row["hardware"], row["calibrated"]) for row in rows] == [("h100-sxm", True), ("mi300x", False)]


def test_a_device_without_candidates_does_not_turn_the_times_of_others_into_bounds() -> None:
    options: dict[str, Any] = {"gpus": 1, "isl": 64, "osl": 16, "mode": "mixed", "dtype": "fp8", "kv": "fp8"}
    h100, tpu = Device.load("h100"), Device.load("tpu-v4")  # without fp8, and not calibrated
    found, alone = (plan(hub.load("gpt2"), devices, **options) for devices in ([h100, tpu], [h100]))
    assert found.ranked == alone.ranked
    assert found.ranked[0].candidate.tpot.low < found.ranked[0].candidate.tpot.high
    assert not any("lower bounds" in str(note) for note in found.notes)
    assert "tpu-v4 is left out: it has no pipe for the formats of the search; it has bf16, int8" in map(
        str, found.notes
    )


def test_a_device_without_candidates_needs_no_price() -> None:
    options: dict[str, Any] = {"gpus": 1, "isl": 64, "osl": 16, "mode": "mixed", "dtype": "fp8", "kv": "fp8"}
    found = plan(hub.load("gpt2"), [Device.load("h100"), Device.load("tpu-v4")], price="h100=2", **options)
    assert not any("missing" in str(note) for note in found.notes)


def test_a_service_uses_engines_of_every_size_as_often_as_they_fit() -> None:
    arch = hub.load("mixtral-8x7b-v0.1")
    found = {gpus: service_layouts(arch, gpus, {}) for gpus in range(1, 10)}
    for gpus, each in found.items():
        assert all(gpus - one.engine.gpus < one.gpus <= gpus for one in each)
        fewer = {one.engine for one in found.get(gpus - 1, [])}
        assert fewer <= {one.engine for one in each}  # with more GPUs the same engines, and more
    assert {Layout(8, 1, 8, 1), Layout(1, 1, 8, 8), Layout(2, 2, 4, 2), Layout(2, 1, 1, 4), Layout(1, 3, 1, 2)} <= {
        *found[8]
    }
    assert {one.dp for one in service_layouts(arch, 8, {"dp": [2]})} == {2}
    assert {one.tp for one in service_layouts(arch, 8, {"tp": [4]})} == {4}


def test_large_engines_have_pipelines_of_equal_stages_or_a_power_of_two_of_them() -> None:
    arch = hub.load("llama-3.1-70b")  # 80 layers
    found = {layout.engine for layout in service_layouts(arch, 72, {})}
    assert {Layout(pp=7), Layout(tp=2, pp=3), Layout(pp=20), Layout(tp=4, pp=16)} <= found
    assert all(80 % each.pp == 0 or each.pp in (32, 64) for each in found if each.gpus > 8)
    assert Layout(tp=2, pp=7) in {layout.engine for layout in service_layouts(arch, 72, {"pp": [7]})}


@settings(max_examples=8)
@given(
    model=st.sampled_from(["gpt2", "llama-3.2-1b", "llama-3.1-8b"]),
    device=st.sampled_from(["a100", "h100", "l40s", "a10", "mi300x"]),
    least=st.integers(1, 4),
    targets=st.fixed_dictionaries(
        {},
        optional={
            "ttft": st.sampled_from(["5ms", "50ms", "1s"]),
            "tpot": st.sampled_from(["2ms", "10ms", "50ms"]),
            "itl_p99": st.sampled_from(["5ms", "30ms", "200ms"]),
            "requests": st.sampled_from(["1/s", "20/s", "100/s"]),
        },
    ),
)
def test_more_gpus_never_make_the_answer_worse(model: str, device: str, least: int, targets: dict[str, Any]) -> None:
    before: Candidate | None = None
    for gpus in range(least, least + 3):
        half = "fp16" if model == "gpt2" else "bf16"
        found = plan(
            hub.load(model), [Device.load(device)], gpus=gpus, isl=256, osl=32, dtype=half, kv=half, top=1,
            time_limit=600, **targets,
        )  # fmt: skip
        assert found.complete
        if not found.ranked:  # nothing fits
            assert before is None
            continue
        best = found.ranked[0].candidate
        assert best.gpus <= gpus
        if before is not None:
            assert best.meets >= before.meets
            if before.meets and "requests" in targets:
                assert best.gpus <= before.gpus
            elif before.meets:
                assert best.requests.value >= before.requests.value * (1 - 1e-9)
            elif not best.meets and (best.mean_wait == inf) == (before.mean_wait == inf):
                assert best.violation <= before.violation * (1 + 1e-9)
        before = best


def test_a_search_ends_at_its_time_limit_and_says_so() -> None:
    asked: dict[str, Any] = {"gpus": 4, "isl": 64, "osl": 16, "dtype": "bf16", "kv": "bf16"}
    report = roofmodel.plan(MODEL, "h100", time_limit="1us", **asked).to_dict()
    assert (report["complete"], report["layouts"]) == (False, 1)
    assert report["candidates"]
    assert "the search ended after 1 µs with 1 of 7 layouts; raise" in report["warnings"][0]
    assert roofmodel.plan(MODEL, "h100", time_limit="600s", **asked).to_dict()["complete"] is True
    with pytest.raises(WorkloadError, match="time_limit"):
        roofmodel.plan(MODEL, "h100", time_limit="soon", **asked)


def test_only_formats_of_the_engines_kernels_are_searched() -> None:
    """vLLM's kernels were measured with a KV cache in fp8 on an L40S (Ada) and an H100, not on an A100 or a V100."""
    arch = hub.load(MODEL)
    for device, engine, expected in (
        ("a100", "vllm", {("bf16", "bf16")}),
        ("rtx4090", "vllm", {("bf16", "bf16"), ("bf16", "fp8"), ("fp8", "bf16"), ("fp8", "fp8")}),
        ("h100", "torch", {("bf16", "bf16")}),
        ("mi300x", "vllm", {("bf16", "bf16"), ("bf16", "fp8"), ("fp8", "bf16"), ("fp8", "fp8")}),  # not calibrated
    ):
        found = formats(arch, Device.load(device), Engine.load(engine), {})
        assert {(one.dtype, one.kv) for one in found} == expected, (device, engine)
    asked = formats(arch, Device.load("a100"), Engine.load("vllm"), {"kv": ["fp8"]})
    assert {one.kv for one in asked} == {"fp8"}
    found = formats(hub.load("deepseek-v3"), Device.load("h100"), Engine.load("vllm"), {})
    assert {one.dtype for one in found} == {"fp8"}  # its weights are fp8_block


def test_a_plan_under_autocast_has_the_notes_of_its_kernels() -> None:
    report = roofmodel.plan("gpt2", "a100", gpus=1, isl=64, osl=8, engine="torch", engine_option="autocast=bf16", top=1)
    assert report.to_dict()["candidates"][0]["dtype"] == "bf16"


def test_layouts_of_training_use_at_most_all_gpus_and_shard_experts() -> None:
    arch = hub.load("mixtral-8x7b-v0.1")
    found = {gpus: training_layouts(arch, gpus, 16, [1, 2], {}) for gpus in range(1, 10)}
    for gpus, each in found.items():
        assert all(one.gpus <= gpus and 16 % one.dp == 0 for one in each)
        assert {*found.get(gpus - 1, [])} <= {*each}  # with more GPUs the same layouts, and more
    some = ((8, 1, 8, 1), (1, 1, 8, 8), (2, 2, 4, 2), (2, 1, 1, 4), (1, 1, 8, 4, 2), (2, 2, 4, 1, 2))
    assert {TrainingLayout(*sizes) for sizes in some} <= {*found[8]}
    assert found[8][0].gpus == 8
    assert Layout(1, 1, 8, 8).engines == 1
    assert Layout(2, 1, 2, 4).engines == 4
    assert {one.tp for one in training_layouts(arch, 8, 16, [1], {"tp": [4]})} == {4}
    assert {one.dp for one in training_layouts(arch, 8, 16, [1], {"dp": [2]})} == {2}


def test_formats_without_a_pipe_are_not_searched() -> None:
    arch = hub.load(MODEL)
    assert {one.dtype for one in formats(arch, Device.load("a100"), Engine.load("vllm"), {})} == {"bf16"}
    assert {one.dtype for one in formats(arch, Device.load("h100"), Engine.load("vllm"), {})} == {"bf16", "fp8"}


@pytest.mark.parametrize("device", ["v100", "t4"])
def test_a_checkpoint_in_bf16_is_planned_in_fp16_on_devices_without_a_pipe_for_bf16(device: str) -> None:
    """The help says "bf16 or fp16"; vLLM falls back in the same way."""
    options: dict[str, Any] = {"gpus": 8, "top": 1, "dtype": None}
    serving = roofmodel.plan("llama-3.2-1b", device, isl=256, osl=32, **options).to_dict()
    training = roofmodel.plan_training("llama-3.2-1b", device, tokens="1B", seq=256, **options).to_dict()
    assert {one["dtype"] for one in serving["candidates"]} == {"fp16"}
    assert training["workload"]["dtype"] == "fp16"


def test_rates_tie_where_their_intervals_do_not_separate_them() -> None:
    one, near, far = Expected(100, 90, 110), Expected(95, 85, 105), Expected(50, 45, 55)
    assert ties(one, near)
    assert ties(near, one)
    assert not ties(one, far)
    assert not ties(far, one)


def test_two_rates_share_three_fifths_of_their_errors() -> None:
    """Errors of ±e with the correlation 0.6: their difference has an error of e sqrt(1 + 1 - 2 x 0.6)."""
    error, one = 0.1, Expected(100, 100 * exp(-0.1), 100 * exp(0.1))
    for factor, tie in ((0.99, True), (1.01, False)):
        rate = 100 * exp(-factor * error * sqrt(0.8))
        assert ties(one, Expected(rate, rate * exp(-error), rate * exp(error))) is tie


def test_errors_that_two_rates_share_separate_them() -> None:
    one, other = Expected(100, 90, 110), Expected(90, 81, 99)
    assert ties(one, other, shared=0)
    assert not ties(one, other, shared=0.9)


def test_batches_cover_the_range() -> None:
    assert batches(40).tolist() == [*range(1, 17), 20, 24, 28, 32, 36, 40]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"osl": 1}, "osl is 1; it must be a whole number from 2"),
        ({"gpus": 0}, "gpus is 0"),
        ({"tpot": "30 m"}, "tpot: "),
        ({"tpot": -1.0}, "tpot is -1.0; it must be a time above 0 and at most 3600 s; try tpot=\"30ms\""),
        ({"requests": "5/day"}, "'5/day' is no rate; try requests=\"5/s\""),
        ({"requests": "0/s"}, "requests is '0/s'; it must be above 0 and at most 1 M/s; try requests=\"5/s\""),
        ({"requests": -2.0}, "requests is -2.0; it must be above 0 and at most 1 M/s; try requests=\"5/s\""),
        ({"requests": "1e99/min"}, "requests is '1e99/min'; it must be above 0 and at most 1 M/s"),
        ({"requests": float("nan")}, "requests is nan; it must be above 0 and at most 1 M/s"),
        ({"tp": 3}, "no layout of meta-llama/Llama-3.1-8B uses at most 2 GPUs with these values of tp; tp × pp × dp"),
        ({"ttft": "-5ms"}, "ttft: '-5ms' is below 0"),
        ({"price": "a100=3"}, "price: a100-sxm-80gb is not a device of hw"),
        ({"dtype": "int8"}, None),
        ({"dtype": "fp5"}, "dtype: unknown value 'fp5'"),
        ({"top": 0}, "top is 0"),
        ({"runtime": "megatron"}, 'runtime was removed; write engine="megatron"'),
    ],
)  # fmt: skip
def test_an_invalid_option_is_refused_with_a_value_that_works(options: dict[str, Any], said: str | None) -> None:
    if said is None:
        assert planned(**options).ranked
        return
    with pytest.raises(WorkloadError) as caught:
        planned(**options)
    assert said in str(caught.value)


@pytest.mark.parametrize(("dtype", "expected"), [("fp32", "fp32"), ("bf16", "bf16"), (None, "fp16")])
def test_auto_is_the_format_of_the_checkpoint_as_in_an_estimate(dtype: str | None, expected: str) -> None:
    arch = replace(hub.load("gpt2"), dtype=dtype)
    work, remarks = workload(arch, dtype="auto")
    found = plan(arch, [Device.load("a100")], gpus=1, isl=8, osl=8, dtype="auto", kv="fp16", mode="mixed")
    trained = plan_training(arch, [Device.load("a100")], gpus=1, tokens="1B", batch=1, seq=8, dtype="auto")
    assert work.dtype == trained.run.dtype == expected
    assert {one.candidate.formats.dtype for one in found.ranked} == {expected}
    for notes in (remarks, found.notes, trained.notes):
        assert any('gpt2 states no torch_dtype; dtype="auto" is fp16' in str(note) for note in notes) == (not dtype)


def test_a_model_that_does_not_generate_is_refused() -> None:
    with pytest.raises(WorkloadError, match="does not generate text"):
        plan(hub.load("bert-base-uncased"), [Device.load("a100")], gpus=1, isl=128, osl=8)


def test_a_plan_has_the_weights_of_the_checkpoint() -> None:
    """In DeepSeek-V4-Flash the experts are in mxfp4, other matrices in fp8 by blocks: a plan keeps both."""
    options = {"tp": 4, "dtype": "fp8", "kv": "fp8", "activations": "bf16", "engine": "sglang"}
    planned = roofmodel.plan(
        "deepseek-v4-flash", "h200", gpus=4, isl=1024, osl=128, mode="mixed", **{**options, "tp": [4], "ep": [1]}
    ).to_dict()["candidates"][0]
    memory = roofmodel.estimate(
        "deepseek-v4-flash", "h200", phase="serve", isl=1024, osl=128, concurrency=planned["batch"], **options
    ).to_dict()["memory"]
    assert planned["memory"] == pytest.approx(memory["needed"], rel=0.03)
