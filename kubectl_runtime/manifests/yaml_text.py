"""Converts one YAML document to JSON values and back, with the limits of Go's decoder.

PyYAML parses the text into a tree of nodes. The values of scalars, the conversion of keys to text, and the merging of
``<<`` follow Go's rules (see ``scalars``), so that a value is what kubectl and the API server read. One difference
remains: a plain scalar with the tag ``!`` alone does not become text. Aliases of aliases can make a small text a huge
value ("a billion laughs"). Therefore the values are counted before they are built: an alias counts as all values that
it repeats, and only a small part of a large document may come from aliases.

The written YAML reads back unchanged under Go's rules (kubectl, the API server) and under YAML 1.1 (PyYAML). Text that
either version would read as another type is quoted; text of several lines is a block. Aliases are never written.
"""
from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import Any

import yaml

from kubectl_runtime.manifests.scalars import TEXT, YamlError, key_text, resolve, tagged, whole_numbers

_PLAIN = "plain"  # an internal tag for scalars that have neither quotes nor a tag
_MERGE = "tag:yaml.org,2002:merge"
MANY_VALUES, TOO_MANY_VALUES = 400_000, 4_000_000
# The share of a document's values that may come from aliases: MOST_ALIASES if it has at most MANY_VALUES values,
# FEWEST_ALIASES if it has at least TOO_MANY_VALUES.
MOST_ALIASES, FEWEST_ALIASES = 0.99, 0.10
MOST_LEVELS = 500
"""The maximum depth of nesting. Deeper documents overflow the stack of the process in older bindings of libyaml."""


def decode_yaml(text: str | bytes, *, duplicates: list[str] | None = None, alone: bool = False) -> Any:
    """The JSON value of the first YAML document of a text, None if there is none.

    The rest of the text is ignored; with `alone`, a second document is an error. Bytes may be UTF-8 or, with a byte
    order mark, UTF-16. If a mapping has a key twice, the last value counts, and a message is added to `duplicates`.
    Raises `YamlError`.
    """
    try:
        reader = _Composer(text)
        try:
            node = reader.get_node() if reader.check_node() else None
            if alone and node is not None and reader.check_node():
                raise _at(reader.get_node(), "another document begins here without a line of ---")
        finally:
            reader.dispose()
        if node is None:
            return None
        _check_aliases(node)
        return _value(node, [] if duplicates is None else duplicates)
    except yaml.MarkedYAMLError as error:
        raise _syntax_error(error) from None
    except yaml.YAMLError as error:
        raise YamlError(" ".join(str(error).split())) from None
    except RecursionError:
        raise YamlError("exceeded max depth") from None


class _NoResolver:
    """Marks scalars only as plain or quoted, because `scalars` computes their values. Also counts the levels of
    nesting: both parsers call this class when they enter and leave a node."""

    _levels = 0

    def resolve(self, kind: type, _value: str | None, implicit: Any) -> str:
        return _PLAIN if kind is yaml.ScalarNode and implicit[0] else TEXT

    def descend_resolver(self, _node: Any, _index: Any) -> None:
        """Enter a level. Raises YamlError beyond `MOST_LEVELS`."""
        self._levels += 1
        if self._levels > MOST_LEVELS:
            raise YamlError("exceeded max depth")

    def ascend_resolver(self) -> None:
        self._levels -= 1


_Composer: Any
if yaml.__with_libyaml__:
    class _Composer(_NoResolver, yaml.cyaml.CParser):  # type: ignore[no-redef, misc, name-defined]
        """libyaml's parser."""
else:
    class _Composer(yaml.reader.Reader, yaml.scanner.Scanner, yaml.parser.Parser,  # type: ignore[no-redef]
                    yaml.composer.Composer, _NoResolver):
        """PyYAML's own parser."""

        def __init__(self, text: str | bytes) -> None:
            yaml.reader.Reader.__init__(self, text)
            yaml.scanner.Scanner.__init__(self)
            yaml.parser.Parser.__init__(self)
            yaml.composer.Composer.__init__(self)


def _syntax_error(error: yaml.MarkedYAMLError) -> YamlError:
    """The error with the true line, and with the line as Go's decoder counts it."""
    mark = error.problem_mark or error.context_mark
    line = error.problem_mark.line if error.problem_mark else 0
    if line:
        line += isinstance(error, yaml.scanner.ScannerError)
    elif error.context_mark:
        line = error.context_mark.line
    return YamlError(error.problem or "", mark.line + 1 if mark else 0, mark.column + 1 if mark else 0, named_line=line)


