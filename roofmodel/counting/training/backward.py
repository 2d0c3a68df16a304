"""The backward pass: gradient operators derived from the forward lines, operator by operator in reverse order.

* Contraction: the gradient of each factor is a contraction over the same axes with the forward's FLOPs.
  `x[b t d] W[d f] -> u[b t f]` gives `grad.u[b t f] W[d f] -> grad.x[b t d]` and
  `grad.u[b t f] x[b t d] -> grad.W[d f]`. Constants, and tensors computed only from constants, have no gradient.
* Added term: the gradient of the output, summed over the axes that the term lacks. A residual connection lacks none and
  costs nothing. Scores against relative positions, which each pair looks up, are scattered by addition.
* Embedding lookup: the gradient is added to the rows that were read; no GEMM with the whole table.
* Other vector work reads the gradient of its output and what it keeps, and writes the gradients of its inputs.
* A tensor with several readers receives a gradient from each; they are added as they are computed.
* Tensor parallelism: the gradient of an all-reduced tensor is replicated, and the gradient of a replicated input is
  all-reduced (`Collective.gradient`). Pipeline stages send gradients back to the previous stage.
* Flash attention does not keep scores and recomputes them: 5 GEMMs instead of the 4 of eager attention (Dao,
  "FlashAttention-2", arXiv 2307.08691, section 3.1.2).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from roofmodel.counting import vector_flops
from roofmodel.counting.operator import Operator, fuse
from roofmodel.counting.tensors import OperatorLine, Tensor, parse
from roofmodel.numbers.algebra import Number, product


def backward(forward: Sequence[Operator]) -> Iterator[Operator]:
    """The gradient operators of a forward pass, in reverse order."""
    with_gradient: set[str] = set()  # tensors that already have a gradient from one of their readers
    for operator, wanted in reversed(list(zip(forward, differentiable(forward), strict=True))):
        with_gradient -= {t.name for t in operator.writes}  # earlier tensors of the same name are different tensors
        unshared = set(operator.touched) if operator.kind == "elementwise" else set()  # slices without another reader
        renamed = with_gradient - unshared
        yield from (_rename_further_gradients(renamed, gradient) for gradient in gradients(operator, wanted))
        for tensor in operator.reads:
            if tensor.name in wanted and not tensor.is_parameter:
                if tensor.name in with_gradient and tensor.name not in unshared:
                    yield _sum(operator, tensor)
                with_gradient.add(tensor.name)


def differentiable(forward: Sequence[Operator]) -> list[set[str]]:
    """For each operator, the names of its inputs that need a gradient: parameters, and tensors computed from any.

    Tensors on which no result depends need none: the token choice of an indexer, the position queries of a DeBERTa
    that uses only position keys. Results are the output of the layers, and unread outputs after the layers.
    With low-rank adapters, only their parameters are trained.
    """
    adapted = any(tensor.is_adapter for operator in forward for tensor in operator.parameters)
    reached: set[str] = set()
    needs = []
    for operator in forward:
        wanted = {
            t.name
            for t in operator.reads
            if (t.is_adapter if adapted and t.is_parameter else t.is_parameter)
            or t.name in reached
            or receives_from_stage(operator)
        }
        needs.append(wanted)
        read_names = {t.name for t in operator.reads}
        for tensor in operator.writes:  # rotary embedding rotates queries and keys in place, each by itself
            is_rotated = operator.function == "rotary" and tensor.name in read_names
            (reached.add if (tensor.name in wanted if is_rotated else wanted) else reached.discard)(tensor.name)
        if receives_from_stage(operator):
            reached |= {"sums", "streams"}  # the received tensor stands for all residual sums or streams

    last = max((i for i, operator in enumerate(forward) if operator.layers is not None), default=0)
    used: set[str] = set()  # tensors on which a result depends
    read_later: set[str] = set()
    for i, operator in reversed(list(enumerate(forward))):
        written, wanted = {t.name for t in operator.writes}, needs[i]
        if written & used or (i >= last and written.isdisjoint(read_later)):
            used = used - written | wanted
        else:
            wanted.clear()
        read_later = read_later - written | {t.name for t in operator.reads}
    return needs


def receives_from_stage(operator: Operator) -> bool:
    """Whether the operator receives activations from another pipeline stage."""
    return operator.collective is not None and operator.collective.name == "receive"


def kept(operator: Operator, wanted: set[str]) -> tuple[Tensor, ...]:
    """The activations of an operator that its gradients read."""
    gradient_reads = {t.name: t for part in gradients(operator, wanted) for t in part.reads}
    return tuple(t for t in operator.kept_candidates if t.name in gradient_reads and not t.is_parameter)


def gradients(operator: Operator, wanted: set[str]) -> Iterator[Operator]:
    """The operators that compute the gradients of the inputs named in `wanted`."""
    if not wanted:
        return
    if operator.parts:
        yield _fused(operator, wanted)
        return
    line = operator.lines[0]
    if operator.collective:
        if (collective := operator.collective.gradient).moves:
            arrow = "=>" if len(line.outputs) > 1 else "->"  # several tensors are no product
            text = f"{_text(map(grad, line.outputs))} {arrow} {_text(map(grad, line.inputs))}"
            yield replace(_with_line(operator, "grad", text), collective=collective)
    elif operator.kind == "gather":
        yield _scatter(operator, line)
    elif line.contracted:
        yield from _contraction_gradients(operator, line, wanted)
        yield from _term_gradients(operator, line, wanted)
    elif line.terms:
        yield from _term_gradients(operator, line, wanted)
    else:
        yield _vector_work_gradient(operator, line, wanted)


def grad(tensor: Tensor) -> Tensor:
    """The gradient of a tensor."""
    return Tensor(f"grad.{tensor.name}", tensor.axes)


def _output_gradient(line: OperatorLine) -> Tensor:
    """The gradient of a contraction's output; several outputs are one matrix."""
    if len(line.outputs) == 1:
        return grad(line.outputs[0])
    axes = tuple(axis for axis in line.axes if axis not in line.contracted)
    return Tensor(f"grad.{''.join(t.name for t in line.outputs)}", axes)


