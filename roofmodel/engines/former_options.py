"""What to write instead of the former options `--runtime` and `--launch`, which are options of engines now."""

from __future__ import annotations

from roofmodel.errors import Message, Option, WorkloadError
from roofmodel.options.values import seconds_of, seconds_text


def removed_option(name: str, value: object) -> WorkloadError:
    """The error for a former option, with what to write instead."""
    torch = Option("engine", "torch")
    if name == "launch":
        try:
            seconds_of(name, value, "8us", highest=1)
            text = seconds_text(value)
        except WorkloadError:
            text = "8us"
        new = Message(torch, " ", Option("engine_option", f"launch={text}"))
    else:
        new = {
            "eager": Message(torch),
            "autocast": Message(torch, " ", Option("engine_option", "autocast=bf16")),
            "megatron": Message(Option("engine", "megatron")),
        }.get(str(value)) or Message(
            Option("engine", "vllm"), " (the default) for the inference of a decoder, otherwise ", torch, " ",
            Option("engine_option", "launch=graph"),
        )  # fmt: skip
    return WorkloadError(Option(name), " was removed; write ", new)
