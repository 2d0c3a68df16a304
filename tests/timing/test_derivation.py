"""Every expected time can be recomputed from its printed derivation."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from roofmodel.counting import phases
from roofmodel.devices.calibration import TIMINGS
from roofmodel.devices.device import Device
from roofmodel.explain.explain import explain
from roofmodel.explain.operator_answer import _timing, expected_time
from roofmodel.models import hub
from roofmodel.numbers.derivation import written
from roofmodel.report.document import Equation, Equations
from roofmodel.steps.options import workload
from roofmodel.timing import attention, batched_gemm, collectives, derivation, experts, formula, gemm, recurrent, timing
from roofmodel.timing.attention import AttentionWork
from roofmodel.timing.collectives import CollectiveWork
from roofmodel.timing.experts import GroupedGemmWork, MoeWork
from roofmodel.timing.formula import Chip, FormulaDescription, meanings
from roofmodel.timing.gemm import GemmWork
from roofmodel.timing.parameter_sets import choose_set
from roofmodel.timing.recurrent import ConvolutionWork, DeltaRuleWork, UpdateWork
from roofmodel.timing.roofline import place
from tests.numbers.test_derivation import evaluated

MODELS = ("gpt2-xl", "llama-3.1-8b", "Mixtral-8x7B-v0.1", "gemma-2-2b", "DeepSeek-V2-Lite", "resnet-18", "t5-small",
          "mamba-130m-hf")  # fmt: skip


def evaluated_derivation(found: timing.Formula, bound: float, expected: timing.Expected) -> float:
    """The stated time of a kernel."""
    (lines,) = [block.lines for block in expected_time(found, bound, expected) if isinstance(block, Equations)]
    return evaluated_lines(lines, found, bound)


def evaluated_lines(lines: Sequence[Equation], found: timing.Formula, bound: float) -> float:
    """The stated time. Every printed line is evaluated, with names and with numbers, and must give its stated value."""
    names = {p.name.replace(".", "__"): evaluated(written(p.value)) for p in derivation.inputs(found)}
    names["bound"] = bound
    stated = 0.0
    for name, forms in lines:
        *texts, last = [form.text for form in forms]
        if name == "since":
            assert [evaluated(texts[0], **names), evaluated(last)] == [True, True], last
            continue
        stated = float(last) if re.fullmatch(r"[0-9.e+-]+", last) else quantity(last)
        is_total = name in ("expected", "one part")
        for text in texts[1:] if is_total and not texts[0].endswith(")") else texts:  # others than the kernel's formula
            assert evaluated(text, **names) == pytest.approx(stated, rel=5e-4 if is_total else 2e-5), (name, text)
        names[name] = evaluated(texts[-1], **names) if texts else stated  # the last expression has numbers
    return stated


def quantity(text: str) -> float:
    """The number of `9.761 µs` or `1.04281 TB/s` in base units."""
    number, _, unit = text.partition(" ")
    factor = {"k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "m": 1e-3, "µ": 1e-6, "n": 1e-9}
    return float(number) * (factor.get(unit[:1], 1.0) if unit not in ("s", "B", "FLOP/s", "B/s") else 1.0)


@settings(deadline=None, max_examples=25)
@given(
    model=st.sampled_from(MODELS),
    hw=st.sampled_from(["a100", "h100", "v100"]),
    weights=st.sampled_from(["fp16", "fp8", "int4"]),
    phase=st.sampled_from(["prefill", "decode", "train"]),
    batch=st.integers(1, 300),
    length=st.integers(2, 5000),
    sampler=st.randoms(use_true_random=False),
)
@example("DeepSeek-V2-Lite", "a100", "fp16", "prefill", 39, 194, random.Random(0))  # one expert's weights fit in L2
def test_printed_derivation_lines_give_the_stated_time(
    model: str, hw: str, weights: str, phase: str, batch: int, length: int, sampler: Any
) -> None:
    arch, device = hub.load(model), Device.load(hw)
    phase = "forward" if arch.image and phase != "train" else phase
    options: dict[str, Any] = {} if phase == "train" else {"weights": weights}
    work, _ = workload(arch, phase=phase, batch=batch, seq=length, **options)
    operators = phases.operators(arch, work.steps()[0])
    placements = [(operator, place(operator.cost, device, "fp16")) for operator in operators]
    formulas = [(*pair, timing.formula(*pair, device, "fp16")) for pair in placements]
    timed = [(operator, placed, found) for operator, placed, found in formulas if found is not None]
    assert timed
    for operator, placed, found in sampler.sample(timed, min(6, len(timed))):
        assert derivation.steps(found)[-1].value == pytest.approx(float(found.seconds), rel=1e-12)
        expected = timing.clamp_to_bound(found.seconds, found.fit, placed.bound_seconds)
        stated = evaluated_derivation(found, float(placed.bound_seconds), expected)
        assert stated == pytest.approx(float(expected.value), rel=6e-4), operator.name  # four digits are printed


TRAINING = {"phase": "train", "batch": 16, "seq": 64, "dp": 8}
ESTIMATES: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("gpt2", "a100", TRAINING | {"engine": "megatron"}),  # gradients of 32 bits
    ("gpt2", "a100", TRAINING | {"engine": "torch"}),  # in buckets
    ("gpt2", "v100", TRAINING | {"engine": "torch", "dp": 4, "data_parallel": "dataparallel"}),  # in chunks
    ("gpt2", "h100", {"phase": "prefill", "seq": 4096, "batch": 64, "sustained": "on"}),
    ("llama-3.1-8b", "h100", {"phase": "decode", "batch": 300, "dtype": "fp8"}),
    ("Mixtral-8x7B-v0.1", "a100", {"phase": "prefill", "batch": 3, "tp": 2}),
    ("deepseek-ai/DeepSeek-V4-Flash", "b200", {"phase": "decode", "op": "attention", "batch": 16, "context": 4096}),
    ("MiniMaxAI/MiniMax-M3", "b200", {"phase": "prefill", "op": "attention", "engine": "trtllm", "tp": 8}),
    ("moonshotai/Kimi-Linear-48B-A3B-Instruct", "h200", {"phase": "prefill", "op": "linear"}),
)


@pytest.mark.parametrize(("model", "hw", "options"), ESTIMATES)
def test_the_printed_terms_of_every_kernel_of_an_estimate_give_its_time(
    model: str, hw: str, options: dict[str, Any]
) -> None:
    explanation = explain(hub.load(model), Device.load(hw), **options)
    counted = [each for section in explanation.sections for each in section.operators if each.formula]
    printed = 0
    for each in counted:
        if each.placed is None or each.fused_into:
            continue
        assert each.formula is not None
        run, rows = each.placed.run, each.kernels
        row = max(rows, key=lambda row: row.operator.count) if run.merged else each.placed
        assert row.run.expected is not None
        tables = [block.lines for block in _timing(each, each.placed) if isinstance(block, Equations)]
        if row.is_limited_by_power:
            (((_, [form]),),) = [tables.pop()]
            assert quantity(form.text) == pytest.approx(float(row.expected.value), rel=6e-4)  # type: ignore[union-attr]
        kernels = [kernel for kernel in run.kernels if kernel.count]
        formulas = [kernel.formula for kernel in kernels] or [each.formula]
        bounds = [float(kernel.bound) for kernel in kernels] or [float(each.placed.placement.bound_seconds)]
        stated = [evaluated_lines(*pair) for pair in zip(tables, formulas, bounds, strict=False)]
        if len(tables) > len(formulas):  # the parts of an exchange
            (((_, [terms, total]),),) = tables[len(formulas) :]
            assert evaluated(terms.text) == pytest.approx(quantity(total.text), rel=6e-4)
            assert evaluated(terms.text) == pytest.approx(
                sum(kernel.count * time for kernel, time in zip(kernels, stated, strict=True)), rel=6e-4
            )
            stated = [quantity(total.text)]
        assert stated == [pytest.approx(float(row.run.expected.value), rel=6e-4)], each.operator.name
        printed += 1
    assert printed > len(counted) / 2


def test_an_exchange_of_gradients_with_32_bits_is_bound_by_twice_the_bytes_of_16_bits() -> None:
    """The counts of an exchange are those of the weights' format; Megatron sums gradients in fp32."""
    (section,) = explain(hub.load("gpt2"), Device.load("a100"), op="gradients.all_reduce", **ESTIMATES[0][2]).sections
    (exchange,) = section.operators
    assert exchange.placed is not None
    (kernel,) = exchange.placed.run.kernels
    assert kernel.bound == pytest.approx(2 * exchange.placed.placement.bound_seconds)
    assert exchange.placed.expected == kernel.expected


