"""What custom resources with /scale must have at the paths of their scale: numbers of replicas, and a text."""

from __future__ import annotations

from typing import Any

from kubectl_runtime.apiserver import errors
from kubectl_runtime.apiserver.errors import Cause

Object = dict[str, Any]

_MOST = (1 << 31) - 1
_GO_TYPES = {str: "string", bool: "bool", int: "int64", float: "float64", list: "[]interface {}",
             dict: "map[string]interface {}", type(None): "<nil>"}


def scale_causes(obj: Object, paths: tuple[str, str, str] | None, *, with_spec: bool) -> list[Cause]:
    """The causes at the paths (spec replicas, status replicas, selector); `with_spec` leaves the first one out if
    false."""
    if paths is None:
        return []
    spec, status, selector = paths
    causes = _replicas(obj, spec) if with_spec else []
    causes += _replicas(obj, status)
    if selector:
        _, problem = _look_up(obj, selector, str)
        causes += [errors.invalid_value(selector, "", problem)] if problem else []
    return causes


def _replicas(obj: Object, path: str) -> list[Cause]:
    number, problem = _look_up(obj, path, int)
    if not problem and number is not None and number < 0:
        problem = "should be a non-negative integer"
    elif not problem and number is not None and number > _MOST:
        problem = f"should be less than or equal to {_MOST}"
    return [errors.invalid_value(path, number or 0, problem)] if problem else []


def _look_up(obj: Object, path: str, wanted: type) -> tuple[Any, str]:
    """(the value at a path or None, why it cannot be one)."""
    found: Any = obj
    parts = path.removeprefix(".").split(".")
    for index, part in enumerate(parts):
        if not isinstance(found, dict):
            return None, _problem(parts[:index], found, "map[string]interface{}")
        if part not in found:
            return None, ""
        found = found[part]
    return (found, "") if type(found) is wanted else (None, _problem(parts, found, _GO_TYPES[wanted]))


def _problem(parts: list[str], value: Any, wanted: str) -> str:
    return (f".{'.'.join(parts)} accessor error: {_printed(value)} is of the type {_GO_TYPES[type(value)]}, "
            f"expected {wanted}")


def _printed(value: Any) -> str:
    if value is None:
        return "<nil>"
    return str(value).lower() if isinstance(value, bool) else str(value)
