"""Architectures described in YAML: counts equal those of the model's config; errors have file and line."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roofmodel.devices.device import Device
from roofmodel.errors import ModelError
from roofmodel.models import hub, yaml_description
from roofmodel.models.architecture import DROPOUT_FIELDS
from roofmodel.steps.estimate import estimate

EXAMPLES = Path(__file__).parents[2] / "examples" / "models"
DESCRIPTIONS = {
    "gemma-2-9b": """
        layers: 42
        hidden_size: 3584
        vocabulary: 256000
        max_tokens: 8192
        tied: true
        norm: rmsnorm
        norm_stands: both
        attention: {heads: 16, kv_heads: 8, head_dim: 256, window: 4096, full_every: 2}
        mlp: {width: 14336, activation: gelu_pytorch_tanh, gated: true}
        """,
    "deepseek-v3": """
        layers: 61
        hidden_size: 7168
        vocabulary: 129280
        max_tokens: 163840
        tied: false
        norm: rmsnorm
        attention: {heads: 128, latent: 512, query_latent: 1536, head_dim: 192, rotary_dim: 64, value_dim: 128}
        mlp: {width: 18432, activation: silu, gated: true}
        experts: {count: 256, active: 8, width: 2048, fused: true, shared_width: 2048, dense_first: 3}
        """,
    "phi-2": """
        layers: 32
        hidden_size: 2560
        vocabulary: 51200
        max_tokens: 2048
        tied: false
        norm: layernorm
        parallel: true
        parallel_norms: 1
        attention: {heads: 32, bias: true, rotary_dim: 32}
        mlp: {width: 10240, activation: gelu_new, bias: true}
        head_bias: true
        """,
    "bert-base-uncased": """
        causal: false
        head: masked language model
        layers: 12
        hidden_size: 768
        vocabulary: 30522
        max_tokens: 512
        positions: learned
        token_types: 2
        embedding_norm: true
        tied: true
        norm: layernorm
        norm_stands: sum
        attention: {heads: 12, bias: true}
        mlp: {width: 3072, activation: gelu, bias: true}
        """,
}
SMALL = """layers: 2
hidden_size: 8
vocabulary: 10
tied: true
norm: rmsnorm
attention:
  heads: 2
  kv_heads: 1
mlp:
  width: 12
  activation: silu
