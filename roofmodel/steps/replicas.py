"""What data-parallel training changes in the expected time of a step, by kind of wrapper.

`ddp`: PyTorch's DistributedDataParallel. Each gradient is copied into a bucket, which is divided by the number of
replicas, and back: also on one GPU. Before each forward pass, the buffers of batch norms are broadcast as one tensor;
the GPU waits while the host slices it and copies each buffer. The gradients of the last microbatch are exchanged
during its backward pass (`timing/collectives.py`).

`dataparallel`: torch.nn.DataParallel. One process broadcasts the weights from the first GPU, runs all replicas in
threads that share one interpreter, gathers the outputs and sums the gradients on the first GPU. Nothing overlaps. The
scattered inputs are not counted.

`sequential`: the gradients are exchanged after the backward pass, in the format in which the engine sums them. What the
engine overlaps is in `overlap.py`.

`sharded` (ZeRO 2 and 3): exchanges are operators of the layers. Gathered weights are copied out of the buffer that
receives them, and gradients into the one that is reduced (FSDP2's split_with_sizes_copy and chunk_cat).

In every kind, replicas wait for the slowest of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from roofmodel.counting.tensors import FORMATS
from roofmodel.counting.training.sharding import PREFIX
from roofmodel.counting.workload import Step
from roofmodel.devices.device import Device
from roofmodel.models.architecture import Architecture, Network
from roofmodel.models.layers import Norm
from roofmodel.numbers.algebra import Number
from roofmodel.steps.placed import NO_TIME, Placed, ReplicaTimes, sum_of
from roofmodel.timing.collectives import (
    BUCKET_BYTES,
    CHUNK_BYTES,
    COPY_LAUNCH,
    buckets,
    contention_seconds,
    exposed_seconds,
    slowest_of,
)
from roofmodel.timing.engine import KernelTime, Run, Timing
from roofmodel.timing.roofline import link_bandwidth, place
from roofmodel.timing.timing import Expected, expect_elementwise

COPIES_OF_GRADIENTS = 2  # into a bucket and back
BUFFERS_OF_BATCH_NORM = 3  # running mean, running variance, number of batches
HOST_OPERATORS_PER_BUFFER = 2
"""A slice of the received tensor, and its copy. Chosen to agree with the rows of `benchmarks/ddp.py`: with 1 (the copy
alone), the largest error of their efficiencies is 3.6 points instead of 2.3."""


def batch_norm_buffers(arch: Architecture) -> int:
    """The number of buffers that the batch norms of a convolutional network store."""
    if not isinstance(arch.body, Network):
        return 0
    net = arch.body
    parts = [*net.stem]
    for stage in net.stages:
        parts += [*stage.entry]
        for block in stage.blocks:
            parts += [*block.path, *block.shortcut, *block.after]
    return BUFFERS_OF_BATCH_NORM * sum(isinstance(part, Norm) and part.kind == "batchnorm" for part in parts)


def with_replicas(
    placed: Sequence[Placed], step: Step, timing: Timing, buffers: int
) -> tuple[list[Placed], ReplicaTimes]:
    """The operators with the times of their exchange under the layout's wrapper, and what it adds to a training step.

    `buffers` is the number of buffers of batch norms.
    """
    wrapper, device = step.parallel.wrapper, timing.device
    if wrapper is None:
        return [*placed], ReplicaTimes()
    kinds = (_is_exchange, _gathers_weights, is_of_shards)
    work = sum_of(entry for entry in placed if not any(is_of_kind(entry) for is_of_kind in kinds))
    waiting = work and slowest_of(int(step.parallel.weight_copies)) * work
    if wrapper == "sequential":
        wider = _wider_gradients(step)
        exchanges = [entry for entry in placed if _is_exchange(entry)] if wider != 1 else []
        timed = {entry.operator.name: _exchange(entry, [(1, wider)], step, timing) for entry in exchanges}
        return _replaced(placed, timed), ReplicaTimes(waiting=waiting)
    if wrapper == "sharded":
        return [*placed], ReplicaTimes(_copied_blocks(placed, step, device), waiting=waiting)
    gradients = _gradients(placed, step)
    if wrapper == "dataparallel":
        timed = {entry.operator.name: _chunked_exchange(entry, step, timing) for entry in placed if _is_exchange(entry)}
        return _replaced(placed, timed), ReplicaTimes(_gathered(placed, gradients, step, device), NO_TIME, waiting)
    copies = _bucketed(gradients, buffers, step, device)
    return _overlapped(placed, step, timing, ReplicaTimes(copies, NO_TIME, waiting))


def _is_exchange(placed: Placed) -> bool:
    """Whether the operator exchanges gradients between replicas."""
    return placed.operator.name.startswith("gradients.")


def _wider_gradients(step: Step) -> float:
    """How much wider the summed gradients are than the weights, whose format their exchange counts."""
    bits = step.trained_widths.weights.bits
    return 1 if step.gradients is None else max(FORMATS[step.gradients].bits, bits) / bits


def _gathers_weights(placed: Placed) -> bool:
    """Whether the operator gathers the weights that other replicas updated."""
    return placed.operator.name.startswith("weights.")


def is_of_shards(placed: Placed) -> bool:
    """Whether the operator exchanges sharded weights or gradients in every microbatch."""
    return placed.operator.name.startswith(PREFIX)


class _Gradients(NamedTuple):
    """The gradients of a GPU's parameters: the number of tensors, and their bytes."""

    tensors: int
    size: float


