"""Copies between GPUs: what the files of each tool state of them, and the matrices of `roof trace`.

No file at hand has such copies. The copies within a GPU of a real export of Nsight Systems are rewritten as CUPTI
records copies between GPUs (CUpti_ActivityMemcpyPtoP4: source and destination device). nvprof's text is laid out as
for NVIDIA's sample simpleP2P on two P100s; PyTorch's arguments are those of Kineto's CuptiActivity.cpp.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.figure import Figure

import roofmodel
from roofmodel.trace import picture
from roofmodel.trace.transfers import PeerCopies, PeerMatrix
from tests.printing import printed
from tests.profiles.samples import measured
from tests.trace.runs import Event, launched, written

EXPORT = "traces/nsys/two_gpus_copying_h100.sqlite"
CSV = """==7== Profiling result:
"Start","Duration","Grid X","Grid Y","Grid Z","Block X","Block Y","Block Z","Registers Per Thread","Static SMem",\
"Dynamic SMem","Size","Throughput","SrcMemType","DstMemType","Device","Context","Stream","Src Dev","Src Ctx","Dst Dev",\
"Dst Ctx","Name"
s,ms,,,,,,,,KB,B,MB,GB/s,,,,,,,,,,
1.0,1.0,64,1,1,256,1,1,16,0.0,0,,,,,"Tesla V100-SXM2-16GB (0)","1","7",,,,,"gemm"
1.1,8.0,,,,,,,,,,64.0,7.8125,"Device","Device","Tesla V100-SXM2-16GB (0)","1","7",\
"Tesla V100-SXM2-16GB (0)","1","Tesla V100-SXM2-16GB (1)","2","[CUDA memcpy PtoP]"
1.2,4.0,,,,,,,,,,64.0,15.625,"Device","Device","Tesla V100-SXM2-16GB (1)","2","14",\
"Tesla V100-SXM2-16GB (1)","2","Tesla V100-SXM2-16GB (0)","1","[CUDA memcpy PtoP]"
1.3,1.0,,,,,,,,,,8.0,7.8125,"Device","Device","Tesla V100-SXM2-16GB (1)","2","14",,,,,"[CUDA memcpy DtoD]"
"""
TEXT = """==7== Profiling result:
   Start  Duration            Grid Size      Block Size     Regs*    SSMem*    DSMem*      Size  Throughput  SrcMemType  DstMemType           Device   Context    Stream          Src Dev   Src Ctx          Dst Dev   Dst Ctx  Name
