"""The rules of Nsight Compute in its text, its CSV and its reports."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from roofmodel import read_profile
from roofmodel.devices.device import Device
from roofmodel.profiles.kernel import ToolRule
from roofmodel.profiles.ncu import tool_rules
from roofmodel.roofline.judged_kernels import not_judged
from roofmodel.roofline.reasons import reasons
from tests.profiles.ncu.samples import PRINT, printed, read

H100 = Device.load("h100")
MEASURED = Path(__file__).parents[2] / "data/gpu/h100"
UNCOALESCED = (
    "This kernel has uncoalesced global accesses resulting in a total of 58720256 excessive sectors (78% of the total "
    "75497472 sectors). Check the L2 Theoretical Sectors Global Excessive table for the primary source locations."
)
STALL = (
    "On average, each warp of this workload spends 113.3 cycles being stalled waiting for a scoreboard dependency on a "
    "L1TEX (local, global, surface, texture) operation. This stall type represents about 93.6% of the total average of "
    "121.0 cycles between issuing two instructions."
)
ON_LONG_SCOREBOARD = "smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio"


def wrapped(text: str) -> list[str]:
    return [f"      {line}" for line in textwrap.wrap(text, 110)]


def test_rules_of_the_text_are_read_also_the_last_one():
    text = PRINT + printed(
        "gemm", "gpu__time_duration.sum us 100", "",
        "OPT   Est. Speedup: 63%", *wrapped(STALL), "-" * 5 + " " + "-" * 80,
        "OPT   Est. Local Speedup: 12%", *wrapped(UNCOALESCED),
    )  # fmt: skip
    (kernel,) = read(text).kernels
    stall, uncoalesced = kernel.rules
    assert (stall.reason, stall.saves) == ("latency", 0.63)
    assert uncoalesced == ToolRule("uncoalesced", "78% excessive sectors", None)  # the estimate is of one unit
    assert kernel.counters[ON_LONG_SCOREBOARD] == 113.3  # of 121.0 cycles


@pytest.mark.parametrize(("folder", "fault", "reason"), [
    ("diagnosed", "uncoalesced", "uncoalesced"), ("diagnosed", "partial_sectors", "uncoalesced"),
    ("diagnosed", "bank_conflicts", "bank_conflicts"), ("diagnosed", "divergence", "divergence"),
    ("diagnosed", "tail", "tail"), ("diagnosed", "one_sm", "few_blocks"), ("unseen", "filter_spills", "local_memory"),
    ("unseen", "transpose_uncoalesced", "uncoalesced"), ("unseen", "dot_registers", "registers"),
])  # fmt: skip
def test_the_details_page_has_no_counters_of_a_fault_but_the_rule_names_it(folder: str, fault: str, reason: str):
    kernels = read_profile(MEASURED / folder / "details.csv.gz", hw="h100").kernels
    sick = next(kernel for kernel in kernels if kernel.name.startswith(f"{fault}__sick"))
    first = reasons(sick, H100)[0]
    assert first.reason == reason
    assert "ncu: " in first.evidence


def test_what_a_rule_states_is_not_listed_as_missing():
    profile = read_profile(MEASURED / "unseen/details.csv.gz", hw="h100").measured.runs[0].profile
    titles = not_judged(profile, H100)
    assert "uncoalesced or partial sectors" not in titles
    assert "atomics" in titles  # of which no rule exists


def test_an_estimate_that_the_counters_contradict_is_no_saving():
    """The raw page has the sectors: all of their bytes are used."""
    kernels = read_profile(MEASURED / "diagnosed/raw.csv.gz", hw="h100").kernels
    cured = next(kernel for kernel in kernels if kernel.name.startswith("uncoalesced__cured"))
    cured.table.set("rules", [(ToolRule("uncoalesced", "78% excessive sectors", 0.5),)] * len(cured.table))
    found = next(each for each in reasons(cured, H100) if each.reason == "uncoalesced")
    assert (found.source, found.seconds, found.most_seconds) == ("ncu", 0, 0)
    assert found.evidence.endswith("; the counters show no such cost")


def test_a_different_estimate_stands_beside_ours():
    kernels = read_profile(MEASURED / "diagnosed/raw.csv.gz", hw="h100").kernels
    sick = next(kernel for kernel in kernels if kernel.name.startswith("divergence__sick"))  # 80 % of its time
    for share, differs in ((0.7, False), (0.1, True)):
        sick.table.set("rules", [(ToolRule("divergence", "5.6 of 32 threads", share),)] * len(sick.table))
        found = reasons(sick, H100)[0]
        assert (found.reason, found.source) == ("divergence", "roof")
        assert ("which estimates" in found.evidence) == differs


def test_advice_on_other_things_states_no_reason():
    text = "Out of the 268464480.0 bytes sent to the L2 Compression unit only 0.00% were successfully compressed."
    assert tool_rules.tool_rule("OPT", text, 0.12, "global") is None
    assert [*tool_rules.stated_metrics(text)] == []


def test_the_busiest_pipe_of_a_text_is_a_metric():
    text = "ALU is the highest-utilized pipeline (80.3%) based on active cycles, taking into account the rates of"
    assert [*tool_rules.stated_metrics(text)] == [
        ("sm__pipe_alu_cycles_active.avg.pct_of_peak_sustained_active", pytest.approx(0.803))
    ]
