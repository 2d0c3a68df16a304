"""The command line, run in this process: its output on stdout and stderr, and its exit status."""

from __future__ import annotations

import csv
import io
import itertools
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.core import TyperGroup

from roofmodel import cli
from roofmodel.devices import library
from roofmodel.devices.device import Device
from roofmodel.estimate import picture as picture_module
from roofmodel.models import hub
from roofmodel.options.workload import Options
from tests.command_line import Done, Roof, run

ROOT = Path(__file__).parents[1]
ESTIMATE = ("estimate", "gpt2", "--hw", "a100", "--seq", "128")


@pytest.fixture(autouse=True)
def _apart_from_the_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No network, no cache, no device files of the user, no colors, an empty working folder."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "huggingface"))
    monkeypatch.delenv("HF_HUB_CACHE", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.delenv("ROOF_DEBUG", raising=False)
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)


@pytest.fixture
def roof(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Roof:
    """Runs `roof` with the arguments given."""

    return lambda *arguments: run(arguments, monkeypatch, capsys)


def files(folder: Path) -> list[str]:
    """All files below a folder, hidden ones too."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


# --- Errors that a user can correct: status 2, one line, nothing on stdout --------------------------

BAD: list[tuple[str, list[str]]] = [
    # the command line after `roof`, what the message must say
    ("estimate gpt3 --hw a100", ["unknown model 'gpt3'", "did you mean 'gpt2'", "roof models list"]),
    ("estimate some-one/some-model --hw a100", ["unknown model 'some-one/some-model'", "HF_HUB_OFFLINE"]),
    ("estimate ./missing --hw a100", ["missing", "no such file"]),
    ("estimate ~nosuchuser/x --hw a100", ["~nosuchuser"]),
    ("estimate gpt2", ["--hw is missing", "--hw a100", "roof hw list"]),
    ("estimate gpt2 --hw a1000", ["unknown device 'a1000'", "did you mean 'a100'"]),
    (
        "estimate gpt2 --hw h100,a100",
        ["'h100,a100' are several devices", "such as 'h100'", "'roof sweep' takes several"],
    ),
    (
        "estimate resnet-50 --hw a100 --phase decode",
        ["resnet-50 reads images and has no such phase", "--phase forward"],
    ),
    ("estimate gpt2 --hw ./missing.yaml", ["./missing.yaml", "no such file"]),
    ("estimate gpt2 --hw ~nosuchuser/x.yaml", ["~nosuchuser"]),
    ("estimate gpt2 --hw a100 --batch 0", ["--batch is 0", "whole number from 1"]),
    ("estimate gpt2 --hw a100 --batch -1", ["--batch is -1", "whole number from 1"]),
    ("estimate gpt2 --hw a100 --batch 9999999999999999999", ["--batch is 9999999999999999999", "whole number"]),
    ("estimate gpt2 --hw a100 --batch 1.5", ["--batch", "'1.5'"]),
    ("estimate gpt2 --hw a100 --batch many", ["--batch", "'many'"]),
    ("estimate gpt2 --hw a100 --batch 1,8", ["--batch", "'1,8'", "'roof sweep' takes several"]),
    ("estimate gpt2 --hw a100 --seq 0", ["--seq is 0", "whole number from 1"]),
    ("estimate gpt2 --hw a100 --seq -5", ["--seq is -5", "whole number from 1"]),
    ("estimate gpt2 --hw a100 --context -1", ["--context is -1", "whole number from 0"]),
    ("estimate gpt2 --hw a100 --phase prefil", ["--phase", "'prefil'", "did you mean 'prefill'"]),
    ("estimate gpt2 --hw a100 --phase train --dtype int8", ["--dtype int8", "--dtype bf16"]),
    ("estimate gpt2 --hw a100 --dtype float16", ["--dtype", "'float16'", "fp16"]),
    ("estimate gpt2 --hw a100 --dtype int4", ["--dtype", "'int4'", "int8"]),
    ("estimate gpt2 --hw a100 --weights int5", ["--weights", "'int5'", "int4"]),
    ("estimate gpt2 --hw a100 --kv q8", ["--kv", "'q8'", "int8"]),
    ("estimate gpt2 --hw a100 --attention flsh", ["--attention", "'flsh'", "did you mean 'flash'", "eager"]),
    ("estimate gpt2 --hw a100 --logits first", ["--logits", "'first'", "last, all"]),
    ("estimate gpt2 --hw a100 --mla latent", ["--mla", "'latent'", "absorbed, naive"]),
    ("estimate gpt2 --hw a100 --engine vlm", ["--engine", "'vlm'", "did you mean 'vllm'", "sglang, torch"]),
    ("estimate gpt2 --hw a100 --engine current", ["--engine current", "write --engine vllm"]),
    ("estimate gpt2 --hw a100 --runtime eager", ["--runtime was removed; write --engine torch"]),
    ("sweep gpt2 --hw a100 --runtime=megatron", ["--runtime was removed; write --engine megatron"]),
    ("estimate gpt2 --hw a100 --launch 8us", ["--launch was removed; write --engine torch --engine-option launch=8us"]),
    ("estimate gpt2 --hw a100 --engine vllm,sglang", ["one engine is expected; 'roof sweep' compares several"]),
    ("validate rows.csv --hw a100 --engine-option gemm=any", ["--engine-option needs --engine"]),
    ("estimate gpt2 --hw a100 --engine-option launch", ["--engine-option", "'launch'", "--engine-option launch=graph"]),
    ("estimate gpt2 --hw a100 --engine torch --engine-option launch=12", ["'12' has no unit", "launch=8us"]),
    ("estimate gpt2 --hw a100 --engine torch --engine-option launch=5GB", ["got '5GB' in B", "launch=8us"]),
    ("sweep gpt2 --hw a100 --engine torch --engine-option launch=5s", ["'5s'", "at most 1 s, such as launch=8us"]),
    ("plan gpt2 --gpus 1 --isl 8 --osl 8", ["--hw is missing", "--hw a100,h100"]),
    ("plan gpt2 --hw a100 --gpus 1 --isl 8", ["--osl is missing", "try --osl 512"]),
    ("plan gpt2 --hw a100 --gpus 1 --isl 8 --osl 8 --tpot 30", ["--tpot", "'30' has no unit", "--tpot 30ms"]),
    ("plan gpt2 --hw a100 --gpus 1 --isl 8 --osl 8 --requests 5/d", ["--requests", "'5/d'", "--requests 5/s"]),
    ("plan gpt2 --hw a100 --gpus 1 --isl 8 --osl 8 --mode mixt", ["--mode", "'mixt'", "did you mean 'mixed'"]),
    ("plan gpt2 --hw a100 --gpus 1 --isl 8 --osl 8 --acceptance 0.5", ["--acceptance 0.5", "--draft mtp"]),
    ("plan gpt2 --hw a100 --gpus 1 --train", ["--tokens is missing", "--tokens 300B"]),
    (
        "plan gpt2 --hw a100 --gpus 1 --train --isl 8 --osl 8 --requests 5/s",
        ["--isl, --osl, --requests cannot be used with --train", "--tokens 300B", "leave out --train"],
    ),
    ("plan gpt2 --hw a100 --gpus 1 --tokens 1B", ["--tokens", "--train", "add --train", "--isl 4096 --osl 512"]),
    ("plan gpt2 --hw a100 --gpus 1 --train --tokens 1B --weights 9-bit", ["--weights: unknown value '9-bit'", "fp64"]),
    ("plan gpt2 --hw a100 --gpus 1 --train --tokens many", ["--tokens", "'many'", "--tokens 15T"]),
    ("plan gpt2 --hw a100 --gpus 1 --train --tokens 1B --recompute some", ["--recompute", "'some'", "none"]),
    ("plan gpt2 --hw a100 --gpus 7 --isl 8 --osl 8 --tp 7", ["--gpus 7", "no layout", "--tp"]),
    ("plan gpt2 --hw a100 --gpus 1 --isl 8 --osl 8 --dtype fp8", ["--dtype fp8", "no device has a pipe", "fp16"]),
    ("estimate gpt2 --hw a100 --phase train --recompute selective:nrom", ["--recompute", "'nrom'", "norm", "moe"]),
    ("estimate gpt2 --hw a100 --recompute some", ["--recompute", "'some'", "none, selective, full"]),
    ("estimate gpt2 --hw a100 --format yaml", ["--format", "'yaml'", "table, json, csv, markdown"]),
    ("estimate gpt2 --hw a100 --tp 5", ["--tp 5", "12 heads", "try --tp 1, 2, 3, 4, 6, 12"]),
    ("estimate gpt2 --hw a100 --dp 8", ["--dp 8", "--batch 1", "try --batch 8"]),
    ("estimate gpt2 --hw a100 --pp 0", ["--pp is 0", "whole number from 1"]),
    ("estimate mixtral-8x7b-v0.1 --hw a100 --ep 3", ["--ep 3 does not divide 8 experts; try --ep 1"]),
    ("estimate mixtral-8x7b-v0.1 --hw a100 --ep 8", ["--ep 8 needs 8 GPUs; try", "--dp 8 with a batch divisible by 8"]),
    ("estimate bert-base-cased --hw a100 --phase decode", ["--phase decode", "bert-base-cased", "encoder", "forward"]),
    ("estimate bert-base-cased --hw a100 --phase prefill", ["--phase prefill", "encoder", "forward"]),
    ("estimate gpt2 --hw v100 --dtype bf16", ["V100", "'bf16'", "fp16"]),
    ("estimate gpt2 --hw v100 --dtype tf32", ["V100", "'tf32'", "fp32"]),
    ("estimate gpt2 --hw v100 --dtype int8", ["V100", "'int8'", "fp16"]),
    ("estimate gpt2 --hw a100 --dtype fp8", ["A100", "'fp8'", "bf16"]),
    ("estimate gpt2 --hw a100 --seq 4k", ["error: --seq: '4k' is not a whole number, such as 4096 (see"]),
    ("estimate gpt2 --hw a100 --batch 1.5", ["error: --batch: '1.5' is not a whole number, such as 8 (see"]),
    ("estimate gpt2 --hw a100 --tp x", ["error: --tp: 'x' is not a whole number, such as 8 (see"]),
    (
        f"estimate gpt2 --hw a100 --tp {'9' * 5000}",
        ["--tp: a text of 5000 characters is too long for a number; give one"],
    ),
    ("plan gpt2 --hw a100 --gpus x", ["--gpus: 'x' is not a whole number, such as 8 (see"]),
    ("estimate gpt2 --hw a100 --context x", ["error: --context: 'x' is not a whole number, such as 4096 (see"]),
    ("estimate gpt2 --hw a100 --batch 1,8", ["--batch: '1,8' is not a whole number", "'roof sweep' takes several"]),
    ("plan gpt2 --hw a100 --gpus 1 --isl 8 --osl 8 --acceptance x", ["--acceptance: 'x' is not a number, such as 0.9"]),
    ("estimate gpt2 --hw a100 --nonsense", ["--nonsense"]),
    ("estimate gpt2 gpt2-xl --hw a100", ["gpt2-xl"]),
    ("estimate", ["model"]),
    ("estimat gpt2", ["estimat"]),
    ("models show", ["model"]),
    ("models show gpt3", ["unknown model 'gpt3'"]),
    ("models list lama7", ["no model name contains 'lama7'", "did you mean", "'roof models list' lists all"]),
    ("models families xyzzy", ["no model type or class name contains 'xyzzy'", "'roof models families' lists all"]),
    ("hw list a1000", ["no device name contains 'a1000'", "did you mean 'a100'", "'roof hw list' lists all"]),
    ("models list --format latex", ["--format", "'latex'", "table, json, csv, markdown"]),
    ("models show gpt2 --format latex", ["--format", "'latex'", "table, json"]),
    ("hw list --format tex", ["--format", "'tex'", "table, json"]),
    ("hw show gpu", ["unknown device 'gpu'", "a100"]),
    ("hw show", ["give either a device or a profiler file", "--from FILE"]),
    ("hw show a100 --format xml", ["--format", "'xml'", "table, json"]),
    ("hw check missing.yaml", ["missing.yaml", "no such file"]),
    ("hw check .", [".", "a folder"]),
    ("hw check ~nosuchuser/x.yaml", ["~nosuchuser"]),
]


@pytest.mark.parametrize(("line", "fragments"), BAD, ids=[line for line, _ in BAD])
def test_user_errors_are_one_line_on_stderr_with_status_2(roof: Roof, line: str, fragments: list[str]) -> None:
    done = roof(*line.split())
    assert done.status == 2
    assert done.out == ""
    assert re.fullmatch(r"error: [^\n]+\n", done.err)
    assert "bug" not in done.err
    assert [fragment for fragment in fragments if fragment not in done.err] == []


@pytest.mark.parametrize("columns", ["0", "1", "15"])
def test_a_terminal_of_width_zero_is_treated_as_80_columns(
    columns: str, roof: Roof, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    done = roof("hw", "list")
    assert done.status == 0
    assert "TFLOP/s GB/s GiB ridge" in done.out
    assert all(line == line.rstrip() for line in done.out.splitlines())


@pytest.mark.parametrize("option", ["--tp", "--batch", "--seq"])
def test_an_option_without_its_value_is_named(roof: Roof, option: str) -> None:
    done = roof("estimate", "gpt2", "--hw", "a100", option)
    assert (done.status, done.out) == (2, "")
    assert option in done.err


def test_a_name_of_5000_letters_is_handled(roof: Roof) -> None:
    for arguments in (("estimate", "a" * 5000, "--hw", "a100"), ("hw", "show", "a" * 5000)):
        done = roof(*arguments)
        assert (done.status, done.out) == (2, "")
        assert "bug" not in done.err


def test_an_error_in_the_users_yaml_names_file_and_line(roof: Roof) -> None:
    Path("a100.yaml").write_text(
        "name: x\npipes:\n  fp16: {peak: 1 TFLOP/s}\nmemory:\n  dram: {bandwith: 1 GB/s}\n", encoding="utf-8"
    )
    for arguments in (("hw", "check", "a100.yaml"), ("estimate", "gpt2", "--hw", "a100.yaml")):
        done = roof(*arguments)
        assert (done.status, done.out) == (2, "")
        assert done.err == "error: a100.yaml:5: unknown key 'bandwith'; did you mean 'bandwidth'?\n"


def test_an_error_in_the_users_config_names_file_and_key(roof: Roof) -> None:
    Path("config.json").write_text('{"model_type": "gpt2", "n_embd": "768"}', encoding="utf-8")
    done = roof("estimate", "./config.json", "--hw", "a100")
    assert (done.status, done.out) == (2, "")
    assert done.err.startswith("error: config.json: 'n_embd' is the text '768'; it must be a whole number")


@pytest.mark.parametrize("arguments", [["hw", "list"], ["estimate", "gpt2", "--hw", "a100"], ["--help"]])
def test_python_without_docstrings_is_one_line_and_status_2(arguments: list[str]) -> None:
    done = subprocess.run([sys.executable, "-OO", "-m", "roofmodel", *arguments], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(r"error: Python removed the docstrings, .*\(python -OO, PYTHONOPTIMIZE=2\); .*\n", done.stderr)


# --- A bug: status 1 --------------------------------------------------------------------------------


def _break(monkeypatch: pytest.MonkeyPatch, message: str = "the wheels came off") -> None:
    def broken(*arguments: object, **options: object) -> None:
        raise RuntimeError(message)

    monkeypatch.setattr("roofmodel.steps.estimate.estimate", broken)


def test_a_bug_is_one_line_on_stderr_and_status_1(roof: Roof, monkeypatch: pytest.MonkeyPatch) -> None:
    _break(monkeypatch)
    done = roof(*ESTIMATE)
    assert (done.status, done.out) == (1, "")
    assert re.fullmatch(r"error: a bug in roofmodel \(RuntimeError: the wheels came off\).*ROOF_DEBUG=1.*\n", done.err)


def test_a_traceback_is_shown_on_request(roof: Roof, monkeypatch: pytest.MonkeyPatch) -> None:
    _break(monkeypatch)
    monkeypatch.setenv("ROOF_DEBUG", "1")
    with pytest.raises(RuntimeError, match="the wheels came off"):
        roof(*ESTIMATE)


# --- Estimates --------------------------------------------------------------------------------------


def test_json_is_exactly_one_document_and_notes_go_to_stderr(roof: Roof) -> None:
    done = roof(*ESTIMATE, "--format", "json", "--image", "224")
    assert done.status == 0
    document = json.loads(done.out)  # fails on anything before or after the document
    assert document["schema"] == "roofmodel.estimate/1"
    assert document["model"]["parameters"] == 124_439_808
    assert [phase["phase"] for phase in document["phases"]] == ["prefill", "decode"]
    assert any(note.startswith("--image is ignored") for note in document["notes"])
    lines = done.err.splitlines()
    assert lines == [note if note.startswith("warning: ") else f"note: {note}" for note in document["notes"]]
    assert "note: " not in done.out


def test_csv_has_one_row_per_operator_only(roof: Roof) -> None:
    done = roof(*ESTIMATE, "--format", "csv")
    rows = list(csv.DictReader(io.StringIO(done.out)))
    operators = [op for phase in json.loads(roof(*ESTIMATE, "--format", "json").out)["phases"] for op in phase["ops"]]
    assert [row["name"] for row in rows] == [op["name"] for op in operators]
    assert [int(row["matmul_flops"]) for row in rows] == [op["matmul_flops"] for op in operators]
    assert done.status == 0


def test_markdown_and_table_name_model_and_device(roof: Roof) -> None:
    markdown, table = roof(*ESTIMATE, "--format", "markdown"), roof(*ESTIMATE)
    assert markdown.out.startswith("# openai-community/gpt2 on NVIDIA A100 SXM4 80 GB\n")
    for done in (markdown, table):
        assert done.status == 0
        assert "124 439 808" in done.out
    assert "\x1b" not in table.out  # no colors into a pipe


@pytest.mark.parametrize("columns", [80, 100, 200])
def test_the_table_is_no_wider_than_the_terminal(roof: Roof, monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    for arguments in (ESTIMATE, ("models", "list"), ("models", "show", "gpt2"), ("hw", "list"), ("hw", "show", "a100")):
        assert max(map(len, roof(*arguments).out.splitlines())) <= columns


def test_the_limits_of_a_small_device_give_notes(roof: Roof) -> None:
    done = roof("estimate", "Llama-3.1-70B", "--hw", "a100", "--format", "json")
    document = json.loads(done.out)
    assert document["memory"]["fits"] is False  # 70 553 706 496 parameters × 2 bytes > 80 GiB
    assert document["memory"]["weights"] == 2 * 70_553_706_496


@pytest.mark.parametrize(
    ("options", "phases"),
    [
        ((), ["prefill", "decode"]),
        (("--phase", "prefill"), ["prefill"]),
        (("--phase", "decode", "--context", "0"), ["decode"]),
        (("--phase", "forward"), ["forward"]),
        (("--attention", "eager", "--logits", "all"), ["prefill", "decode"]),
        (("--dtype", "bf16", "--weights", "int4", "--kv", "fp8"), ["prefill", "decode"]),
        (("--dtype", "fp64"), ["prefill", "decode"]),
        (("--batch", "3", "--tp", "1", "--dp", "1", "--pp", "1", "--ep", "1"), ["prefill", "decode"]),
    ],
    ids=lambda value: " ".join(value),
)
def test_valid_options_are_accepted(roof: Roof, options: tuple[str, ...], phases: list[str]) -> None:
    done = roof(*ESTIMATE, *options, "--format", "json")
    assert done.status == 0
    assert [phase["phase"] for phase in json.loads(done.out)["phases"]] == phases


@pytest.mark.parametrize(
    ("options", "note"),
    [
        (("--mla", "naive"), "--mla is ignored"),
        (("--decoder-seq", "5"), "--decoder-seq is ignored"),
        (("--image", "224"), "--image is ignored"),
        (("--recompute", "full"), "--recompute is ignored"),
        (("--phase", "forward", "--context", "9"), "--context is ignored"),
        (("--phase", "forward", "--kv", "fp8"), "--kv is ignored"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(value),
)
def test_an_option_that_does_not_apply_is_ignored_with_a_note(roof: Roof, options: tuple[str, ...], note: str) -> None:
    done = roof(*ESTIMATE, *options, "--format", "json")
    assert done.status == 0
    assert f"note: {note}: " in done.err
    assert any(text.startswith(note) for text in json.loads(done.out)["notes"])


@pytest.mark.parametrize(
    ("arguments", "notes"),
    [
        (("--conventions", "gpt2", "--op", "mlp"), ["MODEL is ignored", "--op is ignored"]),
        (("gpt2", "--reconcile", "fvcore", "--op", "mlp", "--hw", "a100"), ["--op is ignored", "--hw is ignored"]),
        (("gpt2", "--reconcile", "fvcore"), []),
    ],
)
def test_explain_notes_the_options_that_do_not_apply(roof: Roof, arguments: tuple[str, ...], notes: list[str]) -> None:
    done = roof("explain", *arguments)
    assert done.status == 0
    assert [note for note in notes if f"note: {note}: " in done.err] == notes
    assert done.err.count("is ignored") == len(notes)


# --- -o FILE ----------------------------------------------------------------------------------------

MAGIC = {"png": b"\x89PNG\r\n\x1a\n", "svg": b"<?xml", "pdf": b"%PDF-", "json": b"{", "csv": b"phase,", "md": b"# "}


@pytest.mark.parametrize("suffix", MAGIC)
def test_a_file_is_written_in_the_format_of_its_suffix_and_nothing_else(roof: Roof, suffix: str) -> None:
    done = roof(*ESTIMATE, "-o", f"out.{suffix}")
    assert done.status == 0
    assert files(Path.cwd()) == [f"out.{suffix}"]
    content = Path(f"out.{suffix}").read_bytes()
    assert content.startswith(MAGIC[suffix])
    assert f"wrote out.{suffix}\n" in done.err
    assert "operator" in done.out  # the table still goes to stdout
    if suffix == "svg":
        assert content.rstrip().endswith(b"</svg>")
    if suffix == "pdf":
        assert content.rstrip().endswith(b"%%EOF")
    if suffix == "png":
        assert content.endswith(b"IEND\xaeB`\x82")  # the last chunk and its checksum


@pytest.mark.parametrize(("suffix", "form"), [("json", "json"), ("csv", "csv"), ("md", "markdown")])
def test_a_file_has_the_content_that_the_format_prints(roof: Roof, suffix: str, form: str) -> None:
    roof(*ESTIMATE, "-o", f"out.{suffix}")
    assert Path(f"out.{suffix}").read_text(encoding="utf-8") == roof(*ESTIMATE, "--format", form).out


def test_a_file_and_a_format_are_both_given(roof: Roof) -> None:
    done = roof(*ESTIMATE, "-o", "out.json", "--format", "csv")
    assert done.status == 0
    assert json.loads(Path("out.json").read_text(encoding="utf-8"))["schema"] == "roofmodel.estimate/1"
    assert next(csv.DictReader(io.StringIO(done.out)))["phase"] == "prefill"


def test_json_on_stdout_is_one_document_with_an_output_file(roof: Roof) -> None:
    done = roof(*ESTIMATE, "-o", "out.csv", "--format", "json")
    assert json.loads(done.out)["schema"] == "roofmodel.estimate/1"
    assert "wrote out.csv" in done.err


def test_the_suffix_may_be_in_capitals(roof: Roof) -> None:
    assert roof(*ESTIMATE, "-o", "OUT.PNG").status == 0
    assert Path("OUT.PNG").read_bytes().startswith(MAGIC["png"])


def test_a_new_file_has_the_default_permissions(roof: Roof) -> None:
    Path("plain").write_text("", encoding="utf-8")
    roof(*ESTIMATE, "-o", "out.json")
    assert Path("out.json").stat().st_mode == Path("plain").stat().st_mode


@pytest.mark.parametrize(
    ("path", "fragments"),
    [
        ("missing/out.png", ["missing/out.png", "folder 'missing' does not exist"]),
        ("out.txt", ["out.txt", "unknown suffix '.txt'", ".png", ".svg", ".pdf", ".json", ".csv", ".md"]),
        ("out", ["out: ", "has no suffix", ".png"]),
        (".png", [".png: ", "has no suffix"]),
        ("", ["'': ", "has no suffix"]),
        ("folder.json", ["folder.json", "is a folder"]),
        ("file.json/out.json", ["file.json/out.json", "folder 'file.json' does not exist"]),
        ("~nosuchuser/out.json", ["~nosuchuser/out.json"]),
        ("a" * 5000 + ".json", ["error: aaa"]),
    ],
    ids=lambda value: value[:30] if isinstance(value, str) else "",
)
def test_an_invalid_output_file_is_refused_before_any_work(
    roof: Roof, monkeypatch: pytest.MonkeyPatch, path: str, fragments: list[str]
) -> None:
    Path("folder.json").mkdir()
    Path("file.json").write_text("old", encoding="utf-8")
    _break(monkeypatch)  # the work, if it were begun, would fail
    done = roof(*ESTIMATE, "-o", path)
    assert (done.status, done.out) == (2, "")
    assert re.fullmatch(r"error: [^\n]+\n", done.err)
    assert [fragment for fragment in fragments if fragment not in done.err] == []
    assert files(Path.cwd()) == ["file.json", "folder.json"]
    assert Path("file.json").read_text(encoding="utf-8") == "old"


def test_nothing_is_written_when_the_estimate_is_refused(roof: Roof) -> None:
    assert roof("estimate", "gpt2", "--hw", "v100", "--dtype", "bf16", "-o", "out.png").status == 2
    assert roof("estimate", "gpt2", "-o", "out.png").status == 2
    assert files(Path.cwd()) == []


@pytest.fixture(params=["json", "png"])
def failing_write(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The path of an existing file; writing the new one fails halfway on a full disk."""
    target = Path.cwd() / f"out.{request.param}"
    target.write_text("old", encoding="utf-8")

    def full(file: Path) -> None:
        file.write_bytes(b"half of the new")
        raise OSError(28, "No space left on device", str(file))

    def write_text(path: Path, *arguments: Any, **options: Any) -> int:
        full(path)
        return 0

    monkeypatch.setattr(picture_module, "draw", lambda estimate, file, suffix: full(file))
    monkeypatch.setattr(Path, "write_text", write_text)
    yield target
    monkeypatch.undo()


def test_a_failing_write_leaves_the_old_file_and_no_other(roof: Roof, failing_write: Path) -> None:
    done = roof(*ESTIMATE, "-o", failing_write.name)
    assert (done.status, done.out) == (2, "")
    assert done.err == f"error: {failing_write.name}: cannot be written (No space left on device)\n"
    assert failing_write.read_text(encoding="utf-8") == "old"
    assert files(failing_write.parent) == [failing_write.name]


def test_a_bug_in_a_picture_leaves_the_old_file_and_no_other(roof: Roof, monkeypatch: pytest.MonkeyPatch) -> None:
    def draw(estimate: object, file: Path, suffix: str) -> None:
        file.write_bytes(b"half of the new")
        raise RuntimeError("the wheels came off")

    monkeypatch.setattr(picture_module, "draw", draw)
    Path("out.png").write_text("old", encoding="utf-8")
    assert roof(*ESTIMATE, "-o", "out.png").status == 1
    assert Path("out.png").read_text(encoding="utf-8") == "old"
    assert files(Path.cwd()) == ["out.png"]


def test_a_file_is_replaced_only_by_a_complete_one(roof: Roof) -> None:
    Path("out.json").write_text("old" * 10**6, encoding="utf-8")
    assert roof(*ESTIMATE, "-o", "out.json").status == 0
    json.loads(Path("out.json").read_text(encoding="utf-8"))


# --- models and hw ----------------------------------------------------------------------------------


def test_all_packaged_models_are_listed(roof: Roof) -> None:
    table, document = roof("models", "list"), json.loads(roof("models", "list", "--format", "json").out)
    entries = list(hub.catalog())
    assert [model["name"] for model in document] == [entry.id for entry in entries]
    assert {model["name"]: model["parameters"] for model in document}["openai-community/gpt2-xl"] == 1_557_611_200
    assert table.status == 0
    for entry in entries:
        assert entry.id in table.out
    assert "1 557 611 200" in table.out
    assert all(model["counted"] == model["parameters"] for model in document if model["parameters"] is not None)
    assert "46 702 792 704 12.9 G" in table.out  # Mixtral-8x7B: 47B, 13B active (its model card)


def test_a_model_is_shown_with_the_config_key_of_each_field(roof: Roof) -> None:
    table, document = roof("models", "show", "gpt2"), json.loads(roof("models", "show", "gpt2", "--format", "json").out)
    assert (document["name"], document["model_type"], document["head"]) == (
        "openai-community/gpt2",
        "gpt2",
        "GPT2LMHeadModel",
    )
    assert document["fields"]["hidden"] == {"value": 768, "key": "n_embd", "assumed": False}
    assert document["fields"]["fused_qkv"] == {"value": True, "key": None, "assumed": False}
    assert document["fields"]["mlp_width"]["assumed"] is True  # n_inner is left to the class: 4 × 768
    assert document["fields"]["mlp_width"]["value"] == 3072
    assert document["parameters"] == 124_439_808
    assert document["source"]
    assert table.status == 0
    assert all(text in table.out for text in ("openai-community/gpt2", "GPT2LMHeadModel", "n_embd", "768", "(default)"))


def test_the_table_of_a_model_has_only_fields_of_its_family(roof: Roof) -> None:
    table = roof("models", "show", "t5-small").out
    fields = {line.split()[0] for line in table.splitlines() if line}
    assert {"hidden", "head_dim", "relative_rows", "encoder_layers"} <= fields
    assert not {"experts", "inner_width", "latent", "patch"} & fields
    assert "experts" in json.loads(roof("models", "show", "t5-small", "--format", "json").out)["fields"]
    assert '["full_attention"] × 28' in roof("models", "show", "qwen2.5-1.5b").out


def test_a_model_of_the_users_own_is_shown_with_its_assumptions(roof: Roof) -> None:
    config = {"model_type": "gpt2", "n_embd": 48, "n_layer": 2, "n_head": 4, "vocab_size": 100}
    Path("config.json").write_text(json.dumps(config), encoding="utf-8")
    done = roof("models", "show", ".", "--format", "json")
    document = json.loads(done.out)
    assert document["name"] == "work"  # the folder's name
    assert "parameters" not in document  # no published count
    assert "note: work/config.json: not in the config, so the defaults of GPT2Config are used: " in done.err


def test_remarks_wrap_between_words_on_a_terminal(roof: Roof, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a pipe, a remark is one line; a path is never broken."""
    path = f"/{'x' * 80}.json"
    asked = ("estimate", "gpt2", "--hw", "a100", "--context", "2000"), ("estimate", path, "--hw", "a100")
    piped = [roof(*words).err for words in asked]
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    for words, err in zip(asked, piped, strict=True):
        shown = roof(*words).err
        assert shown != err
        assert " ".join(shown.split()) == " ".join(err.split())
        assert all(len(line) <= 60 for line in shown.splitlines() if path not in line)


def test_an_unconfirmed_model_is_shown_with_a_note(roof: Roof) -> None:
    done = roof("models", "show", "opt-66b")
    assert done.status == 0
    assert "unconfirmed" in done.err


def test_all_devices_are_listed(roof: Roof) -> None:
    table, document = roof("hw", "list"), json.loads(roof("hw", "list", "--format", "json").out)
    assert [device["name"] for device in document] == library.names()
    assert {device["name"]: device["alias"] for device in document}["a100-sxm-80gb"] == "a100"
    assert table.status == 0
    for name in library.names():
        assert name in table.out


def test_a_device_is_shown_in_base_units_with_its_sources(roof: Roof) -> None:
    table, document = roof("hw", "show", "a100"), json.loads(roof("hw", "show", "a100", "--format", "json").out)
    assert document["id"] == "a100-sxm-80gb"
    assert document["pipes"]["tensor_fp16"]["peak"] == 312 * 10**12
    assert document["levels"]["dram"]["bandwidth"] == 2039 * 10**9
    assert document["pipes"]["tensor_fp16"]["source"] in document["sources"]
    assert table.status == 0
    assert all(
        text in table.out for text in ("NVIDIA A100 SXM4 80 GB", "312 TFLOP/s", "2.039 TB/s", "80 GiB", "(sparse)")
    )


@pytest.mark.parametrize(
    "command",
    ["explain gpt2 --hw a100", "explain --conventions", "crossover matmul --hw a100", "sweep gpt2 --hw a100 --tp 1,5"],
)
def test_options_are_text_in_json(roof: Roof, command: str) -> None:
    """An Option is a tuple: JSON would make a list of it."""

    def lists(value: Any) -> Iterator[list[Any]]:
        if isinstance(value, list):
            yield value
        for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
            yield from lists(part)

    found = list(lists(json.loads(roof(*command.split(), "--format", "json").out)))
    assert found
    assert not [each for each in found if each[:1] and each[0] in Options._fields]


def test_every_device_is_shown_and_checked_without_messages(roof: Roof) -> None:
    for name in library.names():
        assert roof("hw", "show", name).err == ""
        file = str(ROOT / "hardware" / f"{name}.yaml")
        assert roof("hw", "check", file) == Done(0, f"{file}: {Device.load(name).name}: valid\n", "")


def test_a_doubtful_device_is_valid_with_warnings(roof: Roof) -> None:
    Path("mine.yaml").write_text(
        "name: mine\npipes:\n  fp16: {peak: 1 TFLOP/s}\nmemory:\n  dram: {bandwidth: 1 GB/s}\n", encoding="utf-8"
    )
    done = roof("hw", "check", "mine.yaml")
    assert done.status == 0
    assert done.out == "mine.yaml: mine: valid, 2 warnings\n"
    assert done.err == ("warning: mine.yaml: pipe fp16: no source\nwarning: mine.yaml: memory dram: no source\n")


def test_a_device_without_a_capacity_has_no_fit(roof: Roof) -> None:
    Path("mine.yaml").write_text(
        "name: mine\npipes:\n  fp16: {peak: 1 TFLOP/s}\nmemory:\n  dram: {bandwidth: 1 GB/s}\n", encoding="utf-8"
    )
    done = roof("estimate", "gpt2", "--hw", "mine.yaml", "--format", "json")
    assert json.loads(done.out)["memory"]["fits"] is None
    for form in ("table", "markdown", "csv"):
        assert roof("estimate", "gpt2", "--hw", "mine.yaml", "--format", form).status == 0


# --- Help -------------------------------------------------------------------------------------------


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every command and group of the application, by its words on the command line."""
    yield path
    if isinstance(command, TyperGroup):
        for name in command.list_commands(None):
            yield from commands(command.get_command(None, name), (*path, name))


COMMANDS = list(commands(typer.main.get_command(cli.app)))


def test_the_commands_are_those_of_the_machine_interface() -> None:
    assert {*COMMANDS} >= {
        ("estimate",),
        ("models", "list"),
        ("models", "show"),
        ("hw", "list"),
        ("hw", "show"),
        ("hw", "check"),
    }


def test_the_help_groups_the_commands(roof: Roof) -> None:
    titles = re.findall("╭─ ([A-Z].*?) ─+╮", roof("-h").out)
    assert titles == ["Options", "Predict", "Decide", "Explain", "Measure", "Teach", "Look up"]
    assert not {words[0] for words in COMMANDS if words} - {*re.findall(r"^│ (\w\S+) ", roof("-h").out, re.MULTILINE)}


@pytest.mark.parametrize("option", ["-h", "--help"])
@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: " ".join(("roof", *words)))
def test_every_command_explains_itself(roof: Roof, words: tuple[str, ...], option: str) -> None:
    done = roof(*words, option)
    assert (done.status, done.err) == (0, "")
    assert " ".join(("roof", *words)) in done.out
    assert "Usage" in done.out


def test_compare_warns_of_a_default_and_refuses_a_workload_of_which_nothing_is_known(roof: Roof) -> None:
    file = str(ROOT / "examples" / "gpt2_trace_by_hand.json.gz")
    done = roof("compare", "gpt2", file, "--hw", "a100", "--phase", "prefill", "--batch", "1")
    assert "not given completely; assumed: --seq 1024\n" in done.err
    refused = roof("compare", "gpt2", file, "--hw", "a100", "--phase", "prefill")
    assert refused.status == 2
    assert refused.err.rstrip().endswith("give --batch N and --seq N")


def test_models_in_the_examples_of_help_are_packaged() -> None:
    group: Any = typer.main.get_command(cli.app)
    checked = 0
    for name in ("estimate", "sweep", "explore", "compare"):
        for line in (group.get_command(None, name).epilog or "").splitlines():
            if line.startswith(f"roof {name} "):
                models = itertools.takewhile(lambda word: not word.startswith("-"), line.split()[2:])
                for model in itertools.islice(models, 1 if name == "compare" else None):
                    if not model.startswith("."):
                        hub.load(model)
                        checked += 1
    assert checked > 9


def test_every_option_of_estimate_has_help() -> None:
    estimate: Any = typer.main.get_command(cli.app)
    for parameter in estimate.get_command(None, "estimate").params:
        if parameter.name != "help":
            assert parameter.help, parameter.name


# --- As a separate process --------------------------------------------------------------------------


def process(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "roofmodel", *arguments],
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        timeout=60,
        check=False,
        **options,
    )


