"""How a serving engine divides the memory of a GPU when it starts: the section `memory` of an engine's file.

The engine loads the weights, measures or estimates what a step needs besides them, and gives the rest to the KV cache:

    device   utilization x device - weights - outside torch - activations (- CUDA graphs)          vLLM
    free     utilization x (device - outside torch) - weights                                      SGLang
    rest     utilization x (device - weights - outside torch - activations)                        TensorRT-LLM

`device` is what the driver states. Activations are the peak of a pass over as many prompt tokens as a step has at most
(the token budget), or the sampler's, which sorts the logits of as many sequences as a step has at most.

What an engine's YAML file states: the known names, the records of its values, and their reader, whose messages name
file and line.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, get_args

from roofmodel.errors import EngineError, choices
from roofmodel.files.text_files import YamlValue, read_yaml
from roofmodel.numbers import units
from roofmodel.numbers.algebra import Number
from roofmodel.options.values import ComputeFormat, DataParallel, StorageFormat

SHARES = ("device", "free", "rest")
"""What the utilization is a share of."""


class StartDefaults(NamedTuple):
    """Limits of a step on GPUs from a memory size and with a tensor-parallel size from `tp`; None: no limit.

    `graph_sequences`: the largest batch with a CUDA graph, for SGLang's default of the utilization.
    """

    memory: float = 0.0
    tp: int = 1
    besides: tuple[str, ...] = ()  # generations to which it does not apply
    token_budget: int | None = None
    max_seqs: int | None = None
    graph_sequences: int = 0

    def applies(self, device: float, generation: str | None, tp: int) -> bool:
        """Whether it is for a GPU with so much memory, and for so many of them."""
        return device >= self.memory and tp >= self.tp and generation not in self.besides


class Reserve(NamedTuple):
    """The default of the utilization as 1 - reserve / device: bytes for each engine, for each token of the budget, each
    sequence of the largest CUDA graph and each GPU; at least `minimum` on GPUs of more than 60 GiB."""

    fixed: float = 0.0
    token: float = 0.0
    sequence: float = 0.0
    gpu: float = 0.0
    minimum: float = 0.0


LARGE = 60 * 2**30
"""Bytes of a GPU from which Reserve has a minimum (SGLang)."""


class ServingMemory(NamedTuple):
    """The rule of an engine, and its constants in bytes of one GPU.

    `outside_torch`: context, libraries and buffers of one GPU, and of one of several with tensor or expert parallelism.
    `hidden_buffers`: hidden states of all tokens of a step that are alive besides the operators' tensors.
    `sampler`: bytes for each logit besides the logits themselves; None where none is measured. `experts_kept`: the
    outputs of the experts stay allocated while the sampler runs. `graphs`: CUDA graphs, for each layer.
    `whole_prompts`: without chunked prefill, a step has at least the tokens of the longest sequence.
    `starts_without`: it starts even if the cache is too small for one request. `reserves_answers`: a request starts
    only if the cache has room for all tokens of its answer.
    """

    share_of: str
    utilization: float = 0.9
    reserve: Reserve | None = None
    outside_torch: tuple[float, float] = (0.0, 0.0)
    hidden_buffers: int | None = None
    sampler: float | None = None
    experts_kept: bool = False
    graphs: float | None = None
    subtracts_graphs: bool = False
    block: int = 1
    whole_prompts: bool = False
    starts_without: bool = False
    reserves_answers: bool = False
    defaults: tuple[StartDefaults, ...] = ()

    def limits(self, device: float, generation: str | None, tp: int) -> StartDefaults:
        """The limits of a step on such GPUs."""
        applicable = (each for each in self.defaults if each.applies(device, generation, tp))
        return next(applicable, StartDefaults())

    def default_utilization(self, device: float, token_budget: Number, sequences: int, gpus: int) -> Number:
        """The share that the engine uses unless its flag is given."""
        if (each := self.reserve) is None:
            return self.utilization
        reserved = each.fixed + each.token * token_budget + each.sequence * sequences + each.gpu * gpus
        return 1 - max(reserved, each.minimum if device > LARGE else 0.0) / device

    def for_cache(self, device: float, utilization: Number, weights: Number, outside: float, step: Number) -> Number:
        """The bytes of a GPU for the KV cache; negative where nothing is left. `step`: activations, and graphs if
        they count."""
        if self.share_of == "free":
            return utilization * (device - outside) - weights
        if self.share_of == "rest":
            return utilization * (device - weights - outside - step)
        return utilization * device - weights - outside - step


def read_memory(value: YamlValue, base: ServingMemory | None, generations: Sequence[str]) -> ServingMemory:
    """The section `memory`, with the constants of the engine that the file is like where it has none of its own."""
    entries = value.mapping(ServingMemory._fields, required=() if base else ("share_of",))
    fields: dict[str, Any] = {}
    for key, entry in entries.items():
        if key == "share_of":
            fields[key] = entry.one_of(SHARES)
        elif key == "utilization":
            fields[key] = entry.number()
            if not 0 < fields[key] <= 1:
                raise entry.error(f"{entry.path} is {entry.text()!r}; it must be above 0 and at most 1, such as 0.9")
        elif key == "reserve":
            fields[key] = Reserve(**{name: each.quantity("B") for name, each in entry.mapping(Reserve._fields).items()})
        elif key == "outside_torch":
            of_each = entry.mapping(("one", "several"), required=("one", "several"))
            fields[key] = of_each["one"].quantity("B"), of_each["several"].quantity("B")
        elif key in ("hidden_buffers", "block"):
            fields[key] = entry.integer()
        elif key in ("sampler", "graphs"):
            fields[key] = entry.quantity("B")
        elif key == "defaults":
            fields[key] = tuple(_defaults(each, generations) for each in entry.items())
        else:
            fields[key] = entry.flag()
    return base._replace(**fields) if base else ServingMemory(**fields)


def _defaults(value: YamlValue, generations: Sequence[str]) -> StartDefaults:
    fields: dict[str, Any] = {}
    for key, entry in value.mapping(StartDefaults._fields).items():
        if key == "memory":
            fields[key] = entry.quantity("B")
        elif key == "besides":
            fields[key] = tuple(item.one_of(generations) for item in entry.items())
        else:
            fields[key] = entry.integer()
    return StartDefaults(**fields)


FUSIONS = {
    "qkv": "projections of one attention layer that read the same input run as one GEMM",
    "gate_up": "gate and up projections of an MLP run as one GEMM",
    "latent_down": "the down-projections of multi-head latent attention run as one GEMM",
    "quantize": "the kernel before a GEMM writes its input in the GEMM's narrower format",
    "residual": "a residual add runs in the kernel of the norm after it",
    "rotary": "rotary embedding runs in a neighboring kernel",
    "index_norms": "norms before the rotary embedding of sparse attention and its indexer run in that kernel, and the "
    "projections of both as one GEMM",
    "experts": "the activation between the two GEMMs of the experts runs in their kernels",
    "all_reduce_norm": "a norm runs in the kernel of the all-reduce before it",
}
"""What an engine can fuse. `roofmodel/timing/engine.py` has the time of each."""
EXTRA_KERNELS = {
    "attention_copies": "queries, keys and values are copied, because batched GEMMs need the rows of a head contiguous",
    "scale_and_mask": "attention scales its scores and adds the mask in kernels of their own",
    "fp32_softmax": "a softmax of attention that the model computes in fp32 is cast before and after it",
    "composed": "norms, rotary embedding, gates and activations run a kernel for each operation of their code",
    "norm_gradients": "the gradients of a norm's gain and bias read its input and gradient again",
    "joined_gradients": "the gradients of the outputs of one fused GEMM, such as queries, keys and values, are joined",
    "dropout": "dropout of attention, the masks of dropout before residual adds, and the gradients of both",
    "residual_dropout": "dropout before a residual add runs in a kernel of its own",
    "fp32_loss": "the logits are cast for a loss in fp32",
}
"""Kernels that an engine runs besides those of the operators. `roofmodel/timing/reference_code.py` has the bytes
of each."""
OVERLAPS = {
    "gradients": "the exchange of gradients runs during the backward pass of the last microbatch",
    "parameters": "the all-gather of updated weights runs during the forward pass of the first microbatch",
    "shards": "weights and gradients that replicas shard are exchanged during the computation of a neighboring layer",
    "context_parallel": "keys and values pass around a ring of GPUs that share a sequence, during its attention",
    "tensor_parallel": "all-gathers and reduce-scatters of sequence parallelism run in parts during the GEMMs",
    "async_tensor_parallel": "the same by PyTorch's symmetric memory, where a GEMM is adjacent",
}
"""What an engine can overlap in training. `roofmodel/steps/overlap.py` has the time of each."""
DEFAULT_CASES = {
    "decoder_inference": "prefill, decode and generation of a decoder, plans of a service, and `roof op`",
    "multi_gpu_training": "training of a transformer on several GPUs, unless --data-parallel differs from the engine's",
    "other": "everything else",
}
"""What an engine is the default for; each has one packaged engine."""
KINDS = (
    "gemm", "prefill_attention", "decode_attention", "experts", "encoder_attention", "latent_prefill", "latent_decode",
    "latent_products", "causal_convolution", "causal_convolution_update", "delta_rule_prefill", "delta_rule_decode",
    "kda_prefill", "kda_decode", "kda_convolution_update", "index_prefill", "index_decode", "index_choose",
    "sparse_prefill", "sparse_decode", "compressed_prefill", "compressed_decode", "block_prefill", "block_decode",
    "expert_parallel",
)  # fmt: skip
"""Kinds of kernels of which an engine has its own, as in a device's calibration. Elementwise kernels are the same in
all engines."""
CHOICES = {
    "gemm": ("gemm",),
    "attention": ("prefill_attention", "decode_attention", "encoder_attention", "latent_prefill", "latent_decode"),
    "moe": ("experts",),
}
"""Options that choose a kernel among those of an engine's file, and the kinds that they apply to."""
ANY = "any"


