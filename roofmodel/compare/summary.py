"""Summaries by kernel name (nsys stats, nvprof, ncu --print-summary), compared by kind of work.

They have no launch order. The number of passes follows from the launches of a kind that every pass launches a fixed
number of times: attention first (once per layer in every framework), then norms, convolutions and GEMMs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from roofmodel.compare.comparison import FoundPasses
from roofmodel.compare.kernel_groups import WorkGroup, counted_flops
from roofmodel.compare.matching import MatchedUnit, Matching
from roofmodel.compare.passes import ChosenPasses
from roofmodel.compare.sequence import Occurrence
from roofmodel.devices.device import Device
from roofmodel.errors import Option, ProfileError
from roofmodel.profiles.kernel import Kernel
from roofmodel.roofline.naming import NO_HINT, anchor, auxiliary_role, direction, words
from roofmodel.roofline.points import total

# Kind of work -> `Occurrence.work` of its operators, which for light work are also words in kernel names.
KINDS = {
    "GEMM": ("GEMM",),
    "attention": ("attention",),
    "convolution": ("convolution",),
    "scan": ("scan",),
    "norm": ("norm",),
    "softmax": ("softmax",),
    "gather": ("gather",),
    "scatter": ("scatter",),
    "optimizer": ("optimizer",),
    "elementwise": ("add", "activation", "rotary", "combine", "routing", "pool", "reduction"),
}
PASS_COUNTERS = ("attention", "norm", "convolution", "GEMM")  # kinds that give the passes, best first
WHOLE_WITHIN = 0.02  # distance to a whole number of passes


class SummaryMatch(NamedTuple):
    """A summary matched as one long pass, and its number of passes."""

    matching: Matching
    chosen: ChosenPasses
    note: str


def match_by_kind(
    kernels: Sequence[Kernel],
    sequence: Sequence[Occurrence],
    phase: str,
    device: Device,
    pass_count: int | None,
    where: str,
) -> SummaryMatch:
    """Match kernels with operators of the same kind. `pass_count` is the number of passes, None to detect it.

    Raises ProfileError if the number of passes cannot be detected, or if no kernel is of a kind in the model.
    """
    by_kind: dict[str, list[Kernel]] = {}
    for kernel in kernels:
        by_kind.setdefault(kind(kernel.name), []).append(kernel)
    places: dict[str, list[int]] = {}
    for place, occurrence in enumerate(sequence):
        places.setdefault(_kind_of(occurrence), []).append(place)
    passes, evidence = _passes(by_kind, places, pass_count, where)
    units = [
        MatchedUnit(_group(kind_kernels, device), 0, 0, tuple(places[name]), passes=passes, kind=name)
        for name, kind_kernels in by_kind.items()
        if name in places
    ]
    if not units:
        listed = ", ".join(kernel.name for kernel in kernels[:3])
        raise ProfileError(f"{where}: no kernel name shows a kind of work that the model has: {listed}")
    unmatched = [
        (0, _group([kernel], device))
        for name, kind_kernels in by_kind.items()
        if name not in places
        for kernel in kind_kernels
    ]
    seconds = total(kernel.seconds for kernel in kernels)
    launches = sum(kernel.invocations for kernel in kernels)
    mean = FoundPasses(
        phase=phase, detected=passes, used=passes, partial=False, seconds=None if seconds is None else seconds / passes,
        span_seconds=None, idle_seconds=None, kernels=launches / passes,
    )  # fmt: skip
    return SummaryMatch(
        Matching(tuple(units), tuple(unmatched), (0,)),
        ChosenPasses({0: (0,)}, {0: passes}, (mean,), ()),
        f"a summary by kernel name has no launch order: compared by kind of work, over {passes} passes ({evidence})",
    )


def kind(name: str) -> str:
    """The kind of work that a kernel's name shows; empty if no operator has it."""
    if anchor_kind := anchor(name):
        return anchor_kind
    if role := auxiliary_role(name):
        return "GEMM" if role == "finish" else "convolution"
    name_words = words(name)
    for work in ("norm", "softmax", "scatter", "gather", "optimizer"):
        if work in name_words:
            return work
    light = name_words & {*KINDS["elementwise"], "mul", "elementwise"}
    return "elementwise" if light and not name_words & {"copy", "index"} else ""


def _kind_of(occurrence: Occurrence) -> str:
    return next((name for name, works in KINDS.items() if occurrence.work in works), "elementwise")


def _passes(
    by_kind: dict[str, list[Kernel]], places: dict[str, list[int]], pass_count: int | None, where: str
) -> tuple[int, str]:
    """The number of passes, given or from a kind with a fixed number of launches per pass; and the evidence."""
    for name in PASS_COUNTERS:
        launches = sum(k.invocations for k in by_kind.get(name, ()) if not auxiliary_role(k.name))
        per_pass = len(places.get(name, ()))
        if not launches or not per_pass or launches < per_pass:
            continue
        passes = round(launches / per_pass)
        if abs(launches / per_pass - passes) < WHOLE_WITHIN:
            evidence = f"{launches} {name} kernels, {per_pass} per pass"
            if pass_count is None:
                return passes, evidence
            return (
                pass_count,
                "as given" if pass_count == passes else f"as given; the kernels suggest {passes}: {evidence}",
            )
    if pass_count is not None:
        return pass_count, "as given"
    listed = ", ".join(
        f"{sum(k.invocations for k in by_kind[name])} {name}" for name in PASS_COUNTERS if name in by_kind
    )
    raise ProfileError(
        f"{where}: the number of passes in a summary by kernel name is not clear from its kernels "
        f"({listed or 'no kind of kernel that the model has'}); use ",
        Option("steps", "N"),
    )


def _group(kernels: Iterable[Kernel], device: Device) -> WorkGroup:
    run = tuple(kernels)
    name = run[0].name
    return WorkGroup(run, anchor(name), words(name), NO_HINT, direction(name), counted_flops(run, device))
