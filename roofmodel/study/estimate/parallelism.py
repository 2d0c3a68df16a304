"""Whether a model can be shared among GPUs as asked, and how."""

from __future__ import annotations

from collections.abc import Iterator

from roofmodel.counting.workload import ONE_GPU, Parallel, Workload
from roofmodel.errors import WorkloadError
from roofmodel.models.architecture import Architecture
from roofmodel.models.attention import Attention
from roofmodel.models.convolutional import Network
from roofmodel.models.embeddings import Embedding
from roofmodel.models.layers import MLP, MoE
from roofmodel.models.pipeline_stages import pipeline_obstacles
from roofmodel.models.sharding import MAX_SUGGESTED_GPUS, obstacles

GPUS = tuple(ONE_GPU.ways)
"""The options that say how GPUs share the work."""


def parallel(
    arch: Architecture, trains: bool, batch: int, micro_batch: int | None, asked: Parallel
) -> tuple[Parallel, tuple[str, ...]]:
    """What the options ask for, with notes on what does not apply.

    Raises WorkloadError, with what would work, where something cannot be dealt out evenly.
    """
    tp, dp, pp, ep, vpp = asked.ways.values()
    notes = []
    if vpp != 1 and not interleaves(trains, asked):
        why = "only training interleaves parts of a stage" if pp > 1 else "--pp says that there is one stage"
        notes.append(f"--vpp is ignored: {why}")
        vpp = 1
    _staged(arch, pp, vpp)
    if ep != 1 and not has_experts(arch):
        notes.append(f"--ep is ignored: {arch.name} has no experts")
        ep = 1
    if not nested(tp, dp, ep):
        raise WorkloadError(
            f"--ep {ep}: experts are dealt out among GPUs that share a layer (--tp {tp}) or among whole replicas of "
            f"those (--dp {dp}), so that one must divide the other; {_instead(arch, tp, dp, ep)}"
        )
    if found := list(dict.fromkeys(obstacles(arch, tp, ep))):
        if isinstance(arch.body, Network):
            raise WorkloadError(f"--tp {tp}: {arch.name} has {found[0]} to share; try --dp {tp}")
        what = f"--tp {tp}" + (f" --ep {ep}" if ep > 1 else "")
        raise WorkloadError(
            f"{what}: {arch.name} has {' and '.join(found)}, which cannot be dealt out evenly; "
            + _instead(arch, tp, dp, ep)
        )
    if left := batch % (many := multiple(trains, asked, micro_batch)):
        could = " or ".join(f"--batch {n}" for n in (batch - left, batch - left + many) if n)
        parts = {"dp": dp, "micro-batch": micro_batch or 1, "pp": pp * (vpp > 1), "vpp": vpp}
        what = " ".join(f"--{name} {n}" for name, n in parts.items() if n > 1)
        turns = f": parts of a stage take turns after {pp} microbatches each" if vpp > 1 else ""
        raise WorkloadError(
            f"{what}: --batch {batch} counts the sequences of all replicas, and cannot be dealt out evenly{turns}; "
            f"try {could}"
        )
    sequence = asked.sequence
    if sequence and (tp == 1 or not trains):
        why = "no GPUs share a layer (--tp 1)" if tp == 1 else "only training deals out sequences"
        notes.append(f"--sequence-parallel is ignored: {why}")
        sequence = False
    if sequence and (obstacle := _in_the_way_of_sequences(arch)):
        raise WorkloadError(f"--sequence-parallel on: {arch.name} {obstacle}; try --sequence-parallel off")
    return Parallel(tp, dp, pp, ep, vpp, across=ep > tp, sequence=sequence), tuple(notes)


def _in_the_way_of_sequences(arch: Architecture) -> str | None:
    """Why its sequences are not dealt out; None where they can be."""
    if isinstance(arch.body, Network) or not isinstance(arch.stack.embedding, Embedding):
        return "reads images"
    if arch.encoder:
        return "is an encoder-decoder"
    others = (part for part in arch.stack.parts if not isinstance(part, Attention | MLP))
    if any(others) or arch.stack.embedding.relative_rows or arch.stack.embedding.frame_convolutions:
        return "has parts other than attention and MLPs, which are not known to be run so"
    if not arch.head.stages or arch.head.stages[0].out != "vocabulary":
        return "has a head that does more than give logits"
    return None


