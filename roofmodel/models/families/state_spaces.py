"""State-space models (Mamba, Mamba-2) and hybrids with attention in some layers or in parallel."""

from __future__ import annotations

from typing import Any

from roofmodel.models.families import Family, heads
from roofmodel.models.families.latent_attention import ACTIVE
from roofmodel.models.families.llama import GEMMA, LLAMA, PARTIAL
from roofmodel.models.families.mixture_of_experts import EXPERTS
from roofmodel.models.fields import COUNT, INDICES, NUMBER_OR_AUTO, SIZE, FieldType, key
from roofmodel.numbers.algebra import ceil_div


def _rank(f: Any) -> int:
    rank: int = ceil_div(f["hidden"], 16) if f["rank"] == "auto" else f["rank"]
    return rank


MAMBA2 = Family(
    "Mamba2",
    classes=heads("ForCausalLM", "Model"),
    switches=dict(expand=(SIZE, key("expand", default=2))),
    fields=dict(
        hidden=key("hidden_size"),
        layers=key("num_hidden_layers"),
        heads=1,  # unused: no layer has attention
        vocabulary=key("vocab_size"),
        mixers=lambda f: ["mamba2"] * f["layers"],
        mlp=False,
        inner_width=lambda f: f["expand"] * f["hidden"],
        inner_heads=key("num_heads", default=128),
        inner_head_dim=key("head_dim", default=64),
        inner_groups=key("n_groups", default=8),
        state=key("state_size", default=128),
        chunk=key("chunk_size", default=256),
        filter=key("conv_kernel", default=4),
        filter_bias=key("use_conv_bias", default=True),
        inner_bias=key("use_bias", default=False),
        activation=key("hidden_act", default="silu"),
        norm="rmsnorm",
        tied=key("tie_word_embeddings", default=False),
    ),
)
MAMBA = MAMBA2.like(
    "Mamba",
    switches=dict(MAMBA2.switches, rank=(NUMBER_OR_AUTO, key("time_step_rank", default="auto"))),
    mixers=lambda f: ["mamba"] * f["layers"],
    inner_width=key("intermediate_size", default=lambda f: f["expand"] * f["hidden"]),
    inner_heads=1,
    inner_head_dim=lambda f: f["inner_width"],
    inner_groups=1,
    chunk=1,
    state=key("state_size", default=16),
    step_rank=_rank,
    tied=key("tie_word_embeddings", default=True),
)
# Hybrids: attention as in Llama, with separate keys for the state-space layers.
HYBRID = LLAMA.like(
    "Bamba",
    classes=heads("ForCausalLM", "Model"),
    switches=dict(
        expand=(SIZE, key("mamba_expand", default=2)),
        inner_head_size=(NUMBER_OR_AUTO, key("mamba_d_head", default="auto")),
        attention_layers=(INDICES, key("attn_layer_indices", default=None, null=[])),
    ),
    kv_heads=key("num_key_value_heads", default=8, null=lambda f: f["heads"]),
    mlp_width=key("intermediate_size", default=14336),
    mixers=lambda f: ["attention" if i in f["attention_layers"] else "mamba2" for i in range(f["layers"])],
    inner_width=lambda f: f["expand"] * f["hidden"],
    inner_heads=key("mamba_n_heads", default=128),
    inner_head_dim=lambda f: (
        f["inner_width"] // f["inner_heads"] if f["inner_head_size"] == "auto" else f["inner_head_size"]
    ),
    inner_groups=key("mamba_n_groups", default=1),
    state=key("mamba_d_state", default=256),
    filter=key("mamba_d_conv", default=4),
    filter_bias=key("mamba_conv_bias", default=True),
    inner_bias=key("mamba_proj_bias", default=False),
    chunk=key("mamba_chunk_size", default=256),
    rotary=0.5,  # the class ignores the config
    positions=key("max_position_embeddings", default=262144),
)

POSITION_KIND = FieldType(lambda v: v in ("rope", "nope"), "'rope', 'nope' or null")
MIXER_WORDS = {
    "linear_attention": "mamba2", "mamba": "mamba2", "full_attention": "attention", "attention": "attention",
}  # fmt: skip


def _mixers(types: Any) -> Any:
    if not isinstance(types, list) or not all(kind in list(MIXER_WORDS) for kind in types):
        raise ValueError(f"a list of {' and '.join(map(repr, MIXER_WORDS))}, one per layer")
    return [MIXER_WORDS[kind] for kind in types]


