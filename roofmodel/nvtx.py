"""Named ranges around Python code, so that a profile shows which part of a model launched each kernel.

>>> from roofmodel import nvtx
>>> nvtx.mark(model)                                             # every module, by its path: transformer.h.0.attn
>>> nvtx.patch(torch.nn.functional, "scaled_dot_product_attention", "attention.flash")
>>> with nvtx.range("step"):                                     # also @nvtx.range("step") above a function
...     model(tokens)

Nsight Systems and Nsight Compute record them as NVTX push/pop ranges; a running PyTorch profiler records annotations
with the same names. `roof plot --by nvtx` groups kernels by them. A range does nothing without PyTorch, in a PyTorch
build without CUDA if no profiler runs, and in code that `torch.compile` compiles, so that it does not break graphs.
Autograd launches the backward pass on its own threads: `with nvtx.range("backward"): loss.backward()` names it.
"""

from __future__ import annotations

import inspect
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any


@contextmanager
def range(name: str) -> Iterator[None]:
    """A range around a block or, as a decorator, around each call of a function. It also ends on an exception."""
    with _open_range(name):
        yield


def mark(model: Any) -> ExitStack:
    """Mark each call of a `torch.nn.Module` and of its submodules with a range named by its path.

    The range of the model itself is named by its class. Modules that are already marked are not changed. Closing the
    result, or leaving its `with` block, removes the marks. Raises TypeError if `model` is not a module.
    """
    if not hasattr(model, "named_modules"):
        raise TypeError(f"mark takes a torch.nn.Module, not {type(model).__name__}; patch takes functions")
    undo = ExitStack()
    for path, module in model.named_modules():
        if not any(isinstance(hook, _EnterHook) for hook in module._forward_pre_hooks.values()):
            enter = _EnterHook(path or type(module).__name__)
            undo.callback(module.register_forward_pre_hook(enter, prepend=True).remove)
            undo.callback(module.register_forward_hook(_leave_hook, always_call=True).remove)
    return undo


def patch(owner: Any, function: str, name: str | None = None) -> ExitStack:
    """Replace a function of a module, a class or an object by one that calls it inside a range.

    The range is named `name`, by default `owner.function`. A function that is already marked is not changed. Closing
    the result, or leaving its `with` block, restores the function. Raises AttributeError if the owner has no such
    function, TypeError if it is not callable.
    """
    undo = ExitStack()
    whose = getattr(owner, "__name__", type(owner).__name__)
    if not hasattr(owner, function):
        raise AttributeError(f"{whose} has no {function!r} to patch", name=function, obj=owner)
    before, called = inspect.getattr_static(owner, function), getattr(owner, function)
    if not callable(called):
        raise TypeError(f"{whose}.{function} is of type {type(called).__name__} and cannot be called")
    if hasattr(called, _MARK):
        return undo
    label = name or f"{whose}.{function}"
    of_class = inspect.isclass(owner)
    kind = type(before) if of_class and isinstance(before, staticmethod | classmethod) else None
    # A class stores an unbound function; a module or an object stores the callable itself.
    marked = range(label)(before.__func__ if kind else before if of_class else called)
    setattr(marked, _MARK, label)
    if function in vars(owner):
        undo.callback(setattr, owner, function, before)
    else:  # inherited, or a method of the object's class
        undo.callback(delattr, owner, function)
    setattr(owner, function, kind(marked) if kind else marked)
    return undo


_MARK = "__roofmodel_range__"
_open = threading.local()  # .ranges: open module ranges of this thread, innermost last


class _EnterHook:
    """A forward pre-hook that opens a range."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, module: Any, arguments: Any) -> None:
        if not _compiling():
            _open.__dict__.setdefault("ranges", []).append(_open_range(self.name))


def _leave_hook(module: Any, arguments: Any, output: Any) -> None:
    """A forward hook that closes the range of the module, also if the module raises."""
    if not _compiling() and _open.__dict__.get("ranges"):
        _open.ranges.pop().close()


def _open_range(name: str) -> ExitStack:
    """Open a range for NVTX and for a running PyTorch profiler; closing the result ends it."""
    closing = ExitStack()
    torch = sys.modules.get("torch")  # without an imported torch, there is nothing to record
    if torch is not None and not _compiling():
        if torch.backends.cuda.is_built():
            torch.cuda.nvtx.range_push(name)
            closing.callback(torch.cuda.nvtx.range_pop)
        if torch.autograd._profiler_enabled():
            closing.enter_context(torch.profiler.record_function(name))
    return closing


def _compiling() -> bool:
    """Whether torch.compile is tracing the caller, in which case ranges must do nothing."""
    torch = sys.modules.get("torch")
    return torch is not None and torch.compiler.is_compiling()
