"""Evaluation of pieces in several processes of this machine."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

Piece = TypeVar("Piece")
Found = TypeVar("Found")

PIECES_PER_PROCESS = 8
"""Pieces for which another process is worth its start."""


def in_processes(function: Callable[[Piece], Found], pieces: Sequence[Piece]) -> Iterator[Found]:
    """Yield the function's result for each piece, in order.

    Runs as many processes as the machine has cores for this one. They are forked, so that they start in milliseconds
    with all modules loaded; where the system does not fork, or other threads run, everything runs here.
    """
    import threading

    processes = min(_cores(), len(pieces) // PIECES_PER_PROCESS)
    if processes < 2 or sys.platform != "linux" or threading.active_count() > 1:
        yield from map(function, pieces)
        return
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor

    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(processes, context, _inherit, (function, pieces)) as pool:
        yield from pool.map(_evaluate, range(len(pieces)))


_inherited: tuple[Callable[..., object], Sequence[object]] | None = None
"""In a child process: the function and the pieces. A fork copies them; a model's functions cannot be sent to it."""


def _inherit(function: Callable[..., object], pieces: Sequence[object]) -> None:
    global _inherited
    _inherited = function, pieces


def _evaluate(place: int) -> Any:
    assert _inherited is not None
    function, pieces = _inherited
    return function(pieces[place])


def _cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
