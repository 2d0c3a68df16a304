"""The Python function of `roof explore`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from roofmodel.devices.device import Hardware
from roofmodel.explore.report import ExplorePage
from roofmodel.options import arguments
from roofmodel.options.arguments import Model, ProgressCallback, no_progress

if TYPE_CHECKING:
    pass


def explore(
    models: Model | Iterable[Model],
    hw: Hardware | Iterable[Hardware] = ("a100", "h100", "v100", "rtx4090"),
    *,
    family: str | None = None,
    progress: ProgressCallback = no_progress,
) -> ExplorePage:
    """A page with sliders: operators move on the roofline, with their formulas and their current numbers.

    The page offers all models and devices. It takes some seconds per model. `progress` is called with a model's name,
    the number of its derived variants, and the number of all its variants. Raises RoofError.

    Examples:
        >>> explore("gpt2", "a100").save("gpt2.html")  # doctest: +SKIP
    """
    from roofmodel.explore.page import html

    architectures = [arguments.architecture(model, family) for model in arguments.as_sequence(models)]
    page = html(architectures, [arguments.device(device) for device in arguments.as_sequence(hw)], progress)
    return ExplorePage(page, [architecture.name for architecture in architectures])
