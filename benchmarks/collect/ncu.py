"""Nsight Compute on one step of a model of two layers: a report, and its CSV exports in each layout.

The command is the one of `roof ncu-command` with `--set roofline` added, and writes a report. An ncu without this set
(2020) collects only the metrics. ncu-PHASE.txt has the commands and the output of ncu.
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
from roofmodel.plot.ncu_command import collect

LAYERS = 2  # layers are equal, and each launch is replayed dozens of times
LAUNCHES = 400
MAX_REPORT_BYTES = 4 * 2**20  # larger reports are deleted
PAGES = {
    "raw.csv": ("--csv", "--page", "raw"),
    "raw-base.csv": ("--csv", "--page", "raw", "--print-units", "base"),
    "details.csv": ("--csv", "--page", "details"),
    "summary.csv": ("--csv", "--print-summary", "per-kernel"),
    "details.txt": ("--page", "details"),
}
CSV_OPTIONS = ("--csv", "--print-units", "--log-file")
NO_PERMISSION = "ERR_NVGPUCTRPERM"  # only administrators may read counters


def main(folder: Path, name: str, phase: str, small: bool) -> int:
    """SKIPPED, with the reason as the last line, without ncu, a device for it, or permission to read counters."""
    if not shutil.which("ncu"):
        return _skip("ncu is not on the PATH; load its module, or add the bin folder of CUDA")
    document = environment.read(folder, small)
    if "problem" in document:
        print(f"error: {document['problem']}")
        return 1
    device = document.get("hardware") or ("a100" if small else None)
    if device is None:
        return _skip("no file in hardware/ describes this device, so its metrics are unknown")
    config = folder / "configs" / f"{name}-{LAYERS}-layers.json"
    config.parent.mkdir(exist_ok=True)
    facts = config_of(name, small, document.get("device", {}).get("dram_bytes"), layers=LAYERS)
    config.write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    program = [*PYTHON, "benchmarks.collect.one_step", str(config), phase, *(["--small"] if small else [])]
    report = folder / f"ncu-{name}-{phase}.ncu-rep"
    log = folder / f"ncu-{name}-{phase}.txt"
    for roofline in (True, False):
        status, output = _run(ncu_command(program, device, report, roofline), log)
        if NO_PERMISSION in output:
            return _skip(f"{NO_PERMISSION}: only administrators may read the counters of this machine")
        if status == 0 and report.exists():
            break
    else:
        print(f"error: {_reason(output, status)}")
        return 1
    for suffix, options in PAGES.items():
        page, partial = report.with_suffix(f".{suffix}"), folder / f"{report.stem}.{suffix}.part"
        status, output = _run(["ncu", "--import", str(report), *options], log, partial)
        if status == 0:
            partial.replace(page)
        else:
            print(f"{suffix}: {_reason(output, status)}")
    if report.stat().st_size > MAX_REPORT_BYTES:
        report.unlink()
    return 0


def ncu_command(program: list[str], device: str, report: Path, roofline: bool) -> list[str]:
    """The command of `roof ncu-command`, but with a report and only the range after cudaProfilerStart."""
    own_words = [
        part.words for part in collect(program, device, count=LAUNCHES).parts if part.words[0] not in CSV_OPTIONS
    ]
    words = [*chain(*own_words), "--profile-from-start", "off", *(("--set", "roofline") if roofline else ())]
    return ["ncu", *words, "-f", "-o", str(report.with_suffix("")), *program]


def _run(command: list[str], log: Path, page: Path | None = None) -> tuple[int, str]:
    """The exit status and output of a command. The command and its output are appended to `log`, or the output goes
    to `page`, while it runs, so that an interrupted run leaves them."""
    with log.open("a", encoding="utf-8") as out:
        print(f"$ {shlex.join(command)}", file=out)
    target = page or log
    with target.open("ab") as out:
        before = out.tell()
        done = subprocess.run(command, stdout=out, stderr=subprocess.STDOUT, preexec_fn=end_with_parent, check=False)
    with target.open("rb") as written:
        written.seek(before)
        return done.returncode, written.read(2**20).decode(errors="replace")


def _reason(output: str, status: int) -> str:
    """The error line of ncu or of the profiled program, else the last line."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("==ERROR==") and "application returned" not in line]
    return f"ncu ended with status {status}: {(errors[0] if errors else reason(lines) or 'no output')[:200]}"


def _skip(reason_text: str) -> int:
    print(reason_text)
    return SKIPPED


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2], sys.argv[3], "--small" in sys.argv))
