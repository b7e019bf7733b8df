"""JSON patch (RFC 6902) and JSON merge patch (RFC 7386) as the API server parses and applies them.

As in the real server, JSON patch is laxer than the RFC: ``test`` of a missing member against null succeeds, ``replace``
of a missing member adds it, ``add`` and ``replace`` without a value write null, indexes may be negative (``-1`` adds at
the end), ``copy`` of a missing member writes null, and text before the first slash of a pointer is ignored.
"""
from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from kubectl_runtime.apiserver.encoding import NO_KEYS, Keys, may_repeat_keys, operation_keys, parse_json, parse_yaml
from kubectl_runtime.apiserver.errors import StatusError, bad_request, bare_500, go_quoted
from kubectl_runtime.apiserver.managedfields.typed_merge import go_value
from kubectl_runtime.apiserver.wire import Object
from kubectl_runtime.core.codec.jsonbytes import json_copy
from kubectl_runtime.core.codec.views import without_nulls
from kubectl_runtime.manifests.scalars import whole_numbers

Operation = dict[str, Any]
MAX_OPERATIONS = 10_000
MAX_COPIED = 3 << 20  # bytes of JSON that a patch may copy, since copies of copies grow exponentially


class PatchFailed(Exception):
    """An operation cannot be applied; the message is that of the real server's library."""


class TestFailed(PatchFailed):
    """A ``test`` operation found another value."""

    __test__ = False  # pytest must not collect this class


@dataclass(slots=True)
class _Document:
    """The patched document; an operation may replace its root."""

    root: Any
    copied: int = 0  # bytes of JSON that were copied so far


def apply_json_patch(current: dict[str, Any], operations: list[Any]) -> dict[str, Any]:
    """`current` after all operations, as decoded JSON. `current` is not changed and shares nothing with the result.

    Raises StatusError 422 if an operation is malformed or does not apply (like the real server, without naming the
    operation), and 413 if there are more than `MAX_OPERATIONS`.
    """
    if len(operations) > MAX_OPERATIONS:
        raise StatusError(413, "RequestEntityTooLarge", "Request entity too large: The allowed maximum operations in "
                          f"a JSON patch is {MAX_OPERATIONS}, got {len(operations)}")
    try:
        result = patched(current, operations)
    except PatchFailed:
        raise rejected() from None
    if not isinstance(result, dict):
        raise rejected()
    return result


def patched(current: dict[str, Any], operations: list[Any]) -> Any:
    """The document after all operations; it may have any JSON type. Raises PatchFailed, which names the path."""
    document = _Document(json_copy(current))
    for operation in operations:
        _apply(document, operation)
    return document.root


def rejected() -> StatusError:
    """The 422 without an explanation, for a patch that does not apply."""
    return StatusError(422, "Invalid", "the server rejected our request due to an error in our request", details={})


def _apply(document: _Document, operation: Any) -> None:
    name = operation.get("op") if isinstance(operation, dict) else None
    handler = HANDLERS.get(name) if isinstance(name, str) else None
    if handler is None:
        raise PatchFailed(f"Unexpected kind: {name if isinstance(name, str) else 'unknown'}")
    handler(document, operation)


def _pointer(operation: Operation, key: str) -> str:
    pointer = operation.get(key)
    if not isinstance(pointer, str):
        raise PatchFailed(f"{operation['op']} operation failed to decode {key}: missing value")
    return pointer


def _locate(document: _Document, operation: Operation, key: str, missing: str) -> tuple[Any, str]:
    """Returns (container, last token) of a pointer. `missing` is the message if the container does not exist."""
    pointer = _pointer(operation, key)
    _, slash, rest = pointer.partition("/")
    *parents, last = [token.replace("~1", "/").replace("~0", "~") for token in rest.split("/")]
    container = document.root if slash else None
    try:
        for token in parents:
            container = _get(container, token)
    except PatchFailed:
        container = None
    if not isinstance(container, dict | list):
        raise PatchFailed(f"{operation['op']} operation does not apply: {missing.format(pointer)}: missing value")
    return container, last


@contextmanager
def _told(what: str, pointer: str) -> Iterator[None]:
    """Add the operation and its path to a PatchFailed that the block raises."""
    try:
        yield
    except PatchFailed as error:
        raise PatchFailed(f"error in {what} for path: '{pointer}': {error}") from None


def _index(token: str) -> int:
    digits = token[1:] if token[:1] in ("-", "+") else token
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 18:
        raise PatchFailed(f"strconv.Atoi: parsing {go_quoted(token)}: invalid syntax")
    return int(token)


def _existing_index(items: list[Any], token: str) -> int:
    index = _index(token)
    if not -len(items) <= index < len(items):
        raise PatchFailed(f"Unable to access invalid index: {index}: invalid index referenced")
    return index


def _get(container: Any, token: str) -> Any:
    """The member of an object (None if it is missing) or the item of an array."""
    if isinstance(container, dict):
        return container.get(token)
    if isinstance(container, list):
        return container[_existing_index(container, token)]
    raise PatchFailed("missing value")


def _add_to(container: Any, token: str, value: Any) -> None:
    if isinstance(container, dict):
        container[token] = value
    elif token == "-":
        container.append(value)
    else:
        index = _index(token)
        size = len(container) + 1
        if not -size <= index < size:
            raise PatchFailed(f"Unable to access invalid index: {index}: invalid index referenced")
        container.insert(index if index >= 0 else index + size, value)


