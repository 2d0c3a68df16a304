"""The estimate of a phase on a device: its operators on the roofline, its totals, its pipeline stages, and its parts.

The same code takes the ints of one workload and the arrays of a sweep.

Pipeline parallelism: a stage takes t for a microbatch, forward and backward where it trains, with what it sends to its
neighbors. T is the sum of these times over all stages: the pipeline latency of one microbatch. For m microbatches the
slowest stage sets the pace, and idles while the pipeline fills and drains:

    m t + (T - t) / v

That is (m + p - 1) t where p stages take equally long: the bubble is (p - 1) / m of the time without it, and v model
chunks per stage (interleaved schedule) divide it by v (Narayanan et al., arXiv 2104.04473, section 2.2). Decodes form
a pipeline too: the next token of a microbatch starts when the last stage has finished the previous one: max(m t, T).

The estimate is that of the stage with the longest bound, so that its FLOPs and bytes do not depend on the engine. Where
these times are longer for another stage, because its kernels are slow in an engine, the stage waits for the difference.

Work that runs once per step (gradient exchange and optimizer) is added. Sends do not overlap in an expected time. A
bound is the larger of the sum of the collectives and that of the other operators, because engines overlap them.

The parts of a phase are prefill and decodes of generation, or forward, backward and optimizer. The prefill gives the
first token, and each decode one token more:

    TTFT = time of the prefill
    TPOT = (time of generation - TTFT) / decodes

Inference engines define TPOT in this way: the N tokens of an answer take N - 1 decodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from operator import add, or_, sub
from typing import TYPE_CHECKING, Any, NamedTuple

from roofmodel.counting import phases
from roofmodel.counting.operator import Cost, Operator
from roofmodel.counting.phases import distinct_stages, operators_without_cache
from roofmodel.counting.workload import NO_IMAGE, Step
from roofmodel.devices.device import Device
from roofmodel.devices.parts import Power
from roofmodel.engines.engine import Engine
from roofmodel.engines.engine_file import Host
from roofmodel.models.architecture import Architecture, ReferenceCode
from roofmodel.numbers.algebra import Number, either, is_just, maximum, minimum, plain, whole
from roofmodel.steps.placed import (
    NO_TIME,
    Placed,
    ReplicaTimes,
    by_kernel,
    hidden_of,
    launches,
    placed,
    seconds_by_kind,
    sum_of,
    total_cost,
    total_seconds,
    with_power,
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


class GpuFlops(NamedTuple):
    """Matmul FLOPs of one GPU, as the mean over the pipeline stages: of the model without recomputation, with unmasked
    and with all query-key pairs (PaLM, arXiv 2204.02311, appendix B); and those that are executed."""

    model: Number = 0
    all_pairs: Number = 0
    executed: Number = 0


class PhaseEstimate(NamedTuple):
    """A phase: its operators on the roofline, and its totals over all occurrences."""

    step: Step
    placed: tuple[Placed, ...]
    all_pairs_matmul_flops: Number = 0  # of eager attention, which computes masked pairs too
    mean_flops: GpuFlops = GpuFlops()
    ceilings: tuple[float, float] = (1.0, 1.0)  # FLOP/s of the matmul pipe, bytes per second of DRAM
    code: ReferenceCode = ReferenceCode()  # of the model
    kernel_seconds: Expected | None = None  # the sum over all kernels; None where one is unknown
    launch: Expected = NO_TIME  # of one kernel by the host; none with CUDA graphs
    host: Host = Host()  # of a step of a serving engine
    uncached: Uncached | None = None  # generation: the same without a KV cache
    first_and_last: tuple[StageTime, ...] = ()  # generation: its first and its last decode
    idle: StageTime = StageTime()  # while the GPU waits for other pipeline stages
    stage_times: tuple[tuple[str, StageTime, StageTime, StageTime], ...] = ()
    """Part of the phase, time of one microbatch on this stage and through all stages, and how much longer the slowest
    stage takes for the part."""
    replicas: ReplicaTimes = ReplicaTimes()  # data-parallel training
    buffers: int = 0  # of batch norms
    power: Power | None = None  # of the device
    undivided_seconds: Expected | None = None  # of all kernels, where the engine divides the step into halves

    @property
    def stages(self) -> tuple[str, ...]:
        """The stages in order: prefill and decodes; forward, backward and optimizer; none in a single pass."""
        return tuple(name for name in dict.fromkeys(placed.operator.stage for placed in self.placed) if name)

    @property
    def rows_by_operator(self) -> list[list[Placed]]:
        """The rows of each operator, with the time of a fused kernel in those of its main operator (`by_kernel`)."""
        fuses = any(each.run.absorbed or each.run.merged for each in self.placed)
        return by_kernel(self.placed, self.ceilings[1]) if fuses else [[each] for each in self.placed]

    @property
    def kernel_rows(self) -> list[Placed]:
        """The rows of all operators."""
        return [row for rows in self.rows_by_operator for row in rows]

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
        return sum(total_seconds(section) for section in self._sections) + self.idle.bound

    @property
    def _sections(self) -> list[Sequence[Placed]]:
        """The operators that run one after another: prefill and decodes of generation; all of other phases."""
        if self.step.phase == "generate":
            return [self.of_stage(stage) for stage in self.stages]
        return [self.placed]

    @property
    def memory_seconds(self) -> Number:
        """The part of the bound that DRAM bandwidth limits."""
        return sum(map(_memory_seconds, self._sections))

    @property
    def link_seconds(self) -> Number:
        """The part of the bound that the links to other GPUs limit: of sections whose collectives take longer than the
        other operators."""
        sends = sum(each.seconds for each in self.exchanges if not each.is_collective)
        sums = map(seconds_by_kind, self._sections)
        return sends + sum(either(sent > others, sent, 0.0) for others, sent in sums if sent is not None)

    @property
    def hidden_bound(self) -> Number:
        """What overlap takes from the sum of all operators' bounds."""
        sums = map(seconds_by_kind, self._sections)
        return sum(minimum(others, sent) for others, sent in sums if sent is not None)

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
    def is_limited_by_power(self) -> bool:
        """Whether the power limit or a sustained rate makes kernels of the phase longer."""
        return any(placed.is_limited_by_power for placed in self.placed)

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
        if host.of_steps == Host() or step.phase == "train":
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
    def outside_steps(self) -> Number:
        """What a serving engine adds to TTFT besides the prefill."""
        return self.host.outside_steps(self.step.tokens) if self.step.phase in ("prefill", "generate") else 0.0

    @property
    def exposed_host_seconds(self) -> Number:
        """What a serving engine's host adds to the expected time of the kernels."""
        busy, kernels = self.busy, _sum([seconds for _, seconds in self._without_host])
        return busy.value - kernels.value if busy and kernels else 0.0

    @property
    def hidden_seconds(self) -> Expected | None:  # of the collectives
        own = hidden_of(self.placed)  # of halves in inference
        return self.replicas.hidden if own is NO_TIME else own

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
        return self.sequences * (
            step.parallel.cp * step.tokens + (step.source if not is_just(step.source, 0) and step.encodes else 0)
        )

    @property
    def sequences(self) -> Number:
        """The batch of all GPUs."""
        return self.step.microbatches * self.step.batch * self.step.parallel.dp

    @property
    def is_vision(self) -> bool:
        """Whether the input is images, one per sequence of the batch."""
        return self.step.image != NO_IMAGE

    @property
    def selects_keys(self) -> bool:
        """Whether attention reads only keys that it selects, so that no other pairs of tokens are masked ones."""
        return any({"sparse", "ki"} & placed.operator.sizes.keys() for placed in self.placed)

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
    dtype, timing = step.widths.compute, Timing(device, engine)
    flash = step._replace(attention="flash")
    operators, eager = _operators_and_eager(arch, step, similar)
    unmasked = operators if step.attention == "flash" else _operators_and_eager(arch, flash, similar)[0]
    phase = PhaseEstimate(
        step,
        tuple(Placed(op, similar.placement(op)) for op in operators) if similar else placed(operators, device, dtype),
        all_pairs_matmul_flops=_matmul_flops(eager),
        mean_flops=GpuFlops(phases.model_flops(unmasked), phases.model_flops(eager), _matmul_flops(operators)),
        ceilings=(device.matmul_pipe(dtype).peak, device.bandwidth),
        code=arch.code if step.phase == "train" else ReferenceCode(fp32_softmax=arch.code.fp32_softmax),
        buffers=_buffers(arch) if step.phase == "train" else 0,
    )
    return _divided(timed(phase, timing, similar), arch, timing)


