"""The explorable page: models with sliders, whose figures of `roof estimate --format json` the browser evaluates.

Python traces the formulas (traced_estimate.py); the scripts of this folder evaluate and draw them; nodes.py defines
their form in the page's data. Variants share a list of operator rows. Names come from configs of unknown authors: the
script inserts them as text, never as markup.
"""

from __future__ import annotations

import gzip
import json
from base64 import b64encode
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from roofmodel.counting.operator import Cost, Operator
from roofmodel.counting.tensors import AXES, COMPUTE_FORMATS, FORMATS, Format, Tensor, Widths, number_format
from roofmodel.devices.device import Device
from roofmodel.errors import WorkloadError, shorten
from roofmodel.estimate.data import phase_document
from roofmodel.estimate.tables import MEMORY_OF_A_GPU, OPERATORS
from roofmodel.explore import nodes
from roofmodel.explore import traced_estimate as study
from roofmodel.explore.devices import describe_device, sets_used
from roofmodel.explore.nodes import UniqueRecords
from roofmodel.models import hub
from roofmodel.models.architecture import Architecture
from roofmodel.numbers.algebra import Number, trace_branches
from roofmodel.numbers.traced import Cases, Trace, map_cases
from roofmodel.options.values import MEMORY_UTILIZATION
from roofmodel.options.workload import DECLARED
from roofmodel.report import marks
from roofmodel.report.html import SCRIPT_SOURCES, page_file, render_page
from roofmodel.report.operator_names import kind, label, title
from roofmodel.roofline.panel import CATEGORY_COLORS
from roofmodel.steps.estimate import describe_parameters, parameters
from roofmodel.steps.options import workload
from roofmodel.steps.parallelism import tp_by_ep
from roofmodel.steps.phase import PhaseEstimate
from roofmodel.steps.placed import Placed
from roofmodel.timing.timing import Expected
from roofmodel.version import __version__

SCRIPTS = ("numbers.js", "draw.js", "practice.js", "page.js")  # evaluate, draw, ask, handle input
Item = TypeVar("Item", Architecture, Device)


Progress = Callable[[str, int, int], None]
"""Called with a model's name, the number of its derived variants, and the number of all its variants."""


def html(
    archs: Sequence[Architecture],
    devices: Sequence[Device],
    progress: Progress = lambda model, done, total: None,
) -> str:
    """The page, with each model and device once. Raises WorkloadError if two different ones have the same name."""
    archs, devices = _unique("models", archs, lambda arch: arch.name), _unique("devices", devices, lambda d: d.id)
    document = data(archs, devices, progress)
    names = ", ".join(arch.name for arch in archs)
    return render_page(
        page_file("explore", "page.html"),
        title=f"{names}: roofline to explore",
        style=page_file("explore", "page.css"),
        sources=[SCRIPT_SOURCES],
        script="\n".join(page_file("explore", name) for name in SCRIPTS),
        footer=f"roofmodel {__version__}",
        data=_compressed(json.dumps(document, allow_nan=False, separators=(",", ":"))),
    )


def _unique(plural: str, items: Sequence[Item], name: Callable[[Item], str]) -> list[Item]:
    by_name: dict[str, Item] = {}
    for item in items:
        if by_name.setdefault(name(item), item) != item:
            raise WorkloadError(
                f"two {plural} that differ are called {shorten(name(item))}; give one of them another name"
            )
    return list(by_name.values())


def _compressed(text: str) -> str:
    """Compressed and base64-encoded, to about a tenth of the size."""
    return b64encode(gzip.compress(text.encode(), mtime=0)).decode()


def data(
    archs: Sequence[Architecture],
    devices: Sequence[Device],
    progress: Progress = lambda model, done, total: None,
) -> dict[str, Any]:
    """The page's data: `roofmodel.explore/1`."""
    trace, rows = Trace(), UniqueRecords()
    formats = [*FORMATS.values(), *_mean_formats(archs)]
    document = {"models": [_model(arch, devices, trace, rows, progress) for arch in archs], "rows": rows.records}
    excerpt = trace.excerpt(nodes.numbers(document))
    for form in formats:
        nodes.formula_of_bytes(trace, form.name, form.bytes)
    sets, parameter_sets = UniqueRecords(), sets_used(excerpt.nodes)
    return {
        "schema": "roofmodel.explore/1",
        **nodes.plain(document, excerpt),
        "nodes": nodes.nodes(excerpt),
        "devices": [describe_device(each, parameter_sets, sets, [form.name for form in formats]) for each in devices],
        "sets": sets.records,
        "formats": {form.name: {"bits": form.bits, "computes": form.name in COMPUTE_FORMATS} for form in formats},
        "axes": AXES,
        "memory_utilization": MEMORY_UTILIZATION,
        "optimizers": DECLARED["optimizer"].choices,
        "formulas": {name: nodes.formula(format) for name, format in trace.functions.items()},
    }


