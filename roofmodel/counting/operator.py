"""Costs of operators: FLOPs, bytes, parameters and GEMM shape follow from the operator's line (see tensors.py).

    "x[b t d] W_up[d f] + B_up[f] -> u[b t f]"

* matmul FLOPs of a contraction: 2 x the product of the sizes of all axes of its factors;
* vector FLOPs: 1 per output element for each added term, plus what the operator states;
* bytes: elements of each tensor x the width of its number format; inputs are read, outputs written;
* parameters: the elements of tensors with a capitalized name.

`fuse` joins operators into one kernel, which reads only the inputs and writes only the outputs of the group. These
boundary bytes are compulsory traffic: a lower bound on DRAM traffic.

Bytes that a GPU sends in a collective are counted as the bus bandwidth of nccl-tests: for a full tensor of S bytes on n
GPUs, all-gather, reduce-scatter and all-to-all send S (n - 1) / n bytes per GPU, and an all-reduce sends twice that. A
point-to-point send between pipeline stages is S bytes. Around a ring, a GPU sends its tensors of S bytes and those of
n - 2 other GPUs: S (n - 1). The all-to-all of an MoE layer sends a token once to each GPU
that has any of its experts, and between nodes once to each node (DeepEP, github.com/deepseek-ai/DeepEP; DeepSeek-V3,
arXiv 2412.19437, section 3.2.2). With E experts on n GPUs and k experts per token, chosen uniformly, another GPU has
none of them with probability C(E - E/n, k) / C(E, k). Where a router first chooses g of G groups of experts
(DeepSeek-V3, section 2.1.2: at most 4 nodes for a token), the k experts are among those of g groups, so that fewer GPUs
have any.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple

from roofmodel.counting.tensors import (
    AXES,
    AXIS_OVERRIDES,
    NAME,
    OperatorLine,
    Sizes,
    Tensor,
    Widths,
    parse,
    split_axes,
)
from roofmodel.numbers.algebra import Number, maximum, mean, minimum, product, subsets, whole

ROUNDS = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1, "alltoall": 0, "send": 0, "ring": 1}
"""Rounds of a collective over the ring of GPUs; 0 for direct exchanges without a ring."""

GRADIENTS = {
    "all_reduce": "replicate", "replicate": "all_reduce", "alltoall": "alltoall",
    "send": "receive", "receive": "send", "all_gather": "split", "split": "all_gather", "reduce_scatter": "all_gather",
    "ring": "ring",
}  # fmt: skip
"""The collective of the backward pass for each one of the forward pass.

