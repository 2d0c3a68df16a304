"""Linear attention: the gated delta rule (Yang et al., arXiv 2412.06464) and Lightning Attention-2 (arXiv 2401.04658).

Gated delta rule: each head has a state S of key size x value size. For each token, S decays, and the value stored under
the token's key is replaced by the token's value, with strength `write`: S = decay S + key (write (value - decay S'
key))'. A decode computes this recurrence. A prefill computes chunks of 64 tokens (section 3.3; arXiv 2406.06484,
section 3): a triangular system of the overlaps of the chunk's keys, and GEMMs.

flash-linear-attention (`chunk_gated_delta_rule`, also used by vLLM and SGLang) inverts the system and multiplies by the
inverse. Its six kernels compute full 64 x 64 squares, overlaps and scores once per value head, and write intermediate
results. We count one kernel, the causal pairs, and overlaps and scores once per key head: the compulsory work of the
algorithm. The reference code (transformers: torch_chunk_gated_delta_rule) pads the last chunk, repeats queries and keys
for each value head, computes all pairs and solves the system with BLAS, counted as the GEMM with the inverse. If each
element of a key has its own decay (Kimi, arXiv 2510.26692), the reference code computes overlaps and scores as vector
work.

Lightning attention: the state is the sum of keys times values with a fixed decay per head. A prefill computes blocks of
tokens: scores without softmax within a block, the state between blocks. A fused kernel computes the causal pairs. The
reference code (transformers: MiniMaxLightningAttention) computes all pairs of a block without padding the last one, and
continues from a cached state token by token with GEMMs.

mLSTM: the state decays by a forget gate and adds keys times values by an input gate, both per head; a normalizer, the
same sum of keys alone, divides the output. The reference code (transformers: xLSTM) computes full squares of complete
chunks, and the remaining tokens one by one, which costs the same for what enters and leaves the state.

Training: the first chunk starts from a zero state, which has no gradient, and the state after the last chunk is never
read, so that what the last chunk adds to it has none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from roofmodel.counting import vector_flops
from roofmodel.counting.block_context import BlockContext, fused_or_eager
from roofmodel.counting.layers.mamba import causal_pairs, in_chunks
from roofmodel.counting.layers.token_convolution import causal_filter
from roofmodel.counting.operator import Builder, Operator
from roofmodel.counting.workload import Step
from roofmodel.models.recurrent_layers import DeltaRule, Lightning, MatrixMemory
from roofmodel.numbers.algebra import Number, minimum, quotient

GROUP = "linear"
COLUMNS = {"qkv": "c", "q": "k h", "k": "k h", "v": "k m h'", "gate": "k m h'", "write": "k m"}
TOGETHER: dict[tuple[str, ...], str] = {("qkv", "gate"): "C", ("write", "forget"): "mw"}
FILTERED = {"qkv": "u[b t c]", "q": "u_q[b t k h]", "k": "u_k[b t k h]", "v": "u_v[b t k m h']"}


def delta_rule(mixer: DeltaRule, block: BlockContext) -> Iterator[Operator]:
    """The gated delta rule: projections, causal filter, scan, gated norm, output projection.

    k query-key heads of size h, each with m value heads of size h'. The cache has a state of h x h' per value head and
    the last tokens of the filter; its size does not depend on the sequence length.
    """
    step, shared = block.step, quotient(mixer.value_heads, mixer.heads)
    build = block.build(
        k=mixer.heads, m=shared, h=mixer.head_dim, r=mixer.filter, c=mixer.filtered, q=mixer.gate_rank,
        C=mixer.filtered + mixer.value_heads * mixer.value_dim,
        **{"h'": mixer.value_dim, "mw": 2 * mixer.value_heads},
    )  # fmt: skip
    for names in mixer.projections:
        yield from _projection(build, mixer, block, names)
    separate_inputs = [FILTERED[name] for (name, *_) in mixer.projections if name in ("q", "k", "v")]
    outputs = "q[b t k h] key[b t k h] value[b t k m h']"
    yield from causal_filter(build, step, GROUP, False, mixer.activation, outputs, separate_inputs)

    def scan(step: Step) -> tuple[Operator, ...]:
        if step.recurrent:
            return _delta_recurrence(build, step, mixer)
        return _delta_chunks(_with_chunk_sizes(build, step, mixer), step, mixer)

    yield from fused_or_eager(f"{GROUP}.scan", GROUP, scan, step, kind="scan")
    yield build.operator(
        f"{GROUP}.norm", GROUP, "y[b t k m h'] gate[b t k m h'] G_gate[h'] -> y[b t k m h']", kind="norm",
        flops=vector_flops.NORM["rmsnorm"] + vector_flops.ACTIVATION[mixer.gate] + 1,
    )  # fmt: skip
    yield build.operator(f"{GROUP}.output", GROUP, f"y[b t k m h'] W_linear_out[k m h' d] -> {block.output}")


def _projection(build: Builder, mixer: DeltaRule, block: BlockContext, names: tuple[str, ...]) -> Iterator[Operator]:
    """The projection of `names` with one matrix; decay and gate may use two low-rank matrices."""
    columns = {**COLUMNS, "forget": _decays(mixer)}
    outputs = " ".join(FILTERED.get(name, f"{name}[b t {columns[name]}]") for name in names)
    matrix, source, rows = "_".join(names), block.input, "d"
    if mixer.gate_rank and (matrix == "forget" or (matrix == "gate" and not mixer.full_gate)):
        line = f"{source} W_linear_{matrix}_down[d q] -> low[b t q]"
        yield build.operator(f"{GROUP}.{matrix}_down", GROUP, line)
        matrix, source, rows = f"{matrix}_up", "low[b t q]", "q"
    out = TOGETHER.get(names, columns[names[0]])
    yield build.operator(f"{GROUP}.{matrix}", GROUP, f"{source} W_linear_{matrix}[{rows} {out}] -> {outputs}")


def _decays(mixer: DeltaRule) -> str:
    """The axes of the decay: per head, or per element of the key."""
    return "k m h" if mixer.decay_per_channel else "k m"


def _with_chunk_sizes(build: Builder, step: Step, mixer: DeltaRule) -> Builder:
    """The builder with the axis sizes of chunks (see `in_chunks`)."""
    sizes = in_chunks(step, mixer.chunk)
    if step.attention == "eager":
        filled = sizes["j"] * mixer.chunk
        sizes |= {"t": filled, "s": filled, "t:s": filled * mixer.chunk, "t:j": filled}
        sizes |= {"k": mixer.value_heads, "m": 1}
    return build._replace(sizes={**build.sizes, **sizes})


def _delta_chunks(build: Builder, step: Step, mixer: DeltaRule) -> tuple[Operator, ...]:
    """A prefill in chunks: the triangular system, the update of the state from chunk to chunk, the output.

    `start_state` has the initial states of the chunks. The operator that passes them on comes before the operators that
    compute each chunk's contribution, so that each line follows the lines that it reads.
    """
    old_state, new_state = (
        " cache.state[b k m h h']" if is_cached else "" for is_cached in (step.resumed, step.cached)
    )
    fused = step.attention == "flash"
    inverse = "inverse" if fused or mixer.decay_per_channel else "system"
    elements_per_decay = build.sizes["h'"] if mixer.decay_per_channel else build.sizes["h"] * build.sizes["h'"]
    passing = f"chunk_decay[b j {_decays(mixer)}]{old_state} -> start_state[b j k m h h']{new_state}"
    within_chunks = (
        _decay_per_element(build, step, mixer) if mixer.decay_per_channel else _decay_per_head(build, step, mixer)
    )
    return (
        *_prepared(build, mixer, 1),
        *within_chunks,
        vector_operator(build, "drive", "value[b s k m h'] write[b s k m] -> drive[b s k m h']", 1),
        bmm_operator(build, "values", f"{inverse}[b k m t:s] drive[b s k m h'] -> values[b t k m h']"),
        bmm_operator(build, "keys", f"{inverse}[b k m t:s] written_key[b s k m h] -> keys[b t k m h]"),
        # multiply by the decay 1, add the contribution of the chunk 1
        vector_operator(build, "passing", passing, 2 * elements_per_decay),
        _after_first_chunk(
            bmm_operator(build, "recall", "keys[b t k m h] start_state[b j k m h h'] -> recalled[b t:j k m h']"),
            mixer.chunk,
        ),
        vector_operator(build, "correct", "values[b t k m h'] recalled[b t:j k m h'] -> new[b t k m h']", 1),
        _before_last_chunk(
            bmm_operator(build, "states", "decayed_key[b s k m h] new[b s k m h'] -> start_state[b j k m h h']"),
            mixer.chunk,
        ),
        _after_first_chunk(
            bmm_operator(
                build, "read_out", "decayed_q[b t k m h] start_state[b j k m h h'] -> state_output[b t:j k m h']"
            ),
            mixer.chunk,
        ),
        bmm_operator(build, "mix", "p[b k m t:s] new[b s k m h'] -> y[b t k m h']"),
        vector_operator(build, "sum", "y[b t k m h'] state_output[b t:j k m h'] -> y[b t k m h']", 1),
    )


def _decay_per_head(build: Builder, step: Step, mixer: DeltaRule) -> Iterator[Operator]:
    """Within chunks, one decay per head: overlaps of keys, scores of queries and keys, then their decays."""
    heads = build.sizes["m"]
    yield bmm_operator(build, "overlap", "key[b t k h] key[b s k h] -> overlap[b k t:s]")
    # per value head: difference of two sums 1, exp 1, times the overlap 1, times the write strength 1
    line = "overlap[b k t:s] decay[b t k m] write[b t k m] -> system[b k m t:s]"
    yield vector_operator(build, "system", line, 4 * heads)
    if step.attention == "flash":
        yield _inverted(build, step, mixer)
    yield vector_operator(
        build, "strike", "key[b s k h] write[b s k m] decay[b s k m] -> written_key[b s k m h]", 2 * heads
    )
    yield bmm_operator(build, "scores", "q[b t k h] key[b s k h] -> a[b k t:s]")
    yield vector_operator(build, "weigh", "a[b k t:s] decay[b t k m] -> p[b k m t:s]", 3 * heads)
    # decay of queries from the start of the chunk, of keys to its end
    line = "q[b t k h] key[b t k h] decay[b t k m] -> decayed_q[b t k m h] decayed_key[b s k m h]"
    yield vector_operator(build, "fade", line, 2 * heads)


def _decay_per_element(build: Builder, step: Step, mixer: DeltaRule) -> Iterator[Operator]:
    """Within chunks, one decay per element of a key.

    Fused kernels divide keys by the decay, in blocks of 16 tokens to avoid overflow, and run GEMMs. The reference code
    computes a vector for each pair of tokens.
    """
    heads, size = build.sizes["m"], build.sizes["h"]
    if step.attention == "flash":
        # exp of the decay from the chunk's start 1, its inverse 1, to the chunk's end 2; multiplications 5
        line = (
            "q[b t k h] key[b t k h] write[b t k m] decay[b t k m h]"
            " -> decayed_q[b t k m h] written_key[b t k m h] key_over_decay[b s k m h] decayed_key[b s k m h]"
        )
        yield vector_operator(build, "fade", line, 9 * heads)
        yield bmm_operator(build, "overlap", "written_key[b t k m h] key_over_decay[b s k m h] -> system[b k m t:s]")
        yield _inverted(build, step, mixer)
        yield bmm_operator(build, "scores", "decayed_q[b t k m h] key_over_decay[b s k m h] -> p[b k m t:s]")
        return
    pairs = build.sizes["b"] * build.sizes["k"] * heads * build.sizes["t:s"] * size
    # per element of a pair: difference of two sums 1, exp 1, multiplications 2, sum over elements 1
    line = "key[b t k h] write[b t k m] decay[b t k m h] => system[b k m t:s]"
    yield replace(vector_operator(build, "overlap", line, 0), vector_flops=5 * pairs)
    yield _inverted(build, step, mixer)
    line = "key[b s k h] write[b s k m] decay[b s k m h] -> written_key[b s k m h]"
    yield vector_operator(build, "strike", line, 3 * heads)
    line = "q[b t k h] key[b t k h] decay[b t k m h] => p[b k m t:s]"
    yield replace(vector_operator(build, "scores", line, 0), vector_flops=3 * pairs)
    line = "q[b t k h] key[b t k h] decay[b t k m h] -> decayed_q[b t k m h] decayed_key[b s k m h]"
    yield vector_operator(build, "fade", line, 5 * heads)


def _prepared(build: Builder, mixer: DeltaRule, sums: int) -> Iterator[Operator]:
    """Normalized queries and keys, scaled queries, write strength, and decay (its cumulative sum along a chunk)."""
    axes = _decays(mixer)
    ends = f" chunk_decay[b j {axes}]" if sums else ""
    line = "q[b t k h] key[b t k h] -> q[b t k h] key[b t k h]"
    yield vector_operator(build, "unit", line, 2 * vector_flops.UNIT_LENGTH + vector_flops.SCALE)
    yield vector_operator(build, "extent", "write[b t k m] -> write[b t k m]", vector_flops.ACTIVATION["sigmoid"])
    # softplus of the step, times A; or times A, a sigmoid, times the bound; then the exponential, or that comes later
    line = f"forget[b t {axes}] B_step[{axes}] A[k m] -> decay[b t {axes}]{ends}"
    later = sums and mixer.decay_per_channel
    yield vector_operator(build, "decay", line, vector_flops.STEP + 1 + mixer.sigmoid_decay + sums + (not later))


def _inverted(build: Builder, step: Step, mixer: DeltaRule) -> Operator:
    """The inverse of the triangular system of a chunk with n tokens, row by row: n (n - 1) (n - 2) / 3 FLOPs."""
    size = mixer.chunk

    def flops(tokens: Number) -> Number:
        rows = (size, tokens % size)
        per_block, rest = (quotient(n * (n - 1) * (n - 2), 3) for n in rows)
        return tokens // size * per_block + rest

    each = step.mean_of(flops) if step.attention == "flash" else build.sizes["j"] * flops(size)
    line = "system[b k m t:s] => inverse[b k m t:s]"
    operator = build.operator(f"{GROUP}.invert", GROUP, line, kind="elementwise", keeps="outputs")
    return replace(operator, vector_flops=build.sizes["b"] * build.sizes["k"] * build.sizes["m"] * each)


def _delta_recurrence(build: Builder, step: Step, mixer: DeltaRule) -> tuple[Operator, ...]:
    """One token, on the vector units: decay the state, correct the value stored under the key, read with the query."""
    if step.attention == "eager":
        build = build._replace(sizes={**build.sizes, "k": build.sizes["k"] * build.sizes["m"], "m": 1})
    lines = (
        ("fade", "elementwise", f"cache.state[b k m h h'] decay[b t {_decays(mixer)}] -> state[b t k m h h']", 1),
        ("recall", "bmm", "state[b t k m h h'] key[b t k h] => recalled[b t k m h']", 2),
        ("correct", "elementwise", "value[b t k m h'] recalled[b t k m h'] write[b t k m] -> new[b t k m h']", 2),
        (
            "recurrence", "scan",
            "state[b t k m h h'] key[b t k h] new[b t k m h'] -> state[b t k m h h'] cache.state[b k m h h']", 2,
        ),
        ("read_out", "bmm", "state[b t k m h h'] q[b t k h] => y[b t k m h']", 2),
    )  # fmt: skip
    steps = (build.operator(f"{GROUP}.{name}", GROUP, line, kind=kind, flops=n) for name, kind, line, n in lines)
    return *_prepared(build, mixer, 0), *steps


def vector_operator(build: Builder, name: str, line: str, flops: Number) -> Operator:
    """An operator of linear attention on the vector units, with `flops` per element of its first input."""
    return build.operator(f"{GROUP}.{name}", GROUP, line, kind="elementwise", flops=flops)


def _after_first_chunk(operator: Operator, chunk: Number) -> Operator:
    """An operator that reads the states at the start of chunks; the first one is zero and has no gradient."""
    tokens = operator.sizes["t"]
    return _with_gradients_of(operator, ("start_state",), tokens, tokens - minimum(tokens, chunk))


def _before_last_chunk(operator: Operator, chunk: Number) -> Operator:
    """An operator that adds to the state; what the last chunk adds is not read and has no gradient."""
    tokens, names = operator.sizes["s"], tuple(factor.name for factor in operator.lines[0].factors)
    return _with_gradients_of(operator, names, tokens, (operator.sizes["j"] - 1) * chunk)


def _with_gradients_of(operator: Operator, names: Iterable[str], tokens: Number, counted: Number) -> Operator:
    """The operator with gradients of the inputs in `names` that are computed for `counted` of its `tokens`."""
    flops = quotient(operator.matmul_flops * counted, tokens)
    return replace(operator, gradient_flops=dict.fromkeys(names, flops))


def bmm_operator(build: Builder, name: str, line: str) -> Operator:
    """An operator of linear attention that is a batched GEMM."""
    return build.operator(f"{GROUP}.{name}", GROUP, line, kind="bmm")


def lightning(mixer: Lightning, block: BlockContext) -> Iterator[Operator]:
    """Lightning attention: projection and activation, scan, norm over all heads, gate, output. The cache has states."""
    step = block.step
    build = block.build(k=mixer.heads, h=mixer.head_dim, c=3 * mixer.heads * mixer.head_dim, **{"h'": mixer.head_dim})
    heads = "q[b t k h] key[b t k h] value[b t k h']"
    yield build.operator(f"{GROUP}.qkv", GROUP, f"{block.input} W_linear_qkv[d c] -> {heads}")
    yield vector_operator(build, "activation", f"{heads} -> {heads}", 3 * vector_flops.ACTIVATION[mixer.activation])

    def scan(step: Step) -> tuple[Operator, ...]:
        if step.attention == "eager" and step.resumed:
            one_by_one = {"s": step.tokens, "j": step.tokens, "t:j": step.tokens}
            return tuple(_block_states(build._replace(sizes={**build.sizes, **one_by_one}), step, "y", 1))
        if step.recurrent:
            return _lightning_recurrence(build)
        return _lightning_blocks(_with_block_sizes(build, step, mixer), step, mixer.chunk)

    yield from fused_or_eager(f"{GROUP}.scan", GROUP, scan, step, kind="scan")
    line = "y[b t k h'] G_linear_heads[k h'] -> y[b t k h']"
    yield build.operator(f"{GROUP}.heads_norm", GROUP, line, kind="norm", flops=vector_flops.NORM["rmsnorm"])
    yield build.operator(f"{GROUP}.gate", GROUP, f"{block.input} W_linear_gate[d k h'] -> gate[b t k h']")
    yield vector_operator(build, "gated", "y[b t k h'] gate[b t k h'] -> y[b t k h']", vector_flops.GATE + 1)
    yield build.operator(f"{GROUP}.output", GROUP, f"y[b t k h'] W_linear_out[k h' d] -> {block.output}")


def _with_block_sizes(build: Builder, step: Step, mixer: Lightning) -> Builder:
    """The builder with the axis sizes of blocks (see `in_chunks`)."""

    def squares(tokens: Number, size: Number) -> Number:
        return tokens // size * size**2 + (tokens % size) ** 2

    sizes = in_chunks(step, mixer.chunk, squares if step.attention == "eager" else causal_pairs)
    return build._replace(sizes={**build.sizes, **sizes})


def _lightning_blocks(build: Builder, step: Step, chunk: Number) -> tuple[Operator, ...]:
    """Decayed scores times values within a block, plus the contribution of earlier blocks."""
    return (
        bmm_operator(build, "scores", "q[b t k h] key[b s k h] -> a[b k t:s]"),
        vector_operator(build, "weigh", "a[b k t:s] -> p[b k t:s]", 1),
        bmm_operator(build, "mix", "p[b k t:s] value[b s k h'] -> y[b t k h']"),
        vector_operator(build, "fade", "q[b t k h] key[b t k h] -> q[b t k h] key[b t k h]", 2),
        *_block_states(build, step, "state_output", chunk),
        vector_operator(build, "sum", "y[b t k h'] state_output[b t:j k h'] -> y[b t k h']", 1),
    )


def _block_states(build: Builder, step: Step, outputs: str, chunk: Number) -> Iterator[Operator]:
    """The contribution of each block to the state, state passing between blocks, and the read by queries."""
    old_state, new_state = (" cache.state[b k h h']" if is_cached else "" for is_cached in (step.resumed, step.cached))
    states = bmm_operator(build, "states", "key[b s k h] value[b s k h'] -> states[b j k h h']")
    yield _before_last_chunk(states, chunk)
    line = f"states[b j k h h']{old_state} -> start_state[b j k h h']{new_state}"
    yield vector_operator(build, "passing", line, 2)  # multiply by the decay, add
    read_out = bmm_operator(build, "read_out", f"q[b t k h] start_state[b j k h h'] -> {outputs}[b t:j k h']")
    yield _after_first_chunk(read_out, chunk)


def _lightning_recurrence(build: Builder) -> tuple[Operator, ...]:
    """One token, on the vector units: decay the state, add key times value, read with the query."""
    update = "cache.state[b k h h'] key[b t k h] value[b t k h'] -> state[b t k h h'] cache.state[b k h h']"
    line = "state[b t k h h'] q[b t k h] => y[b t k h']"
    return (
        build.operator(f"{GROUP}.recurrence", GROUP, update, kind="scan", flops=3),
        build.operator(f"{GROUP}.read_out", GROUP, line, kind="bmm", flops=2),
    )


def matrix_memory(mixer: MatrixMemory, block: BlockContext) -> Iterator[Operator]:
    """mLSTM: projections, scan in chunks, norm per head and gate, output. k heads; names: `write` is the input gate."""
    step, columns = block.step, 2 * mixer.heads * (mixer.head_dim + mixer.value_dim)
    sizes = {"h'": mixer.value_dim, "mw": 2 * mixer.heads}
    build = block.build(k=mixer.heads, h=mixer.head_dim, c=columns, **sizes)
    parts = {"q": "q[b t k h]", "k": "key[b t k h]", "v": "value[b t k h']", "gate": "gate[b t k h']"}
    gates = {"write": "write[b t k]", "forget": "forget[b t k]"}
    for name, axes, outputs in (("qkv", "c", parts), ("gates", "mw", gates)):
        each = {name: " ".join(outputs.values())} if mixer.fused else outputs
        for one, out in each.items():
            columns_of = axes if mixer.fused else out.partition("b t ")[2].rstrip("]")
            bias = f" + B_linear_{one}[{columns_of}]" if outputs is gates else ""
            line = f"{block.input} W_linear_{one}[d {columns_of}]{bias} -> {out}"
            yield build.operator(f"{GROUP}.{one}", GROUP, line)

    def squares(tokens: Number, size: Number) -> Number:
        return tokens // size * size**2

    def scan(step: Step) -> tuple[Operator, ...]:
        in_step = in_chunks(step, mixer.chunk, squares if step.attention == "eager" else causal_pairs)
        return _memory_chunks(build._replace(sizes={**build.sizes, **in_step}), step)

    yield from fused_or_eager(f"{GROUP}.scan", GROUP, scan, step, kind="scan")
    yield build.operator(
        f"{GROUP}.norm", GROUP, "y[b t k h'] gate[b t k h'] G_linear_norm[k h'] -> y[b t k h']", kind="norm",
        flops=vector_flops.NORM["layernorm"] - 1 + vector_flops.GATE + 1,  # the norm has no bias
    )  # fmt: skip
    yield build.operator(f"{GROUP}.output", GROUP, f"y[b t k h'] W_linear_out[k h' d] -> {block.output}")


def _memory_chunks(build: Builder, step: Step) -> tuple[Operator, ...]:
    """Gated scores times values within a chunk, plus what the states and normalizers of earlier chunks add."""
    states = " cache.state[b k h h'] cache.normalizer[b k h] cache.largest[b k]"
    old, new = (states if is_cached else "" for is_cached in (step.resumed, step.cached))
    passed = f"states[b j k h h'] sums[b j k h]{old} -> start_state[b j k h h'] normalizer[b j k h]{new}"
    return (
        # a cap by tanh of both gates 6, log of a sigmoid 3, cumulative sum 1
        vector_operator(build, "gates", "write[b t k] forget[b t k] -> decay[b t k] added[b s k]", 10),
        bmm_operator(build, "scores", "q[b t k h] key[b s k h] -> a[b k t:s]"),
        # difference of two sums 1, input gate 1, maximum 1, subtract it 1, exp 1, times the score 1, sum 1
        vector_operator(build, "weigh", "a[b k t:s] decay[b t k] added[b s k] -> p[b k t:s]", 7),
        bmm_operator(build, "mix", "p[b k t:s] value[b s k h'] -> y[b t k h']"),
        # times the gate 1, sum 1
        vector_operator(build, "fade", "key[b s k h] added[b s k] -> faded[b s k h] sums[b j k h]", 2),
        bmm_operator(build, "states", "faded[b s k h] value[b s k h'] -> states[b j k h h']"),
        vector_operator(build, "passing", passed, 2),  # multiply by the decay, add
        bmm_operator(build, "read_out", "q[b t k h] start_state[b j k h h'] -> state_output[b t:j k h']"),
        bmm_operator(build, "totals", "q[b t k h] normalizer[b j k h] -> total[b t:j k]"),
        vector_operator(build, "sum", "y[b t k h'] state_output[b t:j k h'] total[b t:j k] -> y[b t k h']", 2),
    )
