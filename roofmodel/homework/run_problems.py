"""Homework problems about whole runs: busy time and exposed communication, a waiting data loader, late ranks."""

from __future__ import annotations

import math

import numpy as np

from roofmodel.homework.problem import Draw, Mistake, Problem, Question
from roofmodel.jitter.alignment import StepLayout
from roofmodel.jitter.deviations import deviations, kernel_gaps
from roofmodel.jitter.kernels import Integers
from roofmodel.jitter.step_kernels import StepKernels
from roofmodel.profiles.timelines.timeline import UNKNOWN
from roofmodel.steps.input_pipeline import workers_to_hide
from roofmodel.trace import intervals

US, MS = 1e-6, 1e-3
LAUNCH = 20  # microseconds from the launch of a kernel to its start
SECOND_GEMM = range(500, 901, 20)  # microseconds
LOADING_TIMES = range(60, 400, 7)  # milliseconds
FRACTION = Mistake(0.01, "this is a fraction; give a percentage")


def timeline(draw: Draw) -> Problem:
    """Two kernels and an all-reduce on two streams: summed time, busy time, exposed communication, idle time."""
    first, pause = draw("first", range(200, 401, 10)), draw("pause", range(20, 81, 5))
    second = draw("second", SECOND_GEMM)
    start = first + pause
    reduce_start = start + second * draw("percent", range(40, 81, 5)) // 100
    reduce_end = start + second + draw("tail", range(50, 301, 10))
    compute = intervals.union([0, start], [first, start + second])
    reduction = intervals.union([reduce_start], [reduce_end])
    covered = intervals.length(intervals.join(compute, reduction))
    exposed = intervals.length(intervals.subtract(reduction, compute))
    length = intervals.length(reduction)
    summed = first + second + length
    values = {
        "d_1": first * US, "s_2": start * US, "d_2": second * US, "s_c": reduce_start * US, "d_c": length * US
    }  # fmt: skip
    return Problem(
        "timeline",
        "Two streams of one GPU",
        f"A profiler recorded two GEMMs on one stream: from 0 to {first} us and from {start} to {start + second} us. "
        f"On another stream of the same GPU an all-reduce ran from {reduce_start} to {reduce_end} us. Nothing else "
        "ran.",
        (
            Question(
                "summed",
                "The summed time of the three kernels.",
                "us",
                summed * US,
                "d_1 + d_2 + d_c",
                values,
                (Mistake(covered / summed, "this counts overlapping kernels once; the sum counts each kernel fully"),),
            ),
            Question(
                "busy",
                "The busy time: the time in which at least one kernel runs.",
                "us",
                covered * US,
                "d_1 + s_c + d_c - s_2",
                values,
                (
                    Mistake(summed / covered, "this is the sum; time in which two kernels run counts once"),
                    Mistake((first + second) / covered, "this is the stream of the GEMMs alone"),
                    Mistake(reduce_end / covered, "this includes the pause between the GEMMs"),
                ),
            ),
            Question(
                "exposed",
                "The exposed communication: the time of the all-reduce in which no GEMM runs.",
                "us",
                exposed * US,
                "s_c + d_c - s_2 - d_2",
                values,
                (
                    Mistake(length / exposed, "this is the whole all-reduce; a part of it overlaps with a GEMM"),
                    Mistake((length - exposed) / exposed, "this is the overlapped part"),
                ),
            ),
            Question(
                "idle",
                "The share of the time from the first start to the last end in which no kernel runs.",
                "%",
                (reduce_end - covered) / reduce_end,
                "(s_2 - d_1)/(s_c + d_c)",
                values,
                (FRACTION, Mistake(reduce_end / covered, "divide by the whole time, not by the busy time")),
            ),
        ),
    )


