"""FILE, FILE@HW and --hw: files and device of each run; counters of one run combined with times of another run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from roofmodel.errors import ProfileError, RoofError
from roofmodel.plot import measured, place
from roofmodel.profiles.kernel import Flops, Profile, ReaderWarning
from roofmodel.roofline import inputs
from roofmodel.roofline.inputs import with_times
from tests import kernels as make
from tests.plot.test_place import SMALL

TIMES = '"Time(%)","Total Time (ns)","Instances","Avg (ns)","Name"\n100.0,20000,1,20000.0,"saxpy"\n'


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("a.csv", "b.csv", "c.csv", "me@home.csv"):
        (tmp_path / name).write_text(SMALL, encoding="utf-8")
    (tmp_path / "mine.yaml").write_text(
        "name: Mine\npipes: {fp32: {peak: 1 TFLOP/s}}\nmemory: {dram: {bandwidth: 1 TB/s}}\n", encoding="utf-8"
    )
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("file", "parts"),
    [
        ("a.csv", ("a.csv", None)),
        ("a.csv@v100", ("a.csv", "v100")),
        ("./a.csv@V100", ("./a.csv", "V100")),
        ("a.csv@mine.yaml", ("a.csv", "mine.yaml")),
        ("*.csv@v100", ("*.csv", "v100")),
        ("-@v100", ("-", "v100")),
        ("me@home.csv", ("me@home.csv", None)),  # an existing file takes precedence
        ("./me@home.csv", ("./me@home.csv", None)),
        ("me@*.csv", ("me@*.csv", None)),
        ("me@home.csv@v100", ("me@home.csv", "v100")),
    ],
)
def test_a_name_may_end_in_a_device(file: str, parts: tuple[str, str | None]) -> None:
    assert inputs.split_device(file) == parts


@pytest.mark.parametrize(
    ("file", "fragment"),
    [
        ("a.csv@v1000", "a.csv@v1000: no such file; read as FILE@HW: unknown device 'v1000'; did you mean"),
        ("a.csv@", "FILE@HW needs a file and a device"),
        ("@v100", "FILE@HW needs a file and a device"),
        ("z.csv@v100", "'z.csv': no such file"),
    ],
)
def test_an_invalid_file_or_device_is_refused(file: str, fragment: str) -> None:
    with pytest.raises(RoofError) as caught:
        inputs.read_runs([file], None)
    assert fragment in str(caught.value)


def devices(*files: str, hw: str | None = None) -> list[tuple[str | None, int]]:
    return [(run.hw, len(run.profile.files)) for run in inputs.read_runs(files, hw)]


def test_the_files_of_one_device_are_one_run() -> None:
    assert devices("a.csv@v100", "b.csv@a100", "c.csv@v100-sxm2-32gb") == [("v100-sxm2-32gb", 2), ("a100-sxm-80gb", 1)]
    assert devices("a.csv", "b.csv", "c.csv@v100") == [(None, 2), ("v100-sxm2-32gb", 1)]
    assert devices("a.csv", "b.csv@v100", hw="a100") == [("a100-sxm-80gb", 1), ("v100-sxm2-32gb", 1)]
    assert devices("a.csv", "b.csv@a100", hw="a100") == [("a100-sxm-80gb", 2)]
    assert devices("?.csv@mine.yaml") == [("mine.yaml", 3)]


def test_times_replace_those_of_their_device(folder: Path) -> None:
    (folder / "t.csv").write_text(TIMES, encoding="utf-8")
    a100, v100 = inputs.read_runs(["a.csv@a100", "b.csv@v100"], None, ["t.csv@v100"])
    assert a100.profile.kernels[0].seconds == 10e-6  # unchanged
    assert v100.profile.kernels[0].seconds == pytest.approx(20e-6)
    (single,) = inputs.read_runs(["a.csv@a100"], None, ["t.csv"])  # a single device needs no name
    assert single.profile.kernels[0].seconds == pytest.approx(20e-6)
    with pytest.raises(RoofError, match="times=FILE@HW; the profiler files are of a100-sxm-80gb, v100-sxm2-32gb"):
        inputs.read_runs(["a.csv@a100", "b.csv@v100"], None, ["t.csv"])


def test_each_device_has_its_own_ceilings_points_and_shares() -> None:
    placed = place.place(["a.csv@v100", "b.csv"], None, model="gpt2", workload={"phase": "decode"})
    v100, a100 = placed.rooflines
    assert (v100.identification.source, a100.identification.source) == ("given", "assumed")
    # 12 MB in 10 µs, relative to 900 and 2039 GB/s
    assert v100.points[0].fraction == pytest.approx(12e6 / 900e9 / 10e-6)
    assert a100.points[0].fraction == pytest.approx(12e6 / 2039e9 / 10e-6)
    assert v100.points[0].share == a100.points[0].share == 1
    # predicted operators lie on the ceilings of each device
    first, second = ([p for p in roofline.points if p.predicted] for roofline in placed.rooflines)
    assert [p.name for p in first] == [p.name for p in second]
    assert {round(p.fraction or 0, 9) for p in (*first, *second)} == {1}
    ratio = {
        round((b.flops_per_second or 0) / (a.flops_per_second or 1), 6) for a, b in zip(first, second, strict=True)
    }
    assert round(2039 / 900, 6) in ratio  # memory-bound operators scale with the bandwidth
    assert any(str(text).startswith("v100-sxm2-32gb: ") for text in placed.warnings)


def test_files_of_two_devices_without_names_are_refused() -> None:
    Path("v.csv").write_text(SMALL.replace('"8.0"', '"7.0"'), encoding="utf-8")
    with pytest.raises(RoofError, match=r"different devices.*a\.csv@a100 v\.csv@v100"):
        place.place(["a.csv", "v.csv"], None)
    found = measured.kernels(["a.csv", "v.csv"], None)
    assert len(found.kernels) == 2
    assert any("a.csv@a100 v.csv@v100" in str(warning) for warning in found.warnings)
    assert len(place.place(["a.csv", "v.csv@v100"], None).rooflines) == 2


def profile(tool: str, *launches: tuple[str, float | None], **more: Any) -> Profile:
    kernels = tuple(
        make.kernel(id=str(i), file=tool, name=name, seconds=seconds, flops=Flops(fp32=100), **more)
        for i, (name, seconds) in enumerate(launches)
    )
    return Profile(tool, (tool,), make.table(kernels))


def seconds(found: Profile, name: str) -> list[float | None]:
    return [kernel.seconds for kernel in found.kernels if name in kernel.name]


def test_launches_match_in_order_despite_different_template_arguments() -> None:
    counted = profile("ncu", ("void gemm<(int)4>(float *)", 9.0), ("void gemm<(int)8>(float *)", 9.0))
    timed = profile("torch", ("void gemm<4>(float*)", 1.0), ("void gemm<8>(float*)", 2.0))
    found = with_times(counted, timed)
    assert seconds(found, "gemm") == [1.0, 2.0]
    assert [kernel.flops.fp32 for kernel in found.kernels] == [100, 100]
    assert found.warnings == ()
    assert found.files == ("ncu", "torch")


def test_launches_of_one_name_are_distinguished_by_grid_and_block() -> None:
    small, large = ({"grid": (n, 1, 1), "block": (128, 1, 1)} for n in (1, 64))
    counted = Profile(
        "ncu",
        ("ncu",),
        make.table([*profile("ncu", ("k", 9.0), **small).kernels, *profile("ncu", ("k", 9.0), **large).kernels]),
    )
    timed = Profile(
        "nsys",
        ("nsys",),
        make.table([*profile("nsys", ("k", 5.0), **large).kernels, *profile("nsys", ("k", 1.0), **small).kernels]),
    )
    assert [(k.grid, k.seconds) for k in with_times(counted, timed).kernels] == [((1, 1, 1), 1.0), ((64, 1, 1), 5.0)]


def test_unequal_launch_counts_use_the_mean_time_with_a_warning() -> None:
    found = with_times(profile("ncu", ("k", 9.0)), profile("nsys", ("k", 1.0), ("k", 2.0), ("k", 6.0)))
    assert seconds(found, "k") == [3.0]
    assert "1 of 1 launches have the mean time" in found.warnings[0]


def test_a_kernel_without_a_match_keeps_its_time_and_is_counted() -> None:
    found = with_times(profile("ncu", ("a", 9.0), ("b", 8.0)), profile("nsys", ("a", 1.0)))
    assert (seconds(found, "a"), seconds(found, "b")) == ([1.0], [8.0])
    assert "1 of 2 launches have no match in nsys" in found.warnings[0]


def test_times_of_another_program_are_refused() -> None:
    with pytest.raises(ProfileError, match="nsys: no kernel has the name of a kernel in ncu"):
        with_times(profile("ncu", ("a", 9.0)), profile("nsys", ("b", 1.0)))


def test_clocks_are_replaced_together_with_times() -> None:
    counted = profile("ncu", ("a", 9.0), ("b", 8.0), ("c", 7.0), clock=1.1e9)
    found = with_times(counted, profile("nsys", ("a", 1.0), ("b", 1.0), ("b", 1.0)))
    # nsys records no clock, so those of a and b are unknown; c keeps its time and clock
    assert {kernel.name: kernel.clock for kernel in found.kernels} == {"a": None, "b": None, "c": 1.1e9}


def test_warnings_about_replaced_times_and_unused_counters_are_dropped() -> None:
    untimed = ReaderWarning("no duration was collected", "times")
    uncounted = ReaderWarning("no FLOP metrics were collected", "counters")
    of_file, of_other = ReaderWarning("of the file"), ReaderWarning("of the other")
    counted = replace(profile("ncu", ("a", None)), warnings=(untimed, uncounted, of_file))
    timed = replace(profile("nsys", ("a", 1.0)), warnings=(uncounted, of_other))
    assert with_times(counted, timed).warnings == (uncounted, of_file, of_other)
    counted = replace(counted, kernels=make.table([*counted.kernels, *profile("ncu", ("b", None)).kernels]))
    assert untimed in with_times(counted, timed).warnings