def _divided(phase: PhaseEstimate, arch: Architecture, timing: Timing) -> PhaseEstimate:
    """The phase as two halves that overlap, where the engine divides it."""
    if timing.engine.halves is None or phase.step.phase == "train":
        return phase
    from roofmodel.steps.overlap import exchanges_with_experts, half_step, in_halves

    if not any(map(exchanges_with_experts, phase.placed)):
        return phase
    step = half_step(phase.step)
    own = placed(phases.operators(arch, step), timing.device, step.widths.compute)
    half = timed(PhaseEstimate(step, own, code=phase.code), timing)
    halves = tuple(in_halves(phase.placed, half.placed, phase.step, timing))
    return phase._replace(placed=halves, kernel_seconds=sum_of(halves), undivided_seconds=phase.kernel_seconds)


def _operators_and_eager(
    arch: Architecture, step: Step, similar: SimilarSteps | None
) -> tuple[tuple[Operator, ...], tuple[Operator, ...]]:
    if similar is None:
        return phases.operators_and_eager(arch, step)
    return similar.share(step, step.parallel.weight_copies).operators_and_eager(step)


def _matmul_flops(operators: Iterable[Operator]) -> Number:
    return sum(whole(operator.count * operator.matmul_flops) for operator in operators)


def _buffers(arch: Architecture) -> int:
    from roofmodel.steps.replicas import batch_norm_buffers

    return batch_norm_buffers(arch)


