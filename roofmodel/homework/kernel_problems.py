"""Homework problems about kernels: vector updates, GEMMs, a stencil, achieved rates, Nsight Compute counters."""

from __future__ import annotations

from roofmodel.counting import textbook_kernels
from roofmodel.counting.operator import Cost
from roofmodel.counting.workload import Workload
from roofmodel.devices.device import Device
from roofmodel.explain.bound_changes import changes
from roofmodel.homework.problem import (
    BINARY_BANDWIDTH,
    FMA_AS_FOUR_FLOPS,
    FMA_AS_ONE_FLOP,
    IN_BITS,
    PER_BIT,
    Draw,
    Mistake,
    Problem,
    Question,
    bandwidth,
    ceilings,
    device_of,
    width,
)
from roofmodel.models.symbols import symbol
from roofmodel.numbers import units
from roofmodel.numbers.algebra import Number
from roofmodel.profiles.ncu import metric_catalog, metrics
from roofmodel.timing.roofline import Placement, place, ridge


def stream(draw: Draw) -> Problem:
    """A vector update (saxpy or triad): arithmetic intensity, bound on the time, attainable rate."""
    name, dtype, device = draw("kernel", ("saxpy", "triad")), draw("dtype", ("fp32", "fp64")), device_of(draw)
    n = draw("n", range(10, 100)) * 10**6
    placed = _kernel(name, n, dtype, device)
    pipe = device.vector_pipe(dtype)
    assert pipe is not None
    values = {"n": n, "b": width(dtype), "P_peak": pipe.peak, "B_mem": device.bandwidth}
    compute_time = Mistake(
        placed.vector_seconds / placed.memory_seconds, "this is the time of the FLOPs; the bytes take longer"
    )
    return Problem(
        "stream",
        f"{name} and its ceiling",
        f"{textbook_kernels.KERNELS[name].about}, over vectors of {units.grouped(n)} elements in {dtype}. "
        f"On {device.name}: {units.si(pipe.peak, 'FLOP/s')} ({pipe.name}), {bandwidth(device)}. "
        "Each vector is read or written once.",
        (
            Question(
                "intensity",
                "The arithmetic intensity.",
                "FLOP/B",
                placed.cost.intensity,
                "2*n/(3*n*b)",
                values,
                (
                    FMA_AS_ONE_FLOP,
                    FMA_AS_FOUR_FLOPS,
                    PER_BIT,
                    Mistake(values["b"], "this is in FLOPs per element, not per byte"),
                    Mistake(1.5, "two vectors were counted; three move: two are read, one is written"),
                ),
            ),
            Question(
                "time",
                "The lower bound on its time.",
                "us",
                placed.bound_seconds,
                "Max(2*n/P_peak, 3*n*b/B_mem)",
                values,
                (compute_time, *BINARY_BANDWIDTH, IN_BITS, Mistake(2 / 3, "two vectors were counted; three move")),
            ),
            Question(
                "rate",
                "The attainable rate.",
                "GFLOP/s",
                placed.cost.flops / placed.bound_seconds,
                "Min(P_peak, 2*B_mem/(3*b))",
                values,
                (
                    FMA_AS_ONE_FLOP,
                    *BINARY_BANDWIDTH,
                    PER_BIT,
                    Mistake(
                        placed.memory_seconds / placed.vector_seconds, "this is the peak; the memory limits the rate"
                    ),
                ),
            ),
        ),
    )


