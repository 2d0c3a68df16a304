"""Problems of homework about transformers: a block's FLOPs, prefill and decode, the KV cache."""

from __future__ import annotations

from typing import Any

from roofmodel import units
from roofmodel.counting import memory, phases
from roofmodel.counting.operator import Cost
from roofmodel.counting.workload import Phase, Step, Workload
from roofmodel.devices import library
from roofmodel.models import hub
from roofmodel.prediction.roofline import Placement, place, ridge
from roofmodel.study.derive.crossover import crossover
from roofmodel.study.estimate import capacity as fitting
from roofmodel.study.estimate.estimate import parameters
from roofmodel.study.homework.problem import (
    FASTER,
    FEWER_BITS,
    FMA_ONCE,
    FMA_TWICE,
    IN_GIB,
    MORE_BITS,
    SLOWER,
    Draw,
    Problem,
    Question,
    Slip,
    bandwidth,
    device_of,
    roofs,
)

DECODERS = ("llama-2-7b-hf", "llama-2-13b-hf", "llama-3.1-8b", "mistral-7b-v0.1")  # whose head has a matrix of its own


def block(draw: Draw) -> Problem:
    """FLOPs of one transformer block."""
    arch = hub.load(draw("model", ("gpt2-medium", "gpt2-large", "gpt2-xl")))
    batch, seq = draw("batch", range(2, 17)), draw("seq", range(256, 1025, 64))
    eager, flash = (_step("prefill", batch=batch, seq=seq, attention=kind) for kind in ("eager", "flash"))
    flops = sum(op.cost.matmul_flops for op in phases.operators(arch, eager) if op.layers)
    pairs = next(op.cost.matmul_flops for op in phases.operators(arch, flash) if op.kind == "attention")
    values = {"B": batch, "S": seq, "D": arch.stack.hidden}
    layers = len(arch.stack.layers)
    total = Slip(layers, f"this is of all {layers} blocks; one is asked")
    matrices = 24 * batch * seq * values["D"] ** 2
    return Problem(
        "block",
        "One block of a transformer",
        f"{arch.name} has {layers} blocks, a hidden size of {values['D']}, and an MLP four times as wide. A batch of "
        f"{batch} prompts of {seq} tokens each passes through. Count matrix products only.",
        (
            Question(
                "flops", "The FLOPs of one block, with all query-key pairs computed.", "GFLOP", flops,
                "24*B*S*D**2 + 4*B*S**2*D", values,
                (
                    FMA_ONCE, total, Slip(1 / batch, "this is of one prompt; the batch is asked"),
                    Slip(matrices / flops, "this lacks the products without weights: scores, and sums of values"),
                    Slip((matrices + pairs) / flops, "this leaves out the masked pairs; here all are computed"),
                ),
            ),
            Question(
                "causal", "The FLOPs of its attention alone (scores and weighted sums, without projections) if a fused "
                "kernel computes only the pairs that the causal mask leaves.", "GFLOP", pairs,
                "4*B*D*S*(S + 1)/2", values,
                (
                    Slip(2 * seq / (seq + 1), "this is of all pairs: the mask leaves S(S+1)/2 of S^2; or is it a "
                         "multiply-add counted as more than two FLOPs?"),
                    Slip(0.5, "half of it: there are two products, and a multiply-add is two FLOPs"), total,
                    Slip(1 / batch, "this is of one prompt; the batch is asked"),
                ),
            ),
        ),
    )  # fmt: skip


