"""An Estimate in words: what was asked, and what there is to say of a phase beside its table."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from roofmodel import units
from roofmodel.algebra import Number
from roofmodel.counting.workload import Parallel
from roofmodel.models.architecture import Stack
from roofmodel.models.attention import Attention, LatentAttention
from roofmodel.study.estimate.estimate import Estimate
from roofmodel.study.estimate.phase import PhaseEstimate, total_cost


def describe_phase(phase: PhaseEstimate) -> str:
    """`prefill: 1 × 1024 tokens`, `generate: 1 × 128 tokens after 1024`, `forward: 32 images of 224 × 224 pixels`."""
    step = phase.step
    if phase.sees:
        images = f"{step.batch} image{'s' if step.batch != 1 else ''} of {' × '.join(map(str, step.image))} pixels"
        return f"{step.phase}: {images}" + (f", {step.tokens} tokens each" if step.tokens else "")
    generates = step.phase == "generate"
    tokens = step.passes - 1 if generates else step.tokens
    many = f"{step.microbatches} microbatches of " if step.microbatches != 1 else ""
    text = f"{step.phase}: {many}{step.batch} × {tokens} token{'s' if tokens != 1 else ''}"
    if generates:
        text += f" after {step.tokens}{f' and {step.context} cached' if step.context else ''}"
    elif step.context:
        text += f" after {step.context} cached"
    return f"{text}, source of {step.source}{'' if step.encodes else ' cached'}" if step.source else text


def describe_parameters(parameters: int, active: int) -> str:
    """`46 702 792 704 parameters, 12 879 925 248 of them active`: those that a token meets, in a mixture of experts."""
    text = f"{units.grouped(parameters)} parameters"
    return text if active == parameters else f"{text}, {units.grouped(active)} of them active"


def describe_workload(estimate: Estimate) -> str:
    """`fp16, flash attention, logits of the last position`."""
    work = estimate.workload
    parts = [work.dtype]
    layered = isinstance(estimate.architecture.body, Stack)
    scans = layered and not any(isinstance(p, Attention | LatentAttention) for p in estimate.architecture.stack.parts)
    kept = "state" if scans else "KV cache"
    stored = ("weights", work.weights), (kept, work.kv), ("activations", work.activations)
    parts += [f"{role} {name}" for role, name in stored if name]
    how = ("fused scan" if work.attention == "flash" else "eager scan") if scans else f"{work.attention} attention"
    parts += [how] * layered
    parts += [f"{work.runtime} runtime"] * (work.runtime != "eager")
    parts += [] if work.launch is None else [f"{units.seconds(work.launch)} a launch"]
    if layered:
        parts += _windows(estimate)
        if any(isinstance(part, LatentAttention) for part in estimate.architecture.stack.parts):
            parts.append(f"latents {'absorbed in decodes' if work.mla == 'absorbed' else 'expanded'}")
    asked = [phase.step for phase in estimate.phases if phase.step.phase != "decode"]  # a decode has one position
    if asked and any(stage.rows == "logits" for stage in estimate.architecture.head.stages):
        which = "all positions" if work.logits_of(work.phases[0]) == "all" else "the last position"
        parts.append(f"logits of {which}")
    return ", ".join(parts + describe_gpus(work.parallel))


def describe_gpus(parallel: Parallel) -> list[str]:
    """`one of 8 GPUs (tp 4, dp 2, sequence-parallel)`, where there are several."""
    if parallel.gpus == 1:
        return []
    ways = [f"{name} {many}" for name, many in parallel.ways.items() if many > 1]
    ways += ["sequence-parallel"] * parallel.sequence
    return [f"one of {parallel.gpus} GPUs ({', '.join(ways)})"]


def _windows(estimate: Estimate) -> Iterator[str]:
    """`21 of 42 layers see 4096 tokens`, where the workload reaches beyond."""
    layers = [part for part in estimate.architecture.stack.parts if isinstance(part, Attention)]
    reach = max(phase.step.reach for phase in estimate.phases)
    for window, count in Counter(part.window for part in layers).items():
        if window is not None and window < reach:
            yield f"{'all' if count == len(layers) else f'{count} of {len(layers)}'} layers see {window} tokens"


def describe_rate(phase: PhaseEstimate) -> str:
    """`1.23 k tokens/s` at the bound, or images where the model sees."""
    return _rate(phase, phase.bound_seconds)


def _rate(phase: PhaseEstimate, seconds: Number) -> str:
    many, what = (phase.sequences, "images") if phase.sees else (phase.tokens, "tokens")
    return f"{units.si(many / seconds)} {what}/s"


def describe_expectation(phase: PhaseEstimate) -> str:
    """`expected 14 ms (12 ms to 16 ms), 73 k tokens/s`; empty where it is not known.

    Where the host is waited for, which is more than the kernels of the table above add up to, it says so.
    """
    if (expected := phase.expected) is None:
        return ""
    seconds, low, high = (units.seconds(float(value)) for value in expected)
    host = " for the host's launches" if phase.host_bound else ""
    return f"expected {seconds} ({low} to {high}){host}, {_rate(phase, expected.seconds)}"


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
