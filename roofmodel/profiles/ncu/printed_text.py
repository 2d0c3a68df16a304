"""Read the text that Nsight Compute prints to the terminal, as far as it is unambiguous.

    [11] python3@127.0.0.1
      gemm(float *, int) (64, 2, 1)x(256, 1, 1), Context 1, Stream 7, Device 0, CC 8.0
        Section: Command line profiler metrics
        ----------------------- ----------- ------------
        Metric Name             Metric Unit Metric Value
        ----------------------- ----------- ------------
        dram__bytes.sum               Mbyte        12.58

Before 2022 the launch line had a date instead of grid and block (`gemm(float*, int), 2020-Apr-07 17:01:05, Context 1,
Stream 7`) and the table had no header. Metrics have names in the output of `--metrics` and `--page raw`, and labels in
that of the details page; labels are read as in its CSV (`metric_names.canonical`).
"""

from __future__ import annotations

import re
from typing import BinaryIO, NamedTuple

from roofmodel.errors import ProfileError, shorten
from roofmodel.profiles.cell_values import LocaleNumbers, parse_unit
from roofmodel.profiles.ncu import metric_names
from roofmodel.profiles.ncu.launch_tables import LaunchTable
from roofmodel.profiles.ncu.layouts import LongReader
from roofmodel.profiles.signatures import NCU_LAUNCH
from roofmodel.profiles.streams import Lines

_COLUMNS = ["ID", "Process ID", "Process Name", "Kernel Name", "Grid Size", "Block Size", "Stream", "Device", "CC"]
_COLUMNS += ["Section Name", "Metric Name", "Metric Unit"]
_EXTENT = r"\(\d+, \d+, \d+\)"
_LAUNCH = re.compile(
    rf"\s*(?P<name>\S.*?)(?: (?P<grid>{_EXTENT})x(?P<block>{_EXTENT})|, \d{{4}}-\w{{3}}-\d\d \d\d:\d\d:\d\d)"
    r"(?:, Context \d+, Stream (?P<stream>\d+))?(?:, Device (?P<device>\d+))?(?:, CC (?P<cc>\d+\.\d+))?"
    r"(?:, Invocations (?P<invocations>\d+))?\s*"
)
_PROCESS = re.compile(r"\[(\d+)\] (.+)@[^@]*\s*")
_SECTION = re.compile(r"\s{4,}Section: (.{1,99}?)\s*\n")
# Name, optional unit, value. The line end is required: without it the line may be truncated.
_VALUE = r"((?:\(!\) )?\S+(?: \(.+\))?)\s*\n"
_METRIC = re.compile(rf"\s{{4,}}(\w{{1,99}}__[\w.]{{1,199}})\s+(?:([A-Za-z%][\w/%]*)\s+)?{_VALUE}")
# The line above and below the rows has the widths of label and unit. A summary has minimum, maximum and average.
_TABLE_RULE = re.compile(r" {4}(-{2,200}) (-{2,99}) -{2,99}( -{2,99} -{2,99})?\s*\n")
_RULE = re.compile(r" {4}(OPT|INF|WRN) {3}(?:Est\.( Local)? Speedup: ([\d.]+%)|(\S.*?))\s*\n")
_RULE_TEXT = re.compile(r" {9,}(\S.{0,400}?)\s*\n")


class _Rule(NamedTuple):
    """A rule of the tool, of which the lines are read."""

    kind: str
    speedup: str
    scope: str
    text: list[str]


def _new_rule(match: re.Match[str]) -> _Rule:
    kind, local, speedup, text = match.groups()
    return _Rule(kind, speedup or "", "local" if local else "global", [text] if text else [])


def parse(stream: BinaryIO, file: str) -> list[LaunchTable]:
    """The launches in a printed text, and those of a summary (`--print-summary per-kernel`); none without a metric.

    Raises ProfileError, with file and line, for a metric without a launch, and for the errors of `RowReader`.
    """
    stream.seek(0)
    with Lines(stream, file) as lines:
        numbers = LocaleNumbers(file)
        each_launch = LongReader([*_COLUMNS, "Metric Value"], True, lines, numbers)
        summary = LongReader([*_COLUMNS, "Average", "Invocations"], True, lines, numbers)
        process, number = ["", ""], -1
        launch: list[str] = []  # the identifying cells of the current launch
        section = invocations = ""
        label: re.Pattern[str] | None = None  # label, unit and value of a row of the current table
        rule: _Rule | None = None

        def add_rule(rule: _Rule, launch: list[str]) -> None:
            each_launch.launch(launch)
            each_launch.add_rule(rule.kind, " ".join(rule.text), rule.speedup, rule.scope)

        for line in lines:
            if rule and (match := _RULE_TEXT.fullmatch(line)):
                rule.text.append(match[1])
                continue
            if rule and launch and not invocations:
                add_rule(rule, launch)
            rule = None
            if match := _RULE.fullmatch(line):
                rule = _new_rule(match)
            elif match := _PROCESS.fullmatch(line):
                process = [match[1], match[2]]
            elif match := _LAUNCH.fullmatch(line):
                number += 1
                identity = match.group("name", "grid", "block", "stream", "device", "cc")
                launch = [str(number), *process, *(text or "" for text in identity)]
                section, invocations, label = "", match["invocations"] or "", None
            elif NCU_LAUNCH.match(line) or re.match(r"  ?\S", line):
                launch = []  # a launch in another form: its metrics are not read
            elif match := _SECTION.fullmatch(line):
                section = match[1]
            elif match := _TABLE_RULE.fullmatch(line):
                mean = r"\S+\s+\S+\s+" if match[3] else ""
                label = re.compile(rf"    (.{{{len(match[1])}}}) (.{{{len(match[2])}}})\s+{mean}{_VALUE}")
            elif not invocations and (match := _METRIC.fullmatch(line)):
                name, unit, value = match[1], match[2] or "", match[3]
                if launch:
                    each_launch.row([*launch, section, name, unit, value])
                elif metric_names.is_read(name):
                    raise ProfileError(
                        f"{lines.where}: the metric {shorten(name)} has no launch above it; run ncu again with --csv"
                    )
            elif launch and label and (match := label.fullmatch(line)):
                name, unit, value = match[1].strip(), match[2].strip(), match[3]
                if _is_read(name, unit, section) and invocations:
                    summary.row([*launch, section, name, unit, value, invocations])
                elif _is_read(name, unit, section):
                    each_launch.row([*launch, section, name, unit, value])
        if rule and launch and not invocations:
            add_rule(rule, launch)
        tables = [reader.finish(number) for number, reader in enumerate((each_launch, summary))]
        return [table for table in tables if len(table.launches)]


def _is_read(label: str, unit: str, section: str) -> bool:
    measured = parse_unit(unit)
    return metric_names.is_read(metric_names.canonical(label, measured[1] if measured else unit, section, ""))
