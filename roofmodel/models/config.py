"""A Hugging Face config, read through its family's row into an Architecture."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from roofmodel.errors import ModelError, choices, shorten, suggest
from roofmodel.models.architecture import Architecture, Dense, Fact, Head, Plan, Stack
from roofmodel.models.convolutional import Network
from roofmodel.models.families import FAMILIES, family_of
from roofmodel.models.families.custom_code import CUSTOM_CODE
from roofmodel.models.families.unsupported import REFUSED
from roofmodel.models.family import Family
from roofmodel.models.family_matching import as_family, offer
from roofmodel.models.field_checks import Where, check, check_stages
from roofmodel.models.fields import CORE, LABELS, REQUIRED, Fields, Key, Kind
from roofmodel.models.layers import MoE
from roofmodel.models.multimodal_config import text_head, text_part
from roofmodel.models.norms_and_activations import ACTIVATIONS
from roofmodel.models.stack_builder import max_tokens, stack

Config = Mapping[str, Any]

_MISSING = object()
# Files that lie beside a model's config.json or have its name, by a key that they alone have.
OTHER_FILES = {
    "peft_type": "the config of an adapter; give that of the model that it adapts (its 'base_model_name_or_path')",
    "_diffusers_version": "a config of diffusers, whose models are not counted; transformers' config.json is read",
    "word_embedding_dimension": "the config of a pooling layer; give the config.json of the model, in the folder above",
    "n_layers": "a config without 'model_type', in its maker's own layout; give the one for transformers",
}


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
    arch = _read(text.config, name, text.where, text.notes)
    return replace(arch, head=text_head(arch, text, where), tied=text.tied)


def _read(config: Config, name: str, where: str, said: tuple[str, ...] = ()) -> Architecture:
    model_type, family = _family(config, where)
    return by_row(config, name, Where(where), model_type, family, said)


def by_row(
    config: Config, name: str, where: Where, model_type: str, family: Family, said: tuple[str, ...] = ()
) -> Architecture:
    """Read a config through a row, of `families` or of one's own. Raises ModelError."""
    fields, plan = _fields(family, family.fields, config, where)
    facts = dict(plan.facts)
    suffix, head, head_notes = _head(family, fields, config, model_type, where)
    body, limit = plan.lay_out(fields), None if family.network else max_tokens(fields)
    encoder = source_limit = source_plan = None
    if family.source:
        source, source_plan = _fields(family, {**family.fields, **family.source}, config, where, source=True)
        encoder, source_limit = stack(source, causal=False), max_tokens(source)
        facts |= {f"encoder_{field}": source_plan.facts[field] for field in family.source}
        if suffix in family.source_classes:
            body, limit, plan = encoder, source_limit, source_plan
            encoder = source_limit = source_plan = None
    return Architecture(
        name=name,
        model_type=model_type,
        body=body,
        head=head,
        tied=fields.get("tied", False),
        max_tokens=limit,
        facts=facts,
        notes=said + _assumptions(facts, body, head, family, config, where) + head_notes + _quantisation(config, where),
        encoder=encoder,
        max_source=source_limit,
        plan=plan,
        encoder_plan=source_plan,
    )


def _fields(
    family: Family, sources: Mapping[str, Any], config: Config, where: Where, source: bool = False
) -> tuple[dict[str, Any], Plan]:
    """The fields of a stack, or that of the source, or of a network; with the facts that they came from.

    The default of a switch that nothing asks for is no fact; what the config says of one is read all the same.
    """
    reading = _Reading(family, sources, config, where)
    asked = {field: reading[field] for field in family.schema}
    idle = set() if family.network else family.switches.keys() - reading.facts.keys()  # its layout asks for them
    fields = {switch: reading[switch] for switch in family.switches} | asked
    facts = {name: reading.facts[name] for name in fields if name not in idle or not reading.facts[name].assumed}
    (check_stages if family.network else check)(fields, facts, where)
    lay_out = family.network or partial(
        stack, causal=not (family.encoder or source), crosses=bool(family.source) and not source
    )
    rules = {name: rule for name in facts if (rule := _rule(reading.sources[name][1], facts[name]))}
    return fields, Plan(facts, rules, lay_out)


def _rule(source: Any, fact: Fact) -> Callable[[Fields], Any] | None:
    """The function of other fields that gave a fact, if one did."""
    if isinstance(source, Key):
        source = source.default if fact.assumed else None
    return source if callable(source) else None


