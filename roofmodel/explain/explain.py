"""Derivation of every count: each operator is counted twice, with numbers and with symbols."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from roofmodel.counting import passes, phases, stated_operator, textbook_kernels
from roofmodel.counting.operator import Operator
from roofmodel.counting.workload import ONE_GPU, Step, Workload
from roofmodel.devices.device import Device
from roofmodel.errors import Message, ModelError, Option, Text, WorkloadError, ignored, suggest
from roofmodel.models.architecture import Architecture
from roofmodel.models.symbols import SymbolicArchitecture, SymbolSource, resolve_min_max, symbol, symbolic
from roofmodel.numbers.algebra import Number
from roofmodel.options.workload import non_default_options
from roofmodel.steps.estimate import Estimate, estimate
from roofmodel.steps.options import workload
from roofmodel.steps.phase import PhaseEstimate
from roofmodel.steps.placed import Placed
from roofmodel.steps.textbook import check_kernel, default_dtype, load_model
from roofmodel.timing.engine import Run, Timing
from roofmodel.timing.roofline import place
from roofmodel.timing.timing import Expected, Formula, expect, formula

Sources = Mapping[Any, SymbolSource]


class Quantity(NamedTuple):
    """A count as an expression in symbols, and its value."""

    name: str
    symbolic: Any
    value: Number
    unit: str


class Axis(NamedTuple):
    """An axis of an operator: meaning and size."""

    letter: str
    meaning: str
    symbolic: Any
    value: Number


class SymbolicOperator(NamedTuple):
    """An operator with numbers and with symbols; `times` is its number of occurrences, as an expression."""

    operator: Operator
    symbolic: Operator
    times: Any
    placed: Placed | None = None  # None without a device
    formula: Formula | None = None  # of its expected time
    run: Run | None = None  # how the engine runs it
    meanings: Mapping[str, str] | None = None  # of the axes of a stated line; None: those of the notation
    kernels: tuple[Placed, ...] = ()  # its rows in a table of kernels (`PhaseEstimate.kernel_rows`)

    @property
    def fused_into(self) -> tuple[str, ...]:
        """The operators in whose kernels it runs; empty for one in its own kernel."""
        return self.kernels[0].fused_into if self.kernels else ()

    @property
    def expected(self) -> Expected | None:
        """The expected time of its kernel, of most occurrences if they differ; None for one in another's kernel."""
        if not self.kernels:
            return self.placed and self.placed.expected
        return max(self.kernels, key=lambda row: row.operator.count).expected

    @property
    def axes(self) -> tuple[Axis, ...]:
        """The axes of its lines, in their order."""
        tensors = [tensor for line in self.operator.lines for tensor in (*line.inputs, *line.outputs)]
        letters = dict.fromkeys(axis for tensor in tensors for axis in tensor.axes)
        return tuple(
            Axis(letter, self._meaning(letter), self.symbolic.sizes[letter], self.operator.sizes[letter])
            for letter in letters
        )

    def _meaning(self, letter: str) -> str:
        return self.operator.meaning(letter) if self.meanings is None else self.meanings[letter]

    def tensors(self, way: str) -> tuple[Quantity, ...]:
        """The bytes of each tensor that it `reads` or `writes`."""
        pairs = zip(getattr(self.operator, way), getattr(self.symbolic, way), strict=True)
        return tuple(
            Quantity(tensor.name, self.symbolic.bytes_of(symbolic_tensor), self.operator.bytes_of(tensor), "B")
            for tensor, symbolic_tensor in pairs
        )


class ExplainedPhase(NamedTuple):
    """A phase or a kernel: its operators and their totals."""

    name: str
    operators: tuple[SymbolicOperator, ...]
    totals: tuple[Quantity, ...]
    phase: PhaseEstimate | None = None  # None without a device, and for a kernel