BLOCKS = {
    **MIXER_WORDS, "M": "mamba2", "*": "attention", "mlp": "mlp", "-": "mlp", "moe": "experts", "E": "experts",
}  # fmt: skip
PATTERN = FieldType(lambda v: isinstance(v, str) and set(v) <= set("M*-E"), "a text of the letters M, *, - and E")


def _blocks(blocks: Any) -> Any:
    """One word per layer, or one letter per layer in a pattern such as `M-M*`."""
    if not isinstance(blocks, str | list) or not blocks or not all(block in list(BLOCKS) for block in blocks):
        raise ValueError(f"a list of {', '.join(map(repr, BLOCKS))}, one per layer, or a text of these letters")
    return [BLOCKS[block] for block in blocks]


def _block_pattern(f: Any) -> Any:
    return f["pattern"] or ["linear_attention", "moe", "full_attention", "mlp"]


def _periodic(every: str, first: str, kind: Any, other_kind: Any) -> Any:
    """`kind` in one layer of each period f[every], at the offset f[first]; `other_kind` in the others."""
    return lambda f: [kind if layer % f[every] == f[first] else other_kind for layer in range(f["layers"])]


def _recurrent_blocks(f: Any) -> list[str]:
    """The mixers of Griffin, whose pattern repeats."""
    return [
        "recurrence" if f["pattern"][layer % len(f["pattern"])] == "recurrent" else "attention"
        for layer in range(f["layers"])
    ]


