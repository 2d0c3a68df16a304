"""Vision families: transformers over patches, and convolutional networks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from roofmodel.models.architecture import HeadStage, Network
from roofmodel.models.convolutional import (
    Activation,
    Convolution,
    PixelStep,
    Pool,
    Residual,
    ResponseNorm,
    Scale,
    Stage,
)
from roofmodel.models.families import IMAGE_CLASSES, Family
from roofmodel.models.fields import FLAG, SIDES, SIZE, FieldType, key, pair, same_dropout
from roofmodel.models.layers import ACTIVATIONS, Norm

BLOCK = FieldType(lambda v: v in ("basic", "bottleneck"), "basic or bottleneck")
VIT = Family(
    "ViT",
    classes={
        "ForImageClassification": (IMAGE_CLASSES,),
        "Model": (HeadStage("pooler", "pooler", "first", activation="pooler_activation"),),
    },
    encoder=True,
    fields=dict(
        hidden=key("hidden_size"),
        layers=key("num_hidden_layers"),
        heads=key("num_attention_heads"),
        vocabulary=None,
        qkv_bias=key("qkv_bias", default=True),
        out_bias=True,
        mlp_width=key("intermediate_size", default=3072),
        mlp_bias=True,
        activation=key("hidden_act", default="gelu"),
        image=key("image_size", default=224, read=pair),
        patch=key("patch_size", default=16, read=pair),
        channels=key("num_channels", default=3),
        special_tokens=("class",),
        pooler_width=key("pooler_output_size", default=lambda f: f["hidden"]),
        pooler_activation=key("pooler_act", default="tanh"),
        tied=False,
        embedding_dropout=same_dropout,
    ),
)
# The output is the mean of both heads: 2 FLOPs per class, not counted.
DISTILLED = (
    IMAGE_CLASSES._replace(name="class_classifier"),
    IMAGE_CLASSES._replace(name="distillation_classifier", input_from_layers=True),
)


# --- Convolutional networks -------------------------------------------------------------------------

BATCH, LAYER = Norm("batchnorm"), Norm("layernorm")
RELU = Activation("relu")
Fields = Mapping[str, Any]


def _convolution_and_norm(name: str, out: int, kernel: int = 1, stride: int = 1) -> tuple[PixelStep, ...]:
    """A convolution that keeps the size of the feature map, up to the stride, and its batch norm."""
    return Convolution(name, out, kernel, stride, padding=kernel // 2), BATCH


def _bottleneck(out: int, stride: int, early: bool) -> tuple[PixelStep, ...]:
    """A 1 × 1 convolution to a quarter of the channels, 3 × 3, and 1 × 1 back; if `early`, the first has the stride."""
    first, second = (stride, 1) if early else (1, stride)
    return (
        *_convolution_and_norm("reduce", out // 4, 1, first), RELU,
        *_convolution_and_norm("spatial", out // 4, 3, second), RELU,
        *_convolution_and_norm("expand", out),
    )  # fmt: skip


def _basic(out: int, stride: int, early: bool) -> tuple[PixelStep, ...]:
    return *_convolution_and_norm("first", out, 3, stride), RELU, *_convolution_and_norm("second", out, 3)


def resnet(fields: Fields) -> Network:
    """A ResNet (He et al., arXiv 1512.03385). If a block changes the shape, its shortcut is a convolution."""
    path = _bottleneck if fields["block"] == "bottleneck" else _basic
    activation = Activation(ACTIVATIONS[fields["activation"]])
    width, stages = fields["stem_width"], []
    for index, (out, depth) in enumerate(zip(fields["widths"], fields["depths"], strict=True)):
        stride = 2 if index or fields["downsample_first"] else 1
        blocks = []
        for _ in range(depth):
            shortcut = _convolution_and_norm("shortcut", out, 1, stride) if stride != 1 or width != out else ()
            blocks.append(Residual(path(out, stride, fields["downsample_early"]), shortcut, (activation,)))
            width, stride = out, 1
        stages.append(Stage(tuple(blocks)))
    stem = (*_convolution_and_norm("convolution", fields["stem_width"], 7, 2), activation, Pool(3, 2, 1))
    return Network(fields["image"], fields["channels"], stem, tuple(stages), width)


def convnext(fields: Fields) -> Network:
    """A ConvNeXt (Liu et al., arXiv 2201.03545), or a ConvNeXt V2 with a response norm (arXiv 2301.00808)."""
    activation = Activation(ACTIVATIONS[fields["activation"]])
    response = [ResponseNorm()] if fields["response_norm"] else []
    scale = [Scale()] if fields["layer_scale"] > 0 else []
    width, stages = fields["widths"][0], []
    for index, (out, depth) in enumerate(zip(fields["widths"], fields["depths"], strict=True)):
        path: tuple[PixelStep, ...] = (
            Convolution("depthwise", out, 7, padding=3, groups=out, bias=True), LAYER,
            Convolution("expand", 4 * out, bias=True), activation, *response,
            Convolution("reduce", out, bias=True), *scale,
        )  # fmt: skip
        stride = 2 if index else 1
        entry = (LAYER, Convolution("downsample", out, 2, stride, bias=True)) if index or width != out else ()
        stages.append(Stage((Residual(path),) * depth, entry))
        width = out
    first = fields["widths"][0]
    stem = (Convolution("patches", first, fields["patch"], fields["patch"], bias=True), LAYER)
    return Network(fields["image"], fields["channels"], stem, tuple(stages), width, final_norm=LAYER)


CONVNEXT = Family(
    "ConvNext",
    classes={"ForImageClassification": (IMAGE_CLASSES,), "Model": ()},
    encoder=True,
    network=convnext,
    switches=dict(
        stages=(SIZE, key("num_stages", "num_hidden_layers", default=4)),
        patch=(SIDES, key("patch_size", default=4, read=pair)),
    ),
    fields=dict(
        layer_scale=key("layer_scale_init_value", default=1e-6),
        widths=key("hidden_sizes"),
        depths=key("depths"),
        image=key("image_size", default=224, read=pair),
        activation=key("hidden_act", default="gelu"),
    ),
)

FAMILIES: dict[str, Family] = {
    "vit": VIT,
    "deit": VIT.like(
        "DeiT",
        classes={**VIT.classes, "ForImageClassificationWithTeacher": DISTILLED},
        special_tokens=("class", "distillation"),
    ),
    "resnet": Family(
        "ResNet",
        classes=CONVNEXT.classes,
        encoder=True,
        network=resnet,
        switches=dict(
            stem_width=(SIZE, key("embedding_size", default=64)),
            block=(BLOCK, key("layer_type", default="bottleneck")),
            downsample_first=(FLAG, key("downsample_in_first_stage", default=False)),
            downsample_early=(FLAG, key("downsample_in_bottleneck", default=False)),
        ),
        fields=dict(widths=key("hidden_sizes"), depths=key("depths"), activation=key("hidden_act", default="relu")),
    ),
    "convnext": CONVNEXT,
    "convnextv2": CONVNEXT.like("ConvNextV2", layer_scale=0, response_norm=True),
}
