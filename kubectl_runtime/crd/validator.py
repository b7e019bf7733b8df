"""`Validator`: what the API server would say of an object of some definition, rules included, without a server.

    Validator.of(definition).violations(content, old)       of somebody else's kind, say
    widget.violations(old)                                  of a class of one's own: the same

As on the server, unknown fields are dropped and defaults filled in first.
"""
from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.codec.sameness import json_copy
from kubectl_runtime.schema.causes import Cause
from kubectl_runtime.schema.defaulting import apply_defaults, prune
from kubectl_runtime.schema.structural import declares_rules
from kubectl_runtime.schema.validation import NOTHING, schema_causes

if TYPE_CHECKING:
    from kubectl_runtime.schema.rules import Rules


class Validator:
    """The schema of one version of a kind, ready to check objects. Safe for concurrent use; made once, used often.

    >>> class Small(Struct):
    ...     size: Annotated[int, Rule("self < 3", message="too large")]
    >>> class Box(CustomResource, group="example.com", version="v1", kind="Box"):
    ...     spec: Small
    >>> [problem.field for problem in Box(name="a", spec=Small(5)).violations()]
    ['spec.size']
    """

    def __init__(self, schema: Mapping[str, Any]) -> None:
        """`schema`: an openAPIV3Schema; it is not changed, and must not change. Nothing is compiled yet."""
        self._schema = dict(schema)

    @classmethod
    def of(cls, definition: Mapping[str, Any], version: str | None = None) -> Validator:
        """The Validator of a CustomResourceDefinition's version, by default the stored one. Raises RequestError if that
        version does not exist or has no schema."""
        versions = definition["spec"]["versions"]
        for found in versions:
            schema = (found.get("schema") or {}).get("openAPIV3Schema")
            if schema and (found["name"] == version if version else found.get("storage")):
                return cls(schema)
        raise RequestError(f"{definition['metadata']['name']} has no schema for {version or 'the stored version'}; its "
                           f"versions: {', '.join(found['name'] for found in versions)}")

    def violations(self, new: Mapping[str, Any], old: Mapping[str, Any] | None = None) -> list[Cause]:
        """What is wrong with the object `new`, field by field, and with `old`, with the update from that one. Both are
        left as they are. Raises MissingExtra if there are rules and the extra `cel` is not installed."""
        now, before = self._as_stored(new), NOTHING if old is None else self._as_stored(old)
        found = schema_causes(now, self._schema, before)
        if self._rules is None:
            return found
        from kubectl_runtime.schema.rules import checked_after

        return checked_after(found, self._rules, now, before)

    def rule_causes(self) -> list[Cause]:
        """What is wrong with the rules themselves; without the extra `cel` only what shows without compiling them."""
        if not declares_rules(self._schema):
            return []
        # What knows CEL is half of the cost of importing this package, and most kinds have no rules.
        from kubectl_runtime.schema.cel import MISSING_EXTRA
        from kubectl_runtime.schema.rules import rule_definition_causes

        return [cause for cause in rule_definition_causes(self._schema) if MISSING_EXTRA not in cause.message]

    @functools.cached_property
    def _rules(self) -> Rules | None:
        if not declares_rules(self._schema):
            return None
        from kubectl_runtime.schema.rules import rules_of

        return rules_of(self._schema)

    def _as_stored(self, content: Mapping[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = json_copy(dict(content))
        prune(found, self._schema)
        apply_defaults(found, self._schema)
        return found
