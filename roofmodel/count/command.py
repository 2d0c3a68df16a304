"""`roof count` and `roofmodel.count`: FLOPs, bytes and training memory of any torch module."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from roofmodel.devices.device import Device, Hardware
from roofmodel.options import values
from roofmodel.options.signature import checked
from roofmodel.options.values import ComputeFormat, OperatorValue, Optimizer, check_one_of
from roofmodel.report.base import Result
from roofmodel.report.command import CommandLine
from roofmodel.report.document import Document

if TYPE_CHECKING:
    from roofmodel.count.count import Count


class CountReport(Result):
    """Result of `count`: the operators of a torch module."""

    def __init__(self, count: Count) -> None:
        self.count = count

    def answer(self, *, summary: bool = False, sort: OperatorValue | None = None) -> Document:
        """The operators in their order, with the module that calls them.

        Args:
            summary: Print layers, output shapes and parameters, as torchsummary.
            sort: Largest first.
        """
        from roofmodel.count import answer

        if sort is not None:
            check_one_of("sort", sort, answer.SORTABLE)
        return answer.summary(self.count) if summary else answer.document(self.count, sort)

    def summary(self) -> Any:
        """Layers, output shapes, parameters and sizes, as torchsummary prints them; renders with rich."""
        return self.table(summary=True)

    def __repr__(self) -> str:
        return f"<CountReport of {self.count.name}: {len(self.count.operators)} operators>"


@checked
def count(
    target: str,
    inputs: Iterable[str],
    *,
    hw: Hardware | None = None,
    dtype: ComputeFormat = "fp16",
    optimizer: Optimizer = "adam",
) -> CountReport:
    """Count FLOPs and bytes of each operator of a torch module, and its training memory (needs torch).

    `.to_dict()["memory"]` has the bytes of a training step with the optimizer: weights, gradients, optimizer state, and
    the activations that autograd keeps for the backward pass. Raises RoofError.

    Args:
        target: A class or function that returns a module: torchvision.models:resnet50 or ./my.py:make.
        inputs: Shape of an input: 1x3x224x224, or int:1x1024 for integers; repeat for each input.
        hw: Also print the bound of each operator on this device.
        dtype: Format of all floating-point tensors.
        optimizer: Optimizer whose state the training memory includes: adam, adam8bit, momentum or sgd.

    Examples:
        >>> count("torch.nn:Linear", ["8,784"])  # doctest: +SKIP
    """
    from roofmodel.count.count import count as study

    device = None if hw is None else Device.load(hw)
    return CountReport(study(target, values.words("inputs", inputs), dtype, device, optimizer))


COMMAND = CommandLine(
    count,
    settings={
        "target": {"metavar": "MODULE:FACTORY"},
        "inputs": {"flags": ("--input",)},
        "sort": {"metavar": "intensity|flops|bytes"},
    },
    examples=(
        "roof count torchvision.models:resnet50 --input 1x3x224x224",
        "roof count ./my.py:make --input int:1x1024 --hw a100 --sort intensity",
        "roof count ./my.py:make --input 1x3x224x224 --dtype fp32 --summary",
        "roof count torchvision.models:vit_b_16 --input 8x3x224x224 --dtype bf16 --format csv",
    ),
)
