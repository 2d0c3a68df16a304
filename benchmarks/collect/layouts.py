"""What sizes and memory layouts cost on this GPU: unaligned GEMMs, and convolutions in NCHW and NHWC.

- unaligned.csv: rows of `roof measure`, GEMMs whose n or k is a multiple of 8, 4, 2 or 1 values, and the head of GPT-2
  with a vocabulary of 50257 and 50304
- layouts.csv: training steps of ResNet-50 and its convolutions by format and layout: seconds of a step or of a forward
  pass, and images per second
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from statistics import median
from typing import Any

import torch

from benchmarks.collect.parts import SKIPPED
from roofmodel.measure import stopwatch
from roofmodel.measure.cases import BenchmarkCase
from roofmodel.measure.measure import COLUMNS, Done, MeasurementPlan, measure, row
from roofmodel.version import __version__

OFFSETS = (0, 1, 2, 4, 8, 16, 32, 64)
SIZES = (1600, 4096, 8192)  # n or k before the offset
ROWS = (16, 512, 4096)
# channels in and out, kernel, image side, stride: convolutions of ResNet-50
CONVOLUTIONS = (
    (3, 64, 7, 224, 2), (64, 64, 1, 56, 1), (64, 64, 3, 56, 1), (64, 256, 1, 56, 1), (128, 128, 3, 28, 1),
    (512, 128, 1, 28, 1), (256, 256, 3, 14, 1), (1024, 256, 1, 14, 1), (512, 512, 3, 7, 1), (512, 2048, 1, 7, 1),
)  # fmt: skip
BATCH = 128
STEPS = 12
LAYOUTS = {"NCHW": torch.contiguous_format, "NHWC": torch.channels_last}


def gemm_cases(dtypes: tuple[str, ...]) -> list[BenchmarkCase]:
    """GEMMs of one size with n or k moved by an offset, and the head of GPT-2."""
    shapes = dict.fromkeys(
        shape
        for size in SIZES
        for m in ROWS
        for offset in OFFSETS
        for shape in ((m, size + offset, 4096), (m, 4096, size + offset), (m + offset, size, 4096))
    )
    heads = [(m, vocabulary, width) for m in ROWS for vocabulary in (50257, 50304) for width in (768, 1600)]
    return [
        BenchmarkCase("gemm", dtype, "torch_linear", tuple(zip("mnk", shape, strict=True)))
        for dtype in dtypes
        for shape in (*heads, *shapes)
    ]


def unaligned(folder: Path, small: bool) -> None:
    """Write unaligned.csv."""
    machine = stopwatch.machine("cuda")
    dtypes = tuple(dtype for dtype in ("bf16", "fp16", "tf32") if dtype in machine.dtypes)
    cases = gemm_cases(dtypes)[: 20 if small else None]
    plan = MeasurementPlan(machine, cases, "cold", 20.0 if small else 150.0, f"roof measure, roofmodel {__version__}")
    with (folder / "unaligned.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        for finished in measure(plan):
            if isinstance(finished, Done):
                writer.writerow(row(finished, plan))
            else:
                print(finished.case, finished.reason)
    machine.close()


def seconds(run: Callable[[], object]) -> float:
    """Median time of a call by CUDA events; host time hides behind the GPU for all calls but the shortest."""
    for _ in range(4):
        run()
    times = []
    for _ in range(STEPS):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        run()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) / 1e3)
    return median(times)


def graph(run: Callable[[], object]) -> Callable[[], object]:
    """The call as a CUDA graph of ten launches."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            run()
    torch.cuda.synchronize()
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured, stream=stream):
        for _ in range(10):
            run()
    return captured.replay


def convolutions(dtypes: tuple[str, ...]) -> Iterator[dict[str, object]]:
    """Forward passes of single convolutions; the time of one launch."""
    for into, out, kernel, side, stride in CONVOLUTIONS:
        for dtype in dtypes:
            torch.backends.cudnn.allow_tf32 = dtype == "tf32"
            for name, layout in LAYOUTS.items():
                kind = torch.float16 if dtype == "fp16" else torch.float32
                layer = torch.nn.Conv2d(into, out, kernel, stride, kernel // 2, bias=False).to("cuda", kind)
                layer = layer.to(memory_format=layout)  # type: ignore[call-overload]
                x = torch.randn(BATCH, into, side, side, device="cuda", dtype=kind).to(memory_format=layout)
                with torch.no_grad():
                    time = seconds(graph(lambda layer=layer, x=x: layer(x))) / 10  # type: ignore[misc]
                shape = f"{into}x{side}x{side} -> {out}, {kernel}x{kernel}, stride {stride}"
                yield {"what": "convolution", "shape": shape, "dtype": dtype, "layout": name, "seconds": time}


def training(dtypes: tuple[str, ...]) -> Iterator[dict[str, object]]:
    """Training steps of ResNet-50 in PyTorch's eager mode, SGD with momentum, images already on the GPU."""
    from torchvision.models import resnet50

    for dtype in dtypes:
        torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = dtype != "fp32"
        for benchmark in (False, True):
            torch.backends.cudnn.benchmark = benchmark
            for name, layout in LAYOUTS.items():
                model = resnet50().to("cuda").to(memory_format=layout)  # type: ignore[call-overload]
                optimizer = torch.optim.SGD(model.parameters(), 0.1, 0.9)
                x = torch.randn(BATCH, 3, 224, 224, device="cuda").to(memory_format=layout)
                y = torch.randint(1000, (BATCH,), device="cuda")

                def step(
                    model: Any = model, optimizer: Any = optimizer, x: Any = x, y: Any = y, dtype: str = dtype
                ) -> None:
                    optimizer.zero_grad(set_to_none=True)
                    with torch.autocast("cuda", torch.float16) if dtype == "fp16" else nullcontext():
                        loss = torch.nn.functional.cross_entropy(model(x), y)
                    loss.backward()
                    optimizer.step()

                yield {
                    "what": "ResNet-50 training step", "shape": f"{BATCH} x 3x224x224", "dtype": dtype, "layout": name,
                    "cudnn_benchmark": benchmark, "seconds": seconds(step),
                }  # fmt: skip


def main(folder: Path, small: bool) -> int:
    """Measure all; SKIPPED without a GPU."""
    if not torch.cuda.is_available():
        print("torch finds no GPU")
        return SKIPPED
    dtypes = ("fp16",) if small else ("fp32", "tf32", "fp16")
    with (folder / "layouts.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, ("what", "shape", "dtype", "layout", "cudnn_benchmark", "seconds"))
        writer.writeheader()
        for part in (training, convolutions):
            for line in part(dtypes):
                writer.writerow(line)
                file.flush()
    unaligned(folder, small)
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), "--small" in sys.argv[2:]))
