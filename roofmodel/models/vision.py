"""The vision tower of a multimodal model, and the images that its processor makes of an image of any size.

The rules are those of the processors in transformers 5.23, with the limits that the published checkpoints state in
their preprocessor_config.json.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import ceil, floor, sqrt
from typing import Any, NamedTuple

from roofmodel.errors import ModelError, Option, WorkloadError
from roofmodel.models.architecture import Architecture, Projector
from roofmodel.models.families.vision_towers import TOWERS
from roofmodel.models.fields import ConfigLocation

Pixels = tuple[int, int]
"""Rows and columns."""


class Tiles(NamedTuple):
    """What the tower reads of one image, and what the prompt gets of it."""

    pixels: Pixels  # of each tile
    tiles: int
    tokens: int  # of the prompt, for all tiles, with those between and around them that the processor adds


class VisionTower(NamedTuple):
    """The tower as an architecture that reads one tile, and how an image becomes tiles."""

    architecture: Architecture
    resize: str

    def tiles(self, pixels: Pixels) -> Tiles:
        """The tiles and tokens of an image.

        Raises WorkloadError for an image that the processor refuses, ModelError for a tower without tokens.
        """
        smallest = [patch * self.projector.merge for patch in self.patch]
        size: Any = self.architecture.image
        if 0 in smallest or any(side < least for side, least in zip(size, smallest, strict=True)):
            name, token = self.architecture.name, text((smallest[0], smallest[1]))
            raise ModelError(f"{name}: an image of {text(size)} pixels has no token of {token} pixels")
        return RULES[self.resize](self, pixels)

    @property
    def patch(self) -> Pixels:
        return self.architecture.stack.embedding.patch  # type: ignore[union-attr]

    @property
    def projector(self) -> Projector:
        return self.architecture.head.projectors[0]

    def tokens(self, pixels: Pixels) -> int:
        """The tokens that the projector makes of a tile."""
        rows, columns = (side // patch // self.projector.merge for side, patch in zip(pixels, self.patch, strict=True))
        return rows * columns


def vision_tower(config: Mapping[str, Any], name: str, where: str) -> VisionTower:
    """The tower of a multimodal config. Raises ModelError if its type is not supported, or if it has no such config."""
    from roofmodel.models.config import architecture_from_row

    model_type = str(config.get("model_type"))
    if model_type not in TOWERS:
        raise ModelError(
            f"{where}: the vision tower of {model_type} is not supported; those of {', '.join(TOWERS)} are"
        )
    if not isinstance(config.get("vision_config"), dict):
        raise ModelError(f"{where}: lacks 'vision_config', the config of the vision tower")
    row = TOWERS[model_type]
    further = ("quantization_config", "quantization", "architectures")
    own = {key: value for key, value in config.items() if key not in further}
    own["architectures"] = [f"{row.family.prefix}VisionModel"]
    tower = architecture_from_row(own, f"{name}, vision tower", ConfigLocation(where), model_type, row.family)
    return VisionTower(tower, row.resize)


# --- From an image to tiles -------------------------------------------------------------------------


def _resized(least: int, most: int) -> Callable[[VisionTower, Pixels], Tiles]:
    """Qwen-VL: both sides are multiples of a token's side, and the pixels are within limits (`smart_resize`)."""

    def rule(tower: VisionTower, pixels: Pixels) -> Tiles:
        side = tower.patch[0] * tower.projector.merge
        if max(pixels) > 200 * min(pixels):
            raise WorkloadError(
                Option("image", text(pixels)), ": one side is more than 200 × the other, which the processor refuses"
            )
        rows, columns = (round(length / side) * side for length in pixels)
        if rows * columns > most:
            factor = sqrt(pixels[0] * pixels[1] / most)
            rows, columns = (max(side, floor(length / factor / side) * side) for length in pixels)
        elif rows * columns < least:
            factor = sqrt(least / (pixels[0] * pixels[1]))
            rows, columns = (ceil(length * factor / side) * side for length in pixels)
        return Tiles((rows, columns), 1, tower.tokens((rows, columns)))

    return rule


def _fixed(tower: VisionTower, pixels: Pixels) -> Tiles:
    """Gemma 3: every image is resized to the tower's size."""
    size: Any = tower.architecture.image
    return Tiles(size, 1, tower.tokens(size))


def _longest_side(tower: VisionTower, pixels: Pixels) -> Tiles:
    """Pixtral: the longer side is at most the tower's size; a token more ends each row of tokens."""
    limits: Any = tower.architecture.image
    ratio = max(1.0, *(side / limit for side, limit in zip(pixels, limits, strict=True)))
    shrunk = pixels if ratio == 1 else [floor(side / ratio) for side in pixels]
    sides = [patch * tower.projector.merge for patch in tower.patch]
    rows, columns = ((length - 1) // side + 1 for length, side in zip(shrunk, sides, strict=True))
    return Tiles((rows * sides[0], columns * sides[1]), 1, rows * (columns + 1))


def _aspect_tiles(tower: VisionTower, pixels: Pixels) -> Tiles:
    """InternVL: 1 to 12 tiles, whose grid is the nearest to the image's aspect ratio, and a thumbnail of several.

    Of equally near grids, a larger one counts if the image has more than half of its pixels. Two tokens enclose the
    image.
    """
    tile: Any = tower.architecture.image
    grids = [(columns, rows) for columns in range(1, 13) for rows in range(1, 13) if columns * rows <= 12]
    best, nearest = (1, 1), float("inf")
    for columns, rows in sorted(grids, key=lambda grid: grid[0] * grid[1]):
        distance = abs(pixels[1] / pixels[0] - columns / rows)
        is_filled = pixels[0] * pixels[1] > 0.5 * tile[0] * tile[1] * columns * rows
        if distance < nearest or (distance == nearest and is_filled):
            best, nearest = (columns, rows), distance
    count = best[0] * best[1]
    tiles = count + (count > 1)
    return Tiles(tile, tiles, 2 + tiles * tower.tokens(tile))


def _canvas_tiles(tower: VisionTower, pixels: Pixels) -> Tiles:
    """Llama 4: 1 to 16 tiles, the grid that needs the least enlargement, or else the least reduction; and one tile of
    the whole image if there are several.

    Of grids with the same scale, the smallest is used. A token separates tiles, another one ends each row of tiles, and
    three enclose the whole image.
    """
    tile: Any = tower.architecture.image
    grids = [(rows, columns) for rows in range(1, 17) for columns in range(1, 17) if rows * columns <= 16]

    def order(grid: tuple[int, int]) -> tuple[bool, float, int]:
        scale = min(count * side / length for count, side, length in zip(grid, tile, pixels, strict=True))
        return scale < 1, scale if scale >= 1 else -scale, grid[0] * grid[1]

    rows, columns = min(grids, key=order)
    each = tower.tokens(tile)
    if rows * columns == 1:
        return Tiles(tile, 1, each + 3)
    return Tiles(tile, rows * columns + 1, (rows * columns + 1) * each + rows * columns + 3)


def text(pixels: Pixels) -> str:
    """`1024x768`: columns and rows of pixels."""
    return f"{pixels[1]}x{pixels[0]}"


RULES: dict[str, Callable[[VisionTower, Pixels], Tiles]] = {
    "qwen2": _resized(56 * 56, 12845056),
    "qwen3": _resized(65536, 16777216),
    "fixed": _fixed,
    "longest": _longest_side,
    "aspect_tiles": _aspect_tiles,
    "canvas_tiles": _canvas_tiles,
}
"""The rules of `families/vision_towers.py`."""
