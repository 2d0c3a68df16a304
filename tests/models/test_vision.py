"""Vision towers: operators and parameters of the real classes; images as the real processors cut and resize them."""

from __future__ import annotations

import importlib
import random
import sys
import zlib
from typing import Any
from unittest.mock import MagicMock

import pytest

from roofmodel.counting.blocks import operators
from roofmodel.counting.passes import parameters
from roofmodel.counting.workload import Workload
from roofmodel.errors import ModelError, WorkloadError
from roofmodel.models.families.multimodal import COMPOSITES
from roofmodel.models.families.vision_towers import TOWERS
from roofmodel.models.vision import VisionTower, vision_tower

torch = pytest.importorskip("torch", reason="the oracle needs torch: pip install 'roofmodel[dev]'")
transformers = pytest.importorskip("transformers", reason="the oracle needs transformers: pip install 'roofmodel[dev]'")

PATCH = 4
TEXT = {
    "hidden_size": 48, "num_hidden_layers": 1, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 60,
    "intermediate_size": 8, "head_dim": 12, "pad_token_id": 1, "bos_token_id": 1, "eos_token_id": 1,
}  # fmt: skip
QWEN = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl", "qwen3_vl_moe", "qwen3_5", "qwen3_5_moe")


def draw(model_type: str, rng: random.Random) -> dict[str, Any]:
    """A small random config with all switches of the tower."""
    heads, layers = rng.choice([2, 4]), rng.randint(1, 3)
    hidden, width = heads * 4 * rng.randint(1, 3), rng.randint(3, 40)
    flag = rng.random() < 0.5
    usual = {
        "num_hidden_layers": layers, "hidden_size": hidden, "num_attention_heads": heads, "intermediate_size": width,
        "patch_size": PATCH, "image_size": 32,
    }  # fmt: skip
    qwen = {"depth": layers, "hidden_size": hidden, "num_heads": heads, "patch_size": PATCH, "out_hidden_size": 48}
    qwen |= {"intermediate_size": width, "temporal_patch_size": rng.choice([1, 2]), "in_channels": rng.choice([1, 3])}
    some_layers = [layer for layer in range(layers) if rng.random() < 0.5]
    qwen3 = qwen | {"deepstack_visual_indexes": some_layers, "num_position_embeddings": 36}
    towers: dict[str, dict[str, Any]] = {
        "qwen2_vl": qwen | {"embed_dim": hidden, "hidden_size": 48, "mlp_ratio": rng.choice([2, 4])},
        "qwen2_5_vl": qwen | {"window_size": rng.choice([16, 24]), "fullatt_block_indexes": some_layers},
        "qwen3_vl": qwen3,
        "qwen3_vl_moe": qwen3,
        "qwen3_5": qwen | {"num_position_embeddings": 36},
        "qwen3_5_moe": qwen | {"num_position_embeddings": 36},
        "gemma3": usual | {"model_type": "siglip_vision_model", "vision_use_head": False},
        "mistral3": usual | {"model_type": "pixtral"},
        "mistral_large4": usual | {"model_type": "pixtral"},
        "internvl": usual
        | {
            "model_type": "internvl_vision", "attention_bias": flag, "use_qk_norm": rng.random() < 0.5,
            "norm_type": rng.choice(["layer_norm", "rms_norm"]), "use_mean_pooling": rng.random() < 0.5,
            "patch_size": [PATCH, PATCH], "image_size": [32, 32],
        },
        "llama4": usual
        | {
            "model_type": "llama4_vision_model", "intermediate_size": 4 * hidden, "projector_input_dim": 24,
            "projector_output_dim": 24, "vision_output_dim": 24,
        },
    }  # fmt: skip
    outer: dict[str, dict[str, Any]] = {
        "gemma3": {"mm_tokens_per_image": rng.choice([4, 16])},
        "mistral3": {"multimodal_projector_bias": flag, "projector_hidden_act": rng.choice(["gelu", "silu"])},
    }
    text = {**TEXT, "model_type": COMPOSITES[model_type].text}
    return {"model_type": model_type, "text_config": text, "vision_config": towers[model_type]} | outer.get(
        model_type, {}
    )


