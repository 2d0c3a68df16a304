"""Timing on the CPU by real runs, and on a GPU with a test double of torch that simulates the clock."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from roofmodel.errors import WorkloadError
from roofmodel.measure import stopwatch

pytest.importorskip("torch", reason="measuring needs torch: pip install 'roofmodel[torch]'")


@pytest.fixture
def small_caches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stopwatch, "_last_cache", lambda: 2**16)


class HostClock:
    """A clock of the host that only runs advance."""

    now = 0.0

    def run(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def host_clock(monkeypatch: pytest.MonkeyPatch) -> HostClock:
    clock = HostClock()
    monkeypatch.setattr(stopwatch, "time", SimpleNamespace(perf_counter=lambda: clock.now))
    return clock


@pytest.mark.usefixtures("small_caches")
@pytest.mark.parametrize("cold", [True, False])
def test_the_measured_time_of_a_run_is_its_length(cold: bool, host_clock: HostClock) -> None:
    timing = stopwatch.machine("cpu").time(lambda: host_clock.run(0.004), cold)
    assert timing.least == pytest.approx(0.004)
    assert timing.seconds == pytest.approx(0.004)
    assert timing.repeats == stopwatch.REPEATS


@pytest.mark.usefixtures("small_caches")
def test_long_runs_are_repeated_less_often(host_clock: HostClock) -> None:
    """11 runs of 0.3 s, or as many longer ones as take that time: at least 3."""
    assert stopwatch.machine("cpu").time(lambda: host_clock.run(0.6)).repeats == 5
    assert stopwatch.machine("cpu").time(lambda: host_clock.run(3.0)).repeats == 3


def test_a_missing_gpu_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(WorkloadError, match=r'device="cuda": torch .*device="cpu"'):
        stopwatch.machine("cuda")


# --- A simulated GPU: launched work advances its clock ----------------------------------


class SimulatedTorch:
    """The functions of torch.cuda that the stopwatch uses. Work is represented by its kernel time in seconds."""

    FLUSH, GAP = 40e-6, 1e-6

    def __init__(self) -> None:
        self.now, self.recording, self.graphs = 0.0, None, 0
        self.cuda = self
        self.version = SimpleNamespace(cuda="12.8")
        self.log: list[str] = []

    __version__ = "2.9.0+cu128"

    def kernel(self, seconds: float) -> None:
        if self.recording is None:
            self.now += seconds + self.GAP
        else:
            self.recording.append(seconds)

    def current_device(self) -> int:
        return 0

    def get_device_properties(self, _: int) -> Any:
        return SimpleNamespace(
            name="NVIDIA H100 80GB HBM3", multi_processor_count=132, L2_cache_size=50 * 2**20, total_memory=80 * 2**30
        )

    def get_device_capability(self) -> tuple[int, int]:
        return 9, 0

    def ones(self, elements: int, device: str) -> Any:
        assert elements * 4 == 100 * 2**20
        return SimpleNamespace(sum=lambda: self.kernel(self.FLUSH))

    def Stream(self) -> Any:
        return SimpleNamespace(wait_stream=lambda other: self.log.append(f"waits for {other}"))

    def default_stream(self) -> str:
        return "default"

    def stream(self, _: Any) -> Any:
        return nullcontext()

    def synchronize(self) -> None:
        pass

    def empty_cache(self) -> None:
        self.log.append("empties")

    def get_arch_list(self) -> list[str]:
        return ["sm_75", "sm_80"]

    def is_available(self) -> bool:
        return True

    def Event(self, enable_timing: bool) -> Any:
        event = SimpleNamespace(at=0.0, synchronize=lambda: None)
        event.record = lambda: setattr(event, "at", self.now)
        event.elapsed_time = lambda end: (end.at - event.at) * 1e3
        return event

    def CUDAGraph(self) -> Any:
        outer, work = self, []

        def begin() -> None:
            outer.recording, outer.graphs = work, outer.graphs + 1
            outer.log.append("captures")

        def end() -> None:
            outer.recording = None

        def replay() -> None:
            for seconds in work:
                outer.kernel(seconds)

        def reset() -> None:
            outer.graphs -= 1

        return SimpleNamespace(capture_begin=begin, capture_end=end, replay=replay, reset=reset)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> tuple[SimulatedTorch, stopwatch.Gpu]:
    simulated = SimulatedTorch()
    monkeypatch.setitem(sys.modules, "torch", simulated)
    return simulated, stopwatch.Gpu()


@pytest.mark.parametrize("cold", [True, False])
@pytest.mark.parametrize("seconds", [3e-6, 4e-4, 0.05])
def test_the_time_of_a_launch_is_its_kernel_and_the_gap_after_it(
    gpu: tuple[SimulatedTorch, stopwatch.Gpu], seconds: float, cold: bool
) -> None:
    """With and without flushing L2: the time of the flush is subtracted."""
    simulated, watch = gpu
    timing = watch.time(lambda: simulated.kernel(seconds), cold)
    assert timing.seconds == pytest.approx(seconds + simulated.GAP, rel=1e-6)
    assert simulated.graphs == 0, "a graph was kept"
    assert "waits for default" in simulated.log


def test_torchs_cached_memory_is_freed_before_a_graph_allocates(
    gpu: tuple[SimulatedTorch, stopwatch.Gpu],
) -> None:
    simulated, watch = gpu
    watch.time(lambda: simulated.kernel(1e-3))
    calls = [word for word in simulated.log if not word.startswith("waits")]
    assert calls == ["empties", "captures"] * 2  # with the reads that flush L2, and only these reads


def test_a_torch_build_without_code_for_the_gpu_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A V100 with a torch build that no longer supports it: torch lists it, but every kernel fails."""
    message = (
        "CUDA error: no kernel image is available for execution on the device\nCompile with `TORCH_USE_CUDA_DSA`\n"
    )

    def fail(elements: int, device: str) -> Any:
        raise RuntimeError(message)

    simulated = SimulatedTorch()
    monkeypatch.setattr(simulated, "ones", fail)
    monkeypatch.setattr(simulated, "get_device_capability", lambda: (7, 0))
    monkeypatch.setitem(sys.modules, "torch", simulated)
    with pytest.raises(WorkloadError, match=r"does not support this GPU .* 7\.0\), only sm_75, sm_80; .*'torch<2\.11'"):
        stopwatch.machine("cuda")
    message = "CUDA error: out of memory\nadvice"
    with pytest.raises(WorkloadError, match='the GPU does not work: CUDA error: out of memory; device="cpu"'):
        stopwatch.machine()


