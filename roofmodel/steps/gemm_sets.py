"""Notes on the parameter sets of GEMMs, where the kernels of another framework are expected to be much faster."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from roofmodel.counting.workload import Host
from roofmodel.devices.device import Device
from roofmodel.errors import AnswerNote
from roofmodel.numbers.algebra import plain
from roofmodel.steps.phase import PhaseEstimate, timed
from roofmodel.steps.placed import Placed, sum_of
from roofmodel.timing.eager import as_executed
from roofmodel.timing.timing import CONVOLUTION_LIBRARY, kernel_parameters

MIN_RATIO = 1.3
"""Least ratio of the expected times with the set used and with the fastest one for which there is a note. Sets have
mean errors of up to 18 %, so that smaller differences say little."""
VLLM_LINEAR = "torch.nn.functional.linear"
"""The name of vLLM's 16-bit GEMMs in aiconfigurator's tables; `roof measure` calls those of PyTorch `torch_linear`."""
ALL_FRAMEWORKS = "any"
"""The set that is fitted to the rows of all frameworks: no framework's kernels are an alternative to it."""


def gemm_set_notes(device: Device, host: Host, found: Sequence[PhaseEstimate]) -> Iterator[AnswerNote]:
    """The framework whose GEMM parameters each phase uses, where those of another one are much faster.

    Compares the times of all GEMMs of a phase that use the same set, with the sets for the same formats.
    """
    for phase in found:
        for (used, key), indices in _gemms_by_set(device, host, phase).items():
            seconds = _seconds(phase, indices)
            others = [
                (_seconds(timed(phase, with_gemm_set(device, name, key), host), indices), name)
                for name in _alternatives(device, used, key)
            ]
            if others and seconds > MIN_RATIO * min(others)[0]:
                (fastest, name), (compute, stored) = min(others), key.split("/")
                weights = f" with {stored} weights" if stored != compute else ""
                yield AnswerNote(
                    f"{compute} GEMMs{weights} of {phase.step.phase} use the parameters of {describe_set(used)}; "
                    f"with those of {describe_set(name)}, they take {fastest / seconds:.2g} times as long"
                )


def describe_set(implementation: str) -> str:
    """A set of GEMM parameters by framework, if it is known, and kernel: `TensorRT-LLM (torch_flow)`."""
    if implementation.startswith("sglang"):
        framework = "SGLang"
    elif implementation.startswith(("torch_flow", "trt_flow", "deepgemm")):
        framework = "TensorRT-LLM"
    elif implementation.startswith("vllm") or implementation.endswith("Kernel") or implementation == VLLM_LINEAR:
        framework = "vLLM"  # its sets have the names of its classes and functions
    else:
        return implementation  # a kernel of the user's own table
    return f"{framework} ({implementation})"


def with_gemm_set(device: Device, implementation: str, key: str) -> Device:
    """The calibrated device, with the GEMM parameters of this implementation as the only ones for a format key."""
    assert device.calibration is not None
    gemms = {
        name: {form: fitted for form, fitted in by_key.items() if form != key or name == implementation}
        for name, by_key in device.calibration.gemm.items()
    }
    return replace(device, calibration=device.calibration._replace(gemm=gemms))


def _alternatives(device: Device, used: str, key: str) -> list[str]:
    """The implementations with other parameters for the same formats."""
    assert device.calibration is not None
    return [
        name for name, by_key in device.calibration.gemm.items()
        if key in by_key and name not in (used, CONVOLUTION_LIBRARY)
    ]  # fmt: skip


def _gemms_by_set(device: Device, host: Host, phase: PhaseEstimate) -> dict[tuple[str, str], list[int]]:
    """The positions of a phase's GEMMs by implementation and format key of the set that they use.

    Without the sets of other formats, which have a note of their own (`notes.format_notes`).
    """
    found: dict[tuple[str, str], list[int]] = {}
    if device.calibration is None or phase.expected is None:
        return found
    for index, one in enumerate(phase.placed):
        if one.operator.collective is None and one.operator.kind != "conv":
            operator = as_executed(one.operator, host.runtime)
            kind, _, chosen = kernel_parameters(operator, device.calibration, phase.step.widths.compute)
            if kind == "gemm" and chosen and not chosen.is_substitute and chosen.implementation != ALL_FRAMEWORKS:
                found.setdefault((chosen.implementation, chosen.format_key), []).append(index)
    return found


def _seconds(phase: PhaseEstimate, indices: Sequence[int]) -> float:
    """The expected time of these operators, all of which have one."""
    operators: list[Placed] = [phase.placed[index] for index in indices]
    total = sum_of(operators)
    assert total is not None
    return float(plain(total.value))
