"""Imports between the modules of roofmodel."""

from __future__ import annotations

import grimp


def test_no_module_imports_itself_through_others() -> None:
    graph = grimp.build_graph("roofmodel", cache_dir=None)
    circles = {
        frozenset(chain): " -> ".join((module, *chain))
        for module in graph.modules
        for imported in graph.find_modules_directly_imported_by(module)
        if (chain := graph.find_shortest_chain(importer=imported, imported=module))
    }
    assert not circles, "\n".join(circles.values())
