"""Calibration of a device: fitted parameters of the timing formulas, with the data and the residuals of each fit.

The device's file has them under `calibration`. Parameters without a unit are fractions of the datasheet's ceilings
in the same file, so that they carry over to a device of the same design; times are in seconds. L2 bandwidths are
fractions of the ports between L2 and the SMs, 64 bytes per clock and SM, because vendors do not publish L2's own
bandwidth. The formulas are in `roofmodel/timing`; `roof explain` prints the meaning of each parameter.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from math import exp, hypot, inf, log
from types import MappingProxyType
from typing import Annotated, Any, Generic, NamedTuple, TypeVar

MAX_TRANSFER_ERROR = 1 / 3  # a set with a larger mean error replaces a missing set only where there is no other
MAX_SUBSTITUTE_FACTOR = 3.0  # how far `Fit.wider` moves the ends of an interval, as a factor


class Parameter(NamedTuple):
    """A parameter of a kernel model, declared once: `name: Annotated[float, Parameter(...)]`.

    A fit starts at `start` and stays between `low` and `high`; without them within a factor of 100 of the start. It
    tries each of `values`, where a parameter has one of a few physical values, such as the rows of a tile. A parameter
    on which no measurement of a set depends keeps its start. A file may leave out an `optional` one, which then has its
    start.
    """

    meaning: str
    unit: str  # "s" for a time, which has a unit in files; "" for a fraction of a ceiling; else such as "rows"
    start: float
    low: float = 0.0
    high: float = inf
    values: tuple[float, ...] = ()
    optional: bool = False

    @property
    def limits(self) -> tuple[float, float]:
        """The limits of a fit."""
        return max(self.low, self.start / 100), min(self.high, self.start * 100)


def parameters(timing: type[Any]) -> Mapping[str, Parameter]:
    """The parameters of a kernel model, by name."""
    return {name: hint.__metadata__[0] for name, hint in timing.__annotations__.items()}


def is_seconds(parameter: Parameter) -> bool:
    """Whether a parameter is a time, which has a unit in files."""
    return parameter.unit.startswith("s")


HEAD_SIZES = (64, 72, 80, 128, 192, 256, 512)
"""The head sizes of a parameter by head size: libraries compile a kernel with tiles of its own for each of them. A file
states it as one mapping, such as `pipe: {64: 0.5, 512: 0.7}`; a kernel model has the fields `pipe_64` to `pipe_512`.
Heads of another size have the kernel of the next larger one, and larger heads that of the largest."""


def stated_parameters(timing: type[Any]) -> Mapping[str, Sequence[str]]:
    """The parameters of a kernel model, as files state them, with their fields: one, or one for each of HEAD_SIZES."""
    fields_by_name: dict[str, list[str]] = {}
    for field in timing._fields:
        name, _, size = field.rpartition("_")
        fields_by_name.setdefault(name if size.isdigit() else field, []).append(field)
    return fields_by_name


def for_all_head_sizes(by_size: Mapping[int, float]) -> list[float]:
    """The values for HEAD_SIZES from those of some sizes: that of the next larger one, or of the largest."""
    return [by_size[min((each for each in by_size if each >= size), default=max(by_size))] for size in HEAD_SIZES]


class GemmTiming(NamedTuple):
    """Parameters of a GEMM in tiles (`timing/gemm.py`)."""

    latency: Annotated[float, Parameter("time from launch to end of the smallest GEMM", "s", 2.5e-6)]
    split: Annotated[
        float,
        Parameter("time to add the partial sums of split K; long where a library does not split K", "s", 2.5e-6),
    ]
    pipe: Annotated[float, Parameter("factor on the pipe's peak", "", 0.85, high=1.05)]
    step: Annotated[float, Parameter("least time per element of K and tile, for tiles of any size", "s", 2e-9)]
    store: Annotated[float, Parameter("fraction of the L2 port's bandwidth when an SM stores its tile", "", 0.3)]
    l2: Annotated[
        float, Parameter("factor on the L2 ports' bandwidth for loads; above 1 where thread blocks share them", "", 0.6)
    ]
    dram: Annotated[float, Parameter("fraction of the DRAM bandwidth", "", 0.85, high=1.0)]
    resident: Annotated[float, Parameter("fraction of L2 that keeps operands from launch to launch", "", 0.2, high=1.0)]
    quantize_row: Annotated[float, Parameter("time of an SM to quantize a row of A", "s", 2e-7)]


_PIPE = Parameter("factor on the pipe's peak, by head size", "", 0.7, high=1.05)
_FILL = Parameter("time to start and end a tile, by head size", "s", 2e-06)
_WAVE = Parameter("time per wave of thread blocks, by head size", "s", 2e-06, low=2e-07)


class PrefillTiming(NamedTuple):
    """Parameters of fused attention with many queries per sequence (`timing/attention.py`)."""

    latency: Annotated[float, Parameter("time from launch to end of the smallest kernel", "s", 9e-06)]
    pipe_64: Annotated[float, _PIPE]
    pipe_72: Annotated[float, _PIPE]
    pipe_80: Annotated[float, _PIPE]
    pipe_128: Annotated[float, _PIPE]
    pipe_192: Annotated[float, _PIPE]
    pipe_256: Annotated[float, _PIPE]
    pipe_512: Annotated[float, _PIPE]
    fill_64: Annotated[float, _FILL]
    fill_72: Annotated[float, _FILL]
    fill_80: Annotated[float, _FILL]
    fill_128: Annotated[float, _FILL]
    fill_192: Annotated[float, _FILL]
    fill_256: Annotated[float, _FILL]
    fill_512: Annotated[float, _FILL]
    rows: Annotated[float, Parameter("query rows of a tile", "rows", 128.0, values=(128.0, 64.0, 256.0))]
    heads: Annotated[
        float,
        Parameter("most query heads of a key-value head that share a tile", "heads", 1.0, values=(1.0, 128.0)),
    ]
    outside: Annotated[
        float,
        Parameter("share of the keys before a sliding window that tiles process and mask", "", 0.3, high=1.0),
    ]
    append: Annotated[
        float,
        Parameter(
            "bytes that other kernels move first, to append the new keys and values to the KV cache, as a multiple of "
            "these",
            "",
            1.0,
        ),
    ]
    dram: Annotated[float, Parameter("fraction of the DRAM bandwidth", "", 0.6, high=1.0)]
    l2: Annotated[float, Parameter("factor on the L2 ports' bandwidth, for data in L2", "", 0.15)]
    overlap: Annotated[
        float,
        Parameter("share of the shorter one of tiles and stream that overlaps with the longer one", "", 0.5, high=1.0),
    ]


class DecodeTiming(NamedTuple):
    """Parameters of fused attention with one or a few queries per sequence (`timing/attention.py`)."""

    latency: Annotated[float, Parameter("time from launch to end of the smallest kernel", "s", 8e-06)]
    wave_64: Annotated[float, _WAVE]
    wave_72: Annotated[float, _WAVE]
    wave_80: Annotated[float, _WAVE]
    wave_128: Annotated[float, _WAVE]
    wave_192: Annotated[float, _WAVE]
    wave_256: Annotated[float, _WAVE]
    wave_512: Annotated[float, _WAVE]
    single: Annotated[
        float,
        Parameter(
            "factor on `wave` for blocks with one query head, for which some libraries have a kernel", "", 1.0, 0.2, 3.0
        ),
    ]
    pipe: Annotated[
        float,
        Parameter("factor on the pipe's peak; above 1 where it multiplies in a narrower format", "", 0.8, high=8.0),
    ]
    rows: Annotated[
        float, Parameter("query rows that a block multiplies at once", "rows", 64.0, values=(64.0, 16.0, 128.0))
    ]
    heads: Annotated[
        float,
        Parameter("most query heads of a key-value head that share a block", "heads", 128.0, values=(128.0, 32.0)),
    ]
    window_heads: Annotated[
        float,
        Parameter(
            "most query heads of a key-value head that share a block, with a sliding window",
            "heads",
            128.0,
            values=(128.0, 1.0),
        ),
    ]
    combine: Annotated[
        float,
        Parameter("time to combine the parts of a split KV cache; long where a library does not split it", "s", 3e-06),
    ]
    dram: Annotated[float, Parameter("fraction of the DRAM bandwidth", "", 0.8, high=1.0)]
    l2: Annotated[float, Parameter("factor on the L2 ports' bandwidth, for data in L2", "", 0.2)]
    fewest_heads: Annotated[
        float,
        Parameter(
            "fewest query heads of a key-value head that share a block", "heads", 1.0, values=(1.0,), optional=True
        ),
    ] = 1.0


class ExpertsTiming(NamedTuple):
    """Parameters of a fused MoE layer's experts (`timing/experts.py`)."""

    latency: Annotated[
        float, Parameter("time of the smallest fused MoE layer: launches, routing, activation and sum", "s", 3e-05)
    ]
    routing: Annotated[
        float,
        Parameter("additional time to sort the tokens by expert, if there are more tokens than experts", "s", 5e-06),
    ]
    expert: Annotated[float, Parameter("time per expert that has at least one row", "s", 1e-07)]
    pipe: Annotated[float, Parameter("factor on the pipe's peak", "", 0.6, high=1.05)]
    l2: Annotated[float, Parameter("factor on the L2 ports' bandwidth for tile loads", "", 0.8)]
    dram: Annotated[float, Parameter("fraction of the DRAM bandwidth for the weights", "", 0.9, high=1.0)]
    rows: Annotated[
        float,
        Parameter("bandwidth of tokens and rows between the kernels, as a multiple of the DRAM bandwidth", "", 0.6),
    ]
    fill: Annotated[
        float,
        Parameter("start and end of a tile, as the number of steps along K that take as long", "elements of K", 300.0),
    ]
    tile_rows: Annotated[
        float,
        Parameter("least height of a tile, if there are more tokens than experts", "rows", 16.0, values=(16.0, 64.0)),
    ]