def stall(draw: Draw) -> Problem:
    """A training step that waits for its data loader: the lost share, and the workers that hide the loading time."""
    batch, compute, load = (
        draw("batch", (32, 64, 128, 256)),
        draw("compute", range(80, 161, 4)),
        draw("load", LOADING_TIMES),
    )
    step = compute + load
    workers = workers_to_hide(load, compute)
    values = {"B_img": batch, "t_step": step * MS, "t_load": load * MS}
    return Problem(
        "stall",
        "A step that waits for its data loader",
        f"ResNet-50 is trained with batches of {batch} images on one GPU, with DataLoader(num_workers=0). A profile of "
        f"the run shows steps of {step} ms. In {load} ms of each step the CPU is in DataLoader.__next__, and no kernel "
        "runs. Worker processes load batches side by side, each as fast as the CPU did; the rest of the step stays as "
        "it is.",
        (
            Question(
                "images",
                "The images per second of the profiled run.",
                "images/s",
                batch / (step * MS),
                "B_img/t_step",
                values,
                (
                    Mistake(step / compute, "this leaves out the loading time, which is a part of each step"),
                    Mistake(1 / batch, "this is in steps per second"),
                ),
            ),
            Question(
                "lost",
                "The share of a step in which the GPU waits for the loader.",
                "%",
                load / step,
                "t_load/t_step",
                values,
                (FRACTION, Mistake(step / compute, "divide by the whole step")),
            ),
            Question(
                "workers",
                "The smallest number of worker processes that hides the loading time.",
                "workers",
                workers,
                "ceiling(t_load/(t_step - t_load))",
                values,
                (
                    Mistake((workers - 1) / workers, "close: with this number the GPU still waits at times"),
                    Mistake(
                        math.ceil(load / step) / workers,
                        "with workers a step takes less time: the workers have to keep up with the shorter step",
                    ),
                ),
                tolerance=0,
            ),
            Question(
                "faster",
                "The images per second with this number of workers.",
                "images/s",
                batch / (compute * MS),
                "B_img/(t_step - t_load)",
                values,
                (Mistake(compute / step, "this is the rate of the profiled run"),),
            ),
        ),
    )


def late_rank(draw: Draw) -> Problem:
    """Four ranks that start an all-reduce at different times: transfer time, waiting time, what the late rank costs."""
    late = draw("late", range(4))
    starts = [40_000 + draw(f"rank {rank}", range(0, 201, 5)) for rank in range(4)]
    starts[late] += draw("delay", range(500, 3001, 100))
    transfer = draw("transfer", range(300, 901, 20))
    last, mean = max(starts), sum(starts) / 4
    end, early = last + transfer, (late + 1) % 4
    values = {f"a_{rank}": start * US for rank, start in enumerate(starts)} | {"e": end * US}
    every = "Max(a_0, a_1, a_2, a_3)"
    return Problem(
        "late",
        "A late rank",
        f"Four ranks end their training step with an all-reduce. On aligned clocks its kernels start "
        f"{', '.join(map(str, starts[:3]))} and {starts[3]} us after the start of the step (ranks 0 to 3), and all end "
        f"after {end} us.",
        (
            Question(
                "transfer",
                "The time of the transfer: it begins when the last rank has arrived.",
                "us",
                transfer * US,
                f"e - {every}",
                values,
                (Mistake((end - min(starts)) / transfer, "this includes the waiting time of the first rank"),),
            ),
            Question(
                "recorded",
                f"The duration of the all-reduce that a profiler records on rank {early}.",
                "us",
                (end - starts[early]) * US,
                f"e - a_{early}",
                values,
                (Mistake(transfer / (end - starts[early]), "the kernel of a rank also lasts while it waits"),),
            ),
            Question(
                "wait",
                f"The time for which rank {early} waits for another rank.",
                "us",
                (last - starts[early]) * US,
                f"{every} - a_{early}",
                values,
                (Mistake((end - starts[early]) / (last - starts[early]), "this includes the transfer"),),
            ),
            Question(
                "gain",
                "The share of the step that is saved if all ranks start at the mean of their times.",
                "%",
                (last - mean) / end,
                f"({every} - (a_0 + a_1 + a_2 + a_3)/4)/e",
                values,
                (
                    FRACTION,
                    Mistake((last - min(starts)) / (last - mean), "this compares with the first rank; use the mean"),
                ),
            ),
        ),
    )


