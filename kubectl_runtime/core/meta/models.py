"""Converts the official client's models, using the models' own descriptions (`openapi_types`, `attribute_map`).

The `kubernetes` package is never imported here: a program that has a model has already imported the package.
"""
from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from datetime import UTC, date, datetime
from typing import Any, TypeVar

from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.meta.gvk import ObjectRef
from kubectl_runtime.core.meta.metav1 import format_micro_time, parse_time
from kubectl_runtime.core.meta.problems import DecodeError

M = TypeVar("M")
_LIST = r"list\[(.*)\]$"
_MAP = r"dict\((?:[^,]*), (.*)\)$"


def is_model(value: object) -> bool:
    """Whether `value` is a model, or a class of models."""
    return all(isinstance(getattr(value, name, None), dict) for name in ("openapi_types", "attribute_map"))


def from_model(value: Any) -> Any:
    """A model as plain JSON values under the wire's keys, as the official client sends it; None fields are left out.

    Times have six digits of fraction: `MicroTime` requires them and `Time` accepts them.
    """
    if is_model(value):
        found = ((key, getattr(value, name)) for name, key in value.attribute_map.items())
        return {key: from_model(item) for key, item in found if item is not None}
    if isinstance(value, Mapping):
        return {key: from_model(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [from_model(item) for item in value]
    if isinstance(value, datetime):
        return format_micro_time(value if value.tzinfo else value.replace(tzinfo=UTC))
    if isinstance(value, date):
        return value.isoformat()
    return value


def to_model(plain: Any, model: type[M], ref: ObjectRef | None = None) -> M:
    """Plain JSON values as an instance of `model`. Raises RequestError if `model` is not a model class, and DecodeError
    for bad content."""
    if not isinstance(model, type) or not is_model(model):
        raise RequestError(f"{model!r} is not a model class of the official client (such as kubernetes.client.V1Pod)")
    try:
        built: M = _build(plain, model, sys.modules[model.__module__.rpartition(".")[0]])
    except (TypeError, ValueError, AttributeError) as error:
        raise DecodeError(ref, "$", f"does not fit {model.__name__}: {type(error).__name__}") from None
    return built


def _build(plain: Any, model: type, models: Any) -> Any:
    described: Any = model
    arguments = {name: _convert(plain[key], described.openapi_types[name], models)
                 for name, key in described.attribute_map.items() if plain.get(key) is not None}
    return model(**arguments)


def _convert(plain: Any, declared: str, models: Any) -> Any:
    if plain is None or declared in ("object", "str", "int", "float", "bool"):
        return plain
    if declared == "datetime":
        return parse_time(plain)
    if found := re.match(_LIST, declared):
        return [_convert(item, found[1], models) for item in plain]
    if found := re.match(_MAP, declared):
        return {key: _convert(item, found[1], models) for key, item in plain.items()}
    inner = getattr(models, declared, None)
    return plain if inner is None else _build(plain, inner, models)
