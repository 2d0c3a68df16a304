"""Replicas that shard gradients and weights: what they send, what hides it, and their memory."""

from __future__ import annotations

from math import ceil
from typing import Any

import pytest

import roofmodel
from roofmodel.devices.device import Device
from roofmodel.errors import WorkloadError
from roofmodel.models import hub
from roofmodel.models.config import architecture
from roofmodel.steps.estimate import Estimate, estimate
from roofmodel.steps.placed import Placed

LAYERS, LAYER, ROOT = 48, 30_740_800, 1_557_611_200 - 48 * 30_740_800
"""gpt2-xl: layers, parameters of one (12 × 1600² + 13 × 1600), and those of tables and the last norm."""


def train(model: str = "gpt2-xl", hw: str = "h100", **options: Any) -> Estimate:
    settings = {"phase": "train", "dtype": "bf16", "dp": 8, "batch": 8, "engine": "torch", **options}
    return estimate(hub.load(model), Device.load(hw), **settings)


def exchanges(found: Estimate, stage: str) -> dict[str, Placed]:
    return {
        each.operator.name: each
        for each in found.phases[0].placed
        if each.operator.stage == stage and each.operator.name.startswith("shards.")
    }


def test_layers_are_gathered_twice_and_reduced_once_in_every_microbatch() -> None:
    """Each of n GPUs sends (n - 1) / n of a tensor. The root stays gathered until the end of the backward pass."""
    found = train(zero=3, micro_batch=1, batch=16)
    forward, backward = exchanges(found, "forward"), exchanges(found, "backward")
    assert {name: each.operator.count for name, each in forward.items()} == {
        "shards.root_all_gather": 2, "shards.all_gather": 2 * LAYERS,
    }  # fmt: skip
    assert {name: each.operator.count for name, each in backward.items()} == {
        "shards.all_gather": 2 * LAYERS, "shards.reduce_scatter": 2 * LAYERS, "shards.root_reduce_scatter": 2,
    }  # fmt: skip
    assert forward["shards.all_gather"].operator.link_bytes == 2 * LAYER * 7 // 8
    assert forward["shards.root_all_gather"].operator.link_bytes == pytest.approx(2 * ROOT * 7 / 8, rel=1e-6)
    assert backward["shards.reduce_scatter"].operator.link_bytes == 2 * LAYER * 7 // 8
    assert not exchanges(train(zero=2), "forward")


def test_layers_that_stay_gathered_are_gathered_once() -> None:
    assert "shards.all_gather" not in exchanges(train(zero=3, no_reshard=True), "backward")


def test_weights_in_fp32_are_gathered_in_the_compute_format_and_reduced_in_fp32() -> None:
    """FSDP2's MixedPrecisionPolicy(param_dtype=bf16, reduce_dtype=fp32): 4 bytes per parameter each of weights and
    gradients, and 8 of the optimizer, whose master weights are the shards."""
    found = train(zero=3, weights="fp32")
    assert exchanges(found, "forward")["shards.all_gather"].operator.link_bytes == 2 * LAYER * 7 // 8
    assert exchanges(found, "backward")["shards.reduce_scatter"].operator.link_bytes == 4 * LAYER * 7 // 8
    shard = ceil((LAYERS * LAYER + ROOT) / 8)
    assert (found.memory.weights, found.memory.gradients, found.memory.optimizer) == (4 * shard, 4 * shard, 8 * shard)
    gemms = [each.operator for each in found.phases[0].placed if each.operator.name == "mlp.up"]
    assert {each.widths.weights.name for each in gemms} == {"bf16"}