def real(config: dict[str, Any]) -> Any:
    own = {key: value for key, value in config.items() if key != "model_type"}
    settings = transformers.AutoConfig.for_model(config["model_type"], **own)
    return transformers.AutoModelForImageTextToText.from_config(settings, attn_implementation="eager")


def real_parts(model_type: str, model: Any) -> list[Any]:
    """The modules that make tokens of the text model from an image."""
    inner = getattr(model, "model", model)
    if model_type in QWEN:
        return [inner.visual]
    return [model.vision_model if model_type == "llama4" else inner.vision_tower, inner.multi_modal_projector]


def real_flops(model_type: str, model: Any, batch: int, pixels: tuple[int, int], channels: int, frames: int) -> int:
    from torch.utils.flop_counter import FlopCounterMode

    inner, (rows, columns) = getattr(model, "model", model), pixels
    images = torch.zeros(batch, 3, rows, columns)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        if model_type in QWEN:
            grid = rows // PATCH, columns // PATCH
            patches = torch.zeros(batch * grid[0] * grid[1], channels * frames * PATCH**2)
            inner.get_image_features(patches, torch.tensor([[1, *grid]] * batch))
        elif model_type.startswith("mistral"):
            inner.get_image_features(images, image_sizes=torch.tensor([pixels] * batch))
        elif model_type == "llama4":
            features = model.get_image_features(images).last_hidden_state
            inner.multi_modal_projector(features)
        else:
            inner.get_image_features(images)
    return int(counter.get_total_flops())


@pytest.mark.parametrize("model_type", TOWERS)
@pytest.mark.parametrize("number", range(3))
def test_parameters_and_flops_of_a_tower_equal_those_of_the_real_classes(model_type: str, number: int) -> None:
    rng = random.Random(zlib.crc32(f"{model_type} {number}".encode()))
    config = draw(model_type, rng)
    model, tower = real(config), vision_tower(config, "drawn", "config.json")
    own = config["vision_config"]
    own_size: Any = tower.architecture.image
    any_size = 8 * rng.randint(1, 6), 8 * rng.randint(1, 6)
    pixels = any_size if model_type in (*QWEN, "mistral3", "mistral_large4") else own_size
    # Pixtral's class attends to all images at once, and masks pairs of different ones.
    batch = 1 if model_type.startswith("mistral") else rng.randint(1, 3)
    work = Workload(("vision",), batch, tower.architecture.stack.embedding.tokens(pixels), image=pixels)  # type: ignore[union-attr]
    counted = operators(tower.architecture, work._replace(attention="eager").steps()[0])
    assert parameters(tower.architecture, counted) == sum(
        each.numel() for part in real_parts(model_type, model) for each in part.parameters()
    )
    channels, frames = own.get("in_channels", 3), own.get("temporal_patch_size", 2)
    assert sum(op.total.matmul_flops for op in counted) == real_flops(
        model_type, model, batch, pixels, channels, frames
    )


@pytest.mark.parametrize(
    "model_type", sorted(TOWERS.keys() - {"gemma3", "qwen3_vl_moe", "qwen3_5_moe", "mistral_large4"})
)
def test_defaults_of_a_tower_equal_those_of_the_real_classes(model_type: str) -> None:
    """Checkpoints of Gemma 3 use no default; those of Llama 4's sizes contradict each other."""
    text = {**TEXT, "model_type": COMPOSITES[model_type].text}
    of_llama4 = {"intermediate_size": 4 * 768, "vision_output_dim": 4096}
    kind = {"mistral3": {"model_type": "pixtral"}, "llama4": of_llama4}.get(model_type, {})
    config: dict[str, Any] = {"model_type": model_type, "text_config": text, "vision_config": kind}
    with torch.device("meta"):
        model = real(config)
    arch = vision_tower(config, "default", "config.json").architecture
    counted = operators(arch, Workload(("vision",), 1, 1, image=arch.image or (0, 0)).steps()[0])
    assert parameters(arch, counted) == sum(
        each.numel() for part in real_parts(model_type, model) for each in part.parameters()
    )


