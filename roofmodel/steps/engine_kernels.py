"""The kernels that an engine's file names: on which devices they have parameters, and for which formats."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from itertools import product

from roofmodel.devices import library
from roofmodel.devices.calibration import Calibration
from roofmodel.devices.device import Device
from roofmodel.engines.engine import CHOICES, Engine, stated_kernels
from roofmodel.errors import choices
from roofmodel.timing.parameter_sets import format_key


def check_kernels(engine: Engine, devices: Iterable[Device]) -> None:
    """Raises EngineError, with file and line, for a kernel that neither these devices nor any known device has."""
    for kind, name in stated_kernels(engine):
        own = [kernel for device in devices for kernel in getattr(device.calibration, kind, ())]
        if name.text() not in own and name.text() not in (known_kernels := _known_kernels()[kind]):
            hint = choices(name.text(), dict.fromkeys([*own, *known_kernels]))
            raise name.error(f"no device has parameters of the {kind} kernel {name.text()!r}{hint}")


@cache
def _known_kernels() -> dict[str, tuple[str, ...]]:
    """The kernels of all known devices by kind."""
    calibrations = [calibration for name in library.names() if (calibration := Device.load(name).calibration)]
    kinds = Calibration._fields[2:]  # without device and transferred
    return {kind: tuple(dict.fromkeys(k for each in calibrations for k in getattr(each, kind))) for kind in kinds}


def runs(engine: Engine, device: Device, option: str, stored: str, compute: str | None = None) -> bool:
    """Whether the engine has a kernel that reads data in a stored format, and computes in `compute`, if that is given.

    A kernel of the kind that `option` chooses (`gemm`, `attention`) needs parameters for these formats that were fitted
    on a device of the same generation. Where no device of the generation has parameters, a pipe for the format decides.
    """
    fitted = [source.calibration for source in (device, *_fitted(device.generation)) if source.calibration is not None]
    if not fitted:
        return stored in device.types
    wanted = format_key(compute or "", stored)
    wanted_compute, wanted_stored = wanted.split("/")
    for calibration, kind in product(fitted, CHOICES[option]):
        if calibration.fitted_on(kind) != calibration.device:
            continue
        for name in engine.implementations(kind, wanted, device.generation):
            keys = (key.split("/") for key in getattr(calibration, kind).get(name, ()))
            if any(key[1] == wanted_stored and (compute is None or key[0] == wanted_compute) for key in keys):
                return True
    return False


@cache
def _fitted(generation: str | None) -> tuple[Device, ...]:
    """The devices of a generation that come with roofmodel and have fitted parameters of their own."""
    fitted = (name for name in library.names() if library.fitted_file(library.find(name)))
    return tuple(other for other in map(Device.load, fitted) if generation and other.generation == generation)
