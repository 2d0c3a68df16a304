"""The estimate of a workload: operator counts, memory, and the bound and expected time of each phase on a device; and
models, workloads and phases in words.

The bound needs the datasheet only. The expected time comes from the timing model; it is None if the device is not
calibrated for every operator. There is no efficiency factor.

Totals of a phase are by their JSON keys, in base units; None for unknown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any, NamedTuple

from roofmodel.counting import passes, phases
from roofmodel.counting.operator import Operator
from roofmodel.counting.tensors import FORMATS
from roofmodel.counting.workload import ONE_GPU, Parallel, Step, Workload
from roofmodel.devices.device import Device
from roofmodel.errors import Text
from roofmodel.models.architecture import Architecture, Stack, has_experts
from roofmodel.models.layers import Attention, AttentionPart, LatentAttention
from roofmodel.numbers import units
from roofmodel.numbers.algebra import Number, plain
from roofmodel.options.values import MAX_VALUE, VISION
from roofmodel.steps.capacity import (
    MemoryFormula,
    StartMemory,
    fewest_requests,
    largest_batch,
    largest_context,
    needed_bytes,
    server_starts,
    usable_memory,
)
from roofmodel.steps.notes import (
    device_notes,
    eager_notes,
    exchange_notes,
    halves_notes,
    kernel_notes,
    launch_notes,
    matmul_format_notes,
    memory_notes,
    model_notes,
    straggler_notes,
    weight_format_notes,
)
from roofmodel.steps.options import check_kernels, workload
from roofmodel.steps.phase import (
    PhaseEstimate,
    StageTime,
    is_launch_bound,
    latencies,
    pass_time,
    slowest_stage,
    stage_time,
    without_cache,
)
from roofmodel.steps.placed import NO_TIME, hidden_of, launches, power_notes, step_energy, sum_of, totals_of, under_load
from roofmodel.timing.timing import Expected

if TYPE_CHECKING:
    from roofmodel.steps.input_pipeline import InputPipeline, Loader
    from roofmodel.steps.training_options import Goodput, MeasuredStep, TrainingLength


MOST_STAGES_SHOWN = 16
"""The most pipeline stages whose layers the description of a workload lists."""


class Estimate(NamedTuple):
    """A model on a device under a workload."""

    architecture: Architecture
    device: Device
    workload: Workload
    parameters: int
    active_parameters: int  # of one token: MoE routes it to some of the experts
    phases: tuple[PhaseEstimate, ...]
    memory: passes.Memory  # without the sizes of weights in an unknown format, see `has_total`
    memory_of_all: Number  # bytes of all GPUs, each at its peak
    notes: tuple[Text, ...]
    largest_batch: int | None  # that fits; None where the device's memory or the weights' format is unknown
    largest_context: int | None  # that fits, of --context if given, else of --seq; None also where any length fits
    starts: tuple[StartMemory, ...] = ()  # of a serving engine that states its memory: each distinct pipeline stage
    input_pipeline: InputPipeline | None = None  # of the phase, with --loader
    measured: MeasuredStep | None = None  # of training, with --measured
    goodput: Goodput | None = None  # of a training run, with --mtbf
    run: TrainingLength | None = None  # of a training run, with --tokens

    @property
    def has_total(self) -> bool:
        """Whether the total of the memory is known: that the format of the weights is."""
        return self.workload.weights_known

    @property
    def usable_memory(self) -> Number | None:
        """The bytes that the workload may use: `--memory-utilization` of the device's memory; None if unknown."""
        return None if self.device.capacity is None else usable_memory(self.device, self.workload)

    @property
    def fits(self) -> bool | None:
        """Whether the workload fits into the usable memory; None where the device's memory or the weights' format is
        unknown."""
        if self.usable_memory is None or not self.has_total:
            return None
        return bool(self.needed <= self.usable_memory)

    @property
    def needed(self) -> Number:
        """The bytes per GPU that count against the usable ones: all roles, or what the engine needs to start and serve
        the workload."""
        return needed_bytes(self.starts, self.memory)

    @property
    def start(self) -> StartMemory | None:
        """What the serving engine reports when it starts; None where the engine or the device states no memory."""
        return fewest_requests(self.starts)


