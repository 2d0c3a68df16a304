"""TTFT and TPOT of generation, and the totals of the stages of generation and of a training step.

Pipeline stages: times and memory compared with a simulated schedule, and derived by hand.
"""

from __future__ import annotations

import re
from collections import Counter
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import roofmodel
from roofmodel import WorkloadError
from roofmodel.counting import phases
from roofmodel.counting.training.dropout import with_dropout
from roofmodel.counting.training.share import TrainingShare
from roofmodel.counting.training.step import kept_bytes, kept_tensors
from roofmodel.counting.workload import Parallel, Workload
from roofmodel.devices.device import Device
from roofmodel.engines.engine import Engine
from roofmodel.estimate.answer import describe_uncached
from roofmodel.models import hub
from roofmodel.models.config import architecture
from roofmodel.options.values import Phase
from roofmodel.steps.estimate import estimate
from roofmodel.steps.options import workload
from roofmodel.steps.phase import estimates_by_stage, microbatch_time
from roofmodel.steps.placed import NO_TIME, placed, total_seconds

GENERATION: list[dict[str, Any]] = [
    {"seq": 512, "engine": "torch"},
    {"seq": 512, "engine": "vllm"},
    {"seq": 900, "batch": 32, "engine": "torch"},  # a kernel-bound prefill, launch-bound decodes
    {"seq": 512, "batch": 8, "tp": 2, "pp": 2},
    {"seq": 512, "batch": 8, "pp": 2, "micro_batch": 2, "engine": "vllm"},
]
TRAINING: list[dict[str, Any]] = [
    {"seq": 512, "batch": 16},
    {"seq": 512, "batch": 16, "engine": "torch", "engine_option": "launch=graph", "recompute": "full"},
    {"seq": 512, "batch": 16, "pp": 2, "dp": 2, "engine": "torch", "engine_option": "launch=graph"},
]
COUNTS = ("matmul_flops", "vector_flops", "bytes", "weight_bytes", "kv_cache_bytes", "link_bytes", "kernels")


def phase_of(phase: str, **options: Any) -> dict[str, Any]:
    (found,) = roofmodel.estimate("gpt2", "a100", phase=phase, **options).to_dict()["phases"]
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("options", GENERATION)
@pytest.mark.parametrize("new_tokens", [1, 100])
def test_ttft_and_the_tpot_of_each_decode_add_up_to_generation(options: dict[str, Any], new_tokens: int) -> None:
    totals = phase_of("generate", new_tokens=new_tokens, **options)["totals"]
    for kind in ("bound_", ""):  # the prefill gives the first token: TPOT = (latency - TTFT) / decodes
        latency = totals["bound_seconds" if kind else "e2e_seconds"]
        assert totals[f"{kind}ttft_seconds"] + new_tokens * totals[f"{kind}tpot_seconds"] == pytest.approx(latency)


@pytest.mark.parametrize("options", GENERATION)
def test_ttft_is_the_time_of_a_prefill_and_tpot_that_of_a_decode(options: dict[str, Any]) -> None:
    totals = phase_of("generate", new_tokens=1, **options)["totals"]
    prefill, decode = (phase_of(phase, **options)["totals"] for phase in ("prefill", "decode"))
    outside = Engine.load(options.get("engine", "vllm")).host.outside_steps(options["seq"])
    assert totals["ttft_seconds"] == pytest.approx(prefill["expected_seconds"] + outside)
    assert totals["tpot_seconds"] == pytest.approx(decode["expected_seconds"])
    assert totals["bound_ttft_seconds"] == pytest.approx(prefill["bound_seconds"])
    assert totals["bound_tpot_seconds"] == pytest.approx(decode["bound_seconds"])


