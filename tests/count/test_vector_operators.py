"""`roof count` counts each operator of the table that it shares with profiles. FLOPs are formulas on paper."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="roof count needs torch: pip install 'roofmodel[dev]'")

from roofmodel.count.count import Count, count  # noqa: E402
from roofmodel.roofline.vector_operators import OPERATORS  # noqa: E402

ROWS, COLUMNS = 4, 8
N = ROWS * COLUMNS
IMAGES = (2, 3, 8, 8)
IMAGE = 2 * 3 * 8 * 8
aten = torch.ops.aten


def new(*shape: int, dtype: Any = torch.float32) -> Any:
    return torch.empty(shape or (ROWS, COLUMNS), dtype=dtype, device="meta")


def counted(call: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch) -> Count:
    """What `roof count` finds in a module that makes this call with an input of 4 x 8."""

    class Calls(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return call(x)

    code = ModuleType("code_with_one_call")
    code.__dict__["made"] = Calls()
    monkeypatch.setitem(sys.modules, code.__name__, code)
    return count(f"{code.__name__}:made", [f"{ROWS}x{COLUMNS}"])


# One element of the output: the operations of the formula, in the order in which they are computed.
OPERATIONS: dict[str, tuple[str, ...]] = {
    "relu6": ("max 0", "min 6"), "relu": ("max 0",), "tanh": ("tanh",), "sigmoid": ("exp", "+ 1", "1 /"),
    "silu": ("exp", "+ 1", "1 /", "* x"), "gelu": ("/ sqrt 2", "erf", "+ 1", "* x", "/ 2"),
    "mish": ("exp", "+ 1", "log", "tanh", "* x"), "leaky_relu": ("* a", "max"), "rrelu_with_noise": ("* a", "max"),
    "_prelu_kernel": ("* a", "max"), "threshold": ("> a",), "clamp": ("max a", "min b"), "hardtanh": ("max a", "min b"),
    "hardshrink": ("abs", "> a"), "softshrink": ("> a", "< -a", "- a"), "elu": ("> 0", "exp - 1", "* a"),
    "celu": ("> 0", "/ a", "exp - 1", "* a"), "softplus": ("exp", "+ 1", "log"),
    "log_sigmoid_forward": ("exp", "+ 1", "log"), "logit": ("1 -", "x /", "log"),
    "hardsigmoid": ("+ 3", "max 0", "min 6", "/ 6"), "hardswish": ("+ 3", "max 0", "min 6", "/ 6", "* x"),
    "threshold_backward": ("> a",), "relu_backward": ("> 0",), "mse_loss": ("x - y", "square"),
    "l1_loss": ("x - y", "abs"), "smooth_l1_loss": ("x - y", "abs", "< 1", "d * d"),
    "hypot": ("x * x", "y * y", "+", "sqrt"), "tanh_backward": ("y * y", "1 -", "* g"),
    "sigmoid_backward": ("1 - y", "* y", "* g"), "hardtanh_backward": ("> a", "< b"),
    "hardsigmoid_backward": ("> -3", "< 3", "g / 6"), "hardswish_backward": ("> -3", "< 3", "x / 3", "+ 1/2", "* g"),
    "elu_backward": ("> 0", "exp", "* a", "* g"), "softplus_backward": ("exp", "+ 1", "z /", "* g"),
    "leaky_relu_backward": ("twice the forward pass",) * 2 * 2, "gelu_backward": ("twice",) * 2 * 5,
    "silu_backward": ("twice",) * 2 * 4, "mish_backward": ("twice",) * 2 * 5,
    "native_dropout_backward": ("* mask", "* scale"), "masked_scale": ("* mask", "* scale"), "where": ("choose",),
    "addcmul": ("y * z", "* a", "+ x"), "addcdiv": ("y / z", "* a", "+ x"), "lerp": ("y - x", "* a", "+ x"),
    "mse_loss_backward": ("x - y", "* a", "* g"), "smooth_l1_loss_backward": ("x - y", "< 1", "/ b", "* g"),
}  # fmt: skip
SINGLE = (
    *("neg", "abs", "exp", "log", "sqrt", "rsqrt", "reciprocal", "erf", "sin", "cos", "floor", "round", "ceil"),
    *("trunc", "sign", "sgn", "log1p", "expm1", "log2", "log10", "exp2", "tan", "square", "logical_not"),
    *("bitwise_not", "isnan", "isinf", "isfinite", "erfinv", "frac", "add", "sub", "rsub", "mul", "div", "maximum"),
    *("minimum", "pow", "true_divide", "eq", "ne", "lt", "le", "gt", "ge", "clamp_min", "clamp_max", "masked_fill"),
    *("remainder", "fmod", "atan2", "floor_divide", "logical_and", "logical_or", "logical_xor", "bitwise_and"),
    *("bitwise_or", "bitwise_xor", "__and__", "__or__", "__xor__"),
)
"""Operators of one operation."""
SCALARS: dict[str, tuple[Any, ...]] = {
    "threshold": (0.1, 0), "clamp": (0, 1), "clamp_min": (0,), "clamp_max": (1,), "hardtanh": (-1, 1),
}  # fmt: skip
"""Arguments after the input that are no tensors."""
CALLS: dict[str, Callable[[Any], Any]] = {
    "masked_fill": lambda x: x.masked_fill(x > 0, 1), "where": lambda x: torch.where(new(dtype=torch.bool), x, x),
    "threshold_backward": lambda x: aten.threshold_backward(x, x, 0),
    "hardtanh_backward": lambda x: aten.hardtanh_backward(x, x, -1, 1),
    "elu_backward": lambda x: aten.elu_backward(x, 1, 1, 1, False, x),
    "softplus_backward": lambda x: aten.softplus_backward(x, x, 1, 20),
    "leaky_relu_backward": lambda x: aten.leaky_relu_backward(x, x, 0.1, False),
    "native_dropout_backward": lambda x: aten.native_dropout_backward(x, new(dtype=torch.bool), 2),
    "mse_loss_backward": lambda x: aten.mse_loss_backward(x, x, x, 1),
    "smooth_l1_loss_backward": lambda x: aten.smooth_l1_loss_backward(x, x, x, 1, 1.0),
    "mse_loss": lambda x: aten.mse_loss(x, x, 0), "smooth_l1_loss": lambda x: aten.smooth_l1_loss(x, x, 0),
    "rrelu_with_noise": lambda x: aten.rrelu_with_noise(x, new()), "_prelu_kernel": lambda x: aten._prelu_kernel(x, x),
    **{
        name: lambda x, name=name: getattr(aten, name)(new(dtype=torch.bool), new(dtype=torch.bool))  # type: ignore[misc]
        for name in ("bitwise_and", "bitwise_or", "bitwise_xor", "__and__", "__or__", "__xor__")
    },
    "bitwise_not": lambda x: aten.bitwise_not(new(dtype=torch.bool)),
}  # fmt: skip


def call_of(name: str, x: Any) -> Any:
    """The operator with as few tensors as it accepts."""
    if name in CALLS:
        return CALLS[name](x)
    for others in ((), (new(),), (new(), new())):
        try:
            return getattr(aten, name)(x, *SCALARS.get(name, ()), *others)
        except (RuntimeError, TypeError) as error:
            refused = error
    raise refused


ONLY_IN_PROFILES = {
    "relu_backward": "threshold_backward", "masked_scale": "native_dropout_backward", "_cat": "cat",
    "cudnn_batch_norm": "native_batch_norm", "miopen_batch_norm": "native_batch_norm",
    "cudnn_batch_norm_backward": "native_batch_norm_backward", "batch_norm_backward": "native_batch_norm_backward",
    "miopen_batch_norm_backward": "native_batch_norm_backward", "_fused_dropout": "native_dropout",
}  # fmt: skip
"""Operators of older versions and of GPUs, which no module runs here, and one with the same formula."""


@pytest.mark.parametrize("name", [*OPERATIONS, *SINGLE])
def test_elementwise_operators_have_the_flops_of_their_formulas(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    per_element = len(OPERATIONS.get(name, ("one",)))
    assert OPERATORS[name].flops == per_element
    if name in ONLY_IN_PROFILES:
        return
    found = counted(lambda x: call_of(name, x), monkeypatch)
    assert not found.uncounted
    for one in found.operators:
        if one.operator == name:  # some run as others, such as relu6 as hardtanh
            elements = ROWS if name == "l1_loss" else N
            assert one.cost.vector_flops == per_element * elements


@pytest.mark.parametrize("name", ["mse_loss", "smooth_l1_loss"])
def test_a_loss_has_the_flops_of_each_element_although_it_returns_their_mean(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (loss,) = counted(lambda x: getattr(torch.nn.functional, name)(x, new()), monkeypatch).operators
    assert loss.cost.vector_flops == len(OPERATIONS[name]) * N


CLASSES = torch.long
OTHERS: dict[str, tuple[Callable[[Any], Any], int]] = {
    # copies
    "fill": (lambda x: x.fill_(1), 0), "zero": (lambda x: x.zero_(), 0), "normal": (lambda x: x.normal_(), 0),
    "uniform": (lambda x: x.uniform_(), 0), "bernoulli": (lambda x: x.bernoulli_(), 0),
    "random": (lambda x: x.random_(), 0), "exponential": (lambda x: x.exponential_(), 0),
    "zeros": (lambda x: torch.zeros(4, device="meta"), 0), "ones": (lambda x: torch.ones(4, device="meta"), 0),
    "full": (lambda x: torch.full((4,), 2, device="meta"), 0), "eye": (lambda x: torch.eye(4, device="meta"), 0),
    "arange": (lambda x: torch.arange(4, device="meta"), 0), "zeros_like": (torch.zeros_like, 0),
    "ones_like": (torch.ones_like, 0), "full_like": (lambda x: torch.full_like(x, 2), 0),
    "rand_like": (torch.rand_like, 0), "randn_like": (torch.randn_like, 0),
    "scalar_tensor": (lambda x: torch.scalar_tensor(2, device="meta"), 0), "clone": (torch.clone, 0),
    "contiguous": (lambda x: x.T.contiguous(), 0), "_to_copy": (lambda x: x.double(), 0),
    "roll": (lambda x: x.roll(1), 0), "flip": (lambda x: x.flip(0), 0), "tril": (torch.tril, 0),
    "triu": (torch.triu, 0), "pixel_shuffle": (lambda x: aten.pixel_shuffle(new(1, 4, 2, 2), 2), 0),
    "pixel_unshuffle": (lambda x: aten.pixel_unshuffle(new(1, 1, 4, 4), 2), 0),
    "cat": (lambda x: torch.cat([x, x]), 0), "stack": (lambda x: torch.stack([x, x]), 0),
    "new_zeros": (lambda x: x.new_zeros(4), 0), "new_ones": (lambda x: x.new_ones(4), 0),
    "new_full": (lambda x: x.new_full((4,), 2), 0), "copy": (lambda x: x.copy_(new()), 0),
    "embedding": (lambda x: aten.embedding(x, new(3, dtype=CLASSES)), 0),
    "index_select": (lambda x: x.index_select(0, new(3, dtype=CLASSES)), 0),
    "gather": (lambda x: x.gather(0, new(2, 8, dtype=CLASSES)), 0), "index": (lambda x: x[new(3, dtype=CLASSES)], 0),
    "constant_pad_nd": (lambda x: torch.nn.functional.pad(x, (1, 2)), 0), "repeat": (lambda x: x.repeat(2, 1), 0),
    "slice_scatter": (lambda x: x.slice_scatter(new(2, 8), 0, 0, 2), 0),
    # the loss reads one value per target
    "nll_loss_forward": (lambda x: aten.nll_loss_forward(x, new(4, dtype=CLASSES), None, 1, -100), 0),
    "nll_loss2d_forward": (
        lambda x: aten.nll_loss2d_forward(new(*IMAGES), new(2, 8, 8, dtype=CLASSES), None, 1, -100), 0,
    ),
    "nll_loss_backward": (
        lambda x: aten.nll_loss_backward(new(1)[0], x, new(4, dtype=CLASSES), None, 1, -100, new(1)[0]), 0,
    ),
    "nll_loss2d_backward": (
        lambda x: aten.nll_loss2d_backward(
            new(1)[0], new(*IMAGES), new(2, 8, 8, dtype=CLASSES), None, 1, -100, new(1)[0]
        ), 0,
    ),
    # reductions and scans, per element of the input
    **{
        name: (lambda x, name=name: getattr(aten, name)(x), N)
        for name in ("sum", "mean", "amax", "amin", "max", "min", "argmax", "argmin", "prod", "all", "any", "nansum")
    },
    "norm": (lambda x: aten.norm(x), 2 * N),  # x^2, +
    "linalg_vector_norm": (lambda x: aten.linalg_vector_norm(x), 2 * N),
    **{
        name: (lambda x, name=name: getattr(aten, name)(x), 4 * N)  # mean: +; x - mean, square, +
        for name in ("var", "std", "var_mean", "std_mean")
    },
    "logsumexp": (lambda x: aten.logsumexp(x, [1]), 3 * N),  # - max, exp, +
    "cumsum": (lambda x: x.cumsum(0), N), "cumprod": (lambda x: x.cumprod(0), N),
    "logcumsumexp": (lambda x: aten.logcumsumexp(x, 0), 3 * N),
    # softmax: max, - max, exp, +, /; its gradient: p g, +, g - sum, * p, and a scale
    **{name: (lambda x, name=name: getattr(aten, name)(x, -1, False), 5 * N) for name in ("_softmax", "_log_softmax")},
    **{name: (lambda x, name=name: getattr(aten, name)(x, -1), 5 * N) for name in ("softmax", "log_softmax")},
    **{
        name: (lambda x, name=name: getattr(aten, name)(x, x, -1, torch.float32), 5 * N)
        for name in ("_softmax_backward_data", "_log_softmax_backward_data")
    },
    # half of the input times the sigmoid of the other half: exp, + 1, 1 /, *
    "glu": (lambda x: aten.glu(x), 4 * N // 2),
    # layer norm: +, - mean, square, +, * rstd, * gain, + bias; RMS norm: square, +, * rstd, * gain; gradients twice
    "native_layer_norm": (lambda x: aten.native_layer_norm(x, [8], new(8), new(8), 1e-5), 7 * N),
    "native_layer_norm_backward": (
        lambda x: aten.native_layer_norm_backward(x, x, [8], new(4, 1), new(4, 1), new(8), new(8), [True] * 3),
        2 * 7 * N,
    ),
    "native_group_norm": (lambda x: aten.native_group_norm(new(*IMAGES), None, None, 2, 3, 64, 1, 1e-5), 7 * IMAGE),
    "native_group_norm_backward": (
        lambda x: aten.native_group_norm_backward(
            new(*IMAGES), new(*IMAGES), new(2, 1), new(2, 1), None, 2, 3, 64, 1, [True, False, False]
        ),
        2 * 7 * IMAGE,
    ),
    "_fused_rms_norm": (lambda x: aten._fused_rms_norm(x, [8], new(8), 1e-5), 4 * N),
    "_fused_rms_norm_backward": (
        lambda x: aten._fused_rms_norm_backward(x, x, [8], new(4, 1), new(8), [True] * 2), 2 * 4 * N,
    ),
    # batch norm: * scale, + shift; in training as a layer norm
    "native_batch_norm": (
        lambda x: aten.native_batch_norm(new(*IMAGES), *[new(3)] * 4, False, 0.1, 1e-5), 2 * IMAGE,
    ),
    "_native_batch_norm_legit": (
        lambda x: aten._native_batch_norm_legit(new(*IMAGES), *[new(3)] * 4, True, 0.1, 1e-5), 7 * IMAGE,
    ),
    "_native_batch_norm_legit_no_training": (
        lambda x: aten._native_batch_norm_legit_no_training(new(*IMAGES), *[new(3)] * 4, 0.1, 1e-5), 2 * IMAGE,
    ),
    "_batch_norm_with_update": (
        lambda x: aten._batch_norm_with_update(new(*IMAGES), *[new(3)] * 4, 0.1, 1e-5), 7 * IMAGE,
    ),
    "native_batch_norm_backward": (
        lambda x: aten.native_batch_norm_backward(new(*IMAGES), new(*IMAGES), *[new(3)] * 5, True, 1e-5, [True] * 3),
        2 * 7 * IMAGE,
    ),
    # pools: each value of each window; 8 x 8 -> 4 x 4, windows of 2 x 2
    "max_pool1d": (lambda x: torch.max_pool1d(x[None], 2), N),
    "avg_pool1d": (lambda x: aten.avg_pool1d(x[None], [2]), N),
    "max_pool2d_with_indices": (lambda x: aten.max_pool2d_with_indices(new(*IMAGES), [2]), 6 * 4 * 4 * 2 * 2),
    "avg_pool2d": (lambda x: aten.avg_pool2d(new(*IMAGES), [2, 4]), 6 * 4 * 2 * 2 * 4),
    "max_pool3d_with_indices": (lambda x: aten.max_pool3d_with_indices(new(1, 4, 4, 4), [2]), 2 * 2 * 2 * 8),
    "avg_pool3d": (lambda x: aten.avg_pool3d(new(1, 4, 4, 4), [2]), 2 * 2 * 2 * 8),
    "_adaptive_avg_pool2d": (lambda x: aten._adaptive_avg_pool2d(new(*IMAGES), [2, 2]), IMAGE),
    "_adaptive_avg_pool3d": (lambda x: aten._adaptive_avg_pool3d(new(1, 4, 4, 4), [2, 2, 2]), 64),
    "adaptive_avg_pool1d": (lambda x: aten.adaptive_avg_pool1d(x[None], [2]), N),
    "adaptive_avg_pool2d": (lambda x: aten.adaptive_avg_pool2d(new(*IMAGES), [2, 2]), IMAGE),
    # 16 x 16 outputs: of 2 x 2 neighbors 4 *, 3 +; of 4 x 4 neighbors 16 *, 15 +
    "upsample_nearest2d": (lambda x: aten.upsample_nearest2d(new(*IMAGES), [16, 16]), 0),
    "upsample_bilinear2d": (lambda x: aten.upsample_bilinear2d(new(*IMAGES), [16, 16], False), (4 + 3) * 6 * 256),
    "upsample_bicubic2d": (lambda x: aten.upsample_bicubic2d(new(*IMAGES), [16, 16], False), (16 + 15) * 6 * 256),
    # each gradient is added once
    "max_pool2d_with_indices_backward": (
        lambda x: aten.max_pool2d_with_indices_backward(
            new(2, 3, 4, 4), new(*IMAGES), [2, 2], [2, 2], [0, 0], [1, 1], False, new(2, 3, 4, 4, dtype=CLASSES)
        ), 6 * 16,
    ),
    "max_pool3d_with_indices_backward": (
        lambda x: aten.max_pool3d_with_indices_backward(
            new(1, 1, 2, 2, 2), new(1, 1, 4, 4, 4), [2] * 3, [2] * 3, [0] * 3, [1] * 3, False,
            new(1, 1, 2, 2, 2, dtype=CLASSES),
        ), 8,
    ),
    "avg_pool2d_backward": (
        lambda x: aten.avg_pool2d_backward(
            new(2, 3, 4, 4), new(*IMAGES), [2, 2], [2, 2], [0, 0], False, True, None
        ), 6 * 16,
    ),
    "_adaptive_avg_pool2d_backward": (
        lambda x: aten._adaptive_avg_pool2d_backward(new(2, 3, 2, 2), new(*IMAGES)), 6 * 4,
    ),
    "embedding_dense_backward": (
        lambda x: aten.embedding_dense_backward(x, new(4, dtype=CLASSES), 100, -1, False), N,
    ),
    "native_dropout": (lambda x: aten.native_dropout(x, 0.1, True), 2 * N),  # a random number < p, * scale
}  # fmt: skip


@pytest.mark.parametrize("name", OTHERS)
def test_other_operators_have_the_flops_of_their_formulas(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    call, flops = OTHERS[name]
    found = counted(call, monkeypatch)
    assert not found.uncounted
    own = [one.cost.vector_flops for one in found.operators if one.operator.rstrip("_") == name]
    assert not own or sum(own) == flops  # some run as others here, such as _fused_rms_norm


def test_fused_optimizers_count_each_parameter_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Adam: m 3, v 4, w 5 (vector_flops.py); momentum: m = b m + g 2, w -= a m 2. Two tensors of 4 x 8."""

    def lists(count_of: int) -> Any:
        return [[new(), new()] for _ in range(count_of)]

    def adam(x: Any, name: str) -> Any:
        options = {"lr": 1.0, "beta1": 0.9, "beta2": 0.9, "weight_decay": 0.0, "eps": 1e-8, "amsgrad": False}
        return getattr(aten, name)(*lists(4), [], [new(1), new(1)], **options, maximize=False)

    def momentum(x: Any) -> Any:
        options = {"weight_decay": 0.0, "momentum": 0.9, "lr": 1.0, "dampening": 0.0, "nesterov": False}
        return aten._fused_sgd(*lists(3), **options, maximize=False, is_first_step=False)

    for name in ("_fused_adam_", "_fused_adamw_"):
        assert counted(lambda x, name=name: adam(x, name), monkeypatch).cost.vector_flops == (3 + 4 + 5) * 2 * N  # type: ignore[misc]
    assert OPERATORS["_fused_sgd"].flops == 2 + 2
    found = counted(lambda x: torch._foreach_add_([x, new()], 1), monkeypatch)
    assert (found.uncounted, found.cost.vector_flops) == ({}, 2 * N)