def estimate(
    arch: Architecture,
    device: Device,
    *,
    loader: Loader | None = None,
    measured: float | str | None = None,
    mtbf: float | None = None,
    checkpoint_time: float | str | None = None,
    tokens: float | str | None = None,
    **options: Any,
) -> Estimate:
    """The estimate of the workload that the options describe (see `options.Options`) on the device.

    With a `loader` also of the input pipeline of a training step or a forward pass; with the `measured` time or rate of
    a training step, what it is relative to the estimate; with `mtbf` and `checkpoint_time` the useful share of a run
    that fails; with `tokens` the length of a run.

    Raises WorkloadError for invalid options, and for a number format that the device does not support.
    """
    vision_notes: tuple[Text, ...] = ()
    if options.get("phase") == VISION:
        from roofmodel.steps.images import tower_workload

        arch, options, vision_notes = tower_workload(arch, options)
    work, notes = workload(arch, device, **options)
    device = under_load(device, work.options)
    check_kernels(work.engine, [device])
    estimates = [slowest_stage(arch, device, step, work.engine) for step in work.steps()]
    walk = passes.CachedWalks(_counted(estimates))
    first = phases.whole_model_step(work.steps()[0])
    all_operators = walk(arch, first._replace(parallel=ONE_GPU))
    formula = MemoryFormula(arch, work, phases.weight_bytes(arch, first, walk=walk))
    if work.phases == ("generate",):
        estimates = [_with_decodes(arch, device, work, estimates[0], formula, walk)]
    by_stage = [*phases.stage_memories(arch, work.steps(), formula.weights, walk=walk)]
    needed = reduce(passes.Memory.larger, (memory for _, memory in by_stage))
    starts = server_starts(arch, device, work, walk)
    needed_total = needed_bytes(starts, needed)
    usable = None if device.capacity is None or not work.weights_known else usable_memory(device, work)

    def total(sizes: Mapping[str, int]) -> Number:
        memory, length = formula.at(sizes), sizes.get("context", sizes.get("seq"))
        if length is None or work.options.max_len is not None:
            return needed_bytes(starts, memory)
        if work.engine.memory is None or not work.engine.memory.whole_prompts:
            # The longest request is one of the workload, whose cache `memory` counts.
            return needed_bytes([start._replace(request=0) for start in starts], memory)
        return needed_bytes(server_starts(arch, device, work, walk, length), memory)

    pipeline, loader_notes = _with_loader(arch, device, estimates[0], loader) if loader else (None, ())
    fitting: Iterable[Text] = ()
    slower: Iterable[Text] = ()
    if FORMATS[work.dtype].bits < 16:
        from roofmodel.steps.alternatives import slower_format_notes

        slower = slower_format_notes(arch, device, work, estimates, walk)
    if usable is not None and needed_total > usable:
        from roofmodel.steps.alternatives import fitting_notes

        fitting = fitting_notes(arch, device, work, needed, options, walk)
    answer = Estimate(
        architecture=arch,
        device=device,
        workload=work,
        parameters=passes.parameters(arch, all_operators),
        active_parameters=passes.active_parameters(arch, all_operators),
        phases=tuple(estimates),
        memory=needed,
        memory_of_all=sum(many * memory.total for many, memory in by_stage) * work.parallel.gpus // work.parallel.pp,
        notes=(
            *vision_notes,
            *arch.notes,
            *notes,
            *model_notes(arch, work),
            *device_notes(device, work),
            *weight_format_notes(arch, work, all_operators),
            *matmul_format_notes(arch, device, work),
            *_routing_notes(arch, work),
            *fitting,
            *(memory_notes(device, work, needed_total) if work.weights_known else ()),
            *halves_notes(work, estimates),
            *kernel_notes(device, work, estimates),
            *slower,
            *exchange_notes(estimates),
            *straggler_notes(device, work),
            *launch_notes(estimates),
            *power_notes(
                device, work.options, [(each.step.phase, energy_totals(each)["power_watts"]) for each in estimates]
            ),
            *eager_notes(work, estimates),
            *loader_notes,
        ),
        largest_batch=usable and largest_batch(formula, needed, usable, MAX_VALUE, total),
        largest_context=None if arch.image else usable and largest_context(formula, needed, usable, MAX_VALUE, total),
        starts=starts,
        input_pipeline=pipeline,
    )
    if (measured, mtbf, checkpoint_time, tokens) == (None, None, None, None):
        return answer
    from roofmodel.steps import training_options as training

    if measured is not None:
        answer = answer._replace(measured=training.measured_step(estimates, measured))
    if (mtbf, checkpoint_time) != (None, None):
        run = training.goodput(arch, estimates, mtbf, checkpoint_time)
        answer = answer._replace(goodput=run, notes=(*answer.notes, training.goodput_note()))
    if tokens is not None:
        answer = answer._replace(run=training.training_length(arch, estimates, tokens, answer.goodput))
    return answer


