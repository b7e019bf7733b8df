"""From the body of a PATCH request to the patch in it; each function raises the 400 that the real server answers."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import msgspec

from kubectl_runtime.apiserver.encoding.body import (
    NO_KEYS,
    Keys,
    may_repeat_keys,
    operation_keys,
    parse_json,
    parse_yaml,
)
from kubectl_runtime.apiserver.errors import bad_request, bare_500
from kubectl_runtime.apiserver.managedfields.typed_merge import go_value
from kubectl_runtime.manifests.scalars import whole_numbers

Object = dict[str, Any]

MERGE_PATCH = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC_MERGE_PATCH = "application/strategic-merge-patch+json"
APPLY_YAML = "application/apply-patch+yaml"
APPLY_CBOR = "application/apply-patch+cbor"

_FRACTION = re.compile(rb"\d[.eE]")
_MEMBERS = ("op", "path", "from", "value")
_GO_MAP = "map[string]interface {}"
_GO_NAMES = {dict: "object", list: "array", str: "string", bool: "bool", int: "number", float: "number"}


def read_merge_patch(body: bytes) -> tuple[Object, Keys]:
    """A JSON merge patch: an object."""
    patch, keys = _decoded(body, dict, _GO_MAP)
    if patch is None:
        raise bad_request("Invalid JSON Patch")
    return patch, keys


def read_strategic_merge_patch(body: bytes) -> tuple[Object, Keys]:
    """A strategic merge patch: an object; null is an empty one."""
    patch, keys = _decoded(body, dict, _GO_MAP)
    return patch or {}, keys


def read_json_patch(body: bytes) -> tuple[list[Any], Keys]:
    """A JSON patch: a list of objects whose op, path and from are texts; null is an empty one."""
    decoded, keys = _decoded(body, list, "[]handlers.jsonPatchOp")
    operations: list[Any] = decoded or []
    for operation in operations:
        if not isinstance(operation, dict | None):
            raise _mismatch(operation, "Go value of type handlers.jsonPatchOp")
        for key in ("op", "path", "from"):
            value = (operation or {}).get(key)
            if not isinstance(value, str | None):
                raise _mismatch(value, f"Go struct field jsonPatchOp.{key} of type string")
    return operations, operation_keys(operations, _MEMBERS, keys)


def read_configuration(body: bytes, api_version: str, kind: str) -> tuple[Object, Keys]:
    """The configuration of a server-side apply, in YAML or JSON, of the kind that the path names."""
    try:
        document, keys = _json_or_yaml(body)
    except ValueError as error:
        raise bad_request(f"error decoding YAML: error converting YAML to JSON: {error}") from None
    if not isinstance(document, dict | None):
        raise bad_request("error decoding YAML: error unmarshaling JSON: while decoding JSON: json: cannot unmarshal "
                          f"{_GO_NAMES[type(document)]} into Go value of type {_GO_MAP}")
    configuration: Object = document or {}
    found = [value if isinstance(value := configuration.get(key), str) else "" for key in ("apiVersion", "kind")]
    if found != [api_version, kind]:
        group_version = found[0] if "/" in found[0] else "/" + found[0]
        raise bad_request(f"invalid object type: {group_version}, Kind={found[1]}")
    metadata = configuration.get("metadata")
    if not isinstance(metadata, dict | None):
        title = api_version if "/" in api_version else "/" + api_version
        raise bare_500(f"failed to create typed patch object (/; {title}, Kind={kind}): .metadata: expected map, got "
                       + go_value(metadata))
    return configuration, keys


def _json_or_yaml(body: bytes) -> tuple[Any, Keys]:
    """JSON is YAML too, but much quicker to read as what it is: most clients send it."""
    try:
        value = msgspec.json.decode(body)
        if not may_repeat_keys(body, value):
            return (whole_numbers(value) if _FRACTION.search(body) else value), NO_KEYS
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    return parse_yaml(body)


def _decoded(body: bytes, wanted: type, go_type: str) -> tuple[Any, Keys]:
    """The JSON value if it is of the wanted type or null, and its keys; those of the result will be sorted."""
    try:
        value, keys = parse_json(body)
    except ValueError as error:
        raise bad_request(f"error decoding patch: {error}") from None
    if value is not None and not isinstance(value, wanted):
        raise _mismatch(value, f"Go value of type {go_type}")
    return value, replace(keys, ordered=False)


def _mismatch(value: Any, target: str) -> Exception:
    return bad_request(f"error decoding patch: json: cannot unmarshal {_GO_NAMES[type(value)]} into {target}")
