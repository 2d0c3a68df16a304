"""Exactness: for every family, parameters and matmul FLOPs equal those of the real class.

Each family is drawn as small random configs with its switches in all positions; every head that the
family has is built. The expected values come from the model itself, never from this package.
"""

from __future__ import annotations

import random
import zlib
from dataclasses import replace
from typing import Any

import pytest

from roofmodel.counting import phases
from roofmodel.counting.blocks import operators
from roofmodel.counting.passes import parameters
from roofmodel.counting.workload import Workload
from roofmodel.models.architecture import Architecture, Network
from roofmodel.models.config import architecture
from roofmodel.models.families import FAMILIES
from roofmodel.steps.options import workload
from tests import draws, guarantee

torch = pytest.importorskip("torch", reason="the oracle needs torch: pip install 'roofmodel[dev]'")
pytest.importorskip("transformers", reason="the oracle needs transformers: pip install 'roofmodel[dev]'")

from tests import oracle  # noqa: E402


def source_of(config: dict[str, Any], suffix: str, tokens: int, rng: random.Random) -> int:
    """The source length of an encoder-decoder; 0 for other models."""
    if suffix in FAMILIES[config["model_type"]].source_classes or not FAMILIES[config["model_type"]].source:
        return 0
    if suffix == "ForSequenceClassification":
        return tokens  # these classes read the decoder's state at the position of the source's end token
    return config.get("max_source_positions", rng.randint(1, 20))  # Whisper accepts only this length


def with_source(work: Workload, source: int) -> Workload:
    """The same workload, with a source for an encoder-decoder."""
    return work._replace(seq=source, decoder_seq=work.seq) if source else work


@pytest.mark.parametrize(("model_type", "suffix", "draw"), guarantee.classes(guarantee.TEXT_FAMILIES))
def test_parameters_and_flops_equal_those_of_the_real_class(model_type: str, suffix: str, draw: int) -> None:
    rng = random.Random(zlib.crc32(f"{model_type} {suffix} {draw}".encode()))
    config = draws.config(model_type, rng)
    if suffix == "ForQuestionAnswering":
        config["num_labels"] = 2  # start and end of the answer; encoders' classes fail on any other number
    config["architectures"] = [FAMILIES[model_type].prefix + suffix]
    model = oracle.build(config)
    batch, tokens, context = rng.randint(1, 3), rng.randint(1, 20), rng.randint(1, 20)
    source = source_of(config, suffix, tokens, rng)
    passes = guarantee.passes(model_type, suffix)
    expected = {("forward", None): oracle.matmul_flops(model, batch, tokens, source=source)}
    compared: list[Architecture] = []
    # Second, the config of the same model as transformers saves it.
    for written_config in (config, model.config.to_dict() | {"architectures": config["architectures"]}):
        arch = architecture(written_config, "drawn", "config.json")
        if (without_notes := replace(arch, facts={}, notes=())) in compared:
            continue  # already counted
        compared.append(without_notes)
        counted = operators(arch, Workload(("forward",)).steps()[0])
        assert parameters(arch, counted) == oracle.parameters(model)
        assert all(op.meaning(axis) for op in counted for tensor in (*op.reads, *op.writes) for axis in tensor.axes)
        assert arch.causal == ("prefill" in passes)
        if "prefill" in passes:
            expected["prefill", None] = expected["forward", None]
        if "decode" in passes and ("decode", context) not in expected:
            expected["prefill", context] = oracle.matmul_flops(model, batch, tokens, context, source)
            expected["decode", context] = oracle.matmul_flops(model, batch, 1, context, source)

        def flops(phase: Any, context: int | None, arch: Any = arch) -> int:
            work = Workload((phase,), batch, tokens, context, attention="eager", logits="all", mla="naive")
            return sum(op.total.matmul_flops for op in operators(arch, with_source(work, source).steps()[0]))

        assert {phase: flops(*phase) for phase in expected} == expected


