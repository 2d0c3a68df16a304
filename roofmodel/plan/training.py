"""The search of a training plan: layout, pipeline schedule, recomputation, sharded sequences and optimizer, microbatch.

The time of a step is that of `roof estimate --phase train` in the same engine, whose pipeline bubble, recomputation and
exchange of gradients it includes. All microbatches of a layout are evaluated in one pass over the model, as arrays.

    days = tokens / (tokens per step) × seconds per step / 86400

The search is exact: it leaves out only layouts that cannot be among the best of a device, by lower bounds of their time
(`step_bound`) and of their memory. Layouts whose layers run the same operators share these bounds, which need one
estimate without pipeline stages for each kind of recomputation. The layouts with the lowest bounds are evaluated first;
their times limit the bounds of the others that must be evaluated, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from roofmodel.counting import phases
from roofmodel.counting.workload import Parallel, Step, Workload
from roofmodel.devices.device import Device
from roofmodel.engines.engine import Engine
from roofmodel.errors import Option, Text, WarningNote, WorkloadError, ignored
from roofmodel.models.architecture import Architecture, Network, Patches
from roofmodel.numbers import units
from roofmodel.numbers.algebra import Number
from roofmodel.options.values import MEMORY_UTILIZATION, RECOMPUTATIONS, ContextExchange, ProgressCallback, no_progress
from roofmodel.options.workload import DECLARED, DEFAULTS, Options, valid
from roofmodel.plan.layouts import (
    Formats,
    Result,
    TrainingLayout,
    device_notes,
    divisors,
    incomplete,
    no_format,
    no_layout,
    price_notes,
    training_layouts,
    within,
)
from roofmodel.plan.plan import Shortage
from roofmodel.plan.ranking import layout_text
from roofmodel.plan.request import TrainingRequest
from roofmodel.plan.training_candidates import (
    LAST,
    Choices,
    Merit,
    RankedTraining,
    TrainingCandidate,
    TrainingPiece,
    TrainingRun,
    by_merit,
    candidate_of,
    column,
    limit_of,
    merit_of,
    ranked_training,
    step_bound,
    training_workload,
)
from roofmodel.steps.capacity import usable_memory
from roofmodel.steps.notes import kernel_notes, straggler_note
from roofmodel.steps.options import (
    RECIPES,
    auto_dtype,
    auto_dtype_notes,
    check_kernels,
    check_trains,
    default_engine,
    half_with_pipe,
    has_pipe,
)
from roofmodel.steps.parallelism import NO_REPLICAS, check_context
from roofmodel.steps.phase import (
    PhaseEstimate,
    StageTime,
    estimates_by_stage,
    microbatch_time,
    phase_estimate,
    slowest_stage,
)
from roofmodel.steps.placed import LoadSettings, load_notes, under_load
from roofmodel.steps.similar_steps import SimilarSteps
from roofmodel.steps.training_options import check_training_format
from roofmodel.sweep.case import INT64_EXACT, slowest_values
from roofmodel.sweep.processes import in_processes
from roofmodel.sweep.sweep import prices_by_device

if TYPE_CHECKING:
    from roofmodel.sweep.dask_cluster import Evaluate

DEFAULT_SEQ = 4096
TOKENS_PER_STEP = 2**22
"""Tokens of a step where the batch is not given: 4 M, as GPT-3 and Llama 3 used (arXiv 2005.14165, 2407.21783)."""
RECOMPUTE: dict[str, tuple[str, ...]] = {"flash": ("none", "full"), "eager": RECOMPUTATIONS}
"""By kind of attention. Flash attention always recomputes the scores, so `selective` would change nothing."""
CONTEXT_TOKENS = 4096
"""Tokens that each GPU has of a sequence, at least, if the number of GPUs that share it is not given."""
ZERO_STAGES = (0, 1)
MAX_MICRO_BATCH = 16
MAX_VPP = 4
"""The largest number of model parts per pipeline stage that is searched without being asked for."""
FIRST_EVALUATED = 2
"""Layouts that are evaluated first, for each one that is shown; then twice as many, and so on."""
PIECES_PER_TASK = 8
ROUNDING = 1e-9


class TrainingPlan(NamedTuple):
    """The best candidates of a training run; none if no layout fits."""

    model: str
    devices: tuple[str, ...]
    run: TrainingRun
    ranked: tuple[RankedTraining, ...]
    shortage: Shortage | None  # the layout that lacks the least memory, where none fits
    searched: int
    layouts: int
    notes: tuple[Text, ...]
    complete: bool = True  # whether the search ended before its time limit

    @property
    def fits(self) -> bool:
        """Whether some candidate fits."""
        return bool(self.ranked)


def plan_training(
    arch: Architecture, devices: Sequence[Device], request: TrainingRequest, progress: ProgressCallback = no_progress
) -> TrainingPlan:
    """The fastest layouts of a training run on at most a number of GPUs.

    If all devices have a price, the device whose fastest layout trains for the fewest dollars comes first. Raises
    WorkloadError for a value that is invalid for the model, and where no layout divides the model and the batch.
    """
    run = run_of(arch, devices, request)
    loaded = Engine.load(run.engine, run.engine_option)
    check_trains(loaded)
    check_kernels(loaded, devices)
    remarks = [note for device in devices for note in load_notes(device, LoadSettings(None, request.power_limit))]
    devices = [under_load(device, request) for device in devices]
    gpus, restricted, seconds = request.gpus, request.search, float(request.time_limit)
    prices = prices_by_device(request.price, devices)
    searched = [device for device in devices if has_pipe(device, run.dtype)]
    if not searched:
        raise WorkloadError(*no_format(devices, {"dtype": [run.dtype]}))
    possible = layouts_of(arch, run, restricted)
    if not possible:
        raise WorkloadError(*no_layout(arch, gpus, restricted, training=True))
    searches = [
        Search(
            [TrainingPiece(arch, device, *each, run, prices.get(device.id)) for each in possible],
            restricted.get("micro_batch"), request.top,
        )
        for device in searched
    ]  # fmt: skip
    end, total = monotonic() + seconds, len(possible) * len(searches)
    with _evaluator(request.cluster) as evaluated:
        for search in searches:
            search.run(evaluated, end, lambda: progress("layouts", sum(each.settled for each in searches), total))
    points = sum(search.points for search in searches)
    done = sum(search.settled for search in searches)
    if not points and done == total:
        raise WorkloadError(*no_layout(arch, gpus, restricted, training=True))
    found = by_merit(candidate for search in searches for candidate in search.best)
    short = [search.nearest(end) for search in searches] if not found else []
    nearest = min((each for each in short if each), key=lambda each: each.needed / each.usable, default=None)
    ranked = tuple(ranked_training(found, request.top, searches_unsharded=0 in restricted.get("zero", ZERO_STAGES)))
    return TrainingPlan(
        model=arch.name, devices=tuple(device.id for device in devices), run=run, ranked=ranked, shortage=nearest,
        searched=points, layouts=total, complete=done == total,
        notes=(
            *arch.notes, *remarks, *([] if done == total else [incomplete(done, total, seconds)]),
            *(auto_dtype_notes(arch) if request.dtype == "auto" else ()), *_zero_notes(restricted, possible),
            *_notes(nearest), *price_notes(prices, searched), *device_notes(devices, searched),
            *dict.fromkeys(_kernel_notes(arch, searched, ranked)),
            *_straggler_notes(ranked, searched),
        ),
    )  # fmt: skip


@contextmanager
def _evaluator(cluster: str | None) -> Iterator[Evaluate[Any, Any]]:
    """A function that evaluates tasks in processes of this machine, or on a cluster."""
    if cluster is None:
        yield partial(in_processes, pieces_per_process=1)
        return
    from roofmodel.sweep.dask_cluster import connected

    with connected(cluster) as evaluated:
        yield evaluated


def layouts_of(
    arch: Architecture, run: TrainingRun, restricted: Mapping[str, Sequence[Any]]
) -> list[tuple[TrainingLayout, Choices]]:
    """The layouts and choices that are searched on each device, by falling number of GPUs."""
    recomputing = _recomputation(restricted.get("recompute"), run.attention)
    sharding = restricted.get("sequence_parallel", DECLARED["sequence_parallel"].choices)
    kinds = restricted.get("cp_kind", (DEFAULTS["cp_kind"],))
    shared = {kind: _context_sizes(arch, run, kind, restricted.get("cp")) for kind in kinds}
    if not any(shared.values()):
        _context_sizes(arch, run, kinds[0], restricted.get("cp"), required=True)
    cps = sorted({cp for sizes in shared.values() for cp in sizes})
    return [
        (layout, Choices(vpp, recomputation, sharded, stage, kind))
        for layout in training_layouts(arch, run.gpus, run.batch, cps, restricted)
        for kind in ([kind for kind in kinds if layout.cp in shared[kind]] if layout.cp > 1 else (DEFAULTS["cp_kind"],))
        for vpp in _parts(arch, layout.pp, restricted)
        for recomputation in recomputing
        for sharded in (sharding if layout.tp > 1 else ("off",))
        for stage in (restricted.get("zero", ZERO_STAGES) if layout.dp * layout.cp > 1 else (0,))
    ]  # fmt: skip


def _context_sizes(
    arch: Architecture, run: TrainingRun, kind: ContextExchange, wanted: Sequence[int] | None, required: bool = False
) -> list[int]:
    """The numbers of GPUs that share a sequence: those given, else 1 and the powers of two that leave each GPU at least
    `CONTEXT_TOKENS` tokens. Raises WorkloadError where one is `required` and the model allows none of those given."""
    longest = max(1, run.seq // CONTEXT_TOKENS)
    sizes = wanted or [2**power for power in range(longest.bit_length())]
    possible: list[int] = []
    refused: WorkloadError | None = None
    for cp in sizes:
        try:
            check_context(arch, Options(cp=cp, cp_kind=kind, attention=run.attention), run.seq)
            possible.append(cp)
        except WorkloadError as error:
            refused = error
    if refused and required and not possible:
        raise refused
    return possible


def _recomputation(restriction: Sequence[str] | None, attention: str) -> Sequence[str]:
    """The kinds of recomputation that are searched."""
    if attention == "flash" and restriction is not None and "selective" in restriction:
        raise WorkloadError(
            Option("recompute", "selective"), " changes nothing with flash attention, which never stores the scores; "
            "try ", Option("recompute", "none"), " or ", Option("attention", "eager"),
        )  # fmt: skip
    return RECOMPUTE[attention] if restriction is None else restriction


def _parts(arch: Architecture, pp: int, restricted: Mapping[str, Sequence[Any]]) -> list[int]:
    """The numbers of parts per pipeline stage, 1 without interleaving: those that divide the layers of a stage."""
    layers = len(arch.stack.layers)
    possible = divisors(layers // pp) if pp > 1 and layers % pp == 0 else [1]
    if pp > 1 and "schedule" in restricted:
        possible = [n for n in possible if Parallel(pp=pp, vpp=n).schedule in restricted["schedule"]]
    return [n for n in possible if (n in restricted["vpp"] if "vpp" in restricted else n <= MAX_VPP)]


# --- The search of a device -----------------------------------------------------------------------


class Search:
    """The search of the fastest layouts of a run on one device."""

    def __init__(self, pieces: Sequence[TrainingPiece], wanted: Sequence[int] | None, count: int) -> None:
        self._groups = groups_of(pieces, wanted)
        self._order = {piece.key: place for place, piece in enumerate(pieces)}
        self._count = count
        self._found: list[TrainingCandidate] = []
        self._excluded: list[tuple[Number, TrainingPiece, TrainingGroup]] = []  # by the lower bound of their memory
        self._shortage: Shortage | None = None
        self.points = 0  # layouts with a microbatch
        self.settled = 0  # layouts that are evaluated, or known not to be among the fastest

    def run(self, evaluated: Evaluate[Any, Any], end: float, progress: Callable[[], None]) -> None:
        """Find the fastest layouts until a time of the monotonic clock."""
        waiting: list[tuple[Merit, TrainingPiece, TrainingGroup]] = []
        found = _until(end, evaluated(bounds_of, self._groups))
        for group, (fits_int64, bounds) in zip(self._groups, found, strict=False):
            checked = group._replace(fits_int64=fits_int64)
            for piece, bound in zip(group.pieces, bounds, strict=True):
                self.points += bound.points
                if bound.points and bound.fits:
                    waiting.append((bound.merit, piece, checked))
                    continue
                self.settled += 1
                if bound.points:
                    self._excluded.append((bound.memory, piece, checked))
        waiting.sort(key=lambda each: (each[0], self._order[each[1].key]))
        many = FIRST_EVALUATED * self._count
        while waiting:
            tasks = self._tasks(waiting[:many])
            for results in _until(end, evaluated(evaluate, tasks)):
                self._record(results)
                progress()
            if monotonic() > end:
                return
            limit = self._limit()
            others = waiting[many:]
            waiting = [each for each in others if each[0] <= limit]
            self.settled += len(others) - len(waiting)
            many *= 2

    def _tasks(self, chosen: Sequence[tuple[Merit, TrainingPiece, TrainingGroup]]) -> list[TrainingTask]:
        """The layouts that are evaluated together: of one group, those with the same pipeline stages side by side."""
        by_group: dict[int, list[tuple[Merit, TrainingPiece, TrainingGroup]]] = {}
        for each in chosen:
            by_group.setdefault(id(each[2]), []).append(each)
        limit, tasks = self._limit(), []
        for of_group in by_group.values():
            of_group.sort(key=lambda each: (each[1].layout.pp, each[1].choices.vpp, each[0]))
            for start in range(0, len(of_group), PIECES_PER_TASK):
                part = of_group[start : start + PIECES_PER_TASK]
                bounds, pieces = [each[0] for each in part], tuple(each[1] for each in part)
                tasks.append(TrainingTask(part[0][2]._replace(pieces=pieces), bounds, limit, self._count))
        return tasks

    def _record(self, results: Sequence[TrainingCandidate | Shortage | None]) -> None:
        self.settled += len(results)
        for result in results:
            if isinstance(result, TrainingCandidate):
                self._found.append(result)
            elif result is not None:
                self._note(result)

    def _note(self, shortage: Shortage) -> None:
        if self._shortage is None or shortage.needed < self._shortage.needed:
            self._shortage = shortage

    def _limit(self) -> Merit:
        return limit_of([(merit_of(each), each.layout) for each in self._found], self._count)

    @property
    def best(self) -> list[TrainingCandidate]:
        """The fastest candidates, in order, and the next one with another layout if all of these have the same."""
        ordered = sorted(self._found, key=lambda each: (merit_of(each), self._order[each.layout, each.choices]))
        first, others = ordered[: self._count], ordered[self._count :]
        if len({each.layout for each in first}) == 1:
            first += [each for each in others if each.layout != first[0].layout][:1]
        return first

    def nearest(self, end: float) -> Shortage | None:
        """The layout that lacks the least memory."""
        similar: dict[int, SimilarSteps] = {}
        for least, piece, group in sorted(self._excluded, key=lambda each: (each[0], self._order[each[1].key])):
            if self._shortage and (least >= self._shortage.needed or monotonic() > end):
                break
            of_piece = _evaluation(piece, group, similar.get(id(group)))
            similar[id(group)] = of_piece.similar
            self._note(of_piece.shortage())
        return self._shortage


def _until(end: float, results: Iterable[Result]) -> Iterator[Result]:
    return within(results, end - monotonic())


class TrainingGroup(NamedTuple):
    """Pieces whose layers have the same operators, and the microbatches that are searched."""

    pieces: tuple[TrainingPiece, ...]
    micro_batches: tuple[int, ...]
    fits_int64: bool = True  # whether 64 bits hold the FLOPs of a step; NumPy's integers would wrap around

    def possible(self, piece: TrainingPiece) -> tuple[Any, Any]:
        """Whether each microbatch divides the batch of a replica, and the number of microbatches (1 if not).

        An interleaved pipeline needs a multiple of `pp` microbatches (Narayanan et al., arXiv 2104.04473, section 2.2).
        """
        part, sizes = piece.run.batch // piece.layout.dp, np.array(self.micro_batches)
        many = np.maximum(part // sizes, 1)
        return (part % sizes == 0) & (many % (piece.layout.pp if piece.choices.vpp > 1 else 1) == 0), many

    def step(self, piece: TrainingPiece) -> tuple[Workload, Step]:
        """The workload of a piece, and its step for all microbatches. Raises WorkloadError where the model does not
        allow it, such as sequence parallelism."""
        work = training_workload(piece.arch, piece.run, piece.layout, piece.choices)
        (only_step,) = work.steps()
        sizes = np.array(self.micro_batches, dtype=np.int64 if self.fits_int64 else object)
        return work, only_step._replace(batch=sizes, microbatches=self.possible(piece)[1].astype(sizes.dtype))


def groups_of(pieces: Iterable[TrainingPiece], wanted: Sequence[int] | None) -> list[TrainingGroup]:
    """The pieces of a device with the same tensor, expert, context and sequence parallelism; `wanted` microbatches."""
    sizes = tuple(sorted(wanted or [2**power for power in range(MAX_MICRO_BATCH.bit_length())]))
    groups: dict[tuple[Any, ...], list[TrainingPiece]] = {}
    for piece in pieces:
        layout, choices = piece.layout, piece.choices
        key = layout.tp, layout.ep, layout.cp, choices.cp_kind, choices.sequence_parallel
        groups.setdefault(key, []).append(piece)
    return [TrainingGroup(tuple(group), sizes) for group in groups.values()]


class Bound(NamedTuple):
    """Lower bounds of a piece."""

    points: int = 0  # the number of its microbatches
    merit: Merit = LAST
    memory: Number = 0  # bytes per GPU
    fits: bool = False  # whether this memory does


def bounds_of(group: TrainingGroup) -> tuple[bool, list[Bound]]:
    """Whether 64 bits hold the FLOPs of a step of each piece of a group, and the lower bounds of each.

    Memory: pipeline stages together have the weights, gradients and optimizer state of the model, and the fullest one
    has at least the mean of them.
    """
    first = group.pieces[0]
    try:
        work, step = group.step(_whole(first))
    except WorkloadError:
        return True, [Bound()] * len(group.pieces)
    group = group._replace(fits_int64=_fits_int64(group, step))
    if not group.fits_int64:
        step = step._replace(batch=step.batch.astype(object))
    step = step._replace(microbatches=1)
    similar = SimilarSteps(first.arch, first.device, step, work.engine)
    usable, found = None if first.device.capacity is None else usable_memory(first.device, work), []
    times, states = dict[str, StageTime](), dict[tuple[int, int], Number]()
    for piece in group.pieces:
        layout, choices = piece.layout, piece.choices
        possible, many = group.possible(piece)
        if not possible.any():
            found.append(Bound())
            continue
        if choices.recompute not in times:
            phase = phase_estimate(
                piece.arch, piece.device, step._replace(recompute=choices.recompute), work.engine, similar
            )
            times[choices.recompute] = microbatch_time(phase)
        if (layout.dp, choices.zero) not in states:
            parallel = step.parallel._replace(dp=layout.dp, zero=choices.zero)
            states[layout.dp, choices.zero] = similar.states(step._replace(parallel=parallel))
        latency, memory = times[choices.recompute], states[layout.dp, choices.zero] / layout.pp
        seconds = latency.bound if latency.expected is None else latency.expected.value
        least = np.min(step_bound(seconds, layout.pp, choices.vpp, many), initial=inf, where=possible)
        merit = latency.expected is None, float(least) * (1 - ROUNDING)
        found.append(Bound(int(possible.sum()), merit, memory, usable is None or memory <= usable))
    return group.fits_int64, found


def _whole(piece: TrainingPiece) -> TrainingPiece:
    """The layout without pipeline stages."""
    return piece._replace(layout=piece.layout._replace(pp=1), choices=piece.choices._replace(vpp=1, zero=0))


class TrainingTask(NamedTuple):
    """Pieces of a group that are evaluated together, each with its bound."""

    group: TrainingGroup
    bounds: Sequence[Merit]
    limit: Merit  # of what is already found
    shown: int


def evaluate(task: TrainingTask) -> list[TrainingCandidate | Shortage | None]:
    """The fastest candidate of each piece, or the memory that it lacks; None where it is not among the fastest."""
    results: list[TrainingCandidate | Shortage | None] = []
    found: list[tuple[Merit, TrainingLayout]] = []
    similar, limit = None, task.limit
    for piece, bound in zip(task.group.pieces, task.bounds, strict=True):
        if bound > limit:
            results.append(None)
            continue
        of_piece = _evaluation(piece, task.group, similar)
        similar = of_piece.similar
        result = of_piece.best(limit)
        if isinstance(result, TrainingCandidate):
            found.append((merit_of(result), piece.layout))
            limit = min(task.limit, limit_of(found, task.shown))
        results.append(result)
    return results


class _Evaluation(NamedTuple):
    """A piece with its memory by microbatch."""

    piece: TrainingPiece
    group: TrainingGroup
    work: Workload
    step: Step
    similar: SimilarSteps
    possible: Any
    memory: list[Number]

    @property
    def usable(self) -> Number | None:
        """Bytes per GPU."""
        return None if self.piece.device.capacity is None else usable_memory(self.piece.device, self.work)

    @property
    def fits(self) -> Any:
        """Whether each microbatch is possible and fits."""
        usable = self.usable
        return self.possible if usable is None else self.possible & [each <= usable for each in self.memory]

    def shortage(self) -> Shortage:
        """The least memory that it needs."""
        needed = min(each for each, possible in zip(self.memory, self.possible, strict=True) if possible)
        return Shortage(self.piece.device.id, self.piece.layout, Formats(self.work.dtype), needed, self.usable)

    def best(self, limit: Merit) -> TrainingCandidate | Shortage | None:
        """The candidate with the fastest microbatch, if its merit is at most the limit."""
        piece, fits, sizes = self.piece, self.fits, self.group.micro_batches
        if not fits.any():
            return self.shortage()
        staged = estimates_by_stage(piece.arch, piece.device, self.step, self.work.engine, self.similar)
        times = slowest_values(staged, _step_times)
        seconds = column(times["expected"], times["bound"], len(sizes))
        place = int(np.argmin(np.where(fits, seconds, np.inf)))
        if (times["expected"] is None, float(seconds[place])) > limit:
            return None
        fits_unsharded = None
        if piece.choices.zero:
            without = _evaluation(piece._replace(choices=piece.choices._replace(zero=0)), self.group, self.similar)
            fits_unsharded = bool(without.fits.any())
        totals = slowest_values(staged)
        return candidate_of(piece, totals, sizes, place, self.memory[place], self.usable, fits_unsharded)


def _evaluation(piece: TrainingPiece, group: TrainingGroup, similar: SimilarSteps | None) -> _Evaluation:
    work, step = group.step(piece)
    similar = similar or SimilarSteps(piece.arch, piece.device, step, work.engine)
    memory = np.broadcast_to(similar.memory(step).total, len(group.micro_batches)).tolist()
    return _Evaluation(piece, group, work, step, similar, group.possible(piece)[0], memory)


def _step_times(phase: PhaseEstimate) -> dict[str, Any]:
    return {"expected": phase.expected and phase.expected.value, "bound": phase.bound_seconds}


def _fits_int64(group: TrainingGroup, step: Step) -> bool:
    """Whether 64 bits hold the FLOPs of a step of any piece of the group."""
    sequences = max(-(-each.run.batch // (each.layout.dp * each.layout.pp)) for each in group.pieces)
    whole_step = step._replace(batch=max(sequences, *group.micro_batches), microbatches=1)
    counted: int = sum(each.total.matmul_flops for each in phases.operators(group.pieces[0].arch, whole_step))
    return counted < INT64_EXACT


# --- The run ----------------------------------------------------------------------------------------


def run_of(arch: Architecture, devices: Sequence[Device], request: TrainingRequest) -> TrainingRun:
    """The training run of a request for this model: with its defaults."""
    if isinstance(arch.body, Network) or isinstance(arch.stack.embedding, Patches):
        raise WorkloadError(f"{arch.name} reads images; plan the training of a language model")
    seq = min(DEFAULT_SEQ, arch.max_tokens or DEFAULT_SEQ) if request.seq is None else request.seq
    batch = max(1, TOKENS_PER_STEP // seq) if request.batch is None else request.batch
    dtype = auto_dtype(arch) if request.dtype == "auto" else request.dtype or half_with_pipe(arch, devices, "bf16")
    if dtype not in RECIPES:
        check_training_format("dtype", dtype)
    return TrainingRun(
        float(request.tokens), batch, seq, request.gpus, dtype, request.attention,
        request.memory_utilization or MEMORY_UTILIZATION,
        request.engine or default_engine(arch, ("train",), Options(dp=request.gpus)),
        valid("engine_option", request.engine_option or ()),
    )  # fmt: skip


def _zero_notes(
    restricted: Mapping[str, Sequence[Any]], possible: Sequence[tuple[TrainingLayout, Choices]]
) -> Iterator[Text]:
    if 1 in restricted.get("zero", ()) and all(layout.dp * layout.cp == 1 for layout, _ in possible):
        yield ignored("zero", NO_REPLICAS)


def _kernel_notes(arch: Architecture, devices: Sequence[Device], ranked: Sequence[RankedTraining]) -> Iterator[Text]:
    """The notes of an estimate on the parameters of the candidates' kernels; `device_notes` names a device without."""
    by_id = {device.id: device for device in devices if device.calibration}
    for candidate in (each.candidate for each in ranked if each.candidate.device in by_id):
        device, work = (
            by_id[candidate.device],
            training_workload(arch, candidate.run, candidate.layout, candidate.choices),
        )
        (step,) = work.steps()
        yield from kernel_notes(device, work, [slowest_stage(arch, device, step, work.engine)])


def _straggler_notes(ranked: Sequence[RankedTraining], devices: Sequence[Device]) -> Iterator[Text]:
    if not ranked or not all(device.calibration for device in devices):
        return
    layout = ranked[0].candidate.layout
    if (gpus := layout.tp * layout.pp) > 1:
        yield straggler_note(gpus, f"the {gpus} GPUs of a replica")


def _notes(short: Shortage | None) -> Iterator[Text]:
    if short is not None:
        yield WarningNote(
            f"does not fit: the nearest layout, {layout_text(short.layout)} on {short.device}, needs "
            f"{units.binary(float(short.needed))} per GPU of {units.binary(float(short.usable))} usable; try more ",
            Option("gpus"),
        )  # fmt: skip