class CollectiveTiming(NamedTuple):
    """Parameters of a collective over links of one kind (`timing/collectives.py`)."""

    latency: Annotated[float, Parameter("time of the smallest collective, without its steps", "s", 7e-06)]
    hop: Annotated[float, Parameter("latency of a step of the ring or tree", "s", 1e-06)]
    low_latency_bandwidth: Annotated[
        float, Parameter("fraction of the link's bandwidth that the low-latency protocol reaches", "", 0.4, high=1.0)
    ]
    startup: Annotated[float, Parameter("time until the high-bandwidth protocol sends at full rate", "s", 2.6e-05)]
    bandwidth: Annotated[
        float,
        Parameter("fraction of the link's bandwidth that the high-bandwidth protocol reaches", "", 0.76, high=1.0),
    ]


class ElementwiseTiming(NamedTuple):
    """Parameters of kernels that only move data: elementwise, norms, softmax (`timing/formula.py`)."""

    latency: Annotated[float, Parameter("time from launch to end of the smallest kernel", "s", 3e-06)]
    dram: Annotated[float, Parameter("fraction of the DRAM bandwidth", "", 0.8, high=1.0)]
    l2: Annotated[float, Parameter("factor on the L2 ports' bandwidth, where all data fits in L2", "", 0.2)]


