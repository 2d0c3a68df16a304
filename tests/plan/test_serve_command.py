"""The commands that start the engines of a candidate: their flags against the published arguments of each engine."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

import roofmodel
from roofmodel.devices.device import Device
from roofmodel.engines.engine import Engine
from roofmodel.engines.engine_file import Serve
from roofmodel.errors import EngineError
from roofmodel.plan.candidate import Candidate, PrefillEngines
from roofmodel.plan.layouts import Formats, Layout
from roofmodel.plan.servers.commands import Server, serve_command, serve_script
from tests.test_cli_measured import roof

PUBLISHED = {
    # vllm/engine/arg_utils.py of vllm-project/vllm@99d7eb5d, `EngineArgs.add_cli_args`; the port, tensor and pipeline
    # parallelism: as public scripts start this server
    "vllm serve": {
        "--port", "--tensor-parallel-size", "--pipeline-parallel-size", "--data-parallel-size",
        "--enable-expert-parallel", "--max-model-len", "--max-num-seqs", "--max-num-batched-tokens",
        "--gpu-memory-utilization", "--kv-cache-dtype", "--quantization", "--kv-transfer-config",
    },
    # docs/advanced_features/server_arguments.md of sgl-project/sglang@004813e1; attention in data parallelism, expert
    # parallelism and disaggregation: fields of `ServerArgs` in python/sglang/srt/server_args.py, which are the flags
    "python -m sglang.launch_server": {
        "--model-path", "--port", "--tp-size", "--pp-size", "--dp-size", "--enable-dp-attention", "--ep-size",
        "--context-length", "--max-running-requests", "--chunked-prefill-size", "--mem-fraction-static",
        "--kv-cache-dtype", "--quantization", "--disaggregation-mode",
    },
    # tensorrt_llm/commands/serve.py of NVIDIA/TensorRT-LLM@00209af1, `serve`
    "trtllm-serve": {
        "--port", "--tp_size", "--pp_size", "--ep_size", "--max_seq_len", "--max_batch_size", "--max_num_tokens",
        "--kv_cache_free_gpu_memory_fraction", "--extra_llm_api_options",
    },
    # vllm/benchmarks/serve.py of vllm-project/vllm@009e6d4a, `add_cli_args`
    "vllm bench serve": {
        "--backend", "--model", "--port", "--dataset-name", "--random-input-len", "--random-output-len", "--ignore-eos",
        "--max-concurrency", "--num-prompts", "--save-result", "--result-filename",
    },
    # python/sglang/bench_serving.py of sgl-project/sglang, its parser; not compared with a version
    "python -m sglang.bench_serving": {
        "--backend", "--model", "--port", "--dataset-name", "--random-input-len", "--random-output-len",
        "--random-range-ratio", "--max-concurrency", "--num-prompts", "--output-file",
    },
    # tensorrt_llm/serve/scripts/benchmark_serving.py of NVIDIA/TensorRT-LLM@0228a712, its parser
    "python -m tensorrt_llm.serve.scripts.benchmark_serving": {
        "--backend", "--model", "--port", "--dataset-name", "--random-input-len", "--random-output-len", "--random-ids",
        "--ignore-eos", "--max-concurrency", "--num-prompts", "--save-result", "--result-filename",
    },
}  # fmt: skip
ENGINES = ("vllm", "sglang", "trtllm")
SERVER = Server("org/model", "bf16", isl=1000, osl=200, max_len=1200)
H100 = Device.load("h100")


def candidate(layout: Layout, batch: int = 64, **replaced: Any) -> Candidate:
    """A candidate with a layout, formats and a batch; the rest is that of a plan."""
    report = roofmodel.plan("llama-3.1-8b", "h100", gpus=1, isl=1000, osl=200, dtype="bf16", kv="bf16", tp=1)
    found: Candidate = report.plan.ranked[0].candidate  # type: ignore[union-attr, assignment]
    of_layout: dict[str, Any] = {
        "layout": layout,
        "batch": batch,
        "gpus": layout.gpus,
        "formats": Formats("bf16", "bf16", "bf16"),
    }
    return found._replace(**of_layout | replaced)


def lines(engine: str, layout: Layout, server: Server = SERVER, **replaced: Any) -> list[str]:
    command = serve_command(serve_of(engine), candidate(layout, **replaced), server, H100)
    assert command is not None
    return command.splitlines()


def serve_of(engine: str) -> Serve:
    serve = Engine.load(engine).serve
    assert serve is not None
    return serve


def flags(text: str) -> set[str]:
    return set(re.findall(r"(?<![\w-])--[a-z][\w-]*", text))


@pytest.mark.parametrize("engine", ENGINES)
def test_all_flags_are_published_arguments(engine: str) -> None:
    serve = serve_of(engine)
    for command, texts in (
        (serve.command, [serve.command, serve.config, *serve.flags.values()]), (serve.benchmark, [serve.benchmark]),
    ):  # fmt: skip
        (program,) = (name for name in PUBLISHED if f"{command} ".startswith(f"{name} "))
        assert flags(" ".join(texts)) <= PUBLISHED[program]


@pytest.mark.parametrize(
    ("engine", "layout", "words"),
    [
        ("vllm", Layout(tp=4, pp=2), ["--tensor-parallel-size 4", "--pipeline-parallel-size 2", "--max-num-seqs 64"]),
        # 8 replicas of attention, and experts over all 8 GPUs: 64 requests are 8 of each
        ("vllm", Layout(tp=1, ep=8, dp=8), ["--data-parallel-size 8", "--enable-expert-parallel", "--max-num-seqs 8"]),
        # SGLang counts all GPUs in tp, and all requests
        ("sglang", Layout(tp=2, ep=8, dp=4),
         ["--tp-size 8", "--dp-size 4 --enable-dp-attention", "--ep-size 8", "--max-running-requests 64"]),
        ("sglang", Layout(tp=4, ep=2), ["--tp-size 4", "--ep-size 2"]),
        ("trtllm", Layout(tp=1, ep=4, dp=4), ["--tp_size 4", "--ep_size 4", "{enable_attention_dp: true}"]),
        ("trtllm", Layout(tp=2, pp=2), ["--tp_size 2", "--pp_size 2", "--max_seq_len 1200"]),
    ],
)  # fmt: skip
def test_a_layout_is_stated_as_the_engine_counts_it(engine: str, layout: Layout, words: list[str]) -> None:
    (line,) = lines(engine, layout)
    for text in words:
        assert text in f"{line} "
    if layout.ep == 1:
        assert not re.search("expert|ep.size|dp-|data-parallel", line)


def test_engines_of_a_node_have_gpus_and_ports_of_their_own() -> None:
    """Five engines of two GPUs: four on the first node of eight GPUs; 60 requests are 12 of each."""
    found = lines("vllm", Layout(tp=2, dp=5), batch=60)
    assert len(found) == 5
    assert all("--max-num-seqs 12" in line for line in found)
    assert found[1].startswith("CUDA_VISIBLE_DEVICES=2,3 vllm serve org/model --port 8001 --tensor-parallel-size 2 ")
    assert [line.partition("  # ")[2] for line in found] == ["node 1"] * 4 + ["node 2"]
    assert found[4].startswith("CUDA_VISIBLE_DEVICES=0,1 vllm serve org/model --port 8000 ")
    (wide,) = lines("vllm", Layout(tp=8, pp=2))
    assert wide.endswith("  # spans 2 nodes; see the engine's documentation")
    (alone,) = lines("vllm", Layout())
    assert alone == "vllm serve org/model --port 8000 --max-model-len 1200 --max-num-seqs 64"


def test_formats_are_flags_settings_or_another_checkpoint() -> None:
    """A checkpoint of 16 bits: in 8 bits vLLM quantizes it, TensorRT-LLM needs another one; both have 8-bit caches."""
    of_fp8 = {"formats": Formats("fp8", "fp8", "fp8")}
    (vllm,), (trtllm,) = lines("vllm", Layout(), **of_fp8), lines("trtllm", Layout(), **of_fp8)
    assert "--kv-cache-dtype fp8 --quantization fp8" in vllm
    assert "--extra_llm_api_options <(echo '{kv_cache_config: {dtype: fp8}}')" in trtllm
    assert trtllm.endswith("  # with a checkpoint in fp8")
    (own,) = lines("vllm", Layout(), SERVER._replace(checkpoint="fp8"), **of_fp8)
    assert "--quantization" not in own


def test_given_limits_of_the_server_are_stated() -> None:
    (line,) = lines("sglang", Layout(), SERVER._replace(token_budget=4096, memory_utilization=0.8))
    assert "--chunked-prefill-size 4096 --mem-fraction-static 0.8" in line


def test_a_layout_that_the_engine_cannot_run_has_no_command() -> None:
    """vLLM shards experts over all GPUs or none; TensorRT-LLM's replicas of attention have one GPU."""
    assert serve_command(serve_of("vllm"), candidate(Layout(tp=4, ep=2)), SERVER, H100) is None
    assert serve_command(serve_of("trtllm"), candidate(Layout(tp=2, ep=8, dp=4)), SERVER, H100) is None
    assert serve_command(None, candidate(Layout()), SERVER, H100) is None
    assert Engine.load("trtllm@0.9").serve is None


