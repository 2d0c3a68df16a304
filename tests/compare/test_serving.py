"""`roof compare` for results of serving benchmarks: measured figures beside those of `--phase serve`, and the terms."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import roofmodel
from roofmodel.compare.command import ServingReport
from roofmodel.engines.engine import Engine
from roofmodel.engines.engine_file import Host
from roofmodel.errors import RoofError, WorkloadError
from tests.benchmark_results import samples
from tests.profiles.samples import measured
from tests.test_cli_measured import roof

KEYS = {"ttft_seconds", "tpot_seconds", "itl_p99_seconds", "output_tokens_per_second", "requests_per_second"}
SIZES: dict[str, Any] = {"isl": 1000, "osl": 200}
estimate = partial(roofmodel.estimate, "llama-3.1-8b", "h100", phase="serve", **SIZES)


def result(folder: Path, name: str = "r.json", **replaced: object) -> str:
    """A file of `vllm bench serve`."""
    path = folder / name
    path.write_text(samples.vllm(**replaced), encoding="utf-8")
    return str(path)


def predicted(
    folder: Path, concurrency: int, change: Callable[[dict[str, float]], dict[str, float]], **options: Any
) -> str:
    """A file that states the expected figures of a service, changed; each client sent ten requests."""
    found = estimate(concurrency=concurrency, **options).totals["serve"]
    figures = change({"ttft": found["ttft_seconds"], "tpot": found["tpot_seconds"]})
    latency = figures["ttft"] + 199 * figures["tpot"]
    rate, requests = concurrency / latency, 10 * concurrency
    return result(
        folder, f"{concurrency}.json", max_concurrency=concurrency, completed=requests,
        total_input_tokens=1000 * requests, total_output_tokens=200 * requests, request_throughput=rate,
        output_throughput=200 * rate, mean_ttft_ms=1e3 * figures["ttft"], mean_tpot_ms=1e3 * figures["tpot"],
    )  # fmt: skip


def compared(*files: str, **options: Any) -> list[dict[str, Any]]:
    report = roofmodel.compare("llama-3.1-8b", *files, **{"hw": "h100", **options})
    assert isinstance(report, ServingReport)
    document = report.to_dict()
    assert document["schema"] == "roofmodel.serving/1"
    runs: list[dict[str, Any]] = document["runs"]
    return runs


def terms(run: dict[str, Any]) -> list[tuple[str, str]]:
    return [(each["term"], each["quantity"]) for each in run["differences"]]


def test_a_run_as_expected_has_no_differences_and_the_figures_of_an_estimate(tmp_path: Path) -> None:
    (run,) = compared(predicted(tmp_path, 16, dict))
    found = estimate(concurrency=16).totals["serve"]
    assert run["differences"] == []
    for name in ("ttft", "tpot", "itl_p99", "latency"):
        assert run["expected"][f"{name}_seconds"] == pytest.approx(found[f"{name}_seconds"], rel=1e-4)
        assert run["expected"][f"{name}_low_seconds"] == pytest.approx(found[f"expected_low_{name}_seconds"], rel=1e-4)
        assert run["bound"][f"{name}_seconds"] == found[f"bound_{name}_seconds"]
    assert run["expected"]["output_tokens_per_second"] == pytest.approx(found["output_tokens_per_second"], rel=1e-4)
    for kind in ("measured", "expected", "bound"):
        assert run[kind].keys() >= KEYS
    rates = [run["expected"][f"requests_per_second{end}"] for end in ("_low", "", "_high")]
    assert sorted(rates) == rates
    assert run["bound"]["requests_per_second"] >= rates[-1]


def test_a_mean_contains_the_first_requests_which_arrive_together(tmp_path: Path) -> None:
    """Of four requests of each client, one waits for the prompts of all others; of ten in an estimate."""
    (few,) = compared(result(tmp_path, max_concurrency=64, completed=256, total_input_tokens=256_000,
                             total_output_tokens=51_200))  # fmt: skip
    (median,) = compared(result(tmp_path, max_concurrency=64, mean_ttft_ms=None, mean_tpot_ms=None))
    service = estimate(concurrency=64).service
    assert service is not None
    assert service.expected is not None
    steady, together = service.loop.ttft, service.loop.first_ttft
    assert together > 2 * steady
    assert service.expected.ttft == pytest.approx(0.9 * steady + 0.1 * together)
    assert service.expected.latency == pytest.approx(service.expected.ttft + 199 * service.expected.tpot, rel=1e-3)
    assert few["expected"]["ttft_seconds"] == pytest.approx(0.75 * steady + 0.25 * together)
    assert median["statistic"] == "median"
    assert median["expected"]["ttft_seconds"] == pytest.approx(steady)


@pytest.mark.parametrize(
    ("host", "evidence"),
    [
        (lambda n, tpot: tpot + 8e-3, "each step takes 8"),
        (lambda n, tpot: tpot + 0.4e-3 * n, "for each sequence"),
    ],
)
def test_an_excess_of_each_step_is_the_hosts(
    host: Callable[[int, float], float], evidence: str, tmp_path: Path
) -> None:
    files = [
        predicted(tmp_path, n, lambda figures, n=n: {**figures, "tpot": host(n, figures["tpot"])}) for n in (4, 16, 64)
    ]
    runs = compared(*files)
    for run in runs:
        (difference,) = (each for each in run["differences"] if each["quantity"] == "tpot")
        assert difference["term"] == "host"
        assert evidence in difference["evidence"]
        assert "in 3 runs" in difference["evidence"]
        excess = run["measured"]["tpot_seconds"] - run["expected"]["tpot_seconds"]
        assert difference["seconds"] == pytest.approx(excess)


def test_an_excess_in_proportion_to_the_steps_is_the_kernels(tmp_path: Path) -> None:
    files = [
        predicted(tmp_path, n, lambda figures: {**figures, "tpot": 1.8 * figures["tpot"]}) for n in (4, 16, 64)
    ]  # fmt: skip
    for run in compared(*files):
        assert terms(run)[0] == ("kernels", "tpot")
        assert "80% more than expected in 3 runs" in run["differences"][0]["evidence"]


def test_one_run_with_a_small_excess_may_be_the_host_with_a_large_one_not(tmp_path: Path) -> None:
    """The slowest packaged host, that of vLLM 0.12, takes 120 µs and 35 µs per sequence, 2.4 ms at 64; eager launches
    take 0.5 to 1.5 times 13 ms."""
    of_file = Engine.load("vllm@0.12").host
    most = 2 * (of_file.step + 64 * of_file.sequence)
    for seconds, term in ((most - 1e-3, "host"), (30e-3, "kernels")):
        file = predicted(tmp_path, 64, lambda figures, s=seconds: {**figures, "tpot": figures["tpot"] + s})  # type: ignore[misc]
        assert terms(*compared(file))[0] == (term, "tpot")


def test_steps_without_cuda_graphs_are_the_hosts() -> None:
    """The file of AIPerf's tests: 18.7 ms per token of a model of 0.6 B, as long as eager launches take."""
    file = measured("bench_results/aiperf_rtx6000ada_qwen3-0.6b_c2.json")
    report = roofmodel.compare("qwen3-0.6b", str(file))  # the file names the GPU
    assert isinstance(report, ServingReport)
    assert report.to_dict()["hardware"] == "rtx-6000-ada"
    (run,) = report.to_dict()["runs"]
    assert terms(run)[0] == ("host", "tpot")
    assert "without CUDA graphs" in run["differences"][0]["evidence"]
    (eager,) = compare_of("qwen3-0.6b", str(file), engine="torch")
    assert eager["expected"]["tpot_low_seconds"] < 18.65e-3 < eager["expected"]["tpot_high_seconds"]


