"""An Estimate as the plain rows that every view draws from: terminal, Markdown, CSV, JSON, pictures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from roofmodel import units
from roofmodel.algebra import Number, plain
from roofmodel.counting.memory import Memory
from roofmodel.counting.operator import Cost, Operator
from roofmodel.counting.workload import NO_IMAGE, Workload
from roofmodel.models.architecture import Attention, LatentAttention, Stack
from roofmodel.study.estimate import Estimate
from roofmodel.study.phase import PhaseEstimate, Placed, total_cost, totals, totals_of

# What a person calls an operator; a name that is not here is read as it stands.
LABELS = {
    "embedding.token": "token rows",
    "embedding.type": "token-type rows",
    "embedding.add_type": "add token types",
    "embedding.position": "position rows",
    "embedding.add_position": "add positions",
    "embedding.relative": "relative positions",
    "embedding.project": "to hidden size",
    "embedding.all_reduce": "all-reduce of token rows",
    "embedding.reduce_scatter": "reduce-scatter of token rows",
    "embedding.reduce_scatter.grad": "all-gather of token rows",
    "attention.all_gather": "all-gather ahead of attention",
    "attention.all_gather.grad": "reduce-scatter ahead of attention",
    "attention.reduce_scatter": "reduce-scatter of attention",
    "attention.reduce_scatter.grad": "all-gather of attention",
    "attention.all_reduce": "all-reduce of attention",
    "attention.replicate": "all-reduce ahead of attention",
    "attention.q.replicate": "all-reduce ahead of queries",
    "attention.asked.replicate": "all-reduce of the latent of q",
    "attention.latent.replicate": "all-reduce of the latent of k, v",
    "attention.source.replicate": "all-reduce of the source",
    "mlp.all_gather": "all-gather ahead of the MLP",
    "mlp.all_gather.grad": "reduce-scatter ahead of the MLP",
    "mlp.reduce_scatter": "reduce-scatter of the MLP",
    "mlp.reduce_scatter.grad": "all-gather of the MLP",
    "mlp.all_reduce": "all-reduce of the MLP",
    "mlp.replicate": "all-reduce ahead of the MLP",
    "mlp.dispatch": "tokens to their experts",
    "mlp.collect": "tokens back from experts",
    "mlp.permute": "tokens by expert",
    "ssm.all_reduce": "all-reduce of the state space",
    "ssm.replicate": "all-reduce ahead of the state space",
    "ssm.select.all_reduce": "all-reduce of time step, B, C",
    "ssm.select.replicate": "all-reduce of time step, B, C",
    "head.all_gather": "logits of all GPUs",
    "head.replicate": "all-reduce ahead of logits",
    "head.input.all_gather": "all-gather ahead of logits",
    "head.input.all_gather.grad": "reduce-scatter ahead of logits",
    "head.loss_largest.all_reduce": "all-reduce of largest logits",
    "head.loss_sum.all_reduce": "all-reduce of sums",
    "head.loss_target.all_reduce": "all-reduce of targets' logits",
    "gradients.all_reduce": "all-reduce of gradients",
    "gradients.expert_all_reduce": "all-reduce of experts' gradients",
    "gradients.tied_all_reduce": "all-reduce of the table's gradients",
    "stage.send": "rows to the next stage",
    "stage.receive": "gradients to the stage before",
    "stage.all_gather": "rows of the stage before",
    "stage.split": "gradients of the next stage",
    "attention.qkv": "q, k, v projection",
    "attention.q": "q projection",
    "attention.q_down": "q to its latent",
    "attention.q_up": "q from its latent",
    "attention.kv_down": "k, v to their latent",
    "attention.kv_up": "k, v from their latent",
    "attention.kv_norm": "latent norm",
    "attention.absorb_k": "q to the latent of k",
    "attention.absorb_v": "v from the latent",
    "attention.k": "k projection",
    "attention.v": "v projection",
    "attention.rotary": "rotary embedding",
    "attention.scores": "scores q·kᵀ",
    "attention.softmax": "softmax",
    "attention.mix": "mix p·v",
    "attention.flash": "scores, softmax, mix",
    "attention.output": "output projection",
    "attention.index_q": "indexer: queries",
    "attention.index_k": "indexer: keys",
    "attention.index_norm": "indexer: norm of keys",
    "attention.index_rotary": "indexer: rotary",
    "attention.index_weights": "indexer: weights",
    "attention.index_scores": "indexer: scores",
    "attention.index_choose": "choice of tokens",
    "attention.position_k": "keys of positions",
    "attention.position_q": "queries of positions",
    "ssm.input": "input and gate projection",
    "ssm.filter": "causal filter",
    "ssm.select": "time step, B, C projection",
    "ssm.low_norm": "time step norm",
    "ssm.enter_norm": "B norm",
    "ssm.leave_norm": "C norm",
    "ssm.step": "time step projection",
    "ssm.output": "output projection",
    "mlp.choose": "choice of experts",
    "mlp.combine": "sum of experts",
    "mlp.gate": "gate",
    "mlp.up": "up",
    "mlp.activation": "activation",
    "mlp.down": "down",
    "embedding.tokens": "learned tokens ahead",
    "embedding.resize_positions": "resize positions",
    "head.pool": "mean over pixels",
    "head.logits": "logits",
    "head.project": "to embedding size",
}
# Groups whose operators are one and the same thing in several places: one row for all.
MERGED = {"norm": "norms", "activation": "activations", "residual": "residual sums", "bias": "bias gradients"}
TITLES = {"mlp": "MLP", "ssm": "state space"}
ORDER = (
    *("embedding", "stem", "stage", "attention", "cross attention", "ssm", "convolution", "mlp"),
    *("norm", "activation", "residual", "bias", "head", "communication", "optimizer"),
)
STACKS = "encoder ", ""  # what the groups of a stack's operators start with, in the order of the stacks
# What a person calls a gradient, by the last part of its operator's name.
GRADIENTS = {"grad": "", "grad_input": ": dX", "grad_weight": ": dW"}


class Row(NamedTuple):
    """Operators that a person thinks of as one, over all their occurrences."""

    stage: str
    group: str
    label: str
    times: int
    cost: Cost
    bound: str
    seconds: float
    share: float
    expected: float | None  # seconds

    @property
    def flops_per_second(self) -> float:
        """What it does per second if it meets its bound."""
        return self.cost.flops / self.seconds  # type: ignore[no-any-return]


def rows(phase: PhaseEstimate) -> list[Row]:
    """The rows of a phase, stage by stage, in the order of the model; groups that merge are one row."""
    bundles: dict[tuple[str, str], list[Placed]] = {}
    for placed in phase.placed:
        operator = placed.operator
        name = operator.group if kind(operator.group) in MERGED else operator.name
        bundles.setdefault((operator.stage, name), []).append(placed)
    total = phase.bound_seconds
    found = [_row(name, bundle, total) for (_, name), bundle in bundles.items()]
    order = [stack + group for stack in STACKS for group in ORDER]
    stages = stages_of(found)
    return sorted(found, key=lambda row: (stages[row.stage], order.index(row.group.rstrip("0123456789"))))


def kind(group: str) -> str:
    """What sort of group it is, by which colour goes: `stage` of `stage2`, `attention` of `encoder attention`."""
    return group.rstrip("0123456789").rpartition(" ")[2]


def stages_of(found: Iterable[Row]) -> dict[str, int]:
    """The stages of a phase, numbered in order; the one stage of a phase without any has no name."""
    return {stage: number for number, stage in enumerate(dict.fromkeys(row.stage for row in found))}


def _row(name: str, bundle: list[Placed], total: float) -> Row:
    by_roof = {"compute": 0.0, "memory": 0.0, "communication": 0.0}
    for placed in bundle:
        by_roof[placed.placement.bound] += placed.seconds
    seconds = sum(by_roof.values())
    return Row(
        stage=bundle[0].operator.stage,
        group=bundle[0].operator.group,
        label=merged_label(name) or label(bundle[0].operator),
        times=sum(placed.operator.count for placed in bundle),
        cost=sum((placed.cost for placed in bundle), Cost()),
        bound=max(by_roof, key=lambda roof: by_roof[roof]),
        seconds=seconds,
        share=seconds / total,
        expected=None
        if any(placed.expected is None for placed in bundle)
        else sum(placed.operator.count * placed.expected.seconds for placed in bundle if placed.expected),
    )


def merged_label(name: str) -> str:
    """The label of a group that merges, whichever stack it is in; empty for an operator's name."""
    sort = kind(name)
    return name.removesuffix(sort) + MERGED[sort] if sort in MERGED else ""


