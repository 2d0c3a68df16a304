"""Read a GPU's clocks, power and temperature in the background, through NVIDIA's management library (nvidia-ml-py)."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event, Thread
from typing import NamedTuple

INTERVAL = 0.2  # seconds between two readings


class Reading(NamedTuple):
    """Clocks in MHz, power in watts, temperature in degrees Celsius; None if unknown."""

    sm_mhz: float | None = None
    memory_mhz: float | None = None
    watts: float | None = None
    celsius: float | None = None


class ClockReader:
    """Reads from a GPU (index or UUID) until closed; `last` is the last reading, all None without nvidia-ml-py."""

    def __init__(self, gpu: str) -> None:
        self.last = Reading()
        self._closed = Event()
        self._thread = Thread(target=self._follow, args=(gpu,), daemon=True)  # a hanging driver keeps no process alive
        self._thread.start()

    def _follow(self, gpu: str) -> None:
        try:
            import pynvml
        except ImportError:
            return
        try:
            pynvml.nvmlInit()
            device = (
                pynvml.nvmlDeviceGetHandleByIndex(int(gpu))
                if gpu.isdigit()
                else pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{gpu.removeprefix('GPU-')}")
            )
        except pynvml.NVMLError:
            return

        def value(query: Callable[..., int], *arguments: int) -> int | None:
            try:
                return query(device, *arguments)
            except pynvml.NVMLError:
                return None  # this GPU does not report it

        while not self._closed.wait(INTERVAL):
            milliwatts = value(pynvml.nvmlDeviceGetPowerUsage)
            self.last = Reading(
                value(pynvml.nvmlDeviceGetClockInfo, pynvml.NVML_CLOCK_SM),
                value(pynvml.nvmlDeviceGetClockInfo, pynvml.NVML_CLOCK_MEM),
                None if milliwatts is None else milliwatts / 1e3,
                value(pynvml.nvmlDeviceGetTemperature, pynvml.NVML_TEMPERATURE_GPU),
            )
        pynvml.nvmlShutdown()

    def close(self) -> None:
        """Stop reading."""
        self._closed.set()
        self._thread.join(2.0)
