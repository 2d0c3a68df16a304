"""Errors on published serving benchmarks of vLLM, SGLang and TensorRT-LLM:
`python -m benchmarks.served_rows TABLE`.

The table is `served_aic_silicon.csv.gz` (ai-dynamo/aiconfigurator@095f58a): clients in a closed loop, so that `b`
requests per replica are in flight. The tables by engine, version, model and GPU have the errors of `roof estimate
--phase serve` (`served_loop.py`). The table of what each part of an engine's file changes, and the fit of the host, use
the formula of docs/howto/plan.md, where a request decodes between the prompts of the others:

    TPOT = (1 - f) t(b, 0) + f t(b, C),    f = w (b - 1) isl / ((osl - 1) C)
    TTFT = t(b, 0) / 2 + parts t(b, C) + v (b - 1) / 2 prompts + the engine's host outside steps

C: prompt tokens of a step; t: the expected time of a step; t(b, 0) / 2 is the rest of the running step. v is the share
of requests that start together with all others: the first one of each client, of ten. If an engine computes prompts in
steps of their own, and all requests have the same lengths, they move in waves: all prompts, then all decodes, so that a
request meets half of the prompts (w = 1/2) and every request starts with all others (v = 1).

Rows with separate engines for prefill and decode are left out. So are rows where requests wait longer than they
decode, because the engine did not take all of them at once, and rows faster than the bound, because prompts were in a
prefix cache. TTFT contains the time until the client has a token, which no file states: tokenizing, detokenizing and
HTTP; SGLang and TensorRT-LLM also wait for 10 to 30 tokens before they stream (InferenceX).

No kernel was fitted to a row; the host's seconds of the engines' files were (`served_hosts.py`).
`--into docs/accuracy.md` updates the page.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path
from statistics import mean, median
from typing import NamedTuple

import numpy as np

from benchmarks import pages
from benchmarks.errors import RelativeErrors, by_name
from roofmodel.counting.workload import PromptChunk
from roofmodel.devices.device import Device
from roofmodel.engines.engine import Engine
from roofmodel.engines.engine_file import Host
from roofmodel.models.architecture import Architecture
from roofmodel.models.hub import load
from roofmodel.plan.layouts import Formats, Layout
from roofmodel.plan.step_times import ServingReplica, StepTimes, decode_times, mixed_times, replica

CONFIGS = {
    "meta-llama/Llama-3.1-70B": "llama-3.1-70b",
    "meta-llama/Llama-3.1-8B-Instruct": "llama-3.1-8b",
    "Qwen/Qwen3-32B": "qwen3-32b",
    "Qwen/Qwen3-235B-A22B-FP8": "qwen3-235b-a22b",
    "Qwen/Qwen3.5-397B-A17B": "qwen3.5-397b-a17b",
    "deepseek-ai/DeepSeek-R1": "deepseek-ai--DeepSeek-R1.json",
    "deepseek-ai/DeepSeek-V3": "deepseek-ai--DeepSeek-V3.json",
    "MiniMaxAI/MiniMax-M2.5": "MiniMaxAI--MiniMax-M2.5.json",
    "moonshotai/Kimi-K2.5": "moonshotai--Kimi-K2.5.json",
    "openai/gpt-oss-120b": "openai--gpt-oss-120b.json",
    "zhipuai/GLM-5": "zai-org--GLM-5.json",
}
"""The model of the table -> a packaged one, or a file in the folder `configs` beside the table's folder."""
BLOCKS = {"MiniMaxAI/MiniMax-M2.5", "deepseek-ai/DeepSeek-R1", "deepseek-ai/DeepSeek-V3"}
"""Models whose fp8 checkpoint has scales per tile of 128 x 128, whatever the table's columns name."""
FP8_CACHES = (
    ("trtllm", "Llama-3.1-70B"), ("vllm", "Llama-3.1-70B"), ("trtllm", "DeepSeek-V3"), ("trtllm", "DeepSeek-R1"),
    ("sglang", "GLM-5"), ("sglang", "Qwen3.5"),
)  # fmt: skip
"""Engines and models whose serving scripts set a KV cache in 8 bits for quantized checkpoints (benchmarks/ of
SemiAnalysisAI/InferenceX); gpt-oss only on Blackwell."""
SYNCHRONOUS = ("?", "0.11", "0.12")
"""Versions of vLLM without asynchronous scheduling, and rows without a version, which are from 2025."""
PROMPT_TOKENS = 8192
"""Prompt tokens of a step at most: the default of vLLM's API server and of SGLang on these GPUs."""
FIXED_LENGTHS = ("Qwen_Qwen3", "meta-llama", "openai_", "qwen3_")
"""Origins whose prompts and answers have the stated lengths; the others are uniform in 0.8 to 1 times these."""
SHORTEST, MEAN_LENGTH = 0.8, 0.9
REQUESTS_PER_CLIENT = 10
"""InferenceX's scripts send ten times as many requests as there are clients."""


