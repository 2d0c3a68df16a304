"""The Python interface: the same content as the command line, as objects."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from roofmodel.devices.device import Device
from roofmodel.errors import RoofError
from roofmodel.models import hub
from roofmodel.study import estimate as study

if TYPE_CHECKING:
    import pandas

    from roofmodel.profiles.kernel import Kernel
    from roofmodel.study.measured import Kernels

__all__ = ["Device", "ProfileReport", "Report", "estimate", "read_profile"]


class Report:
    """What `estimate` returns: a counted and placed workload, and the ways to show it.

    In a notebook it shows the tables that `roof estimate` prints.
    """

    def __init__(self, estimate: study.Estimate) -> None:
        self.estimate = estimate

    @property
    def totals(self) -> dict[str, dict[str, Any]]:
        """Totals by phase: `report.totals["decode"]["bound_seconds"]`. Keys as in the JSON."""
        from roofmodel.views.rows import totals

        return {phase.step.phase: totals(phase) for phase in self.estimate.phases}

    @property
    def notes(self) -> tuple[str, ...]:
        """What was assumed, ignored, or is worth a warning."""
        return tuple(map(_argument, self.estimate.notes))

    def to_dict(self) -> dict[str, Any]:
        """The document that `--format json` prints."""
        from roofmodel.views.rows import to_dict

        return to_dict(self.estimate)

    def to_frame(self) -> pandas.DataFrame:
        """One row an operator, base units: what `--format csv` prints."""
        import pandas

        from roofmodel.views.rows import flat

        return pandas.DataFrame(flat(self.estimate))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a picture (png, svg, pdf), a page (html) or the data (json, csv, md), by the suffix."""
        from roofmodel.views.files import save

        save(self.estimate, os.fspath(path))

    def __rich__(self) -> Any:
        from roofmodel.views.terminal import EstimateView

        return EstimateView(self.estimate)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        from roofmodel.views.notebook import mimebundle

        return mimebundle(self.__rich__())

    def __repr__(self) -> str:
        phases = ", ".join(f"{phase.step.phase} ≥ {phase.bound_seconds:.3g} s" for phase in self.estimate.phases)
        return f"<Report {self.estimate.architecture.name} on {self.estimate.device.name}: {phases}>"


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
    with _named_as_arguments():
        device = hw if isinstance(hw, Device) else Device.load(hw)
        return Report(study.estimate(hub.load(model, family), device, **workload))


class ProfileReport:
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
        from roofmodel.views.measured import kernels_document

        return kernels_document(self.measured)

    def to_frame(self) -> pandas.DataFrame:
        """One row a kernel: what `roof kernels --format csv` prints."""
        import pandas

        from roofmodel.views.measured import flat

        return pandas.DataFrame(flat(self.to_dict()))

    def __rich__(self) -> Any:
        from roofmodel.views.tables import kernels_table

        return kernels_table(self.measured)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        from roofmodel.views.notebook import mimebundle

        return mimebundle(self.__rich__())

    def __repr__(self) -> str:
        found = self.measured
        return f"<ProfileReport of {', '.join(found.files)}: {len(found.kernels)} kernels, by {found.tool}>"


def read_profile(
    *paths: str | os.PathLike[str], hw: str | None = None, times: str | os.PathLike[str] | None = None
) -> ProfileReport:
    """Read profiler files of Nsight Compute, nvprof, Nsight Systems or PyTorch: those of one device are one run.

    A path may name its device, `a.csv@v100`; `hw` names that of the others where the files do not. `times` is a
    file whose times replace theirs. Raises RoofError for what is no profile.
    """
    from roofmodel.study import measured

    with _named_as_arguments():
        return ProfileReport(
            measured.kernels([os.fspath(path) for path in paths], hw, [] if times is None else [os.fspath(times)])
        )


def _argument(message: str) -> str:
    """A message in which the argument new_tokens, say, is called so, and not `--new-tokens`."""
    flags = {f"--{name.replace('_', '-')}": name for name in (*study.options(), "family", "hw", "times")}
    return re.sub(r"--[a-z-]+", lambda flag: flags.get(flag[0], flag[0]), message)


@contextmanager
def _named_as_arguments() -> Iterator[None]:
    try:
        yield
    except RoofError as error:
        error.args = (_argument(str(error)),)
        raise
