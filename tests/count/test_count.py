"""`roof count`: any torch module as operators."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from roofmodel.errors import WorkloadError

torch = pytest.importorskip("torch", reason="roof count needs torch: pip install 'roofmodel[dev]'")

from roofmodel.count.command import CountReport  # noqa: E402
from roofmodel.count.count import Count, count  # noqa: E402
from roofmodel.devices.device import Device  # noqa: E402
from tests.printing import printed  # noqa: E402

EXAMPLE = Path(__file__).parents[2] / "examples" / "mnist_summary.py"

CODE = """
import torch
from torch import nn
class Mine(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(8, 32)
        self.table = nn.Embedding(10, 8)
    def forward(self, ids):
        return torch.special.i0(self.up(self.table(ids)))
class Slip(Mine):
    def forward(self, ids):
        return self.up(ids)
def text():
    return "no module"
def wide():
    return nn.Linear(64, 256)
class Unprintable(Exception):
    def __str__(self):
        raise RuntimeError("no text")
def raises():
    raise Unprintable
class Loud(nn.Linear):
    def forward(self, x):
        print("forward")
        return super().forward(x)
def loud():
    print("factory")
    return Loud(64, 256)
class Attention(nn.Module):
    def forward(self, x):
        return nn.functional.scaled_dot_product_attention(x, x, x, is_causal=True)
class Cross(nn.Module):
    def forward(self, q, kv):
        return nn.functional.scaled_dot_product_attention(q, kv, kv, enable_gqa=True)
class Encoder(nn.MultiheadAttention):
    def __init__(self):
        super().__init__(64, 4, batch_first=True)
    def forward(self, x):
        return super().forward(x, x, x, need_weights=False)[0]
class Rotation(nn.Module):
    def forward(self, x):
        return (x + 0j) @ (x + 0j)
print("import")
"""


@pytest.fixture
def code(tmp_path: Path) -> Path:
    file = tmp_path / "user_code_for_count.py"
    file.write_text(CODE)
    return file


def test_counts_of_a_linear_layer_equal_those_derived_by_hand(code: Path) -> None:
    counted = count(f"{code}:wide", ["4x64"], "fp16", Device.load("v100"))
    (op,) = counted.operators
    assert op.cost.matmul_flops == 2 * 4 * 64 * 256
    assert op.cost.bytes_read == 2 * (4 * 64 + 64 * 256 + 256)  # x, W, b
    assert op.cost.bytes_written == 2 * 4 * 256
    assert op.placement is not None
    assert op.placement.bound == "memory"
    assert counted.parameters == 64 * 256 + 256


def test_an_exception_whose_text_cannot_be_printed_is_named(code: Path) -> None:
    with pytest.raises(WorkloadError, match=r"raises: Unprintable: \(its message cannot be printed\) at "):
        count(f"{code}:raises", ["4x64"])


def test_what_the_users_code_prints_does_not_precede_the_document(
    code: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    count(f"{code}:loud", ["4x64"])
    out, err = capsys.readouterr()
    assert out == ""
    assert "factory\n" in err
    assert "forward\n" in err


def test_an_operator_without_a_formula_is_uncounted_and_not_zero(code: Path) -> None:
    counted = count(f"{code}:Mine", ["int:2x3"], "fp32")
    assert [op.operator for op in counted.operators] == ["embedding", "addmm", "i0"]
    assert counted.uncounted == {"i0": 1}
    op = CountReport(counted).to_dict()["ops"][-1]
    assert op["vector_flops"] is None
    assert op["bytes_written"] == 4 * 2 * 3 * 32
    assert CountReport(counted).text("csv").splitlines()[-1].split(",")[3:5] == ["", ""]


def test_the_summary_of_the_lectures_network_for_mnist_is_reproduced() -> None:
    counted = count(f"{EXAMPLE}:Net", ["1x1x28x28"])
    assert [layer.parameters for layer in counted.layers] == [260, 5020, 0, 16050, 510]
    assert [layer.shape for layer in counted.layers] == [
        (1, 10, 24, 24), (1, 20, 8, 8), (1, 20, 8, 8), (1, 50), (1, 10),
    ]  # fmt: skip
    assert counted.parameters == 21_840
    assert not counted.uncounted
    text = subprocess.run([sys.executable, str(EXAMPLE)], capture_output=True, text=True, check=True).stdout
    for line in ("forward/backward pass: 0.06 MiB", "parameters: 0.08 MiB", "total: 0.15 MiB"):
        assert line in text


VGG16 = """
from torch import nn
def make():
    layers, width = [], 3
    for size in (64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512, 0, 512, 512, 512, 0):
        layers += [nn.Conv2d(width, size, 3, padding=1), nn.ReLU()] if size else [nn.MaxPool2d(2)]
        width = size or width
    head = [nn.Linear(512 * 49, 4096), nn.ReLU(), nn.Dropout(), nn.Linear(4096, 4096), nn.ReLU(), nn.Dropout()]
    return nn.Sequential(nn.Sequential(*layers), nn.Flatten(), nn.Sequential(*head, nn.Linear(4096, 1000)))
"""


def test_the_summary_of_vgg16_is_that_of_torchsummary(tmp_path: Path) -> None:
    (tmp_path / "vgg16.py").write_text(VGG16)
    counted = count(f"{tmp_path / 'vgg16.py'}:make", ["1x3x224x224"], "fp32")
    flatten = next(module for module in counted.modules if module.kind == "Flatten")  # a view in torchvision's class
    text = printed(
        CountReport(counted._replace(modules=tuple(m for m in counted.modules if m != flatten))).summary(), 100
    )
    text = re.sub(" +", " ", text)
    # the README of sksq96/pytorch-summary
    for line in (
        "Conv2d-1 [-1, 64, 224, 224] 1 792", "MaxPool2d-5 [-1, 64, 112, 112] 0", "Linear-32 [-1, 4096] 102 764 544",
        "parameters: 138 357 544, trainable 138 357 544, not trainable 0",
        "input: 0.57 MiB", "forward/backward pass: 218.59 MiB", "parameters: 527.79 MiB", "total: 746.96 MiB",
    ):  # fmt: skip
        assert line in text


def test_sorted_operators_have_the_largest_intensity_first() -> None:
    counted = count(f"{EXAMPLE}:Net", ["1x1x28x28"])
    lines = printed(CountReport(counted).table(sort="intensity"), 120).splitlines()
    # conv2 has 640 000 FLOPs for 15.5 kB, conv1 288 000 for 13.6 kB, the first linear layer 32 000 for 32.8 kB
    names = ["convolution conv2", "convolution conv1", "_log_softmax", "addmm fc1"]
    assert [line[:20].strip() for line in lines[4:8]] == names


def test_counts_of_resnet_50_from_torch_equal_those_from_its_config(tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason="the oracle needs transformers: pip install 'roofmodel[dev]'")
    from roofmodel.counting.blocks import operators
    from roofmodel.counting.workload import Workload
    from roofmodel.models import hub

    file = tmp_path / "resnet_for_count.py"
    file.write_text(
        "from transformers import ResNetConfig, ResNetForImageClassification\n"
        "def make():\n    return ResNetForImageClassification(ResNetConfig(num_labels=1000))\n"
    )
    from_torch: Count = count(f"{file}:make", ["2x3x224x224"], "fp16")
    step = Workload(("forward",), 2, 0, image=(224, 224)).steps()[0]
    from_config = operators(hub.load("microsoft/resnet-50"), step)
    assert not from_torch.uncounted
    assert from_torch.cost.matmul_flops == sum(op.total.matmul_flops for op in from_config)
    convolutions = sum(op.cost.bytes_written for op in from_torch.operators if op.operator == "convolution")
    assert convolutions == sum(op.total.bytes_written for op in from_config if op.kind == "conv")
    if from_torch.fvcore is not None:
        assert from_torch.fvcore > from_torch.cost.matmul_flops // 2


@pytest.mark.parametrize(
    ("target", "inputs", "message"),
    [
        ("{}:Nothing", ["1"], "has no 'Nothing'"),
        ("{}:text", ["1"], "returns a str, not a torch module"),
        ("{}:Slip", ["int:1x2"], r"Slip on int:1x2: RuntimeError: .* at .*user_code_for_count.py:13"),
        ("{}:wide", ["4x65"], "wide on 4x65: RuntimeError"),
        ("{}:wide", ["4xx"], "input is '4xx': not a shape; try 1x3x224x224"),
        (
            "torch.nn:Linear",
            ["8x16"],
            r"needs arguments \(in_features, out_features\); give a function without arguments",
        ),
        ("{}", ["1"], "is not MODULE:FACTORY"),
        ("./nothing_here.py:make", ["1"], "no such file"),
        ("no_such_package_at_all:make", ["1"], "ModuleNotFoundError"),
    ],
)
def test_errors_are_one_line(code: Path, target: str, inputs: list[str], message: str) -> None:
    with pytest.raises(WorkloadError, match=message) as caught:
        count(target.format(code), inputs)
    assert "\n" not in str(caught.value)


def test_fused_attention_is_one_operator_that_reads_queries_keys_and_values(code: Path) -> None:
    """4 x 16 heads, 4096 tokens, size 128, below the diagonal; a100_sxm_attn_context.csv has 1.64 ms for this shape."""
    found = count(f"{code}:Attention", ["4x16x4096x128"], device=Device.load("a100")).operators
    (one,) = found
    assert one.operator == "scaled_dot_product_attention"
    assert one.cost.matmul_flops == 2 * 2 * (4 * 16) * (4096 * 4097 // 2) * 128
    assert one.cost.bytes == 4 * (2 * 4 * 16 * 4096 * 128)
    assert one.placement
    assert 0.85e-3 < one.placement.bound_seconds < 0.9e-3


def test_fused_attention_of_grouped_heads_counts_query_heads_and_reads_key_value_heads(code: Path) -> None:
    (one,) = count(f"{code}:Cross", ["2x8x16x64", "2x2x128x64"]).operators
    assert one.cost.matmul_flops == 2 * 2 * (2 * 8) * (16 * 128) * 64
    assert one.cost.bytes == 2 * (2 * (2 * 8 * 16 * 64) + 2 * (2 * 2 * 128 * 64))


def test_fused_attention_inside_a_module_of_torch_is_one_operator(code: Path) -> None:
    found = [one for one in count(f"{code}:Encoder", ["2x32x64"]).operators if one.cost.matmul_flops]
    fused = [one for one in found if one.operator == "scaled_dot_product_attention"]
    assert [one.cost.matmul_flops for one in fused] == [2 * 2 * (2 * 4) * (32 * 32) * 16]
    assert sum(one.cost.matmul_flops for one in found) - fused[0].cost.matmul_flops == 2 * 2 * 32 * 64 * 4 * 64


def test_a_complex_matmul_is_four_real_ones(code: Path) -> None:
    (one,) = [one for one in count(f"{code}:Rotation", ["64x64"]).operators if one.cost.matmul_flops]
    assert one.cost.matmul_flops == 4 * 2 * 64**3


def test_operators_that_fvcore_does_not_count_have_no_count_of_zero() -> None:
    counted = count(f"{EXAMPLE}:Net", ["1x1x28x28"])._replace(fvcore=0)
    shown = printed(CountReport(counted).table(), 200)
    assert "in GEMMs and convolutions; fvcore does not count these operators" in shown
