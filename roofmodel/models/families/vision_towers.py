"""Vision towers of multimodal models, read from the whole config: a row per `model_type`, its projector, its images.

A tower is a vision transformer whose projector makes tokens of the text model from its patches. The processor decides
how many pixels the tower sees: it resizes an image or cuts it into tiles (`models/vision.py`).
"""

from __future__ import annotations

from collections.abc import Mapping
from math import isqrt
from typing import Any, NamedTuple

from roofmodel.models.architecture import Projector
from roofmodel.models.families import Family
from roofmodel.models.families.vision import VIT
from roofmodel.models.fields import FLAG, FULL, INDICES, SIZE, SLIDING, FieldType, key, pair
from roofmodel.models.layers import ACTIVATIONS, Norm

NUMBER = FieldType(lambda v: type(v) in (int, float) and v > 0, "a number above 0")
LAYERNORM, RMSNORM = Norm("layernorm"), Norm("rmsnorm", bias=False)
Fields = Mapping[str, Any]


class Tower(NamedTuple):
    """A row: the vision transformer with its projectors, and the rule of `models/vision.py` that resizes images."""

    family: Family
    resize: str


def vision(*names: str, **given: Any) -> Any:
    """The key of a field of the vision config."""
    return key(*(f"vision_config.{name}" for name in names), **given)


TEXT_WIDTH = (SIZE, key("text_config.hidden_size", "llm_config.hidden_size"))
ENCODER = VIT.like(
    "ViT",
    classes={"VisionModel": ()},
    hidden=vision("hidden_size"),
    layers=vision("num_hidden_layers"),
    heads=vision("num_attention_heads"),
    qkv_bias=True,
    mlp_width=vision("intermediate_size"),
    activation=vision("hidden_act", default="gelu"),
    image=vision("image_size", default=224, read=pair),
    patch=vision("patch_size", default=16, read=pair),
    channels=vision("num_channels", default=3),
    special_tokens=(),
    final_norm=False,
    dropout=0.0,
    attention_dropout=0.0,
    embedding_dropout=0.0,
    pooler_width=lambda f: f["hidden"],
    pooler_activation="tanh",
)


# --- Qwen-VL: any size, positions by rotary embedding -----------------------------------------------

QWEN_PATCH = dict(
    frames=(SIZE, vision("temporal_patch_size", default=2)),
    colors=(SIZE, vision("in_channels", "in_chans", default=3)),
    merge=(SIZE, vision("spatial_merge_size", default=2)),
)
QWEN2_VL = ENCODER.like(
    "Qwen2VL",
    switches=QWEN_PATCH
    | dict(ratio=(NUMBER, vision("mlp_ratio", default=4)), out=(SIZE, vision("hidden_size", default=3584))),
    hidden=vision("embed_dim", default=1280),
    layers=vision("depth", default=32),
    heads=vision("num_heads", default=16),
    rotary=1,
    fused_qkv=True,
    mlp_width=lambda f: int(f["hidden"] * f["ratio"]),
    activation=vision("hidden_act", default="quick_gelu"),
    channels=lambda f: f["frames"] * f["colors"],
    image=(1024, 1024),
    patch=vision("patch_size", default=14, read=pair),
    patch_bias=False,
    image_positions=False,
)


def _windows_but(f: Fields) -> list[str]:
    return [FULL if layer in f["full_layers"] else SLIDING for layer in range(f["layers"])]


QWEN2_5_VL = QWEN2_VL.like(
    "Qwen2_5_VL",
    switches=QWEN_PATCH
    | dict(
        full_layers=(INDICES, vision("fullatt_block_indexes", default=lambda f: [7, 15, 23, 31])),
        out=(SIZE, vision("out_hidden_size", default=3584)),
    ),
    hidden=vision("hidden_size", default=3584),
    mlp_width=vision("intermediate_size", default=3420),
    activation=vision("hidden_act", default="silu"),
    gated=True,
    norm="rmsnorm",
    image_window=vision("window_size", default=112),
    layer_types=_windows_but,
)


