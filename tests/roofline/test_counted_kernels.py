"""FLOPs from recorded shapes, compared with torch.utils.flop_counter and with real CPU profiles."""

import gzip
import json
import math
from itertools import product

import pytest

from roofmodel.devices.device import Device
from roofmodel.profiles import torch_fields, torch_trace
from roofmodel.profiles.kernel import RecordedInputs
from roofmodel.roofline.counted_kernels import (
    COMMUNICATION,
    IN_GRAPH,
    NO_OPERATOR,
    NO_SHAPES,
    KernelWork,
    Operators,
    count_kernels,
    with_counts,
)
from roofmodel.roofline.matrix_operators import FORMULAS, causal_pairs
from roofmodel.roofline.recorded_inputs import Arguments, NotCounted, Work
from tests.operations import operations
from tests.profiles.samples import measured, profile_of
from tests.trace.runs import event, written

torch = pytest.importorskip("torch")
flop_registry = pytest.importorskip("torch.utils.flop_counter").flop_registry

NAMES = {
    torch.float32: "float", torch.float16: "c10::Half", torch.bfloat16: "c10::BFloat16", torch.int64: "long int",
    torch.float64: "double", torch.bool: "bool",
}  # fmt: skip


def recorded(*args: object) -> RecordedInputs:
    """Arguments in Kineto's format, which test_a_real_profile_has_this_format compares with a real trace."""

    def kind(arg: object) -> str:
        if isinstance(arg, torch.Tensor):
            return NAMES[arg.dtype]
        if isinstance(arg, list) and arg and isinstance(arg[0], torch.Tensor):
            return "TensorList"
        return "" if arg is None else "ScalarList" if isinstance(arg, list) else "Scalar"

    def value(arg: object) -> str:
        if isinstance(arg, list):
            return "" if arg and isinstance(arg[0], torch.Tensor) else f"[{', '.join(map(str, arg))}]"
        return "" if arg is None or isinstance(arg, torch.Tensor) else str(arg)

    def of(arg: object, sizes) -> object:
        if isinstance(arg, list) and arg and isinstance(arg[0], torch.Tensor):
            return tuple(sizes(each) for each in arg)
        return sizes(arg) if isinstance(arg, torch.Tensor) else ()

    return RecordedInputs(
        tuple(of(arg, lambda t: tuple(t.shape)) for arg in args), tuple(map(kind, args)), tuple(map(value, args)),
        tuple(of(arg, lambda t: tuple(t.stride())) for arg in args),
    )  # fmt: skip


def meta(*shape: int, dtype=torch.bfloat16):
    return torch.empty(shape, dtype=dtype, device="meta")


def work(name: str, *args: object, kernel: str = "gemm_bf16") -> Work:
    """The work of an operator with one kernel."""
    found = count_kernels([kernel], [1.0], [0], Operators([f"aten::{name}"], [recorded(*args)], [-1]))[0]
    assert found.reason is None, found.reason
    return Work(int(found.matmul_flops), int(found.vector_flops), int(found.bytes), found.form)


def oracle(name: str, *args: object, **more: object) -> int:
    return flop_registry[getattr(torch.ops.aten, name)](*args, **more)


# --- Against PyTorch's own formulas -----------------------------------------------------------------

MATRICES = [
    ("mm", meta(788, 768), meta(768, 3072)),
    ("addmm", meta(3072), meta(788, 768), meta(768, 3072), 1, 1),
    ("bmm", meta(12, 197, 64), meta(12, 64, 197)),
    ("baddbmm", meta(12, 197, 197), meta(12, 197, 64), meta(12, 64, 197), 1, 1),
]


@pytest.mark.parametrize(("name", "args"), [(each[0], each[1:]) for each in MATRICES], ids=lambda each: str(each)[:9])
def test_gemms_have_the_flops_of_pytorch(name, args):
    tensors = [arg for arg in args if isinstance(arg, torch.Tensor)]
    assert work(name, *args).matmul_flops == oracle(name, *tensors, out_val=None)


CONVOLUTIONS = [
    # input, weight, stride, padding, dilation, transposed, output padding, groups
    ((4, 3, 224, 224), (768, 3, 16, 16), [16, 16], [0, 0], [1, 1], False, [0, 0], 1),
    ((2, 64, 56, 56), (128, 64, 3, 3), [2, 2], [1, 1], [1, 1], False, [0, 0], 1),
    ((2, 64, 56, 56), (64, 1, 3, 3), [1, 1], [1, 1], [1, 1], False, [0, 0], 64),
    ((2, 64, 28, 30), (96, 16, 3, 5), [1, 2], [2, 1], [2, 1], False, [0, 0], 4),
    ((2, 16, 100), (32, 16, 7), [3], [2], [1], False, [0], 1),
    ((1, 8, 9, 10, 11), (16, 8, 3, 3, 3), [1, 1, 1], [1, 1, 1], [1, 1, 1], False, [0, 0, 0], 1),
    ((2, 64, 14, 14), (64, 32, 4, 4), [2, 2], [1, 1], [1, 1], True, [0, 0], 1),
    ((2, 64, 14, 14), (64, 16, 3, 3), [2, 2], [1, 1], [1, 1], True, [1, 1], 2),
]


