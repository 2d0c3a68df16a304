"""Routing of tokens to the experts of an MoE layer: how many experts a pass uses, and the load of the busiest GPU."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import log1p
from typing import NamedTuple

from roofmodel.models.layers import MoE
from roofmodel.numbers.algebra import Number, ceil_div, expm1, is_just, mean, power


class Routing(NamedTuple):
    """How the tokens of a pass choose experts.

    * `uniform`: each token chooses its top-k experts at random, independently of the other tokens;
    * `same`: all tokens choose the same experts, as the decodes of identical prompts do. No pass reads fewer weights;
    * any other `name`: a file with `shares`, the probability of each expert; they sum to 1. `origin` states how its
      numbers were read.
    """

    name: str = "uniform"
    shares: tuple[float, ...] = ()
    path: str = ""  # of the file, as given
    origin: str = ""

    @property
    def given(self) -> str:
        """The value of the option: a file's path or a name."""
        return self.path or self.name


UNIFORM = Routing()


class ExpertLoad(NamedTuple):
    """The load of one GPU: token-expert pairs, and experts that at least one token chose."""

    pairs: Number
    touched: Number


def expert_load(moe: MoE, routing: Routing, tokens: Number, gpus: Number) -> ExpertLoad:
    """The load of one of the `gpus` that share the experts, for this number of tokens.

    Under uniform routing all GPUs have the mean load; otherwise the load is that of the busiest GPU. The experts of
    `same` are spread over the GPUs as evenly as possible. With a file, consecutive experts are on one GPU.
    """
    if routing.shares:
        return _busiest(moe, routing.shares, tokens, gpus)
    if routing.name == "same":
        touched = ceil_div(moe.active, gpus)
        return ExpertLoad(tokens * touched, touched)
    return ExpertLoad(mean(tokens * moe.active, gpus), mean(touched_experts(moe, tokens), gpus))


def touched_experts(moe: MoE, tokens: Number) -> Number:
    """Expected number of experts that at least one token chose, under uniform routing."""
    return moe.experts * (1 - power(1 - moe.active / moe.experts, tokens))


def _busiest(moe: MoE, shares: Sequence[float], tokens: Number, gpus: Number) -> ExpertLoad:
    chosen = choice_probabilities(shares, int(moe.active))
    here = len(shares) // int(gpus)
    busiest = max((chosen[start : start + here] for start in range(0, len(shares), here)), key=sum)
    touched: Number = 0
    for probability, experts in Counter(busiest).items():
        touched = touched + experts * (1 if probability == 1 else -expm1(tokens * log1p(-probability)))
    pairs = tokens * (moe.active if is_just(gpus, 1) else sum(busiest))
    return ExpertLoad(pairs, touched)


def choice_probabilities(shares: Sequence[float], active: int) -> list[float]:
    """The probability of each expert to be among the `active` experts of a token; they sum to `active`.

    A token chooses an expert once at most: where `active` x share exceeds 1, the probability is 1, and the other
    experts have the rest in proportion to their shares.
    """
    certain: set[int] = set()
    while True:
        rest = sum(share for expert, share in enumerate(shares) if expert not in certain)
        scale = (active - len(certain)) / rest if rest else 0.0
        more = {e for e, share in enumerate(shares) if e not in certain and share * scale >= 1}
        if not more:
            return [1.0 if expert in certain else share * scale for expert, share in enumerate(shares)]
        certain |= more
