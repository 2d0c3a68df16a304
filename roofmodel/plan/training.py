"""The search of a training plan: layout, pipeline schedule, recomputation, sharded sequences and optimizer, microbatch.

The time of a step is that of `roof estimate --phase train` in the same engine, whose pipeline bubble, recomputation and
exchange of gradients it includes. All microbatches of a layout are evaluated in one pass over the model, as arrays.

    days = tokens / (tokens per step) × seconds per step / 86400
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import inf
from typing import Any, NamedTuple

import numpy as np

from roofmodel.counting import phases
from roofmodel.counting.workload import Step, Workload
from roofmodel.devices.device import Device
from roofmodel.engines.engine import Engine
from roofmodel.errors import Option, Text, WarningNote, WorkloadError, ignored
from roofmodel.models.architecture import Architecture, Network
from roofmodel.models.layers import Patches
from roofmodel.numbers import units
from roofmodel.numbers.algebra import Number
from roofmodel.options.values import MEMORY_UTILIZATION, ProgressCallback, no_progress
from roofmodel.options.workload import DECLARED, Options, valid
from roofmodel.plan.candidate import Shares
from roofmodel.plan.layouts import (
    Formats,
    Layout,
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
    Choices,
    RankedTraining,
    TrainingCandidate,
    TrainingRun,
    by_merit,
    ranked_training,
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
    workload,
)
from roofmodel.steps.parallelism import NO_REPLICAS
from roofmodel.steps.phase import estimates_by_stage, slowest_stage
from roofmodel.steps.placed import LoadSettings, load_notes, under_load
from roofmodel.steps.similar_steps import SimilarSteps
from roofmodel.steps.training_options import check_training_format
from roofmodel.sweep.case import INT64_EXACT, slowest_totals
from roofmodel.sweep.processes import in_processes
from roofmodel.sweep.sweep import prices_by_device
from roofmodel.timing.timing import Expected

DEFAULT_SEQ = 4096
TOKENS_PER_STEP = 2**22
"""Tokens of a step where the batch is not given: 4 M, as GPT-3 and Llama 3 used (arXiv 2005.14165, 2407.21783)."""
RECOMPUTE = {"flash": ("none", "full"), "eager": ("none", "selective", "full")}
"""By kind of attention. Flash attention always recomputes the scores, so `selective` would change nothing."""
MAX_MICRO_BATCH = 16
MAX_VPP = 4
"""The largest number of model parts per pipeline stage that is searched without being asked for."""


class TrainingPiece(NamedTuple):
    """A layout with one set of choices."""

    arch: Architecture
    device: Device
    layout: Layout
    choices: Choices
    run: TrainingRun
    price: float | None


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


class TrainingFound(NamedTuple):
    """The result of a piece: the number of its candidates, the fastest that fits, or how much memory is missing."""

    points: int = 0
    best: TrainingCandidate | None = None
    shortage: Shortage | None = None


def plan_training(
    arch: Architecture, devices: Sequence[Device], request: TrainingRequest, progress: ProgressCallback = no_progress
) -> TrainingPlan:
    """The fastest layouts of a training run on at most a number of GPUs.

    If all devices have a price, the device whose fastest layout trains for the fewest dollars comes first. Raises
    WorkloadError for a value that is invalid for the model, and where no layout divides the model and the batch.
    """
    run = _run(arch, devices, request)
    loaded = Engine.load(run.engine, run.engine_option)
    check_trains(loaded)
    check_kernels(loaded, devices)
    remarks = [note for device in devices for note in load_notes(device, LoadSettings(None, request.power_limit))]
    devices = [under_load(device, request) for device in devices]
    gpus, restricted, seconds = request.gpus, request.search, float(request.time_limit)
    recomputing = _recomputation(restricted.get("recompute"), run.attention)
    sharding = restricted.get("sequence_parallel", DECLARED["sequence_parallel"].choices)
    zero_stages = restricted.get("zero", (0, 1))
    prices = prices_by_device(request.price, devices)
    searched = [device for device in devices if has_pipe(device, run.dtype)]
    if not searched:
        raise WorkloadError(*no_format(devices, {"dtype": [run.dtype]}))
    possible = training_layouts(arch, gpus, run.batch, restricted)
    pieces = [
        TrainingPiece(arch, device, layout, Choices(vpp, recomputation, sharded, stage), run, prices.get(device.id))
        for device in searched
        for layout in possible
        for vpp in _parts(arch, layout.pp, restricted.get("vpp"))
        for recomputation in recomputing
        for sharded in (sharding if layout.tp > 1 else ("off",))
        for stage in (zero_stages if layout.dp > 1 else (0,))
    ]
    if not pieces:
        raise WorkloadError(*no_layout(arch, gpus, restricted, training=True))
    wanted = restricted.get("micro_batch")
    results = list(_evaluated(_grouped(pieces, wanted), request.cluster, progress, seconds))
    complete = len(results) == len(pieces)
    if not any(result.points for result in results):
        raise WorkloadError(*no_layout(arch, gpus, restricted, training=True))
    fitting = by_merit(result.best for result in results if result.best is not None)
    short = [result.shortage for result in results if result.shortage is not None]
    nearest = None if fitting or not short else min(short, key=lambda shortage: shortage.needed / shortage.usable)
    ranked = tuple(ranked_training(fitting, request.top, searches_unsharded=0 in zero_stages))
    return TrainingPlan(
        model=arch.name, devices=tuple(device.id for device in devices), run=run, ranked=ranked,
        shortage=nearest, searched=sum(result.points for result in results), layouts=len(results), complete=complete,
        notes=(
            *arch.notes, *remarks, *([] if complete else [incomplete(len(results), len(pieces), seconds)]),
            *(auto_dtype_notes(arch) if request.dtype == "auto" else ()), *_zero_notes(restricted, pieces),
            *_notes(nearest), *price_notes(prices, searched), *device_notes(devices, searched),
            *dict.fromkeys(_kernel_notes(arch, searched, ranked)),
            *_straggler_notes(ranked, searched),
        ),
    )  # fmt: skip


def _recomputation(restriction: Sequence[str] | None, attention: str) -> Sequence[str]:
    """The kinds of recomputation that are searched."""
    if attention == "flash" and restriction is not None and "selective" in restriction:
        raise WorkloadError(
            Option("recompute", "selective"), " changes nothing with flash attention, which never stores the scores; "
            "try ", Option("recompute", "none"), " or ", Option("attention", "eager"),
        )  # fmt: skip
    return RECOMPUTE[attention] if restriction is None else restriction


def _parts(arch: Architecture, pp: int, restriction: Sequence[int] | None) -> list[int]:
    """The numbers of parts per pipeline stage, 1 without interleaving: those that divide the layers of a stage."""
    layers = len(arch.stack.layers)
    possible = divisors(layers // pp) if pp > 1 and layers % pp == 0 else [1]
    return [parts for parts in possible if (parts in restriction if restriction else parts <= MAX_VPP)]


class TrainingGroup(NamedTuple):
    """Pieces whose layers have the same operators, and the microbatches that are searched."""

    pieces: tuple[TrainingPiece, ...]
    micro_batches: tuple[int, ...]


def _grouped(pieces: Iterable[TrainingPiece], wanted: Sequence[int] | None) -> list[TrainingGroup]:
    """The pieces with the same device, tensor, expert and sequence parallelism."""
    groups: dict[tuple[str, int, int, str], list[TrainingPiece]] = {}
    for piece in pieces:
        layout = piece.layout
        groups.setdefault((piece.device.id, layout.tp, layout.ep, piece.choices.sequence_parallel), []).append(piece)
    searched = wanted or [2**power for power in range(MAX_MICRO_BATCH.bit_length())]
    return [TrainingGroup(tuple(group), tuple(sorted(searched))) for group in groups.values()]


def _evaluated(
    groups: Sequence[TrainingGroup], cluster: str | None, progress: ProgressCallback, seconds: float
) -> Iterator[TrainingFound]:
    if cluster is None:
        results = in_processes(evaluate, groups, pieces_per_process=1)
    else:
        from roofmodel.sweep.dask_cluster import evaluate_on_cluster

        results = evaluate_on_cluster(evaluate, groups, cluster)
    done, total = 0, sum(len(group.pieces) for group in groups)
    for of_group in within(results, seconds):
        done += len(of_group)
        progress("layouts", done, total)
        yield from of_group


def evaluate(group: TrainingGroup) -> list[TrainingFound]:
    """The candidates of each piece of a group."""
    results, similar, exact = [], None, None
    least = 0.0  # GPU-seconds of a step at the peak
    fastest = inf
    for piece in group.pieces:
        if least > fastest * piece.layout.gpus:  # even at the peak, it is slower
            results.append(TrainingFound())
            continue
        try:
            work = _workload(piece.arch, piece.run, piece.layout, piece.choices)
        except WorkloadError:  # such as sequence parallelism of a model that does not allow it
            results.append(TrainingFound())
            continue
        (only_step,) = work.steps()
        exact = exact or (np.int64 if _fits_int64(group, only_step) else object)
        step = only_step._replace(batch=np.array(group.micro_batches, dtype=exact))
        similar = similar or SimilarSteps(piece.arch, piece.device, step, work.engine)
        ranking = _best(piece, group.micro_batches, work, step, similar)
        results.append(ranking)
        if ranking.best is not None and ranking.best.mfu is not None and ranking.best.step.value < fastest:
            fastest = ranking.best.step.value
            least = fastest * ranking.best.mfu * piece.layout.gpus
    return results


def _fits_int64(group: TrainingGroup, step: Step) -> bool:
    """Whether 64 bits hold the FLOPs of a step of any piece of the group; NumPy's integers would wrap around."""
    sequences = max(-(-each.run.batch // (each.layout.dp * each.layout.pp)) for each in group.pieces)
    one_stage = step.parallel._replace(pp=1, vpp=1, stage=0)
    whole_step = step._replace(batch=max(sequences, *group.micro_batches), microbatches=1, parallel=one_stage)
    counted: int = sum(each.total.matmul_flops for each in phases.operators(group.pieces[0].arch, whole_step))
    return counted < INT64_EXACT


def _workload(arch: Architecture, run: TrainingRun, layout: Layout, choices: Choices) -> Workload:
    """A training step with microbatches of one sequence. Raises WorkloadError where the model does not allow it."""
    loaded = Engine.load(run.engine, run.engine_option)
    overlap = "none" if loaded.training and loaded.training.data_parallel == "ddp" else "engine"
    work, _ = workload(
        arch, phase="train", batch=run.batch, micro_batch=1, seq=run.seq, dtype=run.dtype, engine=run.engine,
        engine_option=run.engine_option, attention=run.attention,
        overlap=overlap,  # buckets of DistributedDataParallel are not searched as arrays
        memory_utilization=run.memory_utilization, **layout._asdict(), **choices._asdict(),
    )  # fmt: skip
    return work


def _best(
    piece: TrainingPiece, sizes: Sequence[int], work: Workload, step: Step, similar: SimilarSteps
) -> TrainingFound:
    """The best microbatch of those that divide the batch of a replica.

    An interleaved pipeline needs a multiple of `pp` microbatches (Narayanan et al., arXiv 2104.04473, section 2.2).
    """
    part, group = piece.run.batch // piece.layout.dp, piece.layout.pp if piece.choices.vpp > 1 else 1
    possible = np.array([part % n == 0 and part // n % group == 0 for n in sizes])
    points = int(possible.sum())
    if not points:
        return TrainingFound()
    step = step._replace(microbatches=np.maximum(part // step.batch, 1))  # sizes that are not possible have no meaning
    memory = np.broadcast_to(similar.memory(step).total, len(sizes))
    usable = None if piece.device.capacity is None else usable_memory(piece.device, work)
    fits = possible if usable is None else possible & (memory <= usable)
    if not fits.any():
        needed = min(memory[possible].tolist())
        return TrainingFound(
            points, shortage=Shortage(piece.device.id, piece.layout, Formats(work.dtype), needed, usable)
        )
    staged = estimates_by_stage(piece.arch, piece.device, step, work.engine, similar)
    totals = slowest_totals(staged)
    seconds = _column(totals["expected_seconds"], totals["bound_seconds"], len(sizes))
    place = int(np.argmin(np.where(fits, seconds, np.inf)))
    return TrainingFound(points, _candidate(piece, totals, sizes, place, memory.tolist()[place], usable))


def _column(expected: Any, bound: Any, size: int) -> Any:
    return np.broadcast_to(bound if expected is None else expected, size)


def _candidate(
    piece: TrainingPiece, totals: Mapping[str, Any], sizes: Sequence[int], place: int, memory: Number,
    usable: Number | None,
) -> TrainingCandidate:  # fmt: skip
    def at(name: str, other: str) -> float:
        return float(_column(totals[name], totals[other], len(sizes))[place])

    seconds, bound = at("expected_seconds", "bound_seconds"), at("bound_seconds", "bound_seconds")
    link, memory_share = at("link_share", "link_share"), at("memory_share", "memory_share")
    bubble = at("bubble_share", "bubble_share")
    return TrainingCandidate(
        piece.device.id, piece.layout, piece.choices, sizes[place],
        step=Expected(
            seconds, at("expected_low_seconds", "bound_seconds"), at("expected_high_seconds", "bound_seconds")
        ),
        mfu=None if totals["mfu"] is None else at("mfu", "mfu"),
        watts=None if totals["power_watts"] is None else at("power_watts", "power_watts"),
        mfu_all_pairs=None if totals["mfu"] is None else at("mfu_all_pairs", "mfu"), memory=memory, usable=usable,
        shares=Shares(
            at("expected_communication_seconds", "communication_seconds") / seconds,
            at("expected_bubble_seconds", "bubble_seconds") / seconds,
            memory_share, max(0.0, 1 - memory_share - link - bubble), link, bound / seconds,
            0.0 if totals["host_bound"] is None else at("host_bound", "host_bound"),
        ),
        run=piece.run, price=piece.price,
    )  # fmt: skip


# --- The run ----------------------------------------------------------------------------------------


def _run(arch: Architecture, devices: Sequence[Device], request: TrainingRequest) -> TrainingRun:
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


def _zero_notes(restricted: Mapping[str, Sequence[Any]], pieces: Sequence[TrainingPiece]) -> Iterator[Text]:
    if 1 in restricted.get("zero", ()) and all(piece.layout.dp == 1 for piece in pieces):
        yield ignored("zero", NO_REPLICAS)


def _kernel_notes(arch: Architecture, devices: Sequence[Device], ranked: Sequence[RankedTraining]) -> Iterator[Text]:
    """The notes of an estimate on the parameters of the candidates' kernels; `device_notes` names a device without."""
    by_id = {device.id: device for device in devices if device.calibration}
    for candidate in (each.candidate for each in ranked if each.candidate.device in by_id):
        device, work = by_id[candidate.device], _workload(arch, candidate.run, candidate.layout, candidate.choices)
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
