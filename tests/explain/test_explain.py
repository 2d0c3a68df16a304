"""Derivations of counts and times: symbols and numbers agree for every family; output; errors."""

from __future__ import annotations

import random
import re
from dataclasses import fields
from pathlib import Path
from typing import Any, get_type_hints

import pytest
import sympy
import yaml

import roofmodel
from roofmodel.counting import passes, phases
from roofmodel.counting.operator import Cost
from roofmodel.counting.workload import NO_IMAGE, Workload
from roofmodel.devices import library
from roofmodel.devices.calibration import DecodeTiming, ExpertsTiming, GemmTiming, PrefillTiming
from roofmodel.devices.device import Device
from roofmodel.explain.explain import explain, matching_names, symbolic_workload
from roofmodel.models import hub
from roofmodel.models.architecture import Architecture
from roofmodel.models.config import architecture
from roofmodel.models.families import FAMILIES
from roofmodel.models.symbols import symbolic
from roofmodel.report.operator_names import label, merged_label, operator_name, title
from roofmodel.steps.estimate import estimate
from roofmodel.steps.options import tokens_of
from tests import draws


def random_architecture(model_type: str, draw: int) -> Architecture:
    family = FAMILIES[model_type]
    config = draws.config(model_type, random.Random(draw))
    config["architectures"] = [family.prefix + list(family.classes)[draw % len(family.classes)]]
    return architecture(config, "drawn", "config.json")


def workload(arch: Architecture, phase: str, attention: str) -> Workload:
    image = arch.image or NO_IMAGE
    return Workload(
        (phase,),  # type: ignore[arg-type]
        batch=3,
        seq=tokens_of(arch, image) if arch.image else 9,
        context=7 if phase == "decode" else None,
        attention=attention,  # type: ignore[arg-type]
        image=image,
        decoder_seq=5 if arch.encoder else None,
    )


def equals(expression: Any, values: dict[Any, Any], number: Any) -> bool:
    """Whether a symbolic count equals a number: exactly for ints, within rounding for fractions (expected experts)."""
    found = sympy.sympify(expression).xreplace(values)
    return bool(found == number) or abs(float(found) - float(number)) <= 1e-12 * abs(float(number))


@pytest.mark.parametrize("model_type", sorted(FAMILIES))
def test_numbers_substituted_for_symbols_give_the_count(model_type: str) -> None:
    """Two drawn models: a prefill with eager attention; a decode and a training step with flash attention."""
    for draw, (attention, tested) in enumerate((("eager", ("prefill",)), ("flash", ("decode", "train")))):
        arch = random_architecture(model_type, draw)
        shape = symbolic(arch)
        for phase in tested if arch.causal else {"eager": ("forward",), "flash": ("train",)}[attention]:
            work = workload(arch, phase, attention)
            symbolic_work, sources = symbolic_workload(arch, work)
            known = {**sources, **(shape.sources or {})}
            values = {name: sympy.Integer(source.value) for name, source in known.items()}
            step, symbolic_step = work.steps()[0], symbolic_work.steps()[0]
            numbers, symbols = phases.operators(arch, step), phases.operators(shape, symbolic_step)
            for op, symbolic_op in zip(numbers, symbols, strict=True):
                assert (op.name, op.spec) == (symbolic_op.name, symbolic_op.spec)
                assert equals(symbolic_op.passes * shape.times(symbolic_op.layers), values, op.count)
                for field in fields(Cost):
                    count = getattr(op.cost, field.name)
                    assert equals(getattr(symbolic_op.cost, field.name), values, count), (phase, op.name, field.name)
            assert equals(passes.parameters(shape, symbols), values, passes.parameters(arch, numbers))
            expected, derived = (
                phases.phase_memory(counted, each_step, passes.weight_bytes(counted, ops), [ops])
                for counted, each_step, ops in ((arch, step, numbers), (shape, symbolic_step, symbols))
            )
            for role in ("weights", "kv_cache", "activations", "gradients", "optimizer"):
                assert equals(getattr(derived, role), values, getattr(expected, role)), (phase, role)


