"""The load of the GPUs that share the experts of an MoE model: the tokens that choose them, and the experts chosen."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from math import log1p
from typing import NamedTuple

from roofmodel.counting.operator import Operator
from roofmodel.counting.workload import UNIFORM, Routing
from roofmodel.models.layers import MoE
from roofmodel.numbers.algebra import Number, ceil_div, expm1, is_just, mean, minimum, power, quotient


class ExpertLoad(NamedTuple):
    """The load of one GPU: token-expert pairs, and experts that at least one token chose."""

    pairs: Number
    touched: Number


def expert_load(moe: MoE, routing: Routing, tokens: Number, gpus: Number) -> ExpertLoad:
    """The load of one of the `gpus` that share the experts, for this number of tokens.

    An expert takes at most `capacity` times the mean number of tokens; the rest are dropped. Under uniform routing all
    GPUs have the mean load; otherwise the load is that of the busiest GPU. The experts of
    `same` are spread over the GPUs as evenly as possible. With a file, consecutive experts are on one GPU. Experts
    without computation are on no GPU; the last numbers of a file are theirs.
    """
    if routing.shares:
        load = _busiest(moe, routing.shares, tokens, gpus)
    elif routing.name == "same":
        touched = ceil_div(moe.common_mlps, gpus)
        load = ExpertLoad(tokens * touched, touched)
    else:
        load = ExpertLoad(mean(tokens * moe.active_mlps, gpus), mean(touched_experts(moe, tokens), gpus))
    if routing.capacity is None or (routing.capacity >= 1 and routing == UNIFORM._replace(capacity=routing.capacity)):
        return load
    accepted = routing.capacity * tokens * moe.active / moe.choices
    return load._replace(pairs=minimum(load.pairs, accepted * load.touched))


def touched_experts(moe: MoE, tokens: Number) -> Number:
    """Expected number of experts that at least one token chose, under uniform routing."""
    return moe.experts * (1 - power(1 - moe.active / moe.choices, tokens))


def with_touched_experts(operator: Operator, touched: Number, experts: Number) -> Operator:
    """The operator of `experts` experts, which reads only the weights of `touched` of them."""
    touched_elements = {t.name: quotient(t.elements(operator.sizes), experts) * touched for t in operator.parameters}
    return replace(operator, touched=touched_elements)


def _busiest(moe: MoE, shares: Sequence[float], tokens: Number, gpus: Number) -> ExpertLoad:
    chosen = choice_probabilities(shares, int(moe.active))[: int(moe.experts)]
    here = len(chosen) // int(gpus)
    busiest = max((chosen[start : start + here] for start in range(0, len(chosen), here)), key=sum)
    touched: Number = 0
    for probability, experts in Counter(busiest).items():
        touched = touched + experts * (1 if probability == 1 else -expm1(tokens * log1p(-probability)))
    pairs = tokens * (moe.active if is_just(gpus, 1) and not moe.zero_experts else sum(busiest))
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
