"""The options of a workload: their values, which of them apply to a model, and the Workload that they describe."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple, TypedDict, get_args

from roofmodel.counting.number_formats import COMPUTE_FORMATS, FORMATS
from roofmodel.counting.quantized_modules import group_formats, unconverted
from roofmodel.counting.routing import Routing
from roofmodel.counting.workload import MEMORY_UTILIZATION, NO_IMAGE, Parallel, Workload
from roofmodel.errors import Message, Option, Text, WorkloadError, choices, ignored, shorten
from roofmodel.models.architecture import Architecture, Network
from roofmodel.models.attention import Attention, LatentAttention
from roofmodel.models.embeddings import Patches
from roofmodel.models.layers import Part
from roofmodel.numbers.algebra import Number, maximum, minimum
from roofmodel.options.values import (
    AttentionMode,
    ComputeFormat,
    DataParallel,
    Dtype,
    Engine,
    LatentMode,
    Logits,
    Optimizer,
    Phase,
    Recompute,
    RoutingOption,
    Runtime,
    SequenceParallel,
    StorageFormat,
    seconds_of,
)
from roofmodel.steps.parallelism import GPUS, data_parallel, has_experts, parallel
from roofmodel.steps.routing import check_routing, read_routing
from roofmodel.timing.casting import AUTOCAST_FORMATS, PARAMETER_FORMAT

DEFAULT_SEQ = 1024
NEW_TOKENS = 128
MAX_VALUE = 10**9
MAX_LAUNCH_SECONDS = 1.0
MIN_TRAINING_BITS = 16
HALF_FORMATS = ("bf16", "fp16")


# The options of a workload are defined five times: `Options` has their defaults, `WorkloadOptions` types them as
# keywords, `GridOptions` (sweep/grid.py) as lists of values, `estimate` (estimate/api.py) writes them out for editors,
# and `options/command_line.py` adds their help without importing this module. Python derives none of these from
# another; a test compares them.
class Options(NamedTuple):
    """The options of the command line. The default of None depends on the model, the phase, or another option."""

    phase: Phase | None = None
    batch: int = 1
    seq: int | None = None
    context: int | None = None
    dtype: str = "fp16"
    weights: str | None = None
    kv: str | None = None
    activations: str | None = None
    attention: AttentionMode = "flash"
    logits: Logits | None = None
    new_tokens: int | None = None
    image: int | None = None
    mla: LatentMode = "absorbed"
    optimizer: Optimizer | None = None
    recompute: Recompute = "none"
    decoder_seq: int | None = None
    runtime: Runtime = "eager"
    launch: float | None = None  # seconds; also text with a unit
    tp: int = 1
    dp: int = 1
    pp: int = 1
    ep: int = 1
    vpp: int = 1
    micro_batch: int | None = None
    sequence_parallel: SequenceParallel = "off"
    zero: int = 0
    memory_utilization: float = MEMORY_UTILIZATION
    data_parallel: DataParallel | None = None
    engine: Engine = "current"
    routing: RoutingOption | Routing = "uniform"


class WorkloadOptions(TypedDict, total=False):
    """The fields of Options as keyword arguments; None where a field has a default of its own selects that default."""

    phase: Phase | None
    batch: int
    seq: int | None
    context: int | None
    dtype: Dtype
    weights: StorageFormat | None
    kv: StorageFormat | None
    activations: ComputeFormat | None
    attention: AttentionMode
    logits: Logits | None
    new_tokens: int | None
    image: int | None
    mla: LatentMode
    optimizer: Optimizer | None
    recompute: Recompute
    decoder_seq: int | None
    runtime: Runtime
    launch: float | str | None
    tp: int
    dp: int
    pp: int
    ep: int
    vpp: int
    micro_batch: int | None
    sequence_parallel: SequenceParallel
    zero: int
    memory_utilization: float
    data_parallel: DataParallel | None
    engine: Engine
    routing: RoutingOption


DEFAULTS: Mapping[str, Any] = Options._field_defaults

CHOICES: dict[str, tuple[str, ...]] = {
    "phase": get_args(Phase),
    "dtype": get_args(Dtype),
    "weights": get_args(StorageFormat),
    "kv": get_args(StorageFormat),
    "activations": get_args(ComputeFormat),
    "attention": get_args(AttentionMode),
    "logits": get_args(Logits),
    "mla": get_args(LatentMode),
    "optimizer": get_args(Optimizer),
    "recompute": get_args(Recompute),
    "runtime": get_args(Runtime),
    "sequence_parallel": get_args(SequenceParallel),
    "data_parallel": get_args(DataParallel),
    "engine": get_args(Engine),
}
"""The values of the options that are names."""

MIN_VALUES = {
    "batch": 1, "seq": 1, "decoder_seq": 1, "context": 0, "new_tokens": 1, "image": 1, **dict.fromkeys(GPUS, 1),
    "micro_batch": 1, "zero": 0,
}  # fmt: skip
"""The smallest value of the options that are numbers."""
MAX_VALUES = {"zero": 1}
"""The largest value of these options, where it is not MAX_VALUE."""


def workload(arch: Architecture, **keywords: Any) -> tuple[Workload, tuple[Text, ...]]:
    """The Workload of a model under Options, with notes on options that do not apply.

    Raises WorkloadError for an unknown option, an invalid value, or an invalid combination.
    """
    if unknown := [name for name in keywords if name not in Options._fields]:
        raise WorkloadError(f"unknown option {unknown[0]!r}{choices(unknown[0], Options._fields)}")
    options = Options(**keywords)
    phases = _phases(arch, options.phase)
    options, dtype_notes = _with_checkpoint_dtype(arch, options)
    options = _checked(options)
    is_training = phases == ("train",)
    options, unconverted_matrices, matrix_formats = _with_checkpoint_formats(arch, options, is_training)
    options, cache_notes = _with_checkpoint_cache_format(arch, options, phases)
    inapplicable = dict(_inapplicable_options(arch, phases, options))
    notes: list[Text] = [
        *dtype_notes,
        *cache_notes,
        *(ignored(name, why) for name, why in inapplicable.items() if getattr(options, name) != DEFAULTS[name]),
    ]  # fmt: skip
    options = options._replace(**{name: DEFAULTS[name] for name in inapplicable})
    if is_training:
        notes += _training_notes(arch, options)
    routing = read_routing(options.routing)
    check_routing(arch, routing)
    seq, decoder_seq, pixels = _lengths(arch, options)
    micro_batch = 1 if options.micro_batch is None and options.pp > 1 and is_training else options.micro_batch
    gpus = Parallel(
        options.tp, options.dp, options.pp, options.ep, options.vpp, sequence=options.sequence_parallel == "on",
        zero=options.zero,
    )  # fmt: skip
    layout, layout_notes = parallel(arch, is_training, options.batch, micro_batch, gpus)
    if layout.sequence and seq % options.tp:
        tokens_per_gpu = -(-seq // options.tp)
        notes.append(
            Message(
                f"{seq} tokens are not divisible by ",
                Option("tp", options.tp),
                f": a GPU with {tokens_per_gpu} tokens is counted",
            )
        )
    replicas = data_parallel(is_training, options.data_parallel, options.runtime, layout)
    work = Workload(
        phases, options.batch, seq, options.context, options.dtype, options.weights, options.kv, options.activations,
        options.attention, options.logits, options.new_tokens or NEW_TOKENS, pixels, options.mla,
        options.optimizer or "adam", options.recompute, decoder_seq, options.runtime, layout, micro_batch,
        options.launch, unconverted_matrices, matrix_formats, options.memory_utilization, replicas, options.engine,
        routing,
    )  # fmt: skip
    return work, (*notes, *layout_notes)


def _checked(options: Options) -> Options:
    """The options with `launch` in seconds and autocast's weight format. Raises WorkloadError for an invalid value."""
    for name, value in options._asdict().items():
        if name != "phase" and name in CHOICES and (value is not None or DEFAULTS[name] is not None):
            check_choice(name, value)
    if FORMATS[options.activations or options.dtype].bits < FORMATS[options.dtype].bits:
        raise WorkloadError(
            Option("activations", options.activations),
            " is narrower than the compute format ",
            Option("dtype", options.dtype),
            "; try ",
            Option("dtype", options.activations),
        )
    for name, low in MIN_VALUES.items():
        value = getattr(options, name)
        if value is not None or DEFAULTS[name] is not None:
            _check_whole_number(name, value, low, MAX_VALUES.get(name, MAX_VALUE))
    if options.runtime == "autocast":
        options = _autocast(options)
    options = options._replace(memory_utilization=memory_utilization(options.memory_utilization))
    return options if options.launch is None else options._replace(launch=launch_seconds(options.launch))