def totals(model: str, phase: str, **options: Any) -> dict[str, Any]:
    found = roofmodel.explain(model, phase=phase, **options).to_dict()
    return {total["name"]: total for total in found["phases"][0]["totals"]}


def test_the_formula_of_gpt2_has_the_textbook_form() -> None:
    # multiply-adds per token: 12 D^2 (weights) and 2 S D (attention's two GEMMs) per layer, V D in the head
    # 2 FLOPs per multiply-add: 2 B S (12 D^2 L + 2 S D L + V D)
    found = totals("gpt2-xl", "forward", attention="eager")["matmul FLOPs"]
    assert found["formula"] == "2BSD(12DL + 2SL + V)"
    assert found["latex"] == r"2BSD\bigl(12DL + 2SL + V\bigr)"
    assert found["value"] == 3_506_703_564_800  # counting.md


def test_parameters_of_gpt2_are_a_formula_too() -> None:
    (found,) = roofmodel.explain("gpt2-xl").to_dict()["parameters"]
    # per layer: 12 D^2 in matrices, 13 D in biases (3 + 1 + 4 + 1) and two norms (gain and bias); final norm 2 D
    assert found["formula"] == "D(L(12D + 13) + P + V + 2)"
    assert found["value"] == 1_557_611_200


def test_grouped_query_attention_reduces_the_cache() -> None:
    found = roofmodel.explain("llama-3.1-8b", phase="decode").to_dict()
    cache = {part["name"]: part for part in found["memory"]}["KV cache"]
    # K and V: 2 bytes, H_kv heads of size D/H, L layers, S tokens and the new one
    assert sympy.sympify(cache["sympy"], locals=_names(cache["sympy"])) == sympy.sympify(
        "4*B*(S + 1)*L*H_kv*D/H", locals=_names("B S L H_kv D H")
    )
    assert cache["value"] == 4 * 1 * 1025 * 32 * 8 * 4096 // 32


def _names(text: str) -> dict[str, Any]:
    functions = {"Min", "Max", "floor", "ceiling"}
    return {name: sympy.Symbol(name) for name in {*re.findall(r"[A-Za-z_]\w*", text)} - functions}


def test_a_symbol_states_its_config_key() -> None:
    symbols = {entry["symbol"]: entry for entry in roofmodel.explain("mixtral-8x7b-v0.1").to_dict()["symbols"]}
    assert symbols["D"]["origin"] == "hidden_size"
    assert symbols["k"]["origin"] == "num_experts_per_tok"
    assert symbols["B"]["origin"] == "batch"
    assert symbols["L"] == {
        "symbol": "L", "latex": "L", "meaning": "layers", "value": 32, "origin": "num_hidden_layers", "assumed": False,
    }  # fmt: skip


def test_an_axis_is_derived_from_config_keys() -> None:
    (op,) = roofmodel.explain("gpt2", op="attention.qkv", phase="prefill").to_dict()["phases"][0]["ops"]
    axes = {axis["axis"]: axis for axis in op["axes"]}
    assert axes["c"]["formula"] == "3D"  # queries, keys and values, each as wide as the model
    assert axes["c"]["value"] == 3 * 768
    assert axes["h"]["formula"] == "D/H"
    flops = op["counts"][0]
    assert flops["formula"] == "6BSD²"
    assert flops["value"] == 6 * 1024 * 768**2