def label(operator: Operator) -> str:
    """An operator as a person calls it, with its filter where it slides one: `q projection: dW`, `shortcut 1×1`."""
    own = operator.name.removeprefix("encoder.").removeprefix("cross_")
    name, _, last = own.rpartition(".")
    if not last.startswith("grad"):
        name, last = own, "grad"
    words = LABELS.get(own) or LABELS.get(name) or name.partition(".")[2].replace("_", " ")
    if operator.kind in ("conv", "pool") and "r" in operator.sizes:
        words += f" {operator.sizes['r']}×{operator.sizes['s']}"
    return words + GRADIENTS.get(last, f": d{last.removeprefix('grad_').upper()}")


# Letters that name rows in pictures, by phase and stage; without those that look like others (I and l, O and o).
SIGNS = {
    "capitals": "ABCDEFGHJKLMNPQRSTUVWXYZ",
    "small letters": "abcdefghijkmnpqrstuvwxyz",
    "Greek letters": "αβγδεζηθλμξπρστφχψω",
    "Greek capitals": "ΓΔΘΛΞΠΣΦΨΩ",
}


def signed(phase: int, found: list[Row]) -> list[tuple[str, Row]]:
    """Each row with its letter; rows without FLOPs, which no picture shows, have none.

    Where an alphabet is too short, its letters go to the rows that take most time.
    """
    signs: dict[int, str] = {}
    for stage in stages_of(found):
        letters = list(SIGNS.values())[script(phase, stage)]
        shown = [i for i, row in enumerate(found) if row.stage == stage and row.cost.flops]
        longest = sorted(shown, key=lambda i: -found[i].share)[: len(letters)]
        signs |= zip(sorted(longest), letters, strict=False)
    return [(signs.get(i, ""), row) for i, row in enumerate(found)]


