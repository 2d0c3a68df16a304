"""The Python interface, and the modules that its import loads."""

from __future__ import annotations

import doctest
import importlib
import inspect
import io
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any, get_type_hints

import pandas
import pytest
import typer
from PIL import Image
from typer.core import TyperGroup

import roofmodel
from roofmodel import cli
from roofmodel.cli import COMMANDS
from roofmodel.measure import stopwatch
from roofmodel.options.keywords import EstimateOptions, GridOptions, ServiceOptions, TrainingOptions, WorkloadOptions
from roofmodel.options.serving import ServeRequest
from roofmodel.options.values import declared_options
from roofmodel.options.workload import DECLARED, DEFAULTS
from roofmodel.plan.request import ServiceRequest, TrainingRequest
from tests.plot.test_place import SMALL

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
EXPORT = EXAMPLES / "ncu_by_hand.csv"
FUNCTION_NAMES = [name for name in roofmodel.__all__ if name.islower()]
HEAVY = ("numpy", "sympy", "pandas", "matplotlib", "torch", "transformers", "pydantic", "dask")


def loaded_after(code: str) -> set[str]:
    """Top-level modules that a fresh interpreter has loaded after running the code."""
    script = f"import sys\n{code}\nprint('\\n' + ' '.join(sorted({{m.partition('.')[0] for m in sys.modules}})))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split())


def test_roof_estimate_loads_none_of_the_heavy_libraries() -> None:
    run = "sys.argv = ['roof', 'estimate', 'gpt2-xl', '--hw', 'a100']\nfrom roofmodel.__main__ import main\nmain()"
    assert loaded_after(run).isdisjoint(HEAVY)


def test_importing_roofmodel_loads_nothing_but_the_standard_library() -> None:
    assert loaded_after("import roofmodel").isdisjoint({*HEAVY, "typer", "rich", "yaml"})


def test_a_function_keeps_its_name_although_a_folder_has_it() -> None:
    code = "import roofmodel.estimate.command, roofmodel.sweep.command\nfrom roofmodel import compare, sweep\n"
    checked = code + "assert roofmodel.estimate('gpt2', 'a100').totals and callable(sweep) and callable(compare)"
    assert loaded_after(checked).isdisjoint(HEAVY)


def test_the_public_names_are_sorted_and_importable() -> None:
    assert roofmodel.__all__ == sorted(roofmodel.__all__)
    for name in roofmodel.__all__:
        assert getattr(roofmodel, name) is not None
        assert name in dir(roofmodel)
    with pytest.raises(AttributeError, match="estimat"):
        _ = roofmodel.estimat


def test_every_error_is_a_roof_error() -> None:
    for name in ("DeviceError", "ModelError", "OutputError", "WorkloadError"):
        assert issubclass(getattr(roofmodel, name), roofmodel.RoofError)


def test_every_form_of_a_report_has_the_same_content() -> None:
    report = roofmodel.estimate("gpt2", "v100", batch=2, seq=64)
    document = report.to_dict()
    assert json.loads(json.dumps(document)) == document
    frame = report.to_frame()
    assert isinstance(frame, pandas.DataFrame)
    prefill = frame[frame["phase"] == "prefill"]
    total = document["phases"][0]["totals"]["matmul_flops"]
    assert (prefill["count"] * prefill["matmul_flops"]).sum() == total == report.totals["prefill"]["matmul_flops"]
    assert len(report.text("csv").splitlines()) == 1 + len(frame)


def test_messages_write_options_as_python_does() -> None:
    with pytest.raises(roofmodel.WorkloadError, match=r"^new_tokens is 0; it must") as raised:
        roofmodel.estimate("gpt2", "a100", new_tokens=0)
    assert raised.value.option == "new_tokens"
    assert any(note.startswith("image is ignored") for note in roofmodel.estimate("gpt2", "a100", image=3).notes)
    with pytest.raises(roofmodel.WorkloadError, match=r'^times="t\.csv"'):
        roofmodel.read_profile("a.csv@v100", "b.csv@a100", times="t.csv")


def commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """All commands of `roof` without subcommands, as tuples of words."""
    for name in group.list_commands(None):
        command = group.get_command(None, name)
        if isinstance(command, TyperGroup):
            yield from commands(command, (*path, name))
        else:
            yield (*path, name)


