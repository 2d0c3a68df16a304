"""Training with replicas: time that each wrapper adds to a step, and communication that it overlaps."""

from dataclasses import replace
from math import hypot
from typing import Any

import pytest

from roofmodel.devices.device import Device
from roofmodel.errors import WorkloadError
from roofmodel.models import hub
from roofmodel.steps.estimate import estimate, totals
from roofmodel.steps.phase import PhaseEstimate
from roofmodel.steps.placed import NO_TIME, sum_of
from roofmodel.timing.collectives import slowest_of
from roofmodel.timing.timing import Expected, expect_elementwise

V100 = Device.load("v100")


def train(replicas: int = 1, model: str = "resnet-18", **options: Any) -> PhaseEstimate:
    settings = {"phase": "train", "batch": 8 * replicas, "dp": replicas, "dtype": "fp32", **options}
    return estimate(hub.load(model), V100, **settings).phases[0]


def test_one_replica_has_no_wrapper_unless_it_is_given() -> None:
    alone, wrapped = train(), train(data_parallel="ddp")
    assert alone.replicas.added.value == 0
    assert wrapped.replicas.copies.value > 0
    assert totals(wrapped)["expected_seconds"] == pytest.approx(
        alone.work_seconds.value + wrapped.replicas.copies.value
    )


def test_the_backward_pass_overlaps_part_of_the_exchange() -> None:
    hidden, exposed = totals(train(8)), totals(train(8, data_parallel="sequential"))
    sent = hidden["expected_communication_seconds"]
    assert 0 < hidden["expected_communication_exposed_seconds"] < sent
    assert exposed["expected_communication_exposed_seconds"] == exposed["expected_communication_seconds"]
    assert hidden["communication_exposed_seconds"] == 0  # the bound of the exchange is below that of the backward pass
    assert exposed["communication_exposed_seconds"] == 0 < exposed["communication_seconds"]  # a bound of every engine


@pytest.mark.parametrize("zero", [0, 1])
def test_only_the_computation_waits_for_the_slowest_replica(zero: int) -> None:
    step = train(8, model="gpt2", zero=zero, data_parallel="ddp")
    computed = sum_of(one for one in step.placed if not one.operator.collective)
    assert step.replicas.waiting.value == pytest.approx(slowest_of(8) * computed.value)


def test_an_overlapped_exchange_does_not_narrow_the_interval_of_the_kernels() -> None:
    step = train(8)
    kernels = sum_of(one for one in step.placed if not one.operator.collective)
    assert step.work_seconds.high - step.work_seconds.value >= kernels.high - kernels.value
    assert step.work_seconds.value - step.work_seconds.low >= kernels.value - kernels.low


def test_the_interval_of_a_sharded_step_adds_kernels_and_collectives_in_quadrature() -> None:
    step = estimate(hub.load("llama-2-7b-hf"), Device.load("a100"), phase="prefill", seq=512, tp=4).phases[0]
    kernels = sum_of(one for one in step.placed if not one.operator.collective)
    exchanges = sum_of(step.exchanges)
    widths = kernels.high - kernels.value, exchanges.high - exchanges.value
    assert sum_of(step.placed).high - sum_of(step.placed).value == pytest.approx(hypot(*widths))


def test_the_bound_does_not_depend_on_the_calibration() -> None:
    device = Device.load("a100")
    asked: dict[str, Any] = {"phase": "train", "batch": 8, "dp": 2, "pp": 2}  # also exchanges a tied table
    known, unknown = (
        estimate(hub.load("gpt2"), each, **asked).phases[0] for each in (device, replace(device, calibration=None))
    )
    assert unknown.expected is None
    assert unknown.hidden_bound == known.hidden_bound > 0
    assert unknown.bound_seconds == known.bound_seconds


def test_no_expected_time_is_below_its_bound_with_slow_links() -> None:
    slow = Device.load("v100-pcie-16gb")
    for wrapper in ("ddp", "dataparallel", "sequential"):
        found = estimate(
            hub.load("resnet-18"), slow, phase="train", batch=4, dp=4, dtype="fp32", data_parallel=wrapper
        ).phases[0]
        assert found.expected is None or found.expected.value >= found.bound_seconds


def test_one_process_launches_the_kernels_of_all_replicas() -> None:
    one, four = train(data_parallel="dataparallel"), train(4, data_parallel="dataparallel")
    assert four.launch.value == 4 * one.launch.value


def test_megatron_of_2021_exchanges_after_the_backward_pass() -> None:
    found = estimate(hub.load("gpt2"), Device.load("a100"), phase="train", batch=8, dp=2, engine="megatron@2021")
    assert found.workload.data_parallel == "sequential"
    assert found.phases[0].replicas.hidden == NO_TIME


