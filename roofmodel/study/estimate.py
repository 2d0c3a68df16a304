"""The main job: a model, a workload and a device -> what must be done, how fast it could go, and how fast it will.

The bound needs the datasheet only. The expectation is the timing model's, and None where the device is not calibrated
for every operator: there is no efficiency factor to multiply with.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from functools import reduce
from typing import Any, NamedTuple, get_args

from roofmodel import units
from roofmodel.algebra import Number, maximum, minimum
from roofmodel.counting import memory, phases
from roofmodel.counting.widths import COMPUTE_FORMATS, FORMATS
from roofmodel.counting.workload import NO_IMAGE, ONE_GPU, Optimizer, Parallel, Phase, Recompute, Workload
from roofmodel.devices.device import Device
from roofmodel.errors import WorkloadError, choices, shorten
from roofmodel.models.architecture import Architecture, Attention, LatentAttention, Network, Patches
from roofmodel.study.fitting import largest_batch, largest_context
from roofmodel.study.notes import device_notes, host_notes, model_notes, timing_notes, use_notes
from roofmodel.study.parallel import GPUS, parallel
from roofmodel.study.phase import PhaseEstimate
from roofmodel.study.pipeline import slowest, without_cache

DEFAULT_SEQ = 1024
NEW_TOKENS = 128
LONGEST = 10**9
LONGEST_LAUNCH = 1.0  # seconds
TRAINED_BITS = 16  # at least, of formats that training is counted with


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
    found = []
    for step in work.steps():
        phase = slowest(arch, device, step, work.host)
        if step.phase == "generate":
            phase = phase._replace(uncached=without_cache(arch, device, phase.step))
        found.append(phase)
    held, active, weights = _parameters(arch, work)
    peaks = (phases.peak(arch, phase.step, weights, phase.operators) for phase in found)
    needed = reduce(memory.Memory.or_more, peaks)
    return Estimate(
        architecture=arch,
        device=device,
        workload=work,
        parameters=held,
        active_parameters=active,
        phases=tuple(found),
        memory=needed,
        notes=(
            *arch.notes,
            *notes,
            *model_notes(arch, work),
            *device_notes(device, work),
            *timing_notes(device, found),
            *use_notes(found),
            *host_notes(found),
        ),
        largest_batch=device.capacity and largest_batch(arch, work, needed, device.capacity, LONGEST),
        largest_context=None
        if arch.image
        else device.capacity and largest_context(arch, work, needed, device.capacity, LONGEST),
    )


def parameters(arch: Architecture) -> tuple[int, int]:
    """How many parameters a model has, and how many of them a token meets."""
    return _parameters(arch, workload(arch)[0])[:2]


def _parameters(arch: Architecture, work: Workload) -> tuple[Any, Any, Number]:
    """How many parameters a model has, how many of them a token meets, and the bytes of those that a GPU has."""
    step = work.steps()[0]
    whole = phases.whole(arch, step._replace(parallel=ONE_GPU))
    shared = step.parallel != ONE_GPU
    weights = phases.weight_bytes(arch, step) if shared else memory.weight_bytes(arch, whole)
    return memory.parameters(arch, whole), memory.met_parameters(arch, whole), weights


# --- Options -> Workload ----------------------------------------------------------------------------

CHOICES: dict[str, tuple[str, ...]] = {
    "phase": get_args(Phase),
    "dtype": COMPUTE_FORMATS,
    "weights": tuple(FORMATS),
    "kv": tuple(FORMATS),
    "activations": COMPUTE_FORMATS,
    "attention": ("flash", "eager"),
    "logits": ("last", "all"),
    "mla": ("absorbed", "naive"),
    "optimizer": get_args(Optimizer),
    "recompute": get_args(Recompute),
    "runtime": ("eager", "megatron", "graph"),
    "sequence_parallel": ("off", "on"),
}
"""What the options that name something may say."""

LEAST = {
    "batch": 1, "seq": 1, "decoder_seq": 1, "context": 0, "new_tokens": 1, "image": 1, **dict.fromkeys(GPUS, 1),
    "micro_batch": 1,
}  # fmt: skip
"""The smallest number that an option may say."""


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
    activations: str | None = None,
    attention: str = "flash",
    logits: str | None = None,
    new_tokens: int | None = None,
    image: int | None = None,
    mla: str = "absorbed",
    optimizer: str | None = None,
    recompute: str = "none",
    decoder_seq: int | None = None,
    runtime: str = "eager",
    launch: float | str | None = None,
    tp: int = 1,
    dp: int = 1,
    pp: int = 1,
    ep: int = 1,
    vpp: int = 1,
    micro_batch: int | None = None,
    sequence_parallel: str = "off",
    **others: Any,
) -> tuple[Workload, tuple[str, ...]]:
    """The Workload of the command line's options, checked, with notes on options that do not apply."""
    phases, usual = _phases(arch, phase), _defaults()
    for name, value in (
        ("dtype", dtype), ("weights", weights), ("kv", kv), ("activations", activations), ("attention", attention),
        ("logits", logits), ("mla", mla), ("optimizer", optimizer), ("recompute", recompute), ("runtime", runtime),
        ("sequence_parallel", sequence_parallel),
    ):  # fmt: skip
        if value is not None or usual[name] is not None:
            check_choice(name, value)
    if FORMATS[activations or dtype].bits < FORMATS[dtype].bits:
        raise WorkloadError(
            f"--activations {activations} is narrower than --dtype {dtype}, which products are computed in; try "
            f"--dtype {activations}"
        )
    for name, number in (
        ("batch", batch), ("seq", seq), ("decoder_seq", decoder_seq), ("context", context), ("new_tokens", new_tokens),
        ("image", image), ("tp", tp), ("dp", dp), ("pp", pp), ("ep", ep), ("vpp", vpp), ("micro_batch", micro_batch),
    ):  # fmt: skip
        if number is not None or usual[name] is not None:
            _whole(name.replace("_", "-"), number, LEAST[name])
    notes = []
    pixels = NO_IMAGE
    if arch.image:
        pixels = (image, image) if image else arch.image
        if seq is not None:
            notes.append(f"--seq is ignored: {arch.name} reads images; --image says how large")
        seq = tokens_of(arch, pixels)
    elif image is not None:
        notes.append(f"--image is ignored: {arch.name} takes no images")
    if seq is None:
        seq = arch.padded_to or within(arch.max_source if arch.encoder else arch.max_tokens, DEFAULT_SEQ)
    if decoder_seq is not None and not arch.encoder:
        notes.append(f"--decoder-seq is ignored: {arch.name} is no encoder-decoder")
    decoder_seq = decoder_seq or within(arch.max_tokens, seq) if arch.encoder else None

    cached = any(p not in ("forward", "train") for p in phases)
    passed = "a training step" if phases == ("train",) else "a forward pass"
    if context is not None and not cached:
        notes.append(f"--context is ignored: {passed} reads no KV cache")
        context = None
    if kv is not None and not cached:
        notes.append(f"--kv is ignored: {passed} keeps no KV cache")
        kv = None
    if logits is not None and not any(stage.rows == "logits" for stage in arch.head.stages):
        notes.append(f"--logits is ignored: {arch.head.name} has no logits to choose from")
        logits = None
    if attention != "flash" and isinstance(arch.body, Network):
        notes.append(f"--attention is ignored: {arch.name} has no attention")
        attention = "flash"
    if new_tokens is not None and phases != ("generate",):
        notes.append(f"--new-tokens is ignored: text comes of --phase generate, not of {' or '.join(phases)}")
        new_tokens = None
    latent = arch.causal and any(isinstance(part, LatentAttention) for part in arch.stack.parts)
    if mla != "absorbed" and not latent:
        notes.append(f"--mla is ignored: {arch.name} has no multi-head latent attention")
        mla = "absorbed"
    if launch is not None:
        launch = launch_seconds(launch)
        if runtime == "graph":
            notes.append("--launch is ignored: a graph is launched once, not operator by operator")
            launch = None
    notes += _training_notes(arch, phases, dtype, weights, attention, optimizer, recompute)
    if phases != ("train",):
        optimizer, recompute = None, "none"
    trains = phases == ("train",)
    if micro_batch is None and pp > 1 and trains:
        micro_batch = 1
    asked = Parallel(tp, dp, pp, ep, vpp, sequence=sequence_parallel == "on")
    shared, remarks = parallel(arch, trains, batch, micro_batch, asked)
    if shared.sequence and seq % tp:
        notes.append(f"{seq} tokens are no multiple of --tp {tp}: counted for a GPU that has {-(-seq // tp)} of them")
    for option in others:
        raise WorkloadError(f"unknown option {option!r}{choices(option, options())}")
    work = Workload(
        phases, batch, seq, context, dtype, weights, kv, activations, attention, logits,  # type: ignore[arg-type]
        new_tokens or NEW_TOKENS, pixels, mla, optimizer or "adam", recompute,  # type: ignore[arg-type]
        decoder_seq, runtime, shared, micro_batch, launch,  # type: ignore[arg-type]
    )  # fmt: skip
    return work, (*notes, *remarks)


