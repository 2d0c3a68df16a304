"""FLOP counts of fvcore, reconciled with ours term by term (`explain/reconcile.py`).

fvcore counts a multiply-add as one FLOP; matmul FLOPs count it as two. It counts 5 FLOPs per element of a layer norm
(4 without gain and bias: its norm_flop_counter) and 2 of a batch norm; these are vector FLOPs in roofmodel. It ignores
`baddbmm`, BLOOM's GEMM of queries and keys, fused attention, and the operators of a root mean square norm. There are no
other differences.
"""

from __future__ import annotations

import random
import warnings

import pytest

from roofmodel.explain.reconcile import TOOLS, UNFUSED, reconcile
from roofmodel.models.architecture import Network
from roofmodel.models.config import architecture
from roofmodel.models.families import FAMILIES

torch = pytest.importorskip("torch", reason="the oracle needs torch: pip install 'roofmodel[dev]'")
fvcore = pytest.importorskip("fvcore.nn", reason="the oracle needs fvcore: pip install 'roofmodel[torch]'")
pytest.importorskip("transformers", reason="the oracle needs transformers: pip install 'roofmodel[dev]'")

from tests import draws, oracle  # noqa: E402


@pytest.mark.parametrize("attention", ["eager", "flash"])
@pytest.mark.parametrize("draw", range(2))
@pytest.mark.parametrize("model_type", TOOLS["fvcore"].checked)
def test_the_flops_of_fvcore_are_derived_from_ours(model_type: str, draw: int, attention: str) -> None:
    family = FAMILIES[model_type]
    config = draws.config(model_type, random.Random(100 + draw)) | {"use_cache": False}
    config.pop("reorder_and_upcast_attn", None)  # this option of GPT-2 computes the scores by baddbmm
    config["architectures"] = [family.prefix + next(iter(family.classes))]
    model = oracle.build(config)
    arch = architecture(config, "drawn", "config.json")
    network = isinstance(arch.body, Network)
    assert model._supports_sdpa == (model_type not in UNFUSED) or network
    if attention == "flash" and model._supports_sdpa:
        model.set_attn_implementation("sdpa")
    batch, tokens = 2, 9
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # fvcore uses torch.jit.trace, which is deprecated
        if isinstance(arch.body, Network):  # no tokens: its input is an image
            inputs = torch.randn(batch, arch.body.channels, *arch.body.image)
        else:
            inputs = torch.randint(2, config["vocab_size"], (batch, tokens))
        analysis = fvcore.FlopCountAnalysis(model.eval(), inputs)
        fvcore_flops = analysis.unsupported_ops_warnings(False).uncalled_modules_warnings(False).total()
    options = {} if network else {"seq": tokens, "attention": attention}
    assert reconcile(arch, "fvcore", batch=batch, **options).theirs.value == fvcore_flops
