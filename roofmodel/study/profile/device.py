"""Which device a profile was taken on: the one given, the one its attributes match, or an assumption.

Attributes decide where exactly one known device agrees with all of them. A compute capability alone
gives that generation's usual device, which every output marks as assumed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import combinations
from typing import Literal, NamedTuple

from roofmodel import units
from roofmodel.devices import library
from roofmodel.devices.device import Device
from roofmodel.errors import Message, Option, ProfileError, Text
from roofmodel.profiles.kernel import Evidence

GENERATION_ALIAS = {"7.0": "v100", "8.0": "a100", "9.0": "h100"}
_WORDS = re.compile(
    # a chip's name is a word of its own: an A10G is no A10, a GB200 no B200; GeForces have kin by what follows
    r"\b(v100s?|[ahb][12]00|a10|l4|l40s|t4|mi250x|mi300x|rtx \d{4}(?: (?:ti|super|d|laptop))*)\b"
    r"|(sxm|pcie|nvl)\d*|(\d+)\s?gb",
    re.IGNORECASE,
)


class UnknownDevice(ProfileError):
    """Nothing tells a profile's device, or files tell several; `what` says so without the names that are known."""

    def __init__(self, what: Text) -> None:
        known = f"known: {', '.join([*library.ALIASES, *library.names()])}, or a YAML file"
        super().__init__(what, f"; {known}")
        self.what = what


class Identified(NamedTuple):
    """A device, how it was found, and what contradicts it."""

    device: Device
    how: Literal["given", "attributes", "assumed"]
    warnings: tuple[Text, ...] = ()


def identify(evidence: Iterable[Evidence], given: str | None, files: Iterable[str]) -> Identified:
    """The device of a profile. Raises UnknownDevice, with a line to paste, where nothing tells.

    `given` is the user's `--hw` or FILE@HW; evidence that contradicts the device becomes a warning.
    """
    seen = list(dict.fromkeys(evidence))
    if given is not None:
        device = library.load(given)
        done = f"the counters are read as the file says, the device is {device.id} as given"
        return Identified(device, "given", tuple(f"{given} was given, but {c}; {done}" for c in _clashes(device, seen)))
    for one, other in combinations(seen, 2):
        if one.file != other.file and (how := _apart(one, other)):
            named = (f"{e.file}@{_likely(e)}" for e in (one, other))
            raise UnknownDevice(f"files of different devices ({how}); name each device, as in: {' '.join(named)}")
    known = _known()
    for e in seen:
        if e.name is None and e.multiprocessors is None:
            continue  # a compute capability alone is no match, however few devices share it
        matching = [device for device in known if not contradictions(device, e)]
        if len(matching) == 1:
            return Identified(matching[0], "attributes", tuple(_clashes(matching[0], seen)))
    aliases = {GENERATION_ALIAS.get(e.compute_capability or "") for e in seen} - {None}
    if len(aliases) == 1:
        alias = str(aliases.pop())
        device = library.load(alias)
        if all(not contradictions(device, e) or e.name is None for e in seen):
            capability = next(e.compute_capability for e in seen if e.compute_capability)
            note = f"the file names no device, only compute capability {capability}: assumed {device.id} ({alias})"
            return Identified(device, "assumed", (note,))
    said = next((f"it was taken on {e.name!r}, which no device file describes" for e in seen if e.name), None)
    where = ", ".join([*files][:3])
    raise UnknownDevice(
        Message(f"{where}: {said or 'nothing in it tells the device'}; name one, as in: ", Option("hw", "a100"))
    )


def _known() -> list[Device]:
    """The devices that a profile can be of: a TPU, which has no multiprocessors, contradicts none by its silence."""
    return [device for device in map(library.load, library.names()) if device.multiprocessors is not None]


def _clashes(device: Device, seen: Iterable[Evidence]) -> list[str]:
    """What files say that cannot be of the device."""
    said = ((e.file or "the file", contradictions(device, e)) for e in seen)
    return [f"{file} says {'; '.join(words)}" for file, words in said if words]


def others(device: Device, gpus: Iterable[str], file: str) -> tuple[str, ...]:
    """A warning where a table's rows were measured on other GPUs, by their names, than the device that was given."""
    names = [name for name in dict.fromkeys(gpus) if name and contradictions(device, Evidence(name=name))]
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    listed = ", ".join(names[:3]) + more
    return (f"{device.id} was given ({device.name}), but {file} has rows of {listed}",) if names else ()


def contradictions(device: Device, evidence: Evidence) -> list[str]:
    """What the evidence says otherwise than the device's file, in words: `compute capability 8.0, not 7.0`."""
    found = []

    def differ(what: str, unit: str, stated: float | None, seen: float | None, tolerance: float) -> None:
        if stated is not None and seen is not None and abs(seen / stated - 1) > tolerance:
            shown = (units.binary(value) if unit == "B" else units.si(value, unit, 4) for value in (seen, stated))
            found.append(f"{what} {', not '.join(shown)}")

    mine, theirs = device.compute_capability, evidence.compute_capability
    if mine is not None and theirs is not None and mine != theirs:
        found.append(f"compute capability {theirs}, not {mine}")
    differ("multiprocessors", "", device.multiprocessors, evidence.multiprocessors, 0)
    l2 = device.levels.get("l2")
    differ("L2", "B", l2.capacity if l2 else None, evidence.l2_bytes, 0.01)
    # 2 %: drivers state the product of bus and clock, datasheets a rounded figure
    differ("DRAM bandwidth", "B/s", device.bandwidth, evidence.dram_bandwidth, 0.025)
    # usable memory lies up to a twelfth below what is printed on the box
    differ("DRAM", "B", device.capacity, evidence.dram_bytes, 0.09)
    differ("boost clock", "Hz", device.clocks.get("boost"), evidence.clock, 0.01)
    if evidence.name is not None:
        said, known = _words(evidence.name), _words(device.name)
        strange = said[0] is None and known[0] is not None  # of two that nobody knows, nothing is known
        if strange or any(word is not None and word != ours for word, ours in zip(said, known, strict=True)):
            found.append(f"name {evidence.name!r}, not {device.name!r}")
    return found


def _apart(one: Evidence, other: Evidence) -> str:
    """How two files differ in the device that they say they are of, in words; empty where they may be of one."""
    names = [e.name.removeprefix("NVIDIA ") if e.name else None for e in (one, other)]  # older drivers leave it out
    told = (
        ("name", names[0], names[1]),
        ("compute capability", one.compute_capability, other.compute_capability),
        ("multiprocessors", one.multiprocessors, other.multiprocessors),
    )
    return ", ".join(f"{what} {a} and {b}" for what, a, b in told if a and b and a != b)


def _likely(evidence: Evidence) -> str:
    """What to call the device of a file in a line to paste."""
    matching = [device.id for device in _known() if not contradictions(device, evidence)]
    return matching[0] if len(matching) == 1 else GENERATION_ALIAS.get(evidence.compute_capability or "", "HW")


def _words(name: str) -> tuple[str | None, str | None, str | None]:
    """Chip, form factor and gigabytes as a device's name has them; what it leaves open (`SXM or PCIe`) it has not."""
    found = [{match[group].lower() for match in _WORDS.finditer(name) if match[group]} for group in (1, 2, 3)]
    chip, form, size = (words.pop() if len(words) == 1 else None for words in found)
    return (chip, form, size)
