"""Any torch module as operators: what the dispatcher sees on meta tensors, no arithmetic done and no memory taken.

Matmul FLOPs are torch's own (`torch.utils.flop_counter`); vector FLOPs those of the table below, in the convention of
`counting/vector_flops.py`; bytes are the sizes of the tensors that an operator reads and writes. Views cost nothing. An
operator that is in no table is uncounted, which is not zero.
"""

from __future__ import annotations

import copy
import importlib
import importlib.util
import math
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from roofmodel.counting import vector_flops
from roofmodel.counting.number_formats import COMPUTE_FORMATS, FORMATS
from roofmodel.counting.operator import Cost
from roofmodel.devices.device import Device
from roofmodel.errors import Option, RoofError, WorkloadError, choices, shorten
from roofmodel.prediction.roofline import Placement, place

# FLOPs for each element of the output
ELEMENTWISE = {
    **dict.fromkeys(("add", "sub", "rsub", "mul", "div", "neg", "abs", "maximum", "minimum", "where"), 1),
    **dict.fromkeys(("exp", "log", "sqrt", "rsqrt", "reciprocal", "pow", "erf", "sin", "cos", "floor", "round"), 1),
    **dict.fromkeys(("eq", "ne", "lt", "le", "gt", "ge", "clamp_min", "clamp_max", "masked_fill", "threshold"), 1),
    **{
        name: vector_flops.ACTIVATION[name]
        for name in ("relu", "leaky_relu", "tanh", "sigmoid", "silu", "gelu", "mish")
    },
    "clamp": 2, "hardtanh": 2, "addcmul": 3, "addcdiv": 3, "lerp": 3,
}  # fmt: skip
# FLOPs for each element of the first tensor read
OVER_INPUT = {
    **dict.fromkeys(("sum", "mean", "amax", "amin", "max", "min", "argmax", "argmin", "cumsum", "prod"), 1),
    **dict.fromkeys(("_adaptive_avg_pool2d", "adaptive_avg_pool2d", "adaptive_avg_pool1d"), 1),
    **dict.fromkeys(("_softmax", "_log_softmax"), vector_flops.SOFTMAX),
    **dict.fromkeys(("native_layer_norm", "native_group_norm"), vector_flops.NORM["layernorm"]),
    **dict.fromkeys(("native_batch_norm", "_native_batch_norm_legit_no_training"), vector_flops.NORM["batchnorm"]),
    "_fused_rms_norm": vector_flops.NORM["rmsnorm"],
}
POOLS = ("max_pool2d_with_indices", "avg_pool2d", "max_pool1d", "avg_pool1d")  # the window for each output
MOVES = {
    "clone", "copy", "cat", "stack", "_to_copy", "embedding", "index", "index_select", "gather", "constant_pad_nd",
    "repeat", "roll", "flip", "fill", "zero", "zeros", "zeros_like", "ones", "ones_like", "full", "full_like",
    "arange", "new_zeros", "new_ones", "new_full", "scalar_tensor", "tril", "triu", "slice_scatter", "pixel_shuffle",
}  # fmt: skip
FVCORE_LIMIT = 500_000_000  # parameters
FREE = {"_unsafe_view", "_reshape_alias", "empty", "empty_like", "new_empty", "lift_fresh", "empty_strided"}


class Counted(NamedTuple):
    """One operator of a module. `cost` without FLOPs where `known` is false: it has no formula."""

    module: str
    operator: str
    shape: tuple[int, ...]
    known: bool
    cost: Cost
    placement: Placement | None


class Layer(NamedTuple):
    """A module that holds no other: its class, the shape it gives, its parameters."""

    path: str
    kind: str
    shape: tuple[int, ...]
    parameters: int


