"""The signature of each format: whether a file that starts with these bytes is one, without importing its reader.

`reading.FORMATS` has the reader of each. The patterns that rows are read with too are public.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import BinaryIO

from roofmodel.profiles.streams import decode, split

SQLITE = b"SQLite format 3\0"
NCU_REPORT = b"NVR\0"
NCU_HEADER = re.compile(r'^\ufeff?(?:"?ID"?|"?Process ID"?),.*\bKernel Name\b', re.MULTILINE)
# A launch line of ncu's text in any form, including forms that are not read:
NCU_LAUNCH = re.compile(r"^ *\S.*(?:\)x\(\d+, \d+, \d+\)|, Context \d+, Stream \d+)", re.MULTILINE)
NCU_OTHER_SUMMARY = re.compile(r'^\ufeff?"(?:Process ID|Device|NVTX[^"]*)",.*"Invocations",', re.MULTILINE)
_NVPROF_BANNER = re.compile(
    r"^==+(\d+==+)?\s(NVPROF is|Profiling (application|result)|(Metric|Event) result|API calls|Generated result)",
    re.MULTILINE,
)
# The first columns of each table of AMD's tools:
_ROCPROF = re.compile(
    rb'^(?:\xef\xbb\xbf)?"?(?:(?:Guid"?,"?)?Kind"?,"?(?:Agent_Id|Direction)|Correlation_Id"?,"?Dispatch_Id|Dispatch_ID|'
    rb'Index"?,"?KernelName|Node_Id"?,"?Logical_Node_Id|Name"?,"?Calls"?,"?TotalDurationNs|Kernel_Name"?,"?Count|'
    rb"workload_name)\b",
)
NSYS_REPORTS = ("cuda_gpu_trace", "cuda_kern_exec_trace", "cuda_gpu_kern_gb_sum", "cuda_gpu_kern_sum", "cuda_gpu_sum")
_NSYS_TEXT = re.compile(r"^\s*(Time ?\(%\)\s{2,}Total Time|Start \(\w+\)\s{2,}Duration \(\w+\))", re.MULTILINE)
_NSYS_HEADER = re.compile(r'\s*"?(Time ?\(%\)"?,|Start ?\(|API Start|PID"?,|NVTX Range"?,|Name"?,)')
_TRACE_KEYS = (
    '"traceEvents"',
    '"ph"',
    '"schemaVersion"',
    '"deviceProperties"',
    '"distributedInfo"',
    '"displayTimeUnit"',
)


def is_sqlite(file: BinaryIO) -> bool:
    """Whether the stream is an SQLite database."""
    file.seek(0)
    magic = file.read(len(SQLITE))
    file.seek(0)
    return magic == SQLITE


# --- Nsight Compute -----------------------------------------------------------------------------------


def ncu(head: bytes) -> bool:
    """A report, a table, or other output of ncu."""
    if head.startswith(NCU_REPORT):
        return True
    text = decode(head)
    if "NVPROF is profiling" in text:
        return False
    return bool(
        NCU_HEADER.search(text)
        or re.search(r"^\ufeff?==(PROF|ERROR)==", text, re.MULTILINE)
        or "ERR_NVGPUCTRPERM" in text
        or NCU_LAUNCH.search(text)
        or NCU_OTHER_SUMMARY.search(text)
    )


def ncu_table(head: bytes) -> bool:
    """Whether these bytes contain the header of a table."""
    return NCU_HEADER.search(decode(head)) is not None


# --- nvprof -------------------------------------------------------------------------------------------


def nvprof(head: bytes) -> bool:
    """Output of nvprof."""
    return bool(_NVPROF_BANNER.search(decode(head))) or nvprof_table(head)


def nvprof_table(head: bytes) -> bool:
    """Whether these bytes contain the header of a table."""
    return any(map(nvprof_layout, decode(head).splitlines()))


def nvprof_layout(line: str) -> str | None:
    """The layout of the table below a header line: `csv`, `text` or `metrics`; None for any other line."""
    if line.startswith('"') or line.count(",") > 4:  # without quotes if another program saved the file
        return "csv" if nvprof_kind(split(line) or ()) != "other" else None
    words = line.split()
    if words[-1:] == ["Name"] and (words[:2] == ["Start", "Duration"] or words[-6:-4] == ["Time", "Calls"]):
        return "text"
    return "metrics" if words[:3] in (["Invocations", "Metric", "Name"], ["Invocations", "Event", "Name"]) else None


def nvprof_kind(columns: Sequence[str]) -> str:
    """The kind of the rows below these columns, as of `nvprof_layouts.TableEntry`."""
    has = set(columns)
    if {"Kernel", "Invocations", "Avg"} <= has and has & {"Metric Name", "Event Name"}:
        return "metric"
    if {"Start", "Duration", "Name"} <= has and "Strm" not in has:  # `Strm` is of nsys
        return "launch" if has & {"Grid X", "Grid Size", "Device"} else "other"  # other: a trace of API calls
    if {"Time(%)", "Time", "Calls", "Name"} <= has:
        return "summary"
    return "wide" if {"Device", "Stream", "Kernel"} <= has else "other"


def nvprof_database(head: bytes) -> bool:
    """A profile of nvprof: its schema is in its first page."""
    return (
        head.startswith(SQLITE)
        and b"StringTable" in head
        and b"CUPTI_ACTIVITY_KIND_" in head
        and b"StringIds" not in head  # of Nsight Systems
    )


# --- rocprof ------------------------------------------------------------------------------------------


def rocprof(head: bytes) -> bool:
    """The header of a table of AMD's tools, or a database of rocpd or RPD."""
    header = head.partition(b"\n")[0].lower()
    if _ROCPROF.match(head) is not None and (b"name" in header or b"direction" in header):
        return True
    return head.startswith(SQLITE) and b"rocpd_" in head


