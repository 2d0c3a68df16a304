"""Models, workloads and phases in words: parameter counts, formats, batch and tokens, GPUs, rates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from roofmodel.counting.workload import Parallel
from roofmodel.models.architecture import Stack
from roofmodel.models.layers import Attention, LatentAttention
from roofmodel.numbers import units
from roofmodel.numbers.algebra import Number
from roofmodel.steps.estimate import Estimate
from roofmodel.steps.phase import PhaseEstimate


def describe_phase(phase: PhaseEstimate) -> str:
    """`decode: 8 × 1 token after 1024 cached tokens`, `forward: 32 images of 224 × 224 pixels`; the batch is first."""
    step = phase.step
    if phase.is_vision:
        images = f"{step.batch} image{'s' if step.batch != 1 else ''} of {' × '.join(map(str, step.image))} pixels"
        return f"{step.phase}: {images}" + (f", {step.tokens} tokens each" if step.tokens else "")
    generates = step.phase == "generate"
    tokens = step.passes - 1 if generates else step.tokens
    many = f"{step.microbatches} microbatches of " if step.microbatches != 1 else ""
    new = "new " * generates
    text = f"{step.phase}: {many}{step.batch} × {units.count(tokens, f'{new}token')}"
    earlier = [f"a prompt of {step.tokens}"] * generates + [f"{step.context} cached"] * bool(step.context)
    text += f" after {' and '.join(earlier)} tokens" if earlier else ""
    return f"{text}, {'' if step.encodes else 'cached '}source of {step.source} tokens" if step.source else text


def describe_parameters(parameters: int, active: int) -> str:
    """`46 702 792 704 parameters, 12 879 925 248 of them active`: an MoE model uses the active ones for each token."""
    text = f"{units.grouped(parameters)} parameters"
    return text if active == parameters else f"{text}, {units.grouped(active)} of them active"


def describe_workload(estimate: Estimate) -> str:
    """`fp16, flash attention, logits of the last position`."""
    work = estimate.workload
    parts = [work.dtype]
    layered = isinstance(estimate.architecture.body, Stack)
    scans = layered and not any(isinstance(p, Attention | LatentAttention) for p in estimate.architecture.stack.parts)
    quantization = estimate.architecture.quantization
    further = [form for _, form in work.matrix_formats]
    formats = (
        ("weights", work.weights, quantization and quantization.weights),
        ("state" if scans else "KV cache", work.kv, quantization and quantization.kv),
        ("activations", work.activations, None),
    )
    parts += [
        f"{role} {' and '.join(dict.fromkeys((name, *(further if role == 'weights' else ()))))}"
        f"{' (quantization_config)' if name == of_checkpoint else ''}"
        for role, name, of_checkpoint in formats if name
    ]  # fmt: skip
    how = ("fused scan" if work.attention == "flash" else "eager scan") if scans else f"{work.attention} attention"
    parts += [how] * layered
    parts += [work.engine.label]
    if layered:
        parts += _windows(estimate)
        if any(isinstance(part, LatentAttention) for part in estimate.architecture.stack.parts):
            parts.append(f"MLA {'absorbed in decode' if work.mla == 'absorbed' else 'naive'}")
    multi_token = [phase.step for phase in estimate.phases if phase.step.phase != "decode"]
    if multi_token and any(stage.rows == "logits" for stage in estimate.architecture.head.stages):
        positions = "all positions" if work.logits_of(work.phases[0]) == "all" else "the last position"
        parts.append(f"logits of {positions}")
    return ", ".join(parts + describe_gpus(work.parallel))


def describe_gpus(parallel: Parallel) -> list[str]:
    """`["one of 8 GPUs (tp 4, dp 2, sequence-parallel)"]`; empty for one GPU."""
    if parallel.gpus == 1:
        return []
    degrees = [f"{name} {degree}" for name, degree in parallel.ways.items() if degree > 1]
    degrees += ["sequence-parallel"] * parallel.sequence
    degrees += [f"ZeRO-{parallel.zero}"] * (parallel.zero > 0)
    return [f"one of {parallel.gpus} GPUs ({', '.join(degrees)})"]


def _windows(estimate: Estimate) -> Iterator[str]:
    """`window of 4096 tokens in 21 of 42 layers`, where the workload exceeds the sliding window."""
    layers = [part for part in estimate.architecture.stack.parts if isinstance(part, Attention)]
    reach = max(phase.step.reach for phase in estimate.phases)
    for window, count in Counter(part.window for part in layers).items():
        if window is not None and window < reach:
            which = "all" if count == len(layers) else f"{count} of {len(layers)}"
            yield f"window of {window} tokens in {which} layers"


def describe_usable_memory(estimate: Estimate) -> str:
    """`72 GiB (0.9 of 80 GiB)`, or `80 GiB` if the workload may use all of it; the device must state its memory."""
    assert estimate.usable_memory is not None
    assert estimate.device.capacity is not None
    capacity, share = units.binary(estimate.device.capacity), estimate.workload.options.memory_utilization
    return capacity if share == 1 else f"{units.binary(estimate.usable_memory)} ({share:g} of {capacity})"


def without_unit_of(other: str, quantity: str) -> str:
    """A quantity without its unit, if the other one has the same: `3.22 of 72 GiB`."""
    number, _, unit = quantity.partition(" ")
    return number if other.endswith(f" {unit}") else quantity


def describe_rate(phase: PhaseEstimate, seconds: Number | None = None) -> str:
    """`1.23 k tokens/s`, or images/s for a vision model, if the phase takes `seconds`; by default its bound."""
    count, unit = (phase.sequences, "images") if phase.is_vision else (phase.tokens, "tokens")
    return f"{units.si(count / (phase.bound_seconds if seconds is None else seconds))} {unit}/s"
