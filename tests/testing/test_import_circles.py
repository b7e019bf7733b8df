"""No module of the server imports, by way of others, itself: neither for types only nor inside a function."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import kubectl_runtime

ROOT = Path(kubectl_runtime.__file__).parent
SERVER = ROOT / "testing"


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(source: str, modules: set[str]) -> Iterator[str]:
    """What a module imports, wherever in it; of a name in a package, the module of that name if it is one."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "imports are absolute"
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield full if full in modules else str(node.module)


def check(sources: dict[str, str]) -> None:
    """Raises CycleError. A module in a package loads that package too, unless it is a part of it."""
    graph: dict[str, set[str]] = {}
    for name, source in sources.items():
        found = graph.setdefault(name, set())
        for target in imported(source, set(sources)):
            found.add(target)
            package = target.rpartition(".")[0]
            while package and not f"{name}.".startswith(f"{package}."):
                found.add(package)
                package = package.rpartition(".")[0]
        found &= set(sources) - {name}
    TopologicalSorter(graph).prepare()


def test_no_module_of_the_server_imports_itself_by_way_of_others() -> None:
    check({name_of(path): path.read_text(encoding="utf-8") for path in SERVER.rglob("*.py")})


@pytest.mark.parametrize("hidden", [
    "from a import b", "if TYPE_CHECKING:\n    from a.b import name", "def late() -> None:\n    import a.b"])
def test_a_circle_is_found_wherever_the_import_stands(hidden: str) -> None:
    with pytest.raises(CycleError):
        check({"a": "", "a.b": "from c import name", "c": hidden})
    check({"a": "", "a.b": "from c import name", "c": "import a"})
