"""Server-side tables: the columns of a resource type and the cells of an object, as ``kubectl get`` shows them.

A `Column` knows how to compute its cell from an object and the time of the request. Types without
columns of their own show Name and Age (built-in kinds: as Created At, see `CREATED_AT`); columns of custom resources
come from their CRD by way of `custom_columns`. Priority 1 is shown by ``-o wide`` only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from kubectl_runtime.apiserver.output.jsonpath import JsonPathError, find, shown
from kubectl_runtime.apiserver.storage.registry import Cell, Column, ServedResource

Object = dict[str, Any]

_RFC3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)")
NAME_DESCRIPTION = "Name must be unique within a namespace. Cannot be updated."
AGE_DESCRIPTION = "CreationTimestamp is a timestamp representing the server time when this object was created, in UTC."


def name_cell(obj: Object, _now: datetime) -> Any:
    """The object's name."""
    return obj.get("metadata", {}).get("name", "")


def age_cell(obj: Object, now: datetime) -> Any:
    """How long ago the object was created: ``5m3s``."""
    return age(obj.get("metadata", {}).get("creationTimestamp"), now)


def created_cell(obj: Object, _now: datetime) -> Any:
    """The time of creation itself, which kubectl turns into an age."""
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
    """The columns of a type; the generic ones if it declares none."""
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
    """Columns from a CRD version's ``additionalPrinterColumns``; without any, Name and Age."""
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
        return _typed(values[0], kind, now) if values else None  # surprising: the first of several values

    return cell


def _typed(value: Any, kind: str, now: datetime) -> Any:
    """A value as a cell of the column's type; one that does not fit is shown as null, as the real server does."""
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
    """The time since a timestamp in kubectl's words; ``<unknown>`` without one, ``<invalid>`` if it is no time."""
    if not timestamp:
        return "<unknown>"
    try:
        then = datetime.fromisoformat(timestamp)
    except ValueError:
        return "<invalid>"
    return human_duration((now - (then if then.tzinfo else then.replace(tzinfo=UTC))).total_seconds())


def human_duration(seconds: float) -> str:
    """A duration as kubectl abbreviates it: 119s, 5m3s, 14m, 5h3m, 2d4h, 30d, 2y5d; a future one is ``<invalid>``.

    Up to a second in the future is still 0s, since clocks differ.
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