def _gradients(placed: Sequence[Placed], step: Step) -> _Gradients:
    parameters = next(entry.operator.sizes["W"] for entry in placed if entry.operator.stage == "optimizer")
    tensors = sum(
        len(entry.operator.layers or (0,))
        * sum(tensor.is_adapter or not step.adapters for tensor in entry.operator.parameters)
        for entry in placed
        if entry.operator.stage == "forward"
    )
    return _Gradients(tensors, float(step.trained_widths.weights.bytes(parameters)))


def _copied_blocks(placed: Sequence[Placed], step: Step, device: Device) -> Expected | None:
    """Seconds of the copies of gathered weights and of gradients, each as large as the full tensor of its exchange."""
    total = NO_TIME
    for entry in placed:
        if not is_of_shards(entry) or entry.operator.name.endswith("all_reduce"):
            continue
        copied = _copies(1, float(entry.operator.exchanged_bytes), step, device)
        if copied is None:
            return None
        total = total + entry.operator.count * copied
    return total


# --- DataParallel -----------------------------------------------------------------------------------


def _gathered(placed: Sequence[Placed], gradients: _Gradients, step: Step, device: Device) -> Expected | None:
    """Seconds of the copies of weights and gradients, and of the outputs that the first GPU gathers."""
    copies = 2 * COPIES_OF_GRADIENTS
    copied = _copies(copies * gradients.tensors, copies * gradients.size, step, device)
    gathered = _gather_seconds(placed, step, device)
    return copied and copied + Expected(gathered, gathered, gathered)


# --- DistributedDataParallel ------------------------------------------------------------------------


def _bucketed(gradients: _Gradients, buffers: int, step: Step, device: Device) -> Expected | None:
    """Seconds of the copies into buckets and back, of the division of the buckets, and of the broadcast buffers."""
    copied = _copies(COPIES_OF_GRADIENTS * gradients.tensors, COPIES_OF_GRADIENTS * gradients.size, step, device)
    divided = _copies(buckets(gradients.size).full + 2, gradients.size, step, device)
    host = COPY_LAUNCH * HOST_OPERATORS_PER_BUFFER * buffers
    return copied and divided and copied + divided + Expected(host, host, host)


class _Overlap(NamedTuple):
    """Seconds of an exchange by buckets: all of them, those that the backward pass hides, those that it costs there."""

    run: Run
    hidden: Expected
    contention: Expected


def _overlapped(
    placed: Sequence[Placed], step: Step, timing: Timing, times: ReplicaTimes
) -> tuple[list[Placed], ReplicaTimes]:
    """The operators and `times` with the exchange during the backward pass of the last microbatch."""
    exchanged = [entry for entry in placed if _is_exchange(entry)]
    backward = [
        entry for entry in placed if not _is_exchange(entry) and entry.operator.stage in ("backward", "recomputation")
    ]
    share = 1 / step.microbatches
    last_pass = sum_of(backward)
    overlaps = {
        exchange.operator.name: last_pass and _overlap(exchange, share * last_pass, step, timing)
        for exchange in exchanged
    }
    timed, hidden, contention = {}, NO_TIME, NO_TIME
    for name, overlap in overlaps.items():
        if overlap is None:
            return [*placed], ReplicaTimes(None, None, None, None)
        timed[name] = overlap.run
        hidden, contention = hidden + overlap.hidden, contention + overlap.contention
    return _replaced(placed, timed), times._replace(contention=contention, hidden=hidden)


