"""The Python function of `roof explore`."""

from __future__ import annotations

from collections.abc import Iterable

from roofmodel.devices.device import Device, Hardware
from roofmodel.explore.report import ExplorePage
from roofmodel.options import values
from roofmodel.options.signature import checked
from roofmodel.options.values import Model, ProgressCallback, no_progress


@checked
def explore(
    models: Model | Iterable[Model],
    hw: Hardware | Iterable[Hardware] = ("a100", "h100", "v100", "rtx4090"),
    *,
    family: str | None = None,
    progress: ProgressCallback = no_progress,
) -> ExplorePage:
    """Write a web page with sliders that shows operators on the roofline, their formulas and numbers.

    It takes some seconds per model. Raises RoofError.

    Args:
        models: One or several models, as for estimate.
        hw: Devices: a100,h100, or `hw` several times (default: a100,h100,v100,rtx4090).
        family: Read an unknown model_type as this family, such as llama.
        progress: Called with a model's name, the number of its derived variants, and the number of all its variants.

    Examples:
        >>> explore("gpt2", "a100").save("gpt2.html")  # doctest: +SKIP
    """
    from roofmodel.explore.page import html
    from roofmodel.models import hub

    architectures = [hub.load(model, family) for model in values.as_sequence(models)]
    page = html(architectures, [Device.load(device) for device in values.as_sequence(hw)], progress)
    return ExplorePage(page, [architecture.name for architecture in architectures])
