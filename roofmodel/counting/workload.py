"""The work asked for, and the phases it falls into."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

from roofmodel.algebra import Number, ceil_div, half, is_just, mean, minimum, quotient, whole
from roofmodel.counting.number_formats import FORMATS, Widths

Phase = Literal["prefill", "decode", "forward", "generate", "train"]
Optimizer = Literal["adam", "momentum", "sgd"]
Recompute = Literal["none", "selective", "full"]
Runtime = Literal["eager", "autocast", "megatron", "graph"]
NO_IMAGE = (0, 0)
"""Rows and columns of pixels where a model reads text."""


class Parallel(NamedTuple):
    """How GPUs share the work.

    `tp` GPUs share every layer (`models/sharding.py`), and there are `dp` replicas of them, each with its part of the
    batch. `ep` GPUs share the experts of a mixture: some of those `tp`, or `across` several replicas all of theirs.
    Those that share a layer are neighbours, and so are replicas that exchange something, within a stage, as Megatron-LM
    places them (Narayanan et al., arXiv 2104.04473, section 3). The layers of a replica are dealt out to `pp` stages,
    to each of them in `vpp` parts (`models/pipeline_stages.py`); what is counted is a GPU of one `stage`. GPUs that
    share a layer deal out its `sequence` too, where it is no product: norms, sums, dropout (Korthikanti et al., arXiv
    2205.05198, section 4.2).
    """

    tp: Number = 1
    dp: Number = 1
    pp: Number = 1
    ep: Number = 1
    vpp: Number = 1
    across: bool = False
    stage: int = 0
    sequence: bool = False

    @property
    def ways(self) -> dict[str, Number]:
        """The numbers by the names of their options."""
        return {"tp": self.tp, "dp": self.dp, "pp": self.pp, "ep": self.ep, "vpp": self.vpp}

    @property
    def replicas(self) -> Number:
        """How many replicas share the experts."""
        return quotient(self.ep, self.tp) if self.across else 1

    @property
    def within(self) -> Number:
        """How many GPUs share each expert."""
        return 1 if self.across else quotient(self.tp, self.ep)

    @property
    def gpus(self) -> Number:
        """All of them."""
        return self.tp * self.dp * self.pp

    def of_a_stage(self, trains: bool) -> Number:
        """Those of a stage among whom something is exchanged: replicas do so where they train, or share experts."""
        return self.tp * self.dp if trains or self.across else self.tp

    def joined(self, trains: bool) -> Number:
        """All those among whom something is exchanged."""
        return self.of_a_stage(trains) * self.pp

    @property
    def rows(self) -> str:
        """The axis of the tokens that a GPU has between the parts of a layer."""
        return "u" if self.sequence else "t"

    @property
    def alone(self) -> bool:
        """Whether a layer is on one GPU."""
        return is_just(self.tp, 1)


ONE_GPU = Parallel()


class Host(NamedTuple):
    """What launches kernels: the runtime, and the seconds that it takes for an operator; None: as long as usual."""

    runtime: str = "eager"
    launch: float | None = None


@dataclass(frozen=True)
class Workload:
    """What the user asks: lengths in tokens per sequence, formats by name.

    `context` is what is in the cache before; None: nothing at a prefill, the prompt at a decode.
    `image` is rows and columns of pixels, where the model sees; its tokens, if it makes any, are `seq`.
    `logits` None: the last position at a prefill, all in a forward pass. `new_tokens` is how many decodes follow the
    prefill where the phase is to generate. `decoder_seq` is for an encoder-decoder, whose source `seq` then counts.
    `dtype` is what products are computed in, and the format of all tensors that `weights`, `kv` and `activations`, what
    goes from operator to operator, do not say. `runtime` changes no count: whether the host launches each kernel, as
    PyTorch has them, with or without its autocast, or as Megatron-LM fuses them, in `launch` seconds each, or a graph
    of them. `batch` is over all
    GPUs; a replica computes its part of it `micro_batch` sequences at a time, None: all together.
    """

    phases: tuple[Phase, ...]
    batch: Number = 1
    seq: Number = 1024
    context: Number | None = None
    dtype: str = "fp16"
    weights: str | None = None
    kv: str | None = None
    activations: str | None = None
    attention: Literal["flash", "eager"] = "flash"
    logits: Literal["last", "all"] | None = None
    new_tokens: Number = 1
    image: tuple[Number, Number] = NO_IMAGE
    mla: Literal["absorbed", "naive"] = "absorbed"
    optimizer: Optimizer = "adam"
    recompute: Recompute = "none"
    decoder_seq: Number | None = None
    runtime: Runtime = "eager"
    parallel: Parallel = ONE_GPU
    micro_batch: Number | None = None
    launch: float | None = None

    @property
    def host(self) -> Host:
        """What launches its kernels."""
        return Host(self.runtime, self.launch)

    @property
    def joined(self) -> Number:
        """GPUs among which something is exchanged."""
        return self.parallel.joined("train" in self.phases)

    @property
    def sequence_parallel(self) -> str:
        """As the option has it."""
        return "on" if self.parallel.sequence else "off"

    @property
    def widths(self) -> Widths:
        working, products = FORMATS[self.activations or self.dtype], FORMATS[self.dtype]
        return Widths(
            working, FORMATS[self.weights or self.dtype], FORMATS[self.kv or self.dtype],
            None if products == working else products,
        )  # fmt: skip

    @property
    def decode_context(self) -> Number:
        """Tokens in the cache before a decode step."""
        return self.prompt if self.context is None else self.context

    @property
    def prompt(self) -> Number:
        """Tokens that a prefill takes in, by the decoder of an encoder-decoder."""
        return self.seq if self.decoder_seq is None else self.decoder_seq

    def logits_of(self, phase: Phase) -> Literal["last", "all"]:
        """The positions whose logits are computed."""
        return self.logits or ("all" if phase in ("forward", "train") else "last")

    def steps(self) -> tuple[Step, ...]:
        """The passes through the model, in order."""
        return tuple(self.step(phase) for phase in self.phases)

    def step(self, phase: Phase) -> Step:
        """The pass that one of the phases is."""
        tokens, context = self.prompt, 0
        if phase == "decode":
            tokens, context = 1, self.decode_context
        elif phase in ("prefill", "generate") and self.phases == (phase,) and self.context is not None:
            context = self.context  # a chunk; where a decode is asked for too, the context is the decode's
        passes = 1 + self.new_tokens if phase == "generate" else 1
        positions = tokens if self.logits_of(phase) == "all" else 1
        part = quotient(self.batch, self.parallel.dp)
        together = part if self.micro_batch is None else self.micro_batch
        return Step(
            phase, together, tokens, context, self.attention, positions, self.widths,
            passes, self.image, self.mla, self.optimizer, self.recompute,
            0 if self.decoder_seq is None else self.seq, self.parallel,
            1 if self.micro_batch is None else quotient(part, together),
        )  # fmt: skip


class Step(NamedTuple):
    """One pass through the model: `tokens` new tokens a sequence after `context` cached ones.

    A prefill, a chunk of one, a decode and a forward pass are the same pass with other numbers. Several `passes` are a
    run in which each pass is one token longer than the one before: decodes after `context`, `context + 1`, ... cached
    tokens; forward passes over `tokens` tokens on average. What an axis of such a run measures is the mean over its
    passes, which is exact: costs are linear in each of `t`, `s` and `t:s`. `source` is how many tokens a sequence the
    encoder of an encoder-decoder reads, or has read. `batch` is what one replica computes at a time, in as many
    `microbatches`, and all counts are those of one GPU. A training step without an `optimizer` ends with the gradients.
    """

    phase: Phase
    batch: Number
    tokens: Number
    context: Number
    attention: Literal["flash", "eager"]
    logit_positions: Number
    widths: Widths
    passes: Number = 1
    image: tuple[Number, Number] = NO_IMAGE
    mla: Literal["absorbed", "naive"] = "absorbed"
    optimizer: Optimizer | None = "adam"
    recompute: Recompute = "none"
    source: Number = 0
    parallel: Parallel = ONE_GPU
    microbatches: Number = 1

    @property
    def encodes(self) -> bool:
        """Whether it is the pass that reads the source: later ones find its keys and values in the cache."""
        return self.phase != "decode" and not self.resumed

    @property
    def of_source(self) -> Step:
        """The part of this pass that the encoder does."""
        return self._replace(tokens=self.source, context=0, passes=1)

    @property
    def token_axes(self) -> dict[str, Number]:
        """The axes of sequences, and of their tokens; of their parts, too, where there are such."""
        whole = {"b": self.batch, "t": self.tokens}
        return {**whole, "u": ceil_div(self.tokens, self.parallel.tp)} if self.parallel.sequence else whole

    @property
    def reach(self) -> Number:
        """The tokens that the last of its passes spans, cached ones and all: so many positions are needed."""
        return self.context + self.tokens + self.passes - 1

    @property
    def cached(self) -> bool:
        """Whether keys and values go through a KV cache."""
        return self.phase not in ("forward", "train")

    @property
    def resumed(self) -> bool:
        """Whether the cache holds something before the pass."""
        return self.cached and not is_just(self.context, 0)

    @property
    def recurrent(self) -> bool:
        """Whether a state space takes one step from the state that it has."""
        return self.resumed and is_just(self.tokens, 1)

    def mean_of(self, count: Callable[[Number], Number]) -> Number:
        """The mean over the passes of something that a pass's tokens decide, in steps rather than linearly."""
        if self.cached or self.passes == 1:
            return count(self.tokens)
        last = whole(self.tokens + mean(self.passes - 1, 2))
        return mean(sum(count(tokens) for tokens in range(last - self.passes + 1, last + 1)), self.passes)

    @property
    def absorbs(self) -> bool:
        """Whether latent attention runs over the latents: where a cache is read for few tokens, in a decode."""
        return self.mla == "absorbed" and self.phase == "decode"