def _autocast(options: Options) -> Options:
    """The options with the weight format that autocast casts from. Raises WorkloadError for an unsupported format."""
    if options.dtype not in AUTOCAST_FORMATS:
        raise WorkloadError(
            Option("runtime", "autocast"),
            f" computes GEMMs in {' or '.join(AUTOCAST_FORMATS)}, not in {options.dtype}; try ",
            Option("dtype", AUTOCAST_FORMATS[0]),
        )
    if options.activations:
        raise WorkloadError(
            Option("activations"),
            ": ",
            Option("runtime", "autocast"),
            " keeps some activations in ",
            Option("dtype"),
            " and others in fp32; remove the option",
        )
    if options.weights and FORMATS[options.weights].bits > FORMATS[PARAMETER_FORMAT].bits:
        raise WorkloadError(
            Option("weights", options.weights), f": autocast casts weights in {PARAMETER_FORMAT}, and no wider ones"
        )
    return options._replace(weights=options.weights or PARAMETER_FORMAT)


def _with_checkpoint_dtype(arch: Architecture, options: Options) -> tuple[Options, list[Text]]:
    """The options with the config's torch_dtype for `auto`; a note where the default has another width."""
    checkpoint_format = arch.dtype
    if options.dtype == "auto":
        return options._replace(dtype=auto_dtype(arch)), auto_dtype_notes(arch)
    if (
        checkpoint_format is None
        or options.dtype != DEFAULTS["dtype"]
        or FORMATS[checkpoint_format].bits == FORMATS[options.dtype].bits
    ):
        return options, []
    note = Message(
        f"{arch.name}'s checkpoint is in {checkpoint_format}, and {options.dtype} is counted; ",
        Option("dtype", "auto"),
        f" is {checkpoint_format}",
    )
    return options, [note]


