"""The device of a profile: given by the user, identified by attributes in the file, or assumed.

Attributes identify a device if exactly one known device matches all of them. A compute capability alone gives the
usual device of its generation, which every output marks as assumed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache
from itertools import combinations
from typing import Literal, NamedTuple

from roofmodel.devices import library
from roofmodel.devices.ceilings import with_boost_clock
from roofmodel.devices.derived import PER_CLOCK, derived
from roofmodel.devices.device import Device, Hardware, device_name
from roofmodel.errors import AnswerNote, Command, Message, Option, ProfileError, Text
from roofmodel.files.text_files import display_names
from roofmodel.numbers import units
from roofmodel.profiles.kernel import Evidence

GENERATION_ALIAS = {"7.0": "v100", "8.0": "a100", "9.0": "h100"}
MIG = ("8.0", "9.0", "10.0")
"""Compute capabilities of GPUs that are divided into slices with fewer SMs."""
JETSON = ("5.3", "6.2", "7.2", "8.7", "11.0")
"""Compute capabilities of GPUs in a system on a chip. CUDA states a memory clock for them that is not that of their
DRAM: an Orin Nano with 68 or 102 GB/s states 918 MHz x 128 bit = 29 GB/s."""
_NAME_PARTS = re.compile(
    # the chip is a separate word: A10G is not A10, GB200 is not B200; variants follow the number (ti, laptop, Ada)
    r"\b(v100s?|[ahb][12]00|h800|b300|g[bh][23]00|gb10|h20|a[134]0|a10g|l4|l40s|t4|mi210|mi250x|mi3[0-9]{2}x|thor"
    r"|orin(?: (?:nano|nx))?|rtx pro \d{4} blackwell (?:max-q )?(?:workstation|server)"
    r"|rtx a?\d{4}(?: (?:ti|super|d|laptop|ada))*)\b"
    # in the name of a GH200, 120 or 480 GB is the size of the CPU's memory
    r"|(sxm|pcie|nvl)\d*|(?!(?:120|480)\s?gb)\b(\d+)\s?gb?\b",
    re.IGNORECASE,
)


class UnknownDevice(ProfileError):
    """The device of a profile is unknown or ambiguous; `reason` is the message without the list of `candidates`.

    They are all known devices by default.
    """

    def __init__(self, *reason: Text, candidates: Sequence[str] = ()) -> None:
        listed = ", ".join(candidates or [*library.ALIASES, *library.names()])
        super().__init__(*reason, f"; {'candidates' if candidates else 'known'}: {listed}, or a YAML file")
        self.reason = Message(*reason)


class DeviceIdentification(NamedTuple):
    """A device, how it was identified, and contradictions as warnings."""

    device: Device
    source: Literal["given", "attributes", "assumed", "file"]  # file: derived from the file's attributes
    warnings: tuple[Text, ...] = ()

    @property
    def known_name(self) -> str | None:
        """The name of the device's file; None where it has none."""
        return None if self.source == "file" else self.device.id


