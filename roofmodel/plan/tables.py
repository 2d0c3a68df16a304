"""The columns of the candidates of a plan."""

from collections.abc import Callable
from math import isinf
from typing import Any

from roofmodel.numbers import units
from roofmodel.plan.layouts import Formats, Layout, TrainingLayout
from roofmodel.plan.ranking import Ranked, format_text, name
from roofmodel.plan.training_candidates import RankedTraining, training_layout
from roofmodel.report.table import (
    COUNT,
    MEMORY,
    NUMBER,
    PERCENT,
    RATE,
    SECONDS,
    Column,
    Table,
    Unit,
    joined,
)

PREFILL_KEYS = ("tp", "pp", "ep", "dp", "batch", "transfer_seconds", "limits")


def _interval(
    key: str, field: str, meaning: str, suffix: str = "", title: str | None = None, unit: Unit = SECONDS,
    priority: int | None = None,
) -> list[Column]:  # fmt: skip
    """A value and, in files, the ends of its interval: `ttft_seconds`, `ttft_low_seconds`, `ttft_high_seconds`."""
    interval = f"the 80 % interval of `{key}{suffix}`"
    low, high = (
        Column(f"{key}{end}{suffix}", value=_end(field, place), meaning=interval)
        for place, end in enumerate(("_low", "_high"), 1)
    )
    return [Column(f"{key}{suffix}", title, unit, _end(field, 0), priority=priority, meaning=meaning), low, high]


def _end(field: str, place: int) -> Callable[[Any], Any]:
    return lambda row: getattr(row.candidate, field)[place]


def _gpus(row: Ranked) -> str:
    used, paid = row.candidate.gpus, row.candidate.gpus_paid
    return str(used) if used == paid else f"{used}/{paid}"


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
        meaning="the ranks of candidates whose intervals overlap too much to tell them apart",
    )


_SHARES = (
    Column(
        "bound_by", value="candidate.shares.bound_by",
        meaning="the ceiling that limits most of the bound of a step: `memory`, `compute` or `communication`; "
        "`overhead` where the host limits most steps",
    ),
    Column(
        "communication_share", value="candidate.shares.communication",
        meaning="the part of the expected step that is exposed communication",
    ),
    Column(
        "bubble_share", value="candidate.shares.idle",
        meaning="the part of the expected step in which a pipeline stage waits for others",
    ),
    Column("bound_share", value="candidate.shares.ceiling_share", meaning="bound / expected time of a step"),
)  # fmt: skip
_DEVICE = "the device, as `--hw` names it"
_RANK = "the position, from 1, the best first"
_MEMORY = "bytes per GPU that are needed"
_USABLE_MEMORY = "bytes per GPU that may be used"


