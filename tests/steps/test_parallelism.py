"""Models on several GPUs in estimates, sweeps and derivations."""

from __future__ import annotations

import contextlib
import re
from dataclasses import replace
from itertools import product
from math import comb
from typing import Any

import pytest

import roofmodel
from roofmodel import WorkloadError
from roofmodel.counting.operator import Collective
from roofmodel.devices.device import Device
from roofmodel.devices.parts import Link
from roofmodel.engines.engine import Engine
from roofmodel.explain.crossover import _OperatorsBySize, crossover
from roofmodel.models import hub
from roofmodel.models.config import architecture
from roofmodel.options.values import Phase
from roofmodel.steps.estimate import estimate, totals
from roofmodel.steps.options import workload
from roofmodel.steps.phase import estimates_by_stage
from roofmodel.timing.roofline import place, route
from tests.operations import operations

LLAMA, MIXTRAL, RESNET = (hub.load(name) for name in ("Meta-Llama-3-8B", "Mixtral-8x7B-v0.1", "resnet-50"))
GPT2, H100 = hub.load("gpt2"), Device.load("h100")
OF_SIX = {"num_hidden_layers": 2, "num_attention_heads": 6, "head_dim": 8, "intermediate_size": 24}


def test_rates_are_of_all_gpus_and_counts_and_memory_of_one() -> None:
    one, all_four = (estimate(LLAMA, H100, phase="decode", batch=batch, dp=dp) for batch, dp in ((2, 1), (8, 4)))
    alone, shared = one.phases[0], all_four.phases[0]
    assert shared.cost == alone.cost
    assert all_four.memory == one.memory
    assert totals(shared)["bound_tokens_per_second"] == 4 * totals(alone)["bound_tokens_per_second"]
    assert all_four.parameters == one.parameters == 8_030_261_248


