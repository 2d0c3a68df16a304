"""Speculative decoding: expected tokens per step against a simulation, and its effect on a plan."""

import random

import numpy as np
import pytest

from roofmodel.counting.phases import operators
from roofmodel.counting.workload import PromptChunk
from roofmodel.devices.device import Device
from roofmodel.engines.engine import Engine
from roofmodel.engines.engine_file import Host
from roofmodel.errors import WarningNote, WorkloadError
from roofmodel.models import hub
from roofmodel.models.architecture import Architecture
from roofmodel.plan.candidate import Candidate
from roofmodel.plan.layouts import Formats, Layout
from roofmodel.plan.speculation import Speculation, draft_engine, generation_times, prediction_module
from roofmodel.plan.step_times import ServingReplica, decode_times, mixed_times, replica, stored_weights
from roofmodel.steps.options import workload
from roofmodel.timing.roofline import place
from roofmodel.timing.timing import formula
from tests.plan.searching import plan

MODEL = hub.load("llama-3.1-8b")
SMALL = hub.load("llama-3.2-1b")


def best(**options: object) -> Candidate:
    found = plan(
        MODEL, [Device.load("h100")], gpus=1, isl=512, osl=256, tpot="6ms", dtype="bf16", kv="bf16", mode="mixed",
        **options,  # type: ignore[arg-type]
    )  # fmt: skip
    return found.ranked[0].candidate


@pytest.mark.parametrize(("tokens", "probability"), [(1, 0.9), (4, 0.6), (3, 0.0), (5, 1.0)])
def test_expected_tokens_are_those_of_a_simulation(tokens: int, probability: float) -> None:
    draw = random.Random(7)

    def accepted() -> int:
        return next((n for n in range(tokens) if draw.random() >= probability), tokens) + 1

    mean = sum(accepted() for _ in range(20_000)) / 20_000
    assert Speculation(SMALL, tokens, probability).accepted == pytest.approx(mean, rel=0.02)


def test_a_good_draft_model_raises_the_rate_and_a_bad_one_lowers_it() -> None:
    rates = [best(draft=SMALL, draft_tokens=3, acceptance=share).requests.value for share in (0.0, 0.5, 0.9)]
    assert rates == sorted(rates)
    assert rates[0] < best().requests.value < rates[2]


def test_the_draft_model_needs_memory() -> None:
    assert best(draft=SMALL).largest_batch < best().largest_batch


def test_a_module_of_multi_token_prediction_is_one_layer() -> None:
    module = prediction_module(hub.load("deepseek-v3"))
    assert len(module.stack.layers) == 1
    assert module.stack.layers[0] == hub.load("deepseek-v3").stack.layers[-1]
    (step,) = workload(module, phase="decode", seq=100)[0].steps()
    assert {"attention.flash", "mlp.expert_down"} <= {operator.name for operator in operators(module, step)}
    assert best(draft="mtp", draft_tokens=1, acceptance=0.9).requests.value > best().requests.value


def test_a_module_of_multi_token_prediction_is_sharded_like_its_model() -> None:
    arch = hub.load("deepseek-v3")
    served = replica(arch, Device.load("h200"), Layout(tp=1, ep=8, dp=8), Formats("fp8", "fp8_block", "fp8"), 0.9)
    (each,) = stored_weights(draft_engine(served, Speculation(prediction_module(arch), 1, 0.9, is_mtp=True)))
    # config.json: experts over 8 GPUs; on each GPU attention, the shared expert, embedding and head (8 or 16 bits)
    experts, shared, vocabulary = 3 * 7168 * 2048 * 256 / 8, 3 * 7168 * 2048, 2 * 129280 * 7168
    attention = 7168 * (1536 + 576) + 1536 * 128 * 192 + 512 * 128 * 256 + 128 * 128 * 7168
    layer = experts + shared + attention
    assert layer + vocabulary < each < 1.01 * (layer + 2 * vocabulary)


