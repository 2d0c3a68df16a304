"""What a person should know beside the numbers: limits that a workload passes, formats, what expected times rest on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from operator import or_
from typing import Any

from roofmodel import units
from roofmodel.algebra import Number, plain
from roofmodel.counting.workload import Step, Workload
from roofmodel.devices.device import Device, Level
from roofmodel.models.architecture import Architecture
from roofmodel.models.convolutional import Network
from roofmodel.models.norms_and_activations import Norm
from roofmodel.study.estimate.phase import PhaseEstimate

NODE = 8
"""GPUs that a device's links join, as servers are built, where its file does not say."""

PLANNED = 0.9
"""Of a device's memory, what engines plan with unless told otherwise (vLLM's gpu_memory_utilization). Beyond it goes
what is not counted: a context and libraries (0.58 GB in TensorRT-LLM, test_measured_memory.py), gaps that
an allocator leaves, and ECC's bits."""
ECC = 1 / 16
"""Of GDDR, which has no room of its own for them: 6.25 % (NVIDIA, CUDA C++ best practices guide, on bandwidth)."""


def model_notes(arch: Architecture, work: Workload) -> list[str]:
    """Lengths and images that the model was not made for."""
    return [*length_notes(arch, work), *_image_notes(arch, work)]


def beyond(arch: Architecture, work: Workload) -> Any:
    """Whether a workload of one phase reaches beyond the model's positions; an answer each for arrays."""
    (step,) = work.steps()
    limits = ((step.reach, arch.max_tokens), (work.seq, arch.max_source))
    return reduce(or_, (length > limit for length, limit in limits if limit is not None), False)


def length_notes(arch: Architecture, work: Workload) -> list[str]:
    """Lengths that the model was not made for."""
    limit, notes = arch.max_tokens, []
    if arch.padded_to not in (None, work.seq):
        notes.append(
            f"warning: {arch.name} pads every source to {arch.padded_to} tokens; counted as if it took {work.seq}"
        )
    elif arch.max_source is not None and work.seq > arch.max_source:
        notes.append(
            f"warning: the source has {work.seq} tokens, but {arch.name} has positions for {arch.max_source}; "
            f"counted as if it had more (--seq {arch.max_source} stays inside)"
        )
    for step in work.steps():
        if limit is not None and step.reach > limit:
            notes.append(
                f"warning: {step.phase} reaches {step.reach} tokens, but {arch.name} has positions for {limit}; "
                f"counted as if it had more{_stay_inside(arch, step)}"
            )
    return notes


def _stay_inside(arch: Architecture, step: Step) -> str:
    """What to ask for instead, where a decode goes one token too far."""
    if step.phase == "generate" and arch.max_tokens is not None:
        longest = arch.max_tokens - step.context - step.passes + 1
        return f" (--seq {longest} stays inside)" if longest > 0 else ""
    if step.phase != "decode" or arch.max_tokens is None or arch.max_tokens < 2:
        return ""
    return f" (--context {arch.max_tokens - 1} stays inside)"


def _image_notes(arch: Architecture, work: Workload) -> list[str]:
    if isinstance(arch.body, Network):
        note = (
            "batch norms are kernels of their own, as in eager PyTorch; compilers for inference fold them into the "
            "convolutions, and they cost nothing"
        )
        folds = any(isinstance(part, Norm) and part.kind == "batchnorm" for part in arch.body.stem)
        return [note] if folds and work.phases != ("train",) else []
    if arch.image not in (None, work.image):
        made_for, now = (" × ".join(map(str, sides)) for sides in (arch.image, work.image))
        return [f"positions are those of {made_for} pixels, resized to {now}"]
    return []


def device_notes(device: Device, work: Workload) -> list[str]:
    """What the device's file leaves open, and which formats hold for what."""
    notes = []
    if device.vector_pipe(work.dtype) is None:
        notes.append(f"{device.id} states no CUDA-core peak (pipe fp32 or fp64): vector work is bounded by bytes alone")
    notes += link_notes(device, work.joined)
    if work.widths.weights.bits < 16 and work.widths.weights != work.widths.dtype:
        notes.append(
            f"--weights {work.weights or work.dtype} holds for the matrices of the layers; tables, head, norms and "
            f"biases stay {work.activations or work.dtype}, as quantised checkpoints have it"
        )
    return notes


