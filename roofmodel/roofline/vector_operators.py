"""Vector FLOPs and bytes of PyTorch's operators: elementwise, reductions, norms, pools, copies. One table for all.

`roof count` computes FLOPs from the tensors of a call, `work` FLOPs and bytes from the arguments that a profile has.
FLOPs per element follow `counting/vector_flops.py`. Bytes are compulsory traffic: each tensor is read or written once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Literal, NamedTuple

from roofmodel.counting import vector_flops
from roofmodel.counting.vector_flops import ACTIVATION, BACKWARD_FACTOR, NORM, OPTIMIZER, FlopCount
from roofmodel.roofline.matrix_operators import broadcast
from roofmodel.roofline.recorded_inputs import FLOATS, Arguments, NotCounted, RecordedTensor, Work

Per = Literal["output", "input", "larger", "window", "list"]


class VectorOperator(NamedTuple):
    """FLOPs per element of what `per` names, and the work from recorded arguments.

    `per`: the output, the first input, the larger of both, each window of a pool, or all tensors of the first list.
    `training` is the argument that says whether a batch norm computes mean and variance.
    """

    flops: int
    per: Per
    work: Callable[[Arguments], Work]
    training: int | None = None


_TRUTH = frozenset({
    "eq", "ne", "lt", "le", "gt", "ge", "logical_not", "logical_and", "logical_or", "logical_xor", "isnan", "isinf",
    "isfinite",
})  # fmt: skip
_BACKWARD = BACKWARD_FACTOR["inputs"]
_ONE = FlopCount(1, "one operation")
_LEAKY = ACTIVATION["leaky_relu"]
# FLOPs per element of the output, by the number of tensors that are read: more arguments are outputs.
_UNARY = {
    **dict.fromkeys(("neg", "abs", "exp", "log", "sqrt", "rsqrt", "reciprocal", "erf", "sin", "cos", "floor"), _ONE),
    **dict.fromkeys(("round", "ceil", "trunc", "sign", "sgn", "log1p", "expm1", "log2", "log10", "exp2", "tan"), _ONE),
    **dict.fromkeys(("square", "logical_not", "bitwise_not", "isnan", "isinf", "isfinite", "erfinv", "frac"), _ONE),
    **{name: ACTIVATION[name] for name in ("relu", "tanh", "sigmoid", "silu", "gelu", "mish", "relu6")},
    "leaky_relu": _LEAKY, "rrelu_with_noise": _LEAKY,
    "threshold": FlopCount(1, "compare"),
    "clamp": FlopCount(2, "min(max(x, a), b)"),
    "hardtanh": FlopCount(2, "min(max(x, a), b)"),
    "hardshrink": FlopCount(2, "x where |x| > a: absolute value 1, compare 1"),
    "softshrink": FlopCount(3, "x - a above a, x + a below -a: compare 2, add 1"),
    "elu": FlopCount(3, "x above 0, a (exp(x) - 1) below: exp - 1 is 1, multiply 1, choose the branch 1"),
    "celu": FlopCount(4, "as elu, of x / a: divide 1"),
    "softplus": FlopCount(3, "log(1 + exp(x))"),
    "log_sigmoid_forward": FlopCount(3, "-log(1 + exp(-x)), the negations not counted"),
    "logit": FlopCount(3, "log(x / (1 - x))"),
    "hardsigmoid": FlopCount(4, "min(max(x + 3, 0), 6) / 6"),
    "hardswish": FlopCount(5, "x min(max(x + 3, 0), 6) / 6 (Howard et al., arXiv 1905.02244)"),
}  # fmt: skip
_BINARY = {
    **dict.fromkeys(("add", "sub", "rsub", "mul", "div", "maximum", "minimum", "pow", "true_divide"), _ONE),
    **dict.fromkeys(("eq", "ne", "lt", "le", "gt", "ge", "clamp_min", "clamp_max", "masked_fill"), _ONE),
    **dict.fromkeys(("remainder", "fmod", "atan2", "floor_divide", "logical_and", "logical_or", "logical_xor"), _ONE),
    **dict.fromkeys(("bitwise_and", "bitwise_or", "bitwise_xor", "__and__", "__or__", "__xor__"), _ONE),
    "_prelu_kernel": _LEAKY,
    "threshold_backward": FlopCount(1, "compare"),
    "relu_backward": FlopCount(1, "compare"),
    "mse_loss": FlopCount(2, "(x - y)^2"),
    "l1_loss": FlopCount(2, "|x - y|"),
    "smooth_l1_loss": FlopCount(4, "|x - y|: 2; times itself 1, choose the branch 1"),
    "hypot": FlopCount(4, "sqrt(x^2 + y^2)"),
    "tanh_backward": FlopCount(3, "g (1 - y^2)"),
    "sigmoid_backward": FlopCount(3, "g y (1 - y)"),
    "hardtanh_backward": FlopCount(2, "g between a and b: compare 2"),
    "hardsigmoid_backward": FlopCount(3, "g / 6 between -3 and 3: compare 2, divide 1"),
    "hardswish_backward": FlopCount(5, "g (x / 3 + 1/2) between -3 and 3: compare 2, multiply 2, add 1"),
    "elu_backward": FlopCount(4, "g a exp(x) below 0: exp 1, multiply 2, compare 1"),
    "softplus_backward": FlopCount(4, "g z / (1 + z), z = exp(x)"),
    "leaky_relu_backward": FlopCount(_BACKWARD * _LEAKY, _BACKWARD.operations),
    "gelu_backward": FlopCount(_BACKWARD * ACTIVATION["gelu"], _BACKWARD.operations),
    "silu_backward": FlopCount(_BACKWARD * ACTIVATION["silu"], _BACKWARD.operations),
    "mish_backward": FlopCount(_BACKWARD * ACTIVATION["mish"], _BACKWARD.operations),
    "native_dropout_backward": FlopCount(2, "times the mask, times the scale"),
    "masked_scale": FlopCount(2, "times the mask, times the scale"),
}  # fmt: skip
_TERNARY = {
    "where": FlopCount(1, "choose"),
    "addcmul": FlopCount(3, "x + a y z"),
    "addcdiv": FlopCount(3, "x + a y / z"),
    "lerp": FlopCount(3, "x + a (y - x)"),
    "mse_loss_backward": FlopCount(3, "g a (x - y)"),
    "smooth_l1_loss_backward": FlopCount(4, "x - y 1, choose the branch 1, divide 1, times g 1"),
}
_ELEMENTWISE: tuple[Mapping[str, FlopCount], ...] = (_UNARY, _BINARY, _TERNARY)
_LOSSES = ("mse_loss", "l1_loss", "smooth_l1_loss")  # their output is one number, the mean, by default
_WRITES = (
    "fill", "zero", "normal", "uniform", "bernoulli", "random", "exponential", "zeros", "ones", "full", "arange",
    "eye", "zeros_like", "ones_like", "full_like", "rand_like", "randn_like", "scalar_tensor",
)  # fmt: skip
_MOVES = ("clone", "contiguous", "_to_copy", "roll", "flip", "tril", "triu", "pixel_shuffle", "pixel_unshuffle")
_REDUCTIONS = {
    **dict.fromkeys(("sum", "mean", "amax", "amin", "max", "min", "argmax", "argmin", "prod", "all", "any"), _ONE),
    "nansum": _ONE,
    "norm": FlopCount(2, "square 1, sum 1"),
    "linalg_vector_norm": FlopCount(2, "square 1, sum 1"),
    **dict.fromkeys(("var", "std", "var_mean", "std_mean"), FlopCount(4, "mean 1, subtract it 1, square 1, sum 1")),
    "logsumexp": FlopCount(3, "subtract the maximum 1, exp 1, sum 1"),
}
_SCANS = {"cumsum": _ONE, "cumprod": _ONE, "logcumsumexp": FlopCount(3, "subtract the maximum 1, exp 1, sum 1")}


def work(name: str, args: Arguments) -> Work | None:
    """The work of an operator (its name without `aten::` and a final underscore); None if it has no formula.

    Raises NotCounted if the recorded arguments do not suffice.
    """
    if name.startswith("_foreach_"):
        return _foreach(name.removeprefix("_foreach_"), args)
    operator = OPERATORS.get(name)
    return operator.work(args) if operator else None


def _elementwise(name: str, inputs: int, flops: int, args: Arguments) -> Work:
    operands = [each for i in range(inputs) if (each := args.optional(i))]
    if not operands:
        raise NotCounted("it has no tensor argument")
    shape = broadcast(*(each.shape for each in operands))
    form = _result(operands[1:] if name == "where" and len(operands) > 1 else operands)
    width = 1 if name in _TRUTH else form.width
    elements = math.prod(shape)
    return Work(0, int(flops) * elements, sum(each.bytes for each in operands) + elements * width, form.form)


def _result(operands: list[RecordedTensor]) -> RecordedTensor:
    """The operand whose type the result has (torch.result_type): tensors precede scalars, floats integers."""
    return max(operands, key=lambda each: (bool(each.shape), each.form in FLOATS, each.form != "bool", each.width))


def _foreach(name: str, args: Arguments) -> Work | None:
    """Operators such as `_foreach_add_(self, other)`: the same on each tensor of the lists."""
    lists = _tensor_lists(args)
    if not lists:
        raise NotCounted("the sizes of its list of tensors are not recorded")
    elements, size = sum(each.elements for each in lists[0]), [sum(t.bytes for t in tensors) for tensors in lists]
    form = lists[0][0].form
    for inputs, table in enumerate(_ELEMENTWISE, 1):
        if name in table:
            return Work(0, int(table[name]) * elements, sum(size[:inputs]) + size[0], form)
    if name in ("copy", "zero"):
        return Work(0, 0, size[-1] + size[0] if name == "copy" and len(lists) > 1 else size[0], form)
    return Work(0, int(_REDUCTIONS[name]) * elements, size[0], form) if name in _REDUCTIONS else None


def _tensor_lists(args: Arguments) -> list[list[RecordedTensor]]:
    lists = []
    for index in range(len(args)):
        try:
            lists.append(args.tensors(index))
        except NotCounted as reason:
            if "element type" in str(reason):
                raise
    return lists


def _written(args: Arguments) -> Work:
    """fill_(self, value) and its like: of functions that create a tensor, the output is the only tensor."""
    tensor = next((each for i in range(len(args)) if (each := args.optional(i))), None)
    if tensor is None:
        raise NotCounted("it has no tensor argument")
    return Work(0, 0, tensor.elements * tensor.width, tensor.form)


def _copied(args: Arguments) -> Work:
    """copy_(self, source)."""
    target, source = args.tensor(0), args.tensor(1)
    return Work(0, 0, source.bytes + target.elements * target.width, target.form)


def _moved(args: Arguments) -> Work:
    source = args.tensor(0)
    return Work(0, 0, source.bytes + source.elements * source.width, source.form)


def _concatenated(args: Arguments) -> Work:
    parts = args.tensors(0)
    return Work(0, 0, sum(each.bytes + each.elements * each.width for each in parts), parts[0].form)


def _reduction(flops: int, dimensions: int = 1) -> Callable[[Arguments], Work]:
    """A reduction; argument `dimensions` lists the reduced dimensions (none, or not recorded: all)."""

    def count(args: Arguments) -> Work:
        source = args.tensor(0)
        outputs = 1
        try:
            reduced = {axis % len(source.shape) for axis in args.integers(dimensions)} if source.shape else set()
            if reduced:
                outputs = math.prod(size for axis, size in enumerate(source.shape) if axis not in reduced)
        except NotCounted:
            pass
        return Work(0, flops * source.elements, source.bytes + outputs * source.width, source.form)

    return count


def _over_input(flops: int, reads: int = 1) -> Callable[[Arguments], Work]:
    """FLOPs per element of the first argument; `reads` tensors are read, one of its size is written."""

    def count(args: Arguments) -> Work:
        first = args.tensor(0)
        tensors = [each for i in range(len(args)) if (each := args.optional(i))][:reads]
        size = sum(each.bytes for each in tensors) + first.elements * first.width
        return Work(0, int(flops) * first.elements, size, first.form)

    return count


def _norm(flops: int, parameters: tuple[int, ...]) -> Callable[[Arguments], Work]:
    """A norm: reads the first tensor and its parameters, writes the result."""

    def count(args: Arguments) -> Work:
        source = args.tensor(0)
        read_bytes = source.bytes + sum(each.bytes for i in parameters if (each := args.optional(i)))
        return Work(0, int(flops) * source.elements, read_bytes + source.elements * source.width, source.form)

    return count


def _norm_backward(flops: int, gradient: int, source: int, parameters: tuple[int, ...]) -> Callable[[Arguments], Work]:
    """Gradients of a norm: reads gradient, input and statistics; writes the gradients of input and parameters."""

    def count(args: Arguments) -> Work:
        of_output, of_input = args.tensor(gradient), args.tensor(source)
        parameter_bytes = [each.bytes for i in parameters if (each := args.optional(i))]
        size = of_output.bytes + of_input.bytes + sum(parameter_bytes) + of_input.elements * of_input.width
        return Work(0, int(flops) * of_input.elements, size, of_input.form)

    return count


def _batch_norm(training: int | None) -> Callable[[Arguments], Work]:
    def count(args: Arguments) -> Work:
        trains = training is None or args.value(training) != "False"
        flops = NORM["layernorm"] if trains else NORM["batchnorm"]  # in training, mean and variance are computed
        return _norm(flops, parameters=(1, 2, 3, 4))(args)

    return count


def _embedding(args: Arguments) -> Work:
    """embedding(weight, indices): the rows of the indices are read, not the whole table."""
    table, indices = args.tensor(0), args.tensor(1)
    return _gathered(table, indices, indices.elements * math.prod(table.shape[1:]))


def _index_select(args: Arguments) -> Work:
    """index_select(self, dim, index)."""
    source, index = args.tensor(0), args.tensor(2)
    axis = next(iter(args.integers(1)), 0)
    if not source.shape or not -len(source.shape) <= axis < len(source.shape):
        raise NotCounted("its recorded shapes do not fit together")
    others = math.prod(source.shape) // (source.shape[axis] or 1)
    return _gathered(source, index, index.elements * others)


def _gathered(source: RecordedTensor, index: RecordedTensor, elements: int) -> Work:
    return Work(0, 0, 2 * elements * source.width + index.bytes, source.form)


def _gather(args: Arguments) -> Work:
    """gather(self, dim, index)."""
    source, index = args.tensor(0), args.tensor(2)
    return _gathered(source, index, index.elements)


def _embedding_backward(args: Arguments) -> Work:
    """embedding_dense_backward(gradient, indices, rows, ...): adds each gradient to its row of a table of zeros."""
    gradient, indices = args.tensor(0), args.tensor(1)
    rows = next(iter(args.integers(2)), 0)
    table = rows * (gradient.shape[-1] if gradient.shape else 1) * gradient.width
    return Work(0, gradient.elements, gradient.bytes + indices.bytes + table, gradient.form)


def _outputs(args: Arguments, dilation: int | None, round_up: int) -> int:
    """Number of outputs of a pooling layer: argument 1 is the window, 2 the stride, 3 the padding."""
    source, kernel = args.tensor(0), args.integers(1)
    rank = len(kernel)
    stride, padding = args.integers(2) or kernel, args.integers(3)
    dilations = (1,) * rank if dilation is None else args.integers(dilation)
    if {len(stride), len(padding), len(dilations)} != {rank} or len(source.shape) <= rank or min(stride) < 1:
        raise NotCounted("its recorded shapes do not fit together")
    outputs = math.prod(source.shape[:-rank])
    for n, k, s, p, d in zip(source.shape[-rank:], kernel, stride, padding, dilations, strict=True):
        last = n + 2 * p - d * (k - 1) - 1
        steps = -(-last // s) if args.flag(round_up) else last // s
        outputs *= steps + (steps * s < n + p)  # the last window starts inside the input or its padding
    return outputs


def _average_pool(args: Arguments) -> Work:
    """avg_pool2d(self, kernel, stride, padding, ceil_mode, ...): one addition per value of each window."""
    source, outputs = args.tensor(0), _outputs(args, None, 4)
    window = math.prod(args.integers(1))
    return Work(0, outputs * window, source.bytes + outputs * source.width, source.form)


def _max_pool(args: Arguments, has_indices: bool = True) -> Work:
    """max_pool2d_with_indices(self, kernel, stride, padding, dilation, ceil_mode); indices take 8 bytes each."""
    source, outputs = args.tensor(0), _outputs(args, 4, 5)
    window = math.prod(args.integers(1))
    return Work(0, outputs * window, source.bytes + outputs * (source.width + 8 * has_indices), source.form)


def _resized(flops: int) -> Callable[[Arguments], Work]:
    """Adaptive pooling and resizing: output_size is the second argument."""

    def count(args: Arguments) -> Work:
        source, sides = args.tensor(0), args.integers(1)
        if len(source.shape) <= len(sides):
            raise NotCounted("its recorded shapes do not fit together")
        outputs = math.prod(source.shape[: -len(sides)]) * math.prod(sides)
        return Work(0, flops * max(source.elements, outputs), source.bytes + outputs * source.width, source.form)

    return count


def _pool_backward(args: Arguments) -> Work:
    """Gradient of a pooling layer or a resize: reads the output gradient (and indices), writes the input gradient."""
    gradient, source = args.tensor(0), args.tensor(1)
    indices = [each.bytes for i in range(2, len(args)) if (each := args.optional(i)) and each.form == "int64"][:1]
    return Work(0, gradient.elements, gradient.bytes + sum(indices) + source.elements * source.width, gradient.form)


def _dropout(args: Arguments) -> Work:
    """native_dropout: compares a random number and scales; writes the result and a mask of one byte per element."""
    source = args.tensor(0)
    return Work(0, 2 * source.elements, source.bytes + source.elements * (source.width + 1), source.form)


def _optimizer(flops: int, states: int) -> Callable[[Arguments], Work]:
    """A fused optimizer: reads parameters, gradients and states, writes parameters and states."""

    def count(args: Arguments) -> Work:
        lists = [args.tensors(i) for i in range(2 + states)]
        sizes = [sum(each.bytes for each in tensors) for tensors in lists]
        elements = sum(each.elements for each in lists[0])
        return Work(0, int(flops) * elements, sum(sizes) + sizes[0] + sum(sizes[2:]), lists[0][0].form)

    return count


def _unscale(args: Arguments) -> Work:
    """_amp_foreach_non_finite_check_and_unscale_: multiplies and checks each gradient."""
    gradients = args.tensors(0)
    size = sum(each.bytes for each in gradients)
    return Work(0, 2 * sum(each.elements for each in gradients), 2 * size, gradients[0].form)


def _loss(args: Arguments) -> Work:
    """nll_loss_forward(self, target, weight, reduction, ...): reads the value of one class per target.

    It writes the mean or the sum; with reduction 0 (none), one value per target.
    """
    source, target = args.tensor(0), args.tensor(1)
    rows = target.elements
    outputs = rows if args.value(3) == "0" else 1
    read_bytes = rows * source.width + target.bytes + _selected_weights(args, 2, rows)
    return Work(0, 0, read_bytes + outputs * source.width, source.form)


def _loss_backward(args: Arguments) -> Work:
    """nll_loss_backward(gradient, self, target, weight, ..., total_weight): writes the value of one class per target.

    The zeros of the other classes are written by aten::zero_, which it calls.
    """
    gradient, source, target = args.tensor(0), args.tensor(1), args.tensor(2)
    rows = target.elements
    total = args.optional(6)
    read_bytes = gradient.bytes + target.bytes + _selected_weights(args, 3, rows) + (total.bytes if total else 0)
    return Work(0, 0, read_bytes + rows * source.width, source.form)


def _selected_weights(args: Arguments, index: int, rows: int) -> int:
    """Bytes of the optional class weights that the targets of all rows select: each class is read at most once."""
    weight = args.optional(index)
    return min(rows, weight.elements) * weight.width if weight else 0


def _gated(args: Arguments) -> Work:
    """glu(self, dim): one half of the input times the sigmoid of the other."""
    source = args.tensor(0)
    outputs = source.elements // 2
    return Work(0, int(GLU) * outputs, source.bytes + outputs * source.width, source.form)


def _new(args: Arguments) -> Work:
    """new_zeros(self, size) and its like: self gives the type only."""
    source = args.tensor(0)
    return Work(0, 0, math.prod(args.integers(1)) * source.width, source.form)


def _padded(args: Arguments) -> Work:
    """constant_pad_nd(self, pad, value): `pad` has two widths for each dimension, the last one first."""
    source, widths = args.tensor(0), args.integers(1)
    if len(widths) % 2 or len(widths) > 2 * len(source.shape):
        raise NotCounted("its recorded shapes do not fit together")
    sizes = [*source.shape[::-1]]
    for axis, more in enumerate(zip(widths[::2], widths[1::2], strict=True)):
        sizes[axis] += sum(more)
    return Work(0, 0, source.bytes + max(0, math.prod(sizes)) * source.width, source.form)


def _repeated(args: Arguments) -> Work:
    """repeat(self, repeats)."""
    source = args.tensor(0)
    return Work(0, 0, source.bytes + source.elements * math.prod(args.integers(1)) * source.width, source.form)


def _scattered(args: Arguments) -> Work:
    """slice_scatter(self, src, ...): a copy of self with src in a slice."""
    source, part = args.tensor(0), args.tensor(1)
    return Work(0, 0, source.bytes + part.bytes + source.elements * source.width, source.form)


def _indexed(args: Arguments) -> Work:
    raise NotCounted("the shapes of its indices are not recorded")


BILINEAR = FlopCount(7, "2 x 2 neighbors: 4 multiplications and 3 additions, shared weights")
GLU = FlopCount(ACTIVATION["sigmoid"] + 1, "sigmoid 3, multiply 1 (Dauphin et al., arXiv 1612.08083)")
_WINDOW = FlopCount(1, "one comparison or addition per value of a window")
_LAYERNORM, _RMSNORM, _BATCHNORM = NORM["layernorm"], NORM["rmsnorm"], NORM["batchnorm"]
_GRADIENT = _BACKWARD * _LAYERNORM


def _copy(work: Callable[[Arguments], Work]) -> VectorOperator:
    return VectorOperator(0, "output", work)


def _rows(
    names: str, per: Per, flops: int, build: Callable[..., Callable[[Arguments], Work]], *details: object
) -> dict[str, VectorOperator]:
    """The same row for several names; `build(flops, *details)` is the work from recorded arguments."""
    return dict.fromkeys(names.split(), VectorOperator(flops, per, build(flops, *details)))


OPERATORS: Mapping[str, VectorOperator] = {
    **{
        name: VectorOperator(
            flops, "input" if name in _LOSSES else "output", partial(_elementwise, name, reads, int(flops))
        )
        for reads, table in enumerate(_ELEMENTWISE, 1)
        for name, flops in table.items()
    },
    **dict.fromkeys(_WRITES, _copy(_written)),
    **dict.fromkeys(_MOVES, _copy(_moved)),
    **dict.fromkeys(("cat", "stack", "_cat"), _copy(_concatenated)),
    **dict.fromkeys(("new_zeros", "new_ones", "new_full"), _copy(_new)),
    "copy": _copy(_copied),
    "embedding": _copy(_embedding),
    "index_select": _copy(_index_select),
    "gather": _copy(_gather),
    "index": _copy(_indexed),
    "constant_pad_nd": _copy(_padded),
    "repeat": _copy(_repeated),
    "slice_scatter": _copy(_scattered),
    **dict.fromkeys(("nll_loss_forward", "nll_loss2d_forward"), _copy(_loss)),
    **dict.fromkeys(("nll_loss_backward", "nll_loss2d_backward"), _copy(_loss_backward)),
    **{
        name: VectorOperator(flops, "input", _reduction(flops, 2 if "norm" in name else 1))
        for name, flops in _REDUCTIONS.items()
    },
    **{name: VectorOperator(flops, "input", _over_input(flops)) for name, flops in _SCANS.items()},
    "glu": VectorOperator(GLU, "output", _gated),
    **_rows("_softmax _log_softmax softmax log_softmax", "input", vector_flops.SOFTMAX, _over_input),
    **_rows(
        "_softmax_backward_data _log_softmax_backward_data", "input", vector_flops.SOFTMAX_GRADIENT, _over_input, 2
    ),
    **_rows("native_layer_norm", "input", _LAYERNORM, _norm, (2, 3)),
    **_rows("native_layer_norm_backward", "input", _GRADIENT, _norm_backward, 0, 1, (3, 4, 5, 6)),
    **_rows("native_group_norm", "input", _LAYERNORM, _norm, (1, 2)),
    **_rows("native_group_norm_backward", "input", _GRADIENT, _norm_backward, 0, 1, (2, 3, 4)),
    **_rows("_fused_rms_norm", "input", _RMSNORM, _norm, (2,)),
    **_rows("_fused_rms_norm_backward", "input", _BACKWARD * _RMSNORM, _norm_backward, 0, 1, (3, 4)),
    **dict.fromkeys(
        ("native_batch_norm", "cudnn_batch_norm", "miopen_batch_norm", "_native_batch_norm_legit"),
        VectorOperator(_BATCHNORM, "input", _batch_norm(5), training=5),
    ),
    **_rows("_native_batch_norm_legit_no_training", "input", _BATCHNORM, _norm, (1, 2, 3, 4)),
    "_batch_norm_with_update": VectorOperator(_LAYERNORM, "input", _batch_norm(None)),
    **_rows("native_batch_norm_backward batch_norm_backward", "input", _GRADIENT, _norm_backward, 0, 1, (2, 5, 6)),
    **_rows(
        "cudnn_batch_norm_backward miopen_batch_norm_backward", "input", _GRADIENT, _norm_backward, 1, 0, (2, 5, 6)
    ),
    **dict.fromkeys(
        ("max_pool2d_with_indices", "max_pool3d_with_indices"), VectorOperator(_WINDOW, "window", _max_pool)
    ),
    "max_pool1d": VectorOperator(_WINDOW, "window", partial(_max_pool, has_indices=False)),
    **dict.fromkeys(("avg_pool1d", "avg_pool2d", "avg_pool3d"), VectorOperator(_WINDOW, "window", _average_pool)),
    **_rows(
        "_adaptive_avg_pool2d _adaptive_avg_pool3d adaptive_avg_pool1d adaptive_avg_pool2d", "larger", _ONE, _resized
    ),
    **_rows("upsample_nearest2d", "larger", 0, _resized),
    **_rows("upsample_bilinear2d", "larger", BILINEAR, _resized),
    **_rows("upsample_bicubic2d", "larger", vector_flops.BICUBIC, _resized),
    **dict.fromkeys(
        (
            "max_pool2d_with_indices_backward", "max_pool3d_with_indices_backward", "avg_pool2d_backward",
            "_adaptive_avg_pool2d_backward",
        ),
        VectorOperator(FlopCount(1, "add the gradient"), "input", _pool_backward),
    ),
    "embedding_dense_backward": VectorOperator(FlopCount(1, "add the gradient"), "input", _embedding_backward),
    **dict.fromkeys(
        ("native_dropout", "_fused_dropout"),
        VectorOperator(FlopCount(2, "compare a random number 1, scale 1"), "input", _dropout),
    ),
    **_rows("_fused_adam _fused_adamw", "list", OPTIMIZER["adam"], _optimizer, 2),
    **_rows("_fused_sgd", "list", OPTIMIZER["momentum"], _optimizer, 1),
    "_amp_foreach_non_finite_check_and_unscale": VectorOperator(FlopCount(2, "check 1, scale 1"), "list", _unscale),
}  # fmt: skip
"""By name without `aten::` and without the underscore of operators in place. `_foreach_` operators are those of their
name without it, on each tensor of a list."""
