"""`roof calibrate MODEL RESULT…`: the host of an engine, recovered from results that are predicted with a known one."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

import roofmodel
from roofmodel.compare.serving.host_fit import HostSample, fit_host
from roofmodel.engines.engine import Engine
from roofmodel.engines.engine_file import Host
from roofmodel.errors import WorkloadError
from tests.compare.test_serving import compared, predicted, result
from tests.test_cli_measured import roof

pytest.importorskip("scipy", reason="calibrating needs scipy: pip install 'roofmodel[calibrate]'")

VLLM = Engine.load("vllm")
SLOW = VLLM.host._replace(step=1e-3, sequence=30e-6, request=60e-3)
calibrate = partial(roofmodel.calibrate_engine, "llama-3.1-8b", hw="h100", engine="vllm")


@pytest.fixture(scope="module")
def front(tmp_path_factory: pytest.TempPathFactory) -> dict[int, str]:
    """Results of a server with a slow host, by requests in flight."""
    folder = tmp_path_factory.mktemp("front")
    return {n: predicted(folder, n, dict, engine=VLLM._replace(host=SLOW)) for n in (1, 4, 16, 64)}


def test_a_known_host_is_recovered_and_predicts_the_concurrency_that_was_left_out(
    front: dict[int, str], tmp_path: Path
) -> None:
    report = calibrate(*(front[n] for n in (1, 4, 64)))
    for name in ("step", "sequence", "request"):
        assert getattr(report.host, name) == pytest.approx(getattr(SLOW, name), rel=0.02)
    file = report.save(tmp_path / "mine.yaml")
    (rest,) = compared(front[16], engine=str(file))
    (before,) = compared(front[16], engine="vllm")
    for name in ("ttft_seconds", "tpot_seconds"):
        assert rest["expected"][name] == pytest.approx(rest["measured"][name], rel=0.01)
        assert before["expected"][name] < 0.9 * before["measured"][name]


def test_the_file_changes_nothing_but_the_host(front: dict[int, str], tmp_path: Path) -> None:
    file = calibrate(front[1], front[64]).save(tmp_path / "mine.yaml")
    loaded = Engine.load(file)
    assert loaded.host != VLLM.host
    own = {"id": VLLM.id, "file": VLLM.file, "name": VLLM.name, "host": VLLM.host}
    assert loaded._replace(**own) == VLLM  # type: ignore[arg-type]
    again = calibrate(front[1], front[64], engine=str(file)).save(tmp_path / "again.yaml")  # like: a path
    assert Engine.load(again).host == loaded.host


def test_a_term_of_prompts_needs_prompts_of_several_lengths() -> None:
    """TTFT is 10 ms of kernels, 30 ms per request and 5 us per token of its prompt."""

    def samples(host: Host, prompts: tuple[int, ...]) -> list[HostSample]:
        outside = [float(host.outside_steps(prompt)) for prompt in prompts]
        return [
            HostSample(1.0, prompt, 5e-3, 5e-3, 0.01 + 0.03 + 5e-6 * prompt, 0.01 + seconds)
            for prompt, seconds in zip(prompts, outside, strict=True)
        ]

    own = Host(request=20e-3, request_token=1e-6)
    several = fit_host(lambda host: samples(host, (1000, 2000, 8000)), own).host
    assert (several.request, several.request_token) == pytest.approx((0.03, 5e-6))
    one = fit_host(lambda host: samples(host, (1000, 1000)), own).host
    assert one.request_token == 1e-6  # of the file
    assert one.request + one.request_token * 1000 == pytest.approx(0.03 + 5e-6 * 1000)


def test_the_errors_of_a_left_out_run_are_those_of_a_host_that_did_not_see_it() -> None:
    """The runs take 1 ms and 20 us per sequence more than 10 ms, the one with 64 sequences also 3 ms: without it, its
    error is that of the others."""

    def samples(host: Host) -> list[HostSample]:
        return [
            HostSample(n, 100, 11e-3 + 20e-6 * n + more, 10e-3 + host.step + host.sequence * n, None, None)
            for n, more in ((1, 0.0), (8, 0.0), (64, 3e-3), (128, 0.0))
        ]

    fit = fit_host(samples, Host())
    assert fit.left_out is not None
    assert fit.left_out[2] == pytest.approx(11e-3 + 64 * 20e-6)
    assert fit.after[2].expected_tpot > 12.5e-3


def test_no_host_explains_steps_that_are_faster_than_without_one(tmp_path: Path) -> None:
    files = [
        predicted(tmp_path, n, lambda figures: {**figures, "tpot": 0.8 * figures["tpot"]}) for n in (4, 64)
    ]  # fmt: skip
    report = calibrate(*files)
    assert (report.host.step, report.host.sequence) == (0, 0)
    assert any("the kernels differ, not the host" in note for note in report.notes)


def test_the_command_takes_a_model_results_and_an_engine(
    front: dict[int, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(tmp_path)
    files = f"{front[1]} {front[4]} {front[64]}"
    command = f"calibrate llama-3.1-8b {files} --hw h100 --engine vllm -o mine.yaml"
    status, out, err = roof(command, monkeypatch, capsys)
    assert not status
    assert "wrote mine.yaml" in err
    assert "left out" in out
    assert max(map(len, out.splitlines())) <= 80
    assert Engine.load(tmp_path / "mine.yaml").host.step == pytest.approx(1e-3, rel=0.05)
    for wrong, message in (
        (
            f"calibrate llama-3.1-8b {front[1]} --hw h100 --engine vllm -o x.yaml",
            "1 result given; a fit needs at least 2",
        ),
        (f"calibrate {front[1]} --hw h100 --tp 8 -o x.yaml", "--tp is for the host of an engine; give a model"),
        (f"calibrate llama-3.1-8b {front[1]} --hw h100 -o x.yaml", "calibrates an engine; add --engine ENGINE"),
    ):
        status, _, err = roof(wrong, monkeypatch, capsys)
        assert status == 2
        assert message in err


def test_an_engine_and_a_calibrated_device_are_needed(front: dict[int, str], tmp_path: Path) -> None:
    with pytest.raises(WorkloadError, match="engine that is calibrated is not given; add it"):
        calibrate(front[1], front[4], engine=None)
    with pytest.raises(WorkloadError, match="mi300x is not calibrated"):
        calibrate(front[1], front[4], hw="mi300x")
    without = result(tmp_path, mean_ttft_ms=None, median_ttft_ms=None, mean_tpot_ms=None, median_tpot_ms=None)
    with pytest.raises(WorkloadError, match="states neither TPOT nor the latency"):
        calibrate(without, without.replace("r.json", "*.json"), front[1])
