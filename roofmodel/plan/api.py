"""The Python functions of `roof plan`: the best layouts of a service and of a training run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Unpack

from roofmodel.devices.device import Hardware
from roofmodel.options import arguments
from roofmodel.options.arguments import Model, ProgressCallback, no_progress
from roofmodel.options.workload import lists_search
from roofmodel.plan.report import PlanReport, TrainingPlanReport

if TYPE_CHECKING:
    from roofmodel.options.keywords import ServiceSearch, TrainingSearch
    from roofmodel.options.values import Names, RoutingOption


@lists_search("service")
def plan(
    model: Model,
    hw: Hardware | Iterable[Hardware],
    *,
    gpus: int,
    isl: int,
    osl: int,
    family: str | None = None,
    ttft: float | str | None = None,
    tpot: float | str | None = None,
    requests: float | str | None = None,
    price: float | str | Mapping[str, float] | None = None,
    memory_utilization: float = 0.9,
    mode: Names | None = None,
    draft: Model | None = None,
    draft_tokens: int | None = None,
    acceptance: float | None = None,
    routing: RoutingOption | None = None,
    top: int = 8,
    cluster: str | None = None,
    progress: ProgressCallback = no_progress,
    **search: Unpack[ServiceSearch],
) -> PlanReport:
    """The layouts, formats and batches with which `gpus` GPUs serve the most output tokens per second.

    A request has `isl` prompt tokens and `osl` new tokens. `ttft` and `tpot` are the latency targets (seconds, or text
    such as "30ms"), `requests` the required rate ("5/s"; 5 is 5/s). With a rate, `ttft` limits the mean wait in
    the queue and the prefill together. Layouts use all GPUs: `tp` × `pp` × `dp`; these and `ep`, `dtype`,
    `weights`, `kv`, `activations` restrict the search to the given values. `price` is dollars per hour and
    GPU, of all devices or by device name; with prices of all devices the cost per token decides. `mode` is "mixed"
    (prefill and decode on the same engines), "disaggregated" (on separate engines) or both. With speculative
    decoding, `draft` is a model, or "mtp" for multi-token prediction, that drafts `draft_tokens` tokens per step
    (default 3), each of them right with the probability `acceptance` (default 0.7). `routing` is how the tokens of an
    MoE model choose experts: "uniform" (the default), "same" or a file, as in `estimate`. `cluster` is the
    address of a Dask scheduler, or `local`. `progress` is called with "layouts", the number of evaluated layouts, and
    the number of all. A result without a layout that fits or meets the targets names the nearest. Raises RoofError.

    Examples:
        >>> report = plan("llama-3.1-8b", "h100", gpus=1, isl=1024, osl=256, tpot="20ms", dtype="bf16", kv="bf16")
        >>> report.meets, report.to_dict()["candidates"][0]["tp"]
        (True, 1)
    """
    from roofmodel.plan.plan import plan as study

    arguments.check_texts(family=family, cluster=cluster)
    devices = [arguments.device(device) for device in arguments.as_sequence(hw)]
    drafter = draft if draft is None or draft == "mtp" else arguments.architecture(draft, None)
    found = study(
        arguments.architecture(model, family), devices, gpus=gpus, isl=isl, osl=osl, ttft=ttft, tpot=tpot,
        requests=requests, price=price, memory_utilization=memory_utilization, top=top, cluster=cluster,
        progress=progress, mode=mode, draft=drafter, draft_tokens=draft_tokens, acceptance=acceptance,
        routing=routing, **search,
    )  # fmt: skip
    return PlanReport(found)


@lists_search("training")
def plan_training(
    model: Model,
    hw: Hardware | Iterable[Hardware],
    *,
    gpus: int,
    tokens: float | str,
    batch: int | None = None,
    seq: int | None = None,
    family: str | None = None,
    dtype: str | None = None,
    attention: str = "flash",
    price: float | str | Mapping[str, float] | None = None,
    memory_utilization: float = 0.9,
    top: int = 8,
    cluster: str | None = None,
    progress: ProgressCallback = no_progress,
    **search: Unpack[TrainingSearch],
) -> TrainingPlanReport:
    """The layouts with which `gpus` GPUs train a model on `tokens` tokens in the shortest time.

    A step has `batch` sequences of `seq` tokens (default: 4 M tokens of 4096 each). Layouts use all GPUs: `tp` × `pp` ×
    `dp`; they differ in `ep`, `vpp` (model parts per stage of an interleaved pipeline), `micro_batch`, `recompute`
    (none or full; with `attention` "eager" also selective), `sequence_parallel` and `zero` (1: the replicas shard the
    optimizer state), too. Each of these restricts the search to the given values. `tokens` is a number or text such as
    "15T"; the other options are those of `plan`.
    Raises RoofError.

    Examples:
        >>> report = plan_training("gpt2-xl", "a100", gpus=8, tokens="300B", batch=512, seq=1024, tp=1)
        >>> report.to_dict()["candidates"][0]["dp"]
        8
    """
    from roofmodel.plan.training import plan_training as study

    arguments.check_texts(family=family, cluster=cluster)
    devices = [arguments.device(device) for device in arguments.as_sequence(hw)]
    found = study(
        arguments.architecture(model, family), devices, gpus=gpus, tokens=tokens, batch=batch, seq=seq, dtype=dtype,
        attention=attention, price=price, memory_utilization=memory_utilization, top=top, cluster=cluster,
        progress=progress, **search,
    )  # fmt: skip
    return TrainingPlanReport(found)