def convolved(case, requires_grad=False):
    source, weight, stride, padding, dilation, transposed, extra, groups = case
    x, w = (meta(*shape, dtype=torch.float32) for shape in (source, weight))
    out = torch.ops.aten.convolution(x, w, None, stride, padding, dilation, transposed, extra, groups)
    return x, w, out


@pytest.mark.parametrize("case", CONVOLUTIONS, ids=str)
def test_convolutions_have_the_flops_and_output_of_pytorch(case):
    x, w, out = convolved(case)
    found = work("convolution", x, w, None, *case[2:])
    assert found.matmul_flops == oracle("convolution", x, w, None, *case[2:], out_val=out)
    # each element is read or written at most once; the filter may skip rows
    assert 4 * (w.numel() + out.numel()) < found.bytes <= 4 * (x.numel() + w.numel() + out.numel())


def test_a_strided_patch_embedding_reads_its_image_once_and_a_strided_pointwise_filter_a_quarter():
    image, patches = meta(4, 3, 224, 224), meta(768, 3, 16, 16)
    found = work("convolution", image, patches, None, [16, 16], [0, 0], [1, 1], False, [0, 0], 1)
    assert found.bytes == 2 * (4 * 3 * 224 * 224 + 768 * 3 * 16 * 16 + 4 * 768 * 14 * 14)
    x, w = meta(1, 8, 10, 10), meta(16, 8, 1, 1)
    found = work("convolution", x, w, None, [2, 2], [0, 0], [1, 1], False, [0, 0], 1)
    assert found.bytes == 2 * (8 * 5 * 5 + 16 * 8 + 16 * 5 * 5)  # every second row and column


