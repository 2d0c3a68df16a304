"""Work from one profile, times from another: counters slow a run down, so both are seldom collected at once.

Launches are paired by base name, grid and block, in order; tools spell template arguments differently, so
the full name is no key. Where the numbers of launches differ, each takes the mean time of its kind.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from roofmodel.errors import ProfileError
from roofmodel.profiles.kernel import Kernel, Profile
from roofmodel.study.profile.points import base_name

Key = tuple[object, ...]

# What a run lacks that the other one has. Of the timed run no counter is used.
_ON_TIMES = re.compile(r"\bseconds unknown")
_ON_COUNTERS = re.compile(r"\b(?:FLOPs|bytes|operations) (?:are bounds|unknown)")


def with_times(counted: Profile, timed: Profile) -> Profile:
    """The counted kernels with the times of the timed ones, and warnings on what did not pair.

    The clock goes with the time. A kernel without a partner keeps its own time. Raises ProfileError where nothing
    pairs at all.
    """
    shapes = all(kernel.grid and kernel.block for kernel in (*counted.kernels, *timed.kernels))
    times = _by_key(timed.kernels, shapes)
    kernels: list[Kernel] = []
    averaged, alone = 0, 0
    for key, launches in _by_key(counted.kernels, shapes).items():
        partners = [kernel for kernel in times.get(key, []) if kernel.seconds is not None]
        if not partners:
            alone += sum(kernel.invocations for kernel in launches)
            kernels += launches
            continue
        ours, theirs = (sum(kernel.invocations for kernel in side) for side in (launches, partners))
        if len(launches) == len(partners) and ours == theirs:
            kernels += (replace(a, seconds=b.seconds, clock=b.clock) for a, b in zip(launches, partners, strict=True))
        else:
            averaged += ours
            mean = sum(kernel.seconds or 0 for kernel in partners) / theirs
            kernels += (replace(kernel, seconds=mean * kernel.invocations, clock=None) for kernel in launches)
    total = sum(kernel.invocations for kernel in counted.kernels)
    if alone == total:
        raise ProfileError(
            f"{', '.join(timed.files)}: no kernel in it is one of {', '.join(counted.files)}, by name"
            f"{', grid and block' if shapes else ''}; give the times of the same program"
        )
    warnings = []
    if averaged:
        warnings.append(
            f"{averaged} of {total} launches take the mean time of their kind: the runs launch it unequally"
        )
    if alone:
        files = ", ".join(timed.files)
        warnings.append(f"{alone} of {total} launches have no partner in {files} and keep their own time")
    return replace(
        counted,
        files=(*counted.files, *timed.files),
        kernels=tuple(kernels),
        evidence=(*counted.evidence, *timed.evidence),
        warnings=(
            *(w for w in counted.warnings if alone or not _ON_TIMES.search(str(w))),
            *(w for w in timed.warnings if not _ON_COUNTERS.search(str(w))),
            *warnings,
        ),
    )


def _by_key(kernels: Iterable[Kernel], shapes: bool) -> dict[Key, list[Kernel]]:
    found: dict[Key, list[Kernel]] = {}
    for kernel in kernels:
        name = base_name(kernel.name)
        found.setdefault((name, kernel.grid, kernel.block) if shapes else (name,), []).append(kernel)
    return found
