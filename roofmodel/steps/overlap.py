"""What an engine overlaps in a training step with tensor or data parallelism (`training.overlaps` of its file).

- `gradients`: gradients are reduced bucket by bucket during the backward pass of the last microbatch; the last bucket
  follows it. Megatron-LM's buckets have 40 M parameters, or 1 M for each replica if that is more
  (`megatron/core/distributed/distributed_data_parallel.py`).
- `parameters`: weights that other replicas updated are gathered likewise during the forward pass of the first
  microbatch.
- `tensor_parallel`: the all-gather before a GEMM and the reduce-scatter after one run in as many parts as GPUs share a
  layer; all but one part overlap with the GEMMs of the layers (TransformerEngine's `ub_overlap_ag`, `ub_overlap_rs`).

What is hidden takes no time of the GPU here, so that overlap never makes a step slower.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from roofmodel.counting.workload import Step
from roofmodel.numbers.algebra import Number, is_just, maximum, minimum
from roofmodel.steps.placed import NO_TIME, Placed, ReplicaTimes, sum_of
from roofmodel.timing.timing import Expected

BUCKET_PARAMETERS, BUCKET_PARAMETERS_PER_REPLICA = 40_000_000, 1_000_000
PASSES = {"forward": ("forward",), "backward": ("backward", "recomputation")}


def with_overlap(placed: Sequence[Placed], step: Step, times: ReplicaTimes) -> ReplicaTimes:
    """The times of the replicas with what the engine hides."""
    parallel, overlaps = step.parallel, step.parallel.overlaps
    in_layers, once = NO_TIME, NO_TIME
    if "tensor_parallel" in overlaps and parallel.sequence:
        for stages in PASSES.values():
            own = [each for each in placed if each.operator.stage in stages and not each.operator.runs_once_per_step]
            exchanged = sum_of(each for each in own if _shards_sequence(each))
            gemms = sum_of(each for each in own if each.operator.kind == "gemm" and each.operator.layers is not None)
            if exchanged is None or gemms is None:
                return times._replace(hidden=None)
            in_layers = in_layers + _hidden(exchanged, 1 - 1 / parallel.tp, gemms)
    for overlap, prefix, stages in (
        ("gradients", "gradients.", PASSES["backward"]), ("parameters", "weights.", PASSES["forward"])
    ):  # fmt: skip
        exchanges = [each for each in placed if each.operator.name.startswith(prefix)]
        if overlap not in overlaps or not exchanges:
            continue
        computed = (each for each in placed if each.operator.stage in stages and each.operator.collective is None)
        exchanged, seconds = sum_of(exchanges), sum_of(computed)
        if exchanged is None or seconds is None:
            return times._replace(hidden=None)
        once = once + _hidden(exchanged, 1 - 1 / _buckets(exchanges, step), (1 / step.microbatches) * seconds)
    hidden = in_layers + once if times.hidden is NO_TIME else times.hidden
    each_microbatch = (1 / step.microbatches) * in_layers
    return times._replace(hidden=hidden, hidden_in_layers=each_microbatch)


def _shards_sequence(placed: Placed) -> bool:
    """Whether the operator gathers or reduces and scatters the tokens of a layer over neighboring GPUs."""
    collective = placed.operator.collective
    if collective is None or placed.operator.layers is None:
        return False
    return collective.name in ("all_gather", "reduce_scatter") and is_just(collective.rank_stride, 1)


def _buckets(exchanges: Iterable[Placed], step: Step) -> Number:
    """The number of buckets of gradients or weights, at least 1."""
    parameters = sum(each.operator.sizes["W"] for each in exchanges)
    size = maximum(BUCKET_PARAMETERS, BUCKET_PARAMETERS_PER_REPLICA * step.parallel.dp)
    return maximum(parameters / size, 1.0)


def _hidden(exchanged: Expected, share: Number, computed: Expected) -> Expected:
    """What computation hides of an exchange, of which only a share can overlap."""
    return Expected(*(minimum(share * sent, seconds) for sent, seconds in zip(exchanged, computed, strict=True)))
