"""`roof sweep` and `roofmodel.sweep`: totals of all combinations of models, devices and option values."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, TextIO, Unpack

from roofmodel.devices.device import Device, Hardware
from roofmodel.errors import Option, OutputError, Text, WorkloadError
from roofmodel.options import values
from roofmodel.options.serving import ServeRequest
from roofmodel.options.signature import checked, lists_axes
from roofmodel.options.values import (
    SERVE,
    Model,
    Numbers,
    PathLike,
    ProgressCallback,
    ScalingMode,
    Share,
    SweepPicture,
    TextFormat,
    check_one_of,
    no_progress,
)
from roofmodel.report.base import PICTURES, TEXT_FILES, Result
from roofmodel.report.command import CommandCall, CommandLine
from roofmodel.report.document import Document
from roofmodel.report.printing import ignored, print_line, print_rich, remark

if TYPE_CHECKING:
    from pathlib import Path

    import pandas

    from roofmodel.options.keywords import GridOptions
    from roofmodel.report.base import PICTURES, Picture
    from roofmodel.sweep.sweep import Sweep


class SweepReport(Result):
    """Result of `sweep`: a grid of points with the totals of each, evaluated when it is read.

    A grid may be larger than memory: `save` and `write` evaluate it block by block; `to_frame` and `to_dict` load all
    of it.
    """

    FILES: ClassVar[Sequence[str]] = (*PICTURES, *Result.FILES, "parquet")

    def __init__(self, sweep: Sweep, kind: SweepPicture | None = None) -> None:
        self.sweep = sweep
        self.kind = kind  # of the picture

    def answer(self) -> Document:
        """The first rows, with a column for each varying option, and a picture."""
        from roofmodel.sweep.answer import document

        return document(self.sweep, self.kind)

    def complete(self) -> Document:
        """The document of pages and Markdown, with more rows than a terminal shows."""
        from roofmodel.sweep.answer import SHOWN_IN_FILES, document

        return document(self.sweep, self.kind, SHOWN_IN_FILES)

    def _messages(self) -> Iterable[Text]:
        return self.sweep.notes

    def evaluated(self) -> SweepReport:
        """The same report with all rows in memory, to read them more than once; unchanged above a million points."""
        return SweepReport(self.sweep.in_memory(), self.kind)

    def to_frame(self) -> pandas.DataFrame:
        """One row per point in base units, with the columns of `roof sweep --format csv`."""
        from roofmodel.sweep.data import frame

        return frame(self.sweep)

    def to_dict(self) -> dict[str, Any]:
        """The document that `roof sweep --format json` prints."""
        from roofmodel.sweep.data import document

        return document(self.sweep)

    @staticmethod
    def check_picture(kind: SweepPicture | None, priced: bool, scaled: bool = False) -> None:
        """Raises RoofError for an unknown kind of picture, `costs` without prices, `scaling` without scaling."""
        from roofmodel.sweep.picture import check

        check(kind, priced, scaled)

    def write(self, form: TextFormat, out: TextIO) -> None:
        """Write the text that `--format FORM` prints to a stream: json and csv row by row, block by block.

        Raises RoofError, which lists the formats, for an unknown one.
        """
        from roofmodel.sweep.data import write_csv, write_json

        check_one_of("form", form, self.FORMATS)
        if form == "markdown":
            out.write(super().text(form) + "\n")
        else:
            (write_json if form == "json" else write_csv)(self.sweep, out)

    def text(self, form: TextFormat) -> str:
        """The text that `--format FORM` prints. Raises RoofError, which lists the formats, for an unknown one."""
        out = io.StringIO()
        self.write(form, out)
        return out.getvalue().removesuffix("\n")

    def save(self, path: PathLike, picture: SweepPicture | None = None) -> Path:
        """Write the rows (csv, json, parquet), at most the first 1000 rows (html, md) or a picture (png, svg, pdf).

        The kind of the picture is `rates`, `roofs`, `costs`, `scaling`, `power` or `front`. Returns the path. Raises
        RoofError for a path that cannot be written, and for an unknown kind of picture.
        """
        from roofmodel.sweep.answer import MAX_PICTURE_POINTS

        kind, points = picture or self.kind, self.sweep.points
        self.check_picture(kind, any(case.price is not None for case in self.sweep.cases), bool(self.sweep.scaling))
        if str(path).lower().endswith(PICTURES) and points > MAX_PICTURE_POINTS:
            raise OutputError(
                f"{path}: a picture shows at most {MAX_PICTURE_POINTS} points, and this sweep has {points}; "
                "give fewer values, or write .csv"
            )
        return Result.save(SweepReport(self.sweep, kind), path)

    def _write(self, form: str, file: Path) -> None:
        if form in PICTURES:
            from roofmodel.sweep.picture import draw

            draw(self.sweep, file, form, self.kind)
        elif form == "parquet":
            from roofmodel.sweep.data import write_parquet

            write_parquet(self.sweep, file)
        elif form in TEXT_FILES:
            with file.open("w", encoding="utf-8", newline="") as out:
                self.write(TEXT_FILES[form], out)
        else:
            super()._write(form, file)

    def picture(self, kind: SweepPicture | None = None, dpi: int = 100) -> Picture:  # type: ignore[override]
        """A picture of `rates`, `roofs`, `costs` or `scaling`, for a notebook. Raises RoofError for an unknown kind."""
        from roofmodel.report.base import png_picture

        return png_picture(partial(self.save, picture=kind), values.resolution(dpi))

    def __repr__(self) -> str:
        selected = f"{self.sweep.row_count} of " if self.sweep.where else ""
        return f"<SweepReport of {selected}{self.sweep.points} points>"


@checked
@lists_axes(ServeRequest)
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
    from roofmodel.sweep.selection import SERVING_TYPES, TYPES, order, selected
    from roofmodel.sweep.sweep import of_services
    from roofmodel.sweep.sweep import sweep as study

    is_served = of_services(options)
    types = SERVING_TYPES if is_served else TYPES
    selection = conditions("where", values.as_sequence(where), types), order(sort, types)
    architectures = [hub.load(model, family) for model in values.as_sequence(models)]
    devices = [Device.load(device) for device in values.as_sequence(hw)]
    if scaling is not None:
        if is_served:
            raise WorkloadError(Option("scaling", scaling), " does not apply to ", Option("phase", SERVE))
        check_without_cluster(cluster, Option("scaling"))
        from roofmodel.sweep.scaling import scaling_sweep
        from roofmodel.sweep.scaling_laws import read_runs

        runs = None if measured is None else partial(read_runs, values.path("measured", measured))
        counts = DEFAULT_GPUS if gpus is None else gpus
        evaluated_sweep = scaling_sweep(
            architectures, devices, scaling, counts, share, runs, price=price, progress=progress, **options
        )
        return SweepReport(selected(evaluated_sweep, *selection))
    compared = [*(comparison for condition in selection[0] for comparison in condition.comparisons), selection[1]]
    columns = [column for each in compared if each for column in each.columns]
    check_unscaled(gpus=gpus, share=share, measured=measured, columns=columns)
    if is_served:
        check_without_cluster(cluster, Option("phase", SERVE))
        from roofmodel.sweep.serving import serving_sweep

        served = serving_sweep(architectures, devices, price=price, progress=progress, **options)
        return SweepReport(selected(served, *selection))
    evaluated_sweep = study(architectures, devices, price=price, cluster=cluster, progress=progress, **options)
    return SweepReport(selected(evaluated_sweep, *selection))


# --- The command line -------------------------------------------------------------------------------


def _run(call: CommandCall, form: Any, output: Sequence[str], picture: str | None = None) -> None:
    """Print the rows block by block; they are evaluated once for several outputs.

    Args:
        picture: Content of the picture of -o FILE.png, .svg, .pdf or .html: rates, roofs (limiting ceilings), costs,
            scaling, power or front (default: rates; costs with --price; scaling with --scaling; power with several
            power limits; front with --phase serve).
    """
    kind: Any = picture  # checked here
    SweepReport.check_picture(kind, "price" in call.given, "scaling" in call.given)
    report = call()
    if len(output) > 1 or (output and form != "table"):
        report = report.evaluated()
    for path in output:
        print_line(f"wrote {report.save(path, kind)}")
    if form == "table":
        print_rich(report)
    else:
        report.write(form, sys.stdout)
    unused = kind and not any(path.lower().endswith((*PICTURES, "html")) for path in output)
    remark(
        report, ignored(["picture"], f"no -o FILE .{', .'.join((*PICTURES, 'html'))} is asked for") if unused else ()
    )


COMMAND = CommandLine(
    sweep,
    settings={"picture": {"metavar": "<name>"}, "models": {"metavar": "MODEL…"}, "where": {"metavar": "CONDITION"}},
    run=_run,
    examples=(
        "roof sweep gpt2-xl --hw a100,h100 --batch 1:256:*2 --phase decode",
        "roof sweep llama-3.1-8b --hw h100 --batch 1,8,64 --seq 512:4096:512 -o sweep.csv",
        'roof sweep llama-3.1-70b --hw h100 --phase decode --tp 2,4,8 --where "tpot<30ms" --sort -tokens/s/gpu',
        "roof sweep llama-3.1-70b --hw h100 --tp 4,8 --phase serve --concurrency 1:256:*2 --isl 2048 --osl 512",
        "roof sweep resnet-50 --hw v100 --phase train --dtype fp32 --batch 32 --scaling weak -o scaling.png",
        "roof sweep llama-3.1-8b --hw a100,h100 --batch 1:64 --price a100=1.5,h100=3 -o costs.png",
    ),
)
