"""`roof explore` and `roofmodel.explore`: a page with sliders for models and devices."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roofmodel.devices.device import Device, Hardware
from roofmodel.options import values
from roofmodel.options.signature import checked
from roofmodel.options.values import Model, ProgressCallback, no_progress
from roofmodel.report.base import Result
from roofmodel.report.command import CommandCall, CommandLine
from roofmodel.report.document import Document
from roofmodel.report.printing import save

if TYPE_CHECKING:
    from roofmodel.steps.estimate import Estimate


class ExplorePage(Result):
    """Result of `explore`: one HTML page with sliders and all data inside.

    Other files have the numbers of `estimate` without options.
    """

    def __init__(self, html: str, estimates: Sequence[Estimate]) -> None:
        self.html = html
        self.estimates = estimates

    def answer(self) -> Document:
        """The estimates of all models on all devices; the page is a program of its own."""
        from roofmodel.explore.answer import document

        return document(self.estimates)

    def _write(self, form: str, file: Path) -> None:
        if form == "html":
            file.write_text(self.html + "\n", encoding="utf-8")
        else:
            super()._write(form, file)

    def __rich__(self) -> str:
        return repr(self)

    def __repr__(self) -> str:
        names = dict.fromkeys(estimate.architecture.name for estimate in self.estimates)
        return f"<ExplorePage of {', '.join(names)}>"


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
    from roofmodel.steps.estimate import estimate

    architectures = [hub.load(model, family) for model in values.as_sequence(models)]
    devices = [Device.load(device) for device in values.as_sequence(hw)]
    page = html(architectures, devices, progress)
    return ExplorePage(page, [estimate(architecture, device) for architecture in architectures for device in devices])


def _save(call: CommandCall, form: Any, output: Sequence[str]) -> None:
    from roofmodel.report import printing

    with printing.derivation_progress() as callback:
        page = call(progress=callback)
    save(page, output)


COMMAND = CommandLine(
    explore,
    formats=(),
    files=".html (the page, with all data) .json .csv .md (the estimates without options)",
    settings={"models": {"metavar": "MODEL…"}},
    run=_save,
    examples=(
        "roof explore gpt2-xl -o gpt2-xl.html",
        "roof explore llama-3.1-8b mixtral-8x7b-v0.1 --hw h100,h200 -o models.html",
        "roof explore ./config.json --family llama -o own.html",
    ),
)
