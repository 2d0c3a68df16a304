"""One pass through the model on one GPU: its operators, from one walk through the GPU's share of the model."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from roofmodel.counting import blocks
from roofmodel.counting.number_formats import FORMATS, Widths
from roofmodel.counting.operator import Operator
from roofmodel.counting.workload import Step
from roofmodel.models.architecture import Architecture
from roofmodel.models.sharding import shard, stage

ONE_FORMAT = Widths(FORMATS["fp16"], FORMATS["fp16"], FORMATS["fp16"])
Walk = Callable[[Architecture, Step], tuple[Operator, ...]]
"""A function that gives the operators of one pass on one GPU: `one_pass`, or a cache such as `CachedWalks`."""


def one_pass(arch: Architecture, step: Step) -> tuple[Operator, ...]:
    """The operators of one pass on one GPU, from one walk through its share of the model."""
    share = gpu_share(arch, step)
    if step.chunk is None:
        return blocks.operators(share, step)
    from roofmodel.counting.mixed_step import mixed_operators

    return tuple(mixed_operators(share, step, step.chunk))


class CachedWalks:
    """The operators of one pass on one GPU; walks the model once for all pipeline stages and all number formats.

    `counted` has the operators of passes without pipeline parallelism that are already known, by step.
    """

    def __init__(self, counted: Iterable[tuple[Step, Iterable[Operator]]] = ()) -> None:
        self._operators = {self._key(step): tuple(operators) for step, operators in counted}

    def add(self, step: Step, operators: Iterable[Operator]) -> None:
        """Add the operators of a pass without pipeline parallelism."""
        self._operators[self._key(step)] = tuple(operators)

    def __call__(self, arch: Architecture, step: Step) -> tuple[Operator, ...]:
        """The operators of a pass, on a GPU of the pipeline stage that the step names."""
        key = self._key(step)
        if key not in self._operators:
            self._operators[key] = one_pass(arch, key._replace(widths=step.widths))
        operators = tuple(
            op if op.widths == step.widths else op.with_widths(step.widths) for op in self._operators[key]
        )
        if step.parallel.pp == 1:
            return operators
        return blocks.stage_operators(operators, gpu_share(arch, step).stack, step)

    def _key(self, step: Step) -> Step:
        """The step without stages, and with one format for all tensors: neither changes the operators of the model."""
        return step._replace(parallel=step.parallel._replace(pp=1, vpp=1, stage=0), widths=ONE_FORMAT)


def gpu_share(arch: Architecture, step: Step) -> Architecture:
    """The part of the architecture on one GPU (tensor, expert and pipeline parallelism)."""
    parallel = step.parallel
    return stage(shard(arch, parallel.tp, parallel.expert_tp), parallel.stage, parallel.pp, parallel.vpp)


def as_eager(operators: Iterable[Operator]) -> tuple[Operator, ...]:
    """The operators that eager attention would run."""
    return tuple(eager for operator in operators for eager in operator.as_eager())
