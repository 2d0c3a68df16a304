"""Batch and lengths of a pass as a profile states them: by a serving engine's annotations, or by recorded shapes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from roofmodel.compare.kernel_groups import recorded_attention, recorded_gemm, recorded_images
from roofmodel.profiles.kernel import Kernel
from roofmodel.roofline.serving_steps import serving_step


class StatedWorkload(NamedTuple):
    """Options of the workload that a profile states, and by what; without options, `source` says why there are none."""

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
