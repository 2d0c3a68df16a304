"""Parallel layout of a model over GPUs, and the checks that it is possible."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from roofmodel.counting.workload import FULL, ONE_GPU, Parallel, Workload
from roofmodel.engines.engine import Engine
from roofmodel.errors import Message, Option, Text, WorkloadError, ignored, joined
from roofmodel.models.architecture import (
    MAX_SUGGESTED_EXPERT_GPUS,
    MAX_SUGGESTED_GPUS,
    Architecture,
    Embedding,
    Network,
    has_experts,
    obstacles,
    pipeline_obstacles,
    pipeline_runs,
)
from roofmodel.models.layers import MLP, Attention, LatentAttention, MoE
from roofmodel.options.values import DataParallel, Overlap
from roofmodel.options.workload import Options

NO_REPLICAS = Message("no replicas (", Option("dp", 1), ") that could shard optimizer state")
"""Why `zero` is ignored."""
GPUS = tuple(ONE_GPU.ways)
"""The options of the parallel layout."""


def checked_layout(
    arch: Architecture,
    is_training: bool,
    options: Options,
    seq: int,
    micro_batch: int | None,
    gpus: Parallel,
    engine: Engine,
) -> tuple[Parallel, tuple[Text, ...]]:
    """The layout of a workload with sequences of `seq` tokens: checked, with what its replicas exchange and what the
    engine overlaps; and notes on options that do not apply. Raises WorkloadError for an impossible one."""
    schedule_notes: tuple[Text, ...] = ()
    if is_training:
        check_context(arch, options, seq)
        schedule_notes = tuple(_checked_schedule(options))
    layout, notes = parallel(arch, is_training, options.batch, micro_batch, gpus)
    return layout._replace(
        wrapper=data_parallel(is_training, options.data_parallel, engine, layout, options.overlap),
        overlaps=overlaps(is_training, options.data_parallel, engine, options.overlap, layout),
    ), (*schedule_notes, *notes)


def _checked_schedule(options: Options) -> Iterator[Text]:
    """A note on a schedule without a pipeline. Raises WorkloadError where it contradicts the model parts per stage."""
    if options.schedule is None:
        return
    if options.pp == 1:
        yield ignored("schedule", "there is one stage")
    elif options.schedule == "interleaved" and options.vpp == 1:
        raise WorkloadError(
            Option("schedule", options.schedule), " needs several model parts per stage; try ", Option("vpp", 2)
        )
    elif options.schedule == "1f1b" and options.vpp > 1:
        raise WorkloadError(
            Option("schedule", options.schedule), " has one model part per stage, but ", Option("vpp", options.vpp),
            " is given; try ", Option("vpp", 1), " or ", Option("schedule", "interleaved"),
        )  # fmt: skip


def parallel(
    arch: Architecture, is_training: bool, batch: int | None, micro_batch: int | None, layout: Parallel
) -> tuple[Parallel, tuple[Text, ...]]:
    """The parallel layout, with notes on options that do not apply. Without a batch, as of a service, any is possible.

    Raises WorkloadError, with values that work, if the model or the batch cannot be sharded evenly.
    """
    tp, dp, pp, ep, vpp, cp = layout.ways.values()
    notes: list[Text] = []
    copies = layout.weight_copies
    if layout.cp_kind != "ring" and cp == 1:
        notes.append(ignored("cp_kind", Message("no GPUs share a sequence (", Option("cp", 1), ")")))
        layout = layout._replace(cp_kind="ring")
    if vpp != 1 and not (is_training and layout.interleaves):
        notes.append(ignored("vpp", "only training interleaves model chunks" if pp > 1 else "there is one stage"))
        vpp = 1
    _check_stages(arch, pp, vpp)
    stage_layers = layout.stage_layers
    if stage_layers and pp == 1:
        notes.append(ignored("stage_layers", "there is one stage"))
        stage_layers = ()
    if stage_layers:
        _check_stage_layers(arch, pp, vpp, stage_layers)
    if ep != 1 and not has_experts(arch):
        notes.append(ignored("ep", f"{arch.name} has no experts"))
        ep = 1
    if not expert_groups_nest(tp, copies, ep):
        raise _ungrouped(arch, tp, copies, ep, batch)
    if uneven := list(dict.fromkeys(obstacles(arch, tp, ep))):
        if isinstance(arch.body, Network):
            raise WorkloadError(Option("tp", tp), f": {arch.name} has {uneven[0]} to shard; try ", Option("dp", tp))
        raise WorkloadError(
            *_size_options(tp=tp, ep=ep if ep > 1 else None),
            f": {arch.name} has {' and '.join(uneven)}, which cannot be sharded evenly; ",
            _alternatives(arch, tp, copies, ep, batch),
        )
    divisor = layout.batch_divisor(is_training, micro_batch)
    if batch is not None and (remainder := batch % divisor):
        sizes = {"dp": dp, "micro_batch": micro_batch or 1, "pp": pp * (vpp > 1), "vpp": vpp}
        interleaved = f": interleaved stages need a multiple of {pp} microbatches" if vpp > 1 else ""
        raise WorkloadError(
            *_size_options(**{name: n if n > 1 else None for name, n in sizes.items()}), ": ", Option("batch", batch),
            f" counts the sequences of all replicas together, and cannot be sharded evenly{interleaved}; try ",
            joined(" or ", [Option("batch", n) for n in (batch - remainder, batch - remainder + divisor) if n]),
        )  # fmt: skip
    sequence = layout.sequence
    if sequence and (tp == 1 or not is_training):
        why = Message("no tensor parallelism (", Option("tp", 1), ")") if tp == 1 else "only training shards sequences"
        notes.append(ignored("sequence_parallel", why))
        sequence = False
    if sequence and (obstacle := _sequence_obstacle(arch)):
        raise WorkloadError(
            Option("sequence_parallel", "on"), f": {arch.name} {obstacle}; try ", Option("sequence_parallel", "off")
        )
    zero = layout.zero
    if zero and copies == 1:
        notes.append(ignored("zero" if layout.hsdp is None else "hsdp", NO_REPLICAS))
        zero = 0
    checked = Parallel(
        tp, dp, pp, ep, vpp, cp, layout.cp_kind, experts_span_replicas=ep > tp, sequence=sequence, zero=zero,
        hsdp=layout.hsdp if zero == FULL else None, reshards=layout.reshards or zero != FULL, stage_layers=stage_layers,
    )  # fmt: skip
    if checked.hsdp is not None:
        _check_groups(checked)
    return checked, tuple(notes)


def with_sharding(options: Options) -> tuple[Options, list[Text]]:
    """The options with the stage of ZeRO that `--fsdp` and `--hsdp` mean, and a note on what has no effect.

    Raises WorkloadError for another stage beside them.
    """
    if (options.fsdp or options.hsdp is not None) and options.zero not in (0, FULL):
        given = Option("fsdp") if options.hsdp is None else Option("hsdp", options.hsdp)
        raise WorkloadError(given, " means ", Option("zero", FULL), ", but ", Option("zero", options.zero), " is given")
    if options.fsdp or options.hsdp is not None:
        options = options._replace(zero=FULL)
    options = options._replace(fsdp=False)
    if options.no_reshard and options.zero != FULL:
        why = Message("only ", Option("zero", FULL), " gathers weights")
        return options._replace(no_reshard=False), [ignored("no_reshard", why)]
    return options, []


def _check_groups(layout: Parallel) -> None:
    """Raises WorkloadError for groups of replicas that do not divide the replicas, or the experts' replicas."""
    dp, group, experts = layout.weight_copies, layout.hsdp, layout.replicas
    if dp % group == 0 and group % experts == 0:
        return
    sizes = tuple(n for n in range(experts, dp + 1, experts) if dp % n == 0 and n > 1)
    why = f" does not divide the {dp} replicas"
    if dp % group == 0:
        why = f" is no multiple of the {experts} replicas that share experts"
    raise WorkloadError(Option("hsdp", group), why, "; try ", Option("hsdp", sizes))