def compare_of(model: str, *files: str, **options: Any) -> list[dict[str, Any]]:
    runs: list[dict[str, Any]] = roofmodel.compare(model, *files, **options).to_dict()["runs"]
    return runs


def test_clients_that_stay_together_wait_for_each_others_prompts() -> None:
    """NIM with 50 clients: TTFT is five times that of ten requests of each client, TPOT is within its interval."""
    file = measured("bench_results/genai_perf_a100_llama3-8b_c50.json")
    (run,) = compare_of("meta-llama-3-8b", str(file), hw="a100")
    assert terms(run)[0] == ("queue", "ttft")
    assert sum(each["seconds"] for each in run["differences"]) == pytest.approx(
        run["measured"]["ttft_seconds"] - run["expected"]["ttft_seconds"]
    )


def test_requests_without_a_place_wait(tmp_path: Path) -> None:
    """8 of 64 run: the queue is of the engine, whatever the measured excess."""
    options = {"max_seqs": 8}
    file = predicted(tmp_path, 64, lambda figures: {**figures, "ttft": 2 * figures["ttft"]}, **options)
    (run,) = compared(file, **options)
    assert ("queue", "ttft") in terms(run)
    assert "8 of 64 requests are expected to run" in run["differences"][0]["evidence"]


def test_a_run_faster_than_the_bound_is_wrong_or_hit_a_cache(tmp_path: Path) -> None:
    def half_ttft(figures: dict[str, float]) -> dict[str, float]:
        return {**figures, "ttft": 0.5 * estimate(concurrency=4).totals["serve"]["bound_ttft_seconds"]}

    (cached,) = compared(predicted(tmp_path, 4, half_ttft))
    assert terms(cached) == [("prefix hits", "ttft")]
    assert "prefix_hit=" in cached["differences"][0]["evidence"]

    def fast(figures: dict[str, float]) -> dict[str, float]:
        return {**figures, "tpot": 0.5 * estimate(concurrency=4).totals["serve"]["bound_tpot_seconds"]}

    file = predicted(tmp_path, 4, fast)
    (wrong,) = compared(file)
    assert terms(wrong) == [("workload", "tpot")]
    assert "faster than physically possible" in wrong["differences"][0]["evidence"]
    text = json.loads(Path(file).read_text())
    Path(file).write_text(json.dumps({**text, "spec_decode_acceptance_length": 2.4}))
    (drafted,) = compared(file)
    assert terms(drafted) == [("speculative decoding", "tpot")]