LAYOUTS: list[dict[str, Any]] = [
    {"dp": 8}, {"dp": 8, "zero": 1}, {"tp": 4, "sequence_parallel": "on"},
    {"tp": 2, "pp": 2, "dp": 2, "zero": 1, "sequence_parallel": "on", "micro_batch": 1, "vpp": 2},
]  # fmt: skip


@pytest.mark.parametrize("layout", LAYOUTS)
def test_overlap_never_makes_a_step_slower(layout: dict[str, Any]) -> None:
    """`--overlap none` adds what is hidden; `--data-parallel sequential` that of gradients and weights only."""
    options: dict[str, Any] = {"phase": "train", "batch": 16, "seq": 2048, "dtype": "bf16", **layout}
    arch, device = hub.load("llama-3.2-1b"), Device.load("h100")
    overlapped, apart, sequential = (
        estimate(arch, device, engine="megatron", **options, **given).phases[0]
        for given in ({}, {"overlap": "none"}, {"data_parallel": "sequential"})
    )
    assert overlapped.expected.value < apart.expected.value
    assert overlapped.expected.value <= sequential.expected.value <= apart.expected.value
    assert overlapped.bound_seconds == apart.bound_seconds
    sent = totals(apart)["expected_communication_seconds"]
    assert totals(apart)["expected_communication_exposed_seconds"] == sent
    assert 0 < totals(overlapped)["expected_communication_exposed_seconds"] < sent


def with_sharded_sequence(seq: int, engine: str = "megatron", option: str | None = None) -> PhaseEstimate:
    """A training step of an 8B model on 4 tensor-parallel H100s."""
    return estimate(
        hub.load("llama-3.1-8b"), Device.load("h100"), phase="train", dtype="bf16", batch=2, seq=seq, tp=4,
        sequence_parallel="on", engine=engine, engine_option=option,
    ).phases[0]  # fmt: skip


def exchanged_in_layers(step: PhaseEstimate, *kinds: tuple[str, str]) -> Expected:
    """The time of the layers' collectives of these kinds: stage and collective."""
    own = [each for each in step.exchanges if each.operator.layers and each.operator.collective.name != "all_reduce"]
    return sum_of([each for each in own if (each.operator.stage, each.operator.collective.name) in kinds])


WITH_GEMMS = {
    "attention.all_gather": ["attention.q", "attention.k", "attention.v"],
    "attention.reduce_scatter": ["attention.output"],
    "mlp.all_gather": ["mlp.gate", "mlp.up"],
    "mlp.reduce_scatter": ["mlp.down"],
    "mlp.reduce_scatter.grad": ["mlp.down.grad_input"],
    "attention.reduce_scatter.grad": ["attention.output.grad_input"],
}
"""The GEMMs that wait for a collective, or that a collective waits for."""


def hidden_in_parts(step: PhaseEstimate, *collectives: str) -> float:
    """Three quarters of each of these collectives or of its GEMMs, whichever take less time."""
    seconds = {
        each.operator.name: each.operator.count * each.expected.value
        for each in step.placed if each.operator.stage in ("forward", "backward")
    }  # fmt: skip
    return 3 / 4 * sum(min(seconds[name], sum(seconds[gemm] for gemm in WITH_GEMMS[name])) for name in collectives)


BESIDE = [("recomputation", "all_gather"), ("backward", "reduce_scatter")]
"""Collectives that run beside a GEMM that does not need them: its gradients need the gathered input, and another GEMM
runs while its gradient is reduced."""


def test_each_collective_hides_at_most_its_gemms_but_for_one_of_four_parts() -> None:
    step = with_sharded_sequence(8192)
    hidden = hidden_in_parts(step, *WITH_GEMMS) + exchanged_in_layers(step, *BESIDE).value
    assert step.replicas.hidden.value == pytest.approx(hidden)


def test_symmetric_memory_hides_only_collectives_beside_a_gemm_and_sums_their_parts() -> None:
    """PyTorch's micro_pipeline_tp reduces no sums of GEMMs and gathers nothing for gradients of weights in parts. A
    received part of each of 4 GPUs is read, their sum written: 5/4 of 2 x 8192 x 4096 values in 2 bytes, 64 times."""
    step = with_sharded_sequence(8192, "torchtitan", "compile=async-tp")
    assert step.replicas.hidden.value == pytest.approx(hidden_in_parts(step, *WITH_GEMMS))
    part = with_sharded_sequence(2048, "torchtitan", "compile=async-tp")
    times = [{each.operator.name: each.expected.value for each in phase.placed} for phase in (step, part)]
    gemms = [name for names in WITH_GEMMS.values() for name in names]
    summed = expect_elementwise(5 / 4 * 2 * 8192 * 4096 * 2, Device.load("h100"), "bf16")
    assert summed is not None
    longer = 32 * sum(4 * times[1][name] - times[0][name] for name in gemms)
    assert step.replicas.contention.value == pytest.approx(longer + 64 * summed.value)


