"""fvcore's figures, reconciled with ours term by term for every family.

fvcore counts a multiply-add once, so half of our matmul FLOPs; a layer norm as 5 per element, 4 without
gain and bias (its norm_flop_counter), where we count such work apart as vector FLOPs; and it has no
handler for `baddbmm`, through which BLOOM, and GPT-2 with `reorder_and_upcast_attn`, multiply queries by
keys. Root mean square norms are made of operators that it ignores. That is the whole difference.
"""

from __future__ import annotations

import random
import warnings

import pytest

from roofmodel.counting.blocks import operators
from roofmodel.counting.workload import Workload
from roofmodel.models.config import architecture
from roofmodel.models.families import FAMILIES

torch = pytest.importorskip("torch", reason="the oracle needs torch: pip install 'roofmodel[dev]'")
fvcore = pytest.importorskip("fvcore.nn", reason="the oracle needs fvcore: pip install 'roofmodel[torch]'")
pytest.importorskip("transformers", reason="the oracle needs transformers: pip install 'roofmodel[dev]'")

from tests import draws, oracle  # noqa: E402

# One family of each make. fvcore knows the operator layer_norm only: of an RMS norm it sees nothing.
MAKES = ("gpt2", "gptj", "opt", "gpt_neox", "bloom", "llama", "mistral", "qwen2", "stablelm", "bert", "distilbert")
RMS = ("llama", "mistral", "qwen2")


@pytest.mark.parametrize("draw", range(3))
@pytest.mark.parametrize("model_type", MAKES)
def test_fvcore_is_half_our_matmul_flops_without_baddbmm_plus_its_layer_norms(model_type: str, draw: int) -> None:
    family = FAMILIES[model_type]
    config = draws.config(model_type, random.Random(100 + draw)) | {"use_cache": False}
    config["architectures"] = [family.prefix + next(iter(family.classes))]
    batch, tokens = 2, 9
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch.jit.trace, which fvcore is built on, is deprecated
        ids = torch.randint(2, config["vocab_size"], (batch, tokens))
        analysis = fvcore.FlopCountAnalysis(oracle.build(config), ids)
        theirs = analysis.unsupported_ops_warnings(False).uncalled_modules_warnings(False).by_operator()

    work = Workload(("forward",), batch, tokens, attention="eager", logits="all")
    ours = operators(architecture(config, "drawn", "config.json"), work.steps()[0])
    matmul = sum(op.count * op.matmul_flops for op in ours)
    missed = 0
    if model_type == "bloom" or config.get("reorder_and_upcast_attn"):
        missed = sum(op.count * op.matmul_flops for op in ours if op.name == "attention.scores")
    norms = 0
    for op in ours:
        if op.kind == "norm" and model_type not in RMS:
            elements = op.reads[0].elements(op.sizes)
            norms += op.count * elements * (5 if op.parameters else 4)
    assert theirs.pop("layer_norm", 0) == norms
    assert sum(theirs.values()) == (matmul - missed) // 2
