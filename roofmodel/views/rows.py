"""An Estimate as the plain rows that every view draws from: terminal, Markdown, CSV, JSON, pictures."""

from __future__ import annotations

from typing import Any, NamedTuple

from roofmodel import units
from roofmodel.counting.operator import Cost
from roofmodel.study.estimate import Estimate, PhaseEstimate, Placed

# What a person calls an operator; a name that is not here is read as it stands.
LABELS = {
    "embedding.token": "token rows",
    "embedding.type": "token-type rows",
    "embedding.add_type": "add token types",
    "embedding.position": "position rows",
    "embedding.add_position": "add positions",
    "embedding.project": "to hidden size",
    "attention.qkv": "q, k, v projection",
    "attention.q": "q projection",
    "attention.k": "k projection",
    "attention.v": "v projection",
    "attention.rotary": "rotary embedding",
    "attention.scores": "scores q·kᵀ",
    "attention.softmax": "softmax",
    "attention.mix": "mix p·v",
    "attention.flash": "scores, softmax, mix",
    "attention.output": "output projection",
    "mlp.gate": "gate",
    "mlp.up": "up",
    "mlp.activation": "activation",
    "mlp.down": "down",
    "head.logits": "logits",
    "head.project": "to embedding size",
}
# Groups whose operators are one and the same thing in several places: one row for all.
MERGED = {"norm": "norms", "residual": "residual sums"}
TITLES = {"mlp": "MLP"}


class Row(NamedTuple):
    """Operators that a person thinks of as one, over all their occurrences."""

    group: str
    label: str
    times: int
    cost: Cost
    bound: str
    seconds: float
    share: float

    @property
    def flops_per_second(self) -> float:
        """What it does per second if it meets its bound."""
        return self.cost.flops / self.seconds  # type: ignore[no-any-return]


def rows(phase: PhaseEstimate) -> list[Row]:
    """The rows of a phase, in the order of the model; the groups that merge stand where they first occur."""
    bundles: dict[str, list[Placed]] = {}
    for placed in phase.placed:
        group = placed.operator.group
        bundles.setdefault(group if group in MERGED else placed.operator.name, []).append(placed)
    total = phase.bound_seconds
    found = [_row(name, bundle, total) for name, bundle in bundles.items()]
    order = {group: i for i, group in enumerate(("embedding", "attention", "mlp", "norm", "residual", "head"))}
    return sorted(found, key=lambda row: order[row.group])


def _row(name: str, bundle: list[Placed], total: float) -> Row:
    by_roof = {"compute": 0.0, "memory": 0.0}
    for placed in bundle:
        by_roof[placed.placement.bound] += placed.seconds
    seconds = sum(by_roof.values())
    return Row(
        group=bundle[0].operator.group,
        label=MERGED.get(name) or LABELS.get(name) or name.partition(".")[2].replace("_", " "),
        times=sum(placed.operator.count for placed in bundle),
        cost=sum((placed.cost for placed in bundle), Cost()),
        bound=max(by_roof, key=lambda roof: by_roof[roof]),
        seconds=seconds,
        share=seconds / total,
    )


# Letters that name rows in pictures, by phase; without those that look like others (I and l, O and o).
SIGNS = ("ABCDEFGHJKLMNPQRSTUVWXYZ", "abcdefghijkmnpqrstuvwxyz")


def signed(phase: int, found: list[Row]) -> list[tuple[str, Row]]:
    """Each row with its letter; rows without FLOPs, which no picture shows, and rows past the alphabet have none."""
    letters = iter(SIGNS[phase])
    return [(next(letters, "") if row.cost.flops else "", row) for row in found]


def title(group: str) -> str:
    """A group as a person writes it."""
    return TITLES.get(group, group)