def memory_notes(device: Device, needed: Number) -> Iterator[str]:
    """That what fits a device by its datasheet leaves little for what is not counted."""
    dram = device.levels["dram"]
    if dram.capacity is None or not PLANNED * dram.capacity < needed <= dram.capacity:
        return
    ecc = f"ECC where it is on ({units.binary(ECC * dram.capacity)} of {dram.kind})"
    yield (
        f"warning: {units.binary(dram.capacity - needed)} of {device.id}'s memory are left for what is not counted: a "
        f"context and libraries (some hundred MB), gaps between allocations"
        f"{f', {ecc}' if _corrects_within(dram) else ''}; engines plan with {PLANNED:.0%} of it unless told otherwise"
    )


def _corrects_within(dram: Level) -> bool:
    """Whether ECC's bits take their place in the memory that the datasheet states: HBM has more of it for them."""
    return (dram.kind or "").startswith("GDDR")


def link_notes(device: Device, gpus: int) -> Iterator[str]:
    """What is not known of the links that join so many GPUs."""
    if gpus > 1 and not device.links:
        yield f"{device.id} states no link to other GPUs: what they exchange is bounded by bytes alone"
    elif gpus > node(device) and (network := device.network):
        yield (
            f"what leaves a node of {node(device)} GPUs goes over {network.name}, "
            f"{units.si(network.bandwidth / 2, 'B/s')} from each GPU and to it; those that share a layer are "
            f"neighbours, then replicas, then stages"
        )
    elif gpus > node(device):
        yield (
            f"warning: {gpus} GPUs are more than a node of {node(device)}: {device.id}'s file knows no network between "
            f"nodes, which are counted as if its own links joined them"
        )


def node(device: Device) -> int:
    """How many GPUs a node has."""
    return device.network.beyond or NODE if device.network else NODE


def timing_notes(device: Device, found: Sequence[PhaseEstimate]) -> Iterator[str]:
    """What expected times rest on, or why there are none."""
    operators = [one for phase in found for one in phase.placed]
    unknown = sorted({one.operator.kind for one in operators if one.expected is None})
    if device.calibration is None:
        yield f"only the bound is known: {device.id} is not calibrated, so expected times are null; see roof calibrate"
    elif device.missing_timing_fields:
        missing = " and ".join(device.missing_timing_fields)
        yield f"expected times are null: {device.id}'s file lacks {missing}, which the timing model counts with"
    elif unknown:
        whole = "times are" if all(one.expected is None for one in operators) else "totals are"
        yield f"expected {whole} null: {device.id} is not calibrated for {', '.join(unknown)}"
    elif waiting := [phase.step.phase for phase in found if phase.expected is None]:
        yield (
            f"expected totals of {' and '.join(waiting)} are null: the stage waits for others, which do what "
            f"{device.id} is not calibrated for, as sending to their neighbours"
        )
    else:
        for other, kinds in device.calibration.borrowed.items():
            yield f"expected times of {', '.join(kinds)} take the parameters of {other} with {device.id}'s datasheet"


def use_notes(found: Sequence[PhaseEstimate]) -> Iterator[str]:
    """Phases whose use of the peak is above it, by the way that papers count."""
    for phase in found:
        used, (peak, _) = phase.expected, phase.ceilings
        if used and plain(phase.model_flops) > peak * plain(used.seconds):
            yield (
                f"the MFU of {phase.step.phase} is above 100 %: it counts all pairs of tokens, as papers do, of which "
                "flash attention skips those that the mask hides"
            )


def host_notes(found: Sequence[PhaseEstimate]) -> Iterator[str]:
    """Phases that wait for the host."""
    for phase in found:
        if phase.host_bound:
            yield (
                f"{phase.step.phase} waits for the host: {phase.kernels} operators, launched one by one in "
                f"{units.seconds(phase.launch.seconds)} each, take longer than they run; see --launch, --runtime graph"
            )