@pytest.mark.parametrize(
    ("model", "options"),
    [
        ("gpt2-xl", {}),
        ("llama-3.1-8b", {"phase": "decode", "batch": 4, "weights": "int4", "kv": "fp8"}),
        ("gemma-2-9b", {"phase": "generate", "new_tokens": 5}),
        ("deepseek-v3", {"phase": "decode", "context": 500}),
        ("gpt2", {"phase": "train", "recompute": "full"}),
        ("bert-base-uncased", {}),
        ("t5-small", {"phase": "prefill", "seq": 100, "decoder_seq": 7}),
        ("resnet-50", {"batch": 2}),
        ("vit-base-patch16-224", {}),
        ("mamba-130m-hf", {"phase": "prefill"}),
    ],
)
def test_explain_agrees_with_estimate(model: str, options: dict[str, Any]) -> None:
    estimated = roofmodel.estimate(model, "a100", **options).to_dict()
    explained = roofmodel.explain(model, "a100", **options).to_dict()
    values = {sympy.Symbol(s["symbol"]): s["value"] for s in explained["symbols"]}
    for phase, shown in zip(estimated["phases"], explained["phases"], strict=True):
        rows = iter(phase["ops"])
        for derived in shown["ops"]:
            ops = [next(rows)]
            while sum(row["count"] for row in ops) < derived["count"]:  # kernels that compute different operators
                ops.append(next(rows))
            assert {op["name"] for op in ops} == {derived["name"]}
            op = max(ops, key=lambda row: row["count"])
            assert derived["bound"] == op["bound"]
            assert derived["bound_seconds"] == op["bound_seconds"]
            assert derived["expected_seconds"] == op["expected_seconds"]
            assert derived["fused_into"] == op["fused_into"]
            assert derived["count"] == sum(row["count"] for row in ops)
        assert not [*rows]
        found = {total["name"]: total for total in shown["totals"]}
        for name, key in (("matmul FLOPs", "matmul_flops"), ("vector FLOPs", "vector_flops"), ("bytes", "bytes")):
            assert found[name]["value"] == phase["totals"][key]
            number = sympy.sympify(found[name]["sympy"], locals=_names(found[name]["sympy"])).subs(values)
            assert float(number) == pytest.approx(float(phase["totals"][key]), rel=1e-12)
    for part in explained["memory"]:
        assert part["value"] == estimated["memory"][part["name"].lower().replace(" ", "_")]
    (parameters, *_) = explained["parameters"]
    assert parameters["value"] == estimated["model"]["parameters"]


def test_a_group_or_the_end_of_a_name_selects_operators() -> None:
    names = [op["name"] for op in roofmodel.explain("gpt2", op="mlp", phase="prefill").to_dict()["phases"][0]["ops"]]
    assert {"mlp.up", "mlp.activation", "mlp.down"} <= {*names}
    (op,) = roofmodel.explain("gpt2", op="up", phase="decode").to_dict()["phases"][0]["ops"]
    assert op["name"] == "mlp.up"


def test_an_unknown_operator_is_refused_with_the_known_ones() -> None:
    with pytest.raises(roofmodel.WorkloadError, match=r"op: unknown operator 'qvk'; did you mean 'qkv'"):
        roofmodel.explain("gpt2", op="qvk")


def test_layers_of_two_kinds_are_counted_separately() -> None:
    explanation = explain(hub.load("gemma-2-9b"), phase="prefill")
    counts = {str(name): source for name, source in explanation.sources.items() if str(name).startswith("L")}
    assert sum(source.value for source in counts.values()) == 42
    assert len(counts) == 2  # with a sliding window, and without


@pytest.mark.parametrize(
    ("kernel", "dtype", "intensity"),
    [
        ("saxpy", "fp64", 2 / 24),  # 2 FLOPs; two reads and a write of 8 bytes
        ("triad", "fp64", 2 / 24),
        ("stencil7-uncached", "fp64", 7 / 64),  # seven reads and a write
        ("stencil7", "fp64", 7 / 16),  # one read and one write: 4 times the intensity
        (
            "spmv",
            "fp64",
            2 * 27 / (27 * 12 + 20 + 4 / 1024),
        ),  # values and columns; offset, x, y
        ("matmul", "fp64", 2 * 1024 / 24),  # 2 n^3 over three matrices of 8 n^2
        ("matmul-accumulate", "fp64", (2 * 1024 + 1) / 32),  # 2 n^3 and the sum with C over four of them: n/16
    ],
)
def test_the_kernels_of_the_lectures_have_their_intensities(kernel: str, dtype: str, intensity: float) -> None:
    (op,) = roofmodel.explain(kernel, n=1024, dtype=dtype).to_dict()["phases"][0]["ops"]
    assert op["intensity"] == pytest.approx(intensity, rel=1e-12)


