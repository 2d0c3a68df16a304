"""Read the text that Nsight Compute prints to the terminal, as far as it is unambiguous.

    [11] python3@127.0.0.1
      gemm(float *, int) (64, 2, 1)x(256, 1, 1), Context 1, Stream 7, Device 0, CC 8.0
        Section: Command line profiler metrics
        ----------------------- ----------- ------------
        Metric Name             Metric Unit Metric Value
        ----------------------- ----------- ------------
        dram__bytes.sum               Mbyte        12.58

Before 2022 the launch line had a date instead of grid and block (`gemm(float*, int), 2020-Apr-07 17:01:05, Context 1,
Stream 7`) and the table had no header. Only metrics printed by name are read, as `--metrics` and `--page raw` print
them. Labels of the details page are not read: several metrics share a label.
"""

from __future__ import annotations

import re
from typing import BinaryIO

from roofmodel.errors import ProfileError, shorten
from roofmodel.profiles.cell_values import LocaleNumbers
from roofmodel.profiles.ncu import metric_names
from roofmodel.profiles.ncu.launch_tables import LaunchTable
from roofmodel.profiles.ncu.layouts import LongReader
from roofmodel.profiles.streams import Lines

_COLUMNS = ["ID", "Process ID", "Process Name", "Kernel Name", "Grid Size", "Block Size", "Stream", "Device", "CC"]
_COLUMNS += ["Metric Name", "Metric Unit", "Metric Value"]
_EXTENT = r"\(\d+, \d+, \d+\)"
_LAUNCH = re.compile(
    rf"\s*(?P<name>\S.*?)(?: (?P<grid>{_EXTENT})x(?P<block>{_EXTENT})|, \d{{4}}-\w{{3}}-\d\d \d\d:\d\d:\d\d)"
    r", Context \d+, Stream (?P<stream>\d+)(?:, Device (?P<device>\d+))?(?:, CC (?P<cc>\d+\.\d+))?\s*"
)
# A launch line in any form, including forms that are not read:
PRINTED = re.compile(r"^ *\S.*(?:\)x\(\d+, \d+, \d+\)|, Context \d+, Stream \d+)", re.MULTILINE)
_PROCESS = re.compile(r"\[(\d+)\] (.+)@[^@]*\s*")
# Name, optional unit, value. The line end is required: without it the line may be truncated.
_METRIC = re.compile(r"\s{4,}(\w{1,99}__[\w.]{1,199})\s+(?:([A-Za-z%][\w/%]*)\s+)?((?:\(!\) )?\S+(?: \(.+\))?)\s*\n")


def parse(stream: BinaryIO, file: str) -> LaunchTable:
    """The launches in a printed text; an empty table if it names no metric.

    Raises ProfileError, with file and line, for a metric without a launch, and for the errors of `RowReader`.
    """
    stream.seek(0)
    with Lines(stream, file) as lines:
        reader = LongReader(_COLUMNS, True, lines, LocaleNumbers(file))
        process, number = ["", ""], -1
        launch: list[str] = []  # the identifying cells of the current launch
        for line in lines:
            if match := _PROCESS.fullmatch(line):
                process = [match[1], match[2]]
            elif match := _LAUNCH.fullmatch(line):
                number += 1
                identity = match.group("name", "grid", "block", "stream", "device", "cc")
                launch = [str(number), *process, *(text or "" for text in identity)]
            elif PRINTED.match(line) or re.match(r"  ?\S", line):
                launch = []  # a launch in another form: its metrics are not read
            elif match := _METRIC.fullmatch(line):
                name, unit, value = match[1], match[2] or "", match[3]
                if launch:
                    reader.row([*launch, name, unit, value])
                elif metric_names.is_read(name):
                    raise ProfileError(
                        f"{lines.where}: the metric {shorten(name)} has no launch above it; run ncu again with --csv"
                    )
        return reader.finish(0)
