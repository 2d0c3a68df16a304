"""Calibration of a device: fitted parameters of the timing formulas, with the data and the residuals of each fit.

The device's file has them under `calibration`. Parameters without a unit are fractions of the datasheet's ceilings
in the same file, so that they carry over to a device of the same design; times are in seconds. L2 bandwidths are
fractions of the ports between L2 and the SMs, 64 bytes per clock and SM, because vendors do not publish L2's own
bandwidth. The formulas are in `roofmodel/timing`; `roof explain` prints the meaning of each parameter.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from math import exp, hypot, inf, log
from types import MappingProxyType
from typing import Annotated, Any, Generic, NamedTuple, TypeVar

MAX_TRANSFER_ERROR = 1 / 3  # a set with a larger mean error replaces a missing set only where there is no other
MAX_SUBSTITUTE_FACTOR = 3.0  # how far `Fit.wider` moves the ends of an interval, as a factor


class Parameter(NamedTuple):
    """A parameter of a kernel model, declared once: `name: Annotated[float, Parameter(...)]`.

    A fit starts at `start` and stays between `low` and `high`; without them within a factor of 100 of the start. It
    tries each of `values`, where a parameter has one of a few physical values, such as the rows of a tile. A set that
    does not state a parameter has its start: no measurement of the set depends on it.
    """

    meaning: str
    unit: str  # "s" for a time, which has a unit in files; "" for a fraction of a ceiling; else such as "rows"
    start: float
    low: float = 0.0
    high: float = inf
    values: tuple[float, ...] = ()

    @property
    def limits(self) -> tuple[float, float]:
        """The limits of a fit."""
        return max(self.low, self.start / 100), min(self.high, self.start * 100)


@cache
def parameters(timing: Any) -> Mapping[str, Parameter]:
    """The parameters of a kernel model, by name."""
    return {name: hint.__metadata__[0] for name, hint in timing.__annotations__.items()}


class GemmTiming(NamedTuple):
    """Parameters of a GEMM in tiles (`timing/gemm.py`)."""

    latency: Annotated[float, Parameter("time from launch to end of the smallest GEMM", "s", 2.5e-6)]
    split: Annotated[
        float,
        Parameter("time to add the partial sums of split K; long where a library does not split K", "s", 2.5e-6),
    ]
    sustained: Annotated[
        float,
        Parameter(
            "exponent of a GEMM's length, by which clocks fall and SMs contend: with 0.05, a GEMM of 100 latencies "
            "at the peak multiplies 26 % more slowly",
            "",
            0.05,
            low=1e-3,
            high=0.3,
        ),
    ]
    step: Annotated[float, Parameter("least time per element of K and tile, for tiles of any size", "s", 2e-9)]
    store: Annotated[float, Parameter("factor on the L2 port's bandwidth, at which an SM stores its tile", "", 0.3)]
    l2: Annotated[
        float, Parameter("factor on the L2 ports' bandwidth for loads; above 1 where thread blocks share them", "", 0.6)
    ]
    dram: Annotated[float, Parameter("fraction of the DRAM bandwidth", "", 0.85, high=1.0)]
    resident: Annotated[float, Parameter("fraction of L2 that keeps operands from launch to launch", "", 0.2, high=1.0)]
    quantize_row: Annotated[float, Parameter("time of an SM to quantize a row of A", "s", 2e-7)]


class ContextTiming(NamedTuple):
    """Parameters of fused attention in a prefill (`timing/attention.py`)."""

    latency: Annotated[float, Parameter("time from launch to end of the smallest kernel", "s", 9e-06)]
    pipe: Annotated[float, Parameter("factor on the pipe's peak", "", 0.7, high=1.05)]
    softmax: Annotated[float, Parameter("work of the softmax per score, in elements of a head", "", 20.0)]
    fill: Annotated[float, Parameter("overhead of a query tile, in keys", "", 60.0)]
    tail: Annotated[
        float,
        Parameter(
            "fraction of the longest tile's time during which not all SMs are busy at the end", "", 0.5, high=1.0
        ),
    ]
    dram: Annotated[float, Parameter("fraction of the DRAM bandwidth", "", 0.5, high=1.0)]
    packed: Annotated[
        float,
        Parameter(
            "1: a tile holds the queries of all heads that share a key-value head; 0: of one head; 0.5: of all these heads where a sequence has one query",
            "",
            1.0,
            values=(1.0, 0.0, 0.5),
        ),
    ]
    resident: Annotated[
        float,
        Parameter(
            "fraction of L2 that keeps the tensors of a repeated attention; 0: all from DRAM",
            "",
            0.0,
            values=(0.0, 0.4, 0.65, 0.75, 0.9, 0.95, 1.0),
        ),
    ] = 0.0
    height: Annotated[float, Parameter("query rows of a tile", "", 128.0, values=(128.0, 64.0, 32.0, 16.0, 256.0))] = (
        128.0
    )
    masked: Annotated[
        float,
        Parameter(
            "with a sliding window: 1: tiles outside the window are computed and masked; 0: they are skipped",
            "",
            0.0,
            values=(0.0, 1.0),
        ),
    ] = 0.0
    append: Annotated[
        float,
        Parameter(
            "1: another kernel first appends the new keys and values to the KV cache; 0: the time is without it",
            "",
            0.0,
            values=(0.0, 1.0),
        ),
    ] = 0.0


class GenerationTiming(NamedTuple):
    """Parameters of fused attention in a decode (`timing/attention.py`)."""

    latency: Annotated[float, Parameter("time from launch to end of the smallest kernel", "s", 9e-06)]
    wave: Annotated[float, Parameter("time per wave of blocks", "s", 2e-06)]
    split: Annotated[float, Parameter("time to combine the parts of a split KV cache", "s", 3e-06)]
    stream: Annotated[float, Parameter("factor on an SM's L2 port bandwidth, at which one block reads", "", 0.4)]
    dram: Annotated[float, Parameter("fraction of the DRAM bandwidth", "", 0.8, high=1.0)]
    group: Annotated[
        float,
        Parameter(
            "largest number of query heads per key-value head of the grouped kernel; 0: no limit. With more, or with one, another kernel gives each query head its own block",
            "",
            0.0,
            values=(0.0, 1000.0, 32.0),
        ),
    ]
    queue: Annotated[float, Parameter("1: an SM runs one block at a time; 0: several", "", 0.0, values=(0.0, 1.0))] = (
        0.0
    )
    row: Annotated[float, Parameter("additional time per wave for each query head of a block", "s", 5e-08)] = 0.0
    alone: Annotated[
        float, Parameter("latency in seconds of the kernel with one head per block; 0: the same", "s", 7e-06)
    ] = 0.0
    single: Annotated[
        float, Parameter("time per wave of the kernel with one head per block; 0: the same", "s", 1e-06)
    ] = 0.0
    resident: Annotated[
        float,
        Parameter(
            "fraction of L2 that keeps the tensors of a repeated attention; 0: all from DRAM",
            "",
            0.0,
            values=(0.0, 0.4, 0.65, 0.75, 0.9, 0.95, 1.0),
        ),
    ] = 0.0
    windowed: Annotated[
        float,
        Parameter(
            "each query head has its own block: 1 with a sliding window; 2 where a window hides keys; 0 in neither case",
            "",
            0.0,
            values=(0.0, 1.0, 2.0),
        ),
    ] = 0.0
    least: Annotated[
        float,
        Parameter(
            "smallest number of query heads per key-value head of the grouped kernel; fewer share one block of the other",
            "",
            2.0,
            values=(2.0, 4.0),
        ),
    ] = 2.0
    occupied: Annotated[
        float,
        Parameter(
            "1: the grouped kernel needs at least one part of 128 keys for every four SMs; 0: it always runs",
            "",
            0.0,
            values=(0.0, 1.0),
        ),
    ] = 0.0
    tile: Annotated[float, Parameter("keys that a block processes at a time", "", 64.0, values=(64.0, 128.0, 16.0))] = (
        64.0
    )
    whole: Annotated[
        float,
        Parameter(
            "1: the kernel with one head per block does not split the KV cache; 0: it does", "", 0.0, values=(0.0, 1.0)
        ),
    ] = 0.0
    transposes: Annotated[
        float,
        Parameter(
            "1: other kernels transpose queries and outputs for the grouped kernel; 0: it reads them as they are",
            "",
            0.0,
            values=(0.0, 1.0),
        ),
    ] = 0.0


class ExpertsTiming(NamedTuple):
    """Parameters of a fused MoE layer's experts (`timing/experts.py`)."""

    latency: Annotated[
        float, Parameter("time of the smallest fused MoE layer: launches, sorting and summing", "s", 3e-05)
    ]
    expert: Annotated[float, Parameter("time per expert that has at least one row", "s", 1e-07)]
    pipe: Annotated[float, Parameter("factor on the pipe's peak", "", 0.6, high=1.05)]
    l2: Annotated[float, Parameter("factor on the L2 ports' bandwidth for tile loads", "", 0.8)]
    dram: Annotated[float, Parameter("fraction of the DRAM bandwidth for the weights", "", 0.9, high=1.0)]
    rows: Annotated[
        float,
        Parameter("bandwidth of tokens and rows between the kernels, as a multiple of the DRAM bandwidth", "", 0.6),
    ]
    elsewhere: Annotated[
        float,
        Parameter(
            "token-expert pairs whose expert is on another GPU: 0 skipped; 1 moved; 2 moved and multiplied, for tokens that also have an expert on this GPU; 3 moved and multiplied, for all tokens",
            "",
            0.0,
            values=(0.0, 1.0, 2.0, 3.0),
        ),
    ]
    resident: Annotated[
        float,
        Parameter(
            "fraction of L2 that keeps the weights of a repeated layer; 0: all from DRAM",
            "",
            0.0,
            values=(0.0, 0.4, 0.65, 0.75, 0.9, 0.95, 1.0),
        ),
    ] = 0.0
    pair: Annotated[float, Parameter("time per token-expert pair that the GPU routes and sorts", "s", 1e-10)] = 0.0
    kept: Annotated[
        float,
        Parameter(
            "fraction of the rows between kernels that L2 keeps if they fit; 0: all go to DRAM",
            "",
            0.0,
            values=(0.0, 0.5, 0.75, 0.9),
        ),
    ] = 0.0
    default_tiles: Annotated[
        float, Parameter("1: Triton's default tiles; 0: the fastest tiles", "", 0.0, values=(0.0, 1.0))
    ] = 0.0
    large: Annotated[
        float,
        Parameter(
            "with 64 and more rows, fraction of `dram` that Triton's default tiles reach",
            "",
            1.0,
            values=(1.0, 0.75, 0.6),
        ),
    ] = 1.0
    fill: Annotated[
        float, Parameter("elements of K that take as long as the start and the end of a tile", "", 300.0)
    ] = 0.0
    routing: Annotated[
        float, Parameter("time that routing and sorting take longer for many pairs than for few", "s", 5e-06)
    ] = 0.0
    padded: Annotated[
        float,
        Parameter("rows and columns of the stored weights are multiples of this number", "", 1.0, values=(1.0, 128.0)),
    ] = 1.0


