"""Run all parts, one after the other, within the time; say how far it is; leave a folder that tells what it holds.

    benchmarks/collect_gpu.sh -o FOLDER

After each part `manifest.json` says what became of it. In the end, or when it is interrupted, the folder is packed
beside itself as FOLDER.tar.gz.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.collect.environment import gpu
from benchmarks.collect.parts import Outcome, Part, parts, run
from benchmarks.collect.scrub import scrub

LEAST = 10  # seconds, with less than which no part is begun
CLOCKS = "timestamp,clocks.sm,clocks.mem,power.draw,temperature.gpu,utilization.gpu,clocks_throttle_reasons.active"


def main(arguments: list[str] | None = None) -> int:
    """0 where every part is done or does not apply, 1 where one failed or was cut off, 130 where we were."""
    asked = _parser().parse_args(arguments)
    folder = asked.output.resolve()
    chosen = _chosen(parts(folder, asked.small), asked.only)
    if folder.exists() and any(folder.iterdir()):
        print(f"{asked.output} is not empty: a collection wants a folder of its own", file=sys.stderr)
        return 2
    (folder / "logs").mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # batch systems end a job so
    begin, outcomes, status = time.monotonic(), dict[str, Outcome](), 0
    clocks = _watch_clocks(folder / "clocks.csv")
    try:
        for part, outcome in _run_all(chosen, folder, asked.minutes * 60):
            outcomes[part.name] = outcome
            status = status or int(outcome.status in ("failed", "cut off"))
            _record(folder, chosen, outcomes, asked.small)
    except KeyboardInterrupt:
        status = 130
        print("interrupted: what is written stays", file=sys.stderr)
    finally:
        if clocks is not None:
            clocks.terminate()
            clocks.wait()
    _record(folder, chosen, outcomes, asked.small)
    scrub(folder)
    packed = _pack(folder)
    print(f"[{time.monotonic() - begin:4.0f} s] {packed} ({packed.stat().st_size / 1e6:.1f} MB): the file to send")
    print(f"what it holds: PYTHONPATH={_ROOT} {sys.executable} -m benchmarks.collect.report {folder}")
    return status


def _run_all(chosen: list[Part], folder: Path, seconds: float) -> Iterator[tuple[Part, Outcome]]:
    """Each part in turn, while there is time, told on stdout as it begins and ends."""
    begin = time.monotonic()
    for number, part in enumerate(chosen, 1):
        gone = time.monotonic() - begin
        print(f"[{gone:4.0f} s] {number}/{len(chosen)} {part.name} …", flush=True)
        outcome = Outcome("cut off", 0, "no time left")
        if seconds - gone > LEAST:
            outcome = run(part, folder / "logs" / f"{part.name}.txt", seconds - gone)
        print(f"         {outcome.status} in {outcome.seconds:.0f} s{outcome.message and f': {outcome.message}'}")
        yield part, outcome


_ROOT = Path(__file__).parents[2]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("collect_gpu.sh", description="Collect evidence on this machine's GPU.")
    now = datetime.now().strftime("%Y%m%d-%H%M")
    parser.add_argument("-o", "--output", type=Path, default=Path(f"collected-{now}"), help="a folder, made if need be")
    parser.add_argument("--minutes", type=float, default=8.5, help="in all; what does not fit is left out")
    parser.add_argument("--only", help="these parts, as in ceilings,operators-cold")
    parser.add_argument("--small", action="store_true", help="try it out with tiny models, on a CPU too")
    return parser


def _chosen(all_parts: list[Part], only: str | None) -> list[Part]:
    known = [part.name for part in all_parts]
    names = only.split(",") if only else known
    for name in names:
        if name not in known:
            sys.exit(f"--only: there is no part {name!r}; there are {', '.join(known)}")
    return [part for part in all_parts if part.name in names]


def _record(folder: Path, chosen: list[Part], outcomes: dict[str, Outcome], small: bool) -> None:
    """What became of each part so far, written beside and renamed: never half a file."""
    document = {
        "schema": "roofmodel.collection/1",
        "written": datetime.now(UTC).isoformat(timespec="seconds"),
        "small": small,
        "parts": [
            {"name": part.name, "command": " ".join(part.command), **outcomes[part.name]._asdict()}
            if part.name in outcomes
            else {"name": part.name, "command": " ".join(part.command), "status": "not begun"}
            for part in chosen
        ],
    }
    beside = folder / "manifest.json.part"
    beside.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    beside.replace(folder / "manifest.json")


def _watch_clocks(file: Path) -> subprocess.Popen[bytes] | None:
    """nvidia-smi, a line a second until the end: clocks before, during and after each part."""
    if not shutil.which("nvidia-smi"):
        return None
    command = ["nvidia-smi", "-i", gpu(), f"--query-gpu={CLOCKS}", "--format=csv", "-l", "1"]
    with file.open("wb") as out:
        return subprocess.Popen(command, stdout=out, stderr=subprocess.DEVNULL)


def _pack(folder: Path) -> Path:
    packed = folder.with_name(f"{folder.name}.tar.gz")
    beside = packed.with_name(f"{packed.name}.part")
    with tarfile.open(beside, "w:gz") as archive:
        archive.add(folder, folder.name)
    return beside.replace(packed)


if __name__ == "__main__":
    sys.exit(main())
