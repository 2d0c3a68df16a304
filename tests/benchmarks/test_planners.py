"""The comparison of `roof plan` with other planners: their output is read correctly."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from benchmarks import planners
from benchmarks.others import aiconfigurator

PAGE = (Path(__file__).parents[2] / "docs" / "anchors.md").read_text(encoding="utf-8")
MIXED = {
    "tp": "4", "pp": "1", "dp": "1", "moe_ep": "1", "concurrency": "14", "ttft": "490.1", "tpot": "15.09",
    "tokens/s/gpu": "216.64", "num_total_gpus": "4",
}  # fmt: skip
DISAGGREGATED = {
    **{f"({part}){name}": "1" for part in "pd" for name in ("pp", "dp", "moe_ep")},
    "(p)tp": "1", "(d)tp": "2", "(p)workers": "4", "(d)workers": "2", "concurrency": "84", "ttft": "377",
    "tpot": "19.7", "tokens/s/gpu": "275", "num_total_gpus": "8",
}  # fmt: skip


def test_the_batch_of_a_choice_includes_all_replicas() -> None:
    found = planners._their_choice(MIXED)
    assert found == planners.Choice("tp 4 dp 2", 28, pytest.approx(0.4901), pytest.approx(0.01509), 216.64)


def test_a_disaggregated_choice_has_both_kinds_of_engines() -> None:
    found = planners._their_choice(DISAGGREGATED)
    assert found is not None
    assert (found.layout, found.batch) == ("dp 4 → tp 2 dp 2", 84)


def test_the_best_row_of_each_mode_is_read(tmp_path: Path) -> None:
    for mode, row in (("agg", MIXED), ("disagg", DISAGGREGATED)):
        path = tmp_path / "model" / mode / aiconfigurator.BEST
        path.parent.mkdir(parents=True)
        with path.open("w", newline="") as file:
            table = csv.DictWriter(file, row)
            table.writeheader()
            table.writerow(row)
    (tmp_path / "model" / "empty").mkdir()
    (tmp_path / "model" / "empty" / aiconfigurator.BEST).write_text("tp,pp\n")
    assert aiconfigurator.best_rows(tmp_path) == {"agg": MIXED, "disagg": DISAGGREGATED}


def test_an_execution_of_calculon_is_converted_to_options_of_roof_plan() -> None:
    execution = {
        "tensor_par": 8, "pipeline_par": 2, "data_par": 4, "pipeline_interleaving": 3, "microbatch_size": 2,
        "activation_recompute": "attn_only", "tensor_par_comm_type": "rs_ag", "optimizer_sharding": True,
    }  # fmt: skip
    options = {
        "tp": 8, "pp": 2, "dp": 4, "vpp": 3, "micro_batch": 2, "recompute": "selective", "sequence_parallel": "on",
        "zero": 1,
    }  # fmt: skip
    assert planners._as_options(execution) == options
    assert planners._training_layout(options) == (
        "tp 8 pp 2 dp 4 vpp 3, microbatch 2, recompute selective, sequence parallel, optimizer sharded"
    )


def test_the_page_has_a_row_for_each_case() -> None:
    for service in planners.SERVICES:
        for mode in planners.MODES:
            assert f"\n| {service}, {mode} |" in PAGE
    for training in planners.TRAININGS:
        assert f"\n| {training} |" in PAGE
