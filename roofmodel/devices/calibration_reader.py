"""Reader of the `calibration` section of a device's file; `calibration_writer.py` writes it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache, cached_property, partial
from typing import Any, Protocol

from roofmodel.devices.calibration import (
    BatchedTiming,
    Calibration,
    ChunkTiming,
    CollectiveTiming,
    ContextTiming,
    ExpertsTiming,
    FilterTiming,
    Fit,
    Fitted,
    GemmTiming,
    GenerationTiming,
    LatentGenerationTiming,
    RecurrenceTiming,
    Sets,
    StreamTiming,
    TiledTiming,
    Timing,
)
from roofmodel.devices.dram_fraction import StreamingDevice, transferred_fraction
from roofmodel.devices.parts import Level
from roofmodel.text_files import YamlValue

TIMINGS: dict[str, Any] = {
    "gemm": GemmTiming,
    "context": ContextTiming,
    "generation": GenerationTiming,
    "experts": ExpertsTiming,
    "collectives": CollectiveTiming,
    "stream": StreamTiming,
    "encoder": TiledTiming,
    "latent_context": TiledTiming,
    "latent_generation": LatentGenerationTiming,
    "latent_products": BatchedTiming,
    "filter": FilterTiming,
    "filter_update": RecurrenceTiming,
    "chunks": ChunkTiming,
    "recurrence": RecurrenceTiming,
}
SECONDS = (
    "latency", "step", "split", "ramp", "row", "cast", "host", "convert", "column", "dot", "wave", "alone", "single",
    "expert", "pair", "routing", "late", "part", "token", "block", "chunk", "start", "serial",
    "cluster_latency", "cluster_wave", "narrow_wave",
)  # fmt: skip
POSITIVE = (
    "pipe", "dram", "l2", "store", "parts", "stream", "rows", "bandwidth", "height", "tile", "splits", "kept",
    "column_blocks", "cluster_pipe", "padded",
)  # fmt: skip
SHARED = ("source", "date")  # of the fits of a kind
STREAMING = ("stream", "filter", "filter_update", "recurrence")
"""Kinds of kernels that move data and compute little: their `dram` depends on the device's SMs (`dram_fraction.py`)."""
LINKS_OF_MACHINES = ("pcie", "sockets", "network")
"""Keys of collective sets whose fit is to several machines with other GPUs. The interval is that of a machine which was
left out of the fit, so it holds for another device too."""
SAME_DESIGN_POWER, OTHER_DESIGN_POWER = 1.1, 2.2
"""Exponents that widen the interval of another device's sets: for devices of one compute capability, and for others."""
OTHER_INSTRUCTIONS, OTHER_MEMORY = 1.2, 1.5
"""Factors that further widen both ends where the other device has other tensor instructions, or another kind of memory.

`benchmarks/leave_one_out.py`: with these constants, the intervals of measured devices that are predicted with the
parameters of another one contain 74 to 86 % of the measurements. Pairs of GDDR and HBM devices are not in its table.
"""
TENSOR_INSTRUCTIONS = {"8": "mma.sync", "12": "mma.sync", "9": "wgmma", "10": "tcgen05"}
"""The PTX instructions of the fastest 16-bit GEMMs by the major compute capability."""


class CalibratedDevice(StreamingDevice, Protocol):
    """A device, as far as this module reads it."""

    @property
    def id(self) -> str: ...
    @property
    def calibration(self) -> Calibration | None: ...
    @property
    def levels(self) -> Mapping[str, Level]: ...
    @property
    def reached(self) -> Mapping[tuple[str, str, str], float]:
        """(tensor pipe, benchmark, source) -> measured fraction of the peak."""


Load = Callable[[str, tuple[str, ...]], CalibratedDevice]
"""Returns a device by its name, with its parameter sets of some kinds."""


class DeferredSets(Mapping[str, Mapping[str, Fitted[Any]]]):
    """The sets of a kind that a file takes from another device; they are read when they are first used.

    Few models use these kinds, and reading another file takes 10 ms. `read` also returns the exponent that widened
    their intervals.
    """

    def __init__(self, read: Callable[[], tuple[Sets[Any], float]]) -> None:
        self._read = read

    @cached_property
    def _found(self) -> tuple[Sets[Any], float]:
        return self._read()

    @property
    def _sets(self) -> Sets[Any]:
        return self._found[0]

    @property
    def exponent(self) -> float:
        """The exponent that widened their intervals."""
        return self._found[1]

    def __getitem__(self, implementation: str) -> Mapping[str, Fitted[Any]]:
        return self._sets[implementation]

    def __iter__(self) -> Iterator[str]:
        return iter(self._sets)

    def __len__(self) -> int:
        return len(self._sets)

    def __bool__(self) -> bool:
        return True  # without reading the other file

    def __reduce__(self) -> tuple[type, tuple[dict[str, Any]]]:
        return dict, (dict(self._sets),)  # `_read` cannot be pickled


