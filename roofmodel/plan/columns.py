"""The columns of the candidates of a plan."""

from collections.abc import Callable
from math import isinf
from typing import Any

from roofmodel.numbers import units
from roofmodel.plan.layouts import Formats, Layout
from roofmodel.plan.ranking import Ranked, format_text, name
from roofmodel.plan.training_candidate import training_layout
from roofmodel.plan.training_ranking import RankedTraining
from roofmodel.report.table import (
    COUNT,
    MEMORY,
    NUMBER,
    PERCENT,
    RATE,
    SECONDS,
    Column,
    Table,
    joined,
)

PREFILL_KEYS = ("tp", "pp", "ep", "dp", "batch", "transfer_seconds", "limits")


def _interval(key: str, field: str, unit: str = "") -> list[Column]:
    """A value and the ends of its interval: `ttft_seconds`, `ttft_low_seconds`, `ttft_high_seconds`."""
    ends = (("", 0), ("_low", 1), ("_high", 2))
    return [Column(f"{key}{part}{unit}", value=_end(field, place)) for part, place in ends]


def _end(field: str, place: int) -> Callable[[Any], Any]:
    return lambda row: getattr(row.candidate, field)[place]


def _prefill(row: Ranked) -> dict[str, Any] | None:
    engines = row.candidate.prefill
    if engines is None:
        return None
    return {
        **engines.layout._asdict(), "batch": engines.batch, "transfer_seconds": engines.transfer,
        "limits": engines.limits,
    }  # fmt: skip


def _wait(row: Ranked) -> str | None:
    seconds = row.candidate.mean_wait
    return None if seconds is None else "∞" if isinf(seconds) else units.seconds(seconds)


def _finite_wait(row: Ranked) -> float | None:
    seconds = row.candidate.mean_wait
    return None if seconds is None or isinf(seconds) else seconds


def _ties(priority: int) -> Column:
    """The ranks of candidates that cannot be told apart."""
    return Column(
        "ties_with",
        "ties",
        COUNT,
        value=lambda row: list(row.ties_with),
        text=lambda row: units.ranges(row.ties_with) if row.ties_with else "",
        priority=priority,
        flat=joined(" "),
    )


CANDIDATES = Table(
    "candidates",
    (
        Column("rank", "", COUNT, text=lambda row: f"{row.rank}{'' if row.candidate.meets else '!'}"),
        Column("hardware", value="candidate.device"),
        Column(None, "device", value="candidate.device", priority=9),
        Column(None, "layout", text=lambda row: name(row.candidate), wrap=True),
        Column(None, "formats", text=lambda row: format_text(row.candidate), wrap=True),
        Column("mode", value="candidate.mode"),
        *(Column(key, value=f"candidate.layout.{key}") for key in Layout._fields),
        Column("batch", "batch", COUNT, "candidate.batch", priority=6),
        *(Column(key, value=f"candidate.formats.{key}") for key in Formats._fields),
        Column("gpus", value="candidate.gpus"),
        Column("gpus_needed", value="candidate.gpus_needed"),
        Column("chunk", "chunk", COUNT, "candidate.chunk", priority=1),
        *_interval("ttft", "ttft", "_seconds"),
        *_interval("tpot", "tpot", "_seconds"),
        Column(None, "TTFT", SECONDS, "candidate.ttft.value", priority=8),
        Column("wait_seconds", "wait", SECONDS, _finite_wait, _wait, priority=7),
        Column(None, "TPOT", SECONDS, "candidate.tpot.value"),
        Column("largest_itl_seconds", value="candidate.largest_itl"),
        *_interval("tokens_per_second", "tokens_per_second"),
        *_interval("tokens_per_second_per_gpu", "per_gpu"),
        Column(None, "tokens/s/GPU", RATE, "candidate.per_gpu.value"),
        Column("tokens_per_second_per_user", value=lambda row: 1 / row.candidate.tpot.value),
        *_interval("requests_per_second", "requests"),
        Column(None, "requests/s", NUMBER, "candidate.requests.value", priority=3),
        Column(None, "GPUs", COUNT, "candidate.gpus_needed"),
        Column("dollars_per_million_tokens", "$/M", NUMBER, "candidate.dollars_per_million_tokens"),
        Column("memory", "memory", MEMORY, "candidate.memory", priority=2),
        Column("usable_memory", value="candidate.usable"),
        Column("largest_batch", value="candidate.largest_batch"),
        Column("fits", value="candidate.fits"),
        Column("meets", value="candidate.meets"),
        Column("violation", value="candidate.violation"),
        Column(None, "bound by", value="candidate.shares.bound_by", priority=4),
        _ties(5),
        Column("bound_by", value="candidate.shares.bound_by"),
        Column("communication_share", value="candidate.shares.communication"),
        Column("bubble_share", value="candidate.shares.idle"),
        Column("bound_share", value="candidate.shares.ceiling_share"),
        Column("reason"),
        Column("limit"),
        Column("prefill", value=_prefill, flat=PREFILL_KEYS),
    ),
)
"""A row for each layout of a service (Ranked)."""


def _sequence_parallel(row: RankedTraining) -> str:
    return "on" if row.candidate.choices.sequence_parallel == "on" else ""


TRAINING_CANDIDATES = Table(
    "candidates",
    (
        Column("rank", "", COUNT),
        Column("hardware", value="candidate.device"),
        Column(None, "device", value="candidate.device", priority=5),
        Column(None, "layout", text=lambda row: training_layout(row.candidate), wrap=True),
        Column(None, "SP", COUNT, text=_sequence_parallel),
        Column(None, "ZeRO", COUNT, text=lambda row: str(row.candidate.choices.zero or "")),
        *(Column(key, value=f"candidate.layout.{key}") for key in Layout._fields),
        Column("vpp", value="candidate.choices.vpp"),
        Column("batch", value="candidate.run.batch"),
        Column(None, "recompute", value="candidate.choices.recompute"),
        Column("micro_batch", "microbatch", COUNT, "candidate.micro_batch"),
        Column("recompute", value="candidate.choices.recompute"),
        Column("sequence_parallel", value="candidate.choices.sequence_parallel"),
        Column("zero", value="candidate.choices.zero"),
        Column("dtype", value="candidate.run.dtype"),
        *_interval("step", "step", "_seconds"),
        *_interval("tokens_per_second_per_gpu", "per_gpu"),
        Column("tokens_per_second", value=lambda row: row.candidate.run.gpus * row.candidate.per_gpu.value),
        Column(None, "step", SECONDS, "candidate.step.value"),
        Column("mfu", "MFU", PERCENT, "candidate.mfu"),
        *_interval("days", "days"),
        Column(None, "days", NUMBER, "candidate.days.value"),
        Column("dollars", "$", RATE, "candidate.dollars"),
        Column("memory", "memory", MEMORY, "candidate.memory", priority=4),
        Column("usable_memory", value="candidate.usable"),
        Column("fits", value=lambda row: None if row.candidate.usable is None else True),
        Column(None, "communication", PERCENT, "candidate.shares.communication", priority=2),
        Column(None, "idle", PERCENT, "candidate.shares.idle", priority=1),
        _ties(3),
        Column("bound_by", value="candidate.shares.bound_by"),
        Column("communication_share", value="candidate.shares.communication"),
        Column("bubble_share", value="candidate.shares.idle"),
        Column("bound_share", value="candidate.shares.ceiling_share"),
        Column("reason"),
    ),
)
"""A row for each layout of a training run (RankedTraining)."""
