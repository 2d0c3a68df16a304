"""Why a measured run differs from the prediction: terms with the seconds that they would explain, and the evidence.

A quantity within its interval needs no explanation. Seconds are those of TPOT (each decode step) or of TTFT.

- `host`: the excess of TPOT is the same in each step, or the same for each sequence of a step, at several numbers of
  requests in flight; of one run, steps take as long as without CUDA graphs, or the excess is at most MOST_HOST times
  what a slow host takes. Of TTFT: at so few requests in flight that none waits for another one.
- `kernels`: the excess is the same share of a step at several numbers of requests in flight, or too large for a host;
  of TTFT, more than all prompts at once are expected to take.
- `queue`: requests wait for a place, or arrive together: TTFT is between that of the steady state and that of a start
  in which all arrive at once.
- `prefix hits`: TTFT is less than a prompt takes that is not in the cache.
- `another layout`: the file states another one, or another layout of the same GPUs explains TTFT and TPOT.
- `lengths`: those of the requests vary, and the prediction takes their mean.
- `speculative decoding`, `workload`: faster than the bound, so that the options describe another run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from roofmodel.compare.serving.prediction import EQUAL_LENGTHS, PredictedRun, Predictor, sizes
from roofmodel.engines.engine import Engine
from roofmodel.engines.engine_file import FOLDER
from roofmodel.errors import Message, Option, Text
from roofmodel.numbers import units

ROUNDING = 0.99
"""Of a bound: files round to 0.01 ms."""
FEW = 4
"""Requests in flight among which hardly any waits for another one's prompt."""
MOST_HOST = 2.0
"""Times the seconds of the slowest packaged engine's host that the excess of one run may still be a host's."""
IMPOSSIBLE = "faster than physically possible"
LARGE = 1.3
"""Measured / expected, or its inverse, from which on other layouts are tried."""


class ServingDifference(NamedTuple):
    """A term that can explain a difference; `seconds` is negative where the run is faster than expected."""

    term: str
    quantity: str  # tpot, ttft or latency
    seconds: float
    evidence: Text


def differences(
    each: PredictedRun, every: Sequence[PredictedRun], predictor: Predictor
) -> tuple[ServingDifference, ...]:
    """The terms of a run, the largest effect on the latency of a request first. `every`: all runs with its setting."""
    found = [*_faster_than_the_bound(each)]
    if not found and each.expected is not None:
        found = [*_of_steps(each, every, predictor), *_of_first_token(each, every)]
        if found:
            found += [*_of_layout(each, predictor), *_of_lengths(each)]
    steps = each.run.osl - 1
    return tuple(sorted(found, key=lambda d: -abs(d.seconds) * (steps if d.quantity == "tpot" else 1)))


def _faster_than_the_bound(each: PredictedRun) -> Iterator[ServingDifference]:
    """A TPOT, a TTFT or a latency that no run of this workload can have."""
    run, measured, bound = each.run, each.figures, each.bound
    assert bound.tpot_seconds
    assert bound.ttft_seconds
    assert bound.latency_seconds
    tpot, ttft, latency = measured.tpot_seconds, measured.ttft_seconds, measured.latency_seconds
    if tpot is not None and tpot < ROUNDING * bound.tpot_seconds:
        text = f"TPOT is below its bound of {units.seconds(bound.tpot_seconds)}"
        if run.accepted is not None and run.accepted > 1:
            yield ServingDifference(
                "speculative decoding", "tpot", tpot - bound.tpot_seconds,
                f"{text}; the file states {units.significant(run.accepted)} tokens per step, which the prediction "
                "does not have",
            )  # fmt: skip
        else:
            yield ServingDifference("workload", "tpot", tpot - bound.tpot_seconds, _check(f"{IMPOSSIBLE}: {text}"))
    elif ttft is not None and run.statistic == "mean" and ttft < ROUNDING * bound.ttft_seconds:
        share = 1 - ttft / bound.ttft_seconds
        yield ServingDifference(
            "prefix hits", "ttft", ttft - bound.ttft_seconds,
            Message(
                f"TTFT is below its bound of {units.seconds(bound.ttft_seconds)}: prompts were in the prefix cache (",
                Option("prefix_hit", f"{share:.2f}"), " or more), or ", _check("the options describe another run"),
            ),
        )  # fmt: skip
    elif tpot is None and latency is not None and latency < ROUNDING * bound.latency_seconds:
        text = f"{IMPOSSIBLE}: the latency is below its bound of {units.seconds(bound.latency_seconds)}"
        yield ServingDifference("workload", "latency", latency - bound.latency_seconds, _check(text))


