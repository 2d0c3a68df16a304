"""The options of a workload: their values, which of them apply to a model, and the Workload that they describe; and the
kernels that the engine of a workload names: on which devices they have parameters, and for which formats.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import product
from typing import Any, get_args

from roofmodel.counting.tensors import FORMATS, number_format
from roofmodel.counting.workload import FULL, NO_IMAGE, ONE_GPU, UNIFORM, Parallel, Workload
from roofmodel.devices import library
from roofmodel.devices.calibration import Calibration
from roofmodel.devices.device import Device
from roofmodel.engines.engine import Engine, default_for, stated_kernels
from roofmodel.engines.engine_file import CHOICES
from roofmodel.errors import Message, Option, Text, WorkloadError, as_text, choices, ignored, not_modeled, shorten
from roofmodel.models.architecture import Architecture, Network, Patches, has_experts
from roofmodel.models.layers import LatentAttention
from roofmodel.numbers.algebra import Number, maximum, minimum
from roofmodel.options.values import SERVE, VISION, Phase, pixels_of
from roofmodel.options.workload import DEFAULTS, REMOVED, Options, valid
from roofmodel.steps.capacity import default_utilization, serves
from roofmodel.steps.placed import load_notes
from roofmodel.timing.parameter_sets import format_key

DEFAULT_SEQ = 1024
NEW_TOKENS = 128
HALF_FORMATS = ("bf16", "fp16")
SCALED = {"fp8_block": "fp8", "mxfp8": "fp8", "nvfp4": "fp4"}
"""The compute format of each scaled format."""
RECIPES = ("fp8", *SCALED)
"""The formats of `--dtype` with which GEMMs train below 16 bits (`counting/training/recipes.py`)."""
PARAMETER_FORMAT = "fp32"
"""The format of parameters before the casts of torch.autocast."""


def workload(arch: Architecture, device: Device | None = None, **keywords: Any) -> tuple[Workload, tuple[Text, ...]]:
    """The Workload of a model under Options, with notes on options that do not apply.

    Below 16 bits, `dtype` is the format of GEMMs only: activations have 16 bits unless given, in a format that the
    `device` multiplies, because engines quantize the inputs of a GEMM just before it.

    Raises WorkloadError for an unknown option, an invalid value, or an invalid combination.
    """
    for name in REMOVED:
        if name in keywords:
            from roofmodel.engines.former_options import removed_option

            raise removed_option(name, keywords[name])
    if unknown := [name for name in keywords if name not in Options._fields]:
        if why := not_modeled(unknown[0]):
            raise WorkloadError(Option(unknown[0]), f": {why}")
        raise WorkloadError(f"unknown option {unknown[0]!r}{choices(unknown[0], Options._fields)}")
    options = Options(**keywords)
    phases = _phases(arch, options.phase)
    options, dtype_notes = _with_checkpoint_dtype(arch, options)
    options, recipe = _with_scaled_format(options, phases)
    if recipe == "mxfp8" and device is not None and not has_pipe(device, "nvfp4"):
        raise WorkloadError(
            Option("dtype", recipe), f": the tensor cores of {device.id} multiply no blocks with scales; try ",
            Option("dtype", "fp8_block"), " or ", Option("dtype", "fp8"),
        )  # fmt: skip
    options = _checked(options)
    if options.activations is None and FORMATS[options.dtype].bits < 16:
        devices = [] if device is None else [device]
        options = _with_formats(options, activations=half_with_pipe(arch, devices, str(DEFAULTS["dtype"])))
    engine = _engine(arch, phases, options)
    if options.memory_format == "nchw" and isinstance(arch.body, Network):
        from roofmodel.timing.extra_kernels import NCHW

        engine = engine._replace(extra_kernels=engine.extra_kernels | {NCHW})
    adapters = None
    if phases == ("train",) and engine.training and (options.zero == FULL or options.fsdp or options.hsdp):
        options = _with_formats(options, weights=options.weights or engine.training.sharded_weights)
    if recipe is not None:
        options = _with_formats(options, weights=options.weights or options.activations)
    is_training, casts = phases == ("train",), bool(engine.autocast)
    if casts:
        options = _autocast(options, engine.autocast)
    options, unconverted_matrices, matrix_formats = _with_checkpoint_formats(arch, options, is_training or casts)
    options, cache_notes = _with_checkpoint_cache_format(arch, options, phases, casts)
    inapplicable = dict(_inapplicable_options(arch, phases, engine))
    notes: list[Text] = [
        *dtype_notes,
        *cache_notes,
        *(ignored(name, why) for name, why in inapplicable.items() if getattr(options, name) != DEFAULTS[name]),
    ]  # fmt: skip
    options = options._replace(**{name: DEFAULTS[name] for name in inapplicable})
    if options.memory_utilization is None:
        options = options._replace(
            memory_utilization=default_utilization(engine, device, options, serves(arch, phases))
        )
    if is_training:
        from roofmodel.steps.parallelism import with_sharding
        from roofmodel.steps.training_options import adapters_of, training_notes

        options, sharding_notes = with_sharding(options)
        notes += sharding_notes
        notes += training_notes(arch, options, casts, recipe)
        adapters = adapters_of(arch, options)
    if device is not None:
        notes += load_notes(device, options)
    if options.sustained is None:
        options = options._replace(sustained="on" if is_training or options.power_limit else "off")
    routing = UNIFORM
    if options.routing != UNIFORM.name:
        from roofmodel.steps.routing import check_routing, read_routing

        routing = read_routing(options.routing)
        check_routing(arch, routing)
    routing = routing._replace(capacity=options.capacity)
    seq, decoder_seq, pixels = _lengths(arch, options)
    if reads_images(arch, options):
        from roofmodel.steps.images import prompt_images

        images = prompt_images(arch, options)
        seq = seq + images.tokens
        notes.append(images.note(seq))
    micro_batch = 1 if options.micro_batch is None and options.pp > 1 and is_training else options.micro_batch
    gpus = Parallel(
        options.tp, options.dp, options.pp, options.ep, options.vpp, options.cp, options.cp_kind,
        sequence=options.sequence_parallel == "on",
        zero=options.zero, hsdp=options.hsdp, reshards=not options.no_reshard,
        stage_layers=tuple(map(int, re.split(r"[+,]", options.stage_layers))) if options.stage_layers else (),
    )  # fmt: skip
    if is_training or gpus != ONE_GPU or micro_batch is not None:
        from roofmodel.steps.parallelism import checked_layout

        gpus, layout_notes = checked_layout(arch, is_training, options, int(seq), micro_batch, gpus, engine)
        notes += layout_notes
    of_gpu = seq // options.cp
    if gpus.sequence and of_gpu % options.tp:
        tokens_per_gpu = -(-of_gpu // options.tp)
        notes.append(
            Message(
                f"{of_gpu} tokens are not divisible by ",
                Option("tp", options.tp),
                f": a GPU with {tokens_per_gpu} tokens is counted",
            )
        )
    counted = {name: value for name, value in options._asdict().items() if name in Workload._fields}
    work = Workload(
        phases,
        **counted
        | {
            "seq": seq,
            "decoder_seq": decoder_seq,
            "image": pixels,
            "new_tokens": options.new_tokens or NEW_TOKENS,
            "optimizer": options.optimizer or "adam",
            "adapters": adapters,
            "recipe": recipe,
            "parallel": gpus,
            "micro_batch": micro_batch,
            "unconverted": unconverted_matrices,
            "matrix_formats": matrix_formats,
            "weights_known": _weights_known(arch, options, is_training or casts),
            "engine": engine,
            "routing": routing,
            "options": options,
        },
    )
    return work, tuple(notes)


def options_in_effect(arch: Architecture, work: Workload) -> dict[str, Any]:
    """The options as they are counted in the first phase; None for one that does not apply. Formats are those of the
    tensors; `image` is rows and columns."""
    phase = work.phases[0]
    values = {
        "phase": phase,
        **work.parallel.ways,
        "cp_kind": work.parallel.cp_kind,
        "weights": work.weights or work.dtype,
        "kv": work.kv or work.dtype,
        "activations": work.activations or work.dtype,
        "logits": work.logits_of(phase),
        "routing": work.routing.name,
        "image": work.image if arch.image else work.options.image and pixels_of(work.options.image),
        "images": (work.options.images or 1) if reads_images(arch, work.options) else None,
        "engine": work.engine.id,
        "engine_option": dict(work.engine.settings) or None,
    }
    if phase == "train":
        from roofmodel.counting.training.step import MOMENTS, moment_format
        from roofmodel.steps.training_options import ALL_LINEAR

        values["fsdp"] = work.zero == FULL
        values["schedule"] = work.parallel.schedule
        values["dtype"] = work.recipe or work.dtype
        values["lora_targets"] = work.adapters and ("+".join(work.adapters.targets) or ALL_LINEAR)
        values["states"] = moment_format(work.widths, work.optimizer).name if MOMENTS[work.optimizer] else None
    inapplicable = {name for name, _ in _inapplicable_options(arch, work.phases, work.engine)}
    inapplicable -= {"kv", "logits", "mla", "cp", "cp_kind"}  # documents state these for every model
    return {
        name: None if name in inapplicable else values[name] if name in values else getattr(work, name, option)
        for name, option in work.options._asdict().items()
    }


def engine_figures(engine: Engine) -> dict[str, Any]:
    """What documents state of an engine besides its name and options."""
    return {
        "engine_version": engine.version,
        "engine_file": engine.file,
        "runtime": engine.runtime,
        "launch_seconds": engine.launch_seconds,
    }


def default_engine(arch: Architecture, phases: tuple[Phase, ...], options: Options) -> str:
    """The engine where none is given: one for the inference of decoders, one for training on several GPUs, and one for
    everything else, with convolutional networks.

    A training engine is not the default where replicas exchange gradients otherwise than it does.
    """
    if isinstance(arch.body, Network):
        return default_for("other")
    if phases == ("train",) and options.tp * options.dp * options.pp * options.cp > 1:
        engine = Engine.load(default_for("multi_gpu_training"))
        if engine.training and options.data_parallel in (None, engine.training.data_parallel):
            return engine.id
    elif phases != ("train",) and arch.generates and not arch.encoder and "forward" not in phases:
        return default_for("decoder_inference")
    return default_for("other")


def _engine(arch: Architecture, phases: tuple[Phase, ...], options: Options) -> Engine:
    """The engine of the options, or the default one. Raises EngineError, and WorkloadError if it does not train."""
    settings: Any = options.engine_option or ()
    engine = Engine.load(options.engine or default_engine(arch, phases, options), settings)
    if phases == ("train",):
        check_trains(engine)
    return engine


def check_trains(engine: Engine) -> None:
    """Raises WorkloadError for an engine that only serves."""
    if engine.training is None:
        raise WorkloadError(
            Option("engine", engine.id), f": {engine.name} does not train; try ",
            Option("engine", default_for("other")), " or ", Option("engine", default_for("multi_gpu_training")),
        )  # fmt: skip


def _checked(options: Options) -> Options:
    """The options with text as values. Raises WorkloadError for an invalid value."""
    values = {name: value for name, value in options._asdict().items() if (value, DEFAULTS[name]) != (None, None)}
    options = options._replace(**{name: valid(name, value) for name, value in values.items()})
    if FORMATS[options.activations or options.dtype].bits < FORMATS[options.dtype].bits:
        raise WorkloadError(
            Option("activations", options.activations),
            " is narrower than the compute format ",
            Option("dtype", options.dtype),
            "; try ",
            Option("dtype", options.activations),
        )
    return options


def _with_scaled_format(options: Options, phases: tuple[Phase, ...]) -> tuple[Options, str | None]:
    """The options with the compute format of a scaled format, and the recipe of a training step, if it has one.

    In inference a scaled format is also that of the weights.
    """
    name = valid("dtype", options.dtype)
    if phases == ("train",):
        recipe = name if name in RECIPES else None
        return _with_formats(options, dtype=SCALED.get(name, name)), recipe
    if name not in SCALED:
        return options, None
    return _with_formats(options, dtype=SCALED[name], weights=options.weights or name), None


def _autocast(options: Options, compute: str) -> Options:
    """The options with the compute format of autocast, and the weight format that it casts from.

    Raises WorkloadError for another compute format than the default, and for unsupported formats.
    """
    autocast = Option("engine_option", f"autocast={compute}")
    if options.dtype not in (DEFAULTS["dtype"], PARAMETER_FORMAT, compute):
        raise WorkloadError(
            autocast, f" computes GEMMs in {compute}, not in {options.dtype}; try ", Option("dtype", compute)
        )
    if options.activations not in (None, compute):  # the documents of an estimate state the compute format
        raise WorkloadError(
            Option("activations", options.activations), ": ", autocast,
            f" keeps some activations in {compute} and others in fp32; remove the option",
        )  # fmt: skip
    options = _with_formats(options, dtype=compute)
    if options.weights and number_format(options.weights).bits > FORMATS[PARAMETER_FORMAT].bits:
        raise WorkloadError(
            Option("weights", options.weights), f" is wider than the {PARAMETER_FORMAT} weights of autocast; remove it"
        )
    return _with_formats(options, weights=options.weights or PARAMETER_FORMAT)


def _with_formats(options: Options, **formats: str | None) -> Options:
    """The options with formats whose names were checked when a file was read."""
    return options._replace(**formats)  # type: ignore[arg-type]


def _with_checkpoint_dtype(arch: Architecture, options: Options) -> tuple[Options, list[Text]]:
    """The options with the config's torch_dtype for `auto`; a note where the default has another width."""
    checkpoint_format = arch.dtype
    if options.dtype == "auto":
        return _with_formats(options, dtype=auto_dtype(arch)), auto_dtype_notes(arch)
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
    """A compute format of 16 bits: the config's torch_dtype if it has 16 bits, else `default`.

    With weights in mxfp4 it is bf16: gpt-oss states no torch_dtype, and vLLM multiplies them with no other
    (`Mxfp4Config.get_supported_act_dtypes` in layers/quantization/mxfp4.py).
    """
    if arch.quantization and arch.quantization.weights == "mxfp4":
        return "bf16"
    return arch.dtype if arch.dtype in HALF_FORMATS else default