@pytest.mark.parametrize(
    ("phase", "options", "names"),
    [
        *(("generate", options, ["prefill", "decodes"]) for options in GENERATION),
        *(("train", options, ["forward", "backward", "optimizer"]) for options in TRAINING),
    ],
)
def test_the_stages_of_a_phase_add_up_to_its_totals(phase: str, options: dict[str, Any], names: list[str]) -> None:
    found = phase_of(phase, **options)
    totals, stages = found["totals"], found["stages"]
    assert [name for name in stages if name != "recomputation"] == names
    for key in COUNTS:
        assert sum(stage[key] for stage in stages.values()) == totals[key]
    bound = sum(stage["bound_seconds"] for stage in stages.values()) + totals["bubble_seconds"] * (phase == "train")
    if phase == "train":  # the collectives of a stage may overlap with operators of another one
        assert bound >= totals["bound_seconds"] * (1 - 1e-12)
    else:
        assert bound == pytest.approx(totals["bound_seconds"])
    if phase == "generate" or "engine_option" in options:
        waits = totals["expected_bubble_seconds"] if phase == "train" else 0
        if totals["expected_communication_seconds"]:
            waits -= totals["expected_communication_seconds"] - totals["expected_communication_exposed_seconds"]
        waits += totals["expected_replica_seconds"]
        for key in ("expected_seconds", "expected_low_seconds", "expected_high_seconds"):
            if key == "expected_seconds" or not waits:
                assert sum(stage[key] for stage in stages.values()) + waits == pytest.approx(totals[key])


def test_each_stage_takes_at_least_its_kernels_and_its_launches() -> None:
    """A step may take less than the sum of its stages: the host launches while the GPU is in an earlier stage."""
    found = phase_of("train", seq=128)
    totals, stages = found["totals"], found["stages"]
    assert stages["forward"]["host_bound"]
    assert stages["forward"]["expected_seconds"] == pytest.approx(40e-6 * stages["forward"]["kernels"])
    assert not stages["optimizer"]["host_bound"]  # one kernel, which updates 124 million parameters
    (update,) = (op for op in found["ops"] if op["stage"] == "optimizer")
    assert stages["optimizer"]["expected_seconds"] == pytest.approx(update["expected_seconds"])
    for stage in stages.values():
        assert stage["expected_seconds"] >= stage["bound_seconds"]
        assert stage["expected_low_seconds"] <= stage["expected_seconds"] <= stage["expected_high_seconds"]
    assert sum(stage["expected_seconds"] for stage in stages.values()) >= totals["expected_seconds"]


def test_decodes_can_be_launch_bound_after_a_prefill_that_is_not() -> None:
    report = roofmodel.estimate("gpt2", "a100", phase="generate", seq=900, batch=32, new_tokens=2, engine="torch")
    totals = report.totals["generate"]
    stages = report.to_dict()["phases"][0]["stages"]
    assert [stage["host_bound"] for stage in stages.values()] == [False, True]
    assert totals["host_bound"]
    launches = 40e-6 * stages["decodes"]["kernels"]
    assert totals["expected_seconds"] == pytest.approx(stages["prefill"]["expected_seconds"] + launches)
    (note,) = (note for note in report.notes if "launch-bound" in note)
    assert note.startswith(f"decodes are launch-bound: {stages['decodes']['kernels']} operator launches at 40 µs")


def test_only_phases_with_stages_have_them_in_the_document() -> None:
    for phase in ("prefill", "decode", "forward"):
        found = phase_of(phase, seq=64)
        assert "stages" not in found
        assert "ttft_seconds" not in found["totals"]


def test_without_calibration_ttft_and_stages_have_no_expected_time(tmp_path: Path) -> None:
    file = tmp_path / "toy.yaml"
    file.write_text("name: Toy\npipes:\n  fp16: {peak: 1 TFLOP/s}\nmemory:\n  dram: {bandwidth: 10 GB/s}\n")
    (found,) = roofmodel.estimate("gpt2", str(file), phase="generate", seq=64).to_dict()["phases"]
    assert found["totals"]["ttft_seconds"] is found["totals"]["tpot_seconds"] is None
    assert found["totals"]["bound_ttft_seconds"] > 0
    for stage in found["stages"].values():
        assert stage["expected_seconds"] is stage["expected_low_seconds"] is stage["host_bound"] is None


