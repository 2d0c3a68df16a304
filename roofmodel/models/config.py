"""A Hugging Face config, read through its family's row into an Architecture."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from roofmodel.errors import ModelError, choices, shorten, suggest
from roofmodel.models.architecture import (
    MLP,
    Architecture,
    Attention,
    Branch,
    CrossAttention,
    Dense,
    Disentangled,
    Embedding,
    Fact,
    Filter,
    Head,
    HeadNorm,
    Indexer,
    LatentAttention,
    Layer,
    Mamba,
    Mamba2,
    MoE,
    Network,
    Norm,
    Part,
    Patches,
    Projection,
    Stack,
    Sublayer,
    TokenConvolution,
)
from roofmodel.models.doors import as_family, offer, text_head, text_part
from roofmodel.models.families import FAMILIES
from roofmodel.models.families.composites import ALIASES
from roofmodel.models.family import Family
from roofmodel.models.fields import ACTIVATIONS, CORE, LABELS, REQUIRED, SLIDING, Key, Kind

Config = Mapping[str, Any]
Fields = Mapping[str, Any]

_MISSING = object()


def architecture(config: Config, name: str, where: str, family: str | None = None) -> Architecture:
    """Read a config (a parsed `config.json`) into an Architecture.

    `name` is the model's name for print, `where` names the config in messages. `family` reads it as if that were
    its `model_type`. Raises ModelError for an unknown `model_type`, a missing core size, or a value that cannot be.
    """
    if family is not None:
        config, said = as_family(config, family, where)
        return _read(config, name, where, said)
    text = text_part(config, where)
    if text is None:
        return _read(config, name, where)
    arch = _read(text.config, name, where, text.notes)
    return replace(arch, head=text_head(arch, text, where), tied=text.tied)


def _read(config: Config, name: str, where: str, said: tuple[str, ...] = ()) -> Architecture:
    model_type, family = _family(config, where)
    fields, facts = _fields(family, family.fields, config, where)
    suffix, head, head_notes = _head(family, fields, config, model_type, where)
    body: Stack | Network
    limit = encoder = source_limit = None
    if family.network:
        body = family.network(fields)
    else:
        body, limit = _stack(fields, causal=not family.encoder, crosses=bool(family.source)), _max_tokens(fields)
    if family.source:
        source, source_facts = _fields(family, {**family.fields, **family.source}, config, where)
        encoder, source_limit = _stack(source, causal=False), _max_tokens(source)
        facts |= {f"encoder_{field}": source_facts[field] for field in family.source}
        if suffix in family.source_classes:
            body, limit, encoder, source_limit = encoder, source_limit, None, None
    return Architecture(
        name=name,
        model_type=model_type,
        body=body,
        head=head,
        tied=fields.get("tied", False),
        max_tokens=limit,
        facts=facts,
        notes=said + _assumptions(facts, head, family, config, where) + head_notes + _quantisation(config, where),
        encoder=encoder,
        max_source=source_limit,
    )


def _fields(
    family: Family, sources: Mapping[str, Any], config: Config, where: str
) -> tuple[dict[str, Any], dict[str, Fact]]:
    """The fields of a stack or network, each with the fact that it came from."""
    reading = _Reading(family, sources, config, where)
    fields = dict(reading)
    facts = {name: reading.facts[name] for name in fields}
    check = _check_stages if family.network else _check
    check(fields, facts, where)
    return fields, facts


def _family(config: Config, where: str) -> tuple[str, Family]:
    model_type = config.get("model_type")
    if not isinstance(model_type, str):
        what = f"'model_type' is {shorten(model_type)}; it must be" if "model_type" in config else "lacks 'model_type',"
        raise ModelError(f"{where}: {what} a name such as 'gpt2' or 'llama'")
    family = FAMILIES.get(ALIASES.get(model_type, model_type))
    if family is None:
        # A near miss such as qwen3 for qwen2 is another model, not a slip: only slips are offered a cure.
        alike = [name for name in FAMILIES if _digits(name) == _digits(model_type)]
        near = suggest(model_type, alike, cutoff=0.85) or offer(config)
        raise ModelError(
            f"{where}: unknown model_type {shorten(model_type)}, or one that is not counted yet{near or ';'} "
            f"`roof models families` lists the {len(FAMILIES)} that are"
        )
    for switch in family.refuses:
        if config.get(switch):
            raise ModelError(f"{where}: {switch!r} is true, and that work is not counted for {model_type}")
    return model_type, family


def _digits(name: str) -> str:
    return "".join(filter(str.isdigit, name))


# --- One field --------------------------------------------------------------------------------------


class _Reading(Mapping[str, Any]):
    """The fields of a config by name, each read when it is asked for: a default may depend on any other field."""

    def __init__(self, family: Family, sources: Mapping[str, Any], config: Config, where: str) -> None:
        self.config, self.where = config, where
        self.sources: dict[str, tuple[Kind, Any]] = dict(family.switches)
        self.sources |= {field: (kind, sources.get(field, usual)) for field, (kind, usual) in family.schema.items()}
        self.facts: dict[str, Fact] = {}

    def __getitem__(self, field: str) -> Any:
        if field not in self.facts:
            kind, source = self.sources[field]
            self.facts[field] = _fact(field, kind, source, self.config, self, self.where)
        return self.facts[field].value

    def __iter__(self) -> Iterator[str]:
        return iter(self.sources)

    def __len__(self) -> int:
        return len(self.sources)


def _fact(field: str, kind: Kind, source: Any, config: Config, fields: Fields, where: str) -> Fact:
    """A field's value: from the config, else the class's default, else built into the family."""
    if not isinstance(source, Key):
        return Fact(source(fields) if callable(source) else source, None)

    found = {name: value for name in source.names if (value := _look_up(config, name)) is not _MISSING}
    given = {}
    for name, value in found.items():
        if value is None and (source.takes_null or len(found) > 1):
            continue
        given[name] = _checked(value, source, kind, f"{where}: {name!r}")
    if given:
        name, value = next(iter(given.items()))
        if any(other != value for other in given.values()):
            both = " but ".join(f"{name!r} is {value!r}" for name, value in given.items())
            raise ModelError(f"{where}: {both}; they are two names of one thing, keep one")
        return Fact(value, name)
    null = (found or source.default is None) and source.null is not REQUIRED
    default = source.null if null else source.default
    if default is REQUIRED:
        names = " or ".join(map(repr, source.names))
        size = CORE.get(field, field.replace("_", " "))
        raise ModelError(f"{where}: lacks {names}, the {size}; it must be {kind.wanted}")
    value = default(fields) if callable(default) else default
    if source.read and value is not None:
        value = source.read(value)
    return Fact(value, next(iter(found), source.names[0]), assumed=True)


def _checked(value: Any, source: Key, kind: Kind, what: str) -> Any:
    """A value of the config in the field's own words. Raises ModelError for one that cannot be."""
    wanted, read = kind.wanted, value
    if source.read:
        try:
            read = source.read(value)
        except ValueError as error:
            read, wanted = None, str(error)
    if read is None or not kind.accepts(read):
        raise ModelError(f"{what} is {shorten(value)}; it must be {wanted}")
    return len(read) if kind is LABELS and isinstance(read, dict) else read