def _check(text: str) -> Message:
    return Message(
        text, ": check ", Option("hw"), ", the layout, ", Option("dtype"), ", ", Option("kv"), ", the lengths and "
        "speculative decoding",
    )  # fmt: skip


class StepExcess(NamedTuple):
    """Measured minus expected seconds of a decode step; of a run without TPOT, of its latency by steps."""

    seconds: float
    expected: float
    measured: float
    sequences: float
    quantity: str


def step_excess(each: PredictedRun) -> StepExcess | None:
    """The excess of a run with an expected time; None where the file states neither TPOT nor a latency."""
    measured, expected = each.figures, each.expected
    assert expected is not None
    assert expected.tpot_seconds
    assert expected.latency_seconds
    sequences = max(1.0, each.service.loop.decodes)
    if (tpot := measured.tpot_seconds) is not None:
        return StepExcess(tpot - expected.tpot_seconds, expected.tpot_seconds, tpot, sequences, "tpot")
    if (latency := measured.latency_seconds) is not None and measured.ttft_seconds is None:
        step, steps = expected.latency_seconds, each.run.osl
        return StepExcess((latency - step) / steps, step / steps, latency / steps, sequences, "latency")
    return None


def _of_steps(each: PredictedRun, every: Sequence[PredictedRun], predictor: Predictor) -> Iterator[ServingDifference]:
    """The host or the kernels of decode steps."""
    excess = step_excess(each)
    if excess is None or _is_expected(each, f"{excess.quantity}_seconds"):
        return
    times = 1.0 if excess.quantity == "tpot" else each.run.osl
    several = [found for other in every if (found := step_excess(other))]
    if excess.seconds > 0 and len({other.sequences for other in several}) > 1:
        term, evidence = _shape_of_excess(several)
    else:
        term, evidence = _of_one_run(excess, each, predictor)
    yield ServingDifference(term, excess.quantity, excess.seconds * times, evidence)


def _is_expected(each: PredictedRun, name: str) -> bool:
    """Whether a figure is within its interval, or not known."""
    measured, low, high = (getattr(figures, name) for figures in (each.figures, each.low, each.high))
    return measured is None or (low <= measured and (high is None or measured <= high))


def _shape_of_excess(every: Sequence[StepExcess]) -> tuple[str, Text]:
    """The term whose growth with the requests in flight fits the excess of several runs best."""
    shapes = {
        "host": [1.0] * len(every),
        "host, per sequence": [other.sequences for other in every],
        "kernels": [other.expected for other in every],
    }
    (_, slope, term) = min((*_proportional(every, shape), term) for term, shape in shapes.items())
    many = f"in {len(every)} runs with {_range(every)} sequences per step"
    if term == "kernels":
        return term, f"steps take {slope:.0%} more than expected {many}"
    each = " for each sequence" if term != "host" else ""
    return "host", f"each step takes {units.seconds(slope)} more than expected{each} {many}"


def _of_one_run(excess: StepExcess, each: PredictedRun, predictor: Predictor) -> tuple[str, Text]:
    """The host where steps take as long as without CUDA graphs, or a host may be that slow; else the kernels."""
    if excess.seconds < 0:
        share = -excess.seconds / excess.expected
        return "kernels", f"decode steps are {share:.0%} faster than expected, and not faster than their bound"
    eager = predictor.without_graphs(each) if excess.measured > LARGE * excess.expected else None
    if eager and _is_expected(eager, f"{excess.quantity}_seconds"):
        engine = eager.service.mean_step.workload.engine
        return "host", Message(
            "steps take as long as without CUDA graphs, where the host launches each kernel at "
            f"{units.seconds(engine.launch_seconds or 0)}: see the server's flags, and ", Option("engine", engine.id),
        )  # fmt: skip
    hosts = (Engine.load(path.stem).host for path in FOLDER.glob("*.yaml"))
    most = MOST_HOST * max(host.step + host.sequence * excess.sequences for host in hosts)
    at = f"at {units.significant(excess.sequences)} sequences per step; results of other concurrencies would tell more"
    more = f"each step takes {units.seconds(excess.seconds)} more than expected, "
    if excess.seconds <= most:
        return "host", f"{more}which a host may take {at}"
    return "kernels", f"{more}and a host takes less than {units.seconds(most)} {at}"


def _proportional(every: Sequence[StepExcess], shape: Sequence[float]) -> tuple[float, float]:
    """The mean squared relative error of the best multiple of a shape, and the multiple."""
    weights = [1 / other.measured for other in every]
    pairs = [(w * other.seconds, w * x) for w, other, x in zip(weights, every, shape, strict=True)]
    slope = sum(y * x for y, x in pairs) / sum(x * x for _, x in pairs)
    return sum((y - slope * x) ** 2 for y, x in pairs), slope