def auto_dtype(arch: Architecture) -> str:
    """The compute format of `auto`: the config's torch_dtype, or the default."""
    return arch.dtype or str(DEFAULTS["dtype"])


def auto_dtype_notes(arch: Architecture) -> list[Text]:
    """A note on `auto` if the config states no torch_dtype."""
    if arch.dtype:
        return []
    return [Message(f"{arch.name} states no torch_dtype; ", Option("dtype", "auto"), f" is {auto_dtype(arch)}")]


def half_dtype(arch: Architecture, default: str) -> str:
    """A compute format of 16 bits: the config's torch_dtype if it has 16 bits, else `default`."""
    return arch.dtype if arch.dtype in HALF_FORMATS else default


def _with_checkpoint_formats(
    arch: Architecture, options: Options, is_training: bool
) -> tuple[Options, frozenset[str], tuple[tuple[str, str], ...]]:
    """The options with the weight format of the checkpoint where none is given, its matrices that are not converted,
    and those in other formats.

    Training does not use them, nor does autocast: both need weights of at least 16 bits.
    """
    quantization = arch.quantization
    if isinstance(arch.body, Network) or is_training or options.runtime == "autocast":
        return options, frozenset(), ()
    if quantization is None:
        return options, unconverted(None, len(arch.stack.layers)).names if has_experts(arch) else frozenset(), ()
    layers = len(arch.stack.layers)
    others = group_formats(quantization, layers).formats if options.weights is None else ()
    options = options._replace(weights=options.weights or quantization.weights)
    return options, unconverted(quantization, layers).names, others


