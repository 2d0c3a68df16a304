"""The contraction core: an operator is one line, and its costs follow from it.

    "x[b t d] W_up[d f] + B_up[f] -> u[b t f]"

A line names its tensors and their axes. From it follow, by construction and only here:

* matmul FLOPs: 2 x the product of the axes of the factors (the tensors multiplied);
* vector FLOPs: 1 per output element for each term added after a `+`, and what the operator states;
* bytes: each tensor's elements x its width, read on the left, written on the right;
* parameters: the elements of the tensors whose name is capitalised;
* the GEMM's batch, M, N and K; the LaTeX.

Names say what a tensor is. `W_up` is a matrix of a linear layer (what a quantised checkpoint
quantises), other capitals (`E_token`, `B_up`, `G_norm`: tables, biases, gains) are parameters that
keep the working width, `cache.k` lives in the KV cache, everything else is an activation.

`=>` in place of `->` says that the FLOPs are stated beside the line, although an axis may be summed away: a weighted
sum on the vector units is no matrix product.

`t:s` is a joint axis: the (query, key) pairs that the mask leaves. Where it stands, it takes the
place of `t` and `s`; its size is t x s where all pairs are computed, and less where a fused kernel
skips the masked ones.

`i+r` is a sliding axis, for a filter that slides over a map: `x[b c i+r j+s] W[o c r s] -> y[b o i j]` is a
convolution. The contraction runs over `i` (places) and `r` (of the filter); the size of `i+r` itself, which the bytes
follow from, is how many rows of the map the filter touches.

Fusion is set algebra: `fuse` reads what enters the group and writes what leaves it, so an unfused
operator is a group of one. Boundary bytes are compulsory traffic: a lower bound.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal, NamedTuple

from roofmodel.algebra import Number, product, whole
from roofmodel.counting.collective import Collective
from roofmodel.counting.notation import AXES, NAME, OTHERWISE, Line, Sizes, Tensor, parse, split_axes
from roofmodel.counting.number_formats import Widths


@dataclass(frozen=True)
class Cost:
    """What a piece of work takes. Costs add, and scale by how often the work is done.

    FLOPs count a multiply-add as 2. Bytes are compulsory DRAM traffic; `weight_bytes` and
    `cache_bytes` are the parts of `bytes_read` that are parameters and KV cache. `link_bytes` go to other devices, and
    as many come from them.
    """

    matmul_flops: Number = 0
    vector_flops: Number = 0
    bytes_read: Number = 0
    bytes_written: Number = 0
    weight_bytes: Number = 0
    cache_bytes: Number = 0
    link_bytes: Number = 0

    __array_ufunc__ = None  # an array of counts scales it as a number does

    @property
    def flops(self) -> Number:
        return self.matmul_flops + self.vector_flops

    @property
    def bytes(self) -> Number:
        return self.bytes_read + self.bytes_written

    @property
    def intensity(self) -> Number:
        """FLOPs per byte, matmul and vector FLOPs together."""
        return self.flops / self.bytes

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.matmul_flops + other.matmul_flops,
            self.vector_flops + other.vector_flops,
            self.bytes_read + other.bytes_read,
            self.bytes_written + other.bytes_written,
            self.weight_bytes + other.weight_bytes,
            self.cache_bytes + other.cache_bytes,
            self.link_bytes + other.link_bytes,
        )

    def __rmul__(self, times: Number) -> Cost:
        return Cost(
            whole(times * self.matmul_flops),
            whole(times * self.vector_flops),
            whole(times * self.bytes_read),
            whole(times * self.bytes_written),
            whole(times * self.weight_bytes),
            whole(times * self.cache_bytes),
            whole(times * self.link_bytes),
        )


Keeps = Literal["inputs", "outputs", "nothing"]
"""What the backward pass needs of vector work: what it read, what it wrote, or neither where it is linear."""


class Gemm(NamedTuple):
    """A contraction as a batched matrix product: `batch` times (m x k) (k x n)."""

    batch: Number
    m: Number
    n: Number
    k: Number


@dataclass(frozen=True)
class Operator:
    """One kernel's worth of work: a line, or several lines fused.

    `touched` overrides, by tensor name, how many elements are read where that is not the whole
    tensor (rows gathered from a table). `layers` are the layers in which this same operator
    occurs, None where it stands outside the layers; the costs are those of one occurrence. `keeps` says what
    of vector work the backward pass reads; `parts` are the operators that a fused one is made of. `stage` is the part
    of the phase that it belongs to, where a phase has parts; `passes` is how often that part runs. `collective` is what
    it exchanges with other devices; `function` what vector work computes, by the name that vector.py has for it, where
    frameworks differ in how they run it.
    """

    name: str
    group: str
    kind: str
    lines: tuple[Line, ...]
    sizes: Sizes
    widths: Widths
    matmul_flops: Number
    vector_flops: Number
    touched: Mapping[str, Number] = field(default_factory=dict)
    layers: tuple[int, ...] | None = None
    keeps: Keeps = "inputs"
    parts: tuple[Operator, ...] = ()
    stage: str = ""
    passes: Number = 1
    collective: Collective | None = None
    function: str = ""

    @property
    def spec(self) -> str:
        return "; ".join(line.text for line in self.lines)

    @property
    def count(self) -> Number:
        return self.passes * (1 if self.layers is None else len(self.layers))

    @cached_property
    def reads(self) -> tuple[Tensor, ...]:
        """What enters: read by a line, written by none before it."""
        entering: dict[str, Tensor] = {}
        written: set[str] = set()
        for line in self.lines:
            entering.update((t.name, t) for t in line.inputs if t.name not in written)
            written.update(t.name for t in line.outputs)
        return tuple(entering.values())

    @cached_property
    def writes(self) -> tuple[Tensor, ...]:
        """What leaves: written by a line, consumed by none after it."""
        leaving: dict[str, Tensor] = {}
        for line in self.lines:
            for tensor in line.inputs:
                leaving.pop(tensor.name, None)
            leaving.update((t.name, t) for t in line.outputs)
        return tuple(leaving.values())

    @cached_property
    def parameters(self) -> tuple[Tensor, ...]:
        return tuple(tensor for tensor in self.reads if tensor.is_parameter)

    @cached_property
    def _bytes_of(self) -> dict[Tensor, Number]:
        """What was asked for so far: of arrays of sizes each is an array."""
        return {}

    def bytes_of(self, tensor: Tensor) -> Number:
        """Bytes moved when this operator reads or writes the tensor once."""
        if tensor not in self._bytes_of:
            elements = self.touched.get(tensor.name)
            elements = tensor.elements(self.sizes) if elements is None else elements
            self._bytes_of[tensor] = self.widths.bytes(tensor, elements)
        return self._bytes_of[tensor]

    @cached_property
    def cost(self) -> Cost:
        """The cost of one occurrence."""
        return Cost(
            matmul_flops=self.matmul_flops,
            vector_flops=self.vector_flops,
            bytes_read=sum(self.bytes_of(t) for t in self.reads),
            bytes_written=sum(self.bytes_of(t) for t in self.writes),
            weight_bytes=sum(self.bytes_of(t) for t in self.reads if t.is_parameter),
            cache_bytes=sum(self.bytes_of(t) for t in self.reads if t.is_cached),
            link_bytes=self.link_bytes,
        )

    @property
    def link_bytes(self) -> Number:
        """What it sends to other devices: of what it gathers, or of what it reads."""
        return self.collective.sent(self.exchanged_bytes) if self.collective else 0

    @property
    def exchanged_bytes(self) -> Number:
        """Bytes of the whole that a collective deals with: of what it gathers, or of what it reads."""
        gathers = self.collective is not None and self.collective.name == "all_gather"
        return sum(self.bytes_of(tensor) for tensor in (self.writes if gathers else self.reads))

    @property
    def total(self) -> Cost:
        """The cost of all occurrences."""
        return self.count * self.cost  # type: ignore[no-any-return]

    @property
    def gemm(self) -> Gemm | None:
        """Batch, M, N, K where the operator is one contraction of whole matrices; None for anything else."""
        if len(self.lines) != 1 or not self.lines[0].contracted or self.kind == "grouped_gemm":
            return None
        line = self.lines[0]
        a, b = (split_axes(tensor.axes) for tensor in line.factors)
        shared = [axis for axis in a if axis in b]
        return Gemm(
            batch=product(self.sizes[axis] for axis in shared if axis not in line.contracted),
            m=product(self.sizes[axis] for axis in a if axis not in b),
            n=product(self.sizes[axis] for axis in b if axis not in a),
            k=product(self.sizes[axis] for axis in line.contracted),
        )

    def renamed(self, stack: str, tensor: Callable[[str], str]) -> Operator:
        """The same work in another stack, on tensors of other names."""
        return replace(
            self,
            name=f"{stack}.{self.name}",
            group=f"{stack} {self.group}",
            lines=tuple(parse(NAME.sub(lambda found: tensor(found[0]), line.text)) for line in self.lines),
            touched={tensor(t): n for t, n in self.touched.items()},
            parts=tuple(part.renamed(stack, tensor) for part in self.parts),
        )

    def meaning(self, letter: str) -> str:
        """What an axis of its lines means here."""
        if letter == "c" and "attention" in self.name:
            return "columns of a fused projection"
        beside = {axis for line in self.lines for tensor in (*line.inputs, *line.outputs) for axis in tensor.axes}
        told = (meaning for other, meaning in OTHERWISE.get(letter, {}).items() if other in beside)
        return next(told, AXES[letter])


class Builder(NamedTuple):
    """Turns lines into operators, given the axis sizes and the widths in force."""

    sizes: Sizes
    widths: Widths

    def operator(
        self,
        name: str,
        group: str,
        text: str,
        *,
        kind: str = "gemm",
        flops: int = 0,
        keeps: Keeps = "inputs",
        function: str = "",
    ) -> Operator:
        """The operator of one line.

        A contraction has 2 matmul FLOPs per point of its axes. Anything else has `flops` vector FLOPs per element of
        the first tensor it reads. Each added term is 1 more vector FLOP per output element.
        """
        line = parse(text)
        matmul, vector = 0, len(line.terms) * sum(tensor.elements(self.sizes) for tensor in line.outputs)
        if line.contracted:
            matmul = 2 * product(self.sizes[axis] for axis in line.axes)
        else:
            vector = vector + flops * line.inputs[0].elements(self.sizes)
        return Operator(
            name, group, kind, (line,), self.sizes, self.widths, matmul, vector, keeps=keeps, function=function
        )

    def gather(self, name: str, group: str, text: str) -> Operator:
        """Rows looked up in a table: no FLOPs; it reads the rows (what it writes), not the table.

        The indices themselves are left out, as is usual: a few bytes against a row of thousands.
        """
        line = parse(text)
        rows = {line.inputs[0].name: line.outputs[0].elements(self.sizes)}
        return Operator(name, group, "gather", (line,), self.sizes, self.widths, 0, 0, touched=rows)

    def exchange(self, name: str, text: str, collective: Collective) -> Operator:
        """What GPUs exchange: a tensor that becomes another one. The sums themselves are left out."""
        operator = self.operator(name, "communication", text, kind="communication")
        return replace(operator, collective=collective)


def fuse(name: str, group: str, operators: Iterable[Operator], *, kind: str) -> Operator:
    """Several operators as one kernel: the same FLOPs, and only the boundary's bytes."""
    parts = tuple(operators)
    return replace(
        parts[0],
        name=name,
        group=group,
        kind=kind,
        lines=tuple(line for part in parts for line in part.lines),
        matmul_flops=sum(part.matmul_flops for part in parts),
        vector_flops=sum(part.vector_flops for part in parts),
        touched={tensor: n for part in parts for tensor, n in part.touched.items()},
        parts=parts,
        function="",
    )
