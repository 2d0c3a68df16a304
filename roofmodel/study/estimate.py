"""The main job: a model, a workload and a device -> what must be done, how fast it could go, and how fast it will.

The bound needs the datasheet only. The expectation is the timing model's, and None where the device is not calibrated
for every operator: there is no efficiency factor to multiply with.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from inspect import signature
from typing import Any, NamedTuple, get_args

from roofmodel.algebra import Number, maximum
from roofmodel.counting import memory, phases
from roofmodel.counting.operator import Cost, Operator
from roofmodel.counting.widths import COMPUTE_FORMATS, FORMATS
from roofmodel.counting.workload import NO_IMAGE, Optimizer, Phase, Recompute, Step, Workload
from roofmodel.devices.device import Device
from roofmodel.errors import WorkloadError, choices, shorten
from roofmodel.models.architecture import Architecture, Attention, LatentAttention, Network, Norm, Patches
from roofmodel.prediction.engine import expect_eager, expect_fused
from roofmodel.prediction.roofline import Placement, place
from roofmodel.prediction.timing import EAGER_LAUNCH, Expected
from roofmodel.study.fitting import largest_batch, largest_context

DEFAULT_SEQ = 1024
NEW_TOKENS = 128
LONGEST = 10**9
TRAINED_BITS = 16  # at least, of formats that training is counted with


NO_TIME = Expected(0.0, 0.0, 0.0)


class Placed(NamedTuple):
    """An operator and where one occurrence of it stands under the roofs."""

    operator: Operator
    placement: Placement
    expected: Expected | None = None  # of one occurrence

    @property
    def cost(self) -> Cost:
        """The cost of all occurrences together."""
        return self.operator.count * self.placement.cost

    @property
    def seconds(self) -> Number:
        """The bound of all occurrences together."""
        return self.operator.count * self.placement.bound_seconds


class PhaseEstimate(NamedTuple):
    """A phase: its operators placed, and its totals over all occurrences."""

    step: Step
    placed: tuple[Placed, ...]
    all_pairs_matmul_flops: Number  # what eager attention would compute, masked pairs and all
    uncached: tuple[Placed, ...] | None = None  # generation: the same without a KV cache
    ceilings: tuple[float, float] = (1.0, 1.0)  # FLOP/s of the pipe that multiplies, bytes per second of DRAM
    launch: Expected = NO_TIME  # in which the host launches a kernel, where it launches them one by one

    def of(self, stage: str) -> list[Placed]:
        """The operators of one stage."""
        return [placed for placed in self.placed if placed.operator.stage == stage]

    @property
    def cost(self) -> Cost:
        return total_cost(self.placed)

    @property
    def bound_seconds(self) -> Number:
        return total_seconds(self.placed)

    @property
    def kernels(self) -> int:
        """How many kernels the phase launches: one an operator."""
        return sum(placed.operator.count for placed in self.placed)

    @property
    def kernel_seconds(self) -> Expected | None:
        """What all kernels are expected to take, one after the other; None where one of them is not known."""
        total = NO_TIME
        for placed in self.placed:
            if placed.expected is None:
                return None
            total = total + placed.operator.count * placed.expected
        return total

    @property
    def expected(self) -> Expected | None:
        """The step: its kernels, or the host's launches where those take longer."""
        kernels, host = self.kernel_seconds, self.kernels * self.launch
        return kernels and Expected(*(maximum(*pair) for pair in zip(kernels, host, strict=True)))

    @property
    def host_bound(self) -> bool:
        """Whether the host is expected to launch kernels more slowly than the device runs them."""
        kernels = self.kernel_seconds
        return kernels is not None and self.kernels * self.launch.seconds > kernels.seconds

    @property
    def tokens(self) -> Number:
        """New tokens over the batch: those that the pass takes in, source and all, or those that generation gives."""
        step = self.step
        if step.phase == "generate":
            return step.batch * (step.passes - 1)
        return step.batch * (step.tokens + (step.source if step.encodes else 0))

    @property
    def images(self) -> Number:
        """Images that the pass takes in; 0 where it reads text."""
        return self.step.batch if self.step.image != NO_IMAGE else 0

    @property
    def bound_tokens_per_second(self) -> Number:
        return self.tokens / self.bound_seconds

    @property
    def bound_images_per_second(self) -> Number:
        return self.images / self.bound_seconds


def total_cost(placed: Iterable[Placed]) -> Cost:
    """The cost of all occurrences of all operators."""
    return sum((p.cost for p in placed), Cost())


def total_seconds(placed: Iterable[Placed]) -> Number:
    """The bound of all occurrences of all operators."""
    return sum(p.seconds for p in placed)