def matmul(draw: Draw) -> Problem:
    """The smallest size at which a GEMM is compute-bound, for two assumptions about its bytes."""
    name, device = draw("kernel", ("matmul", "matmul-accumulate")), device_of(draw)
    passes = 3 if name == "matmul" else 4
    peak, values = device.matmul_pipe("fp16").peak, ceilings(device, "fp16")

    def smallest(kernel: str, width: str) -> int:
        """The smallest n that is compute-bound, with elements of format `width` and the fp16 peak."""
        found = changes(kernel, lambda n: _cost(kernel, n, width), symbol("n"), device, "fp16")
        return found.changes[-1].value

    half, double = smallest(name, "fp16"), smallest("matmul-accumulate", "fp64")
    four = " and four matrices moved (C is also read)" if passes == 3 else ""
    other = Mistake((7 - passes) / passes, f"this counts {7 - passes} moved matrices; here there are {passes}")
    return Problem(
        "matmul",
        "When a GEMM becomes compute-bound",
        f"Square matrices of n x n, {textbook_kernels.KERNELS[name].about}. "
        f"On {device.name}: {units.si(peak, 'FLOP/s', 4)} in fp16, {bandwidth(device)}. "
        "Each matrix in this list moves once between DRAM and the GPU.",
        (
            Question(
                "ridge",
                "The arithmetic intensity of the ridge point.",
                "FLOP/B",
                ridge(device, "fp16"),
                "P_peak/B_mem",
                values,
                (*BINARY_BANDWIDTH, IN_BITS, PER_BIT),
            ),
            Question(
                "fp16",
                "The smallest n that is compute-bound, with elements in fp16.",
                "rows",
                half,
                f"ceiling({passes}*b*P_peak/(2*B_mem))",
                {"b": 2, **values},
                (
                    other,
                    IN_BITS,
                    *BINARY_BANDWIDTH,
                    Mistake(2, "twice the answer: count 2 n^3 FLOPs, and 2 B per element"),
                    Mistake(0.5, "half the answer: count 2 n^3 FLOPs, and 2 B per element"),
                ),
            ),
            Question(
                "fp64",
                f"The smallest compute-bound n for elements of 8 bytes{four}, at the same peak and bandwidth.",
                "rows",
                double,
                "ceiling(4*b*P_peak/(2*B_mem))",
                {"b": 8, **values},
                (
                    Mistake(0.75, "this counts three moved matrices; here there are four"),
                    *BINARY_BANDWIDTH,
                    Mistake(0.25, "this counts 2 bytes per element; here it is 8"),
                    FMA_AS_ONE_FLOP,
                    Mistake(2, "twice the answer: a multiply-add is two FLOPs"),
                ),
            ),
        ),
    )


def stencil(draw: Draw) -> Problem:
    """A 7-point stencil: arithmetic intensity with and without a cache, and the bound on the time."""
    dtype, device = draw("dtype", ("fp32", "fp64")), device_of(draw)
    n = draw("n", range(260, 1020, 20))
    cached, uncached = (_kernel(name, n, dtype, device) for name in ("stencil7", "stencil7-uncached"))
    pipe = device.vector_pipe(dtype)
    assert pipe is not None
    values = {"n": n, "b": width(dtype), "P_peak": pipe.peak, "B_mem": device.bandwidth}
    no_write = Mistake(2, "the write is missing: each point is read and written")
    return Problem(
        "stencil",
        "A 7-point stencil",
        f"Each point of a grid of {n} x {n} x {n} points in {dtype} is computed from itself and its six neighbors with "
        f"7 FLOPs, and written to a second grid. On {device.name}: {units.si(pipe.peak, 'FLOP/s')} ({pipe.name}), "
        f"{bandwidth(device)}.",
        (
            Question(
                "cached",
                "The arithmetic intensity with a cache: each point is read once.",
                "FLOP/B",
                cached.cost.intensity,
                "7*n**3/(2*n**3*b)",
                values,
                (
                    no_write,
                    PER_BIT,
                    Mistake(values["b"], "this is in FLOPs per element, not per byte"),
                    Mistake(0.25, "this is the intensity without a cache"),
                ),
            ),
            Question(
                "uncached",
                "The arithmetic intensity without a cache: each update reads all seven points.",
                "FLOP/B",
                uncached.cost.intensity,
                "7*n**3/(8*n**3*b)",
                values,
                (Mistake(8 / 7, "the write is missing"), PER_BIT, Mistake(4, "this is the intensity with a cache")),
            ),
            Question(
                "time",
                "The lower bound on its time with the cache.",
                "ms",
                cached.bound_seconds,
                "Max(7*n**3/P_peak, 2*n**3*b/B_mem)",
                values,
                (
                    Mistake(0.5, no_write.hint),
                    Mistake(4, "this is the time without a cache"),
                    *BINARY_BANDWIDTH,
                    IN_BITS,
                ),
            ),
        ),
    )