@pytest.mark.parametrize("case", CONVOLUTIONS, ids=str)
def test_gradients_of_convolutions_have_the_flops_of_pytorch(case):
    x, w, out = convolved(case)
    formula, groups = flop_registry[torch.ops.aten.convolution_backward], case[-1]
    source, weight = (
        formula(out, x, w, None, *case[2:], mask, out_val=(x if mask[0] else None, w if mask[1] else None, None))
        for mask in ([True, False, False], [False, True, False])
    )
    # flop_counter counts the weight gradient of a grouped convolution like an ungrouped one
    expected = {(True, True): source + weight // groups, (True, False): source, (False, True): weight // groups}
    for (input_flops, weight_flops), flops in expected.items():
        found = work("convolution_backward", out, x, w, [0], *case[2:], [input_flops, weight_flops, True])
        assert found.matmul_flops == flops


@pytest.mark.parametrize(
    ("name", "places"),
    [
        ("cudnn_convolution", lambda s, p, d, g: (p, s, d, g, False, False, True)),
        ("miopen_convolution", lambda s, p, d, g: (None, p, s, d, g, False, False)),
        ("mkldnn_convolution", lambda s, p, d, g: (None, p, s, d, g)),
        ("conv2d", lambda s, p, d, g: (None, s, p, d, g)),
        ("cudnn_convolution_relu", lambda s, p, d, g: (None, s, p, d, g)),
    ],
)
def test_flops_of_library_convolutions_equal_those_of_aten_convolution(name, places):
    for case in CONVOLUTIONS[:4]:
        x, w, out = convolved(case)
        expected = oracle("convolution", x, w, None, *case[2:], out_val=out)
        stride, padding, dilation, groups = case[2], case[3], case[4], case[7]
        assert work(name, x, w, *places(stride, padding, dilation, groups)).matmul_flops == expected


def test_a_convolution_that_adds_a_tensor_reads_it():
    x, w, z, bias = meta(8, 64, 56, 56), meta(64, 64, 3, 3), meta(8, 64, 56, 56), meta(64)
    places = ([1, 1], [1, 1], [1, 1], 1)
    plain = work("cudnn_convolution_relu", x, w, bias, *places)
    added = work("cudnn_convolution_add_relu", x, w, z, 1.0, bias, *places)
    assert added.bytes == plain.bytes + 2 * z.numel() == 2 * (3 * z.numel() + w.numel() + 64)
    assert added.vector_flops == plain.vector_flops + z.numel()
    assert added.matmul_flops == plain.matmul_flops


def heads(b=2, h=12, t=197, d=64, kv=None, s=None, tokens_first=False, dtype=torch.bfloat16):
    """Queries, keys, values."""
    shapes = [(b, h, t, d), *[(b, kv or h, s or t, d)] * 2]
    return [meta(*((x[0], x[2], x[1], x[3]) if tokens_first else x), dtype=dtype) for x in shapes]


def test_fused_attention_has_the_flops_of_pytorch():
    q, k, v = heads()
    expected = oracle("_scaled_dot_product_flash_attention", q, k, v, out_val=None)
    assert expected == 2 * 2 * 2 * 12 * 197 * 197 * 64
    for name, more in [
        ("_scaled_dot_product_flash_attention", (0.0, False, False)),
        ("_scaled_dot_product_efficient_attention", (None, True, 0.0, False)),
        ("_scaled_dot_product_cudnn_attention", (None, True, 0.0, False, False)),
        ("scaled_dot_product_attention", (None, 0.0, False)),
    ]:
        found = work(name, q, k, v, *more)
        assert found.matmul_flops == expected, name
        # q, k, v and the output: 2 bytes; the log-sum-exp of each row: 4 bytes
        assert found.bytes == 4 * 2 * 2 * 12 * 197 * 64 + 4 * 2 * 12 * 197
    transposed = heads(tokens_first=True)
    flash = work("_flash_attention_forward", *transposed, None, None, 197, 197, 0.0, False, False)
    efficient = work("_efficient_attention_forward", *transposed, None, None, None, 197, 197, 0.0, 0, True)
    assert flash.matmul_flops == efficient.matmul_flops == expected


def test_gradients_of_fused_attention_have_the_flops_of_pytorch():
    q, k, v = heads()
    lse = meta(2, 12, 197, dtype=torch.float32)
    expected = oracle("_scaled_dot_product_flash_attention_backward", q, q, k, v, out_val=None)
    none3 = (None, None, None)
    for name, more in [
        ("_scaled_dot_product_flash_attention_backward", (None, None, 197, 197, 0.0, False, None, None)),
        ("_scaled_dot_product_cudnn_attention_backward", (*none3, None, None, 197, 197, 0.0, False)),
    ]:
        assert work(name, q, q, k, v, q, lse, *more).matmul_flops == expected, name
    found = work("_scaled_dot_product_efficient_attention_backward", q, q, k, v, None, q, lse, None, None, 0.0,
                 [True, True, True, False], False)  # fmt: skip
    assert found.matmul_flops == expected
    transposed = heads(tokens_first=True)
    found = work(
        "_flash_attention_backward", transposed[0], *transposed, transposed[0], lse, None, None, 197, 197, 0.0, False
    )
    assert found.matmul_flops == expected


@pytest.mark.parametrize(("t", "s"), [(4, 64), (64, 64), (64, 4), (1, 5), (5, 1)])
@pytest.mark.parametrize("mask_type", [0, 1, 2])
def test_efficient_attention_counts_the_pairs_of_its_mask(t, s, mask_type):
    """custom_mask_type: 0 none, 1 causal from the first query and key, 2 causal to the last query and key."""
    q, k, v = heads(b=1, h=4, t=t, s=s, d=64, tokens_first=True)
    diagonal = {0: s, 1: 0, 2: s - t}[mask_type]
    pairs = int(torch.ones(t, s).tril(diagonal).sum())
    none2 = (None, None)
    forward = work("_efficient_attention_forward", q, k, v, None, *none2, t, s, 0.0, mask_type, True)
    assert forward.matmul_flops == 2 * 2 * 4 * 64 * pairs
    lse = meta(1, 4, t, dtype=torch.float32)
    backward = work("_efficient_attention_backward", q, q, k, v, None, q, *none2, t, s, lse, 0.0, *none2, mask_type)
    assert backward.matmul_flops == 5 * 2 * 4 * 64 * pairs


def test_causal_attention_counts_the_pairs_below_the_diagonal():
    q, k, v = heads(h=8, t=100, kv=2)
    full = work("_scaled_dot_product_flash_attention", q, k, v, 0.0, False, False).matmul_flops
    half = work("_scaled_dot_product_flash_attention", q, k, v, 0.0, True, False).matmul_flops
    assert half * 100 * 100 == full * 100 * 101 // 2
    assert causal_pairs(3, 5) == int(torch.ones(3, 5).tril().sum())
    assert causal_pairs(5, 3) == int(torch.ones(5, 3).tril().sum())


def test_packed_sequences_are_not_counted_because_their_lengths_are_unknown():
    q, k, v = heads(b=1, tokens_first=True)
    lengths = meta(4, dtype=torch.int64)
    inputs = recorded(q, k, v, lengths, lengths, 197, 197, 0.0, True, False)
    with pytest.raises(NotCounted, match="packed sequences"):
        FORMULAS["_flash_attention_forward"](Arguments(inputs))


# --- Against a real profile -------------------------------------------------------------------------


def profiled(tmp_path, run):
    """The operators of a CPU profile of `run`: names, inputs and callers; and FlopCounterMode's total."""
    from torch.profiler import ProfilerActivity, profile
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        run()
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as profiler:
        run()
    path = tmp_path / "trace.json"
    profiler.export_chrome_trace(str(path))
    events = [e for e in json.loads(path.read_text())["traceEvents"] if e.get("cat") == "cpu_op"]
    return events, counter.get_total_flops()


def as_if_on_gpu(events):
    """One kernel for each operator that calls no other operator, as on a GPU."""
    texts_of_times = [{key: str(e[key]) for key in ("ts", "dur")} for e in events]
    starts, lengths = (torch_fields.nanoseconds(texts_of_times, key) for key in ("ts", "dur"))
    spans = list(zip(starts, lengths, events, strict=True))
    table = sorted(((start, start + length, e) for start, length, e in spans), key=lambda each: (each[0], -each[1]))
    from roofmodel.profiles.timelines.enclosing import nested

    outer = nested([0] * len(table), [each[0] for each in table], [each[1] for each in table]).parents.tolist()
    texts = torch_fields.inputs_texts([e.get("args", {}) for _, _, e in table])
    inputs = [None if text is None else torch_fields.parse_inputs(text) for text in texts]
    names = [e["name"] for _, _, e in table]
    leaves = [i for i in range(len(table)) if i not in set(outer)]
    found = count_kernels(
        [names[i].partition("::")[2] for i in leaves], [1.0] * len(leaves), leaves, Operators(names, inputs, outer)
    )
    return [(names[i], each) for i, each in zip(leaves, found, strict=True)]


def network():
    """A network with a convolution, batch norm, attention, grouped and transposed convolutions, linear layers."""
    torch.manual_seed(0)
    x = torch.randn(2, 8, 12, 12)
    nn = torch.nn
    body = nn.Sequential(
        nn.Conv2d(8, 16, 3, padding=1, stride=2), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 16, 3, groups=4),
        nn.ConvTranspose2d(16, 8, 2, stride=2), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(128, 10), nn.Softmax(-1),
    )  # fmt: skip
    y = torch.randn(2, 4, 20, 16)
    a, b = torch.randn(6, 5, 7), torch.randn(6, 7, 3)

    def run():
        with torch.no_grad():
            body(x)
            torch.nn.functional.scaled_dot_product_attention(y, y, y)
            torch.matmul(a, b)
            torch.baddbmm(torch.zeros(6, 5, 3), a, b)

    return run


