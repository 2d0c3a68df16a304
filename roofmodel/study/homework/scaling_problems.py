"""Problems of homework about convolutions and the data loader, and about what several GPUs tell one another."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from roofmodel import units
from roofmodel.algebra import Number
from roofmodel.counting import phases
from roofmodel.counting.operator import Operator
from roofmodel.devices import library
from roofmodel.devices.device import Device
from roofmodel.models import hub
from roofmodel.models.architecture import Architecture
from roofmodel.models.layers import MoE
from roofmodel.prediction.roofline import place
from roofmodel.study.estimate.estimate import parameters
from roofmodel.study.estimate.options import workload
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

LINKED = ("v100-sxm2-32gb", "a100-sxm-80gb", "h100-sxm", "h200")
LAYERS = ("stage1.expand", "stage1.spatial", "stage2.expand", "stage2.spatial", "stage3.expand", "stage3.spatial")
REACHED = range(5, 17)  # percent of the peak: DRAM allows ResNet-50 no more than 17 on an H100
ONCE_AROUND = Slip(0.5, "half of it: an all-reduce goes around twice, for the sums and for the results")


def convolution(draw: Draw) -> Problem:
    """FLOPs, intensity and roof of a convolution, 1 x 1 or 3 x 3."""
    name, device, batch = draw("layer", LAYERS), device_of(draw), draw("batch", range(8, 129, 8))
    found = _operators(hub.load("resnet-50"), phase="forward", batch=batch)
    layer = [op for op in found if op.name == name][-1]  # the stage's first ones may halve the image
    placed = place(layer.cost, device, "fp16")
    out, into, side, edge = (layer.sizes[axis] for axis in "ocir")
    values = {"B_img": batch, "C_in": into, "C_out": out, "X": side, "r": edge}
    moved = "2*(B_img*C_in*X**2 + C_out*C_in*r**2 + B_img*C_out*X**2)"
    intensity = f"2*B_img*X**2*C_out*C_in*r**2/({moved})"
    return Problem(
        "convolution",
        "A convolution",
        f"A layer of ResNet-50 has {edge} x {edge} filters from {into} to {out} channels. {batch} images come in with "
        f"{side} x {side} places, and go out with as many; all is fp16. On {device.name}: "
        f"{units.si(device.matmul_pipe('fp16').peak, 'FLOP/s', 4)} in fp16, {bandwidth(device)}.",
        (
            Question(
                "flops", "Its FLOPs.", "GFLOP", layer.cost.matmul_flops, "2*B_img*X**2*C_out*C_in*r**2", values,
                (
                    FMA_ONCE, Slip(1 / batch, "this is of one image; the batch is asked"),
                    Slip(1 / edge**2, "each result is a sum over all places of the filter, too"),
                    Slip(1 / into, "each result is a sum over all channels that come in, too"),
                ),
            ),
            Question(
                "intensity", "Its intensity: images, filters and results pass once.", "FLOP/B", layer.cost.intensity,
                intensity, values,
                (
                    FMA_ONCE, FMA_TWICE, FEWER_BITS,
                    Slip(
                        layer.cost.bytes / (layer.cost.bytes + 2 * (edge**2 - 1) * batch * into * side**2),
                        "this reads what comes in once for each place of the filter; a cache keeps it",
                    ),
                ),
            ),
            Question(
                "bound", "Which roof bounds it.", "compute or memory", str(placed.bound),
                f"{intensity} - P_peak/B_mem", {**values, **roofs(device, "fp16")}, tolerance=0,
            ),
        ),
    )  # fmt: skip


def loader(draw: Draw) -> Problem:
    """How many workers decode as fast as the GPU computes."""
    arch, device = hub.load(draw("network", ("resnet-50", "vit-base-patch16-224"))), device_of(draw)
    share, decode, few = draw("share", REACHED), draw("decode", range(6, 15)), draw("few", (2, 4, 6, 8))
    peak = device.matmul_pipe("fp16").peak
    flops = sum(op.total.matmul_flops for op in _operators(arch, phase="forward"))
    rate = share / 100 * peak / flops
    wanted = rate * decode / 1000  # workers, were they to be had in parts
    enough, busy = math.ceil(wanted), min(1.0, few / wanted)
    values = {"u": share / 100, "P_peak": peak, "M_img": flops // 2}
    decoding = {**values, "t_dec": decode / 1000}
    return Problem(
        "loader",
        "A data loader",
        f"{arch.name} takes {units.grouped(flops // 2)} multiply-adds an image. On {device.name}, "
        f"{units.si(peak, 'FLOP/s', 4)} in fp16, it reaches {share} % of the peak with large batches. A worker of the "
        f"data loader decodes an image in {decode} ms.",
        (
            Question(
                "images", "The images that the GPU takes in a second.", "images/s", rate, "u*P_peak/(2*M_img)", values,
                (
                    Slip(2, "twice of it: a multiply-add is two FLOPs"), Slip(100 / share, "this is at the peak"),
                    Slip(0.5, "half of it: given are multiply-adds, of two FLOPs each"),
                ),
            ),
            Question(
                "workers", "The fewest workers that keep the GPU busy.", "workers", enough,
                "ceiling(u*P_peak*t_dec/(2*M_img))", decoding,
                (
                    Slip(math.ceil(2 * wanted) / enough, "twice of it: a multiply-add is two FLOPs"),
                    Slip(math.ceil(100 / share * wanted) / enough, "this is at the peak"),
                    Slip((enough - 1) / enough, "close: with these the GPU still waits now and then"),
                ),
                tolerance=0,
            ),
            Question(
                "busy", f"With {few} workers: what part of the time the GPU computes.", "%", busy,
                "Min(1, 2*M_img*w/(t_dec*u*P_peak))", {**decoding, "w": few},
                (
                    Slip(1 / busy**2, "turn it over: what is delivered by what could be taken"),
                    Slip(1 / busy - 1, "this is how long it waits"),
                    Slip(0.01, "this is a fraction of one; it is asked in percent"),
                ),
            ),
        ),
    )  # fmt: skip


def shared(draw: Draw) -> Problem:
    """An MLP dealt out among GPUs: what they send, and how long it takes beside the products."""
    arch = hub.load(draw("model", ("llama-2-7b-hf", "llama-2-13b-hf", "llama-3.1-8b")))
    device, n, tokens = _linked(draw), draw("gpus", (2, 4, 8)), draw("tokens", range(1024, 4097, 256))
    mlp = [op for op in _operators(arch, phase="prefill", seq=tokens, tp=n) if op.name.startswith("mlp.")]
    summed = place(next(op for op in mlp if op.kind == "communication").cost, device, "fp16")
    flops = sum(op.cost.matmul_flops for op in mlp)
    up = next(op.sizes for op in _operators(arch, phase="prefill", seq=tokens) if op.name == "mlp.up")
    values = {"n_gpu": n, "T": tokens, "D": up["d"]}
    whole = Slip(n / (n - 1), "close: of the whole a GPU does not send its own part")
    return Problem(
        "shared",
        "A layer on several GPUs",
        f"The MLP of {arch.name} has three matrices, two of {up['d']} x {up['f']} and one back, in fp16. {n} GPUs have "
        f"an equal part of each, so that each gets, of all {tokens} tokens, sums that lack the others' part: an "
        f"all-reduce around a ring adds them up, in fp16. The GPUs are {device.name}: "
        f"{units.si(device.matmul_pipe('fp16').peak, 'FLOP/s', 4)} in fp16, {_link(device)}.",
        (
            Question(
                "sent", "What a GPU sends in that all-reduce.", "MB", summed.cost.link_bytes,
                "2*(n_gpu - 1)/n_gpu*2*T*D", values,
                (
                    ONCE_AROUND, whole, MORE_BITS, Slip(n / (n - 1) / 2, "this is the tensor itself"),
                    Slip(10**6 / 2**20, "this is MiB, 2^20 bytes; a MB is 10^6"),
                ),
            ),
            Question(
                "talk", "The least time that this takes.", "us", summed.link_seconds,
                "2*(n_gpu - 1)/n_gpu*2*T*D/B_link", {**values, "B_link": device.link or 0},
                (
                    ONCE_AROUND, whole, SLOWER, FASTER, MORE_BITS,
                    Slip(0.5, "this is at the rate of both directions together; a GPU sends at half of it"),
                ),
            ),
            Question(
                "work", "The least time that the MLP's products take on a GPU, at its peak.", "us",
                flops / device.matmul_pipe("fp16").peak, "3*2*T*D*W/(n_gpu*P_peak)",
                {**values, "W": up["f"], "P_peak": device.matmul_pipe("fp16").peak},
                (
                    FMA_ONCE, Slip(n, f"this is on one GPU alone; each of {n} has a part"),
                    Slip(2 / 3, "this counts two matrices; there are three"),
                    Slip(1 / 3, "this counts one matrix; there are three"),
                ),
            ),
        ),
    )  # fmt: skip


def replicas(draw: Draw) -> Problem:
    """Data-parallel training: what each GPU holds and sends, and from how many tokens on that is worth it."""
    arch = hub.load(draw("model", ("gpt2-medium", "gpt2-large", "gpt2-xl", "llama-2-7b-hf")))
    device, n = _linked(draw), draw("gpus", (2, 4, 8))
    (count, _), peak = parameters(arch), device.matmul_pipe("fp16").peak
    work, _notes = workload(arch, phase="train", batch=n, seq=1024, dp=n)
    held = phases.peak_memory(arch, work)
    gradients = next(op.cost for op in phases.operators(arch, work.steps()[0]) if op.name == "gradients.all_reduce")
    exchanged = place(gradients, device, "fp16")
    values = {"n_gpu": n, "N": count}
    return Problem(
        "replicas",
        "Replicas in training",
        f"{n} GPUs train {arch.name}, {units.grouped(count)} parameters, each a replica of its own on tokens of its "
        "own, in mixed precision with Adam: weights and gradients of 2 bytes, in fp32 a copy of the weights and two "
        "moments. Once a step they exchange the gradients by an all-reduce around a ring. The GPUs are "
        f"{device.name}: {units.si(peak, 'FLOP/s', 4)} in 16 bits, {_link(device)}.",
        (
            Question(
                "state", "What a GPU holds of all these, activations apart.", "GB",
                held.weights + held.gradients + held.optimizer, "(2 + 2 + 3*4)*N", {"N": count},
                (
                    IN_GIB, Slip(1 / 8, "this is of the weights alone"), Slip(1 / 4, "this leaves the optimizer out"),
                    Slip(12 / 16, "weights of 2 bytes, their copy, gradients and two moments: all are held"),
                    Slip(1 / n, "each replica holds all of it"),
                ),
            ),
            Question(
                "sent", "What a GPU sends once a step.", "GB", gradients.link_bytes, "2*(n_gpu - 1)/n_gpu*2*N", values,
                (
                    ONCE_AROUND, Slip(n / (n - 1), "close: of the whole a GPU does not send its own part"), IN_GIB,
                    MORE_BITS, Slip(2, "twice of it: the gradients have 2 bytes"),
                ),
            ),
            Question(
                "tokens", "The tokens of a GPU from which on its products, 6 FLOPs for each parameter and token at the "
                "peak, take longer than that.", "tokens", exchanged.link_seconds * peak / (6 * count),
                "2*(n_gpu - 1)/n_gpu*2*N/B_link*P_peak/(6*N)", {**values, "B_link": device.link or 0, "P_peak": peak},
                (
                    ONCE_AROUND, Slip(n, "these are the tokens of all GPUs; of one is asked"), SLOWER, FASTER,
                    Slip(3, "2 FLOPs are those of the forward pass alone; the backward pass has twice as many"),
                    Slip(n / (n - 1), "close: of the whole a GPU does not send its own part"), MORE_BITS,
                ),
            ),
        ),
    )  # fmt: skip


def experts(draw: Draw) -> Problem:
    """A mixture's layer on several GPUs: every matrix shared, or the experts dealt out."""
    arch, n, users = hub.load("mixtral-8x7b-v0.1"), draw("gpus", (2, 4, 8)), draw("users", range(16, 129, 8))

    def sent(*names: str, **gpus: int) -> Number:
        """By these collectives of a layer."""
        found = _operators(arch, phase="decode", batch=users, **gpus)
        return sum(op.cost.link_bytes for op in found if op.name in names)

    all_reduced = sent("attention.all_reduce", "mlp.all_reduce", tp=n)
    dealt = sent("mlp.dispatch", "mlp.collect", dp=n, ep=n)
    hidden, mixture = arch.stack.hidden, next(part for part in arch.stack.parts if isinstance(part, MoE))
    values = {"n_gpu": n, "B": users, "D": hidden}
    return Problem(
        "experts",
        "A mixture of experts on several GPUs",
        f"A layer of {arch.name} has {mixture.experts} experts, of which each token goes to {mixture.active}; the "
        f"hidden size is {hidden}. {n} GPUs decode a token of each of {users} users, in fp16. Either they share every "
        "matrix, and add up the results of attention and of the experts by an all-reduce around a ring each; or each "
        f"GPU has users of its own and {mixture.experts // n} of the experts, to which tokens travel, and results "
        "travel back, evenly dealt out.",
        (
            Question(
                "matrices", "What a GPU sends in a layer if they share every matrix.", "kB", all_reduced,
                "2*2*(n_gpu - 1)/n_gpu*2*B*D", values,
                (
                    Slip(0.5, "half of it: there are two all-reduces, each of which goes around twice"),
                    Slip(0.25, "a fourth of it: there are two all-reduces, each of which goes around twice"),
                    Slip(n / (n - 1), "close: of the whole a GPU does not send its own part"), MORE_BITS,
                    Slip(1 / n, "everybody adds up the tokens of all users"),
                ),
            ),
            Question(
                "experts", "What it sends in a layer if the experts are dealt out.", "kB", dealt,
                "2*(n_gpu - 1)/n_gpu*k_x*B/n_gpu*2*D", {**values, "k_x": mixture.active},
                (
                    Slip(0.5, f"half of it: tokens travel back, too; or does each go to {mixture.active} experts?"),
                    Slip(n / (n - 1), "close: some tokens find their expert on their own GPU"), MORE_BITS,
                    Slip(n, "this is of all users' tokens; a GPU sends those of its own"),
                ),
            ),
        ),
    )  # fmt: skip


def _operators(arch: Architecture, **options: Any) -> Iterator[Operator]:
    """Of the one step that the options of a workload describe."""
    work, _notes = workload(arch, **options)
    yield from phases.operators(arch, work.steps()[0])


def _linked(draw: Draw) -> Device:
    """One of the lectures' devices that have NVLink."""
    return library.load(draw("device", LINKED))


def _link(device: Device) -> str:
    return f"{units.si(device.link or 0, 'B/s', 4)} to the others, and as much from them"
