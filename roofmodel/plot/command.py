"""`roof plot` and `roofmodel.plot`: measured kernels and a model's operators on the roofline."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Unpack

from roofmodel.devices.device import Hardware
from roofmodel.errors import Option, OutputError, Text, WorkloadError
from roofmodel.options import values
from roofmodel.options.signature import checked, lists_options
from roofmodel.options.values import (
    CeilingSource,
    KernelGrouping,
    Model,
    Numbers,
    PathLike,
    ProgressCallback,
    no_progress,
)
from roofmodel.plot.kernels_command import names_for_checks
from roofmodel.report.base import PICTURES, Result
from roofmodel.report.command import CommandCall, CommandLine
from roofmodel.report.document import Document
from roofmodel.report.printing import check_outputs, present, print_line, save

if TYPE_CHECKING:
    from pathlib import Path

    from roofmodel.options.keywords import WorkloadOptions
    from roofmodel.plot.place import RooflinePlot


class PlotReport(Result):
    """Result of `plot`: measured and predicted points on a device's roofline."""

    FILES: ClassVar[Sequence[str]] = (*PICTURES, *Result.FILES)
    naming = ("hardware", "name")
    short_names = staticmethod(names_for_checks)
    identifying = ("level",)

    def __init__(self, placed: RooflinePlot) -> None:
        self.placed = placed

    def answer(self) -> Document:
        """The tables of `roof plot`."""
        from roofmodel.plot.answer import points

        return points(self.placed)

    def complete(self) -> Document:
        from roofmodel.plot.answer import points

        return points(self.placed, most=None)

    @property
    def warnings(self) -> tuple[str, ...]:
        return tuple(map(str, self.placed.warnings))

    def _messages(self) -> Iterable[Text]:
        """Options that do not apply."""
        return self.placed.notes

    @property
    def default_path(self) -> str:
        """The picture that `roof plot` writes without `-o`: FILE.roofline.png in the working folder."""
        return f"{self.placed.stem}.{'instructions' if self.placed.instructions else 'roofline'}.png"

    def rows_to_check(self) -> Sequence[Mapping[str, Any]]:
        """The rows of the data frame; those of a memory level without a ceiling lack what depends on it."""
        return [
            {
                column: value
                for column, value in row.items()
                if row["fraction"] is not None or column not in ("fraction", "attainable", "bound")
            }
            for row in super().rows_to_check()
        ]

    def _write(self, form: str, file: Path) -> None:
        """The page of a roofline is interactive. Raises OutputError without plotly."""
        if form != "html" or self.placed.instructions:
            super()._write(form, file)
            return
        from roofmodel.plot.panels import heading, panels_of, sources
        from roofmodel.roofline.page import html

        if self.placed.hide_answers:
            raise OutputError(Option("hide_answers"), ": an .html page shows all values; write .png, .svg or .pdf")
        page = html(heading(self.placed), sources(self.placed), panels_of(self.placed), self.warnings)
        file.write_text(page + "\n", encoding="utf-8")

    def __repr__(self) -> str:
        points = sum(len(roofline.points) for roofline in self.placed.rooflines)
        return f"<PlotReport of {', '.join(self.placed.files) or self.placed.model}: {points} points>"


