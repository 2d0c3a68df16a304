"""The Python interface: the same content as the command line, as objects."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial, wraps
from inspect import Parameter, signature
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from roofmodel.devices.device import Device
from roofmodel.errors import RoofError, shorten
from roofmodel.models import hub
from roofmodel.study.estimate import estimate as study
from roofmodel.study.estimate.options import Options

if TYPE_CHECKING:
    import pandas

    from roofmodel.profiles.kernel import Kernel
    from roofmodel.study.compare.comparison import Comparison
    from roofmodel.study.profile.place import Kernels, Placed
    from roofmodel.study.sweep.sweep import Sweep
    from roofmodel.views.kit.document import Document
    from roofmodel.views.kit.notebook import Picture

__all__ = [
    "CompareReport", "Derivation", "Device", "PlotReport", "ProfileReport", "Report", "SweepReport", "check_homework",
    "compare", "crossover", "estimate", "explain", "homework", "plot", "read_profile", "sweep",
]  # fmt: skip


_KINDS: Mapping[str, type] = {
    "str": str, "os.PathLike[str]": os.PathLike, "Device": Device, "int": int, "bool": bool, "None": type(None),
}  # fmt: skip
_WORDS = {"os.PathLike[str]": "a path", "str": "text", "int": "a whole number", "bool": "True or False"}
_Asked = ParamSpec("_Asked")
_Given = TypeVar("_Given")


def _checked(function: Callable[_Asked, _Given]) -> Callable[_Asked, _Given]:
    """A public function that refuses values of other kinds than its annotations name, and calls options as Python does.

    What is annotated otherwise, the options of a workload for one, is checked where it is used.
    """

    @wraps(function)
    def checked(*args: _Asked.args, **kwargs: _Asked.kwargs) -> _Given:
        asked = signature(function)
        for name, value in asked.bind(*args, **kwargs).arguments.items():
            kinds = str(asked.parameters[name].annotation).split(" | ")
            for one in value if asked.parameters[name].kind is Parameter.VAR_POSITIONAL else [value]:
                if _KINDS.keys() >= {*kinds} and not isinstance(one, tuple(_KINDS[kind] for kind in kinds)):
                    wanted = " or ".join(_WORDS.get(kind, kind) for kind in kinds)
                    raise RoofError(f"{name}: {shorten(one)} makes no sense; give {wanted}")
        try:
            return function(*args, **kwargs)
        except RoofError as error:
            error.args = (_argument(str(error)),)
            raise

    return checked


class _Shown:
    """What a terminal shows, a notebook shows too."""

    def __rich__(self) -> Any:
        raise NotImplementedError

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        from roofmodel.views.kit.notebook import mimebundle

        return mimebundle(self.__rich__())


class _Drawn(_Shown):
    """And what there is a picture of."""

    def save(self, path: str | os.PathLike[str]) -> None:
        raise NotImplementedError

    def picture(self, dpi: int = 100) -> Picture:
        """The picture that `save` writes, for a notebook to show."""
        from roofmodel.views.kit.notebook import picture

        return picture(self.save, dpi)


class Report(_Drawn):
    """What `estimate` returns: a counted and placed workload, and the ways to show it.

    In a notebook it shows the tables that `roof estimate` prints.
    """

    def __init__(self, estimate: study.Estimate) -> None:
        self.estimate = estimate

    @property
    def totals(self) -> dict[str, dict[str, Any]]:
        """Totals by phase: `report.totals["decode"]["bound_seconds"]`. Keys as in the JSON."""
        from roofmodel.study.estimate.phase import totals

        return {phase.step.phase: totals(phase) for phase in self.estimate.phases}

    @property
    def notes(self) -> tuple[str, ...]:
        """What was assumed, ignored, or is worth a warning."""
        return tuple(map(_argument, self.estimate.notes))

    def to_dict(self) -> dict[str, Any]:
        """The document that `--format json` prints."""
        from roofmodel.views.estimate.data import to_dict

        return to_dict(self.estimate)

    def to_frame(self) -> pandas.DataFrame:
        """One row an operator, base units: what `--format csv` prints."""
        import pandas

        from roofmodel.views.estimate.data import flat

        return pandas.DataFrame(flat(self.estimate))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a picture (png, svg, pdf), a page (html) or the data (json, csv, md), by the suffix."""
        from roofmodel.views.estimate.files import save

        save(self.estimate, os.fspath(path))

    def __rich__(self) -> Any:
        from roofmodel.views.estimate.terminal import EstimateView

        return EstimateView(self.estimate)

    def __repr__(self) -> str:
        phases = ", ".join(f"{phase.step.phase} ≥ {phase.bound_seconds:.3g} s" for phase in self.estimate.phases)
        return f"<Report {self.estimate.architecture.name} on {self.estimate.device.name}: {phases}>"