"""


def load(text: str, folder: Path, name: str = "my-model") -> Any:
    file = folder / f"{name}.yaml"
    file.write_text(text)
    return hub.load(file)


@pytest.mark.parametrize("name", [*DESCRIPTIONS, *(file.stem for file in EXAMPLES.glob("*.yaml"))])
def test_counts_of_a_description_equal_those_of_the_config_of_the_same_model(name: str, tmp_path: Path) -> None:
    described = (
        load(DESCRIPTIONS[name], tmp_path, name) if name in DESCRIPTIONS else hub.load(EXAMPLES / f"{name}.yaml")
    )
    config = hub.load({"mixtral-8x7b": "mixtral-8x7b-v0.1"}.get(name, name))
    facts = {field: fact for field, fact in config.facts.items() if field not in DROPOUT_FIELDS}
    config = replace(config, quantization=None, facts=facts)  # descriptions have neither
    device = Device.load("a100")
    for phase in (None, "train"):
        from_description, from_config = (
            estimate(arch, device, phase=phase, batch=2, seq=100) for arch in (described, config)
        )
        assert from_description.parameters == from_config.parameters
        assert from_description.memory == from_config.memory
        for first, second in zip(from_description.phases, from_config.phases, strict=True):
            assert [placed.operator for placed in first.placed] == [placed.operator for placed in second.placed]
    assert (described.max_tokens, described.notes) == (config.max_tokens, ())


@pytest.mark.parametrize(
    ("line", "replacement", "place", "expected"),
    [
        ("layers: 2", "layers: two", ":1: ", "'layers' is the text 'two'; it must be a whole number"),
        ("layers: 2", "layer: 2", ":1: ", "unknown key 'layer'; did you mean 'layers'"),
        ("vocabulary: 10", "", ": ", "the key 'vocabulary' (vocabulary size) is missing"),
        ("tied: true", "tied: 1", ":4: ", "'tied' is 1; it must be true or false"),
        ("norm: rmsnorm", "norm: batch", ":5: ", "it must be layernorm or rmsnorm"),
        ("  heads: 2", "", ":8: ", "the key 'attention.heads' (number of attention heads) is missing"),
        ("  heads: 2", "  heads: 3", ":7: ", "hidden_size 8 is not divisible by attention.heads 3"),
        ("  kv_heads: 1", "  kv_heads: 4", ":8: ", "attention.heads 2 is not divisible by attention.kv_heads 4"),
        ("  kv_heads: 1", "  window_size: 4", ":8: ", "unknown key 'window_size'; did you mean 'window'"),
        ("  kv_heads: 1", "  heads: 2", ":8: ", "duplicate key 'heads'"),
        ("  width: 12", "  width: [12]", ":10: ", "'mlp.width' is [12]"),
        ("  activation: silu", "  activation: swish2", ":11: ", "one of gelu, "),
        ("tied: true", "tied: true\nexperts: {count: 4}", ":5: ", "experts lacks the key 'active'"),
        ("tied: true", "tied: true\nhead: logits", ":5: ", "'head' is 'logits'; known: language model"),
        ("tied: true", "tied: true\nhead: [x]", ":5: ", "head must be text"),
        ("tied: true", "tied: true\npositions: learned", ": ", "lacks 'max_tokens'"),
        ("tied: true", "tied: true\npositions: rope", ":5: ", "rotary, learned, sinusoidal, alibi, relative or none"),
        ("tied: true", "tied: !!int x", ":4: ", "tied has a YAML tag that does not match its value"),
        ("tied: true", "tied: !!bool x", ":4: ", "tied has a YAML tag that does not match its value"),
        ("tied: true", "tied: !!timestamp x", ":4: ", "tied has a YAML tag that does not match its value"),
        ("tied: true", "tied: true\nexperts: 5", ":5: ", "experts must be a mapping"),
        ("mlp:", "mlp: {", ":11: ", "not YAML"),
    ],
)
def test_an_error_in_a_description_has_the_line(
    line: str, replacement: str, place: str, expected: str, tmp_path: Path
) -> None:
    assert line in SMALL
    with pytest.raises(ModelError) as caught:
        load(SMALL.replace(line + "\n", replacement + "\n"), tmp_path)
    assert str(caught.value).startswith(f"{tmp_path / 'my-model.yaml'}{place}")
    assert expected in str(caught.value)


def test_relative_positions_add_a_matrix_and_a_second_score_to_each_layer(tmp_path: Path) -> None:
    """Transformer-XL, arXiv 1901.02860: each query is multiplied by the keys of all distances as well."""
    plain, relative = (load(SMALL + f"positions: {name}\n", tmp_path, name) for name in ("none", "relative"))
    first, second = (
        estimate(arch, Device.load("a100"), phase="prefill", batch=3, seq=100) for arch in (plain, relative)
    )
    assert second.parameters - first.parameters == 2 * 8 * 8  # layers x hidden x hidden
    keys, scores = 2 * 100 * 8 * 8, 2 * 3 * 8 * 100 * 101 // 2  # one set of distances; causal pairs of 3 sequences
    added = second.phases[0].cost.matmul_flops - first.phases[0].cost.matmul_flops
    assert added == 2 * (keys + scores)  # two layers


def test_an_empty_or_missing_model_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="expected a model's YAML, got an empty file"):
        load("", tmp_path)
    with pytest.raises(ModelError, match="no such file"):
        hub.load(str(tmp_path / "none.yaml"))
    (tmp_path / "my-model.yaml").write_text(SMALL)
    with pytest.raises(ModelError, match="family"):
        hub.load(str(tmp_path / "my-model.yaml"), family="llama")


KEYS = sorted({name.strip(":") for name in SMALL.split() if name.endswith(":")} | yaml_description.keys()[""])
VALUES = st.sampled_from(["0", "-1", "1", "3", "true", "null", "x", "[]", "{}", "1.5", "2020-01-01", "{heads: 2}", "~"])


@settings(deadline=None, max_examples=200)
@given(key=st.sampled_from(KEYS), value=VALUES)
def test_any_value_for_any_key_is_counted_or_refused_with_its_line(tmp_path_factory: Any, key: str, value: str) -> None:
    other_lines = [line for line in SMALL.splitlines() if not line.startswith(f"{key}:")]
    try:
        load("\n".join([f"{key}: {value}", *other_lines]), tmp_path_factory.getbasetemp())
        outcome = "counted: my-model.yaml"
    except ModelError as error:
        outcome = str(error)
    assert "my-model.yaml" in outcome
