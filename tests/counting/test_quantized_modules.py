"""Weight matrices that a quantized checkpoint keeps in the working format, and the size of its weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import roofmodel
from roofmodel.counting.quantized_modules import ROUTERS, unconverted
from roofmodel.devices.device import Device
from roofmodel.errors import RoofError
from roofmodel.models import hub
from roofmodel.models.architecture import Architecture
from roofmodel.models.config import architecture
from roofmodel.models.quantization import Quantization
from roofmodel.steps.estimate import estimate
from tests.models.test_catalog import REAL_CONFIGS


@pytest.mark.parametrize(
    ("model", "published"),
    [
        # metadata.total_size in model.safetensors.index.json of openai/gpt-oss-*; the model card (arXiv 2508.10925,
        # table 1) gives 60.8 and 12.8 GiB
        ("gpt-oss-120b", 65_248_815_744),
        ("gpt-oss-20b", 13_761_264_768),
    ],
)
def test_the_weights_of_gpt_oss_have_the_size_of_the_published_checkpoint(model: str, published: int) -> None:
    assert roofmodel.estimate(model, "h100").to_dict()["memory"]["weights"] == published


def test_deepseek_v3_is_counted_in_fp8_with_block_scales_and_a_16_bit_router() -> None:
    arch = hub.load("deepseek-v3")
    matrices = 671_026_404_352 - 2 * 129_280 * 7168  # without the token table and the head
    router = 58 * 7168 * 256
    found = estimate(arch, Device.load("h200")).memory.weights
    # matrices: one byte per element, one fp32 scale per 128 x 128 elements; router: two bytes; some small vectors
    assert found == pytest.approx(matrices * (1 + 4 / 128**2) + router + 2 * 2 * 129_280 * 7168, rel=1e-5)


@pytest.mark.parametrize(
    ("settings", "kept"),
    [
        ({"ignored": ("model.layers.0.mlp",)}, set()),  # one layer of four
        ({"ignored": tuple(f"model.layers.{n}.mlp.gate_proj" for n in range(3))}, {"W_gate"}),
        ({"ignored": ("self_attn.o_proj",)}, {"W_out"}),
        (
            {"ignored": ("block_sparse_moe.experts",)},
            {f"W_expert_{name}" for name in ("gate", "up", "down", "gate_up")},
        ),
    ],
)
def test_a_matrix_is_kept_if_most_layers_keep_it(settings: dict[str, Any], kept: set[str]) -> None:
    found = unconverted(Quantization("fp8", "fp8", None, **settings), 4)
    assert {name for name in found.names - ROUTERS if "gate_up" not in name or "expert" in name} >= kept
    assert bool(found.partly) == (not kept)


def test_the_matrices_of_the_targets_are_converted() -> None:
    found = unconverted(Quantization("compressed-tensors", "fp8", None, targets=("re:.*mlp.*",)), 4)
    assert {"W_q", "W_out", *ROUTERS} <= found.names
    assert not found.names & {"W_up", "W_expert_down", "W_shared_gate"}


def quantized(model: str, **settings: Any) -> Architecture:
    """A packaged model with an fp8 quantization_config."""
    entry = hub.packaged(model)
    assert entry
    settings = {"quant_method": "fp8"} | settings
    return architecture(entry.config | {"quantization_config": settings}, model, "config.json")


def compressed(*targets: str, **settings: Any) -> dict[str, Any]:
    """The settings of a compressed-tensors checkpoint that converts these targets to fp8."""
    group = {"targets": [*targets], "weights": {"type": "float", "num_bits": 8, "strategy": "channel"}}
    return {"quant_method": "compressed-tensors", "config_groups": {"group_0": group}, **settings}


def fp8_elements(arch: Architecture) -> float:
    """The number of weight elements that take one byte instead of two."""
    plain = estimate(arch, Device.load("h100"), weights="fp16").memory.weights
    return plain - estimate(arch, Device.load("h100")).memory.weights


MLP, ATTENTION = "MLP", "attention"
# d_model, width of the MLP, layers: facebook/opt-6.7b, microsoft/phi-2, openai-community/gpt2, EleutherAI/gpt-neox-20b,
# EleutherAI/gpt-j-6b, bigscience/bloom-7b1; their MLPs have two matrices, their attention four of d_model x d_model
SHAPES = {
    "opt-6.7b": (4096, 16384, 32), "phi-2": (2560, 10240, 32), "gpt2": (768, 3072, 12),
    "gpt-neox-20b": (6144, 24576, 44), "gpt-j-6b": (4096, 16384, 28), "bloom-7b1": (4096, 16384, 30),
}  # fmt: skip
# The names of the linear layers in transformers' modeling files
NAMES = [
    ("opt-6.7b", MLP, ["fc1", "fc2"]),
    ("opt-6.7b", ATTENTION, ["q_proj", "k_proj", "v_proj", "self_attn.out_proj"]),
    ("opt-6.7b", MLP, [f"model.decoder.layers.{n}.fc{i}" for n in range(32) for i in (1, 2)]),
    ("opt-6.7b", MLP, ["model.decoder.layers.*.fc1", "model.decoder.layers.*.fc2"]),
    ("phi-2", MLP, ["fc1", "fc2"]),
    ("phi-2", ATTENTION, ["q_proj", "k_proj", "v_proj", "self_attn.dense"]),
    ("gpt2", MLP, ["mlp.c_fc", "mlp.c_proj"]),
    ("gpt2", ATTENTION, ["c_attn", "attn.c_proj"]),
    ("gpt2", MLP, ["transformer.h.*.mlp.c_fc", r"re:^transformer\.h\.\d+\.mlp\.c_proj$"]),
    ("gpt-neox-20b", MLP, ["dense_h_to_4h", "dense_4h_to_h"]),
    ("gpt-neox-20b", ATTENTION, ["query_key_value", "attention.dense"]),
    ("gpt-neox-20b", MLP, ["gpt_neox.layers.*.mlp"]),
    ("gpt-j-6b", MLP, ["fc_in", "fc_out"]),
    ("gpt-j-6b", ATTENTION, ["q_proj", "k_proj", "v_proj", "attn.out_proj"]),
    ("bloom-7b1", ATTENTION, ["query_key_value", "self_attention.dense"]),
    ("bloom-7b1", MLP, ["dense_h_to_4h", "dense_4h_to_h"]),
]


@pytest.mark.parametrize(("model", "part", "names"), NAMES)
def test_the_names_of_older_families_are_the_matrices_of_their_layers(model: str, part: str, names: list[str]) -> None:
    width, inner, layers = SHAPES[model]
    elements = {MLP: 2 * width * inner * layers, ATTENTION: 4 * width * width * layers}
    rest = sum(elements.values()) - elements[part]
    ignoring = quantized(model, modules_to_not_convert=names)
    assert fp8_elements(ignoring) == rest
    assert not unmatched(ignoring)


@pytest.mark.parametrize(
    ("model", "part", "names"), [case for case in NAMES if not any("*" in name for name in case[2])]
)
def test_targets_with_the_names_of_older_families_are_converted(model: str, part: str, names: list[str]) -> None:
    width, inner, layers = SHAPES[model]
    elements = {MLP: 2 * width * inner * layers, ATTENTION: 4 * width * width * layers}
    targets = [name if name.startswith("re:") else f"re:.*{name.replace('*', '.*')}$" for name in names]
    converting = quantized(model, **compressed(*targets))
    assert fp8_elements(converting) == elements[part]
    assert not unmatched(converting)


def test_one_expression_for_both_matrices_of_an_mlp_is_a_target() -> None:
    arch = quantized("opt-6.7b", **compressed("re:.*fc[12]"))
    assert fp8_elements(arch) == 2 * 4096 * 16384 * 32
    assert not unmatched(arch)


def unmatched(arch: Architecture) -> list[str]:
    notes = map(str, estimate(arch, Device.load("h100")).notes)
    return [note for note in notes if "no weight matrix" in note]


@pytest.mark.parametrize(
    ("settings", "note"),
    [
        ({"modules_to_not_convert": ["ffn_one", "lm_head"]}, "has names that match no weight matrix: 'ffn_one'"),
        ({"modules_to_not_convert": ["model.layers.3.ffn_one", "model.layers.4.ffn_one"]}, "matrix: 'ffn_one'"),
        (compressed("re:.*feedforward.*"), "targets that match no weight matrix: 're:.*feedforward.*'"),
        (compressed("re:.*q_proj", ignore=["a", "b", "c", "d"]), "no weight matrix: 'a', 'b', 'c', 1 more"),
    ],
)  # fmt: skip
def test_a_name_that_matches_no_matrix_has_a_note(settings: dict[str, Any], note: str) -> None:
    (found,) = unmatched(quantized("phi-2", **settings))
    assert found.endswith(note)


@pytest.mark.parametrize(
    "name",
    ["lm_head", "re:.*lm_head", "model.embed_tokens", "input_layernorm", "model.layers.0.input_layernorm", "visual.mlp",
     "model.layers.32.mlp.fc1", "re:.*vision.*", "mlp.gate", "e_score_correction_bias", "model.layers.*.mlp.router"],
)  # fmt: skip
def test_a_name_of_a_module_outside_the_weight_matrices_of_layers_has_no_note(name: str) -> None:
    assert not unmatched(quantized("phi-2", modules_to_not_convert=[name]))


QUANTIZED_CONFIGS = [file for file in sorted(REAL_CONFIGS.glob("*.json")) if "quantization_config" in file.read_text()]


@pytest.mark.parametrize("file", QUANTIZED_CONFIGS, ids=lambda file: file.stem)
def test_published_checkpoints_name_existing_matrices(file: Path) -> None:
    """Each name in a real quantization_config matches a module of its model."""
    config = json.loads(file.read_text("utf-8"))
    try:
        arch = architecture(config, file.stem, file.name)
    except RoofError:
        pytest.skip("not applicable: this model is not supported")
    assert not unmatched(arch)


def test_the_option_weights_replaces_the_format_of_the_checkpoint() -> None:
    device = Device.load("h100")
    checkpoint, fp8, fp16 = (
        estimate(hub.load("gpt-oss-20b"), device, **options).memory.weights
        for options in ({}, {"weights": "fp8"}, {"weights": "fp16"})
    )
    assert checkpoint < fp8 < fp16 == 2 * 20_914_757_184


def test_training_and_autocast_use_no_format_of_the_checkpoint() -> None:
    for options in ({"phase": "train"}, {"engine": "torch", "engine_option": "autocast=fp16"}):
        work = estimate(hub.load("gpt-oss-20b"), Device.load("h100"), **options).workload
        assert work.weights in (None, "fp32")
        assert not work.unconverted


@pytest.mark.parametrize(
    "model", ["moonshotai--Kimi-K2.5", "Qwen--Qwen3-30B-A3B-FP8", "Qwen--Qwen3-32B-FP8-Static-PerTensor"]
)
def test_the_workload_states_the_formats_of_a_real_config(model: str) -> None:
    file = REAL_CONFIGS / f"{model}.json"
    if not Path(file).exists():
        pytest.skip("no shared configs")
    report = roofmodel.estimate(file, "h200", tp=8)
    assert "(quantization_config)" in report.text("markdown")
    assert {note for note in report.to_dict()["notes"] if "stay fp16" in note}


@pytest.mark.parametrize(
    ("model", "dtype", "noted"), [("llama-3.1-8b", "bf16", False), ("t5-small", "fp32", True), ("gpt2", "fp16", False)]
)
def test_the_dtype_auto_is_the_torch_dtype_of_the_config(model: str, dtype: str, noted: bool) -> None:
    """A note states that the checkpoint is not in a 16-bit type; gpt2's config states no type."""
    device = Device.load("h100")
    assert estimate(hub.load(model), device, dtype="auto").workload.dtype == dtype
    assert any("checkpoint is in" in str(note) for note in estimate(hub.load(model), device).notes) is noted


