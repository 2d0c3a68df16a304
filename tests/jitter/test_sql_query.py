"""The SQL of the how-to, on a real export of Nsight Systems, against the reader."""

import re
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from roofmodel.profiles.timelines import enclosing, reading
from roofmodel.profiles.timelines.timeline import KERNEL, UNKNOWN
from tests.profiles.samples import measured

PAGE = Path(__file__).parents[2] / "docs" / "howto" / "jitter.md"


def test_the_query_joins_kernels_launches_and_ranges_as_the_reader_does(tmp_path: Path) -> None:
    index, query = re.search(r"```sql\n(.+?;)\n\n(.+?;)\n```", PAGE.read_text(encoding="utf-8"), re.DOTALL).groups()
    file = tmp_path / "run.sqlite"
    shutil.copy(measured("traces/nsys/two_ranks_training_h100.sqlite"), file)
    with closing(sqlite3.connect(file)) as database:
        database.execute(index)
        rows = database.execute(query).fetchall()
    timeline = reading.read_file(str(file))
    work = timeline.work[timeline.work["kind"] == KERNEL].astype({"device": str})
    work = work.sort_values(["device", "start"], kind="stable")
    columns = list(zip(*rows, strict=True))
    assert len(rows) == len(work) == 4010
    assert list(map(str, columns[0])) == work["device"].tolist()
    assert list(columns[2]) == work["name"].tolist()
    assert np.array_equal(np.diff(columns[6]), np.diff(work["start"]))  # the reader may have another origin
    delays = (work["start"] - work["launch_start"]).where(work["launch_start"] != UNKNOWN)
    assert [np.nan if delay is None else delay for delay in columns[9]] == pytest.approx(delays.tolist(), nan_ok=True)
    ranges = enclosing.innermost_names(timeline.work_table.select(work.index.tolist()), timeline.range_table)
    assert [name or None for name in ranges] == list(columns[4])