def test_the_layout_of_the_file_is_taken_unless_another_one_is_given(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    path.write_text(samples.trtllm(), encoding="utf-8")
    with pytest.raises(RoofError, match="'NVIDIA H100 80GB HBM3'; give one, as in"):  # SXM or not
        compare_of("llama-3.1-70b", str(path))
    (run,) = compare_of("llama-3.1-70b", str(path), hw="h100")  # the file states the engine and the layout
    assert (run["tp"], run["pp"], run["engine"], run["in_flight"]) == (4, 2, "trtllm", 32)
    (other,) = compare_of("llama-3.1-70b", str(path), hw="h100", tp=8, pp=1)
    assert (other["tp"], other["pp"]) == (8, 1)
    path.write_text(samples.trtllm(streaming_metrics={"avg_ttft_ms": 400, "avg_tpot_ms": 99}), encoding="utf-8")
    (slow,) = compare_of("llama-3.1-70b", str(path), hw="h100", tp=8, pp=1)
    (evidence,) = (each["evidence"] for each in slow["differences"] if each["term"] == "another layout")
    assert evidence == "the file states tp=4 pp=2, not tp=8 pp=1"


def test_another_layout_of_the_same_gpus_is_named_if_it_explains_the_run(tmp_path: Path) -> None:
    """Eight engines of one GPU each, compared with one engine on eight GPUs."""
    (run,) = compared(predicted(tmp_path, 16, dict, dp=8), tp=8)
    layouts = [each["evidence"] for each in run["differences"] if each["term"] == "another layout"]
    assert layouts == ["TTFT and TPOT are as expected with dp=8 on the same GPUs"]


def test_drawn_lengths_are_those_of_the_benchmark(tmp_path: Path) -> None:
    path = tmp_path / "line.jsonl"
    path.write_text(samples.sglang(server_info=None, random_range_ratio=0.5) + "\n", encoding="utf-8")
    (run,) = compared(str(path))
    found = roofmodel.estimate(
        "llama-3.1-8b", "h100", phase="serve", concurrency=8, isl=2000, osl=400, length_ratio=0.5, engine="sglang"
    )
    assert run["expected"]["tpot_seconds"] == found.totals["serve"]["tpot_seconds"]
    path.write_text(samples.sglang(dataset_name="sharegpt"), encoding="utf-8")
    (varied,) = compared(str(path), tp=1, dp=1, ep=1)
    assert any("sharegpt vary" in each["evidence"] for each in varied["differences"])


def test_a_rate_is_an_open_loop_unless_the_client_limits_the_requests_or_they_are_too_many(tmp_path: Path) -> None:
    """8B on an H100 serves about 24 requests of 1000 + 200 tokens per second with 64 in flight, and 100 never."""
    (run,) = compared(result(tmp_path, request_rate=2.5, max_concurrency=None))
    found = roofmodel.estimate("llama-3.1-8b", "h100", phase="serve", requests=2.5, **SIZES).totals["serve"]
    assert run["expected"]["ttft_seconds"] == found["ttft_seconds"]
    assert run["expected"]["requests_per_second"] == 2.5
    assert run["in_flight"] == max(1, round(2.5 * found["latency_seconds"]))  # Little's law
    for other in ({"request_rate": 100, "max_concurrency": None}, {"request_rate": 2.5, "max_concurrency": 16}):
        report = roofmodel.compare("llama-3.1-8b", result(tmp_path, **other), hw="h100")
        (measured_run,) = report.to_dict()["runs"]
        assert measured_run["in_flight"] == round(2.0 * (0.12 + 199 * 0.009))  # of the measured rate and latency
        assert any("Little's law" in note for note in report.notes)


def test_what_the_files_do_not_state_must_be_given(tmp_path: Path) -> None:
    file = result(tmp_path)
    with pytest.raises(WorkloadError, match='do not state the GPU; add it, as in hw="h100"'):
        roofmodel.compare("llama-3.1-8b", file)
    without = result(tmp_path, max_concurrency=None, request_throughput=2.0, mean_tpot_ms=None, median_tpot_ms=None)
    with pytest.raises(WorkloadError, match="how many requests were in flight; add concurrency=64"):
        compared(without)
    assert compared(without, concurrency=3)[0]["in_flight"] == 3


def test_options_of_the_other_kind_of_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match="steps applies to profiles"):
        compared(result(tmp_path), steps=2)
    trace = Path(__file__).parents[2] / "examples" / "gpt2_trace_by_hand.json.gz"
    with pytest.raises(WorkloadError, match=r"prefix_hit=0\.5 applies to results of serving benchmarks"):
        roofmodel.compare("gpt2", str(trace), prefix_hit=0.5)
    with pytest.raises(RoofError, match=r"gpt2_trace_by_hand.json.gz: not a result of a serving benchmark"):
        compared(result(tmp_path), str(trace))