@pytest.mark.parametrize("arguments", [("models", "list"), (*ESTIMATE, "--format", "json"), ("-h",)], ids=" ".join)
def test_a_closed_output_pipe_is_not_an_error(arguments: tuple[str, ...]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = process(*arguments, stdout=writing)
    finally:
        os.close(writing)
    assert done.returncode == 0
    assert "error" not in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("stream", [1, 2], ids=["stdout", "stderr"])
def test_a_closed_stream_gives_no_traceback(stream: int) -> None:
    """As under `>&-`, and for some services that start without a terminal."""
    program = "import os, sys; os.close(int(sys.argv[1])); os.execv(sys.executable, [sys.executable, *sys.argv[2:]])"
    done = subprocess.run(
        [sys.executable, "-c", program, str(stream), "-m", "roofmodel", *ESTIMATE, "--format", "json"],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        timeout=60,
        check=False,
    )
    assert "Traceback" not in done.stderr
    assert done.returncode != 1
    if stream == 2:
        assert json.loads(done.stdout)["schema"] == "roofmodel.estimate/1"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full on this system")
@pytest.mark.parametrize("command", [(*ESTIMATE, "--format", "json"), ("sweep", "gpt2", "--hw", "a100")])
def test_a_full_disk_for_stdout_is_a_one_line_error(command: tuple[str, ...]) -> None:
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        done = process(*command, stdout=full)
    assert done.returncode == 2
    assert re.search(r"^error: the output cannot be written \(.+\)$", done.stderr, re.MULTILINE)
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="limits of a process are Unix's")
def test_a_partial_write_is_an_error_even_unbuffered() -> None:
    limited = f"import resource, runpy, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (999, 999)); {AS_ROOF}"
    with Path("out.json").open("w", encoding="utf-8") as out:
        done = subprocess.run(
            [sys.executable, "-u", "-c", limited, *ESTIMATE, "--format", "json"],
            stdout=out,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            timeout=60,
            check=False,
        )
    assert Path("out.json").stat().st_size == 999
    assert done.returncode == 2
    assert re.search(r"^error: the output cannot be written", done.stderr, re.MULTILINE)