class Estimate(NamedTuple):
    """A model on a device under a workload."""

    architecture: Architecture
    device: Device
    workload: Workload
    parameters: int
    active_parameters: int  # those that a token meets: of a mixture of experts, not all
    phases: tuple[PhaseEstimate, ...]
    memory: memory.Memory
    notes: tuple[str, ...]
    largest_batch: int | None  # that fits; None where the device's memory is not known
    largest_context: int | None  # likewise the value of --context if given, else --seq; None too where any length fits

    @property
    def fits(self) -> bool | None:
        """Whether the memory fits the device's; None where the device's is not known."""
        capacity = self.device.capacity
        return None if capacity is None else bool(self.memory.total <= capacity)


def estimate(arch: Architecture, device: Device, **options: Any) -> Estimate:
    """Count the workload that the options describe (see `workload`) and place it on the device.

    Raises WorkloadError for options that make no sense, or a type that the device lacks.
    """
    work, notes = workload(arch, **options)

    found = [phase_estimate(arch, device, step, work.runtime) for step in work.steps()]
    held, active = _parameters(arch, work)
    weights = phases.weight_bytes(arch, work.steps()[0])
    return Estimate(
        architecture=arch,
        device=device,
        workload=work,
        parameters=held,
        active_parameters=active,
        phases=tuple(found),
        memory=phases.need(arch, work, weights),
        notes=(
            *arch.notes,
            *notes,
            *_model_notes(arch, work),
            *_device_notes(device, work),
            *_timing_notes(device, found),
        ),
        largest_batch=device.capacity and largest_batch(arch, work, weights, device.capacity, LONGEST),
        largest_context=None
        if arch.image
        else device.capacity and largest_context(arch, work, weights, device.capacity, LONGEST),
    )


def phase_estimate(arch: Architecture, device: Device, step: Step, runtime: str) -> PhaseEstimate:
    """One phase on the device. Raises WorkloadError where the device lacks the working format."""
    dtype = step.widths.dtype.name

    def placed(operators: Iterable[Operator]) -> tuple[Placed, ...]:
        return tuple(Placed(op, place(op.cost, device, dtype)) for op in operators)

    eager = phases.operators(arch, step._replace(attention="eager"))
    phase = PhaseEstimate(
        step,
        placed(phases.operators(arch, step)),
        all_pairs_matmul_flops=sum(op.total.matmul_flops for op in eager),
        uncached=placed(phases.uncached(arch, step)) if step.phase == "generate" else None,
        ceilings=(device.matmul_pipe(dtype).peak, device.bandwidth),
    )
    return timed(phase, device, runtime)


def timed(phase: PhaseEstimate, device: Device, runtime: str) -> PhaseEstimate:
    """The phase with the times that are expected where the host launches each kernel (`eager`) or a `graph`."""
    operators, dtype = [placed.operator for placed in phase.placed], phase.step.widths.dtype.name
    expect = expect_fused if runtime == "graph" else expect_eager
    times = expect(operators, device, dtype)
    return phase._replace(
        placed=tuple(placed._replace(expected=time) for placed, time in zip(phase.placed, times, strict=True)),
        launch=EAGER_LAUNCH if runtime == "eager" else NO_TIME,
    )


def parameters(arch: Architecture) -> tuple[int, int]:
    """How many parameters a model has, and how many of them a token meets."""
    return _parameters(arch, workload(arch)[0])


def _parameters(arch: Architecture, work: Workload) -> tuple[Any, Any]:
    whole = phases.whole(arch, work.steps()[0])
    return memory.parameters(arch, whole), memory.met_parameters(arch, whole)


# --- Options -> Workload ----------------------------------------------------------------------------


