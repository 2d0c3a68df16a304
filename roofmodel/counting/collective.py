"""Bytes that a GPU sends in a collective, or in a point-to-point send between pipeline stages.

Counted as the bus bandwidth of nccl-tests: for a full tensor of S bytes on n GPUs, all-gather, reduce-scatter and
all-to-all send S (n - 1) / n bytes per GPU, and an all-reduce sends twice that. A point-to-point send is S bytes.

The all-to-all of an MoE layer sends a token once to each GPU that has any of its experts, and between nodes once to
each node (DeepEP, github.com/deepseek-ai/DeepEP; DeepSeek-V3, arXiv 2412.19437, section 3.2.2). With E experts on n
GPUs and k experts per token, chosen uniformly, another GPU has none of them with probability C(E - E/n, k) / C(E, k).
Where a router first chooses g of G groups of experts (DeepSeek-V3, section 2.1.2: at most 4 nodes for a token), the k
experts are among those of g groups, so that fewer GPUs have any.
"""

from __future__ import annotations

from typing import NamedTuple

from roofmodel.numbers.algebra import Number, maximum, mean, minimum, subsets

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

    `experts` and `active`: of an MoE layer, all experts and those of a token, which are in `active_groups` of `groups`
    groups; the full tensor has a row for each token and expert.
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
    groups: int = 1
    active_groups: int = 1

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

    def destinations(self, places: Number) -> Number:
        """Of an MoE layer: the mean number of places, other than its own, that have an expert of a token.

        `places` is the number of all GPUs or of all nodes, each with as many experts.
        """
        several = (places - 1) * (1 - self._missed(places))
        # With fewer experts than places, a token is sent once for each of its experts.
        return minimum(several, self.active * (places - 1) / places) if isinstance(self.active, int) else several

    def _missed(self, places: Number) -> Number:
        """The probability that a place has no expert of a token.

        A place has experts of G / `places` groups, or a part of the experts of one. Of these groups, a token chooses j
        with the probability of a hypergeometric distribution.
        """
        if self.groups == 1:
            return subsets(self.active, self.experts - self.experts / places) / subsets(self.active, self.experts)
        experts, chosen, own_groups = self.experts, self.active_groups, maximum(self.groups / places, 1)
        reached = experts * chosen / self.groups
        of_a_group = experts / maximum(places, self.groups)  # experts of a place in one of its groups
        missed: Number = 0
        for j in range(chosen + 1):
            ways = subsets(j, own_groups) * subsets(chosen - j, self.groups - own_groups)
            missed = missed + ways * subsets(self.active, reached - j * of_a_group)
        return missed / (subsets(chosen, self.groups) * subsets(self.active, reached))

    @property
    def times(self) -> int:
        """How many times the tensor crosses the links: 2 for an all-reduce, else 1."""
        return max(ROUNDS[self.name], 1)

    @property
    def gradient(self) -> Collective:
        """The collective of the backward pass."""
        return self._replace(name="reduce_scatter" if self.adds else GRADIENTS[self.name], adds=False)
