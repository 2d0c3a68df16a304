"""The backward pass, derived from the forward lines by autograd's rules, operator by operator and in reverse.

* A contraction and its result make one trilinear form, so that the gradient of each factor is a contraction over the
  same axes: `x[b t d] W[d f] -> u[b t f]` gives `grad.u[b t f] W[d f] -> grad.x[b t d]` and
  `grad.u[b t f] x[b t d] -> grad.W[d f]`, each with the forward's FLOPs. What needs no gradient has none: tables of
  constants, and whatever is computed from these alone.
* A term added after `+` receives the gradient of the result, summed over the axes that the term lacks. Where it lacks
  none there is nothing to do, as with residual sums. Where it has others (scores against relative positions, of which
  each pair looks one up) the gradient is added into the places looked up.
* Rows gathered from a table: the gradient is added into these rows. No product with the whole table.
* Other work reads the gradient of its result and what it keeps, and writes the gradients of what it read.
* A tensor that several operators read receives a gradient from each: they are added as they arrive.
* Where GPUs share a layer, what one all-reduces forward has its gradient on every GPU; what all of them have, and each
  goes on with its own part of, has a gradient that is a sum: an all-reduce backward (collective.py). What a stage of
  layers sends on has its gradient sent back.
* Flash attention keeps no scores and computes them again: five matrix products where eager attention has four
  (Dao, "FlashAttention-2", arXiv 2307.08691, section 3.1.2).

`=>` marks lines whose FLOPs are stated.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from roofmodel.algebra import Number, product
from roofmodel.counting import vector_flops
from roofmodel.counting.notation import Line, Tensor, parse
from roofmodel.counting.operator import Operator, fuse


def backward(forward: Sequence[Operator]) -> Iterator[Operator]:
    """The gradient operators of a forward pass, last operator first."""
    arrived: set[str] = set()  # tensors that have a gradient from an operator that reads them
    for operator, wanted in reversed(list(zip(forward, differentiable(forward), strict=True))):
        arrived -= {tensor.name for tensor in operator.writes}  # these end here, those of what it reads are others
        own = set(operator.touched) if operator.kind == "elementwise" else set()  # the part that it alone has read
        yield from (_beside(arrived - own, gradient) for gradient in gradients(operator, wanted))
        for tensor in operator.reads:
            if tensor.name in wanted and not tensor.is_parameter:
                if tensor.name in arrived - own:
                    yield _sum(operator, tensor)
                arrived.add(tensor.name)


def differentiable(forward: Sequence[Operator]) -> list[set[str]]:
    """By operator, the names of what it reads that needs a gradient: parameters, and what was computed from any, by
    whatever stage.

    What no result depends on receives none: the choice of an indexer, the queries of positions where DeBERTa uses keys
    only. Results are what the layers give in the end, and what follows them gives that nothing reads.
    """
    reached: set[str] = set()
    found = []
    for operator in forward:
        wanted = {t.name for t in operator.reads if t.is_parameter or t.name in reached or arrives(operator)}
        found.append(wanted)
        for tensor in operator.writes:
            (reached.add if wanted else reached.discard)(tensor.name)

    last = max((i for i, operator in enumerate(forward) if operator.layers is not None), default=0)
    used: set[str] = set()  # what a result depends on
    read: set[str] = set()  # what is read later on
    for i, operator in reversed(list(enumerate(forward))):
        written, wanted = {t.name for t in operator.writes}, found[i]
        if written & used or (i >= last and written.isdisjoint(read)):
            used = used - written | wanted
        else:
            wanted.clear()
        read = read - written | {t.name for t in operator.reads}
    return found


def arrives(operator: Operator) -> bool:
    """Whether it takes in what another stage has computed."""
    return operator.collective is not None and operator.collective.name == "receive"


def kept(operator: Operator, wanted: set[str]) -> tuple[Tensor, ...]:
    """What the gradients of an operator read of its forward pass, apart from parameters and constants."""
    read = {t.name: t for part in gradients(operator, wanted) for t in part.reads}
    mine = operator.writes if operator.keeps == "outputs" else operator.reads
    return tuple(t for t in mine if t.name in read and not t.is_parameter)


def gradients(operator: Operator, wanted: set[str]) -> Iterator[Operator]:
    """The operators that give the gradients of what an operator reads, of those that are `wanted`."""
    if not wanted:
        return
    if operator.parts:
        yield _fused(operator, wanted)
        return
    line = operator.lines[0]
    if operator.collective:
        if (collective := operator.collective.gradient).moves:
            text = f"{_text(map(grad, line.outputs))} -> {_text(map(grad, line.inputs))}"
            yield replace(_like(operator, "grad", text), collective=collective)
    elif operator.kind == "gather":
        yield _scatter(operator, line)
    elif line.contracted:
        yield from _of_contraction(operator, line, wanted)
        yield from _of_terms(operator, line, wanted)
    elif line.terms:
        yield from _of_terms(operator, line, wanted)
    else:
        yield _of_vector_work(operator, line, wanted)


def grad(tensor: Tensor) -> Tensor:
    """The gradient of a tensor."""
    return Tensor(f"grad.{tensor.name}", tensor.axes)


def _arriving(line: Line) -> Tensor:
    """The gradient of a contraction's result; where it is split into several, as the one matrix that they make."""
    if len(line.outputs) == 1:
        return grad(line.outputs[0])
    axes = tuple(axis for axis in line.axes if axis not in line.contracted)
    return Tensor(f"grad.{''.join(t.name for t in line.outputs)}", axes)


