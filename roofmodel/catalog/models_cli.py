"""`roof models`: the packaged models, the families, and the architecture of one model."""

from __future__ import annotations

from roofmodel.catalog.api import list_families, list_models, show_model
from roofmodel.report.command import command, command_group

app = command_group(
    "List the packaged models and the supported families, and show the architecture of a model.",
    examples=("roof models list", "roof models list llama", "roof models families", "roof models show gpt2-xl"),
)
for _name, _function in (("list", list_models), ("families", list_families), ("show", show_model)):
    command(
        _function, group=app, name=_name, formats=("table", "json"), settings={"containing": {"metavar": "text"}}
    )  # fmt: skip
