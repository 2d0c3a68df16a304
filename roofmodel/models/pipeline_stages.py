"""Pipeline parallelism: the layers of an Architecture that each stage of a pipeline has.

Consecutive layers go to `pp` stages as evenly as possible, or to `pp * vpp` runs of which a stage has every pp-th: the
interleaved schedule of Narayanan et al. (arXiv 2104.04473, section 2.2). The first run has the embedding, the last one
the head. If the number of layers is not divisible, runs before the last have one layer more, as in vLLM.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import accumulate, pairwise

from roofmodel.models.architecture import Architecture, Network, StageSlice
from roofmodel.models.attention import Attention
from roofmodel.models.embeddings import Embedding


def parts(layers: int, pp: int, vpp: int) -> tuple[range, ...]:
    """The layers of each run, in the order of the model; run n belongs to stage n modulo pp."""
    runs = pp * vpp
    each, remainder = divmod(layers, runs)
    sizes = [each + (runs - 1 - remainder <= n < runs - 1) for n in range(runs)]
    return tuple(range(start, end) for start, end in pairwise(accumulate(sizes, initial=0)))


def stage(arch: Architecture, which: int, pp: int, vpp: int) -> Architecture:
    """The layers of one stage, all of its runs together."""
    return _with(arch, parts(len(arch.stack.layers), pp, vpp)[which::pp]) if pp > 1 else arch


def parts_of_stage(arch: Architecture, which: int, pp: int, vpp: int) -> tuple[Architecture, ...]:
    """The runs of one stage, each as an architecture of its own."""
    return tuple(_with(arch, (run,)) for run in parts(len(arch.stack.layers), pp, vpp)[which::pp])


def kinds_of_stages(arch: Architecture, pp: int, vpp: int) -> dict[int, int]:
    """The distinct stages, each by the index of its first occurrence, with the number of its occurrences."""
    first_index: dict[object, int] = {}
    counts: dict[int, int] = {}
    for which in range(pp):
        stack = stage(arch, which, pp, vpp).stack
        layers = tuple((layer, len(indices)) for layer, indices in stack.kinds)
        index = first_index.setdefault((stack.stage_slice, layers), which)
        counts[index] = counts.get(index, 0) + 1
    return counts


def _with(arch: Architecture, runs: tuple[range, ...]) -> Architecture:
    """The architecture with the layers of these runs only."""
    stack, layers = arch.stack, {layer for run in runs for layer in run}
    first, last = 0 in layers, len(stack.layers) - 1 in layers
    groups = (tuple(layer for layer in indices if layer in layers) for _, indices in stack.kinds)
    stack = stack._replace(
        layer_groups=tuple(filter(None, groups)),
        final_norm=stack.final_norm if last else None,
        unused_parameters=stack.unused_parameters if first else 0,
        stage_slice=StageSlice(first, last, len(runs)),
    )
    return replace(arch, body=stack, head=arch.head if last else arch.head._replace(stages=()))


def pipeline_obstacles(arch: Architecture) -> Iterator[str]:
    """Reasons why a model cannot run in a pipeline; nothing if it can."""
    if isinstance(arch.body, Network):
        yield "has no transformer layers"
        return
    if arch.encoder:
        yield "is an encoder-decoder: every decoder layer reads the encoder's output"
    if arch.stack.shared is not None:
        yield "has layers that share their parameters"
    table = arch.stack.embedding
    if isinstance(table, Embedding) and table.relative_rows:
        yield "has relative positions that all layers share"
    if isinstance(table, Embedding) and table.per_layer:
        yield "has an embedding with an input for every layer"
    if any(isinstance(part, Attention) and part.kv_sharing for part in arch.stack.parts):
        yield "has layers that reuse the keys and values of earlier ones"
