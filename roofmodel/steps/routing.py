"""Reader of the option `routing`: `uniform`, `same`, or a file with the distribution of tokens over experts."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from typing import Any, get_args

from roofmodel.counting.workload import Routing
from roofmodel.errors import JSON_NUMBER_TOO_LONG, Message, Option, Text, WorkloadError, choices, shorten
from roofmodel.files.text_files import expand, printable, read_text
from roofmodel.models.architecture import Architecture, has_experts
from roofmodel.models.layers import MoE
from roofmodel.numbers.algebra import plain
from roofmodel.options.values import RoutingMode

MODES = get_args(RoutingMode)
MAX_EXPERTS = 2**16
SUM_TOLERANCE = 1e-6  # probabilities whose sum differs from 1 by less need no remark
EXAMPLE = "a file has one probability or count per expert, such as 5,3,1,1"


def read_routing(option: object) -> Routing:
    """The routing that an option describes. Raises WorkloadError for an unknown name and for an invalid file."""
    if isinstance(option, Routing):
        return option
    if isinstance(option, str) and option in MODES:
        return Routing(option)
    if not isinstance(option, str | os.PathLike):
        raise WorkloadError(Option("routing"), f" is {shorten(option)}; give {', '.join(MODES)} or a file")
    name = os.fspath(option)
    path = expand(name)
    where = printable(os.path.join(os.curdir, name) if name in MODES else name)  # Path("same") is a file
    if not os.path.isfile(path):  # Path.is_file raises OSError for a long name
        raise WorkloadError(
            Option("routing"),
            f": {shorten(name)} is neither a known value nor a file{choices(name, MODES)}, or a file with a "
            "probability or count per expert",
        )
    try:
        numbers = _numbers(where, read_text(path))
    except (OSError, ValueError) as error:
        raise _bad_file(where, getattr(error, "strerror", None) or str(error)) from None
    if len(numbers) > MAX_EXPERTS:
        raise _bad_file(where, f"{len(numbers)} numbers; at most {MAX_EXPERTS} experts are possible")
    total = sum(numbers)
    if not 0 < total < float("inf"):
        raise _bad_file(where, "the sum of its numbers must be above 0" if numbers else "no numbers")
    if all(number == int(number) for number in numbers) and total > 1:
        origin = (
            f"the numbers in the file are taken as counts of tokens ({total:.15g} in total); their shares are the "
            "probabilities of the experts in all layers"
        )
    else:
        origin = "the file gives the probability of each expert in all layers"
        if abs(total - 1) > SUM_TOLERANCE:
            origin += f"; the numbers have the sum {total:.6g} and were scaled to a sum of 1"
    return Routing(printable(path.name), tuple(number / total for number in numbers), where, origin)


def _numbers(where: str, text: str) -> list[float]:
    """The numbers of a file: a JSON list or object, or lines of text; with two per line, the first is the expert."""
    if text.lstrip()[:1] in ("[", "{"):
        return _json_numbers(where, text)
    lines = [(at, re.split(r"[\s,;]+", line.strip(" \t,;\r"))) for at, line in enumerate(text.splitlines(), 1)]
    rows = [(f"line {at}", cells) for at, cells in lines if cells != [""] and not cells[0].startswith("#")]
    if rows and not any(map(_is_number, rows[0][1])):
        rows = rows[1:]  # a header
    if len(rows) == 1 and len(rows[0][1]) > 2:
        return [_number(where, rows[0][0], cell) for cell in rows[0][1]]
    wide = next(((place, cells) for place, cells in rows if len(cells) != len(rows[0][1]) or len(cells) > 2), None)
    if wide:
        raise _bad_file(where, f"{wide[0]} has {len(wide[1])} values; write one line, or one line per expert")
    if rows and len(rows[0][1]) == 2:
        return _by_expert(where, [(place, cells[0], cells[1]) for place, cells in rows])
    return [_number(where, place, cells[0]) for place, cells in rows]


def _json_numbers(where: str, text: str) -> list[float]:
    try:
        numbers = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise _bad_file(where, f"invalid JSON: {error}") from None
    except ValueError:
        raise _bad_file(where, JSON_NUMBER_TOO_LONG) from None
    if isinstance(numbers, dict):
        return _by_expert(where, [(f"key {shorten(key)}", key, value) for key, value in numbers.items()])
    return [_number(where, f"value {at}", value) for at, value in enumerate(numbers, 1)]


def _by_expert(where: str, rows: list[tuple[str, Any, Any]]) -> list[float]:
    """The numbers in the order of the experts, which are counted from 0 or from 1."""
    shares: dict[int, float] = {}
    for place, expert, value in rows:
        if not str(expert).isdecimal() or int(expert) > MAX_EXPERTS or int(expert) in shares:
            problem = (
                "occurs twice"
                if str(expert).isdecimal() and int(expert) in shares
                else "is not the number of an expert"
            )
            raise _bad_file(where, f"{place}: {shorten(expert)} {problem}")
        shares[int(expert)] = _number(where, place, value)
    first = min(shares, default=0)
    missing = [expert for expert in range(first, first + len(shares)) if expert not in shares]
    if first > 1 or missing:
        raise _bad_file(where, f"expert {missing[0] if missing and first <= 1 else 0} is missing")
    return [shares[expert] for expert in sorted(shares)]


def _is_number(cell: object) -> bool:
    try:
        float(cell)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return False
    return not isinstance(cell, bool)


def _number(where: str, place: str, cell: object) -> float:
    value = float(cell) if _is_number(cell) else -1.0  # type: ignore[arg-type]
    if not 0 <= value < float("inf"):
        raise _bad_file(where, f"{place}: {shorten(cell)} is not a number of at least 0")
    return value


def _bad_file(where: str, problem: str) -> WorkloadError:
    return WorkloadError(Option("routing"), f": {where}: {problem}; {EXAMPLE}")


def check_routing(arch: Architecture, routing: Routing) -> None:
    """Raises WorkloadError if a file does not have a number for each expert, and one above 0 for a token's experts."""
    for moe in _moe_layers(arch) if routing.shares else ():
        if len(routing.shares) != moe.choices:
            zero = f", the last {moe.zero_experts} of which compute nothing" if moe.zero_experts else ""
            raise _bad_file(
                routing.given,
                f"{len(routing.shares)} numbers, but {arch.name} has {moe.choices} experts in an MoE layer{zero}",
            )
        used = sum(share > 0 for share in routing.shares)
        if used < moe.active:
            raise _bad_file(
                routing.given, f"{used} numbers above 0, but a token of {arch.name} uses {moe.active} experts"
            )


