"""The rules of built-in kinds: rows of data, and the interpreter that evaluates them.

A `Rules` table holds rows. A row consists of a path and checks. The causes come in the order of the rows::

    PORT = r.Rules(
        ("name", r.DNS_LABEL, r.UNIQUE),
        ("port", r.PORT_NUMBER),
        ("protocol", r.REQUIRED, r.choice("TCP", "UDP")),
    )
    SERVICE = r.Rules(
        ("spec.type", r.FIXED),
        ("spec.ports[*]", PORT),
        r.when(r.equals("spec.type", "NodePort"), ("spec.ports", r.REQUIRED)),
    )

- A path is relative to the table's object. ``[*]`` stands for each item of a list, "" for the object itself.
- A check is a function that takes a value (None if missing) and its path, and yields a `Cause` for each error. A table
  is also a check, and skips None. Most checks skip missing and empty values, because `REQUIRED` checks for these.
- `FIXED` compares the value with the old object's value in an update. `FIXED` works only in a kind's own table, not in
  nested tables.
- `UNIQUE` compares the value with the earlier items of the same list. `UNIQUE_IF_SET` skips empty values.
- `when` applies rows only to objects for which conditions hold.

`Defaults` maps paths to default values. A default is filled in if the parent is present and the field is missing.

The modules of kinds import this module as `r`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from operator import ne
from typing import Any, NamedTuple

from kubectl_runtime.apiserver import errors
from kubectl_runtime.apiserver.errors import Cause
from kubectl_runtime.apiserver.names import (
    dns_label_errors,
    dns_subdomain_errors,
    label_value_errors,
    path_segment_errors,
    port_name_errors,
    qualified_name_errors,
)
from kubectl_runtime.apiserver.wire import Object
from kubectl_runtime.core.codec.jsonbytes import json_copy
from kubectl_runtime.core.meta.quantities import value_of

Check = Callable[[Any, str], Iterable[Cause]]
Condition = Callable[[Object], bool]
Row = tuple[Any, ...]  # a path, followed by checks
Steps = tuple[tuple[str, bool], ...]  # pairs (key, whether its value is a list to iterate over)


class Fixed(NamedTuple):
    """A check: the new value must equal the old object's value. `refuse` makes the cause from path and new value."""

    refuse: Callable[[str, Any], Cause] = errors.immutable
    of: Callable[[Any], Any] = lambda value: value  # the part of the value that is compared
    changed: Callable[[Any, Any], bool] = ne  # whether the pair (new, old) counts as a change


FIXED = Fixed()


def once_set(value: Any, before: Any) -> bool:
    """For `Fixed.changed`: whether a field that already had a value has changed. An empty field may still be set."""
    return bool(before) and bool(value != before)


def fixed(why: str) -> Fixed:
    """A check that forbids a change of the value. `why` is the message."""
    return Fixed(lambda path, _: errors.forbidden_field(path, why))


class Unique(NamedTuple):
    """A check: no earlier item of the list has the same value."""

    of: Callable[[Any], Any] = lambda value: value or ""  # the part of the value that is compared
    shown: Callable[[Any], Any] | None = None  # the value in the cause; by default the compared part
    empty: bool = True  # whether empty values are checked too


UNIQUE, UNIQUE_IF_SET = Unique(), Unique(empty=False)


class When(NamedTuple):
    """Rows that apply only to objects for which all conditions hold."""

    conditions: tuple[Condition, ...]
    rows: tuple[Row | When, ...]


def when(*parts: Condition | Row | When) -> When:
    """Apply rows only to objects for which all conditions hold. The conditions are given before the rows."""
    return When(tuple(part for part in parts if not isinstance(part, tuple)),
                tuple(part for part in parts if isinstance(part, tuple)))


_OPTIONAL: set[Any] = set()  # checks that accept missing values; a row with only such checks skips missing values


def _optional(check: Check) -> Check:
    _OPTIONAL.add(check)
    return check


class _Compiled(NamedTuple):
    conditions: tuple[Condition, ...]
    path: str
    steps: Steps
    lists: bool  # whether the path goes through lists
    optional: bool  # whether all checks accept a missing value, so that the row can skip it
    checks: tuple[Any, ...]


def _compile(rows: Iterable[Row | When], conditions: tuple[Condition, ...] = ()) -> Iterator[_Compiled]:
    for row in rows:
        if isinstance(row, When):
            yield from _compile(row.rows, (*conditions, *row.conditions))
        else:
            optional = all(isinstance(check, Rules) or check in _OPTIONAL for check in row[1:])
            yield _Compiled(conditions, row[0], _steps(row[0]), "[*]" in row[0], optional, row[1:])


def _steps(path: str) -> Steps:
    return tuple((part.removesuffix("[*]"), part.endswith("[*]")) for part in path.split(".")) if path else ()


