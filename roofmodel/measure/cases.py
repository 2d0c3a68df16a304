"""Cases for `roof measure`: operations by name, format, implementation and shape, from a sweep or from a model.

A sweep uses shapes of transformers and log-uniform random sizes, which give the most information about a timing model
per measurement. A model gives the shapes of its operators. This module runs nothing.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import Any, NamedTuple

from roofmodel.counting import phases, vector_flops
from roofmodel.counting.operator import Operator
from roofmodel.errors import Option, WorkloadError
from roofmodel.measure.operations import OPERATIONS, PRECISIONS, widths
from roofmodel.models.architecture import Architecture
from roofmodel.numbers.algebra import product
from roofmodel.steps.options import workload
from roofmodel.timing import attention
from roofmodel.timing.formula import elementwise_kind

DTYPES = ("fp32", "tf32", "fp16", "bf16", "fp8")
TENSOR_DTYPES = ("fp32", "fp16", "bf16")  # formats of whole tensors; tf32 and fp8 apply to GEMMs only
BACKENDS = ("torch_flash", "torch_efficient", "torch_cudnn", "torch_math")  # of scaled_dot_product_attention

# op -> its formats and its implementations in torch. Gated activations and rotary embedding are left out: torch has no
# single kernel for them.
KERNELS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "gemm": (DTYPES, ("torch_linear",)),
    "attn_context": (TENSOR_DTYPES, BACKENDS),
    "attn_generation": (TENSOR_DTYPES, BACKENDS),
    "softmax": (TENSOR_DTYPES, ("torch_softmax",)),
    "layernorm": (TENSOR_DTYPES, ("torch_layer_norm",)),
    "input_layernorm": (TENSOR_DTYPES, ("torch_rms_norm",)),
    "gelu": (TENSOR_DTYPES, ("torch_gelu",)),
    "add": (TENSOR_DTYPES, ("torch_add",)),
    "emb": (TENSOR_DTYPES, ("torch_embedding",)),
}

# (N, K) of the GEMMs of GPT-2 XL, BERT-large, Llama 3.2 1B, Llama 2 7B and 3.1 8B
_MATRICES = (
    (4800, 1600), (1600, 1600), (6400, 1600), (1600, 6400),
    (1024, 1024), (4096, 1024), (1024, 4096),
    (2048, 2048), (512, 2048), (8192, 2048), (2048, 8192),
    (4096, 4096), (1024, 4096), (11008, 4096), (4096, 11008), (14336, 4096), (4096, 14336),
)  # fmt: skip
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
_WIDTHS = (768, 1024, 1600, 2048, 4096, 8192, 14336)
# (query heads, KV heads, head size): GPT-2 XL, BERT-large, Llama 3.2 1B, Llama 2 7B, Llama 3.1 8B
_HEADS = ((25, 25, 64), (16, 16, 64), (32, 8, 64), (32, 32, 128), (32, 8, 128))
_LENGTHS = (64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
_BATCHES = (1, 2, 4, 8, 16, 32, 64)
DRAWS = 300  # log-uniform random shapes per operation
_GELU = (vector_flops.ACTIVATION["gelu"], vector_flops.ACTIVATION["gelu_tanh"])
GEMM_SHARE = 3  # GEMM cases per case of another operation: the GEMM model has three times as many parameters
MATH_LENGTH = 2048  # longest KV length for attention that writes its score matrix to memory


class Limits(NamedTuple):
    """The largest FLOPs and bytes of an operation in a sweep."""

    flops: float
    bytes: float


class BenchmarkCase(NamedTuple):
    """An operation to measure; `shape` has the shape columns that `operations.py` defines for it."""

    op: str
    dtype: str
    kernel: str
    shape: tuple[tuple[str, int], ...]

    @property
    def kind(self) -> tuple[str, str, str]:
        """Operation, format and implementation."""
        return self.op, self.dtype, self.kernel

    @property
    def sizes(self) -> dict[str, int]:
        return dict(self.shape)

    @property
    def operator(self) -> Operator:
        return OPERATIONS[self.op].operator(self.sizes, widths(PRECISIONS[self.dtype]))

    def __str__(self) -> str:
        return f"{self.op} {self.dtype} {self.kernel} {' '.join(f'{name}={size}' for name, size in self.shape)}"


def sweep(ops: Iterable[str], dtypes: Sequence[str], limits: Limits, seed: int = 0) -> list[BenchmarkCase]:
    """Cases of these operations and formats within the limits, in random order.

    Operations, formats and implementations take turns (GEMMs three times per turn), so that any first part of the list
    is a balanced sample.
    """
    queues: dict[tuple[tuple[str, str, str], int], dict[BenchmarkCase, None]] = {}
    for op in ops:
        for number, shape in enumerate(_shapes(op, random.Random(f"{seed} {op}"))):
            for case in _cases_of_shape(op, dtypes, shape):
                if _is_within_limits(case, limits):
                    queues.setdefault((case.kind, number % GEMM_SHARE if op == "gemm" else 0), {})[case] = None
    draw = random.Random(seed)
    shuffled = [draw.sample(list(queue), len(queue)) for queue in queues.values()]
    return [case for turn in zip_longest(*shuffled) for case in turn if case is not None]


def model_cases(
    arch: Architecture, dtypes: Sequence[str], **options: Any
) -> tuple[list[BenchmarkCase], tuple[str, ...]]:
    """The operators of a model's phases as cases, each once, and the names of the operators that tables do not support.

    The options are the workload options of `roof estimate`. Raises WorkloadError for invalid options.
    """
    if options.get("phase") == "generate":
        raise WorkloadError(
            Option("phase", "generate"),
            ": operators are measured for one phase at a time; try ",
            Option("phase", "decode"),
            " ",
            Option("context", "N"),
        )
    cases: dict[BenchmarkCase, None] = {}
    others: dict[str, None] = {}
    for step in workload(arch, **options)[0].steps():
        for operator in phases.operators(arch, step):
            op_and_shape = operator_case(operator)
            if op_and_shape is None:
                others[operator.name] = None
            else:
                cases.update((case, None) for case in _cases_of_shape(op_and_shape[0], dtypes, op_and_shape[1]))
    return list(cases), tuple(others)


def operator_case(operator: Operator) -> tuple[str, dict[str, int]] | None:
    """The table's operation and shape columns for this operator; None if tables do not support it."""
    if operator.gemm is not None and operator.kind == "gemm":
        batch, m, n, k = operator.gemm
        return ("gemm", dict(m=m, n=n, k=k)) if batch == 1 else None
    if operator.kind == "attention":
        return _attention(operator)
    if operator.name.endswith(".grad"):
        return None  # tables support GEMMs and additions of a backward pass only
    rows, width = _matrix(operator)
    if operator.kind == "norm" and "c" not in operator.sizes:
        layer = operator.function == "layernorm"
        return ("layernorm", dict(m=rows, n=width)) if layer else ("input_layernorm", dict(tokens=rows, hidden=width))
    if operator.kind == "gather":
        return "emb", dict(tokens=rows, hidden=width)
    if operator.kind == "elementwise":
        same_shape = {tensor.axes for tensor in operator.reads} == {operator.writes[0].axes}
        kind = elementwise_kind(operator)
        if kind == "activation" and len(operator.reads) == 1:
            is_gelu = operator.vector_flops / (rows * width) in _GELU
            return ("gelu", dict(m=rows, n=width)) if is_gelu else None
        if kind == "add" and same_shape and len(operator.reads) == 2:
            return "add", dict(tokens=rows, hidden=width)
    return None


