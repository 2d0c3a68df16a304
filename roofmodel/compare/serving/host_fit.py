"""The host of an engine, fitted to a few results of serving benchmarks: `roof calibrate MODEL RESULT…`.

    TPOT = kernels + step + sequence x sequences of a step
    TTFT = prefill and queue + request + request_token x prompt

The first parts are those of the simulation, which the host changes a little; so the prediction is repeated with the
fitted host ROUNDS times. Both fits minimize relative errors, without negative terms. `request_token` is that of the
engine's file if all prompts are equally long. Nothing else of the engine changes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from roofmodel.engines.engine_file import Host

ROUNDS = 3
"""Predictions of the fit, the first one without a host in steps."""


class HostSample(NamedTuple):
    """Measured and predicted seconds of a run. `sequences` decode in a mean step, `prompt` tokens have its prompts; a
    file may state no TTFT."""

    sequences: float
    prompt: float
    tpot: float
    expected_tpot: float
    ttft: float | None
    expected_ttft: float | None


Predict = Callable[[Host], Sequence[HostSample]]


class HostFit(NamedTuple):
    """The fitted host, the samples predicted with the engine's own host and with the fitted one, and the TPOT of each
    run that is expected with a host fitted to the others (None for fewer than three runs)."""

    host: Host
    before: Sequence[HostSample]
    after: Sequence[HostSample]
    left_out: Sequence[float] | None


def fit_host(predict: Predict, host: Host) -> HostFit:
    """The host that fits the runs that `predict` predicts best; `host` is that of the engine's file."""
    before = predict(host)
    fitted = host._replace(step=0.0, sequence=0.0, prompt_token=0.0, overlapped=False)
    for _ in range(ROUNDS):
        samples = predict(fitted)
        step, sequence = _of_steps(samples, fitted)
        request, request_token = _of_requests(samples, fitted, host)
        fitted = fitted._replace(step=step, sequence=sequence, request=request, request_token=request_token)
    after, left_out = predict(fitted), list[float]()
    for place, each in enumerate(after):
        step, sequence = _of_steps([*after[:place], *after[place + 1 :]], fitted)
        left_out.append(each.expected_tpot + step - fitted.step + (sequence - fitted.sequence) * each.sequences)
    return HostFit(fitted, before, after, left_out if len(after) > 2 else None)


def _of_steps(samples: Sequence[HostSample], host: Host) -> tuple[float, float]:
    """Seconds of a step and of a sequence, from samples that were predicted with `host`."""
    rows = [(1.0, each.sequences) for each in samples]
    target = [
        each.tpot - each.expected_tpot + host.step + host.sequence * each.sequences for each in samples
    ]  # fmt: skip
    step, sequence = _nonnegative(rows, target, [each.tpot for each in samples])
    return step, sequence


def _of_requests(samples: Sequence[HostSample], host: Host, of_file: Host) -> tuple[float, float]:
    """Seconds of a request and of a prompt token outside the steps."""
    known = [
        (each.prompt, each.ttft, each.ttft - each.expected_ttft + float(host.outside_steps(each.prompt)))
        for each in samples if each.ttft is not None and each.expected_ttft is not None
    ]  # fmt: skip
    if not known:
        return of_file.request, of_file.request_token
    prompts, measured, target = zip(*known, strict=True)
    if max(prompts) > 1.5 * min(prompts):
        request, token = _nonnegative([(1.0, prompt) for prompt in prompts], target, measured)
        return request, token
    rest = [seconds - of_file.request_token * prompt for prompt, _, seconds in known]
    (request,) = _nonnegative([(1.0,)] * len(rest), rest, measured)
    return request, of_file.request_token


def _nonnegative(rows: Sequence[tuple[float, ...]], target: Sequence[float], scale: Sequence[float]) -> list[float]:
    """The factors of the columns, none below 0, with the least squares of (rows x factors - target) / scale."""
    from scipy.optimize import nnls

    weights = 1 / np.array(scale)
    factors, _ = nnls(np.array(rows) * weights[:, None], np.array(target) * weights)
    return [float(factor) for factor in factors]
