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

MIN_PART_SECONDS = 10  # seconds; no part starts with less time left
CLOCKS = ("timestamp", "clocks.sm", "clocks.mem", "power.draw", "temperature.gpu", "utilization.gpu")
THROTTLE_FIELDS = ("clocks_throttle_reasons.active", "clocks_event_reasons.active")  # names in older and newer drivers
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # Ctrl-C, a batch system's limit, a closed terminal


def main(arguments: list[str] | None = None) -> int:
    """Exit status 0 if every part is done or does not apply, 1 if one failed or was cut off, 130 if interrupted."""
    parser = _parser()
    options = parser.parse_args(arguments)
    folder = options.output.resolve()
    all_parts = parts(folder, options.small)
    names = options.only.split(",") if options.only else [part.name for part in all_parts]
    if unknown := set(names) - {part.name for part in all_parts}:
        parser.error(f"--only: unknown part {min(unknown)!r}; known: {', '.join(part.name for part in all_parts)}")
    chosen = [part for part in all_parts if part.name in names]
    if options.pack:
        if not (folder / "manifest.json").exists():
            parser.error(f"--pack: {options.output} has no manifest.json: it is not a folder of the kit")
        return int(not _scrub_and_pack(folder))
    if problem := _create_folder(folder):
        print(f"-o {options.output}: {problem}", file=sys.stderr)
        return 2
    for each in SIGNALS:
        if signal.getsignal(each) != signal.SIG_IGN:  # nohup ignores SIGHUP
            signal.signal(each, _interrupt)
    begin, outcomes, status, clocks = time.monotonic(), dict[str, Outcome](), 0, None
    try:
        clocks = _start_clock_log(folder / "clocks.csv")
        for number, part in enumerate(chosen, 1):
            elapsed = time.monotonic() - begin
            _print_line(f"[{elapsed:4.0f} s] {number}/{len(chosen)} {part.name} …")
            began = datetime.now().astimezone().isoformat(timespec="milliseconds")
            outcomes[part.name] = Outcome("begun", 0, began=began)
            _write_manifest(folder, chosen, outcomes, options.small)
            outcome = _run(part, folder, options.minutes * 60 - elapsed)._replace(began=began)
            outcomes[part.name] = outcome
            _print_line(
                f"         {outcome.status} in {outcome.seconds:.0f} s{outcome.message and f': {outcome.message}'}"
            )
            status = status or int(outcome.status in ("failed", "cut off"))
    except KeyboardInterrupt:
        status = 130
        _print_line("interrupted: the results written so far remain")
        for name, outcome in outcomes.items():
            if outcome.status == "begun":
                outcomes[name] = outcome._replace(status="cut off", message="interrupted; its results so far remain")
    finally:
        _ignore_signals()  # the rest takes seconds and completes the folder
        if clocks is not None:
            _end_clock_log(clocks)
    _write_manifest(folder, chosen, outcomes, options.small)
    return status if _scrub_and_pack(folder) else status or 1


def _scrub_and_pack(folder: Path) -> bool:
    """Remove the names of this machine from the folder and pack it next to itself; returns whether it was packed."""
    unscrubbed = scrub(folder)
    for file in unscrubbed:
        _print_line(f"not packed, because names of this machine cannot be removed from it: {file}")
    try:
        packed = _pack(folder, unscrubbed)
    except OSError as error:
        _print_line(f"{folder} could not be packed ({error.strerror}); it contains all results")
        _print_line("after freeing disk space, pack it with --pack")
        return False
    _print_line(f"{packed} ({packed.stat().st_size / 1e6:.1f} MB): the file to send")
    _print_line(f"its contents: PYTHONPATH={_ROOT} {sys.executable} -m benchmarks.collect.report {folder}")
    return True


def _interrupt(number: int, frame: FrameType | None) -> None:
    """The first signal ends the collection; later signals are ignored, so that packing completes."""
    _ignore_signals()
    raise KeyboardInterrupt


def _ignore_signals() -> None:
    for each in SIGNALS:
        signal.signal(each, signal.SIG_IGN)


def _print_line(text: str) -> None:
    """Print to stdout; a closed terminal or a full disk does not end the collection."""
    with suppress(OSError):
        print(text, flush=True)


def _create_folder(folder: Path) -> str | None:
    """Create the folder and try to write next to it; returns the reason of a failure."""
    try:
        if folder.exists() and any(folder.iterdir()):
            return "is not empty; name a new folder"
        folder.parent.mkdir(parents=True, exist_ok=True)
        partial = _partial_archive(folder)
        partial.touch()
        partial.unlink()
        (folder / "logs").mkdir(parents=True)
    except OSError as error:
        return f"{error.filename} cannot be written ({error.strerror}); name a folder in a writable place"
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
    parser = argparse.ArgumentParser("collect_gpu.sh", description="Measure this machine's GPU.")
    now = datetime.now().strftime("%Y%m%d-%H%M")
    parser.add_argument(
        "-o", "--output", type=Path, default=Path(f"collected-{now}"), help="folder of the results; created if missing"
    )
    parser.add_argument(
        "--minutes",
        type=float,
        default=8.5,
        help="time limit of all parts together; parts that do not fit are left out",
    )
    parser.add_argument("--only", help="only these parts, such as ceilings,operators-cold")
    parser.add_argument("--pack", action="store_true", help="only pack FOLDER, after a run that was killed")
    parser.add_argument("--small", action="store_true", help="trial with tiny models, also on a CPU")
    return parser


def _write_manifest(folder: Path, chosen: list[KitPart], outcomes: dict[str, Outcome], small: bool) -> None:
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
        _print_line(f"manifest.json cannot be written ({error.strerror})")


def _end_clock_log(process: subprocess.Popen[bytes]) -> None:
    """End nvidia-smi; kill it if it does not end. One that hangs in the driver is left running."""
    for stop in (process.terminate, process.kill):
        stop()
        with suppress(subprocess.TimeoutExpired):
            process.wait(2)
            return


def _start_clock_log(file: Path) -> subprocess.Popen[bytes] | None:
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
    _print_line("no clocks.csv: nvidia-smi does not report clocks")
    return None


def _partial_archive(folder: Path) -> Path:
    """The archive while it is written."""
    return folder.with_name(f"{folder.name}.tar.gz.part")


def _pack(folder: Path, excluded: list[Path]) -> Path:
    """Pack the folder without the files in `excluded`. Raises OSError if the disk is full."""

    def anonymous(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = ""
        return entry

    partial = _partial_archive(folder)
    try:
        with tarfile.open(partial, "w:gz") as archive:
            for path in (folder, *sorted(folder.rglob("*"))):
                if path not in excluded:
                    name = Path(folder.name) / path.relative_to(folder)
                    archive.add(path, str(name), recursive=False, filter=anonymous)
        return partial.replace(folder.with_name(f"{folder.name}.tar.gz"))
    finally:
        with suppress(OSError):
            partial.unlink()


if __name__ == "__main__":
    sys.exit(main())