class BatchedTiming(NamedTuple):
    """Parameters of batched GEMMs with the weights of each head (`timing/batched_gemm.py`)."""

    latency: Annotated[float, Parameter("time from launch to end of the smallest batched GEMM", "s", 4e-06)]
    wave: Annotated[float, Parameter("time per wave of tiles", "s", 3e-07)]
    pipe: Annotated[float, Parameter("factor on the pipe's peak", "", 0.7, high=1.05)]
    l2: Annotated[float, Parameter("factor on the L2 ports' bandwidth", "", 0.4)]
    dram: Annotated[float, Parameter("fraction of the DRAM bandwidth", "", 0.8, high=1.0)]
    quantize_row: Annotated[float, Parameter("time of an SM to quantize a row of A", "s", 1e-08)]


class CausalConvolutionTiming(NamedTuple):
    """Parameters of a causal convolution over the tokens of a prefill (`timing/recurrent.py`)."""

    latency: Annotated[float, Parameter("time from launch to end of the smallest kernel", "s", 2e-06)]
    token: Annotated[float, Parameter("time per token of a thread block, one after another", "s", 2e-08)]
    block: Annotated[float, Parameter("time of an SM per thread block", "s", 2e-08)]
    dram: Annotated[float, Parameter("fraction of the DRAM bandwidth", "", 0.7, high=1.0)]
    l2: Annotated[float, Parameter("factor on the L2 ports' bandwidth, for data in L2", "", 0.2)]
    block_tokens: Annotated[float, Parameter("tokens of a thread block", "tokens", 8.0, values=(8.0, 1024.0))]