def _mean_formats(archs: Sequence[Architecture]) -> list[Format]:
    """The weight formats of quantized checkpoints that have no name, such as 4.5bit."""
    format_names = dict.fromkeys(arch.quantization.weights for arch in archs if arch.quantization)
    return [number_format(name) for name in format_names if name and name not in FORMATS]


def _model(
    arch: Architecture, devices: Sequence[Device], trace: Trace, rows: UniqueRecords, progress: Progress
) -> dict[str, Any]:
    colors = _GroupColors()

    def document_of(traced: study.TracedEstimate) -> dict[str, Any]:
        memory = {
            engine: {**MEMORY_OF_A_GPU.record(needed), "fits": traced.fits[engine]}
            for engine, needed in traced.memory.items()
        }
        return {
            engine: _traced_phase(estimate, traced.updates.get(engine), rows, colors) | {"memory": memory[engine]}
            for engine, estimate in traced.estimates.items()
        }

    explored = study.explore(arch, trace, document_of, progress)
    phases = {variant.phase: _phase(arch, variant.phase) for variant in explored}
    defaults, _ = workload(arch)
    return {
        "name": arch.name,
        "aliases": _aliases(arch.name),
        "parameters": describe_parameters(*parameters(arch)),
        "phases": phases,
        "lengths": {
            "seq": defaults.seq,
            "decoder_seq": defaults.prompt,
            "context": defaults.decode_context,
            "image": defaults.image[0],
        },
        "min_lengths": {
            length: study.smallest_length(arch, length) for phase in phases.values() for length in phase["lengths"]
        },
        "tp_by_ep": tp_by_ep(arch),
        "limits": {"source": arch.max_source, "positions": arch.max_tokens},
        "image": arch.image,
        "encodes": arch.encoder is not None,
        "notes": [*map(str, arch.notes)],
        "checkpoint_formats": {role: getattr(defaults, role) for role in ("weights", "kv")},
        "kv_with_narrow_dtype": workload(arch, dtype="fp8")[0].kv,
        "activations_with_narrow_dtype": {
            device.id: workload(arch, device, dtype="fp8")[0].activations for device in devices
        },
        "situations": {" ".join(variant): cases for variant, cases in explored.items()},
    }


def _aliases(name: str) -> list[str]:
    """Other names of a packaged model, which links to the page may have: `gpt2` for `openai-community/gpt2`."""
    entry = hub.packaged(name)
    return [name.partition("/")[2], *entry.aliases] if entry and entry.id == name else []


OF_DEVICE = (
    "implementation", "expected_from", "fused", "fused_into", "kernel_bound_seconds", "expected_bound", "power_watts",
    "energy_joules",
)  # fmt: skip
"""Values of an operator's row that a page for all devices does not have: its kernel, and those of long load."""
STAGES = (marks.BLUE, marks.ORANGE, marks.YELLOW, marks.GRAY, "#7B3F00", "#1A237E")  # of convolutional networks


class _GroupColors(dict[str, str]):
    """A color for each group of operators of a model: the color of its kind, paler for each further group."""

    def __missing__(self, group: str) -> str:
        stages = sum(kind(other) not in CATEGORY_COLORS for other in self)
        color = CATEGORY_COLORS.get(kind(group), STAGES[stages % len(STAGES)])
        steps = sum(CATEGORY_COLORS.get(kind(other)) == color for other in self)
        parts = (int(color[place : place + 2], 16) for place in (1, 3, 5))
        self[group] = "#" + "".join(f"{255 - round((255 - part) * 0.6**steps):02X}" for part in parts)
        return self[group]


