"""Homework problems about transformers: the FLOPs of a block, prefill and decode, the KV cache."""

from __future__ import annotations

from typing import Any

from roofmodel.counting import memory, phases
from roofmodel.counting.operator import Cost
from roofmodel.counting.workload import Step, Workload
from roofmodel.devices.device import Device
from roofmodel.explain.crossover import crossover
from roofmodel.homework.problem import (
    BINARY_BANDWIDTH,
    FMA_AS_FOUR_FLOPS,
    FMA_AS_ONE_FLOP,
    IN_BITS,
    IN_GIB,
    PER_BIT,
    Draw,
    Mistake,
    Problem,
    Question,
    bandwidth,
    ceilings,
    device_of,
)
from roofmodel.models import hub
from roofmodel.numbers import units
from roofmodel.options.values import Phase
from roofmodel.steps.capacity import largest
from roofmodel.steps.estimate import parameters
from roofmodel.timing.roofline import Placement, place, ridge

DECODERS = ("llama-2-7b-hf", "llama-2-13b-hf", "llama-3.1-8b", "mistral-7b-v0.1")  # with an untied LM head


def block(draw: Draw) -> Problem:
    """FLOPs of one transformer block."""
    arch = hub.load(draw("model", ("gpt2-medium", "gpt2-large", "gpt2-xl")))
    batch, seq = draw("batch", range(2, 17)), draw("seq", range(256, 1025, 64))
    eager, flash = (_step("prefill", batch=batch, seq=seq, attention=kind) for kind in ("eager", "flash"))
    flops = sum(op.cost.matmul_flops for op in phases.operators(arch, eager) if op.layers)
    pairs = next(op.cost.matmul_flops for op in phases.operators(arch, flash) if op.kind == "attention")
    values = {"B": batch, "S": seq, "D": arch.stack.hidden}
    layers = len(arch.stack.layers)
    total = Mistake(layers, f"this is for all {layers} blocks; the question asks for one")
    matrices = 24 * batch * seq * values["D"] ** 2
    return Problem(
        "block",
        "One transformer block",
        f"{arch.name} has {layers} blocks, a hidden size of {values['D']}, and an MLP four times as wide. A batch of "
        f"{batch} prompts of {seq} tokens each is processed. Count GEMMs only.",
        (
            Question(
                "flops",
                "The FLOPs of one block that computes all query-key pairs.",
                "GFLOP",
                flops,
                "24*B*S*D**2 + 4*B*S**2*D",
                values,
                (
                    FMA_AS_ONE_FLOP,
                    total,
                    Mistake(1 / batch, "this is for one prompt; the question asks for the batch"),
                    Mistake(matrices / flops, "the GEMMs without weights are missing: QK^T and PV"),
                    Mistake((matrices + pairs) / flops, "this omits the masked pairs; here all pairs are computed"),
                ),
            ),
            Question(
                "causal",
                "The FLOPs of its attention (QK^T and PV, without projections) in a fused kernel that computes only "
                "the pairs inside the causal mask.",
                "GFLOP",
                pairs,
                "4*B*D*S*(S + 1)/2",
                values,
                (
                    Mistake(
                        2 * seq / (seq + 1),
                        "this is for all pairs: the causal mask keeps S(S+1)/2 of S^2; or a "
                        "multiply-add is counted as more than two FLOPs",
                    ),
                    Mistake(0.5, "half the answer: there are two GEMMs, and a multiply-add is two FLOPs"),
                    total,
                    Mistake(1 / batch, "this is for one prompt; the question asks for the batch"),
                ),
            ),
        ),
    )


