"""JSON patch (RFC 6902) as the API server applies it.

Where the real server is laxer than the RFC, so is this: ``test`` of a missing member succeeds against null,
``replace`` of a missing member adds it, ``add`` and ``replace`` without value write null, indexes may be negative
(``-1`` adds at the end), ``copy`` of a missing member writes null, and what stands before the first slash of a
pointer is ignored.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from kubectl_runtime.apiserver.errors import StatusError
from kubectl_runtime.core.codec.jsonvalues import json_copy

Operation = dict[str, Any]
MAX_OPERATIONS = 10_000
MAX_COPIED = 3 << 20  # bytes of JSON that the copies of one patch may add up to: copies of copies double each time


class _Failed(Exception):
    """An operation cannot be applied."""


@dataclass(slots=True)
class _Document:
    """The document while it is patched, which may itself be replaced."""

    root: Any
    copied: int = 0  # bytes of JSON that copies have added


def apply_json_patch(current: dict[str, Any], operations: list[Any]) -> dict[str, Any]:
    """`current` after all operations, which are decoded JSON; it is not changed itself, nothing is shared with it.

    Raises StatusError 422 if an operation is malformed or does not apply (the real server does not say which), 413 if
    there are more than `MAX_OPERATIONS`.
    """
    if len(operations) > MAX_OPERATIONS:
        raise StatusError(413, "RequestEntityTooLarge", "Request entity too large: The allowed maximum operations in "
                          f"a JSON patch is {MAX_OPERATIONS}, got {len(operations)}")
    document = _Document(json_copy(current))
    try:
        for operation in operations:
            _apply(document, operation)
    except _Failed:
        raise rejected() from None
    result = document.root
    if not isinstance(result, dict):
        raise rejected()
    return result


def rejected() -> StatusError:
    """422 without an explanation: a patch that does not apply."""
    return StatusError(422, "Invalid", "the server rejected our request due to an error in our request", details={})


def _apply(document: _Document, operation: Any) -> None:
    name = operation.get("op") if isinstance(operation, dict) else None
    handler = HANDLERS.get(name) if isinstance(name, str) else None
    if handler is None:
        raise _Failed
    handler(document, operation)


def _pointer(operation: Operation, key: str) -> str:
    pointer = operation.get(key)
    if not isinstance(pointer, str):
        raise _Failed
    return pointer


def _locate(document: _Document, pointer: str) -> tuple[Any, str]:
    """(the container, the last token) of a pointer; the container must be there."""
    _, slash, rest = pointer.partition("/")
    if not slash:
        raise _Failed
    *parents, last = [token.replace("~1", "/").replace("~0", "~") for token in rest.split("/")]
    container = document.root
    for token in parents:
        container = _get(container, token)
    if not isinstance(container, dict | list):
        raise _Failed
    return container, last


def _index(token: str) -> int:
    digits = token[1:] if token[:1] in ("-", "+") else token
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 18:
        raise _Failed
    return int(token)


def _existing_index(items: list[Any], token: str) -> int:
    index = _index(token)
    if not -len(items) <= index < len(items):
        raise _Failed
    return index


def _get(container: Any, token: str) -> Any:
    """The member, None if an object does not have it."""
    if isinstance(container, dict):
        return container.get(token)
    if isinstance(container, list):
        return container[_existing_index(container, token)]
    raise _Failed


def _add_to(container: Any, token: str, value: Any) -> None:
    if isinstance(container, dict):
        container[token] = value
    elif token == "-":
        container.append(value)
    else:
        index = _index(token)
        size = len(container) + 1
        if not -size <= index < size:
            raise _Failed
        container.insert(index if index >= 0 else index + size, value)


def _remove_from(container: Any, token: str) -> None:
    if isinstance(container, list):
        del container[_existing_index(container, token)]
    elif token in container:
        del container[token]
    else:
        raise _Failed


def _add(document: _Document, operation: Operation) -> None:
    container, token = _locate(document, _pointer(operation, "path"))
    _add_to(container, token, json_copy(operation.get("value")))


def _remove(document: _Document, operation: Operation) -> None:
    container, token = _locate(document, _pointer(operation, "path"))
    _remove_from(container, token)


def _replace(document: _Document, operation: Operation) -> None:
    pointer = _pointer(operation, "path")
    value = json_copy(operation.get("value"))
    if not pointer:
        document.root = value
        return
    container, token = _locate(document, pointer)
    if isinstance(container, list):
        container[_existing_index(container, token)] = value
    else:
        container[token] = value


def _move(document: _Document, operation: Operation) -> None:
    container, token = _locate(document, _pointer(operation, "from"))
    value = _get(container, token)
    _remove_from(container, token)
    target, name = _locate(document, _pointer(operation, "path"))
    _add_to(target, name, value)


def _copy(document: _Document, operation: Operation) -> None:
    container, token = _locate(document, _pointer(operation, "from"))
    value = json_copy(_get(container, token))
    document.copied += len(msgspec.json.encode(value))
    if document.copied > MAX_COPIED:
        raise _Failed
    target, name = _locate(document, _pointer(operation, "path"))
    _add_to(target, name, value)


def _test(document: _Document, operation: Operation) -> None:
    pointer = _pointer(operation, "path")
    found = document.root if not pointer else _get(*_locate(document, pointer))
    if not _same(found, operation.get("value")):
        raise _Failed


def _same(first: Any, second: Any) -> bool:
    """Equality of JSON values: true is not 1, and 1 is not 1.0."""
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
