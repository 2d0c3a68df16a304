"""Expected time of a collective: all-reduce, all-gather, reduce-scatter, all-to-all, send and receive.

Also times of data-parallel training: exchange of gradients during the backward pass, contention, the slowest replica.
PyTorch's DistributedDataParallel copies gradients into buckets and starts the all-reduce of a bucket when all of its
gradients are known (Li et al., PyTorch Distributed, arXiv 2006.15704, section 3.2). Gradients become known at a
constant rate during the backward pass, so the exchange that cannot be hidden is that of the last bucket, or what is
left when the links are slower than the backward pass.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

from roofmodel.devices.calibration import CollectiveTiming
from roofmodel.numbers.algebra import Number, Seconds, doublings, either, largest, maximum, minimum
from roofmodel.timing.formula import FormulaDescription

DESCRIPTION = FormulaDescription(
    name="collectives",
    title="collectives",
    summary="Time of a collective: a latency, one per step, and the bytes that pass each GPU's link.",
    equation="latency + steps × hop + min(low_latency, high_bandwidth)",
    terms=(
        (
            "steps",
            "within a node: n - 1 around a ring of n GPUs, twice as many for an all-reduce, 1 for an all-to-all; "
            "between nodes: up and down a tree, so the number grows with log2(nodes)",
        ),
        (
            "low_latency",
            "bytes / (link × low_latency_bandwidth): NCCL's LL and LL128 protocols, or reads from the other GPU",
        ),
        ("high_bandwidth", "startup + bytes / (link × bandwidth): NCCL's Simple protocol, or two-shot kernels"),
    ),
    notes=(
        "Bytes are those that pass one GPU's link in each direction, as nccl-tests counts them for its bus bandwidth.",
        "The low-latency protocol sends flags with the data, which wastes bandwidth. The other one starts later: "
        "messages of startup × link × bandwidth bytes reach half of its bandwidth.",
        "Two bridged pairs of GPUs that communicate over PCIe use a tree for an all-reduce from 64 MiB: 2/3 of a "
        "ring's bytes pass the PCIe link (NCCL, src/graph/tuning.cc).",
    ),
    source="nccl-tests, PERFORMANCE.md (bus bandwidth). Parameters: CollectiveTiming, fitted by `roof calibrate`.",
)


class CollectiveWork(NamedTuple):
    """The size of a collective."""

    gpus: Annotated[Number, "GPUs that take part"]
    rounds: Annotated[int, "rounds of the ring: 2 for an all-reduce; 0 for an all-to-all, which has one step"]
    bytes: Annotated[Number, "bytes that pass one GPU's link in each direction", "B"]
    nodes: Annotated[Number, "nodes of these GPUs"] = 1


def seconds(work: CollectiveWork, link: Number, timing: CollectiveTiming) -> Number:
    """Seconds of a collective over a link of `link` bytes per second and direction; elementwise for arrays."""
    around = work.rounds * (work.gpus - 1) if work.rounds else 1
    across = work.rounds * doublings(work.nodes) if work.rounds else 1
    steps: Number = either(work.nodes > 1, across, around)
    low_latency: Seconds = work.bytes / (link * timing.low_latency_bandwidth)
    high_bandwidth: Seconds = timing.startup + work.bytes / (link * timing.bandwidth)
    return timing.latency + steps * timing.hop + minimum(low_latency, high_bandwidth)


# --- Data-parallel training -------------------------------------------------------------------------

BUCKET_BYTES, FIRST_BUCKET_BYTES = 25 * 2**20, 2**20
"""Bucket sizes of DistributedDataParallel: `bucket_cap_mb=25`, and `_DEFAULT_FIRST_BUCKET_BYTES`."""
CHUNK_BYTES = 10 * 2**20
"""Buffer of DataParallel's broadcast of weights and reduction of gradients (`comm.broadcast_coalesced`)."""
COPY_LAUNCH = 12e-6
"""Host seconds per operator without Python, on the fastest host in the source of `launch` in `engines/torch.yaml`."""
CHANNEL_BANDWIDTH = 12.5e9
"""Bytes per second and direction of an NCCL channel: 12 channels on the six 25 GB/s NVLinks of a V100, 24 on the
twelve of an A100. A channel occupies one SM. Assumed: no measurement of contention was used."""
DRAM_PASSES = 3
"""DRAM accesses per byte sent in a ring all-reduce: two reads (own data, received data) and one write.
Assumed."""
REPLICA_SPREAD = 0.08 / 5.4
"""Standard deviation of the speed of GPUs of one type, as a share of the step time.

Sinha et al., Not All GPUs Are Created Equal (arXiv 2208.11035): the run times of the GPUs of a cluster, most of them
V100s, vary by 8 % on average. Assumed here: this is the distance of the whiskers of a box plot, 5.4 standard
deviations of a normal distribution.
"""


class Buckets(NamedTuple):
    """The buckets of gradients in bytes: a first one, `full` ones of BUCKET_BYTES, and the last one."""

    first: Number
    full: int
    last: Number

    @property
    def total(self) -> Number:
        """Bytes of all buckets."""
        return self.first + self.full * BUCKET_BYTES + self.last


def buckets(size: float) -> Buckets:
    """The buckets of `size` bytes of gradients; the last one may be the only one, or be full."""
    first = min(FIRST_BUCKET_BYTES, size / 2)
    full = max(0, -int(-(size - first) // BUCKET_BYTES) - 1)
    return Buckets(first, full, size - first - full * BUCKET_BYTES)


def exposed_seconds(sizes: Buckets, first: Number, full: Number, last: Number, backward: Number) -> Number:
    """Seconds of the exchange after the end of a backward pass that takes `backward` seconds.

    `first`, `full` and `last` are the seconds that the exchange of each kind of bucket takes. Buckets are exchanged one
    after the other. Bucket i is ready after the share of the backward pass that equals its share of all bytes, and the
    later ones follow without a gap if they are ready: the end is the latest over i of ready(i) + the time from i on.
    """
    rest = sizes.full * full + last

    def end(done: Number, after: Number) -> Number:
        return backward * (done / sizes.total) + after

    ends = [end(sizes.first, first + rest), end(sizes.total, last)]
    if sizes.full:
        ends.append(end(sizes.first + BUCKET_BYTES, rest))
        ends.append(end(sizes.first + sizes.full * BUCKET_BYTES, full + last))
    return maximum(largest(ends) - backward, 0.0)


def contention_seconds(
    hidden: Number, sent: Number, bandwidth: Number, multiprocessors: int, dram_bandwidth: float
) -> Number:
    """Seconds that the backward pass takes longer during `hidden` seconds of an exchange of `sent` bytes.

    The exchange occupies an SM per channel, and its bytes pass the DRAM.
    """
    channels = maximum(2.0, bandwidth / CHANNEL_BANDWIDTH)
    return minimum(hidden, hidden * channels / multiprocessors + DRAM_PASSES * sent / dram_bandwidth)


def slowest_of(replicas: int) -> float:
    """How much slower the slowest of `replicas` GPUs is than the mean one, as a share of the time.

    The expected maximum of normally distributed times (Blom's approximation of normal order statistics).
    """
    if replicas < 2:
        return 0.0
    from statistics import NormalDist  # an import of several milliseconds

    return REPLICA_SPREAD * NormalDist().inv_cdf((replicas - 0.375) / (replicas + 0.25))
