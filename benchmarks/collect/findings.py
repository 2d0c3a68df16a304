"""What the findings of `roof kernels` and `roof trace` are checked against: faults that are known, and their cure.

- NAME.raw.csv, NAME.details.csv: Nsight Compute (`--set full`) of the pairs of kernels in diagnosed.cu and unseen.cu;
  the details have NVIDIA's own rules and their estimates. NAME.csv: the seconds of each kernel without a profiler
- trace-resnet50-FORMAT-LAYOUT.json: PyTorch traces of two training steps; the steps' seconds without a profiler are in
  traces.csv
- trace-graph.json: the capture of a CUDA graph (two layers of GPT-2 XL, one token), and three replays
"""

from __future__ import annotations

import csv
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch

from benchmarks.collect.layouts import LAYOUTS, seconds
from benchmarks.collect.parts import SKIPPED

BATCH = 256  # at 64 the host is the limit of the steps in fp16
STEPS = (("fp32", "NCHW"), ("fp16", "NCHW"), ("fp16", "NHWC"))
ACTIVITIES = (torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA)
NCU = ("ncu", "--set", "full", "--clock-control", "none", "--profile-from-start", "off")


def diagnosed(folder: Path, name: str) -> None:
    """Build the pairs of a source and run them, alone and under ncu. What a tool says lies in its text file."""
    program, report = folder / name, folder / f"{name}.ncu-rep"
    source = Path(__file__).with_name(f"{name}.cu")
    commands: list[tuple[str, tuple[str, ...]]] = [
        ("build.txt", ("nvcc", "-O3", "-arch=native", str(source), "-o", str(program), "-lcublas")),
        ("csv", (str(program),)),
        ("ncu.txt", (*NCU, "-o", str(report.with_suffix("")), "-f", str(program), "once")),
        ("raw.csv", ("ncu", "--import", str(report), "--csv", "--page", "raw", "--print-units", "base")),
        ("details.csv", ("ncu", "--import", str(report), "--csv", "--page", "details")),
    ]
    for suffix, command in commands:
        with (folder / f"{name}.{suffix}").open("wb") as file:
            errors = subprocess.STDOUT if suffix.endswith("txt") else None
            subprocess.run(command, stdout=file, stderr=errors, check=False)
    program.unlink(missing_ok=True)


def resnet(dtype: str, layout: str) -> Any:
    """A training step as the lectures write it: images from pinned memory, SGD with momentum, loss read once."""
    from torchvision.models import resnet50

    model = resnet50().to("cuda").to(memory_format=LAYOUTS[layout])  # type: ignore[call-overload]
    optimizer = torch.optim.SGD(model.parameters(), 0.1, 0.9)
    images = torch.randn(BATCH, 3, 224, 224).pin_memory()
    labels = torch.randint(1000, (BATCH,), device="cuda")

    def step() -> None:
        x = images.to("cuda", non_blocking=True)
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.float16) if dtype == "fp16" else nullcontext():
            loss = torch.nn.functional.cross_entropy(model(x), labels)
        loss.backward()
        optimizer.step()

    return step


def training(folder: Path) -> None:
    """The three steps, timed, then traced."""
    with (folder / "traces.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(("file", "seconds"))
        for dtype, layout in STEPS:
            torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False
            step = resnet(dtype, layout)
            time = seconds(step)
            name = f"trace-resnet50-{dtype}-{layout}.json"
            with torch.profiler.profile(activities=ACTIVITIES, record_shapes=True) as profiler:
                for _ in range(2):
                    step()
                    profiler.step()
                torch.cuda.synchronize()
            profiler.export_chrome_trace(str(folder / name))
            writer.writerow((name, f"{time:.9g}"))


def graph(folder: Path) -> None:
    """Capture a graph under the profiler and replay it."""
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(n_embd=1600, n_layer=2, n_head=25)
    model = GPT2LMHeadModel(config).to("cuda", torch.float16).eval()
    tokens = torch.randint(config.vocab_size, (8, 128), device="cuda")

    def run() -> None:
        with torch.no_grad():
            model(tokens, use_cache=False)

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            run()
    torch.cuda.synchronize()
    with torch.profiler.profile(activities=ACTIVITIES, record_shapes=True) as profiler:
        captured = torch.cuda.CUDAGraph()
        with torch.cuda.graph(captured, stream=stream):
            run()
        for _ in range(3):
            captured.replay()
        torch.cuda.synchronize()
    profiler.export_chrome_trace(str(folder / "trace-graph.json"))


def main(folder: Path, small: bool) -> int:
    """Collect all; SKIPPED without a GPU."""
    if small or not torch.cuda.is_available():
        print("torch finds no GPU that is large enough")
        return SKIPPED
    for name in ("diagnosed", "unseen"):
        diagnosed(folder, name)
    training(folder)
    graph(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), "--small" in sys.argv[2:]))
