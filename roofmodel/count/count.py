"""FLOPs, bytes and training memory of any torch module, from what torch dispatches on meta tensors without computing.

Matmul FLOPs come from `torch.utils.flop_counter`, vector FLOPs from the table of `roofline/vector_operators.py`. Bytes
are the sizes of the tensors that an operator reads and writes. Views cost nothing. An operator that is in neither is
reported as uncounted, not as zero.
"""

from __future__ import annotations

import copy
import importlib
import importlib.util
import inspect
import math
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

from roofmodel.count.module_memory import TrainingMemory, tensors, training_memory
from roofmodel.counting import vector_flops
from roofmodel.counting.operator import Cost
from roofmodel.counting.tensors import FORMATS
from roofmodel.counting.vector_flops import NORM
from roofmodel.devices.device import Device
from roofmodel.errors import Option, RoofError, WorkloadError, choices, cut, kind_of, shorten
from roofmodel.files.text_files import printable
from roofmodel.options.values import Optimizer
from roofmodel.roofline.vector_operators import OPERATORS
from roofmodel.timing.roofline import Placement, place

FVCORE_LIMIT = 500_000_000  # parameters
WITHOUT_COST = {"_unsafe_view", "_reshape_alias", "empty", "empty_like", "new_empty", "lift_fresh", "empty_strided"}


class DispatchedOperator(NamedTuple):
    """One dispatched operator. If `known` is false, it has no FLOP formula and its `cost` is bytes only."""

    module: str
    operator: str
    shape: tuple[int, ...]
    known: bool
    cost: Cost
    placement: Placement | None


class CalledModule(NamedTuple):
    """A call of a submodule: its path, class, first output's shape, and its parameters without those of submodules."""

    path: str
    kind: str
    shape: tuple[int, ...]
    parameters: int
    is_leaf: bool  # has no submodules


class Count(NamedTuple):
    """The operators of a module in the order of their dispatch."""

    name: str
    inputs: tuple[str, ...]
    dtype: str
    parameters: int
    operators: tuple[DispatchedOperator, ...]
    modules: tuple[CalledModule, ...]  # in the order in which they return
    trainable: int  # parameters
    input_elements: int
    fvcore: int | None  # multiply-adds; None if fvcore is not installed or fails
    device: Device | None
    memory: TrainingMemory | None  # None for formats below 16 bits, and if the module cannot run in training mode
    memory_error: str = ""  # why it cannot

    @property
    def uncounted(self) -> dict[str, int]:
        """Operators without a FLOP formula, with their numbers of calls."""
        names = [op.operator for op in self.operators if not op.known]
        return {name: names.count(name) for name in dict.fromkeys(names)}

    @property
    def layers(self) -> list[CalledModule]:
        """The modules without submodules."""
        return [module for module in self.modules if module.is_leaf]

    @property
    def cost(self) -> Cost:
        return sum((op.cost for op in self.operators), Cost())


def count(
    target: str,
    inputs: list[str],
    dtype: str = "fp16",
    device: Device | None = None,
    optimizer: Optimizer = "adam",
) -> Count:
    """Count the module that `MODULE:FACTORY` creates, on inputs such as `1x3x224x224` or `int:1x1024`.

    FLOPs and bytes are those of a forward pass, memory that of a training step with the optimizer.

    Raises WorkloadError for invalid options, and for an error in the module's code, with its file and line.
    """
    shapes = [_shape(text) for text in inputs]
    try:
        import torch
    except ImportError:
        raise WorkloadError("counting a module needs torch; install it with pip install torch") from None
    module = _build(target, torch)
    with user_errors(f"{target} on {' '.join(inputs)}"):
        counted = _run(module, printable(os.path.basename(target)), shapes, tuple(inputs), dtype, device)
    try:
        with user_errors("training mode"):
            return counted._replace(memory=training_memory(module, _meta_inputs(shapes), dtype, optimizer))
    except WorkloadError as error:
        return counted._replace(memory_error=str(error))


