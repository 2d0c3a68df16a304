"""Inputs of each layer's own, from tables at the entrance: per-layer embeddings (Gemma 3n and 4)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from roofmodel.counting import vector
from roofmodel.counting.operator import Builder, Operator
from roofmodel.counting.site import Site, norm
from roofmodel.models.embeddings import LayerInputs
from roofmodel.models.layers import LayerInput


def layer_inputs(table: LayerInputs, build: Builder) -> Iterator[Operator]:
    """At the entrance, for all layers: a row of the table, and what a matrix makes of the token's embedding, normed."""
    build = build._replace(sizes={**build.sizes, "L": table.layers, "y": table.width, "p": table.rows})
    yield build.gather("embedding.layers", "embedding", "E_layers[p L y] -> own[b t L y]")
    yield build.operator("embedding.layers_project", "embedding", "x[b t d] W_layers[d L y] -> inputs[b t L y]")
    yield norm(build, "layers", table.norm, "inputs[b t L y]", "inputs[b t L y]")
    line = "inputs[b t L y] + own[b t L y] -> inputs[b t L y]"
    yield build.operator("embedding.layers_add", "embedding", line, kind="elementwise")


def layer_input(part: LayerInput, site: Site) -> Iterator[Operator]:
    """In a layer: down to the width of its input, times that behind an activation, and up again."""
    step, build = site.step, site.build(y=part.width, L=part.layers)
    yield build.operator("layer_input.gate", "input", f"{site.reads} W_layer_gate[d y] -> w[b t y]")
    times = build.operator(
        "layer_input.times", "input", "w[b t y] inputs[b t L y] -> u[b t y]", kind="elementwise",
        vector=vector.ACTIVATION[part.activation] + 1,
    )  # fmt: skip
    yield replace(times, touched={"inputs": step.batch * step.tokens * part.width})  # its own of them
    yield build.operator("layer_input.up", "input", f"u[b t y] W_layer_up[y d] -> {site.gives}")