def half_with_pipe(arch: Architecture, devices: Sequence[Device], default: str) -> str:
    """The compute format of 16 bits of a model; the other one where no device has a pipe for it.

    V100 and T4 have none for bf16. There vLLM falls back to fp16, and PyTorch's autocast asks for it.
    """
    half = half_dtype(arch, default)
    return next((form for form in (half, *HALF_FORMATS) if any(has_pipe(each, form) for each in devices)), half)


def has_pipe(device: Device, dtype: str) -> bool:
    """Whether the device multiplies matrices in this format."""
    try:
        device.matmul_pipe(SCALED.get(dtype, dtype))
    except WorkloadError:
        return False
    return True


def _with_checkpoint_formats(
    arch: Architecture, options: Options, needs_16_bits: bool
) -> tuple[Options, frozenset[str], tuple[tuple[str, str], ...]]:
    """The options with the weight format of the checkpoint where none is given, its matrices that are not converted,
    and those in other formats.

    Training does not use them, nor does autocast: both need weights of at least 16 bits.
    """
    quantization = arch.quantization
    trains_narrow = needs_16_bits and FORMATS[options.dtype].bits < 16
    if isinstance(arch.body, Network) or (needs_16_bits and not trains_narrow):
        return options, frozenset(), ()
    if (quantization is None or trains_narrow) and not has_experts(arch):
        return options, frozenset(), ()
    from roofmodel.counting.quantized_modules import group_formats, unconverted

    if quantization is None or trains_narrow:
        return options, unconverted(None, len(arch.stack.layers)).names, ()
    layers = len(arch.stack.layers)
    if not quantization.is_known:
        return options, frozenset(), ()
    others = group_formats(quantization, layers).formats + quantization.tables if options.weights is None else ()
    options = _with_formats(options, weights=options.weights or quantization.weights)
    return options, unconverted(quantization, layers).names, others


