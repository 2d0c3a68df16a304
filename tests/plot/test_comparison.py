"""Kernels before and after a change."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from roofmodel import read_profile
from roofmodel.errors import WorkloadError
from tests.command_line import run
from tests.printing import printed

HEADER = '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size","Grid Size"'
HEADER += ',"Device","CC","dram__bytes.sum","gpu__time_duration.sum"\n"","","","","","","","","","","","byte","ns"\n'


def profile(path: Path, *launches: tuple[str, int, int]) -> Path:
    """A table of Nsight Compute with launches (name, ns, bytes)."""
    rows = (
        f'"{i}","1","a","h","{name}","1","7","(256, 1, 1)","(264, 1, 1)","0","9.0","{size}","{ns}"\n'
        for i, (name, ns, size) in enumerate(launches)
    )
    path.write_text(HEADER + "".join(rows))
    return path


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """`load` has the same time, `sum` half of its bytes and time, `slow` is slower, `naive` is replaced by `tiled`,
    `zero` is gone, `check` is new."""
    old = [
        ("load", 1000, 1000),
        *[("sum", 4000, 8000)] * 2,
        ("naive", 9000, 9),
        ("slow", 100, 1),
        *[("zero", 500, 1)] * 2,
    ]
    new = [("load", 1000, 1000), *[("sum", 2000, 4000)] * 2, ("tiled", 3000, 9), ("slow", 200, 1), ("check", 50, 1)]
    new.append(("write", 10, 1))
    return profile(tmp_path / "old.csv", *old), profile(tmp_path / "new.csv", *new)


def test_kernels_are_faster_slower_new_or_gone(files: tuple[Path, Path]) -> None:
    old, new = files
    changes = {change.name: change for change in read_profile(new, hw="h100", before=old).changes}
    verdicts = {name: change.verdict for name, change in changes.items()}
    assert verdicts == {"load": "unchanged", "sum": "faster", "tiled": "faster", "slow": "slower", "zero": "gone",
                        "check": "new", "write": "new"}  # fmt: skip
    assert changes["sum"].change_seconds == pytest.approx(-4e-6)
    assert changes["sum"].relative_change == pytest.approx(-0.5)
    assert changes["tiled"].before_name == "naive"  # one kernel between the same neighbors
    assert changes["zero"].after_seconds is None


def test_the_counter_that_changed_with_the_time_is_named(files: tuple[Path, Path]) -> None:
    old, new = files
    changes = {change.name: change for change in read_profile(new, hw="h100", before=old).changes}
    assert "DRAM bytes 16 k → 8 k (-50%)" in changes["sum"].causes
    assert changes["load"].causes == []


def test_the_document_has_the_comparison_and_the_table_its_columns(files: tuple[Path, Path]) -> None:
    old, new = files
    report = read_profile(new, hw="h100", before=old)
    document = json.loads(report.text("json"))
    assert len(document["kernels"]) == 7
    assert document["comparison"]["before"] == {"files": ["old.csv"], "seconds": pytest.approx(19.1e-6)}
    assert document["comparison"]["kernels"][0]["name"] == "tiled"  # the largest change
    assert report.to_frame()["relative_change"].min() == pytest.approx(3 / 9 - 1)


def test_a_check_finds_a_kernel_that_became_slower(files, monkeypatch, capsys) -> None:
    old, new = map(str, files)
    arguments = ["kernels", new, "--before", old, "--hw", "h100", "--fail-if", "relative_change>5%"]
    done = run(arguments, monkeypatch, capsys)
    assert done.status == 3
    assert "slow slower: relative_change 100.0%: relative_change>5%" in done.err
    assert "sum" not in [line.split()[1] for line in done.err.splitlines() if line.startswith("failed:")]


def test_kernels_of_several_devices_are_not_summed_by_name(tmp_path: Path) -> None:
    old, new = profile(tmp_path / "old.csv", ("load", 20, 1)), profile(tmp_path / "new.csv", ("load", 10, 1))
    with pytest.raises(WorkloadError, match="one device at a time"):
        _ = read_profile(f"{new}@h100", f"{new}@h200", before=[f"{old}@h100", f"{old}@h200"]).changes


def test_times_of_one_side_are_not_compared_with_counters_of_the_other(files: tuple[Path, Path]) -> None:
    old, new = files
    with pytest.raises(WorkloadError, match="leave out one"):
        read_profile(new, hw="h100", times=old, before=old)


def test_without_times_the_change_is_unknown(tmp_path: Path) -> None:
    old, new = (profile(tmp_path / name, ("load", 1000, 1000), ("sum", 1, 1)) for name in ("old.csv", "new.csv"))
    new.write_text(new.read_text("utf-8").replace('"1000","1000"', '"1000",""'), "utf-8")
    report = read_profile(new, hw="h100", before=old)
    load = next(row for row in report.to_dict()["comparison"]["kernels"] if row["name"] == "load")
    assert load["before_seconds"] == pytest.approx(1e-6)
    assert (load["after_seconds"], load["change_seconds"], load["relative_change"]) == (None, None, None)
    assert (load["verdict"], load["causes"]) == ("unknown", [])


def test_a_kernel_of_another_category_is_no_rename(tmp_path: Path) -> None:
    around = ("load", 10, 1), ("store", 10, 1)
    old = profile(tmp_path / "old.csv", around[0], ("layernorm_kernel", 90, 1), around[1])
    new = profile(tmp_path / "new.csv", around[0], ("nccl_allreduce", 10, 1), around[1])
    verdicts = {change.name: change.verdict for change in read_profile(new, hw="h100", before=old).changes}
    assert verdicts["layernorm_kernel"] == "gone"
    assert verdicts["nccl_allreduce"] == "new"


def test_a_long_name_is_on_one_line_of_80_columns(tmp_path: Path) -> None:
    """`unchanged`, `12.3 ms`, `24.7 ms`, `-12.3 ms`, `+100%` and their spaces leave 39 of 80 columns."""
    name = "nvjet_sm90_tst_{}_64x8_2x1_v_bz_bias_splitK_TNT_with_a_tail"
    others = [("same", 12_345_000, 9), ("slow", 12_345_000, 9)], [("same", 12_345_000, 9), ("slow", 24_690_000, 9)]
    old = profile(tmp_path / "old.csv", (name.format("a"), 24_690_000, 9), *others[0])
    new = profile(tmp_path / "new.csv", (name.format("b"), 12_345_000, 9), *others[1])
    lines = printed(read_profile(new, hw="h100", before=old), 80).splitlines()
    assert ["nvjet_sm90_tst_" in line for line in lines if "…" in line] == [True, True]