def _square_of_positions(f: Fields) -> tuple[int, int]:
    """The image whose patches have one row each of the table of positions."""
    side = isqrt(f["grid"])
    if side * side != f["grid"]:
        raise ValueError("must be the square of a whole number")
    return side * f["patch"][0], side * f["patch"][1]


QWEN3_VL = QWEN2_VL.like(
    "Qwen3VL",
    switches=QWEN_PATCH
    | dict(
        deep_layers=(INDICES, vision("deepstack_visual_indexes", default=lambda f: [8, 16, 24])),
        grid=(SIZE, vision("num_position_embeddings", default=2304)),
        out=(SIZE, vision("out_hidden_size", default=3584)),
    ),
    hidden=vision("hidden_size", default=1152),
    layers=vision("depth", default=27),
    mlp_width=vision("intermediate_size", default=4304),
    activation=vision("hidden_act", default="gelu_pytorch_tanh"),
    image=_square_of_positions,
    patch=vision("patch_size", default=16, read=pair),
    patch_bias=True,
    image_positions=True,
)
QWEN3_5 = QWEN3_VL.like(
    "Qwen3_5", switches={name: each for name, each in QWEN3_VL.switches.items() if name != "deep_layers"}
)


def _merger(f: Fields, norm: Norm, after_merge: bool = False) -> Projector:
    merged = f["hidden"] * f["merge"] ** 2
    return Projector(((merged, True, "gelu"), (f["out"], True, None)), f["merge"], False, norm, after_merge)


def _deep_mergers(f: Fields) -> tuple[Projector, ...]:
    """The merger, and one for each layer whose output is added to a layer of the text model."""
    return _merger(f, LAYERNORM), *(_merger(f, LAYERNORM, after_merge=True) for _ in f["deep_layers"])


# --- Towers with position tables, and Pixtral -------------------------------------------------------

GEMMA3 = ENCODER.like(
    "Gemma3",
    switches=dict(out=TEXT_WIDTH, image_tokens=(SIZE, key("mm_tokens_per_image", default=256))),
    activation=vision("hidden_act", default="gelu_pytorch_tanh"),
    final_norm=True,
)


def _pooled(f: Fields) -> tuple[Projector, ...]:
    merge = f["image"][0] // f["patch"][0] // isqrt(f["image_tokens"])
    return (Projector(((f["out"], False, None),), merge, True, RMSNORM),)


PIXTRAL = ENCODER.like(
    "Mistral3",
    switches=dict(
        out=TEXT_WIDTH,
        merge=(SIZE, key("spatial_merge_size", default=2)),
        projector_bias=(FLAG, key("multimodal_projector_bias", default=False)),
        between=(FieldType(lambda v: v in ACTIVATIONS, "an activation"), key("projector_hidden_act", default="gelu")),
        feature_layer=(FieldType(lambda v: v == -1, "-1"), key("vision_feature_layer", default=-1)),
    ),
    hidden=vision("hidden_size", default=1024),
    layers=vision("num_hidden_layers", default=24),
    heads=vision("num_attention_heads", default=16),
    qkv_bias=False,
    out_bias=False,
    rotary=1,
    norm="rmsnorm",
    mlp_width=vision("intermediate_size", default=4096),
    mlp_bias=False,
    gated=True,
    image=vision("image_size", default=1024, read=pair),
    patch=vision("patch_size", default=16, read=pair),
    patch_bias=False,
    patch_norm=True,
    image_positions=False,
)


def _pixtral_projector(f: Fields) -> tuple[Projector, ...]:
    text, bias = f["out"], f["projector_bias"]
    matrices = (f["hidden"], False, None), (text, bias, ACTIVATIONS[f["between"]]), (text, bias, None)
    return (Projector(matrices, f["merge"], False, RMSNORM),)


