"""Recognize files of serving benchmarks by their content, and read them. File names do not matter.

A file is a JSON object, JSON objects one after another, a JSON list of them, or a CSV. `TOOLS` is the registry.
"""

from __future__ import annotations

import csv
import glob
import json
import os
import re
import zlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from roofmodel.benchmark_results import genai_perf, inferencex, sglang, trtllm, vllm
from roofmodel.benchmark_results.run import Entries, ServingRun
from roofmodel.errors import ProfileError
from roofmodel.files.text_files import decode, display_names
from roofmodel.profiles.reading import InputFile, opened_sources
from roofmodel.profiles.signatures import SERVING_TOOLS, serving_result

_HEAD = 1 << 16  # bytes that decide whether a file is a result; details of requests come after the summary
_NEXT = re.compile(r"\s*")


class _Tool(NamedTuple):
    recognize: Callable[[Entries], bool]
    read: Callable[[Entries], ServingRun]


TOOLS = tuple(_Tool(module.recognize, module.read) for module in (inferencex, trtllm, genai_perf, sglang, vllm))


def are_results(paths: Iterable[str]) -> bool:
    """Whether one of these files, or of the files that a pattern names, is a result. Pipes are not read."""
    named = (file for path in paths for file in ([path] if os.path.isfile(path) else glob.glob(path, recursive=True)))
    with opened_sources(filter(os.path.isfile, named)) as sources:
        return any(map(_is_result, sources))


def read(paths: Iterable[str]) -> list[ServingRun]:
    """The runs of all files, in order. Raises ProfileError for a file that is no result, or a damaged one."""
    with opened_sources(paths) as sources:
        names = display_names(source.name for source in sources)
        return [run for source in sources for run in _runs(source, names[source.name])]


def _is_result(source: InputFile) -> bool:
    try:
        with source.open() as stream:
            return serving_result(stream.read(_HEAD))
    except (OSError, EOFError, zlib.error):
        return False  # the reader of profiles says what is wrong


def _runs(source: InputFile, name: str) -> Iterator[ServingRun]:
    """The runs of a file, which messages call `name`."""
    try:
        with source.open() as stream:
            text = decode(stream.read())
    except (OSError, EOFError, zlib.error) as error:
        raise ProfileError(f"{name}: cannot be read: {error}") from None
    except ValueError as error:
        raise ProfileError(f"{name}: {error}") from None
    if text.lstrip()[:1] not in ("{", "["):
        try:
            rows = [*csv.reader(text.splitlines())]
        except csv.Error:
            raise _unknown(name) from None
        if not rows or not genai_perf.recognize_rows(rows):
            raise _unknown(name)
        yield genai_perf.read(Entries(genai_perf.objects_of(rows, name), name))
        return
    for values in _objects(text, name):
        entries = Entries(values, name)
        tool = next((tool for tool in TOOLS if tool.recognize(entries)), None)
        if tool is None:
            raise _unknown(name)
        yield tool.read(entries)


def _unknown(name: str) -> ProfileError:
    return ProfileError(f"{name}: not a result of a serving benchmark; known are those of {SERVING_TOOLS}")


def _objects(text: str, name: str) -> Iterator[dict[str, Any]]:
    """The objects of a file: one, several after each other, or a list."""
    decoder, at = json.JSONDecoder(), 0
    while (at := _NEXT.match(text, at).end()) < len(text):  # type: ignore[union-attr]
        try:
            value, at = decoder.raw_decode(text, at)
        except json.JSONDecodeError as error:
            raise ProfileError(f"{name}:{error.lineno}: not JSON ({error.msg}); the file may be incomplete") from None
        except (RecursionError, ValueError):
            raise ProfileError(
                f"{name}: not JSON that a benchmark writes; known are results of {SERVING_TOOLS}"
            ) from None
        for each in value or [None] if isinstance(value, list) else [value]:
            if not isinstance(each, dict):
                raise _unknown(name)
            yield each
