"""Training steps that differ in pipeline stages, microbatches, recomputation and optimizer: shared counts and times.

A search evaluates thousands of such steps, which consist of the same operators. Their passes are built once per
pipeline stage, and each operator is timed once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from roofmodel.counting import passes, phases
from roofmodel.counting.operator import Operator
from roofmodel.counting.passes import Memory
from roofmodel.counting.training.share import TrainingShare
from roofmodel.counting.workload import Step
from roofmodel.devices.device import Device
from roofmodel.engines.engine import Engine
from roofmodel.models.architecture import Architecture
from roofmodel.numbers.algebra import Number
from roofmodel.timing.engine import Run, Timing
from roofmodel.timing.extra_kernels import ExtraKernel
from roofmodel.timing.roofline import Placement, place


class SimilarSteps:
    """Training steps of one model on one device, whose layers have the same operators.

    `step` is one of them. All have its sizes of a microbatch, format of computation, tensor and expert parallelism,
    and sequence parallelism. Weights may have another format where replicas shard them.
    """

    def __init__(self, arch: Architecture, device: Device, step: Step, engine: Engine) -> None:
        self._arch, self._device, self._dtype = arch, device, step.widths.compute
        self._timing = Timing(device, engine)
        self._operators: dict[tuple[Any, ...], tuple[Operator, ...]] = {}  # of the whole model
        self._shares: dict[tuple[Any, ...], TrainingShare] = {}
        self._placements: dict[tuple[Any, ...], Placement] = {}
        self._times: dict[tuple[Any, ...], Run] = {}

    def share(self, step: Step, copies: Number | None = None) -> TrainingShare:
        """The training step of a GPU of the pipeline stage that the step names.

        Sends to the next stage depend on the number of GPUs with the same weights, `copies`; None: any number.
        """
        parallel = step.parallel
        whole = (step.attention, step.widths, step.stored)
        key = (parallel.pp, parallel.vpp, parallel.stage, copies, *whole)
        if whole not in self._operators:
            first = step._replace(parallel=parallel._replace(pp=1, vpp=1, stage=0))
            self._operators[whole] = passes.one_pass(self._arch, first)
        if key not in self._shares:
            self._shares[key] = TrainingShare(self._arch, step, model_operators=self._operators[whole])
        return self._shares[key]

    def states(self, step: Step) -> Number:
        """Bytes of weights, gradients and optimizer state of all pipeline stages together, on a GPU of each."""
        whole = step._replace(parallel=step.parallel._replace(pp=1, vpp=1, stage=0))
        return sum(self.share(whole).states(whole))

    def memory(self, step: Step) -> Memory:
        """Peak bytes per GPU, in the pipeline stage that needs most."""
        first, *others = (self.share(stage).memory(stage) for _, stage in phases.distinct_stages(self._arch, step))
        for other in others:
            first = first.larger(other)
        return first

    def placement(self, operator: Operator) -> Placement:
        """The operator under the device's ceilings."""
        key = _content(operator)
        if key not in self._placements:
            dtype = operator.compute_dtype(self._dtype)
            self._placements[key] = place(operator.cost, self._device, dtype, operator.collective)
        return self._placements[key]

    def run(self, operator: Operator, placement: Placement, kernels: Sequence[ExtraKernel]) -> Run:
        """The time of an operator with the extra kernels of a framework."""
        # Operators of the same content have the same placement.
        key = (id(placement), *((_value(kernel.bytes), _value(kernel.runs)) for kernel in kernels))
        if key not in self._times:
            self._times[key] = self._timing.expect(operator, placement, self._dtype, kernels)
        return self._times[key]


def _content(operator: Operator) -> tuple[Any, ...]:
    """All that the time of one execution depends on; not its layers, its stage and its number of passes."""
    return (
        tuple(line.text for line in operator.lines), operator.kind, operator.group, operator.function, operator.causal,
        operator.collective, operator.widths, *map(_value, operator.sizes.values()),
        *map(_value, operator.touched.values()), _value(operator.matmul_flops), _value(operator.vector_flops),
    )  # fmt: skip


def _value(number: Any) -> Any:
    """A number, or the elements of an array."""
    if not hasattr(number, "tobytes"):
        return number
    return (number.dtype.char, number.tobytes() if number.dtype.char != "O" else tuple(number.flat))
