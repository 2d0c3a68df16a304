"""Errors of `roof estimate --phase serve --concurrency` on published serving benchmarks of vLLM, SGLang and
TensorRT-LLM: `python -m benchmarks.served_rows TABLE`, in some minutes.

The table is `served_aic_silicon.csv.gz` (ai-dynamo/aiconfigurator@095f58a): clients in a closed loop, so that `b`
requests per replica are in flight. Each row is predicted by the function that the command calls.

Rows with separate engines for prefill and decode are left out. So are rows where requests wait longer than they
decode, because the engine did not take all of them at once, and rows faster than the bound, because prompts were in a
prefix cache. TTFT is that of the client, which some servers delay by some steps (`late_steps`); where they send the
first token with others, it is left out.

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
from functools import cache, partial
from multiprocessing import Pool
from pathlib import Path
from statistics import mean, median
from typing import Any, NamedTuple

from benchmarks import pages
from benchmarks.errors import RelativeErrors, by_name
from roofmodel.devices.device import Device
from roofmodel.engines.engine import Engine
from roofmodel.engines.engine_file import Host
from roofmodel.models.architecture import Architecture
from roofmodel.models.hub import load
from roofmodel.options.serving import ServeRequest
from roofmodel.plan.layouts import Formats, Layout
from roofmodel.serve.service import ServingEstimate, service
from roofmodel.serve.totals import ServiceTimes

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
    ("sglang", "GLM-5"), ("sglang", "Qwen3.5"), ("vllm", "MiniMax"),
)  # fmt: skip
"""Engines and models whose serving scripts set a KV cache in 8 bits for quantized checkpoints (benchmarks/ of
SemiAnalysisAI/InferenceX); gpt-oss only on Blackwell."""
SYNCHRONOUS = ("?", "0.11", "0.12")
"""Versions of vLLM without asynchronous scheduling, and rows without a version, which are from 2025."""
EARLY_MINIMAX = ("0.17", "0.18")
"""Versions of vLLM under which these scripts set no format of MiniMax's cache and no token budget."""
TOKEN_BUDGETS = {("trtllm", "Llama-3.1-70B"): 16384, ("sglang", "GLM-5"): 32768, ("sglang", "DeepSeek"): 32768,
                 ("sglang", "Qwen3.5"): 16384}  # fmt: skip
"""Prompt tokens of a step that these scripts set, by engine and model."""
BUDGET = 8192
"""Prompt tokens of a step in other benchmarks: the default of vLLM's API server and of SGLang on these GPUs."""
STREAMED = ("Qwen3.5", "GLM-5", "DeepSeek")
"""Models whose tokens SGLang sends 10 to 50 at a time in these scripts (`--stream-interval`): the TTFT of a client is
that of the first group."""
BATCH_WAIT = 20
"""Steps for which TensorRT-LLM collects prompts in the scripts of Llama 70B (`batch_wait_timeout_iters`), for prompts
and answers of 1024 tokens on less than 8 GPUs."""
FIXED_LENGTHS = ("Qwen_Qwen3", "meta-llama", "openai_", "qwen3_")
"""Origins whose prompts and answers have the stated lengths; the others are uniform in 0.8 to 1 times these."""
SHORTEST, MEAN_LENGTH = 0.8, 0.9


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
    def lengths(self) -> tuple[int, int]:
        """The longest prompt and answer."""
        isl, osl = (round(length / MEAN_LENGTH) if self.drawn else length for length in (self.isl, self.osl))
        return isl, osl

    @property
    def late_steps(self) -> int:
        """Steps for which a server collects prompts before it computes them."""
        waits = self.engine == "trtllm" and "Llama-3.1-70B" in self.model and self.layout.tp < 8
        return BATCH_WAIT * (waits and self.lengths == (1024, 1024))

    @property
    def has_ttft(self) -> bool:
        """Whether its TTFT is that of the first token."""
        return self.engine != "sglang" or not any(name in self.model for name in STREAMED)

    @property
    def token_budget(self) -> int:
        """Prompt tokens of a step at most."""
        if self.engine == "vllm" and "MiniMax" in self.model and not self.version.startswith(EARLY_MINIMAX):
            return 2 * self.lengths[0] if self.hw == "b200" else BUDGET
        keys = (key for key in TOKEN_BUDGETS if key[0] == self.engine and key[1] in self.model)
        return next(map(TOKEN_BUDGETS.__getitem__, keys), BUDGET)

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
    return own_kernels(engine)._replace(kernels={}, file="")  # no file states these