def _look_up(config: Config, name: str) -> Any:
    """The value at `a.b`, or _MISSING."""
    value: Any = config
    for part in name.split("."):
        if not isinstance(value, dict) or part not in value:
            return _MISSING
        value = value[part]
    return value


# --- What fields mean together ----------------------------------------------------------------------


def _check(fields: Fields, facts: Mapping[str, Fact], where: str) -> None:
    """Refuse sizes that no such model can have."""

    def named(field: str) -> str:
        return f"{facts[field].key or field} {fields[field]}"

    derived = fields["head_dim"] == fields["hidden"] // fields["heads"]
    if derived and (facts["head_dim"].key is None or facts["head_dim"].assumed) and fields["hidden"] % fields["heads"]:
        cure = ", or a head_dim" if facts["head_dim"].key else ""
        raise ModelError(
            f"{where}: {named('hidden')} is not divisible by {named('heads')}; "
            f"it wants a number of heads that divides it{cure}"
        )
    if fields["heads"] % fields["kv_heads"]:
        raise ModelError(
            f"{where}: {named('heads')} is not divisible by {named('kv_heads')}; "
            "each key-value head serves the same number of query heads"
        )
    if fields["groups"] > fields["layers"]:
        raise ModelError(
            f"{where}: {named('groups')} groups cannot share {named('layers')}; it wants a group a layer, or fewer"
        )
    if any("mamba2" in mixer for mixer in fields["mixers"]):
        if fields["inner_heads"] * fields["inner_head_dim"] != fields["inner_width"]:
            raise ModelError(
                f"{where}: {named('inner_heads')} times {named('inner_head_dim')} is not the "
                f"{fields['inner_width']} channels of the state space; heads share them out"
            )
        if fields["inner_heads"] % fields["inner_groups"]:
            raise ModelError(
                f"{where}: {named('inner_heads')} is not divisible by {named('inner_groups')}; "
                "each group serves the same number of heads"
            )
    for field in ("layer_types", "rotary_layers", "index_layers", "expert_layers"):
        value = fields[field]
        if value is not None and len(value) != fields["layers"]:
            raise ModelError(
                f"{where}: {facts[field].key!r} has {len(value)} entries, but {named('layers')}; it wants one a layer"
            )


