"""The answer of `roof estimate --phase serve`: latencies and rates of a service, and the operators of its mean decode
step, as of any phase."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from roofmodel.estimate import answer
from roofmodel.estimate.data import to_dict
from roofmodel.numbers import units
from roofmodel.report.document import Document, Facts, Heading
from roofmodel.serve.service import ServingEstimate
from roofmodel.serve.totals import LATENCIES, TOTALS, output_rate
from roofmodel.steps.estimate import describe_phase
from roofmodel.timing.timing import Expected

ALWAYS_BUSY = 0.97
"""Share of the time in which engines that limit a service compute; their last steps end after the time that is
counted."""


def document(service: ServingEstimate, *, ops: bool = False, roofline: bool = False) -> Document:
    """The answers, the requests, and the table of the mean decode step."""
    step = service.mean_step
    of_step = answer.document(step, ops=ops, roofline=roofline)
    blocks = [
        block._replace(text=f"mean step without prompts, {describe_phase(step.phases[0])}")
        if isinstance(block, Heading) else block
        for block in [*of_step.blocks][2:]
    ]  # fmt: skip
    facts = [Facts([*_summary(service)]), Facts([*_setting(service)])]
    return of_step._replace(
        blocks=[*facts, *blocks], data=partial(data, service), table=partial(_flat, of_step.table),
    )  # fmt: skip


def data(service: ServingEstimate) -> dict[str, Any]:
    """The document `roofmodel.estimate/1` with one phase, `serve`: the operators are those of the mean decode step."""
    of_step = to_dict(service.mean_step)
    (phase,) = of_step["phases"]
    return {
        **of_step,
        "workload": {**of_step["workload"], **service.request._asdict(), "chunk": service.chunk},
        "phases": [{**phase, "phase": "serve", "totals": {**phase["totals"], **TOTALS.record(service)}}],
    }


def _flat(of_step: Any) -> Any:
    rows = of_step()
    return rows._replace(rows=[{**row, "phase": "serve"} for row in rows.rows])


def _summary(service: ServingEstimate) -> Iterator[tuple[str, str]]:
    """Latencies, rates, what the steps contain, what limits them, memory."""
    times = service.times
    for name, (title, _) in LATENCIES.items():
        value, low, high = (
            (times and getattr(times, name)) for times in (service.expected, service.low, service.high)
        )  # fmt: skip
        expected = None if value is None else Expected(value, low, high)
        text = answer.describe_latency(
            getattr(service.bound, name), expected, service.outside if name == "ttft" and expected else 0
        )
        if name == "ttft" and service.request.requests is None and service.loop.first_ttft > times.ttft:
            text += f"; first requests {units.seconds(service.loop.first_ttft)}"
        if name == "itl_p99":
            text += f"; largest {units.seconds(times.longest)}"
        yield title, text
    kind = "" if service.expected else " (bound)"
    tokens = output_rate(times, service.mean_osl)
    assert tokens is not None
    yield (
        "tokens/s",
        f"{units.si(tokens).strip()} output · {units.si(tokens / service.gpus).strip()} per GPU · "
        f"{units.si(1 / times.tpot).strip()} per user · {units.significant(times.requests_per_second)} "
        f"requests/s{kind}",
    )
    yield "requests", _requests(service)
    phase = service.mean_step.phases[0]
    yield "limited by", _limit(service)
    for title, text in answer.describe_power((phase,)):
        per_token = service.joules_per_token
        energy = "" if per_token is None else f", {per_token:.3g} J per output token"
        yield title, f"{text.rpartition(', ')[0]} in the mean step{energy}"
    yield "memory", answer.describe_memory(service.mean_step)


def _limit(service: ServingEstimate) -> str:
    """Prefill engines without idle time, and what limits the mean decode step."""
    step = f"mean step: {answer.describe_limit(service.mean_step.phases[0])}"
    busy = service.loop.prefill_busy
    return step if busy is None or busy < ALWAYS_BUSY else f"prefill engines, which are always busy; {step}"


def _requests(service: ServingEstimate) -> str:
    """How many run, and what a step contains."""
    loop, request, times = service.loop, service.request, service.times
    if service.capacity and request.requests:
        places = (
            f"{units.significant(times.requests_per_second * times.latency)} in flight on average, {service.running} "
            f"have a place; {float(request.requests) / service.capacity:.0%} of the "
            f"{units.significant(service.capacity)} requests/s that the engines serve at most"
        )
    elif service.prefill:
        places = (
            f"{units.significant(times.requests_per_second * times.tpot * (service.mean_osl - 1))} decode on average, "
            f"{service.running} have a place"
        )
    elif request.concurrency and request.concurrency > service.running:
        places = (
            f"{service.running} run at a time, {request.concurrency - service.running} wait, "
            f"{units.seconds(times.waiting)} on average"
        )
    else:
        places = "all have a place"
    prompts = (
        f"prefill engines compute {loop.prefill_busy:.0%} of the time" if loop.prefill_busy is not None
        else "prompts in steps of their own" if service.mean_step.workload.engine.prompts_first
        else f"{loop.chunk_share:.0%} of the steps also compute prompts"
    )  # fmt: skip
    return f"{places}\n{units.significant(loop.decodes)} decode in a mean step, {prompts}"


def _setting(service: ServingEstimate) -> Iterator[tuple[str, str]]:
    """What was estimated: the model, the requests, the engines, the device."""
    request, step = service.request, service.mean_step
    facts = dict(answer.setting(step))
    yield "model", facts["model"]
    ratio = f"{request.length_ratio:g} to 1 × " if request.length_ratio < 1 else ""
    load = (
        f"{request.requests:g}/s at random times" if request.concurrency is None
        else f"{units.count(request.concurrency, 'request')} in flight"
    )  # fmt: skip
    parts = [f"{load}, {ratio}{request.isl} prompt and {request.osl} new tokens"]
    if service.chunk:
        parts.append(f"at most {service.chunk} prompt tokens per step")
    if request.prefix_hit:
        parts.append(f"{request.prefix_hit:.0%} of prompts cached")
    if request.draft:
        parts.append(f"draft {request.draft}")
    yield "requests", ", ".join(parts)
    parallel = step.workload.parallel
    copies = []
    if prefill := service.prefill:
        yield (
            "prefill",
            f"{prefill.number} × {request.prefill} ({units.count(prefill.gpus, 'GPU')}); the KV cache of a prompt is "
            f"sent in {units.seconds(prefill.transfer)}",
        )
        of_decode = units.count(service.gpus - prefill.gpus, "GPU")
        yield "decode", f"{request.decode_engines or 1} × {request.decode} ({of_decode})"
    elif (engines := service.gpus // parallel.gpus) > 1:
        copies = [f"{engines} engines, each on {units.count(parallel.gpus, 'GPU')}"]
    _, _, workload = facts["workload"].partition(" · ")
    yield "engine", ", ".join([*copies, workload])
    yield "ceilings", facts["ceilings"]
