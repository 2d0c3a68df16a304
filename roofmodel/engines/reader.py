"""The reader of an engine's YAML file. Messages name file and line."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, get_args

from roofmodel.engines.schema import ANY, FUSIONS, KINDS, AllReduce, Host, LaunchTime
from roofmodel.errors import EngineError, choices
from roofmodel.files.text_files import YamlValue, read_yaml
from roofmodel.numbers import units
from roofmodel.options.values import ComputeFormat, StorageFormat

KEYS = (
    "like", "name", "version", "launch", "extra_kernels", "kernels", "fuses", "pads_vocabulary", "collectives", "host",
    "options", "source",
)  # fmt: skip
REQUIRED = ("name", "version", "kernels", "launch")  # without `like`
CODES = ("transformers", "megatron")
OPTIONS = ("launch", "autocast")
GENERATIONS = ("Volta", "Turing", "Ampere", "Ada", "Hopper", "Blackwell", ANY)


def read(path: Path, load: Callable[[str], Mapping[str, Any]]) -> dict[str, Any]:
    """The fields of an Engine that a file states; `load` returns those of the engine that it is `like`.

    Raises EngineError, with file and line, for an unknown or invalid entry.
    """
    try:
        root = read_yaml(path, EngineError, "an engine's YAML file")
    except FileNotFoundError:
        raise EngineError(f"{path}: no such file; give an engine's YAML file or a name such as vllm") from None
    entries = root.mapping(KEYS)
    base: Mapping[str, Any] = {}
    if "like" in entries:
        base = {**_base(entries["like"], load), "name": path.stem}
    else:
        for key in REQUIRED:
            if key not in entries:
                raise root.error(
                    f"the file lacks the key {key!r}; add 'like: vllm' to take the rest from another engine, or state "
                    f"{', '.join(REQUIRED[:-1])} and {REQUIRED[-1]}"
                )
    fields: dict[str, Any] = {name: value for name, value in base.items() if name not in ("id", "file", "settings")}
    for key, entry in entries.items():
        if key in ("name", "version"):
            fields[key] = entry.text()
        elif key == "launch":
            fields[key] = _launch(entry)
        elif key == "extra_kernels":
            fields[key] = _one_of(entry, CODES)
        elif key == "kernels":
            own = entry.mapping(KINDS)
            of_base = {rule: listed for rule, listed in fields.get(key, {}).items() if rule[0] not in own}
            fields[key] = of_base | _kernels(own)
        elif key == "fuses":
            fields[key] = frozenset(_one_of(item, FUSIONS) for item in entry.items())
        elif key == "pads_vocabulary":
            fields[key] = _is_true(entry)
        elif key == "collectives":
            fields |= _collectives(entry)
        elif key == "host":
            fields[key] = _host(entry)
        elif key == "options":
            fields[key] = tuple(_one_of(item, OPTIONS) for item in entry.items())
        elif key == "source":
            for source in entry.mapping().values():
                source.text()
    return fields


def stated_kernels(path: Path) -> tuple[str, list[tuple[str, YamlValue]]]:
    """The engine that a valid file is `like`, or "", and the kind and the name of each kernel that the file states."""
    entries = read_yaml(path, EngineError, "an engine's YAML file").mapping()
    kernels = [
        (kind, item)
        for kind, of_kind in (entries["kernels"].mapping() if "kernels" in entries else {}).items()
        for of_generation in _levels(of_kind, GENERATIONS).values()
        for listed in _levels(of_generation, None).values()
        for item in listed.items()
    ]
    if "collectives" in entries:
        collectives = entries["collectives"].mapping()
        own = [collectives["all_reduce"].mapping()["own"]] if "all_reduce" in collectives else []
        kernels += [("collectives", item) for item in (*own, *filter(None, [collectives.get("else")]))]
    return entries["like"].text() if "like" in entries else "", kernels


def _base(value: YamlValue, load: Callable[[str], Mapping[str, Any]]) -> Mapping[str, Any]:
    try:
        return load(value.text())
    except EngineError as error:
        raise value.error(error.message) from None


def _one_of(value: YamlValue, names: "tuple[str, ...] | dict[str, str]") -> str:
    text = value.text()
    if text not in names:
        raise value.error(f"unknown {value.path.partition('[')[0]} {text!r}{choices(text, names)}")
    return text


def _seconds(value: YamlValue, zero: bool = False) -> float:
    text = value.text()
    try:
        seconds = float(units.parse(text, "s"))
    except ValueError as error:
        raise value.error(f"{value.path}: {error}") from None
    if seconds < 0 or (seconds == 0 and not zero):
        raise value.error(f"{value.path} is {text!r}; it must be a time such as 40 us")
    return seconds


def _launch(value: YamlValue) -> LaunchTime | None:
    """`graph`, or the seconds per operator with their interval."""
    if not value.is_mapping:
        if value.text() != "graph":
            raise value.error(f"launch is {value.text()!r}; it must be graph, or a mapping with seconds, low and high")
        return None
    entries = value.mapping(LaunchTime._fields, required=LaunchTime._fields)
    seconds, low, high = (_seconds(entries[field]) for field in LaunchTime._fields)
    if not low <= seconds <= high:
        low_text, text, high_text = (entries[field].text() for field in ("low", "seconds", "high"))
        raise value.error(f"launch has the interval {low_text} to {high_text}, which must contain seconds, {text}")
    return LaunchTime(seconds, low, high)


def _host(value: YamlValue) -> Host:
    entries = value.mapping(Host._fields)
    times = {name: _seconds(entry, zero=True) for name, entry in entries.items() if name != "overlapped"}
    return Host(**times, overlapped="overlapped" in entries and _is_true(entries["overlapped"]))


def _is_true(value: YamlValue) -> bool:
    flag = value.value()
    if not isinstance(flag, bool):
        raise value.error(f"{value.path} must be true or false")
    return flag


def _collectives(value: YamlValue) -> dict[str, Any]:
    entries, fields = value.mapping(("all_reduce", "else")), dict[str, Any]()
    if "else" in entries:
        fields["collectives"] = entries["else"].text()
    if "all_reduce" in entries:
        own = entries["all_reduce"].mapping(AllReduce._fields, required=AllReduce._fields)
        fields["all_reduce"] = AllReduce(own["own"].text(), own["up_to"].quantity("B"))
    return fields


def _kernels(kinds: Mapping[str, YamlValue]) -> dict[tuple[str, str, str], tuple[str, ...]]:
    """The names by kind, generation and formats: a list for all of them, or mappings by generation or formats."""
    kernels: dict[tuple[str, str, str], tuple[str, ...]] = {}
    for kind, of_kind in kinds.items():
        for generation, of_generation in _levels(of_kind, GENERATIONS).items():
            for formats, listed in _levels(of_generation, None).items():
                kernels[kind, generation, formats] = tuple(item.text() for item in listed.items())
                if not kernels[kind, generation, formats]:
                    raise listed.error(f"{listed.path} names no kernel")
    return kernels


def _levels(value: YamlValue, names: tuple[str, ...] | None) -> dict[str, YamlValue]:
    """The entries of a mapping by generation (or, without `names`, by formats); one entry `any` for another value."""
    if not value.is_mapping:
        return {ANY: value}
    keys = value.mapping()
    if not keys:
        raise value.error(f"{value.path} names no kernel")
    if names is not None:
        return {ANY: value} if all("/" in key for key in keys) else value.mapping(names)
    for key, entry in keys.items():
        if key != ANY:
            _check_formats(key, entry)
    return keys


def _check_formats(key: str, entry: YamlValue) -> None:
    """Raises EngineError for a key that is no pair of a compute format and a stored format."""
    names = key.split("/")
    if len(names) != 2:
        raise entry.error(f"{key!r} is no pair of formats such as fp16/fp8")
    if "bf16" in names:
        raise entry.error(f"{key!r}: write {key.replace('bf16', 'fp16')!r}, which stands for bf16, too")
    for name, formats in zip(names, (ComputeFormat, StorageFormat), strict=True):
        if name not in (formats_of_kind := get_args(formats)):
            raise entry.error(f"{key!r} has the unknown format {name!r}{choices(name, formats_of_kind)}")