def test_the_projection_of_one_new_token_has_the_intensity_of_its_batch() -> None:
    def intensity(batch: int) -> float:
        found = roofmodel.explain("llama-2-7b-hf", op="attention.k", phase="decode", batch=batch).to_dict()
        return float(found["phases"][0]["ops"][0]["intensity"])

    # 2 B D^2 FLOPs over 2 D^2 bytes of the matrix and 4 B D of tokens: B / (1 + 2 B / D)
    assert intensity(1) == pytest.approx(1 / (1 + 2 / 4096))
    assert intensity(16) == pytest.approx(16 / (1 + 32 / 4096))


def test_counts_have_units() -> None:
    (op,) = roofmodel.explain("matmul").to_dict()["phases"][0]["ops"]
    assert [count["unit"] for count in op["counts"]] == ["FLOP", "FLOP", "B", "B"]


def test_options_without_effect_on_a_kernel_are_ignored_with_a_note() -> None:
    notes = roofmodel.explain("triad", batch=4, op="x").notes
    assert notes == ("batch is ignored: triad is a kernel", "op is ignored: triad is a kernel")


def test_the_derivation_of_a_gemms_time_shows_parts_formula_and_source() -> None:
    options: dict[str, Any] = {"op": "attention.qkv", "phase": "prefill"}
    text = roofmodel.explain("gpt2-xl", "a100", timing=True, **options).to_markdown()
    expected = roofmodel.estimate("gpt2-xl", "a100", phase="prefill").to_dict()["phases"][0]["ops"]
    (qkv,) = (op for op in expected if op["name"] == "attention.qkv")
    assert f"{qkv['expected_seconds'] * 1e6:.4g} " in text
    assert "latency + √(compute² + memory²) + split + quantize" in text
    assert "fitted to aiconfigurator@" in text  # source of the parameters


@pytest.mark.parametrize(
    ("device", "options", "file", "formats"),
    [
        ("h100", {"dtype": "fp8"}, "h100-sxm", "fp8/fp8"),
        ("h100", {"dtype": "fp16", "weights": "fp8"}, "h100-sxm", "fp16/fp16"),  # no set of its own: the nearest
        ("h200", {"dtype": "fp8"}, "h100-sxm", "fp8/fp8"),  # the H200 uses the H100's sets
        ("h100", {"engine": "torch"}, "h100-sxm", "fp16/fp16"),
    ],
)
def test_the_derivation_names_the_parameter_set_in_its_device_file(
    device: str, options: dict[str, Any], file: str, formats: str
) -> None:
    found = roofmodel.explain("llama-3.1-8b", device, op="mlp.down", phase="decode", timing=True, **options)
    chosen = found.to_dict()["phases"][0]["ops"][0]["expected_by"]["parameter_set"]
    assert (chosen["device"], chosen["kind"], chosen["formats"]) == (file, "gemm", formats)
    fitted = library.fitted_file(library.find(file))
    assert fitted is not None
    sets = yaml.safe_load(fitted.read_text())["gemm"]
    assert formats in sets[chosen["implementation"]]
    text = " ".join(found.to_markdown().replace("\\", "").split())
    assert f"gemm, {chosen['implementation']}, {formats}" in text
    assert f"in {file}.yaml" in text


