"""Ranges from Python, recorded by a test double of NVTX and by the PyTorch profiler, whose traces our reader reads."""

import copy
import inspect
import io
import json
import math
import pickle
import subprocess
import sys
import threading
from types import ModuleType

import pytest
import torch
from torch import nn
from torch.nn import functional

from roofmodel import nvtx
from roofmodel.profiles import torch_trace
from tests.profiles.samples import profile_of


@pytest.fixture
def recorded_ranges(monkeypatch):
    """The recorded NVTX ranges, each as the path of open ranges; none may stay open."""
    recorded, local = [], threading.local()

    def push(name):
        local.stack = [*getattr(local, "stack", []), name]
        recorded.append("/".join(local.stack))

    def pop():
        assert local.stack, "a range was closed that was not open"
        local.stack = local.stack[:-1]

    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: True)
    monkeypatch.setattr(torch.cuda.nvtx, "range_push", push)
    monkeypatch.setattr(torch.cuda.nvtx, "range_pop", pop)
    yield recorded
    assert not getattr(local, "stack", [])


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.mlp = nn.LayerNorm(4), nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 4))

    def forward(self, x, *, fail=False):
        """Adds the block's output."""
        return x + self.mlp(self.norm(x)[:, :3] if fail else self.norm(x))


INSIDE = ["Block", "Block/norm", "Block/mlp", "Block/mlp/mlp.0", "Block/mlp/mlp.1", "Block/mlp/mlp.2"]


def test_ranges_nest_and_end_on_exceptions(recorded_ranges):
    with nvtx.range("step"):
        with nvtx.range("forward"):
            pass
        with pytest.raises(KeyboardInterrupt), nvtx.range("{backward}"):
            raise KeyboardInterrupt
    assert recorded_ranges == ["step", "step/forward", "step/{backward}"]


def test_a_decorated_function_keeps_its_metadata_and_may_recurse(recorded_ranges):
    @nvtx.range("count")
    def count(n: int, /, *, by: int = 1) -> int:
        """Counts down."""
        return count(n - by) if n > 0 else n

    assert count(2) == 0
    assert recorded_ranges == ["count", "count/count", "count/count/count"]
    assert (count.__name__, count.__doc__) == ("count", "Counts down.")
    assert str(inspect.signature(count)) == "(n: int, /, *, by: int = 1) -> int"


def test_a_model_is_marked_by_the_paths_of_its_modules(recorded_ranges):
    model, x = Block(), torch.ones(2, 4)
    plain, signature = model(x), inspect.signature(model.forward)
    nvtx.mark(model)
    assert torch.equal(model(x), plain)
    assert recorded_ranges == INSIDE
    assert inspect.signature(model.forward) == signature


def test_a_model_that_raises_leaves_no_range_open(recorded_ranges):
    model = Block()
    nvtx.mark(model)
    with pytest.raises(RuntimeError):
        model(torch.ones(2, 4), fail=True)  # the second of six layers gets 3 columns instead of 4
    assert recorded_ranges == INSIDE[:4]
    recorded_ranges.clear()
    model(torch.ones(2, 4))
    assert recorded_ranges == INSIDE


def test_marking_twice_marks_once_and_each_call_undoes_its_own(recorded_ranges):
    model, x = Block(), torch.ones(2, 4)
    first = nvtx.mark(model.mlp)  # paths start at the marked module
    with nvtx.mark(model):
        model(x)
    assert recorded_ranges == ["Block", "Block/norm", "Block/Sequential", *(f"Block/Sequential/{i}" for i in range(3))]
    recorded_ranges.clear()
    model(x)
    assert recorded_ranges == ["Sequential", "Sequential/0", "Sequential/1", "Sequential/2"]
    first.close()
    recorded_ranges.clear()
    model(x)
    assert recorded_ranges == []
    assert not any(m._forward_pre_hooks or m._forward_hooks for m in model.modules())


def test_copies_of_a_marked_model_are_marked_and_call_their_own_modules(recorded_ranges):
    model, x = Block(), torch.ones(2, 4)
    nvtx.mark(model)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        recorded_ranges.clear()
        with torch.no_grad():
            other.mlp[2].weight.zero_(), other.mlp[2].bias.zero_()
        assert torch.equal(other(x), x)
        assert recorded_ranges == INSIDE


