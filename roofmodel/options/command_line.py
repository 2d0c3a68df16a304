"""Options that several commands share, with their help; the options of a workload."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any

import typer

from roofmodel.errors import Option, WorkloadError
from roofmodel.options.values import OutputFormat

Command = Callable[..., None]

WORKLOAD, PRECISION, PARALLELISM, TRAINING = "Workload", "Precision", "Parallelism", "Training"
INPUT, OUTPUT = "Input pipeline", "Output"
"""Groups of options in `--help`."""

Model = Annotated[str, typer.Argument(help="A packaged name, a config.json or its folder, or a Hub id.")]
Models = Annotated[list[str], typer.Argument(metavar="MODEL…", help="One or several models, as for estimate.")]
ModelOrKernel = (
    "A model, as for estimate, or a kernel: matmul, matmul-accumulate, saxpy, triad, stencil7, stencil7-uncached, spmv."
)
Files = Annotated[
    list[str], typer.Argument(help="Profiler files or patterns; - for stdin; FILE@HW sets the device of a file.")
]
Hardware = Annotated[str | None, typer.Option("--hw", help="A packaged device (see 'roof hw list') or a YAML file.")]
ProfileHardware = Annotated[
    str | None, typer.Option("--hw", help="The device, if the files do not state it or state it wrongly.")
]
Family = Annotated[str | None, typer.Option(help="Read an unknown model_type as this family, such as llama.")]
Times = Annotated[
    list[str] | None,
    typer.Option("--times", help="Take the times from this nsys, nvprof or PyTorch file, not from FILES."),
]


def name_option(help_text: str, *flags: str, panel: str | None = None) -> Any:
    """An option with a type of `values`. The library checks its value, and suggests a similar one."""
    return typer.Option(*flags, help=help_text, parser=str, rich_help_panel=panel)


def format_option(help_text: str) -> Any:
    """`--format`, in the group of output options."""
    return name_option(help_text, "--format", panel=OUTPUT)


def output_option(help_text: str) -> Any:
    """`-o FILE`, in the group of output options."""
    return typer.Option("-o", "--output", help=help_text, rich_help_panel=OUTPUT)


ListingFormat = Annotated[OutputFormat, format_option("table or json.")]
DocumentFormat = Annotated[OutputFormat, format_option("table, json, markdown or latex, on stdout.")]
DocumentFiles = Annotated[list[str] | None, output_option("Also write FILE: .md .tex .json")]


def examples(*commands: str) -> str:
    """Examples below the options of `--help`."""
    return "\n\n".join(["Examples:", *commands])


def required_device(hw: Any, example: str) -> None:
    """Raises WorkloadError without `--hw`."""
    if not hw:
        raise WorkloadError(Option("hw"), " is missing; give ", example, " (see 'roof hw list')")


def devices(hw: list[str]) -> list[str]:
    """The names in `--hw a100,h100`, or in `--hw` given several times."""
    return [name.strip() for names in hw for name in names.split(",")]


ROUTING = (
    "How tokens of an MoE model choose experts: uniform (at random), same (all tokens choose the same experts, as in a "
    "batch of identical prompts), or a FILE with a probability or count per expert"
)


def panel_option(panel: str, help_text: str) -> Any:
    """An option that `--help` lists in this panel."""
    return typer.Option(help=help_text, rich_help_panel=panel)


def workload_options(
    phase: Annotated[
        str | None,
        panel_option(
            WORKLOAD,
            "prefill, decode, generate, forward or train (default: prefill and decode; forward for encoders).",
        ),
    ] = None,
    batch: Annotated[int, panel_option(WORKLOAD, "Number of sequences that are computed together.")] = 1,
    seq: Annotated[
        int | None,
        panel_option(
            WORKLOAD,
            "Tokens of the prompt, or of an encoder-decoder's source (default: 1024, or the model's limit if lower).",
        ),
    ] = None,
    context: Annotated[int | None, panel_option(WORKLOAD, "Tokens in the KV cache (decode default: --seq).")] = None,
    dtype: Annotated[
        str, panel_option(PRECISION, "fp64, fp32, tf32, bf16, fp16, fp8, fp4, int8 or auto (of the config).")
    ] = "fp16",
    weights: Annotated[
        str | None,
        panel_option(
            PRECISION,
            "Format of weights: as --dtype except auto, or fp8_block, int4, int4_g64, int4_g32 (each also with _sym: "
            "without zero points), nf4, nf4_double, mxfp4, nvfp4 (default: --dtype).",
        ),
    ] = None,
    kv: Annotated[
        str | None, panel_option(PRECISION, "Format of the KV cache: as for --weights (default: --dtype).")
    ] = None,
    activations: Annotated[
        str | None,
        panel_option(
            PRECISION, "Format of the tensors between operators (default: --dtype), such as fp16 if only GEMMs use fp8."
        ),
    ] = None,
    attention: Annotated[
        str, panel_option(WORKLOAD, "flash (one fused kernel, masked tiles skipped) or eager (unfused).")
    ] = "flash",
    logits: Annotated[
        str | None,
        panel_option(
            WORKLOAD,
            "Positions for which the LM head computes logits: last or all (default: last in prefill, all in forward).",
        ),
    ] = None,
    new_tokens: Annotated[
        int | None, panel_option(WORKLOAD, "Decodes of --phase generate: tokens after the first (default: 128).")
    ] = None,
    mla: Annotated[str, panel_option(WORKLOAD, "Multi-head latent attention: absorbed or naive.")] = "absorbed",
    decoder_seq: Annotated[
        int | None, panel_option(WORKLOAD, "Prompt tokens of an encoder-decoder's decoder (default: --seq).")
    ] = None,
    image: Annotated[
        int | None, panel_option(WORKLOAD, "Height and width of an image in pixels, for vision models.")
    ] = None,
    runtime: Annotated[
        str,
        panel_option(
            WORKLOAD,
            "How kernels are launched and fused (expected times only): eager; autocast (eager with torch.autocast and "
            "fp32 weights); megatron (the fused kernels of Megatron-LM); graph (a CUDA graph with the fused kernels "
            "of an inference engine).",
        ),
    ] = "eager",
    launch: Annotated[
        str | None,
        panel_option(
            WORKLOAD, "Host time to launch one operator, such as 12us (default: 40us; not used with --runtime graph)."
        ),
    ] = None,
    optimizer: Annotated[str | None, panel_option(TRAINING, "adam, momentum or sgd (default: adam).")] = None,
    recompute: Annotated[
        str, panel_option(TRAINING, "Activations recomputed in the backward pass: none, selective or full.")
    ] = "none",
    tp: Annotated[int, panel_option(PARALLELISM, "Tensor parallel: GPUs that shard each layer.")] = 1,
    dp: Annotated[
        int, panel_option(PARALLELISM, "Data parallel: model replicas; each computes a part of the batch.")
    ] = 1,
    pp: Annotated[int, panel_option(PARALLELISM, "Pipeline parallel: stages into which the layers are divided.")] = 1,
    ep: Annotated[int, panel_option(PARALLELISM, "Expert parallel: GPUs that shard the experts.")] = 1,
    vpp: Annotated[
        int, panel_option(PARALLELISM, "Parts of the model per stage in an interleaved pipeline, for training.")
    ] = 1,
    micro_batch: Annotated[
        int | None,
        panel_option(
            PARALLELISM, "Sequences per replica and microbatch (default: all sequences; 1 in training with --pp)."
        ),
    ] = None,
    sequence_parallel: Annotated[
        str,
        panel_option(
            PARALLELISM, "on: also shard the tokens of norms and residual adds over the --tp GPUs, for training."
        ),
    ] = "off",
    zero: Annotated[
        int, panel_option(PARALLELISM, "1: the --dp replicas shard the optimizer state (ZeRO stage 1), for training.")
    ] = 0,
    data_parallel: Annotated[
        str | None,
        panel_option(
            PARALLELISM,
            "How --dp replicas train: ddp (DistributedDataParallel: gradients are exchanged during the backward pass), "
            "dataparallel (torch.nn.DataParallel: one process), or sequential (gradients are exchanged after the "
            "backward pass). Default: ddp; sequential with --runtime megatron.",
        ),
    ] = None,
    engine: Annotated[
        str,
        panel_option(
            WORKLOAD, "Inference engine of --runtime graph (expected times only): current libraries, or trtllm-0.9."
        ),
    ] = "current",
    routing: Annotated[str, panel_option(WORKLOAD, f"{ROUTING}.")] = "uniform",
    memory_utilization: Annotated[
        float,
        panel_option(
            WORKLOAD,
            "Share of a device's memory that may be used. It decides whether the workload fits, and the largest batch "
            "and context.",
        ),
    ] = 0.9,
) -> None:
    """The options of a workload, as a signature."""


def takes_workload(command: Command) -> Command:
    """Replace the `**workload` of a command by the options of a workload."""
    return _with_options(command, _parameters(workload_options))


def takes_grid(command: Command) -> Command:
    """Replace the `**grid` of a command by the options of a workload as text, which may state several values."""
    return _with_options(
        command,
        [
            p.replace(annotation=Annotated[str | None, *p.annotation.__metadata__], default=None)
            for p in _parameters(workload_options)
        ],
    )


def changed(options: Mapping[str, Any]) -> Iterator[str]:
    """The names of the options whose value is not the default."""
    defaults = {p.name: p.default for p in _parameters(workload_options)}
    return (name for name, value in options.items() if value != defaults.get(name))


def is_given(command_line: typer.Context, option: str) -> bool:
    """Whether the command line states an option, also with its default value."""
    source = command_line.get_parameter_source(option)
    return source is not None and source.name != "DEFAULT"


def _with_options(command: Command, options: list[inspect.Parameter]) -> Command:
    declared = [p for p in _parameters(command) if p.kind is not inspect.Parameter.VAR_KEYWORD]
    command.__signature__ = inspect.Signature([*declared, *options])  # type: ignore[attr-defined]
    return command


def _parameters(function: Command) -> list[inspect.Parameter]:
    return list(inspect.signature(function, eval_str=True).parameters.values())
