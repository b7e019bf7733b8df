"""Continue tokens: opaque to clients, JSON in URL-safe base64 as the real server's, so that errors come out alike.

A token holds the resourceVersion of the first page and the first key of the next. A resourceVersion below 0 continues
with the present: the token that comes with a 410.
"""

from __future__ import annotations

import base64
import json
import posixpath
from dataclasses import dataclass
from typing import Any

from kubectl_runtime.apiserver.encoding.gojson import syntax_error
from kubectl_runtime.apiserver.errors import StatusError, bad_request, expired
from kubectl_runtime.apiserver.storage.storage import Version

_VERSION = "meta.k8s.io/v1"
_FIELDS: dict[str, Any] = {"v": "", "rv": 0, "start": ""}
_GO_TYPES = {list: "array", dict: "object", str: "string", bool: "bool", int: "number", float: "number"}

TOO_OLD = ("The provided continue parameter is too old to display a consistent list result. You can start a new list "
           "without the continue parameter, or use the continue token in this response to retrieve the remainder of "
           "the results. Continuing with the provided token results in an inconsistent list - objects that were "
           "created, modified, or deleted between the time the first chunk was returned and now may "
           "show up in the list.")


@dataclass(frozen=True, slots=True)
class ContinueToken:
    """Where the next page starts, and which past it shows."""

    rv: int
    start: str  # the lowest key of the next page, within the namespace if the list is that of one

    def encode(self) -> str:
        """The token as text."""
        body = json.dumps({"v": _VERSION, "rv": self.rv, "start": self.start}, separators=(",", ":"))
        return base64.urlsafe_b64encode(body.encode()).decode().rstrip("=")


def after(rv: int, version: Version, namespace: str) -> ContinueToken:
    """The token of a page that ends with an object, in a list of one namespace or (``""``) of all."""
    key = version.name if namespace else version.key
    return ContinueToken(rv, key + "\0")


def _malformed(why: str) -> StatusError:
    return bad_request(f"invalid continue token: continue key is not valid: {why}")


def decode(text: str) -> ContinueToken:
    """Read a token; 400 if it is none."""
    data = _json(text)
    if data is None:
        data = {}
    if not isinstance(data, dict):
        raise _malformed(f"json: cannot unmarshal {_GO_TYPES[type(data)]} into Go value of type storage.continueToken")
    values = {key: data.get(key) or empty for key, empty in _FIELDS.items()}
    for key, value in values.items():
        if type(value) is not type(_FIELDS[key]):
            raise _malformed(f"json: cannot unmarshal {_shown(value)} into Go struct field continueToken.{key} of type "
                             f"{'int64' if key == 'rv' else 'string'}")
    if values["v"] != _VERSION:
        raise _malformed(f"server does not recognize this encoded version {values['v']}")
    if not values["rv"]:
        raise _malformed(f"incorrect encoded start resourceVersion (version {_VERSION})")
    if not values["start"]:
        raise _malformed(f"encoded start key empty (version {_VERSION})")
    key = "/" + values["start"].removeprefix("/")
    if posixpath.normpath(key) != key:
        raise _malformed(values["start"])  # it must not lead out of the collection
    return ContinueToken(values["rv"], key[1:])


def _json(text: str) -> Any:
    """What the token says, of any type; 400 if it is no JSON in base64."""
    for position, character in enumerate(text):
        if not (character.isascii() and (character.isalnum() or character in "-_")):
            raise _malformed(f"illegal base64 data at input byte {position}")
    if len(text) % 4 == 1:
        raise _malformed(f"illegal base64 data at input byte {len(text) - 1}")
    data = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise _malformed(syntax_error(data) or str(error)) from None


def _shown(value: Any) -> str:
    """A value of the wrong type as the real decoder names it."""
    return f"number {value}" if isinstance(value, float) else _GO_TYPES[type(value)]


def too_old(token: ContinueToken) -> StatusError:
    """410 of a token whose past is forgotten; the new token goes on with the present."""
    return expired(TOO_OLD, ContinueToken(-1, token.start).encode())
