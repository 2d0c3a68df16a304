"""Findings about the kernels themselves: the memory format of images, and fp32 work that tensor cores could run.

Both are estimates on paper, from the times and the counted work of a rank's kernels. The test compares them with the
same training step of ResNet-50 measured in the three settings.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from roofmodel.devices.device import Device
from roofmodel.numbers import units
from roofmodel.trace.achieved import RankWork
from roofmodel.trace.ranks import Rank

SMALLEST = 0.05
"""Share of the wall time from which an estimate is a finding: a step varies by a few percent, see `findings.py`."""

_CONVERSION = re.compile(r"nchwToNhwc|nhwcToNchw")
# cuDNN's batch norms in NCHW (a mean per channel is a tensor of 1 × C × 1 × 1); those in NHWC are `batchnorm_*_nhwc_*`.
# Of fp32, cuDNN has no such kernels in NHWC.
_BATCH_NORM = re.compile(r"\bbn_(?P<kind>fw_inf|fw_tr|bw)\w*<\s*(?:__half|__nv_bfloat16)")
_PASSES = {"fw_inf": 1.0, "fw_tr": 3 / 2, "bw": 5 / 3}
"""Passes over memory of a batch norm / the counted ones. In training it reads its inputs once for the sums and once for
the result: x, x → y instead of x → y; and x, dy, x, dy → dx instead of x, dy → dx."""


def memory_format(rank: Rank, work: RankWork | None) -> tuple[float, str] | None:
    """Seconds that NHWC (channels_last) saves, and a text; None if they are less than 5 % of the wall time.

    The time of kernels that only convert between NCHW and NHWC; and of batch norms in NCHW the time above that of their
    passes over memory at the full DRAM bandwidth, where bytes and device are known. At most so much can be saved.
    """
    converts = _matching(rank, lambda name: float(bool(_CONVERSION.search(name)))) > 0
    seconds = (rank.ends - rank.starts) / 1e9
    conversion, norms = float(seconds[converts].sum()), 0.0
    if work is not None and work.minimum is not None:
        passes = _matching(rank, _passes)
        norm = (passes > 0) & work.known
        norms = float(np.maximum(seconds - passes * work.minimum, 0)[norm].sum())
    saved = conversion + norms
    if saved <= SMALLEST * rank.wall / 1e9:
        return None
    parts = []
    if conversion:
        kernels = units.count(int(converts.sum()), "kernel")
        parts.append(f"{kernels} that only convert between NCHW and NHWC take {units.seconds(conversion)}")
    if norms:
        parts.append(f"batch norms in NCHW take {units.seconds(norms)} more than their passes over DRAM")
    return saved, (
        f"the memory format of the images costs up to {units.seconds(saved)} ({saved / (rank.wall / 1e9):.0%} of the "
        f"wall time, an estimate): {'; '.join(parts)}. Use NHWC: model.to(memory_format=torch.channels_last), and the "
        "same for its input"
    )


def no_tensor_cores(rank: Rank, work: RankWork | None, device: Device | None) -> tuple[float, str] | None:
    """Seconds that fp16 or bf16 saves for fp32 GEMMs and convolutions on CUDA cores, and a text; None if less than 5 %.

    t' = t × (least time with the tensor cores' peak and half the bytes) / (least time now): each kernel reaches the
    same share of its ceiling as now, at most all of it. Casts are not counted, nor what other kernels save.
    """
    tensor_cores = device and device.pipes.get("tensor_fp16")
    if work is None or work.minimum is None or not device or not tensor_cores or not work.fp32_matmul.any():
        return None
    now = work.fp32_matmul & (work.minimum > 0)
    seconds, least = work.seconds[now], work.minimum[now]
    fast = np.maximum(work.flops[now] / tensor_cores.peak, work.bytes[now] / 2 / device.bandwidth)
    then = float(np.minimum(seconds, fast / np.minimum(least / seconds, 1)).sum())
    total = float(seconds.sum())
    wall = rank.wall / 1e9
    if total - then <= SMALLEST * wall:
        return None
    fp32, tf32 = device.pipes.get("fp32"), device.pipes.get("tensor_tf32")
    formats = "fp16 or bf16" if "tensor_bf16" in device.pipes else "fp16"
    text = (
        f"fp32 GEMMs and convolutions run on CUDA cores: {units.seconds(total)} of {units.seconds(wall)} "
        f"({total / wall:.0%}) in {units.count(int(now.sum()), 'kernel')}. In {formats} on tensor cores (torch."
        f"autocast) they take about {units.seconds(then)}, an estimate at the same share of the ceiling as now "
        f"({float(least.sum()) / total:.0%})"
    )
    if fp32 and tf32 and tf32.peak > 1.1 * fp32.peak:  # GeForce cards have the same peak in both
        text += (
            "; TF32 (torch.set_float32_matmul_precision('high'), torch.backends.cudnn.allow_tf32) saves a part of it "
            "without casts"
        )
    return total - then, text


def _passes(name: str) -> float:
    match = _BATCH_NORM.search(name)
    return _PASSES[match["kind"]] if match else 0.0


def _matching(rank: Rank, value: Callable[[str], float]) -> NDArray[np.float64]:
    """A value of the name for each activity of the rank."""
    names = rank.work["name"].cat
    return np.array([value(name) for name in names.categories], dtype=float)[names.codes.to_numpy()]


def kernel_findings(rank: Rank, work: RankWork | None, device: Device | None) -> Iterator[tuple[str, float, str]]:
    """Kind, seconds and text of each finding of a rank's kernels."""
    if estimate := memory_format(rank, work):
        yield ("memory_format", *estimate)
    if estimate := no_tensor_cores(rank, work, device):
        yield ("no_tensor_cores", *estimate)
