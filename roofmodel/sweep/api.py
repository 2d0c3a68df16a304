"""The Python function of `roof sweep`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Unpack

from roofmodel.devices.device import Device, Hardware
from roofmodel.options import values
from roofmodel.options.signature import checked
from roofmodel.options.values import Model, Numbers, PathLike, ProgressCallback, ScalingMode, Share, no_progress
from roofmodel.options.workload import lists_axes
from roofmodel.sweep.report import SweepReport

if TYPE_CHECKING:
    from roofmodel.options.keywords import GridOptions


@checked
@lists_axes
def sweep(
    models: Model | Iterable[Model],
    hw: Hardware | Iterable[Hardware],
    *,
    family: str | None = None,
    price: float | str | Mapping[str, float] | None = None,
    where: str | Iterable[str] = (),
    sort: str | None = None,
    scaling: ScalingMode | None = None,
    gpus: Numbers | None = None,
    share: Share | None = None,
    measured: PathLike | None = None,
    cluster: str | None = None,
    progress: ProgressCallback = no_progress,
    **options: Unpack[GridOptions],
) -> SweepReport:
    """Estimate all combinations of models, devices and option values, such as 1,8,64 or 0:4096:512 or 1:256:*2.

    The points are evaluated when the report is read, or at once with `where` or `sort`. With `scaling`, the rows have
    the speed-up, the efficiency and the share of communication; Amdahl's and Gustafson's laws are fitted to `measured`
    runs. Raises RoofError.

    Args:
        models: One or several models, as for estimate.
        hw: Devices: a100,h100, or `hw` several times.
        family: Read an unknown model_type as this family, such as llama.
        price: Price in dollars per hour: 2 for every device, or a100=1.5,h100=3.
        where: Keep the rows that satisfy a condition, such as "tpot<20ms and fits=yes": a column, one of
            < <= > >= = != ~ !~, and a value with its unit; 'and' joins several. Repeatable.
        sort: Column to sort by; with - from the largest value, such as -tokens/s.
        scaling: Speed-up and efficiency of the numbers of GPUs in `gpus`; `batch` is that of all GPUs (strong) or of
            each GPU (weak).
        gpus: Numbers of GPUs for `scaling` (default: 1,2,4,8).
        share: Parallelism of the GPUs of `scaling` (default: dp for training, else tp).
        measured: CSV of measured runs for `scaling`: columns gpus and seconds (or milliseconds, throughput).
        cluster: Compute with Dask: the address of a scheduler, or local for processes on this machine.
        progress: Called with "points", the number of evaluated points, and the number of all points.
        **options: The options of `estimate`, each with one value or several: `batch=range(1, 65), seq="512:4096:*2",
            dtype=["fp16", "fp8"]`.

    Examples:
        >>> sweep("gpt2", ["a100", "h100"], phase="decode", batch=[1, 8, 64])
        <SweepReport of 6 points>
        >>> sweep("gpt2", "a100", phase="decode", batch="1:64:*8", where="tpot<1.5ms", sort="-tokens/s")
        <SweepReport of 2 of 3 points>
        >>> scaled = sweep("gpt2", "a100", phase="train", batch=8, scaling="weak", gpus=[1, 2, 4])
        >>> scaled.to_frame()["efficiency"].is_monotonic_decreasing
        True
    """
    from roofmodel.models import hub
    from roofmodel.report.conditions import conditions
    from roofmodel.sweep.scaling import DEFAULT_GPUS, check_unscaled, check_without_cluster
    from roofmodel.sweep.selection import TYPES, order, selected
    from roofmodel.sweep.sweep import sweep as study

    selection = conditions("where", values.as_sequence(where), TYPES), order(sort)
    architectures = [hub.load(model, family) for model in values.as_sequence(models)]
    devices = [Device.load(device) for device in values.as_sequence(hw)]
    if scaling is not None:
        check_without_cluster(cluster)
        from roofmodel.sweep.scaling import scaling_sweep
        from roofmodel.sweep.scaling_table import read_runs

        runs = None if measured is None else partial(read_runs, values.path("measured", measured))
        counts = DEFAULT_GPUS if gpus is None else gpus
        evaluated_sweep = scaling_sweep(
            architectures, devices, scaling, counts, share, runs, price=price, progress=progress, **options
        )
        return SweepReport(selected(evaluated_sweep, *selection))
    compared = [*(comparison for condition in selection[0] for comparison in condition.comparisons), selection[1]]
    columns = [column for each in compared if each for column in each.columns]
    check_unscaled(gpus=gpus, share=share, measured=measured, columns=columns)
    evaluated_sweep = study(architectures, devices, price=price, cluster=cluster, progress=progress, **options)
    return SweepReport(selected(evaluated_sweep, *selection))
