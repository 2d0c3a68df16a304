"""The training step of one GPU: its passes, and its peak memory for each pipeline schedule."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property

from roofmodel.counting import blocks
from roofmodel.counting.operator import Operator
from roofmodel.counting.passes import (
    Memory,
    as_eager,
    gpu_share,
    one_pass,
    parameters,
    token_table_elements,
    weight_bytes,
)
from roofmodel.counting.training.dropout import with_dropout
from roofmodel.counting.training.sharding import of_experts
from roofmodel.counting.training.step import (
    InFlight,
    KeptTensors,
    ModelStates,
    TrainingPasses,
    TrainingStep,
    build_passes,
    build_training_step,
    gradient_bytes,
    kept_bytes,
    kept_tensors,
    model_states,
    training_memory,
)
from roofmodel.counting.workload import Step
from roofmodel.models.architecture import Architecture, Stack, StageSlice, parts_of_stage, shard
from roofmodel.numbers.algebra import Number, is_just, minimum


class TrainingShare:
    """The training step of one GPU, whose passes are built once for all kinds of recomputation and of optimizer.

    `passed` is its forward pass without the loss, and `model_operators` the forward pass of all layers, if
    already counted. Other steps must have the same layout, and the same sizes except the number of microbatches.
    """

    def __init__(
        self, arch: Architecture, step: Step, passed: Sequence[Operator] = (), model_operators: Sequence[Operator] = ()
    ) -> None:
        self._arch, self._step, self._operators, self._own = arch, step, model_operators, gpu_share(arch, step)
        if model_operators:
            passed = blocks.stage_operators(model_operators, self._own.stack, step)
        passed = self._with_adapters(passed or one_pass(arch, step))
        own_slice = self._own.stack.stage_slice if isinstance(self._own.body, Stack) else StageSlice()
        reused = any(stage.tied for stage in arch.head.stages)
        tied = token_table_elements(passed) if reused and own_slice.first != own_slice.last else None
        if step.adapters:
            from roofmodel.counting.layers.adapters import adapter_parameters

            trained, tied = adapter_parameters(self._own, passed), None
        else:
            trained = parameters(self._own, passed)
        self._passes = build_passes(passed, trained, step, tied)
        self._kept: dict[str, list[tuple[Number, Number]]] = {}  # by kind of recomputation, of each model chunk

    def _with_adapters(self, passed: Sequence[Operator]) -> Sequence[Operator]:
        """A forward pass with the adapters of the step."""
        if self._step.adapters is None:
            return passed
        from roofmodel.counting.layers.adapters import with_adapters

        return tuple(with_adapters(passed, self._step.adapters))

    def training_step(self, step: Step) -> TrainingStep:
        """The operators of a training step, by part."""
        return build_training_step(self._passes, step)

    def operators_and_eager(self, step: Step) -> tuple[tuple[Operator, ...], tuple[Operator, ...]]:
        """The operators of a training step, and those that eager attention would run."""
        operators = tuple(self.training_step(step).operators(step.microbatches))
        if step.attention == "eager":
            return operators, operators
        return operators, tuple(build_training_step(self._eager_passes, step).operators(step.microbatches))

    @cached_property
    def _eager_passes(self) -> TrainingPasses:
        passes = self._passes
        return build_passes(as_eager(passes.passed), passes.parameters, self._step, passes.tied)

    def memory(self, step: Step) -> Memory:
        """Peak bytes of a training step."""
        return training_memory(
            self._passes, self._stored, step, [*self.microbatches_in_flight(step)], self._transient,
            self._expert_weights, self._copies,
        )  # fmt: skip

    def states(self, step: Step) -> ModelStates:
        """Bytes of weights, gradients and optimizer state; the step may differ in replicas and in its stage of ZeRO."""
        return model_states(self._passes, self._stored, step, self._expert_weights, self._copies)

    @cached_property
    def _copies(self) -> Number:
        """Bytes of the narrow copies of the weights of a training recipe."""
        if self._step.recipe is None:
            return 0
        from roofmodel.counting.training.recipes import copies_bytes

        return copies_bytes(self._passes.passed, self._step)

    @cached_property
    def _stored(self) -> Number:
        return weight_bytes(self._own, self._as_stored)

    @cached_property
    def _as_stored(self) -> Sequence[Operator]:
        """The forward pass with weights in the format in which they are stored."""
        if self._step.stored is None and self._step.recipe is None:
            return self._passes.passed
        return [op.with_widths(self._step.trained_widths) for op in self._passes.passed]

    @cached_property
    def _expert_weights(self) -> Number:
        """Bytes of the experts, if replicas shard them."""
        if not self._step.parallel.experts_span_replicas:
            return 0
        return weight_bytes(self._own, [op for op in self._as_stored if of_experts(op)])

    @cached_property
    def _transient(self) -> Number:
        return gradient_bytes(self._passes.backward)

    @cached_property
    def _chunks(self) -> list[KeptTensors]:
        """What each model chunk of the pipeline stage keeps."""
        parallel = self._step.parallel
        if is_just(parallel.pp, 1) or parallel.vpp == 1:
            return [self._kept_by(self._passes.forward)]
        shared = shard(self._arch, parallel.tp, parallel.expert_tp)
        parts = parts_of_stage(shared, parallel.stage, parallel.pp, parallel.vpp, parallel.stage_layers)
        kept = {
            number: self._kept_by(self._forward(part)) for number, part in {id(part): part for part in parts}.items()
        }
        return [kept[id(part)] for part in parts]

    def _forward(self, part: Architecture) -> tuple[Operator, ...]:
        """The forward pass of a model chunk."""
        counted = self._operators and blocks.stage_operators(self._operators, part.stack, self._step)
        passed = self._with_adapters(counted or blocks.operators(part, self._step))
        return build_passes(passed, 0, self._step).forward

    def _kept_by(self, forward: Sequence[Operator]) -> KeptTensors:
        return kept_tensors(with_dropout(forward, self._arch.code.dropout))

    def microbatches_in_flight(self, step: Step) -> Iterator[InFlight]:
        """The model chunks of a pipeline stage, each with the microbatches whose activations it keeps at the peak.

        1F1B schedule: of p stages, the last keeps one microbatch and the first keeps p. Interleaved schedule with v
        chunks per stage: each chunk takes p microbatches in turn, and a stage runs 2 (p - 1 - stage) + (v - 1) p
        forward passes before forward and backward alternate (Narayanan et al., arXiv 2104.04473, section 2.2). The
        first stage then keeps p v + p - 1 chunk activations.
        """
        if step.recompute not in self._kept:
            distinct = {id(chunk): chunk for chunk in self._chunks}
            kept = {number: kept_bytes(chunk, step.recompute) for number, chunk in distinct.items()}
            self._kept[step.recompute] = [kept[id(chunk)] for chunk in self._chunks]
        pp, vpp, which = step.parallel.pp, step.parallel.vpp, step.parallel.stage
        chunks = self._kept[step.recompute]
        if is_just(pp, 1):
            yield InFlight(1, *chunks[0])
        elif vpp == 1:
            yield InFlight(minimum(step.microbatches, pp - which), *chunks[0])
        else:
            passed = (vpp - 1) * pp + 2 * (pp - 1 - which) + 1
            counts = Counter(n // pp % vpp for n in range(passed))
            for part, chunk in enumerate(chunks):
                yield InFlight(minimum(step.microbatches, counts[part]), *chunk)
