"""`python -m roofmodel`, and the `roof` script: the command line as a process of its own."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Callable
from types import FrameType


def main() -> None:
    """Run the command line without garbage collection, which takes more time than such a short process gains."""
    gc.disable()
    _handle_signals(_exit_at_once)  # while modules are imported: no file is open yet, and a traceback says nothing
    from roofmodel import cli

    _handle_signals(cli.interrupt)
    try:
        cli.main()
    finally:
        _handle_signals(_exit_at_once)
        gc.freeze()  # or the interpreter collects garbage once more when it ends


def _handle_signals(handler: Callable[[int, FrameType | None], object]) -> None:
    """Handle Ctrl-C, the signal of `kill` and batch systems, and that of a closed terminal, unless they are ignored."""
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)  # Windows has no SIGHUP
        if number is not None and signal.getsignal(number) != signal.SIG_IGN:  # nohup ignores SIGHUP
            signal.signal(number, handler)


def _exit_at_once(number: int, frame: FrameType | None) -> None:
    os._exit(128 + number)


if __name__ == "__main__":
    main()