class LaunchTime(NamedTuple):
    """Seconds of the host to launch one operator, with its 80 % interval."""

    seconds: float
    low: float
    high: float


class Host(NamedTuple):
    """Seconds of the host in a step of a serving engine: per step, per sequence and per prompt token.

    `overlapped`: the host prepares the next step while the GPU computes this one; otherwise the GPU waits. No step
    contains `request` and `request_token`: what a request and each token of its prompt take before and after the
    prefill, until the client has the first token (HTTP, tokenizing, scheduling, detokenizing).
    """

    step: float = 0.0
    sequence: float = 0.0
    prompt_token: float = 0.0
    overlapped: bool = False
    request: float = 0.0
    request_token: float = 0.0

    @property
    def of_steps(self) -> "Host":
        """The host in steps alone."""
        return self._replace(request=0.0, request_token=0.0)

    def outside_steps(self, prompt: Number) -> Number:
        """Seconds until the first token of a request with a prompt of so many tokens, besides its prefill."""
        return self.request + self.request_token * prompt


class Serve(NamedTuple):
    """How a server of an engine is started: texts with values in braces, such as `--tensor-parallel-size {tp}`.

    `flags` and `settings` are by the name of what they state, or by the name and the format for `kv` and `weights`;
    `settings` are entries of the file that `config` names. `dp_alone`: replicas that share experts have one GPU each.
    `benchmark` is the command of a client with {concurrency} requests in flight, whose result is {file}.
    """

    command: str
    benchmark: str
    flags: Mapping[str | tuple[str, str], str] = {}
    settings: Mapping[str | tuple[str, str], str] = {}
    config: str = ""
    dp_alone: bool = False


