"""No module of the package imports, by whatever way, a module that imports it.

Imports for type checkers and imports inside functions count like all others: there they only hide a circle. An import
of a name from a package counts as one of the module of that name if there is one, else of the package's `__init__`.
"""
from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "kubectl_runtime"

Graph = Mapping[str, set[str]]


def modules(root: Path) -> dict[str, Path]:
    """Dotted name -> file, of everything below `root`, the name of a package for its `__init__`."""
    found = {}
    for path in root.rglob("*.py"):
        parts = path.relative_to(root.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(source: str) -> Iterator[str]:
    """What a module imports, wherever that stands; `from a import b` gives `a.b`."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports are not used here"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def graph_of(sources: Mapping[str, str]) -> dict[str, set[str]]:
    """Module -> the modules among `sources` that it imports."""
    graph: dict[str, set[str]] = {}
    for name, source in sources.items():
        found = (target if target in sources else target.rpartition(".")[0] for target in imports(source))
        graph[name] = {target for target in found if target in sources and target != name}
    return graph


def reachable(graph: Graph, start: str) -> dict[str, str]:
    """Each module that `start` imports, by whatever way -> the module before it on a shortest way."""
    came_from: dict[str, str] = {}
    edge = [start]
    while edge:
        following = []
        for name in edge:
            for target in sorted(graph[name]):
                if target not in came_from:
                    came_from[target] = name
                    following.append(target)
        edge = following
    return came_from


def circle_through(graph: Graph, name: str) -> list[str]:
    """A shortest circle from `name` back to it; empty when there is none."""
    came_from = reachable(graph, name)
    if name not in came_from:
        return []
    way = [name]
    while came_from[way[-1]] != name:
        way.append(came_from[way[-1]])
    return [name, *reversed(way)]


def circles(graph: Graph, names: Iterable[str]) -> list[str]:
    """One circle for each of `names` that lies on one, each circle once: `a -> b -> a`."""
    found = {}
    for name in sorted(names):
        if circle := circle_through(graph, name):
            found.setdefault(frozenset(circle), " -> ".join(circle))
    return list(found.values())


@cache
def package_graph() -> Graph:
    return graph_of({name: path.read_text() for name, path in modules(PACKAGE).items()})


@pytest.mark.parametrize("layer", sorted(path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()))
def test_no_module_of_the_layer_lies_on_an_import_circle(layer: str) -> None:
    graph = package_graph()
    prefix = f"{PACKAGE.name}.{layer}"
    own = [name for name in graph if name == prefix or name.startswith(prefix + ".")]
    assert own
    found = circles(graph, own)
    assert not found, f"circles of imports in {layer}:\n" + "\n".join(found)


def test_nothing_lies_on_a_circle_with_the_facade() -> None:
    """Inside the package a name is imported from where it lives."""
    graph = package_graph()
    assert not circles(graph, [PACKAGE.name])


@pytest.mark.parametrize("hidden", [
    "from p.b import B",
    "from p import b",
    "import p.b",
    "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from p.b import B",
    "def f():\n    from p.b import B",
])
def test_a_circle_is_found_and_named_however_it_is_hidden(hidden: str) -> None:
    back = "from p.a import A"
    sources = {"p": "", "p.a": hidden, "p.b": "from p.c import C", "p.c": back, "p.d": back}
    graph = graph_of(sources)
    assert circles(graph, graph) == ["p.a -> p.b -> p.c -> p.a"]
    assert circles(graph, ["p.d"]) == []


def test_a_name_that_is_no_module_is_an_import_of_its_package() -> None:
    graph = graph_of({"p": "from p.a import A", "p.a": "from p import NAME"})
    assert circles(graph, ["p.a"]) == ["p.a -> p -> p.a"]
