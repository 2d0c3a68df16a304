"""Ask `roof plan` and the searches of other tools the same questions: `python benchmarks/planners.py`.

Serving is compared with aiconfigurator (`pip install aiconfigurator`), training with Calculon (`--calculon CLONE`).
Each tool runs with its defaults as a process of its own, ours in the engine of aiconfigurator's tables. Times are
processor seconds of the whole process, so that other load does not count. `--only TEXT` asks only the questions whose
name contains the text. `--into docs/anchors.md` replaces the lines of the page's tables; lines of tools that did not
run stay.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from benchmarks import pages
from benchmarks.others import ToolMissing, aiconfigurator, clones

T = TypeVar("T")

ISL, OSL = 4096, 512


class Service(NamedTuple):
    """A question about serving: the model as both tools call it, and the options that give ours the formats that
    aiconfigurator takes from the checkpoint."""

    model: str
    theirs: str
    hw: str
    gpus: int
    ttft: float
    tpot: float
    formats: Mapping[str, str]

    def __str__(self) -> str:
        formats = " ".join(dict.fromkeys(self.formats.values()))
        return (
            f"{self.model}, {formats}, {self.gpus} × {self.hw.upper()}, "
            f"{1e3 * self.ttft:.0f} ms, {1e3 * self.tpot:.0f} ms"
        )


FP8 = {"dtype": "fp8", "kv": "fp8"}
FP8_BLOCK = {"dtype": "fp8", "weights": "fp8_block", "kv": "fp8"}
BF16 = {"dtype": "bf16", "kv": "bf16"}
SERVICES = (
    Service("llama-3.1-70b", "meta-llama/Meta-Llama-3.1-70B", "h100", 8, 0.5, 0.03, BF16),
    Service("llama-3.1-70b", "nvidia/Llama-3.1-70B-Instruct-FP8", "h100", 8, 0.5, 0.03, FP8),
    Service("qwen3-32b", "Qwen/Qwen3-32B-FP8", "h200", 8, 1, 0.03, FP8_BLOCK),
    Service("deepseek-v3", "deepseek-ai/DeepSeek-V3", "h200", 8, 1, 0.05, FP8_BLOCK),
)
MODES = {"mixed": "agg", "disaggregated": "disagg"}


class Training(NamedTuple):
    """A question about training on A100s with 80 GB: a GPT, and sequences of 2048 tokens in a step."""

    name: str
    hidden: int
    layers: int
    heads: int
    gpus: int
    batch: int

    def __str__(self) -> str:
        return f"{self.name} on {self.gpus} × A100, batch {self.batch}"


SEQ = 2048
TRAININGS = (Training("1.7B", 2304, 24, 24, 32, 512), Training("22B", 6144, 48, 64, 64, 512))
TITLES = (
    "| service, TTFT, TPOT, mode | aiconfigurator | tokens/s/GPU | roofmodel | tokens/s/GPU | "
    "roofmodel, same engines | processor s |\n|---|---|---:|---|---:|---:|---:|\n"
)
TRAINING_TITLES = (
    "| training | Calculon | step | roofmodel | step | roofmodel, same layout | candidates | processor s |\n"
    "|---|---|---:|---|---:|---:|---:|---:|\n"
)


class Comparison:
    """The answers of all tools; `missing` lists the tools that could not run."""

    def __init__(self, clone: Path | None) -> None:
        self.clone = clone
        self.missing: dict[str, None] = {}

    def _run(self, tool: Callable[..., T], *arguments: Any) -> tuple[T | None, float]:
        """The answer, and the processor seconds of the processes that gave it."""
        before = _processor_seconds()
        try:
            return tool(*arguments), _processor_seconds() - before
        except ToolMissing as reason:
            self.missing[str(reason)] = None
            return None, 0.0

    def service(self, case: Service) -> Iterator[str]:
        """A Markdown line for each mode."""
        theirs, their_time = self._run(
            aiconfigurator.search, case.theirs, case.hw, case.gpus, ISL, OSL, case.ttft, case.tpot
        )
        ours, our_time = self._run(_served, case, {})
        for mode, name in MODES.items():
            own = _first(ours or (), mode)
            row = None if theirs is None else theirs.get(name)
            cells = [
                *(_cells(_their_choice(row)) if theirs is not None else (pages.NOT_RUN, pages.NOT_RUN)),
                *_cells(own and _our_choice(own)),
                pages.NOT_RUN if theirs is None else _on_engines(case, mode, row),
                f"{_seconds(their_time) if theirs is not None else pages.NOT_RUN} / {_seconds(our_time)}",
            ]
            yield f"| {case}, {mode} | {' | '.join(cells)} |"

    def training(self, case: Training) -> str:
        """A Markdown line."""
        sizes = {
            "hidden": case.hidden, "feedforward": 4 * case.hidden, "seq_size": SEQ, "attn_heads": case.heads,
            "attn_size": case.hidden // case.heads, "num_blocks": case.layers,
        }  # fmt: skip
        theirs, their_time = self._run(clones.calculon_search, self.clone, sizes, case.gpus, case.batch)
        document, our_time = self._run(_trained, case, {})
        assert document is not None
        own = document["candidates"][0]
        cells = [pages.NOT_RUN, pages.NOT_RUN, _training_layout(own), _step(own["step_seconds"]), pages.NOT_RUN]
        count, time = pages.NOT_RUN, pages.NOT_RUN
        if theirs is not None:
            number, best = theirs
            execution, stats = best["execution"], best["stats"]
            same, _ = self._run(_trained, case, _as_options(execution))
            candidate = same["candidates"][0] if same and same["candidates"] else None
            cells[0] = _training_layout(_as_options(execution))
            cells[1] = _step(stats["total_time"])
            cells[4] = "does not fit" if candidate is None else _step(candidate["step_seconds"])
            count, time = str(number), _seconds(their_time)
        cells += [f"{count} / {document['searched']}", f"{time} / {_seconds(our_time)}"]
        return f"| {case} | {' | '.join(cells)} |"


class Choice(NamedTuple):
    """The choice of a tool: layout, sequences of all engines, latencies in seconds, output tokens/s/GPU."""

    layout: str
    batch: int
    ttft: float
    tpot: float
    rate: float


def _cells(choice: Choice | None) -> tuple[str, str]:
    if choice is None:
        return "none meets the targets", "—"
    return (
        f"{choice.layout}, batch {choice.batch}: {1e3 * choice.ttft:.0f} ms, {1e3 * choice.tpot:.1f} ms",
        f"{choice.rate:.0f}",
    )


def _processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _roof(options: Sequence[str]) -> Any:
    """The document that `roof plan` prints."""
    command = [sys.executable, "-m", "roofmodel", "plan", *options, "--format", "json", "--top", "100"]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def _words(options: Mapping[str, Any]) -> list[str]:
    return [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", str(value))]


# --- Serving ----------------------------------------------------------------------------------------


def _served(case: Service, restricted: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The candidates of `roof plan` that meet the targets, the best first, in the engine of aiconfigurator's tables."""
    options = {
        "hw": case.hw, "engine": "trtllm", "gpus": case.gpus, "isl": ISL, "osl": OSL, "ttft": f"{case.ttft}s",
        "tpot": f"{case.tpot}s", **case.formats, **restricted,
    }  # fmt: skip
    return [candidate for candidate in _roof([case.model, *_words(options)])["candidates"] if candidate["meets"]]