def _shape(text: str) -> tuple[bool, tuple[int, ...]]:
    """Whether the input consists of integers, and its shape."""
    kind, _, sizes = text.rpartition(":")
    parts = sizes.split("x")
    if kind not in ("", "int", "float") or not all(p.isascii() and p.isdigit() and int(p) > 0 for p in parts):
        raise WorkloadError(
            Option("input"), f" is {shorten(text)}: not a shape; try 1x3x224x224, or int:1x1024 for integers"
        )
    return kind == "int", tuple(map(int, parts))


# --- The user's code --------------------------------------------------------------------------------


@contextmanager
def user_errors(source: str) -> Iterator[None]:
    """Raise an error of the user's code as a WorkloadError of one line, with its file and line number.

    What the code prints goes to standard error: standard output is the document.
    """
    try:
        with redirect_stdout(sys.stderr):
            yield
    except (RoofError, KeyboardInterrupt):
        raise
    except (Exception, SystemExit) as error:
        own = (
            os.path.dirname(os.path.dirname(os.path.abspath(__file__))),
            os.path.dirname(os.__file__),
            "<frozen",
        )
        frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith(own)]
        user_frames = [f for f in frames if f"{os.sep}site-packages{os.sep}" not in f.filename] or frames
        at = f" at {user_frames[-1].filename}:{user_frames[-1].lineno}" if user_frames else ""
        if isinstance(error, SyntaxError) and error.filename:
            at = f" at {error.filename}:{error.lineno}"
        message = cut(" ".join(_said(error).split()), 200)
        raise WorkloadError(f"{source}: {type(error).__name__}: {message}{at}") from None


def _said(error: BaseException) -> str:
    try:
        return printable(str(error))
    except Exception:  # the class of the exception is the user's code as well
        return "(its message cannot be printed)"


def _build(target: str, torch: Any) -> Any:
    """The module that a factory or class returns; created on the meta device if its code allows it."""
    where, _, name = target.rpartition(":")
    if not where or not name.isidentifier():
        raise WorkloadError(f"{shorten(target)} is not MODULE:FACTORY; try torchvision.models:resnet50 or ./my.py:make")
    with user_errors(where):
        code = _import(where)
    factory = getattr(code, name, None)
    if factory is None:
        known_names = [key for key, value in vars(code).items() if callable(value) and not key.startswith("_")]
        raise WorkloadError(f"{where} has no {name!r}{choices(name, known_names[:40])}")
    module = factory
    if not isinstance(factory, torch.nn.Module):
        if not callable(factory):
            raise WorkloadError(f"{target} is {kind_of(factory)}, not a function that returns a torch module")
        if required := _required_arguments(factory):
            raise WorkloadError(
                f"{target} needs arguments ({', '.join(required)}); give a function without arguments, such as "
                "./my.py:make, that returns the module"
            )
        with user_errors(target):
            try:
                with torch.device("meta"):
                    module = factory()
            except Exception:  # the constructor needs real values
                module = factory()
    if not isinstance(module, torch.nn.Module):
        raise WorkloadError(f"{target} returns {kind_of(module)}, not a torch module")
    with user_errors(target):
        return module.to("meta").eval()


def _required_arguments(factory: Callable[..., Any]) -> list[str]:
    """The arguments that a factory cannot be called without; empty where its signature is unknown."""
    try:
        parameters = inspect.signature(factory).parameters.values()
    except (TypeError, ValueError):
        return []
    optional = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [p.name for p in parameters if p.default is inspect.Parameter.empty and p.kind not in optional]


def _import(where: str) -> Any:
    if where.endswith(".py"):
        path = Path(where).expanduser()
        if not path.is_file():
            raise WorkloadError(f"{where}: no such file")
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None
        assert spec.loader is not None
        sys.path.insert(0, str(path.resolve().parent))
        code = importlib.util.module_from_spec(spec)
        sys.modules[path.stem] = code
        spec.loader.exec_module(code)
        return code
    sys.path.insert(0, os.getcwd())
    return importlib.import_module(where)


# --- The dispatcher ---------------------------------------------------------------------------------


