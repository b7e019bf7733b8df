"""Authentication: client certificates, static bearer tokens, anonymous requests.

- A verified client certificate: the CN is the user, and each O is a group. The certificate takes precedence over a
  token.
- ``Authorization: Bearer T``: the user of token T. An unknown token is a 401, even if anonymous requests are allowed.
- Neither: the user is ``system:anonymous``, or the answer is a 401 if anonymous requests are disabled.

A server without configured users ignores tokens: with `Authenticator()` every request without a certificate has the
permissions of an administrator.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from kubectl_runtime.apiserver.errors import unauthorized
from kubectl_runtime.apiserver.wire import HttpRequest
from kubectl_runtime.certificates.authority import UID_ATTRIBUTE
from kubectl_runtime.core.base.threads import SYSTEM_CLOCK, Clock


@dataclass(frozen=True, slots=True)
class User:
    """The user of a request: name, UID, groups and extra values."""

    name: str
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()


MASTERS = "system:masters"
AUTHENTICATED = "system:authenticated"
UNAUTHENTICATED = "system:unauthenticated"
ANONYMOUS = User("system:anonymous", groups=(UNAUTHENTICATED,))
ADMIN = User("admin", groups=(MASTERS, AUTHENTICATED))
"""The user of every request on a server that ignores tokens; on other servers, the user of the server's own client."""

CREDENTIAL_ID = "credentialID"  # the pseudo attribute in which the transport passes the certificate's fingerprint
CREDENTIAL_EXTRA = "authentication.kubernetes.io/credential-id"


class TokenFileError(ValueError):
    """A token file cannot be read. The text names file and line, and never contains a token."""


def parse_token_file(text: str, source: str = "token file") -> dict[str, User]:
    """The users in a static token file, by token. Each line is ``token,user,uid``, optionally with ``"group1,group2"``.

    As in kube-apiserver, a line without a token is skipped, and if a token occurs twice, its last line wins. Raises
    `TokenFileError`.
    """
    users: dict[str, User] = {}
    reader = csv.reader(io.StringIO(text), skipinitialspace=True)
    for row in reader:
        if not row:
            continue
        if len(row) < 3:
            raise TokenFileError(f"{source}, line {reader.line_num}: a line must have at least the 3 columns token, "
                                 f"user and uid, but has {len(row)}")
        groups = tuple(row[3].split(",")) if len(row) > 3 and row[3] else ()
        if row[0]:
            users[row[0]] = User(row[1], row[2], groups)
    return users


def load_token_file(path: str | Path) -> dict[str, User]:
    """The users of the token file at `path`. Raises `TokenFileError` and OSError."""
    try:
        return parse_token_file(Path(path).read_text(encoding="utf-8"), str(path))
    except UnicodeDecodeError as error:
        raise TokenFileError(f"{path} is not UTF-8: {error}") from None


def with_authenticated(user: User) -> User:
    """The user, with the group system:authenticated added."""
    if user.name == ANONYMOUS.name or AUTHENTICATED in user.groups or UNAUTHENTICATED in user.groups:
        return user
    return User(user.name, user.uid, (*user.groups, AUTHENTICATED), user.extra)


def certificate_user(subject: Iterable[tuple[str, str]]) -> User | None:
    """The user that a certificate's subject names, or None if the subject has no common name."""
    values: dict[str, list[str]] = {}
    for attribute, value in subject:
        values.setdefault(attribute, []).append(value)
    names = values.get("commonName") or [""]
    if not names[-1]:
        return None
    extra = tuple((CREDENTIAL_EXTRA, (value,)) for value in values.get(CREDENTIAL_ID, ()))
    return User(names[-1], (values.get(UID_ATTRIBUTE) or [""])[-1], tuple(values.get("organizationName", ())), extra)


def bearer_token(request: HttpRequest) -> str:
    """The bearer token of a request, or "" if the request has none."""
    parts = request.header("authorization").strip().split(" ", 2)
    return parts[1] if len(parts) > 1 and parts[0].lower() == "bearer" else ""


class Authenticator:
    """Finds the user of a request. Entries may be added to `tokens` at any time."""

    def __init__(self, tokens: Mapping[str, User] | None = None, *, anonymous: bool = True) -> None:
        """`tokens` maps bearer tokens to users. None ignores tokens; an empty mapping refuses every token."""
        self.tokens = dict(tokens) if tokens is not None else None
        self.expiring: dict[str, tuple[User, float]] = {}  # tokens that expire, with the monotonic time of expiry
        self.clock: Clock = SYSTEM_CLOCK
        self.anonymous = anonymous

    def user_of_token(self, token: str) -> User | None:
        """The user of a token, or None if the token is unknown or expired, or if tokens are ignored."""
        if self.tokens is None:
            return None
        user, ends = self.expiring.get(token, (None, 0.0))
        return user if user is not None and self.clock.monotonic() < ends else self.tokens.get(token)

    def authenticate(self, request: HttpRequest) -> User:
        """The user of the request. Raises a 401 for a wrong token, or if anonymous requests are disabled."""
        if request.peer_cert_subject is not None:
            user = certificate_user(request.peer_cert_subject)
            if user is not None:
                return with_authenticated(user)
        if self.tokens is None:
            return ADMIN
        token = bearer_token(request)
        if token:
            found = self.user_of_token(token)
            if found is None:
                raise unauthorized()
            return with_authenticated(found)
        if not self.anonymous:
            raise unauthorized()
        return ANONYMOUS