def _contraction_gradients(operator: Operator, line: OperatorLine, wanted: set[str]) -> Iterator[Operator]:
    output_gradient, matmul = _output_gradient(line), 2 * product(operator.sizes[axis] for axis in line.axes)
    for tensor, other in (line.factors, line.factors[::-1]):
        if tensor.name in wanted:
            name = "weight" if tensor.is_parameter else "input" if other.is_parameter else tensor.name
            flops = operator.gradient_flops.get(tensor.name, matmul)
            result = _with_line(operator, f"grad_{name}", f"{output_gradient} {other} -> {grad(tensor)}", matmul=flops)
            touched = {f"grad.{t}": n for t, n in operator.touched.items()}
            yield replace(result, touched={**operator.touched, **touched})


def _term_gradients(operator: Operator, line: OperatorLine, wanted: set[str]) -> Iterator[Operator]:
    """Gradients of added terms: the gradient of the output, summed over the axes that a term lacks or scattered."""
    output_gradient = _output_gradient(line)
    for tensor in line.terms:
        if tensor.name in wanted and set(tensor.axes) != set(output_gradient.axes):
            flops = vector_flops.ADD * output_gradient.elements(operator.sizes)
            text = f"{output_gradient} => {grad(tensor)}"
            yield _with_line(operator, f"grad_{tensor.name}", text, group="bias", kind="reduction", flops=flops)