FUNCTIONS = {
    ("kernels",): "read_profile",
    ("models", "list"): "list_models",
    ("models", "families"): "list_families",
    ("models", "show"): "show_model",
    ("hw", "list"): "list_hardware",
    ("hw", "show"): "show_hardware",
    ("hw", "check"): "check_hardware",
    ("homework", "new"): "homework",
    ("homework", "check"): "check_homework",
    ("homework", "grade"): "grade_homework",
}
"""Functions that do not have the name of their command."""


@pytest.mark.parametrize("words", commands(typer.main.get_command(cli.app)), ids=" ".join)
def test_every_command_calls_a_public_function(words: tuple[str, ...]) -> None:
    function = FUNCTIONS.get(words, "_".join(words).replace("-", "_"))
    assert function in roofmodel.__all__
    module = importlib.import_module(COMMANDS[words[0]])
    assert vars(module)[function] is getattr(roofmodel, function)


def test_the_signatures_of_functions_list_the_options_of_a_workload() -> None:
    for function in (roofmodel.estimate, roofmodel.compare, roofmodel.plot, roofmodel.explain, roofmodel.crossover,
                     roofmodel.reconcile):  # fmt: skip
        parameters = inspect.signature(function).parameters
        assert {name: parameters[name].default for name in DECLARED} == DEFAULTS
        assert {name: parameters[name].annotation for name in DECLARED} == get_type_hints(WorkloadOptions)
    parameters = inspect.signature(roofmodel.sweep).parameters
    names = {*DECLARED, *ServeRequest._fields}
    assert {name: parameters[name].default for name in names} == dict.fromkeys(GridOptions.__annotations__)
    assert {name: parameters[name].annotation for name in names} == get_type_hints(GridOptions)
    parameters = inspect.signature(roofmodel.estimate).parameters
    assert {name: parameters[name].default for name in ServeRequest._fields} == dict.fromkeys(ServeRequest._fields)
    assert {name: parameters[name].annotation for name in names} == get_type_hints(EstimateOptions)


@pytest.mark.parametrize(
    ("function", "record", "keywords"),
    [
        (roofmodel.plan, ServiceRequest, ServiceOptions),
        (roofmodel.plan_training, TrainingRequest, TrainingOptions),
    ],
)
def test_the_signatures_of_plans_list_the_options_of_their_requests(function: Any, record: Any, keywords: Any) -> None:
    parameters, types = inspect.signature(function).parameters, get_type_hints(keywords)
    assert [*parameters][:4] == ["model", "hw", "family", "progress"]
    assert [*parameters][4:] == [*types]
    assert {name: parameters[name].annotation for name in types} == types
    declared = declared_options(record)
    empty = inspect.Parameter.empty
    assert {name for name in types if parameters[name].default is empty} == keywords.__required_keys__
    for name in types.keys() - keywords.__required_keys__:
        assert parameters[name].default == (record._field_defaults[name] if name in declared else None)


def test_an_unknown_option_is_an_error_with_a_similar_one() -> None:
    for function in (roofmodel.estimate, roofmodel.sweep):
        with pytest.raises(roofmodel.WorkloadError, match="unknown option 'bacth'; did you mean 'batch'"):
            function("gpt2", "a100", bacth=8)  # type: ignore[operator]


def test_the_package_is_marked_as_typed() -> None:
    assert Path(roofmodel.__file__).with_name("py.typed").is_file()


def test_the_examples_in_docstrings_are_right(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)  # the examples read files of examples/
    functions = {getattr(roofmodel, name).__module__ for name in FUNCTION_NAMES}
    tried = {
        module: doctest.testmod(
            importlib.import_module(module), extraglobs={name: getattr(roofmodel, name) for name in roofmodel.__all__}
        )
        for module in ("roofmodel", "roofmodel.errors", *sorted(functions))
    }
    assert not [module for module, found in tried.items() if found.failed]
    without = {module.split(".")[1] for module, found in tried.items() if not found.attempted}
    assert without == {"count", "explore", "measure"}  # they take long, or need a GPU


INVALID = (None, 3, 2.5, "", "x", [], [1], {}, True, b"x", object())


