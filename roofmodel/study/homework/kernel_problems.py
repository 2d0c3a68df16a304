"""Problems of homework about kernels: vector updates, matrix products, a stencil, and what was measured of them."""

from __future__ import annotations

from roofmodel import units
from roofmodel.algebra import Number
from roofmodel.counting import textbook_kernels
from roofmodel.counting.operator import Cost
from roofmodel.counting.workload import Workload
from roofmodel.devices.device import Device
from roofmodel.models.symbols import symbol
from roofmodel.prediction.roofline import Placement, place, ridge
from roofmodel.profiles.ncu import metric_catalog, metrics
from roofmodel.study.derive.bound_changes import changes
from roofmodel.study.homework.problem import (
    FASTER,
    FEWER_BITS,
    FMA_ONCE,
    FMA_TWICE,
    MORE_BITS,
    SLOWER,
    Draw,
    Problem,
    Question,
    Slip,
    bandwidth,
    device_of,
    roofs,
    width,
)


def stream(draw: Draw) -> Problem:
    """A vector update: intensity and bound."""
    name, dtype, device = draw("kernel", ("saxpy", "triad")), draw("dtype", ("fp32", "fp64")), device_of(draw)
    n = draw("n", range(10, 100)) * 10**6
    placed = _kernel(name, n, dtype, device)
    pipe = device.vector_pipe(dtype)
    assert pipe is not None
    values = {"n": n, "b": width(dtype), "P_peak": pipe.peak, "B_mem": device.bandwidth}
    on_chip = Slip(
        placed.vector_seconds / placed.memory_seconds, "this is the time of the FLOPs; the bytes take longer"
    )
    return Problem(
        "stream",
        f"{name} under its roof",
        f"{textbook_kernels.KERNELS[name].about}, over vectors of {units.grouped(n)} elements in {dtype}. "
        f"On {device.name}: {units.si(pipe.peak, 'FLOP/s')} ({pipe.name}), {bandwidth(device)}. "
        "Each vector passes once.",
        (
            Question(
                "intensity", "Its arithmetic intensity.", "FLOP/B", placed.cost.intensity, "2*n/(3*n*b)", values,
                (
                    FMA_ONCE, FMA_TWICE, FEWER_BITS, Slip(values["b"], "this is FLOPs per element, not per byte"),
                    Slip(1.5, "two vectors were counted; three pass: two are read, and one is written"),
                ),
            ),
            Question(
                "time", "The least time that it can take.", "us", placed.bound_seconds,
                "Max(2*n/P_peak, 3*n*b/B_mem)", values,
                (on_chip, SLOWER, FASTER, MORE_BITS, Slip(2 / 3, "two vectors were counted; three pass")),
            ),
            Question(
                "rate", "The most FLOP/s that it can reach.", "GFLOP/s", placed.cost.flops / placed.bound_seconds,
                "Min(P_peak, 2*B_mem/(3*b))", values,
                (
                    FMA_ONCE, SLOWER, FASTER, FEWER_BITS,
                    Slip(placed.memory_seconds / placed.vector_seconds, "this is the peak; the memory is slower"),
                ),
            ),
        ),
    )  # fmt: skip


