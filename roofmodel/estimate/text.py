"""An Estimate in sentences: the expected time of a phase, and remarks on pipeline stages, caches, GEMMs and links."""

from __future__ import annotations

from collections.abc import Sequence

from roofmodel.errors import Option
from roofmodel.numbers import units
from roofmodel.steps.estimate import Estimate
from roofmodel.steps.phase import PhaseEstimate
from roofmodel.steps.placed import Placed, total_cost
from roofmodel.steps.workload_text import describe_rate


def describe_expectation(phase: PhaseEstimate) -> str:
    """`expected 14 ms (12 ms to 16 ms), 73 k tokens/s`; empty where no expected time is known.

    A phase that the host limits says so, with the smaller time of its kernels alone.
    """
    if (expected := phase.expected) is None:
        return ""
    seconds, low, high = (units.seconds(float(value)) for value in expected)
    kernels = phase.kernel_seconds
    alone = f": {describe_host_limit(phase)} (kernels alone {units.seconds(float(kernels.value))})" if kernels else ""
    limit = alone if phase.host_bound else ""
    return f"expected {seconds} ({low} to {high}){limit}, {describe_rate(phase, expected.value)}"


def describe_host_limit(phase: PhaseEstimate) -> str:
    """How the host limits a phase: by its launches, or by what a serving engine's host does in a step."""
    return "launch-bound" if phase.launch_bound else "host-bound"


def describe_remarks(estimate: Estimate, phase: PhaseEstimate) -> list[str]:
    """The remarks that apply to a phase, in the order in which they are shown below its table."""
    remarks = (
        _describe_stage(phase),
        describe_masked_pairs(phase),
        describe_uncached(phase),
        describe_training(estimate, phase),
        describe_exchange(phase),
    )
    return [remark for remark in remarks if remark]


def _describe_stage(phase: PhaseEstimate) -> str | None:
    """`stage 4 of 4, the slowest: layers 36–47 and the head`, for pipeline parallelism."""
    parallel = phase.step.parallel
    if parallel.pp == 1:
        return None
    layers = sorted({layer for placed in phase.placed for layer in placed.operator.layers or ()})
    parts = [f"layers {units.ranges(layers)}" if len(layers) > 1 else f"layer {layers[0]}"]
    groups = {placed.operator.group for placed in phase.placed}
    parts = ["the embedding"] * ("embedding" in groups) + parts + ["the head"] * ("head" in groups)
    return f"pipeline stage {parallel.stage + 1} of {parallel.pp}, the slowest: {' and '.join(parts)}"


def describe_uncached(phase: PhaseEstimate) -> str | None:
    """The cost of generation without a KV cache."""
    if phase.uncached is None:
        return None
    cost, seconds = total_cost(phase.uncached.placed), phase.uncached.bound_seconds
    return (
        f"without a KV cache, every new token recomputes all earlier tokens: {units.si(cost.flops, 'FLOP')}, "
        f"{units.si(cost.bytes, 'B')}, bound {units.seconds(seconds)}; "
        f"{units.significant(cost.flops / phase.cost.flops)} × the FLOPs and "
        f"{units.significant(seconds / phase.bound_seconds)} × the bound"
    )


def describe_largest(estimate: Estimate) -> str:
    """The largest batch and the longest sequence that fit in memory, each with all other options unchanged.

    `240; longest --seq at batch 1: 246381 (the model has positions for 1024)`
    """
    arch, batch, longest = estimate.architecture, estimate.largest_batch, estimate.largest_context
    if not estimate.has_total:
        return "unknown without the size of the weights"
    if estimate.device.capacity is None:
        return "unknown without the size of the device's memory"
    text = "unlimited" if batch is None else str(batch) if batch else "0, no batch fits"
    if arch.image:
        return text
    option = "seq" if estimate.workload.context is None else "context"
    limit = arch.max_source if arch.encoder and option == "seq" else arch.max_tokens
    length = "unlimited" if longest is None else str(longest) if longest else "none fits"
    if arch.encoder and longest != 0:
        length += f" with {Option('decoder_seq', estimate.workload.decoder_seq)}"
    if limit and longest and longest > limit:
        length += f" (the model has positions for {limit})"
    return f"{text}; longest {Option(option)} at batch {estimate.workload.batch}: {length}"


def describe_training(estimate: Estimate, phase: PhaseEstimate) -> str | None:
    """GEMM FLOPs of a training step, the estimate 6 × parameters × tokens, and what flash attention recomputes."""
    if phase.step.phase != "train":
        return None
    text = f"{units.si(phase.cost.matmul_flops, 'FLOP')} in GEMMs"
    if phase.tokens and not estimate.architecture.encoder:
        active = estimate.active_parameters
        name = "parameters" if active == estimate.parameters else f"active parameters ({units.si(active)})"
        rule = units.si(6 * active * phase.tokens, "FLOP")
        text += f"; the rule of thumb 6 × {name} × tokens, which ignores attention, gives {rule}"
        gpus = estimate.workload.parallel.gpus
        text += f" for all {gpus} GPUs" if gpus > 1 else ""
    if any(placed.operator.kind == "attention" for placed in phase.of_stage("backward")):
        text += "; the backward pass of flash attention recomputes the scores: five GEMMs instead of four"
    return text


def describe_masked_pairs(phase: PhaseEstimate) -> str | None:
    """GEMM FLOPs of the phase, and those of the reference code, which computes all token pairs and no fused scans."""
    counted, everything = phase.cost.matmul_flops, phase.all_pairs_matmul_flops
    if counted == everything or phase.step.phase == "train":
        return None
    theirs, ours = (units.si(flops, "FLOP") for flops in (everything, counted))
    if theirs == ours:
        return None
    if scans := [placed for placed in phase.placed if placed.operator.kind == "scan"]:
        return f"GEMM FLOPs: {ours}, {_gemms_of_scans(scans)}; the reference code, without fused kernels: {theirs}"
    return f"GEMM FLOPs without masked token pairs: {ours}; eager attention computes all pairs: {theirs}"


def _gemms_of_scans(scans: Sequence[Placed]) -> str:
    """`16.7 TFLOP of them in ssm.scan`; `none in ssm.scan (vector FLOPs only)`."""
    names, flops = " and ".join(dict.fromkeys(scan.operator.name for scan in scans)), total_cost(scans).matmul_flops
    return f"{units.si(flops, 'FLOP')} of them in {names}" if flops else f"none in {names} (vector FLOPs only)"


def describe_exchange(phase: PhaseEstimate) -> str | None:
    """The bytes that each GPU sends over its links, which no column of the table has."""
    if not (sent := phase.cost.link_bytes):
        return None
    return f"each GPU sends {units.si(sent, 'B')} over its links; the table's bytes are those of its own memory"
