"""The program that ncu profiles: one step of a model, with NVTX ranges named after modules.

cudaProfilerStart marks the step (`--profile-from-start off`); a range would miss the backward pass, whose kernels
another thread launches.
"""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext
from pathlib import Path

import torch

from benchmarks.collect.models import build, step
from benchmarks.collect.workloads import dtype, works
from roofmodel import nvtx
from roofmodel.measure.stopwatch import Gpu, machine


def main(config: Path, phase: str, small: bool) -> None:
    """Warm up, so that libraries have chosen their kernels, then run one step."""
    watch = machine(None if small else "cuda")
    facts = json.loads(config.read_text(encoding="utf-8"))
    built = build(facts, watch.device, dtype(facts, watch.dtypes, watch.device))
    run = step(built, next(work for work in works(facts, small) if work.phase == phase))
    for _ in range(2):
        run()
    sdpa = nvtx.patch(torch.nn.functional, "scaled_dot_product_attention", "attention")
    on_gpu = isinstance(watch, Gpu)
    with nvtx.mark(built.model), sdpa, torch.cuda.profiler.profile() if on_gpu else nullcontext():
        with nvtx.range("step"):
            run()
        watch.recover()  # waits for the device


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], "--small" in sys.argv)
