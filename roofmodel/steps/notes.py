"""Notes of an estimate: exceeded limits of the model and device, formats, and the basis of expected times."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from math import ceil
from operator import or_
from typing import Any

from roofmodel.counting.operator import Operator
from roofmodel.counting.workload import Step, Workload
from roofmodel.devices.calibration import Calibration
from roofmodel.devices.device import Device
from roofmodel.devices.parts import Level
from roofmodel.engines.engine import Engine, default_for, is_chosen
from roofmodel.engines.engine_file import CHOICES
from roofmodel.errors import AnswerNote, Message, Option, Text, WarningNote, shorten
from roofmodel.models.architecture import Architecture, Network
from roofmodel.models.layers import Norm
from roofmodel.numbers import units
from roofmodel.numbers.algebra import Number, plain
from roofmodel.options.workload import DEFAULTS
from roofmodel.steps.capacity import server_states_memory, usable_memory
from roofmodel.steps.options import half_dtype
from roofmodel.steps.phase import PhaseEstimate, is_launch_bound
from roofmodel.steps.placed import Placed, launches, sum_of
from roofmodel.timing import parameter_sets
from roofmodel.timing.engine import Timing
from roofmodel.timing.gemm import LOADS, aligned_share
from roofmodel.timing.timing import CONVOLUTION_LIBRARY, gemm_load, gemm_work, kernel_parameters

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
    beyond = [step for step in work.steps() if limit is not None and _positions_needed(work, step) > limit]
    if beyond:
        first, *others = beyond
        reached = " and ".join([f"{first.phase} reaches {first.reach}", *(f"{s.phase} {s.reach}" for s in others)])
        notes.append(
            WarningNote(
                f"{reached} tokens, but {arch.name} has positions for {limit}; the limit is not enforced",
                _within_limit(arch, first) if not others else "",
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
    from roofmodel.counting.quantized_modules import MODULES, TABLES, group_formats, group_of, unconverted

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
    dram, driver = device.levels["dram"], device.driver_capacity
    if server_states_memory(device, work) and work.engine.memory and driver is not None:
        if usable_memory(device, work) < needed <= driver and work.engine.memory.share_of == "device":
            share = ceil(1000 * needed / driver) / 1000
            yield WarningNote(f"{work.engine.name} would start with ", Option("memory_utilization", share))
        return
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
    """The wait for the slowest GPU of a replica, which a training step does not include: of the steps that the authors
    of Megatron-LM published for one replica, the expected times are right without it."""
    in_replica = int(work.parallel.tp * work.parallel.cp * work.parallel.pp)
    if work.phases == ("train",) and device.calibration is not None and in_replica > 1:
        several = work.parallel.weight_copies > 1
        yield straggler_note(in_replica, f"the {in_replica} GPUs of a replica" if several else f"{in_replica} GPUs")


def straggler_note(gpus: int, which: str) -> AnswerNote:
    """That the wait for the slowest of so many GPUs is not counted, and how long it may be."""
    from roofmodel.timing.collectives import slowest_of

    return AnswerNote(
        f"the wait for the slowest of {which} is not counted: about {slowest_of(gpus):.1%} of a step if GPUs differ in "
        "speed as on clusters of V100"
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


KERNEL_KINDS = {
    "gemm": "GEMM", "prefill_attention": "prefill attention", "decode_attention": "decode attention",
    "experts": "MoE", "collectives": "collective", "elementwise": "elementwise",
    "encoder_attention": "encoder attention", "latent_prefill": "latent prefill attention",
    "latent_decode": "latent decode attention", "latent_products": "absorbed projection",
    "causal_convolution": "causal convolution", "causal_convolution_update": "causal convolution",
    "delta_rule_prefill": "delta-rule", "delta_rule_decode": "delta-rule", "kda_prefill": "delta-rule",
    "kda_decode": "delta-rule", "kda_convolution_update": "causal convolution", "index_prefill": "indexer",
    "index_decode": "indexer", "index_choose": "top-k", "streams_collapse": "hyper-connection",
    "streams_expand": "hyper-connection", **dict.fromkeys(parameter_sets.SPARSE, "sparse attention"),
}  # fmt: skip
"""The kinds of kernels in a device's calibration, by their names in its file."""
MIN_COLUMNS = 8  # a narrower matrix, such as a head of two classes, takes no time that its alignment could cost
CACHED = (
    "prefill_attention",
    "decode_attention",
    "encoder_attention",
    "latent_prefill",
    "latent_decode",
    *parameter_sets.SPARSE,
)
"""The kinds whose stored format is that of the KV cache; of the others, it is that of the weights."""


