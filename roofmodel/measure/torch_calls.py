"""Run a case in torch: a call without arguments, on random data.

Weights have the layout of torch's Linear, [n, k]. There are no biases, because the tables' GEMMs have none.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from roofmodel.measure.cases import BenchmarkCase

VOCABULARY = 32768  # rows of the embedding table


class CannotRun(Exception):
    """torch has no kernel for the case; the message says why."""


def prepare(case: BenchmarkCase, device: str) -> Callable[[], object]:
    """The operation as a call without arguments. Raises CannotRun, or an error of torch if it fails on this machine."""
    import torch

    call, context = _BUILD[case.op](case, torch, device)

    def run() -> object:
        with torch.no_grad(), context():
            return call()

    with warnings.catch_warnings():  # attention backends that do not support the case warn
        warnings.simplefilter("ignore")
        run()
    return run


TorchCall = tuple[Callable[[], object], Callable[[], AbstractContextManager[Any]]]


def _gemm(case: BenchmarkCase, torch: Any, device: str) -> TorchCall:
    x, w = (_random(torch, device, case.dtype, case.sizes[rows], case.sizes["k"]) for rows in "mn")
    if case.dtype == "fp8":
        return _scaled(torch, x, w), nullcontext
    return lambda: torch.nn.functional.linear(x, w), lambda: _tf32(torch, case.dtype == "tf32")


def _scaled(torch: Any, x: Any, w: Any) -> Callable[[], object]:
    """An fp8 GEMM with 16-bit x that is quantized in the call, as in the tables; one scale per tensor."""
    if not hasattr(torch, "_scaled_mm"):
        raise CannotRun("this torch has no fp8 GEMM")
    columns, scale = w.to(torch.float8_e4m3fn).t(), torch.ones((), device=x.device)

    def call() -> object:  # scales by name: torch 2.4 has another order
        return torch._scaled_mm(
            x.to(torch.float8_e4m3fn), columns, scale_a=scale, scale_b=scale, out_dtype=torch.bfloat16
        )

    return call


@contextmanager
def _tf32(torch: Any, allowed: bool) -> Iterator[None]:
    """Allow or forbid cuBLAS to round fp32 to tf32, and restore the process-wide setting afterwards."""
    matmul = torch.backends.cuda.matmul
    before, matmul.allow_tf32 = matmul.allow_tf32, allowed
    try:
        yield
    finally:
        matmul.allow_tf32 = before


def _attention(case: BenchmarkCase, torch: Any, device: str) -> TorchCall:
    c = case.sizes
    queries, keys = c["seq"], c["kv_len"]
    if 1 < queries < keys:
        raise CannotRun("torch aligns the causal mask with the first key, tables align it with the last key")
    if c["window"]:
        raise CannotRun("torch has no kernel with a sliding window")
    q = _random(torch, device, case.dtype, c["batch"], c["heads"], queries, c["head_dim"])
    k, v = (_random(torch, device, case.dtype, c["batch"], c["kv_heads"], keys, c["head_dim"]) for _ in range(2))
    backend = case.kernel.removeprefix("torch_").upper()
    backends = torch.nn.attention.SDPBackend.__members__
    chosen = backends.get(backend) or backends.get(f"{backend}_ATTENTION")
    groups = dict(enable_gqa=True) if c["heads"] != c["kv_heads"] else {}
    if chosen is None or (groups and tuple(map(int, torch.__version__.split(".")[:2])) < (2, 5)):
        raise CannotRun("this version of torch is too old for this backend or for grouped-query attention")

    def call() -> object:
        attend = torch.nn.functional.scaled_dot_product_attention
        return attend(q, k, v, is_causal=queries > 1, **groups)

    return call, lambda: torch.nn.attention.sdpa_kernel(chosen)


def _softmax(case: BenchmarkCase, torch: Any, device: str) -> TorchCall:
    x = _random(torch, device, case.dtype, case.sizes["m"], case.sizes["n"])
    return lambda: torch.nn.functional.softmax(x, -1), nullcontext


def _layer_norm(case: BenchmarkCase, torch: Any, device: str) -> TorchCall:
    width = case.sizes["n"]
    x = _random(torch, device, case.dtype, case.sizes["m"], width)
    gain, bias = (_random(torch, device, case.dtype, width) for _ in range(2))
    return lambda: torch.nn.functional.layer_norm(x, (width,), gain, bias), nullcontext


def _rms_norm(case: BenchmarkCase, torch: Any, device: str) -> TorchCall:
    if not hasattr(torch.ops.aten, "_fused_rms_norm"):
        raise CannotRun("RMSNorm is a single kernel only in torch 2.9 or newer")
    width = case.sizes["hidden"]
    x, gain = _random(torch, device, case.dtype, case.sizes["tokens"], width), _random(torch, device, case.dtype, width)
    return lambda: torch.nn.functional.rms_norm(x, (width,), gain), nullcontext


def _gelu(case: BenchmarkCase, torch: Any, device: str) -> TorchCall:
    x = _random(torch, device, case.dtype, case.sizes["m"], case.sizes["n"])
    return lambda: torch.nn.functional.gelu(x), nullcontext


def _add(case: BenchmarkCase, torch: Any, device: str) -> TorchCall:
    x, z = (_random(torch, device, case.dtype, case.sizes["tokens"], case.sizes["hidden"]) for _ in range(2))
    return lambda: x + z, nullcontext


def _embedding(case: BenchmarkCase, torch: Any, device: str) -> TorchCall:
    table = _random(torch, device, case.dtype, VOCABULARY, case.sizes["hidden"])
    tokens = torch.randint(VOCABULARY, (case.sizes["tokens"],), device=device)
    return lambda: torch.nn.functional.embedding(tokens, table), nullcontext


_BUILD: dict[str, Callable[[BenchmarkCase, Any, str], TorchCall]] = {
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
    """Normally distributed numbers: power and clocks depend on the data, and zeros would give too short times."""
    form = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp8": torch.bfloat16}.get(dtype, torch.float32)
    return torch.randn(shape, device=device, dtype=form)
