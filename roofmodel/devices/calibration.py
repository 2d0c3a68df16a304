"""What was fitted to measurements on a device: the few physical parameters of the timing model.

They stand in the device's file under `calibration`, with what they were fitted on and how far off they were on rows
that the fit did not see. Parameters without a unit are relative to the datasheet's ceilings in the same file, so that
they carry over to a device of the same design; times are in seconds. What comes from L2 is relative to the
multiprocessors' ports to it, 64 bytes a clock each, since L2's own bandwidth is not published. The formulas that use
them are in `roofmodel/prediction`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, TypeVar

MAX_TRANSFER_ERROR = 1 / 3  # mean error above which a set never replaces a missing one
MAX_TRANSFER_FACTOR = 3.0  # widest interval, as a factor, that widening may give a set


class GemmTiming(NamedTuple):
    """Of a matrix product in tiles; see `prediction/gemm.py`."""

    latency: float  # seconds from launch to end that no size escapes
    fill: float  # seconds to fill the pipeline of loads of a tile; less where there is little to sum over
    step: float  # seconds per element of K that a tile takes at least, however small it is
    split: float  # seconds to join the parts of a product whose K was split
    pipe: float  # of the pipe's peak, in short products
    sustained: float  # what long products lose to that, by clock and contention: 0.2 is a fifth more time
    l2: float  # of the ports, at which tiles are loaded; more than 1 where blocks share what they load
    store: float  # of its port, at which a multiprocessor stores its tile
    dram: float  # of the DRAM bandwidth, in long streams
    ramp: float  # seconds that a long stream loses until it runs at that
    row: float = 0.0  # seconds in which a multiprocessor quantises a row of A; 0 where that is no matter of rows
    spill: float = 0.0  # what quantising loses where L2 does not hold A: 1 is twice the time
    tall: float = 0.0  # rows that a tile has at least, in products that are as tall; 0 where any will do
    host: float = 0.0  # seconds that no product is quicker than, whatever its size; 0 where latency says it all
    parts: float = 32.0  # that K is split into at most
    convert: float = 0.0  # seconds per element of K in which narrower weights are brought to the product's format
    few: float = 0.0  # rows that a kernel of dot products takes at most; 0 where a library has none
    column: float = 0.0  # seconds that such a kernel takes for each of a multiprocessor's columns at least
    dot: float = 0.0  # seconds per element of K that it takes at least
    part: float = 0.0  # seconds more for each part that K was split into
    late: float = 0.0  # seconds more for more than 16 rows where there is little to multiply


class ContextTiming(NamedTuple):
    """Of attention of many queries, fused; see `prediction/attention.py`."""

    latency: float  # seconds
    pipe: float  # of the pipe's peak
    softmax: float  # work of a score beside its products, in elements of a head
    fill: float  # keys that a tile of queries costs beyond those that it sees
    tail: float  # of the longest tile's time, by which the last one ends late
    dram: float  # of the DRAM bandwidth
    packed: float  # 1 where a tile holds the queries of all heads that share a key-value head, 0 where of one head


class GenerationTiming(NamedTuple):
    """Of attention of one query a sequence over a cache; see `prediction/attention.py`."""

    latency: float  # seconds
    wave: float  # seconds for each whole wave of blocks
    split: float  # seconds to join the parts of a cache that was split
    stream: float  # of its multiprocessor's port, at which one block reads
    dram: float  # of the DRAM bandwidth
    # query heads of a key-value head that a block holds; 0 where any number. Where there are more, or one alone,
    # another kernel gives each head a block of its own
    group: float
    queue: float = 0.0  # 1 where a multiprocessor takes one block at a time, 0 where it has several
    row: float = 0.0  # seconds that each query head of a block adds to its wave
    alone: float = 0.0  # the latency, in seconds, of the kernel of one head a block; 0 where it is the other's
    single: float = 0.0  # seconds for each whole wave of its blocks; 0 where they are the other's


class ExpertsTiming(NamedTuple):
    """Of a mixture's experts; see `prediction/experts.py`."""

    latency: float  # seconds of a fused mixture that no size escapes: sorting and summing, and several kernels' starts
    expert: float  # seconds for each expert that has a row
    pipe: float  # of the pipe's peak
    l2: float  # of the ports, at which tiles are loaded
    dram: float  # of the DRAM bandwidth, for the weights
    rows: float  # bandwidth at which tokens and their rows move between the kernels, in DRAM bandwidths
    # what becomes of pairs whose expert is on another GPU: 0 skipped, 1 moved, 2 moved and multiplied, those of the
    # tokens that have an expert here
    elsewhere: float


class CollectiveTiming(NamedTuple):
    """Of an exchange between GPUs over links of one kind; see `prediction/collectives.py`."""

    latency: float  # seconds
    step: float  # seconds for each step around the ring
    early: float  # of the link's bandwidth in one direction, where messages are short
    late: float  # seconds more until long messages run at theirs
    bandwidth: float  # of the link's in one direction, where messages are long


class StreamTiming(NamedTuple):
    """Of everything that only moves data: elementwise, norms, softmax; see `prediction/stream.py`."""

    latency: float  # seconds
    dram: float  # of the DRAM bandwidth
    l2: float  # of the ports, where all of the data fits L2


class Fit(NamedTuple):
    """What a set was fitted on, and how far off it was on rows that the fit did not see.

    `rows` are those that a fit may see, of which it takes 3000 at most, evenly. `low` and `high` are the 10th and 90th
    percentile of measured / expected: the interval that holds 80 % of them.
    """

    rows: int
    held_out: int
    error: float  # mean absolute percentage error of the rows held out, as a fraction
    low: float
    high: float
    source: str
    date: str

    def wider(self, power: float) -> Fit:
        """The fit with its interval widened: both ends to a power, at most MAX_TRANSFER_FACTOR from 1."""
        low = max(self.low**power, min(self.low, 1 / MAX_TRANSFER_FACTOR))
        return self._replace(low=low, high=min(self.high**power, max(self.high, MAX_TRANSFER_FACTOR)))


Timing = TypeVar("Timing", bound=NamedTuple)


class Fitted(NamedTuple, Generic[Timing]):
    """A set of parameters and its evidence."""

    timing: Timing
    fit: Fit


Sets = Mapping[str, Mapping[str, Fitted[Timing]]]
"""Implementation -> formats, such as `fp16/int4` -> the set. The first of each is the default.

Attention is compiled for a size of heads, which follows the formats of products and of keys and values: `fp16/fp8/128`.
"""


@dataclass(frozen=True)
class Calibration:
    """A device's sets. `device` is what they were fitted on: it, or another one that its file names."""

    device: str
    borrowed: Mapping[str, Sequence[str]] = field(default_factory=dict)  # another device -> the kinds that are its own
    gemm: Sets[GemmTiming] = field(default_factory=dict)
    context: Sets[ContextTiming] = field(default_factory=dict)
    generation: Sets[GenerationTiming] = field(default_factory=dict)
    experts: Sets[ExpertsTiming] = field(default_factory=dict)
    collectives: Sets[CollectiveTiming] = field(default_factory=dict)
    stream: Sets[StreamTiming] = field(default_factory=dict)
