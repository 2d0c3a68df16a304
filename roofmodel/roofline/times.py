"""Counters of one profile combined with the times of another, because collecting counters slows a run down.

Launches are matched in order among those with the same base name, grid and block. Full names do not match, because
tools write template arguments differently. If the numbers of such launches differ, each gets their mean time.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from roofmodel.errors import ProfileError
from roofmodel.profiles.kernel import Kernel, Profile, ReaderWarning
from roofmodel.roofline.categories import base_name

Key = tuple[object, ...]


def with_times(counted: Profile, timed: Profile) -> Profile:
    """The kernels of `counted` with the times and clocks of `timed`, and warnings about launches without a match.

    A kernel without a match keeps its own time. Warnings that do not apply to the result are dropped: about times of
    `counted`, about counters of `timed`. Raises ProfileError if no kernel has a match.
    """
    shapes = all(kernel.grid and kernel.block for kernel in (*counted.kernels, *timed.kernels))
    times = _by_key(timed.kernels, shapes)
    kernels: list[Kernel] = []
    averaged, unmatched = 0, 0
    for key, launches in _by_key(counted.kernels, shapes).items():
        matches = [kernel for kernel in times.get(key, []) if kernel.seconds is not None]
        if not matches:
            unmatched += sum(kernel.invocations for kernel in launches)
            kernels += launches
            continue
        counted_launches, timed_launches = (sum(kernel.invocations for kernel in side) for side in (launches, matches))
        if len(launches) == len(matches) and counted_launches == timed_launches:
            kernels += (replace(a, seconds=b.seconds, clock=b.clock) for a, b in zip(launches, matches, strict=True))
        else:
            averaged += counted_launches
            mean = sum(kernel.seconds or 0 for kernel in matches) / timed_launches
            kernels += (replace(kernel, seconds=mean * kernel.invocations, clock=None) for kernel in launches)
    total = sum(kernel.invocations for kernel in counted.kernels)
    if unmatched == total:
        raise ProfileError(
            f"{', '.join(timed.files)}: no kernel has the name{', grid and block' if shapes else ''} of a kernel in "
            f"{', '.join(counted.files)}; give times of the same program"
        )
    warnings = []
    if averaged:
        warnings.append(
            f"{averaged} of {total} launches have the mean time of launches with the same name"
            f"{', grid and block' if shapes else ''}: the number of launches differs between the two runs"
        )
    if unmatched:
        files = ", ".join(timed.files)
        warnings.append(f"{unmatched} of {total} launches have no match in {files} and keep their own time")
    return replace(
        counted,
        files=(*counted.files, *timed.files),
        kernels=tuple(kernels),
        evidence=(*counted.evidence, *timed.evidence),
        warnings=(
            *(warning for warning in counted.warnings if unmatched or warning.category != "times"),
            *(warning for warning in timed.warnings if warning.category != "counters"),
            *(ReaderWarning(text, "times") for text in warnings),
        ),
    )


def _by_key(kernels: Iterable[Kernel], shapes: bool) -> dict[Key, list[Kernel]]:
    by_key: dict[Key, list[Kernel]] = {}
    for kernel in kernels:
        name = base_name(kernel.name)
        by_key.setdefault((name, kernel.grid, kernel.block) if shapes else (name,), []).append(kernel)
    return by_key
