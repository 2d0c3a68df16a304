"""The options of a workload, which every command that counts a model takes: stated once, with their help."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Annotated

import typer

Command = Callable[..., None]


def options(
    phase: Annotated[
        str | None, typer.Option(help="prefill, decode, generate, forward or train; if absent, a decoder's first two.")
    ] = None,
    batch: Annotated[int, typer.Option(help="Sequences computed together.")] = 1,
    seq: Annotated[
        int | None, typer.Option(help="Prompt tokens, or an encoder-decoder's source; 1024 or its limit.")
    ] = None,
    context: Annotated[int | None, typer.Option(help="Tokens already cached; at a decode as many as --seq.")] = None,
    dtype: Annotated[str, typer.Option(help="fp64, fp32, tf32, bf16, fp16, fp8 or int8.")] = "fp16",
    weights: Annotated[
        str | None, typer.Option(help="Format of the weights: as --dtype, or fp8_block, int4, nf4, mxfp4.")
    ] = None,
    kv: Annotated[str | None, typer.Option(help="Format of the KV cache; as --weights.")] = None,
    activations: Annotated[
        str | None, typer.Option(help="Format between operators: as --dtype; say fp16 where only products take fp8.")
    ] = None,
    attention: Annotated[str, typer.Option(help="flash (fused, masked tiles skipped) or eager.")] = "flash",
    logits: Annotated[str | None, typer.Option(help="last or all; last at a prefill, all in a forward pass.")] = None,
    new_tokens: Annotated[int | None, typer.Option(help="Decodes that --phase generate takes; 128.")] = None,
    mla: Annotated[str, typer.Option(help="absorbed or naive; for models with latent attention.")] = "absorbed",
    decoder_seq: Annotated[int | None, typer.Option(help="Prompt of an encoder-decoder's decoder; as --seq.")] = None,
    image: Annotated[int | None, typer.Option(help="Pixels a side; for vision models.")] = None,
    runtime: Annotated[
        str,
        typer.Option(
            help="eager; autocast: eager with fp32 weights, cast as torch.autocast does; megatron: as it trains; "
            "graph: as engines run it. For expected times."
        ),
    ] = "eager",
    launch: Annotated[
        str | None,
        typer.Option(help="What the host takes to launch an operator outside of a graph, such as 12us; else 40us."),
    ] = None,
    optimizer: Annotated[str | None, typer.Option(help="adam, momentum or sgd; for training; adam.")] = None,
    recompute: Annotated[str, typer.Option(help="none, selective or full; for training.")] = "none",
    tp: Annotated[int, typer.Option(help="GPUs that share every layer (tensor parallel).")] = 1,
    dp: Annotated[int, typer.Option(help="Replicas, each with its part of the batch (data parallel).")] = 1,
    pp: Annotated[int, typer.Option(help="Stages of layers, one after another (pipeline parallel).")] = 1,
    ep: Annotated[int, typer.Option(help="GPUs that experts are dealt out among (expert parallel).")] = 1,
    vpp: Annotated[int, typer.Option(help="Parts of layers that a stage holds (interleaved); for training.")] = 1,
    micro_batch: Annotated[
        int | None, typer.Option(help="Sequences that a replica computes at a time; all, or 1 where stages train.")
    ] = None,
    sequence_parallel: Annotated[
        str, typer.Option(help="on: GPUs that share a layer deal out its norms and sums by tokens; for training.")
    ] = "off",
) -> None:
    """The options, as a signature."""


def takes_workload(command: Command) -> Command:
    """A command that ends in `**workload` takes these options in its place."""
    own = [p for p in _parameters(command) if p.kind is not inspect.Parameter.VAR_KEYWORD]
    command.__signature__ = inspect.Signature([*own, *_parameters(options)])  # type: ignore[attr-defined]
    return command


def takes_grid(command: Command) -> Command:
    """A command that ends in `**grid` takes the options as text, which may say several values."""
    own = [p for p in _parameters(command) if p.kind is not inspect.Parameter.VAR_KEYWORD]
    texts = [
        p.replace(annotation=Annotated[str | None, *p.annotation.__metadata__], default=None)
        for p in _parameters(options)
    ]
    command.__signature__ = inspect.Signature([*own, *texts])  # type: ignore[attr-defined]
    return command


def _parameters(function: Command) -> list[inspect.Parameter]:
    return list(inspect.signature(function, eval_str=True).parameters.values())
