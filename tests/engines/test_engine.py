"""Lookup of engines, their options, their default, and the file of a user's own engine."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest
import typer

import roofmodel
from roofmodel.compare.command import COMMAND as COMPARE
from roofmodel.devices import library
from roofmodel.devices.calibration import Calibration
from roofmodel.devices.device import Device
from roofmodel.engines.engine import Engine, benchmark_of, default_for, names, packaged
from roofmodel.engines.engine_file import CHOICES, DEFAULT_CASES, EXTRA_KERNELS, FOLDER, KINDS, Benchmark, Training
from roofmodel.errors import EngineError, WorkloadError
from roofmodel.models.hub import load
from roofmodel.options.signature import helps
from roofmodel.options.workload import DECLARED
from roofmodel.report.command import typer_app
from roofmodel.steps.estimate import estimate
from roofmodel.steps.options import workload


def test_kinds_of_kernels_are_those_of_a_devices_calibration() -> None:
    """Collectives have an entry of their own; kernels that only move data are the same in all engines."""
    own = {*KINDS} - {"expert_parallel"}  # a choice among the experts' kernels
    assert own == {*Calibration._fields[2:]} - {"collectives", "elementwise", "streams_collapse", "streams_expand"}
    assert {kind for kinds in CHOICES.values() for kind in kinds} <= {*KINDS}


@pytest.mark.parametrize("name", names())
def test_each_kernel_of_an_engine_is_fitted_on_some_device(name: str) -> None:
    engine = Engine.load(name)
    fitted: dict[str, set[str]] = {}
    for device in map(Device.load, library.names()):
        if device.calibration is not None:
            for kind, kernel, _, _ in device.calibration.sets():
                fitted.setdefault(kind, set()).add(kernel)
    for (kind, _, _), kernels in engine.kernels.items():
        assert {*kernels} <= fitted["experts" if kind == "expert_parallel" else kind], kind
    own = [engine.all_reduce.own] if engine.all_reduce else []
    assert {engine.collectives, *own} <= fitted["collectives"]


@pytest.mark.parametrize(
    ("model", "options", "engine"),
    [
        ("gpt2", {}, "vllm"),
        ("gpt2", {"phase": "generate"}, "vllm"),
        ("gpt2", {"phase": "forward"}, "torch"),
        ("gpt2", {"phase": "train"}, "torch"),
        ("gpt2", {"phase": "train", "dp": 2, "batch": 2}, "megatron"),
        ("gpt2", {"phase": "train", "dp": 2, "batch": 2, "data_parallel": "ddp"}, "torch"),
        ("resnet-18", {"phase": "train", "dp": 2, "batch": 2}, "torch"),
        ("bert-base-uncased", {}, "torch"),
        ("t5-small", {}, "torch"),
    ],
)
def test_the_default_engine_depends_on_model_phase_and_gpus(model: str, options: dict[str, Any], engine: str) -> None:
    assert roofmodel.estimate(model, "a100", **options).to_dict()["workload"]["engine"] == engine


def test_the_points_of_a_sweep_use_the_default_engine_of_the_largest_layout() -> None:
    rows = roofmodel.sweep("gpt2", "a100", phase="train", batch=4, dp=[1, 2, 4]).to_frame()
    assert list(rows.engine) == ["megatron"] * 3
    scaled = roofmodel.sweep("gpt2", "a100", phase="train", batch=4, scaling="strong", gpus="1,2").to_frame()
    assert list(scaled.engine) == ["megatron"] * 2


def test_a_document_states_the_engine_its_version_and_its_launches() -> None:
    def stated(**options: Any) -> tuple[Any, ...]:
        work = roofmodel.estimate("gpt2", "a100", phase="decode", **options).to_dict()["workload"]
        keys = ("engine", "engine_version", "engine_file", "engine_option", "runtime", "launch_seconds")
        return tuple(work[key] for key in keys)

    assert stated() == ("vllm", "0.24", "vllm.yaml", None, "graph", None)
    assert stated(engine="trtllm@0.9") == ("trtllm@0.9", "0.9", "trtllm@0.9.yaml", None, "graph", None)
    torch = ("torch", Engine.load("torch").version, "torch.yaml")
    assert stated(engine="torch") == (*torch, None, "eager", 40e-6)
    assert stated(engine="torch", engine_option="launch=8us") == (*torch, {"launch": "8us"}, "eager", 8e-6)
    assert stated(engine="torch", engine_option="launch=graph")[-2:] == ("graph", None)
    assert stated(engine="torch", engine_option="autocast=bf16")[-2:] == ("autocast", 40e-6)


def test_a_version_names_its_file_or_the_version_of_the_default_one() -> None:
    assert Engine.load("vllm@0.24") == Engine.load("vllm") == Engine.load("VLLM@0")
    assert Engine.load("trtllm@0.9").version == "0.9"
    with pytest.raises(EngineError, match=r"no file for this version of .*; known: trtllm \(1.3\), trtllm@0.9"):
        Engine.load("trtllm@0.8")


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("vlm", "unknown engine 'vlm'; did you mean 'vllm'"),
        ("mine.yaml", "mine.yaml: no such file; give an engine's YAML file or a name such as vllm"),
        ("current", 'another name now; write engine="vllm"'),
        (3, "3 is no engine"),
    ],
)
def test_an_unknown_engine_is_an_error_with_a_name_that_works(name: Any, message: str) -> None:
    with pytest.raises(EngineError, match=message):
        roofmodel.estimate("gpt2", "a100", engine=name)


@pytest.mark.parametrize(
    ("engine", "option", "message"),
    [
        ("vllm", "launch=8us", "vLLM has no option 'launch'; known: two-batch-overlap, gemm, attention, moe"),
        ("vllm", "attention=fa7", "vLLM has no attention kernel 'fa7'; known: vllm_flash_attn_fa3"),
        ("torch", "launch=8", "launch: '8' has no unit|launch: "),
        ("vllm", "attention=fa3,attention=fa4", "attention is given twice, with fa3 and fa4"),
        ("torch", "launch=2s", "launch is '2s'; it must be a time of at most 1 s"),
        ("torch", "autocast=fp8", "autocast has no format 'fp8'; known: bf16, fp16"),
        ("torchtitan", "compile=yes", "compile of torchtitan has no value 'yes'; known: off, model, on, async-tp"),
        ("torchtitan", "autocast=bf16", "torchtitan has no option 'autocast'; known: launch, compile"),
    ],
)
def test_an_option_that_an_engine_lacks_is_an_error(engine: str, option: str, message: str) -> None:
    with pytest.raises((EngineError, WorkloadError), match=message):
        roofmodel.estimate("gpt2", "a100", engine=engine, engine_option=option)


@pytest.mark.parametrize(("value", "launch"), [(8e-6, "8us"), ("40us", "40us"), (12, "8us"), (None, "8us")])
def test_the_former_option_of_launches_suggests_one_that_works(value: Any, launch: str) -> None:
    message = f'launch was removed; write engine="torch" engine_option="launch={launch}"'
    with pytest.raises(WorkloadError, match=message):
        roofmodel.estimate("gpt2", "a100", launch=value)


def test_a_number_of_an_option_is_a_launch_time_in_seconds() -> None:
    report = roofmodel.estimate("gpt2", "a100", engine="torch", engine_option={"launch": 8e-6})
    assert report.to_dict()["workload"]["launch_seconds"] == pytest.approx(8e-6)


def test_an_option_prefers_the_kernels_whose_names_contain_it() -> None:
    engine = Engine.load("vllm", (("attention", "FA4"),))
    assert engine.implementations("prefill_attention", "fp16/fp16", "Hopper")[0] == "vllm_flash_attn_fa4"
    assert engine.implementations("decode_attention", "fp16/fp16", "Hopper")[0] == "vllm_flash_attn_fa4"
    assert engine.implementations("gemm", "fp16/fp16", "Hopper") == Engine.load("vllm").implementations(
        "gemm", "fp16/fp16", "Hopper"
    )


def test_an_option_prefers_a_kernel_that_is_listed_for_any_generation() -> None:
    engine = Engine.load("vllm", (("attention", "flashinfer"),))
    assert engine.implementations("prefill_attention", "fp16/fp16", "Hopper")[0] == "vllm_flashinfer_fiprefill"


def test_a_note_states_that_a_chosen_kernel_is_not_fitted() -> None:
    def notes(hw: str, option: str) -> list[str]:
        report = roofmodel.estimate("llama-3.1-8b", hw, engine_option=option)
        return [str(note) for note in report.to_dict()["notes"] if "engine_option" in str(note)]

    assert notes("a100", "attention=triton") == [
        'engine_option="attention=triton": vLLM\'s vllm_triton_attn has no parameters on a100-sxm-80gb for these '
        "formats; vllm_flash_attn is used"
    ]
    assert notes("h100", "attention=fa3") == []
    assert notes("b200", "attention=trtllmdecode") == []


@pytest.mark.parametrize(
    ("model", "options", "note"),
    [
        ("llama-3.1-8b", {"engine": "torch"}, "decode attention kernels of PyTorch have no parameters for h100-sxm"),
        ("bert-base-uncased", {}, "encoder attention kernels of PyTorch have no parameters for h100-sxm"),
        (
            "gpt2",
            {"phase": "train", "engine": "megatron"},
            "attention kernels of Megatron-Core have no parameters for h100",
        ),
    ],
)
def test_a_note_states_the_borrowed_kernels_of_every_engine(model: str, options: dict[str, Any], note: str) -> None:
    """The rows with these kernels say the same."""
    report = roofmodel.estimate(model, "h100", **options).to_dict()
    (found,) = [str(each) for each in report["notes"] if note in str(each)]
    rows = [row for phase in report["phases"] for row in phase["ops"] if row["implementation"]]
    borrowed = [row for row in rows if repr(row["implementation"]) in found]
    assert borrowed
    assert {row["expected_from"] for row in borrowed} == {"borrowed"}


def test_kernels_of_the_generation_and_format_come_first() -> None:
    sglang = Engine.load("sglang")
    assert sglang.implementations("prefill_attention", "fp16/fp16", "Hopper")[0] == "fa3"
    assert sglang.implementations("prefill_attention", "fp16/fp16", "Blackwell")[0] == "trtllm_mha"
    assert sglang.implementations("prefill_attention", "fp16/fp16", None)[0] == "flash_attention"
    assert sglang.implementations("experts", "fp8/mxfp4", "Blackwell")[0] == "sglang_mxfp4_flashinfer_trtllm_moe"


def _step(option: str | None, engine: str = "torchtitan", **options: Any) -> dict[str, Any]:
    layout = {"tp": 2, "dp": 2, "zero": 3, "sequence_parallel": "on", "sustained": "off", **options}
    return roofmodel.estimate(
        "llama-3.2-1b", "h100", phase="train", dtype="bf16", batch=4, seq=4096, engine=engine, engine_option=option,
        **layout,
    ).to_dict()  # fmt: skip


def test_a_compiled_step_is_faster_and_bounds_stay_the_same() -> None:
    steps = [_step(option) for option in (None, "compile=off", "compile=model", "compile=on", "compile=async-tp")]
    times = [step["phases"][0]["totals"]["expected_seconds"] for step in steps]
    assert times[0] == times[1] > times[2] > times[3] > times[4]
    assert len({step["phases"][0]["totals"]["bound_seconds"] for step in steps}) == 1
    kept = [step["memory"]["logits"] for step in steps]
    assert kept[1] == kept[2] == 1.5 * kept[3]  # per logit, 4 bytes in the loss and 2 of the gradient, or 2 and 2
    alone = [_step(option, tp=1, dp=4, sequence_parallel="off") for option in ("compile=on", "compile=async-tp")]
    times = [step["phases"][0]["totals"]["expected_seconds"] for step in alone]
    assert times[0] == times[1]  # no tensors are exchanged


def test_a_compiled_module_is_faster_than_eager_code() -> None:
    eager, compiled = (_step(None, name, zero=0)["phases"][0]["totals"] for name in ("torch", "torch-compile"))
    assert compiled["expected_seconds"] < eager["expected_seconds"]
    assert compiled["bound_seconds"] == eager["bound_seconds"]


def test_narrow_gradients_need_half_the_memory_and_a_shorter_exchange() -> None:
    wide, narrow = (_step(option, "megatron", zero=2) for option in (None, "gradients=bf16"))
    assert wide["memory"]["gradients"] == 2 * narrow["memory"]["gradients"]
    times = [step["phases"][0]["totals"]["communication_seconds"] for step in (wide, narrow)]
    assert times[0] > times[1]


def test_torchtitan_shards_fp32_weights_of_which_none_are_master_copies() -> None:
    default, stated = _step(None), _step(None, weights="fp32")
    assert default["workload"]["weights"] == "fp32"
    assert default["memory"] == stated["memory"]
    assert default["memory"]["optimizer"] == 2 * default["memory"]["weights"]  # two moments of 4 bytes
    assert _step(None, zero=1)["workload"]["weights"] == "bf16"
    assert _step(None, weights="bf16")["workload"]["weights"] == "bf16"


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("compile: {fast: {fuse: [qkv]}}", "unknown key 'fuse'; did you mean 'fuses'"),
        ("compile: {fast: {fuses: [qvk]}}", "'qvk'; did you mean 'qkv'"),
        ("compile: {fast: {training: {overlaps: [x]}}}", "unknown variants.compile.fast.training.overlaps 'x'"),
        ("compile: [fast]", "variants.compile must be a mapping"),
    ],
)
def test_an_unknown_part_of_a_variant_is_an_error_with_its_line(tmp_path: Path, entry: str, message: str) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(f"like: torch\nvariants:\n  {entry}\n")
    with pytest.raises(EngineError, match=f"mine.yaml:3: .*{message}"):
        Engine.load(file)


def test_an_inference_engine_does_not_train() -> None:
    with pytest.raises(WorkloadError, match='vLLM does not train; try engine="torch" or engine="megatron"'):
        roofmodel.estimate("gpt2", "a100", phase="train", engine="vllm")


OWN = """\
like: vllm
version: "0.99"
kernels:
  gemm: {fp16/fp16: [sglang_torch_linear]}
