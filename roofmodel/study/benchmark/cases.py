"""What to measure: operations by name, type, implementation and shape, as a table of measurements has them.

A sweep draws sizes log-uniformly, which says most about a timing model in a given time, and adds the shapes that
transformers have. A model gives its operators' own shapes. Nothing here runs anything.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from typing import Any, NamedTuple

from roofmodel.algebra import product
from roofmodel.counting import phases, vector_flops
from roofmodel.counting.operator import Operator
from roofmodel.errors import WorkloadError
from roofmodel.models.architecture import Architecture
from roofmodel.prediction.stream import stream_kind
from roofmodel.prediction.timing import attention_work
from roofmodel.study.benchmark.operations import OPERATIONS, PRECISIONS, widths
from roofmodel.study.estimate.options import workload

DTYPES = ("fp32", "tf32", "fp16", "bf16", "fp8")
PLAIN = ("fp32", "fp16", "bf16")  # types of whole tensors; tf32 and fp8 are of products only
BACKENDS = ("torch_flash", "torch_efficient", "torch_cudnn", "torch_math")  # of scaled_dot_product_attention

# op -> the types it is measured in, and the implementations in torch. Gated activations and rotary embedding are no
# single kernel there.
KERNELS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "gemm": (DTYPES, ("torch_linear",)),
    "attn_context": (PLAIN, BACKENDS),
    "attn_generation": (PLAIN, BACKENDS),
    "softmax": (PLAIN, ("torch_softmax",)),
    "layernorm": (PLAIN, ("torch_layer_norm",)),
    "input_layernorm": (PLAIN, ("torch_rms_norm",)),
    "gelu": (PLAIN, ("torch_gelu",)),
    "add": (PLAIN, ("torch_add",)),
    "emb": (PLAIN, ("torch_embedding",)),
}

# (columns, rows summed over) of the matrices of GPT-2 XL, BERT-large, Llama 3.2 1B, Llama 2 7B and 3.1 8B
_MATRICES = (
    (4800, 1600), (1600, 1600), (6400, 1600), (1600, 6400),
    (1024, 1024), (4096, 1024), (1024, 4096),
    (2048, 2048), (512, 2048), (8192, 2048), (2048, 8192),
    (4096, 4096), (1024, 4096), (11008, 4096), (4096, 11008), (14336, 4096), (4096, 14336),
)  # fmt: skip
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
_WIDTHS = (768, 1024, 1600, 2048, 4096, 8192, 14336)
# (query heads, heads of keys and values, head size): GPT-2 XL, BERT-large, Llama 3.2 1B, Llama 2 7B, Llama 3.1 8B
_HEADS = ((25, 25, 64), (16, 16, 64), (32, 8, 64), (32, 32, 128), (32, 8, 128))
_LENGTHS = (64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
_BATCHES = (1, 2, 4, 8, 16, 32, 64)
DRAWS = 300  # log-uniform shapes of each type, where an operation has sizes that are free
_GELU = (vector_flops.ACTIVATION["gelu"], vector_flops.ACTIVATION["gelu_tanh"])
PRODUCTS = 3  # for each other case of a type: their model has three times the parameters
MATH_LENGTH = 2048  # beyond which attention that writes its scores down is left out


class Limits(NamedTuple):
    """The largest operation of a sweep: its FLOPs, and the bytes that it reads and writes."""

    flops: float
    bytes: float


class Case(NamedTuple):
    """An operation to measure. `shape` holds the columns of the table that `operations.py` names."""

    op: str
    dtype: str
    kernel: str
    shape: tuple[tuple[str, int], ...]

    @property
    def kind(self) -> tuple[str, str, str]:
        """What of a case is no size."""
        return self.op, self.dtype, self.kernel

    @property
    def sizes(self) -> dict[str, int]:
        return dict(self.shape)

    @property
    def operator(self) -> Operator:
        return OPERATIONS[self.op].operator(self.sizes, widths(PRECISIONS[self.dtype]))

    def __str__(self) -> str:
        return f"{self.op} {self.dtype} {self.kernel} {' '.join(f'{name}={size}' for name, size in self.shape)}"


def sweep(ops: Iterable[str], dtypes: Sequence[str], limits: Limits, seed: int = 0) -> list[Case]:
    """Cases of these operations and types within the limits, shuffled, one of each operation, type and implementation
    in turn, and of products three: wherever it is cut off, a fair sample."""
    hands: dict[tuple[tuple[str, str, str], int], dict[Case, None]] = {}
    for op in ops:
        for number, shape in enumerate(_shapes(op, random.Random(f"{seed} {op}"))):
            for case in _of(op, dtypes, shape):
                if _within(case, limits):
                    hands.setdefault((case.kind, number % PRODUCTS if op == "gemm" else 0), {})[case] = None
    draw = random.Random(seed)
    shuffled = [draw.sample(list(hand), len(hand)) for hand in hands.values()]
    return [case for turn in zip_longest(*shuffled) for case in turn if case is not None]


def of_model(arch: Architecture, dtypes: Sequence[str], **options: Any) -> tuple[list[Case], tuple[str, ...]]:
    """The operators of a model's phases as cases, each once, and the names of those that no table has.

    The options are the workload's of `roof estimate`. Raises WorkloadError for options that make no sense.
    """
    if options.get("phase") == "generate":
        raise WorkloadError("--phase generate: operators are measured a pass at a time; try --phase decode --context N")
    cases: dict[Case, None] = {}
    others: dict[str, None] = {}
    for step in workload(arch, **options)[0].steps():
        for operator in phases.operators(arch, step):
            found = of_operator(operator)
            if found is None:
                others[operator.name] = None
            else:
                cases.update((case, None) for case in _of(found[0], dtypes, found[1]))
    return list(cases), tuple(others)


def of_operator(operator: Operator) -> tuple[str, dict[str, int]] | None:
    """The name and the columns under which a table has what this operator does; None where it has no such."""
    if operator.gemm is not None and operator.kind == "gemm":
        batch, m, n, k = operator.gemm
        return ("gemm", dict(m=m, n=n, k=k)) if batch == 1 else None
    if operator.kind == "attention":
        return _attention(operator)
    if operator.name.endswith(".grad"):
        return None  # of gradients, tables have the products and the sums
    rows, width = _matrix(operator)
    if operator.kind == "norm" and "c" not in operator.sizes:
        layer = operator.function == "layernorm"
        return ("layernorm", dict(m=rows, n=width)) if layer else ("input_layernorm", dict(tokens=rows, hidden=width))
    if operator.kind == "gather":
        return "emb", dict(tokens=rows, hidden=width)
    if operator.kind == "elementwise":
        alike = {tensor.axes for tensor in operator.reads} == {operator.writes[0].axes}
        sort = stream_kind(operator)
        if sort == "activation" and len(operator.reads) == 1:
            is_gelu = operator.vector_flops / (rows * width) in _GELU
            return ("gelu", dict(m=rows, n=width)) if is_gelu else None
        if sort == "add" and alike and len(operator.reads) == 2:
            return "add", dict(tokens=rows, hidden=width)
    return None


def _attention(operator: Operator) -> tuple[str, dict[str, int]] | None:
    """Fused causal attention with one size of head, which is what the tables have."""
    if "t:s" not in operator.sizes or not {"k", "g", "h"} <= set(operator.reads[0].axes):
        return None
    fused = attention_work(operator)
    shape: dict[str, Any] = dict(
        batch=fused.batch, heads=fused.heads, kv_heads=fused.kv_heads, head_dim=operator.sizes["h"],
        seq=fused.queries, kv_len=fused.keys, window=0,
    )  # fmt: skip
    op = "attn_generation" if fused.queries == 1 else "attn_context"
    same = OPERATIONS[op].operator(shape, operator.widths)
    return (op, shape) if same.matmul_flops == operator.matmul_flops else None


def _matrix(operator: Operator) -> tuple[Any, Any]:
    """What it writes, as rows of the last axis."""
    *outer, last = operator.writes[0].axes
    return product(operator.sizes[axis] for axis in outer), operator.sizes[last]


def _of(op: str, dtypes: Sequence[str], shape: dict[str, int]) -> Iterator[Case]:
    """A shape in each type and implementation that it is measured in."""
    formats, kernels = KERNELS[op]
    for dtype in (dtype for dtype in dtypes if dtype in formats):
        for kernel in ("torch_scaled_mm",) if dtype == "fp8" else kernels:
            sixteen = all(shape[name] % 16 == 0 for name in "nk") if dtype == "fp8" else True
            if sixteen and not (kernel == "torch_math" and shape["kv_len"] > MATH_LENGTH):
                yield Case(op, dtype, kernel, tuple(shape.items()))


def _shapes(op: str, draw: random.Random) -> Iterator[dict[str, int]]:
    """The shapes of a sweep."""
    if op == "gemm":
        yield from (dict(m=m, n=n, k=k) for n, k in _MATRICES for m in _ROWS)
        for _ in range(DRAWS):
            # any number of rows, as tokens come; columns in multiples of 16, as matrices have them
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
    """A whole number, each octave as likely as any other."""
    return round(low * math.exp(draw.random() * math.log(high / low)))


def _within(case: Case, limits: Limits) -> bool:
    cost = case.operator.cost
    return bool(cost.flops <= limits.flops and cost.bytes <= limits.bytes)
