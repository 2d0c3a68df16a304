"""`roof compare` and `roofmodel.compare`: predicted and measured figures of a model's operators."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Unpack

from roofmodel.devices.device import Hardware
from roofmodel.errors import Option, Text, WorkloadError
from roofmodel.options import values
from roofmodel.options.serving import ServeRequest, requests_of
from roofmodel.options.signature import checked, lists_request
from roofmodel.options.values import Model, PathLike, ProgressCallback, no_progress
from roofmodel.report.base import PICTURES, Result
from roofmodel.report.command import CommandLine
from roofmodel.report.document import Document

if TYPE_CHECKING:
    import pandas

    from roofmodel.compare.comparison import ModelComparison
    from roofmodel.compare.serving.compare import ServingComparison
    from roofmodel.options.keywords import EstimateOptions


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


class ServingReport(Result):
    """Result of `compare` for files of serving benchmarks: each run beside its prediction, and why they differ."""

    naming = ("file", "in_flight")

    def __init__(self, comparison: ServingComparison) -> None:
        self.comparison = comparison

    def answer(self) -> Document:
        """A table for each run, and the terms that can explain its differences."""
        from roofmodel.compare.serving.answer import document

        return document(self.comparison)

    def _messages(self) -> Iterable[Text]:
        """What was assumed of the files."""
        return self.comparison.notes

    def __repr__(self) -> str:
        comparison = self.comparison
        return f"<ServingReport of {comparison.arch.name} on {comparison.device.name}: {len(comparison.runs)} runs>"


@checked
@lists_request(ServeRequest)
def compare(
    model: Model,
    *files: PathLike,
    hw: Hardware | None = None,
    times: PathLike | Iterable[PathLike] = (),
    steps: int | None = None,
    device: str | None = None,
    family: str | None = None,
    progress: ProgressCallback = no_progress,
    **options: Unpack[EstimateOptions],
) -> CompareReport | ServingReport:
    """Compare the bound and expected time of each operator with its achieved time in a profile, or the expected
    latencies and rates of a service with the results of a benchmark.

    Results of serving benchmarks are recognized by their content; what they do not state must be given: the layout, and
    often the device. Raises RoofError for an unknown model, a file that is neither a profile nor a result, and a
    profile of another model.

    Args:
        model: A packaged name, a config.json or its folder, or a Hub id.
        *files: Profiler files or patterns, all of one run (- for stdin); or results of vllm bench serve, SGLang's
            bench_serving, genai-perf, AIPerf, trtllm-bench or InferenceX.
        hw: The device, if the files do not state it or state it wrongly.
        times: Take the times from this nsys, nvprof or PyTorch file, not from `files`.
        steps: Number of passes in the files (default: detected).
        device: Number of the GPU to compare, if the files contain several.
        family: Read an unknown model_type as this family, such as llama.
        progress: As for `read_profile`.
        **options: The options of `estimate`. Those of a service complete and replace what results state.

    Examples:
        >>> compare("gpt2", "examples/gpt2_trace_by_hand.json.gz", phase="prefill", batch=1, seq=512)
        <CompareReport of openai-community/gpt2 on NVIDIA A100 SXM4 80 GB: 1 prefill>
    """
    from roofmodel.benchmark_results.reading import are_results
    from roofmodel.compare.compare import compare as study
    from roofmodel.profiles.reading import report_progress

    name, paths, timed = (
        values.path("model", model), values.paths("files", files), values.paths("times", times),
    )  # fmt: skip
    requests = requests_of(options)
    if are_results(paths):
        from roofmodel.compare.serving.compare import compare as compare_serving

        of_profiles = {"times": timed, "steps": steps, "device": device}
        if option := next((option for option, value in of_profiles.items() if value), None):
            raise WorkloadError(Option(option), " applies to profiles; the files are results of a serving benchmark")
        found = compare_serving(name, paths, hw, family=family, requests=requests, workload=options)
        return ServingReport(found)
    if requests:
        raise WorkloadError(
            Option(*next(iter(requests.items()))), " applies to results of serving benchmarks; the files are none"
        )
    with report_progress(progress):
        comparison = study(name, paths, hw, family=family, times=timed, steps=steps, device=device, workload=options)
    return CompareReport(comparison)


COMMAND = CommandLine(
    compare,
    settings={
        "engine": {
            "help": "Software that runs the model: vllm, sglang, trtllm, torch (eager PyTorch), torch-compile, "
            "torchtitan, megatron, NAME@VERSION or a YAML file (default: the engine whose kernels or ranges the file "
            "names, else as for estimate)."
        },
    },
    checks=("compared operators", "measured>2ms"),
    examples=(
        "roof compare gpt2-xl ncu.csv --hw a100 --phase decode --batch 1 --context 1024",
        "roof compare gpt2 trace.json --phase train --batch 8 --seq 1024 --attention eager",
        "roof compare gpt2-xl trace.json --phase prefill --steps 10 --format json -o compare.png",
        "roof compare llama-3.1-70b result.json --hw h100 --tp 8 --engine vllm",
    ),
)
