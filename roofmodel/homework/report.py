"""The result of `homework`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roofmodel.options import arguments
from roofmodel.options.arguments import PathLike
from roofmodel.report.derivation import Derivation

if TYPE_CHECKING:
    pass


class HomeworkSheet(Derivation):
    """Result of `homework`: a sheet of problems, or its key."""

    @classmethod
    def check_output(cls, path: PathLike, force: bool = False) -> None:
        """Raises OutputError, too, if the file is a sheet with answers and `force` is not set."""
        from roofmodel.errors import Option, OutputError
        from roofmodel.homework.homework import has_answers

        super().check_output(path)
        file = arguments.path("path", path)
        if not force and has_answers(file):
            raise OutputError(
                f"{file}: is a sheet with answers; give another name, or ", Option("force"),
                " to replace it",
            )  # fmt: skip
