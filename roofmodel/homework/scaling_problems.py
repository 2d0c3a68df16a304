"""Homework problems about convolutions, data loaders and communication between GPUs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from roofmodel.counting import phases
from roofmodel.counting.operator import Operator
from roofmodel.devices.device import Device
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
from roofmodel.models.architecture import Architecture
from roofmodel.models.layers import MoE
from roofmodel.numbers import units
from roofmodel.numbers.algebra import Number
from roofmodel.steps.estimate import parameters
from roofmodel.steps.options import workload
from roofmodel.timing.roofline import place

NVLINK_DEVICES = ("v100-sxm2-32gb", "a100-sxm-80gb", "h100-sxm", "h200")
CONVOLUTIONS = ("stage1.expand", "stage1.spatial", "stage2.expand", "stage2.spatial", "stage3.expand", "stage3.spatial")
PERCENT_OF_PEAK = range(5, 17)  # DRAM bandwidth limits ResNet-50 to 17 % on an H100
HALF_OF_ALL_REDUCE = Mistake(
    0.5, "half the answer: a ring all-reduce goes around twice, for the sums and for the results"
)


def convolution(draw: Draw) -> Problem:
    """A 1 x 1 or 3 x 3 convolution: FLOPs, arithmetic intensity, bound."""
    name, device, batch = draw("layer", CONVOLUTIONS), device_of(draw), draw("batch", range(8, 129, 8))
    found = _operators(hub.load("resnet-50"), phase="forward", batch=batch)
    layer = [op for op in found if op.name == name][-1]  # earlier ones of the stage may halve the image
    placed = place(layer.cost, device, "fp16")
    out, into, side, edge = (layer.sizes[axis] for axis in "ocir")
    values = {"B_img": batch, "C_in": into, "C_out": out, "X": side, "r": edge}
    moved = "2*(B_img*C_in*X**2 + C_out*C_in*r**2 + B_img*C_out*X**2)"
    intensity = f"2*B_img*X**2*C_out*C_in*r**2/({moved})"
    return Problem(
        "convolution",
        "A convolution",
        f"A convolution of ResNet-50 has {edge} x {edge} filters, {into} input channels and {out} output channels. A "
        f"batch of {batch} images of {side} x {side} pixels keeps its size; all tensors are fp16. On {device.name}: "
        f"{units.si(device.matmul_pipe('fp16').peak, 'FLOP/s', 4)} in fp16, {bandwidth(device)}.",
        (
            Question(
                "flops",
                "The FLOPs.",
                "GFLOP",
                layer.cost.matmul_flops,
                "2*B_img*X**2*C_out*C_in*r**2",
                values,
                (
                    FMA_AS_ONE_FLOP,
                    Mistake(1 / batch, "this is for one image; the question asks for the batch"),
                    Mistake(1 / edge**2, "each output also sums over all positions of the filter"),
                    Mistake(1 / into, "each output also sums over all input channels"),
                ),
            ),
            Question(
                "intensity",
                "The arithmetic intensity: inputs and filters are read once, outputs written once.",
                "FLOP/B",
                layer.cost.intensity,
                intensity,
                values,
                (
                    FMA_AS_ONE_FLOP,
                    FMA_AS_FOUR_FLOPS,
                    PER_BIT,
                    Mistake(
                        layer.cost.bytes / (layer.cost.bytes + 2 * (edge**2 - 1) * batch * into * side**2),
                        "this reads the input once per position of the filter; a cache avoids that",
                    ),
                ),
            ),
            Question(
                "bound",
                "The ceiling that limits it.",
                "compute or memory",
                str(placed.bound),
                f"{intensity} - P_peak/B_mem",
                {**values, **ceilings(device, "fp16")},
                tolerance=0,
            ),
        ),
    )


def loader(draw: Draw) -> Problem:
    """Data-loader workers: the images per second of a GPU, and the workers that keep it busy."""
    arch, device = hub.load(draw("network", ("resnet-50", "vit-base-patch16-224"))), device_of(draw)
    share, decode, few = draw("share", PERCENT_OF_PEAK), draw("decode", range(6, 15)), draw("few", (2, 4, 6, 8))
    peak = device.matmul_pipe("fp16").peak
    flops = sum(op.total.matmul_flops for op in _operators(arch, phase="forward"))
    rate = share / 100 * peak / flops
    wanted = rate * decode / 1000  # workers, before rounding up
    enough, busy = math.ceil(wanted), min(1.0, few / wanted)
    values = {"u": share / 100, "P_peak": peak, "M_img": flops // 2}
    decoding = {**values, "t_dec": decode / 1000}
    return Problem(
        "loader",
        "A data loader",
        f"{arch.name} takes {units.grouped(flops // 2)} multiply-adds per image. On {device.name} "
        f"({units.si(peak, 'FLOP/s', 4)} in fp16) it achieves {share} % of the peak with large batches. A worker of "
        f"the data loader decodes an image in {decode} ms.",
        (
            Question(
                "images",
                "The images per second that the GPU processes.",
                "images/s",
                rate,
                "u*P_peak/(2*M_img)",
                values,
                (
                    Mistake(2, "twice the answer: a multiply-add is two FLOPs"),
                    Mistake(100 / share, "this is at 100 % of the peak"),
                    Mistake(0.5, "half the answer: the problem states multiply-adds, of two FLOPs each"),
                ),
            ),
            Question(
                "workers",
                "The smallest number of workers that keeps the GPU busy.",
                "workers",
                enough,
                "ceiling(u*P_peak*t_dec/(2*M_img))",
                decoding,
                (
                    Mistake(math.ceil(2 * wanted) / enough, "twice the answer: a multiply-add is two FLOPs"),
                    Mistake(math.ceil(100 / share * wanted) / enough, "this is at 100 % of the peak"),
                    Mistake((enough - 1) / enough, "close: with this number the GPU still waits at times"),
                ),
                tolerance=0,
            ),
            Question(
                "busy",
                f"The fraction of the time that the GPU computes, with {few} workers.",
                "%",
                busy,
                "Min(1, 2*M_img*w/(t_dec*u*P_peak))",
                {**decoding, "w": few},
                (
                    Mistake(1 / busy**2, "invert it: divide the images decoded by the images that the GPU can process"),
                    Mistake(1 / busy - 1, "this is the fraction of the time that it waits"),
                    Mistake(0.01, "this is a fraction; give a percentage"),
                ),
            ),
        ),
    )


def shared(draw: Draw) -> Problem:
    """A tensor-parallel MLP: bytes sent, communication time, GEMM time."""
    arch = hub.load(draw("model", ("llama-2-7b-hf", "llama-2-13b-hf", "llama-3.1-8b")))
    device, n, tokens = _nvlink_device(draw), draw("gpus", (2, 4, 8)), draw("tokens", range(1024, 4097, 256))
    mlp = [op for op in _operators(arch, phase="prefill", seq=tokens, tp=n) if op.name.startswith("mlp.")]
    summed = place(next(op for op in mlp if op.kind == "communication").cost, device, "fp16")
    flops = sum(op.cost.matmul_flops for op in mlp)
    up = next(op.sizes for op in _operators(arch, phase="prefill", seq=tokens) if op.name == "mlp.up")
    values = {"n_gpu": n, "T": tokens, "D": up["d"]}
    sends_all_parts = Mistake(n / (n - 1), "close: a GPU does not send the part that it keeps")
    return Problem(
        "shared",
        "A tensor-parallel MLP",
        f"The MLP of {arch.name} has fp16 matrices: two of {up['d']} x {up['f']} and one of {up['f']} x {up['d']}. "
        f"They are sharded over {n} GPUs. Each GPU computes a partial sum of the outputs of all {tokens} tokens; "
        f"a ring all-reduce in fp16 adds the partial sums. The GPUs are {device.name}: "
        f"{units.si(device.matmul_pipe('fp16').peak, 'FLOP/s', 4)} in fp16, {_link(device)}.",
        (
            Question(
                "sent",
                "The data that each GPU sends in this all-reduce.",
                "MB",
                summed.cost.link_bytes,
                "2*(n_gpu - 1)/n_gpu*2*T*D",
                values,
                (
                    HALF_OF_ALL_REDUCE,
                    sends_all_parts,
                    IN_BITS,
                    Mistake(n / (n - 1) / 2, "this is the size of the tensor"),
                    Mistake(10**6 / 2**20, "this is in MiB (2^20 bytes); a MB is 10^6 bytes"),
                ),
            ),
            Question(
                "talk",
                "The lower bound on the time of this all-reduce.",
                "us",
                summed.link_seconds,
                "2*(n_gpu - 1)/n_gpu*2*T*D/B_link",
                {**values, "B_link": device.link or 0},
                (
                    HALF_OF_ALL_REDUCE,
                    sends_all_parts,
                    *BINARY_BANDWIDTH,
                    IN_BITS,
                    Mistake(0.5, "this uses the bandwidth of both directions; a GPU sends at half of it"),
                ),
            ),
            Question(
                "work",
                "The lower bound on the time of the MLP's GEMMs on each GPU, at its peak.",
                "us",
                flops / device.matmul_pipe("fp16").peak,
                "3*2*T*D*W/(n_gpu*P_peak)",
                {**values, "W": up["f"], "P_peak": device.matmul_pipe("fp16").peak},
                (
                    FMA_AS_ONE_FLOP,
                    Mistake(n, f"this is for one GPU alone; the work is shared by {n}"),
                    Mistake(2 / 3, "this counts two matrices; there are three"),
                    Mistake(1 / 3, "this counts one matrix; there are three"),
                ),
            ),
        ),
    )


def replicas(draw: Draw) -> Problem:
    """Data-parallel training: the state of each GPU, the bytes it sends, and the compute-bound number of tokens."""
    arch = hub.load(draw("model", ("gpt2-medium", "gpt2-large", "gpt2-xl", "llama-2-7b-hf")))
    device, n = _nvlink_device(draw), draw("gpus", (2, 4, 8))
    (count, _), peak = parameters(arch), device.matmul_pipe("fp16").peak
    work, _notes = workload(arch, phase="train", batch=n, seq=1024, dp=n)
    need = phases.peak_memory(arch, work)
    gradients = next(op.cost for op in phases.operators(arch, work.steps()[0]) if op.name == "gradients.all_reduce")
    exchanged = place(gradients, device, "fp16")
    values = {"n_gpu": n, "N": count}
    return Problem(
        "replicas",
        "Data-parallel training",
        f"{n} GPUs train {arch.name} ({units.grouped(count)} parameters) with data parallelism: each has a replica and "
        "its own tokens. Mixed precision with Adam: 2-byte weights and gradients; in fp32 a copy of the weights and "
        "two moments. Each step exchanges the gradients by a ring all-reduce. The GPUs are "
        f"{device.name}: {units.si(peak, 'FLOP/s', 4)} in 16 bits, {_link(device)}.",
        (
            Question(
                "state",
                "The memory of weights, gradients and optimizer state on each GPU.",
                "GB",
                need.weights + need.gradients + need.optimizer,
                "(2 + 2 + 3*4)*N",
                {"N": count},
                (
                    IN_GIB,
                    Mistake(1 / 8, "this is for the weights alone"),
                    Mistake(1 / 4, "the optimizer state is missing"),
                    Mistake(12 / 16, "all of them count: 2-byte weights, their fp32 copy, gradients and two moments"),
                    Mistake(1 / n, "each replica stores all of it"),
                ),
            ),
            Question(
                "sent",
                "The data that each GPU sends per step.",
                "GB",
                gradients.link_bytes,
                "2*(n_gpu - 1)/n_gpu*2*N",
                values,
                (
                    HALF_OF_ALL_REDUCE,
                    Mistake(n / (n - 1), "close: a GPU does not send the part that it keeps"),
                    IN_GIB,
                    IN_BITS,
                    Mistake(2, "twice the answer: a gradient has 2 bytes"),
                ),
            ),
            Question(
                "tokens",
                "The number of tokens per GPU at which its GEMMs take as long as the all-reduce, with 6 FLOPs per "
                "parameter and token at the peak.",
                "tokens",
                exchanged.link_seconds * peak / (6 * count),
                "2*(n_gpu - 1)/n_gpu*2*N/B_link*P_peak/(6*N)",
                {**values, "B_link": device.link or 0, "P_peak": peak},
                (
                    HALF_OF_ALL_REDUCE,
                    Mistake(n, "these are the tokens of all GPUs; the question asks for one"),
                    *BINARY_BANDWIDTH,
                    Mistake(3, "2 FLOPs are for the forward pass alone; the backward pass takes twice as many"),
                    Mistake(n / (n - 1), "close: a GPU does not send the part that it keeps"),
                    IN_BITS,
                ),
            ),
        ),
    )


def experts(draw: Draw) -> Problem:
    """An MoE layer on several GPUs: bytes sent with tensor parallelism and with expert parallelism."""
    arch, n, users = hub.load("mixtral-8x7b-v0.1"), draw("gpus", (2, 4, 8)), draw("users", range(16, 129, 8))

    def sent(*names: str, **gpus: int) -> Number:
        """Bytes that a GPU sends in these collectives of a layer."""
        found = _operators(arch, phase="decode", batch=users, **gpus)
        return sum(op.cost.link_bytes for op in found if op.name in names)

    all_reduced = sent("attention.all_reduce", "mlp.all_reduce", tp=n)
    routed = sent("mlp.dispatch", "mlp.collect", dp=n, ep=n)
    hidden, moe = arch.stack.hidden, next(part for part in arch.stack.parts if isinstance(part, MoE))
    values = {"n_gpu": n, "B": users, "D": hidden}
    return Problem(
        "experts",
        "An MoE layer on several GPUs",
        f"A layer of {arch.name} has {moe.experts} experts, and routes each token to {moe.active}; the hidden "
        f"size is {hidden}. {n} GPUs decode one token for each of {users} users, in fp16. With tensor parallelism "
        "every matrix is sharded, and two ring all-reduces add the partial sums of attention and of the experts. With "
        f"expert parallelism each GPU has an equal share of the users and {moe.experts // n} of the experts; a token "
        "is sent once to each other GPU that has any of its experts, which are chosen at random, and the sum of their "
        "results is sent back.",
        (
            Question(
                "matrices",
                "The data that each GPU sends in a layer with tensor parallelism.",
                "kB",
                all_reduced,
                "2*2*(n_gpu - 1)/n_gpu*2*B*D",
                values,
                (
                    Mistake(0.5, "half the answer: there are two all-reduces, and each goes around twice"),
                    Mistake(0.25, "a quarter of the answer: there are two all-reduces, and each goes around twice"),
                    Mistake(n / (n - 1), "close: a GPU does not send the part that it keeps"),
                    IN_BITS,
                    Mistake(1 / n, "each GPU takes part in the sums for all users"),
                ),
            ),
            Question(
                "experts",
                "The data that each GPU sends in a layer with expert parallelism.",
                "kB",
                routed,
                "2*(n_gpu - 1)*(1 - (E - E/n_gpu)*(E - E/n_gpu - 1)/(E*(E - 1)))*B/n_gpu*2*D",
                {**values, "E": moe.experts},
                (
                    Mistake(
                        0.5,
                        "half the answer: results are sent back as well",
                    ),
                    Mistake(n / (n - 1), "close: no token is sent to its own GPU"),
                    IN_BITS,
                    Mistake(n, "this is for the tokens of all users; a GPU sends those of its own users"),
                ),
            ),
        ),
    )


def _operators(arch: Architecture, **options: Any) -> Iterator[Operator]:
    """The operators of the one step that the workload options describe."""
    work, _notes = workload(arch, **options)
    yield from phases.operators(arch, work.steps()[0])


def _nvlink_device(draw: Draw) -> Device:
    """One of the devices with NVLink."""
    return Device.load(draw("device", NVLINK_DEVICES))


def _link(device: Device) -> str:
    return f"{units.si(device.link or 0, 'B/s', 4)} between GPUs in each direction"
