"""Nsight Compute on one step of a model of two layers: a report, and each layout of CSV that ncu makes of it.

The line is that of `roof ncu-command`, with `--set roofline` beside our metrics, into a report; an ncu that has no such
set (2020) collects the metrics alone. ncu-PHASE.txt holds the lines, and what ncu said.
"""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
from itertools import chain
from pathlib import Path

from benchmarks.collect import environment
from benchmarks.collect.parts import PYTHON, SKIPPED, end_with_parent, reason
from benchmarks.collect.workloads import config_of
from roofmodel.study.profile.ncu_command import collect

LAYERS = 2  # layers are alike, and each launch is replayed dozens of times
LAUNCHES = 400
LARGEST = 4 * 2**20  # bytes of a report that is kept
PAGES = {
    "raw.csv": ("--csv", "--page", "raw"),
    "raw-base.csv": ("--csv", "--page", "raw", "--print-units", "base"),
    "details.csv": ("--csv", "--page", "details"),
    "summary.csv": ("--csv", "--print-summary", "per-kernel"),
    "details.txt": ("--page", "details"),
}
INTO_CSV = ("--csv", "--print-units", "--log-file")
REFUSED = "ERR_NVGPUCTRPERM"  # counters are for administrators here


def main(folder: Path, name: str, phase: str, small: bool) -> int:
    """SKIPPED, with the reason as the last line, where there is no ncu, no device for it, or no right to count."""
    if not shutil.which("ncu"):
        return _skip("there is no ncu on the PATH; `module load` or CUDA's own bin folder may bring it")
    found = environment.read(folder, small)
    if "problem" in found:
        print(f"error: {found['problem']}")
        return 1
    device = found.get("hardware") or ("a100" if small else None)
    if device is None:
        return _skip("no device of roof's is this one, so its metrics are not known")
    config = folder / "configs" / f"{name}-{LAYERS}-layers.json"
    config.parent.mkdir(exist_ok=True)
    facts = config_of(name, small, found.get("device", {}).get("dram_bytes"), layers=LAYERS)
    config.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    program = [*PYTHON, "benchmarks.collect.one_step", str(config), phase, *(["--small"] if small else [])]
    report = folder / f"ncu-{name}-{phase}.ncu-rep"
    told = folder / f"ncu-{name}-{phase}.txt"
    for roofline in (True, False):
        status, said = _run(line(program, device, report, roofline), told)
        if REFUSED in said:
            return _skip(f"{REFUSED}: counters are for administrators on this machine")
        if status == 0 and report.exists():
            break
    else:
        print(f"error: {_reason(said, status)}")
        return 1
    for suffix, options in PAGES.items():
        page, beside = report.with_suffix(f".{suffix}"), folder / f"{report.stem}.{suffix}.part"
        status, said = _run(["ncu", "--import", str(report), *options], told, beside)
        if status == 0:
            beside.replace(page)
        else:
            print(f"{suffix}: {_reason(said, status)}")
    if report.stat().st_size > LARGEST:
        report.unlink()
    return 0


def line(program: list[str], device: str, report: Path, roofline: bool) -> list[str]:
    """roof's own line, into a report instead of a CSV, of what the program marks by cudaProfilerStart."""
    ours = [part.words for part in collect(program, device, count=LAUNCHES).parts if part.words[0] not in INTO_CSV]
    words = [*chain(*ours), "--profile-from-start", "off", *(("--set", "roofline") if roofline else ())]
    return ["ncu", *words, "-f", "-o", str(report.with_suffix("")), *program]


def _run(command: list[str], told: Path, page: Path | None = None) -> tuple[int, str]:
    """Its status, and what it said. Both go straight into a file, so that they are there if it is cut off: the line
    behind what `told` holds, what it said behind that, or into a page of its own."""
    with told.open("a", encoding="utf-8") as out:
        print(f"$ {shlex.join(command)}", file=out)
    into = page or told
    with into.open("ab") as out:
        before = out.tell()
        done = subprocess.run(command, stdout=out, stderr=subprocess.STDOUT, preexec_fn=end_with_parent, check=False)
    with into.open("rb") as written:
        written.seek(before)
        return done.returncode, written.read(2**20).decode(errors="replace")


def _reason(said: str, status: int) -> str:
    """ncu's own word for what went wrong, or that of the program that it ran, else its last."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    words = [line for line in lines if line.startswith("==ERROR==") and "application returned" not in line]
    return f"ncu ended with status {status}: {(words[0] if words else reason(lines) or 'it said nothing')[:200]}"


def _skip(why: str) -> int:
    print(why)
    return SKIPPED


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2], sys.argv[3], "--small" in sys.argv))