def achieved(draw: Draw) -> Problem:
    """A measured GEMM and its bound: bound on the time, achieved rate, achieved fraction."""
    device, n = device_of(draw), draw("n", (2048, 2560, 3072, 4096, 5120, 6144, 8192))
    placed = _kernel("matmul", n, "fp16", device)
    share = draw("share", range(31, 94)) / 100
    measured_us = float(f"{placed.bound_seconds / share * 1e6:.4g}")
    pipe, values = device.matmul_pipe("fp16"), {"n": n, **ceilings(device, "fp16")}
    measured = {**values, "t": measured_us * 1e-6}
    sparse = device.sparse_pipes[pipe.name].peak / pipe.peak if pipe.name in device.sparse_pipes else 1.0
    return Problem(
        "achieved",
        "Predicted and achieved",
        f"A GEMM of two {n} x {n} matrices in fp16 took {units.significant(measured_us, 4)} us on {device.name}: "
        f"{units.si(pipe.peak, 'FLOP/s', 4)} dense in fp16, {bandwidth(device)}.",
        (
            Question(
                "bound",
                "The lower bound on its time.",
                "us",
                placed.bound_seconds,
                "Max(2*n**3/P_peak, 3*n**2*2/B_mem)",
                values,
                (
                    FMA_AS_ONE_FLOP,
                    Mistake(1 / sparse, "this uses the sparse peak"),
                    Mistake(placed.memory_seconds / placed.bound_seconds, "the FLOPs take longer than these bytes"),
                ),
            ),
            Question(
                "rate",
                "The achieved rate.",
                "TFLOP/s",
                placed.cost.flops / (measured_us * 1e-6),
                "2*n**3/t",
                measured,
                (FMA_AS_ONE_FLOP,),
            ),
            Question(
                "fraction",
                "The bound as a share of the achieved time.",
                "%",
                placed.bound_seconds / (measured_us * 1e-6),
                "Max(2*n**3/P_peak, 3*n**2*2/B_mem)/t",
                measured,
                (
                    FMA_AS_ONE_FLOP,
                    Mistake(1 / sparse, "this uses the sparse peak"),
                    Mistake(
                        (measured_us * 1e-6 / placed.bound_seconds) ** 2,
                        "invert it: divide the bound by the measured time",
                    ),
                    Mistake(0.01, "this is a fraction; give a percentage"),
                ),
            ),
        ),
    )


def counters(draw: Draw) -> Problem:
    """FLOPs and arithmetic intensity from Nsight Compute counters."""
    operations = [op for pipe in ("fp32", "fp16") for op in metric_catalog.VECTOR[pipe]]
    counts = {op: draw(op, range(20, 990)) * 10**6 for op in operations}
    moved, names = draw("bytes", range(300, 1990)) * 10**7, {op: _metric(op) for op in operations}
    collected = {
        **{names[op]: float(count) for op, count in counts.items()},
        f"{metric_catalog.DRAM}.sum": float(moved),
    }
    found = metrics.interpret(collected).flops
    assert found.fp32 is not None
    assert found.fp16 is not None
    single = dict(zip(("a", "m", "f"), (counts[op] for op in metric_catalog.VECTOR["fp32"]), strict=True))
    packed = dict(zip(("A", "M", "F"), (counts[op] for op in metric_catalog.VECTOR["fp16"]), strict=True))
    both = found.fp32 + found.fp16
    readings = "; ".join(f"{metric} = {units.grouped(round(collected[metric]))}" for metric in collected)
    return Problem(
        "counters",
        "FLOPs from ncu counters",
        f"Nsight Compute counted for one kernel: {readings} bytes. An instruction counter adds one per active thread. "
        "A half-precision instruction (hadd, hmul, hfma) is packed: it works on two numbers.",
        (
            Question(
                "fp32",
                "The FLOPs in fp32.",
                "GFLOP",
                found.fp32,
                "a + m + 2*f",
                single,
                (
                    Mistake(
                        sum(single.values()) / found.fp32, "an ffma is a multiplication and an addition: two FLOPs"
                    ),
                    Mistake(2, "twice the answer: single-precision instructions are not packed"),
                ),
            ),
            Question(
                "fp16",
                "The FLOPs in half precision.",
                "GFLOP",
                found.fp16,
                "2*A + 2*M + 4*F",
                packed,
                (
                    Mistake(
                        2 * sum(packed.values()) / found.fp16,
                        "a factor of two is missing: an hfma is a multiplication and an addition on two numbers, four "
                        "FLOPs",
                    ),
                    Mistake(0.5, "half the answer: a packed instruction works on two numbers"),
                    Mistake(
                        sum(packed.values()) / found.fp16,
                        "this counts instructions, not FLOPs: each works on two "
                        "numbers, and an fma does two FLOPs on each",
                    ),
                ),
            ),
            Question(
                "intensity",
                "The arithmetic intensity of the kernel, with all FLOPs.",
                "FLOP/B",
                both / moved,
                "(a + m + 2*f + 2*A + 2*M + 4*F)/y",
                {**single, **packed, "y": moved},
                (
                    Mistake(found.fp32 / both, "this leaves out half precision"),
                    Mistake((found.fp32 + 2 * sum(packed.values())) / both, "an hfma is four FLOPs, not two"),
                    Mistake((found.fp32 + found.fp16 / 2) / both, "a packed instruction works on two numbers"),
                    PER_BIT,
                ),
            ),
        ),
    )


def _cost(name: str, n: Number, width: str) -> Cost:
    """The cost of a textbook kernel with elements of format `width`."""
    return textbook_kernels.operator(name, n, Workload((), dtype=width).widths).cost


def _kernel(name: str, n: int, dtype: str, device: Device) -> Placement:
    return place(_cost(name, n, dtype), device, dtype)


def _metric(operation: str) -> str:
    return f"{metric_catalog.OPERATION.format(unit='smsp', op=operation)}.sum"