def test_the_timing_model_is_shown_with_timing_and_always_in_json() -> None:
    options: dict[str, Any] = {"op": "attention.qkv", "phase": "prefill"}
    short, full = (roofmodel.explain("gpt2-xl", "a100", timing=timing, **options) for timing in (False, True))
    assert len(short.to_markdown().splitlines()) < 60
    assert short.to_markdown().strip().splitlines()[-1] in full.to_markdown()  # both show bound and expected time
    assert "aiconfigurator" not in short.to_markdown()
    assert short.to_dict() == full.to_dict()
    assert short.to_dict()["phases"][0]["ops"][0]["expected_by"]["steps"]


def test_fused_operators_of_an_engine_are_derived_as_executed() -> None:
    options = {"phase": "prefill", "engine": "vllm"}
    model = "meta-llama/Llama-3.1-8B"
    (phase,) = roofmodel.explain(model, "a100", **options).to_dict()["phases"]
    ops = {op["name"]: op for op in phase["ops"]}
    for op in roofmodel.estimate(model, "a100", **options).to_dict()["phases"][0]["ops"]:
        derived = ops[op["name"]]
        if op["fused_into"]:
            assert derived["expected_seconds"] is None
        elif op["name"] not in (
            "attention.flash",
            "norm.attention",
            "norm.mlp",
            "norm.final",
        ):  # alone, or merged GEMMs
            seconds = max(derived["expected_by"]["steps"][-1]["value"], op["kernel_bound_seconds"])
            assert seconds == pytest.approx(op["expected_seconds"], rel=1e-12), op["name"]
    assert ops["attention.k"]["expected_by"]["together"] == ["attention.q", "attention.k", "attention.v"]
    assert ops["attention.k"]["expected_by"]["columns"] == [8 * 128, (32 + 8 + 8) * 128]
    assert [name for name, op in ops.items() if op["expected_by"] and op["expected_by"]["rides"]] == [
        "attention.rotary", "residual.attention", "residual.mlp",
    ]  # fmt: skip


@pytest.mark.parametrize("engine", ["vllm", "torch"])
def test_the_derivation_of_an_engines_gemm_ends_at_its_expected_time(engine: str) -> None:
    options = {"phase": "decode", "engine": engine}
    found = explain(hub.load("gpt-j-6b"), Device.load("h100"), "mlp.down", **options)
    (operator,) = found.sections[0].operators
    assert operator.placed
    assert operator.placed.expected
    assert operator.formula
    seconds = max(operator.formula.seconds, operator.placed.placement.bound_seconds)
    assert seconds == pytest.approx(operator.placed.expected.value, rel=1e-9)


def test_a_prompt_of_one_token_has_the_same_operators_with_symbols_and_numbers() -> None:
    arch = hub.load("mamba-130m-hf")
    work = workload(arch, "prefill", "flash")._replace(seq=1, context=5)
    symbolic_work, _ = symbolic_workload(arch, work)
    numbers, symbols = (
        phases.operators(model, each.steps()[0]) for model, each in ((arch, work), (symbolic(arch), symbolic_work))
    )
    assert [op.spec for op in numbers] == [op.spec for op in symbols]  # one step of the state space, not a scan


def test_with_equal_times_the_bound_is_that_of_estimate(tmp_path: Path) -> None:
    file = tmp_path / "toy.yaml"
    file.write_text("name: Toy\npipes:\n  fp16: {peak: 100 TFLOP/s}\nmemory:\n  dram: {bandwidth: 1 TB/s}\n")
    found = roofmodel.explain("matmul", file, n=300)  # 2n³ / 100e12 = 6n² / 1e12 where n = 300
    assert found.to_dict()["phases"][0]["ops"][0]["bound"] == "memory"
    assert "bound 540 ns, limited by memory, DRAM; another ceiling takes as long" in found.to_markdown()


