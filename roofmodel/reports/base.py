"""Base classes of results: rendering with rich, and files whose suffix selects the format."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from roofmodel.arguments import PathLike

if TYPE_CHECKING:
    from pathlib import Path

    from roofmodel.views.kit.notebook import Picture


class Shown:
    """A result that renders itself with rich, in a terminal and in a notebook."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Assumptions, ignored options, and limits of the result. A note may begin with `warning: `."""
        return ()

    @property
    def warnings(self) -> tuple[str, ...]:
        """Contradictions and missing data in the input."""
        return ()

    def __rich__(self) -> Any:
        raise NotImplementedError

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        from rich.console import Group
        from rich.text import Text as RichText

        from roofmodel.views.kit.notebook import mimebundle

        return mimebundle(Group(self.__rich__(), *map(RichText, self._all_warnings())))

    def _all_warnings(self) -> list[str]:
        """Lines for a notebook, where notes and warnings do not reach stderr."""
        return [
            *(note for note in self.notes if note.startswith("warning: ")),
            *(f"warning: {warning}" for warning in self.warnings),
        ]


class Saved(Shown):
    """A result that is written to files; the suffix selects the format."""

    @classmethod
    def suffixes(cls) -> Sequence[str]:
        """The suffixes that `save` accepts, without the dot."""
        raise NotImplementedError

    @classmethod
    def check_output(cls, path: PathLike) -> None:
        """Raises OutputError if `save` cannot write this path: an unknown suffix, a missing folder."""
        from roofmodel.views.kit import files

        files.check(os.fspath(path), cls.suffixes())

    def text(self, form: str) -> str:
        """The text that `--format FORM` prints: json, csv, markdown or latex, as far as the result has them."""
        raise NotImplementedError

    def save(self, path: PathLike) -> Path:
        """Write a file; the suffix selects the format. Returns its path. Raises OutputError."""
        raise NotImplementedError


class Drawn(Saved):
    """A result that has a picture."""

    def picture(self, dpi: int = 100) -> Picture:
        """The picture that `save` writes, for a notebook."""
        from roofmodel.views.kit.notebook import picture

        return picture(self.save, dpi)