def phase_bounds(draw: Draw) -> Problem:
    """The same product in a prefill and in a decode."""
    arch, device = hub.load(draw("model", DECODERS)), device_of(draw)
    batch, seq = draw("batch", range(2, 25)), draw("seq", range(512, 2049, 128))

    def up(phase: Phase, batch: int) -> Placement:
        """The MLP's first matrix."""
        found = phases.operators(arch, _step(phase, batch=batch, seq=seq))
        return place(next(op.cost for op in found if op.name == "mlp.up"), device, "fp16")

    prefill, decode = up("prefill", batch), up("decode", batch)
    found = crossover(arch.name, device, over="batch", phase="decode", op="mlp.up").subject
    even = found.changes[-1].value
    sizes = phases.operators(arch, _step("decode"))
    d, f = (next(op.sizes[axis] for op in sizes if op.name == "mlp.up") for axis in "df")
    values = {"B": batch, "S": seq, "D": d, "W": f}
    hints = (FMA_ONCE, FMA_TWICE, FEWER_BITS)
    return Problem(
        "phases",
        "Prefill and decode",
        f"The MLP of {arch.name} begins with a matrix of {d} x {f} in fp16; what goes in and comes out is fp16, too. "
        f"{batch} prompts of {seq} tokens are prefilled together; then each decode takes one token of each. On "
        f"{device.name}: {units.si(device.matmul_pipe('fp16').peak, 'FLOP/s', 4)} in fp16, {bandwidth(device)}.",
        (
            Question(
                "prefill", "The intensity of this product in the prefill.", "FLOP/B", prefill.cost.intensity,
                "2*B*S*D*W/(2*(B*S*D + D*W + B*S*W))", values,
                (*hints, Slip(batch * seq / prefill.cost.intensity, "inputs and outputs are moved, too")),
            ),
            Question(
                "prefill_bound", "Which roof bounds it in the prefill.", "compute or memory", str(prefill.bound),
                "2*B*S*D*W/(2*(B*S*D + D*W + B*S*W)) - P_peak/B_mem", {**values, **roofs(device, "fp16")},
                tolerance=0,
            ),
            Question(
                "decode", "Its intensity in a decode.", "FLOP/B", decode.cost.intensity,
                "2*B*D*W/(2*(B*D + D*W + B*W))", values,
                (*hints, Slip(1 / batch, "this is of a batch of one: all sequences share one pass over the matrix")),
            ),
            Question(
                "decode_bound", "Which roof bounds it in a decode.", "compute or memory", str(decode.bound),
                "2*B*D*W/(2*(B*D + D*W + B*W)) - P_peak/B_mem", {**values, **roofs(device, "fp16")},
                tolerance=0,
            ),
            Question(
                "batch", "The smallest batch from which a decode's product is bound by compute.", "sequences", even,
                "ceiling(D*W*P_peak/(D*W*B_mem - (D + W)*P_peak))", {"D": d, "W": f, **roofs(device, "fp16")},
                (
                    *hints, Slip(ridge(device, "fp16") / even, "close: inputs and outputs are moved, too, so that the "
                                 "intensity is a little below the batch"),
                ),
            ),
        ),
    )  # fmt: skip