def _ungrouped(arch: Architecture, tp: int, dp: int, ep: int, batch: int | None) -> WorkloadError:
    """The error for expert-parallel groups that neither divide a tensor-parallel group nor consist of whole ones."""
    if uneven := [each for each in dict.fromkeys(obstacles(arch, 1, ep)) if each.endswith(" experts")]:
        return WorkloadError(
            Option("ep", ep), f" does not divide {' and '.join(uneven)}; ", _alternatives(arch, tp, dp, ep, batch)
        )
    if ep > tp * dp:
        sizes = Message(" (", *_size_options(tp=tp, dp=dp), f": {tp * dp})") if tp * dp > 1 else ""
        return WorkloadError(Option("ep", ep), f" needs {ep} GPUs", sizes, "; ", _alternatives(arch, tp, dp, ep, batch))
    return WorkloadError(
        Option("ep", ep), " must divide ", Option("tp", tp), ", or be a multiple of it that divides the ",
        f"{tp * dp} GPUs of all replicas; ", _alternatives(arch, tp, dp, ep, batch),
    )  # fmt: skip


def _size_options(**sizes: int | None) -> list[Text]:
    """The options that have a size, with a blank between them."""
    return [joined(" ", [Option(name, size) for name, size in sizes.items() if size is not None])]