def test_groups_of_replicas_reduce_their_shards_between_groups() -> None:
    """Two groups of four: a reduce-scatter among neighbors, then an all-reduce of a quarter among every fourth."""
    backward = exchanges(train(hsdp=4), "backward")
    scatter, reduce = (backward[f"shards.{name}"].operator for name in ("reduce_scatter", "all_reduce"))
    assert (scatter.collective.gpus, scatter.collective.rank_stride) == (4, 1)
    assert (reduce.collective.gpus, reduce.collective.rank_stride) == (2, 4)
    assert scatter.link_bytes == 2 * LAYER * 3 // 4
    assert reduce.link_bytes == 2 * (LAYER // 4) * 2 * 1 // 2  # an all-reduce sends twice (n - 1) / n


def test_experts_on_several_replicas_are_sharded_over_their_copies() -> None:
    """Mixtral's 8 experts on 8 of 16 replicas: two copies, each of which has half of the shards."""
    found = train("Mixtral-8x7B-v0.1", dp=16, batch=16, ep=8, zero=3)
    forward = exchanges(found, "forward")
    gather = forward["shards.expert_all_gather"].operator
    assert (gather.collective.gpus, gather.collective.rank_stride) == (2, 8)
    expert = 3 * 4096 * 14336  # gate, up, down
    assert gather.link_bytes == 2 * expert // 2
    others = 46_702_792_704 - 32 * 8 * expert
    assert found.memory.weights == pytest.approx(2 * (32 * expert / 2 + others / 16), rel=1e-3)


def test_computation_hides_all_exchanges_but_the_first_gather_and_the_last_reduction() -> None:
    """Eight H100s compute a layer of long sequences for longer than its exchanges take."""
    phase = train("llama-3.1-8b", zero=3, seq=8192, recompute="full", weights="fp32").phases[0]
    found = {(each.operator.stage, each.operator.name): each for each in phase.placed}
    exposed = sum(
        each.expected.value
        for (stage, name), each in found.items()
        if name.startswith("shards.") and (stage, name) != ("backward", "shards.all_gather")
    )  # one occurrence each: the root and the first layer, gathered and reduced
    sent = sum(each.operator.count * each.expected.value for each in phase.exchanges)
    assert sent - phase.replicas.hidden.value == pytest.approx(exposed)
    alone = train("llama-3.1-8b", zero=3, seq=8192, recompute="full", weights="fp32", overlap="none").phases[0]
    assert alone.replicas.hidden.value == 0
    assert alone.expected.value > phase.expected.value


def test_slow_links_hide_no_more_than_computation_takes() -> None:
    phase = train("llama-3.2-1b", "h100-pcie", zero=3, seq=64).phases[0]
    computed = sum(
        each.operator.count * each.expected.value for each in phase.placed
        if each.operator.collective is None and each.operator.stage != "optimizer"
    )  # fmt: skip
    assert phase.replicas.hidden.value == pytest.approx(computed)


def test_the_bound_of_a_step_sends_what_the_stages_of_zero_send() -> None:
    """Rajbhandari et al., section 7: stages 1 and 2 send as much as an all-reduce, stage 3 half as much again."""
    sent = {stage: train(zero=stage, seq=64).phases[0].cost.link_bytes for stage in (0, 1, 2, 3)}
    assert sent[1] == pytest.approx(sent[0], rel=1e-6)
    assert sent[2] == pytest.approx(sent[0], rel=1e-6)
    assert sent[3] + 2 * ROOT * 7 / 8 == pytest.approx(1.5 * sent[0], rel=1e-6)  # the root is gathered once


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_a_stage_needs_less_memory_than_the_one_before(stage: int) -> None:
    assert train(zero=stage).memory.total < train(zero=stage - 1, data_parallel=None).memory.total


def test_memory_of_all_gpus_is_the_sum_over_the_stages() -> None:
    found = train("gpt2", dp=4, pp=2, batch=8, zero=3)
    first, second = (
        roofmodel.estimate("gpt2", "h100", phase="train", dtype="bf16", dp=4, pp=2, batch=8, zero=3, engine="torch")
        .to_dict()["memory"][key] for key in ("total", "all_gpus")
    )  # fmt: skip
    assert first == found.memory.total
    assert 4 * first < second == found.memory_of_all < 8 * first


def test_fsdp_is_another_name_of_the_third_stage() -> None:
    (named, staged) = (
        roofmodel.estimate("gpt2", "a100", phase="train", dp=2, batch=2, **options).to_dict()
        for options in ({"fsdp": True}, {"zero": 3})
    )
    assert named == staged
    assert named["workload"]["fsdp"] is True
    assert (named["workload"]["hsdp"], named["workload"]["data_parallel"]) == (None, None)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fsdp": True, "zero": 1}, "fsdp means zero=3, but zero=1 is given"),
        ({"hsdp": 3}, "hsdp=3 does not divide the 8 replicas; try hsdp=2, 4, 8"),
        ({"zero": 2, "data_parallel": "ddp"}, 'exchange them layer by layer; remove the option, or try overlap="none"'),
        ({"zero": 4}, "zero is 4; it must be a whole number from 0 to 3"),
        ({"fsdp": "on"}, "fsdp is 'on'; it must be True or False"),
    ],
)
def test_options_that_contradict_each_other_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(WorkloadError) as error:
        train(**options)
    assert message in str(error.value)


