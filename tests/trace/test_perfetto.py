"""The file for Perfetto: the rules of the trace event format, and a round trip through the reader of PyTorch traces."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import roofmodel
from roofmodel.errors import OutputError
from tests.profiles.samples import measured
from tests.trace.runs import event, launched, written

EXAMPLE = Path(__file__).parents[2] / "examples" / "training_by_hand.json"
REAL = ("nsys/two_ranks_training_h100.sqlite", "torch/kineto_resnet50_v100_no_workers.json.gz",
        "torch/amd_trace_mi250_minitoy_train_ROCm6_2_kineto.json.gz")  # fmt: skip
# "Trace Event Format": the keys of each phase that a run uses, and their types
KEYS: dict[str, dict[str, type | tuple[type, ...]]] = {
    "X": {"name": str, "cat": str, "ts": Decimal, "dur": Decimal, "pid": int, "tid": int, "args": dict},
    "i": {"name": str, "cat": str, "ts": Decimal, "pid": int, "tid": int, "s": str, "args": dict},
    "M": {"name": str, "pid": int, "args": dict},
    "s": {"name": str, "cat": str, "id": int, "ts": Decimal, "pid": int, "tid": int},
    "f": {"name": str, "cat": str, "id": int, "ts": Decimal, "pid": int, "tid": int, "bp": str},
}
Document = dict[str, Any]


def exported(source: Path | str, folder: Path, name: str = "run.perfetto.json") -> Document:
    path = roofmodel.trace(source).save(folder / name)
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8") as file:
        document: Document = json.load(file, parse_float=Decimal)
    return document


def slices(document: Document) -> list[Document]:
    return [each for each in document["traceEvents"] if each["ph"] == "X"]


def names(document: Document, what: str) -> dict[tuple[int, int | None], str]:
    found = (each for each in document["traceEvents"] if each["ph"] == "M" and each["name"] == what)
    return {(each["pid"], each.get("tid")): each["args"]["name"] for each in found}


def check(document: Document) -> None:
    """The rules of the format for each event, for nesting, names and arrows.

    Perfetto binds the end of an arrow to the slice that is open when it reads the event, in the order of time and, at
    one time, of the file: the slice precedes it.
    """
    tracks = defaultdict(list)
    flows: dict[tuple[str, int], list[Document]] = defaultdict(list)
    open_slices: dict[tuple[int, int], Document] = {}
    times = [each["ts"] for each in document["traceEvents"] if "ts" in each]
    assert times == sorted(times)
    for each in document["traceEvents"]:
        keys = KEYS[each["ph"]]
        assert set(each) <= {"ph", "tid", *keys}
        assert all(isinstance(each[key], kind) for key, kind in keys.items()), each
        assert each["pid"] > 0
        if "ts" in each:
            assert each["ts"] >= 0
        if each["ph"] == "X":
            assert each["dur"] >= 0
            tracks[each["pid"], each["tid"]].append((each["ts"], -each["dur"]))
            open_slices[each["pid"], each["tid"]] = each
        elif each["ph"] == "i":
            assert each["s"] in "gpt"
        elif each["ph"] in "sf":
            flows[each["cat"], each["id"]].append(each)
            assert open_slices[each["pid"], each["tid"]]["ts"] == each["ts"]  # begun before, at this time
    for events in tracks.values():
        ends: list[Decimal] = []
        for start, negative in sorted(events):
            while ends and ends[-1] <= start:
                ends.pop()
            assert not ends or start - negative <= ends[-1], "events of one thread overlap but do not nest"
            ends.append(start - negative)
    starts = {(each["pid"], each["tid"], each["ts"]): each for each in slices(document)}
    for (category, _), (first, last) in flows.items():
        assert (first["ph"], last["ph"], last["bp"]) == ("s", "f", "e")
        call, work = (starts[end["pid"], end["tid"], end["ts"]] for end in (first, last))  # both begin events
        if category == "peer":
            assert {call["cat"], work["cat"]} == {"gpu_memcpy", "peer_copy"}
            assert call["args"]["bytes"] == work["args"]["bytes"]
            continue
        assert call["cat"] in ("cuda_runtime", "cpu_op")
        assert call["args"]["correlation"] == work["args"]["correlation"]
        assert work["cat"] in ("kernel", "gpu_memcpy", "gpu_memset")
    threads = names(document, "thread_name")
    assert set(tracks) <= set(threads)
    assert {pid for pid, _ in tracks} <= {pid for pid, _ in names(document, "process_name")}
    assert len({tid for _, tid in threads}) == len(threads)


@pytest.mark.parametrize("source", REAL)
def test_the_file_follows_the_trace_event_format(source: str, tmp_path: Path) -> None:
    check(exported(measured(f"traces/{source}"), tmp_path))


def test_ranks_streams_copies_threads_steps_and_idle_time_have_named_tracks(tmp_path: Path) -> None:
    document = exported(EXAMPLE, tmp_path)
    check(document)
    threads, processes = names(document, "thread_name"), names(document, "process_name")
    shown = {(processes[pid, None], label) for (pid, _), label in threads.items()}
    rank, cpu = "rank 0: GPU 0, process 100", "CPU, process 100"
    assert shown == {
        (rank, "findings"), (rank, "steps"), (rank, "idle, by cause"), (rank, "stream 7"), (rank, "stream 20"),
        (rank, "copies host to GPU"), (cpu, "thread 100"),
    }  # fmt: skip
    idle = [each for each in slices(document) if each["cat"] == "idle"]
    # 12 ms in the data loader, as the report says
    assert sum(each["dur"] for each in idle if each["args"]["cause"] == "input") == 12_000
    assert "the input pipeline limits the run" in document["otherData"]["findings"][0]
    (marker,) = (each for each in document["traceEvents"] if each["ph"] == "i")
    assert marker["name"].startswith("1. the input pipeline limits the run")
    assert marker["args"]["finding"] == document["otherData"]["findings"][0]
    (longest,) = (each for each in idle if (each["ts"], each["args"]["cause"]) == (marker["ts"], "input"))
    assert longest["dur"] == 4000  # the first of three gaps of 4 ms
    copies = [each for each in slices(document) if each["cat"] == "gpu_memcpy"]
    assert [each["args"]["bytes"] for each in copies] == [5_000_000] * 4
    assert sum(each["ph"] == "s" for each in document["traceEvents"]) == 20  # 16 kernels and 4 copies


@pytest.mark.parametrize("source", REAL)
def test_the_reader_of_pytorch_traces_reads_the_same_run(source: str, tmp_path: Path) -> None:
    before = roofmodel.trace(measured(f"traces/{source}"))
    after = roofmodel.trace(before.save(tmp_path / "run.perfetto.json.gz"))
    ranks = zip(before.to_dict()["ranks"], after.to_dict()["ranks"], strict=True)
    for one, other in ranks:
        for key in ("process", "device", "kernels", "kernel_seconds", "busy_seconds", "span_seconds",
                    "communication_seconds", "communication_overlap", "idle_seconds", "idle_by_cause",
                    "launch_to_start_median_seconds"):  # fmt: skip
            assert one[key] == other[key], key
        assert [copy["bytes"] for copy in one["copies"]] == [copy["bytes"] for copy in other["copies"]]


def test_a_table_of_kernels_without_launches_has_no_arrows(tmp_path: Path) -> None:
    path = roofmodel.trace(measured("traces/nvprof/nvprof_gputrace_tegraX1.csv")).save(tmp_path / "run.perfetto.json")
    assert not {"s", "f"} & {each["ph"] for each in json.loads(path.read_text(encoding="utf-8"))["traceEvents"]}


def test_overlapping_events_get_separate_threads(tmp_path: Path) -> None:
    source = written(
        tmp_path,
        launched("a", 100, 200, 50),
        launched("b", 150, 250, 60),  # concurrent with a, in the same stream
        event("user_annotation", "first", 40, 80),
        event("user_annotation", "crossing", 70, 90),  # begins in the range before, and ends after it
        event("user_annotation", "inside", 71, 75),
    )
    document = exported(source, tmp_path)
    check(document)
    labels = sorted(names(document, "thread_name").values())
    assert labels == ["stream 7", "stream 7, concurrent (2)", "thread 42", "thread 42, concurrent (2)"]


def test_copies_between_gpus_are_arrows_from_the_source_to_the_destination(tmp_path: Path) -> None:
    """A copy each way, both recorded on GPU 0."""
    copies = [
        launched(
            "Memcpy PtoP", start, start + 100, start - 9, category="gpu_memcpy", bytes=size, fromDevice=source,
            toDevice=1 - source,
        )
        for source, start, size in ((0, 300, 64), (1, 500, 128))
    ]  # fmt: skip
    kernels = [launched("k", 100, 200, 50 + device, device=device) for device in (0, 1)]
    document = exported(written(tmp_path, *kernels, *copies), tmp_path)
    check(document)
    processes = names(document, "process_name")
    peers = [each for each in document["traceEvents"] if each.get("cat") == "peer"]
    arrows = {
        each["id"]: tuple(processes[end["pid"], None][:6] for end in peers if end["id"] == each["id"])
        for each in peers
    }  # fmt: skip
    assert [*arrows.values()] == [("rank 0", "rank 1"), ("rank 1", "rank 0")]
    ranks = roofmodel.trace(tmp_path / "run.perfetto.json").to_dict()["ranks"]
    assert [sum(copy["count"] for copy in rank["copies"]) for rank in ranks] == [2, 0]  # read again, each copy is one


def test_times_are_exact_after_a_year(tmp_path: Path) -> None:
    late = 31_536_000_000_000  # us
    source = written(tmp_path, launched("early", 100, 200, 50), launched("late", late + 0.125, late + 0.25, late))
    kernel = next(each for each in slices(exported(source, tmp_path)) if each["name"] == "late")
    assert kernel["ts"] == Decimal(late) - 50 + Decimal("0.125")


def test_hostile_names_stay_text(tmp_path: Path) -> None:
    name = '"},{"ph":"X</script>\\'
    document = exported(written(tmp_path, launched(name, 100, 200, 50)), tmp_path)
    assert name in [each["name"] for each in slices(document)]


def test_json_stays_the_report_and_other_endings_are_refused(tmp_path: Path) -> None:
    report = roofmodel.trace(EXAMPLE)
    for name in ("run.json", "perfetto.json", "my.perfetto.v2.json"):
        assert json.loads(report.save(tmp_path / name).read_text())["schema"] == "roofmodel.trace/1"
    for name in ("run.json.gz", "run.gz", "run.perfetto"):
        with pytest.raises(OutputError, match=r"unknown suffix.*\.perfetto\.json"):
            report.save(tmp_path / name)
    assert json.loads(gzip.decompress(report.save(tmp_path / "RUN.Perfetto.JSON.gz").read_bytes()))["traceEvents"]
