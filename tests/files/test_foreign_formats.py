"""Messages about files in formats that other programs must convert."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import roofmodel
from roofmodel.errors import ModelError, ProfileError

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
