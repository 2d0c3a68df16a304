"""Plans of a training run: their times and memory are those of `roofmodel.estimate`, and none of these is faster."""

from functools import cache
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import roofmodel
from roofmodel.devices.device import Device
from roofmodel.errors import WorkloadError
from roofmodel.models import hub
from roofmodel.options.values import number_of_tokens
from roofmodel.plan.layouts import TrainingLayout
from roofmodel.plan.request import TrainingRequest, request_of
from roofmodel.plan.training import TrainingPlan, TrainingTask, bounds_of, evaluate, groups_of, layouts_of, run_of
from roofmodel.plan.training_candidates import (
    LAST,
    TrainingCandidate,
    TrainingPiece,
    merit_of,
    ranked_training,
    training_reason,
)
from roofmodel.timing.timing import Expected
from tests.plan.searching import plan_training

MODEL, BATCH, SEQ = "gpt2-xl", 64, 1024


@cache
def planned(**options: Any) -> TrainingPlan:
    asked = {"gpus": 4, "tokens": "10B", "batch": BATCH, "seq": SEQ, "dtype": "bf16", "price": 2, **options}
    return plan_training(hub.load(MODEL), [Device.load("a100")], **asked)


def estimated(one: TrainingCandidate, **other: Any) -> tuple[float, dict[str, Any]]:
    """Seconds of a step and memory, from the estimate of the same training step."""
    options: dict[str, Any] = {
        **one.layout._asdict(), **one.choices._asdict(), "attention": one.run.attention,
        "micro_batch": one.micro_batch, **other,
    }  # fmt: skip
    report = roofmodel.estimate(
        MODEL, "a100", phase="train", batch=BATCH, seq=SEQ, dtype="bf16", engine="megatron", **options
    )
    return report.totals["train"]["expected_seconds"], report.to_dict()["memory"]


def test_step_and_memory_are_those_of_an_estimate() -> None:
    found = [ranked.candidate for ranked in planned().ranked]
    for one in (found[0], next(one for one in found if one.layout.pp > 1)):
        seconds, memory = estimated(one)
        assert one.step.value == pytest.approx(seconds)
        assert one.memory == pytest.approx(memory["total"])
        assert memory["fits"]
        assert one.memory <= one.usable


EXHAUSTIVE = 10**6  # candidates are shown, so that no layout that fits is left out


@pytest.mark.parametrize(
    ("model", "device", "options"),
    [
        ("gpt2", "a100", {"gpus": 4, "batch": 16, "zero": 1, "micro_batch": "1,2", "recompute": "none"}),
        ("gpt2", "a100", {"gpus": 2, "batch": 4, "attention": "eager", "memory_utilization": 0.03}),
        ("llama-3.2-1b", "h100", {"gpus": 4, "batch": 4, "seq": 8192, "tp": 1, "zero": "0,3", "recompute": "none"}),
        ("Mixtral-8x7B-v0.1", "h200", {"gpus": 8, "batch": 8, "seq": 256, "tp": 1, "recompute": "none"}),
        ("gpt2", "tpu-v4", {"gpus": 2, "batch": 8, "seq": 256}),  # not calibrated
    ],
)
def test_the_first_ranks_are_those_of_an_evaluation_of_all_layouts(
    model: str, device: str, options: dict[str, Any]
) -> None:
    arch, devices = hub.load(model), [Device.load(device)]
    every = plan_training(arch, devices, tokens="1B", top=EXHAUSTIVE, **options).ranked
    assert len(every) > 3
    for count in (1, 3):
        found = plan_training(arch, devices, tokens="1B", top=count, **options)
        assert found.complete
        assert [(each.candidate, each.reason) for each in found.ranked] == [
            (each.candidate, each.reason) for each in every[:count]
        ]


