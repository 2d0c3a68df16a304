"""The workload: phases, lengths, formats, parallelism, routing of tokens to experts; its passes through the model.

A pass has the numbers of its tokens and of its query-key pairs, and the number of experts that it uses.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

from roofmodel.counting.tensors import FORMATS, STATE_FORMATS, Widths, number_format
from roofmodel.engines.engine import Engine
from roofmodel.numbers.algebra import Number, ceil_div, half, is_just, mean, minimum, quotient, whole
from roofmodel.options.values import (
    AttentionMode,
    ContextExchange,
    DataParallel,
    LatentMode,
    Logits,
    Optimizer,
    Phase,
    Schedule,
    States,
)
from roofmodel.options.workload import Options


class Routing(NamedTuple):
    """How the tokens of a pass choose experts.

    * `uniform`: each token chooses its top-k experts at random, independently of the other tokens;
    * `same`: all tokens choose the same experts, as the decodes of identical prompts do. No pass reads fewer weights;
    * any other `name`: a file with `shares`, the probability of each expert; they sum to 1. `origin` states how its
      numbers were read.
    """

    name: str = "uniform"
    shares: tuple[float, ...] = ()
    path: str = ""  # of the file, as given
    origin: str = ""
    capacity: float | None = None

    @property
    def given(self) -> str:
        """The value of the option: a file's path or a name."""
        return self.path or self.name


UNIFORM = Routing()


class Adapters(NamedTuple):
    """Low-rank adapters: their rank, and the names of the linear layers that have them (empty: all)."""

    rank: int
    targets: tuple[str, ...] = ()

    def on(self, layer: str | None) -> bool:
        """Whether the linear layer of this name has an adapter; None: the operator runs no linear layer."""
        return layer is not None and (not self.targets or layer in self.targets)


NO_IMAGE = (0, 0)
"""Rows and columns of pixels for models that read no image."""


