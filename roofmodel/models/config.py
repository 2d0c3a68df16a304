"""Reads a Hugging Face config with the row of its family, and returns an Architecture."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from roofmodel.errors import LIST_FAMILIES, Message, ModelError, Text, choices, shorten, suggest
from roofmodel.files.text_files import printable
from roofmodel.models.architecture import (
    DROPOUT_FIELDS,
    Architecture,
    BuildPlan,
    Fact,
    Head,
    HeadStage,
    Network,
    Stack,
    VisionSource,
)
from roofmodel.models.families import CUSTOM_CODE, FAMILIES, Family, family_of
from roofmodel.models.fields import CORE, LABELS, REQUIRED, ConfigLocation, Fields, FieldType, Key, check, check_stages
from roofmodel.models.layers import ACTIVATIONS, MoE
from roofmodel.models.stack_builder import max_tokens, stack

if TYPE_CHECKING:
    from roofmodel.models.quantization import Quantization

Config = Mapping[str, Any]

DESCRIBED = "described in YAML"
"""The model type of an architecture without a config of transformers (`yaml_description.py`)."""
_MISSING = object()
# Other JSON files of a checkpoint folder, by a key that only they have.
NOT_A_MODEL_CONFIG = {
    "peft_type": "the config of an adapter; give the config of its base model (see 'base_model_name_or_path')",
    "_diffusers_version": "a config of diffusers, whose models are not supported; give a config.json of transformers",
    "word_embedding_dimension": "the config of a pooling layer; give the model's config.json in the parent folder",
    "n_layers": "a config without 'model_type', in its publisher's own format; give the config.json for transformers",
}


def architecture(config: Config, name: str, where: str, family: str | None = None) -> Architecture:
    """Read a config (a parsed `config.json`) into an Architecture.

    `name` is the model's name in outputs, `where` names the config in messages. `family`, if given, replaces the
    config's `model_type`. Raises ModelError for an unknown `model_type`, a missing core size or an invalid value.
    """
    if family is not None:
        from roofmodel.models.family_matching import as_family

        config, notes = as_family(config, family, where)
        return _read(config, name, where, notes)
    if "text_config" not in config and config.get("model_type") in list(FAMILIES):
        return _read(config, name, where)  # a text model: the table of multimodal models is not imported
    from roofmodel.models.multimodal_config import text_head, text_part

    text = text_part(config, where)
    if text is None:
        return _read(config, name, where)
    arch = _read(text.config, name, text.where, text.notes)
    source = VisionSource(config, name, where)
    return replace(arch, head=text_head(arch, text, where), tied=text.tied, vision=source)


def _read(config: Config, name: str, where: str, notes: tuple[Text, ...] = ()) -> Architecture:
    model_type, family = _family(config, where)
    return architecture_from_row(config, name, ConfigLocation(where), model_type, family, notes)


def architecture_from_row(
    config: Config, name: str, where: ConfigLocation, model_type: str, family: Family, notes: tuple[Text, ...] = ()
) -> Architecture:
    """Read a config with a family's row, from `families` or written by the caller. Raises ModelError."""
    fields, plan = _fields(family, family.fields, config, where)
    facts = dict(plan.facts)
    suffix, head, head_notes = _head(family, fields, config, model_type, where)
    quantized, quantization_notes = _quantization(config, where)
    if family.projectors:
        head = head._replace(projectors=family.projectors(fields))
    body, limit = plan.build(fields), None if family.network else max_tokens(fields)
    encoder = source_limit = source_plan = None
    if family.source:
        source, source_plan = _fields(family, {**family.fields, **family.source}, config, where, source=True)
        encoder, source_limit = stack(source, causal=False), max_tokens(source)
        facts |= {f"encoder_{field}": source_plan.facts[field] for field in family.source}
        if suffix in family.source_classes:
            body, limit, plan = encoder, source_limit, source_plan
            encoder = source_limit = source_plan = None
    return Architecture(
        name=printable(name),
        model_type=printable(model_type),
        body=body,
        head=head,
        tied=fields.get("tied", False),
        max_tokens=limit,
        facts=facts,
        notes=notes + _assumptions(facts, body, head, family, config, where) + head_notes + quantization_notes,
        quantization=quantized,
        dtype=_checkpoint_dtype(config),
        encoder=encoder,
        max_source=source_limit,
        plan=plan,
        encoder_plan=source_plan,
    )


def _quantization(config: Config, where: ConfigLocation) -> tuple[Quantization | None, tuple[Text, ...]]:
    """The quantization of a checkpoint, with notes. Few configs state one, so its module is imported only for these."""
    if not {"quantization_config", "quantization"} & config.keys():
        return None, ()
    from roofmodel.models.quantization import quantization

    return quantization(config, where)


DTYPES = {
    "float64": "fp64", "float32": "fp32", "float": "fp32", "float16": "fp16", "half": "fp16", "bfloat16": "bf16",
    "float8_e4m3fn": "fp8",
}  # fmt: skip
"""The number format of a `torch_dtype`."""


