"""Limits of the text files that users write: nesting, number of values, duplicate keys.

Names of files in results.

Messages about files in formats that other programs must convert.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest
import yaml

import roofmodel
from roofmodel.devices.device import Device
from roofmodel.errors import AnswerError, DeviceError, Message, ModelError, Option, ProfileError, RoofError
from roofmodel.files.text_files import (
    MAX_DEPTH,
    MAX_NODES,
    _complete_tags,
    display_names,
    printable,
    read_yaml,
    rename_files,
)
from roofmodel.models import hub
from tests.models.test_hub import TINY, refused

HARDWARE = Path(__file__).parents[2] / "hardware"
NESTED = ("[", "- ", "{a: ", "? ")


def laughs(levels: int = 9, copies: int = 9) -> str:
    """Lists of aliases of lists of aliases: 9^9 values in 400 bytes."""
    lines = ["a0: &a0 [ha]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * copies)}]" for n in range(1, levels + 1)]
    return "\n".join([*lines, f"layers: *a{levels}\n"])


@pytest.mark.parametrize("opening", NESTED)
@pytest.mark.parametrize("levels", [MAX_DEPTH + 1, 500, 30_000])
def test_a_deeply_nested_yaml_file_is_refused(opening: str, levels: int, tmp_path: Path) -> None:
    """In a separate process, because PyYAML's composer crashes at some ten thousand levels."""
    file = tmp_path / "deep.yaml"
    file.write_text("name: " * (opening in "[{a: ") + opening * levels, encoding="utf-8")
    for arguments in (["hw", "check", str(file)], ["estimate", str(file), "--hw", "a100"]):
        done = subprocess.run(
            [sys.executable, "-m", "roofmodel", *arguments], capture_output=True, text=True, check=False, timeout=60
        )
        assert done.returncode == 2, done.stderr
        assert done.stderr.startswith(f"error: {file}:1: ")
        assert done.stderr.count("\n") == 1
        if levels <= 500:  # PyYAML may have a limit of its own, which its parser reaches before ours
            assert done.stderr.endswith(f"more than {MAX_DEPTH} nested lists and mappings\n")


def test_a_sheet_of_answers_nested_too_deeply_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "answers.yaml"
    file.write_text("answers: " + "[" * 500, encoding="utf-8")
    with pytest.raises(RoofError, match=rf"answers\.yaml:1: more than {MAX_DEPTH} nested lists and mappings"):
        read_yaml(file, AnswerError, "a sheet")


def test_aliases_that_expand_to_millions_of_values_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "laughs.yaml"
    file.write_text(laughs(), encoding="utf-8")
    with pytest.raises(ModelError, match=rf"laughs\.yaml:\d: more than {MAX_NODES} values, with aliases expanded"):
        hub.load(str(file))
    with pytest.raises(DeviceError, match="aliases expanded"):
        Device.load(str(file))


def test_aliases_of_a_list_inside_its_own_anchor_need_little_memory(tmp_path: Path) -> None:
    """1000 aliases with 1000 values each: the limit is checked before the values are collected."""
    file = tmp_path / "wide.yaml"
    file.write_text("name: &a [" + "*a, " * 1000 + "*a]\n", encoding="utf-8")
    tracemalloc.start()
    try:
        with pytest.raises(DeviceError, match=rf"wide\.yaml:1: more than {MAX_NODES} values, with aliases expanded"):
            Device.load(str(file))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 20e6


def test_a_yaml_file_of_too_many_values_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "long.yaml"
    file.write_text("name: [" + "1, " * (MAX_NODES + 1) + "1]", encoding="utf-8")
    with pytest.raises(DeviceError, match=f"more than {MAX_NODES} values"):
        Device.load(str(file))


def test_aliases_within_the_limit_are_read(tmp_path: Path) -> None:
    text = (HARDWARE / "t4.yaml").read_text(encoding="utf-8")
    file = tmp_path / "user.yaml"
    file.write_text(text.replace("name: ", "name: &title ", 1), encoding="utf-8")
    assert Device.load(str(file)).name == Device.load("t4").name
    file.write_text("name: [*a]\n", encoding="utf-8")
    with pytest.raises(DeviceError, match=r"user\.yaml:1: not YAML \("):
        Device.load(str(file))


def test_an_alias_inside_its_own_anchor_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "user.yaml"
    file.write_text("name: &a [*a]\n", encoding="utf-8")
    with pytest.raises(DeviceError, match=rf"user\.yaml:1: more than {MAX_NODES} values, with aliases expanded"):
        Device.load(str(file))


def test_a_yaml_file_in_utf_16_is_refused_with_a_remedy(tmp_path: Path) -> None:
    file = tmp_path / "user.yaml"
    file.write_bytes("name: a GPU\n".encode("utf-16"))
    with pytest.raises(DeviceError, match=r"got a file that is not text in UTF-8; save it as UTF-8$"):
        Device.load(str(file))


def shape(node: yaml.Node) -> object:
    """A node graph as nested tuples of tags, values and lines."""
    if isinstance(node, yaml.ScalarNode):
        return node.tag, node.value, node.start_mark.line, node.end_mark.line
    inside = [part for pair in node.value for part in pair] if isinstance(node, yaml.MappingNode) else node.value
    return node.tag, node.start_mark.line, node.end_mark.line, tuple(map(shape, inside))