def script(phase: int, stage: str) -> int:
    """Which of the alphabets, and of the marks, a phase or a stage of it has."""
    return {"decodes": 1, "backward": 1, "recomputation": 2, "optimizer": 3}.get(stage, phase)


def scripts(estimate: Estimate) -> list[tuple[str, str]]:
    """Each phase or stage with the alphabet of its rows, where there are several."""
    found = [(i, phase, stage) for i, phase in enumerate(estimate.phases) for stage in stages_of(rows(phase))]
    named = [(stage or phase.step.phase, list(SIGNS)[script(i, stage)]) for i, phase, stage in found]
    return named if len(named) > 1 else []


def title(group: str) -> str:
    """A group as a person writes it: `MLP`, `stage 1`, `encoder MLP`."""
    stem = group.rstrip("0123456789")
    sort, number = kind(group), group[len(stem) :]
    return f"{stem.removesuffix(sort)}{TITLES.get(sort, sort)} {number}".rstrip()


def full_label(row: Row) -> str:
    """The label with its group, where it does not say it itself: `MLP: up`, `norms`."""
    merged = kind(row.group) in MERGED or row.label.startswith(row.group)
    return row.label if merged else f"{title(row.group)}: {row.label}"


def to_dict(estimate: Estimate) -> dict[str, Any]:
    """The document `roofmodel.estimate/1`: base units, unrounded, None for unknown."""
    arch, device, work, mem = (
        estimate.architecture,
        estimate.device,
        estimate.workload,
        estimate.memory,
    )
    return {
        "schema": "roofmodel.estimate/1",
        "model": {
            "name": arch.name,
            "model_type": arch.model_type,
            "head": arch.head.name,
            "parameters": estimate.parameters,
            "active_parameters": estimate.active_parameters,
        },
        "hardware": {"name": device.id, "full_name": device.name, "calibrated": device.calibrated},
        "workload": {
            "batch": work.batch,
            "seq": work.seq or None,
            **({} if work.decoder_seq is None else {"decoder_seq": work.decoder_seq}),
            **({"image": list(work.image)} if work.image != NO_IMAGE else {}),
            "context": estimate.phases[-1].step.context,
            "dtype": work.dtype,
            "weights": work.weights or work.dtype,
            "kv": work.kv or work.dtype,
            "activations": work.activations or work.dtype,
            "attention": work.attention,
            "runtime": work.runtime,
            "logits": _logits(work),
            **({"optimizer": work.optimizer, "recompute": work.recompute} if "train" in work.phases else {}),
            **work.parallel.ways,
            "micro_batch": work.micro_batch,
            **({"sequence_parallel": work.sequence_parallel} if "train" in work.phases else {}),
        },
        "phases": [phase_document(phase) for phase in estimate.phases],
        "memory": {
            **memory_document(mem),
            "fits": estimate.fits,
            "largest_batch": estimate.largest_batch,
            "largest_context": estimate.largest_context,
        },
        "notes": list(estimate.notes),
    }