def _checkpoint_dtype(config: Config) -> str | None:
    """The format that a config's `torch_dtype` (since transformers 4.56 `dtype`) states; None without a known one."""
    name = next((config[key] for key in ("torch_dtype", "dtype") if isinstance(config.get(key), str)), "")
    return DTYPES.get(name.removeprefix("torch."))


def _fields(
    family: Family, sources: Mapping[str, Any], config: Config, where: ConfigLocation, source: bool = False
) -> tuple[dict[str, Any], BuildPlan]:
    """The fields of a stack (`source`: the encoder of an encoder-decoder) or of a network, and where each came from.

    A switch that no field depends on has an entry only if the config sets it.
    """
    reader = _FieldReader(family, sources, config, where)
    values = {field: reader[field] for field in family.schema}
    # switches that a network's layout or projectors read count as used
    unused = set() if family.network or family.projectors else family.switches.keys() - reader.facts.keys()
    fields = {switch: reader[switch] for switch in family.switches} | values
    facts = {name: reader.facts[name] for name in fields if name not in unused or not reader.facts[name].assumed}
    (check_stages if family.network else check)(fields, facts, where)
    build = family.network or partial(
        stack, causal=not (family.encoder or source), crosses=bool(family.source) and not source
    )
    rules = {name: rule for name in facts if (rule := _rule(reader.sources[name][1], facts[name]))}
    return fields, BuildPlan(facts, rules, build)


def _rule(source: Any, fact: Fact) -> Callable[[Fields], Any] | None:
    """The function of other fields that computed a value, if one did."""
    if isinstance(source, Key):
        source = source.default if fact.assumed else None
    return source if callable(source) else None


def _family(config: Config, where: str) -> tuple[str, Family]:
    model_type = config.get("model_type")
    if not isinstance(model_type, str):
        description = next((kind for key, kind in NOT_A_MODEL_CONFIG.items() if key in config), "")
        if description and "model_type" not in config:
            raise ModelError(f"{where}: is {description}")
        problem = (
            f"'model_type' is {_written(model_type)}; it must be"
            if "model_type" in config
            else "the key 'model_type' is missing; add"
        )
        raise ModelError(f"{where}: {problem} a name such as 'gpt2' or 'llama'")
    family = family_of(model_type)
    if family is None:
        raise ModelError(f"{where}: ", _unknown_type(model_type, config))
    for variant, keys in family.variants.items():
        if any(config.get(name) for name in keys):
            return _family({**config, "model_type": variant}, where)
    for switch in family.refuses:
        if config.get(switch):
            value = _written(config[switch])
            raise ModelError(f"{where}: {switch!r} is {value}, which is not supported for {model_type}")
    return model_type, family


def _unknown_type(model_type: str, config: Config) -> Message:
    """The message for a `model_type` without a family: the reason, or the families that are likely meant."""
    from roofmodel.models.families.unsupported import UNSUPPORTED
    from roofmodel.models.family_matching import matching_families

    if model_type in UNSUPPORTED:
        return Message(f"model_type {model_type!r} is not supported: it has {UNSUPPORTED[model_type]}")
    # qwen3 is a different model from qwen2, not a typing error: names with other digits are not suggested.
    digits = _digits(model_type)
    candidates = [name for name in FAMILIES if _digits(name) == digits]
    hint = suggest(model_type, candidates, cutoff=0.8) or matching_families(config)
    supported = f" lists the {len(FAMILIES) + len(CUSTOM_CODE)} supported ones"
    return Message(f"unknown model_type {shorten(model_type)}", hint or ";", " ", LIST_FAMILIES, supported)


def _digits(name: str) -> str:
    return "".join(filter(str.isdigit, name))


# --- One field --------------------------------------------------------------------------------------


class _FieldReader(Mapping[str, Any]):
    """The fields of a config by name. Each is read at its first use: a default may depend on any other field."""

    def __init__(self, family: Family, sources: Mapping[str, Any], config: Config, where: ConfigLocation) -> None:
        self.config, self.where = config, where
        self.sources: dict[str, tuple[FieldType, Any]] = dict(family.switches)
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


def _fact(field: str, kind: FieldType, source: Any, config: Config, fields: Fields, where: ConfigLocation) -> Fact:
    """A field's value: from the config, else the default of the config class, else fixed by the family."""
    if not isinstance(source, Key):
        return Fact(_derived(source, fields, where, field) if callable(source) else source, None)

    values = {name: value for name in source.names if (value := _look_up(config, name)) is not _MISSING}
    stated_values = {}
    for name, value in values.items():
        if value is None and (source.takes_null or len(values) > 1):
            continue
        stated_values[name] = _checked(value, source, kind, f"{where.at(name)}: {name!r}")
    if stated_values:
        name, value = next(iter(stated_values.items()))
        if any(other != value for other in stated_values.values()):
            both = " but ".join(f"{name!r} is {value!r}" for name, value in stated_values.items())
            raise ModelError(f"{where}: {both}; both keys mean the same, keep one")
        return Fact(value, name)
    null = (values or source.default is None) and source.null is not REQUIRED
    default = source.null if null else source.default
    if default is REQUIRED:
        names = " or ".join(map(repr, source.names))
        size = CORE.get(field, field.replace("_", " "))
        raise ModelError(
            f"{where.at(source.names[0])}: the key {names} ({size}) is missing; it must be {kind.expected}"
        )
    value = _derived(default, fields, where, source.names[0]) if callable(default) else default
    if source.read and value is not None:
        value = source.read(value)
    return Fact(value, next(iter(values), source.names[0]), assumed=True)


