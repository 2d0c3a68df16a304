"""Operators of a mixed step: decodes of a batch and a chunk of a prompt in one pass (chunked prefill).

Engines with continuous batching put all tokens of a step into one batch (Agrawal et al., Sarathi-Serve,
arXiv 2403.02310, section 4.2). Work on single tokens (GEMMs, norms, experts, all-reduces) runs once for all of them,
so that the decodes use weights that the chunk reads anyway. Work on whole sequences (attention, scans) runs separately
for the decodes and for the chunk.
"""

from __future__ import annotations

from collections.abc import Iterator

from roofmodel.counting import blocks
from roofmodel.counting.operator import Operator
from roofmodel.counting.workload import PromptChunk, Step
from roofmodel.models.architecture import Architecture

SEQUENCE_KINDS = frozenset(("attention", "scan", "convolution"))
"""Kinds of operators that compute sequence by sequence."""
SEQUENCE_AXES = frozenset(("s", "t:s"))
"""Axes of attended tokens and of query-key pairs."""
LOGITS_AXIS = "l"


def mixed_operators(share: Architecture, step: Step, chunk: PromptChunk) -> Iterator[Operator]:
    """The operators of one GPU, which has this share of the model, in the order of the decode.

    Logits are those of the decodes: of the chunk at most one position has logits, in the last chunk of its prompt.
    """
    decode = step._replace(chunk=None)
    prompt = decode._replace(
        phase="prefill", batch=chunk.batch, tokens=chunk.tokens, context=chunk.context, logit_positions=1
    )
    together = decode._replace(batch=step.batch * step.tokens + chunk.batch * chunk.tokens, tokens=1)
    decodes, prompts, joint = (
        {(operator.name, operator.layers): operator for operator in blocks.operators(share, own_step)}
        for own_step in (decode, prompt, together)
    )
    for key, operator in decodes.items():
        if key not in prompts or LOGITS_AXIS in axes(operator):
            yield operator
        elif is_sequential(operator):
            yield from (operator, prompts[key])
        else:
            yield joint.get(key, operator)
    yield from (operator for key, operator in prompts.items() if key not in decodes)


def is_sequential(operator: Operator) -> bool:
    """Whether the operator computes sequence by sequence, so that its time depends on more than the token count."""
    return operator.kind in SEQUENCE_KINDS or not SEQUENCE_AXES.isdisjoint(axes(operator))


def axes(operator: Operator) -> frozenset[str]:
    """All axes of the operator's tensors."""
    tensors = (tensor for line in operator.lines for tensor in (*line.factors, *line.terms, *line.outputs))
    return frozenset(axis for tensor in tensors for axis in tensor.axes)