def _run(module: Any, name: str, shapes: Any, inputs: tuple[str, ...], dtype: str, device: Device | None) -> Count:
    """Run the module on meta tensors, and count each operator that torch dispatches."""
    from unittest.mock import patch

    import torch
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils.module_tracker import ModuleTracker

    fused = torch.nn.functional.scaled_dot_product_attention
    operators: list[DispatchedOperator] = []
    within_fused: list[str] = []
    called: list[CalledModule] = []
    tracker = ModuleTracker()

    class Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            output = func(*args, **(kwargs or {}))
            if not within_fused and not _is_free(func):
                operators.append(_dispatched(path(), func, args, kwargs or {}, output, dtype, device))
            return output

    def attend(*args: Any, **kwargs: Any) -> Any:
        """Counts fused attention as one operator: on meta tensors, torch dispatches its unfused fallback."""
        within_fused.append(path())
        try:
            output = fused(*args, **kwargs)
        finally:
            within_fused.pop()
        operators.append(_attention(path(), args, kwargs, output, dtype, device))
        return output

    class FusedAttention(TorchFunctionMode):
        """Finds the calls of fused attention, except those of torch's own functions, within which modes are off."""

        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return (attend if func is fused and not within_fused else func)(*args, **(kwargs or {}))

    def path() -> str:
        return str(max(tracker.parents - {"Global"}, key=len, default="").partition(".")[2])

    def recorder(path: str) -> Callable[[Any, Any, Any], None]:
        def hook(submodule: Any, _: Any, output: Any) -> None:
            first = next(iter(tensors(output)), None)
            shape = tuple(first.shape) if first is not None else ()
            own = sum(p.numel() for p in submodule.parameters(recurse=False))
            called.append(CalledModule(path, type(submodule).__name__, shape, own, not [*submodule.children()]))

        return hook

    hooks = [
        submodule.register_forward_hook(recorder(path))
        for path, submodule in module.named_modules()
        if not [*submodule.children()] or (path and not isinstance(submodule, torch.nn.Sequential))
    ]
    on_meta = _meta_inputs(shapes)
    with (
        torch.no_grad(), tracker, FusedAttention(), Recorder(),  # type: ignore[no-untyped-call]
        patch.object(torch.nn.functional, "scaled_dot_product_attention", attend),
    ):  # fmt: skip
        module(*on_meta)
    for hook in hooks:
        hook.remove()
    total = sum(p.numel() for p in module.parameters())
    trainable = sum(p.numel() for p in module.parameters() if p.requires_grad)
    elements = sum(tensor.numel() for tensor in on_meta)
    return Count(
        name, inputs, dtype, total, tuple(operators), tuple(called), trainable, elements, _fvcore(module, on_meta),
        device, None,
    )  # fmt: skip


def _name(func: Any) -> str:
    """The name of a dispatched function without its namespace, such as `convolution`."""
    return str(func._schema.name.removeprefix("aten::"))


def _is_free(func: Any) -> bool:
    """Whether a dispatched function moves no data: it returns views, or only allocates."""
    name = _name(func)
    viewed = [r.alias_info is not None and not r.alias_info.is_write for r in func._schema.returns]
    return name in WITHOUT_COST or name.startswith("detach") or (bool(viewed) and all(viewed))


def _dispatched(
    path: str, func: Any, args: Any, kwargs: Any, output: Any, dtype: str, device: Device | None
) -> DispatchedOperator:
    """The cost of one dispatched function; `path` is the module that called it."""
    from torch.utils.flop_counter import flop_registry

    operator = _name(func)
    inputs, written = list({id(t): t for t in tensors((args, kwargs))}.values()), tensors(output)
    matmul, flops, is_known = 0, 0, True
    if func._overloadpacket in flop_registry:
        matmul = int(flop_registry[func._overloadpacket](*args, **kwargs, out_val=output))
        if any(tensor.is_complex() for tensor in written):
            matmul *= 4  # a complex product is four real ones, which torch's formulas count as one
    else:
        counted = _vector(operator.rstrip("_"), args, inputs, written)
        is_known, flops = counted is not None, counted or 0

    cost = Cost(matmul, flops, sum(_size(each, dtype) for each in inputs), sum(_size(each, dtype) for each in written))
    shape = tuple(written[0].shape) if written else ()
    return DispatchedOperator(path, operator, shape, is_known, cost, place(cost, device, dtype) if device else None)