@pytest.mark.parametrize("options", [{}, {"engine": "vllm", "batch": 8}, {"tp": 2, "pp": 2, "batch": 4}])
def test_tpot_lies_between_the_first_and_the_last_decode(options: dict[str, Any]) -> None:
    """The decodes have the times of estimates with these contexts. The users share the tokens of all GPUs."""

    def phase_of(phase: str, **more: Any) -> dict[str, Any]:
        (found,) = roofmodel.estimate("llama-3.2-1b", "h100", phase=phase, **options, **more).to_dict()["phases"]
        return found

    phase = phase_of("generate", seq=512, new_tokens=1024)
    totals = phase["totals"]
    for kind in ("", "bound_"):
        first, mean, last = (totals[f"{kind}tpot{which}_seconds"] for which in ("_first", "", "_last"))
        assert first <= 1.000001 * mean <= 1.000002 * last
        assert kind == "" or first < mean < last  # expected decodes may be launch-bound
        for which, context in (("first", 512), ("last", 512 + 1023)):
            decode_seconds = phase_of("decode", context=context)["totals"][f"{kind or 'expected_'}seconds"]
            assert totals[f"{kind}tpot_{which}_seconds"] == pytest.approx(decode_seconds)
        outside = 0 if kind else Engine.load("vllm").host.outside_steps(512)
        assert totals[f"{kind}e2e_seconds"] == pytest.approx(totals[f"{kind or 'expected_'}seconds"] + outside)
        gpus = options.get("tp", 1) * options.get("pp", 1)
        rate = totals[f"{kind}tokens_per_second"]
        assert totals[f"{kind}tokens_per_second_per_gpu"] == pytest.approx(rate / gpus)
        assert totals[f"{kind}tokens_per_second_per_user"] == pytest.approx(1 / mean)


A100 = Device.load("a100")
GPT = {
    "model_type": "gpt2", "n_embd": 8, "n_layer": 8, "n_head": 4, "n_inner": 12, "vocab_size": 11, "n_positions": 16,
}  # fmt: skip


class Task(NamedTuple):
    """Forward or backward pass of one model chunk of a stage for one microbatch."""

    forward: bool
    chunk: int
    microbatch: int