@pytest.mark.parametrize("invalid", INVALID, ids=lambda value: type(value).__name__)
def test_any_invalid_argument_is_a_roof_error(invalid: Any) -> None:
    export = str(EXPORT)
    asked: list[tuple[Callable[..., object], tuple[Any, ...], Sequence[str]]] = [
        (roofmodel.estimate, ("gpt2", "a100"), ["family", *DECLARED]),
        (roofmodel.explain, ("gpt2",), ["hw", "family", "op", "n", "batch"]),
        (roofmodel.crossover, ("gpt2", "a100"), ["over", "op", "family"]),
        (roofmodel.read_profile, (export,), ["hw", "times"]),
        (roofmodel.plot, (export,), ["hw", "times", "by", "model", "family", "clock", "ceilings"]),
        (roofmodel.compare, ("gpt2", export), ["hw", "times", "steps", "device", "family"]),
        (roofmodel.homework, ("a student",), ["sheet", "seed"]),
    ]
    for function, given, names in asked:
        for name in names:
            with suppress(roofmodel.RoofError):
                function(*given, **{name: invalid})
        with suppress(roofmodel.RoofError):
            function(invalid, *given[1:])
    for more in ({"models": invalid}, {"hw": invalid}, *({name: invalid} for name in (*DECLARED, "price"))):
        with suppress(roofmodel.RoofError):
            roofmodel.sweep(**{"models": "gpt2", "hw": "mi300x", **more})  # mi300x has no timing model: faster


def raises_roof_errors_only(function: Callable[..., object], given: Mapping[str, Any], invalid: Any) -> None:
    """Call a function once for each argument, with `invalid` in its place."""
    for name in given:
        with suppress(roofmodel.RoofError):
            function(**{**given, name: invalid})


@cache
def some_reports() -> tuple[Any, ...]:
    return (
        roofmodel.estimate("gpt2", "a100"), roofmodel.conventions(), roofmodel.homework("1001"),
        roofmodel.read_profile(EXPORT), roofmodel.plot(EXPORT), roofmodel.ncu_command(["a"]), roofmodel.list_models(),
    )  # fmt: skip


