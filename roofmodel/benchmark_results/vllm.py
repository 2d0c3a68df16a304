"""Results of `vllm bench serve` and of vLLM's older `benchmark_serving.py`: milliseconds, totals of tokens.

Keys and units: vllm/benchmarks/serve.py (`main_async`, `benchmark`) of vllm-project/vllm@009e6d4a. InferenceX stores
the result of the same script with keys without `_ms`, in seconds, and may leave out the means.
"""

from __future__ import annotations

from roofmodel.benchmark_results.run import Entries, Figures, ServingRun
from roofmodel.engines.engine import engine_of_backend

TOOL, STORED = "vLLM bench serve", "InferenceX"


def recognize(values: Entries) -> bool:
    """Whether an object is such a result."""
    return "request_throughput" in values and "total_output_tokens" in values and "model_id" in values


def read(values: Entries) -> ServingRun:
    """The run of a result."""
    in_seconds = not any(f"{statistic}_{name}_ms" in values for statistic in ("mean", "median") for name in LATENCIES)
    tool = STORED if in_seconds else TOOL
    suffix, per_second = ("", 1.0) if in_seconds else ("_ms", 1e3)
    statistic = "mean" if any(f"mean_{name}{suffix}" in values for name in LATENCIES) else "median"
    ttft, tpot, latency = (values.number(f"{statistic}_{name}{suffix}", per_second=per_second) for name in LATENCIES)
    completed, prompts, answers = values.required(tool, "completed", "total_input_tokens", "total_output_tokens")
    backend = values.text("backend") or values.text("endpoint_type") or ""
    return ServingRun(
        values.file, tool,
        Figures(
            ttft, tpot, values.number(f"p99_itl{suffix}", per_second=per_second), latency,
            values.number("output_throughput"), values.number("request_throughput"),
        ),
        prompts / completed, answers / completed, model=values.text("model_id"),
        concurrency=values.count("max_concurrency"), request_rate=values.rate("request_rate"),
        requests=round(completed), statistic="mean" if statistic == "mean" else "median",
        engine=engine_of_backend(backend),
        accepted=values.number("spec_decode_acceptance_length"), failed=values.count("failed"),
    )  # fmt: skip


LATENCIES = ("ttft", "tpot", "e2el")
"""The names of TTFT, TPOT and latency in keys."""