def test_parameters_are_of_the_model_and_weights_of_one_gpu() -> None:
    found = roofmodel.estimate("Meta-Llama-3-8B", "h100", tp=8, phase="decode").to_dict()
    assert found["model"]["parameters"] == 8_030_261_248
    # per layer: 1/8 of q, output, k, v, gate, up, down; two norms. In all: 32 layers, 1/8 of two tables, final norm
    layer = (2 * 4096 * 4096 + 2 * 4096 * 8 * 128 + 3 * 4096 * 14336) // 8 + 2 * 4096
    assert found["memory"]["weights"] == 2 * (32 * layer + 2 * 128256 // 8 * 4096 + 4096)
    assert {name: found["workload"][name] for name in ("tp", "dp", "pp", "ep")} == {"tp": 8, "dp": 1, "pp": 1, "ep": 1}


def test_collectives_are_bound_by_one_direction_of_the_link() -> None:
    found = roofmodel.estimate("Meta-Llama-3-8B", "h100", tp=4, phase="prefill", batch=8).to_dict()["phases"][0]
    (op,) = (op for op in found["ops"] if op["name"] == "attention.all_reduce")
    assert op["bound"] == "communication"
    assert op["bound_seconds"] == 2 * 3 * (8 * 1024 * 4096 * 2) / 4 / 450e9
    assert op["expected_seconds"] > op["bound_seconds"]
    collectives = [op for op in found["ops"] if op["kind"] == "communication"]
    totals = found["totals"]
    assert totals["communication_seconds"] == pytest.approx(
        sum(op["count"] * op["bound_seconds"] for op in collectives)
    )
    assert totals["expected_communication_seconds"] == pytest.approx(
        sum(op["count"] * op["expected_seconds"] for op in collectives)
    )


def test_a_collective_names_every_link_that_it_uses() -> None:
    """16 GPUs use links within and between nodes; one GPU per node, or a send to the next node, only between nodes."""
    for collective, names in (
        (Collective("all_reduce", 8), ["nvlink"]),
        (Collective("all_reduce", 16), ["nvlink", "infiniband"]),
        (Collective("all_reduce", 2, rank_stride=8), ["infiniband"]),
        (Collective("send", 2, rank_stride=8), ["infiniband"]),
    ):
        path = route(collective, H100)
        assert path is not None
        assert [link.name for link in path.links(H100)] == names


def test_a_bridge_connects_only_two_gpus() -> None:
    """H100 NVL, both directions together: 600 GB/s within a pair, 128 GB/s (PCIe) between more GPUs."""
    for tp, bandwidth in ((2, 300e9), (4, 64e9)):
        found = roofmodel.estimate("Meta-Llama-3-8B", "h100-nvl", tp=tp, phase="prefill").to_dict()["phases"][0]
        (op,) = (op for op in found["ops"] if op["name"] == "mlp.all_reduce")
        assert op["bound_seconds"] == pytest.approx(2 * (tp - 1) * (1024 * 4096 * 2) / tp / bandwidth)


def test_gpus_of_two_sockets_communicate_over_the_link_between_sockets() -> None:
    """Four cards per socket on PCIe 4.0; between the sockets a UPI link of 10.4 GT/s, 20.8 GB/s per direction."""
    links = {
        "nvlink_bridge": Link("nvlink_bridge", 600e9, joins=2),
        "pcie": Link("pcie", 64e9, joins=4),
        "sockets": Link("sockets", 41.6e9),
    }
    device = replace(Device.load("a100-pcie-80gb"), links=links)
    for gpus, bandwidth, name in ((2, 300e9, "nvlink_bridge"), (4, 32e9, "pcie"), (8, 20.8e9, "sockets")):
        found = route(Collective("all_reduce", gpus), device)
        assert found is not None
        assert found.bandwidth == bandwidth
        assert [link.name for link in found.links(device)] == [name]
    assert {link.name: link.parameters for link in links.values()} == {
        "nvlink_bridge": "any", "pcie": "pcie", "sockets": "sockets",
    }  # fmt: skip


def test_a_device_without_links_has_no_communication_bound_and_a_note() -> None:
    found = roofmodel.estimate("Meta-Llama-3-8B", "tpu-v4", tp=4, dtype="bf16", phase="prefill").to_dict()
    (op,) = (op for op in found["phases"][0]["ops"] if op["name"] == "mlp.all_reduce")
    assert op["bound"] == "memory"
    assert op["expected_seconds"] is None
    assert any("has no link between GPUs" in note for note in found["notes"])


def test_more_gpus_than_a_node_has_give_a_note() -> None:
    """The note names the network in the device's file; without a network, there is a warning."""
    notes = [*map(str, estimate(LLAMA, H100, tp=16).notes)]
    assert any("between nodes of 8 GPUs: infiniband, 50 GB/s per GPU" in note for note in notes)
    (warning,) = (
        note for note in map(str, estimate(LLAMA, Device.load("h100-nvl"), tp=16).notes) if "one node of 8" in note
    )
    assert warning.startswith("warning: 16 GPUs")


@pytest.mark.parametrize(
    ("hw", "options", "name", "bandwidth"),
    [  # H100 SXM, per direction and GPU: 450 GB/s within a node of 8, 50 GB/s between nodes
        ("h100", {"tp": 8}, "mlp.all_reduce", 450e9),
        ("h100", {"dp": 8}, "gradients.all_reduce", 450e9),
        ("h100", {"tp": 8, "dp": 2}, "mlp.all_reduce", 450e9),  # within a node
        ("h100", {"tp": 8, "dp": 2}, "gradients.all_reduce", 50e9),  # one GPU of each node
        ("h100", {"tp": 4, "dp": 2}, "gradients.all_reduce", 450e9),
        # every second GPU of a node, so four ports; a ring sends 7/8, of which half leaves the node
        ("h100", {"tp": 2, "dp": 8}, "gradients.all_reduce", 4 * 50e9 * (7 / 8) / (1 / 2)),
        ("h100", {"dp": 64}, "gradients.all_reduce", 8 * 50e9 * (63 / 64) / (7 / 8)),
        (
            "h100",
            {"dp": 16},
            "gradients.all_reduce",
            450e9 * (15 / 16) / (7 / 8),
        ),  # limited by the links within the node
        # nodes with 4, 4 and 2 GPUs: the last has two ports, and of the ring's 9/10 two thirds leave it
        ("h100", {"tp": 2, "dp": 10}, "gradients.all_reduce", 2 * 50e9 * (9 / 10) / (2 / 3)),
        ("h100", {"dp": 9}, "gradients.all_reduce", 50e9 * (8 / 9) / (1 / 2)),  # one GPU on the second node
        ("h100", {"tp": 8, "pp": 2}, "stage.send", 50e9),
        ("h100", {"tp": 2, "pp": 4}, "gradients.tied_all_reduce", 450e9),
        ("h100", {"tp": 4, "pp": 4}, "gradients.tied_all_reduce", 50e9),
        ("h100", {"tp": 2, "pp": 4}, "stage.send", 450e9),
        ("h100", {"tp": 2, "pp": 8}, "stage.send", 50e9),  # some sends leave the node
        ("a100-pcie-80gb", {"tp": 2, "dp": 2}, "mlp.all_reduce", 300e9),  # bridge of a pair
        ("a100-pcie-80gb", {"tp": 2, "dp": 2}, "gradients.all_reduce", 32e9),  # between pairs
        ("a100-pcie-80gb", {"dp": 2}, "gradients.all_reduce", 300e9),
        # mesh of the DGX-1V, 25 GB/s per NVLink and direction: one for GPUs 0 and 1, four each for 0-3, six for 0-7
        ("v100", {"dp": 2}, "gradients.all_reduce", 25e9),
        ("v100", {"dp": 4}, "gradients.all_reduce", 4 * 25e9),
        ("v100", {"dp": 8}, "gradients.all_reduce", 6 * 25e9),
        ("v100", {"tp": 2, "dp": 2}, "mlp.all_reduce", 25e9),
    ],
)
def test_collectives_use_the_links_of_their_ranks(
    hw: str, options: dict[str, int], name: str, bandwidth: float
) -> None:
    arch = GPT2 if "tied" in name else LLAMA
    device, step = Device.load(hw), workload(arch, phase="train", batch=2880, **options)[0].steps()[0]
    stages = estimates_by_stage(arch, device, step, Engine.load("torch", (("launch", "graph"),)))
    found = [one for phase in stages for one in phase.placed if one.operator.name == name]
    for one in found:
        sent = float(one.operator.cost.link_bytes)
        assert one.placement.link_seconds == pytest.approx(sent / bandwidth)
        assert one.expected is not None
        assert one.expected.value > sent / bandwidth
    assert found


def test_tokens_for_experts_on_another_node_leave_through_the_port_of_each_gpu() -> None:
    """A token crosses once to the other node, which has 16 of the 32 experts, through its GPU's port of 50 GB/s."""
    found = estimate(hub.load("gpt-oss-20b"), H100, phase="prefill", batch=16, dp=16, ep=16).phases[0].placed
    placed = next(one for one in found if one.operator.name == "mlp.dispatch")
    needed = 1 - comb(16, 4) / comb(32, 4)  # 4 experts per token
    assert placed.placement.link_seconds == pytest.approx(1024 * 2880 * 2 * needed / 50e9)


@pytest.mark.parametrize(
    ("model", "hw", "options", "measured"),
    [
        # vLLM with attention data parallelism and split experts, over all batches; SGLang with DeepEP on 4 nodes
        ("qwen3-30b-a3b", "rtx-pro-6000-server", {"dp": 2, "ep": 2, "phase": "decode", "seq": 1024}, 16_800),
        ("deepseek-v3", "h100", {"dp": 32, "ep": 32, "phase": "prefill", "seq": 4096, "dtype": "fp8"}, 201_000),
    ],
)
def test_no_measured_rate_of_split_experts_beats_the_bound(
    model: str, hw: str, options: dict[str, Any], measured: float
) -> None:
    arch, device = hub.load(model), Device.load(hw)
    found = (estimate(arch, device, batch=batch, **options).phases[0] for batch in (128, 1024, 2048))
    assert max(phase.tokens / phase.bound_seconds for phase in found) > measured


def test_groups_that_do_not_fill_a_node_are_not_split_over_two_nodes() -> None:
    """One group of 6 GPUs per node of 8, so replicas communicate between nodes."""
    arch = architecture({**OF_SIX, "model_type": "llama", "vocab_size": 96, "hidden_size": 48}, "six", "six")
    for options, name, between_nodes in (
        ({"tp": 6, "dp": 2}, "mlp.all_reduce", False), ({"tp": 6, "dp": 2}, "gradients.all_reduce", True),
        ({"tp": 3, "dp": 2}, "gradients.all_reduce", False), ({"tp": 3, "dp": 3}, "gradients.all_reduce", True),
    ):  # fmt: skip
        found = estimate(arch, H100, phase="train", batch=6, seq=8, **options).phases[0].exchanges
        collective = next(one.operator.collective for one in found if one.operator.name == name)
        assert collective is not None
        path = route(collective, H100)
        assert path is not None
        assert path.leaves is between_nodes


def test_experts_on_small_nodes_send_most_rows_between_nodes() -> None:
    """Of 12 GPUs, 8 are on one node and 4 on the other. Each of the 4 sends 8 of its 11 parts to the other node."""
    path = route(Collective("alltoall", 12), H100)
    assert path is not None
    assert path.bandwidth == pytest.approx(50e9 * 11 / 8)


def test_nodes_with_one_gpu_each_communicate_over_the_network() -> None:
    device = replace(H100, links={"ethernet": Link("ethernet", 25e9, beyond=1)})
    (placed,) = (
        one for one in estimate(GPT2, device, phase="train", batch=2, dp=2).phases[0].exchanges
        if one.operator.name == "gradients.all_reduce"
    )  # fmt: skip
    assert placed.placement.link_seconds == pytest.approx(float(placed.operator.cost.link_bytes) / 12.5e9)


def test_collectives_over_different_links_have_no_common_equation() -> None:
    found = crossover("llama-3.1-70b", H100, over="gpus", phase="train", dp=4, batch=32)
    assert [(change.value, change.equation, change.exact) for change in found.subject.changes] == [(8, None, None)]
    several_links = crossover("Meta-Llama-3-8B", H100, over="seq", phase="train", tp=8, dp=4, batch=4)
    assert any("collectives use several links" in note for note in map(str, several_links.notes))


def test_full_recomputation_repeats_the_all_gathers() -> None:
    """One is before the recomputed GEMMs, one before the gradients of their weights."""

    def gathers(recompute: str) -> int:
        options = {"phase": "train", "tp": 2, "recompute": recompute, "sequence_parallel": "on"}
        found = estimate(GPT2, H100, **options).phases[0].of_stage("recomputation")
        return sum(one.operator.count for one in found if one.operator.name == "mlp.all_gather")

    assert (gathers("none"), gathers("selective"), gathers("full")) == (12, 12, 24)


def test_an_indivisible_sequence_gives_a_note() -> None:
    notes = [*map(str, estimate(GPT2, H100, phase="train", tp=4, seq=7, sequence_parallel="on").notes)]
    assert "7 tokens are not divisible by tp=4: a GPU with 2 tokens is counted" in notes


def test_crossover_finds_the_change_of_the_bound_at_the_node_size() -> None:
    """2 to 32 GPUs shard 32 heads; with more than 8 the communication is between nodes."""
    found = crossover("llama-2-7b-hf", H100, over="gpus", phase="prefill", seq=4096)
    for gpus in (4, 8, 16, 32):
        phase = estimate(hub.load("llama-2-7b-hf"), H100, tp=gpus, phase="prefill", seq=4096).phases[0]
        seconds: dict[str, float] = {}
        for placed in phase.placed:
            seconds[placed.placement.bound] = seconds.get(placed.placement.bound, 0) + placed.seconds
        assert found.dominant is not None
        bound_at_size = [found.dominant.first, *(bound for size, bound in found.dominant.changes if size <= gpus)][-1]
        assert bound_at_size == max(seconds, key=lambda ceiling: seconds[ceiling])


def test_the_communication_time_of_a_crossover_weights_bytes_between_nodes_as_the_estimate() -> None:
    """A crossover assumes one link for all bytes of a phase; its time equals the sum in the estimate."""
    options = {"phase": "train", "batch": 64, "tp": 8, "dp": 2, "seq": 1024}
    phase = estimate(LLAMA, H100, **options).phases[0]
    counted = _OperatorsBySize(LLAMA, H100, options, "seq")
    all_operators = range(len(counted.at(1024)))
    summed = place(counted.cost_of(all_operators)(1024), H100, "fp16", counted.collective_of(all_operators)(1024))
    assert summed.link_seconds == pytest.approx(sum(p.operator.count * p.placement.link_seconds for p in phase.placed))


@pytest.mark.parametrize(
    ("arch", "options", "message"),
    [
        (LLAMA, {"tp": 3}, "tp=3: meta-llama/Meta-Llama-3-8B has 32 heads and 8 key-value heads and 14336 columns"),
        (LLAMA, {"tp": 7}, "try tp=1, 2, 4, 8, 16, 32"),
        (
            MIXTRAL,
            {"tp": 2, "ep": 3},
            "ep=3 does not divide 8 experts; try ep=1, 2",
        ),
        # 4 expert-parallel GPUs need tp of at least 4, or 4 replicas
        (MIXTRAL, {"ep": 4}, "ep=4 needs 4 GPUs; try ep=1 or tp=4, 8, 16, 32 or dp=4 with a batch divisible by 4"),
        (MIXTRAL, {"tp": 2, "dp": 8, "ep": 16, "batch": 8}, "cannot be sharded evenly; try ep=1, 2, 4, 8"),
        (MIXTRAL, {"dp": 3, "ep": 3, "batch": 3}, "8 experts, which cannot be sharded evenly"),
        (RESNET, {"tp": 2}, "try dp=2"),
    ],
)
def test_layouts_that_cannot_be_sharded_are_refused_with_alternatives(
    arch: Any, options: dict[str, int], message: str
) -> None:
    with pytest.raises(WorkloadError) as caught:
        estimate(arch, H100, **options)
    assert message in str(caught.value)


def test_the_suggested_values_work() -> None:
    advised = 0
    for tp, dp, ep in product(range(1, 5), range(1, 5), range(1, 9)):
        given = {"tp": tp, "dp": dp, "ep": ep, "batch": 12}
        try:
            workload(MIXTRAL, **given)
        except WorkloadError as error:
            advice = str(error).rpartition("; ")[2]
            for alternative in advice.split(" or "):
                options = re.findall(r"(ep|tp|dp)=([\d, ]*\d)", alternative)
                for numbers in product(*(map(int, values.split(", ")) for _, values in options)):
                    changed = dict(zip((name for name, _ in options), numbers, strict=True))
                    workload(MIXTRAL, **given | changed | ({"batch": changed["dp"]} if "dp" in changed else {}))
                    advised += 1
    assert advised > 100


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"phase": "train"}, "sequence_parallel is ignored: no tensor parallelism (tp=1)"),
        ({"phase": "prefill", "tp": 2}, "sequence_parallel is ignored: only training shards sequences"),
    ],
)
def test_sequence_parallelism_shards_sequences_in_tensor_parallel_training(
    options: dict[str, Any], message: str
) -> None:
    assert message in map(str, estimate(LLAMA, H100, sequence_parallel="on", **options).notes)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"phase": "train"}, "zero is ignored: no replicas (dp=1) that could shard optimizer state"),
        ({"phase": "prefill"}, "zero is ignored: only training has optimizer state"),
    ],
)
def test_zero_shards_the_optimizer_state_of_replicas(options: dict[str, Any], message: str) -> None:
    assert message in map(str, estimate(LLAMA, H100, zero=1, **options).notes)