def own_kernels(engine: Engine) -> Engine:
    """With NCCL, and without further fusions."""
    return without_host(engine)._replace(all_reduce=None, fuses=COMMON_FUSIONS)


def without_host(engine: Engine) -> Engine:
    """Without the host's seconds."""
    return engine._replace(host=Host())


def whole(engine: Engine) -> Engine:
    """As its file states it."""
    return engine


VARIANTS: dict[str, Variant] = {
    "default kernels of the device, NCCL": default_kernels,
    "+ kernels of the engine": own_kernels,
    "+ its all-reduce and fusions": without_host,
    "+ its host": whole,
}
"""An engine's file in steps."""
SAMPLE = 4
"""Every so many rows are predicted with all of them."""
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
    early = row["engine"] == "vllm" and row["engine_version"].startswith(EARLY_MINIMAX)
    has_fp8_cache = not early and any(row["engine"] == engine and name in model for engine, name in FP8_CACHES)
    cache = "fp8" if has_fp8_cache else "bf16"
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


def errors(table: Path, served_rows: Iterable[ServedRow], variant: Variant = whole) -> list[RowErrors]:
    """The errors of all rows, with a variant of their engines."""
    return [error_of(table, variant, row) for row in served_rows]


def error_of(table: Path, variant: Variant, row: ServedRow) -> RowErrors:
    """The errors of a row."""
    found = served(table, row, variant(Engine.load(row.engine_file)))
    assert found.expected
    assert found.low
    assert found.high
    times = [found.bound, found.expected, found.low, found.high]
    ttft = _errors([client_ttft(row, each) for each in times], row.ttft)
    return RowErrors(row, ttft, _errors([each.tpot for each in times], row.tpot))


def served(table: Path, row: ServedRow, engine: Engine) -> ServingEstimate:
    """What `roof estimate --phase serve --concurrency` states for a row."""
    isl, osl = row.lengths
    request = ServeRequest(
        isl, osl, concurrency=row.batch * row.layout.dp, length_ratio=SHORTEST if row.drawn else 1.0
    )  # fmt: skip
    options: dict[str, Any] = {**row.formats._asdict(), **row.layout._asdict()}
    return service(
        model_of(table, row.model), _device(row.hw), request,
        {**options, "engine": engine, "token_budget": row.token_budget},
    )  # fmt: skip


def client_ttft(row: ServedRow, times: ServiceTimes) -> float:
    """Seconds until the client has the first token."""
    return times.ttft + row.late_steps * times.tpot


def _errors(times: Sequence[float], measured: float) -> RelativeErrors:
    bound, expected, low, high = times
    return RelativeErrors(bound / measured - 1, expected / measured - 1, low <= measured <= high)


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
        of_ttft = [each.ttft for each in some if each.row.has_ttft]
        first, _, early, _ = cells(of_ttft) if of_ttft else ("—",) * 4
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


def main() -> None:
    """Write the tables to stdout or into pages."""
    from benchmarks.served_choices import table_of_choices
    from benchmarks.served_hosts import table_of_hosts

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", type=Path)
    parser.add_argument("--every", type=int, default=1, help="take every N-th row (a row takes about 0.3 s)")
    pages.add_option(parser)
    arguments = parser.parse_args()
    table, skipped = arguments.table, Counter[str]()
    every = list(rows(table, skipped))[:: arguments.every]
    with Pool() as pool:
        found = pool.map(partial(error_of, table, whole), every)
        possible = [each for each in found if each.tpot.bound <= 0]
        sample = possible[::SAMPLE]
        of_sample = [each.row for each in sample]
        by_variant = {
            name: sample if variant is whole else pool.map(partial(error_of, table, variant), of_sample)
            for name, variant in VARIANTS.items()
        }
    skipped["faster than the bound"] += len(found) - len(possible)
    by = (("engine",), ("engine", "version"), ("hw",), ("model",), ("engine", "version", "model", "hw"))
    tables = [
        table_of_steps(by_variant), table_of_hosts(by_variant[WITHOUT_HOST]),
        *(table_by(possible, *columns) for columns in by), table_of_choices(table, possible),
    ]  # fmt: skip
    left_out = (f"{count} rows left out: {reason}" for reason, count in skipped.items())
    sys.stdout.write("\n\n".join([*tables, "\n".join(left_out)]) + "\n")
    pages.replace_tables(arguments.into, tables)


if __name__ == "__main__":
    main()
