"""Results of `plan`: the best layouts of a service or of a training run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from roofmodel import arguments
from roofmodel.arguments import PathLike
from roofmodel.errors import Text
from roofmodel.reports.base import Drawn, Saved, WithText

if TYPE_CHECKING:
    from pathlib import Path

    import pandas

    from roofmodel.study.plan.plan import Plan
    from roofmodel.study.plan.training import TrainingPlan


class PlanReport(WithText, Drawn):
    """Result of `plan`: the best layouts, formats and batches, with the reason for each; the Pareto front."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan

    def _messages(self) -> Iterable[Text]:
        return self.plan.notes

    @property
    def meets(self) -> bool:
        """Whether some layout fits and meets all targets."""
        return self.plan.meets

    def to_dict(self) -> dict[str, Any]:
        """The document that `roof plan --format json` prints."""
        from roofmodel.views.plan.data import document

        return document(self.plan)

    def to_frame(self) -> pandas.DataFrame:
        """One row per candidate, the best first, with the columns of `roof plan --format csv`."""
        import pandas

        from roofmodel.views.plan.data import flat_rows

        return pandas.DataFrame(flat_rows(self.plan))

    @classmethod
    def suffixes(cls) -> Sequence[str]:
        from roofmodel.views.plan.files import SUFFIXES

        return SUFFIXES

    def _texts(self) -> Mapping[str, Callable[[], str]]:
        from roofmodel.views.plan.files import FORMATS, as_text

        return {form: partial(as_text, self.plan, form) for form in FORMATS}

    def save(self, path: PathLike) -> Path:
        """Write the candidates (json, csv) or a picture of the Pareto front (png, svg, pdf), by the suffix."""
        from roofmodel.views.plan.files import save

        return save(self.plan, arguments.path("path", path))

    def __rich__(self) -> Any:
        from roofmodel.views.plan.table import PlanView

        return PlanView(self.plan)

    def __repr__(self) -> str:
        return f"<PlanReport of {self.plan.searched} candidates>"


class TrainingPlanReport(WithText, Saved):
    """Result of `plan_training`: the fastest layouts of a training run, its days and its cost."""

    def __init__(self, plan: TrainingPlan) -> None:
        self.plan = plan

    def _messages(self) -> Iterable[Text]:
        return self.plan.notes

    @property
    def fits(self) -> bool:
        """Whether some layout fits."""
        return self.plan.fits

    def to_dict(self) -> dict[str, Any]:
        """The document that `roof plan --train --format json` prints."""
        from roofmodel.views.plan.training import document

        return document(self.plan)

    def to_frame(self) -> pandas.DataFrame:
        """One row per candidate, the fastest first, with the columns of `roof plan --train --format csv`."""
        import pandas

        from roofmodel.views.plan.training import flat_rows

        return pandas.DataFrame(flat_rows(self.plan))

    @classmethod
    def suffixes(cls) -> Sequence[str]:
        from roofmodel.views.plan.training import SUFFIXES

        return SUFFIXES

    def _texts(self) -> Mapping[str, Callable[[], str]]:
        from roofmodel.views.plan.training import FORMATS, as_text

        return {form: partial(as_text, self.plan, form) for form in FORMATS}

    def save(self, path: PathLike) -> Path:
        """Write the candidates (json, csv), by the suffix."""
        from roofmodel.views.plan.training import save

        return save(self.plan, arguments.path("path", path))

    def __rich__(self) -> Any:
        from roofmodel.views.plan.training import TrainingPlanView

        return TrainingPlanView(self.plan)

    def __repr__(self) -> str:
        return f"<TrainingPlanReport of {self.plan.searched} candidates>"
