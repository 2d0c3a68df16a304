"""The Python function of `roof estimate`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roofmodel.devices.device import Hardware
from roofmodel.estimate.report import Report
from roofmodel.options import arguments
from roofmodel.options.arguments import Model

if TYPE_CHECKING:
    from roofmodel.options.values import (
        AttentionMode,
        ComputeFormat,
        CopyMode,
        DataParallel,
        Dtype,
        Engine,
        LatentMode,
        Logits,
        Optimizer,
        Phase,
        Recompute,
        RoutingOption,
        Runtime,
        SequenceParallel,
        StorageFormat,
    )
    from roofmodel.steps.options import WorkloadOptions


def estimate(
    model: Model,
    hw: Hardware,
    *,
    family: str | None = None,
    phase: Phase | None = None,
    batch: int = 1,
    seq: int | None = None,
    context: int | None = None,
    dtype: Dtype = "fp16",
    weights: StorageFormat | None = None,
    kv: StorageFormat | None = None,
    activations: ComputeFormat | None = None,
    attention: AttentionMode = "flash",
    logits: Logits | None = None,
    new_tokens: int | None = None,
    image: int | None = None,
    mla: LatentMode = "absorbed",
    optimizer: Optimizer | None = None,
    recompute: Recompute = "none",
    decoder_seq: int | None = None,
    runtime: Runtime = "eager",
    launch: float | str | None = None,
    tp: int = 1,
    dp: int = 1,
    pp: int = 1,
    ep: int = 1,
    vpp: int = 1,
    micro_batch: int | None = None,
    sequence_parallel: SequenceParallel = "off",
    zero: int = 0,
    memory_utilization: float = 0.9,
    loader: float | str | None = None,
    workers: int | None = None,
    copy: CopyMode | None = None,
    data_parallel: DataParallel | None = None,
    engine: Engine = "current",
    routing: RoutingOption = "uniform",
) -> Report:
    """FLOPs, bytes, bound and expected time of a model on a device, by operator and by phase; memory.

    `model` is a packaged name, a path, or a Hub id; `hw` a device's name, alias or YAML file, or a Device. `family`
    reads a config of an unknown `model_type` as one of a known family. `launch` is seconds, or text such as "12us".
    `loader` is the time of one of the data loader's `workers` (default: none) for a batch of one GPU, and `copy` how a
    batch is copied to the GPU (default: "pageable"); `.to_dict()["input_pipeline"]` has the result. `routing` is how
    the tokens of an MoE model choose experts: "uniform", "same" (all tokens use the same experts), or a file with a
    probability or count for each expert. The other options are those of `roof estimate`. None selects the default,
    which depends on the model, the phase or another option. Raises RoofError.

    Examples:
        >>> report = estimate("gpt2-xl", "a100", batch=8)
        >>> f"{report.totals['decode']['bound_seconds']:.2e} s"
        '2.78e-03 s'
        >>> report.to_frame().nlargest(1, "total_bound_seconds")["name"].item()
        'mlp.up'
    """
    from roofmodel.steps.estimate import estimate as study
    from roofmodel.steps.input_pipeline import loader_options

    options: WorkloadOptions = {
        "phase": phase, "batch": batch, "seq": seq, "context": context, "dtype": dtype, "weights": weights, "kv": kv,
        "activations": activations, "attention": attention, "logits": logits, "new_tokens": new_tokens, "image": image,
        "mla": mla, "optimizer": optimizer, "recompute": recompute, "decoder_seq": decoder_seq, "runtime": runtime,
        "launch": launch, "tp": tp, "dp": dp, "pp": pp, "ep": ep, "vpp": vpp, "micro_batch": micro_batch,
        "sequence_parallel": sequence_parallel, "zero": zero, "memory_utilization": memory_utilization,
        "data_parallel": data_parallel, "engine": engine, "routing": routing,
    }  # fmt: skip
    data_loader = loader_options(loader, workers, copy)
    return Report(study(arguments.architecture(model, family), arguments.device(hw), loader=data_loader, **options))