def test_zero_needs_a_known_stage_and_replicas_in_several_processes() -> None:
    with pytest.raises(WorkloadError, match="zero is -1; it must be a whole number from 0 to 3"):
        estimate(LLAMA, H100, phase="train", zero=-1)
    with pytest.raises(WorkloadError, match="updates all weights on the first GPU; try zero=0"):
        estimate(GPT2, H100, phase="train", dp=2, batch=2, zero=1, data_parallel="dataparallel")


@pytest.mark.parametrize("data_parallel", ["ddp", "sequential"])
def test_zero_shortens_the_optimizer_step_in_an_estimate_and_in_a_sweep(data_parallel: str) -> None:
    options: dict[str, Any] = {"phase": "train", "dp": 4, "batch": 16, "data_parallel": data_parallel}
    rows = roofmodel.sweep("gpt2-medium", "a100", zero=[0, 1], **options).to_frame()
    for row in rows.itertuples():
        one = roofmodel.estimate("gpt2-medium", "a100", zero=row.zero, **options).to_dict()
        assert one["workload"]["zero"] == row.zero
        assert row.expected_seconds == pytest.approx(one["phases"][0]["totals"]["expected_seconds"])
        assert row.memory_optimizer == one["memory"]["optimizer"]
    assert rows.expected_seconds[1] < rows.expected_seconds[0]
    assert rows.memory_optimizer[1] == -(-rows.memory_optimizer[0] // (4 * 12)) * 12  # whole parameters


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("mamba-130m-hf", "has parts other than attention, MLPs and experts"),
        ("t5-small", "is an encoder-decoder"),
        ("bert-base-uncased", "has a head that computes more than logits"),
        ("vit-base-patch16-224", "reads images"),
    ],
)
def test_sequences_that_cannot_be_sharded_are_refused(name: str, message: str) -> None:
    with pytest.raises(WorkloadError) as caught:
        estimate(hub.load(name), H100, phase="train", tp=2, sequence_parallel="on")
    assert message in str(caught.value)
    assert 'try sequence_parallel="off"' in str(caught.value)