def test_axes_are_explained_for_the_model() -> None:
    text = roofmodel.explain("resnet-18").to_markdown()
    glossary = text.partition("## axes")[2].partition("##")[0]
    assert r"| $\mathtt{r}$ | rows of a filter |" in glossary
    assert r"| $\mathtt{s}$ | columns of a filter |" in glossary
    assert r"| $\mathtt{c}$ | channels |" in glossary
    assert "rotary" not in glossary
    glossary = roofmodel.explain("gpt2").to_markdown().partition("## axes")[2].partition("##")[0]
    assert r"| $\mathtt{c}$ | columns of a fused projection |" in glossary
    assert "filter" not in glossary


@pytest.mark.parametrize(("model", "op"), [("gpt2", "attention.qkv"), ("llama-3.1-8b", "attention.flash")])
def test_every_symbol_of_a_formula_is_in_the_table(model: str, op: str) -> None:
    text = roofmodel.explain(model, op=op).to_markdown()
    symbols = set(re.findall(r"^\| \$(.+?)\$ \|", text, re.MULTILINE))
    formulas = " ".join(re.findall(r"(?s)\\begin\{aligned\}.*?\\end\{aligned\}", text))
    formulas = re.sub(r"\\(?:text|underbrace)?\{[^{}]*\}|_\{\\text\{[^{}]*\}\}|\\text\{[^{}]*\}", " ", formulas)
    letters = {f"\\mathtt{{{axis}}}" for axis in re.findall(r"\\mathtt\{(.+?)\}", formulas)}
    assert letters
    assert letters <= symbols
    named = set(re.findall(r"(?<![a-z\\{])[A-Z](?:_\{(?:\\mathrm\{)?\w+\}*)?", formulas))
    assert {name.rstrip("}") for name in named} <= {symbol.rstrip("}") for symbol in symbols}


def test_a_numeric_size_is_printed_once() -> None:
    text = roofmodel.explain("resnet-18", op="stage1.first").to_markdown()
    assert r"| $\mathtt{o}$ | output channels of a filter |  | 64 |  |" in text


@pytest.mark.parametrize("options", [{"dp": 4, "ep": 4}, {"tp": 2, "dp": 4, "ep": 8}, {"dp": 8, "ep": 4}])
def test_gradients_of_experts_are_derived_whether_replicas_share_them_or_not(options: dict[str, Any]) -> None:
    asked: dict[str, Any] = {"phase": "train", "batch": 8, "op": "gradients", **options}
    names = [op["name"] for op in roofmodel.explain("mixtral-8x7b-v0.1", "h100", **asked).to_dict()["phases"][0]["ops"]]
    shared = options["ep"] < options.get("tp", 1) * options["dp"]
    assert names == ["gradients.all_reduce", *(["gradients.expert_all_reduce"] if shared else [])]


@pytest.mark.parametrize(
    ("model", "options"),
    [
        ("gpt2", {"attention": "eager"}),
        ("Meta-Llama-3-8B", {"tp": 8}),
        ("Mixtral-8x7B-v0.1", {"dp": 2, "ep": 2, "batch": 2}),
        ("DeepSeek-V2-Lite", {"tp": 4}),
        ("mamba-130m-hf", {"tp": 2}),
        ("Qwen3-Next-80B-A3B-Instruct", {"phase": "decode"}),
    ],
)
def test_the_label_of_an_operator_in_a_table_selects_it(model: str, options: dict[str, Any]) -> None:
    """The label "all-reduce of attention" in a table is accepted as the name of an operator."""
    for phase in estimate(hub.load(model), Device.load("h100"), **options).phases:
        for operator in phase.operators:
            assert operator.name in matching_names(
                operator_name(f"{operator.group}: {label(operator)}"), phase.operators
            )
    assert operator_name("mlp") == "mlp"


