"""The packaged models and the real config files of the shared data.

Set ROOF_SHARED_CONFIGS to the folder of real configs; without it, their tests are skipped.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

import roofmodel
from roofmodel.models import hub
from roofmodel.models.families.vision_towers import TOWERS
from roofmodel.models.fields import Key
from roofmodel.models.served import SERVED
from roofmodel.steps.estimate import parameters
from roofmodel.steps.options import workload
from tests.models import keys

ROOT = Path(__file__).parents[2]
REAL_CONFIGS = Path(os.environ.get("ROOF_SHARED_CONFIGS", ROOT.parent / "shared" / "configs"))

FILES = sorted((ROOT / "roofmodel" / "models" / "configs").glob("*.json"))
by_file = pytest.mark.parametrize("file", FILES, ids=[file.stem for file in FILES])

# Parameter counts from other sources: the real gpt2 checkpoints, BLOOM's model card, and the totals of Llama's
# published safetensors files.
PUBLISHED = {
    "gpt2": 124_439_808,
    "gpt2-medium": 354_823_168,
    "gpt2-large": 774_030_080,
    "gpt2-xl": 1_557_611_200,
    "Llama-3.1-8B": 8_030_261_248,
    "Llama-3.1-70B": 70_553_706_496,
    "Llama-3.1-405B": 405_853_388_800,
    "bloom": 176_247_271_424,
    "resnet-50": 25_557_032,  # torchvision's resnet50
    "vit-base-patch16-224": 86_567_656,  # torchvision's vit_b_16
    "convnext-tiny-224": 28_589_128,  # torchvision's convnext_tiny
}

NAMES = [
    "openai-community/gpt2",
    "openai-community/gpt2-medium",
    "openai-community/gpt2-large",
    "openai-community/gpt2-xl",
    "distilbert/distilgpt2",
    "google-bert/bert-base-cased",
    "google-bert/bert-base-uncased",
    "google-bert/bert-large-cased",
    "google-bert/bert-large-uncased",
    "FacebookAI/roberta-base",
    "FacebookAI/roberta-large",
    "distilbert/distilbert-base-uncased",
    "EleutherAI/gpt-j-6b",
    "tiiuae/falcon-7b",
    "tiiuae/falcon-40b",
    "tiiuae/falcon-180B",
    "mistralai/Mixtral-8x7B-v0.1",
    "google/gemma-2-9b",
    "deepseek-ai/DeepSeek-V3",
    "openai/gpt-oss-120b",
    "google-t5/t5-large",
    "google-t5/t5-3b",
    "google-t5/t5-11b",
    "openai/whisper-large-v3",
    "google/electra-small-discriminator",
    "google/electra-base-discriminator",
    "google/electra-large-discriminator",
    "albert/albert-base-v2",
    "albert/albert-large-v2",
    "albert/albert-xlarge-v2",
    "albert/albert-xxlarge-v2",
    "microsoft/deberta-v3-xsmall",
    "microsoft/deberta-v3-small",
    "microsoft/deberta-v3-base",
    "microsoft/deberta-v3-large",
    "answerdotai/ModernBERT-base",
    "answerdotai/ModernBERT-large",
    "FacebookAI/xlm-roberta-base",
    "FacebookAI/xlm-roberta-large",
    "state-spaces/mamba-130m-hf",
    "state-spaces/mamba-370m-hf",
    "state-spaces/mamba-790m-hf",
    "state-spaces/mamba-1.4b-hf",
    "state-spaces/mamba-2.8b-hf",
    "microsoft/mpnet-base",
    "almanach/camembert-base",
    "tiiuae/falcon-mamba-7b",
    "facebook/opt-125m",
    "facebook/opt-350m",
    "facebook/opt-1.3b",
    "facebook/opt-2.7b",
    "facebook/opt-6.7b",
    "facebook/opt-13b",
    "facebook/opt-30b",
    "facebook/opt-66b",
    "bigscience/bloom-560m",
    "bigscience/bloom-1b1",
    "bigscience/bloom-1b7",
    "bigscience/bloom-3b",
    "bigscience/bloom-7b1",
    "bigscience/bloom",
    "EleutherAI/pythia-70m",
    "EleutherAI/pythia-160m",
    "EleutherAI/pythia-410m",
    "EleutherAI/pythia-1b",
    "EleutherAI/pythia-1.4b",
    "EleutherAI/pythia-2.8b",
    "EleutherAI/pythia-6.9b",
    "EleutherAI/pythia-12b",
    "meta-llama/Llama-2-7b-hf",
    "meta-llama/Llama-2-13b-hf",
    "meta-llama/Llama-2-70b-hf",
    "meta-llama/Meta-Llama-3-8B",
    "meta-llama/Meta-Llama-3-70B",
    "meta-llama/Llama-3.1-8B",
    "meta-llama/Llama-3.1-70B",
    "meta-llama/Llama-3.1-405B",
    "meta-llama/Llama-3.2-1B",
    "meta-llama/Llama-3.2-3B",
    "meta-llama/Llama-3.3-70B-Instruct",
    "mistralai/Mistral-7B-v0.1",
    "Qwen/Qwen2.5-0.5B",
    "Qwen/Qwen2.5-1.5B",
    "Qwen/Qwen2.5-3B",
    "Qwen/Qwen2.5-7B",
    "Qwen/Qwen2.5-14B",
    "Qwen/Qwen2.5-32B",
    "Qwen/Qwen2.5-72B",
    "facebook/convnext-tiny-224",
    "facebook/convnext-small-224",
    "facebook/convnext-base-224",
    "facebook/convnext-large-224",
    "facebook/deit-tiny-patch16-224",
    "facebook/deit-small-patch16-224",
    "facebook/deit-base-patch16-224",
    "facebook/deit-base-distilled-patch16-224",
    "google/vit-base-patch16-224",
    "google/vit-base-patch16-224-in21k",
    "google/vit-base-patch16-384",
    "google/vit-large-patch16-224",
    "google/vit-large-patch16-224-in21k",
    "microsoft/resnet-18",
    "microsoft/resnet-26",
    "microsoft/resnet-34",
    "microsoft/resnet-50",
    "microsoft/resnet-101",
    "microsoft/resnet-152",
]


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "huggingface"))
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)


def _entry(file: Path) -> dict[str, Any]:
    entry = json.loads(file.read_text(encoding="utf-8"))
    assert isinstance(entry, dict)
    return entry


def _counted(model: str) -> dict[str, Any]:
    document = roofmodel.estimate(model, "mi300x", phase="forward").to_dict()  # not calibrated: no expected times
    return {"parameters": document["model"]["parameters"], "notes": document["notes"]}


# --- The files --------------------------------------------------------------------------------------


@by_file
def test_a_packaged_file_has_exactly_the_known_keys(file: Path) -> None:
    entry = _entry(file)
    known = {"id", "aliases", "parameters", "parameters_source", "source", "config"}
    assert set(entry) in (known, known | {"base"})  # with a base, the config changes that of another file
    assert f"{entry['id'].replace('/', '--')}.json" == file.name
    assert isinstance(entry["aliases"], list)


@by_file
def test_a_packaged_file_names_its_sources(file: Path) -> None:
    entry = _entry(file)
    assert entry["source"].strip()
    assert entry["parameters_source"].strip()


@by_file
def test_a_packaged_config_has_only_keys_of_its_family(file: Path) -> None:
    entry = _entry(file)
    config = entry["config"]
    if "base" in entry:
        base = hub.packaged(entry["base"])
        assert base is not None
        assert set(config) <= {"quantization_config", "expert_dtype"}
        config = {**base.config, **config}
    text = config.pop("text_config", None)
    tower = config.pop("vision_config", None)
    if tower is not None:
        fields = TOWERS[config["model_type"]].family
        named = [*fields.fields.values(), *(each for _, each in fields.switches.values())]
        known = {name for each in named if isinstance(each, Key) for name in each.names}
        assert {f"vision_config.{name}" for name in tower.keys() - {"model_type"}} <= known
    if text is not None:  # a multimodal model
        assert set(config) <= {
            "model_type", "architectures", "torch_dtype", "quantization_config", "tie_word_embeddings"
        }  # fmt: skip
        config = {**text, "architectures": config["architectures"]}
    sources = keys.sources(config["model_type"]).values()
    known = {name.partition(".")[0] for source in sources if isinstance(source, Key) for name in source.names}
    assert set(config) <= known | {"model_type", "architectures", "torch_dtype", "quantization_config", "expert_dtype"}
    assert len(config.get("architectures", [""])) == 1  # a description names no class


@pytest.mark.usefixtures("only_times_and_memory")
@by_file
def test_counted_parameters_equal_the_published_ones_or_a_note_says_unconfirmed(file: Path) -> None:
    entry = _entry(file)
    counted = _counted(entry["id"])
    if entry["parameters"] is None:
        assert entry["parameters_source"].startswith("unconfirmed: ")  # a note puts it after "its parameter count is"
        notes = [note for note in counted["notes"] if "unconfirmed" in note]
        assert len(notes) == 1
        assert entry["id"] in notes[0]
    else:
        assert counted["parameters"] == entry["parameters"]
        assert not any("unconfirmed" in note for note in counted["notes"])


@pytest.mark.parametrize(("name", "parameters"), PUBLISHED.items())
def test_independently_published_counts_are_reproduced(name: str, parameters: int) -> None:
    assert _counted(name)["parameters"] == parameters


@pytest.mark.parametrize(
    ("size", "parameters"),
    [
        ("125m", 125e6), ("350m", 356e6), ("760m", 760e6), ("1.3b", 1.32e9), ("2.7b", 2.65e9), ("6.7b", 6.66e9),
        ("13b", 12.85e9), ("175b", 174.6e9),
    ],
)  # fmt: skip
def test_gpt_3_has_the_parameters_of_its_paper(size: str, parameters: float) -> None:
    """Table D.1 of arXiv 2005.14165, with three to six digits; its training FLOPs are 6 x parameters x tokens."""
    assert _counted(f"gpt-3-{size}")["parameters"] == pytest.approx(parameters, rel=0.005)
    config = hub.packaged(f"gpt-3-{size}").config  # type: ignore[union-attr]
    assert config["n_embd"] % config["n_head"] == 0


# --- Names ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_a_hub_id_and_its_short_name_find_the_same_model(name: str) -> None:
    short = name.partition("/")[2]
    for spelling in (name, short, name.upper(), short.lower()):
        entry = hub.packaged(spelling)
        assert entry is not None
        assert entry.id == name
    assert hub.load(name) == hub.load(short)
    assert hub.load(name).name == name


@pytest.mark.parametrize(
    ("alias", "name"),
    [
        ("bloom-176b", "bigscience/bloom"),
        ("meta-llama/Meta-Llama-3.1-8B", "meta-llama/Llama-3.1-8B"),
        ("meta-llama/Meta-Llama-3.1-70B", "meta-llama/Llama-3.1-70B"),
        ("meta-llama/Meta-Llama-3.1-405B", "meta-llama/Llama-3.1-405B"),
        ("resnet50", "microsoft/resnet-50"),
        ("THUDM/glm-4-9b-hf", "zai-org/glm-4-9b-hf"),
        ("CohereForAI/c4ai-command-r-v01", "CohereLabs/c4ai-command-r-v01"),
        ("bigscience/bloom-6b3", "bigscience/bloom-7b1"),
    ],
)
def test_older_names_are_known(alias: str, name: str) -> None:
    assert hub.load(alias).name == name


def test_no_name_refers_to_two_models() -> None:
    names = [name.lower() for entry in hub.catalog() for name in (entry.id, entry.id.partition("/")[2], *entry.aliases)]
    assert len(names) == len(set(names))


def test_the_catalog_lists_all_files_in_alphabetical_order() -> None:
    ids = [entry.id for entry in hub.catalog()]
    assert sorted(ids) == sorted(_entry(file)["id"] for file in FILES)
    assert ids == sorted(ids, key=str.lower)


# --- Real configs -----------------------------------------------------------------------------------

REAL = sorted(REAL_CONFIGS.glob("*.json"))
REAL_PARAMETERS = {
    "meta-llama--Meta-Llama-3.1-8B": 8_030_261_248,
    "meta-llama--Meta-Llama-3.1-70B": 70_553_706_496,
    "meta-llama--Meta-Llama-3.1-405B": 405_853_388_800,
}
NO_CONFIGS = f"there are no real configs in {REAL_CONFIGS.name}; set ROOF_SHARED_CONFIGS to their folder"


@pytest.mark.skipif(not REAL, reason=NO_CONFIGS)
@pytest.mark.parametrize(("stem", "parameters"), REAL_PARAMETERS.items())
def test_real_llama_configs_give_the_published_parameters(stem: str, parameters: int) -> None:
    assert _counted(str(REAL_CONFIGS / f"{stem}.json"))["parameters"] == parameters


@pytest.mark.skipif(not REAL, reason=NO_CONFIGS)
@pytest.mark.parametrize("stem", [file.stem for file in REAL])
def test_a_packaged_model_has_the_shape_and_the_formats_of_its_real_config(stem: str) -> None:
    if hub.packaged(stem.replace("--", "/")) is None:
        return  # not packaged
    real, packaged = hub.load(str(REAL_CONFIGS / f"{stem}.json")), hub.load(stem.replace("--", "/"))
    for field in ("stack", "tied", "max_tokens", "dtype"):
        assert getattr(packaged, field) == getattr(real, field), field
    heads = [[stage._replace(classes=None) for stage in arch.head.stages] for arch in (packaged, real)]
    assert heads[0] == heads[1]
    workloads = [workload(arch, phase="decode")[0] for arch in (packaged, real)]
    for field in ("weights", "kv", "matrix_formats"):
        values = [getattr(work, field) for work in workloads]
        assert values[0] == values[1], field
    # the real list of GLM-5.2-FP8 names this module in the 21 layers that have it, too few for all layers
    kept = [work.unconverted - {"W_index_weights"} for work in workloads]
    assert kept[0] == kept[1]


def test_nvidias_checkpoints_keep_the_modules_that_their_config_lists() -> None:
    """GLM-5.1-NVFP4 keeps attention, shared experts and the dense layers; V4-Flash-NVFP4 converts experts only."""
    glm, deepseek = (
        workload(hub.load(name), phase="decode")[0] for name in ("GLM-5.1-NVFP4", "DeepSeek-V4-Flash-NVFP4")
    )
    assert (glm.weights, glm.kv) == ("nvfp4", "fp8")
    assert {"W_q_up", "W_out", "W_shared_up", "W_router"} <= glm.unconverted
    assert glm.unconverted.isdisjoint({"W_expert_gate_up", "W_expert_down"})
    assert deepseek.weights == "fp8_block"
    assert {name for name, form in deepseek.matrix_formats if form == "nvfp4"} >= {"W_expert_gate_up", "W_expert_down"}


def test_the_served_models_are_packaged_and_newest_first() -> None:
    assert len(SERVED) <= 50
    assert [*SERVED.values()] == sorted(SERVED.values(), reverse=True)
    assert all(hub.packaged(name) for name in SERVED)
    listed = roofmodel.list_models(served=True).data
    assert [row["name"] for row in listed] == [*SERVED]
    assert listed[0]["since"] == next(iter(SERVED.values()))


@pytest.mark.parametrize(("name", "base", "form"), [
    ("Qwen3-14B-AWQ", "Qwen/Qwen3-14B", "int4"), ("Qwen/Qwen3-8B-GPTQ-Int4", "Qwen/Qwen3-8B", "int4"),
    ("Qwen3-14B-FP8", "Qwen/Qwen3-14B", "fp8"), ("Llama-3.1-8B-Instruct-NVFP4", "meta-llama/Llama-3.1-8B", "nvfp4"),
])  # fmt: skip
def test_a_quantized_checkpoint_without_a_file_names_the_model_and_the_option(name: str, base: str, form: str) -> None:
    with pytest.raises(roofmodel.RoofError, match=f'{base} has the same architecture.*weights="{form}"'):
        hub.load(name)


# Parameters in billions as the papers print them (PaLM: table 1; the others: in their names or abstracts).
PRINTED = {
    "palm-8b": 8.63, "palm-62b": 62.50, "palm-540b": 540.35, "mt-nlg-530b": 530, "glm-130b": 130, "opt-175b": 175,
    "jurassic-1-jumbo": 178, "gopher-280b": 280, "chinchilla-70b": 70,
}  # fmt: skip


EXACT_BILLIONS = {"gopher-280b", "chinchilla-70b"}


@pytest.mark.parametrize(("name", "billions"), PRINTED.items())
def test_models_from_the_tables_of_papers_have_their_printed_parameters(name: str, billions: float) -> None:
    tolerance = 0.01 if name.startswith("palm") else 0.5 if name in EXACT_BILLIONS else 5  # the last printed digit
    assert _counted(name)["parameters"] / 1e9 == pytest.approx(billions, abs=tolerance)


def test_descriptions_of_published_moe_models_have_their_printed_parameters() -> None:
    glam, meta = hub.load("glam-64b-64e"), hub.load("moe-1.1t")
    gates = 32 * 8192 * 32768  # of GLaM's dense layers, which the description leaves out
    total, active = parameters(glam)
    assert (total + gates) / 1e12 == pytest.approx(1.2, abs=0.05)
    assert (active + gates) / 1e9 == pytest.approx(96.6, abs=0.1)
    assert parameters(meta)[0] / 1e12 == pytest.approx(1.1, abs=0.05)


def test_a_name_may_state_another_head() -> None:
    masked, classifier = hub.load("roberta-base"), hub.load("roberta-base@ForSequenceClassification")
    assert (masked.head.name, classifier.head.name) == ("RobertaForMaskedLM", "RobertaForSequenceClassification")
    options: dict[str, Any] = {"phase": "train", "batch": 8, "seq": 416, "dtype": "fp32", "attention": "eager"}
    flops = [
        roofmodel.estimate(name, "v100", **options).to_dict()["phases"][0]["totals"]["matmul_flops"]
        for name in ("roberta-base", "roberta-base@ForSequenceClassification")
    ]
    # forward and twice backward: the transform and the logits of all tokens, against a pooler and two classes
    tokens, width = 8 * 416, 768
    assert flops[0] - flops[1] == 6 * (tokens * width * (width + 50265) - 8 * width * (width + 2))
    with pytest.raises(roofmodel.RoofError, match="roberta has no head 'ForSomething'"):
        hub.load("roberta-base@ForSomething")
