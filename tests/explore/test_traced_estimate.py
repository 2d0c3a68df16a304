from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from roofmodel.counting.tensors import COMPUTE_FORMATS, FORMATS
from roofmodel.devices.device import Device
from roofmodel.devices.parts import Unaligned
from roofmodel.errors import WorkloadError
from roofmodel.estimate.tables import MEMORY_OF_A_GPU, OPERATORS
from roofmodel.explore import traced_estimate as explore
from roofmodel.explore.devices import kernels_of
from roofmodel.models import hub
from roofmodel.models.architecture import Architecture
from roofmodel.numbers.traced import Cases, Trace, TracedFunction, map_cases, results
from roofmodel.options.workload import DECLARED
from roofmodel.steps.estimate import estimate
from roofmodel.steps.parallelism import expert_groups_nest, tp_by_ep
from roofmodel.steps.training_options import MIN_TRAINING_BITS
from roofmodel.timing.formula import l2_bytes
from roofmodel.timing.parameter_sets import choose_set, format_key
from tests.evaluate_trace import TraceValues
from tests.explore.on_the_page import divided, memory, without_kernels
from tests.explore.variants import each_option_once, without_training

# one model of each kind: MHA, GQA, MLA, MoE, sliding windows, state-space models, images; tests of the page have more
MODELS = (
    "gpt2", "Llama-3.1-8B", "gpt-oss-20b", "EleutherAI/gpt-neo-1.3B", "whisper-base", "mamba-130m-hf",
    "falcon-mamba-7b", "bert-base-uncased", "gemma-4-E2B-it", "deberta-v3-base", "albert-base-v2",
    "vit-base-patch16-224", "resnet-50", "qwen3.5-9b", "deepseek-ai/DeepSeek-V2-Lite",
)  # fmt: skip
VARIANTS = {"gpt2": explore.variants, "Llama-3.1-8B": explore.variants, "gpt-oss-20b": without_training}
"""Of the other models, each option once."""
# Fitted, with parameters of another device, not calibrated, without L2.
DEVICES = ("v100", "a100", "h100", "rtx4090", "l4", "mi300x", "tpu-v4")


def document(situation: explore.TracedEstimate) -> dict[str, Any]:
    memory = {
        engine: MEMORY_OF_A_GPU.record(needed) | {"fits": situation.fits[engine]}
        for engine, needed in situation.memory.items()
    }
    documents = {engine: divided(one) for engine, one in situation.estimates.items()}
    for engine, update in situation.updates.items():
        documents[engine]["ops"][-1] = map_cases(update, OPERATORS.record)
    return {"memory": memory, **{engine: without_kernels(one) for engine, one in documents.items()}}


FUNCTIONS = dict[str, TracedFunction]()
"""Functions called by the traces of all models, as in a page of several models."""


