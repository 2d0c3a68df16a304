"""What an engine's file states: its kernels, its fusions, its launches, its host, its collectives."""

from collections.abc import Mapping
from typing import NamedTuple

FUSIONS = {
    "qkv": "projections of one attention layer that read the same input run as one GEMM",
    "gate_up": "gate and up projections of an MLP run as one GEMM",
    "latent_down": "the down-projections of multi-head latent attention run as one GEMM",
    "quantize": "the kernel before a GEMM writes its input in the GEMM's narrower format",
    "residual": "a residual add runs in the kernel of the norm after it",
    "rotary": "rotary embedding runs in a neighboring kernel",
    "experts": "the activation between the two GEMMs of the experts runs in their kernels",
    "all_reduce_norm": "a norm runs in the kernel of the all-reduce before it",
}
"""What an engine can fuse. `roofmodel/timing/engine/fusion.py` has the time of each."""
KINDS = (
    "gemm", "prefill_attention", "decode_attention", "experts", "encoder_attention", "latent_prefill", "latent_decode",
    "latent_products", "causal_convolution", "causal_convolution_update", "delta_rule_prefill", "delta_rule_decode",
)  # fmt: skip
"""Kinds of kernels of which an engine has its own, as in a device's calibration. Elementwise kernels are the same in
all engines."""
CHOICES = {
    "gemm": ("gemm",),
    "attention": ("prefill_attention", "decode_attention", "encoder_attention", "latent_prefill", "latent_decode"),
    "moe": ("experts",),
}
"""Options that choose a kernel among those of an engine's file, and the kinds that they apply to."""
AUTOCAST_FORMATS = ("bf16", "fp16")
"""Compute formats of torch.autocast: 2 bytes, so that an fp32 tensor takes twice the counted bytes, and a cast 3
times."""
STEP_SPREAD_P90 = 1.17
"""90th percentile of measured step time / sum of launches, with a known launch time.

From 15 passes of BERT in eager PyTorch, with the launch time of batch 1 (AITemplate's README,
`benchmarks/published.py`).
"""
ANY = "any"


class LaunchTime(NamedTuple):
    """Seconds of the host to launch one operator, with its 80 % interval."""

    seconds: float
    low: float
    high: float


class Host(NamedTuple):
    """Seconds of the host in a step of a serving engine: per step, per sequence and per prompt token.

    `overlapped`: the host prepares the next step while the GPU computes this one; otherwise the GPU waits.
    """

    step: float = 0.0
    sequence: float = 0.0
    prompt_token: float = 0.0
    overlapped: bool = False


class AllReduce(NamedTuple):
    """An engine's own all-reduce over NVLink: its kernel, and the largest message in bytes that it reduces."""

    own: str
    up_to: float


Kernels = Mapping[tuple[str, str, str], tuple[str, ...]]
"""(kind, GPU generation or `any`, formats or `any`) -> names of parameter sets, the preferred one first."""