645.00ms  8.0000ms                    -               -         -         -         -  64.000MB  7.8125GB/s      Device      Device  Tesla P100-PCIE         1        11  Tesla P100-PCIE         1  Tesla P100-PCIE         2  [CUDA memcpy PtoP]
655.00ms  4.0000ms                    -               -         -         -         -  64.000MB  15.625GB/s      Device      Device  Tesla P100-PCIE         2        18  Tesla P100-PCIE         2  Tesla P100-PCIE         1  [CUDA memcpy PtoP]
665.00ms  1.0000ms           (65536 1 1)       (512 1 1)         8        0B        0B           -           -           -           -  Tesla P100-PCIE         1        11                -         -                -         -  SimpleKernel(float*, float*) [154]
"""  # noqa: E501
ONE_EACH_WAY = [(64 * 2**20, 8e-3), (64 * 2**20, 4e-3)]  # bytes and seconds, from the first GPU and from the second


def records(*files: str | Path, **options: Any) -> list[dict[str, Any]]:
    return roofmodel.trace(*files, **options).to_dict()["peer_copies"]  # type: ignore[no-any-return]


def by_pair(rows: list[dict[str, Any]]) -> dict[tuple[str, str], tuple[int, int, float]]:
    return {
        (row["source_device"], row["destination_device"]): (row["count"], row["bytes"], pytest.approx(row["seconds"]))
        for row in rows
    }


def peer(source: Any, destination: Any, start: float, end: float, size: int, name: str = "Memcpy PtoP") -> list[Event]:
    """A copy as Kineto writes it: with the two devices, and without the key `device`."""
    copy, call = launched(
        f"{name} (Device -> Device)", start, end, start - 3, device=source or 0, category="gpu_memcpy", bytes=size,
        fromDevice=source, inDevice=source, toDevice=destination,
    )  # fmt: skip
    del copy["args"]["device"]
    return [copy, call]


def test_the_matrix_of_a_real_export_equals_that_of_an_sql_query(tmp_path: Path) -> None:
    assert records(measured(EXPORT)) == []  # 450 copies within a GPU, none between them
    path = tmp_path / "peers.sqlite"
    path.write_bytes(measured(EXPORT).read_bytes())
    with sqlite3.connect(path) as database:
        database.execute(
            "UPDATE CUPTI_ACTIVITY_KIND_MEMCPY SET copyKind = 10, srcDeviceId = deviceId, dstDeviceId = 1 - deviceId "
            "WHERE copyKind = 8"
        )
        query = (
            "SELECT srcDeviceId, dstDeviceId, count(*), sum(bytes), sum(end - start) FROM CUPTI_ACTIVITY_KIND_MEMCPY "
            "WHERE copyKind = 10 GROUP BY 1, 2"
        )
        sums = {(str(row[0]), str(row[1])): (row[2], row[3], row[4] / 1e9) for row in database.execute(query)}
    database.close()
    assert {*sums} == {("0", "1"), ("1", "0")}
    assert by_pair(records(path)) == sums


def test_a_copy_within_a_gpu_by_its_kind_is_one_between_gpus_by_its_devices(tmp_path: Path) -> None:
    named = peer(0, 1, 100, 200, 4096, name="Memcpy DtoD")
    (row,) = records(written(tmp_path, named))
    assert (row["source_device"], row["destination_device"], row["bytes"]) == ("0", "1", 4096)


@pytest.mark.parametrize(
    ("text", "first", "second"), [(CSV, "0", "1"), (TEXT, "context 1", "context 2")], ids=["csv", "text"]
)
def test_prints_of_nvprof_state_both_devices(text: str, first: str, second: str, tmp_path: Path) -> None:
    """Text cuts the names of devices, and with them their numbers: the context is left."""
    path = tmp_path / "trace.txt"
    path.write_text(text)
    pairs = [(first, second), (second, first)]
    expected = {pair: (1, *values) for pair, values in zip(pairs, ONE_EACH_WAY, strict=True)}
    assert by_pair(records(path)) == expected


def test_a_database_of_nvprof_has_a_table_of_copies_between_gpus(tmp_path: Path) -> None:
    path = tmp_path / "run.nvprof"
    with sqlite3.connect(path) as database:
        database.executescript(
            """
            CREATE TABLE StringTable (_id_ INTEGER PRIMARY KEY AUTOINCREMENT, value TEXT);
            CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY2 (_id_ INTEGER PRIMARY KEY, copyKind INT, srcKind INT, dstKind INT,
                flags INT, bytes INT, start INT, end INT, deviceId INT, contextId INT, streamId INT, srcDeviceId INT,
                srcContextId INT, dstDeviceId INT, dstContextId INT, correlationId INT);
            INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY2 VALUES
                (1, 10, 3, 3, 0, 67108864, 1000000, 9000000, 0, 1, 7, 0, 1, 1, 2, 4),
                (2, 10, 3, 3, 0, 67108864, 10000000, 14000000, 1, 2, 7, 1, 2, 0, 1, 5);
            """
        )
    database.close()
    assert by_pair(records(path)) == {("0", "1"): (1, *ONE_EACH_WAY[0]), ("1", "0"): (1, *ONE_EACH_WAY[1])}


DEVICES = st.one_of(st.integers(0, 3), st.none())
COPIES = st.lists(st.tuples(DEVICES, DEVICES, st.integers(1, 10**9), st.integers(1, 1000)), max_size=12)


@settings(max_examples=25)
@given(copies=COPIES)
def test_the_matrix_sums_to_the_copies_of_the_kind_ptop(
    copies: list[tuple[int | None, int | None, int, int]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Also where a file does not state the devices, which are null then."""
    events = [
        peer(source, destination, 2000.0 * place + 10, 2000.0 * place + 10 + length, size)
        for place, (source, destination, size, length) in enumerate(copies)
    ]
    document = roofmodel.trace(written(tmp_path_factory.mktemp("run"), launched("k", 5, 6, 1), *events)).to_dict()
    totals, sums = Counter[str](), Counter[str]()
    for row in document["peer_copies"]:
        totals.update({key: row[key] for key in ("count", "bytes")})
    for rank in document["ranks"]:
        for row in rank["copies"]:
            if row["kind"] == "PtoP":
                sums.update({key: row[key] for key in ("count", "bytes")})
    assert totals == sums
    assert sums["bytes"] == sum(size for _, _, size, _ in copies)
    pairs = [(row["source_device"], row["destination_device"]) for row in document["peer_copies"]]
    assert len(set(pairs)) == len(pairs)
    seconds = sum(row["seconds"] for row in document["peer_copies"])
    assert seconds == pytest.approx(sum(length for *_, length in copies) / 1e6)