def pass_time(
    arch: Architecture, device: Device, step: Step, engine: Engine, operators: Iterable[Operator]
) -> StageTime:
    """Bound and expected time of one inference pass on a GPU, from its operators."""
    own = placed(operators, device, step.widths.compute)
    phase = PhaseEstimate(step, own, code=ReferenceCode(fp32_softmax=arch.code.fp32_softmax))
    phase = _divided(timed(phase, Timing(device, engine)), arch, Timing(device, engine))
    return StageTime(phase.bound_seconds, phase.expected)


def timed(phase: PhaseEstimate, timing: Timing, similar: SimilarSteps | None = None) -> PhaseEstimate:
    """The phase with expected times in an engine on a device."""
    dtype, engine = phase.step.widths.compute, timing.engine
    placements = [operator.placement for operator in phase.placed]
    runs = timing.runs(phase.operators, placements, dtype, phase.code, similar.run if similar else None)
    placed = [
        operator._replace(expected=run.expected, run=run) for operator, run in zip(phase.placed, runs, strict=True)
    ]
    placed = with_power(placed, timing.device, dtype, phase.step.phase == "generate")
    launch = NO_TIME if engine.launch is None else Expected(*engine.launch)
    if phase.step.parallel.wrapper == "dataparallel":  # one interpreter launches the kernels of all replicas
        launch = phase.step.parallel.dp * launch
    replicas = ReplicaTimes()
    if phase.step.phase == "train":
        from roofmodel.steps.replicas import with_replicas

        placed, replicas = with_replicas(placed, phase.step, timing, phase.buffers)
        if phase.step.parallel.overlaps:
            from roofmodel.steps.overlap import with_overlap

            replicas = with_overlap(placed, phase.step, timing, replicas)
    return phase._replace(
        placed=tuple(placed), kernel_seconds=sum_of(placed), launch=launch, replicas=replicas, host=engine.host,
        power=timing.device.power,
    )  # fmt: skip


