"""Functions of the library: one for each command of `roof`, with the same options and the same results.

Each function returns a report with `.to_dict()`, `.to_frame()`, `.notes`, `.save(path)` where they apply, and shows
its tables in a notebook. Errors are `RoofError` and its subclasses.
"""

from __future__ import annotations

from importlib import import_module

TYPE_CHECKING = False  # type checkers and editors take it as true
if TYPE_CHECKING:
    from roofmodel.api.catalog import (
        check_hardware,
        list_families,
        list_hardware,
        list_models,
        show_hardware,
        show_model,
    )
    from roofmodel.api.measurements import (
        calibrate,
        compare,
        count,
        jitter,
        measure,
        ncu_command,
        plot,
        read_profile,
        trace,
        validate,
    )
    from roofmodel.api.plans import plan, plan_training
    from roofmodel.api.predictions import (
        conventions,
        crossover,
        estimate,
        explain,
        explore,
        reconcile,
        sweep,
    )
    from roofmodel.api.problem_sheets import check_homework, homework
    from roofmodel.devices.device import Device
    from roofmodel.reports.measurements import (
        CalibrationReport,
        CollectionCommand,
        CompareReport,
        CountReport,
        HardwareCheck,
        Listing,
        MeasureReport,
        PlotReport,
        ProfileReport,
        ValidationReport,
    )
    from roofmodel.reports.plans import PlanReport, TrainingPlanReport
    from roofmodel.reports.predictions import Derivation, ExplorePage, HomeworkSheet, Report, SweepReport
    from roofmodel.reports.runs import JitterReport, TraceReport

__all__ = [
    "CalibrationReport", "CollectionCommand", "CompareReport", "CountReport", "Derivation", "Device", "ExplorePage",
    "HardwareCheck", "HomeworkSheet", "JitterReport", "Listing", "MeasureReport", "PlanReport", "PlotReport",
    "ProfileReport", "Report", "SweepReport", "TraceReport", "TrainingPlanReport", "ValidationReport", "calibrate",
    "check_hardware", "check_homework", "compare", "conventions", "count", "crossover", "estimate", "explain",
    "explore", "homework", "jitter", "list_families", "list_hardware", "list_models", "measure", "ncu_command", "plan",
    "plan_training", "plot", "read_profile", "reconcile", "show_hardware", "show_model", "sweep", "trace", "validate",
]  # fmt: skip

_MODULES = "predictions", "plans", "measurements", "catalog", "problem_sheets"


def __getattr__(name: str) -> object:
    """Import the modules of this package one after the other until one has the name: `estimate` needs only one."""
    for module in map(import_module, (f"{__name__}.{module}" for module in _MODULES if name in __all__)):
        if hasattr(module, name):
            globals()[name] = getattr(module, name)
            return globals()[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
