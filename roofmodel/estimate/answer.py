"""The answer of `roof estimate`: latency, throughput, what limits each phase, memory; a table for each phase."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from roofmodel.counting.passes import NEED_WEIGHTS
from roofmodel.errors import Option
from roofmodel.estimate.tables import (
    GROUP_LINES,
    MEMORY_OF_A_GPU,
    OPERATOR_LINES,
    OperatorRow,
    group_rows,
    known_columns,
    phase_lines,
    rows,
    style,
    with_letters,
)
from roofmodel.numbers import units
from roofmodel.numbers.algebra import Number, plain
from roofmodel.report.document import Block, Document, Facts, Figure, Heading, OnlyTerminal, Paragraph, Rows
from roofmodel.report.table import MEMORY, Column, Table
from roofmodel.steps.estimate import (
    Estimate,
    describe_parameters,
    describe_phase,
    describe_rate,
    describe_usable_memory,
    describe_workload,
    energy_totals,
    generation_totals,
    without_unit_of,
)
from roofmodel.steps.phase import PhaseEstimate, latencies, to_first_token
from roofmodel.steps.placed import Placed, total_cost
from roofmodel.timing.roofline import ridge, route
from roofmodel.timing.timing import Expected

LATENCY = {"prefill": "TTFT", "decode": "TPOT", "train": "step time"}
"""What the time of a phase is called: time to first token, time per output token."""
UNKNOWN = "no expected time"
NOTABLE_SHARE = 0.005
"""The smallest share of a bound that a percentage shows."""


def document(estimate: Estimate, *, ops: bool = False, roofline: bool = False) -> Document:
    """The answers, what was estimated, and a table for each phase: of groups of operators, or with `ops` of operators.

    `roofline` adds a chart of characters for a terminal.
    """
    title = f"{estimate.architecture.name} on {estimate.device.name}"
    unmarked = [rows(phase) if ops else group_rows(phase) for phase in estimate.phases]
    tables = with_letters(unmarked) if roofline else [[("", row) for row in table] for table in unmarked]
    blocks: list[Block] = [Facts(summary(estimate)), Facts([*setting(estimate)])]
    if estimate.has_total:
        blocks.append(
            Figure(
                partial(_draw, estimate),
                f"{title}: each operator on the roofline, at its bound and at its expected time",
            )
        )
    for phase, lettered_rows in zip(estimate.phases, tables, strict=True):
        table = known_columns(OPERATOR_LINES if ops else GROUP_LINES, estimate)
        blocks += [Heading(describe_phase(phase)), Rows(table, [*phase_lines(phase, lettered_rows, ops)])]
        if estimate.has_total:
            blocks += [Paragraph(remark, dim=True) for remark in describe_remarks(estimate, phase)]
    if roofline and estimate.has_total:
        blocks.append(OnlyTerminal(partial(_chart, estimate, tables)))
    hints = [f"{Option('ops')} (every operator)"] * (not ops) + [f"{Option('roofline')} (chart)"] * (not roofline)
    return Document(
        title,
        blocks,
        partial(_data, estimate),
        partial(_flat, estimate),
        more=[*hints, "-o FILE.png (picture) or .html"],
    )


def complete_document(estimate: Estimate) -> Document:
    """The document of files: every operator, and the memory by role."""
    every = document(estimate, ops=True)
    device = (
        Column(None, "device", MEMORY, lambda _: estimate.device.capacity, unknown="unknown"),
        Column(None, "fits", text=lambda _: {True: "yes", False: "no", None: "unknown"}[estimate.fits]),
    )
    unknown = () if estimate.has_total else NEED_WEIGHTS
    known = tuple(column for column in MEMORY_OF_A_GPU.columns if column.key not in unknown)
    memory = MEMORY_OF_A_GPU._replace(columns=(*known, *device))
    return every._replace(blocks=[*every.blocks, Heading("memory"), Rows(memory, [estimate.memory])])


def _draw(estimate: Estimate, path: Path, form: str) -> None:
    from roofmodel.estimate.picture import draw

    draw(estimate, path, form)


def _data(estimate: Estimate) -> dict[str, Any]:
    from roofmodel.estimate.data import to_dict

    return to_dict(estimate)


def _flat(estimate: Estimate) -> Rows:
    """A row for each operator of each phase."""
    from roofmodel.estimate.data import flat
    from roofmodel.estimate.tables import OPERATORS

    return Rows(Table("ops", [Column("phase", meaning="the phase"), *map(Column, OPERATORS.csv_keys)]), flat(estimate))


def setting(estimate: Estimate) -> Iterator[tuple[str, str]]:
    """What was estimated: the model, the workload, and the device with its ceilings."""
    arch, device, dtype = estimate.architecture, estimate.device, estimate.workload.dtype
    yield "model", f"{arch.head.name}\n{describe_parameters(estimate.parameters, estimate.active_parameters)}"
    yield "workload", f"batch {estimate.workload.batch} · {describe_workload(estimate)}"
    pipe, links = device.matmul_pipe(dtype), " and ".join(_links(estimate))
    yield (
        "ceilings",
        f"{device.id}: {units.si(pipe.peak, 'FLOP/s', 4)} ({pipe.name}), {units.si(device.bandwidth, 'B/s', 4)} DRAM, "
        f"ridge point {units.significant(ridge(device, dtype))} FLOP/B"
        + (f"; links, each direction: {links}" if links else ""),
    )


def _links(estimate: Estimate) -> Iterator[str]:
    """`450 GB/s nvlink`: each link that the collectives use, with its bandwidth in one direction."""
    links = (
        link
        for phase in estimate.phases
        for each in phase.exchanges
        if (collective := each.operator.collective) and (way := route(collective, estimate.device))
        for link in way.links(estimate.device)
    )
    for link in dict.fromkeys(links):
        yield f"{units.si(link.bandwidth / 2, 'B/s', 4)} {link.label}"


def _chart(estimate: Estimate, tables: Sequence[Sequence[tuple[str, OperatorRow]]], width: int) -> Any:
    """The rows of the tables at their bounds, in a chart of characters."""
    from rich.console import Group
    from rich.text import Text

    from roofmodel.report import chart

    marks = [
        chart.Mark(letter, f"bold {style(row)}", row.kernels.intensity, row.flops_per_second)
        for table in tables
        for letter, row in table
        if row.has_mark
    ]
    device, dtype = estimate.device, estimate.workload.dtype
    lines = chart.roofline(marks, device.matmul_pipe(dtype).peak, device.bandwidth, min(64, width - chart.MARGIN - 3))
    title = Text.assemble(
        ("roofline", "bold"),
        (f"  rows of the tables at their bounds; {chart.SHARED_LETTERS}; {chart.NO_LETTER}", "dim"),
    )
    return Group(Text(), title, *lines)


# --- The answers ----------------------------------------------------------------------------------


def summary(estimate: Estimate) -> list[tuple[str, str]]:
    """Six answers, for a decoder's two phases: TTFT, TPOT, tokens/s, what limits each phase, memory, largest batch.

    A single phase has its utilization in place of the second latency: MFU as appendix B of PaLM (arXiv 2204.02311)
    defines it, where all token pairs of attention count and recomputation does not. `generate` has both latencies.
    """
    if not estimate.has_total:  # no times without the bytes of the weights
        times = [(LATENCY.get(phase.step.phase, "latency"), _unknown_format()) for phase in estimate.phases]
        return [*times, ("memory", describe_memory(estimate)), ("max batch", describe_largest(estimate))]
    return [
        *(answer for phase in estimate.phases for answer in _latencies(phase)),
        *_rates(estimate.phases),
        *(("utilization", text) for text in _utilization(estimate.phases)),
        *_input(estimate),
        *_measured(estimate),
        *_goodput(estimate),
        *_run(estimate),
        ("limited by", _join_phases(estimate.phases, [describe_limit(phase) for phase in estimate.phases])),
        *describe_power(estimate.phases),
        ("memory", describe_memory(estimate)),
        ("max batch", describe_largest(estimate)),
    ]


def _latencies(phase: PhaseEstimate) -> Iterator[tuple[str, str]]:
    name = phase.step.phase
    if name != "generate":
        host = plain(phase.exposed_host_seconds) + plain(phase.outside_steps)
        latency = describe_latency(phase.bound_seconds, to_first_token(phase, phase.expected), host)
        yield (LATENCY.get(name, "latency"), latency)
        return
    steps = _steps(phase)
    for label, time in latencies(phase).items():
        host = plain(phase.outside_steps) if label == "ttft" else 0
        yield (label.upper(), describe_latency(time.bound, time.expected, host) + steps * (label == "tpot"))


def _steps(phase: PhaseEstimate) -> str:
    """` · first decode 9.08 ms, last 9.1 ms`: the expected times, or the bounds where there are none."""
    totals, kind = generation_totals(phase), "" if phase.expected else "bound_"
    first, last = (units.seconds(totals[f"{kind}tpot_{which}_seconds"]) for which in ("first", "last"))
    return f" · first decode {first}, last {last}"


def describe_latency(bound: Number, expected: Expected | None, host: Number = 0) -> str:
    """`11.7 ms bound    24.9 ms expected (22.5 ms to 29.1 ms)`, and the part of it that the engine's host adds."""
    text = f"{units.seconds(plain(bound))} bound"
    if expected is None:
        return f"{text:<16} {UNKNOWN}"
    seconds, low, high = (units.seconds(plain(value)) for value in expected)
    interval = f"{low} or more" if math.isinf(expected.high) else f"{low} to {high}"
    of_host = f"; host {units.seconds(float(host))}" if host else ""
    return f"{text:<16} {seconds} expected ({interval}){of_host}"


