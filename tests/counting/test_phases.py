"""Phases of several passes: their cost equals the sum over the passes."""

from __future__ import annotations

import itertools
import random
import zlib
from collections.abc import Iterable

import pytest

from roofmodel.counting import blocks, passes, phases
from roofmodel.counting.operator import Cost, Operator
from roofmodel.counting.workload import Parallel, Workload
from roofmodel.models import hub
from roofmodel.models.architecture import Architecture
from roofmodel.models.config import architecture
from roofmodel.models.families import FAMILIES
from roofmodel.models.layers import MoE
from roofmodel.options.values import Phase
from tests import draws


def random_architecture(model_type: str, rng: random.Random) -> Architecture:
    family = FAMILIES[model_type]
    suffix = next(iter(family.classes))
    config = draws.config(model_type, rng) | {"architectures": [family.prefix + suffix]}
    return architecture(config, "drawn", "config.json")


def with_source(arch: Architecture, work: Workload) -> Workload:
    """The same workload, with a source of 17 tokens for an encoder-decoder."""
    return work._replace(seq=17, decoder_seq=work.seq) if arch.encoder else work


def total(operators: Iterable[Operator]) -> Cost:
    return sum((op.total for op in operators), Cost())


DECODERS = [name for name in FAMILIES if not FAMILIES[name].encoder]
ATTENTION = list(zip(DECODERS, itertools.cycle(("flash", "eager"))))
"""Each decoder with one attention; families that follow each other have different ones."""


@pytest.mark.parametrize(("model_type", "attention"), ATTENTION)
def test_the_cost_of_generation_is_the_sum_of_prefill_and_decodes(model_type: str, attention: str) -> None:
    rng = random.Random(zlib.crc32(f"{model_type} {attention}".encode()))
    arch = random_architecture(model_type, rng)
    seq, context, new, batch = (rng.randint(1, most) for most in (30, 30, 10, 30))  # windows are 4 to 64 tokens

    def pass_cost(phase: str, seq: int, context: int) -> Cost:
        work = Workload((phase,), batch, seq, context, attention=attention)  # type: ignore[arg-type]
        return total(blocks.operators(arch, with_source(arch, work).steps()[0]))

    work = Workload(("generate",), batch, seq, context, attention=attention, new_tokens=new)  # type: ignore[arg-type]
    work = with_source(arch, work)
    one_by_one = [pass_cost("prefill", seq, context)]
    one_by_one += [pass_cost("decode", seq, context + seq + i) for i in range(new)]
    counted, expected = total(phases.operators(arch, work.steps()[0])), sum(one_by_one, Cost())
    assert (counted.matmul_flops, counted.vector_flops) == (expected.matmul_flops, expected.vector_flops)
    assert (counted.bytes, counted.weight_bytes, counted.cache_bytes) == pytest.approx(
        (expected.bytes, expected.weight_bytes, expected.cache_bytes), rel=1e-12  # touched experts: a float
    )  # fmt: skip
    for value in (counted.matmul_flops, counted.vector_flops, counted.cache_bytes):
        assert type(value) is int


@pytest.mark.parametrize(("model_type", "attention"), ATTENTION)
def test_generation_without_a_cache_repeats_all_earlier_tokens(model_type: str, attention: str) -> None:
    rng = random.Random(zlib.crc32(f"{model_type} {attention}".encode()))
    arch = random_architecture(model_type, rng)
    seq, context, new, batch = (rng.randint(1, most) for most in (30, 30, 10, 30))

    def forward(tokens: int) -> tuple[Operator, ...]:
        work = Workload(("forward",), batch, tokens, attention=attention, logits="last")  # type: ignore[arg-type]
        return blocks.operators(arch, with_source(arch, work).steps()[0])

    work = Workload(("generate",), batch, seq, context, attention=attention, new_tokens=new)  # type: ignore[arg-type]
    counted = total(phases.operators_without_cache(arch, with_source(arch, work).steps()[0]))
    expected = total(op for op in forward(1) if op.group.startswith("encoder "))  # the encoder runs once
    for i in range(new + 1):
        expected += total(op for op in forward(context + seq + i) if not op.group.startswith("encoder "))
    assert (counted.matmul_flops, counted.vector_flops) == (expected.matmul_flops, expected.vector_flops)
    if not any(
        isinstance(part, MoE) for part in arch.stack.parts
    ):  # MoE: the touched experts of all passes are those of the mean pass
        assert counted.bytes == expected.bytes