def test_prefill_and_decode_engines_state_their_part() -> None:
    prefill = PrefillEngines(Layout(tp=2, dp=2), batch=1, transfer=0.0, limits=False, requests=1.0)
    found = lines("sglang", Layout(tp=4), prefill=prefill)
    assert [re.findall("--disaggregation-mode (\\w+)", line) for line in found] == [
        ["prefill"],
        ["prefill"],
        ["decode"],
    ]
    # four GPUs of prefill engines, then four of decode engines, with ports of their own
    assert [line.partition(" ")[0] for line in found] == [
        f"CUDA_VISIBLE_DEVICES={gpus}" for gpus in ("0,1", "2,3", "4,5,6,7")
    ]
    assert [re.findall("--port (\\d+)", line) for line in found] == [["8000"], ["8001"], ["8002"]]
    assert serve_command(serve_of("trtllm"), candidate(Layout(), prefill=prefill), SERVER, H100) is None


@pytest.mark.parametrize("engine", ENGINES)
def test_the_script_is_a_shell_script_with_the_benchmark_of_one_engine(engine: str, tmp_path: Path) -> None:
    chosen = candidate(Layout(tp=4, dp=2), formats=Formats("bf16", "bf16", "fp8"))
    serve = serve_of(engine)
    command = serve_command(serve, chosen, SERVER, H100)
    assert command is not None
    script = serve_script(serve, chosen, command, SERVER, {"hw": "h100", "engine": engine})
    path = tmp_path / "serve.sh"
    path.write_text(script, encoding="utf-8")
    subprocess.run(["bash", "-n", path], check=True)
    # 64 requests on 2 engines: 32 clients, ten requests of each
    assert re.search(r"--max-concurrency 32 --num-prompts 320\b", script)
    assert f"# roof compare org/model result.json --hw h100 --engine {engine} --tp 4\n" in script
    assert script.count(" &\n") == 2


