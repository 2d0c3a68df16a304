"""The answer of `roof explore` in files of numbers: the estimate of each model on each device, without options."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from roofmodel.estimate.answer import document as estimate_document
from roofmodel.estimate.data import flat, to_dict
from roofmodel.estimate.tables import OPERATORS
from roofmodel.report.document import Block, Document, Figure, Heading, LazyBlocks, Rows
from roofmodel.report.table import Column, Table
from roofmodel.steps.estimate import Estimate

OPERATORS_OF_ALL = Table("ops", [*map(Column, ("model", "hardware", "phase", *OPERATORS.csv_keys))])


def document(estimates: Sequence[Estimate]) -> Document:
    """The tables of each estimate; the main table has a row for each operator."""
    names = dict.fromkeys(estimate.architecture.name for estimate in estimates)
    return Document(
        ", ".join(names), LazyBlocks(partial(_blocks, estimates)), partial(_data, estimates), partial(_flat, estimates)
    )


def _blocks(estimates: Sequence[Estimate]) -> Iterator[Block]:
    for estimate in estimates:
        title, blocks, *_ = estimate_document(estimate)
        yield Heading(title)
        for block in blocks:
            if isinstance(block, Heading):
                yield block._replace(level=3)
            elif not isinstance(block, Figure):  # the page draws it
                yield block


def _data(estimates: Sequence[Estimate]) -> dict[str, Any]:
    return {"schema": "roofmodel.explore-estimates/1", "estimates": [*map(to_dict, estimates)]}


def _flat(estimates: Sequence[Estimate]) -> Rows:
    rows = [
        {"model": estimate.architecture.name, "hardware": estimate.device.id} | operator
        for estimate in estimates
        for operator in flat(estimate)
    ]
    return Rows(OPERATORS_OF_ALL, rows)