def _rates(phases: tuple[PhaseEstimate, ...]) -> Iterator[tuple[str, str]]:
    """`87.7 k bound, 41.2 k expected`; with the time of all of it for `generate`."""
    texts = []
    for phase in phases:
        rates = {"bound": phase.bound_seconds}
        if phase.expected:
            rates["expected"] = phase.expected.value
        text = ", ".join(f"{describe_rate(phase, seconds)} {name}" for name, seconds in rates.items())
        if phase.step.phase == "generate":
            times = ", ".join(f"{units.seconds(plain(seconds))} {name}" for name, seconds in rates.items())
            totals, kind = generation_totals(phase), "" if phase.expected else "bound_"
            user, gpu = (units.si(totals[f"{kind}tokens_per_second_per_{unit}"]) for unit in ("user", "gpu"))
            text += f" · {user} per user, {gpu} per GPU · total time {times}"
        texts.append(text)
    unit = "images/s" if phases[0].is_vision else "tokens/s"
    yield (unit, _join_phases(phases, texts).replace(f" {unit}", ""))


def _utilization(phases: tuple[PhaseEstimate, ...]) -> Iterator[str]:
    """MFU, HFU where the executed FLOPs differ, and MBU, if there is one phase with an expected time."""
    phase = phases[0]
    if len(phases) > 1 or phase.expected is None or phase.step.phase == "generate":
        return
    (peak, bandwidth), seconds, flops = phase.ceilings, plain(phase.expected.value), phase.mean_flops
    model, all_pairs, executed = (f"{plain(each) / seconds / peak:.1%}" for each in flops)
    text = f"MFU {model}"
    if flops.all_pairs != flops.model and not phase.selects_keys:
        rewritten = {"ssm", "linear"} & {placed.operator.group for placed in phase.placed}
        text += f" ({all_pairs} with {'the GEMMs of the reference code' if rewritten else 'masked pairs'})"
    if flops.executed != flops.model:
        text += f" · HFU {executed}"
    text += f" · MBU {plain(phase.cost.bytes) / seconds / bandwidth:.1%} at the expected time"
    yield text