def schedule(stage: int, stages: int, chunks: int, microbatches: int) -> list[Task]:
    """The tasks of a stage in Megatron-LM's schedules: 1F1B, or interleaved in groups of `stages` microbatches.

    After the warm-up of forward passes, forward and backward passes alternate.
    """
    p, v, m = stages, chunks, microbatches
    warm_up = min(m, p - 1 - stage) if v == 1 else min(m * v, 2 * (p - 1 - stage) + (v - 1) * p)

    def task(n: int, forward: bool) -> Task:
        if v == 1:
            return Task(forward, 0, n)
        chunk = n // p % v
        return Task(forward, chunk if forward else v - 1 - chunk, n // (p * v) * p + n % p)

    tasks = [task(n, True) for n in range(warm_up)]
    for n in range(m * v - warm_up):
        tasks += [task(warm_up + n, True), task(n, False)]
    return tasks + [task(n, False) for n in range(m * v - warm_up, m * v)]


def simulated(
    stages: int, chunks: int, microbatches: int, forward: Fraction, backward: Fraction
) -> tuple[Fraction, list[Counter[int]]]:
    """The end of the last task, and per stage the microbatches in flight of each chunk when their sum is largest.

    `forward` and `backward` are the times of all chunks of a stage for one microbatch.
    """
    queues = [schedule(stage, stages, chunks, microbatches) for stage in range(stages)]
    ended: dict[tuple[int, Task], Fraction] = {}
    clocks, in_flight = [Fraction(0)] * stages, [Counter[int]() for _ in range(stages)]
    largest: list[Counter[int]] = [Counter() for _ in range(stages)]
    while any(queues):
        advanced = False
        for stage, queue in enumerate(queues):
            needs = predecessor(stage, queue[0], stages, chunks) if queue else None
            if not queue or (needs and needs not in ended):
                continue
            task = queue.pop(0)
            start = max(clocks[stage], ended[needs] if needs else Fraction(0))
            clocks[stage] = ended[stage, task] = start + (forward if task.forward else backward) / chunks
            in_flight[stage][task.chunk] += 1 if task.forward else -1
            if in_flight[stage].total() > largest[stage].total():
                largest[stage] = in_flight[stage].copy()
            advanced = True
        assert advanced, "deadlock"
    return max(clocks), largest


def predecessor(stage: int, task: Task, stages: int, chunks: int) -> tuple[int, Task] | None:
    """The stage and the task that must end before this task starts."""
    if task.forward:
        if stage > 0:
            return stage - 1, task
        return (stages - 1, task._replace(chunk=task.chunk - 1)) if task.chunk else None
    if stage < stages - 1:
        return stage + 1, task
    return (0, task._replace(chunk=task.chunk + 1)) if task.chunk < chunks - 1 else (stage, task._replace(forward=True))


@settings(deadline=None, max_examples=60)
@given(p=st.integers(2, 6), v=st.integers(1, 3), groups=st.integers(1, 4), ratio=st.integers(1, 3))
def test_time_and_memory_of_a_step_equal_a_simulation_of_the_schedule(p: int, v: int, groups: int, ratio: int) -> None:
    m = p * groups
    duration, in_flight = simulated(p, v, m, Fraction(1), Fraction(ratio))
    t = 1 + ratio
    assert duration == m * t + Fraction((p - 1) * t, v)  # m t + (T - t) / v, where T = p t
    arch = architecture(GPT | {"n_layer": p * v}, "x", "x")
    for stage, expected in enumerate(in_flight):
        work = Workload(("train",), m, 4, micro_batch=1, parallel=Parallel(pp=p, vpp=v, stage=stage))
        step = work.steps()[0]
        chunks = list(TrainingShare(arch, step).microbatches_in_flight(step))
        assert [chunk.microbatches for chunk in chunks] == [expected[chunk] for chunk in range(v)]


@pytest.mark.parametrize(("p", "v", "m"), [(4, 1, 8), (4, 2, 8), (2, 4, 2)])
def test_the_bubble_equals_narayanan(p: int, v: int, m: int) -> None:
    """arXiv 2104.04473, section 2.2: (p - 1) / m of the ideal time; with v interleaved chunks, 1 / v of that.

    The stages of gpt2-xl also differ by head and embedding, which are added separately.
    """
    found = estimate(
        hub.load("gpt2-xl"), A100, phase="train", batch=m, pp=p, vpp=v, engine="torch", engine_option="launch=graph"
    )
    (phase,) = found.phases
    layers = sum(p.seconds for p in phase.placed if p.operator.layers)
    outside = estimate(
        hub.load("gpt2-xl"), A100, phase="train", batch=m, micro_batch=1, engine="torch", engine_option="launch=graph"
    ).phases[0]
    names_in_phase = {p.operator.name for p in phase.placed if not p.operator.layers}
    missing = sum(  # operators outside the layers of other stages, in m microbatches: the embedding of the first stage
        p.seconds for p in outside.placed if not p.operator.layers and p.operator.name not in names_in_phase
    )
    sends = [p for p in phase.placed if p.operator.name.startswith("stage.")]
    hops = 2 * (p * v - 1)  # forward and backward
    here = sum(each.operator.count for each in sends) / m
    each = sends[0].placement.bound_seconds
    assert phase.idle.bound * v == pytest.approx((p - 1) / m * layers + missing / m + (hops - here) * each)


def test_decodes_need_one_microbatch_per_stage_to_keep_stages_busy() -> None:
    llama = hub.load("Meta-Llama-3-8B")
    graph: dict[str, Any] = {"engine": "torch", "engine_option": "launch=graph"}  # without a host
    one, several, many = (
        estimate(llama, A100, phase="decode", batch=batch, pp=4, micro_batch=4, **graph).phases[0]
        for batch in (4, 12, 64)
    )
    assert several.expected == pytest.approx(
        one.expected, rel=1e-12
    )  # three microbatches end before the next token of the first
    assert many.idle.bound == 0
    assert many.idle.expected == NO_TIME
    assert many.bound_seconds == total_seconds(many.placed)
    alone = estimate(llama, A100, phase="decode", batch=4, **graph).phases[0]
    hops = 3 * (4 * 4096 * 2) / 300e9  # 4 rows of the hidden size, in 16 bits
    # one microbatch takes the time of one GPU, plus three transfers
    assert one.bound_seconds == pytest.approx(alone.bound_seconds + hops)


def test_the_time_of_generation_is_that_of_its_prefill_and_decodes() -> None:
    llama, options = hub.load("Meta-Llama-3-8B"), {"batch": 8, "pp": 4, "micro_batch": 2, "engine": "vllm"}
    whole = estimate(llama, A100, phase="generate", seq=64, new_tokens=1, **options).phases[0]
    prefill = estimate(llama, A100, phase="prefill", seq=64, **options).phases[0]
    decode = estimate(llama, A100, phase="decode", context=64, **options).phases[0]
    assert whole.bound_seconds == pytest.approx(prefill.bound_seconds + decode.bound_seconds)


def test_without_a_cache_a_pass_ends_in_all_stages_before_the_next_one_starts() -> None:
    llama, options = hub.load("Meta-Llama-3-8B"), {"phase": "generate", "batch": 4, "seq": 64, "new_tokens": 2}
    alone = estimate(llama, A100, **options).phases[0].uncached
    one = estimate(llama, A100, pp=2, **options).phases[0]
    hops = 4 * (64 + 65 + 66) * 4096 * 2 / 300e9  # rows of all tokens in three passes, in 16 bits
    assert alone is not None
    assert one.uncached is not None
    assert one.uncached.bound_seconds == pytest.approx(alone.bound_seconds + hops)
    times = one.uncached.bound_seconds / one.bound_seconds
    assert f"{times:.3g} × the bound" in str(
        describe_uncached(one)
    )  # relative to the displayed time, which includes waiting
    many = estimate(llama, A100, pp=2, micro_batch=1, **options).phases[0]
    assert many.uncached is not None
    found = [
        placed(phases.operators_without_cache(llama, step), A100, "fp16")
        for _, step in phases.distinct_stages(llama, many.step)
    ]
    assert many.uncached.bound_seconds == max(map(total_seconds, found))  # four microbatches keep two stages busy


def test_rates_count_the_whole_batch() -> None:
    found = roofmodel.estimate(
        "gpt2-xl", "a100", phase="train", batch=32, dp=2, pp=4, micro_batch=2, engine="torch"
    ).to_dict()
    (phase,), work = found["phases"], found["workload"]
    assert (phase["microbatches"], work["micro_batch"], work["pp"], work["vpp"]) == (8, 2, 4, 1)
    totals = phase["totals"]
    assert totals["bound_tokens_per_second"] == pytest.approx(32 * 1024 / totals["bound_seconds"])
    busy = sum(op["count"] * op["bound_seconds"] for op in phase["ops"])
    hidden = (
        totals["communication_seconds"] - totals["communication_exposed_seconds"]
    )  # exchange of gradients between two replicas
    assert 0 < hidden < busy
    assert totals["bound_seconds"] == pytest.approx(busy + totals["bubble_seconds"] - hidden)


# --- Memory ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("v", [1, 3])
def test_the_first_stages_activation_memory_equals_the_paper(v: int) -> None:
    """Korthikanti et al., arXiv 2205.05198, section 4.2.3: the activations of L layers, times 1 + (p - 1) / (p v) under
    the interleaved schedule. Section 4.3: the dropout mask of the embedding for each microbatch in flight, which are p,
    and p - 1 more of the first chunk under the interleaved schedule."""
    arch, p = hub.load("gpt2-xl"), 4
    work = Workload(("train",), 64, 1024, micro_batch=1, parallel=Parallel(pp=p, vpp=v))
    step = work.steps()[0]
    one_gpu = work._replace(parallel=Parallel(), batch=1).steps()[0]
    # one GPU with all layers, without activations stored for embedding, final norm and logits
    mask = 1024 * 1600
    outside = mask + 2 * 2 * 1024 * 1600
    forward = with_dropout(phases.training_step(arch, one_gpu).forward, arch.code.dropout)
    all_layers = kept_bytes(kept_tensors(forward), "none")[0] - outside
    interleaved = Fraction(p - 1, p * v) if v > 1 else 0
    first_stage = next(need for _, need in phases.memory_by_pass(arch, step, 0))
    assert first_stage.kept == all_layers * (1 + interleaved) + mask * (p if v == 1 else 2 * p - 1)
    assert phases.peak_memory(arch, work).total >= first_stage.total


def test_weights_and_caches_are_those_of_the_stage_with_the_most_memory() -> None:
    llama = hub.load("Meta-Llama-3-8B")
    found = estimate(llama, A100, phase="decode", batch=8, seq=1000, pp=4, micro_batch=2)
    layer = 2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336 + 2 * 4096
    assert found.memory.weights == 2 * (8 * layer + 128256 * 4096 + 4096)  # the last stage, with head and final norm
    assert found.memory.kv_cache == 8 * (2 * 1001 * 1024) * 8 * 2  # 8 layers, all 8 sequences
    assert found.parameters == 8_030_261_248


# --- Refused options -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "options", "message"),
    [
        ("gpt2-xl", {"pp": 49}, "48 layers, fewer than 49 stages; at most pp=48 works"),
        ("gpt2-xl", {"pp": 8, "vpp": 7, "phase": "train", "batch": 8}, "at most pp=6 vpp=7 works"),
        ("gpt2-xl", {"pp": 4, "vpp": 2, "phase": "train", "batch": 6}, "pp=4 vpp=2: batch=6 counts the sequences"),
        (
            "gpt2-xl",
            {"dp": 2, "micro_batch": 3, "batch": 8},
            "dp=2 micro_batch=3: batch=8 counts the sequences of all replicas",
        ),
        ("flan-t5-base", {"pp": 2}, "encoder-decoder"),
        ("albert-base-v2", {"pp": 2}, "share their parameters; try pp=1"),
        ("resnet-50", {"pp": 2}, "no transformer layers"),
    ],
)
def test_invalid_pipeline_stages_are_refused_with_alternatives(
    model: str, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(WorkloadError) as caught:
        estimate(hub.load(model), A100, **options)
    assert message in str(caught.value)


def test_model_chunks_are_ignored_with_a_note_without_interleaving() -> None:
    notes = [*map(str, estimate(hub.load("gpt2-xl"), A100, phase="decode", pp=2, vpp=2).notes)]
    assert "vpp is ignored: only training interleaves model chunks" in notes


def test_a_schedule_is_that_of_its_model_parts() -> None:
    """1F1B idles for p - 1 of m microbatches, and with v = 3 parts per stage for a third of this (arXiv 2104.04473,
    section 2.2); gpt2-xl has 48 layers."""
    idle, share = {}, {}
    for name, parts in (("1f1b", 1), ("interleaved", 3)):
        options: dict[str, Any] = {"phase": "train", "batch": 8, "pp": 4, "vpp": parts, "engine": "torch"}
        report = roofmodel.estimate("gpt2-xl", "a100", **options, schedule=name)
        assert report.to_dict() == roofmodel.estimate("gpt2-xl", "a100", **options).to_dict()
        assert report.to_dict()["workload"]["schedule"] == name
        idle[name] = report.totals["train"]["bubble_seconds"]
        share[name] = idle[name] / report.totals["train"]["bound_seconds"]
    assert share["1f1b"] == pytest.approx(3 / (8 + 3), rel=0.2)  # the stage with the head takes longer than the others
    assert idle["1f1b"] == pytest.approx(3 * idle["interleaved"], rel=0.05)  # which sends three times as often


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"schedule": "interleaved"}, 'schedule="interleaved" needs several model parts per stage; try vpp=2'),
        ({"schedule": "1f1b", "vpp": 2}, 'but vpp=2 is given; try vpp=1 or schedule="interleaved"'),
        ({"schedule": "zero-bubble"}, "schedule: unknown value 'zero-bubble'"),
    ],
)
def test_a_schedule_that_contradicts_the_model_parts_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(WorkloadError) as caught:
        estimate(hub.load("gpt2"), A100, phase="train", pp=2, batch=4, **options)
    assert message in str(caught.value)


