"""Expected times of operators that an engine fuses with neighboring ones (`roofmodel.engines.engine.FUSIONS`).

- GEMMs with the same input, such as queries, keys and values, or gate and up, run as one GEMM with all their columns
  (`qkv`, `gate_up`, `latent_down`).
- Where GEMMs compute in a narrower format than `--activations`, the previous kernel writes their input in that format
  (`quantize`).
- A residual add runs in the kernel of the norm after it, which then does not read the sum: the add costs its other
  bytes and no launch (`residual`).
- Rotary embedding runs in a neighboring kernel: it costs its bytes and no launch (`rotary`).
- The activation between the two GEMMs of the experts runs in their kernels: it costs its bytes and no launch
  (`experts`).
- A norm runs in the kernel of the all-reduce before it: it costs its bytes and no launch (`all_reduce_norm`).

The expected time of a fused kernel is never below its compulsory traffic, and is divided over its operators, so that
the time of one of them can be below its own bound.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from roofmodel.counting.operator import Operator
from roofmodel.devices.device import Device
from roofmodel.numbers.algebra import Number, maximum, minimum
from roofmodel.timing.elementwise import elementwise_kind
from roofmodel.timing.roofline import Placement
from roofmodel.timing.timing import Expected, Formula, clamp_to_bound


def merge_groups(operators: Sequence[Operator], fuses: frozenset[str]) -> Iterator[list[int]]:
    """The positions of the operators that run as one kernel, in the order of the first one; most are alone."""
    groups: dict[object, list[int]] = {}
    previous: object = None
    for place, operator in enumerate(operators):
        key = _input(operator, fuses)
        if key is None:
            yield [place]
            previous = None
            continue
        fusion = key[0]
        if fusion != "latent_down" and key != previous:  # these GEMMs follow each other
            groups.pop(key, None)
        previous = key
        groups.setdefault(key, []).append(place)
        if len(groups[key]) == 1:
            yield groups[key]


def _input(operator: Operator, fuses: frozenset[str]) -> tuple[Any, ...] | None:
    """The fusion of a GEMM, and a key that is equal for GEMMs that are merged: same input, layers and stage."""
    if operator.kind != "gemm" or operator.gemm is None:
        return None
    last = operator.name.rpartition(".")[2]
    fusion = "latent_down" if last in ("q_down", "kv_down") else "gate_up" if operator.group == "mlp" else "qkv"
    if fusion not in fuses:
        return None
    unconverted = operator.multiplies_unconverted_weights
    return fusion, operator.lines[0].factors[0], operator.group, operator.layers, operator.stage, unconverted


def share_of_merged(
    operators: Sequence[Operator], bounds: Sequence[Placement], formula: Formula, columns: Sequence[Number],
    device: Device, dtype: str,
) -> Iterator[Expected]:  # fmt: skip
    """The shares of a merged GEMM's time by columns; all of it is never below the bound of the merged GEMM."""
    if len(operators) == 1:
        yield clamp_to_bound(formula.seconds, formula.fit, bounds[0].bound_seconds)
        return
    first, *others = operators
    input_bytes = first.bytes_of(first.reads[0])
    data = sum(bound.cost.bytes for bound in bounds) - len(others) * input_bytes
    least = maximum(sum(bound.matmul_seconds for bound in bounds), data / device.bandwidth)
    total, every = clamp_to_bound(formula.seconds, formula.fit, least), sum(columns)
    for own in columns:
        yield Expected(*(seconds * own / every for seconds in total))


def absorbs(operator: Operator, fuses: frozenset[str], follows_all_reduce: bool) -> str:
    """The fusion by which an operator runs inside a neighboring kernel; empty if it does not."""
    if operator.kind == "elementwise":
        is_of_experts = operator.name.endswith("expert_activation")
        fusion = (
            "experts" if is_of_experts else {"add": "residual", "rotary": "rotary"}.get(elementwise_kind(operator), "")
        )
    else:
        fusion = "all_reduce_norm" if operator.kind == "norm" and follows_all_reduce else ""
    return fusion if fusion in fuses else ""


def absorbed(operator: Operator, time: Expected, bound: Placement, fusion: str, device: Device) -> Expected:
    """The time of an operator inside a neighboring kernel: of its bytes, at most that of a kernel of its own."""
    least = bound.bound_seconds
    if operator.group == "residual":  # the norm has the sum in registers, so that its own read of the sum costs nothing
        least = least - operator.bytes_of(operator.writes[0]) / device.bandwidth
    least = minimum(time.value, least)
    return Expected(least, least, time.high)
