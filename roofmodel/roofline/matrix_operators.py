"""FLOPs and bytes of PyTorch's matrix operators from their recorded arguments: GEMMs, convolutions, attention.

FLOPs follow from the notation of `counting/tensors.py`, as for predicted operators. Bytes are compulsory traffic: each
tensor is read or written once. Positions of arguments follow PyTorch's schemas (native_functions.yaml).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

from roofmodel.counting import vector_flops
from roofmodel.counting.operator import Builder
from roofmodel.counting.operator import Operator as CountedOperator
from roofmodel.counting.tensors import FORMATS, Widths
from roofmodel.roofline.recorded_inputs import Arguments, NotCounted, RecordedTensor, Work

_WIDTHS = Widths(FORMATS["fp16"], FORMATS["fp16"], FORMATS["fp16"])  # FLOPs do not depend on them; bytes are not used
_LOG_SUM_EXP = 4  # bytes: fused attention keeps the logarithm of the sum of each row in fp32


def _flops(text: str, **sizes: int) -> int:
    return int(_operator(text, sizes).matmul_flops)


def _operator(text: str, sizes: Mapping[str, int]) -> CountedOperator:
    return Builder(sizes, _WIDTHS).operator("", "", text)


def _check(condition: bool) -> None:
    if not condition:
        raise NotCounted("its recorded shapes do not fit together")


# --- GEMMs ------------------------------------------------------------------------------------------


def _gemm(a: RecordedTensor, b: RecordedTensor, added: RecordedTensor | None = None, width: int | None = None) -> Work:
    """`a[M K] b[K N] -> c[M N]`, or the same for each matrix of a batch; `added` is one more term."""
    _check(len(a.shape) == len(b.shape) >= 2 and a.shape[-1] == b.shape[-2])
    batch = max(math.prod(a.shape[:-2]), math.prod(b.shape[:-2]))
    sizes = {"b": batch, "M": a.shape[-2], "K": a.shape[-1], "N": b.shape[-1]}
    operator = _operator(f"a[b M K] c[b K N]{' + B[b M N]' * (added is not None)} -> y[b M N]", sizes)
    written = batch * sizes["M"] * sizes["N"] * (width or a.width)
    size = a.bytes + b.bytes + (added.bytes if added else 0) + written
    return Work(int(operator.matmul_flops), int(operator.vector_flops), size, a.form)


def _plain(args: Arguments) -> Work:
    return _gemm(args.tensor(0), args.tensor(1))


def _added(args: Arguments) -> Work:
    """addmm and baddbmm: beta self + alpha a b; self is not read where beta is 0."""
    unused = args.value(3) in ("0", "0.", "0.0")
    return _gemm(args.tensor(1), args.tensor(2), None if unused else args.tensor(0))


def _matrix_vector(args: Arguments, first: int = 0, added: int | None = None) -> Work:
    matrix, vector = args.tensor(first), args.tensor(first + 1)
    _check(len(vector.shape) == 1)
    column = RecordedTensor((*vector.shape, 1), vector.form, vector.width)
    return _gemm(matrix, column, None if added is None else args.tensor(added))


def _dot(args: Arguments) -> Work:
    a, b = args.tensor(0), args.tensor(1)
    _check(len(a.shape) == len(b.shape) == 1)
    return _gemm(RecordedTensor((1, *a.shape), a.form, a.width), RecordedTensor((*b.shape, 1), b.form, b.width))


def _linear(args: Arguments) -> Work:
    """x W^T + b for x of any number of dimensions and W[N K]."""
    x, weight = args.tensor(0), args.tensor(1)
    _check(len(weight.shape) == 2 and len(x.shape) >= 1)
    rows = RecordedTensor((math.prod(x.shape[:-1]), x.shape[-1]), x.form, x.width)
    return _gemm(rows, RecordedTensor(weight.shape[::-1], weight.form, weight.width), args.optional(2))


def _matmul(args: Arguments) -> Work:
    """torch.matmul, with broadcast batch dimensions."""
    a, b = args.tensor(0), args.tensor(1)
    if len(a.shape) == len(b.shape) == 1:
        return _dot(args)
    if len(b.shape) == 1:
        b = RecordedTensor((*b.shape, 1), b.form, b.width)
    elif len(a.shape) == 1:
        a = RecordedTensor((1, *a.shape), a.form, a.width)
    _check(min(len(a.shape), len(b.shape)) >= 2 and a.shape[-1] == b.shape[-2])
    batch = math.prod(broadcast(a.shape[:-2], b.shape[:-2]))
    work = _flops("a[b M K] c[b K N] -> y[b M N]", b=batch, M=a.shape[-2], K=a.shape[-1], N=b.shape[-1])
    return Work(work, 0, a.bytes + b.bytes + batch * a.shape[-2] * b.shape[-1] * a.width, a.form)


def _scaled(args: Arguments) -> Work:
    """_scaled_mm of fp8 matrices; the output is in 16 bits, which is the only type that training and inference use."""
    return _gemm(args.tensor(0), args.tensor(1), args.optional(4), width=2)


def broadcast(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The common shape of broadcast operands. Raises NotCounted if there is none."""
    rank = max(map(len, shapes))
    columns = zip(*((1,) * (rank - len(shape)) + shape for shape in shapes), strict=True)
    result = tuple(next((size for size in column if size != 1), 1) for column in columns)
    for shape in shapes:
        _check(all(size in (1, common) for size, common in zip(shape[::-1], result[::-1], strict=False)))
    return result


