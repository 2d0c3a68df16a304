"""Options that several commands share, with their help; the options of a workload."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, Literal

import typer
from typer.core import TyperOption

from roofmodel.errors import Option, WorkloadError
from roofmodel.options.signature import helps, kinds, own_types
from roofmodel.options.values import OutputFormat
from roofmodel.options.workload import DECLARED, DEFAULTS, TRAINING, with_options

Command = Callable[..., None]

INPUT, OUTPUT = "Input pipeline", "Output"
"""Groups of options in `--help`, besides those of a workload."""

SHARED = {
    "model": "A packaged name, a config.json or its folder, or a Hub id.",
    "models": "One or several models, as for estimate.",
    "hw": "A packaged device (see 'roof hw list') or a YAML file.",
    "family": "Read an unknown model_type as this family, such as llama.",
    "times": "Take the times from this nsys, nvprof or PyTorch file, not from `files`.",
    "cluster": "Compute with Dask: the address of a scheduler, or local for processes on this machine.",
}
"""The help of options that several functions have, where the docstring of a function does not state it."""

Settings = Mapping[str, Mapping[str, Any]]
"""For an option, further arguments of typer's Option, such as `metavar`; and its `flags`, `default` and `group`."""


Model = Annotated[str, typer.Argument(help="A packaged name, a config.json or its folder, or a Hub id.")]
Models = Annotated[list[str], typer.Argument(metavar="MODEL…", help="One or several models, as for estimate.")]
ModelOrKernel = (
    "A model, as for estimate, or a kernel: matmul, matmul-accumulate, saxpy, triad, stencil7, stencil7-uncached, spmv."
)
Files = Annotated[
    list[str], typer.Argument(help="Profiler files or patterns; - for stdin; FILE@HW sets the device of a file.")
]
Hardware = Annotated[str | None, typer.Option("--hw", help="A packaged device (see 'roof hw list') or a YAML file.")]
ProfileHardware = Annotated[
    str | None, typer.Option("--hw", help="The device, if the files do not state it or state it wrongly.")
]
Family = Annotated[str | None, typer.Option(help="Read an unknown model_type as this family, such as llama.")]
Times = Annotated[
    list[str] | None,
    typer.Option("--times", help="Take the times from this nsys, nvprof or PyTorch file, not from FILES."),
]


def name_option(help_text: str, *flags: str, panel: str | None = None) -> Any:
    """An option with a type of `values`. The library checks its value, and suggests a similar one."""
    return typer.Option(*flags, help=help_text, parser=str, rich_help_panel=panel)


def format_option(help_text: str) -> Any:
    """`--format`, in the group of output options."""
    return name_option(help_text, "--format", panel=OUTPUT)


def output_option(help_text: str) -> Any:
    """`-o FILE`, in the group of output options."""
    return typer.Option("-o", "--output", help=help_text, rich_help_panel=OUTPUT)


ListingFormat = Annotated[OutputFormat, format_option("table or json.")]
DocumentFormat = Annotated[OutputFormat, format_option("table, json, markdown or latex, on stdout.")]
DocumentFiles = Annotated[list[str] | None, output_option("Also write FILE: .md .tex .json")]


def examples(*commands: str) -> str:
    """Examples below the options of `--help`."""
    return "\n\n".join(["Examples:", *commands])


def required_device(hw: Any, example: str) -> None:
    """Raises WorkloadError without `--hw`."""
    if not hw:
        raise WorkloadError(Option("hw"), " is missing; give ", example, " (see 'roof hw list')")


def devices(hw: list[str]) -> list[str]:
    """The names in `--hw a100,h100`, or in `--hw` given several times."""
    return [name.strip() for names in hw for name in names.split(",")]


def panel_option(panel: str, help_text: str) -> Any:
    """An option that `--help` lists in this panel."""
    return typer.Option(help=help_text, rich_help_panel=panel)


def takes_search(command: Command) -> Command:
    """Replace the `**search` of a command by the options that plans search, as text with one or several values."""
    searched = {name: option for name, option in DECLARED.items() if option.plans}
    annotations = {
        name: Annotated[
            str | None, panel_option(TRAINING if option.plans == ("training",) else option.group, option.plan_help)
        ]
        for name, option in searched.items()
    }
    return with_options(command, inspect.signature(command, eval_str=True), annotations, dict.fromkeys(searched))


def takes_workload(command: Command) -> Command:
    """Replace the `**workload` of a command by the options of a workload."""
    types = {name: {"count": int, "share": float}.get(option.kind, str) for name, option in DECLARED.items()}
    return _with_options(command, types, DEFAULTS)


def takes_grid(command: Command) -> Command:
    """Replace the `**grid` of a command by the options of a workload as text, which may state several values."""
    return _with_options(command, dict.fromkeys(DECLARED, str), dict.fromkeys(DECLARED))


def options_of(function: Callable[..., Any], settings: Settings) -> list[inspect.Parameter]:
    """The arguments and options of a function's command, as typer reads them.

    The first parameter and `*files` are arguments, the others options; `progress` is neither. A parameter with an
    empty tuple as default may be repeated.
    """
    texts, types = SHARED | helps(function), own_types(function)
    parameters = inspect.signature(function).parameters
    first = next(iter(parameters))
    found = []
    for name, parameter in parameters.items():
        if name == "progress":
            continue
        if name in types:
            declared = {"help": texts[name], "group": None}
        else:
            declared = {"help": DECLARED[name].help, "group": DECLARED[name].group}
        extra = declared | dict(settings.get(name, {}))
        flags, group, default = extra.pop("flags", ()), extra.pop("group"), extra.pop("default", parameter.default)
        extra["help"] = _spelled(extra["help"], parameters)
        value = _type(types.get(name, parameter.annotation), parameter)
        if (name == first or parameter.kind is parameter.VAR_POSITIONAL) and not flags:
            option = typer.Argument(**extra)
        else:
            option = typer.Option(*(flags or (f"--{name.replace('_', '-')}",)), rich_help_panel=group, **extra)
        if isinstance(default, tuple):
            default = None
        annotation = value if default is not None else value | None
        found.append(
            inspect.Parameter(name, parameter.KEYWORD_ONLY, default=default, annotation=Annotated[annotation, option])
        )
    return found


def _type(annotation: Any, parameter: inspect.Parameter) -> Any:
    """The type of an option on the command line: text, where Python takes a path, one of several names, or a list."""
    found = kinds(annotation)
    several = parameter.default is parameter.empty or isinstance(parameter.default, tuple)
    if parameter.kind is parameter.VAR_POSITIONAL or (Iterable in found and several):
        return list[str]
    if found & {str, Literal, os.PathLike}:
        return str
    return next(kind for kind in (bool, float, int) if kind in found)


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


def notes_option(choose: Callable[[typer.Context, bool], None]) -> TyperOption:
    """`--notes`, which every command has; `choose` gets the command line and whether it states the option."""
    return TyperOption(
        param_decls=["--notes"], is_flag=True, default=False, expose_value=False, rich_help_panel=OUTPUT,
        help="Print all notes, not only the three most important ones.",
        callback=lambda command_line, option, value: choose(command_line, value),
    )  # fmt: skip


def _with_options(command: Command, types: Mapping[str, type], defaults: Mapping[str, Any]) -> Command:
    """The command with the options of a workload; one whose default is None may be missing."""
    annotations = {
        name: Annotated[
            types[name] if defaults[name] is not None else types[name] | None, panel_option(option.group, option.help)
        ]
        for name, option in DECLARED.items()
    }
    return with_options(command, inspect.signature(command, eval_str=True), annotations, defaults)
