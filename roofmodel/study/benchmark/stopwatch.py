"""How long something takes on this machine: a GPU through torch, or the CPU.

On a GPU the launches are captured into a CUDA graph, so that the host's own time is not measured, and events stand
around each replay. Cold: before each launch a buffer of twice the L2 is read, and what the same graph takes with
nothing but these reads is taken off. It is read rather than written, so that no dirty lines are left, whose way back to
DRAM the measured kernel would pay for. Warm: one launch follows the other, on the same data.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple, Protocol

from roofmodel.errors import WorkloadError, choices
from roofmodel.profiles.kernel import Evidence
from roofmodel.study.benchmark.clocks import Clocks, Reading

WARM_UP = 3  # runs before anything is timed: libraries choose their kernels, clocks rise
REPEATS = 11  # timed, of which the median counts
SHORT = 2e-3  # seconds that a graph of launches should take, so that events and their resolution do not count
LONG = 0.3  # seconds of one run, beyond which fewer are timed
MOST = 20  # launches in a graph
CACHE = 64 * 2**20  # bytes of the last level, where neither the system nor torch tells


class Timing(NamedTuple):
    """Seconds of one run: the median and the least of so many repeats."""

    seconds: float
    least: float
    repeats: int


class Machine(Protocol):
    """What runs and times. `device` is torch's word for it, `evidence` says which it is, `dtypes` are the types that it
    multiplies, `largest` is how many FLOPs and bytes an operation may have for a sweep to take it."""

    device: str
    evidence: Evidence
    framework: str
    dtypes: tuple[str, ...]
    largest: tuple[float, float]

    def time(self, run: Callable[[], object], cold: bool = True) -> Timing:
        """Time a run; `cold` empties the caches before each."""

    def elapsed(self, run: Callable[[], object]) -> float:
        """Seconds from before one run to behind it, with what the host takes where the device waits for it."""

    def read_clocks(self) -> Reading:
        """What the clocks are now, as far as the machine tells."""

    def recover(self) -> None:
        """After a run that failed: free what it held. Raises where the machine does not work any more."""

    def close(self) -> None:
        """Stop what watches it."""


def machine(device: str | None = None) -> Machine:
    """This machine's GPU where torch sees one, else its CPU. Raises WorkloadError where it lacks what is asked for."""
    try:
        import torch
    except ImportError:
        raise WorkloadError("measuring needs torch; pip install torch brings it") from None
    if device not in (None, "cuda", "cpu"):
        raise WorkloadError(f"--device: unknown device {device!r}{choices(str(device), ('cuda', 'cpu'))}")
    sees = torch.cuda.is_available()
    if device == "cuda" and not sees:
        built = torch.version.cuda or torch.version.hip
        why = "torch sees no GPU" if built else f"torch {torch.__version__} is a build without CUDA"
        raise WorkloadError(f"--device cuda: {why}; --device cpu measures the CPU")
    if not sees or device == "cpu":
        return Cpu()
    try:
        return Gpu()
    except RuntimeError as error:
        raise WorkloadError(f"{_unusable(torch, error)}; --device cpu measures the CPU") from None