def _weights_known(arch: Architecture, options: Options, needs_16_bits: bool) -> bool:
    """Whether the format of the weights is known: of every checkpoint but one whose quantization is not."""
    quantization = arch.quantization
    return quantization is None or quantization.is_known or needs_16_bits or options.weights is not None


def _with_checkpoint_cache_format(
    arch: Architecture, options: Options, phases: tuple[Phase, ...], casts: bool
) -> tuple[Options, list[Text]]:
    """The options with the KV cache format of a quantized checkpoint where none is given.

    If its config does not quantize the cache, the cache has at least 16 bits, as with vLLM's `--kv-cache-dtype auto`; a
    note says so where `dtype` is narrower.
    """
    quantization = arch.quantization
    has_cache = arch.generates and phases not in (("forward",), ("train",)) and not casts
    if quantization is None or options.kv or not has_cache:
        return options, []
    if quantization.kv or FORMATS[options.dtype].bits >= 16:
        return _with_formats(options, kv=quantization.kv), []
    half = half_dtype(arch, str(DEFAULTS["dtype"]))
    note = Message(
        f"the quantization_config does not quantize the KV cache, so it is counted in {half}; ",
        Option("kv", options.dtype),
        " quantizes it",
    )
    return _with_formats(options, kv=half), [note]


