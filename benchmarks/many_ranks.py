"""Simulate the kernels of many ranks with planted delays, for `roof jitter`.

    python benchmarks/many_ranks.py FOLDER                       960 ranks x 903 kernels x 50 steps, as in the lecture
    python benchmarks/many_ranks.py FOLDER --ranks 16 --kernels 120 --steps 10 --plant gpu:3:0.02 --plant cpu:7:0.05

Writes a CSV file per rank, with the columns of the lecture on jitter (A. Zulfiqar and R. Knight, NVIDIA, 2020). A plant
is KIND:RANK:AMOUNT; the amount is a share of the step:

    gpu      the kernels of the rank are longer
    cpu      each launch of the rank takes longer
    input    the rank starts each step late
    node     the kernels of all ranks of its host are longer
    network  the rank leaves the last all-reduce but one of a step late

The CPU of a rank launches kernels in order, the GPU runs them in order. All-reduces run on another stream, start when
the kernel before them has ended on the rank, and end on all ranks together. The optimizer waits for the last one.
Each rank has its own clock.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Times = NDArray[np.int64]
COLUMNS = (
    "nvtx_text", "nvtx_start", "nvtx_end", "device", "crt_name", "crt_start", "crt_end", "kernel_demangled_name",
    "kernel_stream", "kernel_start", "kernel_end", "kernel_duration",
)  # fmt: skip
MAIN, SIDE = "7", "33"
NCCL = "ncclAllReduceRingLLKernel_sum_f16(ncclColl)"
NAMES = (
    "volta_fp16_s884gemm_fp16_128x64_ldg8_f2f_nn", "void at::native::elementwise_kernel<512, 1>",
    "void cunn_SoftMaxForward<4, float>", "void at::native::reduce_kernel<512, 1>",
    "void (anonymous namespace)::layer_norm<float>",
)  # fmt: skip
LAUNCH, LATENCY, BETWEEN = 8_000, 3_000, 1_000  # ns: launching call, launch to start, between two kernels
SYNCHRONIZATION = 60_000  # ns from the end of the step to the first launch of the next: the CPU reads the loss
PER_HOST = 8
START = 2_078_000_000


class Plant(NamedTuple):
    """A delay of one rank (or of its host), as a share of the step."""

    kind: str
    rank: int
    amount: float


class Step(NamedTuple):
    """One step of R ranks x K kernels; nanoseconds."""

    number: int
    names: tuple[str, ...]
    streams: tuple[str, ...]
    launches: Times
    starts: Times
    ends: Times
    begin: Times  # R: start and end of the NVTX range
    finish: Times


class Run(NamedTuple):
    """The sizes of a run and its noise."""

    ranks: int = 960
    kernels: int = 903
    steps: int = 50
    plants: Sequence[Plant] = ()
    noise: float = 0.02  # standard deviation of the kernel times, relative
    launch_noise: float = 0.1
    mean: float = 40_000  # ns, of a kernel
    reduces: int = 6  # all-reduces per step
    shapes: Sequence[tuple[str, float]] = ()  # name and nanoseconds of the kernels of a real step
    clocks: float = 2e6  # ns, standard deviation of the clocks
    seed: int = 7


def steps(run: Run) -> Iterator[Step]:
    """The steps of a run, one at a time."""
    random = np.random.default_rng(run.seed)
    layout = _layout(run, random)
    plants = _planted(run, layout)
    clock = random.normal(0, run.clocks, run.ranks).astype(np.int64)
    shift = clock[:, None]
    cpu = gpu = side = np.full(run.ranks, float(START))
    for number in range(run.steps):
        begin = cpu
        cpu = np.maximum(cpu, np.maximum(gpu, side) + SYNCHRONIZATION) + plants.start
        launches, starts, ends = (np.empty((run.ranks, run.kernels)) for _ in range(3))
        for i in range(run.kernels):
            launches[:, i] = cpu
            slower = plants.launch if i < layout.forward else 0
            cpu = cpu + LAUNCH * random.lognormal(0, run.launch_noise, run.ranks) + slower
            usual = layout.usual[i]
            if i in layout.reduces:
                starts[:, i] = np.maximum(np.maximum(gpu, side), launches[:, i] + LATENCY)
                together = starts[:, i].max() + 4 * usual
                late = plants.link if i == layout.reduces[-2] else 0
                ends[:, i] = side = together + late + random.normal(0, 300, run.ranks)
            else:
                ready = np.maximum(gpu, side) if i > layout.reduces[-1] else gpu
                starts[:, i] = np.maximum(ready + BETWEEN, launches[:, i] + LATENCY)
                ends[:, i] = gpu = starts[:, i] + usual * plants.slow * random.lognormal(0, run.noise, run.ranks)
        timestamps = [values.astype(np.int64) + shift for values in (launches, starts, ends)]
        ranges = [values.astype(np.int64) + clock for values in (begin, cpu)]
        yield Step(number, layout.names, layout.streams, *timestamps, *ranges)


class _Layout(NamedTuple):
    names: tuple[str, ...]
    streams: tuple[str, ...]
    usual: NDArray[np.float64]  # K: mean times
    forward: int  # kernels that are shorter than a launch, so that the CPU limits them
    reduces: tuple[int, ...]

    @property
    def backward_seconds(self) -> float:
        """Time of the kernels whose length matters, in nanoseconds."""
        chosen = np.ones(len(self.usual), bool)
        chosen[list(self.reduces)] = False
        chosen[: self.forward] = False
        return float(self.usual[chosen].sum())

    @property
    def step_seconds(self) -> float:
        """Time of a step without delays, in nanoseconds."""
        return self.backward_seconds + self.forward * LAUNCH + SYNCHRONIZATION


def _layout(run: Run, random: np.random.Generator) -> _Layout:
    kinds = random.integers(0, len(NAMES), run.kernels)
    forward = run.kernels * 2 // 5
    usual = np.maximum(random.gamma(2.0, run.mean / 2, run.kernels), LAUNCH)
    if run.shapes:
        real = np.maximum(np.resize([seconds for _, seconds in run.shapes], run.kernels), LAUNCH)
        usual = real * (run.mean / real.mean())
    usual[:forward] = 0.6 * LAUNCH
    last = run.kernels - max(1, run.kernels // 20) - 1  # then the optimizer
    places = np.linspace((forward + last) / 2, last, run.reduces).astype(int).tolist()
    reduces = (*places[:-2], last - 1, last)  # the last two follow each other: the side stream is critical
    texts = [name for name, _ in run.shapes]
    names = tuple(
        NCCL if i in reduces else texts[i % len(texts)] if texts else NAMES[kinds[i]] for i in range(run.kernels)
    )
    streams = tuple(SIDE if i in reduces else MAIN for i in range(run.kernels))
    return _Layout(names, streams, usual, forward, reduces)


class _Plants(NamedTuple):
    """Delays by rank: factor of the kernels; nanoseconds per launch, at the start of a step, and at an all-reduce."""

    slow: NDArray[np.float64]
    launch: NDArray[np.float64]
    start: NDArray[np.float64]
    link: NDArray[np.float64]


def _planted(run: Run, layout: _Layout) -> _Plants:
    zeros = np.zeros(run.ranks)
    plants = _Plants(zeros + 1, zeros.copy(), zeros.copy(), zeros.copy())
    for kind, rank, amount in run.plants:
        delay = amount * layout.step_seconds
        if kind == "gpu":
            plants.slow[rank] += delay / layout.backward_seconds
        elif kind == "node":
            first = rank // PER_HOST * PER_HOST
            plants.slow[first : first + PER_HOST] += delay / layout.backward_seconds
        elif kind == "cpu":
            plants.launch[rank] += delay / layout.forward
        elif kind == "input":
            plants.start[rank] += delay
        elif kind == "network":
            plants.link[rank] += delay
        else:
            raise SystemExit(f"{kind}: unknown kind; use gpu, cpu, input, node or network")
    return plants


def rows(run: Run, ranks: Sequence[int]) -> Iterator[tuple[int, list[tuple[object, ...]]]]:
    """Rank and rows of each rank of the selection and each step, in the order of COLUMNS."""
    for step in steps(run):
        for rank in ranks:
            label = f"epoch1_step{2000 + step.number}-rank{rank}-640_8-640_8"
            begin, finish = int(step.begin[rank]), int(step.finish[rank])
            table = zip(
                step.launches[rank].tolist(), step.names, step.streams, step.starts[rank].tolist(),
                step.ends[rank].tolist(), strict=True,
            )  # fmt: skip
            yield rank, [
                (label, begin, finish, rank % PER_HOST, "cudaLaunchKernel_v7000", launch, launch + LAUNCH // 2, name,
                 stream, start, end, end - start)
                for launch, name, stream, start, end in table
            ]  # fmt: skip


def write_csv(run: Run, folder: Path) -> list[str]:
    """Write a file per rank; their paths."""
    paths = [folder / f"rank{rank:04}.csv" for rank in range(run.ranks)]
    for path in paths:
        path.write_text(",".join(COLUMNS) + "\n")
    for rank, table in rows(run, range(run.ranks)):
        with paths[rank].open("a", newline="") as file:
            csv.writer(file).writerows(table)
    return list(map(str, paths))


def _shapes(path: Path) -> list[tuple[str, float]]:
    with path.open(newline="") as file:
        return [(row["Name"], float(row["Duration"])) for row in csv.DictReader(file)]


def main() -> int:
    """Write a run."""
    parser = argparse.ArgumentParser(description="Simulate the kernels of many ranks with planted delays.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--ranks", type=int, default=960)
    parser.add_argument("--kernels", type=int, default=903)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--plant", action="append", default=[], metavar="KIND:RANK:AMOUNT")
    parser.add_argument(
        "--shapes", type=Path, metavar="CSV", help="kernels of a real step; columns Name, Duration (ns)"
    )
    arguments = parser.parse_args()
    shapes = _shapes(arguments.shapes) if arguments.shapes else ()
    plants = [Plant(kind, int(rank), float(amount)) for kind, rank, amount in (p.split(":") for p in arguments.plant)]
    arguments.folder.mkdir(parents=True, exist_ok=True)
    run = Run(arguments.ranks, arguments.kernels, arguments.steps, plants, shapes=shapes)
    print(f"{len(write_csv(run, arguments.folder))} files in {arguments.folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