# --- Nsight Systems -----------------------------------------------------------------------------------


def nsys(head: bytes) -> bool:
    """An SQLite database, or output of `nsys stats`."""
    if head.startswith(SQLITE):
        return True
    text = decode(head)
    return bool(_NSYS_TEXT.search(text)) or any(nsys_heading(line) for line in text.splitlines())


def nsys_table(head: bytes) -> bool:
    """Whether these bytes contain the header of a report with kernels."""
    return any((heading := nsys_heading(line)) and heading[0] in NSYS_REPORTS for line in decode(head).splitlines())


def nsys_heading(line: str) -> tuple[str, list[str]] | None:
    """The report ("other" if without kernels) and columns of a header line; None for any other line."""
    return nsys_report(split(line) or []) if _NSYS_HEADER.match(line) else None


def nsys_report(columns: list[str]) -> tuple[str, list[str]] | None:
    """As for `nsys_heading`, of the columns of a header."""
    has = {without_unit(column) for column in columns}
    if {"kernel start", "kernel dur", "kernel name"} <= has:
        return "cuda_kern_exec_trace", columns
    if {"start", "duration", "name"} <= has and has & {"grdx", "strm", "device"}:
        return "cuda_gpu_trace", columns
    if {"total time", "instances", "name"} <= has and not has & {"source", "style", "range", "category", "pid"}:
        return "cuda_gpu_kern_gb_sum" if "gridxyz" in has else "cuda_gpu_kern_sum", columns
    if {"total time", "instances", "category", "operation"} <= has:
        return "cuda_gpu_sum", columns
    return ("other", columns) if len(columns) > 4 and re.search(r"\((%|[num]?s)\)", " ".join(columns)) else None


def without_unit(column: str) -> str:
    """`Total Time (ns)` and `Total Time` -> `total time`."""
    return re.sub(r"\s*\([^)]*\)$", "", column).lower()


# --- PyTorch ------------------------------------------------------------------------------------------

KEY_AVERAGES = re.compile(r"^ *Name  .*Self (?!CPU)\w+ .*# of Calls", re.MULTILINE)


def key_averages(head: bytes) -> bool:
    """The printed table of `key_averages()` with the time of a GPU."""
    return KEY_AVERAGES.search(decode(head)) is not None


def torch_trace(head: bytes) -> bool:
    """A Chrome trace."""
    text = decode(head)
    return bool(re.match(r'\s*(\{\s*"|\[\s*\{\s*")', text)) and any(mark in text for mark in _TRACE_KEYS)


_RESULT_KEYS = re.compile(
    rb'"(?:request_throughput|request_throughput_req_s|mean_e2e_latency_ms|median_e2e_latency_ms|time_to_first_token'
    rb'|request_latency|avg_num_concurrent_requests|tput_per_gpu)"\s*:'
)
_RESULT_TABLE = re.compile(rb'^"?Metric"?,.*\n(?:.*\n)*?"?(?:Request Latency|Time to First Token) ?[("]', re.IGNORECASE)


SERVING_TOOLS = "SGLang's bench_serving, vllm bench serve, genai-perf, AIPerf, trtllm-bench and InferenceX"
"""Serving benchmarks whose results `roof compare` reads."""


def serving_result(head: bytes) -> bool:
    """Whether a file is the result of a serving benchmark (`benchmark_results`), which is no profile."""
    is_json = head.lstrip()[:1] in (b"{", b"[")
    return bool((is_json and _RESULT_KEYS.search(head)) or _RESULT_TABLE.match(head))
