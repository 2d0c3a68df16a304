"""The families of models by Hugging Face `model_type`. A family is a row of data: the meaning of its config keys.

To add one, add a row to `FAMILIES` of the module of its kind, its `model_type` to `MODEL_TYPES` here, and a draw to
`tests/draws.py`; the tests then compare it with the real class. `models/fields.py` documents the fields that a row may
set, `models/config.py` reads a config with its row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping
from importlib import import_module
from typing import Any, NamedTuple

from roofmodel.models.architecture import HeadStage, Network, Projector
from roofmodel.models.fields import CORE, FIELDS, NETWORK_FIELDS, FieldType, Key


class Family(NamedTuple):
    """A row: the prefix of its class names, its heads by class suffix (the usual one first), its fields.

    `switches` are config keys that are not fields; fields are derived from them (`falcon` has examples). A family
    with `network` is a convolutional network, built from NETWORK_FIELDS; all others have the layers of FIELDS.
    """

    prefix: str
    classes: Mapping[str, tuple[HeadStage, ...]]
    fields: Mapping[str, Any]
    switches: Mapping[str, tuple[FieldType, Key]] = {}
    encoder: bool = False
    network: Callable[[Mapping[str, Any]], Network] | None = None
    source: Mapping[str, Any] = {}  # of an encoder-decoder: fields whose value differs in the encoder
    source_classes: tuple[str, ...] = ()  # heads on the encoder alone
    refuses: tuple[str, ...] = ()  # keys that, if true, add unsupported operators
    variants: Mapping[str, tuple[str, ...]] = {}  # other families, with the keys that, if true, select them
    config: str = ""  # name of the config class, if it is not the prefix + Config
    projectors: Callable[[Mapping[str, Any]], tuple[Projector, ...]] | None = None  # of a vision tower

    @property
    def config_class(self) -> str:
        return self.config or f"{self.prefix}Config"

    @property
    def schema(self) -> Mapping[str, tuple[FieldType, Any]]:
        """The fields that the row may set: the type of each, and its default if the row does not set it."""
        return NETWORK_FIELDS if self.network else FIELDS

    def has_core_sizes(self, config: Mapping[str, Any]) -> bool:
        """Whether the config has every core size under one of the family's keys."""
        core = [self.fields.get(field) for field in CORE if field in self.schema]
        return all(isinstance(key, Key) and any(name in config for name in key.names) for key in core)

    def like(
        self,
        prefix: str,
        classes: Mapping[str, tuple[HeadStage, ...]] | None = None,
        switches: Mapping[str, tuple[FieldType, Key]] | None = None,
        refuses: tuple[str, ...] | None = None,
        config: str = "",
        source: Mapping[str, Any] | None = None,
        **fields: Any,
    ) -> Family:
        """A copy of the row with another prefix, and with other heads, switches, refusals or fields if given.

        `source` adds fields in which the encoder differs.
        """
        return self._replace(
            prefix=prefix,
            classes=self.classes if classes is None else classes,
            switches=self.switches if switches is None else switches,
            refuses=self.refuses if refuses is None else refuses,
            config=config,
            source={**self.source, **(source or {})},
            fields={**self.fields, **fields},
        )


# --- Heads, by the suffix of the class's name -------------------------------------------------------

LM = (HeadStage("logits", "vocabulary", "logits", bias="head_bias", tied=True),)
CAUSAL_HEADS = {
    "ForCausalLM": LM,
    "ForSequenceClassification": (HeadStage("score", "classes", "logits", bias=False),),
    "ForTokenClassification": (HeadStage("classifier", "classes", "tokens"),),
    "ForQuestionAnswering": (HeadStage("span", "classes", "tokens", classes=2),),
    "Model": (),
}


def heads(*suffixes: str) -> dict[str, tuple[HeadStage, ...]]:
    """The common decoder heads with these class suffixes."""
    return {suffix: CAUSAL_HEADS[suffix] for suffix in suffixes}


POOLER = HeadStage("pooler", "hidden", "first", activation="pooler_activation")
CLASSIFIER = HeadStage("classifier", "classes", "first")
TRANSFORM = HeadStage(
    "transform", "hidden", "tokens", activation="transform_activation", norm=True, input_from_layers=True
)
MASKED_LM = (TRANSFORM, HeadStage("logits", "vocabulary", "tokens", tied=True))
BERT_MASKED_LM = (TRANSFORM, MASKED_LM[1]._replace(unused_bias=True))
BERT_HEADS = {
    "ForMaskedLM": BERT_MASKED_LM,
    "ForSequenceClassification": (POOLER, CLASSIFIER),
    "ForTokenClassification": (CLASSIFIER._replace(rows="tokens"),),
    "ForQuestionAnswering": (HeadStage("span", "classes", "tokens"),),
    "Model": (POOLER,),
}

IMAGE_CLASSES = HeadStage("classifier", "classes", "first")