def kv_cache(draw: Draw) -> Problem:
    """Bytes of a KV cache, and how many sequences fit."""
    arch, device = (
        hub.load(draw("model", DECODERS)),
        library.load(draw("device", ("a100-sxm-40gb", "a100-sxm-80gb", "h100-sxm", "h200"))),
    )
    batch, tokens = draw("batch", range(2, 25)), draw("tokens", range(1024, 4097, 256))

    def cache(batch: int, tokens: int) -> int:
        return int(memory.kv_cache_bytes(arch, _step("prefill", batch=batch, seq=tokens)))

    count, layers = parameters(arch)[0], len(arch.stack.layers)
    weights, capacity = 2 * count, device.capacity or 0

    def most(weights: int, capacity: int, times: float = 1.0) -> float:
        return fitting.largest(lambda n: weights + times * cache(n, tokens), capacity, 10**6) or 0

    fits = most(weights, capacity)
    heads = next(op.sizes for op in phases.operators(arch, _step("decode")) if op.kind == "attention")
    k, group, h = (heads[axis] for axis in "kgh")
    values = {"L": layers, "K": k, "h": h, "B": batch, "S": tokens}
    slips = (
        Slip(0.5, "half of it: keys and values are kept; or is it one byte an element, where fp16 has two?"),
        Slip(1 / layers, "this is of one layer; each has a cache"),
        Slip(group, "this counts the query heads; only key-value heads are kept"),
        MORE_BITS,
    )
    return Problem(
        "kv",
        "The KV cache",
        f"{arch.name} has {layers} layers with {k * group} query heads and {k} key-value heads of {h}, and "
        f"{units.grouped(count)} parameters, all in fp16, as is the cache. {device.name} has "
        f"{units.binary(capacity)} of memory.",
        (
            Question("token", "What the cache keeps of one token.", "kB", cache(1, 1), "2*L*K*h*2", values, (
                *slips, Slip(1000 / 1024, "this is KiB, 1024 bytes; a kB is 1000"),
            )),
            Question(
                "batch", f"What it keeps of {batch} sequences of {tokens} tokens each.", "GB", cache(batch, tokens),
                "2*L*K*h*2*B*S", values,
                (*slips, IN_GIB, Slip(1 / batch, "this is of one sequence"), Slip(1 / tokens, "this is of one token")),
            ),
            Question(
                "fits", f"The most sequences of {tokens} tokens that fit beside the weights; leave activations out.",
                "sequences", fits, "floor((Y - 2*N)/(2*L*K*h*2*S))", {**values, "Y": capacity, "N": count},
                (
                    Slip(most(weights, capacity // 2**30 * 10**9) / fits, "a device's memory is in GiB, 2^30 bytes"),
                    Slip(most(0, capacity) / fits, "the weights take their place, too"),
                    Slip(most(count, capacity) / fits, "a parameter in fp16 takes two bytes"),
                    Slip(most(weights, capacity, 0.5) / fits, "keys and values are kept, both"),
                    Slip(most(weights, capacity, group) / fits, "only key-value heads are kept"),
                ),
                tolerance=0,
            ),
        ),
    )  # fmt: skip


def decode(draw: Draw) -> Problem:
    """What a decode reads, and the tokens per second that this allows."""
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
        "What a decode reads",
        f"{arch.name} has {units.grouped(count)} parameters in fp16, of them a table of embeddings with {v} rows of "
        f"{d}, of which a decode reads only the rows of its tokens (the head has a matrix of its own); {layers} layers "
        f"with {k * group} query heads and {k} key-value heads of {h}. {batch} sequences are decoded together, each "
        f"with {context} tokens in its cache, on {device.name}: {bandwidth(device)}.",
        (
            Question(
                "weights", "The bytes of weights that a decode reads.", "GB", total.weight_bytes,
                "2*(N - V*D + B*D)", values,
                (
                    Slip(table, "close: of the table of embeddings only a few rows are read"), IN_GIB,
                    Slip(0.5, "half of it: fp16 takes two bytes"), MORE_BITS,
                    Slip(batch, "all sequences share one pass over the weights"),
                ),
            ),
            Question(
                "cache", "The bytes of the KV cache that it reads.", "GB", total.cache_bytes,
                "2*L*K*h*2*B*(C + 1)", kept,
                (
                    Slip(0.5, "half of it: keys and values, of two bytes each"),
                    Slip(1 / batch, "this is of one sequence"),
                    Slip(1 / layers, "this is of one layer"), Slip(group, "only key-value heads are kept"), IN_GIB,
                    MORE_BITS,
                ),
            ),
            Question(
                "rate", "The most tokens per second over the batch, if weights and cache are all that takes time.",
                "tokens/s", rate, "B*B_mem/(2*(N - V*D + B*D) + 2*L*K*h*2*B*(C + 1))",
                {**values, **kept, "B_mem": device.bandwidth},
                (
                    Slip(1 / batch, "these are decodes per second: each gives a token of every sequence"),
                    Slip(read / total.weight_bytes, "this leaves out the cache"), FEWER_BITS, SLOWER, FASTER,
                    Slip(read / (2 * count + total.cache_bytes), "close: the table of embeddings is not read"),
                    Slip(read / (batch * total.weight_bytes + total.cache_bytes), "the batch shares the weights"),
                ),
            ),
        ),
    )  # fmt: skip


def _step(phase: Phase, **options: Any) -> Step:
    return Workload((phase,), **options).steps()[0]