def _routing_notes(arch: Architecture, work: Workload) -> Iterable[Text]:
    """The assumption on the experts that tokens choose, of a model with experts."""
    if not has_experts(arch):
        return ()
    from roofmodel.steps.routing import routing_notes

    return routing_notes(arch, work.routing, work.parallel.ep)


def _with_loader(
    arch: Architecture, device: Device, phase: PhaseEstimate, loader: Loader
) -> tuple[InputPipeline | None, Iterable[Text]]:
    """The input pipeline of a phase, and its notes; None for a phase that reads no batches from a data loader."""
    from roofmodel.steps.input_pipeline import FED_PHASES, input_notes, input_pipeline

    pipeline = input_pipeline(arch, device, phase, loader) if phase.step.phase in FED_PHASES else None
    return pipeline, input_notes(pipeline, device)


def _with_decodes(
    arch: Architecture,
    device: Device,
    work: Workload,
    phase: PhaseEstimate,
    formula: MemoryFormula,
    walk: passes.CachedWalks,
) -> PhaseEstimate:
    """Generation with the times of its first and last decode, and its bound without a KV cache.

    Without a pipeline, the operators of both decodes come from the formula; `walk` keeps those of the last one.
    """
    decodes = []
    steps = phases.first_decode_step(phase.step), phases.last_decode_step(phase.step)
    for new_tokens, step in zip((1, work.new_tokens), steps, strict=True):
        if formula.generates:
            walk.add(step, formula.decode_operators(new_tokens))
            decodes.append(pass_time(arch, device, step, work.engine, walk(arch, step)))
        else:
            slowest = slowest_stage(arch, device, step, work.engine)
            decodes.append(StageTime(slowest.bound_seconds, slowest.expected))
    return phase._replace(uncached=without_cache(arch, device, phase.step), first_and_last=tuple(decodes))


def _counted(estimates: Sequence[PhaseEstimate]) -> Iterator[tuple[Step, Sequence[Operator]]]:
    """The passes of the phases whose operators are those of the whole model, and these operators."""
    for phase in estimates:
        if phase.step.parallel.pp > 1:
            continue
        if phase.step.phase == "generate":
            yield phases.prompt_step(phase.step), [each.operator for each in phase.of_stage("prefill")]
        elif phase.step.phase != "train":
            yield phase.step, phase.operators


def parameters(arch: Architecture) -> tuple[int, int]:
    """The number of parameters of a model, and how many of them are active for a token (MoE: the routed experts)."""
    all_operators = phases.model_operators(arch, workload(arch)[0].steps()[0])
    return passes.parameters(arch, all_operators), passes.active_parameters(arch, all_operators)


