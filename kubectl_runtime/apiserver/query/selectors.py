"""Label and field selectors, and the numbers and durations of queries, in the real server's words.

`parse_labels(text)` and `parse_fields(text)` return a selector with `.matches(…)`; both raise a 400. An empty text
selects everything. Numbers are 64 bits, decimal, without spaces. Durations are in Go's notation (``1h30m``, ``1.5s``).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from kubectl_runtime.apiserver.errors import StatusError, bad_request, go_value
from kubectl_runtime.apiserver.objectmeta.names import label_value_errors, qualified_name_errors
from kubectl_runtime.core.meta.godurations import nanoseconds_of

_LONGEST = 20  # digits that a number of 64 bits can have, so that no endless text is converted


def parse_int(text: str) -> int:
    """A signed number; ValueError with the real server's words if it is none."""
    return _parse("ParseInt", r"[+-]?[0-9]+", text, -(1 << 63), (1 << 63) - 1)


def parse_uint(text: str) -> int:
    """A number without sign, such as a resourceVersion; ValueError with the real server's words if it is none."""
    return _parse("ParseUint", r"[0-9]+", text, 0, (1 << 64) - 1)


def _parse(function: str, pattern: str, text: str, lowest: int, highest: int) -> int:
    why = "invalid syntax"
    if re.fullmatch(pattern, text):
        sign, digits = ("-" if text.startswith("-") else ""), text.lstrip("+-").lstrip("0") or "0"
        if len(digits) <= _LONGEST and lowest <= (number := int(sign + digits)) <= highest:
            return number
        why = "value out of range"
    raise ValueError(f"strconv.{function}: parsing {go_value(text)}: {why}")


_TOKEN = re.compile(r"\s*(?:(==|!=|=|!|<|>|\(|\)|,)|([^\s=!<>(),]+))")
_OR_END, _OR_IDENTIFIER = "',', ')' or identifier", "',', or identifier"
_OPERATORS = ("in", "notin", "=", "==", "!=", ">", "<")


@dataclass(frozen=True, slots=True)
class Requirement:
    """One term: the operator is exists, !exists, in, notin, gt or lt."""

    key: str
    operator: str
    values: frozenset[str] = frozenset()
    number: int = 0

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether labels satisfy the term."""
        value = labels.get(self.key)
        if self.operator == "exists":
            return value is not None
        if self.operator == "!exists":
            return value is None
        if self.operator == "in":
            return value is not None and value in self.values
        if self.operator == "notin":  # also without the label
            return value is None or value not in self.values
        if value is None or not _is_number(value):
            return False
        return int(value) > self.number if self.operator == "gt" else int(value) < self.number


@dataclass(frozen=True, slots=True)
class LabelSelector:
    """All requirements must hold."""

    requirements: tuple[Requirement, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.requirements)

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether labels satisfy the selector."""
        return all(requirement.matches(labels) for requirement in self.requirements)


@dataclass(frozen=True, slots=True)
class FieldSelector:
    """(field, equal?, value) triples that must all hold."""

    terms: tuple[tuple[str, bool, str], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.terms)

    def exact(self, field: str) -> str | None:
        """The value that the selector asks of a field, None if it leaves it open."""
        return next((value for key, equal, value in self.terms if equal and key == field), None)

    def matches(self, fields: Mapping[str, str]) -> bool:
        """Whether field values satisfy the selector; a missing field counts as empty."""
        return all((fields.get(key, "") == value) is equal for key, equal, value in self.terms)


class _Lexer:
    def __init__(self, text: str) -> None:
        self.tokens: list[str] = []
        position = 0
        while match := _TOKEN.match(text, position):
            self.tokens.append(match[1] or match[2])
            position = match.end()
        self.position = 0

    def peek(self) -> str:
        return self.tokens[self.position] if self.position < len(self.tokens) else ""

    def next(self) -> str:
        token = self.peek()
        self.position += 1
        return token


def _is_identifier(token: str) -> bool:
    return bool(token) and token not in ("=", "==", "!=", "!", "<", ">", "(", ")", ",")


def parse_labels(text: str) -> LabelSelector:
    """Parse a label selector."""
    lexer = _Lexer(text)
    requirements: list[Requirement] = []
    while True:
        token = lexer.peek()
        if token == "":
            return LabelSelector(tuple(requirements))
        if token != "!" and not _is_identifier(token):
            raise bad_request(f"found '{token}', expected: !, identifier, or 'end of string'")
        requirements.append(_requirement(lexer))
        token = lexer.next()
        if token == "":
            return LabelSelector(tuple(requirements))
        if token != ",":
            raise bad_request(f"found '{token}', expected: ',' or 'end of string'")
        if lexer.peek() != "!" and not _is_identifier(lexer.peek()):
            raise bad_request(f"found '{lexer.peek()}', expected: identifier after ','")