def memory_document(need: Memory) -> dict[str, Any]:
    """The part of the document that says what the device must hold, in bytes."""
    return {
        "weights": need.weights,
        "kv_cache": need.kv_cache,
        "activations": need.activations,
        "gradients": need.gradients,
        "optimizer": need.optimizer,
        "kept_activations": need.kept,
        "total": need.total,
    }


def phase_document(phase: PhaseEstimate) -> dict[str, Any]:
    """The part of the document that tells of a phase."""
    step = phase.step
    document = {
        "phase": step.phase,
        "tokens": step.tokens,
        "context": step.context,
        "microbatches": step.microbatches,
        "stage": step.parallel.stage,
        "ops": [operator_document(placed) for placed in phase.placed],
        "totals": totals(phase),
    }
    if phase.uncached is not None:
        document["new_tokens"] = step.passes - 1
        document["without_cache"] = {
            **totals_of(phase.uncached.placed),
            "bound_seconds": phase.uncached.bound_seconds,
        }
    return document


def operator_document(placed: Placed) -> dict[str, Any]:
    """The part of the document that tells of an operator."""
    op, cost, gemm = placed.operator, placed.placement.cost, placed.operator.gemm
    return {
        "name": op.name,
        "stage": op.stage or None,
        "group": op.group,
        "layers": None if op.layers is None else list(op.layers),
        "count": op.count,
        "kind": op.kind,
        "spec": op.spec,
        "gemm": gemm and {"batch": gemm.batch, "m": gemm.m, "n": gemm.n, "k": gemm.k},
        "matmul_flops": plain(cost.matmul_flops),
        "vector_flops": plain(cost.vector_flops),
        "bytes_read": plain(cost.bytes_read),
        "bytes_written": plain(cost.bytes_written),
        "link_bytes": plain(cost.link_bytes),
        "intensity": plain(cost.intensity),
        "bound": placed.placement.bound,
        "bound_seconds": placed.placement.bound_seconds,
        "expected_seconds": placed.expected and plain(placed.expected.seconds),
    }


def flat(estimate: Estimate) -> list[dict[str, Any]]:
    """One flat record an operator, for CSV and data frames."""
    records = []
    for phase in to_dict(estimate)["phases"]:
        for op in phase["ops"]:
            gemm = op.pop("gemm") or dict.fromkeys(("batch", "m", "n", "k"))
            layers = op.pop("layers")
            record = {"phase": phase["phase"], **op, **{f"gemm_{key}": size for key, size in gemm.items()}}
            record["layers"] = None if layers is None else " ".join(map(str, layers))
            records.append(record)
    return records


# --- In words ---------------------------------------------------------------------------------------


