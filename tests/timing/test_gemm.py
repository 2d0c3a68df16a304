"""GEMMs whose rows are not multiples of 16 bytes are slower on tensor cores."""

from __future__ import annotations

import json
from math import ceil
from pathlib import Path
from statistics import mean
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import roofmodel
from benchmarks import unaligned
from roofmodel.counting.tensors import FORMATS
from roofmodel.devices.device import Device
from roofmodel.engines.engine import Engine
from roofmodel.errors import DeviceError
from roofmodel.measure.operations import OPERATIONS, PRECISIONS, widths
from roofmodel.models import hub
from roofmodel.steps.estimate import estimate
from roofmodel.timing.engine import Timing
from roofmodel.timing.gemm import load_bytes
from roofmodel.timing.roofline import place
from roofmodel.timing.timing import gemm_work

DATA = Path(__file__).parents[1] / "data" / "gpu"
H100 = Device.load("h100")


def gemm_load(m: int, n: int, k: int, dtype: str = "bf16", pads: bool = False) -> int:
    operator = OPERATIONS["gemm"].operator({"m": m, "n": n, "k": k}, widths(PRECISIONS[dtype]))
    work = gemm_work(operator, dtype)
    assert work is not None
    return int(load_bytes(operator, work, FORMATS[dtype], pads))


def seconds_of(names: tuple[str, ...], model: str | Path, engine: str, **workload: Any) -> list[float]:
    """The expected seconds of operators on an H100."""
    found = estimate(hub.load(model), H100, engine=engine, **workload).phases[0]
    times = {each.operator.name: each.run.expected for each in found.placed}
    return [float(time.value) for name in names if (time := times[name])]


def head_seconds(vocabulary: int, engine: str, folder: Path) -> float:
    """The expected seconds of a decode's head."""
    config = {"model_type": "gpt2", "n_embd": 1600, "n_layer": 1, "n_head": 25, "vocab_size": vocabulary}
    (folder / "config.json").write_text(json.dumps(config))
    return seconds_of(("head.logits",), folder / "config.json", engine, phase="decode", batch=64, context=64)[0]


@pytest.mark.parametrize(
    ("n", "k", "dtype", "load"),
    [
        (4096, 4096, "bf16", 16),
        (4104, 4096, "bf16", 16),  # 8 values of 2 bytes
        (4100, 4096, "bf16", 4),  # 8 bytes: measured as rows of 4
        (4098, 4096, "bf16", 4),
        (4096, 4098, "bf16", 4),  # the shorter one of n and k decides
        (50257, 1600, "bf16", 2),
        (4096, 4097, "bf16", 2),
        (4100, 4096, "tf32", 16),  # 4 values of 4 bytes
        (4098, 4096, "tf32", 4),
        (4097, 4096, "tf32", 4),
        (4097, 4096, "fp8", 16),  # libraries refuse it
    ],
)
def test_the_shortest_multiple_of_the_rows_decides_the_load(n: int, k: int, dtype: str, load: int) -> None:
    assert gemm_load(512, n, k, dtype) == load


def test_a_matrix_vector_product_needs_no_tensor_cores() -> None:
    """In the H100's trace of GPT-2 XL's decode, the head is a gemv of 67 µs, 1.4 times its DRAM bound."""
    assert gemm_load(1, 50257, 1600) == 16


def test_the_number_of_tokens_does_not_matter() -> None:
    """m + 1 rows took 0.9 to 1.3 times as long on the H100, as the tiles say; n + 1 columns 6 to 8 times."""
    assert gemm_load(513, 4096, 4096) == 16


def test_a_padded_vocabulary_is_faster_where_the_engine_does_not_pad_it(tmp_path: Path) -> None:
    assert head_seconds(50257, "torch", tmp_path) > 2 * head_seconds(50304, "torch", tmp_path)
    assert head_seconds(50257, "vllm", tmp_path) == pytest.approx(head_seconds(50304, "vllm", tmp_path), rel=0.01)


