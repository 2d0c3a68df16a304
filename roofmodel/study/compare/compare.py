"""`roof compare`: what a model was predicted to do and to take, beside what a profiler measured, a pass at a time.

Everything is a mean over the passes that a file holds: a row's measured seconds are those of its kernels in one pass,
and its predicted figures those of the operators that found these kernels. What is left on either side is listed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from roofmodel.devices.device import Device
from roofmodel.errors import ProfileError, WorkloadError
from roofmodel.models import hub
from roofmodel.profiles.kernel import Kernel, Profile
from roofmodel.study.compare import formats, kernel_groups, layers, matching, passes, sequence, summary
from roofmodel.study.compare.comparison import Comparison, Layers
from roofmodel.study.compare.kernel_groups import Item
from roofmodel.study.compare.matching import Matching
from roofmodel.study.compare.naming import NO_HINT, anchor, sort
from roofmodel.study.compare.passes import Chosen
from roofmodel.study.compare.sequence import Occurrence
from roofmodel.study.compare.tally import Tally
from roofmodel.study.estimate.estimate import Estimate, estimate
from roofmodel.study.estimate.parallelism import refuse_stages
from roofmodel.study.profile import inputs
from roofmodel.study.profile.device import Identified, identify
from roofmodel.study.profile.points import work

FITTING = 0.5
OTHERWISE = {"prefill": "decode", "decode": "prefill"}


def compare(
    model: str,
    files: Sequence[str],
    hw: str | None,
    *,
    family: str | None = None,
    times: Sequence[str] = (),
    steps: int | None = None,
    device: str | None = None,
    workload: Mapping[str, Any],
) -> Comparison:
    """A model under a workload against profiler files.

    `times` are files whose times replace theirs, `steps` how many passes the files hold, where that should not be
    found, `device` the ordinal of the GPU to look at where they hold several. Raises RoofError: no such model, no
    profile, nothing that matches.
    """
    if workload.get("phase") == "generate":
        raise WorkloadError("--phase generate: kernels are compared a pass at a time; try --phase decode --context N")
    if steps is not None and steps < 1:
        raise WorkloadError(f"--steps: {steps} passes make no sense; give 1 or more")
    architecture = hub.load(model, family)
    read = inputs.read(files, hw, times)
    if len(read) != 1:
        named = ", ".join(run.hw or "the files' own" for run in read)
        raise WorkloadError(f"files of several devices ({named}): compare takes those of one at a time")
    profile = read[0].profile
    identified = identify(profile.evidence, read[0].hw, profile.files)
    predicted = estimate(architecture, identified.device, **workload)
    refuse_stages(predicted.workload, "a profile is held against one pass through all layers")
    kernels = _of_one_device(profile, device)
    other = formats.other(kernels, predicted.workload.widths)
    paired = _pair(kernels, predicted, steps, profile)
    paired = paired._replace(notes=(*paired.notes, *_doubts(kernels, paired, predicted, workload)))
    return _compared(predicted, identified, profile, paired, other)


def _pair(kernels: Sequence[Kernel], predicted: Estimate, steps: int | None, profile: Profile) -> _Paired:
    orders, phases = sequence.orders(predicted.phases), [phase.step.phase for phase in predicted.phases]
    if steps is not None and len(phases) > 1:
        raise WorkloadError(f"--steps {steps}: of which pass? add --phase prefill or --phase decode")
    if any(kernel.invocations > 1 for kernel in kernels):
        if len(phases) > 1:
            raise WorkloadError("a summary by name tells no passes apart; add --phase prefill or --phase decode")
        return _by_kind(kernels, orders[0], phases[0], predicted.device, steps, profile)
    return _in_order(kernels, orders, phases, predicted.device, steps, profile, predicted.architecture.name)


def _compared(
    predicted: Estimate, identified: Identified, profile: Profile, paired: _Paired, other: formats.Other | None
) -> Comparison:
    phases = [phase.step.phase for phase in predicted.phases]
    tally = Tally(paired.matching, paired.sequences, phases, paired.chosen, identified.device)
    absent = set(phases) - {each.phase for each in paired.chosen.passes}
    told = [note.removeprefix("warning: ") for note in predicted.notes if note.startswith("warning: ")]
    return Comparison(
        estimate=predicted,
        identified=identified,
        profile=profile,
        passes=paired.chosen.passes,
        rows=tuple(sorted(tally.rows(), key=lambda row: -(row.lost_seconds or 0.0))),
        left_kernels=tuple(tally.left_kernels()),
        left_operators=tuple(tally.left_operators()),
        shaped=tuple(tally.shaped()),
        doubtful=paired.doubtful,
        matched_by=paired.by,
        other=other,
        notes=(
            *profile.warnings,
            *identified.warnings,
            *([] if other is None else [str(other)]),
            *(note for note in told if note.partition(" ")[0] not in absent),
            *paired.notes,
        ),
    )


class _Paired(NamedTuple):
    """Kernels with their operators, the passes that count, what told them, what is to be said of it, and what of the
    file's layers speaks against the model."""

    matching: Matching
    sequences: Sequence[Sequence[Occurrence]]  # of the phases' operators, as they ran
    chosen: Chosen
    by: tuple[str, ...]
    notes: tuple[str, ...]
    doubtful: tuple[Layers, ...] = ()