def describe_phase(phase: PhaseEstimate) -> str:
    """`prefill: 1 × 1024 tokens`, `generate: 1 × 128 tokens after 1024`, `forward: 32 images of 224 × 224 pixels`."""
    step = phase.step
    if phase.sees:
        images = f"{step.batch} image{'s' if step.batch != 1 else ''} of {' × '.join(map(str, step.image))} pixels"
        return f"{step.phase}: {images}" + (f", {step.tokens} tokens each" if step.tokens else "")
    generates = step.phase == "generate"
    tokens = step.passes - 1 if generates else step.tokens
    many = f"{step.microbatches} microbatches of " if step.microbatches != 1 else ""
    text = f"{step.phase}: {many}{step.batch} × {tokens} token{'s' if tokens != 1 else ''}"
    if generates:
        text += f" after {step.tokens}{f' and {step.context} cached' if step.context else ''}"
    elif step.context:
        text += f" after {step.context} cached"
    return f"{text}, source of {step.source}{'' if step.encodes else ' cached'}" if step.source else text


def describe_parameters(parameters: int, active: int) -> str:
    """`46 702 792 704 parameters, 12 879 925 248 of them active`: those that a token meets, in a mixture of experts."""
    text = f"{units.grouped(parameters)} parameters"
    return text if active == parameters else f"{text}, {units.grouped(active)} of them active"


def describe_workload(estimate: Estimate) -> str:
    """`fp16, flash attention, logits of the last position`."""
    work = estimate.workload
    parts = [work.dtype]
    layered = isinstance(estimate.architecture.body, Stack)
    scans = layered and not any(isinstance(p, Attention | LatentAttention) for p in estimate.architecture.stack.parts)
    kept = "state" if scans else "KV cache"
    stored = ("weights", work.weights), (kept, work.kv), ("activations", work.activations)
    parts += [f"{role} {name}" for role, name in stored if name]
    how = ("fused scan" if work.attention == "flash" else "eager scan") if scans else f"{work.attention} attention"
    parts += [how] * layered
    parts += [f"{work.runtime} runtime"] * (work.runtime != "eager")
    if layered:
        parts += _windows(estimate)
        if any(isinstance(part, LatentAttention) for part in estimate.architecture.stack.parts):
            parts.append(f"latents {'absorbed in decodes' if work.mla == 'absorbed' else 'expanded'}")
    asked = [phase.step for phase in estimate.phases if phase.step.phase != "decode"]  # a decode has one position
    if asked and any(stage.rows == "logits" for stage in estimate.architecture.head.stages):
        parts.append("logits of all positions" if _logits(work) == "all" else "logits of the last position")
    return ", ".join(parts + describe_gpus(work))


def _logits(work: Workload) -> str:
    """Of which positions: last or all."""
    return work.logits or ("all" if work.phases in (("forward",), ("train",)) else "last")


def describe_gpus(work: Workload) -> list[str]:
    """`one of 8 GPUs (tp 4, dp 2)`, where there are several."""
    if work.parallel.gpus == 1:
        return []
    ways = ", ".join(f"{name} {many}" for name, many in work.parallel.ways.items() if many > 1)
    return [f"one of {work.parallel.gpus} GPUs ({ways})"]


def _windows(estimate: Estimate) -> Iterator[str]:
    """`21 of 42 layers see 4096 tokens`, where the workload reaches beyond."""
    layers = [part for part in estimate.architecture.stack.parts if isinstance(part, Attention)]
    reach = max(phase.step.context + phase.step.tokens + phase.step.passes - 1 for phase in estimate.phases)
    for window, count in Counter(part.window for part in layers).items():
        if window is not None and window < reach:
            yield f"{'all' if count == len(layers) else f'{count} of {len(layers)}'} layers see {window} tokens"


def describe_rate(phase: PhaseEstimate) -> str:
    """`1.23 k tokens/s` at the bound, or images where the model sees."""
    return _rate(phase, phase.bound_seconds)


def _rate(phase: PhaseEstimate, seconds: Number) -> str:
    many, what = (phase.sequences, "images") if phase.sees else (phase.tokens, "tokens")
    return f"{units.si(many / seconds)} {what}/s"


def describe_expectation(phase: PhaseEstimate) -> str:
    """`expected 14 ms (12 ms to 16 ms), 73 k tokens/s`; empty where it is not known.

    Where the host is waited for, which is more than the kernels of the table above add up to, it says so.
    """
    if (expected := phase.expected) is None:
        return ""
    seconds, low, high = (units.seconds(float(value)) for value in expected)
    host = " for the host's launches" if phase.host_bound else ""
    return f"expected {seconds} ({low} to {high}){host}, {_rate(phase, expected.seconds)}"


