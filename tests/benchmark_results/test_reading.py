"""Files of serving benchmarks are recognized by their content and read in base units."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given, settings

import roofmodel
from roofmodel.benchmark_results.reading import are_results, read
from roofmodel.benchmark_results.run import Figures, ServingRun
from roofmodel.errors import ProfileError
from tests.benchmark_results import samples
from tests.profiles.samples import measured, mutilations


def run(text: str, folder: Path, name: str = "any.name") -> ServingRun:
    """The single run of a file with this text, which is recognized."""
    path = folder / name
    path.write_text(text, encoding="utf-8")
    assert are_results([str(path)])
    (found,) = read([str(path)])
    return found


def test_vllm_states_milliseconds_and_totals(tmp_path: Path) -> None:
    found = run(samples.vllm(), tmp_path)
    assert (found.tool, found.engine, found.model) == ("vLLM bench serve", "vllm", "meta-llama/Llama-3.1-8B-Instruct")
    assert found.measured == Figures(0.12, 0.009, 0.04, None, 400.0, 2.0)
    assert (found.isl, found.osl, found.requests) == (1000, 200, 100)  # 100 000 and 20 000 tokens of 100 requests
    assert (found.concurrency, found.request_rate, found.in_flight) == (16, None, 16)  # "inf": no rate
    assert found.latency == pytest.approx(0.12 + 199 * 0.009)  # the first token, and 199 more


def test_requests_in_flight_follow_from_rate_and_latency_where_clients_do_not_wait(tmp_path: Path) -> None:
    """Little's law: 2 requests/s, each 0.12 s + 199 × 9 ms."""
    found = run(samples.vllm(request_rate=2.5, max_concurrency=None), tmp_path)
    assert found.request_rate == 2.5
    assert found.in_flight == pytest.approx(2.0 * (0.12 + 199 * 0.009))


def test_appended_results_and_lists_are_several_runs(tmp_path: Path) -> None:
    lines = [samples.vllm(max_concurrency=n) for n in (1, 8)]
    for text in ("\n".join(lines), f"[{', '.join(lines)}]"):
        (tmp_path / "appended.json").write_text(text, encoding="utf-8")
        assert [each.concurrency for each in read([str(tmp_path / "appended.json")])] == [1, 8]


def test_an_engine_is_named_by_the_backend_only_where_one_engine_has_it(tmp_path: Path) -> None:
    backends = {"vllm": "vllm", "openai-chat": None, "sglang-oai": "sglang", "tensorrt-llm": "trtllm"}
    for backend, engine in backends.items():
        assert run(samples.vllm(backend=backend), tmp_path).engine == engine


def test_inferencex_stores_the_result_of_vllms_client_in_seconds_with_medians() -> None:
    path = measured("bench_results/inferencex_h200_minimax-m2.5_c16.json")
    (found,) = read([str(path)])
    assert (found.tool, found.statistic, found.concurrency) == ("InferenceX", "median", 16)
    assert (found.isl, found.osl) == (8192, 128)  # README of the folder
    assert found.measured.ttft_seconds == 3.4445899594575167
    assert found.measured.itl_p99_seconds is None


def test_a_row_of_inferencex_has_its_layout_and_rates_of_all_gpus(tmp_path: Path) -> None:
    found = run(samples.INFERENCEX_ROW, tmp_path)
    assert (found.engine, found.layout, found.gpu) == ("sglang", {"tp": 1, "ep": 8, "dp": 8}, "h200")
    assert found.measured == Figures(0.5, 0.03, 0.2, 6.47, 8 * 200.0, 8 * 200.0 / 200)  # 200 tokens/s per GPU
    early = {key: value for key, value in json.loads(samples.INFERENCEX_ROW).items() if key not in ("isl", "osl")}
    with pytest.raises(ProfileError, match=r"does not state isl and osl; give the file that the tool writes"):
        run(json.dumps(early), tmp_path)


def test_sglang_states_its_server_and_draws_lengths_from_one_token(tmp_path: Path) -> None:
    found = run(samples.sglang(), tmp_path)
    assert (found.tool, found.model, found.version) == ("SGLang bench_serving", "Qwen/Qwen3-32B", "0.5.14")
    assert found.layout == {"tp": 2, "dp": 4, "pp": 1, "ep": 8}  # tp_size counts the 8 GPUs of 4 replicas
    assert found.longest == (2000, 400)
    assert found.length_ratio == 1 / 400  # a ratio of 0 begins at one token
    assert found.request_rate is None  # Infinity
    assert found.measured == Figures(0.15, 0.009, 0.05, 2.0, 400.0, 2.0)
    other = run(samples.sglang(dataset_name="sharegpt"), tmp_path)
    assert (other.longest, other.length_ratio, other.dataset) == (None, 1.0, "sharegpt")


def test_genai_perf_states_the_time_per_token_of_requests_not_of_gaps() -> None:
    (found,) = read([str(measured("bench_results/genai_perf_a100_llama3-8b_c50.json"))])
    assert (found.tool, found.engine, found.model) == ("genai-perf", "trtllm", "meta/llama3-8b-instruct")
    assert (found.concurrency, found.isl) == (50, 200.03)
    assert found.measured.tpot_seconds == pytest.approx(22.50221791e-3)
    assert found.measured.itl_p99_seconds is None


