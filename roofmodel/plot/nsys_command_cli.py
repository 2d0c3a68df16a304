"""`roof nsys-command`: the Nsight Systems command line that records a run."""

from __future__ import annotations

from roofmodel.plot.api import nsys_command
from roofmodel.plot.ncu_command_cli import print_command
from roofmodel.report.command import command

app = command(
    nsys_command,
    formats=("line", "json"),
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
