"""Named ranges around Python code, so that kernels in a profile tell which part of a model launched them.

>>> from roofmodel import nvtx
>>> nvtx.mark(model)                                             # every module, by its path: transformer.h.0.attn
>>> nvtx.patch(torch.nn.functional, "scaled_dot_product_attention", "attention.flash")
>>> with nvtx.range("step"):                                     # also @nvtx.range("step") above a function
...     model(tokens)

Nsight Systems and Nsight Compute see them as NVTX ranges (pushed and popped), the PyTorch profiler, where one runs, as
annotations of the same names. `roof plot --by nvtx` groups by them. Without PyTorch, or in a build of it without CUDA
and with no profiler running, a range does nothing; what `torch.compile` compiles is left alone, so that no range breaks
its graphs. Backward passes launch on threads of their own: `with nvtx.range("backward"): loss.backward()` names them.
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
    """A range around a block or, as a decorator, around each call of a function; it ends whatever is raised."""
    with _opened(name):
        yield


def mark(model: Any) -> ExitStack:
    """Mark each call of a `torch.nn.Module` and of its submodules with a range named by its path.

    The model itself is named by its class. Modules that are marked already stay as they are. The result undoes
    what this call did, when it is closed or at the end of a `with`. Raises TypeError for what is no module.
    """
    if not hasattr(model, "named_modules"):
        raise TypeError(f"mark takes a torch.nn.Module, not {type(model).__name__}; patch takes functions")
    undo = ExitStack()
    for path, module in model.named_modules():
        if not any(isinstance(hook, _Enter) for hook in module._forward_pre_hooks.values()):
            enter = _Enter(path or type(module).__name__)
            undo.callback(module.register_forward_pre_hook(enter, prepend=True).remove)
            undo.callback(module.register_forward_hook(_leave, always_call=True).remove)
    return undo


def patch(owner: Any, function: str, name: str | None = None) -> ExitStack:
    """Replace a function of a module, a class or an object by one that calls it within a range.

    The range is called `name`, else by the owner's name and the function's. A function that is marked already stays
    as it is. The result undoes it, when it is closed or at the end of a `with`. Raises AttributeError for a name that
    the owner lacks, TypeError for what cannot be called.
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
    # A class binds what it keeps when it is looked up; in a module or an object stands what is called.
    marked = range(label)(before.__func__ if kind else before if of_class else called)
    setattr(marked, _MARK, label)
    if function in vars(owner):
        undo.callback(setattr, owner, function, before)
    else:  # inherited, or a method of the object's class
        undo.callback(delattr, owner, function)
    setattr(owner, function, kind(marked) if kind else marked)
    return undo


_MARK = "__roofmodel_range__"
_open = threading.local()  # .ranges: those of the modules that this thread is in, as they were entered


class _Enter:
    """A forward pre-hook that opens a range."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, module: Any, arguments: Any) -> None:
        if not _compiling():
            _open.__dict__.setdefault("ranges", []).append(_opened(self.name))


def _leave(module: Any, arguments: Any, output: Any) -> None:
    """A forward hook, also called when the module raises, that closes the range of the module."""
    if not _compiling() and _open.__dict__.get("ranges"):
        _open.ranges.pop().close()


def _opened(name: str) -> ExitStack:
    """A range that is open until it is closed, for each tool that may be watching."""
    closing = ExitStack()
    torch = sys.modules.get("torch")  # who has not imported it launches nothing through it
    if torch is not None and not _compiling():
        if torch.backends.cuda.is_built():
            torch.cuda.nvtx.range_push(name)
            closing.callback(torch.cuda.nvtx.range_pop)
        if torch.autograd._profiler_enabled():
            closing.enter_context(torch.profiler.record_function(name))
    return closing


def _compiling() -> bool:
    """Whether torch.compile is looking at the caller, which must see nothing to do here."""
    torch = sys.modules.get("torch")
    return torch is not None and torch.compiler.is_compiling()
