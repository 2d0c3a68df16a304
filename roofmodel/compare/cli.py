"""`roof compare`: predicted and measured figures of a model's operators."""

from __future__ import annotations

from roofmodel.compare.api import compare
from roofmodel.report.command import command

app = command(
    compare,
    formats=("table", "json", "csv"),
    files=".png .svg .pdf .json .csv",
    settings={
        "engine": {
            "help": "Software that runs the model: vllm, sglang, trtllm, torch (eager PyTorch), megatron, NAME@VERSION "
            "or a YAML file (default: the engine whose kernels or ranges the file names, else as for estimate)."
        }
    },
    checks=("compared operators", "measured>2ms"),
    examples=(
        "roof compare gpt2-xl ncu.csv --hw a100 --phase decode --batch 1 --context 1024",
        "roof compare gpt2 trace.json --phase train --batch 8 --seq 1024 --attention eager",
        "roof compare gpt2-xl trace.json --phase prefill --steps 10 --format json -o compare.png",
    ),
)
