"""`roof op`: one operation on a device."""

from __future__ import annotations

from roofmodel.op.api import op
from roofmodel.report.command import command

app = command(
    op,
    formats=("table", "json"),
    files=".json",
    examples=(
        "roof op gemm --hw h100 --m 8192 --n 8192 --k 8192 --dtype fp8",
        "roof op attention --hw a100 --batch 16 --heads 32 --kv-heads 8 --head-dim 128 --kv-len 4096 --measured 140us",
        "roof op all-reduce --hw h100 --num-gpus 8 --elements 33554432",
        "roof op conv --hw v100 --batch 64 --channels 64 --filters 64 --filter 3 --image 56",
    ),
)
