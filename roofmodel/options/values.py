"""The values of options and arguments: types that Python functions and command line share, times, paths, and what a
record declares of its options.

A value that is not in the type is an error at run time, too: the function that uses the option checks it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from itertools import product
from types import NoneType
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, get_args, get_origin

from roofmodel.errors import Option, RoofError, WorkloadError, as_text, choices, shorten
from roofmodel.numbers import units

Phase = Literal["prefill", "decode", "forward", "generate", "train", "vision"]
VISION: Phase = "vision"
"""The phase of `roof estimate` that is a pass of the vision tower of a multimodal model."""
ServePhase = Literal["serve"]
SERVE: ServePhase = "serve"
"""The phase of `roof estimate` that is no pass of the model: requests in flight on a server."""
REQUESTS_PER_CLIENT = 10
"""Requests of each client of a benchmark in a closed loop."""
Optimizer = Literal["adam", "adam8bit", "momentum", "sgd"]
States = Literal["fp32", "bf16", "int8"]  # of an optimizer
RECOMPUTATIONS = ("none", "selective", "full")
"""The values of `--recompute` that name no modules."""
RECOMPUTED_MODULES = ("attention", "mlp", "activation", "norm", "moe", "op")
"""What `--recompute selective:MODULES` recomputes (`counting/training/recomputation.py`)."""
AttentionMode = Literal["flash", "eager"]
LatentMode = Literal["absorbed", "naive"]  # of multi-head latent attention
Logits = Literal["last", "all"]
MemoryFormat = Literal["nhwc", "nchw"]  # of the tensors of a convolutional network
SequenceParallel = Literal["off", "on"]
Schedule = Literal["1f1b", "interleaved"]  # of the stages of a pipeline in training
ContextExchange = Literal["ring", "all-gather", "ulysses"]  # of keys and values under context parallelism
Sustained = Literal["off", "on"] | bool
DataParallel = Literal["ddp", "dataparallel", "sequential"]  # how replicas train
Overlap = Literal["engine", "none"]  # what overlaps with computation in training
EngineName = str | os.PathLike[str]  # a packaged engine such as vllm, or a YAML file
EngineOption = str | Mapping[str, str] | Iterable[str]  # such as launch=graph
RoutingMode = Literal["uniform", "same"]
RoutingOption = str | os.PathLike[str]  # a RoutingMode, or a file with the distribution of tokens over experts
CopyMode = Literal["pinned", "pageable", "async"]  # of a batch from the host to the GPU
ComputeFormat = Literal["fp64", "fp32", "tf32", "bf16", "fp16", "fp8", "fp4", "int8"]
StorageFormat = Literal[
    "fp64", "fp32", "tf32", "bf16", "fp16", "fp8", "fp8_block", "mxfp8", "int8", "fp4", "int4", "int4_g64", "int4_g32",
    "int4_sym", "int4_g64_sym", "int4_g32_sym", "nf4", "nf4_double", "mxfp4", "nvfp4",
]  # fmt: skip
"""A format of stored tensors by name. A format of weights may also be a mean such as `4.5bit` (`mean_bits`)."""
ScaledFormat = Literal["fp8_block", "mxfp8", "nvfp4"]
Dtype = Literal[ComputeFormat, ScaledFormat, "auto"]
"""A scaled format computes in fp8 or fp4: a recipe of training, or a format of stored weights."""

Numbers = int | str | Iterable[int]
"""The values of an axis: one, text such as `1:256:*2`, or several."""
Names = str | Iterable[str]
"""The values of an axis: one, text such as `fp16,fp8`, or several."""

CrossoverVariable = Literal["batch", "seq", "context", "gpus"]
CrossoverSize = Literal[CrossoverVariable, "n"]  # n: the size of a kernel
KernelGrouping = Literal["name", "base", "nvtx", "category", "lecture"]
RunGrouping = Literal["group", "lecture", "name", "nvtx", "operator", "device", "stream", "step"]
CeilingSource = Literal["datasheet", "measured"]
OperatorValue = Literal["intensity", "flops", "bytes"]
FirstGap = Literal["same-step", "previous-step"]
L2State = Literal["cold", "warm"]
BenchmarkDevice = Literal["cuda", "cpu"]
FlopCounter = Literal["fvcore", "calflops", "deepspeed", "llm-flops"]
SweepPicture = Literal["rates", "roofs", "costs", "scaling", "power", "front"]
ScalingMode = Literal["strong", "weak"]
Share = Literal["dp", "tp", "pp", "ep"]  # parallelism of further GPUs

TextFormat = Literal["json", "csv", "markdown", "latex", "line"]
"""Formats of `text`. A result has some of them."""
OutputFormat = Literal["table", TextFormat]
"""Formats of `--format`."""

MAX_SECONDS = 3600.0
"""The largest time that an option accepts."""


def mean_bits(name: object) -> Fraction | None:
    """The bits of `4.5bit`, a format of so many bits per element, scales included; None for another value.

    From 1 to 16 bits, with at most three decimals.
    """
    match = re.fullmatch(r"(\d{1,2}(\.\d{1,3})?)bit", name) if isinstance(name, str) else None
    return bits if match and 1 <= (bits := Fraction(match[1])) <= 16 else None


def check_one_of(option: str, value: object, known_values: Iterable[str]) -> None:
    """Raises WorkloadError, with similar and all known values, for another one."""
    names = tuple(known_values)
    if value not in names:
        word = as_text(value)
        cutoff = 0.7 if len(word) < 4 else 0.6  # cpu is not meant by gpu
        raise WorkloadError(Option(option), f": unknown value {shorten(value)}{choices(word, names, cutoff)}")


def check_whole_number(option: str, value: object, low: int, high: int) -> None:
    """Raises WorkloadError for a value that is no whole number from `low` to `high`."""
    if type(value) is not int or not low <= value <= high:
        raise WorkloadError(Option(option), f" is {shorten(value)}; it must be a whole number from {low} to {high}")


def seconds_of(option: str, value: object, example: str, highest: float = MAX_SECONDS, zero: bool = False) -> float:
    """The time of an option in seconds, from seconds or text with a unit such as `30ms`; 0 only where `zero` allows it.

    Raises WorkloadError, with the example, for another value.
    """
    try:
        seconds = float(units.parse(value, "s") if isinstance(value, str) else value)  # type: ignore[arg-type]
    except ValueError as error:
        raise WorkloadError(Option(option), f": {error}; try ", Option(option, example)) from None
    except (TypeError, OverflowError):
        seconds = -1.0
    if isinstance(value, bool) or not 0 <= seconds <= highest or (seconds == 0 and not zero):
        limits = f"{'at least' if zero else 'above'} 0 and at most {units.seconds(highest)}"
        raise WorkloadError(
            Option(option), f" is {shorten(value)}; it must be a time {limits}; try ", Option(option, example)
        )
    return seconds


def flag(option: str, value: object) -> bool:
    """The value of an option that is given or not. Raises WorkloadError for another value than a boolean."""
    if not isinstance(value, bool):
        raise WorkloadError(Option(option), f" is {shorten(value)}; it must be True or False")
    return value


def on_or_off(option: str, value: object) -> Sustained:
    """`on` or `off`, from one of them or a boolean. Raises WorkloadError for another value."""
    text = ("off", "on")[value] if isinstance(value, bool) else value
    check_one_of(option, text, ("off", "on"))
    return "on" if text == "on" else "off"


def image_size(option: str, value: object) -> int | str:
    """Pixels of an image: its side, or its width and height such as `1024x768`. Raises WorkloadError otherwise."""
    if isinstance(value, str) and (sides := re.fullmatch(r"([1-9]\d{0,5})(?:x([1-9]\d{0,5}))?", value)):
        width, height = sides.groups()
        return int(width) if height in (None, width) else value
    if isinstance(value, str):
        raise WorkloadError(
            Option(option), f" is {shorten(value)}; it must be pixels of a side, or width x height; try ",
            Option(option, "1024x768"),
        )  # fmt: skip
    check_size(option, value, 1, MAX_VALUE)
    return value  # type: ignore[return-value]


def pixels_of(image: int | str) -> tuple[int, int]:
    """Rows and columns of pixels of a checked size."""
    if not isinstance(image, str):
        return image, image
    width, height = map(int, image.split("x"))
    return height, width


def layer_counts(option: str, value: object) -> str:
    """Numbers of layers, such as `15,16,15`. Raises WorkloadError for another value."""
    if isinstance(value, str) and re.fullmatch(r"\d{1,4}([+,]\d{1,4}){0,4095}", value):
        return value
    raise WorkloadError(
        Option(option), f" is {shorten(value)}; it must be numbers of layers; try ", Option(option, "15,16,15")
    )


def recomputation(option: str, value: object) -> str:
    """`none`, `selective`, `full`, or modules such as `selective:norm+activation`. Raises WorkloadError for others."""
    if not isinstance(value, str) or not value.startswith("selective:"):
        if isinstance(value, str) and value in RECOMPUTATIONS:
            return value
        known_values = (*RECOMPUTATIONS, "selective:MODULES")
        raise WorkloadError(Option(option), f": unknown value {shorten(value)}{choices(shorten(value), known_values)}")
    for name in re.split(r"[+,]", value.partition(":")[2]):
        if name not in RECOMPUTED_MODULES:
            raise WorkloadError(
                Option(option), f": no module {shorten(name)} can be recomputed{choices(name, RECOMPUTED_MODULES)}"
            )
    return value


def layer_names(option: str, value: object) -> str:
    """Names of linear layers, such as `q_proj+v_proj`, or `all-linear`. Raises WorkloadError for another value."""
    if isinstance(value, str) and re.fullmatch(r"all-linear|[a-z]\w{0,40}([+,][a-z]\w{0,40}){0,30}", value):
        return value
    raise WorkloadError(
        Option(option),
        f" is {shorten(value)}; it must be names of linear layers; try ",
        Option(option, "q_proj+v_proj"),
    )


def settings(option: str, value: object) -> tuple[tuple[str, str], ...]:
    """Pairs of a key and a value, from a mapping, text such as `launch=graph`, or several texts.

    A number for `launch` is a time in seconds.
    """
    for key, (first, *others) in (by_key := _values_by_key(option, value)).items():
        if others:
            raise WorkloadError(Option(option), f": {key} is given twice, with {first} and {others[0]}")
    return tuple((key, first) for key, (first,) in by_key.items())


def settings_axis(option: str, value: object) -> list[tuple[tuple[str, str], ...]]:
    """The combinations of such pairs, where a key may have several values."""
    by_key = _values_by_key(option, value)
    return [tuple(zip(by_key, chosen, strict=True)) for chosen in product(*by_key.values())]


def _values_by_key(option: str, value: object) -> dict[str, list[str]]:
    entries: list[Any]
    if isinstance(value, Mapping):
        entries = [(key, v) for key, each in value.items() for v in (each if isinstance(each, list) else [each])]
    else:
        entries = [value] if isinstance(value, str) or not isinstance(value, Iterable) else [*value]
    values: dict[str, dict[str, None]] = {}
    for each in [part for entry in entries for part in (entry.split(",") if isinstance(entry, str) else [entry])]:
        pair = each if isinstance(each, tuple) else as_text(each).split("=", 1)
        if len(pair) != 2 or "" in pair:
            raise WorkloadError(
                Option(option), f" is {shorten(each)}; it must be KEY=VALUE, such as ", Option(option, "launch=graph")
            )
        key = as_text(pair[0]).strip()
        values.setdefault(key, {})[seconds_text(pair[1]) if key == "launch" else as_text(pair[1]).strip()] = None
    return {key: list(chosen) for key, chosen in values.items()}


def seconds_text(value: object) -> str:
    """A number of seconds as text with a unit; text as it is."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return f"{value * 1e6:.12g}us" if is_number else as_text(value).strip()  # type: ignore[operator]


