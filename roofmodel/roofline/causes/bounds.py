"""What is left without the other reasons: the ceiling of the busiest unit, latencies, and the clock."""

from __future__ import annotations

from collections.abc import Callable

from roofmodel.numbers import units
from roofmodel.roofline.categories import category
from roofmodel.roofline.causes.memory import SHARED, requested_bytes
from roofmodel.roofline.causes.rule import AT_CEILING, BUSY, MATMULS, STALLS, Removed, stalls
from roofmodel.roofline.causes.work import ACTIVE_THREADS, FEW_FLOPS
from roofmodel.roofline.launches import DRAM_REACHED, Launch, Terms

NOTHING = "nothing here to win: "
BUSY_SMS = "SMs busy "  # with unknown work
CLOCK_TOLERANCE = 0.05
_UNITS = {"dram": "DRAM", "l2": "L2", "l1": "L1", "sm": "the SMs' pipes"}
_LOADS = "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"
MAX_PIPES = 3  # that a text names


def _named(launch: Launch, unit: str) -> str:
    return "L1 (LSU)" if unit == "l1" and launch.is_lsu_bound else _UNITS[unit]


def _flops_share(launch: Launch) -> float:
    """FLOPs of the busiest pipe / its peak."""
    return max(launch.pipe_seconds.values(), default=0.0) / launch.seconds


def _pipes(launch: Launch, share: float) -> str:
    """The pipes that are busy, by name, the busiest first; `the SMs' pipes` where the file does not break them down.

    The utilization of the SMs (`share`) may be that of a part which no counter names.
    """
    ranked = sorted(launch.pipes.items(), key=lambda item: -item[1])
    if not ranked or ranked[0][1] < AT_CEILING * share:
        return f"{_UNITS['sm']} at {share:.0%} of the peak"
    least = ranked[0][1] / 2
    (first, most), *others = [(name, used) for name, used in ranked[:MAX_PIPES] if used >= least]
    return f"{first} at {most:.0%} of the peak{''.join(f', {name} at {used:.0%}' for name, used in others)}"


def _shows_waste(launch: Launch, unit: str) -> bool:
    """Whether the counters would show work of a unit that could be avoided; work that is counted from shapes cannot.

    They do not show instructions and loads that larger tiles would save: pipes that are busy with few FLOPs, and a
    matrix product at the limit of a cache.
    """
    if not launch.kernel.counters:
        return True
    if unit == "sm":
        tensor = max((s for pipe, s in launch.pipe_seconds.items() if pipe.startswith("tensor_")), default=0.0)
        known = launch.get(ACTIVE_THREADS) is not None and launch.kernel.flops.fp32 is not None
        return (known and _flops_share(launch) >= FEW_FLOPS) or tensor >= AT_CEILING * launch.seconds
    if unit != "dram" and category(launch.kernel.name) in MATMULS and _flops_share(launch) < FEW_FLOPS:
        return False
    return requested_bytes(launch) is not None and (unit != "l1" or launch.get(SHARED[0]) is not None)


def bound(unit: str) -> Callable[[Launch, Terms], Removed | None]:
    """A rule: the launch is at the ceiling of this unit."""

    def remove(launch: Launch, terms: Terms) -> Removed | None:
        """At the ceiling of the busiest unit: its busy time."""
        if terms.busiest != unit or terms.busy[unit] < BUSY * launch.seconds:
            return None
        others = {_named(launch, name): seconds for name, seconds in terms.busy.items() if name != unit}
        nearest = max(others, key=lambda name: others[name], default="")
        then = f"; then {nearest}, {others[nearest] / launch.seconds:.0%}" if nearest else ""
        share = terms.busy[unit] / launch.seconds * (DRAM_REACHED if unit == "dram" else 1)
        at_ceiling = terms.busy[unit] >= AT_CEILING * launch.seconds
        counted = any(flops is not None for flops in launch.kernel.flops)
        if unit == "sm" and at_ceiling and launch.has_utilization and not counted:
            pipes = f" ({_pipes(launch, share)})" if launch.pipes else ""
            text = f"{BUSY_SMS}{share:.0%}{pipes}; collect FLOPs to see whether the work is useful"
            return Removed(terms._replace(waiting=0.0), text, known=False)
        nothing = NOTHING * (at_ceiling and _shows_waste(launch, unit))
        known = unit == "sm" and launch.device is not None and launch.kernel.flops.fp32 is not None
        few = f", FLOPs at {_flops_share(launch):.0%}" if known and _flops_share(launch) < FEW_FLOPS else ""
        without = f"{', '.join(terms.without)}: " if terms.without else ""
        at = f"{_named(launch, unit)} at {share:.0%} of the peak" if unit != "sm" else _pipes(launch, share)
        return Removed(terms._replace(waiting=0.0), f"{nothing}{without}{at}{few}{then}")

    return remove


def latency(launch: Launch, terms: Terms) -> Removed | None:
    """Without waiting: the busy time of the busiest unit."""
    if not terms.busy or max(terms.busy.values()) >= BUSY * launch.seconds:  # that unit is the limit
        return None
    if launch.get("lts__throughput.avg.pct_of_peak_sustained_elapsed") is None:
        return _neither(launch, terms)
    waits = stalls(launch)
    unit = terms.busiest or ""
    share = f"{terms.busy[unit] / launch.seconds:.0%} of the time ({_named(launch, unit)})"
    text = f"no unit is busy more than {share}"
    if terms.without:
        text = f"{', '.join(terms.without)}, no unit would be busy more than {share}"
    if waits and sum(waits.values()):
        named = {name: value for name, value in waits.items() if name != "misc"} or waits
        first = max(named, key=lambda name: named[name])
        text += f"; warps wait for {STALLS[first]} ({waits[first] / sum(waits.values()):.0%} of their stalls)"
        loads, instructions = launch.get(_LOADS), launch.get("smsp__inst_executed.sum")
        if first == "long_scoreboard" and loads and instructions:
            text += f", {waits[first] * instructions / loads:.0f} cycles for each load: independent loads overlap"
    return Removed(terms._replace(waiting=0.0), text)


def _neither(launch: Launch, terms: Terms) -> Removed | None:
    """Bytes, FLOPs and time without the utilization of the caches exclude DRAM and the pipes."""
    if "dram" not in terms.busy or "sm" not in terms.busy:
        return None
    pipe = max(launch.pipe_seconds, key=lambda name: launch.pipe_seconds[name], default="the SMs")
    shares = {"DRAM": terms.busy["dram"] * DRAM_REACHED, pipe: terms.busy["sm"]}
    text = " and ".join(f"{name} at {seconds / launch.seconds:.1%}" for name, seconds in shares.items())
    return Removed(terms, f"{text} of the peak do not limit it: warps wait for latencies or a cache", known=False)


def low_clock(launch: Launch, terms: Terms) -> Removed | None:
    """No saving: Nsight Compute locks the clock by default, which is not so in production."""
    clock, device = launch.kernel.clock, launch.device
    if not clock or device is None:
        return None
    pipe = max(launch.pipe_seconds, key=lambda name: launch.pipe_seconds[name], default="")
    boost = (device.pipes[pipe].clock if pipe else None) or device.clocks.get("boost")
    if not boost or clock > boost * (1 - CLOCK_TOLERANCE):
        return None
    text = f"SM clock {units.si(clock, 'Hz')} of {units.si(boost, 'Hz')}: locked (ncu: --clock-control none), or power"
    return Removed(terms, text, known=False)