def _first(candidates: Sequence[Mapping[str, Any]], mode: str) -> Mapping[str, Any] | None:
    return next((candidate for candidate in candidates if candidate["mode"] == mode), None)


def _our_choice(candidate: Mapping[str, Any]) -> Choice:
    layout = _layout(candidate)
    if candidate["prefill"]:
        layout = f"{_layout(candidate['prefill'])} → {layout}"
    return Choice(
        layout, candidate["batch"], candidate["ttft_seconds"], candidate["tpot_seconds"],
        candidate["tokens_per_second_per_gpu"],
    )  # fmt: skip


def _layout(sizes: Mapping[str, Any]) -> str:
    return " ".join(f"{name} {sizes[name]}" for name in ("tp", "pp", "ep", "dp") if sizes[name] > 1) or "tp 1"


def _their_choice(row: Mapping[str, str] | None) -> Choice | None:
    """A row of aiconfigurator. In `agg`, the engines of one replica are counted; the others repeat it."""
    if row is None:
        return None
    parts = [f"({part})" for part in "pd"] if "(d)tp" in row else [""]
    layout = " → ".join(_layout(_their_sizes(row, part)) for part in parts)
    return Choice(
        layout, int(row["concurrency"]) * _replicas(row), float(row["ttft"]) / 1e3, float(row["tpot"]) / 1e3,
        float(row["tokens/s/gpu"]),
    )  # fmt: skip


def _replicas(row: Mapping[str, str]) -> int:
    return GPUS // int(row["num_total_gpus"])


GPUS = 8  # of all services


