"""The input pipeline of a step: data loader, copy, GPU."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import roofmodel
from roofmodel.errors import WorkloadError
from roofmodel.options.values import CopyMode
from roofmodel.steps.input_pipeline import InputPipeline, Loader

TIMES = st.floats(1e-4, 10)


def pipeline(load: float, gpu: float, workers: int, mode: CopyMode = "pinned", copy: float = 0.0) -> InputPipeline:
    return InputPipeline(Loader(load, workers, mode), 1, copy, gpu, is_expected=True)


def test_without_workers_the_times_of_loader_and_gpu_add_up() -> None:
    """The fifth step of pytorch/kineto@94979607's ResNet-50 trace: 68.7 ms in the loader, 107.4 ms elsewhere."""
    step = pipeline(0.0687, 0.1074, workers=0)
    assert step.seconds == pytest.approx(0.1761)
    assert step.utilization == pytest.approx(0.61, abs=0.001)  # 107.4 / 176.1
    assert step.limit == "serial"


@pytest.mark.parametrize(("gpu", "workers"), [(0.230, 7), (0.350, 5)])
def test_a_faster_gpu_needs_more_workers_to_hide_the_loader(gpu: float, workers: int) -> None:
    """With 1500 ms of preprocessing per batch, a step of 350 ms needs 5 workers and one of 230 ms needs 7."""
    assert pipeline(1.5, gpu, 0).workers_to_hide == workers
    assert pipeline(1.5, gpu, workers).seconds == gpu
    assert pipeline(1.5, gpu, workers).limit == "gpu"
    assert pipeline(1.5, gpu, workers - 1).seconds == 1.5 / (workers - 1)
    assert pipeline(1.5, gpu, workers - 1).limit == "loader"


def test_an_overlapped_copy_limits_the_step_only_if_it_is_longer_than_the_computation() -> None:
    assert pipeline(0.1, 1.0, 1, "pinned", 0.5).seconds == 1.5
    assert pipeline(0.1, 1.0, 1, "async", 0.5).seconds == 1.0
    assert pipeline(0.1, 1.0, 1, "async", 2.0).seconds == 2.0
    assert pipeline(0.1, 1.0, 1, "async", 2.0).limit == "copy"


@given(TIMES, TIMES, st.integers(0, 64), TIMES, st.sampled_from(["pinned", "pageable", "async"]))
def test_one_more_worker_never_slows_the_step(
    load: float, gpu: float, workers: int, copy: float, mode: CopyMode
) -> None:
    fewer, more = (pipeline(load, gpu, count, mode, copy) for count in (workers, workers + 1))
    assert more.seconds <= fewer.seconds
    assert 0 < fewer.utilization <= 1
    assert fewer.seconds >= max(gpu, copy, load / max(1, workers))


@pytest.mark.parametrize(("mode", "seconds"), [("pinned", 1.204e-3), ("pageable", 1.92e-3), ("async", 1.204e-3)])
def test_a_batch_of_images_is_copied_over_pcie(mode: CopyMode, seconds: float) -> None:
    """32 × 3 × 224 × 224 fp32 pixels are 19.27 MB: 1.20 ms at 16 GB/s; from pageable memory 1.92 ms were measured."""
    found = estimate(copy=mode)
    assert found["copy_bytes"] == 32 * 3 * 224 * 224 * 4 == 19_267_584
    assert found["copy_seconds"] == pytest.approx(seconds, rel=1e-3)


def test_the_estimated_step_is_within_8_percent_of_the_measured_one() -> None:
    """The same trace: steps of 164 to 181 ms on a V100 (fp32, 32 images); the first takes 176.1 ms.

    The estimated step is shorter: the gradients of convolutions are estimated 12 % shorter than measured.
    """
    found = estimate(loader="68.7ms")
    assert found["step_seconds"] == pytest.approx(0.1761, rel=0.08)
    assert found["images_per_second"] == pytest.approx(32 / found["step_seconds"])
    assert found["workers_to_hide"] == 1


def test_the_batch_norms_of_the_same_trace_take_the_measured_time() -> None:
    """53 batch norms take 5.71 ms forward and 10.32 ms backward per step, means of six steps."""
    found = roofmodel.estimate("resnet-50", "v100", phase="train", batch=32, dtype="fp32").to_dict()
    seconds = {False: 0.0, True: 0.0}
    for one in found["phases"][0]["ops"]:
        if one["kind"] == "norm":
            seconds[one["name"].endswith(".grad")] += one["count"] * one["expected_seconds"]
    assert seconds[False] == pytest.approx(5.71e-3, rel=0.1)
    assert seconds[True] == pytest.approx(10.32e-3, rel=0.15)


