"""The Python function of `roof estimate`."""

from __future__ import annotations

from typing import Unpack

from roofmodel.devices.device import Device, Hardware
from roofmodel.estimate.report import Report
from roofmodel.options.keywords import WorkloadOptions
from roofmodel.options.signature import checked
from roofmodel.options.values import CopyMode, Model
from roofmodel.options.workload import lists_options


@checked
@lists_options
def estimate(
    model: Model,
    hw: Hardware,
    *,
    family: str | None = None,
    loader: float | str | None = None,
    workers: int | None = None,
    copy: CopyMode | None = None,
    **options: Unpack[WorkloadOptions],
) -> Report:
    """Estimate latency, throughput, memory and the limiting ceiling; FLOPs, bytes and times of each operator.

    `.to_dict()["input_pipeline"]` has the result of `loader`. Raises RoofError.

    Args:
        model: A packaged name, a config.json or its folder, or a Hub id.
        hw: A packaged device (see 'roof hw list') or a YAML file.
        family: Read an unknown model_type as this family, such as llama.
        loader: Time of one worker of the data loader for a batch of one GPU, such as 1500ms (train and forward).
        workers: Workers of the data loader (default: 0).
        copy: Copy of a batch to the GPU; async: pinned and overlapped (default: pageable).
        **options: The options of `roof estimate`. A time is seconds, or text such as "12us". None selects the default,
            which depends on the model, the phase or another option.

    Examples:
        >>> report = estimate("gpt2-xl", "a100", batch=8)
        >>> f"{report.totals['decode']['bound_seconds']:.2e} s"
        '2.78e-03 s'
        >>> report.to_frame().nlargest(1, "total_bound_seconds")["name"].item()
        'mlp.up'
    """
    from roofmodel.models import hub
    from roofmodel.steps.estimate import estimate as study
    from roofmodel.steps.input_pipeline import loader_options

    data_loader = loader_options(loader, workers, copy)
    return Report(study(hub.load(model, family), Device.load(hw), loader=data_loader, **options))