def _their_sizes(row: Mapping[str, str], part: str) -> dict[str, int]:
    """Sizes in our terms: replicas are counted in dp, and its attention dp shares the experts of one engine."""
    tp, pp, dp, ep = (int(row[f"{part}{name}"]) for name in ("tp", "pp", "dp", "moe_ep"))
    return {"tp": tp, "pp": pp, "ep": ep, "dp": dp * int(row.get(f"{part}workers", 1)) * _replicas(row)}


def _on_engines(case: Service, mode: str, row: Mapping[str, str] | None) -> str:
    """Our highest rate with aiconfigurator's engines: our batch and our number of engines of each kind."""
    if row is None:
        return "—"
    parts = ("(p)", "(d)") if mode == "disaggregated" else ("",)
    sizes = [_their_sizes(row, part) for part in parts]
    names = ("tp", "pp", "ep")
    restricted = {name: ",".join(dict.fromkeys(str(size[name]) for size in sizes)) for name in names}
    if not any(size["ep"] > 1 for size in sizes):
        del restricted["ep"]
    for candidate in _served(case, {**restricted, "mode": mode}):
        engines = [candidate["prefill"], candidate] if candidate["prefill"] else [candidate]
        if all(own[name] == their[name] for own, their in zip(engines, sizes, strict=True) for name in names):
            return f"{candidate['tokens_per_second_per_gpu']:.0f}"
    return "—"


# --- Training ---------------------------------------------------------------------------------------


def _trained(case: Training, restricted: Mapping[str, Any]) -> Any:
    """The plan of `roof plan --train`, with the attention of the time of Megatron-LM, which stores the scores, and with
    all of the memory, as Calculon plans."""
    sizes = {"n_embd": case.hidden, "n_layer": case.layers, "n_head": case.heads, "n_positions": SEQ}
    config = {"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "vocab_size": 51200, **sizes}
    options = {
        "hw": "a100", "gpus": case.gpus, "tokens": "300B", "batch": case.batch, "seq": SEQ, "dtype": "fp16",
        "attention": "eager", "memory_utilization": 1, **restricted,
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(config))
        return _roof([folder, "--train", *_words(options)])


def _training_layout(candidate: Mapping[str, Any]) -> str:
    sizes = " ".join(f"{name} {candidate[name]}" for name in ("tp", "pp", "dp", "vpp") if candidate[name] > 1)
    sharded = ", sequence parallel" if candidate["sequence_parallel"] == "on" else ""
    sharded += ", optimizer sharded" if candidate["zero"] else ""
    return f"{sizes}, microbatch {candidate['micro_batch']}, recompute {candidate['recompute']}{sharded}"


RECOMPUTED = {"full": "full", "attn_only": "selective", "none": "none"}


def _as_options(run: Mapping[str, Any]) -> dict[str, Any]:
    """An execution of Calculon in our options. Its sequence parallelism is its reduce-scatter and all-gather."""
    return {
        "tp": run["tensor_par"], "pp": run["pipeline_par"], "dp": run["data_par"], "vpp": run["pipeline_interleaving"],
        "micro_batch": run["microbatch_size"], "recompute": RECOMPUTED[run["activation_recompute"]],
        "sequence_parallel": "on" if run["tensor_par"] > 1 and run["tensor_par_comm_type"] == "rs_ag" else "off",
        "zero": int(run["optimizer_sharding"] and run["data_par"] > 1),
    }  # fmt: skip


def _step(seconds: float) -> str:
    return f"{seconds:.1f} s"


def _seconds(value: float) -> str:
    return f"{value:.0f}"


def main() -> None:
    """Print the tables; with `--into`, also replace their lines in a page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calculon", type=Path, metavar="PATH", help="a clone of Calculon")
    parser.add_argument("--only", default="", metavar="TEXT", help="only the questions whose name contains the text")
    pages.add_option(parser)
    arguments = parser.parse_args()
    compared = Comparison(arguments.calculon)
    services = [service for service in SERVICES if arguments.only in str(service)]
    trainings = [training for training in TRAININGS if arguments.only in str(training)]
    for titles, lines in (
        (TITLES, (line for service in services for line in compared.service(service))),
        (TRAINING_TITLES, (compared.training(training) for training in trainings)),
    ):
        print(titles, end="")
        for line in lines:
            print(line, flush=True)
            pages.replace_rows(arguments.into, line)
    if compared.missing:
        print("\nNot run:", *compared.missing, sep="\n- ", file=sys.stderr)


if __name__ == "__main__":
    main()