class CollectiveTiming(NamedTuple):
    """Parameters of a collective over links of one kind (`timing/collectives.py`)."""

    latency: Annotated[float, Parameter("time of the smallest collective", "s", 7e-06)]
    step: Annotated[float, Parameter("time per step around the ring", "s", 1e-06)]
    early: Annotated[
        float, Parameter("fraction of the link's bandwidth in one direction for short messages", "", 0.4, high=1.0)
    ]
    late: Annotated[float, Parameter("additional time before long messages reach their bandwidth", "s", 2.6e-05)]
    bandwidth: Annotated[
        float, Parameter("fraction of the link's bandwidth in one direction for long messages", "", 0.76, high=1.0)
    ]


class StreamTiming(NamedTuple):
    """Parameters of kernels that only move data: elementwise, norms, softmax (`timing/stream.py`)."""

    latency: Annotated[float, Parameter("time from launch to end of the smallest kernel", "s", 3e-06)]
    dram: Annotated[float, Parameter("fraction of the DRAM bandwidth", "", 0.8, high=1.0)]
    l2: Annotated[float, Parameter("factor on the L2 ports' bandwidth, where all data fits in L2", "", 0.2)]


class TiledTiming(NamedTuple):
    """Parameters of attention kernels whose tiles are fitted (`timing/tiled_attention.py`)."""

    latency: Annotated[float, Parameter("time from launch to end of the smallest kernel", "s", 9e-06)]
    pipe: Annotated[float, Parameter("factor on the pipe's peak", "", 0.7, high=1.05)]
    softmax: Annotated[float, Parameter("work of the softmax per score, in elements of a head", "", 20.0)]
    fill: Annotated[float, Parameter("overhead of a query tile, in keys", "", 60.0)]
    tail: Annotated[
        float,
        Parameter(
            "fraction of the longest tile's time during which not all SMs are busy at the end", "", 0.5, high=1.0
        ),
    ]
    dram: Annotated[float, Parameter("fraction of the DRAM bandwidth", "", 0.7, high=1.0)]
    l2: Annotated[float, Parameter("factor on the L2 ports' bandwidth, for data in L2", "", 0.3)]
    height: Annotated[float, Parameter("query rows of a tile", "", 128.0, values=(128.0, 64.0, 32.0, 16.0, 256.0))] = (
        128.0
    )
    absorbed: Annotated[
        float,
        Parameter(
            "latent attention: 1: the kernel runs on the latents, for all heads; 0: on keys and values of each head",
            "",
            0.0,
        ),
    ] = 0.0
    packed: Annotated[float, Parameter("1: a tile holds the queries of all heads; 0: of one head", "", 0.0)] = 0.0
    reread: Annotated[
        float,
        Parameter(
            "1: where keys and values do not fit in L2, tiles read them again from DRAM; 0: tiles share the reads",
            "",
            0.0,
            values=(0.0, 1.0),
        ),
    ] = 0.0
    host: Annotated[
        float, Parameter("least time of any call, launched from the host; 0: the latency covers it", "s", 2e-05)
    ] = 0.0