def test_replicas_load_their_own_batches() -> None:
    """With --dp 4 each of 4 processes loads 32 of 128 images; the rate counts all GPUs."""
    found = estimate(batch=128, dp=4, workers=2)
    assert found["copy_bytes"] == 19_267_584
    assert found["images_per_second"] == pytest.approx(128 / 0.75)  # 1500 ms / 2 workers


def test_token_ids_are_copied_as_64_bit_integers() -> None:
    found = roofmodel.estimate("gpt2", "a100", phase="train", batch=4, seq=512, loader=0.5, workers=4)
    assert found.to_dict()["input_pipeline"]["copy_bytes"] == 4 * 512 * 8
    assert found.to_dict()["input_pipeline"]["tokens_per_second"] == pytest.approx(4 * 512 / 0.125)


def test_audio_is_copied_as_frames() -> None:
    """Whisper reads 3000 frames of 128 mel bins in fp32, and the decoder's token ids."""
    found = roofmodel.estimate("whisper-large-v3", "a100", phase="train", decoder_seq=100, loader=0.5).to_dict()
    assert found["input_pipeline"]["copy_bytes"] == 3000 * 128 * 4 + 100 * 8


def test_a_device_without_a_link_to_its_host_has_no_time_of_the_copy() -> None:
    found = roofmodel.estimate("gpt2", "tpu-v4", phase="train", dtype="bf16", loader=0.5).to_dict()
    assert found["input_pipeline"]["copy_seconds"] is None
    assert found["input_pipeline"]["gpu_seconds_from"] == "bound"
    assert math.isclose(found["input_pipeline"]["step_seconds"], 0.5 + found["phases"][0]["totals"]["bound_seconds"])
    assert any("tpu-v4 states no link to the CPU" in note for note in found["notes"])


def test_only_passes_over_a_batch_have_a_data_loader() -> None:
    found = roofmodel.estimate("gpt2", "a100", loader="3ms").to_dict()
    assert "input_pipeline" not in found
    assert any(note.startswith("loader is ignored: only phase=train, forward") for note in found["notes"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"workers": 3}, 'workers=3 needs the time of a batch: add loader="1500ms"'),
        ({"loader": "3"}, "loader: '3' has no unit"),
        ({"loader": -1.0}, "it must be a time above 0 and at most 3600 s"),
        ({"loader": "0ms"}, "it must be a time above 0 and at most 3600 s"),
        ({"loader": float("nan")}, "it must be a time above 0 and at most 3600 s"),
        ({"loader": "3ms", "workers": -1}, "workers is -1; it must be a whole number from 0"),
        ({"loader": "3ms", "copy": "fast"}, "copy: unknown value 'fast'; known: pinned, pageable, async"),
    ],
)
def test_invalid_options_are_quoted_with_what_would_work(options: dict[str, Any], message: str) -> None:
    with pytest.raises(WorkloadError) as error:
        roofmodel.estimate("resnet-50", "a100", phase="train", **options)
    assert message in str(error.value)


def test_the_summary_states_the_step_with_its_input(capsys: pytest.CaptureFixture[str]) -> None:
    from rich.console import Console

    report = roofmodel.estimate(
        "resnet-50", "v100", phase="train", batch=32, dtype="fp32", loader="1500ms", workers=7
    )  # fmt: skip
    Console(width=120).print(report)
    shown = capsys.readouterr().out
    step = report.totals["train"]["expected_seconds"] + 1.92e-3  # the copy does not overlap
    hiding, busy = math.ceil(1.5 / step), report.totals["train"]["expected_seconds"] * 7 / 1.5
    assert f"1.5 s per batch, 7 workers, pageable copy 1.92 ms; {hiding} workers would hide the loader" in shown
    # 1500 ms / 7, 32 images
    assert f"step ≥ 214 ms, ≤ 149 images/s, GPU busy {busy:.0%}: limited by the data loader" in shown


def estimate(**options: Any) -> dict[str, Any]:
    asked = {"phase": "train", "batch": 32, "dtype": "fp32", "loader": "1500ms"} | options
    found: dict[str, Any] = roofmodel.estimate("resnet-50", "v100", **asked).to_dict()["input_pipeline"]
    return found
