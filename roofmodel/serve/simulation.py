"""Simulation of the requests on one engine: a closed loop of clients, or an open one with random arrivals.

The engine serves them step by step. In each step the running sequences decode, and waiting prompts are computed in
chunks, first come, first served, until the step has as many tokens as the engine allows. Some engines compute prompts
in steps of their own, before any decode. The simulation knows no model: the time of a step is a function of its
decodes, their mean context, its prompt tokens and their query-key pairs (`step_table.py`).

Closed loop: each client sends its next request when one is complete. The clients start together, as those of
benchmarks do, and their first two requests are not counted. Where an engine computes prompts first and all requests
are equally long, they stay together: waves of all prompts, then all decodes. Elsewhere requests drift apart, in public
benchmarks of equal lengths too (`benchmarks/served_rows.py`): the answers of the first requests have random lengths, so
that the counted ones begin at random times. The time of a request outside the steps is uniform from 0 to twice its
mean: with a constant one, all would arrive at the same point of a step.

Open loop: requests arrive at a mean rate, after intervals of an exponential distribution.

Steps between two events (an arrival, the end of a sequence) are equal but for the growing contexts: up to LONGEST_RUN
of them are one event.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from heapq import heappop, heappush
from math import ceil
from random import Random
from typing import NamedTuple

from roofmodel.errors import Option, WorkloadError

StepSeconds = Callable[[int, float, int, float], float]
"""Seconds of a step: decodes, tokens in the cache of each, prompt tokens, query-key pairs of the prompt tokens."""

LONGEST_RUN = 32
"""Decode steps of one event."""
NANOSECOND = 9
"""Decimal places to which gaps are rounded, so that equal ones are counted together."""
COUNTED_ROUNDS = 3
"""Requests of each client that are counted at least, after its first two."""
COUNTED_REQUESTS = 400
"""Requests of all clients that are counted at least."""
MAX_STEPS = 1_000_000
"""Steps with prompts, and runs of decode steps, of a simulation; they take some seconds."""
COUNTED_ARRIVALS = 4000
"""Requests of an open loop that are counted: the wait varies more than in a closed loop."""


class ClientLoad(NamedTuple):
    """The requests, and how the engine schedules them.

    `isl` and `osl` are the longest lengths; they are drawn uniformly from `shortest` to 1 times these. A share `cached`
    of a prompt is in the prefix cache. A decode step takes `verified` tokens of a sequence and gives `accepted` on
    average (speculative decoding). `outside`: mean seconds of a request outside the steps. `rate`: requests per second
    of an open loop; 0 is a closed one.
    """

    sequences: int  # in flight; in an open loop about as many, for the length of the simulation
    isl: int
    osl: int
    budget: int  # tokens of a step, of prompts and decodes
    chunk: int  # prompt tokens of a step
    most: int  # sequences that run at a time
    cached: float = 0.0
    shortest: float = 1.0
    accepted: float = 1.0
    verified: int = 1
    outside: float = 0.0
    prompts_first: bool = False
    rate: float = 0.0

    @property
    def in_waves(self) -> bool:
        """Whether clients that start together stay together: all prompts are computed before the next decode, and all
        sequences then decode equally often."""
        return self.prompts_first and self.shortest == 1 and not self.rate


class LoopResult(NamedTuple):
    """What the counted requests saw, in seconds, and the mean step in which sequences decode."""

    requests: int
    first_ttft: float  # of the first requests, which all arrive together
    ttft: float
    tpot: float
    latency: float
    waiting: float  # part of TTFT, in the engine before the first chunk
    gaps: tuple[tuple[float, int], ...]  # between two tokens of a sequence, ascending, with their numbers
    decodes: float  # sequences of a mean step
    context: float  # tokens in the cache of each
    prompt_tokens: float  # of a mean step
    chunk_share: float  # of the steps, those with prompt tokens
    counted_seconds: float  # between the arrivals of the first counted request and of the first one after them

    def gap(self, quantile: float) -> float:
        """The smallest gap that this share of all gaps does not exceed."""
        return gap_at(self.gaps, quantile)


def gap_at(gaps: Sequence[tuple[float, float]], quantile: float) -> float:
    """The smallest gap that this share of all gaps does not exceed; they are ascending, with their numbers."""
    rest = quantile * sum(count for _, count in gaps)
    for gap, count in gaps:
        rest -= count
        if rest <= 0:
            return gap
    return gaps[-1][0]


class _Request:
    """A request in the loop. `prompt`: its tokens that are not cached, of which `done` are computed."""

    __slots__ = (
        "arrival", "cached", "done", "first_token", "number", "prompt", "reached", "started", "steps", "tokens",
    )  # fmt: skip

    def __init__(
        self, number: int, arrival: float, reached: float, prompt: int, cached: int, tokens: int, steps: int
    ) -> None:
        self.number, self.arrival, self.reached, self.prompt, self.cached = number, arrival, reached, prompt, cached
        self.tokens, self.steps = tokens, steps
        self.done, self.started, self.first_token = 0, 0.0, 0.0


def simulate(load: ClientLoad, seconds: StepSeconds) -> LoopResult:
    """What the requests of the loop see after the first two of each client.

    Raises WorkloadError for more than MAX_STEPS steps. In an open loop requests must arrive more slowly than the engine
    serves them: else the wait grows with the length of the simulation.
    """
    counted = COUNTED_REQUESTS
    if load.rate:  # fewer of very long prompts
        counted = max(counted, min(COUNTED_ARRIVALS, MAX_STEPS // (2 * ceil(load.isl / load.chunk))))
    rounds = max(COUNTED_ROUNDS, counted // load.sequences)
    return _Loop(load, seconds, 2 * load.sequences, rounds * load.sequences).run()


class _Loop:
    """The state of the simulation: waiting prompts, running sequences, and sums over what was counted."""

    def __init__(self, load: ClientLoad, seconds: StepSeconds, skipped: int, counted: int) -> None:
        self.load, self.seconds = load, seconds
        self.skipped, self.counted = skipped, counted
        self.lengths, self.draw = _lengths(load), Random(1)
        self.clock, self.sent, self.completed = 0.0, 0, 0
        self.next_arrival = 0.0  # of an open loop
        self.arriving: list[tuple[float, int, float]] = []  # a heap: when it reaches the engine, number, when sent
        self.waiting: deque[_Request] = deque()
        self.running: list[tuple[int, int, _Request]] = []  # a heap, by the decode step that ends each
        self.decoded = 0  # decode steps so far
        self.cached = 0.0  # tokens of all running sequences
        self.last_token = 0.0  # of the last decode step
        self.fresh: list[tuple[float, int]] = []  # prompts completed since: the times of their first tokens
        self.gaps: dict[float, int] = {}
        self.sums = [0.0] * 5  # TTFT, TPOT, latency, waiting, and decode steps
        self.means = [0.0] * 4  # sums over decode steps: sequences, context, prompt tokens, steps with prompt tokens
        self.began, self.ended, self.first_ttft = 0.0, 0.0, 0.0

    def run(self) -> LoopResult:
        if not self.load.rate:
            for _ in range(self.load.sequences):
                self._send(self.clock)
        for _ in range(MAX_STEPS):
            if self.completed == self.counted:
                break
            self._admit()
            self._step()
        else:
            raise WorkloadError(
                f"more than {MAX_STEPS} steps would be simulated; try a larger ", Option("chunk"), " or ",
                Option("token_budget"), ", or fewer requests in flight",
            )  # fmt: skip
        ttft, tpot, latency, waiting, steps = self.sums
        decodes, context, tokens, chunks = self.means
        n = self.counted
        first_ttft = self.first_ttft / self.load.sequences
        return LoopResult(
            n, first_ttft, ttft / n, tpot / n, latency / n, waiting / n, tuple(sorted(self.gaps.items())),
            decodes / steps, context / decodes, tokens / steps, chunks / steps, self.ended - self.began,
        )  # fmt: skip

    @property
    def _is_counted(self) -> bool:
        """Whether steps count now: between the arrivals of the first counted request and of the first one after."""
        return self.skipped < self.sent <= self.skipped + self.counted

    def _send(self, when: float) -> None:
        """A client sends its next request."""
        if self.sent == self.skipped:
            self.began = when
        if self.sent == self.skipped + self.counted:
            self.ended = when
        share = 1.0 if self.load.rate else 2 * self.draw.random()
        heappush(self.arriving, (when + share * self.load.outside, self.sent, when))
        self.sent += 1

    def _admit(self) -> None:
        """Requests that have reached the engine wait for their first chunk."""
        self._send_at_random()
        while self.arriving and self.arriving[0][0] <= self.clock:
            reached, number, arrival = heappop(self.arriving)
            self.waiting.append(_Request(number, arrival, reached, *next(self.lengths)))
            self._send_at_random()

    def _send_at_random(self) -> None:
        """Send the requests of an open loop up to now, and the next one, for which an idle engine waits."""
        while self.load.rate and (self.next_arrival <= self.clock or not self.arriving):
            self._send(self.next_arrival)
            self.next_arrival += self.draw.expovariate(self.load.rate)

    def _chunk(self) -> tuple[int, float, list[_Request]]:
        """The prompt tokens of the next step, their query-key pairs, and the prompts that they complete."""
        load, waiting = self.load, self.waiting
        left = min(load.chunk, load.budget - (0 if load.prompts_first else load.verified * len(self.running)))
        places = load.most - len(self.running)
        if waiting and waiting[0].done:
            places -= 1
        tokens, pairs, complete = 0, 0.0, list[_Request]()
        while waiting and left > 0:
            request = waiting[0]
            if not request.done:
                if not places:
                    break
                places -= 1
                request.started = self.clock
            piece = min(left, request.prompt - request.done)
            pairs += piece * (request.cached + request.done + piece / 2)
            request.done += piece
            tokens, left = tokens + piece, left - piece
            if request.done == request.prompt:
                complete.append(waiting.popleft())
        return tokens, pairs, complete

    def _step(self) -> None:
        """One step with prompt tokens, or decode steps up to the next event, or a wait for the next arrival."""
        tokens, pairs, complete = self._chunk()
        decodes = 0 if tokens and self.load.prompts_first else len(self.running)
        if not tokens and not decodes:
            self.clock = self.arriving[0][0]
            return
        steps, context = 1, self.cached / decodes if decodes else 0.0
        if tokens:
            seconds = self.seconds(decodes, context, tokens, pairs)
        else:
            steps = min(self.running[0][0] - self.decoded, LONGEST_RUN)
            context += self.load.accepted * (steps - 1) / 2
            seconds = self.seconds(decodes, context, 0, 0.0)
            if self.arriving:
                steps = max(1, min(steps, ceil((self.arriving[0][0] - self.clock) / seconds)))
        if decodes:
            self._count(decodes, context, tokens, steps, seconds)
        self.clock += steps * seconds
        if decodes:
            self._decode(decodes, steps)
        for request in complete:
            request.first_token = self.clock
            if request.number < self.load.sequences:
                self.first_ttft += self.clock - request.arrival
            heappush(self.running, (self.decoded + request.steps, request.number, request))
            self.cached += request.cached + request.prompt + 1
        if complete:
            self.fresh.append((self.clock, len(complete)))

    def _count(self, decodes: int, context: float, tokens: int, steps: int, seconds: float) -> None:
        """Count the gaps of decode steps that begin now, and the steps for their means."""
        if not self._is_counted:
            return
        self.sums[4] += steps
        for at, value in enumerate((decodes, decodes * context, tokens, tokens > 0)):
            self.means[at] += steps * value
        earlier = decodes - sum(count for _, count in self.fresh)
        for begin, count in (*self.fresh, (self.last_token, earlier), (self.clock, decodes * (steps - 1))):
            if count:
                gap = round(self.clock + seconds - begin, NANOSECOND)
                self.gaps[gap] = self.gaps.get(gap, 0) + count

    def _decode(self, decodes: int, steps: int) -> None:
        """The running sequences have decoded; those that are complete leave, and their clients send new requests."""
        self.last_token, self.fresh = self.clock, []
        self.decoded += steps
        self.cached += decodes * steps * self.load.accepted
        while self.running and self.running[0][0] <= self.decoded:
            _, number, request = heappop(self.running)
            self.cached -= request.cached + request.prompt + 1 + request.steps * self.load.accepted
            if not self.load.rate:
                self._send(self.clock)
            if not self.skipped <= number < self.skipped + self.counted:
                continue
            self.completed += 1
            ttft, latency = request.first_token - request.arrival, self.clock - request.arrival
            waited = request.started - request.reached
            for at, value in enumerate((ttft, (latency - ttft) / (request.tokens - 1), latency, waited)):
                self.sums[at] += value


def _lengths(load: ClientLoad) -> Iterator[tuple[int, int, int, int]]:
    """For each request: prompt tokens that are not cached, cached ones, new tokens, decode steps.

    A request of n new tokens takes (n - 1) / accepted steps on average, since the prefill gives the first one.
    """
    draw, steps_so_far = Random(0), 0.0
    for number in itertools.count():
        isl, osl = load.isl, load.osl
        if load.shortest < 1:
            isl, osl = (round(draw.uniform(load.shortest, 1) * length) for length in (isl, osl))
        if number < load.sequences and not (load.in_waves or load.rate):
            osl = round(draw.random() * osl)
        isl, osl = max(1, isl), max(2, osl)
        cached = min(int(load.cached * isl), isl - 1)
        exact = steps_so_far + (osl - 1) / load.accepted
        steps = max(1, round(exact) - round(steps_so_far))
        steps_so_far = exact
        yield isl - cached, cached, osl, steps
