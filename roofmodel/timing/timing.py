"""Expected time of an operator on a device, from parameters that were fitted to measurements on that device.

Each kind of kernel has its own formula (`gemm`, `attention`, `experts`, `collectives`, `stream`), which takes ints and
arrays. An expected time is never below its bound.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from roofmodel.counting.collective import ROUNDS
from roofmodel.counting.number_formats import FORMATS, Format
from roofmodel.counting.operator import Operator
from roofmodel.devices.calibration import Calibration, Fit
from roofmodel.devices.device import Device
from roofmodel.devices.parts import Link
from roofmodel.numbers.algebra import Number, either, is_just, maximum, minimum, plain, power, product, trace_branches
from roofmodel.timing import attention, gemm, layer_kernels, stream
from roofmodel.timing.formula import Chip, FormulaDescription, chip
from roofmodel.timing.gemm import GemmWork
from roofmodel.timing.links import route, tree_share
from roofmodel.timing.parameter_sets import ParameterSet, choose_set, format_key, operator_format_key
from roofmodel.timing.roofline import Placement, place
from roofmodel.timing.stream import stream_kind

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


def independent_sum(one: Expected, other: Expected) -> Expected:
    """The sum of two times whose errors are independent: the widths of their intervals add as squares.

    `+` adds the widths themselves, which is right for errors that are equal, such as those of the kernels of a step.
    """
    down, up = (
        power((one.value - one_end) ** 2 + (other.value - other_end) ** 2, 0.5)
        for one_end, other_end in zip(one[1:], other[1:], strict=True)
    )
    seconds = one.value + other.value
    return Expected(seconds, seconds - down, seconds + up)


EAGER_LAUNCH = Expected(40e-6, 20e-6, 60e-6)
"""Seconds of host code per operator in eager mode, Python included.

