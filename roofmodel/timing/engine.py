"""The time of operators in an engine on a device: which kernel runs each operator, fused with which, and for how long.

`Timing` is what a step builds once from a device and an engine. An engine fuses operators with neighboring ones
(`roofmodel.engines.engine_file.FUSIONS`):

- GEMMs with the same input, such as queries, keys and values, or gate and up, run as one GEMM with all their columns
  (`qkv`, `gate_up`, `latent_down`).
- Where GEMMs compute in a narrower format than `--activations`, the previous kernel writes their input in that format
  (`quantize`).
- A residual add runs in the kernel of the norm after it, which then does not read the sum: the add costs its other
  bytes and no launch (`residual`).
- Rotary embedding runs in a neighboring kernel: it costs its bytes and no launch (`rotary`).
- Norms before the rotary embedding of a sparse attention and its indexer run in that kernel, and the projections of
  queries, keys and values of both run as one GEMM (`index_norms`).
- The activation between the two GEMMs of the experts runs in their kernels: it costs its bytes and no launch
  (`experts`).
- A norm runs in the kernel of the all-reduce before it: it costs its bytes and no launch (`all_reduce_norm`).

The expected time of a fused kernel is never below its compulsory traffic, and is divided over its operators, so that
the time of one of them can be below its own bound.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import repeat
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from roofmodel.counting.operator import Operator
from roofmodel.counting.tensors import FORMATS, Format
from roofmodel.devices.device import Device
from roofmodel.engines.engine import Engine
from roofmodel.engines.engine_file import AllReduce
from roofmodel.models.architecture import ReferenceCode
from roofmodel.numbers.algebra import Number, either, maximum, minimum
from roofmodel.timing.formula import elementwise_kind
from roofmodel.timing.roofline import Placement
from roofmodel.timing.timing import (
    Expected,
    Formula,
    KernelParameters,
    clamp_to_bound,
    expect_elementwise,
    formula,
    kernel_parameters,
    merged_gemms,
    runs_own_all_reduce,
)

if TYPE_CHECKING:
    from roofmodel.timing.extra_kernels import ExtraKernel


def merge_groups(operators: Sequence[Operator], fuses: frozenset[str]) -> Iterator[list[int]]:
    """The positions of the operators that run as one kernel, in the order of the first one; most are alone."""
    groups: dict[object, list[int]] = {}
    previous: object = None
    for place, operator in enumerate(operators):
        key = _input(operator, fuses)
        if key is None:
            yield [place]
            previous = None
            continue
        fusion = key[0]
        follows = key == previous or fusion == "latent_down" or ("index_norms" in fuses and "t:sb" in operator.sizes)
        if not follows:
            groups.pop(key, None)
        previous = key
        groups.setdefault(key, []).append(place)
        if len(groups[key]) == 1:
            yield groups[key]


def _input(operator: Operator, fuses: frozenset[str]) -> tuple[Any, ...] | None:
    """The fusion of a forward GEMM, and a key that is equal for GEMMs that are merged: same input, layers and stage."""
    if operator.kind != "gemm" or operator.gemm is None or ".grad_" in operator.name or ".lora_" in operator.name:
        return None
    last = operator.name.rpartition(".")[2]
    fusion = "latent_down" if last in ("q_down", "kv_down") else "gate_up" if operator.group == "mlp" else "qkv"
    if fusion not in fuses:
        return None
    unconverted = operator.multiplies_unconverted_weights
    return fusion, operator.lines[0].factors[0], operator.group, operator.layers, operator.stage, unconverted


class KernelTime(NamedTuple):
    """The time of `count` equal kernels: `expected`, of one of them, is that of its formula, never below `bound`."""

    count: Number
    formula: Formula
    bound: Number
    expected: Expected


def merged_time(
    operators: Sequence[Operator], bounds: Sequence[Placement], formula: Formula, device: Device
) -> KernelTime:
    """The time of a merged GEMM, never below its own bound."""
    least = bounds[0].bound_seconds
    if len(operators) > 1:
        first, *others = operators
        input_bytes = first.bytes_of(first.reads[0])
        data = sum(bound.cost.bytes for bound in bounds) - len(others) * input_bytes
        least = maximum(sum(bound.matmul_seconds for bound in bounds), data / device.bandwidth)
    return KernelTime(1, formula, least, clamp_to_bound(formula.seconds, formula.fit, least))


def absorbs(operator: Operator, fuses: frozenset[str], follows_all_reduce: bool) -> str:
    """The fusion by which an operator runs inside a neighboring kernel; empty if it does not."""
    if operator.kind == "elementwise" and not operator.parts:
        is_of_experts = operator.name.endswith("expert_activation")
        fusion = (
            "experts" if is_of_experts else {"add": "residual", "rotary": "rotary"}.get(elementwise_kind(operator), "")
        )
    else:
        fusion = "all_reduce_norm" if operator.kind == "norm" and follows_all_reduce else ""
        if operator.kind == "norm" and _is_before_sparse_rotary(operator):
            fusion = "index_norms"
    return fusion if fusion in fuses else ""


def _is_before_sparse_rotary(operator: Operator) -> bool:
    """Whether the rotary embedding of a sparse attention or of its indexer follows a norm."""
    sizes, width = operator.sizes, operator.writes[0].axes[-1]
    return (
        operator.group == "attention"
        and width != "zq"
        and ("t:sb" in sizes or ("sparse" in sizes and "zk" not in sizes))
    )


def absorbed(operator: Operator, time: Expected, bound: Placement, fusion: str, device: Device) -> Expected:
    """The time of an operator inside a neighboring kernel: of its bytes, at most that of a kernel of its own."""
    least = bound.bound_seconds
    if operator.group == "residual":  # the norm has the sum in registers, so that its own read of the sum costs nothing
        saved = operator.bytes_of(operator.writes[0]) / device.bandwidth
        least = maximum(bound.compute_seconds, bound.memory_seconds - saved)
    least = minimum(time.value, least)
    return Expected(least, least, time.high)


Evidence = Literal["measured", "borrowed", "bound"]
"""What an expected time is from: parameters of this device, implementation and format; other parameters; no
parameters."""


class Run(NamedTuple):
    """How an engine runs an operator: the expected time of one occurrence, and the formula of its kernel.

    `merged` names the operators of a merged GEMM; this operator has `columns` = (own, all) of it. `absorbed` is the
    fusion by which an operator runs inside a neighboring kernel. `formula` is None where no parameters are fitted.
    `evidence` is what the time is from; `fused`: the time is that of a share of a fused kernel, below the operator's
    own bound. `kernels` are those whose time it is or has a share of, where they are not one kernel with the operator's
    own bound: a merged GEMM, or the parts of an exchange.
    """

    expected: Expected | None
    formula: Formula | None = None
    extra_kernels: tuple[ExtraKernel, ...] = ()
    evidence: Evidence = "bound"
    merged: tuple[str, ...] = ()
    columns: tuple[Number, Number] = (1, 1)
    absorbed: str = ""
    kernels: tuple[KernelTime, ...] = ()

    @property
    def implementation(self) -> str | None:
        """The kernel whose parameters gave the time; None if none."""
        return self.formula.implementation if self.formula else None


def _adding(operator: Operator, form: Format) -> Operator:
    """A GEMM that reads and writes the sum of a weight's gradients instead of writing a gradient (TransformerEngine's
    `fuse_wgrad_accumulation`; Megatron-LM's `gradient_accumulation_fusion`)."""
    line, widths = operator.lines[0], operator.widths
    if not line.contracted:
        return operator
    (total,) = line.outputs
    widths = widths._replace(by_matrix=(*widths.by_matrix, (total.name, form)))
    return replace(operator.with_widths(widths), lines=(replace(line, terms=(*line.terms, total)),))