def test_a_schedule_without_a_pipeline_is_ignored_with_a_note() -> None:
    for options, why in (({"phase": "train"}, "there is one stage"), ({"pp": 2}, "only training has a schedule")):
        found = estimate(hub.load("gpt2"), A100, schedule="interleaved", **options)
        assert any(f"schedule is ignored: {why}" in str(note) for note in found.notes)


def test_rows_of_a_sweep_describe_the_slowest_stage() -> None:
    found = roofmodel.sweep(
        "gpt2-xl", "a100", pp=[1, 5], vpp=[1, 2], batch=[4, 20, 40], seq=[16, 1024], phase="train", micro_batch=2,
        engine="torch",
        engine_option="launch=graph",
    )  # fmt: skip
    table = found.to_frame().set_index(["pp", "vpp", "batch", "seq"])
    assert len(table) == (1 + 2) * 3 * 2  # one stage has no interleaved chunks
    arch = hub.load("gpt2-xl")
    for (pp, vpp, batch, seq), row in table.iterrows():
        if pp == 5 and vpp == 2 and batch == 4:
            assert "cannot be sharded evenly" in row["note"]
            continue
        one = estimate(
            arch,
            A100,
            phase="train",
            pp=pp,
            vpp=vpp,
            batch=batch,
            seq=seq,
            micro_batch=2,
            engine="torch",
            engine_option="launch=graph",
        )
        (phase,) = one.phases
        assert row["bound_seconds"] == pytest.approx(phase.bound_seconds, rel=1e-12)
        assert row["expected_seconds"] == pytest.approx(phase.expected.value, rel=1e-12)
        assert row["bubble_seconds"] == pytest.approx(phase.idle.bound, rel=1e-9, abs=1e-18)
        assert row["memory_total"] == one.memory.total


