"""PyTorch traces of small runs, written for the tests; times in microseconds."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

from roofmodel.trace.trace import RunAnalysis, trace

PROCESS, MAIN = 42, 42
STEP_TABLE = (
    "nvtx_text,nvtx_start,nvtx_end,device,crt_name,crt_start,crt_end,kernel_demangled_name,kernel_stream,"
    "kernel_start,kernel_end,kernel_duration"
)
_correlations = itertools.count(1)
Event = dict[str, Any]


def event(category: str, name: str, start: float, end: float, process: int = PROCESS, thread: int = MAIN, **args: Any):
    return {
        "ph": "X", "cat": category, "name": name, "ts": start, "dur": round(end - start, 3), "pid": process,
        "tid": thread, "args": args,
    }  # fmt: skip


def launched(
    name: str, start: float, end: float, launch: float, *, device: int = 0, stream: int = 7, process: int = PROCESS,
    thread: int = MAIN, category: str = "kernel", **args: Any,
) -> list[Event]:  # fmt: skip
    """GPU work and the call of 2 us that launched it."""
    number = next(_correlations)
    work = event(category, name, start, end, device, stream, device=device, stream=stream, correlation=number, **args)
    return [work, event("cuda_runtime", "cudaLaunchKernel", launch, launch + 2, process, thread, correlation=number)]


def written(folder: Path, *events: Event | list[Event], name: str = "trace.json", **document: Any) -> str:
    """Write a trace of the events; return its path."""
    flat = [each for part in events for each in (part if isinstance(part, list) else [part])]
    path = folder / name
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": flat} | document))
    return str(path)


def analyzed(folder: Path, *events: Event | list[Event], **options: Any) -> RunAnalysis:
    return trace([written(folder, *events)], **options)
