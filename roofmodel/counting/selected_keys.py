"""Keys that sparse attention reads: blocks of keys that each query selects, and compressed entries of several tokens.

`attended` and `pairs` (`workload.py`) have those of attention to all keys, or to a window.
"""

from collections.abc import Callable

from roofmodel.counting.workload import Step, attended, pairs, unmasked_pairs
from roofmodel.numbers.algebra import Number, half, mean, minimum


def attended_blocks(step: Step, size: Number, blocks: Number) -> Number:
    """Number of key positions that are read where each query attends to `blocks` of `size` keys.

    The block of the query is one of them. A decode reads the blocks that its query selects; the queries of a prefill
    together select nearly all. Eager attention reads all.
    """
    if step.phase != "decode" or step.attention == "eager":
        return attended(step, None)
    if step.passes > 1:
        return pairs_in_blocks(step, size, blocks)
    return minimum(step.context, (blocks - 1) * size + step.context % size) + step.tokens


def pairs_in_blocks(step: Step, size: Number, blocks: Number) -> Number:
    """Query-key pairs per head of causal attention to `blocks` of `size` keys; all pairs under eager attention."""
    if step.attention == "eager":
        return pairs(step, None, causal=True)

    def in_blocks(n: Number) -> Number:
        """The keys of n queries: their own block up to themselves, and up to `blocks` - 1 earlier blocks."""
        return unmasked_pairs(n, size, chunked=True) + size * (_blocks_of_queries(n, size, blocks) - n)

    return _added_by_new_tokens(step, in_blocks)


def query_block_pairs(step: Step, size: Number, blocks: Number | None = None) -> Number:
    """Pairs of a query and a block of `size` keys that is not ahead of it; with `blocks`, at most so many per query."""
    return _added_by_new_tokens(step, lambda n: _blocks_of_queries(n, size, blocks))


def entries(step: Step, ratio: Number) -> Number:
    """Compressed entries of `ratio` tokens each that are complete after the pass; the mean over the passes."""
    if step.cached and step.passes > 1:
        return _added_by_new_tokens(step, lambda n: _entries_of_queries(n, ratio, None))
    return step.mean_of(lambda tokens: (step.context + tokens) // ratio)


def new_entries(step: Step, ratio: Number) -> Number:
    """Compressed entries that the new tokens of a pass complete."""
    return _added_by_new_tokens(step, lambda n: n // ratio)


def entry_pairs(step: Step, ratio: Number, kept: Number | None = None) -> Number:
    """Pairs of a query and a complete compressed entry, at most `kept` per query; all pairs under eager attention."""
    if step.attention == "eager" and step.cached and step.passes > 1:
        return step.tokens * entries(step, ratio)
    if step.attention == "eager":
        return step.mean_of(lambda tokens: tokens * ((step.context + tokens) // ratio))
    return _added_by_new_tokens(step, lambda n: _entries_of_queries(n, ratio, kept))


def pooled_pairs(step: Step, pool: Number, most: Number) -> Number:
    """Query-key pairs of attention to at most `most` pools of `pool` tokens, and to the tokens after the last one.

    The earlier ones of a query's complete pools are left out beyond the number that it selects.
    """
    left_out = entry_pairs(step, pool) - entry_pairs(step, pool, most)
    return pairs(step, None, causal=True) - pool * left_out


def pooled_keys(step: Step, pool: Number, most: Number) -> Number:
    """Number of key positions that are read then: a decode reads the pools that its query selects."""
    keys = attended(step, None)
    if step.phase != "decode" or step.attention == "eager":
        return keys
    complete = entries(step, pool)
    return keys - pool * (complete - minimum(complete, most))


def _entries_of_queries(n: Number, ratio: Number, kept: Number | None) -> Number:
    """The sum over i <= n of min(i // ratio, kept)."""
    most = n // ratio if kept is None else minimum(n // ratio, kept)
    return ratio * half(most * (most - 1)) + (n - most * ratio + 1) * most


def _blocks_of_queries(n: Number, size: Number, blocks: Number | None) -> Number:
    """Each query's own block and the earlier ones, at most `blocks`: sum over i <= n of min(ceil(i / size), blocks)."""
    full, rest = n // size, n % size
    if blocks is None:
        return size * half(full * (full + 1)) + rest * (full + 1)
    few = minimum(full, blocks)
    return size * (half(few * (few + 1)) + (full - few) * blocks) + rest * minimum(full + 1, blocks)


def _added_by_new_tokens(step: Step, total: Callable[[Number], Number]) -> Number:
    """What the new tokens of a pass add to `total(n)`, a sum over the first n tokens; the mean over the passes."""
    if step.cached and step.passes > 1:
        return step.tokens * mean(total(step.context + step.passes) - total(step.context), step.passes)
    return step.mean_of(lambda tokens: total(step.context + tokens) - total(step.context))
