"""The columns of the results of a sweep."""

from collections.abc import Mapping

from roofmodel.numbers import units
from roofmodel.options.serving import ServeRequest
from roofmodel.options.values import Declared, declared_options
from roofmodel.report.table import (
    BYTES,
    COUNT,
    FINE_PERCENT,
    MEMORY,
    NUMBER,
    PERCENT,
    RATE,
    SECONDS,
    Column,
    Table,
    Unit,
)
from roofmodel.serve.totals import TOTALS

BOUND_NAMES = {"overhead": "launches"}  # instead of the names of the JSON document
TIME = Unit(lambda seconds: SECONDS.write(seconds) if seconds else "")
WATTS = Unit(lambda watts: units.si(watts, "W"))
JOULES = Unit(lambda joules: f"{joules:.3g} J")
FLAG = Unit(lambda value: str(value).lower())

_LATENCY = "as in the totals of `roof estimate --phase generate`; a prefill has a TTFT, a decode a TPOT"
_INTERVAL = "the 80 % interval of `expected_seconds`"
_EXPOSED = "the part of the communication that the backward pass does not hide, in the bound and in the expected time"
_COMMUNICATION = "sums over the collectives: their part of the bound and of the expected time"
_BUBBLE = "with `--pp`: the wait for other stages, in the bound and in the expected time"
_BOUND_RATE = "the rate at the bound: tokens, or images for vision models"
_RATE = "the rate at the expected time"
_UTILIZATION = "model FLOPs, hardware FLOPs and memory bandwidth utilization, as in the totals of `roof estimate`"
_PER_GPU = "tokens per second / number of GPUs, at the expected time and at the bound"
_PER_USER = "1 / TPOT, expected and bound"
_POWER = "mean power of one GPU, and its 80 % interval; null where the device's file states no power"
_MEMORY = "bytes at the peak of the phase, by role and in all"
_COST = "with `--price`: dollars per million tokens at the expected time and at the bound"