def test_the_terminal_has_a_table_for_each_run_in_80_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(tmp_path)
    result(tmp_path)
    status, out, _ = roof(
        "compare llama-3.1-8b r.json --hw h100 -o a.html -o a.md -o a.csv -o a.json", monkeypatch, capsys
    )
    assert not status
    assert "meas./exp." in out
    assert max(map(len, out.splitlines())) <= 80
    assert all((tmp_path / f"a.{suffix}").stat().st_size for suffix in ("html", "md", "csv", "json"))
    assert (tmp_path / "a.csv").read_text().startswith("file,tool,model,concurrency,request_rate,")
    status, *_ = roof("compare llama-3.1-8b r.json --hw h100 --fail-if measured_tpot_seconds>5ms", monkeypatch, capsys)
    assert status == 3


def test_a_host_of_an_engine_file_moves_the_prediction(tmp_path: Path) -> None:
    """An engine whose host takes 2 ms per step expects 2 ms more per token."""
    file = result(tmp_path, max_concurrency=4)
    vllm = Engine.load("vllm")
    (base,) = compared(file)
    (slow,) = compared(file, engine=vllm._replace(host=Host(step=2e-3, request=vllm.host.request)))
    excess = slow["expected"]["tpot_seconds"] - base["expected"]["tpot_seconds"]
    assert excess == pytest.approx(2e-3, rel=0.1)
