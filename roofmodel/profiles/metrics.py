"""Nsight Compute's metrics of one launch -> FLOPs by pipe, bytes by level, seconds.

Which metrics exist on which chip is in `catalogue.py`; what they mean, from the section files of Nsight Compute:

* vector FLOPs = add + mul + 2·fma of `smsp__sass_thread_inst_executed_op_*_pred_on`, which counts the threads
  whose predicate is true. A packed half instruction is counted once and does two lanes.
* `sm__ops_path_tensor_src_*` counts operations, 2 per multiply-add: its weight is 1. A total, its sparse and
  dense parts, and its parts by instruction stand side by side in one export, and only one of the three counts.
* `sm__inst_executed_pipe_tensor` counts instructions, whose shape decides what they do: 512 FLOPs each on a
  V100, where there is one shape; elsewhere there are only bounds.
* A rate times a time is a count: `.sum.per_cycle_elapsed` × cycles per second × seconds.

A sum of which a part is missing is None and a note names the part; nothing is added up that would be too low.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from roofmodel.profiles import catalogue
from roofmodel.profiles.catalogue import tensor_operations
from roofmodel.profiles.kernel import Flops, Traffic

# FLOPs of one tensor instruction, 2·M·N·K of its smallest and largest shape: HMMA.884 (per step) and DMMA.884 512,
# HMMA.1684 1024, .1688 2048, .16816 4096, IMMA.8816 2048, .16832 8192. From compute capability 9 on a warpgroup's
# instruction has a free N, so that there is no bound.
_SHAPES: dict[str, dict[str, tuple[int, int]]] = {
    "7.0": {"": (512, 512), "hmma": (512, 512)},
    "7": {"": (512, 2048), "hmma": (512, 2048), "imma": (2048, 2048)},
    "8": {"": (512, 8192), "hmma": (1024, 4096), "imma": (2048, 8192), "dmma": (512, 512)},
    "": {"": (512, 8192), "hmma": (512, 4096), "imma": (2048, 8192), "dmma": (512, 512)},
}

_SECTOR = 32  # bytes

_WANTED = re.compile(
    r"(derived__)?(sm|smsp)__sass_thread_inst_executed_op_[dfh](add|mul|fma)2?_pred_on(\.sum(\.per_second|\.per_cycle_elapsed)?|_x\d)$"
    r"|(sm|smsp)__ops_path_tensor_(?!\w*realtime)(op_\w+_)?src_\w+\.sum(\.per_second|\.per_cycle_elapsed)?$"
    r"|(sm|smsp)__inst_executed_pipe_tensor(_op_([hid]mma|gmma|hmma_type_hfma2))?(_subpipe_\w+)?(_v2)?\.sum(\.per_second|\.per_cycle_elapsed)?$"
    r"|(dram|lts__t|l1tex__t)_{1,2}(bytes|sectors)(_op)?(_read|_write)?\.sum(\.per_second)?$"
    r"|lts__lts2xbar_cycles_active\.sum|l1tex__lsu_writeback_active\w*\.sum"
    r"|gpu__time_(duration|active)\.(sum|avg|max|min)$"
    r"|(sm|smsp|gpc)__cycles_elapsed\.(avg|max)(\.per_second)?$"
    r"|sm__warps_active\.avg\.pct_of_peak_sustained_active$|launch__registers_per_thread$|SM Frequency$"
)


def wanted(name: str) -> bool:
    """Whether a metric is one that `interpret` reads; the others need not be kept."""
    return _WANTED.match(name) is not None


def dimension(name: str) -> str:
    """What unit a metric's value is in: 's', 'byte', 'byte/s', '/s', '%' or '' (a count), as `cells.unit` says it."""
    if name.startswith("gpu__time"):
        return "s"
    if name == "SM Frequency":
        return "/s"
    if ".pct" in name:
        return "%"
    rate = "/s" if name.endswith("per_second") else ""
    return ("byte" if "__bytes" in name or "__t_bytes" in name else "") + rate