def matmul(draw: Draw) -> Problem:
    """From which size a matrix product is bound by compute, and what that rests on."""
    name, device = draw("kernel", ("matmul", "matmul-accumulate")), device_of(draw)
    passes = 3 if name == "matmul" else 4
    peak, values = device.matmul_pipe("fp16").peak, roofs(device, "fp16")

    def even(kernel: str, width: str) -> int:
        """The smallest n that is bound by compute with elements as wide as `width`, multiplied at the rate of fp16."""
        found = changes(kernel, lambda n: _cost(kernel, n, width), symbol("n"), device, "fp16")
        return found.changes[-1].value

    half, double = even(name, "fp16"), even("matmul-accumulate", "fp64")
    four = ", and four matrices that pass: C is read, too" if passes == 3 else ""
    other = Slip((7 - passes) / passes, f"this counts {7 - passes} passes over matrices; here there are {passes}")
    return Problem(
        "matmul",
        "Where a matrix product leaves the memory roof",
        f"Square matrices of n x n, {textbook_kernels.KERNELS[name].about}. "
        f"On {device.name}: {units.si(peak, 'FLOP/s', 4)} in fp16, {bandwidth(device)}. "
        "Each matrix passes once for each time that it is named.",
        (
            Question(
                "ridge", "The intensity at which the two roofs meet.", "FLOP/B", ridge(device, "fp16"),
                "P_peak/B_mem", values, (SLOWER, FASTER, MORE_BITS, FEWER_BITS),
            ),
            Question(
                "fp16", "The smallest n that is bound by compute, with elements in fp16.", "rows", half,
                f"ceiling({passes}*b*P_peak/(2*B_mem))", {"b": 2, **values},
                (
                    other, MORE_BITS, SLOWER, FASTER, Slip(2, "twice of it: 2 n^3 FLOPs, and 2 B an element"),
                    Slip(0.5, "half of it: 2 n^3 FLOPs, and 2 B an element"),
                ),
            ),
            Question(
                "fp64", f"The n that it would be with elements of 8 bytes at the same two roofs{four}.", "rows",
                double, "ceiling(4*b*P_peak/(2*B_mem))", {"b": 8, **values},
                (
                    Slip(0.75, "this counts three passes; here there are four"), SLOWER, FASTER,
                    Slip(0.25, "this has 2 bytes an element; here they have 8"), FMA_ONCE,
                    Slip(2, "twice of it: a multiply-add is two FLOPs"),
                ),
            ),
        ),
    )  # fmt: skip


def stencil(draw: Draw) -> Problem:
    """A 7-point stencil with and without a cache."""
    dtype, device = draw("dtype", ("fp32", "fp64")), device_of(draw)
    n = draw("n", range(260, 1020, 20))
    cached, uncached = (_kernel(name, n, dtype, device) for name in ("stencil7", "stencil7-uncached"))
    pipe = device.vector_pipe(dtype)
    assert pipe is not None
    values = {"n": n, "b": width(dtype), "P_peak": pipe.peak, "B_mem": device.bandwidth}
    once = Slip(2, "the write was left out: each point is read and written")
    return Problem(
        "stencil",
        "A 7-point stencil",
        f"Each point of a cube of {n} x {n} x {n} points in {dtype} is made of itself and its six neighbours, by 7 "
        f"FLOPs, and written to another cube. On {device.name}: {units.si(pipe.peak, 'FLOP/s')} ({pipe.name}), "
        f"{bandwidth(device)}.",
        (
            Question(
                "cached", "Its intensity if a cache keeps what neighbours share: each point is read once.", "FLOP/B",
                cached.cost.intensity, "7*n**3/(2*n**3*b)", values,
                (
                    once, FEWER_BITS, Slip(values["b"], "this is FLOPs per element, not per byte"),
                    Slip(0.25, "this is the intensity without a cache"),
                ),
            ),
            Question(
                "uncached", "Its intensity if there is no cache: each neighbour is read each time.", "FLOP/B",
                uncached.cost.intensity, "7*n**3/(8*n**3*b)", values,
                (Slip(8 / 7, "the write was left out"), FEWER_BITS, Slip(4, "this is the intensity with a cache")),
            ),
            Question(
                "time", "The least time that it can take with the cache.", "ms", cached.bound_seconds,
                "Max(7*n**3/P_peak, 2*n**3*b/B_mem)", values,
                (Slip(0.5, once.hint), Slip(4, "this is the time without a cache"), SLOWER, FASTER, MORE_BITS),
            ),
        ),
    )  # fmt: skip


