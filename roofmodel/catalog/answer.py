"""The answers of `roof models` and `roof hw`: models, model families and devices."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import partial
from typing import Any, NamedTuple

from roofmodel.devices.device import Device
from roofmodel.devices.parts import Pipe
from roofmodel.errors import Command, Option
from roofmodel.models.architecture import Architecture, Fact
from roofmodel.models.families import Family, family_of
from roofmodel.models.fields import CORE
from roofmodel.models.hub import Checkpoint, from_entry
from roofmodel.models.served import SERVED
from roofmodel.numbers import units
from roofmodel.report.document import Block, Document, Heading, Paragraph, Rows
from roofmodel.report.table import COUNT, MEMORY, NUMBER, Column, Table, Unit, joined
from roofmodel.steps.estimate import describe_parameters, parameters

EXAMPLE = Command("roof estimate gpt2-xl --hw a100", 'roofmodel.estimate("gpt2-xl", "a100")')


def _list(title: str, table: Table, rows: Sequence[Any], caption: str) -> Document:
    """A table of all entries, which is the answer in every format."""
    listed = Rows(table, rows)
    blocks = (listed, Paragraph(caption, dim=True))
    return Document(title, blocks, partial(table.records, rows), lambda: listed)


def _plain(value: Any) -> Any:
    """A value with nested records as dictionaries and tuples as lists."""
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if hasattr(value, "_asdict"):
        return _plain(value._asdict())
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, tuple) else value


class CountedModel(NamedTuple):
    """A packaged model with its counted parameters."""

    entry: Checkpoint
    counted: int
    active: int

    @classmethod
    def of(cls, entry: Checkpoint) -> CountedModel:
        """Count the parameters of a packaged model."""
        return cls(entry, *parameters(from_entry(entry)))


MODELS = Table(
    "models",
    (
        Column("name", "name", value="entry.id", wrap=True, meaning="a packaged checkpoint, by its Hub id"),
        Column(
            "model_type",
            "type",
            value=lambda model: model.entry.config["model_type"],
            wrap=True,
            meaning="its family",
        ),
        Column(
            "parameters",
            value="entry.parameters",
            meaning="its published number of parameters; null if the source confirms none",
        ),
        Column("counted", "parameters", Unit(units.grouped), meaning="its counted number of parameters"),
        Column(
            "active",
            "active",
            Unit(units.si),
            text=lambda model: units.si(model.active) if model.active != model.counted else None,
            meaning="the parameters that a token uses (MoE: the shared and the routed experts)",
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
            flat=joined(" "),
            meaning="the values of `architectures` in a config.json that are counted",
        ),
    ),
)


SERVED_MODELS = Table(
    "served",
    (
        *MODELS.columns,
        Column(
            "since", "since", value=lambda model: SERVED[model.entry.id], meaning="the month from which it is served"
        ),
    ),
)


def models(entries: list[Checkpoint], served: bool = False) -> Document:
    """Packaged models: name, type, published and counted parameters; of those that are served most, since when."""
    caption = f"The part after the slash is enough: {EXAMPLE}"
    table = SERVED_MODELS if served else MODELS
    return _list(
        units.count(len(entries), "packaged model"), table, [CountedModel.of(entry) for entry in entries], caption
    )


def classes(families_by_name: Mapping[str, Family]) -> dict[str, list[str]]:
    """The classes of each model type."""
    return {name: [family.prefix + suffix for suffix in family.classes] for name, family in families_by_name.items()}


def families(library_families: Mapping[str, Family], custom_code: Mapping[str, Family]) -> Document:
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
    return _list(units.count(len(rows), "model type"), FAMILIES, rows, caption)


class FieldLine(NamedTuple):
    """A field of an architecture."""

    name: str
    fact: Fact

    @property
    def written(self) -> str:
        """The value as JSON; a list of equal values with its length: `["full_attention"] × 24`."""
        value = self.fact.value
        if isinstance(value, list) and len(value) > 1 and all(entry == value[0] for entry in value):
            return f"{json.dumps(value[:1])} × {len(value)}"
        return json.dumps(value)

    @property
    def source(self) -> str:
        """The config key, or the family's code; ` (default)` where the config does not have the key."""
        origin = "the family's code" if self.fact.key is None else self.fact.key
        return f"{origin} (default)" if self.fact.assumed else origin