def _traced_phase(
    estimate: PhaseEstimate, update: Cases[Placed] | None, rows: UniqueRecords, colors: _GroupColors
) -> dict[str, Any]:  # fmt: skip
    """The document of a phase, with the indices of its rows, and its position on the roofline."""

    def row(placed: Placed, document: dict[str, Any]) -> dict[str, Any]:
        own = {key: value for key, value in document.items() if key not in OF_DEVICE}
        return own | _details(placed) | {"color": colors[placed.operator.group]}

    document = phase_document(estimate)
    operators: list[Any] = [row(placed, OPERATORS.record(placed)) for placed in estimate.placed]
    if update:
        operators[-1] = map_cases(update, lambda placed: row(placed, OPERATORS.record(placed)))
    return {
        **document,
        "ops": [rows.index(operator) for operator in operators],
        "whole": _place(estimate.cost, estimate.bound_seconds, estimate.expected),
    }


def _phase(arch: Architecture, phase: Any) -> dict[str, Any]:
    step = workload(arch, phase=phase)[0].step(phase)
    default = "all" if step.logit_positions == step.tokens else "last"
    return {
        "lengths": study.lengths(arch, phase),
        "min_bits": study.min_bits(phase),
        "engines": study.engines(arch, phase),
        "cached": phase in ("prefill", "decode"),
        "logits": default if study.chooses_logits(arch, phase) else None,
    }


def _details(placed: Placed) -> dict[str, Any]:
    """What the page shows of an operator in addition to the document's row: its label and the terms of its counts."""
    operator, place, expected = placed.operator, placed.placement, placed.expected
    return {
        **_place(place.cost, place.bound_seconds, expected),
        "label": label(operator),
        "compute_role": operator.compute_dtype(operator.widths.compute),
        "of": title(operator.group),
        "contractions": [
            [[axis, operator.sizes[axis]] for axis in line.axes] for line in operator.lines if line.contracted
        ],
        "meanings": {
            axis: meaning
            for axis in dict.fromkeys(
                axis for line in operator.lines for tensor in (*line.inputs, *line.outputs) for axis in tensor.axes
            )
            if (meaning := operator.meaning(axis)) != AXES[axis]
        },
        "tensors": [
            *(_tensor(operator, tensor, "read") for tensor in operator.reads),
            *(_tensor(operator, tensor, "written") for tensor in operator.writes),
        ],
        "matmul_seconds": place.matmul_seconds,
        "vector_seconds": place.vector_seconds,
        "memory_seconds": place.memory_seconds,
        "link_seconds": place.link_seconds,
        "exchange": _exchange(operator),
        "expected_low_seconds": expected and expected.low,
        "expected_high_seconds": expected and expected.high,
        "all_bound_seconds": placed.seconds,
        "all_expected_seconds": expected and operator.count * expected.value,
    }


def _exchange(operator: Operator) -> dict[str, Any] | None:
    """The collective of an operator: the bytes of its full tensor, and how many `times` the tensor crosses a link."""
    if operator.collective is None:
        return None
    collective = operator.collective
    return {
        "name": collective.name.replace("_", "-"),
        "gpus": collective.gpus,
        "times": collective.times,
        "bytes": operator.exchanged_bytes,
    }


def _place(cost: Cost, bound: Number, expected: Expected | None) -> dict[str, Any]:
    """The position on the roofline: FLOP per byte, and FLOP/s at the bound and expected."""
    return {
        "intensity": cost.intensity,
        "bound_flops_per_second": cost.flops / bound,
        "expected_flops_per_second": expected and cost.flops / expected.value,
    }


@trace_branches
def _role(tensor: Tensor, widths: Widths) -> str:
    """The role whose format the tensor has: `dtype`, `gemm`, `weights` or `kv`; or a format."""
    return widths.format(tensor).name


def _tensor(operator: Operator, tensor: Any, way: str) -> dict[str, Any]:
    """A tensor of an operator: its axes, its format, its bytes; `partly` where only some rows are read or written."""
    return {
        "name": tensor.name,
        "axes": [[axis, operator.sizes[axis]] for axis in tensor.axes],
        "role": _role(tensor, operator.widths),
        "way": way,
        "partly": tensor.name in operator.touched,
        "bytes": operator.bytes_of(tensor),
    }
