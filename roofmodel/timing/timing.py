"""Expected time of an operator on a device, from parameters that were fitted to measurements on that device.

Each kind of kernel has its own formula (`gemm`, `attention`, `experts`, `collectives`, `elementwise`), which takes
ints and arrays. An expected time is never below its bound.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from roofmodel.counting.operator import ROUNDS, Operator
from roofmodel.devices.calibration import Calibration, Fit
from roofmodel.devices.device import Device
from roofmodel.devices.parts import Link
from roofmodel.engines.engine_file import AllReduce
from roofmodel.numbers.algebra import Number, either, is_just, maximum, minimum, plain, power, product, trace_branches
from roofmodel.timing import attention, gemm, parameter_sets
from roofmodel.timing.formula import ELEMENTWISE, Chip, FormulaDescription, chip, elementwise_kind, elementwise_seconds
from roofmodel.timing.gemm import GemmWork
from roofmodel.timing.parameter_sets import (
    Implementation,
    ParameterSet,
    choose_set,
    format_key,
    names_of,
    operator_format_key,
)
from roofmodel.timing.roofline import Placement, place, route, tree_share

if TYPE_CHECKING:
    from roofmodel.timing.experts import GroupedGemmWork, MoeWork


class Expected(NamedTuple):
    """An expected value, in seconds or per second, and the interval that contains 80 % of the measurements.

    Expected times add, and scale by a count.
    """

    value: Number
    low: Number
    high: Number

    def __add__(self, other: Expected) -> Expected:  # type: ignore[override]
        return Expected(*(a + b for a, b in zip(self, other, strict=True)))

    def __rmul__(self, times: Number) -> Expected:
        return Expected(*(times * value for value in self))


Expected.__array_ufunc__ = None  # type: ignore[attr-defined]  # an array of counts scales it as a number does


def independent_sum(term: Expected, other: Expected) -> Expected:
    """The sum of two times whose errors are independent: the widths of their intervals add as squares.

    `+` adds the widths themselves, which is right for errors that are equal, such as those of the kernels of a step.
    """
    down, up = (
        power((term.value - one_end) ** 2 + (other.value - other_end) ** 2, 0.5)
        for one_end, other_end in zip(term[1:], other[1:], strict=True)
    )
    seconds = term.value + other.value
    return Expected(seconds, seconds - down, seconds + up)


@trace_branches
def expect(
    operator: Operator, device: Device, dtype: str, implementation: Implementation = "", placed: Placement | None = None
) -> Expected | None:
    """The expected time of one occurrence; None where no parameters are fitted for the operator's kind.

    `implementation` names a parameter set or is an engine's preference; `choose_set` picks another set where none has
    such a name. `placed` is the operator's placement, if it is known. Raises WorkloadError where
    the device has no pipe for `dtype`.
    """
    placed = placed or place(operator.cost, device, operator.compute_dtype(dtype), operator.collective)
    kernel_formula = formula(operator, placed, device, dtype, implementation)
    return kernel_formula and clamp_to_bound(kernel_formula.seconds, kernel_formula.fit, placed.bound_seconds)


class Formula(NamedTuple):
    """The formula of an expected time, with its arguments and parameters.

    `seconds` is `function(*arguments, parameters)`, before it is clamped to the bound. The parameters are those of the
    kind `kind`, the implementation and the format key in the file of the device `fitted_on`; `is_substitute` if the
    operator has another key.
    """

    kind: str
    fitted_on: str

    description: FormulaDescription
    function: Callable[..., Number]
    arguments: tuple[Any, ...]
    parameters: Any
    fit: Fit
    implementation: str
    format_key: str
    is_substitute: bool
    seconds: Number

    @property
    def name(self) -> str:
        """The formula's name in JSON output."""
        return self.description.name


def formula(
    operator: Operator,
    placed: Placement,
    device: Device,
    dtype: str,
    implementation: Implementation = "",
    repeated: int = 0,
    copies: tuple[Number, Number] = (1, 1),
) -> Formula | None:
    """The formula for an operator, placed on the device; None where no parameters are fitted for its kind.

    `repeated` is 1 where a benchmark runs the operator again and again, so that L2 may keep its operands. A benchmark
    of a GEMM uses `copies` of both operands in turn.
    """
    dtype = operator.compute_dtype(dtype)
    ceilings = chip(device, dtype)
    if device.calibration is None or ceilings is None:
        return None
    if operator.kind == "communication":
        return _exchange(operator, device.calibration, device, implementation)
    return _kernel(operator, placed, dtype, device, device.calibration, ceilings, implementation, repeated, copies)


