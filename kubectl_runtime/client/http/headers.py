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
from kubectl_runtime.client.config.header_text import as_sent, fault_of
from kubectl_runtime.client.config.impersonation import Impersonation
from kubectl_runtime.client.config.secrets import secret_headers
from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.base.version import VERSION

Headers = dict[str, str | tuple[str, ...]]

_IS_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+").fullmatch


def fixed_headers(config: Config, session: Iterable[tuple[str, str]]) -> Headers:
    """The headers that every request of a client has; `session`: those of the user's requests.Session."""
    headers: Headers = {
        "User-Agent": f"kubectl_runtime/{VERSION} (python {platform.python_version()})",
        "Accept-Encoding": "gzip" if config.compression else "identity",
    }
    if config.impersonate is not None:
        headers.update(_impersonation(config.impersonate))
    for source, given in ((f"{config.origin}: headers", config.headers.items()), ("the session's headers", session)):
        for name, value in given:
            if not isinstance(name, str) or not _IS_NAME(name):
                raise RequestError(f"{source}: {name!r} is not a header name")
            if problem := fault_of(value):
                raise RequestError(f"{source}: {name} {problem}")
            headers["-".join(word.capitalize() for word in name.split("-"))] = as_sent(value)
    return secret_headers(headers)


def _impersonation(who: Impersonation) -> Headers:
    headers: Headers = {"Impersonate-User": as_sent(who.user)}
    if who.groups:
        headers["Impersonate-Group"] = tuple(map(as_sent, who.groups))
    if who.uid:
        headers["Impersonate-Uid"] = as_sent(who.uid)
    for key, values in who.extra.items():
        headers[f"Impersonate-Extra-{_encoded(key)}"] = tuple(map(as_sent, values))
    return headers


def _encoded(key: str) -> str:
    """An extra key as part of a header's name: percent-encoded where a name may not hold the character."""
    return quote(key.lower(), safe="!#$&'*+-.^_`|~")
