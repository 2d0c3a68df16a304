"""The shard of one GPU: counts derived by hand, compared with Megatron-LM's papers, and properties."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from itertools import combinations
from typing import Any

import numpy as np
import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st

from roofmodel.counting import passes, phases
from roofmodel.counting.operator import Collective, Cost, Operator
from roofmodel.counting.workload import Parallel, Workload
from roofmodel.models import hub
from roofmodel.models.architecture import Architecture, kinds_of_stages, pipeline_runs, stage
from roofmodel.models.config import architecture
from roofmodel.models.layers import MoE
from roofmodel.numbers.algebra import plain
from roofmodel.options.values import Phase

GPT = {
    "model_type": "gpt2", "n_embd": 8, "n_layer": 3, "n_head": 4, "n_inner": 12, "vocab_size": 11, "n_positions": 16,
}  # fmt: skip
LLAMA = {
    "model_type": "llama", "hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 4, "head_dim": 3,
    "num_key_value_heads": 2, "intermediate_size": 12, "vocab_size": 10, "max_position_embeddings": 16,
}  # fmt: skip
MIXTRAL = LLAMA | {"model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2}
MAMBA = {"model_type": "mamba", "hidden_size": 8, "num_hidden_layers": 2, "state_size": 2, "vocab_size": 10}


def counted(config: dict[str, Any], phase: Phase, batch: int = 2, seq: int = 3, **gpus: Any) -> dict[str, Operator]:
    """The operators of one GPU by name; in fp16."""
    work = Workload((phase,), batch, seq, attention="eager", parallel=Parallel(**gpus))
    return {op.name: op for op in phases.operators(architecture(config, "x", "x"), work.steps()[0])}


def exchanged(operators: Sequence[Operator]) -> list[Operator]:
    return [op for op in operators if op.collective]


# --- By hand: B = 2, T = 3, D = 8, fp16 -------------------------------------------------------------


def test_tensor_parallelism_shards_heads_widths_and_vocabulary() -> None:
    ops = counted(GPT, "prefill", tp=2)
    assert ops["attention.qkv"].matmul_flops == 2 * (2 * 3) * 8 * (3 * 8 // 2)
    assert ops["attention.scores"].matmul_flops == 2 * (2 * 2) * 3 * 3 * 2  # 2 of 4 heads, of size 2
    assert ops["attention.output"].matmul_flops == 2 * (2 * 3) * (8 // 2) * 8
    assert ops["mlp.up"].matmul_flops == ops["mlp.down"].matmul_flops == 2 * (2 * 3) * 8 * (12 // 2)
    assert ops["head.logits"].matmul_flops == 2 * 2 * 8 * 6  # 11 words padded to 12
    assert ops["norm.attention"].vector_flops == counted(GPT, "prefill")["norm.attention"].vector_flops


def test_a_layer_has_an_all_reduce_after_attention_and_one_after_the_mlp() -> None:
    """Each of n GPUs sends 2 (n - 1) / n of the activations: n = 4, 2 x 3 x 8 elements of 2 bytes."""
    ops = exchanged(list(counted(GPT, "prefill", tp=4).values()))
    assert [(op.name, op.count) for op in ops] == [
        ("embedding.all_reduce", 1), ("attention.all_reduce", 3), ("mlp.all_reduce", 3), ("head.all_gather", 1),
    ]  # fmt: skip
    assert [op.cost.link_bytes for op in ops[:3]] == [2 * 3 * (2 * 3 * 8 * 2) // 4] * 3
    assert ops[3].cost.link_bytes == 3 * (2 * 12 * 2) // 4  # logits of the last position: 3 of 12 per GPU
    assert all(op.cost.bytes_read == 2 * 3 * 8 * 2 for op in ops[:3])


def test_parallel_branches_share_one_all_reduce() -> None:
    gptj = {"model_type": "gptj", "n_embd": 8, "n_layer": 3, "n_head": 2, "rotary_dim": 2, "vocab_size": 12}
    ops = counted(gptj, "prefill", tp=2)
    assert [name for name, op in ops.items() if op.collective and op.layers] == ["mlp.all_reduce"]
    assert ops["residual.mlp_branches"].spec == "a[b t d] + m[b t d] -> m[b t d]"
    trained = [op.name for op in exchanged(list(counted(gptj, "train", tp=2).values())) if op.layers]
    assert trained == ["mlp.all_reduce", "attention.replicate.grad"]  # both read the same norm


def test_branches_with_output_norms_are_summed_separately() -> None:
    gemma = LLAMA | {"model_type": "gemma2", "sliding_window": 4}
    names = list(counted(gemma, "prefill", tp=2))
    for branch in ("attention", "mlp"):
        assert names.index(f"{branch}.all_reduce") + 1 == names.index(f"norm.{branch}_output")


def test_too_few_key_value_heads_are_replicated() -> None:
    two, four = (counted(LLAMA, "decode", tp=tp) for tp in (2, 4))
    for ops, heads in ((two, 2), (four, 1)):  # query heads per GPU, with one key-value head
        assert ops["attention.k"].matmul_flops == 2 * 2 * 8 * 3
        assert ops["attention.q"].matmul_flops == 2 * 2 * 8 * 3 * heads
        assert ops["attention.scores"].cost.cache_bytes == 2 * 2 * (3 + 1) * 3
    work = Workload(("decode",), 2, 3, parallel=Parallel(tp=4))
    need = phases.peak_memory(architecture(LLAMA, "x", "x"), work)
    assert need.kv_cache == 2 * 2 * (2 * (3 + 1) * 3) * 2  # 2 layers, keys and values, B S h, 2 bytes


def test_state_space_channels_are_sharded_and_selection_parameters_are_all_reduced() -> None:
    """16 channels, 4 per GPU; time steps of rank 1, B and C of size 2."""
    ops = counted(MAMBA, "prefill", tp=4)
    assert ops["ssm.input"].matmul_flops == 2 * (2 * 3) * 8 * (2 * 16 // 4)
    assert ops["ssm.select.all_reduce"].cost.link_bytes == 2 * 3 * (2 * 3 * (1 + 2 + 2) * 2) // 4
    assert [name for name, op in ops.items() if op.collective and op.layers] == [
        "ssm.select.all_reduce", "ssm.all_reduce",
    ]  # fmt: skip


def test_experts_sharded_within_a_replica_need_no_all_to_all() -> None:
    """2 x 3 tokens with 2 of 4 experts each are 12 pairs. Each GPU has half of the experts and half of their width."""
    ops, whole = counted(MIXTRAL, "prefill", tp=4, ep=2), counted(MIXTRAL, "prefill")
    assert ops["mlp.expert_gate_up"].matmul_flops == 2 * (12 // 2) * 8 * (2 * 12 // 2)
    assert 4 * ops["mlp.expert_down"].matmul_flops == whole["mlp.expert_down"].matmul_flops
    assert ops["mlp.router"].cost == whole["mlp.router"].cost
    touched = 4 * (1 - (1 - 2 / 4) ** 6) / 2  # of the GPU's 2 experts
    assert ops["mlp.expert_down"].cost.weight_bytes == pytest.approx(touched * (12 // 2) * 8 * 2)
    assert [name for name, op in ops.items() if op.collective and op.layers] == [
        "attention.all_reduce",
        "mlp.all_reduce",
    ]


def test_experts_sharded_over_replicas_exchange_token_expert_pairs() -> None:
    """4 replicas with 2 x 3 tokens each, one expert per GPU: a GPU sends 12 of the 48 pairs and receives 12."""
    ops = counted(MIXTRAL, "prefill", batch=8, dp=4, ep=4, experts_span_replicas=True)
    assert ops["mlp.expert_gate_up"].matmul_flops == 2 * 12 * 8 * (2 * 12)
    pairs = 12 * 8 * 2  # D = 8 elements of 2 bytes each
    for name in ("mlp.dispatch", "mlp.collect"):
        assert ops[name].cost.link_bytes == 3 * pairs // 4
    touched = 1 - (1 - 2 / 4) ** 24  # of the GPU's one expert, by the tokens of all replicas
    assert ops["mlp.expert_down"].cost.weight_bytes == pytest.approx(touched * 12 * 8 * 2)


def test_a_token_is_sent_once_to_each_gpu_that_has_any_of_its_experts() -> None:
    """2 replicas with 2 x 3 tokens each, 2 of 4 experts per token: C(2, 2) of C(4, 2) choices are all on one GPU."""
    ops = counted(MIXTRAL, "prefill", batch=4, dp=2, ep=2, experts_span_replicas=True)
    for name in ("mlp.dispatch", "mlp.collect"):
        assert ops[name].cost.link_bytes == pytest.approx(6 * 8 * 2 * (1 - 1 / 6))


@pytest.mark.parametrize(("experts", "active"), [(128, 8), (256, 8), (8, 2), (4, 4), (60, 4)])
@pytest.mark.parametrize("gpus", [2, 4])
def test_destinations_are_those_of_all_choices_of_experts(experts: int, active: int, gpus: int) -> None:
    here = experts // gpus
    expected = (gpus - 1) * (1 - math.comb(experts - here, active) / math.comb(experts, active))
    collective = Collective("alltoall", gpus, experts=experts, active=active)
    assert collective.destinations(gpus) == pytest.approx(expected)
    assert collective.sent(active * 1000) == pytest.approx(1000 * expected)  # a token of 1000 bytes


def test_tokens_are_sent_in_the_format_of_the_gemms_and_their_outputs_in_that_of_the_activations() -> None:
    arch = architecture(MIXTRAL, "x", "x")
    layout = Parallel(dp=4, ep=4, experts_span_replicas=True)
    work = Workload(("prefill",), 8, 3, dtype="fp8", activations="bf16", kv="bf16", parallel=layout)
    ops = {op.name: op for op in phases.operators(arch, work.steps()[0])}
    assert 2 * ops["mlp.dispatch"].cost.link_bytes == ops["mlp.collect"].cost.link_bytes == 3 * 12 * 8 * 2 / 4


def test_each_replica_has_a_part_of_the_batch_and_gradients_are_all_reduced() -> None:
    ops, alone = counted(GPT, "train", batch=6, dp=3), counted(GPT, "train", batch=2)
    parameters = passes.parameters(architecture(GPT, "x", "x"), list(counted(GPT, "forward").values()))
    (exchange,) = exchanged(list(ops.values()))
    assert exchange.cost.link_bytes == Fraction(2 * 2 * (parameters * 2), 3)
    assert {name: op.cost for name, op in ops.items() if op is not exchange} == {n: o.cost for n, o in alone.items()}


def test_gradients_of_experts_are_summed_over_the_replicas_that_have_them() -> None:
    """Each GPU has 2 of 4 experts, replicated on one other GPU; all other weights are replicated on all four GPUs."""
    ops = counted(MIXTRAL, "train", batch=8, dp=4, ep=2, experts_span_replicas=True)
    experts = 2 * (2 * 3 * 8 * 12)  # 2 layers; gate, up and down of 2 experts
    attention = 8 * 4 * 3 * 2 + 2 * 8 * 2 * 3  # q and output of 4 heads, k and v of 2
    others = 2 * (attention + 8 * 4 + 2 * 8) + 2 * 10 * 8 + 8  # routers, norms; two tables of 10 rows, the final norm
    assert ops["gradients.expert_all_reduce"].cost.link_bytes == 2 * (experts * 2) // 2
    assert ops["gradients.all_reduce"].cost.link_bytes == 2 * 3 * (others * 2) // 4
    one_gpu_per_expert = counted(
        MIXTRAL, "train", batch=8, dp=4, ep=4, experts_span_replicas=True
    )  # each expert is on one GPU
    assert "gradients.expert_all_reduce" not in one_gpu_per_expert
    experts_in_each_replica = counted(MIXTRAL, "train", batch=8, tp=2, ep=2, dp=4)  # each replica has all experts
    assert [name for name in experts_in_each_replica if name.startswith("gradients.")] == ["gradients.all_reduce"]


# --- Stages of layers --------------------------------------------------------------------------------


def test_a_stage_sends_activations_forward_and_gradients_backward() -> None:
    first, middle, last = (counted(GPT, "train", batch=6, pp=3, stage=stage) for stage in range(3))
    assert [op.name for op in exchanged(list(first.values()))] == ["stage.send", "gradients.tied_all_reduce"]
    assert [op.name for op in exchanged(list(middle.values()))] == ["stage.send", "stage.receive.grad"]
    assert [op.name for op in exchanged(list(last.values()))] == ["stage.receive.grad", "gradients.tied_all_reduce"]
    assert middle["stage.send"].cost.link_bytes == 6 * 3 * 8 * 2  # B T D, 2 bytes
    assert middle["stage.receive.grad"].cost.link_bytes == 6 * 3 * 8 * 2
    assert first["gradients.tied_all_reduce"].cost.link_bytes == 2 * (11 * 8 * 2) // 2  # the table, over two GPUs
    assert "embedding.token" in first
    assert {"head.logits", "norm.final"} <= last.keys() - middle.keys()


def test_a_token_table_that_no_head_reuses_is_on_one_stage_only() -> None:
    base = GPT | {"architectures": ["GPT2Model"]}
    first, last = (counted(base, "train", batch=6, pp=3, stage=stage) for stage in (0, 2))
    assert [op.name for op in exchanged([*first.values(), *last.values()])] == ["stage.send", "stage.receive.grad"]


def test_gpus_of_a_stage_send_one_shard_each_and_all_gather_the_rest() -> None:
    ops = {op.name: op for op in counted(GPT, "train", pp=3, tp=2, stage=1).values() if op.name.startswith("stage.")}
    rows = 2 * 3 * 8 * 2  # B T D, 2 bytes
    assert {name: op.cost.link_bytes for name, op in ops.items()} == {
        "stage.all_gather": rows // 2, "stage.send": rows // 2, "stage.split.grad": rows // 2,
        "stage.receive.grad": rows // 2,
    }  # fmt: skip
    assert next(iter(counted(GPT, "prefill", pp=3, tp=2, stage=1))) == "stage.all_gather"


@given(pp=st.integers(1, 7), vpp=st.integers(1, 3), phase=st.sampled_from(["prefill", "decode", "forward", "train"]))
@settings(deadline=None, max_examples=40)
def test_the_operators_of_all_stages_add_up_to_those_of_one_gpu(pp: int, vpp: int, phase: Phase) -> None:
    """Microbatches repeat the step: parameters are read for each and updated once."""
    arch = architecture(MIXTRAL | {"num_hidden_layers": 21, "model_type": "mixtral"}, "x", "x")

    def total(stages: int, parts: int) -> list[Any]:
        costs = [
            op.total
            for stage in range(stages)
            for op in phases.operators(
                arch,
                Workload((phase,), 8, 3, micro_batch=2, parallel=Parallel(pp=stages, vpp=parts, stage=stage)).steps()[
                    0
                ],
            )
            if not op.collective
        ]
        summed = sum(costs, Cost())
        return [summed.matmul_flops, summed.vector_flops, plain(summed.bytes), plain(summed.weight_bytes)]

    assert total(pp, vpp) == pytest.approx(total(1, 1), rel=1e-12)


def test_layers_are_split_over_stages_in_order_and_evenly() -> None:
    assert [list(part) for part in pipeline_runs(7, 3, 1)] == [[0, 1], [2, 3, 4], [5, 6]]
    assert [len(part) for part in pipeline_runs(61, 8, 1)] == [7, 7, 8, 8, 8, 8, 8, 7]  # vLLM's split of DeepSeek-V3
    second = stage(architecture(GPT | {"n_layer": 8}, "x", "x"), 1, 2, 2).stack
    assert [indices for _, indices in second.kinds] == [(2, 3, 6, 7)]  # the second and the last of 4 parts


@pytest.mark.parametrize(("pp", "vpp"), [(1, 1), (2, 1), (3, 1), (5, 1), (21, 1), (2, 2), (3, 7)])
@pytest.mark.parametrize("period", [1, 2, 3, 21])
def test_stages_with_the_same_layers_are_one_kind(pp: int, vpp: int, period: int) -> None:
    """Every `period`-th layer has full attention; the layer types are compared as the config lists them."""
    types = ["sliding_attention" if layer % period else "full_attention" for layer in range(21)]
    config = LLAMA | {"model_type": "gemma2", "num_hidden_layers": 21, "sliding_window": 4, "layer_types": types}
    runs = pipeline_runs(21, pp, vpp)
    layers = [[layer for run in runs[which::pp] for layer in run] for which in range(pp)]
    kinds = [(sorted(types[layer] for layer in own), 0 in own, 20 in own) for own in layers]
    expected = {kinds.index(kind): kinds.count(kind) for kind in kinds}
    assert kinds_of_stages(architecture(config, "x", "x"), pp, vpp) == expected


# --- Published ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("recompute", "times"), [("none", 4), ("full", 6)])
def test_a_layer_has_two_all_reduces_forward_and_two_backward_in_training(recompute: Any, times: int) -> None:
    """Megatron-LM, arXiv 1909.08053, section 3: "two all-reduces in the forward path and two in the backward path"."""
    arch = hub.load("gpt2-xl")
    work = Workload(("train",), 4, 1024, recompute=recompute, parallel=Parallel(tp=5))
    found = [op for op in exchanged(phases.operators(arch, work.steps()[0])) if op.layers]
    assert sum(op.count for op in found) == 48 * times
    assert {op.cost.link_bytes for op in found} == {2 * 4 * (4 * 1024 * 1600 * 2) // 5}


@pytest.mark.parametrize("sequence", [False, True])
@pytest.mark.parametrize("attention", ["eager", "flash"])
def test_activation_memory_equals_the_paper(attention: Any, sequence: bool) -> None:
    """Korthikanti et al., arXiv 2205.05198, eq. 3: s b h (10 + 24 / t + 5 a s / h t) bytes a layer and GPU; eq. 4:
    s b h (34 + 5 a s / h) / t under sequence parallelism. Outside the layers (section 4.3): the dropout mask of the
    embedding, the inputs of the final norm and of the logits; `logits` has the log-softmax.
    """
    s, b, h, a, t = 1000, 4, 1600, 25, 5
    sequence_shards = t if sequence else 1  # GPUs that share the operators outside GEMMs
    work = Workload(("train",), b, s, attention=attention, parallel=Parallel(tp=t, sequence=sequence))
    core = Fraction(5 * a * s * s * b, t) if attention == "eager" else 0
    outside = Fraction((1 + 2 + 2) * s * b * h, sequence_shards)
    kept = phases.peak_memory(hub.load("gpt2-xl"), work).kept
    assert kept == 48 * (s * b * h * (Fraction(10, sequence_shards) + Fraction(24, t)) + core) + outside


def test_sequence_parallelism_replaces_all_reduce_by_all_gather_and_reduce_scatter() -> None:
    """Korthikanti et al., section 4.2.2: an all-gather before attention and the MLP and a reduce-scatter after each.
    Both together send the bytes of an all-reduce. The backward pass has the reverse, and one more all-gather before the
    gradients of weights.
    """
    arch = hub.load("gpt2-xl")
    found: dict[bool, dict[str, list[Operator]]] = {}
    for sequence in (False, True):
        work = Workload(("train",), 4, 1000, parallel=Parallel(tp=5, sequence=sequence))
        for op in exchanged(phases.operators(arch, work.steps()[0])):
            if op.layers:
                found.setdefault(sequence, {}).setdefault(op.stage, []).append(op)
    names = {
        stage: [(op.collective.name, op.count) for op in ops if op.collective] for stage, ops in found[True].items()
    }
    both = [("all_gather", 48), ("reduce_scatter", 48)] * 2
    assert names == {"forward": both, "recomputation": [("all_gather", 48)] * 2, "backward": both}
    sent = {
        which: {stage: sum(op.count * op.cost.link_bytes for op in ops) for stage, ops in stages.items()}
        for which, stages in found.items()
    }
    assert sent[True]["forward"] == sent[False]["forward"] == sent[True]["backward"] == sent[False]["backward"]
    assert sent[True]["recomputation"] == sent[True]["forward"] / 2


def test_sequence_parallelism_shards_work_outside_gemms() -> None:
    """2 sequences of 4 tokens of 8 elements on 2 GPUs: each GPU has 2 tokens of each sequence."""
    ops, alone = counted(GPT, "train", seq=4, tp=2, sequence=True), counted(GPT, "train", seq=4)
    for name in ("norm.attention", "residual.mlp", "norm.final", "embedding.add_position", "norm.mlp.grad"):
        assert 2 * ops[name].vector_flops == alone[name].vector_flops
    assert (
        ops["embedding.position"].bytes_of(ops["embedding.position"].writes[0]) == 2 * 8 * 2
    )  # positions of its tokens
    for name in ("attention.qkv", "mlp.down", "mlp.up.grad_weight"):
        assert 2 * ops[name].matmul_flops == alone[name].matmul_flops
    # with an odd number of tokens, one GPU has one token more
    assert counted(GPT, "train", seq=5, tp=2, sequence=True)["residual.mlp"].sizes["u"] == 3


# --- Properties --------------------------------------------------------------------------------------


def total(arch: Architecture, phase: Phase, **gpus: Any) -> Cost:
    work = Workload((phase,), 4, 6, context=2, parallel=Parallel(**gpus))
    return sum((op.total for op in phases.operators(arch, work.steps()[0])), Cost())


@given(
    st.integers(1, 4), st.integers(1, 3), st.integers(1, 3), st.integers(1, 5), st.sampled_from(["prefill", "train"])
)
@settings(deadline=None, max_examples=30)
def test_the_matmul_flops_of_all_gpus_add_up_to_those_of_one(
    tp: int, heads: int, groups: int, width: int, phase: Phase
) -> None:
    config = LLAMA | {
        "num_attention_heads": tp * heads * groups, "num_key_value_heads": tp * heads, "intermediate_size": tp * width,
        "vocab_size": 10 * tp,
    }  # fmt: skip
    arch = architecture(config, "x", "x")
    assert tp * total(arch, phase, tp=tp).matmul_flops == total(arch, phase).matmul_flops


@given(st.sampled_from([1, 2, 4]), st.sampled_from([GPT, LLAMA, MIXTRAL, MAMBA]))
@settings(deadline=None, max_examples=20)
def test_the_weights_of_all_gpus_include_every_weight_and_some_replicas(tp: int, config: dict[str, Any]) -> None:
    arch = architecture(config, "x", "x")
    step = Workload(("prefill",)).steps()[0]
    sharded = step._replace(parallel=Parallel(tp=tp))
    assert tp * phases.weight_bytes(arch, sharded) >= phases.weight_bytes(arch, step)


@pytest.mark.parametrize("config", [GPT, LLAMA, MIXTRAL, MAMBA], ids=lambda config: str(config["model_type"]))
@pytest.mark.parametrize("phase", ["prefill", "decode", "train"])
def test_ints_arrays_and_symbols_agree(config: dict[str, Any], phase: Phase) -> None:
    arch, degrees, symbol = (
        architecture(config, "x", "x"),
        np.array([2, 4]),
        sympy.Symbol("n", positive=True, integer=True),
    )
    arrays, symbolic = total(arch, phase, tp=degrees), total(arch, phase, tp=symbol)
    for i, tp in enumerate(degrees):
        exact = total(arch, phase, tp=int(tp))
        for count in ("matmul_flops", "vector_flops", "bytes", "weight_bytes", "cache_bytes", "link_bytes"):
            expected = float(plain(getattr(exact, count)))
            assert np.broadcast_to(plain(getattr(arrays, count)), 2)[i] == pytest.approx(expected, rel=1e-12)
            assert float(sympy.sympify(getattr(symbolic, count)).subs(symbol, int(tp))) == pytest.approx(
                expected, rel=1e-12
            )


def test_with_fewer_experts_than_gpus_a_token_is_sent_once_for_each_of_its_experts() -> None:
    """Eight experts on 64 GPUs, all of them chosen: a token has one of them on its own GPU in 8 of 64 cases."""
    assert Collective("alltoall", 64, experts=8, active=8).destinations(64) == pytest.approx(8 * 63 / 64)


@pytest.mark.parametrize("places", [2, 4, 8])
@pytest.mark.parametrize(("groups", "active_groups", "active"), [(4, 2, 2), (4, 2, 3), (2, 1, 4), (4, 3, 4)])
def test_a_token_of_a_router_with_groups_is_sent_to_the_places_of_all_its_choices(
    places: int, groups: int, active_groups: int, active: int
) -> None:
    """8 experts: the mean over all choices of groups, then of experts of these groups, which are equally likely."""
    reached = []
    for chosen in combinations(range(groups), active_groups):
        of_groups = [expert for expert in range(8) if expert * groups // 8 in chosen]
        reached += [len({expert * places // 8 for expert in one}) for one in combinations(of_groups, active)]
    collective = Collective("alltoall", places, experts=8, active=active, groups=groups, active_groups=active_groups)
    # a token's own place is one of all, whatever its experts are
    expected = sum(reached) / len(reached) * (places - 1) / places
    assert collective.destinations(places) == pytest.approx(expected)


def test_a_token_of_deepseek_v3_has_experts_on_at_most_4_nodes() -> None:
    """Section 2.1.2 of arXiv 2412.19437; with 8 nodes, most tokens would have experts on more of them."""
    arch = hub.load("deepseek-ai/DeepSeek-V3")
    moe = next(part for part in arch.stack.parts if isinstance(part, MoE))
    limited = Collective("alltoall", 64, experts=moe.experts, active=moe.active, groups=8, active_groups=4)
    assert (moe.groups, moe.active_groups) == (8, 4)
    assert 3.1 < limited.destinations(8) < 4 * 7 / 8
    assert limited._replace(groups=1, active_groups=1).destinations(8) > 4.5


@pytest.mark.parametrize("name", ["moonshotai/Kimi-K2-Instruct", "deepseek-ai/DeepSeek-V2-Lite", "Mixtral-8x7B-v0.1"])
def test_other_routers_choose_among_all_experts(name: str) -> None:
    moe = next(part for part in hub.load(name).stack.parts if isinstance(part, MoE))
    assert moe.groups == moe.active_groups == 1


@pytest.mark.parametrize("model", ["mixtral-8x7b-v0.1", "deepseek-v2-lite"])
@pytest.mark.parametrize("ep", [1, 2])
def test_sharded_sequences_leave_the_gemms_of_experts_as_they_are(model: str, ep: int) -> None:
    """Megatron-LM requires sequence parallelism with experts and tensor parallelism: an all-gather and a reduce-scatter
    take the place of each all-reduce, with as many bytes; norms and residual adds are divided."""
    plain, sharded = (
        phases.operators(
            hub.load(model), Workload(("train",), 2, 512, parallel=Parallel(tp=2, ep=ep, sequence=on)).steps()[0]
        )
        for on in (False, True)
    )

    def flops(operators: Any, kind: str) -> Any:
        return sum(op.count * op.matmul_flops for op in operators if op.kind == kind)

    for kind in ("gemm", "grouped_gemm"):
        assert flops(sharded, kind) == flops(plain, kind) > 0
    norms = [
        sum(op.total.bytes for op in each if op.kind == "norm" and op.group == "norm") for each in (plain, sharded)
    ]
    assert norms[1] < 0.6 * norms[0]