def identify(evidence: Iterable[Evidence], hw: Hardware | None, files: Iterable[str]) -> DeviceIdentification:
    """The device of a profile. Raises UnknownDevice, with an option to add, if it is unknown or ambiguous.

    `hw` is the user's `--hw` or FILE@HW; evidence that contradicts it becomes a warning.
    """
    unique_evidence = list(dict.fromkeys(evidence))
    if hw is not None:
        device = Device.load(hw)
        name = device_name(hw)
        shown = display_names([name])[name]  # a path may name people
        consequence = f"counters are interpreted for the device of the file, the ceilings are those of {device.id}"
        return DeviceIdentification(
            device,
            "given",
            tuple(
                f"{shown} was given, but {text}; {consequence}"
                for text in _contradictions_by_file(device, unique_evidence)
            ),
        )
    for first, second in combinations(unique_evidence, 2):
        if first.file != second.file and (differences := _differences(first, second)):
            hints = (f"{e.file}@{_suggested_name(e)}" for e in (first, second))
            raise UnknownDevice(
                f"the files are of different devices ({differences}); give the device of each, as in: {' '.join(hints)}"
            )
    known_devices = _known_gpus()
    for e in unique_evidence:
        # An RTX 2070 Super has the SMs of a T4; of the generations of the aliases most GPUs are known.
        has_unknown_gpus = e.compute_capability not in (None, *GENERATION_ALIAS)
        if e.name is None and (e.multiprocessors is None or (has_unknown_gpus and not e.l2_bytes)):
            continue
        matching = [device for device in known_devices if not contradictions(device, e)]
        if len(matching) == 1:
            device = Device.load(matching[0].id)
            if e.name is None and not e.l2_bytes and not e.dram_bytes:  # a MIG slice may have as many SMs
                note = f"the file states no name: {_capability_and_sms(e)}; {device.id} is assumed"
                return DeviceIdentification(device, "assumed", (note,))
            return DeviceIdentification(device, "attributes", tuple(_contradictions_by_file(device, unique_evidence)))
        if board := _other_boost_clock(e):
            return board
    aliases = {GENERATION_ALIAS.get(e.compute_capability or "") for e in unique_evidence} - {None}
    if len(aliases) == 1:
        alias = str(aliases.pop())
        device = Device.load(alias)
        if not any(contradictions(device, e) for e in unique_evidence):
            known = max(unique_evidence, key=lambda e: (bool(e.compute_capability), bool(e.multiprocessors)))
            why = f"several devices match {known.name!r}" if known.name else "the file states no name"
            note = f"{why}: {_capability_and_sms(known)}; {device.id} ({alias}) is assumed"
            return DeviceIdentification(device, "assumed", (note,))
    for e in unique_evidence:
        if file_device := device_of(e):
            note = (
                f"no device file describes {e.name!r}: its ceilings are from the attributes in the file, without "
                "links, L2 bandwidth and expected times; "
            )
            write = Command("`roof hw show --from FILE -o my.yaml`", "`roofmodel.show_hardware(profile=FILE)`")
            return DeviceIdentification(
                file_device, "file", (AnswerNote(note, write, " writes them as a device file"),)
            )
    unknown = next((f"no device file describes {e.name!r}" for e in unique_evidence if e.name), "its device is unknown")
    capable = [e for e in unique_evidence if e.compute_capability]
    slice_sms = 0
    if capable and not any(e.name for e in unique_evidence):
        known = max(capable, key=lambda e: bool(e.multiprocessors))
        slice_sms = (known.multiprocessors or 0) if known.compute_capability in MIG else 0
        unknown += f" ({_capability_and_sms(known)}{', possibly a MIG slice' * bool(slice_sms)})"
    missing = next((_missing(e) for e in unique_evidence if e.name and e.compute_capability in PER_CLOCK), "")
    where = ", ".join([*files][:3])
    amd, capabilities = any(e.amd for e in unique_evidence), {e.compute_capability for e in capable}
    boards = [d for d in known_devices if d.compute_capability in capabilities or (amd and d.vendor == "AMD")]
    if slice_sms:  # a slice also has less memory and L2 than its GPU
        boards = [d for d in boards if (d.multiprocessors or 0) >= slice_sms]
    else:
        board_evidence = [replace(e, name=None, clock=None) for e in unique_evidence]
        boards = [d for d in boards if not any(contradictions(d, e) for e in board_evidence)]
    candidates = [d.id for d in boards]
    example = Option("hw", candidates[0] if candidates else "mi300x" if amd else "a100")
    raise UnknownDevice(f"{where}: {unknown}{missing}; give one, as in ", example, candidates=candidates)


def _capability_and_sms(evidence: Evidence) -> str:
    """What is known of both, in words: `compute capability 9.0 and 114 SMs`."""
    capability = [f"compute capability {evidence.compute_capability}"] if evidence.compute_capability else []
    sms = [f"{evidence.multiprocessors} SMs"] if evidence.multiprocessors else []
    return " and ".join(capability + sms)


def _other_boost_clock(evidence: Evidence) -> DeviceIdentification | None:
    """The known device of this name whose clock alone differs.

    Its ceilings are scaled to the clock in the profile, unless that is the clock of an idle GPU.
    """
    if evidence.name is None or not evidence.clock:
        return None
    without_clock = replace(evidence, clock=None)
    boards = [d for d in _known_gpus() if "boost" in d.clocks and not contradictions(d, without_clock)]
    if len(boards) != 1:
        return None
    board = Device.load(boards[0].id)
    stated, own = (units.si(clock, "Hz", 4) for clock in (evidence.clock, board.clocks["boost"]))
    if not 0.5 < evidence.clock / board.clocks["boost"] < 1.3:
        note = f"the file states a clock of {stated}, which is no boost clock of {board.id}: its own ceilings are used"
        return DeviceIdentification(board, "attributes", (note,))
    if set(board.clocks) != {"boost"}:  # the clock of its tensor cores does not follow from this one
        return None
    note = f"the ceilings of {board.id} are scaled to the file's boost clock, {stated} instead of {own}"
    return DeviceIdentification(with_boost_clock(board, evidence.clock), "attributes", (note,))


def device_of(evidence: Evidence) -> Device | None:
    """The device that the attributes of a profile describe; None if they do not suffice."""
    e = evidence
    if not (e.name and e.compute_capability and e.multiprocessors and e.clock and e.dram_bandwidth):
        return None
    if e.compute_capability in JETSON:
        return None
    return derived(
        e.name, e.compute_capability, e.multiprocessors, e.clock, e.dram_bandwidth, e.dram_bytes, e.l2_bytes
    )  # fmt: skip


def _missing(evidence: Evidence) -> str:
    """The attributes that the file lacks to derive the device."""
    bandwidth = None if evidence.compute_capability in JETSON else evidence.dram_bandwidth
    needed = {"SMs": evidence.multiprocessors, "clock": evidence.clock, "DRAM bandwidth": bandwidth}
    absent = [name for name, value in needed.items() if not value]
    if len(absent) > 1:
        return f", and the file states neither its {' nor its '.join(absent)}"
    return f", and the file does not state its {absent[0]}" if absent else ""