@checked
@lists_options
def plot(
    *files: PathLike,
    hw: Hardware | None = None,
    clock: str = "boost",
    ceilings: CeilingSource = "datasheet",
    model: Model | None = None,
    flops: str | Iterable[str] = (),
    times: PathLike | Iterable[PathLike] = (),
    by: KernelGrouping = "name",
    n: Numbers | None = None,
    line: str | None = None,
    size: Mapping[str, int | str] | str | Iterable[str] = (),
    regions: bool = False,
    hide_answers: bool = False,
    instructions: bool = False,
    family: str | None = None,
    progress: ProgressCallback = no_progress,
    **workload: Unpack[WorkloadOptions],
) -> PlotReport:
    """Show measured kernels and a model's operators on the roofline.

    Stated `flops`, also with a pipe as in "gemm*=2*4096^3:tensor_fp16", replace measured ones. Raises RoofError for a
    file that is not a profile, and if there is nothing to plot.

    Args:
        *files: Profiler files or patterns; - for stdin; FILE@HW sets the device of a file.
        hw: The device, if the files do not state it or state it wrongly.
        clock: Clock of the ceilings: boost (datasheet), measured, or a frequency such as 1312MHz.
        ceilings: Source of the ceilings; measured: reached in benchmarks.
        model: Also show the operators of this model at their bounds, or textbook kernels, such as matmul,triad,spmv.
        flops: FLOPs per launch of the kernels that match a pattern: 'gemm*=2*4096^3[:PIPE]'; repeat.
        times: Take the times from this nsys, nvprof or PyTorch file, not from `files`.
        by: Group kernels by name, base (without template arguments), nvtx, category, or lecture (matrix-mul,
            memory_mgmt, custom_ops, other).
        n: Sizes of textbook kernels: 512,1024,4096 (default: 1024).
        line: Show your own kernel, such as 'A[i k] B[k j] -> C[i j]', with `size`.
        size: Size of an axis of `line`: i=4096, or i=n,j=n,k=128 for each size in `n`.
        regions: Shade, for one device, what is impossible, memory-bound, compute-bound, and below 50 % of the ceiling.
        hide_answers: Leave the labels of bounds and values out of the picture, for an exam.
        instructions: Show warp instructions per memory transaction instead of FLOPs per byte (ncu --set full).
        family: Read an unknown model_type as this family, such as llama.
        progress: As for `read_profile`.
        **workload: The options of `estimate`, for `model`.

    Examples:
        >>> plot("examples/ncu_by_hand.csv", hw="a100")
        <PlotReport of ncu_by_hand.csv: 6 points>
        >>> plot(model="matmul", hw="a100", n="512,1024,4096")
        <PlotReport of matmul: 3 points>
    """
    from roofmodel.plot.place import place
    from roofmodel.profiles.reading import report_progress

    if instructions and (regions or hide_answers):
        other = Option("regions" if regions else "hide_answers")
        raise WorkloadError(
            Option("instructions"), ": this picture is the same with ", other, "; leave out one of them"
        )
    paths, timed = values.paths("files", files), values.paths("times", times)
    name = None if model is None else values.path("model", model)
    with report_progress(progress):
        sizes = size if isinstance(size, Mapping) else values.as_sequence(size or ())
        placed = place(
            paths, hw, by=by, model=name, family=family, workload=workload, times=timed, clock=clock,
            ceilings=ceilings, instructions=instructions, n=n, line=line, size=sizes,
            flops=[flops] if isinstance(flops, str) else values.words("flops", flops),
        )  # fmt: skip
    return PlotReport(placed._replace(regions=regions, hide_answers=hide_answers))


def present_plot(call: CommandCall, form: Any, output: Sequence[str]) -> None:
    """Present the points, and without `-o` also write the default picture."""
    report = call()
    present(report, form, output)
    if not output:  # the picture was not asked for: without a writable folder, the table is still a result
        try:
            check_outputs(report, [report.default_path], call.inputs)
            save(report, [report.default_path])
        except OutputError as error:
            print_line(f"warning: no picture: {error}; -o FILE selects another place")


COMMAND = CommandLine(
    plot,
    settings={"files": {"default": None}},
    run=present_plot,
    about="Show measured kernels and a model's operators on the roofline (default picture: ./FILE.roofline.png).",
    checks=("points", "level=dram and achieved<60%"),
    examples=(
        "roof plot ncu.csv --hw a100 -o roofline.png",
        "roof plot ncu.csv --hw a100 --flops 'gemm*=2*4096^3'",
        "roof plot --model matmul,triad,fft --n 512,4096 --hw a100 -o kernels.png",
        "roof plot ncu.csv --by nvtx --ceilings measured --clock measured",
        "roof plot ncu.csv --hw a100 --model gpt2-xl --phase decode -o roofline.html",
    ),
)
