"""`roof compare` and `roofmodel.compare`: predicted and measured figures of a model's operators."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Unpack

from roofmodel.devices.device import Hardware
from roofmodel.options import values
from roofmodel.options.signature import checked, lists_options
from roofmodel.options.values import Model, PathLike, ProgressCallback, no_progress
from roofmodel.report.base import PICTURES, Result
from roofmodel.report.command import CommandLine
from roofmodel.report.document import Document

if TYPE_CHECKING:
    import pandas

    from roofmodel.compare.comparison import ModelComparison
    from roofmodel.options.keywords import WorkloadOptions


class CompareReport(Result):
    """Result of `compare`: operators with the kernels that ran them, predicted and measured."""

    FILES: ClassVar[Sequence[str]] = (*PICTURES, *Result.FILES)

    def __init__(self, comparison: ModelComparison) -> None:
        self.comparison = comparison

    def answer(self) -> Document:
        """The rows of each phase, what did not match, and the findings."""
        from roofmodel.compare.answer import document

        return document(self.comparison)

    def complete(self) -> Document:
        """The document of files, with all unmatched kernels and all reasons."""
        from roofmodel.compare.answer import document

        return document(self.comparison, most=None)

    @property
    def totals(self) -> dict[str, Any]:
        """Sums over one pass of each phase, as in the JSON."""
        totals: dict[str, Any] = self.to_dict()["totals"]
        return totals

    @property
    def findings(self) -> list[str]:
        """The three most important differences between prediction and measurement, in words."""
        from roofmodel.compare.answer import finding_texts

        return finding_texts(self.comparison)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Data that the files lack, and kernels that were left out."""
        return tuple(map(str, self.comparison.notes))

    def to_frame(self) -> pandas.DataFrame:
        """One row per group of operators in base units, with the columns of `roof compare --format csv`."""
        import pandas

        table, rows, *_ = self._main()
        return pandas.DataFrame(table.records(rows), columns=table.csv_keys)

    def __repr__(self) -> str:
        comparison = self.comparison
        passes = ", ".join(f"{each.used} {each.phase}" for each in comparison.passes)
        model, device = comparison.estimate.architecture.name, comparison.identified.device.name
        return f"<CompareReport of {model} on {device}: {passes}>"


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


COMMAND = CommandLine(
    compare,
    settings={
        "engine": {
            "help": "Software that runs the model: vllm, sglang, trtllm, torch (eager PyTorch), megatron, NAME@VERSION "
            "or a YAML file (default: the engine whose kernels or ranges the file names, else as for estimate)."
        }
    },
    checks=("compared operators", "measured>2ms"),
    examples=(
        "roof compare gpt2-xl ncu.csv --hw a100 --phase decode --batch 1 --context 1024",
        "roof compare gpt2 trace.json --phase train --batch 8 --seq 1024 --attention eager",
        "roof compare gpt2-xl trace.json --phase prefill --steps 10 --format json -o compare.png",
    ),
)