def _attention(operator: Operator) -> tuple[str, dict[str, int]] | None:
    """The operation and columns of fused causal attention with one head size; None for other attention."""
    if "t:s" not in operator.sizes or not {"k", "g", "h"} <= set(operator.reads[0].axes):
        return None
    fused = attention.work(operator)
    shape: dict[str, Any] = dict(
        batch=fused.batch, heads=fused.heads, kv_heads=fused.kv_heads, head_dim=operator.sizes["h"],
        seq=fused.queries, kv_len=fused.keys, window=0,
    )  # fmt: skip
    op = "attn_generation" if fused.queries == 1 else "attn_context"
    same = OPERATIONS[op].operator(shape, operator.widths)
    return (op, shape) if same.matmul_flops == operator.matmul_flops else None


def _matrix(operator: Operator) -> tuple[Any, Any]:
    """The output as a matrix: number of rows, and size of the last axis."""
    *outer, last = operator.writes[0].axes
    return product(operator.sizes[axis] for axis in outer), operator.sizes[last]


def _cases_of_shape(op: str, dtypes: Sequence[str], shape: dict[str, int]) -> Iterator[BenchmarkCase]:
    """A shape in each of the formats and implementations of its operation."""
    formats, kernels = KERNELS[op]
    for dtype in (dtype for dtype in dtypes if dtype in formats):
        for kernel in ("torch_scaled_mm",) if dtype == "fp8" else kernels:
            aligned = all(shape[name] % 16 == 0 for name in "nk") if dtype == "fp8" else True
            if aligned and not (kernel == "torch_math" and shape["kv_len"] > MATH_LENGTH):
                yield BenchmarkCase(op, dtype, kernel, tuple(shape.items()))


def _shapes(op: str, draw: random.Random) -> Iterator[dict[str, int]]:
    """The shapes of a sweep."""
    if op == "gemm":
        yield from (dict(m=m, n=n, k=k) for n, k in _MATRICES for m in _ROWS)
        for _ in range(DRAWS):
            # any number of tokens as rows; columns in multiples of 16, like the matrices of models
            yield dict(m=_log(draw, 1, 16384), n=16 * _log(draw, 4, 1024), k=16 * _log(draw, 4, 1024))
    elif op in ("attn_context", "attn_generation"):
        for heads, kv_heads, size in _HEADS:
            for batch in _BATCHES:
                for length in _LENGTHS:
                    queries = length if op == "attn_context" else 1
                    yield dict(
                        batch=batch, heads=heads, kv_heads=kv_heads, head_dim=size, seq=queries, kv_len=length, window=0
                    )
    else:
        rows, width = OPERATIONS[op].columns
        yield from ({rows: m, width: n} for n in _WIDTHS for m in _ROWS)
        yield from ({rows: _log(draw, 1, 16384), width: 8 * _log(draw, 8, 2048)} for _ in range(DRAWS))


def _log(draw: random.Random, low: int, high: int) -> int:
    """A log-uniform random whole number."""
    return round(low * math.exp(draw.random() * math.log(high / low)))


def _is_within_limits(case: BenchmarkCase, limits: Limits) -> bool:
    cost = case.operator.cost
    return bool(cost.flops <= limits.flops and cost.bytes <= limits.bytes)
