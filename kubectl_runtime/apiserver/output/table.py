"""Server-side tables: the columns of a resource type and the cells of an object, as ``kubectl get`` shows them.

A `Column` computes its cell from an object and the time of the request. Types without their own columns have Name and
Age; built-in kinds have Created At instead of Age (see `CREATED_AT`). `custom_columns` builds the columns of custom
resources from their CRD. kubectl shows columns of priority 1 only with ``-o wide``.

`find(value, path)` evaluates the JSONPath of printer columns: ``.spec.x``, ``['a.b']``, ``[0]``, ``[1:3]``, ``[*]``,
``..x``, ``[?(…)]``. It returns the selected values in order; a missing field selects nothing. A filter compares a path
from ``@`` with a literal or another path by ``== != < <= > >=``, or tests whether the path exists.
"""
from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from kubectl_runtime.apiserver.storage import Cell, Column, ServedResource
from kubectl_runtime.apiserver.wire import Object

Step = Callable[[Any], Iterator[Any]]

_NAME = re.compile(r"(?:[^.\[\]{}\s\\]|\\.)+")
_OPERATOR = re.compile("==|!=|<=|>=|<|>")
_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "==": lambda a, b: a == b, "!=": lambda a, b: a != b, "<": lambda a, b: a < b, "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b, ">=": lambda a, b: a >= b}


class JsonPathError(ValueError):
    """A JSONPath is invalid."""


def find(value: Any, path: str) -> list[Any]:
    """The values that the path selects. Raises JsonPathError for an invalid path."""
    found = [value]
    for step in parse(path):
        found = [child for parent in found for child in step(parent)]
    return found


def shown(value: Any) -> str:
    """A value as text: strings unchanged, other values as JSON."""
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"), ensure_ascii=False)


@lru_cache(maxsize=1024)
def parse(path: str) -> tuple[Step, ...]:
    """The steps of a JSONPath. Raises JsonPathError."""
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
    """The index of the bracket that closes the bracket at `start`; brackets in quotes do not count."""
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


_RFC3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)")
NAME_DESCRIPTION = "Name must be unique within a namespace. Cannot be updated."
AGE_DESCRIPTION = "CreationTimestamp is a timestamp representing the server time when this object was created, in UTC."


def name_cell(obj: Object, _now: datetime) -> Any:
    return obj.get("metadata", {}).get("name", "")


def age_cell(obj: Object, now: datetime) -> Any:
    """The time since the object was created: ``5m3s``."""
    return age(obj.get("metadata", {}).get("creationTimestamp"), now)


def created_cell(obj: Object, _now: datetime) -> Any:
    """The time of creation, which kubectl turns into an age."""
    return obj.get("metadata", {}).get("creationTimestamp")


NAME = Column("Name", name_cell, format="name", description=NAME_DESCRIPTION)
AGE = Column("Age", age_cell, description=AGE_DESCRIPTION)
CREATED_AT = Column("Created At", created_cell, type="date", description=AGE_DESCRIPTION)
CUSTOM_AGE = Column("Age", lambda obj, now: age(created_cell(obj, now), now), type="date", description=AGE_DESCRIPTION)
SCALE_COLUMNS = (
    Column("Name", name_cell, description=NAME_DESCRIPTION),
    Column("Desired", lambda obj, _now: obj["spec"].get("replicas", 0), type="integer"),
    Column("Available", lambda obj, _now: obj["status"].get("replicas", 0), type="integer"), AGE)


def columns_of(resource_type: ServedResource) -> tuple[Column, ...]:
    """The columns of a type; the generic columns if the type declares none."""
    if resource_type.columns:
        return resource_type.columns
    return (NAME, CUSTOM_AGE) if resource_type.is_custom else (NAME, CREATED_AT)


def table_definitions(resource_type: ServedResource) -> list[Object]:
    """The ``columnDefinitions`` of a Table of this type."""
    return [column.definition() for column in columns_of(resource_type)]


def table_cells(resource_type: ServedResource, obj: Object, now: datetime) -> list[Any]:
    """The cells of one object; `obj` has kind and apiVersion."""
    return [column.cell(obj, now) for column in columns_of(resource_type)]


def custom_columns(declared: Iterable[Object]) -> tuple[Column, ...]:
    """The Name column and a CRD version's ``additionalPrinterColumns``; Name and Age if it declares none."""
    return (NAME, *([_custom_column(entry) for entry in declared] or [CUSTOM_AGE]))


def _custom_column(entry: Object) -> Column:
    path, kind = entry["jsonPath"], entry["type"]
    description = entry.get("description") or f"Custom resource definition column (in JSONPath format): {path}"
    return Column(entry["name"], _path_cell(path, kind), kind, entry.get("format", ""), entry.get("priority", 0),
                  description)


def _path_cell(path: str, kind: str) -> Cell:
    def cell(obj: Object, now: datetime) -> Any:
        try:
            values = find(obj, path)
        except JsonPathError:
            return None
        return _typed(values[0], kind, now) if values else None  # surprising: only the first of several values

    return cell


def _typed(value: Any, kind: str, now: datetime) -> Any:
    """A value as a cell of the column's type; None if it does not fit, as in the real server."""
    if kind == "integer":
        return int(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
    if kind == "number":
        return value if isinstance(value, int | float) and not isinstance(value, bool) else None
    if kind == "boolean":
        return value if isinstance(value, bool) else None
    if kind == "date":
        return (age(value, now) if _RFC3339.fullmatch(value) else "<invalid>") if isinstance(value, str) else None
    if kind == "string":
        return "<no value>" if value is None else shown(value)
    return None


def age(timestamp: str | None, now: datetime) -> str:
    """The time since a timestamp as kubectl shows it; ``<unknown>`` without a timestamp, ``<invalid>`` if invalid."""
    if not timestamp:
        return "<unknown>"
    try:
        then = datetime.fromisoformat(timestamp)
    except ValueError:
        return "<invalid>"
    return human_duration((now - (then if then.tzinfo else then.replace(tzinfo=UTC))).total_seconds())


def human_duration(seconds: float) -> str:
    """A duration in kubectl's short form: 119s, 5m3s, 14m, 5h3m, 2d4h, 30d, 2y5d.

    A negative duration (a time in the future) gives ``<invalid>``, but above -2 s it gives 0s, because clocks differ.
    """
    whole = int(seconds)
    if whole < -1:
        return "<invalid>"
    if whole < 0:
        return "0s"
    if whole < 120:
        return f"{whole}s"
    minutes, hours, days = whole // 60, whole // 3600, whole // 86400
    if minutes < 10:
        return _two(minutes, "m", whole % 60, "s")
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return _two(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    if hours < 24 * 8:
        return _two(days, "d", hours % 24, "h")
    if hours < 24 * 365 * 2:
        return f"{days}d"
    if hours < 24 * 365 * 8:
        return _two(days // 365, "y", days % 365, "d")
    return f"{days // 365}y"


def _two(large: int, large_unit: str, small: int, small_unit: str) -> str:
    return f"{large}{large_unit}{small}{small_unit}" if small else f"{large}{large_unit}"
