"""The Python function of `roof count`."""

from __future__ import annotations

from collections.abc import Iterable

from roofmodel.count.report import CountReport
from roofmodel.devices.device import Device, Hardware
from roofmodel.options import values
from roofmodel.options.signature import checked
from roofmodel.options.values import ComputeFormat, Optimizer


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
        optimizer: Optimizer whose state the training memory includes.

    Examples:
        >>> count("torch.nn:Linear", ["8,784"])  # doctest: +SKIP
    """
    from roofmodel.count.count import count as study

    device = None if hw is None else Device.load(hw)
    return CountReport(study(target, values.words("inputs", inputs), dtype, device, optimizer))