class Cpu:
    """The CPU, by the host's clock. Cold: a buffer of twice its last cache is read before each run."""

    device = "cpu"
    dtypes: tuple[str, ...] = ("fp32", "bf16")
    largest = (5e8, 2.0**26)

    def __init__(self) -> None:
        import torch

        self.evidence = Evidence(name=cpu_name())
        self.framework = f"torch {torch.__version__}, {torch.get_num_threads()} threads"
        self._caches = torch.ones(2 * _last_cache() // 4)

    def time(self, run: Callable[[], object], cold: bool = True) -> Timing:
        once = min(_host(run) for _ in range(WARM_UP))
        samples = []
        for _ in range(_repeats(once)):
            if cold:
                self._caches.sum()
            samples.append(_host(run))
        return Timing(median(samples), min(samples), len(samples))

    def elapsed(self, run: Callable[[], object]) -> float:
        return _host(run)

    def read_clocks(self) -> Reading:
        return Reading()

    def recover(self) -> None:
        pass

    def close(self) -> None:
        pass


class Gpu:
    """The current CUDA device of torch, on a stream of its own: capturing wants one. `buffer` is how many bytes of it
    the stopwatch takes for itself, to empty the L2 with."""

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
            l2_bytes=getattr(properties, "L2_cache_size", None),  # torch 2.4 does not tell
            dram_bytes=properties.total_memory,
        )
        self.framework = f"torch {torch.__version__}, CUDA {torch.version.cuda}"
        has = {"fp32": (0, 0), "fp16": (7, 0), "bf16": (8, 0), "tf32": (8, 0), "fp8": (8, 9)}
        self.dtypes = tuple(dtype for dtype, since in has.items() if capability >= since)
        self._stream = self._torch.cuda.Stream()
        self.buffer = 2 * (self.evidence.l2_bytes or CACHE)
        self._caches = torch.ones(self.buffer // 4, device="cuda")
        self._clocks = Clocks(str(getattr(properties, "uuid", "") or torch.cuda.current_device()))

    def time(self, run: Callable[[], object], cold: bool = True) -> Timing:
        def flushed() -> None:
            self._flush()
            run()

        self.elapsed(self._flush)
        once = max(min(self.elapsed(run) for _ in range(WARM_UP)), 1e-6)  # on the stream that will capture it
        launches = max(1, min(MOST, int(SHORT / once)))
        graph = self.capture(flushed if cold else run, launches)
        empty = self.capture(self._flush, launches) if cold else None
        samples = []
        try:
            for _ in range(_repeats(once * launches)):
                taken = self.elapsed(graph.replay)
                if empty is not None:  # one beside the other, so that a changing clock changes both
                    taken -= self.elapsed(empty.replay)
                samples.append(taken / launches)
        finally:
            for each in filter(None, (graph, empty)):
                each.reset()
        if median(samples) <= 0:
            raise RuntimeError("too short to be told from the reads that empty the L2")
        return Timing(median(samples), max(min(samples), 0.0), len(samples))

    def elapsed(self, run: Callable[[], object]) -> float:
        self._stream.wait_stream(self._torch.cuda.default_stream())  # where the data was made
        start, end = (self._torch.cuda.Event(enable_timing=True) for _ in range(2))
        with self._torch.cuda.stream(self._stream):
            start.record()
            run()
            end.record()
        end.synchronize()
        return float(start.elapsed_time(end)) / 1e3

    def capture(self, run: Callable[[], object], launches: int) -> Any:
        """A graph of launches. Its outputs are freed as they come, so that each takes the place of the one before."""
        graph = self._torch.cuda.CUDAGraph()
        self._torch.cuda.empty_cache()  # a graph has memory of its own, and what lies in torch's cache is none of it
        with self._torch.cuda.stream(self._stream):
            graph.capture_begin()
            try:
                for _ in range(launches):
                    run()
            except BaseException:
                with suppress(RuntimeError):  # that the capture is broken, which what is raised has told
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
    """Why nothing runs on the GPU that torch sees: a build without code for it, mostly."""
    reason = str(error).splitlines()[0]
    if "no kernel image" not in reason:
        return f"torch sees a GPU that does not work: {reason}"
    major, minor = torch.cuda.get_device_capability()
    return (
        f"torch {torch.__version__} has no code for this GPU, of compute capability {major}.{minor}, but for "
        f"{', '.join(torch.cuda.get_arch_list())}; a V100 wants pip install 'torch<2.11'"
    )


def _host(run: Callable[[], object]) -> float:
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


def _repeats(once: float) -> int:
    """How often to time what takes so long once: at least three times, and three times only where it is long."""
    return max(3, min(REPEATS, int(REPEATS * LONG / max(once, 1e-9))))


def cpu_name() -> str:
    """The processor's name as Linux tells it, else its architecture."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def _last_cache() -> int:
    """Bytes of the CPU's last level of cache."""
    try:
        sizes = [path.read_text().strip() for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size")]
        return max(int(size.removesuffix("K")) * 1024 for size in sizes)
    except (OSError, ValueError):
        return CACHE