def _with_checkpoint_cache_format(
    arch: Architecture, options: Options, phases: tuple[Phase, ...]
) -> tuple[Options, list[Text]]:
    """The options with the KV cache format of a quantized checkpoint where none is given.

    If its config does not quantize the cache, the cache has at least 16 bits, as with vLLM's `--kv-cache-dtype auto`; a
    note says so where `dtype` is narrower.
    """
    quantization = arch.quantization
    has_cache = arch.causal and phases not in (("forward",), ("train",)) and options.runtime != "autocast"
    if quantization is None or options.kv or not has_cache:
        return options, []
    if quantization.kv or FORMATS[options.dtype].bits >= 16:
        return options._replace(kv=quantization.kv), []
    half = half_dtype(arch, str(DEFAULTS["dtype"]))
    note = Message(
        f"the quantization_config does not quantize the KV cache, so it is counted in {half}; ",
        Option("kv", options.dtype),
        " quantizes it",
    )
    return options._replace(kv=half), [note]


def _inapplicable_options(
    arch: Architecture, phases: tuple[Phase, ...], options: Options
) -> Iterator[tuple[str, Text]]:
    """The options that do not apply to this model and phase, with the reasons."""
    if arch.image:
        yield "seq", Message(f"{arch.name} reads images; ", Option("image"), " sets their size")
    else:
        yield "image", f"{arch.name} does not read images"
    if not arch.encoder:
        yield "decoder_seq", f"{arch.name} is not an encoder-decoder"
    if phases in (("forward",), ("train",)):
        step = "a training step" if phases == ("train",) else "a forward pass"
        yield "context", f"{step} reads no KV cache"
        yield "kv", f"{step} writes no KV cache"
    if not any(stage.rows == "logits" for stage in arch.head.stages):
        yield "logits", f"{arch.head.name} computes no logits"
    if isinstance(arch.body, Network):
        yield "attention", f"{arch.name} has no attention"
    if phases != ("generate",):
        yield "new_tokens", Message("only ", Option("phase", "generate"), " generates text")
    if not (arch.causal and any(isinstance(part, LatentAttention) for part in arch.stack.parts)):
        yield "mla", f"{arch.name} has no multi-head latent attention"
    if options.runtime == "graph":
        yield "launch", "a graph is launched once, not operator by operator"
    else:
        yield "engine", Message("only ", Option("runtime", "graph"), " runs the kernels of an inference engine")
    if not has_experts(arch):
        yield "routing", f"{arch.name} has no experts"
    if phases != ("train",):
        yield "optimizer", "only training runs an optimizer"
        yield "data_parallel", "only training exchanges gradients"
        yield "recompute", "only training recomputes activations"
        yield "zero", "only training has optimizer state"


def _lengths(arch: Architecture, options: Options) -> tuple[Number, Number | None, tuple[Number, Number]]:
    """Tokens per sequence, tokens of an encoder-decoder's prompt, and pixels (rows, columns) of an image."""
    pixels, seq = NO_IMAGE, options.seq
    if arch.image:
        pixels = (options.image, options.image) if options.image else arch.image
        seq = tokens_of(arch, pixels)
    if seq is None:
        seq = arch.padded_to or limited_length(arch.max_source if arch.encoder else arch.max_tokens, DEFAULT_SEQ)
    return seq, (options.decoder_seq or limited_length(arch.max_tokens, seq)) if arch.encoder else None, pixels


def limited_length(limit: int | None, length: Number) -> Number:
    """The smaller of a length and the model's limit."""
    return length if limit is None else maximum(1, minimum(length, limit))


def _training_notes(arch: Architecture, options: Options) -> Iterator[Text]:
    """Limits of the training options. Raises WorkloadError for a format that is too narrow to train in."""
    check_training_format("dtype", options.dtype)
    check_training_format("weights", options.weights or options.dtype)
    if options.runtime == "autocast":
        yield (
            "activations kept for the backward pass are counted in 16 bits; autocast keeps outputs of norms, softmax "
            "and sums in fp32, and their cast copies"
        )
    parts = () if isinstance(arch.body, Network) else arch.stack.parts
    if options.recompute == "selective" and not any(isinstance(part, Attention | LatentAttention) for part in parts):
        yield Message(Option("recompute", "selective"), f" changes nothing: {arch.name} has no attention")
    elif options.recompute == "selective" and options.attention == "flash":
        yield Message(
            Option("recompute", "selective"), " changes nothing: flash attention always recomputes the scores"
        )
    if any(_has_indexer(part) for part in parts):
        yield (
            "the indexer receives no gradient, as in the reference code; its own training loss is not counted, its "
            "optimizer state is"
        )


