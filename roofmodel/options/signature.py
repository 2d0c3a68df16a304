"""The parameters of a public function: their types and help, the check of its arguments, and its command line.

A public function declares each of its options once: name, type and default in its signature, help under `Args` in its
docstring. Its command has the same options. `workload.py` declares the options of a workload.
"""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache, wraps
from types import NoneType, SimpleNamespace, UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from roofmodel.errors import Option, RoofError, shorten
from roofmodel.options.values import (
    Declared,
    EngineOption,
    Names,
    Numbers,
    PlanKind,
    RoutingOption,
    check_one_of,
    declared_options,
)
from roofmodel.options.workload import DECLARED, DEFAULTS, TRAINING

if TYPE_CHECKING:
    import typer

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
    """The types of a function's parameters, without the options of a workload, and of `return`."""
    source = inspect.unwrap(function)
    # Only type checkers need the types of the options of a workload, in `**options: Unpack[WorkloadOptions]`.
    types = {name: text for name, text in source.__annotations__.items() if not str(text).startswith("Unpack[")}
    of_request = {name: declared.type for name, declared in _of_request(function).items()}
    return {**get_type_hints(SimpleNamespace(__annotations__=types), source.__globals__), **of_request}


def _of_request(function: Callable[..., Any]) -> Mapping[str, Declared]:
    """The options of the request of a function; see `lists_request`."""
    return getattr(function, "__request__", {})


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
    if Literal in value_kinds and not (bool in value_kinds and isinstance(value, bool)):
        check_one_of(name, value, [text for member in members(annotation) for text in get_args(member)])
    if value_kinds <= {int, NoneType} and type(value) is not int:
        raise RoofError(Option(name), f" is {shorten(value)}; give a whole number")


def helps(function: Callable[..., Any]) -> dict[str, str]:
    """The help of each option that the docstring of a function lists under `Args`, or that its request declares."""
    _, _, after = inspect.cleandoc(function.__doc__ or "").partition("\nArgs:\n")
    entries = re.findall(r"^    \*?(\w+): (.*(?:\n      .*)*)", after.partition("\n\n")[0], re.MULTILINE)
    documented = {name: " ".join(text.split()) for name, text in entries}
    return documented | {name: declared.help for name, declared in _of_request(function).items()}


OUTPUT = "Output"
"""The group of `--format`, `-o` and others in `--help`."""

Settings = Mapping[str, Mapping[str, Any]]
"""For an option, arguments of typer's Option, such as `metavar`; and its `flags` and `default`, where they differ."""

CHOICES_WIDTH = 24
"""The longest list of choices that leaves room for the help in a terminal of 80 columns."""

Parameters = list[inspect.Parameter]


def options_of(functions: Iterable[Callable[..., Any]], settings: Settings) -> tuple[Parameters, Parameters]:
    """The arguments and options of functions, as typer reads them: own ones, and those of a workload.

    The first parameter and `*files` of the first function are arguments; those of the others, which `run` takes from
    these, are left out. The rest are options, but for `progress`. An option with a tuple as default, and one without
    default that takes an iterable, may be repeated.
    """
    own: dict[str, inspect.Parameter] = {}
    of_workload: dict[str, inspect.Parameter] = {}
    for number, function in enumerate(functions):
        texts, types, of_request = helps(function), own_types(function), _of_request(function)
        searched: Mapping[str, Declared] = getattr(function, "__searched__", DECLARED)
        parameters = inspect.signature(function).parameters
        for position, (name, parameter) in enumerate(parameters.items()):
            if name == "progress" or name not in {**texts, **DECLARED} or name in own or name in of_workload:
                continue
            if number and (not position or parameter.kind is parameter.VAR_POSITIONAL):
                continue
            further = settings.get(name, {})
            if name in types:
                shown = {"help": _spelled(texts[name], parameters), **further}
                choices: tuple[str, ...] = ()
                if (of_record := of_request.get(name)) is not None:
                    shown, choices = {"rich_help_panel": of_record.group, **shown}, of_record.choices
                own[name] = _option(parameter.replace(annotation=types[name]), position, shown, choices)
            else:
                declared = searched[name]
                shown = {"help": declared.help, "rich_help_panel": declared.group, **further}
                of_workload[name] = _option(parameter, position, shown, declared.choices)
    return [*own.values()], [*of_workload.values()]


def _option(
    parameter: inspect.Parameter, position: int, shown: dict[str, Any], choices: tuple[str, ...] = ()
) -> inspect.Parameter:
    """A parameter of a function as typer reads it; `shown` are the arguments of typer's Option."""
    import typer

    flags, default = shown.pop("flags", ()), shown.pop("default", parameter.default)
    value = _type(parameter)
    if flags or (position and parameter.kind is not parameter.VAR_POSITIONAL):
        shown = {"metavar": _metavar(parameter.annotation, value, choices), **shown}
        option = typer.Option(*(flags or (f"--{parameter.name.replace('_', '-')}",)), **shown)
    else:
        option = typer.Argument(**shown)
    if default is None or isinstance(default, tuple):
        default, value = None, value | None
    return inspect.Parameter(
        parameter.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[value, option]
    )


