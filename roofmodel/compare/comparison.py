"""Result types of a comparison: rows, unmatched kernels and operators, passes, findings.

Every figure is a mean over the passes used.
"""

from __future__ import annotations

from typing import NamedTuple

from roofmodel.compare.sequence import Occurrence
from roofmodel.counting.operator import Cost, Gemm
from roofmodel.errors import Text
from roofmodel.profiles.kernel import Profile
from roofmodel.roofline.device import DeviceIdentification
from roofmodel.roofline.formats import FormatMismatch
from roofmodel.steps.estimate import Estimate


class ComparisonRow(NamedTuple):
    """Operators and their kernels, per pass. Measured figures are None where the file lacks them."""

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
    kernel_names: tuple[str, ...]  # by time, longest first
    sample_occurrences: tuple[Occurrence, ...]  # one per operator

    @property
    def excess_seconds(self) -> float | None:
        """Measured minus expected time; minus the bound where there is no expected time."""
        if self.measured_seconds is None:
            return None
        return self.measured_seconds - (self.expected_seconds or self.bound_seconds)


class UnmatchedKernels(NamedTuple):
    """Kernels of one name without an operator, per pass."""

    phase: str
    name: str
    category: str
    kernels: float
    seconds: float | None


class UnmatchedOperators(NamedTuple):
    """Occurrences of an operator without a kernel, per pass."""

    phase: str
    operator: str
    stage: str
    occurrences: float
    bound_seconds: float
    expected_seconds: float | None


class FoundPasses(NamedTuple):
    """The passes of one phase in a file: how many were found and used, and the mean time of one."""

    phase: str
    detected: int
    used: int
    partial: bool  # no pass is complete
    seconds: float | None  # sum over all kernels of a pass
    span_seconds: float | None  # from the start of the first kernel to the end of the last; None without start times
    idle_seconds: float | None  # part of the span in which no kernel runs
    kernels: float


class MeasuredGemm(NamedTuple):
    """A GEMM of tokens and weights whose shape the file records."""

    phase: str
    shape: Gemm
    given_rows: int  # rows of tokens in the given workload
    same_weights: bool  # whether the weight matrix has as many elements as the operator's


class LayerMismatch(NamedTuple):
    """A layer count or layer number in the file that contradicts the model.

    `run`: `measured` layers follow an embedding lookup. `end`: the file ends after `measured` layers and one kernel
    that may be the head. `named`: NVTX ranges name layer number `measured`.
    """

    kind: str
    phase: str
    measured: int
    expected: int  # layers of the model


class ComparisonFinding(NamedTuple):
    """A cost in time, or a doubt about the comparison."""

    # Doubts: "weights", "rows", "layers", "attention", "too fast".
    # Costs: "run" (a data loader or copies, over the whole file), "idle", "unmatched kernels", "unmatched operators",
    # "slow", "longest".
    kind: str
    phase: str
    seconds: float  # per pass
    share: float  # of the pass, or of the GEMMs for "weights" and "rows"
    row: ComparisonRow | None = None
    detail: str = ""

    @property
    def is_doubt(self) -> bool:
        """Whether the file may be of another model, workload or device."""
        return self.kind in ("weights", "rows", "layers", "attention", "too fast")


class ModelComparison(NamedTuple):
    """Predicted operators matched with measured kernels."""

    estimate: Estimate
    identified: DeviceIdentification
    profile: Profile
    passes: tuple[FoundPasses, ...]
    rows: tuple[ComparisonRow, ...]  # by excess time, largest first
    unmatched_kernels: tuple[UnmatchedKernels, ...]
    unmatched_operators: tuple[UnmatchedOperators, ...]
    gemms: tuple[MeasuredGemm, ...]  # those inside layers
    layer_mismatches: tuple[LayerMismatch, ...]
    matched_by: tuple[str, ...]  # criteria of the match, most reliable first
    format_mismatch: FormatMismatch | None
    notes: tuple[Text, ...]
    findings: tuple[ComparisonFinding, ...] = ()
