"""Tables and JSON of models, model families and devices (`roof models`, `roof hw`)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from operator import itemgetter
from typing import Any, NamedTuple

from rich.console import Group, RenderableType
from rich.text import Text

from roofmodel.devices.device import Device
from roofmodel.devices.parts import Pipe
from roofmodel.errors import Command, Option
from roofmodel.models.architecture import Architecture
from roofmodel.models.families import Family, family_of
from roofmodel.models.fields import CORE
from roofmodel.models.hub import Checkpoint
from roofmodel.numbers import units
from roofmodel.report.table import COUNT, NUMBER, TEXT, Column, Table, Unit
from roofmodel.steps.estimate import describe_parameters, parameters

EXAMPLE = Command("roof estimate gpt2-xl --hw a100", 'roofmodel.estimate("gpt2-xl", "a100")')


class ListingContent(NamedTuple):
    """A table for a terminal and the same content as data for JSON."""

    table: RenderableType
    data: Any


def _plain(value: Any) -> Any:
    """A value with nested records as dictionaries and tuples as lists."""
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if hasattr(value, "_asdict"):
        return _plain(value._asdict())
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, tuple) else value


MODELS = Table(
    "models",
    (
        Column("name", "name", value="id", wrap=True, meaning="a packaged checkpoint, by its Hub id"),
        Column(
            "model_type",
            "type",
            value=lambda entry: entry.config["model_type"],
            wrap=True,
            meaning="its family",
        ),
        Column(
            "parameters",
            "parameters",
            Unit(units.grouped),
            unknown="unconfirmed",
            meaning="its published number of parameters; null if the source confirms none",
        ),
    ),
)
FAMILIES = Table(
    "families",
    (
        Column("model_type", "model_type", wrap=True, meaning="`model_type` in a config.json"),
        Column(
            "classes",
            "classes",
            text=lambda row: ", ".join(row["classes"]),
            wrap=True,
            meaning="the values of `architectures` in a config.json that are counted",
        ),
    ),
)


def models(entries: list[Checkpoint]) -> ListingContent:
    """Packaged models: name, model type, published parameter count."""
    footer = Text(f"The part after the slash is enough: {EXAMPLE}", style="dim")
    return ListingContent(Group(MODELS.terminal(entries), footer), MODELS.records(entries))


def classes(families_by_name: Mapping[str, Family]) -> dict[str, list[str]]:
    """The classes of each model type."""
    return {name: [family.prefix + suffix for suffix in family.classes] for name, family in families_by_name.items()}


def families(library_families: Mapping[str, Family], custom_code: Mapping[str, Family]) -> ListingContent:
    """The supported values of `model_type` and of `architectures` in a config.json.

    `custom_code`: the families whose classes come with their checkpoints.
    """
    entries = sorted(classes({**library_families, **custom_code}).items())
    rows = [{"model_type": model_type, "classes": names} for model_type, names in entries]
    exceptions = f"\n(for {', '.join(custom_code)}: the published parameters of their checkpoints)"
    caption = (
        "Values in a config.json. Parameters and FLOPs equal those of the class itself"
        f"{exceptions if custom_code else ''}."
    )
    return ListingContent(Group(FAMILIES.terminal(rows), Text(caption, style="dim")), FAMILIES.records(rows))


def _texts(*titles: str, right: tuple[str, ...] = ()) -> Table:
    """A table of texts, whose rows are tuples."""
    return Table(
        "",
        [
            Column(None, title, COUNT if title in right else TEXT, itemgetter(place), wrap=True)
            for place, title in enumerate(titles)
        ],
    )


ALWAYS_SHOWN = (*CORE, "kv_heads", "head_dim", "mlp_width")


def model(arch: Architecture, entry: Checkpoint | None) -> ListingContent:
    """A model's fields, each with the config key that it came from.

    The table leaves out fields with the family's default value, such as experts for a model without MoE.
    """
    shown, rows = set(ALWAYS_SHOWN), []
    if family := family_of(arch.model_type):  # None for a model described in YAML
        shown |= {*family.fields, *family.switches, *(f"encoder_{name}" for name in family.source)}
    for name, fact in arch.facts.items():
        if name in shown or fact.key is not None:
            origin = "the family's code" if fact.key is None else fact.key
            rows.append((name, _value(fact.value), f"{origin} (default)" if fact.assumed else origin))
    rest = Text(
        f"fields with the family's default value are not shown; {Option('format', 'json')} shows all",
        style="dim",
    )
    data: dict[str, Any] = {
        "name": arch.name,
        "model_type": arch.model_type,
        "head": arch.head.name,
        "fields": {name: fact._asdict() for name, fact in arch.facts.items()},
    }
    top = [
        Text.assemble((arch.name, "bold"), f" · {arch.model_type} · {arch.head.name}"),
        Text(describe_parameters(*parameters(arch))),
    ]
    if entry is not None:
        data |= {"parameters": entry.parameters, "source": entry.source}
        data |= {"parameters_source": entry.parameters_source}
        top.append(Text(f"source of the config: {entry.source}", style="dim"))
        count = f"{units.grouped(entry.parameters)}: " if entry.parameters is not None else ""
        top.append(Text(f"published count: {count}{entry.parameters_source}", style="dim"))
    return ListingContent(Group(*top, Text(), _texts("field", "value", "from").terminal(rows), rest), data)


def _value(value: Any) -> str:
    """A value as JSON; a list of equal values with its length: `["full_attention"] × 24`."""
    if isinstance(value, list) and len(value) > 1 and all(entry == value[0] for entry in value):
        return f"{json.dumps(value[:1])} × {len(value)}"
    return json.dumps(value)


class ListedDevice(NamedTuple):
    """A device with its alias and its fastest dense 16-bit pipe."""

    device: Device
    alias: str | None
    pipe: Pipe | None


DEVICES = Table(
    "devices",
    (
        Column(
            "name", "name", value="device.id", wrap=True,
            text=lambda row: f"{row.device.id} ({row.alias})" if row.alias else row.device.id,
            meaning="a device, as `--hw` names it",
        ),
        Column("full_name", "device", value="device.name", wrap=True, meaning="its vendor, name and form factor"),
        Column("alias", meaning="a shorter name, such as `a100`; null if there is none"),
        Column(None, "TFLOP/s", Unit(lambda peak: units.significant(peak / 1e12, 4)), "pipe.peak"),
        Column(
            None, "GB/s", Unit(lambda rate: units.significant(rate / 1e9, 4 if rate >= 1e12 else 3)),
            "device.bandwidth",
        ),
        Column(None, "GiB", Unit(lambda size: units.significant(size / 2**30)), "device.capacity"),
        Column(None, "ridge", NUMBER, lambda row: row.pipe and row.pipe.peak / row.device.bandwidth),
    ),
)  # fmt: skip


_LISTED = ("tensor_fp16", "tensor_bf16", "fp16")


def devices(known_devices: list[Device], aliases: Mapping[str, str]) -> ListingContent:
    """Devices by name: dense 16-bit peak, DRAM bandwidth and capacity, ridge point in FLOP/B."""
    by_target = {target: alias for alias, target in aliases.items()}
    rows = [
        ListedDevice(each, by_target.get(each.id), next((each.pipes[n] for n in _LISTED if n in each.pipes), None))
        for each in known_devices
    ]
    caption = (
        "TFLOP/s: dense fp16 tensor peak (TPUs: bf16; Apple: fp16 of the vector units). "
        "GB/s, GiB: DRAM. ridge: ridge point in FLOP/B."
    )
    return ListingContent(Group(DEVICES.terminal(rows), Text(caption, style="dim")), DEVICES.records(rows))


def _design(chip: Device) -> Iterator[str]:
    """Generation, compute capability, SMs and clocks of a device, as far as its file has them."""
    if chip.generation:
        yield chip.generation
    if chip.compute_capability:
        yield f"compute capability {chip.compute_capability}"
    if chip.multiprocessors:
        yield f"{chip.multiprocessors} multiprocessors"
    for name, hertz in chip.clocks.items():
        yield f"{name} {units.si(hertz, 'Hz', 4)}"


def device(chip: Device) -> ListingContent:
    """A device's ceilings, links and measured rates; ridge points are those with DRAM, in FLOP/B."""
    pipes = []
    for section, sparse in ((chip.pipes, ""), (chip.sparse_pipes, " (sparse)")):
        for pipe in section.values():
            ridge = "" if sparse else units.significant(pipe.peak / chip.bandwidth)
            peak = units.si(pipe.peak, "FLOP/s", 4)
            pipes.append((pipe.name + sparse, peak, ridge, pipe.accumulator or "", pipe.source or ""))
    levels = []
    for level in chip.levels.values():
        name = f"{level.name} ({level.kind})" if level.kind else level.name
        bandwidth = units.si(level.bandwidth, "B/s", 4) if level.bandwidth else "not stated"
        levels.append((name, bandwidth, units.binary(level.capacity) if level.capacity else "", level.source or ""))
    for link in chip.links.values():
        reach = f", beyond {link.beyond} GPUs" if link.beyond else f", of {link.joins} GPUs" if link.joins else ""
        reach += ", to the CPU" if link.to_host else ""
        name = f"{link.label}, both directions{reach}"
        levels.append((name, units.si(link.bandwidth, "B/s", 4), "", link.source or ""))
    parts: list[RenderableType] = [
        Text.assemble((chip.name, "bold"), f" · {chip.id}"),
        Text(", ".join(_design(chip)), style="dim"),
        Text(),
        _texts("pipe", "peak", "ridge", "accumulates", "source", right=("peak", "ridge")).terminal(pipes),
        Text(),
        _texts("memory", "bandwidth", "size", "source", right=("bandwidth", "size")).terminal(levels),
    ]
    reached = []
    for measured in chip.measured:
        unit = "B/s" if measured.ceiling in chip.levels else "FLOP/s"
        reached.append((measured.ceiling, measured.by, units.si(measured.value, unit, 4), measured.source or ""))
    if unaligned := chip.unaligned:
        for size, share in ((4, unaligned.rows_of_4_bytes), (2, unaligned.rows_of_2_bytes)):
            by = f"unaligned matmul, rows of {size} bytes"
            reached.append(("tensor cores", by, f"{share:.0%} of aligned", unaligned.source or ""))
    if reached:
        parts += [Text(), _texts("measured", "by", "reached", "source", right=("reached",)).terminal(reached)]
    parts += [Text(), *(Text(f"{name}: {source}", style="dim") for name, source in chip.sources.items())]
    return ListingContent(Group(*parts), _plain(chip))
