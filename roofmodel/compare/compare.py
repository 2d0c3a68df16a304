"""`roof compare`: the operators of a model matched with the kernels of a profile.

Every figure is a mean over the passes used. A row has the measured figures of its kernels and the predicted figures of
the operators that were matched with them. Kernels and operators without a match are listed.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from roofmodel.compare import diagnosis, kernel_groups, matching, passes, sequence, summary
from roofmodel.compare.comparison import ComparisonFinding, FoundPasses, LayerMismatch, ModelComparison
from roofmodel.compare.kernel_groups import WorkGroup, recorded_attention, recorded_gemm, recorded_images
from roofmodel.compare.matching import Matching
from roofmodel.compare.passes import ChosenPasses
from roofmodel.compare.sequence import Occurrence
from roofmodel.compare.tally import Tally
from roofmodel.devices.device import Device, Hardware, device_name
from roofmodel.engines.engine import Engine, packaged
from roofmodel.errors import Message, Option, ProfileError, RoofError, Text, WorkloadError, joined, warnings_in
from roofmodel.files.text_files import display_names, rename_files
from roofmodel.models import hub
from roofmodel.profiles.kernel import Kernel, Profile
from roofmodel.roofline import inputs
from roofmodel.roofline.device import DeviceIdentification, identify
from roofmodel.roofline.formats import FormatMismatch, format_mismatch
from roofmodel.roofline.naming import NO_HINT, anchor, category_of, serving_step
from roofmodel.roofline.points import flops_by_pipe
from roofmodel.steps.estimate import Estimate, estimate
from roofmodel.steps.parallelism import refuse_stages
from roofmodel.trace.trace import trace

MIN_MATCHED = 0.5  # share of the anchors of a pass, or of the file, below which the file is of another model
MOSTLY_BUSY = 0.9  # share of the run with kernels, above which neither its input nor its copies limit it
OPPOSITE_PHASE = {"prefill": "decode", "decode": "prefill"}


def compare(
    model: str,
    files: Sequence[str],
    hw: Hardware | None,
    *,
    family: str | None = None,
    times: Sequence[str] = (),
    steps: int | None = None,
    device: str | None = None,
    workload: Mapping[str, Any],
) -> ModelComparison:
    """Match the operators of a model under a workload with the kernels of profiler files.

    `times` are files whose times replace those of `files`; `steps` is the number of passes in the files (detected if
    None); `device` is the ordinal of the GPU to use if the files have several. Raises RoofError if the model or a file
    is not readable, or if the kernels do not match the model.
    """
    if workload.get("phase") == "generate":
        raise WorkloadError(
            Option("phase", "generate"), ": compare takes one kind of pass; use ", Option("phase", "decode"), " ",
            Option("context", "N"),
        )  # fmt: skip
    if steps is not None and steps < 1:
        raise WorkloadError(Option("steps", steps), " is not a number of passes; give 1 or more")
    architecture = hub.load(model, family)
    runs = inputs.read_runs(files, hw, times)
    if len(runs) != 1:
        devices = ", ".join(device_name(run.hw) if run.hw else "device of the file" for run in runs)
        raise WorkloadError(f"the files are of several devices ({devices}): compare takes the files of one device")
    profile = runs[0].profile
    identified = identify(profile.evidence, runs[0].hw, profile.files)
    kernels = kernel_groups.without_graph_calls(_kernels_of_device(profile, device))
    shown = {"engine": engine_of(kernels)} if workload.get("engine") is None else {}
    predicted = estimate(architecture, identified.device, **{**workload, **shown})
    phases = [phase.step.phase for phase in predicted.phases]
    if architecture.image:
        profile_workload = stated_images(kernels, int(predicted.workload.seq), workload)
    else:
        profile_workload = stated_workload(kernels, phases[0] if len(phases) == 1 else None, workload)
    if profile_workload and profile_workload.options:
        predicted = estimate(architecture, identified.device, **{**workload, **shown, **profile_workload.options})
    refuse_stages(predicted.workload, "a profile is compared with one pass through all layers")
    matched = _match(kernels, predicted, steps, profile)
    notes = (
        *_workload_notes(profile_workload, matched.chosen.passes, predicted, workload, profile),
        *matched.notes,
        *_phase_doubt(kernels, matched, predicted, workload),
    )
    mismatch = format_mismatch(kernels, predicted.workload.widths)
    comparison = _comparison(predicted, identified, profile, matched._replace(notes=notes), mismatch)
    _check_weight_sizes(comparison, matched.sequences)
    names = display_names(profile.files)
    notes = tuple(rename_files(note, names) for note in comparison.notes)
    findings = (*_limits_of_run(profile, comparison.passes[0].phase), *diagnosis.findings(comparison))
    return comparison._replace(findings=findings[: diagnosis.MAX_FINDINGS], notes=notes)


def engine_of(kernels: Sequence[Kernel]) -> str | None:
    """The packaged engine that the names of kernels and NVTX ranges show; None if they show none, or several.

    An engine whose kernels another one of them runs does not count.
    """
    names = {text for kernel in kernels for text in (kernel.name, *kernel.nvtx)}
    shown = [engine for engine in packaged() if engine.kernel_names and any(map(_words(engine).search, names))]
    used = {name for engine in shown for name in engine.runs_kernels_of}
    first = [engine.id for engine in shown if engine.id not in used]
    return first[0] if len(first) == 1 else None


def _words(engine: Engine) -> re.Pattern[str]:
    """The names of an engine's kernels as whole words; one such as `sgl::` may continue."""
    return re.compile("|".join(rf"(?<!\w){re.escape(name)}(?:(?!\w)|(?<!\w))" for name in engine.kernel_names))