def phase_bounds(draw: Draw) -> Problem:
    """The same GEMM in prefill and in decode: arithmetic intensity, bound, and the compute-bound batch size."""
    arch, device = hub.load(draw("model", DECODERS)), device_of(draw)
    batch, seq = draw("batch", range(2, 25)), draw("seq", range(512, 2049, 128))

    def up(phase: Phase, batch: int) -> Placement:
        """The first GEMM of the MLP."""
        found = phases.operators(arch, _step(phase, batch=batch, seq=seq))
        return place(next(op.cost for op in found if op.name == "mlp.up"), device, "fp16")

    prefill, decode = up("prefill", batch), up("decode", batch)
    found = crossover(arch.name, device, over="batch", phase="decode", op="mlp.up").subject
    compute_bound = found.changes[-1].value
    sizes = phases.operators(arch, _step("decode"))
    d, f = (next(op.sizes[axis] for op in sizes if op.name == "mlp.up") for axis in "df")
    values = {"B": batch, "S": seq, "D": d, "W": f}
    hints = (FMA_AS_ONE_FLOP, FMA_AS_FOUR_FLOPS, PER_BIT)
    return Problem(
        "phases",
        "Prefill and decode",
        f"The MLP of {arch.name} begins with a GEMM whose weight matrix is {d} x {f}; weights, inputs and outputs are "
        f"fp16. A batch of {batch} prompts of {seq} tokens is prefilled; each decode step takes one token per prompt. "
        f"On {device.name}: {units.si(device.matmul_pipe('fp16').peak, 'FLOP/s', 4)} in fp16, {bandwidth(device)}.",
        (
            Question(
                "prefill",
                "The arithmetic intensity of this GEMM in prefill.",
                "FLOP/B",
                prefill.cost.intensity,
                "2*B*S*D*W/(2*(B*S*D + D*W + B*S*W))",
                values,
                (*hints, Mistake(batch * seq / prefill.cost.intensity, "inputs and outputs move as well")),
            ),
            Question(
                "prefill_bound",
                "The ceiling that limits it in prefill.",
                "compute or memory",
                str(prefill.bound),
                "2*B*S*D*W/(2*(B*S*D + D*W + B*S*W)) - P_peak/B_mem",
                {**values, **ceilings(device, "fp16")},
                tolerance=0,
            ),
            Question(
                "decode",
                "Its arithmetic intensity in decode.",
                "FLOP/B",
                decode.cost.intensity,
                "2*B*D*W/(2*(B*D + D*W + B*W))",
                values,
                (*hints, Mistake(1 / batch, "this is for a batch of one: all sequences share one read of the matrix")),
            ),
            Question(
                "decode_bound",
                "The ceiling that limits it in decode.",
                "compute or memory",
                str(decode.bound),
                "2*B*D*W/(2*(B*D + D*W + B*W)) - P_peak/B_mem",
                {**values, **ceilings(device, "fp16")},
                tolerance=0,
            ),
            Question(
                "batch",
                "The smallest batch at which this GEMM is compute-bound in decode.",
                "sequences",
                compute_bound,
                "ceiling(D*W*P_peak/(D*W*B_mem - (D + W)*P_peak))",
                {"D": d, "W": f, **ceilings(device, "fp16")},
                (
                    *hints,
                    Mistake(
                        ridge(device, "fp16") / compute_bound,
                        "close: inputs and outputs move as well, so the "
                        "arithmetic intensity is a little below the batch size",
                    ),
                ),
            ),
        ),
    )