def _in_order(
    kernels: Sequence[Kernel], orders: Sequence[Sequence[Sequence[Occurrence]]], phases: Sequence[str], device: Device,
    steps: int | None, profile: Profile, model: str,
) -> _Paired:  # fmt: skip
    """A trace, in which kernels stand in the order in which they ran."""
    found = kernel_groups.items(kernels, device, _fuses(orders[0]))
    matched, sequences = _cheapest(found, orders, phases)
    if not _fits(matched, found, sequences):
        kinds = Counter(sort(kernel.name) for kernel in kernels)
        listed = ", ".join(f"{n} of {kind}" for kind, n in kinds.most_common(4))
        raise ProfileError(
            f"{_names(profile)}: its kernels are not those of {model}: it holds {listed}; is it a profile of that "
            "model?"
        )
    chosen = passes.choose(matched, sequences, phases, steps)
    ranges = any(item.hint != NO_HINT for item in found)
    by = (*["ranges"] * ranges, "order", "kind", "shape", "time")
    doubtful = tuple(layers.doubtful(kernels, matched, sequences, phases))
    return _Paired(matched, sequences, chosen, by, (*chosen.notes, *_other_ways(matched, phases)), doubtful)


def _fuses(sequences: Sequence[Sequence[Occurrence]]) -> bool:
    return any(occurrence.anchor == "attention" for each in sequences for occurrence in each)


def _cheapest(
    found: Sequence[Item], orders: Sequence[Sequence[Sequence[Occurrence]]], phases: Sequence[str]
) -> tuple[Matching, Sequence[Sequence[Occurrence]]]:
    """Items as operators of these phases, in the order that fits best."""
    ways = [(matching.match(found, sequences, phases), sequences) for sequences in orders]
    return min(ways, key=lambda way: way[0].cost)


def _doubts(
    kernels: Sequence[Kernel], paired: _Paired, predicted: Estimate, workload: Mapping[str, Any]
) -> Iterator[str]:
    """Whether the kernels of a pass would rather be a decode where prefill was told, or the other way round."""
    told = predicted.phases[0].step.phase
    if len(predicted.phases) > 1 or told not in OTHERWISE or not paired.chosen.steps or paired.by == ("kind",):
        return
    one = paired.chosen.steps[0][0]
    own = {id(kernel) for unit in paired.matching.units if unit.step == one for kernel in unit.item.kernels}
    other = {**workload, "phase": OTHERWISE[told], "context": None}
    both = [*predicted.phases, *estimate(predicted.architecture, predicted.device, **other).phases]
    orders = sequence.orders(both)
    found = kernel_groups.items(
        [kernel for kernel in kernels if id(kernel) in own], predicted.device, _fuses(orders[0])
    )
    matched, _ = _cheapest(found, orders, [phase.step.phase for phase in both])
    if matched.units and all(unit.phase for unit in matched.units):
        yield (
            f"by the time that its kernels take, a pass looks more like a {OTHERWISE[told]} than a {told}: is --phase "
            f"{told} right?"
        )