@pytest.mark.parametrize(
    ("model", "options"),
    [
        ("llama-3.1-8b", {"gpus": 16, "batch": 32, "seq": 8192, "micro_batch": "1,2"}),
        ("deepseek-v2-lite", {"gpus": 64, "batch": 64, "tp": 2, "micro_batch": "1,2"}),  # 27 layers
        ("llama-3.2-1b", {"gpus": 8, "batch": 32, "seq": 1024, "engine": "torch"}),
    ],
)
def test_no_layout_is_faster_or_smaller_than_its_bounds(model: str, options: dict[str, Any]) -> None:
    request = request_of(TrainingRequest, {"tokens": "1B", **options}, "training")
    arch, device, compared = hub.load(model), Device.load("h100"), 0
    run = run_of(arch, [device], request)
    pieces = [TrainingPiece(arch, device, *each, run, None) for each in layouts_of(arch, run, request.search)]
    # the layouts of every seventh group, and of these every ninth one
    for group in groups_of(pieces, request.search.get("micro_batch"))[1::7]:
        fits_int64, bounds = bounds_of(group)
        places = [place for place, bound in enumerate(bounds) if bound.points][::9]
        chosen = group._replace(pieces=tuple(group.pieces[place] for place in places), fits_int64=fits_int64)
        results = evaluate(TrainingTask(chosen, [LAST] * len(places), LAST, 1000))
        for place, result in zip(places, results, strict=True):
            if isinstance(result, TrainingCandidate):
                compared += 1
                assert bounds[place].merit <= merit_of(result)
                assert bounds[place].merit[1] > 0.4 * result.step.value
                assert bounds[place].memory <= result.memory
            elif result is not None:
                assert bounds[place].memory <= result.needed
    assert compared > 3


def test_a_sequence_is_shared_where_each_gpu_keeps_4096_tokens() -> None:
    asked: dict[str, Any] = {"gpus": 4, "tokens": "1B", "batch": 4, "tp": 1, "pp": 1, "recompute": "none", "top": 50}
    shared = {}
    for seq in (4096, 8192):
        found = plan_training(hub.load("llama-3.2-1b"), [Device.load("h100")], seq=seq, **asked).ranked
        shared[seq] = {each.candidate.layout.cp for each in found}
    assert shared == {4096: {1}, 8192: {1, 2}}


def test_a_layout_with_shared_sequences_is_that_of_an_estimate() -> None:
    options: dict[str, Any] = {"batch": 4, "seq": 4096, "dtype": "bf16"}
    for kind in ("ring", "ulysses"):
        found = plan_training(
            hub.load("llama-3.2-1b"), [Device.load("h100")], gpus=8, tokens="1B", tp=2, cp=2, cp_kind=kind, **options
        )
        one = found.ranked[0].candidate
        assert (one.layout.cp, one.choices.cp_kind) == (2, kind)
        assert one.layout.gpus == 8
        chosen = {**one.layout._asdict(), **one.choices._asdict(), "micro_batch": one.micro_batch}
        report = roofmodel.estimate("llama-3.2-1b", "h100", phase="train", engine="megatron", **options, **chosen)
        assert one.step.value == pytest.approx(report.totals["train"]["expected_seconds"])
        assert one.memory == pytest.approx(report.to_dict()["memory"]["total"])
        assert one.per_gpu.value == pytest.approx(4 * 4096 / 8 / one.step.value)


@pytest.mark.parametrize(
    ("engine", "option"),
    [("torch", None), ("torch-compile", None), ("torchtitan", "compile=async-tp"), ("megatron", "gradients=bf16")],
)
@pytest.mark.parametrize(
    "layout",
    [
        {"dp": 4, "zero": 0},
        {"dp": 4, "zero": 3, "recompute": "selective:norm,mlp"},
        {"tp": 2, "dp": 2, "zero": 1, "sequence_parallel": "on"},
        {"pp": 2, "dp": 2, "schedule": "interleaved", "zero": 0},
    ],
    ids=str,
)
def test_a_row_is_the_estimate_of_its_layout_in_every_engine(
    engine: str, option: str | None, layout: dict[str, Any]
) -> None:
    """Also the buckets of DistributedDataParallel, whose exchange overlaps with the last of several microbatches."""
    options: dict[str, Any] = {"batch": 16, "seq": 1024, "engine": engine, "engine_option": option}
    restricted = {"tp": 1, "pp": 1, "recompute": "none", "micro_batch": "1,2", **layout}
    found = plan_training(hub.load("gpt2"), [Device.load("h100")], gpus=4, tokens="1B", top=1, **options, **restricted)
    one = found.ranked[0].candidate
    assert all(getattr(one.layout, name) == size for name, size in layout.items() if name in ("tp", "pp", "dp"))
    chosen = {**one.layout._asdict(), **one.choices._asdict(), "micro_batch": one.micro_batch, "dtype": one.run.dtype}
    report = roofmodel.estimate("gpt2", "h100", phase="train", **options, **chosen)
    assert one.step.value == pytest.approx(report.totals["train"]["expected_seconds"])
    assert one.memory == pytest.approx(report.to_dict()["memory"]["total"])


