"""Notes of an estimate: exceeded limits of the model and device, formats, and the basis of expected times."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from math import ceil
from operator import or_
from typing import Any

from roofmodel.counting.operator import Operator
from roofmodel.counting.quantized_modules import MODULES, TABLES, group_formats, group_of, unconverted
from roofmodel.counting.workload import Step, Workload
from roofmodel.devices.device import Device
from roofmodel.devices.parts import Level
from roofmodel.engines.engine import Engine, default_for
from roofmodel.errors import AnswerNote, Message, Option, Text, WarningNote, shorten
from roofmodel.models.architecture import Architecture, Network
from roofmodel.models.layers import Norm
from roofmodel.numbers import units
from roofmodel.numbers.algebra import Number, plain
from roofmodel.options.workload import DEFAULTS
from roofmodel.steps.capacity import usable_memory
from roofmodel.steps.options import half_dtype
from roofmodel.steps.phase import PhaseEstimate, is_launch_bound
from roofmodel.steps.placed import launches, sum_of

DEFAULT_GPUS_PER_NODE = 8
"""GPUs per node, if a device's file does not state it: the usual size of a server."""

ECC_SHARE = 1 / 16
"""The share of GDDR memory that ECC takes: 6.25 % (NVIDIA, CUDA C++ best practices guide, on bandwidth)."""


def model_notes(arch: Architecture, work: Workload) -> list[Text]:
    """Lengths and image sizes outside the model's limits."""
    return [*length_notes(arch, work), *_image_notes(arch, work)]


def exceeds_positions(arch: Architecture, work: Workload) -> Any:
    """Whether a workload of one phase exceeds the model's positions; elementwise for arrays."""
    (step,) = work.steps()
    limits = ((_positions_needed(work, step), arch.max_tokens), (work.seq, arch.max_source))
    return reduce(or_, (length > limit for length, limit in limits if limit is not None), False)


def _positions_needed(work: Workload, step: Step) -> Number:
    """Positions of cached and new tokens; of a decode after the default context only those of the cached tokens.

    The default context is the whole prompt. A prompt that fills all positions is no reason for a warning.
    """
    return step.context if step.phase == "decode" and work.context is None else step.reach


def length_notes(arch: Architecture, work: Workload) -> list[Text]:
    """Lengths beyond the model's positions."""
    limit = arch.max_tokens
    notes: list[Text] = []
    if arch.padded_to not in (None, work.seq):
        notes.append(
            WarningNote(f"{arch.name} pads every source to {arch.padded_to} tokens; counted with {work.seq} tokens")
        )
    elif arch.max_source is not None and work.seq > arch.max_source:
        notes.append(
            WarningNote(
                f"the source has {work.seq} tokens, but {arch.name} has positions for {arch.max_source}; "
                "the limit is not enforced (",
                Option("seq", arch.max_source),
                " is within the limit)",
            )
        )
    for step in work.steps():
        if limit is not None and _positions_needed(work, step) > limit:
            notes.append(
                WarningNote(
                    f"{step.phase} reaches {step.reach} tokens, but {arch.name} has positions for {limit}; "
                    "the limit is not enforced",
                    _within_limit(arch, step),
                )
            )
    return notes


def _within_limit(arch: Architecture, step: Step) -> Text:
    """The longest value that stays within the model's positions, if there is one."""
    if step.phase == "generate" and arch.max_tokens is not None:
        longest = arch.max_tokens - step.context - step.passes + 1
        return Message(" (", Option("seq", longest), " is within the limit)") if longest > 0 else ""
    if step.phase != "decode" or arch.max_tokens is None or arch.max_tokens < 2:
        return ""
    return Message(" (", Option("context", arch.max_tokens - 1), " is within the limit)")


def _image_notes(arch: Architecture, work: Workload) -> list[Text]:
    if isinstance(arch.body, Network):
        note = (
            "batch norms are counted as separate kernels, as in eager PyTorch; inference compilers fold them into the "
            "convolutions at no cost"
        )
        folds = any(isinstance(part, Norm) and part.kind == "batchnorm" for part in arch.body.stem)
        return [note] if folds and work.phases != ("train",) else []
    if arch.image not in (None, work.image):
        made_for, size = (" × ".join(map(str, sides)) for sides in (arch.image, work.image))
        return [f"position embeddings of {made_for} pixels are interpolated to {size}"]
    return []


def device_notes(device: Device, work: Workload) -> list[Text]:
    """Missing figures of the device's file."""
    notes: list[Text] = []
    if device.vector_pipe(work.dtype) is None:
        notes.append(
            AnswerNote(
                f"{device.id} has no CUDA-core peak (pipe fp32 or fp64): the bound of vector operators is from bytes "
                "alone"
            )
        )
    notes += link_notes(device, work.communicating_gpus)
    return notes


