"""Times of data-parallel training: exchange of gradients during the backward pass, contention, the slowest replica.

PyTorch's DistributedDataParallel copies gradients into buckets and starts the all-reduce of a bucket when all of its
gradients are known (Li et al., PyTorch Distributed, arXiv 2006.15704, section 3.2). Gradients become known at a
constant rate during the backward pass, so the exchange that cannot be hidden is that of the last bucket, or what is
left when the links are slower than the backward pass.
"""

from __future__ import annotations

from typing import NamedTuple

from roofmodel.numbers.algebra import Number, largest, maximum, minimum

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
