"""`roof hw`: the known devices, and the validation of a device's YAML file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from roofmodel.catalog.api import check_hardware, list_hardware, show_hardware
from roofmodel.report.command import CommandCall, command, command_group
from roofmodel.report.printing import print_text, remark


def _check(call: CommandCall, form: Any, output: Sequence[str]) -> None:
    report = call()
    remark(report)
    print_text(str(report))


app = command_group(
    "List and show the packaged devices, and check a device's YAML file.",
    examples=("roof hw list", "roof hw list h100", "roof hw show a100", "roof hw check own.yaml"),
)
command(
    list_hardware, group=app, name="list", formats=("table", "json"), settings={"containing": {"metavar": "text"}}
)  # fmt: skip
command(
    show_hardware, group=app, name="show", formats=("table", "json"), files=".yaml .json",
    settings={"profile": {"flags": ("--from",), "metavar": "FILE"}},
)  # fmt: skip
command(check_hardware, group=app, name="check", run=_check)