def _has_indexer(part: Part) -> bool:
    if isinstance(part, LatentAttention):
        return part.indexer is not None
    return isinstance(part, Attention) and part.selection is not None


def check_training_format(option: str, name: str) -> None:
    """Raises WorkloadError for a format that is too narrow to train in."""
    if FORMATS[name].bits < MIN_TRAINING_BITS:
        raise WorkloadError(
            Option(option, name),
            f": training with a format below {MIN_TRAINING_BITS} bits is not modeled; try ",
            Option(option, "bf16"),
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
                Option("phase", phase),
                f": {arch.name} {'reads images' if arch.image else 'is an encoder'} and has no such phase; try ",
                Option("phase", "forward"),
                " or ",
                Option("phase", "train"),
            )
        raise WorkloadError(Option("phase"), f": unknown phase {shorten(phase)}{choices(str(phase), known)}")
    return (phase,)


def tokens_of(arch: Architecture, pixels: tuple[Number, Number]) -> Number:
    """The number of tokens of an image; 0 in a convolutional network."""
    if isinstance(arch.body, Network) or not isinstance(arch.stack.embedding, Patches):
        return 0
    rows, columns = arch.stack.embedding.patch
    if pixels[0] < rows or pixels[1] < columns:
        raise WorkloadError(
            Option("image", pixels[0]),
            f" is smaller than one patch of {rows} × {columns} pixels; try a larger ",
            Option("image"),
        )
    return arch.stack.embedding.tokens(pixels)


def check_choice(option: str, value: object) -> None:
    """Raises WorkloadError, with the known values, for an unknown value of the option."""
    if value not in CHOICES[option]:
        raise WorkloadError(Option(option), f": unknown value {shorten(value)}{choices(str(value), CHOICES[option])}")


def launch_seconds(launch: object) -> float:
    """Launch overhead in seconds, from seconds or text with a unit. Raises WorkloadError for another value."""
    return seconds_of("launch", launch, "12us", MAX_LAUNCH_SECONDS, zero=True)


def memory_utilization(share: object) -> float:
    """A share of the device's memory, from a number or text. Raises WorkloadError for another value."""
    try:
        found = float(share) if not isinstance(share, bool) else 0.0  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        found = 0.0
    if not 0 < found <= 1:
        raise WorkloadError(
            Option("memory_utilization"),
            f" is {shorten(share)}; it must be a number above 0 and at most 1, such as {MEMORY_UTILIZATION}",
        )
    return found


def _check_whole_number(option: str, value: object, low: int, high: int = MAX_VALUE) -> None:
    if type(value) is not int or not low <= value <= high:
        raise out_of_range(option, value, low, high)


def out_of_range(option: str, value: object, low: int, high: int) -> WorkloadError:
    """The error for a value that is no whole number from `low` to `high`, or a stage of ZeRO that is not supported."""
    if option == "zero" and isinstance(value, int) and value in (2, 3):
        return WorkloadError("ZeRO stages 2 and 3 are not supported; try ", Option("zero", 1))
    return WorkloadError(Option(option), f" is {shorten(value)}; it must be a whole number from {low} to {high}")


def non_default_options(options: Mapping[str, Any], used: Collection[str] = ("dtype",)) -> list[str]:
    """The names of the options that are not at their default, without those in `used`."""
    return [name for name, value in options.items() if name not in used and value != DEFAULTS.get(name)]


def check_kernel(size: object, dtype: str) -> None:
    """Raises WorkloadError for an invalid size or format of a textbook kernel."""
    _check_whole_number("n", size, 1)
    if dtype not in COMPUTE_FORMATS:
        raise WorkloadError(Option("dtype"), f": unknown value {shorten(dtype)}{choices(str(dtype), COMPUTE_FORMATS)}")