def describe_phase(phase: PhaseEstimate) -> str:
    """`decode: 8 × 1 token after 1024 cached tokens`, `forward: 32 images of 1024 × 768 pixels`, the width first."""
    step = phase.step
    if phase.is_vision:
        size = " × ".join(map(str, reversed(step.image)))
        images = f"{step.batch} image{'s' if step.batch != 1 else ''} of {size} pixels"
        return f"{step.phase}: {images}" + (f", {step.tokens} tokens each" if step.tokens else "")
    generates = step.phase == "generate"
    tokens = step.passes - 1 if generates else step.of_sequence.tokens
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
    parts = [work.recipe or work.dtype]
    layered = isinstance(estimate.architecture.body, Stack)
    scans = layered and not any(isinstance(p, AttentionPart) for p in estimate.architecture.stack.parts)
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
    parts += [f"{work.recompute} recomputation"] * (work.recompute != "none")
    if work.adapters:
        parts.append(f"LoRA of rank {work.adapters.rank} on {' '.join(work.adapters.targets) or 'all linear layers'}")
    return ", ".join(parts + describe_gpus(work.parallel))


def describe_gpus(parallel: Parallel) -> list[str]:
    """`["one of 8 GPUs (tp 4, dp 2, sequence-parallel)"]`; empty for one GPU."""
    if parallel.gpus == 1:
        return []
    degrees = [f"{name} {degree}" for name, degree in parallel.ways.items() if degree > 1]
    degrees += [parallel.cp_kind] * (parallel.cp_kind != "ring")
    if 0 < len(parallel.stage_layers) <= MOST_STAGES_SHOWN:
        degrees.append(f"{'+'.join(map(str, parallel.stage_layers))} layers")
    degrees += ["sequence-parallel"] * parallel.sequence
    if parallel.zero:
        degrees.append(f"ZeRO-{parallel.zero}" + (f" within {parallel.hsdp} replicas" if parallel.hsdp else ""))
    degrees += ["not resharded"] * (not parallel.reshards)
    return [f"one of {parallel.gpus} GPUs ({', '.join(degrees)})"]


def _windows(estimate: Estimate) -> Iterator[str]:
    """`window of 4096 tokens in 21 of 42 layers`, where the workload exceeds the sliding window."""
    layers = [part for part in estimate.architecture.stack.parts if isinstance(part, Attention | LatentAttention)]
    reach = max(phase.step.reach for phase in estimate.phases)
    for window, count in Counter(part.window for part in layers).items():
        if window is not None and window < reach:
            which = "all" if count == len(layers) else f"{count} of {len(layers)}"
            yield f"window of {window} tokens in {which} layers"


def describe_usable_memory(estimate: Estimate) -> str:
    """`72 GiB usable (90 % of 80)`, or `80 GiB` if the workload may use all of it; the device must state its memory."""
    assert estimate.usable_memory is not None
    assert estimate.device.capacity is not None
    device = estimate.device.driver_capacity if estimate.starts else estimate.device.capacity
    share = estimate.workload.options.memory_utilization
    assert device is not None
    assert share is not None
    capacity = units.binary(device)
    if share == 1:
        return capacity
    usable = units.binary(estimate.usable_memory)
    return f"{usable} usable ({100 * share:.3g} % of {without_unit_of(usable, capacity)})"


def without_unit_of(other: str, quantity: str) -> str:
    """A quantity without its unit, if the other one has the same: `3.22 of 72 GiB`."""
    number, _, unit = quantity.partition(" ")
    return number if other.endswith(f" {unit}") else quantity


def describe_rate(phase: PhaseEstimate, seconds: Number | None = None) -> str:
    """`1.23 k tokens/s`, or images/s for a vision model, if the phase takes `seconds`; by default its bound."""
    count, unit = (phase.sequences, "images") if phase.is_vision else (phase.tokens, "tokens")
    return f"{units.si(count / (phase.bound_seconds if seconds is None else seconds))} {unit}/s"