def _of_contraction(operator: Operator, line: Line, wanted: set[str]) -> Iterator[Operator]:
    arriving, matmul = _arriving(line), 2 * product(operator.sizes[axis] for axis in line.axes)
    for tensor, other in (line.factors, line.factors[::-1]):
        if tensor.name in wanted:
            name = "weight" if tensor.is_parameter else "input" if other.is_parameter else tensor.name
            result = _like(operator, f"grad_{name}", f"{arriving} {other} -> {grad(tensor)}", matmul=matmul)
            touched = {f"grad.{t}": n for t, n in operator.touched.items()}
            yield replace(result, touched={**operator.touched, **touched})


def _of_terms(operator: Operator, line: Line, wanted: set[str]) -> Iterator[Operator]:
    """Sums of the arriving gradient over the axes that a term lacks, or into the places that it was looked up from."""
    arriving = _arriving(line)
    for tensor in line.terms:
        if tensor.name in wanted and set(tensor.axes) != set(arriving.axes):
            flops = vector_flops.ADD * arriving.elements(operator.sizes)
            text = f"{arriving} => {grad(tensor)}"
            yield _like(operator, f"grad_{tensor.name}", text, group="bias", kind="reduction", flops=flops)


def _of_vector_work(operator: Operator, line: Line, wanted: set[str]) -> Operator:
    arriving = [grad(t) for t in line.outputs]
    given = [grad(t) for t in line.inputs if t.name in wanted]
    fixed = [t for t in line.inputs if t.name not in wanted]  # the sines of rotary embedding, say
    read = {"inputs": line.inputs, "outputs": (*line.outputs, *fixed), "nothing": tuple(fixed)}[operator.keeps]
    text = f"{_text(arriving)} {_text(read)} => {_text(given)}"
    if operator.kind == "softmax":
        flops = vector_flops.SOFTMAX_GRADIENT * line.outputs[0].elements(operator.sizes)
    else:
        flops = vector_flops.BACKWARD_FACTOR[operator.keeps] * operator.vector_flops
    result = _like(operator, "grad", text, flops=flops)
    touched = {name: n for read, n in operator.touched.items() for name in (read, f"grad.{read}")}
    return replace(result, touched=touched)


def _scatter(operator: Operator, line: Line) -> Operator:
    arriving, table = grad(line.outputs[0]), grad(line.inputs[0])
    flops = vector_flops.ADD * arriving.elements(operator.sizes)
    result = _like(operator, "grad_weight", f"{arriving} {table} => {table}", kind="scatter", flops=flops)
    return replace(result, touched={f"grad.{read}": rows for read, rows in operator.touched.items()})


def _fused(operator: Operator, wanted: set[str]) -> Operator:
    """One kernel: what the gradients read of the inside again, then these; only the boundary is read and written."""
    inside = {t.name for part in operator.parts for t in part.writes}
    gradient = [g for part in reversed(operator.parts) for g in gradients(part, wanted | inside)]
    needed = {t.name for g in gradient for t in g.reads}
    anew: list[Operator] = []
    for part in reversed(operator.parts):
        if not needed.isdisjoint(t.name for t in part.writes):
            anew.insert(0, part)
            needed |= {t.name for t in part.reads}
    result = fuse(f"{operator.name}.grad", operator.group, [*anew, *gradient], kind=operator.kind)
    return replace(result, layers=operator.layers)


def _beside(arrived: set[str], gradient: Operator) -> Operator:
    """A gradient operator that leaves alone what has arrived: what it gives to the same tensor has another name."""

    def renamed(line: Line) -> Line:
        left, arrow, right = line.text.rpartition("> ")
        return parse(left + arrow + re.sub(r"grad\.([\w.]+)\[", lambda m: further(m.group(1)) + "[", right))

    def further(name: str) -> str:
        return f"further.grad.{name}" if name in arrived else f"grad.{name}"

    return replace(gradient, lines=tuple(map(renamed, gradient.lines)))


def _sum(operator: Operator, tensor: Tensor) -> Operator:
    """A further gradient of a tensor, added to those that have arrived."""
    text = f"{grad(tensor)} further.{grad(tensor)} => {grad(tensor)}"
    flops = vector_flops.ADD * tensor.elements(operator.sizes)
    return _like(operator, f"grad_sum_{tensor.name}", text, group="residual", kind="elementwise", flops=flops)


def _like(
    operator: Operator,
    suffix: str,
    text: str,
    *,
    group: str | None = None,
    kind: str | None = None,
    matmul: Number = 0,
    flops: Number = 0,
) -> Operator:
    """An operator in the place of another, of another line and other FLOPs."""
    return replace(
        operator, name=f"{operator.name}.{suffix}", group=group or operator.group, kind=kind or operator.kind,
        lines=(parse(text),), matmul_flops=matmul, vector_flops=flops, touched={},
    )  # fmt: skip


def _text(tensors: Iterable[Tensor]) -> str:
    return " ".join(map(str, tensors))
