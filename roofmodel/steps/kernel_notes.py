"""Notes on the kernels of an estimate: the basis of their times, other formats, other kernels, unaligned rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from roofmodel.counting.operator import Operator
from roofmodel.counting.workload import Workload
from roofmodel.devices.calibration import Calibration
from roofmodel.devices.device import Device
from roofmodel.engines.engine import CHOICES, is_chosen
from roofmodel.errors import AnswerNote, Option
from roofmodel.steps.notes import first_names
from roofmodel.steps.phase import PhaseEstimate
from roofmodel.steps.placed import Placed
from roofmodel.timing import parameter_sets
from roofmodel.timing.engine import Timing
from roofmodel.timing.gemm import LOADS, aligned_share
from roofmodel.timing.timing import CONVOLUTION_LIBRARY, gemm_load, gemm_work, kernel_parameters

KERNEL_KINDS = {
    "gemm": "GEMM", "prefill_attention": "prefill attention", "decode_attention": "decode attention",
    "experts": "MoE", "collectives": "collective", "elementwise": "elementwise",
    "encoder_attention": "encoder attention", "latent_prefill": "latent prefill attention",
    "latent_decode": "latent decode attention", "latent_products": "absorbed projection",
    "causal_convolution": "causal convolution", "causal_convolution_update": "causal convolution",
    "delta_rule_prefill": "delta-rule", "delta_rule_decode": "delta-rule",
}  # fmt: skip
"""The kinds of kernels in a device's calibration, by their names in its file."""
MIN_COLUMNS = 8  # a narrower matrix, such as a head of two classes, takes no time that its alignment could cost
CACHED = ("prefill_attention", "decode_attention", "encoder_attention", "latent_prefill", "latent_decode")
"""The kinds whose stored format is that of the KV cache; of the others, it is that of the weights."""


def kernel_notes(device: Device, work: Workload, estimates: Sequence[PhaseEstimate]) -> Iterator[AnswerNote]:
    """The basis of expected times, and kernels with parameters of other formats or other kernels."""
    timing = Timing(device, work.engine)
    yield from timing_notes(device, estimates)
    yield from format_notes(timing, (each for phase in estimates for each in phase.operators), work.widths.compute)
    yield from borrowed_notes(timing, estimates)
    yield from choice_notes(timing, estimates)
    yield from alignment_notes(timing, (each for phase in estimates for each in phase.operators))


def timing_notes(device: Device, estimates: Sequence[PhaseEstimate]) -> Iterator[AnswerNote]:
    """The basis of expected times, or why there are none."""
    operators = [placed for phase in estimates for placed in phase.placed]
    unknown = sorted({placed.operator.kind for placed in operators if placed.expected is None})
    if device.calibration is None:
        yield AnswerNote(f"{device.id} is not calibrated, so it has no expected times; see roof calibrate")
    elif device.missing_timing_fields:
        missing = " and ".join(device.missing_timing_fields)
        yield AnswerNote(
            f"there are no expected times: {device.id}'s file lacks {missing}, which the timing model needs"
        )
    elif unknown:
        times = "expected times" if all(placed.expected is None for placed in operators) else "totals of expected times"
        yield AnswerNote(f"there are no {times}: {device.id} is not calibrated for {', '.join(unknown)}")
    elif waiting := [phase.step.phase for phase in estimates if phase.expected is None]:
        yield AnswerNote(
            f"there is no expected time of {' and '.join(waiting)}: stages wait for transfers between stages, and "
            f"{device.id} is not calibrated for these"
        )
    else:
        communicates = any(phase.step.parallel.gpus > 1 for phase in estimates)
        for source_device, kinds in device.calibration.transferred.items():
            used = _kernel_kinds(operators, device.calibration)
            computing = [kind for kind in kinds if kind in used]
            # Collectives have a note of their own, because some cases of a sweep may run on one GPU.
            for shown in (computing, ["collectives"] if communicates and "collectives" in kinds else []):
                if names := _listed(dict.fromkeys(KERNEL_KINDS[kind] for kind in shown)):
                    yield AnswerNote(
                        f"{names} kernels are not calibrated on {device.id}; {source_device} parameters scaled to its "
                        "datasheet are used"
                    )
        scans = [each.operator for each in operators if each.operator.kind == "scan"]
        if names := ", ".join(dict.fromkeys(each.name for each in scans if not parameter_sets.kind(each))):
            yield AnswerNote(
                f"the expected time of {names} has no evidence: no measurements of this scan exist, so the time to "
                "read and write its data is used"
            )
        if any(each.operator.name == "attention.index_scores" for each in operators):
            yield AnswerNote(
                "the expected times of the indexer and of attention to the tokens that it selects have no evidence: no "
                "measurements exist, so the parameters of other attention kernels are used"
            )
        if any(_is_default_convolution(each, device.calibration) for each in operators):
            yield AnswerNote(
                "convolutions are expected with the kernels that PyTorch chooses by default; with "
                "torch.backends.cudnn.benchmark = True, these times are 2 to 37 % longer than published ones"
            )


def _listed(names: Iterable[str]) -> str:
    """`a, b and c`; empty for no name."""
    *first, last = [*names] or [""]
    return f"{', '.join(first)} and {last}" if first else last


def _kernel_kinds(placed: Sequence[Placed], calibration: Calibration) -> set[str]:
    """The kinds of parameters of all operators but collectives."""
    operators = [each.operator for each in placed if each.operator.collective is None]
    return {kernel_parameters(each, calibration, each.widths.compute).kind for each in operators}


