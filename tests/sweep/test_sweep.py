"""Sweeps: each row equals the estimate of its point."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Iterator
from typing import Any

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import roofmodel
from roofmodel.devices.device import Device
from roofmodel.errors import OutputError, WorkloadError
from roofmodel.models import hub
from roofmodel.models.architecture import Architecture
from roofmodel.models.config import architecture
from roofmodel.models.families import FAMILIES
from roofmodel.steps.estimate import estimate, totals
from roofmodel.steps.parallelism import GPUS
from roofmodel.sweep.case import COLUMNS, COUNTS, LENGTHS, NAMED_OPTIONS, ROLES
from roofmodel.sweep.command import SweepReport
from roofmodel.sweep.sweep import Sweep, sweep
from tests import draws
from tests.operations import operations

A100 = Device.load("a100")
MI300X = Device.load("mi300x")  # no timing model: only counts, memory and bounds, computed in a tenth of the time


def points(found: Sweep) -> Iterator[dict[str, Any]]:
    """The rows as dicts; unknown values are None."""
    for block in found.blocks():
        arrays = [
            value.tolist() if isinstance(value, numpy.ndarray) else [value] * len(block["batch"])
            for value in (block[name] for name in COLUMNS)
        ]
        for values in zip(*arrays, strict=True):
            known = (None if value != value else value for value in values)
            yield dict(zip(COLUMNS, known, strict=True))


def assert_equals_estimate(
    row: dict[str, Any], arch: Architecture, device: Device, *, context_given: bool = False
) -> None:
    """Assert that a row equals its estimate: counts exactly, times to 1e-12.

    `context_given` is whether the sweep was given a context. Neither a sweep nor an estimate warns that the default
    context of a decode fills all positions.
    """
    options = {
        name: row[name] for name in (*LENGTHS, "new_tokens", "image", *NAMED_OPTIONS, *GPUS) if row[name] is not None
    }
    if arch.image:
        options.pop("seq", None)
    if arch.quantization and row["weights"] == arch.quantization.weights:
        options.pop("weights")  # given, it would replace the formats of all groups of modules
    if row["phase"] in ("forward", "train") or not context_given:
        options.pop("context", None)
    if row["phase"] == "generate" and arch.encoder:
        options.pop("context", None)  # no context before the source is encoded
    found = estimate(arch, device, phase=row["phase"], **options)
    (phase,) = found.phases
    expected = totals(phase) | {f"memory_{role}": getattr(found.memory, role) for role in ROLES}
    for name, value in expected.items():
        exact = name in COUNTS or name.startswith("memory_") or not isinstance(value, float)
        assert row[name] == (value if exact else pytest.approx(value, rel=1e-12)), name
    assert row["fits"] == found.fits
    assert row["context"] == phase.step.context
    padded = arch.padded_to is not None and row["seq"] > arch.padded_to  # an estimate has another note for this case
    beyond = padded or any("positions for" in note for note in map(str, found.notes))
    assert row["note"] == ("beyond the model's positions" if beyond else None)
    rates = {f"{kind}{what}_per_second" for kind in ("", "bound_") for what in ("tokens", "images")}
    for name in rates - set(expected):  # columns for images in a text model
        assert row[name] is None


def test_points_fit_within_the_given_share_of_the_memory() -> None:
    """Llama 3.1 8B on 80 GiB: 15.0 GiB of weights, 2048 × 128 KiB = 0.25 GiB of KV cache a sequence, 3 GiB of vLLM."""
    h100, options = Device.load("h100"), {"phase": ["decode"], "batch": [128, 240, 512], "seq": [2048]}
    for shares, fits in (([0.9], [True, False, False]), ("1.0", [True, True, False])):  # 50, 78 and 146 GiB
        found = list(points(sweep([hub.load("llama-3.1-8b")], [h100], memory_utilization=shares, **options)))
        assert [row["fits"] for row in found] == fits
        assert {row["memory_utilization"] for row in found} == {float(shares if isinstance(shares, str) else shares[0])}
        for row in found:
            arch, batch = hub.load("llama-3.1-8b"), row["batch"]
            single = estimate(
                arch, h100, phase="decode", batch=batch, seq=2048, memory_utilization=row["memory_utilization"]
            )
            assert single.fits == row["fits"]
            assert single.largest_batch is not None
            assert (batch <= single.largest_batch) == single.fits


@pytest.mark.parametrize("share", [0, 1.1, -0.5, "a", True, float("nan")])
def test_an_impossible_share_of_the_memory_is_refused(share: Any) -> None:
    with pytest.raises(WorkloadError, match="above 0 and at most 1"):
        sweep([hub.load("gpt2")], [Device.load("a100")], memory_utilization=[share])
    with pytest.raises(WorkloadError, match="above 0 and at most 1"):
        estimate(hub.load("gpt2"), Device.load("a100"), memory_utilization=share)


BOUNDARY_LENGTHS = (1, 2, 3, 4, 5, 8, 9, 16, 17, 31, 33, 64, 65, 100)
"""One token, and lengths near the windows, chunks and positions of the randomly drawn models."""


def grid_of(arch: Architecture, phase: str, dice: random.Random) -> dict[str, Any]:
    """Valid lengths for the architecture and phase."""
    grid: dict[str, Any] = {"batch": [1, dice.randint(2, 40)]}
    if not arch.image:
        grid["seq"] = dice.sample(BOUNDARY_LENGTHS, 4)
    if arch.encoder and dice.random() < 0.7:
        grid["decoder_seq"] = dice.sample(BOUNDARY_LENGTHS, 3)
    if phase in ("prefill", "decode") or (phase == "generate" and not arch.encoder):
        grid["context"] = [0, *dice.sample(BOUNDARY_LENGTHS, 2)] if dice.random() < 0.7 else None
    if phase == "generate":
        grid["new_tokens"] = [1, dice.randint(2, 40)]
    return grid


@pytest.mark.usefixtures("only_times_and_memory")
@pytest.mark.parametrize("model_type", FAMILIES)
def test_each_row_equals_the_estimate_of_its_point(model_type: str) -> None:
    """In two phases for each family, one of them with expected times; related families have other phases."""
    dice = random.Random(model_type)
    arch = architecture(draws.config(model_type, dice), "x", "x")
    phases = dice.sample(("prefill", "decode", "generate", "train") if arch.causal else ("forward", "train"), 2)
    timed = dice.choice(phases)
    for phase in phases:
        device = A100 if phase == timed else MI300X
        cached, grid = arch.causal and phase != "train", grid_of(arch, phase, dice)
        formats = {"weights": dice.choice(["int4", "fp8_block", "fp16"]), "kv": dice.choice(["mxfp4", "fp16"])}
        found = sweep(
            [arch], [device], phase=phase, attention=dice.choice(["flash", "eager"]),
            engine=dice.choice(["torch", "megatron" if phase == "train" else "vllm"]),
            **(formats if cached else {}), **grid,
        )  # fmt: skip
        rows = list(points(found))
        assert len(rows) == found.points
        for row in dice.sample(rows, min(2, len(rows))):
            assert_equals_estimate(row, arch, device, context_given=grid.get("context") is not None)


@pytest.mark.usefixtures("only_times_and_memory")
def test_each_row_of_a_packaged_model_of_each_family_equals_its_estimate() -> None:
    """Expected times for one family of four; those of drawn models are tested for all."""
    dice, families = random.Random(7), dict[str, Architecture]()
    for entry in hub.catalog():
        arch = hub.load(entry.id)
        families.setdefault(arch.model_type, arch)
    for number, arch in enumerate(families.values()):
        device = A100 if number % 4 == 0 else MI300X
        asked: dict[str, Any] = {} if arch.image else {"seq": [1, dice.randint(2, 200), dice.randint(200, 40_000)]}
        asked |= {"phase": dice.choice(["prefill", "decode"]) if arch.causal else "forward"}
        rows = list(points(sweep([arch], [device], batch=[dice.randint(1, 3), dice.randint(4, 300)], **asked)))
        assert_equals_estimate(dice.choice(rows), arch, device)


@pytest.mark.usefixtures("only_times_and_memory")
def test_rows_of_several_gpus_equal_their_estimates() -> None:
    """1 or 3 tokens on 8 GPUs and random routing give fractions per GPU."""
    arch, device = hub.load("deepseek-v3"), Device.load("h200")
    rows = list(points(sweep([arch], [device], batch=[1, 3, 8], seq=[1, 100], tp=8, ep=[1, 8])))
    assert len(rows) == 2 * 2 * 3 * 2
    for row in rows:
        assert_equals_estimate(row, arch, device)


SIZE = st.integers(1, 30).flatmap(lambda bits: st.integers(1, min(2**bits, 10**9)))


@pytest.mark.usefixtures("only_times_and_memory")
@settings(deadline=None, max_examples=20)
@given(
    st.sampled_from([
        "gpt2-xl", "llama-3.1-405b", "mixtral-8x7b-v0.1", "mamba-130m-hf", "t5-small", "deepseek-v3",
        "qwen3-coder-next",
    ]),
    st.sampled_from(["prefill", "decode", "generate", "train"]),
    st.lists(SIZE, min_size=2, max_size=2, unique=True), st.lists(SIZE, min_size=2, max_size=2, unique=True),
)  # fmt: skip
def test_counts_beyond_64_bits_stay_exact(model: str, phase: str, batch: list[int], seq: list[int]) -> None:
    arch = hub.load(model)
    for row in points(sweep([arch], [MI300X], phase=phase, batch=batch, seq=seq)):
        assert_equals_estimate(row, arch, MI300X)


def test_counts_of_odd_and_even_prompts_are_whole_numbers_in_every_format() -> None:
    """128 decode steps after prompts of 1 and 5 tokens have mean contexts that are halves of integers."""
    report = roofmodel.sweep("llama-3.1-8b", "a100", phase="generate", batch=[2, 3], seq=[1, 5])
    rows = report.to_dict()["rows"]
    alone = estimate(hub.load("llama-3.1-8b"), A100, phase="generate", batch=3, seq=5)
    assert rows[3]["matmul_flops"] == totals(alone.phases[0])["matmul_flops"]
    assert all(isinstance(row[name], int) for row in rows for name in ("matmul_flops", "bytes", "kv_cache_bytes"))
    assert json.loads(json.dumps(rows)) == rows


def test_some_counts_need_more_than_64_bits() -> None:
    (row,) = points(sweep([hub.load("llama-3.1-405b")], [A100], phase="train", batch=10**6, seq=10**6))
    assert row["matmul_flops"] > 2**63
    assert_equals_estimate(row, hub.load("llama-3.1-405b"), A100)


def rounded(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """To 12 digits: sums of arrays of other lengths round differently."""
    return [{name: float(f"{v:.12g}") if isinstance(v, float) else v for name, v in row.items()} for row in rows]


def test_rows_are_in_the_order_of_the_grid_for_any_size_of_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    found = sweep([hub.load("gpt2")], [A100], batch=[3, 1, 2], seq=[7, 1, 5], context=[0, 4, 9], phase="prefill")
    places = [(b, s, c) for b in (3, 1, 2) for s in (7, 1, 5) for c in (0, 4, 9)]
    whole = list(points(found))
    assert [(row["batch"], row["seq"], row["context"]) for row in whole] == places
    (case,) = found.cases
    for most in (1, 2, 4, 10):
        pieces = tuple(case.blocks(most))
        assert all(piece.points <= most for piece in pieces)
        rows = list(points(found._replace(cases=pieces)))
        assert rounded(rows) == rounded(whole)


def test_with_prefill_and_decode_a_given_context_applies_to_the_decode() -> None:
    rows = list(points(sweep([hub.load("gpt2")], [A100], seq=[16, 32], context=[100, 200])))
    assert [(row["phase"], row["seq"], row["context"]) for row in rows] == [
        ("prefill", 16, 0), ("prefill", 32, 0),
        ("decode", 16, 100), ("decode", 16, 200), ("decode", 32, 100), ("decode", 32, 200),
    ]  # fmt: skip


def test_the_default_context_of_a_decode_is_the_prompt() -> None:
    rows = points(sweep([hub.load("gpt2")], [A100], seq=[16, 32], phase="decode"))
    assert [row["context"] for row in rows] == [16, 32]


def test_an_option_that_does_not_apply_adds_no_points() -> None:
    found = sweep([hub.load("bert-base-uncased")], [A100], kv=["fp16", "fp8"], context=[1, 2], batch=[1, 2])
    assert found.points == 2
    assert {note.partition(":")[0] for note in map(str, found.notes)} >= {"kv is ignored", "context is ignored"}


def test_an_invalid_point_is_a_row_with_its_reason() -> None:
    v100 = Device.load("v100")
    found = sweep([hub.load("gpt2")], [v100, A100], dtype="fp16,bf16", phase="decode", batch=[1, 2])
    refused = [row for row in points(found) if row["bound_seconds"] is None]
    assert [(row["hardware"], row["dtype"], row["batch"]) for row in refused] == [
        ("v100-sxm2-32gb", "bf16", 1), ("v100-sxm2-32gb", "bf16", 2),
    ]  # fmt: skip
    assert all("no pipe for 'bf16'" in row["note"] for row in refused)
    assert found.points == 8


def test_a_sweep_without_valid_points_is_an_error_with_the_reason() -> None:
    with pytest.raises(WorkloadError, match="encoder and has no such phase"):
        sweep([hub.load("bert-base-uncased")], [A100], phase="decode")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dtype": "fp61"}, "dtype: unknown value 'fp61'; did you mean 'fp64' or 'fp16'?"),
        ({"phase": "prefil"}, "did you mean 'prefill'"),
        ({"dtype": ["fp16", None]}, "dtype: unknown value None"),
        ({"bacth": 1}, "unknown option 'bacth'; did you mean 'batch'"),
        ({"tp": 5}, "12 heads and 3072 columns of the MLP, which cannot be sharded evenly"),
        ({"seq": "1:x"}, "seq: 'x' is not a whole number; try seq=\"512,1024\" or 512:4096:512, 1:4096:*2"),
        ({"seq": ""}, "'' is not a whole number; try seq="),
        ({"seq": []}, "seq: no values; try seq="),
        ({"new_tokens": "0"}, "new_tokens is 0"),
        ({"price": "cheap"}, "price: 'cheap' is not a valid price"),
        ({"price": "h100=3"}, "h100-sxm is not a device of hw"),
        ({"price": -1}, "price: -1 is not a valid price"),
    ],
)
def test_invalid_options_are_errors_with_suggestions(options: dict[str, Any], message: str) -> None:
    with pytest.raises(WorkloadError) as caught:
        sweep([hub.load("gpt2")], [A100], **options)
    assert message in str(caught.value)


def test_points_beyond_positions_are_counted_and_marked() -> None:
    found = sweep([hub.load("gpt2")], [A100], phase="prefill", seq=[1024, 1025])
    inside, outside = points(found)
    assert (inside["note"], outside["note"]) == (None, "beyond the model's positions")
    assert outside["matmul_flops"] > inside["matmul_flops"]
    assert any("gpt2" in note and note.startswith("warning") for note in map(str, found.notes))


def test_points_that_do_not_fit_are_marked() -> None:
    rows = list(points(sweep([hub.load("gpt2-xl")], [A100], phase="decode", batch=[1, 100_000])))
    assert [row["fits"] for row in rows] == [True, False]
    assert rows[1]["memory_total"] > A100.capacity  # type: ignore[operator]


def test_the_cost_of_tokens_is_their_time_in_hours_times_the_price() -> None:
    h100 = Device.load("h100")
    found = sweep([hub.load("gpt2")], [A100, h100], phase="decode", price={"a100": 2, "h100-sxm": 4})
    for row, price in zip(points(found), (2, 4), strict=True):
        hours = 1e6 / row["tokens_per_second"] / 3600
        assert row["dollars_per_million_tokens"] == pytest.approx(hours * price)
        bound_hours = 1e6 / row["bound_tokens_per_second"] / 3600
        assert row["bound_dollars_per_million_tokens"] == pytest.approx(bound_hours * price)
    (without_price,) = points(sweep([hub.load("gpt2")], [A100], phase="decode"))
    assert without_price["dollars_per_million_tokens"] is None


def test_an_unknown_time_of_the_slowest_stage_is_not_replaced_by_that_of_another_stage() -> None:
    """The MI300X has no timing model, and the stage with the send is not always the slowest."""
    options: dict[str, Any] = {"phase": "prefill", "pp": 2, "batch": 64}
    model, device = hub.load("deepseek-v2-lite"), Device.load("mi300x")
    for row in points(sweep([model], [device], seq=[7, 512], **options)):
        (phase,) = estimate(model, device, seq=row["seq"], **options).phases
        expected = totals(phase)["expected_communication_seconds"]
        found = row["expected_communication_seconds"]
        assert found == expected or (expected is None and math.isnan(found))


def test_the_ceiling_of_a_row_is_the_one_with_the_largest_share_of_time() -> None:
    found = sweep([hub.load("gpt2-xl")], [A100], batch=[1, 64], seq=1000, engine="vllm")
    rows = {(row["phase"], row["batch"]): row for row in points(found)}
    assert rows["prefill", 64]["bound"] == "compute"
    assert rows["decode", 1]["bound"] == "memory"
    for row in rows.values():
        arch = hub.load("gpt2-xl")
        (phase,) = estimate(
            arch, A100, phase=row["phase"], batch=row["batch"], seq=1000, engine="vllm"
        ).phases  # fmt: skip
        memory = math.fsum(one.seconds for one in phase.placed if one.placement.bound == "memory")
        assert row["memory_share"] == pytest.approx(memory / phase.bound_seconds, rel=1e-12)


def test_a_launch_bound_step_names_the_host_as_the_limit() -> None:
    rows = points(sweep([hub.load("gpt2")], [Device.load("h100")], phase="decode", engine=["torch", "vllm"]))
    assert [(row["runtime"], row["bound"], row["host_bound"]) for row in rows] == [
        ("eager", "overhead", True), ("graph", "memory", False),
    ]  # fmt: skip


def test_a_sweep_has_the_options_of_its_engine() -> None:
    for launch, seconds, bound in (("0us", 0, "memory"), ("12us", 12e-6, "overhead"), ("graph", None, "memory")):
        options: dict[str, Any] = {"phase": "decode", "engine": "torch", "engine_option": f"launch={launch}"}
        (row,) = points(sweep([hub.load("gpt2")], [Device.load("h100")], **options))
        assert (row["launch_seconds"], row["bound"]) == (seconds, bound)
        assert row["engine_option"] == f"launch={launch}"
        (phase,) = estimate(hub.load("gpt2"), Device.load("h100"), **options).phases
        assert phase.expected is not None
        assert row["expected_seconds"] == phase.expected.value


def test_a_device_without_calibration_has_only_bounds() -> None:
    found = sweep([hub.load("gpt2")], [Device.load("mi300x")], batch=[1, 2], phase="decode")
    for row in points(found):
        assert row["bound_seconds"] > 0
        assert row["expected_seconds"] is row["tokens_per_second"] is row["host_bound"] is None
    assert any("not calibrated" in note for note in map(str, found.notes))


def test_selected_rows_are_unchanged() -> None:
    found = sweep([hub.load("gpt2")], [A100], batch=[1, 2])
    assert list(points(found.in_memory())) == list(points(found))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"tp": "1:1000000000"}, "tp: '1:1000000000' has more than 10000 values; try tp="),
        ({"tp": "1:10000", "dp": "1:10000"}, "100000000 combinations of models, devices and options other than batch"),
        ({"tp": "1:10000", "dp": "1:10000"}, "at most 10000 are possible; give fewer values of tp, dp"),
        ({"batch": "1:1000000000"}, "batch: '1:1000000000' has more than 10000000 values"),
        ({"tp": "1000000000"}, "cannot be sharded evenly"),
    ],
)
def test_a_grid_that_is_too_large_is_refused_at_once(options: dict[str, Any], message: str) -> None:
    model, device = hub.load("mixtral-8x7b-v0.1"), Device.load("h100")
    with pytest.raises(WorkloadError) as caught:
        operations(lambda: sweep([model], [device], **options))
    assert message in str(caught.value)


def test_a_large_grid_is_not_kept_in_memory() -> None:
    found = sweep([hub.load("gpt2")], [A100], phase="decode", batch="1:10000", context="1:10000")
    assert found.points == 10**8
    assert found.in_memory() is found
    assert len(next(found.blocks())["batch"]) < 10**5
    with pytest.raises(OutputError, match="a picture shows at most 2000000 points, and this sweep has 100000000"):
        SweepReport(found).save("rates.png")


def test_the_values_of_an_engine_option_are_an_axis() -> None:
    asked = ["launch=8us,launch=40us", "launch=graph"]
    rows = roofmodel.sweep("gpt2", "a100", phase="decode", engine="torch", engine_option=asked).to_frame()
    assert list(rows.engine_option) == ["launch=8us", "launch=40us", "launch=graph"]
    each = [
        roofmodel.estimate("gpt2", "a100", phase="decode", engine="torch", engine_option=option)
        for option in rows.engine_option
    ]
    assert list(rows.expected_seconds) == [pytest.approx(one.totals["decode"]["expected_seconds"]) for one in each]
    with pytest.raises(WorkloadError, match="launch is given twice, with 8us and 40us"):
        roofmodel.estimate("gpt2", "a100", engine="torch", engine_option="launch=8us,launch=40us")
