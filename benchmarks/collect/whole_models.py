"""Times of whole models: prefill, decode and training step in eager mode and as a CUDA graph, and one trace of each.

Writes model-NAME.csv row by row, the config of the model, and PyTorch traces with ranges named after modules.
"""

from __future__ import annotations

import csv
import gc
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

import torch

from benchmarks.collect.models import RandomModel, build, step
from benchmarks.collect.workloads import Work, config_of, dtype, works
from roofmodel import nvtx
from roofmodel.measure.stopwatch import Gpu, Machine, machine
from roofmodel.numbers.units import seconds as in_words

COLUMNS = (
    "gpu", "model", "config", "phase", "runtime", "batch", "seq", "context", "image", "dtype", "seconds", "seconds_min",
    "repeats", "tokens_per_second", "images_per_second", "peak_bytes", "sm_mhz", "watts", "status", "framework",
)  # fmt: skip
REPEATS = 7


def main(folder: Path, name: str, small: bool) -> None:
    """Measure one model; a failure is a row with its reason."""
    watch = machine(None if small else "cuda")
    config = config_of(name, small, watch.evidence.dram_bytes)
    (folder / "configs").mkdir(exist_ok=True)
    (folder / "configs" / f"{name}.json").write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")
    torch.manual_seed(0)
    traced: set[str] = set()
    with (folder / f"model-{name}.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        built = build(config, watch.device, dtype(watch.dtypes, watch.device))
        for work in works(config, small):
            for row in rows(built, work, watch):
                writer.writerow({"model": name, "config": f"configs/{name}.json", **row})
                file.flush()
            if work.phase not in traced:
                traced.add(work.phase)
                reason = ""
                try:
                    trace(built, work, folder / f"trace-{name}-{work.phase}.json.gz", watch)
                except Exception as error:
                    reason = _reason(error)
                if reason:
                    print(f"{work.phase}: no trace: {reason}", flush=True)
                    _free(watch)
    watch.close()


def rows(built: RandomModel, work: Work, watch: Machine) -> Iterator[dict[str, Any]]:
    """Times of the workload in eager mode and, on a GPU, as a graph."""
    for runtime in ("eager", "graph") if isinstance(watch, Gpu) else ("eager",):
        row = {
            "gpu": watch.evidence.name, "runtime": runtime, "dtype": built.dtype, "framework": watch.framework,
            "status": "done", **{k: "" if v is None else v for k, v in work._asdict().items()},
        }  # fmt: skip
        try:
            row |= _timed(built, work, watch, runtime)
        except Exception as error:  # memory, calls that a graph cannot capture, missing functions
            row["status"] = _reason(error)
        took = in_words(row["seconds"]) if "seconds" in row else row["status"]
        print(f"{work.phase} batch {work.batch} {runtime}: {took}", flush=True)
        yield row
        if row["status"] != "done":
            _free(watch)


def _free(watch: Machine) -> None:
    """Free the memory of a failed step. Raises if the device does not respond."""
    gc.collect()
    watch.recover()


def _timed(built: RandomModel, work: Work, watch: Machine, runtime: str) -> dict[str, Any]:
    run = step(built, work)
    if isinstance(watch, Gpu):  # after the prefill that fills the cache of a decode, whose memory does not count
        torch.cuda.reset_peak_memory_stats()
    if runtime == "graph":
        taken, least, repeats = watch.time(run, cold=False)
    else:
        samples = [watch.elapsed(run) for _ in range(3 + REPEATS)][3:]
        taken, least, repeats = median(samples), min(samples), len(samples)
    clocks = watch.read_clocks()
    tokens = work.batch * (work.seq or 1)
    return {
        "seconds": taken, "seconds_min": least, "repeats": repeats,
        "tokens_per_second": "" if work.image else tokens / taken,
        "images_per_second": work.batch / taken if work.image else "",
        "peak_bytes": torch.cuda.max_memory_allocated() - watch.buffer if isinstance(watch, Gpu) else "",
        "sm_mhz": "" if clocks.sm_mhz is None else clocks.sm_mhz, "watts": "" if clocks.watts is None else clocks.watts,
    }  # fmt: skip


def trace(built: RandomModel, work: Work, file: Path, watch: Machine) -> None:
    """Trace one step with PyTorch's profiler: a range per module, inside the range `step`."""
    from torch.profiler import ProfilerActivity, profile

    run = step(built, work)
    for _ in range(2):
        run()
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if isinstance(watch, Gpu) else [])]
    sdpa = nvtx.patch(torch.nn.functional, "scaled_dot_product_attention", "attention")
    with nvtx.mark(built.model), sdpa, profile(activities=activities) as profiler:
        with nvtx.range("step"):
            run()
        watch.recover()  # waits for the device
    partial = file.with_name(f"unfinished-{file.name}")  # the profiler writes in several steps
    try:
        profiler.export_chrome_trace(str(partial))
        partial.replace(file)
    finally:
        partial.unlink(missing_ok=True)


def _reason(error: BaseException) -> str:
    reason = next(iter(str(error).splitlines()), "")
    plain = isinstance(error, RuntimeError | NotImplementedError)  # other errors: the type is clearer than the text
    return (reason if plain and reason else f"{type(error).__name__}: {reason}")[:200]


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], "--small" in sys.argv)
