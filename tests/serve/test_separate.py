"""Separate engines for prefill and decode: cases by hand, Little's law, a queue's formula, and the rows of a plan."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roofmodel import RoofError, estimate
from roofmodel.devices.device import Device
from roofmodel.models import hub
from roofmodel.plan.queueing import mean_wait
from roofmodel.serve.simulation import ClientLoad, LoopResult, StepSeconds, simulate
from tests.plan.searching import plan

ENDLESS = 10**6
DECODE, PREFILL, TRANSFER = 0.01, 0.1, 0.007


def of_decodes(b: int, context: float, tokens: int, pairs: float) -> float:
    assert not tokens
    return DECODE + 2e-4 * b


def of_prompts(b: int, context: float, tokens: int, pairs: float) -> float:
    assert not b
    return PREFILL


def served(seconds: StepSeconds = of_decodes, prompts: StepSeconds = of_prompts, **changed: Any) -> LoopResult:
    values = {
        "sequences": 1, "isl": 1000, "osl": 11, "budget": ENDLESS, "chunk": 1000, "most": ENDLESS, "prefillers": 1,
        "most_prompts": ENDLESS, "transfer": TRANSFER, **changed,
    }  # fmt: skip
    return simulate(ClientLoad(**values), seconds, prompts)


def test_the_first_token_of_one_client_follows_its_chunks_and_the_transfer() -> None:
    found = served(chunk=500)
    assert found.ttft == pytest.approx(2 * PREFILL + TRANSFER)
    assert found.tpot == pytest.approx(DECODE + 2e-4)
    assert found.latency == pytest.approx(found.ttft + 10 * found.tpot)  # the prefill gives the first of 11 tokens
    assert found.waiting == 0
    assert found.prefill_busy == pytest.approx(2 * PREFILL / found.latency)


def test_prefill_engines_that_limit_the_rate_are_always_busy() -> None:
    """50 clients, of which few decode at a time: 3 engines compute a prompt each in 0.1 s."""
    found = served(sequences=50, prefillers=3)
    assert found.prefill_busy == pytest.approx(1, rel=0.01)
    assert 50 / found.latency == pytest.approx(3 / PREFILL, rel=0.02)


def test_with_prefill_engines_for_all_only_the_decodes_remain() -> None:
    """16 clients and as many prefill engines: nobody waits for one; two engines decode 8 sequences each at most."""
    found = served(sequences=16, prefillers=64, decoders=2, osl=401, transfer=0.0)
    assert found.tpot == pytest.approx(DECODE + 2e-4 * found.decodes, rel=0.02)
    assert 7 < found.decodes <= 8
    assert found.ttft == pytest.approx(PREFILL + found.tpot / 2, rel=0.05)  # and half of the running step


def test_a_decode_engine_without_a_free_place_delays_the_first_token() -> None:
    """One place, three clients: two wait for 10 decodes each, while prefills and transfers overlap with decodes."""
    found = served(sequences=3, most=1, osl=101, prefillers=3)
    own = 100 * (DECODE + 2e-4)
    assert found.tpot == pytest.approx(DECODE + 2e-4)
    assert found.latency == pytest.approx(3 * own, rel=0.01)
    assert found.waiting == pytest.approx(found.ttft - PREFILL - TRANSFER)


@settings(deadline=None, max_examples=25)
@given(
    sequences=st.integers(1, 40), isl=st.integers(1, 3000), osl=st.integers(2, 200), chunk=st.integers(50, 4000),
    most=st.integers(1, 50), prefillers=st.integers(1, 5), decoders=st.integers(1, 5), transfer=st.floats(0, 0.5),
    shortest=st.sampled_from([1.0, 0.5]), outside=st.floats(0, 0.2), most_prompts=st.integers(1, 8),
)  # fmt: skip
def test_littles_law(sequences: int, **values: Any) -> None:
    """Requests in flight = completed requests per second × mean latency."""
    found = served(sequences=sequences, **values)
    rate = found.requests / found.counted_seconds
    assert rate * found.latency == pytest.approx(sequences, rel=0.12)
    assert 0 <= found.waiting < found.ttft <= found.latency
    assert found.prefill_busy is not None
    assert 0 < found.prefill_busy <= 1


@pytest.mark.parametrize("number", [1, 4])
def test_random_arrivals_wait_for_prefill_engines_as_in_a_plan(number: int) -> None:
    """M/D/c with a load of 0.7: the queue of the engine with the fewest prompts is about as short as a common one."""
    rate = 0.7 * number / PREFILL
    found = served(rate=rate, prefillers=number, sequences=20, transfer=0.0, decoders=20)
    before_decode = DECODE  # at most a step passes before a decode engine takes a sequence
    assert found.waiting == pytest.approx(float(mean_wait(rate, number, PREFILL)), rel=0.15, abs=before_decode)


MODEL, LENGTHS = "llama-3.1-8b", {"isl": 2048, "osl": 64}


def totals(**options: Any) -> dict[str, Any]:
    given = {"concurrency": 4, "dtype": "bf16", "kv": "bf16", "prefill": "tp=1", "decode": {"tp": 1}, **LENGTHS}
    return estimate(MODEL, "h100", phase="serve", **{**given, **options}).totals["serve"]  # type: ignore[arg-type]


def test_a_row_of_a_plan_and_an_estimate_of_its_layout_agree() -> None:
    """One request at a time has the plan's first token; with as many as its batch in decode, its TPOT and rate."""
    row = plan(
        hub.load(MODEL), [Device.load("h100")], gpus=3, mode="disaggregated", dtype="bf16", kv="bf16", tp=1, pp=1,
        tpot="9ms", ttft="300ms", **LENGTHS,
    ).ranked[0].candidate  # fmt: skip
    assert row.prefill is not None
    engines = {"prefill_engines": row.prefill.layout.engines, "decode_engines": row.layout.engines}
    alone = totals(concurrency=1, **engines)
    assert alone["transfer_seconds"] == pytest.approx(row.prefill.transfer)
    if row.prefill.batch == 1:
        assert alone["ttft_seconds"] == pytest.approx(row.ttft.value, rel=0.03)
    per_engine = row.requests.value * (LENGTHS["osl"] - 1) * row.tpot.value
    found = totals(concurrency=round(per_engine + row.requests.value * row.ttft.value * 3), **engines)
    assert found["tpot_seconds"] == pytest.approx(row.tpot.value, rel=0.06)
    assert found["requests_per_second"] == pytest.approx(row.requests.value, rel=0.06)