class LatentGenerationTiming(NamedTuple):
    """Parameters of latent attention in a decode, absorbed (`timing/latent_attention.py`)."""

    latency: Annotated[float, Parameter("time from launch to end of the smallest kernel", "s", 9e-06)]
    wave: Annotated[float, Parameter("time per wave of blocks", "s", 2e-06)]
    split: Annotated[
        float, Parameter("time to combine the parts of a split cache; with `adaptive`, per part", "s", 2e-06)
    ]
    pipe: Annotated[float, Parameter("factor on the pipe's peak", "", 0.6, high=1.05)]
    dram: Annotated[float, Parameter("fraction of the DRAM bandwidth", "", 0.8, high=1.0)]
    l2: Annotated[float, Parameter("factor on the L2 ports' bandwidth, for data in L2", "", 0.3)]
    height: Annotated[float, Parameter("query heads of a block", "", 64.0, values=(128.0, 64.0, 32.0, 16.0, 256.0))] = (
        64.0
    )
    splits: Annotated[
        float, Parameter("largest number of parts of a cache", "", 128.0, values=(128.0, 1.0, 4.0, 8.0, 16.0))
    ] = 128.0
    fixed: Annotated[
        float,
        Parameter(
            "number of parts of every cache; 0: the best number up to `splits`", "", 0.0, values=(0.0, 4.0, 8.0, 16.0)
        ),
    ] = 0.0
    casts: Annotated[
        float,
        Parameter(
            "1: another kernel first converts a narrower cache to the compute format; 0: blocks convert it",
            "",
            0.0,
            values=(0.0, 1.0),
        ),
    ] = 0.0
    reread: Annotated[
        float,
        Parameter(
            "1: further blocks of heads read the latents again, from DRAM where they do not fit in L2; 0: they share",
            "",
            0.0,
            values=(0.0, 1.0),
        ),
    ] = 0.0
    host: Annotated[
        float, Parameter("least time of any call, launched from the host; 0: the latency covers it", "s", 2e-05)
    ] = 0.0
    adaptive: Annotated[
        float,
        Parameter(
            "1: a cache has as many parts as fill the SMs (SGLang's Triton backend); 0: `fixed`, or the best number",
            "",
            0.0,
            values=(0.0, 1.0),
        ),
    ] = 0.0
    block: Annotated[
        float, Parameter("time of an SM per launched block, also without keys, with `adaptive`", "s", 3e-07)
    ] = 0.0
    column_blocks: Annotated[
        float, Parameter("blocks that share the output columns of the same heads", "", 1.0, values=(1.0, 2.0, 3.0, 4.0))
    ] = 1.0
    uncached: Annotated[
        float, Parameter("additional time per key from DRAM, as a fraction of the time per key from L2", "", 0.1)
    ] = 0.0
    cluster_heads: Annotated[
        float,
        Parameter(
            "query heads from which a cluster of SMs processes all heads of a sequence, in another kernel; 0: never",
            "",
            0.0,
            values=(0.0, 128.0),
        ),
    ] = 0.0
    cluster_latency: Annotated[float, Parameter("time from launch to end of the smallest such kernel", "s", 1e-05)] = (
        0.0
    )
    cluster_wave: Annotated[float, Parameter("time per wave of clusters", "s", 2e-06)] = 0.0
    cluster_pipe: Annotated[
        float,
        Parameter(
            "factor on the pipe's peak in this kernel; above 1 where it multiplies in a narrower format", "", 0.5
        ),
    ] = 1.0
    narrow_heads: Annotated[
        float,
        Parameter(
            "largest number of query heads for which a kernel with blocks of 16 heads always runs; more heads use it for short caches; 0: never",
            "",
            0.0,
            values=(0.0, 32.0),
        ),
    ] = 0.0
    narrow_wave: Annotated[float, Parameter("time per wave of blocks of this kernel", "s", 2e-06)] = 0.0


