"""Linear attention whose heads fade at a pace that is fixed (Lightning Attention-2, Qin et al., arXiv 2401.04658).

A head's state is the sum of keys times values, each faded by how long ago it was. A prefill takes blocks of tokens
together: within a block scores without a softmax, between blocks the state. A kernel computes the pairs that a token
sees; the reference code (transformers: MiniMaxLightningAttention) computes all pairs of a block, the last of which it
does not fill up, and goes on from a cached state token by token, by matrix products.
"""

from __future__ import annotations

from collections.abc import Iterator

from roofmodel.algebra import Number
from roofmodel.counting import vector
from roofmodel.counting.delta_rule import GROUP, matrices, vectors
from roofmodel.counting.operator import Builder, Operator, fuse
from roofmodel.counting.site import Site
from roofmodel.counting.state_space_dual import causal_pairs, in_chunks
from roofmodel.counting.workload import Step
from roofmodel.models.recurrent import Lightning


def lightning(mixer: Lightning, site: Site) -> Iterator[Operator]:
    """Queries, keys and values, activated; the scan; a norm over all heads; a gate; output. The cache keeps states."""
    step = site.step
    build = site.build(k=mixer.heads, h=mixer.head_dim, c=3 * mixer.heads * mixer.head_dim, **{"h'": mixer.head_dim})
    given = "q[b t k h] key[b t k h] value[b t k h']"
    yield build.operator(f"{GROUP}.qkv", GROUP, f"{site.reads} W_linear_qkv[d c] -> {given}")
    yield vectors(build, "activation", f"{given} -> {given}", 3 * vector.ACTIVATION[mixer.activation])
    if step.attention == "flash":
        scan = _recurrence(build) if step.recurrent else _blocks(_in_blocks(build, step, mixer), step)
        yield fuse(f"{GROUP}.scan", GROUP, scan, kind="scan")
    elif step.resumed:
        one_by_one = {"s": step.tokens, "j": step.tokens, "t:j": step.tokens}
        yield from _between(build._replace(sizes={**build.sizes, **one_by_one}), step, "y")
    else:
        yield from _blocks(_in_blocks(build, step, mixer), step)
    line = "y[b t k h'] G_linear_heads[k h'] -> y[b t k h']"
    yield build.operator(f"{GROUP}.heads_norm", GROUP, line, kind="norm", vector=vector.NORM["rmsnorm"])
    yield build.operator(f"{GROUP}.gate", GROUP, f"{site.reads} W_linear_gate[d k h'] -> gate[b t k h']")
    yield vectors(build, "gated", "y[b t k h'] gate[b t k h'] -> y[b t k h']", vector.GATE + 1)
    yield build.operator(f"{GROUP}.output", GROUP, f"y[b t k h'] W_linear_out[k h' d] -> {site.gives}")


def _in_blocks(build: Builder, step: Step, mixer: Lightning) -> Builder:
    """With the sizes of blocks: `j` of them, `t:s` pairs within them, `t:j` tokens with their block's first state."""

    def squares(tokens: Number, size: Number) -> Number:
        return tokens // size * size**2 + (tokens % size) ** 2

    sizes = in_chunks(step, mixer.block, squares if step.attention == "eager" else causal_pairs)
    return build._replace(sizes={**build.sizes, **sizes})


def _blocks(build: Builder, step: Step) -> tuple[Operator, ...]:
    """Scores that fade, and what they mix, within a block; what the blocks before it have left, and the sum of both."""
    return (
        matrices(build, "scores", "q[b t k h] key[b s k h] -> a[b k t:s]"),
        vectors(build, "weigh", "a[b k t:s] -> p[b k t:s]", 1),
        matrices(build, "mix", "p[b k t:s] value[b s k h'] -> y[b t k h']"),
        vectors(build, "fade", "q[b t k h] key[b t k h] -> q[b t k h] key[b t k h]", 2),
        *_between(build, step, "far"),
        vectors(build, "sum", "y[b t k h'] far[b t:j k h'] -> y[b t k h']", 1),
    )


def _between(build: Builder, step: Step, gives: str) -> Iterator[Operator]:
    """What each block adds to the state, the walk along them, what queries read."""
    read, kept = (" cache.state[b k h h']" if held else "" for held in (step.resumed, step.cached))
    yield matrices(build, "states", "key[b s k h] value[b s k h'] -> states[b j k h h']")
    yield vectors(build, "passing", f"states[b j k h h']{read} -> starts[b j k h h']{kept}", 2)  # times decay, plus
    yield matrices(build, "read_out", f"q[b t k h] starts[b j k h h'] -> {gives}[b t:j k h']")


def _recurrence(build: Builder) -> tuple[Operator, ...]:
    """One token, on the vector units: the state fades, gets key times value, and the query reads it."""
    update = "cache.state[b k h h'] key[b t k h] value[b t k h'] -> state[b t k h h'] cache.state[b k h h']"
    read = "state[b t k h h'] q[b t k h] => y[b t k h']"
    return (
        build.operator(f"{GROUP}.recurrence", GROUP, update, kind="scan", vector=3),
        build.operator(f"{GROUP}.read_out", GROUP, read, kind="bmm", vector=2),
    )