def _vector_work_gradient(operator: Operator, line: OperatorLine, wanted: set[str]) -> Operator:
    masks = line.outputs[1:] if operator.keeps == "mask" else ()
    output_gradients = [grad(t) for t in line.outputs if t not in masks]
    gradients_of_inputs = [grad(t) for t in line.inputs if t.name in wanted]
    fixed = [t for t in line.inputs if t.name not in wanted]  # for example sines and cosines of rotary embedding
    operands = {
        "inputs": line.inputs, "outputs": (*line.outputs, *fixed), "nothing": tuple(fixed), "mask": masks,
    }[operator.keeps]  # fmt: skip
    text = f"{_text(output_gradients)} {_text(operands)} => {_text(gradients_of_inputs)}"
    if operator.kind == "softmax":
        flops = vector_flops.SOFTMAX_GRADIENT * line.outputs[0].elements(operator.sizes)
    else:
        flops = vector_flops.BACKWARD_FACTOR[operator.keeps] * operator.vector_flops
    result = _with_line(operator, "grad", text, flops=flops)
    touched = {name: n for tensor, n in operator.touched.items() for name in (tensor, f"grad.{tensor}")}
    return replace(result, touched=touched)


def _scatter(operator: Operator, line: OperatorLine) -> Operator:
    output_gradient, table = grad(line.outputs[0]), grad(line.inputs[0])
    flops = vector_flops.ADD * output_gradient.elements(operator.sizes)
    result = _with_line(operator, "grad_weight", f"{output_gradient} {table} => {table}", kind="scatter", flops=flops)
    return replace(result, touched={f"grad.{name}": rows for name, rows in operator.touched.items()})


def _fused(operator: Operator, wanted: set[str]) -> Operator:
    """The gradient of a fused operator as one kernel: recomputes the inner tensors, then computes the gradients."""
    inside = {t.name for part in operator.parts for t in part.writes}
    gradient = [g for part in reversed(operator.parts) for g in gradients(part, wanted | inside)]
    needed = {t.name for g in gradient for t in g.reads}
    recomputed: list[Operator] = []
    for part in reversed(operator.parts):
        if not needed.isdisjoint(t.name for t in part.writes):
            recomputed.insert(0, part)
            needed |= {t.name for t in part.reads}
    result = fuse(f"{operator.name}.grad", operator.group, [*recomputed, *gradient], kind=operator.kind)
    return replace(result, layers=operator.layers)


def _rename_further_gradients(with_gradient: set[str], gradient: Operator) -> Operator:
    """The gradient operator with `further.` names for gradients of tensors that already have one."""

    def renamed(line: OperatorLine) -> OperatorLine:
        left, arrow, right = line.text.rpartition("> ")
        return parse(left + arrow + re.sub(r"grad\.([\w.]+)\[", lambda m: further(m.group(1)) + "[", right))

    def further(name: str) -> str:
        return f"further.grad.{name}" if name in with_gradient else f"grad.{name}"

    return replace(gradient, lines=tuple(map(renamed, gradient.lines)))


def _sum(operator: Operator, tensor: Tensor) -> Operator:
    """The addition of a further gradient of a tensor."""
    text = f"{grad(tensor)} further.{grad(tensor)} => {grad(tensor)}"
    flops = vector_flops.ADD * tensor.elements(operator.sizes)
    return _with_line(operator, f"grad_sum_{tensor.name}", text, group="residual", kind="elementwise", flops=flops)


def _with_line(
    operator: Operator,
    suffix: str,
    text: str,
    *,
    group: str | None = None,
    kind: str | None = None,
    matmul: Number = 0,
    flops: Number = 0,
) -> Operator:
    """A copy of an operator with another line and other FLOPs."""
    return replace(
        operator, name=f"{operator.name}.{suffix}", group=group or operator.group, kind=kind or operator.kind,
        lines=(parse(text),), matmul_flops=matmul, vector_flops=flops, touched={}, gradient_flops={},
    )  # fmt: skip


def _text(tensors: Iterable[Tensor]) -> str:
    return " ".join(map(str, tensors))
