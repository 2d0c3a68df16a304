"""Speculative decoding: a draft model, or multi-token prediction, proposes tokens that one decode verifies.

Each step drafts k tokens, and the model computes k + 1 tokens of each sequence in one pass. If a draft token is right
with probability p, independently of the others, the expected number of tokens per sequence and step is

    (1 - p^(k+1)) / (1 - p)

(Leviathan et al., arXiv 2211.17192, equation 1). The step takes the pass of the model, and k decodes of the draft model
one after the other. The draft model also computes each chunk of a prompt, in one of its decodes. It runs on the GPUs of
the engine, with the largest tensor parallelism that divides both, or sharded like the model if it is a module of
multi-token prediction; its weights and its KV cache are on every pipeline stage.

A module of multi-token prediction is counted as the last layer of the model, with embedding and head (DeepSeek-V3,
arXiv 2412.19437, section 2.2); its projection of two hidden states to one is left out. One module drafts all k tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol

from roofmodel.counting.workload import UNIFORM, PromptChunk
from roofmodel.engines.engine_file import Host
from roofmodel.errors import Option, WorkloadError
from roofmodel.models.architecture import Architecture, Network
from roofmodel.numbers.algebra import Number
from roofmodel.options.values import MTP, Model
from roofmodel.plan.layouts import Formats, Layout, divisors, is_possible
from roofmodel.plan.step_times import (
    Array,
    ServingReplica,
    StepTimes,
    Stored,
    decode_times,
    mixed_times,
    prefill_times,
    replica,
    stored_cache,
    stored_weights,
)

DRAFT_TOKENS, ACCEPTANCE = 3, 0.7


class DraftOptions(Protocol):
    """The options of speculative decoding: a model or MTP, the tokens that it drafts, the probability of each to be
    right."""

    @property
    def draft(self) -> Model | None: ...
    @property
    def draft_tokens(self) -> int | None: ...
    @property
    def acceptance(self) -> float | None: ...


class Speculation(NamedTuple):
    """The draft model, the tokens that it drafts per step, and the probability that a draft token is right."""

    draft: Architecture
    tokens: int
    acceptance: float
    is_mtp: bool = False

    @property
    def accepted(self) -> float:
        """Expected tokens per sequence and step."""
        if self.acceptance == 1:
            return self.tokens + 1.0
        return (1 - self.acceptance ** (self.tokens + 1)) / (1 - self.acceptance)


class GenerationTimes(NamedTuple):
    """The times of an engine that decodes: batches per microbatch, tokens that a sequence gets per step, the step
    without a chunk, with one, and with a chunk alone; tokens of a sequence that a step computes."""

    batch: Array
    accepted: float
    decode: StepTimes
    mixed: Callable[[PromptChunk], StepTimes]
    prompts: Callable[[PromptChunk], StepTimes]
    verified: int = 1


def prediction_module(arch: Architecture) -> Architecture:
    """A module of multi-token prediction: embedding, the last layer of the model, and head."""
    stack = arch.stack
    return replace(arch, name=f"{arch.name} (MTP)", body=stack._replace(layers=stack.layers[-1:], layer_groups=None))


def speculation_of(
    arch: Architecture, request: DraftOptions, drafter: Architecture | None = None
) -> Speculation | None:
    """Speculative decoding as the request describes it, with its draft model; None without one.

    Raises WorkloadError for a draft model that is no decoder, and for options that need a draft model.
    """
    if request.draft is None:
        for option in ("draft_tokens", "acceptance"):
            if (value := getattr(request, option)) is not None:
                raise WorkloadError(
                    Option(option, value), " needs a draft model: ", Option("draft", "MODEL"), " or ",
                    Option("draft", MTP),
                )  # fmt: skip
        return None
    tokens = DRAFT_TOKENS if request.draft_tokens is None else request.draft_tokens
    acceptance = ACCEPTANCE if request.acceptance is None else request.acceptance
    if drafter is None:
        return Speculation(prediction_module(arch), tokens, acceptance, is_mtp=True)
    check_generates(drafter)
    return Speculation(drafter, tokens, acceptance)


def check_generates(arch: Architecture) -> None:
    """Raises WorkloadError for a model that is not a decoder."""
    if isinstance(arch.body, Network) or not arch.generates or arch.encoder:
        raise WorkloadError(f"{arch.name} does not generate text with a decoder alone, as a model must that is served")


def generation_times(
    served: ServingReplica, speculation: Speculation | None, context: int, batch: Array
) -> GenerationTimes:
    """The times of the engine's steps for these batches per microbatch, with so many tokens of each in the cache."""
    column = batch[:, None]
    if speculation is None:
        return GenerationTimes(
            batch, 1.0, decode_times(served, batch, context),
            lambda chunk: mixed_times(served, column, context, chunk),
            lambda chunk: prefill_times(served, *chunk),
        )  # fmt: skip
    verified, drafted = speculation.tokens + 1, speculation.tokens
    drafter, stages = draft_engine(served, speculation), served.layout.pp

    def mixed(chunk: PromptChunk) -> StepTimes:
        pass_of_model = mixed_times(served, column, context, chunk, verified)
        every = chunk._replace(batch=chunk.batch * stages)
        drafts = mixed_times(drafter, column * stages, context, every)
        return pass_of_model + drafts + (drafted - 1) * decode_times(drafter, column * stages, context)

    def prompts(chunk: PromptChunk) -> StepTimes:
        return prefill_times(served, *chunk) + prefill_times(drafter, *chunk._replace(batch=chunk.batch * stages))

    decode = decode_times(served, batch, context, verified) + drafted * decode_times(drafter, batch * stages, context)
    return GenerationTimes(batch, speculation.accepted, decode, mixed, prompts, verified)


def draft_engine(served: ServingReplica, speculation: Speculation) -> ServingReplica:
    """The engine of the draft model, on the GPUs of an engine. Module and model have the same formats.

    The pass of the model has the host's time of the step, so that those of the draft model have none.
    """
    draft, share = speculation.draft, served.work.options.memory_utilization
    if speculation.is_mtp:
        layout = served.layout._replace(pp=1)
    else:
        layout = Layout(max(size for size in divisors(served.layout.tp) if is_possible(draft, Layout(size))))
    own, routing = served.formats, served.work.routing
    if routing.shares and not speculation.is_mtp:
        routing = UNIFORM  # a file describes the experts of the model, not those of the draft model
    form = own if speculation.is_mtp else Formats(own.activations or own.dtype)
    engine = served.work.engine._replace(host=Host())
    return replica(draft, served.device, layout, form, share, routing, engine)


def stored_with_draft(
    served: ServingReplica, weights: Sequence[Number], speculation: Speculation | None, tokens: int
) -> Stored:
    """What each pipeline stage stores for sequences of this length: its weights, which are already counted, and its
    cache; and those of the draft model."""
    stored = list(zip(weights, stored_cache(served, tokens), strict=True))
    if speculation is None:
        return stored
    drafter = draft_engine(served, speculation)
    (own_weights,), (own_cache,) = stored_weights(drafter), stored_cache(drafter, tokens)
    return [(each + own_weights, cache + served.layout.pp * own_cache) for each, cache in stored]