class Explanation(NamedTuple):
    """The derivation of the counts of a model or a kernel."""

    name: str
    description: str
    dtype: str
    device: Device | None
    sources: Sources
    sections: tuple[ExplainedPhase, ...]
    model: tuple[Quantity, ...] = ()  # parameters
    memory: tuple[Quantity, ...] = ()
    peak: tuple[str, tuple[Quantity, ...]] | None = None  # operator with the most live activations, and these
    estimate: Estimate | None = None
    notes: tuple[Text, ...] = ()

    @property
    def values(self) -> dict[Any, Number]:
        """The value of each symbol."""
        return {symbol: source.value for symbol, source in self.sources.items()}


def explain_named(
    model: str | os.PathLike[str] | None, device: Device | None = None, *, family: str | None = None,
    op: str | None = None, n: int | None = None, line: str | None = None,
    size: Mapping[str, object] | Sequence[str] | None = None, **options: Any,
) -> Explanation:  # fmt: skip
    """Derive a model or a textbook kernel of size `n` by name, or the kernel that `line` and `size` state.

    Raises RoofError.
    """
    dtype = options.get("dtype", "fp16")
    model_options = [
        *non_default_options(options, used=("dtype",)),
        *(["op"] if op else []),
        *(["family"] if family else []),
    ]
    if line is not None:
        if model is not None:
            raise WorkloadError(f"{model} and ", Option("line"), " are two subjects; give one of them")
        unused = [*model_options, *(["n"] if n is not None else [])]
        explanation = explain_line(line, size or (), device, dtype)
        why = Message(Option("line"), " states a kernel")
        return explanation._replace(notes=tuple(ignored(name, why) for name in unused))
    if model is None:
        raise ModelError("no model; give one such as gpt2-xl, a kernel such as matmul, or ", Option("line"))
    notes = [ignored("size", Message("it is the size of an axis of ", Option("line")))] if size else []
    if isinstance(model, str) and model in textbook_kernels.KERNELS:
        explanation = explain_kernel(model, device, n, options.get("dtype"))
        notes += [ignored(name, f"{model} is a kernel") for name in model_options]
    else:
        explanation = explain(load_model(model, family), device, op, **options)
        notes += [] if n is None else [ignored("n", f"{explanation.name} is a model, not a kernel")]
    return explanation._replace(notes=(*explanation.notes, *notes))


def explain(arch: Architecture, device: Device | None = None, op: str | None = None, **options: Any) -> Explanation:
    """Derive the counts of `estimate` for a workload; only the operators that `op` names, if given.

    Raises WorkloadError for invalid options or an unknown operator.
    """
    work, notes = workload(arch, device, **options)
    if work.routing.shares:
        raise WorkloadError(
            Option("routing", work.routing.given),
            ": a derivation has no symbols for the probabilities of a file; use ",
            Option("routing", "uniform"),
            " or ",
            Option("routing", "same"),
        )
    estimated = estimate(arch, device, **options) if device else None
    device = estimated and estimated.device
    shape = symbolic(arch)
    symbolic_work, sources = symbolic_workload(arch, work)
    given_options = {Option(option) for option in non_default_options(options, used=("dtype",))}
    sources = {name: source._replace(assumed=source.origin not in given_options) for name, source in sources.items()}
    sections = [
        _section(arch, shape, step, symbolic_step, device, work, estimated and estimated.phases[i])
        for i, (step, symbolic_step) in enumerate(zip(work.steps(), symbolic_work.steps(), strict=True))
    ]
    if op is not None:
        sections = select_operators(op, sections)
    counted = {**sources, **(shape.sources or {})}
    values = {name: source.value for name, source in counted.items()}
    needs = ((), None) if op else _memory(arch, shape, work, symbolic_work, values)
    return Explanation(
        name=arch.name,
        description=arch.head.name,
        dtype=work.dtype,
        device=device,
        sources=counted,
        sections=tuple(sections),
        model=() if op else _parameters(arch, shape, work, symbolic_work),
        memory=needs[0],
        peak=needs[1],
        estimate=estimated,
        notes=estimated.notes if estimated else (*arch.notes, *notes),
    )