class Rules:
    """A table of rows, compiled once. Called with an object, it returns a cause for each error."""

    def __init__(self, *rows: Row | When) -> None:
        self._rows = tuple(_compile(rows))

    def __call__(self, obj: Any, path: str = "", *, old: Object | None = None,
                 seen: dict[int, set[Any]] | None = None) -> list[Cause]:
        """Return a cause for each error of the object at `path`. For `UNIQUE`, `seen` holds values of earlier items."""
        found: list[Cause] = []
        if obj is None:
            return found
        for number, row in enumerate(self._rows):
            if row.conditions and not all(condition(obj) for condition in row.conditions):
                continue
            if row.lists:
                for value, at, siblings in _values(obj, path, row.steps, seen):
                    _check(found, row.checks, value, at, siblings, number)
                continue
            value = _value(obj, row.steps)
            if value is None and row.optional:
                continue
            at = f"{path}.{row.path}" if path and row.path else path or row.path
            before = None if old is None else _value(old, row.steps)
            _check(found, row.checks, value, at, seen, number, updated=old is not None, before=before)
        return found


def _check(found: list[Cause], checks: tuple[Any, ...], value: Any, path: str, seen: dict[int, set[Any]] | None,
           row: int, *, updated: bool = False, before: Any = None) -> None:
    for check in checks:
        if isinstance(check, Rules):
            found += check(value, path, seen=seen)
        elif isinstance(check, Fixed):
            if updated and check.changed(check.of(value), check.of(before)):
                found.append(check.refuse(path, value))
        elif isinstance(check, Unique):
            compared, known = check.of(value), ({} if seen is None else seen).setdefault(row, set())
            if compared in known and (compared or check.empty):
                found.append(errors.duplicate(path, check.shown(value) if check.shown else compared))
            known.add(compared)
        else:
            found += check(value, path)


def _values(value: Any, path: str, steps: Steps,
            seen: dict[int, set[Any]] | None) -> Iterator[tuple[Any, str, dict[int, set[Any]] | None]]:
    """The values that the steps lead to, each with its path and the values seen in earlier items."""
    for number, (key, many) in enumerate(steps, 1):
        value = value.get(key) if value else None
        path = f"{path}.{key}" if path else key
        if many:
            known: dict[int, set[Any]] = {}
            for index, item in enumerate(value or ()):
                yield from _values(item, f"{path}[{index}]", steps[number:], known)
            return
    yield value, path, seen


def _value(obj: Any, steps: Steps) -> Any:
    for key, _ in steps:
        obj = obj.get(key) if obj else None
    return obj


class Defaults:
    """Defaults by path. A default is a value, or a function that takes the parent and returns a value or None."""

    def __init__(self, values: Mapping[str, Any] | None = None, *, zero: Mapping[str, Any] | None = None) -> None:
        """`zero` maps paths to defaults for fields in which an empty text or 0 counts as missing."""
        self._rows = [(steps[:-1], "[*]" in path, steps[-1][0], value, zeros)
                      for zeros, part in ((False, values), (True, zero)) for path, value in (part or {}).items()
                      if (steps := _steps(path))]

    def __or__(self, more: Defaults) -> Defaults:
        """These defaults, followed by others."""
        both = Defaults()
        both._rows = self._rows + more._rows
        return both

    def __call__(self, obj: Object) -> None:
        """Fill in the defaults of an object, in place."""
        for steps, lists, key, value, zeros in self._rows:
            for parent in [each for each, _, _ in _values(obj, "", steps, None)] if lists else (_value(obj, steps),):
                if parent is None or (given := parent.get(key)) or (given is not None and not zeros):
                    continue
                filled = value(parent) if callable(value) else value
                if filled is not None:
                    parent[key] = json_copy(filled) if isinstance(filled, dict | list) else filled


# Conditions

def has(*paths: str) -> Condition:
    """True if each of the paths has a value, which may be empty."""
    steps = [_steps(path) for path in paths]
    return lambda obj: all(_value(obj, each) is not None for each in steps)


def absent(*paths: str) -> Condition:
    """True if none of the paths has a value."""
    steps = [_steps(path) for path in paths]
    return lambda obj: all(_value(obj, each) is None for each in steps)


def filled(*paths: str) -> Condition:
    """True if each of the paths has a value that is not empty."""
    steps = [_steps(path) for path in paths]
    return lambda obj: all(_value(obj, each) for each in steps)


def some(*paths: str) -> Condition:
    """True if at least one of the paths has a value that is not empty."""
    steps = [_steps(path) for path in paths]
    return lambda obj: any(_value(obj, each) for each in steps)


def lacks(*paths: str) -> Condition:
    """True if each of the paths has no value or an empty value."""
    found = some(*paths)
    return lambda obj: not found(obj)


def negated(condition: Condition) -> Condition:
    """True if the condition is false."""
    return lambda obj: not condition(obj)


