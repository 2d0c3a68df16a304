"""Other tools' figures out of ours, term by term: what each of them counts otherwise, and what it does not see.

All of them count a forward pass that computes logits at all positions, and all pairs of query and key. The rules below
are what these tools' code does; they were held against the tools themselves on small models of the families that
`CHECKED` names (fvcore 0.1.5 by a test; calflops 0.3.2, DeepSpeed 0.19.8 and llm-flops 0.0.1 by hand, since they
want other versions of what we develop with).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from roofmodel.algebra import Number
from roofmodel.counting.operator import Operator
from roofmodel.errors import WorkloadError, choices
from roofmodel.models.architecture import Architecture
from roofmodel.models.convolutional import Network
from roofmodel.models.recurrent import DeltaRule
from roofmodel.study.derive.explain import Counted, Explanation, Quantity, explain
from roofmodel.study.estimate.options import given


class Seen(NamedTuple):
    """A model as a tool sees it: the operators of its forward pass, and whether attention is one fused call."""

    arch: Architecture
    operators: tuple[Counted, ...]
    fused: bool

    def sum(self, name: str, count: Callable[[Operator], Number], of: Callable[[Operator], Any]) -> Quantity | None:
        """What `count` gives for each operator that is one `of` these, over all occurrences; None for none."""
        found = [op for op in self.operators if of(op.operator)]
        if not found:
            return None
        symbolic = sum(op.times * count(op.symbolic) for op in found)
        return Quantity(name, symbolic, sum(op.operator.count * count(op.operator) for op in found), "FLOP")


class Tool(NamedTuple):
    """A tool: the version that the rules are of, what its figure is, and the terms that lead to it."""

    version: str
    figure: str
    terms: Callable[[Seen], Iterable[Quantity | None]]
    checked: tuple[str, ...]


class Reconciliation(NamedTuple):
    """Our figure, the terms, and the tool's figure, which is their sum."""

    tool: str
    explanation: Explanation
    ours: Quantity
    terms: tuple[Quantity, ...]
    theirs: Quantity
    notes: tuple[str, ...]


def reconcile(arch: Architecture, tool: str, **options: Any) -> Reconciliation:
    """A tool's figure for a forward pass of the model, out of ours. `attention`: as the tool runs the model.

    Raises WorkloadError for an unknown tool, or a model that the rules do not cover.
    """
    if tool not in TOOLS:
        raise WorkloadError(f"--reconcile: unknown tool {tool!r}{choices(tool, TOOLS)}")
    sees = isinstance(arch.body, Network)
    if not sees and any(isinstance(part, DeltaRule) for part in arch.stack.parts):
        raise WorkloadError(f"--reconcile {tool}: {arch.name} is not covered; decoders without linear attention are")
    if arch.encoder or (sees and tool not in OF_NETWORKS):
        others = f"; {', '.join(OF_NETWORKS)} is, for networks of convolutions" if sees else ""
        raise WorkloadError(
            f"--reconcile {tool}: {arch.name} is not covered; decoders and encoders of one stack are{others}"
        )
    used = {name: options[name] for name in ("batch", "seq", "image") if name in options}
    all_of_it = {} if sees else {"attention": "eager", "logits": "all"}
    found = explain(arch, None, phase="forward", **all_of_it, **used)
    fused = not sees and options.get("attention", "flash") == "flash" and arch.model_type not in UNFUSED
    seen = Seen(arch, found.sections[0].operators, fused)
    ours = next(total for total in found.sections[0].totals if total.name == "matmul FLOPs")
    if not sees:
        ours = ours._replace(name=f"{ours.name}, all pairs, all logits")
    known = TOOLS[tool]
    terms = tuple(term for term in known.terms(seen) if term is not None)
    parts = (ours, *terms)
    theirs = Quantity(tool, sum(t.symbolic for t in parts), sum(t.value for t in parts), "FLOP")
    return Reconciliation(tool, found, ours, terms, theirs, (*_notes(arch, tool, known, fused, options), *found.notes))


def _notes(arch: Architecture, tool: str, known: Tool, fused: bool, options: dict[str, Any]) -> Iterator[str]:
    idle = given(options, used=("batch", "seq", "image", "attention", "dtype"))
    yield from (f"--{name} is ignored: {tool} counts a forward pass" for name in idle)
    if tool != "llm-flops" and not isinstance(arch.body, Network):
        how = "one fused call (SDPA), as classes run by default" if fused else "eager"
        yield f"{tool} {known.version} on a model whose attention is {how}; --attention says which"
    if arch.model_type not in known.checked:
        yield (
            f"the rules of {tool} were held against it on {', '.join(known.checked)}; for {arch.model_type} they are "
            "assumed to hold"
        )


# --- What operators are -----------------------------------------------------------------------------

UNFUSED = (  # classes without fused attention, `_supports_sdpa` in transformers 5.23
    *("gptj", "codegen", "gpt_neo", "bloom", "mpt", "xglm", "gemma2", "openai-gpt", "vaultgemma", "gpt_oss"),
    *("mimo_v2_flash", "megatron-bert", "mpnet", "roformer", "deberta-v2", "mamba", "falcon_mamba", "mamba2"),
)
BADDBMM = ("bloom",)  # classes that multiply queries by keys so
CONV1D = ("gpt2",)  # classes whose matrices are of the module Conv1D: torch.addmm, which adds the bias itself
POOLED = ("resnet",)  # classes that take the mean over maps of pixels by torch.nn.AdaptiveAvgPool2d
OF_NETWORKS = ("fvcore",)  # tools whose rules are known for networks of convolutions
CALLED = ("relu", "relu2", "leaky_relu", "silu", "swish")  # activations that call torch.nn.functional as they run


