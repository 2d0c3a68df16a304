"""The table of conventions agrees with the counting code."""

from __future__ import annotations

import json
import re

from roofmodel.counting import vector_flops
from roofmodel.counting.tensors import FORMATS
from roofmodel.errors import option_spelling
from roofmodel.explain import conventions
from roofmodel.report.document import Heading, Paragraph, TextTable
from roofmodel.report.printing import flag


def test_formulas_come_from_the_counting_code() -> None:
    shown = {point["point"]: point["formula"] for point in conventions.document().data()["points"]}
    # counting.md: S(S+1)/2; a chunk C c0 + C(C+1)/2; a window W S - W(W-1)/2 for S >= W; min(W, context + 1)
    assert shown["causal attention, eager"] == "S²"
    assert shown["causal attention, fused"] == "S(S + 1)/2"
    assert shown["a chunk of T tokens after C"] == "T(2C + T + 1)/2"
    assert shown["sliding window W"] == "min(S, W)(2S − min(S, W) + 1)/2"
    assert shown["a decode in a window"] == "min(C, W − 1) + 1"
    assert shown["mixture of experts"] == "E(1 − (1 − k/E)^(BS))"


def test_every_constant_is_listed_with_its_source() -> None:
    constants = {constant.name: constant for constant in conventions.constants()}
    assert constants["norm: layernorm"].flops == vector_flops.NORM["layernorm"]
    assert "1607.06450" in constants["norm: layernorm"].why
    assert {f"activation: {name}" for name in vector_flops.ACTIVATION} <= {*constants}
    plain = {"add", "activation: linear", "activation: tanh"}  # zero or one FLOP: no source needed
    assert [name for name, constant in constants.items() if not constant.why and name not in plain] == []


def test_every_format_is_listed() -> None:
    assert [form.name for form, _ in conventions.formats()] == list(FORMATS)
    sizes = {form.name: size for form, size in conventions.formats()}
    assert sizes["int4"] == 0.5 + 20 / 8 / 128  # a 16-bit scale and a 4-bit zero point per 128 elements


def test_the_template_names_each_value_once() -> None:
    named = re.findall(r"\{(\w+)\}", conventions.TEMPLATE.read_text(encoding="utf-8"))
    assert sorted(named) == sorted([*conventions.values(), "constants", "formats"])
    assert "{" not in json.dumps(conventions.document().data()["points"], indent=0).replace("{\n", "")


def test_options_are_written_as_in_python_or_on_the_command_line() -> None:
    def switches() -> list[str]:
        return [point["switch"] for point in conventions.document().data()["points"] if point["switch"]]

    assert {'attention="eager"', "logits", "weights kv activations"} <= {*switches()}
    with option_spelling(flag):
        assert {"--attention eager", "--logits", "--weights --kv --activations"} <= {*switches()}


def test_markdown_is_read_as_headings_paragraphs_and_tables() -> None:
    text = "# A *title*\n\ntwo\nlines, snake_case\n\n## B\n\n| a | b |\n|---|---:|\n| x \\| y | 2 |\n| | `3` |\n"
    assert conventions.blocks_of(text) == [
        Heading("A title", 1),
        Paragraph("two lines, snake_case"),
        Heading("B", 2),
        TextTable(["a", "|b"], [["x | y", "2"], ["", "3"]]),
    ]
