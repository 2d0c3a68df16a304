"""The input pipeline of a step: workers that load batches, the copy of a batch to the GPU, and the GPU's step.

A worker takes `load` for a batch, W workers have a batch ready every load / W, and without workers the training process
loads each batch itself, before the step (PyTorch's `DataLoader(num_workers=W)`). The copy is part of the step, or
overlaps with it:

    step without input = copy + GPU step        (pinned or pageable memory)
                         max(copy, GPU step)    (pinned memory and non_blocking=True)
    step               = load + step without input            (no workers)
                         max(load / W, step without input)    (W workers)

This is a lower bound on the time of a step: workers are assumed not to slow each other down or the training process,
and all batches to take equally long.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import ceil, prod
from typing import TYPE_CHECKING, Any, NamedTuple

from roofmodel.errors import AnswerNote, Message, Option, Text, WorkloadError, ignored
from roofmodel.numbers import units
from roofmodel.numbers.algebra import plain
from roofmodel.options.values import CopyMode, check_whole_number, seconds_of

if TYPE_CHECKING:  # `roof trace` reads only `workers_to_hide`
    from roofmodel.devices.device import Device
    from roofmodel.models.architecture import Architecture
    from roofmodel.steps.phase import PhaseEstimate

PAGEABLE_BANDWIDTH = 10.04e9
"""Bytes per second of a copy from pageable memory, which the driver first copies into a pinned buffer.

Measured: 19.27 MB in 1.92 ms on a V100 with PCIe 3.0 (pytorch/kineto@94979607, the ResNet-50 trace). A slower link
limits it further."""
PIXEL_BYTES = 4  # fp32: what torchvision's ToTensor returns
FRAME_BYTES = 4  # fp32: what Whisper's feature extractor returns
TOKEN_BYTES = 8  # int64: the ids that Hugging Face's tokenizers return
MAX_WORKERS = 10_000
FED_PHASES = ("train", "forward")
"""The phases whose input a data loader prepares."""


class Loader(NamedTuple):
    """A data loader: the time that one worker takes for a batch of one GPU, the workers, how batches are copied."""

    seconds: float
    workers: int = 0
    copy: CopyMode = "pageable"


class InputPipeline(NamedTuple):
    """A step with its input. Times in seconds, for one GPU and its batch."""

    loader: Loader
    copy_bytes: int
    copy_seconds: float | None  # None: the device file has no link to the host, so the copy is not counted
    gpu_seconds: float  # the GPU's step alone
    is_expected: bool  # `gpu_seconds` is the expected time, not the bound

    @property
    def step_without_input(self) -> float:
        """The time of a step whose batch is ready."""
        copy = self.copy_seconds or 0.0
        return max(copy, self.gpu_seconds) if self.loader.copy == "async" else copy + self.gpu_seconds

    @property
    def load_seconds(self) -> float:
        """The time between two batches that the workers finish; without workers, of one batch."""
        return self.loader.seconds / max(1, self.loader.workers)

    @property
    def seconds(self) -> float:
        """The least time of a step with its input."""
        if self.loader.workers == 0:
            return self.loader.seconds + self.step_without_input
        return max(self.load_seconds, self.step_without_input)

    @property
    def utilization(self) -> float:
        """The share of the time that the GPU's step takes.

        Where the loader limits, a step slower than expected (in NCHW) takes a larger share of the same time.
        """
        return self.gpu_seconds / self.seconds

    @property
    def workers_to_hide(self) -> int:
        """The smallest number of workers with which the loader does not limit the step."""
        return workers_to_hide(self.loader.seconds, self.step_without_input)

    @property
    def limit(self) -> str:
        """The part that limits the step: loader, copy, gpu, or serial: without workers all parts add up."""
        if self.loader.workers == 0:
            return "serial"
        if self.load_seconds > self.step_without_input:
            return "loader"
        return "copy" if (self.copy_seconds or 0.0) > self.gpu_seconds else "gpu"


def workers_to_hide(load: float, rest: float) -> int:
    """The smallest number of data-loader workers with which a step takes only the `rest` of its time.

    `load` and `rest` are times of a step without workers, in one unit: fetching its batch, and everything else. Each
    worker takes `load` for a batch, so W workers have a batch ready every load / W.
    """
    return ceil(load / rest)


def loader_options(loader: float | str | None, workers: int | None, copy: CopyMode | None) -> Loader | None:
    """The data loader that the options describe; None without `--loader`. Raises WorkloadError for invalid values."""
    if loader is None:
        for name, value in (("workers", workers), ("copy", copy)):
            if value is not None:
                raise WorkloadError(
                    Option(name, value), " needs the time of a batch: add ", Option("loader", "1500ms")
                )  # fmt: skip
        return None
    if workers is not None:
        check_whole_number("workers", workers, 0, MAX_WORKERS)
    return Loader(seconds_of("loader", loader, "1500ms"), workers or 0, copy or "pageable")


def input_pipeline(arch: Architecture, device: Device, phase: PhaseEstimate, loader: Loader) -> InputPipeline:
    """The phase with its data loader: the expected time of the phase, or its bound where there is none."""
    size, link = batch_bytes(arch, phase), device.host_bandwidth
    rate = link if link is None or loader.copy != "pageable" else min(link, PAGEABLE_BANDWIDTH)
    seconds = phase.bound_seconds if phase.expected is None else phase.expected.value
    return InputPipeline(
        loader, size, rate and size / rate, float(plain(seconds)), is_expected=phase.expected is not None
    )


def batch_bytes(arch: Architecture, phase: PhaseEstimate) -> int:
    """Bytes of a GPU's batch as the loader returns it: fp32 pixels or int64 token ids; labels are left out."""
    from roofmodel.models.architecture import Network, Patches

    step = phase.step
    if phase.is_vision:
        body: Any = arch.body if isinstance(arch.body, Network) else arch.stack.embedding
        assert isinstance(body, Network | Patches)
        rows, columns = step.image
        size = body.channels * rows * columns * PIXEL_BYTES
    else:
        size = step.tokens * TOKEN_BYTES + (step.source * _source_bytes(arch) if arch.encoder else 0)
    return step.microbatches * step.batch * size  # type: ignore[no-any-return]


def _source_bytes(arch: Architecture) -> int:
    """Bytes of the input of an encoder token: an id, or the audio frames that become one token."""
    from roofmodel.models.architecture import Embedding

    embedding = arch.encoder.embedding if arch.encoder else None
    if isinstance(embedding, Embedding) and embedding.frame_convolutions:
        frames = prod(convolution.stride for convolution in embedding.frame_convolutions)
        return frames * embedding.frame_convolutions[0].channels * FRAME_BYTES  # type: ignore[no-any-return]
    return TOKEN_BYTES


def input_notes(pipeline: InputPipeline | None, device: Device) -> Iterator[Text]:
    """What the times of the input pipeline assume; without one, that its options do not apply to the phase."""
    if pipeline is None:
        yield ignored("loader", Message("only ", Option("phase", FED_PHASES), " read batches from a data loader"))
        return
    yield AnswerNote(
        "the rate with a data loader is an upper bound: its workers are assumed not to share cores, disks or memory "
        "bandwidth"
    )
    if pipeline.copy_seconds is None:
        size = units.si(pipeline.copy_bytes, "B")
        yield AnswerNote(f"{device.id} states no link to the CPU: the copy of {size} per batch is not counted")
