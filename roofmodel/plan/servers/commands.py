"""The commands that start the engines of a plan's candidate, from the section `serve` of the engine's file, and a
script with the command of the benchmark to run next."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from math import ceil
from typing import Any, NamedTuple

from roofmodel.devices.device import Device
from roofmodel.engines.engine import Engine
from roofmodel.engines.engine_file import Serve
from roofmodel.errors import Option, WorkloadError
from roofmodel.models.architecture import Architecture
from roofmodel.options.values import REQUESTS_PER_CLIENT
from roofmodel.plan.candidate import Candidate
from roofmodel.plan.layouts import Formats, Layout
from roofmodel.plan.plan import ServingPlan
from roofmodel.plan.ranking import Ranked
from roofmodel.plan.request import ServiceRequest

FIRST_PORT = 8000
"""The port of the first engine of a node; the others follow."""
RESULT = "result.json"
PORT = "{port}"
"""The port in a command that several engines have."""


class Server(NamedTuple):
    """What a plan says of a server besides the candidate: the model and the format of its checkpoint, the longest
    sequence, and options of its start that were given."""

    model: str
    checkpoint: str | None
    isl: int
    osl: int
    max_len: int
    token_budget: int | None = None
    memory_utilization: float | None = None


def with_commands(
    plan: ServingPlan, arch: Architecture, devices: Sequence[Device], request: ServiceRequest
) -> ServingPlan:  # fmt: skip
    """The plan with the command of each candidate."""
    serve, server = Engine.load(plan.service.engine, plan.service.engine_option).serve, server_of(arch, request)
    by_id = {device.id: device for device in devices}

    def command(entry: Ranked) -> Ranked:
        each = entry.candidate
        return entry._replace(serve_command=serve_command(serve, each, server, by_id[each.device]))

    return plan._replace(ranked=tuple(map(command, plan.ranked)))


def server_of(arch: Architecture, request: ServiceRequest) -> Server:
    """The server of a request."""
    checkpoint = arch.quantization.weights if arch.quantization else arch.dtype
    isl, osl = request.isl, request.osl
    return Server(
        arch.name,
        checkpoint,
        isl,
        osl,
        request.max_len or isl + osl,
        request.token_budget or request.chunk,
        request.memory_utilization,
    )


def serve_command(serve: Serve | None, candidate: Candidate, server: Server, device: Device) -> str | None:
    """A line for each engine process; None where the engine cannot be started so, or its file does not say how."""
    if serve is None:
        return None
    parts = [("", candidate.layout, candidate.batch)]
    if (prefill := candidate.prefill) is not None:
        prompts = prefill.batch * prefill.layout.engines
        parts = [("prefill", prefill.layout, prompts), ("decode", candidate.layout, candidate.batch)]
    sizes = [layout.engine.gpus for _, layout, _ in parts for _ in range(layout.engines)]
    places, lines = _places(sizes, device), list[str]()
    for role, layout, batch in parts:
        command = _command(serve, candidate.formats, layout, batch, server, role)
        if command is None:
            return None
        lines += [next(places).line(*command) for _ in range(layout.engines)]
    return "\n".join(lines)


def _command(
    serve: Serve, formats: Formats, layout: Layout, batch: int, server: Server, role: str
) -> tuple[str, str] | None:
    """The command of an engine of a layout, with `{port}`, and a comment; None where there is none."""
    engine, replicas = layout.engine, layout.joint_replicas
    of_experts = serve.flags.get("ep", "")
    if 1 < layout.ep < engine.gpus // engine.pp and "{ep}" not in of_experts:
        return None  # it shards experts over all GPUs, or over none
    if (replicas > 1 and serve.dp_alone and layout.tp > 1) or (role and role not in serve.flags):
        return None
    requests = ceil(batch / layout.engines)
    values: dict[str, Any] = {
        **engine._asdict(), "dp": replicas, "shards": layout.tp * replicas, "model": shlex.quote(server.model),
        "port": PORT, "max_len": server.max_len, "max_requests": requests, "max_seqs": ceil(requests / replicas),
        "token_budget": server.token_budget, "memory_utilization": server.memory_utilization,
    }  # fmt: skip
    stated = {
        "tp": values["shards"] > 1, "pp": layout.pp > 1, "dp": replicas > 1, "ep": layout.ep > 1, "max_len": True,
        "max_seqs": True, "token_budget": server.token_budget is not None,
        "memory_utilization": server.memory_utilization is not None, role: bool(role),
    }  # fmt: skip
    keys: list[str | tuple[str, str]] = [name for name, is_stated in stated.items() if is_stated]
    keys += [("kv", formats.kv or "")]
    comment = ""
    if _differs(formats.weights, server.checkpoint):
        keys += [("weights", formats.weights or "")]
        if keys[-1] not in serve.flags:
            comment = f"with a checkpoint in {formats.weights}"
    words = [*(serve.flags[key] for key in keys if key in serve.flags)]
    if settings := [serve.settings[key] for key in keys if key in serve.settings]:
        values["settings"] = ", ".join(settings).format(**values)
        words.append(serve.config)
    text = " ".join([serve.command, *words])
    return text.format(**values), comment


def _differs(weights: str | None, checkpoint: str | None) -> bool:
    """Whether weights are stored in another format than that of the checkpoint, and not in 16 bits."""
    return weights not in (None, "bf16", "fp16", checkpoint)


class _Place(NamedTuple):
    """The GPUs of an engine in a node, which are stated where a node has other engines, its port, and a comment."""

    gpus: str
    port: int
    node: str

    def line(self, command: str, comment: str) -> str:
        """The command of the engine here."""
        visible = f"CUDA_VISIBLE_DEVICES={self.gpus} " if self.gpus else ""
        comments = [text for text in (comment, self.node) if text]
        return f"{visible}{command.replace(PORT, str(self.port))}{'  # ' * bool(comments)}{'; '.join(comments)}"


def _places(sizes: Sequence[int], device: Device) -> Iterator[_Place]:
    """The places of engines with these numbers of GPUs, one after the other."""
    of_node = device.network.beyond if device.network and device.network.beyond else sum(sizes)
    nodes: list[list[int]] = [[]]  # the GPUs of the engines of each node
    for size in sizes:
        if nodes[-1] and sum(nodes[-1]) + size > of_node:
            nodes.append([])
        first = sum(nodes[-1])
        nodes[-1].append(size)
        if size > of_node:
            yield _Place("", FIRST_PORT, f"spans {ceil(size / of_node)} nodes; see the engine's documentation")
            continue
        gpus = ",".join(map(str, range(first, first + size))) if len(sizes) > 1 else ""
        node = f"node {len(nodes)}" if sum(sizes) > of_node else ""
        yield _Place(gpus, FIRST_PORT + len(nodes[-1]) - 1, node)


def plan_script(plan: ServingPlan) -> str:
    """The script of the best candidate. Raises WorkloadError where it has no command."""
    entry = plan.ranked[0] if plan.ranked else None
    serve = Engine.load(plan.service.engine, plan.service.engine_option).serve
    if entry is None or entry.serve_command is None or serve is None:
        raise WorkloadError(
            "there is no command to write: ", "no layout fits" if entry is None else
            f"{Engine.load(plan.service.engine).label} cannot be started with the first layout, or its file has no "
            "section serve", "; try another ", Option("engine"),
        )  # fmt: skip
    each, traffic = entry.candidate, plan.service.traffic
    formats = {name: value for name, value in each.formats._asdict().items() if value}
    server = Server(plan.model, None, traffic.isl, traffic.osl, 0)
    return serve_script(
        serve, each, entry.serve_command, server, {"hw": each.device, "engine": each.engine, **formats}
    )  # fmt: skip


def serve_script(serve: Serve, candidate: Candidate, command: str, server: Server, compare: Mapping[str, Any]) -> str:
    """A shell script: the servers in the background, then the benchmark of one engine, and its comparison.

    `compare` are the options of `roof compare` besides the model and the file.
    """
    layout = candidate.layout
    in_flight = ceil(candidate.batch / layout.engines)
    benchmark = serve.benchmark.format(
        model=shlex.quote(server.model), port=FIRST_PORT, isl=server.isl, osl=server.osl, concurrency=in_flight,
        requests=REQUESTS_PER_CLIENT * in_flight, file=RESULT,
    )  # fmt: skip
    options = " ".join(f"--{name.replace('_', '-')} {shlex.quote(str(value))}" for name, value in compare.items())
    of_engine = " ".join(f"--{name} {size}" for name, size in layout.engine._asdict().items() if size > 1)
    servers = _in_background(command.splitlines())
    first = f"#!/usr/bin/env bash\n# {candidate.gpus} × {candidate.device}: {candidate.batch} requests in flight.\n"
    if candidate.prefill:
        return (
            f"{first}{servers}\n\n"
            "# A router sends prompts to the prefill engines and their caches to the decode engines; see the engine's\n"
            f"# documentation. The benchmark, with the port of the router:\n# {benchmark}\nwait\n"
        )
    share = f" of one of {layout.engines} engines, with its share of the requests" if layout.engines > 1 else ""
    return (
        f"{first}{servers}\n\n"
        f"# When the servers are ready, the benchmark{share}:\n# {benchmark}\n"
        "# The same beside what was expected:\n"
        f"# roof compare {shlex.quote(server.model)} {RESULT} {' '.join(filter(None, (options, of_engine)))}\n"
        "wait\n"
    )


def _in_background(lines: Sequence[str]) -> str:
    parts = (line.partition("  # ") for line in lines)
    return "\n".join(f"{command} &{between}{comment}" for command, between, comment in parts)