def clamp_to_bound(seconds: Number, fit: Fit, bound: Number) -> Expected:
    """A formula's time with the interval of its parameter set, none of it below the bound."""
    expected = maximum(seconds, bound)
    return Expected(expected, maximum(seconds * fit.low, bound), expected * fit.high)


def _exchange(
    operator: Operator, calibration: Calibration, device: Device, implementation: Implementation
) -> Formula | None:
    """The formula of a collective, over the links that it uses."""
    collective = operator.collective
    path = collective and route(collective, device)
    if collective is None or path is None:
        return None

    own = None if isinstance(implementation, str) else implementation.all_reduce
    is_own = runs_own_all_reduce(operator, device, own)

    def over(link: Link | None) -> ParameterSet | None:
        if link is None:
            return None
        names = names_of(implementation, "collectives", link.parameters)
        default = choose_set(calibration.collectives, names, link.parameters)
        if own is None or is_own is False:
            return default
        return _either(is_own, choose_set(calibration.collectives, (own.own, *names), link.parameters), default)

    node = _either(path.halved, over(device.half), over(device.inside))
    inside = _either(path.bridged, over(device.bridge), node)
    parameters, bandwidth = _either(path.leaves, over(device.network), inside), path.bandwidth
    if path.crossing and parameters and inside:  # inside the node, with the parameters of its own links
        ratio = inside.timing.bandwidth / parameters.timing.bandwidth
        crossing = path.crossing._replace(inside=path.crossing.inside * ratio)
        bandwidth = either(path.leaves, crossing.bandwidth, bandwidth)
    from roofmodel.timing import collectives

    rounds = ROUNDS[collective.name]
    sent = plain(operator.link_bytes)
    crossing_bytes = tree_share(collective, device, sent) * sent
    work = collectives.CollectiveWork(collective.gpus, rounds, crossing_bytes, path.nodes)
    of_kind = ("collectives", calibration)
    return parameters and _applied(of_kind, collectives.DESCRIPTION, collectives.seconds, (work, bandwidth), parameters)


PCIE_BANDWIDTH = 256e9
"""Bytes per second, both directions, of the fastest PCIe link (6.0, 16 lanes); NVLink has more since Volta."""


def runs_own_all_reduce(operator: Operator, device: Device, own: AllReduce | None) -> Number:
    """Whether an engine's own kernel reduces: an all-reduce over NVLink inside a node, of a message that it takes."""
    collective = operator.collective
    path = route(collective, device) if collective and collective.name == "all_reduce" and own else None
    if own is None or path is None or device.inside is None:
        return False
    over_nvlink = device.inside.bandwidth > PCIE_BANDWIDTH
    if over_nvlink is False:
        return False
    is_own = either(path.leaves, False, operator.exchanged_bytes <= own.up_to)
    return is_own if over_nvlink is True else is_own * over_nvlink


def _either(condition: Number, yes: ParameterSet | None, no: ParameterSet | None) -> ParameterSet | None:
    """One of two sets; for arrays of conditions, a set whose parameters are arrays."""
    if isinstance(condition, bool) or yes is None or no is None:
        return yes if condition is True else no
    timing = type(no.timing)(*(either(condition, *pair) for pair in zip(yes.timing, no.timing, strict=True)))
    low, high = (either(condition, getattr(yes.fit, end), getattr(no.fit, end)) for end in ("low", "high"))
    return no._replace(timing=timing, fit=no.fit._replace(low=low, high=high))


def _applied(
    of_kind: tuple[str, Calibration],
    description: FormulaDescription,
    function: Callable[..., Number],
    arguments: tuple[Any, ...],
    chosen: ParameterSet,
) -> Formula:
    """The formula with a set of parameters, which is of a kind in a calibration."""
    kind, calibration = of_kind
    seconds = function(*arguments, chosen.timing)
    return Formula(kind, calibration.fitted_on(kind), description, function, arguments, *chosen, seconds)