def test_a_reason_names_the_gpus_of_a_layout_on_another_number() -> None:
    fast = timed(10, 0.1, 0.0, layout=TrainingLayout(dp=4))
    assert "slower than dp 4 on 4 GPUs" in training_reason(
        timed(20, 0.1, 0.0, layout=TrainingLayout(dp=2)), fast
    ).replace(", ZeRO-1", "")
    assert " GPUs" not in training_reason(timed(20, 0.1, 0.0, layout=TrainingLayout(pp=4)), fast)


def test_an_interleaved_pipeline_with_selective_recomputation_is_that_of_an_estimate() -> None:
    found = planned(pp=2, dp=2, vpp="2,3", attention="eager", recompute="selective", top=20)
    assert {each.candidate.choices.vpp for each in found.ranked} == {2, 3}
    one = found.ranked[0].candidate
    seconds, memory = estimated(one)
    assert one.step.value == pytest.approx(seconds)
    assert one.memory == pytest.approx(memory["total"])


@settings(max_examples=4, deadline=None)
@given(
    model=st.sampled_from(["gpt2", "gpt2-xl", "llama-3.2-1b"]),
    device=st.sampled_from(["a100", "h100", "l40s", "mi300x"]),
    least=st.integers(1, 9), batch=st.sampled_from([8, 60, 256]),
)  # fmt: skip
def test_more_gpus_never_make_a_run_slower(model: str, device: str, least: int, batch: int) -> None:
    before: TrainingCandidate | None = None
    for gpus in (least, least + 1):
        found = plan_training(
            hub.load(model), [Device.load(device)], gpus=gpus, tokens="10B", batch=batch, seq=512, top=1, time_limit=600
        )
        assert found.complete
        if not found.ranked:  # nothing fits
            assert before is None
            continue
        best = found.ranked[0].candidate
        assert best.gpus <= gpus
        assert before is None or best.days.value <= before.days.value * (1 + 1e-9)
        before = best


def test_a_run_uses_fewer_gpus_where_no_layout_divides_the_batch_among_all() -> None:
    """7 GPUs are neither a divisor of 64 sequences nor of 48 layers: exactly 7 GPUs would have no layout."""
    found = planned(gpus=7, pp=1, tp=1)
    assert {ranked.candidate.gpus for ranked in found.ranked[:1]} == {4}
    assert (
        roofmodel.plan_training(MODEL, "a100", gpus=7, tokens="10B", batch=BATCH, seq=SEQ, pp=1, tp=1, top=1).to_dict()[
            "candidates"
        ][0]["gpus"]
        == 4
    )


def test_the_memory_of_a_sharding_stage_does_not_depend_on_the_others_that_are_searched() -> None:
    """torchtitan shards fp32 weights, and keeps those in 16 bits that it does not shard."""
    options: dict[str, Any] = {"engine": "torchtitan", "tp": 1, "pp": 1, "cp": 1, "recompute": "none", "micro_batch": 1}
    alone, together = (
        {ranked.candidate.memory for zero in stages for ranked in planned(**options, zero=zero, top=99).ranked}
        for stages in ((0, 3), ("0,3",))
    )
    assert len(alone) > 1
    assert alone == together


def test_an_exchange_that_a_model_does_not_allow_leaves_the_others() -> None:
    """25 heads cannot be divided among 2 GPUs; a ring needs no heads."""
    found = planned(seq=1024, cp=2, cp_kind="ulysses,ring", tp=1, pp=1)
    assert {ranked.candidate.choices.cp_kind for ranked in found.ranked} == {"ring"}


def test_a_run_may_use_more_gpus_than_a_service() -> None:
    """As many as Llama 3.1 405B (arXiv 2407.21783, table 4)."""
    found = planned(gpus=16384, batch=16384, tp=1, pp=1, cp=1, zero=1, micro_batch=1, recompute="none")
    assert found.ranked[0].candidate.gpus == 16384


