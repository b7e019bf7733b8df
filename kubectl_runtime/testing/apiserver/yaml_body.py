"""From YAML to JSON values, with the bounds of the real server's decoder: a short text cannot stand for a huge value.

An alias is as large as what it stands for, so aliases of aliases multiply ("a billion laughs"). They are counted in the
tree of nodes, before anything is built: a large document may consist of aliases to a small part only.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import msgspec

_TEXT, _MERGE = "tag:yaml.org,2002:str", "tag:yaml.org,2002:merge"
_LARGE = 1 << 63  # integers from here on stay floating-point numbers
MANY_VALUES, TOO_MANY_VALUES = 400_000, 4_000_000
# the part of a document's values that aliases may bring, up to and beyond these sizes
MOST_ALIASES, FEWEST_ALIASES = 0.99, 0.10


def parse_yaml(body: bytes) -> tuple[Any, list[str]]:
    """Decode the first YAML document of a text with JSON's types (null if there is none), and tell which keys occur
    twice; ValueError if it is malformed."""
    import yaml

    duplicates: list[str] = []
    try:
        value = _first_document(body, duplicates)
        return whole_numbers(msgspec.json.decode(msgspec.json.encode(value))), duplicates
    except yaml.MarkedYAMLError as error:
        raise ValueError(f"yaml: {_place(error)}{error.problem}") from None
    except (yaml.YAMLError, msgspec.MsgspecError, TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"yaml: {' '.join(str(error).split())}") from None


def whole_numbers(value: Any) -> Any:
    """A JSON value whose numbers without fraction are integers, as they are written when YAML becomes JSON."""
    if isinstance(value, dict):
        return {key: whole_numbers(child) for key, child in value.items()}
    if isinstance(value, list):
        return [whole_numbers(child) for child in value]
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < _LARGE else value


def _place(error: Any) -> str:
    """The line that the real decoder names; it counts in its own way."""
    from yaml.scanner import ScannerError

    line = error.problem_mark.line if error.problem_mark else 0
    if line:
        line += isinstance(error, ScannerError)
    elif error.context_mark:
        line = error.context_mark.line
    return f"line {line}: " if line else ""


@cache
def json_types_loader() -> Any:
    """A safe loader that leaves dates as text, as JSON has none, and takes y and n for booleans, as YAML 1.1 does."""
    import yaml

    base = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    resolvers = {first: [(tag, pattern) for tag, pattern in rules if tag != "tag:yaml.org,2002:timestamp"]
                 for first, rules in base.yaml_implicit_resolvers.items()}
    for letter in "yYnN":
        resolvers[letter] = [("tag:yaml.org,2002:bool", re.compile("^[yYnN]$")), *resolvers.get(letter, ())]
    values = {**base.bool_values, "y": True, "n": False}
    return type("JsonTypesLoader", (base,), {"yaml_implicit_resolvers": resolvers, "bool_values": values})


def _first_document(body: bytes, duplicates: list[str]) -> Any:
    loader = json_types_loader()(body)
    try:
        if not loader.check_node():
            return None
        node = loader.get_node()
        _check_aliases(node)
        _check_keys(loader, node, duplicates)
        return loader.construct_document(node)
    finally:
        loader.dispose()


def _check_keys(loader: Any, node: Any, duplicates: list[str]) -> None:
    """Make every key a text, as JSON needs it, and note those that a mapping has twice."""
    import yaml

    if isinstance(node, yaml.MappingNode):
        seen = set()
        for key, value in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != _MERGE:
                key.value, key.tag = _key_text(loader.construct_object(key)), _TEXT
            _check_keys(loader, value, duplicates)
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    duplicates.append(f'line {value.start_mark.line + 1}: key "{key.value}" already set in map')
                seen.add(key.value)
    elif isinstance(node, yaml.SequenceNode):
        for child in node.value:
            _check_keys(loader, child, duplicates)


def _key_text(key: Any) -> str:
    return key if isinstance(key, str) else msgspec.json.encode(key).decode()


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
