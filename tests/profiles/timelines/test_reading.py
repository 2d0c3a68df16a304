"""Readers of whole runs: a damaged file is refused with its name, or read as far as it goes; never a traceback."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roofmodel.errors import ProfileError
from roofmodel.profiles.timelines import nsys_tables, reading, torch_events
from roofmodel.profiles.timelines.timeline import WORK
from tests.profiles.samples import content, measured, mutilations
from tests.profiles.seeds import SEEDS

EXAMPLE = Path(__file__).parents[3] / "examples" / "training_by_hand.json"


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_a_damaged_pytorch_trace_is_refused_or_read(data: st.DataObject) -> None:
    _refused_or_read(torch_events.read, data.draw(mutilations(EXAMPLE.read_bytes())))


@given(st.data())
@settings(max_examples=30, deadline=None)
def test_a_damaged_nsys_export_is_refused_or_read(data: st.DataObject) -> None:
    _refused_or_read(nsys_tables.read, data.draw(mutilations(SEEDS["nsys-sqlite"])))


def _refused_or_read(read: reading.Read, damaged: bytes) -> None:
    try:
        timeline = read(io.BytesIO(damaged), "sample")
    except ProfileError as error:
        if not str(error).startswith("sample"):
            raise
        return
    assert list(timeline.work.columns) == list(WORK)
    assert (timeline.work["start"] <= timeline.work["end"]).all()


@pytest.mark.parametrize("name", SEEDS)
def test_every_format_of_kernels_is_read_as_a_run_or_refused_with_the_reason(name: str, tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(SEEDS[name])
    try:
        (timeline,) = reading.read([path])
    except ProfileError as error:
        if str(path) not in str(error):
            raise
        return
    assert len(timeline.work)


def test_streaming_reads_the_same_kernels_as_the_reader_of_kernels() -> None:
    from roofmodel.profiles import torch_trace

    data = content(measured("traces/torch/nccl_parser_config_nccl_data.json.gz"))
    kernels = torch_trace.read(io.BytesIO(data), "sample").kernels
    work = torch_events.read(io.BytesIO(data), "sample").work
    work = work[work["kind"] == "kernel"]
    assert [kernel.name for kernel in kernels] == work["name"].tolist()
    durations = [round(kernel.seconds * 1e9) for kernel in kernels if kernel.seconds is not None]
    assert durations == (work["end"] - work["start"]).tolist()


def test_without_ijson_a_message_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ijson", None)
    with pytest.raises(ProfileError, match=r"pip install ijson, or the extra `trace`"):
        reading.read([EXAMPLE])


def test_device_properties_are_found_before_and_after_the_events() -> None:
    document = json.loads(EXAMPLE.read_text())
    properties = document.pop("deviceProperties")
    assert list(document) == ["schemaVersion", "traceEvents"]
    for ordered in ({"deviceProperties": properties, **document}, {**document, "deviceProperties": properties}):
        timeline = torch_events.read(io.BytesIO(json.dumps(ordered).encode()), "sample")
        assert [each.name for each in timeline.evidence] == ["Tesla V100-SXM2-32GB"]
