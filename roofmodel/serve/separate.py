"""Separate engines for prefill and decode in a service, and the sequences that an engine has in its KV cache.

A request waits for a prefill engine, which computes its prompt. The KV cache then goes over the link to a decode
engine, in the same time as in a plan (`plan/disaggregated.py`); transfers do not delay each other. Prompts that wait
for a place in a decode engine take no place in their prefill engine.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import Any, NamedTuple

from roofmodel.counting.workload import Parallel
from roofmodel.errors import Option, Text, WorkloadError
from roofmodel.models.architecture import Architecture
from roofmodel.numbers import units
from roofmodel.options.serving import MAX_IN_FLIGHT, ServeRequest
from roofmodel.options.values import settings
from roofmodel.plan.disaggregated import cache_of_prompt, service_links, transfer_seconds
from roofmodel.plan.layouts import Layout
from roofmodel.plan.serving import largest_batch
from roofmodel.plan.speculation import Speculation, stored_with_draft
from roofmodel.plan.step_times import ServingReplica, stored_weights
from roofmodel.steps.capacity import fewest_requests, server_starts
from roofmodel.steps.parallelism import parallel


class SeparatePrefill(NamedTuple):
    """The engines that only compute prompts."""

    served: ServingReplica  # one of them
    layout: Layout
    number: int  # of this layout
    running: int  # prompts of a microbatch at a time, at most
    transfer: float  # seconds to send the KV cache of a prompt of mean length

    @property
    def lanes(self) -> int:
        """Microbatches in flight."""
        return self.number * self.layout.engines * self.served.sequences_per_batch

    @property
    def gpus(self) -> int:
        """The GPUs of all of them."""
        return self.number * self.layout.gpus

    @property
    def at_once(self) -> int:
        """Prompts that keep all of them busy: two steps of prompts."""
        start = fewest_requests(self.served.starts)
        most = start.max_seqs if start and start.max_seqs else 1
        return 2 * self.lanes * min(self.running, most, 8)


def layout_of(arch: Architecture, sizes: Mapping[str, Any]) -> tuple[Layout, tuple[Text, ...]]:
    """The layout with these sizes, others being 1, and notes on those that do not apply. Raises WorkloadError where the
    model cannot be sharded in this way."""
    given = Layout(*(sizes.get(name) or 1 for name in Layout._fields))
    checked, notes = parallel(arch, False, None, None, Parallel(given.tp, given.dp, given.pp, given.ep))
    return given._replace(ep=checked.ep), notes


def separate_layout(name: str, request: ServeRequest, options: Mapping[str, Any]) -> dict[str, int]:
    """The sizes of one kind of separate engines. Raises WorkloadError for options of a single kind."""
    given = [Option(size, options[size]) for size in Layout._fields if (options.get(size) or 1) != 1]
    if request.replicas != 1:
        given.append(Option("replicas", request.replicas))
    if given:
        raise WorkloadError(
            given[0], " does not apply to separate engines; state it in ", Option("prefill"), " and ", Option("decode"),
            ", with ", Option("prefill_engines"), " and ", Option("decode_engines"),
        )  # fmt: skip
    return {key: int(text) for key, text in settings(name, getattr(request, name))}


def prefill_engines(
    served: ServingReplica, decode: ServingReplica, layouts: tuple[Layout, Layout], request: ServeRequest, isl: int
) -> SeparatePrefill:
    """The prefill engines of a request, of which `served` is one; `decode` is a decode engine. `layouts`: of both.

    Raises WorkloadError where a prompt does not fit, and for a device whose file states no link between GPUs.
    """
    number = request.prefill_engines or 1
    layout, of_decode = layouts
    gpus = number * layout.gpus + (request.decode_engines or 1) * of_decode.gpus
    link = next((link for link in service_links(served.device, gpus) if gpus <= link.most), None)
    if link is None:
        raise WorkloadError(
            Option("prefill", request.prefill), f": the file of {served.device.id} states no link between {gpus} GPUs, "
            "over which the KV cache would go from prefill engines to decode engines; leave out ", Option("prefill"),
            " and ", Option("decode"),
        )  # fmt: skip
    transfer = transfer_seconds(cache_of_prompt(served, isl), cache_of_prompt(decode, isl), link)
    running = running_sequences(served, None, request.isl + 1, (isl, 1))
    return SeparatePrefill(served, layout, number, running, transfer)


def running_sequences(
    served: ServingReplica, speculation: Speculation | None, tokens: int, lengths: tuple[int, int]
) -> int:
    """The sequences that run at a time in a microbatch: as many as the KV cache has tokens for, and at most those of
    the engine's limit. Raises WorkloadError where not one request of `tokens` has a place.

    `lengths`: mean tokens of prompt and answer. An engine that allocates the cache while it decodes has half of each
    answer in it on average.
    """
    if not _places(served, speculation, tokens):
        raise WorkloadError(
            f"does not fit: no request of {tokens} tokens has a place in the KV cache of an engine on "
            f"{units.count(served.layout.gpus, 'GPU')}; try more ", Option("tp"), " or ", Option("weights", "int4"),
        )  # fmt: skip
    isl, osl = lengths
    memory = served.work.engine.memory
    if memory is not None:
        tokens = isl + (osl if memory.reserves_answers else ceil(osl / 2))
    return min(_places(served, speculation, tokens), MAX_IN_FLIGHT)


def _places(served: ServingReplica, speculation: Speculation | None, tokens: int) -> int:
    """The sequences of so many tokens that have a place in a microbatch."""
    limits = [largest_batch(served, stored_with_draft(served, stored_weights(served), speculation, tokens))]
    if start := fewest_requests(server_starts(served.arch, served.device, served.work, max_len=tokens)):
        limits.append(int(start.max_concurrency / served.sequences_per_batch))
        if start.max_seqs is not None:
            limits.append(start.max_seqs // served.layout.pp)
    return min(limits)