class DeltaRuleTiming(NamedTuple):
    """Parameters of the kernels of a delta rule over the tokens of a prefill (`timing/recurrent.py`)."""

    latency: Annotated[float, Parameter("time from the first launch to the end of the smallest call", "s", 2e-05)]
    token: Annotated[float, Parameter("additional time per token of the first chunk", "s", 1e-07)]
    chunk: Annotated[float, Parameter("time of an SM per chunk of a head, at any number of tokens", "s", 5e-06)]
    row: Annotated[float, Parameter("time of an SM per token of a head", "s", 1e-07)]
    start: Annotated[float, Parameter("time to start and end the loop over the chunks of a sequence", "s", 1e-06)]
    serial: Annotated[float, Parameter("time per chunk of a sequence, one after another", "s", 1.5e-06)]
    intermediate: Annotated[
        float, Parameter("bytes that kernels write and read again per token and head, without L2", "B/token", 4000.0)
    ]
    live: Annotated[
        float,
        Parameter("bytes per token and head that have to fit in L2 so that it holds all of these", "B/token", 1500.0),
    ]


class StateUpdateTiming(NamedTuple):
    """Parameters of kernels that update a state by one token per sequence (`timing/recurrent.py`)."""

    latency: Annotated[float, Parameter("time from launch to end of the smallest kernel", "s", 2e-06)]
    block: Annotated[float, Parameter("time of an SM per head, or per 256 channels, of a sequence", "s", 2e-08)]
    dram: Annotated[float, Parameter("fraction of the DRAM bandwidth", "", 0.8, high=1.0)]
    l2: Annotated[float, Parameter("factor on the L2 ports' bandwidth, for data in L2", "", 0.3)]


class IndexTiming(NamedTuple):
    """Parameters of the scores of an indexer (`timing/sparse.py`)."""

    latency: Annotated[float, Parameter("time from launch to end of the smallest kernel", "s", 3.5e-06)]
    pipe: Annotated[float, Parameter("factor on the pipe's peak", "", 0.45, high=1.05)]
    fill: Annotated[float, Parameter("time to start and end a tile", "s", 1e-06)]
    dram: Annotated[float, Parameter("fraction of the DRAM bandwidth", "", 0.7, high=1.0)]
    shares: Annotated[float, Parameter("1: the SMs share the keys of a tile", "", 1.0, values=(1.0, 0.0))]


