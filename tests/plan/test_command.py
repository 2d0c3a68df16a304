"""What `roof plan` prints and writes."""

from __future__ import annotations

import csv
import io
import json
import re
from math import exp
from pathlib import Path
from typing import Any

import pytest

import roofmodel
from roofmodel.plan.command import PlanReport
from tests.printing import printed


@pytest.fixture(scope="module")
def report() -> PlanReport:
    return roofmodel.plan("llama-3.1-8b", "h100", gpus=2, isl=512, osl=64, tpot="20ms", price=2, dtype="bf16")


@pytest.fixture(scope="module")
def impossible() -> PlanReport:
    return roofmodel.plan("llama-3.1-70b", "l4", gpus=1, isl=512, osl=64, dtype="bf16")


def test_the_table_names_layout_rate_cost_and_reason(report: PlanReport) -> None:
    lines = printed(report).splitlines()
    assert lines[0].startswith("meta-llama/Llama-3.1-8B · 2 × h100-sxm · vLLM 0.24 · isl 512 · osl 64 · TPOT ≤ 20 ms")
    assert "tokens/s" in lines[2]
    assert "$/M" in lines[2]
    assert any("tokens/s than rank 1:" in line for line in lines[3:])


def test_reasons_are_short_unless_they_are_asked_for(report: PlanReport) -> None:
    lines = printed(report, 80).splitlines()
    rows = report.to_dict()["candidates"]
    assert [line.partition(":")[0] for line in lines if re.match(r"\d+: ", line)] == [str(row["rank"]) for row in rows]
    assert max(map(len, lines)) <= 80
    in_full = " ".join(printed(report.table(why=True), 80).split())
    assert "1: a higher rate needs" in in_full
    assert all(f"{row['rank']}: {row['reason']}" in in_full for row in rows)


@pytest.mark.parametrize(("draft", "tokens", "said"), [
    ("mtp", None, "drafts: mtp, 3 tokens, acceptance 0.7"),
    ("llama-3.2-1b", 1, "drafts: meta-llama/Llama-3.2-1B, 1 token, acceptance 0.7"),
])  # fmt: skip
def test_the_heading_states_the_drafts(draft: str, tokens: int | None, said: str) -> None:
    found = roofmodel.plan(
        "llama-3.1-8b", "h100", gpus=1, isl=512, osl=64, dtype="bf16", draft=draft, draft_tokens=tokens
    )
    assert printed(found, 200).splitlines()[0].endswith(f" · {said}")


def test_the_document_has_the_candidates_in_order(report: PlanReport) -> None:
    found = json.loads(json.dumps(report.to_dict(), allow_nan=False))
    rates = [one["tokens_per_second_per_gpu"] for one in found["candidates"]]
    assert found["schema"] == "roofmodel.plan/1"
    assert rates == sorted(rates, reverse=True)
    for one in found["candidates"]:
        assert one["meets"]
        assert one["tokens_per_second"] == pytest.approx(64 * one["requests_per_second"])
        assert one["dollars_per_million_tokens"] == pytest.approx(2 / 3600 / one["tokens_per_second_per_gpu"] * 1e6)
    assert all(one["rank"] in found["candidates"][tie - 1]["ties_with"]
               for one in found["candidates"] for tie in one["ties_with"])  # fmt: skip


def test_files_have_rows_or_a_picture(report: PlanReport, tmp_path: Path) -> None:
    table, image = report.save(tmp_path / "plan.csv"), report.save(tmp_path / "front.svg")
    rows = list(csv.DictReader(io.StringIO(table.read_text())))
    assert [row["tp"] for row in rows] == [str(one["tp"]) for one in report.to_dict()["candidates"]]
    assert "tokens/s per user" in image.read_text()
    assert len(report.to_frame()) == len(rows)


def test_the_page_has_the_candidates_the_reasons_and_the_front(report: PlanReport, tmp_path: Path) -> None:
    page = report.save(tmp_path / "plan.html").read_text()
    assert 'aria-label="Pareto front of meta-llama/Llama-3.1-8B · 2 × h100-sxm' in page
    assert "tokens/s per user" in page
    shown = [part for part in ("a higher rate needs", "ties: ranks whose intervals of the rate") if part in page]
    assert len(shown) == 2
    assert "not shown at" not in page