class Count(NamedTuple):
    """A module as operators, in the order of their dispatch."""

    name: str
    inputs: tuple[str, ...]
    dtype: str
    parameters: int
    operators: tuple[Counted, ...]
    layers: tuple[Layer, ...]
    fvcore: int | None  # its multiply-adds; None where it is not installed, or fails
    device: Device | None

    @property
    def uncounted(self) -> dict[str, int]:
        """Operators without a formula, and how often they ran."""
        names = [op.operator for op in self.operators if not op.known]
        return {name: names.count(name) for name in dict.fromkeys(names)}

    @property
    def cost(self) -> Cost:
        return sum((op.cost for op in self.operators), Cost())


def count(target: str, inputs: list[str], dtype: str = "fp16", device: Device | None = None) -> Count:
    """Count `MODULE:FACTORY` on inputs such as `1x3x224x224` or `int:1x1024`. Raises RoofError with a place."""
    if dtype not in COMPUTE_FORMATS:
        raise WorkloadError(Option("dtype"), f": unknown value {shorten(dtype)}{choices(dtype, COMPUTE_FORMATS)}")
    shapes = [_shape(text) for text in inputs]
    try:
        import torch
    except ImportError:
        raise WorkloadError("roof count needs torch; pip install torch brings it") from None
    module = _build(target, torch)
    with _told(f"{target} on {' '.join(inputs)}"):
        return _run(module, target, shapes, tuple(inputs), dtype, device)


def _shape(text: str) -> tuple[bool, tuple[int, ...]]:
    """Whether it holds whole numbers, and the sizes."""
    kind, _, sizes = text.rpartition(":")
    parts = sizes.split("x")
    if kind not in ("", "int", "float") or not all(p.isascii() and p.isdigit() and int(p) > 0 for p in parts):
        raise WorkloadError(
            Option("input"), f" is {shorten(text)}: not a shape; try 1x3x224x224, or int:1x1024 for whole numbers"
        )
    return kind == "int", tuple(map(int, parts))


# --- The user's code --------------------------------------------------------------------------------


@contextmanager
def _told(what: str) -> Iterator[None]:
    """Turns an error of the user's code into one line with its place."""
    try:
        yield
    except (RoofError, KeyboardInterrupt):
        raise
    except (Exception, SystemExit) as error:
        ours = (os.path.dirname(os.path.dirname(os.path.abspath(__file__))), os.path.dirname(os.__file__), "<frozen")
        frames = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith(ours)]
        own = [f for f in frames if f"{os.sep}site-packages{os.sep}" not in f.filename] or frames
        at = f" at {own[-1].filename}:{own[-1].lineno}" if own else ""
        if isinstance(error, SyntaxError) and error.filename:
            at = f" at {error.filename}:{error.lineno}"
        said = " ".join(str(error).split())
        said = said if len(said) <= 200 else f"{said[:199]}…"
        raise WorkloadError(f"{what}: {type(error).__name__}: {said}{at}") from None


