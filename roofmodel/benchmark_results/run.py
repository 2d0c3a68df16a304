"""What a serving benchmark measured, whatever tool wrote it; and the entries of its file, checked as they are read."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf, isfinite, isnan
from typing import Any, Literal, NamedTuple

from roofmodel.errors import ProfileError, shorten

Statistic = Literal["mean", "median"]


class Figures(NamedTuple):
    """Latencies in seconds and rates of a service; None where they are not known.

    `tpot_seconds` is the time per output token after the first; `itl_p99_seconds` the 99th percentile of the gaps
    between two tokens of a request; `latency_seconds` the time from a request to its last token.
    """

    ttft_seconds: float | None = None
    tpot_seconds: float | None = None
    itl_p99_seconds: float | None = None
    latency_seconds: float | None = None
    output_tokens_per_second: float | None = None
    requests_per_second: float | None = None


class ServingRun(NamedTuple):
    """One run of a benchmark. None, or nothing, for what the file does not state.

    `isl` and `osl` are mean tokens of prompts and answers. With `longest`, lengths are drawn uniformly from
    `length_ratio` to 1 times these numbers of tokens. `requests` is how many the means are of, `statistic` what TTFT,
    TPOT and latency are. `concurrency` is the largest number of requests in flight, `mean_concurrency` the measured
    mean; without `request_rate` (requests per second) each client sends its next request when one is complete.
    """

    file: str
    tool: str
    measured: Figures
    isl: float
    osl: float
    model: str | None = None
    concurrency: int | None = None
    request_rate: float | None = None
    mean_concurrency: float | None = None
    requests: int | None = None
    statistic: Statistic = "mean"
    longest: tuple[int, int] | None = None
    length_ratio: float = 1.0
    dataset: str | None = None
    engine: str | None = None
    version: str | None = None
    layout: Mapping[str, int] = {}
    gpu: str | None = None
    accepted: float | None = None
    """Tokens of a decode step on average, with speculative decoding."""
    failed: int | None = None

    @property
    def latency(self) -> float | None:
        """Mean seconds of a request, from TTFT and TPOT where the file does not state it."""
        ttft, tpot, _, latency, *_ = self.measured
        if latency is None and ttft is not None and tpot is not None:
            return ttft + (self.osl - 1) * tpot
        return latency

    @property
    def in_flight(self) -> float | None:
        """The mean number of requests in flight: of clients that wait for their answers, as many as there are; else by
        Little's law from the measured rate and latency."""
        if self.concurrency is not None and self.request_rate is None:
            return self.concurrency
        if self.mean_concurrency is not None:
            return self.mean_concurrency
        rate, latency = self.measured.requests_per_second, self.latency
        return None if rate is None or latency is None else rate * latency


class Entries:
    """The entries of an object of a file. Raises ProfileError, with the file and the key, for a value of another kind.

    `null`, NaN and a missing key are None.
    """

    def __init__(self, values: Mapping[str, Any], file: str, path: str = "") -> None:
        self.values, self.file, self.path = values, file, path

    def _error(self, key: str, expected: str) -> ProfileError:
        return ProfileError(f"{self.file}: {self.path}{key} is {shorten(self.values[key])}; it must be {expected}")

    def __contains__(self, key: str) -> bool:
        return self.values.get(key) is not None

    def number(self, *keys: str, per_second: float = 1) -> float | None:
        """The first of these keys with a number, not negative; `per_second`: divided by so many units of a second."""
        for key in keys:
            value = self.values.get(key)
            if value is None or (isinstance(value, float) and isnan(value)):
                continue
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < inf:
                raise self._error(key, "a number from 0 on")
            return value / per_second
        return None

    def count(self, *keys: str) -> int | None:
        """The first of these keys with a whole number above 0."""
        value = self.number(*keys)
        if value is not None and value != round(value):
            raise self._error(next(key for key in keys if key in self), "a whole number")
        return int(value) if value else None

    def rate(self, key: str) -> float | None:
        """Requests per second; None where a client does not wait between requests (`inf`), or follows a trace."""
        value = self.values.get(key)
        if isinstance(value, str):
            try:
                value = float(value)
            except ValueError:
                return None
        return self.number(key) if isinstance(value, int | float) and isfinite(value) else None

    def text(self, key: str) -> str | None:
        """A text."""
        value = self.values.get(key)
        return value if isinstance(value, str) and value else None

    def inside(self, key: str) -> Entries:
        """The entries of the object under a key; none where there is no object."""
        value = self.values.get(key)
        return Entries(value if isinstance(value, dict) else {}, self.file, f"{self.path}{key}.")

    def parallel(self, names: Mapping[str, str]) -> dict[str, int]:
        """The sizes of a layout, `names` by our option; sizes that are not stated are left out."""
        sizes = {option: self.values.get(key) for option, key in names.items()}
        return {option: size for option, size in sizes.items() if type(size) is int and size > 0}

    def required(self, tool: str, *keys: str) -> list[float]:
        """Numbers above 0. Raises ProfileError, which names the tool, for missing ones."""
        found = [self.number(key) for key in keys]
        if missing := [key for key, value in zip(keys, found, strict=True) if not value]:
            raise ProfileError(
                f"{self.file}: this result of {tool} does not state {self.path}{' and '.join(missing)}; give the file "
                "that the tool writes at the end of a complete run"
            )
        return [value for value in found if value is not None]