def test_a_sweep_accepts_values_of_sequence_parallelism() -> None:
    options = {"phase": "train", "tp": 4, "batch": 4}
    found = roofmodel.sweep("gpt2-medium", "h100", seq=[7, 512], sequence_parallel=["off", "on"], **options).to_frame()
    for _, row in found.iterrows():
        one = estimate(hub.load("gpt2-medium"), H100, seq=row.seq, sequence_parallel=row.sequence_parallel, **options)
        assert row.bound_seconds == pytest.approx(one.phases[0].bound_seconds, rel=1e-12)
        assert row.memory_total == one.memory.total


def test_experts_of_a_model_without_any_are_ignored_with_a_note() -> None:
    assert "ep is ignored: meta-llama/Meta-Llama-3-8B has no experts" in [
        *map(str, estimate(LLAMA, H100, tp=4, ep=2).notes)
    ]


def test_rows_of_a_sweep_equal_estimates_and_prices_are_of_all_gpus() -> None:
    found = roofmodel.sweep("Meta-Llama-3-8B", "h100", tp=[1, 3, 4], dp=[1, 2], batch=[1, 8], phase="decode", price=2)
    frame = found.to_frame().set_index(["tp", "dp", "batch"])
    assert len(frame) == 3 * 2 * 2
    for (tp, dp, batch), row in frame.iterrows():
        if tp == 3 or batch % dp:
            assert "cannot be sharded evenly" in row["note"]
            continue
        one = estimate(LLAMA, H100, phase="decode", tp=tp, dp=dp, batch=batch)
        assert row["bound_seconds"] == pytest.approx(one.phases[0].bound_seconds, rel=1e-12)
        assert row["memory_total"] == one.memory.total
        rate = totals(one.phases[0])["bound_tokens_per_second"]
        assert row["bound_dollars_per_million_tokens"] == pytest.approx(2 * tp * dp / 3600 * 1e6 / rate)


