"""Clock and power as evidence of a slow GPU in `roof jitter`, from exports of `nsys --gpu-metrics-devices=all`.

No real export with GPU metrics is available; these tables have the layout used by public queries of such exports.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

from roofmodel.jitter.jitter import Jitter, jitter
from roofmodel.profiles import nsys
from roofmodel.profiles.timelines import reading
from roofmodel.profiles.timelines.timeline import CLOCK
from tests.profiles.test_nsys import GPU, HOST, RUNTIME, export

METRICS = "CREATE TABLE GPU_METRICS (timestamp INTEGER, typeId INTEGER, metricId INTEGER, value REAL)"
METRIC_NAMES = (
    "CREATE TABLE TARGET_INFO_GPU_METRICS (typeId INTEGER, sourceId INTEGER, typeName TEXT, metricId INTEGER, "
    "metricName TEXT)"
)
DEVICES = "CREATE TABLE TARGET_INFO_CUDA_DEVICE (gpuId INTEGER, cudaId INTEGER, pid INTEGER, uuid TEXT)"
NAMES = {1: "GR Active [Throughput %]", 2: "GPC Clock Frequency [MHz]", 3: "Power [W]"}
TYPE = 0x1D4B0000000000  # type id of the metrics; the low 8 bits are the id of the GPU


def four_ranks(folder: Path, clocks: Mapping[int, float], powers: Mapping[int, float]) -> list[str]:
    """Four processes with one GPU each in one file. GPU ids are in reverse order of ranks. Rank 2 is 10 % slower."""
    found = export(RUNTIME, GPU, METRICS, METRIC_NAMES, DEVICES)
    random = np.random.default_rng(1)
    for rank in range(4):
        process = HOST | 100 + rank << 24
        gpu = 3 - rank
        found.add("TARGET_INFO_CUDA_DEVICE", gpuId=gpu, cudaId=0, pid=100 + rank, uuid="")
        for step in range(8):
            now = step * 100_000 + 1000
            for kernel in range(8):
                length = int(8000 * (1.1 if rank == 2 else 1) * random.normal(1, 0.003))
                found.kernel(f"gemm_{kernel}", now, now + length, launched=now - 500, thread=process | 1)
                now += length + 500
            found.kernel(
                "ncclDevKernel_AllReduce", now, step * 100_000 + 95_000, launched=now - 500, thread=process | 1
            )
        for time in range(0, 800_000, 2500):
            idle = time % 100_000 > 75_000  # the clock without computation is higher and must be ignored
            for metric, value in ((1, 99.0), (2, clocks.get(rank)), (3, powers.get(rank))):
                if value is not None:
                    stored = value * 1.2 if metric == 2 and idle else value
                    found.add("GPU_METRICS", timestamp=time, typeId=TYPE | gpu, metricId=metric, value=stored)
    for metric, name in NAMES.items():
        found.add("TARGET_INFO_GPU_METRICS", typeId=TYPE, sourceId=1, typeName="", metricId=metric, metricName=name)
    path = folder / "run.sqlite"
    path.write_bytes(found.bytes())
    return [str(path)]


def slow_gpu(found: Jitter) -> tuple[str, Mapping[str, float | int | str] | None]:
    (cause,) = found.causes
    assert (cause.kind, cause.ranks) == ("gpu", (2,))
    return cause.evidence, cause.evidence_values


@pytest.mark.parametrize("factor", [1.0, 1e-6])
def test_a_slow_gpu_has_its_clock_and_power_as_evidence(tmp_path: Path, factor: float) -> None:
    """Clocks are stored in hertz, although the name of the metric states MHz; both are read."""
    clocks = {rank: 1.2e9 * factor if rank == 2 else 1.5e9 * factor for rank in range(4)}
    files = four_ranks(tmp_path, clocks, {0: 600.0, 1: 620.0, 2: 400.0, 3: 610.0})
    text, values = slow_gpu(jitter(files))
    assert "SM clock of its GPU: 1.2 GHz, 20.0% below the other ranks' median of 1.5 GHz" in text
    assert "power of its GPU: 400 W, 34.4% below the other ranks' median of 610 W" in text
    assert values == {
        "clock_hertz": pytest.approx(1.2e9), "others_clock_hertz": pytest.approx(1.5e9),
        "power_watts": 400, "others_power_watts": 610,
    }  # fmt: skip


def test_the_clock_is_kept_in_parquet_files(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    files = four_ranks(tmp_path, {rank: 1.2e9 if rank == 2 else 1.5e9 for rank in range(4)}, {})
    text, _ = slow_gpu(jitter(files, cache=str(tmp_path / "cache")))
    assert slow_gpu(jitter([str(tmp_path / "cache")]))[0].endswith(text.partition(". ")[2])
    assert "20.0% below" in text


@pytest.mark.parametrize("clocks", [{}, {2: 1.2e9}])
def test_without_clocks_of_other_ranks_the_evidence_asks_for_them(tmp_path: Path, clocks: dict[int, float]) -> None:
    text, values = slow_gpu(jitter(four_ranks(tmp_path, clocks, {})))
    assert "check clock, power and temperature of this GPU" in text
    assert values is None


@pytest.mark.parametrize("powers", [{0: 0.0, 1: 0.0, 2: 400.0, 3: 0.0}, {0: 600.0, 1: 620.0, 2: 0.0, 3: 610.0}])
def test_a_power_of_0_watts_is_ignored(tmp_path: Path, powers: dict[int, float]) -> None:
    text, values = slow_gpu(jitter(four_ranks(tmp_path, {}, powers)))
    assert "power of its GPU" not in text
    assert values is None


def sampled(folder: Path, times: Sequence[int]) -> Path:
    """One kernel, and clock samples whose values equal their times."""
    found = export(RUNTIME, GPU, METRICS, METRIC_NAMES)
    found.kernel("gemm", 0, 1000, launched=0)
    found.add("TARGET_INFO_GPU_METRICS", typeId=TYPE, sourceId=1, typeName="", metricId=2, metricName=NAMES[2])
    for time in times:
        found.add("GPU_METRICS", timestamp=time, typeId=TYPE, metricId=2, value=float(time))
    path = folder / f"{len(times)}.sqlite"
    path.write_bytes(found.bytes())
    return path


def test_samples_are_sorted_and_only_read_for_roof_jitter(tmp_path: Path) -> None:
    times = [int(time) for time in np.random.default_rng(1).permutation(50) * 10**9]
    path = sampled(tmp_path, times)
    ((place, samples),) = reading.read_file(path).samples.items()
    assert place[2] == CLOCK
    assert samples.times.tolist() == samples.values.tolist() == sorted(times)
    assert not reading.read([path])[0].samples


def test_a_sample_takes_less_than_80_bytes(tmp_path: Path) -> None:
    def peak(path: Path) -> int:
        tracemalloc.start()
        try:
            with path.open("rb") as file:
                nsys.read(file, path.name, with_samples=True)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    few, many = sampled(tmp_path, range(10)), sampled(tmp_path, range(60_000))
    peak(few)  # imports modules
    assert peak(many) < 80 * 60_000