def test_a_real_profile_has_the_flops_of_flop_counter_mode(tmp_path):
    events, expected = profiled(tmp_path, network())
    found = as_if_on_gpu(events)
    attention = 2 * 2 * 2 * 4 * 20 * 20 * 16  # flop_counter has no formula for the attention of the CPU
    assert sum(each.matmul_flops for _, each in found) == pytest.approx(expected + attention, abs=1e-6)
    uncounted = {name for name, each in found if each.reason and not each.auxiliary}
    views = (
        "empty", "as_strided", "_reshape_alias", "view", "empty_like", "resize_", "expand", "t", "_unsafe_view",
        "slice", "select", "detach",
    )  # fmt: skip
    assert uncounted <= {f"aten::{name}" for name in views}


def test_gradients_in_a_real_profile_have_the_flops_of_flop_counter_mode(tmp_path):
    model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.GELU(), torch.nn.Linear(64, 8))
    x = torch.randn(16, 32)
    events, expected = profiled(tmp_path, lambda: model(x).sum().backward())
    found = as_if_on_gpu(events)
    assert sum(each.matmul_flops for _, each in found) == expected > 0


def test_a_real_profile_has_this_format(tmp_path):
    x, w = torch.randn(2, 8, 12, 12), torch.randn(16, 8, 3, 3)
    parts = [torch.randn(3, 4), torch.randn(5, 4)]

    def run():
        torch.ops.aten.convolution(x, w, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1)
        torch.cat(parts, 0)

    events, _ = profiled(tmp_path, run)
    texts = torch_fields.inputs_texts([e.get("args", {}) for e in events])
    by_name = {e["name"]: torch_fields.parse_inputs(text) for e, text in zip(events, texts, strict=True) if text}
    assert by_name["aten::convolution"] == recorded(x, w, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1)
    assert by_name["aten::cat"] == recorded(parts, 0)


# --- Vector operators: bytes written out ------------------------------------------------------------


