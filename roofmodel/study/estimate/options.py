"""The options of a workload: what each may say, which of them apply to a model, and the Workload that they describe."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, Literal, NamedTuple, get_args

from roofmodel import units
from roofmodel.algebra import Number, maximum, minimum
from roofmodel.counting.number_formats import COMPUTE_FORMATS, FORMATS
from roofmodel.counting.workload import NO_IMAGE, Optimizer, Parallel, Phase, Recompute, Runtime, Workload
from roofmodel.errors import WorkloadError, choices, shorten
from roofmodel.models.architecture import Architecture
from roofmodel.models.attention import Attention, LatentAttention
from roofmodel.models.convolutional import Network
from roofmodel.models.embeddings import Patches
from roofmodel.prediction.casting import AUTOCAST_FORMATS, PARAMETER_FORMAT
from roofmodel.study.estimate.parallelism import GPUS, parallel

DEFAULT_SEQ = 1024
NEW_TOKENS = 128
LONGEST = 10**9
LONGEST_LAUNCH = 1.0  # seconds
TRAINED_BITS = 16  # at least, of formats that training is counted with


class Options(NamedTuple):
    """As the command line has them; None: that depends on the model, the phase, or another option."""

    phase: Phase | None = None
    batch: int = 1
    seq: int | None = None
    context: int | None = None
    dtype: str = "fp16"
    weights: str | None = None
    kv: str | None = None
    activations: str | None = None
    attention: Literal["flash", "eager"] = "flash"
    logits: Literal["last", "all"] | None = None
    new_tokens: int | None = None
    image: int | None = None
    mla: Literal["absorbed", "naive"] = "absorbed"
    optimizer: Optimizer | None = None
    recompute: Recompute = "none"
    decoder_seq: int | None = None
    runtime: Runtime = "eager"
    launch: float | None = None  # seconds; a quantity as text is read
    tp: int = 1
    dp: int = 1
    pp: int = 1
    ep: int = 1
    vpp: int = 1
    micro_batch: int | None = None
    sequence_parallel: Literal["off", "on"] = "off"


USUAL: Mapping[str, Any] = Options._field_defaults

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
    "runtime": get_args(Runtime),
    "sequence_parallel": ("off", "on"),
}
"""What the options that name something may say."""

LEAST = {
    "batch": 1, "seq": 1, "decoder_seq": 1, "context": 0, "new_tokens": 1, "image": 1, **dict.fromkeys(GPUS, 1),
    "micro_batch": 1,
}  # fmt: skip
"""The smallest number that an option may say."""


def workload(arch: Architecture, **asked: Any) -> tuple[Workload, tuple[str, ...]]:
    """The Workload that Options describe, checked, with notes on options that do not apply.

    Raises WorkloadError, with what would work, for options that are not known or make no sense.
    """
    if strange := [name for name in asked if name not in Options._fields]:
        raise WorkloadError(f"unknown option {strange[0]!r}{choices(strange[0], Options._fields)}")
    said = Options(**asked)
    phases = _phases(arch, said.phase)
    said = _checked(said)
    idle = dict(_idle(arch, phases, said))
    notes = [f"--{flag(name)} is ignored: {why}" for name, why in idle.items() if getattr(said, name) != USUAL[name]]
    said = said._replace(**{name: USUAL[name] for name in idle})
    trains = phases == ("train",)
    if trains:
        notes += _training_notes(arch, said)
    seq, decoder_seq, pixels = _lengths(arch, said)
    micro_batch = 1 if said.micro_batch is None and said.pp > 1 and trains else said.micro_batch
    gpus = Parallel(said.tp, said.dp, said.pp, said.ep, said.vpp, sequence=said.sequence_parallel == "on")
    shared, remarks = parallel(arch, trains, said.batch, micro_batch, gpus)
    if shared.sequence and seq % said.tp:
        most = -(-seq // said.tp)
        notes.append(f"{seq} tokens are no multiple of --tp {said.tp}: counted for a GPU that has {most} of them")
    work = Workload(
        phases, said.batch, seq, said.context, said.dtype, said.weights, said.kv, said.activations, said.attention,
        said.logits, said.new_tokens or NEW_TOKENS, pixels, said.mla, said.optimizer or "adam", said.recompute,
        decoder_seq, said.runtime, shared, micro_batch, said.launch,
    )  # fmt: skip
    return work, (*notes, *remarks)


def _checked(said: Options) -> Options:
    """The same, with `launch` in seconds and the weights of autocast. Raises WorkloadError for what an option cannot
    say."""
    for name, value in said._asdict().items():
        if name != "phase" and name in CHOICES and (value is not None or USUAL[name] is not None):
            check_choice(name, value)
    if FORMATS[said.activations or said.dtype].bits < FORMATS[said.dtype].bits:
        raise WorkloadError(
            f"--activations {said.activations} is narrower than --dtype {said.dtype}, which products are computed in; "
            f"try --dtype {said.activations}"
        )
    for name, least in LEAST.items():
        value = getattr(said, name)
        if value is not None or USUAL[name] is not None:
            _whole(flag(name), value, least)
    if said.runtime == "autocast":
        said = _autocast(said)
    return said if said.launch is None else said._replace(launch=launch_seconds(said.launch))


def _autocast(said: Options) -> Options:
    """The same with the weights that autocast casts from. Raises WorkloadError for formats that it has not."""
    if said.dtype not in AUTOCAST_FORMATS:
        raise WorkloadError(
            f"--runtime autocast multiplies in {' or '.join(AUTOCAST_FORMATS)}, not in {said.dtype}; "
            f"try --dtype {AUTOCAST_FORMATS[0]}"
        )
    if said.activations:
        raise WorkloadError("--activations: --runtime autocast has some in --dtype and some in fp32; leave it out")
    if said.weights and FORMATS[said.weights].bits > FORMATS[PARAMETER_FORMAT].bits:
        raise WorkloadError(
            f"--weights {said.weights}: autocast casts {PARAMETER_FORMAT}, and leaves wider ones as they are"
        )
    return said._replace(weights=said.weights or PARAMETER_FORMAT)


def _idle(arch: Architecture, phases: tuple[Phase, ...], said: Options) -> Iterator[tuple[str, str]]:
    """The options that do not apply, be they given or not, and why."""
    if arch.image:
        yield "seq", f"{arch.name} reads images; --image says how large"
    else:
        yield "image", f"{arch.name} takes no images"
    if not arch.encoder:
        yield "decoder_seq", f"{arch.name} is no encoder-decoder"
    if phases in (("forward",), ("train",)):
        passed = "a training step" if phases == ("train",) else "a forward pass"
        yield "context", f"{passed} reads no KV cache"
        yield "kv", f"{passed} keeps no KV cache"
    if not any(stage.rows == "logits" for stage in arch.head.stages):
        yield "logits", f"{arch.head.name} has no logits to choose from"
    if isinstance(arch.body, Network):
        yield "attention", f"{arch.name} has no attention"
    if phases != ("generate",):
        yield "new_tokens", f"text comes of --phase generate, not of {' or '.join(phases)}"
    if not (arch.causal and any(isinstance(part, LatentAttention) for part in arch.stack.parts)):
        yield "mla", f"{arch.name} has no multi-head latent attention"
    if said.runtime == "graph":
        yield "launch", "a graph is launched once, not operator by operator"
    if phases != ("train",):
        yield "optimizer", "only training steps an optimizer"
        yield "recompute", "only training recomputes"


def _lengths(arch: Architecture, said: Options) -> tuple[Number, Number | None, tuple[Number, Number]]:
    """Tokens a sequence, those of an encoder-decoder's prompt, and pixels of an image."""
    pixels, seq = NO_IMAGE, said.seq
    if arch.image:
        pixels = (said.image, said.image) if said.image else arch.image
        seq = tokens_of(arch, pixels)
    if seq is None:
        seq = arch.padded_to or within(arch.max_source if arch.encoder else arch.max_tokens, DEFAULT_SEQ)
    return seq, (said.decoder_seq or within(arch.max_tokens, seq)) if arch.encoder else None, pixels


