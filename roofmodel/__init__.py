"""roofmodel: FLOPs, bytes and time of transformers on a GPU, predicted and measured, on the roofline.

>>> import roofmodel
>>> report = roofmodel.estimate("gpt2-xl", "a100", batch=8)
>>> f"{report.totals['decode']['bound_seconds']:.2e} s"
'2.78e-03 s'
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType

TYPE_CHECKING = False  # type checkers take it as true; importing `typing` would delay the handler of Ctrl-C by 10 ms

__all__ = [
    "AnswerError",
    "CalibrationReport",
    "CollectionCommand",
    "CompareReport",
    "CountReport",
    "CrossoverReport",
    "Derivation",
    "Device",
    "DeviceError",
    "EngineCalibrationReport",
    "EngineError",
    "ExplorePage",
    "HardwareCheck",
    "HomeworkClass",
    "HomeworkGrades",
    "HomeworkSheet",
    "JitterReport",
    "Listing",
    "MeasureReport",
    "ModelError",
    "OpReport",
    "OutputError",
    "PlanReport",
    "PlotReport",
    "ProfileError",
    "ProfileReport",
    "Report",
    "RoofError",
    "ServingReport",
    "SweepReport",
    "TraceReport",
    "TrainingPlanReport",
    "ValidationReport",
    "WorkloadError",
    "calibrate",
    "calibrate_engine",
    "check_hardware",
    "check_homework",
    "compare",
    "conventions",
    "count",
    "crossover",
    "estimate",
    "explain",
    "explore",
    "grade_homework",
    "homework",
    "homework_class",
    "homework_practice",
    "jitter",
    "list_families",
    "list_hardware",
    "list_models",
    "measure",
    "ncu_command",
    "nsys_command",
    "op",
    "plan",
    "plan_training",
    "plot",
    "read_profile",
    "reconcile",
    "show_hardware",
    "show_model",
    "sweep",
    "trace",
    "validate",
]

if TYPE_CHECKING:
    from typing import Any

    from roofmodel.catalog.hw_command import HardwareCheck, check_hardware, list_hardware, show_hardware
    from roofmodel.catalog.models_command import Listing, list_families, list_models, show_model
    from roofmodel.compare.command import CompareReport, ServingReport, compare
    from roofmodel.compare.serving.calibration import EngineCalibrationReport, calibrate_engine
    from roofmodel.count.command import CountReport, count
    from roofmodel.devices.device import Device
    from roofmodel.errors import (
        AnswerError,
        DeviceError,
        EngineError,
        ModelError,
        OutputError,
        ProfileError,
        RoofError,
        WorkloadError,
    )
    from roofmodel.estimate.command import Report, estimate
    from roofmodel.explain.command import conventions, explain, reconcile
    from roofmodel.explain.crossover_command import CrossoverReport, crossover
    from roofmodel.explore.command import ExplorePage, explore
    from roofmodel.homework.command import (
        HomeworkClass,
        HomeworkGrades,
        HomeworkSheet,
        check_homework,
        grade_homework,
        homework,
        homework_class,
        homework_practice,
    )
    from roofmodel.jitter.command import JitterReport, jitter
    from roofmodel.measure.calibrate_command import CalibrationReport, calibrate
    from roofmodel.measure.command import MeasureReport, measure
    from roofmodel.measure.validate_command import ValidationReport, validate
    from roofmodel.op.command import OpReport, op
    from roofmodel.plan.command import PlanReport, TrainingPlanReport, plan, plan_training
    from roofmodel.plot.command import PlotReport, plot
    from roofmodel.plot.kernels_command import ProfileReport, read_profile
    from roofmodel.plot.ncu_command import CollectionCommand, ncu_command
    from roofmodel.plot.nsys_command import nsys_command
    from roofmodel.report.base import Derivation
    from roofmodel.sweep.command import SweepReport, sweep
    from roofmodel.trace.command import TraceReport, trace
    from roofmodel.version import __version__ as __version__


_NAMES = {
    "catalog.hw_command": "HardwareCheck check_hardware list_hardware show_hardware",
    "catalog.models_command": "Listing list_families list_models show_model",
    "compare.command": "CompareReport ServingReport compare",
    "compare.serving.calibration": "EngineCalibrationReport calibrate_engine",
    "count.command": "CountReport count",
    "devices.device": "Device",
    "errors": "AnswerError DeviceError EngineError ModelError OutputError ProfileError RoofError WorkloadError",
    "estimate.command": "Report estimate",
    "explain.command": "conventions explain reconcile",
    "explain.crossover_command": "CrossoverReport crossover",
    "explore.command": "ExplorePage explore",
    "homework.command": "HomeworkClass HomeworkGrades HomeworkSheet "
    "check_homework grade_homework homework homework_class homework_practice",
    "jitter.command": "JitterReport jitter",
    "measure.calibrate_command": "CalibrationReport calibrate",
    "measure.command": "MeasureReport measure",
    "measure.validate_command": "ValidationReport validate",
    "op.command": "OpReport op",
    "plan.command": "PlanReport TrainingPlanReport plan plan_training",
    "plot.command": "PlotReport plot",
    "plot.kernels_command": "ProfileReport read_profile",
    "plot.ncu_command": "CollectionCommand ncu_command",
    "plot.nsys_command": "nsys_command",
    "report.base": "Derivation",
    "sweep.command": "SweepReport sweep",
    "version": "__version__",
    "trace.command": "TraceReport trace",
}
"""The public names of each module."""
_MODULES = {name: module for module, names in _NAMES.items() for name in names.split()}


class _Package(ModuleType):
    """A folder may have the name of a function: its import does not replace the function."""

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in _MODULES and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def __getattr__(name: str) -> Any:
    """Import a public name at its first use, so that `import roofmodel` is fast."""
    if name not in _MODULES:
        raise AttributeError(f"module 'roofmodel' has no attribute {name!r}")
    value = getattr(import_module(f"roofmodel.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