def _limits_of_run(profile: Profile, phase: str) -> Iterator[ComparisonFinding]:
    """A data loader or memory copies that limit the run, as `roof trace` finds them."""
    ends = [(k.start, k.start + k.seconds) for k in profile.kernels if k.start is not None and k.seconds is not None]
    if not ends or not all(os.path.isfile(file) for file in profile.files):
        return
    span = max(end for _, end in ends) - min(start for start, _ in ends)
    if sum(end - start for start, end in ends) > MOSTLY_BUSY * span:
        return
    try:
        run = trace(profile.files)
    except RoofError:  # such as a summary, which has no times of starts
        return
    for finding in run.findings:
        if finding.kind in ("input_bound", "copy_bound"):
            yield ComparisonFinding("run", phase, finding.seconds, finding.seconds / span, detail=finding.text)


class _Matched(NamedTuple):
    """Kernels matched with operators, and the passes to use."""

    matching: Matching
    sequences: Sequence[Sequence[Occurrence]]  # operators of each phase, in execution order
    chosen: ChosenPasses
    by: tuple[str, ...]  # criteria of the match
    notes: tuple[Text, ...]
    layer_mismatches: tuple[LayerMismatch, ...] = ()


def _match(kernels: Sequence[Kernel], predicted: Estimate, steps: int | None, profile: Profile) -> _Matched:
    orders, phases = sequence.orders(predicted.phases), [phase.step.phase for phase in predicted.phases]
    one_phase = joined(" or ", (Option("phase", phase) for phase in ("prefill", "decode")))
    if steps is not None and len(phases) > 1:
        raise WorkloadError(Option("steps"), " needs ", Option("phase"), ": use ", one_phase)
    if any(kernel.invocations > 1 for kernel in kernels):
        if len(phases) > 1:
            raise WorkloadError("a summary by kernel name does not separate prefill and decode; use ", one_phase)
        return _match_summary(kernels, orders[0], phases[0], predicted.device, steps, profile)
    return _match_trace(kernels, orders, phases, predicted.device, steps, profile, predicted.architecture.name)