def explain_kernel(
    name: str, device: Device | None = None, n: int | None = None, dtype: str | None = None
) -> Explanation:
    """Derive a textbook kernel of size `n` (default 1024)."""
    size, dtype = 1024 if n is None else n, dtype or default_dtype(name, device)
    check_kernel(size, dtype)
    widths = Workload((), dtype=dtype).widths
    numbers, symbols = (textbook_kernels.operator(name, n, widths) for n in (size, symbol("n")))
    counted = _kernel(numbers, symbols, device, dtype)
    sources = {symbol("n"): SymbolSource("size", size, Option("n"), n is None)}
    return Explanation(
        name, textbook_kernels.KERNELS[name].about, dtype, device, sources, (ExplainedPhase(name, (counted,), ()),)
    )


def explain_line(
    line: str, size: Mapping[str, object] | Sequence[str], device: Device | None = None, dtype: str = "fp16"
) -> Explanation:
    """Derive a kernel that the user states as a line such as `A[i k] B[k j] -> C[i j]`, with a size for each axis.

    The sizes are a mapping, or texts such as `i=4096`.

    Raises WorkloadError for a line that cannot be parsed, and for missing, unknown and invalid sizes.
    """
    check_kernel(1, dtype)
    parsed = stated_operator.stated_line(line)
    given_sizes = size if isinstance(size, Mapping) else stated_operator.parsed_sizes(size)
    values = stated_operator.stated_sizes(parsed, given_sizes)
    widths = Workload((), dtype=dtype).widths
    numbers = stated_operator.operator(parsed, values, widths)
    symbols = stated_operator.operator(parsed, {axis: symbol(axis) for axis in values}, widths)
    meanings = {axis: stated_operator.meaning(parsed, axis) for axis in numbers.sizes}
    counted = _kernel(numbers, symbols, device, dtype)._replace(meanings=meanings)
    sources = {symbol(axis): SymbolSource(meanings[axis], value, Option("size")) for axis, value in values.items()}
    name = stated_operator.NAME
    return Explanation(name, parsed.text, dtype, device, sources, (ExplainedPhase(name, (counted,), ()),))


def _kernel(numbers: Operator, symbols: Operator, device: Device | None, dtype: str) -> SymbolicOperator:
    """A kernel with its bound and its expected time on the device, if there is one."""
    if device is None:
        return SymbolicOperator(numbers, symbols, 1)
    placed = Placed(numbers, place(numbers.cost, device, dtype), expect(numbers, device, dtype))
    return SymbolicOperator(numbers, symbols, 1, placed, formula(numbers, placed.placement, device, dtype))


def symbolic_workload(arch: Architecture, work: Workload) -> tuple[Workload, dict[Any, SymbolSource]]:
    """The workload with symbols for batch and lengths.

    A length of 1 stays a number, since a pass over one token has other operators. So do the length of a generation and
    the number of stages.
    """
    sources: dict[Any, SymbolSource] = {}

    def symbol_for(name: str, meaning: str, value: Any, option: Option) -> Any:
        if value is None or (option.name != "batch" and value <= 1):
            return value
        sources[symbol(name)] = SymbolSource(meaning, value, option)
        return symbol(name)

    prompt = (
        "tokens of the encoder" if arch.encoder else "patches and learned tokens" if arch.image else "prompt tokens"
    )
    ways = {
        "tp": "tensor-parallel GPUs", "cp": "GPUs that share a sequence", "dp": "replicas",
        "ep": "expert-parallel GPUs",
    }  # fmt: skip
    gpus = {
        name: symbol_for(f"N_{name}", which, work.parallel.ways[name], Option(name)) for name, which in ways.items()
    }
    if work.parallel.experts_span_replicas and work.parallel.ep == work.parallel.tp * work.parallel.dp:
        sources.pop(gpus["dp"], None)
        gpus["dp"] = gpus["ep"] / gpus["tp"]  # each expert is stored once
    symbolic_work = work._replace(
        parallel=work.parallel._replace(**gpus),
        batch=symbol_for("B", "sequences computed together", work.batch, Option("batch")),
        seq=symbol_for("S", prompt, work.seq, Option("image") if arch.image else Option("seq")),
        context=symbol_for("C", "tokens in the KV cache", work.context, Option("context")),
        micro_batch=symbol_for("B_m", "sequences per microbatch of a replica", work.micro_batch, Option("micro_batch")),
        decoder_seq=symbol_for("T", "prompt tokens of the decoder", work.decoder_seq, Option("decoder_seq")),
    )
    return symbolic_work, sources


