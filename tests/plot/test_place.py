"""From files to points: real exports on their devices."""

from __future__ import annotations

from pathlib import Path

import pytest

from roofmodel.errors import ProfileError, WorkloadError
from roofmodel.plot import measured, place
from roofmodel.plot.data import points_document
from roofmodel.plot.panels import panels_of
from roofmodel.roofline.points import GROUPINGS
from tests.profiles.samples import MEASURED, needs_measured

COLUMNS = (
    "ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream", "Block Size", "Grid Size",
    "Device", "CC", "dram__bytes.sum", "gpu__time_duration.sum",
    *(f"smsp__sass_thread_inst_executed_op_{op}_pred_on.sum" for op in ("fadd", "fmul", "ffma")),
)  # fmt: skip
UNITS = ("",) * 11 + ("Mbyte", "us", "inst", "inst", "inst")
CELLS = ("0", "11", "python3", "127.0.0.1", "saxpy", "1", "7", "(256, 1, 1)", "(64, 2, 1)", "0", "8.0")
SMALL = "".join(
    ",".join(f'"{cell}"' for cell in row) + "\n" for row in (COLUMNS, UNITS, (*CELLS, "12", "10", "0", "0", "1000000"))
)


@pytest.fixture
def small(tmp_path: Path) -> str:
    file = tmp_path / "small.csv"
    file.write_text(SMALL, encoding="utf-8")
    return str(file)


def test_one_kernel_from_raw_cells_to_its_point(small: str) -> None:
    placed = place.place([small], "a100")
    (roofline,) = placed.rooflines
    (point,) = roofline.points
    assert point.intensity == 2 * 1_000_000 / 12_000_000  # a fused multiply-add is 2 FLOPs; 1 Mbyte = 10^6 bytes
    assert point.flops_per_second == pytest.approx(2e6 / 10e-6)
    assert point.fraction == pytest.approx(12e6 / 2039e9 / 10e-6)
    assert placed.stem == "small.csv"


def test_missing_metrics_get_one_command_for_the_device(small: str) -> None:
    line = "to collect the missing metrics, run the command of `roofmodel.ncu_command(CMD, '{}')`"
    assert line.format("a100-sxm-80gb") in map(str, measured.kernels([small], None).warnings)
    assert line.format("v100-sxm2-32gb") in map(str, place.place([small], "v100").warnings)
    Path(small).write_text(SMALL.replace("dram__bytes.sum", "some__other.sum"), encoding="utf-8")
    with pytest.raises(ProfileError, match=r"`roofmodel.ncu_command\(CMD, 'a100-sxm-80gb'\)`"):
        place.place([small], None)


def test_a_model_is_plotted_with_a_measurement_or_alone(small: str) -> None:
    with_measurement = place.place([small], "a100", model="gpt2", workload={"phase": "decode"})
    assert {point.predicted for point in with_measurement.rooflines[0].points} == {True, False}
    alone = place.place([], "a100", model="gpt2")
    assert all(point.predicted for point in alone.rooflines[0].points)
    assert alone.stem == "gpt2"
    with pytest.raises(WorkloadError, match="model=MODEL hw=HW"):
        place.place([], None, model="gpt2")


def test_a_launch_with_a_time_of_zero_is_omitted_with_a_warning(tmp_path: Path) -> None:
    file = tmp_path / "instant.csv"
    instant = ",".join(f'"{cell}"' for cell in ("1", *CELLS[1:4], "fill", *CELLS[5:], "12", "0", "0", "0", "1000000"))
    file.write_text(f"{SMALL}{instant}\n", encoding="utf-8")
    placed = place.place([str(file)], "a100", by="base")
    assert any("omitted: 1 kernel launch with a time of 0" in str(warning) for warning in placed.warnings)


def test_a_device_that_the_file_contradicts_gets_one_warning(small: str) -> None:
    (warning,) = [w for w in measured.kernels([small], "h100").warnings if "was given" in str(w)]
    assert warning.startswith(f"h100-sxm was given, but {Path(small).name} has compute capability 8.0")


def test_times_alone_give_a_table_but_no_roofline(tmp_path: Path) -> None:
    file = tmp_path / "times.csv"
    file.write_text(SMALL.replace("dram__bytes.sum", "some__other.sum"), encoding="utf-8")
    with pytest.raises(ProfileError, match="no bytes were collected"):
        place.place([str(file)], "a100")
    assert len(measured.kernels([str(file)], None).kernels) == 1


@needs_measured
def test_resnet18_on_the_a100_is_identified_by_attributes_and_incomplete() -> None:
    placed = place.place([str(MEASURED / "ncu" / "a100_40_resnet18_raw_wide.csv")], None)
    (roofline,) = placed.rooflines
    assert (roofline.identification.device.id, roofline.identification.source) == ("a100-sxm-40gb", "attributes")
    assert sum(point.invocations for point in roofline.points if point.level == "dram") == 235
    assert all(point.incomplete for point in roofline.points)
    assert any("tensor" in str(warning) for warning in placed.warnings)
    # no kernel is above its ceilings
    assert all(point.fraction is None or point.fraction <= 1 for point in roofline.points)


@needs_measured
@pytest.mark.parametrize("by", GROUPINGS)
def test_the_grouping_of_kernels_does_not_change_the_ceilings(by: str) -> None:
    # Kernel names contain tf32 and no other tensor format; names of groups contain no format.
    placed = place.place([str(MEASURED / "ncu" / "a100_40_resnet18_raw_wide.csv")], None, by=by)
    (panel,) = panels_of(placed)
    assert [pipe.name for pipe in panel.pipes] == ["tensor_tf32", "fp32"]
    used = [c["name"] for c in points_document(placed)["ceilings"] if c["kind"] == "pipe" and c["used"]]
    assert sorted(used) == ["fp32", "tensor_tf32"]


@needs_measured
def test_twelve_files_of_one_metric_each_are_one_run_of_465_kernels() -> None:
    folder = MEASURED / "ncu" / "nersc_v100" / "TF-fp32-batch1-fw-noamp-732370"
    placed = place.place([str(folder / "*")], "v100-sxm2-16gb")
    (roofline,) = placed.rooflines
    for level in ("dram", "l2", "l1"):
        assert sum(point.invocations for point in roofline.points if point.level == level) == 465
    # fp64 was not collected; it matters only if the sum of the others is zero
    assert all(point.incomplete == (point.flops_per_second == 0) for point in roofline.points)


@needs_measured
def test_a_trace_identifies_its_device() -> None:
    trace = MEASURED / "traces" / "torch" / "gaunernst_bert-small-uncased__1016001.json.gz"
    found = measured.kernels([str(trace)], None)
    identification = found.runs[0].identification
    assert identification is not None
    assert (identification.device.id, identification.source) == ("h100-sxm", "attributes")
    assert len(found.kernels) == 60
    assert sum(kernel.seconds or 0 for kernel in found.kernels) == pytest.approx(307.197e-6, rel=1e-9)


@needs_measured
def test_kernels_of_a_device_without_a_file_are_listed() -> None:
    found = measured.kernels([str(MEASURED / "traces" / "nsys" / "one_kernel_rtx_a4500.sqlite")], None)
    identified = found.runs[0].identification
    assert identified is not None
    assert (identified.source, identified.known_name) == ("file", None)
    assert any("no device file describes 'NVIDIA RTX A4500'" in str(warning) for warning in found.warnings)
