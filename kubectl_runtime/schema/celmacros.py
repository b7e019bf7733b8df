"""Rewrites the text of expressions that use two features of cel-go that the engine lacks: macros of two variables, and
named formats.

- `list.all(i, v, P)`, `map.exists(k, v, P)`, `existsOne`, `exists_one`: `i` is the index, `k` the key, `v` the value
- `transformList(i, v, T)`, `transformList(i, v, P, T)`: a list of the results
- `transformMap(k, v, T)`, `transformMap(k, v, P, T)`: a map with the same keys
- `transformMapEntry(k, v, T)`, `transformMapEntry(k, v, P, T)`: one map, merged from the results
- `format.dns1123Label().validate(text)`: an optional list of errors, empty for a valid text
- `format.named("uri")`: an optional format, empty for an unknown name

The engine accepts neither new macros nor functions that return optional values. Therefore the expanded expression binds
the receiver to a name, and makes the optional values itself:

    self.all(k, v, v > 0)     cel.bind(r, self, kubernetes__keys(r).all(k, cel.bind(v, r[k], v > 0)))

An expression without these names is not changed. An expression that cannot be parsed is not changed either, because
the compiler reports the error. A compiler error in an expanded expression names no column. Each element counts as one
of the engine's 10,000 iterations, and each bound name as one of its 32 levels. The time is linear in the length of the
text.
"""
from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator
from typing import Any

from kubectl_runtime.schema.cellibrary import Function
from kubectl_runtime.schema.formats import NAMED_CHECKS

_CANDIDATE = re.compile(r"\.\s*(?:all|exists|exists_one|existsOne|transform(?:List|Map|MapEntry)|validate|named)\s*\(")
_TOKEN = re.compile(r"""(?P<space>(?:\s|//[^\n]*)+)
    | (?P<text>[bB]?[rR](?:\"\"\"(?:(?!\"\"\").)*\"\"\"|'''(?:(?!''').)*'''|"[^"\n]*"|'[^'\n]*')
        |[bB]?(?:\"\"\"(?:\\.|(?!\"\"\").)*\"\"\"|'''(?:\\.|(?!''').)*'''|"(?:\\.|[^"\\\n])*"
        |'(?:\\.|[^'\\\n])*'))
    | (?P<word>[A-Za-z_]\w*|`[^`\n]*`) | (?P<number>\d\w*(?:\.\d\w*)?) | (?P<sign>.)""", re.VERBOSE | re.DOTALL)
_CLOSED_BY = {"(": ")", "[": "]", "{": "}"}
_DEEPEST, _MOST = 200, 600  # greatest depth of brackets, and number of bound names
_TESTS = {"all": "all", "exists": "exists", "exists_one": "exists_one", "existsOne": "exists_one"}
_TRANSFORMS = ("transformList", "transformMap", "transformMapEntry")
_NAMES = {*_TESTS, *_TRANSFORMS, "validate", "named"}


@functools.lru_cache(maxsize=4096)
def expanded(expression: str) -> str:
    """`expression` rewritten for the engine; unchanged if nothing has to be rewritten."""
    if not _CANDIDATE.search(expression):
        return expression
    try:
        return _Expansion(expression).text()
    except _NotReadable:
        return expression


class _NotReadable(Exception):
    """Brackets do not match, or the expression is deeper or longer than any real rule. The compiler then
    reports the error."""


