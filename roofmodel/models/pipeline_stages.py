"""The layers of an Architecture that one GPU has, where several GPUs follow one another: the stages of a pipeline.

Layers are dealt out in their order, as evenly as it goes, to `pp` stages, or to `vpp` times as many parts of which a
stage has every pp-th: the interleaved schedule of Narayanan et al. (arXiv 2104.04473, section 2.2). The first part has
the embedding, the last one the head. Where layers do not divide, parts ahead of the last have one more, as in
vLLM.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import accumulate, pairwise

from roofmodel.models.architecture import Architecture, Held
from roofmodel.models.attention import Attention
from roofmodel.models.convolutional import Network
from roofmodel.models.embeddings import Embedding


def parts(layers: int, pp: int, vpp: int) -> tuple[range, ...]:
    """The layers of each part, in the order of the model; part n is of stage n modulo pp."""
    many = pp * vpp
    each, more = divmod(layers, many)
    sizes = [each + (many - 1 - more <= n < many - 1) for n in range(many)]
    return tuple(range(start, end) for start, end in pairwise(accumulate(sizes, initial=0)))


def stage(arch: Architecture, which: int, pp: int, vpp: int) -> Architecture:
    """What the GPUs of one stage have of an architecture, all of its parts together."""
    return _with(arch, parts(len(arch.stack.layers), pp, vpp)[which::pp]) if pp > 1 else arch


def parts_of_stage(arch: Architecture, which: int, pp: int, vpp: int) -> tuple[Architecture, ...]:
    """The parts of a stage, each as if a GPU had it alone."""
    return tuple(_with(arch, (one,)) for one in parts(len(arch.stack.layers), pp, vpp)[which::pp])


def kinds_of_stages(arch: Architecture, pp: int, vpp: int) -> dict[int, int]:
    """Stages that differ from those before them, and how many there are of each."""
    seen: dict[object, int] = {}
    found: dict[int, int] = {}
    for which in range(pp):
        stack = stage(arch, which, pp, vpp).stack
        alike = seen.setdefault((stack.held, tuple((layer, len(where)) for layer, where in stack.kinds)), which)
        found[alike] = found.get(alike, 0) + 1
    return found


def _with(arch: Architecture, held: tuple[range, ...]) -> Architecture:
    """The architecture with the layers of these parts only."""
    stack, layers = arch.stack, {layer for part in held for layer in part}
    first, last = 0 in layers, len(stack.layers) - 1 in layers
    here = (tuple(layer for layer in indices if layer in layers) for _, indices in stack.kinds)
    stack = stack._replace(
        alike=tuple(filter(None, here)),
        final_norm=stack.final_norm if last else None,
        unread=stack.unread if first else 0,
        held=Held(first, last, len(held)),
    )
    return replace(arch, body=stack, head=arch.head if last else arch.head._replace(stages=()))


def in_the_way(arch: Architecture) -> Iterator[str]:
    """Why a model's layers cannot be dealt out to stages; nothing where they can."""
    if isinstance(arch.body, Network):
        yield "has no layers that could be dealt out"
        return
    if arch.encoder:
        yield "is an encoder-decoder, whose decoder reads what the encoder gives in every layer"
    if arch.stack.shared is not None:
        yield "has layers that share their parameters"
    table = arch.stack.embedding
    if isinstance(table, Embedding) and table.relative_rows:
        yield "has relative positions that all layers share"
    if isinstance(table, Embedding) and table.layer_inputs:
        yield "has an embedding that gives each layer an input of its own"
    if any(isinstance(part, Attention) and part.sharing for part in arch.stack.parts):
        yield "has layers that attend to the keys and values of earlier ones"