def merged_gemms(
    operators: Sequence[Operator], device: Device, dtype: str, implementation: Implementation = ""
) -> tuple[Formula, list[Number]] | None:
    """The formula of GEMMs with one input that run as one GEMM, with the columns of all; and the columns of each.

    Where the compute format is narrower than the input, the previous kernel has quantized it. None where no GEMM
    parameters are fitted, or where an operator is no GEMM.
    """
    dtype = operators[0].compute_dtype(dtype)
    ceilings = chip(device, dtype)
    gemms = [gemm_work(operator, dtype) for operator in operators]
    calibration = device.calibration
    key = operator_format_key(operators[0], dtype)
    chosen = calibration and choose_set(calibration.gemm, names_of(implementation, "gemm", key), key)
    gemm_works = [_already_quantized(each) for each in gemms if each is not None]
    if calibration is None or not chosen or ceilings is None or len(gemm_works) < len(gemms):
        return None
    again = sum(each.batch * each.m * each.k * each.a for each in gemm_works[1:])  # of the input, which is read once
    columns = [each.n for each in gemm_works]
    merged = gemm_works[0]._replace(n=sum(columns), bytes=sum(each.bytes for each in gemm_works) - again)
    merged = _with_alignment(merged, operators[0], device, dtype, implementation)
    return _applied(("gemm", calibration), gemm.DESCRIPTION, gemm.seconds, (merged, ceilings), chosen), columns


def _already_quantized(work: GemmWork) -> GemmWork:
    """The GEMM without the kernel that quantizes A: A is read in the compute format."""
    elements = work.batch * work.m * work.k * (work.quantized > 0)
    return work._replace(quantized=0, bytes=work.bytes - (work.quantized - 2 * elements * work.a))


def gemm_load(
    operator: Operator, work: GemmWork, device: Device, dtype: str, implementation: Implementation = ""
) -> Number:
    """The widest load in bytes that the rows of a GEMM's matrices allow."""
    pads = not isinstance(implementation, str) and implementation.pads_vocabulary
    load = gemm.load_bytes(operator, work, operator.widths.compute_format(dtype), pads)
    return either(runs_in_fp32_on_cuda_cores(operator, device, dtype), gemm.LOADS[0], load)


def _with_alignment(
    work: GemmWork, operator: Operator, device: Device, dtype: str, implementation: Implementation
) -> GemmWork:
    """The GEMM with what the alignment of its rows leaves of the tensor cores' rate."""
    if device.unaligned is None:
        return work
    load = gemm_load(operator, work, device, dtype, implementation)
    return work._replace(aligned=gemm.aligned_share(load, device.unaligned))


def expect_elementwise(data: Number, device: Device, dtype: str) -> Expected | None:
    """The expected time of an elementwise kernel that reads and writes `data` bytes, and that no operator counts."""
    ceilings = chip(device, dtype)
    chosen = device.calibration and choose_set(device.calibration.elementwise, "add", format_key(dtype, dtype))
    if not chosen or ceilings is None:
        return None
    seconds = elementwise_seconds(plain(data), 0, ceilings, chosen.timing)
    return Expected(seconds, chosen.fit.low * seconds, chosen.fit.high * seconds)


def _kernel(
    operator: Operator,
    placed: Placement,
    dtype: str,
    device: Device,
    calibration: Calibration,
    ceilings: Chip,
    implementation: Implementation,
    repeated: int,
    copies: tuple[Number, Number],
) -> Formula | None:
    """The formula of a kernel by its kind."""
    kind, _, chosen = kernel_parameters(operator, calibration, dtype, implementation)

    def applied(description: FormulaDescription, function: Callable[..., Number], *arguments: Any) -> Formula | None:
        return chosen and _applied((kind, calibration), description, function, (*arguments, ceilings), chosen)

    if kind in parameter_sets.KINDS:
        computed = parameter_sets.computed_format(kind, operator)
        if computed in device.types:
            ceilings = chip(device, computed) or ceilings
        description, function, make_work = parameter_sets.kernel_formula(kind)
        if make_work:
            return applied(description, function, make_work(operator))
        matrices = gemm_work(operator, dtype)
        return applied(description, function, matrices and matrices._replace(copies_b=repeated))
    if kind in parameter_sets.DECODES:
        return applied(attention.DECODE, attention.decode_seconds, attention.work(operator)._replace(repeated=repeated))
    if kind in parameter_sets.PREFILLS:
        return applied(
            attention.PREFILL, attention.prefill_seconds, attention.work(operator)._replace(repeated=repeated)
        )
    if kind == "experts":
        from roofmodel.timing import experts

        if operator.kind == "moe":
            return applied(experts.DESCRIPTION, experts.seconds, moe_work(operator, dtype)._replace(repeated=repeated))
        grouped = grouped_gemm_work(operator, dtype)
        assert grouped is not None
        moved = placed.cost.bytes - placed.cost.weight_bytes
        return applied(experts.DESCRIPTION, experts.separate_gemm_seconds, grouped, moved)
    if kind == "gemm":
        matrices = gemm_work(operator, dtype)
        assert matrices is not None
        if (winograd := has_winograd_shape(operator)) is not False:
            share = either(winograd * runs_in_fp32_on_cuda_cores(operator, device, dtype), WINOGRAD_SHARE, 1)
            matrices = matrices._replace(k=share * matrices.k)
        matrices = _with_alignment(matrices, operator, device, dtype, implementation)
        if repeated:
            matrices = matrices._replace(copies_a=copies[0], copies_b=copies[1])
        return applied(gemm.DESCRIPTION, gemm.seconds, matrices)
    return applied(ELEMENTWISE, elementwise_seconds, plain(placed.cost.bytes), placed.compute_seconds)