class _Expansion:
    """Expands one expression. A value is a piece of text with the fields, calls and indexes that follow the piece."""

    def __init__(self, expression: str) -> None:
        self._tokens = [(str(found.lastgroup), found[0]) for found in _TOKEN.finditer(expression)]
        self._at = self._names = self._depth = 0

    def text(self) -> str:
        [whole] = self._parts("")
        return whole

    def _parts(self, end: str) -> list[str]:
        """The expanded parts between commas, up to the closing bracket `end`, without an empty last part."""
        self._depth += 1
        if self._depth > _DEEPEST:
            raise _NotReadable
        parts: list[str] = []
        pieces: list[str] = []
        start: int | None = None  # start of the value that the next field, call or index applies to
        while self._at < len(self._tokens):
            kind, text = self._tokens[self._at]
            self._at += 1
            if text == end and kind == "sign":
                break
            if kind == "space":
                pieces.append(" ")
            elif kind == "sign" and text in _CLOSED_BY:
                start = self._bracket(pieces, start, text)
            elif kind == "sign" and text == "," and end:
                parts.append("".join(pieces))
                pieces, start = [], None
            elif kind == "sign":
                if text in ")]}":
                    raise _NotReadable
                pieces.append(text)
                start = start if text == "." or (text == "?" and "".join(pieces[-2:-1]) == ".") else None
            else:
                start = len(pieces) if start is None or not _is_open(pieces) or text == "in" else start
                pieces.append(text)
                start = None if text == "in" else start
        else:
            if end:
                raise _NotReadable
        self._depth -= 1
        last = "".join(pieces)
        return [*parts, last] if last.strip() or (not parts and not end) else parts

    def _bracket(self, pieces: list[str], start: int | None, opening: str) -> int:
        inner = self._parts(_CLOSED_BY[opening])
        start = len(pieces) if start is None or _is_open(pieces) else start
        if opening == "(":
            words = (place for place in range(len(pieces) - 1, start, -1) if pieces[place].strip())
            name, dot = next(words, start), next(words, start)
            if dot > start and pieces[dot] == "." and pieces[name] in _NAMES:
                found = self._call("".join(pieces[start:dot]), pieces[name], inner)
                if found is not None:
                    pieces[start:] = [found]
                    return start
        pieces.append(f"{opening}{','.join(inner)}{_CLOSED_BY[opening]}")
        return start

    def _call(self, receiver: str, name: str, given: list[str]) -> str | None:
        """The text that replaces a call; None for a call that stays as it is."""
        if name == "validate" and len(given) == 1:
            found = self._name()
            return (f"cel.bind({found}, kubernetes__validate({receiver}, {given[0]}), "
                    f"{found}.size() == 0 ? optional.none() : optional.of({found}))")
        if name == "named" and receiver.strip() == "format" and len(given) == 1:
            found = self._name()
            return (f"cel.bind({found}, {given[0]}, kubernetes__isFormat({found}) ? "
                    f"optional.of(kubernetes__format({found})) : optional.none())")
        key, value = (part.strip() for part in (*given, "", "")[:2])
        if not (key.isidentifier() and value.isidentifier() and key != value):
            return None
        within = self._name()

        def each(body: str) -> str:
            return f"cel.bind({value}, {within}[{key}], {body})"

        if name in _TESTS and len(given) == 3:
            keys = f"kubernetes__keys({within})"
            return f"cel.bind({within}, {receiver}, {keys}.{_TESTS[name]}({key}, {each(given[2])}))"
        if name in _TRANSFORMS and len(given) in (3, 4):
            return self._transformed(name, receiver, key, each, within, given)
        return None

    def _transformed(self, name: str, receiver: str, key: str, each: Callable[[str], str], within: str,
                     given: list[str]) -> str:
        kept, keys = self._name(), f"kubernetes__keys({within})"
        if len(given) == 4:
            keys = f"{keys}.filter({key}, {each(given[2])})"
        made = f"{kept}.map({key}, {each(given[-1])})"
        if name == "transformMap":
            made = f"kubernetes__zip({kept}, {made})"
        elif name == "transformMapEntry":
            made = f"kubernetes__merge({made})"
        return f"cel.bind({within}, {receiver}, cel.bind({kept}, {keys}, {made}))"

    def _name(self) -> str:
        self._names += 1
        if self._names > _MOST:
            raise _NotReadable
        return f"kubernetes__{self._names}"


def _is_open(pieces: list[str]) -> bool:
    """Whether the next piece continues the last one: a field after ``.`` or ``.?``."""
    last = next((piece for piece in reversed(pieces) if piece.strip()), "")
    return last in (".", "?")


def functions() -> Iterator[Function]:
    """The functions that expanded expressions call, and a function for each named format."""
    yield Function("kubernetes__keys", ("[dyn]",), "[int]", lambda items: list(range(len(items))), member=False)
    yield Function("kubernetes__keys", ("{dyn}",), "[string]", list, member=False)
    yield Function("kubernetes__zip", ("[dyn]", "[dyn]"), "dyn",
                   lambda keys, values: dict(zip(keys, values, strict=True)), member=False)
    yield Function("kubernetes__merge", ("[dyn]",), "{dyn}", _merged, member=False)
    for name in NAMED_CHECKS:
        yield Function(f"format.{name}", (), "Format", lambda name=name: name, member=False)
    yield Function("kubernetes__isFormat", ("string",), "bool", NAMED_CHECKS.__contains__, member=False)
    yield Function("kubernetes__format", ("string",), "Format", str, member=False)
    yield Function("kubernetes__validate", ("Format", "string"), "[string]",
                   lambda name, text: NAMED_CHECKS[name](text), member=False)


def _merged(maps: list[dict[Any, Any]]) -> dict[Any, Any]:
    found: dict[Any, Any] = {}
    for entry in maps:
        for key, value in entry.items():
            if key in found:
                raise ValueError(f"insert failed: key '{key}' already exists")
            found[key] = value
    return found
