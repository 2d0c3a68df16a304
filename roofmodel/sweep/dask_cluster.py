"""Evaluation on a Dask cluster: an existing one, or processes of this machine."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from roofmodel.errors import Option, WorkloadError

Piece = TypeVar("Piece")
Found = TypeVar("Found")

PIECES_PER_CORE = 2  # pieces submitted per core: bounds the memory, and no core idles
CONNECT_TIMEOUT = 10  # seconds


Evaluate = Callable[[Callable[[Piece], Found], Iterable[Piece]], Iterator[Found]]
"""Yields the function's result for each piece, in order."""


def evaluate_on_cluster(function: Callable[[Piece], Found], pieces: Iterable[Piece], address: str) -> Iterator[Found]:
    """Yield the function's result for each piece, in order. `address` is a scheduler's address or `local`.

    Raises WorkloadError if Dask is not installed, the scheduler does not answer, or workers lack this package or die.
    """
    with connected(address) as evaluate:
        yield from evaluate(function, pieces)


@contextmanager
def connected(address: str) -> Iterator[Evaluate[Any, Any]]:
    """A function that evaluates pieces on a cluster, for several calls; see `evaluate_on_cluster`."""
    with _client(address) as client:

        def evaluate(function: Callable[[Piece], Found], pieces: Iterable[Piece]) -> Iterator[Found]:
            waiting: deque[Any] = deque()
            cores = sum(client.nthreads().values())
            if not cores:
                raise WorkloadError(
                    Option("cluster", address), ": the scheduler has no workers; start some with 'dask worker'"
                )
            for piece in pieces:
                waiting.append(client.submit(function, piece, pure=False))
                if len(waiting) > PIECES_PER_CORE * cores:
                    yield _result(waiting.popleft(), address)
            while waiting:
                yield _result(waiting.popleft(), address)

        yield evaluate


def _client(address: str) -> Any:
    try:
        import distributed
    except ImportError:
        raise WorkloadError(Option("cluster"), " needs Dask: pip install distributed") from None
    client: Any = distributed.Client
    if address == "local":
        return client(threads_per_worker=1, dashboard_address=None)
    try:
        return client(address, timeout=CONNECT_TIMEOUT)
    except (OSError, ValueError) as error:
        raise WorkloadError(
            Option("cluster", address),
            f": no Dask scheduler answers at this address ({error}); use an address such as tcp://host:8786, or local",
        ) from None


def _result(future: Any, address: str) -> Any:
    import distributed

    try:
        return future.result()
    except ImportError as error:
        raise WorkloadError(
            Option("cluster", address), f": its workers cannot import a module ({error}); install roofmodel on them"
        ) from None
    except distributed.KilledWorker:
        raise WorkloadError(
            Option("cluster", address),
            ": workers died repeatedly at the same part of the work, probably out of memory; give the workers more "
            "memory",
        ) from None
    except (distributed.CancelledError, OSError) as error:  # CommClosedError is an OSError
        raise WorkloadError(
            Option("cluster", address),
            f": connection to the scheduler lost ({str(error) or type(error).__name__}); restart the scheduler",
        ) from None
