"""Time a call on this machine, on a GPU through torch or on the CPU, and read the clocks of the GPU meanwhile.

On a GPU the launches are captured into a CUDA graph, which excludes host time, and CUDA events time each replay.
Cold L2: each launch follows a read of a buffer of twice the L2 size; the time of a graph with only these reads is
subtracted. A read leaves no dirty lines, whose write-back would slow down the measured kernel. Warm L2: launches follow
each other on the same data. NVIDIA's management library (nvidia-ml-py) tells clocks, power and temperature.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from statistics import median
from threading import Event, Thread
from typing import Any, NamedTuple, Protocol

from roofmodel.errors import Option, WorkloadError
from roofmodel.profiles.kernel import Evidence

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
            device = _handle(pynvml, gpu)
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


def _handle(pynvml: Any, gpu: str) -> Any:
    """NVML's handle of a GPU by its index or UUID."""
    if gpu.isdigit():
        return pynvml.nvmlDeviceGetHandleByIndex(int(gpu))
    return pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{gpu.removeprefix('GPU-')}")


class EnergyMeter:
    """The energy counter and the power limit of a GPU (index or UUID), by NVML.

    Raises WorkloadError without nvidia-ml-py, a driver, or a GPU that counts its energy (Volta or newer).
    """

    def __init__(self, gpu: str) -> None:
        try:
            import pynvml
        except ImportError:
            raise WorkloadError(
                Option("sustained"), " needs NVIDIA's management library; pip install nvidia-ml-py brings it"
            ) from None
        self._nvml: Any = pynvml
        try:
            pynvml.nvmlInit()
            self._device = _handle(pynvml, gpu)
            self.limit_watts = pynvml.nvmlDeviceGetEnforcedPowerLimit(self._device) / 1e3
            self.joules()
        except pynvml.NVMLError as error:
            why = f": this GPU does not report its energy and power limit ({error})"
            raise WorkloadError(Option("sustained"), why) from None

    def joules(self) -> float:
        """Energy since the driver was loaded."""
        return float(self._nvml.nvmlDeviceGetTotalEnergyConsumption(self._device)) / 1e3

    def hertz(self) -> float:
        """The current clock of the SMs."""
        return float(self._nvml.nvmlDeviceGetClockInfo(self._device, self._nvml.NVML_CLOCK_SM)) * 1e6


WARM_UP = 3  # untimed runs: libraries choose their kernels, clocks rise
REPEATS = 11  # timed runs; the result is their median
MIN_GRAPH_SECONDS = 2e-3  # of a graph of launches, so that the resolution of events does not matter
LONG = 0.3  # seconds of a run above which there are fewer repeats
MAX_LAUNCHES = 20  # in a graph
DEFAULT_CACHE = 64 * 2**20  # bytes of the last-level cache if neither the system nor torch states them


class MeasuredTime(NamedTuple):
    """Seconds of one run: median and minimum of the repeats."""

    seconds: float
    least: float
    repeats: int


class Machine(Protocol):
    """A device that runs and times calls.

    `device` is its name in torch, `evidence` its attributes, `dtypes` its GEMM formats, `largest` the maximum FLOPs and
    bytes of an operation in a sweep.
    """

    device: str
    evidence: Evidence
    framework: str
    dtypes: tuple[str, ...]
    largest: tuple[float, float]

    def time(self, run: Callable[[], object], cold: bool = True) -> MeasuredTime:
        """Time a run; `cold` evicts the caches before each repeat."""

    def elapsed(self, run: Callable[[], object]) -> float:
        """Seconds of one run, including host time that the device waits for."""

    def read_clocks(self) -> Reading:
        """The current clocks, as far as known."""

    def recover(self) -> None:
        """Free the memory of a failed run. Raises RuntimeError if the device has stopped working."""

    def close(self) -> None:
        """Stop reading the clocks."""


def machine(device: str | None = None) -> Machine:
    """This machine's GPU if torch finds one, else its CPU. Raises WorkloadError if the requested device is missing."""
    try:
        import torch
    except ImportError:
        raise WorkloadError("measuring needs torch; pip install torch brings it") from None
    has_gpu = torch.cuda.is_available()
    if device == "cuda" and not has_gpu:
        built = torch.version.cuda or torch.version.hip
        why = "torch finds no GPU" if built else f"torch {torch.__version__} is a build without CUDA"
        raise WorkloadError(Option("device", "cuda"), f": {why}; ", Option("device", "cpu"), " measures the CPU")
    if not has_gpu or device == "cpu":
        return Cpu()
    try:
        return Gpu()
    except RuntimeError as error:
        raise WorkloadError(f"{_unusable(torch, error)}; ", Option("device", "cpu"), " measures the CPU") from None