def test_counts_beyond_64_bits_are_planned_exactly() -> None:
    """10^8 tokens of GPT-2 XL: 48 layers of at least 4 x 1600 x 10^16 / 2 FLOPs of attention; 64 bits hold 9.2e18.

    Flash attention stores no scores: what a sequence needs beyond the weights grows with its length.
    """
    needed = []
    for length in (10**6, 10**7, 10**8):
        found = planned(batch=1, seq=length).shortage
        assert found
        needed.append(found.needed)
    assert needed[2] - needed[1] == 10 * (needed[1] - needed[0])


def test_interleaving_shortens_the_bubble_and_is_searched_by_default() -> None:
    found = planned(pp=4, recompute="none", micro_batch=2, top=20)
    idle = {each.candidate.choices.vpp: each.candidate.shares.idle for each in found.ranked}
    assert sorted(idle) == [1, 2, 3, 4]  # gpt2-xl has 48 layers; 12 per stage
    assert idle[4] < idle[2] < idle[1]
    # An interleaved pipeline needs a multiple of pp microbatches: 64 / 16 is one, 64 / 32 is not.
    assert not any(each.candidate.choices.vpp > 1 for each in planned(pp=4, micro_batch="32", top=20).ranked)


@pytest.mark.parametrize(("schedule", "parts"), [("1f1b", {1}), ("interleaved", {2, 3, 4})])
def test_a_schedule_restricts_the_model_parts_per_stage(schedule: str, parts: set[int]) -> None:
    found = [each.candidate for each in planned(pp=4, recompute="none", top=20, schedule=schedule).ranked]
    assert {one.choices.vpp for one in found} == parts
    assert {one.schedule for one in found} == {schedule}


def test_the_cost_of_a_run_is_that_of_its_gpu_hours() -> None:
    (row,) = roofmodel.plan_training("gpt2", "a100", gpus=2, tokens="1B", price=3, top=1, tp=1, pp=1).to_dict()[
        "candidates"
    ]
    assert row["gpu_hours"] == pytest.approx(row["gpus"] * row["days"] * 24)
    assert row["dollars"] == pytest.approx(3 * row["gpu_hours"])


def test_a_sharded_optimizer_is_searched_and_saves_memory() -> None:
    found = planned(tp=1, pp=1, dp=4, recompute="none", micro_batch=1)
    by_stage = {each.candidate.choices.zero: each.candidate for each in found.ranked}
    assert sorted(by_stage) == [0, 1]
    parameters = 1_557_611_200
    assert by_stage[0].memory - by_stage[1].memory == 12 * parameters * 3 // 4
    assert found.ranked[0].candidate.choices.zero == 1
    assert "optimizer state" in found.ranked[1].reason
    assert not any("does not fit" in each.reason for each in found.ranked)
    # 0.28 of 80 GiB are 22.4 GiB; 16 bytes of each parameter are 23.2 GiB, and 4 + 12 / 4 bytes are 10.2 GiB
    small = planned(tp=1, pp=1, dp=4, recompute="full", micro_batch=1, memory_utilization=0.28)
    assert [each.candidate.choices.zero for each in small.ranked] == [1]
    assert small.ranked[0].reason.endswith("; it does not fit without ZeRO-1")
    only = planned(tp=1, pp=1, recompute="none", micro_batch=1, zero=0)
    assert {each.candidate.choices.zero for each in only.ranked} == {0}
    with pytest.raises(WorkloadError, match="zero"):
        planned(zero="4")


def test_fully_sharded_replicas_are_planned_where_they_are_asked_for() -> None:
    found = planned(tp=1, pp=1, dp=4, recompute="none", micro_batch=1, zero="1,3")
    by_stage = {each.candidate.choices.zero: each.candidate for each in found.ranked}
    assert sorted(by_stage) == [1, 3]
    assert by_stage[3].memory < by_stage[1].memory


def test_layouts_of_an_moe_model_with_sharded_experts_are_those_of_an_estimate() -> None:
    model, options = "Mixtral-8x7B-v0.1", {"batch": 8, "seq": 256, "dtype": "bf16"}
    found = plan_training(
        hub.load(model), [Device.load("h200")], gpus=8, tokens="1B", tp=1, dp=8, micro_batch="1", zero=1, **options
    )
    assert {each.candidate.layout.ep for each in found.ranked} == {8}  # all experts on one GPU do not fit
    for one in (each.candidate for each in found.ranked):
        chosen = {**one.layout._asdict(), **one.choices._asdict(), "micro_batch": 1}
        report = roofmodel.estimate(model, "h200", phase="train", engine="megatron", **options, **chosen)
        assert one.step.value == pytest.approx(report.totals["train"]["expected_seconds"])
        assert one.memory == pytest.approx(report.to_dict()["memory"]["total"])