@pytest.mark.parametrize("file", sorted(HARDWARE.glob("*.yaml")), ids=lambda file: file.stem)
def test_the_node_graph_is_the_one_of_pyyaml(file: Path) -> None:
    ours = read_yaml(file, DeviceError, "a device's YAML").node
    _complete_tags(ours)
    assert shape(ours) == shape(yaml.compose(file.read_text(encoding="utf-8"), Loader=yaml.SafeLoader))


@pytest.mark.parametrize("levels", [MAX_DEPTH + 1, 500, 900, 30_000])
@pytest.mark.parametrize("pair", ["[]", ('{"a":', "}")])
def test_a_deeply_nested_config_is_refused(levels: int, pair: tuple[str, str], tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    nested = pair[0] * levels + "1" + pair[1] * levels
    file.write_text(json.dumps(TINY)[:-1] + f', "torch_dtype": {nested}}}', encoding="utf-8")
    with pytest.raises(ModelError, match=f"more than {MAX_DEPTH} nested lists and objects"):
        hub.load(str(file))


@pytest.mark.parametrize(
    ("text", "message_part"),
    [
        ('{"model_type": "gpt2", "n_embd": 48, "n_embd": 96}', "duplicate key 'n_embd', with the values 48 and 96"),
        ('{"rope_parameters": {"rope_theta": 1, "rope_theta": 2}}', "duplicate key 'rope_theta'"),
    ],
)
def test_a_config_with_two_values_of_a_key_is_refused(text: str, message_part: str, tmp_path: Path) -> None:
    _, message = refused(tmp_path, text)
    assert message_part in message
    assert message.endswith("; keep one")


def test_a_key_that_a_config_has_twice_with_one_value_is_read(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps(TINY)[:-1] + ', "n_embd": 48}', encoding="utf-8")
    assert hub.load(str(file)).facts["hidden"].value == 48


def test_only_files_of_one_name_are_shown_with_their_folders() -> None:
    paths = [
        "/home/someone/runs/0/trace.json",
        Path("/home/someone/runs/1/trace.json"),
        "../someone/ncu.csv",
        "~/x.csv",
    ]
    assert list(display_names(paths).values()) == ["0/trace.json", "1/trace.json", "ncu.csv", "x.csv"]


def test_a_name_that_is_not_utf_8_is_shown_with_replacement_characters() -> None:
    assert display_names([b"/a/\xff\n.csv".decode("utf-8", "surrogateescape")])["/a/\udcff\n.csv"] == "\ufffd .csv"
    assert printable("größe 数据") == "größe 数据"


def test_paths_in_notes_are_renamed_and_options_are_kept() -> None:
    names = {"/a/b": "b", "/a/b/c": "c"}
    assert rename_files("/a/b/c: has no /a/b", names) == "c: has no b"
    assert rename_files(Message("/a/b: add ", Option("hw")), names) == Message("b: add ", Option("hw"))


LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 221339648\n"


@pytest.mark.parametrize(
    ("name", "content", "what", "command"),
    [
        (
            "run.nsys-rep",
            b"NVIDIA Tegra Profiler Report 2025@2@1\n\0\1",
            "Nsight Systems",
            "nsys export --type sqlite {}",
        ),
        ("run.qdrep", b"NVIDIA Tegra Profiler Report 2020@1\n\0\1", "Nsight Systems", "nsys export --type sqlite {}"),
        ("run.nvvp", b"PK\3\4\0\0", "Visual Profiler", "unzip {}"),
        (
            "host.xplane.pb",
            b"\n\3\x12\x0d/device:GPU:0\0",
            "XPlane",
            "--cuda-graph-trace node -o run COMMAND",
        ),
        ("run.sqlite", LFS, "Git LFS pointer", "git lfs pull --include run.sqlite"),
    ],
)
def test_a_profile_that_must_be_converted_is_named_with_the_command(
    name: str, content: bytes, what: str, command: str, tmp_path: Path
) -> None:
    file = tmp_path / name
    file.write_bytes(content)
    for question in (roofmodel.read_profile, roofmodel.trace, roofmodel.plot):
        with pytest.raises(ProfileError) as raised:
            question(str(file))
        assert what in str(raised.value)
        assert command.format(file) in str(raised.value)


def test_models_without_a_config_are_named_with_what_to_give(tmp_path: Path) -> None:
    for folder in ("adapter", "meta", "gguf"):
        (tmp_path / folder).mkdir()
    (tmp_path / "adapter" / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": "org/base"}))
    (tmp_path / "meta" / "params.json").write_text('{"dim": 4096}')
    (tmp_path / "gguf" / "m.gguf").write_bytes(b"GGUF\3\0\0\0")
    (tmp_path / "config.json").write_bytes(LFS)
    expected = {
        "adapter": "roof estimate org/base",
        "meta": "convert_llama_weights_to_hf --input_dir",
        "gguf": "m.gguf is a GGUF file",
        "gguf/m.gguf": "roof estimate ORGANIZATION/MODEL --weights int4",
        "config.json": "git lfs pull --include config.json",
    }  # fmt: skip
    for name, text in expected.items():
        with pytest.raises(ModelError) as raised:
            roofmodel.estimate(tmp_path / name, "a100")
        assert text in str(raised.value)
