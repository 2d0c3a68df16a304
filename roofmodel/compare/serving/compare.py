"""`roof compare` for results of serving benchmarks: each run beside its prediction, and why they differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from roofmodel.benchmark_results.reading import read
from roofmodel.compare.serving.differences import ServingDifference, differences
from roofmodel.compare.serving.prediction import PredictedRun, device_of, notes, predictor_of
from roofmodel.devices.device import Device, Hardware
from roofmodel.errors import Text
from roofmodel.models import hub
from roofmodel.models.architecture import Architecture


class ComparedRun(NamedTuple):
    """A run beside its prediction, with the terms that can explain the differences, the most important one first."""

    predicted: PredictedRun
    differences: tuple[ServingDifference, ...]


class ServingComparison(NamedTuple):
    """Runs of one model on one device."""

    arch: Architecture
    device: Device
    runs: tuple[ComparedRun, ...]
    notes: tuple[Text, ...]


def compare(
    model: str,
    files: Sequence[str],
    hw: Hardware | None,
    *,
    family: str | None = None,
    requests: Mapping[str, Any],
    workload: Mapping[str, Any],
) -> ServingComparison:
    """Compare the runs of result files with their predictions.

    `requests` are the options of a service that replace or complete what the files state, `workload` those of an
    estimate. Raises RoofError for an unknown model or device, and for a file that is no result or states too little.
    """
    runs, arch = read(files), hub.load(model, family)
    predictor = predictor_of(arch, device_of(runs, hw), requests, workload)
    predicted = [predictor.predict(run) for run in runs]
    compared = [ComparedRun(each, differences(each, _of_one_setting(each, predicted), predictor)) for each in predicted]
    every = [note for each in predicted for note in notes(each, {**workload, **requests})]
    every += [note for each in predicted[:1] for note in each.service.mean_step.notes]
    return ServingComparison(arch, predictor.device, tuple(compared), tuple(dict.fromkeys(every)))


def _of_one_setting(each: PredictedRun, every: Sequence[PredictedRun]) -> list[PredictedRun]:
    """The runs that differ from this one in their requests in flight only."""
    return [other for other in every if _setting(other) == _setting(each)]


def _setting(each: PredictedRun) -> tuple[object, ...]:
    request, engine = each.service.request, each.service.mean_step.workload.engine
    return request._replace(concurrency=0), each.layout, engine, each.run.statistic
