"""How long an operator is expected to take on a device, by the parameters that were fitted to measurements there.

Each kind of kernel has its own formula (`gemm`, `attention`, `experts`, `collectives`, `stream`); all of them are
evaluated for ints and for arrays by the same code. An expectation is never below its bound.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from roofmodel.algebra import Number, maximum
from roofmodel.algebra import product as product_of
from roofmodel.counting.operator import Operator
from roofmodel.counting.widths import FORMATS, Format
from roofmodel.devices.calibration import Calibration, Fit, Fitted, Sets, Timing
from roofmodel.devices.device import Device
from roofmodel.prediction import attention, collectives, experts, gemm, stream
from roofmodel.prediction.attention import Attended
from roofmodel.prediction.chip import Chip, chip
from roofmodel.prediction.collectives import ROUNDS, Exchange
from roofmodel.prediction.experts import Chosen, Mixture
from roofmodel.prediction.gemm import Product
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


EAGER_LAUNCH = Expected(6e-6, 4e-6, 10e-6)
"""Seconds that a framework's host code takes to launch a kernel in eager mode. An assumption, not a measurement:
PyTorch takes 4 to 10 µs an operator on current processors."""


def expect(operator: Operator, device: Device, dtype: str, implementation: str = "") -> Expected | None:
    """The expected time of one occurrence; None where nothing is fitted for what the operator is.

    `implementation` names the set that applies, as a table's column `kernel` does; where none has that name, it is the
    default's (see `chosen`). Raises WorkloadError where the device lacks the type.
    """
    found = formula(operator, device, dtype, implementation)
    return found and _interval(found.seconds, found.fit, place(operator.cost, device, dtype).bound_seconds)


class Formula(NamedTuple):
    """What an expected time comes from: the module whose formula it is, what that was asked of, by which parameters.

    `seconds` is what it gives, not yet held against the bound.
    """

    name: str
    asked: Any
    parameters: Any
    fit: Fit
    seconds: Number


def formula(operator: Operator, device: Device, dtype: str, implementation: str = "") -> Formula | None:
    """The formula that applies to an operator; None where nothing is fitted for what it is."""
    ceilings = chip(device, dtype)
    if device.calibration is None or ceilings is None:
        return None
    if operator.kind == "communication":
        return _exchange(operator, device.calibration, device.link, implementation)
    placed = place(operator.cost, device, dtype)
    return _kernel(operator, placed, dtype, device.calibration, ceilings, implementation)


def _interval(seconds: Number, fit: Fit, bound: Number) -> Expected:
    """A time with the interval of the set that gave it, none of it below the bound."""
    return Expected(*(maximum(seconds * factor, bound) for factor in (1.0, fit.low, fit.high)))


def _exchange(operator: Operator, calibration: Calibration, link: float | None, implementation: str) -> Formula | None:
    """The time of a collective, and what that was fitted on."""
    joined = chosen(calibration.collectives, implementation, formats(operator, ""))
    if joined is None or link is None:
        return None
    exchange = Exchange(operator.sizes["N"] / operator.sizes["K"], ROUNDS[operator.name], operator.link_bytes)
    return Formula("collectives", exchange, *joined, collectives.seconds(exchange, link, joined.timing))


def expect_together(operators: Sequence[Operator], device: Device, dtype: str) -> Iterator[Expected | None]:
    """The expected times of products of one input that run as one: each has its columns' share, or its bound."""
    ceilings = chip(device, dtype)
    products = [product(operator, dtype) for operator in operators]
    sets = device.calibration and chosen(device.calibration.gemm, "", formats(operators[0], dtype))
    known = [each for each in products if each is not None]
    if not sets or ceilings is None or len(known) < len(products):
        yield from (expect(operator, device, dtype) for operator in operators)
        return
    columns = sum(each.n for each in known)
    again = sum(each.batch * each.m * each.k * each.a for each in known[1:])  # of the input, which is read once
    whole = known[0]._replace(n=columns, bytes=sum(each.bytes for each in known) - again)
    seconds = gemm.seconds(whole, ceilings, sets.timing)
    for operator, each in zip(operators, known, strict=True):
        bound = place(operator.cost, device, dtype).bound_seconds
        yield _interval(seconds * each.n / columns, sets.fit, bound)


def _kernel(
    operator: Operator, placed: Placement, dtype: str, calibration: Calibration, ceilings: Chip, implementation: str
) -> Formula | None:
    """The time by the formula for its kind, and what that was fitted on."""
    form = formats(operator, dtype)

    def found(name: str, asked: Any, sets: Sets[Any], seconds: Callable[[Any], Number], named: str) -> Formula | None:
        fitted = chosen(sets, named, form)
        return fitted and Formula(name, asked, *fitted, seconds(fitted.timing))

    if operator.kind == "attention" and "t:s" in operator.sizes:
        fused = attended(operator)
        one = _one_query(fused)
        sets, seconds = (
            (calibration.generation, attention.generation_seconds)
            if one
            else (calibration.context, attention.context_seconds)
        )
        return found("attention", fused, sets, lambda timing: seconds(fused, ceilings, timing), implementation)
    if operator.kind == "moe":
        routed = mixture(operator, dtype)
        return found(
            "experts", routed, calibration.experts, lambda timing: experts.seconds(routed, ceilings, timing),
            implementation,
        )  # fmt: skip
    if rows := of_experts(operator, dtype):
        moved = placed.cost.bytes - placed.cost.weight_bytes
        return found(
            "experts", rows, calibration.experts,
            lambda timing: experts.apart_seconds(rows, moved, ceilings, timing), implementation,
        )  # fmt: skip
    if matrices := product(operator, dtype):
        return found(
            "gemm", matrices, calibration.gemm, lambda timing: gemm.seconds(matrices, ceilings, timing), implementation
        )
    data, compute = placed.cost.bytes, placed.compute_seconds
    return found(
        "stream", data, calibration.stream, lambda timing: stream.seconds(data, compute, ceilings, timing),
        movement(operator),
    )  # fmt: skip


