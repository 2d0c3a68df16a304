"""The parts of a collection, in the order of what is missed most, and how one is run.

Each is a command that writes its own files as it goes; exit status 3 says that it does not apply here, and why, in the
last line of what it prints.
"""

from __future__ import annotations

import ctypes
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

SKIPPED = 3
GRACE = 10  # seconds that a part has to write what it holds, once it is told to end
PYTHON = (sys.executable, "-m")
PR_SET_PDEATHSIG = 1  # of Linux's prctl
_C = ctypes.CDLL(None)
_WHY = re.compile(r"error: |[\w.]+(Error|Exception)\b")  # how roof's and Python's own messages begin


class Part(NamedTuple):
    """A name, a command, and the seconds that it may take."""

    name: str
    command: tuple[str, ...]
    limit: float


class Outcome(NamedTuple):
    """`done`, `skipped`, `failed`, `cut off`, or `begun`; how long it took; in a line, why; and when it began, in
    local time as in `clocks.csv`."""

    status: str
    seconds: float
    message: str = ""
    began: str = ""


def parts(folder: Path, small: bool) -> list[Part]:
    """All parts, writing into the folder; `small` is for trying them out, on a CPU too."""
    size = ("--small",) if small else ()

    def kit(module: str, *arguments: str) -> tuple[str, ...]:
        return (*PYTHON, f"benchmarks.collect.{module}", str(folder), *arguments, *size)

    on = () if small else ("--device", "cuda")  # nobody wants the CPU's figures by mistake

    def measure(name: str, seconds: int, *options: str) -> Part:
        budget = 2 if small else seconds
        table = str(folder / f"{name}.csv")
        command = (*PYTHON, "roofmodel", "measure", "-o", table, "--budget", str(budget), *on, *options)
        return Part(name, command, budget + 40)

    model = "gpt2" if small else "gpt2-xl"
    return [
        Part("environment", kit("environment"), 80),
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
        process = subprocess.Popen(
            part.command, stdout=out, stderr=subprocess.STDOUT, start_new_session=True, preexec_fn=end_with_parent
        )
        try:
            try:
                status = process.wait(limit)
            except subprocess.TimeoutExpired:
                _end(process)
                return Outcome("cut off", time.monotonic() - begin, f"after {limit:.0f} s; what it had written stays")
        except BaseException:
            _end(process)
            raise
    took = time.monotonic() - begin
    if status == 0:
        return Outcome("done", took)
    lines = [line.strip() for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    if status == SKIPPED and lines:
        return Outcome("skipped", took, lines[-1][:300])
    if status < 0:
        after = f", after: {lines[-1]}" if lines else ""
        return Outcome("failed", took, f"ended by signal {-status} ({signal.strsignal(-status)}){after[:250]}")
    return Outcome("failed", took, (reason(lines) or f"exit status {status}, and not a word")[:300])


def reason(lines: list[str]) -> str:
    """The line that says why: that of the last error, whose message may go on over lines of advice, else the last."""
    return next((line for line in reversed(lines) if _WHY.match(line)), lines[-1] if lines else "")


def end_with_parent() -> None:
    """In a child, before it begins: Linux is to end it when its parent is gone, as one that was killed is."""
    with suppress(AttributeError):
        _C.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def put(file: Path, text: str) -> None:
    """A text, written beside its place and renamed: never half a file."""
    beside = file.with_name(f"{file.name}.part")
    beside.write_text(text, encoding="utf-8")
    beside.replace(file)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process and those that it has started, which may have more to write than it has."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
        end = time.monotonic() + GRACE
        while time.monotonic() < end:
            process.poll()
            os.killpg(process.pid, 0)  # is anybody left?
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGKILL)
    with suppress(subprocess.TimeoutExpired):  # it hangs in a driver, and is left behind
        process.wait(GRACE)
