"""Reports of `trtllm-bench throughput --report_json`: milliseconds. TTFT and TPOT only with `--streaming`.

Keys: tensorrt_llm/bench/dataclasses/reporting.py (`get_statistics_dict`) of NVIDIA/TensorRT-LLM@02499765.
"""

from __future__ import annotations

from roofmodel.benchmark_results.run import Entries, Figures, ServingRun
from roofmodel.engines.engine import engine_of_backend

TOOL = "trtllm-bench"


def recognize(values: Entries) -> bool:
    """Whether an object is such a report."""
    return "avg_num_concurrent_requests" in values.inside("request_info")


def read(values: Entries) -> ServingRun:
    """The run of a report. The requests in flight are the measured mean: the report does not state the limit."""
    asked, performance, engine = values.inside("request_info"), values.inside("performance"), values.inside("engine")
    streaming = values.inside("streaming_metrics")
    isl, osl = asked.required(TOOL, "avg_input_length", "avg_output_length")
    return ServingRun(
        values.file, TOOL,
        Figures(
            streaming.number("avg_ttft_ms", per_second=1e3), streaming.number("avg_tpot_ms", per_second=1e3), None,
            performance.number("avg_request_latency_ms", per_second=1e3),
            performance.number("system_output_throughput_tok_s"), performance.number("request_throughput_req_s"),
        ),
        isl, osl, model=engine.text("model"), mean_concurrency=asked.number("avg_num_concurrent_requests"),
        requests=asked.count("num_requests"), engine=engine_of_backend("tensorrt-llm"), version=engine.text("version"),
        layout=values.inside("world_info").parallel({"tp": "tp_size", "pp": "pp_size", "ep": "ep_size"}),
        gpu=values.inside("machine").text("name"),
    )  # fmt: skip
