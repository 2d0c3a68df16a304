"""Results of `plan` and `plan_training`: the best layouts of a service or of a training run."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from roofmodel.errors import Text
from roofmodel.options import values
from roofmodel.options.values import PathLike
from roofmodel.report.base import FileResult, PictureResult, TextResult

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType

    import pandas

    from roofmodel.plan.plan import ServingPlan
    from roofmodel.plan.training import TrainingPlan


class _PlanReport(TextResult, FileResult):
    """The candidates of a search, the best first."""

    plan: ServingPlan | TrainingPlan
    identifying = ("rank", "tp", "pp", "dp", "ep", "batch")

    @classmethod
    @abstractmethod
    def _view(cls) -> ModuleType:
        """The module with `document`, `CANDIDATES`, `as_text`, `save`, FORMATS and SUFFIXES."""

    def _messages(self) -> Iterable[Text]:
        return self.plan.notes

    def to_dict(self) -> dict[str, Any]:
        """The document that `roof plan --format json` prints."""
        return dict(self._view().document(self.plan))

    def to_frame(self) -> pandas.DataFrame:
        """One row per candidate, the best first, with the columns of `roof plan --format csv`."""
        frame: pandas.DataFrame = self._view().CANDIDATES.frame(self.plan.ranked)
        return frame

    @classmethod
    def suffixes(cls) -> Sequence[str]:
        return tuple(cls._view().SUFFIXES)

    def _texts(self) -> Mapping[str, Callable[[], str]]:
        view = self._view()
        return {form: partial(view.as_text, self.plan, form) for form in view.FORMATS}

    def save(self, path: PathLike) -> Path:
        """Write the candidates (json, csv); of a service, also a picture of the Pareto front (png, svg, pdf)."""
        written: Path = self._view().save(self.plan, values.path("path", path))
        return written

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.plan.searched} candidates>"


class PlanReport(_PlanReport, PictureResult):
    """Result of `plan`: the best layouts, formats and batches, with the reason for each; the Pareto front."""

    def __init__(self, plan: ServingPlan) -> None:
        self.plan: ServingPlan = plan

    @property
    def meets(self) -> bool:
        """Whether some layout fits and meets all targets."""
        return self.plan.meets

    @classmethod
    def _view(cls) -> ModuleType:
        from roofmodel.plan import files

        return files

    def __rich__(self) -> Any:
        from roofmodel.plan.table import PlanView

        return PlanView(self.plan)


class TrainingPlanReport(_PlanReport):
    """Result of `plan_training`: the fastest layouts of a training run, its days and its cost."""

    def __init__(self, plan: TrainingPlan) -> None:
        self.plan: TrainingPlan = plan

    @property
    def fits(self) -> bool:
        """Whether some layout fits."""
        return self.plan.fits

    @classmethod
    def _view(cls) -> ModuleType:
        from roofmodel.plan import training_table as training

        return training

    def __rich__(self) -> Any:
        from roofmodel.plan.training_table import TrainingPlanView

        return TrainingPlanView(self.plan)
