"""The Python functions of `roof plan`: the best layouts of a service and of a training run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Unpack

from roofmodel.devices.device import Device, Hardware
from roofmodel.options import values
from roofmodel.options.signature import checked
from roofmodel.options.values import (
    AttentionMode,
    EngineName,
    EngineOption,
    Model,
    Names,
    ProgressCallback,
    RoutingOption,
    no_progress,
)
from roofmodel.options.workload import MEMORY_UTILIZATION, lists_search
from roofmodel.plan.report import PlanReport, TrainingPlanReport

if TYPE_CHECKING:
    from roofmodel.options.keywords import ServiceSearch, TrainingSearch


@checked
@lists_search("service")
def plan(
    model: Model,
    hw: Hardware | Iterable[Hardware],
    *,
    gpus: int,
    isl: int,
    osl: int,
    ttft: float | str | None = None,
    tpot: float | str | None = None,
    requests: float | str | None = None,
    price: float | str | Mapping[str, float] | None = None,
    memory_utilization: float = MEMORY_UTILIZATION,
    mode: Names | None = None,
    draft: Model | None = None,
    draft_tokens: int | None = None,
    acceptance: float | None = None,
    routing: RoutingOption | None = None,
    engine: EngineName | None = None,
    engine_option: EngineOption | None = None,
    family: str | None = None,
    top: int = 8,
    time_limit: float | str = "60s",
    cluster: str | None = None,
    progress: ProgressCallback = no_progress,
    **search: Unpack[ServiceSearch],
) -> PlanReport:
    """Find the layouts, formats and batches with which GPUs serve the most output tokens per second within limits.

    Layouts use at most `gpus` GPUs: `tp` × `pp` × `dp`. With prices of all devices the cost per token decides. A result
    without a layout that fits or meets the targets names the nearest. Raises RoofError.

    Args:
        model: A packaged name, a config.json or its folder, or a Hub id.
        hw: Devices: a100,h100, or `hw` several times.
        gpus: Number of GPUs; a service or a training run uses at most these.
        isl: Prompt tokens of a request.
        osl: New tokens of a request.
        ttft: Limit of the time to first token, such as 500ms; with `requests`, it includes the wait.
        tpot: Limit of the time per output token, such as 30ms.
        requests: Request rate that the GPUs must serve: 5/s or 300/min; 5 means 5/s.
        price: Price of a GPU in dollars per hour: 2 for every device, or a100=1.5,h100=3.
        memory_utilization: Share of a device's memory that may be used.
        mode: Prefill and decode on the same engines (mixed) or on separate ones (disaggregated); default: both.
        draft: Draft model of speculative decoding, or mtp for the multi-token prediction of the model itself.
        draft_tokens: Tokens drafted per step (default: 3).
        acceptance: Probability that a draft token is right (default: 0.7).
        routing: How tokens of an MoE model choose experts, as for estimate: uniform, same or a FILE (default: uniform).
        engine: Software that runs the model, as for estimate (default: vllm for a service; for training megatron on
            several GPUs, else torch).
        engine_option: KEY=VALUE, such as attention=flashinfer, as for estimate.
        family: Read an unknown model_type as this family, such as llama.
        top: Number of candidates to show, at least one per device.
        time_limit: Time limit of the search. "complete" in the JSON is false if it ended before all layouts.
        cluster: Compute with Dask: the address of a scheduler, or local for processes on this machine.
        progress: Called with "layouts", the number of evaluated layouts, and the number of all.
        **search: The options of `estimate` of which only these values are searched.

    Examples:
        >>> report = plan("llama-3.1-8b", "h100", gpus=1, isl=1024, osl=256, tpot="20ms", dtype="bf16", kv="bf16")
        >>> report.meets, report.to_dict()["candidates"][0]["tp"]
        (True, 1)
    """
    from roofmodel.models import hub
    from roofmodel.plan.plan import plan as study

    devices = [Device.load(device) for device in values.as_sequence(hw)]
    drafter = draft if draft is None or draft == "mtp" else hub.load(draft, None)
    serving_plan = study(
        hub.load(model, family), devices, gpus=gpus, isl=isl, osl=osl, ttft=ttft, tpot=tpot,
        requests=requests, price=price, memory_utilization=memory_utilization, top=top, time_limit=time_limit,
        cluster=cluster, progress=progress, mode=mode, draft=drafter, draft_tokens=draft_tokens, acceptance=acceptance,
        routing=routing, engine=engine, engine_option=engine_option, **search,
    )  # fmt: skip
    return PlanReport(serving_plan)


@checked
@lists_search("training")
def plan_training(
    model: Model,
    hw: Hardware | Iterable[Hardware],
    *,
    gpus: int,
    tokens: float | str,
    batch: int | None = None,
    seq: int | None = None,
    attention: AttentionMode = "flash",
    dtype: str | None = None,
    price: float | str | Mapping[str, float] | None = None,
    memory_utilization: float = MEMORY_UTILIZATION,
    engine: EngineName | None = None,
    engine_option: EngineOption | None = None,
    family: str | None = None,
    top: int = 8,
    time_limit: float | str = "60s",
    cluster: str | None = None,
    progress: ProgressCallback = no_progress,
    **search: Unpack[TrainingSearch],
) -> TrainingPlanReport:
    """Find the layouts with which GPUs train a model in the shortest time.

    Layouts use at most `gpus` GPUs: `tp` × `pp` × `dp`; they differ in the other options of `search`, too. Raises
    RoofError.

    Args:
        model: A packaged name, a config.json or its folder, or a Hub id.
        hw: As for `plan`, and so are `price`, `memory_utilization`, `family`, `top`, `time_limit`, `cluster` and
            `progress`.
        gpus: Number of GPUs; layouts use at most these.
        tokens: Tokens of the run, such as 300B or 15T.
        batch: Sequences of a step, over all GPUs (default: 4 M tokens / `seq`).
        seq: Tokens of a sequence (default: 4096, or the model's limit).
        attention: Attention in one fused kernel (flash) or unfused (eager).
        dtype: Compute format (default: bf16 or fp16).
        engine: What trains the model, as for estimate (default: megatron on several GPUs, else torch).
        engine_option: KEY=VALUE, such as attention=flashinfer, as for estimate.
        **search: The options of `estimate` of which only these values are searched.

    Examples:
        >>> report = plan_training("gpt2-xl", "a100", gpus=8, tokens="300B", batch=512, seq=1024, tp=1)
        >>> report.to_dict()["candidates"][0]["dp"]
        8
    """
    from roofmodel.models import hub
    from roofmodel.plan.training import plan_training as study

    devices = [Device.load(device) for device in values.as_sequence(hw)]
    training_plan = study(
        hub.load(model, family), devices, gpus=gpus, tokens=tokens, batch=batch, seq=seq, dtype=dtype,
        attention=attention, price=price, memory_utilization=memory_utilization, engine=engine,
        engine_option=engine_option, top=top, time_limit=time_limit, cluster=cluster, progress=progress, **search,
    )  # fmt: skip
    return TrainingPlanReport(training_plan)
