"""The reasons for the time of kernels with a known fault, against the measured gain of their cure, and against NVIDIA:
`python -m benchmarks.diagnosed [FOLDER] [--into docs/accuracy.md]`.

FOLDER has `diagnosed` and `unseen`, which the GPU kit measures with the sources of these names in `collect/`: counters
of pairs of kernels that do the same work (DISEASE__sick, DISEASE__cured), the rules of Nsight Compute, and the times
without a profiler. The reasons of `roofline/reasons`, their order and one threshold were chosen with `diagnosed` in
view. `unseen` was written and measured after that.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import median
from typing import NamedTuple

from benchmarks import pages
from roofmodel import read_profile
from roofmodel.devices.device import Device
from roofmodel.numbers import units
from roofmodel.roofline.points import Reason
from roofmodel.roofline.reasons import BOUNDS, NOTHING, reasons

FOLDER = Path(__file__).parents[1] / "tests/data/gpu/h100"
SETS = {"diagnosed": "fault of a kernel in view", "unseen": "fault of an unseen kernel"}
DEVICE = "h100"
EXPECTED: Mapping[str, str] = {
    "uncoalesced": "uncoalesced", "partial_sectors": "uncoalesced", "bank_conflicts": "bank_conflicts",
    "occupancy_registers": "registers", "occupancy_shared_memory": "shared_memory",
    "occupancy_block_size": "block_size", "one_sm": "few_blocks", "few_blocks": "few_blocks", "tail": "tail",
    "wrong_format_fp64": "double_precision", "atomics": "atomics", "divergence": "divergence",
    "local_memory": "local_memory", "latency": "latency", "no_tensor_cores": "no_tensor_cores",
    "unaligned_gemm": "unaligned", "small_gemm": "few_blocks",
    "row_sums_uncoalesced": "uncoalesced", "particles_partial": "uncoalesced", "transpose_uncoalesced": "uncoalesced",
    "transpose_bank_conflicts": "bank_conflicts", "stencil_fp64": "double_precision",
    "softmax_few_blocks": "few_blocks", "dot_shared_memory": "shared_memory", "dot_registers": "registers",
    "two_paths_divergence": "divergence", "sum_atomics": "atomics", "filter_spills": "local_memory",
    "gemm_tail": "tail",
}  # fmt: skip
"""The reason that is the fault of each sick kernel."""


class Diagnosis(NamedTuple):
    """A kernel of known state: its reasons, and what curing it won."""

    name: str
    state: str  # sick, cured or healthy
    reasons: list[Reason]
    measured: float | None  # seconds: sick - cured, without a profiler; None without a cured kernel
    rules: dict[str, float]  # of Nsight Compute: its estimated speedup of the whole kernel, in seconds

    @property
    def is_right(self) -> bool:
        """Whether the first reason is the fault; of a healthy kernel, whether it is at the ceiling of a unit."""
        first = self.reasons[0] if self.reasons else None
        if self.state == "healthy":
            return first is not None and first.reason in BOUNDS and first.evidence.startswith(NOTHING)
        return first is not None and first.reason == EXPECTED[self.name]

    @property
    def cost(self) -> float | None:
        """What the removal of the fault saves, wherever it is among the reasons: a cured kernel has none of it left."""
        return next((reason.most_seconds for reason in self.reasons if reason.reason == EXPECTED.get(self.name)), None)

    @property
    def ratio(self) -> float | None:
        """The cost of the fault / the measured gain of its cure."""
        return self.cost / self.measured if self.cost and self.measured and self.measured > 0 else None


def diagnoses(folder: Path) -> list[Diagnosis]:
    """The sick and the healthy kernels of a folder, in its order."""
    with (folder / "seconds.csv").open(encoding="utf-8") as file:
        times = {row["name"]: float(row["seconds"]) for row in csv.DictReader(file)}
    kernels = read_profile(folder / "raw.csv.gz", hw=DEVICE).kernels
    rules, device = _rules(folder / "details.csv.gz"), Device.load(DEVICE)
    results = []
    for name, kernel in zip(times, kernels, strict=True):
        fault, _, state = name.partition("__")
        if state == "cured":
            continue
        cured = times.get(f"{fault}__cured")
        gain = times[name] - cured if cured and state == "sick" else None
        estimates = {rule: share * (kernel.seconds or 0.0) for rule, share in rules.get(kernel.id, {}).items()}
        results.append(Diagnosis(fault, state, reasons(kernel, device), gain, estimates))
    return results


def _rules(path: Path) -> dict[str, dict[str, float]]:
    """By launch: each rule with a speedup of the whole kernel, and its estimate as a share of the time."""
    rules: dict[str, dict[str, float]] = {}
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if row["Rule Name"] and row["Estimated Speedup Type"] == "global":
                of_launch = rules.setdefault(row["ID"], {})
                share = float(row["Estimated Speedup"]) / 100
                of_launch[row["Rule Name"]] = max(share, of_launch.get(row["Rule Name"], 0.0))
    return rules


def tables(folder: Path = FOLDER) -> list[str]:
    """The table of the sums, and for each set that of the sick kernels, as Markdown."""
    results = {name: diagnoses(folder / name) for name in SETS}
    columns = [_sums(each) for each in results.values()]
    sums = ["| kernels with a known state | in view | unseen |", "|---|---:|---:|"]
    sums += [f"| {title} | {' | '.join(column[title] for column in columns)} |" for title in columns[0]]
    return ["\n".join(sums), *(_sick(SETS[name], each) for name, each in results.items())]


def _sick(title: str, results: Iterable[Diagnosis]) -> str:
    rows = [
        f"| {title} | first reason | its removal could win | measured gain | ratio "
        "| Nsight Compute: largest estimate |",
        "|---|---|---:|---:|---:|---|",
    ]
    for each in results:
        if each.state != "sick":
            continue
        first = each.reasons[0].reason if each.reasons else "none"
        largest = max(each.rules.values(), default=0.0)
        names = ", ".join(rule for rule, seconds in each.rules.items() if seconds == largest)
        rows.append(
            f"| `{each.name}` | {'' if each.is_right else '**not first:** '}`{first}` | {_time(each.cost)} "
            f"| {_time(each.measured)} | {'–' if each.ratio is None else f'{each.ratio:.2f}'} "
            f"| {names} {_time(largest)} |"
        )
    return "\n".join(rows)


def _sums(results: list[Diagnosis]) -> dict[str, str]:
    sick, healthy = ([each for each in results if each.state == state] for state in ("sick", "healthy"))
    ratios = [each.ratio for each in sick if each.ratio is not None]
    largest = [max(each.rules.values(), default=0.0) / each.measured for each in sick if each.ratio and each.measured]
    return {
        "the fault is the first reason": f"{sum(each.is_right for each in sick)} of {len(sick)}",
        "a healthy kernel has nothing to win": f"{sum(each.is_right for each in healthy)} of {len(healthy)}",
        "cost of the fault / measured gain: median": f"{median(ratios):.2f}",
        "cost of the fault / measured gain: least, largest": f"{min(ratios):.2f}, {max(ratios):.2f}",
        "Nsight Compute's largest estimate / measured gain: median": f"{median(largest):.2f}",
        "Nsight Compute's largest estimate / measured gain: least, largest": f"{min(largest):.2f}, {max(largest):.2f}",
    }


def _time(seconds: float | None) -> str:
    return "–" if seconds is None else units.seconds(seconds)


def main() -> None:
    """Write the tables to stdout or into pages."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", default=FOLDER, help="what the GPU kit measured")
    pages.add_option(parser)
    given = parser.parse_args()
    made = tables(given.folder)
    sys.stdout.write("\n\n".join(made) + "\n")
    pages.replace_tables(given.into, made)


if __name__ == "__main__":
    main()