def _family(config: Config, where: str) -> tuple[str, Family]:
    model_type = config.get("model_type")
    if not isinstance(model_type, str):
        other = next((what for key, what in OTHER_FILES.items() if key in config), "")
        if other and "model_type" not in config:
            raise ModelError(f"{where}: is {other}")
        what = f"'model_type' is {shorten(model_type)}; it must be" if "model_type" in config else "lacks 'model_type',"
        raise ModelError(f"{where}: {what} a name such as 'gpt2' or 'llama'")
    family = family_of(model_type)
    if model_type in REFUSED:
        raise ModelError(f"{where}: model_type {model_type!r} is not counted: it has {REFUSED[model_type]}")
    if family is None:
        # A near miss such as qwen3 for qwen2 is another model, not a slip: only slips are offered a cure.
        alike = [name for name in FAMILIES if _digits(name) == _digits(model_type)]
        near = suggest(model_type, alike, cutoff=0.8) or offer(config)
        raise ModelError(
            f"{where}: unknown model_type {shorten(model_type)}, or one that is not counted yet{near or ';'} "
            f"`roof models families` lists the {len(FAMILIES) + len(CUSTOM_CODE)} that are"
        )
    for switch in family.refuses:
        if config.get(switch):
            value = "true" if config[switch] is True else shorten(config[switch])
            raise ModelError(f"{where}: {switch!r} is {value}, and that work is not counted for {model_type}")
    return model_type, family


def _digits(name: str) -> str:
    return "".join(filter(str.isdigit, name))


# --- One field --------------------------------------------------------------------------------------


class _Reading(Mapping[str, Any]):
    """The fields of a config by name, each read when it is asked for: a default may depend on any other field."""

    def __init__(self, family: Family, sources: Mapping[str, Any], config: Config, where: Where) -> None:
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


def _fact(field: str, kind: Kind, source: Any, config: Config, fields: Fields, where: Where) -> Fact:
    """A field's value: from the config, else the class's default, else built into the family."""
    if not isinstance(source, Key):
        return Fact(_derived(source, fields, where, field) if callable(source) else source, None)

    found = {name: value for name in source.names if (value := _look_up(config, name)) is not _MISSING}
    given = {}
    for name, value in found.items():
        if value is None and (source.takes_null or len(found) > 1):
            continue
        given[name] = _checked(value, source, kind, f"{where.at(name)}: {name!r}")
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
        raise ModelError(f"{where.at(source.names[0])}: lacks {names}, the {size}; it must be {kind.wanted}")
    value = _derived(default, fields, where, source.names[0]) if callable(default) else default
    if source.read and value is not None:
        value = source.read(value)
    return Fact(value, next(iter(found), source.names[0]), assumed=True)


def _derived(rule: Callable[[Fields], Any], fields: Fields, where: Where, what: str) -> Any:
    """What a rule makes of other fields. Raises ModelError where they do not go together."""
    try:
        return rule(fields)
    except ValueError as error:
        raise ModelError(f"{where}: {what}: {error}") from None


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


# --- The head ---------------------------------------------------------------------------------------


def _head(
    family: Family, fields: Fields, config: Config, model_type: str, where: Where
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


def _assumptions(
    facts: Mapping[str, Fact], body: Stack | Network, head: Head, family: Family, config: Config, where: Where
) -> tuple[str, ...]:
    """The defaults of keys that the config lacks (null is the config's own word for the default).

    A default with an entry for every layer follows from the others, and would fill the screen.
    """
    idle = {"dropout", "attention_dropout"}  # of use to the expectation of a training step alone
    if not any(stage.out == "classes" for stage in head.stages):
        idle.add("labels")
    if isinstance(body, Stack) and not any(isinstance(part, MoE) for part in body.parts):
        idle |= {"experts_active", "expert_width", "shared_width"} | ({"experts"} if facts["experts"].value else set())
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


def _quantisation(config: Config, where: Where) -> tuple[str, ...]:
    settings = config.get("quantization_config")
    if not isinstance(settings, dict):
        return ()
    method = shorten(settings.get("quant_method", "unnamed"))
    option = _weights(settings)
    cure = f"; --weights {option} has them so" if option else ""
    return (f"{where}: has a quantization_config ({method}); widths follow --dtype, --weights and --kv, not it{cure}",)


def _weights(settings: Config) -> str:
    """The format of --weights that a quantization_config asks for; nothing where none is quite that."""
    method, bits = settings.get("quant_method"), settings.get("bits")
    if method in ("gptq", "awq", "auto-round"):
        return "int4" if bits == 4 and settings.get("group_size") == 128 else ""
    if method == "bitsandbytes":
        nf4 = settings.get("load_in_4bit") is True and settings.get("bnb_4bit_quant_type") == "nf4"
        plain = nf4 and not settings.get("bnb_4bit_use_double_quant")
        return "nf4" if plain else "int8" if settings.get("load_in_8bit") is True else ""
    if method == "fp8" and "quant_algo" not in settings:
        return "fp8_block" if settings.get("weight_block_size") == [128, 128] else "fp8"
    return "mxfp4" if method == "mxfp4" else ""
