"""`roof count`: FLOPs, bytes and training memory of any torch module."""

from __future__ import annotations

from roofmodel.count.api import count
from roofmodel.report.command import command

app = command(
    count,
    formats=("table", "json", "csv"),
    settings={"target": {"metavar": "MODULE:FACTORY"}, "inputs": {"flags": ("--input",)}},
    examples=(
        "roof count torchvision.models:resnet50 --input 1x3x224x224",
        "roof count ./my.py:make --input int:1x1024 --hw a100",
        "roof count torchvision.models:vit_b_16 --input 8x3x224x224 --dtype bf16 --format csv",
    ),
)