def _is_default_convolution(placed: Placed, calibration: Calibration) -> bool:
    """Whether the expected time comes from a trace with PyTorch's default choice of cuDNN's algorithms."""
    if placed.operator.kind != "conv":
        return False
    chosen = kernel_parameters(placed.operator, calibration, placed.operator.widths.dtype.name).chosen
    return chosen is not None and chosen.implementation == CONVOLUTION_LIBRARY


def alignment_notes(timing: Timing, operators: Iterable[Operator]) -> Iterator[AnswerNote]:
    """The GEMMs whose rows are not multiples of 16 bytes, and what this costs, where it was measured."""
    device, names = timing.device, dict[str, int]()
    for operator in map(timing.executed, operators):
        if device.calibration is None or operator.kind != "gemm":
            continue
        dtype = operator.compute_dtype(operator.widths.compute)
        work = gemm_work(operator, dtype)
        load = work and gemm_load(operator, work, device, dtype, timing)
        if work and load and load < LOADS[0] and min(work.n, work.k) >= MIN_COLUMNS:
            names[operator.name] = load
    for load in sorted(set(names.values())):
        of_load = [name for name, own_load in names.items() if own_load == load]
        subject = (
            f"{first_names(of_load)} {'has' if len(of_load) == 1 else 'have'} rows that are not multiples of 16 bytes"
        )
        if device.unaligned is None:
            loss = (
                f"the expected time does not include this loss, which is not measured on {device.id} (an H100 reaches "
                "11 to 28 % of its rate)"
            )
        else:
            share = aligned_share(load, device.unaligned)
            loss = f"{device.id} runs such GEMMs at {share:.0%} of its rate; pad them to a multiple of 8 values"
        yield AnswerNote(f"{subject}: {loss}")


def format_notes(timing: Timing, operators: Iterable[Operator], dtype: str) -> Iterator[AnswerNote]:
    """The kinds of kernels whose parameters were fitted to other formats than those of the operators.

    `dtype` is the compute format of GEMMs. bf16 and fp16 have the same parameters.
    """
    device = timing.device
    kinds_by_formats: dict[tuple[str, str, bool], dict[str, None]] = {}
    for operator in operators:
        if operator.collective is None:
            parameters = timing.parameters(timing.executed(operator), dtype)
            if parameters is None or parameters.chosen is None or not parameters.chosen.is_substitute:
                continue
            kind, key, chosen = parameters
            assert chosen is not None
            widths = operator.widths
            half = "bf16" if "bf16" in (dtype, widths.dtype.name, widths.kv.name) else "fp16"
            own, other = (_format_text(kind, each, half) for each in (key, chosen.format_key))
            if own != other:
                kinds_by_formats.setdefault((own, other, _has_unscaled_fp4(kind, key)), {})[KERNEL_KINDS[kind]] = None
    for (own, other, is_unscaled), kinds in kinds_by_formats.items():
        note = (
            f"{_listed(kinds)} kernels have no parameters for {own} on {device.id}; those of {other} are used, with a "
            "wider interval"
        )
        if is_unscaled:
            yield AnswerNote(f"{note} (", Option("weights", "nvfp4"), " counts the scales)")
        else:
            yield AnswerNote(note)


def borrowed_notes(timing: Timing, estimates: Sequence[PhaseEstimate]) -> Iterator[AnswerNote]:
    """The kinds of kernels of an engine that have no parameters, and the kernels whose parameters are used.

    Parameters for other formats have a note of their own.
    """
    engine, device = timing.engine, timing.device
    kinds: dict[str, dict[str, None]] = {}
    for placed in (placed for phase in estimates for placed in phase.placed):
        by = placed.run.formula
        if by is not None and not by.is_substitute and timing.is_of_other_engine(by):
            kinds.setdefault(by.implementation, {})[KERNEL_KINDS[by.kind]] = None
    for implementation, names in kinds.items():
        yield AnswerNote(
            f"{_listed(names)} kernels of {engine.name} have no parameters for {device.id}; those of "
            f"{implementation!r} are used"
        )


def choice_notes(timing: Timing, estimates: Sequence[PhaseEstimate]) -> Iterator[AnswerNote]:
    """The kernels that an option of the engine chose, where none of them has parameters."""
    engine, device = timing.engine, timing.device
    formulas = [placed.run.formula for phase in estimates for placed in phase.placed if placed.run.formula is not None]
    for key, value in engine.settings:
        used = {by.kind: by.implementation for by in formulas if by.kind in CHOICES.get(key, ())}
        chosen = [name for name in engine.names(*used) if is_chosen(name, value)]
        others = dict.fromkeys(used.values())
        if chosen and not any(is_chosen(name, value) for name in others):
            yield AnswerNote(
                Option("engine_option", f"{key}={value}"),
                f": {engine.name}'s {', '.join(chosen)} {'has' if len(chosen) == 1 else 'have'} no parameters on "
                f"{device.id} for these formats; {' and '.join(others)} {'is' if len(others) == 1 else 'are'} used",
            )


def _has_unscaled_fp4(kind: str, format_key: str) -> bool:
    """Whether a GEMM has the default weights of fp4: fp4 is a format of arithmetic, and stored weights have scales."""
    return kind in ("gemm", "experts") and format_key == "fp4/fp4"


def _format_text(kind: str, format_key: str, half: str) -> str:
    """The formats of a format key, such as `fp16 with int4 weights`.

    `half` is the 16-bit format of the workload.
    """
    if _has_unscaled_fp4(kind, format_key):
        return "fp4 weights without scales"
    names = [half if name == "fp16" else name for name in format_key.split("/")]
    if len(set(names)) == 1:
        return names[0]
    return f"{names[0]} with {names[1]} {'KV cache' if kind in CACHED else 'weights'}"