@pytest.mark.parametrize("invalid", INVALID, ids=lambda value: type(value).__name__)
def test_reports_raise_only_roof_errors(invalid: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    sweep = roofmodel.sweep("gpt2", "a100", phase="decode")
    for report in (sweep, *some_reports()):
        for name, given in (("text", {"form": "json"}), ("check_output", {"path": "x"}), ("save", {"path": "x"}),
                            ("picture", {"dpi": 50})):  # fmt: skip
            if hasattr(report, name) and not (name == "picture" and invalid == 3):
                raises_roof_errors_only(getattr(report, name), given, invalid)
    raises_roof_errors_only(partial(sweep.write, out=io.StringIO()), {"form": "csv"}, invalid)
    raises_roof_errors_only(partial(sweep.save, "x.csv"), {"picture": None}, invalid)
    if invalid is not None:
        raises_roof_errors_only(sweep.picture, {"kind": "rates"}, invalid)


@pytest.mark.parametrize("invalid", INVALID, ids=lambda value: type(value).__name__)
def test_measurement_functions_raise_only_roof_errors(
    invalid: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.csv").write_text("op,dtype,m,n,latency_us\nadd,fp16,64,64,3\n", encoding="utf-8")
    command = {"program": ["a"], "hw": "a100", "nvtx": None, "skip": 1, "count": 1, "nvprof": False}
    raises_roof_errors_only(roofmodel.ncu_command, command, invalid)
    raises_roof_errors_only(roofmodel.validate, {"table": "m.csv", "hw": "a100"}, invalid)
    module = {"target": "torch.nn:ReLU", "inputs": ["2x2"], "dtype": "fp16", "hw": None}
    raises_roof_errors_only(roofmodel.count, module, invalid)
    measured = {
        "output": "m.csv", "ops": "add", "dtype": "fp32", "model": None, "phase": None, "batch": 1, "seq": None,
        "context": None, "l2": "warm", "budget": 1, "device": "cpu", "seed": 0,
    }  # fmt: skip
    raises_roof_errors_only(roofmodel.measure, measured, invalid)  # the file exists, so nothing is measured
    tables = {"tables": "m.csv", "hw": "a100", "source": "tests"}
    raises_roof_errors_only(roofmodel.calibrate, tables, invalid)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (partial(roofmodel.plot, EXPORT, by="categori"), "by: unknown value 'categori'; did you mean 'category'"),
        (
            partial(roofmodel.plot, EXPORT, ceilings="sheet"),
            "ceilings: unknown value 'sheet'; did you mean",
        ),
        (partial(roofmodel.jitter, EXPORT, first_gap="other"), "first_gap: unknown value 'other'; known: same-step"),
        (partial(roofmodel.trace, EXPORT, top=2.5), "top is 2.5; give a whole number"),
        (partial(roofmodel.trace, EXPORT, steps=5), "steps is 5; give text"),
        (partial(roofmodel.homework, 1001), "student is 1001; give text"),
        (partial(roofmodel.crossover, "matmul", "a100", op=b"x"), "op is b'x'; give text"),
    ],
)
def test_the_types_in_a_signature_are_checked(call: Callable[[], object], message: str) -> None:
    with pytest.raises(roofmodel.RoofError, match=f"^{message}"):
        call()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"l2": "lukewarm"}, r"^l2: unknown value 'lukewarm'; did you mean 'warm'\? known: cold, warm$"),
        ({"budget": 0}, r"^budget is 0; give a number of seconds greater than 0$"),
        ({"budget": float("nan")}, r"^budget is nan; give a number of seconds greater than 0$"),
    ],
)
def test_measure_refuses_invalid_settings_before_it_measures(
    options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(roofmodel.WorkloadError, match=message):
        roofmodel.measure(tmp_path / "m.csv", **options)
    assert not list(tmp_path.iterdir())


def test_measure_writes_nothing_to_stderr_and_reports_progress(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("torch", reason="measuring needs torch: pip install 'roofmodel[torch]'")
    monkeypatch.setattr(stopwatch.Cpu, "largest", (1e6, 2.0**16))
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    steps: list[tuple[str, int, int | None]] = []
    report = roofmodel.measure(
        tmp_path / "m.csv", ops="add", dtype="fp32", device="cpu", l2="warm", budget=5,
        progress=lambda *step: steps.append(step),
    )  # fmt: skip
    assert capsys.readouterr() == ("", "")
    assert [done for _, done, _ in steps] == list(range(1, len(steps) + 1))
    assert report.notes[0].startswith("measured the CPU, ")
    assert report.notes[-1] == f"next: roofmodel.validate({str(tmp_path / 'm.csv')!r}, 'DEVICE.yaml')"


def test_reading_a_profile_reports_progress() -> None:
    steps: list[tuple[str, int, int | None]] = []
    roofmodel.read_profile(EXPORT, progress=lambda *step: steps.append(step))
    size = EXPORT.stat().st_size
    assert steps[-1] == (str(EXPORT), size, size)


def test_a_sweep_reports_progress_when_its_points_are_evaluated() -> None:
    steps: list[tuple[str, int, int | None]] = []
    report = roofmodel.sweep("gpt2", ["a100", "h100"], batch=[1, 2, 4], progress=lambda *step: steps.append(step))
    assert not steps
    points = len(report.to_frame())
    assert steps[-1] == ("points", points, points)
    assert [done for _, done, _ in steps] == sorted({done for _, done, _ in steps})


def test_a_message_names_commands_as_python_functions() -> None:
    with pytest.raises(
        roofmodel.WorkloadError, match=r'as in: roofmodel\.ncu_command\(\["python", "train.py"\], "a100"\)$'
    ):
        roofmodel.ncu_command([], "a100")
    assert 'roofmodel.estimate("gpt2-xl", "a100")' in roofmodel.list_models()._repr_mimebundle_()["text/plain"]


def test_a_report_names_its_formats() -> None:
    known = {
        roofmodel.estimate("gpt2", "a100"): "json, csv, markdown",
        roofmodel.conventions(): "json, csv, markdown, latex",
        roofmodel.plot(EXPORT): "json, csv, markdown",
        roofmodel.ncu_command(["a"]): "line, json, csv, markdown",
        roofmodel.list_models(): "json, csv, markdown",
        roofmodel.trace(EXAMPLES / "training_by_hand.json"): "json, csv, markdown",
    }
    for report, formats in known.items():
        with pytest.raises(roofmodel.RoofError, match=rf"^form: unknown value 'yaml'; known: {formats}$"):
            report.text("yaml")


def test_kernels_and_counted_operators_are_saved_as_json_and_csv(tmp_path: Path) -> None:
    report = roofmodel.read_profile(EXPORT)
    assert json.loads(report.save(tmp_path / "kernels.json").read_text()) == report.to_dict()
    assert report.save(tmp_path / "kernels.csv").read_text() == report.text("csv") + "\n"
    with pytest.raises(roofmodel.OutputError, match=r"unknown suffix '\.png'; known: \.html, .* \.md, \.parquet$"):
        report.save(tmp_path / "kernels.png")


def test_missing_metrics_are_named() -> None:
    with pytest.raises(roofmodel.WorkloadError, match="batch is None; it must be a whole number from 1"):
        roofmodel.estimate("gpt2", "a100", batch=None)
    with pytest.raises(roofmodel.RoofError, match="None is no device; give a name such as 'a100' or a YAML file"):
        roofmodel.estimate("gpt2", None)  # type: ignore[arg-type]
    with pytest.raises(roofmodel.WorkloadError, match="nothing to sweep: no model"):
        roofmodel.sweep([], "a100")
    for nothing in (roofmodel.read_profile, partial(roofmodel.compare, "gpt2")):
        with pytest.raises(roofmodel.WorkloadError, match="no files given; expected files of Nsight Compute"):
            nothing()


def test_a_device_may_be_given_as_an_object() -> None:
    device = roofmodel.Device.load("v100")
    assert roofmodel.estimate("gpt2", device).to_dict()["hardware"]["name"] == "v100-sxm2-32gb"


@pytest.mark.parametrize(
    "result",
    [
        lambda hw: roofmodel.read_profile(EXPORT, hw=hw).to_dict(),
        lambda hw: roofmodel.plot(EXPORT, hw=hw).to_dict(),
        lambda hw: roofmodel.plot(hw=hw, model="gpt2").to_dict(),
        lambda hw: roofmodel.compare("gpt2", EXAMPLES / "gpt2_trace_by_hand.json.gz", hw=hw, seq=512).to_dict(),
        lambda hw: roofmodel.trace(EXAMPLES / "training_by_hand.json", hw=hw).to_dict(),
        lambda hw: roofmodel.ncu_command(["./a.out"], hw).to_dict(),
        lambda hw: roofmodel.sweep("gpt2", hw, phase="decode").to_dict(),
    ],
    ids=["read_profile", "plot", "plot a model", "compare", "trace", "ncu_command", "sweep"],
)
def test_a_device_and_its_name_give_the_same_result(result: Callable[[object], object]) -> None:
    assert result(roofmodel.Device.load("a100")) == result("a100-sxm-80gb")


def test_a_device_given_as_an_object_keeps_its_own_ceilings() -> None:
    device = roofmodel.Device.load("a100")
    slow = replace(device, levels={**device.levels, "dram": device.levels["dram"]._replace(bandwidth=1e12)})
    ceilings = roofmodel.plot(EXPORT, hw=slow).to_dict()["ceilings"]
    assert [each["bytes_per_second"] for each in ceilings if each["name"] == "dram"] == [1e12]


def test_several_values_may_be_any_iterable() -> None:
    models = (name for name in ("gpt2", "gpt2-xl"))
    assert repr(roofmodel.sweep(models, {"a100": 1}.keys(), phase="decode")) == "<SweepReport of 2 points>"


def test_a_notebook_shows_the_table_as_html() -> None:
    bundle = roofmodel.estimate("gpt2", "a100")._repr_mimebundle_()
    assert "residual adds" in bundle["text/plain"]
    assert bundle["text/html"].startswith("<pre")
    assert "residual adds" in bundle["text/html"]


def test_a_notebook_shows_notes_and_warnings() -> None:
    bundle = roofmodel.estimate("gpt2", "v100", context=1024)._repr_mimebundle_()
    for text in bundle.values():
        assert "note: in eager PyTorch a decode" in text
        assert "warning: decode reaches 1025 tokens" in text
    markdown = roofmodel.explain("gpt2", hw="v100", context=1024)._repr_mimebundle_()["text/markdown"]
    assert "\n\nnote: in eager PyTorch a decode" in markdown
    assert "\n\nwarning: decode reaches 1025 tokens" in markdown


def test_the_repr_of_a_report_names_its_subject() -> None:
    assert repr(roofmodel.estimate("gpt2", "a100")).startswith("<Report openai-community/gpt2 on NVIDIA A100")


def test_read_profile_gives_kernels_in_every_form(tmp_path: Path) -> None:
    file = tmp_path / "ncu.csv"
    file.write_text(SMALL, encoding="utf-8")
    report = roofmodel.read_profile(file, hw="a100")
    (kernel,) = report.kernels
    assert (kernel.name, kernel.seconds, kernel.flops.fp32, kernel.flops.fp64) == ("saxpy", 1e-05, 2e6, None)
    assert report.to_dict()["hardware"] == "a100-sxm-80gb"
    assert report.to_frame()["bytes_dram"].tolist() == [12e6]
    assert "saxpy" in report._repr_mimebundle_()["text/html"]
    assert "1 kernels, by ncu" in repr(report)
    with pytest.raises(roofmodel.ProfileError, match="no such file"):
        roofmodel.read_profile(tmp_path / "missing.csv")


def test_reports_show_their_pictures_in_a_notebook_as_small_pngs() -> None:
    report, sweep = roofmodel.estimate("gpt2", "a100"), roofmodel.sweep("gpt2", "a100", batch=[1, 2], phase="decode")
    plot = roofmodel.plot(EXPORT, hw="a100")
    for shown in (report.picture(), sweep.picture(), sweep.picture("roofs"), plot.picture()):
        with Image.open(io.BytesIO(shown._repr_png_())) as image:
            assert (image.format, image.size) == ("PNG", (1100, 620))  # 11 × 6.2 inches at 100 dots
        assert len(shown._repr_png_()) < 80_000
    with Image.open(io.BytesIO(report.picture(dpi=50).png)) as image:
        assert image.size == (550, 310)


def test_plot_gives_points_in_every_form(tmp_path: Path) -> None:
    report = roofmodel.plot(EXPORT, hw="a100", by="base")
    assert report.to_dict()["hardware"] == "a100-sxm-80gb"
    frame = report.to_frame().query("level == 'dram'").set_index("name")
    assert frame.loc["saxpy", "intensity"] == pytest.approx(1 / 6)  # 2 FLOPs over 12 bytes
    assert "saxpy" in report._repr_mimebundle_()["text/plain"]
    assert repr(report) == f"<PlotReport of {Path(EXPORT).name}: 6 points>"  # three kernels, at DRAM and L2
    report.save(tmp_path / "points.csv")
    assert (tmp_path / "points.csv").stat().st_size
    with pytest.raises(roofmodel.RoofError, match=r"nothing to plot"):
        roofmodel.plot()


def test_homework_is_generated_and_checked(tmp_path: Path) -> None:
    key = roofmodel.homework("1001", "rooflines", seed="fall", key=True)
    answers = tmp_path / "answers.md"
    key.save(answers)
    report = roofmodel.check_homework(answers, "1001", seed="fall").to_dict()
    assert report["score"] == 1
    assert "$" not in roofmodel.homework("1001", "rooflines").to_markdown()  # blanks, no formulas
    with pytest.raises(roofmodel.WorkloadError, match=r"^sheet: unknown value 'roofline'"):
        roofmodel.homework("1001", "roofline")


def test_the_frame_has_totals_over_all_occurrences_of_an_operator() -> None:
    """README's example ranks operators by it: a row's `bound_seconds` is for one occurrence."""
    report = roofmodel.estimate("gpt2-xl", "a100", batch=8)
    frame = report.to_frame()
    assert (frame["total_bound_seconds"] == frame["bound_seconds"] * frame["count"]).all()
    sums = frame.groupby("phase")["total_bound_seconds"].sum()
    for phase in ("prefill", "decode"):
        assert sums[phase] == pytest.approx(report.totals[phase]["bound_seconds"])


def test_every_function_has_an_example() -> None:
    assert [name for name in FUNCTION_NAMES if ">>>" not in str(getattr(roofmodel, name).__doc__)] == []


def test_a_listing_can_be_restricted_to_names_that_contain_a_text() -> None:
    every = [model["name"] for model in roofmodel.list_models().data]
    llamas = [model["name"] for model in roofmodel.list_models("LLAMA-3").data]
    assert llamas == [name for name in every if "llama-3" in name.lower()] != []
    assert {model["model_type"] for model in roofmodel.list_models("gpt_neox").data} == {"gpt_neox"}
    assert [device["name"] for device in roofmodel.list_hardware("GH200").data] == ["gh200"]
    assert [device["name"] for device in roofmodel.list_hardware("geforce rtx 4090").data] == ["rtx4090"]
    assert "mixtral" in [family["model_type"] for family in roofmodel.list_families("MixtralForCausalLM").data]
    for function in (roofmodel.list_models, roofmodel.list_families, roofmodel.list_hardware):
        with pytest.raises(roofmodel.RoofError, match="contains 'yodel'"):
            function("yodel")


def test_a_listing_is_a_frame_and_has_a_short_form() -> None:
    devices = roofmodel.list_hardware()
    assert repr(devices) == f"<Listing of {len(devices.data)} entries>"
    assert set(devices.to_frame()["name"]) == {device["name"] for device in devices.data}
    assert repr(roofmodel.show_model("gpt2")) == "<Listing of openai-community/gpt2>"
    assert roofmodel.show_model("gpt2").to_frame().loc["fields.hidden.value", 0] == 768