fuses: [qkv, gate_up]
host: {step: 2 ms, overlapped: false}
"""


def test_a_users_engine_differs_from_the_one_that_it_is_like_by_its_entries(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(OWN)
    mine, vllm = Engine.load(file), Engine.load("vllm")
    assert (mine.id, mine.name, mine.version, mine.file) == ("mine", "mine", "0.99", str(file))
    assert mine.kernels["gemm", "any", "fp16/fp16"] == ("sglang_torch_linear",)
    assert mine.implementations("gemm", "fp8/fp8", "Hopper") == ("sglang_torch_linear",)
    assert mine.implementations("prefill_attention", "fp16/fp16", "Hopper") == vllm.implementations(
        "prefill_attention", "fp16/fp16", "Hopper"
    )
    assert mine.all_reduce == vllm.all_reduce
    report = roofmodel.estimate("llama-3.1-8b", "h100", phase="decode", engine=file).to_dict()
    assert report["workload"]["engine"] == "mine"
    ops = {row["name"]: row for row in report["phases"][0]["ops"]}
    assert ops["mlp.down"]["implementation"] == "sglang_torch_linear"
    assert ops["residual.mlp"]["implementation"] == "add"  # not fused
    rows = report["phases"][0]["ops"]
    kernels = sum(row["count"] * row["expected_seconds"] for row in rows if not row["fused"])
    assert report["phases"][0]["totals"]["expected_seconds"] == pytest.approx(kernels + 2e-3)


def test_a_kernel_that_no_device_has_is_an_error_with_its_line_and_a_near_name(tmp_path: Path) -> None:
    base, file = tmp_path / "base.yaml", tmp_path / "mine.yaml"
    base.write_text("like: vllm\nkernels:\n  gemm: {fp16/fp16: [sglang_torch_liner]}\n")
    file.write_text("like: base.yaml\n")
    message = r"base.yaml:3: no device has parameters of the gemm kernel 'sglang_torch_liner'; did you mean 'sglang_t"
    for ask in (roofmodel.estimate, roofmodel.sweep):
        with pytest.raises(EngineError, match=message):
            ask("gpt2", "a100", engine=file)
    with pytest.raises(EngineError, match=message):
        roofmodel.plan("gpt2", "a100", gpus=1, isl=8, osl=8, engine=file)
    file.write_text("like: vllm\ncollectives: {else: NCLL}\n")
    with pytest.raises(EngineError, match=r"mine.yaml:2: .* collectives kernel 'NCLL'; did you mean 'NCCL'"):
        roofmodel.estimate("gpt2", "a100", engine=file)


def test_a_kernel_that_only_the_device_at_hand_has_is_known(tmp_path: Path) -> None:
    source = library.shipped_folder()
    fitted = (source / "fitted" / "a100-sxm-80gb.yaml").read_text().replace('"vllm_default":', '"mine":')
    text = (source / "a100-sxm-80gb.yaml").read_text()
    indented = "".join(f"  {line}\n" for line in fitted.splitlines())
    device, file = tmp_path / "my-a100.yaml", tmp_path / "mine.yaml"
    device.write_text(f"{text}\ncalibration:\n{indented}")
    file.write_text("like: vllm\nkernels: {gemm: [mine]}\n")
    ops = roofmodel.estimate("gpt2", device, phase="decode", engine=file).to_dict()["phases"][0]["ops"]
    assert {row["implementation"] for row in ops if row["kind"] == "gemm"} == {"mine"}


def test_a_substitute_for_a_format_is_the_engines_first_kernel() -> None:
    """No engine has int4 GEMMs fitted on an H100; the weights of the head are not quantized."""
    for engine, kernel in (("vllm", "torch.nn.functional.linear"), ("sglang", "sglang_torch_linear")):
        report = roofmodel.estimate("llama-3.1-8b", "h100", phase="decode", weights="int4", engine=engine)
        ops = {row["name"]: row for row in report.to_dict()["phases"][0]["ops"]}
        assert (ops["mlp.down"]["implementation"], ops["mlp.down"]["expected_from"]) == (kernel, "borrowed")
        assert (ops["head.logits"]["implementation"], ops["head.logits"]["expected_from"]) == (kernel, "measured")


def test_the_head_of_a_model_with_quantized_layers_runs_an_unquantized_kernel() -> None:
    report = roofmodel.estimate("llama-3.1-8b", "a100", phase="decode", weights="int4", engine="trtllm")
    ops = {row["name"]: row for row in report.to_dict()["phases"][0]["ops"]}
    assert "weight_only" in ops["mlp.down"]["implementation"]
    assert ops["head.logits"]["implementation"] == "torch_flow"


@pytest.mark.parametrize("name", names())
def test_kernels_for_hopper_are_not_listed_for_any_generation(name: str) -> None:
    """FlashAttention-3 and -4, FlashMLA, DeepGEMM and TensorRT-LLM's MLA need Hopper or Blackwell."""
    newer = re.compile(r"fa3|fa4|_v3|_v4|flash_attn_mla|flashmla|trtllm_mla|deepgemm|chunk.*flashinfer", re.IGNORECASE)
    kernels = Engine.load(name).kernels
    found = {rule: [each for each in listed if newer.search(each)] for rule, listed in kernels.items()}
    assert not any(listed for (_, generation, _), listed in found.items() if generation == "any")