def _sequence_obstacle(arch: Architecture, technique: str = "sequence parallelism") -> str | None:
    """Why the technique cannot shard the model's sequences; None if it can."""
    if isinstance(arch.body, Network) or not isinstance(arch.stack.embedding, Embedding):
        return "reads images"
    if arch.encoder:
        return "is an encoder-decoder"
    known = Attention | LatentAttention | MLP | MoE
    others = (part for part in arch.stack.parts if not isinstance(part, known))
    if any(others) or arch.stack.embedding.relative_rows or arch.stack.embedding.frame_convolutions:
        return f"has parts other than attention, MLPs and experts, for which {technique} is not known"
    if not arch.head.stages or arch.head.stages[0].out != "vocabulary":
        return "has a head that computes more than logits"
    return None


def data_parallel(
    is_training: bool, choice: DataParallel | None, engine: Engine, layout: Parallel, overlap: Overlap = "engine"
) -> DataParallel | Literal["sharded"] | None:
    """How replicas train: as asked, else as the engine does; None for one replica alone.

    DistributedDataParallel without overlap exchanges gradients after the backward pass.

    Raises WorkloadError for DataParallel with models or optimizer state that are sharded: it runs all replicas in one
    process.
    """
    if not is_training or (choice is None and layout.weight_copies == 1):
        return None
    if choice == "dataparallel" and layout.tp * layout.pp * layout.cp > 1:
        raise WorkloadError(
            Option("data_parallel", choice), " replicates a model that is on one GPU; try ",
            Message(Option("tp", 1), " ", Option("pp", 1)), " or ", Option("data_parallel", "ddp"),
        )  # fmt: skip
    if layout.zero > 1:
        if choice is not None:
            raise WorkloadError(
                Option("data_parallel", choice), ": replicas that shard gradients (", Option("zero", layout.zero),
                ") exchange them layer by layer; remove the option, or try ", Option("overlap", "none"),
            )  # fmt: skip
        return "sharded"
    if choice == "dataparallel" and layout.zero:
        raise WorkloadError(
            Option("data_parallel", choice), " updates all weights on the first GPU; try ", Option("zero", 0), " or ",
            Option("data_parallel", "ddp"),
        )  # fmt: skip
    wrapper = choice or (engine.training and engine.training.data_parallel)
    return "sequential" if (wrapper, overlap) == ("ddp", "none") and layout.weight_copies > 1 else wrapper


def overlaps(
    is_training: bool, choice: DataParallel | None, engine: Engine, overlap: Overlap, layout: Parallel
) -> frozenset[str]:
    """What overlaps with computation besides the exchange of DistributedDataParallel.

    `--data-parallel sequential` exchanges gradients and weights without overlap.
    """
    if not is_training or engine.training is None or overlap == "none":
        return frozenset()
    found = engine.training.overlaps - ({"shards"} if layout.zero < 2 else set())
    found -= {"context_parallel"} if layout.cp == 1 else set()
    return found if choice is None else found - {"gradients", "parameters"}


def check_context(arch: Architecture, options: Options, seq: int) -> None:
    """Raises WorkloadError where GPUs cannot share a sequence of `seq` tokens: attention of another kind than a ring
    of keys and values has, heads or tokens that they cannot divide."""
    cp, kind = options.cp, options.cp_kind
    if cp == 1:
        return
    option = Option("cp", cp)
    if why := _context_obstacle(arch):
        raise WorkloadError(option, f": {arch.name} {why}; try ", Option("cp", 1))
    if options.attention == "eager":
        raise WorkloadError(option, " needs a fused attention; try ", Option("attention", "flash"))
    if seq % (2 * cp):
        near = seq - seq % (2 * cp) or 2 * cp
        raise WorkloadError(
            option, f" divides a sequence into {2 * cp} equal parts, but ", Option("seq", seq),
            f" is no multiple of {2 * cp}; try ", Option("seq", near),
        )  # fmt: skip
    parts = [part for part in arch.stack.parts if isinstance(part, Attention | LatentAttention)]
    if kind == "ring" and any(part.window is not None for part in parts):
        raise WorkloadError(
            option, f": {arch.name} has sliding windows, which a ring of keys and values does not support; try ",
            Option("cp_kind", "all-gather"),
        )  # fmt: skip
    if kind == "ulysses":
        heads = {int(part.heads if isinstance(part, LatentAttention) else part.kv_heads) for part in parts}
        if any(number % (options.tp * cp) for number in heads):
            raise WorkloadError(
                Option("cp_kind", kind), f" divides heads, and {arch.name} has "
                f"{' and '.join(map(str, sorted(heads)))} key-value heads, which {options.tp * cp} GPUs "
                "(tp × cp) do not divide; try ", Option("cp_kind", "ring"),
            )  # fmt: skip


