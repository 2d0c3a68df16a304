"""The parts of a collection, in the order of what is missed most, and how one is run.

Each is a command that writes its own files as it goes; exit status 3 says that it does not apply here, and why, in the
last line of what it prints.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

SKIPPED = 3
GRACE = 20  # seconds that a part has to write what it holds, once it is told to end
PYTHON = (sys.executable, "-m")


class Part(NamedTuple):
    """A name, a command, and the seconds that it may take."""

    name: str
    command: tuple[str, ...]
    limit: float


class Outcome(NamedTuple):
    """`done`, `skipped`, `failed` or `cut off`; how long it took; and in a line, why."""

    status: str
    seconds: float
    message: str = ""


def parts(folder: Path, small: bool) -> list[Part]:
    """All parts, writing into the folder; `small` is for trying them out, on a CPU too."""
    size = ("--small",) if small else ()

    def kit(module: str, *arguments: str) -> tuple[str, ...]:
        return (*PYTHON, f"benchmarks.collect.{module}", str(folder), *arguments, *size)

    def measure(name: str, seconds: int, *options: str) -> Part:
        budget = 2 if small else seconds
        table = str(folder / f"{name}.csv")
        command = (*PYTHON, "roofmodel", "measure", "-o", table, "--budget", str(budget), *options)
        return Part(name, command, budget + 40)

    model = "gpt2" if small else "gpt2-xl"
    return [
        Part("environment", kit("environment"), 30),
        Part("ceilings", kit("ceilings"), 70),
        measure("operators-cold", 100),
        Part("model-gpt2-xl", kit("whole_models", "gpt2-xl"), 80),
        Part("ncu-prefill", kit("ncu", "gpt2-xl", "prefill"), 75),
        measure("operators-warm", 30, "--l2", "warm"),
        Part("model-llama", kit("whole_models", "llama"), 60),
        measure("operators-gpt2-xl", 15, "--model", model, *(("--seq", "16") if small else ())),
        Part("model-bert-large", kit("whole_models", "bert-large"), 45),
        Part("model-resnet-50", kit("whole_models", "resnet-50"), 45),
        Part("ncu-decode", kit("ncu", "gpt2-xl", "decode"), 60),
        Part("ncu-train", kit("ncu", "gpt2-xl", "train"), 110),
    ]


def run(part: Part, log: Path, seconds: float) -> Outcome:
    """Run a part for as long as it may take, but no longer than so many seconds; what it prints goes into a log.

    It is told to end first, so that it writes what it holds, and is killed where it does not listen. An interruption
    of ours is handed on in the same way, and raised again.
    """
    begin, limit = time.monotonic(), min(part.limit, seconds)
    with log.open("wb") as out:
        process = subprocess.Popen(part.command, stdout=out, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            status = process.wait(limit)
        except subprocess.TimeoutExpired:
            _end(process)
            return Outcome("cut off", time.monotonic() - begin, f"after {limit:.0f} s; what it had written stays")
        except KeyboardInterrupt:
            _end(process)
            raise
    took = time.monotonic() - begin
    lines = [line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    last = lines[-1].strip() if lines else f"exit status {status}, and not a word"
    if status == 0:
        return Outcome("done", took)
    return Outcome("skipped" if status == SKIPPED else "failed", took, last[:300])


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process and those that it has started."""
    for name in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, name)
            process.wait(GRACE)
            return
        except subprocess.TimeoutExpired:
            continue
        except ProcessLookupError:
            return