def read(
    node: YamlValue,
    device: CalibratedDevice,
    load: Load,
    kinds: tuple[str, ...] = tuple(TIMINGS),
    deferred: bool = False,
) -> Calibration:
    """The parameter sets of `kinds` in a device's file, and those of other devices that the file names by `like`.

    `like: a100-sxm-80gb` takes the sets of that device, for all kinds or for one kind, with wider intervals. Only these
    kinds of the other device are loaded, so that two devices can use different kinds of each other. Where the same
    GEMM benchmark ran on both devices, their `pipe` is scaled (see `_peak_ratio`), and `dram` of STREAMING kinds by
    the SMs per bandwidth. Raises DeviceError; with `deferred`, errors in the other files are raised when these sets are
    first used (see `DeferredSets`).
    """
    entries = node.mapping(("like", *TIMINGS))
    device_id = device.id

    def like(of: YamlValue, kinds: tuple[str, ...]) -> CalibratedDevice:
        try:
            found = load(of.text(), kinds) if of.text() != device_id else device
        except RecursionError:
            raise of.error(f"{of.path} is {of.text()!r}, whose calibration refers back to this device") from None
        if found.calibration is None:
            raise of.error(f"{of.path} is {of.text()!r}, which is not another, calibrated device")
        return found

    if "like" in entries:
        if len(entries) > 1:
            raise entries["like"].error(f"{node.path} has both 'like' and its own parameter sets; keep one of them")
        return transferred(device, like(entries["like"], kinds), kinds)
    sets, transferred_kinds = {}, {}
    by_source: dict[str, dict[str, YamlValue]] = {}
    for kind in kinds:
        if kind in entries:
            if same := entries[kind].mapping().get("like"):
                by_source.setdefault(same.text(), {})[kind] = same
            else:
                sets[kind] = _sets(entries[kind], TIMINGS[kind])
    for name, wanted in by_source.items():
        find = cache(partial(_transferred_kinds, device, like, wanted))
        transferred_kinds[name if deferred else find().device] = list(wanted)
        reads = {kind: partial(_sets_of_kind, find, kind) for kind in wanted}
        sets |= {kind: DeferredSets(read) if deferred else read()[0] for kind, read in reads.items()}
    return Calibration(device_id, transferred_kinds, **sets)


def _transferred_kinds(
    device: CalibratedDevice,
    like: Callable[[YamlValue, tuple[str, ...]], CalibratedDevice],
    wanted: Mapping[str, YamlValue],
) -> Calibration:
    """The sets of the `wanted` kinds of one other device; the values name this device, with their line in the file."""
    kinds = tuple(wanted)
    return transferred(device, like(wanted[kinds[0]], kinds), kinds)


def transferred(
    device: CalibratedDevice, source: CalibratedDevice, kinds: tuple[str, ...] = tuple(TIMINGS)
) -> Calibration:
    """The parameter sets of `source`, as a device without measurements of its own uses them (see `read`).

    Where the source itself uses a set of another device, the larger one of both exponents widens its interval.
    """
    found = source.calibration
    assert found is not None
    ratio = _peak_ratio(device, source)
    power, factor = _widening(device, source)

    def scaled(kind: str, timing: Any) -> Any:
        if kind in STREAMING:
            return timing._replace(dram=transferred_fraction(timing.dram, device, source))
        return timing._replace(pipe=timing.pipe * ratio) if "pipe" in timing._fields else timing

    sets = {kind: _scaled_sets(getattr(found, kind), partial(scaled, kind), factor, power) for kind in kinds}
    return Calibration(found.device, {found.device: [kind for kind in kinds if sets[kind]]}, **sets)


def _widening(device: CalibratedDevice, source: CalibratedDevice) -> tuple[float, float]:
    """How much wider the intervals of another device's sets are: exponent and factor (`Fit.wider`)."""
    if device.compute_capability == source.compute_capability:
        return SAME_DESIGN_POWER, 1.0
    factor = 1.0
    if _tensor_instructions(device) != _tensor_instructions(source):
        factor *= OTHER_INSTRUCTIONS
    if _memory_family(device) != _memory_family(source):
        factor *= OTHER_MEMORY
    return OTHER_DESIGN_POWER, factor


