"""Checks of a Config's fields (types, server URL and name), impersonation, and files that other programs replace.

- `Impersonation`: the user and groups that a client acts as.
- `FollowedFile`: a file that another program replaces. The file is read again when its modification or change time,
  size or inode differs; a check takes about two microseconds. While the file cannot be read or used, for example during
  a replacement, the last content stays in use and one warning is logged. Safe to use from any thread.
- `CertificateFiles`: a client certificate and its key in followed files. OpenSSL reads the private key from a
  `private_file`, which is deleted as soon as OpenSSL has read it.
"""
from __future__ import annotations

import ipaddress
import os
import re
import ssl
import unicodedata
from collections.abc import Collection, Iterator, Mapping
from dataclasses import fields
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import msgspec

from kubectl_runtime.client.config.auth import ClientCertificate, Credentials
from kubectl_runtime.client.config.secrets import SecretBytes, fault_of, reading_problem, secret_file
from kubectl_runtime.core.base.errors import ConfigError, RequestError
from kubectl_runtime.core.base.guard import guarded_logger
from kubectl_runtime.core.base.threads import ForkSafeLock, unforked


class Impersonation(msgspec.Struct, frozen=True):
    """The user to act as, sent as `Impersonate-*` headers; needs the RBAC verb impersonate. Raises RequestError
    for groups, a uid or extra without a user, for a value that a header cannot carry unchanged, and for a value of a
    wrong type, such as a string instead of a list. The error names the field.

    >>> Impersonation("jane", groups=("developers",)).user
    'jane'
    """

    user: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, tuple[str, ...]] = msgspec.field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, problem in faults(self.user, self.groups, self.uid, self.extra):
            raise RequestError(f"Impersonation: {name} {problem}")


def faults(user: object, groups: object, uid: object, extra: object) -> Iterator[tuple[str, str]]:
    """The invalid fields of an Impersonation: for each field its name (`groups[1]`), and its problem in words
    that follow the name in a message (`is empty`)."""
    if not user:
        yield "user", "is needed: groups, uid and extra are only sent with a user"
    elif problem := fault_of(user, identity=True):
        yield "user", problem
    yield from _list_faults("groups", groups)
    if uid != "" and (problem := fault_of(uid, identity=True)):
        yield "uid", problem
    if not isinstance(extra, Mapping):
        yield "extra", f"must be a mapping, not of type {type(extra).__name__}"
        return
    for key, values in extra.items():
        if not isinstance(key, str) or not key:
            yield "extra", f"has the key {key!r}, but keys must be non-empty text"
        elif problem := fault_of(key):
            yield "extra", f"has the key {key!r}, which {problem}"
        yield from _list_faults(f"extra[{key!r}]", values)


def _list_faults(name: str, values: object) -> Iterator[tuple[str, str]]:
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Collection):
        yield name, f"must be a list or tuple of texts, not of type {type(values).__name__}"
        return
    for index, value in enumerate(values):
        if problem := fault_of(value, identity=True):
            yield f"{name}[{index}]", problem


_TYPES: Mapping[str, tuple[tuple[type, ...], str]] = {
    "str": ((str,), "a text"), "bytes": ((bytes,), "bytes"), "bool": ((bool,), "True or False"),
    "Mapping[str, str]": ((Mapping,), "a mapping"), "Duration": ((int, float, timedelta), "seconds or a timedelta"),
    "Impersonation": ((Impersonation,), "an Impersonation"),
}
"""The types that are checked. (`auth` must implement a protocol: see `check_credentials`.)"""

_NETLOC = re.compile(r"(?:\[([0-9A-Fa-f:.]+)(%[^\[\]]*)?\]|([^:\[\]]+))(?::[0-9]*)?").fullmatch
_IS_USUAL_HOST = re.compile(r"[A-Za-z0-9._-]+").fullmatch
_IS_ZONE = re.compile(r"%25[A-Za-z0-9._~-]+|%[A-Za-z][A-Za-z0-9._~-]*").fullmatch
"""An IPv6 zone, in RFC 6874's form or in the usual form, which must not look like a percent-encoding."""
_LONGEST_NAME = 253


