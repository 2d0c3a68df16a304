"""The search of a plan: every layout, format, batch and chunk of a service, on every device.

Each pair of a layout and formats is one piece: one pass over the model evaluates all its batches and chunks as arrays
(`step_times.py`), with the code of `roof sweep`. Pieces run in two or more processes, or on a Dask cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from roofmodel import units
from roofmodel.counting.workload import MEMORY_UTILIZATION
from roofmodel.devices.device import Device
from roofmodel.errors import Message, Option, Text, WarningNote, WorkloadError, choices, shorten
from roofmodel.models.architecture import Architecture, Network
from roofmodel.study.estimate.options import CHOICES, MAX_VALUE, check_choice, memory_utilization
from roofmodel.study.estimate.parallelism import GPUS
from roofmodel.study.plan.candidate import Candidate, Targets
from roofmodel.study.plan.disaggregated import Matching, link_bandwidth, matched
from roofmodel.study.plan.layouts import formats, layouts
from roofmodel.study.plan.processes import in_processes
from roofmodel.study.plan.ranking import Ranked, format_text, front, layout_text, name, ranked, violation_text
from roofmodel.study.plan.search import MODES, Found, Piece, Service, Shortage, evaluate
from roofmodel.study.plan.serving import Traffic
from roofmodel.study.plan.speculation import Speculation, prediction_module
from roofmodel.study.sweep import grid
from roofmodel.study.sweep.sweep import prices_by_device

SHOWN = 8
"""Candidates that a plan reports."""
MAX_GPUS = 4096
FORMAT_OPTIONS = ("dtype", "weights", "kv", "activations")
LAYOUT_OPTIONS = tuple(option for option in GPUS if option != "vpp")
MTP = "mtp"
"""The value of `draft` for multi-token prediction."""
DRAFT_TOKENS, ACCEPTANCE = 3, 0.7


class Plan(NamedTuple):
    """The best candidates of a service, one for each layout, formats and device; the front of all candidates."""

    model: str
    devices: tuple[str, ...]
    service: Service
    ranked: tuple[Ranked, ...]
    front: tuple[Candidate, ...]
    shortage: Shortage | None  # the layout that lacks the least memory, where none fits
    searched: int  # candidates
    layouts: int  # pairs of layout and formats
    notes: tuple[Text, ...]

    @property
    def meets(self) -> bool:
        """Whether some candidate meets all targets."""
        return any(one.candidate.meets for one in self.ranked)


def plan(
    arch: Architecture,
    devices: Sequence[Device],
    *,
    gpus: int,
    isl: int,
    osl: int,
    ttft: float | str | None = None,
    tpot: float | str | None = None,
    requests: float | str | None = None,
    price: float | str | Mapping[str, float] | None = None,
    memory_utilization: float = MEMORY_UTILIZATION,
    mode: grid.Names | None = None,
    draft: Architecture | str | None = None,
    draft_tokens: int | None = None,
    acceptance: float | None = None,
    top: int = SHOWN,
    cluster: str | None = None,
    progress: Callable[[str, int, int], None] = lambda what, done, total: None,
    **given: Any,
) -> Plan:
    """The best layouts, formats and batches of a service.

    `given` restricts the search: `tp`, `pp`, `dp`, `ep`, `dtype`, `weights`, `kv`, `activations`, each with one or
    several values. `ttft` and `tpot` are seconds, or text with a unit; `requests` is a rate such as `5/s`. `mode` is
    "mixed", "disaggregated" or both. `draft` is a draft model, or "mtp"; it drafts `draft_tokens` per step, each of
    which is right with probability `acceptance`. Raises WorkloadError for an invalid value, and where no layout divides
    the model.
    """
    _check_model(arch)
    service = _service(gpus, isl, osl, ttft, tpot, requests, memory_utilization)._replace(
        speculation=_speculation(arch, draft, draft_tokens, acceptance), modes=_modes(mode)
    )
    _check_count("top", top, 1, MAX_VALUE)
    restricted = _restrictions(given)
    prices = prices_by_device(price, devices)
    pieces = [
        Piece(arch, device, layout, form, service, prices.get(device.id))
        for device in devices
        for form in formats(arch, device, restricted)
        for layout in layouts(arch, gpus, restricted)
    ]
    if not pieces:
        raise WorkloadError(*_no_layout(arch, devices, gpus, restricted))
    found = list(_reported(_evaluated(pieces, cluster), len(pieces), progress))
    apart, apart_points = _disaggregated(found, devices, service, prices)
    points = [*(point for one in found for point in one.front), *apart_points]
    best = [*(one.best for one in found if one.best is not None), *apart]
    shortages = [one.shortage for one in found if one.shortage is not None]
    result = Plan(
        model=arch.name, devices=tuple(device.id for device in devices), service=service,
        ranked=tuple(ranked(best, top)), front=tuple(front(points)),
        shortage=None if best or not shortages else min(shortages, key=lambda one: one.needed / one.usable),
        searched=sum(one.points for one in found), layouts=len(pieces), notes=(),
    )  # fmt: skip
    return result._replace(notes=(*arch.notes, *_notes(result, pieces, prices)))


def _evaluated(pieces: Sequence[Piece], cluster: str | None) -> Iterator[Found]:
    if cluster is None:
        return in_processes(evaluate, pieces)
    from roofmodel.study.sweep.dask_cluster import evaluate_on_cluster

    return evaluate_on_cluster(evaluate, pieces, cluster)


def _reported(found: Iterable[Found], total: int, progress: Callable[[str, int, int], None]) -> Iterator[Found]:
    for done, one in enumerate(found, 1):
        progress("layouts", done, total)
        yield one


def _disaggregated(
    found: Sequence[Found], devices: Sequence[Device], service: Service, prices: Mapping[str, float]
) -> tuple[list[Candidate], list[Candidate]]:
    """The best candidates with engines of their own for prefill and decode, and candidates for the Pareto front."""
    best: list[Candidate] = []
    points: list[Candidate] = []
    for device in devices:
        bandwidth = link_bandwidth(device, service.gpus)
        prefill = [one.prefill for one in found if one.prefill is not None and one.prefill.device == device.id]
        decode = [one.decode for one in found if one.decode is not None and one.decode.device == device.id]
        if bandwidth is None or not prefill:
            continue
        common = Matching(service.gpus, service.traffic, service.targets, prices.get(device.id), bandwidth)
        for one, several in matched(prefill, decode, common):
            best.append(one)
            limit = service.targets.ttft
            points += [each for each in several if limit is None or each.ttft.value <= limit]
    return best, points


# --- Options ----------------------------------------------------------------------------------------


def _check_model(arch: Architecture) -> None:
    if isinstance(arch.body, Network) or not arch.causal or arch.encoder:
        raise WorkloadError(f"{arch.name} does not generate text with a decoder alone; roof plan needs such a model")


def _service(
    gpus: int, isl: int, osl: int, ttft: float | str | None, tpot: float | str | None,
    requests: float | str | None, share: float,
) -> Service:  # fmt: skip
    _check_count("gpus", gpus, 1, MAX_GPUS)
    _check_count("isl", isl, 1, MAX_VALUE)
    _check_count("osl", osl, 2, MAX_VALUE)
    targets = Targets(_seconds("ttft", ttft), _seconds("tpot", tpot), _rate(requests))
    return Service(Traffic(isl, osl), targets, gpus, memory_utilization(share))


def _check_count(option: str, value: object, low: int, high: int) -> None:
    if type(value) is not int or not low <= value <= high:
        raise WorkloadError(Option(option), f" is {shorten(value)}; it must be a whole number from {low} to {high}")


def _seconds(option: str, value: float | str | None) -> float | None:
    """Seconds above 0, from a number or text with a unit."""
    if value is None:
        return None
    try:
        found = float(units.parse(value, "s") if isinstance(value, str) else value)
    except (TypeError, ValueError) as error:
        raise WorkloadError(Option(option), f": {error}; try ", Option(option, "30ms")) from None
    if not 0 < found < float("inf"):
        raise WorkloadError(Option(option), f" is {shorten(value)}; it must be above 0; try ", Option(option, "30ms"))
    return found


def _rate(value: float | str | None) -> float | None:
    """Requests per second, from a number or text such as `5/s`, `300/min`."""
    if value is None:
        return None
    number, _, per = str(value).partition("/")
    seconds = {"": 1, "s": 1, "min": 60, "h": 3600}.get(per.strip())
    try:
        found = float(number) / (seconds or 0)
    except (ValueError, ZeroDivisionError):
        found = 0.0
    if not 0 < found < float("inf"):
        raise WorkloadError(
            Option("requests"), f": {shorten(value)} is no rate; try ", Option("requests", "5/s"), " or ",
            Option("requests", "300/min"),
        )  # fmt: skip
    return found


def _modes(given: object) -> tuple[str, ...]:
    if given is None:
        return MODES
    found = grid.names(given)
    for value in found:
        if value not in MODES:
            raise WorkloadError(Option("mode"), f": unknown value {shorten(value)}{choices(str(value), MODES)}")
    return tuple(map(str, found))


def _speculation(
    arch: Architecture, draft: Architecture | str | None, tokens: int | None, acceptance: float | None
) -> Speculation | None:
    """Speculative decoding as the options describe it; None without a draft model."""
    if draft is None:
        for option, value in (("draft_tokens", tokens), ("acceptance", acceptance)):
            if value is not None:
                raise WorkloadError(
                    Option(option, value), " needs a draft model: ", Option("draft", "MODEL"), " or ",
                    Option("draft", MTP),
                )  # fmt: skip
        return None
    tokens, share = DRAFT_TOKENS if tokens is None else tokens, ACCEPTANCE if acceptance is None else acceptance
    _check_count("draft_tokens", tokens, 1, 64)
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= 1:
        raise WorkloadError(Option("acceptance"), f" is {shorten(share)}; it must be a number from 0 to 1, such as 0.7")
    if isinstance(draft, str):
        return Speculation(prediction_module(arch), tokens, float(share), is_mtp=True)
    _check_model(draft)
    return Speculation(draft, tokens, float(share))


def _restrictions(given: Mapping[str, Any]) -> dict[str, list[Any]]:
    """The values of each option that restricts the search."""
    found: dict[str, list[Any]] = {}
    for option, values in given.items():
        if values is None:
            continue
        if option in LAYOUT_OPTIONS:
            found[option] = grid.numbers(option, values, 1, MAX_GPUS)
        elif option in FORMAT_OPTIONS:
            found[option] = grid.names(values)
            for value in found[option]:
                check_choice(option, value)
        else:
            raise WorkloadError(f"unknown option {option!r}{choices(option, [*LAYOUT_OPTIONS, *FORMAT_OPTIONS])}")
    return found


def _no_layout(
    arch: Architecture, devices: Sequence[Device], gpus: int, given: Mapping[str, Sequence[Any]]
) -> Iterator[Text]:
    """Why there is no layout to search."""
    if not any(formats(arch, device, given) for device in devices):
        known = ", ".join(sorted({kind for device in devices for kind in device.types if kind in CHOICES["dtype"]}))
        asked = given.get("dtype", ["fp16"])
        yield from (Option("dtype", ",".join(map(str, asked))), f": no device has a pipe for it; they have {known}")
        return
    yield from (Option("gpus", gpus), f": no layout of {arch.name} uses {gpus} GPUs")
    if chosen := [option for option in LAYOUT_OPTIONS if option in given]:
        yield " with these values of "
        yield ", ".join(str(Option(option)) for option in chosen)
        yield f"; {' × '.join(('tp', 'pp', 'dp'))} must be {gpus}"


def _notes(found: Plan, pieces: Sequence[Piece], prices: Mapping[str, float]) -> Iterator[Text]:
    if found.shortage is not None:
        short = found.shortage
        yield WarningNote(
            f"does not fit: the nearest layout, {layout_text(short.layout)} on {short.device}, needs "
            f"{units.binary(float(short.needed))} per GPU of {units.binary(float(short.usable))} usable; try more ",
            Option("gpus"), " or ", Option("weights", "int4"),
        )  # fmt: skip
    elif not found.meets and found.ranked:
        nearest, targets = found.ranked[0].candidate, found.service.targets
        yield WarningNote(
            f"no layout meets the targets; the nearest is {name(nearest)}, {format_text(nearest)}, batch "
            f"{nearest.batch} on {nearest.device}: {violation_text(nearest, targets.ttft, targets.tpot)}"
        )
    if prices and (missing := sorted({device for device in found.devices if device not in prices})):
        yield Message(Option("price"), f" is missing for {', '.join(missing)}: candidates are ranked by rate per GPU")
    uncalibrated = sorted({piece.device.id for piece in pieces if piece.device.calibration is None})
    if uncalibrated:
        yield Message(f"{', '.join(uncalibrated)}: not calibrated, so times are lower bounds")
