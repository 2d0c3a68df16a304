"""`roof op` and `roofmodel.op`: one operation on a device."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from roofmodel.devices.device import Device, Hardware
from roofmodel.errors import Text
from roofmodel.numbers import units
from roofmodel.options.signature import checked
from roofmodel.options.values import EngineName, EngineOption, Sustained, on_or_off, seconds_of
from roofmodel.options.workload import valid
from roofmodel.report.base import Result
from roofmodel.report.command import CommandLine
from roofmodel.report.document import Document

if TYPE_CHECKING:
    from roofmodel.op.op import OneOperation


class OpReport(Result):
    """Result of `op`: one operation on a device."""

    def __init__(self, operation: OneOperation) -> None:
        self.operation = operation

    def answer(self) -> Document:
        """A summary, and the terms of the formula."""
        from roofmodel.op.answer import document

        return document(self.operation)

    @property
    def bound_seconds(self) -> float:
        """The least time at the device's ceilings."""
        return float(self.operation.placed.bound_seconds)

    @property
    def expected_seconds(self) -> float | None:
        """The expected time; None where no parameters are fitted."""
        expected = self.operation.drawn.expected
        return expected and float(expected.value)

    def _messages(self) -> Iterable[Text]:
        return self.operation.notes

    def __repr__(self) -> str:
        operation = self.operation
        return f"<OpReport of {operation.kind} on {operation.device.id}: bound {units.seconds(self.bound_seconds)}>"