@_checked
def estimate(
    model: str | os.PathLike[str],
    hw: str | os.PathLike[str] | Device,
    *,
    family: str | None = None,
    **workload: Any,
) -> Report:
    """Count a model's work and bound its time on a device.

    `model` is a packaged name, a path, or a Hub id; `hw` a device's name, alias, path, or a Device.
    `family` reads a config of an unknown `model_type` as that of a known one, and notes what this assumes.
    `workload` takes the options of `roof estimate` with underscores: `batch=8, seq=512, dtype="bf16"`.
    Raises RoofError, with what would work, for anything that cannot be.
    """
    device = hw if isinstance(hw, Device) else Device.load(hw)
    return Report(study.estimate(hub.load(model, family), device, **workload))


class SweepReport(_Drawn):
    """What `sweep` returns: a grid of points with the totals of each. It is evaluated when it is asked for.

    A grid may be larger than memory: `save` writes it block by block; `to_frame` and `to_dict` hold all of it.
    """

    def __init__(self, sweep: Sweep) -> None:
        self.sweep = sweep

    @property
    def notes(self) -> tuple[str, ...]:
        """What was assumed, ignored, or is worth a warning."""
        return tuple(map(_argument, self.sweep.notes))

    def to_frame(self) -> pandas.DataFrame:
        """One row a point, base units, with the names that an estimate's totals have: what `--format csv` prints."""
        from roofmodel.views.sweep.data import frame

        return frame(self.sweep)

    def to_dict(self) -> dict[str, Any]:
        """The document that `roof sweep --format json` prints."""
        from roofmodel.views.sweep.data import document

        return document(self.sweep)

    def save(self, path: str | os.PathLike[str], picture: str | None = None) -> None:
        """Write the rows (csv, json, parquet) or a picture (png, svg, pdf) of `rates`, `roofs` or `costs`."""
        from roofmodel.views.sweep.files import save

        save(self.sweep, os.fspath(path), picture)

    def picture(self, dpi: int = 100, kind: str | None = None) -> Picture:
        """A picture of `rates`, `roofs` or `costs`, for a notebook to show."""
        from roofmodel.views.kit.notebook import picture

        return picture(partial(self.save, picture=kind), dpi)

    def __rich__(self) -> Any:
        from roofmodel.views.sweep.table import View

        return View(self.sweep)

    def __repr__(self) -> str:
        return f"<SweepReport of {self.sweep.points} points>"


@_checked
def sweep(
    models: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    hw: str | os.PathLike[str] | Device | Sequence[str | os.PathLike[str] | Device],
    *,
    family: str | None = None,
    price: float | str | Mapping[str, float] | None = None,
    cluster: str | None = None,
    **options: Any,
) -> SweepReport:
    """Totals of all combinations of models, devices and the values of each option.

    `options` are those of `estimate`, each one value or several: `batch=range(1, 65), seq="512:4096:*2",
    dtype=["fp16", "fp8"]`. `price` is dollars an hour, of every device or by name; `cluster` the address of a Dask
    scheduler, or `local`. Raises RoofError, with what would work, for anything that cannot be.
    """
    from roofmodel.study.sweep.sweep import sweep

    devices = [one if isinstance(one, Device) else Device.load(one) for one in _several(hw)]
    found = sweep([hub.load(one, family) for one in _several(models)], devices, price=price, cluster=cluster, **options)
    return SweepReport(found)


