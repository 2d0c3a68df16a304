"""The commands `roof kernels` and `roof plot`."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from tests.command_line import Done, run
from tests.plot.test_place import SMALL
from tests.printing import MAGIC

KERNEL_KEYS = {
    "id", "file", "process", "device", "stream", "name", "grid", "block", "nvtx", "invocations", "seconds", "occupancy",
    "flops", "bytes",
}  # fmt: skip
POINT_KEYS = {
    "name", "level", "pipe", "intensity", "flops_per_second", "attainable", "fraction", "bound", "seconds", "share",
    "invocations", "predicted",
}  # fmt: skip


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "ncu.csv").write_text(SMALL, encoding="utf-8")
    (tmp_path / "text.txt").write_text("hello\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    return tmp_path


def roof(command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Done:
    return run(command.split(), monkeypatch, capsys)


def test_kernels_as_json_have_the_keys_of_the_contract(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, _ = roof("kernels ncu.csv --format json", monkeypatch, capsys)
    document = json.loads(out)
    assert status == 0
    assert document["schema"] == "roofmodel.kernels/1"
    assert document["source"] == {"tool": "ncu", "files": ["ncu.csv"]}
    assert (document["hardware"], document["hardware_from"]) == ("a100-sxm-80gb", "assumed")
    (kernel,) = document["kernels"]
    assert set(kernel) >= KERNEL_KEYS
    assert (kernel["seconds"], kernel["bytes"]["dram"], kernel["flops"]["fp32"]) == (1e-05, 12e6, 2e6)
    assert kernel["flops"]["tensor_fp16"] is None  # not collected
    assert (kernel["grid"], kernel["block"]) == ([64, 2, 1], [256, 1, 1])


def test_kernels_as_csv_and_as_a_table(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = roof("kernels ncu.csv --format csv", monkeypatch, capsys)
    (row,) = csv.DictReader(io.StringIO(out))
    assert (row["name"], row["flops_fp32"], row["flops_fp64"], row["grid"]) == ("saxpy", "2000000", "", "64x2x1")
    _, out, _ = roof("kernels ncu.csv", monkeypatch, capsys)
    assert "1 kernel launch on NVIDIA A100" in out
    assert "saxpy" in out


def test_plot_shows_the_table_and_writes_a_picture_into_the_current_folder(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    status, out, err = roof("plot ncu.csv --hw a100-sxm-40gb", monkeypatch, capsys)
    assert status == 0
    assert (folder / "ncu.csv.roofline.png").read_bytes().startswith(b"\x89PNG")
    assert "wrote ncu.csv.roofline.png" in err
    assert "saxpy" in out


@pytest.mark.parametrize(("suffix", "magic"), MAGIC.items())
def test_plot_writes_all_picture_formats(
    suffix: str, magic: bytes, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    status, _, _ = roof(f"plot ncu.csv --hw a100 --model gpt2 -o x.{suffix}", monkeypatch, capsys)
    assert status == 0
    assert (folder / f"x.{suffix}").read_bytes().startswith(magic)
    assert sorted(p.name for p in folder.iterdir()) == sorted(["ncu.csv", "text.txt", f"x.{suffix}"])


def test_workload_options_are_ignored_without_a_model(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _, _, err = roof("plot ncu.csv --hw a100 --tp 2 --weights int4 --dtype fp8 -o x.png", monkeypatch, capsys)
    assert "note: --dtype is ignored: there is no --model" in err
    assert "note: --tp is ignored: there is no --model" in err
    assert "--weights is ignored: there is no --model" in err
    _, _, err = roof("plot ncu.csv --hw a100 --model gpt2-xl --tp 5 --weights int4 -o x.png", monkeypatch, capsys)
    assert "ignored" not in err


def test_all_outputs_are_written(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    status, _, err = roof("plot ncu.csv --hw a100 -o x.png -o x.json -o x.csv", monkeypatch, capsys)
    assert status == 0
    assert "wrote x.png\nwrote x.json\nwrote x.csv\n" in err
    assert all((folder / f"x.{suffix}").stat().st_size for suffix in ("png", "json", "csv"))


def test_an_unknown_suffix_is_refused_before_files_are_read(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    for suffix in ("docx", "tex"):
        status, _, err = roof(f"plot no.csv --hw a100 -o x.png -o x.{suffix}", monkeypatch, capsys)
        assert status == 2
        assert err == (
            f"error: x.{suffix}: unknown suffix '.{suffix}'; known: .png, .svg, .pdf, .html, .json, .csv, .md\n"
        )
    assert not (folder / "x.png").exists()


def test_an_empty_file_name_is_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    done = run(("kernels", ""), monkeypatch, capsys)
    assert done.status == 2
    assert done.err.startswith("error: '' is not a file name; give a profiler file")


def test_errors_list_candidates_for_the_device_and_warnings_do_not(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    (folder / "ncu.csv").write_text(SMALL.replace('"8.0"', '"12.0"'), encoding="utf-8")
    assert "; candidates: " not in roof("kernels ncu.csv", monkeypatch, capsys)[2]
    assert "; candidates: rtx-pro-6000, " in roof("plot ncu.csv", monkeypatch, capsys)[2]


def test_points_as_json_have_the_keys_of_the_contract(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _, out, _ = roof("plot ncu.csv --hw a100 --format json -o x.csv", monkeypatch, capsys)
    document = json.loads(out)
    assert document["schema"] == "roofmodel.points/1"
    assert document["hardware_from"] == "given"
    assert {"name": "dram", "kind": "level", "bytes_per_second": 2039 * 10**9} in document["ceilings"]
    (point,) = document["points"]
    assert set(point) >= POINT_KEYS
    assert point["predicted"] is False
    assert len(Path("x.csv").read_text(encoding="utf-8").splitlines()) == 2


def test_points_of_one_device_have_its_name_once_and_the_clocks(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _, out, err = roof("plot ncu.csv --hw v100 --clock 1312MHz --ceilings measured --format json", monkeypatch, capsys)
    document = json.loads(out)
    assert document["hardware"] == "v100-sxm2-32gb"
    assert document["devices"] == [
        {
            "hardware": "v100-sxm2-32gb",
            "hardware_from": "given",
            "files": ["ncu.csv"],
            "clock": 1312000000,
            "kernels_clock": None,
            "ceilings_from": "measured",
        }
    ]
    ceilings = {c["name"]: c.get("flops_per_second") or c["bytes_per_second"] for c in document["ceilings"]}
    assert ceilings["dram"] == 867e9  # measured by a read benchmark
    assert ceilings["fp32"] == pytest.approx(15.7e12 * 1312 / 1530)
    assert not any("hardware" in item for item in (*document["ceilings"], *document["points"]))
    assert "ceilings are scaled to 1.312 GHz" in err


def test_several_devices_in_one_figure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    command = "plot ncu.csv@v100 other.csv@a100 --model gpt2 --phase decode"
    (folder / "other.csv").write_text(SMALL, encoding="utf-8")
    status, out, err = roof(f"{command} --format json -o x.csv", monkeypatch, capsys)
    document = json.loads(out)
    assert status == 0
    assert (document["hardware"], document["hardware_from"]) == (None, None)
    names = ["v100-sxm2-32gb", "a100-sxm-80gb"]
    assert [device["hardware"] for device in document["devices"]] == names
    assert [device["files"] for device in document["devices"]] == [["ncu.csv"], ["other.csv"]]
    bandwidths = {c["hardware"]: c["bytes_per_second"] for c in document["ceilings"] if c["name"] == "dram"}
    assert bandwidths == dict(zip(names, (900e9, 2039e9), strict=True))
    kinds = {(name, predicted) for name in names for predicted in (True, False)}
    assert {(p["hardware"], p["predicted"]) for p in document["points"]} == kinds
    rows = list(csv.DictReader(io.StringIO(Path("x.csv").read_text(encoding="utf-8"))))
    assert [row["hardware"] for row in rows] == [point["hardware"] for point in document["points"]]
    assert "warning: v100-sxm2-32gb: " in err
    for suffix in ("png", "svg"):
        assert roof(f"{command} -o x.{suffix}", monkeypatch, capsys)[0] == 0
    svg = Path("x.svg").read_text(encoding="utf-8")
    assert "NVIDIA Tesla V100 SXM2 32 GB" in svg
    assert "NVIDIA A100 SXM4 80 GB" in svg


def test_a_point_above_its_ceiling_is_marked_in_all_outputs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    # 12 MB in 10 µs are 1.2 TB/s: above the V100's 0.9, and more than its L2 of 6 MiB holds
    (folder / "ncu.csv").write_text(SMALL.replace('"8.0"', '"7.0"'), encoding="utf-8")
    _, out, err = roof("plot ncu.csv --format json", monkeypatch, capsys)
    (point,) = json.loads(out)["points"]
    assert point["fraction"] == pytest.approx(12e6 / 900e9 / 10e-6)
    assert point["finding"].startswith("no clock, sparsity, cache or known device explains it")
    assert "warning: saxpy reaches 133% of its dram ceiling, which is impossible; explanation: no clock" in " ".join(
        err.split()
    )
    _, out, _ = roof("plot ncu.csv", monkeypatch, capsys)
    assert "133%!" in out


def test_kernels_of_several_devices_have_their_device(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    (folder / "other.csv").write_text(SMALL, encoding="utf-8")
    _, out, _ = roof("kernels ncu.csv@v100 other.csv@a100 --format json", monkeypatch, capsys)
    document = json.loads(out)
    assert document["hardware"] is None
    assert document["source"] == {"tool": "ncu", "files": ["ncu.csv", "other.csv"]}
    assert [kernel["hardware"] for kernel in document["kernels"]] == ["v100-sxm2-32gb", "a100-sxm-80gb"]
    _, out, _ = roof("kernels ncu.csv@v100 other.csv@a100", monkeypatch, capsys)
    assert "V100" in out
    assert "A100" in out


@pytest.mark.parametrize(
    ("command", "fragment"),
    [
        ("kernels ncu.csv@v1000", "did you mean 'v100'"),
        ("plot ncu.csv@a100 --hw a1000", "did you mean 'a100'"),
        ("plot ncu.csv@a100 --clock measured", "no file contains the clock"),
        ("plot ncu.csv@a100 --clock 1.41", "'1.41' has no unit"),
        ("plot ncu.csv@a100 --ceilings stream", "known: datasheet, measured"),
        ("kernels missing.csv", "missing.csv"),
        ("kernels text.txt", "text.txt"),
        ("kernels ncu.csv --hw a1000", "did you mean 'a100'"),
        ("kernels ncu.csv --format yaml", "known: table, json, csv, markdown"),
        ("kernels", "files"),
        ("plot", "--model MODEL --hw HW"),
        ("plot --model gpt2", "--hw HW"),
        ("plot ncu.csv --by colour", "known: name, base, nvtx, category, lecture"),
        ("plot ncu.csv -o x.txt", "unknown suffix '.txt'"),
        ("plot ncu.csv -o x.tex", "unknown suffix '.tex'; known: .png"),
        ("plot ncu.csv -o no/x.png", "folder 'no' does not exist"),
        ("plot ncu.csv --hw a100 --model nope", "unknown model 'nope'"),
    ],
)
def test_a_wrong_input_is_one_line_and_status_2_and_nothing_is_written(
    command: str, fragment: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    status, out, err = roof(command, monkeypatch, capsys)
    assert (status, out) == (2, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert fragment in err
    assert sorted(p.name for p in folder.iterdir()) == ["ncu.csv", "text.txt"]