SERVE_FLAGS = (
    "tp", "pp", "dp", "ep", "max_len", "max_seqs", "token_budget", "memory_utilization", "kv", "weights", "prefill",
    "decode",
)  # fmt: skip
"""What a flag or a setting of a server states."""


class Halves(NamedTuple):
    """The tokens from which a step of decodes, or one with prompts, is divided into two halves of its sequences: one
    exchanges tokens with experts while the other one computes (`roofmodel/steps/overlap.py`)."""

    decodes: int = 2
    prompts: int = 2


class Training(NamedTuple):
    """How an engine trains: how replicas exchange gradients unless the options say otherwise; the formats of the
    gradients that it sums and of the logits that the loss keeps, where they are not those of weights and activations;
    what it overlaps; and the default format of fully sharded weights, where it is not that of computation.
    """

    data_parallel: DataParallel
    gradients: str | None = None
    logits: str | None = None
    overlaps: frozenset[str] = frozenset()
    sharded_weights: str | None = None


class Benchmark(NamedTuple):
    """What a benchmark of an engine's kernels runs, in tables of measured operations.

    `gemm_copies`: copies of A and of B that a GEMM uses in turn; `single_weights`: the formats of which B has one copy;
    `fills_l2`: B has as many copies as fill L2, at most those. Experts: `gates_all_experts`, also those of models
    without gates; `routes_by_groups`, as a router with groups of experts; `multiplies_reached_tokens`: a token with an
    expert on one of several GPUs is multiplied there by all its experts. Kernels of a delta rule: `filters_keys`: only
    the keys pass the causal convolution; `stateless_prefill`: a prefill has no state; `state`: its format;
    `waits_for_filters`: the time of three filters (`qkv3`) is the host's; `keeps_windows`: the verification of drafts
    writes a filter's window after each token. `joins_sequences`: index scores are of one sequence with all new tokens.
    """

    gemm_copies: tuple[int, int] = (1, 5)  # of an unknown benchmark, whose weights come mostly from DRAM
    single_weights: tuple[str, ...] = ()
    fills_l2: bool = False
    gates_all_experts: bool = False
    routes_by_groups: bool = False
    multiplies_reached_tokens: bool = False
    filters_keys: bool = False
    waits_for_filters: bool = False
    keeps_windows: bool = False
    stateless_prefill: bool = False
    state: str = "fp32"
    joins_sequences: bool = False


