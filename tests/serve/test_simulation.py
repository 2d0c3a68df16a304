"""The simulation of a closed loop: cases by hand, Little's law, the formula of docs/howto/plan.md."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roofmodel.serve.simulation import ClientLoad, LoopResult, StepSeconds, gap_at, simulate

ENDLESS = 10**6


def constant(decode: float, prefill: float, decodes: float = 0.0, token: float = 0.0) -> StepSeconds:
    """A step takes `decode`, or `prefill` with prompt tokens; and so much for each decode and each prompt token."""
    return lambda b, context, tokens, pairs: (prefill if tokens else decode) + decodes * b + token * tokens


def load(**changed: object) -> ClientLoad:
    values = {"sequences": 1, "isl": 1000, "osl": 11, "budget": ENDLESS, "chunk": ENDLESS, "most": ENDLESS, **changed}
    return ClientLoad(**values)  # type: ignore[arg-type]


def test_one_client_waits_for_its_chunks_and_its_decodes() -> None:
    found = simulate(load(chunk=500), constant(0.01, 0.1))
    assert found.ttft == pytest.approx(2 * 0.1)  # chunks of 500 tokens
    assert found.tpot == pytest.approx(0.01)
    assert found.latency == pytest.approx(2 * 0.1 + 10 * 0.01)  # the prefill gives the first of 11 tokens
    ((gap, _),) = found.gaps
    assert gap == pytest.approx(0.01)
    assert found.first_ttft == pytest.approx(0.2)


def test_time_outside_the_steps_is_part_of_ttft_and_keeps_the_engine_idle() -> None:
    found = simulate(load(outside=0.05), constant(0.01, 0.1))
    assert found.ttft == pytest.approx(0.05 + 0.1, rel=0.03)  # the mean of 400 requests
    assert found.waiting == pytest.approx(0, abs=1e-12)
    assert found.requests / found.counted_seconds == pytest.approx(1 / (0.05 + 0.1 + 10 * 0.01), rel=0.03)


def test_a_request_waits_for_half_of_the_running_step_on_average() -> None:
    """With 20 requests in flight of 200 steps each, a step always runs; prompts take no time of their own."""
    found = simulate(load(sequences=20, isl=1, osl=201, outside=0.123), constant(0.01, 0.01))
    assert found.waiting == pytest.approx(0.01 / 2, rel=0.1)


def test_an_engine_that_computes_prompts_first_serves_requests_of_equal_lengths_in_waves() -> None:
    """Two prompts of 1 s each, then ten decodes of 0.1 s for both: a wave takes 3 s."""
    found = simulate(load(sequences=2, chunk=1000, prompts_first=True), constant(0.1, 1.0))
    assert found.ttft == pytest.approx((1 + 2) / 2)
    assert found.tpot == pytest.approx(((3 - 1) / 10 + (3 - 2) / 10) / 2)
    assert found.latency == pytest.approx(3)
    first, longest = found.gaps
    assert first[0] == pytest.approx(0.1)
    assert longest[0] == pytest.approx(1.1)  # the first request waits for the prompt of the second one
    assert longest[1] / first[1] == pytest.approx(1 / 19)  # 20 gaps in a wave
    assert found.gap(0.9) == pytest.approx(0.1)
    assert found.gap(0.99) == pytest.approx(1.1)


def test_requests_without_a_place_wait_for_those_before_them() -> None:
    """One place, three clients: each request waits for two others, which take 0.2 s each."""
    found = simulate(load(sequences=3, most=1), constant(0.01, 0.1))
    assert found.waiting == pytest.approx(2 * 0.2)
    assert found.latency == pytest.approx(3 * 0.2)
    assert found.decodes == 1


def test_a_decode_step_with_two_tokens_on_average_halves_the_steps() -> None:
    found = simulate(load(accepted=2.0, verified=4), constant(0.01, 0.1))
    assert found.latency == pytest.approx(0.1 + 5 * 0.01)
    assert found.tpot == pytest.approx(5 * 0.01 / 10)


def test_decodes_take_tokens_of_the_budget() -> None:
    """With 7 of 10 tokens used by decodes, a prompt of 9 tokens takes three steps of at most 3 and more."""
    sizes: list[tuple[int, int]] = []

    def step(b: int, context: float, tokens: int, pairs: float) -> float:
        sizes.append((b, tokens))
        return 1.0

    simulate(load(sequences=8, isl=9, osl=40, budget=10), step)
    assert all(b + tokens <= 10 for b, tokens in sizes if tokens)
    assert max(b for b, _ in sizes) == 8


@given(st.integers(1, 400), st.integers(1, 100), st.floats(0, 0.95))
def test_the_chunks_of_a_prompt_have_its_tokens_and_its_query_key_pairs(isl: int, chunk: int, cached: float) -> None:
    computed: list[tuple[int, float]] = []

    def step(b: int, context: float, tokens: int, pairs: float) -> float:
        if tokens:
            computed.append((tokens, pairs))
        return 1.0

    simulate(load(isl=isl, osl=2, chunk=chunk, cached=cached), step)
    in_cache = min(int(cached * isl), isl - 1)
    new, parts = isl - in_cache, -(-(isl - in_cache) // chunk)
    of_one = computed[:parts]
    assert sum(tokens for tokens, _ in of_one) == new
    assert sum(pairs for _, pairs in of_one) == pytest.approx(new * in_cache + new**2 / 2)
    assert max(tokens for tokens, _ in of_one) <= chunk


@settings(deadline=None, max_examples=60)
@given(
    sequences=st.integers(1, 40), isl=st.integers(1, 3000), osl=st.integers(2, 200), chunk=st.integers(50, 4000),
    most=st.integers(1, 50), shortest=st.sampled_from([1.0, 0.8, 0.3]), first=st.booleans(),
    outside=st.floats(0, 0.2), accepted=st.floats(1, 4),
)  # fmt: skip
def test_littles_law(sequences: int, first: bool, **values: object) -> None:
    """Requests in flight = completed requests per second × mean latency."""
    found = simulate(load(sequences=sequences, prompts_first=first, **values), constant(0.01, 0.02, 2e-4, 1e-5))
    rate = found.requests / found.counted_seconds
    # requests at both ends of the window are in it with a part of their latency
    assert rate * found.latency == pytest.approx(sequences, rel=0.12)
    if values["shortest"] == 1:
        assert found.latency == pytest.approx(found.ttft + (int(str(values["osl"])) - 1) * found.tpot)
    assert found.gap(0.5) <= found.gap(0.99) <= found.gaps[-1][0]


@pytest.mark.parametrize("sequences", [4, 32, 128])
@pytest.mark.parametrize(("isl", "osl"), [(200, 101), (2000, 301)])
def test_the_simulation_agrees_with_the_formula_of_the_steady_state(sequences: int, isl: int, osl: int) -> None:
    """docs/howto/plan.md: b sequences decode in a mean step of T = t(b, 0) + P dt/dP, with P = b isl / (osl - 1)
    prompt tokens; b of the n requests in flight decode, the others are in their prefill: n = b + rate × TTFT."""
    decode, per_sequence, per_token = 0.02, 1e-4, 2e-6
    found = simulate(load(sequences=sequences, isl=isl, osl=osl), constant(decode, decode, per_sequence, per_token))
    decoding = sequences * (1 - found.ttft / found.latency)
    assert found.decodes == pytest.approx(decoding, rel=0.03)
    mean = decode + per_sequence * decoding + per_token * decoding * isl / (osl - 1)
    own = (1 - 1 / decoding) if decoding > 1 else 0  # a request does not wait for its own prompt
    alone = decode + per_sequence * decoding
    assert found.tpot == pytest.approx(alone + own * (mean - alone), rel=0.03)
    assert sequences / found.latency == pytest.approx(decoding / ((osl - 1) * found.tpot), rel=0.03)


def test_the_99th_percentile_is_the_smallest_gap_that_99_of_100_do_not_exceed() -> None:
    assert gap_at([(1.0, 99), (5.0, 1)], 0.99) == 1
    assert gap_at([(1.0, 98), (5.0, 2)], 0.99) == 5


def test_drawn_lengths_have_the_mean_of_their_range() -> None:
    """Without any wait, the mean latency is linear in the mean lengths: 0.75 of the longest."""
    found: LoopResult = simulate(load(isl=1000, osl=401, shortest=0.5), constant(0.01, 0.0, token=1e-3))
    assert found.latency == pytest.approx(0.75 * 1000 * 1e-3 + (0.75 * 401 - 1) * 0.01, rel=0.02)


@pytest.mark.parametrize("load_factor", [0.3, 0.6, 0.8])
def test_one_place_and_random_arrivals_are_the_queue_m_d_1(load_factor: float) -> None:
    """With one place, each request takes S = 0.1 + 10 × 0.01 s. The mean wait of M/D/1 is ρ S / (2 (1 - ρ))."""
    service = 0.1 + 10 * 0.01
    found = simulate(load(most=1, rate=load_factor / service), constant(0.01, 0.1))
    assert found.waiting == pytest.approx(load_factor * service / (2 * (1 - load_factor)), rel=0.1)
    assert found.latency == pytest.approx(found.waiting + service)
    assert found.requests / found.counted_seconds == pytest.approx(load_factor / service, rel=0.05)


def test_rare_requests_do_not_meet() -> None:
    found = simulate(load(outside=0.05, rate=1e-3), constant(0.01, 0.1))
    assert found.latency == pytest.approx(0.05 + 0.1 + 10 * 0.01, rel=1e-3)
    assert found.decodes == pytest.approx(1, rel=1e-3)
