"""roofmodel: FLOPs, bytes and time of transformers on a GPU, predicted and measured, on the roofline.

>>> import roofmodel
>>> report = roofmodel.estimate("gpt2-xl", "a100", batch=8)
>>> f"{report.totals['decode']['bound_seconds']:.2e} s"
'2.78e-03 s'
"""

from __future__ import annotations

TYPE_CHECKING = False  # type checkers take it as true; importing `typing` would delay the handler of Ctrl-C by 10 ms

__version__ = "0.1.0"

__all__ = [
    "AnswerError",
    "CalibrationReport",
    "CollectionCommand",
    "CompareReport",
    "CountReport",
    "Derivation",
    "Device",
    "DeviceError",
    "ExplorePage",
    "HardwareCheck",
    "HomeworkSheet",
    "JitterReport",
    "Listing",
    "MeasureReport",
    "ModelError",
    "OutputError",
    "PlanReport",
    "PlotReport",
    "ProfileError",
    "ProfileReport",
    "Report",
    "RoofError",
    "SweepReport",
    "TraceReport",
    "TrainingPlanReport",
    "ValidationReport",
    "WorkloadError",
    "calibrate",
    "check_hardware",
    "check_homework",
    "compare",
    "conventions",
    "count",
    "crossover",
    "estimate",
    "explain",
    "explore",
    "homework",
    "jitter",
    "list_families",
    "list_hardware",
    "list_models",
    "measure",
    "ncu_command",
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

    from roofmodel.api import (
        CalibrationReport,
        CollectionCommand,
        CompareReport,
        CountReport,
        Derivation,
        Device,
        ExplorePage,
        HardwareCheck,
        HomeworkSheet,
        JitterReport,
        Listing,
        MeasureReport,
        PlanReport,
        PlotReport,
        ProfileReport,
        Report,
        SweepReport,
        TraceReport,
        TrainingPlanReport,
        ValidationReport,
        calibrate,
        check_hardware,
        check_homework,
        compare,
        conventions,
        count,
        crossover,
        estimate,
        explain,
        explore,
        homework,
        jitter,
        list_families,
        list_hardware,
        list_models,
        measure,
        ncu_command,
        plan,
        plan_training,
        plot,
        read_profile,
        reconcile,
        show_hardware,
        show_model,
        sweep,
        trace,
        validate,
    )
    from roofmodel.errors import (
        AnswerError,
        DeviceError,
        ModelError,
        OutputError,
        ProfileError,
        RoofError,
        WorkloadError,
    )


def __getattr__(name: str) -> Any:
    """Import a public name at its first use, so that `import roofmodel` is fast."""
    if name not in __all__:
        raise AttributeError(f"module 'roofmodel' has no attribute {name!r}")
    import importlib

    module = "roofmodel.errors" if name.endswith("Error") else "roofmodel.api"
    value = getattr(importlib.import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
