"""How long an operator is expected to take on a device, by the parameters that were fitted to measurements there.

Each kind of kernel has its own formula (`gemm`, `attention`, `experts`, `collectives`, `stream`); all of them are
evaluated for ints and for arrays by the same code. An expectation is never below its bound.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf, log2
from typing import Any, NamedTuple

from roofmodel.algebra import Number, either, maximum, plain, settled
from roofmodel.algebra import product as product_of
from roofmodel.counting.collective import ROUNDS
from roofmodel.counting.number_formats import FORMATS, Format
from roofmodel.counting.operator import Operator
from roofmodel.devices.calibration import MAX_TRANSFER_ERROR, Calibration, Fit, Fitted, Sets, Timing
from roofmodel.devices.device import Device, Link
from roofmodel.prediction import attention, collectives, experts, gemm, stream
from roofmodel.prediction.attention import AttentionWork
from roofmodel.prediction.chip import Chip, chip
from roofmodel.prediction.collectives import CollectiveWork
from roofmodel.prediction.experts import GroupedGemmWork, MoeWork
from roofmodel.prediction.gemm import GemmWork
from roofmodel.prediction.links import route
from roofmodel.prediction.roofline import Placement, place


class Expected(NamedTuple):
    """Seconds, and the interval that holds 80 % of measurements. Expectations add, and scale by a count."""

    seconds: Number
    low: Number
    high: Number

    def __add__(self, other: Expected) -> Expected:  # type: ignore[override]
        return Expected(*(a + b for a, b in zip(self, other, strict=True)))

    def __rmul__(self, times: Number) -> Expected:
        return Expected(*(times * value for value in self))


Expected.__array_ufunc__ = None  # type: ignore[attr-defined]  # an array of counts scales it as a number does


EAGER_LAUNCH = Expected(40e-6, 20e-6, 60e-6)
"""Seconds that a framework's host code takes for an operator in eager mode, Python and all. From published passes of
BERT base at batch 1, which take as long for 64 tokens as for 384, so that nothing but the host is seen: eager PyTorch
takes 33 µs an operator on one machine and 45 on another (AITemplate's README), TorchScript, without Python, 22 to 60
on four, TensorFlow's graph 12 on the fastest of them (FasterTransformer's guide)."""

STEP_SPREAD_P90 = 1.17
"""How many times longer than its launches a step may be whose host is known: the 90th percentile of 15 passes of BERT
in eager PyTorch, the launch being that of the batch of one (AITemplate's README, `benchmarks/published.py`)."""


def assumed_launch(launch: float) -> Expected:
    """The seconds that a host takes for an operator, where they are known."""
    return Expected(launch, launch, STEP_SPREAD_P90 * launch)


@settled
def expect(
    operator: Operator, device: Device, dtype: str, implementation: str = "", placed: Placement | None = None
) -> Expected | None:
    """The expected time of one occurrence; None where nothing is fitted for what the operator is.

    `implementation` names the set that applies, as a table's column `kernel` does; where none has that name, it is the
    default's (see `chosen`). `placed` spares placing it again. Raises WorkloadError where the device lacks the type.
    """
    placed = placed or place(operator.cost, device, dtype, operator.collective)
    found = formula(operator, placed, device, dtype, implementation)
    return found and clamp_to_bound(found.seconds, found.fit, placed.bound_seconds)


class Formula(NamedTuple):
    """What an expected time comes from: the module whose formula it is, what that was asked, by which parameters.

    `seconds`, which is `function(*asked, parameters)`, is not yet held against the bound.
    """

    name: str
    function: Callable[..., Number]
    asked: tuple[Any, ...]
    parameters: Any
    fit: Fit
    implementation: str
    stands_in: str
    seconds: Number


def formula(
    operator: Operator, placed: Placement, device: Device, dtype: str, implementation: str = ""
) -> Formula | None:
    """The formula that applies to an operator, placed on the device; None where nothing is fitted for what it is."""
    ceilings = chip(device, dtype)
    if device.calibration is None or ceilings is None:
        return None
    if operator.kind == "communication":
        return _exchange(operator, device.calibration, device, implementation)
    return _kernel(operator, placed, dtype, device.calibration, ceilings, implementation)


def clamp_to_bound(seconds: Number, fit: Fit, bound: Number) -> Expected:
    """A formula's time, with the interval of the set that it is by; none of it below the bound."""
    expected = maximum(seconds, bound)
    return Expected(expected, maximum(seconds * fit.low, bound), expected * fit.high)


def _exchange(operator: Operator, calibration: Calibration, device: Device, implementation: str) -> Formula | None:
    """The time of a collective, and what that was fitted on."""
    collective = operator.collective
    way = collective and route(collective, device)
    if collective is None or way is None:
        return None

    def over(link: Link | None) -> ParameterSet | None:
        return link and choose_set(calibration.collectives, implementation, link.parameters)

    inside = _either(way.bridged, over(device.bridge), over(device.inside))
    served, bandwidth = _either(way.leaves, over(device.network), inside), way.bandwidth
    if way.crossing and served and inside:  # within the node at its links' own pace
        pace = inside.timing.bandwidth / served.timing.bandwidth
        crossing = way.crossing._replace(inside=way.crossing.inside * pace)
        bandwidth = either(way.leaves, crossing.bandwidth, bandwidth)
    exchange = CollectiveWork(collective.gpus, ROUNDS[collective.name], plain(operator.link_bytes), way.nodes)
    return served and _applied("collectives", collectives.seconds, (exchange, bandwidth), served)


def _either(condition: Number, yes: ParameterSet | None, no: ParameterSet | None) -> ParameterSet | None:
    """One of two sets; parameter by parameter where the condition stands for many."""
    if isinstance(condition, bool) or yes is None or no is None:
        return yes if condition is True else no
    timing = type(no.timing)(*(either(condition, *pair) for pair in zip(yes.timing, no.timing, strict=True)))
    low, high = (either(condition, getattr(yes.fit, end), getattr(no.fit, end)) for end in ("low", "high"))
    return ParameterSet(timing, no.fit._replace(low=low, high=high), no.implementation)


def _applied(name: str, function: Callable[..., Number], asked: tuple[Any, ...], served: ParameterSet) -> Formula:
    return Formula(name, function, asked, *served, function(*asked, served.timing))


def merged_gemms(operators: Sequence[Operator], device: Device, dtype: str) -> tuple[Formula, list[Number]] | None:
    """The formula of products of one input that run as one, with the columns of all; and the columns of each.

    Where they are of narrower numbers than that input, the kernel before it has written these. None where nothing is
    fitted, or one of them is no product of matrices.
    """
    ceilings = chip(device, dtype)
    products = [gemm_work(operator, dtype) for operator in operators]
    served = device.calibration and choose_set(device.calibration.gemm, "", operator_format_key(operators[0], dtype))
    known = [_quantised_before(each) for each in products if each is not None]
    if not served or ceilings is None or len(known) < len(products):
        return None
    again = sum(each.batch * each.m * each.k * each.a for each in known[1:])  # of the input, which is read once
    columns = [each.n for each in known]
    whole = known[0]._replace(n=sum(columns), bytes=sum(each.bytes for each in known) - again)
    return _applied("gemm", gemm.seconds, (whole, ceilings), served), columns


def _quantised_before(product: GemmWork) -> GemmWork:
    """Without the kernel that quantises A: A is read as narrow as it is multiplied."""
    elements = product.batch * product.m * product.k * (product.quantized > 0)
    return product._replace(quantized=0, bytes=product.bytes - (product.quantized - 2 * elements * product.a))


def expect_elementwise(data: Number, device: Device, dtype: str) -> Expected | None:
    """The expected time of an elementwise kernel that no operator counts, which reads and writes so many bytes."""
    ceilings = chip(device, dtype)
    served = device.calibration and choose_set(device.calibration.stream, "add", format_key(dtype, dtype))
    if not served or ceilings is None:
        return None
    seconds = stream.seconds(plain(data), 0, ceilings, served.timing)
    return Expected(seconds, served.fit.low * seconds, served.fit.high * seconds)


def _kernel(
    operator: Operator, placed: Placement, dtype: str, calibration: Calibration, ceilings: Chip, implementation: str
) -> Formula | None:
    """The time by the formula for its kind, and what that was fitted on."""
    form = operator_format_key(operator, dtype)

    def found(function: Callable[..., Number], *asked: Any, sets: Sets[Any], named: str) -> Formula | None:
        served = choose_set(sets, named, form)
        return served and _applied(function.__module__.rpartition(".")[2], function, (*asked, ceilings), served)

    if operator.kind == "attention" and "t:s" in operator.sizes:
        fused = attention_work(operator)
        if _decodes(fused):
            return found(attention.generation_seconds, fused, sets=calibration.generation, named=implementation)
        return found(attention.context_seconds, fused, sets=calibration.context, named=implementation)
    if operator.kind == "moe":
        return found(experts.seconds, moe_work(operator, dtype), sets=calibration.experts, named=implementation)
    if rows := grouped_gemm_work(operator, dtype):
        moved = placed.cost.bytes - placed.cost.weight_bytes
        return found(experts.apart_seconds, rows, moved, sets=calibration.experts, named=implementation)
    if matrices := gemm_work(operator, dtype):
        return found(gemm.seconds, matrices, sets=calibration.gemm, named=implementation)
    own = implementation if implementation and implementation in calibration.stream else stream_kind(operator)
    return found(
        stream.seconds, plain(placed.cost.bytes), placed.compute_seconds, sets=calibration.stream, named=own
    )  # fmt: skip


class ParameterSet(NamedTuple):
    """A set of parameters, its evidence, whose it is; its own formats, where it stands in for others."""

    timing: Any
    fit: Fit
    implementation: str
    stands_in: str = ""


def choose_set(sets: Sets[Timing], implementation: str, form: str) -> ParameterSet | None:
    """The set of an implementation and of formats; None where there are none at all.

    It is the nearest there is: of these formats rather than others; of products in this format, of what is stored in
    nearly as many bits; of this implementation rather than another, of heads of nearly this size, and then the first,
    which is the default. One of other formats or heads has an interval as wide again; one that is far off on its own
    rows stands in for nothing else where there is another.
    """
    if form in (named := sets.get(implementation, {})):
        return ParameterSet(*named[form], implementation)
    known = [(name, other, found) for name, forms in sets.items() for other, found in forms.items()]
    if not known:
        return None

    def distance(candidate: tuple[str, str, Fitted[Timing]]) -> tuple[bool, bool, float, bool, float]:
        name, other, (_, fit) = candidate
        wanted, found = form.split("/"), other.split("/")
        same = wanted[0] == found[0]  # what multiplies
        width_ratio = _times_wider(*wanted[1:2], *found[1:2]) if same else inf
        poor = fit.error > MAX_TRANSFER_ERROR
        return (
            wanted[:2] != found[:2],
            poor,
            width_ratio,
            name != implementation,
            same * _apart(form, other),
        )

    name, other, (timing, fit) = min(known, key=distance)
    return (
        ParameterSet(timing, fit, name) if other == form else ParameterSet(timing, fit.wider(2), name, stands_in=other)
    )


def _times_wider(stored: str = "", other: str = "") -> float:
    """How often the bits of one format double or halve to those of the other; 0 where they are none that is known."""
    known = FORMATS.keys() >= {stored, other}
    return abs(log2(FORMATS[stored].bits / FORMATS[other].bits)) if known else 0.0


def _apart(form: str, other: str) -> float:
    """The factor between two sizes of heads, where the formats tell them."""
    sizes = [float(size) for name in (form, other) for size in name.split("/")[2:]]
    return max(sizes) / min(sizes) if len(sizes) == 2 else 1.0


def stream_kind(operator: Operator) -> str:
    """What sort of data-moving kernel it is: `norm`, `softmax`, `gather`, `scan`, `rotary`, `activation`, or `add`."""
    if operator.kind in ("norm", "softmax", "gather", "scan"):
        return operator.kind
    name = operator.name.removesuffix(".grad")
    return next((sort for sort in ("rotary", "activation") if name.endswith(sort)), "add")


def operator_format_key(operator: Operator, dtype: str) -> str:
    """What kernels are compiled for: the formats of the products, and of weights, such as `fp16/int4`; of attention
    those of keys and values, and the size of a head: `fp16/fp8/128`."""
    widths = operator.widths
    stored = widths.kv if operator.kind == "attention" else widths.weights
    if operator.kind != "attention":
        return format_key(dtype, stored.name)
    scores = [line for line in operator.lines if line.outputs == operator.lines[0].outputs]
    head = sum(product_of(operator.sizes[axis] for axis in line.contracted) for line in scores)
    return format_key(dtype, f"{stored.name}/{head}")


def format_key(dtype: str, stored: str) -> str:
    """What parameters are fitted for: products in one format of tensors stored in another, such as `fp16/int4`; the
    latter may have the size of a head behind it, `fp8/128`."""
    return "/".join("fp16" if name == "bf16" else name for name in (dtype, *stored.split("/")))


def compute_format(operator: Operator, dtype: str) -> Format:
    """The format that an operator multiplies in, by name; as a rule the working format of its tensors."""
    working = operator.widths.dtype
    return working if working.name == dtype else FORMATS[dtype]


def gemm_work(operator: Operator, dtype: str) -> GemmWork | None:
    """A contraction as products of matrices. None where it is none."""
    line, widths = operator.lines[0], operator.widths
    if len(operator.lines) != 1 or not line.contracted:
        return None
    a, b = line.factors
    of_a, of_b, of_c = (widths.format(tensor).bits / 8 for tensor in (a, b, line.outputs[0]))
    if operator.gemm is not None:
        batch, m, n, k = operator.gemm
    else:
        # the gradient of experts' matrices: the rows of tokens are what it sums over
        sizes, matrices = operator.sizes, line.outputs[0]
        batch, k = sizes["x"], sizes["b:t:x"] / sizes["x"]
        m = product_of(sizes[axis] for axis in a.axes if axis in matrices.axes)
        n = matrices.elements(sizes) / (sizes["x"] * m)
    quantized, narrow = 0, compute_format(operator, dtype).bits / 8
    if narrow < of_a:  # read as it is, written as the product wants it
        quantized, of_a = batch * m * k * (of_a + narrow), narrow
    batch, m, n, k, moved, quantized = map(plain, (batch, m, n, k, operator.cost.bytes, quantized))
    return GemmWork(batch, m, n, k, moved, of_a, of_b, of_c, quantized)


def grouped_gemm_work(operator: Operator, dtype: str) -> GroupedGemmWork | None:
    """A product of rows with the matrices of the experts that some token chose; None for anything else."""
    if operator.kind != "grouped_gemm":
        return None
    (a, b), sizes, widths = operator.lines[0].factors, operator.sizes, operator.widths
    if "x" not in b.axes:  # the gradient of the matrices, which is a product of activations
        return None
    each = b.elements(sizes) / sizes["x"]
    touched = operator.touched.get(b.name, b.elements(sizes)) / each
    k = product_of(sizes[axis] for axis in operator.lines[0].contracted if axis != "x")
    narrow = min(compute_format(operator, dtype).bits, widths.format(a).bits) / 8
    return GroupedGemmWork(touched, plain(sizes["b:t:x"]), each / k, k, narrow, widths.format(b).bits / 8)


def moe_work(operator: Operator, dtype: str) -> MoeWork:
    """What the formula of fused experts asks for, of an operator that is it."""
    sizes, rows = operator.sizes, operator.sizes["b:t:x"]
    token_bytes, row_bytes = 0, 0
    for part in operator.parts:
        for tensor in (*part.reads, *part.writes):
            if "b:t:x" in tensor.axes:
                row_bytes = row_bytes + part.bytes_of(tensor)
            elif not tensor.is_parameter:
                token_bytes = token_bytes + part.bytes_of(tensor)
    products = [found for part in operator.parts if (found := grouped_gemm_work(part, dtype))]
    return MoeWork(products, sizes["b"] * sizes["t"], sizes.get("b:t:X", rows), token_bytes, row_bytes)


def attention_work(operator: Operator) -> AttentionWork:
    """What the formulas of fused attention ask for, of an operator that is it."""
    sizes, cost = operator.sizes, operator.cost
    kept = [tensor for tensor in operator.reads if "s" in tensor.axes]  # keys and values
    of_each_head = any("k" in tensor.axes for tensor in kept)
    return AttentionWork(
        batch=plain(sizes["b"]),
        heads=product_of(sizes[axis] for axis in ("k", "g", "ki") if axis in sizes),  # ki: an indexer's
        kv_heads=sizes["k"] if of_each_head else 1,
        queries=plain(sizes["t"]),
        keys=plain(sizes["s"]),
        pairs=plain(sizes["t:s"]),
        flops=plain(cost.matmul_flops),
        bytes=plain(cost.bytes),
        kv_bytes=plain(sum(operator.bytes_of(tensor) for tensor in kept)),
    )


def _decodes(fused: AttentionWork) -> bool:
    """Whether each sequence has one query, over keys of earlier ones: a decode, or a table of them. A prompt of one
    token is a prefill."""
    asked = (fused.queries == 1, fused.keys > 1)
    return all(bool(each.all() if hasattr(each, "all") else each) for each in asked)