def _inapplicable_options(arch: Architecture, phases: tuple[Phase, ...], engine: Engine) -> Iterator[tuple[str, Text]]:
    """The options that do not apply to this model, phase and engine, with the reasons."""
    if not (engine.memory and serves(arch, phases)):
        for name in ("max_len", "token_budget", "max_seqs"):
            yield name, f"no memory of a server of {engine.name} is known for this model and phase"
    if arch.image:
        yield "seq", Message(f"{arch.name} reads images; ", Option("image"), " sets their size")
    elif arch.vision is None:
        yield "image", f"{arch.name} does not read images"
    if not arch.encoder:
        yield "decoder_seq", f"{arch.name} is not an encoder-decoder"
    if arch.image:
        yield "images", Message(Option("batch"), " is the number of images")
    elif arch.vision is None:
        yield "images", f"{arch.name} does not read images"
    if phases in (("forward",), ("train",), (VISION,)):
        step = "a training step" if phases == ("train",) else "a forward pass"
        yield "context", f"{step} reads no KV cache"
        yield "kv", f"{step} writes no KV cache"
    if not any(stage.rows == "logits" for stage in arch.head.stages):
        yield "logits", f"{arch.head.name} computes no logits"
    if isinstance(arch.body, Network):
        yield "attention", f"{arch.name} has no attention"
    else:
        yield "memory_format", f"{arch.name} is no convolutional network"
    if phases != ("generate",):
        yield "new_tokens", Message("only ", Option("phase", "generate"), " generates text")
    if not (arch.causal and any(isinstance(part, LatentAttention) for part in arch.stack.parts)):
        yield "mla", f"{arch.name} has no multi-head latent attention"
    if not has_experts(arch):
        yield "routing", f"{arch.name} has no experts"
        yield "capacity", f"{arch.name} has no experts"
    if phases != ("train",):
        yield "optimizer", "only training runs an optimizer"
        yield "states", "only training runs an optimizer"
        yield "lora", "only training has adapters of its own"
        yield "lora_targets", "only training has adapters of its own"
        yield "data_parallel", "only training exchanges gradients"
        yield "overlap", "only training overlaps communication here"
        yield "recompute", "only training recomputes activations"
        yield "schedule", "only training has a schedule of forward and backward passes"
        yield "cp", "only training shards sequences here"
        yield "cp_kind", "only training shards sequences here"
        yield "zero", "only training has optimizer state"
        yield "fsdp", "only training shards weights over replicas"
        yield "hsdp", "only training shards weights over replicas"
        yield "no_reshard", "only training shards weights over replicas"


