"""Functions of the packaged models, the model families and the devices."""

from __future__ import annotations

import os

from roofmodel import arguments
from roofmodel.arguments import Model, PathLike
from roofmodel.devices.device import Device, Hardware
from roofmodel.errors import RoofError
from roofmodel.reports.measurements import HardwareCheck, Listing


def list_models() -> Listing:
    """The packaged models.

    Examples:
        >>> list_models().data[0].keys()
        dict_keys(['name', 'model_type', 'parameters'])
    """
    from roofmodel.models import hub
    from roofmodel.views import listing

    return Listing(listing.models(list(hub.catalog())))


def list_families() -> Listing:
    """The model types that can be counted, with the source of each family's structure.

    Examples:
        >>> "llama" in [family["model_type"] for family in list_families().data]
        True
    """
    from roofmodel.models.families import CUSTOM_CODE, FAMILIES
    from roofmodel.views import listing

    return Listing(listing.families(FAMILIES, CUSTOM_CODE))


def show_model(model: Model, *, family: str | None = None) -> Listing:
    """A model's architecture, and the config key of each field. Raises ModelError.

    Examples:
        >>> show_model("gpt2").data["fields"]["hidden"]["value"]
        768
    """
    from roofmodel.models import hub
    from roofmodel.views import listing

    architecture = arguments.architecture(model, family)
    entry = hub.packaged(model) if isinstance(model, str) else None
    return Listing(listing.model(architecture, entry), notes=architecture.notes)


def list_hardware() -> Listing:
    """The devices known by name, with their ceilings; a file that cannot be read becomes a warning.

    Examples:
        >>> "a100-sxm-80gb" in [device["name"] for device in list_hardware().data]
        True
    """
    from roofmodel.devices import library
    from roofmodel.views import listing

    found, warnings = [], []
    for name in library.names():
        try:
            found.append(Device.load(name))
        except RoofError as error:  # one invalid file of the user must not hide the others
            warnings.append(str(error))
    return Listing(listing.devices(found, library.ALIASES), warnings=warnings)


def show_hardware(hw: Hardware) -> Listing:
    """A device's ceilings with their sources. Raises DeviceError.

    Examples:
        >>> show_hardware("a100").data["name"]
        'NVIDIA A100 SXM4 80 GB'
    """
    from roofmodel.views import listing

    return Listing(listing.device(arguments.device(hw)))


def check_hardware(file: PathLike) -> HardwareCheck:
    """Validate a device's YAML file: units, names, sources, and whether its numbers agree. Raises DeviceError.

    Examples:
        >>> check_hardware("examples/toy-gpu.yaml").warnings
        ()
    """
    from roofmodel.devices.ceilings import doubtful_entries

    device = Device.load(file)
    return HardwareCheck(os.fspath(file), device, doubtful_entries(device))
