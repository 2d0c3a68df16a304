"""Routing of tokens to experts: probabilities and the load of one GPU."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roofmodel.counting.routing import UNIFORM, Routing, choice_probabilities, expert_load
from roofmodel.models.layers import MLP, MoE

SAME = Routing("same")


def layer(experts: int, active: int) -> MoE:
    return MoE(experts, active, MLP(64, "silu", gated=True))


@given(st.lists(st.floats(0.01, 100), min_size=2, max_size=40), st.data())
def test_choice_probabilities_sum_to_the_active_experts(counts: list[float], data: st.DataObject) -> None:
    active = data.draw(st.integers(1, len(counts)))
    found = choice_probabilities([count / sum(counts) for count in counts], active)
    assert sum(found) == pytest.approx(active)
    assert all(0 < probability <= 1 for probability in found)


def test_a_token_chooses_a_popular_expert_once() -> None:
    assert choice_probabilities([0.9, 0.05, 0.05], 2) == pytest.approx([1, 0.5, 0.5])


@given(st.integers(1, 8), st.integers(1, 4), st.integers(1, 500))
def test_equal_shares_are_uniform_routing(active: int, gpus: int, tokens: int) -> None:
    experts = 8 * gpus
    equal = Routing("counts.csv", (1 / experts,) * experts)
    assert expert_load(layer(experts, active), equal, tokens, gpus) == pytest.approx(
        expert_load(layer(experts, active), UNIFORM, tokens, gpus)
    )


@given(st.integers(1, 8), st.integers(1, 500))
def test_routing_all_tokens_to_the_same_experts_touches_the_fewest(active: int, tokens: int) -> None:
    moe = layer(16, active)
    skewed = Routing("counts.csv", tuple((n + 1) / 136 for n in range(16)))
    same = expert_load(moe, SAME, tokens, 1).touched
    assert same == active
    assert all(expert_load(moe, other, tokens, 1).touched >= same - 1e-9 for other in (UNIFORM, skewed))


def test_touched_experts_agree_with_random_draws() -> None:
    shares, draw = (0.5, 0.2, 0.1, 0.1, 0.05, 0.05), random.Random(0)
    touched = [len(set(draw.choices(range(6), shares, k=5))) for _ in range(20_000)]
    load = expert_load(layer(6, 1), Routing("counts.csv", shares), 5, 1)
    assert load.touched == pytest.approx(sum(touched) / len(touched), rel=0.02)


def test_the_load_is_that_of_the_gpu_with_the_most_pairs() -> None:
    load = expert_load(layer(4, 1), Routing("counts.csv", (0.1, 0.1, 0.5, 0.3)), 100, 2)
    assert load.pairs == pytest.approx(80)  # experts 2 and 3
    assert load.touched == pytest.approx(2)


@pytest.mark.parametrize("gpus", [1, 2, 4, 8])
@pytest.mark.parametrize("active", [1, 2, 3, 8])
def test_the_same_experts_are_spread_evenly_over_the_gpus_and_the_busiest_is_counted(active: int, gpus: int) -> None:
    """The load equals that of a file with ones for the active experts, spread over the GPUs, and zeros elsewhere."""
    round_robin = [expert for start in range(8 // gpus) for expert in range(start, 8, 8 // gpus)]
    ones = Routing("ones.csv", tuple((expert in round_robin[:active]) / active for expert in range(8)))
    assert expert_load(layer(8, active), SAME, 5, gpus) == expert_load(layer(8, active), ones, 5, gpus)
