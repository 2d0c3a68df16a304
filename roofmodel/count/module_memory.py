"""Memory of a training step of any torch module: weights, gradients, optimizer state, activations kept by autograd.

The module runs forward on meta tensors with gradients. What autograd keeps for the backward pass are the storages that
are still alive when the output's graph is all that remains of the pass; a storage counts once, whatever views of it
exist. Temporary tensors of the backward pass are not included. The mask of dropout has 1 byte per element, as on GPUs
(`native_dropout`); on other devices, PyTorch's mask has the format of the tensor.
"""

from __future__ import annotations

import gc
from typing import Any, NamedTuple

from roofmodel.counting.tensors import FORMATS, MASK, Widths
from roofmodel.counting.training.step import optimizer_state_bytes
from roofmodel.options.values import Optimizer

MIN_TRAINING_BITS = 16


class TrainingMemory(NamedTuple):
    """Bytes of a training step at the start of its backward pass."""

    weights: int  # parameters and buffers
    gradients: int  # of the parameters that are trained
    optimizer: int
    kept_activations: int  # with the inputs
    optimizer_name: str

    @property
    def total(self) -> int:
        return self.weights + self.gradients + self.optimizer + self.kept_activations


class Kept(NamedTuple):
    """A storage that is alive: its weak reference, and its size in the counted format."""

    reference: Any
    bytes: int


def training_memory(module: Any, inputs: tuple[Any, ...], dtype: str, optimizer: Optimizer) -> TrainingMemory | None:
    """The memory of a training step of a module on meta tensors, with all floating-point tensors in `dtype`.

    None for a format that is too narrow to train in. Raises what the module's code raises.
    """
    width = FORMATS[dtype]
    if width.bits < MIN_TRAINING_BITS:
        return None
    parameters = list(module.parameters())
    trained = sum(parameter.numel() for parameter in parameters if parameter.requires_grad)
    weights = {_storage(tensor)._cdata: _bytes(tensor, dtype) for tensor in (*parameters, *module.buffers())}
    return TrainingMemory(
        weights=sum(weights.values()),
        gradients=int(width.bytes(trained)),
        optimizer=int(optimizer_state_bytes(trained, Widths(width, width, width), optimizer)),
        kept_activations=_kept_bytes(module, inputs, dtype),
        optimizer_name=optimizer,
    )


def _kept_bytes(module: Any, inputs: tuple[Any, ...], dtype: str) -> int:
    """Bytes of the inputs and of all storages that a forward pass in training mode leaves alive."""
    import torch
    from torch.multiprocessing.reductions import StorageWeakRef
    from torch.utils._python_dispatch import TorchDispatchMode

    input_bytes = {_storage(tensor)._cdata: _bytes(tensor, dtype) for tensor in inputs}
    weights = {_storage(tensor)._cdata for tensor in (*module.parameters(), *module.buffers())}
    storages: dict[int, Kept] = {}

    class Allocations(TorchDispatchMode):  # type: ignore[no-untyped-call]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            output = func(*args, **(kwargs or {}))
            if func is torch.ops.aten.bernoulli_.float and (mask := storages.get(_storage(output)._cdata)):
                storages[_storage(output)._cdata] = mask._replace(bytes=output.numel() * MASK.bits // 8)
            for tensor in tensors(output):
                storage = _storage(tensor)
                if storage._cdata not in input_bytes and storage._cdata not in weights:
                    kept_storage = storages.get(storage._cdata)
                    if kept_storage is None or kept_storage.reference.expired():
                        reference = StorageWeakRef(storage)  # type: ignore[no-untyped-call]
                        storages[storage._cdata] = Kept(reference, _bytes(tensor, dtype))
            return output

    was_training = module.training
    module.train()
    try:
        with torch.enable_grad(), Allocations():  # type: ignore[no-untyped-call]
            graph = [tensor.grad_fn for tensor in tensors(module(*inputs))]
    finally:
        module.train(was_training)
    gc.collect()  # reference cycles in the module's code
    alive = sum(storage.bytes for storage in storages.values() if not storage.reference.expired())
    del graph
    return sum(input_bytes.values()) + alive


def tensors(value: Any) -> list[Any]:
    """All tensors in a value of nested dicts, lists and tuples."""
    import torch

    if isinstance(value, torch.Tensor):
        return [value]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else ()
    return [tensor for each in inner for tensor in tensors(each)]


def _storage(tensor: Any) -> Any:
    return tensor.untyped_storage()


def _bytes(tensor: Any, dtype: str) -> int:
    """The size of a tensor's storage, with floating-point elements in `dtype`."""
    size: int = _storage(tensor).nbytes()
    return int(FORMATS[dtype].bytes(size // tensor.itemsize)) if tensor.is_floating_point() else size
