"""Summaries by name (nsys stats, nvprof, ncu --print-summary): no order, so that kernels are compared by kind of work.

How many passes they add up follows from how often a kind of kernel ran, where each pass runs it as often: attention
first, which every framework runs once a layer; then norms, convolutions, products.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from roofmodel.devices.device import Device
from roofmodel.errors import ProfileError
from roofmodel.profiles.kernel import Kernel
from roofmodel.study.compare.comparison import Passes
from roofmodel.study.compare.kernel_groups import Item, counted
from roofmodel.study.compare.matching import Matching, Unit
from roofmodel.study.compare.naming import NO_HINT, anchor, direction, helps, words
from roofmodel.study.compare.passes import Chosen
from roofmodel.study.compare.sequence import Occurrence
from roofmodel.study.profile.points import total

# Kind of work -> the sorts of operators that it is of; and the words of kernels' names, anchors apart, that mean it.
KINDS = {
    "matrix product": ("matrix product",),
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
TELLING = ("attention", "norm", "convolution", "matrix product")  # of passes, the surest first
NEAR = 0.02


class Summed(NamedTuple):
    """A summary as one long pass, and how many passes it adds up."""

    matching: Matching
    chosen: Chosen
    note: str


def summed(
    kernels: Sequence[Kernel], sequence: Sequence[Occurrence], phase: str, device: Device, told: int | None, where: str
) -> Summed:
    """The kernels by kind beside the operators of these kinds.

    Raises ProfileError where nothing tells the passes, or no kernel is of these kinds.
    """
    by_kind: dict[str, list[Kernel]] = {}
    for kernel in kernels:
        by_kind.setdefault(kind(kernel.name), []).append(kernel)
    places: dict[str, list[int]] = {}
    for place, occurrence in enumerate(sequence):
        places.setdefault(_kind_of(occurrence), []).append(place)
    passes, why = _passes(by_kind, places, told, where)
    units = [
        Unit(_item(found, device), 0, 0, tuple(places[name]), passes=passes, kind=name)
        for name, found in by_kind.items()
        if name in places
    ]
    if not units:
        listed = ", ".join(kernel.name for kernel in kernels[:3])
        raise ProfileError(f"{where}: no kernel is of a kind that the model has, by their names: {listed}")
    left = [(0, _item([kernel], device)) for name, found in by_kind.items() if name not in places for kernel in found]
    seconds = total(kernel.seconds for kernel in kernels)
    often = sum(kernel.invocations for kernel in kernels)
    one = Passes(
        phase=phase, found=passes, used=passes, partial=False, seconds=None if seconds is None else seconds / passes,
        span_seconds=None, idle_seconds=None, kernels=often / passes,
    )  # fmt: skip
    return Summed(
        Matching(tuple(units), tuple(left), (0,)),
        Chosen({0: (0,)}, {0: passes}, (one,), ()),
        f"a summary by name, without the order of the kernels: compared by kind of work, over {passes} passes, {why}",
    )


def kind(name: str) -> str:
    """The kind of work that a kernel's name says; empty where it says none that an operator has."""
    if found := anchor(name):
        return found
    if helps(name):
        return "convolution" if helps(name) != "finish" else "matrix product"
    said = words(name)
    for sort in ("norm", "softmax", "scatter", "gather", "optimizer"):
        if sort in said:
            return sort
    light = said & {*KINDS["elementwise"], "mul", "elementwise"}
    return "elementwise" if light and not said & {"copy", "index"} else ""


def _kind_of(occurrence: Occurrence) -> str:
    return next((name for name, sorts in KINDS.items() if occurrence.work in sorts), "elementwise")


def _passes(
    by_kind: dict[str, list[Kernel]], places: dict[str, list[int]], told: int | None, where: str
) -> tuple[int, str]:
    """How many passes, as told or by the first kind of kernel of which a pass runs a whole number; and why so many."""
    for name in TELLING:
        ran = sum(kernel.invocations for kernel in by_kind.get(name, ()) if not helps(kernel.name))
        each = len(places.get(name, ()))
        if ran and each and abs(ran / each - round(ran / each)) < NEAR and ran >= each:
            found, by = round(ran / each), f"by its {ran} kernels of {name}, of which a pass has {each}"
            if told is None:
                return found, by
            return told, "as told" if told == found else f"as told; they are {found} {by}"
    if told is not None:
        return told, "as told"
    listed = ", ".join(f"{sum(k.invocations for k in by_kind[name])} of {name}" for name in TELLING if name in by_kind)
    raise ProfileError(
        f"{where}: a summary by name, of which nothing tells how many passes it adds up ({listed or 'no kernel of any'}"
        " of the model's kinds); say it: --steps N"
    )


def _item(kernels: Iterable[Kernel], device: Device) -> Item:
    run = tuple(kernels)
    name = run[0].name
    return Item(run, anchor(name), words(name), NO_HINT, direction(name), counted(run, device))
