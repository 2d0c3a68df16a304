"""Vector FLOPs and bytes of PyTorch's operators from their recorded arguments: elementwise, reductions, norms, copies.

FLOPs per element follow `counting/vector_flops.py`, as in `roof count`. Bytes are compulsory traffic: each tensor
is read or written once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from roofmodel.counting import vector_flops
from roofmodel.counting.vector_flops import ACTIVATION, BACKWARD_FACTOR, NORM, OPTIMIZER
from roofmodel.roofline.matrix_operators import broadcast
from roofmodel.roofline.recorded_inputs import FLOATS, Arguments, NotCounted, RecordedTensor, Work

# FLOPs per element of the output
ELEMENTWISE = {
    **dict.fromkeys(("add", "sub", "rsub", "mul", "div", "neg", "abs", "maximum", "minimum", "where"), 1),
    **dict.fromkeys(("exp", "log", "sqrt", "rsqrt", "reciprocal", "pow", "erf", "sin", "cos", "floor", "round"), 1),
    **dict.fromkeys(("eq", "ne", "lt", "le", "gt", "ge", "clamp_min", "clamp_max", "masked_fill", "threshold"), 1),
    **{
        name: vector_flops.ACTIVATION[name]
        for name in ("relu", "leaky_relu", "tanh", "sigmoid", "silu", "gelu", "mish")
    },
    "clamp": 2, "hardtanh": 2, "addcmul": 3, "addcdiv": 3, "lerp": 3,
}  # fmt: skip
_TRUTH = frozenset({
    "eq", "ne", "lt", "le", "gt", "ge", "logical_not", "logical_and", "logical_or", "logical_xor", "isnan", "isinf",
    "isfinite",
})  # fmt: skip
_BACKWARD = BACKWARD_FACTOR["inputs"]
# FLOPs per element of the output, and the number of tensors that are read: more arguments are outputs.
_UNARY = {
    name: ELEMENTWISE[name]
    for name in ("neg", "abs", "exp", "log", "sqrt", "rsqrt", "reciprocal", "erf", "sin", "cos", "floor", "round")
} | {
    name: ACTIVATION[name] for name in ("relu", "leaky_relu", "tanh", "sigmoid", "silu", "gelu", "mish", "relu6")
} | {
    **dict.fromkeys(("ceil", "trunc", "sign", "sgn", "log1p", "expm1", "log2", "log10", "exp2", "tan", "square"), 1),
    **dict.fromkeys(("logical_not", "bitwise_not", "isnan", "isinf", "isfinite", "erfinv", "frac"), 1),
    "clamp": 2, "hardtanh": 2, "threshold": 1, "elu": 3, "softplus": 3, "hardswish": 4, "hardsigmoid": 3,
    "log_sigmoid_forward": 3, "logit": 3, "celu": 3,
}  # fmt: skip
_BINARY = {
    **{name: ELEMENTWISE[name] for name in ("add", "sub", "rsub", "mul", "div", "maximum", "minimum", "pow")},
    **{name: ELEMENTWISE[name] for name in ("eq", "ne", "lt", "le", "gt", "ge", "clamp_min", "clamp_max")},
    **dict.fromkeys(("masked_fill", "remainder", "fmod", "atan2", "true_divide", "floor_divide"), 1),
    **dict.fromkeys(("threshold_backward", "relu_backward", "logical_and", "logical_or", "logical_xor"), 1),
    **dict.fromkeys(("bitwise_and", "bitwise_or", "bitwise_xor", "__and__", "__or__", "__xor__"), 1),
    "mse_loss": 2, "smooth_l1_loss": 4, "l1_loss": 2, "hypot": 4,
    "tanh_backward": 3, "sigmoid_backward": 3, "hardtanh_backward": 2, "hardsigmoid_backward": 2,
    "leaky_relu_backward": _BACKWARD * ACTIVATION["leaky_relu"], "elu_backward": 4, "softplus_backward": 4,
    "gelu_backward": _BACKWARD * ACTIVATION["gelu"], "silu_backward": _BACKWARD * ACTIVATION["silu"],
    "hardswish_backward": 4, "mish_backward": _BACKWARD * ACTIVATION["mish"], "native_dropout_backward": 2,
    "masked_scale": 2,
}  # fmt: skip
_TERNARY = {"addcmul": 3, "addcdiv": 3, "lerp": 3, "where": 1, "mse_loss_backward": 3, "smooth_l1_loss_backward": 4}
_ELEMENTWISE = (_UNARY, _BINARY, _TERNARY)
_WRITES = (
    "fill", "zero", "normal", "uniform", "bernoulli", "random", "exponential", "zeros", "ones", "full", "arange",
    "eye", "zeros_like", "ones_like", "full_like", "rand_like", "randn_like",
)  # fmt: skip
_MOVES = ("clone", "contiguous", "_to_copy", "roll", "flip", "tril", "triu", "pixel_shuffle", "pixel_unshuffle")
_REDUCTIONS = {
    **dict.fromkeys(("sum", "mean", "amax", "amin", "max", "min", "argmax", "argmin", "prod", "all", "any"), 1),
    "norm": 2, "linalg_vector_norm": 2, "nansum": 1, "var": 4, "std": 4, "var_mean": 4, "std_mean": 4, "logsumexp": 3,
}  # fmt: skip
_SCANS = {"cumsum": 1, "cumprod": 1, "logcumsumexp": 3}


def work(name: str, args: Arguments) -> Work | None:
    """The work of an operator (its name without `aten::` and a final underscore); None if it has no formula.

    Raises NotCounted if the recorded arguments do not suffice.
    """
    if name.startswith("_foreach_"):
        return _foreach(name.removeprefix("_foreach_"), args)
    for inputs, table in enumerate(_ELEMENTWISE, 1):
        if name in table:
            return _elementwise(name, args, inputs, table[name])
    if name in _FORMULAS:
        return _FORMULAS[name](args)
    return None


def _elementwise(name: str, args: Arguments, inputs: int, flops: int) -> Work:
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
        return Work(0, int(_BACKWARD * flops) * of_input.elements, size, of_input.form)

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


def _max_pool(args: Arguments) -> Work:
    """max_pool2d_with_indices(self, kernel, stride, padding, dilation, ceil_mode); indices take 8 bytes each."""
    source, outputs = args.tensor(0), _outputs(args, 4, 5)
    window = math.prod(args.integers(1))
    return Work(0, outputs * window, source.bytes + outputs * (source.width + 8), source.form)


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


_FORMULAS: Mapping[str, Callable[[Arguments], Work]] = {
    **dict.fromkeys(_WRITES, _written),
    **dict.fromkeys(_MOVES, _moved),
    **{name: _reduction(flops, 2 if "norm" in name else 1) for name, flops in _REDUCTIONS.items()},
    **{name: _over_input(flops) for name, flops in _SCANS.items()},
    "copy": _copied,
    "cat": _concatenated,
    "stack": _concatenated,
    "_cat": _concatenated,
    **dict.fromkeys(("_softmax", "_log_softmax", "softmax", "log_softmax"), _over_input(vector_flops.SOFTMAX)),
    **dict.fromkeys(
        ("_softmax_backward_data", "_log_softmax_backward_data"), _over_input(vector_flops.SOFTMAX_GRADIENT, reads=2)
    ),
    "native_layer_norm": _norm(NORM["layernorm"], parameters=(2, 3)),
    "native_layer_norm_backward": _norm_backward(NORM["layernorm"], 0, 1, (3, 4, 5, 6)),
    "native_group_norm": _norm(NORM["layernorm"], parameters=(1, 2)),
    "native_group_norm_backward": _norm_backward(NORM["layernorm"], 0, 1, (2, 3, 4)),
    "_fused_rms_norm": _norm(NORM["rmsnorm"], parameters=(2,)),
    "_fused_rms_norm_backward": _norm_backward(NORM["rmsnorm"], 0, 1, (3, 4)),
    **dict.fromkeys(("native_batch_norm", "cudnn_batch_norm", "miopen_batch_norm"), _batch_norm(5)),
    "_native_batch_norm_legit": _batch_norm(5),
    "_native_batch_norm_legit_no_training": _norm(NORM["batchnorm"], parameters=(1, 2, 3, 4)),
    "_batch_norm_with_update": _batch_norm(None),
    "native_batch_norm_backward": _norm_backward(NORM["layernorm"], 0, 1, (2, 5, 6)),
    **dict.fromkeys(
        ("cudnn_batch_norm_backward", "miopen_batch_norm_backward"), _norm_backward(NORM["layernorm"], 1, 0, (2, 5, 6))
    ),
    "batch_norm_backward": _norm_backward(NORM["layernorm"], 0, 1, (2, 5, 6)),
    "embedding": _embedding,
    "index_select": _index_select,
    "gather": _gather,
    "embedding_dense_backward": _embedding_backward,
    **dict.fromkeys(("max_pool2d_with_indices", "max_pool3d_with_indices"), _max_pool),
    **dict.fromkeys(("avg_pool2d", "avg_pool3d"), _average_pool),
    **dict.fromkeys(("_adaptive_avg_pool2d", "_adaptive_avg_pool3d", "adaptive_avg_pool2d"), _resized(1)),
    "upsample_nearest2d": _resized(0),
    "upsample_bilinear2d": _resized(7),
    "upsample_bicubic2d": _resized(vector_flops.BICUBIC),
    **dict.fromkeys(
        (
            "max_pool2d_with_indices_backward", "max_pool3d_with_indices_backward", "avg_pool2d_backward",
            "_adaptive_avg_pool2d_backward",
        ),
        _pool_backward,
    ),
    "native_dropout": _dropout,
    "_fused_dropout": _dropout,
    **dict.fromkeys(("_fused_adam", "_fused_adamw"), _optimizer(OPTIMIZER["adam"], 2)),
    "_fused_sgd": _optimizer(OPTIMIZER["momentum"], 1),
    "_amp_foreach_non_finite_check_and_unscale": _unscale,
    **dict.fromkeys(("nll_loss_forward", "nll_loss2d_forward"), _loss),
    **dict.fromkeys(("nll_loss_backward", "nll_loss2d_backward"), _loss_backward),
}  # fmt: skip
