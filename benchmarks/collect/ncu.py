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
from benchmarks.collect.parts import PYTHON, SKIPPED
from benchmarks.collect.workloads import config_of
from roofmodel.study.collect import collect

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
    found = environment.read(folder)
    device = found["hardware"] or ("a100" if small else None)
    if device is None:
        return _skip("no device of roof's is this one, so its metrics are not known")
    config = folder / "configs" / f"{name}-{LAYERS}-layers.json"
    config.parent.mkdir(exist_ok=True)
    facts = config_of(name, small, found["device"].get("dram_bytes"), layers=LAYERS)
    config.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    program = [*PYTHON, "benchmarks.collect.one_step", str(config), phase, *(["--small"] if small else [])]
    report = folder / f"ncu-{name}-{phase}.ncu-rep"
    with (folder / f"ncu-{name}-{phase}.txt").open("w", encoding="utf-8") as said:
        for roofline in (True, False):
            done = _run(line(program, device, report, roofline), said)
            if REFUSED in done.stdout:
                return _skip(f"{REFUSED}: counters are for administrators on this machine")
            if done.returncode == 0 and report.exists():
                break
        else:
            print(done.stdout[-2000:])
            return 1
        for suffix, options in PAGES.items():
            made = _run(["ncu", "--import", str(report), *options], said, quiet=True)
            if made.returncode == 0:
                report.with_suffix(f".{suffix}").write_text(made.stdout, encoding="utf-8")
            else:
                print(f"{suffix}: {made.stdout[:200]}")
    if report.stat().st_size > LARGEST:
        report.unlink()
    return 0


def line(program: list[str], device: str, report: Path, roofline: bool) -> list[str]:
    """roof's own line, into a report instead of a CSV, of what the program marks by cudaProfilerStart."""
    ours = [part.words for part in collect(program, device, count=LAUNCHES).parts if part.words[0] not in INTO_CSV]
    words = [*chain(*ours), "--profile-from-start", "off", *(("--set", "roofline") if roofline else ())]
    return ["ncu", *words, "-f", "-o", str(report.with_suffix("")), *program]


def _run(command: list[str], said: object, quiet: bool = False) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    print(f"$ {shlex.join(command)}\n{'' if quiet else done.stdout}", file=said, flush=True)  # type: ignore[call-overload]
    return done


def _skip(why: str) -> int:
    print(why)
    return SKIPPED


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2], sys.argv[3], "--small" in sys.argv))