def test_gradients_have_the_rows_of_their_matrices() -> None:
    """The gradient of the head's weights contracts over 1024 tokens; its matrices have rows of 1600 and 50257 values.

    Measured in the trace of GPT-2 XL's training on an H100: 1.54, 1.21 and 1.10 ms for the head and its gradients.
    """
    measured = {"head.logits": 1.5379e-3, "head.logits.grad_input": 1.2106e-3, "head.logits.grad_weight": 1.1027e-3}
    expected = seconds_of(tuple(measured), "gpt2-xl", "torch", phase="train", batch=1, seq=1024)
    for found, seconds in zip(expected, measured.values(), strict=True):
        assert 0.8 < found / seconds < 1.6  # below 0.2 if they were aligned


@given(st.integers(2, 4096), st.integers(1, 9000), st.integers(1, 9000))
def test_padding_to_whole_loads_never_costs_more_than_its_own_columns(m: int, n: int, k: int) -> None:
    """A padded GEMM is at most as slow as the unaligned one, beyond one more tile of columns."""
    timing = Timing(H100, Engine.load("torch"))

    def seconds(n: int, k: int) -> float:
        operator = OPERATIONS["gemm"].operator({"m": m, "n": n, "k": k}, widths(PRECISIONS["bf16"]))
        expected = timing.expect(operator, place(operator.cost, H100, "bf16", None), "bf16").expected
        assert expected is not None
        return float(expected.value)

    padded = seconds(8 * ceil(n / 8), 8 * ceil(k / 8))
    assert padded <= seconds(n, k) * 1.1


@pytest.mark.parametrize("device", unaligned.DEVICES)
def test_unaligned_gemms_are_expected_as_they_were_measured(device: str) -> None:
    """The H200's rows were not fitted; without the shares, the mean errors are 56 to 80 %."""
    rows = unaligned.read(DATA / device / "unaligned.csv", Device.load(unaligned.DEVICES[device]))
    for load in (4, 2):
        of_load = [row for row in rows if row.load == load]
        assert len(of_load) >= 48
        stated = of_load[0].device.unaligned
        assert stated is not None
        assert mean(row.error(stated) for row in of_load) < 0.2


def test_the_shares_of_the_device_file_are_those_of_the_fit() -> None:
    shares = unaligned.fitted(unaligned.read(DATA / "h100" / "unaligned.csv", H100))
    assert H100.unaligned is not None
    assert [round(share, 2) for share in shares[:2]] == list(H100.unaligned[:2])


def test_a_note_names_the_unaligned_gemms_and_their_cost() -> None:
    def notes(hw: str, engine: str) -> str:
        return "\n".join(map(str, roofmodel.estimate("gpt2", hw, engine=engine, batch=8).notes))

    assert "'head.logits' has rows that are not multiples of 16 bytes: h100-sxm runs such GEMMs at 11%" in notes(
        "h100", "torch"
    )
    assert "does not include this loss, which is not measured on a100-sxm-80gb" in notes("a100", "torch")
    assert "16 bytes" not in notes("a100", "vllm")


def test_a_head_of_two_classes_has_no_note_on_its_alignment() -> None:
    notes = roofmodel.estimate("bert-base-uncased@ForSequenceClassification", "h100", engine="torch", batch=4).notes
    assert not any("16 bytes" in str(note) for note in notes)


@pytest.mark.parametrize("share", ["0", "1.5", "fast"])
def test_a_share_that_is_no_fraction_is_refused(tmp_path: Path, share: str) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(
        "name: Mine\npipes: {fp32: {peak: 1 TFLOP/s}}\nmemory: {dram: {bandwidth: 1 TB/s}}\n"
        f"unaligned_gemms: {{rows_of_4_bytes: {share}, rows_of_2_bytes: 0.1}}\n"
    )
    with pytest.raises(DeviceError, match=r"mine\.yaml.*4.*rows_of_4_bytes"):
        Device.load(path)