def _memory_seconds(section: Sequence[Placed]) -> Number:
    """The part of a section's bound that DRAM bandwidth limits; 0 where its collectives take longer than the rest."""
    own = (each for each in section if not each.is_collective)
    ceilings = ((p.placement.bound_seconds > p.placement.memory_seconds, p.seconds) for p in own)
    seconds = sum(either(other, 0.0, seconds) for other, seconds in ceilings)
    others, sent = seconds_by_kind(section)
    return seconds if sent is None else either(sent > others, 0.0, seconds)


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


def slowest_stage(arch: Architecture, device: Device, step: Step, engine: Engine) -> PhaseEstimate:
    """A phase on a GPU of the pipeline stage with the longest bound, which is that of every engine.

    Raises WorkloadError where the device lacks the format.
    """
    return max(estimates_by_stage(arch, device, step, engine), key=lambda phase: total_seconds(phase.placed))


def estimates_by_stage(
    arch: Architecture, device: Device, step: Step, engine: Engine, similar: SimilarSteps | None = None
) -> list[PhaseEstimate]:
    """A phase on a GPU of each distinct pipeline stage, with the time that the stage idles.

    `similar` are training steps with which it shares counts and times.
    """
    staged = distinct_stages(arch, step)
    estimates = [phase_estimate(arch, device, stage_step, engine, similar) for _, stage_step in staged]
    if len(estimates) == 1 and is_just(step.parallel.pp, 1):
        return estimates
    times = [dict(_microbatch_times(phase)) for phase in estimates]
    latencies = {
        part: pipeline_latency([(count, stage[part]) for (count, _), stage in zip(staged, times, strict=True)])
        for part in times[0]
    }
    behind = {
        part: _times_behind_longest(
            [_time_of_part(part, phase, stage[part], latency) for phase, stage in zip(estimates, times, strict=True)]
        )
        for part, latency in latencies.items()
    }
    every = sum(count for count, _ in staged)
    flops = GpuFlops(
        *(
            sum(count * plain(each) for (count, _), each in zip(staged, of_stages, strict=True)) / every
            for of_stages in zip(*(phase.mean_flops for phase in estimates), strict=True)
        )
    )
    return [
        phase._replace(
            mean_flops=flops,
            idle=_sum_of_times(idle_time(part, step, stage[part], latencies[part], behind[part][i]) for part in stage),
            stage_times=tuple((part, stage[part], latencies[part], behind[part][i]) for part in stage),
        )
        for i, (phase, stage) in enumerate(zip(estimates, times, strict=True))
    ]


def _time_of_part(part: str, phase: PhaseEstimate, own: StageTime, latency: StageTime) -> StageTime:
    """The time of a part of a phase on a stage, with its host and its wait, from those of one microbatch."""
    many, idle = phase.step.microbatches, idle_time(part, phase.step, own, latency, StageTime())
    busy = phase.with_host(own.expected and many * own.expected, part)
    return StageTime(many * own.bound + idle.bound, busy and idle.expected and busy + idle.expected)


def _times_behind_longest(times: Sequence[StageTime]) -> list[StageTime]:
    """How much longer the longest of these times is than each."""
    bound = reduce(maximum, (time.bound for time in times))
    known_times = [time.expected for time in times if time.expected is not None]
    if len(known_times) < len(times):
        return [StageTime(bound - time.bound, None) for time in times]
    longest = [reduce(maximum, values) for values in zip(*known_times, strict=True)]
    return [
        StageTime(bound - time.bound, Expected(*map(sub, longest, expected)))
        for time, expected in zip(times, known_times, strict=True)
    ]


def without_cache(arch: Architecture, device: Device, step: Step) -> Uncached:
    """Generation without a KV cache, on a GPU of the step's stage.

    Its passes form a pipeline as decodes do: the pass for a token starts when the previous token is known.
    """
    staged = distinct_stages(arch, step)
    stages = [
        placed(operators_without_cache(arch, stage_step), device, step.widths.compute) for _, stage_step in staged
    ]
    totals = [total_seconds(stage) for stage in stages]
    latency = sum(count * total for (count, _), total in zip(staged, totals, strict=True)) / step.microbatches
    stage = next(stage for (_, stage_step), stage in zip(staged, stages, strict=True) if stage_step == step)
    return Uncached(stage, max(latency, *totals))


