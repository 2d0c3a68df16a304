"""What Nsight Compute prints for people, as far as it reads one way only -> launches.

    [11] python3@127.0.0.1
      gemm(float *, int) (64, 2, 1)x(256, 1, 1), Context 1, Stream 7, Device 0, CC 8.0
        Section: Command line profiler metrics
        ----------------------- ----------- ------------
        Metric Name             Metric Unit Metric Value
        ----------------------- ----------- ------------
        dram__bytes.sum               Mbyte        12.58

Before 2022 a launch had a date in place of its extents (`gemm(float*, int), 2020-Apr-07 17:01:05, Context 1, Stream
7`) and the table no header. Metrics are read where they have their names, as `--metrics` and `--page raw` print them.
The labels of the details page are not: the same label is of several metrics, and no column tells them apart.
"""

from __future__ import annotations

import re
from typing import BinaryIO

from roofmodel.errors import ProfileError, shorten
from roofmodel.profiles.cell_values import Numbers
from roofmodel.profiles.ncu import metric_names
from roofmodel.profiles.ncu.launch_tables import Table
from roofmodel.profiles.ncu.layouts import Long
from roofmodel.profiles.streams import Lines

_COLUMNS = ["ID", "Process ID", "Process Name", "Kernel Name", "Grid Size", "Block Size", "Stream", "Device", "CC"]
_COLUMNS += ["Metric Name", "Metric Unit", "Metric Value"]
_EXTENT = r"\(\d+, \d+, \d+\)"
_LAUNCH = re.compile(
    rf"\s*(?P<name>\S.*?)(?: (?P<grid>{_EXTENT})x(?P<block>{_EXTENT})|, \d{{4}}-\w{{3}}-\d\d \d\d:\d\d:\d\d)"
    r", Context \d+, Stream (?P<stream>\d+)(?:, Device (?P<device>\d+))?(?:, CC (?P<cc>\d+\.\d+))?\s*"
)
# A launch in any form, also one that is not read:
PRINTED = re.compile(r"^ *\S.*(?:\)x\(\d+, \d+, \d+\)|, Context \d+, Stream \d+)", re.MULTILINE)
_PROCESS = re.compile(r"\[(\d+)\] (.+)@[^@]*\s*")
# Name, unit (which some lack) and value; a line without its end is cut.
_METRIC = re.compile(r"\s{4,}(\w{1,99}__[\w.]{1,199})\s+(?:([A-Za-z%][\w/%]*)\s+)?((?:\(!\) )?\S+(?: \(.+\))?)\s*\n")


def parse(stream: BinaryIO, file: str) -> Table:
    """The launches of a print; none where it names no metric.

    Raises ProfileError, with file and line, for metrics that follow no launch, and as tables do.
    """
    stream.seek(0)
    with Lines(stream, file) as lines:
        reader = Long(_COLUMNS, True, lines, Numbers(file))
        process, number = ["", ""], -1
        launch: list[str] = []  # the cells that tell the open one
        for line in lines:
            if match := _PROCESS.fullmatch(line):
                process = [match[1], match[2]]
            elif match := _LAUNCH.fullmatch(line):
                number += 1
                told = match.group("name", "grid", "block", "stream", "device", "cc")
                launch = [str(number), *process, *(text or "" for text in told)]
            elif PRINTED.match(line) or re.match(r"  ?\S", line):
                launch = []  # of a launch in another form: what is below it belongs to no other
            elif match := _METRIC.fullmatch(line):
                name, unit, value = match[1], match[2] or "", match[3]
                if launch:
                    reader.row([*launch, name, unit, value])
                elif metric_names.wanted(name):
                    raise ProfileError(
                        f"{lines.where}: {shorten(name)} stands below no launch; run ncu again with --csv"
                    )
        return reader.finish(0)