def _bad(why: str) -> StatusError:
    return bad_request(f"unable to parse requirement: {why}")


def _requirement(lexer: _Lexer) -> Requirement:
    negated = lexer.peek() == "!"
    if negated:
        lexer.next()
    key = lexer.next()
    if not _is_identifier(key):
        raise _bad(f"found '{key}', expected: identifier")
    if wrong := qualified_name_errors(key):
        raise _bad(f"<nil>: Invalid value: {go_value(key)}: {'; '.join(wrong)}")
    if negated:
        return Requirement(key, "!exists")
    operator = lexer.peek()
    if operator in ("", ","):
        return Requirement(key, "exists")
    lexer.next()
    if operator not in _OPERATORS:
        raise _bad(f"found '{operator}', expected: in, notin, =, ==, !=, gt, lt")
    values = _set(lexer) if operator in ("in", "notin") else [_exact(lexer)]
    compares = operator in ("<", ">")
    wrong = []
    for index, value in enumerate(sorted(set(values))):
        if compares and not _is_number(value):
            wrong.append(f"values[{index}]: Invalid value: {go_value(value)}: for 'Gt', 'Lt' operators, the value "
                         "must be an integer")
        if why := label_value_errors(value):
            wrong.append(f"values[{index}][{key}]: Invalid value: {go_value(value)}: {'; '.join(why)}")
    if wrong:
        raise _bad(wrong[0] if len(wrong) == 1 else f"[{', '.join(wrong)}]")
    if compares:
        return Requirement(key, "gt" if operator == ">" else "lt", number=int(values[0]))
    return Requirement(key, "notin" if operator in ("notin", "!=") else "in", frozenset(values))


def _is_number(text: str) -> bool:
    try:
        parse_int(text)
    except ValueError:
        return False
    return True


def _exact(lexer: _Lexer) -> str:
    token = lexer.peek()
    if token in ("", ","):
        return ""
    if not _is_identifier(token):
        raise _bad(f"found '{token}', expected: identifier")
    return lexer.next()


def _set(lexer: _Lexer) -> list[str]:
    if (opening := lexer.next()) != "(":
        raise _bad(f"found '{opening}' expected: '('")
    values: list[str] = []
    while True:
        token = lexer.next()
        if _is_identifier(token):
            values.append(token)
            token = lexer.next()
            if token not in (",", ")"):
                raise _bad(f"found '{token}', expected: ',' or ')'")
        elif token in (",", ")"):
            values.append("")
        else:
            raise _bad(f"found '{token}', expected: {_OR_IDENTIFIER if values else _OR_END}")
        if token == ")":
            return values


def parse_fields(text: str, supported: Collection[str], unsupported: str = "") -> FieldSelector:
    """Parse a field selector; a field outside of `supported` is a 400 with the text `unsupported` (``{}`` is the
    field)."""
    terms = parse_terms(text)
    for key, _, _ in terms:
        if key not in supported:
            raise bad_request((unsupported or "field label not supported: {}").format(key))
    return FieldSelector(terms)


def parse_terms(text: str) -> tuple[tuple[str, bool, str], ...]:
    """The (field, equal?, value) triples of a field selector, whatever the fields; 400 if it is malformed."""
    terms = []
    for term in sorted(_split_terms(text)):
        match = re.match(r"(.*?)(!=|==|=)(.*)", term, re.DOTALL)
        if match is None:
            raise bad_request(f"invalid selector: '{text}'; can't understand '{term}'")
        terms.append((match[1], match[2] != "!=", _unescaped(match[3])))
    return tuple(terms)


def _split_terms(text: str) -> list[str]:
    """The terms between the commas that no backslash precedes."""
    return [term for term in re.findall(r"(?:[^,\\]|\\.|\\$)+", text, re.DOTALL) if term]


def _unescaped(value: str) -> str:
    """A value without the backslashes before what needs them: a backslash, a comma, an equals sign."""
    plain = []
    for found in re.finditer(r"(\\.?)|(=)|[^\\=]+", value, re.DOTALL):
        escape, equals = found.groups()
        if equals:
            raise bad_request(f"invalid field selector: unescaped character in value: {ord('=')}")
        if escape and escape[1:] not in ("\\", ",", "="):
            raise bad_request(f"invalid field selector: invalid escape sequence: {escape}")
        plain.append(escape[1:] if escape else found[0])
    return "".join(plain)


def duration_error(text: str) -> str:
    """What is wrong with a duration; "" if nothing is."""
    try:
        nanoseconds_of(text)
    except ValueError as error:
        return str(error)
    return ""
