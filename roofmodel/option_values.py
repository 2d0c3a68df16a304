"""The values of options that are names, as types that the Python functions and the command line share.

A value that is not in the type is an error at run time, too: the function that uses the option checks it.
"""

from __future__ import annotations

from typing import Literal

Phase = Literal["prefill", "decode", "forward", "generate", "train"]
Optimizer = Literal["adam", "momentum", "sgd"]
Recompute = Literal["none", "selective", "full"]
Runtime = Literal["eager", "autocast", "megatron", "graph"]
AttentionMode = Literal["flash", "eager"]
LatentMode = Literal["absorbed", "naive"]  # of multi-head latent attention
Logits = Literal["last", "all"]
SequenceParallel = Literal["off", "on"]
DataParallel = Literal["ddp", "dataparallel", "sequential"]  # how replicas train
Engine = Literal["current", "trtllm-0.9"]  # inference engine whose kernels run in a graph
CopyMode = Literal["pinned", "pageable", "async"]  # of a batch from the host to the GPU
ComputeFormat = Literal["fp64", "fp32", "tf32", "bf16", "fp16", "fp8", "fp4", "int8"]
StorageFormat = Literal[
    "fp64", "fp32", "tf32", "bf16", "fp16", "fp8", "fp8_block", "int8", "fp4", "int4", "int4_g64", "int4_g32",
    "int4_sym", "int4_g64_sym", "int4_g32_sym", "nf4", "nf4_double", "mxfp4", "nvfp4",
]  # fmt: skip
Dtype = Literal[ComputeFormat, "auto"]

CrossoverVariable = Literal["batch", "seq", "context", "gpus"]
CrossoverSize = Literal[CrossoverVariable, "n"]  # n: the size of a kernel
KernelGrouping = Literal["name", "base", "nvtx", "category", "lecture"]
RunGrouping = Literal["group", "lecture", "name", "nvtx", "operator", "device", "stream", "step"]
CeilingSource = Literal["datasheet", "measured"]
FirstGap = Literal["same-step", "previous-step"]
L2State = Literal["cold", "warm"]
BenchmarkDevice = Literal["cuda", "cpu"]
FlopCounter = Literal["fvcore", "calflops", "deepspeed", "llm-flops"]
SheetName = Literal["lectures", "rooflines", "transformers", "measuring", "scaling", "runs"]
SweepPicture = Literal["rates", "roofs", "costs", "scaling"]
ScalingMode = Literal["strong", "weak"]
Share = Literal["dp", "tp", "pp", "ep"]  # what further GPUs do

TextFormat = Literal["json", "csv", "markdown", "latex", "line"]
"""Formats of `text`. A result has some of them."""
OutputFormat = Literal["table", TextFormat]
"""Formats of `--format`."""
