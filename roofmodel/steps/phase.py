"""The estimate of a phase on a device: each operator on the roofline, and the totals over all operators.

The same code takes the ints of one workload and the arrays of a sweep.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce
from operator import add, or_
from typing import TYPE_CHECKING, Any, NamedTuple

from roofmodel.counting import phases
from roofmodel.counting.operator import Cost, Operator
from roofmodel.counting.workload import NO_IMAGE, Step
from roofmodel.devices.device import Device
from roofmodel.engines.engine import Engine, Host
from roofmodel.models.architecture import Architecture, ReferenceCode
from roofmodel.numbers.algebra import Number, either, is_just, maximum, plain, whole
from roofmodel.steps.placed import (
    NO_TIME,
    Placed,
    ReplicaTimes,
    launches,
    placed,
    sum_of,
    total_cost,
    total_seconds,
    totals_of,
)
from roofmodel.timing.engine import Timing
from roofmodel.timing.timing import Expected

if TYPE_CHECKING:
    from roofmodel.steps.similar_steps import SimilarSteps


class StageTime(NamedTuple):
    """A time of a pipeline stage: the bound, and the expected time (None where it is unknown)."""

    bound: Number = 0.0
    expected: Expected | None = NO_TIME


class Uncached(NamedTuple):
    """Generation without a KV cache: a stage's operators, and the bound through all stages, idle time included."""

    placed: tuple[Placed, ...]
    bound_seconds: Number


