"""The search space of a calibration: discrete parameters, starts and limits; parameters without effect."""

from __future__ import annotations

from typing import Any

import numpy as np

from roofmodel.counting.operator import Operator
from roofmodel.devices.calibration import (
    BatchedTiming,
    ChunkTiming,
    CollectiveTiming,
    ContextTiming,
    ExpertsTiming,
    FilterTiming,
    GemmTiming,
    GenerationTiming,
    LatentGenerationTiming,
    RecurrenceTiming,
    StreamTiming,
    TiledTiming,
)
from roofmodel.timing.timing import gemm_work

# Discrete parameters and their values, those with larger effects first, since each is chosen on its own. If several
# values fit equally well, the first is taken.
DISCRETE = {
    "packed": (1.0, 0.0, 0.5),
    "elsewhere": (0.0, 1.0, 2.0, 3.0),
    "default_tiles": (0.0, 1.0),
    "kept": (0.0, 0.5, 0.75, 0.9),
    "large": (1.0, 0.75, 0.6),
    "padded": (1.0, 128.0),
    "group": (0.0, 1000.0, 32.0),
    "windowed": (0.0, 1.0, 2.0),
    "queue": (0.0, 1.0),
    "least": (2.0, 4.0),
    "whole": (0.0, 1.0),
    "transposes": (0.0, 1.0),
    "occupied": (0.0, 1.0),
    "tile": (64.0, 128.0, 16.0),
    "tall": (0.0, 64.0, 128.0, 256.0),
    "parts": (32.0, 7.0, 1.0),
    "few": (0.0, 4.0, 1.0),
    "balanced": (0.0, 1.0),
    "intermediate": (0.0, 1.0),
    "unsplit": (0.0, 1.0, 2.0, 3.0, 4.0),
    "resident": (0.0, 0.4, 0.65, 0.75, 0.9, 0.95, 1.0),
    "absorbed": (0.0, 1.0),
    "height": (128.0, 64.0, 32.0, 16.0, 256.0),
    "reread": (0.0, 1.0),
    "splits": (128.0, 1.0, 4.0, 8.0, 16.0),
    "fixed": (0.0, 4.0, 8.0, 16.0),
    "casts": (0.0, 1.0),
    "adaptive": (0.0, 1.0),
    "column_blocks": (1.0, 2.0, 3.0, 4.0),
    "cluster_heads": (0.0, 128.0),
    "narrow_heads": (0.0, 32.0),
    "masked": (0.0, 1.0),
    "append": (0.0, 1.0),
    "tiles": (1.0, 0.0),
}
# Parameters that are not discrete in a kind: heads of an encoder share no keys, and `kept` of the chunks of a delta
# rule is a number of bytes.
WITHOUT_CHOICE = {"encoder": ("absorbed", "packed"), "chunks": ("kept",)}
# Values of parameters that belong together, as further starts by kind: the decode kernels of FlashInfer, FlashAttention
# and TensorRT-LLM. Most tables repeat an operation, so that L2 keeps some of its data.
COMBINED: dict[str, tuple[dict[str, float], ...]] = {
    "generation": (
        {"resident": 0.65},
        {"resident": 0.65, "group": 1000.0, "queue": 1.0},
        {"resident": 0.65, "group": 1000.0, "least": 4.0},
        {"resident": 0.65, "group": 1000.0, "queue": 1.0, "whole": 1.0, "transposes": 1.0, "tile": 128.0},
        {"resident": 0.65, "group": 32.0, "queue": 1.0, "occupied": 1.0},
        {"windowed": 1.0, "alone": 1.4e-5},
    ),
    "latent_generation": (
        {"height": 16.0, "reread": 1.0, "adaptive": 1.0, "split": 2e-7, "pipe": 0.2},
        {"narrow_heads": 32.0},
        {"narrow_heads": 32.0, "height": 64.0},
    ),
    # operands in L2, so that the steps along K and the loads from L2 limit
    "gemm": (
        {
            "latency": 2e-6, "fill": 5e-8, "step": 4e-9, "split": 2e-6, "pipe": 0.8, "sustained": 0.3, "l2": 0.2,
            "store": 0.15, "host": 2.3e-6, "part": 3e-9, "late": 3e-7, "resident": 0.9,
            "cached": 0.4, "written": 0.4, "unsplit": 1.0, "few": 1.0,
        },
        {  # cuBLAS on Hopper and data-center Blackwell
            "latency": 1.7e-6, "fill": 5e-9, "step": 1.1e-9, "split": 2.7e-6, "pipe": 0.75, "sustained": 0.15,
            "l2": 2.0, "store": 0.85, "dram": 0.9, "ramp": 1.6e-5, "part": 3e-10, "late": 4e-7, "tall": 128.0,
            "resident": 0.65, "cached": 0.6, "written": 1.0, "intermediate": 1.0,
        },
        {  # cuBLAS on data-center Blackwell, with whole K for few rows
            "latency": 1.7e-6, "fill": 3e-8, "step": 1.3e-9, "split": 3.2e-6, "pipe": 0.8, "sustained": 0.25,
            "l2": 1.4, "store": 0.8, "dram": 0.9, "ramp": 1.1e-5, "part": 3e-10, "late": 6e-7, "tall": 128.0,
            "column": 9e-9, "dot": 1.1e-9, "resident": 0.65, "cached": 0.5, "written": 1.0, "intermediate": 1.0,
            "unsplit": 2.0, "few": 1.0,
        },
    ),
}  # fmt: skip
LEAST_EFFECT = 0.01  # a fraction of a time below it is written as 0
TINY = 1e-30  # below all limits of parameters: the start of a parameter that is 0 because it had no effect
# Parameters whose gradient vanishes far from the optimum: the starts to try.
STARTS = {"host": (2e-6, 6e-5)}
# Upper limits of fractions of a ceiling; the pipe's allows for clocks above the nominal one.
UPPER_LIMITS = {"pipe": 1.05, "dram": 1.0, "tail": 1.0, "early": 1.0, "bandwidth": 1.0, "cached": 1.0, "written": 1.0}
# With a narrower cache, some kernels for latent attention in a decode multiply in its format (fp8 in TensorRT-LLM), so
# they reach a multiple of the peak of the compute format.
NARROWER_CACHE_KINDS = ("latent_generation",)

