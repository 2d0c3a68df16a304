"""The thread blocks of an SM, against Nsight Compute, against PyTorch's estimate, and on paper."""

from __future__ import annotations

import csv
import gzip
import json
import math
from collections.abc import Iterator
from pathlib import Path

import pytest

from roofmodel.devices.derived import PER_CLOCK
from roofmodel.devices.occupancy import (
    MULTIPROCESSORS,
    REGISTERS,
    WARP,
    BlockLimits,
    block_limits,
    theoretical_occupancy,
)
from tests.profiles.samples import MEASURED

H100 = Path(__file__).parents[1] / "data/gpu/h100"
A100_KERNELS = MEASURED / "ncu/a100_40_resnet18_raw_wide.csv"
OF_NCU = [*sorted(H100.glob("**/*raw*.csv.gz")), *([A100_KERNELS] if A100_KERNELS.exists() else [])]
WITHOUT_ATTRIBUTES = ("amd_trace", "cpu_only", "sglang")  # of an NVIDIA GPU
TRACES = [
    path
    for path in (*sorted(H100.glob("trace*.json.gz")), *sorted((MEASURED / "traces/torch").glob("*.json.gz")))
    if not path.name.startswith(WITHOUT_ATTRIBUTES)
]


def launches(path: Path) -> Iterator[dict[str, float | str]]:
    """The metrics of each launch in a raw page of Nsight Compute."""
    text = gzip.decompress(path.read_bytes()).decode() if path.suffix == ".gz" else path.read_text()
    names, _, *rows = [row for row in csv.reader(text.splitlines()) if len(row) > 1]
    for row in rows:
        cells = dict(zip(names, row, strict=True))
        used = {name for name in names if name.startswith(("launch__", "sm__maximum")) and cells[name][:1].isdigit()}
        numbers = {name: float(cells[name].replace(",", "")) for name in used}
        yield {"launch__sm_count": 108.0, **numbers, "CC": cells.get("CC", "8.0")}  # the A100's file has neither


@pytest.mark.parametrize("path", OF_NCU, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_limits_occupancy_and_waves_are_those_of_nsight_compute(path: Path) -> None:
    for metrics in launches(path):

        def number(name: str, metrics: dict[str, float | str] = metrics) -> float:
            return float(metrics[f"launch__{name}"])

        capability, threads = str(metrics["CC"]), int(number("block_size"))
        shared = number("shared_mem_per_block_static") + number("shared_mem_per_block_dynamic")
        limits = block_limits(capability, threads, int(number("registers_per_thread")), int(shared))
        assert limits is not None
        assert limits.warps == number("occupancy_limit_warps")
        assert limits.block_size == number("occupancy_limit_blocks")
        assert limits.registers == number("occupancy_limit_registers")
        if number("shared_mem_config_size") == MULTIPROCESSORS[capability].shared_bytes:
            assert limits.shared_memory == number("occupancy_limit_shared_mem")
        else:  # the driver gave the rest to L1, where that does not lower the occupancy
            assert limits.shared_memory >= number("occupancy_limit_shared_mem") >= min(limits)
        occupancy = 100 * theoretical_occupancy(capability, threads, limits)
        assert occupancy == pytest.approx(float(metrics["sm__maximum_warps_per_active_cycle_pct"]), abs=0.005)
        waves = number("grid_size") / number("sm_count") / min(limits)
        assert waves == pytest.approx(number("waves_per_multiprocessor"), abs=0.00501)


@pytest.mark.parametrize("path", TRACES, ids=lambda path: path.name)
def test_pytorch_estimates_the_occupancy_from_the_same_limits(path: Path) -> None:
    """Its estimate is min(blocks of the grid / SMs, blocks that fit) x warps of a block, without decimals.

    It knows only 48 KiB of shared memory for a block, and estimates 0 above.
    """
    trace = json.loads(gzip.decompress(path.read_bytes()))
    (gpu, *_), stated = trace["deviceProperties"], "est. achieved occupancy %"
    capability = f"{gpu['computeMajor']}.{gpu['computeMinor']}"
    warps, _, shared_bytes = MULTIPROCESSORS[capability]
    assert (warps * WARP, REGISTERS, shared_bytes) == (
        gpu["maxThreadsPerMultiprocessor"],
        gpu["regsPerMultiprocessor"],
        gpu["sharedMemPerMultiprocessor"],
    )
    for args in (event.get("args", {}) for event in trace["traceEvents"]):
        if stated not in args or args.get("shared memory", math.inf) > 48 * 1024:
            continue
        threads = math.prod(args["block"])
        limits = block_limits(capability, threads, args["registers per thread"], args["shared memory"])
        assert limits is not None
        resident = min(args["blocks per SM"], min(limits)) * threads / (warps * WARP)
        assert 100 * resident == pytest.approx(args[stated], abs=0.501)


def test_every_compute_capability_with_rates_has_limits() -> None:
    assert MULTIPROCESSORS.keys() == PER_CLOCK.keys()


@pytest.mark.parametrize(
    ("capability", "threads", "registers", "shared", "expected"),
    [
        # 6.0 has 2 parts of 32768 registers: 32768 / (100 -> 104 x 32) = 9 warps in each, 18 in all, of 4 in a block;
        # 64 KiB / (10000 -> 10240)
        ("6.0", 128, 100, 10_000, BlockLimits(16, 32, 4, 6)),
        # 6.1 has 4 parts of 16384: 4 warps in each, 16 in all; 96 KiB / 10240
        ("6.1", 128, 100, 10_000, BlockLimits(16, 32, 4, 9)),
        # 33 threads are 2 warps; 16384 / (32 x 32) = 16 warps in each part; 100 KiB / (0 + 1024)
        ("8.6", 33, 32, 0, BlockLimits(24, 16, 32, 100)),
        # 100 KiB / (1024 + 50000 -> 51072)
        ("12.0", 256, 64, 50_000, BlockLimits(6, 24, 4, 2)),
    ],
)
def test_limits_on_paper(capability: str, threads: int, registers: int, shared: int, expected: BlockLimits) -> None:
    assert block_limits(capability, threads, registers, shared) == expected


def test_a_block_that_never_fits_and_an_unknown_card_have_no_limits() -> None:
    assert block_limits("9.0", 1024, 255, 0) is None  # 32 warps of 8192 registers are four times those of an SM
    assert block_limits("8.6", 128, 32, 100 * 1024) is None  # and 1 KiB for the driver
    assert block_limits("3.5", 128, 32, 0) is None