class BenchmarkRule(NamedTuple):
    """Fields of a Benchmark for the versions of an engine since one, for the listed ones, or for all."""

    since: tuple[int, ...]
    versions: tuple[str, ...]
    fields: dict[str, Any]

    def applies(self, version: str) -> bool:
        """Whether it applies to a version such as 1.3.0rc20."""
        return version in self.versions if self.versions else numbers_of(version)[: len(self.since)] >= self.since


class AllReduce(NamedTuple):
    """An engine's own all-reduce over NVLink: its kernel, and the largest message in bytes that it reduces."""

    own: str
    up_to: float


Kernels = Mapping[tuple[str, str, str], tuple[str, ...]]
"""(kind, GPU generation or `any`, formats or `any`) -> names of parameter sets, the preferred one first."""


KEYS = (
    "like", "name", "version", "since", "launch", "runtime", "extra_kernels", "kernels", "fuses", "pads_vocabulary",
    "collectives", "prompts_first", "host", "memory", "serve", "training", "options", "default_for", "kernel_names",
    "backends", "runs_kernels_of", "benchmarks", "variants", "source",
)  # fmt: skip
VARIANT_KEYS = ("launch", "extra_kernels", "fuses", "training", "halves", "server")
"""What a variant can change; `server` adds flags to the command of a server."""
REQUIRED = ("name", "version", "kernels", "launch")  # without `like`
RUNTIMES = ("eager", "megatron")
OPTIONS = ("launch", "autocast")
FOLDER = Path(__file__).parent
PACKAGED = tuple(sorted(path.stem for path in FOLDER.glob("*.yaml") if "@" not in path.stem))
"""The names of the packaged engines, without those of other versions."""
GENERATIONS = ("Volta", "Turing", "Ampere", "Ada", "Hopper", "Blackwell", ANY)
LISTS: Mapping[str, Collection[str]] = {
    "fuses": FUSIONS,
    "extra_kernels": EXTRA_KERNELS,
    "default_for": DEFAULT_CASES,
    "runs_kernels_of": PACKAGED,
}
"""Keys whose values are lists of known names."""


def read(path: Path, load: Callable[[str], Mapping[str, Any]]) -> dict[str, Any]:
    """The fields of an Engine that a file states; `load` returns those of the engine that it is `like`.

    Raises EngineError, with file and line, for an unknown or invalid entry.
    """
    try:
        root = read_yaml(path, EngineError, "an engine's YAML file")
    except FileNotFoundError:
        raise EngineError(f"{path}: no such file; give an engine's YAML file or a name such as vllm") from None
    entries = root.mapping(KEYS)
    base: Mapping[str, Any] = {}
    if "like" in entries:
        base = {**_base(entries["like"], load), "name": path.stem}
    else:
        for key in REQUIRED:
            if key not in entries:
                raise root.error(
                    f"the file lacks the key {key!r}; add 'like: vllm' to take the rest from another engine, or state "
                    f"{', '.join(REQUIRED[:-1])} and {REQUIRED[-1]}"
                )
    fields: dict[str, Any] = {name: value for name, value in base.items() if name not in ("id", "file", "settings")}
    for key, entry in entries.items():
        if key in ("name", "version"):
            fields[key] = entry.text()
        elif key == "since":
            fields[key] = numbers_of(entry.text())
        elif key == "launch":
            fields[key] = _launch(entry)
        elif key == "runtime":
            fields["host_runtime"] = entry.one_of(RUNTIMES)
        elif key in LISTS:
            fields[key] = _names(key, entry)
        elif key == "kernels":
            own = entry.mapping(KINDS)
            of_base = {rule: listed for rule, listed in fields.get(key, {}).items() if rule[0] not in own}
            fields[key] = of_base | _kernels(own)
        elif key in ("pads_vocabulary", "prompts_first"):
            fields[key] = entry.flag()
        elif key == "collectives":
            fields |= _collectives(entry)
        elif key == "host":
            fields[key] = _host(entry)
        elif key == "memory":
            fields[key] = read_memory(entry, fields.get(key), GENERATIONS)
        elif key == "serve":
            fields[key] = _serve(entry)
        elif key == "training":
            fields[key] = Training(**_training(entry, required=("data_parallel",)))
        elif key == "options":
            fields[key] = tuple(item.one_of(OPTIONS) for item in entry.items())
        elif key in ("kernel_names", "backends"):
            fields[key] = tuple(item.text() for item in entry.items())
        elif key == "benchmarks":
            fields[key] = tuple(map(_benchmark_rule, entry.items()))
        elif key == "variants":
            fields[key] = {name: _variants(values) for name, values in entry.mapping().items()}
        elif key == "source":
            for source in entry.mapping().values():
                source.text()
    return fields