def _comparison(
    predicted: Estimate,
    identified: DeviceIdentification,
    profile: Profile,
    matched: _Matched,
    mismatch: FormatMismatch | None,
) -> ModelComparison:
    phases = [phase.step.phase for phase in predicted.phases]
    tally = Tally(matched.matching, matched.sequences, phases, matched.chosen, identified.device)
    absent = set(phases) - {each.phase for each in matched.chosen.passes}
    warnings = warnings_in(predicted.notes)
    return ModelComparison(
        estimate=predicted,
        identified=identified,
        profile=profile,
        passes=matched.chosen.passes,
        rows=tuple(sorted(tally.rows(), key=lambda row: -(row.excess_seconds or 0.0))),
        unmatched_kernels=tuple(tally.unmatched_kernels()),
        unmatched_operators=tuple(tally.unmatched_operators()),
        gemms=tuple(tally.gemms()),
        layer_mismatches=matched.layer_mismatches,
        matched_by=matched.by,
        format_mismatch=mismatch,
        notes=(
            *profile.warnings,
            *identified.warnings,
            *([] if mismatch is None else [mismatch.message]),
            *(warning for warning in warnings if str(warning).partition(" ")[0] not in absent),
            *matched.notes,
        ),
    )


def _match_trace(
    kernels: Sequence[Kernel], orders: Sequence[Sequence[Sequence[Occurrence]]], phases: Sequence[str], device: Device,
    steps: int | None, profile: Profile, model: str,
) -> _Matched:  # fmt: skip
    """Match a trace, whose kernels are in launch order."""
    groups = kernel_groups.group_kernels(kernels, device, _fuses_attention(orders[0]))
    matched, sequences = _cheapest(groups, orders, phases)
    if not _is_of_model(matched, groups, sequences):
        categories = Counter(category_of(kernel.name) for kernel in kernels)
        listed = ", ".join(f"{n} {category}" for category, n in categories.most_common(4))
        raise ProfileError(
            f"{_names(profile)}: the kernels do not match {model} (its kernels: {listed}); check that it is a profile "
            "of this model"
        )
    chosen = passes.choose(matched, sequences, phases, steps)
    ranges = any(group.hint != NO_HINT for group in groups)
    by = (*["ranges"] * ranges, "order", "kind", "shape", "time")
    mismatches = tuple(passes.layer_mismatches(kernels, matched, sequences, phases))
    return _Matched(matched, sequences, chosen, by, (*chosen.notes, *_option_hints(matched, phases)), mismatches)


def _fuses_attention(sequences: Sequence[Sequence[Occurrence]]) -> bool:
    return any(occurrence.anchor == "attention" for each in sequences for occurrence in each)


def _cheapest(
    groups: Sequence[WorkGroup], orders: Sequence[Sequence[Sequence[Occurrence]]], phases: Sequence[str]
) -> tuple[Matching, Sequence[Sequence[Occurrence]]]:
    """The matching with the lowest cost over all execution orders, and its order."""
    matchings = [(matching.match(groups, sequences, phases), sequences) for sequences in orders]
    return min(matchings, key=lambda pair: pair[0].cost)


def _check_weight_sizes(comparison: ModelComparison, sequences: Sequence[Sequence[Occurrence]]) -> None:
    """Raises ProfileError if the file records shapes of GEMMs and none has a weight matrix of the model."""
    recorded = [gemm.shape for gemm in comparison.gemms]
    if not recorded or any(gemm.same_weights for gemm in comparison.gemms):
        return
    weight_sizes = set(_weight_sizes(sequences))
    if any({m * k, k * n, m * n} & weight_sizes for _, m, n, k in recorded):
        return
    sizes = Counter(f"{shape.k} × {shape.n}" for shape in recorded)
    model = comparison.estimate.architecture.name
    raise ProfileError(
        f"{_names(comparison.profile)}: the kernels do not match {model}: the GEMMs of the file have other weight "
        f"sizes than this model ({', '.join(size for size, _ in sizes.most_common(3))}); check that it is a profile of "
        "this model; for a model sharded over GPUs use ",
        Option("tp", "N"),
    )


