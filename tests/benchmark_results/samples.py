"""Results of serving benchmarks, written by hand after the sources of the tools that the readers name: few keys, round
numbers, 100 requests of 1000 prompt tokens and 200 new ones in 50 s."""

from __future__ import annotations

import json

TOTALS = {"duration": 50.0, "completed": 100, "total_input_tokens": 100_000, "total_output_tokens": 20_000}
RATES = {"request_throughput": 2.0, "output_throughput": 400.0, "total_token_throughput": 2400.0}


def vllm(**replaced: object) -> str:
    """`vllm bench serve --save-result` (vllm/benchmarks/serve.py, `main_async` and `benchmark`)."""
    return json.dumps(
        {
            "date": "20260101-000000", "endpoint_type": "vllm", "backend": "vllm", "label": None,
            "model_id": "meta-llama/Llama-3.1-8B-Instruct", "tokenizer_id": "meta-llama/Llama-3.1-8B-Instruct",
            "num_prompts": 100, "node": "a metadata entry", "request_rate": "inf", "burstiness": 1.0,
            "max_concurrency": 16, **TOTALS, "failed": 0, **RATES, "request_goodput": None,
            "mean_ttft_ms": 120.0, "median_ttft_ms": 100.0, "std_ttft_ms": 30.0, "p99_ttft_ms": 300.0,
            "mean_tpot_ms": 9.0, "median_tpot_ms": 8.9, "std_tpot_ms": 0.5, "p99_tpot_ms": 10.0,
            "mean_itl_ms": 9.0, "median_itl_ms": 8.0, "std_itl_ms": 5.0, "p99_itl_ms": 40.0, **replaced,
        },
    )  # fmt: skip


def sglang(**replaced: object) -> str:
    """A line of SGLang's bench_serving (python/sglang/bench_serving.py, `benchmark`)."""
    return json.dumps(
        {
            "tag": None, "backend": "sglang", "dataset_name": "random", "request_rate": float("inf"),
            "max_concurrency": 8, "sharegpt_output_len": None, "random_input_len": 2000, "random_output_len": 400,
            "random_range_ratio": 0.0,
            "server_info": {
                "model_path": "Qwen/Qwen3-32B", "tp_size": 8, "dp_size": 4, "ep_size": 8, "pp_size": 1,
                "enable_dp_attention": True, "version": "0.5.14",
            },
            **TOTALS, "total_output_tokens_retokenized": 19_990, **RATES, "mean_e2e_latency_ms": 2000.0,
            "mean_ttft_ms": 150.0, "median_ttft_ms": 100.0, "mean_tpot_ms": 9.0, "median_tpot_ms": 9.0,
            "mean_itl_ms": 9.0, "p95_itl_ms": 20.0, "p99_itl_ms": 50.0, "concurrency": 7.9, "accept_length": None,
            "max_output_tokens_per_s": float("nan"), **replaced,
        },
    )  # fmt: skip


GENAI_PERF_CSV = """\
Metric,avg,min,max,p99,p95,p90,p75,p50,p25,p10,p5,p1
Time To First Token (ms),120.50,58.76,837.78,833.07,817.10,731.98,703.81,600.26,596.53,90.00,80.00,60.00
Request Latency (ms),"2,024.21","1,823.10","2,066.70","2,041.00","2,020.00","2,000.00",N/A,,"1,866.55",1.00,1.00,1.00
Inter Token Latency (ms),9.00,8.00,10.00,10.00,10.00,10.00,9.00,9.00,9.00,9.00,9.00,9.00
Output Sequence Length (tokens),200.00,200.00,200.00,200.00,200.00,200.00,200.00,200.00,200.00,200.00,200.00,200.00
Input Sequence Length (tokens),"1,000.00",1,1,1,1,1,1,1,1,1,1,1

Metric,Value
Output Token Throughput (tokens/sec),"1,520.68"
Request Throughput (per sec),7.60
Request Count (count),100.00
"""
"""`profile_export_genai_perf.csv` (genai_perf/export_data/csv_exporter.py; cells as format_stat_value writes)."""

AIPERF_CSV = """\
Metric,avg,min,max,p1,p5,p10,p25,p50,p75,p90,p95,p99,std
Input Sequence Length (tokens),1000.00,,,,,,,,,,,,
Inter Chunk Latency (ms),9.00,8.00,30.00,8.00,8.00,8.00,9.00,9.00,9.00,9.00,10.00,25.00,1.00
Inter Token Latency (ms),9.10,8.00,10.00,8.00,8.00,8.00,9.00,9.00,9.00,9.00,10.00,10.00,1.00
Output Sequence Length (tokens),200.00,,,,,,,,,,,,
Request Latency (ms),1931.00,1.00,1.00,1.00,1.00,1.00,1.00,1.00,1.00,1.00,1.00,1.00,1.00
Time to First Token (ms),120.00,1.00,1.00,1.00,1.00,1.00,1.00,1.00,1.00,1.00,1.00,1.00,1.00

Metric,Value
Benchmark Duration (sec),50.00
Output Token Throughput (tokens/sec),400.00
Request Count,100.00
Request Throughput (requests/sec),2.00
"""
"""`profile_export_aiperf.csv` (aiperf/exporters/csv_exporter.py; titles from aiperf/metrics/types)."""

INFERENCEX_ROW = json.dumps(
    {
        "hw": "h200", "tp": 8, "ep": 8, "dp_attention": "true", "conc": 64, "model": "deepseek-ai/DeepSeek-R1",
        "framework": "sglang", "precision": "fp8", "isl": 1000, "osl": 200, "tput_per_gpu": 1200.0,
        "output_tput_per_gpu": 200.0, "mean_ttft": 0.5, "median_ttft": 0.4, "mean_tpot": 0.03, "mean_intvty": 33.3,
        "p99_itl": 0.2, "mean_e2el": 6.47,
    }
)  # fmt: skip
"""`agg_*.json` (utils/process_result.py of InferenceX; `isl` and `osl` as later versions add them)."""


def trtllm(**replaced: object) -> str:
    """`trtllm-bench throughput --streaming --report_json` (tensorrt_llm/bench/dataclasses/reporting.py,
    `get_statistics_dict`)."""
    return json.dumps(
        {
            "engine": {"model": "meta-llama/Llama-3.1-70B", "version": "1.3.0rc1", "backend": "Pytorch"},
            "machine": {"name": "NVIDIA H100 80GB HBM3"},
            "world_info": {"tp_size": 4, "pp_size": 2, "ep_size": -1, "world_size": 8, "issue_rate": 1e16},
            "request_info": {
                "num_requests": 100, "avg_num_concurrent_requests": 31.6, "avg_input_length": 1000.0,
                "avg_output_length": 200.0,
            },
            "performance": {
                "avg_request_latency_ms": 4000.0, "request_throughput_req_s": 7.9,
                "system_output_throughput_tok_s": 1580.0,
            },
            "streaming_metrics": {"avg_ttft_ms": 400.0, "avg_tpot_ms": 18.0},
            **replaced,
        }
    )  # fmt: skip