@pytest.mark.parametrize("rounds", [0, 1, 2])
@pytest.mark.parametrize("size", [1e3, 1e6, 1e9])
def test_derivations_of_collectives_give_the_stated_time(rounds: int, size: float) -> None:
    calibration = Device.load("h100").calibration
    assert calibration is not None
    chosen = choose_set(calibration.collectives, "", "any")
    assert chosen is not None
    found = timing._applied(
        ("collectives", calibration),
        collectives.DESCRIPTION,
        collectives.seconds,
        (collectives.CollectiveWork(8, rounds, size), 450e9),
        chosen,
    )
    expected = timing.clamp_to_bound(found.seconds, found.fit, 0.0)
    assert evaluated_derivation(found, 0.0, expected) == pytest.approx(found.seconds, rel=6e-4)


def test_the_l2_traffic_of_a_norm_is_in_its_derivation() -> None:
    device = Device.load("a100")
    arch = hub.load("gpt2-xl")
    (norm, *_) = [
        op for op in phases.operators(arch, workload(arch, phase="prefill")[0].steps()[0]) if op.kind == "norm"
    ]
    found = timing.formula(norm, place(norm.cost, device, "fp16"), device, "fp16")
    assert found is not None
    lines = {step.name: step for step in derivation.steps(found)}
    # input and output of 1024 x 1600 elements, gain and bias, 2 bytes per element: they fit 40 MiB
    assert lines["data ≤ chip.l2"].numbers == "6560000 ≤ 41943040"
    assert lines["stream"].formula == "data / (timing.l2 × chip.port)"


