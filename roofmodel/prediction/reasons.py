"""Why an expected time is what it is: the formula as its module states it, its parameters, its parts."""

from __future__ import annotations

import importlib
import inspect
from typing import NamedTuple

from roofmodel.devices import calibration
from roofmodel.devices.device import Device
from roofmodel.prediction import gemm
from roofmodel.prediction.chip import chip
from roofmodel.prediction.timing import Formula
from roofmodel.remarks import remarks


class Parameter(NamedTuple):
    """A fitted parameter, and what it means."""

    name: str
    value: float
    meaning: str


def stated(formula: Formula) -> str:
    """The formula in words, as the docstring of its module puts it."""
    module = importlib.import_module(f"roofmodel.prediction.{formula.name}")
    return inspect.getdoc(module) or ""


def parameters(formula: Formula) -> list[Parameter]:
    """The set that was fitted."""
    meanings = remarks(calibration, type(formula.parameters).__name__)
    return [Parameter(name, value, meanings.get(name, "")) for name, value in formula.parameters._asdict().items()]


def best_way(formula: Formula, device: Device, dtype: str) -> gemm.Way | None:
    """Of a matrix product: the tile and split that were taken, and what each part of the time is."""
    ceilings = chip(device, dtype)
    if formula.name != "gemm" or ceilings is None:
        return None
    return gemm.best_way(formula.asked, ceilings, formula.parameters)