class ChoiceTiming(NamedTuple):
    """Parameters of the choice of the highest scores (`timing/sparse.py`)."""

    latency: Annotated[float, Parameter("time from launch to end of the smallest kernel", "s", 3e-06)]
    row: Annotated[float, Parameter("time of an SM per query", "s", 2e-06)]
    key: Annotated[float, Parameter("time of an SM per candidate", "s", 2e-10)]
    dram: Annotated[
        float, Parameter("fraction of the DRAM bandwidth, for scores that are read once", "", 0.5, high=1.0)
    ]


class SparseTiming(NamedTuple):
    """Parameters of attention to chosen keys (`timing/sparse.py`)."""

    latency: Annotated[float, Parameter("time from launch to end of the smallest kernel", "s", 6e-06, 1e-06, 3e-05)]
    fill: Annotated[float, Parameter("time to start and end a block", "s", 2e-06, high=2e-05)]
    pipe: Annotated[float, Parameter("factor on the pipe's peak in 16 bits", "", 0.5, high=1.3)]
    padded: Annotated[
        float,
        Parameter(
            "1: blocks process as many keys as a query keeps at most, also if it has fewer", "", 1.0, values=(1.0, 0.0)
        ),
    ]
    shares: Annotated[
        float, Parameter("1: where SMs are idle, blocks share the keys of a query", "", 0.0, values=(0.0, 1.0))
    ]
    rows: Annotated[float, Parameter("query heads of a block", "heads", 64.0, values=(64.0, 16.0, 128.0))]
    l2: Annotated[float, Parameter("factor on the L2 ports' bandwidth for the gathered keys", "", 0.5)]
    combine: Annotated[float, Parameter("time to combine the parts of a query's keys", "s", 3e-06)]
    dram: Annotated[float, Parameter("fraction of the DRAM bandwidth", "", 0.7, high=1.0)]


class Fit(NamedTuple):
    """The data of a fit, and its error on models that the fit did not use.

    `rows` counts the rows available to the fit, which uses at most 1500 of them, evenly spaced. `held_out` counts the
    rows that were predicted with parameters from other models: each third of the models with a fit to the other two.
    `low` and `high` are the 10th and 90th percentiles of their measured / expected: the interval that contains 80 % of
    the measurements. Where no row was held out or none was fitted (0), `source` states what error and interval are.
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

A format key is compute format / stored format, such as `fp16/int4`. In attention, the KV cache has the stored format.
"""


NOTHING: Mapping[str, Any] = MappingProxyType({})


class Calibration(NamedTuple):
    """The parameter sets of a device. `device` is the measured device: itself, or the one that its file names."""

    device: str
    transferred: Mapping[str, Sequence[str]] = NOTHING  # another device -> kinds of sets taken from it
    gemm: Sets[GemmTiming] = NOTHING
    prefill_attention: Sets[PrefillTiming] = NOTHING
    decode_attention: Sets[DecodeTiming] = NOTHING
    experts: Sets[ExpertsTiming] = NOTHING
    collectives: Sets[CollectiveTiming] = NOTHING
    elementwise: Sets[ElementwiseTiming] = NOTHING
    encoder_attention: Sets[PrefillTiming] = NOTHING
    latent_prefill: Sets[PrefillTiming] = NOTHING
    latent_decode: Sets[DecodeTiming] = NOTHING
    latent_products: Sets[BatchedTiming] = NOTHING
    causal_convolution: Sets[CausalConvolutionTiming] = NOTHING
    causal_convolution_update: Sets[StateUpdateTiming] = NOTHING
    delta_rule_prefill: Sets[DeltaRuleTiming] = NOTHING
    delta_rule_decode: Sets[StateUpdateTiming] = NOTHING
    kda_prefill: Sets[DeltaRuleTiming] = NOTHING
    kda_decode: Sets[StateUpdateTiming] = NOTHING
    kda_convolution_update: Sets[StateUpdateTiming] = NOTHING
    index_prefill: Sets[IndexTiming] = NOTHING
    index_decode: Sets[IndexTiming] = NOTHING
    index_choose: Sets[ChoiceTiming] = NOTHING
    sparse_prefill: Sets[SparseTiming] = NOTHING
    sparse_decode: Sets[SparseTiming] = NOTHING
    compressed_prefill: Sets[SparseTiming] = NOTHING
    compressed_decode: Sets[SparseTiming] = NOTHING
    block_prefill: Sets[SparseTiming] = NOTHING
    block_decode: Sets[SparseTiming] = NOTHING
    streams_collapse: Sets[ElementwiseTiming] = NOTHING
    streams_expand: Sets[ElementwiseTiming] = NOTHING

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