@checked
def op(
    kind: str,
    hw: Hardware,
    *,
    m: int | None = None,
    n: int | None = None,
    k: int | None = None,
    batch: int | None = None,
    heads: int | None = None,
    kv_heads: int | None = None,
    head_dim: int | None = None,
    seq: int | None = None,
    kv_len: int | None = None,
    window: int | None = None,
    tokens: int | None = None,
    hidden: int | None = None,
    inter: int | None = None,
    inter_per_gpu: int | None = None,
    topk: int | None = None,
    experts: int | None = None,
    distribution: str | None = None,
    moe_tp: int | None = None,
    moe_ep: int | None = None,
    tp: int | None = None,
    num_gpus: int | None = None,
    elements: int | None = None,
    collective: str | None = None,
    channels: int | None = None,
    filters: int | None = None,
    filter: int | None = None,
    image: int | None = None,
    stride: int | None = None,
    groups: int | None = None,
    part: str | None = None,
    phase: str | None = None,
    kernel: str | None = None,
    d_conv: int | None = None,
    d_state: int | None = None,
    k_heads: int | None = None,
    k_dim: int | None = None,
    v_heads: int | None = None,
    v_dim: int | None = None,
    dtype: str = "fp16",
    kv_dtype: str | None = None,
    engine: EngineName | None = None,
    engine_option: EngineOption | None = None,
    sustained: Sustained | None = None,
    power_limit: float | str | None = None,
    measured: float | str | None = None,
) -> OpReport:
    """Bound and expected time of one operation, with the terms of its formula.

    Raises RoofError.

    Args:
        kind: gemm, attention, moe, all-reduce, all-gather, reduce-scatter, all-to-all, norm, conv, or an op of the
            tables of 'roof validate'.
        hw: A packaged device (see 'roof hw list') or a YAML file.
        m: gemm: rows of A; norm, softmax, gelu: rows.
        n: gemm: columns of B; norm, softmax, gelu: columns.
        k: gemm: columns of A.
        batch: Sequences, or images (default: 1).
        heads: Query heads of one GPU.
        kv_heads: Key-value heads of one GPU (default: `heads`).
        head_dim: Elements of a head.
        seq: Queries per sequence (default: 1, a decode; more: a prefill).
        kv_len: Keys per sequence, with the queries (default: `seq` of a prefill).
        window: Keys of a sliding window; 0: none (default: 0).
        tokens: Tokens (moe, input_layernorm, add …).
        hidden: Hidden size.
        inter: moe: intermediate size of an expert.
        inter_per_gpu: mlp_act: intermediate size on one GPU.
        topk: moe: experts per token.
        experts: moe: all experts.
        distribution: moe: balanced, uniform or power_law_1.2, as in tables (default: uniform).
        moe_tp: moe: GPUs that share each expert (default: 1).
        moe_ep: moe: GPUs over which the experts are distributed (default: 1).
        tp: attn_rope: GPUs that share the heads (default: 1).
        num_gpus: GPUs of a collective.
        elements: Elements of a collective's whole tensor, in `dtype`.
        collective: nccl: all_reduce, all_gather, reduce_scatter or alltoall.
        channels: conv: input channels.
        filters: conv: output channels.
        filter: conv: width of the filter.
        image: conv: width of the image, which is square.
        stride: conv: stride (default: 1).
        groups: conv: groups of channels; mamba2: groups of heads (default: 1).
        part: mla_bmm: mla_gen_pre or mla_gen_post.
        phase: gdn, kda, mamba2: context or generation.
        kernel: gdn, kda, mamba2: the kernel, such as causal_conv1d_fn.
        d_conv: gdn, kda, mamba2: width of the causal convolution.
        d_state: mamba2: size of the state.
        k_heads: gdn, kda: key heads.
        k_dim: gdn, kda: elements of a key.
        v_heads: gdn, kda: value heads.
        v_dim: gdn, kda: elements of a value.
        dtype: Format, as in tables: fp16, bf16, fp32, tf32, fp8, fp8_block, nvfp4, int8, int4_wo …
        kv_dtype: attention: format of the KV cache (default: that of the activations).
        engine: Engine whose kernel runs it (default: vllm; torch for conv).
        engine_option: KEY=VALUE, such as attention=triton, as for estimate.
        sustained: Expected time under long load, at the rates that the card sustains under its power limit: on or off
            (default: on with `power_limit`, else off).
        power_limit: Power limit of the card, such as 500W (default: that of its file).
        measured: A measured time, such as 140us, to compare with bound and expected time.

    Examples:
        >>> op("gemm", "h100", m=8192, n=8192, k=8192, dtype="fp8")
        <OpReport of gemm on h100-sxm: bound 556 µs>
    """
    sizes = dict(
        m=m, n=n, k=k, batch=batch, heads=heads, kv_heads=kv_heads, head_dim=head_dim, seq=seq, kv_len=kv_len,
        window=window, tokens=tokens, hidden=hidden, inter=inter, inter_per_gpu=inter_per_gpu, topk=topk,
        experts=experts, distribution=distribution, moe_tp=moe_tp, moe_ep=moe_ep, tp=tp, num_gpus=num_gpus,
        elements=elements, collective=collective, channels=channels, filters=filters, filter=filter, image=image,
        stride=stride, groups=groups, part=part, phase=phase, kernel=kernel, d_conv=d_conv, d_state=d_state,
        k_heads=k_heads, k_dim=k_dim, v_heads=v_heads, v_dim=v_dim,
    )  # fmt: skip
    from roofmodel.op.op import one_operation
    from roofmodel.steps.placed import LoadSettings

    seconds = None if measured is None else seconds_of("measured", measured, "140us")
    options = valid("engine_option", engine_option or ())
    watts = None if power_limit is None else valid("power_limit", power_limit)
    load = LoadSettings(on_or_off("sustained", watts is not None if sustained is None else sustained), watts)
    operation = one_operation(
        kind, Device.load(hw), sizes, dtype=dtype, kv_dtype=kv_dtype, engine=engine, engine_option=options,
        measured=seconds, load=load,
    )  # fmt: skip
    return OpReport(operation)


COMMAND = CommandLine(
    op,
    examples=(
        "roof op gemm --hw h100 --m 8192 --n 8192 --k 8192 --dtype fp8",
        "roof op attention --hw a100 --batch 16 --heads 32 --kv-heads 8 --head-dim 128 --kv-len 4096 --measured 140us",
        "roof op all-reduce --hw h100 --num-gpus 8 --elements 33554432",
        "roof op conv --hw v100 --batch 64 --channels 64 --filters 64 --filter 3 --image 56",
    ),
)
