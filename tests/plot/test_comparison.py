"""Kernels before and after a change."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from roofmodel import read_profile
from roofmodel.errors import WorkloadError
from roofmodel.plot.comparison import KernelChange, MeasuredGroup
from roofmodel.report.checks import judge
from roofmodel.roofline.points import Reason, group
from tests import kernels as make
from tests.command_line import run
from tests.printing import printed
from tests.trace.runs import event, launched, written

NCU = str(Path(__file__).parents[2] / "examples/ncu_by_hand.csv")
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
    failed = [line for line in done.err.splitlines() if line.startswith("failed:")]
    assert failed == ["failed: slow: relative_change 100.0%: relative_change>5%"]


@pytest.mark.parametrize(
    ("expression", "failed"),
    [
        ("relative_change>5%", []),  # `new` and `gone` have no relative change, `kept` and all kernels are faster
        ("verdict=new", ["new new: verdict new: verdict=new"]),
        ("name=all and relative_change<-50%", ["all: relative_change -69.0%: name=all and relative_change<-50%"]),
    ],
)
def test_a_check_judges_new_and_gone_kernels_by_their_verdict_and_all_by_the_sum(
    expression: str, failed: list[str], tmp_path: Path
) -> None:
    old = profile(tmp_path / "old.csv", ("kept", 40, 1), ("gone", 60, 1))
    new = profile(tmp_path / "new.csv", ("new", 1, 1), ("kept", 30, 1))  # 100 ns -> 31 ns
    assert judge(read_profile(new, hw="h100", before=old).rows_to_check(), [expression]).failed == failed


def test_a_check_on_a_kernel_of_unknown_time_cannot_be_judged(tmp_path: Path) -> None:
    old, new = (profile(tmp_path / name, ("load", 1000, 1000), ("sum", 1, 1)) for name in ("old.csv", "new.csv"))
    new.write_text(new.read_text("utf-8").replace('"1000","1000"', '"1000",""'), "utf-8")
    failed = judge(read_profile(new, hw="h100", before=old).rows_to_check(), ["relative_change>5%"]).failed
    assert [line.split(":")[0].split()[0] for line in failed] == ["load", "all"]
    assert all(line.endswith("cannot be judged") for line in failed)


def test_a_failed_row_has_the_short_name_of_its_kernel(tmp_path, monkeypatch, capsys) -> None:
    name = "void cutlass::Kernel2<cutlass_80_s16816gemm>(Params)"
    old, new = (str(profile(tmp_path / f"{time}.csv", (name, time, 900))) for time in (1000, 2000))

    def failed(*arguments: str) -> list[str]:
        lines = run([*arguments, "--hw", "a100"], monkeypatch, capsys).err.splitlines()
        return [line.partition(": ")[2] for line in lines if line.startswith("failed:")]

    assert failed("kernels", new, "--fail-if", "time>1us") == ["cutlass_80_s16816gemm: time 2 µs: time>1us"]
    (changed,) = failed("kernels", new, "--before", old, "--fail-if", "name~gemm and relative_change>5%")
    assert changed.startswith("cutlass_80_s16816gemm: relative_change 100.0%: ")
    picture = str(tmp_path / "a.png")
    (point,) = failed("plot", NCU, "-o", picture, "--fail-if", "name~saxpy and level=dram and achieved<100%")
    assert point.startswith("saxpy, level dram: achieved ")


def test_a_renamed_kernel_has_as_many_launches(tmp_path: Path) -> None:
    old = profile(tmp_path / "old.csv", ("load", 10, 1), *[("norm_nchw", 90, 1)] * 2, ("store", 10, 1))
    for launches, before_name in ((2, "norm_nchw"), (50, None)):
        new = profile(tmp_path / "new.csv", ("load", 10, 1), *[("norm_nhwc", 9, 1)] * launches, ("store", 10, 1))
        changes = {change.name: change for change in read_profile(new, hw="h100", before=old).changes}
        assert changes["norm_nhwc"].before_name == before_name


def judged(seconds: float, **reasons: float) -> MeasuredGroup:
    kernel = make.kernel("0", "a.csv", "gemm", seconds=seconds)
    listed = [Reason(reason, cost, "") for reason, cost in reasons.items()]
    return MeasuredGroup(group(make.table([kernel]), "name")[0], kernel, listed)


@pytest.mark.parametrize(
    ("before", "after", "causes"),
    [
        (judged(8.0, tail=3.2), judged(10.0, tail=4.0), []),  # 40 % of either time
        (judged(8.0, tail=3.2), judged(10.0, tail=5.0), ["a partial last wave 3.2 s → 5 s"]),  # 1 s more than 40 %
        (judged(8.0), judged(10.0, tail=2.0), ["a partial last wave 0 → 2 s"]),
        (judged(10.0, tail=2.0), judged(8.0), ["a partial last wave 2 s → 0"]),
        (judged(10.0, tail=2.0), judged(8.0, tail=2.5), []),  # it costs more, but the kernel became faster
    ],
)
def test_a_reason_is_a_cause_if_it_came_went_or_costs_another_share(
    before: MeasuredGroup, after: MeasuredGroup, causes: list[str]
) -> None:
    assert KernelChange("gemm", before, after).causes == causes


def test_other_devices_before_and_after_are_a_warning(tmp_path: Path) -> None:
    old, new = profile(tmp_path / "old.csv", ("load", 20, 1)), profile(tmp_path / "new.csv", ("load", 10, 1))
    report = read_profile(f"{new}@h200", before=f"{old}@h100")
    assert "H100" in report.warnings[0].partition(" before and on ")[0]
    assert "H200" in report.warnings[0].partition(" before and on ")[2]
    assert report.to_dict()["warnings"] == list(report.warnings)
    assert not any("before and on" in text for text in read_profile(new, hw="h100", before=old).warnings)


def test_a_device_assumed_from_its_compute_capability_is_no_other_device(tmp_path: Path) -> None:
    old, new = profile(tmp_path / "old.csv", ("load", 20, 1)), profile(tmp_path / "new.csv", ("load", 10, 1))
    old.write_text(old.read_text("utf-8").replace('"9.0"', '"8.0"'), "utf-8")
    texts = read_profile(f"{new}@h100", before=old).warnings
    assert any("compute capability 8.0" in text and "is assumed" in text for text in texts)
    assert not any("ran on" in text for text in texts)


@pytest.mark.parametrize("is_old", [True, False])
def test_a_profile_without_kernels_is_an_error_that_names_its_file(is_old: bool, tmp_path, monkeypatch, capsys) -> None:
    measured, empty = profile(tmp_path / "kernels.csv", ("load", 20, 1)), tmp_path / "cpu.json"
    operator = {"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 1, "tid": 1, "ts": 1, "dur": 5}
    empty.write_text(json.dumps({"traceEvents": [operator]}), "utf-8")
    new, old = (measured, empty) if is_old else (empty, measured)
    done = run(["kernels", str(new), "--before", str(old), "--hw", "h100"], monkeypatch, capsys)
    assert done.status == 2
    assert "cpu.json: no kernels to compare: the trace has no kernels; collect with `torch.profiler" in done.err


def test_kernels_with_one_short_name_are_told_apart_in_the_terminal(tmp_path: Path) -> None:
    names = [f"void cudnn::bn_bw_1C11_kernel_new<{kind}, float, 512>(Params)" for kind in ("float", "half", "double")]
    old = profile(tmp_path / "old.csv", ("load", 20, 1), *((name, 20, 1) for name in names))
    new = profile(tmp_path / "new.csv", ("load", 20, 1))
    gone = [line for line in printed(read_profile(new, hw="h100", before=old), 120).splitlines() if "bn_bw" in line]
    assert [sum(kind in line for line in gone) for kind in ("half", "double")] == [1, 1]
    assert len(gone) == 3


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


def amp(path: Path, kernels: list[tuple[str, str, float]]) -> Path:
    """A PyTorch trace of kernels (operator, name, us), each launched by a call of its operator."""
    events = []
    for i, (operator, name, duration) in enumerate(kernels):
        start = 1000.0 * i
        events += [
            event("cpu_op", operator, start, start + 50, **{"External id": i + 1}),
            *launched(name, start + 20, start + 20 + duration, start + 5, **{"External id": i + 1}),
        ]
    return Path(written(path.parent, *events, name=path.name))


def test_other_kernels_of_an_operator_are_one_change(tmp_path: Path) -> None:
    """fp32 -> AMP: two GEMMs of 300 us become one of 60 us and one of 40 us; casts are new; the sum is unchanged."""
    fp32 = [("aten::mm", "volta_sgemm_128x64_nn", 300), ("aten::sum", "reduce", 10),
            ("aten::mm", "volta_sgemm_64x64_nt", 300), ("aten::mm", "splitK", 50)]  # fmt: skip
    half = [("aten::mm", "turing_h1688gemm_256x128_nn", 60), ("aten::sum", "reduce", 10),
            ("aten::copy_", "cast", 20), ("aten::mm", "turing_h1688gemm_128x64_nt", 40)]  # fmt: skip
    old, new = amp(tmp_path / "fp32.json", fp32), amp(tmp_path / "amp.json", half)
    changes = {change.name: change for change in read_profile(new, hw="t4", before=old).changes}
    assert {name: change.verdict for name, change in changes.items()} == {
        "aten::mm": "faster", "reduce": "unchanged", "cast": "new",
    }  # fmt: skip
    products = changes["aten::mm"]
    assert (products.before_seconds, products.after_seconds) == (pytest.approx(650e-6), pytest.approx(100e-6))
    assert products.causes[0] == "volta_sgemm_128x64_nn → turing_h1688gemm_256x128_nn"


def test_a_file_without_operators_has_one_change_of_its_gemms(tmp_path: Path) -> None:
    old = profile(tmp_path / "a.csv", ("volta_sgemm_nn", 300, 1), ("volta_sgemm_nt", 200, 1), ("load", 10, 1))
    new = profile(tmp_path / "b.csv", ("h1688gemm_nn", 60, 1), ("load", 10, 1))
    changes = {change.name: change for change in read_profile(new, hw="t4", before=old).changes}
    assert {name: change.verdict for name, change in changes.items()} == {"GEMM": "faster", "load": "unchanged"}
