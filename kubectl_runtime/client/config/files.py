"""Files that somebody else replaces while the client lives: `FollowedFile`, and the client certificate in two of them.

A file is read again when its modification or change time, size or inode is another one; a look costs about two
microseconds. While it cannot be read or used, as in the middle of a replacement, what was read last stays in use and
one warning is logged. Safe to use from any thread.

A client certificate and its key in an `ssl.SSLContext`, and files of them that are followed.

Private keys are handed to OpenSSL in a `private_file`, which is gone before the function returns.
"""
from __future__ import annotations

import os
import ssl
from typing import Any

from kubectl_runtime.certificates.bundles import private_file
from kubectl_runtime.client.config.auth import ClientCertificate, Credentials
from kubectl_runtime.client.config.secrets import SecretBytes, reading_problem, secret_file
from kubectl_runtime.core.base.errors import ConfigError
from kubectl_runtime.core.base.guard import guarded_logger
from kubectl_runtime.core.base.interpreter import ForkSafeLock


def check_identity(certificate: ClientCertificate) -> None:
    """Raise ConfigError, without quoting it, for a certificate and key that cannot be used together."""
    use_identity(certificate, ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))


def use_identity(certificate: ClientCertificate, context: ssl.SSLContext) -> None:
    """Have connections of `context` identify themselves. Raises ConfigError as `check_identity`, naming the source."""
    try:
        with private_file(SecretBytes(certificate.certificate + b"\n" + certificate.key)) as path:
            context.load_cert_chain(path, password=_no_password)
    except ssl.SSLError as error:
        raise ConfigError(f"{certificate.source} and its key cannot be used: "
                          f"{error.reason or 'not PEM, or the key is encrypted'}") from None


def _no_password() -> bytes:
    """Called by OpenSSL for an encrypted key, instead of a question on the terminal."""
    raise ConfigError("the client key is encrypted: a library cannot ask for its password; give the key without one")


log = guarded_logger(__name__)


class FollowedFile:
    """One file: its content when it was read last, and whether it has been replaced since."""

    def __init__(self, path: str | os.PathLike[str], what: str) -> None:
        """`what` it is, for messages. Reads nothing yet."""
        self.path = os.fspath(path)
        self.name = f"the {what} {self.path}"
        self._seen: tuple[int, ...] | None = None

    def read(self) -> bytes:
        """The content now. Raises ConfigError, which names the file."""
        # Looked at before it is read: what changes in between is found by the next look.
        self._seen = self._look()
        try:
            return secret_file(self.path)
        except (OSError, ValueError) as error:
            raise ConfigError(f"cannot read {self.name}: {reading_problem(error)}") from None

    def has_changed(self) -> bool:
        """Whether it is another one than `read` found."""
        return self._look() != self._seen

    def _look(self) -> tuple[int, ...] | None:
        try:
            status = os.stat(self.path)
        except (OSError, ValueError):
            return None
        # The change time too: a copy in place may keep the size and set the modification time.
        return status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino


class CertificateFiles:
    """A client certificate whose certificate or key, or both, are files, beside other credentials or none."""

    def __init__(self, certificate: FollowedFile | bytes, key: FollowedFile | bytes,
                 beside: Credentials | None) -> None:
        """Raises ConfigError when a file cannot be read or the two do not fit."""
        self._parts = (certificate, key)
        self._files = [part for part in self._parts if isinstance(part, FollowedFile)]
        self._beside = beside
        self._lock = ForkSafeLock()
        self._current = self._read()

    def header(self, deadline: float | None = None) -> str | None:
        """The header of the credentials beside the files; None without them. Reads the files again if they were
        replaced."""
        self._follow()
        return self._beside.header(deadline) if self._beside is not None else None

    def refresh(self, rejected: str | None, deadline: float | None = None) -> bool:
        """Read the files again and renew the credentials beside them; whether anything has changed."""
        before = self._current
        self._follow()
        # Both are asked: whichever was rejected, the other may be new as well.
        renewed = self._beside.refresh(rejected, deadline) if self._beside is not None else False
        return renewed or self._current != before

    def certificate(self) -> ClientCertificate | None:
        """The certificate and key as the files had them at the last `header()` call."""
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
        """For pickles: another process reads the files itself."""
        return type(self), (*self._parts, self._beside)

    def __repr__(self) -> str:
        beside = f" and {self._beside!r}" if self._beside is not None else ""
        return f"<client certificate in {', '.join(file.path for file in self._files)}{beside}>"
