"""Functions of the packaged models, the model families and the devices."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from functools import partial
from typing import TypeVar

from roofmodel.catalog.report import DeviceListing, HardwareCheck, Listing
from roofmodel.devices.device import Device, Hardware, device_name
from roofmodel.errors import (
    LIST_FAMILIES,
    LIST_HARDWARE,
    LIST_MODELS,
    Command,
    DeviceError,
    ModelError,
    Option,
    RoofError,
    WorkloadError,
    shorten,
    suggest,
)
from roofmodel.options.signature import checked
from roofmodel.options.values import Model, PathLike, path

Entry = TypeVar("Entry")


@checked
def list_models(containing: str | None = None) -> Listing:
    """List the packaged models.

    Raises ModelError where there is none.

    Args:
        containing: List only models whose name or type contains this text.

    Examples:
        >>> list_models("gpt2-xl").data[0]["parameters"]
        1557611200
        >>> list_models().data[0].keys()
        dict_keys(['name', 'model_type', 'parameters'])
    """
    from roofmodel.catalog import listing
    from roofmodel.models import hub

    models = list(hub.catalog())
    if containing is not None:
        models = _containing(containing, models, lambda model: (model.id, model.config["model_type"]))
        if not models:
            names = (
                name for model in hub.catalog() for name in (model.id.partition("/")[2], model.config["model_type"])
            )
            raise ModelError(*_none_contains("model", containing, names, LIST_MODELS))
    return Listing(listing.models(models))


@checked
def list_families(containing: str | None = None) -> Listing:
    """List the model types that can be counted, with their classes.

    Raises ModelError where there is none.

    Args:
        containing: List only model types whose name or classes contain this text.

    Examples:
        >>> "llama" in [family["model_type"] for family in list_families().data]
        True
    """
    from roofmodel.catalog import listing
    from roofmodel.models.families import CUSTOM_CODE, FAMILIES

    classes = listing.classes({**FAMILIES, **CUSTOM_CODE})
    names = list(classes)
    if containing is not None:
        names = _containing(containing, names, lambda name: (name, *classes[name]))
        if not names:
            raise ModelError(*_none_contains("model type or class", containing, classes, LIST_FAMILIES))
    chosen = ({name: group[name] for name in names if name in group} for group in (FAMILIES, CUSTOM_CODE))
    return Listing(listing.families(*chosen))


@checked
def show_model(model: Model, *, family: str | None = None) -> Listing:
    """Show the architecture of a model, and the config key of each field.

    Raises ModelError.

    Args:
        model: A model, as for estimate.
        family: Read an unknown model_type as this family, such as llama.

    Examples:
        >>> show_model("gpt2").data["fields"]["hidden"]["value"]
        768
    """
    from roofmodel.catalog import listing
    from roofmodel.models import hub

    architecture = hub.load(model, family)
    entry = hub.packaged(model) if isinstance(model, str) else None
    return Listing(listing.model(architecture, entry), notes=architecture.notes)


@checked
def list_hardware(containing: str | None = None) -> Listing:
    """List the packaged devices.

    A file that cannot be read becomes a warning. Raises DeviceError where no name contains the text.

    Args:
        containing: List only devices whose name contains this text.

    Examples:
        >>> "a100-sxm-80gb" in [device["name"] for device in list_hardware().data]
        True
    """
    from roofmodel.catalog import listing
    from roofmodel.devices import library

    devices, warnings = [], []
    for name in library.names():
        try:
            devices.append(Device.load(name))
        except RoofError as error:  # one invalid file of the user must not hide the others
            warnings.append(str(error))
    if containing is not None:
        chosen = _containing(containing, devices, lambda device: (device.id, device.name))
        if not chosen:
            names = (*library.ALIASES, *(device.id for device in devices))
            raise DeviceError(*_none_contains("device", containing, names, LIST_HARDWARE))
        devices = chosen
    return Listing(listing.devices(devices, library.ALIASES), warnings=warnings)


def _containing(text: str, entries: Iterable[Entry], names: Callable[[Entry], Iterable[str]]) -> list[Entry]:
    """The entries that have a name with the text in it, in any case."""
    wanted = text.lower()
    return [entry for entry in entries if any(wanted in name.lower() for name in names(entry))]


def _none_contains(kind: str, text: str, names: Iterable[str], listing: Command) -> tuple[str | Command, ...]:
    """The message that no name contains a text, with similar names."""
    hint = suggest(text, names)
    return f"no {kind} name contains {shorten(text)}{hint or ';'} ", listing, " lists all"


def show_hardware(hw: Hardware | None = None, *, profile: PathLike | None = None) -> DeviceListing:
    """Show the ceilings of a device, with their sources.

    Raises RoofError.

    Args:
        hw: A packaged name or a YAML file.
        profile: Show the device of a profiler file. If no device file describes it, its ceilings are derived from the
            profile.

    Examples:
        >>> show_hardware("a100").data["name"]
        'NVIDIA A100 SXM4 80 GB'
    """
    from roofmodel.catalog import listing
    from roofmodel.devices import library
    from roofmodel.devices.derived import device_yaml

    if (hw is None) == (profile is None):
        raise WorkloadError("give either a device or a profiler file with ", Option("profile", "FILE"))
    if profile is None:
        assert hw is not None
        return DeviceListing(listing.device(Device.load(hw)), lambda: library.text(device_name(hw)))
    from roofmodel.roofline.device import identify
    from roofmodel.roofline.inputs import read_runs

    (run,) = read_runs([path("profile", profile)], None)
    identity = identify(run.profile.evidence, None, run.profile.files)
    device, name = identity.device, identity.known_name
    packaged = partial(library.text_at_clock, name or "", device.clocks.get("boost"))
    yaml = packaged if name else partial(device_yaml, device)
    return DeviceListing(listing.device(device), yaml, identity.warnings)


def check_hardware(file: PathLike) -> HardwareCheck:
    """Check a device's YAML file: units, names, sources, and whether its numbers are consistent.

    Raises DeviceError.

    Args:
        file: A device's YAML file.

    Examples:
        >>> check_hardware("examples/toy-gpu.yaml").warnings
        ()
    """
    from roofmodel.devices.ceilings import doubtful_entries

    device = Device.load(file)
    return HardwareCheck(os.fspath(file), device, doubtful_entries(device))
