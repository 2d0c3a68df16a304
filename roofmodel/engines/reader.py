"""The reader of an engine's YAML file. Messages name file and line."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from roofmodel.engines.schema import ANY, FUSIONS, KINDS, AllReduce, Host, LaunchTime
from roofmodel.errors import EngineError, choices
from roofmodel.files.text_files import YamlValue, read_yaml
from roofmodel.numbers import units

KEYS = (
    "like", "name", "version", "launch", "extra_kernels", "kernels", "fuses", "collectives", "host", "options",
    "source",
)  # fmt: skip
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
        base = {**_base(entries["like"], path, load), "name": path.stem}
    else:
        root.mapping(KEYS, required=("name", "version", "kernels", "launch"))
    found: dict[str, Any] = {name: value for name, value in base.items() if name not in ("id", "file", "settings")}
    for key, entry in entries.items():
        if key in ("name", "version"):
            found[key] = entry.text()
        elif key == "launch":
            found[key] = _launch(entry)
        elif key == "extra_kernels":
            found[key] = _one_of(entry, CODES)
        elif key == "kernels":
            found[key] = {**found.get(key, {}), **_kernels(entry)}
        elif key == "fuses":
            found[key] = _fuses(entry)
        elif key == "collectives":
            found |= _collectives(entry)
        elif key == "host":
            found[key] = _host(entry)
        elif key == "options":
            found[key] = tuple(_one_of(item, OPTIONS) for item in entry.items())
        elif key == "source":
            for source in entry.mapping().values():
                source.text()
    return found


def _base(value: YamlValue, path: Path, load: Callable[[str], Mapping[str, Any]]) -> Mapping[str, Any]:
    name = value.text()
    if name == path.stem:
        raise value.error(f"an engine cannot be like itself: {name}")
    try:
        return load(name)
    except EngineError as error:
        raise value.error(error.message) from None


def _one_of(value: YamlValue, known: "tuple[str, ...] | dict[str, str]") -> str:
    text = value.text()
    if text not in known:
        raise value.error(f"unknown {value.path.partition('[')[0]} {text!r}{choices(text, known)}")
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
    return LaunchTime(*(_seconds(entries[field]) for field in LaunchTime._fields))


def _host(value: YamlValue) -> Host:
    entries = value.mapping(Host._fields)
    times = {name: _seconds(entry, zero=True) for name, entry in entries.items() if name != "overlapped"}
    overlapped = entries["overlapped"].value() if "overlapped" in entries else False
    if not isinstance(overlapped, bool):
        raise entries["overlapped"].error("host.overlapped must be true or false")
    return Host(**times, overlapped=overlapped)


def _collectives(value: YamlValue) -> dict[str, Any]:
    entries, found = value.mapping(("all_reduce", "else")), dict[str, Any]()
    if "else" in entries:
        found["collectives"] = entries["else"].text()
    if "all_reduce" in entries:
        own = entries["all_reduce"].mapping(AllReduce._fields, required=AllReduce._fields)
        found["all_reduce"] = AllReduce(own["own"].text(), own["up_to"].quantity("B"))
    return found


def _kernels(value: YamlValue) -> dict[tuple[str, str, str], tuple[str, ...]]:
    """The names by kind, generation and formats: a list for all of them, or mappings by generation or formats."""
    found: dict[tuple[str, str, str], tuple[str, ...]] = {}
    for kind, of_kind in value.mapping(KINDS).items():
        for generation, of_generation in _levels(of_kind, GENERATIONS).items():
            for formats, listed in _levels(of_generation, None).items():
                found[kind, generation, formats] = tuple(item.text() for item in listed.items())
    return found


def _fuses(value: YamlValue) -> dict[str, frozenset[str]]:
    """The fusions by generation: a list for all of them, or a mapping."""
    by_generation = _levels(value, GENERATIONS).items()
    return {name: frozenset(_one_of(item, FUSIONS) for item in listed.items()) for name, listed in by_generation}


def _levels(value: YamlValue, known: tuple[str, ...] | None) -> dict[str, YamlValue]:
    """The entries of a mapping by generation (or, without `known`, by formats); one entry `any` for another value."""
    if not value.is_mapping:
        return {ANY: value}
    keys = value.mapping()
    if known is not None and all("/" in key for key in keys):
        return {ANY: value}
    if known is None and (wrong := [key for key in keys if "/" not in key and key != ANY]):
        raise keys[wrong[0]].error(f"{wrong[0]!r} is no pair of formats such as fp16/fp8")
    return value.mapping(known)
