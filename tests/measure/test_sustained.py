"""Loops that measure what a card sustains, on a simulated GPU (`roof measure --sustained`)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from roofmodel.devices.device import Device
from roofmodel.errors import RoofError, WorkloadError
from roofmodel.measure import measure, stopwatch
from roofmodel.measure.cases import BenchmarkCase
from roofmodel.measure.command import measure as measure_function
from roofmodel.profiles.kernel import Evidence

pytest.importorskip("torch", reason="measuring needs torch: pip install 'roofmodel[torch]'")

LIMIT, IDLE, DEEP = 700.0, 130.0, 70.0
GEMM_RATE, GEMM_WATTS = 650e12, 700.0
DRAM_RATE, DRAM_WATTS = 3e12, 460.0


class SimulatedGpu:
    """A GPU with its own clock: each operation takes time and energy."""

    device, dtypes = "cuda", ("fp32", "bf16")
    limit_watts = LIMIT

    def __init__(self) -> None:
        self.now = self.energy = 0.0

    def spend(self, seconds: float, watts: float) -> None:
        self.now += seconds
        self.energy += seconds * watts

    def sleep(self, seconds: float) -> None:
        self.spend(seconds, DEEP if seconds >= measure.BATCH_SECONDS else IDLE)

    def prepare(self, case: BenchmarkCase, device: str) -> Callable[[], object]:
        cost = case.operator.cost
        if case.op == "gemm":
            return lambda: self.spend(cost.matmul_flops / GEMM_RATE, GEMM_WATTS)
        return lambda: self.spend(max(cost.bytes / DRAM_RATE, 1e-6), DRAM_WATTS if cost.bytes > 1e6 else IDLE)

    def elapsed(self, run: Callable[[], object]) -> float:
        start = self.now
        run()
        return self.now - start

    def joules(self) -> float:
        return self.energy

    def hertz(self) -> float:
        return 1.5e9


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> SimulatedGpu:
    simulated = SimulatedGpu()
    monkeypatch.setattr(measure, "prepare", simulated.prepare)
    clock = SimpleNamespace(monotonic=lambda: simulated.now, sleep=simulated.sleep)
    monkeypatch.setattr(measure, "time", clock)
    return simulated


def loops(gpu: Any) -> list[measure.SustainedLoop]:
    return list(measure.sustained_loops(gpu, gpu, seconds=5.0))


def test_loops_have_rate_power_and_clock(gpu: SimulatedGpu) -> None:
    found = {each.name: each for each in loops(gpu)}
    assert list(found) == ["tensor_bf16", "dram", "idle", "deep idle"]
    assert found["tensor_bf16"].rate == pytest.approx(GEMM_RATE, rel=1e-6)
    assert found["dram"].rate == pytest.approx(DRAM_RATE, rel=1e-6)
    watts = [each.watts for each in found.values()]
    assert watts == pytest.approx([GEMM_WATTS, DRAM_WATTS, IDLE, DEEP], rel=1e-6)
    assert found["dram"].hertz == 1.5e9


def test_the_written_lines_are_power_of_a_device_with_the_energies_of_the_loops(
    gpu: SimulatedGpu, tmp_path: Path
) -> None:
    """DRAM: 330 W / 3 TB/s = 110 pJ/B; a GEMM: 570 W / 650 TFLOP/s less 110 pJ/B × 3 / 8192 B/FLOP."""
    text = measure.power_yaml(loops(gpu), LIMIT, "a test")
    file = tmp_path / "mine.yaml"
    pipes = "pipes: {tensor_bf16: {peak: 900 TFLOP/s}}\nmemory: {dram: {bandwidth: 3.3 TB/s}}\n"
    file.write_text(f"name: Mine\n{pipes}{text}".replace("# sources", "sources"))
    power = Device.load(file).power
    assert power is not None
    assert (power.limit, power.idle, power.clock) == (700, 130, 1500e6)
    assert power.energy["dram"] == pytest.approx(110e-12, rel=0.01)
    assert power.energy["tensor_bf16"] == pytest.approx(570 / 650e12 - 110e-12 * 3 / 8192, rel=0.01)
    assert "# deep idle: 70 W" in text


def test_a_gpu_that_another_process_uses_is_refused(gpu: SimulatedGpu) -> None:
    busy = [each._replace(watts=IDLE) if each.name == "dram" else each for each in loops(gpu)]
    with pytest.raises(WorkloadError, match="shared"):
        measure.power_yaml(busy, LIMIT, "a test")


def test_the_command_writes_yaml_on_a_gpu_only(
    gpu: SimulatedGpu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine: Any = stopwatch.Gpu.__new__(stopwatch.Gpu)
    machine.__dict__.update(
        id="0", dtypes=gpu.dtypes, framework="a framework", elapsed=gpu.elapsed, close=lambda: None,
        evidence=Evidence(name="A GPU"),
    )  # fmt: skip
    monkeypatch.setattr(stopwatch, "machine", lambda device: machine)
    monkeypatch.setattr(stopwatch, "EnergyMeter", lambda gpu_id: gpu)
    file = tmp_path / "power.yaml"
    report: Any = measure_function(str(file), sustained=True)
    assert file.read_text().startswith("# A GPU\npower: {limit: 700 W")
    assert [loop.name for loop in report.loops] == ["tensor_bf16", "dram", "idle", "deep idle"]
    with pytest.raises(RoofError, match=r"known: \.yaml"):
        measure_function(str(tmp_path / "rows.csv"), sustained=True)
    monkeypatch.setattr(stopwatch, "machine", lambda device: stopwatch.Cpu())
    with pytest.raises(WorkloadError, match="measures a GPU"):
        measure_function(str(file), sustained=True)