def test_rows_have_commands_and_the_best_one_a_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    command = (
        "plan llama-3.1-8b --hw h100 --gpus 2 --isl 1000 --osl 200 --dtype bf16 --kv bf16 --mode mixed --format json"
    )
    status, out, err = roof(f"{command} --serve-script s.sh --token-budget 4096", monkeypatch, capsys)
    assert not status
    assert "wrote s.sh" in err
    candidates = json.loads(out)["candidates"]
    for row in candidates:
        engines = row["gpus"] // (row["tp"] * row["pp"])  # none shares experts
        assert len(row["serve_command"].splitlines()) == engines
        assert row["serve_command"].count("--max-num-batched-tokens 4096") == engines
    script = (tmp_path / "s.sh").read_text()
    assert all(f"{line} &" in script for line in candidates[0]["serve_command"].splitlines())
    for wrong, message in (
        (f"{command} --serve-script s.txt", "s.txt: unknown suffix '.txt'; known: .sh"),
        (f"{command} --engine trtllm@0.9 --serve-script s.sh", "there is no command to write"),
    ):
        status, _, err = roof(wrong, monkeypatch, capsys)
        assert status == 2
        assert message in err


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("serve: {command: run}", "3: serve lacks the key 'benchmark'"),
        ("serve: {command: run, benchmark: b, flags: {tensor: x}}", "3: unknown key 'tensor'"),
        ("serve: {command: run, benchmark: b, flags: {kv: {fp9: x}}}", "3: unknown key 'fp9'"),
    ],
)
def test_an_error_in_the_section_names_its_line(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(f"like: vllm\nname: mine\n{text}\n", encoding="utf-8")
    with pytest.raises(EngineError, match=re.escape(message)):
        Engine.load(path)