# The start of the fit by kind of parameters.
INITIAL: dict[str, Any] = {
    "gemm": GemmTiming(
        2.5e-6, 5e-7, 3e-9, 2.5e-6, 0.9, 0.2, 0.8, 0.3, 0.85, 1e-5,
        row=2e-7, spill=0.5, host=2e-5, convert=1e-9, column=5e-8, dot=1e-9, part=3e-8, late=5e-7,
        cast=2e-10, cached=0.4, written=0.8,
    ),
    "context": ContextTiming(9e-6, 0.7, 20.0, 60.0, 0.5, 0.5, 1.0),
    "generation": GenerationTiming(9e-6, 2e-6, 3e-6, 0.4, 0.8, 0.0, row=5e-8, alone=7e-6, single=1e-6),
    "experts": ExpertsTiming(3e-5, 1e-7, 0.6, 0.8, 0.9, 0.6, 0.0, pair=1e-10, fill=300.0, routing=5e-6),
    "collectives": CollectiveTiming(7e-6, 1e-6, 0.4, 2.6e-5, 0.76),
    "stream": StreamTiming(3e-6, 0.8, 0.2),
    "encoder": TiledTiming(9e-6, 0.7, 20.0, 60.0, 0.5, 0.7, 0.3, host=2e-5),
    "latent_context": TiledTiming(9e-6, 0.7, 20.0, 60.0, 0.5, 0.7, 0.3, host=2e-5),
    "latent_generation": LatentGenerationTiming(
        9e-6, 2e-6, 2e-6, 0.6, 0.8, 0.3,
        host=2e-5, block=3e-7, uncached=0.1, cluster_latency=1e-5, cluster_wave=2e-6, cluster_pipe=0.5,
        narrow_wave=2e-6,
    ),
    "latent_products": BatchedTiming(4e-6, 3e-7, 0.7, 0.4, 0.8, row=1e-8),
    "filter": FilterTiming(2e-6, 2e-7, 2e-8, 0.7, 0.2, unaligned=0.3),
    "filter_update": RecurrenceTiming(2e-6, 2e-8, 0.8, 0.3),
    "chunks": ChunkTiming(2e-5, 1e-7, 5e-6, 1e-7, 1e-6, 1.5e-6, 4e3, 2e3),
    "recurrence": RecurrenceTiming(3e-6, 1e-7, 0.8, 0.3),
}  # fmt: skip


def upper_limits(kind: str, operator: Operator) -> dict[str, float]:
    """The upper limits of the parameters of a kind."""
    widths, pipe = operator.widths, UPPER_LIMITS["pipe"]
    wider = max(widths.dtype.bits / widths.kv.bits, 1) if kind in NARROWER_CACHE_KINDS else 1
    return {**UPPER_LIMITS, "pipe": pipe * wider}


def without_unused(start: Any, operators: list[tuple[Operator, str]]) -> Any:
    """Set the parameters of quantization and weight conversion to 0 if none of the GEMMs has these steps.

    `operators` are pairs of an operator and its compute format.
    """
    if isinstance(start, GemmTiming | BatchedTiming):
        gemms = [found for pair in operators if (found := gemm_work(*pair))]
        unused: tuple[str, ...] = () if any(np.any(each.quantized) for each in gemms) else ("row", "spill", "cast")
        if not any(each.b < each.a for each in gemms):
            unused += ("convert",)
        return start._replace(**{name: 0.0 for name in unused if name in start._fields})
    return start


def without_ineffective(timing: Any) -> Any:
    """Set parameters without effect to 0: a host time below the latency, those of kernels that were not chosen."""
    if isinstance(timing, GemmTiming | TiledTiming | LatentGenerationTiming) and timing.host <= timing.latency:
        timing = timing._replace(host=0.0)
    if isinstance(timing, GemmTiming) and not timing.few:
        timing = timing._replace(column=0.0, dot=0.0)
    if isinstance(timing, GemmTiming) and not timing.resident:
        timing = timing._replace(cached=0.0, written=1.0)
    if isinstance(timing, ExpertsTiming) and not timing.default_tiles:
        timing = timing._replace(large=1.0)
    if isinstance(timing, FilterTiming) and timing.tiles:
        timing = timing._replace(unaligned=0.0)
    if isinstance(timing, LatentGenerationTiming) and not timing.cluster_heads:
        timing = timing._replace(cluster_latency=0.0, cluster_wave=0.0, cluster_pipe=1.0)
    if isinstance(timing, LatentGenerationTiming) and not timing.narrow_heads:
        timing = timing._replace(narrow_wave=0.0)
    if isinstance(timing, LatentGenerationTiming):
        unused = {"splits": 128.0, "fixed": 0.0, "column_blocks": 1.0} if timing.adaptive else {"block": 0.0}
        timing = timing._replace(**unused, uncached=timing.uncached if timing.uncached > LEAST_EFFECT else 0.0)
    if isinstance(timing, GenerationTiming) and not (timing.group or timing.windowed):
        timing = timing._replace(alone=0.0, single=0.0)
    if isinstance(timing, GenerationTiming) and not timing.group:
        timing = timing._replace(least=2.0, occupied=0.0)
    return timing