def attended(step: Step, window: Number | None, evicts: bool = True, chunked: bool = False) -> Number:
    """Key positions that are read: the cached ones a window still reaches, and the new ones.

    Where the cache does not evict what the window has left behind, eager attention reads that too, and masks it; so
    does it read what the window would reach where tokens only see their own chunk.
    """
    if step.attention == "eager":
        window, chunked = window if evicts else None, False
    if step.cached and step.passes > 1:
        last, first = (_seen(n, window, chunked) for n in (step.context + step.passes, step.context))
        return mean(last - first, step.passes)
    if window is None:
        return step.context + step.tokens
    if chunked:
        return step.context % window + step.tokens
    return minimum(step.context, window - 1) + step.tokens


def pairs(step: Step, window: Number | None, causal: bool, evicts: bool = True, chunked: bool = False) -> Number:
    """Query-key pairs per head: all that are read under eager attention, the unmasked under flash.

    Causal: S(S+1)/2; for a chunk of C after c: C c + C(C+1)/2; with a window W: W S - W(W-1)/2 for
    S >= W. All three are F(c + C) - F(c) of F(n) = sum over i <= n of min(i, W). A window that looks both ways
    holds as many pairs ahead as behind, and those of a token with itself once: 2 F(S) - S. In chunks
    of W, the i-th token sees those of its own chunk: F(n) is W(W+1)/2 for each full chunk, and r(r+1)/2 for the r
    tokens of the last one.
    """
    masked = step.attention == "flash" and (causal or window is not None)
    if not step.cached and step.passes > 1:
        last = whole(step.tokens + mean(step.passes - 1, 2))
        longer, shorter = (_seen_by_all(n, window, masked, chunked) for n in (last, last - step.passes))
        return mean(longer - shorter, step.passes)
    if not masked or step.passes > 1:
        return step.tokens * attended(step, window, evicts, chunked)
    behind = _seen(step.context + step.tokens, window, chunked) - _seen(step.context, window, chunked)
    return behind if causal else 2 * behind - step.tokens