def _section(
    arch: Architecture, shape: SymbolicArchitecture, step: Step, symbolic_step: Step,
    device: Device | None, work: Workload, phase: PhaseEstimate | None,
) -> ExplainedPhase:  # fmt: skip
    if phase:
        step, symbolic_step = phase.step, _step_of_stage(symbolic_step, phase.step)
    placed: Iterable[Any] = phase.placed if phase else ()
    operators = [p.operator for p in placed] or phases.operators(arch, step)
    symbols = phases.operators(shape, symbolic_step)
    counted = []
    rows = phase.rows_by_operator if phase else [[] for _ in operators]
    for i, (numbers, in_symbols) in enumerate(zip(operators, symbols, strict=True)):
        # both countings have the same operators
        assert (numbers.name, numbers.spec) == (in_symbols.name, in_symbols.spec)
        here, by = phase and phase.placed[i], None
        if device and here:
            timing = Timing(device, work.engine)
            by = here.run.formula or formula(timing.executed(numbers), here.placement, device, work.dtype, timing)
        times = in_symbols.passes * shape.times(in_symbols.layers)
        kernels = tuple(rows[i])
        run = here.run if here else None
        counted.append(SymbolicOperator(numbers, in_symbols, times, here, by, run, kernels=kernels))
    return ExplainedPhase(
        step.phase, tuple(counted), (*_totals(counted), *_alternatives(arch, shape, step, symbolic_step)), phase
    )


def _step_of_stage(step: Step, of: Step) -> Step:
    """The step on a GPU of the same pipeline stage as `of`."""
    return step._replace(parallel=step.parallel._replace(stage=of.parallel.stage))


def _totals(ops: Sequence[SymbolicOperator]) -> Iterator[Quantity]:
    """The totals of the operators over all occurrences."""
    for name, field, unit in (
        ("matmul FLOPs", "matmul_flops", "FLOP"),
        ("vector FLOPs", "vector_flops", "FLOP"),
        ("bytes", "bytes", "B"),
        ("weight bytes read", "weight_bytes", "B"),
        ("KV cache bytes read", "cache_bytes", "B"),
    ):
        yield Quantity(
            name,
            sum(op.times * getattr(op.symbolic.cost, field) for op in ops),
            sum(getattr(op.operator.total, field) for op in ops),
            unit,
        )


def _alternatives(
    arch: Architecture, shape: SymbolicArchitecture, step: Step, symbolic_step: Step
) -> Iterator[Quantity]:
    """The totals of the phase with eager attention, and of a generation without a KV cache."""
    if step.attention != "eager":
        eager = [phases.operators(a, s._replace(attention="eager")) for a, s in ((arch, step), (shape, symbolic_step))]
        yield _sum("matmul FLOPs of all pairs", "matmul_flops", "FLOP", shape, *eager)
    if step.phase == "generate":
        without_cache = [phases.operators_without_cache(a, s) for a, s in ((arch, step), (shape, symbolic_step))]
        yield _sum("FLOPs without a KV cache", "flops", "FLOP", shape, *without_cache)
        yield _sum("bytes without a KV cache", "bytes", "B", shape, *without_cache)


def _sum(
    name: str, field: str, unit: str, shape: SymbolicArchitecture, numbers: Iterable[Operator],
    symbols: Iterable[Operator],
) -> Quantity:  # fmt: skip
    symbolic = sum(op.passes * shape.times(op.layers) * getattr(op.cost, field) for op in symbols)
    return Quantity(name, symbolic, sum(getattr(op.total, field) for op in numbers), unit)


