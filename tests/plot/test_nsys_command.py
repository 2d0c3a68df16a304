"""The nsys command that records a run."""

import json

import pytest

import roofmodel
from roofmodel.errors import WorkloadError


def words(*program, **options):
    return json.loads(roofmodel.nsys_command(program or ["./a.out"], **options).text("json"))["command"]


def test_the_command_records_calls_and_ranges_and_exports_what_roof_reads():
    command = words("torchrun", "train.py")
    assert command[:2] == ["nsys", "profile"]
    assert command[-2:] == ["torchrun", "train.py"]
    assert {"cuda", "nvtx"} <= set(command[command.index("--trace") + 1].split(","))
    assert command[command.index("--export") + 1] == "sqlite"
    assert "--capture-range" not in command


def test_a_range_needs_the_setting_for_names_that_are_not_registered():
    command = words(nvtx="step 10")
    assert command[command.index("--capture-range") + 1] == "nvtx"
    assert command[command.index("--nvtx-capture") + 1] == "step 10"
    assert "NSYS_NVTX_PROFILER_REGISTER_ONLY=0" in command
    assert command[command.index("--capture-range-end") + 1] == "stop"  # the default ends the program


def test_the_profiler_api_and_clocks_are_options():
    command = words(profiler_api=True, gpu_metrics=True)
    assert command[command.index("--capture-range") + 1] == "cudaProfilerApi"
    assert "--gpu-metrics-devices" in command


def test_why_records_page_faults_and_samples():
    command = words(why=True)
    assert {"--gpu-metrics-devices", "--cuda-um-gpu-page-faults"} <= set(command)
    assert "--cuda-um-gpu-page-faults" not in words()


def test_there_is_one_capture_range():
    with pytest.raises(WorkloadError, match="one capture range"):
        roofmodel.nsys_command(["./a.out"], nvtx="step", profiler_api=True)


@pytest.mark.parametrize("program", [[], ["--nvtx"]])
def test_a_missing_program_is_named(program):
    with pytest.raises(WorkloadError, match="program"):
        roofmodel.nsys_command(program)
