"""The ncu and nvprof commands that collect the metrics of a roofline."""

import gzip
import json
import shlex
from pathlib import Path

import pytest

from roofmodel.devices.library import shipped_folder
from roofmodel.errors import RoofError, option_spelling
from roofmodel.plot.ncu_command import CollectionCommand, collect, collection_advice
from roofmodel.profiles.ncu import metric_catalog
from roofmodel.report.base import as_json
from roofmodel.report.printing import flag
from roofmodel.roofline.reasons import REASONS

TOY = Path(__file__).parents[2] / "examples" / "toy-gpu.yaml"


def after(command, option):
    return command[command.index(option) + 1]


@pytest.mark.parametrize(("hw", "generation"), [("v100", "7.0"), ("a100-pcie-40gb", "8.0"), ("H100", "9.0")])
def test_the_metrics_are_those_of_the_devices_generation(hw, generation):
    collection = collect(["./a.out"], hw)
    expected = [name for group in metric_catalog.collection(generation) for name in group.metrics]
    assert after(collection.command, "--metrics").split(",") == expected
    assert (collection.compute_capability, collection.hardware_from) == (generation, "given")


def test_a_users_device_gets_the_metrics_of_its_compute_capability(tmp_path):
    from roofmodel.devices import library

    text = (library.folders()[-1] / "a100-sxm-40gb.yaml").read_text().replace("a100-sxm-40gb", "mine")
    (tmp_path / "mine.yaml").write_text(text.replace("8.0", "8.9", 1))
    collection = collect(["./a.out"], str(tmp_path / "mine.yaml"))
    assert "sm__ops_path_tensor_src_fp8.sum" in after(collection.command, "--metrics")


def test_without_a_device_one_is_assumed_with_a_note():
    for nvprof, device in ((False, "a100-sxm-80gb"), (True, "v100-sxm2-32gb")):
        collection = collect(["./a.out"], nvprof=nvprof)
        assert (collection.hardware, collection.hardware_from) == (device, "assumed")
        assert "assumed" in str(collection.notes[0])


def test_replay_clock_and_cache_options_are_always_set_and_filters_when_given():
    command = collect(["./a.out"]).command
    assert command[0] == "ncu"
    assert (after(command, "--replay-mode"), after(command, "--clock-control")) == ("kernel", "none")
    assert after(command, "--cache-control") == "all"
    assert not {"--nvtx-include", "--launch-skip", "--launch-count"} & set(command)
    command = collect(["./a.out"], nvtx="step 3", skip=0, count=2).command
    assert after(command, "--nvtx-include") == "step 3/"  # ncu's syntax for push/pop ranges
    assert (after(command, "--launch-skip"), after(command, "--launch-count")) == ("0", "2")
    assert after(collect(["x"], nvtx="outer/*/inner/").command, "--nvtx-include") == "outer/*/inner/"


def sections(command):
    return [command[i + 1] for i, word in enumerate(command) if word == "--section"]


def test_the_default_tells_memory_compute_occupancy_and_stalls_apart():
    assert {"SpeedOfLight", "Occupancy", "WarpStateStats"} <= {*sections(collect(["x"]).command)}


@pytest.mark.parametrize("hw", ["v100", "t4", "a100", "h100", "b200", "rtx5090"])
def test_why_collects_every_counter_that_a_reason_needs(hw):
    collection = collect(["x"], hw, why=True, kernel="gemm")
    collected = {*after(collection.command, "--metrics").split(",")}
    listed = {section.name: section for section in (*metric_catalog.SECTIONS, metric_catalog.PIPES)}
    assert {*sections(collection.command)} == {*listed}
    collected |= {name for section in listed.values() for name in section.metrics}
    for rule in REASONS:
        assert collected >= {*rule.needs}, rule.name
    assert after(collection.command, "--kernel-name") == "regex:gemm"
    explained = {part for part, _ in collection.reasons}
    assert {"--kernel-name regex:gemm", "--replay-mode kernel", "--clock-control none"} <= explained


