"""Memory accesses that move more than they need, or wait for each other."""

from __future__ import annotations

from roofmodel.numbers import units
from roofmodel.roofline.causes.rule import Removed
from roofmodel.roofline.launches import Launch, Terms

SECTOR = 32  # bytes
GLOBAL, LOCAL = (
    {op: f"l1tex__t_sectors_pipe_lsu_mem_{where}_op_{op}.sum" for op in ("ld", "st")} for where in ("global", "local")
)
_PER_SECTOR = {op: f"smsp__sass_average_data_bytes_per_sector_mem_global_op_{op}.ratio" for op in ("ld", "st")}


def _bytes_per_sector(launch: Launch, op: str) -> float | None:
    """Bytes of a sector that threads ask for; without that counter it follows from the sectors of a request.

    More than 16 sectors are more than 16 bytes of each thread need, so that each thread reads one of its own (4 bytes
    are assumed); 4 sectors or fewer are full. Between them, the size of the accesses decides: unknown.
    """
    if (known := launch.get(_PER_SECTOR[op])) is not None:
        return known
    sectors, requests = launch.get(GLOBAL[op]), launch.get(GLOBAL[op].replace("sectors", "requests"))
    if not sectors or not requests:
        return None
    return 4.0 if sectors > 16 * requests else float(SECTOR) if sectors <= 4 * requests else None


def requested_bytes(launch: Launch) -> float | None:
    """Bytes that the threads load from and store to global memory; None if it was not collected."""
    parts = [(launch.get(GLOBAL[op]), _bytes_per_sector(launch, op)) for op in ("ld", "st")]
    if any(sectors is None or (sectors and each is None) for sectors, each in parts):
        return None
    return sum((sectors or 0.0) * (each or 0.0) for sectors, each in parts)


def _capped(launch: Launch, terms: Terms, share: float, size: float) -> dict[str, float]:
    """Busy times of the memory if L1 has this share of its work, and no other level moves more than `size` bytes."""
    moved = launch.bytes
    dram = launch.total("dram__bytes_read.sum", "dram__bytes_write.sum") or moved.get("dram")
    l2 = moved.get("l2") or launch.total("lts__t_sectors.sum") * SECTOR
    busy = {"l1": share, "l2": min(size / l2, 1) if l2 else share, "dram": min(size / dram, 1) if dram else 1.0}
    return {unit: terms.busy[unit] * part for unit, part in busy.items() if unit in terms.busy}


def local_memory(launch: Launch, terms: Terms) -> Removed | None:
    """Without local memory, L2 and DRAM move at most the bytes of global memory."""
    local, sectors = launch.total(*LOCAL.values()), launch.total(*GLOBAL.values())
    if not terms.busy or not local or local < 0.1 * (local + sectors):
        return None
    share = local / (local + sectors)
    text = f"{share:.0%} of the sectors are of local memory: spilled registers, or arrays indexed at run time"
    return Removed(terms.with_busy(**_capped(launch, terms, 1 - share, sectors * SECTOR)), text)


def uncoalesced(launch: Launch, terms: Terms) -> Removed | None:
    """With full sectors, no level moves more than the bytes that threads ask for."""
    size, sectors = requested_bytes(launch), launch.total(*GLOBAL.values())
    used = {op: each for op in GLOBAL if (each := _bytes_per_sector(launch, op)) and launch.get(GLOBAL[op]) != 0}
    few = {op: each for op, each in used.items() if each < 0.9 * SECTOR}
    names = {"ld": "loads", "st": "stores"}
    text = f"{' and '.join(f'{names[op]} use {units.significant(each)}' for op, each in few.items())}"
    text = f"{text} of the {SECTOR} bytes of a sector"
    if not size or not terms.busy:  # only the efficiency of the accesses is known
        return Removed(terms, text, known=False) if few and not sectors else None
    if size > 0.9 * sectors * SECTOR:
        return None
    share = size / (sectors * SECTOR)
    removed = terms.with_busy(**_capped(launch, terms, share, size))
    if not {"l1", "l2"} & terms.busy.keys():  # the caches may be what warps wait for
        removed = removed._replace(waiting=min(removed.waiting, terms.waiting * share))
    return Removed(removed, text)


SHARED = tuple(f"l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_{op}.sum" for op in ("ld", "st", "atom"))
SHARED_EFFICIENCY = "shared_efficiency"  # of nvprof: requested / required bytes of shared memory


def bank_conflicts(launch: Launch, terms: Terms) -> Removed | None:
    """Each conflict takes the L1 of one SM for one cycle."""
    efficiency = launch.get(SHARED_EFFICIENCY)
    if efficiency is not None and 0 < efficiency < 0.9:
        return Removed(terms, f"accesses to shared memory use {efficiency:.0%} of its banks", known=False)
    conflicts = launch.get("derived__memory_l1_wavefronts_shared_excessive")
    if conflicts is None:
        conflicts = launch.total(*SHARED) or launch.total("l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum")
    if not conflicts or not launch.cycles or not launch.multiprocessors or "l1" not in terms.busy:
        return None
    seconds = conflicts / launch.multiprocessors / launch.cycles * launch.seconds
    all_ = launch.get("memory_l1_wavefronts_shared", "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum")
    share = f"{min(conflicts / all_, 1):.0%} of the wavefronts of shared memory are" if all_ else units.si(conflicts)
    return Removed(terms.with_busy(l1=max(terms.busy["l1"] - seconds, 0.0)), f"{share} bank conflicts")


ATOMICS = "lts__d_atomic_input_cycles_active.{}.pct_of_peak_sustained_elapsed"


def atomics(launch: Launch, terms: Terms) -> Removed | None:
    """Atomics on few addresses keep one slice of L2 busy; without them, only the other units are."""
    busiest, mean = (launch.get(ATOMICS.format(which)) for which in ("max", "avg"))
    if busiest is None or mean is None or not terms.busy or busiest < 0.3 or busiest < 4 * mean:
        return None
    text = f"on few addresses: the busiest slice of L2 works on them {busiest:.0%} of the time, the mean one {mean:.0%}"
    return Removed(terms._replace(waiting=terms.waiting * min(max(terms.busy.values()) / launch.seconds, 1)), text)
