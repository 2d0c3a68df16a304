"""A GPU's clocks, power and temperature while something runs there, as nvidia-smi prints them."""

from __future__ import annotations

import shutil
import subprocess
from contextlib import suppress
from threading import Thread
from typing import Any, NamedTuple

EVERY = 200  # milliseconds between two readings
PATIENCE = 2.0  # seconds that nvidia-smi has to end
_QUERY = "clocks.sm,clocks.mem,power.draw,temperature.gpu"


class Reading(NamedTuple):
    """MHz, MHz, watts, degrees Celsius; None where the machine does not tell."""

    sm_mhz: float | None = None
    memory_mhz: float | None = None
    watts: float | None = None
    celsius: float | None = None


class Clocks:
    """Watches a GPU, by index or UUID, until it is closed. `last` is the last reading, empty without nvidia-smi."""

    def __init__(self, gpu: str) -> None:
        self.last = Reading()
        self._process: subprocess.Popen[str] | None = None
        if not shutil.which("nvidia-smi"):
            return
        name = gpu if gpu.isdigit() or gpu.startswith("GPU-") else f"GPU-{gpu}"
        command = ["nvidia-smi", "-i", name, f"--query-gpu={_QUERY}", "--format=csv,noheader,nounits", f"-lms={EVERY}"]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self._thread = Thread(target=self._follow, args=(self._process,), daemon=True)
        self._thread.start()

    def _follow(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        with process.stdout:
            for line in process.stdout:
                self.last = parse(line)

    def close(self) -> None:
        if self._process is not None:
            end(self._process)
            self._thread.join(PATIENCE)


def end(process: subprocess.Popen[Any]) -> None:
    """End a process, which may not listen, or hang in a driver: then it is left behind."""
    for ask in (process.terminate, process.kill):
        ask()
        with suppress(subprocess.TimeoutExpired):
            process.wait(PATIENCE)
            return


def parse(line: str) -> Reading:
    """One line of nvidia-smi: `1980, 2619, 412.33, 61`; `[N/A]` and the like are None."""
    values = [_number(cell) for cell in line.split(",")]
    return Reading(*values) if len(values) == len(Reading._fields) else Reading()


def _number(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:
        return None
