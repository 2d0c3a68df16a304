"""An Architecture with symbols for its sizes, built by the same functions as the one with numbers.

A size from a config key becomes a symbol. A size that the family derives from others (`head_dim` as `hidden // heads`)
is the same expression of their symbols. A derivation therefore counts with the code of `roof estimate`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from roofmodel.errors import Text
from roofmodel.models.architecture import Architecture, BuildPlan, Fact, HeadStage, Network, Stack
from roofmodel.numbers import units
from roofmodel.numbers.algebra import Number

# field -> symbol. Other fields keep their values: switches, lists, pixels.
SYMBOLS: dict[str, str] = {
    "hidden": "D",
    "heads": "H",
    "kv_heads": "H_kv",
    "window_heads": "H_w",
    "window_kv_heads": "H_wkv",
    "head_dim": "D_h",
    "window_head_dim": "D_wh",
    "value_dim": "D_v",
    "window_value_dim": "D_wv",
    "rotary_dim": "R",
    "window_rotary_dim": "R_w",
    "window": "W",
    "latent": "D_c",
    "query_latent": "D_q",
    "nope_dim": "D_n",
    "window_latent": "D_wc",
    "window_query_latent": "D_wq",
    "window_nope_dim": "D_wn",
    "index_topk": "K",
    "index_blocks": "N_b",
    "index_block_size": "B_k",
    "index_heads": "H_I",
    "index_head_dim": "D_I",
    "mlp_width": "F",
    "kv_shared_mlp_width": "F_b",
    "experts": "E",
    "zero_experts": "E_0",
    "experts_active": "k",
    "expert_width": "F_e",
    "shared_width": "F_s",
    "vocabulary": "V",
    "embedding_width": "D_e",
    "per_layer_input": "D_l",
    "per_layer_vocabulary": "V_l",
    "positions": "P",
    "relative_rows": "N_rel",
    "inner_width": "D_i",
    "state": "N",
    "filter": "R_f",
    "step_rank": "R_dt",
    "inner_heads": "H_i",
    "inner_head_dim": "D_p",
    "inner_groups": "G",
    "chunk": "Q",
    "linear_heads": "H_l",
    "linear_value_heads": "H_lv",
    "linear_head_dim": "D_l",
    "linear_value_dim": "D_lv",
    "linear_gate_rank": "R_l",
    "conv_kernel": "R_c",
    "conv_groups": "G_c",
    "pooler_width": "D_pool",
    "labels": "N_cls",
}
WORDS = {
    "hidden": "hidden size",
    "kv_heads": "key-value heads",
    "window_kv_heads": "key-value heads of layers with a window",
    "heads": "query heads",
    "window_heads": "query heads of layers with a window",
    "head_dim": "head size",
    "window_head_dim": "head size of layers with a window",
    "value_dim": "head size of values",
    "rotary_dim": "elements of a head with rotary embedding",
    "window_value_dim": "head size of values in layers with a window",
    "window_rotary_dim": "elements of a head with rotary embedding in layers with a window",
    "window": "tokens in the attention window",
    "latent": "latent of keys and values",
    "query_latent": "latent of queries",
    "nope_dim": "elements of a head without rotary embedding (NoPE)",
    "window_latent": "latent of keys and values in layers with a window",
    "window_query_latent": "latent of queries in layers with a window",
    "window_nope_dim": "NoPE elements of a head in layers with a window",
    "index_topk": "tokens that the indexer selects",
    "index_blocks": "blocks of keys that the indexer selects",
    "index_block_size": "keys of a block",
    "index_heads": "heads of the indexer",
    "index_head_dim": "head size of the indexer",
    "mlp_width": "width of the MLP",
    "kv_shared_mlp_width": "width of the MLP in layers that reuse keys and values",
    "zero_experts": "experts without computation",
    "experts_active": "active experts per token",
    "expert_width": "width of an expert",
    "shared_width": "width of the shared expert",
    "vocabulary": "vocabulary",
    "embedding_width": "width of the token embedding",
    "per_layer_input": "width of the per-layer input",
    "per_layer_vocabulary": "rows of the per-layer embedding",
    "positions": "positions",
    "relative_rows": "relative positions",
    "inner_width": "channels of the state space",
    "state": "state size per channel",
    "filter": "kernel size of the causal convolution",
    "chunk": "tokens per chunk",
    "step_rank": "rank of the time step",
    "linear_heads": "heads of linear attention",
    "linear_value_heads": "heads of values of linear attention",
    "linear_head_dim": "head size of linear attention",
    "linear_value_dim": "head size of the values of linear attention",
    "linear_gate_rank": "rank of decay and gate of linear attention",
    "labels": "classes",
}


class SymbolSource(NamedTuple):
    """The meaning of a symbol: the size in words, its value, and the origin of that value."""

    meaning: str
    value: int
    origin: Text
    assumed: bool = False  # the config lacks it: the default of the config class


@dataclass(frozen=True)
class SymbolicArchitecture(Architecture):
    """An architecture with symbols. `sources` explains each symbol; `counts` has the symbol for a number of layers."""

    sources: Mapping[Any, SymbolSource] | None = None
    counts: Mapping[tuple[int, ...], Any] | None = None

    def times(self, layers: tuple[int, ...] | None) -> Number:
        """How often an operator of these layers occurs, as a symbol."""
        return 1 if layers is None else (self.counts or {}).get(layers, len(layers))


def symbol(name: str) -> Any:
    """A SymPy symbol for a size: a positive integer."""
    import sympy

    return sympy.Symbol(name, integer=True, positive=True)


def resolve_min_max(expression: Any, values: Mapping[Any, Any]) -> tuple[Any, dict[Any, Any]]:
    """The expression with each Min and Max replaced by its argument for these values, and those choices."""
    import sympy

    expression, chosen = sympy.sympify(expression), {}
    numbers = {name: sympy.sympify(value) for name, value in values.items()}
    for extremum in expression.atoms(sympy.Min, sympy.Max):
        choose = min if isinstance(extremum, sympy.Min) else max
        chosen[extremum] = choose(extremum.args, key=lambda argument: argument.xreplace(numbers))
    return expression.xreplace(chosen), chosen


def symbolic(arch: Architecture) -> SymbolicArchitecture:
    """The architecture with symbols for its sizes, built by the function that built it."""
    assert arch.plan is not None
    sources: dict[Any, SymbolSource] = {}
    counts: dict[tuple[int, ...], Any] = {}
    body = _laid_out(arch.plan, arch.body, "", sources, counts)
    encoder = None
    if arch.encoder and arch.encoder_plan:
        encoder = _laid_out(arch.encoder_plan, arch.encoder, "_enc", sources, counts)
        assert isinstance(encoder, Stack)
    fields = _Sizes(arch.plan, "", sources)
    head = arch.head._replace(stages=tuple(_stage(stage, fields) for stage in arch.head.stages))
    plain = {name: getattr(arch, name) for name in Architecture.__dataclass_fields__}
    return SymbolicArchitecture(
        **plain | {"body": body, "encoder": encoder, "head": head}, sources=sources, counts=counts
    )


def _stage(stage: HeadStage, fields: _Sizes) -> HeadStage:
    field = {"classes": "labels", "pooler": "pooler_width"}.get(stage.out)
    if field is None or field not in fields or fields.plan.facts[field].value != stage.classes:
        return stage
    return stage._replace(classes=fields[field])


def _laid_out(
    plan: BuildPlan,
    body: Stack | Network,
    mark: str,
    sources: dict[Any, SymbolSource],
    counts: dict[tuple[int, ...], Any],
) -> Stack | Network:
    """A body with symbols; layers that are equal in numbers share their symbols."""
    symbolic_body = plan.build(_Sizes(plan, mark, sources))
    if isinstance(symbolic_body, Network) or isinstance(body, Network):
        return symbolic_body
    layer_groups = [indices for _, indices in body.kinds]
    layers = list(symbolic_body.layers)
    fact, which = plan.facts["layers"], "layers of the encoder" if mark else "layers"
    for indices in layer_groups:
        if indices not in counts:
            name = f"L{mark}" if len(layer_groups) == 1 else f"L_{len(counts) + 1}"
            counts[indices] = symbol(name)
            meaning = which if len(layer_groups) == 1 else f"{which} {units.ranges(indices)}"
            sources[counts[indices]] = _source(meaning, len(indices), fact)
        for index in indices:
            layers[index] = symbolic_body.layers[indices[0]]
    return symbolic_body._replace(layers=tuple(layers))


def _source(meaning: str, value: int, fact: Fact) -> SymbolSource:
    return SymbolSource(meaning, value, fact.key or "the family's code", fact.assumed)


class _Sizes(Mapping[str, Any]):
    """The fields of a plan with symbols for sizes, each computed at its first use."""

    def __init__(self, plan: BuildPlan, mark: str, sources: dict[Any, SymbolSource]) -> None:
        self.plan, self.mark, self.sources = plan, mark, sources
        self.known: dict[str, Any] = {}

    def __getitem__(self, field: str) -> Any:
        if field not in self.known:
            self.known[field] = self._size(field)
        return self.known[field]

    def _size(self, field: str) -> Any:
        fact = self.plan.facts[field]
        value = fact.value
        if type(value) is not int or value == 0 or field not in SYMBOLS:
            return value
        derived = self._derived(field)
        if derived is not None:
            return derived
        size_symbol = symbol(SYMBOLS[field])
        if size_symbol in self.sources and self.sources[size_symbol].value != value:
            size_symbol = symbol(SYMBOLS[field] + self.mark)  # the encoder's size, if the decoder has another
        source = _source(WORDS.get(field, field.replace("_", " ")), value, fact)
        derived_from_others = fact.key is None and field in self.plan.rules
        self.sources[size_symbol] = source._replace(origin="a rule of the family") if derived_from_others else source
        return size_symbol

    def _derived(self, field: str) -> Any:
        """The field's rule applied to symbols; None if the rule needs numbers or is not exact."""
        import sympy

        rule = self.plan.rules.get(field)
        if rule is None:
            return None
        try:
            expression = sympy.sympify(rule(self))
        except TypeError:  # int(…) or a comparison: the rule needs numbers
            return None
        expression = expression.replace(sympy.floor, lambda inside: inside)
        exact = expression.subs({number: source.value for number, source in self.sources.items()})
        return expression if expression.free_symbols and exact == self.plan.facts[field].value else None

    def __iter__(self) -> Iterator[str]:
        return iter(self.plan.facts)

    def __len__(self) -> int:
        return len(self.plan.facts)
