"""Continue tokens: opaque to clients, JSON in URL-safe base64 as the real server's, so that errors come out alike.

A token holds the resourceVersion of the first page and the last key that was sent. A resourceVersion of -1 continues
with the present: the token that comes with a 410.
"""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass

from kubectl_runtime.testing.apiserver.errors import StatusError, bad_request, expired

TOO_OLD = ("The provided continue parameter is too old to display a consistent list result. You can start a new list "
           "without the continue parameter, or use the continue token in this response to retrieve the remainder of "
           "the results. Continuing with the provided token results in an inconsistent list - objects that were "
           "created, modified, or deleted between the time the first chunk was returned and now may "
           "show up in the list.")


@dataclass(frozen=True, slots=True)
class ContinueToken:
    """Where the next page starts, and which past it shows."""

    rv: int
    after: str  # the key of the last object that was sent

    def encode(self) -> str:
        """The token as text."""
        body = json.dumps({"v": "meta.k8s.io/v1", "rv": self.rv, "start": self.after + "\0"}, separators=(",", ":"))
        return base64.urlsafe_b64encode(body.encode()).decode().rstrip("=")


def _malformed(why: str) -> StatusError:
    return bad_request(f"invalid continue token: continue key is not valid: {why}")


def decode(text: str) -> ContinueToken:
    """Read a token; 400 if it is none."""
    for position, character in enumerate(text):
        if not (character.isascii() and (character.isalnum() or character in "-_")):
            raise _malformed(f"illegal base64 data at input byte {position}")
    try:
        data = json.loads(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)))
    except (ValueError, binascii.Error) as error:
        raise _malformed(str(error)) from None
    if not isinstance(data, dict) or data.get("v") != "meta.k8s.io/v1":
        version = data.get("v") if isinstance(data, dict) else None
        raise _malformed(f'server does not recognize this encoded version "{version or ""}"')
    rv, start = data.get("rv", 0), data.get("start", "")
    if not isinstance(rv, int) or rv == 0:
        raise _malformed("incorrect encoded start resourceVersion (version meta.k8s.io/v1)")
    if not isinstance(start, str) or not start:
        raise _malformed("encoded start key empty (version meta.k8s.io/v1)")
    return ContinueToken(rv, start.removesuffix("\0"))


def too_old(token: ContinueToken) -> StatusError:
    """410 of a token whose past is forgotten; the new token goes on with the present."""
    return expired(TOO_OLD, ContinueToken(-1, token.after).encode())
