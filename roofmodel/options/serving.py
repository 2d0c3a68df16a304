"""The requests of a service, `--phase serve`: an option each, declared as those of a workload."""

from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple

from roofmodel.errors import Option, WorkloadError, joined
from roofmodel.options.values import (
    SERVE,
    Declared,
    EngineLayout,
    Model,
    engine_layout,
    probability,
    requests_per_second,
    valid_request,
)

REQUESTS, SPECULATION = "Requests of --phase serve", "Speculative decoding"
SEPARATE = "Separate engines of --phase serve"
"""Groups of options in `--help`."""
MAX_IN_FLIGHT = 100_000
"""The simulation takes a time that grows with the requests in flight."""
MAX_ENGINES = 256
Draft = Annotated[
    Model | None,
    Declared(SPECULATION, "Draft model of speculative decoding, or mtp for the model's multi-token prediction."),
]
DraftTokens = Annotated[
    int | None, Declared(SPECULATION, "Tokens drafted per step (default: 3).", minimum=1, maximum=64)
]
Acceptance = Annotated[
    float | None, Declared(SPECULATION, "Probability that a draft token is right (default: 0.7).", check=probability)
]


class ServeRequest(NamedTuple):
    """The requests of a service, their lengths, and how its engines compute them; None: as the engine does."""

    isl: Annotated[int, Declared(REQUESTS, "Prompt tokens of a request.", minimum=1, example=1024)]
    osl: Annotated[int, Declared(REQUESTS, "New tokens of a request.", minimum=2, example=1024)]
    concurrency: Annotated[
        int | None,
        Declared(
            REQUESTS,
            "Requests in flight, over all engines; a new one follows each that is complete.",
            minimum=1,
            maximum=MAX_IN_FLIGHT,
        ),
    ] = None
    requests: Annotated[
        float | str | None,
        Declared(
            REQUESTS, "Rate of random arrivals, in place of --concurrency: 5/s or 300/min.", check=requests_per_second
        ),
    ] = None
    replicas: Annotated[int, Declared(REQUESTS, "Copies of the engine and its GPUs (default: 1).", minimum=1)] = 1
    chunk: Annotated[
        int | None, Declared(REQUESTS, "Prompt tokens of a step at most (default: the engine's).", minimum=1)
    ] = None
    prefix_hit: Annotated[
        float,
        Declared(REQUESTS, "Share of prompt tokens in the prefix cache, such as 0.8 (default: 0).", check=probability),
    ] = 0.0
    length_ratio: Annotated[
        float,
        Declared(REQUESTS, "Lengths are drawn uniformly from this to 1 times --isl and --osl (default: 1).", maximum=1),
    ] = 1.0
    draft: Draft = None
    draft_tokens: DraftTokens = None
    acceptance: Acceptance = None
    prefill: Annotated[
        EngineLayout | None,
        Declared(
            SEPARATE,
            "Layout of engines that only compute prompts, such as tp=4,ep=4; --decode has that of the others.",
            check=engine_layout,
        ),
    ] = None
    prefill_engines: Annotated[
        int | None, Declared(SEPARATE, "Number of these engines (default: 1).", minimum=1, maximum=MAX_ENGINES)
    ] = None
    decode: Annotated[
        EngineLayout | None,
        Declared(SEPARATE, "Layout of engines that only decode, such as tp=8,ep=64,dp=8.", check=engine_layout),
    ] = None
    decode_engines: Annotated[
        int | None, Declared(SEPARATE, "Number of these engines (default: 1).", minimum=1, maximum=MAX_ENGINES)
    ] = None


def requests_of(options: Any) -> dict[str, Any]:
    """The given options of a request, which are taken out of all `options`."""
    return {name: value for name in ServeRequest._fields if (value := options.pop(name, None)) is not None}


def serve_request(given: Mapping[str, Any]) -> ServeRequest:
    """The request with these options, checked. Raises WorkloadError for a missing one and for an invalid value."""
    load = "requests" if "requests" in given else "concurrency"
    examples = {load: 64, "isl": 1024, "osl": 1024}
    if missing := next((name for name in examples if name not in given), None):
        values = [Option(name, given.get(name, example)) for name, example in examples.items()]
        raise WorkloadError(Option("phase", SERVE), " needs ", Option(missing), "; try ", joined(" ", values))
    if {"concurrency", "requests"} <= given.keys():
        raise WorkloadError(
            Option("concurrency"), " and ", Option("requests"), " exclude each other: a closed loop keeps a number of "
            "requests in flight, in an open one they arrive at random; leave out one of the two"
        )  # fmt: skip
    separate = {"prefill": "tp=4", "decode": "tp=4"}
    if of_engines := next((name for name in (*separate, "prefill_engines", "decode_engines") if name in given), None):
        for name, example in separate.items():
            if name not in given:
                raise WorkloadError(
                    Option(of_engines, given[of_engines]), " needs ", Option(name), "; try ", Option(name, example)
                )
    return valid_request(ServeRequest, given)
