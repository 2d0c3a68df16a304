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
mean: with a constant one, all would arrive at the same point of a step. That of the first requests is its mean, so that
they arrive together.

Open loop: requests arrive at a mean rate, after intervals of an exponential distribution.

Steps between two events (an arrival, the end of a sequence) are equal but for the growing contexts: up to LONGEST_RUN
of them are one event.

Separate engines for prefill and decode: a request goes to the prefill engine with the fewest prompt tokens to compute;
its KV cache is then sent to the decode engine with the fewest requests, where it waits for a place. The client has the
first token when the sequence has its place.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
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
    of an open loop; 0 is a closed one. `prefillers`: engines that only compute prompts, if there are any; `decoders`:
    engines that decode; `transfer`: seconds to send the KV cache of a prompt from one to the other.
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
    prefillers: int = 0
    decoders: int = 1
    most_prompts: int = 0  # of a prefill engine at a time
    transfer: float = 0.0

    @property
    def separate(self) -> bool:
        """Whether other engines compute the prompts."""
        return self.prefillers > 0

    @property
    def in_waves(self) -> bool:
        """Whether clients that start together stay together: all prompts are computed before the next decode, and all
        sequences then decode equally often."""
        return self.prompts_first and self.shortest == 1 and not self.rate and not self.separate


class LoopResult(NamedTuple):
    """What the counted requests saw, in seconds, and the mean step in which sequences decode."""

    requests: int
    first_ttft: float  # of the first requests, which all arrive together
    first_waiting: float  # of these, part of their TTFT
    ttft: float
    tpot: float
    latency: float
    waiting: float  # part of TTFT, in the engine before the first chunk, and before a place in a decode engine
    gaps: tuple[tuple[float, int], ...]  # between two tokens of a sequence, ascending, with their numbers
    decodes: float  # sequences of a mean step
    context: float  # tokens in the cache of each
    prompt_tokens: float  # of a mean step
    chunk_share: float  # of the steps, those with prompt tokens
    counted_seconds: float  # between the arrivals of the first counted request and of the first one after them
    prefill_busy: float | None = None  # share of the time in which an engine computes that only computes prompts

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
    """A request in the loop. `prompt`: its tokens that are not cached, of which `done` are computed. `reached`: when it
    began to wait for an engine; `waited`: seconds of this."""

    __slots__ = (
        "arrival", "cached", "done", "first_token", "number", "prompt", "reached", "steps", "tokens", "waited",
    )  # fmt: skip

    def __init__(
        self, number: int, arrival: float, reached: float, prompt: int, cached: int, tokens: int, steps: int
    ) -> None:
        self.number, self.arrival, self.reached, self.prompt, self.cached = number, arrival, reached, prompt, cached
        self.tokens, self.steps = tokens, steps
        self.done, self.waited, self.first_token = 0, 0.0, 0.0


class _Step(NamedTuple):
    """One step with prompt tokens, or several decode steps."""

    decodes: int
    context: float
    tokens: int
    seconds: float
    complete: list[_Request]
    is_counted: bool


class _Engine:
    """An engine: the requests that wait for it, its running sequences and its current step."""

    def __init__(self, seconds: StepSeconds, places: int, computes_prompts: bool = True) -> None:
        self.seconds, self.places, self.computes_prompts = seconds, places, computes_prompts
        self.waiting: deque[_Request] = deque()
        self.prompt_tokens = 0  # that it still has to compute
        self.running: list[tuple[int, int, _Request]] = []  # a heap, by the decode step that ends each
        self.decoded = 0  # decode steps so far
        self.cached = 0.0  # tokens of all running sequences
        self.last_token = 0.0  # of the last decode step
        self.fresh: list[tuple[float, int]] = []  # sequences that began since: the times of their first tokens
        self.current: _Step | None = None
        self.began, self.steps, self.end = 0.0, 0, 0  # of the current step; the number of the event that ends it

    @property
    def requests(self) -> int:
        """Those that wait or run."""
        return len(self.waiting) + len(self.running)