def within(limit: int | None, length: Number) -> Number:
    """A length, or the model's limit where that is smaller."""
    return length if limit is None else maximum(1, minimum(length, limit))


def _training_notes(arch: Architecture, said: Options) -> Iterator[str]:
    """What training does with its options. Raises WorkloadError for formats that weights are not trained in."""
    for option, name in (("dtype", said.dtype), ("weights", said.weights or said.dtype)):
        if FORMATS[name].bits < TRAINED_BITS:
            raise WorkloadError(
                f"--{option} {name}: training is counted with {TRAINED_BITS} bits or more; try --{option} bf16"
            )
    if said.runtime == "autocast":
        yield (
            "what is kept for the backward pass is counted in 16 bits; autocast keeps in fp32 what norms, softmax and "
            "sums give, and beside it what was cast"
        )
    parts = () if isinstance(arch.body, Network) else arch.stack.parts
    if said.recompute == "selective" and not any(isinstance(part, Attention | LatentAttention) for part in parts):
        yield f"--recompute selective changes nothing: {arch.name} has no attention"
    elif said.recompute == "selective" and said.attention == "flash":
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
        raise WorkloadError(f"--{flag(option)}: unknown value {shorten(value)}{choices(str(value), CHOICES[option])}")


def launch_seconds(asked: object) -> float:
    """What --launch says, a quantity as text or seconds from Python. Raises WorkloadError for what is neither."""
    try:
        seconds = float(units.parse(asked, "s") if isinstance(asked, str) else asked)  # type: ignore[arg-type]
    except ValueError as error:
        raise WorkloadError(f"--launch: {error}") from None
    except TypeError:
        seconds = -1.0
    if not 0 <= seconds <= LONGEST_LAUNCH:
        raise WorkloadError(
            f"--launch {shorten(asked)}: this is no time that a host takes for an operator; try --launch 12us"
        )
    return seconds


def _whole(option: str, value: object, low: int) -> None:
    if type(value) is not int or not low <= value <= LONGEST:
        raise WorkloadError(f"--{option} is {shorten(value)}; it must be a whole number from {low} to {LONGEST}")


def flag(option: str) -> str:
    """An option's name on the command line, without its dashes."""
    return option.replace("_", "-")


def given(options: Mapping[str, Any], used: Collection[str] = ("dtype",)) -> list[str]:
    """The options that say something else than their default, apart from those used: by plain kernels, the type."""
    return [flag(name) for name, value in options.items() if name not in used and value != USUAL.get(name)]


def check_kernel(size: object, dtype: str) -> None:
    """Raises WorkloadError for a size or a type that a plain kernel cannot have."""
    _whole("n", size, 1)
    check_choice("dtype", dtype)