def test_options_without_effect_have_a_note() -> None:
    notes = [*map(str, train(no_reshard=True).notes), *map(str, train(dp=1, batch=1, hsdp=2).notes)]
    assert "no_reshard is ignored: only zero=3 gathers weights" in notes
    assert "hsdp is ignored: no replicas (dp=1) that could shard optimizer state" in notes


# --- Memory against torch ---------------------------------------------------------------------------


def tracked_peak(config: dict[str, Any], replicas: int, group: int | None, batch: int, reshards: bool) -> int:
    """The peak bytes of a step with Adam on one of several replicas, by PyTorch's tracker of FSDP2."""
    import torch
    import torch.distributed as dist
    from torch.distributed._tools.fsdp2_mem_tracker import FSDPMemTracker
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.testing._internal.distributed.fake_pg import FakeStore
    from transformers import AutoConfig, AutoModelForCausalLM

    settings = AutoConfig.for_model(**config, bos_token_id=0, eos_token_id=0)
    model = AutoModelForCausalLM.from_config(settings, attn_implementation="sdpa").train()
    dist.init_process_group("fake", rank=0, world_size=replicas, store=FakeStore())
    try:
        shape = (replicas,) if group is None else (replicas // group, group)
        mesh = init_device_mesh("cpu", shape, mesh_dim_names=("groups", "shards")[-len(shape) :])
        for layer in model.transformer.h:
            fully_shard(layer, mesh=mesh, reshard_after_forward=reshards)
        fully_shard(model, mesh=mesh)
        optimizer = torch.optim.Adam(model.parameters(), foreach=False)
        tokens = torch.zeros(batch, 512, dtype=torch.long)
        tracker = FSDPMemTracker(model, optimizer)
        tracker.track_inputs((tokens,))
        with tracker:
            for is_first in (True, False):  # the first step creates gradients and states
                optimizer.zero_grad(set_to_none=False)
                model(tokens, labels=tokens, use_cache=False).loss.backward()
                optimizer.step()
                if is_first:
                    tracker.reset_mod_stats()
        return int(sum(each["Total"] for each in tracker.get_tracker_snapshot("peak").values()))
    finally:
        dist.destroy_process_group()


@pytest.mark.parametrize(
    ("replicas", "group", "width", "layers", "batch", "reshards"),
    [
        (4, None, 1024, 4, 1, True),
        (4, None, 1024, 4, 1, False),
        (8, 2, 768, 6, 1, True),
        (8, None, 256, 6, 4, True),
    ],
)
def test_the_memory_of_a_sharded_step_is_within_5_percent_of_torch(
    replicas: int, group: int | None, width: int, layers: int, batch: int, reshards: bool
) -> None:
    """GPT-2 in fp32; wide layers and short batches have their peak in the buffers, others in the activations."""
    config = {
        "model_type": "gpt2", "n_embd": width, "n_layer": layers, "n_head": 4, "n_positions": 512, "vocab_size": 1000,
        "activation_function": "gelu_pytorch_tanh", "attn_pdrop": 0.0, "embd_pdrop": 0.0, "resid_pdrop": 0.0,
    }  # fmt: skip
    arch = architecture({**config, "architectures": ["GPT2LMHeadModel"]}, "gpt2", "gpt2")
    found = estimate(
        arch, Device.load("a100"), phase="train", dtype="fp32", batch=batch * replicas, dp=replicas, seq=512,
        engine="torch", zero=3, hsdp=group, no_reshard=not reshards,
    )  # fmt: skip
    expected = tracked_peak(config, replicas, group, batch, reshards)
    assert found.memory.total == pytest.approx(expected, rel=0.05)
    unsharded = found.memory.total - found.memory.other
    assert unsharded < 0.95 * expected or width < 512  # the buffers matter