def _base(value: YamlValue, load: Callable[[str], Mapping[str, Any]]) -> Mapping[str, Any]:
    name = value.text()
    try:
        return load(name)
    except EngineError as error:
        raise value.error(error.message) from None


def _seconds(value: YamlValue, zero: bool = False) -> float:
    text = value.text()
    try:
        seconds = float(units.parse(text, "s"))
    except ValueError as error:
        raise value.error(f"{value.path}: {error}") from None
    if seconds < 0 or (seconds == 0 and not zero):
        raise value.error(f"{value.path} is {text!r}; it must be a time such as 40 us")
    return seconds


def _launch(value: YamlValue) -> LaunchTime | None:
    """`graph`, or the seconds per operator with their interval."""
    if not value.is_mapping:
        if value.text() != "graph":
            raise value.error(f"launch is {value.text()!r}; it must be graph, or a mapping with seconds, low and high")
        return None
    entries = value.mapping(LaunchTime._fields, required=LaunchTime._fields)
    seconds, low, high = (_seconds(entries[field]) for field in LaunchTime._fields)
    if not low <= seconds <= high:
        low_text, text, high_text = (entries[field].text() for field in ("low", "seconds", "high"))
        raise value.error(f"launch has the interval {low_text} to {high_text}, which must contain seconds, {text}")
    return LaunchTime(seconds, low, high)


def _host(value: YamlValue) -> Host:
    entries = value.mapping(Host._fields)
    times = {name: _seconds(entry, zero=True) for name, entry in entries.items() if name != "overlapped"}
    return Host(**times, overlapped="overlapped" in entries and entries["overlapped"].flag())


def _serve(value: YamlValue) -> Serve | None:
    """The section `serve`; None where it is empty."""
    entries = value.mapping(Serve._fields)
    if not entries:
        return None
    entries = value.mapping(Serve._fields, required=("command", "benchmark"))
    fields = dict[str, Any]()
    for key, entry in entries.items():
        if key in ("flags", "settings"):
            fields[key] = _serve_flags(entry)
        else:
            fields[key] = entry.flag() if key == "dp_alone" else entry.text()
    return Serve(**fields)


def _serve_flags(value: YamlValue) -> dict[str | tuple[str, str], str]:
    flags = dict[str | tuple[str, str], str]()
    for name, entry in value.mapping(SERVE_FLAGS).items():
        if entry.is_mapping:
            flags |= {(name, form): text.text() for form, text in entry.mapping(get_args(StorageFormat)).items()}
        else:
            flags[name] = entry.text()
    return flags


def _names(key: str, value: YamlValue) -> frozenset[str]:
    """The value of a key in LISTS."""
    if not value.is_list:
        raise value.error(f"{key} must be a list of {', '.join(LISTS[key])}")
    return frozenset(item.one_of(LISTS[key]) for item in value.items())


def _training(value: YamlValue, required: Sequence[str] = ()) -> dict[str, Any]:
    """The stated fields of a Training."""
    fields = dict[str, Any]()
    for key, entry in value.mapping(Training._fields, required=required).items():
        if key == "overlaps":
            fields[key] = frozenset(item.one_of(OVERLAPS) for item in entry.items())
        elif entry.is_null and key in ("gradients", "logits"):
            fields[key] = None
        else:
            fields[key] = entry.one_of(get_args(DataParallel if key == "data_parallel" else ComputeFormat))
    return fields