@pytest.mark.parametrize("phase", ["prefill", "decode", "generate", "train"])
@pytest.mark.parametrize("model", ["distilgpt2", "gemma-3-1b-pt", "deepseek-v2-lite"])
def test_the_engine_changes_no_flops_bytes_and_bounds_of_a_pipeline(model: str, phase: Phase) -> None:
    """Their vocabularies or experts make a stage slow that is not the slowest one where the host launches kernels."""
    arch = hub.load(model)
    engines = ("megatron", "torch") if phase == "train" else ("vllm", "sglang", "megatron", "torch")
    for pp in (2, 3):
        found = [estimate(arch, A100, phase=phase, batch=8, pp=pp, engine=engine).phases[0] for engine in engines]
        assert len({(each.step.parallel.stage, each.cost, each.bound_seconds) for each in found}) == 1


@pytest.mark.parametrize("engine", ["vllm", "torch"])
@pytest.mark.parametrize("phase", ["prefill", "decode"])
@pytest.mark.parametrize("model", ["distilgpt2", "gemma-3-1b-pt", "deepseek-v2-lite"])
def test_a_step_takes_at_least_the_time_of_each_pipeline_stage(model: str, phase: Phase, engine: str) -> None:
    """Also of those whose bound is not the longest. With many microbatches the slowest stage takes most of the step."""
    arch, options = hub.load(model), {"phase": phase, "batch": 32, "pp": 3, "micro_batch": 1, "engine": engine}
    step = workload(arch, **options)[0].steps()[0]
    stages = estimates_by_stage(arch, A100, step, Engine.load(engine))
    busy = [stage.busy.value for stage in stages if stage.busy]
    assert len(busy) == 3
    for stage in stages:
        assert stage.expected
        assert max(busy) * (1 - 1e-9) <= stage.expected.value <= max(busy) * (1 + 2 / 32) * (1 + 1e-9)