def tower_of(model_type: str, patch: int, image: int, **outer: Any) -> VisionTower:
    """A tower with these pixels of a patch and of an image."""
    config = draw(model_type, random.Random(1)) | outer
    config["vision_config"] |= {"patch_size": patch, "image_size": image}
    return vision_tower(config, "drawn", "config.json")


def sizes(count: int) -> list[tuple[int, int]]:
    rng = random.Random(7)
    some = [(rng.randint(20, 3000), rng.randint(20, 3000)) for _ in range(count)]
    return [*some, (448, 448), (336, 336), (1540, 1540), (28, 28), (1024, 768), (10000, 9000), (60, 6000)]


@pytest.mark.parametrize(
    ("model_type", "patch", "least", "most"), [("qwen2_5_vl", 14, 3136, 12845056), ("qwen3_vl", 16, 65536, 16777216)]
)
def test_qwen_resizes_as_its_processor_does(model_type: str, patch: int, least: int, most: int) -> None:
    from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import smart_resize

    tower = tower_of(model_type, patch, 32)
    for pixels in sizes(60):
        rows, columns = smart_resize(*pixels, factor=2 * patch, min_pixels=least, max_pixels=most)
        assert tower.tiles(pixels) == ((rows, columns), 1, rows * columns // (2 * patch) ** 2)
    with pytest.raises(WorkloadError, match="200 ×"):
        tower.tiles((10, 2001))


def test_pixtral_resizes_as_its_processor_does_and_ends_each_row_with_a_token() -> None:
    import numpy as np
    from transformers.models.pixtral.image_processing_pil_pixtral import get_resize_output_image_size

    tower = tower_of("mistral3", 14, 1540)
    for pixels in sizes(30):
        rows, columns = get_resize_output_image_size(
            np.broadcast_to(np.zeros((1, 1, 3)), (*pixels, 3)), size=(1540, 1540), patch_size=(28, 28)
        )
        assert tower.tiles(pixels) == ((rows, columns), 1, rows // 28 * (columns // 28 + 1))


def test_internvl_cuts_an_image_as_its_processor_does() -> None:
    from transformers.models.got_ocr2.image_processing_pil_got_ocr2 import get_optimal_tiled_canvas

    tower = tower_of("internvl", 14, 448)
    for pixels in sizes(60):
        columns, rows = get_optimal_tiled_canvas(pixels, (448, 448), 1, 12)
        tiles = columns * rows + (columns * rows > 1)  # and a thumbnail
        assert tower.tiles(pixels) == ((448, 448), tiles, 2 + 256 * tiles)


def test_llama_4_cuts_an_image_as_its_processor_does(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("torchvision", "torchvision.transforms", "torchvision.transforms.v2"):
        monkeypatch.setitem(sys.modules, name, MagicMock(__spec__=MagicMock()))  # the functions here do not use it
    module = importlib.import_module("transformers.models.llama4.image_processing_llama4")
    processor = importlib.import_module("transformers.models.llama4.processing_llama4").Llama4Processor
    tower = tower_of("llama4", 14, 336)
    side = transformers.image_utils.SizeDict(height=336, width=336)
    grids = torch.tensor(module.find_supported_resolutions(16, side))
    for pixels in sizes(60):
        rows, columns = (int(length) // 336 for length in module.get_best_fit(pixels, grids))
        written = processor._prompt_split_image(None, (rows, columns), 144)
        tiles = rows * columns + (rows * columns > 1)
        assert tower.tiles(pixels) == ((336, 336), tiles, written.count("<"))


def test_gemma_3_makes_the_same_tokens_of_every_image() -> None:
    tower = tower_of("gemma3", 14, 896, mm_tokens_per_image=256)
    assert {tower.tiles(pixels) for pixels in sizes(5)} == {((896, 896), 1, 256)}


def test_a_config_without_a_supported_tower_says_so() -> None:
    with pytest.raises(ModelError, match="the vision tower of molmo2 is not supported; those of qwen2_vl, "):
        vision_tower({"model_type": "molmo2", "vision_config": {}}, "drawn", "config.json")
    with pytest.raises(ModelError, match="lacks 'vision_config'"):
        vision_tower({"model_type": "qwen3_vl"}, "drawn", "config.json")
