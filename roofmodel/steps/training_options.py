"""The options of a training step that are checked against each other, a measured step, and a run with failures."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from roofmodel.counting.tensors import number_format
from roofmodel.counting.training.step import MOMENTS, optimizer_state_bytes
from roofmodel.counting.workload import FULL, Adapters, Step, Workload
from roofmodel.errors import AnswerNote, Message, Option, Text, WorkloadError, choices, ignored, shorten
from roofmodel.models.architecture import Architecture, Network
from roofmodel.models.layers import Attention, AttentionPart, CompressedAttention, LatentAttention, MoE, Part
from roofmodel.numbers.algebra import Number, ceil_div, plain
from roofmodel.options.values import number_of_tokens, seconds_of
from roofmodel.options.workload import Options

if TYPE_CHECKING:
    from roofmodel.steps.phase import PhaseEstimate

MIN_TRAINING_BITS = 16
ALL_LINEAR = "all-linear"
"""The value of `--lora-targets` for all linear layers, as in PEFT."""
MEASURED_TIME, MEASURED_RATE = "7.4s", "12000tokens/s"
"""Examples of the option."""
_RATE = re.compile(r"\s*(\d{1,15}(?:\.\d{1,15})?)\s*([kM]?)\s*tokens/s\s*\Z")
_FACTORS = {"": 1, "k": 1e3, "M": 1e6}


def training_notes(arch: Architecture, options: Options, casts: bool, recipe: str | None = None) -> Iterator[Text]:
    """Limits of the training options, and what a recipe with GEMMs below 16 bits narrows.

    Raises WorkloadError for a format that is too narrow to train in.
    """
    if recipe is None:
        check_training_format("dtype", options.dtype)
    elif options.lora is not None:
        raise WorkloadError(
            Option("lora", options.lora), f": adapters beside GEMMs in {recipe} are not modeled; try ",
            Option("dtype", "bf16"),
        )  # fmt: skip
    if options.lora is None:
        check_training_format("weights", options.weights or options.dtype)
    optimizer = options.optimizer or "adam"
    if optimizer == "adam8bit" and options.states not in (None, "int8"):
        raise WorkloadError(
            Option("states", options.states), ": the moments of ", Option("optimizer", optimizer), " are int8; try ",
            Option("optimizer", "adam"),
        )  # fmt: skip
    weights = options.weights or options.dtype
    if number_format(weights).bits < MIN_TRAINING_BITS:
        yield (
            f"GEMMs are counted as reading weights in {weights}; bitsandbytes first writes them to memory in 16 bits, "
            "forward and backward, which is not counted"
        )
    if (
        options.zero == FULL
        and options.dp * options.cp > 1
        and options.lora is None
        and number_format(weights).bits == 16
    ):
        yield Message(
            f"weights are sharded in {weights}, with fp32 master weights in the optimizer; PyTorch's FSDP shards fp32 "
            "weights, which it gathers in the compute format: ", Option("weights", "fp32"),
        )  # fmt: skip
    if recipe is not None:
        yield from _recipe_notes(recipe, weights)
    if options.states and not MOMENTS[optimizer]:
        yield ignored("states", Message(Option("optimizer", optimizer), " has no moments"))
    if casts:
        yield (
            "activations kept for the backward pass are counted in 16 bits; autocast keeps outputs of norms, softmax "
            "and sums in fp32, and their cast copies"
        )
    parts = () if isinstance(arch.body, Network) else arch.stack.parts
    if options.recompute == "selective" and not any(isinstance(part, AttentionPart) for part in parts):
        yield Message(Option("recompute", "selective"), f" changes nothing: {arch.name} has no attention")
    elif options.recompute == "selective" and options.attention == "flash":
        yield Message(
            Option("recompute", "selective"), " changes nothing: flash attention always recomputes the scores"
        )
    if options.recompute == "selective:moe" and not any(isinstance(part, MoE) for part in parts):
        yield Message(Option("recompute", "selective:moe"), f" changes nothing: {arch.name} has no experts")
    if any(_has_indexer(part) for part in parts):
        yield (
            "the indexer receives no gradient, as in the reference code; its own training loss is not counted, its "
            "optimizer state is"
        )


def _recipe_notes(recipe: str, weights: str) -> Iterator[str]:
    yield (
        f"GEMMs of the layers multiply in {recipe}, forward and backward; the head, the router of experts, embeddings, "
        f"attention, norms, softmax, the loss and gradients stay in {weights}, the optimizer in fp32"
    )
    reads = "a kernel that reads it for its largest magnitude, and " if recipe in ("fp8", "nvfp4") else ""
    yield (
        f"each input of a narrow GEMM has {reads}a cast that writes two copies, along rows and columns; weights keep "
        "both in memory. Engines fuse some of these casts into norms and activations, and delayed scaling reads no "
        "tensor twice, which is not counted"
    )


def adapters_of(arch: Architecture, options: Options) -> Adapters | None:
    """The low-rank adapters of the options.

    Raises WorkloadError for a model or a layout for which they are not modeled, and for an unknown linear layer.
    """
    if options.lora is None:
        if options.lora_targets is not None:
            raise WorkloadError(Option("lora_targets", options.lora_targets), " needs a rank; try ", Option("lora", 16))
        return None
    if isinstance(arch.body, Network) or arch.encoder:
        kind = "is a convolutional network" if isinstance(arch.body, Network) else "is an encoder-decoder"
        raise WorkloadError(
            Option("lora", options.lora), f": {arch.name} {kind}, for which adapters are not modeled; remove the option"
        )
    if options.tp > 1:
        raise WorkloadError(
            Option("lora", options.lora), ": adapters of layers that GPUs share are not modeled; try ", Option("tp", 1)
        )
    from roofmodel.counting import blocks
    from roofmodel.counting.layers.adapters import targets

    given = () if options.lora_targets in (None, ALL_LINEAR) else tuple(re.split(r"[+,]", options.lora_targets))
    known = targets(blocks.operators(arch, Workload(("train",), seq=1).step("train")))
    for name in given:
        if name not in known:
            raise WorkloadError(
                Option("lora_targets"), f": {arch.name} has no linear layer {shorten(name)}"
                f"{choices(name, (ALL_LINEAR, *known))}",
            )  # fmt: skip
    return Adapters(options.lora, given)


def _has_indexer(part: Part) -> bool:
    if isinstance(part, LatentAttention | CompressedAttention):
        return part.indexer is not None
    return isinstance(part, Attention) and part.selection is not None


def check_training_format(option: str, name: str) -> None:
    """Raises WorkloadError for a format that is too narrow to train in."""
    if number_format(name).bits >= MIN_TRAINING_BITS:
        return
    if option == "dtype":
        others: tuple[Text, ...] = (
            Option("dtype", "bf16"),
            " or ",
            Option("dtype", "nvfp4" if name == "fp4" else "fp8"),
        )
    else:
        others = (Option(option, "bf16"), ", or frozen weights with ", Option("lora", 16))
    raise WorkloadError(Option(option, name), f": training in {name} is not modeled; try ", *others)


# --- A measured step ---------------------------------------------------------------------------------


class MeasuredStep(NamedTuple):
    """A measured step; the fields are the JSON keys."""

    step_seconds: float
    tokens_per_second_per_gpu: float | None  # None for images
    mfu: float  # as in the totals of the estimate, at the measured time
    to_expected: float | None  # measured / expected time; None where no time is expected


def measured_step(phases: Sequence[PhaseEstimate], value: float | str) -> MeasuredStep:
    """A measured training step from its time, or from its tokens per second and GPU.

    Raises WorkloadError for another phase than training, and for another value.
    """
    phase = phases[0]
    if phase.step.phase != "train":
        raise WorkloadError(
            Option("measured", value), " is the time of a training step; try ", Option("phase", "train")
        )
    gpus = phase.step.parallel.gpus
    rate = _RATE.match(value) if isinstance(value, str) else None
    tokens = float(plain(phase.tokens)) / gpus if phase.has_tokens else None
    if rate and tokens is None:
        raise WorkloadError(
            Option("measured", value),
            ": the model reads no tokens; try ",
            Option("measured", MEASURED_TIME),
        )
    if rate and tokens and (per_second := float(rate[1]) * _FACTORS[rate[2]]) > 0:
        seconds = tokens / per_second
    elif isinstance(value, str) and "/" in value:
        raise WorkloadError(
            Option("measured", value), " is no time and no rate above 0; try ", Option("measured", MEASURED_TIME),
            " or ", Option("measured", MEASURED_RATE),
        )  # fmt: skip
    else:
        seconds = seconds_of("measured", value, MEASURED_TIME)
    expected = phase.expected and float(plain(phase.expected.value))
    return MeasuredStep(
        seconds,
        None if tokens is None else tokens / seconds,
        float(plain(phase.mean_flops.model)) / seconds / phase.ceilings[0],
        expected and seconds / expected,
    )


# --- A run with failures -----------------------------------------------------------------------------

DAY = 86400  # seconds
MTBF, CHECKPOINT_TIME = 50000, "60s"
"""Examples of the options: hours between failures of one GPU, and the time of a checkpoint."""
MAX_MTBF = 1e9  # hours


class Goodput(NamedTuple):
    """The useful share of a run that fails and restarts from checkpoints; the fields are the JSON keys.

    The run writes a checkpoint after every `interval_seconds` of training, and fails every `failure_seconds` on average
    (of all GPUs). `checkpoint_bytes` are those that one GPU writes.
    """

    share: float
    interval_seconds: float
    checkpoint_seconds: float
    failure_seconds: float
    checkpoint_bytes: int
    tokens_per_second: float | None  # expected, of all GPUs; None for images, and where no time is expected

    @property
    def makes_progress(self) -> bool:
        """Whether more than a ten-thousandth of the time is useful."""
        return self.share > 1e-4


def goodput(
    arch: Architecture, phases: Sequence[PhaseEstimate], mtbf: float | None, checkpoint_time: float | str | None
) -> Goodput:
    """The useful share of a training run from the hours between failures of a GPU and the time of a checkpoint.

    Raises WorkloadError for another phase than training, for one option without the other, and for other values.
    """
    phase = phases[0]
    name, value = ("mtbf", mtbf) if mtbf is not None else ("checkpoint_time", checkpoint_time)
    if phase.step.phase != "train":
        raise WorkloadError(Option(name, value), " is of a training run; try ", Option("phase", "train"))
    if mtbf is None or checkpoint_time is None:
        other = Option("checkpoint_time", CHECKPOINT_TIME) if checkpoint_time is None else Option("mtbf", MTBF)
        raise WorkloadError(Option(name, value), " needs another option; add ", other)
    if isinstance(mtbf, bool) or not isinstance(mtbf, int | float) or not 0 < mtbf <= MAX_MTBF:
        raise WorkloadError(
            Option("mtbf"), f" is {shorten(mtbf)}; it must be hours above 0 and at most {MAX_MTBF:g}; try ",
            Option("mtbf", MTBF),
        )  # fmt: skip
    checkpoint = seconds_of("checkpoint_time", checkpoint_time, CHECKPOINT_TIME)
    failure = mtbf * 3600 / int(phase.step.parallel.gpus)
    interval = checkpoint_interval(checkpoint, failure)
    share = useful_share(interval, checkpoint, failure)
    expected = phase.expected and float(plain(phase.expected.value))
    tokens = float(plain(phase.tokens)) if phase.has_tokens else None
    return Goodput(
        share, interval, checkpoint, failure, _checkpoint_bytes(arch, phase.step),
        tokens and expected and share * tokens / expected,
    )  # fmt: skip


class TrainingLength(NamedTuple):
    """Steps and time of a run of so many tokens, with failures if their rate is given; the fields are the JSON keys.

    The days have an interval of 80 %; they are None where no time is expected, or where the run makes no progress.
    """

    tokens: float
    steps: float
    days: float | None
    days_low: float | None
    days_high: float | None
    gpu_hours: float | None


def training_length(
    arch: Architecture, phases: Sequence[PhaseEstimate], tokens: float | str, failing: Goodput | None
) -> TrainingLength:
    """The length of a run, with failures where these are given. Raises WorkloadError for another phase than
    training, for a model without tokens, and for a value that is no number of tokens."""
    phase, total = phases[0], number_of_tokens("tokens", tokens)
    if phase.step.phase != "train":
        raise WorkloadError(Option("tokens", tokens), " is of a training run; try ", Option("phase", "train"))
    if not phase.has_tokens:
        raise WorkloadError(Option("tokens", tokens), f": {arch.name} reads images, not tokens; remove the option")
    steps = total / float(plain(phase.tokens))
    share = 1.0 if failing is None else failing.share
    if phase.expected is None or (failing and not failing.makes_progress):
        return TrainingLength(total, steps, None, None, None, None)
    days, low, high = (steps * float(plain(seconds)) / share / DAY for seconds in phase.expected)
    return TrainingLength(total, steps, days, low, high, 24 * days * int(phase.step.parallel.gpus))


def checkpoint_interval(checkpoint: float, failure: float) -> float:
    """Seconds of work between checkpoints of `checkpoint` seconds that lose the least, if a run fails every `failure`.

    Young's sqrt(2 x checkpoint x failure) with the next terms of Daly (A higher order estimate of the optimum
    checkpoint interval for restart dumps, Future Generation Computer Systems 22, 2006, eq. 37).
    """
    if checkpoint >= 2 * failure:
        return failure
    ratio = checkpoint / (2 * failure)
    return math.sqrt(2 * checkpoint * failure) * (1 + math.sqrt(ratio) / 3 + ratio / 9) - checkpoint


def useful_share(interval: float, checkpoint: float, failure: float) -> float:
    """The share of a run's time that computes steps which are kept (Daly, eq. 20, with exponentially distributed
    failures). A restart reads the checkpoint in the time that writing it takes."""
    try:
        return interval / (failure * math.exp(checkpoint / failure) * math.expm1((interval + checkpoint) / failure))
    except OverflowError:
        return 0.0


def _checkpoint_bytes(arch: Architecture, step: Step) -> int:
    """Bytes of trained weights and optimizer state that one GPU writes, if replicas with the same ones divide them."""
    from roofmodel.counting.phases import training_step

    total: Number = 0
    for each in training_step(arch, step).sets:
        own = ceil_div(each.elements, each.gpus)
        states = 0 if step.optimizer is None else optimizer_state_bytes(own, step.trained_widths, step.optimizer)
        total = total + step.trained_widths.weights.bytes(own) + states
    return int(total)


def goodput_note() -> AnswerNote:
    """What the useful share of a run leaves out."""
    return AnswerNote(
        "goodput: the run stops for each checkpoint, and a restart reads one in the same time; the time until a "
        "failure is noticed and a GPU replaced is not counted, and asynchronous checkpoints lose less"
    )