MAX_WATTS = 10_000.0
"""The largest power that an option accepts."""


def watts_of(option: str, value: object, example: str) -> float:
    """The power of an option in watts, from watts or text with a unit such as `500W`.

    Raises WorkloadError, with the example, for another value.
    """
    try:
        watts = float(units.parse(value, "W") if isinstance(value, str) else value)  # type: ignore[arg-type]
    except ValueError as error:
        raise WorkloadError(Option(option), f": {error}; try ", Option(option, example)) from None
    except (TypeError, OverflowError):
        watts = -1.0
    if isinstance(value, bool) or not 0 < watts <= MAX_WATTS:
        raise WorkloadError(
            Option(option), f" is {shorten(value)}; it must be a power above 0 and at most {MAX_WATTS:.0f} W; try ",
            Option(option, example),
        )  # fmt: skip
    return watts


MAX_RATE = 1e6
"""The highest rate that an option accepts, in requests per second."""


def requests_per_second(option: str, value: object) -> float:
    """A rate from text such as `5/s`, `300/min`, or from a number of requests per second."""
    number, _, per = as_text(value).partition("/")
    try:
        rate = float(number) / {"": 1, "s": 1, "min": 60, "h": 3600}[per.strip()]
    except (ValueError, KeyError):
        raise WorkloadError(
            Option(option), f": {shorten(value)} is no rate; try ", Option(option, "5/s"), " or ",
            Option(option, "300/min"),
        ) from None  # fmt: skip
    if not 0 < rate <= MAX_RATE:
        raise WorkloadError(
            Option(option), f" is {shorten(value)}; it must be above 0 and at most {units.si(MAX_RATE)}/s; try ",
            Option(option, "5/s"),
        )  # fmt: skip
    return rate