def test_the_sections_have_these_metrics():
    """Of the raw page that `--set full` wrote on an H100."""
    page = Path(__file__).parents[1] / "data/gpu/h100/unseen/raw.csv.gz"
    with gzip.open(page, "rt", encoding="utf-8") as file:
        header = file.readline()
    assert all(f'"{name}"' in header for section in metric_catalog.SECTIONS for name in section.metrics)
    assert all(f'"{name}"' in header for group in metric_catalog.diagnosis() for name in group.metrics)


def test_the_line_is_quoted_for_a_shell():
    program = ["python", "train.py", "--name", 'it\'s a "run"', "$HOME", "--", ""]
    collection = collect(program, nvtx="step; rm")
    assert shlex.split(collection.line) == list(collection.command)
    assert collection.command[-len(program) :] == tuple(program)
    assert "\n" not in collection.line


@pytest.mark.parametrize("nvprof", [False, True])
def test_each_part_of_the_command_has_a_reason_of_one_line(nvprof):
    collection = collect(["./a.out"], nvtx=None if nvprof else "step", nvprof=nvprof)
    words = [word for part in collection.parts for word in part.words]
    assert [collection.tool, *words, "./a.out"] == list(collection.command)
    assert all(part.why for part in collection.parts)
    lines = CollectionCommand(collection).reasons.splitlines()
    groups = 0 if nvprof else len(metric_catalog.collection("8.0"))
    assert len(lines) == len(collection.parts) + groups
    assert all(len(line) < 160 for line in lines)


def test_json_has_the_texts_and_reasons():
    document = json.loads(as_json(CollectionCommand(collect(["./a.out"], "v100")).to_dict()))
    assert document["schema"] == "roofmodel.ncu-command/1"
    assert document["command"][0] == "ncu"
    assert {"part": "--nvtx", "why": 'record the NVTX ranges of each launch, for by="nvtx"'} in document["why"]


def test_nvprof_collects_times_and_ignores_filters():
    collection = collect(["./a.out"], nvprof=True, count=3)
    line = "nvprof --print-gpu-trace --csv --normalized-time-unit us --log-file nvprof.csv ./a.out"
    assert collection.line == line
    assert any("count is ignored" in str(note) for note in collection.notes)


@pytest.mark.parametrize(
    ("program", "options", "message"),
    [
        ([], {}, "no program"),
        (["--kernel-name"], {}, "'--kernel-name' is not a program"),
        (["x"], {"hw": "a1000"}, "did you mean 'a100'"),
        (["x"], {"skip": -1}, "skip=-1"),
        (["x"], {"count": 0}, "count=0"),
        (["x"], {"nvprof": True, "hw": "h100"}, "nsys profile"),
        (["x"], {"hw": str(TOY)}, "8.9"),
    ],
)
def test_an_error_names_the_problem_and_a_correction(program, options, message):
    with pytest.raises(RoofError) as caught:
        collect(program, **options)
    assert message in str(caught.value)


def test_ncu_is_not_suggested_for_other_vendors():
    assert "`roofmodel.ncu_command(CMD, 'h100')`" in str(collection_advice("h100"))
    with option_spelling(flag):
        assert "`roof ncu-command --hw h100 -- CMD`" in str(collection_advice("h100"))
    assert "`roofmodel.ncu_command(CMD, 'HW')`" in str(collection_advice(None))
    assert str(collection_advice("mi300x")).startswith("to collect the missing metrics, run rocprofv3 --pmc FETCH_SIZE")
    assert collection_advice("tpu-v4") == (
        "counters of NVIDIA and AMD GPUs only are read; kernels on 'tpu-v4' have times only"
    )


def test_the_advice_names_a_device_file_without_its_folder():
    """The folder may name a person, and the advice is part of pages and documents."""
    assert "`roofmodel.ncu_command(CMD, 'h100-sxm.yaml')`" in str(collection_advice(shipped_folder() / "h100-sxm.yaml"))
