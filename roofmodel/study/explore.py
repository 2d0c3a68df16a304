"""A model under every situation that sliders can reach: its estimate, written down once as formulas of the sliders.

`estimate.py` runs as ever, on a workload whose batch and lengths, a device whose ceilings and parameters, and formats
whose widths are recorded numbers (`recorded.py`). What comes of it is a PhaseEstimate in which every figure is a
formula of the inputs below, of `bytes`, for which the format that a role has at the time stands in, and of those
functions of `prediction` that are marked as formulas. Nothing is counted or timed in a second way.

What is no number is told apart instead: phase, attention and the like (`Variant`), and the runtime.

    seq, context, decoder_seq, image          the workload, as `roof estimate` has it
    batch                                     of one of the replicas
    optimizer                                 by its name
    positions                                 of a sequence, whose logits are computed
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
from itertools import count, product
from typing import Any, Literal, NamedTuple, TypeVar, get_args

from roofmodel.counting import phases, training
from roofmodel.counting.memory import Memory
from roofmodel.counting.number_formats import FORMATS, Format, Widths
from roofmodel.counting.operator import Cost, Operator
from roofmodel.counting.workload import Host, Optimizer, Parallel, Phase
from roofmodel.devices.calibration import Calibration, Fit, Fitted
from roofmodel.devices.calibration_reader import TIMINGS
from roofmodel.devices.device import Device, Level, Link, Pipe
from roofmodel.errors import WorkloadError
from roofmodel.models.architecture import Architecture
from roofmodel.prediction.roofline import place
from roofmodel.study.estimate.options import CHOICES, LEAST, TRAINED_BITS, phases_of, tokens_of, workload
from roofmodel.study.estimate.parallelism import dealt
from roofmodel.study.estimate.phase import PhaseEstimate, Placed, phase_estimate, placed, sum_of, timed
from roofmodel.tracing.trace import Cases, Trace, Undecided, results

Length = Literal["seq", "decoder_seq", "context", "image"]

LEFT_OUT = ("generate",)
"""Phases that no slider reaches: a run of decodes takes means that are fractions."""


class Variant(NamedTuple):
    """What no slider moves: options of the workload by name."""

    phase: Phase
    attention: str
    mla: str = "absorbed"
    recompute: str = "none"


class Situation(NamedTuple):
    """What `roof estimate` says of a variant, every figure a formula.

    Which optimizer a training step ends with decides over its last operator alone: `updates` says what that is.
    """

    estimates: Mapping[str, PhaseEstimate]  # by runtime
    memory: Memory
    fits: Any
    updates: Mapping[str, Cases[Placed]]  # by runtime; none where nothing is trained


Told = TypeVar("Told")


def explore(arch: Architecture, trace: Trace, tell: Callable[[Situation], Told]) -> dict[Variant, Cases[Told]]:
    """Write a model down in the trace, in every variant: what `tell` makes of the situation.

    Raises WorkloadError where a variant falls into too many cases.
    """
    gpus = any_gpus(arch, trace)
    return {variant: _told(arch, variant, gpus, trace, tell) for variant in variants(arch)}


def variants(arch: Architecture) -> Iterator[Variant]:
    """The variants of a model; of those that count the same, the first."""
    for phase in (phase for phase in phases_of(arch) if phase not in LEFT_OUT):
        seen = list[Any]()
        for ways in product(*(CHOICES[option] for option in Variant._fields[1:])):
            variant = Variant(phase, *ways)
            (step,) = workload(arch, **variant._asdict())[0].steps()
            if (operators := phases.operators(arch, step)) not in seen:
                seen.append(operators)
                yield variant


def _told(
    arch: Architecture, variant: Variant, gpus: Parallel, trace: Trace, tell: Callable[[Situation], Told]
) -> Cases[Told]:
    asked, _ = workload(arch, **variant._asdict())
    device, widths = any_device(trace), any_widths(trace, variant.phase)
    known = lengths(arch, variant.phase)
    given: dict[str, Any] = {name: trace.input(name, least(arch, name)) for name in known}
    if "image" in known:
        pixels = given["image"], given["image"]
        given |= {"image": pixels, "seq": tokens_of(arch, pixels)}
    step = replace(asked, batch=trace.input("batch", 1), **given).step(variant.phase)
    optimizer = trace.input("optimizer")
    step = step._replace(widths=widths, parallel=gpus, optimizer=None)
    if chooses_logits(arch, variant.phase):
        step = step._replace(logit_positions=trace.input("positions", 1))

    def estimated() -> Told:
        eager = phase_estimate(arch, device, step, Host("eager"))
        need = phases.phase_memory(arch, step, phases.weight_bytes(arch, step), eager.operators)
        estimates, updates = {"eager": eager, "graph": timed(eager, device, Host("graph"))}, dict[str, Cases[Placed]]()
        if variant.phase == "train":
            parameters = phases.training_step(arch, step).parameters
            kept = trace.trace_branches(lambda: training.optimizer_state_bytes(parameters, widths, chosen(optimizer)))
            need = need._replace(optimizer=kept)
            for runtime, phase in estimates.items():
                estimates[runtime], updates[runtime] = _updated(
                    phase,
                    lambda: training.optimizer_step(parameters, widths, chosen(optimizer)),
                    device,
                    runtime,
                    trace,
                )
        return tell(Situation(estimates, need, need.total <= device.capacity, updates))

    try:
        return trace.cases(estimated)
    except Undecided:
        raise WorkloadError(f"{arch.name} cannot be explored: its {variant.phase} falls into too many cases") from None


def _updated(
    phase: PhaseEstimate, update: Callable[[], Operator], device: Device, runtime: str, trace: Trace
) -> tuple[PhaseEstimate, Cases[Placed]]:
    """A training step and the update behind its gradients, of which there are cases: in sums they are one."""
    dtype = phase.step.widths.compute

    def last() -> Placed:
        alone = PhaseEstimate(phase.step, placed([update()], device, dtype), 0, 0)
        return timed(alone, device, Host(runtime)).placed[0]

    cases = trace.cases(last)
    cost = Cost(*trace.trace_branches(lambda: tuple(vars(update().cost).values())))
    some = results(cases)[0].operator
    whole = (*phase.placed, Placed(some, place(cost, device, dtype), trace.trace_branches(lambda: last().expected)))
    return phase._replace(placed=whole, kernel_seconds=sum_of(whole)), cases


def chosen(optimizer: Any) -> Optimizer:
    """The optimizer that a recorded name turns out to be."""
    *others, last = get_args(Optimizer)
    return next((name for name in others if optimizer == name), last)


def lengths(arch: Architecture, phase: Phase) -> tuple[Length, ...]:
    """The lengths that decide over a phase, in tokens; of a model that reads square images, pixels a side."""
    if arch.image:
        return ("image",) if arch.image[0] == arch.image[1] else ()
    source: tuple[Length, ...] = ("seq",) if arch.encoder else ()
    prompt: Length = "decoder_seq" if arch.encoder else "seq"
    if phase == "decode":
        return *source, "context"
    return (*source, prompt, "context") if phase == "prefill" else (*source, prompt)


def least(arch: Architecture, length: Length) -> int:
    """The smallest that a length may be."""
    if length != "image":
        return LEAST[length]
    return next(size for size in count(1) if _fits(arch, size))


def _fits(arch: Architecture, size: int) -> bool:
    """Whether what slides over an image of that size has room."""
    try:
        phases.operators(arch, workload(arch, image=size)[0].steps()[0])
    except WorkloadError:
        return False
    return True


def chooses_logits(arch: Architecture, phase: Phase) -> bool:
    """Whether it is a matter of choice whose logits are computed; a decode has one position."""
    return phase != "decode" and any(stage.rows == "logits" for stage in arch.head.stages)


# --- What stands for any GPUs, any device and any format --------------------------------------------


def any_gpus(arch: Architecture, trace: Trace) -> Parallel:
    """Numbers of GPUs that are not known yet; 1 in ways that the model cannot be shared."""
    ways = dealt(arch)
    ep = trace.input("ep", 1) if len(ways) > 1 else 1
    tp = trace.input("tp", 1) if any(tp > 1 for tps in ways.values() for tp in tps) else 1
    return Parallel(tp, trace.input("dp", 1), ep=ep, across=tp < ep)


class _Role(Format):
    """Whatever format a role has."""

    __slots__ = ()

    def bytes(self, elements: Any) -> Any:
        return self.bits.trace.step("bytes", self.name, elements)  # type: ignore[attr-defined]


def any_widths(trace: Trace, phase: Phase) -> Widths:
    """Formats that are not known yet."""
    least = least_bits(phase)
    return Widths(*(_Role(name, trace.input(f"bits|{name}", least)) for name in ("dtype", "weights", "kv")))  # type: ignore[arg-type]


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


def any_device(trace: Trace) -> Device:
    """A device whose figures are not known yet."""

    def figure(name: str, least: float = 0) -> Any:
        return trace.input(f"device|{name}", least)

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
        calibration=Calibration("any", **{kind: _AnySets(trace, kind) for kind in TIMINGS}),
    )  # fmt: skip


class _AnySets(Mapping[str, Any]):
    """Sets of parameters of any implementation and formats, of which none is another's default."""

    def __init__(self, trace: Trace, *keys: str) -> None:
        self.trace, self.keys_so_far = trace, keys

    def __getitem__(self, key: str) -> Any:
        if len(self.keys_so_far) == 1:
            return _AnySets(self.trace, *self.keys_so_far, key)
        kind, implementation = self.keys_so_far
        role = key.partition("/")[2] or key

        def parameter(name: str) -> Any:
            return self.trace.input(f"set|{kind}|{implementation}|{role}|{name}")

        timing = TIMINGS[kind]
        fit = Fit(0, 0, 0.0, parameter("low"), parameter("high"), "", "")
        return Fitted(timing(*map(parameter, timing._fields)), fit)

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0
