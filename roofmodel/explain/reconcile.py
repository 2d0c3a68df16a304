"""Reconciliation of FLOP counts with fvcore, calflops, DeepSpeed and llm-flops, term by term.

All of these tools count a forward pass with logits at all positions and all pairs of query and key. The rules follow
the code of the tools. They were checked against the tools on small models of the families in `Tool.checked`: fvcore
0.1.5 by a test; calflops 0.3.2, DeepSpeed 0.19.8 and llm-flops 0.0.1 by hand, since they need other versions of our
development dependencies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from roofmodel.counting.operator import Operator
from roofmodel.errors import Message, Option, Text, WorkloadError, ignored
from roofmodel.explain.explain import Explanation, Quantity, SymbolicOperator, explain
from roofmodel.explain.operator_answer import NUMBERS, amount, describe_quantity, number, symbols
from roofmodel.models.architecture import Architecture, Network
from roofmodel.models.recurrent_layers import DeltaRule
from roofmodel.numbers.algebra import Number, plain
from roofmodel.options.workload import non_default_options
from roofmodel.report import formula
from roofmodel.report.document import Document, Form, Paragraph, Rows, TextTable


class ForwardPass(NamedTuple):
    """The operators that a tool counts, and whether attention is one fused call."""

    arch: Architecture
    operators: tuple[SymbolicOperator, ...]
    fused: bool

    def sum(self, name: str, count: Callable[[Operator], Number], of: Callable[[Operator], Any]) -> Quantity | None:
        """The sum of `count` over all occurrences of the operators for which `of` is true; None without any."""
        operators = [op for op in self.operators if of(op.operator)]
        if not operators:
            return None
        symbolic = sum(op.times * count(op.symbolic) for op in operators)
        return Quantity(name, symbolic, sum(op.operator.count * count(op.operator) for op in operators), "FLOP")


class Tool(NamedTuple):
    """A FLOP counter: its version, the call that prints its count, and the terms of the difference."""

    version: str
    figure: str
    terms: Callable[[ForwardPass], Iterable[Quantity | None]]
    checked: tuple[str, ...]


class Reconciliation(NamedTuple):
    """Our count, the terms, and the tool's count, which is their sum."""

    tool: str
    explanation: Explanation
    ours: Quantity
    terms: tuple[Quantity, ...]
    theirs: Quantity
    notes: tuple[Text, ...]


def reconcile(arch: Architecture, tool: str, **options: Any) -> Reconciliation:
    """The count of a tool for a forward pass, derived from ours. `attention`: the implementation that the tool runs.

    Raises WorkloadError for a model without rules.
    """
    is_network = isinstance(arch.body, Network)
    if not is_network and any(isinstance(part, DeltaRule) for part in arch.stack.parts):
        raise WorkloadError(
            Option("reconcile", tool),
            f": {arch.name} is not supported; decoders without linear attention are supported",
        )
    if arch.encoder or (is_network and tool not in TOOLS_FOR_NETWORKS):
        others = f"; for convolutional networks use {', '.join(TOOLS_FOR_NETWORKS)}" if is_network else ""
        raise WorkloadError(
            Option("reconcile", tool),
            f": {arch.name} is not supported; decoder-only and encoder-only models are supported{others}",
        )
    used = {name: options[name] for name in ("batch", "seq", "image") if name in options}
    all_pairs = {} if is_network else {"attention": "eager", "logits": "all"}
    explanation = explain(arch, None, phase="forward", **all_pairs, **used)
    fused = not is_network and options.get("attention", "flash") == "flash" and arch.model_type not in UNFUSED
    forward = ForwardPass(arch, explanation.sections[0].operators, fused)
    ours = next(total for total in explanation.sections[0].totals if total.name == "matmul FLOPs")
    if not is_network:
        ours = ours._replace(name=f"{ours.name}, all pairs, all logits")
    flop_counter = TOOLS[tool]
    terms = tuple(term for term in flop_counter.terms(forward) if term is not None)
    parts = (ours, *terms)
    theirs = Quantity(tool, sum(t.symbolic for t in parts), sum(t.value for t in parts), "FLOP")
    return Reconciliation(
        tool, explanation, ours, terms, theirs, (*_notes(arch, tool, flop_counter, fused, options), *explanation.notes)
    )


def _notes(arch: Architecture, tool: str, flop_counter: Tool, fused: bool, options: dict[str, Any]) -> Iterator[Text]:
    unused = non_default_options(options, used=("batch", "seq", "image", "attention", "dtype"))
    yield from (ignored(name, f"{tool} counts a forward pass") for name in unused)
    if tool != "llm-flops" and not isinstance(arch.body, Network):
        how = "fused (SDPA, the default of transformers)" if fused else "eager"
        yield Message(
            f"the count of {tool} {flop_counter.version} is for {how} attention; ", Option("attention"), " changes it"
        )
    if arch.model_type not in flop_counter.checked:
        yield (
            f"the rules of {tool} were checked on {', '.join(flop_counter.checked)}; for {arch.model_type} they are "
            "assumed to hold"
        )