def weight_format_notes(arch: Architecture, work: Workload, operators: Iterable[Operator]) -> Iterator[Text]:
    """The tensors that a narrow weight format applies to; matrices that a checkpoint converts in some layers only."""
    widths = work.widths
    if widths.weights.bits >= 16 or widths.weights == widths.dtype:
        return
    own_formats = dict(work.matrix_formats)
    names = dict.fromkeys(
        tensor.name
        for operator in operators
        for tensor in operator.parameters
        if tensor.name.startswith("W_") or tensor.name in own_formats
    )
    by_group: dict[str, set[str]] = {}
    for name in names:
        by_group.setdefault(group_of(name), set()).add(name)
    own = {group: members & widths.unconverted for group, members in by_group.items()}
    parts = [f"{'part of ' * (own[group] != by_group[group])}{group}" for group in own if own[group]]
    tables = [text for table, text in TABLES.items() if table not in own_formats]
    listed = f"{', '.join([*parts, *tables, 'norms'])} and biases"
    is_of_checkpoint = arch.quantization is not None and work.weights == arch.quantization.weights
    formats = dict.fromkeys((str(work.weights), *(form for name, form in work.matrix_formats if name in names)))
    unconverted_text = (
        Message(f"stay {widths.dtype.name}, as in quantized checkpoints")
        if widths.dtype.bits >= 16
        else Message(
            f"are counted in {widths.dtype.name}; quantized checkpoints keep them in 16 bits, as ",
            Option("activations", half_dtype(arch, str(DEFAULTS["dtype"]))),
            " does",
        )
    )
    yield Message(
        f"the quantization_config ({', '.join(formats)})"
        if is_of_checkpoint
        else Option("weights", work.weights or work.dtype),
        f" applies to the weight matrices of the layers; {listed} ",
        unconverted_text,
    )
    for form in dict.fromkeys(form for name, form in work.matrix_formats if name in names):
        stored = dict.fromkeys(group_of(name) for name, other in work.matrix_formats if other == form and name in names)
        yield f"the checkpoint stores {' and '.join(stored)} in {form}"
    if arch.quantization and work.matrix_formats:
        mixed = group_formats(arch.quantization, len(arch.stack.layers)).partly & names.keys()
        if groups := dict.fromkeys(group_of(name) for name in names if name in mixed):
            yield (
                f"the checkpoint stores {' and '.join(groups)} of fewer than half of the layers in another format; "
                f"these are counted in {work.weights}"
            )
    if arch.quantization and work.unconverted:
        partly = unconverted(arch.quantization, len(arch.stack.layers)).partly & names.keys()
        if groups := dict.fromkeys(group_of(name) for name in names if name in partly):
            yield (
                f"the checkpoint does not convert {' and '.join(groups)} in some layers; these are counted as converted"
            )
        modules = [module for name in names for module in MODULES.get(name, ())]
        unmatched = arch.quantization.unmatched(modules, len(arch.stack.layers))
        if unmatched.targets:
            targets = first_names(unmatched.targets)
            yield f"the checkpoint's quantization has targets that match no weight matrix: {targets}"
        if unmatched.ignored:
            yield (
                "the checkpoint's list of modules that are not converted has names that match no weight matrix: "
                f"{first_names(unmatched.ignored)}"
            )


def first_names(names: Sequence[str], most: int = 3) -> str:
    """The first names, and how many follow."""
    more = [f"{len(names) - most} more"] if len(names) > most else []
    return ", ".join([*map(shorten, names[:most]), *more])


def matmul_format_notes(arch: Architecture, device: Device, work: Workload) -> Iterator[Text]:
    """The options of fp8 GEMMs for an fp8 checkpoint: inference engines compute it so on devices with fp8 pipes."""
    widths = work.widths
    stored = {widths.weights.name, *(form.name for _, form in widths.by_matrix)}
    is_fp8 = arch.quantization is not None and bool(stored & {"fp8", "fp8_block"})
    if is_fp8 and work.phases != ("train",) and work.dtype == widths.dtype.name != "fp8" and "fp8" in device.types:
        yield AnswerNote(
            f"GEMMs are counted in {work.dtype}; for fp8 GEMMs use ", Option("dtype", "fp8"), " ",
            Option("activations", widths.dtype.name), " ", Option("kv", widths.kv.name),
        )  # fmt: skip


def memory_notes(device: Device, work: Workload, needed: Number) -> Iterator[Text]:
    """A warning if the workload fits into the whole memory, but not into the share that it may use."""
    dram = device.levels["dram"]
    if dram.capacity is None or not usable_memory(device, work) < needed <= dram.capacity:
        return
    ecc = f"ECC if enabled ({units.binary(ECC_SHARE * dram.capacity)} of {dram.kind})"
    yield WarningNote(
        f"{units.binary(dram.capacity - needed)} of {device.id}'s memory would be left for memory that is not "
        f"counted: CUDA context and libraries (some hundred MB), fragmentation"
        f"{f', {ecc}' if _ecc_uses_capacity(dram) else ''}; it fits with ",
        Option("memory_utilization", ceil(1000 * needed / dram.capacity) / 1000),
    )


def _ecc_uses_capacity(dram: Level) -> bool:
    """Whether ECC uses part of the stated capacity, as with GDDR; HBM has extra memory for it."""
    return (dram.kind or "").startswith("GDDR")