AS_ROOF = "runpy.run_module('roofmodel', run_name='__main__', alter_sys=True)"


def in_ascii(*arguments: str) -> str:
    """The output of `roof` on a terminal that shows ASCII only."""
    done = subprocess.run(
        [sys.executable, "-m", "roofmodel", *arguments],
        capture_output=True,
        env=os.environ | {"PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "ascii", "LC_ALL": "C"},
        timeout=60,
        check=False,
    )
    assert done.returncode == 0
    return done.stdout.decode("ascii")


def test_an_ascii_terminal_gets_table_and_chart_in_ascii(roof: Roof) -> None:
    plain, lines = in_ascii(*ESTIMATE, "--roofline"), roof(*ESTIMATE, "--roofline").out.splitlines()
    assert "?" not in plain
    assert "GPT2LMHeadModel" in plain
    assert re.search(r"312 TFLOP/s \| +/*-{5}", plain)
    for shown, line in zip(plain.splitlines(), lines, strict=True):
        assert len(shown) == len(line)
        assert all(a == b for a, b in zip(shown, line, strict=True) if b.isascii())


def test_json_in_ascii_is_lossless(roof: Roof, tmp_path: Path) -> None:
    sizes = {"n_embd": 64, "n_head": 4, "n_layer": 2, "vocab_size": 100}
    config = tmp_path / "größe" / "config.json"
    config.parent.mkdir()
    config.write_text(json.dumps({"model_type": "gpt2", **sizes}), encoding="utf-8")
    command = ("models", "show", str(config), "--format", "json")
    assert "größe" in json.loads(roof(*command).out)["name"]
    assert json.loads(in_ascii(*command)) == json.loads(roof(*command).out)


TABLE = "op,dtype,m,n,k,latency_us\ngemm,fp16,1024,1024,1024,10\n"


def test_validate_warns_of_rows_of_another_device_before_the_table(
    roof: Roof, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    row = "H100-SXM5-80GB,gemm,float16,4096,4096,4096,250"
    Path("table.csv").write_text(f"gpu,op,dtype,m,n,k,latency_us\n{row}\n", encoding="utf-8")
    monkeypatch.setattr("sys.stderr", sys.stdout)
    lines = roof("validate", "table.csv", "--hw", "a100").out.splitlines()
    assert lines[0].startswith("warning: a100-sxm-80gb was given")
    assert lines[1].startswith("table.csv on NVIDIA A100")
    assert len([line for line in lines if "was given" in line]) == 1


def test_validate_prints_the_error_of_the_bound(roof: Roof) -> None:
    Path("table.csv").write_text(TABLE)
    done = roof("validate", "table.csv", "--hw", "a100", "-o", "rows.csv")
    assert done.status == 0
    assert "31.2%" in done.out  # 2 x 1024^3 / 312 TFLOP/s = 6.883 us of 10
    assert (
        Path("rows.csv")
        .read_text()
        .splitlines()[0]
        .endswith("bound_us,expected_us,expected_low_us,expected_high_us,note")
    )
    assert json.loads(roof("validate", "table.csv", "--hw", "a100", "--format", "json").out)["n"] == 1


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("absent.csv", "--hw", "a100"), "absent.csv: not a readable table of measurements"),
        (("table.csv", "--hw", "a1000"), "did you mean 'a100'"),
        (("table.csv", "--hw", "a100", "-o", "rows.xyz"), "unknown suffix '.xyz'"),
        (("table.csv", "--hw", "a100", "--format", "xml"), "unknown format 'xml'"),
    ],
)
def test_validate_refuses_in_one_line(roof: Roof, arguments: tuple[str, ...], says: str) -> None:
    Path("table.csv").write_text(TABLE)
    done = roof("validate", *arguments)
    assert done.status == 2
    assert says in done.err
    assert done.err.count("\n") == 1


