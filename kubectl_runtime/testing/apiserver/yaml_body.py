"""From YAML to JSON values, with the bounds of the real server's decoder: a short text cannot stand for a huge value.

An alias is as large as what it stands for, so aliases of aliases multiply ("a billion laughs"). They are counted in the
tree of nodes, before anything is built: a large document may consist of aliases to a small part only.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec

MANY_VALUES, TOO_MANY_VALUES = 400_000, 4_000_000
# the part of a document's values that aliases may bring, up to and beyond these sizes
MOST_ALIASES, FEWEST_ALIASES = 0.99, 0.10


def parse_yaml(body: bytes) -> Any:
    """Decode the first YAML document of a text with JSON's types (null if there is none); ValueError if it is
    malformed."""
    import yaml

    try:
        value = _first_document(body)
        return msgspec.json.decode(msgspec.json.encode(value))
    except (yaml.YAMLError, msgspec.MsgspecError, TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"error converting YAML to JSON: yaml: {' '.join(str(error).split())}") from None


@cache
def json_types_loader() -> Any:
    """A safe loader that leaves dates as text, as JSON has none."""
    import yaml

    base = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    resolvers = {first: [(tag, pattern) for tag, pattern in rules if tag != "tag:yaml.org,2002:timestamp"]
                 for first, rules in base.yaml_implicit_resolvers.items()}
    return type("JsonTypesLoader", (base,), {"yaml_implicit_resolvers": resolvers})


def _first_document(body: bytes) -> Any:
    loader = json_types_loader()(body)
    try:
        if not loader.check_node():
            return None
        node = loader.get_node()
        _check_aliases(node)
        return loader.construct_document(node)
    finally:
        loader.dispose()


def _check_aliases(root: Any) -> None:
    """Raises ValueError if the document is too large because of aliases, or contains itself."""
    sizes: dict[Any, int] = {}  # of every node with its children, 0 while they are counted

    def size(node: Any) -> int:
        known = sizes.get(node)
        if known is not None:
            if not known:
                raise ValueError("anchor value contains itself")
            return known
        sizes[node] = 0
        total = 1
        for child in node.value if not isinstance(node.value, str) else ():
            total += sum(map(size, child)) if isinstance(child, tuple) else size(child)
        sizes[node] = total
        return total

    values = size(root)
    aliased = values - len(sizes)
    if aliased > 100 and values > 1000 and aliased > values * _allowed(values):
        raise ValueError("document contains excessive aliasing")


def _allowed(values: int) -> float:
    if values <= MANY_VALUES:
        return MOST_ALIASES
    beyond = min(1.0, (values - MANY_VALUES) / (TOO_MANY_VALUES - MANY_VALUES))
    return MOST_ALIASES - beyond * (MOST_ALIASES - FEWEST_ALIASES)
