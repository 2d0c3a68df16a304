"""docs/anchors.md shows the computed errors, and the output of other tools is read correctly."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from benchmarks import anchors, megatron, pages
from benchmarks.others import ToolMissing, aiconfigurator, clones
from roofmodel.devices.device import Device
from roofmodel.steps.estimate import estimate
from tests.profiles.samples import measured

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "anchors.md").read_text(encoding="utf-8")


@pytest.mark.usefixtures("each_load_computed_once", "only_times_and_memory")
def test_the_page_shows_the_errors_computed_from_the_measurements() -> None:
    """One command regenerates the page: `python benchmarks/anchors.py FOLDER --into docs/anchors.md`."""
    compared = anchors.ToolComparisons(measured("ops"), dict.fromkeys(anchors.TOOLS))
    operators = compared.operators(["a100", "b300", "l40s"])  # a device of each table
    tables = "\n".join((anchors.table([*operators]), anchors.table([*compared.served()]), compared.training()))
    assert all(f"\n|{line.split('|')[1]}|" in PAGE for line in tables.splitlines())
    assert pages.with_rows(PAGE, tables).splitlines() == PAGE.splitlines()
    assert compared.flops() in PAGE


def test_documented_figures_of_tools_that_did_not_run_are_kept() -> None:
    page = "Text | as it is\n| a | 1 | 2 |\n| b | 3 | 4 |"
    updated = pages.with_rows(page, "| b | 5 | not run |\n| c | 6 | 7 |")
    assert updated == "Text | as it is\n| a | 1 | 2 |\n| b | 5 | 4 |"


def test_a_missing_tool_is_reported_with_an_installation_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aiconfigurator, "aiconfigurator_core", None)
    with pytest.raises(ToolMissing, match="pip install aiconfigurator"):
        aiconfigurator.require()
    with pytest.raises(ToolMissing, match=r"git clone .*/calculon, then --calculon PATH"):
        clones.calculon(None)
    with pytest.raises(ToolMissing, match=f"--calculon {tmp_path}: .*bin/calculon"):
        clones.calculon(tmp_path)
    with pytest.raises(ToolMissing, match=r"run its ae/figure5/run_figure5\.sh"):
        clones.llmcompass(tmp_path)


def test_calculons_step_times_are_read_from_its_validation(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    output = "Activations,|,none\nmegatron-22B,|,1,2,3%,|,4,5,6%,\nEnd-to-end,|,full,,,,|,seqsel,,,,\n"
    output += "Model,|,Profile,Calc,Delta,GiB,|,Profile,Calc,Delta,GiB,\n"
    output += "megatron-22B,|,1.42,1.5,-5.6%,48.15,|,1.1,1.2,-9.1%,52.08,\nAve,,7.4%\n"
    (tmp_path / "bin" / "calculon").write_text(f"print({output!r})")
    assert clones.calculon(tmp_path) == {"22B": {"full": 1.5, "selective": 1.2}}


def test_llmcompass_times_are_read_from_files_of_its_scripts(tmp_path: Path) -> None:
    for figure, real, simulated in (
        (
            "ab/matmul",
            "64, 128, 256, 0.19ms, 1Tflops\n128, 128, 256, 0.5ms, 1Tflops\n",
            "64, 128, 256, 0.2ms, 2Tflops\n",
        ),
        ("cf/softmax", "4096, 32, 10.0\n", "4096, 32, 20.0\n"),
        ("de/layernorm", "4096, 32, 2.0\n", "4096, 32, 4.0\n"),
        ("g/gelu", "2048, 0.5\n", "2048, 0.25\n"),
    ):
        path = tmp_path / "ae" / "figure5" / f"{figure}_A100_sim.csv"
        (path.parent / "real_hardware").mkdir(parents=True)
        path.write_text(simulated)
        (path.parent / "real_hardware" / path.name.replace("_sim", "")).write_text(real)
    gemm, softmax, _, gelu = clones.llmcompass(tmp_path)  # one GEMM was not simulated
    assert gemm == ("gemm", {"m": 64, "n": 128, "k": 256}, 0.19e-3, 0.2e-3)
    assert softmax.measured == pytest.approx(4096 * 32 / 10e9)
    assert softmax.simulated == pytest.approx(4096 * 32 / 20e9)
    assert gelu.shape == {"m": 1, "n": 2048}
    assert gelu.simulated == pytest.approx(8.192e-6)  # 2048 elements at 0.25e9 a second


@pytest.mark.parametrize(("setting", "billions"), zip(megatron.SETTINGS, (22.0, 175.0, 529.6, 1008.0), strict=True))
def test_the_megatron_models_have_the_parameter_counts_of_their_paper(
    setting: megatron.Setting, billions: float
) -> None:
    """Table 3 of arXiv 2205.05198, rounded."""
    model = megatron.gpt("gpt", setting.layers, setting.hidden, setting.heads)
    found = estimate(model, Device.load("a100"), phase="forward", seq=2048)
    assert found.parameters == pytest.approx(billions * 1e9, rel=0.004)


def test_a_folder_without_tables_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["anchors.py", str(tmp_path)])
    with pytest.raises(SystemExit) as caught:
        anchors.main()
    assert caught.value.code == 2
    assert "aic_a100_sxm_gemm.csv.gz: not a readable table of measurements" in capsys.readouterr().err
