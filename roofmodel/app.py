"""The command group `roof`, which imports only the command that runs."""

from __future__ import annotations

import importlib
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from roofmodel.report.command import typer_app
from roofmodel.report.printing import print_text

PANELS = {
    "Predict": {
        "estimate": "roofmodel.estimate.command",
        "sweep": "roofmodel.sweep.command",
        "op": "roofmodel.op.command",
        "count": "roofmodel.count.command",
    },
    "Decide": {
        "plan": "roofmodel.plan.command",
        "crossover": "roofmodel.explain.crossover_command",
    },
    "Explain": {
        "explain": "roofmodel.explain.command",
        "explore": "roofmodel.explore.command",
    },
    "Measure": {
        "kernels": "roofmodel.plot.kernels_command",
        "plot": "roofmodel.plot.command",
        "compare": "roofmodel.compare.command",
        "trace": "roofmodel.trace.command",
        "jitter": "roofmodel.jitter.command",
        "ncu-command": "roofmodel.plot.ncu_command",
        "nsys-command": "roofmodel.plot.nsys_command",
        "measure": "roofmodel.measure.command",
        "validate": "roofmodel.measure.validate_command",
        "calibrate": "roofmodel.measure.calibrate_command",
    },
    "Teach": {
        "homework": "roofmodel.homework.command",
    },
    "Look up": {
        "models": "roofmodel.catalog.models_command",
        "hw": "roofmodel.catalog.hw_command",
    },
}
"""The commands in the order and the panels of the help, with the module of each, whose `COMMAND` declares it."""
COMMANDS = {name: module for modules in PANELS.values() for name, module in modules.items()}


class _LazyCommands(TyperGroup):
    """The commands, each imported when it runs, to start faster."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes | {"commands": dict.fromkeys(COMMANDS)})  # the names suffice for "did you mean"

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(COMMANDS[cmd_name])
        command: Any = typer.main.get_command(typer_app(module.COMMAND))
        command.name = cmd_name
        command.rich_help_panel = next(panel for panel, modules in PANELS.items() if cmd_name in modules)
        return command


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