def test_each_run_has_its_matrix(tmp_path: Path) -> None:
    old = written(tmp_path, peer(0, 1, 100, 1100, 1000), name="old.json")
    new = written(tmp_path, peer(0, 1, 100, 1100, 1000), peer(1, 0, 100, 600, 500), name="new.json")
    rows = records(old, new)
    assert [(row["run"], row["source_device"], row["bytes"]) for row in rows] == [
        ("before", "0", 1000), ("after", "0", 1000), ("after", "1", 500),
    ]  # fmt: skip
    text = printed(roofmodel.trace(old, new))
    assert "copies between GPUs, before: kB from each GPU (row) to each other (column)" in text
    assert "copies between GPUs, after: kB from each GPU (row) to each other (column)" in text


def test_devices_are_in_numeric_order_and_bytes_have_one_unit(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        peer(10, 2, 100, 200, 4_000_000),
        peer(2, 10, 100, 200, 1_500_000_000),
        peer(0, 2, 100, 200, 2 * 10**9),
    )
    lines = printed(roofmodel.trace(path)).splitlines()
    heading = lines.index("copies between GPUs: GB from each GPU (row) to each other (column)")
    table = [line.split() for line in lines[heading + 1 : heading + 5]]
    assert table == [["from", "2", "10"], ["0", "2", "·"], ["2", "·", "1.5"], ["10", "0.004", "·"]]


def test_the_picture_and_the_page_have_the_matrix_only_with_copies_between_gpus(tmp_path: Path) -> None:
    kernel = launched("k", 5, 6, 1)
    files = {
        True: written(tmp_path, kernel, peer(0, 1, 100, 1100, 2_000_000_000), name="with.json"),
        False: written(tmp_path, kernel, name="without.json"),
    }
    for has_peers, file in files.items():
        report = roofmodel.trace(file)
        picture = report.save(tmp_path / "trace.svg").read_text(encoding="utf-8")
        texts = ("copies between GPUs", "from 0", "to 1", "2 GB", "2 TB/s")
        assert [text in picture for text in texts] == [has_peers] * len(texts)
        page = report.save(tmp_path / "trace.html").read_text(encoding="utf-8")
        assert ("from each GPU (row) to each other (column)" in page) == has_peers
        assert ("copies between GPUs" in printed(report)) == has_peers


def test_the_slower_of_two_copies_of_equal_size_has_the_paler_cell() -> None:
    slow, fast = (PeerCopies(None, "0", "1", 1, 10**9, seconds) for seconds in (4, 1))
    axes = Figure().add_subplot()
    picture._draw_matrix(axes, PeerMatrix(None, ["0", "1"], {("0", "1"): slow, ("1", "0"): fast}), 1e9)
    (image,) = axes.images
    shades = image.to_rgba(np.asarray(image.get_array())).sum(axis=2)  # of 0.25 GB/s and 1 GB/s
    assert shades[0, 1] > shades[1, 0]
