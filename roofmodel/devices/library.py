"""Lookup of device files: a path, the user's folder, the files that come with roofmodel."""

from __future__ import annotations

import os
import re
from functools import cache
from pathlib import Path

from roofmodel.errors import SWEEP, DeviceError, choices, shorten
from roofmodel.files.text_files import expand

ALIASES = {"v100": "v100-sxm2-32gb", "a100": "a100-sxm-80gb", "h100": "h100-sxm"}


def find(name: str | os.PathLike[str]) -> Path:
    """The file of a device, by path, name or alias. Raises DeviceError for a name that is none."""
    if not isinstance(name, str | os.PathLike):
        raise DeviceError(f"{shorten(name)} is no device; give a name such as 'a100' or a YAML file")
    bare = isinstance(name, str) and not name.lower().endswith((".yaml", ".yml")) and os.sep not in name
    name = os.fspath(name)
    if bare:
        stem = ALIASES.get(name.lower(), name.lower())
        for folder in folders():
            if os.path.isfile(path := folder / f"{stem}.yaml"):
                return path
        if "," in name and not os.path.exists(name):
            first = name.split(",")[0].strip()
            raise DeviceError(
                f"{shorten(name)} are several devices; give one, such as {first!r}; ", SWEEP, " takes several"
            )
        if not os.path.exists(name):
            raise DeviceError(
                f"unknown device {shorten(name)}{choices(name, [*ALIASES, *names()])}; or give a YAML file of your own"
            )
    if os.path.isdir(expand(name)):
        raise DeviceError(f"{name}: a folder; give a device's YAML file")
    return expand(name)


def text(name: str | os.PathLike[str]) -> str:
    """The text of a device's file. Raises DeviceError."""
    return find(name).read_text(encoding="utf-8").rstrip()


def text_at_clock(name: str, boost: float | None) -> str:
    """The text of a device's file, with its peaks at another boost clock, in hertz."""
    whole = text(name)
    if not boost or not (stated := re.search(r"^  boost: ([\d.]+) MHz$", whole, re.MULTILINE)):
        return whole
    factor = boost / 1e6 / float(stated[1])
    if abs(factor - 1) < 1e-9:
        return whole
    whole = whole.replace(stated[0], f"  boost: {boost / 1e6:.10g} MHz  # stated by a profile; peaks are scaled to it")
    return re.sub(r"(?<=\{peak: )[\d.]+", lambda peak: f"{float(peak[0]) * factor:.5g}", whole)


def fitted_file(path: Path) -> Path | None:
    """The file of the parameters that were fitted on a device that comes with roofmodel."""
    file = path.parent / "fitted" / path.name
    return file if path.parent == shipped_folder() and file.is_file() else None


def names() -> list[str]:
    """The stems of all device files, including the user's."""
    return sorted({path.stem for folder in folders() for path in folder.glob("*.yaml")})


def folders() -> tuple[Path, ...]:
    """The user's folder, then the folder of roofmodel."""
    config = expand(os.environ.get("XDG_CONFIG_HOME") or "~/.config")
    return config / "roofmodel" / "hardware", shipped_folder()


@cache
def shipped_folder() -> Path:
    """The folder of the files that come with roofmodel."""
    package = Path(__file__).parents[1]
    # A wheel has the files inside the package; a checkout has them next to it.
    return package / "hardware" if (package / "hardware").is_dir() else package.parent / "hardware"