def _weight_sizes(sequences: Sequence[Sequence[Occurrence]]) -> Iterator[int]:
    """Elements of each weight matrix, and of adjacent matrices of a layer and slot, which one kernel may compute."""
    for occurrences in sequences:
        slot, sizes = None, list[int]()
        for each in occurrences:
            if (gemm := each.placed.operator.gemm) is None or each.placed.operator.kind != "gemm":
                continue
            if slot != (each.layer, each.slot):
                slot, sizes = (each.layer, each.slot), []
            sizes.append(int(gemm.n * gemm.k))
            yield from (sum(sizes[first:]) for first in range(len(sizes)))


def _workload_notes(
    profile_workload: StatedWorkload | None,
    phase_passes: Sequence[FoundPasses],
    predicted: Estimate,
    given_options: Mapping[str, Any],
    profile: Profile,
) -> Iterator[Text]:
    """Where batch and lengths come from, and what is assumed of them, unless the user gives them.

    Raises WorkloadError if the profile does not state any and the user gives none.
    """
    image = predicted.architecture.image
    options = profile_workload.options if profile_workload else {}
    if profile_workload and options:
        yield Message(
            joined(", ", (Option(name, value) for name, value in options.items())), f": from {profile_workload.source}"
        )
    known_options = {**given_options, **options}
    work, phases = predicted.workload, {passes.phase for passes in phase_passes}
    assumed: list[Option] = [] if known_options.get("batch") else [Option("batch", work.batch)]
    if not known_options.get("seq") and not image:
        if phases != {"decode"} or predicted.architecture.encoder:
            assumed.append(Option("seq", work.seq))
        elif known_options.get("context") is None:
            assumed.append(Option("context", predicted.phases[-1].step.context))
    if not assumed:
        return
    several = profile_workload is not None and profile_workload.of_several_phases
    phase = [joined(" or ", (Option("phase", each) for each in OPPOSITE_PHASE))] if several else []
    if not any(known_options.get(name) for name in ("batch", "seq", "context")):
        why = "the file has neither recorded shapes of GEMMs nor annotations of a serving engine"
        if image:
            why = "the file records no shapes of convolutions, nor of the GEMMs of tokens"
        unknown = "the batch is" if image else "batch and lengths are"
        values = joined(" and ", (Option(option.name, "N") for option in assumed))
        raise WorkloadError(
            f"{_names(profile)}: {unknown} unknown: {profile_workload.source if profile_workload else why}; give ",
            joined(", or ", [*phase, values]),
        )
    if profile_workload:
        why = profile_workload.source if several else "the file does not state all of the workload"
    else:
        why = "the file records no shapes of GEMMs"
    yield Message(
        f"{why}, and the workload is not given completely; assumed: ", joined(", ", assumed),
        *(part for each in phase for part in ("; for the file's own, give ", each)),
    )  # fmt: skip


def _phase_doubt(
    kernels: Sequence[Kernel], matched: _Matched, predicted: Estimate, workload: Mapping[str, Any]
) -> Iterator[Text]:
    """A note if the kernels of a pass match the other of prefill and decode better than the given phase."""
    phase = predicted.phases[0].step.phase
    if len(predicted.phases) > 1 or phase not in OPPOSITE_PHASE or not matched.chosen.steps or matched.by == ("kind",):
        return
    step = matched.chosen.steps[0][0]
    matched_ids = {
        id(kernel) for unit in matched.matching.units if unit.step == step for kernel in unit.kernel_group.kernels
    }
    opposite = {**workload, "phase": OPPOSITE_PHASE[phase], "context": None}
    both = [*predicted.phases, *estimate(predicted.architecture, predicted.device, **opposite).phases]
    orders = sequence.orders(both)
    of_step = [kernel for kernel in kernels if id(kernel) in matched_ids]
    groups = kernel_groups.group_kernels(of_step, predicted.device, _fuses_attention(orders[0]))
    best, _ = _cheapest(groups, orders, [phase.step.phase for phase in both])
    if best.units and all(unit.phase for unit in best.units):
        yield Message(
            f"the kernel times of a pass fit {OPPOSITE_PHASE[phase]} better than {phase}: check ",
            Option("phase", phase),
        )


