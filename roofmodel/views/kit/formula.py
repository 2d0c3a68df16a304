"""SymPy expressions as plain text and as LaTeX: `2BSD(12DL + 2SL + V)`.

SymPy orders symbols by the alphabet. Here batch and tokens come first, then the sizes of a layer, then the number of
layers. The same expression with values instead of symbols: `2 · 1 · 1024 · 1600 · (12 · 1600 · 48 + …)`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from roofmodel.models.symbols import SYMBOLS

ORDER = ("n", "B", "S", "T", "C", "N_tp", "N_dp", "N_ep", *(name for name in SYMBOLS.values() if name != "V"), "L", "V")
COLLECTED_TERMS = 4  # sums of more terms are also collected by numbers of layers
_SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
Values = Mapping[Any, Any]


def readable(expression: Any) -> Any:
    """An equal expression that is shorter: common factors in front, long sums collected by numbers of layers."""
    import sympy

    expanded = sympy.expand(sympy.sympify(expression))
    terms = sympy.Add.make_args(expanded)
    coefficients = [term.as_coeff_Mul()[0] for term in terms]
    scale = sympy.ilcm(*(c.q for c in coefficients if c.is_Rational), 1)  # S(S + 1)/2 rather than S(S/2 + 1/2)
    if all(c < 0 for c in coefficients):
        scale = -scale
    expanded = sympy.expand(scale * expanded)
    ways = [sympy.gcd_terms(expanded, clear=False), sympy.factor_terms(expanded)]
    if len(terms) > COLLECTED_TERMS or any(term.as_numer_denom()[1] != 1 for term in terms):
        counts = sorted((s for s in expanded.free_symbols if s.name.startswith("L")), key=str)
        inner = sympy.collect(expanded, counts, sympy.factor_terms) if counts else ways[0]
        ways += [sympy.gcd_terms(inner, clear=False), sympy.factor_terms(inner), inner]
    found = min(ways, key=sympy.count_ops)
    return min(found / scale, expression, key=sympy.count_ops) if isinstance(expression, sympy.Basic) else found / scale


def text(expression: Any, values: Values | None = None) -> str:
    """The expression as Unicode text, with values in place of the symbols in `values`."""
    return _write(expression, _Writer(TEXT, values))


def latex(expression: Any, values: Values | None = None) -> str:
    """The expression as LaTeX for amsmath, with values in place of the symbols in `values`."""
    return _write(expression, _Writer(LATEX, values))


class Notation(NamedTuple):
    """The signs of plain text or of LaTeX."""

    symbol: Callable[[str], str]
    number: Callable[[Any], str]
    dot: str  # between factors that cannot be told apart without a sign
    times: str  # between numbers
    power: Callable[[str, str], str]
    fraction: Callable[[str, str], str]
    brackets: tuple[str, str]
    functions: Mapping[str, tuple[str, str]]
    minus: str
    comma: str = ", "


def _plain_power(base: str, exponent: str) -> str:
    if exponent.isdigit():
        return base + exponent.translate(_SUPERSCRIPTS)
    return f"{base}^{exponent if len(exponent) == 1 else f'({exponent})'}"


def _plain_fraction(top: str, bottom: str) -> str:
    return f"{top}/{bottom}"


def _plain_number(value: Any) -> str:
    return str(value) if value == int(value) else f"{float(value):.6g}"


def _latex_symbol(name: str) -> str:
    stem, _, index = name.partition("_")
    if not index:
        return stem
    return f"{stem}_{{{index}}}" if len(index) == 1 else f"{stem}_{{\\mathrm{{{index}}}}}"


TEXT = Notation(
    symbol=str,
    number=_plain_number,
    dot="·",
    times=" · ",
    power=_plain_power,
    fraction=_plain_fraction,
    brackets=("(", ")"),
    functions={
        "Min": ("min(", ")"), "Max": ("max(", ")"), "floor": ("⌊", "⌋"), "ceiling": ("⌈", "⌉"), "Mod": ("mod(", ")"),
    },
    minus="−",
)  # fmt: skip
LATEX = Notation(
    symbol=_latex_symbol,
    number=_plain_number,
    dot=r"\,",
    times=r" \cdot ",
    power=lambda base, exponent: f"{base}^{{{exponent}}}",
    fraction=lambda top, bottom: rf"\frac{{{top}}}{{{bottom}}}",
    brackets=(r"\bigl(", r"\bigr)"),
    functions={
        "Min": (r"\min(", ")"), "Max": (r"\max(", ")"), "floor": (r"\lfloor ", r"\rfloor "),
        "ceiling": (r"\lceil ", r"\rceil "), "Mod": (r"\operatorname{mod}(", ")"),
    },
    minus="-",
)  # fmt: skip


class _Writer(NamedTuple):
    notation: Notation
    values: Values | None

    def symbol(self, symbol: Any) -> str:
        if self.values is not None and symbol in self.values:
            return self.notation.number(self.values[symbol])
        return self.notation.symbol(symbol.name)

    def bracketed(self, inside: str) -> str:
        left, right = self.notation.brackets
        return f"{left}{inside}{right}"


def _write(expression: Any, writer: _Writer) -> str:
    import sympy

    expression = sympy.sympify(expression)
    notation = writer.notation
    if expression.is_Add:
        return _sum(expression, writer)
    if expression.is_Symbol:
        return writer.symbol(expression)
    top, bottom = sympy.fraction(expression)
    if bottom != 1 and not expression.is_Float:
        grouped = _write(bottom, writer)
        if notation is TEXT and not (bottom.is_Symbol or bottom.is_Integer):
            grouped = writer.bracketed(grouped)
        if notation is TEXT and top.is_Add:
            return notation.fraction(writer.bracketed(_write(top, writer)), grouped)
        return notation.fraction(_write(top, writer), grouped)
    if expression.is_Mul:
        return _product(expression, writer)
    if expression.is_Pow:
        return _power(expression, writer)
    if expression.is_number:
        return notation.number(expression)
    left, right = notation.functions[type(expression).__name__]
    arguments = (
        sorted(expression.args, key=_factor_order) if type(expression).__name__ in ("Min", "Max") else expression.args
    )
    return left + notation.comma.join(_write(argument, writer) for argument in arguments) + right


def _sum(expression: Any, writer: _Writer) -> str:
    formula = ""
    minus = writer.notation.minus
    terms = sorted(expression.args, key=_term_order)
    if terms[0].could_extract_minus_sign():  # 1 − k/E rather than −k/E + 1
        terms.sort(key=lambda term: term.could_extract_minus_sign())
    for term in terms:
        negative = term.could_extract_minus_sign()
        if formula:
            formula += f" {minus} " if negative else " + "
        elif negative:
            formula = minus
        formula += _write(-term if negative else term, writer)
    return formula


def _product(expression: Any, writer: _Writer) -> str:
    coefficient, factors = expression.as_coeff_mul()
    ordered = sorted(factors, key=_factor_order)
    texts = [_factor(factor, writer) for factor in ordered]
    sign = ""
    if coefficient < 0:
        sign, coefficient = writer.notation.minus, -coefficient
    if coefficient != 1:
        texts.insert(0, writer.notation.number(coefficient))
        ordered.insert(0, coefficient)
    if writer.values is not None:
        return sign + writer.notation.times.join(texts)
    joined = texts[0]
    for factor, before, after in zip(texts[1:], ordered, ordered[1:], strict=False):
        joined += (writer.notation.dot if _needs_dot(before, after) else "") + factor
    return sign + joined


def _needs_dot(before: Any, after: Any) -> bool:
    """Whether two factors need a sign between them: two numbers, or a name of several letters and another factor."""
    numbers = [part.as_base_exp()[0].is_number for part in (before, after)]
    long_names = (len(part.as_base_exp()[0].name) > 1 for part in (before, after) if part.as_base_exp()[0].is_Symbol)
    return (any(long_names) and not (before.is_number or after.is_Add)) or all(numbers)


def _factor(factor: Any, writer: _Writer) -> str:
    return writer.bracketed(_write(factor, writer)) if factor.is_Add else _write(factor, writer)


def _power(expression: Any, writer: _Writer) -> str:
    base, exponent = expression.as_base_exp()
    written = _write(base, writer)
    if base.is_Add or base.is_Mul:
        written = writer.bracketed(written)
    return writer.notation.power(written, _write(exponent, writer))


def _factor_order(factor: Any) -> tuple[Any, ...]:
    """Sort key of a factor: numbers, then symbols in ORDER, then functions, then sums."""
    base = factor.as_base_exp()[0]
    if base.is_number:
        return (0,)
    if base.is_Symbol:
        stem = base.name.removesuffix("_enc")
        known = ORDER.index(stem) if stem in ORDER else ORDER.index("L") if stem.startswith("L_") else len(ORDER)
        return (1, known, base.name)
    return (3 if base.is_Add else 2, str(factor))


def _term_order(term: Any) -> tuple[Any, ...]:
    """Sort key of a term: descending degree, then descending coefficient."""
    coefficient, factors = term.as_coeff_mul()
    return not term.free_symbols, -_degree(term), -float(abs(coefficient)), sorted(map(_factor_order, factors))


def _degree(term: Any) -> float:
    """The number of symbols that are multiplied; of a sum, the largest number in a term."""
    if term.is_Add:
        return max(map(_degree, term.args))
    if term.is_Mul:
        return sum(map(_degree, term.args))
    base, exponent = term.as_base_exp()
    return (
        float(exponent) * (1 if base.is_Symbol else _degree(base))
        if exponent.is_number and base != term
        else float(term.is_Symbol)
    )
