"""Commands that follow from the signatures and docstrings of functions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import Any, Literal, get_args, get_origin

import pytest
import typer
from typer.testing import CliRunner

import roofmodel
from roofmodel.cli import COMMANDS
from roofmodel.options.signature import helps, members, own_types
from roofmodel.options.values import PathLike, ProgressCallback, no_progress
from roofmodel.options.workload import DECLARED
from roofmodel.report.base import Result
from roofmodel.report.command import CommandCall, CommandLine, typer_app

FORMATS = ("dtype", "activations", "kv", "weights")
"""Options with 9 to 19 names, which the help of `roof estimate --dtype` and `--weights` lists."""
FUNCTIONS = [getattr(roofmodel, name) for name in roofmodel.__all__ if name.islower()]


def cook(
    *files: PathLike,
    how: Literal["fried", "boiled"] = "fried",
    number_of_eggs: int = 2,
    spices: str | Iterable[str] = (),
    salt: float | str | None = None,
    hot: bool = False,
    progress: ProgressCallback = no_progress,
) -> str:
    """Cook what the
    files say.

    This paragraph is for Python.

    Args:
        *files: Recipes; - for
            stdin.
        how: fried, or boiled with `salt` [as in a pot].
        number_of_eggs: Eggs for `files`.
        spices: One of them.
        salt: Such as 2g.
        hot: Serve it hot.
        progress: Called often.

    Examples:
        >>> cook("recipe")  # doctest: +SKIP
    """
    return ""


def cooked(*arguments: str, **further: Any) -> tuple[dict[str, Any], str]:
    """What the command of `cook` passes to it, and what the command prints."""
    given: dict[str, Any] = {}

    def run(call: CommandCall, form: Any, output: Sequence[str]) -> None:
        given.update(call.given)

    app = typer_app(CommandLine(cook, run=run, **further))
    return given, CliRunner().invoke(app, arguments, env={"COLUMNS": "200"}).output


def test_a_command_has_the_options_of_its_function_with_their_help() -> None:
    _, shown = cooked("--help", settings={"salt": {"metavar": "GRAMS"}})
    text = re.sub(r"[\s│╭╮╰╯─]+", " ", shown)
    for part in (
        "Cook what the files say.",
        "files <str> Recipes; - for stdin. [required]",
        "--how fried|boiled fried, or boiled with --salt [as in a pot]. [default: fried]",
        "--number-of-eggs <int> Eggs for FILES. [default: 2]",
        "--salt GRAMS Such as 2g.",
        "--hot Serve it hot.",
    ):
        assert part in text, text
    assert "progress" not in text


def test_a_call_has_what_the_command_line_states() -> None:
    assert cooked("a", "b", "--how", "fried", "--spices", "x", "--spices", "y", "--hot")[0] == {
        "files": ["a", "b"], "how": "fried", "spices": ["x", "y"], "hot": True
    }  # fmt: skip
    assert cooked("a", "--salt", "3")[0] == {"files": ["a"], "salt": "3"}


def test_files_and_what_stands_before_them_are_passed_by_position() -> None:
    def function(model: str, *files: PathLike, steps: int = 1) -> tuple[str, tuple[PathLike, ...], int]:
        return model, files, steps

    assert CommandCall(function, {"files": ["a", "b"], "steps": 3, "model": "m"})() == ("m", ("a", "b"), 3)
    assert CommandCall(function, {"model": "m"})() == ("m", (), 1)


def test_files_that_the_command_line_names_are_its_inputs() -> None:
    assert CommandCall(cook, {"files": ["a", "b"], "how": "fried", "salt": "c"}).inputs == ["a", "b"]


def test_help_shows_the_choices_and_that_a_text_may_list_several_values() -> None:
    def function(
        model: str,
        *,
        speed: Literal["slow", "fast"] | None = None,
        speeds: str | Iterable[str] | None = None,
        sizes: int | str | Iterable[int] | None = None,
        dish: Literal["a very long name", "another long name"] | None = None,
    ) -> str:
        """Serve.

        Args:
            model: .
            speed: .
            speeds: .
            sizes: .
            dish: .
        """
        return ""

    shown = CliRunner().invoke(typer_app(CommandLine(function)), ["--help"], env={"COLUMNS": "200"}).output
    for option in ("--speed slow|fast", "--speeds <str>,…", "--sizes <int>,…", "--dish <name>"):
        assert option in " ".join(shown.split())


def app_of(name: str) -> typer.Typer:
    module = import_module(COMMANDS[name])
    return typer_app(module.COMMAND)


@pytest.mark.parametrize("name", [name for name in COMMANDS if name not in ("models", "hw", "homework")])
def test_help_names_every_choice_of_an_option(name: str) -> None:
    app = app_of(name)
    function = getattr(roofmodel, {"kernels": "read_profile"}.get(name, name.replace("-", "_")))
    types = {option: declared.type for option, declared in DECLARED.items()} | own_types(function)
    parameters: list[Any] = [*typer.main.get_command(app).params]
    for option in parameters:
        kinds = members(types.get(option.name))
        choices = {choice for kind in kinds if get_origin(kind) is Literal for choice in get_args(kind)}
        if option.name not in FORMATS and "as for estimate" not in option.help:
            assert choices <= {*re.findall(r"[\w-]+", f"{option.metavar} {option.help}")}, option.name


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_a_docstring_has_each_own_parameter(function: Any) -> None:
    kwargs = {"options", "workload", "search"}
    own = own_types(function).keys() - {"return"} - kwargs
    assert own == helps(function).keys()


@pytest.mark.parametrize("name", ["family", "times", "cluster"])
def test_a_shared_option_has_the_same_help_everywhere(name: str) -> None:
    assert len({helps(function)[name] for function in FUNCTIONS if name in helps(function)}) == 1


@pytest.mark.parametrize("name", [name for name in COMMANDS if name not in ("models", "hw", "homework", "measure")])
def test_the_help_of_an_output_file_lists_the_suffixes_of_the_result(name: str) -> None:
    app = app_of(name)
    options = {option.name: option for option in typer.main.get_command(app).params}
    result = own_types(getattr(roofmodel, {"kernels": "read_profile"}.get(name, name.replace("-", "_"))))["return"]
    result = next(iter(get_args(result)), result)  # the first class of a union; the others write some of its suffixes
    if "output" in options:
        listed = re.findall(r"\.([a-z.]+)(?=[ :]|$)", options["output"].help)
        assert {*listed} == {*(result.FILES if issubclass(result, Result) else result.suffixes())}