def test_the_version_is_printed_without_a_command(roof: Roof) -> None:
    from roofmodel import __version__

    assert roof("--version") == Done(0, f"roofmodel {__version__}\n", "")


def test_the_families_are_listed(roof: Roof) -> None:
    from roofmodel.models.families import CUSTOM_CODE, FAMILIES

    listed = json.loads(roof("models", "families", "--format", "json").out)
    assert {entry["model_type"] for entry in listed} == set(FAMILIES) | set(CUSTOM_CODE)
    assert "GPT2LMHeadModel" in roof("models", "families").out


def test_a_failing_default_plot_does_not_affect_the_table(roof: Roof, tmp_path: Path) -> None:
    Path("profile.csv").write_bytes((ROOT / "examples" / "ncu_by_hand.csv").read_bytes())
    Path("profile.csv.roofline.png").mkdir()  # in the way
    done = roof("plot", "profile.csv", "--hw", "a100")
    assert done.status == 0
    assert "gemm" in done.out
    assert "warning: no picture: profile.csv.roofline.png: is a folder" in done.err


# --- Files and streams that the caller chooses ------------------------------------------------------


CONFIG = json.dumps({"model_type": "gpt2", "n_embd": 48, "n_layer": 2, "n_head": 4, "vocab_size": 100})