def describe_stage(phase: PhaseEstimate) -> str | None:
    """`stage 4 of 4, which takes longest: layers 36–47 and the head`, where layers are dealt out to stages."""
    parallel = phase.step.parallel
    if parallel.pp == 1:
        return None
    layers = sorted({layer for placed in phase.placed for layer in placed.operator.layers or ()})
    what = [f"layers {units.ranges(layers)}" if len(layers) > 1 else f"layer {layers[0]}"]
    groups = {placed.operator.group for placed in phase.placed}
    what = ["the embedding"] * ("embedding" in groups) + what + ["the head"] * ("head" in groups)
    return f"stage {parallel.stage + 1} of {parallel.pp}, which takes longest: {' and '.join(what)}"


def describe_uncached(phase: PhaseEstimate) -> str | None:
    """What generation would cost without a KV cache."""
    if phase.uncached is None:
        return None
    cost, seconds = total_cost(phase.uncached.placed), phase.uncached.bound_seconds
    return (
        f"without a KV cache, each new token a pass over all before it: {units.si(cost.flops, 'FLOP')}, "
        f"{units.si(cost.bytes, 'B')}, at least {units.seconds(seconds)}: "
        f"{units.significant(cost.flops / phase.cost.flops)} × the FLOPs, "
        f"{units.significant(seconds / phase.bound_seconds)} × the time"
    )


def describe_largest(estimate: Estimate) -> str | None:
    """The largest batch and sequence that fit, each with everything else as it is."""
    batch, longest = estimate.largest_batch, estimate.largest_context
    if not batch and not longest:
        return None
    if estimate.architecture.image:
        return f"what fits: --batch up to {batch}" if batch else None
    arch, length = estimate.architecture, "any length" if longest is None else str(longest)
    option = "seq" if estimate.workload.context is None else "context"
    limit = arch.max_source if arch.encoder and option == "seq" else arch.max_tokens
    if arch.encoder:
        length += f" with --decoder-seq {estimate.workload.decoder_seq}"
    beyond = f" (its positions end at {limit})" if limit and longest and longest > limit else ""
    alone = "any --batch, or" if batch is None else f"--batch up to {batch}, or" if batch else "no batch; but"
    return f"what fits: {alone} at batch {estimate.workload.batch} --{option} up to {length}{beyond}"


def describe_training(estimate: Estimate, phase: PhaseEstimate) -> str | None:
    """A training step beside the rule of thumb, and what flash attention computes twice."""
    if phase.step.phase != "train":
        return None
    text = f"{units.si(phase.cost.matmul_flops, 'FLOP')} of matrix products"
    if phase.tokens and not estimate.architecture.encoder:
        met = estimate.active_parameters
        them = "parameters" if met == estimate.parameters else f"parameters that a token meets ({units.si(met)})"
        rule = units.si(6 * met * phase.tokens, "FLOP")
        text += f"; the rule of thumb 6 × {them} × tokens, which knows no attention, gives {rule}"
        gpus = estimate.workload.parallel.gpus
        text += f" for all {gpus} GPUs" if gpus > 1 else ""
    if any(placed.operator.kind == "attention" for placed in phase.of("backward")):
        text += "; the backward pass of flash attention computes the scores again, five matrix products instead of four"
    return text


def describe_pairs(phase: PhaseEstimate) -> str | None:
    """Both figures of causal attention, where a fused kernel skips masked tiles."""
    counted, everything = phase.cost.matmul_flops, phase.all_pairs_matmul_flops
    if counted == everything or phase.step.phase == "train":
        return None
    if any(placed.operator.group == "ssm" for placed in phase.placed):
        return (
            f"counted as fused kernels compute it, scans on the vector units; the reference code has "
            f"{units.si(everything, 'FLOP')} of matrix products instead of {units.si(counted, 'FLOP')}"
        )
    return (
        f"attention counts the unmasked pairs; with all pairs, as eager attention computes them, "
        f"{units.si(everything, 'FLOP')} of matrix products instead of {units.si(counted, 'FLOP')}"
    )
