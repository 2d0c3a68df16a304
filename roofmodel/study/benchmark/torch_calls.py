"""A case to measure -> a call of torch that does it, on data of its own.

Weights lie as torch's Linear has them, [n, k]; biases are left out, as the tables' products have none.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from roofmodel.study.benchmark.cases import Case

VOCABULARY = 32768  # rows of the table that embeddings are looked up in


class CannotRun(Exception):
    """Why torch has no such kernel, in a few words."""


def prepare(case: Case, device: str) -> Callable[[], object]:
    """The operation as a call without arguments. Raises CannotRun, or what torch raises, where it does not run here."""
    import torch

    call, context = _BUILD[case.op](case, torch, device)

    def run() -> object:
        with torch.no_grad(), context():
            return call()

    with warnings.catch_warnings():  # each backend of attention that does not apply warns about its reasons
        warnings.simplefilter("ignore")
        run()
    return run


Built = tuple[Callable[[], object], Callable[[], AbstractContextManager[Any]]]


def _gemm(case: Case, torch: Any, device: str) -> Built:
    x, w = (_random(torch, device, case.dtype, case.sizes[rows], case.sizes["k"]) for rows in "mn")
    if case.dtype == "fp8":
        return _scaled(torch, x, w), nullcontext
    return lambda: torch.nn.functional.linear(x, w), lambda: _tf32(torch, case.dtype == "tf32")


def _scaled(torch: Any, x: Any, w: Any) -> Callable[[], object]:
    """x in 16 bits, quantised on the way in, as the tables have fp8; one scale a tensor."""
    if not hasattr(torch, "_scaled_mm"):
        raise CannotRun("this torch has no product of fp8")
    columns, one = w.to(torch.float8_e4m3fn).t(), torch.ones((), device=x.device)

    def call() -> object:  # the scales by name: in torch 2.4 their places were others
        return torch._scaled_mm(x.to(torch.float8_e4m3fn), columns, scale_a=one, scale_b=one, out_dtype=torch.bfloat16)

    return call


@contextmanager
def _tf32(torch: Any, allowed: bool) -> Iterator[None]:
    """Whether cuBLAS may round fp32 to tf32: a switch of the whole process, put back behind each call."""
    matmul = torch.backends.cuda.matmul
    before, matmul.allow_tf32 = matmul.allow_tf32, allowed
    try:
        yield
    finally:
        matmul.allow_tf32 = before


def _attention(case: Case, torch: Any, device: str) -> Built:
    c = case.sizes
    queries, keys = c["seq"], c["kv_len"]
    if 1 < queries < keys:
        raise CannotRun("torch's causal mask begins at the first key, where a table's ends at the last")
    if c["window"]:
        raise CannotRun("torch has no kernel with a window")
    q = _random(torch, device, case.dtype, c["batch"], c["heads"], queries, c["head_dim"])
    k, v = (_random(torch, device, case.dtype, c["batch"], c["kv_heads"], keys, c["head_dim"]) for _ in range(2))
    backend = case.kernel.removeprefix("torch_").upper()
    backends = torch.nn.attention.SDPBackend.__members__
    chosen = backends.get(backend) or backends.get(f"{backend}_ATTENTION")
    groups = dict(enable_gqa=True) if c["heads"] != c["kv_heads"] else {}
    if chosen is None or (groups and tuple(map(int, torch.__version__.split(".")[:2])) < (2, 5)):
        raise CannotRun("this torch is too old for it")

    def call() -> object:
        attend = torch.nn.functional.scaled_dot_product_attention
        return attend(q, k, v, is_causal=queries > 1, **groups)

    return call, lambda: torch.nn.attention.sdpa_kernel(chosen)


def _softmax(case: Case, torch: Any, device: str) -> Built:
    x = _random(torch, device, case.dtype, case.sizes["m"], case.sizes["n"])
    return lambda: torch.nn.functional.softmax(x, -1), nullcontext


def _layer_norm(case: Case, torch: Any, device: str) -> Built:
    width = case.sizes["n"]
    x = _random(torch, device, case.dtype, case.sizes["m"], width)
    gain, bias = (_random(torch, device, case.dtype, width) for _ in range(2))
    return lambda: torch.nn.functional.layer_norm(x, (width,), gain, bias), nullcontext


def _rms_norm(case: Case, torch: Any, device: str) -> Built:
    if not hasattr(torch.ops.aten, "_fused_rms_norm"):
        raise CannotRun("before torch 2.9 an RMSNorm is several kernels")
    width = case.sizes["hidden"]
    x, gain = _random(torch, device, case.dtype, case.sizes["tokens"], width), _random(torch, device, case.dtype, width)
    return lambda: torch.nn.functional.rms_norm(x, (width,), gain), nullcontext


def _gelu(case: Case, torch: Any, device: str) -> Built:
    x = _random(torch, device, case.dtype, case.sizes["m"], case.sizes["n"])
    return lambda: torch.nn.functional.gelu(x), nullcontext


def _add(case: Case, torch: Any, device: str) -> Built:
    x, z = (_random(torch, device, case.dtype, case.sizes["tokens"], case.sizes["hidden"]) for _ in range(2))
    return lambda: x + z, nullcontext


def _embedding(case: Case, torch: Any, device: str) -> Built:
    table = _random(torch, device, case.dtype, VOCABULARY, case.sizes["hidden"])
    tokens = torch.randint(VOCABULARY, (case.sizes["tokens"],), device=device)
    return lambda: torch.nn.functional.embedding(tokens, table), nullcontext


_BUILD: dict[str, Callable[[Case, Any, str], Built]] = {
    "gemm": _gemm,
    "attn_context": _attention,
    "attn_generation": _attention,
    "softmax": _softmax,
    "layernorm": _layer_norm,
    "input_layernorm": _rms_norm,
    "gelu": _gelu,
    "add": _add,
    "emb": _embedding,
}


def _random(torch: Any, device: str, dtype: str, *shape: int) -> Any:
    """Normal numbers: power and with it the clock depend on the data, and zeros would flatter them."""
    form = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp8": torch.bfloat16}.get(dtype, torch.float32)
    return torch.randn(shape, device=device, dtype=form)
