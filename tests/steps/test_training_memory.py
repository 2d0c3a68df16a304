"""Peak memory of a training step as the engine keeps it."""

from __future__ import annotations

from typing import Any

import pytest

from roofmodel.devices.device import Device
from roofmodel.models import hub
from roofmodel.steps.estimate import estimate


@pytest.mark.parametrize(("engine", "gradient", "log_softmax"), [("torch", 2, 4), ("megatron", 4, 4)])
@pytest.mark.parametrize("replicas", [1, 8])
def test_gradients_and_logits_have_the_formats_of_the_engine(
    engine: str, gradient: int, log_softmax: int, replicas: int
) -> None:
    """Megatron-LM, docs/user-guide/features/dist_optimizer.md: 18 bytes per parameter, 6 + 12 / dp when sharded.

    The loss is computed in fp32 in both engines; the gradient of the logits has 16 bits.
    """
    arch, parameters, tokens = hub.load("llama-3.2-1b"), 1_235_814_400, 4096
    options: dict[str, Any] = {"zero": 1, "data_parallel": "sequential"} if replicas > 1 else {}
    found = estimate(
        arch, Device.load("h100"), phase="train", dtype="bf16", seq=tokens, batch=replicas, dp=replicas,
        engine=engine, **options,
    ).memory  # fmt: skip
    assert (
        found.weights + found.gradients + found.optimizer == (2 + gradient) * parameters + 12 * parameters // replicas
    )
    assert found.logits == (log_softmax + 2) * tokens * 128256
    assert found.other == 0


def test_buckets_of_ddp_are_a_copy_of_the_gradients() -> None:
    """PyTorch's DistributedDataParallel: `gradient_as_bucket_view=False` keeps gradients and buckets."""
    alone, wrapped = (
        estimate(hub.load("gpt2"), Device.load("a100"), phase="train", batch=n, dp=n, engine="torch").memory
        for n in (1, 2)
    )
    assert wrapped.other == wrapped.gradients == 2 * 124_439_808
    assert wrapped.total - alone.total == wrapped.other
