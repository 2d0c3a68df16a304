"""Evaluation of pieces in several processes of this machine."""

from __future__ import annotations

import os
import signal
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

Piece = TypeVar("Piece")
Result = TypeVar("Result")

PIECES_PER_PROCESS = 8
"""Pieces for which another process is worth its start."""

_SIGNAL_AT_PARENTS_END = 1  # PR_SET_PDEATHSIG of Linux' prctl
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # M_TRIM_THRESHOLD and M_MMAP_THRESHOLD of glibc's mallopt
_KEPT_BYTES, _LARGEST_KEPT_BYTES = 1 << 26, 1 << 24  # of freed memory in all, and of one array


def in_processes(
    function: Callable[[Piece], Result], pieces: Sequence[Piece], pieces_per_process: int = PIECES_PER_PROCESS
) -> Iterator[Result]:
    """Yield the function's result for each piece, in order.

    Runs as many processes as the machine has cores for this one. They are forked, so that they start in milliseconds
    with all modules loaded; where the system does not fork, or other threads run, everything runs here. If a process
    dies (the system stops it when memory runs out), the pieces without a result run here.
    """
    processes = usable_processes(len(pieces) // pieces_per_process)
    if processes < 2:
        yield from map(function, pieces)
        return
    import multiprocessing
    from concurrent.futures.process import BrokenProcessPool, ProcessPoolExecutor

    context = multiprocessing.get_context("fork")
    pool = ProcessPoolExecutor(processes, context, _start, (function, pieces))
    try:
        waiting: deque[Future[Any]] = deque(_submitted(pool, len(pieces)))
        for piece in pieces:
            try:
                result = waiting.popleft().result()
            except BrokenProcessPool:
                result = function(piece)
            yield result
    finally:
        pool.shutdown(cancel_futures=True)


def usable_processes(wanted: int) -> int:
    """As many processes as wanted, at most one for each core of this process; 1 where forking is not safe."""
    import threading

    if sys.platform != "linux" or threading.active_count() > 1:
        return 1
    return min(_cores(), wanted)


def _submitted(pool: Any, pieces: int) -> Iterator[Future[Any]]:
    from concurrent.futures.process import BrokenProcessPool

    for place in range(pieces):
        try:
            yield pool.submit(_evaluate, place)
        except BrokenProcessPool as error:  # a process died before all pieces were submitted
            failed: Future[Any] = Future()
            failed.set_exception(error)
            yield failed


_inherited: tuple[Callable[..., object], Sequence[object]] | None = None
"""In a child process: the function and the pieces. A fork copies them; a model's functions cannot be sent to it."""


def _start(function: Callable[..., object], pieces: Sequence[object]) -> None:
    """Prepare a child process. It ends with its parent; Ctrl-C ends it without a traceback.

    It keeps the memory of freed arrays: half of the time of elementwise operations on arrays of some 100 KB is
    otherwise that the system returns zeroed pages for each of them.
    """
    import ctypes

    global _inherited
    _inherited = function, pieces
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    library = ctypes.CDLL(None)
    library.prctl(_SIGNAL_AT_PARENTS_END, signal.SIGTERM)
    if hasattr(library, "mallopt"):  # in glibc
        library.mallopt(_MMAP_THRESHOLD, _LARGEST_KEPT_BYTES)
        library.mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)


def _evaluate(place: int) -> Any:
    """The result of a piece. Ctrl-C ends the process after the piece has deleted its temporary files.

    So does SIGTERM, which the pool sends to the other processes when the first one has ended.
    """
    assert _inherited is not None
    function, pieces = _inherited
    try:
        _handle_signals(_interrupt)
        return function(pieces[place])
    except KeyboardInterrupt:
        os._exit(128 + signal.SIGINT)
    finally:
        _handle_signals(signal.SIG_DFL)


def _interrupt(*_: object) -> None:
    """Interrupt the piece, once."""
    _handle_signals(signal.SIG_IGN)
    raise KeyboardInterrupt


def _handle_signals(handler: Any) -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, handler)


def _cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