def _attention(path: str, args: Any, kwargs: Any, output: Any, dtype: str, device: Device | None) -> DispatchedOperator:
    """The cost of one fused attention: it reads queries, keys, values and a mask, and writes the output.

    With `is_causal`, query i attends to keys up to i (pairs below the diagonal). A given mask skips no pairs.
    """
    names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
    arguments = {**dict(zip(names, args, strict=False)), **kwargs}
    query, keys = arguments["query"], arguments["key"].shape[-2]
    queries, rows = query.shape[-2], math.prod(query.shape[:-2])
    pairs = queries * keys
    if arguments.get("is_causal"):
        full = min(queries, keys)
        pairs = full * (full + 1) // 2 + (queries - full) * keys
    matmul = 2 * rows * pairs * (query.shape[-1] + arguments["value"].shape[-1])
    inputs = tensors((args, kwargs))  # queries, keys and values are read even if they are one tensor
    softmax = vector_flops.SOFTMAX * rows * pairs
    cost = Cost(matmul, softmax, sum(_size(each, dtype) for each in inputs), _size(output, dtype))
    placed = place(cost, device, dtype) if device else None
    return DispatchedOperator(path, "scaled_dot_product_attention", tuple(output.shape), True, cost, placed)


def _size(tensor: Any, dtype: str) -> int:
    """The bytes of a tensor, with elements of `dtype` in place of floats."""
    if tensor.is_floating_point():
        return int(FORMATS[dtype].bytes(tensor.numel()))
    return int(tensor.numel() * tensor.itemsize)


def _meta_inputs(shapes: list[tuple[bool, tuple[int, ...]]]) -> tuple[Any, ...]:
    """Inputs of these shapes, of integers or floats, on the meta device."""
    import torch

    return tuple(
        torch.zeros(shape, dtype=torch.long if integers else None, device="meta") for integers, shape in shapes
    )


def _vector(name: str, args: Any, inputs: list[Any], written: list[Any]) -> int | None:
    """Vector FLOPs of an operator; None if the table does not have it."""
    operator = OPERATORS.get(name.removeprefix("_foreach_"))
    if operator is None:
        return None
    flops, per = operator.flops, "list" if name.startswith("_foreach_") else operator.per
    if operator.training is not None and any(args[operator.training : operator.training + 1]):
        flops = NORM["layernorm"]  # with mean and variance
    if not flops:
        return 0
    sizes = {"list": tensors(args[:1]), "input": inputs[:1], "output": written[:1], "window": written[:1]}
    if per == "larger":
        return int(flops * max(inputs[0].numel(), written[0].numel()))
    elements = sum(tensor.numel() for tensor in sizes[per])
    return int(flops * elements * (_window(name, args[1]) if per == "window" else 1))


def _window(name: str, sides: Any) -> int:
    """The values of a pool's window: of one side, given as a number or a list, or of each."""
    window = sides if isinstance(sides, list | tuple) else [sides]
    return int(math.prod(window) ** (int(name[name.index("d") - 1]) if len(window) == 1 else 1))


def _fvcore(module: Any, inputs: tuple[Any, ...]) -> int | None:
    """fvcore's total of multiply-adds, including norms and pools; None for large modules, since fvcore runs them."""
    try:
        import warnings

        import torch
        from fvcore.nn import FlopCountAnalysis

        if sum(map(torch.numel, module.parameters())) > FVCORE_LIMIT:
            return None
        real = copy.deepcopy(module).to_empty(device="cpu")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # fvcore uses torch.jit.trace, which is deprecated
            analysis = FlopCountAnalysis(real, tuple(torch.zeros_like(tensor, device="cpu") for tensor in inputs))
            return int(analysis.unsupported_ops_warnings(False).uncalled_modules_warnings(False).total())
    except Exception:  # not installed, or the module cannot be traced
        return None
