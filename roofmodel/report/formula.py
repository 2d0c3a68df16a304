"""SymPy expressions as plain text and as LaTeX: `2BSD(12DL + 2SL + V)`.

SymPy orders symbols by the alphabet. Here batch and tokens come first, then the sizes of a layer, then the number of
layers. The same expression with values instead of symbols: `2 · 1 · 1024 · 1600 · (12 · 1600 · 48 + …)`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import sympy
from sympy.printing.latex import LatexPrinter
from sympy.printing.printer import Printer
from sympy.printing.str import StrPrinter

from roofmodel.models.symbols import SYMBOLS

ORDER = ("n", "B", "S", "T", "C", "N_tp", "N_dp", "N_ep", *(name for name in SYMBOLS.values() if name != "V"), "L", "V")
COLLECTED_TERMS = 4  # sums of more terms are also collected by numbers of layers
_SUPERSCRIPTS = str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹")
Values = Mapping[Any, Any]


def readable(expression: Any) -> Any:
    """An equal expression that is shorter: common factors in front, long sums collected by numbers of layers."""
    expanded = sympy.expand(sympy.sympify(expression))
    terms = sympy.Add.make_args(expanded)
    coefficients = [term.as_coeff_Mul()[0] for term in terms]
    scale = sympy.ilcm(1, 1, *(c.q for c in coefficients if c.is_Rational))  # S(S + 1)/2 rather than S(S/2 + 1/2)
    if all(c < 0 for c in coefficients):
        scale = -scale
    expanded = sympy.expand(scale * expanded)
    ways = [sympy.gcd_terms(expanded, clear=False), sympy.factor_terms(expanded)]
    if len(terms) > COLLECTED_TERMS or any(term.as_numer_denom()[1] != 1 for term in terms):
        counts = sorted((s for s in expanded.free_symbols if s.name.startswith("L")), key=str)
        inner = sympy.collect(expanded, counts, sympy.factor_terms) if counts else ways[0]
        ways += [sympy.gcd_terms(inner, clear=False), sympy.factor_terms(inner), inner]
    best = min(ways, key=sympy.count_ops)
    return min(best / scale, expression, key=sympy.count_ops) if isinstance(expression, sympy.Basic) else best / scale


def text(expression: Any, values: Values | None = None) -> str:
    """The expression as Unicode text, with values in place of the symbols in `values`."""
    written = _TextPrinter(values).doprint(sympy.sympify(expression)).replace("-", "−")
    written = re.sub(r"\*\*(\d+)", lambda power: power[1].translate(_SUPERSCRIPTS), written).replace("**", "^")
    return _FACTORS.sub(_juxtapose, written) if values is None else written.replace("*", " · ")


def latex(expression: Any, values: Values | None = None) -> str:
    """The expression as LaTeX for amsmath, with values in place of the symbols in `values`."""
    written = _LatexPrinter(values, mul_symbol="*" if values is None else "dot").doprint(sympy.sympify(expression))
    written = re.sub(r"((?<=_\{.\})|(?<=\}\}))\*(?!\\left)|(?<!\d)\*(?=\w_)", r"\\,", written).replace("*", "")
    # A formula with \left cannot be broken into lines between the brackets.
    return written.replace(r"\left", r"\bigl").replace(r"\right", r"\bigr")


class _OrderedPrinter(Printer):  # type: ignore[misc]  # SymPy has no types
    """Writes terms and factors in the order of ORDER, and values in place of symbols."""

    def __init__(self, values: Values | None, **settings: Any) -> None:
        super().__init__({"order": "none", **settings})
        self.values = values or {}

    def _as_ordered_terms(self, expr: Any, order: Any = None) -> list[Any]:
        terms = sorted(expr.args, key=_term_order)
        if terms[0].could_extract_minus_sign():  # 1 − k/E rather than −k/E + 1
            terms.sort(key=lambda term: term.could_extract_minus_sign())
        return terms

    def _print_Mul(self, expr: Any) -> str:
        if expr.could_extract_minus_sign():
            return f"-{self._print(-expr)}"
        if expr.is_Mul:  # LatexPrinter also calls this method for a power with a negative exponent
            expr = sympy.Mul._from_args(sorted(expr.args, key=_factor_order))
        return str(super()._print_Mul(expr))

    def _print_Symbol(self, expr: Any) -> str:
        return self._print_Float(self.values[expr]) if expr in self.values else self._name(expr.name)

    def _print_Float(self, expr: Any) -> str:
        return str(expr) if expr == int(expr) else f"{float(expr):.6g}"


class _TextPrinter(_OrderedPrinter, StrPrinter):  # type: ignore[misc]
    _name = str

    def _print_Function(self, expr: Any) -> str:
        arguments = sorted(expr.args, key=_factor_order) if expr.func in (sympy.Min, sympy.Max) else expr.args
        return f"{expr.func.__name__.lower()}({self.stringify(arguments, ', ')})"

    _print_LatticeOp = _print_Function

    def _print_floor(self, expr: Any) -> str:
        return f"⌊{self._print(expr.args[0])}⌋"

    def _print_ceiling(self, expr: Any) -> str:
        return f"⌈{self._print(expr.args[0])}⌉"


class _LatexPrinter(_OrderedPrinter, LatexPrinter):  # type: ignore[misc]
    def _name(self, name: str) -> str:
        stem, _, index = name.partition("_")
        if len(index) > 1:
            index = rf"\mathrm{{{index}}}"
        return f"{stem}_{{{index}}}" if index else stem


_NAME = "[A-Za-z][A-Za-z0-9_]*"
_FACTORS = re.compile(rf"({_NAME}|\d[\d.]*)?([⁰¹²³⁴-⁹]*)\*(?=({_NAME}|\d|⌊|⌈)?(\*|\()?)")


def _juxtapose(match: re.Match[str]) -> str:
    """Replace the sign after a factor by a dot or nothing.

    A dot is between numbers, next to a name of many letters, and in `3·B`, which otherwise reads as bytes.
    """
    left, power, right, more = match.groups(default="")
    if left[:1].isdigit():
        dot = right.isdigit() or (right == "B" and not more)
    else:
        dot = len(right) > 1 or bool(len(left) > 1 and right)
    return f"{left}{power}{'·' if dot else ''}"


def _factor_order(factor: Any) -> tuple[Any, ...]:
    """Sort key of a factor: numbers, then symbols in ORDER, then functions, then sums."""
    base = factor.as_base_exp()[0]
    if base.is_number:
        return (0,)
    if base.is_Symbol:
        stem = base.name.removesuffix("_enc")
        rank = ORDER.index(stem) if stem in ORDER else ORDER.index("L") if stem.startswith("L_") else len(ORDER)
        return (1, rank, base.name)
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