class KernelParameters(NamedTuple):
    """The parameters of an operator's kernel: their kind, as a device's file names it, the format key of the operator,
    and the set that is used; None where no set is fitted for the kind."""

    kind: str
    format_key: str
    chosen: ParameterSet | None


def kernel_parameters(
    operator: Operator, calibration: Calibration, dtype: str, implementation: Implementation = ""
) -> KernelParameters:
    """The parameters that the expected time of an operator uses, for all operators but collectives."""
    kind = _kernel_kind(operator, calibration)
    sets, dtype = getattr(calibration, kind), operator.compute_dtype(dtype)
    key = operator_format_key(operator, dtype)
    names = names_of(implementation, kind, key)
    if kind == "experts":
        names = parameter_sets.names_for_experts(operator, implementation, key)
    if kind == "elementwise":
        tensors = operator.widths.dtype.name  # the format of the tensors: 16 bits also where GEMMs compute in fp8
        key = format_key(tensors, tensors)
        names = (*(name for name in names if name and name in sets), elementwise_kind(operator))
    elif operator.kind == "conv":
        names = (*filter(None, names if isinstance(implementation, str) else ()), CONVOLUTION_LIBRARY, *names)
    chosen = choose_set(sets, names, key)
    if kind == "sparse_prefill" and chosen:
        variant = parameter_sets.sparse_variant(operator, chosen.implementation, chosen.format_key)
        if variant and variant.format_key in sets.get(variant.implementation, {}):
            chosen = _either(variant.applies, choose_set(sets, *variant[1:]), chosen)
    return KernelParameters(kind, key, chosen)


def _kernel_kind(operator: Operator, calibration: Calibration) -> str:
    """The kind of parameters of an operator's kernel."""
    kind = parameter_sets.kind(operator)
    if kind and getattr(calibration, kind):
        return kind
    if kind in parameter_sets.DECODES:
        return "decode_attention"
    if kind in parameter_sets.PREFILLS:
        return "prefill_attention"
    if operator.kind == "moe" or _is_grouped_gemm(operator):
        return "experts"
    return "gemm" if _is_gemm(operator) else "elementwise"


CONVOLUTION_LIBRARY = "cudnn"
"""The set of GEMM parameters for convolutions of images, where a device has one: its kernels differ from cuBLAS's."""

WINOGRAD_SHARE = 4 / 9
"""Multiplications of a 3 x 3 convolution by Winograd's algorithm F(2 x 2, 3 x 3): 16 for four outputs instead of 36
(Lavin and Gray, arXiv 1509.09308, section 4.1)."""


WINOGRAD_CHANNELS = 64
"""Least channels of a group whose convolution uses Winograd's algorithm.

The narrowest convolution of ResNet-50 has as many. Published forward passes of networks with 112 to 168 channels per
group leave less time for these convolutions than their multiplications take at the peak, if the others reach 90 % of
it (`benchmarks/convolutions.py`); passes of networks with 56 or fewer channels leave more.
"""


def has_winograd_shape(operator: Operator) -> Number:
    """Whether cuDNN computes a convolution in fp32 by Winograd's algorithm: 3 x 3 with stride 1, no narrow groups.

    In a trace of ResNet-50's training on a V100 (pytorch/kineto@94979607), the forward pass and both gradients of all
    convolutions of this shape use it, and no others do.
    """
    sizes = operator.sizes
    if operator.kind != "conv" or not {"r", "s", "i", "j", "i+r", "j+s"} <= sizes.keys():
        return False
    is_narrow = not is_just(sizes.get("g", 1), 1) and bool(minimum(sizes["c"], sizes["o"]) < WINOGRAD_CHANNELS)
    if is_narrow or not sizes["r"] == sizes["s"] == 3:
        return False
    return _has_unit_stride(sizes)