def test_elementwise_operators_read_and_write_each_tensor_once():
    x, bias = meta(4, 197, 768), meta(768)
    assert work("add", x, bias, 1) == Work(0, x.numel(), 2 * (2 * x.numel() + 768), "bf16")
    assert work("add_", x, x, 1).bytes == 3 * 2 * x.numel()  # reads both, writes one
    assert work("gt", x, 0).bytes == (2 + 1) * x.numel()  # booleans: one byte
    assert work("gelu", x, "none").vector_flops == 5 * x.numel()
    expanded = bias.expand(4, 197, 768)
    assert work("mul", x, expanded).bytes == 2 * (2 * x.numel() + 768)  # strides of 0: the same 768 elements
    assert work("copy_", meta(10, dtype=torch.float32), meta(10), False).bytes == 10 * (4 + 2)
    assert work("fill_", x, 0).bytes == 2 * x.numel()
    half = meta(10, dtype=torch.float16)
    assert work("add", meta(10, dtype=torch.float32), half, 1).bytes == 10 * (4 + 2 + 4)  # result in fp32


def test_reductions_norms_softmax_and_lookups():
    x, w = meta(4, 197, 768), meta(768)
    assert work("sum", x, [1], False, None).bytes == 2 * (x.numel() + 4 * 768)
    assert work("mean", x, None).bytes == 2 * (x.numel() + 1)
    assert work("_softmax", x, -1, False) == Work(0, 5 * x.numel(), 2 * 2 * x.numel(), "bf16")
    assert work("native_layer_norm", x, [768], w, w, 1e-5) == Work(
        0, 7 * x.numel(), 2 * (2 * x.numel() + 2 * 768), "bf16"
    )
    tokens = meta(4, 100, dtype=torch.int64)
    assert work("embedding", meta(50257, 768), tokens, -1, False, False).bytes == 2 * 2 * 400 * 768 + 8 * 400
    assert work("index_select", meta(512, 768), 0, meta(141, dtype=torch.int64)).bytes == 2 * 2 * 141 * 768 + 8 * 141
    pooled = work("max_pool2d_with_indices", meta(2, 64, 112, 112), [3, 3], [2, 2], [1, 1], [1, 1], False)
    assert pooled.bytes == 2 * 2 * 64 * 112 * 112 + (2 + 8) * 2 * 64 * 56 * 56
    assert pooled.vector_flops == 9 * 2 * 64 * 56 * 56


@pytest.mark.parametrize(("name", "image"), [("nll_loss", ()), ("nll_loss2d", (4, 6))])
@pytest.mark.parametrize("reduction", [0, 1, 2])
def test_the_loss_reads_one_score_per_token(name, image, reduction):
    scores = meta(8, 50257, *image, dtype=torch.float32)
    targets = meta(8, *image, dtype=torch.int64)
    tokens = targets.numel()
    outputs = tokens if reduction == 0 else 1
    forward = work(f"{name}_forward", scores, targets, None, reduction, -100)
    assert forward.bytes == 4 * tokens + 8 * tokens + 4 * outputs
    gradient = meta(*((8, *image) if reduction == 0 else ()), dtype=torch.float32)
    total = meta(dtype=torch.float32)
    # aten::zero_ writes the zeros of the gradient in a separate kernel
    backward = work(f"{name}_backward", gradient, scores, targets, None, reduction, -100, total)
    assert backward.bytes == 4 * outputs + 8 * tokens + 4 + 4 * tokens


def test_a_weighted_loss_reads_one_weight_per_token_or_all_weights_if_these_are_fewer():
    scores, targets = meta(8, 50257), meta(8, dtype=torch.int64)
    assert work("nll_loss_forward", scores, targets, meta(50257), 1, -100).bytes == 2 * 8 + 8 * 8 + 2 * 8 + 2
    few_classes = work("nll_loss_forward", meta(8, 3), targets, meta(3), 1, -100)
    assert few_classes.bytes == 2 * 8 + 8 * 8 + 2 * 3 + 2


def test_operators_that_call_the_loss_with_the_kernel_add_no_work():
    given = recorded(meta(8, 50257), meta(8, dtype=torch.int64), None, 1, -100)
    names = ["aten::cross_entropy_loss", "aten::nll_loss_nd", "aten::nll_loss", "aten::nll_loss_forward"]
    operators = Operators(names, [given] * 4, [-1, 0, 1, 2])
    found = count_kernels(["nll_loss_forward_reduce_cuda_kernel_2d"], [1.0], [3], operators)
    assert [each.bytes for each in found] == [2 * 8 + 8 * 8 + 2]