def link_notes(device: Device, gpus: int) -> Iterator[Text]:
    """The links between this number of GPUs, and missing figures of them."""
    if gpus > 1 and not device.links:
        yield AnswerNote(f"{device.id} has no link between GPUs: the bound of communication is from DRAM bytes alone")
    elif gpus > gpus_per_node(device) and (network := device.network):
        yield (
            f"between nodes of {gpus_per_node(device)} GPUs: {network.name}, "
            f"{units.si(network.bandwidth / 2, 'B/s')} per GPU and direction; rank order: TP, DP, PP"
        )
    elif gpus > gpus_per_node(device):
        yield WarningNote(
            f"{gpus} GPUs exceed one node of {gpus_per_node(device)}, and {device.id}'s file has no network "
            "between nodes: the links within a node are used for all of them"
        )


def gpus_per_node(device: Device) -> int:
    """GPUs per node."""
    return device.network.beyond or DEFAULT_GPUS_PER_NODE if device.network else DEFAULT_GPUS_PER_NODE


def exchange_notes(estimates: Sequence[PhaseEstimate]) -> Iterator[str]:
    """The algorithm that the times of an all-to-all assume."""
    if any(
        each.operator.collective and each.operator.collective.active for phase in estimates for each in phase.placed
    ):
        yield (
            "all-to-all: a token is sent once to each GPU, and between nodes once to each node, that has any of its "
            "experts (as DeepEP does); engines that gather all tokens on all GPUs send more"
        )


def straggler_notes(device: Device, work: Workload) -> Iterator[Text]:
    """The wait for the slowest GPU where a training step does not include it: only replicas under PyTorch's wrappers
    do, and of the steps that Megatron-LM's authors published, the expected times are right without it."""
    layout = work.parallel
    in_replica = int(layout.tp * layout.pp)
    if work.phases != ("train",) or device.calibration is None:
        return
    if work.data_parallel in ("ddp", "dataparallel"):
        if in_replica > 1:
            yield straggler_note(in_replica, f"the {in_replica} GPUs of a replica")
    elif layout.gpus > 1:
        suggestion = ("; ", Option("data_parallel", "ddp"), " counts it") if in_replica == 1 else ()
        yield AnswerNote(straggler_note(layout.gpus, f"{layout.gpus} GPUs"), *suggestion)


def straggler_note(gpus: int, which: str) -> AnswerNote:
    """That the wait for the slowest of so many GPUs is not counted, and how long it may be."""
    from roofmodel.timing.replicas import slowest_of

    return AnswerNote(
        f"the wait for the slowest of {which} is not counted: about {slowest_of(gpus):.1%} of a step if GPUs differ in "
        "speed as on clusters of V100"
    )


def utilization_notes(estimates: Sequence[PhaseEstimate]) -> Iterator[str]:
    """Phases whose MFU exceeds 100 % because it counts masked pairs (PaLM, arXiv 2204.02311, appendix B)."""
    for phase in estimates:
        used, (peak, _) = phase.expected, phase.ceilings
        if used and plain(phase.model_flops) > peak * plain(used.value):
            yield (
                f"the MFU of {phase.step.phase} is above 100 %: its definition counts all pairs of tokens, and flash "
                "attention skips masked pairs"
            )


def eager_notes(work: Workload, estimates: Sequence[PhaseEstimate]) -> Iterator[AnswerNote]:
    """With the default engine of decoders: the time of a decode in eager PyTorch, if its launches take longer."""
    phase = estimates[-1]
    if work.options.engine or phase.step.phase != "decode" or phase.expected is None:
        return
    eager = Engine.load(default_for("other"))
    launch = eager.launch_seconds or 0.0
    if phase.launch.value == 0 and phase.kernels * launch > plain(phase.expected.value):
        yield AnswerNote(
            f"in eager {eager.name} a decode takes about {units.seconds(phase.kernels * launch)} and is launch-bound: "
            f"the host launches {phase.kernels} operators at {units.seconds(launch)} each; see ",
            Option("engine", eager.id),
        )  # fmt: skip


def launch_notes(estimates: Sequence[PhaseEstimate]) -> Iterator[Text]:
    """Launch-bound phases; of generation the stage, if the other one is not launch-bound."""
    for phase in estimates:
        if not phase.launch_bound:
            continue
        of_stages = {stage: phase.of_stage(stage) for stage in phase.stages}
        waiting = [
            (stage, launches(placed))
            for stage, placed in of_stages.items()
            if phase.step.phase == "generate" and is_launch_bound(sum_of(placed), launches(placed) * phase.launch)
        ]
        name, count = waiting[0] if len(waiting) == 1 else (phase.step.phase, phase.kernels)
        yield AnswerNote(
            f"{name} {'are' if name == 'decodes' else 'is'} launch-bound: {count} operator launches at "
            f"{units.seconds(phase.launch.value)} each take longer than the kernels; see ",
            Option("engine_option", "launch=graph"),
            *([Message(" or ", Option("engine", default_for("decoder_inference")))] if phase.step.cached else []),
        )
