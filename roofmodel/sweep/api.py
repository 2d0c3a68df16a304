"""The Python function of `roof sweep`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Unpack

from roofmodel.devices.device import Hardware
from roofmodel.options import arguments
from roofmodel.options.arguments import Model, PathLike, ProgressCallback, no_progress
from roofmodel.options.workload import lists_axes
from roofmodel.sweep.report import SweepReport

if TYPE_CHECKING:
    from roofmodel.options.keywords import GridOptions
    from roofmodel.options.values import Numbers, ScalingMode, Share


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
    """Totals of all combinations of models, devices and values of each option.

    `options` are those of `estimate`; each takes one value or several: `batch=range(1, 65), seq="512:4096:*2",
    dtype=["fp16", "fp8"]`. `price` is dollars per hour, of all devices or by device name; `cluster` the address of a
    Dask scheduler, or `local`. `where` keeps the points that satisfy one or several conditions, and `sort` orders them
    by a column (`-` in front: largest first); units are required, as in "tpot<20ms" or "memory<70GiB". The points are
    evaluated when the report is read, or at once with `where` or `sort`; `progress` is then called with "points", the
    number of evaluated points, and the number of all points. Raises RoofError.

    With `scaling`, the sweep is over numbers of `gpus`, and its rows have the speed-up, the efficiency and the share of
    communication: "strong" keeps `batch`, "weak" multiplies it by the GPUs. `share` is the kind of parallelism: dp, tp,
    pp or ep (default: dp in training, else tp). `measured` is a CSV file with the columns gpus and seconds (or
    throughput); Amdahl's and Gustafson's laws are fitted to it.

    Examples:
        >>> sweep("gpt2", ["a100", "h100"], phase="decode", batch=[1, 8, 64])
        <SweepReport of 6 points>
        >>> sweep("gpt2", "a100", phase="decode", runtime="graph", batch="1:64:*8", where="tpot<1ms", sort="-tokens/s")
        <SweepReport of 2 of 3 points>
        >>> scaled = sweep("gpt2", "a100", phase="train", batch=8, scaling="weak", gpus=[1, 2, 4])
        >>> scaled.to_frame()["efficiency"].is_monotonic_decreasing
        True
    """
    from roofmodel.sweep.conditions import conditions, order
    from roofmodel.sweep.scaling import DEFAULT_GPUS, check_unscaled, check_without_cluster
    from roofmodel.sweep.selection import selected
    from roofmodel.sweep.sweep import sweep as study

    arguments.check_texts(family=family, cluster=cluster, sort=sort)
    selection = conditions(arguments.as_sequence(where)), order(sort)
    architectures = [arguments.architecture(model, family) for model in arguments.as_sequence(models)]
    devices = [arguments.device(device) for device in arguments.as_sequence(hw)]
    if scaling is not None:
        check_without_cluster(cluster)
        from roofmodel.sweep.scaling import scaling_sweep
        from roofmodel.sweep.scaling_table import read_runs

        runs = None if measured is None else partial(read_runs, arguments.path("measured", measured))
        counts = DEFAULT_GPUS if gpus is None else gpus
        found = scaling_sweep(
            architectures, devices, scaling, counts, share, runs, price=price, progress=progress, **options
        )
        return SweepReport(selected(found, *selection))
    columns = [each.column for each in (*selection[0], selection[1]) if each]
    check_unscaled(gpus=gpus, share=share, measured=measured, columns=columns)
    found = study(architectures, devices, price=price, cluster=cluster, progress=progress, **options)
    return SweepReport(selected(found, *selection))
