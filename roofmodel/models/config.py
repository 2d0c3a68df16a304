"""A Hugging Face config, read through its family's row into an Architecture."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from roofmodel.errors import ModelError, choices, shorten
from roofmodel.models.architecture import MLP, Architecture, Attention, Embedding, Fact, Head, Layer, Norm
from roofmodel.models.families import ACTIVATIONS, CORE, FAMILIES, FIELDS, REQUIRED, Family, Key

Config = Mapping[str, Any]
Fields = Mapping[str, Any]

_MISSING = object()


def architecture(config: Config, name: str, where: str) -> Architecture:
    """Read a config (a parsed `config.json`) into an Architecture.

    `name` is the model's name for print, `where` names the config in messages. Raises ModelError
    for an unknown `model_type`, a missing core size, or a value that cannot be.
    """
    model_type, family = _family(config, where)
    facts: dict[str, Fact] = {}
    fields: dict[str, Any] = {}
    for field in FIELDS:
        facts[field] = _fact(field, family, config, fields, where)
        fields[field] = facts[field].value
    _check(fields, facts, where)
    head, head_notes = _head(family, fields, config, model_type, where)
    return Architecture(
        name=name,
        model_type=model_type,
        causal=not family.encoder,
        hidden=fields["hidden"],
        embedding=Embedding(
            vocabulary=fields["vocabulary"],
            width=fields["embedding_width"],
            position_rows=fields["positions"] + fields["position_extra"] if fields["position_table"] else 0,
            type_rows=fields["types"],
            norm=fields["embedding_norm"],
        ),
        layers=_layers(fields),
        final_norm=fields["pre_norm"] and not fields["final_norm_removed"],
        head=head,
        tied=fields["tied"],
        max_tokens=_max_tokens(fields),
        facts=facts,
        notes=_assumptions(facts, head, family, config, where) + head_notes + _quantisation(config, where),
    )


def _family(config: Config, where: str) -> tuple[str, Family]:
    model_type = config.get("model_type")
    if not isinstance(model_type, str):
        what = f"'model_type' is {shorten(model_type)}; it must be" if "model_type" in config else "lacks 'model_type',"
        raise ModelError(f"{where}: {what} a name such as 'gpt2' or 'llama'")
    family = FAMILIES.get(model_type)
    if family is None:
        # A near miss such as qwen3 for qwen2 is another model, not a slip: only slips are offered a cure.
        known = choices(model_type, sorted(FAMILIES), cutoff=0.85)
        raise ModelError(f"{where}: unknown model_type {shorten(model_type)}, or one that is not counted yet{known}")
    for switch in family.refuses:
        if config.get(switch):
            raise ModelError(f"{where}: {switch!r} is true, and that work is not counted for {model_type}")
    return model_type, family


# --- One field --------------------------------------------------------------------------------------


def _fact(field: str, family: Family, config: Config, fields: Fields, where: str) -> Fact:
    """A field's value: from the config, else the class's default, else built into the family."""
    kind, usual = FIELDS[field]
    source = family.fields.get(field, usual)
    if not isinstance(source, Key):
        return Fact(source(fields) if callable(source) else source, None)

    found = {name: value for name in source.names if (value := _look_up(config, name)) is not _MISSING}
    for name, value in found.items():
        if not (kind.accepts(value) or (value is None and (source.takes_null or len(found) > 1))):
            raise ModelError(f"{where}: {name!r} is {shorten(value)}; it must be {kind.wanted}")
    given = {name: value for name, value in found.items() if value is not None}
    if field == "labels":
        given = {name: len(v) if isinstance(v, dict) else v for name, v in given.items()}
    if given:
        name, value = next(iter(given.items()))
        if any(other != value for other in given.values()):
            both = " but ".join(f"{name!r} is {value!r}" for name, value in given.items())
            raise ModelError(f"{where}: {both}; they are two names of one thing, keep one")
        return Fact(value, name)
    default = source.null if found and source.null is not REQUIRED else source.default
    if default is REQUIRED:
        names = " or ".join(map(repr, source.names))
        raise ModelError(f"{where}: lacks {names}, the {CORE[field]}; it must be {kind.wanted}")
    value = default(fields) if callable(default) else default
    return Fact(value, next(iter(found), source.names[0]), assumed=True)


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

    if (facts["head_dim"].key is None or facts["head_dim"].assumed) and fields["hidden"] % fields["heads"]:
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
    types = fields["window_types"]
    if types is not None and len(types) != fields["layers"]:
        raise ModelError(
            f"{where}: 'layer_types' has {len(types)} entries, but {named('layers')}; it wants one a layer"
        )


def _layers(fields: Fields) -> tuple[Layer, ...]:
    """One Layer a layer; layers that are alike share one object."""
    attention = Attention(
        heads=fields["heads"],
        kv_heads=fields["kv_heads"],
        head_dim=fields["head_dim"],
        fused=fields["fused_qkv"],
        qkv_bias=fields["qkv_bias"],
        out_bias=fields["out_bias"],
        rotary_dim=int(fields["head_dim"] * fields["rotary"]),
        alibi=fields["alibi"],
    )
    full = Layer(
        attention=attention,
        mlp=MLP(
            width=fields["mlp_width"],
            activation=ACTIVATIONS[fields["activation"]],
            gated=fields["gated"],
            bias=fields["mlp_bias"],
        ),
        norm=Norm(
            kind=fields["norm"],
            gain=fields["norm_affine"],
            bias=fields["norm_affine"] and fields["norm"] == "layernorm",
        ),
        post_norm=not fields["pre_norm"],
        parallel=fields["parallel"],
    )
    sliding = full._replace(attention=attention._replace(window=fields["window"]))
    return tuple(sliding if _slides(i, fields) else full for i in range(fields["layers"]))


def _slides(layer: int, fields: Fields) -> bool:
    if fields["window"] is None or not fields["window_used"]:
        return False
    if fields["window_types"] is not None:
        return bool(fields["window_types"][layer] == "sliding_attention")
    return bool(layer >= fields["window_from"])


def _max_tokens(fields: Fields) -> int | None:
    positions: int | None = fields["positions"]
    pad: int | None = fields["position_pad"]
    return positions if positions is None or pad is None else max(positions - pad - 1, 0)


def _head(family: Family, fields: Fields, config: Config, model_type: str, where: str) -> tuple[Head, tuple[str, ...]]:
    """The head that `architectures` names, or the family's usual one, said in a note."""
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
            classes=fields["labels"] if stage.classes is None else stage.classes,
        )
        for stage in family.classes[classes[name]]
    )
    return Head(name, stages), notes