def _input(estimate: Estimate) -> Iterator[tuple[str, str]]:
    """With a data loader: the least time of a step with its input, and the workers that hide the loader."""
    pipeline = estimate.input_pipeline
    if pipeline is None:
        return
    loader, rate = pipeline.loader, describe_rate(estimate.phases[0], pipeline.seconds)
    copy = "" if pipeline.copy_seconds is None else f", {loader.copy} copy {units.seconds(pipeline.copy_seconds)}"
    limit = {
        "loader": "limited by the data loader",
        "copy": "limited by the copy",
        "gpu": "limited by the GPU",
        "serial": "loading, then computing",
    }[pipeline.limit]
    batch = f"{units.seconds(loader.seconds)} per batch, {units.count(loader.workers, 'worker')}"
    yield ("input", f"{batch}{copy}; {units.count(pipeline.workers_to_hide, 'worker')} would hide the loader")
    busy = f"GPU busy {pipeline.utilization:.0%}"
    yield ("with input", f"step ≥ {units.seconds(pipeline.seconds)}, ≤ {rate}, {busy}: {limit}")


def _measured(estimate: Estimate) -> Iterator[tuple[str, str]]:
    """`7.4 s, 12 k tokens/s per GPU, MFU 41.2%; 1.08 × the expected time`: a measured training step."""
    if (measured := estimate.measured) is None:
        return
    rate = measured.tokens_per_second_per_gpu
    text = units.seconds(measured.step_seconds)
    text += "" if rate is None else f", {units.si(rate)} tokens/s per GPU"
    text += f", MFU {measured.mfu:.1%}"
    if measured.to_expected is not None:
        text += f"; {units.significant(measured.to_expected)} × the expected time"
    yield "measured", text