def test_every_input_and_constant_of_a_formula_has_a_meaning() -> None:
    device = Device.load("h100")
    for name in MODELS:
        arch = hub.load(name)
        for phase in ("forward",) if arch.image else ("prefill", "decode"):
            for operator in phases.operators(arch, workload(arch, phase=phase)[0].steps()[0]):
                found = timing.formula(operator, place(operator.cost, device, "fp16"), device, "fp16")
                if found is not None:
                    assert all(p.meaning for p in (*derivation.inputs(found), *derivation.constants(found))), found.name


RECORDS = (
    *dict.fromkeys(TIMINGS.values()), Chip, GemmWork, AttentionWork, CollectiveWork, GroupedGemmWork, MoeWork,
    ConvolutionWork, DeltaRuleWork, UpdateWork,
)  # fmt: skip
MODULES = (attention, batched_gemm, collectives, experts, formula, gemm, recurrent)


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.__name__)
def test_every_field_of_a_formulas_input_declares_its_meaning(record: Any) -> None:
    assert tuple(meanings(record)) == record._fields


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_a_formula_lists_all_constants_with_a_meaning(module: Any) -> None:
    listed = {name for text in vars(module).values() if isinstance(text, FormulaDescription) for name in text.constants}
    assert listed == meanings(module).keys()
