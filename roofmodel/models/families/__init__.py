"""Hugging Face `model_type` -> what its config keys mean. A family is a row of data, not a class.

To add one, add a row to the module of its kind, and a draw to `tests/draws.py`; the tests then compare it with the
real class. `models/family.py` says what a row is, `models/fields.py` what its fields may be, and `models/config.py`
reads a config through its row.
"""

from __future__ import annotations

from roofmodel.models.families.custom_code import CUSTOM_CODE
from roofmodel.models.families.encoder_decoders import ENCODER_DECODERS
from roofmodel.models.families.encoders import ENCODERS
from roofmodel.models.families.gpt import GPTS
from roofmodel.models.families.heterogeneous_layers import UNEVEN
from roofmodel.models.families.latent_attention import LATENTS
from roofmodel.models.families.linear_attention import LINEAR_ATTENTION
from roofmodel.models.families.llama import LLAMAS
from roofmodel.models.families.llama_variants import DECODERS
from roofmodel.models.families.mixture_of_experts import MIXTURES
from roofmodel.models.families.multimodal import ALIASES
from roofmodel.models.families.multimodal_text import TEXT_PARTS
from roofmodel.models.families.short_convolutions import SHORT_CONVOLUTIONS
from roofmodel.models.families.sliding_window_experts import SPARSES
from roofmodel.models.families.state_spaces import STATE_SPACES
from roofmodel.models.families.vision import VISION
from roofmodel.models.family import Family

FAMILIES: dict[str, Family] = {
    **GPTS, **LLAMAS, **DECODERS, **MIXTURES, **SPARSES, **UNEVEN, **LATENTS, **LINEAR_ATTENTION,
    **ENCODERS, **ENCODER_DECODERS, **STATE_SPACES, **SHORT_CONVOLUTIONS, **VISION, **TEXT_PARTS,
}  # fmt: skip


def family_of(model_type: str) -> Family | None:
    """The row of a model_type, of one that comes with its own code too; None where it is not counted."""
    name = ALIASES.get(model_type, model_type)
    return FAMILIES.get(name) or CUSTOM_CODE.get(name)