def _goodput(estimate: Estimate) -> Iterator[tuple[str, str]]:
    """`89.4%, 1.2 M tokens/s; a checkpoint of 920 MiB per GPU every 19.3 min, a failure every 3.09 h`: of a run."""
    if (run := estimate.goodput) is None:
        return
    if not run.makes_progress:
        failure, checkpoint = _duration(run.failure_seconds), units.seconds(run.checkpoint_seconds)
        yield "goodput", f"none: the run fails every {failure}, and a checkpoint takes {checkpoint}"
        return
    rate = "" if run.tokens_per_second is None else f", {units.si(run.tokens_per_second)} tokens/s expected"
    yield (
        "goodput",
        (
            f"{run.share:.1%}{rate}; a checkpoint of {units.binary(run.checkpoint_bytes)} per GPU every "
            f"{_duration(run.interval_seconds)}, a failure every {_duration(run.failure_seconds)}"
        ),
    )


def _run(estimate: Estimate) -> Iterator[tuple[str, str]]:
    """`15 T tokens: 1.79 M steps, 144 days (133 to 172), 3.53 M GPU-hours`: of a run, with its failures if given."""
    if (run := estimate.run) is None:
        return
    text = f"{units.si(run.tokens)} tokens: {units.si(run.steps)} steps"
    if run.days is not None and run.days_low is not None and run.days_high is not None and run.gpu_hours is not None:
        low, high = (units.significant(days) for days in (run.days_low, run.days_high))
        text += f", {units.significant(run.days)} days ({low} to {high}), {units.si(run.gpu_hours)} GPU-hours"
        text += " with failures" if estimate.goodput else ""
    yield "run", text