@cache
def _known_gpus() -> tuple[Device, ...]:
    """The known GPUs, without their timing models. TPUs have no multiprocessors, so they would match any profile."""
    return tuple(device for device in map(Device.describe, library.names()) if device.multiprocessors is not None)


def _contradictions_by_file(device: Device, evidence: Iterable[Evidence]) -> list[str]:
    """For each file that contradicts the device: `FILE has compute capability 8.0, not 7.0`."""
    by_file = ((e.file or "the file", contradictions(device, e)) for e in evidence)
    return [f"{file} has {'; '.join(texts)}" for file, texts in by_file if texts]


def others(device: Device, gpus: Iterable[str], file: str) -> tuple[str, ...]:
    """A warning if rows of a table were measured on other GPUs (by name) than the given device; else empty."""
    names = [name for name in dict.fromkeys(gpus) if name and contradictions(device, Evidence(name=name))]
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    listed = ", ".join(names[:3]) + more
    return (f"{device.id} was given ({device.name}), but {file} has rows of {listed}",) if names else ()


def contradictions(device: Device, evidence: Evidence) -> list[str]:
    """Differences between the evidence and the device's file, in words: `compute capability 8.0, not 7.0`."""
    differences = []

    def differ(
        quantity: str, unit: str, device_value: float | None, file_value: float | None, tolerance: float
    ) -> None:
        if device_value is not None and file_value is not None and abs(file_value / device_value - 1) > tolerance:
            shown = (
                units.binary(value) if unit == "B" else units.si(value, unit, 4) for value in (file_value, device_value)
            )
            differences.append(f"{quantity} {', not '.join(shown)}")

    if evidence.amd and device.vendor not in (None, "AMD"):
        differences.append(f"vendor AMD, not {device.vendor}")
    own, other = device.compute_capability, evidence.compute_capability
    if own is not None and other is not None and own != other:
        differences.append(f"compute capability {other}, not {own}")
    differ("multiprocessors", "", device.multiprocessors, evidence.multiprocessors, 0)
    l2 = device.levels.get("l2")
    differ("L2", "B", l2.capacity if l2 else None, evidence.l2_bytes, 0.01)
    # The driver reports other clocks for the GPU and the memory of a system on a chip than its datasheet.
    if not device.shares_memory:
        # drivers report bus width x clock, datasheets a rounded value
        differ("DRAM bandwidth", "B/s", device.bandwidth, evidence.dram_bandwidth, 0.025)
        differ("boost clock", "Hz", device.clocks.get("boost"), evidence.clock, 0.01)
    # usable memory is up to 8 % less than the nominal size, and never more
    is_more = (evidence.dram_bytes or 0) > (device.capacity or 0)
    differ("DRAM", "B", device.capacity, evidence.dram_bytes, 0.01 if is_more else 0.09)
    if evidence.name is not None:
        evidence_parts, device_parts = _name_parts(evidence.name), _name_parts(device.name)
        unknown_chip = evidence_parts[0] is None and device_parts[0] is not None  # two unknown chips may be the same
        if unknown_chip or any(
            part is not None and part != own for part, own in zip(evidence_parts, device_parts, strict=True)
        ):
            differences.append(f"name {evidence.name!r}, not {device.name!r}")
    return differences


def _differences(first: Evidence, second: Evidence) -> str:
    """How the devices of two files differ, in words; empty if they may be the same device."""
    # older drivers omit the prefix
    names = [e.name.removeprefix("NVIDIA ") if e.name else None for e in (first, second)]
    attributes = (
        ("name", names[0], names[1]),
        ("compute capability", first.compute_capability, second.compute_capability),
        ("multiprocessors", first.multiprocessors, second.multiprocessors),
    )
    return ", ".join(f"{attribute} {a} and {b}" for attribute, a, b in attributes if a and b and a != b)


def _suggested_name(evidence: Evidence) -> str:
    """The name of a file's device for a suggested command; `HW` if it is ambiguous."""
    matching = [device.id for device in _known_gpus() if not contradictions(device, evidence)]
    return matching[0] if len(matching) == 1 else GENERATION_ALIAS.get(evidence.compute_capability or "", "HW")


def _name_parts(name: str) -> tuple[str | None, str | None, str | None]:
    """Chip, form factor and gigabytes in a device's name; None if absent or ambiguous (`SXM or PCIe`)."""
    spaced = re.sub("[-_]", " ", name)  # tables also join the words of a name: RTX-PRO-6000-Blackwell-Server
    spaced = re.sub(r"(?:A100 )?PG50[69]\b", "A100 SXM4", spaced)  # the boards of the A100 SXM4, as A100-PG509-200
    candidates = [
        {match[group].lower() for match in _NAME_PARTS.finditer(spaced) if match[group]} for group in (1, 2, 3)
    ]
    chip, form, size = (parts.pop() if len(parts) == 1 else None for parts in candidates)
    return (chip, form, size)