def elements(operator: Operator) -> Number:
    """Of what it reads first."""
    return operator.reads[0].elements(operator.sizes)


def _core(op: Operator) -> bool:
    return op.kind == "bmm" and op.group.endswith("attention")


def _matmul(op: Operator) -> Number:
    return op.matmul_flops


def _activates(op: Operator) -> bool:
    return op.kind == "elementwise" and op.name.startswith("mlp.") and op.name.endswith("activation")


def _layer_norms(seen: Seen) -> Quantity | None:
    """5 an element, or 4 without gain and bias."""
    if not isinstance(seen.arch.body, Network) and seen.arch.stack.norm.kind != "layernorm":
        return None
    return seen.sum(
        "layer norms: 5 an element, 4 without gain and bias",
        lambda op: elements(op) * (5 if op.parameters else 4),
        lambda op: op.kind == "norm" and not _by_statistics(op) and not op.name.endswith("_response"),
    )


def _by_statistics(op: Operator) -> bool:
    """Whether it is a batch norm, which takes mean and variance from what it kept."""
    return any(tensor.name == "variance" for tensor in op.reads)


def _minus(quantity: Quantity | None, share: int = 1) -> Quantity | None:
    """Taken away, or a share of it."""
    if quantity is None:
        return None
    return quantity._replace(symbolic=-quantity.symbolic / share, value=-quantity.value // share)


# --- The tools --------------------------------------------------------------------------------------


def fvcore(seen: Seen) -> Iterator[Quantity | None]:
    """Multiply-adds, norms, and means over maps of pixels; nothing of fused attention, nor of baddbmm."""
    yield _minus(seen.sum("a multiply-add counts once: half of ours", _matmul, lambda op: bool(op.matmul_flops)), 2)
    if seen.fused:
        yield _minus(seen.sum("attention in a fused call, which it does not see", _matmul, _core), 2)
    elif seen.arch.model_type in BADDBMM:
        scores = seen.sum(
            "scores by torch.baddbmm, which it does not see", _matmul, lambda op: op.name.endswith("scores")
        )
        yield _minus(scores, 2)
    yield _layer_norms(seen)
    yield seen.sum("batch norms: 2 an element", lambda op: 2 * elements(op), _by_statistics)
    if seen.arch.model_type in POOLED:
        yield seen.sum("the mean over each map: 1 an element", elements, lambda op: op.name == "head.pool")


def deepspeed(seen: Seen) -> Iterator[Quantity | None]:
    """2 a multiply-add, and 1 for what is called by torch.nn.functional; of Tensor.baddbmm nothing."""
    if seen.arch.model_type in BADDBMM:
        scores = seen.sum(
            "scores by Tensor.baddbmm, which it does not see", _matmul, lambda op: op.name.endswith("scores")
        )
        yield _minus(scores)
    yield from _functionals(seen)


def calflops(seen: Seen) -> Iterator[Quantity | None]:
    """As DeepSpeed, whose code it grew from; it sees neither fused attention nor torch.bmm."""
    if seen.fused:
        yield _minus(seen.sum("attention in a fused call, which it does not see", _matmul, _core))
    elif seen.arch.model_type in BADDBMM:
        yield _minus(seen.sum("attention by baddbmm and bmm, which it does not see", _matmul, _core))
    yield from _functionals(seen)


def _functionals(seen: Seen) -> Iterator[Quantity | None]:
    """What both patch beside matrix products."""
    yield _layer_norms(seen)
    if not seen.fused:
        yield seen.sum("softmax: 1 an element", elements, lambda op: op.kind == "softmax")
    yield seen.sum("softmax of the router: 1 an element", elements, lambda op: op.kind == "routing")
    if seen.arch.facts["activation"].value in CALLED:

        def width(op: Operator) -> Number:
            return op.writes[0].elements(op.sizes)

        yield seen.sum("activations: 1 an element", width, _activates)
    yield seen.sum("bias of the convolution: 1 an element", lambda op: op.vector_flops, lambda op: op.kind == "conv")
    if seen.arch.model_type in CONV1D:

        def bias(op: Operator) -> Number:
            return op.lines[0].terms[0].elements(op.sizes)

        yield seen.sum(
            "bias of addmm: 1 an element of the bias", bias, lambda op: op.kind == "gemm" and bool(op.lines[0].terms)
        )


def llm_flops(seen: Seen) -> Iterator[Quantity | None]:
    """A formula of its own by the config: no head for encoders, and constants for vector work."""
    if not seen.arch.causal:
        yield _minus(seen.sum("no head for encoders", _matmul, lambda op: op.group == "head"))
    yield seen.sum("softmax: 5 a score", lambda op: 5 * elements(op), lambda op: op.kind == "softmax")
    yield seen.sum(
        "rotary embedding: 6 an element of queries and keys",
        lambda op: 6 * sum(tensor.elements(op.sizes) for tensor in op.writes),
        lambda op: op.name.endswith("rotary"),
    )
    gated = seen.arch.facts["gated"].value
    each = 8 if gated else 2
    yield seen.sum(f"activations: {each} an element", lambda op: each * op.writes[0].elements(op.sizes), _activates)
    norm = {"layernorm": 6, "rmsnorm": 4}[seen.arch.stack.norm.kind]
    yield seen.sum(f"norms: {norm} an element", lambda op: norm * elements(op), lambda op: op.group == "norm")
    yield seen.sum("learned positions: 1 an element", elements, lambda op: op.name == "embedding.add_position")


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
