"""Bytes that a GPU sends in a collective, or in a point-to-point send between pipeline stages.

Counted as the bus bandwidth of nccl-tests: for a full tensor of S bytes on n GPUs, all-gather, reduce-scatter and
all-to-all send S (n - 1) / n bytes per GPU, and an all-reduce sends twice that. A point-to-point send is S bytes.

The all-to-all of an MoE layer sends a token once to each GPU that has any of its experts, and between nodes once to
each node (DeepEP, github.com/deepseek-ai/DeepEP; DeepSeek-V3, arXiv 2412.19437, section 3.2.2). With E experts on n
GPUs and k experts per token, chosen uniformly, another GPU has none of them with probability C(E - E/n, k) / C(E, k).
"""

from __future__ import annotations

from typing import NamedTuple

from roofmodel.numbers.algebra import Number, mean, minimum, subsets

ROUNDS = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1, "alltoall": 0, "send": 0}
"""Rounds of a collective over the ring of GPUs; 0 for direct exchanges without a ring."""

GRADIENTS = {
    "all_reduce": "replicate", "replicate": "all_reduce", "alltoall": "alltoall",
    "send": "receive", "receive": "send", "all_gather": "split", "split": "all_gather", "reduce_scatter": "all_gather",
}  # fmt: skip
"""The collective of the backward pass for each one of the forward pass.

Sources: Megatron-LM's f and g (arXiv 1909.08053, section 3), pipeline stages (arXiv 2104.04473, section 4.1), sequence
parallelism (arXiv 2205.05198, section 4.2).
"""


class Collective(NamedTuple):
    """A collective among `gpus` GPUs whose ranks differ by `rank_stride`.

    `experts` and `active`: of an MoE layer, all experts and those of a token; the full tensor has a row for each token
    and expert.
    `adds`: the gathered tensor is the input of sharded GEMMs, so its gradient is a reduce-scatter.

    Three names move no data in the forward pass and exist for their gradients: `replicate` (a replicated tensor from
    which each GPU computes its shard), `split` (each GPU keeps its shard of a replicated tensor) and `receive` (whose
    time is counted at the sender).
    """

    name: str
    gpus: Number
    rank_stride: Number = 1
    adds: bool = False
    experts: Number = 0
    active: Number = 0

    @property
    def span(self) -> Number:
        """Number of consecutive ranks from the first to the last GPU."""
        return self.gpus * self.rank_stride

    @property
    def moves(self) -> bool:
        """Whether the collective moves data."""
        return self.name in ROUNDS

    def sent(self, size: Number) -> Number:
        """Bytes that a GPU sends, and also receives, for a full tensor of `size` bytes."""
        if self.name == "send":
            return size
        if self.active:
            return size * self.destinations(self.gpus) / self.active
        return mean(self.times * size * (self.gpus - 1), self.gpus)

    def destinations(self, groups: Number) -> Number:
        """Of an MoE layer: the mean number of groups of GPUs, other than its own, that have an expert of a token.

        `groups` is the number of all groups: GPUs or nodes.
        """
        elsewhere = self.experts - self.experts / groups
        missed = subsets(self.active, elsewhere) / subsets(self.active, self.experts)
        several = (groups - 1) * (1 - missed)
        # With fewer experts than groups, a token is sent once for each of its experts.
        return minimum(several, self.active * (groups - 1) / groups) if isinstance(self.active, int) else several

    @property
    def times(self) -> int:
        """How many times the tensor crosses the links: 2 for an all-reduce, else 1."""
        return max(ROUNDS[self.name], 1)

    @property
    def gradient(self) -> Collective:
        """The collective of the backward pass."""
        return self._replace(name="reduce_scatter" if self.adds else GRADIENTS[self.name], adds=False)
