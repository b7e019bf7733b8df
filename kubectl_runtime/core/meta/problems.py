"""Decoding errors: a JSON path and a text without any content of the object."""
from __future__ import annotations

import enum
import re
import typing
from typing import Any

import msgspec

from kubectl_runtime.core.base.errors import KubeError
from kubectl_runtime.core.base.wire import alternatives, member_type
from kubectl_runtime.core.meta.gvk import ObjectRef

DECODE_FAILURES = (msgspec.MsgspecError, UnicodeError, RecursionError)
"""Exceptions of msgspec for bytes from outside: wrong types or syntax, invalid UTF-8, too deep nesting."""

_PATH = r" - at `(?:key in )?(\$[^`]*)`$"
_VALUE = r"(?s)Invalid (?:enum )?value .*"
NOT_ALLOWED = "the value is not one of the allowed values"


class DecodeError(KubeError):
    """An object's content does not fit its type. `ref` is the object, `path` the JSON path of the wrong value
    (`$.spec.replicas`).

    >>> class Replicas(Struct):
    ...     replicas: int
    >>> class Web(Resource, group="apps", version="v1", kind="Deployment", plural="deployments"):
    ...     spec: Replicas
    >>> wrong = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
    ...          "spec": {"replicas": "two"}}
    >>> try:
    ...     Web.from_dict(wrong).spec
    ... except DecodeError as error:
    ...     print(error.path)
    $.spec.replicas
    """

    def __init__(self, ref: ObjectRef | None, path: str, problem: str) -> None:
        super().__init__(f"{ref if ref is not None else 'object'}: {problem}")
        self.ref = ref
        self.path = path
        self.problem = problem


class Problem(msgspec.Struct, frozen=True, gc=False):
    """The data for a later DecodeError; a stored exception would keep its frames alive."""

    path: str
    text: str


def is_json(content: bytes) -> bool:
    """Whether `content` is one whole JSON value."""
    try:
        msgspec.json.decode(content, type=msgspec.Raw)
    except DECODE_FAILURES:
        return False
    return True


def is_no_utf8(failure: Exception) -> bool:
    """Whether the failure is about invalid UTF-8. From 0.23 on msgspec has a separate DecodeError for it."""
    return isinstance(failure, UnicodeError) or (
        type(failure) is msgspec.DecodeError and str(failure).startswith("Invalid UTF-8"))


_STEP = re.compile(r"\.([^.\[]+)|\[(\d+|\.\.\.)\]")
_LONGEST = 60


def allowed_at(path: str, hint: Any, content: Any) -> str:
    """A text that names the value at `path` in `content` and the values that its type allows: `'warm' is not one of
    'hot', 'cold'`. `hint` is the type of `content`. Returns `NOT_ALLOWED` if the allowed values are not known."""
    for step in _STEP.finditer(path):
        key, index = step[1], step[2]
        if key is not None and (tags := _tags(hint, key)):
            hint, content = typing.Literal[tuple(tags)], content.get(key) if isinstance(content, dict) else None
        elif key is not None:
            hint, content = member_type(hint, key), content.get(key) if isinstance(content, dict) else None
        elif index.isdigit():
            listed = isinstance(content, list) and int(index) < len(content)
            hint, content = member_type(hint, None), content[int(index)] if listed else None
        else:
            hint, content = member_type(hint, ""), None  # an item of a map: the path does not name its key
    choices = [shown for option in alternatives(hint) for shown in _choices(option)]
    if not choices:
        return NOT_ALLOWED
    text = ", ".join(map(repr, choices))
    value = repr(content) if isinstance(content, str | int) else "the value"
    return f"{value if len(value) <= _LONGEST else f'{value[:_LONGEST]}...'} is not one of {text}"


def _tags(hint: Any, key: str) -> list[Any]:
    """The tags of those Structs in the union `hint` that store their tag under `key`."""
    configs = [getattr(part, "__struct_config__", None) for part in alternatives(hint)]
    return [config.tag for config in configs if config and config.tag is not None and config.tag_field == key]


def _choices(option: Any) -> list[Any]:
    if typing.get_origin(option) is typing.Literal:
        return list(typing.get_args(option))
    members: list[enum.Enum] = list(option) if isinstance(option, enum.EnumType) else []
    return [member.value for member in members]


def problem_of(failure: Exception, *, enveloped: bool = False, at: str = "$") -> tuple[str, str]:
    """The path and text of `failure`. Paths start at `at`, and paths into a watch line (`enveloped`) lose `.object`."""
    if isinstance(failure, RecursionError):
        return at, f"{at} is nested too deeply"
    if is_no_utf8(failure):
        return at, f"{at} is not valid UTF-8"
    message = str(failure)
    found = re.search(_PATH, message)
    path = found[1] if found else "$"
    if found:
        message = message[: found.start()]
    if found and (inner := re.search(_PATH, message)):  # the value's own decoder named a path inside the value
        path, message = path + inner[1][1:], message[: inner.start()]
    if enveloped:
        path = path.replace("$.object", "$", 1)
    path = at + path[1:]
    return path, f"{path}: {re.sub(_VALUE, NOT_ALLOWED, message)}"
