"""FLOPs of kernels that the user states: `gemm*=2*4096^3` gives each launch of a matching kernel these FLOPs.

    PATTERN=EXPRESSION[:PIPE]

The pattern, with `*`, `?` and `[...]`, matches a kernel's name, or its name without template arguments and parameters.
The expression has numbers, `+ - * / ^` and parentheses. The pipe follows from the format in the kernel's name, else the
pipe with the most measured FLOPs, else `fp32`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import NamedTuple

from roofmodel.devices.device import Device
from roofmodel.errors import Option, Text, WorkloadError, choices, shorten
from roofmodel.numbers import units
from roofmodel.profiles.kernel import Flops, Kernel, Profile
from roofmodel.roofline.categories import base_name
from roofmodel.roofline.formats import format_in_name
from roofmodel.roofline.points import flops_by_pipe, incomplete

MAX_FLOPS = 1e30
MAX_LENGTH = 200  # characters of an expression
LISTED_NAMES = 20  # of kernels, in a message
EXAMPLE = "'gemm*=2*4096^3'"

_TOKEN = re.compile(r"\s*([0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?|[-+*/^()])")


class StatedFlops(NamedTuple):
    """The FLOPs of each launch of the kernels that match a pattern; the pipe that executes them, None if not stated."""

    pattern: str
    flops: float
    pipe: str | None
    text: str  # as the user wrote it

    def matches(self, kernel: str) -> bool:
        return any(fnmatchcase(name, self.pattern) for name in (kernel, base_name(kernel)))


def stated_flops(texts: Iterable[str]) -> tuple[StatedFlops, ...]:
    """The stated FLOPs in texts such as `gemm*=2*4096^3`. Raises WorkloadError, which quotes the invalid part."""
    return tuple(map(_parsed, texts))


def _parsed(text: str) -> StatedFlops:
    pattern, equals, right = (part.strip() for part in text.rpartition("="))
    expression, _, pipe = (part.strip() for part in right.partition(":"))
    if not equals or not pattern or not expression:
        raise WorkloadError(Option("flops"), f": {shorten(text)} is not PATTERN=FLOPS; try {EXAMPLE}")
    try:
        flops = evaluated(expression)
    except ValueError as error:
        raise WorkloadError(Option("flops"), f": {shorten(text)}: {error}; try {EXAMPLE}") from None
    if not 0 < flops <= MAX_FLOPS:
        raise WorkloadError(Option("flops"), f": {shorten(text)}: {flops:g} is not a number of FLOPs; try {EXAMPLE}")
    return StatedFlops(pattern, flops, pipe or None, text.strip())


def evaluated(expression: str) -> float:
    """The value of an expression of numbers, `+ - * / ^` and parentheses; `^` binds first, and from the right.

    Raises ValueError for other text, for a division by zero and for a value that is too large.

    Examples:
        >>> evaluated("2 * 4096^2 * (1024 + 1)")
        34393292800.0
    """
    if len(expression) > MAX_LENGTH:
        raise ValueError(f"an expression has at most {MAX_LENGTH} characters")
    tokens, place = [], 0
    while place < len(expression):
        match = _TOKEN.match(expression, place)
        if match is None:
            raise ValueError(f"{expression[place:].strip()[:20]!r} is neither a number nor one of + - * / ^ ( )")
        tokens.append(match.group(1))
        place = match.end()
    parser = _Parser(tokens)
    try:
        value = parser.sum()
    except OverflowError:
        raise ValueError("the value is too large") from None
    except ZeroDivisionError:
        raise ValueError("the expression divides by zero") from None
    if parser.tokens:
        raise ValueError(f"{parser.tokens[0]!r} is not expected there")
    return value


class _Parser:
    """A recursive-descent parser; each method takes its tokens from the front and returns a value."""

    def __init__(self, tokens: list[str]) -> None:
        self.tokens = tokens

    def sum(self) -> float:
        value = self.product()
        while self.tokens[:1] in (["+"], ["-"]):
            value = value + self.product() if self.tokens.pop(0) == "+" else value - self.product()
        return value

    def product(self) -> float:
        value = self.signed()
        while self.tokens[:1] in (["*"], ["/"]):
            value = value * self.signed() if self.tokens.pop(0) == "*" else value / self.signed()
        return value

    def signed(self) -> float:
        if self.tokens[:1] in (["+"], ["-"]):
            return self.signed() if self.tokens.pop(0) == "+" else -self.signed()
        return self.power()

    def power(self) -> float:
        base = self.atom()
        if self.tokens[:1] != ["^"]:
            return base
        self.tokens.pop(0)
        exponent = self.signed()
        if base < 0 and exponent % 1:
            raise ValueError("a root of a negative number is not a number of FLOPs")
        return float(base**exponent)

    def atom(self) -> float:
        if not self.tokens:
            raise ValueError("the expression ends too early")
        token = self.tokens.pop(0)
        if token == "(":
            value = self.sum()
            if not self.tokens or self.tokens.pop(0) != ")":
                raise ValueError("a ')' is missing")
            return value
        try:
            return float(token)
        except ValueError:
            raise ValueError(f"{token!r} is not expected there") from None


def with_stated_flops(
    profile: Profile, statements: Sequence[StatedFlops], device: Device
) -> tuple[Profile, list[Text], set[StatedFlops]]:
    """The profile with the stated FLOPs, notes on them, and the statements that matched kernels.

    The first statement that matches a kernel applies. Pipes that a kernel does not use get 0, which means that no
    counter is missing. Raises WorkloadError for a pipe that the device lacks.
    """
    for statement in statements:
        if statement.pipe is not None and statement.pipe not in device.pipes:
            raise WorkloadError(
                Option("flops"), f": {shorten(statement.text)}: {device.id} has no pipe {shorten(statement.pipe)}"
                f"{choices(statement.pipe, device.pipes)}",
            )  # fmt: skip
    zeros = {pipe: 0.0 for pipe in ("fp64", "fp32", "fp16", *device.pipes) if pipe in Flops._fields}
    kernels, notes, used = profile.kernels.copy(), dict[Text, None](), set[StatedFlops]()
    columns = {pipe: kernels.cells(pipe) for pipe in Flops._fields}
    for kernel in profile.kernels:
        match = next((statement for statement in statements if statement.matches(kernel.name)), None)
        if match is None:
            continue
        pipe, reason = (match.pipe, "stated") if match.pipe else _pipe(kernel, device)
        field = pipe if pipe in Flops._fields else "fp32"  # the matrix units of AMD for fp32
        for name, cells in columns.items():
            cells[kernel.row] = match.flops * kernel.invocations if name == field else zeros.get(name)
        used.add(match)
        note = f"FLOPs of {base_name(kernel.name)} are stated: {units.si(match.flops, 'FLOP')} per launch on {pipe}"
        notes[f"{note} ({reason})"] = None
    for pipe, cells in columns.items():
        kernels.set(pipe, cells)
    return replace(profile, kernels=kernels), list(notes), used


def _pipe(kernel: Kernel, device: Device) -> tuple[str, str]:
    """The pipe that a kernel uses, and the reason."""
    name = format_in_name(kernel.name)
    if name in device.types:
        return device.matmul_pipe(name).name, f"{name} in its name"
    counted = {pipe: flops for pipe, flops in flops_by_pipe(kernel.flops).items() if flops and pipe in device.pipes}
    if counted and not incomplete(kernel.flops, device):
        return max(counted, key=lambda pipe: counted[pipe]), "most of its measured FLOPs"
    return "fp32", "assumed; state a pipe as in 'gemm*=2*4096^3:tensor_fp16'"


def refuse_unused(statements: Iterable[StatedFlops], used: set[StatedFlops], kernels: Iterable[str]) -> None:
    """Raises WorkloadError for a statement that matched no kernel of any file."""
    for statement in statements:
        if statement not in used:
            names = list(dict.fromkeys(map(base_name, kernels)))
            raise WorkloadError(
                Option("flops"), f": no kernel matches {shorten(statement.pattern)}"
                f"{choices(statement.pattern.strip('*'), names[:LISTED_NAMES])}",
            )  # fmt: skip
