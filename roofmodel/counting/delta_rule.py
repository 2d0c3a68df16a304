"""Linear attention by the gated delta rule (Yang et al., arXiv 2412.06464), in chunks of tokens.

A head keeps a state S of key size x value size. Each token makes it fade, and replaces what S holds under the token's
key by the token's value, as far as `write` says: S = fade S + key (write (value - fade S' key))'. A decode does just
that. A prefill takes chunks of 64 tokens together (section 3.3 there; arXiv 2406.06484, section 3): what the tokens of
a chunk write over one another is a triangular system of their keys' overlaps, and the rest are matrix products.

The kernels of flash-linear-attention (`chunk_gated_delta_rule`, which vLLM and SGLang run too) invert the system and
multiply by the inverse. They compute whole squares of 64 x 64, the overlaps and scores once for each head of values,
and write what stands between their six kernels; counted is one kernel, the pairs that a token sees, and overlaps and
scores once for each head of keys: what any kernel of this algorithm must do. The reference code
(transformers: torch_chunk_gated_delta_rule) fills the last chunk up, repeats queries and keys for each head of
values, computes all pairs, and has a BLAS solve the system, which is counted as the product with the inverse.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from roofmodel.algebra import Number, ceil_div, quotient
from roofmodel.counting import vector
from roofmodel.counting.operator import Builder, Operator, fuse
from roofmodel.counting.site import Site
from roofmodel.counting.state_space_dual import causal_pairs
from roofmodel.counting.token_convolution import causal_filter
from roofmodel.counting.workload import Step
from roofmodel.models.architecture import DeltaRule

GROUP = "linear"
INPUTS = {
    "qkv": "u[b t c]", "q": "u_q[b t k h]", "k": "u_k[b t k h]", "v": "u_v[b t k m h']",
    "gate": "gate[b t k m h']", "write": "write[b t k m]", "forget": "forget[b t k m]",
}  # fmt: skip
COLUMNS = {
    ("qkv",): "c", ("q",): "k h", ("k",): "k h", ("v",): "k m h'", ("gate",): "k m h'", ("write",): "k m",
    ("forget",): "k m", ("qkv", "gate"): "C", ("write", "forget"): "mw",
}  # fmt: skip


def delta_rule(mixer: DeltaRule, site: Site) -> Iterator[Operator]:
    """Queries, keys, values, gate, what is written and forgotten; a causal filter; the scan; a gated norm; output.

    k heads of keys and queries of size h, each for m heads of values of size h'. The cache keeps a state of h x h' a
    head of values, and the filter's last tokens, however long the sequence is.
    """
    step, shared = site.step, quotient(mixer.value_heads, mixer.heads)
    columns = mixer.filtered
    values = mixer.value_heads * mixer.value_dim
    build = site.build(
        k=mixer.heads, m=shared, h=mixer.head_dim, r=mixer.kernel, c=columns, C=columns + values,
        **{"h'": mixer.value_dim, "mw": 2 * mixer.value_heads},
    )  # fmt: skip
    for names in mixer.matrices:
        given = " ".join(INPUTS[name] for name in names)
        matrix = "_".join(names)
        line = f"{site.reads} W_linear_{matrix}[d {COLUMNS[names]}] -> {given}"
        yield build.operator(f"{GROUP}.{matrix}", GROUP, line)
    gives = "q[b t k h] key[b t k h] value[b t k m h']"
    apart = [INPUTS[name] for (name, *_) in mixer.matrices if name in ("q", "k", "v")]
    yield from causal_filter(build, step, GROUP, False, mixer.activation, gives, apart)
    scan = _recurrence(build, step) if step.recurrent else _chunks(_chunked(build, step, mixer), step, mixer)
    yield from [fuse(f"{GROUP}.scan", GROUP, scan, kind="scan")] if step.attention == "flash" else scan
    yield build.operator(
        f"{GROUP}.norm", GROUP, "y[b t k m h'] gate[b t k m h'] G_gate[h'] -> y[b t k m h']", kind="elementwise",
        vector=vector.NORM["rmsnorm"] + vector.ACTIVATION["silu"] + 1,
    )  # fmt: skip
    yield build.operator(f"{GROUP}.output", GROUP, f"y[b t k m h'] W_linear_out[k m h' d] -> {site.gives}")


def _chunked(build: Builder, step: Step, mixer: DeltaRule) -> Builder:
    """With the sizes of chunks: `j` of them, `t:s` pairs within them, `t:j` tokens with their chunk's first state."""
    size, tokens = mixer.chunk, step.tokens
    chunks = step.mean_of(lambda tokens: ceil_div(tokens, size))
    if step.attention == "flash":
        pairs = step.mean_of(lambda tokens: causal_pairs(tokens, size))
        sizes = {"s": tokens, "j": chunks, "t:s": pairs, "t:j": tokens}
    else:
        filled = chunks * size
        sizes = {"t": filled, "s": filled, "j": chunks, "t:s": filled * size, "t:j": filled}
        sizes |= {"k": mixer.value_heads, "m": 1}
    return build._replace(sizes={**build.sizes, **sizes})