def test_the_layout_counts_gpus_and_pipelines_have_no_empty_stages() -> None:
    one = totals(concurrency=32)
    staged = totals(concurrency=32, prefill={"pp": 2})
    assert one["output_tokens_per_second"] == pytest.approx(2 * one["output_tokens_per_second_per_gpu"])
    assert staged["output_tokens_per_second"] == pytest.approx(3 * staged["output_tokens_per_second_per_gpu"])
    # prefill limits both; two stages compute two prompts in about the time in which one GPU computes one
    assert one["prefill_busy_share"] == pytest.approx(1, rel=0.01)
    assert staged["requests_per_second"] == pytest.approx(2 * one["requests_per_second"], rel=0.1)


def test_prefill_engines_limit_a_service_where_more_of_them_raise_its_rate() -> None:
    """Of 2048 prompt tokens and 64 new ones, one prefill engine is too slow for a decode engine, and eight are not."""

    def limit(prefill_engines: int) -> str:
        found = estimate(
            MODEL, "h100", phase="serve", concurrency=32, dtype="bf16", kv="bf16", prefill="tp=1", decode="tp=1",
            prefill_engines=prefill_engines, **LENGTHS,
        )  # fmt: skip
        return next(line for line in found.text("markdown").splitlines() if "limited by" in line)

    rates = [totals(concurrency=32, prefill_engines=n)["requests_per_second"] for n in (1, 2)]
    assert rates[1] > 1.8 * rates[0]
    assert "prefill engines, which are always busy" in limit(1)
    assert "prefill engines" not in limit(8)


def test_random_arrivals_have_a_limit_set_by_the_slower_kind_of_engines() -> None:
    few, many = (totals(concurrency=None, requests=2, prefill_engines=n)["max_requests_per_second"] for n in (1, 2))
    assert many == pytest.approx(2 * few, rel=0.05)  # prompts of 2048 tokens, 64 new ones: prefill limits
    pairs = totals(concurrency=None, requests=2, prefill_engines=3, decode_engines=3)
    assert pairs["max_requests_per_second"] == pytest.approx(3 * few, rel=1e-6)  # the capacity of a pair, three times
    with pytest.raises(RoofError, match=r"try requests=.* or more prefill_engines or decode_engines"):
        totals(concurrency=None, requests=1000)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"decode": None}, 'prefill="tp=1" needs decode; try decode="tp=4"'),
        ({"prefill": None}, "needs prefill"),
        ({"prefill": None, "decode": None, "prefill_engines": 2}, "prefill_engines=2 needs prefill"),
        ({"prefill": "tp=2,xp=4"}, "'xp' is none of tp, pp, ep and dp"),
        ({"prefill": "tp=two"}, "tp is 'two'; it must be a whole number from 1 to 1024"),
        ({"prefill": {"tp": 0}}, "tp is 0; it must be a whole number from 1 to 1024"),
        ({"prefill": "tp=1,tp=2"}, "tp is given twice"),
        ({"prefill": ""}, "is empty; try"),
        ({"tp": 2}, "tp=2 does not apply to separate engines; state it in prefill and decode"),
        ({"replicas": 2}, "replicas=2 does not apply to separate engines"),
        ({"prefill_engines": 0}, "prefill_engines is 0; it must be a whole number from 1"),
        ({"prefill": "tp=3"}, "tp=3: "),
    ],
)
def test_invalid_combinations_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(RoofError) as raised:
        totals(**options)
    assert message in str(raised.value)


@pytest.mark.parametrize("sizes", [{"tp": 4, "ep": 8}, {"tp": 4, "dp": 3, "ep": 8}])
def test_a_service_shares_experts_by_the_rule_of_all_phases(sizes: dict[str, int]) -> None:
    """A batch of 24 is divisible by all replicas that the messages suggest."""
    model, layout = "qwen3-235b-a22b", ",".join(f"{name}={size}" for name, size in sizes.items())
    given: list[dict[str, Any]] = [
        {"phase": "decode", "batch": 24, **sizes},
        {"phase": "serve", "concurrency": 24, **LENGTHS, **sizes},
        {"phase": "serve", "concurrency": 24, **LENGTHS, "prefill": "tp=8", "decode": layout},
    ]
    messages = set()
    for options in given:
        with pytest.raises(RoofError) as raised:
            estimate(model, "h200", **options)
        messages.add(str(raised.value))
    assert len(messages) == 1, messages


def test_ep_is_ignored_without_experts() -> None:
    sizes: dict[str, Any] = {"phase": "serve", "concurrency": 4, **LENGTHS, "tp": 2}
    without, ignored = (estimate(MODEL, "h100", **sizes, **ep) for ep in ({}, {"ep": 8}))
    assert without.totals == ignored.totals
    assert any("ep is ignored" in str(note) for note in ignored.notes)
