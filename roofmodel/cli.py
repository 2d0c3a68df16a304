"""The command line: the group `roof`, which imports only the command that runs, and the exit status of its errors.

Each command parses options, calls one function of its folder and presents its result; `COMMANDS` names the modules.
"""

from __future__ import annotations

import importlib
import io
import os
import re
import signal
import sys
from types import FrameType
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from roofmodel.errors import RoofError, cut_words, not_modeled, option_spelling
from roofmodel.files.text_files import ASCII_FALLBACK
from roofmodel.options.workload import REMOVED
from roofmodel.report.command import typer_app
from roofmodel.report.printing import flag, print_line, print_text

__all__ = ["app", "interrupt", "main"]

LENGTHS = ("--seq", "--context", "--decoder-seq", "--isl", "--osl", "--new-tokens", "--n")
"""Options whose values are often thousands; an error message shows a larger example for them."""
NUMBERS = ("int", "integer", "float")  # names of types in versions of typer
INTERRUPTED = 130  # typer's exit code for a KeyboardInterrupt, whichever signal caused it
_interrupted_by: int = signal.SIGINT
NO_DOCSTRINGS = (
    "Python removed the docstrings, which list the options (python -OO, PYTHONOPTIMIZE=2); run it without -OO, or with "
    "-O (PYTHONOPTIMIZE=1)"
)

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


def interrupt(number: int, frame: FrameType | None) -> None:
    """The handler of signals that end a command: temporary files are deleted, then `main` exits with 128 + `number`."""
    global _interrupted_by
    _interrupted_by = number
    raise KeyboardInterrupt


def main() -> None:
    """The console script: runs `app`, prints an error as one line, and exits with its code."""
    _make_streams_safe()
    with option_spelling(flag):
        try:
            if main.__doc__ is None:
                raise RoofError(NO_DOCSTRINGS)
            status = app(standalone_mode=False)
            sys.stdout.flush()
        except RoofError as error:
            status = _fail(str(error))
        except (BrokenPipeError, SystemExit):  # the reader, such as `head`, closed the pipe (typer exits then)
            _drop_stdout()
            status = 0
        except KeyboardInterrupt:
            status = INTERRUPTED
        except Exception as error:
            status = _unexpected(error)
    sys.exit(128 + _interrupted_by if status == INTERRUPTED else int(status or 0))


def _unexpected(error: Exception) -> int:
    """The exit code of an error of typer or of the system, or of a bug."""
    if os.environ.get("ROOF_DEBUG"):
        raise error
    if isinstance(error, OSError) and error.filename is None:  # such as a full disk
        _drop_stdout()
        return _fail(f"the output cannot be written ({error.strerror})")
    if hasattr(error, "format_message"):  # typer's error for an invalid command line
        return _usage(error)
    _fail(
        f"a bug in roofmodel ({type(error).__name__}: {error}); "
        "please report it with the command; ROOF_DEBUG=1 shows where"
    )
    return 1


def _make_streams_safe() -> None:
    """Replace streams that the caller closed, or that cannot write all characters or report a full disk."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the caller
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115  # open until the process ends
        getattr(sys, name).reconfigure(errors=ASCII_FALLBACK)  # a C locale has no box characters
    if isinstance(sys.stdout.buffer, io.RawIOBase):  # PYTHONUNBUFFERED, with which output to a full disk fails silently
        fd, encoding = sys.stdout.fileno(), sys.stdout.encoding
        sys.stdout = open(fd, "w", encoding=encoding, errors=ASCII_FALLBACK, closefd=False)  # noqa: SIM115


def _drop_stdout() -> None:
    """Discard the unwritten output, which the interpreter would otherwise fail to flush at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fail(message: str) -> int:
    print_line(f"error: {cut_words(message)}")
    return 2


def _former_option(error: Any, context: Any) -> RoofError | None:
    """The error for a former option of a workload, with its value on the command line."""
    name = str(getattr(error, "option_name", "")).removeprefix("--")
    if name not in REMOVED or not any(each.name == "engine_option" for each in context.command.params):
        return None
    from roofmodel.engines.former_options import removed_option

    value = " ".join(sys.argv[1:]).partition(f"--{name}")[2].lstrip("= ").partition(" ")[0]
    return removed_option(name, value or None)


def _usage(error: Any) -> int:
    message = error.format_message().strip().rstrip(".")
    if not message:  # no command: the help is printed already
        return 2
    parameter: Any = getattr(error, "param", None)  # typer's words differ between its versions; its attributes do not
    option = parameter.opts[-1] if parameter else ""
    if option == "--hw" and hasattr(error, "param_type"):  # of the error for a missing option
        devices = "devices such as --hw a100,h100" if parameter.multiple else "a device such as --hw a100"
        return _fail(f"--hw is missing; give {devices} (see 'roof hw list')")
    if option.startswith("--") and parameter.type.name in NUMBERS and (quoted := re.search("'.*'", error.message)):
        value, whole = quoted[0], parameter.type.name != "float"
        several = whole and re.match("'[0-9]+[,:]", value)
        example = (4096 if option in LENGTHS else 8) if whole else 0.9
        kind = "a whole number" if whole else "a number"
        message = f"{option}: {value} is not {kind}"
        message += "; 'roof sweep' takes several" if several else f", such as {example}"
        if whole and len(value) > sys.get_int_max_str_digits() > 0:
            message = (
                f"{option}: a text of {len(value) - 2} characters is too long for a number; give one such as {example}"
            )
    context = getattr(error, "ctx", None)
    name = str(getattr(error, "option_name", ""))
    if why := not_modeled(name):
        return _fail(f"{name}: {why}")
    if former := _former_option(error, context):
        return _fail(str(former))
    return _fail(message + (f" (see '{context.command_path} -h')" if context else ""))