@pytest.mark.parametrize("phase", ["prefill", "decode"])
def test_memory_of_a_sweep_is_that_of_the_stage_with_the_most_memory(phase: str) -> None:
    found = roofmodel.sweep("gpt2-xl", "a100", phase=phase, pp=[1, 2, 5], batch=[64], seq=[512, 1024], logits="all")
    for _, row in found.to_frame().iterrows():
        sizes = {name: int(row[name]) for name in ("pp", "batch", "seq")}
        one = estimate(hub.load("gpt2-xl"), A100, phase=phase, logits="all", **sizes)
        assert row["memory_activations"] == one.memory.activations  # in a prefill, the logits of the last stage
        assert row["memory_total"] == one.memory.total


def test_the_bubble_of_a_stage_is_derived() -> None:
    options: dict[str, Any] = {"phase": "train", "batch": 8, "pp": 4, "vpp": 2}
    text = roofmodel.explain("gpt2-xl", "a100", **options).to_markdown()
    all_stages, one_stage = map(float, re.findall(r"\(([0-9.]+) ms - ([0-9.]+) ms\) / 2 parts", text)[0])
    (phase,) = estimate(hub.load("gpt2-xl"), A100, **options).phases
    assert (all_stages - one_stage) / 2 == pytest.approx(1e3 * phase.idle.bound, rel=1e-3)
    last = ("gradients.tied_all_reduce", "optimizer.step")  # once per step, for any number of microbatches
    each = [placed for placed in phase.placed if placed.operator.name not in last]
    assert one_stage == pytest.approx(
        1e3 * sum(placed.seconds for placed in each) / 8, rel=1e-3
    )  # of eight microbatches


def test_stages_take_as_long_as_their_layers_where_collectives_overlap() -> None:
    """Four stages add sends to the layers of one: 8192 x 4096 x 2 bytes forward and backward, at 3 boundaries."""
    arch, device = hub.load("llama-3.1-70b"), Device.load("h100")
    options: dict[str, Any] = {"phase": "train", "batch": 64, "micro_batch": 1, "seq": 4096, "dtype": "bf16", "tp": 8}
    latency = []
    for pp in (1, 4):
        work, _ = workload(arch, engine="megatron", sequence_parallel="on", pp=pp, **options)
        (step,) = work.steps()
        staged = estimates_by_stage(arch, device, step, work.engine)
        assert staged[0].replicas.saved_in_layers.value > 0
        latency.append(microbatch_time(staged[0]) if pp == 1 else staged[0].stage_times[0][2])
    whole, through_stages = (each.expected.value for each in latency if each.expected)
    assert whole < through_stages < 1.01 * whole