class PhaseEstimate(NamedTuple):
    """A phase: its operators on the roofline, and its totals over all occurrences."""

    step: Step
    placed: tuple[Placed, ...]
    all_pairs_matmul_flops: Number  # of eager attention, which computes masked pairs too
    model_flops: Number  # of these, all but recomputation (PaLM, arXiv 2204.02311, appendix B)
    ceilings: tuple[float, float] = (1.0, 1.0)  # FLOP/s of the matmul pipe, bytes per second of DRAM
    code: ReferenceCode = ReferenceCode()  # of the model
    kernel_seconds: Expected | None = None  # the sum over all kernels; None where one is unknown
    launch: Expected = NO_TIME  # of one kernel by the host; none with CUDA graphs
    host: Host = Host()  # of a step of a serving engine
    uncached: Uncached | None = None  # generation: the same without a KV cache
    first_and_last: tuple[StageTime, ...] = ()  # generation: its first and its last decode
    idle: StageTime = StageTime()  # while the GPU waits for other pipeline stages
    stage_times: tuple[tuple[str, StageTime, StageTime], ...] = ()
    """Part of the phase, time of one microbatch on this stage, time through all stages."""
    replicas: ReplicaTimes = ReplicaTimes()  # data-parallel training
    buffers: int = 0  # of batch norms

    @property
    def stages(self) -> tuple[str, ...]:
        """The stages in order: prefill and decodes; forward, backward and optimizer; none in a single pass."""
        return tuple(name for name in dict.fromkeys(placed.operator.stage for placed in self.placed) if name)

    def of_stage(self, stage: str) -> list[Placed]:
        """The operators of one stage."""
        return [placed for placed in self.placed if placed.operator.stage == stage]

    @property
    def operators(self) -> list[Operator]:
        return [placed.operator for placed in self.placed]

    @property
    def cost(self) -> Cost:
        return total_cost(self.placed)

    @property
    def bound_seconds(self) -> Number:
        return total_seconds(self.placed) + self.idle.bound - self.replicas.hidden_bound

    @property
    def memory_seconds(self) -> Number:
        """The part of the bound that DRAM bandwidth limits."""
        ceilings = ((p.placement.bound_seconds > p.placement.memory_seconds, p.seconds) for p in self.placed)
        return sum(either(other, 0.0, seconds) for other, seconds in ceilings)

    @property
    def link_seconds(self) -> Number:
        """The part of the bound that the link to other GPUs limits."""
        ceilings = ((p.placement.link_seconds == p.placement.bound_seconds, p.seconds) for p in self.exchanges)
        return sum(either(link, seconds, 0.0) for link, seconds in ceilings) - self.replicas.hidden_bound

    @property
    def bound_parts(self) -> dict[str, Number]:
        """The parts of the bound that the ceilings limit. The rest is the wait for other pipeline stages."""
        memory, links = self.memory_seconds, self.link_seconds
        compute = self.bound_seconds - memory - links - self.idle.bound
        return {"memory": memory, "compute": compute, "communication": links}

    @property
    def limit(self) -> str:
        """`overhead` if the host limits the phase, else the ceiling that limits most of the bound."""
        parts = self.bound_parts
        return "overhead" if self.host_bound else max(parts, key=lambda name: plain(parts[name]))

    @property
    def exchanges(self) -> tuple[Placed, ...]:
        """The collectives, with several GPUs."""
        return tuple(placed for placed in self.placed if placed.operator.collective)

    @property
    def kernels(self) -> Number:
        """The number of kernels: one per operator."""
        return launches(self.placed)

    @property
    def busy(self) -> Expected | None:
        """The time of its kernels, or of the host's launches if that is longer.

        For generation, of each stage: no decode is launched before the prefill has computed the first token.
        """
        return _sum([self.with_host(seconds, part) for part, seconds in self._without_host])

    @property
    def _without_host(self) -> list[tuple[str, Expected | None]]:
        """The parts that run one after another, with the time of each without a serving engine's host."""
        if self.step.phase != "generate":
            return [(self.step.phase, _longer(self.work_seconds, self.kernels * self.launch))]
        return [(stage, running(self.of_stage(stage), self.launch)) for stage in self.stages]

    def host_seconds(self, part: str) -> Number:
        """Seconds of a serving engine's host in a part: a phase, or the prefill or the decodes of generation."""
        host, step = self.host, self.step
        if host == Host() or step.phase == "train":
            return 0.0
        sequences, passes = step.microbatches * step.batch, step.passes - 1 if part == "decodes" else 1
        prompt = 0 if part in ("decode", "decodes") else sequences * step.tokens
        if step.chunk:
            prompt = prompt + step.chunk.batch * step.chunk.tokens
        return passes * (step.microbatches * host.step + host.sequence * sequences) + host.prompt_token * prompt

    def with_host(self, seconds: Expected | None, part: str) -> Expected | None:
        """The time of a part with that of the host, which overlaps or is added."""
        host = self.host_seconds(part)
        if seconds is None or is_just(host, 0):
            return seconds
        return Expected(*(maximum(each, host) if self.host.overlapped else each + host for each in seconds))

    @property
    def exposed_host_seconds(self) -> Number:
        """What a serving engine's host adds to the expected time of the kernels."""
        busy, kernels = self.busy, _sum([seconds for _, seconds in self._without_host])
        return busy.value - kernels.value if busy and kernels else 0.0

    @property
    def work_seconds(self) -> Expected | None:
        """The time of its kernels and of the wrapper of data-parallel replicas, without the hidden communication."""
        added, hidden = self.replicas.added, self.replicas.hidden
        kernels = hidden and (self.kernel_seconds if hidden is NO_TIME else sum_of(self.placed, hidden))
        return kernels and added and kernels + added

    @property
    def expected(self) -> Expected | None:
        """The expected time of the phase: busy and idle time."""
        idle, busy = self.idle.expected, self.busy
        return busy and idle and busy + idle

    def waits_for_host(self, part: str, seconds: Expected | None) -> Any:
        """Whether a serving engine's host takes longer for a part than the kernels that it overlaps with."""
        return seconds is not None and self.host.overlapped and self.host_seconds(part) > seconds.value

    @property
    def host_bound(self) -> Any:
        """Whether the host limits the phase: its launches, or what it prepares while the kernels run, take longer than
        the kernels. The host limits generation if it limits its prefill or its decodes."""
        if not self.host.overlapped:
            return self.launch_bound
        return reduce(or_, (self.waits_for_host(*part) for part in self._without_host), self.launch_bound)

    @property
    def launch_bound(self) -> Any:
        """Whether the phase is launch-bound: the host launches kernels more slowly than the device runs them.

        Generation is launch-bound if its prefill or its decodes are.
        """
        if self.step.phase != "generate":
            return is_launch_bound(self.work_seconds, self.kernels * self.launch)
        groups = (self.of_stage(stage) for stage in self.stages)
        return reduce(or_, (is_launch_bound(sum_of(each), launches(each) * self.launch) for each in groups))

    @property
    def tokens(self) -> Number:
        """New tokens over the batch of all GPUs: the pass's input with the encoder's, or the output of generation."""
        step = self.step
        if step.phase == "generate":
            return self.sequences * (step.passes - 1)
        return self.sequences * (step.tokens + (step.source if not is_just(step.source, 0) and step.encodes else 0))

    @property
    def sequences(self) -> Number:
        """The batch of all GPUs."""
        return self.step.microbatches * self.step.batch * self.step.parallel.dp

    @property
    def is_vision(self) -> bool:
        """Whether the input is images, one per sequence of the batch."""
        return self.step.image != NO_IMAGE

    @property
    def has_tokens(self) -> bool:
        """Whether input or output are tokens; a convolutional network has none."""
        return not is_just(self.step.tokens, 0)


