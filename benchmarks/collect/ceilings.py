"""Measured ceilings of the device: bandwidths of DRAM and L2, GEMM rates of each type, launch times.

Writes ceilings.json and measured.yaml (lines for a device's YAML) after every figure. Bytes are the bytes that a kernel
must read and write; a GEMM has 2 n^3 FLOPs.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import torch

from benchmarks.collect.parts import write_text
from benchmarks.collect.report import pipe
from roofmodel.measure.stopwatch import Gpu, Machine, machine
from roofmodel.numbers.units import si

L2_READS = 512  # reads of the array per launch, so that the launch time is negligible
LINE = 32  # fp32 elements of a cache line
LAUNCHES = 500  # number of launches of a trivial kernel; their mean is the launch time
SUSTAINED_SECONDS = 3.0  # seconds of GEMMs until power and thermal limits have settled the clock
SIZES = (4096, 8192)
MAX_GEMM_SECONDS = 0.4  # seconds of a GEMM above which no larger one is tried


class CeilingRun(NamedTuple):
    """The machine, the output folder, and array sizes in bytes and rows."""

    watch: Machine
    folder: Path
    figures: list[dict[str, Any]]
    data: int  # bytes of one array in DRAM
    cached: int  # bytes of one array in L2
    rows: tuple[int, ...]

    def write(self, ceiling: str, by: str, value: float, unit: str, **more: object) -> None:
        """Add a figure, with the clocks during its measurement."""
        clocks = {name: value for name, value in self.watch.read_clocks()._asdict().items() if value is not None}
        self.figures.append({"ceiling": ceiling, "by": by, "value": value, "unit": unit, **more, **clocks})
        document = {"schema": "roofmodel.ceilings/1", "gpu": self.watch.evidence.name, "ceilings": self.figures}
        write_text(self.folder / "ceilings.json", json.dumps(document, indent=1) + "\n")
        write_text(self.folder / "measured.yaml", "\n".join(as_yaml(self)) + "\n")
        print(f"{ceiling:>12}  {by:<24} {si(value, unit)}", flush=True)


def main(folder: Path, small: bool) -> None:
    """Measure all ceilings; log those that fail."""
    watch = machine(None if small else "cuda")
    l2 = watch.evidence.l2_bytes or 2**20
    bench = CeilingRun(
        watch, folder, [], 2**22 if small else 2**30, 2**16 if small else l2 // 4, (64,) if small else SIZES
    )
    try:
        for measure in (dram_bandwidths, l2_bandwidth, launches, gemm_rates, sustained_gemm_rate):
            with failures_logged(measure.__name__):
                measure(bench)
    finally:
        watch.close()


@contextmanager
def failures_logged(name: str) -> Iterator[None]:
    """Log an error instead of raising it, so that the next ceiling is measured."""
    try:
        yield
    except Exception as error:
        print(f"{name}: not measured: {next(iter(str(error).splitlines()), type(error).__name__)}", flush=True)


def dram_bandwidths(bench: CeilingRun) -> None:
    """Copy, read, write and triad (a = b + s c) of arrays far larger than the L2."""
    size = bench.data
    a, b, c = (torch.randn(size // 4, device=bench.watch.device) for _ in range(3))
    kinds: dict[str, tuple[int, Callable[[], object]]] = {
        "copy": (2, lambda: a.copy_(b)),
        "read": (1, lambda: b.sum()),
        "write": (1, lambda: a.zero_()),
        "triad": (3, lambda: torch.add(b, c, alpha=0.5, out=a)),
    }
    for by, (arrays, run) in kinds.items():
        with failures_logged(f"dram {by}"):
            seconds = bench.watch.time(run, cold=False).seconds
            bench.write("dram", by, arrays * size / seconds, "B/s", bytes=arrays * size)


def l2_bandwidth(bench: CeilingRun) -> None:
    """Repeated reads of an array of a quarter of the L2 in one launch.

    Each row of the matrix begins a cache line after the one before. With equal rows, one read of L2 serves several rows
    (an H100 then shows 14.9 TB/s).
    """
    size = bench.cached // 4
    x = torch.randn(size + L2_READS * LINE, device=bench.watch.device)
    rows = x.as_strided((L2_READS, size), (LINE, 1))
    seconds = bench.watch.time(lambda: rows.sum(1), cold=False).seconds
    bench.write("l2", "read", L2_READS * bench.cached / seconds, "B/s", bytes=bench.cached)


def launches(bench: CeilingRun) -> None:
    """Launch times of a trivial kernel: by the host, within a graph, as a graph, and with a round trip."""
    watch, x = bench.watch, torch.zeros(1, device=bench.watch.device)

    def launch_many() -> None:
        for _ in range(LAUNCHES):
            x.add_(1)

    watch.elapsed(launch_many)
    bench.write("launch", "eager", watch.elapsed(launch_many) / LAUNCHES, "s")
    bench.write("launch", "within a graph", watch.time(lambda: x.add_(1), cold=False).seconds, "s")
    if isinstance(watch, Gpu):
        graph = watch.capture(lambda: x.add_(1), 1)
        bench.write(
            "launch", "of a graph", watch.elapsed(lambda: [graph.replay() for _ in range(LAUNCHES)]) / LAUNCHES, "s"
        )
        graph.reset()

        def round_trip() -> float:
            begin = time.perf_counter()
            x.add_(1)
            torch.cuda.synchronize()
            return time.perf_counter() - begin

        bench.write("launch", "and waiting for it", median(round_trip() for _ in range(LAUNCHES)), "s")


def gemm_rates(bench: CeilingRun) -> None:
    """The fastest square GEMM of each type that the device supports, on tensor cores or else CUDA cores. torch computes
    some unsupported types in another type; these are left out."""
    for dtype, make in GEMMS.items():
        if not _supports(bench.watch, dtype):
            continue
        with failures_logged(f"GEMM in {dtype}"):
            best, size = 0.0, 0
            for n in bench.rows:
                seconds = bench.watch.time(make(n, bench.watch.device), cold=False).seconds
                if 2 * n**3 / seconds > best:
                    best, size = 2 * n**3 / seconds, n
                if 8 * seconds > MAX_GEMM_SECONDS:
                    break
            bench.write(dtype, "matmul", best, "FLOP/s", n=size)


def _supports(watch: Machine, dtype: str) -> bool:
    """Whether the device supports the type; its list of types lacks fp64 and int8."""
    if dtype == "int8":  # on tensor cores since Turing
        return float(watch.evidence.compute_capability or 0) >= 7.5
    return dtype == "fp64" or dtype in watch.dtypes


def sustained_gemm_rate(bench: CeilingRun) -> None:
    """16-bit GEMMs for several seconds: the rate under power and thermal limits."""
    n, dtype = bench.rows[-1], next(dtype for dtype in ("bf16", "fp16", "fp32") if dtype in bench.watch.dtypes)
    run = GEMMS[dtype](n, bench.watch.device)
    times, begin = [], time.monotonic()
    while time.monotonic() - begin < (SUSTAINED_SECONDS if isinstance(bench.watch, Gpu) else 0.1):
        times.append(bench.watch.elapsed(run))
    last = times[-max(1, len(times) // 4) :]
    bench.write(dtype, "matmul, sustained", 2 * n**3 / median(last), "FLOP/s", n=n)


def _plain(form: torch.dtype, tf32: bool = False) -> Callable[[int, str], Callable[[], object]]:
    def make(n: int, device: str) -> Callable[[], object]:
        torch.backends.cuda.matmul.allow_tf32 = tf32
        a, b = (torch.randn(n, n, device=device, dtype=form) for _ in range(2))
        return lambda: torch.mm(a, b)

    return make


def _fp8(n: int, device: str) -> Callable[[], object]:
    a, b = (torch.randn(n, n, device=device).to(torch.float8_e4m3fn) for _ in range(2))
    scale = torch.ones((), device=device)
    return lambda: torch._scaled_mm(a, b.t(), scale_a=scale, scale_b=scale, out_dtype=torch.bfloat16)


def _int8(n: int, device: str) -> Callable[[], object]:
    a, b = (torch.randint(-128, 128, (n, n), device=device, dtype=torch.int8) for _ in range(2))
    return lambda: torch._int_mm(a, b.t())


GEMMS: dict[str, Callable[[int, str], Callable[[], object]]] = {
    "fp64": _plain(torch.float64),
    "fp32": _plain(torch.float32),
    "tf32": _plain(torch.float32, tf32=True),
    "fp16": _plain(torch.float16),
    "bf16": _plain(torch.bfloat16),
    "fp8": _fp8,
    "int8": _int8,
}


def as_yaml(bench: CeilingRun) -> Iterator[str]:
    """Lines in the form of `hardware/*.yaml`, which has no key for launches."""
    yield "# Lines for a device's YAML. If it already has `measured:` or `sources:`, add the lines below to them."
    yield "measured:"
    for each in bench.figures:
        if each["ceiling"] != "launch":
            name, value = each["ceiling"], si(each["value"], each["unit"], 4)
            name = pipe(name, bench.watch.evidence.compute_capability) if name in GEMMS else name
            yield f"  - {{ceiling: {name}, by: '{each['by']}', value: {value}, source: collected}}"
    yield "sources:"
    watch = bench.watch
    yield f'  collected: "the GPU kit of roofmodel on {watch.evidence.name}, {watch.framework}, {date.today()}"'


if __name__ == "__main__":
    main(Path(sys.argv[1]), "--small" in sys.argv)
