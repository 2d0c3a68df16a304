"""The requests of `roof plan`: the options of each kind of plan, declared once: type, default, range, help, group.

The signatures of `plan` and `plan_training`, the command line, the reference, and the checks of the values come from
these records. `scripts/options` writes the keyword types of the two functions from them. A function passes one checked
record to the search.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, NamedTuple, TypeVar

from roofmodel.engines.former_options import removed_option
from roofmodel.errors import Option, WorkloadError, as_text, choices, shorten
from roofmodel.options.serving import Acceptance, Draft, DraftTokens
from roofmodel.options.signature import OUTPUT
from roofmodel.options.values import (
    MAX_SECONDS,
    AttentionMode,
    Declared,
    EngineName,
    EngineOption,
    Names,
    PlanKind,
    RoutingOption,
    Sustained,
    check_one_of,
    number_of_tokens,
    on_or_off,
    requests_per_second,
    valid_request,
)
from roofmodel.options.workload import DECLARED, REMOVED, TRAINING, WORKLOAD, valid
from roofmodel.sweep import grid

MAX_GPUS: dict[PlanKind, int] = {"service": 4096, "training": 2**20}
MOST_SEARCHED_GPUS = 1024
"""GPUs that are tried where their number is not given."""
MODES = ("mixed", "disaggregated")
TARGETS = "Targets"
"""A group of options in `--help`."""


def _choice_of_modes(option: str, value: object) -> tuple[str, ...]:
    names = tuple(map(as_text, grid.names(value)))
    for name in names:
        check_one_of(option, name, MODES)
    return names


def _one_format(option: str, value: object) -> Any:
    if not isinstance(value, str) or "," in value:
        raise WorkloadError(Option(option), f" is {shorten(value)}; give one format such as bf16")
    return valid(option, value)


# --- Options of both plans ------------------------------------------------------------------------

Gpus = Annotated[
    int,
    Declared(
        WORKLOAD,
        "Number of GPUs; a service or a training run uses at most these.",
        minimum=1,
        maximum=MAX_GPUS["training"],
        example=8,
    ),
]
PaidGpus = Annotated[
    int | None,
    Declared(
        WORKLOAD,
        "Number of GPUs; a service or a training run uses at most these (with --requests, default: as few as suffice, "
        "up to 1024).",
        minimum=1,
        maximum=MAX_GPUS["service"],
        example=8,
    ),
]
Price = Annotated[
    float | str | Mapping[str, float] | None,
    Declared(TARGETS, "Price of a GPU in dollars per hour: 2 for every device, or a100=1.5,h100=3."),
]
PowerLimit = Annotated[float | str | None, DECLARED["power_limit"]]
LongLoad = Annotated[
    Sustained,
    Declared(
        WORKLOAD,
        "Expected times of GPUs under long load, at the rates that they sustain under their power limit.",
        check=on_or_off,
    ),
]
UsableMemory = Annotated[
    float | None,
    Declared(WORKLOAD, "Share of a device's memory that may be used (default: of the engine's flag, else 0.9)."),
]
Software = Annotated[
    EngineName | None,
    Declared(
        WORKLOAD,
        "Software that runs the model, as for estimate (default: vllm for a service; for training megatron on several "
        "GPUs, else torch).",
    ),
]
SoftwareOption = Annotated[
    EngineOption | None, Declared(WORKLOAD, "KEY=VALUE, such as attention=flashinfer, as for estimate.")
]
Top = Annotated[int, Declared(OUTPUT, "Number of candidates to show, at least one per device.", minimum=1)]
TimeLimit = Annotated[
    float | str,
    Declared(
        OUTPUT,
        'Time limit of the search. "complete" in the JSON is false if it ended before all layouts.',
        maximum=86400,
        example="60s",
    ),
]
Cluster = Annotated[
    str | None,
    Declared(None, "Compute with Dask: the address of a scheduler, or local for processes on this machine."),
]


class ServiceRequest(NamedTuple):
    """The question of `plan`: requests, targets, GPUs, and what restricts the search. Its values are checked: times are
    seconds, rates are requests per second."""

    isl: Annotated[int, Declared(WORKLOAD, "Prompt tokens of a request.", minimum=1, example=4096)]
    osl: Annotated[int, Declared(WORKLOAD, "New tokens of a request.", minimum=2, example=512)]
    gpus: PaidGpus = None
    ttft: Annotated[
        float | str | None,
        Declared(
            TARGETS,
            "Limit of the time to first token, such as 500ms; with --requests, it includes the wait.",
            maximum=MAX_SECONDS,
            example="500ms",
        ),
    ] = None
    tpot: Annotated[
        float | str | None,
        Declared(TARGETS, "Limit of the time per output token, such as 30ms.", maximum=MAX_SECONDS, example="30ms"),
    ] = None
    itl_p99: Annotated[
        float | str | None,
        Declared(
            TARGETS,
            "Limit of the 99th percentile of the gaps between two tokens, such as 100ms.",
            maximum=MAX_SECONDS,
            example="100ms",
        ),
    ] = None
    requests: Annotated[
        float | str | None,
        Declared(
            TARGETS, "Request rate that the GPUs must serve: 5/s or 300/min; 5 means 5/s.", check=requests_per_second
        ),
    ] = None
    price: Price = None
    memory_utilization: UsableMemory = None
    max_len: Annotated[
        int | None,
        Declared(WORKLOAD, "Longest sequence that the servers are started for (default: --isl and --osl).", minimum=1),
    ] = None
    token_budget: Annotated[
        int | None, Declared(WORKLOAD, "Tokens of a step of a server at most (default: the engine's).", minimum=1)
    ] = None
    max_seqs: Annotated[
        int | None, Declared(WORKLOAD, "Sequences of a step of a server at most (default: the engine's).", minimum=1)
    ] = None
    chunk: Annotated[
        int | None, Declared(WORKLOAD, "Prompt tokens of a step at most (default: the engine's).", minimum=1)
    ] = None
    mode: Annotated[
        Names | None,
        Declared(
            WORKLOAD,
            "Prefill and decode on the same engines (mixed) or on separate ones (disaggregated); default: both.",
            check=_choice_of_modes,
            choices=MODES,
        ),
    ] = None
    draft: Draft = None
    draft_tokens: DraftTokens = None
    acceptance: Acceptance = None
    routing: Annotated[
        RoutingOption | None,
        Declared(
            WORKLOAD,
            "How tokens of an MoE model choose experts, as for estimate: uniform, same or a FILE (default: uniform).",
        ),
    ] = None
    engine: Software = None
    engine_option: SoftwareOption = None
    sustained: LongLoad = "on"
    power_limit: PowerLimit = None
    top: Top = 8
    time_limit: TimeLimit = "60s"
    cluster: Cluster = None
    search: Mapping[str, Sequence[Any]] = {}
    """The values of options that restrict the search, such as `tp`."""


class TrainingRequest(NamedTuple):
    """The question of `plan_training`: the run, GPUs, and what restricts the search. Its values are checked."""

    gpus: Gpus
    tokens: Annotated[
        float | str,
        Declared(TRAINING, "Tokens of the run, such as 300B or 15T.", check=number_of_tokens, example="300B"),
    ]
    batch: Annotated[
        int | None,
        Declared(TRAINING, "Sequences of a step, over all GPUs (default: 4 M tokens / --seq).", minimum=1),
    ] = None
    seq: Annotated[
        int | None, Declared(TRAINING, "Tokens of a sequence (default: 4096, or the model's limit).", minimum=1)
    ] = None
    attention: Annotated[
        AttentionMode, Declared(TRAINING, "Attention in one fused kernel (flash) or unfused (eager).")
    ] = "flash"
    dtype: Annotated[str | None, Declared(TRAINING, "Compute format (default: bf16 or fp16).", check=_one_format)] = (
        None
    )
    price: Price = None
    memory_utilization: UsableMemory = None
    engine: Software = None
    engine_option: SoftwareOption = None
    sustained: LongLoad = "on"
    power_limit: PowerLimit = None
    top: Top = 8
    time_limit: TimeLimit = "60s"
    cluster: Cluster = None
    search: Mapping[str, Sequence[Any]] = {}
    """The values of options that restrict the search, such as `tp`."""


Request = TypeVar("Request", ServiceRequest, TrainingRequest)


def request_of(record: type[Request], options: Mapping[str, Any], plan: PlanKind) -> Request:
    """The request with these options, checked; those that it does not declare restrict the search.

    Raises WorkloadError for an invalid value, an unknown option and a missing one.
    """
    others = {name: value for name, value in options.items() if name not in record._fields}
    return valid_request(record, options, search=restrictions(others, plan))


def restrictions(options: Mapping[str, Any], plan: PlanKind) -> dict[str, list[Any]]:
    """The values of the options that restrict the search of a plan."""
    found: dict[str, list[Any]] = {}
    for option, values in options.items():
        if option in REMOVED:
            raise removed_option(option, values)
        if option not in DECLARED or plan not in DECLARED[option].plans:
            known_options = [name for name, declared in DECLARED.items() if plan in declared.plans]
            raise WorkloadError(f"unknown option {option!r}{choices(option, known_options)}")
        if values is None:
            continue
        if DECLARED[option].kind == "count":
            highest = min(int(DECLARED[option].maximum), MAX_GPUS[plan])
            found[option] = grid.numbers(option, values, DECLARED[option].minimum, highest)
        else:
            found[option] = [valid(option, value) for value in grid.names(values)]
    return found
