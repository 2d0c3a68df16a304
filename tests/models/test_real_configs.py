"""Real config files of the shared data: counts equal the real class, or the config is refused with the reason.

Set ROOF_SHARED_CONFIGS to their folder; the default is `shared/configs` next to the checkout.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from roofmodel.counting.blocks import operators
from roofmodel.counting.passes import parameters
from roofmodel.counting.workload import Workload
from roofmodel.devices.device import Device
from roofmodel.errors import ModelError
from roofmodel.models import hub
from roofmodel.models.families import ALIASES, FAMILIES
from roofmodel.models.families.unsupported import UNSUPPORTED
from roofmodel.steps.estimate import estimate

FOLDER = Path(os.environ.get("ROOF_SHARED_CONFIGS", Path(__file__).parents[3] / "shared" / "configs"))
FILES = sorted(FOLDER.glob("*.json"))
pytestmark = pytest.mark.skipif(not FILES, reason=f"no real configs in {FOLDER.name}; set ROOF_SHARED_CONFIGS")
by_file = pytest.mark.parametrize("file", FILES, ids=[file.stem for file in FILES])

# model_type -> texts in the message: the unsupported part and the reason.
REFUSED: dict[str, tuple[str, ...]] = {}
ROUNDED = {"kimi_k3": 2.8e12}
"""Model types without a class in transformers -> the parameters that their reports round to two digits."""


# model_type whose code comes with the checkpoint -> the same model in transformers
IN_TRANSFORMERS = {"minimax_m3": "minimax_m3_vl_text", "mimo": "qwen2"}


def _config(file: Path) -> dict[str, Any]:
    config = json.loads(file.read_text(encoding="utf-8"))
    assert isinstance(config, dict)
    return config


def _real(config: dict[str, Any]) -> int:
    """Parameters of the real class; for multimodal configs, of the language model and its head."""
    torch = pytest.importorskip("torch", reason="the oracle needs torch: pip install 'roofmodel[dev]'")
    transformers = pytest.importorskip("transformers", reason="the oracle needs transformers: 'roofmodel[dev]'")
    names = {**ALIASES, **IN_TRANSFORMERS}
    model_type = names.get(config["model_type"], config["model_type"])
    settings = {key: value for key, value in config.items() if key not in ("model_type", "quantization_config")}
    if model_type == "step3p7" and "text_config" not in settings:  # a flat config, unlike that of its class
        settings = {"text_config": settings, "tie_word_embeddings": False}
    real = transformers.AutoConfig.for_model(model_type, **settings)
    multimodal = "text_config" in settings
    auto = transformers.AutoModelForImageTextToText if multimodal else transformers.AutoModelForCausalLM
    with torch.device("meta"):
        model = auto.from_config(real)
    if not multimodal:
        return sum(p.numel() for p in model.parameters()) + _mtp(config, model)
    text = model.get_decoder() if hasattr(model, "get_decoder") else model.language_model
    parts = (text, model.get_input_embeddings(), model.get_output_embeddings())
    return sum({id(p): p.numel() for part in parts for p in part.parameters()}.values())


def _mtp(config: dict[str, Any], model: Any) -> int:
    """Parameters of MiMo's layers for multi-token prediction: a layer of the model, three norms, and a projection."""
    if config["model_type"] != "mimo":
        return 0
    hidden = config["hidden_size"]
    layer = sum(p.numel() for p in model.model.layers[0].parameters())
    return int(config["num_nextn_predict_layers"] * (layer + 3 * hidden + 2 * hidden * hidden))


@by_file
def test_a_real_config_is_counted_as_its_real_class_or_refused_with_the_reason(file: Path) -> None:
    config = _config(file)
    if config["model_type"] in REFUSED:
        with pytest.raises(ModelError) as caught:
            hub.load(str(file))
        assert str(caught.value).startswith(f"{file}: ")
        assert all(word in str(caught.value) for word in REFUSED[config["model_type"]])
        return
    arch = hub.load(str(file))
    counted = operators(arch, Workload(("forward",)).steps()[0])
    if config["model_type"] in ROUNDED:
        assert parameters(arch, counted) == pytest.approx(ROUNDED[config["model_type"]], abs=0.05e12)
    else:
        assert parameters(arch, counted) == _real(config)
    if "text_config" in config:
        notes = [*map(str, arch.notes)]
        assert any(f"only the text model of {config['model_type']} is counted" in note for note in notes)
        assert not any("architectures" in note or "tie_word_embeddings" in note for note in notes)
    for phase in (None, "train"):
        found = estimate(arch, Device.load("h100"), phase=phase)
        assert found.parameters == parameters(arch, counted)
        assert all(placed.expected for phase in found.phases for placed in phase.placed)


def test_unsupported_model_types_are_not_families() -> None:
    assert UNSUPPORTED.keys().isdisjoint({*FAMILIES, *ALIASES})


@by_file
def test_quantization_does_not_change_the_architecture(file: Path) -> None:
    config = _config(file)
    if config["model_type"] in REFUSED or "quantization_config" not in config:
        return
    from roofmodel.models.config import architecture

    plain = {key: value for key, value in config.items() if key != "quantization_config"}
    assert architecture(config, "x", "x").stack == architecture(plain, "x", "x").stack
