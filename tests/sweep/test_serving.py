"""A sweep of `--phase serve`: each row is the estimate of its point."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

from roofmodel import RoofError, estimate, sweep

REQUESTS: dict[str, Any] = {"isl": 256, "osl": 64}


def served(**options: Any) -> list[dict[str, Any]]:
    report = sweep("llama-3.1-8b", "h100", phase="serve", **{**REQUESTS, **options})
    return list(report.to_dict()["rows"])


def test_a_row_is_the_estimate_of_its_point() -> None:
    rows = served(concurrency="1,32", tp=[1, 2], dtype="bf16", price=3)
    assert [(row["tp"], row["concurrency"]) for row in rows] == [(1, 1), (1, 32), (2, 1), (2, 32)]
    for row in rows:
        point = {name: row[name] for name in ("concurrency", "tp", "dtype")}
        report = estimate("llama-3.1-8b", "h100", phase="serve", **point, **REQUESTS)
        totals = report.totals["serve"]
        for name in totals.keys() & row.keys() - {"measured"}:
            assert row[name] == (pytest.approx(totals[name]) if isinstance(totals[name], float) else totals[name]), name
        memory = report.to_dict()["memory"]
        assert (row["memory_total"], row["fits"], row["gpus"]) == (memory["total"], memory["fits"], row["tp"])
        cost = 3 * row["tp"] / (totals["output_tokens_per_second"] * 3600) * 1e6  # dollars an hour / tokens an hour
        assert row["dollars_per_million_tokens"] == pytest.approx(cost)
        assert row["bound_dollars_per_million_tokens"] < cost


def test_separate_engines_state_their_layouts_alone() -> None:
    (row,) = served(concurrency=4, prefill="tp=1", decode="tp=2")
    assert (row["prefill"], row["decode"]) == ("tp=1", "tp=2")
    assert {row[size] for size in ("tp", "pp", "ep", "dp")} == {None}


def test_a_rate_that_is_not_served_and_a_model_that_does_not_fit_are_rows_with_a_reason() -> None:
    slow, fast = served(requests="1/s,1000/s")
    assert slow["note"] is None
    assert fast["tpot_seconds"] is None
    assert "the wait would grow without end" in fast["note"]
    large = sweep("llama-3.1-70b", "h100", phase="serve", concurrency=1, tp=[1, 4], **REQUESTS).to_dict()["rows"]
    assert [row["fits"] for row in large] == [None, True]
    assert "does not fit" in large[0]["note"]


def test_conditions_and_the_order_know_the_columns_of_a_service() -> None:
    rows = served(concurrency="1:64:*4", where="itl_p99<20ms and ttft<1s", sort="-output_tokens_per_second")
    rates = [row["output_tokens_per_second"] for row in rows]
    assert rates == sorted(rates, reverse=True)
    assert all(row["itl_p99_seconds"] < 20e-3 for row in rows)
    assert 0 < len(rows) < 4


def test_all_files_have_the_points(tmp_path: Path) -> None:
    report = sweep("llama-3.1-8b", "h100", phase="serve", concurrency=[1, 4], **REQUESTS)
    for suffix in ("csv", "json", "md", "html", "parquet", "svg"):
        assert report.save(tmp_path / f"front.{suffix}").stat().st_size > 500
    with (tmp_path / "front.csv").open() as file:
        rows = [*csv.DictReader(file)]
    assert [int(float(row["concurrency"])) for row in rows] == [1, 4]
    written = json.loads((tmp_path / "front.json").read_text())["rows"]
    assert float(rows[1]["tpot_seconds"]) == written[1]["tpot_seconds"]
    assert "4 in flight" in (tmp_path / "front.svg").read_text()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"phase": "decode", "concurrency": 4}, 'concurrency=4 needs phase="serve"'),
        ({"phase": "decode", "where": "itl_p99<1s"}, "unknown column 'itl_p99'"),
        ({"phase": ["serve", "decode"]}, 'phase="serve" cannot be swept with other phases'),
        ({"phase": "serve", "concurrency": 4, "isl": 4}, 'phase="serve" needs osl'),
        ({"phase": "serve", "concurrency": 4, **REQUESTS, "batch": 4}, 'batch=4 does not apply to phase="serve"'),
        ({"phase": "serve", "concurrency": 4, **REQUESTS, "scaling": "weak"}, 'does not apply to phase="serve"'),
        ({"phase": "serve", "concurrency": 4, **REQUESTS, "cluster": "local"}, 'does not apply to phase="serve"'),
        ({"phase": "serve", "concurrency": "1:3000", **REQUESTS}, "3000 points; a sweep of"),
        ({"phase": "serve", "concurrency": 4, **REQUESTS, "prefix_hit": "0.5,2"}, "prefix_hit is '2'; it must be"),
    ],
)
def test_what_cannot_be_swept_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(RoofError) as raised:
        sweep("llama-3.1-8b", "h100", **options)
    assert message in str(raised.value)
