"""The Python function of `roof compare`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Unpack

from roofmodel.compare.report import CompareReport
from roofmodel.devices.device import Hardware
from roofmodel.options import arguments
from roofmodel.options.arguments import Model, PathLike, ProgressCallback, no_progress
from roofmodel.options.workload import lists_options

if TYPE_CHECKING:
    from roofmodel.options.keywords import WorkloadOptions


@lists_options
def compare(
    model: Model,
    *paths: PathLike,
    hw: Hardware | None = None,
    family: str | None = None,
    times: PathLike | Iterable[PathLike] = (),
    steps: int | None = None,
    device: str | None = None,
    progress: ProgressCallback = no_progress,
    **workload: Unpack[WorkloadOptions],
) -> CompareReport:
    """Predicted and measured figures of a model's operators, from profiler files of one run.

    `paths`, `hw`, `times` and `progress` are as for `read_profile`; `model`, `family` and `workload` as for `estimate`.
    `steps` is the number of passes in the files (found without it); `device` the ordinal of the GPU if the files hold
    several. Raises RoofError for an unknown model, a file that is not a profile, and a profile of another model.

    Examples:
        >>> compare("gpt2", "examples/gpt2_trace_by_hand.json.gz", phase="prefill", seq=512)
        <CompareReport of openai-community/gpt2 on NVIDIA A100 SXM4 80 GB: 1 prefill>
    """
    from roofmodel.compare.compare import compare as study
    from roofmodel.profiles.reading import report_progress

    arguments.check_texts(family=family, device=device)
    arguments.check_count(steps=steps)
    name, files, timed = (
        arguments.path("model", model),
        arguments.paths("paths", paths),
        arguments.paths("times", times),
    )
    given = arguments.given_hardware(hw)
    with report_progress(progress):
        found = study(name, files, given, family=family, times=timed, steps=steps, device=device, workload=workload)
    return CompareReport(found)
