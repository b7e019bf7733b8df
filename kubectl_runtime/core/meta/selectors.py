"""Label selectors: parse, build, render, match; and the text of field selectors.

    Selector.parse("app=web,tier in (a,b),!legacy")        text in kubectl's syntax
    Selector.labels(app="web") & Selector.exists("tier")   built
    selector.matches(obj.labels)                           as the API server would

As in the API server, `!=` and `notin` also match objects without the key; an empty selector matches everything.

An argument for a label selector is text, a `Selector`, a mapping `{"app": "web"}`, a `LabelSelector` or its plain form
`{"matchLabels": {…}}`, or an official model; for a field selector it is text or `{"metadata.name": "a"}`. Anything else
raises RequestError. Text is sent unchanged. `check_label_selector` and `check_field_selector` refuse selectors that
every server would refuse, for callers that would otherwise repeat the request forever.

A `ShardSelector` selects objects by a hash of their uid or namespace. Kubernetes 1.36 divides lists and watches by such
hashes (KEP-5866, the feature gate ShardedListAndWatch). A `ShardSelector` is always a value, never text.
"""
from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from math import inf
from typing import Any, Literal, TypeAlias, get_args

import msgspec

from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.base.wire import converted
from kubectl_runtime.core.meta.metav1 import LabelSelector, LabelSelectorRequirement
from kubectl_runtime.core.meta.models import from_model, is_model

_WORDS = {"=": "In", "in": "In", "!=": "NotIn", "notin": "NotIn", "exists": "Exists", "!": "DoesNotExist"}
_OPERATORS = {"In": "in", "NotIn": "notin", "=": "=", "!=": "!=", "Exists": "exists", "DoesNotExist": "!"}


_NUMBERS_OF_VALUES = {"in": (1, inf), "notin": (1, inf), "exists": (0, 0), "!": (0, 0)}
"""The least and greatest number of values for these operators; all others take one value."""