@pytest.mark.parametrize(
    "line",
    [
        "estimate c.json --hw a100 -o c.json",
        "estimate folder --hw a100 -o folder/config.json",
        "estimate gpt2 --hw gpu.yaml -o linked.json",
        "explain c.json -o linked.json -o c.json",
        "crossover c.json --hw a100 -o c.json",
        "sweep gpt2 c.json --hw a100 -o c.json",
        "sweep gpt2 --hw a100,gpu.yaml -o linked.json",
        "plot self.csv -o self.csv",
        "plot sel*.csv@a100 -o self.csv",
        "plot other.csv --hw a100 --times self.csv -o self.csv",
        "compare gpt2 self.csv -o self.csv",
        "validate self.csv --hw a100 -o self.csv",
        "calibrate self.csv --hw gpu.yaml -o gpu.yaml",
        "explore page.html -o page.html",
        "homework check sheet.md --student 1 -o sheet.md",
    ],
)
def test_an_output_that_is_also_an_input_is_refused(roof: Roof, line: str) -> None:
    Path("folder").mkdir()
    for name in ("c.json", "folder/config.json"):
        Path(name).write_text(CONFIG, encoding="utf-8")
    for name in ("self.csv", "other.csv", "page.html", "sheet.md"):
        Path(name).write_text("content", encoding="utf-8")
    Path("gpu.yaml").write_text((ROOT / "hardware/a100-sxm-80gb.yaml").read_text("utf-8"), encoding="utf-8")
    os.symlink("c.json" if "c.json" in line else "gpu.yaml", "linked.json")
    before = {path: path.read_bytes() for path in Path.cwd().rglob("*") if path.is_file()}
    done = roof(*line.split())
    assert (done.status, done.out) == (2, "")
    assert re.fullmatch(r"error: \S+: is also an input \(\S+\); give another file for the output\n", done.err)
    assert {path: path.read_bytes() for path in Path.cwd().rglob("*") if path.is_file()} == before


