"""`Validator`: what the API server would say of an object of some definition, rules included, without a server.

    Validator.of(definition).violations(content, old)       of somebody else's kind, say
    widget.violations(old)                                  of a class of one's own: the same

As on the server, unknown fields are dropped and defaults filled in first.
"""
from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.codec.jsonvalues import json_copy
from kubectl_runtime.schema.causes import Cause
from kubectl_runtime.schema.defaulting import apply_defaults
from kubectl_runtime.schema.pruning import prune
from kubectl_runtime.schema.rules import Rules, checked_after, rules_of
from kubectl_runtime.schema.validation import NOTHING, schema_causes


class Validator:
    """The schema of one version of a kind, ready to judge objects. Safe for concurrent use; made once, used often."""

    def __init__(self, schema: Mapping[str, Any]) -> None:
        """`schema`: an openAPIV3Schema; it is not changed, and must not change. Nothing is compiled yet."""
        self._schema = dict(schema)

    @classmethod
    def of(cls, definition: Mapping[str, Any], version: str | None = None) -> Validator:
        """Of a CustomResourceDefinition's version, by default the stored one. Raises RequestError if it has none with
        a schema."""
        versions = definition["spec"]["versions"]
        for found in versions:
            schema = (found.get("schema") or {}).get("openAPIV3Schema")
            if schema and (found["name"] == version if version else found.get("storage")):
                return cls(schema)
        raise RequestError(f"{definition['metadata']['name']} has no schema for {version or 'the stored version'}; its "
                           f"versions: {', '.join(found['name'] for found in versions)}")

    def violations(self, new: Mapping[str, Any], old: Mapping[str, Any] | None = None) -> list[Cause]:
        """What is wrong with an object, field by field; with `old`, with the update from that one. Both are left as
        they are. Raises ImportError if there are rules and the extra `cel` is not installed."""
        now, before = self._as_stored(new), NOTHING if old is None else self._as_stored(old)
        return checked_after(schema_causes(now, self._schema, before), self._rules, now, before)

    @functools.cached_property
    def _rules(self) -> Rules | None:
        return rules_of(self._schema)

    def _as_stored(self, content: Mapping[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = json_copy(dict(content))
        prune(found, self._schema)
        apply_defaults(found, self._schema)
        return found
