"""The options of a workload, each declared once: type, default, range, help, group.

The command line, the signatures of the Python functions, the axes and columns of a sweep, the search of a plan, the
reference and the messages on invalid values come from `Options`. `scripts/options` writes `keywords.py` from it.
The request of a command is such a record, too: `ServeRequest` (`serving.py`), and those of `plan/request.py`.
"""

from collections.abc import Collection, Mapping
from typing import Annotated, Any, NamedTuple

from roofmodel.options.values import (
    LENGTH_EXAMPLES,
    AttentionMode,
    ComputeFormat,
    ContextExchange,
    DataParallel,
    Declared,
    Dtype,
    EngineName,
    EngineOption,
    LatentMode,
    Logits,
    MemoryFormat,
    Optimizer,
    Overlap,
    Phase,
    RoutingOption,
    Schedule,
    SequenceParallel,
    ServePhase,
    States,
    StorageFormat,
    Sustained,
    checked_value,
    declared_options,
    flag,
    image_size,
    layer_counts,
    layer_names,
    on_or_off,
    recomputation,
)

WORKLOAD, PRECISION, PARALLELISM, TRAINING = "Workload", "Precision", "Parallelism", "Training"
"""Groups of options in `--help`."""

SustainedTimes = Annotated[
    Sustained | None,
    Declared(
        WORKLOAD,
        "Expected times of a GPU under long load, at the rates that it sustains under its power limit (default: on for "
        "training and with --power-limit, else off).",
        check=on_or_off,
    ),
]
PowerLimit = Annotated[
    float | str | None,
    Declared(
        WORKLOAD,
        "Power limit of the card, such as 500W (default: that of its file).",
        kind="power",
        examples=("300W,700W", "300W:700W:100W"),
        example="500W",
    ),
]


