"""Label selectors: parse, build, render, match; and the text of field selectors.

    Selector.parse("app=web,tier in (a,b),!legacy")        text as kubectl takes it
    Selector.labels(app="web") & Selector.exists("tier")   built
    selector.matches(obj.labels)                           as the API server would

As there: `!=` and `notin` also match objects without the key; an empty selector matches everything.

Wherever the library asks for a selector it takes each of these forms, and raises RequestError for anything else:

    labels    text | Selector | {"app": "web"} | LabelSelector | its plain form, {"matchLabels": {…}} | official model
    fields    text | {"metadata.name": "a"}

Text is sent as it is: the server is its judge.
"""
from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

import msgspec

from kubectl_runtime.core.base.building import converted
from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.meta.metav1 import LabelSelector, LabelSelectorRequirement
from kubectl_runtime.core.meta.models import from_model, is_model

_WORDS = {"=": "In", "in": "In", "!=": "NotIn", "notin": "NotIn", "exists": "Exists", "!": "DoesNotExist"}
_OPERATORS = {"In": "in", "NotIn": "notin", "=": "=", "!=": "!=", "Exists": "exists", "DoesNotExist": "!"}


class Requirement(msgspec.Struct, frozen=True):
    """One requirement on one label; `operator` is `=`, `!=`, `in`, `notin`, `exists`, `!`, `gt` or `lt`.

    Raises RequestError for another operator, and for a key or a value that no label can have: rendered, it might say
    something else (`a,b` would be two requirements).
    """

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.operator not in _MATCHERS:
            raise RequestError(f"label {self.key!r}: {self.operator!r} is not one of {', '.join(_MATCHERS)}")
        if not isinstance(self.key, str) or not re.fullmatch(_KEY, self.key) or not _has_length_of_key(self.key):
            raise RequestError(f"{self.key!r} is not a key of a label: {_KEY_FORM}")
        for value in self.values:
            if not isinstance(value, str) or len(value) > _LONGEST or not re.fullmatch(_VALUE, value):
                raise RequestError(f"label {self.key!r}: {value!r} is not a value of a label: {_VALUE_FORM}")

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether an object with these labels meets it."""
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


class Selector(msgspec.Struct, frozen=True):
    """A label selector: all of its requirements must hold. Immutable; `str()` is what requests carry.

    >>> selector = Selector.labels(app="web") & Selector.not_in("tier", ["test"])
    >>> str(selector)
    'app=web,tier notin (test)'
    >>> selector.matches({"app": "web"})
    True
    """

    requirements: tuple[Requirement, ...] = ()

    @classmethod
    def labels(cls, labels: Mapping[str, str] | None = None, /, **more: str) -> Selector:
        """A selector for objects that have each of these labels with this value: `Selector.labels(app="web")`."""
        return cls(tuple(Requirement(key, "=", (value,)) for key, value in {**(labels or {}), **more}.items()))

    @classmethod
    def of(cls, selection: LabelSelection | None) -> Selector:
        """A selector from a text, a mapping, a LabelSelector, or a Selector; None selects everything. Raises
        RequestError for anything else."""
        found = label_selection(selection)
        if isinstance(found, str):
            return cls.parse(found)
        return cls() if found is None else found

    @classmethod
    def is_in(cls, key: str, values: Iterable[str]) -> Selector:
        """A selector for objects whose label `key` has one of these values. Raises RequestError without a value, and
        for text in place of a list."""
        return cls((_with_values(key, "in", values),))

    @classmethod
    def not_in(cls, key: str, values: Iterable[str]) -> Selector:
        """A selector for objects without the label `key`, or with none of these values in it."""
        return cls((_with_values(key, "notin", values),))

    @classmethod
    def exists(cls, key: str) -> Selector:
        """A selector for objects that have the label `key`, with any value."""
        return cls((Requirement(key, "exists"),))

    @classmethod
    def absent(cls, key: str) -> Selector:
        """A selector for objects without the label `key`."""
        return cls((Requirement(key, "!"),))

    @classmethod
    def parse(cls, text: str) -> Selector:
        """The selector that a text in kubectl's syntax means: `app=web,tier in (a, b)`. Raises RequestError, with the
        part that is wrong."""
        return cls(tuple(_parse_requirement(part) for part in _split(text)))

    @classmethod
    def from_label_selector(cls, selector: LabelSelector | None) -> Selector:
        """The selector that a LabelSelector means, the form in which objects carry it. Raises RequestError for an
        unknown operator."""
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

    def to_label_selector(self) -> LabelSelector:
        """The LabelSelector that selects the same, the form in which objects carry it; `!=` becomes `NotIn` with one
        value. Raises RequestError for `>` and `<`, which that form does not have."""
        labels: dict[str, str] = {}
        expressions = []
        for requirement in self.requirements:
            if requirement.operator == "=" and labels.get(requirement.key, requirement.values[0]) == (
                    requirement.values[0]):
                labels[requirement.key] = requirement.values[0]
                continue
            operator = _WORDS.get(requirement.operator)
            if operator is None:
                raise RequestError(f"a LabelSelector cannot say {requirement}: it has In, NotIn, Exists, DoesNotExist")
            expressions.append(LabelSelectorRequirement(key=requirement.key, operator=operator,
                                                        values=list(requirement.values) or None))
        return LabelSelector(match_labels=labels or None, match_expressions=expressions or None)

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


LabelSelection: TypeAlias = Selector | LabelSelector | Mapping[str, Any] | str
"""What selects objects by their labels; official models are taken too, which have no type here."""
FieldSelection: TypeAlias = Mapping[str, str] | str
"""What selects objects by their fields."""


def label_selection(given: LabelSelection | None) -> Selector | str | None:
    """An argument for a label selector as an immutable value; None selects everything. Raises RequestError."""
    if given is None or isinstance(given, Selector | str):
        return given
    plain: Any = from_model(given) if not isinstance(given, type) and is_model(given) else given
    if isinstance(plain, Mapping):
        if not isinstance(plain.get("matchLabels"), Mapping) and not isinstance(plain.get("matchExpressions"), list):
            return Selector.labels(plain)
        try:
            plain = converted(dict(plain), _StrictLabelSelector)
        except msgspec.ValidationError as error:
            raise RequestError(f"no label selector: {error}") from None
    if isinstance(plain, LabelSelector):
        return Selector.from_label_selector(plain)
    raise RequestError(f"a value of type {type(given).__name__} is not a label selector: "
                       "give text, a Selector, a mapping of labels or a LabelSelector")


class _StrictLabelSelector(LabelSelector, frozen=True, forbid_unknown_fields=True):
    """What is not understood would select too much."""


def field_selection(given: FieldSelection | None) -> str | None:
    """An argument for a field selector as text; None selects everything. Raises RequestError."""
    if given is None or isinstance(given, str):
        return given
    if isinstance(given, Mapping):
        return fields(given)
    raise RequestError(f"a value of type {type(given).__name__} is not a field selector: give text or a mapping from "
                       "field to value")


def fields(mapping: Mapping[str, str] | None = None, /, **more: str) -> str:
    """A field selector as text: `fields({"metadata.name": "a"})`, or `fields(name="a", namespace="b")` for metadata
    fields.

    Raises RequestError for names and values that are not text.
    """
    pairs = {**(mapping or {}), **{f"metadata.{key}": value for key, value in more.items()}}
    for key, value in pairs.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise RequestError(f"field {key!r}: {value!r} is not text")
    return ",".join(f"{key}={_escape(value)}" for key, value in pairs.items())


def _escape(value: str) -> str:
    return re.sub(r"([\\,=])", r"\\\1", value)


def _has_length_of_key(key: str) -> bool:
    prefix, _, name = key.rpartition("/")
    return len(prefix) <= _LONGEST_PREFIX and len(name) <= _LONGEST


def _with_values(key: str, operator: str, values: Iterable[str]) -> Requirement:
    found = () if isinstance(values, str) else tuple(values)  # the letters of a text are not meant
    if not found:
        raise RequestError(f"label {key!r}: {operator} needs a list of at least one value, not {values!r}")
    return Requirement(key, operator, found)


def _split(text: str) -> list[str]:
    """The comma-separated parts; commas inside parentheses do not separate."""
    parts = re.split(r",(?![^(]*\))", text)
    return [part.strip() for part in parts] if text.strip() else []


_KEY = r"(?:[A-Za-z0-9][A-Za-z0-9.-]*/)?[A-Za-z0-9](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?"
_VALUE = r"(?:[A-Za-z0-9](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?)?"
_LONGEST = 63
"""Characters of a value, and of a key behind its prefix."""
_LONGEST_PREFIX = 253
_PLAIN = f"letters and digits, with -, _ and . inside, {_LONGEST} at most"
_KEY_FORM = f"a key is {_PLAIN}, such as 'app' or 'example.com/tier'"
_VALUE_FORM = f"a value is {_PLAIN}, or empty"
_COMPARISON = rf"({_KEY})\s*(==|=|!=|>|<)\s*({_VALUE})$"
_SET = rf"({_KEY})\s+(in|notin)\s*\(([^()]*)\)$"
_EXISTENCE = rf"(!?)\s*({_KEY})$"
"""Texts, which `re` compiles and keeps when they are first needed: most programs start without selectors."""
_SIGNS = {"==": "=", "=": "=", "!=": "!=", ">": "gt", "<": "lt"}


def _parse_requirement(part: str) -> Requirement:
    if found := re.match(_COMPARISON, part):
        return Requirement(found[1], _SIGNS[found[2]], (found[3],))
    if found := re.match(_SET, part):
        values = tuple(value.strip() for value in found[3].split(","))
        if all(re.fullmatch(_VALUE, value) for value in values):
            return Requirement(found[1], found[2], values)
    if found := re.match(_EXISTENCE, part):
        return Requirement(found[2], "!" if found[1] else "exists")
    raise RequestError(f"malformed label selector: {part!r} is neither key, !key, key=value, key!=value, "
                       "key in (…), key notin (…), key>n nor key<n")