def _remove_from(container: Any, token: str) -> None:
    if isinstance(container, list):
        del container[_existing_index(container, token)]
    elif token in container:
        del container[token]
    else:
        raise PatchFailed(f"Unable to remove nonexistent key: {token}: missing value")


def _add(document: _Document, operation: Operation) -> None:
    container, token = _locate(document, operation, "path", 'doc is missing path: "{}"')
    with _told("add", operation["path"]):
        _add_to(container, token, json_copy(operation.get("value")))


def _remove(document: _Document, operation: Operation) -> None:
    container, token = _locate(document, operation, "path", 'doc is missing path: "{}"')
    with _told("remove", operation["path"]):
        _remove_from(container, token)


def _replace(document: _Document, operation: Operation) -> None:
    value = json_copy(operation.get("value"))
    if not _pointer(operation, "path"):
        document.root = value
        return
    container, token = _locate(document, operation, "path", "doc is missing path: {}")
    if isinstance(container, dict):
        container[token] = value
        return
    try:
        container[_existing_index(container, token)] = value
    except PatchFailed:
        raise PatchFailed(
            f"replace operation does not apply: doc is missing key: {operation['path']}: missing value") from None


def _move(document: _Document, operation: Operation) -> None:
    container, token = _locate(document, operation, "from", "doc is missing from path: {}")
    with _told("move", token):
        value = _get(container, token)
        _remove_from(container, token)
    target, name = _locate(document, operation, "path", "doc is missing destination path: {}")
    with _told("move", operation["path"]):
        _add_to(target, name, value)


def _copy(document: _Document, operation: Operation) -> None:
    container, token = _locate(document, operation, "from", "doc is missing from path: {}")
    with _told("copy", token):
        value = json_copy(_get(container, token))
    document.copied += len(msgspec.json.encode(value))
    if document.copied > MAX_COPIED:
        raise PatchFailed(f"Unable to complete the copy, the accumulated size increase of copy is {document.copied}, "
                          f"exceeding the limit {MAX_COPIED}")
    target, name = _locate(document, operation, "path", "doc is missing destination path: {}")
    with _told("copy", operation["path"]):
        _add_to(target, name, value)


def _test(document: _Document, operation: Operation) -> None:
    pointer = _pointer(operation, "path")
    found = document.root
    if pointer:
        container, token = _locate(document, operation, "path", "is missing path: {}")
        with _told("test", pointer):
            found = _get(container, token)
    if not _same(found, operation.get("value")):
        raise TestFailed(f"testing value {pointer} failed: test failed")


def _same(first: Any, second: Any) -> bool:
    """Whether JSON values are equal; true differs from 1, and 1 from 1.0."""
    if type(first) is not type(second):
        return False
    if isinstance(first, dict):
        return first.keys() == second.keys() and all(_same(value, second[key]) for key, value in first.items())
    if isinstance(first, list):
        return len(first) == len(second) and all(map(_same, first, second))
    return bool(first == second)


HANDLERS: dict[str, Callable[[_Document, Operation], None]] = {
    "add": _add, "remove": _remove, "replace": _replace, "move": _move, "copy": _copy, "test": _test,
}


def apply_merge_patch(current: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    """Merge a patch into `current`: null removes a member, objects merge, other values replace the member.

    Neither argument is changed, and the result shares nothing with them. Nulls in new objects are dropped too, even
    inside new lists (unlike the RFC, but like the real server).
    """
    return _merged(json_copy(current), patch)


def _merged(result: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict) and isinstance(result.get(key), dict):
            _merged(result[key], value)
        else:
            result[key] = without_nulls(value)
    return result


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
    """Read a JSON merge patch, which must be an object."""
    patch, keys = _decoded(body, dict, _GO_MAP)
    if patch is None:
        raise bad_request("Invalid JSON Patch")
    return patch, keys


def read_strategic_merge_patch(body: bytes) -> tuple[Object, Keys]:
    """Read a strategic merge patch, which must be an object; null counts as an empty object."""
    patch, keys = _decoded(body, dict, _GO_MAP)
    return patch or {}, keys


def read_json_patch(body: bytes) -> tuple[list[Any], Keys]:
    """Read a JSON patch: a list of objects whose op, path and from are strings; null counts as an empty list."""
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
    """Read the configuration of a server-side apply from YAML or JSON. Its kind must match the URL."""
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
    """Read a body as JSON, which is much faster and which most clients send; anything else is read as YAML."""
    try:
        value = msgspec.json.decode(body)
        if not may_repeat_keys(body, value):
            return (whole_numbers(value) if _FRACTION.search(body) else value), NO_KEYS
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    return parse_yaml(body)


def _decoded(body: bytes, wanted: type, go_type: str) -> tuple[Any, Keys]:
    """The JSON value, which must be null or of the wanted type, and its keys.

    The keys are unordered, since the result of a patch has sorted keys.
    """
    try:
        value, keys = parse_json(body)
    except ValueError as error:
        raise bad_request(f"error decoding patch: {error}") from None
    if value is not None and not isinstance(value, wanted):
        raise _mismatch(value, f"Go value of type {go_type}")
    return value, replace(keys, ordered=False)


def _mismatch(value: Any, target: str) -> Exception:
    return bad_request(f"error decoding patch: json: cannot unmarshal {_GO_NAMES[type(value)]} into {target}")