def chosen(sets: Sets[Timing], implementation: str, form: str) -> Fitted[Timing] | None:
    """The set of an implementation and of formats.

    Where it is not known, the first one of these formats; where they are not, the first of all, which is the default,
    with an interval as wide again: it was fitted on other formats.
    """
    named = sets.get(implementation, {})
    for forms in (named, *sets.values()):
        if form in forms:
            return forms[form]
    for forms in (named, *sets.values()):
        for timing, fit in forms.values():
            return Fitted(timing, fit._replace(low=fit.low**2, high=fit.high**2))
    return None


def movement(operator: Operator) -> str:
    """What sort of data-moving kernel it is: `norm`, `softmax`, `gather`, `scan`, `rotary`, `activation`, or `add`."""
    if operator.kind in ("norm", "softmax", "gather", "scan"):
        return operator.kind
    name = operator.name.removesuffix(".grad")
    return next((sort for sort in ("rotary", "activation") if name.endswith(sort)), "add")


def formats(operator: Operator, dtype: str) -> str:
    """The formats whose kernels differ, such as `fp16/int4`: of the products, and of weights or of keys and values."""
    if operator.kind == "communication":
        return "any"  # bytes are bytes
    widths = operator.widths
    stored = widths.kv if operator.kind == "attention" else widths.weights
    return form(dtype, stored.name)


def form(dtype: str, stored: str) -> str:
    """What parameters are fitted for: products in one format of tensors stored in another, such as `fp16/int4`."""
    return "/".join("fp16" if name == "bf16" else name for name in (dtype, stored))


def computed(operator: Operator, dtype: str) -> Format:
    """The format that an operator multiplies in, by name; as a rule the working format of its tensors."""
    working = operator.widths.dtype
    return working if working.name == dtype else FORMATS[dtype]


def product(operator: Operator, dtype: str) -> Product | None:
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
    quantised, narrow = 0, computed(operator, dtype).bits / 8
    if narrow < of_a:  # read as it is, written as the product wants it
        quantised, of_a = batch * m * k * (of_a + narrow), narrow
    return Product(batch, m, n, k, operator.cost.bytes, of_a, of_b, of_c, quantised)


def of_experts(operator: Operator, dtype: str) -> Chosen | None:
    """A product of rows with the matrices of the experts that some token chose; None for anything else."""
    if operator.kind != "grouped_gemm":
        return None
    (a, b), sizes, widths = operator.lines[0].factors, operator.sizes, operator.widths
    if "x" not in b.axes:  # the gradient of the matrices, which is a product of activations
        return None
    each = b.elements(sizes) / sizes["x"]
    touched = operator.touched.get(b.name, b.elements(sizes)) / each
    k = product_of(sizes[axis] for axis in operator.lines[0].contracted if axis != "x")
    narrow = min(computed(operator, dtype).bits, widths.format(a).bits) / 8
    return Chosen(touched, sizes["b:t:x"], each / k, k, narrow, widths.format(b).bits / 8)


def mixture(operator: Operator, dtype: str) -> Mixture:
    """What the formula of fused experts asks for, of an operator that is it."""
    sizes, rows = operator.sizes, operator.sizes["b:t:x"]
    token_bytes, row_bytes = 0, 0
    for part in operator.parts:
        for tensor in (*part.reads, *part.writes):
            if "b:t:x" in tensor.axes:
                row_bytes = row_bytes + part.bytes_of(tensor)
            elif not tensor.is_parameter:
                token_bytes = token_bytes + part.bytes_of(tensor)
    products = [found for part in operator.parts if (found := of_experts(part, dtype))]
    return Mixture(products, sizes["b"] * sizes["t"], sizes.get("b:t:X", rows), token_bytes, row_bytes)


def attended(operator: Operator) -> Attended:
    """What the formulas of fused attention ask for, of an operator that is it."""
    sizes, cost = operator.sizes, operator.cost
    kept = [tensor for tensor in operator.reads if "s" in tensor.axes]  # keys and values
    of_each_head = any("k" in tensor.axes for tensor in kept)
    return Attended(
        batch=sizes["b"],
        heads=product_of(sizes[axis] for axis in ("k", "g", "ki") if axis in sizes),  # ki: an indexer's
        kv_heads=sizes["k"] if of_each_head else 1,
        queries=sizes["t"],
        keys=sizes["s"],
        pairs=sizes["t:s"],
        flops=cost.matmul_flops,
        bytes=cost.bytes,
        kv_bytes=sum(operator.bytes_of(tensor) for tensor in kept),
    )


def _one_query(fused: Attended) -> bool:
    """Whether each sequence has one query: a decode, or a table of them."""
    one = fused.queries == 1
    return bool(one.all() if hasattr(one, "all") else one)
