"""The headers that every call of a client carries: the session's outrank the Config's, which outrank the library's.

Values are sent as UTF-8: as latin-1, Python's own choice, the server would read another user's name. Raises
RequestError for what no header can carry, above all a line break, which would begin a header of its own.
"""
from __future__ import annotations

import platform
import re
from collections.abc import Iterable
from urllib.parse import quote

from kubectl_runtime.client.config.config import Config
from kubectl_runtime.client.config.impersonation import Impersonation
from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.base.version import VERSION

Headers = dict[str, str | tuple[str, ...]]

_IS_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+").fullmatch
_UNSENDABLE = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]").search


def fixed_headers(config: Config, session: Iterable[tuple[str, str]]) -> Headers:
    """As the module says; `session`: those of the user's requests.Session."""
    headers: Headers = {
        "User-Agent": f"kubectl_runtime/{VERSION} (python {platform.python_version()})",
        "Accept-Encoding": "gzip" if config.compression else "identity",
    }
    if config.impersonate is not None:
        headers.update(_impersonation(config.impersonate))
    for name, value in [*config.headers.items(), *session]:
        if not isinstance(name, str) or not _IS_NAME(name):
            raise RequestError(f"{name!r} is no name of a header")
        headers["-".join(word.capitalize() for word in name.split("-"))] = _sendable(value, f"the header {name}")
    return headers


def _impersonation(who: Impersonation) -> Headers:
    if not who.user:
        raise RequestError("Impersonation needs a user: the server refuses groups, a uid or extra without one")
    headers: Headers = {"Impersonate-User": _sendable(who.user, "the impersonated user")}
    if who.groups:
        headers["Impersonate-Group"] = _all_sendable(who.groups, "an impersonated group")
    if who.uid:
        headers["Impersonate-Uid"] = _sendable(who.uid, "the impersonated uid")
    for key, values in who.extra.items():
        headers[f"Impersonate-Extra-{_encoded(key)}"] = _all_sendable(values, f"the impersonated extra {key!r}")
    return headers


def _all_sendable(values: Iterable[str], what: str) -> tuple[str, ...]:
    if isinstance(values, str):
        raise RequestError(f"{what} is {values!r}, where several values are expected: give a tuple")
    found = tuple(_sendable(value, what) for value in values)
    if "" in found:
        raise RequestError(f"{what} is empty")
    return found


def _sendable(value: object, what: str) -> str:
    """`value` such that its latin-1 form, which http.client sends, is its UTF-8 form. The value is not quoted: headers
    may be secret."""
    if not isinstance(value, str):
        raise RequestError(f"{what} is a {type(value).__name__}, where text is expected")
    if _UNSENDABLE(value):
        raise RequestError(f"{what} cannot be sent in a header: it has line breaks or other control characters")
    try:
        return value if value.isascii() else value.encode().decode("latin-1")
    except UnicodeEncodeError:
        raise RequestError(f"{what} cannot be sent in a header: it is no text that UTF-8 could carry") from None


def _encoded(key: str) -> str:
    """An extra key as part of a header's name: percent-encoded where a name may not hold the character."""
    if not isinstance(key, str) or not key:
        raise RequestError(f"{key!r} is no key of an impersonated extra")
    return quote(key.lower(), safe="!#$&'*+-.^_`|~")