Sources: Megatron-LM's f and g (arXiv 1909.08053, section 3), pipeline stages (arXiv 2104.04473, section 4.1), sequence
parallelism (arXiv 2205.05198, section 4.2).
"""


class Collective(NamedTuple):
    """A collective among `gpus` GPUs whose ranks differ by `rank_stride`.

    `experts` and `active`: of an MoE layer, all experts and those of a token, which are in `active_groups` of `groups`
    groups; the full tensor has a row for each token and expert, but none for `zero_experts`, which no GPU computes.
    In a `ring`, each GPU passes the tensors of all others to its neighbor, in `gpus` - 1 steps.
    `adds`: the gathered tensor is the input of sharded GEMMs, so its gradient is a reduce-scatter; of a
    ring: the backward pass repeats it.

    Three names move no data in the forward pass and exist for their gradients: `replicate` (a replicated tensor from
    which each GPU computes its shard), `split` (each GPU keeps its shard of a replicated tensor) and `receive` (whose
    time is counted at the sender).
    """

    name: str
    gpus: Number
    rank_stride: Number = 1
    adds: bool = False
    experts: Number = 0
    active: Number = 0
    groups: int = 1
    active_groups: int = 1
    zero_experts: Number = 0

    @property
    def span(self) -> Number:
        """Number of consecutive ranks from the first to the last GPU."""
        return self.gpus * self.rank_stride

    @property
    def moves(self) -> bool:
        """Whether the collective moves data."""
        return self.name in ROUNDS

    def sent(self, size: Number) -> Number:
        """Bytes that a GPU sends, and also receives, for a full tensor of `size` bytes."""
        if self.name == "send":
            return size
        if self.name == "ring":
            return size * (self.gpus - 1)
        if self.active:
            rows = self.active * self.experts / (self.experts + self.zero_experts) if self.zero_experts else self.active
            return size * self.destinations(self.gpus) / rows
        return mean(self.times * size * (self.gpus - 1), self.gpus)

    def destinations(self, places: Number) -> Number:
        """Of an MoE layer: the mean number of places, other than its own, that have an expert of a token.

        `places` is the number of all GPUs or of all nodes, each with as many experts.
        """
        several = (places - 1) * (1 - self._missed(places))
        # With fewer experts than places, a token is sent once for each of its experts.
        return minimum(several, self.active * (places - 1) / places) if isinstance(self.active, int) else several

    def _missed(self, places: Number) -> Number:
        """The probability that a place has no expert of a token.

        A place has experts of G / `places` groups, or a part of the experts of one. Of these groups, a token chooses j
        with the probability of a hypergeometric distribution.
        """
        if self.groups == 1:
            choices = self.experts + self.zero_experts
            return subsets(self.active, choices - self.experts / places) / subsets(self.active, choices)
        experts, chosen, own_groups = self.experts, self.active_groups, maximum(self.groups / places, 1)
        reached = experts * chosen / self.groups
        of_a_group = experts / maximum(places, self.groups)  # experts of a place in one of its groups
        missed: Number = 0
        for j in range(chosen + 1):
            ways = subsets(j, own_groups) * subsets(chosen - j, self.groups - own_groups)
            missed = missed + ways * subsets(self.active, reached - j * of_a_group)
        return missed / (subsets(chosen, self.groups) * subsets(self.active, reached))

    @property
    def times(self) -> int:
        """How many times the tensor crosses the links: 2 for an all-reduce, else 1."""
        return max(ROUNDS[self.name], 1)

    @property
    def gradient(self) -> Collective:
        """The collective of the backward pass."""
        is_sum = self.adds and self.name == "all_gather"
        return self._replace(name="reduce_scatter" if is_sum else GRADIENTS[self.name], adds=False)


@dataclass(frozen=True)
class Cost:
    """FLOPs and bytes of one or more operators. Costs add, and an integer factor repeats them: `layers * block + head`.

    A multiply-add is 2 FLOPs. Bytes are compulsory DRAM traffic; `weight_bytes` and `cache_bytes` are the parts of
    `bytes_read` that are parameters and KV cache. `link_bytes` is what a GPU sends to other GPUs; it receives as much.
    """

    matmul_flops: Number = 0
    vector_flops: Number = 0
    bytes_read: Number = 0
    bytes_written: Number = 0
    weight_bytes: Number = 0
    cache_bytes: Number = 0
    link_bytes: Number = 0

    __array_ufunc__ = None  # lets `array * cost` call Cost.__rmul__

    @property
    def flops(self) -> Number:
        return self.matmul_flops + self.vector_flops

    @property
    def bytes(self) -> Number:
        return self.bytes_read + self.bytes_written

    @property
    def intensity(self) -> Number:
        """Arithmetic intensity in FLOPs per byte (matmul and vector FLOPs); 0 without bytes."""
        try:
            return self.flops / self.bytes
        except ZeroDivisionError:  # no comparison: it would be a case of a traced number
            return 0

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


Keeps = Literal["inputs", "outputs", "nothing", "mask"]
"""What the backward pass reads of vector work: its inputs, its outputs, nothing if it is linear, or the mask that it
writes (dropout)."""


class Gemm(NamedTuple):
    """The shape of a contraction as a batched GEMM: `batch` times (m x k) (k x n)."""

    batch: Number
    m: Number
    n: Number
    k: Number


@dataclass(frozen=True)
class Operator:
    """The work of one kernel: one line, or several fused lines. Costs are those of one execution.

    * `touched`: elements read, by tensor name, where that is not the whole tensor (rows gathered from a table);
    * `layers`: the layers that contain this operator; None outside layers;
    * `keeps`: what the backward pass reads of vector work;
    * `parts`: the operators that were fused;
    * `stage`: the part of the phase (forward, backward, ...), if the phase has parts; `passes`: runs of that part;
    * `collective`: the exchange with other GPUs, if any;
    * `function`: the function that vector work computes (a key in vector_flops.py), where frameworks differ in how
      they execute it;
    * `gradient_flops`: matmul FLOPs of the gradient of a tensor, by its name, where they are fewer than the operator's;
    * `causal`: whether the queries of an attention attend only to keys up to their own positions;
    * `eager`: builds the operators that eager attention runs instead of this fused one, for all query-key pairs; None
      where eager attention runs the same operator.
    """

    name: str
    group: str
    kind: str
    lines: tuple[OperatorLine, ...]
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
    gradient_flops: Mapping[str, Number] = field(default_factory=dict)
    causal: bool = True
    eager: Callable[[], tuple[Operator, ...]] | None = field(default=None, compare=False, repr=False)

    @property
    def kept_candidates(self) -> tuple[Tensor, ...]:
        """The tensors of which the backward pass may read some."""
        return self.writes if self.keeps in ("outputs", "mask") else self.reads

    @property
    def spec(self) -> str:
        """The operator's lines, joined by semicolons."""
        return "; ".join(line.text for line in self.lines)

    @cached_property
    def count(self) -> Number:
        """Number of executions: passes x layers."""
        return self.passes * (1 if self.layers is None else len(self.layers))

    @cached_property
    def reads(self) -> tuple[Tensor, ...]:
        """The inputs: tensors that a line reads and no earlier line writes."""
        inputs: dict[str, Tensor] = {}
        written: set[str] = set()
        for line in self.lines:
            inputs.update((t.name, t) for t in line.inputs if t.name not in written)
            written.update(t.name for t in line.outputs)
        return tuple(inputs.values())

    @cached_property
    def writes(self) -> tuple[Tensor, ...]:
        """The outputs: tensors that a line writes and no later line reads."""
        outputs: dict[str, Tensor] = {}
        for line in self.lines:
            for tensor in line.inputs:
                outputs.pop(tensor.name, None)
            outputs.update((t.name, t) for t in line.outputs)
        return tuple(outputs.values())

    @cached_property
    def parameters(self) -> tuple[Tensor, ...]:
        return tuple(tensor for tensor in self.reads if tensor.is_parameter)

    def compute_dtype(self, dtype: str) -> str:
        """The format that the operator multiplies in, where GEMMs compute in `dtype`.

        A format below 16 bits does not apply to GEMMs whose weights keep the working format, such as the head, the
        router of an MoE layer, and modules that a checkpoint does not convert: engines quantize only linear layers with
        quantized weights (vLLM creates gates with `quant_config=None`, and its head is no quantized linear layer).
        Nor does it apply to attention on activations and a KV cache of at least 16 bits; an indexer's scores are apart.
        """
        if self.widths.gemm is None or not self.lines[0].contracted:
            return dtype
        if self.multiplies_unconverted_weights:
            return self.widths.unconverted_compute(dtype)
        if self.scores_indexed_tokens:
            return self.widths.index_compute(dtype)
        return self.widths.attention_compute(dtype) if self._multiplies_activations else dtype

    @property
    def scores_indexed_tokens(self) -> bool:
        """Whether these are the scores of an indexer of tokens, or of means of several tokens, in one kernel.

        Indexers that score each key and keep the maximum of a block (MiniMax-M3) multiply in the format of attention.
        """
        return self.kind == "attention" and "ki" in self.sizes and "t:sb" not in self.sizes

    @cached_property
    def multiplies_unconverted_weights(self) -> bool:
        """Whether a factor of the operator is a parameter to which a weight format below 16 bits does not apply, or its
        result the gradient of one."""
        gradients = (Tensor(t.name.removeprefix("grad."), t.axes) for t in self.lines[0].outputs)
        return any(map(self.widths.keeps_working_format, (*self.lines[0].factors, *gradients)))

    @property
    def _multiplies_activations(self) -> bool:
        """Whether this is attention, fused or eager."""
        is_parameter = any(factor.is_parameter for factor in self.lines[0].factors)
        return self.kind in ("attention", "bmm") and not is_parameter

    @cached_property
    def _bytes_of(self) -> dict[Tensor, Number]:
        """Results of `bytes_of`, which are costly to compute if the sizes are arrays."""
        return {}

    def bytes_of(self, tensor: Tensor) -> Number:
        """Bytes moved when the operator reads or writes the tensor once."""
        if tensor not in self._bytes_of:
            elements = self.touched.get(tensor.name)
            elements = tensor.elements(self.sizes) if elements is None else elements
            self._bytes_of[tensor] = self.widths.bytes(tensor, elements)
        return self._bytes_of[tensor]

    @cached_property
    def cost(self) -> Cost:
        """The cost of one execution."""
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
        """Bytes that the GPU sends to other GPUs."""
        return self.collective.sent(self.exchanged_bytes) if self.collective else 0

    @property
    def exchanged_bytes(self) -> Number:
        """Size of the full tensor of a collective: the gathered output of an all-gather, else the input."""
        gathers = self.collective is not None and self.collective.name == "all_gather"
        return sum(self.bytes_of(tensor) for tensor in (self.writes if gathers else self.reads))

    @property
    def total(self) -> Cost:
        """The cost of all executions, over all layers and passes."""
        return self.count * self.cost  # type: ignore[no-any-return]

    @property
    def numbers(self) -> tuple[Any, ...]:
        """The numbers of the operator, as `with_numbers` takes them."""
        parts = tuple(part.numbers for part in self.parts)
        return (
            (*self.sizes.values(),),
            (*self.touched.values(),),
            self.matmul_flops,
            self.vector_flops,
            self.passes,
            parts,
        )

    def with_numbers(self, numbers: tuple[Any, ...]) -> Operator:
        """The same operator with other numbers; without its operators under eager attention."""
        sizes, touched, matmul_flops, vector_flops, passes, parts = numbers
        return replace(
            self,
            sizes=dict(zip(self.sizes, sizes, strict=True)),
            touched=dict(zip(self.touched, touched, strict=True)),
            matmul_flops=matmul_flops,
            vector_flops=vector_flops,
            passes=passes,
            parts=tuple(part.with_numbers(own) for part, own in zip(self.parts, parts, strict=True)),
            eager=None,
        )

    @property
    def runs_once_per_step(self) -> bool:
        """Whether the operator runs once per training step, not once per microbatch."""
        return self.stage == "optimizer" or self.name.startswith("gradients.")

    def in_stage(self, stage: str, passes: Number) -> Operator:
        """The same operator in a part of a phase that runs so many times; it keeps its cost if that is known.

        It copies attributes directly, because `replace` would compute all costs again.
        """
        operator = object.__new__(Operator)
        operator.__dict__.update(self.__dict__, stage=stage, passes=passes)
        operator.__dict__.pop("count", None)
        return operator

    def with_widths(self, widths: Widths) -> Operator:
        """The same operator with other number formats; without its operators under eager attention."""
        return replace(self, widths=widths, parts=tuple(part.with_widths(widths) for part in self.parts), eager=None)

    @property
    def gemm(self) -> Gemm | None:
        """The GEMM shape if the operator is a single contraction; None for fused, grouped and vector work."""
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

    def as_eager(self) -> tuple[Operator, ...]:
        """The operators that eager attention runs in place of this one, in the same layers, stage and passes."""
        if self.eager is None:
            return (self,)
        return tuple(replace(op, layers=self.layers, stage=self.stage, passes=self.passes) for op in self.eager())

    def renamed(self, stack: str, tensor: Callable[[str], str]) -> Operator:
        """The same operator in another stack (`encoder`), with its tensors renamed by `tensor`."""
        eager = self.eager
        return replace(
            self,
            name=f"{stack}.{self.name}",
            group=f"{stack} {self.group}",
            lines=tuple(parse(NAME.sub(lambda match: tensor(match[0]), line.text)) for line in self.lines),
            touched={tensor(t): n for t, n in self.touched.items()},
            parts=tuple(part.renamed(stack, tensor) for part in self.parts),
            eager=eager and (lambda: tuple(part.renamed(stack, tensor) for part in eager())),
        )

    def meaning(self, letter: str) -> str:
        """The meaning of one of the operator's axes."""
        if letter == "c" and "attention" in self.name and "filter" not in self.name:
            return "columns of a fused projection"
        present = {axis for line in self.lines for tensor in (*line.inputs, *line.outputs) for axis in tensor.axes}
        overrides = (meaning for other, meaning in AXIS_OVERRIDES.get(letter, {}).items() if other in present)
        return next(overrides, AXES[letter])


class Builder(NamedTuple):
    """Makes operators from lines, for given axis sizes and number formats."""

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
        """An embedding lookup: no FLOPs; it reads as many elements as it writes, not the whole table.

        The indices are not counted: a few bytes compared with thousands per row.
        """
        line = parse(text)
        rows = {line.inputs[0].name: line.outputs[0].elements(self.sizes)}
        return Operator(name, group, "gather", (line,), self.sizes, self.widths, 0, 0, touched=rows)

    def exchange(self, name: str, text: str, collective: Collective) -> Operator:
        """A collective that turns one tensor into another. The additions of a reduction are not counted."""
        operator = self.operator(name, "communication", text, kind="communication")
        return replace(operator, collective=collective)


def fuse(name: str, group: str, operators: Iterable[Operator], *, kind: str) -> Operator:
    """Several operators as one kernel: the sum of their FLOPs, and only the bytes that cross the boundary."""
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
        eager=None,
    )
