"""A candidate of a training plan: a layout with its choices and microbatch, its time per step, its memory and price."""

from __future__ import annotations

from typing import NamedTuple

from roofmodel.engines.engine import Engine
from roofmodel.numbers.algebra import Number
from roofmodel.options.values import EngineName
from roofmodel.plan.candidate import Shares, is_bound
from roofmodel.plan.layouts import Layout
from roofmodel.plan.ranking import layout_text
from roofmodel.timing.timing import Expected

DAY = 86400


class TrainingRun(NamedTuple):
    """A training run: tokens of all steps, sequences of a step, tokens of a sequence."""

    tokens: float
    batch: int
    seq: int
    gpus: int  # at most
    dtype: str
    attention: str
    memory_utilization: float
    engine: EngineName
    engine_option: tuple[tuple[str, str], ...] = ()

    @property
    def engine_id(self) -> str:
        """The name of the engine in documents."""
        return Engine.load(self.engine).id

    @property
    def steps(self) -> float:
        """The number of steps."""
        return self.tokens / (self.batch * self.seq)


class Choices(NamedTuple):
    """The options of a layout apart from its sizes and the microbatch.

    `vpp`: the number of model parts per pipeline stage. `zero`: 1 if the replicas shard the optimizer state, else 0.
    """

    vpp: int
    recompute: str
    sequence_parallel: str
    zero: int


class TrainingCandidate(NamedTuple):
    """A layout with its best microbatch: seconds of a step, model FLOPs utilization, bytes per GPU."""

    device: str
    layout: Layout
    choices: Choices
    micro_batch: int
    step: Expected
    mfu: float | None
    memory: Number
    usable: Number | None
    shares: Shares
    run: TrainingRun
    price: float | None = None  # dollars per hour and GPU

    @property
    def calibrated(self) -> bool:
        """Whether its times are expected ones; otherwise they are lower bounds."""
        return not is_bound(self.step)

    @property
    def gpus(self) -> int:
        """The number of GPUs that the layout uses."""
        return self.layout.gpus

    @property
    def per_gpu(self) -> Expected:
        """Tokens per second and GPU."""
        tokens = self.run.batch * self.run.seq / self.gpus
        return Expected(*(tokens / seconds for seconds in (self.step.value, self.step.high, self.step.low)))

    @property
    def days(self) -> Expected:
        """Days of the run."""
        return Expected(*(self.run.steps * seconds / DAY for seconds in self.step))

    @property
    def dollars(self) -> float | None:
        """The price of the run."""
        return None if self.price is None else self.price * self.gpus * 24 * self.days.value


def schedule(choices: Choices) -> str:
    """The number of model parts per pipeline stage as text."""
    return f"{choices.vpp} model {'parts' if choices.vpp > 1 else 'part'} per stage"


def training_name(candidate: TrainingCandidate) -> str:
    """The layout, and what it does to save memory: `tp 8 pp 4 dp 2 vpp 2, full recomputation`."""
    words = [training_layout(candidate)]
    words += [f"{candidate.choices.recompute} recomputation"] * (candidate.choices.recompute != "none")
    words += ["sequence parallel"] * (candidate.choices.sequence_parallel == "on")
    words += [f"ZeRO-{candidate.choices.zero}"] * (candidate.choices.zero > 0)
    return ", ".join(words)


def training_layout(candidate: TrainingCandidate) -> str:
    """The sizes above 1 of the layout and of the pipeline schedule: `tp 8 pp 4 dp 2 vpp 2`."""
    return layout_text(candidate.layout) + (f" vpp {candidate.choices.vpp}" if candidate.choices.vpp > 1 else "")