def number_of_tokens(option: str, value: object) -> float:
    """A number of tokens, from a number or text such as `15T`, `300B`."""
    text = as_text(value).strip()
    factor = {"K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}.get(text[-1:].upper())
    try:
        tokens = float(text[:-1]) * factor if factor else float(text)
    except ValueError:
        tokens = 0.0
    if not 0 < tokens < float("inf"):
        raise WorkloadError(Option(option), f": {shorten(value)} is no number of tokens; try ", Option(option, "15T"))
    return tokens


EngineLayout = str | Mapping[str, int]
"""The layout of one of several kinds of engines: `tp=4,ep=4`, or a mapping of these names to numbers."""
LAYOUT_NAMES = ("tp", "pp", "ep", "dp")
MAX_LAYOUT_SIZE = 1024


def engine_layout(option: str, value: object) -> str:
    """A layout as text such as `tp=4,ep=4`, from such text or a mapping. Raises WorkloadError for another value."""
    pairs = value.items() if isinstance(value, Mapping) else (
        part.strip().partition("=")[::2] for part in as_text(value).split(",") if part.strip()
    )  # fmt: skip
    sizes = dict[str, int]()
    for key, size in pairs:
        text = as_text(size)
        if key not in LAYOUT_NAMES:
            raise WorkloadError(
                Option(option), f": {shorten(key)} is none of tp, pp, ep and dp; try ", Option(option, "tp=4,ep=4")
            )
        if key in sizes:
            raise WorkloadError(Option(option), f": {key} is given twice")
        number = int(text) if re.fullmatch("[0-9]{1,9}", text) else 0
        if not 1 <= number <= MAX_LAYOUT_SIZE:
            raise WorkloadError(
                Option(option), f": {key} is {shorten(size)}; it must be a whole number from 1 to {MAX_LAYOUT_SIZE}"
            )
        sizes[key] = number
    if not sizes:
        raise WorkloadError(Option(option), " is empty; try ", Option(option, "tp=4,ep=4"))
    return ",".join(f"{key}={sizes[key]}" for key in LAYOUT_NAMES if key in sizes)


def probability(option: str, value: object) -> float:
    """A number from 0 to 1."""
    try:
        share = -1.0 if isinstance(value, bool) else float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        share = -1.0
    if not 0 <= share <= 1:
        raise WorkloadError(Option(option), f" is {shorten(value)}; it must be a number from 0 to 1, such as 0.7")
    return share


MTP = "mtp"
"""The draft model of speculative decoding that stands for the multi-token prediction of the model itself."""

PathLike = str | os.PathLike[str]
Model = PathLike
"""A packaged name, the path of a config.json or its folder, or a Hub id."""
ProgressCallback = Callable[[str, int, int | None], None]
"""Called with the current part of the work, the amount that is complete, and the whole amount (None: unknown)."""


def no_progress(subject: str, done: int, total: int | None) -> None:
    """The callback that ignores progress."""


def as_sequence(value: Any) -> Sequence[Any]:
    """The value in a list, or the values of a list, a tuple or another iterable that is not text."""
    return [*value] if isinstance(value, Iterable) and not isinstance(value, str | bytes) else [value]


MAX_RESOLUTION = 1000  # dots per inch: a picture of 11000 × 6200 dots


def resolution(dpi: int) -> int:
    """Dots per inch of a picture. Raises RoofError for a value that is not a whole number from 1 to MAX_RESOLUTION."""
    if type(dpi) is not int or not 1 <= dpi <= MAX_RESOLUTION:
        raise RoofError(Option("dpi"), f" is {shorten(dpi)}; give a whole number from 1 to {MAX_RESOLUTION}")
    return dpi


def words(name: str, value: Iterable[str]) -> list[str]:
    """A list of text. Raises RoofError for another type, such as a single text."""
    values = as_sequence(value)
    if isinstance(value, str) or not all(isinstance(word, str) for word in values):
        raise RoofError(Option(name), f" is {shorten(value)}; give a list of text")
    return list(values)


def path(name: str, value: PathLike) -> str:
    """A path as text. Raises RoofError for another type."""
    if not isinstance(value, str | os.PathLike):
        raise RoofError(Option(name), f" is {shorten(value)}; give a path")
    return os.fspath(value)


def paths(name: str, values: PathLike | Iterable[PathLike] | None) -> list[str]:
    """One or several paths as a list of text. Raises RoofError for another type."""
    return [] if values is None else [path(name, value) for value in as_sequence(values)]


# --- Options of a record, each declared with its type ---------------------------------------------------

MAX_VALUE = 10**9
MEMORY_UTILIZATION = 0.9
"""The share of a device's memory that is used where the engine's file states no rule. The rest is for what is not
counted: CUDA context and libraries (0.58 GB in TensorRT-LLM, test_measured_memory.py), fragmentation, ECC."""

PlanKind = Literal["service", "training"]
Kind = Literal["count", "name", "settings", "time", "power", "share"]
SIZE_EXAMPLES, LENGTH_EXAMPLES = ("1,2,4", "1:8, 1:64:*2"), ("512,1024", "512:4096:512, 1:4096:*2")


Record = TypeVar("Record")


class Declared(NamedTuple):
    """What a record such as `Options` declares of an option besides its name, type and default."""

    group: str | None
    help: str
    minimum: int = 0
    maximum: float = MAX_VALUE
    """Limits of a number; the longest time in seconds."""
    examples: tuple[str, str] = SIZE_EXAMPLES
    """A list and ranges of values, for a message on an invalid axis of a sweep."""
    title: str | None = None
    """The title of its column in a table; None: its name with dashes."""
    plans: tuple[PlanKind, ...] = ()
    plan_help: str = ""
    """The plans that search values of this option, and its help in `roof plan`."""
    example: object = None
    """A value of an option that a request needs, or that is a time or a power, for messages."""
    check: Callable[[str, Any], Any] | None = None
    """Returns the checked value of the option of this name, in place of the check of its kind."""
    type: Any = None
    kind: Kind = "name"
    choices: tuple[str, ...] = ()
    """How values are checked, from the type unless it is a power; and the values of an option that is one of several
    names."""


def _with_kind(annotation: Any) -> Declared:
    """The declaration in an annotation, with what follows from its type."""
    of_value = annotation.__origin__
    types = (of_value,) if get_origin(of_value) is Literal else get_args(of_value) or (of_value,)
    names = tuple(name for each in types if get_origin(each) is Literal for name in get_args(each))
    kind: Kind = "name"
    declared: Declared = annotation.__metadata__[0]
    if declared.kind == "power":
        kind = declared.kind
    elif set(get_args(EngineOption)) <= set(types):
        kind = "settings"
    elif int in types:
        kind = "count"
    elif {*types} <= {float, str, NoneType} and float in types:
        kind = "time" if str in types else "share"
    return declared._replace(type=of_value, kind=kind, choices=declared.choices or names)


def declared_options(record: Any) -> dict[str, Declared]:
    """The options that a record declares. Other fields have no Declared in their annotation."""
    annotations: dict[str, Any] = record.__annotations__
    return {name: _with_kind(each) for name, each in annotations.items() if get_origin(each) is Annotated}


def checked_value(option: str, value: object, declared: Declared) -> Any:
    """The value of an option: a time in seconds, a power in watts, a share as a number, others as they are.

    Raises WorkloadError, with values that work, for a value that the declaration excludes.
    """
    kind, known_values, low, high = declared.kind, declared.choices, declared.minimum, declared.maximum
    if declared.check is not None:
        return declared.check(option, value)
    if kind == "time":
        return seconds_of(option, value, str(declared.example), high)
    if kind == "power":
        return watts_of(option, value, str(declared.example))
    if kind == "share":
        return _share(option, value, high)
    if kind == "settings":
        return settings(option, value)
    if kind == "count":
        check_size(option, value, low, int(high))
    if known_values and not (option == "weights" and mean_bits(value)):
        check_one_of(option, value, known_values)
    return value


def valid_request(record: type[Record], options: Mapping[str, Any], **fields: Any) -> Record:
    """The request with these options, checked, and with its fields that are no options.

    Raises WorkloadError for an invalid value, and for an option without default that is missing.
    """
    defaults: Mapping[str, Any] = record._field_defaults  # type: ignore[attr-defined]
    for name, declared in declared_options(record).items():
        if name not in options and name not in defaults:
            raise WorkloadError(Option(name), " is missing; try ", Option(name, declared.example))
        value = options.get(name, defaults.get(name))
        fields[name] = (
            value if value is None and NoneType in get_args(declared.type) else checked_value(name, value, declared)
        )
    return record(**fields)


def check_size(option: str, value: object, low: int, high: int) -> None:
    """Raises WorkloadError for no whole number from `low` to `high`."""
    check_whole_number(option, value, low, high)


def _share(option: str, value: object, high: float) -> float:
    try:
        share = float(value) if not isinstance(value, bool) else 0.0  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        share = 0.0
    if not 0 < share <= high:
        example = MEMORY_UTILIZATION if high == 1 else 1.25
        raise WorkloadError(
            Option(option), f" is {shorten(value)}; it must be a number above 0 and at most {high:g}, such as {example}"
        )
    return share