def test_gemms_take_longer_in_parts_and_without_the_multiprocessors_that_copy() -> None:
    """A part of 8192 tokens in four is a GEMM of a step with 2048; copies take 16 of 132 SMs."""
    step, part = with_sharded_sequence(8192), with_sharded_sequence(2048)
    times = [{each.operator.name: each.expected.value for each in phase.placed} for phase in (step, part)]
    forward = [
        each.operator for each in step.placed
        if each.operator.kind == "gemm" and each.operator.layers and each.operator.stage == "forward"
    ]  # fmt: skip
    assert {op.name for op in forward} > {"attention.output", "mlp.down", "mlp.up", "attention.k"}
    names = [*(op.name for op in forward), "attention.output.grad_input", "mlp.down.grad_input"]
    in_parts = sum(forward[0].count * (4 * times[1][name] - times[0][name]) for name in names)
    copied = exchanged_in_layers(step, *BESIDE).value
    copied += hidden_in_parts(step, "attention.reduce_scatter", "mlp.reduce_scatter")
    assert 0 < in_parts < step.replicas.hidden.value
    assert step.replicas.contention.value == pytest.approx(in_parts + 16 / 132 * copied)


def test_the_parts_of_short_gemms_cost_at_most_what_they_hide() -> None:
    """256 tokens in eight parts: their GEMMs take as long as those of all tokens."""
    replicas = estimate(
        hub.load("llama-3.2-1b"), Device.load("h100"), phase="train", dtype="bf16", batch=1, seq=256, tp=8,
        sequence_parallel="on", engine="megatron",
    ).phases[0].replicas  # fmt: skip
    assert replicas.contention == replicas.hidden != NO_TIME


def test_gradients_in_fp32_take_twice_the_bytes_on_the_links() -> None:
    step = {
        engine: estimate(
            hub.load("llama-3.1-8b"), Device.load("h100"), phase="train", dtype="bf16", batch=8, dp=8, zero=1,
            engine=engine, data_parallel="sequential",
        ).phases[0]
        for engine in ("torch", "megatron")
    }  # fmt: skip
    narrow, wide = (
        next(each for each in phase.placed if each.operator.name == "gradients.reduce_scatter")
        for phase in step.values()
    )
    assert wide.placement == narrow.placement  # counts and bounds are those of every engine
    assert wide.expected.value == pytest.approx(2 * narrow.expected.value, rel=0.01)  # 16 GB: latency is negligible


def test_dataparallel_copies_each_weight_and_each_gradient_into_a_chunk_and_back() -> None:
    """ResNet-18: 20 convolutions, 20 batch norms with a weight and a bias, and a classifier with both."""
    tensors, parameters = 20 + 2 * 20 + 2, 11_689_512
    copy = expect_elementwise(2 * 4 * parameters / tensors, V100, "fp32")  # reads and writes fp32
    assert copy is not None
    alone = train(data_parallel="dataparallel").replicas  # no outputs of other replicas
    assert alone.copies.value == pytest.approx(2 * 2 * tensors * copy.value)


def test_dataparallel_needs_whole_replicas() -> None:
    with pytest.raises(WorkloadError, match="replicates a model that is on one GPU"):
        estimate(
            hub.load("gpt2"), Device.load("a100"), phase="train", batch=8, dp=2, tp=2, data_parallel="dataparallel"
        )


SLOWEST_NOTE = (
    "the wait for the slowest of {} is not counted: about {:.1%} of a step if GPUs differ in speed as on clusters of "
    "V100"
)


@pytest.mark.parametrize(
    ("options", "gpus"),
    [
        ({"dp": 2, "pp": 4, "engine": "torch"}, "the 4 GPUs of a replica"),
        ({"dp": 2, "pp": 4, "engine": "megatron"}, "the 4 GPUs of a replica"),
        ({"pp": 8}, "8 GPUs"),
    ],
)
def test_a_note_states_where_the_wait_for_the_slowest_gpu_is_not_counted(options: dict[str, Any], gpus: str) -> None:
    found = estimate(hub.load("gpt2"), Device.load("a100"), phase="train", batch=16, **options)
    share = slowest_of(4 if "4" in gpus else 8)
    assert [str(note) for note in found.notes if "slowest" in str(note)] == [SLOWEST_NOTE.format(gpus, share)]


@pytest.mark.parametrize(
    "options", [{}, {"dp": 8, "engine": "torch"}, {"dp": 8, "zero": 1}, {"dp": 8, "data_parallel": "sequential"}]
)
def test_no_such_note_where_the_wait_is_counted(options: dict[str, Any]) -> None:
    found = estimate(hub.load("gpt2"), Device.load("a100"), phase="train", batch=16, **options)
    assert bool(found.phases[0].replicas.waiting.value) == ("dp" in options)
    assert not any("slowest" in str(note) for note in found.notes)
