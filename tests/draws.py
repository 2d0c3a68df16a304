"""Small random configs of every family with all values of its switches, in the keys of its real config.json.

A key that no draw sets is not tested: `test_families.py` lists the keys that change no shape.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

BLOCKS = "linear_attention", "moe", "full_attention", "mlp"
FULL, SLIDING = "full_attention", "sliding_attention"

# Required keys in addition to the core sizes: the real config class accepts None, and its model then fails.
NEEDED: dict[str, dict[str, Any]] = {
    "deepseek_v2": {"num_experts_per_tok": 6},
    "qwen4_exp_text": {"indexer_n_heads": 4, "indexer_kv_heads": 1, "indexer_head_dim": 256}
    | {"indexer_budget": 2048, "indexer_compress_ratio": 16},
    "dots1": {"num_experts_per_tok": 6, "n_routed_experts": 64},
    "dots3_note_text": {"num_key_value_heads": 64},  # as many as the heads
}


ZERO_EXPERTS = ((4, 2, 3), (2, 2, 2), (3, 1, 4), (2, 4, 3), (3, 0, 2))


class Draw:
    """The random sizes of one config, and the random generator for its other values."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.heads = rng.choice([1, 2, 3, 4, 6])
        self.kv_heads = rng.choice([k for k in (1, 2, 3, 4, 6) if self.heads % k == 0])
        self.head_dim = 4 * rng.randint(1, 4)  # even, because rotary embedding rotates pairs
        self.hidden = self.heads * self.head_dim
        self.layers = rng.randint(1, 4)
        self.vocabulary = rng.randint(20, 200)
        self.width = rng.randint(5, 90)
        self.positions = rng.choice([40, 48, 64])
        self.other_head_dim = self.head_dim + 2 * rng.randint(0, 1)
        self.window = rng.choice([4, 8, 16, 64])
        self.experts = rng.randint(2, 6)
        self.active = rng.randint(1, self.experts)

    def flag(self) -> bool:
        return self.rng.random() < 0.5

    def one(self, *values: Any) -> Any:
        return self.rng.choice(values)

    def types(self) -> Any:
        """The kind of each layer; None: the config lacks the key."""
        return self.one(None, [self.one(FULL, SLIDING) for _ in range(self.layers)])

    def usual(self) -> dict[str, Any]:
        """The keys of nearly all configs."""
        return {
            "vocab_size": self.vocabulary,
            "hidden_size": self.hidden,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "tie_word_embeddings": self.flag(),
            "pad_token_id": 1,
            "num_labels": self.one(2, 3, 7),
            "max_position_embeddings": self.positions,
            "intermediate_size": self.width,
        }

    def gpt(self) -> dict[str, Any]:
        """The same in the keys of GPT-2."""
        own = {
            "n_embd": self.hidden,
            "n_layer": self.layers,
            "n_head": self.heads,
            "n_positions": self.positions,
            "n_inner": self.one(None, self.width),
            "activation_function": self.one("gelu_new", "relu", "silu"),
        }
        shared = self.usual()
        return {
            name: shared[name] for name in ("vocab_size", "tie_word_embeddings", "pad_token_id", "num_labels")
        } | own

    def llama(self) -> dict[str, Any]:
        return self.usual() | {"num_key_value_heads": self.kv_heads}

    def mixed(self, *attends: str) -> list[str]:
        """Kinds of layers: convolution filters and at least one attention layer, which the cache class needs."""
        types = [self.one("conv", *attends) for _ in range(self.layers)]
        types[self.rng.randrange(self.layers)] = self.one(*attends)
        return types

    def filters(self) -> dict[str, Any]:
        return {"conv_L_cache": self.one(2, 3, 5), "conv_bias": self.flag()}

    def multimodal_rotary(self, head_dim: int, fraction: float = 1.0) -> dict[str, Any]:
        """Multimodal rotary embedding: a section of the rotated elements each for time, height and width."""
        pairs = int(head_dim * fraction) // 2
        first = self.rng.randint(0, pairs)
        parts = [first, (pairs - first) // 2, pairs - first - (pairs - first) // 2]
        rope = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": parts}
        return {"rope_parameters": rope | ({} if fraction == 1 else {"partial_rotary_factor": fraction})}

    def granite_windows(self) -> dict[str, Any]:
        return {
            "sliding_window": self.window,
            "layer_types": self.types(),
            "layer_rope_theta": self.one(None, [self.one(0, 10000.0) for _ in range(self.layers)]),
        }

    def mixtral_experts(self) -> dict[str, Any]:
        return {"num_local_experts": self.experts, "num_experts_per_tok": self.active}

    def sparse(self) -> dict[str, Any]:
        """Experts in the keys of Qwen, in some of the layers."""
        return {
            "num_experts": self.experts,
            "num_experts_per_tok": self.active,
            "moe_intermediate_size": self.rng.randint(3, 40),
            "decoder_sparse_step": self.one(1, 2),
            "mlp_only_layers": self.one(None, [0], [1, 2]),
        }

    def latent(self) -> dict[str, Any]:
        """Latent attention in the keys of DeepSeek, with its experts."""
        return self.usual() | {
            "num_key_value_heads": self.heads,
            "attention_bias": self.flag(),
            "q_lora_rank": self.one(None, self.rng.randint(3, 20)),
            "kv_lora_rank": 2 * self.rng.randint(2, 10),
            "qk_nope_head_dim": self.head_dim,
            "qk_rope_head_dim": self.one(2, 4, 8),
            "v_head_dim": self.rng.randint(3, 20),
        }

    def linear(self) -> dict[str, Any]:
        """Linear attention by the delta rule in some layers; the class requires a layer with full attention."""
        some = [self.one("linear_attention", FULL) for _ in range(self.layers - 1)]
        return {
            "linear_num_key_heads": self.kv_heads,
            "linear_num_value_heads": self.heads,
            "linear_key_head_dim": self.rng.randint(2, 12),
            "linear_value_head_dim": self.rng.randint(2, 12),
            "linear_conv_kernel_dim": self.one(2, 3, 4),
            "layer_types": self.one(None, [*some, FULL]),
            "full_attention_interval": self.rng.randint(1, self.layers),
            "partial_rotary_factor": self.one(0.25, 0.5, 1.0),
            "head_dim": self.head_dim + 4 * self.rng.randint(0, 1),
            "attention_bias": self.flag(),
        }

    def qwen4(self) -> dict[str, Any]:
        """Gated residual streams, an indexer over means of blocks, and tables of n-grams in linear layers."""
        types = [self.one("linear_attention", "indexed_attention") for _ in range(self.layers)]
        types[self.rng.randrange(self.layers)] = "indexed_attention"
        linear = [layer + 1 for layer, kind in enumerate(types) if kind == "linear_attention"]
        size, hashes, ratio = self.one(2, 3), self.one(1, 2), self.one(2, 3, 4)
        unread = "intermediate_size", "full_attention_interval"
        config = self.llama() | self.linear() | RECIPES["qwen3_5_moe_text"](self)
        return {name: value for name, value in config.items() if name not in unread} | {
            "layer_types": types,
            "indexer_n_heads": self.rng.randint(1, 3),
            "indexer_kv_heads": 1,
            "indexer_head_dim": 32,
            "indexer_budget": ratio * self.rng.randint(1, 3),
            "indexer_compress_ratio": ratio,
            "hc_count": self.one(2, 3, 4),
            "hc_lowrank": self.rng.randint(1, 9),
            "ple_layer_ids": self.one(None, linear[:1], linear),
            "ple_embed_dim": (size - 1) * hashes * self.rng.randint(1, 9),
            "ple_conv_kernel_size": self.one(2, 3, 4),
            "ngram_size": size,
            "heads_per_ngram": hashes,
            "ngram_vocab_size_base": self.rng.randint(5, 60),
            "make_ngram_vocab_size_divisible_by": self.one(1, 8),
            "output_gate_type": self.one(None, "sigmoid", "silu"),
            "eos_token_id": 2,
        }  # fmt: skip

    def olmo_hybrid(self) -> dict[str, Any]:
        """Layers of both kinds, which the class requires."""
        self.layers = max(self.layers, 2)
        types = ["linear_attention", FULL, *(self.one("linear_attention", FULL) for _ in range(self.layers - 2))]
        own = self.linear() | {"layer_types": self.one(None, types)}
        for name in ("linear_num_value_heads", "linear_key_head_dim", "linear_value_head_dim"):
            own[name] = self.one(None, own[name])
        if own["linear_num_value_heads"] is None:
            own["linear_num_key_heads"] = None
        unread = ("full_attention_interval", "partial_rotary_factor", "head_dim")
        return self.llama() | {name: value for name, value in own.items() if name not in unread}

    def kimi(self) -> dict[str, Any]:
        """Layers with linear and with latent attention; the sizes of the former may be in a nested object."""
        drawn = self.linear()
        names = {"head_dim": "linear_head_dim", "num_heads": "linear_num_heads"}
        sizes = {"head_dim": drawn["linear_key_head_dim"], "num_heads": self.kv_heads}
        full = sorted({*self.rng.sample(range(1, self.layers + 1), self.rng.randint(1, self.layers))})
        listed = {
            "full_attn_layers": full, "kda_layers": [i for i in range(1, self.layers + 1) if i not in full],
            "short_conv_kernel_size": drawn["linear_conv_kernel_dim"],
        }  # fmt: skip
        apart = {names[name]: size for name, size in sizes.items()}
        kinds = {"layer_types": [FULL if i in full else "linear_attention" for i in range(1, self.layers + 1)]}
        routed = self.routed_locally()
        return self.latent() | routed | self.sparse_types() | self.one(
            {"linear_attn_config": sizes | listed},
            apart | kinds | {"linear_conv_kernel_dim": drawn["linear_conv_kernel_dim"]},
        )  # fmt: skip

    def minimax(self) -> dict[str, Any]:
        """Lightning attention, not in the first layer: the class asks that layer for the cached length."""
        self.layers = max(self.layers, 2)
        others = [self.one("linear_attention", FULL) for _ in range(self.layers - 1)]
        return self.llama() | self.mixtral_experts() | {
            "head_dim": self.one(None, self.other_head_dim),
            "layer_types": self.one(None, [FULL, *others]),
            "block_size": self.one(32, 256),
        }  # fmt: skip

    def bailing(self) -> dict[str, Any]:
        drawn = self.linear()
        latent = {name: value for name, value in self.latent().items() if name != "q_lora_rank"}
        return latent | self.routed_locally() | self.sparse_types() | {
            "head_dim": drawn["linear_key_head_dim"],
            "short_conv_kernel_size": drawn["linear_conv_kernel_dim"],
            "kda_safe_gate": self.flag(),
            "layer_types": drawn["layer_types"],
            "layer_group_size": self.rng.randint(1, self.layers),
            "num_mtp_layers": self.one(0, 1),
        }  # fmt: skip

    def routed(self) -> dict[str, Any]:
        groups = self.one(1, 2)
        return {
            "n_routed_experts": 4 * groups,
            "num_experts_per_tok": self.rng.randint(1, 4),
            "n_group": groups,
            "topk_group": groups,
            "n_shared_experts": self.one(1, 2),
            "moe_intermediate_size": self.rng.randint(3, 40),
        }

    def routed_locally(self) -> dict[str, Any]:
        routed = self.routed()
        return {self.one("num_experts", "num_local_experts"): routed.pop("n_routed_experts")} | routed

    def dense_first(self) -> dict[str, Any]:
        return {"first_k_dense_replace": self.rng.randint(0, self.layers)}

    def sparse_types(self) -> dict[str, Any]:
        return {"mlp_layer_types": self.one(None, [self.one("dense", "sparse") for _ in range(self.layers)])}

    def indexed(self) -> dict[str, Any]:
        """Latent attention with an indexer, which requires a query latent."""
        latent = self.latent()
        return latent | {
            "q_lora_rank": self.rng.randint(3, 20),
            "index_topk": self.rng.randint(2, 40),
            "index_n_heads": self.rng.randint(1, 3),
            "index_head_dim": latent["qk_rope_head_dim"] + self.rng.randint(1, 6),
        }

    def shared_latents(self) -> dict[str, Any]:
        """Layers without rotary embedding, and layers that use the latents of an earlier one of the same kind."""
        rotary = [self.one(0, 1) for _ in range(self.layers)]
        sources: list[int] = []
        for layer, kind in enumerate(rotary):
            # the class keeps one shared source of each kind
            first = rotary.index(kind)
            sources.append(self.one(layer, first))
        return self.one({}, {"no_rope_layers": rotary}, {"no_rope_layers": rotary, "kv_source_layers": sources})

    def block_sparse(self) -> dict[str, Any]:
        """Attention to selected blocks in some layers, in the keys of the class or of the published checkpoint."""
        sparse = [self.rng.randint(0, 1) for _ in range(self.layers)]
        sparse[self.rng.randrange(self.layers)] = 1
        sizes = {"index_n_heads": self.kv_heads, "index_head_dim": 2 * self.rng.randint(1, 6)}
        sizes |= {"index_block_size": self.rng.randint(1, 9), "index_topk_blocks": self.rng.randint(1, 5)}
        if self.flag():
            kinds = ["minimax_m3_sparse" if flag else FULL for flag in sparse]
            return {"layer_types": kinds} | sizes
        published = ("sparse_num_index_heads", "sparse_index_dim", "sparse_block_size", "sparse_topk_blocks")
        keys = dict(zip(published, sizes.values(), strict=True)) | {"sparse_attention_freq": sparse}
        return {"sparse_attention_config": keys}

    def cohere_compass(self) -> dict[str, Any]:
        """Rotary embedding by kind of layer."""
        types = self.types()
        rotary = {kind: {"rope_type": "default", "rope_theta": 10000.0} for kind in types or [FULL]}
        own = {"attention_bias": self.flag(), "sliding_window": self.window, "layer_types": types}
        return self.llama() | own | {"rope_parameters": rotary}

    def compressed(self) -> dict[str, Any]:
        """DeepSeek-V4: kinds of layers and their ratios, by the keys of the class or of the published checkpoint."""
        kinds = {0: SLIDING, 4: "compressed_sparse_attention", 128: "heavily_compressed_attention"}
        ratios = [self.one(*kinds) for _ in range(self.layers)]
        rates = {kinds[4]: self.rng.randint(1, 5), kinds[128]: self.rng.randint(2, 9)}
        rotary = 2 * self.rng.randint(1, self.head_dim // 2)
        sizes = self.usual() | {
            "head_dim": self.head_dim,
            "num_key_value_heads": 1,
            "q_lora_rank": self.rng.randint(3, 20),
            "sliding_window": self.window,
            "o_groups": self.kv_heads,
            "o_lora_rank": self.rng.randint(3, 20),
            "index_topk": self.rng.randint(1, 9),
            "index_n_heads": self.rng.randint(1, 3),
            "index_head_dim": rotary + self.rng.randint(1, 6),
            "hc_mult": self.rng.randint(1, 4),
            "hc_sinkhorn_iters": self.rng.randint(1, 4),
            "mlp_bias": self.flag(),
            "num_experts_per_tok": self.active,
            "moe_intermediate_size": self.rng.randint(3, 40),
            self.one("n_routed_experts", "num_local_experts"): self.experts,
        }
        del sizes["intermediate_size"]
        published = {"compress_ratios": [*ratios, 0], "qk_rope_head_dim": rotary, "num_hash_layers": 1}
        published |= {"compress_rate_csa": rates[kinds[4]], "compress_rate_hca": rates[kinds[128]]}
        own = {"layer_types": self.one(None, [kinds[ratio] for ratio in ratios]), "compress_rates": rates}
        own |= {"partial_rotary_factor": rotary / self.head_dim}
        return sizes | self.one(published, own)

    def glm5_next(self) -> dict[str, Any]:
        """Layers with linear attention, and with latent attention whose indexer selects pools of tokens."""
        drawn, pool = self.linear(), self.rng.randint(1, 5)
        kinds = [self.one("linear_attention", self.one("indexed_attention", FULL)) for _ in range(self.layers)]
        full = self.rng.randrange(self.layers)
        kinds[full], indexers = "indexed_attention", ["full"] * self.layers
        if full + 1 < self.layers:  # a layer reuses the tokens of the layer before
            kinds[full + 1], indexers[full + 1] = "indexed_attention", self.one("full", "shared")
        sizes = {"head_dim": drawn["linear_key_head_dim"], "num_heads": self.kv_heads}
        sizes |= {"short_conv_kernel_size": drawn["linear_conv_kernel_dim"], "gate_lower_bound": self.one(None, -3.0)}
        apart = {"linear_head_dim": sizes["head_dim"], "linear_num_heads": sizes["num_heads"]}
        apart |= {"linear_conv_kernel_dim": drawn["linear_conv_kernel_dim"], "linear_lower_bound": self.one(None, -3.0)}
        return self.latent() | self.routed() | self.sparse_types() | {
            "q_lora_rank": self.rng.randint(3, 20),
            "qk_rope_head_dim": 0,
            "index_kpool": pool,
            "index_topk": pool * self.rng.randint(1, 4),
            "index_n_heads": self.rng.randint(1, 3),
            "index_head_dim": self.rng.randint(1, 6),
            "index_kpool_always_select_tail": self.flag(),
            "layer_types": kinds,
            "indexer_types": indexers,
            "hc_mult": self.rng.randint(1, 4),
            "hc_sinkhorn_iters": self.rng.randint(1, 4),
        } | self.one({"linear_attn_config": sizes}, apart)  # fmt: skip

    def dots(self) -> dict[str, Any]:
        """Other sizes of latent attention in sliding-window layers, and an indexer in the other ones or in none."""
        nope, rotary = self.rng.randint(2, 6), 2 * self.rng.randint(1, 3)
        heads = self.rng.randint(1, 4)
        own = {"num_attention_heads": heads, "num_key_value_heads": heads, "kv_lora_rank": self.rng.randint(3, 20)}
        own |= {"q_lora_rank": self.rng.randint(3, 20), "qk_nope_head_dim": nope, "head_dim": nope + rotary}
        own |= {"v_head_dim": self.rng.randint(3, 20)}
        types = [self.one(FULL, SLIDING) for _ in range(self.layers)]
        return self.indexed() | self.routed() | {f"swa_{name}": size for name, size in own.items()} | {
            self.one("sliding_window", "sliding_window_size"): self.window,
            "shared_experts_intermediate_size": self.rng.randint(3, 40),
            **self.one({}, {"layer_types": types}),
            **self.one({}, {"use_dsa": self.flag()}, {"use_sliding_window": self.flag()}),
            **self.one(self.sparse_types(), {"moe_layer_freq": [self.rng.randint(0, 1) for _ in range(self.layers)]}),
        }  # fmt: skip

    def inkling(self) -> dict[str, Any]:
        """Filters on keys, values and outputs; positions as a term computed from queries; windows in some layers."""
        kinds = [self.one("hybrid", "hybrid_sliding") for _ in range(self.layers)]
        kinds[self.rng.randrange(self.layers)] = "hybrid"
        windows = {"local_layer_ids": [i for i, kind in enumerate(kinds) if kind == "hybrid_sliding"]}
        kv_heads = self.one(1, 2)
        widths = {"moe_intermediate_size": self.rng.randint(3, 40)}
        published = {"dense_intermediate_size": self.rng.randint(3, 40), "dense_mlp_idx": self.rng.randint(0, 2)}
        return self.llama() | self.one({"layer_types": kinds}, windows) | {
            "head_dim": self.head_dim,
            "swa_num_attention_heads": kv_heads * self.one(1, 2, 3),
            "swa_num_key_value_heads": kv_heads,
            "swa_head_dim": self.other_head_dim,
            "sliding_window_size": self.window,
            "d_rel": self.rng.randint(1, 6),
            "rel_extent": self.rng.randint(1, 30),
            "log_scaling_n_floor": self.one(None, 4),
            "conv_kernel_size": self.one(2, 3, 4),
            "n_routed_experts": self.experts,
            "num_experts_per_tok": self.active,
            "n_shared_experts": self.one(1, 2),
            "tie_word_embeddings": False,
        } | self.one(widths | self.sparse_types(), published)  # fmt: skip

    def inkling2(self) -> dict[str, Any]:
        """The same with taps computed from tokens, and residual sums of some layers each."""
        unread = "local_layer_ids", "dense_intermediate_size", "dense_mlp_idx", "mlp_layer_types", "n_shared_experts"
        return {name: value for name, value in self.inkling().items() if name not in unread} | {
            "moe_intermediate_size": self.width,
            "n_layers_per_attn_res_block": self.one(1, 2, 3),
            "log_scaling_n_floor": 4,
        }  # fmt: skip

    def index_layers(self) -> dict[str, Any]:
        """The layers that have their own indexer; the first layer must have one."""
        types = ["full", *(self.one("full", "shared") for _ in range(self.layers - 1))]
        return self.one(
            {},
            {"indexer_types": types},
            {"index_topk_pattern": "".join(kind[0].upper() for kind in types)},
            {"index_topk_freq": self.one(2, 3), "index_skip_topk_offset": self.one(1, 2)},
        )

    def qwen_windows(self) -> dict[str, Any]:
        slides = self.flag()
        types = [self.one(FULL, SLIDING) if slides else FULL for _ in range(self.layers)]
        return {
            "use_sliding_window": slides,
            "sliding_window": self.window,
            "max_window_layers": self.rng.randint(0, self.layers),
            # without a window, the real class fails on sliding layer types
            "layer_types": self.one(None, types),
        }

    def gemma4(self) -> dict[str, Any]:
        """Head sizes by kind of layer, layers that share keys and values, experts.

        The layers with shared keys have both kinds if the others have.
        """
        layers = self.rng.randint(3, 6)
        types = [SLIDING, *(self.one(FULL, SLIDING) for _ in range(layers - 2)), FULL]
        lenders = next(n for n in range(1, layers + 1) if set(types[:n]) == set(types))
        experts = {
            "num_experts": self.experts,
            "top_k_experts": self.active,
            "moe_intermediate_size": self.rng.randint(3, 40),
        }
        width = self.one(0, 5, 6, 8)
        config = self.llama() | {
            "num_hidden_layers": layers,
            "layer_types": types,
            "attention_bias": self.flag(),
            "head_dim": self.other_head_dim,
            "global_head_dim": 4 * self.rng.randint(1, 4),
            "num_global_key_value_heads": self.one(None, 1, self.heads),
            "attention_k_eq_v": self.flag(),
            "sliding_window": self.window,
            # the class fails on shared keys without per-layer inputs
            "num_kv_shared_layers": self.one(0, layers - lenders) if width else 0,
            "use_double_wide_mlp": self.flag(),
            "hidden_size_per_layer_input": width,
            "vocab_size_per_layer_input": self.vocabulary + self.rng.randint(0, 9) if width else self.one(0, 9),
            "enable_moe_block": self.flag(),
        }
        return config | (experts if config["enable_moe_block"] else self.one({}, experts))

    def gemma3n(self) -> dict[str, Any]:
        """Several streams, low-rank residuals, sparse gates, inputs of the layers, and shared keys and values."""
        shared = "num_hidden_layers", "layer_types", "attention_bias", "head_dim", "sliding_window"
        config = self.gemma4()
        layers = config["num_hidden_layers"]
        widths = [self.rng.randint(5, 90) for _ in range(layers)]
        sparsity = [self.one(0.0, 0.5, 0.95) for _ in range(layers)]
        return self.llama() | {name: config[name] for name in shared} | {
            "intermediate_size": self.one(self.width, [self.width] * layers, widths),
            "num_kv_shared_layers": config["num_kv_shared_layers"],
            "hidden_size_per_layer_input": self.rng.randint(3, 9),
            "vocab_size_per_layer_input": self.vocabulary + self.rng.randint(0, 9),
            "altup_num_inputs": self.rng.randint(2, 5),
            "altup_active_idx": self.one(0, 1),
            "altup_correct_scale": self.flag(),
            "laurel_rank": self.rng.randint(1, 9),
        } | self.one({}, {"activation_sparsity_pattern": sparsity})  # fmt: skip

    def step(self) -> dict[str, Any]:
        """With lists of one entry more than layers, as in the published config, or without lists."""
        further = self.one(0, 1)
        slides = [self.one(FULL, SLIDING) for _ in range(self.layers + further)]
        sparse = [self.one("dense", "sparse") for _ in range(self.layers + further)]
        several = {"num_attention_heads": 2 * self.heads}
        return (
            self.llama()
            | {
                "num_nextn_predict_layers": further,
                "layer_types": self.one(None, slides),
                "mlp_layer_types": self.one(None, sparse),
                "sliding_window": self.window,
                "attention_bias": self.flag(),
                "mlp_bias": self.flag(),
                "head_dim": self.head_dim,
                "n_routed_experts": self.experts,
                "num_experts_per_tok": self.active,
                "moe_intermediate_size": self.rng.randint(3, 40),
                "share_expert_dim": self.rng.randint(3, 40),
            }
            | self.one({}, {"moe_layers_enum": "1, 2"}, {"moe_layers_enum": [0]})
            | self.one({}, {"num_sliding_attention_heads": 2 * self.heads}, {"attention_other_setting": several})
        )

    def laguna(self) -> dict[str, Any]:
        types = self.types()
        several = {FULL: self.heads, SLIDING: 2 * self.heads}
        listed = [several[kind] for kind in types or [FULL] * self.layers]
        return (
            self.llama()
            | self.sparse_types()
            | {
                "attention_bias": self.flag(),
                "head_dim": self.other_head_dim,
                "num_attention_heads_per_layer": self.one(None, listed),
                "gating": self.one(True, "per-head", "per-element"),
                "num_experts": self.experts,
                "num_experts_per_tok": self.active,
                "moe_intermediate_size": self.rng.randint(3, 40),
                "shared_expert_intermediate_size": self.rng.randint(3, 40),
                "sliding_window": self.window,
                "layer_types": types,
            }
        )

    def bert(self) -> dict[str, Any]:
        return self.usual() | {
            "max_position_embeddings": self.positions + 2,
            "type_vocab_size": self.one(1, 2, 4),
            "hidden_act": self.one("gelu", "relu", "gelu_new"),
        }

    def deberta(self) -> dict[str, Any]:
        legacy = self.flag()
        config = self.usual() | {
            "type_vocab_size": self.one(0, 2),
            "hidden_act": self.one("gelu", "relu"),
            "relative_attention": self.flag() or self.flag(),
            "max_relative_positions": self.one(-1, 0, 32),
            "position_buckets": self.one(-1, 8, 12),
            "pos_att_type": self.one(None, "c2p|p2c", ["p2c", "c2p"], ["c2p"], "p2c"),
            "share_att_key": self.flag(),
            "norm_rel_ebd": self.one("none", "layer_norm", "layer_norm | none"),
            "position_biased_input": self.flag(),
            "conv_kernel_size": self.one(0, 3, 5),
            "conv_groups": self.one(1, self.heads),
            "conv_act": self.one("tanh", "gelu"),
            # without the legacy head, the head multiplies the hidden state by the embedding table
            "embedding_size": self.one(self.hidden, 10, 24) if legacy else self.hidden,
            "legacy": legacy,
            "pooler_hidden_act": self.one("gelu", "tanh"),
        }
        for name in ("embedding_size", "conv_kernel_size", "share_att_key", "position_buckets"):
            if self.flag():
                del config[name]
        return config

    def distilbert(self) -> dict[str, Any]:
        own = {"dim": self.hidden, "n_layers": self.layers, "n_heads": self.heads, "hidden_dim": self.width}
        shared = self.usual()
        for name in ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"):
            del shared[name]
        return shared | own | {"sinusoidal_pos_embds": self.flag()}

    def mamba(self) -> dict[str, Any]:
        shared = self.usual()
        return {
            name: shared[name] for name in ("vocab_size", "hidden_size", "num_hidden_layers", "tie_word_embeddings")
        } | {
            "pad_token_id": 1,
            "state_size": self.one(2, 5, 16),
            "expand": self.one(1, 2, 3),
            "conv_kernel": self.one(2, 3, 4),
            "use_bias": self.flag(),
            "use_conv_bias": self.flag(),
            "hidden_act": self.one("silu", "gelu"),
            "time_step_rank": self.one("auto", 3, 8),
        }

    def hybrid(self) -> dict[str, Any]:
        """State space layers parallel to attention, or between attention layers."""
        return {
            "attention_bias": self.flag(),
            "mlp_bias": self.flag(),
            "mamba_n_heads": self.heads,
            "mamba_n_groups": self.kv_heads,
            "mamba_d_head": "auto",
            "mamba_d_state": self.one(2, 5, 16),
            "mamba_d_conv": self.one(2, 4),
            "mamba_chunk_size": self.one(3, 8, 256),
            "mamba_conv_bias": self.flag(),
            "mamba_proj_bias": self.flag(),
        }

    def falcon(self) -> dict[str, Any]:
        new = self.flag()
        config = self.usual() | {
            "ffn_hidden_size": self.one(None, self.width),
            "new_decoder_architecture": new,
            "multi_query": self.flag(),
            "num_kv_heads": self.kv_heads if new else None,
            "alibi": self.flag(),
            "parallel_attn": new or self.flag(),
            "bias": self.flag(),
            "num_ln_in_parallel_attn": self.one(None, 1, 2) if new else None,
        }
        return config

    def t5(self) -> dict[str, Any]:
        return {
            "vocab_size": self.vocabulary,
            "d_model": self.hidden,
            "d_kv": self.other_head_dim,
            "d_ff": self.width,
            "num_layers": self.layers,
            "num_decoder_layers": self.one(None, 1, 3),
            "num_heads": self.heads,
            "relative_attention_num_buckets": self.one(8, 32),
            "feed_forward_proj": self.one("relu", "gated-gelu", "gated-silu", "gelu"),
            "decoder_start_token_id": 0,
            "num_labels": self.one(2, 3, 7),
        }

    def bart(self) -> dict[str, Any]:
        return {
            "vocab_size": self.vocabulary,
            "d_model": 4 * self.head_dim,
            "encoder_layers": self.layers,
            "decoder_layers": self.one(1, 2, 3),
            "encoder_attention_heads": self.one(1, 2, 4),
            "decoder_attention_heads": self.one(1, 2, 4),
            "encoder_ffn_dim": self.width,
            "decoder_ffn_dim": self.rng.randint(5, 90),
            "activation_function": self.one("gelu", "relu", "swish"),
            "max_position_embeddings": self.positions,
            "scale_embedding": self.flag(),
            "tie_word_embeddings": self.flag(),
            "pad_token_id": 1,
            "num_labels": self.one(2, 3, 7),
        }

    def marian(self) -> dict[str, Any]:
        one_vocabulary = self.flag()
        return self.bart() | {
            "share_encoder_decoder_embeddings": one_vocabulary,
            "decoder_vocab_size": self.one(None, self.vocabulary if one_vocabulary else self.vocabulary + 7),
            "decoder_start_token_id": 1,
            "eos_token_id": 2,
        }

    def whisper(self) -> dict[str, Any]:
        config = self.bart()
        del config["max_position_embeddings"]
        return config | {
            "num_mel_bins": self.one(8, 10),
            "max_source_positions": self.one(7, 16),
            "max_target_positions": self.positions,
        }

    def xglm(self) -> dict[str, Any]:
        own = {
            "d_model": self.hidden,
            "num_layers": self.layers,
            "attention_heads": self.heads,
            "ffn_dim": self.width,
            "max_position_embeddings": self.positions,
        }
        return {name: self.usual()[name] for name in ("vocab_size", "tie_word_embeddings", "pad_token_id")} | own

    def vit(self) -> dict[str, Any]:
        patch = self.one(4, 7)
        return {
            "hidden_size": self.hidden,
            "num_hidden_layers": self.layers,
            "num_attention_heads": self.heads,
            "intermediate_size": self.width,
            "image_size": self.one(28, 30, [28, 36]),
            "patch_size": self.one(patch, [patch, 5]),
            "num_channels": self.one(1, 3),
            "qkv_bias": self.flag(),
            "hidden_act": self.one("gelu", "relu"),
            "pooler_output_size": self.one(None, self.width),
            "pooler_act": self.one("tanh", "relu"),
            "num_labels": self.one(2, 7),
        }

    def stages(self) -> dict[str, Any]:
        """Stages of a convolutional network."""
        count = self.rng.randint(1, 4)
        return {
            "num_channels": self.one(1, 3),
            "hidden_sizes": [4 * self.rng.randint(1, 5) for _ in range(count)],
            "depths": [self.rng.randint(1, 3) for _ in range(count)],
            "hidden_act": self.one("gelu", "relu"),
            "num_labels": self.one(2, 7),
        }

    def convnext(self) -> dict[str, Any]:
        config = self.stages()
        return config | {
            "num_stages": len(config["depths"]),
            "patch_size": self.one(2, 4, [4, 2]),
            "layer_scale_init_value": self.one(0.0, 1e-6),
            "image_size": self.one(64, 70, [64, 81]),
        }


# of heads of 12 elements, as the class needs rows and columns of the same size
ERNIE_ROTARY = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [2, 2, 2]}

RECIPES: dict[str, Callable[[Draw], dict[str, Any]]] = {
    "gpt2": lambda d: d.gpt() | {"reorder_and_upcast_attn": d.flag()},
    "gptj": lambda d: d.gpt() | {"rotary_dim": d.one(2, d.head_dim)},
    "codegen": lambda d: d.gpt() | {"n_head": 4, "n_embd": 4 * d.head_dim, "rotary_dim": d.one(2, d.head_dim)},
    "gpt_bigcode": lambda d: d.gpt() | {"multi_query": d.flag()},
    "gpt_neo": lambda d: {
        **{k: v for k, v in d.usual().items() if k not in ("num_hidden_layers", "num_attention_heads")},
        "num_layers": 4,
        "num_heads": d.heads,
        "attention_types": d.one([[["global", "local"], 2]], [[["local"], 3], [["global"], 1]]),
        "window_size": d.window,
        "intermediate_size": d.one(None, d.width),
    },
    "opt": lambda d: (
        d.usual()
        | {
            "ffn_dim": d.width,
            "word_embed_proj_dim": d.one(d.hidden, 10, 24),
            "do_layer_norm_before": d.flag(),
            "enable_bias": d.flag(),
            "layer_norm_elementwise_affine": d.flag(),
            "_remove_final_layer_norm": d.flag(),
        }
    ),
    "gpt_neox": lambda d: (
        d.usual() | {"rotary_pct": d.one(0.25, 0.5, 1.0), "use_parallel_residual": d.flag(), "attention_bias": d.flag()}
    ),
    "bloom": lambda d: d.usual(),
    "falcon": Draw.falcon,
    "mpt": lambda d: {
        "d_model": 4 * d.head_dim,
        "n_heads": d.one(1, 2, 4),
        "n_layers": d.layers,
        "vocab_size": d.vocabulary,
        "max_seq_len": d.positions,
        "num_labels": d.one(2, 3, 7),
        "tie_word_embeddings": d.flag(),
        "pad_token_id": 1,
    },
    "biogpt": lambda d: d.usual(),
    "xglm": Draw.xglm,
    "starcoder2": lambda d: d.llama() | {"use_bias": d.flag(), "sliding_window": d.one(None, d.window)},
    # transformers 5 requires that the heads divide the hidden size even if head_dim is given
    "llama": lambda d: d.llama() | {"attention_bias": d.flag(), "mlp_bias": d.flag(), "head_dim": d.other_head_dim},
    "diffllama": lambda d: (
        d.llama()
        | {"num_attention_heads": 2 * d.heads, "num_key_value_heads": 2 * d.kv_heads, "head_dim": d.head_dim}
        | {"attention_bias": d.flag()}
    ),
    "mistral": lambda d: d.llama() | {"sliding_window": d.one(None, d.window), "head_dim": d.other_head_dim},
    "ministral": lambda d: (
        d.llama() | {"sliding_window": d.window, "head_dim": d.other_head_dim, "layer_types": d.types()}
    ),
    "qwen2": lambda d: d.llama() | d.qwen_windows(),
    "qwen3": lambda d: d.llama() | d.qwen_windows() | {"attention_bias": d.flag(), "head_dim": d.other_head_dim},
    "gemma": lambda d: d.llama() | {"head_dim": d.other_head_dim, "attention_bias": d.flag()},
    "gemma2": lambda d: (
        d.llama()
        | {
            "head_dim": d.other_head_dim,
            "attention_bias": d.flag(),
            "sliding_window": d.window,
            "layer_types": d.types(),
        }
    ),
    "gemma3_text": lambda d: (
        d.llama()
        | {
            "head_dim": d.other_head_dim,
            "attention_bias": d.flag(),
            "sliding_window": d.window,
            "layer_types": d.types(),
            "sliding_window_pattern": d.one(2, 3),
        }
    ),
    "gemma3n_text": Draw.gemma3n,
    "gemma4_text": Draw.gemma4,
    "gemma4_unified_text": lambda d: {
        name: value
        for name, value in (d.gemma4() | {"num_kv_shared_layers": 0}).items()
        if "expert" not in name and "per_layer" not in name and "moe" not in name
    },
    "step3p5": Draw.step,
    "laguna": Draw.laguna,
    "mellum": lambda d: (
        d.llama()
        | d.mixtral_experts()
        | d.sparse_types()
        | {
            "attention_bias": d.flag(),
            "head_dim": d.other_head_dim,
            "moe_intermediate_size": d.rng.randint(3, 40),
            "sliding_window": d.window,
            "layer_types": d.types(),
        }
    ),
    "afmoe": lambda d: (
        d.llama()
        | {
            "attention_bias": d.flag(),
            "head_dim": d.other_head_dim,
            "num_experts": d.experts,
            "num_experts_per_tok": d.active,
            "num_shared_experts": d.one(1, 2),
            "moe_intermediate_size": d.rng.randint(3, 40),
            "num_dense_layers": d.rng.randint(0, d.layers),
            "sliding_window": d.window,
            "global_attn_every_n_layers": d.one(2, 3),
            "layer_types": d.types(),
        }
    ),
    "cohere": lambda d: d.llama() | {"attention_bias": d.flag(), "use_qk_norm": d.flag()},
    "cohere2": lambda d: (
        d.llama()
        | {
            "attention_bias": d.flag(),
            "sliding_window": d.window,
            "layer_types": d.types(),
            "sliding_window_pattern": d.one(2, 3),
        }
    ),
    "olmo": lambda d: d.llama() | {"attention_bias": d.flag(), "clip_qkv": d.one(None, 1.0)},
    "olmo2": lambda d: d.llama() | {"attention_bias": d.flag()},
    "olmo3": lambda d: d.llama() | {"attention_bias": d.flag(), "sliding_window": d.window, "layer_types": d.types()},
    "granite": lambda d: d.llama() | {"attention_bias": d.flag(), "mlp_bias": d.flag()},
    "glm": lambda d: d.llama() | {"attention_bias": d.flag(), "head_dim": d.other_head_dim},
    "glm4": lambda d: d.llama() | {"attention_bias": d.flag(), "head_dim": d.other_head_dim},
    "phi": lambda d: d.llama() | {"qk_layernorm": d.flag(), "partial_rotary_factor": d.one(0.5, 1.0)},
    "phi3": lambda d: d.llama() | {"sliding_window": d.one(None, d.window), "pad_token_id": 1},
    "stablelm": lambda d: (
        d.llama()
        | {
            "use_qkv_bias": d.flag(),
            "qk_layernorm": d.flag(),
            "use_parallel_residual": d.flag(),
            "partial_rotary_factor": d.one(0.5, 1.0),
        }
    ),
    "nemotron": lambda d: (
        d.llama() | {"attention_bias": d.flag(), "mlp_bias": d.flag(), "head_dim": d.one(None, d.other_head_dim)}
    ),
    "smollm3": lambda d: (
        d.llama()
        | {
            "attention_bias": d.flag(),
            "mlp_bias": d.flag(),
            "use_sliding_window": d.flag(),
            "sliding_window": d.one(None, d.window),
            "no_rope_layer_interval": d.one(2, 3),
        }
    ),
    "mixtral": lambda d: d.llama() | d.mixtral_experts() | {"sliding_window": d.one(None, d.window)},
    "jetmoe": lambda d: (
        {name: value for name, value in (d.llama() | d.mixtral_experts()).items() if name != "num_attention_heads"}
        | {"kv_channels": d.other_head_dim, "activation_function": d.one("silu", "gelu", "relu")}
    ),
    "phimoe": lambda d: d.llama() | d.mixtral_experts() | {"attention_bias": d.flag(), "lm_head_bias": d.flag()},
    "qwen2_moe": lambda d: (
        d.llama()
        | d.sparse()
        | d.qwen_windows()
        | {"qkv_bias": d.flag(), "shared_expert_intermediate_size": d.rng.randint(3, 40)}
    ),
    "qwen3_moe": lambda d: (
        d.llama()
        | d.sparse()
        | {
            "attention_bias": d.flag(),
            "head_dim": d.other_head_dim,
            "use_sliding_window": d.flag(),
            "sliding_window": d.window,
        }
    ),
    "qwen3_next": lambda d: (
        d.llama() | d.linear() | d.sparse() | {"shared_expert_intermediate_size": d.rng.randint(3, 40)}
    ),
    "qwen3_5_moe_text": lambda d: (
        d.llama()
        | d.linear()
        | {
            "num_experts": d.experts,
            "num_experts_per_tok": d.active,
            "moe_intermediate_size": d.rng.randint(3, 40),
            "shared_expert_intermediate_size": d.rng.randint(3, 40),
        }
    ),
    "qwen3_5_text": lambda d: d.llama() | d.linear(),
    "qwen4_exp_text": Draw.qwen4,
    "olmo_hybrid": Draw.olmo_hybrid,
    "minimax": Draw.minimax,
    "kimi_linear": Draw.kimi,
    "bailing_hybrid": Draw.bailing,
    "olmoe": lambda d: (
        d.llama() | {"num_experts": d.experts, "num_experts_per_tok": d.active, "attention_bias": d.flag()}
    ),
    "granitemoe": lambda d: d.llama() | d.mixtral_experts() | {"attention_bias": d.flag()},
    "gpt_oss": lambda d: (
        d.llama()
        | d.mixtral_experts()
        | {
            "attention_bias": d.flag(),
            "head_dim": d.other_head_dim,
            "sliding_window": d.window,
            "layer_types": d.types(),
        }
    ),
    "mamba": lambda d: d.mamba() | d.one({}, {"intermediate_size": d.width}),
    "falcon_mamba": lambda d: d.mamba() | d.one({}, {"intermediate_size": d.width}),
    "mamba2": lambda d: (
        {k: v for k, v in d.mamba().items() if k != "time_step_rank"}
        | {"num_heads": d.heads, "head_dim": 2 * d.head_dim, "expand": 2, "n_groups": d.kv_heads}
        | {"chunk_size": d.one(3, 4, 8, 256)}
    ),
    "bamba": lambda d: d.llama() | d.hybrid() | {"attn_layer_indices": d.one([0], [0, 2]), "mamba_expand": d.one(2, 4)},
    "granitemoehybrid": lambda d: (
        d.llama()
        | {name: value for name, value in d.hybrid().items() if name != "mlp_bias"}
        | {
            "layer_types": [FULL, *(d.one("linear_attention", FULL) for _ in range(d.layers - 1))],
            "mamba_expand": d.one(2, 4),
            "num_local_experts": d.one(0, d.experts),
            "num_experts_per_tok": d.active,
            "shared_intermediate_size": d.rng.randint(3, 40),
            "position_embedding_type": d.one(None, "rope"),
        }
    ),
    "jamba": lambda d: (
        d.llama()
        | {
            "num_experts": d.one(1, d.experts),
            "num_experts_per_tok": d.active,
            "expert_layer_period": 2,
            "expert_layer_offset": d.one(0, 1),
            "attn_layer_period": d.one(1, 2, 3),
            "attn_layer_offset": 0,
            "mamba_d_state": d.one(2, 5, 16),
            "mamba_d_conv": d.one(2, 4),
            "mamba_expand": d.one(1, 2),
            "mamba_dt_rank": d.one("auto", 3),
            "mamba_conv_bias": d.flag(),
            "mamba_proj_bias": d.flag(),
        }
    ),
    "nemotron_h": lambda d: (
        {name: value for name, value in (d.llama() | d.routed()).items() if name != "num_hidden_layers"}
        | {
            "head_dim": d.head_dim,
            "mamba_num_heads": d.heads,
            "mamba_head_dim": 2 * d.head_dim,
            "n_groups": d.kv_heads,
            "ssm_state_size": d.one(2, 5, 16),
            "conv_kernel": d.one(2, 4),
            "chunk_size": d.one(3, 8, 256),
            "use_bias": d.flag(),
            "use_conv_bias": d.flag(),
            "mlp_bias": d.flag(),
            "mlp_hidden_act": d.one("relu2", "silu"),
            "moe_shared_expert_intermediate_size": d.rng.randint(3, 40),
            "moe_latent_size": d.one(None, d.rng.randint(3, 20)),
        }
        | d.one(
            {"layers_block_type": ["full_attention", *(d.one(*BLOCKS) for _ in range(d.layers))]},
            {"hybrid_override_pattern": "*" + "".join(d.one(*"M-E*") for _ in range(d.layers))},
        )
    ),
    "falcon_h1": lambda d: (
        d.llama()
        | d.hybrid()
        | {
            "mamba_expand": 2,
            "mamba_d_ssm": d.one(None, 2 * d.hidden),
            "mamba_rms_norm": d.flag(),
            "mamba_norm_before_gate": d.flag(),
            "projectors_bias": d.flag(),
        }
    ),
    "deepseek_v2": lambda d: (
        d.latent()
        | d.routed()
        | d.dense_first()
        | {"mlp_bias": d.flag(), "topk_method": d.one("greedy", "group_limited_greedy")}
    ),
    "deepseek_v3": lambda d: d.latent() | d.routed() | d.dense_first(),
    "deepseek_v32": lambda d: d.indexed() | d.routed() | d.dense_first() | d.sparse_types(),
    "glm_moe_dsa": lambda d: d.indexed() | d.routed() | d.dense_first() | d.sparse_types() | d.index_layers(),
    "mistral_large4_text": lambda d: (
        {name: value for name, value in d.indexed().items() if name != "q_lora_rank"}
        | d.routed()
        | d.dense_first()
        | d.sparse_types()
        | d.index_layers()
        | d.shared_latents()
    ),
    "axk1": lambda d: (
        d.latent()
        | d.routed()
        | {"q_lora_rank": d.rng.randint(3, 20)}
        | d.one(d.sparse_types(), {"first_k_dense_replace": d.rng.randint(0, 2), "moe_layer_freq": d.one(1, 2)})
    ),
    "axk2": lambda d: (
        d.indexed()
        | d.one(d.routed(), d.routed() | {"n_group": None, "topk_group": None})
        | d.one({}, {"gated_norm_rank": d.rng.randint(1, 9)})
        | d.one(d.sparse_types(), {"first_k_dense_replace": d.rng.randint(0, 2), "moe_layer_freq": d.one(1, 2)})
    ),
    "dots3_note_text": lambda d: d.dots(),
    "longcat_flash": lambda d: (
        {name: value for name, value in d.latent().items() if name not in ("num_hidden_layers", "intermediate_size")}
        | {"num_layers": d.layers, "q_lora_rank": d.rng.randint(3, 20), "qk_rope_head_dim": 4, "head_dim": 4}
        | {d.one("ffn_hidden_size", "intermediate_size"): d.width}
        | {d.one("expert_ffn_hidden_size", "moe_intermediate_size"): d.rng.randint(3, 40)}
        # sizes for which uniform routing gives each token a whole number of experts that compute
        | dict(zip(("n_routed_experts", "zero_expert_num", "moe_topk"), d.one(*ZERO_EXPERTS), strict=True))
    ),
    "bitnet": lambda d: d.llama() | {"attention_bias": d.flag(), "hidden_act": d.one("relu2", "silu")},
    "modernbert-decoder": lambda d: RECIPES["modernbert"](d),
    "gpt_neox_japanese": lambda d: (
        {name: value for name, value in d.usual().items() if name != "intermediate_size"}
        | {"intermediate_multiple_size": d.one(1, 2, 4)}
    ),
    "ctrl": lambda d: {
        name: value
        for name, value in (d.gpt() | {"dff": d.width}).items()
        if name not in ("n_inner", "activation_function")
    },
    "cohere_compass_text": Draw.cohere_compass,
    "muse_glimmer_text": lambda d: (
        d.llama()
        | {"attention_bias": d.flag(), "head_dim": d.other_head_dim, "hidden_activation": "silu"}
        | d.granite_windows()
    ),
    "muse_spark_text": lambda d: (
        d.llama()
        | d.mixtral_experts()
        | d.sparse_types()
        | {
            "attention_bias": d.flag(),
            "head_dim": d.other_head_dim,
            "moe_intermediate_size": d.rng.randint(3, 40),
            "moe_hidden_size": d.rng.randint(3, 40),
        }
        | d.granite_windows()
    ),
    "cosmos3_edge_text": lambda d: (
        d.llama()
        | {"attention_bias": d.flag(), "mlp_bias": d.flag(), "head_dim": d.head_dim}
        | d.multimodal_rotary(d.head_dim)
    ),
    "recurrent_gemma": lambda d: (
        {name: value for name, value in d.llama().items() if name != "max_position_embeddings"}
        | {
            "intermediate_size": 2 * d.width + d.one(0, 1),
            "attention_bias": d.flag(),
            "attention_window_size": d.window,
            "lru_width": d.one(None, d.hidden, 6 * d.heads),
            "conv1d_width": d.one(2, 3, 4),
            "hidden_activation": d.one("gelu_pytorch_tanh", "silu"),
            "block_types": d.one(["recurrent", "recurrent", "attention"], ["attention", "recurrent"], ["attention"]),
            "num_hidden_layers": d.layers + 2,  # the class needs a layer with attention
        }
    ),
    "rwkv": lambda d: {
        "vocab_size": d.vocabulary,
        "hidden_size": d.hidden,
        "num_hidden_layers": d.layers + 1,  # the initialization of one layer divides by 0
        "attention_hidden_size": d.one(None, 2 * d.width),
        "use_cache": False,  # its states have the hidden size, and no gradients
        "intermediate_size": d.one(None, d.width),
        "tie_word_embeddings": d.flag(),
    },
    "xlstm": lambda d: {
        "vocab_size": d.vocabulary,
        "hidden_size": 128,  # the class rounds states up to multiples of 64 channels
        "num_hidden_layers": d.layers,
        "num_heads": d.one(1, 2, 4),
        "qk_dim_factor": d.one(0.5, 1.0),
        "v_dim_factor": d.one(0.5, 1.0),
        "ffn_proj_factor": d.one(2.667, 0.3),
        "ffn_round_up_to_multiple_of": d.one(5, 16),
        "chunk_size": d.one(3, 8, 64),
        "weight_mode": "single",  # the initialization of fused weights fails
        "use_cache": False,  # states have no gradients
        "tie_word_embeddings": d.flag(),
    },
    "mllama_text_model": lambda d: d.llama() | {"cross_attention_layers": d.one([], [1], [2, 3], [1, 8])},
    "molmo2_text": lambda d: (
        d.llama()
        | {
            "attention_bias": d.flag(),
            "qk_norm_type": d.one("olmo", "qwen3"),
            "norm_after": d.flag(),
            "additional_vocab_size": d.rng.randint(0, 9),
            "head_dim": d.head_dim,
        }
    ),
    "ernie4_5_vl_moe_text": lambda d: (
        d.llama()
        | d.sparse_types()
        | {
            "use_bias": d.flag(),
            "moe_num_experts": d.experts,
            "moe_k": d.active,
            "moe_num_shared_experts": d.one(0, 1, 2),
            "moe_intermediate_size": [d.rng.randint(3, 40), d.rng.randint(3, 40)],
        }
        | {"hidden_size": 12 * d.heads, "rope_parameters": ERNIE_ROTARY}
    ),
    "deepseek_v4": lambda d: d.compressed(),
    "glm5_next_text": Draw.glm5_next,
    "inkling_text": Draw.inkling,
    "inkling2_text": Draw.inkling2,
    "hy_v4": lambda d: (
        d.indexed()
        | d.routed()
        | d.sparse_types()
        | d.one({}, {"hc_mult": 2})
        | {name: value for name, value in d.index_layers().items() if name == "indexer_types"}
    ),
    "glm4_moe_lite": lambda d: d.latent() | d.routed() | d.sparse_types(),
    "mistral4": lambda d: d.latent() | d.routed() | d.dense_first(),
    "minicpm3": lambda d: d.latent() | {"mlp_bias": d.flag()},
    "youtu": lambda d: d.latent(),
    "openai-gpt": lambda d: {
        "n_embd": d.hidden,
        "n_layer": d.layers,
        "n_head": d.heads,
        "n_positions": d.positions,
        "afn": d.one("gelu", "relu"),
        **{name: d.usual()[name] for name in ("vocab_size", "tie_word_embeddings", "pad_token_id", "num_labels")},
    },
    "ministral3": lambda d: d.llama() | {"sliding_window": d.one(None, d.window), "head_dim": d.other_head_dim},
    "seed_oss": lambda d: (
        d.llama()
        | {
            "attention_bias": d.flag(),
            "attention_out_bias": d.flag(),
            "mlp_bias": d.flag(),
            "head_dim": d.other_head_dim,
        }
    ),
    "arcee": lambda d: d.llama() | {"attention_bias": d.flag(), "mlp_bias": d.flag(), "head_dim": d.other_head_dim},
    "jais2": lambda d: d.llama() | {"attention_bias": d.flag(), "mlp_bias": d.flag(), "head_dim": d.other_head_dim},
    "helium": lambda d: d.llama() | {"attention_bias": d.flag(), "mlp_bias": d.flag(), "head_dim": d.head_dim},
    "exaone4": lambda d: (
        d.llama()
        | {"sliding_window": d.window, "sliding_window_pattern": d.one(2, 3)}
        | d.one({}, {"sliding_window": None, "layer_types": [FULL] * d.layers}, {"layer_types": d.types()})
    ),
    "ernie4_5": lambda d: d.llama() | {"use_bias": d.flag(), "head_dim": d.one(None, d.other_head_dim)},
    "hunyuan_v1_dense": lambda d: d.llama() | {"attention_bias": d.flag(), "head_dim": d.other_head_dim},
    "cwm": lambda d: (
        d.llama()
        | {
            "mlp_bias": d.flag(),
            "head_dim": d.other_head_dim,
            "sliding_window": d.window,
            "layer_types": d.types(),
        }
    ),
    "granite_swa": lambda d: d.llama() | {"attention_bias": d.flag(), "mlp_bias": d.flag()} | d.granite_windows(),
    "granitemoe_swa": lambda d: (
        d.llama()
        | d.mixtral_experts()
        | {"attention_bias": d.flag(), "shared_intermediate_size": d.one(0, d.rng.randint(3, 40))}
        | d.granite_windows()
    ),
    "hyperclovax": lambda d: (
        d.llama()
        | {"attention_bias": d.flag(), "mlp_bias": d.flag(), "use_post_norm": d.flag(), "head_dim": d.head_dim}
    ),
    "internlm3": lambda d: (
        d.llama() | dict.fromkeys(("attention_bias", "mlp_bias"), d.flag()) | {"head_dim": d.other_head_dim}
    ),
    "iquestcoder": lambda d: (
        d.llama() | {"attention_bias": d.flag(), "mlp_bias": d.flag(), "head_dim": d.other_head_dim}
    ),
    "emu3_text_model": lambda d: d.llama() | {"attention_bias": d.flag(), "mlp_bias": d.flag()},
    "apertus": lambda d: d.llama() | {"attention_bias": d.flag(), "hidden_act": d.one("xielu", "relu2")},
    "cohere2_moe": lambda d: (
        d.llama()
        | d.sparse_types()
        | {
            "attention_bias": d.flag(),
            "head_dim": d.other_head_dim,
            "num_experts": d.experts,
            "num_experts_per_tok": d.active,
            "num_shared_experts": d.one(0, 1, 2),
            "prefix_dense_intermediate_size": d.one(None, d.rng.randint(3, 40)),
            "prefix_dense_sliding_window_pattern": d.one(1, 2),
            "first_k_dense_replace": d.rng.randint(0, d.layers),
            "rms_norm_eps": d.one(None, 1e-5),
            "sliding_window": d.window,
            "layer_types": d.types(),
            "sliding_window_pattern": d.one(2, 3),
        }
    ),
    "kolibri1": lambda d: (
        d.llama()
        | {
            "head_dim": d.other_head_dim,
            "num_experts": d.experts,
            "num_experts_per_tok": d.active,
            "moe_intermediate_size": d.rng.randint(3, 40),
            "shared_expert_intermediate_size": d.rng.randint(3, 40),
            "sliding_window": d.window,
            "layer_types": d.types(),
        }
    ),
    "flint": lambda d: (
        d.llama()
        | d.sparse()
        | {
            "attention_bias": d.flag(),
            "head_dim": d.other_head_dim,
            "shared_expert_intermediate_size": d.rng.randint(3, 40),
            "sliding_window": d.window,
            "layer_types": d.types(),
        }
    ),
    "aria_text": lambda d: (
        d.llama()
        | {
            "attention_bias": d.flag(),
            "mlp_bias": d.flag(),
            "head_dim": d.other_head_dim,
            "moe_num_experts": d.experts,
            "moe_topk": d.active,
            "moe_num_shared_experts": d.one(1, 2),
        }
    ),
    "lfm2": lambda d: (
        d.llama()
        | d.filters()
        | {
            "block_auto_adjust_ff_dim": d.flag(),
            "block_ffn_dim_multiplier": d.one(1.0, 1.5),
            "block_multiple_of": d.one(1, 8),
        }
        | d.one({"layer_types": d.mixed(FULL)}, {"full_attn_idxs": d.one([0], [0, 1])}, {})
    ),
    "lfm2_moe": lambda d: (
        d.llama()
        | d.filters()
        | {
            "layer_types": d.mixed(FULL),
            "num_experts": d.experts,
            "num_experts_per_tok": d.active,
            "moe_intermediate_size": d.rng.randint(3, 40),
            "num_dense_layers": d.rng.randint(0, d.layers),
            "use_expert_bias": d.flag(),
        }
    ),
    "lfm3": lambda d: (
        d.llama()
        | d.filters()
        | {
            "layer_types": d.one(None if d.layers > 2 else d.mixed(FULL), d.mixed(FULL, SLIDING)),
            "sliding_window": d.window,
            "head_dim": d.other_head_dim,
            "attention_bias": d.flag(),
            "use_attention_gate": d.flag(),
            "use_sandwich_norm": d.flag(),
        }
    ),
    "vaultgemma": lambda d: (
        d.llama()
        | {
            "head_dim": d.other_head_dim,
            "attention_bias": d.flag(),
            "sliding_window": d.window,
            "layer_types": d.types(),
        }
    ),
    "nanochat": lambda d: d.llama() | {"attention_bias": d.flag()},
    "persimmon": lambda d: d.usual() | {"qk_layernorm": d.flag(), "partial_rotary_factor": d.one(0.5, 1.0)},
    "qwen3_vl_text": lambda d: d.llama() | {"attention_bias": d.flag(), "head_dim": d.other_head_dim},
    **dict.fromkeys(
        ("qwen2_vl_text", "qwen2_5_vl_text"),
        lambda d: d.llama() | d.qwen_windows() | d.multimodal_rotary(d.head_dim),
    ),
    "qwen2_5_omni_text": lambda d: (
        d.llama() | d.qwen_windows() | {"head_dim": d.other_head_dim} | d.multimodal_rotary(d.other_head_dim)
    ),
    "qwen3_omni_moe_text": lambda d: (
        d.llama()
        | d.sparse()
        | {"attention_bias": d.flag(), "head_dim": d.other_head_dim}
        | d.multimodal_rotary(d.other_head_dim)
    ),
    "glm4v_text": lambda d: d.llama() | d.multimodal_rotary(d.head_dim, d.one(0.5, 1.0)),
    "glm_ocr_text": lambda d: (
        d.llama() | {"head_dim": 2 * d.head_dim} | d.multimodal_rotary(2 * d.head_dim, d.one(0.5, 1.0))
    ),
    "glm4v_moe_text": lambda d: (
        d.llama()
        | d.routed()
        | d.dense_first()
        | {"attention_bias": d.flag(), "head_dim": 2 * d.head_dim}
        | d.multimodal_rotary(2 * d.head_dim, 0.5)
    ),
    "hunyuan_vl_text": lambda d: (
        d.llama() | {"attention_bias": d.flag(), "head_dim": d.other_head_dim} | d.multimodal_rotary(d.other_head_dim)
    ),
    "paddleocr_vl_text": lambda d: (
        d.llama() | {"use_bias": d.flag(), "head_dim": d.other_head_dim} | d.multimodal_rotary(d.other_head_dim)
    ),
    "granite4_vision_text": lambda d: d.llama() | {"attention_bias": d.flag(), "mlp_bias": d.flag()},
    "granite_docling_text": lambda d: d.llama() | {"attention_bias": d.flag(), "mlp_bias": d.flag()},
    "granitemoeshared": lambda d: (
        d.llama()
        | d.mixtral_experts()
        | {"attention_bias": d.flag(), "shared_intermediate_size": d.one(0, d.rng.randint(3, 40))}
    ),
    "flex_olmo": lambda d: (
        d.llama() | {"num_experts": d.experts, "num_experts_per_tok": d.active, "attention_bias": d.flag()}
    ),
    "qwen3_vl_moe_text": lambda d: d.llama() | d.sparse() | {"attention_bias": d.flag(), "head_dim": d.other_head_dim},
    "llama4_text": lambda d: (
        d.llama()
        | d.mixtral_experts()
        | {
            "attention_bias": d.flag(),
            "head_dim": d.other_head_dim,
            "intermediate_size_mlp": d.rng.randint(3, 40),
            "use_qk_norm": d.flag(),
            "attention_chunk_size": d.window,
            "no_rope_layer_interval": d.one(2, 3),
            "interleave_moe_layer_step": d.one(1, 2),
            "moe_layers": d.one(None, [0]),
        }
    ),
    "minimax_m2": lambda d: (
        d.llama() | d.mixtral_experts() | {"head_dim": d.other_head_dim, "rotary_dim": d.one(2, d.other_head_dim)}
    ),
    "dbrx": lambda d: (
        {
            "d_model": d.hidden,
            "n_layers": d.layers,
            "n_heads": d.heads,
            "vocab_size": d.vocabulary,
            "max_seq_len": d.positions,
            "pad_token_id": 1,
            # the class fails without these keys
            "attn_config": {"kv_n_heads": d.kv_heads, "rope_theta": 10000.0, "clip_qkv": 8},
            "ffn_config": {
                "moe_num_experts": d.experts,
                "moe_top_k": d.active,
                "ffn_hidden_size": d.width,
                "ffn_act_fn": {"name": d.one("silu", "gelu")},
            },
        }
    ),
    "minimax_m3_vl_text": lambda d: (
        d.llama()
        | d.mixtral_experts()
        | d.block_sparse()
        | d.one(d.sparse_types(), {"moe_layer_freq": [d.rng.randint(0, 1) for _ in range(d.layers)]})
        | {
            "head_dim": d.other_head_dim,
            "rotary_dim": d.one(2, d.head_dim),
            "dense_intermediate_size": d.rng.randint(3, 40),
            "shared_intermediate_size": d.rng.randint(3, 40),
        }
    ),
    "glm4_moe": lambda d: (
        d.llama()
        | d.routed()
        | d.dense_first()
        | {"attention_bias": d.flag(), "head_dim": d.other_head_dim, "use_qk_norm": d.flag()}
    ),
    "solar_open": lambda d: d.llama() | d.routed() | {"attention_bias": d.flag(), "head_dim": d.other_head_dim},
    "dots1": lambda d: (
        d.llama()
        | d.routed()
        | d.dense_first()
        | {
            "attention_bias": d.flag(),
            "head_dim": d.other_head_dim,
            "sliding_window": d.one(None, d.window),
            "max_window_layers": d.rng.randint(0, d.layers),
        }
    ),
    "hy_v3": lambda d: (
        d.llama()
        | d.sparse_types()
        | {
            "num_experts": d.experts,
            "num_experts_per_tok": d.active,
            "num_shared_experts": d.one(1, 2),
            "moe_intermediate_size": d.rng.randint(3, 40),
            "attention_bias": d.flag(),
            "mlp_bias": d.flag(),
            "head_dim": d.other_head_dim,
        }
    ),
    "exaone_moe": lambda d: (
        d.llama()
        | d.sparse_types()
        | d.dense_first()
        | {
            "num_experts": d.experts,
            "num_experts_per_tok": d.active,
            "num_shared_experts": d.one(1, 2),
            "moe_intermediate_size": d.rng.randint(3, 40),
            "sliding_window": d.window,
            "sliding_window_pattern": d.one(2, 3),
            "layer_types": d.types(),
        }
    ),
    "mimo_v2_flash": lambda d: (
        d.usual()
        | d.routed()
        | d.sparse_types()
        | {
            "num_attention_heads": 2 * d.heads,
            "num_key_value_heads": d.kv_heads,
            "attention_bias": d.flag(),
            "head_dim": 12,
            "v_head_dim": d.rng.randint(3, 20),
            "layer_types": d.types(),
        }
        | d.one({"sliding_window": d.window}, {"sliding_window_size": d.window})
    ),
    "ernie4_5_moe": lambda d: (
        d.llama()
        | {
            "use_bias": d.flag(),
            "moe_num_experts": d.experts,
            "moe_k": d.active,
            "moe_num_shared_experts": d.one(0, 1, 2),
            "moe_intermediate_size": d.rng.randint(3, 40),
            "moe_layer_start_index": d.one(0, 1),
            "moe_layer_end_index": d.one(-1, 2),
            "moe_layer_interval": d.one(1, 2),
        }
    ),
    "hunyuan_v1_moe": lambda d: (
        d.llama()
        | {
            "num_experts": d.experts,
            "moe_topk": d.active,
            "attention_bias": d.flag(),
            "head_dim": d.other_head_dim,
        }
    ),
    "bert": Draw.bert,
    "roberta": Draw.bert,
    "camembert": Draw.bert,
    "xlm-roberta": Draw.bert,
    "data2vec-text": Draw.bert,
    "ernie": lambda d: d.bert() | {"use_task_id": d.flag(), "task_type_vocab_size": d.one(1, 3, 5)},
    "megatron-bert": Draw.bert,
    "electra": lambda d: d.bert() | {"embedding_size": d.one(d.hidden, 10, 24)},
    "albert": lambda d: (
        d.bert()
        | {
            "embedding_size": d.one(d.hidden, 10, 24),
            "num_hidden_groups": d.rng.randint(1, d.layers),
            "inner_group_num": d.one(1, 2),
        }
    ),
    # the class uses 32 buckets of distances for any value in the config
    "mpnet": lambda d: d.bert() | {"relative_attention_num_buckets": d.one(32, 40)},
    "modernbert": lambda d: (
        d.usual()
        | {
            "hidden_activation": d.one("gelu", "silu"),
            "norm_bias": d.flag(),
            "attention_bias": d.flag(),
            "mlp_bias": d.flag(),
            "decoder_bias": d.flag(),
            "classifier_bias": d.flag(),
            "classifier_activation": d.one("gelu", "relu"),
            "classifier_pooling": d.one("cls", "mean"),
            "local_attention": d.one(4, 7, 16),
            "layer_types": d.types(),
            "global_attn_every_n_layers": d.one(1, 2, 3),
        }
    ),
    "deberta-v2": Draw.deberta,
    "roformer": lambda d: d.bert() | {"embedding_size": d.one(None, d.hidden, 10, 24)},
    "esm": lambda d: (
        d.usual() | {"position_embedding_type": d.one("absolute", "rotary"), "emb_layer_norm_before": d.one(None, True)}
    ),
    "nomic_bert": lambda d: (
        d.usual()
        | {"type_vocab_size": d.one(1, 2, 4), "hidden_act": d.one("silu", "gelu"), "head_dim": d.other_head_dim}
    ),
    "distilbert": Draw.distilbert,
    "vit": Draw.vit,
    "deit": Draw.vit,
    "resnet": lambda d: (
        d.stages()
        | {
            "embedding_size": d.rng.randint(4, 12),
            "layer_type": d.one("basic", "bottleneck"),
            "downsample_in_first_stage": d.flag(),
            "downsample_in_bottleneck": d.flag(),
        }
    ),
    "convnext": Draw.convnext,
    "convnextv2": lambda d: {k: v for k, v in d.convnext().items() if k != "layer_scale_init_value"},
    **dict.fromkeys(("t5", "mt5", "umt5"), Draw.t5),
    "switch_transformers": lambda d: (
        {name: value for name, value in Draw.t5(d).items() if name != "feed_forward_proj"}
        | {
            "num_experts": d.experts,
            "expert_capacity": d.one(20, 64),
            "router_bias": d.flag(),
            "num_sparse_encoder_layers": d.one(0, 1, 2),
            "num_sparse_decoder_layers": d.one(0, 1, 2),
            "dense_act_fn": d.one("relu", "gelu"),
        }
    ),
    **dict.fromkeys(("bart", "mbart", "pegasus", "blenderbot", "blenderbot-small", "m2m_100"), Draw.bart),
    "marian": Draw.marian,
    "whisper": Draw.whisper,
}


def config(model_type: str, rng: random.Random) -> dict[str, Any]:
    """A random config of a family."""
    if model_type not in RECIPES:
        raise NotImplementedError(f"no draw for {model_type}: a new family needs one here")
    return {"model_type": model_type, **RECIPES[model_type](Draw(rng))}
