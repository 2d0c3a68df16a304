"""The result of `homework`."""

from __future__ import annotations

from roofmodel.options import arguments
from roofmodel.options.arguments import PathLike
from roofmodel.report.derivation import Derivation


class HomeworkSheet(Derivation):
    """Result of `homework`: a sheet of problems, or its key."""

    @classmethod
    def check_replaced(cls, path: PathLike) -> None:
        """Raises OutputError if the file is a sheet with answers."""
        from roofmodel.errors import Option, OutputError
        from roofmodel.homework.homework import has_answers

        file = arguments.path("path", path)
        if has_answers(file):
            raise OutputError(
                f"{file}: is a sheet with answers; give another name, or ", Option("force"),
                " to replace it",
            )  # fmt: skip
