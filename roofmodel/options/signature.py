"""The parameters of a public function: their types and help, and the check of its arguments.

A public function declares each of its options once: name, type and default in its signature, help under `Args` in its
docstring. Its command has the same options (`command_line.py`). `workload.py` declares the options of a workload.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from functools import cache, wraps
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from roofmodel.errors import Option, RoofError, shorten
from roofmodel.options.values import check_one_of

Function = TypeVar("Function", bound=Callable[..., Any])


def checked(function: Function) -> Function:
    """The function, which raises RoofError for an argument that is no text, no whole number, or none of several names
    where its type is one of these.

    Other types are checked where the value is used.
    """

    @wraps(function)
    def call(*arguments: Any, **options: Any) -> Any:
        types = own_types(function)
        for name, value in (*zip(_positional(function), arguments, strict=False), *options.items()):
            if name in types:
                _check(name, value, types[name])
        return function(*arguments, **options)

    return call  # type: ignore[return-value]


@cache
def own_types(function: Callable[..., Any]) -> dict[str, Any]:
    """The types in the source of a function: of each parameter, without the options of a workload, and of `return`."""
    return get_type_hints(function)


def _positional(function: Callable[..., Any]) -> list[str]:
    parameters = inspect.signature(function).parameters.values()
    return [each.name for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD]


def members(annotation: Any) -> tuple[Any, ...]:
    """The types of a union, or the only type."""
    if get_origin(annotation) in (Union, UnionType):
        return tuple(member for each in get_args(annotation) for member in members(each))
    return (annotation,)


def kinds(annotation: Any) -> set[Any]:
    """The types of a union without their parameters: `Iterable` for `Iterable[str]`, `Literal` for several names."""
    return {get_origin(member) or member for member in members(annotation)}


def _check(name: str, value: object, annotation: Any) -> None:
    value_kinds = kinds(annotation)
    if value is None and NoneType in value_kinds:
        return
    if value_kinds <= {str, Literal, NoneType} and not isinstance(value, str):
        raise RoofError(Option(name), f" is {shorten(value)}; give text")
    if Literal in value_kinds:
        check_one_of(name, value, [text for member in members(annotation) for text in get_args(member)])
    if value_kinds <= {int, NoneType} and type(value) is not int:
        raise RoofError(Option(name), f" is {shorten(value)}; give a whole number")


def helps(function: Callable[..., Any]) -> dict[str, str]:
    """The help of each option that the docstring of a function lists under `Args`."""
    _, _, after = inspect.cleandoc(function.__doc__ or "").partition("\nArgs:\n")
    entries = re.findall(r"^    \*?(\w+): (.*(?:\n      .*)*)", after.partition("\n\n")[0], re.MULTILINE)
    return {name: " ".join(text.split()) for name, text in entries}
