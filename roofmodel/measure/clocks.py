"""Read a GPU's clocks, power and temperature from nvidia-smi in the background."""

from __future__ import annotations

import shutil
import subprocess
from contextlib import suppress
from threading import Thread
from typing import Any, NamedTuple

INTERVAL = 200  # milliseconds between two readings
TIMEOUT = 2.0  # seconds to wait for the end of nvidia-smi
_QUERY = "clocks.sm,clocks.mem,power.draw,temperature.gpu"


class Reading(NamedTuple):
    """Clocks in MHz, power in watts, temperature in degrees Celsius; None if unknown."""

    sm_mhz: float | None = None
    memory_mhz: float | None = None
    watts: float | None = None
    celsius: float | None = None


class ClockReader:
    """Reads from a GPU (index or UUID) until closed. `last` is the last reading, all None without nvidia-smi."""

    def __init__(self, gpu: str) -> None:
        self.last = Reading()
        self._process: subprocess.Popen[str] | None = None
        if not shutil.which("nvidia-smi"):
            return
        name = gpu if gpu.isdigit() or gpu.startswith("GPU-") else f"GPU-{gpu}"
        command = [
            "nvidia-smi",
            "-i",
            name,
            f"--query-gpu={_QUERY}",
            "--format=csv,noheader,nounits",
            f"-lms={INTERVAL}",
        ]
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
            self._thread.join(TIMEOUT)


def end(process: subprocess.Popen[Any]) -> None:
    """End a process; kill it if it does not end. A process that hangs in a driver is left running."""
    for stop in (process.terminate, process.kill):
        stop()
        with suppress(subprocess.TimeoutExpired):
            process.wait(TIMEOUT)
            return


def parse(line: str) -> Reading:
    """A line of nvidia-smi such as `1980, 2619, 412.33, 61`; cells such as `[N/A]` become None."""
    values = [_number(cell) for cell in line.split(",")]
    return Reading(*values) if len(values) == len(Reading._fields) else Reading()


def _number(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:
        return None
