"""The rows of an estimate's tables."""

from __future__ import annotations

from pathlib import Path

import pytest

from roofmodel.estimate import picture
from roofmodel.estimate.tables import group_rows, rows, with_letters
from tests.estimates import MODELS, run


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("attention", ["flash", "eager"])
def test_rows_add_up_to_the_phase(model: str, attention: str) -> None:
    for phase in run(model, attention=attention, seq=64).phases:
        found = rows(phase)
        assert sum(row.counted for row in found) == pytest.approx(phase.bound_seconds, rel=1e-12)
        assert sum(row.share for row in found) <= 1 + 1e-12  # the kernels' bounds, fused ones are shorter
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
    drawn = run("qwen3-coder-next", phase="generate")
    picture.draw(drawn, tmp_path / "marks without letters.png", "png")
    (found,) = with_letters([rows(phase) for phase in drawn.phases])
    shares: dict[str, float] = {}
    for letter, row in found:
        if row.has_mark:
            shares[letter] = shares.get(letter, 0) + row.share
    without = [row.share for letter, row in found if row.has_mark and not letter]
    assert shares.keys() == {*"ABCDEFGH", ""}
    assert min(share for letter, share in shares.items() if letter) >= max(without)


def test_rows_with_the_same_letter_are_at_one_place_of_the_roofline() -> None:
    """All GEMMs of a decode with batch 1 read each weight for 2 FLOPs: 1 FLOP/B in fp16, one letter."""
    drawn = run("gpt2-xl")
    tables = with_letters([rows(phase) for phase in drawn.phases])
    at: dict[str, list[tuple[float, float]]] = {}
    for letter, row in (entry for table in tables for entry in table):
        if letter:
            at.setdefault(letter, []).append((row.kernels.intensity, row.flops_per_second))
    for places in at.values():
        for values in zip(*places, strict=True):
            assert max(values) <= 1.3 * 1.3 * min(values)  # each within 1.3 of the largest of them
    (letter,) = {letter for letter, row in tables[1] if row.has_mark and 0.99 < row.kernels.intensity < 1.01}
    assert [row.label for name, row in tables[1] if name == letter][-1] == "LM head"
