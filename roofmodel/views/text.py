"""An Estimate as text for programs and pages: JSON, CSV, Markdown."""

from __future__ import annotations

import csv
import io
import json

from roofmodel import units
from roofmodel.study.estimate import Estimate
from roofmodel.views import plain
from roofmodel.views.estimate_data import flat, to_dict
from roofmodel.views.estimate_words import (
    describe_expectation,
    describe_largest,
    describe_parameters,
    describe_phase,
    describe_rate,
    describe_stage,
    describe_training,
    describe_uncached,
    describe_workload,
)
from roofmodel.views.rows import full_label, rows


def as_json(estimate: Estimate) -> str:
    """One JSON document, as the machine interface states it."""
    return json.dumps(to_dict(estimate), indent=1, allow_nan=False)


def as_csv(estimate: Estimate) -> str:
    """A line an operator, base units, empty for unknown."""
    records = flat(estimate)
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, fieldnames=list(records[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return buffer.getvalue().rstrip("\n")


def as_markdown(estimate: Estimate) -> str:
    """The tables that a person reads, as GitHub-flavoured Markdown."""
    arch, device, mem = estimate.architecture, estimate.device, estimate.memory
    size = describe_parameters(estimate.parameters, estimate.active_parameters)
    lines = [
        f"# {arch.name} on {device.name}",
        "",
        f"{arch.head.name}, {size}; {describe_workload(estimate)}.",
    ]
    for phase in estimate.phases:
        lines += [
            "",
            f"## {describe_phase(phase)}",
            "",
            "| operator | × | FLOPs | bytes | FLOP/B | roof | bound | of bound | expected |",
            "|---|---:|---:|---:|---:|---|---:|---:|---:|",
        ]
        for row in rows(phase):
            label = f"{row.stage}: {full_label(row)}" if row.stage else full_label(row)
            lines.append(
                f"| {label} | {row.times} | {units.si(row.cost.flops)} | {units.si(row.cost.bytes, 'B')} "
                f"| {units.significant(row.cost.intensity)} | {row.bound} "
                f"| {units.seconds(row.seconds)} | {row.share:.1%} "
                f"| {units.seconds(row.expected) if row.expected else ''} |"
            )
        cost = phase.cost
        if phase.step.parallel.pp > 1:
            bound, waits = phase.idle.bound, phase.idle.expected
            lines.append(
                f"| wait for other stages | | | | | | {units.seconds(bound)} | {bound / phase.bound_seconds:.1%} "
                f"| {units.seconds(float(waits.seconds)) if waits else ''} |"
            )
        lines.append(
            f"| **total** | | **{units.si(cost.flops)}** | **{units.si(cost.bytes, 'B')}** "
            f"| **{units.significant(cost.intensity)}** | | **{units.seconds(phase.bound_seconds)}** | | |"
        )
        lines += [
            "",
            f"{expectation[:1].upper()}{expectation[1:]}; at most {describe_rate(phase)}."
            if (expectation := describe_expectation(phase))
            else f"At most {describe_rate(phase)}.",
        ]
        for remark in (describe_stage(phase), describe_uncached(phase), describe_training(estimate, phase)):
            if remark:
                lines += ["", f"{remark[0].upper()}{remark[1:]}."]
    lines += [
        "",
        "## memory",
        "",
        "| weights | KV cache | activations | gradients | optimizer | total | device | fits |",
        "|---:|---:|---:|---:|---:|---:|---:|---|",
        f"| {units.binary(mem.weights)} | {units.binary(mem.kv_cache)} | {units.binary(mem.activations)} "
        f"| {units.binary(mem.gradients)} | {units.binary(mem.optimizer)} "
        f"| {units.binary(mem.total)} | {units.binary(device.capacity) if device.capacity else 'unknown'} "
        f"| {({True: 'yes', False: 'no', None: 'unknown'})[estimate.fits]} |",
    ]
    if remark := describe_largest(estimate):
        lines += ["", f"{remark[0].upper()}{remark[1:]}."]
    lines += ["", *(f"- {note}" for note in estimate.notes)]
    return plain.in_markdown("\n".join(lines))