def achieved(draw: Draw) -> Problem:
    """A measured matrix product beside its bound."""
    device, n = device_of(draw), draw("n", (2048, 2560, 3072, 4096, 5120, 6144, 8192))
    placed = _kernel("matmul", n, "fp16", device)
    share = draw("share", range(31, 94)) / 100
    took = float(f"{placed.bound_seconds / share * 1e6:.4g}")
    pipe, values = device.matmul_pipe("fp16"), {"n": n, **roofs(device, "fp16")}
    measured = {**values, "t": took * 1e-6}
    sparse = device.sparse_pipes[pipe.name].peak / pipe.peak if pipe.name in device.sparse_pipes else 1.0
    return Problem(
        "achieved",
        "Predicted and achieved",
        f"A product of two {n} x {n} matrices in fp16 took {units.significant(took, 4)} us on {device.name}: "
        f"{units.si(pipe.peak, 'FLOP/s', 4)} dense in fp16, {bandwidth(device)}.",
        (
            Question(
                "bound", "The least time that it can take.", "us", placed.bound_seconds,
                "Max(2*n**3/P_peak, 3*n**2*2/B_mem)", values,
                (
                    FMA_ONCE, Slip(1 / sparse, "this is at the peak of sparse matrices"),
                    Slip(placed.memory_seconds / placed.bound_seconds, "the FLOPs take longer than these bytes"),
                ),
            ),
            Question(
                "rate", "The rate that it reached.", "TFLOP/s", placed.cost.flops / (took * 1e-6), "2*n**3/t", measured,
                (FMA_ONCE,),
            ),
            Question(
                "fraction", "What part of the bound it reached.", "%", placed.bound_seconds / (took * 1e-6),
                "Max(2*n**3/P_peak, 3*n**2*2/B_mem)/t", measured,
                (
                    FMA_ONCE, Slip(1 / sparse, "this is of the peak of sparse matrices"),
                    Slip((took * 1e-6 / placed.bound_seconds) ** 2, "turn it over: the bound's time by the measured"),
                    Slip(0.01, "this is a fraction of one; it is asked in percent"),
                ),
            ),
        ),
    )  # fmt: skip


def counters(draw: Draw) -> Problem:
    """FLOPs out of Nsight Compute's counters."""
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
    told = "; ".join(f"{metric} = {units.grouped(round(collected[metric]))}" for metric in collected)
    return Problem(
        "counters",
        "What ncu's counters say",
        f"Nsight Compute counted, of one kernel: {told} bytes. A counter of instructions counts each thread whose "
        "predicate is on once; a half-precision instruction (hadd, hmul, hfma) is packed: it works on two numbers.",
        (
            Question(
                "fp32", "The FLOPs in fp32.", "GFLOP", found.fp32, "a + m + 2*f", single,
                (
                    Slip(sum(single.values()) / found.fp32, "an ffma is a product and a sum: two FLOPs"),
                    Slip(2, "twice of it: single-precision instructions are not packed"),
                ),
            ),
            Question(
                "fp16", "The FLOPs in half precision.", "GFLOP", found.fp16, "2*A + 2*M + 4*F", packed,
                (
                    Slip(
                        2 * sum(packed.values()) / found.fp16,
                        "the factor two that many formulas lack: an hfma is a product and a sum of two numbers, four "
                        "FLOPs",
                    ),
                    Slip(0.5, "half of it: a packed instruction works on two numbers"),
                    Slip(sum(packed.values()) / found.fp16, "instructions are no FLOPs: two numbers each, and an fma "
                         "does two FLOPs with each"),
                ),
            ),
            Question(
                "intensity", "The kernel's intensity, all FLOPs together.", "FLOP/B", both / moved,
                "(a + m + 2*f + 2*A + 2*M + 4*F)/y", {**single, **packed, "y": moved},
                (
                    Slip(found.fp32 / both, "this leaves out half precision"),
                    Slip((found.fp32 + 2 * sum(packed.values())) / both, "an hfma is four FLOPs, not two"),
                    Slip((found.fp32 + found.fp16 / 2) / both, "a packed instruction works on two numbers"),
                    FEWER_BITS,
                ),
            ),
        ),
    )  # fmt: skip


def _cost(name: str, n: Number, width: str) -> Cost:
    """Of a plain kernel with elements as wide as a format."""
    return textbook_kernels.operator(name, n, Workload((), dtype=width).widths).cost


def _kernel(name: str, n: int, dtype: str, device: Device) -> Placement:
    return place(_cost(name, n, dtype), device, dtype)


def _metric(operation: str) -> str:
    return f"{metric_catalog.OPERATION.format(unit='smsp', op=operation)}.sum"
