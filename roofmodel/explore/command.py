"""`roof explore` and `roofmodel.explore`: a page with sliders for models and devices."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, ClassVar

from roofmodel.devices.device import Device, Hardware
from roofmodel.options import values
from roofmodel.options.signature import checked
from roofmodel.options.values import Model, ProgressCallback, no_progress
from roofmodel.report.base import Result
from roofmodel.report.command import CommandCall, CommandLine
from roofmodel.report.document import Document
from roofmodel.report.printing import save


class ExplorePage(Result):
    """Result of `explore`: one HTML page with sliders and all data inside."""

    FILES: ClassVar[Sequence[str]] = ("html",)
    FORMATS: ClassVar[Sequence[str]] = ()

    def __init__(self, html: str, names: Sequence[str]) -> None:
        self.html = html
        self.names = names

    def answer(self) -> Document:
        """What a notebook shows; the page is a program of its own."""
        return Document(repr(self), (), dict)

    def _write(self, form: str, file: Path) -> None:
        file.write_text(self.html + "\n", encoding="utf-8")

    def __repr__(self) -> str:
        return f"<ExplorePage of {', '.join(self.names)}>"


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


def _save(call: CommandCall, form: Any, output: Sequence[str]) -> None:
    from roofmodel.report import printing

    with printing.derivation_progress() as callback:
        page = call(progress=callback)
    save(page, output)


COMMAND = CommandLine(
    explore,
    formats=(),
    files=".html: one file that contains all data.",
    settings={"models": {"metavar": "MODEL…"}},
    run=_save,
    examples=(
        "roof explore gpt2-xl -o gpt2-xl.html",
        "roof explore llama-3.1-8b mixtral-8x7b-v0.1 --hw h100,h200 -o models.html",
        "roof explore ./config.json --family llama -o own.html",
    ),
)