def test_a_collective_is_derived() -> None:
    text = roofmodel.explain(
        "Meta-Llama-3-8B", "h100", tp=4, batch=8, phase="decode", op="mlp.all_reduce"
    ).to_markdown()
    assert "tensor-parallel GPUs" in text
    assert "98 304 B" in text  # 2 x 3/4 of 8 x 4096 elements of 2 bytes


def test_replicas_that_do_not_communicate_have_a_bridge_per_pair() -> None:
    # bridges connect pairs of H100 NVL; two pairs with half of the batch each take as long as one pair
    def totals(name: str, hw: str, **options: Any) -> dict[str, Any]:
        return dict(roofmodel.estimate(name, hw, **options).to_dict()["phases"][0]["totals"])

    one_pair = totals("llama-2-13b-hf", "h100-nvl", phase="prefill", tp=2, batch=8)
    two_pairs = totals("llama-2-13b-hf", "h100-nvl", phase="prefill", tp=2, dp=2, batch=16)
    assert two_pairs["bound_seconds"] == one_pair["bound_seconds"]
    assert two_pairs["tokens_per_second"] == 2 * one_pair["tokens_per_second"]
    trained = totals("llama-2-13b-hf", "h100-nvl", phase="train", tp=2, dp=2, batch=16)
    alone = totals("llama-2-13b-hf", "h100-nvl", phase="train", tp=2, batch=8)
    assert trained["communication_seconds"] > alone["communication_seconds"]


