"""A model on several GPUs, as estimates, sweeps and derivations tell it."""

from __future__ import annotations

import re
from itertools import product
from typing import Any

import pytest

import roofmodel
from roofmodel import WorkloadError
from roofmodel.devices.device import Device
from roofmodel.models import hub
from roofmodel.study.estimate import estimate, workload

LLAMA, MIXTRAL, RESNET = (hub.load(name) for name in ("Meta-Llama-3-8B", "Mixtral-8x7B-v0.1", "resnet-50"))
H100 = Device.load("h100")


def test_rates_are_those_of_all_gpus_counts_and_memory_those_of_one() -> None:
    one, all_four = (estimate(LLAMA, H100, phase="decode", batch=batch, dp=dp) for batch, dp in ((2, 1), (8, 4)))
    alone, shared = one.phases[0], all_four.phases[0]
    assert shared.cost == alone.cost
    assert all_four.memory == one.memory
    assert shared.bound_tokens_per_second == 4 * alone.bound_tokens_per_second
    assert all_four.parameters == one.parameters == 8_030_261_248


def test_the_model_that_is_shown_is_the_whole_one_and_the_weights_are_a_gpus() -> None:
    found = roofmodel.estimate("Meta-Llama-3-8B", "h100", tp=8, phase="decode").to_dict()
    assert found["model"]["parameters"] == 8_030_261_248
    # of 32 layers: q and output, k and v of one head, gate, up and down; two norms; two tables of a word's eighth
    layer = (2 * 4096 * 4096 + 2 * 4096 * 8 * 128 + 3 * 4096 * 14336) // 8 + 2 * 4096
    assert found["memory"]["weights"] == 2 * (32 * layer + 2 * 128256 // 8 * 4096 + 4096)
    assert {name: found["workload"][name] for name in ("tp", "dp", "pp", "ep")} == {"tp": 8, "dp": 1, "pp": 1, "ep": 1}


def test_collectives_are_held_to_one_direction_of_the_link() -> None:
    found = roofmodel.estimate("Meta-Llama-3-8B", "h100", tp=4, phase="prefill", batch=8).to_dict()["phases"][0]
    (op,) = (op for op in found["ops"] if op["name"] == "attention.all_reduce")
    assert op["bound"] == "communication"
    assert op["bound_seconds"] == 2 * 3 * (8 * 1024 * 4096 * 2) / 4 / 450e9
    assert op["expected_seconds"] > op["bound_seconds"]
    of_all = [op for op in found["ops"] if op["kind"] == "communication"]
    totals = found["totals"]
    assert totals["communication_seconds"] == pytest.approx(sum(op["count"] * op["bound_seconds"] for op in of_all))
    assert totals["expected_communication_seconds"] == pytest.approx(
        sum(op["count"] * op["expected_seconds"] for op in of_all)
    )


def test_a_bridge_joins_two() -> None:
    """H100 NVL: 600 GB/s between a pair, PCIe's 128 GB/s among more, both ways together."""
    for tp, bandwidth in ((2, 300e9), (4, 64e9)):
        found = roofmodel.estimate("Meta-Llama-3-8B", "h100-nvl", tp=tp, phase="prefill").to_dict()["phases"][0]
        (op,) = (op for op in found["ops"] if op["name"] == "mlp.all_reduce")
        assert op["bound_seconds"] == pytest.approx(2 * (tp - 1) * (1024 * 4096 * 2) / tp / bandwidth)


def test_a_device_without_links_has_no_bound_of_communication_and_says_so() -> None:
    found = roofmodel.estimate("Meta-Llama-3-8B", "tpu-v4", tp=4, dtype="bf16", phase="prefill").to_dict()
    (op,) = (op for op in found["phases"][0]["ops"] if op["name"] == "mlp.all_reduce")
    assert op["bound"] == "memory"
    assert op["expected_seconds"] is None
    assert any("states no link to other GPUs" in note for note in found["notes"])


def test_more_gpus_than_a_node_has_are_warned_of() -> None:
    assert any("16 GPUs are more than a node of 8" in note for note in estimate(LLAMA, H100, tp=16).notes)


@pytest.mark.parametrize(
    ("arch", "options", "said"),
    [
        (LLAMA, {"tp": 3}, "--tp 3: meta-llama/Meta-Llama-3-8B has 32 heads and 8 key-value heads and 14336 columns"),
        (LLAMA, {"tp": 7}, "--tp 1, 2, 4, 8, 16, 32 would work"),
        (MIXTRAL, {"tp": 2, "ep": 3}, "one must divide the other; --ep 1, 2 would work"),
        # 4 GPUs with experts of their own: they share the layers, 4 at least, or are 4 replicas
        (MIXTRAL, {"ep": 4}, "--ep 1 or --tp 4, 8, 16, 32 or with a batch to deal out --dp 4 would work"),
        (MIXTRAL, {"tp": 2, "dp": 8, "ep": 16, "batch": 8}, "cannot be dealt out evenly; --ep 1, 2, 4, 8 would work"),
        (MIXTRAL, {"dp": 3, "ep": 3, "batch": 3}, "8 experts, which cannot be dealt out evenly"),
        (RESNET, {"tp": 2}, "try --dp 2"),
    ],
)
def test_what_cannot_be_dealt_out_is_refused_with_what_would_work(
    arch: Any, options: dict[str, int], said: str
) -> None:
    with pytest.raises(WorkloadError) as caught:
        estimate(arch, H100, **options)
    assert said in str(caught.value)


def test_whatever_is_advised_works() -> None:
    advised = 0
    for tp, dp, ep in product(range(1, 5), range(1, 5), range(1, 9)):
        asked = {"tp": tp, "dp": dp, "ep": ep, "batch": 12}
        try:
            workload(MIXTRAL, **asked)
        except WorkloadError as error:
            advice = str(error).rpartition("; ")[2]
            for way, numbers in re.findall(r"--(ep|tp|dp) ([\d, ]+)", advice if "would work" in advice else ""):
                for number in map(int, numbers.split(", ")):
                    workload(MIXTRAL, **asked | {way: number} | ({"batch": number} if way == "dp" else {}))
                    advised += 1
    assert advised > 100


def test_experts_of_a_model_without_any_are_ignored_with_a_note() -> None:
    assert "--ep is ignored: meta-llama/Meta-Llama-3-8B has no experts" in estimate(LLAMA, H100, tp=4, ep=2).notes


def test_rows_of_a_sweep_say_what_estimates_say_and_prices_are_those_of_all_gpus() -> None:
    found = roofmodel.sweep("Meta-Llama-3-8B", "h100", tp=[1, 3, 4], dp=[1, 2], batch=[1, 8], phase="decode", price=2)
    frame = found.to_frame().set_index(["tp", "dp", "batch"])
    assert len(frame) == 3 * 2 * 2
    for (tp, dp, batch), row in frame.iterrows():
        if tp == 3 or batch % dp:
            assert "cannot be dealt out evenly" in row["note"]
            continue
        one = estimate(LLAMA, H100, phase="decode", tp=tp, dp=dp, batch=batch)
        assert row["bound_seconds"] == pytest.approx(one.phases[0].bound_seconds, rel=1e-12)
        assert row["memory_total"] == one.memory.total
        rate = one.phases[0].bound_tokens_per_second
        assert row["bound_dollars_per_million_tokens"] == pytest.approx(2 * tp * dp / 3600 * 1e6 / rate)


def test_a_collective_is_derived() -> None:
    text = roofmodel.explain(
        "Meta-Llama-3-8B", "h100", tp=4, batch=8, phase="decode", op="mlp.all_reduce"
    ).to_markdown()
    assert "GPUs that share every layer" in text
    assert "98 304 B" in text  # 2 x 3/4 of 8 x 4096 elements of 2 bytes


def test_replicas_that_exchange_nothing_leave_a_pair_its_bridge() -> None:
    # 600 GB/s within a pair of H100 NVL, both ways; a pair that serves half of the batch takes as long as one alone
    def totals(name: str, hw: str, **options: Any) -> dict[str, Any]:
        return dict(roofmodel.estimate(name, hw, **options).to_dict()["phases"][0]["totals"])

    pair = totals("llama-2-13b-hf", "h100-nvl", phase="prefill", tp=2, batch=8)
    two = totals("llama-2-13b-hf", "h100-nvl", phase="prefill", tp=2, dp=2, batch=16)
    assert two["bound_seconds"] == pair["bound_seconds"]
    assert two["tokens_per_second"] == 2 * pair["tokens_per_second"]
    trained = totals("llama-2-13b-hf", "h100-nvl", phase="train", tp=2, dp=2, batch=16)
    alone = totals("llama-2-13b-hf", "h100-nvl", phase="train", tp=2, batch=8)
    assert trained["communication_seconds"] > alone["communication_seconds"]


def test_a_node_that_is_not_left_is_not_warned_of() -> None:
    def notes(**options: Any) -> tuple[str, ...]:
        return estimate(hub.load("llama-3.1-70b"), Device.load("h100"), **options).notes

    assert not any("more than a node" in note for note in notes(tp=8, dp=2, batch=2, phase="decode"))
    assert any("more than a node" in note for note in notes(tp=8, dp=2, batch=2, phase="train"))