def _tensor_instructions(device: CalibratedDevice) -> str:
    """The tensor instructions of a device; its compute capability where they are not known."""
    capability = device.compute_capability or ""
    return TENSOR_INSTRUCTIONS.get(capability.partition(".")[0], capability)


def _memory_family(device: CalibratedDevice) -> str:
    """HBM, GDDR, LPDDR … of any generation; empty where the file does not state it."""
    memory = device.levels.get("dram")
    return (memory.kind or "").rstrip("0123456789EeXx") if memory else ""


def _sets_of_kind(find: Callable[[], Calibration], kind: str) -> tuple[Sets[Any], float]:
    """The sets of a kind, and the exponent that widened their intervals."""
    sets: Sets[Any] = getattr(find(), kind)
    return sets, _exponent(sets)


def _exponent(sets: Sets[Any]) -> float:
    return sets.exponent if isinstance(sets, DeferredSets) else 1.0


def _sets(node: YamlValue, timing: type[Timing]) -> Sets[Timing]:
    """The sets of a kind; the entry `fit` has the source and date of sets that do not state their own."""
    entries = node.mapping()
    shared = entries.pop("fit").mapping(SHARED) if "fit" in entries else {}
    return {
        name: {form: _fitted(one, timing, shared) for form, one in forms.mapping().items()}
        for name, forms in entries.items()
    }


def _fitted(node: YamlValue, timing: type[Timing], shared: Mapping[str, YamlValue]) -> Fitted[Timing]:
    usual = timing._field_defaults
    wanted = (*timing._fields, "fit")
    entries = node.mapping(wanted, required=[name for name in wanted if name not in usual])
    values = [_read(entries[n], timing, n) if n in entries else usual[n] for n in timing._fields]
    fit = {**shared, **entries["fit"].mapping(Fit._fields, [name for name in Fit._fields if name not in shared])}
    for name, value in zip(timing._fields, values, strict=True):
        if name in POSITIVE and name in entries and value <= 0:
            raise entries[name].error(f"{entries[name].path} is {value:g}; it must be greater than zero")
        if name == "elsewhere" and value not in (0, 1, 2, 3):
            raise entries[name].error(f"{entries[name].path} is {value:g}; it must be 0, 1, 2 or 3")
    return Fitted(
        timing._make(values),
        Fit(
            fit["rows"].integer(0, 10**9), fit["held_out"].integer(0, 10**9),
            fit["error"].number(), fit["low"].number(), fit["high"].number(),
            fit["source"].text(), fit["date"].text(),
        ),
    )  # fmt: skip


def _read(node: YamlValue, timing: type[Any], name: str) -> float:
    nothing = name in timing._field_defaults and node.text() == "0"
    return 0.0 if nothing else node.quantity("s") if is_seconds(timing, name) else node.number()


def is_seconds(timing: type[Timing], name: str) -> bool:
    """Whether a parameter is a time, which has a unit in the file."""
    return name in SECONDS or (name == "fill" and timing is GemmTiming)


def _peak_ratio(device: CalibratedDevice, source: CalibratedDevice) -> float:
    """The ratio of the fractions of peak that two devices reach in the benchmarks that ran on both; at most 1.

    The power limit causes it: a card with little power for its peak lowers its clock in GEMMs. All formats share the
    power limit, so the mean over formats is used for each of them.
    """
    device_fractions, source_fractions = device.reached, source.reached
    common = device_fractions.keys() & source_fractions.keys()
    ratios = [device_fractions[benchmark] / source_fractions[benchmark] for benchmark in common]
    return min(sum(ratios) / len(ratios), 1.0) if ratios else 1.0


def _scaled_sets(sets: Sets[Timing], scaled: Callable[[Timing], Timing], factor: float, power: float) -> Sets[Timing]:
    """Another device's sets with `scaled` parameters, and with intervals wider by `power` and `factor`.

    An exponent that has widened them already is part of `power`. The intervals of LINKS_OF_MACHINES stay as they are.
    """

    def scaled_set(form: str, one: Fitted[Any], remaining: float) -> Fitted[Any]:
        timing, fit = one
        return Fitted(scaled(timing), fit if form in LINKS_OF_MACHINES else fit.wider(remaining, factor))

    def read() -> tuple[Sets[Any], float]:
        applied = _exponent(sets)
        total = max(power, applied)
        wider = {
            name: {form: scaled_set(form, one, total / applied) for form, one in forms.items()}
            for name, forms in sets.items()
        }
        return wider, total

    return DeferredSets(read) if sets else sets
