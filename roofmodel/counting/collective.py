"""Collectives: what a GPU sends to others where several share a model's work; and what a stage sends to the next one.

As nccl-tests counts them for its bus bandwidth: of the whole that is summed, gathered or dealt out among n GPUs a GPU
has its own n-th, and the others' pass its link; in an all-reduce twice, for the sums and for the results. What one GPU
sends to another passes its link once.
"""

from __future__ import annotations

from typing import NamedTuple

from roofmodel.algebra import Number, mean

ROUNDS = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1, "alltoall": 0, "send": 0}
"""How often a collective goes around the ring of GPUs; 0: in one step, everybody to everybody, or one to another."""

GRADIENTS = {
    "all_reduce": "replicate", "replicate": "all_reduce", "alltoall": "alltoall",
    "send": "receive", "receive": "send", "all_gather": "split", "split": "all_gather", "reduce_scatter": "all_gather",
}  # fmt: skip
"""The collective that carries the gradient of another: Megatron-LM's f and g (arXiv 1909.08053, section 3), what its
stages do (arXiv 2104.04473, section 4.1), and what it does over parts of a sequence (arXiv 2205.05198, section 4.2)."""


class Collective(NamedTuple):
    """Which collective, and among how many GPUs, each so many `apart` from the next.

    What is gathered may be a tensor that each goes on with, as if it had been there; or, where its gradient `adds` up,
    the input of products that each has a part of.

    `replicate` is none: all of them have a tensor already, of which each uses its own part; its gradient is a sum. Nor
    is `split`, where each keeps its part of what all have, or `receive`, whose time is that of who sends.
    """

    name: str
    gpus: Number
    apart: Number = 1
    adds: bool = False

    @property
    def span(self) -> Number:
        """How many GPUs there are with those that stand between."""
        return self.gpus * self.apart

    @property
    def moves(self) -> bool:
        """Whether there is anything to do: what only marks a tensor for the sake of its gradient does not."""
        return self.name in ROUNDS

    def sent(self, whole: Number) -> Number:
        """Bytes that a GPU sends, and as many that it receives, of a whole of so many."""
        if self.name == "send":
            return whole
        return mean(self.times * whole * (self.gpus - 1), self.gpus)

    @property
    def times(self) -> int:
        """How often the whole passes, but for a GPU's own part of it."""
        return max(ROUNDS[self.name], 1)

    @property
    def gradient(self) -> Collective:
        return self._replace(name="reduce_scatter" if self.adds else GRADIENTS[self.name], adds=False)
