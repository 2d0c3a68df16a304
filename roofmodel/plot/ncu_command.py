"""The Nsight Compute (or nvprof) command that collects the metrics of a roofline, with the reason for each part.

The metrics depend on the device's generation (`profiles.ncu.metric_catalog`). Times depend on clock and caches, so the
command always sets both explicitly.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence
from typing import Literal, NamedTuple

from roofmodel.devices.device import Device, Hardware, device_name
from roofmodel.errors import Command, DeviceError, Message, Option, Text, WorkloadError, ignored, shorten
from roofmodel.profiles.kernel import AMD_COUNTERS
from roofmodel.profiles.ncu import metric_catalog

EXAMPLE = Command(
    "roof ncu-command --hw a100 -- python train.py", 'roofmodel.ncu_command(["python", "train.py"], "a100")'
)


def collection_advice(hw: Hardware | None) -> Text:
    """How to collect missing counters on a device. A device file has only its name: its folder may name a person."""
    name = os.path.basename(device_name(hw)) if hw else "HW"
    device = Device.load(hw) if hw else None
    if device and device.vendor == "AMD":
        return f"to collect the missing metrics, run {AMD_COUNTERS}"
    if device and device.compute_capability is None:
        return f"counters of NVIDIA and AMD GPUs only are read; kernels on {shorten(name)} have times only"
    command = Command(f"`roof ncu-command --hw {shlex.quote(name)} -- CMD`", f"`roofmodel.ncu_command(CMD, {name!r})`")
    return Message("to collect the missing metrics, run the command of ", command)


class CommandOption(NamedTuple):
    """An option of the command with its value, and the reason for it."""

    words: tuple[str, ...]
    why: str


class Collection(NamedTuple):
    """A profiler command with its options, the program to profile, and the device (None: the same on all devices)."""

    tool: Literal["ncu", "nvprof", "nsys"]
    parts: tuple[CommandOption, ...]
    program: tuple[str, ...]
    hardware: str | None
    hardware_from: Literal["given", "assumed"] | None
    compute_capability: str | None
    notes: tuple[Text, ...]

    @property
    def command(self) -> tuple[str, ...]:
        """The words of the complete command."""
        return (self.tool, *(word for part in self.parts for word in part.words), *self.program)


def collect(
    program: Sequence[str],
    hw: Hardware | None = None,
    *,
    nvtx: str | None = None,
    skip: int | None = None,
    count: int | None = None,
    nvprof: bool = False,
) -> Collection:
    """The command that profiles `program` on the device `hw` (default: a100) and collects the metrics of a roofline.

    `nvtx` limits it to launches within a range, `skip` and `count` to a number of launches. `nvprof` collects only
    times, without replay, on a V100. Raises RoofError for a missing program, a device with unknown metrics, or an
    invalid number.
    """
    if not program or program[0].startswith("-"):
        problem = f"{shorten(program[0])} is not a program" if program else "no program to profile was given"
        raise WorkloadError(f"{problem}; give its words, as in: ", EXAMPLE)
    for option, value, least in (("skip", skip, 0), ("count", count, 1)):
        if value is not None and value < least:
            raise WorkloadError(Option(option, value), f": expected a number of launches, {least} or more")
    chosen = hw or ("v100" if nvprof else "a100")
    device, alias = Device.load(chosen), device_name(chosen)
    generation = device.compute_capability
    if generation not in metric_catalog.CHIPS:
        problem = f"metrics of compute capability {generation} are not known" if generation else "no compute capability"
        raise DeviceError(
            Option("hw", alias),
            f": {problem}; metrics are known for compute capabilities {', '.join(metric_catalog.CHIPS)}",
        )
    notes: list[Text] = []
    if not hw:
        notes.append(
            Message("without ", Option("hw"), f", {device.id} ({alias}) is assumed; metric names differ by generation")
        )
    if nvprof:
        parts = _nvprof(generation)
        filters = {"nvtx": nvtx, "skip": skip, "count": count}
        notes += [ignored(name, "nvprof prints all launches") for name, value in filters.items() if value]
    else:
        parts = [*_ncu(generation), *_filter(nvtx, skip, count)]
        if nvtx is None and count is None:
            notes.append(
                Message(
                    "all launches are replayed, which is slow; limit them with ",
                    Option("nvtx", "RANGE"),
                    " or ",
                    Option("count", "N"),
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


def _ncu(generation: str) -> list[CommandOption]:
    names = [name for group in metric_catalog.collection(generation) for name in group.metrics]
    return [
        CommandOption(
            ("--csv", "--page", "raw"),
            "one row per launch, one column per metric; to read a report (-o FILE), roof needs the package ncu-report",
        ),
        CommandOption(("--print-units", "base"), "unscaled values, without rounding"),
        CommandOption(("--log-file", "ncu.csv"), "a separate file from the program's output"),
        CommandOption(
            ("--metrics", ",".join(names)),
            f"for the roofline on compute capability {generation}, all memory levels, fewer passes than with --set:",
        ),
        CommandOption(
            ("--replay-mode", "kernel"),
            "each kernel runs once per group of counters; its memory is restored in between",
        ),
        CommandOption(
            ("--clock-control", "none"),
            "run at the boost clock, as in production and for the ceilings; the value base is slower but reproducible",
        ),
        CommandOption(
            ("--cache-control", "all"),
            "flush caches before each pass, so that operands come from DRAM, as in the model's count; the value none "
            "keeps them in L2",
        ),
        CommandOption(("--target-processes", "all"), "profile child processes, too, such as the ranks of torchrun"),
        CommandOption(("--nvtx",), f"record the NVTX ranges of each launch, for {Option('by', 'nvtx')}"),
    ]


def _filter(nvtx: str | None, skip: int | None, count: int | None) -> list[CommandOption]:
    parts = []
    if nvtx is not None:
        pushed = nvtx if any(mark in nvtx for mark in "/[]") else f"{nvtx}/"
        slash = "" if pushed == nvtx else "; the / selects push/pop ranges, which torch.cuda.nvtx.range makes"
        parts.append(CommandOption(("--nvtx-include", pushed), f"only launches in this range{slash}"))
    if skip is not None:
        parts.append(CommandOption(("--launch-skip", str(skip)), "skip the first launches: warm-up and autotuning"))
    if count is not None:
        parts.append(
            CommandOption(
                ("--launch-count", str(count)), "at most this many launches, because each is replayed several times"
            )
        )
    return parts


def _nvprof(generation: str) -> list[CommandOption]:
    if not generation.startswith("7."):
        raise WorkloadError(
            Option("nvprof"),
            f": nvprof supports compute capability 7.x and lower, not {generation}; collect times with Nsight Systems: "
            "nsys profile -o times CMD, then nsys export --type sqlite times.nsys-rep",
        )
    return [
        CommandOption(("--print-gpu-trace",), "one line per launch with its time; no counters, no replay"),
        CommandOption(("--csv",), "the format that roof reads"),
        CommandOption(("--normalized-time-unit", "us"), "the same unit in all files; by default it varies"),
        CommandOption(("--log-file", "nvprof.csv"), "a separate file from the program's output"),
    ]