def test_no_other_layout_is_faster() -> None:
    best = planned().ranked[0].candidate
    for (tp, pp, dp), recompute in product(((1, 1, 4), (1, 2, 2)), ("none", "full")):
        other = {"tp": tp, "pp": pp, "dp": dp, "recompute": recompute, "sequence_parallel": "off", "micro_batch": 1}
        seconds, memory = estimated(best, **other)
        assert seconds >= best.step.value * (1 - 1e-9) or not memory["fits"]


def of_two_devices(other: str, **options: Any) -> TrainingPlan:
    asked: dict[str, Any] = {"gpus": 1, "tokens": "1B", "batch": 16, "dtype": "fp16", "recompute": "none", **options}
    return plan_training(hub.load("gpt2"), [Device.load("h100"), Device.load(other)], **asked)


def test_the_same_layout_on_another_device_differs_by_the_device() -> None:
    first, second = (each.reason for each in of_two_devices("v100").ranked)
    assert first.endswith("faster than tp 1: h100-sxm, not v100-sxm2-32gb")
    assert second.endswith("slower than tp 1: v100-sxm2-32gb, not h100-sxm")


def test_the_price_decides_if_devices_have_different_prices() -> None:
    found = of_two_devices("v100", price="h100=100,v100=1")
    first, last = (each.candidate for each in found.ranked)
    assert [first.device, last.device] == ["v100-sxm2-32gb", "h100-sxm"]
    assert first.dollars < last.dollars
    assert first.days.value > last.days.value
    cheaper = f"{1 - first.dollars / last.dollars:.0%} cheaper than tp 1: v100-sxm2-32gb, not h100-sxm"
    assert found.ranked[0].reason == cheaper
    dearer = f"{last.dollars / first.dollars - 1:.0%} more expensive than tp 1: h100-sxm, not v100-sxm2-32gb"
    assert found.ranked[1].reason == dearer


def test_equal_prices_rank_by_the_step_time_and_a_missing_price_is_noted() -> None:
    fastest = [each.candidate.device for each in of_two_devices("v100").ranked]
    equal, missing = (of_two_devices("v100", price=price) for price in ("2", "v100=1"))
    assert [each.candidate.device for each in equal.ranked] == fastest
    assert [each.candidate.device for each in missing.ranked] == fastest
    note = "price is missing for h100-sxm: candidates are ranked by rate per GPU"
    assert note in map(str, missing.notes)
    assert not any("missing" in str(each) for each in equal.notes)


def timed(seconds: float, communication: float, idle: float, **changes: Any) -> TrainingCandidate:
    """A candidate with a step time of which these are the shares."""
    one = planned().ranked[0].candidate
    return one._replace(
        step=Expected(seconds, seconds, seconds),
        shares=one.shares._replace(communication=communication, idle=idle), **changes,
    )  # fmt: skip


def test_the_reason_is_the_part_of_the_step_that_differs_most() -> None:
    """Of 10 s: 1 s of communication and 9 s of computation. Of 20 s, what the shares say."""
    fast, pp = timed(10, 0.1, 0.0), TrainingLayout(pp=4)
    assert cause(timed(20, 0.4, 0.05, layout=pp), fast) == "communication takes 8 s of a step, not 1 s"
    assert cause(timed(20, 0.1, 0.5, layout=pp), fast) == "pipeline stages idle 10 s of a step, not 0"
    assert cause(timed(20, 0.1, 0.1, layout=pp), fast) == "computation takes 16 s of a step, not 9 s"
    assert cause(fast, timed(20, 0.4, 0.05, layout=pp)) == "communication takes 1 s of a step, not 8 s"


