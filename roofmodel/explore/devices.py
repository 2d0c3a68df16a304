"""Devices in the data of the explorable page: ceilings, links, and the fitted parameters that formulas use."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

from roofmodel.counting.tensors import COMPUTE_FORMATS, FORMATS
from roofmodel.devices.device import Device
from roofmodel.devices.library import ALIASES
from roofmodel.devices.parts import Link, Unaligned
from roofmodel.engines import engine
from roofmodel.engines.engine import Engine
from roofmodel.errors import WorkloadError
from roofmodel.explore.nodes import UniqueRecords
from roofmodel.numbers.traced import Node
from roofmodel.steps.notes import KERNEL_KINDS, gpus_per_node, link_notes
from roofmodel.timing.engine import Timing
from roofmodel.timing.formula import l2_bytes
from roofmodel.timing.parameter_sets import choose_set, format_key


def describe_device(
    device: Device, used: Sequence[tuple[str, ...]], sets: UniqueRecords, stored: Sequence[str] = tuple(FORMATS)
) -> dict[str, Any]:
    """A device: its figures, and the indices in `sets` of the `used` parameter sets that it has, by compute format and
    `stored` format."""
    return {
        "id": device.id,
        "name": device.name,
        "aliases": [alias for alias, name in ALIASES.items() if name == device.id],
        "parameters": _parameters(device, {kind for kind, *_ in used}),
        "capacity": _value(device.capacity),
        "bandwidth": _value(device.bandwidth),
        "l2": _value(l2_bytes(device)),
        "multiprocessors": _value(device.multiprocessors),
        "clock": _value(device.clocks.get("boost")),
        **_unaligned(device),
        "links": {name: link and _link(link) for name, link in _links(device).items()},
        "pairs_over_pcie": int(device.pairs_over_pcie),
        "no_link_note": next(map(str, link_notes(device, 2)), None),
        "node_size": gpus_per_node(device),
        "network_note": _network_note(device),
        "pipes": {dtype: pipes for dtype in COMPUTE_FORMATS if (pipes := _pipes(device, dtype))},
        "sets": {"|".join(keys): _sets(device, keys, sets, stored) for keys in used if _expects(device, keys[0])},
    }


def _unaligned(device: Device) -> dict[str, Any]:
    """The shares of the rate that GEMMs with unaligned rows reach; 1 where they are not measured."""
    shares = device.unaligned or Unaligned(1, 1)
    return {name: _value(share) for name, share in shares._asdict().items() if name != "source"}


def _links(device: Device) -> dict[str, Link | None]:
    """The links by range: inside a node, in two sizes of groups of neighbors, between nodes."""
    return {"inside": device.inside, "bridge": device.bridge, "half": device.half, "network": device.network}


def _network_note(device: Device) -> str:
    """The note for more GPUs than a node has, with `{gpus}` for their number."""
    node_size = gpus_per_node(device)
    note = str(next(link_notes(device, node_size + 1))).replace(f"{node_size + 1} GPUs", "{gpus} GPUs")
    return f"{note[0].upper()}{note[1:]}."


def _link(link: Link) -> dict[str, Any]:
    return {name: _value(getattr(link, name)) for name in ("name", "bandwidth", "joins", "beyond")}


def _expects(device: Device, kind: str) -> bool:
    """Whether the device can have parameters of this kind: it is calibrated, and has links for collectives."""
    return device.calibration is not None and (kind != "collectives" or bool(device.links))


def _pipes(device: Device, dtype: str) -> dict[str, Any] | None:
    """The matmul pipe and the vector pipe, null where the device file has none; None for an unsupported format."""
    try:
        matmul = device.matmul_pipe(dtype)
    except WorkloadError:
        return None
    vector = device.vector_pipe(dtype)
    return {
        "matmul": _value(matmul.peak), "matmul_name": matmul.name,
        "vector": _value(vector and vector.peak), "vector_name": vector and vector.name,
    }  # fmt: skip


def _parameters(device: Device, used: Collection[str]) -> str:
    """The source of the expected times of kernels of the kinds `used`."""
    if device.calibration is None:
        return "not calibrated: bounds only"
    by_device = {
        other: dict.fromkeys(KERNEL_KINDS[kind] for kind in kinds if kind in used)
        for other, kinds in device.calibration.transferred.items()
    }
    if others := [f"{', '.join(kinds)} from {other}" for other, kinds in by_device.items() if kinds]:
        return f"expected times of these kernels use parameters of other devices: {'; '.join(others)}"
    return "expected times are fitted to measurements of this device"


def sets_used(nodes: Sequence[Node]) -> list[tuple[str, ...]]:
    """Kind and implementation of the parameter sets that inputs name; for collectives, the link too."""
    names = [node[1].split("|")[1:] for node in nodes if node[0] == "input" and node[1].startswith("set|")]
    return list(dict.fromkeys(tuple(name[: 3 if name[0] == "collectives" else 2]) for name in names))


def _sets(device: Device, keys: Sequence[str], sets: UniqueRecords, stored: Sequence[str]) -> Any:
    """The index of the parameter set by compute format and stored format; None where none is fitted.

    A link of a collective has one set.
    """
    kind, implementation, *link_names = keys
    fitted_sets, names = getattr(device.calibration, kind), kernels_of(device, implementation)

    def index(wanted: str) -> int | None:
        fitted = choose_set(fitted_sets, names(kind, wanted), wanted)
        if fitted is None:
            return None
        values = fitted.timing._asdict() | {"low": fitted.fit.low, "high": fitted.fit.high}
        return sets.index({name: _value(value) for name, value in values.items()})

    for name in link_names:
        link = _links(device)[name]
        return link and index(link.parameters)
    return {dtype: {name: index(format_key(dtype, name)) for name in stored} for dtype in COMPUTE_FORMATS}


def kernels_of(device: Device, implementation: str) -> Callable[[str, str], tuple[str, ...]]:
    """The kernels that a traced implementation stands for on a device, by kind and format key: those of an engine, or
    itself."""
    if implementation in engine.names():
        return Timing(device, Engine.load(implementation)).implementations
    return lambda kind, key: (implementation,)


def _value(number: float | None) -> Any:
    """A number for JSON: ints as text, so that the script distinguishes them from floats."""
    return str(number) if isinstance(number, int) else number
