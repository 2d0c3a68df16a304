"""Encoder-decoders: operators of prefill and decode, cache reads and memory, derived by hand."""

from __future__ import annotations

from typing import Any

import pytest

from roofmodel.counting.blocks import operators
from roofmodel.counting.operator import Operator
from roofmodel.counting.passes import kv_cache_bytes
from roofmodel.counting.workload import Workload
from roofmodel.models import hub

T5, WHISPER = hub.load("google-t5/t5-small"), hub.load("openai/whisper-tiny")
SOURCE, PROMPT, WIDTH = 100, 7, 512  # t5-small: 6 + 6 layers, 8 heads of 64


def step(phase: Any, **options: Any) -> Any:
    return Workload((phase,), 1, SOURCE, decoder_seq=PROMPT, **options).step(phase)


def counted(phase: Any, **options: Any) -> dict[str, Operator]:
    return {operator.name: operator for operator in operators(T5, step(phase, **options))}


def test_the_prefill_computes_cross_attention_keys_and_values_and_a_decode_only_reads_them() -> None:
    prefill, decode = counted("prefill"), counted("decode")
    keys = prefill["cross_attention.k"]
    assert keys.count == 6
    assert keys.cost.matmul_flops == 2 * SOURCE * WIDTH * WIDTH  # the tokens of the source, not of the prompt
    assert keys.cost.bytes_written == 2 * SOURCE * WIDTH  # to the cache, in fp16
    assert not {"cross_attention.k", "cross_attention.v"} & set(decode)
    assert decode["cross_attention.flash"].cost.cache_bytes == 2 * 2 * SOURCE * WIDTH  # keys and values, fp16
    assert decode["cross_attention.flash"].cost.matmul_flops == 2 * 2 * SOURCE * WIDTH  # scores and mix, 1 token


def test_only_the_pass_that_reads_the_source_runs_the_encoder() -> None:
    def encoder_operators(phase: str, **options: Any) -> set[str]:
        return {name for name in counted(phase, **options) if name.startswith("encoder.")}

    assert encoder_operators("prefill") == encoder_operators("forward") != set()
    assert encoder_operators("decode") == encoder_operators("prefill", context=3) == set()


def test_the_encoder_is_bidirectional_and_the_decoder_causal() -> None:
    prefill = counted("prefill")
    assert prefill["encoder.attention.flash"].cost.matmul_flops == 2 * 2 * SOURCE * SOURCE * WIDTH
    assert prefill["attention.flash"].cost.matmul_flops == 2 * 2 * (PROMPT * (PROMPT + 1) // 2) * WIDTH
    assert prefill["cross_attention.flash"].cost.matmul_flops == 2 * 2 * PROMPT * SOURCE * WIDTH


def test_the_cache_contains_the_prompt_and_the_source() -> None:
    # keys and values, 6 layers of the decoder, 8 heads of 64, fp16
    assert kv_cache_bytes(T5, step("prefill")) == 2 * 6 * (PROMPT + SOURCE) * WIDTH * 2
    assert kv_cache_bytes(T5, step("decode")) == 2 * 6 * (PROMPT + 1 + SOURCE) * WIDTH * 2
    assert kv_cache_bytes(T5, step("forward")) == 0


def test_both_stacks_and_the_logits_use_the_same_token_table() -> None:
    tables = [t.name for operator in counted("forward").values() for t in operator.parameters if "token" in t.name]
    assert tables == ["E_token"] * 3


def test_the_encoder_output_stays_in_memory_until_the_last_layer_reads_it() -> None:
    readers = [op.name for op in operators(T5, step("forward")) if any(t.name == "source" for t in op.reads)]
    assert readers[-2:] == ["cross_attention.k", "cross_attention.v"]


def test_a_stack_has_one_table_of_relative_position_biases() -> None:
    prefill = counted("prefill")
    for name, biases in (("encoder.", 8 * SOURCE * SOURCE), ("", 8 * PROMPT * (PROMPT + 1) // 2)):
        operator = prefill[f"{name}embedding.relative"]
        assert operator.count == 1
        assert operator.cost.bytes_read == 2 * 32 * 8  # 32 distances, 8 heads, fp16
        assert operator.cost.bytes_written == 2 * biases


@pytest.mark.parametrize(
    ("name", "channels", "frames_in", "frames_out"),
    [("convolution_1", 80, 3000, 3000), ("convolution_2", 384, 3000, 1500)],  # 80 mel bands, 30 s of 10 ms
)
def test_the_convolutions_of_whisper(name: str, channels: int, frames_in: int, frames_out: int) -> None:
    work = Workload(("prefill",), 1, 1500, decoder_seq=4)
    found = {operator.name: operator for operator in operators(WHISPER, work.steps()[0])}
    cost = found[f"encoder.embedding.{name}"].cost
    assert cost.matmul_flops == 2 * frames_out * 3 * channels * 384
    assert cost.weight_bytes == 2 * (3 * channels * 384 + 384)
    assert (
        cost.bytes_read - cost.weight_bytes == 2 * frames_in * channels
    )  # each frame is read once, not once per tap of the filter
    assert cost.bytes_written == 2 * frames_out * 384
