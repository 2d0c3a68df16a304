"""Convolutions and convolutional networks: sliding axes, pixels that a filter reads, published multiply-adds."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roofmodel.counting.blocks import operators
from roofmodel.counting.layers.convolution import Context, FeatureMap, convolution, input_rows_read
from roofmodel.counting.operator import Gemm, Operator
from roofmodel.counting.tensors import AXES, parse
from roofmodel.counting.workload import Step, Workload
from roofmodel.devices.device import Device
from roofmodel.errors import WorkloadError
from roofmodel.models import hub
from roofmodel.models.convolutional import Convolution
from roofmodel.steps.estimate import Estimate, estimate


def step(batch: int = 1, image: tuple[int, int] = (224, 224)) -> Step:
    return Workload(("forward",), batch, 0, image=image).steps()[0]


def convolution_operator(conv: Convolution, pixels: FeatureMap, batch: int = 1) -> Operator:
    return convolution(conv, Context(step(batch), "stem"), conv.name, pixels, "x", "y")


def estimated(model: str, **options: Any) -> Estimate:
    return estimate(hub.load(model), Device.load("v100"), **options)


# --- Sliding axes -----------------------------------------------------------------------------------


def test_a_plus_inside_a_tensor_is_a_sliding_axis_and_a_plus_between_tensors_adds() -> None:
    line = parse("x[b c i+r j+s] W[o c r s] + B[o] -> y[b o i j]")
    assert [tensor.name for tensor in line.terms] == ["B"]
    assert line.axes == ("b", "c", "i", "r", "j", "s", "o")
    assert line.contracted == ("c", "r", "s")
    assert {axis for tensor in line.inputs for axis in tensor.axes} <= set(AXES)


def test_counts_of_the_stem_of_a_resnet_equal_those_derived_by_hand() -> None:
    op = convolution_operator(Convolution("stem", 64, 7, 2, padding=3), FeatureMap(3, 224, 224), batch=2)
    assert op.spec == "x[b c i+r j+s] W_stem_stem[o c r s] -> y[b o i j]"
    assert op.matmul_flops == 2 * 2 * 64 * 112 * 112 * 3 * 7 * 7
    assert op.gemm == Gemm(batch=1, m=2 * 112 * 112, n=64, k=3 * 7 * 7)
    assert op.cost.bytes_read == 2 * (2 * 3 * 224 * 224 + 64 * 3 * 7 * 7)  # each pixel once, although filters overlap
    assert op.cost.bytes_written == 2 * 2 * 64 * 112 * 112


def test_a_1_by_1_filter_with_stride_2_reads_a_quarter_of_the_pixels() -> None:
    op = convolution_operator(Convolution("shortcut", 512, 1, 2), FeatureMap(256, 56, 56))
    assert op.cost.bytes_read == 2 * (256 * 28 * 28 + 512 * 256)


def test_depthwise_convolutions_contract_no_channels() -> None:
    op = convolution_operator(Convolution("depthwise", 96, 7, padding=3, groups=96, bias=True), FeatureMap(96, 56, 56))
    assert op.matmul_flops == 2 * 96 * 56 * 56 * 49
    assert op.vector_flops == 96 * 56 * 56  # the bias
    assert op.gemm == Gemm(batch=96, m=56 * 56, n=1, k=49)
    assert sum(tensor.elements(op.sizes) for tensor in op.parameters) == 96 * 49 + 96


def test_a_1_by_1_convolution_is_a_gemm() -> None:
    assert (
        convolution_operator(Convolution("reduce", 64), FeatureMap(256, 56, 56)).spec
        == "x[b c i j] W_stem_reduce[o c] -> y[b o i j]"
    )


@given(st.integers(1, 30), st.integers(1, 8), st.integers(1, 4), st.integers(0, 3))
def test_the_pixels_read_by_a_convolution_equal_an_enumeration(
    rows: int, kernel: int, stride: int, padding: int
) -> None:
    padding = min(padding, kernel // 2)
    places = (rows + 2 * padding - kernel) // stride + 1
    if places < 1:
        return
    read = {place * stride + offset - padding for place in range(places) for offset in range(kernel)}
    assert input_rows_read(rows, places, kernel, stride, padding) == len(read & set(range(rows)))


@settings(deadline=None, max_examples=40)
@given(
    st.integers(1, 3), st.sampled_from([1, 2, 3]), st.integers(1, 4), st.integers(1, 4), st.integers(1, 5),
    st.integers(1, 3), st.integers(0, 2), st.integers(5, 12), st.integers(5, 12),
)  # fmt: skip
def test_any_convolution_has_the_flops_and_parameters_of_torch(
    batch: int, groups: int, into: int, out: int, kernel: int, stride: int, padding: int, rows: int, columns: int
) -> None:
    torch = pytest.importorskip("torch", reason="the oracle needs torch: pip install 'roofmodel[dev]'")
    from torch.utils.flop_counter import FlopCounterMode

    into, out = groups * into, groups * out
    layer = torch.nn.Conv2d(into, out, kernel, stride, padding, groups=groups)
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        result = layer(torch.zeros(batch, into, rows, columns))
    ours = convolution_operator(
        Convolution("c", out, kernel, stride, padding, groups, bias=True), FeatureMap(into, rows, columns), batch
    )
    assert ours.matmul_flops == counter.get_total_flops()
    assert ours.writes[0].elements(ours.sizes) == result.numel()
    assert sum(t.elements(ours.sizes) for t in ours.parameters) == sum(p.numel() for p in layer.parameters())


# --- Networks ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "giga"),
    [  # multiply-adds at 224 pixels, by torchvision's metadata (_ops)
        ("resnet-18", 1.814), ("resnet-34", 3.664), ("resnet-50", 4.089), ("resnet-101", 7.801),
        ("resnet-152", 11.514), ("convnext-tiny-224", 4.456), ("convnext-small-224", 8.684),
        ("convnext-base-224", 15.355), ("convnext-large-224", 34.361), ("vit-base-patch16-224", 17.564),
        ("vit-large-patch16-224", 61.555),
    ],
)  # fmt: skip
def test_multiply_adds_equal_the_published_counts(model: str, giga: float) -> None:
    phase = estimated(model, attention="eager").phases[0]
    assert round(phase.cost.matmul_flops / 2e9, 3) == pytest.approx(giga, abs=0.001)


def test_multiply_adds_and_batch_norms_of_resnet_50_equal_those_of_fvcore() -> None:
    fvcore = pytest.importorskip("fvcore.nn", reason="the oracle needs fvcore: pip install 'roofmodel[torch]'")
    pytest.importorskip("transformers", reason="the oracle needs transformers: pip install 'roofmodel[dev]'")
    import torch

    from tests import oracle

    entry = hub.packaged("microsoft/resnet-50")
    assert entry is not None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # fvcore uses torch.jit.trace, which is deprecated
        analysis = fvcore.FlopCountAnalysis(oracle.build(entry.config), torch.zeros(1, 3, 224, 224))
        fvcore_counts = analysis.unsupported_ops_warnings(False).uncalled_modules_warnings(False).by_operator()
    ours = operators(hub.load("microsoft/resnet-50"), step())
    assert fvcore_counts["conv"] + fvcore_counts["linear"] == sum(op.count * op.matmul_flops for op in ours) // 2
    norms = sum(op.count * op.vector_flops for op in ours if op.kind == "norm")
    assert fvcore_counts["batch_norm"] == norms  # both count scale and shift


def test_identical_layers_are_listed_once() -> None:
    found = {(op.name, op.layers) for op in operators(hub.load("resnet-50"), step()) if op.name == "stage3.spatial"}
    assert found == {("stage3.spatial", (7,)), ("stage3.spatial", (8, 9, 10, 11, 12))}  # after 3 + 4 blocks


@pytest.mark.parametrize("model", ["resnet-18", "convnext-tiny-224", "vit-base-patch16-224"])
def test_flops_are_linear_in_the_batch_and_weights_are_read_once(model: str) -> None:
    one, many = (estimated(model, batch=n).phases[0].cost for n in (1, 7))
    assert many.flops == 7 * one.flops
    assert many.bytes_written == 7 * one.bytes_written
    assert many.weight_bytes == one.weight_bytes


def test_an_image_that_is_too_small_is_refused() -> None:
    with pytest.raises(WorkloadError, match=r"the image is too small: 1 × 1 pixels .* 2 × 2; try a larger image"):
        estimated("convnext-tiny-224", image=7)
    with pytest.raises(WorkloadError, match="image=15 is smaller than one patch of 16 × 16 pixels"):
        estimated("vit-base-patch16-224", image=15)


def test_text_options_of_an_image_model_are_ignored_with_a_note() -> None:
    notes = " ".join([*map(str, estimated("resnet-18", seq=7, attention="eager").notes)])
    assert "seq is ignored: microsoft/resnet-18 reads images" in notes
    assert "attention is ignored" in notes
    assert "image is ignored: openai-community/gpt2 does not read images" in " ".join(
        [*map(str, estimated("gpt2", image=8).notes)]
    )


def test_positions_are_resized_to_an_image_of_another_size() -> None:
    default_size, larger = estimated("vit-base-patch16-224"), estimated("vit-base-patch16-224", image=384)
    assert "embedding.resize_positions" not in {p.operator.name for p in default_size.phases[0].placed}
    assert "embedding.resize_positions" in {p.operator.name for p in larger.phases[0].placed}
    assert any(
        "position embeddings of 224 × 224 pixels are interpolated to 384 × 384" in note
        for note in map(str, larger.notes)
    )
    assert default_size.parameters == larger.parameters