def _variants(value: YamlValue) -> dict[str, dict[str, Any]]:
    """The values of an option of the engine, and the fields that each changes; of `training`, those that it states."""
    read_field: Mapping[str, Callable[[YamlValue], Any]] = {
        "launch": _launch, "training": _training, "halves": _halves, "server": YamlValue.text,
    }  # fmt: skip
    return {
        name: {
            key: read_field[key](entry) if key in read_field else _names(key, entry)
            for key, entry in changed.mapping(VARIANT_KEYS).items()
        }
        for name, changed in value.mapping().items()
    }


def _halves(value: YamlValue) -> Halves:
    return Halves(**{name: entry.integer(low=2) for name, entry in value.mapping(Halves._fields).items()})


def _benchmark_rule(value: YamlValue) -> BenchmarkRule:
    """An entry of `benchmarks`: the versions that it applies to, and what their benchmarks run."""
    entries, fields = value.mapping(("since", "versions", *Benchmark._fields)), dict[str, Any]()
    for key, entry in entries.items():
        if key in ("since", "versions"):
            continue
        if key == "gemm_copies":
            of_each = entry.mapping(("a", "b"), required=("a", "b"))
            fields[key] = of_each["a"].integer(), of_each["b"].integer()
        elif key == "single_weights":
            fields[key] = tuple(item.one_of(get_args(StorageFormat)) for item in entry.items())
        elif key == "state":
            fields[key] = entry.one_of(get_args(ComputeFormat))
        else:
            fields[key] = entry.flag()
    since = numbers_of(entries["since"].text()) if "since" in entries else ()
    if "since" in entries and not since:
        raise entries["since"].error(f'{entries["since"].path} is no version such as "0.19"')
    versions = tuple(item.text() for item in entries["versions"].items()) if "versions" in entries else ()
    return BenchmarkRule(since, versions, fields)


def _collectives(value: YamlValue) -> dict[str, Any]:
    entries, fields = value.mapping(("all_reduce", "else")), dict[str, Any]()
    if "else" in entries:
        fields["collectives"] = entries["else"].text()
    if "all_reduce" in entries:
        own = entries["all_reduce"].mapping(AllReduce._fields, required=AllReduce._fields)
        fields["all_reduce"] = AllReduce(own["own"].text(), own["up_to"].quantity("B"))
    return fields


def _kernels(kinds: Mapping[str, YamlValue]) -> dict[tuple[str, str, str], tuple[str, ...]]:
    """The names by kind, generation and formats: a list for all of them, or mappings by generation or formats."""
    kernels: dict[tuple[str, str, str], tuple[str, ...]] = {}
    for kind, of_kind in kinds.items():
        for generation, of_generation in levels(of_kind, GENERATIONS).items():
            for formats, listed in levels(of_generation, None).items():
                kernels[kind, generation, formats] = tuple(item.text() for item in listed.items())
                if not kernels[kind, generation, formats]:
                    raise listed.error(f"{listed.path} names no kernel")
    return kernels


def levels(value: YamlValue, names: tuple[str, ...] | None) -> dict[str, YamlValue]:
    """The entries of a mapping by generation (or, without `names`, by formats); one entry `any` for another value."""
    if not value.is_mapping:
        return {ANY: value}
    keys = value.mapping()
    if not keys:
        raise value.error(f"{value.path} names no kernel")
    if names is not None:
        return {ANY: value} if all("/" in key for key in keys) else value.mapping(names)
    for key, entry in keys.items():
        if key != ANY:
            _check_formats(key, entry)
    return keys


def _check_formats(key: str, entry: YamlValue) -> None:
    """Raises EngineError for a key that is no pair of a compute format and a stored format."""
    names = key.split("/")
    if len(names) != 2:
        raise entry.error(f"{key!r} is no pair of formats such as fp16/fp8")
    if "bf16" in names:
        raise entry.error(f"{key!r}: write {key.replace('bf16', 'fp16')!r}, which stands for bf16, too")
    for name, formats in zip(names, (ComputeFormat, StorageFormat), strict=True):
        if name not in (formats_of_kind := get_args(formats)):
            raise entry.error(f"{key!r} has the unknown format {name!r}{choices(name, formats_of_kind)}")


def numbers_of(version: str) -> tuple[int, ...]:
    """The numbers of a version: (1, 3, 0, 20) of 1.3.0rc20."""
    return tuple(map(int, re.findall(r"[0-9]{1,9}", version)))