class Parallel(NamedTuple):
    """How GPUs divide the work.

    * `tp`: GPUs that share each layer (tensor parallelism, `models/architecture.py`);
    * `dp`: replicas, each with its part of the batch;
    * `cp`: GPUs that share the tokens of a sequence (context parallelism): each has two of its 2 cp parts, one of the
      first half and its mirror image, so that all have as many causal query-key pairs; `cp_kind` is what they exchange;
    * `pp`: pipeline stages of a replica, each with `vpp` model chunks (`models/architecture.py`); counts are those
      of one GPU of one `stage`; `stage_layers` are the layers of each chunk in order, as equal as possible if empty;
    * `ep`: GPUs that share the experts of an MoE model: some of the `tp` GPUs, or the GPUs of several replicas
      (`experts_span_replicas`);
    * `sequence`: whether the `tp` GPUs also shard the tokens outside the blocks: norms, residual adds, dropout
      (Korthikanti et al., arXiv 2205.05198, section 4.2);
    * `zero`: the stage of ZeRO: with 1, the replicas shard the optimizer state (Megatron-LM's distributed optimizer),
      with 2 also gradients, with 3 also weights (FSDP; `training/sharding.py`);
    * `hsdp`: the number of replicas that shard together; None: all of them;
    * `reshards`: whether gathered weights are freed between forward and backward pass;
    * `overlaps`: what the engine overlaps in training (`engines/engine_file.py`, OVERLAPS);
    * `wrapper`: how replicas train (PyTorch's DistributedDataParallel or DataParallel, gradients exchanged after the
      backward pass, or `sharded` ones layer by layer); None: one replica without a wrapper.

    Rank order as in Megatron-LM (Narayanan et al., arXiv 2104.04473, section 3): tensor parallelism, then context
    and data parallelism, then pipeline stages.
    """

    tp: Number = 1
    dp: Number = 1
    pp: Number = 1
    ep: Number = 1
    vpp: Number = 1
    cp: Number = 1
    cp_kind: ContextExchange = "ring"
    experts_span_replicas: bool = False
    stage: int = 0
    stage_layers: tuple[int, ...] = ()
    sequence: bool = False
    zero: int = 0
    hsdp: Number | None = None
    reshards: bool = True
    wrapper: DataParallel | Literal["sharded"] | None = None
    overlaps: frozenset[str] = frozenset()

    @property
    def ways(self) -> dict[str, Number]:
        """The parallel sizes by name."""
        return {"tp": self.tp, "dp": self.dp, "pp": self.pp, "ep": self.ep, "vpp": self.vpp, "cp": self.cp}

    @property
    def replicas(self) -> Number:
        """Number of replicas among which each set of experts is sharded."""
        return quotient(self.ep, self.tp) if self.experts_span_replicas else 1

    @property
    def expert_tp(self) -> Number:
        """Number of GPUs that share each expert (tensor parallelism within an expert)."""
        return 1 if self.experts_span_replicas else quotient(self.tp, self.ep)

    @property
    def gpus(self) -> Number:
        """Number of GPUs."""
        return self.tp * self.weight_copies * self.pp

    @property
    def weight_copies(self) -> Number:
        """GPUs with the same weights, which add their gradients: of all replicas, and of all parts of a sequence."""
        return self.dp if is_just(self.cp, 1) else self.dp * self.cp  # a product of traced numbers is another number

    @property
    def interleaves(self) -> bool:
        """Whether the stages of a pipeline have several model chunks each."""
        return bool(self.pp > 1 and self.vpp > 1)

    @property
    def schedule(self) -> Schedule | None:
        """The order of the microbatches of a training step in the pipeline; None without a pipeline."""
        return "interleaved" if self.interleaves else "1f1b" if self.pp > 1 else None

    def batch_divisor(self, trains: bool, micro_batch: int | None) -> int:
        """The divisor of the batch: whole microbatches on all replicas, and for an interleaved pipeline a multiple of
        the number of stages (Narayanan et al., arXiv 2104.04473, section 2.2)."""
        return int(self.dp * (micro_batch or 1) * (self.pp if trains and self.interleaves else 1))

    def gpus_of_stage(self, trains: bool) -> Number:
        """GPUs of a pipeline stage that communicate; replicas do if they train or share experts."""
        return self.tp * self.weight_copies if trains or self.experts_span_replicas else self.tp

    def communicating_gpus(self, trains: bool) -> Number:
        """GPUs that communicate, over all pipeline stages."""
        return self.gpus_of_stage(trains) * self.pp

    @property
    def rows(self) -> str:
        """The token axis outside the blocks: `u` (sharded) under sequence parallelism, else `t`."""
        return "u" if self.sequence else "t"

    @property
    def unsharded(self) -> bool:
        """Whether each layer is on one GPU (no tensor parallelism)."""
        return is_just(self.tp, 1)


ONE_GPU = Parallel()
FULL = 3
"""The stage of ZeRO that shards weights."""


