"""The line that collects: what stands in it, for whom, and what is refused."""

import json
import shlex
from pathlib import Path

import pytest

from roofmodel.errors import RoofError
from roofmodel.profiles.ncu import metric_catalog
from roofmodel.study.profile.ncu_command import advice, collect
from roofmodel.views.kit.encoding import as_json
from roofmodel.views.profile import ncu_command as views

TOY = Path(__file__).parents[3] / "examples" / "toy-gpu.yaml"


def after(command, option):
    return command[command.index(option) + 1]


@pytest.mark.parametrize(("hw", "generation"), [("v100", "7.0"), ("a100-pcie-40gb", "8.0"), ("H100", "9.0")])
def test_the_metrics_are_those_of_the_devices_generation(hw, generation):
    collection = collect(["./a.out"], hw)
    expected = [name for group in metric_catalog.collection(generation) for name in group.metrics]
    assert after(collection.command, "--metrics").split(",") == expected
    assert (collection.compute_capability, collection.hardware_from) == (generation, "given")


def test_a_device_of_the_users_own_is_served_by_its_compute_capability(tmp_path):
    from roofmodel.devices import library

    text = (library.folders()[-1] / "a100-sxm-40gb.yaml").read_text().replace("a100-sxm-40gb", "mine")
    (tmp_path / "mine.yaml").write_text(text.replace("8.0", "8.9", 1))
    collection = collect(["./a.out"], str(tmp_path / "mine.yaml"))
    assert "sm__ops_path_tensor_src_fp8.sum" in after(collection.command, "--metrics")


def test_a_device_that_is_not_named_is_assumed_and_said_so():
    for nvprof, device in ((False, "a100-sxm-80gb"), (True, "v100-sxm2-32gb")):
        collection = collect(["./a.out"], nvprof=nvprof)
        assert (collection.hardware, collection.hardware_from) == (device, "assumed")
        assert "assumed" in str(collection.notes[0])


def test_how_it_measures_is_always_said_and_filters_when_given():
    command = collect(["./a.out"]).command
    assert command[0] == "ncu"
    assert (after(command, "--replay-mode"), after(command, "--clock-control")) == ("kernel", "none")
    assert after(command, "--cache-control") == "all"
    assert not {"--nvtx-include", "--launch-skip", "--launch-count"} & set(command)
    command = collect(["./a.out"], nvtx="step 3", skip=0, count=2).command
    assert after(command, "--nvtx-include") == "step 3/"  # pushed and popped, in ncu's own spelling
    assert (after(command, "--launch-skip"), after(command, "--launch-count")) == ("0", "2")
    assert after(collect(["x"], nvtx="outer/*/inner/").command, "--nvtx-include") == "outer/*/inner/"


def test_the_line_survives_a_shell():
    program = ["python", "train.py", "--name", 'it\'s a "run"', "$HOME", "--", ""]
    collection = collect(program, nvtx="step; rm")
    assert shlex.split(views.line(collection)) == list(collection.command)
    assert collection.command[-len(program) :] == tuple(program)
    assert "\n" not in views.line(collection)


@pytest.mark.parametrize("nvprof", [False, True])
def test_each_part_of_the_line_has_one_line_of_why(nvprof):
    collection = collect(["./a.out"], nvtx=None if nvprof else "step", nvprof=nvprof)
    words = [word for part in collection.parts for word in part.words]
    assert [collection.tool, *words, "./a.out"] == list(collection.command)
    assert all(part.why for part in collection.parts)
    said = views.reasons(collection).splitlines()
    groups = 0 if nvprof else len(metric_catalog.collection("8.0"))
    assert len(said) == len(collection.parts) + groups
    assert all(len(line) < 160 for line in said)


def test_json_has_the_words_and_the_reasons():
    document = json.loads(as_json(views.document(collect(["./a.out"], "v100"))))
    assert document["schema"] == "roofmodel.ncu-command/1"
    assert document["command"][0] == "ncu"
    assert {"part": "--nvtx", "why": "the ranges around a launch are written with it, to group by"} in document["why"]


def test_nvprof_prints_times_that_are_read_and_has_no_filters():
    collection = collect(["./a.out"], nvprof=True, count=3)
    line = "nvprof --print-gpu-trace --csv --normalized-time-unit us --log-file nvprof.csv ./a.out"
    assert views.line(collection) == line
    assert any("count is ignored" in note for note in map(str, collection.notes))


@pytest.mark.parametrize(
    ("program", "options", "said"),
    [
        ([], {}, "no command"),
        (["--kernel-name"], {}, "'--kernel-name' is no program"),
        (["x"], {"hw": "a1000"}, "did you mean 'a100'"),
        (["x"], {"skip": -1}, "skip=-1"),
        (["x"], {"count": 0}, "count=0"),
        (["x"], {"nvprof": True, "hw": "h100"}, "nsys profile"),
        (["x"], {"hw": str(TOY)}, "8.9"),
    ],
)
def test_a_mistake_says_what_would_work(program, options, said):
    with pytest.raises(RoofError) as caught:
        collect(program, **options)
    assert said in str(caught.value)


def test_no_ncu_is_advised_where_it_does_not_run():
    assert "roof ncu-command --hw h100 -- CMD" in advice("h100")
    assert "--hw HW" in advice(None)
    assert advice("mi300x") == (
        "counters are read of NVIDIA's GPUs only, so that kernels on 'mi300x' have times and no more"
    )