def _match_summary(
    kernels: Sequence[Kernel], sequences: Sequence[Sequence[Occurrence]], phase: str, device: Device, steps: int | None,
    profile: Profile,
) -> _Matched:  # fmt: skip
    """Match a summary by kernel name, which has no launch order."""
    matched, chosen, note = summary.match_by_kind(kernels, sequences[0], phase, device, steps, _names(profile))
    return _Matched(matched, sequences, chosen, ("kind",), (note,))


def _names(profile: Profile) -> str:
    return ", ".join(profile.files[:3])


def _kernels_of_device(profile: Profile, device: str | None) -> list[Kernel]:
    """The kernels of one GPU in launch order. Raises ProfileError for no kernels or an ambiguous GPU."""
    where = _names(profile)
    if not profile.kernels:
        warning = f"; {profile.warnings[0]}" if profile.warnings else ""
        raise ProfileError(f"{where}: the file has no kernels to compare with{warning}")
    devices = Counter((kernel.process if kernel.device is None else kernel.device) or "" for kernel in profile.kernels)
    if device is not None and device not in devices:
        raise WorkloadError(
            Option("device", device), f": the files have no kernels of this device; known: {', '.join(sorted(devices))}"
        )
    if device is None and len(devices) > 1:
        listed = ", ".join(f"{name} ({n} kernels)" for name, n in devices.most_common(4))
        first = devices.most_common(1)[0][0]
        raise ProfileError(
            f"{where}: kernels of {len(devices)} devices: {listed}; choose one with ", Option("device", first)
        )
    chosen = [
        kernel for kernel in profile.kernels
        if device is None or (kernel.process if kernel.device is None else kernel.device) == device
    ]  # fmt: skip
    if not any(k.seconds is not None or flops_by_pipe(k.flops) or k.bytes.dram is not None for k in chosen):
        raise ProfileError(f"{where}: the kernels have neither times nor counters; there is nothing to compare with")
    return chosen if any(k.start is None for k in chosen) else sorted(chosen, key=lambda kernel: kernel.start or 0.0)


def _option_hints(matched: Matching, phases: Sequence[str]) -> Iterator[Text]:
    """Options that would describe the kernels better, and kernels that were dropped."""
    if any(
        u.kernel_group.kind == "attention" and anchor(u.kernel_group.kernels[0].name) != "attention"
        for u in matched.units
    ):
        yield Message(
            "attention runs as GEMMs and a softmax, not as one kernel, and is compared with fused attention; ",
            Option("attention", "eager"), " compares its kernels one by one",
        )  # fmt: skip
    if matched.dropped:
        yield f"the file is too long to match: its last {matched.dropped} kernels are not used"
    backward = sum(
        len(group.kernels) for _, group in matched.unmatched if group.direction in ("backward", "input", "weight")
    )
    if backward and "train" not in phases:
        yield Message(
            f"{backward} kernels compute gradients, by their names; for a training step use ", Option("phase", "train")
        )


def _is_of_model(matched: Matching, groups: Sequence[WorkGroup], sequences: Sequence[Sequence[Occurrence]]) -> bool:
    """Whether more than half of the anchors of some pass, or of the anchor kernels of the file, are matched."""
    fixed = [unit for unit in matched.units if unit.kernel_group.kind]
    places = {(unit.step, unit.phase, place) for unit in fixed for place in unit.operators}
    matched_anchors = Counter((step, phase) for step, phase, place in places if sequences[phase][place].anchor)
    anchors = [sum(occurrence.anchor is not None for occurrence in sequence) for sequence in sequences]
    share_of_pass = max((n / anchors[phase] for (_, phase), n in matched_anchors.items()), default=0.0)
    share_of_file = len(fixed) / max(1, sum(group.kind is not None for group in groups))
    return bool(fixed) and max(share_of_pass, share_of_file) > MIN_MATCHED


# --- The workload that a profile states -----------------------------------------------------------