def _microbatch_times(phase: PhaseEstimate) -> Iterator[tuple[str, StageTime]]:
    """The time of one microbatch in all its passes, by part of the phase: prefill and decodes, or the whole phase."""
    repeated = [placed for placed in phase.placed if not placed.operator.runs_once_per_step]
    generates, each = phase.step.phase == "generate", 1 / phase.step.microbatches
    for part in ("prefill", "decodes") if generates else (phase.step.phase,):
        stage = [placed for placed in repeated if not generates or placed.operator.stage == part]
        expected = running(stage, phase.launch)
        of_microbatch = expected and each * expected
        if of_microbatch and phase.replicas.hidden is not None:
            of_microbatch = of_microbatch + -1 * phase.replicas.saved_in_layers
        yield part, StageTime(each * total_seconds(stage), of_microbatch)


def microbatch_time(phase: PhaseEstimate) -> StageTime:
    """The time of one microbatch of a training step on a stage, forward and backward."""
    return dict(_microbatch_times(phase))[phase.step.phase]


def pipeline_latency(times: Sequence[tuple[int, StageTime]]) -> StageTime:
    """The time of one microbatch through all stages, from the number and the time of each distinct stage."""
    return _sum_of_times(
        StageTime(count * time.bound, time.expected and count * time.expected) for count, time in times
    )


def _sum_of_times(times: Iterable[StageTime]) -> StageTime:
    bound, expected = zip(*times, strict=True)
    known_times = [each for each in expected if each is not None]
    return StageTime(sum(bound), sum(known_times[1:], known_times[0]) if len(known_times) == len(expected) else None)


def idle_time(part: str, step: Step, stage: StageTime, latency: StageTime, behind: StageTime) -> StageTime:
    """The time that a stage waits for the other stages. `behind` is how much longer the slowest of them takes."""

    def waiting_time(own_seconds: Number, latency_seconds: Number) -> Number:
        if part in ("decode", "decodes"):
            return maximum(latency_seconds - step.microbatches * own_seconds, 0.0)
        return (latency_seconds - own_seconds) / step.parallel.vpp

    idle = stage.expected and latency.expected and Expected(*map(waiting_time, stage.expected, latency.expected))
    return _sum_of_times([StageTime(waiting_time(stage.bound, latency.bound), idle), behind])


LATENCIES = {"ttft": "prefill", "tpot": "decodes"}
"""The latencies of generation, by JSON key, and the stage whose time each one is."""


def stage_time(phase: PhaseEstimate, stage: str) -> StageTime:
    """Bound and expected time of a stage: its kernels, or the host's launches if they take longer.

    Prefill and decodes include their wait for other pipeline stages. In a training step the host launches kernels of
    the next stage while the GPU runs those of an earlier one, so that stages may sum to more than the step.
    """
    placed = phase.of_stage(stage)
    time = StageTime(total_seconds(placed), phase.with_host(running(placed, phase.launch), stage))
    for part, *times in phase.stage_times:
        if part == stage:
            idle = idle_time(part, phase.step, *times)
            expected = time.expected and idle.expected and time.expected + idle.expected
            time = StageTime(time.bound + idle.bound, expected)
    return time


def latencies(phase: PhaseEstimate) -> dict[str, StageTime]:
    """TTFT and TPOT of generation, as `ttft` and `tpot`; empty for other phases."""
    if phase.step.phase != "generate":
        return {}
    runs = {"ttft": 1, "tpot": phase.step.passes - 1}
    times = {name: stage_time(phase, stage) for name, stage in LATENCIES.items()}
    found = {
        name: StageTime(time.bound / runs[name], time.expected and (1 / runs[name]) * time.expected)
        for name, time in times.items()
    }
    return found | {"ttft": StageTime(found["ttft"].bound, to_first_token(phase, found["ttft"].expected))}


def to_first_token(phase: PhaseEstimate, prefill: Expected | None) -> Expected | None:
    """TTFT from the time of a prefill: with what a serving engine does outside its steps."""
    outside = phase.outside_steps
    return prefill and (prefill if is_just(outside, 0) else Expected(*(seconds + outside for seconds in prefill)))