def _derived(rule: Callable[[Fields], Any], fields: Fields, where: ConfigLocation, name: str) -> Any:
    """The value that a rule computes from other fields. Raises ModelError if they contradict each other."""
    try:
        return rule(fields)
    except ValueError as error:
        raise ModelError(f"{where}: {name}: {error}") from None


def _written(value: Any) -> str:
    """A value of a config in a message, as JSON and YAML write it."""
    return json.dumps(value) if value is None or isinstance(value, bool) else shorten(value)


def _checked(value: Any, source: Key, kind: FieldType, name: str) -> Any:
    """A config value converted to the field's own terms. Raises ModelError if it is invalid."""
    wanted, setting = kind.expected, value
    if source.read:
        try:
            setting = source.read(value)
        except ValueError as error:
            setting, wanted = None, str(error)
    if setting is None or not kind.accepts(setting):
        is_text = (
            "the text " if isinstance(value, str) and kind.expected.startswith(("a number", "a whole number")) else ""
        )
        raise ModelError(f"{name} is {is_text}{_written(value)}; it must be {wanted}")
    return len(setting) if kind is LABELS and isinstance(setting, dict) else setting


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
    family: Family, fields: Fields, config: Config, model_type: str, where: ConfigLocation
) -> tuple[str, Head, tuple[Text, ...]]:
    """The class suffix and the head that `architectures` names; without it, the family's usual head and a note."""
    classes = {f"{family.prefix}{suffix}": suffix for suffix in family.classes}
    class_names = config.get("architectures")
    if not class_names:
        name = next(iter(classes))
        notes: tuple[Text, ...] = (f"{where}: no 'architectures'; the usual head of {model_type} is assumed, {name}",)
    else:
        if not (isinstance(class_names, list) and all(isinstance(n, str) for n in class_names)):
            raise ModelError(f"{where}: 'architectures' is {_written(class_names)}; it must be a list of class names")
        notes = ()
        # Some old checkpoints spell the prefix differently: LLaMAForCausalLM. A name of a model may end with a suffix.
        written = class_names[0].lower()
        name = next((own for own, end in classes.items() if written in (own.lower(), end.lower())), class_names[0])
        if name not in classes and name.startswith("For"):  # a head alone, as in `roberta-base@ForFoo`
            heads = list(family.classes)
            raise ModelError(f"{where}: {model_type} has no head {shorten(name)}{choices(name, heads)}")
        if name not in classes:
            raise ModelError(
                f"{where}: 'architectures' names {shorten(class_names[0])}, a head that is not supported for "
                f"{model_type}{choices(class_names[0], classes)}"
            )
    stages = tuple(
        stage._replace(
            tied=stage.tied and fields["tied"],
            unused_bias=stage.unused_bias and not fields["tied"],
            activation=_activation(stage.activation, fields),
            classes=_classes(stage, fields),
            bias=fields[stage.bias] if isinstance(stage.bias, str) else stage.bias,
        )
        for stage in family.classes[classes[name]]
    )
    return classes[name], Head(name, stages), notes


def _classes(stage: HeadStage, fields: Fields) -> int | None:
    """The number of classes of a stage, or the width of its pooler."""
    classes: int = fields["pooler_width" if stage.out == "pooler" else "labels"]
    return classes if stage.classes is None else stage.classes


def _activation(name: str | None, fields: Fields) -> str | None:
    """A stage's activation: `name` is a function, or a field that names one."""
    return ACTIVATIONS[fields.get(name, name)] if name is not None else None


# --- Notes ------------------------------------------------------------------------------------------


def _assumptions(
    facts: Mapping[str, Fact], body: Stack | Network, head: Head, family: Family, config: Config, where: ConfigLocation
) -> tuple[str, ...]:
    """A note with the defaults of keys that the config lacks. A key set to null asks for the default, so it has none.

    Lists with one entry per layer are left out: they follow from the other keys and would fill the screen.
    """
    unused = set(DROPOUT_FIELDS)  # only the expected time and the memory of a training step depend on them
    if not any(stage.out == "classes" for stage in head.stages):
        unused.add("labels")
    if isinstance(body, Stack) and not any(isinstance(part, MoE) for part in body.parts):
        unused |= {"experts_active", "expert_width", "shared_width"} | (
            {"experts"} if facts["experts"].value else set()
        )
    assumed = {
        fact.key: fact.value
        for field, fact in facts.items()
        if fact.assumed
        and field not in unused
        and not isinstance(fact.value, list)
        and _look_up(config, str(fact.key)) is _MISSING
    }
    if not assumed:
        return ()
    values = ", ".join(f"{key} = {json.dumps(value)}" for key, value in assumed.items())
    return (f"{where}: not in the config, so the defaults of {family.config_class} are used: {values}",)
