"""The answers of the packaged problems, which are formulas, equal what roofmodel counts for the same numbers."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from roofmodel import estimate
from roofmodel.counting import passes, phases, textbook_kernels
from roofmodel.counting.operator import Cost, Operator
from roofmodel.counting.workload import Workload
from roofmodel.devices.device import Device
from roofmodel.explain.crossover import changes, crossover
from roofmodel.homework import generator
from roofmodel.jitter.alignment import StepLayout
from roofmodel.jitter.deviations import StepKernels, deviations, kernel_gaps
from roofmodel.models import hub
from roofmodel.models.symbols import symbol
from roofmodel.profiles.ncu import metric_catalog, metrics
from roofmodel.profiles.timelines.timeline import UNKNOWN
from roofmodel.steps.capacity import largest
from roofmodel.steps.estimate import parameters
from roofmodel.steps.input_pipeline import workers_to_hide
from roofmodel.steps.options import workload
from roofmodel.timing.roofline import place, ridge
from roofmodel.trace import intervals

Drawn = dict[str, Any]
Answers = dict[str, float | str]


def kernel(name: str, n: Any, dtype: str) -> Cost:
    return textbook_kernels.operator(name, n, Workload((), dtype=dtype).widths).cost


def stream(drawn: Drawn, device: Device) -> Answers:
    placed = place(kernel(drawn["kernel"], drawn["millions"] * 10**6, drawn["dtype"]), device, drawn["dtype"])
    return {
        "intensity": placed.cost.intensity,
        "time": placed.bound_seconds,
        "rate": placed.cost.flops / placed.bound_seconds,
    }


def matmul(drawn: Drawn, device: Device) -> Answers:
    def smallest(dtype: str) -> int:
        name = drawn["kernel"]
        found = changes(name, lambda n: kernel(name, n, dtype), symbol("n"), device, dtype)
        return found.changes[-1].value  # type: ignore[no-any-return]

    return {"ridge": ridge(device, "fp16"), "fp16": smallest("fp16"), "fp64": smallest("fp64")}


def stencil(drawn: Drawn, device: Device) -> Answers:
    cached, uncached = (
        place(kernel(name, drawn["n"], drawn["dtype"]), device, drawn["dtype"])
        for name in ("stencil7", "stencil7-uncached")
    )
    return {"cached": cached.cost.intensity, "uncached": uncached.cost.intensity, "time": cached.bound_seconds}


def achieved(drawn: Drawn, device: Device) -> Answers:
    placed = place(kernel("matmul", drawn["n"], "fp16"), device, "fp16")
    measured = float(f"{placed.bound_seconds / drawn['share'] * 100:.4g}")
    return {
        "bound": placed.bound_seconds,
        "rate": placed.cost.flops / measured,
        "fraction": placed.bound_seconds / measured,
    }


def counters(drawn: Drawn) -> Answers:
    operations = [op for pipe in ("fp32", "fp16") for op in metric_catalog.VECTOR[pipe]]
    names = {op: f"{metric_catalog.OPERATION.format(unit='smsp', op=op)}.sum" for op in operations}
    moved = drawn["bytes"] * 10**7
    counts = {names[op]: float(drawn[op] * 10**6) for op in operations}
    found = metrics.interpret({**counts, f"{metric_catalog.DRAM}.sum": float(moved)}).flops
    assert found.fp32 is not None
    assert found.fp16 is not None
    return {"fp32": found.fp32, "fp16": found.fp16, "intensity": (found.fp32 + found.fp16) / moved}


def operators(model: str, **options: Any) -> list[Operator]:
    architecture = hub.load(model)
    return list(phases.operators(architecture, workload(architecture, **options)[0].steps()[0]))


def block(drawn: Drawn) -> Answers:
    sizes = dict(phase="prefill", batch=drawn["B"], seq=drawn["S"])
    eager, flash = (operators(drawn["model"], **sizes, attention=kind) for kind in ("eager", "flash"))
    return {
        "flops": sum(op.cost.matmul_flops for op in eager if op.layers),
        "causal": next(op.cost.matmul_flops for op in flash if op.kind == "attention"),
    }


def up(model: str, **options: Any) -> Cost:
    return next(op.cost for op in operators(model, **options) if op.name == "mlp.up")


def phase_bounds(drawn: Drawn, device: Device) -> Answers:
    model = drawn["model"]
    prefill = place(up(model, phase="prefill", batch=drawn["B"], seq=drawn["S"]), device, "fp16")
    decode = place(up(model, phase="decode", batch=drawn["U"]), device, "fp16")
    found = crossover(model, device, over="batch", phase="decode", op="mlp.up").subject
    return {
        "prefill": prefill.cost.intensity,
        "prefill_bound": str(prefill.bound),
        "decode": decode.cost.intensity,
        "decode_bound": str(decode.bound),
        "batch": found.changes[-1].value,
    }


def kv_cache(drawn: Drawn, device: Device) -> Answers:
    architecture = hub.load(drawn["model"])

    def cache(batch: int, tokens: int) -> int:
        work, _ = workload(architecture, phase="prefill", batch=batch, seq=tokens, kv=drawn["dtype"])
        return int(passes.kv_cache_bytes(architecture, work.steps()[0]))

    weights, length = 2 * parameters(architecture)[0], drawn["S"]
    fits = largest(lambda n: weights + cache(n, length), device.capacity or 0, 10**6)
    return {"token": cache(1, 1), "batch": cache(drawn["B"], length), "fits": fits or 0}


def decode(drawn: Drawn, device: Device) -> Answers:
    found = operators(drawn["model"], phase="decode", batch=drawn["B"], context=drawn["C"])
    total = sum((op.total for op in found), Cost())
    seconds = (total.weight_bytes + total.cache_bytes) / device.bandwidth
    return {"weights": total.weight_bytes, "cache": total.cache_bytes, "rate": drawn["B"] / seconds}


def convolution(drawn: Drawn, device: Device) -> Answers:
    found = operators("resnet-50", phase="forward", batch=drawn["B_img"])
    layer = [op for op in found if op.name == drawn["layer"]][-1]  # earlier ones of the stage may halve the image
    placed = place(layer.cost, device, "fp16")
    return {"flops": layer.cost.matmul_flops, "intensity": layer.cost.intensity, "bound": str(placed.bound)}


def loader(drawn: Drawn, device: Device) -> Answers:
    flops = sum(op.total.matmul_flops for op in operators(drawn["model"], phase="forward"))
    rate = drawn["share"] / 100 * device.matmul_pipe("fp16").peak / flops
    wanted = rate * drawn["decode"] / 1000
    return {"images": rate, "workers": -(-wanted // 1), "busy": min(1.0, drawn["w"] / wanted)}


def shared(drawn: Drawn, device: Device) -> Answers:
    found = operators(drawn["model"], phase="prefill", seq=drawn["T"], tp=drawn["n_gpu"])
    mlp = [op for op in found if op.name.startswith("mlp.")]
    summed = place(next(op for op in mlp if op.kind == "communication").cost, device, "fp16")
    flops = sum(op.cost.matmul_flops for op in mlp)
    peak = device.matmul_pipe("fp16").peak
    return {"sent": summed.cost.link_bytes, "talk": summed.link_seconds, "work": flops / peak}


def replicas(drawn: Drawn, device: Device) -> Answers:
    architecture, gpus = hub.load(drawn["model"]), drawn["n_gpu"]
    work, _ = workload(architecture, phase="train", batch=gpus, seq=1024, dp=gpus, engine="torch")  # 2-byte gradients
    need = phases.peak_memory(architecture, work)
    found = phases.operators(architecture, work.steps()[0])
    gradients = next(op.cost for op in found if op.name == "gradients.all_reduce")
    seconds = place(gradients, device, "fp16").link_seconds
    peak = device.matmul_pipe("fp16").peak
    return {
        "state": need.weights + need.gradients + need.optimizer,
        "sent": gradients.link_bytes,
        "tokens": seconds * peak / (6 * parameters(architecture)[0]),
    }


def experts(drawn: Drawn) -> Answers:
    def sent(*names: str, **gpus: int) -> float:
        found = operators(drawn["model"], phase="decode", batch=drawn["B"], **gpus)
        return float(sum(op.cost.link_bytes for op in found if op.name in names))

    gpus = drawn["n_gpu"]
    return {
        "matrices": sent("attention.all_reduce", "mlp.all_reduce", tp=gpus),
        "experts": sent("mlp.dispatch", "mlp.collect", dp=gpus, ep=gpus),
    }


def slide_crossover(drawn: Drawn, device: Device) -> Answers:
    found = changes("matmul", lambda n: kernel("matmul", n, "fp16"), symbol("n"), device, "fp16")
    return {"bytes": kernel("matmul", 1000, "fp16").bytes / 1000**2, "crossover": found.changes[-1].value}


def slide_parameters(drawn: Drawn) -> Answers:
    gemms = [op for op in operators(drawn["model"], phase="decode") if op.cost.weight_bytes and op.cost.matmul_flops]
    total = parameters(hub.load(drawn["model"]))[0]
    return {
        "matrices": sum(op.total.matmul_flops for op in gemms) // 2,  # a multiply-add per element of each matrix
        "error": total - drawn["shown"] * 10**6,
    }


US = 1e-6


def timeline(drawn: Drawn) -> Answers:
    start = drawn["first"] + drawn["pause"]
    reduce_start = start + drawn["second"] * drawn["percent"] // 100
    end = start + drawn["second"] + drawn["tail"]
    compute = intervals.union([0, start], [drawn["first"], start + drawn["second"]])
    reduction = intervals.union([reduce_start], [end])
    covered = intervals.length(intervals.join(compute, reduction))
    return {
        "summed": (drawn["first"] + drawn["second"] + intervals.length(reduction)) * US,
        "busy": covered * US,
        "exposed": intervals.length(intervals.subtract(reduction, compute)) * US,
        "idle": (end - covered) / end,
    }


def stall(drawn: Drawn) -> Answers:
    return {"workers": workers_to_hide(drawn["load"], drawn["compute"])}


def gaps(drawn: Drawn) -> Answers:
    late, delay = drawn["late"], drawn["delay"]
    in_gap = delay * drawn["percent"] // 100
    firsts = np.array([2500 + drawn[f"first_{rank}"] for rank in range(3)])
    between = np.array([40 + drawn[f"gap_{rank}"] for rank in range(3)])
    seconds = np.array([800 + drawn[f"second_{rank}"] for rank in range(3)])
    between[late] += in_gap
    seconds[late] += delay - in_gap
    starts = firsts + between
    arrivals = starts + seconds
    end = arrivals.max() + drawn["transfer"]
    times = np.stack([np.zeros_like(firsts), starts, arrivals], axis=1) * 1000
    ends = np.stack([firsts, arrivals, np.full_like(firsts, end)], axis=1) * 1000
    previous = np.concatenate([np.full((3, 1), UNKNOWN), ends[:, :-1]], axis=1)
    layout = StepLayout(np.arange(3), np.array([False, False, True]), np.ones(3, bool))
    unused = np.zeros_like(times)
    step = StepKernels(layout, times, ends, times - 20_000, previous, unused, unused, unused)
    found = deviations(step, np.zeros(3, np.int64))
    return {
        "gap": int(kernel_gaps(step, np.zeros(3, np.int64)).max()) / 1e9,
        "waiting": int((arrivals.max() - arrivals).sum()) * US,
        "lateness": float(found.lateness[late]),
        "share": float(found.gaps[late].sum()) / float(found.lateness[late]),
    }


def training_memory(drawn: Drawn, device: Device) -> Answers:
    """The states as of `roof estimate --phase train`; a block for each attention operator."""

    def states(**layout: Any) -> int:
        work = dict(phase="train", dtype="bf16", engine="torch", **layout)  # an engine with bf16 gradients
        held = estimate(drawn["model"], device.id, **work).to_dict()["memory"]
        return int(held["weights"] + held["gradients"] + held["optimizer"])

    blocks = [op for op in operators(drawn["model"], phase="prefill", seq=drawn["S"]) if op.kind == "attention"]
    tokens, hidden = blocks[0].sizes["t"], hub.load(drawn["model"]).stack.hidden
    kept = sum(op.count for op in blocks) * tokens * hidden * 2
    fits = largest(lambda n: states() + n * kept, device.capacity or 0, 10**6)
    return {
        "states": states(),
        "sequence": kept,
        "batch": fits or 0,
        "sharded": states(dp=drawn["n_gpu"], batch=drawn["n_gpu"], zero=1),
    }


def padding(drawn: Drawn) -> Answers:
    (head,) = [op for op in operators(drawn["model"], phase="decode") if op.name == "head.logits"]
    size = head.sizes["v"]
    padded = next(n for n in range(size, size + 256) if n % drawn["m"] == 0)
    rates = Device.load("h100").unaligned
    assert rates is not None
    rate = rates.rows_of_2_bytes if 2 * size % 4 else rates.rows_of_4_bytes
    return {
        "padded": padded,
        "flops": padded / size - 1,
        "speedup": size / padded / rate,
    }


WITH_DEVICE: dict[str, Callable[[Drawn, Device], Answers]] = {
    "stream": stream, "matmul": matmul, "stencil": stencil, "achieved": achieved, "phases": phase_bounds,
    "kv": kv_cache, "decode": decode, "convolution": convolution, "loader": loader, "shared": shared,
    "replicas": replicas, "training_memory": training_memory, "slide_crossover": slide_crossover,
}  # fmt: skip
WITHOUT: dict[str, Callable[[Drawn], Answers]] = {
    "counters": counters, "block": block, "experts": experts, "timeline": timeline, "stall": stall, "gaps": gaps,
    "padding": padding, "slide_parameters": slide_parameters,
}  # fmt: skip
BY_HAND = {"late", "slide_stencil", "slide_means"}  # test_homework.py derives their answers


@pytest.mark.parametrize("name", sorted(generator.packaged().problems.keys() - BY_HAND))
@pytest.mark.parametrize("number", range(4))
def test_the_formulas_of_a_problem_give_what_roofmodel_counts(name: str, number: int) -> None:
    drawn: Drawn = {}
    choice = random.Random(f"{name} {number}")

    def draw(quantity: str, options: Sequence[Any]) -> Any:
        chosen = choice.choice(options)
        drawn.update(chosen if isinstance(chosen, dict) else {quantity: chosen})
        return chosen

    problem = generator.packaged().problem(name, draw)
    device = Device.load(drawn.get("device", "a100"))
    counted = WITH_DEVICE[name](drawn, device) if name in WITH_DEVICE else WITHOUT[name](drawn)
    answers = {question.id: question.value for question in problem.questions}
    assert counted == {
        id: value if isinstance(value, str) else pytest.approx(value, rel=1e-9)
        for id, value in answers.items()
        if id in counted
    }
    assert counted.keys() == answers.keys() or name == "stall"