def _moe_layers(arch: Architecture) -> Iterator[MoE]:
    return (part for part in arch.parts if isinstance(part, MoE)) if has_experts(arch) else iter(())


def routing_notes(arch: Architecture, routing: Routing, gpus: int = 1) -> Iterator[Text]:
    """The assumption on the experts that tokens choose; `gpus` share the experts."""
    if not has_experts(arch):
        return
    moe = next(_moe_layers(arch))
    if moe.zero_experts and not routing.shares:
        used = plain(moe.active_mlps if routing.name == "uniform" else moe.common_mlps)
        yield Message(
            f"{used:.3g} of the {moe.active} experts of a token compute, as {moe.experts} of all {moe.choices} do; ",
            Option("routing"), f" FILE states a share for each of the {moe.choices}",
        )  # fmt: skip
    if routing.shares:
        busiest = "; the GPU with the most tokens is counted" if gpus > 1 else ""
        yield Message(Option("routing", routing.given), f": {routing.origin}{busiest}")
    elif routing.name == "same":
        yield Message(
            Option("routing", "same"), ": all tokens of a pass use the same experts, as in a batch of identical prompts"
        )
    else:
        yield Message(
            Option("routing", "uniform"),
            ": each token uses random experts; a batch of identical prompts uses fewer, see ",
            Option("routing", "same"),
        )  # fmt: skip
