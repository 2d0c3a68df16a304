"""The options of a plan: targets, traffic, speculative decoding, and the values that restrict the search."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from time import monotonic
from typing import Any, TypeVar

from roofmodel.devices.device import Device
from roofmodel.engines.former_options import removed_option
from roofmodel.errors import AnswerNote, Option, Text, WarningNote, WorkloadError, choices, joined, shorten
from roofmodel.models.architecture import Architecture, Network
from roofmodel.numbers import units
from roofmodel.options.values import check_one_of, check_whole_number, seconds_of
from roofmodel.options.workload import DECLARED, MAX_VALUE, REMOVED, PlanKind, valid
from roofmodel.plan.candidate import Targets
from roofmodel.plan.search import Service
from roofmodel.plan.serving import RequestLengths
from roofmodel.plan.speculation import Speculation, prediction_module
from roofmodel.steps.parallelism import GPUS
from roofmodel.sweep import grid

MAX_GPUS = 4096
TIME_LIMIT = "60s"
"""The time after which a search ends, unless another one is given."""
MAX_RATE = 1e6  # requests per second
MTP = "mtp"
"""The value of `draft` for multi-token prediction."""
DRAFT_TOKENS, ACCEPTANCE = 3, 0.7


def check_generates(arch: Architecture) -> None:
    """Raises WorkloadError for a model that is not a decoder."""
    if isinstance(arch.body, Network) or not arch.generates or arch.encoder:
        raise WorkloadError(f"{arch.name} does not generate text with a decoder alone; roof plan needs such a model")


def service_of(
    gpus: int, isl: int, osl: int, ttft: float | str | None, tpot: float | str | None,
    requests: float | str | None, share: float,
) -> Service:  # fmt: skip
    """The service that the options describe."""
    check_whole_number("gpus", gpus, 1, MAX_GPUS)
    check_whole_number("isl", isl, 1, MAX_VALUE)
    check_whole_number("osl", osl, 2, MAX_VALUE)
    targets = Targets(
        None if ttft is None else seconds_of("ttft", ttft, "500ms"),
        None if tpot is None else seconds_of("tpot", tpot, "30ms"),
        _rate(requests),
    )
    return Service(RequestLengths(isl, osl), targets, gpus, valid("memory_utilization", share))


def device_notes(devices: Sequence[Device], searched: Sequence[Device]) -> Iterator[Text]:
    """The devices that are not searched, and what the times of the others are if some are not calibrated."""
    ids = {device.id for device in searched}
    for device in devices:
        if device.id not in ids:
            formats = _formats_of([device])
            yield f"{device.id} is left out: it has no pipe for the formats of the search; it has {formats}"
    yield from _calibration_notes(searched)


def _calibration_notes(devices: Sequence[Device]) -> Iterator[Text]:
    uncalibrated = list(dict.fromkeys(device.id for device in devices if device.calibration is None))
    if not uncalibrated:
        return
    others = len(uncalibrated) < len({device.id for device in devices})
    after = "; they are ranked after the expected times of the other devices" if others else ""
    yield AnswerNote(f"{', '.join(uncalibrated)}: not calibrated, so times are lower bounds{after}")


Result = TypeVar("Result")


def within(results: Iterable[Result], seconds: float) -> Iterator[Result]:
    """The results that a search yields up to a time limit; at least one."""
    end = monotonic() + seconds
    for result in results:
        yield result
        if monotonic() > end:
            return


def incomplete(done: int, total: int, seconds: float) -> Text:
    """The warning that the time limit ended the search."""
    return WarningNote(
        f"the search ended after {units.seconds(seconds)} with {done} of {total} layouts; raise ", Option("time_limit"),
        ", or search fewer with ", Option("tp"), " or ", Option("pp"),
    )  # fmt: skip


def _rate(value: float | str | None) -> float | None:
    """Requests per second, from text such as `5/s`, `300/min`, or a number of requests per second."""
    if value is None:
        return None
    number, _, per = str(value).partition("/")
    try:
        rate = float(number) / {"": 1, "s": 1, "min": 60, "h": 3600}[per.strip()]
    except (ValueError, KeyError):
        raise WorkloadError(
            Option("requests"), f": {shorten(value)} is no rate; try ", Option("requests", "5/s"), " or ",
            Option("requests", "300/min"),
        ) from None  # fmt: skip
    if not 0 < rate <= MAX_RATE:
        raise WorkloadError(
            Option("requests"), f" is {shorten(value)}; it must be above 0 and at most {units.si(MAX_RATE)}/s; try ",
            Option("requests", "5/s"),
        )  # fmt: skip
    return rate


def price_notes(prices: Mapping[str, float], devices: Sequence[Device]) -> Iterator[Text]:
    """The devices without a price, if others have one."""
    if prices and (missing := sorted({device.id for device in devices} - prices.keys())):
        yield AnswerNote(
            Option("price"), f" is missing for {', '.join(missing)}: candidates are ranked by rate per GPU"
        )


def choices_of(option: str, values: object, known_names: Sequence[str]) -> tuple[str, ...]:
    """The given values of an option; all known ones if none is given. Raises WorkloadError for an unknown one."""
    if values is None:
        return tuple(known_names)
    names = grid.names(values)
    for value in names:
        check_one_of(option, value, known_names)
    return tuple(map(str, names))


def speculation_of(
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
    check_whole_number("draft_tokens", tokens, 1, 64)
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= 1:
        raise WorkloadError(Option("acceptance"), f" is {shorten(share)}; it must be a number from 0 to 1, such as 0.7")
    if isinstance(draft, str):
        return Speculation(prediction_module(arch), tokens, float(share), is_mtp=True)
    check_generates(draft)
    return Speculation(draft, tokens, float(share))


def layout_restrictions(options: Mapping[str, Any], plan: PlanKind = "service") -> dict[str, list[Any]]:
    """The values of the options that restrict the search of a plan."""
    restrictions: dict[str, list[Any]] = {}
    for option, values in options.items():
        if option in REMOVED:
            raise removed_option(option, values)
        if option not in DECLARED or plan not in DECLARED[option].plans:
            known_options = [name for name, declared in DECLARED.items() if plan in declared.plans]
            raise WorkloadError(f"unknown option {option!r}{choices(option, known_options)}")
        if values is None:
            continue
        if DECLARED[option].kind == "count":
            restrictions[option] = grid.numbers(option, values, DECLARED[option].minimum, MAX_GPUS)
        else:
            restrictions[option] = [valid(option, value) for value in grid.names(values)]
    return restrictions


def no_format(devices: Sequence[Device], restrictions: Mapping[str, Sequence[Any]]) -> Iterator[Text]:
    """Why there are no formats to search."""
    dtypes = ",".join(map(str, restrictions.get("dtype", ["fp16"])))
    yield from (Option("dtype", dtypes), f": no device has a pipe for it; they have {_formats_of(devices)}")


def _formats_of(devices: Sequence[Device]) -> str:
    """The compute formats of which some device has a pipe."""
    return ", ".join(sorted({kind for device in devices for kind in device.types if kind in DECLARED["dtype"].choices}))


def no_layout(
    arch: Architecture, gpus: int, restrictions: Mapping[str, Sequence[Any]], training: bool = False
) -> Iterator[Text]:
    """Why there is no layout to search."""
    yield from (Option("gpus", gpus), f": no layout of {arch.name} uses at most {gpus} GPUs")
    if chosen := list(restrictions.keys() & {*GPUS, "micro_batch"}):
        yield " with these values of "
        yield joined(", ", [Option(option) for option in sorted(chosen)])
    if chosen or training:
        yield f"; tp × pp × dp must be at most {gpus}"
    if training:
        yield ", dp × micro-batch must divide the batch of a training step"
        yield ", and vpp must divide the layers of a pipeline stage; vpp above 1 also needs pp above 1, and a "
        yield "number of microbatches that is a multiple of pp"


def number_of_tokens(value: float | str) -> float:
    """A number of tokens, from a number or text such as `15T`, `300B`."""
    text = str(value).strip()
    factor = {"K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12}.get(text[-1:].upper())
    try:
        tokens = float(text[:-1]) * factor if factor else float(text)
    except ValueError:
        tokens = 0.0
    if not 0 < tokens < float("inf"):
        raise WorkloadError(
            Option("tokens"), f": {shorten(value)} is no number of tokens; try ", Option("tokens", "15T")
        )
    return tokens
