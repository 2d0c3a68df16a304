"""The Python functions of `roof explain` and `roof crossover`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Unpack

from roofmodel.devices.device import Hardware
from roofmodel.options import arguments
from roofmodel.options.arguments import Model
from roofmodel.options.workload import lists_options
from roofmodel.report.derivation import Derivation

if TYPE_CHECKING:
    from roofmodel.options.keywords import WorkloadOptions
    from roofmodel.options.values import (
        CrossoverSize,
        FlopCounter,
    )


@lists_options
def explain(
    model: Model | None = None,
    hw: Hardware | None = None,
    *,
    family: str | None = None,
    op: str | None = None,
    n: int | None = None,
    line: str | None = None,
    size: Mapping[str, int] | str | Iterable[str] | None = None,
    timing: bool = False,
    **workload: Unpack[WorkloadOptions],
) -> Derivation:
    """The derivation of every number of an estimate: formula, formula with numbers, value, and source of each size.

    `model` is as for `estimate`, or a kernel such as "matmul" of size `n`; `op` selects one operator or a group of
    them. Instead of a model, `line` states a kernel, such as "A[i k] B[k j] -> C[i j]", and `size` the size of each of
    its axes. Without `hw` it derives counts only; `timing` adds how each expected time is computed. Raises RoofError.

    Examples:
        >>> explain("matmul", n=4096, dtype="fp32")
        <Derivation: matmul>
        >>> found = explain(line="A[i k] B[k j] -> C[i j]", size={"i": 4096, "j": 4096, "k": 512}).to_dict()
        >>> found["phases"][0]["ops"][0]["counts"][0]["value"]  # 2 × 4096 × 4096 × 512 FLOPs
        17179869184
    """
    from roofmodel.explain.document import document
    from roofmodel.explain.explain import explain_named

    arguments.check_texts(family=family, line=line)
    operator, device = arguments.operator_name(op), arguments.optional_device(hw)
    sizes = size if size is None or isinstance(size, Mapping) else [size] if isinstance(size, str) else list(size)
    found = explain_named(model, device, family=family, op=operator, n=n, line=line, size=sizes, **workload)
    return Derivation(document(found, timing=timing))


@lists_options
def crossover(
    model: Model,
    hw: Hardware,
    *,
    over: CrossoverSize | None = None,
    op: str | None = None,
    family: str | None = None,
    explain: bool = False,
    **workload: Unpack[WorkloadOptions],
) -> Derivation:
    """The size at which another ceiling limits an operator or a phase, over "batch", "seq", "context" or "gpus".

    `model` may be a kernel such as "matmul", whose size n varies. `explain` adds the derivation and the assumptions.
    `.to_dict()` has the first such size under `value`, or None. Raises RoofError.

    Examples:
        >>> crossover("matmul", "a100").to_dict()["value"]
        460
    """
    from roofmodel.explain.crossover import crossover as study
    from roofmodel.explain.crossover_document import document, explained

    arguments.check_texts(over=over, family=family)
    operator, device = arguments.operator_name(op), arguments.device(hw)
    found = study(model, device, over=over, op=operator, family=family, derive=explain, **workload)
    return Derivation(document(found, explained(found) if explain else ()))


def conventions() -> Derivation:
    """The counting conventions, point by point, with the option that changes each.

    Examples:
        >>> print(conventions().text("markdown"))  # doctest: +SKIP
    """
    from roofmodel.explain.conventions_document import document

    return Derivation(document())


@lists_options
def reconcile(
    model: Model, tool: FlopCounter, *, family: str | None = None, **workload: Unpack[WorkloadOptions]
) -> Derivation:
    """The FLOPs that another tool reports, derived from ours: fvcore, calflops, llm-flops or deepspeed.

    Raises RoofError for a model whose architecture is not covered.

    Examples:
        >>> reconcile("gpt2", "fvcore", phase="forward", seq=128)
        <Derivation: openai-community/gpt2: the FLOP count of fvcore, derived from ours>
    """
    from roofmodel.explain.reconcile import reconcile as study
    from roofmodel.explain.reconcile_document import document

    arguments.check_texts(tool=tool)
    return Derivation(document(study(arguments.architecture(model, family), tool, **workload)))
