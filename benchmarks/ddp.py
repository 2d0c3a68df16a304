"""Published training steps of PyTorch's DistributedDataParallel on a DGX-1V, and our expected times.

pytorch/pytorch@bf69c149, benchmarks/distributed/ddp/README.md: PyTorch 1.4, CUDA 10.0, NCCL, 32 images per GPU, fp32,
SGD with momentum, buckets of 25 MB, one or two machines of eight V100 (4 x 100 Gb/s InfiniBand each); median seconds
per iteration. One constant was set with these rows in view: `HOST_OPERATORS_PER_BUFFER`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from roofmodel.devices.device import Device
from roofmodel.models.architecture import Architecture, Network
from roofmodel.models.convolutional import Convolution, PixelStep
from roofmodel.models.hub import load
from roofmodel.steps.estimate import estimate, totals

DEVICE = "v100"
IMAGES = 32  # per GPU
GPUS = (1, 2, 4, 8, 16)


class Published(NamedTuple):
    """A model: its base, groups and width of its 3 x 3 convolutions; seconds without and with the wrapper."""

    name: str
    base: str
    groups: int
    width: int
    alone: float
    wrapped: tuple[float, ...]  # by GPUS


PUBLISHED = (
    Published("resnet50", "microsoft/resnet-50", 1, 1, 0.097, (0.100, 0.103, 0.103, 0.104, 0.104)),
    Published("resnet101", "microsoft/resnet-101", 1, 1, 0.162, (0.171, 0.176, 0.176, 0.179, 0.179)),
    Published("resnext50_32x4d", "microsoft/resnet-50", 32, 2, 0.145, (0.147, 0.153, 0.153, 0.157, 0.157)),
    Published("resnext101_32x8d", "microsoft/resnet-101", 32, 4, 0.415, (0.425, 0.438, 0.439, 0.447, 0.450)),
)


class Step(NamedTuple):
    """A training step: measured and expected seconds, and both efficiencies against one GPU without the wrapper."""

    name: str
    gpus: int
    measured: float
    expected: float
    measured_efficiency: float
    efficiency: float
    exposed: float  # expected seconds of communication that the backward pass does not hide
    hidden: float


def model(row: Published) -> Architecture:
    """The architecture, with the groups and widths of a ResNeXt (Xie et al., arXiv 1611.05431, table 1)."""
    base = load(row.base)
    assert isinstance(base.body, Network)

    def widened(part: PixelStep) -> PixelStep:
        if not isinstance(part, Convolution) or part.name not in ("reduce", "spatial"):
            return part
        return part._replace(out=row.width * part.out, groups=row.groups if part.name == "spatial" else 1)

    stages = tuple(
        stage._replace(blocks=tuple(block._replace(path=tuple(map(widened, block.path))) for block in stage.blocks))
        for stage in base.body.stages
    )
    return replace(base, name=row.name, body=base.body._replace(stages=stages))


def steps() -> list[Step]:
    """All rows with the wrapper."""
    device, rows = Device.load(DEVICE), []
    for row in PUBLISHED:
        arch, alone = model(row), None
        for gpus, measured in ((0, row.alone), *zip(GPUS, row.wrapped, strict=True)):
            many = max(gpus, 1)
            (phase,) = estimate(
                arch, device, phase="train", batch=IMAGES * many, dp=many, dtype="fp32", optimizer="momentum",
                image=224, data_parallel="ddp" if gpus else None,
            ).phases  # fmt: skip
            total = totals(phase)
            seconds, sent = total["expected_seconds"], total["expected_communication_seconds"]
            alone = alone or seconds
            exposed = total["expected_communication_exposed_seconds"]
            if gpus:
                efficiencies = row.alone / measured, alone / seconds
                rows.append(Step(row.name, gpus, measured, seconds, *efficiencies, exposed, sent - exposed))
    return rows


def table() -> str:
    """Markdown: one line per row."""
    lines = [
        "| model | GPUs | measured | expected | error | efficiency measured | expected | exposed | hidden |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for step in steps():
        lines.append(
            f"| {step.name} | {step.gpus} | {step.measured * 1e3:.0f} ms | {step.expected * 1e3:.0f} ms "
            f"| {step.expected / step.measured - 1:+.1%} | {step.measured_efficiency:.1%} | {step.efficiency:.1%} "
            f"| {step.exposed * 1e3:.1f} ms | {step.hidden * 1e3:.1f} ms |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    print(table())
