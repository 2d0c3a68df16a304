"""mLSTM by hand (xLSTM)."""

from __future__ import annotations

from typing import Any

import pytest

from roofmodel.counting.blocks import operators
from roofmodel.counting.operator import Operator
from roofmodel.counting.passes import kv_cache_bytes, parameters
from roofmodel.counting.workload import Workload
from roofmodel.devices.device import Device
from roofmodel.errors import ModelError
from roofmodel.models.config import architecture
from roofmodel.steps.estimate import estimate

D, HEADS, H, V, F, CHUNK = 32, 2, 8, 16, 64, 4
CONFIG: dict[str, Any] = {
    "model_type": "xlstm", "hidden_size": D, "num_hidden_layers": 2, "num_heads": HEADS, "vocab_size": 50,
    "ffn_proj_factor": 1.5, "chunk_size": CHUNK,
}  # fmt: skip


def count(config: dict[str, Any], attention: Any, **options: Any) -> dict[str, Operator]:
    work = Workload(attention=attention, logits="all", **options)
    return {op.name: op for op in operators(architecture(config, "x", "x"), work.steps()[0])}


def test_fused_matrices_have_the_same_parameters() -> None:
    single, fused = (architecture(CONFIG | {"weight_mode": mode}, "x", "x") for mode in ("single", "fused"))
    sizes = [parameters(arch, operators(arch, Workload(("forward",)).steps()[0])) for arch in (single, fused)]
    assert sizes[0] == sizes[1]
    names = {
        name for name in count(CONFIG | {"weight_mode": "fused"}, "flash", phases=("forward",)) if "linear." in name
    }
    assert names == {f"linear.{name}" for name in ("qkv", "gates", "scan", "norm", "output")}


def test_the_cache_has_a_state_a_normalizer_and_an_exponent_per_head() -> None:
    expected = 2 * 2 * 3 * HEADS * (H * V + H + 1)  # fp16, two layers, three sequences
    for context in (1, 1000):
        step = Workload(("decode",), 3, context=context).steps()[0]
        assert kv_cache_bytes(architecture(CONFIG, "x", "x"), step) == expected
    decode = count(CONFIG, "flash", phases=("decode",), batch=3, context=9)
    assert decode["linear.scan"].cost.cache_bytes == 3 * 2 * HEADS * (H * V + H + 1)  # read; of one layer


def test_a_fused_scan_computes_the_causal_pairs_of_a_chunk_and_the_reference_code_its_squares() -> None:
    tokens = 10  # two chunks of 4 tokens and a rest of 2
    states = 2 * tokens * HEADS * (2 * H * V + H)  # added to the state, read from it, the normalizer
    flash, eager = (count(CONFIG, kind, phases=("prefill",), seq=tokens) for kind in ("flash", "eager"))
    assert flash["linear.scan"].matmul_flops == states + 2 * (2 * 10 + 3) * HEADS * (H + V)
    squares = sum(eager[f"linear.{name}"].matmul_flops for name in ("scores", "mix"))
    assert squares == 2 * 2 * CHUNK**2 * HEADS * (H + V)  # the rest is computed token by token


def test_two_gpus_have_half_of_the_heads() -> None:
    device = Device.load("h100")
    one, two = (
        {p.operator.name: p.operator for p in estimate(architecture(CONFIG, "x", "x"), device, tp=tp).phases[0].placed}
        for tp in (1, 2)
    )
    for name in ("linear.q", "linear.write", "linear.scan", "linear.output"):
        assert 2 * two[name].matmul_flops == one[name].matmul_flops, name


def test_heads_that_do_not_divide_the_channels_are_an_error() -> None:
    with pytest.raises(ModelError, match="16 channels are not divisible by 3 heads"):
        architecture(CONFIG | {"num_heads": 3}, "x", "x")
