"""Results of SGLang's `bench_serving` (JSON lines): milliseconds, totals of tokens, and the server's own arguments.

Keys and units: python/sglang/bench_serving.py (`benchmark`) and random_range_ratio in `get_dataset` of
sgl-project/sglang. Lengths of the dataset `random` are uniform from `random_range_ratio` to 1 times the asked ones; the
default ratio of 0 begins at 1 token. With `enable_dp_attention`, `tp_size` counts all GPUs of the engine.
"""

from __future__ import annotations

from roofmodel.benchmark_results.run import Entries, Figures, ServingRun
from roofmodel.engines.engine import engine_of_backend

TOOL = "SGLang bench_serving"


def recognize(values: Entries) -> bool:
    """Whether an object is such a result."""
    return "mean_e2e_latency_ms" in values or ("median_e2e_latency_ms" in values and "completed" in values)


def read(values: Entries) -> ServingRun:
    """The run of a result."""
    completed, prompts, answers = values.required(TOOL, "completed", "total_input_tokens", "total_output_tokens")
    server, dataset = values.inside("server_info"), values.text("dataset_name")
    asked = values.count("random_input_len"), values.count("random_output_len")
    longest = (asked[0], asked[1]) if dataset in ("random", "random-ids") and asked[0] and asked[1] else None
    ttft, tpot, latency = (
        values.number(f"mean_{name}_ms", f"median_{name}_ms", per_second=1e3)
        for name in ("ttft", "tpot", "e2e_latency")
    )
    return ServingRun(
        values.file, TOOL,
        Figures(
            ttft, tpot, values.number("p99_itl_ms", per_second=1e3), latency, values.number("output_throughput"),
            values.number("request_throughput"),
        ),
        prompts / completed, answers / completed, model=server.text("model_path"),
        concurrency=values.count("max_concurrency"), request_rate=values.rate("request_rate"),
        mean_concurrency=values.number("concurrency"), requests=round(completed),
        statistic="mean" if "mean_ttft_ms" in values else "median", longest=longest,
        length_ratio=_ratio(values, longest), dataset=dataset,
        engine=engine_of_backend(values.text("backend") or ""), version=server.text("version"), layout=_layout(server),
        accepted=values.number("accept_length"),
    )  # fmt: skip


def _ratio(values: Entries, longest: tuple[int, int] | None) -> float:
    """The shortest length / the longest one; a length has one token at least."""
    if longest is None:
        return 1.0
    return min(1.0, max(values.number("random_range_ratio") or 0.0, 1 / min(longest)))


def _layout(server: Entries) -> dict[str, int]:
    """The layout of the server's arguments."""
    sizes = server.parallel({"tp": "tp_size", "dp": "dp_size", "pp": "pp_size", "ep": "ep_size"})
    if server.values.get("enable_dp_attention") is True and {"tp", "dp"} <= sizes.keys():
        sizes["tp"] = max(1, sizes["tp"] // sizes["dp"])
    return sizes