class Requirement(msgspec.Struct, frozen=True):
    """One requirement on one label; `operator` is `=`, `!=`, `in`, `notin`, `exists`, `!`, `gt` or `lt`.

    Raises RequestError for another operator, and for a key or value that no label can have. Such a key or value could
    change the meaning of the selector's text (`a,b` would be two requirements).
    """

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.operator not in _MATCHERS:
            raise RequestError(f"label {self.key!r}: operator {self.operator!r} is not one of {', '.join(_MATCHERS)}")
        if not isinstance(self.key, str) or not _has_length_of_key(self.key) or not re.fullmatch(_KEY, self.key):
            raise RequestError(f"{shown(self.key)} is not a key of a label: {_KEY_FORM}")
        for value in self.values:
            if not isinstance(value, str) or len(value) > _LONGEST or not re.fullmatch(_VALUE, value):
                raise RequestError(f"label {self.key!r}: {shown(value)} is not a value of a label: {_VALUE_FORM}")
        least, most = _NUMBERS_OF_VALUES.get(self.operator, (1, 1))
        if not least <= len(self.values) <= most:
            raise RequestError(f"label {self.key!r}: {self.operator} cannot take {len(self.values)} values")
        if self.operator in ("gt", "lt") and not (self.values[0].isdigit() and int(self.values[0]) <= _LARGEST):
            raise RequestError(f"label {self.key!r}: {self.values[0]!r} is not a number to compare with")

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether an object with these labels meets the requirement."""
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
    """A label selector: all of its requirements must hold. Immutable; `str()` is its form in requests.

    >>> selector = Selector.labels(app="web") & Selector.not_in("tier", ["test"])
    >>> str(selector)
    'app=web,tier notin (test)'
    >>> selector.matches({"app": "web"})
    True
    """

    requirements: tuple[Requirement, ...] = ()

    @classmethod
    def labels(cls, labels: Mapping[str, str] | None = None, /, **more: str) -> Selector:
        """A selector for objects that have all of these labels with these values: `Selector.labels(app="web")`."""
        return cls(tuple(Requirement(key, "=", (value,)) for key, value in {**(labels or {}), **more}.items()))

    @classmethod
    def of(cls, selection: LabelSelection | None) -> Selector:
        """A selector from text, a mapping, a LabelSelector, or a Selector; None selects everything. Raises RequestError
        for anything else."""
        found = label_selection(selection)
        if isinstance(found, str):
            return cls.parse(found)
        return cls() if found is None else found

    @classmethod
    def is_in(cls, key: str, values: Iterable[str]) -> Selector:
        """A selector for objects whose label `key` has one of these values. Raises RequestError if there are no values,
        or for a string instead of a list."""
        return cls((_with_values(key, "in", values),))

    @classmethod
    def not_in(cls, key: str, values: Iterable[str]) -> Selector:
        """A selector for objects without the label `key`, or whose label has none of these values."""
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
        """The selector for a text in kubectl's syntax: `app=web,tier in (a, b)`. Raises RequestError, which names
        the wrong part."""
        return cls(tuple(_parse_requirement(part) for part in _parts(text)))

    @classmethod
    def from_label_selector(cls, selector: LabelSelector | None) -> Selector:
        """Make a selector from a LabelSelector, the form of selectors in objects. Raises RequestError for an unknown
        operator."""
        if selector is None:
            return cls()
        built = list(cls.labels(selector.match_labels).requirements)
        for expression in selector.match_expressions or ():
            operator = _OPERATORS.get(expression.operator)
            if operator is None:
                raise RequestError(f"unknown operator {expression.operator!r} for label {expression.key!r}: "
                                   "use In, NotIn, Exists or DoesNotExist")
            takes_values = operator in ("in", "notin")
            built.append(_with_values(expression.key, operator, expression.values or ()) if takes_values
                         else Requirement(expression.key, operator))
        return cls(tuple(built))

    def to_label_selector(self) -> LabelSelector:
        """The equivalent LabelSelector, the form of selectors in objects; `!=` becomes `NotIn` with one value. Raises
        RequestError for `>` and `<`, which a LabelSelector cannot express."""
        labels: dict[str, str] = {}
        expressions = []
        for requirement in self.requirements:
            if requirement.operator == "=" and labels.get(requirement.key, requirement.values[0]) == (
                    requirement.values[0]):
                labels[requirement.key] = requirement.values[0]
                continue
            operator = _WORDS.get(requirement.operator)
            if operator is None:
                raise RequestError(f"a LabelSelector cannot express {requirement}: it has only In, NotIn, Exists "
                                   "and DoesNotExist")
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
"""A selection of objects by their labels; official models are accepted too, but have no type here."""
FieldSelection: TypeAlias = Mapping[str, str] | str
"""A selection of objects by their fields."""


def label_selection(given: LabelSelection | None) -> Selector | str | None:
    """Convert a label selector argument to an immutable value; None selects everything. Raises RequestError."""
    if given is None or isinstance(given, Selector | str):
        return given
    plain: Any = from_model(given) if not isinstance(given, type) and is_model(given) else given
    if isinstance(plain, Mapping):
        if not isinstance(plain.get("matchLabels"), Mapping) and not isinstance(plain.get("matchExpressions"), list):
            return Selector.labels(plain)
        try:
            plain = converted(dict(plain), _StrictLabelSelector)
        except msgspec.ValidationError as error:
            raise RequestError(f"not a label selector: {error}") from None
    if isinstance(plain, LabelSelector):
        return Selector.from_label_selector(plain)
    raise RequestError(f"a value of type {type(given).__name__} is not a label selector: "
                       "give text, a Selector, a mapping of labels or a LabelSelector")


def check_label_selector(given: LabelSelection | None) -> None:
    """Raise RequestError for a text that every server refuses as a label selector."""
    if isinstance(given, str):
        Selector.parse(given)


class _StrictLabelSelector(LabelSelector, frozen=True, forbid_unknown_fields=True):
    """A LabelSelector that refuses unknown fields, because ignoring them would select too much."""


def field_selection(given: FieldSelection | None) -> str | None:
    """Convert a field selector argument to text; None selects everything. Raises RequestError."""
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


def shown(text: object) -> str:
    """A part of a selector, quoted for messages: at most one line long."""
    quoted = repr(text)
    return quoted if len(quoted) <= 100 else f"{quoted[:100]}… ({len(quoted)} characters)"


def _has_length_of_key(key: str) -> bool:
    prefix, _, name = key.rpartition("/")
    return len(prefix) <= _LONGEST_PREFIX and len(name) <= _LONGEST


def _with_values(key: str, operator: str, values: Iterable[str]) -> Requirement:
    found = () if isinstance(values, str) else tuple(values)  # `tuple` would split a string into letters
    if not found:
        raise RequestError(f"label {key!r}: {operator} needs a list of at least one value, not {values!r}")
    return Requirement(key, operator, found)


def check_field_selector(text: str) -> None:
    """Raise RequestError for a text that every server refuses as a field selector. Only the server knows which fields a
    kind has."""
    for part in re.findall(r"(?:[^\\,]|\\.?)+", text, re.DOTALL):
        field = re.match(r"[^\s!=\\]+(?:!=|==?)", part)
        if field is None or re.fullmatch(r"(?:[^\\=]|\\[\\,=])*", part[field.end():]) is None:
            raise RequestError(f"malformed field selector: {shown(part)} is neither field=value nor field!=value, "
                               r"where a comma, an equals sign and a backslash in the value are written \,, \= and \\")


def _parts(text: str) -> Iterator[list[str]]:
    """The tokens of each requirement; commas inside parentheses do not separate requirements."""
    tokens = [token for token in re.findall(_TOKENS, text) if token[0] not in _SPACE]
    if not tokens:
        return
    part: list[str] = []
    inside = False
    for token in tokens:
        if token == "," and not inside:
            yield part
            part = []
            continue
        inside = token == "(" or (inside and token != ")")
        part.append(token)
    yield part


_SPACE = " \t\r\n"
_TOKENS = rf"[{_SPACE}]+|==|!=|[=!<>(),]|[^{_SPACE}=!<>(),]+"
_DOMAIN = r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?"
_KEY = rf"(?:{_DOMAIN}(?:\.{_DOMAIN})*/)?[A-Za-z0-9](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?"
_VALUE = r"(?:[A-Za-z0-9](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?)?"
_LONGEST = 63
"""The maximum length of a value, and of a key after its prefix."""
_LONGEST_PREFIX = 253
_PLAIN = f"letters and digits, with -, _ and . inside, {_LONGEST} at most"
_KEY_FORM = f"a key is {_PLAIN}, such as 'app' or 'example.com/tier'"
_VALUE_FORM = f"a value is {_PLAIN}, or empty"
"""The patterns above are texts, which `re` compiles and caches when they are first needed: most programs start without
selectors."""
_SIGNS = {"==": "=", "=": "=", "!=": "!=", ">": "gt", "<": "lt"}


_OF_SYNTAX = frozenset("=!<>(),") | {"==", "!="}
_LARGEST = 2**63 - 1
"""The largest number with which a server compares a label."""


def _parse_requirement(part: list[str]) -> Requirement:
    try:
        match part:
            case [key]:
                return Requirement(key, "exists")
            case ["!", key]:
                return Requirement(key, "!")
            case [key, sign] if sign in _SIGNS:
                return Requirement(key, _SIGNS[sign], ("",))
            case [key, sign, value] if sign in _SIGNS and value not in _OF_SYNTAX:
                return Requirement(key, _SIGNS[sign], (value,))
            case [key, "in" | "notin" as word, "(", *values, ")"]:
                return Requirement(key, word, _listed(values))
    except RequestError as error:
        raise RequestError(f"malformed label selector: {error}") from None
    raise RequestError(f"malformed label selector: {shown(' '.join(part))} is neither key, !key, key=value, "
                       "key!=value, key in (…), key notin (…), key>n nor key<n")


def _listed(tokens: list[str]) -> tuple[str, ...]:
    """The values between two parentheses; an empty place before or after a comma is an empty value."""
    values, follows = [""], False
    for token in tokens:
        if token == ",":
            values.append("")
            follows = False
        elif follows or token in _OF_SYNTAX:
            raise RequestError(f"in {shown(' '.join(tokens))}, values must be separated by commas")
        else:
            values[-1], follows = token, True
    return tuple(dict.fromkeys(values))


ShardField = Literal["uid", "namespace"]
"""The fields whose hash can divide objects into shards."""

HASHES = 1 << 64
"""The number of hash values; the largest hash is one less."""

_BASIS, _PRIME = 0xCBF29CE484222325, 0x100000001B3


def shard_hash(text: str) -> int:
    """The 64-bit FNV-1a hash of `text` in UTF-8. Takes about 3 µs for a uid."""
    found = _BASIS
    for byte in text.encode():
        found = (found ^ byte) * _PRIME & 0xFFFFFFFFFFFFFFFF
    return found


_hash_of_namespace = lru_cache(maxsize=4096)(shard_hash)
"""Cached, since thousands of objects share a namespace."""


class ShardSelector(msgspec.Struct, frozen=True):
    """Selects the objects whose uid or namespace has a hash in one of `ranges`. A range is a pair of numbers from 0 to
    2**64: the first hash in the range, and the first hash after it.

    The ranges are sorted and joined, so that selectors of the same objects are equal. A selector without ranges selects
    nothing. Raises RequestError for invalid ranges, and if `by` is neither `uid` nor `namespace`.

    >>> ShardSelector.part("uid", 3, 16)
    ShardSelector(by='uid', ranges=((3458764513820540928, 4611686018427387904),))
    >>> maps = Api.all(client, ConfigMap)
    >>> sum(len(maps.list(ListParams(shard=ShardSelector.part("uid", n, 4)))) for n in range(4)) == len(maps.list())
    True
    """

    by: ShardField
    ranges: tuple[tuple[int, int], ...] = ((0, HASHES),)

    def __post_init__(self) -> None:
        if self.by not in get_args(ShardField):
            raise RequestError(f"a ShardSelector must be by uid or namespace, not by {self.by!r}")
        msgspec.structs.force_setattr(self, "ranges", _joined(self.ranges))

    @classmethod
    def part(cls, by: ShardField, number: int, parts: int) -> ShardSelector:
        """The selector for one of `parts` shards of about equal size; `number` counts the shards from 0. Raises
        RequestError if there is no such shard."""
        if type(number) is not int or type(parts) is not int or not 0 <= number < parts:
            raise RequestError(f"there is no part {number!r} of {parts!r}: parts are counted from 0")
        # The number of a hash's shard is `hash * parts >> 64`. So a shard begins at `number * HASHES / parts`, rounded
        # up, and ends where the next shard begins.
        first, end = -(-number * HASHES // parts), -(-(number + 1) * HASHES // parts)
        return cls(by, ((first, end),))

    def hash_of(self, uid: str, namespace: str | None) -> int:
        """The hash that decides whether an object is selected."""
        return shard_hash(uid) if self.by == "uid" else _hash_of_namespace(namespace or "")

    def matches(self, uid: str, namespace: str | None) -> bool:
        """Whether the object with this uid and namespace is selected."""
        found = self.hash_of(uid, namespace)
        return any(first <= found < end for first, end in self.ranges)

    def __str__(self) -> str:
        """The text for a server. Servers require a range: for a selector that selects nothing, the text contains the
        smallest range."""
        return " || ".join(f"shardRange(object.metadata.{self.by}, '0x{first:016x}', '0x{end:016x}')"
                           for first, end in self.ranges or ((0, 1),))

    @property
    def words(self) -> str:
        """A short description for logs: `3 of 16 by uid`."""
        if not self.ranges:
            return f"none by {self.by}"
        if len(self.ranges) == 1:
            (first, end), = self.ranges
            parts = round(HASHES / (end - first))
            number = part_of_hash(first, parts)
            if number < parts and self == ShardSelector.part(self.by, number, parts):
                return f"{number} of {parts} by {self.by}"
        return f"{', '.join(f'{first:016x}-{end:016x}' for first, end in self.ranges)} by {self.by}"


def part_of_hash(found: int, parts: int) -> int:
    """The number of the shard that contains this hash, as in `ShardSelector.part`."""
    return found * parts >> 64


def _joined(ranges: object) -> tuple[tuple[int, int], ...]:
    """The ranges in order, with adjacent ranges joined."""
    joined: list[tuple[int, int]] = []
    try:
        pairs = sorted((first, end) for first, end in ranges)  # type: ignore[attr-defined] # may be any value
    except (TypeError, ValueError):
        raise RequestError(f"the ranges of a ShardSelector must be pairs of numbers, not {ranges!r}") from None
    for first, end in pairs:
        if type(first) is not int or type(end) is not int or not 0 <= first < end <= HASHES:
            raise RequestError("a range of a ShardSelector must be two ascending numbers from 0 to 2**64, not "
                               f"{first!r}, {end!r}")
        if joined and first <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(end, joined[-1][1])
        else:
            joined.append((first, end))
    return tuple(joined)
