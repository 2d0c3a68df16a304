"""The parts of a collection, most important first, and the function that runs one.

Each part is a command that writes its files as it runs. Exit status 3 means that it does not apply; the last line of
its output is the reason.
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
GRACE = 10  # seconds between the signal to end and the kill
PYTHON = (sys.executable, "-m")
PR_SET_PDEATHSIG = 1  # of Linux's prctl
_C = ctypes.CDLL(None)
_ERROR_PREFIXES = re.compile(r"error: |[\w.]+(Error|Exception)\b")  # beginnings of error messages


class KitPart(NamedTuple):
    """A name, a command, and the seconds that it may take."""

    name: str
    command: tuple[str, ...]
    limit: float


class Outcome(NamedTuple):
    """The status (`done`, `skipped`, `failed`, `cut off` or `begun`), the seconds, the reason in a line, and the start
    in local time, as in `clocks.csv`."""

    status: str
    seconds: float
    message: str = ""
    began: str = ""


def parts(folder: Path, small: bool) -> list[KitPart]:
    """All parts, which write into the folder; `small` is for trials, also on a CPU."""
    size = ("--small",) if small else ()

    def kit(module: str, *arguments: str) -> tuple[str, ...]:
        return (*PYTHON, f"benchmarks.collect.{module}", str(folder), *arguments, *size)

    on = () if small else ("--device", "cuda")  # never the CPU by mistake

    def measure(name: str, seconds: int, *options: str) -> KitPart:
        budget = 2 if small else seconds
        table = str(folder / f"{name}.csv")
        command = (*PYTHON, "roofmodel", "measure", "-o", table, "--budget", str(budget), *on, *options)
        return KitPart(name, command, budget + 40)

    model = "gpt2" if small else "gpt2-xl"
    return [
        KitPart("environment", kit("environment"), 80),
        KitPart("ceilings", kit("ceilings"), 70),
        KitPart("model-gpt2-xl", kit("whole_models", "gpt2-xl"), 80),
        KitPart("model-llama", kit("whole_models", "llama"), 75),
        KitPart("model-mixture", kit("whole_models", "mixture"), 75),
        KitPart("streams", kit("streams"), 45),
        KitPart("ncu-prefill", kit("ncu", "gpt2-xl", "prefill"), 75),
        measure("operators-cold", 80),
        KitPart("layouts", kit("layouts"), 100),
        KitPart("findings", kit("findings"), 200),
        KitPart("compiled-gpt2-xl", kit("whole_models", "gpt2-xl", "--compile"), 90),
        KitPart("ncu-decode", kit("ncu", "gpt2-xl", "decode"), 60),
        KitPart("compiled-llama", kit("whole_models", "llama", "--compile"), 80),
        measure("operators-warm", 30, "--l2", "warm"),
        measure("operators-gpt2-xl", 15, "--model", model, *(("--seq", "16") if small else ())),
        KitPart("model-bert-large", kit("whole_models", "bert-large"), 45),
        KitPart("model-resnet-50", kit("whole_models", "resnet-50"), 45),
    ]


def run(part: KitPart, log: Path, seconds: float) -> Outcome:
    """Run a part for its budget, at most `seconds`; its output goes to a log.

    At the end of the time the part gets SIGTERM, so that it can write its data, and SIGKILL after GRACE seconds. An
    interruption of this process ends the part in the same way and is raised again.
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
                return Outcome("cut off", time.monotonic() - begin, f"after {limit:.0f} s; its results so far remain")
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
    return Outcome("failed", took, (reason(lines) or f"exit status {status}, no output")[:300])


def reason(lines: list[str]) -> str:
    """The line with the reason of a failure: the last error message, else the last line."""
    return next((line for line in reversed(lines) if _ERROR_PREFIXES.match(line)), lines[-1] if lines else "")


def end_with_parent() -> None:
    """Called in the child: Linux ends it when its parent ends, even if the parent is killed."""
    with suppress(AttributeError):
        _C.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def write_text(file: Path, text: str) -> None:
    """Write a text to a temporary file and rename it, so that no partial file remains."""
    temporary = file.with_name(f"{file.name}.part")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(file)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process and its children; they first get GRACE seconds to write their data."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
        end = time.monotonic() + GRACE
        while time.monotonic() < end:
            process.poll()
            os.killpg(process.pid, 0)  # raises ProcessLookupError after the group has ended
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGKILL)
    with suppress(subprocess.TimeoutExpired):  # it hangs in a driver call and cannot be ended
        process.wait(GRACE)