def test_each_thread_has_separate_ranges(recorded_ranges):
    model, barrier = nn.Sequential(nn.Linear(4, 4)), threading.Barrier(2)
    model[0].register_forward_pre_hook(lambda *_: barrier.wait(10) * 0 or None)  # both are in the module at once
    nvtx.mark(model)
    threads = [threading.Thread(target=model, args=(torch.ones(1, 4),)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(recorded_ranges) == ["Sequential", "Sequential", "Sequential/0", "Sequential/0"]


def library():
    module = ModuleType("library")

    def double(x):
        """Twice x."""
        return 2 * x

    class Base:
        def method(self, x):
            return (self, x)

        @classmethod
        def of_class(cls, x):
            return (cls, x)

        @staticmethod
        def static(x):
            return x

    class Derived(Base):
        pass

    module.double, module.Base, module.Derived = double, Base, Derived
    return module


def test_a_patched_function_runs_in_a_range_until_the_patch_is_undone(recorded_ranges):
    module = library()
    before = module.double
    undo = nvtx.patch(module, "double")
    assert module.double(3) == 6
    assert (module.double.__name__, module.double.__doc__) == ("double", "Twice x.")
    with nvtx.patch(module, "double", "again"):  # already patched
        assert module.double(3) == 6
    assert module.double is not before
    with pytest.raises(TypeError):
        module.double(None, None)
    assert recorded_ranges == ["library.double"] * 3
    undo.close()
    undo.close()
    assert module.double is before


@pytest.mark.parametrize("name", ["method", "of_class", "static"])
def test_methods_of_all_kinds_are_patched_where_they_are_looked_up(recorded_ranges, name):
    module = library()
    for owner in (module.Base, module.Derived, module.Derived()):
        attributes = dict(vars(owner))
        instance = owner if not isinstance(owner, type) else owner()
        before = getattr(instance, name)(1)
        with nvtx.patch(owner, name, "mine"):
            assert getattr(instance, name)(1) == before
        assert dict(vars(owner)) == attributes
        assert getattr(instance, name)(1) == before
    assert recorded_ranges == ["mine"] * 3


def test_missing_attributes_and_non_functions_are_refused():
    with pytest.raises(AttributeError, match=r"torch\.nn\.functional has no 'sofmax' to patch"):
        nvtx.patch(functional, "sofmax")
    with pytest.raises(TypeError, match=r"math\.pi is of type float and cannot be called"):
        nvtx.patch(math, "pi")
    with pytest.raises(TypeError, match=r"mark takes a torch\.nn\.Module, not int"):
        nvtx.mark(3)


def test_compiled_models_are_not_marked_and_their_graph_is_unbroken(recorded_ranges):
    model, x = Block(), torch.ones(2, 4)
    nvtx.mark(model)

    @nvtx.range("decorated")
    def decorated(x):
        with nvtx.range("inner"):
            return functional.gelu(model(x))

    with nvtx.patch(functional, "gelu"):
        compiled = torch.compile(decorated, backend="eager", fullgraph=True)
        result = compiled(x)
        assert recorded_ranges == []
        assert torch.equal(result, decorated(x))
    assert recorded_ranges[:2] == ["decorated", "decorated/inner"]
    assert recorded_ranges[-1] == "decorated/inner/torch.nn.functional.gelu"


def test_without_cuda_a_range_does_nothing():
    model = Block()
    with nvtx.range("step"), nvtx.mark(model):
        model(torch.ones(2, 4))


def test_without_torch_a_range_does_nothing_and_loads_nothing():
    code = """
import sys
from roofmodel import nvtx
from tests.profiles.samples import profile_of
@nvtx.range("f")
def f(): return 3
with nvtx.range("step"), nvtx.patch(sys.modules[__name__], "f"): assert f() == 3
assert not {"torch", "numpy"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_pytorch_profiler_sees_the_same_names_and_our_reader_reads_them(tmp_path):
    model = Block()
    with nvtx.mark(model), torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        for step in range(2):
            with nvtx.range(f"step {step}"):
                model(torch.ones(2, 4))
    profiler.export_chrome_trace(str(tmp_path / "trace.json"))
    trace = json.loads((tmp_path / "trace.json").read_text())
    # A CPU trace has no kernels: add a launch to each matrix multiplication, and a kernel after the end of the trace.
    gemms = [e for e in trace["traceEvents"] if e.get("name") == "aten::addmm"]
    end = max(e["ts"] + e.get("dur", 0) for e in trace["traceEvents"] if e.get("ph") == "X")
    for number, event in enumerate(gemms):
        fields = dict(ph="X", dur=1, args={"correlation": number})
        launch = dict(fields, cat="cuda_runtime", name="cudaLaunchKernel", ts=event["ts"], dur=0.5)
        trace["traceEvents"] += [
            dict(launch, pid=event["pid"], tid=event["tid"]),
            dict(fields, cat="kernel", name="gemm", ts=end + number, pid=0, tid=7),
        ]
    kernels = profile_of(torch_trace.read)(io.BytesIO(json.dumps(trace).encode()), "trace.json").kernels
    paths = [("Block", "mlp", "mlp.0"), ("Block", "mlp", "mlp.2")]
    assert [kernel.nvtx for kernel in kernels] == [(f"step {step}", *path) for step in (0, 1) for path in paths]