def test_a_gpu_reports_its_attributes(gpu: tuple[SimulatedTorch, stopwatch.Gpu]) -> None:
    watch = gpu[1]
    assert watch.evidence.name == "NVIDIA H100 80GB HBM3"
    assert (watch.evidence.compute_capability, watch.evidence.multiprocessors) == ("9.0", 132)
    assert watch.dtypes == ("fp32", "fp16", "bf16", "tf32", "fp8")
    assert watch.framework == "torch 2.9.0+cu128, CUDA 12.8"
    assert watch.read_clocks() == stopwatch.Reading()


def test_a_failed_capture_is_closed(gpu: tuple[SimulatedTorch, stopwatch.Gpu]) -> None:
    simulated, watch = gpu
    calls = iter([None] * stopwatch.WARM_UP)

    def run() -> None:
        simulated.kernel(1e-3)
        next(calls)

    with pytest.raises(StopIteration):
        watch.time(run)
    assert simulated.recording is None


# --- Clocks ----------------------------------------------------------------------------------------------


class _Nvml(ModuleType):
    """NVIDIA's management library on a machine with one GPU that does not report its power."""

    NVMLError = type("NVMLError", (Exception,), {})
    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0

    def nvmlInit(self) -> None: ...

    def nvmlShutdown(self) -> None: ...

    def nvmlDeviceGetHandleByIndex(self, index: int) -> str:
        return ["first"][index]

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:
        return {"GPU-12ab": "first"}[uuid]

    def nvmlDeviceGetClockInfo(self, device: str, clock: int) -> int:
        return {1: 1410, 2: 1593}[clock]

    def nvmlDeviceGetTemperature(self, device: str, sensor: int) -> int:
        return 55

    def nvmlDeviceGetPowerUsage(self, device: str) -> int:
        raise self.NVMLError


@pytest.mark.parametrize("gpu", ["0", "12ab", "GPU-12ab"])
def test_clocks_are_read_in_the_background_and_unknown_values_are_none(
    gpu: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", _Nvml("pynvml"))
    reader = stopwatch.ClockReader(gpu)
    _until(lambda: reader.last != stopwatch.Reading())
    reader.close()
    assert reader.last == stopwatch.Reading(1410, 1593, None, 55)


@pytest.mark.parametrize("is_installed", [True, False])
def test_without_a_driver_or_the_package_all_clocks_are_unknown(
    is_installed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = _Nvml("pynvml")
    monkeypatch.setitem(sys.modules, "pynvml", library if is_installed else None)
    monkeypatch.setattr(library, "nvmlInit", lambda: library.nvmlDeviceGetPowerUsage(""))
    reader = stopwatch.ClockReader("0")
    reader.close()
    assert reader.last == stopwatch.Reading()


class _CountingNvml(_Nvml):
    """The same with an energy counter, in millijoules, and a power limit, in milliwatts."""

    def nvmlDeviceGetEnforcedPowerLimit(self, device: str) -> int:
        return 700_000

    def nvmlDeviceGetTotalEnergyConsumption(self, device: str) -> int:
        return 1_234_500


def test_the_energy_counter_is_read_in_joules_and_the_limit_in_watts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", _CountingNvml("pynvml"))
    meter = stopwatch.EnergyMeter("GPU-12ab")
    assert (meter.limit_watts, meter.joules(), meter.hertz()) == (700, 1234.5, 1410e6)


def test_a_gpu_without_an_energy_counter_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    library = _CountingNvml("pynvml")
    monkeypatch.setattr(library, "nvmlDeviceGetTotalEnergyConsumption", library.nvmlDeviceGetPowerUsage)
    monkeypatch.setitem(sys.modules, "pynvml", library)
    with pytest.raises(WorkloadError, match="energy"):
        stopwatch.EnergyMeter("0")
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(WorkloadError, match="nvidia-ml-py"):
        stopwatch.EnergyMeter("0")


def _until(happened: Callable[[], bool], seconds: float = 10) -> None:
    end = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)