@pytest.mark.parametrize(("model_type", "suffix", "draw"), guarantee.classes(guarantee.IMAGE_FAMILIES))
def test_counts_of_vision_families_equal_those_of_the_real_class_at_any_image_size(
    model_type: str, suffix: str, draw: int
) -> None:
    rng = random.Random(zlib.crc32(f"{model_type} {suffix} {draw}".encode()))
    config = draws.config(model_type, rng) | {"architectures": [FAMILIES[model_type].prefix + suffix]}
    model = oracle.build(config)
    for written_config in (config, model.config.to_dict() | {"architectures": config["architectures"]}):
        arch = architecture(written_config, "drawn", "config.json")
        for image in oracle.images(config, rng):
            work, _ = workload(arch, batch=rng.randint(1, 3), attention="eager")
            tokens = 0 if isinstance(arch.body, Network) else arch.stack.embedding.tokens(image)
            counted = operators(arch, work._replace(image=image, seq=tokens).steps()[0])
            assert parameters(arch, counted) == oracle.parameters(model)
            flops = sum(op.total.matmul_flops for op in counted)
            assert flops == oracle.image_flops(model, work.batch, image)


@pytest.mark.parametrize(("model_type", "suffix", "draw"), guarantee.trained(guarantee.TEXT_FAMILIES))
def test_flops_of_a_training_step_equal_forward_and_backward_of_the_real_class(
    model_type: str, suffix: str, draw: int
) -> None:
    """The loss is on all outputs of the model; the optimizer is not compared."""
    rng = random.Random(zlib.crc32(f"{model_type} training {draw}".encode()))
    config = draws.config(model_type, rng) | {"architectures": [FAMILIES[model_type].prefix + suffix]}
    if suffix == "ForQuestionAnswering":
        config["num_labels"] = 2
    batch, tokens = rng.randint(1, 3), rng.randint(1, 20)
    source = source_of(config, suffix, tokens, rng)
    work = with_source(Workload(("train",), batch, tokens, attention="eager"), source)
    counted = phases.operators(architecture(config, "drawn", "config.json"), work.steps()[0])
    assert sum(op.total.matmul_flops for op in counted) == oracle.training_flops(
        oracle.build(config), batch, tokens, source
    )


@pytest.mark.parametrize(("model_type", "suffix", "draw"), guarantee.trained(guarantee.IMAGE_FAMILIES))
def test_flops_of_training_on_images_equal_forward_and_backward_of_the_real_class(
    model_type: str, suffix: str, draw: int
) -> None:
    """The gradient of the image is not computed."""
    rng = random.Random(zlib.crc32(f"{model_type} training {draw}".encode()))
    config = draws.config(model_type, rng) | {"architectures": [FAMILIES[model_type].prefix + suffix]}
    arch, image = architecture(config, "drawn", "config.json"), oracle.images(config, rng)[0]
    work, _ = workload(arch, phase="train", batch=rng.randint(1, 3), attention="eager")
    tokens = 0 if isinstance(arch.body, Network) else arch.stack.embedding.tokens(image)
    counted = phases.operators(arch, work._replace(image=image, seq=tokens).steps()[0])
    assert sum(op.total.matmul_flops for op in counted) == oracle.image_training_flops(
        oracle.build(config), work.batch, image
    )


@pytest.mark.parametrize("model_type", ["t5", "mt5", "umt5"])
def test_an_untied_t5_has_a_separate_logits_matrix(model_type: str) -> None:
    """The class ties the weights in any case; a checkpoint with a separate matrix has one more table."""
    config = draws.config(model_type, random.Random(5)) | {"tie_word_embeddings": False}
    config["architectures"] = [FAMILIES[model_type].prefix + "ForConditionalGeneration"]
    arch = architecture(config, "drawn", "config.json")
    counted = parameters(arch, operators(arch, Workload(("forward",)).steps()[0]))
    assert counted == oracle.parameters(oracle.build(config)) + config["vocab_size"] * config["d_model"]