def late_launch(draw: Draw) -> Problem:
    """Three ranks with two GEMMs and an all-reduce: gaps, waiting time, the late rank, and what makes it late."""
    late, delay = draw("late", range(3)), draw("delay", range(300, 901, 20))
    in_gap = delay * draw("percent", (20, 30, 70, 80)) // 100  # the rest of the delay is in the second GEMM
    firsts = np.array([2500 + draw(f"first {rank}", range(0, 21, 2)) for rank in range(3)])
    gaps = np.array([40 + draw(f"gap {rank}", range(0, 11, 2)) for rank in range(3)])
    seconds = np.array([800 + draw(f"second {rank}", range(0, 21, 2)) for rank in range(3)])
    gaps[late] += in_gap
    seconds[late] += delay - in_gap
    starts = firsts + gaps
    arrivals = starts + seconds
    end = arrivals.max() + draw("transfer", range(200, 501, 20))
    step = _three_kernels(firsts, starts, arrivals, end)
    found = deviations(step, np.zeros(3, np.int64))
    largest, lateness = int(gaps.max()), float(found.lateness[late])
    gap_deviation = float(found.gaps[late].sum())
    waiting = int((arrivals.max() - arrivals).sum())
    values = {
        f"{name}_{rank}": int(time) * US
        for name, times in (("c", firsts), ("b", starts), ("a", arrivals))
        for rank, time in enumerate(times)
    }
    last = "Max(a_0, a_1, a_2)"
    mean_gap = "(b_0 + b_1 + b_2 - c_0 - c_1 - c_2)/3"
    rows = ". ".join(
        f"Rank {rank}: the first GEMM from 0 to {firsts[rank]} us, the second launched at {starts[rank] - LAUNCH} us, "
        f"from {starts[rank]} to {arrivals[rank]} us"
        for rank in range(3)
    )
    return Problem(
        "gaps",
        "Late launches or slow kernels",
        "Three ranks run two GEMMs of equal shapes and then an all-reduce. A profiler recorded these times, on aligned "
        f"clocks. {rows}. Each rank starts the all-reduce when its second GEMM ends. The all-reduce ends on all ranks "
        f"at {end} us.",
        (
            Question(
                "gap",
                "The largest gap between the two GEMMs of a rank.",
                "us",
                int(kernel_gaps(step, np.zeros(3, np.int64)).max()) / 1e9,
                "Max(b_0 - c_0, b_1 - c_1, b_2 - c_2)",
                values,
                (Mistake((largest - LAUNCH) / largest, "this ends with the launch; the gap ends with the start"),),
            ),
            Question(
                "waiting",
                "The time for which the ranks wait for another rank in the all-reduce, summed over the ranks.",
                "us",
                waiting * US,
                f"3*{last} - a_0 - a_1 - a_2",
                values,
                (
                    Mistake((3 * end - arrivals.sum()) / waiting, "this includes the transfer"),
                    Mistake(1 / 3, "this is the mean over the ranks"),
                ),
            ),
            Question(
                "lateness",
                "How much later the late rank starts the all-reduce than the mean of the ranks.",
                "us",
                lateness,
                f"{last} - (a_0 + a_1 + a_2)/3",
                values,
                (
                    Mistake(
                        float(arrivals.max() - arrivals.min()) * US / lateness,
                        "this compares with the first rank; use the mean",
                    ),
                ),
            ),
            Question(
                "share",
                "The share of this lateness that is in the gap: how much longer than the mean gap the gap of the late "
                "rank is. Above 50 % its late launch is the main cause, below 50 % its slow kernels.",
                "%",
                gap_deviation / lateness,
                f"(b_{late} - c_{late} - {mean_gap})/({last} - (a_0 + a_1 + a_2)/3)",
                values,
                (
                    FRACTION,
                    Mistake(int(gaps[late]) * US / gap_deviation, "this is the whole gap; subtract the mean gap"),
                    Mistake((lateness - gap_deviation) / gap_deviation, "this is the share of the kernels"),
                ),
            ),
        ),
    )


def _three_kernels(firsts: Integers, starts: Integers, arrivals: Integers, end: int) -> StepKernels:
    """Two GEMMs and an all-reduce on each rank, as `roof jitter` compares them. Times in microseconds; R each."""
    times = np.stack([np.zeros_like(firsts), starts, arrivals], axis=1) * 1000
    ends = np.stack([firsts, arrivals, np.full_like(firsts, end)], axis=1) * 1000
    previous = np.concatenate([np.full((len(firsts), 1), UNKNOWN), ends[:, :-1]], axis=1)
    layout = StepLayout(np.arange(3), np.array([False, False, True]), np.ones(3, bool))
    unused = np.zeros_like(times)
    return StepKernels(layout, times, ends, times - LAUNCH * 1000, previous, unused, unused, unused)
