"""`--phase serve`: the times of a service, against each other, against a plan's formula and against what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from roofmodel import RoofError, estimate

REQUESTS: dict[str, Any] = {"isl": 512, "osl": 128}


def totals(hw: str = "h100", model: str = "llama-3.1-8b", **options: Any) -> dict[str, Any]:
    return estimate(model, hw, phase="serve", **{"concurrency": 32, **REQUESTS, **options}).totals["serve"]


@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm"])
@pytest.mark.parametrize("concurrency", [1, 3, 100])
def test_the_bound_is_below_the_interval_and_the_interval_contains_the_expected_value(
    engine: str, concurrency: int
) -> None:
    found = totals(engine=engine, concurrency=concurrency)
    for name in ("ttft", "tpot", "itl_p99", "latency"):
        low, high = (found[f"expected_{end}_{name}_seconds"] for end in ("low", "high"))
        assert 0 < found[f"bound_{name}_seconds"] <= low <= found[f"{name}_seconds"] <= high


def test_the_energy_of_a_token_contains_the_prompts() -> None:
    """All GPUs draw their power while they compute: watts x GPUs / tokens per second, without pauses of the clients."""
    found = totals(tp=2, isl=4096)
    drawn = found["power_watts"] * 2 / found["output_tokens_per_second"]
    assert 0.9 * drawn < found["joules_per_token"] < drawn
    assert found["joules_per_token"] > 1.3 * found["energy_joules"] * 2 / 32  # of a step without prompts
    assert totals(hw="a100")["joules_per_token"] is None  # no power in its file


def test_a_single_client_sees_a_prefill_and_decodes() -> None:
    """One request at a time: the latencies of the two phases alone, with the mean context of the decodes."""
    found = totals(concurrency=1, sustained="off")
    prefill = estimate("llama-3.1-8b", "h100", phase="prefill", seq=512).totals["prefill"]
    decode = estimate("llama-3.1-8b", "h100", phase="decode", context=512 + 64).totals["decode"]
    host = 20e-3 + 3e-6 * 512  # vllm.yaml: of a request, and of each token of its prompt
    assert found["ttft_seconds"] == pytest.approx(prefill["expected_seconds"] + host, rel=0.03)  # mean of 400 requests
    assert found["tpot_seconds"] == pytest.approx(decode["expected_seconds"], rel=0.01)
    assert found["itl_p99_seconds"] == pytest.approx(decode["expected_seconds"], rel=0.03)
    assert found["latency_seconds"] == pytest.approx(found["ttft_seconds"] + 127 * found["tpot_seconds"])


def test_replicas_serve_their_parts_of_the_requests() -> None:
    one, three = totals(), totals(replicas=3, concurrency=96)
    independent = totals(dp=3, concurrency=96)
    for found in (three, independent):
        for name in ("ttft_seconds", "tpot_seconds", "itl_p99_seconds", "output_tokens_per_second_per_gpu"):
            assert found[name] == pytest.approx(one[name])
        assert found["requests_per_second"] == pytest.approx(3 * one["requests_per_second"])


def test_an_uneven_number_of_requests_is_between_two_even_ones() -> None:
    few, some, many = (totals(replicas=2, concurrency=n)["tpot_seconds"] for n in (32, 33, 34))
    assert few < some < many


def test_the_first_requests_wait_for_each_others_prompts() -> None:
    """One in ten of the requests of a closed loop: at concurrency 1 it waits for nobody; at 64 for half of 32768 prompt
    tokens on average. Arrivals at random have no first requests."""
    alone, many = totals(concurrency=1), totals(concurrency=64)
    assert alone["first_ttft_seconds"] == pytest.approx(alone["ttft_seconds"], rel=0.02)
    prefill = estimate("llama-3.1-8b", "h100", phase="prefill", seq=512, batch=16).totals["prefill"]
    assert many["first_ttft_seconds"] == pytest.approx(2.5 * prefill["expected_seconds"] + 0.0215, rel=0.15)
    assert many["ttft_seconds"] > 0.1 * many["first_ttft_seconds"]
    crowded = totals(concurrency=64, max_seqs=8)  # most requests wait for one of 8 places
    assert crowded["ttft_seconds"] > crowded["wait_seconds"] > 0.9 * crowded["ttft_seconds"]
    assert at_rate(1)["first_ttft_seconds"] is None


def test_only_some_engines_reserve_room_for_the_whole_answer() -> None:
    """Of 2048 + 4096 tokens, half of the answers is in the KV cache on average: 6144 / 4096 as many requests run."""
    options: dict[str, Any] = {"isl": 2048, "osl": 4096, "concurrency": 200, "max_seqs": 1000}
    for engine, more in (("vllm", 1.5), ("sglang", 1.5), ("trtllm", 1.0)):
        report = estimate("llama-3.1-8b", "h100", phase="serve", engine=engine, **options)
        places = report.totals["serve"]["max_running_requests"]
        assert places == pytest.approx(more * report.to_dict()["memory"]["max_concurrency"], rel=0.02), engine


def test_requests_beyond_the_kv_cache_wait() -> None:
    """Of 30,000 tokens each, an H100 with 15 GiB of weights has about 15 at a time; others only add to TTFT."""
    report = estimate("llama-3.1-8b", "h100", phase="serve", concurrency=40, isl=30000, osl=64)
    found, memory = report.totals["serve"], report.to_dict()["memory"]
    assert found["max_running_requests"] == int(memory["max_concurrency"])
    assert found["decodes_per_step"] <= found["max_running_requests"] < 40
    more = totals(concurrency=80, isl=30000, osl=64)
    assert more["requests_per_second"] == pytest.approx(found["requests_per_second"], rel=0.03)
    assert more["wait_seconds"] > 2 * found["wait_seconds"] > 0


def at_rate(requests: float | str, **options: Any) -> dict[str, Any]:
    return estimate("llama-3.1-8b", "h100", phase="serve", requests=requests, **REQUESTS, **options).totals["serve"]


def test_rare_random_arrivals_are_a_single_client() -> None:
    alone, rare = totals(concurrency=1), at_rate("1/h")
    assert rare["requests_per_second"] == 1 / 3600
    for name in ("tpot_seconds", "itl_p99_seconds", "latency_seconds"):
        assert rare[name] == pytest.approx(alone[name], rel=0.02)


def test_the_closed_loop_at_its_limit_is_the_most_that_an_open_one_serves() -> None:
    """A rate below it is served, with a wait that grows towards it; a rate above it is refused."""
    most = at_rate(1)["max_requests_per_second"]
    running = at_rate(1)["max_running_requests"]
    closed = estimate("llama-3.1-8b", "h100", phase="serve", concurrency=running, **REQUESTS).service
    assert closed is not None
    assert running / closed.loop.latency == pytest.approx(most)
    half, near = at_rate(0.5 * most), at_rate(0.97 * most)
    for found in (half, near):
        in_flight = found["requests_per_second"] * found["latency_seconds"]
        assert in_flight < running
    assert half["tpot_seconds"] < near["tpot_seconds"]
    assert near["expected_high_ttft_seconds"] is near["expected_high_latency_seconds"] is None  # more than is served
    assert near["expected_low_ttft_seconds"] <= near["ttft_seconds"]
    with pytest.raises(RoofError, match="the wait would grow without end"):
        at_rate(1.001 * most)
    assert at_rate(1.001 * most, replicas=2)["ttft_seconds"] < near["ttft_seconds"]


def test_an_open_loop_has_about_the_requests_in_flight_of_a_closed_one_of_its_rate() -> None:
    closed = totals(concurrency=64)
    found = at_rate(closed["requests_per_second"])
    assert found["requests_per_second"] * found["latency_seconds"] == pytest.approx(64, rel=0.15)
    assert found["tpot_seconds"] == pytest.approx(closed["tpot_seconds"], rel=0.1)


def test_a_prefix_cache_shortens_ttft_and_a_draft_tpot() -> None:
    plain = totals(isl=8000)
    assert totals(isl=8000, prefix_hit=0.9)["ttft_seconds"] < 0.5 * plain["ttft_seconds"]
    large = totals(model="llama-3.1-70b", tp=8, concurrency=2)
    drafted = totals(model="llama-3.1-70b", tp=8, concurrency=2, draft="llama-3.2-1b", acceptance=1.0, draft_tokens=3)
    never = totals(model="llama-3.1-70b", tp=8, concurrency=2, draft="llama-3.2-1b", acceptance=0.0, draft_tokens=3)
    assert drafted["tpot_seconds"] < large["tpot_seconds"] < never["tpot_seconds"]
    assert never["tpot_seconds"] == pytest.approx(4 * drafted["tpot_seconds"], rel=0.1)  # 1 token per step, not 4


def test_smaller_chunks_shorten_the_longest_gap_and_lengthen_ttft() -> None:
    large, small = totals(isl=8000), totals(isl=8000, chunk=512)
    assert small["largest_itl_seconds"] < 0.5 * large["largest_itl_seconds"]
    assert small["ttft_seconds"] > large["ttft_seconds"]


def test_prompts_first_gives_few_long_gaps() -> None:
    """SGLang computes the prompts of a wave before its decodes, so that few gaps are long but these are longer."""
    mixed, first = totals(engine="vllm", osl=1024), totals(engine="sglang", osl=1024)
    assert first["largest_itl_seconds"] > mixed["largest_itl_seconds"]
    assert first["itl_p99_seconds"] < mixed["itl_p99_seconds"]


def test_a_device_without_calibration_has_bounds_only() -> None:
    found = totals("mi300x")
    assert found["ttft_seconds"] is found["output_tokens_per_second"] is None
    assert found["bound_tpot_seconds"] > 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"concurrency": 4}, 'concurrency=4 needs phase="serve"'),
        ({"phase": "serve", "concurrency": 4}, 'phase="serve" needs isl; try concurrency=4 isl=1024'),
        ({"phase": "serve", "concurrency": 4, **REQUESTS, "batch": 4}, 'batch=4 does not apply to phase="serve"'),
        ({"phase": "serve", "concurrency": 4, **REQUESTS, "new_tokens": 4}, "new_tokens=4 does not apply"),
        ({"phase": "serve", "concurrency": 4, **REQUESTS, "loader": "1ms"}, 'loader="1ms" does not apply'),
        ({"phase": "serve", "concurrency": 4, **REQUESTS, "prefix_hit": 2.0}, "it must be a number from 0 to 1"),
        ({"phase": "serve", "concurrency": 4, **REQUESTS, "length_ratio": 0}, "above 0 and at most 1, such as 0.9"),
        ({"phase": "serve", "concurrency": 4, **REQUESTS, "acceptance": 0.5}, "acceptance=0.5 needs a draft model"),
        ({"phase": "serve", "concurrency": 4, **REQUESTS, "max_len": 600}, "max_len=600 is shorter than a request"),
        (
            {"phase": "serve", "concurrency": 4, **REQUESTS, "requests": 2},
            "concurrency and requests exclude each other",
        ),
        ({"phase": "serve", "requests": 2, "isl": 8}, 'phase="serve" needs osl; try requests=2 isl=8 osl=1024'),
        ({"phase": "serve", "requests": "2/week", **REQUESTS}, "requests: '2/week' is no rate; try"),
        ({"phase": "serve", "requests": 1000, **REQUESTS}, "the wait would grow without end; try requests="),
        ({"phase": "serve", "concurrency": 900, "isl": 30000, "osl": 64, "chunk": 1}, "more than 1000000 steps"),
        ({"phase": "serve", "concurrency": 0, **REQUESTS}, "concurrency is 0; it must be a whole number from 1"),
    ],
)
def test_what_a_service_does_not_have_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(RoofError) as raised:
        estimate("llama-3.1-8b", "h100", **options)
    assert message in str(raised.value)


def test_a_model_that_does_not_fit_is_refused_with_what_would_work() -> None:
    with pytest.raises(RoofError, match=r"does not fit: no request of 640 tokens .* on 1 GPU; try more tp or weights"):
        totals(model="llama-3.1-70b")


def test_the_document_has_the_keys_of_the_contract() -> None:
    report = estimate("llama-3.1-8b", "h100", phase="serve", concurrency=8, **REQUESTS)
    (phase,) = report.to_dict()["phases"]
    assert phase["phase"] == "serve"
    assert report.to_dict()["workload"]["concurrency"] == 8
    latencies = ("ttft_seconds", "tpot_seconds", "itl_p99_seconds", "latency_seconds")
    prefixes = ("", "expected_low_", "expected_high_", "bound_")
    assert {f"{prefix}{name}" for name in latencies for prefix in prefixes} <= phase["totals"].keys()
    assert {
        "output_tokens_per_second", "output_tokens_per_second_per_gpu", "tokens_per_second_per_user",
        "requests_per_second", "host_seconds_per_step",
    } <= phase["totals"].keys()  # fmt: skip
    decode = estimate("llama-3.1-8b", "h100", phase="decode", batch=8, context=512 + 64, sustained="on")
    assert [op["name"] for op in phase["ops"]] == [op["name"] for op in decode.to_dict()["phases"][0]["ops"]]
    assert set(report.to_frame()["phase"]) == {"serve"}
