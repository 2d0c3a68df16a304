"""Judge of `roof plan`: is the layout that was fastest in a measurement ranked first, or tied with the first?

Rows are the static batches that TensorRT-LLM 0.9 served on several GPUs (`benchmarks/served.py`). A group has the same
model, device, format, lengths, number of GPUs and batch over all of them; its layouts differ in tensor parallelism:
tp 8, or two replicas with tp 4 and half of the batch each. No fit used these rows.

    python benchmarks/planned.py FOLDER --into docs/accuracy.md
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from benchmarks import pages
from benchmarks.served import ACTIVATIONS, SHARDED, ServedBatch, loaded, rows
from roofmodel.plan.layouts import Formats, Layout
from roofmodel.plan.ranking import ties
from roofmodel.plan.step_times import StepTimes, decode_times, prefill_times, replica
from roofmodel.timing.timing import Expected


class Choice(NamedTuple):
    """A layout of a group: measured seconds of the batch, and expected requests per second with their interval."""

    row: ServedBatch
    replicas: int
    measured: float
    expected: Expected


class Group(NamedTuple):
    """The layouts for one batch on one number of GPUs."""

    model: str
    hw: str
    gpus: int
    batch: int
    choices: tuple[Choice, ...]

    @property
    def fastest(self) -> Choice:
        return min(self.choices, key=lambda choice: choice.measured)

    @property
    def first(self) -> Choice:
        """The layout that is ranked first."""
        return max(self.choices, key=lambda choice: choice.expected.value)

    @property
    def tied(self) -> list[Choice]:
        """The layouts that tie with the first, and the first."""
        return [choice for choice in self.choices if choice is self.first or ties(choice.expected, self.first.expected)]


def groups(folder: Path, wanted: Callable[[ServedBatch], bool] = lambda row: True) -> Iterator[Group]:
    """The groups with several layouts, from the rows that are wanted."""
    served = [row for row in rows(folder, SHARDED) if wanted(row)]
    expected = {row: expectation(row) for row in served}
    by_key: dict[tuple[object, ...], list[Choice]] = {}
    for row in served:
        for gpus in (2, 4, 8):
            if gpus % row.gpus == 0:
                replicas = gpus // row.gpus
                key = (row.model, row.hw, row.precision, row.prompt, row.new, gpus, row.batch * replicas)
                measured = row.ttft + (row.new - 1) * row.tpot
                by_key.setdefault(key, []).append(Choice(row, replicas, measured, expected[row]))
    for key, choices in by_key.items():
        if len({choice.row.gpus for choice in choices}) > 1:
            model, hw, *_, gpus, batch = key
            yield Group(str(model), str(hw), int(str(gpus)), int(str(batch)), tuple(choices))


def expectation(row: ServedBatch) -> Expected:
    """The inverse of the expected seconds of the batch: its prefill, and all decodes at their mean cache length.

    All layouts of a group serve the same number of requests, so that their rates are in the same ratio.
    """
    arch, device = loaded(row.model, row.hw)
    form = Formats(row.precision, activations=ACTIVATIONS.get(row.precision))
    served = replica(arch, device, Layout(row.gpus), form, memory_utilization=1.0)
    prefill = prefill_times(served, row.batch, row.prompt)
    total: StepTimes = prefill + (row.new - 1) * decode_times(served, row.batch, row.prompt + row.new // 2)
    return Expected(1 / total.seconds, 1 / total.high, 1 / total.low)


def table(all_groups: Iterable[Group]) -> str:
    """Markdown: one line per model, device and number of GPUs."""
    lines = [TITLES, "|---|---|---:|---:|---:|---:|---:|---:|---:|"]
    by_name: dict[tuple[str, str, str], list[Group]] = {}
    for group in all_groups:
        by_name.setdefault((group.model, group.hw, str(group.gpus)), []).append(group)
    every = [group for some in by_name.values() for group in some]
    return "\n".join([*lines, *(_line(*each) for each in sorted(by_name.items())), _line(("all", "", ""), every)])


TITLES = (
    "| model | device | GPUs | groups | layouts | fastest is first | first or tied | tied with the first | "
    "time lost with the first |"
)


def first_or_tied(all_groups: list[Group]) -> float:
    """The share of groups whose fastest layout is ranked first or ties with the first."""
    return sum(any(choice is group.fastest for choice in group.tied) for group in all_groups) / len(all_groups)


def _line(name: tuple[str, ...], some: list[Group]) -> str:
    count = len(some)
    first = sum(group.first is group.fastest for group in some) / count
    layouts, tied = sum(len(group.choices) for group in some) / count, sum(len(group.tied) for group in some) / count
    lost = sum(group.first.measured / group.fastest.measured - 1 for group in some) / count
    cells = (f"{layouts:.1f}", f"{first:.0%}", f"{first_or_tied(some):.0%}", f"{tied - 1:.1f}", f"{lost:.1%}")
    return f"| {' | '.join((*name, str(count), *cells))} |"


def main() -> None:
    """Print the table; with `--into`, also replace it in a page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="the folder with trtllm_e2e.csv.gz")
    pages.add_option(parser)
    arguments = parser.parse_args()
    text = table(groups(arguments.folder))
    print(text)
    pages.replace_tables(arguments.into, [text])


if __name__ == "__main__":
    main()