PATTERN_OF_GRIFFIN = FieldType(
    lambda v: isinstance(v, list) and bool(v) and all(kind in ("recurrent", "attention") for kind in v),
    "a list of 'recurrent' and 'attention', which repeats",
)
FAMILIES: dict[str, Family] = {
    "mamba": MAMBA,
    "falcon_mamba": MAMBA.like("FalconMamba", selection_norm=True, selection_norm_gain=False),
    "mamba2": MAMBA2,
    "bamba": HYBRID,
    "granitemoehybrid": HYBRID.like(
        "GraniteMoeHybrid",
        switches={name: switch for name, switch in HYBRID.switches.items() if name != "attention_layers"}
        | dict(position_kind=(POSITION_KIND, key("position_embedding_type", default=None))),
        mixers=key(
            "layer_types", "layers_block_type", default=lambda f: ["linear_attention"] * f["layers"], read=_mixers
        ),
        kv_heads=key("num_key_value_heads", default=lambda f: f["heads"]),
        head_dim=lambda f: f["hidden"] // f["heads"],
        rotary=lambda f: int(f["position_kind"] == "rope"),
        mlp_width=key("shared_intermediate_size", default=1024),
        fused_gate=True,
        mlp_bias=False,
        experts=key(*EXPERTS, default=8, null=0),
        experts_active=key(ACTIVE, default=2, read=lambda v: v or 1),  # 0 in dense checkpoints
        expert_width=key("intermediate_size", default=11008),
        shared_width=lambda f: f["mlp_width"],
        positions=key("max_position_embeddings", default=2048),
    ),
    "jamba": LLAMA.like(
        "Jamba",
        classes=heads("ForCausalLM", "ForSequenceClassification", "Model"),
        switches=dict(
            expand=(SIZE, key("mamba_expand", default=2)),
            rank=(NUMBER_OR_AUTO, key("mamba_dt_rank", default="auto")),
            attention_every=(SIZE, key("attn_layer_period", default=8)),
            attention_first=(COUNT, key("attn_layer_offset", default=4)),
            sparse_every=(SIZE, key("expert_layer_period", default=2)),
            sparse_first=(COUNT, key("expert_layer_offset", default=1)),
        ),
        mixers=_periodic("attention_every", "attention_first", "attention", "mamba"),
        kv_heads=key("num_key_value_heads", default=8, null=lambda f: f["heads"]),
        qkv_bias=False,
        out_bias=False,
        rotary=0,
        inner_width=lambda f: f["expand"] * f["hidden"],
        step_rank=_rank,
        state=key("mamba_d_state", default=16),
        filter=key("mamba_d_conv", default=4),
        filter_bias=key("mamba_conv_bias", default=True),
        inner_bias=key("mamba_proj_bias", default=False),
        selection_norm=True,
        mlp_width=key("intermediate_size", default=14336),
        mlp_bias=False,
        experts=key(*reversed(EXPERTS), default=16, read=lambda v: 0 if v == 1 else v),  # one expert: a dense MLP
        experts_active=key(ACTIVE, default=2),
        expert_layers=_periodic("sparse_every", "sparse_first", 1, 0),
        fused_experts=True,
        positions=key("max_position_embeddings", default=262144),
    ),
    "nemotron_h": LLAMA.like(
        "NemotronH",
        classes=heads("ForCausalLM", "Model"),
        switches=dict(
            pattern=(PATTERN, key("hybrid_override_pattern", default=None)),
        ),
        layers=lambda f: len(f["mixers"]),
        mixers=key("layers_block_type", "layer_types", default=_block_pattern, read=_blocks),
        mlp=False,  # each layer is one block
        dropout=0.0,  # the class does not use its key
        kv_heads=key("num_key_value_heads", default=8, null=lambda f: f["heads"]),
        head_dim=key("head_dim", default=128),
        qkv_bias=False,
        out_bias=False,
        rotary=0,
        inner_width=lambda f: f["inner_heads"] * f["inner_head_dim"],
        inner_heads=key("mamba_num_heads", default=128),
        inner_head_dim=key("mamba_head_dim", default=64),
        inner_groups=key("n_groups", "mamba_n_groups", default=8),
        inner_activation=key("mamba_hidden_act", default="silu"),
        state=key("ssm_state_size", default=128),
        filter=key("conv_kernel", "mamba_d_conv", default=4),
        filter_bias=key("use_conv_bias", "mamba_conv_bias", default=True),
        inner_bias=key("use_bias", default=False),
        chunk=key("chunk_size", "mamba_chunk_size", default=128),
        mlp_width=key("intermediate_size", default=21504),
        gated=False,
        activation=key("mlp_hidden_act", default="relu2"),
        experts=key("n_routed_experts", "num_local_experts", default=8),
        experts_active=key(ACTIVE, default=2),
        expert_width=key("moe_intermediate_size", default=7688),
        expert_latent=key("moe_latent_size", default=None),
        expert_latent_bias=key("mlp_bias", default=False),
        shared_width=key("moe_shared_expert_intermediate_size", default=7688),
        positions=key("max_position_embeddings", default=4096),
        tied=False,  # the class ignores the config
    ),
    "falcon_h1": HYBRID.like(
        "FalconH1",
        switches={name: switch for name, switch in HYBRID.switches.items() if name != "attention_layers"},
        mixers=lambda f: ["mamba2+attention"] * f["layers"],
        inner_width=key("mamba_d_ssm", default=1024, null=lambda f: f["expand"] * f["hidden"]),
        inner_out_bias=key("projectors_bias", default=False),
        gate_norm=key("mamba_rms_norm", default=False),
        rotary=1,
        positions=key("max_position_embeddings", default=8192),
    ),
    "recurrent_gemma": GEMMA.like(
        "RecurrentGemma",
        classes=heads("ForCausalLM", "Model"),
        switches=dict(
            pattern=(PATTERN_OF_GRIFFIN, key("block_types", default=lambda f: ["recurrent", "recurrent", "attention"])),
        ),
        mixers=_recurrent_blocks,
        kv_heads=key("num_key_value_heads", default=lambda f: f["heads"]),
        head_dim=lambda f: f["hidden"] // f["heads"],
        out_bias=True,
        rotary=key(*PARTIAL, default=0.5),
        window=key("attention_window_size", "sliding_window", default=2048),
        inner_width=key("lru_width", default=lambda f: f["hidden"]),
        inner_heads=lambda f: f["heads"],
        filter=key("conv1d_width", default=4),
        mlp_width=key(
            "intermediate_size", default=7680, read=lambda width: width // 2 if type(width) is int else width
        ),
        mlp_bias=True,
        activation=key("hidden_activation", default="gelu_pytorch_tanh"),
        positions=None,
    ),
    "rwkv": Family(
        "Rwkv",
        classes=heads("ForCausalLM", "Model"),
        fields=dict(
            hidden=key("hidden_size"),
            layers=key("num_hidden_layers"),
            heads=1,  # unused: no layer has attention
            vocabulary=key("vocab_size"),
            mixers=lambda f: ["time_mix"] * f["layers"],
            inner_width=key("attention_hidden_size", default=lambda f: f["hidden"]),
            mlp_kind="channel_mix",
            mlp_width=key("intermediate_size", default=lambda f: 4 * f["hidden"]),
            activation="relu2",
            embedding_norm=True,
            tied=key("tie_word_embeddings", default=False),
        ),
    ),
}