class BatchedTiming(NamedTuple):
    """Parameters of batched GEMMs with the weights of each head (`timing/batched_gemm.py`)."""

    latency: Annotated[float, Parameter("time from launch to end of the smallest batched GEMM", "s", 4e-06)]
    wave: Annotated[float, Parameter("time per wave of tiles", "s", 3e-07)]
    pipe: Annotated[float, Parameter("fraction of the pipe's peak", "", 0.7, high=1.05)]
    l2: Annotated[float, Parameter("factor on the L2 ports' bandwidth", "", 0.4)]
    dram: Annotated[float, Parameter("fraction of the DRAM bandwidth", "", 0.8, high=1.0)]
    quantize_row: Annotated[float, Parameter("time of an SM to quantize a row of A", "s", 1e-08)]


class FilterTiming(NamedTuple):
    """Parameters of a causal convolution over the tokens of a prefill (`timing/recurrent.py`)."""

    latency: Annotated[float, Parameter("time from launch to end of the smallest kernel", "s", 2e-06)]
    token: Annotated[float, Parameter("time per token of a block, one after another", "s", 2e-07)]
    block: Annotated[float, Parameter("time of an SM per block", "s", 2e-08)]
    dram: Annotated[float, Parameter("fraction of the DRAM bandwidth", "", 0.7, high=1.0)]
    l2: Annotated[float, Parameter("factor on the L2 ports' bandwidth, for data in L2", "", 0.2)]
    tiles: Annotated[
        float,
        Parameter(
            "1: a block filters 8 tokens of 256 channels; 0: all tokens of one channel of a sequence",
            "",
            1.0,
            values=(1.0, 0.0),
        ),
    ] = 1.0
    unaligned: Annotated[
        float, Parameter("slowdown of these blocks where 8 does not divide the tokens: 1 means twice", "", 0.3)
    ] = 0.0


