"""`roof nsys-command`: the Nsight Systems command that records a run for `trace` and `jitter`, with reasons."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from roofmodel.errors import Command, Message, Option, Text, WorkloadError, shorten
from roofmodel.options import values
from roofmodel.options.signature import checked
from roofmodel.plot.ncu_command import FORMATS, Collection, CollectionCommand, CommandOption, print_command
from roofmodel.report.command import CommandLine

EXAMPLE = Command("roof nsys-command -- python train.py", 'roofmodel.nsys_command(["python", "train.py"])')


def collect(
    program: Sequence[str],
    *,
    nvtx: str | None = None,
    profiler_api: bool = False,
    gpu_metrics: bool = False,
    why: bool = False,
) -> Collection:
    """The command that records a run of `program` and exports it to SQLite.

    `nvtx` records only a range, `profiler_api` only what is between cudaProfilerStart and cudaProfilerStop;
    `gpu_metrics` samples clocks, `why` also records what else can make a run slow.
    Raises WorkloadError for a missing program and for both ways to limit the recording.
    """
    if not program or program[0].startswith("-"):
        problem = f"{shorten(program[0])} is not a program" if program else "no program to profile was given"
        raise WorkloadError(f"{problem}; give its words, as in: ", EXAMPLE)
    if nvtx is not None and profiler_api:
        raise WorkloadError(Option("nvtx"), " contradicts ", Option("profiler_api"), ": nsys has one capture range")
    parts = [
        CommandOption(("profile",), "record a run: kernels, copies, CUDA calls and ranges, without replay"),
        CommandOption(
            ("--trace", "cuda,nvtx,osrt,cublas,cudnn"),
            "CUDA calls tell why the GPU idles, NVTX ranges mark steps (`step 5`), osrt shows blocked threads",
        ),
        CommandOption(("--cuda-graph-trace", "node"), "the kernels of CUDA graphs, instead of one bar for each graph"),
        CommandOption(("--sample", "none"), "no samples of the CPU's call stacks: they make launches slower"),
        CommandOption(("--cpuctxsw", "none"), "no context switches, for the same reason"),
    ]
    if nvtx is not None:
        parts += [
            CommandOption(("--capture-range", "nvtx"), "record only within a range, after warm-up and autotuning"),
            CommandOption(("--nvtx-capture", nvtx), "this range, from its first push on"),
            CommandOption(
                ("--env-var", "NSYS_NVTX_PROFILER_REGISTER_ONLY=0"),
                "names that are not registered strings, such as those of torch.cuda.nvtx",
            ),
        ]
    if profiler_api:
        parts.append(
            CommandOption(
                ("--capture-range", "cudaProfilerApi"),
                "record only between torch.cuda.profiler.start() and stop(), for a few steps after the warm-up",
            )
        )
    if nvtx is not None or profiler_api:
        parts.append(CommandOption(("--capture-range-end", "stop"), "the program goes on after the range"))
    if why:
        parts += [
            CommandOption(("--cuda-um-gpu-page-faults", "true"), "page faults of managed memory on the GPU"),
            CommandOption(("--cuda-um-cpu-page-faults", "true"), "the same on the CPU"),
        ]
    if gpu_metrics or why:
        parts.append(
            CommandOption(("--gpu-metrics-devices", "all"), "clocks and power: `roof jitter` compares the GPUs")
        )
    parts += [
        CommandOption(("--output", "run_%h_%p"), "a file for each host and started process; each GPU in it is a rank"),
        CommandOption(("--force-overwrite", "true"), "replace the files of an earlier run"),
        CommandOption(
            ("--export", "sqlite"),
            "the format that roof reads; to convert an existing report: nsys export --type sqlite FILE",
        ),
    ]
    notes: list[Text] = []
    if nvtx is None and not profiler_api:
        notes.append(
            Message(
                "the whole program is recorded; limit it to some steps with ", Option("nvtx", "RANGE"), " or ",
                Option("profiler_api"),
            )
        )  # fmt: skip
    return Collection("nsys", tuple(parts), tuple(program), None, None, None, tuple(notes))


@checked
def nsys_command(
    program: Iterable[str] = (),
    *,
    nvtx: str | None = None,
    profiler_api: bool = False,
    gpu_metrics: bool = False,
    why: bool = False,
) -> CollectionCommand:
    """Write the Nsight Systems command that records a run for `trace` and `jitter`, and exports it to SQLite.

    Args:
        program: The program to profile.
        nvtx: Record only this NVTX range.
        profiler_api: Record only between cudaProfilerStart and cudaProfilerStop (torch.cuda.profiler.start and stop).
        gpu_metrics: Sample clocks and power of all GPUs, too.
        why: Record everything that can make a run slow: the samples of gpu_metrics, and page faults of managed memory.

    Examples:
        >>> nsys_command(["python", "train.py"], nvtx="step 10").line.startswith("nsys profile --trace cuda,nvtx")
        True
    """
    words = values.words("program", program)
    return CollectionCommand(collect(words, nvtx=nvtx, profiler_api=profiler_api, gpu_metrics=gpu_metrics, why=why))


COMMAND = CommandLine(
    nsys_command,
    formats=FORMATS,
    settings={"program": {"metavar": "-- CMD…"}},
    context={"allow_interspersed_args": False},
    run=print_command,
    about="Print the nsys command that records a run for trace and jitter; its parts are explained on stderr.",
    examples=(
        "roof nsys-command -- torchrun --nproc-per-node 4 train.py",
        "roof nsys-command --nvtx 'step 10' -- python train.py",
        "roof nsys-command --profiler-api --gpu-metrics -- python train.py",
    ),
)