class ServedRow(NamedTuple):
    """A benchmark: `batch` sequences in flight per replica; mean tokens of prompt and answer; seconds.

    `drawn`: the lengths are uniform from 0.8 to 1 times the longest one.
    """

    engine: str
    version: str
    model: str
    hw: str
    layout: Layout
    formats: Formats
    batch: int
    isl: int
    osl: int
    drawn: bool
    ttft: float
    tpot: float

    @property
    def engine_file(self) -> str:
        """The engine's file for this version."""
        return "vllm@0.12" if self.engine == "vllm" and self.version.startswith(SYNCHRONOUS) else self.engine


class RowErrors(NamedTuple):
    """The relative errors of a row's TTFT and TPOT."""

    row: ServedRow
    ttft: RelativeErrors
    tpot: RelativeErrors


Variant = Callable[[Engine], Engine]
COMMON_FUSIONS = frozenset(("qkv", "gate_up", "quantize", "residual", "rotary"))
"""What all engines fuse."""


def default_kernels(engine: Engine) -> Engine:
    """With a device's default kernels."""
    return own_kernels(engine)._replace(kernels={})


def own_kernels(engine: Engine) -> Engine:
    """With NCCL, and without further fusions."""
    return without_host(engine)._replace(all_reduce=None, fuses=COMMON_FUSIONS)


def without_host(engine: Engine) -> Engine:
    """Without the host's seconds."""
    return engine._replace(host=Host())


VARIANTS: dict[str, Variant] = {
    "default kernels of the device, NCCL": default_kernels,
    "+ kernels of the engine": own_kernels,
    "+ its all-reduce and fusions": without_host,
    "+ its host": lambda engine: engine,
}
"""An engine's file in steps."""
WITHOUT_HOST, WHOLE = tuple(VARIANTS)[-2:]


def rows(table: Path, skipped: Counter[str]) -> Iterator[ServedRow]:
    """The rows of one engine that can be expressed as a layout; `skipped` counts the others by reason."""
    with gzip.open(table, "rt", newline="") as file:
        for row in csv.DictReader(file):
            tp, dp, ep = (max(1, int(row[name] or 1)) for name in ("tp", "attention_dp", "moe_ep"))
            fixed = row["origin"].startswith(FIXED_LENGTHS)
            isl, osl = (round((1 if fixed else MEAN_LENGTH) * int(row[name])) for name in ("isl", "osl"))
            if row["mode"] != "agg":
                skipped["separate engines for prefill and decode"] += 1
            elif dp > 1 and ep != tp * dp:
                skipped["attention data parallelism with experts sharded by tensor"] += 1
            elif float(row["ttft_ms"]) > (osl - 1) * float(row["tpot_ms"]):
                skipped["requests wait longer than they decode"] += 1
            else:
                yield ServedRow(
                    row["engine"], row["engine_version"].split("-")[0].split(".post")[0] or "?", row["model"],
                    row["gpu"].removesuffix("_sxm"), Layout(tp, int(row["pp"]), ep, dp), _formats(row),
                    int(row["batch_per_rank"]), isl, osl, not fixed,
                    float(row["ttft_ms"]) / 1e3, float(row["tpot_ms"]) / 1e3,
                )  # fmt: skip