def test_flops_of_generation_without_a_cache_equal_those_derived_by_hand() -> None:
    """Scores of a layer with 2 heads of size 4, prompt 3, 2 new tokens: 2 x 8 FLOPs x pairs of 3, 4 and 5 tokens."""
    config = {"model_type": "gpt2", "n_embd": 8, "n_head": 2, "n_layer": 1, "vocab_size": 10}
    arch = architecture(config, "x", "x")
    work = Workload(("generate",), seq=3, attention="eager", new_tokens=2)
    ops = {op.name: op.total.matmul_flops for op in phases.operators_without_cache(arch, work.steps()[0])}
    assert ops["attention.scores"] == 2 * 8 * (9 + 16 + 25)
    fused = phases.operators_without_cache(arch, work.steps()[0]._replace(attention="flash"))
    flash = {op.name: op.total.matmul_flops for op in fused}
    assert flash["attention.flash"] == 2 * 2 * 8 * (6 + 10 + 15)


def test_peak_memory_of_generation_is_in_its_last_decode_if_the_cache_dominates() -> None:
    config = {"model_type": "gpt2", "n_embd": 8, "n_head": 2, "n_layer": 3, "vocab_size": 10}
    arch = architecture(config, "x", "x")
    peak = phases.peak_memory(arch, Workload(("generate",), seq=1, new_tokens=1000))
    assert peak.kv_cache == 2 * 1001 * 8 * 3 * 2  # K and V, 1 + 1000 tokens, 8 wide, 3 layers, fp16


@pytest.mark.parametrize("model_type", FAMILIES)
def test_one_traversal_counts_the_matmul_flops_of_fused_and_eager_attention(model_type: str) -> None:
    rng = random.Random(zlib.crc32(model_type.encode()))
    arch = random_architecture(model_type, rng)
    for phase in rng.sample(("prefill", "decode", "generate", "train") if arch.causal else ("forward", "train"), 2):
        context = rng.randint(1, 30) if arch.causal and phase != "train" else 0
        work = Workload((phase,), 2, rng.randint(2, 30), context, recompute=rng.choice(["none", "selective", "full"]))  # type: ignore[arg-type]
        step = with_source(arch, work._replace(new_tokens=3, image=arch.image or (0, 0))).steps()[0]
        fused, eager = phases.operators_and_eager(arch, step)
        assert fused == phases.operators(arch, step)
        separate = phases.operators(arch, step._replace(attention="eager"))
        assert [(op.name, op.total.matmul_flops) for op in eager] == [
            (op.name, op.total.matmul_flops) for op in separate
        ]


@pytest.mark.parametrize("model", ["gpt2", "gpt-oss-20b", "deepseek-v3", "qwen3-next-80b-a3b-instruct"])
@pytest.mark.parametrize("phase", ["prefill", "decode", "generate", "train"])
def test_cached_traversals_equal_separate_ones(model: str, phase: Phase) -> None:
    """For all stages of a pipeline and all formats, with one traversal of the model."""
    arch, cached = hub.load(model), passes.CachedWalks()
    for pp, weights in ((1, "fp16"), (2, "fp16"), (4, "int4")):
        work = Workload((phase,), parallel=Parallel(pp=pp), weights=weights)
        for stage in range(pp):
            step = work.steps()[0]._replace(parallel=Parallel(pp=pp, stage=stage))
            assert cached(arch, step) == passes.one_pass(arch, step)
