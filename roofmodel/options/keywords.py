"""The options of functions as keyword arguments. `scripts/options` writes this file from their declarations."""

from collections.abc import Iterable, Mapping
from typing import Required, TypedDict

from roofmodel.options.values import (
    AttentionMode,
    ComputeFormat,
    ContextExchange,
    DataParallel,
    Dtype,
    EngineLayout,
    EngineName,
    EngineOption,
    LatentMode,
    Logits,
    MemoryFormat,
    Model,
    Names,
    Numbers,
    Optimizer,
    Overlap,
    Phase,
    RoutingOption,
    Schedule,
    SequenceParallel,
    ServePhase,
    States,
    StorageFormat,
    Sustained,
)


class WorkloadOptions(TypedDict, total=False):
    """The options of a workload. None, where it is not the default, is an error."""

    phase: Phase | ServePhase | None
    batch: int
    seq: int | None
    new_tokens: int | None
    decoder_seq: int | None
    image: int | str | None
    images: int | None
    context: int | None
    dtype: Dtype
    weights: StorageFormat | None
    kv: StorageFormat | None
    activations: ComputeFormat | None
    attention: AttentionMode
    engine: EngineName | None
    engine_option: EngineOption | None
    logits: Logits | None
    memory_format: MemoryFormat | None
    mla: LatentMode
    optimizer: Optimizer | None
    states: States | None
    lora: int | None
    lora_targets: str | None
    recompute: str
    tp: int
    dp: int
    pp: int
    ep: int
    vpp: int
    schedule: Schedule | None
    cp: int
    cp_kind: ContextExchange
    stage_layers: str | None
    micro_batch: int | None
    sequence_parallel: SequenceParallel
    zero: int
    fsdp: bool
    hsdp: int | None
    no_reshard: bool
    memory_utilization: float | None
    max_len: int | None
    token_budget: int | None
    max_seqs: int | None
    data_parallel: DataParallel | None
    overlap: Overlap
    routing: RoutingOption
    capacity: float | None
    sustained: Sustained | None
    power_limit: float | str | None


class EstimateOptions(WorkloadOptions, total=False):
    """The options of a workload, and of the requests of `--phase serve`."""

    isl: int | None
    osl: int | None
    concurrency: int | None
    requests: float | str | None
    replicas: int | None
    chunk: int | None
    prefix_hit: float | None
    length_ratio: float | None
    draft: Model | None
    draft_tokens: int | None
    acceptance: float | None
    prefill: EngineLayout | None
    prefill_engines: int | None
    decode: EngineLayout | None
    decode_engines: int | None


class GridOptions(TypedDict, total=False):
    """The options of a sweep: those of a workload and of the requests of `--phase serve`, each with one or several
    values."""

    isl: Numbers | None
    osl: Numbers | None
    concurrency: Numbers | None
    requests: float | str | Iterable[float | str] | None
    replicas: Numbers | None
    chunk: Numbers | None
    prefix_hit: float | str | Iterable[float | str] | None
    length_ratio: float | str | Iterable[float | str] | None
    draft: Names | None
    draft_tokens: Numbers | None
    acceptance: float | str | Iterable[float | str] | None
    prefill: Names | None
    prefill_engines: Numbers | None
    decode: Names | None
    decode_engines: Numbers | None
    phase: Names | None
    batch: Numbers | None
    seq: Numbers | None
    new_tokens: Numbers | None
    decoder_seq: Numbers | None
    image: Numbers | None
    images: Numbers | None
    context: Numbers | None
    dtype: Names | None
    weights: Names | None
    kv: Names | None
    activations: Names | None
    attention: Names | None
    engine: Names | None
    engine_option: EngineOption | None
    logits: Names | None
    memory_format: Names | None
    mla: Names | None
    optimizer: Names | None
    states: Names | None
    lora: Numbers | None
    lora_targets: Names | None
    recompute: Names | None
    tp: Numbers | None
    dp: Numbers | None
    pp: Numbers | None
    ep: Numbers | None
    vpp: Numbers | None
    schedule: Names | None
    cp: Numbers | None
    cp_kind: Names | None
    stage_layers: Names | None
    micro_batch: Numbers | None
    sequence_parallel: Names | None
    zero: Numbers | None
    fsdp: bool | None
    hsdp: Numbers | None
    no_reshard: bool | None
    memory_utilization: float | str | Iterable[float | str] | None
    max_len: Numbers | None
    token_budget: Numbers | None
    max_seqs: Numbers | None
    data_parallel: Names | None
    overlap: Names | None
    routing: RoutingOption | Iterable[RoutingOption] | None
    capacity: float | str | Iterable[float | str] | None
    sustained: Names | None
    power_limit: float | str | Iterable[float | str] | None


class ServiceOptions(TypedDict, total=False):
    """The options of the plan of a service, and those of which it searches only these values."""

    isl: Required[int]
    osl: Required[int]
    gpus: int | None
    ttft: float | str | None
    tpot: float | str | None
    itl_p99: float | str | None
    requests: float | str | None
    price: float | str | Mapping[str, float] | None
    memory_utilization: float | None
    max_len: int | None
    token_budget: int | None
    max_seqs: int | None
    chunk: int | None
    mode: Names | None
    draft: Model | None
    draft_tokens: int | None
    acceptance: float | None
    routing: RoutingOption | None
    engine: EngineName | None
    engine_option: EngineOption | None
    sustained: Sustained
    power_limit: float | str | None
    top: int
    time_limit: float | str
    cluster: str | None
    dtype: Names | None
    weights: Names | None
    kv: Names | None
    activations: Names | None
    tp: Numbers | None
    dp: Numbers | None
    pp: Numbers | None
    ep: Numbers | None


class TrainingOptions(TypedDict, total=False):
    """The options of the plan of a training run, and those of which it searches only these values."""

    gpus: Required[int]
    tokens: Required[float | str]
    batch: int | None
    seq: int | None
    attention: AttentionMode
    dtype: str | None
    price: float | str | Mapping[str, float] | None
    memory_utilization: float | None
    engine: EngineName | None
    engine_option: EngineOption | None
    sustained: Sustained
    power_limit: float | str | None
    top: int
    time_limit: float | str
    cluster: str | None
    recompute: Names | None
    tp: Numbers | None
    dp: Numbers | None
    pp: Numbers | None
    ep: Numbers | None
    vpp: Numbers | None
    schedule: Names | None
    cp: Numbers | None
    cp_kind: Names | None
    micro_batch: Numbers | None
    sequence_parallel: Names | None
    zero: Numbers | None
