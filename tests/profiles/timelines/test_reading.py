"""Readers of whole runs: a damaged file is refused with its name, or read up to the damage, without a traceback."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import BinaryIO

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import roofmodel
from roofmodel.errors import ProfileError
from roofmodel.profiles import nsys, rocprof_database, torch_trace
from roofmodel.profiles.columns import ColumnTable
from roofmodel.profiles.kernel import KernelTable
from roofmodel.profiles.reading import read as read_profiles
from roofmodel.profiles.timelines import enclosing, reading
from roofmodel.profiles.timelines.timeline import RANGES, WORK, Timeline
from roofmodel.roofline.judged_kernels import gaps
from tests.profiles.samples import measured, mutilations
from tests.profiles.seeds import SEEDS
from tests.profiles.test_nsys import NVTX, RUNTIME, export

EXAMPLE = Path(__file__).parents[3] / "examples" / "training_by_hand.json"


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_a_damaged_pytorch_trace_is_refused_or_read(data: st.DataObject) -> None:
    _refused_or_read(torch_trace.read, data.draw(mutilations(EXAMPLE.read_bytes())))


@given(st.data())
@settings(max_examples=30, deadline=None)
def test_a_damaged_database_is_refused_or_read(data: st.DataObject) -> None:
    _refused_or_read(partial(nsys.read, with_samples=True), data.draw(mutilations(SEEDS["nsys-sqlite"])))
    _refused_or_read(rocprof_database.read, data.draw(mutilations(SEEDS["rocpd"])))
    _refused_or_read(rocprof_database.read, data.draw(mutilations(SEEDS["rpd"])))


def _refused_or_read(read: Callable[[BinaryIO, str], Timeline], damaged: bytes) -> None:
    try:
        timeline = read(io.BytesIO(damaged), "sample")
    except ProfileError as error:
        if not str(error).startswith("sample"):
            raise
        return
    assert list(timeline.work.columns) == list(WORK)
    assert (timeline.work["start"] <= timeline.work["end"]).all()


@pytest.mark.parametrize(("start", "end"), [(-(2**63) + 5, -(2**63) + 9), (2**62, 2**62 + 9), (5, 2**63 - 1)])
def test_an_nsys_export_with_times_that_no_run_has_is_refused(start: int, end: int) -> None:
    """From -2^63 ns to any positive time are more than the 64 bits of a difference; 2^62 ns are 146 years."""
    damaged = export(RUNTIME, NVTX).kernel(start=100, end=200).kernel(start=start, end=end).bytes()
    with pytest.raises(ProfileError, match="sample: the database contains times that no run has"):
        nsys.read(io.BytesIO(damaged), "sample")


@pytest.mark.parametrize(
    "value", ["1" * 4301, "1" * 100_000, "1e99999999999999999999", "[" * 100_000 + "]" * 100_000],
    ids=["4301 digits", "100000 digits", "exponent", "nesting"],
)  # fmt: skip
@pytest.mark.parametrize("key", ["ts", "args"])
def test_numbers_that_python_refuses_and_deep_nesting_are_refused(key: str, value: str) -> None:
    """Python's limit is 4300 digits (sys.int_info). The number stands at several places of the blocks that are read."""
    for blanks in (0, 30_000, 2**20 - 150):
        event = f'{{"ph": "X", "cat": "kernel", "name": "k", "dur": 1, "{key}": {" " * blanks}{value}}}'
        text = f'{{"schemaVersion": 1, "traceEvents": [{event}]}}'
        with pytest.raises(ProfileError, match="sample: the trace has invalid numbers or too deep nesting"):
            torch_trace.read(io.BytesIO(text.encode()), "sample")


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (r"a\ud800", "a\ufffd"), (r"\udc00b", "\ufffdb"), (r"\ud800\ud83d\ude00", "\ufffd\U0001f600"),
        (r"\\ud800", r"\ud800"), (r"\ud800\u001b[31m", "\ufffd\ufffd[31m"), (r"\uD83D\uDE00", "\U0001f600"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("size", [1, 7, 65_536])
def test_halves_of_surrogate_pairs_in_names_are_replaced(written: str, read: str, size: int) -> None:
    """RFC 8259, section 8.2: JSON may have them, and UTF-8 may not. The stream gives at most `size` bytes at once."""

    class Slow(io.BytesIO):
        def read(self, most: int | None = -1, /) -> bytes:
            return super().read(min(size, most) if most is not None and most >= 0 else size)

    event = f'{{"ph": "X", "cat": "kernel", "name": "{written}", "ts": 1, "dur": 1, "args": {{}}}}'
    timeline = torch_trace.read(Slow(f'{{"schemaVersion": 1, "traceEvents": [{event}]}}'.encode()), "sample")
    assert timeline.work["name"].tolist() == [read]


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


def test_device_properties_are_found_before_and_after_the_events() -> None:
    document = json.loads(EXAMPLE.read_text())
    properties = document.pop("deviceProperties")
    assert list(document) == ["schemaVersion", "traceEvents"]
    for ordered in ({"deviceProperties": properties, **document}, {**document, "deviceProperties": properties}):
        timeline = torch_trace.read(io.BytesIO(json.dumps(ordered).encode()), "sample")
        assert [each.name for each in timeline.evidence] == ["Tesla V100-SXM2-32GB"]


def test_a_truncated_gzip_file_is_refused_with_its_name(tmp_path: Path) -> None:
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(EXAMPLE.read_bytes())[:300])
    with pytest.raises(ProfileError, match="cannot be read"):
        reading.read([path])


