"""The cheapest change with which a workload fits into a device's memory: in training a sharded optimizer, recomputation
or smaller microbatches, which need no more GPUs; else more GPUs or a narrower weight format."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import inf, isqrt
from typing import Any

from roofmodel.counting import passes, phases
from roofmodel.counting.passes import Memory, Walk
from roofmodel.counting.tensors import FORMATS
from roofmodel.counting.workload import Workload
from roofmodel.devices.device import Device
from roofmodel.errors import Option, Text, WarningNote, WorkloadError, joined
from roofmodel.models.architecture import Architecture, Network
from roofmodel.numbers import units
from roofmodel.numbers.algebra import Number
from roofmodel.numbers.traced import Trace
from roofmodel.options.values import RECOMPUTATIONS
from roofmodel.steps.capacity import needed_bytes, server_starts, usable_memory
from roofmodel.steps.options import half_with_pipe, workload
from roofmodel.steps.parallelism import possible_tp
from roofmodel.steps.phase import PhaseEstimate, pass_time

MAX_GPUS = 64
"""The largest tensor-parallel or pipeline-parallel size that is tried."""
SLOWER = 1.03
"""How many times longer a pass in a narrower format takes where it counts as slower."""
NARROWER = ("fp8", "int4")
"""Weight formats that are tried, the widest first."""


def fitting_notes(
    arch: Architecture,
    device: Device,
    work: Workload,
    needed: Memory,
    options: Mapping[str, Any],
    walk: Walk,
) -> Iterator[Text]:
    """If the workload does not fit: in training the cheapest change that needs no more GPUs, of `--zero 1`,
    `--recompute` and the largest `--micro-batch`, each alone or with those before it; else the smallest `--tp` of a
    node, the smallest `--pp` and the widest `--weights`, each alone.

    `walk` has the operators that are already counted.
    """
    needed_total = needed_bytes(server_starts(arch, device, work, walk), needed)
    if device.capacity is None or needed_total <= usable_memory(device, work):
        return

    usable, memory = usable_memory(device, work), PeakMemory(arch, device, work, walk)

    def total_of(changes: Mapping[str, Any]) -> float:
        try:
            changed = workload(arch, device, **{**options, **changes})[0]
        except WorkloadError:  # the model cannot be sharded in this way
            return inf
        return float(memory.needed(changed))

    def total(name: str, value: Any) -> float:
        return total_of({name: value})

    def first_that_fits(name: str, candidates: Iterable[tuple[Any, float]]) -> Option | None:
        possible = (value for value, share in candidates if share * needed.total <= usable)
        return next((Option(name, value) for value in possible if total(name, value) <= usable), None)

    alternatives: list[Text] = [*_without_more_gpus(work, float(needed_total), usable, total_of)]
    if not alternatives:
        found = (first_that_fits(*candidates) for candidates in _candidates(arch, work, needed, device))
        alternatives = [option for option in found if option is not None]
    if alternatives:
        yield WarningNote(f"the workload does not fit on {device.id}; it fits with ", joined(" or with ", alternatives))
    else:
        trains = "train" in work.phases and not isinstance(arch.body, Network)
        yield WarningNote(
            f"the workload does not fit on {device.id}, nor with ", Option("tp"), " or ", Option("pp"),
            f" up to {MAX_GPUS}{'' if trains else ' or narrower weights'}; ",
            "`roof plan --train` combines them" if trains else "try a smaller batch or a shorter context",
        )  # fmt: skip


def _without_more_gpus(
    work: Workload, needed: float, usable: float, total: Callable[[Mapping[str, Any]], float]
) -> Iterator[Text]:
    """The cheapest change of a training step that fits: one option, or several together."""
    changes: dict[str, Any] = {}
    for name, value in _cheapest_first(work):
        for tried in ({name: value}, {**changes, name: value}):
            if total(tried) <= usable:
                yield joined(" ", [Option(*each) for each in tried.items()])
                return
        changes[name] = value
    for kept in ({}, changes) if changes else ({},):

        def with_size(size: int, kept: Mapping[str, Any] = kept) -> float:
            return total({**kept, "micro_batch": size})

        size = _largest_micro_batch(work, total(kept) if kept else needed, usable, with_size)
        if size is not None:
            yield joined(" ", [Option(*each) for each in {**kept, "micro_batch": size}.items()])
            return


def _cheapest_first(work: Workload) -> Iterator[tuple[str, Any]]:
    """Options of a training step that save memory on the same GPUs: a sharded optimizer costs nothing, recomputation up
    to a third of the time, sharded weights half as much communication again, in every microbatch."""
    if "train" not in work.phases:
        return
    if work.parallel.weight_copies > 1 and not work.parallel.zero:
        yield "zero", 1
    for kind in RECOMPUTATIONS[RECOMPUTATIONS.index(work.recompute.partition(":")[0]) + 1 :]:
        if kind == "full" or work.attention == "eager":
            yield "recompute", kind
    if work.parallel.weight_copies > 1 and work.parallel.zero < 3 and work.options.data_parallel is None:
        yield "zero", 3


def _largest_micro_batch(work: Workload, needed: float, usable: float, total: Callable[[int], float]) -> int | None:
    """The largest smaller microbatch of a training step whose `total` bytes are usable; None without one.

    Only sizes that fit if memory grows linearly are tried, so that the model is traversed two times.
    """
    sequences = work.batch // work.parallel.dp
    sizes = _smaller_micro_batches(work, sequences)
    if not sizes or (least := total(sizes[0])) > usable:
        return None
    growth = (needed - least) / ((work.micro_batch or sequences) - sizes[0])
    possible = [size for size in sizes if least + (size - sizes[0]) * growth <= usable]
    return next((size for size in reversed(possible) if size == sizes[0] or total(size) <= usable), None)


def _smaller_micro_batches(work: Workload, sequences: int) -> list[int]:
    """The microbatches of a training step below the present one that divide the `sequences` of a replica, ascending.

    An interleaved pipeline needs a multiple of `pp` microbatches.
    """
    if "train" not in work.phases:
        return []
    multiple = sequences // work.parallel.pp if work.parallel.vpp > 1 else sequences
    small = [n for n in range(1, isqrt(multiple) + 1) if multiple % n == 0]
    return sorted(n for n in {*small, *(multiple // n for n in small)} if n < (work.micro_batch or sequences))


def _candidates(
    arch: Architecture, work: Workload, needed: Memory, device: Device
) -> Iterator[tuple[str, list[tuple[Any, float]]]]:
    """By option: its values, and the smallest share of the bytes that each one can leave on a GPU.

    Tensor parallelism stays within a node.

    The share is a lower bound: a value whose share does not fit needs no walk through the model.
    """
    tp, pp = work.parallel.tp, work.parallel.pp
    node = (device.network.beyond if device.network else None) or MAX_GPUS
    yield (
        "tp",
        [(n, tp / n) for n in possible_tp(arch, work.parallel.weight_copies, work.parallel.ep) if tp < n <= node],
    )
    yield "pp", [(n, pp / n) for n in (2**power for power in range(1, 7)) if pp < n <= MAX_GPUS]
    if "train" not in work.phases:
        bits = work.widths.weights.bits
        unchanged = needed.total - needed.weights
        shares = {name: FORMATS[name].bits / bits for name in NARROWER if FORMATS[name].bits < bits}
        yield "weights", [(name, (unchanged + share * needed.weights) / needed.total) for name, share in shares.items()]


def slower_format_notes(
    arch: Architecture, device: Device, work: Workload, estimates: Sequence[PhaseEstimate], walk: Walk
) -> Iterator[Text]:
    """A warning for each pass that is expected to take longer in a compute format below 16 bits than in one of 16."""
    if FORMATS[work.dtype].bits >= 16 or not work.weights_known or work.parallel.pp > 1:
        return
    half = half_with_pipe(arch, [device], "bf16")
    wide = work._replace(
        dtype=half, weights=half, activations=None, kv=work.kv or work.dtype, unconverted=frozenset(), matrix_formats=()
    )
    for phase in estimates:
        name = phase.step.phase
        if phase.expected is None or name not in ("prefill", "decode"):
            continue
        step = wide.step(name)
        time = pass_time(arch, device, step, work.engine, walk(arch, step)).expected
        if time is not None and SLOWER * time.value < phase.expected.value:
            yield WarningNote(
                f"{name} is expected to take {units.seconds(phase.expected.value)} in {work.dtype} and "
                f"{units.seconds(time.value)} in {half}, because the parameters of its {work.dtype} kernels come from "
                "slower measurements; ", Option("dtype", half)
            )  # fmt: skip


class PeakMemory:
    """Peak memory of a workload after a change of its formats or its parallel layout.

    All formats and pipeline stages share one walk through the model per pass, and so do all tensor-parallel sizes,
    whose formula is traced.
    """

    def __init__(self, arch: Architecture, device: Device, work: Workload, walk: Walk) -> None:
        self.arch, self.device, self.tp, self._walk = arch, device, work.parallel.tp, walk
        self._by_tp: dict[Workload, Callable[[Mapping[str, int]], Any]] = {}

    def needed(self, work: Workload) -> Number:
        """The bytes per GPU."""
        if work.parallel.tp == self.tp or work.parallel.pp > 1:
            return self._needed(work, self._walk)
        layout = work._replace(parallel=work.parallel._replace(tp=0))
        if layout not in self._by_tp:
            trace = Trace()
            traced = work._replace(parallel=work.parallel._replace(tp=trace.input("tp", 2)))
            formula = trace.cases(lambda: self._needed(traced, passes.CachedWalks()))
            self._by_tp[layout] = trace.evaluator(formula)
        needed: Number = self._by_tp[layout]({"tp": work.parallel.tp})
        return needed

    def _needed(self, work: Workload, walk: Walk) -> Number:
        starts = server_starts(self.arch, self.device, work, walk)
        return needed_bytes(starts, phases.peak_memory(self.arch, work, walk=walk))
