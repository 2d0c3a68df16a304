"""Checks that the sizes of a config fit together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from roofmodel.errors import ModelError
from roofmodel.models.architecture import Fact
from roofmodel.models.fields import MAX_LAYERS, Fields


class ConfigLocation(NamedTuple):
    """A config file in messages, with the line of each key if known."""

    file: str
    lines: Mapping[str, int] = {}

    def __str__(self) -> str:
        return self.file

    def at(self, *keys: str | None) -> str:
        """The file and line of the first of these keys that has one (or whose section has one): `my.yaml:12`."""
        places = [place for key in keys if key for place in (key, key.rpartition(".")[0])]
        line = next((self.lines[place] for place in places if place in self.lines), None)
        return self.file if line is None else f"{self.file}:{line}"


MAX_DEPTH = 1000  # blocks of a convolutional network; published ones have at most 50


def check(fields: Fields, facts: Mapping[str, Fact], where: ConfigLocation) -> None:
    """Raise ModelError for sizes of a transformer that contradict each other."""
    checked = _CheckedFields(fields, facts, where)
    _check_heads(checked)
    _check_layers(checked)
    _check_experts_and_positions(checked)
    _check_mixers(checked)


class _CheckedFields(NamedTuple):
    """The fields of a config, and their config keys and lines for messages."""

    fields: Fields
    facts: Mapping[str, Fact]
    where: ConfigLocation

    def named(self, field: str) -> str:
        """The config key of a field and its value: `num_attention_heads 25`."""
        return f"{self.facts[field].key or field} {self.fields[field]}"

    def at(self, *names: str) -> str:
        """The file, and the line of the first of these fields that has one."""
        return self.where.at(*(self.facts[name].key for name in names))


def _check_heads(checked: _CheckedFields) -> None:
    """Heads divide the hidden size, and key-value heads divide the query heads."""
    fields, facts, _ = checked
    named, at = checked.named, checked.at
    derived = fields["head_dim"] == fields["hidden"] // fields["heads"]
    if derived and (facts["head_dim"].key is None or facts["head_dim"].assumed) and fields["hidden"] % fields["heads"]:
        hint = " or set head_dim" if facts["head_dim"].key else ""
        raise ModelError(
            f"{at('heads')}: {named('hidden')} is not divisible by {named('heads')}; "
            f"use a number of heads that divides it{hint}"
        )
    for heads, kv_heads in (("heads", "kv_heads"), ("window_heads", "window_kv_heads")):
        if fields[heads] % fields[kv_heads]:
            raise ModelError(
                f"{at(kv_heads, heads)}: {named(heads)} is not divisible by {named(kv_heads)}; "
                "each key-value head must serve the same number of query heads"
            )
    if fields["latent"] and not fields["rotary_dim"]:
        raise ModelError(
            f"{at('rotary_dim')}: {facts['rotary_dim'].key!r} is 0; it must be a whole number from 1: the size of the "
            "key part that all heads share"
        )


def _check_layers(checked: _CheckedFields) -> None:
    """Groups of layers have a layer each, and lists have one entry per layer."""
    fields, facts, where = checked
    named, at = checked.named, checked.at
    before_sharing = fields["layers"] - fields["kv_shared_layers"]
    types = fields["layer_types"]
    if fields["kv_shared_layers"] and set(types[: max(before_sharing, 0)]) != set(types):
        raise ModelError(
            f"{at('kv_shared_layers')}: {named('kv_shared_layers')} leaves {max(before_sharing, 0)} layers with "
            "their own keys and values; these must include every layer type"
        )
    if fields["layers"] * fields["layers_per_group"] > MAX_LAYERS:
        raise ModelError(
            f"{at('layers_per_group')}: {named('layers_per_group')} × {named('layers')} are more than {MAX_LAYERS} "
            "layers; use fewer"
        )
    if fields["parameter_groups"] > fields["layers"]:
        raise ModelError(
            f"{where}: {named('parameter_groups')} parameter groups are more than {named('layers')}; "
            "use at most one group per layer"
        )
    for field in ("mixers", "layer_types", "rotary_layers", "index_layers", "expert_layers", "post_norm_layers"):
        value = fields[field]
        if value is not None and len(value) != fields["layers"]:
            count = f"{facts[field].key or field!r} has {len(value)} entries"
            raise ModelError(f"{at(field)}: {count}, but {named('layers')}; give one entry per layer")


def _check_experts_and_positions(checked: _CheckedFields) -> None:
    """A token has at most all experts, and a position table has a number of rows."""
    fields, facts, _ = checked
    if fields["experts"] and fields["experts_active"] > fields["experts"]:
        raise ModelError(
            f"{checked.at('experts_active', 'experts')}: {checked.named('experts_active')} cannot be more than "
            f"{checked.named('experts')}"
        )
    if (fields["experts_active_groups"] or 0) > (fields["expert_groups"] or fields["experts_active_groups"] or 0):
        raise ModelError(
            f"{checked.at('experts_active_groups')}: {checked.named('experts_active_groups')} cannot be more than "
            f"{checked.named('expert_groups')}"
        )
    if fields["position_table"] and fields["positions"] is None:
        raise ModelError(
            f"{checked.at('positions')}: lacks {facts['positions'].key!r}, the number of rows of the position table"
        )


def _check_mixers(checked: _CheckedFields) -> None:
    """Heads of state spaces and of linear attention divide their channels and groups."""
    fields, _, where = checked
    named, at = checked.named, checked.at
    if any("mamba2" in mixer for mixer in fields["mixers"]):
        if fields["inner_heads"] * fields["inner_head_dim"] != fields["inner_width"]:
            raise ModelError(
                f"{where}: {named('inner_heads')} times {named('inner_head_dim')} is not the "
                f"{fields['inner_width']} channels of the state space; the heads must divide these channels"
            )
        if fields["inner_heads"] % fields["inner_groups"]:
            raise ModelError(
                f"{where}: {named('inner_heads')} is not divisible by {named('inner_groups')}; "
                "each group must have the same number of heads"
            )
    if fields["linear_value_heads"] % fields["linear_heads"]:
        raise ModelError(
            f"{at('linear_value_heads', 'linear_heads')}: {named('linear_value_heads')} is not divisible by "
            f"{named('linear_heads')}; each key head must serve the same number of value heads"
        )


def check_stages(fields: Fields, facts: Mapping[str, Fact], where: ConfigLocation) -> None:
    """Raise ModelError for a network whose lists do not have one entry per stage, or that is too deep or too narrow."""
    counts = {facts[name].key: len(fields[name]) for name in ("widths", "depths")}
    if "stages" in fields:
        counts[facts["stages"].key] = fields["stages"]
    if len(set(counts.values())) > 1:
        lengths = ", ".join(f"{key!r} of {count}" for key, count in counts.items())
        raise ModelError(f"{where}: {lengths} stages; all lists must have one entry per stage")
    if sum(fields["depths"]) > MAX_DEPTH:
        key = facts["depths"].key or "depths"
        raise ModelError(
            f"{where.at(key)}: {key!r} sums to {sum(fields['depths'])} blocks; at most {MAX_DEPTH} are supported"
        )
    if fields.get("block") == "bottleneck" and min(fields["widths"]) < 4:
        key = facts["widths"].key or "widths"
        raise ModelError(
            f"{where.at(key)}: {key!r} contains {min(fields['widths'])}; a bottleneck block computes with a quarter of "
            "the channels, so each stage needs at least 4"
        )
