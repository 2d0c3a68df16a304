"""Rows of InferenceX (`agg_*.json`): a result of vLLM's client with its GPU, framework and layout; seconds, rates per
GPU.

Keys: utils/process_result.py of SemiAnalysisAI/InferenceX@00e51cc7. Early rows do not state the lengths.
"""

from __future__ import annotations

from roofmodel.benchmark_results.run import Entries, Figures, ServingRun
from roofmodel.benchmark_results.vllm import LATENCIES, STORED
from roofmodel.engines.engine import engine_of_backend


def recognize(values: Entries) -> bool:
    """Whether an object is such a row."""
    return "tput_per_gpu" in values and "conc" in values


def read(values: Entries) -> ServingRun:
    """The run of a row."""
    statistic = "mean" if "mean_ttft" in values else "median"
    ttft, tpot, latency = (values.number(f"{statistic}_{name}") for name in LATENCIES)
    layout = values.parallel({"tp": "tp", "ep": "ep"})
    gpus = layout.get("tp", 1)
    if values.values.get("dp_attention") in (True, "true"):
        layout = {**layout, "tp": 1, "dp": gpus}
    isl, osl = values.required(STORED, "isl", "osl")
    of_each = values.number("output_tput_per_gpu")
    rate = None if of_each is None else of_each * gpus
    return ServingRun(
        values.file, STORED,
        Figures(
            ttft, tpot, values.number("p99_itl"), latency, rate, None if rate is None else rate / osl,
        ),
        isl, osl, model=values.text("model"), concurrency=values.count("conc"),
        statistic="mean" if statistic == "mean" else "median",
        engine=engine_of_backend(values.text("framework") or ""), layout=layout, gpu=values.text("hw"),
    )  # fmt: skip