class Workload(NamedTuple):
    """The workload to count: phases, batch, lengths in tokens per sequence, number formats by name, parallelism.

    * `batch`: sequences over all GPUs; a replica computes its part `micro_batch` sequences at a time (None: at once);
    * `seq`: tokens per sequence; of an encoder-decoder, those of the encoder, and `decoder_seq` those of the decoder;
    * `context`: tokens in the cache before the pass; None: none for a prefill, the prompt for a decode;
    * `new_tokens`: decodes after the prefill, for the phase `generate`;
    * `image`: rows and columns of pixels; `seq` is then the number of image tokens;
    * `dtype`: compute format of GEMMs, and the format of all tensors unless `weights`, `kv` or `activations` is given;
    * `unconverted`: weight matrices that keep the format of the activations if `weights` is narrower than 16 bits;
    * `matrix_formats`: weight matrices in other formats than `weights`, as pairs of matrix and format;
    * `weights_known`: False for a checkpoint in an unknown format, whose weights have no size;
    * `logits`: positions with logits; None: the last one for a prefill, all for a forward pass;
    * `states`: format of the optimizer's moments; None: of `Widths.state`, or of the optimizer;
    * `adapters`: the low-rank adapters that are trained in place of all weights;
    * `recipe`: the training recipe with GEMMs below 16 bits (`training/recipes.py`);
    * `engine`: what runs the model; no effect on counts;
    * `routing`: how tokens choose the experts of an MoE model;
    * `options`: all options, for those that counting does not read, such as `memory_utilization`.
    """

    phases: tuple[Phase, ...]
    batch: Number = 1
    seq: Number = 1024
    context: Number | None = None
    dtype: str = "fp16"
    weights: str | None = None
    kv: str | None = None
    activations: str | None = None
    attention: AttentionMode = "flash"
    logits: Logits | None = None
    new_tokens: Number = 1
    image: tuple[Number, Number] = NO_IMAGE
    mla: LatentMode = "absorbed"
    optimizer: Optimizer = "adam"
    states: States | None = None
    adapters: Adapters | None = None
    recipe: str | None = None
    recompute: str = "none"
    decoder_seq: Number | None = None
    parallel: Parallel = ONE_GPU
    micro_batch: Number | None = None
    unconverted: frozenset[str] = frozenset()
    matrix_formats: tuple[tuple[str, str], ...] = ()
    weights_known: bool = True
    engine: Engine = Engine()
    routing: Routing = UNIFORM
    options: Options = Options()

    @property
    def data_parallel(self) -> DataParallel | None:
        """How replicas train; None also for sharded ones."""
        return None if self.parallel.wrapper == "sharded" else self.parallel.wrapper

    @property
    def stage_layers(self) -> str | None:
        """The layers of each pipeline stage or chunk, if they are given: `15,16,15`."""
        return ",".join(map(str, self.parallel.stage_layers)) or None

    @property
    def hsdp(self) -> Number | None:
        """The number of replicas that shard weights together, if they form groups."""
        return self.parallel.hsdp

    @property
    def communicating_gpus(self) -> Number:
        """Number of GPUs that communicate."""
        return self.parallel.communicating_gpus("train" in self.phases)

    @property
    def sequence_parallel(self) -> str:
        """Sequence parallelism as `on` or `off`."""
        return "on" if self.parallel.sequence else "off"

    @property
    def zero(self) -> int:
        """The stage of ZeRO: what the replicas shard."""
        return self.parallel.zero

    @property
    def gathered(self) -> Widths:
        """The number formats of the operators: fully sharded weights are gathered in the working format at most."""
        widths = self.widths
        is_wider = widths.weights.bits > widths.dtype.bits and not self.engine.autocast
        return widths._replace(weights=widths.dtype) if self.parallel.zero == FULL and is_wider else widths

    @property
    def widths(self) -> Widths:
        working, gemm = FORMATS[self.activations or self.dtype], FORMATS[self.dtype]
        cached = working if self.recipe is not None else FORMATS[self.kv or self.dtype]
        return Widths(
            working, number_format(self.weights or self.dtype), cached,
            None if gemm == working else gemm, self.unconverted,
            tuple((name, number_format(form)) for name, form in self.matrix_formats),
            None if self.states is None else STATE_FORMATS[self.states],
        )  # fmt: skip

    @property
    def decode_context(self) -> Number:
        """Tokens in the cache before a decode step."""
        return self.prompt if self.context is None else self.context

    @property
    def prompt(self) -> Number:
        """Tokens per sequence of a prefill; of an encoder-decoder, those of the decoder."""
        return self.seq if self.decoder_seq is None else self.decoder_seq

    def logits_of(self, phase: Phase) -> Logits:
        """The positions whose logits are computed."""
        return self.logits or ("all" if phase in ("forward", "train", "vision") else "last")

    def steps(self) -> tuple["Step", ...]:
        """The passes through the model, in order."""
        return tuple(self.step(phase) for phase in self.phases)

    def step(self, phase: Phase) -> "Step":
        """The pass of one phase."""
        tokens, context = self.prompt, 0
        if phase == "decode":
            tokens, context = 1, self.decode_context
        elif phase in ("prefill", "generate") and self.phases == (phase,) and self.context is not None:
            context = self.context  # chunked prefill; if a decode is also requested, `context` applies to the decode
        passes = 1 + self.new_tokens if phase == "generate" else 1
        tokens = tokens if is_just(self.parallel.cp, 1) else quotient(tokens, self.parallel.cp)
        positions = tokens if self.logits_of(phase) == "all" else 1
        part = quotient(self.batch, self.parallel.dp)
        together = part if self.micro_batch is None else self.micro_batch
        return Step(
            phase, together, tokens, context, self.attention, positions, self.gathered,
            passes, self.image, self.mla, self.optimizer, self.recompute,
            0 if self.decoder_seq is None else self.seq, self.parallel,
            1 if self.micro_batch is None else quotient(part, together), routing=self.routing,
            gradients=self.engine.training and self.engine.training.gradients,
            logits=self.engine.training and self.engine.training.logits,
            adapters=self.adapters,
            recipe=self.recipe, stored=None if self.gathered == self.widths else self.widths.weights.name,
        )  # fmt: skip


