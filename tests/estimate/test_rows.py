"""The rows of an estimate's tables."""

from __future__ import annotations

from pathlib import Path

import pytest

from roofmodel.estimate import picture
from roofmodel.estimate.rows import group_rows, rows, with_letters
from tests.estimates import MODELS, run


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("attention", ["flash", "eager"])
def test_rows_add_up_to_the_phase(model: str, attention: str) -> None:
    for phase in run(model, attention=attention, seq=64).phases:
        found = rows(phase)
        assert sum(row.share for row in found) == pytest.approx(1, rel=1e-12)
        assert sum(row.cost.matmul_flops for row in found) == phase.cost.matmul_flops
        assert sum(row.cost.bytes for row in found) == phase.cost.bytes
        assert sum(row.times for row in found) == sum(p.operator.count for p in phase.placed)


def test_one_row_represents_48_layers() -> None:
    found = {row.label: row.times for row in rows(run("gpt2-xl").phases[0])}
    assert found["Q, K, V projection"] == 48
    assert found["norms"] == 2 * 48 + 1


def test_blocks_of_a_stage_are_listed_once_with_their_convolution() -> None:
    found = {(row.group, row.label): row.times for row in rows(run("resnet-50").phases[0])}
    assert found["stage3", "spatial 3×3"] == 6  # one of them strides
    assert found["stage3", "shortcut 1×1"] == 1
    assert found["stem", "convolution 7×7"] == 1
    assert found["residual", "residual adds"] == 3 + 4 + 6 + 3


def test_stages_are_listed_in_the_order_in_which_they_run() -> None:
    (phase,) = run("resnet-50", phase="train").phases
    listed: dict[str, list[str]] = {}
    for row in group_rows(phase):
        if row.group.startswith("st"):
            listed.setdefault(row.stage, []).append(row.group)
    forward = ["stem", "stage1", "stage2", "stage3", "stage4"]
    assert listed == {"forward": forward, "backward": forward[::-1]}


def test_the_letters_go_to_the_rows_with_the_longest_times(tmp_path: Path) -> None:
    drawn = run("deepseek-v3", phase="train", seq=1024)
    picture.draw(drawn, tmp_path / "marks without letters.png", "png")
    found = with_letters(0, rows(drawn.phases[0]))
    for stage in ("forward", "backward"):
        shown = [(sign, row) for sign, row in found if row.stage == stage and row.cost.flops]
        letters = [sign for sign, _ in shown if sign]
        assert letters == sorted(set(letters))
        assert min(row.share for sign, row in shown if sign) >= max(row.share for sign, row in shown if not sign)