def check_types(config: Any, origin: str) -> None:
    """Check that each field of this dataclass instance has its declared type: text is never accepted as a boolean, nor
    a number as text. Paths that are `os.PathLike` become text. Raises ConfigError."""
    for each in fields(config):
        value = getattr(config, each.name)
        if isinstance(value, os.PathLike) and each.name.endswith("_file"):
            value = os.fspath(value)
            object.__setattr__(config, each.name, value)
        declared = str(each.type)
        known = _TYPES.get(declared.removesuffix(" | None"))
        if known is None or (value is None and declared.endswith(" | None")):
            continue
        types, expected = known
        if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
            raise ConfigError(f"{origin}: {each.name} is of type {type(value).__name__}, expected {expected}")


def check_credentials(auth: object, origin: str) -> None:
    """Raise ConfigError, without showing `auth`, unless it has the methods of `Credentials`; a plain token has none."""
    needed = ("header", "refresh", "certificate")
    if auth is not None and not all(callable(getattr(auth, name, None)) for name in needed):
        raise ConfigError(f"{origin}: auth must be Credentials, which have the methods {', '.join(needed)}, not "
                          f"{type(auth).__name__}; pass a plain token as token=")


def check_server_name(name: str, origin: str) -> None:
    """Raise ConfigError for a name that no certificate can have. Otherwise the TLS handshake would fail with an OpenSSL
    message that is hard to understand."""
    try:
        found = bool(ipaddress.ip_address(name))
    except ValueError:
        found = is_name(name)
    if not found:
        raise ConfigError(f"{origin}: tls-server-name must be a host name, not {name!r}")


def checked_url(url: str, origin: str, *, tls: bool) -> str:
    """The server's URL without trailing slashes and with its scheme in lower case. A URL without a scheme gets https if
    there is TLS data (`tls`), and is refused otherwise.

    Raises ConfigError; a password in the URL is not shown.
    """
    url = url.rstrip("/")
    if not url.isprintable() or " " in url or "\\" in url:
        raise ConfigError(f"{origin}: the server URL must not contain blanks, backslashes or control characters")
    if "://" not in url:
        if not tls:
            shown = url.rpartition("@")[2]
            raise ConfigError(f"{origin}: the server URL {shown!r} has no scheme: "
                              f"write https://{shown} or http://{shown}")
        url = f"https://{url}"
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        raise ConfigError(f"{origin}: the server URL must look like https://host:port/path, "
                          "and its port must be a number up to 65535") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise ConfigError(f"{origin}: the server URL must look like https://host:port/path")
    if parts.username is not None:
        raise ConfigError(f"{origin}: the server URL must not contain a user name: use username= and password=")
    if not has_host(parts.netloc):
        raise ConfigError(f"{origin}: the server URL must look like https://host:port/path, "
                          "and its host must be a name or an address") from None
    return parts.scheme + url[len(parts.scheme):]


def has_host(netloc: str) -> bool:
    """Whether the host in a URL's `netloc` (which may have user information and a port) is literally a name or address.
    Libraries interpret anything else differently (percent-encodings, compatibility characters, text around brackets),
    so the checked host could differ from the host of the connection."""
    parts = _NETLOC(netloc.rpartition("@")[2])
    if parts is None:
        return False
    address, zone, name = parts.groups()
    return _is_address(address, zone or "") if name is None else is_name(name)


def is_name(name: str) -> bool:
    """Whether `name` is a host name, in ASCII or in a form that IDNA does not change."""
    try:
        ascii_name = name.encode("idna").decode()  # as the connection will do; fails for a label that is too long
        same = name.isascii() or (ascii_name.encode().decode("idna") == name.lower() and all(map(_is_usual, name)))
    except UnicodeError:
        return False
    return same and len(ascii_name) <= _LONGEST_NAME and _IS_USUAL_HOST(ascii_name) is not None


def _is_usual(character: str) -> bool:
    """Whether a non-ASCII host name may have this character: letters and digits of any script, with their marks.
    Symbols, compatibility letters (the Kelvin sign), and the underscore, which IDNA does not allow, are refused."""
    own = unicodedata.normalize("NFKC", character) == character
    return own and (character.isalnum() or character in "-." or unicodedata.category(character).startswith("M"))


def _is_address(address: str, zone: str) -> bool:
    try:
        return ipaddress.ip_address(address).version == 6 and (not zone or _IS_ZONE(zone) is not None)
    except ValueError:
        return False


