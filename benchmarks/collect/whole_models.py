"""Times of whole models: prefill, decode and training step in eager mode and as a CUDA graph, and one trace of each.

Writes model-NAME.csv row by row, the config of the model, and PyTorch traces with ranges named after modules.
predicted-NAME.csv has the bound and the expected times of each step and is written before the step runs. With
`--compile`, compiled-NAME.csv has the first prefill and the first decode under torch.compile instead.
"""

from __future__ import annotations

import csv
import gc
import json
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

import torch

from benchmarks.collect.environment import hardware
from benchmarks.collect.models import RandomModel, build, step
from benchmarks.collect.workloads import Work, config_of, dtype, works
from roofmodel import estimate, nvtx
from roofmodel.errors import RoofError
from roofmodel.measure.stopwatch import Gpu, Machine, machine
from roofmodel.numbers.units import seconds as in_words

COLUMNS = (
    "gpu", "model", "config", "phase", "runtime", "batch", "seq", "context", "image", "dtype", "seconds", "seconds_min",
    "repeats", "tokens_per_second", "images_per_second", "peak_bytes", "sm_mhz", "watts", "status", "framework",
)  # fmt: skip
PREDICTED = (
    "written", "model", "hardware", "phase", "batch", "seq", "context", "image", "dtype", "runtime", "bound_seconds",
    "expected_seconds", "expected_low_seconds", "expected_high_seconds", "status",
)  # fmt: skip
REPEATS = 7
RUNTIMES = {"eager": ("eager", "graph"), "compile": ("compile", "compile, graph")}


def main(folder: Path, name: str, small: bool, compiled: bool = False) -> None:
    """Measure one model; a failure is a row with its reason."""
    watch = machine(None if small else "cuda")
    config = config_of(name, small, watch.evidence.dram_bytes)
    (folder / "configs").mkdir(exist_ok=True)
    (folder / "configs" / f"{name}.json").write_text(json.dumps(config, indent=1) + "\n", encoding="utf-8")
    torch.manual_seed(0)
    built = build(config, watch.device, dtype(config, watch.dtypes, watch.device))
    if compiled:
        _measure_compiled(folder, name, built, works(config, small), watch)
    else:
        _measure(folder, name, built, works(config, small), watch)
    watch.close()


def _measure(folder: Path, name: str, built: RandomModel, all_works: list[Work], watch: Machine) -> None:
    """Predict, time and trace each step."""
    traced: set[str] = set()
    with (
        (folder / f"model-{name}.csv").open("w", newline="", encoding="utf-8") as file,
        (folder / f"predicted-{name}.csv").open("w", newline="", encoding="utf-8") as before,
    ):
        writer, predictions = csv.DictWriter(file, COLUMNS), csv.DictWriter(before, PREDICTED)
        writer.writeheader()
        predictions.writeheader()
        for work in all_works:
            for prediction in predicted(folder / "configs" / f"{name}.json", built.dtype, work, hardware(watch)):
                predictions.writerow({"model": name, **prediction})
            before.flush()
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


def _measure_compiled(folder: Path, name: str, built: RandomModel, all_works: list[Work], watch: Machine) -> None:
    """Time the first decode and the first prefill with the whole model compiled for these shapes."""
    built.model.compile(dynamic=False)
    with (folder / f"compiled-{name}.csv").open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        for phase in ("decode", "prefill"):
            work = next(work for work in all_works if work.phase == phase)
            for row in rows(built, work, watch, "compile"):
                writer.writerow({"model": name, "config": f"configs/{name}.json", **row})
                file.flush()


def predicted(config: Path, dtype: str, work: Work, hardware: str | None) -> Iterator[dict[str, Any]]:
    """Bound and expected time of a step before it runs: launched by the host, and as a graph.

    A graph of PyTorch's kernels is predicted as the sum of the kernels; `serving` is the graph of a serving engine,
    which fuses more of them.
    """
    numbers = {name: value for name, value in work._asdict().items() if value is not None}
    common = {"hardware": hardware, "dtype": dtype, **numbers}
    serving = "torch" if work.phase in ("train", "forward") else "vllm"
    for engine, runtimes in (("torch", ("eager", "graph")), (serving, ("serving",))):
        phase, status = None, "done"
        settings = ("launch=graph",) if (engine, runtimes) == ("torch", ("serving",)) else ()
        try:
            if hardware is None:
                raise RoofError("no file in hardware/ describes this device")
            (phase,) = estimate(
                str(config), hardware, dtype=dtype, engine=engine, engine_option=settings, **numbers
            ).estimate.phases  # type: ignore[arg-type]
        except RoofError as error:
            status = str(error)
        for runtime in runtimes:
            row: dict[str, Any] = {"runtime": runtime, "status": status, **common}
            if phase is not None:
                row["bound_seconds"] = float(phase.bound_seconds)
                expected = phase.kernel_seconds if runtime == "graph" else phase.expected
                if expected is not None:
                    fields = ("expected_seconds", "expected_low_seconds", "expected_high_seconds")
                    row |= zip(fields, map(float, expected), strict=True)
            yield {**row, "written": datetime.now(UTC).isoformat(timespec="milliseconds")}


def rows(built: RandomModel, work: Work, watch: Machine, mode: str = "eager") -> Iterator[dict[str, Any]]:
    """Times of the workload, launched by the host and, on a GPU, as a graph."""
    launched, graph = RUNTIMES[mode]
    for runtime in (launched, graph) if isinstance(watch, Gpu) else (launched,):
        row = {
            "gpu": watch.evidence.name, "runtime": runtime, "dtype": built.dtype, "framework": watch.framework,
            "status": "done", **{k: "" if v is None else v for k, v in work._asdict().items()},
        }  # fmt: skip
        try:
            row |= _timed(built, work, watch, as_graph=runtime == graph)
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


def _timed(built: RandomModel, work: Work, watch: Machine, as_graph: bool) -> dict[str, Any]:
    run = step(built, work)
    if isinstance(watch, Gpu):  # after the prefill that fills the cache of a decode, whose memory does not count
        torch.cuda.reset_peak_memory_stats()
    if as_graph:
        median_seconds, least, repeats = watch.time(run, cold=False)
    else:
        samples = [watch.elapsed(run) for _ in range(3 + REPEATS)][3:]
        median_seconds, least, repeats = median(samples), min(samples), len(samples)
    clocks = watch.read_clocks()
    tokens = work.batch * (work.seq or 1)
    return {
        "seconds": median_seconds, "seconds_min": least, "repeats": repeats,
        "tokens_per_second": "" if work.image else tokens / median_seconds,
        "images_per_second": work.batch / median_seconds if work.image else "",
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
    main(Path(sys.argv[1]), sys.argv[2], "--small" in sys.argv, "--compile" in sys.argv)