def runs_in_fp32_on_cuda_cores(operator: Operator, device: Device, dtype: str) -> Number:
    """Whether an operator multiplies in 32 bits on the pipe of vector operations; tf32 runs on tensor cores."""
    vector = device.vector_pipe(dtype)
    return vector is not None and (operator.widths.compute_format(dtype).bits == 32) * (
        device.matmul_pipe(dtype).peak == vector.peak
    )


def _has_unit_stride(sizes: Mapping[str, Number]) -> Number:
    """Whether a filter of 3 rows and columns moves by one pixel: it reads at most two rows more than it writes."""
    return product(sizes[f"{axis}+{side}"] <= sizes[axis] + 2 for axis, side in (("i", "r"), ("j", "s")))


def _is_gemm(operator: Operator) -> bool:
    return len(operator.lines) == 1 and bool(operator.lines[0].contracted)


def gemm_work(operator: Operator, dtype: str) -> GemmWork | None:
    """A contraction as a GEMM; None for any other operator."""
    if not _is_gemm(operator):
        return None
    line, widths = operator.lines[0], operator.widths
    a, b = line.factors
    of_a, of_b, of_c = (widths.format(tensor).bits / 8 for tensor in (a, b, line.outputs[0]))
    if operator.gemm is not None:
        batch, m, n, k = operator.gemm
    else:
        # the weight gradient of experts contracts over the rows of tokens
        sizes, matrices = operator.sizes, line.outputs[0]
        batch, k = sizes["x"], sizes["b:t:x"] / sizes["x"]
        m = product(sizes[axis] for axis in a.axes if axis in matrices.axes)
        n = matrices.elements(sizes) / (sizes["x"] * m)
    narrow = operator.widths.compute_format(dtype).bits / 8
    # the kernel before reads A and writes it in the compute format
    quantized, of_a = either(narrow < of_a, batch * m * k * (of_a + narrow), 0), minimum(of_a, narrow)
    batch, m, n, k, moved, quantized = map(plain, (batch, m, n, k, operator.cost.bytes, quantized))
    return GemmWork(batch, m, n, k, moved, of_a, of_b, of_c, quantized)


def _is_grouped_gemm(operator: Operator) -> bool:
    """Whether this is a GEMM with the weights of each expert; the weight gradient is a GEMM of activations."""
    return operator.kind == "grouped_gemm" and "x" in operator.lines[0].factors[1].axes


def grouped_gemm_work(operator: Operator, dtype: str) -> GroupedGemmWork | None:
    """The grouped GEMM of the experts that at least one token chose; None for any other operator."""
    if not _is_grouped_gemm(operator):
        return None
    from roofmodel.timing.experts import GroupedGemmWork

    (a, b), sizes, widths = operator.lines[0].factors, operator.sizes, operator.widths
    each = b.elements(sizes) / sizes["x"]
    touched = operator.touched.get(b.name, b.elements(sizes)) / each
    k = product(sizes[axis] for axis in operator.lines[0].contracted if axis != "x")
    narrow = minimum(operator.widths.compute_format(dtype).bits, widths.format(a).bits) / 8
    small_batch = sizes["b"] * sizes["t"] <= sizes["x"]
    return GroupedGemmWork(touched, plain(sizes["b:t:x"]), each / k, k, narrow, widths.format(b).bits / 8, small_batch)


def moe_work(operator: Operator, dtype: str) -> MoeWork:
    """The input of the formula of a fused MoE layer, from its operator."""
    from roofmodel.timing.experts import MoeWork

    sizes = operator.sizes
    moved_rows = sizes.get("b:t:X", sizes["b:t:x"]) / sizes["b:t:x"]  # relative to the rows of this GPU's experts
    moved: Number = 0
    for part in operator.parts:
        for tensor in (*part.reads, *part.writes):
            if "b:t:x" in tensor.axes:
                moved = moved + part.bytes_of(tensor) * moved_rows
            elif not tensor.is_parameter:
                moved = moved + part.bytes_of(tensor)
    even = sizes.get("even", 0)
    gemms = [work._replace(even=even) for part in operator.parts if (work := grouped_gemm_work(part, dtype))]
    return MoeWork(gemms, moved)
