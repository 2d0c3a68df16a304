"""One operation on a device: its cost, bound and expected time, and the times of the formula's terms.

The operations are those of tables of measurements (`measure/operations.py`), a convolution, and other names of some of
them, such as `attention` and `all-reduce`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from roofmodel.counting.layers import convolution
from roofmodel.counting.operator import Operator
from roofmodel.counting.tensors import Widths
from roofmodel.counting.workload import Step
from roofmodel.devices.device import Device
from roofmodel.engines.engine import Engine, default_for
from roofmodel.engines.engine_file import Benchmark
from roofmodel.errors import AnswerNote, Option, Text, WorkloadError, choices, shorten
from roofmodel.measure.operations import AT_MOST, OPERATIONS, PRECISIONS, TableOperation, widths
from roofmodel.measure.table import MAX_SIZE
from roofmodel.models.architecture import ReferenceCode
from roofmodel.models.convolutional import Convolution
from roofmodel.numbers import units
from roofmodel.numbers.derivation import DerivationStep
from roofmodel.options.values import EngineName
from roofmodel.steps.notes import alignment_notes
from roofmodel.steps.options import check_kernels
from roofmodel.steps.placed import SHORT, LoadSettings, Placed, load_notes, under_load, with_power
from roofmodel.timing import derivation
from roofmodel.timing.engine import Run, Timing
from roofmodel.timing.roofline import Placement, place, ridge
from roofmodel.timing.timing import Formula

Sizes = Mapping[str, Any]
"""Sizes and texts by the name of their column."""


def _convolution(sizes: Sizes, formats: Widths) -> Operator:
    """A convolution with square filters and images; its padding keeps the image's size at stride 1."""
    side, image = sizes["filter"], sizes["image"]
    step = Step("forward", sizes["batch"], 1, 0, "flash", 1, formats, image=(image, image))
    conv = Convolution("filter", sizes["filters"], side, sizes["stride"], side // 2, sizes["groups"])
    pixels = convolution.FeatureMap(sizes["channels"], image, image)
    return convolution.convolution(conv, convolution.Context(step, "conv"), "filter", pixels, "x", "y")


CONVOLUTION = TableOperation(("batch", "channels", "filters", "filter", "image"), _convolution, ("stride", "groups"))
PARTS_OF_LAYERS = {"mqa_logits", "topk", "mhc"}
"""Operations of tables that `roof op` does not have: their sizes are those of a layer, which `roof estimate` has."""
KINDS: Mapping[str, TableOperation] = {
    **{name: operation for name, operation in OPERATIONS.items() if name not in PARTS_OF_LAYERS},
    "conv": CONVOLUTION,
}
ALIASES = {
    "norm": "layernorm",
    "all_reduce": "nccl", "all_gather": "nccl", "reduce_scatter": "nccl", "all_to_all": "nccl",
}  # fmt: skip
"""Other names of operations, besides `attention`, which is attn_generation for one query per sequence."""
NAMES = tuple(name.replace("_", "-") for name in ("attention", *ALIASES, *KINDS))
USUAL: Mapping[str, int] = {
    "batch": 1, "seq": 1, "window": 0, "moe_tp": 1, "moe_ep": 1, "tp": 1, "stride": 1, "groups": 1,
}  # fmt: skip
"""Sizes that need not be given. `kv_heads` is `heads`, and `kv_len` is `seq`."""
NO_TEXTS = {"kernel": "", "distribution": "", "benchmark": Benchmark()}
"""Columns of tables that tell how their rows were measured."""
GROWING = {"gemm": "m", "attn_context": "seq", "moe": "tokens", "conv": "batch"}
"""The size of an operation that the number of tokens or images increases, and with it the intensity."""


class OneOperation(NamedTuple):
    """An operation with its sizes, placed on a device, and how an engine runs it.

    `compute_bound_from` is the value of the size `growing` from which on compute limits; None where none does.
    """

    kind: str
    sizes: Sizes
    dtype: str
    device: Device
    engine: Engine
    operator: Operator
    placed: Placement
    run: Run
    drawn: Placed  # with its energy; under long load, with the time that the power limit allows
    growing: str | None
    compute_bound_from: int | None
    measured: float | None
    load_notes: tuple[Text, ...] = ()

    @property
    def intensity(self) -> float | None:
        """FLOP per byte; None without FLOPs."""
        flops = self.operator.cost.matmul_flops + self.operator.cost.vector_flops
        return float(flops / self.operator.cost.bytes) if flops else None

    @property
    def expected_bound(self) -> str | None:
        """What limits the expected time: `power`, or the ceiling of the bound."""
        return None if self.drawn.expected is None else str(self.drawn.expected_bound)

    @property
    def steps(self) -> list[DerivationStep]:
        """The results of the formula of the expected time, line by line: times in seconds, and counts such as waves."""
        if self.run.formula is None:
            return []
        inputs = {each.name for each in _inputs(self.run.formula)}
        lines = derivation.steps(self.run.formula)
        return [step for step in lines if step.name not in inputs and not isinstance(step.value, bool)]  # no conditions

    @property
    def inputs(self) -> list[derivation.NamedNumber]:
        """What the formula uses: sizes, the device's figures (`chip.`) and fitted parameters (`timing.`)."""
        if self.run.formula is None:
            return []
        used = {step.name for step in derivation.steps(self.run.formula)}
        return [each for each in _inputs(self.run.formula) if each.name in used]

    @property
    def terms(self) -> dict[str, float]:
        """The value of each step by its name."""
        return {step.name: float(step.value) for step in self.steps}

    @property
    def notes(self) -> Iterator[Text]:
        """What the numbers assume."""
        precision, formula = PRECISIONS[self.dtype], self.run.formula
        yield from self.load_notes
        if precision.compute != precision.activations and "quantize" in self.engine.fuses and self.kind == "gemm":
            yield AnswerNote(
                f"A is counted in {precision.activations}; {self.engine.name} quantizes it in the kernel before, whose "
                "time is not expected here"
            )
        if formula is not None and self.run.evidence == "borrowed":
            yield AnswerNote(
                f"{self.engine.name}'s kernel in {self.dtype} has no measurements on {self.device.id}; the parameters "
                f"are those of {formula.implementation!r} in {formula.format_key} on {formula.fitted_on}"
            )
        if self.fits_l2 and self.placed.bound != "communication":
            yield (
                f"the {units.si(self.operator.cost.bytes, 'B')} fit in the L2 cache: a benchmark that repeats the call "
                "on the same data can be faster than bound and expected time"
            )
        yield from alignment_notes(Timing(self.device, self.engine), [self.operator])

    @property
    def fits_l2(self) -> bool:
        """Whether its data fit in the L2 cache, so that a repeated call may read them from there."""
        l2 = self.device.levels["l2"].capacity if "l2" in self.device.levels else None
        return bool(l2 and self.operator.cost.bytes <= l2)

    @property
    def ridge(self) -> float:
        """The intensity in FLOP per byte from which on compute limits."""
        return ridge(self.device, self.operator.compute_dtype(PRECISIONS[self.dtype].compute))


def _inputs(formula: Formula) -> Iterator[derivation.NamedNumber]:
    """The inputs of a formula, also those of the records in a list, such as `gemms.1.rows`."""
    for each in derivation.inputs(formula):
        if not isinstance(each.value, list):
            yield each
            continue
        for number, record in enumerate(each.value, 1):
            yield from derivation.fields(f"{each.name}.{number}.", record)


def one_operation(
    kind: str,
    device: Device,
    sizes: Mapping[str, Any],
    *,
    dtype: str = "fp16",
    kv_dtype: str | None = None,
    engine: EngineName | None = None,
    engine_option: tuple[tuple[str, str], ...] = (),
    measured: float | None = None,
    load: LoadSettings = SHORT,
) -> OneOperation:
    """An operation by its kind, such as `gemm`, on a device.

    `sizes` are those that are given; None is not given. `measured` is in seconds. Raises WorkloadError for an unknown
    kind, a size that is missing or that the operation does not have, and a format that the device does not support.
    """
    name, own_sizes = _named(kind, {name: value for name, value in sizes.items() if value is not None})
    complete = _complete(name, own_sizes)
    load_remarks, device = tuple(load_notes(device, load)), under_load(device, load)
    for option, form in (("dtype", dtype), ("kv_dtype", kv_dtype)):
        if form is not None and form not in PRECISIONS:
            raise WorkloadError(Option(option), f": unknown format {shorten(form)}{choices(form, PRECISIONS)}")
    precision = PRECISIONS[dtype]
    formats = widths(precision, kv_dtype)
    used = Engine.load(engine or default_for("other" if name == "conv" else "decoder_inference"), engine_option)
    check_kernels(used, [device])

    def counted(**changed: int) -> tuple[Operator, Placement]:
        operator = KINDS[name].operator({**NO_TEXTS, "op": name, **complete, **changed}, formats)
        return operator, place(operator.cost, device, operator.compute_dtype(precision.compute), operator.collective)

    operator, placed = counted()
    alone = used.fuses & {"quantize"}  # other fusions need a neighbor
    timing = Timing(device, used._replace(fuses=alone, extra_kernels=frozenset(), launch=None))
    (run,) = timing.runs([operator], [placed], precision.compute, ReferenceCode())
    (drawn,) = with_power([Placed(operator, placed, run.expected, run)], device, precision.compute)
    growing = GROWING.get(name)
    operation = OneOperation(
        name, complete, dtype, device, used, operator, placed, run, drawn, growing, None, measured, load_remarks
    )  # fmt: skip
    if growing is None:
        return operation

    def limits(value: int) -> bool:  # a prompt's keys grow with its queries
        more = {"kv_len": complete["kv_len"] + value - complete["seq"]} if growing == "seq" else {}
        return str(counted(**{growing: value}, **more)[1].bound) == "compute"

    return operation._replace(compute_bound_from=_first(limits))


def _named(kind: str, sizes: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The name of the table's operation, and the sizes with those that another name implies."""
    name = kind.lower().replace("-", "_")
    if name == "attention":
        decodes = sizes.get("seq", 1) == 1
        return ("attn_generation" if decodes else "attn_context"), sizes
    if name in ALIASES:
        if ALIASES[name] == "nccl":
            sizes = {**sizes, "collective": "alltoall" if name == "all_to_all" else name}
        return ALIASES[name], sizes
    if name not in KINDS:
        raise WorkloadError(f"unknown operation {shorten(kind)}{choices(kind, NAMES)}")
    return name, sizes


def _complete(name: str, sizes: dict[str, Any]) -> dict[str, Any]:
    """All sizes and texts that the operation needs. Raises WorkloadError for what is missing, unknown or invalid."""
    operation = KINDS[name]
    texts = {*operation.text_columns, *operation.required_texts}
    known_sizes = (*operation.columns, *operation.optional, *operation.text_columns)
    known_sizes = tuple(dict.fromkeys((*known_sizes, *operation.required_texts)))
    for size, value in sizes.items():
        if size not in known_sizes:
            raise WorkloadError(Option(size), f" is no size of {name}; it has ", *_listed(known_sizes))
        if size not in texts and (type(value) is not int or not (size != "window") <= value <= MAX_SIZE):
            least = 0 if size == "window" else 1
            raise WorkloadError(Option(size), f" is {shorten(value)}; give a whole number from {least} to {MAX_SIZE}")
    usual = {size: value for size, value in USUAL.items() if size in known_sizes}
    if "kv_len" in known_sizes and "seq" in sizes:
        usual["kv_len"] = sizes["seq"]
    if "kv_heads" in known_sizes and "heads" in sizes:
        usual["kv_heads"] = sizes["heads"]
    complete = {size: value for size in known_sizes if (value := {**usual, **sizes}.get(size)) is not None}
    needed = [size for size in (*operation.columns, *operation.required_texts) if size not in complete]
    if needed == ["kv_len"]:
        raise WorkloadError(
            "attention with one query per sequence, a decode, needs ",
            Option("kv_len"),
            "; a prefill needs ",
            Option("seq"),
        )
    if needed:
        raise WorkloadError(f"{name} needs ", *_listed(dict.fromkeys(needed)))
    for less, more in AT_MOST:
        if less in complete and more in complete and complete[less] > complete[more]:
            raise WorkloadError(Option(less, complete[less]), " is more than ", Option(more, complete[more]))
    multiples = [("heads", "kv_heads"), ("v_heads", "k_heads")]
    for more, less in (*multiples, *([("channels", "groups"), ("filters", "groups")] if name == "conv" else [])):
        if less in complete and complete[more] % complete[less]:
            raise WorkloadError(Option(more, complete[more]), " is no multiple of ", Option(less, complete[less]))
    return complete


def _listed(names: Iterable[str]) -> Iterator[Text]:
    for number, name in enumerate(names):
        yield from ((", ",) if number else ())
        yield Option(name)


LARGEST = 2**24
"""The largest size that is tried."""


def _first(limits: Callable[[int], bool]) -> int | None:
    """The least size from which on compute limits; None if it does not at LARGEST."""
    if not limits(LARGEST):
        return None
    return bisect_left(range(1, LARGEST), True, key=limits) + 1