def _duration(seconds: float) -> str:
    """`45 s`, `19.3 min`, `3.09 h`, `2.06 days`."""
    for size, unit in ((86400, "days"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{units.significant(seconds / size)} {unit}"
    return units.seconds(seconds)


def describe_limit(phase: PhaseEstimate) -> str:
    """What limits a phase: the host, or the ceiling with the largest share of the bound."""
    if phase.host_bound:
        kernels = phase.kernel_seconds if phase.step.parallel.pp == 1 else None  # of this pipeline stage only
        alone = f" (kernels alone {units.seconds(plain(kernels.value))})" if kernels else ""
        return f"{describe_host_limit(phase)}{alone}"
    parts = phase.bound_parts | {"pipeline bubble": phase.idle.bound}
    largest = max(parts, key=lambda name: plain(parts[name]))
    share = plain(parts[largest]) / plain(phase.bound_seconds)
    text = f"{'memory (DRAM)' if largest == 'memory' else largest}, {share:.0%} of the bound"
    return f"power; {text}" if phase.is_limited_by_power else text


def describe_power(phases: tuple[PhaseEstimate, ...]) -> Iterator[tuple[str, str]]:
    """`decode: 448 W (336 W to 700 W), 0.253 J per token`: mean power of one GPU, where the device states power."""
    texts = []
    for phase in phases:
        totals = energy_totals(phase)
        if totals["power_watts"] is None:
            return
        watts, low, high = (units.si(totals[f"power{end}_watts"], "W") for end in ("", "_low", "_high"))
        per_token = totals.get("joules_per_token")
        energy = units.si(totals["energy_joules"], "J") if per_token is None else f"{per_token:.3g} J per token"
        texts.append(f"{watts} ({low} to {high}), {energy}")
    yield "power", _join_phases(phases, texts)


def _join_phases(phases: tuple[PhaseEstimate, ...], texts: list[str]) -> str:
    """`prefill: … · decode: …`; a single phase is not named."""
    if len(texts) == 1:
        return texts[0]
    return " · ".join(f"{phase.step.phase}: {text}" for phase, text in zip(phases, texts, strict=True))


def _unknown_format() -> str:
    return f"unknown weight format; give {Option('weights')}"


def describe_memory(estimate: Estimate) -> str:
    """`3.22 of 72 GiB usable (90 % of 80): fits`, and a line with the memory by role."""
    need = estimate.memory
    if not estimate.has_total:
        known_roles = f"KV {units.binary(need.kv_cache)}, activations {units.binary(need.activations)}"
        return f"{_unknown_format()} ({known_roles})"
    start = estimate.start
    roles = {
        "weights": need.weights,
        "KV": need.kv_cache,
        "activations": start.activation_peak if start else need.activations,
        "outside PyTorch": start and start.non_torch,
        "CUDA graphs": start and start.subtracts_graphs and start.graphs,
        "logits": need.logits,
        "gradients": need.gradients,
        "optimizer": need.optimizer,
        "other": need.other,
    }
    texts = {role: f"{role} {units.binary(size)}" for role, size in roles.items() if size}
    if start and start.starts:
        most = float(start.max_concurrency)
        texts["KV"] += (
            f" of {units.binary(start.kv_cache)} ({units.si(float(start.kv_tokens)).strip()} tokens, "
            f"{int(most) if most >= 10 else units.significant(most)} requests of {start.max_len})"
        )
    parts = ", ".join(texts.values())
    if estimate.device.capacity is None:
        return f"{units.binary(need.total)}; the device's memory is not stated · {parts}"
    verdict = "fits" if estimate.fits else "does not fit"
    if start and not start.starts:
        left = units.binary(start.kv_cache) if start.kv_cache > 0 else "nothing"
        verdict += (
            f", {estimate.workload.engine.name} would refuse to start ({left} is left for a KV cache of "
            f"{units.binary(start.request)} for {start.max_len} tokens)"
        )
    of_each = " per GPU" if estimate.workload.parallel.gpus > 1 else ""
    usable = describe_usable_memory(estimate)
    total = without_unit_of(usable.partition(" usable")[0], units.binary(estimate.needed))
    return f"{total} of {usable}{of_each}: {verdict}\n{parts}"


# --- Remarks ---------------------------------------------------------------------------------------


def describe_expectation(phase: PhaseEstimate) -> str:
    """`expected 14 ms (12 ms to 16 ms), 73 k tokens/s`; empty where no expected time is known.

    A phase that the host limits says so, with the smaller time of its kernels alone.
    """
    if (expected := phase.expected) is None:
        return ""
    seconds, low, high = (units.seconds(float(value)) for value in expected)
    kernels = phase.kernel_seconds
    alone = f": {describe_host_limit(phase)} (kernels alone {units.seconds(float(kernels.value))})" if kernels else ""
    limit = alone if phase.host_bound else ""
    return f"expected {seconds} ({low} to {high}){limit}, {describe_rate(phase, expected.value)}"


def describe_host_limit(phase: PhaseEstimate) -> str:
    """How the host limits a phase: by its launches, or by what a serving engine's host does in a step."""
    return "launch-bound" if phase.launch_bound else "host-bound"


def describe_remarks(estimate: Estimate, phase: PhaseEstimate) -> list[str]:
    """The remarks that apply to a phase, in the order in which they are shown below its table."""
    remarks = (
        _describe_stage(phase),
        describe_masked_pairs(phase),
        describe_fusion(phase),
        describe_uncached(phase),
        describe_training(estimate, phase),
        describe_exchange(phase),
    )
    return [remark for remark in remarks if remark]


def _describe_stage(phase: PhaseEstimate) -> str | None:
    """`stage 4 of 4, the slowest at the bound: layers 36–47 and the head`, for pipeline parallelism."""
    parallel = phase.step.parallel
    if parallel.pp == 1:
        return None
    layers = sorted({layer for placed in phase.placed for layer in placed.operator.layers or ()})
    parts = [f"layers {units.ranges(layers)}" if len(layers) > 1 else f"layer {layers[0]}"]
    groups = {placed.operator.group for placed in phase.placed}
    parts = ["the embedding"] * ("embedding" in groups) + parts + ["the head"] * ("head" in groups)
    return f"pipeline stage {parallel.stage + 1} of {parallel.pp}, the slowest at the bound: {' and '.join(parts)}"


def describe_uncached(phase: PhaseEstimate) -> str | None:
    """The cost of generation without a KV cache."""
    if phase.uncached is None:
        return None
    cost, seconds = total_cost(phase.uncached.placed), phase.uncached.bound_seconds
    return (
        f"without a KV cache, every new token recomputes all earlier tokens: {units.si(cost.flops, 'FLOP')}, "
        f"{units.si(cost.bytes, 'B')}, bound {units.seconds(seconds)}; "
        f"{units.significant(cost.flops / phase.cost.flops)} × the FLOPs and "
        f"{units.significant(seconds / phase.bound_seconds)} × the bound"
    )


def describe_largest(estimate: Estimate) -> str:
    """The largest batch and the longest sequence that fit in memory, each with all other options unchanged.

    `240; longest --seq at batch 1: 246381 (the model has positions for 1024)`
    """
    arch, batch, longest = estimate.architecture, estimate.largest_batch, estimate.largest_context
    if not estimate.has_total:
        return "unknown without the size of the weights"
    if estimate.device.capacity is None:
        return "unknown without the size of the device's memory"
    text = "unlimited" if batch is None else str(batch) if batch else "0, no batch fits"
    if arch.image:
        return text
    option = "seq" if estimate.workload.context is None else "context"
    limit = arch.max_source if arch.encoder and option == "seq" else arch.max_tokens
    length = "unlimited" if longest is None else str(longest) if longest else "none fits"
    if arch.encoder and longest != 0:
        length += f" with {Option('decoder_seq', estimate.workload.decoder_seq)}"
    if limit and longest and longest > limit:
        length += f" (the model has positions for {limit})"
    return f"{text}; longest {Option(option)} at batch {estimate.workload.batch}: {length}"


def describe_training(estimate: Estimate, phase: PhaseEstimate) -> str | None:
    """GEMM FLOPs of a training step, the estimate 6 × parameters × tokens, and what flash attention recomputes."""
    if phase.step.phase != "train":
        return None
    text = f"{units.si(phase.cost.matmul_flops, 'FLOP')} in GEMMs"
    if phase.tokens and not estimate.architecture.encoder:
        active = estimate.active_parameters
        name = "parameters" if active == estimate.parameters else f"active parameters ({units.si(active)})"
        factor = 4 if phase.step.adapters else 6  # frozen weights have no gradients
        rule = units.si(factor * active * phase.tokens, "FLOP")
        text += f"; the rule of thumb {factor} × {name} × tokens, which ignores attention, gives {rule}"
        gpus = estimate.workload.parallel.gpus
        text += f" for all {gpus} GPUs" if gpus > 1 else ""
    if any(placed.operator.kind == "attention" for placed in phase.of_stage("backward")):
        text += "; the backward pass of flash attention recomputes the scores: five GEMMs instead of four"
    return text


def describe_masked_pairs(phase: PhaseEstimate) -> str | None:
    """GEMM FLOPs of the phase, and those of the reference code, which computes all token pairs and no fused scans."""
    counted, everything = phase.cost.matmul_flops, phase.all_pairs_matmul_flops
    if counted == everything or phase.step.phase == "train":
        return None
    theirs, ours = (units.si(flops, "FLOP") for flops in (everything, counted))
    if theirs == ours:
        return None
    if scans := [placed for placed in phase.placed if placed.operator.kind == "scan"]:
        return f"GEMM FLOPs: {ours}, {_gemms_of_scans(scans)}; the reference code, without fused kernels: {theirs}"
    return f"GEMMs take {ours}; eager attention, which also computes masked token pairs, takes {theirs}"


def describe_fusion(phase: PhaseEstimate) -> str | None:
    """What the bounds of fused kernels leave out of the total, which is that of the operators by themselves."""
    counted = sum(placed.seconds for placed in phase.placed)
    kernels = sum(
        placed.operator.count * kernel.bound_seconds
        for placed in phase.kernel_rows
        if (kernel := placed.kernel_placement) is not None
    )
    saved = plain(counted - kernels)
    if saved < NOTABLE_SHARE * phase.bound_seconds:
        return None
    return f"bounds of fused kernels: {units.seconds(saved)} less than the total, which is that of separate operators"


def _gemms_of_scans(scans: Sequence[Placed]) -> str:
    """`16.7 TFLOP of them in ssm.scan`; `none in ssm.scan (vector FLOPs only)`."""
    names, flops = " and ".join(dict.fromkeys(scan.operator.name for scan in scans)), total_cost(scans).matmul_flops
    return f"{units.si(flops, 'FLOP')} of them in {names}" if flops else f"none in {names} (vector FLOPs only)"


def describe_exchange(phase: PhaseEstimate) -> str | None:
    """The bytes that each GPU sends over its links, which no column of the table has."""
    if not (sent := phase.cost.link_bytes):
        return None
    return f"each GPU sends {units.si(sent, 'B')} over its links; the table's bytes are those of its own memory"