def totals(phase: PhaseEstimate) -> dict[str, Any]:
    """A phase's totals by their JSON keys, in base units; None for unknown.

    `mfu` and `hfu` are model and hardware FLOPs utilization of all GPUs (PaLM, arXiv 2204.02311, appendix B): model
    FLOPs exclude recomputation, and masked pairs except in `mfu_all_pairs`, which is None for attention to selected
    keys; hardware FLOPs are the executed ones. `mbu` is the memory bandwidth utilization of this stage's GPUs.
    """
    values = totals_of(phase.placed) | {"bound_seconds": phase.bound_seconds}
    expected, (peak, bandwidth) = phase.expected, phase.ceilings
    exchanged, hidden, added = sum_of(phase.exchanges), phase.hidden_seconds, phase.replicas.added
    if exchanged and (own := hidden_of(phase.exchanges)) is not NO_TIME:
        exchanged = exchanged + own
    seconds, images = expected and plain(expected.value), phase.sequences
    return {
        **values,
        **expected_totals(expected),
        "bound_tokens_per_second": phase.tokens / values["bound_seconds"] if phase.has_tokens else None,
        **({"bound_images_per_second": images / values["bound_seconds"]} if phase.is_vision else {}),
        "tokens_per_second": phase.tokens / seconds if expected and phase.has_tokens else None,
        **({"images_per_second": expected and images / seconds} if phase.is_vision else {}),
        "mfu": expected and plain(phase.mean_flops.model) / seconds / peak,
        "mfu_all_pairs": (
            None if phase.selects_keys else expected and plain(phase.mean_flops.all_pairs) / seconds / peak
        ),
        "hfu": expected and plain(phase.mean_flops.executed) / seconds / peak,
        "mbu": expected and plain(values["bytes"]) / seconds / bandwidth,
        "communication_seconds": sum(each.seconds for each in phase.exchanges),
        "expected_communication_seconds": exchanged and plain(exchanged.value),
        "communication_exposed_seconds": sum(each.seconds for each in phase.exchanges) - phase.hidden_bound,
        "expected_communication_exposed_seconds": exchanged and hidden and plain(exchanged.value) - plain(hidden.value),
        "expected_replica_seconds": added and plain(added.value),
        "bubble_seconds": phase.idle.bound,
        "expected_bubble_seconds": phase.idle.expected and plain(phase.idle.expected.value),
        "expected_host_seconds": expected and plain(phase.exposed_host_seconds),
        "kernels": phase.kernels,
        "host_bound": phase.host_bound if expected else None,
        "matmul_flops_all_pairs": phase.all_pairs_matmul_flops,
    }  # fmt: skip


def complete_totals(estimate: Estimate, phase: PhaseEstimate) -> dict[str, Any]:
    """A phase's totals by their JSON keys, with power and energy, and with what was measured of a training step, and of
    a run with failures."""
    measured = {"measured": estimate.measured._asdict()} if estimate.measured else {}
    goodput = {"goodput": estimate.goodput._asdict()} if estimate.goodput else {}
    run = {"run": estimate.run._asdict()} if estimate.run else {}
    return phase_totals(phase) | energy_totals(phase) | measured | goodput | run


def energy_totals(phase: PhaseEstimate) -> dict[str, Any]:
    """Power and energy of a phase, by their JSON keys; see `step_energy`."""
    tokens = phase.tokens if phase.step.phase in ("decode", "generate") else None
    return step_energy(phase.placed, phase.expected, phase.power, phase.step.parallel.gpus, tokens)


def expected_totals(expected: Expected | None) -> dict[str, Any]:
    """An expected time and the ends of its interval by their JSON keys."""
    return {
        "expected_seconds": expected and plain(expected.value),
        "expected_low_seconds": expected and plain(expected.low),
        "expected_high_seconds": expected and plain(expected.high),
    }