def _lengths(arch: Architecture, options: Options) -> tuple[Number, Number | None, tuple[Number, Number]]:
    """Tokens per sequence, tokens of an encoder-decoder's prompt, and pixels (rows, columns) of an image."""
    pixels, seq = NO_IMAGE, options.seq
    if arch.image:
        pixels = pixels_of(options.image) if options.image else arch.image
        seq = tokens_of(arch, pixels)
    if seq is None:
        seq = arch.padded_to or limited_length(arch.max_source if arch.encoder else arch.max_tokens, DEFAULT_SEQ)
    return seq, (options.decoder_seq or limited_length(arch.max_tokens, seq)) if arch.encoder else None, pixels


def reads_images(arch: Architecture, options: Options) -> bool:
    """Whether the prompts of a text model have images."""
    return arch.vision is not None and not arch.image and (options.images or options.image) is not None


def limited_length(limit: int | None, length: Number) -> Number:
    """The smaller of a length and the model's limit."""
    return length if limit is None else maximum(1, minimum(length, limit))


def phases_of(arch: Architecture) -> tuple[Phase, ...]:
    """The phases that a model has."""
    if arch.head.projectors:
        return (VISION,)
    return tuple(each for each in get_args(Phase) if each != VISION) if arch.generates else ("forward", "train")