def _overlap(placed: Placed, last_pass: Expected, step: Step, timing: Timing) -> _Overlap | None:
    """An exchange whose buckets start as their gradients become known in the last backward pass; None if unknown."""
    op, device = placed.operator, timing.device
    bucket_sizes = buckets(float(op.widths.weights.bytes(op.sizes["W"])))
    parts = [(1, bucket_sizes.first), (bucket_sizes.full, BUCKET_BYTES), (1, bucket_sizes.last)]
    run = _exchange(placed, [(count, size / bucket_sizes.total) for count, size in parts], step, timing)
    if run is None or run.expected is None:
        return None
    first, full, last = (kernel.expected for kernel in run.kernels)
    total = run.expected
    exposed = Expected(
        *(exposed_seconds(bucket_sizes, *each) for each in zip(first, full, last, last_pass, strict=True))
    )
    hidden = Expected(*(t - e for t, e in zip(total, exposed, strict=True)))
    rate = link_bandwidth(op.collective, device) or device.bandwidth
    sent = float(op.link_bytes) * (hidden.value / total.value)
    slow = contention_seconds(hidden.value, sent, rate, device.multiprocessors or 1, device.bandwidth)
    return _Overlap(run, hidden, Expected(slow, slow, slow))


# --- Times ------------------------------------------------------------------------------------------


def _replaced(placed: Sequence[Placed], timed: Mapping[str, Run | None]) -> list[Placed]:
    """The operators with these runs, by name; None: the time is unknown."""
    return [
        entry._replace(expected=run and run.expected, run=run or Run(None))
        if (run := timed.get(entry.operator.name, entry.run)) is not entry.run
        else entry
        for entry in placed
    ]


def _exchange(placed: Placed, parts: Sequence[tuple[Number, float]], step: Step, timing: Timing) -> Run | None:
    """An exchange in parts, each with its number and its share of the bytes; None where the time is unknown."""
    dtype, kernels, total = step.widths.compute, list[KernelTime](), NO_TIME
    for count, share in parts:
        sizes = {axis: size * share for axis, size in placed.operator.sizes.items()}
        operator = replace(placed.operator, sizes=sizes)
        bound = place(operator.cost, timing.device, operator.compute_dtype(dtype), operator.collective)
        run = timing.expect(operator, bound, dtype)
        if run.expected is None or run.formula is None:
            return None
        kernels.append(KernelTime(count, run.formula, bound.bound_seconds, run.expected))
        total = total + count * run.expected
    return placed.run._replace(expected=total, formula=kernels[len(kernels) // 2].formula, kernels=tuple(kernels))


def _chunked_exchange(placed: Placed, step: Step, timing: Timing) -> Run | None:
    """The broadcast of the weights and the reduction of the gradients in chunks.

    Together they send n / (n - 1) times the bytes of a ring all-reduce.
    """
    assert placed.operator.collective is not None
    gpus = placed.operator.collective.gpus
    size = float(placed.operator.widths.weights.bytes(placed.operator.sizes["W"]))
    count = max(1.0, size / CHUNK_BYTES)
    return _exchange(placed, [(count * gpus / (gpus - 1), 1 / count)], step, timing)


def _copies(kernels: Number, size: float, step: Step, device: Device) -> Expected | None:
    """The expected time of copies of `size` bytes in all, by this many kernels."""
    if kernels == 0:
        return NO_TIME
    copy = expect_elementwise(2 * size / kernels, device, step.widths.compute)
    return copy and kernels * copy


def _gather_seconds(placed: Sequence[Placed], step: Step, device: Device) -> Number:
    """Seconds in which the first GPU receives the outputs of the other replicas, and sends their gradients."""
    forward = [
        entry.operator for entry in placed if entry.operator.stage == "forward" and entry.operator.group == "head"
    ]
    if not forward or not device.link:
        return 0.0
    outputs = forward[-1].reads[0] if forward[-1].name == "head.loss" else forward[-1].writes[0]
    return 2 * (step.parallel.dp - 1) * forward[-1].bytes_of(outputs) / device.link
