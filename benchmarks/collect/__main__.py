"""Run all parts in order within the time limit, with progress, and write a folder with a manifest.

    benchmarks/collect_gpu.sh -o FOLDER

`manifest.json` has the start time and the outcome of each part. At the end, or after an interruption, the folder is
packed as FOLDER.tar.gz in the same place.
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
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType

from benchmarks.collect.environment import gpu
from benchmarks.collect.parts import KitPart, Outcome, end_with_parent, parts, run, write_text
from benchmarks.collect.scrub import scrub
from roofmodel.study.benchmark.clocks import end

MIN_PART_SECONDS = 10  # seconds; no part starts with less time left
CLOCKS = ("timestamp", "clocks.sm", "clocks.mem", "power.draw", "temperature.gpu", "utilization.gpu")
THROTTLE_FIELDS = ("clocks_throttle_reasons.active", "clocks_event_reasons.active")  # names in older and newer drivers
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # Ctrl-C, a batch system's limit, a closed terminal


def main(arguments: list[str] | None = None) -> int:
    """Exit status 0 if every part is done or does not apply, 1 if one failed or was cut off, 130 if interrupted."""
    parser = _parser()
    asked = parser.parse_args(arguments)
    folder = asked.output.resolve()
    every = parts(folder, asked.small)
    names = asked.only.split(",") if asked.only else [part.name for part in every]
    if unknown := set(names) - {part.name for part in every}:
        parser.error(f"--only: there is no part {min(unknown)!r}; there are {', '.join(part.name for part in every)}")
    chosen = [part for part in every if part.name in names]
    if asked.pack:
        if not (folder / "manifest.json").exists():
            parser.error(f"--pack: {asked.output} has no manifest.json: it is no folder of a collection")
        return int(not _send(folder))
    if problem := _create_folder(folder):
        print(f"-o {asked.output}: {problem}", file=sys.stderr)
        return 2
    for each in SIGNALS:
        if signal.getsignal(each) != signal.SIG_IGN:  # nohup ignores SIGHUP
            signal.signal(each, _interrupt)
    begin, outcomes, status, clocks = time.monotonic(), dict[str, Outcome](), 0, None
    try:
        clocks = _watch_clocks(folder / "clocks.csv")
        for number, part in enumerate(chosen, 1):
            gone = time.monotonic() - begin
            _say(f"[{gone:4.0f} s] {number}/{len(chosen)} {part.name} …")
            began = datetime.now().astimezone().isoformat(timespec="milliseconds")
            outcomes[part.name] = Outcome("begun", 0, began=began)
            _record(folder, chosen, outcomes, asked.small)
            outcome = _run(part, folder, asked.minutes * 60 - gone)._replace(began=began)
            outcomes[part.name] = outcome
            _say(f"         {outcome.status} in {outcome.seconds:.0f} s{outcome.message and f': {outcome.message}'}")
            status = status or int(outcome.status in ("failed", "cut off"))
    except KeyboardInterrupt:
        status = 130
        _say("interrupted: what is written stays")
        for name, outcome in outcomes.items():
            if outcome.status == "begun":
                outcomes[name] = outcome._replace(status="cut off", message="interrupted; what it had written stays")
    finally:
        _ignore()  # the rest takes seconds and completes the folder
        if clocks is not None:
            end(clocks)
    _record(folder, chosen, outcomes, asked.small)
    return status if _send(folder) else status or 1


def _send(folder: Path) -> bool:
    """The folder without the names of this machine, packed beside itself; whether there was room for it."""
    unread = scrub(folder)
    for file in unread:
        _say(f"left out of what is to be sent, since names of this machine cannot be taken out of it: {file}")
    try:
        packed = _pack(folder, unread)
    except OSError as error:
        _say(f"{folder} could not be packed ({error.strerror}); it is there, and holds what was measured")
        _say("with room for it, --pack does what is missing")
        return False
    _say(f"{packed} ({packed.stat().st_size / 1e6:.1f} MB): the file to send")
    _say(f"what it holds: PYTHONPATH={_ROOT} {sys.executable} -m benchmarks.collect.report {folder}")
    return True


def _interrupt(number: int, frame: FrameType | None) -> None:
    """The first signal ends the collection; later signals are ignored, so that packing completes."""
    _ignore()
    raise KeyboardInterrupt


def _ignore() -> None:
    for each in SIGNALS:
        signal.signal(each, signal.SIG_IGN)


def _say(text: str) -> None:
    """Print to stdout; a closed terminal or a full disk does not end the collection."""
    with suppress(OSError):
        print(text, flush=True)


def _create_folder(folder: Path) -> str | None:
    """Create the folder and try to write next to it; returns the reason of a failure."""
    try:
        if folder.exists() and any(folder.iterdir()):
            return "is not empty: a collection wants a folder of its own"
        folder.parent.mkdir(parents=True, exist_ok=True)
        beside = _beside(folder)
        beside.touch()
        beside.unlink()
        (folder / "logs").mkdir(parents=True)
    except OSError as error:
        return f"{error.filename} cannot be written ({error.strerror}); name a folder where it and its tar.gz can be"
    return None


def _run(part: KitPart, folder: Path, seconds: float) -> Outcome:
    if seconds <= MIN_PART_SECONDS:
        return Outcome("cut off", 0, "no time left")
    try:
        return run(part, folder / "logs" / f"{part.name}.txt", seconds)
    except OSError as error:  # for example a full disk: the next part may still write a little
        return Outcome("failed", 0, str(error))


_ROOT = Path(__file__).parents[2]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("collect_gpu.sh", description="Collect evidence on this machine's GPU.")
    now = datetime.now().strftime("%Y%m%d-%H%M")
    parser.add_argument("-o", "--output", type=Path, default=Path(f"collected-{now}"), help="a folder, made if need be")
    parser.add_argument("--minutes", type=float, default=8.5, help="in all; what does not fit is left out")
    parser.add_argument("--only", help="these parts, as in ceilings,operators-cold")
    parser.add_argument("--pack", action="store_true", help="only pack what FOLDER holds, of a run that was killed")
    parser.add_argument("--small", action="store_true", help="try it out with tiny models, on a CPU too")
    return parser


def _record(folder: Path, chosen: list[KitPart], outcomes: dict[str, Outcome], small: bool) -> None:
    """Write the outcome of each part so far."""
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
    try:
        write_text(folder / "manifest.json", json.dumps(document, indent=1) + "\n")
    except OSError as error:
        _say(f"manifest.json cannot be written ({error.strerror})")


def _watch_clocks(file: Path) -> subprocess.Popen[bytes] | None:
    """Start nvidia-smi, which logs the clocks once a second. None if it is missing or does not answer."""
    if not shutil.which("nvidia-smi"):
        return None
    for fields in (*((*CLOCKS, reason) for reason in THROTTLE_FIELDS), CLOCKS):
        command = ["nvidia-smi", "-i", gpu(), f"--query-gpu={','.join(fields)}", "--format=csv"]
        try:  # query once: one field that the driver does not know makes all fail
            subprocess.run(command, capture_output=True, timeout=20, check=True)
            with file.open("wb") as out:
                return subprocess.Popen(
                    [*command, "-l", "1"], stdout=out, stderr=subprocess.STDOUT, preexec_fn=end_with_parent
                )
        except subprocess.CalledProcessError:
            continue
        except (OSError, subprocess.TimeoutExpired):
            break
    _say("no clocks.csv: nvidia-smi does not tell")
    return None


def _beside(folder: Path) -> Path:
    """The packed folder while it is written."""
    return folder.with_name(f"{folder.name}.tar.gz.part")


def _pack(folder: Path, without: list[Path]) -> Path:
    """Raises OSError where there is no room for it."""

    def anonymous(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = ""
        return entry

    beside = _beside(folder)
    try:
        with tarfile.open(beside, "w:gz") as archive:
            for path in (folder, *sorted(folder.rglob("*"))):
                if path not in without:
                    name = Path(folder.name) / path.relative_to(folder)
                    archive.add(path, str(name), recursive=False, filter=anonymous)
        return beside.replace(folder.with_name(f"{folder.name}.tar.gz"))
    finally:
        with suppress(OSError):
            beside.unlink()


if __name__ == "__main__":
    sys.exit(main())
