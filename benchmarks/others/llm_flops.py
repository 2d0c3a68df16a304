"""llm-flops (0.0.1 of PyPI): FLOPs, memory, latency and energy of a model from its sizes. Its times are a roofline with
half the peak and 80 % of the bandwidth, a model's whole work at once."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.others import NotHere
from benchmarks.served import Served
from roofmodel.devices.device import Device
from roofmodel.models.hub import catalogue, load
from roofmodel.study.estimate.estimate import estimate

try:
    import llmflops
except ImportError:
    llmflops = None

GPUS = {"a100": "A100-80GB-SXM", "h100": "H100-SXM", "h200": "H200-SXM", "l40s": "L40S"}
TOKENS = 512  # which every model takes


def available() -> None:
    """Raises NotHere where it is not installed."""
    if llmflops is None:
        raise NotHere("llm-flops: pip install llm-flops (0.0.1 was compared with)")


def served(rows: Sequence[Served]) -> list[tuple[float, float]]:
    """Seconds to the first token, and of a further one in the middle of what is generated."""
    available()

    def found(row: Served, length: int) -> dict[str, float]:
        gpu, precision = GPUS[row.hw], row.precision
        named = next(name for name in llmflops.list_models() if name.rpartition("/")[2].lower() == row.model)
        options = dict(batch_size=row.batch, sequence_length=length, precision=precision, gpu=gpu, causal=True)
        return llmflops.estimate(named, **options)["details"]["performance"]

    return [
        (
            found(row, row.prompt)["prefill_latency_s"],
            found(row, row.prompt + row.new // 2)["decode_latency_per_token_s"],
        )
        for row in rows
    ]


def flops() -> dict[str, float]:
    """Each model that both know, and its FLOPs of a forward pass as a part of ours, which are those of matrix products:
    its own hold softmax, norms and activations as well."""
    available()
    packaged = {entry.id.rpartition("/")[2]: entry.id for entry in catalogue()}
    device = Device.load("a100")  # that FLOPs do not know of
    found = {}
    for name in llmflops.list_models():
        if known := packaged.get(name.rpartition("/")[2]):
            theirs = llmflops.estimate(name, batch_size=1, sequence_length=TOKENS)["forward_flops"]
            ours = estimate(load(known), device, phase="forward", seq=TOKENS, attention="eager", logits="all")
            found[known] = theirs / float(ours.phases[0].cost.matmul_flops)
    return found