def full_label(row: Row) -> str:
    """The label with its group, where it does not say it itself: `MLP: up`, `norms`."""
    merged = row.group in MERGED or row.label.startswith(row.group)
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
        },
        "hardware": {"name": device.id, "full_name": device.name, "calibrated": False},
        "workload": {
            "batch": work.batch,
            "seq": work.seq,
            "context": estimate.phases[-1].step.context,
            "dtype": work.dtype,
            "weights": work.weights or work.dtype,
            "kv": work.kv or work.dtype,
            "attention": work.attention,
            "logits": work.logits or ("all" if "forward" in work.phases else "last"),
        },
        "phases": [_phase(phase) for phase in estimate.phases],
        "memory": {
            "weights": mem.weights,
            "kv_cache": mem.kv_cache,
            "activations": mem.activations,
            "gradients": mem.gradients,
            "optimizer": mem.optimizer,
            "total": mem.total,
            "fits": estimate.fits,
        },
        "notes": list(estimate.notes),
    }


def _phase(phase: PhaseEstimate) -> dict[str, Any]:
    step = phase.step
    return {
        "phase": step.phase,
        "tokens": step.tokens,
        "context": step.context,
        "ops": [_op(placed) for placed in phase.placed],
        "totals": totals(phase),
    }


def totals(phase: PhaseEstimate) -> dict[str, Any]:
    """A phase's totals, over all occurrences of all operators."""
    cost = phase.cost
    return {
        "matmul_flops": cost.matmul_flops,
        "vector_flops": cost.vector_flops,
        "bytes": cost.bytes,
        "weight_bytes": cost.weight_bytes,
        "kv_cache_bytes": cost.cache_bytes,
        "bound_seconds": phase.bound_seconds,
        "expected_seconds": None,
        "expected_low_seconds": None,
        "expected_high_seconds": None,
        "bound_tokens_per_second": phase.bound_tokens_per_second,
        "tokens_per_second": None,
        "mfu": None,
        "mbu": None,
        "matmul_flops_all_pairs": phase.all_pairs_matmul_flops,
    }


def _op(placed: Placed) -> dict[str, Any]:
    op, cost, gemm = placed.operator, placed.placement.cost, placed.operator.gemm
    return {
        "name": op.name,
        "group": op.group,
        "layers": None if op.layers is None else list(op.layers),
        "count": op.count,
        "kind": op.kind,
        "spec": op.spec,
        "gemm": gemm and {"batch": gemm.batch, "m": gemm.m, "n": gemm.n, "k": gemm.k},
        "matmul_flops": cost.matmul_flops,
        "vector_flops": cost.vector_flops,
        "bytes_read": cost.bytes_read,
        "bytes_written": cost.bytes_written,
        "intensity": cost.intensity,
        "bound": placed.placement.bound,
        "bound_seconds": placed.placement.bound_seconds,
        "expected_seconds": None,
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
    """`prefill: 1 × 1024 tokens`."""
    step = phase.step
    text = f"{step.phase}: {step.batch} × {step.tokens} token{'s' if step.tokens != 1 else ''}"
    return f"{text} after {step.context} cached" if step.context else text


def describe_workload(estimate: Estimate) -> str:
    """`fp16, flash attention, logits of the last position`."""
    work = estimate.workload
    parts = [work.dtype]
    parts += [f"{role} {name}" for role, name in (("weights", work.weights), ("KV cache", work.kv)) if name]
    parts.append(f"{work.attention} attention")
    asked = [phase.step for phase in estimate.phases if phase.step.phase != "decode"]  # a decode has one position
    if asked and any(stage.rows == "logits" for stage in estimate.architecture.head.stages):
        everywhere = all(step.logit_positions == step.tokens for step in asked)
        parts.append("logits of all positions" if everywhere else "logits of the last position")
    return ", ".join(parts)


def describe_pairs(phase: PhaseEstimate) -> str | None:
    """Both figures of causal attention, where a fused kernel skips masked tiles."""
    counted, everything = phase.cost.matmul_flops, phase.all_pairs_matmul_flops
    if counted == everything:
        return None
    return (
        f"attention counts the unmasked pairs; with all pairs, as eager attention computes them, "
        f"{units.si(everything, 'FLOP')} of matrix products instead of {units.si(counted, 'FLOP')}"
    )