def interleaves(trains: bool, asked: Parallel) -> bool:
    """Whether parts of a stage take turns: several stages train, in several parts each."""
    return trains and asked.pp > 1 and asked.vpp > 1


def multiple(trains: bool, asked: Parallel, micro_batch: int | None) -> int:
    """What a batch must be a multiple of: all replicas compute whole microbatches, and where parts of a stage take
    turns there is one for each stage at every turn (Narayanan et al., arXiv 2104.04473, section 2.2)."""
    return int(asked.dp * (micro_batch or 1) * (asked.pp if interleaves(trains, asked) else 1))


def _staged(arch: Architecture, pp: int, vpp: int) -> None:
    """Raises WorkloadError where layers cannot be dealt out to so many stages."""
    if pp == 1:
        return
    for why in pipeline_obstacles(arch):
        raise WorkloadError(f"--pp {pp}: {arch.name} {why}; try --pp 1")
    if (layers := len(arch.stack.layers)) < pp * vpp:
        parts = f" --vpp {vpp}" if vpp > 1 else ""
        most = f"at most --pp {layers // vpp}{parts} would work"
        raise WorkloadError(
            f"--pp {pp}{parts}: {arch.name} has {layers} layers, which cannot be dealt out to {pp * vpp} parts; "
            + (most if layers >= vpp else "try --vpp 1")
        )


def refuse_stages(work: Workload, why: str) -> None:
    """Raises WorkloadError where layers are dealt out to stages, or a batch runs in parts."""
    if work.parallel.pp > 1:
        raise WorkloadError(f"--pp {work.parallel.pp}: {why}; try --pp 1")
    if work.micro_batch is not None:
        raise WorkloadError(f"--micro-batch {work.micro_batch}: {why}; try without it")


def has_experts(arch: Architecture) -> bool:
    """Whether a router chooses among experts anywhere."""
    return not isinstance(arch.body, Network) and any(isinstance(part, MoE) for part in arch.stack.parts)


def nested(tp: int, dp: int, ep: int) -> bool:
    """Whether the GPUs that experts are dealt out among are a part of those that share a layer, or whole replicas."""
    return tp % ep == 0 or (ep % tp == 0 and (tp * dp) % ep == 0)


def possible(arch: Architecture, dp: int = 1, ep: int = 1) -> Iterator[int]:
    """The values of --tp that a model allows, beside others of --dp and --ep."""
    return (tp for tp in range(1, MAX_SUGGESTED_GPUS + 1) if nested(tp, dp, ep) and not any(obstacles(arch, tp, ep)))


def dealt(arch: Architecture) -> dict[int, list[int]]:
    """By values of --ep, those of --tp beside which everything can be dealt out evenly; --dp decides which nest."""
    counts = range(1, MAX_SUGGESTED_GPUS + 1)
    found = {
        ep: [tp for tp in counts if not any(obstacles(arch, tp, ep))] for ep in (counts if has_experts(arch) else (1,))
    }
    return {ep: tps for ep, tps in found.items() if tps}


def _instead(arch: Architecture, tp: int, dp: int, ep: int) -> str:
    """The numbers of GPUs that would work in place of one of those asked for; else those that always do."""
    could = {
        "--ep": [n for n in range(1, tp * dp + 1) if nested(tp, dp, n) and not any(obstacles(arch, tp, n))],
        "--tp": possible(arch, dp, ep),
        "with a batch to deal out --dp": [ep // tp] * (ep % tp == 0 and not any(obstacles(arch, tp, ep))),
    }
    texts = {way: ", ".join(map(str, numbers)) for way, numbers in could.items()}
    found = [f"{way} {text}" for way, text in texts.items() if text]
    return f"{' or '.join(found)} would work" if found else "try --tp 1 --ep 1"
