"""The Python function of `roof estimate`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack

from roofmodel.devices.device import Hardware
from roofmodel.estimate.report import Report
from roofmodel.options import arguments
from roofmodel.options.arguments import Model
from roofmodel.options.workload import lists_options

if TYPE_CHECKING:
    from roofmodel.options.keywords import WorkloadOptions
    from roofmodel.options.values import CopyMode


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
    """FLOPs, bytes, bound and expected time of a model on a device, by operator and by phase; memory.

    `model` is a packaged name, a path, or a Hub id; `hw` a device's name, alias or YAML file, or a Device. `family`
    reads a config of an unknown `model_type` as one of a known family. `launch` is seconds, or text such as "12us".
    `loader` is the time of one of the data loader's `workers` (default: none) for a batch of one GPU, and `copy` how a
    batch is copied to the GPU (default: "pageable"); `.to_dict()["input_pipeline"]` has the result. `routing` is how
    the tokens of an MoE model choose experts: "uniform", "same" (all tokens use the same experts), or a file with a
    probability or count for each expert. The other options are those of `roof estimate`. None selects the default,
    which depends on the model, the phase or another option. Raises RoofError.

    Examples:
        >>> report = estimate("gpt2-xl", "a100", batch=8)
        >>> f"{report.totals['decode']['bound_seconds']:.2e} s"
        '2.78e-03 s'
        >>> report.to_frame().nlargest(1, "total_bound_seconds")["name"].item()
        'mlp.up'
    """
    from roofmodel.steps.estimate import estimate as study
    from roofmodel.steps.input_pipeline import loader_options

    data_loader = loader_options(loader, workers, copy)
    return Report(study(arguments.architecture(model, family), arguments.device(hw), loader=data_loader, **options))
