"""The requests of a service in a closed loop, as the options of `roof estimate --phase serve` state them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from roofmodel.errors import Option, WorkloadError, shorten
from roofmodel.options.values import Model, check_whole_number
from roofmodel.options.workload import MAX_VALUE
from roofmodel.plan.request import probability

EXAMPLES = {"concurrency": 64, "isl": 1024, "osl": 1024}
"""The options that every service needs."""
SMALLEST = {"concurrency": 1, "isl": 1, "osl": 2, "replicas": 1, "chunk": 1, "draft_tokens": 1}
"""Whole numbers, with their smallest values."""
MAX_REQUESTS = 100_000
"""Requests in flight at most: the simulation takes a time that grows with them."""


class ServeRequest(NamedTuple):
    """The requests in flight, their lengths in tokens, and how the engines compute them; None: the engine's default.

    `length_ratio`: lengths are drawn uniformly from this to 1 times `isl` and `osl`. `prefix_hit`: the share of prompt
    tokens that are in the prefix cache.
    """

    concurrency: int
    isl: int
    osl: int
    replicas: int = 1
    chunk: int | None = None
    prefix_hit: float = 0.0
    length_ratio: float = 1.0
    draft: Model | None = None
    draft_tokens: int | None = None
    acceptance: float | None = None


def serve_request(given: Mapping[str, Any]) -> ServeRequest:
    """The request with these options, checked. Raises WorkloadError for a missing one and for an invalid value."""
    for name in EXAMPLES:
        if name not in given:
            needed = (Option(each, given.get(each, example)) for each, example in EXAMPLES.items())
            first, second, third = needed
            raise WorkloadError(
                Option("phase", "serve"), " needs ", Option(name), "; try ", first, " ", second, " ", third
            )  # fmt: skip
    for name, low in SMALLEST.items():
        if name in given:
            high = MAX_REQUESTS if name == "concurrency" else 64 if name == "draft_tokens" else MAX_VALUE
            check_whole_number(name, given[name], low, high)
    for name in ("prefix_hit", "acceptance"):
        if name in given:
            probability(name, given[name])
    ratio = given.get("length_ratio", 1.0)
    if isinstance(ratio, bool) or not isinstance(ratio, int | float) or not 0 < ratio <= 1:
        raise WorkloadError(
            Option("length_ratio"), f" is {shorten(ratio)}; it must be a number above 0 and at most 1, such as 0.8"
        )
    return ServeRequest(**given)