_LABELS = {
    ("Duration", "s"): catalogue.DURATION,
    ("Registers Per Thread", ""): catalogue.REGISTERS,
    ("Achieved Occupancy", "%"): catalogue.OCCUPANCY,
    # Memory Throughput is a share of the peak in one section and dram__bytes.sum.per_second in another: the unit tells
    ("Memory Throughput", "byte/s"): f"{catalogue.DRAM}.sum.per_second",
    ("DRAM Bandwidth", "byte/s"): f"{catalogue.DRAM}.sum.per_second",
}
_PER_CYCLE = re.compile(r"Predicated-On ([DFH](?:ADD|MUL|FMA)) Thread Instructions Executed Per Cycle\Z")
_IDENTIFIER = re.compile(r"\b\w+__[\w.]+")


def canonical(label: str, measured_in: str, section: str, item: str) -> str:
    """The metric behind what the details page prints: itself, or what the section files put under that label.

    `measured_in` is the dimension of the cell, `section` and `item` the columns Section Name and Body Item Label.
    A label that is ambiguous stays as it is, and so is not read.
    """
    if match := _IDENTIFIER.search(label):  # also "Duration (gpu__time_duration.sum)"
        return match.group()
    if match := _PER_CYCLE.match(label):
        return catalogue.OPERATION.format(unit="smsp", op=match.group(1).lower()) + ".sum.per_cycle_elapsed"
    if label == "SM Frequency":
        if item.endswith("Achieved Value"):
            return "smsp__cycles_elapsed.avg.per_second"
        return label if section.startswith("GPU Speed Of Light") and "Roofline" not in section else f"{section}/{label}"
    return _LABELS.get((label, measured_in), label)


def capability(text: str | None) -> str | None:
    """`8.0`, `80`, `sm_80`, `8,0` -> `8.0`; None for what is no compute capability."""
    match = re.fullmatch(r"(?:sm_|cc)?(\d{1,2})[.,]?(\d)[a-z]?", (text or "").strip().lower())
    return f"{int(match.group(1))}.{match.group(2)}" if match else None


class Meaning(NamedTuple):
    """What the metrics of a launch amount to: base units, None where they do not say; notes for a person."""

    seconds: float | None
    clock: float | None
    occupancy: float | None
    registers: int | None
    flops: Flops
    bytes: Traffic
    notes: tuple[str, ...]


def interpret(values: Mapping[str, float], generation: str | None = None, averaged: bool = False) -> Meaning:
    """Read the metrics of one launch; `values` holds what was collected, in base units (a percentage as a fraction).

    `generation` is the compute capability, as `8.0`. `averaged`: the values are means over several launches, of
    which rates cannot be turned into counts exactly, and a note says so.
    """
    rates = any(".sum.per_" in name or name.startswith("derived__") for name in values)
    launch = _Launch(values, generation, averaged, [], rates)
    seconds = launch.seconds()
    pipes = {**launch.vector(), **launch.tensor()}
    launch.notes.extend(_never_collected(values))
    traffic = Traffic(
        dram=launch.dram(),
        l2=launch.cache("L2", catalogue.L2, "lts__lts2xbar_cycles_active"),
        l1=launch.cache("L1", catalogue.L1, "l1tex__lsu_writeback_active"),
    )
    registers = values.get(catalogue.REGISTERS)
    return Meaning(
        seconds=seconds,
        clock=launch.clock(),
        occupancy=values.get(catalogue.OCCUPANCY),
        registers=None if registers is None else round(registers),
        flops=Flops(**pipes),
        bytes=traffic,
        notes=tuple(dict.fromkeys(launch.notes)),
    )


