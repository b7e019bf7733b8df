r"""Credentials as values that stay hidden in error reports, which may print the local variables of each frame.

- `Secret`, `SecretBytes`: equal to the plain text or bytes and used as such; their repr shows nothing
- `SecretMapping`: a mapping whose repr shows nothing
- `secret_fields(names)`: a class decorator that makes constructor arguments secret
- `secret_headers(given)`: makes the values of credential headers secret
- `frames_hidden()`: a block whose inner frames, which hold plain text, are removed from this library's errors
- `secret_file(path)`: the content of a file, limited in size

The module also decides which text an HTTP header can carry, and which headers are credentials:

    fault_of("jane")             ""
    fault_of("a\r\nX-Evil: 1")   the problem, without quoting the value
    is_credential("Cookie")      True
    as_sent("jänner")            text whose latin-1 bytes, which http.client sends, are the UTF-8 bytes of "jänner"
"""
from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from functools import wraps
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from kubectl_runtime.core.base.errors import KubeError

_CREDENTIAL = (r"authoriz|authent|token|secret|passw|cookie|credential|jwt|assertion"
               r"|(?:api|access|private)[-_]?key|(?<![a-z])(?:auth|session)(?![a-z])")
"""A pattern of header names. It is compiled at its first use, because most clients send no headers of their own."""
_UNSENDABLE = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]").search


def fault_of(value: object, *, identity: bool = False) -> str:
    """Why a header cannot carry `value`, in words that follow the value's name in a message (`is empty`); an empty text
    if a header can carry it. Values are not quoted, since they may be secret. An `identity` must arrive unchanged, so
    it must not be empty or have leading or trailing blanks: HTTP drops such blanks from a header, and the server would
    read a different user.
    """
    if not isinstance(value, str):
        return f"is of type {type(value).__name__}, where text is expected"
    if identity and not value:
        return "is empty"
    if _UNSENDABLE(value):
        return "cannot be sent in a header: it has line breaks or other control characters"
    if identity and value != value.strip(" \t"):
        return "begins or ends with a blank, which a header cannot carry"
    try:
        value.encode()
    except UnicodeEncodeError:
        return "cannot be sent in a header: it cannot be encoded as UTF-8"
    return ""


def is_credential(name: str) -> bool:
    """Whether a header of this name probably identifies the client, as `Authorization`, `Cookie` and `X-Api-Key` do.
    Such a header is only sent where credentials may be sent."""
    return re.search(_CREDENTIAL, name, re.IGNORECASE) is not None


def as_sent(value: str) -> str:
    """`value` in the form that http.client needs. `fault_of` must have found no problem in `value`."""
    return value if value.isascii() else value.encode().decode("latin-1")


MOST_BYTES = 16 << 20
"""The maximum size in bytes of a configuration file: a kubeconfig, certificates, a token."""

T = TypeVar("T")


class Secret(str):
    """Text whose repr shows nothing."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "<withheld>"


class SecretBytes(bytes):
    """Bytes whose repr shows nothing."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "<withheld>"


class SecretMapping(dict[Any, Any]):
    """A mapping whose repr shows nothing."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "<withheld>"


def secret(value: Any) -> Any:
    """`value` as a `Secret` or `SecretBytes`, if it is text or bytes."""
    if type(value) is Secret:  # the common case, in each call
        return value
    return Secret(value) if isinstance(value, str) else SecretBytes(value) if isinstance(value, bytes) else value


def secret_headers(headers: Mapping[str, T]) -> dict[str, T]:
    """A copy of `headers` in which the values of credential headers are secret values."""
    return {name: secret(value) if isinstance(name, str) and is_credential(name) else value
            for name, value in headers.items()}


def secret_fields(names: Collection[str]) -> Callable[[type[T]], type[T]]:
    """A class decorator: the arguments in `names`, and the credentials in `headers`, reach `__init__` as secret values,
    so that its errors do not show them. All arguments must be keywords."""

    def decorate(kind: type[T]) -> type[T]:
        initialize: Any = kind.__init__

        @wraps(initialize)
        def initialized(self: T, **given: Any) -> None:
            given = {name: secret(value) if name in names else value for name, value in given.items()}
            if isinstance(given.get("headers"), Mapping):
                given["headers"] = secret_headers(given["headers"])
            initialize(self, **given)

        setattr(kind, "__init__", initialized)  # noqa: B010 - type checkers take the class as it was written
        return kind

    return decorate


class frames_hidden:
    """A context manager that removes the inner frames and the causes from this library's errors when they leave the
    block, because the frames hold the content that was read."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if isinstance(error, KubeError):
            error.__traceback__ = error.__context__ = error.__cause__ = None


def secret_file(path: str | Path) -> SecretBytes:
    """The content of a file. Raises OSError, and ValueError for a file above `MOST_BYTES` and for an impossible
    path."""
    with Path(path).open("rb") as file:
        content = SecretBytes(file.read(MOST_BYTES + 1))
    if len(content) > MOST_BYTES:
        raise ValueError(f"it has more than {MOST_BYTES >> 20} MiB")
    return content


def reading_problem(error: OSError | ValueError) -> str:
    """The problem behind an error of `secret_file`, for use after a colon in a message. The text of a decoding error is
    never used, since it quotes the content."""
    if isinstance(error, OSError):
        return error.strerror or type(error).__name__
    if isinstance(error, UnicodeError):
        return "it is not text"
    return "it is not a valid path" if "null byte" in str(error) else str(error)
