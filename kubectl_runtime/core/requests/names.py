"""What stands in a request's path and query: each segment checked and encoded once, and the name of an object that was
given in place of its name.

    segment("a:b", "name")     "a:b"            segment("..", "namespace")    RequestError
    object_name(place, pod)    the pod's name, when it is of the place's kind and namespace; else RequestError
    checked_label, checked_subdomain    names by the API server's own rules, for what ends up in manifests

A segment that is `.` or `..`, or has `/` or `%` in it, would be another path to the server or to a proxy before it. The
API server allows none of these in a name.
"""
from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, Protocol
from urllib.parse import quote, urlencode

from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.meta.gvk import ApiResource
from kubectl_runtime.core.meta.refs import ObjectRef

LONGEST_LABEL, LONGEST_SUBDOMAIN = 63, 253
"""Characters of a namespace's name, and of the names of most objects."""

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_SAFE = ":@!$&'()*+,;=~"
_AS_IT_IS = re.compile(r"[A-Za-z0-9_.:@!$&'()*+,;=~-]+").fullmatch


class Placed(Protocol):
    """A place in which an object is looked for: a kind, and a namespace or none."""

    @property
    def resource(self) -> ApiResource:
        """The kind."""

    @property
    def namespace(self) -> str | None:
        """The namespace; None for all of them, or for a cluster-scoped kind."""


class HasRef(Protocol):
    """An object that says which one it is."""

    @property
    def ref(self) -> ObjectRef:
        """Kind, namespace and name of the object."""


Named = str | HasRef | ObjectRef
"""What verbs take for a name: the name, or the object."""


def checked_label(text: object, what: str) -> str:
    """A text that the API server takes for the name of a namespace. Raises RequestError, which begins with `what`."""
    if not isinstance(text, str) or len(text) > LONGEST_LABEL or not re.fullmatch(_LABEL, text):
        raise RequestError(_needs(text, what, LONGEST_LABEL, ""))
    return text


def checked_subdomain(text: object, what: str) -> str:
    """A text that the API server takes for the name of most objects. Raises RequestError, which begins with `what`."""
    if not isinstance(text, str) or len(text) > LONGEST_SUBDOMAIN or not re.fullmatch(_SUBDOMAIN, text):
        raise RequestError(_needs(text, what, LONGEST_SUBDOMAIN, "and . "))
    return text


def _needs(text: object, what: str, longest: int, more: str) -> str:
    return (f"{what} is {text!r}: it needs 1 to {longest} lower-case letters, digits, - {more}and begins and ends with "
            "a letter or digit")


def segment(text: str, what: str) -> str:
    """`text` as one segment of a path. Raises RequestError, naming `what`, for a text that would be something else
    there, such as one with a slash."""
    if not isinstance(text, str):
        raise RequestError(f"the {what} is of type {type(text).__name__}, where text is expected")
    if text in (".", "..") or "/" in text or "%" in text:
        raise RequestError(f"{text!r} cannot be a {what}: it would be another path")
    if _AS_IT_IS(text):
        return text
    if not text:
        raise RequestError(f"the {what} is empty")
    try:
        return quote(text, safe=_SAFE)
    except UnicodeEncodeError:
        raise RequestError(f"{text!r} cannot be a {what}: it cannot be encoded as UTF-8") from None


@lru_cache(maxsize=1024)
def kind_root(group: str, version: str, plural: str) -> tuple[str, str]:
    """The beginning of a kind's paths, and its segment. Raises RequestError."""
    version = segment(version, "version")
    root = f"/apis/{segment(group, 'group')}/{version}" if group else f"/api/{version}"
    return root, segment(plural, "plural")


@lru_cache(maxsize=64)
def encoded_query(query: tuple[tuple[str, str], ...]) -> str:
    """As it follows the `?`. A program sends few different ones, but for the tokens of its pages and the versions of
    its watches, which are not worth remembering."""
    return urlencode(query, quote_via=quote)


def object_name(place: Placed, named: Any) -> str:
    """The name that `named` is, or the name of the object or ObjectRef that it is. Raises RequestError."""
    if isinstance(named, str):
        return named
    ref = named if isinstance(named, ObjectRef) else getattr(named, "ref", None)
    wanted = place.resource
    if not isinstance(ref, ObjectRef):
        raise RequestError(f"{named!r} is not the name of an object of {wanted.full_name}: give a name as text, or an "
                           "object of that kind")
    if (ref.kind, ref.group) != (wanted.kind, wanted.group):
        raise RequestError(f"{ref} stands where the name of a {wanted.kind} is expected: it is of another kind")
    if ref.namespace is not None and place.namespace is not None and ref.namespace != place.namespace:
        raise RequestError(f"{ref} is in namespace {ref.namespace!r}, but the request is for namespace "
                           f"{place.namespace!r}")
    return ref.name