def _check_stages(fields: Fields, facts: Mapping[str, Fact], where: str) -> None:
    """Refuse a network whose lists do not have an entry a stage."""
    counts = {facts[name].key: len(fields[name]) for name in ("widths", "depths")}
    if "stages" in fields:
        counts[facts["stages"].key] = fields["stages"]
    if len(set(counts.values())) > 1:
        told = ", ".join(f"{key!r} of {count}" for key, count in counts.items())
        raise ModelError(f"{where}: {told} stages; they must tell of as many")


def _stack(fields: Fields, *, causal: bool, crosses: bool = False) -> Stack:
    norm = _norm(fields)
    return Stack(
        hidden=fields["hidden"],
        causal=causal,
        embedding=_patches(fields) if fields["patch"] else _embedding(fields, norm),
        layers=tuple(
            _layer(i, fields, norm, crosses) for i in range(fields["layers"]) for _ in range(fields["group_layers"])
        ),
        norm=norm,
        final_norm=norm if fields["final_norm"] else None,
        unread=fields["unread"],
        shared=_shared(fields),
    )


def _embedding(fields: Fields, norm: Norm) -> Embedding:
    return Embedding(
        vocabulary=fields["vocabulary"],
        width=fields["embedding_width"],
        position_rows=fields["positions"] + fields["position_extra"] if fields["position_table"] else 0,
        fixed_positions=fields["position_fixed"],
        type_rows=fields["types"],
        task_rows=fields["tasks"],
        norm=norm if fields["embedding_norm"] else None,
        projection=_projection(fields) if fields["embedding_projected"] else None,
        relative_rows=0 if fields["relative_each"] else fields["relative_rows"],
        relative_norm=norm if fields["relative_rows"] and fields["relative_norm"] else None,
        filters=tuple(Filter(*sizes) for sizes in fields["frame_filters"]),
        padded=fields["padded"],
        shared=fields["shared_table"],
    )


def _projection(fields: Fields) -> Projection:
    return Projection(
        after=fields["embedding_projected_after"],
        bias=fields["embedding_projected_bias"],
        back=fields["embedding_projected_back"],
    )


def _shared(fields: Fields) -> tuple[int, ...] | None:
    """For each layer, which set of parameters it uses: ALBERT's rule, runs of equal length as far as it goes."""
    layers, groups, inner = fields["layers"], fields["groups"], fields["group_layers"]
    if groups == layers:
        return None
    return tuple(int(i / (layers / groups)) * inner + j for i in range(layers) for j in range(inner))


def _patches(fields: Fields) -> Patches:
    return Patches(
        image=fields["image"], patch=fields["patch"], channels=fields["channels"], special=fields["special_tokens"]
    )


def _norm(fields: Fields) -> Norm:
    return Norm(kind=fields["norm"], gain=fields["norm_affine"], bias=fields["norm_bias"])


def _layer(index: int, fields: Fields, norm: Norm, crosses: bool) -> Layer:
    """A layer's sublayers; layers that are alike compare equal. A decoder's layer `crosses` over to the source."""
    before, after = (norm if fields[place] else None for place in ("pre_norm", "out_norm"))
    closing = norm if fields["sum_norm"] else None
    first = before if index or fields["first_norm"] else None
    # Mixers side by side read one norm.
    mixers = tuple(
        Branch(MIXERS[name](index, fields), None if i else first, after)
        for i, name in enumerate(fields["mixers"][index].split("+"))
    )
    if not fields["mlp"]:
        return (Sublayer(mixers, closing),)
    has_experts = fields["experts"] and fields["expert_layers"][index]
    mlp = Branch(_moe(fields) if has_experts else _mlp(fields, fields["mlp_width"]), before, after)
    if not fields["parallel"]:
        cross = _crossing(index, fields, before, after, closing) if crosses else ()
        return Sublayer(mixers, closing), *cross, Sublayer((mlp,), closing), *_convolution(index, fields, norm)
    if fields["parallel_norms"] == 1:
        mlp = mlp._replace(before=None)
    return (Sublayer((*mixers, mlp), closing),)