def equals(path: str, *values: Any) -> Condition:
    """True if the value at a path is one of `values`."""
    steps = _steps(path)
    return lambda obj: _value(obj, steps) in values


# Checks

def required(why: str = "", *, unless: Callable[[Any], bool] = bool) -> Check:
    """Refuse a missing or empty value."""
    return lambda value, path: () if unless(value) else (errors.required(path, why),)


REQUIRED = required()


def present(why: str = "") -> Check:
    """Refuse a missing value; an empty value is allowed."""
    return required(why, unless=lambda value: value is not None)


def missing(why: str) -> Check:
    """Report that a field is required, whatever its value. The condition of the rule's row decides whether the check
    runs."""
    return lambda _, path: (errors.required(path, why),)


def forbidden(why: str, *, empty: bool = False) -> Check:
    """Refuse any value as forbidden. An empty value is refused only with `empty`."""
    return _optional(
        lambda value, path: (errors.forbidden_field(path, why),) if value or (empty and value is not None) else ())


def choice(*supported: str, zero: Any = None, shown: Callable[[Any], Any] = lambda value: value) -> Check:
    """Refuse a value that is not among `supported`.

    A missing or empty value is checked as `zero`, or accepted if `zero` is None. The message contains the refused
    value, after `shown` has converted it.
    """
    def check(value: Any, path: str) -> Iterable[Cause]:
        given = value or zero
        accepted = given is None or given in supported
        return () if accepted else (errors.not_supported(path, shown(given), supported),)

    return _optional(check) if zero is None else check


_ITSELF: Any = object()


def must(test: Callable[[Any], bool], why: str, *, zero: Any = None, shown: Any = _ITSELF) -> Check:
    """Refuse a value that fails a test. If `shown` is given, the message contains `shown` instead of the value.

    A missing value is tested as `zero`, or accepted if `zero` is None.
    """
    def check(value: Any, path: str) -> Iterable[Cause]:
        given = zero if value is None else value
        if given is None or test(given):
            return ()
        return (errors.invalid_value(path, given if shown is _ITSELF else shown, why),)

    return _optional(check) if zero is None else check


def at_least(least: int, why: str = "", *, zero: Any = None) -> Check:
    """Refuse a number below `least`."""
    return must(lambda value: value >= least, why or f"must be greater than or equal to {least}", zero=zero)


def between(least: int, most: int, why: str = "", *, zero: Any = None) -> Check:
    """Refuse a number that is not in a range."""
    return must(lambda value: least <= value <= most, why or f"must be between {least} and {most}, inclusive",
                zero=zero)


NATURAL = at_least(0)
PORT_NUMBER = between(1, 65535)


def prohibited(why: str) -> Check:
    """Always report a field as forbidden. The row's condition decides when the check runs."""
    return lambda _, path: (errors.forbidden_field(path, why),)


def invalid(why: str, *, shown: Any = _ITSELF) -> Check:
    """Always report a value as invalid. The row's condition decides when the check runs.

    If `shown` is given, the message contains `shown` instead of the value.
    """
    return lambda value, path: (errors.invalid_value(path, value if shown is _ITSELF else shown, why),)


def at_most_items(most: int) -> Check:
    """Refuse a list with more than `most` items."""
    return lambda value, path: (errors.too_many(path, len(value), most),) if len(value or ()) > most else ()


def each(*checks: Check) -> Check:
    """Check each item of a list. Causes have the path of the list."""
    return lambda values, path: (cause for value in values or () for check in checks for cause in check(value, path))


def quantity(test: Callable[[Any], bool], why: str) -> Check:
    """Refuse a quantity that fails a test."""
    return must(lambda value: test(value_of(value)), why)


def name(wrong: Callable[[str], Iterable[str]], *, empty: bool = False) -> Check:
    """Refuse a text in which `wrong` finds problems. An empty or missing text is checked only with `empty`."""
    def check(value: Any, path: str) -> Iterable[Cause]:
        if not value and not empty:
            return ()
        return [errors.invalid_value(path, value or "", why) for why in wrong(value or "")]

    return _optional(check) if not empty else check


DNS_LABEL, DNS_SUBDOMAIN, LABEL_VALUE = name(dns_label_errors), name(dns_subdomain_errors), name(label_value_errors)
PATH_SEGMENT, PORT_NAME = name(path_segment_errors), name(port_name_errors)
ANY_PORT_NAME = name(port_name_errors, empty=True)
ANY_LABEL, ANY_SUBDOMAIN = name(dns_label_errors, empty=True), name(dns_subdomain_errors, empty=True)
QUALIFIED, ANY_QUALIFIED = name(qualified_name_errors), name(qualified_name_errors, empty=True)
LOWERED_SUBDOMAIN = name(lambda text: dns_subdomain_errors(text.lower()))
