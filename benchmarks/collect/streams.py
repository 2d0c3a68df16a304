"""Copies and a data loader beside the GPU's work, each as a PyTorch trace and as rows of streams.csv.

- copies alone: host to device and back, pinned and pageable
- two streams: GEMMs on one stream, copies from pinned memory on another, with and without the copies
- a slow loader: training steps of a small network whose batches take BATCH_SECONDS each, without workers, with one and
  with four; trace-loader-N.json.gz has the steps with N workers
"""

from __future__ import annotations

import csv
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, record_function
from torch.utils.data import DataLoader, Dataset

from benchmarks.collect.parts import SKIPPED

COLUMNS = ("what", "memory", "bytes", "workers", "seconds", "repeats")
COPY_BYTES = 256 * 2**20
REPEATS = 7
BATCH_SECONDS = 0.04  # that one worker takes for a batch
STEPS = 8
FIRST_STEPS = 3  # not in the medians: workers start, libraries choose their kernels


class SlowImages(Dataset[tuple[torch.Tensor, int]]):
    """Random images, each of which takes its share of BATCH_SECONDS to load."""

    def __init__(self, batches: int, batch: int, side: int) -> None:
        self.batches, self.batch, self.side = batches, batch, side

    def __len__(self) -> int:
        return self.batches * self.batch

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        time.sleep(BATCH_SECONDS / self.batch)
        return torch.full((3, self.side, self.side), index / len(self)), index % 10


def main(folder: Path, small: bool) -> int:
    """Measure all; SKIPPED without a GPU."""
    if not torch.cuda.is_available():
        print("torch finds no GPU to copy to")
        return SKIPPED
    with (folder / "streams.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        for measure in (copies, two_streams, slow_loader):
            try:
                for row in measure(folder, small):
                    writer.writerow(row)
                    file.flush()
                    print(" ".join(f"{name}={value}" for name, value in row.items()), flush=True)
            except Exception as error:
                print(f"{measure.__name__}: not measured: {type(error).__name__}: {error}", flush=True)
    return 0


def copies(folder: Path, small: bool) -> Iterator[dict[str, Any]]:
    """Copies between host and device, one at a time."""
    size = COPY_BYTES // (256 if small else 1)
    device = torch.empty(size, dtype=torch.uint8, device="cuda")
    for memory in ("pinned", "pageable"):
        host = torch.ones(size, dtype=torch.uint8, pin_memory=memory == "pinned")
        for direction, to, source in (("HtoD", device, host), ("DtoH", host, device)):
            yield {"what": direction, "memory": memory, "bytes": size, **_median(partial(to.copy_, source))}


def two_streams(folder: Path, small: bool) -> Iterator[dict[str, Any]]:
    """GEMMs alone, and with copies on a second stream that take about as long."""
    n, size = (512, COPY_BYTES // 256) if small else (8192, COPY_BYTES)
    a, b = (torch.randn(n, n, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    host, device = (
        torch.ones(size, dtype=torch.uint8, pin_memory=True),
        torch.empty(size, dtype=torch.uint8, device="cuda"),
    )
    side = torch.cuda.Stream()

    def gemms() -> None:
        for _ in range(6):
            torch.mm(a, b)

    def both() -> None:
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            device.copy_(host, non_blocking=True)
        gemms()
        torch.cuda.current_stream().wait_stream(side)

    yield {"what": "GEMMs", "bytes": 0, **_median(gemms)}
    yield {"what": "GEMMs and HtoD on two streams", "memory": "pinned", "bytes": size, **_median(both)}
    with _traced(folder / "trace-two-streams.json.gz"):
        for number in range(3):
            with record_function(f"ProfilerStep#{number}"):
                both()
        torch.cuda.synchronize()


def slow_loader(folder: Path, small: bool) -> Iterator[dict[str, Any]]:
    """Training steps fed by a slow loader."""
    batch, side = (8, 32) if small else (64, 112)
    network = torch.nn.Sequential(
        torch.nn.Conv2d(3, 64, 7, 2, 3), torch.nn.ReLU(), torch.nn.Conv2d(64, 128, 3, 2, 1), torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(128, 10),
    ).cuda()  # fmt: skip
    optimizer = torch.optim.SGD(network.parameters(), 0.01)

    def train(images: torch.Tensor, labels: torch.Tensor) -> None:
        loss = torch.nn.functional.cross_entropy(network(images.cuda()), labels.cuda())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        loss.item()

    images, labels = torch.rand(batch, 3, side, side), torch.zeros(batch, dtype=torch.long)
    yield {"what": "step with its copy", "memory": "pageable", **_median(lambda: train(images, labels))}
    for workers in (0, 1, 4):
        dataset = SlowImages(FIRST_STEPS + STEPS, batch, side)
        batches = iter(DataLoader(dataset, batch, num_workers=workers))
        for _ in range(FIRST_STEPS):
            train(*next(batches))
        times: list[float] = []
        with _traced(folder / f"trace-loader-{workers}.json.gz"):
            for number in range(STEPS):
                begin = time.perf_counter()
                with record_function(f"ProfilerStep#{number}"):
                    train(*next(batches))
                times.append(time.perf_counter() - begin)
        yield {"what": "step with its loader", "workers": workers, "seconds": median(times), "repeats": STEPS}


def _traced(file: Path) -> AbstractContextManager[Any]:
    """A PyTorch trace of the block, written when it ends."""
    return profile(
        activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA],
        on_trace_ready=lambda done: done.export_chrome_trace(str(file)),
    )


def _median(run: Callable[[], object]) -> dict[str, Any]:
    """Median of the wall time until the device is idle."""
    samples = []
    for _ in range(3 + REPEATS):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        run()
        torch.cuda.synchronize()
        samples.append(time.perf_counter() - begin)
    return {"seconds": median(samples[3:]), "repeats": REPEATS}


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), "--small" in sys.argv))