def test_files_of_no_known_tool_are_skipped_with_a_warning(tmp_path: Path) -> None:
    foreign = tmp_path / "notes.csv"
    foreign.write_text("a,b\n1,2\n")
    (timeline,) = reading.read([foreign, EXAMPLE])
    assert any("notes.csv" in warning and "skipped" in warning for warning in timeline.warnings)
    with pytest.raises(ProfileError, match="not a profiler export"):
        reading.read([foreign])


def test_a_second_list_of_events_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text(EXAMPLE.read_text().rstrip().removesuffix("}") + ', "traceEvents": []}')
    with pytest.raises(ProfileError, match="'traceEvents' occurs more than once"):
        reading.read([path])


def test_a_name_that_contains_the_key_of_the_list_is_read(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text(EXAMPLE.read_text().replace('"forward_gemm"', '"\\"traceEvents\\""'))
    (timeline,) = reading.read([path])
    assert '"traceEvents"' in set(timeline.work["name"])


@pytest.mark.parametrize(
    ("thread", "others", "label"),
    [
        ("1", [], "inner"),  # a range of the launching thread
        ("2", [], "inner"),  # no range of its own: the range of the only other thread with an open one
        ("2", [("3", 500, 600)], "inner"),  # the range of a third thread is not open at that time
        ("2", [("3", 0, 600)], None),  # two other threads have open ranges
        ("1", [("3", 0, 600)], "inner"),
    ],
)
def test_whole_runs_and_lists_of_kernels_find_ranges_in_the_same_way(
    thread: str, others: list[tuple[str, int, int]], label: str | None
) -> None:
    ranges, work = ColumnTable(RANGES), KernelTable()
    for owner, start, end, name in [("1", 0, 400, "outer"), ("1", 100, 200, "inner")] + [
        (*other, "other") for other in others
    ]:
        ranges.add(process="p", thread=owner, start=start, end=end, name=name)
    work.add(process="p", launch_thread=thread, launch_start=150, start=300, end=310, name="k", kind="kernel")
    assert enclosing.innermost_names(work, ranges) == [label]


def commands_on(path: Path) -> tuple[str, str]:
    """What the lists of kernels and the analysis of a run say of a file: kernels and their time, or the error."""
    from roofmodel.profiles.reading import read as read_kernels

    results = []
    for count in (
        lambda: [(kernel.name, kernel.seconds) for kernel in read_kernels([path]).kernels],
        lambda: [
            (name, (end - start) / 1e9)
            for name, start, end in reading.read([path])[0].work[["name", "start", "end"]].itertuples(index=False)
        ],
    ):
        try:
            results.append(str(count()))
        except ProfileError as error:
            results.append(str(error))
    return results[0], results[1]


def test_a_byte_that_is_no_utf_8_is_read_by_all_commands(tmp_path: Path) -> None:
    """PyTorch copies names of Python functions as they are: here in Latin-1."""
    path = tmp_path / "trace.json"
    function = b'{"ph": "X", "cat": "python_function", "name": "module: \xe8", "pid": 1, "tid": 1, "ts": 1, "dur": 9}'
    kernel = b'{"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "tid": 7, "ts": 5, "dur": 3, "args": {}}'
    path.write_bytes(b'{"schemaVersion": 1, "traceEvents": [' + function + b", " + kernel + b"]}")
    assert commands_on(path) == ("[('gemm', 3e-06)]",) * 2


def test_a_trace_of_asynchronous_events_only_is_refused_by_all_commands(tmp_path: Path) -> None:
    """Triton Inference Server and others write such traces."""
    path = tmp_path / "trace.json"
    path.write_text('[{"cat": "resnet50", "name": "1", "id": "1", "ph": "b", "ts": 2432907408.618, "pid": 0}]')
    kernels, run = commands_on(path)
    assert "a Chrome trace of another tool; only PyTorch profiler traces are supported" in kernels
    assert kernels == run


@pytest.mark.parametrize("name", ["nsys/two_gpus_copying_h100.sqlite", "nsys/two_ranks_training_h100.sqlite"])
def test_the_gaps_between_kernels_and_copies_are_the_idle_time_of_the_ranks(name: str) -> None:
    file = measured(f"traces/{name}")
    profile = read_profiles([file])
    assert profile.copies
    idle = sum(gaps(profile.kernels, profile.copies).values())
    ranks = roofmodel.trace(file).to_dict()["ranks"]
    assert idle == pytest.approx(sum(rank["idle_seconds"] for rank in ranks), rel=1e-6)
