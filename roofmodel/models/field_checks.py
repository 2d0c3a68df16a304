"""Checks of the sizes that a config states: those that no such model can have are refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from roofmodel.errors import ModelError
from roofmodel.models.architecture import Fact
from roofmodel.models.fields import Fields


class Where(NamedTuple):
    """What messages call a config: its file, and the line of each of its keys where that is known."""

    file: str
    lines: Mapping[str, int] = {}

    def __str__(self) -> str:
        return self.file

    def at(self, *keys: str | None) -> str:
        """Where the first of these keys stands that stands anywhere, or the section of one: `my.yaml:12`."""
        places = [place for key in keys if key for place in (key, key.rpartition(".")[0])]
        line = next((self.lines[place] for place in places if place in self.lines), None)
        return self.file if line is None else f"{self.file}:{line}"


def check(fields: Fields, facts: Mapping[str, Fact], where: Where) -> None:
    """Refuse sizes that no such model can have."""

    def named(field: str) -> str:
        return f"{facts[field].key or field} {fields[field]}"

    def at(*names: str) -> str:
        return where.at(*(facts[name].key for name in names))

    derived = fields["head_dim"] == fields["hidden"] // fields["heads"]
    if derived and (facts["head_dim"].key is None or facts["head_dim"].assumed) and fields["hidden"] % fields["heads"]:
        cure = ", or a head_dim" if facts["head_dim"].key else ""
        raise ModelError(
            f"{at('heads')}: {named('hidden')} is not divisible by {named('heads')}; "
            f"it wants a number of heads that divides it{cure}"
        )
    for heads, kv_heads in (("heads", "kv_heads"), ("window_heads", "window_kv_heads")):
        if fields[heads] % fields[kv_heads]:
            raise ModelError(
                f"{at(kv_heads, heads)}: {named(heads)} is not divisible by {named(kv_heads)}; "
                "each key-value head serves the same number of query heads"
            )
    lenders = fields["layers"] - fields["borrowers"]
    if fields["borrowers"] and set(fields["layer_types"][: max(lenders, 0)]) != set(fields["layer_types"]):
        raise ModelError(
            f"{at('borrowers')}: {named('borrowers')} layers attend to keys and values of earlier ones, but the "
            f"{max(lenders, 0)} before them are not of all their kinds"
        )
    if fields["experts"] and fields["experts_active"] > fields["experts"]:
        raise ModelError(
            f"{at('experts_active', 'experts')}: {named('experts_active')} cannot be more than {named('experts')}"
        )
    if fields["position_table"] and fields["positions"] is None:
        raise ModelError(f"{at('positions')}: lacks {facts['positions'].key!r}, the rows of the table of positions")
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
    if fields["linear_value_heads"] % fields["linear_heads"]:
        raise ModelError(
            f"{at('linear_value_heads', 'linear_heads')}: {named('linear_value_heads')} is not divisible by "
            f"{named('linear_heads')}; each head of keys serves the same number of heads of values"
        )
    for field in ("mixers", "layer_types", "rotary_layers", "index_layers", "expert_layers", "norms_behind"):
        value = fields[field]
        if value is not None and len(value) != fields["layers"]:
            count = f"{facts[field].key or field!r} has {len(value)} entries"
            raise ModelError(f"{at(field)}: {count}, but {named('layers')}; it wants one a layer")


def check_stages(fields: Fields, facts: Mapping[str, Fact], where: Where) -> None:
    """Refuse a network whose lists do not have an entry a stage."""
    counts = {facts[name].key: len(fields[name]) for name in ("widths", "depths")}
    if "stages" in fields:
        counts[facts["stages"].key] = fields["stages"]
    if len(set(counts.values())) > 1:
        told = ", ".join(f"{key!r} of {count}" for key, count in counts.items())
        raise ModelError(f"{where}: {told} stages; they must tell of as many")
