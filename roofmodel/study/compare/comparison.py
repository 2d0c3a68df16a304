"""What a comparison holds: operators beside the kernels that they are, and what is left on either side.

Figures are those of one pass: means over the passes that count.
"""

from __future__ import annotations

from typing import NamedTuple

from roofmodel.counting.operator import Cost, Gemm
from roofmodel.profiles.kernel import Profile
from roofmodel.study.compare.formats import Other
from roofmodel.study.compare.sequence import Occurrence
from roofmodel.study.estimate.estimate import Estimate
from roofmodel.study.profile.device import Identified


class Row(NamedTuple):
    """Operators and the kernels that they are; figures are those of one pass."""

    phase: str
    operators: tuple[str, ...]
    group: str
    stage: str
    occurrences: float
    kernels: float
    cost: Cost
    bound: str
    bound_seconds: float
    expected_seconds: float | None
    measured_flops: float | None
    measured_bytes: float | None
    measured_seconds: float | None
    names: tuple[str, ...]  # of the kernels, those that take most time first
    work: tuple[Occurrence, ...]  # one of each operator

    @property
    def lost_seconds(self) -> float | None:
        """What it takes beyond what was expected; beyond its bound where nothing was."""
        if self.measured_seconds is None:
            return None
        return self.measured_seconds - (self.expected_seconds or self.bound_seconds)


class LeftKernels(NamedTuple):
    """Kernels of one name that no operator claims, in one pass."""

    phase: str
    name: str
    category: str
    kernels: float
    seconds: float | None


class LeftOperators(NamedTuple):
    """Occurrences of an operator that found no kernel, in one pass."""

    phase: str
    operator: str
    stage: str
    occurrences: float
    bound_seconds: float
    expected_seconds: float | None


class Passes(NamedTuple):
    """The passes of a phase that a file holds, and what one of them takes."""

    phase: str
    found: int
    used: int
    partial: bool  # no pass is whole
    seconds: float | None  # all kernels of a pass
    span_seconds: float | None  # from the start of its first kernel to the end of its last; None without starts
    idle_seconds: float | None  # of the span, without a kernel
    kernels: float


class Shaped(NamedTuple):
    """A product of tokens with a matrix whose shapes the file holds: as it was there, and how many rows were told."""

    phase: str
    there: Gemm
    told: int
    fits: bool  # whether its matrix is as large as the operator's


class Layers(NamedTuple):
    """Layers of the file that are others than the model's.

    `run`: so `many` follow an embedding; `end`: the file ends after so many, and one kernel that may be a head;
    `named`: ranges name the one of this number.
    """

    kind: str
    phase: str
    many: int
    whole: int  # those of the model


class Comparison(NamedTuple):
    """What was compared, and what was found."""

    estimate: Estimate
    identified: Identified
    profile: Profile
    passes: tuple[Passes, ...]
    rows: tuple[Row, ...]  # where most time is lost, first
    left_kernels: tuple[LeftKernels, ...]
    left_operators: tuple[LeftOperators, ...]
    shaped: tuple[Shaped, ...]  # products in the layers whose shapes the file holds
    doubtful: tuple[Layers, ...]  # what of the file's layers speaks against the model
    matched_by: tuple[str, ...]  # what told which operators kernels are, the surest first
    other: Other | None  # the format of the kernels, where it is another one than was told
    notes: tuple[str, ...]