def _phases(arch: Architecture, phase: str | None) -> tuple[Phase, ...]:
    known_phases = phases_of(arch)
    if phase is None:
        return ("prefill", "decode") if arch.generates else ("forward",)
    if phase == SERVE:
        raise WorkloadError(Option("phase", SERVE), " is a phase of `roof estimate` only")
    if phase == VISION and arch.vision:
        raise WorkloadError(Option("phase", VISION), " is a phase of `roof estimate` only")
    if phase not in known_phases:
        if phase in get_args(Phase):
            if arch.generates:
                raise WorkloadError(
                    Option("phase", phase), f": the config of {arch.name} has no vision tower (vision_config)"
                )
            kind = "reads images" if arch.image else "classifies text" if arch.causal else "is an encoder"
            raise WorkloadError(
                Option("phase", phase),
                f": {arch.name} {kind} and has no such phase; try ",
                Option("phase", "forward"),
                " or ",
                Option("phase", "train"),
            )
        raise WorkloadError(
            Option("phase"), f": unknown phase {shorten(phase)}{choices(as_text(phase), (*known_phases, SERVE))}"
        )
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


def check_kernels(engine: Engine, devices: Iterable[Device]) -> None:
    """Raises EngineError, with file and line, for a kernel that neither these devices nor any known device has."""
    for kind, name in stated_kernels(engine):
        own = [kernel for device in devices for kernel in getattr(device.calibration, kind, ())]
        if name.text() not in own and name.text() not in (known_kernels := _known_kernels()[kind]):
            hint = choices(name.text(), dict.fromkeys([*own, *known_kernels]))
            raise name.error(f"no device has parameters of the {kind} kernel {name.text()!r}{hint}")


@cache
def _known_kernels() -> dict[str, tuple[str, ...]]:
    """The kernels of all known devices by kind."""
    calibrations = [calibration for name in library.names() if (calibration := Device.load(name).calibration)]
    kinds = Calibration._fields[2:]  # without device and transferred
    return {kind: tuple(dict.fromkeys(k for each in calibrations for k in getattr(each, kind))) for kind in kinds}


def runs(engine: Engine, device: Device, option: str, stored: str, compute: str | None = None) -> bool:
    """Whether the engine has a kernel that reads data in a stored format, and computes in `compute`, if that is given.

    A kernel of the kind that `option` chooses (`gemm`, `attention`) needs parameters for these formats that were fitted
    on a device of the same generation. Where no device of the generation has parameters, a pipe for the format decides.
    """
    fitted = [source.calibration for source in (device, *_fitted(device.generation)) if source.calibration is not None]
    if not fitted:
        return stored in device.types
    wanted = format_key(compute or "", stored)
    wanted_compute, wanted_stored = wanted.split("/")
    for calibration, kind in product(fitted, CHOICES[option]):
        if calibration.fitted_on(kind) != calibration.device:
            continue
        for name in engine.implementations(kind, wanted, device.generation):
            keys = (key.split("/") for key in getattr(calibration, kind).get(name, ()))
            if any(key[1] == wanted_stored and (compute is None or key[0] == wanted_compute) for key in keys):
                return True
    return False


@cache
def _fitted(generation: str | None) -> tuple[Device, ...]:
    """The devices of a generation that come with roofmodel and have fitted parameters of their own."""
    fitted = (name for name in library.names() if library.fitted_file(library.find(name)))
    return tuple(other for other in map(Device.load, fitted) if generation and other.generation == generation)