def kv_cache(draw: Draw) -> Problem:
    """The size of a KV cache, and the number of sequences that fit."""
    arch, device = (
        hub.load(draw("model", DECODERS)),
        Device.load(draw("device", ("a100-sxm-40gb", "a100-sxm-80gb", "h100-sxm", "h200"))),
    )
    batch, tokens = draw("batch", range(2, 25)), draw("tokens", range(1024, 4097, 256))

    def cache(batch: int, tokens: int) -> int:
        return int(memory.kv_cache_bytes(arch, _step("prefill", batch=batch, seq=tokens)))

    count, layers = parameters(arch)[0], len(arch.stack.layers)
    weights, capacity = 2 * count, device.capacity or 0

    def largest_batch(weights: int, capacity: int, times: float = 1.0) -> float:
        return largest(lambda n: weights + times * cache(n, tokens), capacity, 10**6) or 0

    fits = largest_batch(weights, capacity)
    heads = next(op.sizes for op in phases.operators(arch, _step("decode")) if op.kind == "attention")
    k, group, h = (heads[axis] for axis in "kgh")
    values = {"L": layers, "K": k, "h": h, "B": batch, "S": tokens}
    mistakes = (
        Mistake(0.5, "half the answer: the cache stores keys and values; or fp16 is counted as one byte, not two"),
        Mistake(1 / layers, "this is for one layer; each layer has a cache"),
        Mistake(group, "this counts the query heads; the cache stores key-value heads only"),
        IN_BITS,
    )
    return Problem(
        "kv",
        "The KV cache",
        f"{arch.name} has {layers} layers with {k * group} query heads and {k} key-value heads of size {h}, and "
        f"{units.grouped(count)} parameters. Weights and cache are fp16. {device.name} has "
        f"{units.binary(capacity)} of memory.",
        (
            Question(
                "token",
                "The size of the cache for one token.",
                "kB",
                cache(1, 1),
                "2*L*K*h*2",
                values,
                (
                    *mistakes,
                    Mistake(1000 / 1024, "this is in KiB (1024 bytes); a kB is 1000 bytes"),
                ),
            ),
            Question(
                "batch",
                f"The size of the cache for {batch} sequences of {tokens} tokens each.",
                "GB",
                cache(batch, tokens),
                "2*L*K*h*2*B*S",
                values,
                (
                    *mistakes,
                    IN_GIB,
                    Mistake(1 / batch, "this is for one sequence"),
                    Mistake(1 / tokens, "this is for one token"),
                ),
            ),
            Question(
                "fits",
                f"The largest batch of sequences of {tokens} tokens that fits in memory with the weights, without "
                "activations.",
                "sequences",
                fits,
                "floor((Y - 2*N)/(2*L*K*h*2*S))",
                {**values, "Y": capacity, "N": count},
                (
                    Mistake(
                        largest_batch(weights, capacity // 2**30 * 10**9) / fits, "device memory is in GiB (2^30 bytes)"
                    ),
                    Mistake(largest_batch(0, capacity) / fits, "the weights need memory as well"),
                    Mistake(largest_batch(count, capacity) / fits, "an fp16 parameter takes two bytes"),
                    Mistake(largest_batch(weights, capacity, 0.5) / fits, "the cache stores both keys and values"),
                    Mistake(largest_batch(weights, capacity, group) / fits, "the cache stores key-value heads only"),
                ),
                tolerance=0,
            ),
        ),
    )


def decode(draw: Draw) -> Problem:
    """The bytes that a decode step reads, and the bound on tokens per second."""
    arch, device = hub.load(draw("model", DECODERS)), device_of(draw)
    batch, context = draw("batch", range(2, 33)), draw("context", range(1024, 3073, 256))
    found = phases.operators(arch, _step("decode", batch=batch, context=context))
    total = sum((op.total for op in found), Cost())
    read = total.weight_bytes + total.cache_bytes
    rate = batch / (read / device.bandwidth)
    count, layers = parameters(arch)[0], len(arch.stack.layers)
    k, group, h = (next(op.sizes for op in found if op.kind == "attention")[axis] for axis in "kgh")
    v, d = (next(op.sizes for op in found if op.name == "head.logits")[axis] for axis in "vd")
    values = {"N": count, "V": v, "D": d, "B": batch}
    kept = {"L": layers, "K": k, "h": h, "B": batch, "C": context}
    table = 2 * count / total.weight_bytes
    return Problem(
        "decode",
        "Bytes read by a decode step",
        f"{arch.name} has {units.grouped(count)} parameters in fp16, including an embedding table of {v} x {d}; "
        "a decode step reads only the table rows of its tokens (the LM head has its own matrix). It has "
        f"{layers} layers with {k * group} query heads and {k} key-value heads of size {h}. A batch of {batch} "
        f"sequences is decoded, each with {context} tokens in the KV cache, on {device.name}: {bandwidth(device)}.",
        (
            Question(
                "weights",
                "The bytes of weights that a decode step reads.",
                "GB",
                total.weight_bytes,
                "2*(N - V*D + B*D)",
                values,
                (
                    Mistake(table, "close: only a few rows of the embedding table are read"),
                    IN_GIB,
                    Mistake(0.5, "half the answer: an fp16 number takes two bytes"),
                    IN_BITS,
                    Mistake(batch, "all sequences share one read of the weights"),
                ),
            ),
            Question(
                "cache",
                "The bytes of the KV cache that a decode step reads, with the new token.",
                "GB",
                total.cache_bytes,
                "2*L*K*h*2*B*(C + 1)",
                kept,
                (
                    Mistake(0.5, "half the answer: keys and values, two bytes per element"),
                    Mistake(1 / batch, "this is for one sequence"),
                    Mistake(1 / layers, "this is for one layer"),
                    Mistake(group, "the cache stores key-value heads only"),
                    IN_GIB,
                    IN_BITS,
                ),
            ),
            Question(
                "rate",
                "The bound on tokens per second of the batch, if only reading weights and cache takes time.",
                "tokens/s",
                rate,
                "B*B_mem/(2*(N - V*D + B*D) + 2*L*K*h*2*B*(C + 1))",
                {**values, **kept, "B_mem": device.bandwidth},
                (
                    Mistake(1 / batch, "these are decode steps per second: each step gives one token per sequence"),
                    Mistake(read / total.weight_bytes, "the cache is missing"),
                    PER_BIT,
                    *BINARY_BANDWIDTH,
                    Mistake(read / (2 * count + total.cache_bytes), "close: the whole embedding table is not read"),
                    Mistake(
                        read / (batch * total.weight_bytes + total.cache_bytes),
                        "all sequences share one read of the weights",
                    ),
                ),
            ),
        ),
    )


def _step(phase: Phase, **options: Any) -> Step:
    return Workload((phase,), **options).steps()[0]