def _several(asked: Any) -> Sequence[Any]:
    return asked if isinstance(asked, list | tuple) else [asked]


class Derivation:
    """What `explain`, `crossover` and homework are: a text with formulas, and the ways to show it."""

    def __init__(self, document: Document) -> None:
        self.document = document

    @property
    def notes(self) -> tuple[str, ...]:
        """What was assumed, ignored, or is worth a warning."""
        return tuple(map(_argument, self.document.notes))

    def to_dict(self) -> dict[str, Any]:
        """The document that `--format json` prints."""
        return self.document.data  # type: ignore[no-any-return]

    def to_markdown(self) -> str:
        """Markdown, formulas between dollars."""
        return self.document.written("markdown")

    def to_latex(self) -> str:
        """A whole file, for which amsmath suffices."""
        return self.document.written("latex")

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it by the suffix: md, tex or json."""
        self.document.save(os.fspath(path))

    def __rich__(self) -> Any:
        from roofmodel.views.kit.document import rich

        return rich(self.document.blocks)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        return {"text/markdown": self.to_markdown(), "text/plain": repr(self)}

    def __repr__(self) -> str:
        return f"<Derivation: {self.document.title}>"


@_checked
def explain(
    model: str | os.PathLike[str],
    hw: str | os.PathLike[str] | Device | None = None,
    *,
    family: str | None = None,
    op: str | None = None,
    n: int | None = None,
    timing: bool = False,
    **workload: Any,
) -> Derivation:
    """Derive every number of an estimate: formula, the same with numbers, value, and where each size came from.

    `model` is as for `estimate`, or a plain kernel such as "matmul" of size `n`; `op` names one operator or a group of
    them. Without `hw` there are counts only; `timing` adds how each expected time is computed. Raises RoofError.
    """
    from roofmodel.study.derive.explain import explain_named
    from roofmodel.views.derive.explain import document
    from roofmodel.views.kit.operator_names import operator_name

    op = op and operator_name(op)
    device = hw if hw is None or isinstance(hw, Device) else Device.load(hw)
    found = explain_named(model, device, family=family, op=op, n=n, **workload)
    return Derivation(document(found, timing=timing))


@_checked
def crossover(
    model: str | os.PathLike[str],
    hw: str | os.PathLike[str] | Device,
    *,
    over: str | None = None,
    op: str | None = None,
    family: str | None = None,
    **workload: Any,
) -> Derivation:
    """Where another roof starts to bind an operator, or a phase as a whole, over "batch", "seq", "context" or "gpus".

    `model` may be a plain kernel such as "matmul", whose size varies. `.to_dict()` has the first such size under
    `value`, None where there is none. Raises RoofError.
    """
    from roofmodel.study.derive.crossover import crossover as find
    from roofmodel.views.derive.crossover import document
    from roofmodel.views.kit.operator_names import operator_name

    op = op and operator_name(op)
    device = hw if isinstance(hw, Device) else Device.load(hw)
    return Derivation(document(find(model, device, over=over, op=op, family=family, **workload)))


class ProfileReport(_Shown):
    """What `read_profile` returns: measured kernels, and the ways to show them."""

    def __init__(self, measured: Kernels) -> None:
        self.measured = measured

    @property
    def kernels(self) -> Sequence[Kernel]:
        """The kernels: seconds, FLOPs by pipe, bytes by level; None for what was not collected."""
        return self.measured.kernels

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the files leave open, and which metric to add."""
        return self.measured.warnings

    def to_dict(self) -> dict[str, Any]:
        """The document that `roof kernels --format json` prints."""
        from roofmodel.views.profile.data import kernels_document

        return kernels_document(self.measured)

    def to_frame(self) -> pandas.DataFrame:
        """One row a kernel: what `roof kernels --format csv` prints."""
        import pandas

        from roofmodel.views.profile.data import flat

        return pandas.DataFrame(flat(self.to_dict()))

    def __rich__(self) -> Any:
        from roofmodel.views.profile.tables import kernels_table

        return kernels_table(self.measured)

    def __repr__(self) -> str:
        found = self.measured
        return f"<ProfileReport of {', '.join(found.files)}: {len(found.kernels)} kernels, by {found.tool}>"


