"""What can go wrong in decoding, and how to say it: a JSON path and a text without any content of the object."""
from __future__ import annotations

import re

import msgspec

from kubectl_runtime.core.base.errors import KubeError
from kubectl_runtime.core.meta.gvk import ObjectRef

DECODE_FAILURES = (msgspec.MsgspecError, UnicodeError, RecursionError)
"""What msgspec raises for bytes from outside: wrong types or syntax, invalid UTF-8, too many levels."""

_PATH = r" - at `(?:key in )?(\$[^`]*)`$"
_VALUE = r"(?s)Invalid (?:enum )?value .*"


class DecodeError(KubeError):
    """An object's content is not what its type says. `ref` is the object, `path` the place (`$.spec.replicas`).

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
    """What a DecodeError will say, kept as text: a kept exception would keep the frames it went through."""

    path: str
    text: str


def is_json(content: bytes) -> bool:
    """Whether `content` is one whole JSON value, and not a part of one."""
    try:
        msgspec.json.decode(content, type=msgspec.Raw)
    except DECODE_FAILURES:
        return False
    return True


def is_no_utf8(failure: Exception) -> bool:
    """Whether what failed to decode is not UTF-8. From 0.23 on msgspec says so by a DecodeError of its own."""
    return isinstance(failure, UnicodeError) or (
        type(failure) is msgspec.DecodeError and str(failure).startswith("Invalid UTF-8"))


def problem_of(failure: Exception, *, enveloped: bool = False, at: str = "$") -> tuple[str, str]:
    """The path and text of `failure`; paths into a watch line lose their `.object`, others start at `at`."""
    if isinstance(failure, RecursionError):
        return at, f"{at} is nested too deeply"
    if is_no_utf8(failure):
        return at, f"{at} is not valid UTF-8"
    message = str(failure)
    found = re.search(_PATH, message)
    path = found[1] if found else "$"
    if found:
        message = message[: found.start()]
    if found and (inner := re.search(_PATH, message)):  # of a value that reads itself
        path, message = path + inner[1][1:], message[: inner.start()]
    if enveloped:
        path = path.replace("$.object", "$", 1)
    path = at + path[1:]
    return path, f"{path}: {re.sub(_VALUE, 'the value is not one of those allowed', message)}"
