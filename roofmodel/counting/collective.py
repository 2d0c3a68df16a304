"""Collectives: what a GPU sends to others where several share a model's work.

As nccl-tests counts them for its bus bandwidth: of the whole that is summed, gathered or dealt out among n GPUs a GPU
has its own n-th, and the others' pass its link; in an all-reduce twice, for the sums and for the results.
"""

from __future__ import annotations

from typing import NamedTuple

from roofmodel.algebra import Number, mean

ROUNDS = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1, "alltoall": 0}
"""How often a collective goes around the ring of GPUs; 0: everybody sends to everybody at once."""

GRADIENTS = {"all_reduce": "replicate", "replicate": "all_reduce", "alltoall": "alltoall"}
"""The collective that carries the gradient of another: Megatron-LM's f and g (arXiv 1909.08053, section 3)."""


class Collective(NamedTuple):
    """Which collective, and among how many GPUs.

    `replicate` is none: all of them have a tensor already, of which each uses its own part; its gradient is a sum.
    """

    name: str
    gpus: Number

    def sent(self, whole: Number) -> Number:
        """Bytes that a GPU sends, and as many that it receives, of a whole of so many."""
        return mean(self.times * whole * (self.gpus - 1), self.gpus)

    @property
    def times(self) -> int:
        """How often the whole passes, but for a GPU's own part of it."""
        return max(ROUNDS[self.name], 1)

    @property
    def gradient(self) -> Collective:
        return self._replace(name=GRADIENTS[self.name])