class PromptChunk(NamedTuple):
    """Prompt tokens that a decode step computes too (chunked prefill): `tokens` of each of `batch` prompts, after
    `context` tokens of the same prompt that are in the cache."""

    batch: Number
    tokens: Number
    context: Number


class Step(NamedTuple):
    """One pass through the model: `tokens` new tokens per sequence after `context` cached tokens.

    Several `passes` are a run in which each pass is one token longer than the previous one: decodes after `context`,
    `context + 1`, ... cached tokens, or forward passes over `tokens` tokens on average. Axis sizes of a run are means
    over its passes, which is exact because costs are linear in `t`, `s` and `t:s`.

    `batch` is what one replica computes at once, in each of `microbatches`; counts are those of one GPU. `source` is
    the number of encoder tokens per sequence. A training step without an `optimizer` ends with the gradients. A decode
    with a `chunk` computes prompt tokens in the same pass (`mixed_step.py`). `gradients` and `logits` are the formats
    in which an engine keeps both in training; None: those of weights and activations. They change memory and time. With
    `adapters`, only they are trained. `stored` is the format of sharded weights, if they are gathered in another one.
    `recipe` names how GEMMs below 16 bits train.
    """

    phase: Phase
    batch: Number
    tokens: Number
    context: Number
    attention: AttentionMode
    logit_positions: Number
    widths: Widths
    passes: Number = 1
    image: tuple[Number, Number] = NO_IMAGE
    mla: LatentMode = "absorbed"
    optimizer: Optimizer | None = "adam"
    recompute: str = "none"
    source: Number = 0
    parallel: Parallel = ONE_GPU
    microbatches: Number = 1
    chunk: PromptChunk | None = None
    routing: Routing = UNIFORM
    gradients: str | None = None
    logits: str | None = None
    adapters: Adapters | None = None
    stored: str | None = None
    recipe: str | None = None

    @property
    def trained_widths(self) -> Widths:
        """The number formats, with that of the trained parameters, as they are stored, as the format of weights."""
        if self.stored is not None:
            return self.widths._replace(weights=number_format(self.stored))
        return self.widths._replace(weights=self.widths.others) if self.adapters else self.widths

    @property
    def of_sequence(self) -> "Step":
        """The pass over the whole sequence that GPUs share under context parallelism; else the pass itself."""
        cp, one = self.parallel.cp, self.parallel._replace(cp=1)
        return self if is_just(cp, 1) else self._replace(tokens=cp * self.tokens, parallel=one)

    @property
    def encodes(self) -> bool:
        """Whether the pass runs the encoder. Later passes read its keys and values from the cache."""
        return self.phase != "decode" and not self.resumed

    @property
    def encoder_step(self) -> "Step":
        """The encoder's part of this pass."""
        return self._replace(tokens=self.source, context=0, passes=1)

    @property
    def token_axes(self) -> dict[str, Number]:
        """Sizes of the batch and token axes; also `u` under sequence parallelism, and `drafts`, the drafted tokens per
        sequence that a decode verifies."""
        sizes = {"b": self.batch, "t": self.tokens}
        if self.parallel.sequence:
            sizes["u"] = ceil_div(self.tokens, self.parallel.tp)
        if self.phase == "decode" and not is_just(self.tokens, 1):
            sizes["drafts"] = self.tokens - 1
        return sizes

    @property
    def reach(self) -> Number:
        """Number of positions needed: cached and new tokens of the last pass."""
        return self.context + self.of_sequence.tokens + self.passes - 1

    @property
    def cached(self) -> bool:
        """Whether the pass uses a KV cache."""
        return self.phase not in ("forward", "train", "vision")

    @property
    def resumed(self) -> bool:
        """Whether the cache contains tokens before the pass."""
        return self.cached and not is_just(self.context, 0)

    @property
    def recurrent(self) -> bool:
        """Whether recurrent layers (Mamba, linear attention) take a single step from a cached state."""
        return self.resumed and is_just(self.tokens, 1)

    def mean_of(self, count: Callable[[Number], Number]) -> Number:
        """The mean over the passes of `count(tokens)`, for counts that are not linear in the number of tokens."""
        if self.cached or self.passes == 1:
            return count(self.tokens)
        last = whole(self.tokens + mean(self.passes - 1, 2))
        return mean(sum(count(tokens) for tokens in range(last - self.passes + 1, last + 1)), self.passes)

    @property
    def absorbs(self) -> bool:
        """Whether latent attention runs on the latents (absorbed): in a decode, unless `mla` is naive."""
        return self.mla == "absorbed" and self.phase == "decode"