def _context_obstacle(arch: Architecture) -> str | None:
    """Why GPUs cannot share a sequence of the model; None if they can."""
    if why := _sequence_obstacle(arch, "context parallelism"):
        return why
    if not arch.causal:
        return "has no causal mask, for which context parallelism is not modeled"
    for part in arch.stack.parts:
        if isinstance(part, LatentAttention) and part.index_topk is not None:
            return "selects tokens by an indexer, for which context parallelism is not modeled"
        if isinstance(part, Attention) and (
            part.selection or part.disentangled or part.relative_keys or part.relative_rows or part.relative_bias
            or part.alibi or part.differential or part.kv_sharing or part.chunked
        ):  # fmt: skip
            return "has a kind of attention for which context parallelism is not modeled"
    return None


def _check_stages(arch: Architecture, pp: int, vpp: int) -> None:
    """Raises WorkloadError if the layers cannot be partitioned into `pp` stages of `vpp` chunks."""
    if pp == 1:
        return
    for why in pipeline_obstacles(arch):
        raise WorkloadError(Option("pp", pp), f": {arch.name} {why}; try ", Option("pp", 1))
    if (layers := len(arch.stack.layers)) < pp * vpp:
        chunks = vpp if vpp > 1 else None
        fewer = Message("at most ", *_size_options(pp=layers // vpp, vpp=chunks), " works")
        raise WorkloadError(
            *_size_options(pp=pp, vpp=chunks), f": {arch.name} has {layers} layers, "
            f"fewer than {pp * vpp} {'chunks' if vpp > 1 else 'stages'}; ",
            fewer if layers >= vpp else Message("try ", Option("vpp", 1)),
        )  # fmt: skip


def _check_stage_layers(arch: Architecture, pp: int, vpp: int, sizes: Sequence[int]) -> None:
    """Raises WorkloadError for layers of stages that are not those of the model."""
    layers, chunks = len(arch.stack.layers), pp * vpp
    if len(sizes) == chunks and min(sizes) > 0 and sum(sizes) == layers:
        return
    equal = ",".join(str(len(run)) for run in pipeline_runs(layers, pp, vpp))
    kind = "chunks" if vpp > 1 else "stages"
    if len(sizes) != chunks:
        why = f" has layers of {len(sizes)} {kind}, not of {chunks}"
    else:
        why = f" has a {kind[:-1]} without layers" if min(sizes) == 0 else f" states {sum(sizes)} layers"
    raise WorkloadError(
        Option("stage_layers"), why, f"; {arch.name} has {layers}; try ", Option("stage_layers", equal)
    )  # fmt: skip


def refuse_stages(work: Workload, why: str) -> None:
    """Raises WorkloadError for several pipeline stages or microbatches."""
    if work.parallel.pp > 1:
        raise WorkloadError(Option("pp", work.parallel.pp), f": {why}; try ", Option("pp", 1))
    if work.micro_batch is not None:
        raise WorkloadError(Option("micro_batch", work.micro_batch), f": {why}; remove the option")


def expert_groups_nest(tp: int, dp: int, ep: int) -> bool:
    """Whether the expert-parallel group divides a tensor-parallel group, or consists of whole ones."""
    return tp % ep == 0 or (ep % tp == 0 and (tp * dp) % ep == 0)


def possible_tp(arch: Architecture, dp: int = 1, ep: int = 1) -> Iterator[int]:
    """The values of `tp` that a model allows with `dp` and `ep`."""
    return (
        tp
        for tp in range(1, MAX_SUGGESTED_GPUS + 1)
        if expert_groups_nest(tp, dp, ep) and not any(obstacles(arch, tp, ep))
    )


def tp_by_ep(arch: Architecture) -> dict[int, list[int]]:
    """The values of `tp` that shard the model evenly, by value of `ep`; `dp` then decides which are nested."""
    sizes = range(1, MAX_SUGGESTED_GPUS + 1)
    tp_of_ep = {
        ep: [tp for tp in sizes if not any(obstacles(arch, tp, ep))] for ep in (sizes if has_experts(arch) else (1,))
    }
    return {ep: tps for ep, tps in tp_of_ep.items() if tps}


def _alternatives(arch: Architecture, tp: int, dp: int, ep: int, batch: int | None) -> Message:
    """Values of one option that work with the others as they are; else the values that always work."""
    largest_ep = min(tp * dp, MAX_SUGGESTED_EXPERT_GPUS)
    over_replicas = [ep // tp] * (ep % tp == 0 and not any(obstacles(arch, tp, ep)))
    experts = [n for n in range(1, largest_ep + 1) if expert_groups_nest(tp, dp, n) and not any(obstacles(arch, tp, n))]
    alternatives = {"ep": experts, "tp": [*possible_tp(arch, dp, ep)]}
    texts = [Message(Option(name, tuple(sizes))) for name, sizes in alternatives.items() if sizes]
    texts += [
        Message(Option("dp", n), f" with a batch divisible by {n}" if batch is not None and batch % n else "")
        for n in over_replicas
    ]
    return Message("try ", joined(" or ", texts or [Message(Option("tp", 1), " ", Option("ep", 1))]))
