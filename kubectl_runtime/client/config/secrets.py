r"""Values that are credentials, and that no report of an error shows: tools print the local variables of each frame.

    Secret, SecretBytes    equal to the plain text or bytes and used as such; their repr shows nothing
    SecretMapping          the same of a mapping
    secret_fields(names)   makes them of the arguments with which a class is made
    secret_headers(given)  makes them of those headers that are credentials
    frames_hidden()        a block: this library's errors leave it without the frames below, which hold plain text
    secret_file(path)      the content of a file, which has a limit

Which texts a header of HTTP can carry, in which bytes, and which headers are credentials.

    fault_of("jane")             ""
    fault_of("a\r\nX-Evil: 1")  what is wrong with it, without quoting it
    is_credential("Cookie")      True
    as_sent("jänner")            the text whose latin-1 form, which http.client sends, is the UTF-8 form of "jänner"
"""
from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from functools import wraps
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from kubectl_runtime.core.base.errors import KubeError

_CREDENTIAL = re.compile(r"authoriz|authent|token|secret|passw|cookie|credential|jwt|assertion"
                         r"|(?:api|access|private)[-_]?key|(?<![a-z])(?:auth|session)(?![a-z])", re.IGNORECASE).search
_UNSENDABLE = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]").search


def fault_of(value: object, *, identity: bool = False) -> str:
    """What keeps `value` from being sent in a header, in words that follow its name; empty for nothing. Values are not
    quoted: they may be secret. An `identity` must arrive as it is: not empty, and without blanks at its ends, which are
    no part of a header, so that the server would see somebody else.
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
    """Whether a header of this name is likely to prove who the client is, as `Authorization`, `Cookie` and
    `X-Api-Key` do: it goes where credentials may go."""
    return _CREDENTIAL(name) is not None


def as_sent(value: str) -> str:
    """`value`, which has no fault, as http.client has to be given it."""
    return value if value.isascii() else value.encode().decode("latin-1")


MOST_BYTES = 16 << 20
"""What a file of a configuration may hold: a kubeconfig, certificates, a token."""

T = TypeVar("T")


class Secret(str):
    """A text that no repr shows."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "<withheld>"


class SecretBytes(bytes):
    """Bytes that no repr shows."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "<withheld>"


class SecretMapping(dict[Any, Any]):
    """A mapping that no repr shows."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "<withheld>"


def secret(value: Any) -> Any:
    """`value` as a `Secret` or `SecretBytes`, if it is a text or bytes."""
    if type(value) is Secret:  # as it is for each call
        return value
    return Secret(value) if isinstance(value, str) else SecretBytes(value) if isinstance(value, bytes) else value


def secret_headers(headers: Mapping[str, T]) -> dict[str, T]:
    """`headers`, of which those that are credentials have secret values."""
    return {name: secret(value) if isinstance(name, str) and is_credential(name) else value
            for name, value in headers.items()}


def secret_fields(names: Collection[str]) -> Callable[[type[T]], type[T]]:
    """A decorator: has a class whose `__init__` takes keywords made with secret values for those named, and for the
    credentials in its `headers`. What it raises then shows none of them."""

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
    """A context manager: errors of this library leave its block without the frames within it and without what they came
    from, both of which hold what was read."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if isinstance(error, KubeError):
            error.__traceback__ = error.__context__ = error.__cause__ = None


def secret_file(path: str | Path) -> SecretBytes:
    """The content of a file. Raises OSError, and ValueError for one with more than `MOST_BYTES` or an impossible
    path."""
    with Path(path).open("rb") as file:
        content = SecretBytes(file.read(MOST_BYTES + 1))
    if len(content) > MOST_BYTES:
        raise ValueError(f"it has more than {MOST_BYTES >> 20} MiB")
    return content


def reading_problem(error: OSError | ValueError) -> str:
    """What `secret_file` raised, in words that follow the file's name. Never the text of a decoding error, which quotes
    the content."""
    if isinstance(error, OSError):
        return error.strerror or type(error).__name__
    if isinstance(error, UnicodeError):
        return "it is not text"
    return "it is not a valid path" if "null byte" in str(error) else str(error)
