"""Label selectors: parse, build, render, match; and the text of field selectors.

    Selector.parse("app=web,tier in (a,b),!legacy")        text as kubectl takes it
    Selector.labels(app="web") & Selector.exists("tier")   built
    selector.matches(obj.labels)                           as the API server would

As there: `!=` and `notin` also match objects without the key; an empty selector matches everything.
"""
from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from kubectl_runtime.core.errors import RequestError
from kubectl_runtime.core.metav1 import LabelSelector

_OPERATORS = {"In": "in", "NotIn": "notin", "=": "=", "!=": "!=", "Exists": "exists", "DoesNotExist": "!"}


@dataclass(frozen=True, slots=True)
class Requirement:
    """One requirement on one label; `operator` is `=`, `!=`, `in`, `notin`, `exists`, `!`, `gt` or `lt`."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        return _MATCHERS[self.operator](labels.get(self.key), self.values)

    def __str__(self) -> str:
        if self.operator in ("=", "!="):
            return f"{self.key}{self.operator}{self.values[0]}"
        if self.operator == "exists":
            return self.key
        if self.operator == "!":
            return f"!{self.key}"
        if self.operator in ("gt", "lt"):
            return f"{self.key}{'>' if self.operator == 'gt' else '<'}{self.values[0]}"
        return f"{self.key} {self.operator} ({','.join(self.values)})"


def _compare(ordered: Callable[[int, int], bool]) -> Callable[[str | None, tuple[str, ...]], bool]:
    def matches(value: str | None, values: tuple[str, ...]) -> bool:
        try:
            return value is not None and ordered(int(value), int(values[0]))
        except ValueError:
            return False
    return matches


_MATCHERS: dict[str, Callable[[str | None, tuple[str, ...]], bool]] = {
    "=": lambda value, values: value == values[0],
    "in": lambda value, values: value in values,
    "!=": lambda value, values: value != values[0],
    "notin": lambda value, values: value not in values,
    "exists": lambda value, _: value is not None,
    "!": lambda value, _: value is None,
    "gt": _compare(lambda value, bound: value > bound),
    "lt": _compare(lambda value, bound: value < bound),
}


@dataclass(frozen=True, slots=True)
class Selector:
    """A label selector: all of its requirements must hold. Immutable; `str()` is what requests carry."""

    requirements: tuple[Requirement, ...] = ()

    @classmethod
    def labels(cls, labels: Mapping[str, str] | None = None, /, **more: str) -> Selector:
        """Equality with each of these labels."""
        return cls(tuple(Requirement(key, "=", (value,)) for key, value in {**(labels or {}), **more}.items()))

    @classmethod
    def is_in(cls, key: str, values: Iterable[str]) -> Selector:
        return cls((_with_values(key, "in", values),))

    @classmethod
    def not_in(cls, key: str, values: Iterable[str]) -> Selector:
        """The label is absent or has none of these values."""
        return cls((_with_values(key, "notin", values),))

    @classmethod
    def exists(cls, key: str) -> Selector:
        return cls((Requirement(key, "exists"),))

    @classmethod
    def absent(cls, key: str) -> Selector:
        return cls((Requirement(key, "!"),))

    @classmethod
    def parse(cls, text: str) -> Selector:
        """From kubectl's syntax. Raises RequestError, with the part that is wrong."""
        return cls(tuple(_parse_requirement(part) for part in _split(text)))

    @classmethod
    def from_label_selector(cls, selector: LabelSelector | None) -> Selector:
        """From the form that objects carry. Raises RequestError for an unknown operator."""
        if selector is None:
            return cls()
        built = list(cls.labels(selector.match_labels).requirements)
        for expression in selector.match_expressions or ():
            operator = _OPERATORS.get(expression.operator)
            if operator is None:
                raise RequestError(f"unknown operator {expression.operator!r} for label {expression.key!r}: "
                                   "In, NotIn, Exists and DoesNotExist exist")
            takes_values = operator in ("in", "notin")
            built.append(_with_values(expression.key, operator, expression.values or ()) if takes_values
                         else Requirement(expression.key, operator))
        return cls(tuple(built))

    def matches(self, labels: Mapping[str, str] | None) -> bool:
        """Whether an object with these labels is selected."""
        held = labels or {}
        return all(requirement.matches(held) for requirement in self.requirements)

    def __and__(self, other: Selector) -> Selector:
        return Selector(self.requirements + other.requirements)

    def __bool__(self) -> bool:
        return bool(self.requirements)

    def __str__(self) -> str:
        return ",".join(map(str, self.requirements))


def selector_text(selector: Selector | str | None) -> str:
    """A selector argument as a request carries it."""
    return "" if selector is None else str(selector)


def fields(mapping: Mapping[str, str] | None = None, /, **more: str) -> str:
    """A field selector: `fields({"metadata.name": "a"})`, or `fields(name="a", namespace="b")` for metadata fields."""
    pairs = {**(mapping or {}), **{f"metadata.{key}": value for key, value in more.items()}}
    return ",".join(f"{key}={_escape(value)}" for key, value in pairs.items())


def _escape(value: str) -> str:
    return re.sub(r"([\\,=])", r"\\\1", value)


def _with_values(key: str, operator: str, values: Iterable[str]) -> Requirement:
    found = tuple(values)
    if not found:
        raise RequestError(f"label {key!r}: {operator} needs at least one value")
    return Requirement(key, operator, found)


def _split(text: str) -> list[str]:
    """The comma-separated parts; commas inside parentheses do not separate."""
    parts = re.split(r",(?![^(]*\))", text)
    return [part.strip() for part in parts] if text.strip() else []


_KEY = r"(?:[A-Za-z0-9][A-Za-z0-9.-]*/)?[A-Za-z0-9](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?"
_VALUE = r"(?:[A-Za-z0-9](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?)?"
_COMPARISON = re.compile(rf"({_KEY})\s*(==|=|!=|>|<)\s*({_VALUE})$")
_SET = re.compile(rf"({_KEY})\s+(in|notin)\s*\(([^()]*)\)$")
_EXISTENCE = re.compile(rf"(!?)\s*({_KEY})$")
_SIGNS = {"==": "=", "=": "=", "!=": "!=", ">": "gt", "<": "lt"}


def _parse_requirement(part: str) -> Requirement:
    if found := _COMPARISON.match(part):
        return Requirement(found[1], _SIGNS[found[2]], (found[3],))
    if found := _SET.match(part):
        values = tuple(value.strip() for value in found[3].split(","))
        if all(re.fullmatch(_VALUE, value) for value in values):
            return Requirement(found[1], found[2], values)
    if found := _EXISTENCE.match(part):
        return Requirement(found[2], "!" if found[1] else "exists")
    raise RequestError(f"malformed label selector: {part!r} is neither key, !key, key=value, key!=value, "
                       "key in (…), key notin (…), key>n nor key<n")