class ChunkTiming(NamedTuple):
    """Parameters of the kernels of a delta rule in chunks (`timing/recurrent.py`)."""

    latency: Annotated[float, Parameter("time from the first launch to the end of the smallest call", "s", 2e-05)]
    token: Annotated[float, Parameter("additional time per token of the first chunk", "s", 1e-07)]
    chunk: Annotated[float, Parameter("time of an SM per chunk of a head, at any number of tokens", "s", 5e-06)]
    row: Annotated[float, Parameter("time of an SM per token of a head", "s", 1e-07)]
    start: Annotated[float, Parameter("time to start and end the loop over the chunks of a sequence", "s", 1e-06)]
    serial: Annotated[float, Parameter("time per chunk of a sequence, one after another", "s", 1.5e-06)]
    spill: Annotated[
        float, Parameter("bytes between DRAM and kernels per token and head, where they do not fit in L2", "", 4000.0)
    ]
    kept: Annotated[
        float, Parameter("bytes per token and head that have to fit in L2 so that none are spilled", "", 2000.0)
    ]


class RecurrenceTiming(NamedTuple):
    """Parameters of kernels that update a state by one token per sequence (`timing/recurrent.py`)."""

    latency: Annotated[float, Parameter("time from launch to end of the smallest kernel", "s", 2e-06)]
    block: Annotated[float, Parameter("time of an SM per head, or per 256 channels, of a sequence", "s", 2e-08)]
    dram: Annotated[float, Parameter("fraction of the DRAM bandwidth", "", 0.8, high=1.0)]
    l2: Annotated[float, Parameter("factor on the L2 ports' bandwidth, for data in L2", "", 0.3)]