def _by_kind(
    kernels: Sequence[Kernel], sequences: Sequence[Sequence[Occurrence]], phase: str, device: Device, steps: int | None,
    profile: Profile,
) -> _Paired:  # fmt: skip
    """A summary by name, which has no order."""
    matched, chosen, note = summary.summed(kernels, sequences[0], phase, device, steps, _names(profile))
    return _Paired(matched, sequences, chosen, ("kind",), (note,))


def _names(profile: Profile) -> str:
    return ", ".join(profile.files[:3])


def _of_one_device(profile: Profile, device: str | None) -> list[Kernel]:
    """The kernels of one GPU, in the order in which they ran. Raises ProfileError where there are none, or several."""
    where = _names(profile)
    if not profile.kernels:
        said = f"; {profile.warnings[0]}" if profile.warnings else ""
        raise ProfileError(f"{where}: holds no kernels to compare with{said}")
    devices = Counter((kernel.process if kernel.device is None else kernel.device) or "" for kernel in profile.kernels)
    if device is not None and device not in devices:
        known = ", ".join(sorted(devices))
        raise WorkloadError(f"--device {device}: the files hold kernels of no such device; they have {known}")
    if device is None and len(devices) > 1:
        listed = ", ".join(f"{name} ({n} kernels)" for name, n in devices.most_common(4))
        first = devices.most_common(1)[0][0]
        raise ProfileError(f"{where}: holds kernels of {len(devices)} devices: {listed}; choose one: --device {first}")
    chosen = [
        kernel for kernel in profile.kernels
        if device is None or (kernel.process if kernel.device is None else kernel.device) == device
    ]  # fmt: skip
    if not any(k.seconds is not None or work(k.flops) or k.bytes.dram is not None for k in chosen):
        raise ProfileError(f"{where}: neither times nor counters of kernels; there is nothing to compare with")
    return chosen if any(k.start is None for k in chosen) else sorted(chosen, key=lambda kernel: kernel.start or 0.0)


def _other_ways(matched: Matching, phases: Sequence[str]) -> Iterator[str]:
    """What the kernels do otherwise than the options say."""
    if any(u.item.kind == "attention" and anchor(u.item.kernels[0].name) != "attention" for u in matched.units):
        yield (
            "attention runs as products with a softmax in between, not as one kernel: its rows are held against fused "
            "attention; --attention eager compares them one by one"
        )
    if matched.dropped:
        yield f"the last {matched.dropped} kernels are left out: the file is too long to match as one"
    backward = sum(len(item.kernels) for _, item in matched.left if item.direction in ("backward", "input", "weight"))
    if backward and "train" not in phases:
        yield f"{backward} kernels compute gradients, by their names: a training step? --phase train compares all of it"


def _fits(matched: Matching, found: Sequence[Item], sequences: Sequence[Sequence[Occurrence]]) -> bool:
    """Whether half of the anchors of a pass found their kernel, or half of the file's anchors their operator."""
    fixed = [unit for unit in matched.units if unit.item.kind]
    places = {(unit.step, unit.phase, place) for unit in fixed for place in unit.operators}
    seen = Counter((step, phase) for step, phase, place in places if sequences[phase][place].anchor)
    whole = [sum(occurrence.anchor is not None for occurrence in sequence) for sequence in sequences]
    of_a_pass = max((n / whole[phase] for (_, phase), n in seen.items()), default=0.0)
    of_the_file = len(fixed) / max(1, sum(item.kind is not None for item in found))
    return bool(fixed) and max(of_a_pass, of_the_file) > FITTING
