"""roofmodel: count a transformer's FLOPs and bytes, and place them under a device's roofs.

>>> import roofmodel
>>> report = roofmodel.estimate("gpt2-xl", "a100", batch=8)
>>> report.totals["decode"]["bound_seconds"]
"""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

__all__ = [
    "AnswerError",
    "CompareReport",
    "Derivation",
    "Device",
    "DeviceError",
    "ModelError",
    "OutputError",
    "PlotReport",
    "ProfileError",
    "ProfileReport",
    "Report",
    "RoofError",
    "SweepReport",
    "WorkloadError",
    "check_homework",
    "compare",
    "crossover",
    "estimate",
    "explain",
    "homework",
    "plot",
    "read_profile",
    "sweep",
]

if TYPE_CHECKING:
    from roofmodel.api import (
        CompareReport,
        Derivation,
        Device,
        PlotReport,
        ProfileReport,
        Report,
        SweepReport,
        check_homework,
        compare,
        crossover,
        estimate,
        explain,
        homework,
        plot,
        read_profile,
        sweep,
    )  # fmt: skip
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
    """Names load what they need when they are first used, so that the import is instant."""
    if name not in __all__:
        raise AttributeError(f"module 'roofmodel' has no attribute {name!r}")
    import importlib

    home = "roofmodel.errors" if name.endswith("Error") else "roofmodel.api"
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
