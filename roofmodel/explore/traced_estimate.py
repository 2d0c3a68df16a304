"""The estimate of a model as formulas of sliders: workload sizes, device figures and format widths are traced numbers.

The functions of an ordinary estimate run on traced numbers (numbers/traced.py). The result is a PhaseEstimate in which
every figure is a formula of the inputs below, of `bytes` (the bytes of elements in the format of a role), and of the
functions of `timing` that are marked as formulas. There is no second implementation.

Each combination of options that are not numbers (`Variant`, and the engine) has its own estimate. Inputs:

    seq, context, decoder_seq, image          the options of `roof estimate`
    batch                                     of one replica
    optimizer                                 its name
    positions                                 number of positions of a sequence whose logits are computed
    tp, dp, ep                                numbers of GPUs, if the model can be sharded this way (`traced_gpus`)
    bits|ROLE                                 width of the format of a role: `weights`, `kv`, `gemm` (in which
                                              GEMMs compute), or `dtype` (activations: `gemm`, or 16 bits where
                                              that is narrower); `others` is `weights`, or `dtype` where that has
                                              fewer than 16 bits; `attention` is `dtype`, or `gemm` where `kv` has
                                              fewer than 16 bits; `index` is fp8 where `gemm` is fp8 or fp4,
                                              else `attention`
    device|FIELD                              a figure of the device; for `pairs_over_pcie` 1 or 0;
                                              `rows_of_4_bytes` and `rows_of_2_bytes` as in `Unaligned`
    device|PIPE|ROLE                          the peak of the `matmul` or `vector` pipe for the format of a role
    device|LINK|FIELD                         a figure of a link: `inside` a node, `bridge` or `network`
    set|KIND|IMPLEMENTATION|KEY|FIELD         a fitted parameter (`parameter_sets.choose_set`) for the roles KEY, such
                                              as `gemm/weights`, or for a LINK. An IMPLEMENTATION that is an engine
                                              stands for its kernels on the device
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import count, product
from typing import Any, Literal, NamedTuple, TypeVar, get_args

from roofmodel.counting import phases
from roofmodel.counting.operator import Cost, Operator
from roofmodel.counting.passes import Memory
from roofmodel.counting.tensors import FORMATS, Format, Widths
from roofmodel.counting.training.step import optimizer_state_bytes, optimizer_step
from roofmodel.counting.workload import Parallel, Step, Workload
from roofmodel.devices.calibration import TIMINGS, Calibration, Fit, Fitted
from roofmodel.devices.device import Device
from roofmodel.devices.parts import Level, Link, Pipe, Unaligned
from roofmodel.engines.engine import Engine, default_for
from roofmodel.engines.engine_file import ANY, KINDS
from roofmodel.errors import WorkloadError
from roofmodel.models.architecture import Architecture
from roofmodel.numbers.algebra import Number
from roofmodel.numbers.traced import Cases, Trace, Undecided, results
from roofmodel.options.values import RECOMPUTATIONS, Optimizer, Phase
from roofmodel.options.workload import DECLARED, Options
from roofmodel.steps.capacity import usable_memory
from roofmodel.steps.options import (
    default_engine,
    phases_of,
    tokens_of,
    workload,
)
from roofmodel.steps.parallelism import tp_by_ep
from roofmodel.steps.phase import PhaseEstimate, phase_estimate, timed
from roofmodel.steps.placed import Placed, placed, sum_of
from roofmodel.steps.training_options import MIN_TRAINING_BITS
from roofmodel.timing.engine import Timing
from roofmodel.timing.roofline import place

Length = Literal["seq", "decoder_seq", "context", "image"]

UNTRACED_PHASES = ("generate",)
"""Generation is not traced: its means over decodes are fractions."""


class Variant(NamedTuple):
    """Options of the workload that are not numbers."""

    phase: Phase
    attention: str
    mla: str = "absorbed"
    recompute: str = "none"


class TracedEstimate(NamedTuple):
    """The estimate of a variant, whose figures are formulas.

    All are by engine. The optimizer of a training step changes its last operator only: `updates` has its cases.
    """

    estimates: Mapping[str, PhaseEstimate]
    memory: Mapping[str, Memory]
    fits: Mapping[str, Any]
    updates: Mapping[str, Cases[Placed]]  # empty except in training


Document = TypeVar("Document")


def explore(
    arch: Architecture,
    trace: Trace,
    document_of: Callable[[TracedEstimate], Document],
    progress: Callable[[str, int, int], None] = lambda model, done, total: None,
) -> dict[Variant, Cases[Document]]:
    """Trace the estimates of all variants of a model; `document_of` converts an estimate to a document.

    `progress` is called with the model's name, the number of traced variants, and the number of all variants.
    Raises WorkloadError if a variant has too many cases.
    """
    gpus, every = traced_gpus(arch, trace), list(variants(arch))
    estimates = {}
    for done, variant in enumerate(every):
        progress(arch.name, done, len(every))
        estimates[variant] = _traced(arch, variant, gpus, trace, document_of)
    progress(arch.name, len(every), len(every))
    return estimates


def variants(arch: Architecture) -> Iterator[Variant]:
    """The variants of a model; only the first of several with the same operators."""
    for phase in (phase for phase in phases_of(arch) if phase not in UNTRACED_PHASES):
        operator_lists = list[Any]()
        for ways in product(DECLARED["attention"].choices, DECLARED["mla"].choices, RECOMPUTATIONS):
            variant = Variant(phase, *ways)
            (step,) = workload(arch, **variant._asdict())[0].steps()
            if (operators := phases.operators(arch, step)) not in operator_lists:
                operator_lists.append(operators)
                yield variant


def _traced(
    arch: Architecture,
    variant: Variant,
    gpus: Parallel,
    trace: Trace,
    document_of: Callable[[TracedEstimate], Document],
) -> Cases[Document]:
    work, _ = workload(arch, **variant._asdict())
    device, widths = traced_device(trace), traced_widths(trace, work)
    inputs = lengths(arch, variant.phase)
    traced: dict[str, Any] = {name: trace.input(name, smallest_length(arch, name)) for name in inputs}
    if "image" in inputs:
        pixels = traced["image"], traced["image"]
        traced |= {"image": pixels, "seq": tokens_of(arch, pixels)}
    step = work._replace(batch=trace.input("batch", 1), **traced).step(variant.phase)
    optimizer = trace.input("optimizer")
    step = step._replace(widths=widths, parallel=gpus, optimizer=None)
    if chooses_logits(arch, variant.phase):
        step = step._replace(logit_positions=trace.input("positions", 1))

    def traced_estimate() -> Document:
        every = [traced_engine(name) for name in engines(arch, variant.phase)]
        first, *others = every
        estimate = phase_estimate(arch, device, step, first)
        weights = phases.weight_bytes(arch, step)
        memory = {
            engine.id: Memory(*trace.trace_branches(partial(_memory, arch, work, step, engine, weights, estimate)))
            for engine in every
        }
        estimates = {first.id: estimate, **{engine.id: timed(estimate, Timing(device, engine)) for engine in others}}
        updates = dict[str, Cases[Placed]]()
        if variant.phase == "train":
            parameters = phases.training_step(arch, step).parameters
            state_bytes = trace.trace_branches(
                lambda: optimizer_state_bytes(parameters, widths, optimizer_named(optimizer))
            )
            memory = {name: needed._replace(optimizer=state_bytes) for name, needed in memory.items()}
            for name, phase in estimates.items():
                estimates[name], updates[name] = _with_optimizer_step(
                    phase,
                    lambda: optimizer_step(parameters, widths, optimizer_named(optimizer)),
                    Timing(device, traced_engine(name)),
                    trace,
                )
        usable = usable_memory(device, work)
        fits = {name: needed.total <= usable for name, needed in memory.items()}
        return document_of(TracedEstimate(estimates, memory, fits, updates))

    try:
        return trace.cases(traced_estimate)
    except Undecided:
        raise WorkloadError(
            f"{arch.name} cannot be explored: its {variant.phase} has too many different cases"
        ) from None


def _memory(
    arch: Architecture, work: Workload, step: Step, engine: Engine, weights: Number, estimate: PhaseEstimate
) -> Memory:
    """The memory of a step with gradients and logits in the formats in which this engine keeps them."""
    own = work._replace(engine=engine).step(step.phase)
    kept = step._replace(gradients=own.gradients, logits=own.logits)
    return phases.phase_memory(arch, kept, weights, [estimate.operators])


def _with_optimizer_step(
    phase: PhaseEstimate, update: Callable[[], Operator], timing: Timing, trace: Trace
) -> tuple[PhaseEstimate, Cases[Placed]]:
    """A training step with its optimizer step, and the cases of the optimizer step; the totals merge them."""
    dtype, device = phase.step.widths.compute, timing.device

    def optimizer_operator() -> Placed:
        only_optimizer = PhaseEstimate(phase.step, placed([update()], device, dtype))
        return timed(only_optimizer, timing).placed[0]

    cases = trace.cases(optimizer_operator)
    cost = Cost(*trace.trace_branches(lambda: tuple(vars(update().cost).values())))
    any_case = results(cases)[0].operator
    expected = trace.trace_branches(lambda: optimizer_operator().expected)
    operators = (*phase.placed, Placed(any_case, place(cost, device, dtype), expected))
    return phase._replace(placed=operators, kernel_seconds=sum_of(operators)), cases


def engines(arch: Architecture, phase: Phase) -> tuple[str, ...]:
    """The engines of a phase, the default one on one GPU first."""
    first = default_engine(arch, (phase,), Options())
    case = "multi_gpu_training" if phase == "train" else "decoder_inference"
    return tuple(dict.fromkeys((first, default_for("other"), default_for(case))))


def traced_engine(name: str) -> Engine:
    """An engine whose own kernels have its name, for which `devices.py` looks up the kernel of each device."""
    return Engine.load(name)._replace(kernels={(kind, ANY, ANY): (name,) for kind in KINDS})


def optimizer_named(optimizer: Any) -> Optimizer:
    """The optimizer with a traced name."""
    *others, last = get_args(Optimizer)
    return next((name for name in others if optimizer == name), last)


def lengths(arch: Architecture, phase: Phase) -> tuple[Length, ...]:
    """The lengths of a phase in tokens; for a model of square images, pixels per side."""
    if arch.image:
        return ("image",) if arch.image[0] == arch.image[1] else ()
    source: tuple[Length, ...] = ("seq",) if arch.encoder else ()
    prompt: Length = "decoder_seq" if arch.encoder else "seq"
    if phase == "decode":
        return *source, "context"
    return (*source, prompt, "context") if phase == "prefill" else (*source, prompt)


def smallest_length(arch: Architecture, length: Length) -> int:
    """The smallest value of a length."""
    if length != "image":
        return DECLARED[length].minimum
    return next(size for size in count(1) if _filters_fit(arch, size))


def _filters_fit(arch: Architecture, size: int) -> bool:
    """Whether all filters fit into an image of this size."""
    try:
        phases.operators(arch, workload(arch, image=size)[0].steps()[0])
    except WorkloadError:
        return False
    return True


def chooses_logits(arch: Architecture, phase: Phase) -> bool:
    """Whether the positions of the logits are an option; a decode has one position."""
    return phase != "decode" and any(stage.rows == "logits" for stage in arch.head.stages)


# --- Traced GPU counts, device and formats -----------------------------------------------------------


def traced_gpus(arch: Architecture, trace: Trace) -> Parallel:
    """Traced numbers of GPUs; 1 for kinds of parallelism that the model does not support."""
    ways = tp_by_ep(arch)
    ep = trace.input("ep", 1) if len(ways) > 1 else 1
    tp = trace.input("tp", 1) if any(tp > 1 for tps in ways.values() for tp in tps) else 1
    return Parallel(tp, trace.input("dp", 1), ep=ep, experts_span_replicas=tp < ep)


class _TracedFormat(Format):
    """The format of a role, with a traced width."""

    __slots__ = ()

    def bytes(self, elements: Any) -> Any:
        return self.bits.trace.step("bytes", self.name, elements)  # type: ignore[attr-defined]


class _TracedWidths(Widths):
    """Traced formats of roles; parameters other than the matrices of linear layers have the role `others`.

    `dtype` and `gemm` are one format unless `gemm` is narrower than 16 bits.
    """

    __slots__ = ()

    @property
    def gemm_input(self) -> Format:
        assert self.gemm is not None
        return self.gemm

    def unconverted_compute(self, gemm: str) -> str:
        return "dtype"

    def attention_compute(self, gemm: str) -> str:
        return "attention"

    def index_compute(self, gemm: str) -> str:
        return "index"

    def compute_format(self, name: str) -> Format:
        bits: Any = self.dtype.bits
        return _TracedFormat(name, bits.trace.input(f"bits|{name}", bits.least))

    @property
    def others(self) -> Format:
        return _TracedFormat("others", super().others.bits)


def traced_widths(trace: Trace, work: Workload) -> Widths:
    """Traced formats; the matrices that a quantized checkpoint does not convert are those of the workload.

    All other weight matrices have one format, also in a checkpoint with several.
    """
    low = min_bits(work.phases[0])
    dtype, weights, kv, gemm = (
        _TracedFormat(name, trace.input(f"bits|{name}", low))  # type: ignore[arg-type]
        for name in ("dtype", "weights", "kv", "gemm")
    )
    return _TracedWidths(dtype, weights, kv, gemm, unconverted=work.unconverted)


def min_bits(phase: Phase) -> int:
    """The smallest width of the formats of a phase."""
    return MIN_TRAINING_BITS if phase == "train" else min(form.bits for form in FORMATS.values())


class _TracedLink(Link):
    """A link with its own parameter set."""

    __slots__ = ()

    @property
    def parameters(self) -> str:
        return self.name


class _TracedDevice(Device):
    """A device with a matmul pipe and a vector pipe for each role of a format, and with every link."""

    def matmul_pipe(self, dtype: str) -> Pipe:
        return self._pipe("matmul", dtype)

    def vector_pipe(self, dtype: str) -> Pipe:
        return self._pipe("vector", dtype)

    def _pipe(self, name: str, role: str) -> Pipe:
        bandwidth: Any = self.bandwidth
        return Pipe(name, bandwidth.trace.input(f"device|{name}|{role}", 0))

    @property
    def inside(self) -> Link:
        return self.links["inside"]

    @property
    def bridge(self) -> Link:
        return self.links["bridge"]

    @property
    def half(self) -> Link:
        return self.links["half"]

    @property
    def network(self) -> Link:
        return self.links["network"]

    @property
    def pairs_over_pcie(self) -> Any:
        bandwidth: Any = self.inside.bandwidth
        return bandwidth.trace.input("device|pairs_over_pcie", 0)


def traced_device(trace: Trace) -> Device:
    """A device whose figures are traced."""

    def figure(name: str, low: float = 0) -> Any:
        return trace.input(f"device|{name}", low)

    return _TracedDevice(
        "any", "any", {},
        levels={
            "dram": Level("dram", figure("bandwidth"), figure("capacity")),
            "l2": Level("l2", capacity=figure("l2")),
        },
        multiprocessors=figure("multiprocessors"),
        clocks={"boost": figure("clock")},
        links={
            "inside": _TracedLink("inside", figure("inside|bandwidth", 1)),
            "bridge": _TracedLink("bridge", figure("bridge|bandwidth"), joins=figure("bridge|joins")),
            "half": _TracedLink("half", figure("half|bandwidth"), joins=figure("half|joins")),
            "network": _TracedLink("network", figure("network|bandwidth", 1), beyond=figure("network|beyond", 1)),
        },
        unaligned=Unaligned(figure("rows_of_4_bytes", 1e-6), figure("rows_of_2_bytes", 1e-6)),
        calibration=Calibration("any", **{kind: _TracedParameterSets(trace, kind) for kind in TIMINGS}),
    )  # fmt: skip


class _TracedParameterSets(Mapping[str, Any]):
    """Traced parameter sets for every implementation and format, without defaults."""

    def __init__(self, trace: Trace, *keys: str) -> None:
        self.trace, self.keys_so_far = trace, keys

    def __getitem__(self, key: str) -> Any:
        if len(self.keys_so_far) == 1:
            return _TracedParameterSets(self.trace, *self.keys_so_far, key)
        kind, implementation = self.keys_so_far

        def parameter(name: str) -> Any:
            return self.trace.input(f"set|{kind}|{implementation}|{key}|{name}")

        timing = TIMINGS[kind]
        fit = Fit(0, 0, 0.0, parameter("low"), parameter("high"), "", "")
        return Fitted(timing(*map(parameter, timing._fields)), fit)

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0

    def __bool__(self) -> bool:
        return True
