"""Steps of inference as two halves, of which one computes while the other one exchanges tokens with experts."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

import roofmodel
from roofmodel import EngineError
from roofmodel.devices.device import Device
from roofmodel.engines.engine import Engine
from roofmodel.models import hub
from roofmodel.plan.servers.commands import Server, serve_command
from roofmodel.steps import overlap
from roofmodel.steps.options import workload
from roofmodel.steps.phase import PhaseEstimate, phase_estimate
from roofmodel.steps.placed import NO_TIME
from roofmodel.timing.timing import Expected
from tests.plan.test_serve_command import Layout, candidate

ON = "two-batch-overlap=on"
R1: dict[str, Any] = {"engine": "sglang", "dp": 16, "ep": 16, "phase": "decode", "batch": 2048, "seq": 2048}


def phase_of(model: str = "deepseek-r1", option: str | None = ON, **changed: Any) -> PhaseEstimate:
    arch, device = hub.load(model), Device.load("h100")
    work, _ = workload(arch, device, engine_option=option and (tuple(option.split("=")),), **R1 | changed)
    return phase_estimate(arch, device, work.steps()[0], work.engine)


def seconds(expected: Expected | None) -> float:
    assert expected is not None
    return float(expected.value)


@pytest.mark.parametrize("changed", [{}, {"batch": 16384}, {"phase": "prefill", "batch": 64}, {"pp": 2, "tp": 2}])
def test_a_step_takes_as_long_as_the_turns_of_two_halves(
    monkeypatch: pytest.MonkeyPatch, changed: dict[str, Any]
) -> None:
    monkeypatch.setattr(overlap, "_contention", lambda *_: NO_TIME)
    phase = phase_of(**changed)
    layers = sorted(overlap._divided_layers(phase.placed, ""))
    assert all(b == a + 1 for a, b in pairwise(layers))  # layers with experts follow one another
    undivided, of_half = 0.0, {layer: {"a": 0.0, "d": 0.0, "f": 0.0, "e": 0.0} for layer in layers}
    for each in phase.placed:
        op, within = each.operator, each.operator.layers or (None,)
        for layer in within:
            own = seconds(each.expected) * op.count / len(within)
            is_routed = op.name.startswith("mlp.expert_")
            part = {"mlp.dispatch": "d", "mlp.collect": "e"}.get(op.name, "f" if is_routed else "a")
            if layer not in of_half or (op.collective and part == "a"):
                undivided += own
            else:
                of_half[layer][part] += own / 2
    # (what computes, what is exchanged), turn by turn: outputs of B end in the first turn of the next layer
    turns, outputs = [], 0.0
    for times in of_half.values():
        turns += [(times["a"], outputs), (times["a"], times["d"]), (times["f"], times["d"]), (times["f"], times["e"])]
        outputs = times["e"]
    expected = undivided + sum(map(max, turns)) + outputs
    assert seconds(phase.kernel_seconds) == pytest.approx(expected)


def test_halves_change_no_counts_and_no_bounds_and_take_at_least_the_longer_of_kernels_and_exchanges() -> None:
    off, on = phase_of(option=None), phase_of()
    assert (on.cost, on.bound_seconds) == (off.cost, off.bound_seconds)
    exchanged = sum(each.operator.count * seconds(each.expected) for each in on.exchanges)
    kernels = sum(each.operator.count * seconds(each.expected) for each in on.placed) - exchanged
    assert max(kernels, exchanged, on.bound_seconds) < seconds(on.kernel_seconds) < kernels + exchanged


def test_kernels_take_longer_beside_an_exchange(monkeypatch: pytest.MonkeyPatch) -> None:
    beside = seconds(phase_of().kernel_seconds)
    monkeypatch.setattr(overlap, "_contention", lambda *_: NO_TIME)
    assert seconds(phase_of().kernel_seconds) < beside


def test_each_half_reads_the_weights_so_that_large_batches_gain_and_small_ones_lose() -> None:
    def ratio(batch: int) -> float:
        on, off = (seconds(phase_of(option=option, dp=64, ep=64, batch=batch).expected) for option in (ON, None))
        return on / off

    assert ratio(16384) < 1 < ratio(128)
    assert ratio(64) == 1  # one sequence of a replica is not divided
    once, twice = (
        [
            seconds(each.expected)
            for each in phase_of(option=option, batch=32).placed
            if "expert_down" in each.operator.name
        ]
        for option in (None, ON)
    )
    assert all(1.3 * one < two for one, two in zip(once, twice, strict=True))


def test_vllm_divides_steps_beyond_32_decodes_or_512_tokens_with_prompts() -> None:
    def is_divided(**changed: Any) -> bool:
        phase = phase_of(engine="vllm", **changed)
        return phase.kernel_seconds != phase.undivided_seconds

    assert [is_divided(batch=16 * each) for each in (32, 33)] == [False, True]
    assert [is_divided(phase="prefill", batch=32, seq=seq) for seq in (256, 257)] == [False, True]


def notes_of(**changed: Any) -> list[str]:
    report = roofmodel.estimate("deepseek-r1", "h100", engine_option=ON, **R1 | changed)
    return [str(note) for note in report.notes if "halves" in str(note)]


def test_notes_name_steps_that_take_longer_and_steps_that_are_not_divided() -> None:
    (longer,) = notes_of(batch=32)
    assert longer.startswith("warning: decode of 2 sequences of a replica is expected to take longer as two halves, ")
    (not_divided,) = notes_of(batch=16)
    assert not_divided.startswith("decode of 1 sequence of a replica is not divided into halves: ")
    (no_exchange,) = notes_of(dp=1, ep=1, tp=8, batch=8)
    assert "exchanges no tokens with experts" in no_exchange
    assert notes_of(dp=64, ep=64, batch=16384) == []


def test_a_sweep_and_generation_have_the_times_of_the_estimate() -> None:
    sizes = [16, 32, 4096]
    rows = roofmodel.sweep("deepseek-r1", "h100", engine_option=ON, **R1 | {"batch": sizes}).to_dict()["rows"]
    alone = [seconds(phase_of(batch=batch).expected) for batch in sizes]
    assert [row["expected_seconds"] for row in rows] == pytest.approx(alone)
    generated = roofmodel.estimate(
        "deepseek-r1", "h100", engine_option=ON, **R1 | {"phase": "generate", "new_tokens": 1, "batch": 512}
    ).to_dict()["phases"][0]
    parts = [phase_of(phase=each, batch=512) for each in ("prefill", "decode")]
    totals = generated["totals"]
    assert totals["expected_seconds"] == pytest.approx(sum(seconds(each.expected) for each in parts), rel=1e-3)
    exposed = totals["expected_communication_exposed_seconds"]
    hidden = totals["expected_communication_seconds"] - exposed
    assert hidden == pytest.approx(sum(seconds(each.hidden_seconds) for each in parts), rel=1e-3)


@pytest.mark.parametrize(("engine", "flag"), [("vllm", "--enable-dbo"), ("sglang", "--enable-two-batch-overlap")])
def test_the_command_of_a_server_has_the_flags(engine: str, flag: str) -> None:
    for option, is_there in (("on", True), ("off", False)):
        serve = Engine.load(engine, (("two-batch-overlap", option),)).serve
        server = Server("org/model", None, 1000, 100, 1100, None, None)
        command = serve_command(serve, candidate(Layout(ep=8, dp=8)), server, Device.load("h100"))
        assert (flag in str(command)) == is_there


@pytest.mark.parametrize("engine", ["trtllm", "vllm@0.6", "torch"])
def test_engines_without_halves_refuse_the_option(engine: str) -> None:
    with pytest.raises(EngineError, match="has no option 'two-batch-overlap'"):
        Engine.load(engine, (("two-batch-overlap", "on"),))