def test_options_that_differ_follow_the_part_of_the_step_and_one_alone_is_the_reason() -> None:
    fast = timed(10, 0.1, 0.0)
    full = fast.choices._replace(recompute="full", sequence_parallel="on")
    assert cause(timed(20, 0.1, 0.0, choices=full, micro_batch=7), fast) == (
        f"computation takes 18 s of a step, not 9 s; recomputation full, not {fast.choices.recompute}; microbatches of "
        f"7, not {fast.micro_batch}; sequence parallelism on"
    )
    assert cause(timed(20, 0.5, 0.0, micro_batch=7), fast) == f"microbatches of 7, not {fast.micro_batch}"


def test_candidates_that_differ_by_less_than_half_a_percent_are_as_fast() -> None:
    fast = timed(10, 0.1, 0.0)
    assert training_reason(timed(10.04, 0.5, 0.0, layout=TrainingLayout(pp=4)), fast).startswith("as fast as ")


def cause(one: TrainingCandidate, other: TrainingCandidate) -> str:
    return training_reason(one, other).partition(": ")[2]


def test_a_device_without_candidates_does_not_turn_the_times_of_others_into_bounds() -> None:
    found = of_two_devices("tpu-v4")
    assert [each.candidate.device for each in found.ranked] == ["h100-sxm"]
    assert found.ranked[0].candidate.step.low < found.ranked[0].candidate.step.high
    assert "tpu-v4 is left out: it has no pipe for the formats of the search; it has bf16, int8" in map(
        str, found.notes
    )
    with pytest.raises(WorkloadError, match="no device has a pipe for it; they have bf16, int8"):
        plan_training(hub.load("gpt2"), [Device.load("tpu-v4")], gpus=1, tokens="1B", batch=16, dtype="fp16")


@pytest.mark.parametrize(
    ("options", "is_noted"), [({"dp": 1, "zero": 1}, True), ({"dp": 1}, False), ({"zero": 1}, False)]
)
def test_zero_without_replicas_is_noted_as_in_an_estimate(options: dict[str, Any], is_noted: bool) -> None:
    found = planned(
        **options, tp=None if options.get("dp") else 1, recompute="none", micro_batch=1, sequence_parallel="off"
    )
    note = "zero is ignored: no replicas (dp=1) that could shard optimizer state"
    assert (note in map(str, found.notes)) is is_noted


def test_days_and_cost_follow_from_the_step() -> None:
    one = planned().ranked[0].candidate
    steps = 10e9 / (BATCH * SEQ)
    assert one.days.value == pytest.approx(steps * one.step.value / 86400)
    assert one.dollars == pytest.approx(2 * 4 * 24 * one.days.value)
    assert 0.2 < (one.mfu or 0) < 0.8


def test_the_best_row_of_each_device_is_shown_with_its_rank() -> None:
    one = planned().ranked[0].candidate

    def slower(device: str, factor: float) -> TrainingCandidate:
        return one._replace(device=device, step=Expected(*(factor * seconds for seconds in one.step)))

    candidates = [slower("a", 1), slower("a", 2), slower("a", 3), slower("b", 4), slower("b", 5), slower("c", 6)]
    found = [*ranked_training(candidates, 4, searches_unsharded=False)]
    assert [(each.rank, each.candidate.device) for each in found] == [(1, "a"), (2, "a"), (4, "b"), (6, "c")]
    assert found[2].reason.startswith("75% slower than ")
    tied = [*ranked_training([one, one, slower("b", 1.0000001)], 2, searches_unsharded=False)]
    assert [(each.rank, each.ties_with) for each in tied] == [(1, (3,)), (3, (1,))]


def test_a_note_states_that_the_wait_for_the_slowest_gpu_is_not_counted() -> None:
    """Only within a replica: replicas wait for the slowest of them in the expected time."""
    assert not [note for note in planned(dp=4).notes if "slowest" in str(note)]
    (note,) = (str(note) for note in planned(pp=4).notes if "slowest" in str(note))
    assert note.startswith("the wait for the slowest of the 4 GPUs of a replica is not counted: about 1.6% of a step")


def test_restrictions_hold() -> None:
    found = plan_training(
        hub.load("llama-3.2-1b"), [Device.load("a100")], gpus=4, tokens="1B", batch=32, seq=512, tp=2,
        recompute="full", sequence_parallel="on", micro_batch="2,4",
    )  # fmt: skip
    assert found.ranked
    for one in (each.candidate for each in found.ranked):
        assert (one.layout.tp, one.choices.recompute, one.choices.sequence_parallel) == (2, "full", "on")
        assert one.micro_batch in (2, 4)