TIMINGS: dict[str, Any] = {
    "gemm": GemmTiming,
    "prefill_attention": PrefillTiming,
    "decode_attention": DecodeTiming,
    "experts": ExpertsTiming,
    "collectives": CollectiveTiming,
    "elementwise": ElementwiseTiming,
    "encoder_attention": PrefillTiming,
    "latent_prefill": PrefillTiming,
    "latent_decode": DecodeTiming,
    "latent_products": BatchedTiming,
    "causal_convolution": CausalConvolutionTiming,
    "causal_convolution_update": StateUpdateTiming,
    "delta_rule_prefill": DeltaRuleTiming,
    "delta_rule_decode": StateUpdateTiming,
    "kda_prefill": DeltaRuleTiming,
    "kda_decode": StateUpdateTiming,
    "kda_convolution_update": StateUpdateTiming,
    "index_prefill": IndexTiming,
    "index_decode": IndexTiming,
    "index_choose": ChoiceTiming,
    **{
        f"{keys}_{phase}": SparseTiming for keys in ("sparse", "compressed", "block") for phase in ("prefill", "decode")
    },
    "streams_collapse": ElementwiseTiming,
    "streams_expand": ElementwiseTiming,
}
"""The kernel model of each kind of parameter sets."""
SHARED = ("source", "date")
"""What the fits of a kind state together."""


class DeferredSets(Mapping[str, Mapping[str, Fitted[Any]]]):
    """The sets of a kind that a file takes from another device; they are read when they are first used.

    Few models use these kinds, and reading another file takes 10 ms. `read` also returns the differences
    that widened their intervals. Where two devices take a kind from each other, because neither has it, there are no
    sets.
    """

    def __init__(self, read: Callable[[], tuple[Sets[Any], frozenset[str]]]) -> None:
        self._read = read

    @cached_property
    def _sets_and_differences(self) -> tuple[Sets[Any], frozenset[str]]:
        read, self._read = self._read, lambda: (NOTHING, frozenset())  # of a device that takes the kind from this one
        try:
            return read()
        finally:
            self._read = read

    @property
    def _sets(self) -> Sets[Any]:
        return self._sets_and_differences[0]

    @property
    def differences(self) -> frozenset[str]:
        """The differences from the measured device that widened their intervals: keys of `transfer.SPREADS`."""
        return self._sets_and_differences[1]

    def __getitem__(self, implementation: str) -> Mapping[str, Fitted[Any]]:
        return self._sets[implementation]

    def __iter__(self) -> Iterator[str]:
        return iter(self._sets)

    def __len__(self) -> int:
        return len(self._sets)

    def __bool__(self) -> bool:
        return True  # without reading the other file

    def __reduce__(self) -> tuple[type, tuple[dict[str, Any]]]:
        return dict, (dict(self._sets),)  # `_read` cannot be pickled


def sets_of_kind(find: Callable[[], Calibration], kind: str) -> tuple[Sets[Any], frozenset[str]]:
    """The sets of a kind, and the differences that widened their intervals."""
    sets: Sets[Any] = getattr(find(), kind)
    return sets, differences_of(sets)


def differences_of(sets: Sets[Any]) -> frozenset[str]:
    """The differences from the measured device that widened the intervals of these sets; none of its own sets."""
    return sets.differences if isinstance(sets, DeferredSets) else frozenset()