def generation_totals(phase: PhaseEstimate) -> dict[str, Any]:
    """End-to-end latency, time of the first and last decode, tokens/s per GPU and per user, by their JSON keys.

    A user sees one token per TPOT. The end-to-end latency of a request is the time of its prefill and all its decodes.
    Tokens/s per GPU: the tokens of the decodes, without the first one, which the prefill gives, divided by this time.
    """
    values: dict[str, Any] = {}
    expected, tpot, gpus = phase.expected, latencies(phase)["tpot"], phase.step.parallel.gpus
    tpot_seconds = tpot.expected and plain(tpot.expected.value)
    kinds: tuple[tuple[str, Any, Any], ...] = (
        ("bound_", phase.bound_seconds, tpot.bound),
        ("", expected and plain(expected.value), tpot_seconds),
    )
    for kind, seconds, per_token in kinds:
        outside = 0 if kind else plain(phase.outside_steps)
        values[f"{kind}e2e_seconds"] = seconds if seconds is None else seconds + outside
        values[f"{kind}tokens_per_second_per_gpu"] = None if seconds is None else phase.tokens / seconds / gpus
        values[f"{kind}tokens_per_second_per_user"] = None if per_token is None else 1 / per_token
    for name, step in zip(("first", "last"), phase.first_and_last, strict=False):
        values[f"tpot_{name}_seconds"] = step.expected and plain(step.expected.value)
        values[f"bound_tpot_{name}_seconds"] = step.bound
    return values


def phase_totals(phase: PhaseEstimate) -> dict[str, Any]:
    """A phase's totals by their JSON keys, with TTFT and TPOT of generation."""
    return totals(phase) | (latency_totals(phase) if phase.step.phase == "generate" else {})


def latency_totals(phase: PhaseEstimate) -> dict[str, Any]:
    """TTFT, TPOT, end-to-end latency, tokens/s per GPU and per user of a phase, by their JSON keys.

    A prefill alone has a TTFT, a decode alone a TPOT; tokens/s per GPU exist in every phase with tokens. Missing keys
    do not apply. The sizes may be arrays.
    """
    name, gpus, values = phase.step.phase, phase.step.parallel.gpus, dict[str, Any]()
    if name == "generate":
        for latency, time in latencies(phase).items():
            values[f"{latency}_seconds"] = time.expected and plain(time.expected.value)
            values[f"bound_{latency}_seconds"] = time.bound
        return values | generation_totals(phase)
    for kind, seconds in (("bound_", phase.bound_seconds), ("", phase.expected and plain(phase.expected.value))):
        if phase.has_tokens:
            values[f"{kind}tokens_per_second_per_gpu"] = None if seconds is None else phase.tokens / seconds / gpus
        if name == "prefill":
            outside = 0 if kind or seconds is None else plain(phase.outside_steps)
            values[f"{kind}ttft_seconds"] = seconds if seconds is None else seconds + outside
        elif name == "decode":
            values[f"{kind}tpot_seconds"] = seconds
            values[f"{kind}tokens_per_second_per_user"] = None if seconds is None else 1 / seconds
    return values


def stage_totals(phase: PhaseEstimate) -> dict[str, dict[str, Any]]:
    """Totals by stage, with JSON keys as in a phase's totals; empty for a phase without stages."""
    values = {}
    for stage in phase.stages:
        placed, time = phase.of_stage(stage), stage_time(phase, stage)
        kernels = sum_of(placed)
        values[stage] = {
            **totals_of(placed),
            "bound_seconds": time.bound,
            **expected_totals(time.expected),
            "kernels": launches(placed),
            "host_bound": kernels
            and (is_launch_bound(kernels, launches(placed) * phase.launch) or phase.waits_for_host(stage, kernels)),
        }
    return values