def _parameters(
    arch: Architecture, shape: SymbolicArchitecture, work: Workload, symbolic_work: Workload
) -> tuple[Quantity, ...]:
    steps = (w.steps()[0]._replace(parallel=ONE_GPU) for w in (work, symbolic_work))
    numbers, symbols = (phases.model_operators(a, step) for a, step in zip((arch, shape), steps, strict=True))
    quantities = [
        Quantity("parameters", passes.parameters(shape, symbols), passes.parameters(arch, numbers), ""),
        Quantity(
            "active parameters", passes.active_parameters(shape, symbols), passes.active_parameters(arch, numbers), ""
        ),
    ]
    return tuple(quantities if quantities[0].value != quantities[1].value else quantities[:1])


MEMORY = {
    "weights": "weights",
    "kv_cache": "KV cache",
    "activations": "activations",
    "gradients": "gradients",
    "optimizer": "optimizer",
    "logits": "logits",
    "other": "other",
}


def _memory(
    arch: Architecture, shape: SymbolicArchitecture, work: Workload, symbolic_work: Workload, values: dict[Any, Number]
) -> tuple[tuple[Quantity, ...], tuple[str, tuple[Quantity, ...]] | None]:
    """The peak memory by role, and except for training the live activations at the peak."""
    steps = [
        (staged, _step_of_stage(symbolic_step, staged))
        for step, symbolic_step in zip(work.steps(), symbolic_work.steps(), strict=True)
        for _, staged in phases.distinct_stages(arch, step)
    ]
    needs, symbolic_needs = (
        [need for pair in steps for need in phases.memory_by_pass(a, pair[i], phases.weight_bytes(a, pair[i]))]
        for i, a in enumerate((arch, shape))
    )
    most = max(range(len(needs)), key=lambda i: needs[i][1].total)
    (step, need), (symbolic_step, symbols) = needs[most], symbolic_needs[most]
    roles = {
        role: Quantity(name, resolve_min_max(getattr(symbols, role), values)[0], getattr(need, role), "B")
        for role, name in MEMORY.items()
        if getattr(need, role)
    }
    if step.phase == "train":
        return tuple(roles.values()), None
    operators = phases.operators(arch, step)
    live = list(passes.live_activations(operators))
    symbolic_live = list(passes.live_activations(phases.operators(shape, symbolic_step)))
    at = max(range(len(live)), key=lambda i: sum(size for _, size in live[i]))
    alive = tuple(
        Quantity(name, size, value, "B") for (name, value), (_, size) in zip(live[at], symbolic_live[at], strict=True)
    )
    if "activations" in roles:
        roles["activations"] = roles["activations"]._replace(symbolic=sum(tensor.symbolic for tensor in alive))
    return tuple(roles.values()), (operators[at].name, alive)


def matching_names(op: str, operators: Iterable[Operator]) -> set[str]:
    """The names of the operators that `op` selects, in any case: a full name, a group, or the last part of a name.

    A group is that of a table, such as `communication`, or the first parts of names, such as `mlp`. Raises
    WorkloadError if there is none.
    """
    groups = {operator.name: operator.group for operator in operators}
    names, lower_case = list(groups), op.lower()
    ends = {name: name.rpartition(".")[2] for name in names}
    wanted = (
        {op} & groups.keys()
        or {name for name in names if name.lower() == lower_case}
        or {name for name in names if name.lower().removeprefix("encoder.").startswith(f"{lower_case}.")}
        or {name for name, end in ends.items() if end.lower() == lower_case}
        or {name for name in names if f".{lower_case}." in f".{name.lower()}"}
        or {name for name, group in groups.items() if group.replace(" ", ".") == lower_case}
    )
    if not wanted:
        near = suggest(op, [*names, *ends.values()]) or ";"
        raise WorkloadError(Option("op"), f": unknown operator {op!r}{near} known: {', '.join(names)}")
    return wanted


def select_operators(op: str, sections: Sequence[ExplainedPhase]) -> list[ExplainedPhase]:
    """The operators of each phase that `op` selects. Raises WorkloadError if there is none."""
    wanted = matching_names(op, [counted.operator for section in sections for counted in section.operators])
    selected_sections = []
    for section in sections:
        operators = tuple(counted for counted in section.operators if counted.operator.name in wanted)
        if operators:
            selected_sections.append(section._replace(operators=operators, totals=()))
    return selected_sections
