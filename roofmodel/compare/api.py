"""The Python function of `roof compare`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Unpack

from roofmodel.compare.report import CompareReport
from roofmodel.devices.device import Hardware
from roofmodel.options import values
from roofmodel.options.signature import checked
from roofmodel.options.values import Model, PathLike, ProgressCallback, no_progress
from roofmodel.options.workload import lists_options

if TYPE_CHECKING:
    from roofmodel.options.keywords import WorkloadOptions


@checked
@lists_options
def compare(
    model: Model,
    *files: PathLike,
    hw: Hardware | None = None,
    times: PathLike | Iterable[PathLike] = (),
    steps: int | None = None,
    device: str | None = None,
    family: str | None = None,
    progress: ProgressCallback = no_progress,
    **workload: Unpack[WorkloadOptions],
) -> CompareReport:
    """Compare the bound and expected time of each operator with its achieved time in a profile.

    Raises RoofError for an unknown model, a file that is not a profile, and a profile of another model.

    Args:
        model: A packaged name, a config.json or its folder, or a Hub id.
        *files: Profiler files or patterns, all of one run; - for stdin.
        hw: The device, if the files do not state it or state it wrongly.
        times: Take the times from this nsys, nvprof or PyTorch file, not from `files`.
        steps: Number of passes in the files (default: detected).
        device: Number of the GPU to compare, if the files contain several.
        family: Read an unknown model_type as this family, such as llama.
        progress: As for `read_profile`.
        **workload: The options of `estimate`.

    Examples:
        >>> compare("gpt2", "examples/gpt2_trace_by_hand.json.gz", phase="prefill", batch=1, seq=512)
        <CompareReport of openai-community/gpt2 on NVIDIA A100 SXM4 80 GB: 1 prefill>
    """
    from roofmodel.compare.compare import compare as study
    from roofmodel.profiles.reading import report_progress

    name, paths, timed = (
        values.path("model", model), values.paths("files", files), values.paths("times", times),
    )  # fmt: skip
    with report_progress(progress):
        comparison = study(name, paths, hw, family=family, times=timed, steps=steps, device=device, workload=workload)
    return CompareReport(comparison)