def _crossing(index: int, fields: Fields, before: Norm | None, after: Norm | None, closing: Norm | None) -> Layer:
    part = CrossAttention(_attention(index, fields)._replace(relative_bias=False, relative_rows=0))
    return (Sublayer((Branch(part, before, after),), closing),)


def _convolution(index: int, fields: Fields, norm: Norm) -> Layer:
    if index or not fields["conv_kernel"]:
        return ()
    activation = ACTIVATIONS[fields["conv_activation"]]
    part = TokenConvolution(fields["conv_kernel"], fields["conv_groups"], activation)
    return (Sublayer((Branch(part, before=None),), after=norm),)


def _attention(index: int, fields: Fields) -> Attention:
    gains, norm, turned = fields["qk_norm_gains"], _norm(fields), fields["rotary_layers"]
    slides = fields["layer_types"][index] == SLIDING
    turns = turned is None or turned[index]
    head_norm = HeadNorm(
        norm._replace(gain=gains != "none", bias=fields["qk_norm_bias"] and gains != "none"),
        "each" if gains == "each" else "shared",
    )
    return Attention(
        heads=fields["heads"],
        kv_heads=fields["window_kv_heads" if slides else "kv_heads"],
        head_dim=fields["head_dim"],
        value_dim=fields["value_dim"] if fields["value_dim"] != fields["head_dim"] else None,
        fused=fields["fused_qkv"],
        qkv_bias=fields["qkv_bias"],
        bare_keys=fields["bare_keys"],
        out_bias=fields["out_bias"],
        rotary_dim=fields["rotary_dim"] if turns else 0,
        alibi=fields["alibi"],
        relative_bias=fields["relative_bias"],
        relative_rows=fields["relative_rows"] if fields["relative_each"] else 0,
        disentangled=_disentangled(fields) if fields["relative_rows"] and not fields["relative_bias"] else None,
        window=(fields["window"] or None) if slides else None,
        window_evicts=fields["window_evicts"],
        chunked=fields["chunked"],
        norm=head_norm if fields["qk_norm"] and (turns or not fields["qk_norm_turned_only"]) else None,
        sinks=fields["window_sinks" if slides else "sinks"],
    )


def _mamba(index: int, fields: Fields) -> Mamba:
    norm = _norm(fields)._replace(gain=fields["selection_norm_gain"])
    return Mamba(
        width=fields["inner_width"],
        state=fields["state"],
        rank=fields["step_rank"],
        kernel=fields["filter"],
        activation=ACTIVATIONS[fields["activation"]],
        kernel_bias=fields["filter_bias"],
        bias=fields["inner_bias"],
        out_bias=fields["inner_out_bias"],
        norm=norm if fields["selection_norm"] else None,
    )


def _mamba2(index: int, fields: Fields) -> Mamba2:
    return Mamba2(
        heads=fields["inner_heads"],
        head_dim=fields["inner_head_dim"],
        state=fields["state"],
        groups=fields["inner_groups"],
        kernel=fields["filter"],
        chunk=fields["chunk"],
        activation=ACTIVATIONS[fields["activation"]],
        kernel_bias=fields["filter_bias"],
        bias=fields["inner_bias"],
        out_bias=fields["inner_out_bias"],
        norm=fields["gate_norm"],
    )


def _latent_attention(index: int, fields: Fields) -> LatentAttention:
    indexes = fields["keeps"] and (fields["index_layers"] is None or fields["index_layers"][index])
    return LatentAttention(
        heads=fields["heads"],
        latent=fields["latent"],
        unturned=fields["unturned"],
        rotary_dim=fields["rotary_dim"],
        value_dim=fields["value_dim"],
        norm=_norm(fields),
        query_latent=fields["query_latent"],
        down_bias=fields["qkv_bias"],
        out_bias=fields["out_bias"],
        keeps=fields["keeps"],
        indexer=Indexer(fields["index_heads"], fields["index_head_dim"]) if indexes else None,
    )


def _attends(index: int, fields: Fields) -> Part:
    return _latent_attention(index, fields) if fields["latent"] else _attention(index, fields)