RESULTS = Table(
    "rows",
    (
        Column("matmul_flops", unit=RATE, meaning="FLOPs of matrix multiplications"),
        Column("vector_flops", unit=RATE, meaning="all other FLOPs"),
        Column("bytes", unit=BYTES, meaning="compulsory DRAM traffic"),
        Column("weight_bytes", unit=BYTES, meaning="the parts of `bytes` that are weights and KV cache"),
        Column("kv_cache_bytes", unit=BYTES, meaning="the parts of `bytes` that are weights and KV cache"),
        Column(
            "matmul_flops_all_pairs", unit=RATE,
            meaning="`matmul_flops` with all query-key pairs, masked ones included",
        ),
        Column("link_bytes", unit=BYTES, meaning="bytes through a GPU's link in each direction"),
        Column("kernels", unit=RATE, meaning="kernel launches"),
        Column("bound_seconds", "bound", SECONDS, priority=7, meaning="the bound of the phase"),
        Column("communication_seconds", unit=SECONDS, meaning=_COMMUNICATION),
        Column("expected_communication_seconds", unit=SECONDS, meaning=_COMMUNICATION),
        Column("communication_exposed_seconds", unit=SECONDS, meaning=_EXPOSED),
        Column(
            "expected_communication_exposed_seconds", unit=SECONDS,
            meaning=_EXPOSED,
        ),
        Column(
            "expected_replica_seconds", unit=SECONDS,
            meaning="data-parallel training: copies of gradients, contention, and the wait for the slowest replica",
        ),
        Column("bubble_seconds", unit=SECONDS, meaning=_BUBBLE),
        Column("expected_bubble_seconds", unit=SECONDS, meaning=_BUBBLE),
        Column(
            "expected_host_seconds", unit=SECONDS,
            meaning="what the host of a serving engine adds to the expected time of the kernels",
        ),
        Column(
            "expected_seconds", "expected", SECONDS,
            meaning="the expected time of the phase; null on a device without a timing model",
        ),
        Column("expected_low_seconds", unit=SECONDS, meaning=_INTERVAL),
        Column("expected_high_seconds", unit=SECONDS, meaning=_INTERVAL),
        Column(
            "bound_tokens_per_second", "tokens/s ≤", RATE, priority=4,
            legend="tokens/s ≤: at the bound; tokens/s: at the expected time", meaning=_BOUND_RATE,
        ),
        Column(
            "bound_images_per_second", "images/s ≤", RATE, priority=4,
            legend="images/s ≤: at the bound; images/s: at the expected time", meaning=_BOUND_RATE,
        ),
        Column("tokens_per_second", "tokens/s", RATE, meaning=_RATE),
        Column("images_per_second", "images/s", RATE, meaning=_RATE),
        Column("mfu", "MFU", PERCENT, priority=1, meaning=_UTILIZATION),
        Column("mfu_all_pairs", unit=FINE_PERCENT, meaning=_UTILIZATION),
        Column("hfu", unit=FINE_PERCENT, meaning=_UTILIZATION),
        Column("mbu", unit=FINE_PERCENT, meaning=_UTILIZATION),
        Column("power_watts", "power", WATTS, meaning=_POWER),
        Column("power_low_watts", unit=WATTS, meaning=_POWER),
        Column("power_high_watts", unit=WATTS, meaning=_POWER),
        Column("energy_joules", unit=JOULES, meaning="energy of one GPU in the phase"),
        Column(
            "joules_per_token", "J/token", JOULES,
            meaning="of a decode or generation: energy of all GPUs for each new token of all sequences",
        ),
        Column("host_bound", unit=FLAG, meaning="whether the host limits the phase (launches, or its part of a step)"),
        Column("ttft_seconds", "TTFT", SECONDS, meaning=_LATENCY),
        Column("bound_ttft_seconds", unit=SECONDS, meaning=_LATENCY),
        Column("tpot_seconds", "TPOT", SECONDS, meaning=_LATENCY),
        Column("bound_tpot_seconds", unit=SECONDS, meaning=_LATENCY),
        Column("e2e_seconds", unit=SECONDS, meaning=_LATENCY),
        Column("bound_e2e_seconds", unit=SECONDS, meaning=_LATENCY),
        Column("tokens_per_second_per_gpu", "tokens/s/GPU", RATE, meaning=_PER_GPU),
        Column("bound_tokens_per_second_per_gpu", unit=RATE, meaning=_PER_GPU),
        Column("tokens_per_second_per_user", "tokens/s/user", RATE, priority=8, meaning=_PER_USER),
        Column("bound_tokens_per_second_per_user", unit=RATE, meaning=_PER_USER),
        Column(
            "bound", "bound by", text=lambda row: BOUND_NAMES.get(row["bound"], row["bound"]), priority=5,
            meaning="what limits most of the bound: `compute`, `memory` or `communication`; `overhead` if the host "
            "limits the phase",
        ),
        Column("memory_share", unit=FINE_PERCENT, meaning="the share of the bound that is memory-bound"),
        Column("memory_weights", unit=MEMORY, meaning=_MEMORY),
        Column("memory_kv_cache", unit=MEMORY, meaning=_MEMORY),
        Column("memory_activations", unit=MEMORY, meaning=_MEMORY),
        Column("memory_gradients", unit=MEMORY, meaning=_MEMORY),
        Column("memory_optimizer", unit=MEMORY, meaning=_MEMORY),
        Column("memory_logits", unit=MEMORY, meaning=_MEMORY),
        Column("memory_other", unit=MEMORY, meaning=_MEMORY),
        Column("memory_total", "memory", MEMORY, priority=6, meaning=_MEMORY),
        Column("fits", unit=FLAG, meaning="whether the phase fits; null if the device's memory is unknown"),
        Column("dollars_per_million_tokens", "$/M tokens", NUMBER, meaning=_COST),
        Column(
            "bound_dollars_per_million_tokens", "$/M ≥", NUMBER, priority=3, meaning=_COST,
            legend="$/M ≥: dollars per million tokens at the bound; $/M tokens: at the expected time",
        ),
        Column("note", meaning="why a point has no numbers, or exceeds the model's positions"),
    ),
)  # fmt: skip
"""A row for each point; a table has the key of a column without a title.

Counts, times and memory are per GPU; rates are of all GPUs unless their name ends with `per_gpu` or `per_user`.
"""
SCALING = Table(
    "rows",
    (
        Column("gpus", "GPUs", COUNT, meaning="the number of GPUs"),
        Column(
            "speedup", "speed-up", Unit("{:.2f}".format),
            meaning="the rate relative to one GPU, by expected times, else by bounds",
        ),
        Column("efficiency", "efficiency", FINE_PERCENT, meaning="the speed-up per GPU"),
        Column("communication_share", "share", FINE_PERCENT, meaning="exposed communication / time of the point"),
        Column(
            "communication_hidden_seconds", "hidden", TIME, priority=4,
            meaning="communication during the backward pass",
        ),
    ),
)  # fmt: skip
"""Further columns of a scaling table."""
SERVICE_OPTIONS: Mapping[str, Declared] = declared_options(ServeRequest)
SERVING = Table(
    "rows",
    (
        *(Column(name, meaning=f"`--{name.replace('_', '-')}`") for name in SERVICE_OPTIONS),
        *(
            column._replace(value=column.key)  # of a row
            for column in TOTALS.columns
            if column.key not in RESULTS.csv_keys
        ),
        Column("gpus", "GPUs", COUNT, meaning="GPUs of all engines"),
    ),
)  # fmt: skip
"""Further columns of the points of `--phase serve`; `tpot_seconds` and `ttft_seconds` are those of the requests."""
BY_KEY = {column.key: column for column in (*RESULTS.columns, *SERVING.columns, *SCALING.columns)}