def test_pooling_has_the_output_size_of_pytorch():
    for n, kernel, stride, padding, ceil in [
        (10, 3, 2, 1, False),
        (10, 3, 2, 1, True),
        (7, 2, 3, 0, True),
        (8, 3, 3, 1, True),
    ]:
        x = torch.zeros(1, 1, n, n)
        out = torch.nn.functional.max_pool2d(x, kernel, stride, padding, ceil_mode=ceil)
        args = ([kernel] * 2, [stride] * 2, [padding] * 2, [1, 1], ceil)
        found = work("max_pool2d_with_indices", x, *args)
        assert found.vector_flops == kernel**2 * out.numel()


def test_lists_of_tensors_take_their_type_from_the_kernel():
    parts = [meta(4, 1, 768), meta(4, 196, 768)]
    elements = 4 * 197 * 768
    found = work("cat", parts, 1, kernel="CatArrayBatchedCopy<at::native::OpaqueType<2u>, unsigned int, 3>")
    assert found.bytes == 2 * 2 * elements
    found = work(
        "_foreach_add_", parts, parts, 1, kernel="multi_tensor_apply_kernel<BinaryOpListAlphaFunctor<float, 2>>"
    )
    assert found == Work(0, elements, 3 * 4 * elements, "fp32")
    adam = work("_fused_adamw_", parts, parts, parts, parts, [], [], 1e-3, kernel="FusedAdamMathFunctor<float, 4>")
    assert adam.bytes == 7 * 4 * elements  # reads parameters, gradients and two moments; writes all except gradients


# --- Distribution among kernels ---------------------------------------------------------------------

X, W, B = meta(788, 768), meta(768, 3072), meta(3072)
FLOPS = 2 * 788 * 768 * 3072


def test_nested_operators_count_once():
    names = ["aten::linear", "aten::t", "aten::addmm"]
    inputs = [recorded(X, meta(3072, 768), B), recorded(meta(3072, 768)), recorded(B, X, W, 1, 1)]
    table = Operators(names, inputs, [-1, 0, 0])
    found = count_kernels(["sm90_xmma_gemm", "splitKreduce_kernel"], [3.0, 1.0], [2, 2], table)
    assert [each.matmul_flops for each in found] == [FLOPS, 0]
    assert found[1].auxiliary
    # a kernel launched by the outer operator adds nothing
    found = count_kernels(["sm90_xmma_gemm", "sm90_xmma_gemm"], [3.0, 1.0], [2, 0], table)
    assert [each.matmul_flops for each in found] == [FLOPS, 0]


def test_an_operator_without_a_formula_belongs_to_the_operator_that_calls_it():
    table = Operators(["aten::linear", "mylib::gemm"], [recorded(X, meta(3072, 768), B), recorded(X)], [-1, 0])
    assert count_kernels(["my_gemm"], [1.0], [1], table)[0].matmul_flops == FLOPS


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("length", [1, 2, 3, 4])
def test_a_kernel_belongs_to_the_first_operator_outward_that_has_work(length, order):
    """mm has work; topk and sort have no formula; of ? no shapes are recorded, the least specific reason.

    The kernels of outer operators come first, or those of inner ones: the results of earlier kernels are reused.
    """
    names = {"m": "aten::mm", "t": "aten::topk", "s": "aten::sort", "?": "aten::mm"}
    places = range(length)[::order]
    for chain in product(names, repeat=length):
        inputs = [None if each == "?" else recorded(X, W) for each in chain]
        table = Operators([names[each] for each in chain], inputs, range(-1, length - 1))  # each calls the next
        found = count_kernels([f"gemm_{i}" for i in places], [1.0] * length, places, table)
        assert sum(kernel.matmul_flops for kernel in found) == FLOPS * ("m" in chain)  # of the innermost one
        for place, kernel in zip(places, found, strict=True):
            outward = chain[place::-1]
            reasons = [f"no formula for {names[each]}" for each in outward if each in "ts"]
            if "m" in outward:
                assert kernel.known or kernel.auxiliary
            else:
                assert kernel.reason == [*reasons, NO_SHAPES][0]


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("inputs", [None, recorded(X)])
def test_the_time_for_nested_operators_without_work_grows_with_their_number(inputs, order):
    """A kernel in each: four times as many need four times the operations."""

    def needed(number):
        table = Operators(["mylib::f"] * number, [inputs] * number, range(-1, number - 1))
        places = range(number)[::order]
        return operations(lambda: count_kernels(["gemm"] * number, [1.0] * number, places, table))

    needed(1)  # what is computed once for a name
    assert needed(1000) < 5 * needed(250)


