"""The Python function of `roof count`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from roofmodel.count.report import CountReport
from roofmodel.devices.device import Hardware
from roofmodel.options import arguments

if TYPE_CHECKING:
    from roofmodel.options.values import (
        ComputeFormat,
        Optimizer,
    )


def count(
    target: str,
    inputs: Iterable[str],
    *,
    dtype: ComputeFormat = "fp16",
    hw: Hardware | None = None,
    optimizer: Optimizer = "adam",
) -> CountReport:
    """FLOPs and bytes of the operators of any torch module; with `hw` the bound of each. Needs torch.

    `.to_dict()["memory"]` has the bytes of a training step with the optimizer: weights, gradients, optimizer state, and
    the activations that autograd keeps for the backward pass.

    `target` is `MODULE:FACTORY`, as in "torchvision.models:resnet50" or "./my.py:make"; `inputs` are shapes such as
    "1x3x224x224" or "int:1x1024"; `dtype` the format of all floating-point tensors. Raises RoofError.

    Examples:
        >>> count("torch.nn:Linear", ["8,784"])  # doctest: +SKIP
    """
    from roofmodel.count.count import count as study

    arguments.check_required_texts(target=target, dtype=dtype, optimizer=optimizer)
    device = arguments.optional_device(hw)
    return CountReport(study(target, arguments.words("inputs", inputs), dtype, device, optimizer))