# --- Properties of models and operators -------------------------------------------------------------

UNFUSED = (  # classes without fused attention, `_supports_sdpa` in transformers 5.23
    *("gptj", "codegen", "gpt_neo", "bloom", "mpt", "xglm", "gemma2", "openai-gpt", "vaultgemma", "gpt_oss"),
    *("mimo_v2_flash", "megatron-bert", "mpnet", "roformer", "deberta-v2", "mamba", "falcon_mamba", "mamba2"),
)
BADDBMM = ("bloom",)  # classes that compute scores with torch.baddbmm
CONV1D = ("gpt2",)  # classes with Conv1D modules: torch.addmm adds the bias
POOLED = ("resnet",)  # classes with torch.nn.AdaptiveAvgPool2d
TOOLS_FOR_NETWORKS = ("fvcore",)  # tools with rules for convolutional networks
FUNCTIONAL_ACTIVATIONS = ("relu", "relu2", "leaky_relu", "silu", "swish")  # called through torch.nn.functional


def elements(operator: Operator) -> Number:
    """The number of elements of its first input."""
    return operator.reads[0].elements(operator.sizes)


def _core(op: Operator) -> bool:
    return op.kind == "bmm" and op.group.endswith("attention")


def _matmul(op: Operator) -> Number:
    return op.matmul_flops


def _activates(op: Operator) -> bool:
    return op.kind == "elementwise" and op.name.startswith("mlp.") and op.name.endswith("activation")


def _layer_norms(forward: ForwardPass) -> Quantity | None:
    """5 FLOPs per element, or 4 without gain and bias."""
    if not isinstance(forward.arch.body, Network) and forward.arch.stack.norm.kind != "layernorm":
        return None
    return forward.sum(
        "layer norms: 5 per element, 4 without gain and bias",
        lambda op: elements(op) * (5 if op.parameters else 4),
        lambda op: op.kind == "norm" and not _is_batch_norm(op) and not op.name.endswith("_response"),
    )


def _is_batch_norm(op: Operator) -> bool:
    """Whether it is a batch norm, which reads a stored mean and variance."""
    return any(tensor.name == "variance" for tensor in op.reads)