def test_each_gradient_kernel_of_a_convolution_has_half_of_the_flops():
    x, w, out = convolved(CONVOLUTIONS[1])
    inputs = recorded(out, x, w, [0], *CONVOLUTIONS[1][2:], [True, True, False])
    names = ["nchwToNhwcKernel", "cudnn_dgrad_implicit_gemm", "cudnn_wgrad_implicit_gemm"]
    table = Operators(["aten::convolution_backward"], [inputs], [-1])
    layout, input_gradient, weight_gradient = count_kernels(names, [1.0, 2.0, 3.0], [0, 0, 0], table)
    forward = oracle("convolution", x, w, None, *CONVOLUTIONS[1][2:], out_val=out)
    assert input_gradient.matmul_flops == weight_gradient.matmul_flops == forward
    assert layout.auxiliary


def test_every_kernel_without_numbers_has_a_reason():
    table = Operators(
        ["aten::mm", "aten::topk", "aten::mm", "aten::convolution"],
        [None, recorded(X), recorded(X, W), RecordedInputs(((2, 3, 8, 8), (4, 3, 3, 3)), ("float", "float"))],
        [-1] * 4,
    )
    names = ["gemm", "topk", "ncclDevKernel_AllReduce", "gemm", "gemm", "conv"]
    found = count_kernels(names, [1.0] * 6, [0, 1, 2, -1, 2, 3], table, frozenset({4}))
    assert [each.reason for each in found] == [
        NO_SHAPES, "no formula for aten::topk", COMMUNICATION, NO_OPERATOR, IN_GRAPH,
        "aten::convolution: its options are not recorded (PyTorch before 2.1)",
    ]  # fmt: skip


def test_tf32_follows_from_the_kernel_name():
    a, b = meta(64, 64, dtype=torch.float32), meta(64, 64, dtype=torch.float32)
    assert work("mm", a, b, kernel="ampere_sgemm_128x64").form == "fp32"
    assert work("mm", a, b, kernel="cutlass_80_tensorop_s1688tf32gemm_256x128").form == "tf32"


