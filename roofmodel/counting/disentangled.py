"""What disentangled attention adds (DeBERTa, arXiv 2006.03654): scores between contents and relative positions."""

from __future__ import annotations

from collections.abc import Iterator

from roofmodel.counting.operator import Builder, Operator
from roofmodel.models.attention import Disentangled


def positions(spec: Disentangled, build: Builder) -> Iterator[Operator]:
    """Keys and queries of the `w` relative positions: once for all sequences, yet anew in every layer."""
    for name, wanted in (("k", spec.to_position), ("q", spec.to_content)):
        if wanted or spec.shared:
            matrix = name if spec.shared else f"position_{name}"
            line = f"relative[w d] W_{matrix}[d k g h] + B_{matrix}[k g h] -> position.{name}[w k g h]"
            yield build.operator(f"attention.position_{name}", "attention", line)


def position_scores(spec: Disentangled, build: Builder, cache: str) -> tuple[Operator, ...]:
    """Every query with every relative position, every key likewise; a gather then picks the distance of each pair."""
    lines = (
        (spec.to_position, "content_to_position", "q[b t k g h] position.k[w k g h] -> c2p[b k g t w]"),
        (spec.to_content, "position_to_content", f"{cache}k[b s k h] position.q[w k g h] -> p2c[b k g s w]"),
    )
    return tuple(
        build.operator(f"attention.{name}", "attention", line, kind="bmm") for wanted, name, line in lines if wanted
    )