def halves_notes(work: Workload, estimates: Sequence[PhaseEstimate]) -> Iterator[Text]:
    """Phases that an engine with halves does not divide, and those that take longer as halves."""
    if work.engine.halves is None:
        return
    from roofmodel.steps.overlap import exchanges_with_experts

    for phase in estimates:
        step, before, after = phase.step, phase.undivided_seconds, phase.kernel_seconds
        of_replica = f"{step.batch} sequence{'s' if step.batch > 1 else ''} of a replica"
        if before is None or after is None:
            if not any(map(exchanges_with_experts, phase.placed)):
                yield (
                    f"{step.phase} is not divided into halves: it exchanges no tokens with experts, which replicas "
                    "share with --dp and --ep"
                )
        elif before == after:
            yield f"{step.phase} of {of_replica} is not divided into halves: it has too few sequences or tokens"
        elif after.value > before.value:
            yield WarningNote(
                f"{step.phase} of {of_replica} is expected to take longer as two halves, {units.seconds(after.value)} "
                f"instead of {units.seconds(before.value)} in kernels: each half reads the weights of layers with "
                "experts and has the latency of each kernel and exchange"
            )


def kernel_notes(device: Device, work: Workload, estimates: Sequence[PhaseEstimate]) -> Iterator[AnswerNote]:
    """The basis of expected times, and kernels with parameters of other formats or other kernels."""
    timing = Timing(device, work.engine)
    yield from timing_notes(device, estimates)
    yield from format_notes(timing, (each for phase in estimates for each in phase.operators), work.widths.compute)
    yield from borrowed_notes(timing, estimates)
    yield from choice_notes(timing, estimates)
    yield from alignment_notes(timing, (each for phase in estimates for each in phase.operators))


def timing_notes(device: Device, estimates: Sequence[PhaseEstimate]) -> Iterator[AnswerNote]:
    """The basis of expected times, or why there are none."""
    operators = [placed for phase in estimates for placed in phase.placed]
    unknown = sorted({placed.operator.kind for placed in operators if placed.expected is None})
    if device.calibration is None:
        yield AnswerNote(f"{device.id} is not calibrated, so it has no expected times; see roof calibrate")
    elif device.missing_timing_fields:
        missing = " and ".join(device.missing_timing_fields)
        yield AnswerNote(
            f"there are no expected times: {device.id}'s file lacks {missing}, which the timing model needs"
        )
    elif unknown:
        times = "expected times" if all(placed.expected is None for placed in operators) else "totals of expected times"
        yield AnswerNote(f"there are no {times}: {device.id} is not calibrated for {', '.join(unknown)}")
    elif waiting := [phase.step.phase for phase in estimates if phase.expected is None]:
        yield AnswerNote(
            f"there is no expected time of {' and '.join(waiting)}: stages wait for transfers between stages, and "
            f"{device.id} is not calibrated for these"
        )
    else:
        communicates = any(phase.step.parallel.gpus > 1 for phase in estimates)
        for source_device, kinds in device.calibration.transferred.items():
            used = _kernel_kinds(operators, device.calibration)
            computing = [kind for kind in kinds if kind in used]
            # Collectives have a note of their own, because some cases of a sweep may run on one GPU.
            for shown in (computing, ["collectives"] if communicates and "collectives" in kinds else []):
                if names := _listed(dict.fromkeys(KERNEL_KINDS[kind] for kind in shown)):
                    yield AnswerNote(
                        f"{names} kernels are not calibrated on {device.id}; {source_device} parameters scaled to its "
                        "datasheet are used"
                    )
        scans = [each.operator for each in operators if each.operator.kind == "scan"]
        if names := ", ".join(dict.fromkeys(each.name for each in scans if not parameter_sets.kind(each))):
            yield AnswerNote(
                f"the expected time of {names} has no evidence: no measurements of this scan exist, so the time to "
                "read and write its data is used"
            )
        if any(_is_default_convolution(each, device.calibration) for each in operators):
            yield AnswerNote(
                "convolutions are expected with the kernels that PyTorch chooses by default; with "
                "torch.backends.cudnn.benchmark = True, these times are 2 to 37 % longer than published ones"
            )


def _listed(names: Iterable[str]) -> str:
    """`a, b and c`; empty for no name."""
    *first, last = [*names] or [""]
    return f"{', '.join(first)} and {last}" if first else last


def _kernel_kinds(placed: Sequence[Placed], calibration: Calibration) -> set[str]:
    """The kinds of parameters of all operators but collectives."""
    operators = [each.operator for each in placed if each.operator.collective is None]
    return {kernel_parameters(each, calibration, each.widths.compute).kind for each in operators}


def _is_default_convolution(placed: Placed, calibration: Calibration) -> bool:
    """Whether the expected time comes from a trace with PyTorch's default choice of cuDNN's algorithms."""
    if placed.operator.kind != "conv":
        return False
    chosen = kernel_parameters(placed.operator, calibration, placed.operator.widths.dtype.name).chosen
    return chosen is not None and chosen.implementation == CONVOLUTION_LIBRARY


