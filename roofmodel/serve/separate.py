"""Separate engines for prefill and decode in a service, and the sequences that an engine has in its KV cache.

A request waits for a prefill engine, which computes its prompt. The KV cache then goes over the link to a decode
engine, in the same time as in a plan (`plan/disaggregated.py`); transfers do not delay each other. Prompts that wait
for a place in a decode engine take no place in their prefill engine.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from roofmodel.errors import Option, WorkloadError
from roofmodel.numbers import units
from roofmodel.options.values import settings
from roofmodel.options.workload import MAX_IN_FLIGHT, ServeRequest
from roofmodel.plan.disaggregated import cache_of_prompt, service_links, transfer_seconds
from roofmodel.plan.layouts import Layout
from roofmodel.plan.serving import largest_batch
from roofmodel.plan.speculation import Speculation, stored_with_draft
from roofmodel.plan.step_times import ServingReplica, stored_weights
from roofmodel.steps.capacity import fewest_requests, server_starts


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


def layout_of(sizes: Mapping[str, Any]) -> Layout:
    """The layout with these sizes; others are 1. Raises WorkloadError for experts over more GPUs than there are."""
    layout = Layout(*(sizes.get(name) or 1 for name in Layout._fields))
    if layout.tp * layout.dp % layout.ep:
        raise WorkloadError(
            Option("ep", layout.ep), " must divide tp × dp, the GPUs that share the experts: "
            f"{layout.tp} × {layout.dp}; try ", Option("dp", layout.ep),
        )  # fmt: skip
    return layout


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
    served: ServingReplica, decode: ServingReplica, layout: Layout, request: ServeRequest, isl: int
) -> SeparatePrefill:
    """The prefill engines of a request, of which `served` is one; `decode` is a decode engine.

    Raises WorkloadError where a prompt does not fit, and for a device whose file states no link between GPUs.
    """
    number = request.prefill_engines or 1
    of_decode = layout_of(separate_layout("decode", request, {}))
    gpus = number * layout.gpus + (request.decode_engines or 1) * of_decode.gpus
    link = next((link for link in service_links(served.device, gpus) if gpus <= link.most), None)
    if link is None:
        raise WorkloadError(
            Option("prefill", request.prefill), f": the file of {served.device.id} states no link between {gpus} GPUs, "
            "over which the KV cache would go from prefill engines to decode engines; leave out ", Option("prefill"),
            " and ", Option("decode"),
        )  # fmt: skip
    transfer = transfer_seconds(cache_of_prompt(served, isl), cache_of_prompt(decode, isl), link)
    return SeparatePrefill(served, layout, number, running_sequences(served, None, request.isl + 1), transfer)


def running_sequences(served: ServingReplica, speculation: Speculation | None, tokens: int) -> int:
    """The sequences that run at a time in a microbatch: as many as the KV cache has tokens for, at their full lengths,
    and at most those of the engine's limit. Raises WorkloadError where there is none."""
    lanes = served.sequences_per_batch
    limits = [largest_batch(served, stored_with_draft(served, stored_weights(served), speculation, tokens))]
    if start := fewest_requests(server_starts(served.arch, served.device, served.work, max_len=tokens)):
        limits.append(int(start.max_concurrency / lanes))
        if start.max_seqs is not None:
            limits.append(start.max_seqs // served.layout.pp)
    if not min(limits):
        raise WorkloadError(
            f"does not fit: no request of {tokens} tokens has a place in the KV cache of an engine on "
            f"{units.count(served.layout.gpus, 'GPU')}; try more ", Option("tp"), " or ", Option("weights", "int4"),
        )  # fmt: skip
    return min(*limits, MAX_IN_FLIGHT)