MODEL_TYPES: dict[str, tuple[str, ...]] = {
    "gpt": (
        "gpt2", "gptj", "codegen", "gpt_bigcode", "gpt_neo", "opt", "gpt_neox", "gpt_neox_japanese", "ctrl",
        "bloom", "falcon", "mpt", "biogpt", "xglm", "starcoder2",
    ),
    "llama": (
        "llama", "mistral", "ministral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text", "cohere", "cohere2",
        "olmo", "olmo2", "olmo3", "granite", "glm", "glm4", "phi", "phi3", "stablelm", "nemotron", "smollm3",
    ),
    "llama_variants": (
        "openai-gpt", "ministral3", "seed_oss", "arcee", "jais2", "helium", "exaone4", "ernie4_5", "bitnet",
        "hunyuan_v1_dense", "cwm", "granite_swa", "hyperclovax", "internlm3", "iquestcoder", "emu3_text_model",
        "apertus", "vaultgemma", "nanochat", "persimmon", "diffllama", "qwen3_vl_text",
    ),
    "mixture_of_experts": (
        "mixtral", "phimoe", "qwen2_moe", "qwen3_moe", "olmoe", "granitemoe", "dbrx", "gpt_oss", "granitemoeshared",
        "flex_olmo", "qwen3_vl_moe_text", "llama4_text", "minimax_m2", "minimax_m3_vl_text", "glm4_moe", "solar_open",
        "dots1", "hy_v3", "exaone_moe", "mimo_v2_flash", "ernie4_5_moe", "hunyuan_v1_moe", "jetmoe",
        "aria_text",
    ),
    "sliding_window_experts": (
        "granitemoe_swa", "cohere2_moe", "kolibri1", "flint",
    ),
    "heterogeneous_layers": (
        "gemma3n_text", "gemma4_text", "gemma4_unified_text", "step3p5", "laguna", "mellum", "afmoe",
    ),
    "latent_attention": (
        "deepseek_v2", "deepseek_v3", "deepseek_v32", "glm_moe_dsa", "glm4_moe_lite", "axk1", "axk2",
        "mistral4", "minicpm3", "youtu", "dots3_note_text", "longcat_flash", "mistral_large4_text",
    ),
    "hyper_connections": (
        "deepseek_v4", "hy_v4", "glm5_next_text",
    ),
    "linear_attention": (
        "minimax", "kimi_linear", "bailing_hybrid", "qwen3_next", "qwen3_5_text", "qwen3_5_moe_text",
        "qwen4_exp_text", "olmo_hybrid", "xlstm",
    ),
    "encoders": (
        "bert", "roberta", "camembert", "xlm-roberta", "data2vec-text", "ernie", "megatron-bert", "electra", "albert",
        "mpnet", "roformer", "esm", "deberta-v2", "modernbert-decoder", "modernbert", "nomic_bert", "distilbert",
    ),
    "encoder_decoders": (
        "t5", "mt5", "umt5", "switch_transformers",
        "bart", "mbart", "pegasus", "marian", "blenderbot", "blenderbot-small", "m2m_100",
        "whisper",
    ),
    "state_spaces": (
        "mamba", "falcon_mamba", "mamba2", "bamba", "granitemoehybrid", "jamba", "nemotron_h", "falcon_h1",
        "recurrent_gemma", "rwkv",
    ),
    "short_convolutions": (
        "lfm2", "lfm2_moe", "lfm3", "inkling_text", "inkling2_text",
    ),
    "vision": (
        "vit", "deit", "resnet", "convnext", "convnextv2",
    ),
    "multimodal_text": (
        "qwen2_vl_text", "qwen2_5_vl_text", "qwen2_5_omni_text", "qwen3_omni_moe_text", "cohere_compass_text",
        "muse_glimmer_text", "muse_spark_text", "cosmos3_edge_text", "molmo2_text", "mllama_text_model",
        "ernie4_5_vl_moe_text", "glm4v_text", "glm_ocr_text",
        "glm4v_moe_text", "hunyuan_vl_text", "paddleocr_vl_text", "granite4_vision_text", "granite_docling_text",
    ),
}  # fmt: skip
"""Each module of this folder, with the model types of its rows."""
CUSTOM_CODE_MODEL_TYPES: dict[str, tuple[str, ...]] = {
    "custom_code": (
        "baichuan", "qwen", "internlm2", "chatglm", "minicpm", "minimax_m3", "mimo", "kimi_k3_text",
        "nemotron-nas",
    ),
}  # fmt: skip
"""Likewise, model types whose code comes with their checkpoints, not with transformers."""
# Other names of families in checkpoints. transformers maps them too (Kimi_K25Config), or the published code does
# (Qwen3-ASR, SGLang's FP8 checkpoints of DeepSeek-V4).
ALIASES = {"gpt-sw3": "gpt2", "deepseek_ref": "deepseek_v4", "kimi_k2": "deepseek_v3", "qwen3_asr_text": "qwen3"}


class FamilyIndex(MutableMapping[str, Family]):
    """Families by `model_type`. A lookup imports the module that holds the row; names, length and `in` import none."""

    def __init__(self, model_types: Mapping[str, tuple[str, ...]]) -> None:
        self._modules = {model_type: module for module, names in model_types.items() for model_type in names}
        self._rows: dict[str, Family] = {}

    def __getitem__(self, model_type: str) -> Family:
        if model_type not in self._rows:
            module = import_module(f"{__name__}.{self._modules[model_type]}")
            self._rows[model_type] = module.FAMILIES[model_type]
        return self._rows[model_type]

    def __setitem__(self, model_type: str, family: Family) -> None:
        self._modules.setdefault(model_type, "")
        self._rows[model_type] = family

    def __delitem__(self, model_type: str) -> None:
        del self._modules[model_type]
        self._rows.pop(model_type, None)

    def __contains__(self, model_type: object) -> bool:
        return model_type in self._modules

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __len__(self) -> int:
        return len(self._modules)


FAMILIES = FamilyIndex(MODEL_TYPES)
CUSTOM_CODE = FamilyIndex(CUSTOM_CODE_MODEL_TYPES)


def family_of(model_type: str) -> Family | None:
    """The row of a `model_type`, custom code included; None if it is not supported."""
    name = ALIASES.get(model_type, model_type)
    return FAMILIES.get(name) or CUSTOM_CODE.get(name)
