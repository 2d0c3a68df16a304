"""The command that collects what roof reads, with a reason for each of its parts.

The metrics are those of the device's generation (`profiles.ncu.metric_catalog`). Counts do not depend on the clock and
times do; how clock and caches are left decides what a point can be compared with, so the line always says both.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import Literal, NamedTuple

from roofmodel.devices import library
from roofmodel.errors import DeviceError, Message, Option, Text, WorkloadError, ignored, shorten
from roofmodel.profiles.ncu import metric_catalog

USAGE = "roof ncu-command [--hw HW] -- CMD…, as in: roof ncu-command --hw a100 -- python train.py"


def advice(hw: str | None) -> str:
    """What to say where counters are lacking: the one way to collect them, on this device."""
    if hw and library.load(hw).compute_capability is None:
        return f"counters are read of NVIDIA's GPUs only, so that kernels on {shorten(hw)} have times and no more"
    device = shlex.quote(hw) if hw else "HW"
    return f"to collect what is missing, run the line that `roof ncu-command --hw {device} -- CMD` prints"


class Part(NamedTuple):
    """Words of a command line that belong together, and why they stand in it."""

    words: tuple[str, ...]
    why: str


class Collection(NamedTuple):
    """A command line, part by part, around a program, and the device that it is for."""

    tool: Literal["ncu", "nvprof"]
    parts: tuple[Part, ...]
    program: tuple[str, ...]
    hardware: str
    hardware_from: Literal["given", "assumed"]
    compute_capability: str
    notes: tuple[Text, ...]

    @property
    def command(self) -> tuple[str, ...]:
        """The words of the whole line."""
        return (self.tool, *(word for part in self.parts for word in part.words), *self.program)


def collect(
    program: Sequence[str],
    hw: str | None = None,
    *,
    nvtx: str | None = None,
    skip: int | None = None,
    count: int | None = None,
    nvprof: bool = False,
) -> Collection:
    """The command line around `program` that collects what roof reads on the device `hw` (an A100 where absent).

    `nvtx` limits it to launches within a range, `skip` and `count` to some of them. With `nvprof` it collects no
    counters, only the times of a run as it is in production, on a V100. Raises RoofError: no program, a device
    whose metrics are not known, a number that makes no sense.
    """
    if not program or program[0].startswith("-"):
        what = f"{shorten(program[0])} is no program" if program else "no command to profile was given"
        raise WorkloadError(f"{what}; usage: {USAGE}")
    for option, value, least in (("skip", skip, 0), ("count", count, 1)):
        if value is not None and value < least:
            raise WorkloadError(Option(option, value), f": give a number of launches, {least} or more")
    alias = hw or ("v100" if nvprof else "a100")
    device = library.load(alias)
    generation = device.compute_capability
    if generation not in metric_catalog.CHIPS:
        stated = f"the metrics of compute capability {generation}" if generation else "its compute capability"
        raise DeviceError(
            Option("hw", alias),
            f": {device.id}: {stated} {'are' if generation else 'is'} not known; "
            f"ncu lines are known for compute capabilities {', '.join(metric_catalog.CHIPS)}",
        )
    notes: list[Text] = []
    if not hw:
        notes.append(
            Message("no ", Option("hw"), f": {device.id} ({alias}) is assumed; metric names differ between generations")
        )
    if nvprof:
        parts = _nvprof(generation)
        filters = {"nvtx": nvtx, "skip": skip, "count": count}
        notes += [ignored(name, "nvprof prints every launch") for name, value in filters.items() if value]
    else:
        parts = [*_ncu(generation), *_filter(nvtx, skip, count)]
        if nvtx is None and count is None:
            notes.append(
                Message(
                    "every launch is replayed, which is slow; ",
                    Option("nvtx", "RANGE"),
                    " or ",
                    Option("count", "N"),
                    " limits the launches",
                )
            )
    return Collection(
        tool="nvprof" if nvprof else "ncu",
        parts=tuple(parts),
        program=tuple(program),
        hardware=device.id,
        hardware_from="given" if hw else "assumed",
        compute_capability=generation,
        notes=tuple(notes),
    )


def _ncu(generation: str) -> list[Part]:
    names = [name for group in metric_catalog.collection(generation) for name in group.metrics]
    return [
        Part(
            ("--csv", "--page", "raw"),
            "a row a launch and a column a metric; a report (-o FILE) takes the package ncu-report to read",
        ),
        Part(("--print-units", "base"), "unscaled, so that no digits are lost"),
        Part(("--log-file", "ncu.csv"), "apart from what the program prints"),
        Part(
            ("--metrics", ",".join(names)),
            f"what the roofline needs on compute capability {generation}, at all levels, in fewer passes than a --set:",
        ),
        Part(("--replay-mode", "kernel"), "each kernel runs once a group of counters, its memory restored in between"),
        Part(
            ("--clock-control", "none"),
            "the clock boosts as in production, and the roofs are stated at boost; base repeats better and is slower",
        ),
        Part(
            ("--cache-control", "all"),
            "caches are emptied before each pass, so that operands come from DRAM, as the model counts; "
            "none leaves them in L2 from pass to pass",
        ),
        Part(("--target-processes", "all"), "also the processes that the command starts, as torchrun does"),
        Part(("--nvtx",), "the ranges around a launch are written with it, to group by"),
    ]


def _filter(nvtx: str | None, skip: int | None, count: int | None) -> list[Part]:
    parts = []
    if nvtx is not None:
        pushed = nvtx if any(mark in nvtx for mark in "/[]") else f"{nvtx}/"
        slash = "" if pushed == nvtx else "; the / says that it is pushed and popped, as torch.cuda.nvtx.range does"
        parts.append(Part(("--nvtx-include", pushed), f"only launches within this range{slash}"))
    if skip is not None:
        parts.append(Part(("--launch-skip", str(skip)), "without the first launches, of warm-up and autotuning"))
    if count is not None:
        parts.append(Part(("--launch-count", str(count)), "no more launches than these: each is replayed often"))
    return parts


def _nvprof(generation: str) -> list[Part]:
    if not generation.startswith("7."):
        raise WorkloadError(
            Option("nvprof"),
            f": nvprof does not support compute capability {generation}, only 7.x and before; for times take "
            "Nsight Systems: nsys profile -o times CMD, then nsys export --type sqlite times.nsys-rep",
        )
    return [
        Part(("--print-gpu-trace",), "a line a launch, with its time in production: no counters, no replay"),
        Part(("--csv",), "columns that roof reads"),
        Part(("--normalized-time-unit", "us"), "one unit in every file; otherwise each file has its own"),
        Part(("--log-file", "nvprof.csv"), "apart from what the program prints"),
    ]
