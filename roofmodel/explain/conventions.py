"""The counting conventions: `conventions.md` beside this file, with formulas and numbers from the counting code."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from roofmodel.counting import textbook_kernels, vector_flops
from roofmodel.counting.expert_load import touched_experts
from roofmodel.counting.operator import Collective
from roofmodel.counting.tensors import FORMATS, Format
from roofmodel.counting.vector_flops import FlopCount
from roofmodel.counting.workload import Workload, attended, pairs
from roofmodel.errors import Option, joined
from roofmodel.models.layers import MLP, MoE
from roofmodel.models.symbols import symbol
from roofmodel.numbers import units
from roofmodel.numbers.algebra import product
from roofmodel.options.values import MEMORY_UTILIZATION
from roofmodel.report import formula
from roofmodel.report.document import Block, Document, Form, Heading, Paragraph, Rows, TextTable
from roofmodel.report.table import Column, Table

if TYPE_CHECKING:
    from markdown_it.tree import SyntaxTreeNode

TEMPLATE = Path(__file__).with_name("conventions.md")
"""In it {name} is a formula or a number of `values`, and a row of {constants} or {formats} stands for all of them."""


POINTS = Table(
    "points",
    (
        Column("point", meaning="what the convention is about"),
        Column("convention", meaning="what is counted"),
        Column("formula", meaning="its formula; empty without one"),
        Column("switch", meaning="the option that changes it"),
    ),
)


def values() -> dict[str, Any]:
    """The formulas and numbers of the template, from the counting code."""
    S, C, T, W, B, E, k = map(symbol, ("S", "C", "T", "W", "B", "E", "k"))
    flash, eager = (Workload(("prefill",), batch=B, seq=S, attention=how).step("prefill") for how in ("flash", "eager"))
    decode = Workload(("decode",), batch=B, context=C).step("decode")
    return {
        "matmul": textbook_kernels.operator("matmul", symbol("n"), Workload(()).widths).matmul_flops,
        "all_pairs": pairs(eager, None, True),
        "causal_pairs": pairs(flash, None, True),
        "chunk_pairs": pairs(flash._replace(tokens=T, context=C), None, True),
        "window_pairs": pairs(flash, W, True),
        "window_tokens": attended(decode, W),
        "decode_tokens": attended(decode, None),
        "touched_experts": touched_experts(MoE(E, k, MLP(symbol("F"), "silu")), B * S),
        "all_reduce": Collective("all_reduce", symbol("n")).sent(symbol("X")),
        "memory_utilization": str(MEMORY_UTILIZATION),
    }


class Constant(NamedTuple):
    """Vector FLOPs per element of an operation, and the source of the number."""

    name: str
    flops: int
    why: str


def constants() -> Iterator[Constant]:
    """All constants of `counting/vector_flops.py`, with the operations that they count."""
    for name, value in vars(vector_flops).items():
        entries = value.items() if isinstance(value, dict) else [("", value)]
        for key, flops in entries:
            if isinstance(flops, FlopCount):
                label = name.lower().replace("_", " ")
                yield Constant(f"{label}: {key}" if key else label, flops, flops.operations)


def formats() -> list[tuple[Format, float]]:
    """The number formats, and the bytes per element including its share of the block scale."""
    block = 128 * 128
    return [(form, form.bytes(product((block, block))) / block**2) for form in FORMATS.values()]


def document() -> Document:
    """The template with its formulas, numbers and rows."""
    filled, listed = values(), list(constants())
    rows: dict[str, list[Sequence[str | Form]]] = {
        "{constants}": [(each.name, str(each.flops), each.why) for each in listed],
        "{formats}": [
            (form.name, str(form.bits), str(form.block or ""), str(form.scale_bits or ""), units.significant(size, 4))
            for form, size in formats()
        ],
    }
    title, *blocks = blocks_of(TEMPLATE.read_text(encoding="utf-8"))
    for place, block in enumerate(blocks):
        if isinstance(block, TextTable):
            several = [rows.get(str(row[0])) or [[_filled(str(cell), filled) for cell in row]] for row in block.rows]
            blocks[place] = TextTable(block.columns, [row for each in several for row in each])
    points = next(block.rows for block in blocks if isinstance(block, TextTable))

    def data() -> dict[str, Any]:
        return {
            "schema": "roofmodel.conventions/1",
            "points": [
                {
                    "point": point,
                    "convention": convention,
                    "formula": form.text if isinstance(form, Form) else None,
                    "switch": switch,
                }
                for point, convention, form, switch in points
            ],
            "vector_flops": [each._asdict() for each in listed],
            "formats": [{**form._asdict(), "bytes": size} for form, size in formats()],
        }

    return Document(
        title.text if isinstance(title, Heading) else "",
        blocks,
        data,
        lambda: Rows(POINTS, data()["points"]),
    )


def _filled(cell: str, filled: dict[str, Any]) -> str | Form:
    """A cell with its numbers, options as the caller writes them, or the formula that it names."""
    if re.fullmatch(r"\{\w+\}", cell):
        readable = formula.readable(filled[cell[1:-1]])
        return Form(formula.text(readable), formula.latex(readable))
    if cell.startswith("--"):
        options = re.findall(r"--([a-z-]+)(?: (\w+))?", cell)
        return str(joined(" ", [Option(name.replace("-", "_"), *filter(None, [value])) for name, value in options]))
    return cell.format_map(filled)


def blocks_of(markdown: str) -> list[Block]:
    """The headings, paragraphs and tables of a Markdown text."""
    from markdown_it import MarkdownIt
    from markdown_it.tree import SyntaxTreeNode

    blocks: list[Block] = []
    for node in SyntaxTreeNode(MarkdownIt("commonmark").enable("table").parse(markdown)).children:
        if node.type == "table":
            head, body = (part.children for part in node.children)
            columns = ["|" * ("right" in str(cell.attrs.get("style", ""))) + _text(cell) for cell in head[0].children]
            blocks.append(TextTable(columns, [[_text(cell) for cell in row.children] for row in body]))
        elif node.type == "heading":
            blocks.append(Heading(_text(node), int(node.tag.removeprefix("h"))))
        else:
            blocks.append(Paragraph(_text(node)))
    return blocks


def _text(node: SyntaxTreeNode) -> str:
    """The text of a heading, a paragraph or a cell; a line break is a space."""
    parts = [part for inline in node.children for part in inline.walk() if not part.children]
    return "".join(" " if part.type == "softbreak" else part.content for part in parts)
