"""How tables and pictures of a sweep name its options and its points."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from roofmodel.options.serving import ServeRequest
from roofmodel.options.workload import DECLARED, DEFAULTS, PARALLELISM, key_of
from roofmodel.sweep.case import FORMAT_OPTIONS, LENGTHS, OPTION_COLUMNS
from roofmodel.sweep.scaling_laws import LawFit, Scaling
from roofmodel.sweep.sweep import Sweep
from roofmodel.sweep.tables import SERVICE_OPTIONS

TITLES = {
    "model": "model", "hardware": "device",
    **{column: DECLARED[name].title or name.replace("_", "-") for column, name in OPTION_COLUMNS.items()},
    **{name: name.replace("_", "-") for name in SERVICE_OPTIONS},
}  # fmt: skip
HEADING_OPTIONS = {
    key_of(name): name for name, option in DECLARED.items()
    if (DEFAULTS[name] is not None or option.group == PARALLELISM)
    and name not in ("batch", "dtype", "attention", "fsdp")
}  # fmt: skip
"""The options that the heading states if all points have the same value and it is not the default; `zero` says what
`fsdp` does."""
LAWS_OF_MODES = {"strong": "amdahl", "weak": "gustafson"}
LAW_NAMES = {"amdahl": "Amdahl", "gustafson": "Gustafson"}
VARYING = (
    "model",
    "hardware",
    "phase",
    "seq",
    "context",
    "dtype",
    "weights",
    "kv",
    "engine",
    "engine_option",
    "tp",
    "dp",
    "pp",
)


def option_values(sweep: Sweep, name: str) -> set[object]:
    """The values that options set in a column; none for formats that equal `dtype`, or a schedule that `vpp` states."""
    if name in LENGTHS:
        return {value for case in sweep.cases for value in case.lengths[LENGTHS.index(name)][:2]}
    labels = [case.labels for case in sweep.cases]
    if name in FORMAT_OPTIONS and all(label[name] == label["dtype"] for label in labels):
        return set()
    if name == "schedule":
        schedules = {(label.get("vpp"), label.get(name)) for label in labels if label.get(name) is not None}
        if len(schedules) == len({parts for parts, _ in schedules}):
            return set()
    values = {label.get(name) for label in labels}
    return values if name == "micro_batch" else values - {None}  # None: the whole batch


def described(sweep: Sweep) -> str:
    """The options that all points share, as text."""
    shared_values = {name: next(iter(values)) for name in TITLES if len(values := option_values(sweep, name)) == 1}
    words = [str(shared_values[name]) for name in ("model", "hardware", "phase", "dtype") if name in shared_values]
    words += [
        f"{name} {shared_values[name]}" for name in ("batch", "seq", "context", "new_tokens") if name in shared_values
    ]
    words += [
        f"{TITLES[name]} {shared_values[name]}"
        for name in SERVICE_OPTIONS
        if name in shared_values and shared_values[name] != ServeRequest._field_defaults.get(name)
    ]
    words += [f"{name} {shared_values[name]}" for name in FORMAT_OPTIONS if name in shared_values]
    words += [f"{shared_values['attention']} attention"] if "attention" in shared_values else []
    words += [str(shared_values[name]) for name in ("engine", "engine_option") if name in shared_values]
    words += [
        f"{TITLES[column]} {shared_values[column]}"
        for column, name in HEADING_OPTIONS.items()
        if shared_values.get(column, DEFAULTS[name]) != DEFAULTS[name]
    ]
    return " · ".join(words)


def sweeps_power(sweep: Sweep) -> bool:
    """Whether points differ in the power limit, on a device whose file states power."""
    return len(option_values(sweep, "power_limit_watts")) > 1 and any(case.device.power for case in sweep.cases)


# --- Scaling --------------------------------------------------------------------------------------


def subtitle(sweep_rows: Sequence[dict[str, Any]]) -> str:
    """The model, device and phase, where all rows have the same: `gpt2 · a100-sxm-80gb · train`."""
    return " · ".join(str(sweep_rows[0][name]) for name in VARYING[:3] if len({row[name] for row in sweep_rows}) == 1)


def varying_names(sweep_rows: Sequence[dict[str, Any]], scaling: Scaling) -> list[str]:
    """The columns that distinguish curves."""
    return [name for name in VARYING if name != scaling.share and len({row[name] for row in sweep_rows}) > 1]


def suits(law: LawFit, mode: str) -> bool:
    """Whether a law describes this kind of scaling."""
    return law.law == LAWS_OF_MODES[mode]