CANDIDATES = Table(
    "candidates",
    (
        Column("rank", "", COUNT, text=lambda row: f"{row.rank}{'' if row.candidate.meets else '!'}", meaning=_RANK),
        Column("hardware", "device", value="candidate.device", meaning=_DEVICE),
        Column(None, "layout", text=lambda row: name(row.candidate), wrap=True),
        Column(
            "mode", value="candidate.mode",
            meaning="`mixed`: prefill and decode on the same engines; `disaggregated`: on separate engines",
        ),
        Column("engine", value="candidate.engine", meaning="the engine, as of `--engine`"),
        *(
            Column(key, value=f"candidate.layout.{key}", meaning="the layout, of the decode engines if disaggregated")
            for key in Layout._fields
        ),
        Column(None, "GPUs", COUNT, text=_gpus),
        Column("batch", "batch", COUNT, "candidate.batch", meaning="sequences of all replicas"),
        *(Column(key, value=f"candidate.formats.{key}", meaning="the formats") for key in Formats._fields),
        Column("gpus", value="candidate.gpus", meaning="the number of GPUs that it uses, at most `--gpus`"),
        Column(
            "gpus_paid", value="candidate.gpus_paid",
            meaning="the number of GPUs that are paid for: `--gpus`; with `--requests`, those that it uses",
        ),
        Column(
            "calibrated", value="candidate.calibrated",
            meaning="false where the device is not calibrated, so that all times are lower bounds",
        ),
        Column(
            "gpus_needed", value="candidate.gpus_needed",
            meaning="how many of these GPUs meet the targets at the required rate; null without a rate",
        ),
        Column(
            "chunk", "chunk", COUNT, "candidate.chunk", priority=1,
            meaning="prompt tokens in a step of a mixed engine at most; null if disaggregated",
        ),
        *_interval(
            "ttft", "ttft",
            "expected time to first token; with `--requests`, the prefill at this rate, without the wait", "_seconds",
            "TTFT",
        ),
        *_interval("tpot", "tpot", "expected time per output token, a mean over steps", "_seconds"),
        Column(
            "wait_seconds", "wait", SECONDS, _finite_wait, _wait,
            meaning="with `--requests`: the mean time in the queue before the prefill, if requests arrive at random at "
            "this rate; it is not part of `ttft_seconds`, but the target of TTFT limits their sum; null without a "
            "rate, and where the queue grows without limit",
        ),
        Column(None, "TPOT", SECONDS, "candidate.tpot.value"),
        *_interval(
            "tokens_per_second", "tokens_per_second", "the highest number of output tokens per second",
            title="tokens/s", unit=RATE,
        ),
        Column(
            "dollars_per_million_tokens", "$/M", NUMBER, "candidate.dollars_per_million_tokens",
            meaning="the cost of a million output tokens, of all GPUs that are paid for, at the required rate if there "
            "is one; null without `--price`",
        ),
        Column(None, "formats", text=lambda row: format_text(row.candidate), wrap=True),
        Column(
            "itl_p99_seconds", "ITL p99", SECONDS, "candidate.itl_p99", priority=8,
            meaning="the 99th percentile of the gaps between two tokens of a request",
        ),
        Column(
            "largest_itl_seconds", "longest gap", SECONDS, "candidate.largest_itl", priority=1,
            meaning="the largest gap between two tokens: the time of a step full of prompts",
        ),
        *_interval(
            "tokens_per_second_per_gpu", "per_gpu", "output tokens per second / number of GPUs that are used",
            title="tokens/s/GPU", unit=RATE, priority=5,
        ),
        Column("tokens_per_second_per_user", value=lambda row: 1 / row.candidate.tpot.value, meaning="1 / TPOT"),
        *_interval(
            "requests_per_second", "requests", "the highest number of requests per second", title="requests/s",
            unit=NUMBER, priority=3,
        ),
        Column(
            "joules_per_token", "J/token", NUMBER, "candidate.joules_per_token", priority=4,
            meaning="energy of all GPUs for an output token, with its share of the prefill, without idle GPUs, hosts "
            "and cooling; null where the device states no power",
        ),
        Column(
            "power_watts", value="candidate.watts",
            meaning="mean power of a GPU at the highest rate; null where the device states no power",
        ),
        Column("memory", "memory", MEMORY, "candidate.memory", priority=2, meaning=_MEMORY),
        Column("usable_memory", value="candidate.usable", meaning=_USABLE_MEMORY),
        Column("largest_batch", value="candidate.largest_batch", meaning="the largest batch that fits"),
        Column("fits", value="candidate.fits", meaning="whether it fits; null if the device's memory is unknown"),
        Column("meets", value="candidate.meets", meaning="whether it fits and meets all targets"),
        Column(
            "violation", value="candidate.violation",
            meaning="the largest ratio by which it misses a target; at most 1 if it meets all",
        ),
        Column(None, "bound by", value="candidate.shares.bound_by", priority=4),
        _ties(5),
        *_SHARES,
        Column(
            "reason",
            meaning="what differs most from the best candidate; for the best candidate, from the next layout",
        ),
        Column("limit", meaning="what would raise its rate"),
        Column(
            "serve_command",
            meaning="the command of each engine process, a line each, with its GPUs; null where the engine's file does "
            "not say how, or the engine has no such layout",
        ),
        Column(
            "prefill", value=_prefill, flat=PREFILL_KEYS,
            meaning="the prefill engines of a disaggregated candidate: their layout, prompts in a pass of one of them "
            "(`batch`), the time to send the KV cache of a prompt (`transfer_seconds`), whether they limit the rate "
            "(`limits`); null for a mixed one",
        ),
    ),
)  # fmt: skip
"""A row for each layout of a service (Ranked)."""


