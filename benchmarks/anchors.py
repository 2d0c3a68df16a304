"""Compare our errors with those of other tools, on the same rows: `python benchmarks/anchors.py FOLDER`.

FOLDER holds tables of measurements, as for `accuracy.py`. The rows of operators are those that none of our fits used:
a third of the models, and the GEMMs of one framework. Tools on PyPI run if they are installed
(`pip install llm-flops aiconfigurator`), repositories run from clones whose paths are options. The last lines list the
tools that could not run and how to get them. `others/` states the purpose of each tool. `--into docs/anchors.md`
updates the page; it keeps the figures of tools that did not run. `--hw b200 gb200` runs only the operators of these
devices; the page keeps all other figures.
"""

from __future__ import annotations

import argparse
import csv
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from benchmarks import accuracy, megatron, pages, served
from benchmarks.others import ToolMissing, aiconfigurator, clones, llm_flops
from roofmodel.devices.device import Device
from roofmodel.errors import RoofError
from roofmodel.measure.table import HOST_CLOCK, Array, Table, read
from roofmodel.measure.validate import errors, validate

T = TypeVar("T")

HEADING = "| mean error on"
MODES = {f"aiconfigurator, {mode}": mode for mode in aiconfigurator.MODES}
COLUMNS = ("roofline", "scaled roofline", "llm-flops", "LLM-Viewer", *MODES, "roofmodel")
NAMES = {"rtx-pro-6000-server": "RTX PRO 6000 Server"}
SCALE = {"gemm": 0.8, "attn_context": 0.6, "attn_generation": 0.8, "moe": 0.4}
"""The fractions of the roofline that the empirical mode of aiconfigurator 0.5 to 0.7 assumed."""


class ErrorLine(NamedTuple):
    """What was measured, the number of rows, and mean absolute errors by column; None for a tool that did not run."""

    title: str
    rows: int
    errors: Mapping[str, float | None]

    def markdown(self, columns: Sequence[str]) -> str:
        """A row of a table; a dash for a tool that does not support what was measured."""
        cells = ("—" if name not in self.errors else _cell(self.errors[name]) for name in columns)
        return f"| {self.title} | {self.rows} | {' | '.join(cells)} |"


def _cell(error: float | None) -> str:
    return pages.NOT_RUN if error is None else f"{error:.1%}"


def table(lines: Sequence[ErrorLine]) -> str:
    """Markdown, with the columns of tools that support at least one line."""
    columns = [name for name in COLUMNS if any(name in line.errors for line in lines)]
    header = f"{HEADING} | rows | {' | '.join(columns)} |\n|---|---:|{'---:|' * len(columns)}"
    return "\n".join([header, *(line.markdown(columns) for line in lines)])


class ToolComparisons:
    """The comparisons, from a folder of tables and clones of tools by name; `missing` lists what could not run."""

    def __init__(self, folder: Path, paths: Mapping[str, Path | None]) -> None:
        self.folder, self.paths = folder, paths
        self.missing: dict[str, None] = {}

    def _run(self, tool: Callable[..., T], *arguments: Any) -> T | None:
        try:
            return tool(*arguments)
        except ToolMissing as reason:
            self.missing[str(reason)] = None
            return None

    def operators(self, devices: Sequence[str] = tuple(aiconfigurator.SYSTEMS)) -> Iterator[ErrorLine]:
        """GEMMs, attention and MoE on one GPU, by table of measurements; only of these devices."""
        for name, (hw, title) in accuracy.TABLES.items():
            path = str(self.folder / f"{name}.csv.gz")
            cells = read(path)
            op = cells["op"][0]
            if op not in SCALE or hw not in devices:
                continue
            validation = validate(path, Device.load(hw))
            unseen = accuracy.unseen(validation, name)
            predicted = {
                "roofline": validation.bound[unseen],
                "scaled roofline": validation.bound[unseen] / SCALE[op],
                **(self._run(_by_aiconfigurator, cells, unseen, hw, name in accuracy.NEW) or dict.fromkeys(MODES)),
                "roofmodel": validation.expected[unseen],
            }
            device = NAMES.get(hw, hw.upper())
            yield ErrorLine(f"{device}: {title}", len(unseen), _mean_errors(predicted, validation.measured[unseen]))

    def served(self) -> Iterator[ErrorLine]:
        """Llama 2 7B and 13B, which all the tools support, as TensorRT-LLM served them in static batches."""
        rows = [row for row in served.on_one_gpu(self.folder) if "llama" in row.model and row.hw in llm_flops.GPUS]
        for (hw, precision), some in groupby(sorted(rows, key=_hw_and_precision), key=_hw_and_precision):
            yield from self._served(f"Llama 2 on {hw.upper()}, {precision}", list(some))

    def _served(self, title: str, rows: Sequence[served.ServedBatch]) -> Iterator[ErrorLine]:
        phases = [served.phases(row) for row in rows]
        predicted = {
            "roofline": [tuple(phase.bound_seconds for phase in pair) for pair in phases],
            "llm-flops": self._run(llm_flops.served, rows),
            "roofmodel": [tuple(phase.expected.value for phase in pair) for pair in phases],
        }
        if rows[0].hw in clones.VIEWED:
            predicted["LLM-Viewer"] = self._run(clones.llm_viewer, self.paths["LLM-Viewer"], rows)
        for name, mode in MODES.items():
            predicted[name] = self._run(aiconfigurator.served, rows, mode)
        for number, token in enumerate(("TTFT", "TPOT")):
            times = {name: pairs and [float(pair[number]) for pair in pairs] for name, pairs in predicted.items()}
            measured = np.array([(row.ttft, row.tpot)[number] for row in rows])
            yield ErrorLine(f"{title}: {token}", len(rows), _mean_errors(times, measured))

    def flops(self) -> str:
        """A sentence that compares the FLOPs of llm-flops with ours."""
        ratios = self._run(llm_flops.flops)
        if ratios is None:
            return ""
        near = {name: part for name, part in ratios.items() if abs(part - 1) < 0.01}
        return (
            f"llm-flops counts {min(near.values()) - 1:.2%} to {max(near.values()) - 1:.2%} more FLOPs in a forward "
            f"pass than our matmul FLOPs on {len(near)} of the {len(ratios)} models that both tools support, because "
            f"it adds softmax, norms and activations. It omits the head of {', '.join(sorted(ratios.keys() - near))}."
        )

    def training(self) -> str:
        """Markdown: training steps of Megatron-LM on A100s. A dash is a setting that we cannot express."""
        theirs = self._run(clones.calculon, self.paths["Calculon"])
        lines = ["| training step | measured | Calculon | roofmodel |", "|---|---:|---:|---:|"]
        for case in megatron.CASES:
            name, ours = case.setting.name, megatron.expected(case)
            cells = [
                pages.NOT_RUN if theirs is None else _seconds(theirs[name][case.recompute], case.seconds),
                "—" if ours is None else _seconds(ours, case.seconds),
            ]
            title = f"{name} on {case.setting.tp * case.setting.pp} GPUs, {case.recompute} recomputation"
            lines.append(f"| {title} | {case.seconds:.2f} s | {' | '.join(cells)} |")
        return "\n".join(lines)

    def simulated(self) -> str:
        """Markdown: operators of LLMCompass's paper on an A100, timed by the host.

        Its script adds the launch time of that host to a simulated GEMM, and so do we. Two thirds of the rows of the
        other operators were used by a fit of ours.
        """
        simulations = self._run(clones.llmcompass, self.paths["LLMCompass"]) or ()
        lines = ["| operator | rows | LLMCompass | roofmodel |", "|---|---:|---:|---:|"]
        for op, some in groupby(simulations, key=lambda row: row.op):
            rows = list(some)
            measured, launch = np.array([row.measured for row in rows]), clones.LAUNCH if op == "gemm" else 0
            theirs = errors(np.array([row.simulated for row in rows]), measured).mape
            ours = errors(_expected(rows) + launch, measured).mape
            lines.append(f"| {op} | {len(rows)} | {theirs:.1%} | {ours:.1%} |")
        return "\n".join(lines) if simulations else ""


