"""The latencies and rates of a service by their keys in documents and tables."""

from __future__ import annotations

from collections.abc import Iterator
from math import isinf
from typing import Any, NamedTuple

from roofmodel.report.table import COUNT, NUMBER, PERCENT, RATE, SECONDS, Column, Table
from roofmodel.serve.simulation import gap_at


class ServiceTimes(NamedTuple):
    """Means over all requests of all engines, in seconds, and their rate; `gaps` as in LoopResult."""

    ttft: float
    tpot: float
    latency: float
    waiting: float
    gaps: tuple[tuple[float, float], ...]
    requests_per_second: float

    @property
    def itl_p99(self) -> float:
        """The gap between two tokens that 99 % of all gaps do not exceed."""
        return gap_at(self.gaps, 0.99)

    @property
    def longest(self) -> float:
        """The largest gap between two tokens."""
        return self.gaps[-1][0]


LATENCIES = {
    "ttft": ("TTFT", "mean time from the arrival of a request to its first token"),
    "tpot": ("TPOT", "mean time per output token after the first"),
    "itl_p99": ("ITL p99", "99th percentile of the gaps between two tokens of a request"),
    "latency": ("latency", "mean time from the arrival of a request to its last token"),
}
"""Title and meaning of the latencies, by their names in ServiceTimes and in keys."""


def _interval(name: str, title: str, meaning: str) -> Iterator[Column]:
    """`ttft_seconds`, `expected_low_ttft_seconds`, `expected_high_ttft_seconds`, `bound_ttft_seconds`."""

    def value(which: str) -> Any:
        return lambda service: (times := getattr(service, which)) and _finite(getattr(times, name))

    key = f"{name}_seconds"
    yield Column(key, title, SECONDS, value("expected"), meaning=meaning)
    yield Column(f"expected_low_{key}", value=value("low"), meaning=f"the 80 % interval of `{key}`")
    yield Column(f"expected_high_{key}", value=value("high"), meaning=f"the 80 % interval of `{key}`")
    yield Column(f"bound_{key}", value=value("bound"), meaning=f"`{key}` if each step takes its bound")


def _finite(value: float) -> float | None:
    """None for the end of an interval without end."""
    return None if isinf(value) else value


def output_rate(times: ServiceTimes | None, osl: float, gpus: int = 1) -> float | None:
    """Output tokens per second, of each GPU."""
    return None if times is None else times.requests_per_second * osl / gpus


TOTALS = Table(
    "totals",
    (
        *(column for name, texts in LATENCIES.items() for column in _interval(name, *texts)),
        Column(
            "largest_itl_seconds", unit=SECONDS, value=lambda s: s.expected and s.expected.longest,
            meaning="the largest gap between two tokens of a request",
        ),
        Column(
            "first_ttft_seconds", unit=SECONDS,
            value=lambda s: None if s.request.requests or not s.expected else s.loop.first_ttft,
            meaning="TTFT of the first requests of all clients, which arrive together: one in ten of the requests in "
            "`ttft_seconds`; null if requests arrive at random",
        ),
        Column(
            "wait_seconds", "wait", SECONDS, lambda s: s.expected and s.expected.waiting, priority=2,
            meaning="the part of `ttft_seconds` between the arrival at the engine and the first chunk of the prompt, "
            "and for a place in a decode engine",
        ),
        Column(
            "transfer_seconds", unit=SECONDS, value="prefill.transfer",
            meaning="the part of `ttft_seconds` in which the KV cache goes to a decode engine; null if no separate "
            "engines compute the prompts",
        ),
        Column(
            "prefill_busy_share", unit=PERCENT, value="loop.prefill_busy",
            meaning="share of the time in which a prefill engine computes; null if no separate engines compute the "
            "prompts",
        ),
        Column(
            "output_tokens_per_second", "tokens/s", RATE, lambda s: output_rate(s.expected, s.mean_osl),
            meaning="output tokens of all engines per second",
        ),
        Column(
            "joules_per_token",
            meaning="energy of all GPUs for an output token, with its share of the prompt: all steps have the power of "
            "the mean step; null where the device's file states no power, and with separate engines",
        ),
        Column(
            "output_tokens_per_second_per_gpu", "tokens/s/GPU", RATE,
            lambda s: output_rate(s.expected, s.mean_osl, s.gpus),
            meaning="the same per GPU",
        ),
        Column(
            "tokens_per_second_per_user", unit=RATE, value=lambda s: s.expected and 1 / s.expected.tpot,
            meaning="1 / `tpot_seconds`",
        ),
        Column(
            "requests_per_second", "requests/s", NUMBER,
            lambda s: s.expected and s.expected.requests_per_second, priority=1,
            meaning="requests that all engines complete per second",
        ),
        Column(
            "host_seconds_per_step", unit=SECONDS, value="host_seconds",
            meaning="time of the engine's host in a mean step, whether or not the GPU waits for it",
        ),
        Column(
            "max_requests_per_second", unit=NUMBER, value="capacity",
            meaning="requests per second that all engines serve at most; null unless requests arrive at random",
        ),
        Column("max_running_requests", unit=COUNT, value="running", meaning="requests that run at a time at most"),
        Column(
            "decodes_per_step", unit=NUMBER, value="loop.decodes",
            meaning="sequences that decode in a mean step of a microbatch",
        ),
        Column(
            "chunk_share", unit=PERCENT, value="loop.chunk_share", meaning="share of these steps with prompt tokens",
        ),
        Column(
            "prompt_tokens_per_step", unit=NUMBER, value="loop.prompt_tokens", meaning="prompt tokens of such a step",
        ),
    ),
)  # fmt: skip
"""The totals of a service (ServingEstimate) besides those of its mean decode step."""