class StatedWorkload(NamedTuple):
    """Options of the workload that a profile states, and by what; without options, `source` says why there are none.

    A serving engine's annotations state them, or recorded shapes.
    """

    options: Mapping[str, int]
    source: str
    of_several_phases: bool = False  # there are none because the phase is not given


def stated_workload(
    kernels: Sequence[Kernel], phase: str | None, given_options: Mapping[str, Any]
) -> StatedWorkload | None:
    """What the profile states beside the given options. None: it has neither annotations nor shapes.

    `phase` is the only phase of the comparison; None for several, whose shapes cannot be distinguished. Then
    annotations count only if all state the same: the batch of a decode is not that of a prefill.
    """
    steps = Counter(
        (label, step) for kernel in kernels for label in kernel.nvtx if (step := serving_step(label)) and step.batch
    )
    of_phase = [(label, step) for (label, step), _ in steps.most_common() if step.phase and phase in (None, step.phase)]
    if phase is None and len({(step.batch, step.tokens) for _, step in of_phase}) > 1:
        return StatedWorkload({}, "the annotations state different batches or lengths", True)
    if of_phase:
        label, step = of_phase[0]
        options = {"batch": step.batch}
        if step.tokens:
            options["seq"] = max(1, round(step.tokens / step.batch))
        return StatedWorkload(_missing(options, given_options), label)
    attention = Counter(shape for kernel in kernels if (shape := recorded_attention(kernel)))
    rows = Counter(gemm.m for kernel in kernels if (gemm := recorded_gemm(kernel)) and gemm.batch == 1)
    if not attention and not rows:
        return StatedWorkload({}, f"{next(iter(steps))[0]} does not state them") if steps else None
    if phase is None:
        return StatedWorkload({}, "the recorded shapes may be of prefill or decode", True)
    if attention:
        (batch, queries, keys), _ = attention.most_common(1)[0]
        length = {"context": keys - 1} if phase == "decode" else {"seq": queries}
        return StatedWorkload(_missing({"batch": batch, **length}, given_options), "the recorded shapes of attention")
    count, times = rows.most_common(1)[0]
    if 2 * times < sum(rows.values()):
        return StatedWorkload({}, "the recorded shapes of GEMMs have different numbers of rows")
    return StatedWorkload(_of_rows(int(count), phase, given_options), "the recorded shapes of GEMMs")


def stated_images(kernels: Sequence[Kernel], tokens: int, given_options: Mapping[str, Any]) -> StatedWorkload | None:
    """The batch that the profile states of a model of images with `tokens` tokens each; None: it has no shapes."""
    images = Counter(batch for kernel in kernels if (batch := recorded_images(kernel)))
    if images:
        return StatedWorkload(
            _missing({"batch": images.most_common(1)[0][0]}, given_options), "the recorded shapes of convolutions"
        )
    rows = Counter(gemm.m for kernel in kernels if (gemm := recorded_gemm(kernel)) and gemm.batch == 1)
    if not rows or not tokens:
        return None
    count = int(rows.most_common(1)[0][0])
    if count % tokens:
        why = f"the recorded shapes of GEMMs have {count} rows, and an image has {tokens} tokens"
        return StatedWorkload({}, why)
    return StatedWorkload(_missing({"batch": count // tokens}, given_options), "the recorded shapes of GEMMs")


def _of_rows(rows: int, phase: str, given_options: Mapping[str, Any]) -> dict[str, int]:
    """The rows of the GEMMs are the tokens of all sequences, of which a decode has one each."""
    batch, seq = given_options.get("batch"), given_options.get("seq")
    if phase == "decode":
        return _missing({"batch": rows}, given_options)
    if batch and not seq and rows % batch == 0:
        return {"seq": rows // batch}
    if seq and not batch and rows % seq == 0:
        return {"batch": rows // seq}
    return {} if batch or seq else {"batch": 1, "seq": rows}


def _missing(options: Mapping[str, int], given_options: Mapping[str, Any]) -> dict[str, int]:
    return {name: value for name, value in options.items() if given_options.get(name) is None}
