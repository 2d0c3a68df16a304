"""Compute FLOPs by pipe, bytes by memory level and seconds of a launch from its Nsight Compute metrics.

Vector FLOPs = add + mul + 2·fma of `smsp__sass_thread_inst_executed_op_*_pred_on`, which counts the threads whose
predicate is true; a packed half-precision instruction counts once and processes two lanes (source: Nsight Compute's
section files). See also `metric_catalog.py` (metrics by chip), `metric_names.py` (labels and units), `counters.py`
(counts from sums or rates) and `tensor_cores.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from roofmodel.profiles.kernel import Flops, ReaderWarning, Traffic
from roofmodel.profiles.ncu import metric_catalog
from roofmodel.profiles.ncu.counters import Counters, any_contains, sum_metric_names
from roofmodel.profiles.ncu.tensor_cores import TensorCoreCounters

_SECTOR = 32  # bytes


class LaunchMetrics(NamedTuple):
    """Quantities of a launch in base units (None: unknown), and notes for the user."""

    numbers: Mapping[str, float | None]  # by the column of a table of kernels
    flops: Flops
    bytes: Traffic
    notes: tuple[ReaderWarning, ...]

    def quantities(self) -> Iterator[tuple[str, float]]:
        """The known quantities by the name of their column in a table of kernels."""
        every = {**self.numbers, **self.flops._asdict(), **self.bytes._asdict()}
        return ((name, value) for name, value in every.items() if value is not None)


def interpret(values: Mapping[str, float], generation: str | None = None, averaged: bool = False) -> LaunchMetrics:
    """Interpret the metrics of one launch; `values` are in base units (percentages as fractions).

    `generation` is the compute capability, such as `8.0`. `averaged` means that the values are means over several
    launches; counts derived from rates are then approximate, and a note says so.
    """
    rates = any(".sum.per_" in name or name.startswith("derived__") for name in values)
    launch = _Launch(values, generation, averaged, [], rates)
    seconds = launch.seconds()
    pipes = {**launch.vector(), **TensorCoreCounters(values, generation, averaged, launch.notes, rates).flops()}
    for text in _never_collected(values):
        launch.note(text)
    traffic = Traffic(
        dram=launch.dram(),
        l2=launch.cache("L2", metric_catalog.L2, "lts__lts2xbar_cycles_active"),
        l1=launch.cache("L1", metric_catalog.L1, "l1tex__lsu_writeback_active"),
    )
    registers = values.get(metric_catalog.REGISTERS)
    return LaunchMetrics(
        numbers={
            "seconds": seconds,
            "clock": launch.clock(),
            "occupancy": values.get(metric_catalog.OCCUPANCY),
            "registers": None if registers is None else round(registers),
        },
        flops=Flops(**pipes),
        bytes=traffic,
        notes=tuple(dict.fromkeys(launch.notes)),
    )


def _never_collected(names: Collection[str]) -> Iterable[str]:
    """Notes on quantities without any metric, with the metrics to add. `sum_of` reports partly collected sums."""
    vector = metric_catalog.VECTOR
    pipes = [pipe for pipe, ops in vector.items() if not any_contains((f"_op_{op}_pred_on" for op in ops), names)]
    if len(pipes) == len(vector) and not any_contains(["_tensor"], names):
        yield "FLOPs unknown: no FLOP metrics were collected"
    elif pipes:
        missing = (metric_catalog.OPERATION.format(unit="smsp", op=op) for pipe in pipes for op in vector[pipe])
        yield f"{', '.join(pipes)} FLOPs unknown: not collected; add {sum_metric_names(missing)}"
    counters = {"DRAM": metric_catalog.DRAM, "L2": metric_catalog.L2, "L1": metric_catalog.L1}
    prefixes = {level: f"{name.partition('__')[0]}__" for level, name in counters.items()}
    if levels := [level for level, prefix in prefixes.items() if not any_contains([prefix], names)]:
        absent = sum_metric_names(counters[level] for level in levels)
        yield f"{', '.join(levels)} bytes unknown: not collected; add {absent}"


class _Launch(Counters):
    """FLOPs of the CUDA cores and memory traffic of a launch."""

    def operation(self, name: str) -> float | None:
        """Thread-level count of a vector operation such as `ffma`, from either of its two metric prefixes."""
        for unit in ("smsp", "sm"):
            count = self.count(metric_catalog.OPERATION.format(unit=unit, op=name))
            if count is not None:
                return count
        return None

    def vector(self) -> dict[str, float | None]:
        """FLOPs of the CUDA cores by pipe."""

        def flops(pipe: str, add: int, multiply: int, fma: int, operations: tuple[str, ...]) -> float | None:
            weights = dict(zip(operations, (add, multiply, fma), strict=True))
            names = {metric_catalog.OPERATION.format(unit="smsp", op=op): weight for op, weight in weights.items()}
            operation = {metric_catalog.OPERATION.format(unit="smsp", op=op): op for op in weights}
            return self.sum_of(f"{pipe} FLOPs", names, lambda name: self.operation(operation[name]))

        fp32 = flops("fp32", 1, 1, 2, metric_catalog.VECTOR["fp32"])
        if self.generation in metric_catalog.HAS_PACKED_SINGLE and fp32 is not None:
            before = len(self.notes)
            pairs = flops(
                "fp32", 2, 2, 4, metric_catalog.PACKED_SINGLE
            )  # two lanes each; weights inferred, not documented
            if pairs is None and len(self.notes) > before:
                fp32 = None
            elif pairs is None:
                parts = [metric_catalog.OPERATION.format(unit="smsp", op=op) for op in metric_catalog.PACKED_SINGLE]
                self.note(f"fp32 FLOPs exclude packed operations (fadd2, fmul2, ffma2); add {sum_metric_names(parts)}")
            else:
                fp32 += pairs
        return {
            "fp64": flops("fp64", 1, 1, 2, metric_catalog.VECTOR["fp64"]),
            "fp32": fp32,
            "fp16": flops("fp16", 2, 2, 4, metric_catalog.VECTOR["fp16"]),
            "fp16_legacy": flops("fp16", 1, 1, 2, metric_catalog.VECTOR["fp16"]),
        }

    def dram(self) -> float | None:
        """DRAM bytes: the total, or reads plus writes if both were collected."""
        before = len(self.notes)
        for quantity, width in (("bytes", 1), ("sectors", _SECTOR)):
            total = self.values.get(f"dram__{quantity}.sum")
            if total is not None:
                return width * total
            for pair in (("_read", "_write"), ("_op_read", "_op_write")):
                parts: dict[str, float] = {f"dram__{quantity}{part}": width for part in pair}
                total = self.sum_of("DRAM bytes", parts, self.count)
                if total is not None:
                    del self.notes[before:]  # an incomplete pair, replaced by a complete one
                    return total
        after = len(self.notes)
        total = self.from_rate(metric_catalog.DRAM)
        if total is not None:
            del self.notes[before:after]
        return total

    def cache(self, level: str, counter: str, chart: str) -> float | None:
        """Bytes that a cache served. Current roofline charts use cycles instead, which cannot be converted."""
        total, sectors = self.count(counter), self.count(counter.replace("bytes", "sectors"))
        if total is None and sectors is not None:
            total = _SECTOR * sectors
        if total is None and any(name.startswith(chart) for name in self.values):
            self.note(f"{level} bytes unknown: {chart} was collected, but it counts cycles; add {counter}.sum")
        return total