MIXERS: dict[str, Callable[[int, Fields], Part]] = {"attention": _attends, "mamba": _mamba, "mamba2": _mamba2}


def _disentangled(fields: Fields) -> Disentangled:
    terms = fields["disentangled"]
    return Disentangled(fields["relative_rows"], "c2p" in terms, "p2c" in terms, fields["disentangled_shared"])


def _mlp(fields: Fields, width: int, fused: str = "fused_gate", bias: str = "mlp_bias") -> MLP:
    return MLP(
        width=width,
        activation=ACTIVATIONS[fields["activation"]],
        gated=fields["gated"],
        fused=fields[fused],
        bias=fields[bias],
    )


def _moe(fields: Fields) -> MoE:
    return MoE(
        experts=fields["experts"],
        active=fields["experts_active"],
        expert=_mlp(fields, fields["expert_width"], "fused_experts", "expert_bias"),
        shared=_mlp(fields, fields["shared_width"]) if fields["shared_width"] else None,
        shared_gate=fields["shared_gate"],
        router_bias=fields["router_bias"],
        correction=fields["correction"],
    )


def _max_tokens(fields: Fields) -> int | None:
    positions: int | None = fields["positions"]
    pad: int | None = fields["position_pad"]
    return positions if positions is None or pad is None else max(positions - pad - 1, 0)


def _head(
    family: Family, fields: Fields, config: Config, model_type: str, where: str
) -> tuple[str, Head, tuple[str, ...]]:
    """The suffix and head that `architectures` names, or the family's usual one, said in a note."""
    classes = {f"{family.prefix}{suffix}": suffix for suffix in family.classes}
    named = config.get("architectures")
    if not named:
        name = next(iter(classes))
        notes: tuple[str, ...] = (f"{where}: no 'architectures'; took the usual head of {model_type}, {name}",)
    else:
        if not (isinstance(named, list) and all(isinstance(n, str) for n in named)):
            raise ModelError(f"{where}: 'architectures' is {shorten(named)}; it must be a list of class names")
        notes = ()
        # Some old checkpoints spell the prefix differently: LLaMAForCausalLM.
        name = next((known for known in classes if known.lower() == named[0].lower()), named[0])
        if name not in classes:
            raise ModelError(
                f"{where}: 'architectures' names {shorten(named[0])}, a head that is not counted for "
                f"{model_type}{choices(named[0], classes)}"
            )
    stages = tuple(
        stage._replace(
            tied=stage.tied and fields["tied"],
            spare_bias=stage.spare_bias and not fields["tied"],
            activation=_activation(stage.activation, fields),
            classes=_classes(stage, fields),
            bias=fields[stage.bias] if isinstance(stage.bias, str) else stage.bias,
        )
        for stage in family.classes[classes[name]]
    )
    return classes[name], Head(name, stages), notes


def _classes(stage: Dense, fields: Fields) -> int | None:
    """How many classes a stage tells apart, or how wide its pooler is."""
    found: int = fields["pooler_width" if stage.out == "pooler" else "labels"]
    return found if stage.classes is None else stage.classes


def _activation(name: str | None, fields: Fields) -> str | None:
    """A stage's activation: a function's name, or that of the field that has it."""
    return ACTIVATIONS[fields.get(name, name)] if name is not None else None


# --- Notes ------------------------------------------------------------------------------------------


def _assumptions(facts: Mapping[str, Fact], head: Head, family: Family, config: Config, where: str) -> tuple[str, ...]:
    """The defaults of keys that the config lacks (null is the config's own word for the default).

    A default with an entry for every layer follows from the others, and would fill the screen.
    """
    idle = set() if any(stage.out == "classes" for stage in head.stages) else {"labels"}
    assumed = {
        fact.key: fact.value
        for field, fact in facts.items()
        if fact.assumed
        and field not in idle
        and not isinstance(fact.value, list)
        and _look_up(config, str(fact.key)) is _MISSING
    }
    if not assumed:
        return ()
    values = ", ".join(f"{key} = {json.dumps(value)}" for key, value in assumed.items())
    return (f"{where}: not in the config, so {family.config_class}'s defaults hold: {values}",)


def _quantisation(config: Config, where: str) -> tuple[str, ...]:
    settings = config.get("quantization_config")
    if not isinstance(settings, dict):
        return ()
    method = shorten(settings.get("quant_method", "unnamed"))
    return (f"{where}: has a quantization_config ({method}); widths follow --dtype, --weights and --kv, not it",)