# --- Convolutions -----------------------------------------------------------------------------------


class _Places(NamedTuple):
    """Positions of the arguments of a convolution; None: the operator has no such argument."""

    stride: int
    padding: int
    dilation: int | None = None
    groups: int | None = None
    bias: int | None = None
    added: int | None = None  # a tensor of the size of the output
    transposed: int | None = None
    output_padding: int | None = None
    is_transposed: bool = False


class _Filter(NamedTuple):
    """Output size, and input rows that the filter reads, of each dimension."""

    output: tuple[int, ...]
    read_shape: tuple[int, ...]


def _spread(values: tuple[int, ...], rank: int) -> tuple[int, ...]:
    _check(len(values) in (1, rank))
    return values * rank if len(values) == 1 else values


def _slide(args: Arguments, at: _Places, source: RecordedTensor, kernel: tuple[int, ...], transposed: bool) -> _Filter:
    """The geometry of a convolution (the formulas of torch.nn.Conv2d and ConvTranspose2d)."""
    from roofmodel.counting.layers.convolution import input_rows_read

    rank = len(kernel)
    stride, padding = (_spread(args.integers(place), rank) for place in (at.stride, at.padding))
    dilation = (1,) * rank if at.dilation is None else _spread(args.integers(at.dilation), rank)
    extra = (0,) * rank
    if transposed and at.output_padding is not None:
        extra = _spread(args.integers(at.output_padding), rank)
    output, read_shape = [], []
    for n, k, s, p, d, e in zip(source.shape[2:], kernel, stride, padding, dilation, extra, strict=True):
        _check(min(s, d, k) > 0 and p >= 0)
        span = d * (k - 1) + 1
        if transposed:
            output.append((n - 1) * s - 2 * p + span + e)
            read_shape.append(n)
        else:
            output.append((n + 2 * p - span) // s + 1)
            read_shape.append(n if d > 1 else int(input_rows_read(n, output[-1], k, s, p)))
        _check(output[-1] > 0)
    return _Filter(tuple(output), tuple(read_shape))


def _convolution_flops(
    source: RecordedTensor, weight: RecordedTensor, output: tuple[int, ...], transposed: bool
) -> int:
    """2 x batch x positions x filter x channels. A transposed convolution applies the filter to each input position."""
    positions = math.prod(source.shape[2:] if transposed else output)
    own, other = weight.shape[0], weight.shape[1]  # of a transposed convolution: input channels, outputs per group
    channels = own if transposed else source.shape[1]
    inner = own // channels if transposed else other
    _check(inner > 0 and channels % inner == 0)
    groups = 1 if transposed else channels // inner
    return _flops(
        "x[b g c i+r] W[g o c r] -> y[b g o i]",
        b=source.shape[0], g=groups, c=own if transposed else inner, o=other if transposed else own // groups,
        i=positions, r=math.prod(weight.shape[2:]), **{"i+r": 1},
    )  # fmt: skip


def _convolution(*places: int | None, **more: int | bool) -> Callable[[Arguments], Work]:
    at = _Places(*places, **more)  # type: ignore[arg-type]

    def count(args: Arguments) -> Work:
        source, weight = args.tensor(0), args.tensor(1)
        _check(len(source.shape) == len(weight.shape) >= 3)
        transposed = at.is_transposed or (at.transposed is not None and args.flag(at.transposed))
        filters = _slide(args, at, source, weight.shape[2:], transposed)
        channels = weight.shape[0]
        if transposed:
            channels = weight.shape[1] * (1 if at.groups is None else math.prod(args.integers(at.groups)))
        written = source.shape[0] * channels * math.prod(filters.output)
        bias = None if at.bias is None else args.optional(at.bias)
        added = None if at.added is None else args.tensor(at.added)
        read_bytes = min(source.bytes, source.shape[0] * source.shape[1] * math.prod(filters.read_shape) * source.width)
        return Work(
            _convolution_flops(source, weight, filters.output, transposed),
            written * ((bias is not None) + (added is not None)),
            read_bytes + weight.bytes + sum(each.bytes for each in (bias, added) if each) + written * source.width,
            source.form,
        )

    return count


def _convolution_backward(args: Arguments) -> Work:
    """Gradients of input and weight, each with the FLOPs of the forward pass; `output_mask` says which are computed."""
    gradient, source, weight = args.tensor(0), args.tensor(1), args.tensor(2)
    wanted = [part == "True" for part in args.value(10).strip("[]").replace(" ", "").split(",")]
    if len(wanted) != 3:
        raise NotCounted("its options are not recorded (PyTorch before 2.1)")
    return _gradients(gradient, source, weight, args.flag(7), (wanted[0], wanted[1], wanted[2]))


def _gradients(
    gradient: RecordedTensor,
    source: RecordedTensor,
    weight: RecordedTensor,
    transposed: bool,
    wanted: tuple[bool, bool, bool],
) -> Work:
    _check(len(gradient.shape) == len(source.shape) == len(weight.shape) >= 3)
    forward = _convolution_flops(source, weight, gradient.shape[2:], transposed)
    parts = wanted[0] + wanted[1]
    size = gradient.bytes * (parts or 1)
    size += (weight.bytes + source.bytes) * parts  # the gradient of one reads the other
    return Work(
        forward * parts,
        gradient.elements if wanted[2] else 0,
        size + (gradient.shape[1] * gradient.width if wanted[2] else 0),
        gradient.form,
        max(parts, 1),
    )


def _old_gradient(of_input: bool, of_weight: bool) -> Callable[[Arguments], Work]:
    """PyTorch before 1.11: cudnn_convolution_backward(input, gradient, weight) calls one operator per gradient."""

    def count(args: Arguments) -> Work:
        outer = args.caller
        return _gradients(outer.tensor(1), outer.tensor(0), outer.tensor(2), False, wanted=(of_input, of_weight, False))

    return count


# --- Attention --------------------------------------------------------------------------------------


class _Attention(NamedTuple):
    """Positions of the arguments of fused attention."""

    causal: int
    query: int = 0  # key and value follow
    bias: int | None = None
    packed: int | None = None  # cumulative lengths of sequences that are packed into one
    tokens_first: bool = False  # [batch, tokens, heads, size] instead of [batch, heads, tokens, size]
    backward: bool = False
    mask_type: bool = False  # a number (0: no mask, 1: causal, 2: causal to the last key) instead of a truth value


def _attention(causal: int, **more: int | bool) -> Callable[[Arguments], Work]:
    at = _Attention(causal, **more)  # type: ignore[arg-type]

    def count(args: Arguments) -> Work:
        q, k, v = (args.tensor(at.query + i) for i in range(3))
        _check(len(q.shape) == len(k.shape) == len(v.shape) == 4)
        if at.packed is not None and args.optional(at.packed):
            raise NotCounted("the lengths of its packed sequences are not recorded")
        tokens, heads = (1, 2) if at.tokens_first else (2, 1)
        mask = args.integers(at.causal) if at.mask_type else (int(args.flag(at.causal)),)
        t, s, kv_heads = q.shape[tokens], k.shape[tokens], k.shape[heads]
        _check(min(q.shape) > 0 and kv_heads > 0 and q.shape[heads] % kv_heads == 0)
        _check(q.shape[3] == k.shape[3] and s == v.shape[tokens])
        sizes = {
            "b": q.shape[0], "t": t, "s": s, "k": kv_heads, "g": q.shape[heads] // kv_heads, "h": q.shape[3],
            "h'": v.shape[3], "t:s": _masked_pairs(mask, t, s),
        }  # fmt: skip
        return _backward(args, at, sizes, (q, k, v)) if at.backward else _forward(args, at, sizes, (q, k, v))

    return count


def causal_pairs(t: int, s: int) -> int:
    """Query-key pairs below the diagonal, which starts at the first query and the first key (PyTorch's is_causal)."""
    square = min(t, s)
    return square * (square + 1) // 2 + (t - square) * s


def _masked_pairs(mask: tuple[int, ...], t: int, s: int) -> int:
    """Query-key pairs for a custom_mask_type of PyTorch; type 2 has the diagonal end at the last query and key."""
    match mask:
        case (0,):
            return t * s
        case (1,):
            return causal_pairs(t, s)
        case (2,):
            return t * s - t * (t - 1) // 2 if t <= s else s * (s + 1) // 2
    raise NotCounted(f"its mask type {', '.join(map(str, mask))} is unknown")


_SCORES = "q[b t k g h] k[b s k h] -> a[b k g t:s]"
_MIX = "p[b k g t:s] v[b s k h'] -> o[b t k g h']"


def _forward(args: Arguments, at: _Attention, sizes: Mapping[str, int], tensors: tuple[RecordedTensor, ...]) -> Work:
    """Scores, softmax and weighted sum in one kernel; it writes the result and the log-sum-exp of each row."""
    q, _, v = tensors
    scores, mix = _operator(_SCORES, sizes), _operator(_MIX, sizes)
    pairs = sizes["b"] * sizes["k"] * sizes["g"] * sizes["t:s"]
    rows = q.elements // q.shape[3]
    bias = None if at.bias is None else args.optional(at.bias)
    vector = pairs * (vector_flops.SCALE + vector_flops.SOFTMAX + (vector_flops.MASK if bias else 0))
    size = sum(each.bytes for each in tensors) + rows * (v.shape[3] * q.width + _LOG_SUM_EXP)
    return Work(int(scores.matmul_flops + mix.matmul_flops), vector, size + (bias.bytes if bias else 0), q.form)


def _backward(args: Arguments, at: _Attention, sizes: Mapping[str, int], tensors: tuple[RecordedTensor, ...]) -> Work:
    """Five matrix multiplications: the scores again, and the gradients of v, p, q and k (FlashAttention-2, alg. 2).

    The kernel reads the gradient of the output, q, k, v, the output and the log-sum-exp, and writes three gradients.
    """
    q, k, v = tensors
    scores, mix = _operator(_SCORES, sizes), _operator(_MIX, sizes)
    pairs = sizes["b"] * sizes["k"] * sizes["g"] * sizes["t:s"]
    rows = q.elements // q.shape[3]
    bias = None if at.bias is None else args.optional(at.bias)
    vector = pairs * (vector_flops.SCALE + 2 + vector_flops.SOFTMAX_GRADIENT)  # p = exp(scores - log-sum-exp)
    outputs = 2 * rows * v.shape[3] * q.width + rows * _LOG_SUM_EXP
    written = (q.elements + k.elements + v.elements) * q.width
    size = sum(each.bytes for each in tensors) + outputs + written + (bias.bytes if bias else 0)
    return Work(3 * int(scores.matmul_flops) + 2 * int(mix.matmul_flops), vector, size, q.form)


FORMULAS: Mapping[str, Callable[[Arguments], Work]] = {
    "mm": _plain,
    "bmm": _plain,
    "_int_mm": lambda args: _gemm(args.tensor(0), args.tensor(1), width=4),
    "_scaled_mm": _scaled,
    "addmm": _added,
    "_addmm_activation": _added,
    "baddbmm": _added,
    "linear": _linear,
    "matmul": _matmul,
    "mv": _matrix_vector,
    "addmv": lambda args: _matrix_vector(args, 1, 0),
    "dot": _dot,
    "vdot": _dot,
    **dict.fromkeys(
        ("convolution", "_convolution", "convolution_overrideable"),
        _convolution(3, 4, 5, 8, bias=2, transposed=6, output_padding=7),
    ),
    **dict.fromkeys(("conv1d", "conv2d", "conv3d"), _convolution(3, 4, 5, 6, bias=2)),
    **dict.fromkeys(
        ("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"),
        _convolution(3, 4, 7, 6, bias=2, output_padding=5, is_transposed=True),
    ),
    "cudnn_convolution": _convolution(3, 2, 4, 5),
    "cudnn_convolution_relu": _convolution(3, 4, 5, 6, bias=2),
    "cudnn_convolution_add_relu": _convolution(5, 6, 7, 8, bias=4, added=2),
    "cudnn_convolution_transpose": _convolution(4, 2, 5, 6, output_padding=3, is_transposed=True),
    **dict.fromkeys(
        ("miopen_convolution", "miopen_depthwise_convolution", "mkldnn_convolution"), _convolution(4, 3, 5, 6, bias=2)
    ),
    "miopen_convolution_transpose": _convolution(5, 3, 6, 7, bias=2, output_padding=4, is_transposed=True),
    **dict.fromkeys(("_conv_depthwise2d", "conv_depthwise3d"), _convolution(4, 5, 6, bias=3)),
    **dict.fromkeys(("_slow_conv2d_forward", "thnn_conv2d", "slow_conv3d"), _convolution(4, 5, bias=3)),
    **dict.fromkeys(
        ("slow_conv_transpose2d", "slow_conv_transpose3d"),
        _convolution(4, 5, 7, bias=3, output_padding=6, is_transposed=True),
    ),
    **dict.fromkeys(("slow_conv_dilated2d", "slow_conv_dilated3d"), _convolution(4, 5, 6, bias=3)),
    "convolution_backward": _convolution_backward,
    "cudnn_convolution_backward_input": _old_gradient(True, False),
    "cudnn_convolution_backward_weight": _old_gradient(False, True),
    "scaled_dot_product_attention": _attention(5, bias=3),
    "_scaled_dot_product_flash_attention": _attention(4),
    "_scaled_dot_product_flash_attention_for_cpu": _attention(4),
    "_scaled_dot_product_efficient_attention": _attention(6, bias=3),
    "_scaled_dot_product_cudnn_attention": _attention(6, bias=3),
    "_scaled_dot_product_fused_attention_overrideable": _attention(5, bias=3),
    "_flash_attention_forward": _attention(8, packed=3, tokens_first=True),
    "_efficient_attention_forward": _attention(9, bias=3, packed=4, tokens_first=True, mask_type=True),
    "_cudnn_attention_forward": _attention(10, bias=3, packed=4),
    "_scaled_dot_product_flash_attention_backward": _attention(11, query=1, packed=6, backward=True),
    "_scaled_dot_product_flash_attention_for_cpu_backward": _attention(7, query=1, backward=True),
    "_scaled_dot_product_efficient_attention_backward": _attention(11, query=1, bias=4, backward=True),
    "_scaled_dot_product_cudnn_attention_backward": _attention(14, query=1, bias=8, packed=9, backward=True),
    "_flash_attention_backward": _attention(11, query=1, packed=6, tokens_first=True, backward=True),
    "_efficient_attention_backward": _attention(
        14, query=1, bias=4, packed=6, tokens_first=True, backward=True, mask_type=True
    ),
}
"""Operators, without `aten::`, and how to count them."""
