"""FLOP counts of fvcore, reconciled with ours term by term (`study/derive/reconcile.py`).

fvcore counts a multiply-add once, so half of our matmul FLOPs; a layer norm as 5 per element, 4 without
gain and bias (its norm_flop_counter), a batch norm as 2, where we count such work apart as vector FLOPs; and it has no
handler for `baddbmm`, through which BLOOM multiplies queries by keys, nor for fused attention. Root mean square norms
are made of operators that it ignores. That is the whole difference.
"""

from __future__ import annotations

import random
import warnings

import pytest

from roofmodel.models.architecture import Network
from roofmodel.models.config import architecture
from roofmodel.models.families import FAMILIES
from roofmodel.study.derive.reconcile import TOOLS, UNFUSED, reconcile

torch = pytest.importorskip("torch", reason="the oracle needs torch: pip install 'roofmodel[dev]'")
fvcore = pytest.importorskip("fvcore.nn", reason="the oracle needs fvcore: pip install 'roofmodel[torch]'")
pytest.importorskip("transformers", reason="the oracle needs transformers: pip install 'roofmodel[dev]'")

from tests import draws, oracle  # noqa: E402


@pytest.mark.parametrize("attention", ["eager", "flash"])
@pytest.mark.parametrize("draw", range(2))
@pytest.mark.parametrize("model_type", TOOLS["fvcore"].checked)
def test_the_figure_of_fvcore_follows_from_ours(model_type: str, draw: int, attention: str) -> None:
    family = FAMILIES[model_type]
    config = draws.config(model_type, random.Random(100 + draw)) | {"use_cache": False}
    config.pop("reorder_and_upcast_attn", None)  # another path through GPT-2's code, by baddbmm
    config["architectures"] = [family.prefix + next(iter(family.classes))]
    model = oracle.build(config)
    arch = architecture(config, "drawn", "config.json")
    network = isinstance(arch.body, Network)
    assert model._supports_sdpa == (model_type not in UNFUSED) or network
    if attention == "flash" and model._supports_sdpa:
        model.set_attn_implementation("sdpa")
    batch, tokens = 2, 9
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.jit.trace, which fvcore is built on, is deprecated
        if isinstance(arch.body, Network):  # which has no attention
            given = torch.randn(batch, arch.body.channels, *arch.body.image)
        else:
            given = torch.randint(2, config["vocab_size"], (batch, tokens))
        analysis = fvcore.FlopCountAnalysis(model.eval(), given)
        theirs = analysis.unsupported_ops_warnings(False).uncalled_modules_warnings(False).total()
    size = {} if network else {"seq": tokens, "attention": attention}
    assert reconcile(arch, "fvcore", batch=batch, **size).theirs.value == theirs