def _build(target: str, torch: Any) -> Any:
    """The module that a factory, or a class, gives; on the meta device where its code can."""
    where, _, name = target.rpartition(":")
    if not where or not name.isidentifier():
        raise WorkloadError(f"{shorten(target)} is no MODULE:FACTORY; try torchvision.models:resnet50 or ./my.py:make")
    with _told(where):
        code = _import(where)
    factory = getattr(code, name, None)
    if factory is None:
        known = [key for key, value in vars(code).items() if callable(value) and not key.startswith("_")]
        raise WorkloadError(f"{where} has no {name!r}{choices(name, known[:40])}")
    module = factory
    if not isinstance(factory, torch.nn.Module):
        if not callable(factory):
            raise WorkloadError(f"{target} is a {type(factory).__name__}, no function that gives a torch module")
        with _told(target):
            try:
                with torch.device("meta"):
                    module = factory()
            except Exception:  # code that wants real numbers while it builds
                module = factory()
    if not isinstance(module, torch.nn.Module):
        raise WorkloadError(f"{target} gives a {type(module).__name__}, no torch module")
    return module.to("meta").eval()


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
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils.flop_counter import flop_registry
    from torch.utils.module_tracker import ModuleTracker

    found: list[Counted] = []
    layers: list[Layer] = []
    tracker = ModuleTracker()
    width = FORMATS[dtype]

    def size(tensor: Any) -> int:
        return int(width.bytes(tensor.numel()) if tensor.is_floating_point() else tensor.numel() * tensor.itemsize)

    class Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            given = func(*args, **kwargs)
            short = func._schema.name.removeprefix("aten::")
            viewed = [r.alias_info is not None and not r.alias_info.is_write for r in func._schema.returns]
            if short in FREE or short.startswith("detach") or (viewed and all(viewed)):
                return given
            read = {id(t): t for t in _tensors((args, kwargs))}
            written = list(_tensors(given))
            matmul, flops, known = 0, 0, True
            if func._overloadpacket in flop_registry:
                matmul = int(flop_registry[func._overloadpacket](*args, **kwargs, out_val=given))
            else:
                counted = _vector(short.rstrip("_"), args, list(read.values()), written)
                known, flops = counted is not None, counted or 0
            cost = Cost(matmul, flops, sum(map(size, read.values())), sum(map(size, written)))
            path = max(tracker.parents - {"Global"}, key=len, default="").partition(".")[2]
            shape = tuple(written[0].shape) if written else ()
            found.append(Counted(path, short, shape, known, cost, place(cost, device, dtype) if device else None))
            return given

    def leaf(path: str) -> Callable[[Any, Any, Any], None]:
        def hook(one: Any, _: Any, given: Any) -> None:
            first = next(_tensors(given), None)
            own = sum(p.numel() for p in one.parameters())
            layers.append(Layer(path, type(one).__name__, tuple(first.shape) if first is not None else (), own))

        return hook

    hooks = [one.register_forward_hook(leaf(path)) for path, one in module.named_modules() if not [*one.children()]]
    fed = [torch.zeros(shape, dtype=torch.long if whole else None, device="meta") for whole, shape in shapes]
    with torch.no_grad(), tracker, Recorder():  # type: ignore[no-untyped-call]
        module(*fed)
    for hook in hooks:
        hook.remove()
    total = sum(p.numel() for p in module.parameters())
    return Count(name, inputs, dtype, total, tuple(found), tuple(layers), _fvcore(module, tuple(fed)), device)


def _vector(name: str, args: Any, read: list[Any], written: list[Any]) -> int | None:
    """Vector FLOPs of an operator; None where it is in no table."""
    if name in MOVES:
        return 0
    if not written:
        return None
    if name in POOLS:
        window = args[1] if isinstance(args[1], list | tuple) else [args[1]]
        return int(written[0].numel() * math.prod(window) ** (2 if name.endswith("2d") and len(window) == 1 else 1))
    if name in ELEMENTWISE:
        return int(ELEMENTWISE[name] * written[0].numel())
    return int(OVER_INPUT[name] * read[0].numel()) if name in OVER_INPUT and read else None


def _tensors(value: Any) -> Iterator[Any]:
    import torch

    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from _tensors(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _tensors(inner)


def _fvcore(module: Any, inputs: tuple[Any, ...]) -> int | None:
    """fvcore's total: multiply-adds, norms and pools among them. It runs the module, so large ones are left out."""
    try:
        import warnings

        import torch
        from fvcore.nn import FlopCountAnalysis

        if sum(map(torch.numel, module.parameters())) > FVCORE_LIMIT:
            return None
        real = copy.deepcopy(module).to_empty(device="cpu")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch.jit.trace, which it is built on, is deprecated
            analysis = FlopCountAnalysis(real, tuple(torch.zeros_like(one, device="cpu") for one in inputs))
            return int(analysis.unsupported_ops_warnings(False).uncalled_modules_warnings(False).total())
    except Exception:  # not installed, or the module cannot be traced: a witness less
        return None