def alignment_notes(timing: Timing, operators: Iterable[Operator]) -> Iterator[AnswerNote]:
    """The GEMMs whose rows are not multiples of 16 bytes, and what this costs, where it was measured."""
    device, names = timing.device, dict[str, int]()
    for operator in map(timing.executed, operators):
        if device.calibration is None or operator.kind != "gemm":
            continue
        dtype = operator.compute_dtype(operator.widths.compute)
        work = gemm_work(operator, dtype)
        load = work and gemm_load(operator, work, device, dtype, timing)
        if work and load and load < LOADS[0] and min(work.n, work.k) >= MIN_COLUMNS:
            names[operator.name] = load
    for load in sorted(set(names.values())):
        of_load = [name for name, own_load in names.items() if own_load == load]
        subject = (
            f"{first_names(of_load)} {'has' if len(of_load) == 1 else 'have'} rows that are not multiples of 16 bytes"
        )
        if device.unaligned is None:
            loss = (
                f"the expected time does not include this loss, which is not measured on {device.id} (an H100 reaches "
                "11 to 28 % of its rate)"
            )
        else:
            share = aligned_share(load, device.unaligned)
            loss = f"{device.id} runs such GEMMs at {share:.0%} of its rate; pad them to a multiple of 8 values"
        yield AnswerNote(f"{subject}: {loss}")


def format_notes(timing: Timing, operators: Iterable[Operator], dtype: str) -> Iterator[AnswerNote]:
    """The kinds of kernels whose parameters were fitted to other formats than those of the operators.

    `dtype` is the compute format of GEMMs. bf16 and fp16 have the same parameters.
    """
    device = timing.device
    kinds_by_formats: dict[tuple[str, str, bool], dict[str, None]] = {}
    for operator in operators:
        if operator.collective is None:
            parameters = timing.parameters(timing.executed(operator), dtype)
            if parameters is None or parameters.chosen is None or not parameters.chosen.is_substitute:
                continue
            kind, key, chosen = parameters
            assert chosen is not None
            widths = operator.widths
            half = "bf16" if "bf16" in (dtype, widths.dtype.name, widths.kv.name) else "fp16"
            own, other = (_format_text(kind, each, half) for each in (key, chosen.format_key))
            if own != other:
                kinds_by_formats.setdefault((own, other, _has_unscaled_fp4(kind, key)), {})[KERNEL_KINDS[kind]] = None
    for (own, other, is_unscaled), kinds in kinds_by_formats.items():
        note = (
            f"{_listed(kinds)} kernels have no parameters for {own} on {device.id}; those of {other} are used, with a "
            "wider interval"
        )
        if is_unscaled:
            yield AnswerNote(f"{note} (", Option("weights", "nvfp4"), " counts the scales)")
        else:
            yield AnswerNote(note)


def borrowed_notes(timing: Timing, estimates: Sequence[PhaseEstimate]) -> Iterator[AnswerNote]:
    """The kinds of kernels of an engine that have no parameters, and the kernels whose parameters are used.

    Parameters for other formats have a note of their own.
    """
    engine, device = timing.engine, timing.device
    kinds: dict[str, dict[str, None]] = {}
    for placed in (placed for phase in estimates for placed in phase.placed):
        by = placed.run.formula
        if by is not None and not by.is_substitute and timing.is_of_other_engine(by):
            kinds.setdefault(by.implementation, {})[KERNEL_KINDS[by.kind]] = None
    for implementation, names in kinds.items():
        yield AnswerNote(
            f"{_listed(names)} kernels of {engine.name} have no parameters for {device.id}; those of "
            f"{implementation!r} are used"
        )


def choice_notes(timing: Timing, estimates: Sequence[PhaseEstimate]) -> Iterator[AnswerNote]:
    """The kernels that an option of the engine chose, where none of them has parameters."""
    engine, device = timing.engine, timing.device
    formulas = [placed.run.formula for phase in estimates for placed in phase.placed if placed.run.formula is not None]
    for key, value in engine.settings:
        used = {by.kind: by.implementation for by in formulas if by.kind in CHOICES.get(key, ())}
        chosen = [name for name in engine.names(*used) if is_chosen(name, value)]
        others = dict.fromkeys(used.values())
        if chosen and not any(is_chosen(name, value) for name in others):
            yield AnswerNote(
                Option("engine_option", f"{key}={value}"),
                f": {engine.name}'s {', '.join(chosen)} {'has' if len(chosen) == 1 else 'have'} no parameters on "
                f"{device.id} for these formats; {' and '.join(others)} {'is' if len(others) == 1 else 'are'} used",
            )


def _has_unscaled_fp4(kind: str, format_key: str) -> bool:
    """Whether a GEMM has the default weights of fp4: fp4 is a format of arithmetic, and stored weights have scales."""
    return kind in ("gemm", "experts") and format_key == "fp4/fp4"


def _format_text(kind: str, format_key: str, half: str) -> str:
    """The formats of a format key, such as `fp16 with int4 weights`.

    `half` is the 16-bit format of the workload.
    """
    if _has_unscaled_fp4(kind, format_key):
        return "fp4 weights without scales"
    names = [half if name == "fp16" else name for name in format_key.split("/")]
    if len(set(names)) == 1:
        return names[0]
    return f"{names[0]} with {names[1]} {'KV cache' if kind in CACHED else 'weights'}"