@_checked
def read_profile(
    *paths: str | os.PathLike[str], hw: str | None = None, times: str | os.PathLike[str] | None = None
) -> ProfileReport:
    """Read profiler files of Nsight Compute, nvprof, Nsight Systems or PyTorch: those of one device are one run.

    A path may name its device, `a.csv@v100`; `hw` names that of the others where the files do not. `times` is a
    file whose times replace theirs. Raises RoofError for what is no profile.
    """
    from roofmodel.study.profile import place as measured

    return ProfileReport(
        measured.kernels([os.fspath(path) for path in paths], hw, [] if times is None else [os.fspath(times)])
    )


class PlotReport(_Drawn):
    """What `plot` returns: points under a device's roofs, and the ways to show them."""

    def __init__(self, placed: Placed) -> None:
        self.placed = placed

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the files leave open, and what contradicts itself."""
        return self.placed.warnings

    @property
    def notes(self) -> tuple[str, ...]:
        """What was ignored."""
        return tuple(map(_argument, self.placed.notes))

    def to_dict(self) -> dict[str, Any]:
        """The document that `roof plot --format json` prints."""
        from roofmodel.views.profile.data import points_document

        return points_document(self.placed)

    def to_frame(self) -> pandas.DataFrame:
        """One row a point, base units: what `--format csv` prints."""
        import pandas

        from roofmodel.views.profile.data import point_rows

        return pandas.DataFrame(point_rows(self.placed.rooflines))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a picture (png, svg, pdf), a page (html) or the data (json, csv), by the suffix."""
        from roofmodel.views.profile.data import save_points

        save_points(self.placed, os.fspath(path))

    def __rich__(self) -> Any:
        from roofmodel.views.profile.tables import points_table

        return points_table(self.placed)

    def __repr__(self) -> str:
        points = sum(len(roofline.points) for roofline in self.placed.rooflines)
        return f"<PlotReport of {', '.join(self.placed.files) or self.placed.model}: {points} points>"


@_checked
def plot(
    *paths: str | os.PathLike[str],
    hw: str | None = None,
    by: str = "name",
    model: str | None = None,
    family: str | None = None,
    times: str | os.PathLike[str] | None = None,
    clock: str = "boost",
    ceilings: str = "datasheet",
    **workload: Any,
) -> PlotReport:
    """Measured kernels under a device's roofs, grouped `by` name, base, nvtx, category or lecture.

    `paths`, `hw` and `times` are as for `read_profile`; with `model` its operators stand beside them, at their bounds,
    of a `workload` as for `estimate`. `clock` is that of the roofs, `ceilings` datasheet or measured.
    Raises RoofError for what is no profile, or what has nothing to place.
    """
    from roofmodel.study.profile.place import place

    return PlotReport(
        place(
            [os.fspath(path) for path in paths], hw, by, model, workload,
            [] if times is None else [os.fspath(times)], clock, ceilings, family,
        )
    )  # fmt: skip


