"""`roof jitter` on ranks without marks whose files begin at different steps."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest

from roofmodel.jitter.jitter import Jitter, jitter
from roofmodel.jitter.kernels import Integers
from roofmodel.jitter.sequences import CollectiveSequence, Shift, find_shift
from tests.jitter.runs import planted, tables
from tests.trace.runs import launched
from tests.trace.runs import written as torch_trace

RANKS, KERNELS, STEPS = 4, 40, 10


def unmarked(folder: Path, cuts: Mapping[int, tuple[int, int]], *plants: tuple[str, int, float]) -> Jitter:
    """A run of torch traces without marks; ranks lack kernels at the start and at the end."""
    files = []
    for rank, rows in tables(planted(*plants, ranks=RANKS, kernels=KERNELS, steps=STEPS)).items():
        begin, end = cuts.get(rank, (0, 0))
        events: list[object] = []
        for _, _, _, _, _, launch, _, name, stream, start, finish, _ in rows[begin : len(rows) - end]:
            events += launched(name, start / 1e3, finish / 1e3, launch / 1e3, stream=int(stream))  # type: ignore[arg-type,call-overload,operator]
        document = {"distributedInfo": {"backend": "nccl", "rank": rank, "world_size": RANKS}}
        files.append(torch_trace(folder, *events, name=f"{rank}.json", **document))  # type: ignore[arg-type]
    return jitter(files)


@pytest.mark.parametrize("cut", [1, 3])
def test_ranks_without_their_first_steps_are_matched_at_the_same_steps(tmp_path: Path, cut: int) -> None:
    found = unmarked(tmp_path, {2: (cut * KERNELS, 0)}, ("gpu", 1, 0.1))
    assert [(cause.kind, cause.ranks) for cause in found.causes] == [("gpu", (1,))]
    assert found.clocks.error_seconds is not None
    assert found.clocks.error_seconds < 10e-6
    assert found.common_kernels == (STEPS - cut) * KERNELS
    (warning,) = [str(text) for text in found.warnings if "begin at different steps" in str(text)]
    amount = "1 step of ranks 0, 1, 3 is" if cut == 1 else "3 steps of ranks 0, 1, 3 are"
    assert f"the first {amount} not compared" in warning


def test_ranks_that_begin_and_end_at_different_steps_are_matched(tmp_path: Path) -> None:
    cuts = {0: (2 * KERNELS, 0), 1: (0, 3 * KERNELS), 2: (KERNELS, KERNELS)}
    found = unmarked(tmp_path, cuts, ("input", 3, 0.1))
    # Without marks, a step begins after the longest gap, which is not the gap before the first launch.
    assert [(cause.kind, cause.ranks) for cause in found.causes] == [("cpu", (3,))]
    assert found.clocks.error_seconds is not None
    assert found.clocks.error_seconds < 10e-6


def test_a_rank_that_begins_within_a_step_is_matched(tmp_path: Path) -> None:
    found = unmarked(tmp_path, {2: (2 * KERNELS + 7, 0)}, ("cpu", 1, 0.1))
    assert [(cause.kind, cause.ranks) for cause in found.causes] == [("cpu", (1,))]
    assert found.clocks.error_seconds is not None
    assert found.clocks.error_seconds < 10e-6


def test_ranks_that_begin_together_are_not_shifted(tmp_path: Path) -> None:
    assert not [text for text in unmarked(tmp_path, {3: (0, 2 * KERNELS)}).warnings if "begin" in str(text)]


@pytest.mark.parametrize("kernels", [3 * KERNELS, KERNELS, 4])
def test_a_rank_that_ends_before_another_one_begins_is_not_compared(tmp_path: Path, kernels: int) -> None:
    """A truncated file has the first steps, one step, or only kernels before the first collective."""
    cuts = {1: (5 * KERNELS, 0), 2: (0, STEPS * KERNELS - kernels)}
    found = unmarked(tmp_path, cuts, ("gpu", 3, 0.1))
    assert [(cause.kind, cause.ranks) for cause in found.causes] == [("gpu", (3,))]
    assert found.common_kernels == (STEPS - 5) * KERNELS
    (warning,) = [str(text) for text in found.warnings if "rank 2" in str(text)]
    assert warning.startswith("rank 2 ends before the last rank begins")
    assert warning.endswith("it is not compared")


def test_an_unknown_first_step_is_reported_with_a_remedy(tmp_path: Path) -> None:
    """All steps take exactly 1 ms, so it is unknown which step rank 1 lacks."""
    files = []
    for rank in range(2):
        events: list[object] = []
        for step in range(8 - rank):
            begin = 1e7 + 1000.0 * step
            for kernel in range(4):
                events += launched(f"gemm_{kernel}", begin + 100 * kernel, begin + 100 * kernel + 80, begin - 10)
            events += launched("ncclDevKernel_AllReduce", begin + 500, begin + 600, begin + 490, stream=20)
        document = {"distributedInfo": {"backend": "nccl", "rank": rank, "world_size": 2}}
        files.append(torch_trace(tmp_path, *events, name=f"{rank}.json", **document))  # type: ignore[arg-type]
    (warning,) = [str(text) for text in jitter(files).warnings if "do not show at which step" in str(text)]
    assert warning.startswith("rank 1 has fewer collectives than the rank with the most (by up to 1)")
    assert "step() of torch.profiler.profile" in warning


def sequence(codes: Integers, ends: Integers) -> CollectiveSequence:
    """Collectives without other kernels."""
    nothing = np.zeros(len(codes), np.int64)
    return CollectiveSequence(codes, ends, nothing.astype(bool), nothing, nothing, len(codes))


@pytest.mark.parametrize("shift", [-3, 0, 6])
def test_the_position_of_an_evaluation_step_gives_the_shift_of_regular_steps(shift: int) -> None:
    """All steps take equal times; one step has other collectives."""
    codes = np.tile([1, 1, 2], 12)
    codes[18:21] = [5, 6, 7]
    times = np.arange(36) * 1_000_000
    first, second = max(-shift, 0), max(shift, 0)
    found = find_shift(sequence(codes[first:], times[first:]), sequence(codes[second:], times[second:] + 777))
    assert found == Shift(shift, True)