def _sequence_parallel(row: RankedTraining) -> str:
    return "on" if row.candidate.choices.sequence_parallel == "on" else ""


TRAINING_CANDIDATES = Table(
    "candidates",
    (
        Column("rank", "", COUNT, meaning=_RANK),
        Column("hardware", "device", value="candidate.device", priority=5, meaning=_DEVICE),
        Column(None, "layout", text=lambda row: training_layout(row.candidate), wrap=True),
        Column(None, "SP", COUNT, text=_sequence_parallel),
        Column(None, "ZeRO", COUNT, text=lambda row: str(row.candidate.choices.zero or "")),
        *(Column(key, value=f"candidate.layout.{key}", meaning="the layout") for key in TrainingLayout._fields),
        Column("engine", value="candidate.run.engine_id", meaning="the engine, as of `--engine`"),
        Column("gpus", value="candidate.gpus", meaning="the number of GPUs"),
        Column(
            "calibrated", value="candidate.calibrated",
            meaning="false where the device is not calibrated, so that all times are lower bounds",
        ),
        Column("vpp", value="candidate.choices.vpp", meaning="the layout"),
        Column(
            "schedule", value="candidate.schedule", meaning="the option of this name; null without a pipeline"
        ),
        Column("batch", value="candidate.run.batch", meaning="sequences of a step"),
        Column(None, "recompute", value="candidate.choices.recompute"),
        Column(
            "micro_batch", "microbatch", COUNT, "candidate.micro_batch", meaning="sequences per replica and microbatch"
        ),
        Column("cp_kind", value="candidate.choices.cp_kind", meaning="the options of these names"),
        Column("recompute", value="candidate.choices.recompute", meaning="the options of these names"),
        Column(
            "sequence_parallel", value="candidate.choices.sequence_parallel", meaning="the options of these names"
        ),
        Column("zero", value="candidate.choices.zero", meaning="the options of these names"),
        Column("dtype", value="candidate.run.dtype", meaning="the options of these names"),
        *_interval("step", "step", "expected time of a step", "_seconds", "step"),
        *_interval("tokens_per_second_per_gpu", "per_gpu", "tokens per second / number of GPUs"),
        Column(
            "tokens_per_second", value=lambda row: row.candidate.gpus * row.candidate.per_gpu.value,
            meaning="tokens per second of all GPUs",
        ),
        Column("mfu", "MFU", PERCENT, "candidate.mfu", meaning="model FLOPs utilization of all GPUs"),
        Column("mfu_all_pairs", value="candidate.mfu_all_pairs", meaning="`mfu` with masked pairs"),
        *_interval("days", "days", "expected time of the run in days", title="days", unit=NUMBER),
        Column("gpu_hours", value="candidate.gpu_hours", meaning="expected GPU-hours of the run"),
        Column("dollars", "$", RATE, "candidate.dollars", meaning="the cost of the run; null without `--price`"),
        Column("power_watts", value="candidate.watts", meaning="mean power of a GPU; null if unknown"),
        Column(
            "kwh", "kWh", RATE, "candidate.kwh", priority=2,
            meaning="energy of all GPUs in the run, in kilowatt-hours, without hosts and cooling",
        ),
        Column("memory", "memory", MEMORY, "candidate.memory", priority=4, meaning=_MEMORY),
        Column("usable_memory", value="candidate.usable", meaning=_USABLE_MEMORY),
        Column(
            "fits", value=lambda row: None if row.candidate.usable is None else True,
            meaning="true; null if the device's memory is unknown. Layouts that do not fit are left out",
        ),
        Column(None, "communication", PERCENT, "candidate.shares.communication", priority=2),
        Column(None, "idle", PERCENT, "candidate.shares.idle", priority=1),
        _ties(3),
        *_SHARES,
        Column(
            "reason",
            meaning="what differs most from the best candidate; for the best candidate, from the next layout",
        ),
    ),
)  # fmt: skip
"""A row for each layout of a training run (RankedTraining)."""