def within(limit: int | None, length: Number) -> Number:
    """A length, or the model's limit where that is smaller."""
    return length if limit is None else maximum(1, minimum(length, limit))


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
        raise WorkloadError(f"--phase: unknown phase {shorten(phase)}{choices(str(phase), known)}")
    return (phase,)


def tokens_of(arch: Architecture, pixels: tuple[Number, Number]) -> Number:
    """How many tokens an image becomes; none in a network of convolutions."""
    if isinstance(arch.body, Network) or not isinstance(arch.stack.embedding, Patches):
        return 0
    rows, columns = arch.stack.embedding.patch
    if pixels[0] < rows or pixels[1] < columns:
        raise WorkloadError(
            f"--image {pixels[0]}: no patch of {rows} × {columns} pixels fits into it; try a larger --image"
        )
    return arch.stack.embedding.tokens(pixels)


def check_choice(option: str, value: object) -> None:
    """Raises WorkloadError, with what would work, for a name that the option does not know."""
    if value not in CHOICES[option]:
        name = option.replace("_", "-")
        raise WorkloadError(f"--{name}: unknown value {shorten(value)}{choices(str(value), CHOICES[option])}")


def launch_seconds(asked: object) -> float:
    """What --launch says, a quantity as text or seconds from Python. Raises WorkloadError for what is neither."""
    try:
        seconds = float(units.parse(asked, "s") if isinstance(asked, str) else asked)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        seconds = -1.0
    if not 0 <= seconds <= LONGEST_LAUNCH:
        raise WorkloadError(
            f"--launch {shorten(asked)}: this is no time that a host takes for an operator; try --launch 12us"
        )
    return seconds


def _whole(option: str, value: object, low: int) -> None:
    if type(value) is not int or not low <= value <= LONGEST:
        raise WorkloadError(f"--{option} is {shorten(value)}; it must be a whole number from {low} to {LONGEST}")


def options() -> list[str]:
    """The names of all options of a workload, as arguments have them."""
    return [name for name in workload.__annotations__ if name not in ("arch", "others", "return")]


def _defaults() -> Mapping[str, Any]:
    """What each option says where it is not given; None: that depends on the model, the phase, or another option."""
    return workload.__kwdefaults__ or {}


def given(options: Mapping[str, Any], used: Collection[str] = ("dtype",)) -> list[str]:
    """The options that say something else than their default, apart from those used: by plain kernels, the type."""
    usual = _defaults()
    return [name.replace("_", "-") for name, value in options.items() if name not in used and value != usual.get(name)]


def check(option: str, size: object, dtype: str) -> None:
    """Raises WorkloadError for a size or a type that a kernel cannot have."""
    _whole(option, size, 1)
    check_choice("dtype", dtype)