def _chunks(build: Builder, step: Step, mixer: DeltaRule) -> tuple[Operator, ...]:
    """The system of a chunk and what it leaves to write; the walk from chunk to chunk; what is read out.

    `starts` are the chunks' first states: the walk makes one after the other of what it has and what the chunk ahead
    writes. It stands ahead of what it takes from each, so that a line follows those that it reads.
    """
    heads, state = build.sizes["m"], build.sizes["h"] * build.sizes["h'"]
    read, kept = (" cache.state[b k m h h']" if held else "" for held in (step.resumed, step.cached))
    fused = step.attention == "flash"
    inverse = "inverse" if fused else "system"

    def vectors(name: str, line: str, flops: Number) -> Operator:
        return build.operator(f"{GROUP}.{name}", GROUP, line, kind="elementwise", vector=flops)

    def matrices(name: str, line: str) -> Operator:
        return build.operator(f"{GROUP}.{name}", GROUP, line, kind="bmm")

    return (
        *_prepared(build, 1),
        matrices("overlap", "key[b t k h] key[b s k h] -> overlap[b k t:s]"),
        # for each head of values: the difference of two sums, its exponential, times the overlap and what is written
        vectors("system", "overlap[b k t:s] decay[b t k m] write[b t k m] -> system[b k m t:s]", 4 * heads),
        *([_inverted(build, step, mixer)] if fused else []),
        vectors("drive", "value[b s k m h'] write[b s k m] -> drive[b s k m h']", 1),
        vectors("strike", "key[b s k h] write[b s k m] decay[b s k m] -> strike[b s k m h]", 2 * heads),
        matrices("values", f"{inverse}[b k m t:s] drive[b s k m h'] -> values[b t k m h']"),
        matrices("keys", f"{inverse}[b k m t:s] strike[b s k m h] -> keys[b t k m h]"),
        matrices("scores", "q[b t k h] key[b s k h] -> a[b k t:s]"),
        vectors("weigh", "a[b k t:s] decay[b t k m] -> p[b k m t:s]", 3 * heads),
        # queries from the chunk's start, keys to its end
        vectors("fade", "q[b t k h] key[b t k h] decay[b t k m] -> asked[b t k m h] faded[b s k m h]", 2 * heads),
        vectors("passing", f"fade[b j k m]{read} -> starts[b j k m h h']{kept}", 2 * state),  # times fade, plus
        matrices("recall", "keys[b t k m h] starts[b j k m h h'] -> known[b t:j k m h']"),
        vectors("correct", "values[b t k m h'] known[b t:j k m h'] -> new[b t k m h']", 1),
        matrices("states", "faded[b s k m h] new[b s k m h'] -> starts[b j k m h h']"),
        matrices("read_out", "asked[b t k m h] starts[b j k m h h'] -> far[b t:j k m h']"),
        matrices("mix", "p[b k m t:s] new[b s k m h'] -> y[b t k m h']"),
        vectors("sum", "y[b t k m h'] far[b t:j k m h'] -> y[b t k m h']", 1),
    )


def _prepared(build: Builder, sums: int) -> Iterator[Operator]:
    """Queries and keys of length 1, queries scaled; how much is written, and what decays, summed up along a chunk."""
    ends = " fade[b j k m]" if sums else ""
    line = "q[b t k h] key[b t k h] -> q[b t k h] key[b t k h]"
    yield build.operator(f"{GROUP}.unit", GROUP, line, kind="elementwise", vector=2 * vector.UNIT_LENGTH + vector.SCALE)
    # sigmoid; softplus times A, its exponential
    yield build.operator(
        f"{GROUP}.decay", GROUP,
        f"forget[b t k m] write[b t k m] B_step[k m] A[k m] -> write[b t k m] decay[b t k m]{ends}",
        kind="elementwise", vector=vector.ACTIVATION["sigmoid"] + vector.STEP + 2 + sums,
    )  # fmt: skip


def _inverted(build: Builder, step: Step, mixer: DeltaRule) -> Operator:
    """The inverse of a chunk's triangle of n rows: row by row n (n - 1) (n - 2) / 3 FLOPs, blocks of them products."""
    size = mixer.chunk

    def flops(tokens: Number) -> Number:
        rows = (size, tokens % size)
        whole, rest = (quotient(n * (n - 1) * (n - 2), 3) for n in rows)
        return tokens // size * whole + rest

    line = "system[b k m t:s] => inverse[b k m t:s]"
    operator = build.operator(f"{GROUP}.invert", GROUP, line, kind="elementwise", keeps="outputs")
    each = build.sizes["b"] * build.sizes["k"] * build.sizes["m"]
    return replace(operator, vector_flops=each * step.mean_of(flops))


def _recurrence(build: Builder, step: Step) -> tuple[Operator, ...]:
    """One token, on the vector units: the state fades, what it knows of the key is corrected, the query reads it."""
    if step.attention == "eager":
        build = build._replace(sizes={**build.sizes, "k": build.sizes["k"] * build.sizes["m"], "m": 1})
    lines = (
        ("fade", "elementwise", "cache.state[b k m h h'] decay[b t k m] -> state[b t k m h h']", 1),
        ("recall", "bmm", "state[b t k m h h'] key[b t k h] => known[b t k m h']", 2),
        ("correct", "elementwise", "value[b t k m h'] known[b t k m h'] write[b t k m] -> new[b t k m h']", 2),
        (
            "recurrence", "scan",
            "state[b t k m h h'] key[b t k h] new[b t k m h'] -> state[b t k m h h'] cache.state[b k m h h']", 2,
        ),
        ("read_out", "bmm", "state[b t k m h h'] q[b t k h] => y[b t k m h']", 2),
    )  # fmt: skip
    steps = (build.operator(f"{GROUP}.{name}", GROUP, line, kind=kind, vector=n) for name, kind, line, n in lines)
    return *_prepared(build, 0), *steps