def workload(
    arch: Architecture,
    *,
    phase: str | None = None,
    batch: int = 1,
    seq: int | None = None,
    context: int | None = None,
    dtype: str = "fp16",
    weights: str | None = None,
    kv: str | None = None,
    attention: str = "flash",
    logits: str | None = None,
    new_tokens: int | None = None,
    image: int | None = None,
    mla: str = "absorbed",
    optimizer: str | None = None,
    recompute: str = "none",
    decoder_seq: int | None = None,
    runtime: str = "eager",
    **others: Any,
) -> tuple[Workload, tuple[str, ...]]:
    """The Workload of the command line's options, checked, with notes on options that do not apply."""
    phases = _phases(arch, phase)
    _choice("attention", attention, ("flash", "eager"))
    _choice("dtype", dtype, COMPUTE_FORMATS)
    for name, value in (("weights", weights), ("kv", kv)):
        if value is not None:
            _choice(name, value, tuple(FORMATS))
    if logits is not None:
        _choice("logits", logits, ("last", "all"))
    _choice("mla", mla, ("absorbed", "naive"))
    _choice("runtime", runtime, ("eager", "graph"))
    _whole("batch", batch, 1)
    notes = []
    if seq is not None:
        _whole("seq", seq, 1)
    if image is not None:
        _whole("image", image, 1)
    pixels = NO_IMAGE
    if arch.image:
        pixels = (image, image) if image else arch.image
        if seq is not None:
            notes.append(f"--seq is ignored: {arch.name} reads images; --image says how large")
        seq = _tokens(arch, pixels)
    elif image is not None:
        notes.append(f"--image is ignored: {arch.name} takes no images")
    if seq is None:
        seq = arch.padded_to or _within(arch.max_source if arch.encoder else arch.max_tokens, DEFAULT_SEQ)
    if decoder_seq is not None:
        _whole("decoder-seq", decoder_seq, 1)
        if not arch.encoder:
            notes.append(f"--decoder-seq is ignored: {arch.name} is no encoder-decoder")
    decoder_seq = decoder_seq or _within(arch.max_tokens, seq) if arch.encoder else None
    if context is not None:
        _whole("context", context, 0)

    if new_tokens is not None:
        _whole("new-tokens", new_tokens, 1)
    if optimizer is not None:
        _choice("optimizer", optimizer, get_args(Optimizer))
    _choice("recompute", recompute, get_args(Recompute))

    cached = any(p not in ("forward", "train") for p in phases)
    passed = "a training step" if phases == ("train",) else "a forward pass"
    if context is not None and not cached:
        notes.append(f"--context is ignored: {passed} reads no KV cache")
        context = None
    if kv is not None and not cached:
        notes.append(f"--kv is ignored: {passed} keeps no KV cache")
    if logits is not None and not any(stage.rows == "logits" for stage in arch.head.stages):
        notes.append(f"--logits is ignored: {arch.head.name} has no logits to choose from")
    if attention != "flash" and isinstance(arch.body, Network):
        notes.append(f"--attention is ignored: {arch.name} has no attention")
    if new_tokens is not None and phases != ("generate",):
        notes.append(f"--new-tokens is ignored: {' and '.join(phases)} generates no text; --phase generate does")
    latent = arch.causal and any(isinstance(part, LatentAttention) for part in arch.stack.parts)
    if mla != "absorbed" and not latent:
        notes.append(f"--mla is ignored: {arch.name} has no multi-head latent attention")
    notes += _training_notes(arch, phases, dtype, weights, attention, optimizer, recompute)
    _one_gpu(others)
    work = Workload(
        phases, batch, seq, context, dtype, weights, kv, attention, logits, new_tokens or NEW_TOKENS, pixels, mla,  # type: ignore[arg-type]
        optimizer or "adam", recompute, decoder_seq, runtime,  # type: ignore[arg-type]
    )  # fmt: skip
    return work, tuple(notes)


def _within(limit: int | None, length: int) -> int:
    """A length, or the model's limit where that is smaller."""
    return length if limit is None else max(1, min(length, limit))


def _training_notes(
    arch: Architecture, phases: tuple[Phase, ...], dtype: str, weights: str | None, attention: str,
    optimizer: str | None, recompute: str,
) -> Iterator[str]:  # fmt: skip
    """What training does with its options. Raises WorkloadError for formats that weights are not trained in."""
    if phases != ("train",):
        if optimizer is not None:
            yield "--optimizer is ignored: only training steps an optimizer"
        if recompute != "none":
            yield "--recompute is ignored: only training recomputes"
        return
    for option, name in (("dtype", dtype), ("weights", weights or dtype)):
        if FORMATS[name].bits < TRAINED_BITS:
            raise WorkloadError(
                f"--{option} {name}: training is counted with {TRAINED_BITS} bits or more; try --{option} bf16"
            )
    parts = () if isinstance(arch.body, Network) else arch.stack.parts
    if recompute == "selective" and not any(isinstance(part, Attention | LatentAttention) for part in parts):
        yield f"--recompute selective changes nothing: {arch.name} has no attention"
    elif recompute == "selective" and attention == "flash":
        yield "--recompute selective changes nothing: flash attention keeps no scores, and computes them again anyway"
    if any(isinstance(part, LatentAttention) and part.indexer for part in parts):
        yield (
            "the indexer takes no gradient, as in the reference code; the loss of its own that it is trained by is not "
            "counted, its optimizer state is"
        )


def phases_of(arch: Architecture) -> tuple[Phase, ...]:
    """The phases that a model has."""
    return get_args(Phase) if arch.causal else ("forward", "train")