def phase_estimate(
    arch: Architecture, device: Device, step: Step, engine: Engine, similar: SimilarSteps | None = None
) -> PhaseEstimate:
    """A phase on a GPU of the pipeline stage that the step names.

    `similar` are training steps with which it shares counts and times. Raises WorkloadError where the device does not
    support the compute format.
    """
    dtype = step.widths.compute
    operators, eager = (
        similar.share(step).operators_and_eager(step) if similar else phases.operators_and_eager(arch, step)
    )
    flops = [(op.stage, whole(op.count * op.matmul_flops)) for op in eager]
    phase = PhaseEstimate(
        step,
        tuple(Placed(op, similar.placement(op)) for op in operators) if similar else placed(operators, device, dtype),
        all_pairs_matmul_flops=sum(each for _, each in flops),
        model_flops=sum(each for stage, each in flops if stage != "recomputation"),
        ceilings=(device.matmul_pipe(dtype).peak, device.bandwidth),
        code=arch.code if step.phase == "train" else ReferenceCode(fp32_softmax=arch.code.fp32_softmax),
        buffers=_buffers(arch) if step.phase == "train" else 0,
    )
    return timed(phase, Timing(device, engine), similar)


def _buffers(arch: Architecture) -> int:
    from roofmodel.steps.replicas import batch_norm_buffers

    return batch_norm_buffers(arch)


def pass_time(
    arch: Architecture, device: Device, step: Step, engine: Engine, operators: Iterable[Operator]
) -> StageTime:
    """Bound and expected time of one inference pass on a GPU, from its operators."""
    on_device = placed(operators, device, step.widths.compute)
    phase = PhaseEstimate(step, on_device, 0, 0, code=ReferenceCode(fp32_softmax=arch.code.fp32_softmax))
    timed_phase = timed(phase, Timing(device, engine))
    return StageTime(timed_phase.bound_seconds, timed_phase.expected)


def timed(phase: PhaseEstimate, timing: Timing, similar: SimilarSteps | None = None) -> PhaseEstimate:
    """The phase with expected times in an engine on a device."""
    dtype, engine = phase.step.widths.compute, timing.engine
    placements = [operator.placement for operator in phase.placed]
    runs = timing.runs(phase.operators, placements, dtype, phase.code, similar.run if similar else None)
    placed = [
        operator._replace(expected=run.expected, run=run) for operator, run in zip(phase.placed, runs, strict=True)
    ]
    launch = NO_TIME if engine.launch is None else Expected(*engine.launch)
    if phase.step.parallel.wrapper == "dataparallel":  # one interpreter launches the kernels of all replicas
        launch = phase.step.parallel.dp * launch
    replicas = ReplicaTimes()
    if phase.step.phase == "train":
        from roofmodel.steps.replicas import with_replicas

        placed, replicas = with_replicas(placed, phase.step, timing, phase.buffers)
    return phase._replace(
        placed=tuple(placed), kernel_seconds=sum_of(placed), launch=launch, replicas=replicas, host=engine.host
    )


