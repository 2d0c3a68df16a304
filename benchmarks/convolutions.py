"""Convolutions on a V100 in fp32: the fit of their parameter set, and published times compared with the expected ones.

`python -m benchmarks.convolutions ../shared/measured/traces/torch/kineto_resnet50_v100_no_workers.json.gz` prints both;
`--into docs/accuracy.md` updates the table of networks on the page.

The set `cudnn` of hardware/v100-sxm2-32gb.yaml differs from the set of cuBLAS's GEMMs in one parameter, `pipe`. It is
fitted to every second of the 68 convolutions and gradients in a trace of ResNet-50's training (pytorch/kineto@94979607,
32 images, PyTorch with its default `torch.backends.cudnn.benchmark = False`); the others give error and interval. The
published times are those of facebookresearch/pycls@35429e83, MODEL_ZOO.md (PyTorch 1.6, cuDNN 7.6), which tries all
algorithms of cuDNN (`benchmark = True`) and takes the fastest one. No parameter was fitted to them; the least channels
of a group for Winograd's algorithm (`WINOGRAD_CHANNELS`) were chosen with them in view.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
from bisect import bisect_right
from collections import defaultdict
from dataclasses import replace
from itertools import groupby
from math import exp, log
from pathlib import Path
from statistics import fmean, median, quantiles
from typing import Any, NamedTuple

from benchmarks import pages
from roofmodel.counting.operator import Operator
from roofmodel.devices.device import Device
from roofmodel.models.architecture import Architecture, Network
from roofmodel.models.convolutional import Convolution, PixelStep, Pool, Residual, Stage
from roofmodel.models.families.vision import BATCH, RELU
from roofmodel.models.hub import load
from roofmodel.steps.estimate import estimate, totals
from roofmodel.steps.phase import PhaseEstimate
from roofmodel.timing.roofline import place
from roofmodel.timing.timing import CONVOLUTION_LIBRARY, formula

DEVICE = "v100-sxm2-32gb"
SIZE = 224  # rows and columns of an image
Key = tuple[str, int, int, int, int, int]
"""A convolution of the trace: pass, input channels, output channels, filter rows, output rows, stride."""


# --- The trace --------------------------------------------------------------------------------------


def measured(trace: Path) -> dict[Key, float]:
    """Median seconds of each convolution, with the kernels that only convert its tensors."""
    with gzip.open(trace, "rt", encoding="utf-8") as file:
        events: list[dict[str, Any]] = json.load(file)["traceEvents"]
    operators = sorted((e for e in events if e.get("cat") == "Operator"), key=lambda e: float(e["ts"]))
    inputs = {
        e["args"]["Sequence number"]: e["args"]["Input Dims"]
        for e in operators
        if e["name"] == "aten::_convolution" and "Sequence number" in e["args"]
    }
    calls, outputs = {}, {}  # external id of a call -> sequence number of the forward operator; that -> output rows
    outer = {
        name: [e for e in operators if e["name"] == name] for name in ("aten::_convolution", "CudnnConvolutionBackward")
    }
    starts = {name: [e["ts"] for e in events] for name, events in outer.items()}
    for event in operators:
        if event["name"].startswith("aten::cudnn_convolution"):
            around = "aten::_convolution" if event["name"] == "aten::cudnn_convolution" else "CudnnConvolutionBackward"
            number = outer[around][bisect_right(starts[around], event["ts"]) - 1]["args"]["Sequence number"]
            calls[event["args"]["External id"]] = event["name"].removeprefix("aten::cudnn_convolution"), number
            if event["name"] == "aten::cudnn_convolution_backward":  # input, gradient of the output, weights
                outputs[number] = event["args"]["Input Dims"][1][2]
    seconds: dict[int, float] = defaultdict(float)
    for event in events:
        if event.get("cat") == "Kernel" and event["args"].get("external id") in calls:
            seconds[event["args"]["external id"]] += event["dur"] * 1e-6
    seconds_by_key: dict[Key, list[float]] = defaultdict(list)
    for call, time in seconds.items():
        (name, number), (image, weights) = calls[call], inputs[calls[call][1]][:2]
        which = name.replace("_backward_", "grad_") or "forward"
        rows = outputs[number]
        seconds_by_key[which, weights[1], weights[0], weights[2], rows, round(image[2] / rows)].append(time)
    return {key: median(times) for key, times in seconds_by_key.items()}


def operators() -> dict[Key, Operator]:
    """The convolutions and gradients of a training step of ResNet-50, as in the trace."""
    by_key = {}
    for operator in training("microsoft/resnet-50", 32).operators:
        if operator.kind == "conv":
            sizes, slides = operator.sizes, any("i+r" in t.axes for t in (*operator.reads, *operator.writes))
            which = operator.name.rpartition(".")[2]
            rows = sizes["r"] if slides else 1
            strided = slides and (rows == 1 or sizes["i+r"] > sizes["i"] + rows - 1)
            key = which if which.startswith("grad_") else "forward", sizes["c"], sizes["o"], rows, sizes["i"]
            by_key[*key, 1 + strided] = operator
    return by_key


def logarithms(times: dict[Key, float], pipe: float) -> list[float]:
    """Logarithm of measured / expected of each convolution, in the order of the keys."""
    device, counted = Device.load(DEVICE), operators()
    logs = []
    for key in sorted(times):
        operator = counted[key]
        timing_formula = formula(operator, place(operator.cost, device, "fp32"), device, "fp32")
        assert timing_formula is not None
        assert timing_formula.implementation == CONVOLUTION_LIBRARY
        seconds = timing_formula.function(*timing_formula.arguments, timing_formula.parameters._replace(pipe=pipe))
        logs.append(log(times[key] / seconds))
    return logs


class Fitted(NamedTuple):
    """The fitted parameter, rows of the fit and other rows; error and interval on the latter."""

    pipe: float
    rows: int
    held_out: int
    error: float
    low: float
    high: float


def fit(times: dict[Key, float]) -> Fitted:
    """`pipe` with the least mean absolute logarithm on every second row."""
    _, pipe = min((fmean(map(abs, logarithms(times, n / 100)[::2])), n / 100) for n in range(50, 100))
    rest = logarithms(times, pipe)[1::2]
    tenths = quantiles(rest, n=10, method="inclusive")
    error = fmean(abs(exp(-logarithm) - 1) for logarithm in rest)
    return Fitted(pipe, len(times) - len(rest), len(rest), error, exp(tenths[0]), exp(tenths[-1]))


# --- Published networks -----------------------------------------------------------------------------


class Published(NamedTuple):
    """A network, and its published times.

    RegNetX (Radosavovic et al., arXiv 2003.13678): blocks, slope and first of their widths before rounding, ratio of
    widths, and channels of a group. Residual networks: blocks, width of the bottleneck relative to its block, and
    channels of a group, by stage. Times: milliseconds of a forward pass of 64 images, and hours of 100 epochs on 8 GPUs
    with `batch` images.
    """

    name: str
    shape: tuple[Any, ...]
    batch: int
    forward: float
    training: float


PUBLISHED = (
    Published("ResNet-50", ((3, 4, 6, 3), 0.25, None), 256, 53, 12.2),
    Published("ResNet-101", ((3, 4, 23, 3), 0.25, None), 256, 90, 20.4),
    Published("ResNet-152", ((3, 8, 36, 3), 0.25, None), 256, 130, 29.2),
    Published("ResNeXt-50", ((3, 4, 6, 3), 0.5, (4, 8, 16, 32)), 256, 78, 18.0),
    Published("ResNeXt-101", ((3, 4, 23, 3), 0.5, (4, 8, 16, 32)), 256, 137, 31.8),
    Published("ResNeXt-152", ((3, 8, 36, 3), 0.5, (4, 8, 16, 32)), 256, 197, 45.7),
    Published("RegNetX-1.6GF", (18, 34.01, 80, 2.25, 24), 1024, 33, 8.7),
    Published("RegNetX-3.2GF", (25, 26.31, 88, 2.25, 48), 512, 57, 14.3),
    Published("RegNetX-4.0GF", (23, 38.65, 96, 2.43, 40), 512, 69, 17.1),
    Published("RegNetX-6.4GF", (17, 60.83, 184, 2.07, 56), 512, 92, 23.5),
    Published("RegNetX-8.0GF", (23, 49.56, 80, 2.88, 120), 512, 94, 22.6),
    Published("RegNetX-12GF", (19, 73.36, 168, 2.37, 112), 512, 137, 32.9),
    Published("RegNetX-16GF", (22, 55.59, 216, 2.1, 128), 512, 168, 39.7),
    Published("RegNetX-32GF", (23, 69.86, 320, 2.0, 168), 256, 318, 76.9),
)
"""Models of at least 1.6 GFLOPs: the host limits the smaller ones. FLOPs in these names are multiply-adds."""
GPUS = 8
IMAGES = 1_281_167  # of an epoch


def stages(row: Published) -> list[tuple[int, int, float, int | None]]:
    """Blocks, width, relative width of the bottleneck and channels of a group, by stage."""
    if len(row.shape) == 3:
        blocks, ratio, groups = row.shape
        return [(n, 256 * 2**i, ratio, groups and groups[i]) for i, n in enumerate(blocks)]
    count, slope, first, ratio, group = row.shape
    exponents = (round(log((slope * i + first) / first) / log(ratio)) for i in range(count))
    widths = [8 * round(first * ratio**n / 8) for n in exponents]
    stage_sizes = []
    for width, same in groupby(widths):
        channels = min(group, width)
        stage_sizes.append((len(list(same)), max(1, round(width / channels)) * channels, 1.0, channels))
    return stage_sizes


def network(row: Published) -> Architecture:
    """The architecture of a published network."""
    base, residual = load("microsoft/resnet-50"), len(row.shape) == 3
    assert isinstance(base.body, Network)
    stem: tuple[PixelStep, ...] = (Convolution("convolution", 32, 3, 2, padding=1), BATCH, RELU)
    if residual:
        stem = (Convolution("convolution", 64, 7, 2, padding=3), BATCH, RELU, Pool(3, 2, 1))
    before, built = 64 if residual else 32, []
    for index, (count, out, ratio, channels) in enumerate(stages(row)):
        stride, blocks = 1 if residual and not index else 2, []
        for _ in range(count):
            width = round(ratio * out)
            groups = width // channels if channels else 1
            path: tuple[PixelStep, ...] = (
                Convolution("reduce", width), BATCH, RELU,
                Convolution("spatial", width, 3, stride, padding=1, groups=groups), BATCH, RELU,
                Convolution("expand", out), BATCH,
            )  # fmt: skip
            shape_changes = stride != 1 or before != out
            shortcut = (Convolution("shortcut", out, 1, stride), BATCH) if shape_changes else ()
            blocks.append(Residual(path, shortcut, (RELU,)))
            before, stride = out, 1
        built.append(Stage(tuple(blocks)))
    return replace(base, name=row.name, body=base.body._replace(stem=stem, stages=tuple(built), width=before))


def training(model: str | Architecture, batch: int, gpus: int = 1) -> PhaseEstimate:
    """A training step in fp32 with `batch` images."""
    arch = load(model) if isinstance(model, str) else model
    (phase,) = estimate(
        arch, Device.load(DEVICE), phase="train", batch=batch, dp=gpus, dtype="fp32", optimizer="momentum", image=SIZE,
        data_parallel="ddp" if gpus > 1 else None,
    ).phases  # fmt: skip
    return phase


class Compared(NamedTuple):
    """A published network: channels of its narrowest and widest groups; expected / measured times."""

    name: str
    groups: str
    forward: float
    training: float


def compared(rows: tuple[Published, ...] = PUBLISHED) -> list[Compared]:
    """Expected / measured time of a forward pass and a training step of each network."""
    comparisons = []
    for row in rows:
        arch = network(row)
        (forward,) = estimate(arch, Device.load(DEVICE), phase="forward", batch=64, dtype="fp32", image=SIZE).phases
        step = row.training * 3600 / 100 / (IMAGES / row.batch)
        channels = sorted({each for _, _, _, each in stages(row) if each})
        groups = " to ".join(map(str, dict.fromkeys((*channels[:1], *channels[-1:]))))
        expected = [totals(phase)["expected_seconds"] for phase in (forward, training(arch, row.batch, GPUS))]
        comparisons.append(Compared(row.name, groups, expected[0] / (row.forward / 1e3), expected[1] / step))
    return comparisons


def table() -> str:
    """Markdown: a line for each network."""
    lines = ["| model | channels of a group | error, forward | error, training |", "|---|---:|---:|---:|"]
    for row in compared():
        lines.append(f"| {row.name} | {row.groups} | {row.forward - 1:+.0%} | {row.training - 1:+.0%} |")
    return "\n".join(lines)


def main() -> None:
    """Write the fit and the table to stdout, and the table into pages."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trace", type=Path, help="PyTorch trace of ResNet-50's training")
    pages.add_option(parser)
    arguments = parser.parse_args()
    text = table()
    sys.stdout.write(f"{fit(measured(arguments.trace))}\n{text}\n")
    pages.replace_tables(arguments.into, [text])


if __name__ == "__main__":
    main()
