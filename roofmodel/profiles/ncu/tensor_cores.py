"""FLOPs of the tensor cores in a launch: operations by type, or bounds from instruction counts.

* `sm__ops_path_tensor_src_*` counts operations (2 per multiply-add), so its weight is 1. An export may contain a
  total, its sparse and dense parts, and its parts by instruction; only one of the three is summed.
* `sm__inst_executed_pipe_tensor` counts instructions. FLOPs per instruction depend on its shape: 512 on a V100, which
  has one shape; bounds on other devices.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from roofmodel.profiles.ncu import metric_catalog
from roofmodel.profiles.ncu.counters import Counters, any_contains, metric_list, sum_metric_names

# FLOPs of one tensor instruction, 2·M·N·K of its smallest and largest shape: HMMA.884 (per step) and DMMA.884 512,
# HMMA.1684 1024, .1688 2048, .16816 4096, IMMA.8816 2048, .16832 8192. From compute capability 9 on, the N of a
# warpgroup instruction varies, so there is no upper bound.
_SHAPES: dict[str, dict[str, tuple[int, int]]] = {
    "7.0": {"": (512, 512), "hmma": (512, 512)},
    "7": {"": (512, 2048), "hmma": (512, 2048), "imma": (2048, 2048)},
    "8": {"": (512, 8192), "hmma": (1024, 4096), "imma": (2048, 8192), "dmma": (512, 512)},
    "": {"": (512, 8192), "hmma": (512, 4096), "imma": (2048, 8192), "dmma": (512, 512)},
}


class TensorCoreCounters(Counters):
    """Tensor-core FLOPs of a launch."""

    def flops(self) -> dict[str, float | None]:
        """FLOPs by tensor pipe; bounds if only instructions were counted."""
        if any("__ops_path_tensor_" in name for name in self.values):
            return self.operations_by_type()
        return self.instructions()

    def operations_by_type(self) -> dict[str, float | None]:
        pipes: dict[str, float | None] = {}
        for pipe in dict.fromkeys(pipe for types in metric_catalog.TENSOR.values() for pipe in types):
            device_parts = metric_catalog.row(metric_catalog.TENSOR, self.generation, {}).get(pipe)
            others = sorted({types[pipe] for types in metric_catalog.TENSOR.values() if pipe in types} - {device_parts})
            if device_parts and any(self.source_operations(part) is not None for part in device_parts):
                others = []  # metrics of this device were collected, at least in part
            pipes[pipe] = self._first_complete_sum(pipe, [device_parts, *others] if device_parts else others)
        types = metric_catalog.row(metric_catalog.TENSOR, self.generation, {})
        absent = [
            pipe for pipe, parts in types.items() if not any_contains((f"src_{part}" for part in parts), self.values)
        ]
        if absent:
            sources = (
                metric_catalog.TENSOR_OPERATIONS.format(unit="sm", of=f"src_{p}") for a in absent for p in types[a]
            )
            self.note(f"{', '.join(absent)} FLOPs unknown: not collected; add {sum_metric_names(sources)}")
        if all(count is None for count in pipes.values()) and not self.generation:
            self.note(
                "tensor FLOPs unknown: the collected sm__ops_path_tensor_* metrics depend on the device, which is "
                "unknown; specify the device, or add the totals sm__ops_path_tensor_src_*.sum (without op_)"
            )
        for name, value in self.values.items():
            match = re.match(r"sm__ops_path_tensor_src_(\w+)\.sum", name)
            if (
                match
                and value
                and re.sub(r"_sparsity_(on|off)\Z", "", match.group(1)) not in metric_catalog.ASSIGNED_SOURCES
            ):
                self.note(f"{match.group(1)} tensor operations are ignored: no supported pipe")
        return pipes

    def _first_complete_sum(self, pipe: str, ways: Iterable[tuple[str, ...]]) -> float | None:
        """The sum over the first complete tuple of source types; a note if every tuple is incomplete."""
        partial: list[str] = []
        for parts in ways:
            counts = [self.source_operations(part) for part in parts]
            if None not in counts:
                return sum(count for count in counts if count is not None)
            if any(count is not None for count in counts):
                names = (f"sm__ops_path_tensor_src_{p}" for p, c in zip(parts, counts, strict=True) if c is None)
                partial.append(sum_metric_names(list(names)))
        if partial:
            self.note(f"{pipe} FLOPs unknown: some terms were not collected; add {' or '.join(partial)}")
        return None

    def source_operations(self, source: str) -> float | None:
        """Operations of one source type: the total, else dense + sparse, else the sum over instructions."""
        total = self.dense_and_sparse(f"src_{source}")
        if total is not None:
            return total
        instructions = self.instructions_for(source)
        counts = {
            f"op_{instruction}_src_{source}": self.by_instruction(instruction, source) for instruction in instructions
        }
        absent = [f"sm__ops_path_tensor_{name}" for name, count in counts.items() if count is None]
        if counts and not absent:
            return sum(count for count in counts.values() if count is not None)
        if len(absent) < len(counts):
            metrics = sum_metric_names(absent)
            self.note(f"{source} tensor operations unknown: some instructions were not collected; add {metrics}")
        return None

    def instructions_for(self, source: str) -> tuple[str, ...]:
        """The instructions that process a source type on this device; empty if the device is unknown."""
        table = metric_catalog.row(metric_catalog.INSTRUCTIONS, self.generation, {})
        return table.get(source.split("_dst_")[0]) or table.get("", ())

    def by_instruction(self, instruction: str, source: str) -> float | None:
        total = self.dense_and_sparse(f"op_{instruction}_src_{source}")
        if total is None and instruction == "hmma" and source == "fp16":  # Hopper splits it by accumulator type
            halves = [self.dense_and_sparse(f"op_hmma_src_{half}") for half in metric_catalog.FP16_SOURCES]
            total = None if None in halves else sum(half for half in halves if half is not None)
        return total

    def dense_and_sparse(self, name: str) -> float | None:
        for unit in ("sm", "smsp"):
            stem = metric_catalog.TENSOR_OPERATIONS.format(unit=unit, of=name)
            total = self.count(stem)
            if total is not None:
                return total
            halves = {f"{stem}_sparsity_on": 1.0, f"{stem}_sparsity_off": 1.0}
            total = self.sum_of(name, halves, self.count)
            if total is not None:
                return total
        return None

    def instructions(self) -> dict[str, float | None]:
        """Bounds from tensor instructions, whose shapes are unknown; exact on a V100."""
        total = self.pipe_instructions("")
        by_kind = {kind: self.pipe_instructions(f"_op_{kind}") for kind in ("hmma", "imma", "dmma", "gmma")}
        counts = {"": total} if total is not None else {k: c for k, c in by_kind.items() if c is not None}
        if not counts:
            for text in self.no_tensor_metric():
                self.note(text)
            return {}
        if total is None and (vector := self.pipe_instructions("_op_hmma_type_hfma2")) and "hmma" in counts:
            counts["hmma"] = max(counts["hmma"] - vector, 0)  # vector instructions executed by the tensor pipe
        if not any(counts.values()):
            return {"tensor_fp16": 0} if self.generation == "7.0" else _bounds(0, 0)
        major = (self.generation or "").split(".")[0]
        shapes = _SHAPES.get(self.generation or "") or _SHAPES.get(major)
        metrics = metric_catalog.tensor_operations(self.generation)
        better = metric_list(metrics) or "sm__ops_path_tensor_src_* (Nsight Compute 2023.2)"
        if shapes is None:
            self.note(
                "tensor FLOPs unknown: only instructions were counted, and their size varies on this device; "
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
        self.note(
            f"tensor FLOPs are bounds: instructions ({', '.join(counts) if total is None else 'all'}) were counted, "
            f"with {least} to {most} FLOPs each on "
            f"{f'a device of compute capability {self.generation}' if self.generation else 'an unknown device'}; "
            f"add {better}"
        )
        return _bounds(low, high)

    def no_tensor_metric(self) -> list[str]:
        """A note if vector but no tensor metrics were collected on a device that may have tensor cores."""
        vector = any("_thread_inst_executed_op_" in name for name in self.values)
        if not vector or (self.generation and float(self.generation) < 7):
            return []
        names = metric_list(metric_catalog.tensor_operations(self.generation)) or "sm__ops_path_tensor_src_*.sum"
        return [f"tensor-core FLOPs unknown: no tensor metric was collected; add {names}"]

    def pipe_instructions(self, kind: str) -> float | None:
        names = (
            f"{metric_catalog.TENSOR_INSTRUCTIONS.format(unit=unit)}{kind}{tail}"
            for tail in ("", "_v2")
            for unit in ("sm", "smsp")
        )
        return next((count for name in names if (count := self.count(name)) is not None), None)


def _bounds(low: float, high: float) -> dict[str, float | None]:
    return {"tensor_low": low, "tensor_high": high}