@pytest.mark.parametrize("draft", [Speculation(SMALL, 3, 0.7), Speculation(prediction_module(MODEL), 3, 0.7, True)])
def test_a_step_with_drafts_has_the_engine_of_the_model_and_its_host_time_once(draft: Speculation) -> None:
    settings, batch, chunk = (("attention", "flashinfer"),), np.array([1, 16]), PromptChunk(np.array([[1]]), 128, 64)
    engine = Engine.load("vllm", settings)._replace(host=Host(step=190e-6))

    def served(one: Engine) -> ServingReplica:
        return replica(MODEL, Device.load("h100"), Layout(), Formats("bf16"), 0.9, engine=one)

    drafter = draft_engine(served(engine), draft).work.engine
    assert (drafter.id, drafter.settings, drafter.kernels) == ("vllm", settings, engine.kernels)
    own, without = (generation_times(served(one), draft, 576, batch) for one in (engine, engine._replace(host=Host())))
    assert own.decode.seconds - without.decode.seconds == pytest.approx(engine.host.step)
    assert own.mixed(chunk).seconds - without.mixed(chunk).seconds == pytest.approx(engine.host.step)


@pytest.mark.parametrize(("name", "factor"), [("llama-3.1-8b", 2), ("deepseek-v3", 4)])
def test_the_verification_of_four_tokens_takes_less_than_four_decodes(name: str, factor: float) -> None:
    """Kernels read the cache once for all queries of a sequence (FlashMLA, FlashInfer: queries and heads are rows).

    With 128 heads that share latents, computation limits already the decode of one token: 2 (576 + 512) 128 FLOPs for
    576 * 2 bytes are 242 FLOP/B, and the H200 has 206.
    """
    arch, device = hub.load(name), Device.load("h200")
    served = replica(arch, device, Layout(), Formats("bf16"), 0.9)
    times = []
    for tokens in (1, 2, 4):
        step = served.step._replace(batch=2, context=16384, tokens=tokens, logit_positions=tokens)
        (attention,) = {o.name: o for o in operators(arch, step) if o.name == "attention.flash"}.values()
        found = formula(attention, place(attention.cost, device, "bf16"), device, "bf16")
        assert found is not None
        times.append(float(found.seconds))
    assert times == sorted(times)
    assert times[-1] < factor * times[0]


def test_options_of_speculation_need_a_draft_model() -> None:
    with pytest.raises(WorkloadError, match=r"acceptance=0\.5 needs a draft model"):
        best(acceptance=0.5)
    with pytest.raises(WorkloadError, match="acceptance is 2; it must be a number from 0 to 1"):
        best(draft="mtp", acceptance=2)


def test_a_draft_model_with_another_vocabulary_or_fewer_positions_is_a_warning() -> None:
    def notes(draft: Architecture | str, isl: int = 512) -> list[str]:
        found = plan(
            MODEL, [Device.load("h100")], gpus=1, isl=isl, osl=64, dtype="bf16", kv="bf16", mode="mixed", draft=draft
        )
        return [str(note) for note in found.notes if isinstance(note, WarningNote)]

    assert notes(SMALL) == notes("mtp") == []
    vocabulary, positions = "has a vocabulary of 50257 tokens", "exceed the maximum positions of openai-community/gpt2"
    (other,) = notes(hub.load("gpt2"))
    assert vocabulary in other
    assert "same tokenizer" in other
    assert any(positions in note for note in notes(hub.load("gpt2"), 2048))


def test_one_of_the_decodes_of_the_draft_model_has_the_chunk() -> None:
    """The pass of the model for four tokens, and three decodes of the draft model, one with the chunk."""
    served = replica(MODEL, Device.load("h100"), Layout(), Formats("bf16"), 0.9)
    speculation, chunk, batch = Speculation(SMALL, 3, 0.7), PromptChunk(1, 256, 0), np.array([16])
    found = generation_times(served, speculation, 640, batch).mixed(chunk)
    drafter, context = draft_engine(served, speculation), 512 + 128
    passes = (
        mixed_times(served, 16, context, chunk, tokens=4),
        mixed_times(drafter, 16, context, chunk),
        decode_times(drafter, 16, context),
        decode_times(drafter, 16, context),
    )
    assert found.seconds.ravel().tolist() == pytest.approx([sum(each.seconds for each in passes)])
