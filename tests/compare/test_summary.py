"""Summaries by kernel name, compared by kind of work."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from roofmodel.compare.compare import compare
from roofmodel.compare.summary import kind
from roofmodel.errors import ProfileError, WorkloadError
from tests.compare import traces
from tests.compare.traces import Launch
from tests.test_cli_measured import roof

LLAMA = "meta-llama/Llama-3.2-1B"
HEADER = "Time (%),Total Time (ns),Instances,Avg (ns),Med (ns),Min (ns),Max (ns),StdDev (ns),Name\n"


def summary(path: Path, launches: Iterable[Launch]) -> str:
    """The output of `nsys stats --report cuda_gpu_kern_sum` for these launches."""
    times: dict[str, list[float]] = {}
    for launch in launches:
        times.setdefault(launch.name, []).append(1e3 * launch.microseconds)
    rows = [
        f'1.0,{sum(each):.0f},{len(each)},{sum(each) / len(each):.1f},1.0,{min(each):.0f},{max(each):.0f},0.0,"{name}"'
        for name, each in times.items()
    ]
    path.write_text(HEADER + "\n".join(rows) + "\n", encoding="utf-8")
    return str(path)


def test_a_summary_is_compared_by_kind_of_work_per_pass(tmp_path: Path) -> None:
    launches = 10 * list(traces.vllm_decode(16, 10))
    file = summary(tmp_path / "sum.csv", launches)
    found = compare(LLAMA, [file], "a100", workload={"phase": "decode", "batch": 1})
    assert found.passes[0].used == 10  # 160 attention kernels, 16 layers
    rows = {each.operators[0]: each for each in found.rows}
    gemms = [launch.microseconds for launch in launches if kind(launch.name) == "GEMM"]
    assert rows["GEMM"].measured_seconds == pytest.approx(sum(gemms) / 10 * 1e-6)
    assert rows["GEMM"].occurrences == 16 * 7 + 1  # q, k, v, output, gate, up, down; logits
    assert rows["attention"].kernels == 32  # attention split over the keys, and its reduction
    counted = found.estimate.phases[0].cost
    assert sum(each.cost.matmul_flops for each in found.rows) == counted.matmul_flops
    assert not found.unmatched_operators
    assert any("over 10 passes (160 attention kernels, 16 per pass)" in note for note in map(str, found.notes))


def test_steps_are_required_if_the_kernels_do_not_give_the_number_of_passes(tmp_path: Path) -> None:
    launches = [launch for launch in traces.vllm_decode(16, 10) if "flash" not in launch.name][:-40]
    file = summary(tmp_path / "sum.csv", 2 * launches)
    with pytest.raises(ProfileError, match=r"the number of passes in a summary by kernel name is not clear .* steps=N"):
        compare(LLAMA, [file], "a100", workload={"phase": "decode", "batch": 1})
    found = compare(LLAMA, [file], "a100", steps=2, workload={"phase": "decode", "batch": 1})
    assert found.passes[0].seconds == pytest.approx(sum(launch.microseconds for launch in launches) * 1e-6)


def test_steps_that_contradict_the_kernels_are_used_with_a_note(tmp_path: Path) -> None:
    file = summary(tmp_path / "sum.csv", 10 * list(traces.vllm_decode(16, 10)))
    found = compare(LLAMA, [file], "a100", steps=3, workload={"phase": "decode", "batch": 1})
    assert any(
        "over 3 passes (as given; the kernels suggest 10: 160 attention kernels" in note
        for note in map(str, found.notes)
    )


def test_a_summary_needs_a_phase(tmp_path: Path) -> None:
    file = summary(tmp_path / "sum.csv", 3 * list(traces.vllm_decode(16, 10)))
    with pytest.raises(WorkloadError, match='phase="prefill" or phase="decode"'):
        compare(LLAMA, [file], "a100", workload={})


@pytest.mark.parametrize("form", ["table", "csv", "json"])
def test_unknown_kernel_names_are_an_error_in_every_output_format(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = summary(tmp_path / "sum.csv", 3 * [Launch("kernel_a", 3.0, ""), Launch("kernel_b", 2.0, "")])
    command = f"compare gpt2 {file} --hw a100 --phase decode --steps 1 --format {form}"
    status, out, err = roof(command, monkeypatch, capsys)
    assert (status, out) == (2, "")
    assert "no kernel name shows a kind of work that the model has: kernel_a, kernel_b" in err
