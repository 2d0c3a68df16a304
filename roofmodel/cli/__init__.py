"""The command line: parse, call, render. Everything it does, a library call does too.

A command is a module of this package, which `app.COMMANDS` names; doors.py has what they share.
"""

from __future__ import annotations

import io
import os
import re
import sys
from typing import Any

from roofmodel.cli.app import app
from roofmodel.cli.doors import flag, say
from roofmodel.errors import RoofError, option_spelling
from roofmodel.views.kit.encoding import ASCII_FALLBACK

__all__ = ["app", "main"]


def main() -> None:
    """The console script: runs `app`, and turns every error into one clear line and an exit code."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by whoever called
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115  # for as long as the process lives
        getattr(sys, name).reconfigure(errors=ASCII_FALLBACK)  # a C locale has no box characters
    if isinstance(sys.stdout.buffer, io.RawIOBase):  # PYTHONUNBUFFERED, under which what a full disk cuts off is lost
        fd, encoding = sys.stdout.fileno(), sys.stdout.encoding
        sys.stdout = open(fd, "w", encoding=encoding, errors=ASCII_FALLBACK, closefd=False)  # noqa: SIM115
    with option_spelling(flag):
        sys.exit(_run())


def _run() -> int:
    """Run `app`; the exit code."""
    try:
        status = app(standalone_mode=False)
        sys.stdout.flush()
    except RoofError as error:
        status = _fail(str(error))
    except (BrokenPipeError, SystemExit):  # the reader, `head` say, has had enough (typer exits on it)
        _drop_stdout()
        status = 0
    except KeyboardInterrupt:
        status = 130
    except Exception as error:
        if os.environ.get("ROOF_DEBUG"):
            raise
        if isinstance(error, OSError) and error.filename is None:  # stdout's disk is full, say
            _drop_stdout()
            status = _fail(f"the output cannot be written ({error.strerror})")
        elif hasattr(error, "format_message"):  # typer's word for a command line that it cannot read
            status = _usage(error)
        else:
            _fail(
                f"a bug in roofmodel ({type(error).__name__}: {error}); "
                "please report it with the command; ROOF_DEBUG=1 shows where"
            )
            status = 1
    return int(status or 0)


def _drop_stdout() -> None:
    """Let what is still to be written go nowhere, or the interpreter would stumble over it at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fail(message: str) -> int:
    say(f"error: {message}")
    return 2


def _usage(error: Any) -> int:
    message = error.format_message().strip().rstrip(".")
    if not message:  # no command was given, and the help is printed already
        return 2
    if re.search(r"'[0-9]+[,:][^']*' is not a valid int$", message):
        message += "; 'roof sweep' takes several"
    context = getattr(error, "ctx", None)
    return _fail(message + (f" (see '{context.command_path} -h')" if context else ""))