FIELDS = Table(
    "fields",
    (
        Column("field", "field", value="name", wrap=True, meaning="the field of the architecture"),
        Column(
            "value",
            "value",
            value=lambda row: json.dumps(row.fact.value),
            text=lambda row: row.written,
            wrap=True,
            meaning="its value, as JSON",
        ),
        Column("from", "from", value="source", wrap=True, meaning="the config key that it came from"),
    ),
)


ALWAYS_SHOWN = (*CORE, "kv_heads", "head_dim", "mlp_width")


def model(arch: Architecture, entry: Checkpoint | None, defaults: bool) -> Document:
    """A model's fields, each with the config key that it came from.

    Without `defaults`, the document leaves out fields with the family's default value, such as experts for a model
    without MoE; its main table has all.
    """
    every = [FieldLine(name, fact) for name, fact in arch.facts.items()]
    shown = set(ALWAYS_SHOWN)
    if family := family_of(arch.model_type):  # None for a model described in YAML
        shown |= {*family.fields, *family.switches, *(f"encoder_{name}" for name in family.source)}
    rows = [row for row in every if defaults or row.name in shown or row.fact.key is not None]
    data: dict[str, Any] = {
        "name": arch.name,
        "model_type": arch.model_type,
        "head": arch.head.name,
        "fields": {name: fact._asdict() for name, fact in arch.facts.items()},
    }
    blocks: list[Block] = [Paragraph(describe_parameters(*parameters(arch)))]
    if entry is not None:
        data |= {"parameters": entry.parameters, "source": entry.source}
        data |= {"parameters_source": entry.parameters_source}
        count = f"{units.grouped(entry.parameters)}: " if entry.parameters is not None else ""
        blocks += [
            Paragraph(f"source of the config: {entry.source}", dim=True),
            Paragraph(f"published count: {count}{entry.parameters_source}", dim=True),
        ]
    blocks += [Heading("fields"), Rows(FIELDS, rows)]
    if not defaults:
        hidden = f"fields with the family's default value are not shown; {Option('format', 'json')} shows all"
        blocks.append(Paragraph(hidden, dim=True))
    title = f"{arch.name} · {arch.model_type} · {arch.head.name}"
    return Document(title, blocks, lambda: data, lambda: Rows(FIELDS, every))


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
        Column(
            "flops_per_second", "TFLOP/s", Unit(lambda peak: units.significant(peak / 1e12, 4)), "pipe.peak",
            meaning="its dense fp16 tensor peak (TPUs: bf16; Apple: fp16 of the vector units)",
        ),
        Column(
            "bytes_per_second", "GB/s", Unit(lambda rate: units.significant(rate / 1e9, 4 if rate >= 1e12 else 3)),
            "device.bandwidth", meaning="its DRAM bandwidth",
        ),
        Column(
            "capacity", "GiB", Unit(lambda size: units.significant(size / 2**30)), "device.capacity",
            meaning="bytes of its DRAM; null if it is not stated",
        ),
        Column(
            "ridge", "ridge", NUMBER, lambda row: row.pipe and row.pipe.peak / row.device.bandwidth,
            meaning="its ridge point in FLOP per byte",
        ),
    ),
)  # fmt: skip


_LISTED = ("tensor_fp16", "tensor_bf16", "fp16")


def devices(known_devices: list[Device], aliases: Mapping[str, str]) -> Document:
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
    return _list(units.count(len(rows), "device"), DEVICES, rows, caption)


class Ceiling(NamedTuple):
    """A ceiling of a device, or what of it a benchmark reached."""

    part: str  # compute, memory (with links), measured or power
    name: str
    value: float | None
    unit: str
    ridge: float | None = None  # FLOP per byte of DRAM
    accumulates: str | None = None  # in which format
    capacity: float | None = None
    by: str | None = None  # the benchmark
    source: str | None = None

    @property
    def written(self) -> str:
        """The value with its unit; a fraction as percentage of what aligned matmuls reach."""
        if self.value is None:
            return "not stated"
        return units.si(self.value, self.unit, 4) if self.unit else f"{self.value:.0%} of aligned"


def _value(title: str) -> Column:
    return Column("value", title, COUNT, text=lambda each: each.written, meaning="its value in `unit`")


def _name(title: str) -> Column:
    return Column("name", title, wrap=True, meaning="the pipe, memory, link, measured ceiling, or figure of power")