def attended(step: Step, window: Number | None, evicts: bool = True, chunked: bool = False) -> Number:
    """Number of key positions that are read: cached positions in the window, and new ones.

    If the cache does not evict positions outside the window, eager attention reads and masks them. With chunked
    attention (`chunked`), eager attention reads the whole window or cache, too.
    """
    if step.attention == "eager":
        window, chunked = window if evicts else None, False
    if step.cached and step.passes > 1:
        last, first = (unmasked_pairs(n, window, chunked) for n in (step.context + step.passes, step.context))
        return mean(last - first, step.passes)
    if window is None:
        return step.context + step.tokens
    if chunked:
        return step.context % window + step.tokens
    return minimum(step.context, window - 1) + step.tokens


def pairs(step: Step, window: Number | None, causal: bool, evicts: bool = True, chunked: bool = False) -> Number:
    """Query-key pairs per head: all pairs under eager attention, unmasked pairs under flash attention.

    Causal: S(S+1)/2. For C tokens after c cached ones: C c + C(C+1)/2. With a window W: W S - W(W-1)/2 for S >= W. All
    three are F(c + C) - F(c) with F(n) = sum over i <= n of min(i, W). A bidirectional window has as many pairs ahead
    as behind, and the diagonal once: 2 F(S) - S. With chunked attention in chunks of W tokens, F(n) is W(W+1)/2 for
    each full chunk plus r(r+1)/2 for the r tokens of the last one.
    """
    masked = step.attention == "flash" and (causal or window is not None)
    if not step.cached and step.passes > 1:
        last = whole(step.tokens + mean(step.passes - 1, 2))
        longer, shorter = (_pairs_of_all_passes(n, window, masked, chunked) for n in (last, last - step.passes))
        return mean(longer - shorter, step.passes)
    if not masked or step.passes > 1:
        return step.tokens * attended(step, window, evicts, chunked)
    behind = unmasked_pairs(step.context + step.tokens, window, chunked) - unmasked_pairs(step.context, window, chunked)
    return behind if causal else 2 * behind - step.tokens


def unmasked_pairs(n: Number, window: Number | None, chunked: bool) -> Number:
    """Unmasked pairs of n tokens: the sum over i <= n of min(i, W), or of the position of i in its chunk."""
    if chunked and window is not None:
        return n // window * half(window * (window + 1)) + half(n % window * (n % window + 1))
    reach = n if window is None else minimum(n, window)
    return half(reach * (reach + 1)) + (n - reach) * reach


def _pairs_of_all_passes(n: Number, window: Number | None, masked: bool, chunked: bool) -> Number:
    """Pairs of passes over 1, 2, ..., n tokens: the sum over i <= n of `unmasked_pairs(i)`, or of i x i unmasked."""
    if not masked:
        return quotient(n * (n + 1) * (2 * n + 1), 6)
    if chunked and window is not None:
        full, rest, each = n // window, n % window, half(window * (window + 1))
        pyramids = (quotient(m * (m + 1) * (m + 2), 6) for m in (window, rest))
        return each * (window * half(full * (full - 1)) + rest * full) + full * next(pyramids) + next(pyramids)
    reach = n if window is None else minimum(n, window)
    beyond = n - reach
    triangle = unmasked_pairs(reach, window, chunked)
    return quotient(reach * (reach + 1) * (reach + 2), 6) + beyond * triangle + reach * half(beyond * (beyond + 1))