@pytest.mark.parametrize("model", ["gpt2", "Qwen3-Next-80B-A3B-Instruct", "t5-small", "resnet-18"])
def test_the_name_of_a_group_in_a_table_selects_it_in_any_case(model: str) -> None:
    options = {} if model == "resnet-18" else {"tp": 2}
    for phase in estimate(hub.load(model), Device.load("h100"), **options).phases:
        for operator in phase.operators:
            name = merged_label(operator.group) or title(operator.group)
            for words in (name, name.upper()):
                assert operator.name in matching_names(operator_name(words), phase.operators)


def test_extra_memory_traffic_is_stated_with_its_reason() -> None:
    text = roofmodel.explain("llama-3.1-8b", "h100", op="norm.mlp", phase="prefill", engine="torch").to_markdown()
    assert ", including extra memory traffic: 134.2 MB (several kernels compute the operator)" in text


def test_fitted_parameters_that_may_exceed_1_are_not_called_fractions() -> None:
    for timing in (GemmTiming, PrefillTiming, ExpertsTiming, DecodeTiming):
        for name, meaning in get_type_hints(timing, include_extras=True).items():
            if name.partition("_")[0] in ("l2", "pipe"):
                assert meaning.__metadata__[0].meaning.startswith("factor on the")


def test_attention_lists_the_parameters_of_its_own_head_size_only() -> None:
    """Heads of 128 elements; heads of 96 have the kernel of the next larger size."""
    text = roofmodel.explain("llama-3.1-8b", "h100", op="attention.flash", phase="decode", timing=True).to_markdown()
    assert set(re.findall(r"timing\.wave_\d+", text)) == {"timing.wave_128"}
    model = "Phi-3-mini-4k-instruct"
    text = roofmodel.explain(model, "h100", op="attention.flash", phase="decode", timing=True).to_markdown()
    assert set(re.findall(r"timing\.wave_\d+", text)) == {"timing.wave_128"}


def test_derivations_of_the_same_operator_name_their_layers() -> None:
    text = roofmodel.explain("gemma-2-9b", op="Attention Core (SDPA)", phase="prefill").to_markdown()
    assert "### attention.flash × 21, layers 0, 2, … 40" in text  # windows in every second layer
    assert "### attention.flash × 21, layers 1, 3, … 41" in text
    assert "### mlp.up × 12\n" in roofmodel.explain("gpt2", op="mlp.up", phase="prefill").to_markdown()


def test_an_operator_has_only_the_ceilings_that_apply_to_it() -> None:
    for op, ceilings in (
        ("mlp.up", "fp16; vLLM 0.24; ceilings: 989.4 TFLOP/s (tensor_fp16), 3.35 TB/s DRAM, ridge point 295 FLOP/B\n"),
        ("norm.mlp", "fp16; vLLM 0.24; ceilings: 67 TFLOP/s (fp32), 3.35 TB/s DRAM, ridge point 20 FLOP/B\n"),
        ("mlp.all_reduce", "fp16; vLLM 0.24; ceilings: 3.35 TB/s DRAM\n"),
    ):
        assert ceilings in roofmodel.explain("gpt2", "h100", op=op, tp=2, phase="decode").to_markdown()


@pytest.mark.parametrize(
    ("model", "options", "evidence"),
    [
        ("llama-3.1-8b", {"engine": "vllm"}, r"fitted to [^;]+ \(\d+ rows\); mean error \d+\.\d% on \d+ held-out rows"),
        ("llama-3.1-8b", {"engine": "trtllm@0.9"}, r"mean error \d+\.\d% on these rows, of which none was held out"),
        ("deepseek-v3", {"engine": "vllm", "kv": "fp8", "tp": 8}, r"not fitted: flash_attention in .* held-out rows"),
    ],
)
def test_the_rows_of_an_error_are_those_of_the_fit_where_none_was_held_out(
    model: str, options: dict[str, Any], evidence: str
) -> None:
    text = roofmodel.explain(model, "h100", op="attention.flash", phase="decode", timing=True, **options).to_markdown()
    assert re.search(evidence, text)
    assert not re.search(r"\b0 (held-out )?rows", text)
