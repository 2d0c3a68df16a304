"""The projector of a vision tower: patches become tokens of the text model."""

from __future__ import annotations

from collections.abc import Iterator

from roofmodel.counting import vector_flops
from roofmodel.counting.block_context import norm_flops, norm_parameters
from roofmodel.counting.operator import Builder, Operator
from roofmodel.counting.workload import Step
from roofmodel.models.architecture import Patches, Projector, Stack
from roofmodel.numbers.algebra import quotient

GROUP = "projector"


def project(projector: Projector, number: str, stack: Stack, step: Step) -> Iterator[Operator]:
    """Norm, merging of neighboring patches, and matrices with their activations.

    p patches of width d become m tokens; their width is w0 after merging, wi after the i-th matrix. `number`
    distinguishes several projectors of a tower.
    """
    assert isinstance(stack.embedding, Patches)
    special = len(stack.embedding.special)
    patches, parts = step.tokens - special, projector.merge**2
    widths = [stack.hidden * (1 if projector.pools else parts), *(out for out, _, _ in projector.matrices)]
    sizes = {"b": step.batch, "t": step.tokens, "p": patches, "d": stack.hidden, "m": quotient(patches, parts)}
    build = Builder({**sizes, **{f"w{index}": width for index, width in enumerate(widths)}}, step.widths)
    source = "x[b t d]" if not special else "x[b p d]"
    if projector.norm and not projector.norm_after_merge and not projector.pools:
        yield _norm(projector, build, number, source, "y[b p d]", "d")
    elif projector.pools:
        yield build.operator(f"{GROUP}{number}.pool", GROUP, f"{source} => y[b m w0]", kind="elementwise", flops=1)
    if projector.norm and (projector.norm_after_merge or projector.pools):
        read = "y[b m w0]" if projector.pools else "x[b m w0]"
        yield _norm(projector, build, number, read, "y[b m w0]", "w0")
    for index, (_, bias, activation) in enumerate(projector.matrices):
        name = f"projector{number}_{index + 1}"
        added = f" + B_{name}[w{index + 1}]" if bias else ""
        read = f"y[b m w{index}]" if index or projector.norm or projector.pools else f"x[b m w{index}]"
        result = f"y[b m w{index + 1}]"
        line = f"{read} W_{name}[w{index} w{index + 1}]{added} -> {result}"
        yield build.operator(f"{GROUP}{number}.matrix_{index + 1}", GROUP, line)
        if activation:
            yield build.operator(
                f"{GROUP}{number}.activation_{index + 1}", GROUP, f"{result} -> {result}", kind="elementwise",
                flops=vector_flops.ACTIVATION[activation],
            )  # fmt: skip


def _norm(projector: Projector, build: Builder, number: str, source: str, target: str, axis: str) -> Operator:
    assert projector.norm is not None
    gain, bias = norm_parameters(f"projector{number}", projector.norm, axis)
    return build.operator(
        f"{GROUP}{number}.norm", GROUP, f"{source}{gain}{bias} -> {target}", kind="norm",
        flops=norm_flops(projector.norm), function=projector.norm.kind,
    )  # fmt: skip