INTERNVL = ENCODER.like(
    "InternVL",
    switches=dict(
        out=TEXT_WIDTH,
        ratio=(NUMBER, key("downsample_ratio", default=0.5)),
        between=(FieldType(lambda v: v in ACTIVATIONS, "an activation"), key("projector_hidden_act", default="gelu")),
    ),
    hidden=vision("hidden_size", default=1024),
    layers=vision("num_hidden_layers", default=24),
    heads=vision("num_attention_heads", default=16),
    qkv_bias=vision("attention_bias", default=False),
    qk_norm=vision("use_qk_norm", default=False),
    qk_norm_gains="each",
    qk_norm_bias=False,  # an RMS norm in any case
    norm=vision("norm_type", default="layernorm", read=lambda word: str(word).replace("_", "")),
    mlp_width=vision("intermediate_size", default=4096),
    image=vision("image_size", default=(448, 448), read=pair),
    patch=vision("patch_size", default=(14, 14), read=pair),
    image_positions=vision("use_absolute_position_embeddings", default=True),
    special_tokens=("class",),
    block_scale=True,
    final_norm=vision("use_mean_pooling", default=True, read=lambda flag: not flag if flag in (0, 1) else flag),
    # the final norm is a layer norm in any case, which has a bias
    unused_parameters=lambda f: f["hidden"] if f["final_norm"] and f["norm"] == "rmsnorm" else 0,
)


def _internvl_projector(f: Fields) -> tuple[Projector, ...]:
    matrices = (f["out"], True, ACTIVATIONS[f["between"]]), (f["out"], True, None)
    return (Projector(matrices, int(1 / f["ratio"]), False, LAYERNORM, norm_after_merge=True),)


LLAMA4 = ENCODER.like(
    "Llama4",
    switches=dict(
        out=TEXT_WIDTH,
        ratio=(NUMBER, vision("pixel_shuffle_ratio", default=0.5)),
        middle=(SIZE, vision("projector_input_dim", default=4096)),
        end=(SIZE, vision("projector_output_dim", default=4096)),
    ),
    hidden=vision("hidden_size", default=768),
    layers=vision("num_hidden_layers", default=34),
    heads=vision("num_attention_heads", default=16),
    rotary=1,
    activation="gelu",
    mlp_width=vision("intermediate_size", default=5632),
    image=vision("image_size", default=448, read=pair),
    patch=vision("patch_size", default=14, read=pair),
    patch_bias=False,
    patch_norm=True,
    special_tokens=("class",),
    final_norm=True,
)


def _llama4_projector(f: Fields) -> tuple[Projector, ...]:
    matrices = (f["middle"], False, "gelu"), (f["end"], False, "gelu"), (f["out"], False, None)
    return (Projector(matrices, int(1 / f["ratio"])),)


TOWERS: dict[str, Tower] = {
    "qwen2_vl": Tower(QWEN2_VL._replace(projectors=lambda f: (_merger(f, LAYERNORM),)), "qwen2"),
    "qwen2_5_vl": Tower(QWEN2_5_VL._replace(projectors=lambda f: (_merger(f, RMSNORM),)), "qwen2"),
    "qwen3_vl": Tower(QWEN3_VL._replace(projectors=_deep_mergers), "qwen3"),
    "qwen3_vl_moe": Tower(QWEN3_VL._replace(projectors=_deep_mergers), "qwen3"),
    "qwen3_5": Tower(QWEN3_5._replace(projectors=lambda f: (_merger(f, LAYERNORM),)), "qwen3"),
    "qwen3_5_moe": Tower(QWEN3_5._replace(projectors=lambda f: (_merger(f, LAYERNORM),)), "qwen3"),
    "gemma3": Tower(GEMMA3._replace(projectors=_pooled), "fixed"),
    "mistral3": Tower(PIXTRAL._replace(projectors=_pixtral_projector), "longest"),
    "mistral_large4": Tower(PIXTRAL._replace(projectors=_pixtral_projector), "longest"),
    "internvl": Tower(INTERNVL._replace(projectors=_internvl_projector), "aspect_tiles"),
    "llama4": Tower(LLAMA4._replace(projectors=_llama4_projector), "canvas_tiles"),
}
"""Vision towers by the `model_type` of the multimodal config."""