def _seen(n: Number, window: Number | None, chunked: bool) -> Number:
    """Pairs that the mask of n tokens leaves: the sum over i <= n of min(i, W), or of i's place in its chunk."""
    if chunked and window is not None:
        return n // window * half(window * (window + 1)) + half(n % window * (n % window + 1))
    reach = n if window is None else minimum(n, window)
    return half(reach * (reach + 1)) + (n - reach) * reach


def _seen_by_all(n: Number, window: Number | None, masked: bool, chunked: bool) -> Number:
    """Pairs of all sequences of up to n tokens: the sum over i <= n of `_seen(i)`, or of i x i without a mask."""
    if not masked:
        return quotient(n * (n + 1) * (2 * n + 1), 6)
    if chunked and window is not None:
        full, rest, each = n // window, n % window, half(window * (window + 1))
        pyramids = (quotient(m * (m + 1) * (m + 2), 6) for m in (window, rest))
        return each * (window * half(full * (full - 1)) + rest * full) + full * next(pyramids) + next(pyramids)
    reach = n if window is None else minimum(n, window)
    beyond = n - reach
    triangle = _seen(reach, window, chunked)
    return quotient(reach * (reach + 1) * (reach + 2), 6) + beyond * triangle + reach * half(beyond * (beyond + 1))
