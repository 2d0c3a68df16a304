"""Query-key pairs and key positions, compared with an explicit mask."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import sympy
from hypothesis import given
from hypothesis import strategies as st

from roofmodel.counting.passes import one_pass
from roofmodel.counting.workload import Step, Workload, attended, pairs
from roofmodel.models import hub
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