# --- Totals -----------------------------------------------------------------------------------------


def running(placed: Sequence[Placed], launch: Expected) -> Expected | None:
    """The expected time of these kernels, or of their launches by the host if that is longer."""
    return _longer(sum_of(placed), launches(placed) * launch)


def is_launch_bound(kernel_seconds: Expected | None, launch_seconds: Expected) -> Any:
    """Whether the launches of kernels take longer than the kernels; elementwise for arrays."""
    return kernel_seconds is not None and launch_seconds.value > kernel_seconds.value


def _sum(times: Sequence[Expected | None]) -> Expected | None:
    """The sum of times; None where one is unknown."""
    known_times = [time for time in times if time]
    return reduce(add, known_times) if len(known_times) == len(times) else None


def _longer(kernels: Expected | None, launches: Expected) -> Expected | None:
    return kernels and Expected(*map(maximum, kernels, launches))


def totals(phase: PhaseEstimate) -> dict[str, Any]:
    """A phase's totals by their JSON keys, in base units; None for unknown.

    `mfu` and `hfu` are model and hardware FLOPs utilization (PaLM, arXiv 2204.02311, appendix B): model FLOPs include
    masked pairs and exclude recomputation; hardware FLOPs are the executed ones. `mbu` is the same for memory
    bandwidth.
    """
    values = totals_of(phase.placed) | {"bound_seconds": phase.bound_seconds}
    expected, (peak, bandwidth) = phase.expected, phase.ceilings
    exchanged, hidden, added = sum_of(phase.exchanges), phase.replicas.hidden, phase.replicas.added
    seconds, images = expected and plain(expected.value), phase.sequences
    return {
        **values,
        **expected_totals(expected),
        "bound_tokens_per_second": phase.tokens / values["bound_seconds"] if phase.has_tokens else None,
        **({"bound_images_per_second": images / values["bound_seconds"]} if phase.is_vision else {}),
        "tokens_per_second": phase.tokens / seconds if expected and phase.has_tokens else None,
        **({"images_per_second": expected and images / seconds} if phase.is_vision else {}),
        "mfu": expected and plain(phase.model_flops) / seconds / peak,
        "hfu": expected and plain(values["matmul_flops"]) / seconds / peak,
        "mbu": expected and plain(values["bytes"]) / seconds / bandwidth,
        "communication_seconds": total_seconds(phase.exchanges),
        "expected_communication_seconds": exchanged and plain(exchanged.value),
        "communication_exposed_seconds": total_seconds(phase.exchanges) - phase.replicas.hidden_bound,
        "expected_communication_exposed_seconds": exchanged and hidden and plain(exchanged.value) - plain(hidden.value),
        "expected_replica_seconds": added and plain(added.value),
        "bubble_seconds": phase.idle.bound,
        "expected_bubble_seconds": phase.idle.expected and plain(phase.idle.expected.value),
        "expected_host_seconds": expected and plain(phase.exposed_host_seconds),
        "kernels": phase.kernels,
        "host_bound": phase.host_bound if expected else None,
        "matmul_flops_all_pairs": phase.all_pairs_matmul_flops,
    }


def expected_totals(expected: Expected | None) -> dict[str, Any]:
    """An expected time and the ends of its interval by their JSON keys."""
    return {
        "expected_seconds": expected and plain(expected.value),
        "expected_low_seconds": expected and plain(expected.low),
        "expected_high_seconds": expected and plain(expected.high),
    }