def test_aiperf_states_gaps_and_the_gpu() -> None:
    (found,) = read([str(measured("bench_results/aiperf_rtx6000ada_qwen3-0.6b_c2.json"))])
    assert (found.tool, found.concurrency, found.gpu) == ("AIPerf", 2, "NVIDIA RTX 6000 Ada Generation")
    assert found.measured.itl_p99_seconds == pytest.approx(21.8145252e-3)
    # 2 clients, whose requests take 3.75 s each, one after the other
    assert found.in_flight == 2
    assert found.measured.requests_per_second == pytest.approx(2 / (found.latency or 0), rel=0.06)


def test_the_csv_of_genai_perf_has_thousands_separators_and_no_load(tmp_path: Path) -> None:
    found = run(samples.GENAI_PERF_CSV, tmp_path)
    assert (found.tool, found.concurrency, found.isl, found.osl) == ("genai-perf", None, 1000, 200)
    assert found.measured == Figures(0.1205, 0.009, None, 2.02421, 1520.68, 7.6)
    assert found.in_flight == pytest.approx(7.6 * 2.02421)


def test_the_csv_of_aiperf_has_the_gaps(tmp_path: Path) -> None:
    found = run(samples.AIPERF_CSV.replace("\n", "\r\n"), tmp_path)
    assert (found.tool, found.requests) == ("AIPerf", 100)
    assert found.measured == Figures(0.12, 0.0091, 0.025, 1.931, 400.0, 2.0)


def test_trtllm_bench_states_latencies_of_tokens_only_with_streaming(tmp_path: Path) -> None:
    found = run(samples.trtllm(), tmp_path)
    assert (found.layout, found.gpu) == ({"tp": 4, "pp": 2}, "NVIDIA H100 80GB HBM3")  # ep_size of -1 is none
    assert found.measured == Figures(0.4, 0.018, None, 4.0, 1580.0, 7.9)
    (plain,) = read([str(measured("bench_results/trtllm_bench_h100_llama-3.1-8b-fp8_c127.json"))])
    assert (plain.version, plain.isl, plain.osl) == ("0.20.0", 12, 256)
    assert plain.measured[:3] == (None, None, None)
    # Little's law, against the file's own mean
    rate, latency = plain.measured.requests_per_second, plain.measured.latency_seconds
    assert rate is not None
    assert latency is not None
    assert plain.in_flight == pytest.approx(rate * latency, rel=1e-3)


def test_files_may_be_compressed_and_named_by_a_pattern(tmp_path: Path) -> None:
    for n in (1, 2):
        (tmp_path / f"{n}.json.gz").write_bytes(gzip.compress(samples.vllm(max_concurrency=n).encode()))
    pattern = str(tmp_path / "*.gz")
    assert are_results([pattern])
    assert [(each.file, each.concurrency) for each in read([pattern])] == [("1.json.gz", 1), ("2.json.gz", 2)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (samples.vllm(mean_ttft_ms="fast"), r"mean_ttft_ms is 'fast'; it must be a number from 0 on"),
        (samples.vllm(mean_ttft_ms=-1), r"mean_ttft_ms is -1; it must be a number from 0 on"),
        (samples.vllm(completed=0), r"this result of vLLM bench serve does not state completed"),
        (samples.vllm(max_concurrency=1.5), r"max_concurrency is 1.5; it must be a whole number"),
        (samples.vllm()[:-20], r"any.name:1: not JSON .*; the file may be incomplete"),
        (samples.trtllm(request_info={"avg_num_concurrent_requests": 3}), r"request_info.avg_input_length"),
        (samples.GENAI_PERF_CSV.replace("120.50", "soon"), r"any.name:2: 'soon' is no number"),
        (json.dumps({"request_latency": {"avg": 1}, "time_to_first_token": {"avg": 3, "unit": "weeks"},
                     "input_sequence_length": {"avg": 9}, "output_sequence_length": {"avg": 9}}),
         r"time_to_first_token has the unit 'weeks'; known: s, sec, seconds, ms, us, ns"),
        ('{"request_throughput": 3}', r"not a result of a serving benchmark; known are those of SGLang"),
    ],
)  # fmt: skip
def test_an_error_names_the_file_the_key_and_what_works(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match=message):
        run(text, tmp_path)


def test_profiles_and_missing_files_are_no_results(tmp_path: Path) -> None:
    (tmp_path / "trace.json").write_text('{"traceEvents": [{"name": "request_throughput"}]}', encoding="utf-8")
    assert not are_results([str(tmp_path / "trace.json"), str(tmp_path / "none.json"), "-", str(tmp_path)])


@pytest.mark.parametrize("text", [samples.vllm(), samples.GENAI_PERF_CSV])
def test_a_command_that_reads_profiles_names_the_one_that_reads_results(text: str, tmp_path: Path) -> None:
    (tmp_path / "result").write_text(text, encoding="utf-8")
    with pytest.raises(ProfileError, match=r"a result of a serving benchmark; for its prediction use roofmodel"):
        roofmodel.read_profile(tmp_path / "result")


SAMPLES = (samples.vllm(), samples.sglang(), samples.GENAI_PERF_CSV, samples.AIPERF_CSV, samples.trtllm())


@pytest.mark.parametrize("sample", SAMPLES)
def test_a_damaged_file_is_refused_or_read(sample: str, tmp_path: Path) -> None:
    path = tmp_path / "damaged"

    @settings(max_examples=60, deadline=None)
    @given(mutilations(sample.encode()))
    def check(data: bytes) -> None:
        path.write_bytes(data)
        try:
            runs = read([str(path)])
        except ProfileError as error:
            if not str(error).startswith("damaged"):
                raise
            return
        assert all(each.isl > 0 and each.osl > 0 for each in runs)

    check()
