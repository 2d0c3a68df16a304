"""Models that others had generate text on several A100s, within a node and across nodes: a table of docs/accuracy.md.

No fit has seen a row. FasterTransformer's guide tells of whole requests, a prompt and what follows, on GPUs that share
layers and, of the 24, in three stages; the first token comes out of the prompt's pass (ParallelGpt.cc), so that a
request of n new tokens takes n - 1 decodes. Where there are stages it cuts a batch into pieces, by a rule that is
another one in each of its versions: requests of more than 2048 tokens, which its times show in pieces, are left out.
gpt-fast's README tells of tokens a second at a batch of one, over 200 tokens behind a prompt of a few.
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from benchmarks.errors import Off, by_name, medians, off
from benchmarks.megatron import gpt
from roofmodel.devices.device import Device
from roofmodel.models.hub import load
from roofmodel.study.estimate.estimate import estimate

GPTS = {"gpt-89b": (48, 12288, 96), "megatron-530b": (105, 20480, 128)}  # layers, width, heads; as the guide tells them
STAGES = {24: 3}  # of so many GPUs
ONE_PIECE = 2048  # tokens of a prompt that are seen to go through stages in one piece
LLAMAS = {
    "llama-2-7b": "llama-2-7b-hf",
    "llama-2-70b": "llama-2-70b-hf",
    "llama-3.1-70b": "llama-3.1-70b",
    "llama-3.1-405b": "llama-3.1-405b",
}
WEIGHTS = {"bf16": "bf16", "int8-weight": "int8", "int4-weight": "int4"}


class Generated(NamedTuple):
    """A model's run, on how many GPUs in how many stages, and how far it is off."""

    who: str
    model: str
    weights: str
    gpus: int
    stages: int
    off: Off

    @property
    def name(self) -> tuple[str, ...]:
        """The line of the table that it is in."""
        if self.model in LLAMAS:
            return "Llama 2 and 3.1, 7b to 405b", self.who, self.weights, "1 to 8"
        gpus = f"{self.gpus // self.stages} × {self.stages}" if self.stages > 1 else str(self.gpus)
        return self.model, self.who, self.weights, gpus


def table(found: list[Generated]) -> str:
    """Markdown: a line a model of FasterTransformer's and number of GPUs, one a format of gpt-fast's weights; all."""
    lines = [
        "| model | run by | weights | GPUs | rows | median error of bound | median error of expected time "
        "| median bias |",
        "|---|---|---|---:|---:|---:|---:|---:|",
    ]
    for name, some in by_name((row.name, row.off) for row in found).items():
        lines.append(f"| {' | '.join(name)} | {medians(some)} |")
    lines.append(f"| all | | | | {medians([row.off for row in found])} |")
    return "\n".join(lines)


def generated(folder: Path) -> Iterator[Generated]:
    """FasterTransformer's requests, then gpt-fast's decodes, each row once."""
    with gzip.open(folder / "e2e.csv.gz", "rt", newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["gpu_norm"].startswith("A100")]
    seen: set[tuple[str, ...]] = set()
    for row in rows:
        which = row["n_gpus"], row["model"], row["batch"], row["seq"], row["precision"], row["value"]
        if which in seen:  # gpt-fast's README repeats some in its next table
            continue
        seen.add(which)
        if row["model"] in GPTS and "Megatron Latency" not in row["notes"]:
            yield from _request(row)
        elif row["model"] in LLAMAS and row["metric"] == "throughput" and "gpt-fast" in row["source"]:
            yield _decodes(row)


def _request(row: dict[str, str]) -> Iterator[Generated]:
    gpus, batch = int(float(row["n_gpus"])), int(row["batch"])
    prompt, new = map(int, row["seq"].split("+"))
    stages = STAGES.get(gpus, 1)
    if stages > 1 and batch * prompt > ONE_PIECE:
        return
    (found,) = estimate(
        gpt(row["model"], *GPTS[row["model"]]), Device.load("a100"), phase="generate", batch=batch, seq=prompt,
        new_tokens=new - 1, tp=gpus // stages, pp=stages, runtime="graph",
    ).phases  # fmt: skip
    how_far = off(found, float(row["value"]) / 1e3)
    yield Generated("FasterTransformer", row["model"], row["precision"], gpus, stages, how_far)


def _decodes(row: dict[str, str]) -> Generated:
    gpus = int(float(row["n_gpus"]))
    (found,) = estimate(
        load(LLAMAS[row["model"]]), Device.load("a100"), phase="decode", batch=1, context=100, dtype="bf16",
        weights=WEIGHTS[row["precision"]], tp=gpus, runtime="graph",
    ).phases  # fmt: skip
    return Generated("gpt-fast", row["model"], WEIGHTS[row["precision"]], gpus, 1, off(found, 1 / float(row["value"])))
