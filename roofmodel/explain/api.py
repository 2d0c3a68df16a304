"""The Python functions of `roof explain` and `roof crossover`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Unpack

from roofmodel.devices.device import Device, Hardware
from roofmodel.explain.report import CrossoverReport
from roofmodel.options import values
from roofmodel.options.signature import checked
from roofmodel.options.values import CrossoverSize, FlopCounter, Model
from roofmodel.options.workload import lists_options
from roofmodel.report.derivation import Derivation

if TYPE_CHECKING:
    from roofmodel.explain.crossover import Crossover
    from roofmodel.options.keywords import WorkloadOptions


@checked
@lists_options
def explain(
    model: Model | None = None,
    hw: Hardware | None = None,
    *,
    op: str | None = None,
    family: str | None = None,
    n: int | None = None,
    line: str | None = None,
    size: Mapping[str, int] | str | Iterable[str] = (),
    timing: bool = False,
    **workload: Unpack[WorkloadOptions],
) -> Derivation:
    """Derive every number of an estimate: the formula with symbols, the formula with numbers, and the value.

    Raises RoofError.

    Args:
        model: A model, as for estimate, or a kernel: matmul, matmul-accumulate, saxpy, triad, stencil7,
            stencil7-uncached, spmv, fft, nbody.
        hw: Also derive bounds and expected times on a device.
        op: One operator, such as mlp.up or 'q projection', or a group, such as mlp.
        family: Read an unknown model_type as this family, such as llama.
        n: Size n of a kernel such as matmul (default: 1024).
        line: Derive your own kernel, such as 'A[i k] B[k j] -> C[i j]', with `size`.
        size: Size of an axis of `line`: i=4096, or i=4096,k=512.
        timing: Also show how each expected time is computed.
        **workload: The options of `estimate`.

    Examples:
        >>> explain("matmul", n=4096, dtype="fp32")
        <Derivation: matmul>
        >>> found = explain(line="A[i k] B[k j] -> C[i j]", size={"i": 4096, "j": 4096, "k": 512}).to_dict()
        >>> found["phases"][0]["ops"][0]["counts"][0]["value"]  # 2 × 4096 × 4096 × 512 FLOPs
        17179869184
    """
    from roofmodel.explain.document import document
    from roofmodel.explain.explain import explain_named

    device = None if hw is None else Device.load(hw)
    sizes = size if isinstance(size, Mapping) else values.as_sequence(size or ())
    explanation = explain_named(model, device, family=family, op=_operator(op), n=n, line=line, size=sizes, **workload)
    return Derivation(document(explanation, timing=timing))


def _operator(op: str | None) -> str | None:
    """The name of an operator, from its name or from its label in a table."""
    from roofmodel.report.operator_names import operator_name

    return operator_name(op) if op else op


@checked
@lists_options
def crossover(
    model: Model,
    hw: Hardware,
    *,
    over: CrossoverSize | None = None,
    op: str | None = None,
    explain: bool = False,
    family: str | None = None,
    **workload: Unpack[WorkloadOptions],
) -> CrossoverReport:
    """Compute the size at which another ceiling limits an operator or a phase, with the equation.

    `.to_dict()` has the first such size under `value`, or None. Raises RoofError.

    Args:
        model: A model, as for estimate, or a kernel: matmul, matmul-accumulate, saxpy, triad, stencil7,
            stencil7-uncached, spmv, fft, nbody.
        hw: A packaged device (see 'roof hw list') or a YAML file.
        over: Size that varies; seq only in prefill, context only in decode (default: batch; n for a kernel).
        op: One operator, such as attention.qkv, or a group, such as mlp (default: the whole phase).
        explain: Also derive the result and list the assumptions.
        family: Read an unknown model_type as this family, such as llama.
        **workload: The options of `estimate`.

    Examples:
        >>> crossover("matmul", "a100").to_dict()["value"]
        460
    """
    from roofmodel.explain.crossover import crossover as study
    from roofmodel.explain.crossover_document import document, explained

    crossing = study(
        model, Device.load(hw), over=over, op=_operator(op), family=family, derive=explain, **workload
    )  # fmt: skip
    draw = partial(_draw, crossing)
    return CrossoverReport(document(crossing, explained(crossing) if explain else (), draw), crossing)


def _draw(crossing: Crossover, path: Path, form: str) -> None:
    from roofmodel.explain.crossover_picture import draw

    draw(crossing, path, form)


def conventions() -> Derivation:
    """List the counting conventions, point by point, with the option that changes each.

    Examples:
        >>> print(conventions().text("markdown"))  # doctest: +SKIP
    """
    from roofmodel.explain.conventions import document

    return Derivation(document())


@checked
@lists_options
def reconcile(
    model: Model, tool: FlopCounter, *, family: str | None = None, **workload: Unpack[WorkloadOptions]
) -> Derivation:
    """Show how another tool's FLOPs follow from ours.

    Raises RoofError for a model whose architecture is not covered.

    Args:
        model: A packaged name, a config.json or its folder, or a Hub id.
        tool: fvcore, calflops, llm-flops or deepspeed.
        family: Read an unknown model_type as this family, such as llama.
        **workload: The options of `estimate`.

    Examples:
        >>> reconcile("gpt2", "fvcore", phase="forward", seq=128)
        <Derivation: openai-community/gpt2: the FLOP count of fvcore, derived from ours>
    """
    from roofmodel.explain.reconcile import reconcile as study
    from roofmodel.explain.reconcile_document import document
    from roofmodel.models import hub

    return Derivation(document(study(hub.load(model, family), tool, **workload)))
