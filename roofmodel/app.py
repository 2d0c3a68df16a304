"""The command group `roof`, which imports only the command that runs."""

from __future__ import annotations

import importlib
from functools import partial
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from roofmodel.options.command_line import is_given, notes_option
from roofmodel.report.base import NoteChoice, note_choice
from roofmodel.report.printing import print_text

PANELS = {
    "Predict": {
        "estimate": "roofmodel.estimate.cli",
        "sweep": "roofmodel.sweep.cli",
        "count": "roofmodel.count.cli",
    },
    "Decide": {
        "plan": "roofmodel.plan.cli",
        "crossover": "roofmodel.explain.crossover_cli",
    },
    "Explain": {
        "explain": "roofmodel.explain.cli",
        "explore": "roofmodel.explore.cli",
    },
    "Measure": {
        "kernels": "roofmodel.plot.kernels_cli",
        "plot": "roofmodel.plot.cli",
        "compare": "roofmodel.compare.cli",
        "trace": "roofmodel.trace.cli",
        "jitter": "roofmodel.jitter.cli",
        "ncu-command": "roofmodel.plot.ncu_command_cli",
        "measure": "roofmodel.measure.cli",
        "validate": "roofmodel.measure.validate_cli",
        "calibrate": "roofmodel.measure.calibrate_cli",
    },
    "Teach": {
        "homework": "roofmodel.homework.cli",
    },
    "Look up": {
        "models": "roofmodel.catalog.models_cli",
        "hw": "roofmodel.catalog.hw_cli",
    },
}
"""The commands in the order and the panels of the help, with the module of each, whose `app` is the command."""
COMMANDS = {name: module for modules in PANELS.values() for name, module in modules.items()}


class _LazyCommands(TyperGroup):
    """The commands, each imported when it runs, to start faster."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes | {"commands": dict.fromkeys(COMMANDS)})  # the names suffice for "did you mean"

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(COMMANDS[cmd_name])
        command: Any = typer.main.get_command(module.app)
        command.name = cmd_name
        command.rich_help_panel = next(panel for panel, modules in PANELS.items() if cmd_name in modules)
        for each in getattr(command, "commands", {cmd_name: command}).values():
            if all(option.name != "notes" for option in each.params):
                each.params.append(notes_option(_choose_notes))
        return command


def _choose_notes(command_line: typer.Context, every: bool) -> None:
    """Results show notes as this command line asks for it, until the command ends."""
    command_line.with_resource(note_choice(NoteChoice(every, partial(is_given, command_line))))


app = typer.Typer(
    cls=_LazyCommands,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(shown: bool) -> None:
    if shown:
        from roofmodel import __version__

        print_text(f"roofmodel {__version__}")
        raise typer.Exit


@app.callback()
def version_option(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_version)
    ] = False,
) -> None:
    """FLOPs, bytes and time of transformers on a GPU, predicted and measured, on the roofline."""
