"""Kubernetes' JSONPath (printer columns): ``.spec.x``, ``['a.b']``, ``[0]``, ``[1:3]``, ``[*]``, ``..x``, ``[?(…)]``.

`find(value, path)` gives the values that a path selects, in order; a missing field selects nothing. A filter compares a
path below ``@`` with a literal or another path by ``== != < <= > >=``, or asks whether it is there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

Step = Callable[[Any], Iterator[Any]]

_NAME = re.compile(r"(?:[^.\[\]{}\s\\]|\\.)+")
_OPERATOR = re.compile("==|!=|<=|>=|<|>")
_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "==": lambda a, b: a == b, "!=": lambda a, b: a != b, "<": lambda a, b: a < b, "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b, ">=": lambda a, b: a >= b}


class JsonPathError(ValueError):
    """The path does not parse."""


def find(value: Any, path: str) -> list[Any]:
    """The values that the path selects; raises JsonPathError."""
    found = [value]
    for step in parse(path):
        found = [child for parent in found for child in step(parent)]
    return found


def shown(value: Any) -> str:
    """A value as text: strings as they are, the rest as JSON."""
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"), ensure_ascii=False)


@lru_cache(maxsize=1024)
def parse(path: str) -> tuple[Step, ...]:
    """The steps of a path; raises JsonPathError."""
    text = path.strip().removeprefix("{").removesuffix("}").strip()
    text = text.removeprefix("$").removeprefix("@")
    steps: list[Step] = []
    at = 0
    while at < len(text):
        if text.startswith("..", at):
            steps.append(_descend)
            at += 1
            if text.startswith(".[", at):
                at += 1
        elif text[at] == "[":
            end = _closing(text, at)
            steps.append(_bracket(text[at + 1:end].strip()))
            at = end + 1
        elif text[at] == "." and text[at + 1:at + 2] in ("", "["):
            at += 1
        else:
            match = _NAME.match(text, at + (text[at] == "."))
            if match is None:
                raise JsonPathError(f"unexpected {text[at:]!r} in JSONPath {path!r}")
            name = match[0].replace("\\", "")
            steps.append(_all if name == "*" else _field(name))
            at = match.end()
    return tuple(steps)


def _closing(text: str, start: int) -> int:
    """The index of the bracket that closes the one at start, quotes respected."""
    depth, quote = 0, ""
    for index in range(start, len(text)):
        character = text[index]
        if quote:
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
        elif character == "[":
            depth += 1
        elif character == "]":
            depth -= 1
            if depth == 0:
                return index
    raise JsonPathError(f"unterminated array in JSONPath {text!r}")


def _bracket(inner: str) -> Step:
    if inner == "*":
        return _all
    if inner.startswith("?(") and inner.endswith(")"):
        return _filter(inner[2:-1])
    if inner[:1] in ("'", '"'):
        return _field(inner[1:-1])
    try:
        if ":" in inner:
            bounds = [int(part) if part.strip() else None for part in inner.split(":")]
            return _slice(slice(*bounds))
        indexes = [int(part) for part in inner.split(",")]
    except (ValueError, TypeError):
        raise JsonPathError(f"invalid array index {inner!r}") from None
    return _indexes(indexes)


def _field(name: str) -> Step:
    def step(value: Any) -> Iterator[Any]:
        if isinstance(value, dict) and name in value:
            yield value[name]

    return step


def _all(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        yield from value.values()
    elif isinstance(value, list):
        yield from value


def _descend(value: Any) -> Iterator[Any]:
    yield value
    for child in _all(value):
        yield from _descend(child)


def _indexes(indexes: list[int]) -> Step:
    def step(value: Any) -> Iterator[Any]:
        if isinstance(value, list):
            yield from (value[index] for index in indexes if -len(value) <= index < len(value))

    return step


def _slice(bounds: slice) -> Step:
    def step(value: Any) -> Iterator[Any]:
        if isinstance(value, list):
            yield from value[bounds]

    return step


def _filter(condition: str) -> Step:
    condition = condition.strip()
    sign = _OPERATOR.search(condition, 1)
    if sign is None or not condition[sign.end():].strip():
        exists = _operand(condition)
        return lambda value: (item for item in _all(value) if exists(item))
    left, right = (_operand(part.strip()) for part in (condition[:sign.start()], condition[sign.end():]))
    compare = _COMPARE[sign[0]]

    def holds(item: Any) -> bool:
        lefts, rights = left(item), right(item)
        if len(lefts) != 1 or len(rights) != 1:
            return False
        try:
            return compare(lefts[0], rights[0])
        except TypeError:
            return False

    return lambda value: (item for item in _all(value) if holds(item))


def _operand(text: str) -> Callable[[Any], list[Any]]:
    text = text.strip()
    if text.startswith(("@", "$", ".")):
        parse(text)
        return lambda item: find(item, text)
    if text[:1] in ("'", '"') and text[-1:] == text[:1]:
        literal: Any = text[1:-1]
    else:
        try:
            literal = json.loads(text)
        except ValueError:
            raise JsonPathError(f"unrecognized character in action: {text!r}") from None
    return lambda _item: [literal]
