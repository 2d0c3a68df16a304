"""Default dropout of configs without dropout keys, compared with transformers' classes."""

from __future__ import annotations

from typing import Any

import pytest
from transformers import CONFIG_MAPPING

from roofmodel.errors import ModelError
from roofmodel.models.config import architecture
from roofmodel.models.families import FAMILIES

ROWS = (
    "hidden_dropout_prob", "hidden_dropout", "resid_pdrop", "resid_dropout", "residual_dropout", "dropout",
    "dropout_rate", "mlp_dropout",
)  # fmt: skip
PROBABILITIES = ("attention_probs_dropout_prob", "attention_dropout", "attn_pdrop", "dropout_rate")


def read(config: dict[str, Any], name: str) -> tuple[bool, bool]:
    try:
        dropout = architecture(config, name, name).code.dropout
        return dropout.probabilities, dropout.block_output or dropout.attention_output
    except ModelError as error:
        pytest.skip(f"not applicable: the class's own config is not supported: {error}")


@pytest.mark.parametrize("name", sorted(set(FAMILIES) & set(CONFIG_MAPPING)))
def test_a_config_without_dropout_has_the_default_of_its_class(name: str) -> None:
    config = CONFIG_MAPPING[name]().to_dict() | {"architectures": None, "model_type": name}
    without_dropout = {key: value for key, value in config.items() if "drop" not in key}
    rows = PROBABILITIES if name == "emu3_text_model" else ROWS  # its layers use attention's key for all dropout
    expected = tuple(any(config.get(key) for key in keys) for keys in (PROBABILITIES, rows))
    assert read(config, name) == expected
    assert read(without_dropout, name) == expected


@pytest.mark.parametrize("key", ["embedding_dropout", "mlp_dropout", "attention_dropout"])
def test_null_is_no_dropout_in_modernbert(key: str) -> None:
    config = {"model_type": "modernbert", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    assert not any(architecture(config | {"vocab_size": 64, key: None}, "x", "x").code.dropout)
