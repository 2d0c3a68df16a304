"""The Nsight Systems command that records a run for `roof trace` and `roof jitter`, with the reason for each part."""

from __future__ import annotations

from collections.abc import Sequence

from roofmodel.errors import Command, Message, Option, Text, WorkloadError, shorten
from roofmodel.plot.ncu_command import Collection, CommandOption

EXAMPLE = Command("roof nsys-command -- python train.py", 'roofmodel.nsys_command(["python", "train.py"])')


def collect(
    program: Sequence[str], *, nvtx: str | None = None, profiler_api: bool = False, gpu_metrics: bool = False
) -> Collection:
    """The command that records a run of `program` and exports it to SQLite.

    `nvtx` records only a range, `profiler_api` only what is between cudaProfilerStart and cudaProfilerStop;
    `gpu_metrics` samples clocks. Raises WorkloadError for a missing program and for both ways to limit the recording.
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
    if gpu_metrics:
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