def test_a_layout_within_a_node_gets_no_network_note() -> None:
    def notes(**options: Any) -> list[str]:
        return [*map(str, estimate(hub.load("llama-3.1-70b"), Device.load("h100"), **options).notes)]

    assert not any("nodes of 8" in note for note in notes(tp=8, dp=2, batch=2, phase="decode"))
    assert any("nodes of 8" in note for note in notes(tp=8, dp=2, batch=2, phase="train"))


@pytest.mark.parametrize("size", ["tp", "dp", "pp", "ep"])
@pytest.mark.parametrize("model", ["gpt2", "mixtral-8x7b-v0.1", "deepseek-v3"])
def test_a_billion_gpus_are_refused_at_once(size: str, model: str) -> None:
    arch = hub.load(model)
    with contextlib.suppress(WorkloadError):  # models without experts ignore ep
        operations(lambda: estimate(arch, H100, **{size: 10**9}))  # type: ignore[arg-type]


@pytest.mark.parametrize(("phase", "chunks"), [("train", False), ("train", True), ("decode", False)])
def test_the_time_of_an_estimate_grows_with_the_layers_not_with_layers_times_stages(phase: Phase, chunks: bool) -> None:
    """Two layers a stage, or a model chunk of two stages: twice as many more need twice as many more operations."""
    llama = {
        "model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4, "vocab_size": 100,
    }  # fmt: skip

    def needed(layers: int) -> int:
        arch = architecture(llama | {"num_hidden_layers": layers}, "x", "x")
        layout = {"pp": 2, "vpp": layers // 4, "batch": 4, "micro_batch": 1} if chunks else {"pp": layers // 2}
        return operations(lambda: estimate(arch, H100, phase=phase, **layout))  # type: ignore[arg-type]

    needed(8)  # imports
    least, middle, most = map(needed, (200, 400, 800))
    assert most - middle < 2.5 * (middle - least)