def test_a_model_that_does_not_fit_names_the_layout_that_lacks_least() -> None:
    found = plan_training(hub.load("llama-3.1-70b"), [Device.load("a100")], gpus=2, tokens="1B", batch=8)
    assert not found.fits
    assert found.shortage is not None
    assert found.shortage.needed > found.shortage.usable
    assert any("does not fit: the nearest layout" in str(note) for note in found.notes)


@pytest.mark.parametrize(("text", "number"), [("15T", 15e12), ("300B", 3e11), (1e9, 1e9), ("2.5m", 2.5e6), ("7", 7)])
def test_numbers_of_tokens_have_letters_for_powers_of_thousand(text: float | str, number: float) -> None:
    assert number_of_tokens("tokens", text) == number


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"tokens": "0"}, "tokens: '0' is no number of tokens; try tokens=15T"),
        ({"recompute": "some"}, "recompute: unknown value 'some'"),
        ({"tp": 3}, "no layout of openai-community/gpt2-xl uses at most 4 GPUs with these values of tp"),
        ({"recompute": "selective"}, 'recompute="selective" changes nothing with flash attention'),
        ({"attention": "fast"}, "attention"),
        ({"vpp": 0}, "vpp"),
        ({"pp": 2, "vpp": 5}, "with these values of pp, vpp; tp × cp × pp × dp must be at most 4, dp × micro-batch"),
        ({"pp": 2, "vpp": 5}, "and vpp must divide the layers of a pipeline stage"),
        ({"batch": 3, "dp": 4}, "with these values of dp"),
        ({"cp": 3}, "cp=3 divides a sequence into 6 equal parts, but seq=1024 is no multiple of 6; try seq=1020"),
        ({"cp": 2, "attention": "eager"}, 'cp=2 needs a fused attention; try attention="flash"'),
        ({"seq": 0}, "seq is 0"),
        ({"kv": "fp8"}, "unknown option 'kv'"),
        (
            {"tp": 53, "gpus": 53},
            "uses at most 53 GPUs with these values of tp; tp × cp × pp × dp must be at most 53, dp × micro-",
        ),
        ({"dtype": "int8"}, 'dtype="int8": training in int8 is not modeled; try dtype="bf16" or dtype="fp8"'),
        ({"dtype": "fp4"}, 'dtype="fp4": training in fp4 is not modeled; try dtype="bf16" or dtype="nvfp4"'),
        ({"dtype": "fp15"}, "dtype: unknown value 'fp15'; did you mean 'fp16'"),
        ({"engine": "vllm"}, 'engine="vllm": vLLM does not train; try engine="torch" or engine="megatron"'),
        ({"launch": "8us"}, 'launch was removed; write engine="torch" engine_option="launch=8us"'),
        ({"dtype": "bf16,fp16"}, "dtype is 'bf16,fp16'; give one format such as bf16"),
    ],
)
def test_an_invalid_option_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(WorkloadError) as caught:
        planned(**options)
    assert said in str(caught.value)


def test_a_training_report_has_rows_and_a_document(tmp_path: Any) -> None:
    report = roofmodel.plan_training("gpt2", "a100", gpus=2, tokens="1B", batch=16, seq=512, price=1, recompute="none")
    document = report.to_dict()
    assert document["schema"] == "roofmodel.plan/1"
    assert document["workload"]["phase"] == "train"
    assert [one["rank"] for one in document["candidates"]] == list(range(1, len(document["candidates"]) + 1))
    assert len(report.to_frame()) == len(document["candidates"])
    assert report.save(tmp_path / "plan.csv").read_text().startswith("rank,hardware,tp,pp")


def test_a_search_ends_at_its_time_limit_and_says_so() -> None:
    asked: dict[str, Any] = {"gpus": 4, "tokens": "1B", "batch": 8, "seq": 64, "pp": 1}
    report = roofmodel.plan_training("gpt2", "a100", time_limit="1us", **asked).to_dict()
    assert report["complete"] is False
    assert report["candidates"]
    assert "the search ended after 1 µs" in report["warnings"][0]
    assert roofmodel.plan_training("gpt2", "a100", time_limit="600s", **asked).to_dict()["complete"] is True