def _value(node: yaml.Node, duplicates: list[str]) -> Any:
    if isinstance(node, yaml.MappingNode):
        return _mapping(node, duplicates)
    if isinstance(node, yaml.SequenceNode):
        return [_value(child, duplicates) for child in node.value]
    value = _scalar(node)
    if not isinstance(value, float):
        return value
    if not math.isfinite(value):
        name = "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
        raise _at(node, f"json: unsupported value: {name}")
    return whole_numbers(value)


def _scalar(node: yaml.Node) -> Any:
    text: str = node.value
    if node.tag == _PLAIN:
        return resolve(text)
    if node.tag == TEXT:
        return text
    try:
        return tagged(node.tag, text)
    except ValueError as error:
        raise _at(node, str(error)) from None


def _mapping(node: yaml.MappingNode, duplicates: list[str]) -> dict[str, Any]:
    """Two rules are surprising. If a mapping has a key of its own and also merges the same key, the later of the two in
    the text counts. In a list of mappings to merge, the first mapping with the key counts."""
    result: dict[str, Any] = {}
    own: set[str] = set()
    for key_node, value_node in node.value:
        if _is_merge(key_node):
            for source in _merge_sources(value_node):
                result.update(_mapping(source, duplicates))
            continue
        key = _key(key_node)
        value = _value(value_node, duplicates)
        if key in own:
            duplicates.append(f'line {value_node.start_mark.line + 1}: key "{key}" already set in map')
        own.add(key)
        result[key] = value
    return result


def _is_merge(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and (node.tag == _MERGE or (node.tag == _PLAIN and node.value == "<<"))


def _merge_sources(node: yaml.Node) -> Iterator[yaml.MappingNode]:
    sources = reversed(node.value) if isinstance(node, yaml.SequenceNode) else [node]
    for source in sources:
        if not isinstance(source, yaml.MappingNode):
            raise _at(node, "map merge requires map or sequence of maps as the value")
        yield source


def _key(node: yaml.Node) -> str:
    if not isinstance(node, yaml.ScalarNode):
        raise _at(node, "invalid map key: it is not a scalar")
    try:
        return key_text(_scalar(node))
    except YamlError:
        raise
    except ValueError as error:
        raise _at(node, str(error)) from None


def _at(node: yaml.Node, problem: str) -> YamlError:
    return YamlError(problem, node.start_mark.line + 1, node.start_mark.column + 1)


def _check_aliases(root: Any) -> None:
    """Raise `YamlError` if aliases make the document too large, or if an anchor's value contains itself."""
    sizes: dict[Any, int] = {}  # each node's size including its children; 0 while the children are being counted

    def size(node: Any) -> int:
        known = sizes.get(node)
        if known is not None:
            if not known:
                raise _at(node, "anchor value contains itself")
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
        raise YamlError("document contains excessive aliasing")


def _allowed(values: int) -> float:
    if values <= MANY_VALUES:
        return MOST_ALIASES
    beyond = min(1.0, (values - MANY_VALUES) / (TOO_MANY_VALUES - MANY_VALUES))
    return MOST_ALIASES - beyond * (MOST_ALIASES - FEWEST_ALIASES)


_BASE: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


class _Dumper(_BASE):  # type: ignore[misc]
    def represent_text(self, text: str) -> Any:
        plain = self.resolve(yaml.ScalarNode, text, (True, False)) == TEXT and isinstance(resolve(text), str)
        style = "|" if "\n" in text else None if plain else '"'
        return self.represent_scalar(TEXT, text, style)

    def ignore_aliases(self, _data: Any) -> bool:
        return True


_Dumper.add_representer(str, _Dumper.represent_text)


def to_yaml(value: Any) -> str:
    """One JSON value as a YAML document, with sorted keys and long lines folded. Raises yaml.YAMLError for anything
    that is not a JSON value."""
    return documents_to_yaml([value])


def documents_to_yaml(values: Iterable[Any], *, sort_keys: bool = True, width: int = 80) -> str:
    """JSON values as YAML documents, separated by lines of ``---`` if there are several; lines are folded at `width`
    characters where YAML allows it. Without `sort_keys`, keys keep their order. Raises yaml.YAMLError, as
    `to_yaml` does."""
    text: str = yaml.dump_all(values, Dumper=_Dumper, sort_keys=sort_keys, allow_unicode=True,
                              default_flow_style=False, width=width)
    return text