def _activation(name: str | None, fields: Fields) -> str | None:
    """A stage's activation; an empty name means the one of the layers."""
    return ACTIVATIONS[fields["activation"] if name == "" else name] if name is not None else None


# --- Notes ------------------------------------------------------------------------------------------


def _assumptions(facts: Mapping[str, Fact], head: Head, family: Family, config: Config, where: str) -> tuple[str, ...]:
    """The defaults of keys that the config lacks (null is the config's own word for the default)."""
    idle = set() if any(stage.out == "classes" for stage in head.stages) else {"labels"}
    assumed = {
        fact.key: fact.value
        for field, fact in facts.items()
        if fact.assumed and field not in idle and _look_up(config, str(fact.key)) is _MISSING
    }
    if not assumed:
        return ()
    values = ", ".join(f"{key} = {json.dumps(value)}" for key, value in assumed.items())
    return (f"{where}: not in the config, so {family.prefix}Config's defaults hold: {values}",)


def _quantisation(config: Config, where: str) -> tuple[str, ...]:
    settings = config.get("quantization_config")
    if not isinstance(settings, dict):
        return ()
    method = shorten(settings.get("quant_method", "unnamed"))
    return (f"{where}: has a quantization_config ({method}); widths follow --dtype, --weights and --kv, not it",)
