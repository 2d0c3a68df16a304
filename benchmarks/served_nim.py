"""Errors of `roof estimate --phase serve --concurrency --engine trtllm@0.9` on NIM's serving benchmarks of Llama 3:
`python -m benchmarks.served_nim TABLE`, in a minute.

The table is `served_nim.csv.gz` (cfregly/ai-performance-engineering@ca35059): TensorRT-LLM of 2024 on A100s, clients of
equal lengths in a closed loop. They stay together, so that the client's TTFT is that of the first requests. No row was
used for a fit. `--into docs/accuracy.md` updates the page.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import NamedTuple

from benchmarks import pages
from benchmarks.errors import RelativeErrors, by_name
from benchmarks.served_rows import BUDGET, cells
from roofmodel.devices.device import Device
from roofmodel.engines.engine import Engine
from roofmodel.models.architecture import Architecture
from roofmodel.models.hub import load
from roofmodel.options.serving import ServeRequest
from roofmodel.serve.service import service

MODELS = {"meta-llama3-8b-instruct": "llama-3.1-8b", "meta-llama3-70b-instruct": "llama-3.1-70b"}
"""The models of the table, and packaged ones of the same shapes."""


class NimErrors(NamedTuple):
    """The relative errors of a row's TTFT and of the mean gap between tokens."""

    model: str
    gpus: int
    prompt: int
    ttft: RelativeErrors
    gap: RelativeErrors


def errors(table: Path, engine: Engine) -> list[NimErrors]:
    """The errors of the rows whose requests do not wait longer than they decode."""
    found, device = list[NimErrors](), Device.load("a100")
    with gzip.open(table, "rt", newline="") as file:
        rows = [*csv.DictReader(file)]
    for row in rows:
        ttft, gap = float(row["ttft_ms"]) / 1e3, float(row["itl_ms"]) / 1e3
        isl, osl = (round(float(row[name])) for name in ("isl_measured", "osl_measured"))
        if ttft > (osl - 1) * gap:
            continue
        model, gpus = MODELS[row["model"]], int(row["tp"])
        estimated = service(
            _loaded(model), device, ServeRequest(isl, osl, concurrency=int(row["concurrency"])),
            {"engine": engine, "tp": gpus, "dtype": row["precision"], "token_budget": BUDGET},
        )  # fmt: skip
        expected, low, high = estimated.expected, estimated.low, estimated.high
        assert expected
        assert low
        assert high
        first = RelativeErrors(0.0, estimated.loop.first_ttft / ttft - 1, low.ttft <= ttft <= high.ttft)
        each = RelativeErrors(estimated.bound.tpot / gap - 1, expected.tpot / gap - 1, low.tpot <= gap <= high.tpot)
        found.append(NimErrors(model, gpus, int(row["isl"]), first, each))
    return found


@cache
def _loaded(name: str) -> Architecture:
    return load(name)


def table_by(some: list[NimErrors], title: str, label: Callable[[NimErrors], str]) -> str:
    """Markdown: one line for each label."""
    lines = [
        f"| NIM: {title} | rows | gap: median error | mean error | bias | within the interval "
        "| first TTFT: median error |",
        "|---|" + "---:|" * 6,
    ]
    pairs = (((label(each),), each) for each in some)
    for (name,), rows in sorted(by_name(pairs).items()):
        first, *_ = cells([each.ttft for each in rows])
        lines.append(f"| {name} | {len(rows)} | {' | '.join(cells([each.gap for each in rows]))} | {first} |")
    return "\n".join(lines)


def main() -> None:
    """Write the tables to stdout or into pages."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", type=Path)
    pages.add_option(parser)
    arguments = parser.parse_args()
    engine = Engine.load("trtllm@0.9")
    found = errors(arguments.table, engine)
    tables = [
        table_by(found, "model, GPUs", lambda each: f"{each.model}, {each.gpus}"),
        table_by(found, "prompt tokens", lambda each: str(each.prompt)),
    ]
    nccl = errors(arguments.table, engine._replace(all_reduce=None))
    every = [f"| all rows, {name} | {' | '.join(cells([each.gap for each in some]))} |"
             for name, some in (("own all-reduces", found), ("NCCL", nccl))]  # fmt: skip
    sys.stdout.write("\n\n".join([*tables, "\n".join(every)]) + "\n")
    pages.replace_tables(arguments.into, tables)


if __name__ == "__main__":
    main()
