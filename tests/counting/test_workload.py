"""Query-key pairs and key positions, compared with an explicit mask.

Routing of tokens to experts: probabilities and the load of one GPU.
"""

from __future__ import annotations

import random
from collections.abc import Mapping

import pytest
import sympy
from hypothesis import given
from hypothesis import strategies as st

from roofmodel.counting.expert_load import choice_probabilities, expert_load
from roofmodel.counting.passes import one_pass
from roofmodel.counting.workload import UNIFORM, Routing, Step, Workload, attended, pairs
from roofmodel.models import hub
from roofmodel.models.layers import MLP, MoE
from roofmodel.options.values import Phase

WIDTHS = Workload(("prefill",)).widths


def step(tokens: int, context: int, attention: str = "flash") -> Step:
    return Step("prefill", 1, tokens, context, attention, 1, WIDTHS)  # type: ignore[arg-type]


def mask(tokens: int, context: int, window: int | None) -> list[list[bool]]:
    """Row by new token, column by key position; True if the token attends to it."""
    return [
        [key <= query and (window is None or query - key < window) for key in range(context + tokens)]
        for query in range(context, context + tokens)
    ]


lengths = st.tuples(st.integers(1, 40), st.integers(0, 40), st.none() | st.integers(1, 50))


@given(lengths)
def test_flash_counts_exactly_the_unmasked_pairs(lengths: tuple[int, int, int | None]) -> None:
    tokens, context, window = lengths
    assert pairs(step(tokens, context), window, causal=True) == sum(map(sum, mask(tokens, context, window)))


@given(lengths)
def test_keys_are_read_if_any_new_token_attends_to_them(lengths: tuple[int, int, int | None]) -> None:
    tokens, context, window = lengths
    columns = zip(*mask(tokens, context, window), strict=True)
    assert attended(step(tokens, context), window) == sum(any(column) for column in columns)


@given(lengths)
def test_eager_attention_counts_every_pair(lengths: tuple[int, int, int | None]) -> None:
    tokens, context, window = lengths
    eager = pairs(step(tokens, context, "eager"), window, causal=True)
    assert eager == tokens * attended(step(tokens, context), window)
    assert eager >= pairs(step(tokens, context), window, causal=True)


@given(st.integers(1, 40))
def test_an_encoder_has_no_mask(tokens: int) -> None:
    assert pairs(step(tokens, 0), None, causal=False) == tokens * tokens


@given(st.integers(1, 40), st.integers(1, 50))
def test_the_window_of_an_encoder_is_bidirectional(tokens: int, window: int) -> None:
    near = sum(abs(query - key) < window for query in range(tokens) for key in range(tokens))
    assert pairs(step(tokens, 0), window, causal=False) == near
    assert pairs(step(tokens, 0, "eager"), window, causal=False) == tokens * tokens


def test_pair_counts_equal_the_documented_closed_forms() -> None:
    seq, context, window = 100, 37, 16
    assert pairs(step(seq, 0), None, causal=True) == seq * (seq + 1) // 2
    assert pairs(step(seq, context), None, causal=True) == seq * context + seq * (seq + 1) // 2
    assert pairs(step(seq, 0), window, causal=True) == window * seq - window * (window - 1) // 2
    assert pairs(step(1, 99), window, causal=True) == window  # decode: min(window, context + 1)
    assert pairs(step(1, 7), window, causal=True) == 8
    # ModernBERT: 64 tokens in each direction and the token itself; each end lacks 64 * 65 / 2 pairs
    assert pairs(step(512, 0), 65, causal=False) == 512 * 129 - 64 * 65


def test_symbolic_pair_counts_equal_the_textbook_formula() -> None:
    s = sympy.Symbol("S", positive=True)
    assert sympy.simplify(pairs(step(s, 0), None, causal=True) - s * (s + 1) / 2) == 0


def test_with_prefill_and_decode_a_given_context_applies_to_the_decode() -> None:
    both = Workload(("prefill", "decode"), seq=64, context=300).steps()
    assert [(s.tokens, s.context) for s in both] == [(64, 0), (1, 300)]
    assert Workload(("prefill",), seq=64, context=300).steps()[0].context == 300
    assert Workload(("decode",), seq=64).steps()[0].context == 64


def attention_sizes(model: str, phase: Phase, tokens: int, context: int) -> list[Mapping[str, int]]:
    """Sizes of the model's attention operators, by kind of layer."""
    found = one_pass(hub.load(model), step(tokens, context)._replace(phase=phase))
    return [operator.sizes for operator in found if operator.name == "attention.flash"]


@pytest.mark.parametrize(
    ("phase", "tokens", "drafts"), [("prefill", 1, None), ("prefill", 4, None), ("decode", 1, None), ("decode", 4, 3)]
)
def test_only_a_decode_of_several_tokens_verifies_drafts(phase: Phase, tokens: int, drafts: int | None) -> None:
    for sizes in attention_sizes("gpt2", phase, tokens, 100):
        assert sizes.get("drafts") == drafts


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


def test_an_expert_drops_what_exceeds_its_capacity() -> None:
    """8 experts, 2 active, 100 tokens: 25 pairs for each expert on average, of which it takes at most `capacity` times
    as many. Without `capacity` no token is dropped."""
    moe = layer(8, 2)
    assert expert_load(moe, SAME, 100, 1).pairs == 2 * 100
    assert expert_load(moe, SAME._replace(capacity=1.2), 100, 1).pairs == pytest.approx(2 * 1.2 * 25)
    assert expert_load(moe, UNIFORM._replace(capacity=1.2), 100, 1) == expert_load(moe, UNIFORM, 100, 1)
    skewed = Routing("counts.csv", (0.5, 0.3, *[0.2 / 6] * 6), capacity=1.0)
    assert expert_load(moe, skewed, 100, 8).pairs == pytest.approx(25)
