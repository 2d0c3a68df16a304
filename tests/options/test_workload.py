"""The declaration of the options of a workload, and what is derived from it."""

from __future__ import annotations

import inspect
from typing import Any, Literal, get_args, get_type_hints

import pytest
import typer

import roofmodel
from roofmodel import plan, plan_training
from roofmodel.cli import app
from roofmodel.engines.engine import AUTOCAST_FORMATS, Engine
from roofmodel.engines.engine_file import PACKAGED
from roofmodel.errors import RoofError, WorkloadError
from roofmodel.options.keywords import TrainingOptions
from roofmodel.options.values import MAX_VALUE, VISION, Phase
from roofmodel.options.workload import DECLARED, DEFAULTS, key_of, non_default_options, valid
from roofmodel.sweep.case import COLUMNS
from roofmodel.sweep.titles import TITLES
from tests.command_line import Done, Roof, run


@pytest.fixture
def roof(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Roof:
    def call(*arguments: str) -> Done:
        return run(arguments, monkeypatch, capsys)

    return call


def command(name: str) -> dict[str, Any]:
    """The options of a workload that a command has, by name."""
    roof: Any = typer.main.get_command(app)
    return {option.name: option for option in roof.get_command(None, name).params if option.name in DECLARED}


def test_a_command_has_each_option_with_its_default_help_and_group() -> None:
    found = command("estimate")
    assert {name: option.default or DEFAULTS[name] for name, option in found.items()} == DEFAULTS
    assert {name: option.opts for name, option in found.items()} == {n: [f"--{n.replace('_', '-')}"] for n in DECLARED}
    assert {name: (option.rich_help_panel, option.help) for name, option in found.items()} == {
        name: (option.group, option.help) for name, option in DECLARED.items()
    }
    assert [found[name].type.name for name in ("batch", "memory_utilization", "dtype", "engine")] == [
        "int", "float", "str", "str",
    ]  # fmt: skip
    assert [name for name, option in found.items() if option.multiple] == ["engine_option"]


def test_a_sweep_takes_each_option_as_text_or_as_a_flag_and_has_a_column_for_it() -> None:
    assert {(name, option.default, option.type.name) for name, option in command("sweep").items()} == {
        (name, None, "boolean" if declared.type is bool else "str") for name, declared in DECLARED.items()
    }
    assert {*map(key_of, DECLARED)} <= {*COLUMNS} & TITLES.keys()


def test_a_plan_takes_the_options_that_it_searches() -> None:
    found = command("plan")
    searched = {name: option.plan_help for name, option in DECLARED.items() if option.plans}
    assert {name: option.help for name, option in found.items() if name in searched} == searched
    assert (found["zero"].rich_help_panel, found["tp"].rich_help_panel) == ("Training", "Parallelism")
    of_service, of_training = (inspect.signature(function).parameters for function in (plan, plan_training))
    assert {"weights", "tp"} <= of_service.keys()
    assert "zero" not in of_service
    assert {"zero", "tp"} <= of_training.keys()
    assert "weights" not in of_training
    assert of_training["zero"].annotation == get_type_hints(TrainingOptions)["zero"]


def test_an_option_that_a_plan_does_not_search_is_an_error() -> None:
    with pytest.raises(WorkloadError, match="unknown option 'zero'; known: dtype, weights"):
        plan("gpt2", "a100", gpus=1, isl=8, osl=8, zero=1)  # type: ignore[call-arg]
    with pytest.raises(WorkloadError, match="unknown option 'weight'; known: recompute"):
        plan_training("gpt2", "a100", gpus=1, tokens="1B", weight="fp8")  # type: ignore[call-arg]


def test_the_kind_and_the_names_of_an_option_follow_from_its_type() -> None:
    assert (DECLARED["batch"].type, DECLARED["batch"].kind, DECLARED["batch"].choices) == (int, "count", ())
    assert (DECLARED["seq"].type, DECLARED["seq"].kind) == (int | None, "count")
    assert DECLARED["mla"][-3:] == (Literal["absorbed", "naive"], "name", ("absorbed", "naive"))
    assert DECLARED["logits"].choices == ("last", "all")  # Logits | None
    assert [DECLARED[name].kind for name in ("memory_utilization", "routing", "engine", "engine_option")] == [
        "share", "name", "name", "settings",
    ]  # fmt: skip


def test_each_default_is_valid() -> None:
    assert {name: valid(name, value) for name, value in DEFAULTS.items() if value is not None} == {
        name: value for name, value in DEFAULTS.items() if value is not None
    }


@pytest.mark.parametrize(
    "name", [name for name, option in DECLARED.items() if option.kind == "count" and not option.check]
)
def test_a_number_has_its_declared_limits(name: str) -> None:
    low, high = DECLARED[name].minimum, int(DECLARED[name].maximum)
    assert (valid(name, low), valid(name, high)) == (low, high)
    for outside in (low - 1, MAX_VALUE + 1, 1.5, True, None, "1"):
        with pytest.raises(WorkloadError, match=f"{name} is {outside!r}; .* from {low} to {high}"):
            valid(name, outside)


def test_a_name_that_is_not_one_of_its_type_is_an_error_with_the_known_ones() -> None:
    with pytest.raises(WorkloadError, match="recompute: unknown value 'ful'; did you mean 'full'\\? known: none, sel"):
        valid("recompute", "ful")


def test_shares_are_numbers() -> None:
    assert valid("memory_utilization", "0.5") == 0.5
    for value in (0, 1.1):
        with pytest.raises(WorkloadError, match="memory_utilization"):
            valid("memory_utilization", value)


@pytest.mark.parametrize(
    "given",
    [
        "launch=8us,moe=marlin",
        ["launch=8us", "moe=marlin"],
        ["launch=8us,moe=marlin"],
        {"launch": "8us", "moe": "marlin"},
    ],
)
def test_options_of_an_engine_are_pairs_of_a_key_and_a_value(given: Any) -> None:
    pairs = (("launch", "8us"), ("moe", "marlin"))
    assert valid("engine_option", given) == pairs
    assert valid("engine_option", pairs) == pairs


@pytest.mark.parametrize("given", ["launch", "=8us", "launch=", 3])
def test_an_option_of_an_engine_without_a_value_is_an_error(given: Any) -> None:
    with pytest.raises(WorkloadError, match='it must be KEY=VALUE, such as engine_option="launch=graph"'):
        valid("engine_option", given)


@pytest.mark.parametrize(
    ("option", "value", "new"),
    [
        ("runtime", "eager", 'write engine="torch"$'),
        ("runtime", "graph", 'write engine="vllm" .*, otherwise engine="torch" engine_option="launch=graph"$'),
        ("runtime", "autocast", 'write engine="torch" engine_option="autocast=bf16"$'),
        ("runtime", "megatron", 'write engine="megatron"$'),
        ("launch", "8us", 'write engine="torch" engine_option="launch=8us"$'),
        ("engine", "current", 'write engine="vllm"$'),
        ("engine", "trtllm-0.9", 'write engine="trtllm@0.9"$'),
    ],
)
def test_a_former_option_is_an_error_with_what_to_write_instead(option: str, value: str, new: str) -> None:
    for function in (roofmodel.estimate, roofmodel.sweep):
        with pytest.raises(RoofError, match=new):
            function("gpt2", "a100", **{option: value})  # type: ignore[arg-type]


def test_options_at_their_default_do_not_count_as_given() -> None:
    given = {"batch": 1, "seq": 8, "dtype": "bf16", "hw": None, "family": "llama"}
    assert non_default_options(given) == ["seq", "dtype", "family"]
    assert non_default_options(given, used=("dtype",)) == ["seq", "family"]


@pytest.mark.parametrize("name", DECLARED)
@pytest.mark.parametrize(
    "value",
    [10**5000, -(10**5000), [10**5000], "9" * 5000, "9" * 5000 + "us"],
    ids=["int", "minus", "list", "text", "us"],
)
def test_a_value_of_thousands_of_digits_is_one_short_error(name: str, value: Any) -> None:
    with pytest.raises(RoofError) as error:
        roofmodel.estimate("Mixtral-8x7B-v0.1", "a100", **{name: value})
    assert len(str(error.value)) < 500
    assert "sys." not in str(error.value)  # what Python advises programmers to do


@pytest.mark.parametrize("name", ["batch", "memory_utilization", "dtype", "engine", "form", "output"])
def test_a_command_line_of_thousands_of_digits_is_one_short_error(roof: Roof, name: str) -> None:
    option = {"form": "--format", "output": "-o"}.get(name, f"--{name.replace('_', '-')}")
    done = roof("estimate", "gpt2", "--hw", "a100", option, "9" * 5000)
    assert done.status == 2
    assert len(done.err) < 500


ENGINES: list[dict[str, Any]] = [
    *({"engine": name} for name in PACKAGED),
    {"engine": "torch", "engine_option": "launch=graph"},
    *({"engine": "torch", "engine_option": f"autocast={name}"} for name in AUTOCAST_FORMATS),
]


@pytest.mark.parametrize("phase", [phase for phase in get_args(Phase) if phase != VISION])
@pytest.mark.parametrize("engine", ENGINES, ids=lambda options: "-".join(options.values()))
def test_the_workload_of_an_estimate_can_be_passed_back(engine: dict[str, Any], phase: str) -> None:
    if phase == "train" and not (Engine.load(engine["engine"]).training or engine["engine"] == "torch"):
        pytest.skip("not applicable: the engine only serves")
    first = roofmodel.estimate("gpt2", "a100", phase=phase, batch=2, tp=2, **engine)
    stated = {name: value for name, value in first.to_dict()["workload"].items() if name in DECLARED}
    again = roofmodel.estimate("gpt2", "a100", **{**stated, "phase": phase})
    assert again.to_dict()["workload"] == first.to_dict()["workload"]
    assert again.totals == first.totals


@pytest.mark.parametrize("command", ["estimate", "sweep", "explain"])
@pytest.mark.parametrize(("bits", "status"), [("3.3bit", 2), ("15.9bit", 2), ("16bit", 0)])
def test_training_takes_a_mean_number_of_bits_from_16(roof: Roof, command: str, bits: str, status: int) -> None:
    where = [] if command == "explain" else ["--hw", "a100"]
    done = roof(command, "gpt2", *where, "--phase", "train", "--weights", bits)
    assert done.status == status
    if status:
        assert f"--weights {bits}: training in {bits} is not modeled" in done.err
