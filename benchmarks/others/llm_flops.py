"""Predictions of llm-flops (0.0.1 on PyPI): FLOPs, memory, latency and energy of a model from its sizes.

Its times are a roofline of the whole model with half of the peak and 80 % of the bandwidth.
"""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.others import ToolMissing
from benchmarks.served import ServedBatch
from roofmodel.devices.device import Device
from roofmodel.models.hub import catalog, load
from roofmodel.steps.estimate import estimate

try:
    import llmflops
except ImportError:
    llmflops = None

GPUS = {"a100": "A100-80GB-SXM", "h100": "H100-SXM", "h200": "H200-SXM", "l40s": "L40S"}
TOKENS = 512  # within the context length of every model


def require() -> None:
    """Raise ToolMissing if llm-flops is not installed."""
    if llmflops is None:
        raise ToolMissing("llm-flops: pip install llm-flops (the comparison used 0.0.1)")


def served(rows: Sequence[ServedBatch]) -> list[tuple[float, float]]:
    """TTFT and the TPOT in the middle of the generation, in seconds."""
    require()

    def performance(row: ServedBatch, length: int) -> dict[str, float]:
        gpu, precision = GPUS[row.hw], row.precision
        model_name = next(name for name in llmflops.list_models() if name.rpartition("/")[2].lower() == row.model)
        options = dict(batch_size=row.batch, sequence_length=length, precision=precision, gpu=gpu, causal=True)
        return llmflops.estimate(model_name, **options)["details"]["performance"]

    return [
        (
            performance(row, row.prompt)["prefill_latency_s"],
            performance(row, row.prompt + row.new // 2)["decode_latency_per_token_s"],
        )
        for row in rows
    ]


def flops() -> dict[str, float]:
    """Its FLOPs of a forward pass divided by our matmul FLOPs, by model that both tools support.

    Its FLOPs include softmax, norms and activations.
    """
    require()
    packaged = {entry.id.rpartition("/")[2]: entry.id for entry in catalog()}
    device = Device.load("a100")  # FLOPs do not depend on it
    ratios = {}
    for name in llmflops.list_models():
        if ours_id := packaged.get(name.rpartition("/")[2]):
            theirs = llmflops.estimate(name, batch_size=1, sequence_length=TOKENS)["forward_flops"]
            ours = estimate(load(ours_id), device, phase="forward", seq=TOKENS, attention="eager", logits="all")
            ratios[ours_id] = theirs / float(ours.phases[0].cost.matmul_flops)
    return ratios