def _type(parameter: inspect.Parameter) -> Any:
    """The type of an option on the command line: text, where Python takes a path, one of several names, or a list."""
    types = kinds(parameter.annotation)
    several = parameter.default is parameter.empty or isinstance(parameter.default, tuple)
    if parameter.kind is parameter.VAR_POSITIONAL or {Mapping, Iterable} <= types or (Iterable in types and several):
        return list[str]
    if types & {str, Literal, os.PathLike}:
        return str
    return next(kind for kind in (bool, float, int) if kind in types)


def _metavar(annotation: Any, value: Any, choices: tuple[str, ...]) -> str | None:
    """What `--help` shows as the value of an option: its choices; `,…` where one text may list several values.

    None: typer's name of the type.
    """
    types = kinds(annotation)
    names = choices or tuple(
        name for each in members(annotation) if get_origin(each) is Literal for name in get_args(each)
    )
    shown = "|".join(names) if len("|".join(names)) <= CHOICES_WIDTH else "<name>"
    if value is str and Iterable in types and Mapping not in types:
        numbers = next((kind for kind in (float, int) if kind in types), str).__name__
        return f"{shown or f'<{numbers}>'},…"
    return shown or None


def _spelled(text: str, parameters: Mapping[str, inspect.Parameter]) -> str:
    """The help with `name` as the command line writes it: --name, or FILES for an argument."""

    def flag(name: re.Match[str]) -> str:
        parameter = parameters.get(name[1])
        if parameter is None:
            return name[1]
        return name[1].upper() if parameter.kind is parameter.VAR_POSITIONAL else f"--{name[1].replace('_', '-')}"

    return re.sub(r"\[(?=[a-z#/@])", r"\\[", re.sub(r"`(\w+)`", flag, text))  # a [ would begin markup of rich


def is_given(command_line: typer.Context, option: str) -> bool:
    """Whether the command line states an option, also with its default value."""
    source = command_line.get_parameter_source(option)
    return source is not None and source.name != "DEFAULT"


# --- The options of a workload or a request, in place of the `**options` of a function -----------------


def lists_options(function: Function) -> Function:
    """Show the options of a workload in the signature of a function, in place of its `**options`.

    Type checkers know them from the annotation of `**options`; interactive sessions complete them from this signature.
    """
    types = {name: declared.type for name, declared in DECLARED.items()}
    return with_options(function, inspect.signature(function), types, DEFAULTS)


def lists_axes(record: Any) -> Callable[[Function], Function]:
    """Show the options of a workload and of a request as axes of a sweep, in place of the `**options` of a function."""
    of_request = {name: option._replace(type=_axis(option) | None) for name, option in declared_options(record).items()}
    axes = {name: option.type for name, option in of_request.items()} | {
        name: _axis(option) | None for name, option in DECLARED.items()
    }

    def decorated(function: Function) -> Function:
        with_options(function, inspect.signature(function), axes, dict.fromkeys(axes))
        function.__dict__.update(__request__=of_request)
        return function

    return decorated


def lists_request(record: Any, plan: PlanKind | None = None) -> Callable[[Function], Function]:
    """Show the options of a request in place of the `**options` of a function, then those that the plan searches.

    Without a plan: optional ones of a request that is not always made, then all options of a workload. The function is
    checked and becomes a command as if its signature and docstring had the options of the request.
    """
    declared = declared_options(record)
    of_request = {name: option.type for name, option in declared.items()}
    if plan is None:
        searched: Mapping[str, Declared] = DECLARED
        types = {name: kind | None for name, kind in of_request.items()} | {
            name: option.type for name, option in searched.items()
        }
        defaults = {**dict.fromkeys(of_request), **DEFAULTS}
    else:
        searched = {
            name: option._replace(
                help=option.plan_help, group=TRAINING if option.plans == ("training",) else option.group
            )
            for name, option in DECLARED.items()
            if plan in option.plans
        }
        types = of_request | {name: _axis(option) | None for name, option in searched.items()}
        needed = {name: record._field_defaults.get(name, inspect.Parameter.empty) for name in declared}
        defaults = {**dict.fromkeys(searched), **needed}

    def decorated(function: Function) -> Function:
        with_options(function, inspect.signature(function), types, defaults)
        function.__dict__.update(__request__=declared, __searched__=searched)
        return function

    return decorated


def _axis(option: Declared) -> Any:
    """The type of one or several values."""
    if option.type is bool:
        return bool
    if option.type == RoutingOption:
        return RoutingOption | Iterable[RoutingOption]
    kinds = {"count": Numbers, "name": Names, "settings": EngineOption}
    return kinds.get(option.kind, float | str | Iterable[float | str])


def with_options(
    function: Function, signature: inspect.Signature, types: Mapping[str, Any], defaults: Mapping[str, Any]
) -> Function:
    """The function, whose signature has options of these types in place of its last parameter, `**options`."""
    options = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=defaults[name], annotation=annotation)
        for name, annotation in types.items()
    ]
    own = [*signature.parameters.values()][:-1]
    function.__signature__ = signature.replace(parameters=[*own, *options])  # type: ignore[attr-defined]
    return function
