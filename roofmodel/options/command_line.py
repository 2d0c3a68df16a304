"""Options that several commands share, with their help; the options of a workload."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import typer
from typer.core import TyperOption

from roofmodel.errors import Option, WorkloadError
from roofmodel.options.values import OutputFormat
from roofmodel.options.workload import DECLARED, DEFAULTS, TRAINING, with_options

Command = Callable[..., None]

INPUT, OUTPUT = "Input pipeline", "Output"
"""Groups of options in `--help`, besides those of a workload."""

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