def _minus(quantity: Quantity | None, divisor: int = 1) -> Quantity | None:
    """The negative of a quantity, divided by `divisor`."""
    if quantity is None:
        return None
    return quantity._replace(symbolic=-quantity.symbolic / divisor, value=-quantity.value // divisor)


# --- The tools --------------------------------------------------------------------------------------


def fvcore(forward: ForwardPass) -> Iterator[Quantity | None]:
    """Multiply-adds, norms and average pooling are counted; fused attention and baddbmm are not."""
    yield _minus(
        forward.sum("a multiply-add counts as one: half of ours", _matmul, lambda op: bool(op.matmul_flops)), 2
    )
    if forward.fused:
        yield _minus(forward.sum("attention in a fused call, which is not counted", _matmul, _core), 2)
    elif forward.arch.model_type in BADDBMM:
        scores = forward.sum(
            "scores by torch.baddbmm, which is not counted", _matmul, lambda op: op.name.endswith("scores")
        )
        yield _minus(scores, 2)
    yield _layer_norms(forward)
    yield forward.sum("batch norms: 2 per element", lambda op: 2 * elements(op), _is_batch_norm)
    if forward.arch.model_type in POOLED:
        yield forward.sum("average pooling: 1 per element", elements, lambda op: op.name == "head.pool")


def deepspeed(forward: ForwardPass) -> Iterator[Quantity | None]:
    """2 per multiply-add, and 1 per element of torch.nn.functional calls; Tensor.baddbmm is not counted."""
    if forward.arch.model_type in BADDBMM:
        scores = forward.sum(
            "scores by Tensor.baddbmm, which is not counted", _matmul, lambda op: op.name.endswith("scores")
        )
        yield _minus(scores)
    yield from _functionals(forward)


def calflops(forward: ForwardPass) -> Iterator[Quantity | None]:
    """Like DeepSpeed, from which its code derives, but without fused attention and torch.bmm."""
    if forward.fused:
        yield _minus(forward.sum("attention in a fused call, which is not counted", _matmul, _core))
    elif forward.arch.model_type in BADDBMM:
        yield _minus(forward.sum("attention by baddbmm and bmm, which is not counted", _matmul, _core))
    yield from _functionals(forward)


def _functionals(forward: ForwardPass) -> Iterator[Quantity | None]:
    """The terms of calflops and DeepSpeed apart from matrix multiplications."""
    yield _layer_norms(forward)
    if not forward.fused:
        yield forward.sum("softmax: 1 per element", elements, lambda op: op.kind == "softmax")
    yield forward.sum("router softmax: 1 per element", elements, lambda op: op.kind == "routing")
    if forward.arch.facts["activation"].value in FUNCTIONAL_ACTIVATIONS:

        def width(op: Operator) -> Number:
            return op.writes[0].elements(op.sizes)

        yield forward.sum("activations: 1 per element", width, _activates)
    yield forward.sum("convolution bias: 1 per element", lambda op: op.vector_flops, lambda op: op.kind == "conv")
    if forward.arch.model_type in CONV1D:

        def bias(op: Operator) -> Number:
            return op.lines[0].terms[0].elements(op.sizes)

        yield forward.sum(
            "addmm bias: 1 per element of the bias", bias, lambda op: op.kind == "gemm" and bool(op.lines[0].terms)
        )


def llm_flops(forward: ForwardPass) -> Iterator[Quantity | None]:
    """A closed formula from the config: no head for encoders, and constants for vector operations."""
    if not forward.arch.causal:
        yield _minus(forward.sum("no head for encoders", _matmul, lambda op: op.group == "head"))
    yield forward.sum("softmax: 5 per score", lambda op: 5 * elements(op), lambda op: op.kind == "softmax")
    yield forward.sum(
        "rotary embedding: 6 per element of queries and keys",
        lambda op: 6 * sum(tensor.elements(op.sizes) for tensor in op.writes),
        lambda op: op.name.endswith("rotary"),
    )
    gated = forward.arch.facts["gated"].value
    each = 8 if gated else 2
    yield forward.sum(f"activations: {each} per element", lambda op: each * op.writes[0].elements(op.sizes), _activates)
    norm = {"layernorm": 6, "rmsnorm": 4}[forward.arch.stack.norm.kind]
    yield forward.sum(f"norms: {norm} per element", lambda op: norm * elements(op), lambda op: op.group == "norm")
    yield forward.sum("learned positions: 1 per element", elements, lambda op: op.name == "embedding.add_position")


TOOLS: dict[str, Tool] = {
    "fvcore": Tool(
        "0.1.5", "FlopCountAnalysis(model, ids).total()", fvcore,
        ("gpt2", "gptj", "opt", "gpt_neox", "bloom", "llama", "mistral", "qwen2", "stablelm", "bert", "distilbert",
         "resnet", "convnext", "convnextv2"),
    ),
    "calflops": Tool(
        "0.3.2", "calculate_flops(model, kwargs={'input_ids': ids})[0]", calflops,
        ("gpt2", "llama", "bert", "opt", "bloom", "mixtral", "vit"),
    ),
    "deepspeed": Tool(
        "0.19.8", "FlopsProfiler(model).get_total_flops()", deepspeed,
        ("gpt2", "llama", "bert", "opt", "bloom", "mixtral", "vit"),
    ),
    "llm-flops": Tool("0.0.1", "estimate(...).flops.total", llm_flops, ("gpt2", "llama", "mixtral")),
}  # fmt: skip


def document(reconciliation: Reconciliation) -> Document:
    """Our matmul FLOPs, the terms of the difference, and the tool's count."""
    tool, explanation = TOOLS[reconciliation.tool], reconciliation.explanation
    ours = reconciliation.ours._replace(name=f"ours: {reconciliation.ours.name}")
    theirs = reconciliation.theirs._replace(name=f"{reconciliation.tool}: {tool.figure}")
    quantities = (ours, *reconciliation.terms, theirs)
    return Document(
        f"{explanation.name}: the FLOP count of {reconciliation.tool}, derived from ours",
        [
            Paragraph(f"The rules of {reconciliation.tool} {tool.version} for one forward pass."),
            symbols(explanation, quantities),
            TextTable(("term", "formula", "|value"), [_row(quantity, explanation) for quantity in quantities]),
        ],
        lambda: {
            "schema": "roofmodel.reconcile/1",
            "name": explanation.name,
            "tool": reconciliation.tool,
            "version": tool.version,
            "ours": describe_quantity(ours),
            "terms": [describe_quantity(term) for term in reconciliation.terms],
            "theirs": describe_quantity(theirs),
        },
        lambda: Rows(NUMBERS, [number(quantity) for quantity in quantities]),
        reconciliation.notes,
    )


def _row(quantity: Quantity, explanation: Explanation) -> list[Any]:
    expression = formula.readable(quantity.symbolic)
    form = Form(formula.text(expression), formula.latex(expression))
    value = plain(quantity.value)
    return [quantity.name, form, amount(value, "").text if value >= 0 else f"−{amount(-value, '').text}"]