From published forward passes of BERT base at batch 1, which take the same time for 64 tokens as for 384 and are
therefore launch-bound: eager PyTorch takes 33 µs per operator on one machine and 45 µs on another (AITemplate's
README); TorchScript, without Python, 22 to 60 µs on four machines; TensorFlow's graph 12 µs on the fastest of them
(FasterTransformer's guide).
"""

STEP_SPREAD_P90 = 1.17
"""90th percentile of measured step time / sum of launches, with a known launch time.

From 15 passes of BERT in eager PyTorch, with the launch time of batch 1 (AITemplate's README,
`benchmarks/published.py`).
"""


def assumed_launch(launch: float) -> Expected:
    """The host's seconds per operator, given its launch time."""
    return Expected(launch, launch, STEP_SPREAD_P90 * launch)


@trace_branches
def expect(
    operator: Operator, device: Device, dtype: str, implementation: str = "", placed: Placement | None = None
) -> Expected | None:
    """The expected time of one occurrence; None where no parameters are fitted for the operator's kind.

    `implementation` names a parameter set, as the column `kernel` of a table of measurements does; `choose_set` picks
    another where no set has that name. `placed` is the operator's placement, if it is known. Raises WorkloadError where
    the device has no pipe for `dtype`.
    """
    placed = placed or place(operator.cost, device, operator.compute_dtype(dtype), operator.collective)
    found = formula(operator, placed, device, dtype, implementation)
    return found and clamp_to_bound(found.seconds, found.fit, placed.bound_seconds)


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
    implementation: str = "",
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


def _exchange(operator: Operator, calibration: Calibration, device: Device, implementation: str) -> Formula | None:
    """The formula of a collective, over the links that it uses."""
    collective = operator.collective
    path = collective and route(collective, device)
    if collective is None or path is None:
        return None

    def over(link: Link | None) -> ParameterSet | None:
        return link and choose_set(calibration.collectives, implementation, link.parameters)

    node = _either(path.halved, over(device.half), over(device.inside))
    inside = _either(path.bridged, over(device.bridge), node)
    found, bandwidth = _either(path.leaves, over(device.network), inside), path.bandwidth
    if path.crossing and found and inside:  # inside the node, with the parameters of its own links
        ratio = inside.timing.bandwidth / found.timing.bandwidth
        crossing = path.crossing._replace(inside=path.crossing.inside * ratio)
        bandwidth = either(path.leaves, crossing.bandwidth, bandwidth)
    from roofmodel.timing import collectives

    rounds = ROUNDS[collective.name]
    sent = plain(operator.link_bytes)
    crossing_bytes = tree_share(collective, device, sent) * sent
    work = collectives.CollectiveWork(collective.gpus, rounds, crossing_bytes, path.nodes)
    of_kind = ("collectives", calibration)
    return found and _applied(of_kind, collectives.DESCRIPTION, collectives.seconds, (work, bandwidth), found)


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


def merged_gemms(operators: Sequence[Operator], device: Device, dtype: str) -> tuple[Formula, list[Number]] | None:
    """The formula of GEMMs with one input that run as one GEMM, with the columns of all; and the columns of each.

    Where the compute format is narrower than the input, the previous kernel has quantized it. None where no GEMM
    parameters are fitted, or where an operator is no GEMM.
    """
    dtype = operators[0].compute_dtype(dtype)
    ceilings = chip(device, dtype)
    gemms = [gemm_work(operator, dtype) for operator in operators]
    calibration = device.calibration
    chosen = calibration and choose_set(calibration.gemm, "", operator_format_key(operators[0], dtype))
    known = [_already_quantized(each) for each in gemms if each is not None]
    if calibration is None or not chosen or ceilings is None or len(known) < len(gemms):
        return None
    again = sum(each.batch * each.m * each.k * each.a for each in known[1:])  # of the input, which is read once
    columns = [each.n for each in known]
    whole = known[0]._replace(n=sum(columns), bytes=sum(each.bytes for each in known) - again)
    return _applied(("gemm", calibration), gemm.DESCRIPTION, gemm.seconds, (whole, ceilings), chosen), columns


def _already_quantized(work: GemmWork) -> GemmWork:
    """The GEMM without the kernel that quantizes A: A is read in the compute format."""
    elements = work.batch * work.m * work.k * (work.quantized > 0)
    return work._replace(quantized=0, bytes=work.bytes - (work.quantized - 2 * elements * work.a))


def expect_elementwise(data: Number, device: Device, dtype: str) -> Expected | None:
    """The expected time of an elementwise kernel that reads and writes `data` bytes, and that no operator counts."""
    ceilings = chip(device, dtype)
    chosen = device.calibration and choose_set(device.calibration.stream, "add", format_key(dtype, dtype))
    if not chosen or ceilings is None:
        return None
    seconds = stream.seconds(plain(data), 0, ceilings, chosen.timing)
    return Expected(seconds, chosen.fit.low * seconds, chosen.fit.high * seconds)


def _kernel(
    operator: Operator,
    placed: Placement,
    dtype: str,
    device: Device,
    calibration: Calibration,
    ceilings: Chip,
    implementation: str,
    repeated: int,
    copies: tuple[Number, Number],
) -> Formula | None:
    """The formula of a kernel by its kind."""
    kind, _, chosen = kernel_parameters(operator, calibration, dtype, implementation)

    def found(description: FormulaDescription, function: Callable[..., Number], *arguments: Any) -> Formula | None:
        return chosen and _applied((kind, calibration), description, function, (*arguments, ceilings), chosen)

    if kind in layer_kernels.KINDS:
        description, function, make_work = layer_kernels.kernel_formula(kind)
        return found(description, function, make_work(operator) if make_work else gemm_work(operator, dtype))
    if kind in layer_kernels.DECODES:
        return found(attention.DECODE, attention.decode_seconds, attention.work(operator)._replace(repeated=repeated))
    if kind in layer_kernels.PREFILLS:
        return found(attention.PREFILL, attention.prefill_seconds, attention.work(operator)._replace(repeated=repeated))
    if kind == "experts":
        from roofmodel.timing import experts

        if operator.kind == "moe":
            return found(experts.DESCRIPTION, experts.seconds, moe_work(operator, dtype)._replace(repeated=repeated))
        grouped = grouped_gemm_work(operator, dtype)
        assert grouped is not None
        grouped = grouped._replace(pairs=plain(operator.sizes.get("b:t:X", grouped.rows)))
        moved = placed.cost.bytes - placed.cost.weight_bytes
        return found(experts.DESCRIPTION, experts.separate_gemm_seconds, grouped, moved)
    if kind == "gemm":
        matrices = gemm_work(operator, dtype)
        assert matrices is not None
        if has_winograd_shape(operator):
            share = either(runs_in_fp32_on_cuda_cores(operator, device, dtype), WINOGRAD_SHARE, 1)
            matrices = matrices._replace(k=share * matrices.k)
        if repeated:
            matrices = matrices._replace(copies_a=copies[0], copies_b=copies[1])
        return found(gemm.DESCRIPTION, gemm.seconds, matrices)
    return found(stream.DESCRIPTION, stream.seconds, plain(placed.cost.bytes), placed.compute_seconds)


class KernelParameters(NamedTuple):
    """The parameters of an operator's kernel: their kind, as a device's file names it, the format key of the operator,
    and the set that is used; None where no set is fitted for the kind."""

    kind: str
    format_key: str
    chosen: ParameterSet | None


def kernel_parameters(
    operator: Operator, calibration: Calibration, dtype: str, implementation: str = ""
) -> KernelParameters:
    """The parameters that the expected time of an operator uses, for all operators but collectives."""
    kind, name = _kernel_kind(operator, calibration), implementation
    sets, dtype = getattr(calibration, kind), operator.compute_dtype(dtype)
    key = operator_format_key(operator, dtype)
    if kind in layer_kernels.KINDS:
        name = layer_kernels.similar_kernel(implementation, sets)
    elif kind == "stream":
        tensors = operator.widths.dtype.name  # the format of the tensors: 16 bits also where GEMMs compute in fp8
        key = format_key(tensors, tensors)
        name = implementation if implementation and implementation in sets else stream_kind(operator)
    elif operator.kind == "conv":
        name = implementation or CONVOLUTION_LIBRARY
    return KernelParameters(kind, key, choose_set(sets, name, key))


def _kernel_kind(operator: Operator, calibration: Calibration) -> str:
    """The kind of parameters of an operator's kernel."""
    kind = layer_kernels.kind(operator)
    if kind and getattr(calibration, kind):
        return kind
    if kind in layer_kernels.DECODES:
        return "decode_attention"
    if kind in layer_kernels.PREFILLS:
        return "prefill_attention"
    if operator.kind == "moe" or _is_grouped_gemm(operator):
        return "experts"
    return "gemm" if _is_gemm(operator) else "stream"


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


def has_winograd_shape(operator: Operator) -> bool:
    """Whether cuDNN computes a convolution in fp32 by Winograd's algorithm: 3 x 3 with stride 1, no narrow groups.

    In a trace of ResNet-50's training on a V100 (pytorch/kineto@94979607), the forward pass and both gradients of all
    convolutions of this shape use it, and no others do.
    """
    sizes = operator.sizes
    if operator.kind != "conv" or not {"r", "s", "i", "j", "i+r", "j+s"} <= sizes.keys():
        return False
    if not (sizes["r"] == sizes["s"] == 3 and _has_unit_stride(sizes)):
        return False
    return is_just(sizes.get("g", 1), 1) or bool(minimum(sizes["c"], sizes["o"]) >= WINOGRAD_CHANNELS)


def runs_in_fp32_on_cuda_cores(operator: Operator, device: Device, dtype: str) -> Number:
    """Whether an operator multiplies in 32 bits on the pipe of vector operations; tf32 runs on tensor cores."""
    vector = device.vector_pipe(dtype)
    return vector is not None and (compute_format(operator, dtype).bits == 32) * (
        device.matmul_pipe(dtype).peak == vector.peak
    )


def _has_unit_stride(sizes: Mapping[str, Number]) -> bool:
    """Whether a filter of 3 rows and columns moves by one pixel: it reads at most two rows more than it writes."""
    return all(bool(sizes[f"{axis}+{side}"] <= sizes[axis] + 2) for axis, side in (("i", "r"), ("j", "s")))


def compute_format(operator: Operator, dtype: str) -> Format:
    """The format that an operator multiplies in: `dtype`."""
    working = operator.widths.dtype
    return working if working.name == dtype else FORMATS[dtype]


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
    narrow = compute_format(operator, dtype).bits / 8
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
    narrow = min(compute_format(operator, dtype).bits, widths.format(a).bits) / 8
    few = sizes["b"] * sizes["t"] <= sizes["x"]
    return GroupedGemmWork(touched, plain(sizes["b:t:x"]), each / k, k, narrow, widths.format(b).bits / 8, few)


def moe_work(operator: Operator, dtype: str) -> MoeWork:
    """The input of the formula of a fused MoE layer, from its operator."""
    from roofmodel.timing.experts import MoeWork

    sizes, rows = operator.sizes, operator.sizes["b:t:x"]
    token_bytes, row_bytes = 0, 0
    for part in operator.parts:
        for tensor in (*part.reads, *part.writes):
            if "b:t:x" in tensor.axes:
                row_bytes = row_bytes + part.bytes_of(tensor)
            elif not tensor.is_parameter:
                token_bytes = token_bytes + part.bytes_of(tensor)
    even = sizes.get("even", 0)
    gemms = [found._replace(even=even) for part in operator.parts if (found := grouped_gemm_work(part, dtype))]
    return MoeWork(gemms, sizes["b"] * sizes["t"], sizes.get("b:t:X", rows), token_bytes, row_bytes)