def _range(every: Sequence[StepExcess]) -> str:
    low, high = (choose(other.sequences for other in every) for choose in (min, max))
    return f"{units.significant(low)} to {units.significant(high)}"


def _of_first_token(each: PredictedRun, every: Sequence[PredictedRun]) -> Iterator[ServingDifference]:
    """The host, the queue, the kernels of prompts, or a prefix cache."""
    if _is_expected(each, "ttft_seconds"):
        return
    found, expected = each.service, each.expected
    measured = each.figures.ttft_seconds
    assert measured is not None
    assert expected is not None
    assert expected.ttft_seconds
    seconds, together = measured - expected.ttft_seconds, found.loop.first_ttft
    if seconds < 0:
        share = -seconds / max(measured, expected.ttft_seconds - found.outside)
        yield ServingDifference(
            "prefix hits", "ttft", seconds,
            Message("TTFT is shorter than expected, as with about ", Option("prefix_hit", f"{min(share, 0.99):.2f}")),
        )  # fmt: skip
    elif found.capacity is not None:
        yield ServingDifference(
            "queue", "ttft", seconds,
            "requests arrive at random, and wait longer the nearer their rate is to what is expected to be served, "
            f"{units.significant(found.capacity)}/s",
        )  # fmt: skip
    elif each.in_flight > found.running:
        yield ServingDifference(
            "queue", "ttft", seconds,
            Message(
                f"{found.running} of {each.in_flight} requests are expected to run at a time, and the others to wait: "
                "compare ", Option("max_seqs"), " and the KV cache with the server's log",
            ),
        )  # fmt: skip
    elif each.in_flight <= FEW:
        yield ServingDifference(
            "host", "ttft", seconds,
            f"with {each.in_flight} in flight hardly a request waits for another one; the prediction contains "
            f"{units.seconds(found.outside) if found.outside else 'nothing'} for HTTP, tokenizing and detokenizing",
        )  # fmt: skip
    else:
        host = min(seconds, _host_of_requests(every))
        if host > 0:
            yield ServingDifference(
                "host", "ttft", host, "so much longer is TTFT with few requests in flight, which hardly wait"
            )
            seconds -= host
        queue = min(seconds, max(0.0, together - expected.ttft_seconds))
        if queue > 0:
            yield ServingDifference(
                "queue", "ttft", queue,
                "requests that arrive together wait for each other's prompts: TTFT is "
                f"{units.seconds(together)} if all {each.in_flight} do",
            )  # fmt: skip
        if seconds > queue:
            yield ServingDifference(
                "kernels", "ttft", seconds - queue,
                f"TTFT is longer than if all {each.in_flight} prompts arrived at once, {units.seconds(together)}: "
                "prompts take longer than expected",
            )  # fmt: skip


def _host_of_requests(every: Sequence[PredictedRun]) -> float:
    """The excess of TTFT of the run with the fewest requests in flight, if these are few; else 0."""
    first = min(every, key=lambda each: each.in_flight)
    expected, measured = first.expected, first.figures.ttft_seconds
    if first.in_flight > FEW or measured is None or expected is None or expected.ttft_seconds is None:
        return 0.0
    return max(0.0, measured - expected.ttft_seconds)


def _of_layout(each: PredictedRun, predictor: Predictor) -> Iterator[ServingDifference]:
    """Another layout than the predicted one: that of the file, or one that explains the figures."""
    excess = step_excess(each)
    if excess is None:
        return
    if others := each.other_sizes:
        evidence = Message("the file states ", sizes(each.run.layout, others), ", not ", each.sizes(others))
        yield ServingDifference("another layout", excess.quantity, excess.seconds, evidence)
        return
    ratio = excess.measured / excess.expected
    if each.run.layout or each.layout.gpus == 1 or 1 / LARGE < ratio < LARGE:
        return
    for candidate in predictor.other_layouts(each):
        if all(_is_expected(candidate, f"{name}_seconds") for name in ("ttft", "tpot", "latency")):
            layout = candidate.layout._asdict()
            several = sizes(layout, (name for name, size in layout.items() if size > 1))
            evidence = Message("TTFT and TPOT are as expected with ", several, " on the same GPUs")
            yield ServingDifference("another layout", excess.quantity, excess.seconds, evidence)
            return


def _of_lengths(each: PredictedRun) -> Iterator[ServingDifference]:
    run, excess = each.run, step_excess(each)
    if excess is not None and run.dataset not in (None, *EQUAL_LENGTHS):
        evidence = f"the lengths of the dataset {run.dataset} vary; the prediction takes their means"
        yield ServingDifference("lengths", excess.quantity, excess.seconds, evidence)