def test_an_unknown_backend_of_matplotlib_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPLBACKEND", "no_such_backend")
    done = process(*ESTIMATE, "-o", "out.png", stdout=subprocess.DEVNULL)
    assert done.returncode == 2
    assert done.stderr == "error: MPLBACKEND=no_such_backend is not a backend of matplotlib; unset it, or set agg\n"
    assert process(*ESTIMATE, "-o", "out.json", stdout=subprocess.DEVNULL).returncode == 0


@pytest.mark.parametrize(
    ("arguments", "status"), [(("kernels", "-"), 2), (("plot", "-", "--hw", "a100"), 2), (ESTIMATE, 0)]
)
def test_a_closed_standard_input_gives_no_traceback(arguments: tuple[str, ...], status: int) -> None:
    program = "import os, sys; os.close(0); os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
    done = subprocess.run(
        [sys.executable, "-c", program, "-m", "roofmodel", *arguments],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        timeout=60,
        check=False,
    )
    assert done.returncode == status
    assert ("error: standard input is closed" in done.stderr) == (status == 2)


def test_a_table_whose_unfinished_file_has_too_long_a_name_is_refused(roof: Roof) -> None:
    """`roof measure -o FILE` writes FILE.part first."""
    pytest.importorskip("torch")
    done = roof("measure", "-o", "a" * 249 + ".csv", "--device", "cpu", "--budget", "1")
    assert done.status == 2
    assert re.search(r"^error: a{249}\.csv\.part: cannot be written \(.+\)", done.err)


