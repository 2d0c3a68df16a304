"""Parameters per GPU, compared with the tensor-parallel plans of transformers' classes."""

from __future__ import annotations

import re
from typing import Any

import pytest

from roofmodel.counting import phases
from roofmodel.counting.workload import Parallel, Workload
from roofmodel.models import hub

MODELS = [
    ("Meta-Llama-3-8B", 8), ("Mistral-7B-v0.1", 4), ("Qwen2.5-7B", 4), ("Qwen3-8B", 8), ("Mixtral-8x7B-v0.1", 8),
    ("Qwen3-30B-A3B", 4), ("gemma-2-9b", 8), ("c4ai-command-r-v01", 8), ("granite-3.3-8b-instruct", 2),
    ("starcoder2-7b", 4), ("phi-2", 4), ("pythia-6.9b", 8), ("Phi-3-mini-4k-instruct", 4), ("glm-4-9b-hf", 2),
    ("gemma-4-31B-it", 4), ("gemma-4-26B-A4B-it", 2),
]  # fmt: skip


@pytest.mark.parametrize(("name", "tp"), MODELS)
def test_tensor_parallelism_follows_the_plan_of_transformers(name: str, tp: int) -> None:
    """Without tables and heads: the plans replicate tables and shard heads by another rule."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    entry = next(entry for entry in hub.catalog() if entry.id.endswith(f"/{name}"))
    config = transformers.AutoConfig.for_model(**entry.config)
    with torch.device("meta"):
        model = transformers.AutoModel.from_config(config)
    expected = sum(
        _elements_per_gpu(name, tensor, config.base_model_tp_plan, tp)
        for name, tensor in model.named_parameters()
        if name.startswith("layers.")
    )
    step = Workload(("forward",), parallel=Parallel(tp=tp)).steps()[0]
    counted = {
        (tensor.name, op.layers): op.count * tensor.elements(op.sizes)
        for op in phases.model_operators(hub.load(name), step)
        if op.layers
        for tensor in op.parameters
    }
    assert sum(counted.values()) == expected


def _elements_per_gpu(name: str, tensor: Any, plan: dict[str, str], tp: int) -> int:
    """Elements of a parameter on one GPU."""
    size = int(tensor.numel())
    for pattern, sharding in plan.items():
        if re.fullmatch(re.escape(pattern).replace(r"\*", r"\d+") + r"(\.weight|\.bias)?", name):
            split = "colwise" in sharding or (sharding.startswith("rowwise") and not name.endswith(".bias"))
            return size // tp if split else size
    return size