class Fit(NamedTuple):
    """The data of a fit, and its error on rows that the fit did not use.

    `rows` counts the rows available to the fit, which uses at most 1500 of them, evenly spaced. `low` and `high` are
    the 10th and 90th percentiles of measured / expected: the interval that contains 80 % of the measurements.
    """

    rows: int
    held_out: int
    error: float  # mean absolute percentage error on the held-out rows, as a fraction
    low: float
    high: float
    source: str
    date: str

    def wider(self, power: float) -> "Fit":
        """The fit with both ends of its interval raised to `power`.

        An end moves at most to a factor of MAX_SUBSTITUTE_FACTOR.
        """
        low = max(self.low**power, min(self.low, 1 / MAX_SUBSTITUTE_FACTOR))
        return self._replace(low=low, high=min(self.high**power, max(self.high, MAX_SUBSTITUTE_FACTOR)))

    def with_spread(self, spread: float) -> "Fit":
        """The fit with the interval of its own and an independent error: squares of logarithms add.

        80 % of the logarithms of the other error are within `spread`. An end on the other side of 1, such as a `low`
        above 1, is a bias and not an error: it moves by `spread`.
        """
        low, high = (log(max(end, 1e-9)) for end in (self.low, self.high))  # a file may state 0, which has no logarithm
        below, above = max(-low, 0.0), max(high, 0.0)
        low -= hypot(below, spread) - below
        high += hypot(above, spread) - above
        return self._replace(low=exp(low), high=exp(high))


Timing = TypeVar("Timing", bound=NamedTuple)


class Fitted(NamedTuple, Generic[Timing]):
    """A set of parameters with the evidence of its fit."""

    timing: Timing
    fit: Fit


Sets = Mapping[str, Mapping[str, Fitted[Timing]]]
"""Implementation -> format key -> set. The first of each is the default.

A format key is compute format / stored format, such as `fp16/int4`; attention adds the head size: `fp16/fp8/128`.
"""


NOTHING: Mapping[str, Any] = MappingProxyType({})


class Calibration(NamedTuple):
    """The parameter sets of a device. `device` is the measured device: itself, or the one that its file names."""

    device: str
    transferred: Mapping[str, Sequence[str]] = NOTHING  # another device -> kinds of sets taken from it
    gemm: Sets[GemmTiming] = NOTHING
    context: Sets[ContextTiming] = NOTHING
    generation: Sets[GenerationTiming] = NOTHING
    experts: Sets[ExpertsTiming] = NOTHING
    collectives: Sets[CollectiveTiming] = NOTHING
    stream: Sets[StreamTiming] = NOTHING
    encoder: Sets[TiledTiming] = NOTHING
    latent_context: Sets[TiledTiming] = NOTHING
    latent_generation: Sets[LatentGenerationTiming] = NOTHING
    latent_products: Sets[BatchedTiming] = NOTHING
    filter: Sets[FilterTiming] = NOTHING
    filter_update: Sets[RecurrenceTiming] = NOTHING
    chunks: Sets[ChunkTiming] = NOTHING
    recurrence: Sets[RecurrenceTiming] = NOTHING

    def sets(self) -> Iterator[tuple[str, str, str, Fitted[Any]]]:
        """Kind, kernel, formats and parameters of each set, without the kinds that are taken from another device."""
        transferred = {kind for kinds in self.transferred.values() for kind in kinds}
        for kind in self._fields[2:]:  # without device and transferred
            for kernel, by_key in getattr(self, kind).items() if kind not in transferred else ():
                for key, fitted in by_key.items():
                    yield kind, kernel, key, fitted

    def fitted_on(self, kind: str) -> str:
        """The device whose file has the sets of a kind."""
        others = (device for device, kinds in self.transferred.items() if kind in kinds)
        return next(others, self.device)
