"""Convert between text with units and numbers in base units.

Inside roofmodel every quantity is a plain number in base units (FLOP, byte, second, hertz, bit), and its field is named
after the unit. `parse` reads text with a unit; the functions below it write such text. Decimal prefixes are powers of
1000, binary ones (Ki, Mi, Gi, Ti, Pi) powers of 1024; they are never mixed: GB is 10^9 bytes, GiB is 2^30.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

DECIMAL = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15}
DIVISORS = {"m": 10**3, "u": 10**6, "µ": 10**6, "μ": 10**6, "n": 10**9, "p": 10**12}
BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50}
LONG_TIMES = {"min": 60, "h": 3600}
# Written unit -> base unit, longest first. Integer pipes are in OP, which counts as FLOP.
_UNITS = {
    "J/FLOP": "J/FLOP",
    "FLOP/clock": "FLOP/clock",
    "FLOP/s": "FLOP/s",
    "OP/clock": "FLOP/clock",
    "J/OP": "J/FLOP",
    "OP/s": "FLOP/s",
    "B/clock": "B/clock",
    "B/s": "B/s",
    "J/B": "J/B",
    "Hz": "Hz",
    "bit": "bit",
    "B": "B",
    "W": "W",
    "s": "s",
}
_EXAMPLES = {
    "FLOP/s": "312 TFLOP/s",
    "FLOP/clock": "2048 FLOP/clock",
    "B/s": "2039 GB/s",
    "B/clock": "5120 B/clock",
    "B": "80 GiB",
    "Hz": "1410 MHz",
    "bit": "5120 bit",
    "s": "2.5 us",
    "W": "700 W",
    "J/FLOP": "0.5 pJ/FLOP",
    "J/B": "50 pJ/B",
}
_LISTED = 5  # numbers that a message lists
_BITS = re.compile(r"([kMGT]?)(?:b/s|bit/s|bps)\Z")  # as network ports are specified
# At most thirty digits, so that the result fits in a float.
_QUANTITY = re.compile(r"\s*([0-9]{1,30})(?:\.([0-9]{1,30}))?\s*([A-Za-zµμ/]+)\s*\Z")


def parse(text: object, unit: str) -> int | float:
    """Read a quantity such as `2039 GB/s` that must be in `unit` (`B/s`); return it in base units.

    Integral results are ints, so that `80 GiB` is exactly 85 899 345 920. OP counts as FLOP.
    Raises ValueError, with a correct example in the message, for a missing or wrong unit.
    """
    example = _EXAMPLES[unit]
    shown = repr(text) if len(str(text)) <= 60 else f"{str(text)[:60]!r}…"
    unitless = isinstance(text, str) and text.strip().replace(".", "", 1).isdigit()
    if unitless or (isinstance(text, int | float) and not isinstance(text, bool)):
        raise ValueError(f"{shown} has no unit; write it as in '{example}'")
    match = _QUANTITY.match(text) if isinstance(text, str) else None
    if match is None:
        if isinstance(text, str) and _QUANTITY.match(text.strip().removeprefix("-")):
            raise ValueError(f"{shown} is below 0; write a quantity above 0 as in '{example}'")
        raise ValueError(f"{shown} is not a quantity; write a number and a unit as in '{example}'")
    integer, decimals, name = match.group(1), match.group(2) or "", match.group(3)
    factor, divisor, base = _split(name)
    if base is None and unit == "B/s" and (bits := _BITS.match(name)):
        bytes_ = si(float(f"{integer}.{decimals or 0}") * DECIMAL[bits.group(1)] / 8, "B/s", 12)
        raise ValueError(f"expected bytes per second, got bits per second: {text!r}; write it as '{bytes_}'")
    if base is None:
        raise ValueError(f"unknown unit {name!r} in {text!r}; write it as in '{example}'")
    if base != unit:
        raise ValueError(f"expected a quantity in {unit}, got {text!r} in {base}; write it as in '{example}'")
    scaled = int(integer + decimals) * factor
    divisor *= 10 ** len(decimals)
    exact: int = scaled // divisor
    return exact if scaled == exact * divisor else scaled / divisor


def _split(name: str) -> tuple[int, int, str | None]:
    """`GB/s` -> (10^9, 1, 'B/s'), `us` -> (1, 10^6, 's'); (1, 1, None) for an unknown unit."""
    if name in LONG_TIMES:
        return LONG_TIMES[name], 1, "s"
    for written, base in _UNITS.items():
        if name.endswith(written):
            prefix = name[: -len(written)]
            if prefix in DECIMAL:
                return DECIMAL[prefix], 1, base
            if prefix in BINARY and base == "B":
                return BINARY[prefix], 1, base
            if prefix in DIVISORS and base in ("s", "J/FLOP", "J/B"):
                return 1, DIVISORS[prefix], base
    return 1, 1, None


def si(value: float, unit: str = "", digits: int = 3) -> str:
    """`3506703564800` -> `3.51 T` + unit, three significant digits, decimal prefix."""
    for prefix in ("P", "T", "G", "M", "k"):
        # 999 950 would round to "1000 k": step up to the next prefix before that happens.
        if abs(value) >= DECIMAL[prefix] * (1 - 0.5 * 10**-digits):
            return f"{significant(value / DECIMAL[prefix], digits)} {prefix}{unit}"
    return f"{significant(value, digits)} {unit}".rstrip()


def seconds(value: float, digits: int = 3) -> str:
    """`0.0116` -> `11.6 ms`."""
    for factor, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if value >= factor * (1 - 0.5 * 10**-digits):
            return f"{significant(value / factor, digits)} {unit}"
    return f"{significant(value / 1e-9, digits)} ns"


def signed_seconds(value: float) -> str:
    """A difference of times: `0.00334` -> `+3.34 ms`."""
    return f"{'-' if value < 0 else '+'}{seconds(abs(value))}" if value else "0"


def binary(value: float) -> str:
    """Bytes with a binary prefix, as for memory sizes (vendors write GB for GiB): `80 GiB`."""
    for prefix, factor in sorted(BINARY.items(), key=lambda item: -item[1]):
        if value >= factor:
            return f"{significant(value / factor)} {prefix}B"
    return f"{significant(value)} B"


def significant(value: float, digits: int = 3) -> str:
    """A number with `digits` significant digits, never in exponent notation."""
    value = value if isinstance(value, int | float) else float(value)  # Python 3.11 formats no Fraction
    text = f"{value:.{digits}g}"
    if "e+" in text:
        return f"{float(text):.0f}"
    if "e-" in text:
        places = int(text.partition("e-")[2]) + digits - 1
        return f"{value:.{places}f}".rstrip("0").rstrip(".")
    return text


def count(many: int, noun: str, plural: str = "s") -> str:
    """`1 kernel launch`, `2 kernel launches`."""
    return f"{many} {noun}{plural if many != 1 else ''}"


def grouped(value: int) -> str:
    """`1557611200` -> `1 557 611 200`."""
    return f"{value:,}".replace(",", " ")


def ranges(numbers: Sequence[int]) -> str:
    """`0–2, 5`."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}–{run[-1]}" for run in runs)


def listed(numbers: Iterable[object]) -> str:
    """The first numbers, and how many more there are.

    Examples:
        >>> listed(range(8))
        '0, 1, 2, 3, 4 and 3 more'
    """
    every = list(numbers)
    more = f" and {len(every) - _LISTED} more" if len(every) > _LISTED else ""
    return ", ".join(map(str, every[:_LISTED])) + more