@pytest.mark.parametrize("suffix", ["json", "csv", "parquet"])
def test_kernels_are_written_to_files_with_their_operators(roof: Roof, suffix: str) -> None:
    pandas = pytest.importorskip("pandas")
    if suffix == "parquet":
        pytest.importorskip("pyarrow")
    trace = ROOT / "examples" / "training_by_hand.json"
    done = roof("kernels", str(trace), "-o", f"kernels.{suffix}")
    assert done.status == 0, done.err
    file = Path(f"kernels.{suffix}")
    if suffix == "json":
        frame = pandas.DataFrame(json.loads(file.read_text(encoding="utf-8"))["kernels"])
    else:
        frame = pandas.read_csv(file) if suffix == "csv" else pandas.read_parquet(file)
    gemms = frame[frame["name"] == "forward_gemm"]
    assert set(gemms["operator"]) == {"aten::addmm"}
    # launched 4060 us and started 4600 us after the start of each step
    assert (gemms["start_seconds"] - gemms["launch_seconds"]).tolist() == pytest.approx([540e-6] * 4)
    assert set(frame["stream"].astype(str)) == {"7", "20"}


@pytest.mark.parametrize(("option", "technique"), [("--offload", "offloading")])
@pytest.mark.parametrize("command", ["estimate", "sweep"])
def test_the_name_of_a_technique_gets_no_spelling_hint(roof: Roof, command: str, option: str, technique: str) -> None:
    done = roof(command, "gpt2", "--hw", "h100", option, "2")
    assert done.status == 2
    assert done.err.startswith(f"error: {option}: {technique}")
    assert "not modeled" in done.err
    assert not any(hint in done.err for hint in ("Possible options", "did you mean"))


def test_a_cached_prefix_is_named_by_its_option(roof: Roof) -> None:
    done = roof("estimate", "gpt2", "--hw", "h100", "--prefix-cache", "2")
    assert done.status == 2
    assert "--context" in done.err