def check_identity(certificate: ClientCertificate) -> None:
    """Raise ConfigError for a certificate and key that cannot be used together; the error quotes neither."""
    use_identity(certificate, ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))


def use_identity(certificate: ClientCertificate, context: ssl.SSLContext) -> None:
    """Load the certificate into the TLS `context`. Raises ConfigError like `check_identity`, naming the certificate's
    source."""
    with unforked():  # imported only here, since most clients have no certificate
        from kubectl_runtime.certificates.bundles import private_file
    try:
        with private_file(SecretBytes(certificate.certificate + b"\n" + certificate.key)) as path:
            context.load_cert_chain(path, password=_no_password)
    except ssl.SSLError as error:
        raise ConfigError(f"{certificate.source} and its key cannot be used: "
                          f"{error.reason or 'not PEM, or the key is encrypted'}") from None


def _no_password() -> bytes:
    """OpenSSL calls this for an encrypted key, instead of prompting on the terminal."""
    raise ConfigError("the client key is encrypted: a library cannot ask for its password; give an unencrypted key")


log = guarded_logger(__name__)


class FollowedFile:
    """Reads one file on request, and detects whether the file has changed since the last `read`."""

    def __init__(self, path: str | os.PathLike[str], what: str) -> None:
        """`what`: the file's purpose, for messages. Reads nothing yet."""
        self.path = os.fspath(path)
        self.name = f"the {what} {self.path}"
        self._seen: tuple[int, ...] | None = None

    def read(self) -> bytes:
        """The current content. Raises ConfigError, which names the file."""
        # The state is noted before the file is read, so that the next check detects a change during the reading.
        self._seen = self._look()
        try:
            return secret_file(self.path)
        except (OSError, ValueError) as error:
            raise ConfigError(f"cannot read {self.name}: {reading_problem(error)}") from None

    def has_changed(self) -> bool:
        """Whether the file has changed since the last `read`."""
        return self._look() != self._seen

    def _look(self) -> tuple[int, ...] | None:
        try:
            status = os.stat(self.path)
        except (OSError, ValueError):
            return None
        # The change time is included, because a copy in place may keep the size and restore the modification time.
        return status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino


class CertificateFiles:
    """A client certificate whose certificate, key or both are in files, possibly together with other credentials."""

    def __init__(self, certificate: FollowedFile | bytes, key: FollowedFile | bytes,
                 beside: Credentials | None) -> None:
        """Raises ConfigError when a file cannot be read or the key does not fit the certificate."""
        self._parts = (certificate, key)
        self._files = [part for part in self._parts if isinstance(part, FollowedFile)]
        self._beside = beside
        self._lock = ForkSafeLock()
        self._current = self._read()

    def header(self, deadline: float | None = None) -> str | None:
        """The header of the other credentials; None without them. Reads the certificate files again if they were
        replaced."""
        self._follow()
        return self._beside.header(deadline) if self._beside is not None else None

    def refresh(self, rejected: str | None, deadline: float | None = None) -> bool:
        """Read the certificate files again and renew the other credentials; returns whether anything has changed."""
        before = self._current
        self._follow()
        # Both are renewed, because the server does not say which of the two it has rejected.
        renewed = self._beside.refresh(rejected, deadline) if self._beside is not None else False
        return renewed or self._current != before

    def certificate(self) -> ClientCertificate | None:
        """The certificate and key that the files had at the last `header()` call."""
        return self._current

    def _follow(self) -> None:
        if not any(file.has_changed() for file in self._files) or not self._lock.acquire(blocking=False):
            return
        problem = None
        try:
            self._current = self._read()
        except ConfigError as error:
            problem = error
        finally:
            self._lock.release()
        if problem is not None:
            log.warning("%s: the last client certificate stays in use", problem)

    def _read(self) -> ClientCertificate:
        certificate, key = (part.read() if isinstance(part, FollowedFile) else part for part in self._parts)
        found = ClientCertificate(certificate, key, source=" and ".join(file.name for file in self._files))
        check_identity(found)
        return found

    def __reduce__(self) -> tuple[Any, ...]:
        """A pickle has only the arguments; another process reads the files itself."""
        return type(self), (*self._parts, self._beside)

    def __repr__(self) -> str:
        beside = f" and {self._beside!r}" if self._beside is not None else ""
        return f"<client certificate in {', '.join(file.path for file in self._files)}{beside}>"
