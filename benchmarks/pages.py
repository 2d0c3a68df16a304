"""Replace tables of the documentation by those that a script computes: the option `--into PAGE`."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path

NOT_RUN = "not run"
"""The cell of a tool that could not run."""


def add_option(parser: argparse.ArgumentParser) -> None:
    """Add `--into`, with any number of pages."""
    parser.add_argument("--into", type=Path, nargs="+", default=(), metavar="PAGE", help="pages to update")


def replace_tables(pages: Iterable[Path], tables: Sequence[str]) -> None:
    """Replace the tables that have the header line of one of `tables`."""
    for path in pages:
        path.write_text(with_tables(path.read_text(encoding="utf-8"), tables), encoding="utf-8")


def replace_rows(pages: Iterable[Path], tables: str) -> None:
    """Replace the rows that have the first cell of a row of `tables`, except the cells of tools that did not run."""
    for path in pages:
        path.write_text(with_rows(path.read_text(encoding="utf-8"), tables), encoding="utf-8")


def with_tables(page: str, tables: Sequence[str]) -> str:
    """The text of a page after `replace_tables`."""
    for table in tables:
        header = re.escape(table.partition("\n")[0])
        page = re.sub(rf"^{header}\n(\|.*\n)+", lambda _, new=table: f"{new}\n", page, flags=re.MULTILINE)
    return page


def with_rows(page: str, tables: str) -> str:
    """The text of a page after `replace_rows`."""
    rows = (line for line, below in pairwise([*tables.splitlines(), ""]) if not below.startswith("|---"))
    cells_by_name = {cells[1]: cells for cells in (row.split("|") for row in rows if row.startswith("| "))}

    def updated(line: str) -> str:
        cells = line.split("|")
        new = cells_by_name.get(cells[1], cells) if line.startswith("| ") else cells
        return "|".join(old if cell.strip() == NOT_RUN else cell for cell, old in zip(new, cells, strict=True))

    return "\n".join(map(updated, page.split("\n")))
