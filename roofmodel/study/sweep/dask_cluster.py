"""Evaluation on a Dask cluster: an existing one, or processes of this machine."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar

from roofmodel.errors import Option, WorkloadError

Piece = TypeVar("Piece")
Found = TypeVar("Found")

AHEAD = 2  # pieces in flight per core: memory stays bounded, and no core idles
PATIENCE = 10  # seconds for a scheduler to answer


def evaluated(function: Callable[[Piece], Found], pieces: Iterable[Piece], address: str) -> Iterator[Found]:
    """The results of a function for each piece, in order. `address` is that of a scheduler, or `local`.

    Raises WorkloadError where Dask is not installed, nobody answers, workers lack this package, or die.
    """
    with _client(address) as client:
        waiting: deque[Any] = deque()
        cores = sum(client.nthreads().values())
        if not cores:
            raise WorkloadError(
                Option("cluster", address), ": the scheduler has no workers; start some with 'dask worker'"
            )
        for piece in pieces:
            waiting.append(client.submit(function, piece, pure=False))
            if len(waiting) > AHEAD * cores:
                yield _result(waiting.popleft(), address)
        while waiting:
            yield _result(waiting.popleft(), address)


def _client(address: str) -> Any:
    try:
        import distributed
    except ImportError:
        raise WorkloadError(Option("cluster"), " needs Dask: pip install distributed") from None
    client: Any = distributed.Client
    if address == "local":
        return client(threads_per_worker=1, dashboard_address=None)
    try:
        return client(address, timeout=PATIENCE)
    except (OSError, ValueError) as error:
        raise WorkloadError(
            Option("cluster", address),
            f": no Dask scheduler answers there ({error}); give an address such as tcp://host:8786, or local",
        ) from None


def _result(future: Any, address: str) -> Any:
    import distributed

    try:
        return future.result()
    except ImportError as error:
        raise WorkloadError(
            Option("cluster", address), f": its workers cannot import what they need ({error}); install roofmodel there"
        ) from None
    except distributed.KilledWorker:
        raise WorkloadError(
            Option("cluster", address),
            ": workers died, again and again, over one piece of the work; as a rule of too little memory: give "
            "them more, or the axes fewer sizes",
        ) from None
    except (distributed.CancelledError, OSError) as error:  # CommClosedError is an OSError
        raise WorkloadError(
            Option("cluster", address),
            f": the scheduler was lost ({str(error) or type(error).__name__}); start it again",
        ) from None
