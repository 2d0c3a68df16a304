"""`roof ncu-command`: the Nsight Compute (or nvprof) command that collects the metrics of a roofline, with reasons.

The metrics depend on the device's generation (`profiles.ncu.metric_catalog`). Times depend on clock and caches, so the
command always sets both explicitly.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

from roofmodel.devices.device import Device, Hardware, device_name
from roofmodel.errors import Command, DeviceError, Message, Option, Text, WorkloadError, ignored, shorten
from roofmodel.options import values
from roofmodel.options.signature import checked
from roofmodel.options.values import OutputFormat, TextFormat
from roofmodel.profiles.kernel import AMD_COUNTERS, Traffic
from roofmodel.profiles.ncu import metric_catalog
from roofmodel.report.base import Result
from roofmodel.report.command import CommandCall, CommandLine
from roofmodel.report.document import Block, Code, Document, Rows
from roofmodel.report.printing import print_rich, print_text, remark, save
from roofmodel.report.table import Column, Table

if TYPE_CHECKING:
    from roofmodel.profiles.kernel import Profile
    from roofmodel.roofline.device import DeviceIdentification

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

    @property
    def line(self) -> str:
        """The command as one line, quoted for a shell."""
        return shlex.join(self.command)

    @property
    def reasons(self) -> list[tuple[str, str]]:
        """Each part of the command with its reason; after --metrics also each group of metrics."""
        reasons = []
        for words, why in self.parts:
            metrics = words[0] == "--metrics"
            reasons.append((words[0] if metrics else " ".join(words), why))
            if metrics and self.compute_capability:
                collected = set(words[1].split(","))
                groups = [*metric_catalog.collection(self.compute_capability), *metric_catalog.diagnosis()]
                groups = [group for group in groups if collected.issuperset(group.metrics)]
                reasons += [(f"  {group.quantity} ({len(group.metrics)})", group.why) for group in groups]
        return reasons


PARTS = Table(
    "why",
    (
        Column("part", "part", meaning="an option with its value"),
        Column("why", "why", wrap=True, meaning="the reason for it"),
    ),
)


def document(collection: Collection) -> Document:
    """The command, and why each part is there."""
    why = [{"part": " ".join(part.words), "why": part.why} for part in collection.parts]

    def data() -> dict[str, Any]:
        """The document `roofmodel.ncu-command/1` or `roofmodel.nsys-command/1`."""
        device = {
            "hardware": collection.hardware,
            "hardware_from": collection.hardware_from,
            "compute_capability": collection.compute_capability,
        }
        return {
            "schema": f"roofmodel.{'nsys' if collection.tool == 'nsys' else 'ncu'}-command/1",
            "command": list(collection.command),
            "why": why,
            **(device if collection.hardware else {}),
            "notes": list(map(str, collection.notes)),
        }

    device = f" for {collection.hardware}" if collection.hardware else ""
    shown = [{"part": part, "why": reason} for part, reason in collection.reasons]
    blocks: list[Block] = [Code(collection.line), Rows(PARTS, shown)]
    return Document(f"{collection.tool} command{device}", blocks, data, lambda: Rows(PARTS, why))


class CollectionCommand(Result):
    """Result of `ncu_command` and `nsys_command`: a command line of a profiler, with a reason for each part."""

    FORMATS: ClassVar[Sequence[str]] = ("line", *Result.FORMATS)

    def __init__(self, collection: Collection) -> None:
        self.collection = collection

    @property
    def line(self) -> str:
        """The command for a shell, in one line."""
        return self.collection.line

    @property
    def reasons(self) -> str:
        """One line per part of the command; one line per group of metrics."""
        width = max(len(part) for part, _ in self.collection.reasons)
        return "".join(f"  {part:<{width}}  {why}\n" for part, why in self.collection.reasons)

    def answer(self) -> Document:
        """The command with its reasons."""
        return document(self.collection)

    def text(self, form: TextFormat) -> str:
        """The text that `--format FORM` prints. Raises RoofError, which lists the formats, for an unknown one."""
        return self.line if form == "line" else super().text(form)

    def _messages(self) -> Iterable[Text]:
        return self.collection.notes

    def __repr__(self) -> str:
        return f"<CollectionCommand {self.line}>"


def print_command(call: CommandCall, form: OutputFormat, output: Sequence[str]) -> None:
    """Print the command on stdout and the reasons of its options on stderr; a table has both."""
    report = call()
    save(report, output)
    if form == "table":
        print_rich(report)
    else:
        print_text(report.text(form))
        sys.stderr.write(report.reasons)
    remark(report)


FORMATS = ("line", "table", *Result.FORMATS)


def collect(
    program: Sequence[str],
    hw: Hardware | None = None,
    *,
    nvtx: str | None = None,
    skip: int | None = None,
    count: int | None = None,
    nvprof: bool = False,
    kernel: str | None = None,
    why: bool = False,
) -> Collection:
    """The command that profiles `program` on the device `hw` (default: a100) and collects the metrics of a roofline.

    `nvtx` limits it to launches within a range, `skip` and `count` to a number of launches. `nvprof` collects only
    times, without replay, on a V100. `why` adds what every reason for a
    kernel's time needs. Raises RoofError for a missing program, a device with unknown metrics, or an
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
        filters = {"nvtx": nvtx, "skip": skip, "count": count, "kernel": kernel, "why": why}
        notes += [ignored(name, "nvprof prints all launches") for name, value in filters.items() if value]
    else:
        parts = [*_ncu(generation, why), *_filter(nvtx, skip, count, kernel)]
        if nvtx is None and count is None and kernel is None:
            notes.append(
                Message(
                    "all launches are replayed, which is slow; limit them with ",
                    Option("nvtx", "RANGE"),
                    ", ",
                    Option("kernel", "NAME"),
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


def _ncu(generation: str, why: bool) -> list[CommandOption]:
    groups = [*metric_catalog.collection(generation), *(metric_catalog.diagnosis() if why else ())]
    names = [name for group in groups for name in group.metrics]
    sections = [*metric_catalog.SECTIONS, *([metric_catalog.PIPES] if why else ())]
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
        *(CommandOption(("--section", section.name), section.why) for section in sections),
        CommandOption(
            ("--replay-mode", "kernel"),
            "each kernel runs once per group of counters (ncu prints the number of passes); its memory is restored in "
            "between",
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


def _filter(nvtx: str | None, skip: int | None, count: int | None, kernel: str | None) -> list[CommandOption]:
    parts = []
    if kernel is not None:
        parts.append(
            CommandOption(("--kernel-name", f"regex:{kernel}"), "only kernels whose name has this regular expression")
        )
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


@checked
def ncu_command(
    program: Iterable[str] = (),
    hw: Hardware | None = None,
    *,
    nvtx: str | None = None,
    skip: int | None = None,
    count: int | None = None,
    nvprof: bool = False,
    kernel: str | None = None,
    why: bool = False,
) -> CollectionCommand:
    """Write the ncu command that collects the metrics for a roofline.

    Raises RoofError for a device whose metrics are unknown.

    Args:
        program: The program to profile.
        hw: The device on which the program runs (default: a100).
        nvtx: Profile only launches in this NVTX range.
        skip: Number of launches to skip at the start.
        count: Largest number of launches to profile.
        nvprof: Print an nvprof command instead, for times on a V100.
        kernel: Profile only kernels whose name has this regular expression.
        why: Collect every counter that a reason for a kernel's time needs, for `roof kernels`.

    Examples:
        >>> ncu_command(["python", "train.py"], "a100", count=10).line.startswith("ncu --csv --page raw")
        True
    """
    words = values.words("program", program)
    return CollectionCommand(
        collect(words, hw, nvtx=nvtx, skip=skip, count=count, nvprof=nvprof, kernel=kernel, why=why)
    )


COMMAND = CommandLine(
    ncu_command,
    formats=FORMATS,
    settings={"program": {"metavar": "-- CMD…"}},
    context={"allow_interspersed_args": False},
    run=print_command,
    about="Print the ncu command that collects the metrics for a roofline; its parts are explained on stderr.",
    examples=(
        "roof ncu-command --hw a100 -- python train.py",
        "roof ncu-command --hw h100 --nvtx decode --count 200 -- python serve.py",
        "roof ncu-command --hw h100 --why --kernel gemm --count 5 -- python serve.py",
        "roof ncu-command --nvprof -- python train.py",
    ),
)


def collection_warnings(
    profile: Profile, hw: Hardware | None, identification: DeviceIdentification | None
) -> list[Text]:
    """How to collect counters that an ncu profile lacks; empty if it lacks none."""
    from roofmodel.roofline import points

    device = identification and identification.device
    supported = device is None or device.compute_capability in metric_catalog.CHIPS
    if profile.tool != "ncu" or not supported:
        return []
    needed = ("seconds", *Traffic._fields, "fp64", "fp32", "fp16")
    if not any(None in profile.kernels.cells(name) for name in needed) and not any(
        points.incomplete(kernel.flops, device) for kernel in points.group(profile.kernels, "name")
    ):
        return []
    return [collection_advice(hw or (identification and identification.known_name))]
