"""Published training steps of Megatron-LM on A100 SXM 80 GB with all their settings, and our expected times.

Korthikanti et al., Reducing Activation Recomputation in Large Transformer Models (arXiv 2205.05198): models and
parallel sizes of table 3, seconds per iteration of table 5. Sequences have 2048 tokens, the vocabulary has 51200,
numbers have 16 bits. `full` recomputes all activations of a layer; `selective` recomputes those of the attention core
and uses sequence parallelism. Calculon's paper (Isaev et al., SC '23) uses the same cases.
"""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

from roofmodel.devices.device import Device
from roofmodel.errors import WorkloadError
from roofmodel.models.architecture import Architecture
from roofmodel.models.config import architecture
from roofmodel.steps.estimate import estimate


class Setting(NamedTuple):
    """A model, its parallelism, and its batch schedule: micro-batches of `micro` sequences, `chunks` virtual pipeline
    stages per GPU."""

    name: str
    hidden: int
    layers: int
    heads: int
    tp: int
    pp: int
    batch: int
    micro: int
    chunks: int
    seconds: tuple[float, float]  # per step, in the order of RECOMPUTED


RECOMPUTED = ("full", "selective")
SETTINGS = (
    Setting("22B", 6144, 48, 64, 8, 1, 4, 4, 1, (1.42, 1.10)),
    Setting("175B", 12288, 96, 96, 8, 8, 64, 1, 3, (18.13, 13.75)),
    Setting("530B", 20480, 105, 128, 8, 35, 280, 1, 3, (49.05, 37.83)),
    Setting("1T", 25600, 128, 160, 8, 64, 512, 1, 1, (94.42, 71.49)),
)


class TrainingCase(NamedTuple):
    """A setting with one kind of recomputation, and the measured seconds per step."""

    setting: Setting
    recompute: str
    seconds: float


CASES = [TrainingCase(s, r, s.seconds[RECOMPUTED.index(r)]) for s, r in product(SETTINGS, RECOMPUTED)]


def gpt(name: str, layers: int, hidden: int, heads: int) -> Architecture:
    """A GPT-2 architecture of these sizes with Megatron's vocabulary and positions."""
    sizes = {"n_embd": hidden, "n_layer": layers, "n_head": heads, "n_positions": 2048, "vocab_size": 51200}
    return architecture({"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], **sizes}, name, name)


def expected(case: TrainingCase) -> float | None:
    """Our expected seconds per step; None if the library cannot express the setting."""
    s = case.setting
    try:
        (step,) = estimate(
            gpt("gpt", s.layers, s.hidden, s.heads), Device.load("a100"), phase="train", batch=s.batch, seq=2048,
            attention="eager", engine="megatron@2021", recompute=case.recompute, tp=s.tp, pp=s.pp, vpp=s.chunks,
            micro_batch=s.micro,
            sequence_parallel="on" if case.recompute == "selective" else "off",
        ).phases  # fmt: skip
    except WorkloadError:
        return None
    return step.expected and float(step.expected.value)
