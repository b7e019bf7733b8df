"""From YAML to JSON values, with the bounds of the real server's decoder: a short text cannot stand for a huge value.

An alias is as large as what it stands for, so aliases of aliases multiply ("a billion laughs"). They are counted in the
tree of nodes, before anything is built: a large document may consist of aliases to a small part only.
"""

from __future__ import annotations

import math
import re
from functools import cache
from typing import Any

import msgspec

_TEXT, _MERGE = "tag:yaml.org,2002:str", "tag:yaml.org,2002:merge"
_DATE, _INT, _FLOAT = (f"tag:yaml.org,2002:{name}" for name in ("timestamp", "int", "float"))
_GO_INT = re.compile(r"^[-+]?(?:0b[01_]+|0o?[0-7_]+|0x[0-9a-fA-F_]+|0|[1-9][0-9_]*)$")
_GO_FLOAT = re.compile(r"^(?:[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|"
                       r"\.(?:nan|NaN|NAN))$")
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
    """A safe loader that leaves dates as text, as JSON has none, takes y and n for booleans, as YAML 1.1 does, reads
    numbers as Go does, and looks through tags that it does not know."""
    import yaml

    base = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    resolvers = {first: [(tag, pattern) for tag, pattern in rules if tag not in (_DATE, _INT, _FLOAT)]
                 for first, rules in base.yaml_implicit_resolvers.items()}
    for letter in "yYnN":
        resolvers[letter] = [("tag:yaml.org,2002:bool", re.compile("^[yYnN]$")), *resolvers.get(letter, ())]
    for letter in "-+.0123456789":
        resolvers[letter] = [(_INT, _GO_INT), (_FLOAT, _GO_FLOAT), *resolvers.get(letter, ())]
    values = {**base.bool_values, "y": True, "n": False}
    loader: Any = type("JsonTypesLoader", (base,), {"yaml_implicit_resolvers": resolvers, "bool_values": values})
    loader.add_constructor(_FLOAT, _finite)
    loader.add_multi_constructor("!", _untagged)
    return loader


def _finite(loader: Any, node: Any) -> float | str:
    number: float = loader.construct_yaml_float(node)
    if not math.isfinite(number):
        if node.value.lower().lstrip("+-") not in (".inf", ".nan"):
            return str(node.value)  # too large for a number
        name = "NaN" if math.isnan(number) else "+Inf" if number > 0 else "-Inf"
        raise ValueError(f"json: unsupported value: {name}")
    return number


def _untagged(loader: Any, _: str, node: Any) -> Any:
    """What stands behind a tag of the author's own; a scalar is a text then."""
    if isinstance(node.value, str):
        return loader.construct_scalar(node)
    construct = loader.construct_mapping if node.id == "mapping" else loader.construct_sequence
    return construct(node, deep=True)


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