class Options(NamedTuple):
    """The options of a workload. The default of None depends on the model, the phase, or another option.

    `--help` and the documents list them in this order.
    """

    phase: Annotated[
        Phase | ServePhase | None,
        Declared(
            WORKLOAD,
            "Part of a run: prefill, decode (one step), generate (prefill and decode steps), forward, train, or, of "
            "estimate only, serve (requests in flight) and vision (the vision tower of a multimodal model). Default: "
            "prefill and decode; forward for encoders.",
        ),
    ] = None
    batch: Annotated[
        int,
        Declared(
            WORKLOAD,
            "Number of sequences that are computed together.",
            minimum=1,
            examples=("1,8,64", "1:64, 1:256:*2"),
        ),
    ] = 1
    seq: Annotated[
        int | None,
        Declared(
            WORKLOAD,
            "Tokens of the prompt, or of an encoder-decoder's source (default: 1024, or the model's limit if lower).",
            minimum=1,
            examples=LENGTH_EXAMPLES,
        ),
    ] = None
    new_tokens: Annotated[
        int | None,
        Declared(
            WORKLOAD,
            "Decode steps of --phase generate; each adds one token (default: 128).",
            minimum=1,
            examples=LENGTH_EXAMPLES,
            title="new",
        ),
    ] = None
    decoder_seq: Annotated[
        int | None,
        Declared(
            WORKLOAD,
            "Prompt tokens of an encoder-decoder's decoder (default: --seq).",
            minimum=1,
            examples=LENGTH_EXAMPLES,
            title="prompt",
        ),
    ] = None
    image: Annotated[
        int | str | None,
        Declared(
            WORKLOAD,
            "Pixels of an image: its side, or width x height such as 1024x768, for models that read images.",
            minimum=1,
            examples=("224,384", "224:512:32"),
            title="pixels",
            check=image_size,
        ),
    ] = None
    images: Annotated[
        int | None,
        Declared(
            WORKLOAD,
            "Images of each prompt of a multimodal model, of the size --image; their tokens are added to --seq.",
            minimum=1,
        ),
    ] = None
    context: Annotated[
        int | None,
        Declared(WORKLOAD, "Tokens in the KV cache (decode default: --seq).", examples=LENGTH_EXAMPLES, title="cached"),
    ] = None
    dtype: Annotated[
        Dtype,
        Declared(
            PRECISION,
            "Format of computation: fp64, fp32, tf32, bf16, fp16, fp8, fp4, int8, or auto (as in the config). In "
            "training fp8, fp8_block, mxfp8 and nvfp4 are recipes for the GEMMs of layers; in inference the last three "
            "also are the format of weights.",
            plans=("service",),
            plan_help="Search only these compute formats (default: bf16 or fp16, and fp8 where the engine has it).",
        ),
    ] = "fp16"
    weights: Annotated[
        StorageFormat | None,
        Declared(
            PRECISION,
            "Format of weights: one of --dtype except auto, or fp8_block, mxfp8, nf4, nf4_double, mxfp4, nvfp4, int4, "
            "int4_g64, int4_g32; int4_sym, int4_g64_sym, int4_g32_sym have no zero points; 4.5bit: so many bits per "
            "weight, scales included (default: of the checkpoint, else --dtype).",
            plans=("service",),
            plan_help="Search only these formats of weights (default: of the checkpoint, else --dtype).",
        ),
    ] = None
    kv: Annotated[
        StorageFormat | None,
        Declared(
            PRECISION,
            "Format of the KV cache: one of the names for --weights, not a number of bits (default: --dtype).",
            plans=("service",),
            plan_help="Search only these formats of the KV cache (default: 16 bits, and fp8 where the engine has it).",
        ),
    ] = None
    activations: Annotated[
        ComputeFormat | None,
        Declared(
            PRECISION,
            "Format of the tensors between operators (default: --dtype, but 16 bits where that is narrower: engines "
            "quantize the inputs of a GEMM just before it).",
            plans=("service",),
            plan_help="Search only these formats of tensors between operators (default: 16 bits).",
        ),
    ] = None
    attention: Annotated[
        AttentionMode, Declared(WORKLOAD, "flash: one fused kernel that skips masked tiles; eager: unfused.")
    ] = "flash"
    engine: Annotated[
        EngineName | None,
        Declared(
            WORKLOAD,
            "Software that runs the model, for expected times: vllm, sglang, trtllm, torch (eager PyTorch), "
            "torch-compile, torchtitan, megatron, NAME@VERSION or a YAML file. Default: vllm for inference of "
            "decoders, megatron for training on several GPUs, else torch.",
        ),
    ] = None
    engine_option: Annotated[
        EngineOption | None,
        Declared(
            WORKLOAD,
            "KEY=VALUE. attention=, gemm= and moe= select a kernel by a part of its name. For engines that train: "
            "launch=8us (host time per operator) or launch=graph. For torch: autocast=bf16 (weights in fp32). For "
            "torchtitan: compile=on, compile=model (without the loss) or compile=async-tp. For megatron: "
            "gradients=bf16. For sglang: two-batch-overlap=on (half of a step computes while the other half exchanges "
            "tokens with experts). For vllm: two-batch-overlap=on.",
        ),
    ] = None
    logits: Annotated[
        Logits | None,
        Declared(
            WORKLOAD, "Positions for which the LM head computes logits (default: last in prefill, all in forward)."
        ),
    ] = None
    memory_format: Annotated[
        MemoryFormat | None,
        Declared(
            WORKLOAD,
            "Order of the tensors of a convolutional network (default: nhwc); in nchw, tensor cores need conversions.",
        ),
    ] = None
    mla: Annotated[LatentMode, Declared(WORKLOAD, "Latent attention in decode; naive expands latents.")] = "absorbed"
    optimizer: Annotated[
        Optimizer | None,
        Declared(
            TRAINING,
            "Optimizer of a training step: adam, adam8bit (of bitsandbytes, without fp32 master weights), momentum or "
            "sgd (default: adam).",
        ),
    ] = None
    states: Annotated[
        States | None,
        Declared(
            TRAINING,
            "Format of the moments of the optimizer; int8 has an fp32 scale per 256 values (default: int8 for "
            "adam8bit, else fp32, or that of the weights if wider).",
        ),
    ] = None
    lora: Annotated[
        int | None,
        Declared(
            TRAINING,
            "Rank of low-rank adapters, which are trained in place of the weights (LoRA; with --weights nf4 QLoRA).",
            minimum=1,
            examples=("8,64", "8:64:*2"),
        ),
    ] = None
    lora_targets: Annotated[
        str | None,
        Declared(
            TRAINING,
            "Linear layers with adapters, such as q_proj+v_proj, or all-linear (default: all-linear).",
            check=layer_names,
        ),
    ] = None
    recompute: Annotated[
        str,
        Declared(
            TRAINING,
            "Activations recomputed in the backward pass: none, selective (the attention scores), full (layers), or "
            "modules, as in selective:norm+mlp: attention, mlp, activation, norm, moe, op (torchtitan's, by operator).",
            check=recomputation,
            plans=("training",),
            plan_help="Search only these (default: none and full, with --attention eager also selective).",
        ),
    ] = "none"
    tp: Annotated[
        int,
        Declared(
            PARALLELISM,
            "Tensor parallel: GPUs that shard each layer.",
            minimum=1,
            plans=("service", "training"),
            plan_help="Search only these tensor-parallel sizes: 4,8.",
        ),
    ] = 1
    dp: Annotated[
        int,
        Declared(
            PARALLELISM,
            "Data parallel: model replicas; each computes a part of the batch.",
            minimum=1,
            plans=("service", "training"),
            plan_help="Search only these numbers of replicas.",
        ),
    ] = 1
    pp: Annotated[
        int,
        Declared(
            PARALLELISM,
            "Pipeline parallel: stages into which the layers are divided.",
            minimum=1,
            plans=("service", "training"),
            plan_help="Search only these numbers of pipeline stages.",
        ),
    ] = 1
    ep: Annotated[
        int,
        Declared(
            PARALLELISM,
            "Expert parallel: GPUs that shard the experts.",
            minimum=1,
            plans=("service", "training"),
            plan_help="Search only these expert-parallel sizes.",
        ),
    ] = 1
    vpp: Annotated[
        int,
        Declared(
            PARALLELISM,
            "Training: parts of the model per stage of an interleaved pipeline.",
            minimum=1,
            plans=("training",),
            plan_help="Search only these numbers of model parts per stage (1: not interleaved; default: up to 4).",
        ),
    ] = 1
    schedule: Annotated[
        Schedule | None,
        Declared(
            PARALLELISM,
            "Training: order of the microbatches in a pipeline: 1f1b, or interleaved, which needs --vpp above 1 "
            "(default: by --vpp).",
            plans=("training",),
            plan_help="Search only these schedules of a pipeline: 1f1b, interleaved (default: both).",
        ),
    ] = None
    cp: Annotated[
        int,
        Declared(
            PARALLELISM,
            "Context parallel, in training: GPUs that share each sequence.",
            minimum=1,
            plans=("training",),
            plan_help="Search only these numbers of GPUs that share a sequence (default: 1 and the powers of two that "
            "leave each GPU at least 4096 tokens).",
        ),
    ] = 1
    cp_kind: Annotated[
        ContextExchange,
        Declared(
            PARALLELISM,
            "What the --cp GPUs exchange: ring (keys and values, step by step during attention), all-gather (of keys "
            "and values before attention), or ulysses (all-to-all, so that each GPU has some heads of all tokens).",
            plans=("training",),
            plan_help="Search only these exchanges of the --cp GPUs: ring, all-gather, ulysses (default: ring).",
        ),
    ] = "ring"
    stage_layers: Annotated[
        str | None,
        Declared(
            PARALLELISM,
            "Layers of each pipeline stage, such as 15,16,16,15; with --vpp of each part, in the order of the model "
            "(default: as equal as possible).",
            check=layer_counts,
        ),
    ] = None
    micro_batch: Annotated[
        int | None,
        Declared(
            PARALLELISM,
            "Sequences per replica and microbatch (default: all sequences; 1 in training with --pp).",
            minimum=1,
            plans=("training",),
            plan_help="Search only these microbatch sizes, in sequences per replica.",
        ),
    ] = None
    sequence_parallel: Annotated[
        SequenceParallel,
        Declared(
            PARALLELISM,
            "Training: the --tp GPUs also shard the tokens of norms and residual adds.",
            plans=("training",),
            plan_help="Search only this value (default: both).",
        ),
    ] = "off"
    zero: Annotated[
        int,
        Declared(
            PARALLELISM,
            "Training: what the --dp replicas shard (stage of ZeRO): 1 optimizer state, 2 also gradients, 3 also "
            "weights.",
            maximum=3,
            plans=("training",),
            plan_help="Search only these stages of ZeRO (default: 0 and 1); with 1, the replicas shard the optimizer "
            "state, with 2 also gradients, with 3 also weights.",
        ),
    ] = 0
    fsdp: Annotated[
        bool,
        Declared(PARALLELISM, "Training: fully sharded data parallel, another name of --zero 3.", check=flag),
    ] = False
    hsdp: Annotated[
        int | None,
        Declared(
            PARALLELISM,
            "Training: --zero 3 within groups of so many replicas; gradients are all-reduced between the groups.",
            minimum=2,
            examples=("2,4,8", "2:8, 2:64:*2"),
        ),
    ] = None
    no_reshard: Annotated[
        bool,
        Declared(
            PARALLELISM, "Training: with --zero 3, layers stay gathered between forward and backward pass.", check=flag
        ),
    ] = False
    memory_utilization: Annotated[
        float | None,
        Declared(
            WORKLOAD,
            "Share of device memory that may be used; it limits what fits and the largest batch and context (default: "
            "of the engine's flag, else 0.9).",
            maximum=1,
        ),
    ] = None
    max_len: Annotated[
        int | None,
        Declared(
            WORKLOAD,
            "Longest sequence that the server is started for (default: that of the workload).",
            minimum=1,
            examples=LENGTH_EXAMPLES,
        ),
    ] = None
    token_budget: Annotated[
        int | None,
        Declared(
            WORKLOAD,
            "Tokens of a step of the server at most (default: the engine's).",
            minimum=1,
            examples=LENGTH_EXAMPLES,
        ),
    ] = None
    max_seqs: Annotated[
        int | None,
        Declared(
            WORKLOAD,
            "Sequences of a step of the server at most (default: the engine's).",
            minimum=1,
            examples=("64,256", "64:1024:*2"),
        ),
    ] = None
    data_parallel: Annotated[
        DataParallel | None,
        Declared(
            PARALLELISM,
            "How --dp replicas exchange gradients: ddp (DistributedDataParallel, during the backward pass), sequential "
            "(after it), or dataparallel (torch.nn.DataParallel, one process). Default: ddp; with --engine megatron as "
            "this engine does.",
        ),
    ] = None
    overlap: Annotated[
        Overlap,
        Declared(
            PARALLELISM, "Training: which communication overlaps with computation: what the engine overlaps, or none."
        ),
    ] = "engine"
    routing: Annotated[
        RoutingOption,
        Declared(
            WORKLOAD,
            "How tokens of an MoE model choose experts: uniform (at random), same (all tokens choose the same experts, "
            "as in a batch of identical prompts), or a FILE with a probability or count per expert.",
        ),
    ] = "uniform"
    capacity: Annotated[
        float | None,
        Declared(
            WORKLOAD,
            "Tokens that an expert of an MoE model accepts, relative to the mean of all experts, such as 1.25; others "
            "are dropped (default: none).",
            maximum=1024,
            examples=("1,1.25,2", "1:2:0.25"),
        ),
    ] = None
    sustained: SustainedTimes = None
    power_limit: PowerLimit = None


DEFAULTS: Mapping[str, Any] = Options._field_defaults


DECLARED: Mapping[str, Declared] = declared_options(Options)


def key_of(option: str) -> str:
    """The key of an option in documents and its column in tables: a time or a power names its unit."""
    unit = {"time": "_seconds", "power": "_watts"}.get(DECLARED[option].kind, "")
    return f"{option}{unit}"


def valid(option: str, value: object) -> Any:
    """The checked value of an option of a workload; see `checked_value`."""
    return checked_value(option, value, DECLARED[option])


REMOVED = ("runtime", "launch")
"""Former options."""


def non_default_options(options: Mapping[str, Any], used: Collection[str] = ()) -> list[str]:
    """The names of the options that are not at their default, without those in `used`; None if it is not declared."""
    return [name for name, value in options.items() if name not in used and value != DEFAULTS.get(name)]