def _formats(row: dict[str, str]) -> Formats:
    """The formats of a row's checkpoint and of its KV cache."""
    model, gemm = row["model"], row["gemm"]
    cache = "fp8" if any(row["engine"] == engine and name in model for engine, name in FP8_CACHES) else "bf16"
    if "gpt-oss" in model:  # only its experts are quantized: to mxfp4
        on_blackwell = row["gpu"].startswith("b")
        return Formats("fp8" if on_blackwell else "bf16", "mxfp4", "fp8" if on_blackwell else "bf16", "bf16")
    if gemm == "int4_wo":  # Kimi's experts, by its config
        return Formats("bf16", None, cache, "bf16")
    if gemm == "nvfp4":
        return Formats("fp4", "nvfp4", cache, "bf16")
    if gemm in ("fp8", "fp8_block"):
        blocks = gemm == "fp8_block" or row["moe"] == "fp8_block" or model in BLOCKS
        return Formats("fp8", "fp8_block" if blocks else "fp8", cache, "bf16")
    return Formats("bf16")


def errors(table: Path, served_rows: Iterable[ServedRow], variant: Variant) -> list[RowErrors]:
    """The errors of all rows; those of the same model, GPU, layout, formats and engine are predicted together."""
    rows_by_setting = (((row.model, row.hw, row.layout, row.formats, row.engine_file), row) for row in served_rows)
    result: list[RowErrors] = []
    for some in by_name(rows_by_setting).values():
        served = replica_of(table, some[0])
        served = served._replace(work=served.work._replace(engine=variant(served.work.engine)))
        ttft, tpot = latencies(served, some)
        pairs = ((_errors(ttft, at, row.ttft), _errors(tpot, at, row.tpot)) for at, row in enumerate(some))
        result += [RowErrors(row, *pair) for row, pair in zip(some, pairs, strict=True)]
    return result


