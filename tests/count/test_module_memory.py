"""Training memory of a torch module, compared with the allocations in torch's CPU profile."""

from __future__ import annotations

import copy
import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from roofmodel.errors import WorkloadError

torch = pytest.importorskip("torch", reason="roof count needs torch: pip install 'roofmodel[dev]'")

from torch import nn  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

import roofmodel  # noqa: E402
from roofmodel.count.module_memory import tensors, training_memory  # noqa: E402

MODULES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "mlp": (lambda: nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Dropout(0.1), nn.Linear(256, 10)), (32, 64)),
    "transformer": (
        lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(64, 4, 256, batch_first=True), 2),
        (4, 32, 64),
    ),
    "dropout": (lambda: nn.Sequential(nn.Linear(64, 64), nn.Dropout(0.1), nn.Tanh(), nn.Dropout(0.1)), (32, 64)),
    "convolutions": (
        lambda: nn.Sequential(
            nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.Flatten(),
            nn.Linear(8 * 15 * 15, 10), nn.LogSoftmax(-1),
        ),
        (16, 3, 32, 32),
    ),
    "views": (lambda: Views(), (16, 512)),
    "checkpoints": (lambda: Checkpoints(), (512, 64)),
}  # fmt: skip


class Views(nn.Module):
    """Two operations on views of one tensor: its storage is stored once."""

    def forward(self, x: Any) -> Any:
        left, right = (2 * x).chunk(2, dim=-1)
        return (left * right).exp() + left.sigmoid()


class Checkpoints(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64)) for _ in range(3))

    def forward(self, x: Any) -> Any:
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False, preserve_rng_state=False)
        return x


class MaskElements(TorchDispatchMode):
    """The elements of all dropout masks."""

    elements = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.elements += args[0].numel() if func is torch.ops.aten.bernoulli_.float else 0
        return func(*args, **(kwargs or {}))


def allocated_on_cpu(module: nn.Module, inputs: Any) -> int:
    """Bytes that a forward pass allocates and the autograd graph of its output keeps, by torch's profiler.

    Dropout masks are fp32 on CPUs; they are counted with 1 byte per element, as on GPUs.
    """
    with MaskElements() as masks:
        module.train()(inputs)
    gc.collect()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        output = module.train()(inputs)
        graph = [tensor.grad_fn for tensor in tensors(output)]
        del output
        gc.collect()
    assert graph
    allocated = sum(e.nbytes() for e in profile.profiler.kineto_results.events() if e.name() == "[memory]")
    return allocated - (4 - 1) * masks.elements


@pytest.mark.parametrize("name", MODULES)
def test_stored_activations_equal_the_allocations_of_torch_on_the_cpu(name: str) -> None:
    make, shape = MODULES[name]
    module, inputs = make(), torch.randn(shape, requires_grad=name == "views")
    meta = torch.zeros(shape, device="meta", requires_grad=name == "views")
    memory = training_memory(copy.deepcopy(module).to("meta"), (meta,), "fp32", "adam")
    assert memory is not None
    assert memory.kept_activations == pytest.approx(inputs.nbytes + allocated_on_cpu(module, inputs), rel=0.05)
    module_bytes = sum(tensor.nbytes for tensor in (*module.parameters(), *module.buffers()))
    trained = sum(parameter.nbytes for parameter in module.parameters())
    assert (memory.weights, memory.gradients, memory.optimizer) == (
        module_bytes,
        trained,
        2 * trained,
    )  # two fp32 moments


def test_a_linear_layer_stores_its_input(tmp_path: Path) -> None:
    """fp16: 2 bytes for each weight and gradient, 12 for the master weight and two moments; the input is 8 × 64."""
    (tmp_path / "code.py").write_text("from torch import nn\ndef wide():\n    return nn.Linear(64, 256)\n")
    target, parameters = f"{tmp_path / 'code.py'}:wide", 64 * 256 + 256
    memory = roofmodel.count(target, ["8x64"]).to_dict()["memory"]
    assert memory["weights"] == memory["gradients"] == 2 * parameters
    assert memory["optimizer"] == 12 * parameters
    assert memory["kept_activations"] == 2 * 8 * 64
    assert memory["total"] == 16 * parameters + 2 * 8 * 64
    momentum = roofmodel.count(target, ["8x64"], optimizer="momentum", dtype="fp32").to_dict()["memory"]
    assert momentum["optimizer"] == 4 * parameters
    assert roofmodel.count(target, ["8x64"], dtype="int8").to_dict()["memory"] is None
    with pytest.raises(WorkloadError, match="optimizer: unknown value 'adan'; did you mean 'adam'"):
        roofmodel.count(target, ["8x64"], optimizer="adan")  # type: ignore[arg-type]


def test_frozen_parameters_have_neither_gradients_nor_optimizer_state() -> None:
    module = nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 10)).to("meta")
    module[0].requires_grad_(False)
    memory = training_memory(module, (torch.zeros(4, 64, device="meta"),), "fp32", "sgd")
    assert memory is not None
    assert memory.weights == 4 * (64 * 65 + 65 * 10)
    assert memory.gradients == 4 * 65 * 10
    assert memory.optimizer == 0


def test_a_module_that_cannot_train_is_still_counted(tmp_path: Path) -> None:
    (tmp_path / "code.py").write_text(
        "import torch\nclass Eval(torch.nn.Linear):\n    def __init__(self):\n        super().__init__(8, 8)\n"
        "    def forward(self, x):\n        if self.training:\n            raise ValueError('inference only')\n"
        "        return super().forward(x)\n"
    )
    report = roofmodel.count(f"{tmp_path / 'code.py'}:Eval", ["2x8"])
    assert report.to_dict()["memory"] is None
    assert report.to_dict()["totals"]["matmul_flops"] == 2 * 2 * 8 * 8
    assert "training mode: ValueError: inference only" in report.count.memory_error
