"""Published times of kernels under PyTorch's DataParallel on a DGX-1V, and our expected ratios.

Lecture "Profiling Transformer-Based Model" (VISTEC, course IST 503): sums over an epoch in nvprof, PyTorch in fp32 on
V100 SXM2 32 GB, GPU 0. It states the batch and, for BERT, the largest length. It does not state the number of steps,
the lengths of the inputs, whether the batch is for each GPU or for all, and which GPUs were used: pairs have one or two
NVLinks. So only the ratio of NCCL's time to the time of GEMMs is compared, with the largest lengths.
"""

from __future__ import annotations

from typing import NamedTuple

from roofmodel.devices.device import Device
from roofmodel.models.hub import load
from roofmodel.steps.estimate import estimate
from roofmodel.steps.placed import Placed, sum_of


class Published(NamedTuple):
    """A run: the packaged model nearest to its own, stated batch, length; seconds of NCCL and of GEMMs on GPU 0."""

    name: str
    model: str
    batch: int
    length: int
    gpus: int
    nccl: float
    gemm: float


PUBLISHED = (
    # not among the ten longest kernels: NCCL and all copies together
    Published("WangchanBERTa", "wangchanberta@ForSequenceClassification", 8, 416, 2, 42.851, 555.868),
    Published("WangchanBERTa", "wangchanberta@ForSequenceClassification", 8, 416, 4, 157.061 + 119.302, 393.646),
    Published("DistilGPT2", "distilgpt2", 4, 1024, 2, 3.635 + 3.522, 27.676),
    Published("DistilGPT2", "distilgpt2", 4, 1024, 4, 5.483 + 4.209, 14.622),
)


def expected_ratio(row: Published, batch: int) -> float:
    """Expected seconds of the exchange per second of GEMMs, with a batch for all GPUs."""
    (step,) = estimate(
        load(row.model), Device.load("v100"), phase="train", batch=batch, seq=row.length, dp=row.gpus, dtype="fp32",
        data_parallel="dataparallel", attention="eager",
    ).phases  # fmt: skip

    def seconds(placed: list[Placed]) -> float:
        total = sum_of(placed)
        assert total
        return float(total.value)

    gemms = [placed for placed in step.placed if placed.operator.kind in ("gemm", "bmm")]
    return seconds([*step.exchanges]) / seconds(gemms)


def table() -> str:
    """Markdown: one line per run."""
    lines = [
        "| model | GPUs | NCCL time / GEMM time, measured | expected, batch per GPU | expected, batch for all GPUs |",
        "|---|---:|---:|---:|---:|",
    ]
    for row in PUBLISHED:
        of_each, of_all = (expected_ratio(row, batch) for batch in (row.batch * row.gpus, row.batch))
        lines.append(f"| {row.name} | {row.gpus} | {row.nccl / row.gemm:.2f} | {of_each:.2f} | {of_all:.2f} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
