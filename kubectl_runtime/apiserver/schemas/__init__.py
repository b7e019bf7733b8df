"""Schemas of the built-in kinds and of custom resources, and what decoding needs of them (see schema.py for
`Schema`)."""

from __future__ import annotations

from kubectl_runtime.apiserver.schemas.builtin import (
           builtin,
           definition,
           definition_names,
           from_openapi,
)
from kubectl_runtime.apiserver.schemas.schema import ANY, OPAQUE, Schema
from kubectl_runtime.schema.definitions import definitions, descriptions

__all__ = ["ANY", "OPAQUE", "Schema", "builtin", "definition", "definition_names", "definitions", "descriptions",
           "from_openapi"]
