"""The work asked for, and the phases it falls into."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from roofmodel.algebra import Number, half, minimum
from roofmodel.counting.widths import FORMATS, Widths

Phase = Literal["prefill", "decode", "forward"]


@dataclass(frozen=True)
class Workload:
    """What the user asks: lengths in tokens per sequence, formats by name.

    `context` is what is in the cache before; None: nothing at a prefill, the prompt at a decode.
    `logits` None: the last position at a prefill, all in a forward pass.
    """

    phases: tuple[Phase, ...]
    batch: Number = 1
    seq: Number = 1024
    context: Number | None = None
    dtype: str = "fp16"
    weights: str | None = None
    kv: str | None = None
    attention: Literal["flash", "eager"] = "flash"
    logits: Literal["last", "all"] | None = None

    @property
    def widths(self) -> Widths:
        dtype = FORMATS[self.dtype]
        return Widths(dtype, FORMATS[self.weights or self.dtype], FORMATS[self.kv or self.dtype])

    @property
    def decode_context(self) -> Number:
        """Tokens in the cache before a decode step."""
        return self.seq if self.context is None else self.context

    def with_attention(self, attention: Literal["flash", "eager"]) -> Workload:
        """The same work with the other kind of attention kernel."""
        return replace(self, attention=attention)

    def steps(self) -> tuple[Step, ...]:
        """The passes through the model, in order."""
        return tuple(self.step(phase) for phase in self.phases)

    def step(self, phase: Phase) -> Step:
        """The pass that one of the phases is."""
        tokens, context = self.seq, 0
        if phase == "decode":
            tokens, context = 1, self.decode_context
        elif phase == "prefill" and self.phases == ("prefill",) and self.context is not None:
            context = self.context  # a chunk; where a decode is asked for too, the context is the decode's
        logits = self.logits or ("all" if phase == "forward" else "last")
        return Step(phase, self.batch, tokens, context, self.attention, tokens if logits == "all" else 1, self.widths)


class Step(NamedTuple):
    """One pass through the model: `tokens` new tokens a sequence after `context` cached ones.

    A prefill, a chunk of one, a decode and a forward pass are the same pass with other numbers.
    """

    phase: Phase
    batch: Number
    tokens: Number
    context: Number
    attention: Literal["flash", "eager"]
    logit_positions: Number
    widths: Widths

    @property
    def cached(self) -> bool:
        """Whether keys and values go through a KV cache."""
        return self.phase != "forward"


def attended(step: Step, window: Number | None, evicts: bool = True) -> Number:
    """Key positions that are read: the cached ones a window still reaches, and the new ones.

    Where the cache does not evict what the window has left behind, eager attention reads that too, and masks it.
    """
    if window is None or (step.attention == "eager" and not evicts):
        return step.context + step.tokens
    return minimum(step.context, window - 1) + step.tokens


def pairs(step: Step, window: Number | None, causal: bool, evicts: bool = True) -> Number:
    """Query-key pairs per head: all that are read under eager attention, the unmasked under flash.

    Causal: S(S+1)/2; for a chunk of C after c: C c + C(C+1)/2; with a window W: W S - W(W-1)/2 for
    S >= W. All three are F(c + C) - F(c) of F(n) = sum over i <= n of min(i, W).
    """
    if step.attention == "eager" or not causal:
        return step.tokens * attended(step, window, evicts)

    def seen(n: Number) -> Number:
        reach = n if window is None else minimum(n, window)
        return half(reach * (reach + 1)) + (n - reach) * reach

    return seen(step.context + step.tokens) - seen(step.context)
