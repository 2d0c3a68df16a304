"""`roof crossover`: the size at which another ceiling limits an operator."""

from __future__ import annotations

from roofmodel.explain.api import crossover
from roofmodel.report.command import CommandLine

COMMAND = CommandLine(
    crossover,
    examples=(
        "roof crossover gpt2-xl --hw a100 --phase decode",
        "roof crossover llama-3.1-8b --hw h100 --op attention.qkv --over seq --phase prefill --explain",
        "roof crossover matmul --hw v100 --dtype fp32 -o crossover.png",
    ),
)