@cache
def explored(model: str) -> tuple[Trace, dict[explore.Variant, Cases[dict[str, Any]]]]:
    trace = Trace(FUNCTIONS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(explore, "variants", VARIANTS.get(model, each_option_once))
        return trace, explore.explore(hub.load(model), trace, document)


def inputs(
    device: Device, dtype: str, stored: dict[str, str], sizes: dict[str, Any], phase: str = "prefill"
) -> Callable[[str], Any]:
    """Name of an input of the trace -> its value; the docstring of explore/traced_estimate.py lists the inputs.

    `dtype` is the format of GEMMs.
    """
    formats = {"gemm": dtype, "dtype": dtype, "weights": dtype, "kv": dtype} | stored
    narrow = {role for role, name in formats.items() if FORMATS[name].bits < 16}
    if "gemm" in narrow:
        wide = "bf16" if "bf16" in device.pipes or "tensor_bf16" in device.pipes else "fp16"  # V100 has no bf16
        formats["dtype"] = wide
    formats["others"] = formats["dtype" if "weights" in narrow else "weights"]
    formats["attention"] = dtype if "kv" in narrow else formats["dtype"]
    formats["index"] = "fp8" if dtype in ("fp8", "fp4") else formats["attention"]
    figures = {
        "bandwidth": device.bandwidth, "capacity": device.capacity, "l2": l2_bytes(device),
        "multiprocessors": device.multiprocessors, "clock": device.clocks.get("boost"),
        "pairs_over_pcie": int(device.pairs_over_pcie),
        **(device.unaligned or Unaligned(1, 1))._asdict(),
    }  # fmt: skip
    links = {name: getattr(device, name) for name in ("inside", "bridge", "half", "network")}
    no_link = {"bandwidth": float("inf"), "joins": 0, "beyond": float("inf")}

    def value(name: str) -> Any:
        kind, *keys = name.split("|")
        if kind in ("format", "bits"):
            return formats[keys[0]] if kind == "format" else FORMATS[formats[keys[0]]].bits
        if kind == "device":
            if keys[0] in links:
                return getattr(links[keys[0]], keys[1], no_link[keys[1]])
            if len(keys) == 1:
                return figures[keys[0]]
            name, role = keys
            pipe = device.matmul_pipe(formats[role]) if name == "matmul" else device.vector_pipe(formats[role])
            return pipe.peak if pipe else float("inf")
        if kind == "batch":
            return sizes[kind] // sizes.get("dp", 1)
        if kind != "set":
            return sizes.get(kind, 1)
        which, implementation, key, field = keys
        sets = getattr(device.calibration, which, {}) if device.links or which != "collectives" else {}
        if key in links:
            if links[key] is None:
                return None
            wanted = links[key].parameters
        else:
            wanted = format_key(*(formats[role] for role in key.split("/")))
        fitted = choose_set(sets, kernels_of(device, implementation)(which, wanted), wanted)
        return fitted and getattr(fitted.fit if field in ("low", "high") else fitted.timing, field)

    return value


def gpus(draw: random.Random, arch: Architecture) -> dict[str, int]:
    """Degrees of parallelism that the model supports; one GPU in half of the draws."""
    dp = draw.choice((1, 2, 3, 16))
    ways = [(tp, dp, ep) for ep, tps in tp_by_ep(arch).items() for tp in tps if expert_groups_nest(tp, dp, ep)]
    return dict(zip(("tp", "dp", "ep"), draw.choice(((1, 1, 1), draw.choice(ways))), strict=True))


@pytest.mark.usefixtures("only_times_and_memory", "replicas_as_on_the_page")
@pytest.mark.parametrize("model", MODELS)
def test_the_traced_estimate_equals_the_estimate_exactly(model: str) -> None:
    draw, (trace, situations) = random.Random(model), explored(model)
    for variant in situations:
        device = Device.load(draw.choice(DEVICES))
        min_bits = MIN_TRAINING_BITS if variant.phase == "train" else 4
        storable = [name for name, one in FORMATS.items() if one.bits >= min_bits]
        pipes = [n for n in COMPUTE_FORMATS if n in storable and (n in device.pipes or f"tensor_{n}" in device.pipes)]
        dtype = draw.choice(pipes)
        stored = {"weights": draw.choice(storable)} if draw.random() < 0.5 else {}
        if variant.phase in ("prefill", "decode") and draw.random() < 0.5:
            stored["kv"] = draw.choice(list(FORMATS))
        sizes = {"batch": draw.choice((1, 2, 17, 10**6))}  # with 10**6, counts are beyond 2**53
        for length in explore.lengths(hub.load(model), variant.phase):
            values = {"context": (0, 1, 511, 4097), "image": (32, 224, 225, 1000)}
            sizes[length] = draw.choice(values.get(length, (1, 2, 512, 5000)))
        sizes |= gpus(draw, hub.load(model))
        sizes["batch"] *= sizes["dp"]
        formats = dict.fromkeys(("dtype", "weights"), dtype)
        options: dict[str, Any] = {**variant._asdict(), **formats, **stored, **sizes}
        if variant.phase == "train":
            options["optimizer"] = draw.choice(DECLARED["optimizer"].choices)
            options["overlap"] = "none"
        traced_sizes = {name: value for name, value in options.items() if name != "overlap"}
        options["sustained"] = "off"
        if explore.chooses_logits(hub.load(model), variant.phase):
            options["logits"] = draw.choice(DECLARED["logits"].choices)
            traced_sizes["positions"] = 1 if options["logits"] == "last" else sizes.get("decoder_seq", sizes["seq"])
        found = TraceValues(trace, inputs(device, dtype, stored, traced_sizes, variant.phase)).fill(situations[variant])
        for engine in explore.engines(hub.load(model), variant.phase):
            options["engine"] = engine
            report = estimate(hub.load(model), device, **options)
            (phase,) = report.phases
            assert found[engine] == without_kernels(divided(phase)), (device.id, options)
            needed = memory(report)
            assert found["memory"][engine] == {key: needed[key] for key in found["memory"][engine]}


def test_one_token_and_an_empty_cache_are_separate_cases() -> None:
    trace, situations = explored("mamba-130m-hf")
    variant = explore.Variant("prefill", "flash")
    for seq, context in ((1, 0), (1, 64), (64, 0), (64, 64)):
        sizes = {"batch": 3, "seq": seq, "context": context}
        (expected,) = estimate(hub.load("mamba-130m-hf"), Device.load("a100"), **variant._asdict(), **sizes).phases
        found = TraceValues(trace, inputs(Device.load("a100"), "fp16", {}, sizes, variant.phase)).fill(
            situations[variant]
        )
        assert found["vllm"] == without_kernels(divided(expected))


def test_options_without_effect_are_not_variants() -> None:
    """Flash attention stores no scores to recompute; MLA absorbs weights only in decode."""
    known = [tuple(variant) for variant in explore.variants(hub.load("deepseek-ai/DeepSeek-V2-Lite"))]
    assert [ways for phase, *ways in known if phase == "decode"] == [
        ["flash", "absorbed", "none"], ["flash", "naive", "none"],
        ["eager", "absorbed", "none"], ["eager", "naive", "none"],
    ]  # fmt: skip
    assert [ways for phase, *ways in known if phase == "train"] == [
        ["flash", "absorbed", "none"], ["flash", "absorbed", "full"],
        ["eager", "absorbed", "none"], ["eager", "absorbed", "selective"], ["eager", "absorbed", "full"],
    ]  # fmt: skip
    assert [ways for phase, *ways in known if phase == "prefill"] == [
        ["flash", "absorbed", "none"], ["eager", "absorbed", "none"],
    ]  # fmt: skip


def test_a_model_with_too_many_cases_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def branches(arch: Any, device: Any, step: Any, engine: Any) -> Any:
        return [1 if step.batch > size else 0 for size in range(2, 100)]

    monkeypatch.setattr(explore, "phase_estimate", branches)
    with pytest.raises(WorkloadError, match=r"gpt2 cannot be explored: its prefill has too many different cases"):
        explore.explore(hub.load("gpt2"), Trace(), document)


@pytest.mark.parametrize(
    ("phase", "cases"),
    [
        ("prefill", {2, 6}),  # one GPU or several; with flash attention also whether a kernel for decodes runs
        ("decode", {2, 4}),  # the same, for a token without earlier ones
        ("train", {4}),  # one GPU or several, for each of --tp and --dp
    ],
)
def test_only_the_numbers_of_gpus_change_the_operators_of_a_decoder(phase: str, cases: set[int]) -> None:
    found = explored("gpt2")[1]
    assert {len(results(found[variant])) for variant in found if variant.phase == phase} == cases


def test_progress_names_the_model_and_its_variants() -> None:
    steps: list[tuple[str, int, int]] = []
    found = explore.explore(hub.load("resnet-18"), Trace(), document, lambda *step: steps.append(step))
    assert steps == [("microsoft/resnet-18", done, len(found)) for done in range(len(found) + 1)]