RIDGE = Column("ridge", "ridge", NUMBER, meaning="FLOP per byte of DRAM; null for sparse matrices")
ACCUMULATES = Column("accumulates", "accumulates", meaning="the format of sums")
CAPACITY = Column("capacity", "size", MEMORY, meaning="bytes")
BY = Column("by", "by", wrap=True, meaning="the benchmark that reached the value")
SOURCE = Column("source", "source", wrap=True, meaning="where the number is from")
PIPES = Table("pipes", (_name("pipe"), _value("peak"), RIDGE, ACCUMULATES, SOURCE))
LEVELS = Table("levels", (_name("memory"), _value("bandwidth"), CAPACITY, SOURCE))
MEASURED = Table("measured", (_name("measured"), BY, _value("reached"), SOURCE))
POWER = Table("power", (_name("power"), _value("value"), SOURCE))
CEILINGS = Table(
    "ceilings",
    (
        Column("part", meaning="`compute`, `memory` (with links), `measured` or `power`"),
        *(_name("ceiling"), _value("value")),
        Column("unit", meaning="FLOP/s, B/s, W, pJ/FLOP or pJ/B; empty for a fraction"),
        *(RIDGE, ACCUMULATES, CAPACITY, BY, SOURCE),
    ),
)


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


def _data(chip: Device) -> dict[str, Any]:
    """All that the file of a device states."""
    return {name: value for name, value in _plain(chip).items() if name != "is_sustained"}


def device(chip: Device) -> Document:
    """A device's ceilings, links and measured rates; ridge points are those with DRAM, in FLOP/B."""
    every = [*_ceilings(chip)]
    blocks: list[Block] = [Paragraph(", ".join(_design(chip)), dim=True)]
    for part, table in (("compute", PIPES), ("memory", LEVELS), ("measured", MEASURED), ("power", POWER)):
        if rows := [each for each in every if each.part == part]:
            blocks += [Heading(part), Rows(table, rows)]
    blocks += [Heading("sources"), *(Paragraph(f"{name}: {source}", dim=True) for name, source in chip.sources.items())]
    return Document(f"{chip.name} · {chip.id}", blocks, lambda: _data(chip), lambda: Rows(CEILINGS, every))


def _ceilings(chip: Device) -> Iterator[Ceiling]:
    """The pipes, the memories and links, and what benchmarks reached."""
    for pipe in chip.pipes.values():
        ridge = pipe.peak / chip.bandwidth
        yield Ceiling("compute", pipe.name, pipe.peak, "FLOP/s", ridge, pipe.accumulator, source=pipe.source)
    for pipe in chip.sparse_pipes.values():
        name = f"{pipe.name} (sparse)"
        yield Ceiling("compute", name, pipe.peak, "FLOP/s", accumulates=pipe.accumulator, source=pipe.source)
    for level in chip.levels.values():
        name = f"{level.name} ({level.kind})" if level.kind else level.name
        rate = level.bandwidth or None
        yield Ceiling("memory", name, rate, "B/s", capacity=level.capacity or None, source=level.source)
    for link in chip.links.values():
        reach = f", beyond {link.beyond} GPUs" if link.beyond else f", of {link.joins} GPUs" if link.joins else ""
        reach += ", to the CPU" if link.to_host else ""
        yield Ceiling("memory", f"{link.label}, both directions{reach}", link.bandwidth, "B/s", source=link.source)
    for measured in chip.measured:
        unit = "B/s" if measured.ceiling in chip.levels else "FLOP/s"
        yield Ceiling("measured", measured.ceiling, measured.value, unit, by=measured.by, source=measured.source)
    if power := chip.power:
        for name, watts in (("limit", power.limit), ("idle at boost clock", power.idle)):
            source = power.sources[name.partition(" ")[0]]
            yield Ceiling("power", name, watts, "W", source=source)
        for name, joules in power.energy.items():
            unit = "pJ/B" if name == "dram" else "pJ/FLOP"
            yield Ceiling("power", f"energy, {name}", joules * 1e12, unit, source=power.sources[name])
    if unaligned := chip.unaligned:
        for size, share in ((4, unaligned.rows_of_4_bytes), (2, unaligned.rows_of_2_bytes)):
            by = f"unaligned matmul, rows of {size} bytes"
            yield Ceiling("measured", "tensor cores", share, "", by=by, source=unaligned.source)
