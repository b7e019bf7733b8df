"""The check of an applied configuration against its schema: types, undeclared fields, list items that cannot be told
apart.

The texts are those of the real server, which answers them as 500 without a reason; Go's way to print values is part
of them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from kubectl_runtime.apiserver.managedfields.elements import ItemError, item_element
from kubectl_runtime.apiserver.managedfields.fieldset import element_text
from kubectl_runtime.apiserver.schemas import Schema


def typed_errors(value: Any, schema: Schema) -> str:
    """What is wrong with a configuration, as one text; "" if nothing is."""
    errors = [f"{path}: {message}" if path else message for path, message in _errors(value, schema, "")]
    if len(errors) > 1:
        return "\n".join(["errors:", *("  " + error for error in errors)])
    return "".join(errors)


def _errors(value: Any, schema: Schema, path: str) -> Iterator[tuple[str, str]]:
    kind = schema.kind
    if value is None or kind == "opaque":
        return
    if kind == "scalar":
        if message := _scalar_error(value, schema.scalar):
            yield path, message
    elif kind == "list":
        if not isinstance(value, list):
            yield path, f"expected list, got {go_value(value)}"
        else:
            yield from _list_errors(value, schema, path)
    elif isinstance(value, dict):
        for key in sorted(value):
            below = schema.field(key)
            if below is None:
                yield f"{path}.{key}", "field not declared in schema"
                return
            yield from _errors(value[key], below, f"{path}.{key}")
    elif kind != "any":
        yield path, f"expected map, got {go_value(value)}"


def _list_errors(items: list[Any], schema: Schema, path: str) -> Iterator[tuple[str, str]]:
    seen: set[str] = set()
    for index, item in enumerate(items):
        position = f"[{index}]"
        if schema.list_type != "atomic":
            try:
                element = item_element(schema, item)
            except ItemError as error:
                yield path, f"element {index}: {error}"
                return
            position = element_text(element)
            if element in seen:
                yield path, f"duplicate entries for key {position}"
            seen.add(element)
        if schema.element is not None:
            yield from _errors(item, schema.element, path + position)


def _scalar_error(value: Any, scalar: str) -> str:
    if scalar == "string":
        return "" if isinstance(value, str) else f"expected string, got {go_syntax(value)}"
    if scalar == "numeric":
        number = isinstance(value, int | float) and not isinstance(value, bool)
        return "" if number else f"expected numeric (int or float), got {go_type(value)}"
    if scalar == "boolean":
        return "" if isinstance(value, bool) else f"expected boolean, got {go_value(value)}"
    return f"expected any scalar, got {go_value(value)}" if isinstance(value, dict | list) else ""


def go_value(value: Any) -> str:
    """A wrapped value as Go's %v prints it: ``&{x}``."""
    return "&{" + go_plain(value) + "}"


def go_syntax(value: Any) -> str:
    """A wrapped value as Go's %#v prints it: ``&value.valueUnstructured{Value:5}``."""
    return "&value.valueUnstructured{Value:" + _syntax(value) + "}"


def go_type(value: Any) -> str:
    """The Go type of a decoded JSON value."""
    names = {str: "string", bool: "bool", int: "int64", float: "float64", list: "[]interface {}"}
    return names.get(type(value), "map[string]interface {}")


def go_plain(value: Any) -> str:
    """A decoded JSON value as Go's %v prints it: ``map[a:[1 2]]``."""
    if isinstance(value, dict):
        return "map[" + " ".join(f"{key}:{go_plain(value[key])}" for key in sorted(value)) + "]"
    if isinstance(value, list):
        return "[" + " ".join(go_plain(item) for item in value) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    return "<nil>" if value is None else str(value)


def _syntax(value: Any) -> str:
    if isinstance(value, dict):
        body = ", ".join(f"{json.dumps(key)}:{_syntax(value[key])}" for key in sorted(value))
        return "map[string]interface {}{" + body + "}"
    if isinstance(value, list):
        return "[]interface {}{" + ", ".join(_syntax(item) for item in value) + "}"
    return "interface {}(nil)" if value is None else json.dumps(value, ensure_ascii=False)
