"""The workload of a step that the annotations of serving engines state.

vLLM:    execute_context_1(512)_generation_0(0)     requests and tokens of prefill, then of decode
SGLang:  step[prefill bs=4 toks=2048], step[decode bs=8], step[EXTEND bs=1 toks=512]
         (https://github.com/sgl-project/sglang/pull/23419)
ATOM:    prefill[bs=1 tok=1024 ctx=1024 ...], decode[bs=64 tok=64 ...] (https://github.com/ROCm/ATOM/pull/477)
"""

from __future__ import annotations

import re
from functools import cache
from typing import NamedTuple

_VLLM = re.compile(r"execute_context_(\d{1,9})\((\d{1,9})\)_generation_(\d{1,9})\((\d{1,9})\)")
_OTHERS = re.compile(r"(?:step\[)?(prefill|extend|decode)[ \[]bs=(\d{1,9})(?:[^\]]*?\btoks?=(\d{1,9}))?", re.I)
_OTHER_MODE = re.compile(r"step\[\w+[^\]]*\]", re.I)  # such as `step[mixed bs=8 ext=512 dec=7]`


class ServingStep(NamedTuple):
    """The phase (None: both, or another one), the requests, and the prompt tokens of all of them (None: not stated)."""

    phase: str | None
    batch: int
    tokens: int | None = None


@cache
def serving_step(label: str) -> ServingStep | None:
    """The step that an annotation states; None for other labels."""
    if match := _VLLM.match(label):
        prompts, tokens, decodes, _ = map(int, match.groups())
        if prompts and decodes:
            return ServingStep(None, prompts + decodes)
        return ServingStep("prefill", prompts, tokens) if prompts else ServingStep("decode", decodes)
    if match := _OTHERS.match(label):
        phase = "decode" if match[1].lower() == "decode" else "prefill"
        return ServingStep(phase, int(match[2]), int(match[3]) if match[3] and phase == "prefill" else None)
    return ServingStep(None, 0) if _OTHER_MODE.match(label) else None
