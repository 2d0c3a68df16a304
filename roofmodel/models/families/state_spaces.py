"""State spaces, and hybrids that have attention beside them or in some of their layers. A row each."""

from __future__ import annotations

from typing import Any

from roofmodel.algebra import ceil_div
from roofmodel.models.families.llama import LLAMA
from roofmodel.models.family import Family, heads
from roofmodel.models.fields import INDICES, NUMBER_OR_AUTO, SIZE, key


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
        heads=1,  # none, in truth: no layer has attention
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
# A hybrid's heads of attention are those of Llama; its state spaces have keys of their own.
HYBRID = LLAMA.like(
    "Bamba",
    classes=heads("ForCausalLM", "Model"),
    switches=dict(
        expand=(SIZE, key("mamba_expand", default=2)),
        head_width=(NUMBER_OR_AUTO, key("mamba_d_head", default="auto")),
        attends=(INDICES, key("attn_layer_indices", default=None, null=[])),
    ),
    kv_heads=key("num_key_value_heads", default=8, null=lambda f: f["heads"]),
    mlp_width=key("intermediate_size", default=14336),
    mixers=lambda f: ["attention" if i in f["attends"] else "mamba2" for i in range(f["layers"])],
    inner_width=lambda f: f["expand"] * f["hidden"],
    inner_heads=key("mamba_n_heads", default=128),
    inner_head_dim=lambda f: f["inner_width"] // f["inner_heads"] if f["head_width"] == "auto" else f["head_width"],
    inner_groups=key("mamba_n_groups", default=1),
    state=key("mamba_d_state", default=256),
    filter=key("mamba_d_conv", default=4),
    filter_bias=key("mamba_conv_bias", default=True),
    inner_bias=key("mamba_proj_bias", default=False),
    chunk=key("mamba_chunk_size", default=256),
    rotary=0.5,  # whatever the config says
    positions=key("max_position_embeddings", default=262144),
)

STATE_SPACES: dict[str, Family] = {
    "mamba": MAMBA,
    "falcon_mamba": MAMBA.like("FalconMamba", selection_norm=True, selection_norm_gain=False),
    "mamba2": MAMBA2,
    "bamba": HYBRID,
    "falcon_h1": HYBRID.like(
        "FalconH1",
        switches={name: switch for name, switch in HYBRID.switches.items() if name != "attends"},
        mixers=lambda f: ["mamba2+attention"] * f["layers"],
        inner_width=key("mamba_d_ssm", default=1024, null=lambda f: f["expand"] * f["hidden"]),
        inner_out_bias=key("projectors_bias", default=False),
        gate_norm=key("mamba_rms_norm", default=False),
        rotary=1,
        positions=key("max_position_embeddings", default=8192),
    ),
}
