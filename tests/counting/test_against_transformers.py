"""Exactness: for every family, parameters and matmul FLOPs equal those of the real class.

Each family is drawn as small random configs with its switches in all positions; every head that the
family has is built. The expected values come from the model itself, never from this package.
"""

from __future__ import annotations

import random
import zlib
from typing import Any

import pytest

from roofmodel.counting.blocks import operators
from roofmodel.counting.memory import parameters
from roofmodel.counting.workload import Workload
from roofmodel.models.config import architecture
from roofmodel.models.families import FAMILIES

torch = pytest.importorskip("torch", reason="the oracle needs torch: pip install 'roofmodel[dev]'")
pytest.importorskip("transformers", reason="the oracle needs transformers: pip install 'roofmodel[dev]'")

from tests import oracle  # noqa: E402

DRAWS = 4
WINDOWS = ["full_attention", "sliding_attention"]


def _sizes(rng: random.Random) -> dict[str, int]:
    heads = rng.choice([1, 2, 3, 4, 6])
    kv_heads = rng.choice([k for k in (1, 2, 3, 4, 6) if heads % k == 0])
    head_dim = 2 * rng.randint(2, 8)
    return {
        "heads": heads,
        "kv_heads": kv_heads,
        "head_dim": head_dim,
        "hidden": heads * head_dim,
        "layers": rng.randint(1, 4),
        "vocabulary": rng.randint(20, 200),
        "width": rng.randint(5, 90),
        "positions": rng.choice([40, 48, 64]),
    }


def draw_config(model_type: str, rng: random.Random) -> dict[str, Any]:
    """A random config of a family, its switches included, by the keys of its real config.json."""
    z, flag = _sizes(rng), lambda: rng.random() < 0.5
    usual = {
        "model_type": model_type,
        "vocab_size": z["vocabulary"],
        "hidden_size": z["hidden"],
        "num_hidden_layers": z["layers"],
        "num_attention_heads": z["heads"],
        "tie_word_embeddings": flag(),
        "pad_token_id": 1,
        "num_labels": rng.choice([2, 3, 7]),
    }
    llama = usual | {
        "num_key_value_heads": z["kv_heads"],
        "intermediate_size": z["width"],
        "max_position_embeddings": z["positions"],
    }
    match model_type:
        case "gpt2":
            del usual["hidden_size"], usual["num_hidden_layers"], usual["num_attention_heads"]
            usual |= {"n_embd": z["hidden"], "n_layer": z["layers"], "n_head": z["heads"]}
            return usual | {
                "n_positions": z["positions"],
                "n_inner": rng.choice([None, z["width"]]),
                "activation_function": rng.choice(["gelu_new", "relu", "silu"]),
                "reorder_and_upcast_attn": flag(),
            }
        case "opt":
            return usual | {
                "ffn_dim": z["width"],
                "max_position_embeddings": z["positions"],
                "word_embed_proj_dim": rng.choice([z["hidden"], 10, 24]),
                "do_layer_norm_before": flag(),
                "enable_bias": flag(),
                "layer_norm_elementwise_affine": flag(),
                "_remove_final_layer_norm": flag(),
            }
        case "llama":
            # transformers 5 insists that heads divide the hidden size even where head_dim is given
            return llama | {
                "attention_bias": flag(),
                "mlp_bias": flag(),
                "head_dim": rng.choice([z["head_dim"], z["head_dim"] + 2]),
            }
        case "mistral":
            return llama | {
                "sliding_window": rng.choice([None, 4, 8, 16, 64]),
                "head_dim": rng.choice([z["head_dim"], z["head_dim"] + 2]),
            }
        case "qwen2":
            slides = flag()
            return llama | {
                "use_sliding_window": slides,
                "sliding_window": rng.choice([4, 8, 16, 64]),
                "max_window_layers": rng.randint(0, z["layers"]),
                # switched off, the real class fails on a type that slides
                "layer_types": rng.choice([None, [rng.choice(WINDOWS[: 1 + slides]) for _ in range(z["layers"])]]),
            }
        case "gpt_neox":
            return usual | {
                "intermediate_size": z["width"],
                "max_position_embeddings": z["positions"],
                "rotary_pct": rng.choice([0.25, 0.5, 1.0]),
                "use_parallel_residual": flag(),
                "attention_bias": flag(),
            }
        case "bloom":
            return usual
        case "bert" | "roberta":
            return usual | {
                "intermediate_size": z["width"],
                "max_position_embeddings": z["positions"] + 2,
                "type_vocab_size": rng.choice([1, 2, 4]),
                "hidden_act": rng.choice(["gelu", "relu", "gelu_new"]),
            }
        case "distilbert":
            del usual["hidden_size"], usual["num_hidden_layers"], usual["num_attention_heads"]
            usual |= {"dim": z["hidden"], "n_layers": z["layers"], "n_heads": z["heads"]}
            return usual | {
                "hidden_dim": z["width"],
                "max_position_embeddings": z["positions"],
                "sinusoidal_pos_embds": flag(),
            }
    raise NotImplementedError(f"no draw for {model_type}: a new family needs one here")


CASES = [
    pytest.param(model_type, suffix, draw, id=f"{model_type}-{suffix}-{draw}")
    for model_type, family in FAMILIES.items()
    for suffix in family.classes
    for draw in range(DRAWS)
]


@pytest.mark.parametrize(("model_type", "suffix", "draw"), CASES)
def test_parameters_and_flops_equal_those_of_the_real_class(model_type: str, suffix: str, draw: int) -> None:
    rng = random.Random(zlib.crc32(f"{model_type} {suffix} {draw}".encode()))
    config = draw_config(model_type, rng)
    if suffix == "ForQuestionAnswering":
        config["num_labels"] = 2  # a start and an end; encoders' classes fail on any other number
    config["architectures"] = [FAMILIES[model_type].prefix + suffix]
    model = oracle.build(config)
    batch, tokens, context = rng.randint(1, 3), rng.randint(1, 20), rng.randint(1, 20)
    # The config as transformers itself would save it is the second reading of the same model.
    for reading in (config, model.config.to_dict() | {"architectures": config["architectures"]}):
        arch = architecture(reading, "drawn", "config.json")
        counted = operators(arch, Workload(("forward",)).steps()[0])
        assert parameters(arch, counted) == oracle.parameters(model)

        def flops(phase: Any, context: int | None = None, arch: Any = arch) -> int:
            work = Workload((phase,), batch, tokens, context, attention="eager", logits="all")
            return sum(op.total.matmul_flops for op in operators(arch, work.steps()[0]))

        assert flops("forward") == oracle.matmul_flops(model, batch, tokens)
        if arch.causal:
            assert flops("prefill") == oracle.matmul_flops(model, batch, tokens)
        if arch.causal and oracle.takes_a_cache(model):
            assert flops("prefill", context) == oracle.matmul_flops(model, batch, tokens, context)
            assert flops("decode", context) == oracle.matmul_flops(model, batch, 1, context)
