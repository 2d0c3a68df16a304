"""`roof crossover` and `roofmodel.crossover`: the size at which another ceiling limits an operator or a phase."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Unpack

from roofmodel.devices.device import Device, Hardware
from roofmodel.explain.command import operator_of
from roofmodel.options.signature import checked, lists_options
from roofmodel.options.values import CrossoverSize, Model
from roofmodel.report.base import PICTURES, Derivation, Result
from roofmodel.report.command import CommandLine
from roofmodel.report.document import Document

if TYPE_CHECKING:
    from roofmodel.explain.crossover import Crossover
    from roofmodel.options.keywords import WorkloadOptions


class CrossoverReport(Derivation):
    """Result of `crossover`: a text with formulas, and a picture of the times under the ceilings."""

    FILES: ClassVar[Sequence[str]] = (*PICTURES, *Result.FILES, "tex")

    def __init__(self, document: Document, crossover: Crossover) -> None:
        super().__init__(document)
        self.crossover = crossover


@checked
@lists_options
def crossover(
    model: Model,
    hw: Hardware,
    *,
    over: CrossoverSize | None = None,
    op: str | None = None,
    explain: bool = False,
    family: str | None = None,
    **workload: Unpack[WorkloadOptions],
) -> CrossoverReport:
    """Compute the size at which another ceiling limits an operator or a phase, with the equation.

    `.to_dict()` has the first such size under `value`, or None. Raises RoofError.

    Args:
        model: A model, as for estimate, or a kernel: matmul, matmul-accumulate, saxpy, triad, stencil7,
            stencil7-uncached, spmv, fft, nbody.
        hw: A packaged device (see 'roof hw list') or a YAML file.
        over: Size that varies; seq only in prefill, context only in decode (default: batch; n for a kernel).
        op: One operator, such as attention.qkv, or a group, such as mlp (default: the whole phase).
        explain: Also derive the result and list the assumptions.
        family: Read an unknown model_type as this family, such as llama.
        **workload: The options of `estimate`.

    Examples:
        >>> crossover("matmul", "a100").to_dict()["value"]
        460
    """
    from roofmodel.explain.crossover import crossover as study
    from roofmodel.explain.crossover_answer import document, explained

    crossing = study(
        model, Device.load(hw), over=over, op=operator_of(op), family=family, derive=explain, **workload
    )  # fmt: skip
    draw = partial(_draw, crossing)
    return CrossoverReport(document(crossing, explained(crossing) if explain else (), draw), crossing)


def _draw(crossing: Crossover, path: Path, form: str) -> None:
    from roofmodel.explain.crossover_picture import draw

    draw(crossing, path, form)


COMMAND = CommandLine(
    crossover,
    examples=(
        "roof crossover gpt2-xl --hw a100 --phase decode",
        "roof crossover llama-3.1-8b --hw h100 --op attention.qkv --over seq --phase prefill --explain",
        "roof crossover matmul --hw v100 --dtype fp32 -o crossover.png",
    ),
)