class Timing(NamedTuple):
    """The timing model of a device in an engine. `kernel` is preferred to those of the engine."""

    device: Device
    engine: Engine = Engine()
    kernel: str = ""

    # --- which kernel runs (parameter_sets.Preference) ---

    def implementations(self, kind: str, key: str) -> tuple[str, ...]:
        """The kernels of the engine for a kind and a format key, the preferred one first."""
        own_kernel = (self.kernel,) if self.kernel else ()
        if kind == "collectives":
            return (*own_kernel, self.engine.collectives)
        return (*own_kernel, *self.engine.implementations(kind, key, self.device.generation))

    def expert_parallel(self, key: str) -> tuple[str, ...]:
        """The kernels of the engine for experts that GPUs shard, before those for all experts."""
        return () if self.kernel else self.engine.expert_parallel(key, self.device.generation)

    @property
    def all_reduce(self) -> AllReduce | None:
        """The engine's own all-reduce."""
        return None if self.kernel else self.engine.all_reduce

    @property
    def pads_vocabulary(self) -> bool:
        """Whether the engine adds rows to the embedding, so that the vocabulary is aligned."""
        return self.engine.pads_vocabulary

    def parameters(self, operator: Operator, dtype: str) -> KernelParameters | None:
        """The parameter set of an operator's kernel; None on a device without calibration."""
        calibration = self.device.calibration
        return calibration and kernel_parameters(self.executed(operator), calibration, dtype, self)

    def executed(self, operator: Operator) -> Operator:
        """The operator as its kernel runs: under autocast, after the casts of its parameters; a GEMM of a weight's
        gradient adds to the sum of microbatches where the engine keeps sums in a format of their own."""
        training = self.engine.training
        if training and training.gradients and operator.name.endswith(".grad_weight"):
            operator = _adding(operator, FORMATS[training.gradients])
        if not self.engine.autocast:
            return operator
        from roofmodel.timing.casting import after_casts

        return after_casts(operator)

    def evidence(self, kernel_formula: Formula | None) -> Evidence:
        """What a time from this formula is from."""
        if kernel_formula is None:
            return "bound"
        is_other = (
            kernel_formula.is_substitute
            or kernel_formula.fitted_on != self.device.id
            or self.is_of_other_engine(kernel_formula)
        )
        return "borrowed" if is_other else "measured"

    def is_of_other_engine(self, kernel_formula: Formula) -> bool:
        """Whether the engine does not run the kernel of a formula. All engines run the same elementwise kernels."""
        own = (self.all_reduce.own,) if self.all_reduce else ()
        key = kernel_formula.format_key
        names = (*own, *self.expert_parallel(key), *self.implementations(kernel_formula.kind, key))
        of_all_engines = ("elementwise", "streams_collapse", "streams_expand")
        return kernel_formula.kind not in of_all_engines and kernel_formula.implementation not in names

    # --- times ---

    def expect(
        self, operator: Operator, placed: Placement, dtype: str, kernels: Sequence[ExtraKernel] = ()
    ) -> Run:  # fmt: skip
        """One occurrence of an operator in a kernel of its own, with extra kernels."""
        kernel_formula = formula(self.executed(operator), placed, self.device, dtype, self)
        time = kernel_formula and clamp_to_bound(kernel_formula.seconds, kernel_formula.fit, placed.bound_seconds)
        for kernel in kernels:
            more = expect_elementwise(kernel.bytes, self.device, operator.widths.dtype.name)
            time = time and more and time + Expected(*(kernel.runs * seconds for seconds in more))
        return Run(time, kernel_formula, tuple(kernels), self.evidence(kernel_formula))

    def extra_kernels(
        self, operators: Sequence[Operator], code: ReferenceCode
    ) -> Iterable[tuple[ExtraKernel, ...]]:  # fmt: skip
        """The extra kernels of each operator, in order."""
        if not self.engine.extra_kernels:
            return repeat(())
        from roofmodel.timing.reference_code import extra_kernels

        return extra_kernels(operators, code, self.engine)

    def runs(
        self, operators: Sequence[Operator], placed: Sequence[Placement], dtype: str, code: ReferenceCode,
        expect: Callable[[Operator, Placement, Sequence[ExtraKernel]], Run] | None = None,
    ) -> list[Run]:  # fmt: skip
        """How the engine runs each operator, in order. `expect` gives the time of one without fusion."""
        alone = expect or (lambda operator, bound, kernels: self.expect(operator, bound, dtype, kernels))
        fuses = self.engine.fuses
        extra = [kernels for _, kernels in zip(operators, self.extra_kernels(operators, code), strict=False)]
        if not fuses:
            return [alone(*each) for each in zip(operators, placed, extra, strict=True)]
        run_by_place: dict[int, Run] = {}
        groups = [*merge_groups(operators, fuses)]
        after_all_reduce: Number = False  # whether the engine's own kernel reduced the input
        for group in groups:
            several, bounds = [operators[i] for i in group], [placed[i] for i in group]
            if runs := [*self._merged(several, bounds, dtype)]:
                run_by_place |= dict(zip(group, runs, strict=True))
                after_all_reduce = False
                continue
            for place in group:
                operator, bound = operators[place], placed[place]
                run = alone(operator, bound, extra[place])
                fusion = absorbs(operator, fuses, after_all_reduce is not False)
                if run.expected and fusion:
                    time = absorbed(operator, run.expected, bound, fusion, self.device)
                    if fusion == "all_reduce_norm":
                        time = Expected(*map(partial(either, after_all_reduce), time, run.expected))
                    run = Run(time, extra_kernels=run.extra_kernels, absorbed=fusion)
                run_by_place[place] = run
                if fusion != "residual":
                    after_all_reduce = runs_own_all_reduce(operator, self.device, self.all_reduce)
        return [run_by_place[place] for place in range(len(operators))]

    def _merged(self, several: Sequence[Operator], bounds: Sequence[Placement], dtype: str) -> Iterator[Run]:
        """The shares of a merged GEMM, or a GEMM whose input the previous kernel quantizes; nothing for others."""
        quantizes = "quantize" in self.engine.fuses
        if several[0].kind != "gemm" or (len(several) == 1 and not quantizes):
            return
        merged = merged_gemms(several, self.device, dtype, self)
        if merged is None:
            return
        by, columns = merged
        time, evidence, every = merged_time(several, bounds, by, self.device), self.evidence(by), sum(columns)
        if len(several) == 1:
            yield Run(time.expected, by, evidence=evidence)
            return
        names = tuple(operator.name for operator in several)
        for own in columns:
            share = Expected(*(seconds * own / every for seconds in time.expected))
            yield Run(share, by, evidence=evidence, merged=names, columns=(own, every), kernels=(time,))