def _by_aiconfigurator(cells: Table, unseen: Array, hw: str, new: bool) -> dict[str, Any]:
    aiconfigurator.require()
    rows = [{column: values[row] for column, values in cells.items()} for row in unseen]
    with nullcontext() if new else aiconfigurator.without_unseen_cells(hw, rows[0]["op"]) as systems:
        return {name: aiconfigurator.operators(rows, hw, mode, systems) for name, mode in MODES.items()}


def _hw_and_precision(row: served.ServedBatch) -> tuple[str, str]:
    return row.hw, row.precision


def _mean_errors(predicted: Mapping[str, Any], measured: Any) -> dict[str, float | None]:
    return {name: None if p is None else _mean_error(np.asarray(p), measured) for name, p in predicted.items()}


def _mean_error(predicted: Array, measured: Array) -> float:
    """The mean absolute relative error on the rows that have a prediction."""
    rows = ~np.isnan(predicted)
    return errors(predicted[rows], measured[rows]).mape


def _seconds(seconds: float, measured: float) -> str:
    return f"{seconds:.2f} s, {seconds / measured - 1:+.1%}"


def _expected(rows: Sequence[clones.Simulated]) -> Any:
    """Our expected seconds of these operators, by validation of a temporary table."""
    kernel = "" if rows[0].op == "gemm" else f"{rows[0].op}, {HOST_CLOCK}"
    with tempfile.TemporaryDirectory() as folder, (Path(folder) / "rows.csv").open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(("op", "dtype", "kernel", "latency_us", *rows[0].shape))
        out.writerows((row.op, "fp16", kernel, row.measured * 1e6, *row.shape.values()) for row in rows)
        file.flush()
        return validate(file.name, Device.load("a100")).expected


TOOLS = ("LLM-Viewer", "Calculon", "LLMCompass")  # run from clones


def main() -> None:
    """Print all comparisons; exit with 2 if the folder lacks the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="tables of measurements, as for accuracy.py")
    for tool in TOOLS:
        parser.add_argument(f"--{tool.lower()}", type=Path, metavar="PATH", dest=tool, help=f"a clone of {tool}")
    parser.add_argument(
        "--hw", nargs="+", choices=aiconfigurator.SYSTEMS, help="only operators, and only of these devices"
    )
    pages.add_option(parser)
    arguments = vars(parser.parse_args())
    anchors = ToolComparisons(arguments["folder"], {tool: arguments[tool] for tool in TOOLS})
    try:
        text = table([*anchors.operators(arguments["hw"] or tuple(aiconfigurator.SYSTEMS))])
        if not arguments["hw"]:
            compared = (table([*anchors.served()]), anchors.training(), anchors.simulated(), anchors.flops())
            text = "\n\n".join((text, *compared))
    except (RoofError, OSError) as error:
        parser.error(str(error))
    print(text)
    pages.replace_rows(arguments["into"], text)
    if anchors.missing:
        print("\nNot run:", *anchors.missing, sep="\n- ", file=sys.stderr)


if __name__ == "__main__":
    main()