def test_a_kind_that_a_file_names_replaces_all_entries_of_the_other_engine(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("like: vllm\nkernels: {gemm: [cudnn], prefill_attention: {Hopper: [fa3]}}\n")
    mine = Engine.load(file)
    assert mine.implementations("gemm", "fp16/fp16", "Hopper") == ("cudnn",)
    assert mine.implementations("prefill_attention", "fp16/fp16", "Hopper") == ("fa3",)
    assert mine.implementations("prefill_attention", "fp16/fp16", "Blackwell") == ()


def test_an_engine_with_the_name_of_a_packaged_one_can_be_like_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    folder = tmp_path / "roofmodel" / "engines"
    folder.mkdir(parents=True)
    packaged, older = Engine.load("vllm"), Engine.load("vllm@0.12")
    for name in ("vllm", "vllm@0.24"):
        for file in (folder / "vllm.yaml", tmp_path / "vllm.yaml"):
            file.write_text(f"like: {name}\nhost: {{step: 3 ms}}\n")
            mine = Engine.load(file)
            assert (mine.kernels, mine.host.step) == (packaged.kernels, 3e-3)
        assert Engine.load("vllm").host.step == 3e-3
    assert Engine.load("vllm@0.12") == older  # packaged files are like packaged ones


def test_a_path_in_like_is_relative_to_its_file(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text("like: vllm\nhost: {step: 3 ms}\n")
    (tmp_path / "mine.yaml").write_text("like: base.yaml\n")
    assert Engine.load(tmp_path / "mine.yaml").host.step == 3e-3


def test_like_that_refers_back_is_an_error_with_its_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    folder = tmp_path / "roofmodel" / "engines"
    folder.mkdir(parents=True)
    for name, other in [("a", "b"), ("b", "a"), ("c", "c"), ("d", "./d.yaml")]:
        (folder / f"{name}.yaml").write_text(f"\nlike: {other}\n")
    for name in "cd":
        with pytest.raises(EngineError, match=f"/{name}.yaml:2: like refers back to this file"):
            Engine.load(name)
    with pytest.raises(EngineError, match=r"/a.yaml:2: .*/b.yaml:2: like refers back to .*/a.yaml"):
        Engine.load("a")


def test_engines_in_the_users_folder_have_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    folder = tmp_path / "roofmodel" / "engines"
    folder.mkdir(parents=True)
    (folder / "mine.yaml").write_text("like: sglang\n")
    assert "mine" in names()
    assert Engine.load("mine").kernels == Engine.load("sglang").kernels


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("like: vllm\nkernel: {}\n", "2: unknown key 'kernel'; did you mean 'kernels'"),
        ("like: vlm\n", "1: engine: unknown engine 'vlm'; did you mean 'vllm'"),
        ("like: mine\n", "1: like refers back to this file"),
        ("name: x\nversion: 1\nlaunch: graph\n", "1: the file lacks the key 'kernels'; add 'like: vllm' to take"),
        ("like: vllm\nlaunch: often\n", "2: launch is 'often'; it must be graph, or a mapping"),
        ("like: vllm\nlaunch: {seconds: 40, low: 20 us, high: 60 us}\n", "2: launch.seconds: "),
        ("like: vllm\nlaunch: {seconds: 40 us}\n", "2: launch lacks the key 'low'"),
        (
            "like: vllm\nlaunch: {seconds: 9 us, low: 20 us, high: 60 us}\n",
            "2: launch has the interval 20 us to 60 us, which must contain seconds, 9 us",
        ),
        ("like: vllm\nkernels: {gemm: []}\n", "2: kernels.gemm names no kernel"),
        ("like: vllm\nkernels: {gemm: {}}\n", "2: kernels.gemm names no kernel"),
        ("like: vllm\nkernels: {gemm: {fp16/fp7: [a]}}\n", "2: 'fp16/fp7' has the unknown format 'fp7'; did you"),
        ("like: vllm\nkernels: {gemm: {bf16/bf16: [a]}}\n", "2: 'bf16/bf16': write 'fp16/fp16', which"),
        ("like: vllm\nfuses: [qkv, gate]\n", "2: unknown fuses 'gate'; did you mean 'gate_up'"),
        ("like: vllm\nkernels: {gem: [a]}\n", "2: unknown key 'gem'; did you mean 'gemm'"),
        ("like: vllm\nkernels: {gemm: {fp16: [a]}}\n", "2: unknown key 'fp16'"),
        ("like: vllm\nkernels: {gemm: {Hopper: {fp16: [a]}}}\n", "2: 'fp16' is no pair of formats such as fp16/fp8"),
        ("like: vllm\ncollectives: {all_reduce: {own: x}}\n", "2: collectives.all_reduce lacks the key 'up_to'"),
        ("like: vllm\nhost: {overlapped: 3}\n", "2: host.overlapped must be true or false"),
        ("like: vllm\noptions: [batch]\n", "2: unknown options 'batch'; known: launch, autocast"),
        ("like: torch\nextra_kernels: transformers\n", "2: extra_kernels must be a list of attention_copies, "),
        ("like: torch\nextra_kernels: [drop]\n", "2: unknown extra_kernels 'drop'; did you mean 'dropout'"),
        ("like: vllm\ndefault_for: [decoders]\n", "2: unknown default_for 'decoders'; known: decoder_inference, "),
        ("like: vllm\nruns_kernels_of: [torh]\n", "2: unknown runs_kernels_of 'torh'; did you mean 'torch'"),
        ("like: vllm\nkernel_names: mine\n", "2: kernel_names must be a list"),
        ("like: torch\nruntime: graph\n", "2: unknown runtime 'graph'; known: eager, megatron"),
        ("like: torch\ntraining: {}\n", "2: training lacks the key 'data_parallel'"),
        ("like: torch\ntraining: {data_parallel: dp}\n", "2: unknown training.data_parallel 'dp'; "),
        ("like: vllm\nbenchmarks:\n  - {copies: 2}\n", "3: unknown key 'copies'; did you mean 'gemm_copies'"),
        ("like: vllm\nbenchmarks:\n  - {since: old}\n", '3: benchmarks[0].since is no version such as "0.19"'),
        ("like: vllm\nbenchmarks:\n  - {gemm_copies: {a: 0, b: 1}}\n", "3: benchmarks[0].gemm_copies.a is '0'; it"),
        ("[]", "1: the file must be a mapping"),
    ],
)
def test_an_invalid_file_is_an_error_with_its_line(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(text)
    with pytest.raises(EngineError) as caught:
        Engine.load(file)
    assert f"mine.yaml:{message}" in str(caught.value)


# --- What differs between engines is in their files ---


@pytest.mark.parametrize("case", DEFAULT_CASES)
def test_each_case_has_one_packaged_engine_as_default(case: str) -> None:
    assert [engine.id for engine in packaged() if case in engine.default_for] == [default_for(case)]


def test_the_help_names_each_packaged_engine_and_the_defaults() -> None:
    """`options` is below `engines`, so that its help cannot read the files; this test compares it with them."""
    serving, training, other = map(default_for, ("decoder_inference", "multi_gpu_training", "other"))
    stated = DECLARED["engine"].help
    listed = re.search(r"Software that runs the model, for expected times: (.*), NAME@VERSION", stated)
    assert listed
    assert {part.split()[0] for part in listed[1].split(", ")} == {engine.id for engine in packaged()}
    compared = next(each for each in typer.main.get_command(typer_app(COMPARE)).params if each.name == "engine")
    assert f": {listed[1]}, NAME@VERSION" in str(getattr(compared, "help", ""))
    assert stated.endswith(
        f"Default: {serving} for inference of decoders, {training} for training on several GPUs, else {other}."
    )
    default = f"default: {serving} for a service; for training {training} on several GPUs, else {other})"
    assert all(default in helps(function)["engine"] for function in (roofmodel.plan, roofmodel.plan_training))
    stated = DECLARED["engine_option"].help
    assert "For engines that train: launch=" in stated
    for engine in packaged():
        assert ("launch" in engine.options) == (engine.training is not None)
        for option in {*engine.options, *engine.variants} - {"launch"}:
            assert f"For {engine.id}: {option}=" in stated
    schemes = {engine.id: engine.training.data_parallel for engine in packaged() if engine.training}
    assert schemes[other] == "ddp"
    for name in (name for name, scheme in schemes.items() if scheme != "ddp"):
        assert f"Default: ddp; with --engine {name} as this engine does." in DECLARED["data_parallel"].help


def names_an_engine(node: ast.AST, known: set[str]) -> bool:
    return isinstance(node, ast.Constant) and re.split("[ @]", str(node.value))[0] in known


def engines_asked_for(code: str, known: set[str]) -> list[int]:
    """The lines of a module with the name of an engine; of `torch`, which is also a profiler and a library, those that
    compare it with anything but a profile's tool, and those that give it to the option `engine`."""
    lines = []
    for node in ast.walk(ast.parse(code)):
        if names_an_engine(node, known - {"torch"}):
            lines.append(node.lineno)
        elif isinstance(node, ast.Compare):
            sides = (node.left, *node.comparators)
            is_tool = any(isinstance(side, ast.Attribute) and side.attr == "tool" for side in sides)
            inside = [each for side in sides for each in ast.walk(side)]
            lines += [node.lineno] * (not is_tool and any(names_an_engine(each, {"torch"}) for each in inside))
        elif isinstance(node, ast.Call):
            values = [getattr(each, "value", "") for each in node.args]
            loads = isinstance(node.func, ast.Attribute) and ast.unparse(node.func) == "Engine.load"
            lines += [node.lineno] * ((loads or "engine" in values) and "torch" in values)
    return lines


def test_no_code_asks_which_engine_it_is() -> None:
    package = Path(roofmodel.__file__).parent
    known = {name.partition("@")[0] for name in names()}
    found = {
        str(path.relative_to(package)): lines
        for path in package.rglob("*.py")
        if path.parent.name != "engines" and (lines := engines_asked_for(path.read_text(encoding="utf-8"), known))
    }
    assert not found


@pytest.mark.parametrize(
    "code",
    [
        'engine.id == "vllm"',
        'name in ("sglang", "x")',
        '{"trtllm": 1}[name]',
        'framework == "sglang 0.5.9"',
        'engine.id != "torch"',
        'Option("engine", "torch")',
        'Engine.load("torch")',
    ],
)
def test_code_that_asks_which_engine_it_is_is_found(code: str) -> None:
    assert engines_asked_for(code, {"vllm", "sglang", "trtllm", "torch"}) == [1]
    assert engines_asked_for('profile.tool == "torch"', {"torch"}) == []


def test_code_reads_each_field_of_an_engine() -> None:
    package = Path(roofmodel.__file__).parent
    code = "".join(path.read_text(encoding="utf-8") for path in package.rglob("*.py") if path.name != "reader.py")
    fields = {*Engine._fields, *Benchmark._fields, *Training._fields}
    assert not {field for field in fields if not re.search(rf"\.{field}\b", code)}


CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "torch": ("bert-base-uncased", {"phase": "train", "dp": 2, "batch": 4, "seq": 128, "attention": "eager"}),
    "megatron": ("bert-base-uncased", {"phase": "train", "dp": 2, "batch": 4, "seq": 128, "attention": "eager"}),
}