def test_every_operator_of_the_table_is_run_by_a_test() -> None:
    optimizers = {"_fused_adam", "_fused_adamw", "_fused_sgd", "_amp_foreach_non_finite_check_and_unscale"}
    assert {*OPERATIONS, *SINGLE, *OTHERS, *ONLY_IN_PROFILES, *optimizers} == {*OPERATORS}
    for name, other in ONLY_IN_PROFILES.items():
        assert (OPERATORS[name].flops, OPERATORS[name].per) == (OPERATORS[other].flops, OPERATORS[other].per)


ARGUMENTS = {"Threshold": (0.1, 0.0), "Softmin": (1,)}


@pytest.mark.parametrize(
    ("activation", "operations"),
    [
        ("Hardswish", 5), ("ELU", 3), ("Hardsigmoid", 4), ("Softplus", 3), ("SELU", 3), ("ReLU6", 2), ("PReLU", 2),
        ("LogSigmoid", 3), ("Softshrink", 3), ("Hardshrink", 2), ("Threshold", 1), ("GLU", 2), ("RReLU", 2),
        ("Softsign", 3), ("Tanhshrink", 2), ("Softmin", 6), ("Hardtanh", 2), ("Mish", 5), ("SiLU", 4), ("CELU", 4),
    ],
)  # fmt: skip
def test_activations_of_torch_are_counted(activation: str, operations: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Per element of the input. Softsign is x / (1 + |x|), Tanhshrink x - tanh(x), Softmin the softmax of -x."""
    made = getattr(torch.nn, activation)(*ARGUMENTS.get(activation, ())).to("meta").eval()
    found = counted(made, monkeypatch)
    assert not found.uncounted
    assert found.cost.vector_flops == operations * N