@pytest.mark.parametrize(
    ("name", "args", "flops"),
    [
        ("constant_pad_nd", (meta(4, 6, 8), [1, 2, 3, 4], 0.0), 0),
        ("repeat", (meta(6, 8), [2, 3, 4]), 0),
        ("slice_scatter", (meta(6, 8), meta(2, 8), 0, 1, 3), 0),
        ("glu", (meta(6, 8), -1), 6 * 4 * (3 + 1)),  # sigmoid, multiply
        ("avg_pool1d", (meta(2, 6, 8), [4], [2], [0], False, True), 2 * 6 * 3 * 4),  # windows at 0, 2 and 4
        ("max_pool1d", (meta(2, 6, 8), [4], [2], [1], [1], False), 2 * 6 * 4 * 4),
        ("hardswish", (meta(6, 8),), 6 * 8 * 5),
        ("_prelu_kernel", (meta(6, 8), meta(6, 8)), 6 * 8 * 2),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_vector_operators_read_their_tensors_and_write_the_output_of_torch(name, args, flops):
    output = getattr(torch.ops.aten, name)(*args)
    tensors = [each for each in (*args, output) if isinstance(each, torch.Tensor)]
    found = work(name, *args)
    assert found.bytes == 2 * sum(each.numel() for each in tensors)
    assert found.vector_flops == flops


def test_a_new_tensor_of_zeros_is_only_written():
    assert work("new_zeros", meta(6, 8), [3, 5]).bytes == 2 * 3 * 5


def test_damaged_arguments_give_a_reason_and_no_error():
    damaged = [
        RecordedInputs(),
        RecordedInputs(((3, 4), (5, 6)), ("float", "float")),
        RecordedInputs(((0, 0), (0, 0)), ("float", "float"), ("", ""), ((), ())),
        RecordedInputs((((1,), (2,)), ()), ("float", "Scalar")),
        RecordedInputs(
            ((2, 3, 8, 8), (4, 3, 3, 3)), ("float",) * 2, ("", "", "", "[0, 0]", "[0, 0]", "[0]", "x", "", "0")
        ),
    ]
    from roofmodel.roofline.vector_operators import OPERATORS

    names = [f"aten::{name}" for name in (*FORMULAS, *OPERATORS, "_foreach_add")]
    for inputs in damaged:
        for name in names:
            found = count_kernels(["k"], [0.0], [0], Operators([name], [inputs], [-1]))[0]
            assert found.reason is not None or math.isfinite(found.bytes)


def test_every_kernel_of_the_vit_trace_has_numbers_or_a_reason():
    with gzip.open(measured("traces/torch/Falconsai_nsfw_image_detection__1016002.json.gz")) as file:
        profile = profile_of(torch_trace.read)(file, "vit")
    assert len(profile.kernels) == 154
    calls = [kernel.call for kernel in profile.kernels]
    assert all(call is not None and call.inputs for call in calls)
    table = Operators([c.name for c in calls], [c.inputs for c in calls], [-1] * len(calls))
    first: dict[int, int] = {}
    places = [first.setdefault(call.id, i) for i, call in enumerate(calls)]
    found = count_kernels([k.name for k in profile.kernels], [k.seconds for k in profile.kernels], places, table)
    assert sum(each.known for each in found) == 151  # and three layout conversions around the convolution
    assert [each.reason for each in found if not each.known] == [
        "auxiliary kernel: the work is counted at the main kernel of aten::cudnn_convolution"
    ] * 3
    # ViT-Base/16, 4 images of 197 tokens: 12 layers (12 d^2 + attention), patches, pooler; the head ran on the CPU
    d, tokens, layers = 768, 197, 12
    per_layer = 2 * 4 * tokens * 12 * d * d + 2 * 2 * 4 * tokens * tokens * d
    patches, pooler = 2 * 4 * 196 * d * d, 2 * 4 * d * d
    assert sum(each.matmul_flops for each in found) == pytest.approx(layers * per_layer + patches + pooler, rel=1e-3)


def test_kernel_work_without_reason_is_known():
    assert KernelWork().known
    assert not KernelWork(reason="x").auxiliary


# --- roof plot --------------------------------------------------------------------------------------


def test_a_trace_with_shapes_has_points_that_are_marked_as_counted():
    import roofmodel

    report = roofmodel.plot(measured("traces/torch/Falconsai_nsfw_image_detection__1016002.json.gz"))
    document = report.to_dict()
    assert all(point["counted"] and not point["incomplete"] for point in document["points"])
    assert sum(point["invocations"] for point in document["points"]) == 151
    gemm = document["points"][0]
    assert gemm["bound"] == "memory"
    assert gemm["attainable"] == pytest.approx(gemm["intensity"] * 3.35e12, rel=0.01)  # DRAM of the H100
    assert any("counted from the recorded shapes" in text for text in report.warnings)
    assert any("omitted: 3 of 154 kernels" in text and "auxiliary" in text for text in report.warnings)


def test_a_trace_without_shapes_names_the_option_that_records_them():
    import roofmodel
    from roofmodel.errors import ProfileError

    path = measured("traces/torch/nccl_parser_config_nccl_data.json.gz")
    with pytest.raises(ProfileError, match="record_shapes=True"):
        roofmodel.plot(path, hw="a100")


def test_kernels_of_a_cuda_graph_do_not_count_as_the_operator_that_launched_it(tmp_path):
    shapes = {"Input Dims": [[512, 512], [512, 512]], "Input type": ["float", "float"]}
    graph = [event("cuda_runtime", "cudaGraphLaunch", 10, 12, correlation=99)] + [
        event("kernel", "gemm", start, start + 50, 0, 7, device=0, stream=7, correlation=99) for start in (100, 150)
    ]
    path = written(tmp_path, event("cpu_op", "aten::mm", 5, 20, **shapes), graph)
    with open(path, "rb") as file:
        profile = profile_of(torch_trace.read)(file, "trace")
    assert [kernel.call.name for kernel in profile.kernels] == ["aten::mm"] * 2
    assert [each.reason for each in with_counts(profile, Device.load("a100"))[1]] == [IN_GRAPH] * 2


def test_the_picture_states_that_flops_and_bytes_are_counted(tmp_path):
    import roofmodel

    report = roofmodel.plot(measured("traces/torch/gaunernst_bert-small-uncased__1016001.json.gz"))
    assert "FLOPs and bytes counted from shapes" in report.save(tmp_path / "points.svg").read_text()
    pytest.importorskip("plotly")
    assert "FLOPs and bytes counted from shapes" in report.save(tmp_path / "points.html").read_text()


def test_impossible_sizes_give_a_reason():
    huge = (10**17,) * 30
    many = ((10**17,) * 30, (3,))
    cases = [
        ("aten::add", RecordedInputs((huge, huge), ("float", "float"))),
        ("aten::cat", RecordedInputs((many,), ("TensorList",))),
        ("aten::fill_", RecordedInputs((huge,), ("float",))),
        (
            "aten::convolution",
            RecordedInputs(
                ((1, 1, *[1] * 40), (1, 1, *[1] * 40)), ("float", "float"),
                ("", "", "", "[1]", "[99999999999999]", "[1]", "False", "[0]", "1"),
            ),
        ),
    ]  # fmt: skip
    for name, inputs in cases:
        (found,) = count_kernels(["kernel<float>"], [1.0], [0], Operators([name], [inputs], [-1]))
        assert found.reason is not None, name


def test_arguments_that_cannot_be_stored_count_as_not_recorded():
    nested: list = []
    for _ in range(100_000):
        nested = [nested]
    assert torch_fields.inputs_texts([{"Input Dims": nested}, {"Input Dims": [[10**5000]]}]) == [None, None]
