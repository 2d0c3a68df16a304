"""Estimates for tests of views: one model of each kind of architecture, on a V100."""

from __future__ import annotations

from typing import Any

from roofmodel.devices.device import Device
from roofmodel.models import hub
from roofmodel.steps.estimate import Estimate, estimate

MODELS = ("gpt2", "opt-350m", "llama-3.2-1b", "mistral-7b-v0.1", "qwen2.5-0.5b", "pythia-70m", "bloom-560m",
          "bert-base-cased", "roberta-base", "distilbert-base-uncased", "resnet-18",
          "vit-base-patch16-224", "mpnet-base", "deberta-v3-small", "mamba-130m-hf", "falcon-mamba-7b",
          "t5-small", "whisper-tiny", "qwen3.5-9b", "olmo-hybrid-7b")  # fmt: skip


def run(model: str, **options: Any) -> Estimate:
    return estimate(hub.load(model), Device.load("v100"), **options)