class CompareReport(_Drawn):
    """What `compare` returns: operators beside the kernels that they are, and the ways to show them."""

    def __init__(self, comparison: Comparison) -> None:
        self.comparison = comparison

    @property
    def totals(self) -> dict[str, Any]:
        """Sums over one pass of each phase, as in the JSON."""
        totals: dict[str, Any] = self.to_dict()["totals"]
        return totals

    @property
    def findings(self) -> list[str]:
        """The three findings that matter, in plain words."""
        from roofmodel.views.compare.text import finding_texts

        return finding_texts(self.comparison)

    @property
    def notes(self) -> tuple[str, ...]:
        """What the files leave open, and what was left out."""
        return tuple(_argument(str(note)) for note in self.comparison.notes)

    def to_dict(self) -> dict[str, Any]:
        """The document that `roof compare --format json` prints."""
        from roofmodel.views.compare.data import document

        return document(self.comparison)

    def to_frame(self) -> pandas.DataFrame:
        """One row a group of operators, base units: what `--format csv` prints."""
        import pandas

        from roofmodel.views.compare.data import rows

        return pandas.DataFrame(rows(self.comparison))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a picture (png, svg, pdf) or the data (json, csv), by the suffix."""
        from roofmodel.views.compare.terminal import save

        save(self.comparison, os.fspath(path))

    def __rich__(self) -> Any:
        from roofmodel.views.compare.terminal import table

        return table(self.comparison)

    def __repr__(self) -> str:
        found = self.comparison
        passes = ", ".join(f"{each.used} {each.phase}" for each in found.passes)
        return f"<CompareReport of {found.estimate.architecture.name} on {found.identified.device.name}: {passes}>"


@_checked
def compare(
    model: str | os.PathLike[str],
    *paths: str | os.PathLike[str],
    hw: str | None = None,
    family: str | None = None,
    times: str | os.PathLike[str] | None = None,
    steps: int | None = None,
    device: str | None = None,
    **workload: Any,
) -> CompareReport:
    """What a model was predicted to do and to take, beside what profiler files of one run measured.

    `paths`, `hw` and `times` are as for `read_profile`, `model`, `family` and `workload` as for `estimate`. `steps` is
    how many passes the files hold, which is found if it is not given; `device` the ordinal of the GPU to look at,
    where they hold several. Raises RoofError for no such model, no profile, or nothing that matches.
    """
    from roofmodel.study.compare import compare as study_compare

    return CompareReport(
        study_compare.compare(
            os.fspath(model), [os.fspath(path) for path in paths], hw, family=family,
            times=[] if times is None else [os.fspath(times)], steps=steps, device=device, workload=workload,
        )
    )  # fmt: skip


@_checked
def homework(student: str, sheet: str = "lectures", *, seed: str = "", key: bool = False) -> Derivation:
    """A student's sheet of problems, with blanks to fill in; with `key` the answers and how they are found.

    `sheet` is lectures, rooflines, transformers, measuring or scaling; `seed` the lecturer's word, without which nobody
    makes the key of a sheet that was handed out with it. Raises WorkloadError.
    """
    from roofmodel.study.homework import homework as study_homework
    from roofmodel.views import homework as views

    return Derivation(views.document(study_homework.sheet(student, sheet, seed), key))


@_checked
def check_homework(
    answers: str | os.PathLike[str], student: str, sheet: str | None = None, *, seed: str = ""
) -> Derivation:
    """Which answers of a filled-in sheet are right, and what the wrong ones look like. Raises AnswerError."""
    from roofmodel.study.homework import homework as study_homework
    from roofmodel.views import homework as views

    return Derivation(views.report(study_homework.check(os.fspath(answers), student, sheet, seed)))


def _argument(message: str) -> str:
    """A message in which the argument new_tokens, say, is called so, and not `--new-tokens`."""
    others = (
        "family", "hw", "times", "steps", "device", "op", "n", "over", "by", "model", "clock", "ceilings", "student",
        "sheet", "seed", "picture",
    )  # fmt: skip
    flags = {f"--{name.replace('_', '-')}": name for name in (*Options._fields, *others)}
    return re.sub(r"--[a-z-]+", lambda flag: flags.get(flag[0], flag[0]), message)
