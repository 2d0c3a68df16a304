"""The images of a multimodal model: the pass of its vision tower, and the tokens that they add to a prompt."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from roofmodel.errors import Message, Option, Text, WorkloadError
from roofmodel.models.architecture import Architecture
from roofmodel.models.vision import Pixels, Tiles, VisionTower, text, vision_tower
from roofmodel.numbers.algebra import Number
from roofmodel.options.values import pixels_of
from roofmodel.options.workload import Options, valid


class PromptImages(NamedTuple):
    """The images of a prompt, all of the same size."""

    count: Number
    pixels: Pixels
    each: Tiles

    @property
    def tokens(self) -> Number:
        """Tokens that the images add to a prompt."""
        return self.count * self.each.tokens

    def described(self) -> str:
        """`2 images of 1024x768 pixels, each resized to 1036x756: 999 tokens each`."""
        many, tiles, size = self.count != 1, self.each.tiles, text(self.each.pixels)
        made = f"cut into {tiles} tiles of {size}" if tiles > 1 else f"resized to {size}"
        made = made if tiles > 1 or self.each.pixels != self.pixels else "not resized"
        each = "each " if many else ""
        return (
            f"{self.count} image{'s' * many} of {text(self.pixels)} pixels, {each}{made}: "
            f"{self.each.tokens} tokens{' each' * many}"
        )

    def note(self, seq: Number) -> Text:
        """What the images add to a prompt of `seq` tokens, them included."""
        return Message(
            f"the prompt has {seq} tokens: {seq - self.tokens} of text, and {self.described()}; ",
            Option("phase", "vision"), " is the pass of the vision tower",
        )  # fmt: skip


def prompt_images(arch: Architecture, options: Options) -> PromptImages:
    """The images of each prompt. Raises ModelError for a tower that is not supported."""
    tower = _tower(arch)
    return _images(tower, options.images or 1, options.image)


def _tower(arch: Architecture) -> VisionTower:
    if arch.vision is None:
        raise WorkloadError(
            Option("phase", "vision"), f": the config of {arch.name} has no vision tower (vision_config)"
        )
    return vision_tower(*arch.vision)


def _images(tower: VisionTower, count: Number, image: Any) -> PromptImages:
    pixels: Any = pixels_of(image) if image else tower.architecture.image
    return PromptImages(count, pixels, tower.tiles(pixels))


def tower_workload(
    arch: Architecture, options: Mapping[str, Any]
) -> tuple[Architecture, dict[str, Any], tuple[Text, ...]]:
    """The vision tower of a model, the options of its pass over the images of a batch of prompts, and a note.

    The tower reads the tiles of all images as one batch. Raises WorkloadError for a model without a tower.
    """
    tower = _tower(arch)
    given = {name: valid(name, value) for name in ("batch", "images", "image") if (value := options.get(name))}
    images = _images(tower, given.get("images", 1), given.get("image"))
    batch = given.get("batch", 1) * images.count * images.each.tiles
    others = {name: value for name, value in options.items() if name != "images"}
    options = {**others, "batch": batch, "image": valid("image", text(images.each.pixels))}
    return tower.architecture, options, (images.described(),)