def test_a_model_that_does_not_fit_has_no_rows_but_a_shortage(impossible: PlanReport, tmp_path: Path) -> None:
    found = impossible.to_dict()
    assert (found["candidates"], found["meets"]) == ([], False)
    assert found["shortage"]["memory"] > found["shortage"]["usable_memory"]
    assert "does not fit" in impossible.remarks()[0]
    assert "0 candidates" in printed(impossible)
    assert "There is no front: no candidate fits in the memory." in impossible.save(tmp_path / "front.svg").read_text()


def test_the_mark_of_a_missed_target_is_explained(report: PlanReport) -> None:
    missed = roofmodel.plan("gpt2", "h100", gpus=1, isl=512, osl=64, dtype="bf16", mode="mixed", tpot="1us")
    lines = printed(missed).splitlines()
    assert any(line.startswith("1! ") for line in lines)
    assert "!: misses a target" in lines
    assert "!: misses a target" not in printed(report)


def test_legends_explain_the_columns_that_are_shown(report: PlanReport) -> None:
    counted = "tokens/s and $/M: only output tokens are counted"
    assert counted in printed(report).splitlines()
    unpriced = roofmodel.plan("gpt2", "h100", gpus=1, isl=512, osl=64, dtype="bf16", mode="mixed")
    assert "tokens/s: only output tokens are counted" in printed(unpriced).splitlines()
    options: dict[str, Any] = {"gpus": 2, "tokens": "1B", "batch": 8, "dtype": "bf16", "tp": [1, 2], "pp": 1, "zero": 0}
    training = roofmodel.plan_training("gpt2", "h100", **options)
    lines = printed(training, 200).splitlines()
    assert "SP: sequence parallelism" in lines
    assert "MFU: FLOPs of the model / peak FLOP/s of all GPUs during the step" in lines
    assert ("ties" in lines[2]) == any(
        line.startswith("ties: ranks whose intervals of the step time") for line in lines
    )
    off = printed(roofmodel.plan_training("gpt2", "h100", sequence_parallel="off", **options), 200)
    assert "SP: " not in off


def test_a_required_rate_adds_the_mean_wait() -> None:
    reached, missed = (
        roofmodel.plan("llama-3.1-8b", "h100", gpus=1, isl=512, osl=64, dtype="bf16", requests=rate)
        for rate in ("5/s", "5000/s")
    )
    first = reached.to_dict()["candidates"][0]
    rare = roofmodel.plan("llama-3.1-8b", "h100", gpus=1, isl=512, osl=64, dtype="bf16", requests="0.001/s")
    estimated = roofmodel.estimate(
        "llama-3.1-8b", "h100", phase="decode", batch=1, context=512, dtype="bf16", kv="fp8", engine="vllm"
    )
    step = estimated.totals["decode"]["expected_seconds"]  # the shortest
    running = 1 - exp(-5 * 63 * step)  # each request decodes 63 times; requests in service are Poisson distributed
    assert 0.5 * running * step < first["wait_seconds"] < first["ttft_seconds"]
    assert 0 < rare.to_dict()["candidates"][0]["wait_seconds"] < 0.01 * first["wait_seconds"]
    assert missed.to_dict()["candidates"][0]["wait_seconds"] is None
    assert "wait: mean time in the queue" in printed(reached)
    assert "∞" in printed(missed).splitlines()[3]


def test_without_a_required_rate_no_wait_is_shown(report: PlanReport) -> None:
    assert "wait" not in printed(report)
    assert report.to_dict()["candidates"][0]["wait_seconds"] is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"osl": 8}, "isl is missing; try isl=4096"),
        ({"isl": 8, "osl": 1}, "osl is 1; it must be a whole number from 2"),
        ({"isl": 8, "osl": 8, "ttft": "soon"}, 'try ttft="500ms"'),
        ({"isl": 8, "osl": 8, "requests": "5/year"}, "requests: '5/year' is no rate; try requests=\"5/s\""),
        ({"isl": 8, "osl": 8, "mode": ["mixed", "mixt"]}, "mode: unknown value 'mixt'; did you mean 'mixed'"),
        ({"isl": 8, "osl": 8, "top": None}, "top is None"),
        ({"isl": 8, "osl": 8, "cluster": 5}, "cluster is 5; give text"),
    ],
)
def test_a_request_is_checked_by_its_declaration(options: dict[str, Any], message: str) -> None:
    with pytest.raises(roofmodel.RoofError) as caught:
        roofmodel.plan("gpt2", "a100", gpus=1, **options)
    assert message in str(caught.value)
