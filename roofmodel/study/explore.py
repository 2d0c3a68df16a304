"""A model under every situation that sliders can reach: its estimate, written down once as formulas of the sliders.

`estimate.py` runs as ever, on a workload whose batch and lengths, a device whose ceilings and parameters, and formats
whose widths are recorded numbers (`recorded.py`). What comes of it is a PhaseEstimate in which every figure is a
formula of the inputs below, of `bytes`, for which the format that a role has at the time stands in, and of those
functions of `prediction` that are marked as formulas. Nothing is counted or timed in a second way.

What is no number is told apart instead: phase and attention (`Variant`), and the runtime.

    seq, context, decoder_seq                 the workload, as `roof estimate` has it
    batch                                     of one of the replicas
    tp, dp, ep                                GPUs, where a model can be shared so (`any_gpus`)
    bits|ROLE                                 of the formats that `dtype`, `weights` and `kv` stand for
    device|FIELD                              the device's figures, with those of its two pipes for the format
    device|LINK|FIELD                         of its links `inside` a node, of its `bridge` and its `network`
    set|KIND|IMPLEMENTATION|ROLE|FIELD        of the parameters that were fitted (`timing.chosen`) for `dtype` and
                                              ROLE, which may have the size of a head behind it; or for a LINK
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Literal, NamedTuple, TypeVar

from roofmodel.counting import phases
from roofmodel.counting.memory import Memory
from roofmodel.counting.widths import FORMATS, Format, Widths
from roofmodel.counting.workload import Parallel, Phase
from roofmodel.devices.calibration import Calibration, Fit, Fitted
from roofmodel.devices.device import Device, Level, Link, Pipe
from roofmodel.devices.fitted import TIMINGS
from roofmodel.errors import WorkloadError
from roofmodel.models.architecture import Architecture
from roofmodel.recorded import Book, Cases, Undecided
from roofmodel.study.estimate import TRAINED_BITS, phases_of, workload
from roofmodel.study.parallel import dealt
from roofmodel.study.phase import PhaseEstimate, phase_estimate, timed

Length = Literal["seq", "decoder_seq", "context"]

LEFT_OUT = ("generate",)
"""Phases that no slider reaches: a run of decodes takes means that are fractions."""


class Variant(NamedTuple):
    """What no slider moves."""

    phase: Phase
    attention: str


class Situation(NamedTuple):
    """What `roof estimate` says of a variant, every figure a formula."""

    estimates: Mapping[str, PhaseEstimate]  # by runtime
    memory: Memory
    fits: Any


Told = TypeVar("Told")


def explore(arch: Architecture, book: Book, tell: Callable[[Situation], Told]) -> dict[Variant, Cases[Told]]:
    """Write a model down in the book, in every variant: what `tell` makes of the situation.

    Raises WorkloadError where a variant falls into too many cases.
    """
    known = [phase for phase in phases_of(arch) if phase not in LEFT_OUT]
    variants = [Variant(phase, attention) for phase in known for attention in attentions(arch)]
    return {variant: _told(arch, variant, book, tell) for variant in variants}


def attentions(arch: Architecture) -> tuple[str, ...]:
    """The ways to compute attention; one where there is none, so that both are the same."""
    flash, eager = (
        [phases.operators(arch, step) for step in workload(arch, attention=way)[0].steps()]
        for way in ("flash", "eager")
    )
    return ("flash",) if flash == eager else ("flash", "eager")


def _told(arch: Architecture, variant: Variant, book: Book, tell: Callable[[Situation], Told]) -> Cases[Told]:
    asked, _ = workload(arch, phase=variant.phase, attention=variant.attention)
    device, widths = any_device(book), any_widths(book, variant.phase)
    given: dict[str, Any] = {
        name: book.input(name, 0 if name == "context" else 1) for name in lengths(arch, variant.phase)
    }
    step = replace(asked, batch=book.input("batch", 1), **given).step(variant.phase)
    step = step._replace(widths=widths, parallel=any_gpus(arch, book))

    def estimated() -> Told:
        eager = phase_estimate(arch, device, step, "eager")
        need = phases.peak(arch, step, phases.weight_bytes(arch, step))
        runtimes = {"eager": eager, "graph": timed(eager, device, "graph")}
        return tell(Situation(runtimes, need, need.total <= device.capacity))

    try:
        return book.cases(estimated)
    except Undecided:
        raise WorkloadError(f"{arch.name} cannot be explored: its {variant.phase} falls into too many cases") from None


def lengths(arch: Architecture, phase: Phase) -> tuple[Length, ...]:
    """The lengths that decide over a phase, in tokens; none where a model reads images of one size."""
    if arch.image:
        return ()
    source: tuple[Length, ...] = ("seq",) if arch.encoder else ()
    prompt: Length = "decoder_seq" if arch.encoder else "seq"
    if phase == "decode":
        return *source, "context"
    return (*source, prompt, "context") if phase == "prefill" else (*source, prompt)


# --- What stands for any GPUs, any device and any format --------------------------------------------


def any_gpus(arch: Architecture, book: Book) -> Parallel:
    """Numbers of GPUs that are not known yet; 1 in ways that the model cannot be shared."""
    ways = dealt(arch)
    ep = book.input("ep", 1) if len(ways) > 1 else 1
    tp = book.input("tp", 1) if any(tp > 1 for tps in ways.values() for tp in tps) else 1
    return Parallel(tp, book.input("dp", 1), ep=ep, across=tp < ep)


class _Role(Format):
    """Whatever format a role has."""

    __slots__ = ()

    def bytes(self, elements: Any) -> Any:
        return self.bits.book.step("bytes", self.name, elements)  # type: ignore[attr-defined]


def any_widths(book: Book, phase: Phase) -> Widths:
    """Formats that are not known yet."""
    least = least_bits(phase)
    return Widths(*(_Role(name, book.input(f"bits|{name}", least)) for name in ("dtype", "weights", "kv")))  # type: ignore[arg-type]


def least_bits(phase: Phase) -> int:
    """Of the formats that a phase computes with, and that its weights may have."""
    return TRAINED_BITS if phase == "train" else min(one.bits for one in FORMATS.values())


class _AnyLink(Link):
    """A link that has parameters of its own."""

    __slots__ = ()

    @property
    def parameters(self) -> str:
        return self.name


class _AnyDevice(Device):
    """A device that has one pipe to multiply matrices and one for vector work, whatever the format, and every link."""

    def matmul_pipe(self, dtype: str) -> Pipe:
        return self.pipes["matmul"]

    def vector_pipe(self, dtype: str) -> Pipe:
        return self.pipes["vector"]

    @property
    def inside(self) -> Link:
        return self.links["inside"]

    @property
    def bridge(self) -> Link:
        return self.links["bridge"]

    @property
    def network(self) -> Link:
        return self.links["network"]


def any_device(book: Book) -> Device:
    """A device whose figures are not known yet."""

    def figure(name: str, least: float = 0) -> Any:
        return book.input(f"device|{name}", least)

    return _AnyDevice(
        "any", "any",
        pipes={name: Pipe(name, figure(name)) for name in ("matmul", "vector")},
        levels={
            "dram": Level("dram", figure("bandwidth"), figure("capacity")),
            "l2": Level("l2", capacity=figure("l2")),
        },
        multiprocessors=figure("multiprocessors"),
        clocks={"boost": figure("clock")},
        links={
            "inside": _AnyLink("inside", figure("inside|bandwidth", 1)),
            "bridge": _AnyLink("bridge", figure("bridge|bandwidth"), joins=figure("bridge|joins")),
            "network": _AnyLink("network", figure("network|bandwidth", 1), beyond=figure("network|beyond", 1)),
        },
        calibration=Calibration("any", **{kind: _AnySets(book, kind) for kind in TIMINGS}),
    )  # fmt: skip


class _AnySets(Mapping[str, Any]):
    """Sets of parameters of any implementation and formats, of which none is another's default."""

    def __init__(self, book: Book, *keys: str) -> None:
        self.book, self.keys_so_far = book, keys

    def __getitem__(self, key: str) -> Any:
        if len(self.keys_so_far) == 1:
            return _AnySets(self.book, *self.keys_so_far, key)
        kind, implementation = self.keys_so_far
        role = key.partition("/")[2] or key

        def parameter(name: str) -> Any:
            return self.book.input(f"set|{kind}|{implementation}|{role}|{name}")

        timing = TIMINGS[kind]
        fit = Fit(0, 0, 0.0, parameter("low"), parameter("high"), "", "")
        return Fitted(timing(*map(parameter, timing._fields)), fit)

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0