def latencies(served: ServingReplica, some: Sequence[ServedRow]) -> tuple[StepTimes, StepTimes]:
    """TTFT and TPOT of these rows in the steady state."""
    columns = ("batch", "isl", "osl", "drawn")
    batch, isl, osl, drawn = (np.array([getattr(row, name) for row in some]) for name in columns)
    waves = served.work.engine.prompts_first & ~drawn
    context, others = isl + osl // 2, batch - 1
    parts = -(-isl // PROMPT_TOKENS)
    tokens = -(-isl // parts)
    most = np.minimum(batch, np.maximum(1, PROMPT_TOKENS // isl))  # prompts of a step
    prompts = np.clip(others // (osl - 1), 1, most)
    decode = decode_times(served, batch, context)
    single, several, full = (
        mixed_times(served, batch, context, PromptChunk(number, tokens, (isl - tokens) // 2))
        for number in (np.ones_like(most), prompts, most)
    )
    share = np.where(waves, 0.5, 1.0) * others * isl / ((osl - 1) * prompts * tokens)
    queue = np.where(waves, 1.0, 1 / REQUESTS_PER_CLIENT) * others / 2 * parts / most
    ttft = 0.5 * (batch > 1) * decode + parts * single + queue * full
    outside = served.work.engine.host.outside_steps(isl)
    ttft = ttft._replace(**{name: getattr(ttft, name) + outside for name in ("seconds", "low", "high")})
    return ttft, np.maximum(0, 1 - share) * decode + share * several


def replica_of(table: Path, row: ServedRow) -> ServingReplica:
    """The replica of a row, with its engine."""
    served = replica(model_of(table, row.model), _device(row.hw), row.layout, row.formats, 0.9)
    return served._replace(work=served.work._replace(engine=Engine.load(row.engine_file)))


def _errors(times: StepTimes, at: int, measured: float) -> RelativeErrors:
    seconds, low, high, bound = (float(getattr(times, name)[at]) for name in ("seconds", "low", "high", "bound"))
    return RelativeErrors(bound / measured - 1, seconds / measured - 1, low <= measured <= high)


@cache
def model_of(table: Path, name: str) -> Architecture:
    """The model of this name in the table."""
    config = CONFIGS[name]
    return load(str(table.parents[2] / "configs" / config) if config.endswith(".json") else config)


@cache
def _device(name: str) -> Device:
    return Device.load(name)


def table_by(row_errors: Iterable[RowErrors], *columns: str) -> str:
    """Markdown: one line for each value of these columns."""
    lines = [
        f"| {' | '.join(columns)} | rows | TPOT: median error | mean error | bias | within the interval "
        "| TTFT: median error | bias |",
        "|---" * len(columns) + "|---:" * 7 + "|",
    ]
    pairs = ((tuple(str(getattr(each.row, column)) for column in columns), each) for each in row_errors)
    for name, some in sorted(by_name(pairs).items()):
        first, _, early, _ = cells([each.ttft for each in some])
        further = " | ".join(cells([each.tpot for each in some]))
        lines.append(f"| {' | '.join(name)} | {len(some)} | {further} | {first} | {early} |")
    return "\n".join(lines)


def cells(some: Sequence[RelativeErrors]) -> tuple[str, str, str, str]:
    """Median error, mean error, bias, share within the interval."""
    expected = [each.expected for each in some]
    absolute = [*map(abs, expected)]
    inside = mean(each.inside for each in some)
    return f"{median(absolute):.0%}", f"{mean(absolute):.0%}", f"{mean(expected):+.0%}", f"{inside:.0%}"


def table_of_steps(by_variant: dict[str, list[RowErrors]]) -> str:
    """Markdown: the errors of TPOT by what is taken from the engines' files, and the median error of each engine."""
    engines = sorted({each.row.engine for each in by_variant[WHOLE]})
    lines = [
        f"| TPOT | median error | mean error | bias | within the interval | {' | '.join(engines)} |",
        "|---|" + "---:|" * (4 + len(engines)),
    ]
    for name, some in by_variant.items():
        by_engine = by_name((each.row.engine, each.tpot) for each in some)
        each_engine = " | ".join(cells(by_engine[engine])[0] for engine in engines)
        lines.append(f"| {name} | {' | '.join(cells([each.tpot for each in some]))} | {each_engine} |")
    return "\n".join(lines)


def predicted(table: Path, skipped: Counter[str]) -> dict[str, list[RowErrors]]:
    """The errors with each variant of the engines."""
    every = list(rows(table, skipped))
    by_variant = {name: errors(table, every, variant) for name, variant in VARIANTS.items()}
    impossible = {id(each.row) for each in by_variant[WHOLE] if each.tpot.bound > 0}
    skipped["faster than the bound"] += len(impossible)
    return {name: [each for each in some if id(each.row) not in impossible] for name, some in by_variant.items()}


def main() -> None:
    """Write the tables to stdout or into pages."""
    from benchmarks.served_choices import table_of_choices
    from benchmarks.served_hosts import table_of_hosts
    from benchmarks.served_loop import simulated

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", type=Path)
    pages.add_option(parser)
    arguments = parser.parse_args()
    skipped: Counter[str] = Counter()
    by_variant = predicted(arguments.table, skipped)
    by = (("engine",), ("engine", "version"), ("hw",), ("model",), ("engine", "version", "model", "hw"))
    in_loop = simulated(arguments.table, by_variant[WHOLE])
    tables = [
        table_of_steps(by_variant), table_of_hosts(by_variant[WITHOUT_HOST]),
        *(table_by(in_loop, *columns) for columns in by), table_of_choices(arguments.table, in_loop),
    ]  # fmt: skip
    left_out = (f"{count} rows left out: {reason}" for reason, count in skipped.items())
    sys.stdout.write("\n\n".join([*tables, "\n".join(left_out)]) + "\n")
    pages.replace_tables(arguments.into, tables)


if __name__ == "__main__":
    main()
