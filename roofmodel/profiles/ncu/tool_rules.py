"""The rules of Nsight Compute: what the tool itself says of a launch, and what its texts state that no metric has.

A rule has a type (OPT: an advice; INF, WRN), a description, and mostly an estimated speed-up: the share of the time
that following it saves at most, of the whole launch (`global`) or of one unit (`local`). The texts are those of the
rules that Nsight Compute ships; those that advise on other things, such as L2 compression, are not read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from roofmodel.profiles.kernel import STALLED_WARPS, ToolRule

_NUMBER = r"([\d.]+)"


class _Pattern(NamedTuple):
    reason: str  # the name of the reason that a rule states
    text: re.Pattern[str]
    evidence: str  # with the groups of the text


def _pattern(reason: str, text: str, evidence: str) -> _Pattern:
    return _Pattern(reason, re.compile(text, re.I), evidence)


_PATTERNS = (
    _pattern("uncoalesced", r"uncoalesced global access.*?\((\d+)% of the total", "{0}% excessive sectors"),
    _pattern(
        "bank_conflicts", r"uncoalesced shared access.*?\((\d+)% of the total",
        "{0}% excessive wavefronts of shared memory",
    ),
    _pattern(
        "bank_conflicts", rf"bank conflicts?, which represent {_NUMBER}% of",
        "{0}% of the wavefronts of shared memory are bank conflicts",
    ),
    _pattern(
        "local_memory", rf"access pattern for local .*?only {_NUMBER} of the (\d+) bytes transmitted per sector",
        "{0} of the {1} bytes of a sector of local memory are used",
    ),
    _pattern(
        "uncoalesced", rf"only {_NUMBER} of the (\d+) bytes transmitted per sector",
        "{0} of the {1} bytes of a sector are used",
    ),
    _pattern(
        "latency", rf"being stalled (?:waiting (?:for|on|to)|on|at|due to)? ?(.+?)\. .*?"
        rf"This stall type represents about {_NUMBER}% of", "{1}% of the stalls: {0}",
    ),
    _pattern("divergence", rf"average of {_NUMBER} threads being active", "{0} of 32 threads of a warp are active"),
    _pattern(
        "few_blocks", r"configured to execute only (\d+) blocks?, which is less than the GPU's (\d+)",
        "a grid of {0} for {1} SMs",
    ),
    _pattern(
        "partial_warps", r"configured to execute (\d+) threads per block\. Consequently, some threads in a warp",
        "{0} threads per block are no multiple of 32",
    ),
    _pattern("tail", rf"a partial wave of (\d+) thread blocks.*?up to {_NUMBER}% of", "a partial wave of {0} blocks"),
    _pattern(
        "registers", rf"theoretical occupancy \({_NUMBER}%\) is limited by .*registers",
        "{0}% theoretical occupancy, limited by registers",
    ),
    _pattern(
        "shared_memory", rf"theoretical occupancy \({_NUMBER}%\) is limited by .*amount of shared memory",
        "{0}% theoretical occupancy, limited by shared memory",
    ),
    _pattern(
        "block_size", rf"theoretical occupancy \({_NUMBER}%\) is limited by the number of (?:blocks|warps)",
        "{0}% theoretical occupancy, limited by the size of the blocks",
    ),
    _pattern(
        "achieved_occupancy", rf"theoretical \({_NUMBER}%\) and measured achieved occupancy \({_NUMBER}%\)",
        "achieved occupancy {1}% of {0}%",
    ),
    _pattern(
        "achieved_occupancy", r"One or more (.+?) have a much (higher|lower) number of active cycles",
        "some {0} have a much {1} number of active cycles",
    ),
    _pattern("double_precision", r"(consider using 32-bit precision)", "{0}"),
    _pattern(
        "compute_bound", rf"(\w[\w ()]*?) is the highest-utilized pipeline \({_NUMBER}%\)",
        "{0} is the highest-utilized pipeline, {1}%",
    ),
)  # fmt: skip
_STALLED = re.compile(
    rf"spends {_NUMBER} cycles being stalled (.+?)\. .*?represents about {_NUMBER}% of the total average of "
    rf"{_NUMBER} cycles"
)
_PIPELINE = re.compile(rf"(?:^|[. ])(\w+)(?: \([^)]*\))? is the highest-utilized pipeline \({_NUMBER}%\)(.{{0,30}})")
_WAITS = {
    "l1tex": "long_scoreboard", "mio (memory input/output) operation": "short_scoreboard", "barrier": "barrier",
    "fixed latency": "wait", "local/global": "lg_throttle", "mio (memory input/output) instruction": "mio_throttle",
    "execution pipe": "math_pipe_throttle", "memory instructions to complete": "drain", "membar": "membar",
    "branch": "branch_resolving", "instruction cache": "no_instruction", "constant": "imc_miss",
    "texture": "tex_throttle", "outstanding memory": "drain", "warpgroup": "gmma", "micro scheduler": "not_selected",
}  # fmt: skip
"""Words of the text of a stall -> its name in metrics; the first that occurs."""


def tool_rule(kind: str, description: str, speedup: float | None, scope: str) -> ToolRule | None:
    """What a rule of this type (`OPT` …) states; None if it states no reason that is known.

    `speedup` is a share of the time (None: not estimated), `scope` is `global` or `local`.
    """
    text = " ".join(description.split())
    for reason, pattern, evidence in _PATTERNS:
        if match := pattern.search(text):
            saves = speedup if scope == "global" and kind == "OPT" else None
            return ToolRule(reason, evidence.format(*match.groups()), saves)
    return None


def stated_metrics(description: str) -> Iterator[tuple[str, float]]:
    """Metrics in base units that only the text of a rule states: the largest stall, and the busiest pipe."""
    text = " ".join(description.split())
    if match := _STALLED.search(text):
        what = match[2].lower()
        name = next((name for words, name in _WAITS.items() if words in what), None)
        if name:
            cycles, total = float(match[1]), float(match[4])
            yield STALLED_WARPS.format(name), cycles
            yield STALLED_WARPS.format("misc"), max(total - cycles, 0.0)
    if match := _PIPELINE.search(text):
        period = "elapsed" if "elapsed" in match[3] else "active"
        yield f"sm__pipe_{match[1].lower()}_cycles_active.avg.pct_of_peak_sustained_{period}", float(match[2]) / 100


def speedup_share(text: str) -> float | None:
    """`65.84` or `65.84%`, percent of the time that following a rule saves, as a share; None for anything else."""
    match = re.fullmatch(rf"{_NUMBER}\s*%?", text.strip())
    try:
        return min(float(match[1]) / 100, 1.0) if match else None
    except ValueError:
        return None