def _never_collected(names: Collection[str]) -> Iterable[str]:
    """Of what no form was collected, and what to add; what is there in part is told where it is summed."""
    vector = catalogue.VECTOR
    pipes = [pipe for pipe, ops in vector.items() if not _any_of((f"_op_{op}_pred_on" for op in ops), names)]
    if len(pipes) == len(vector) and not _any_of(["_tensor"], names):
        yield "FLOPs unknown: no metric of them was collected"
    elif pipes:
        missing = (catalogue.OPERATION.format(unit="smsp", op=op) for pipe in pipes for op in vector[pipe])
        yield f"{_listed(pipes)} FLOPs unknown: none was collected; add {_sums(missing)}"
    counters = {"DRAM": catalogue.DRAM, "L2": catalogue.L2, "L1": catalogue.L1}
    if levels := [level for level, name in counters.items() if not _any_of([f"{name.partition('__')[0]}__"], names)]:
        yield f"{_listed(levels)} bytes unknown: none were collected; add {_sums(counters[level] for level in levels)}"


def _any_of(parts: Iterable[str], names: Collection[str]) -> bool:
    """Whether any of the names contains one of the parts."""
    return any(part in name for part in parts for name in names)


@dataclass(frozen=True)
class _Launch:
    values: Mapping[str, float]
    generation: str | None
    averaged: bool
    notes: list[str]
    rates: bool  # whether any rate was collected: where none was, nobody need look for one

    def first(self, *names: str) -> float | None:
        return next((self.values[name] for name in names if name in self.values), None)

    def seconds(self) -> float | None:
        """The duration: measured, or NERSC's cycles ÷ cycles per second."""
        rollups = ("sum", "avg", "max", "min")  # of one unit, the GPU: they are all the same
        time = self.first(*(f"gpu__time_{kind}.{rollup}" for kind in ("duration", "active") for rollup in rollups))
        if time is None:
            for unit in ("sm", "smsp"):
                cycles = self.first(f"{unit}__cycles_elapsed.avg", f"{unit}__cycles_elapsed.max")
                rate = self.first(f"{unit}__cycles_elapsed.avg.per_second")
                if cycles is not None and rate:
                    if self.averaged:
                        self.notes.append("seconds are mean cycles ÷ mean clock: approximate")
                    return cycles / rate
            self.notes.append(f"seconds unknown: no duration was collected; add {catalogue.DURATION}")
        return time

    def clock(self, unit: str = "sm") -> float | None:
        """Cycles per second of the multiprocessors while the launch was measured."""
        units = dict.fromkeys((unit, "sm", "smsp", "gpc"))
        return self.first(*(f"{u}__cycles_elapsed.avg.per_second" for u in units), "SM Frequency")

    def count(self, name: str) -> float | None:
        """A counter's sum over the launch, from whatever form of it was collected."""
        total = self.values.get(f"{name}.sum")
        return self.from_rate(name) if total is None else total

    def from_rate(self, name: str) -> float | None:
        """A counter's sum from its rate: per second × seconds, per cycle × cycles per second × seconds."""
        if not self.rates:
            return None
        per_second, per_cycle = self.values.get(f"{name}.sum.per_second"), self.per_cycle(name)
        if per_second is None and per_cycle is None:
            return None
        if per_second == 0 or per_cycle == 0:
            return 0
        unit, seconds = name.partition("__")[0], self._quiet_seconds()
        if per_second is None and per_cycle is not None and (clock := self.clock(unit)) is not None:
            per_second = per_cycle * clock
        count = per_second * seconds if per_second is not None and seconds is not None else None
        cycles = self.first(*(f"{u}__cycles_elapsed.avg" for u in (unit, "sm", "smsp")))
        if count is None and per_cycle is not None and cycles is not None:
            count = per_cycle * cycles
        if count is None:
            self.notes.append(
                "rates were collected, and without clock and duration they are no counts; "
                f"add {catalogue.CLOCK} and {catalogue.DURATION}"
            )
        elif self.averaged:
            self.notes.append(
                "some counts are mean rate × mean time, which is approximate; collect .sum for exact ones"
            )
        else:
            self.notes.append(
                "some counts are rate × time, as exact as the digits printed; collect .sum for exact ones"
            )
        return count

    def per_cycle(self, name: str) -> float | None:
        """A rate per cycle, also where a chart's own metric holds it times the operations of one instruction."""
        rate = self.values.get(f"{name}.sum.per_cycle_elapsed")
        charted = ((times, self.values.get(f"derived__{name}_x{times}")) for times in (2, 4))
        return (
            rate if rate is not None else next((value / times for times, value in charted if value is not None), None)
        )

    def _quiet_seconds(self) -> float | None:
        return _Launch(self.values, self.generation, self.averaged, [], False).seconds()

    def sum_of(self, what: str, parts: Mapping[str, float], count: Callable[[str], float | None]) -> float | None:
        """Σ weight × count; None, with a note that names the missing, unless every part was collected."""
        counts = {name: count(name) for name in parts}
        absent = [name for name, value in counts.items() if value is None]
        if not absent:
            return sum(parts[name] * value for name, value in counts.items() if value is not None)
        if len(absent) < len(parts):
            self.notes.append(f"{what} unknown: a part of the sum was not collected; add {_sums(absent)}")
        return None

    def operation(self, name: str) -> float | None:
        """Threads that executed a vector operation such as `ffma`, under either of its two prefixes."""
        for unit in ("smsp", "sm"):
            count = self.count(catalogue.OPERATION.format(unit=unit, op=name))
            if count is not None:
                return count
        return None

    def vector(self) -> dict[str, float | None]:
        """FLOPs of the CUDA cores."""

        def flops(pipe: str, add: int, multiply: int, fma: int, operations: tuple[str, ...]) -> float | None:
            weights = dict(zip(operations, (add, multiply, fma), strict=True))
            names = {catalogue.OPERATION.format(unit="smsp", op=op): weight for op, weight in weights.items()}
            operation = {catalogue.OPERATION.format(unit="smsp", op=op): op for op in weights}
            return self.sum_of(f"{pipe} FLOPs", names, lambda name: self.operation(operation[name]))

        fp32 = flops("fp32", 1, 1, 2, catalogue.VECTOR["fp32"])
        if self.generation in catalogue.HAS_PACKED_SINGLE and fp32 is not None:
            before = len(self.notes)
            pairs = flops("fp32", 2, 2, 4, catalogue.PACKED_SINGLE)  # two lanes each; weights inferred
            if pairs is None and len(self.notes) > before:
                fp32 = None
            elif pairs is None:
                parts = [catalogue.OPERATION.format(unit="smsp", op=op) for op in catalogue.PACKED_SINGLE]
                self.notes.append(f"fp32 FLOPs lack the packed operations of this device; add {_sums(parts)}")
            else:
                fp32 += pairs
        return {
            "fp64": flops("fp64", 1, 1, 2, catalogue.VECTOR["fp64"]),
            "fp32": fp32,
            "fp16": flops("fp16", 2, 2, 4, catalogue.VECTOR["fp16"]),
            "fp16_legacy": flops("fp16", 1, 1, 2, catalogue.VECTOR["fp16"]),
        }

    def tensor(self) -> dict[str, float | None]:
        """Operations of the tensor cores; bounds where only instructions were counted."""
        if any("__ops_path_tensor_" in name for name in self.values):
            return self.operations_by_type()
        return self.instructions()

    def operations_by_type(self) -> dict[str, float | None]:
        pipes: dict[str, float | None] = {}
        for pipe in dict.fromkeys(pipe for types in catalogue.TENSOR.values() for pipe in types):
            known = catalogue.row(catalogue.TENSOR, self.generation, {}).get(pipe)
            others = sorted({types[pipe] for types in catalogue.TENSOR.values() if pipe in types} - {known})
            if known and any(self.of_type(part) is not None for part in known):
                others = []  # what the device is known to have was collected, be it in part
            pipes[pipe] = self._one_way(pipe, [known, *others] if known else others)
        types = catalogue.row(catalogue.TENSOR, self.generation, {})
        absent = [pipe for pipe, parts in types.items() if not _any_of((f"src_{part}" for part in parts), self.values)]
        if absent:
            sources = (catalogue.TENSOR_OPERATIONS.format(unit="sm", of=f"src_{p}") for a in absent for p in types[a])
            self.notes.append(f"{_listed(absent)} FLOPs unknown: none was collected; add {_sums(sources)}")
        if all(count is None for count in pipes.values()) and not self.generation:
            self.notes.append(
                "tensor FLOPs unknown: which of the collected sm__ops_path_tensor_* make a total depends on the "
                "device, which is not known; give it, or add the totals, sm__ops_path_tensor_src_*.sum without op_"
            )
        for name, value in self.values.items():
            match = re.match(r"sm__ops_path_tensor_src_(\w+)\.sum", name)
            if match and value and re.sub(r"_sparsity_(on|off)\Z", "", match.group(1)) not in catalogue.PLACED:
                self.notes.append(f"{match.group(1)} tensor operations were counted, and have no pipe here: left out")
        return pipes

    def _one_way(self, pipe: str, ways: Iterable[tuple[str, ...]]) -> float | None:
        """The total of the first complete way to count a pipe; a note where each lacks a part."""
        partial: list[str] = []
        for parts in ways:
            counts = [self.of_type(part) for part in parts]
            if None not in counts:
                return sum(count for count in counts if count is not None)
            if any(count is not None for count in counts):
                names = (f"sm__ops_path_tensor_src_{p}" for p, c in zip(parts, counts, strict=True) if c is None)
                partial.append(_sums(list(names)))
        if partial:
            self.notes.append(f"{pipe} FLOPs unknown: a part of the sum was not collected; add {' or '.join(partial)}")
        return None

    def of_type(self, source: str) -> float | None:
        """Operations of one source type: the total, or dense + sparse, or the sum over instructions; never two."""
        total = self.dense_and_sparse(f"src_{source}")
        if total is not None:
            return total
        doers = self.doers(source)
        counts = {f"op_{doer}_src_{source}": self.by_instruction(doer, source) for doer in doers}
        absent = [f"sm__ops_path_tensor_{name}" for name, count in counts.items() if count is None]
        if counts and not absent:
            return sum(count for count in counts.values() if count is not None)
        if len(absent) < len(counts):
            self.notes.append(
                f"{source} tensor operations unknown: some instructions' are missing; add {_sums(absent)}"
            )
        return None

    def doers(self, source: str) -> tuple[str, ...]:
        """The instructions that do a source type's work on this device; none where the device is not known."""
        table = catalogue.row(catalogue.INSTRUCTIONS, self.generation, {})
        return table.get(source.split("_dst_")[0]) or table.get("", ())

    def by_instruction(self, doer: str, source: str) -> float | None:
        total = self.dense_and_sparse(f"op_{doer}_src_{source}")
        if total is None and doer == "hmma" and source == "fp16":  # Hopper splits it once more
            halves = [self.dense_and_sparse(f"op_hmma_src_{half}") for half in catalogue.HALF]
            total = None if None in halves else sum(half for half in halves if half is not None)
        return total

    def dense_and_sparse(self, name: str) -> float | None:
        for unit in ("sm", "smsp"):
            stem = catalogue.TENSOR_OPERATIONS.format(unit=unit, of=name)
            total = self.count(stem)
            if total is not None:
                return total
            halves = {f"{stem}_sparsity_on": 1.0, f"{stem}_sparsity_off": 1.0}
            total = self.sum_of(name, halves, self.count)
            if total is not None:
                return total
        return None

    def instructions(self) -> dict[str, float | None]:
        """Bounds from tensor instructions (their shape is not counted); exact on a V100."""
        total = self.pipe_instructions("")
        by_kind = {kind: self.pipe_instructions(f"_op_{kind}") for kind in ("hmma", "imma", "dmma", "gmma")}
        counts = {"": total} if total is not None else {k: c for k, c in by_kind.items() if c is not None}
        if not counts:
            self.notes.extend(self.no_tensor_metric())
            return {}
        if total is None and (vector := self.pipe_instructions("_op_hmma_type_hfma2")) and "hmma" in counts:
            counts["hmma"] = max(counts["hmma"] - vector, 0)  # vector work that the tensor pipe did
        if not any(counts.values()):
            return {"tensor_fp16": 0} if self.generation == "7.0" else _bounds(0, 0)
        major = (self.generation or "").split(".")[0]
        shapes = _SHAPES.get(self.generation or "") or _SHAPES.get(major)
        better = _listed(tensor_operations(self.generation)) or "sm__ops_path_tensor_src_* (Nsight Compute 2023.2)"
        if shapes is None:
            self.notes.append(
                "tensor FLOPs unknown: instructions were counted, and how much one does is not fixed on this device; "
                f"add {better}"
            )
            return {}
        counts = {kind: count for kind, count in counts.items() if kind in shapes}
        low, high = (sum(shapes[kind][end] * count for kind, count in counts.items()) for end in (0, 1))
        if self.generation == "7.0":
            return {"tensor_fp16": low}
        if not counts:
            return {}
        least, most = min(shapes[kind][0] for kind in counts), max(shapes[kind][1] for kind in counts)
        self.notes.append(
            f"tensor FLOPs are bounds: instructions ({', '.join(counts) if total is None else 'all'}) were counted, "
            f"and one does {least} to {most} on "
            f"{f'a device of compute capability {self.generation}' if self.generation else 'an unknown device'}; "
            f"add {better}"
        )
        return _bounds(low, high)

    def no_tensor_metric(self) -> list[str]:
        """What is missing where vector FLOPs were collected on a device that has tensor cores, and theirs were not."""
        vector = any("_thread_inst_executed_op_" in name for name in self.values)
        if not vector or (self.generation and float(self.generation) < 7):
            return []
        names = _listed(tensor_operations(self.generation)) or "sm__ops_path_tensor_src_*.sum of the device"
        return [f"tensor-core FLOPs unknown: no tensor metric was collected; add {names}"]

    def pipe_instructions(self, kind: str) -> float | None:
        names = (
            f"{catalogue.TENSOR_INSTRUCTIONS.format(unit=unit)}{kind}{tail}"
            for tail in ("", "_v2")
            for unit in ("sm", "smsp")
        )
        return next((count for name in names if (count := self.count(name)) is not None), None)

    def dram(self) -> float | None:
        """Bytes to and from DRAM: the sum, or reads and writes, of which both are needed."""
        before = len(self.notes)
        for quantity, width in (("bytes", 1), ("sectors", _SECTOR)):
            total = self.values.get(f"dram__{quantity}.sum")
            if total is not None:
                return width * total
            for pair in (("_read", "_write"), ("_op_read", "_op_write")):
                parts: dict[str, float] = {f"dram__{quantity}{part}": width for part in pair}
                total = self.sum_of("DRAM bytes", parts, self.count)
                if total is not None:
                    del self.notes[before:]  # of a pair that another one made good
                    return total
        after = len(self.notes)
        total = self.from_rate(catalogue.DRAM)
        if total is not None:
            del self.notes[before:after]
        return total

    def cache(self, level: str, counter: str, chart: str) -> float | None:
        """Bytes that a cache served, in the counted form; the cycles that current charts use are something else."""
        total, sectors = self.count(counter), self.count(counter.replace("bytes", "sectors"))
        if total is None and sectors is not None:
            total = _SECTOR * sectors
        if total is None and any(name.startswith(chart) for name in self.values):
            self.notes.append(
                f"{level} bytes unknown: {chart} was collected, which is another quantity; add {counter}.sum"
            )
        return total


def _bounds(low: float, high: float) -> dict[str, float | None]:
    return {"tensor_low": low, "tensor_high": high}


def _sums(names: Iterable[str]) -> str:
    return _listed([f"{name}.sum" for name in names])


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names)
