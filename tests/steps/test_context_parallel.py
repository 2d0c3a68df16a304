"""GPUs that share a sequence: what they compute, send and keep in memory."""

from __future__ import annotations

from typing import Any

import pytest

from roofmodel.devices.device import Device
from roofmodel.errors import WorkloadError
from roofmodel.models import hub
from roofmodel.steps.estimate import Estimate, describe_phase, estimate, totals
from roofmodel.timing.roofline import link_bandwidth

SEQ = 4096


def train(model: str = "llama-3.1-8b", **options: Any) -> Estimate:
    settings = {"phase": "train", "dtype": "bf16", "batch": 2, "micro_batch": 1, "seq": SEQ, "engine": "megatron"}
    return estimate(hub.load(model), Device.load("h100"), **{**settings, **options})


def sent(found: Estimate) -> dict[tuple[str, str], float]:
    """Bytes that a GPU sends per layer and microbatch, by stage and operator."""
    return {
        (each.operator.stage, each.operator.name): float(each.operator.link_bytes)
        for each in found.phases[0].placed
        if each.operator.name.startswith(("attention.kv.", "attention.heads", "attention.output_heads"))
    }


@pytest.mark.parametrize(
    ("model", "kind", "layout"),
    [
        ("llama-3.1-8b", "ring", {"cp": 4}),
        ("llama-3.1-8b", "all-gather", {"cp": 4, "tp": 2, "sequence_parallel": "on"}),
        ("llama-3.1-8b", "ulysses", {"cp": 4, "pp": 2, "recompute": "full", "zero": 1}),
        ("gpt-oss-20b", "all-gather", {"cp": 2, "ep": 4, "dp": 2, "zero": 3}),
        ("deepseek-v2-lite", "ring", {"cp": 2, "ep": 2}),
    ],
)
def test_gpus_share_the_flops_and_the_activations_of_a_sequence(model: str, kind: str, layout: dict[str, Any]) -> None:
    whole = {name: value for name, value in layout.items() if name not in ("cp", "ep")}
    shared, alone = train(model, cp_kind=kind, **layout), train(model, **whole)
    cp = layout["cp"]
    if "ep" not in layout:  # experts are on other GPUs
        assert cp * shared.phases[0].cost.matmul_flops == alone.phases[0].cost.matmul_flops
    assert cp * shared.phases[0].mean_flops.model == pytest.approx(float(alone.phases[0].mean_flops.model))
    assert shared.phases[0].tokens == alone.phases[0].tokens == 2 * SEQ
    assert shared.workload.parallel.gpus == cp * alone.workload.parallel.gpus
    assert shared.memory.total == sum(shared.memory[:5]) + shared.memory.logits + shared.memory.other


def test_a_gpu_keeps_a_part_of_the_tokens_and_shards_the_optimizer_with_the_others() -> None:
    shared, alone = train(cp=4, dp=2, zero=1), train(dp=8, zero=1, batch=8)
    assert 4 * shared.memory.kept == alone.memory.kept
    assert shared.memory.optimizer == alone.memory.optimizer  # sharded over dp × cp
    (exchange,) = (each for each in shared.phases[0].exchanges if each.operator.name == "gradients.reduce_scatter")
    assert exchange.operator.collective is not None
    assert exchange.operator.collective.gpus == 8


def test_a_ring_sends_keys_and_values_forward_and_again_with_their_gradients_backward() -> None:
    """K and V of 1024 tokens, 8 heads × 128, bf16: 2 × 1024 × 1024 × 2 = 4 MiB, in three steps around four GPUs."""
    steps = 3 * 4 * 2**20
    names = [("forward", "ring"), ("recomputation", "ring"), ("backward", "ring.grad")]
    assert sent(train(cp=4)) == {(stage, f"attention.kv.{name}"): steps for stage, name in names}
    names = [("forward", "all_gather"), ("recomputation", "all_gather"), ("backward", "all_gather.grad")]
    gathered = sent(train(cp=4, cp_kind="all-gather"))
    assert gathered == {(stage, f"attention.kv.{name}"): steps for stage, name in names}


def test_ulysses_sends_three_quarters_of_queries_keys_values_and_outputs() -> None:
    """1024 tokens of 32 query and 2 × 8 key-value heads × 128 in bf16 are 12 MiB, outputs of 32 heads 8 MiB."""
    found = sent(train(cp=4, cp_kind="ulysses"))
    heads, outputs = 0.75 * 12 * 2**20, 0.75 * 8 * 2**20
    assert found == {
        ("forward", "attention.heads.alltoall"): heads,
        ("forward", "attention.output_heads.alltoall"): outputs,
        ("backward", "attention.output_heads.alltoall.grad"): outputs,
        ("backward", "attention.heads.alltoall.grad"): heads,
    }


def test_attention_hides_a_ring_and_no_all_gather() -> None:
    ring, gather = train(cp=4), train(cp=4, cp_kind="all-gather")
    exposed = [totals(each.phases[0])["expected_communication_exposed_seconds"] for each in (ring, gather)]
    assert exposed[0] < exposed[1]
    alone = train(cp=4, overlap="none")
    assert ring.phases[0].expected
    assert alone.phases[0].expected
    assert ring.phases[0].bound_seconds <= ring.phases[0].expected.value < alone.phases[0].expected.value


def test_parts_of_a_sequence_are_beside_tensor_parallel_gpus() -> None:
    """With 8 tensor-parallel GPUs, each GPU of a ring is on another node of 8, behind one port of 50 GB/s."""
    device = Device.load("h100")
    rates = {}
    for tp in (1, 8):
        ring = next(e for e in train(cp=2, tp=tp).phases[0].exchanges if e.operator.name == "attention.kv.ring")
        rates[tp] = link_bandwidth(ring.operator.collective, device)
    assert device.inside is not None
    assert device.network is not None
    assert rates == {1: device.inside.bandwidth / 2, 8: device.network.bandwidth / 2}


@pytest.mark.parametrize(
    ("model", "options", "why"),
    [
        ("llama-3.1-8b", {"cp": 4, "seq": 4100}, "no multiple of 8; try seq=4096"),
        ("llama-3.1-8b", {"cp": 2, "attention": "eager"}, "try attention"),
        ("llama-3.1-8b", {"cp": 2, "tp": 8, "cp_kind": "ulysses"}, "try cp_kind"),
        ("gpt-oss-20b", {"cp": 2}, "try cp_kind"),
        ("deepseek-v3.2", {"cp": 2}, "try cp=1"),
        ("bert-base-uncased", {"cp": 2, "seq": 512}, "try cp=1"),
    ],
)
def test_a_sequence_that_gpus_cannot_share_is_an_error(model: str, options: dict[str, Any], why: str) -> None:
    with pytest.raises(WorkloadError, match=why):
        train(model, **options)


def test_lengths_are_those_of_the_whole_sequence() -> None:
    """The longest sequence is one that the GPUs can share: a multiple of 2 × cp."""
    found = train(cp=4, dp=8, zero=1, batch=8)
    assert describe_phase(found.phases[0]) == f"train: 1 × {SEQ} tokens"
    assert found.phases[0].step.reach == SEQ
    assert found.largest_context is not None
    assert found.largest_context > SEQ
    assert found.largest_context % 8 == 0
