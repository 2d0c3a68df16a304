"""An Estimate in words: what was asked, and what there is to say of a phase beside its table."""

from __future__ import annotations

from roofmodel import units
from roofmodel.study.estimate.estimate import Estimate
from roofmodel.study.estimate.phase import PhaseEstimate, total_cost
from roofmodel.views.kit.workload_text import describe_rate


def describe_expectation(phase: PhaseEstimate) -> str:
    """`expected 14 ms (12 ms to 16 ms), 73 k tokens/s`; empty where it is not known.

    Where the host is waited for, which is more than the kernels of the table above add up to, it says so.
    """
    if (expected := phase.expected) is None:
        return ""
    seconds, low, high = (units.seconds(float(value)) for value in expected)
    host = " for the host's launches" if phase.host_bound else ""
    return f"expected {seconds} ({low} to {high}){host}, {describe_rate(phase, expected.seconds)}"


def describe_stage(phase: PhaseEstimate) -> str | None:
    """`stage 4 of 4, which takes longest: layers 36–47 and the head`, where layers are dealt out to stages."""
    parallel = phase.step.parallel
    if parallel.pp == 1:
        return None
    layers = sorted({layer for placed in phase.placed for layer in placed.operator.layers or ()})
    what = [f"layers {units.ranges(layers)}" if len(layers) > 1 else f"layer {layers[0]}"]
    groups = {placed.operator.group for placed in phase.placed}
    what = ["the embedding"] * ("embedding" in groups) + what + ["the head"] * ("head" in groups)
    return f"stage {parallel.stage + 1} of {parallel.pp}, which takes longest: {' and '.join(what)}"


def describe_uncached(phase: PhaseEstimate) -> str | None:
    """What generation would cost without a KV cache."""
    if phase.uncached is None:
        return None
    cost, seconds = total_cost(phase.uncached.placed), phase.uncached.bound_seconds
    return (
        f"without a KV cache, each new token a pass over all before it: {units.si(cost.flops, 'FLOP')}, "
        f"{units.si(cost.bytes, 'B')}, at least {units.seconds(seconds)}: "
        f"{units.significant(cost.flops / phase.cost.flops)} × the FLOPs, "
        f"{units.significant(seconds / phase.bound_seconds)} × the time"
    )


def describe_largest(estimate: Estimate) -> str | None:
    """The largest batch and sequence that fit, each with everything else as it is."""
    batch, longest = estimate.largest_batch, estimate.largest_context
    if not batch and not longest:
        return None
    if estimate.architecture.image:
        return f"what fits: --batch up to {batch}" if batch else None
    arch, length = estimate.architecture, "any length" if longest is None else str(longest)
    option = "seq" if estimate.workload.context is None else "context"
    limit = arch.max_source if arch.encoder and option == "seq" else arch.max_tokens
    if arch.encoder:
        length += f" with --decoder-seq {estimate.workload.decoder_seq}"
    beyond = f" (its positions end at {limit})" if limit and longest and longest > limit else ""
    alone = "any --batch, or" if batch is None else f"--batch up to {batch}, or" if batch else "no batch; but"
    return f"what fits: {alone} at batch {estimate.workload.batch} --{option} up to {length}{beyond}"


def describe_training(estimate: Estimate, phase: PhaseEstimate) -> str | None:
    """A training step beside the rule of thumb, and what flash attention computes twice."""
    if phase.step.phase != "train":
        return None
    text = f"{units.si(phase.cost.matmul_flops, 'FLOP')} of matrix products"
    if phase.tokens and not estimate.architecture.encoder:
        met = estimate.active_parameters
        them = "parameters" if met == estimate.parameters else f"parameters that a token meets ({units.si(met)})"
        rule = units.si(6 * met * phase.tokens, "FLOP")
        text += f"; the rule of thumb 6 × {them} × tokens, which knows no attention, gives {rule}"
        gpus = estimate.workload.parallel.gpus
        text += f" for all {gpus} GPUs" if gpus > 1 else ""
    if any(placed.operator.kind == "attention" for placed in phase.of("backward")):
        text += "; the backward pass of flash attention computes the scores again, five matrix products instead of four"
    return text


def describe_pairs(phase: PhaseEstimate) -> str | None:
    """Both figures of causal attention, where a fused kernel skips masked tiles."""
    counted, everything = phase.cost.matmul_flops, phase.all_pairs_matmul_flops
    if counted == everything or phase.step.phase == "train":
        return None
    groups = {placed.operator.group for placed in phase.placed}
    if "ssm" in groups:
        how = "counted as fused kernels compute it, scans on the vector units; the reference code has"
    elif "linear" in groups:
        how = "counted as fused kernels compute it; the reference code has"
    else:
        how = "attention counts the unmasked pairs; with all pairs, as eager attention computes them,"
    theirs, ours = (units.si(flops, "FLOP") for flops in (everything, counted))
    return f"{how} {theirs} of matrix products instead of {ours}" if theirs != ours else None


def describe_exchange(phase: PhaseEstimate) -> str | None:
    """What a GPU sends, which no column of a table has."""
    if not (sent := phase.cost.link_bytes):
        return None
    return f"each GPU sends {units.si(sent, 'B')} to others; the bytes of communication are those of its own memory"