class Cpu:
    """The CPU, timed by the host's clock. Cold: each run follows a read of twice the last-level cache."""

    device = "cpu"
    dtypes: tuple[str, ...] = ("fp32", "bf16")
    largest = (5e8, 2.0**26)

    def __init__(self) -> None:
        import torch

        self.evidence = Evidence(name=cpu_name())
        self.framework = f"torch {torch.__version__}, {torch.get_num_threads()} threads"
        self._caches = torch.ones(2 * _last_cache() // 4)

    def time(self, run: Callable[[], object], cold: bool = True) -> MeasuredTime:
        once = min(_host(run) for _ in range(WARM_UP))
        samples = []
        for _ in range(_repeats(once)):
            if cold:
                self._caches.sum()
            samples.append(_host(run))
        return MeasuredTime(median(samples), min(samples), len(samples))

    def elapsed(self, run: Callable[[], object]) -> float:
        return _host(run)

    def read_clocks(self) -> Reading:
        return Reading()

    def recover(self) -> None:
        pass

    def close(self) -> None:
        pass


class Gpu:
    """The current CUDA device of torch, on a separate stream, which graph capture needs.

    `buffer` is the size in bytes of the memory that evicts the L2 cache.
    """

    device = "cuda"
    largest = (1e12, 2.0**31)

    def __init__(self) -> None:
        import torch

        self._torch: Any = torch
        properties = torch.cuda.get_device_properties(torch.cuda.current_device())
        capability = torch.cuda.get_device_capability()
        self.evidence = Evidence(
            name=properties.name,
            compute_capability=".".join(map(str, capability)),
            multiprocessors=properties.multi_processor_count,
            l2_bytes=getattr(properties, "L2_cache_size", None),  # missing in torch 2.4
            dram_bytes=properties.total_memory,
        )
        self.framework = f"torch {torch.__version__}, CUDA {torch.version.cuda}"
        minimum = {"fp32": (0, 0), "fp16": (7, 0), "bf16": (8, 0), "tf32": (8, 0), "fp8": (8, 9)}
        self.dtypes = tuple(dtype for dtype, since in minimum.items() if capability >= since)
        self._stream = self._torch.cuda.Stream()
        self.buffer = 2 * (self.evidence.l2_bytes or DEFAULT_CACHE)
        self._caches = torch.ones(self.buffer // 4, device="cuda")
        self.id = str(getattr(properties, "uuid", "") or torch.cuda.current_device())
        self._clocks = ClockReader(self.id)

    def time(self, run: Callable[[], object], cold: bool = True) -> MeasuredTime:
        def flushed() -> None:
            self._flush()
            run()

        self.elapsed(self._flush)
        once = max(min(self.elapsed(run) for _ in range(WARM_UP)), 1e-6)  # on the capturing stream
        launches = max(1, min(MAX_LAUNCHES, int(MIN_GRAPH_SECONDS / once)))
        graph = self.capture(flushed if cold else run, launches)
        empty = self.capture(self._flush, launches) if cold else None
        samples = []
        try:
            for _ in range(_repeats(once * launches)):
                duration = self.elapsed(graph.replay)
                if empty is not None:  # right after it, so that a change of the clock affects both
                    duration -= self.elapsed(empty.replay)
                samples.append(duration / launches)
        finally:
            for each in filter(None, (graph, empty)):
                each.reset()
        if median(samples) <= 0:
            raise RuntimeError("too short compared with the reads that evict the L2 cache")
        return MeasuredTime(median(samples), max(min(samples), 0.0), len(samples))

    def elapsed(self, run: Callable[[], object]) -> float:
        self._stream.wait_stream(self._torch.cuda.default_stream())  # which created the data
        start, end = (self._torch.cuda.Event(enable_timing=True) for _ in range(2))
        with self._torch.cuda.stream(self._stream):
            start.record()
            run()
            end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) / 1e3

    def capture(self, run: Callable[[], object], launches: int) -> Any:
        """A CUDA graph of launches. Each output is freed at once, so that the next one reuses its memory."""
        graph = self._torch.cuda.CUDAGraph()
        self._torch.cuda.empty_cache()  # a graph cannot use the memory in torch's cache
        with self._torch.cuda.stream(self._stream):
            graph.capture_begin()
            try:
                for _ in range(launches):
                    run()
            except BaseException:
                with suppress(RuntimeError):  # the failed capture, which the first error already reports
                    graph.capture_end()
                raise
            graph.capture_end()
            graph.replay()
        return graph

    def read_clocks(self) -> Reading:
        return self._clocks.last

    def recover(self) -> None:
        self._torch.cuda.synchronize()
        self._torch.cuda.empty_cache()

    def close(self) -> None:
        self._clocks.close()

    def _flush(self) -> None:
        self._caches.sum()


def _unusable(torch: Any, error: RuntimeError) -> str:
    """Why nothing runs on the GPU: usually this build of torch has no code for it."""
    reason = str(error).splitlines()[0]
    if "no kernel image" not in reason:
        return f"the GPU does not work: {reason}"
    major, minor = torch.cuda.get_device_capability()
    return (
        f"torch {torch.__version__} does not support this GPU (compute capability {major}.{minor}), only "
        f"{', '.join(torch.cuda.get_arch_list())}; for a V100: pip install 'torch<2.11'"
    )


def _host(run: Callable[[], object]) -> float:
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


def _repeats(once: float) -> int:
    """The number of timed runs for a run of `once` seconds: 3 for long ones, up to REPEATS."""
    return max(3, min(REPEATS, int(REPEATS * LONG / max(once, 1e-9))))


def cpu_name() -> str:
    """The processor's name from /proc/cpuinfo, else its architecture."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def _last_cache() -> int:
    """Bytes of the CPU's last-level cache."""
    try:
        sizes = [path.read_text().strip() for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")]
        return max(int(size.removesuffix("K")) * 1024 for size in sizes)
    except (OSError, ValueError):
        return DEFAULT_CACHE
