"""The kernels that a user's engine file names: each must have parameters on some device."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from roofmodel.devices import library
from roofmodel.devices.calibration import Calibration
from roofmodel.devices.device import Device
from roofmodel.engines.engine import Engine, stated_kernels
from roofmodel.errors import choices


def check_kernels(engine: Engine, devices: Iterable[Device]) -> None:
    """Raises EngineError, with file and line, for a kernel that neither these devices nor any known device has."""
    for kind, name in stated_kernels(engine):
        own = [kernel for device in devices for kernel in getattr(device.calibration, kind, ())]
        if name.text() not in own and name.text() not in (known := _known_kernels()[kind]):
            hint = choices(name.text(), dict.fromkeys([*own, *known]))
            raise name.error(f"no device has parameters of the {kind} kernel {name.text()!r}{hint}")


@cache
def _known_kernels() -> dict[str, tuple[str, ...]]:
    """The kernels of all known devices by kind."""
    calibrations = [found for name in library.names() if (found := Device.load(name).calibration)]
    kinds = Calibration._fields[2:]  # without device and transferred
    return {kind: tuple(dict.fromkeys(k for each in calibrations for k in getattr(each, kind))) for kind in kinds}