def _phases(arch: Architecture, phase: str | None) -> tuple[Phase, ...]:
    known = phases_of(arch)
    if phase is None:
        return ("prefill", "decode") if arch.causal else ("forward",)
    if phase not in known:
        if phase in get_args(Phase):
            raise WorkloadError(
                f"--phase {phase}: {arch.name} is an encoder and has no such phase; try --phase forward or train"
            )
        raise WorkloadError(f"--phase: unknown phase {phase!r}{choices(phase, known)}")
    return (phase,)


def _tokens(arch: Architecture, pixels: tuple[Number, Number]) -> Number:
    """How many tokens an image becomes; none in a network of convolutions."""
    if isinstance(arch.body, Network) or not isinstance(arch.stack.embedding, Patches):
        return 0
    rows, columns = arch.stack.embedding.patch
    if pixels[0] < rows or pixels[1] < columns:
        raise WorkloadError(
            f"--image {pixels[0]}: no patch of {rows} × {columns} pixels fits into it; try a larger --image"
        )
    return arch.stack.embedding.tokens(pixels)


def _choice(option: str, value: object, known: tuple[str, ...]) -> None:
    if value not in known:
        raise WorkloadError(f"--{option}: unknown value {shorten(value)}{choices(str(value), known)}")


def _whole(option: str, value: object, low: int) -> None:
    if type(value) is not int or not low <= value <= LONGEST:
        raise WorkloadError(f"--{option} is {shorten(value)}; it must be a whole number from {low} to {LONGEST}")


_PARALLEL = ("tp", "dp", "pp", "ep")


def options() -> list[str]:
    """The names of all options of a workload, as arguments have them."""
    own = [name for name in workload.__annotations__ if name not in ("arch", "others", "return")]
    return [*own, *_PARALLEL]


def given(options: Mapping[str, Any]) -> list[str]:
    """The options that say something else than their default, `--dtype` apart: what a plain kernel has no use for."""
    usual = {name: parameter.default for name, parameter in signature(workload).parameters.items()}
    usual |= dict.fromkeys(_PARALLEL, 1)
    return [name.replace("_", "-") for name, value in options.items() if name != "dtype" and value != usual.get(name)]


def check(option: str, size: object, dtype: str) -> None:
    """Raises WorkloadError for a size or a type that a kernel cannot have."""
    _whole(option, size, 1)
    _choice("dtype", dtype, COMPUTE_FORMATS)


def _one_gpu(others: Mapping[str, Any]) -> None:
    """Refuse options that nobody knows, and more than one GPU."""
    for option, value in others.items():
        if option not in _PARALLEL:
            raise WorkloadError(f"unknown option {option!r}{choices(option, options())}")
        _whole(option, value, 1)
        if value != 1:
            raise WorkloadError(f"--{option} {value}: more than one GPU is not counted yet; try --{option} 1")


# --- Notes ------------------------------------------------------------------------------------------


def _model_notes(arch: Architecture, work: Workload) -> list[str]:
    return [*_length_notes(arch, work), *_image_notes(arch, work)]


def _length_notes(arch: Architecture, work: Workload) -> list[str]:
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
        length = step.context + step.tokens + step.passes - 1
        if limit is not None and length > limit:
            notes.append(
                f"warning: {step.phase} reaches {length} tokens, but {arch.name} has positions for {limit}; "
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


def _device_notes(device: Device, work: Workload) -> list[str]:
    notes = []
    if device.vector_pipe(work.dtype) is None:
        notes.append(f"{device.id} states no CUDA-core peak (pipe fp32 or fp64): vector work is bounded by bytes alone")
    if work.widths.weights.bits < 16 and work.widths.weights != work.widths.dtype:
        notes.append(
            f"--weights {work.weights} holds for the matrices of the layers; tables, head, norms and biases stay "
            f"{work.dtype}, as quantised checkpoints have it"
        )
    return notes


def _timing_notes(device: Device, found: Sequence[PhaseEstimate]) -> Iterator[str]:
    """What expected times rest on, or why there are none."""
    operators = [placed for phase in found for placed in phase.placed]
    unknown = sorted({placed.operator.kind for placed in operators if placed.expected is None})
    if device.calibration is None:
        yield f"only the bound is known: {device.id} is not calibrated, so expected times are null; see roof calibrate"
    elif unknown:
        yield f"expected times are null: {device.id} is not calibrated for {', '.join(unknown)}"
    else:
        for other, kinds in device.calibration.borrowed.items():
            yield f"expected times of {', '.join(kinds)} take the parameters of {other} with {device.id}'s datasheet"
    for phase in found:
        if phase.host_bound:
            yield (
                f"{phase.step.phase} waits for the host: {phase.kernels} operators, launched one by one in some "
                f"{phase.launch.seconds * 1e6:.0f} µs each, take longer than they run; see --runtime graph"
            )