@pytest.mark.parametrize("name", names())
def test_a_copy_of_a_packaged_engine_under_another_name_gives_the_same_results(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def results(engine: str) -> tuple[Any, ...]:
        model, options = CASES.get(name, ("qwen3-30b-a3b", {"phase": "decode", "batch": 4, "tp": 2}))
        report = roofmodel.estimate(model, "h100", engine=engine, **options).to_dict()
        operation = roofmodel.op("gemm", "h100", m=512, n=512, k=512, engine=engine).to_dict()
        named = [report["workload"].pop("engine"), operation.pop("engine")]
        assert named == [engine, engine]
        del report["workload"]["engine_file"]
        return report, operation, benchmark_of(f"{engine} 0.5.9"), benchmark_of(f"{engine} 1.3")

    folder = tmp_path / "roofmodel" / "engines"
    folder.mkdir(parents=True)
    (folder / "mine.yaml").write_text((FOLDER / f"{name}.yaml").read_text())
    original = results(name)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert results("mine") == original


@pytest.mark.parametrize("kernel", EXTRA_KERNELS)
def test_an_engine_runs_the_extra_kernels_of_its_file(kernel: str, tmp_path: Path) -> None:
    """Each has bytes in a training step with eager attention of one of these models: BERT has dropout, GPT-2 a GEMM of
    queries, keys and values, Llama a softmax in fp32."""

    def extra_bytes(engine: Any) -> float:
        options: dict[str, Any] = {"phase": "train", "batch": 2, "seq": 128, "attention": "eager", "engine": engine}
        models = map(load, ("bert-base-uncased", "gpt2", "llama-3.2-1b"))
        phases = (estimate(model, Device.load("a100"), **options).phases[0] for model in models)
        return sum(extra.bytes for phase in phases for placed in phase.placed for extra in placed.extra_kernels)

    file = tmp_path / "mine.yaml"
    file.write_text(f"like: torch\nextra_kernels: [{', '.join({*EXTRA_KERNELS} - {kernel})}]\n")
    assert extra_bytes(file) < extra_bytes("torch")


def test_replicas_exchange_gradients_as_the_engine_of_a_user_does(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    for scheme in ("ddp", "sequential"):
        file.write_text(f"like: megatron\ntraining: {{data_parallel: {scheme}}}\n")
        work, _ = workload(load("gpt2"), phase="train", dp=2, batch=2, engine=file)
        assert work.data_parallel == scheme


def test_a_version_has_the_later_entries_of_its_engines_benchmarks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "roofmodel" / "engines"
    folder.mkdir(parents=True)
    (folder / "mine.yaml").write_text(
        "like: vllm\nbenchmarks:\n  - {gemm_copies: {a: 2, b: 3}}\n  - {since: '1.10', fills_l2: true}\n"
        "  - {versions: ['1.9'], state: bf16, gemm_copies: {a: 4, b: 5}}\n"
    )
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert benchmark_of("mine 1.9") == Benchmark((4, 5), state="bf16")
    assert benchmark_of("mine 1.10.0rc3") == benchmark_of("MINE 2") == Benchmark((2, 3), fills_l2=True)
    assert benchmark_of("mine") == Benchmark((2, 3))
    assert benchmark_of("theirs 2") == Benchmark()


def test_an_error_in_a_file_names_its_place_once(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("like: []\n")
    with pytest.raises(EngineError) as error:
        Engine.load(file)
    assert str(error.value) == f"{file}:1: like must be text"
