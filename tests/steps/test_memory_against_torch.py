"""Peak memory of training steps against torch's own tracker of tensors, on the CPU."""

from __future__ import annotations

from typing import Any

import pytest

from roofmodel.devices.device import Device
from roofmodel.models.config import architecture
from roofmodel.steps.estimate import estimate


def tracked_peak(config: dict[str, Any], batch: int, seq: int) -> int:
    """The peak bytes of a step with Adam: parameters, gradients, states, activations and temporary tensors."""
    import torch
    from torch.distributed._tools.mem_tracker import MemTracker
    from transformers import AutoConfig, AutoModelForCausalLM

    settings = AutoConfig.for_model(**config, bos_token_id=0, eos_token_id=0)
    model = AutoModelForCausalLM.from_config(settings, attn_implementation="sdpa").train()
    optimizer = torch.optim.Adam(model.parameters(), foreach=False)
    tokens = torch.zeros(batch, seq, dtype=torch.long)

    def step() -> None:
        model(tokens, labels=tokens, use_cache=False).loss.backward()
        optimizer.step()

    step()  # creates gradients and states
    tracker = MemTracker()
    tracker.track_external(model, optimizer)
    with tracker:
        optimizer.zero_grad(set_to_none=False)
        step()
    return int(sum(each["Total"] for each in tracker.get_tracker_snapshot("peak").values()))


@pytest.mark.parametrize(("layers", "vocabulary", "batch"), [(6, 1000, 4), (12, 5000, 1)])
def test_the_memory_of_a_training_step_is_within_5_percent_of_torch(layers: int, vocabulary: int, batch: int) -> None:
    """GPT-2 in fp32, whose activation, norms and attention are single kernels, without dropout. The layers have the
    peak: with a large vocabulary, the loss of eager PyTorch keeps two more copies of the logits than are counted."""
    config = {
        "model_type": "gpt2", "n_embd": 256, "n_layer": layers, "n_head": 4, "n_positions": 512,
        "vocab_size": vocabulary, "activation_function": "gelu_pytorch_tanh", "attn_pdrop": 0.0, "embd_pdrop": 0.0,
        "resid_pdrop": 0.0,
    }  # fmt: skip
    arch = architecture({**config, "architectures": ["GPT2LMHeadModel"]}, "gpt2", "gpt2")
    found = estimate(arch, Device.load("a100"), phase="train", dtype="fp32", batch=batch, seq=512, engine="torch")
    assert found.memory.total == pytest.approx(tracked_peak(config, batch, 512), rel=0.05)