def simulate(load: ClientLoad, seconds: StepSeconds, of_prompts: StepSeconds | None = None) -> LoopResult:
    """What the requests of the loop see after the first two of each client; `of_prompts`: the steps of prefill engines.

    Raises WorkloadError for more than MAX_STEPS steps. In an open loop requests must arrive more slowly than they are
    served: else the wait grows with the length of the simulation.
    """
    counted = COUNTED_REQUESTS
    if load.rate:  # fewer of very long prompts
        counted = max(counted, min(COUNTED_ARRIVALS, MAX_STEPS // (2 * ceil(load.isl / load.chunk))))
    rounds = max(COUNTED_ROUNDS, counted // load.sequences)
    return _Loop(load, seconds, of_prompts, 2 * load.sequences, rounds * load.sequences).run()


class _Loop:
    """The state of the simulation: clients, engines, the events to come, and sums over what was counted."""

    def __init__(
        self, load: ClientLoad, seconds: StepSeconds, of_prompts: StepSeconds | None, skipped: int, counted: int
    ) -> None:
        self.load, self.skipped, self.counted = load, skipped, counted
        self.decoders = [_Engine(seconds, load.most, not load.separate) for _ in range(load.decoders)]
        self.prefillers = self.decoders
        if load.separate:
            assert of_prompts is not None
            self.prefillers = [_Engine(of_prompts, load.most_prompts) for _ in range(load.prefillers)]
        self.lengths, self.draw = _lengths(load), Random(1)
        self.clock, self.sent, self.completed = 0.0, 0, 0
        self.events: list[tuple[float, int, int, Callable[[], None]]] = []  # a heap: when, order, number, what
        self.numbers = itertools.count()
        self.ready: list[_Engine] = []  # engines that may begin a step
        self.gaps: dict[float, int] = {}
        self.sums = [0.0] * 5  # TTFT, TPOT, latency, waiting, and decode steps
        self.means = [0.0] * 4  # sums over decode steps: sequences, context, prompt tokens, steps with prompt tokens
        self.prefill_seconds = 0.0  # in which engines that only compute prompts do so
        self.began, self.ended, self.first_ttft, self.first_waiting = 0.0, 0.0, 0.0, 0.0

    def run(self) -> LoopResult:
        if self.load.rate:
            self._send_at_random()
        else:
            for _ in range(self.load.sequences):
                self._send()
        begun = 0
        while self.completed < self.counted or self.sent <= self.skipped + self.counted:
            self.clock = self.events[0][0]
            while self.events and self.events[0][0] == self.clock:
                heappop(self.events)[-1]()
            begun += sum(map(self._begin, self.ready))
            self.ready.clear()
            if begun > MAX_STEPS:
                raise WorkloadError(
                    f"more than {MAX_STEPS} steps would be simulated; try a larger ", Option("chunk"), " or ",
                    Option("token_budget"), ", or fewer requests in flight",
                )  # fmt: skip
        ttft, tpot, latency, waiting, steps = self.sums
        decodes, context, tokens, chunks = self.means
        n, duration = self.counted, self.ended - self.began
        first_ttft, first_waiting = self.first_ttft / self.load.sequences, self.first_waiting / self.load.sequences
        busy = None
        if self.load.separate:  # the last step ends after the time that is counted
            busy = min(1.0, self.prefill_seconds / (duration * len(self.prefillers)))
        return LoopResult(
            n, first_ttft, first_waiting, ttft / n, tpot / n, latency / n, waiting / n,
            tuple(sorted(self.gaps.items())), decodes / steps, context / decodes, tokens / steps, chunks / steps,
            duration, busy,
        )  # fmt: skip

    @property
    def _is_counted(self) -> bool:
        """Whether steps count now: between the arrivals of the first counted request and of the first one after."""
        return self.skipped < self.sent <= self.skipped + self.counted

    def _at(self, when: float, order: int, event: Callable[[], None]) -> int:
        """Plan an event, which returns its number; `order`: among those at the same time."""
        number = next(self.numbers)
        heappush(self.events, (when, order, number, event))
        return number

    # --- Requests ---------------------------------------------------------------------------------

    def _send(self) -> None:
        """A client sends its next request."""
        number, when = self.sent, self.clock
        if number == self.skipped:
            self.began = when
        if number == self.skipped + self.counted:
            self.ended = when
        share = 1.0 if self.load.rate or number < self.load.sequences else 2 * self.draw.random()
        self._at(when + share * self.load.outside, number, lambda: self._arrive(number, when))
        self.sent += 1

    def _send_at_random(self) -> None:
        """Send a request of an open loop, and the next one later."""
        self._send()
        self._at(self.clock + self.draw.expovariate(self.load.rate), self.sent, self._send_at_random)

    def _arrive(self, number: int, sent: float) -> None:
        """A request reaches the engine with the fewest prompt tokens to compute."""
        request = _Request(number, sent, self.clock, *next(self.lengths))
        engine = self.prefillers[0]
        if len(self.prefillers) > 1:
            engine = min(self.prefillers, key=lambda each: each.prompt_tokens)
        engine.prompt_tokens += request.prompt
        self._wait(engine, request)

    def _receive(self, request: _Request) -> None:
        """The KV cache of a prompt has reached the decode engine with the fewest requests."""
        request.reached = self.clock
        self._wait(min(self.decoders, key=lambda each: each.requests), request)

    def _wait(self, engine: _Engine, request: _Request) -> None:
        """The request waits until the current step of the engine ends; no decode follows it before that."""
        engine.waiting.append(request)
        if engine.current is None:
            self.ready.append(engine)
        elif engine.steps > 1:
            steps = max(1, min(engine.steps, ceil((self.clock - engine.began) / engine.current.seconds)))
            if steps < engine.steps:
                self._plan_end(engine, steps)

    # --- Steps ------------------------------------------------------------------------------------

    def _chunk(self, engine: _Engine) -> tuple[int, float, list[_Request]]:
        """The prompt tokens of the next step, their query-key pairs, and the prompts that they complete."""
        load, waiting = self.load, engine.waiting
        left = min(load.chunk, load.budget - (0 if load.prompts_first else load.verified * len(engine.running)))
        places = engine.places - len(engine.running)
        if waiting and waiting[0].done:
            places -= 1
        tokens, pairs, complete = 0, 0.0, list[_Request]()
        while waiting and left > 0:
            request = waiting[0]
            if not request.done:
                if not places:
                    break
                places -= 1
                request.waited += self.clock - request.reached
            piece = min(left, request.prompt - request.done)
            pairs += piece * (request.cached + request.done + piece / 2)
            request.done += piece
            tokens, left = tokens + piece, left - piece
            if request.done == request.prompt:
                complete.append(waiting.popleft())
        return tokens, pairs, complete

    def _join(self, engine: _Engine) -> None:
        """Sequences whose prompts other engines computed take the free places, and give their first tokens."""
        while engine.waiting and len(engine.running) < engine.places:
            request = engine.waiting.popleft()
            request.waited += self.clock - request.reached
            self._first_token(engine, request)
            engine.fresh.append((self.clock, 1))

    def _first_token(self, engine: _Engine, request: _Request) -> None:
        """A sequence runs from now on."""
        request.first_token = self.clock
        if request.number < self.load.sequences:
            self.first_ttft += self.clock - request.arrival
            self.first_waiting += request.waited
        heappush(engine.running, (engine.decoded + request.steps, request.number, request))
        engine.cached += request.cached + request.prompt + 1

    def _begin(self, engine: _Engine) -> bool:
        """Begin a step with prompt tokens, or decode steps up to the next event; whether there is one."""
        if engine.current is not None:
            return False
        tokens, pairs, complete = 0, 0.0, list[_Request]()
        if not engine.computes_prompts:
            self._join(engine)
        else:
            tokens, pairs, complete = self._chunk(engine)
        decodes = 0 if tokens and self.load.prompts_first else len(engine.running)
        if not tokens and not decodes:
            return False
        steps, context = 1, engine.cached / decodes if decodes else 0.0
        if not tokens:
            steps = min(engine.running[0][0] - engine.decoded, LONGEST_RUN)
            context += self.load.accepted * (steps - 1) / 2
        seconds = engine.seconds(decodes, context, tokens, pairs)
        engine.current = _Step(decodes, context, tokens, seconds, complete, self._is_counted)
        engine.began = self.clock
        self._plan_end(engine, steps)
        return True

    def _plan_end(self, engine: _Engine, steps: int) -> None:
        """The current step ends after so many steps, unless a request arrives before."""
        assert engine.current is not None
        engine.steps = steps
        end = engine.began + steps * engine.current.seconds
        number = engine.end = self._at(end, -1, lambda: self._end(engine, number))

    def _end(self, engine: _Engine, number: int) -> None:
        """The current step of the engine ends, unless its end has another event by now."""
        if number != engine.end:
            return
        step, steps = engine.current, engine.steps
        assert step is not None
        engine.current = None
        engine.prompt_tokens -= step.tokens
        self.ready.append(engine)
        if step.is_counted:
            if step.decodes:
                self._count(engine, step)
            elif self.load.separate:
                self.prefill_seconds += step.seconds
        if step.decodes:
            self._decode(engine, step.decodes, steps)
        if self.load.separate:
            for request in step.complete:
                self._at(self.clock + self.load.transfer, request.number, partial(self._receive, request))
        elif step.complete:
            for request in step.complete:
                self._first_token(engine, request)
            engine.fresh.append((self.clock, len(step.complete)))

    def _count(self, engine: _Engine, step: _Step) -> None:
        """Count the gaps of decode steps that end now, and the steps for their means."""
        decodes, steps = step.decodes, engine.steps
        self.sums[4] += steps
        for at, value in enumerate((decodes, decodes * step.context, step.tokens, step.tokens > 0)):
            self.means[at] += steps * value
        earlier, begun = decodes - sum(count for _, count in engine.fresh), engine.began
        for before, count in (*engine.fresh, (engine.last_token, earlier), (begun, decodes * (steps - 1))):
            if count:
                gap = round(begun + step.seconds - before, NANOSECOND)
                self.gaps[gap] = self.gaps.get(gap, 0) + count

    def _decode(self, engine: _Engine, decodes: int, steps: int) -> None:
        """The running sequences have decoded; those that are complete leave, and their clients send new requests."""
        engine.last_token, engine.fresh = self.clock, []
        engine.decoded += steps
        engine.cached += decodes * steps * self.load.accepted
        while engine.running and engine.running[0][0] <= engine.decoded:
            _, number, request = heappop(engine.running)
            engine.cached -= request.cached + request.prompt + 1 + request.steps * self.load.accepted
            if not self.load.rate:
                self._send()
            if not self.skipped <= number < self.skipped + self.counted:
                continue
            self.completed += 1
            ttft, latency = request.first_token - request.arrival, self.clock - request.arrival
            for at, value in enumerate((ttft, (latency - ttft) / (request.tokens - 1), latency, request.waited)):
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
