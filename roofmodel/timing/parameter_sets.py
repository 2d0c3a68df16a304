"""The parameter set that an operator's expected time uses: the one of its formats, or the nearest one."""

from __future__ import annotations

from math import inf, log2
from typing import Any, NamedTuple, Protocol

from roofmodel.counting.operator import Operator
from roofmodel.counting.tensors import number_format
from roofmodel.devices.calibration import MAX_TRANSFER_ERROR, Fit, Fitted, Sets, Timing
from roofmodel.engines.engine import AllReduce


class ParameterSet(NamedTuple):
    """Fitted parameters, their fit, implementation and format key; `is_substitute` if the operator has another key."""

    timing: Any
    fit: Fit
    implementation: str
    format_key: str
    is_substitute: bool = False


class Preference(Protocol):
    """Which kernels are preferred, by kind of parameters and format key, the first one most; the own all-reduce;
    whether the embedding is padded."""

    def implementations(self, kind: str, key: str) -> tuple[str, ...]: ...
    @property
    def all_reduce(self) -> AllReduce | None: ...
    @property
    def pads_vocabulary(self) -> bool: ...


Implementation = str | Preference
"""The name of a parameter set, as the column `kernel` of a table of measurements has it, or the kernels of an
engine."""


def names_of(implementation: Implementation, kind: str, key: str) -> tuple[str, ...]:
    """The preferred implementations of a kind of kernel."""
    return (implementation,) if isinstance(implementation, str) else implementation.implementations(kind, key)


def choose_set(sets: Sets[Timing], implementation: str | tuple[str, ...], key: str) -> ParameterSet | None:
    """The parameter set for an implementation and a format key, or the nearest one; None where there are no sets.

    Several implementations are in order of preference. Sets are ranked by, in this order: same formats; mean error of
    at most MAX_TRANSFER_ERROR; same compute format with a stored format of similar width; preferred implementation;
    order in the file, whose first set is the default. A set for another format key gets a wider interval.
    """
    wanted_names = (implementation,) if isinstance(implementation, str) else implementation
    for each in wanted_names:
        if key in (sets_by_key := sets.get(each, {})):
            return ParameterSet(*sets_by_key[key], each, key)
    if key == "sockets" and sets and not any(key in by_key for by_key in sets.values()):
        substitute = choose_set(sets, implementation, "pcie")
        return substitute and substitute._replace(fit=substitute.fit.wider(2), is_substitute=True)
    candidates = [(name, other, fitted_set) for name, by_key in sets.items() for other, fitted_set in by_key.items()]
    if not candidates:
        return None

    ranks = {each: rank for rank, each in reversed([*enumerate(wanted_names)])}

    def distance(candidate: tuple[str, str, Fitted[Timing]]) -> tuple[bool, bool, float, int]:
        name, other, (_, fit) = candidate
        wanted, offered = key.split("/"), other.split("/")
        width = _width_distance(*wanted[1:2], *offered[1:2]) if wanted[0] == offered[0] else inf  # same compute format
        poor = fit.error > MAX_TRANSFER_ERROR
        return wanted != offered, poor, width, ranks.get(name, len(wanted_names))

    name, other, (timing, fit) = min(candidates, key=distance)
    if other == key:
        return ParameterSet(timing, fit, name, key)
    return ParameterSet(timing, fit.wider(2), name, other, is_substitute=True)


def _width_distance(stored: str = "", other: str = "") -> float:
    """How many times the width of one format doubles or halves to that of the other; 0 for unknown formats."""
    try:
        return abs(log2(number_format(stored).bits / number_format(other).bits))
    except KeyError:
        return 0.0


def operator_format_key(operator: Operator, dtype: str) -> str:
    """The format key of an operator's kernel: compute format / weight format, such as `fp16/int4`.

    For attention: compute format / KV cache format.
    """
    widths, line = operator.widths, operator.lines[0]
    if operator.kind != "attention":
        matrix = next((tensor for tensor in line.factors if tensor.is_parameter), None) if line.contracted else None
        return format_key(dtype, widths.format(matrix).name if matrix else dtype)
    return format_key(dtype, widths.kv.name)


def format_key(dtype: str, stored: str) -> str:
    """The key of a parameter set: compute format / stored format, such as `fp16/int4`; bf16 shares fp16's sets."""
    return "/".join("fp16" if name == "bf16" else name for name in (dtype, stored))
