"""Names of files in results."""

from __future__ import annotations

from pathlib import Path

from roofmodel.errors import Message, Option
from roofmodel.files.file_names import display_names, printable, rename_files


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