def mixed(tmp_path: Path, **more: Any) -> Path:
    """Llama 3.1 8B with fp8 linear layers, whose MLPs are nvfp4."""
    config = dict(hub.packaged("llama-3.1-8b").config)  # type: ignore[union-attr]
    config["quantization_config"] = {"quant_method": "compressed-tensors", "config_groups": {
        "group_0": {"targets": ["Linear"], "weights": {"num_bits": 8, "type": "float"}},
        "group_1": {"targets": ["re:.*mlp.*"], "weights": {"num_bits": 4, "type": "float", "group_size": 16}},
    }, **more}  # fmt: skip
    file = tmp_path / "config.json"
    file.write_text(json.dumps(config))
    return file


def test_each_group_of_modules_is_counted_in_its_format(tmp_path: Path) -> None:
    """Per layer (32): attention 4096 (2 × 4096 + 2 × 1024) in 1 byte, MLP 3 × 4096 × 14336 in 4 bits, a byte per 16.

    The two tables of 128256 × 4096 and 65 norms stay in 2 bytes.
    """
    report = roofmodel.estimate(str(mixed(tmp_path)), "h100")
    attention, mlp = 4096 * (2 * 4096 + 2 * 1024), 3 * 4096 * 14336
    others = 2 * (2 * 128256 * 4096 + 65 * 4096)
    assert report.to_dict()["memory"]["weights"] == 32 * (attention + mlp // 2 + mlp // 16) + others
    assert "the checkpoint stores MLP in nvfp4" in report.to_dict()["notes"]
    assert "weights fp8 and nvfp4 (quantization_config)" in report.text("markdown")


def test_a_note_names_the_option_weights_only_if_it_was_given(tmp_path: Path) -> None:
    file = str(mixed(tmp_path))
    without_option, with_option = (
        next(
            note for note in roofmodel.estimate(file, "h100", **options).to_dict()["notes"] if "weight matrices" in note
        )
        for options in ({}, {"weights": "int8"})
    )
    assert without_option.startswith(
        "the quantization_config (fp8, nvfp4) applies to the weight matrices of the layers; "
    )
    assert with_option.startswith('weights="int8" applies to the weight matrices')


def test_the_option_weights_replaces_the_formats_of_all_groups(tmp_path: Path) -> None:
    file = str(mixed(tmp_path))
    fp8 = roofmodel.estimate(file, "h100", weights="fp8").to_dict()
    matrices = 32 * (4096 * (2 * 4096 + 2 * 1024) + 3 * 4096 * 14336)
    assert fp8["memory"]["weights"] == matrices + 2 * (2 * 128256 * 4096 + 65 * 4096)
    assert not any("stores" in note for note in fp8["notes"])


def test_ignored_modules_stay_in_the_working_format_in_any_group(tmp_path: Path) -> None:
    down = 4096 * 14336
    kept, converted = (
        roofmodel.estimate(str(mixed(tmp_path, **settings)), "h100").to_dict()["memory"]["weights"]
        for settings in ({"ignore": ["re:.*down_proj"]}, {})
    )
    assert kept - converted == 32 * (2 * down - down // 2 - down // 16)


def test_a_group_of_a_few_layers_has_the_main_format_and_a_note(tmp_path: Path) -> None:
    groups = {
        "group_0": {"targets": ["Linear"], "weights": {"num_bits": 8, "type": "float"}},
        "group_1": {
            "targets": ["re:.*layers.[0-7].mlp.*", "re:.*self_attn.*"],
            "weights": {"num_bits": 4, "type": "float", "group_size": 16},
        },
    }
    notes = roofmodel.estimate(str(mixed(tmp_path, config_groups=groups)), "h100").to_dict()["notes"]
    assert "the checkpoint stores attention in nvfp4" in notes
    assert any(
        note.startswith("the checkpoint stores MLP of fewer than half of the layers in another format")
        for note in notes
    )


def test_a_matrix_is_timed_in_the_format_of_its_group(tmp_path: Path) -> None:
    """The MLP of the mixed checkpoint takes as long as with nvfp4 weights everywhere, attention as long as with fp8."""
    file = str(mixed(tmp_path))

    def times(**options: Any) -> dict[str, float]:
        found = roofmodel.estimate(file, "h100", phase="decode", engine="vllm", **options).to_dict()["phases"][0]
        return {op["name"]: op["expected_seconds"] for op in found["ops"]}

    mixed_times, nvfp4, fp8 = times(), times(weights="nvfp4"), times(weights="fp8")
    assert mixed_times["mlp.down"] == nvfp4["mlp.down"] != fp8["mlp.down"]
    assert mixed_times["attention.output"] == fp8["attention.output"] != nvfp4["attention.output"]


LLAMA = {
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336,
    "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8, "vocab_size": 128256,
    "max_position_embeddings": 8192,
}  # fmt: skip
LAYERS = 32 * (4096 * (2 * 4096 + 2 * 1024) + 3 * 4096 * 14336)
TABLE, NORMS = 128256 * 4096, 65 * 4096


def written(tmp_path: Path, settings: dict[str, Any]) -> str:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(LLAMA | {"quantization_config": settings}))
    return str(file)


@pytest.mark.parametrize(
    ("settings", "size"),
    [
        # layers, token table, head, norms
        ({"quant_method": "hqq"}, LAYERS * 4.5 / 8 + 2 * (2 * TABLE + NORMS)),
        ({"quant_method": "exl2", "bits": 4.65, "head_bits": 6},
         LAYERS * 4.65 / 8 + TABLE * 6 / 8 + 2 * (TABLE + NORMS)),
        # mlx-community/Meta-Llama-3.1-8B-Instruct-4bit: 4.52 GB
        ({"bits": 4, "group_size": 64}, (LAYERS + 2 * TABLE) * 4.5 / 8 + 2 * NORMS),
        ({"quant_method": "gptq", "bits": 4, "group_size": 128, "lm_head": True},
         (LAYERS + TABLE) * (4 + 20 / 128) / 8 + 2 * (TABLE + NORMS)),
        ({"quant_method": "quark", "global_quant_config": {"weight": {"dtype": "fp8_e4m3"}}},
         LAYERS + 2 * (2 * TABLE + NORMS)),
    ],
)  # fmt: skip
def test_the_size_of_a_checkpoint_follows_from_its_bits(tmp_path: Path, settings: dict[str, Any], size: float) -> None:
    found = roofmodel.estimate(written(tmp_path, settings), "h100").to_dict()
    assert found["memory"]["weights"] == pytest.approx(size, rel=1e-6)


def test_a_mean_of_bits_is_a_weight_format() -> None:
    found = roofmodel.estimate("llama-3.1-8b", "h100", weights="4.5bit")  # type: ignore[arg-type]
    assert found.to_dict()["memory"]["weights"] == LAYERS * 4.5 / 8 + 2 * (2 * TABLE + NORMS)
    with pytest.raises(RoofError, match=r"unknown value '0\.5bit'"):
        roofmodel.estimate("llama-3.1-8b", "h100", weights="0.5bit")  # type: ignore[arg-type]


def test_an_unknown_weight_format_has_no_size(tmp_path: Path) -> None:
    file = written(tmp_path, {"quant_method": "new-method", "bits": 4})
    report = roofmodel.estimate(file, "h100")
    found = report.to_dict()
    unknown = ("weights", "total", "fits", "largest_batch", "largest_context")
    assert [found["memory"][name] for name in unknown] == [None] * len(unknown)
    needing = ("bytes", "weight_bytes", "bound_seconds", "expected_seconds", "tokens_per_second", "mfu", "mbu")
    for phase in found["phases"]:
        assert {phase["totals"][name] for name in needing} == {None}
        assert phase["totals"]["matmul_flops"] > 0
        seconds = {row["name"]: row["bound_seconds"] for row in phase["ops"]}
        assert seconds["mlp.up"] is None
        assert seconds["residual.mlp"] > 0  # reads no weights
    assert "unknown weight format; give weights" in report.text("markdown")
    with pytest.raises(RoofError, match="no times to draw; give weights"):
        report.save(tmp_path / "estimate.png")
    given = roofmodel.estimate(file, "h100", weights="int4").to_dict()["memory"]
    assert (given["fits"], given["weights"]) == (True, LAYERS * (4 + 20 / 128) / 8 + 2 * (2 * TABLE + NORMS))
    assert roofmodel.estimate(file, "h100", phase="train", batch=1, seq=16).to_dict()["memory"]["total"] > 0
    rows = roofmodel.sweep(file, "h100", batch="1,2", phase="decode").to_dict()["rows"]
    unknown = ("fits", "memory_total", "weight_bytes", "bound_seconds", "bound", "tpot_seconds")
    assert {row[name] for row in rows for name in unknown} == {None}
    assert {row["note"] for row in rows} == {"unknown weight format; give weights"}
    with pytest.raises(RoofError, match="unknown weight format; give weights"):
        roofmodel.plan(file, "h100", gpus=1, isl=100, osl=10)
