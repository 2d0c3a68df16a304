"""`roof explain` and its functions: derivations, the counting conventions, the counts of other tools."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Unpack, get_args

from roofmodel.devices.device import Device, Hardware
from roofmodel.errors import Message, ModelError, Option, Text
from roofmodel.options import values
from roofmodel.options.signature import checked, lists_options
from roofmodel.options.values import FlopCounter, Model, check_one_of
from roofmodel.options.workload import DECLARED
from roofmodel.report.base import Derivation
from roofmodel.report.command import CommandCall, CommandLine
from roofmodel.report.printing import ignored, present

if TYPE_CHECKING:
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
    from roofmodel.explain.answer import document
    from roofmodel.explain.explain import explain_named

    device = None if hw is None else Device.load(hw)
    sizes = size if isinstance(size, Mapping) else values.as_sequence(size or ())
    explanation = explain_named(
        model, device, family=family, op=operator_of(op), n=n, line=line, size=sizes, **workload
    )
    return Derivation(document(explanation, timing=timing))


def operator_of(op: str | None) -> str | None:
    """The name of an operator, from its name or from its label in a table."""
    from roofmodel.report.operator_names import operator_name

    return operator_name(op) if op else op


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
    from roofmodel.explain.reconcile import document
    from roofmodel.explain.reconcile import reconcile as study
    from roofmodel.models import hub

    return Derivation(document(study(hub.load(model, family), tool, **workload)))


def _present(
    call: CommandCall,
    form: Any,
    output: Sequence[str],
    show_conventions: bool = False,
    tool: str | None = None,
) -> None:
    """Present a derivation, the conventions, or the derivation of another tool's count.

    Args:
        show_conventions: Print the counting conventions.
        tool: Show how another tool's FLOPs follow from ours: fvcore, calflops, llm-flops or deepspeed.
    """
    arguments = call.given
    if show_conventions:
        why = "the conventions are the same for all models"
        ignored_names = [name for name in (*arguments, *(["reconcile"] if tool else [])) if name != "model"]
        notes: list[Text] = [f"MODEL is ignored: {why}"] if "model" in arguments else []
        present(conventions(), form, output, notes=[*notes, *ignored(ignored_names, why)])
        return
    if not arguments.keys() & {"model", "line"}:
        raise ModelError("MODEL is missing; give one such as gpt2-xl, or a kernel such as matmul")
    if tool and "model" in arguments:
        check_one_of("reconcile", tool, get_args(FlopCounter))
        used = {name: value for name, value in arguments.items() if name in {"model", "family", *DECLARED}}
        others = ignored(
            (name for name in arguments if name not in used), "--reconcile sums the counts of the whole model"
        )
        present(reconcile(tool=tool, **used), form, output, notes=others)  # type: ignore[arg-type]
        return
    report, timing, notes = call(), arguments.get("timing"), []
    if form == "json" and timing:
        notes = ignored(["timing"], "--format json always has the expected times' computation")
    elif form == "csv" and timing:
        notes = ignored(["timing"], "--format csv has the numbers only")
    elif timing and "hw" not in arguments:
        notes = ignored(["timing"], "expected times need --hw")
    elif form not in ("json", "csv") and "hw" in arguments and not timing:
        notes = [Message(Option("timing"), " shows how each expected time is computed")]
    present(report, form, output, notes=notes)


COMMAND = CommandLine(
    explain,
    run=_present,
    settings={
        "show_conventions": {"flags": ("--conventions",)},
        "tool": {"flags": ("--reconcile",), "metavar": "<name>"},
    },
    examples=(
        "roof explain gpt2-xl --op attention.qkv --hw a100",
        "roof explain matmul --n 4096 --format markdown",
        "roof explain --line 'A\\[i k] B\\[k j] -> C\\[i j]' --size i=4096,j=4096,k=512 --hw a100",
        "roof explain --conventions",
    ),
)
