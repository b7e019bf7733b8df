"""Bundles of CAs as PEM, private files, and TLS contexts of servers.

A bundle holds the CAs that a client trusts; several servers, each with its own authority, maintain it together.

Private files:

- `private_file(content)` provides a file for the duration of a `with` block, because OpenSSL reads keys only from
  files. The file is in memory if the system supports that, so this also works on a read-only file system.
- `write_private(path, content)` writes or replaces a named file as a whole.
- `create_private(path)` creates a file that is written piece by piece.

Only the owner can read these files. Links are not followed, and devices, pipes and folders are refused and never
opened.
"""
from __future__ import annotations

import errno
import os
import re
import ssl
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from kubectl_runtime.certificates.authority import Certificate, Described, described

MOST = 64
"""The maximum number of certificates of one name in a bundle. A killed replica leaves its certificate there until the
certificate expires, and a program that crashes for days must not fill the object."""

_BLOCK = re.compile(rb"-----BEGIN CERTIFICATE-----(?:(?!-----BEGIN ).)+?-----END CERTIFICATE-----", re.DOTALL)
_NEVER = datetime.max.replace(tzinfo=UTC)
_UNKNOWN = Described("", _NEVER, _NEVER)


def certificates_in(bundle: bytes) -> list[bytes]:
    """Return the certificates of a bundle; each ends with a line break."""
    return [block + b"\n" for block in _BLOCK.findall(bundle)]


def joined(bundle: bytes, ours: Iterable[bytes]) -> bytes:
    """Return `bundle` with the certificates of `ours` that it lacks. Does not need the extra `tls`."""
    there = certificates_in(bundle)
    lacking = [one for one in ours if one not in there]
    return b"".join([*there, *lacking]) if lacking else bundle


def merged(bundle: bytes, ours: Iterable[bytes], gone: Iterable[bytes], *, name: str, now: datetime) -> bytes:
    """Return `bundle` with the certificates `ours` added, and with `gone` and all expired certificates removed.

    If more than `MOST` certificates have the name `name`, the oldest of them are removed, too. Returns the same bytes
    if nothing changes. Raises `MissingExtra`.
    """
    wanted, leaving = list(ours), set(gone)
    there = certificates_in(bundle)
    others = [(block, _described(block)) for block in there if block not in leaving and block not in wanted]
    youngest = sorted((about.begin for _, about in others if about.name == name), reverse=True)
    since = dict(enumerate(youngest)).get(MOST - len(wanted) - 1, datetime.min.replace(tzinfo=UTC))
    kept = [block for block, about in others
            if about.end > now and (about.name != name or about.begin >= since)]
    return bundle if sorted(there) == sorted([*kept, *wanted]) else b"".join([*kept, *wanted])


def _described(block: bytes) -> Described:
    try:
        return described(block)
    except ValueError:  # keep what cannot be parsed: another program may have written it
        return _UNKNOWN


@contextmanager
def private_file(content: bytes) -> Iterator[str]:
    """Yield the path of a file with `content`, which exists until the block ends. Raises OSError."""
    if hasattr(os, "memfd_create") and Path("/proc/self/fd").is_dir():
        descriptor = os.memfd_create("certificate")
        try:
            with os.fdopen(os.dup(descriptor), "wb") as file:
                file.write(content)
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
        return
    import tempfile  # rarely needed, and slow to import

    with tempfile.TemporaryDirectory(prefix="kubectl-runtime-", ignore_cleanup_errors=True) as folder:
        path = Path(folder, "certificate.pem")  # only this user can read the folder
        path.write_bytes(content)
        yield str(path)


def refuse_special(path: str | os.PathLike[str]) -> None:
    """Raise OSError if `path` exists and is not a regular file. Does not open it."""
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISREG(mode):
        number = errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL
        raise OSError(number, "the path exists, and is not a regular file", os.fspath(path))


def create_private(path: str | os.PathLike[str]) -> int:
    """Create a file, and return a descriptor for reading and appending. Raises OSError, or its
    subclass FileExistsError if `path` exists."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0), 0o600)


def write_private(path: str | os.PathLike[str], content: bytes) -> None:
    """Write a file, or replace it as a whole. Raises OSError, for example if `path` is not a regular file."""
    import tempfile

    refuse_special(path)
    folder, name = os.path.split(os.path.abspath(path))
    descriptor, made = tempfile.mkstemp(prefix=f".{name[:100]}.", dir=folder)  # creates it with mode 0600
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        os.replace(made, path)
    except BaseException:
        os.unlink(made)
        raise


def server_context(certificate: Certificate, client_ca: bytes | None = None) -> ssl.SSLContext:
    """Make the TLS context of a server. `certificate` may include intermediate certificates.

    With `client_ca`, the server asks clients for a certificate of that authority, but also accepts clients without one.
    Raises ssl.SSLError or ValueError if the certificate and its key cannot be used together.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    if client_ca is not None:
        context.verify_mode = ssl.CERT_OPTIONAL
        context.load_verify_locations(cadata=client_ca.decode("ascii"))
    with private_file(certificate.key + b"\n" + certificate.certificate) as path:
        context.load_cert_chain(path, password=_no_password)
    return context


def _no_password() -> bytes:
    """OpenSSL calls this for an encrypted key, instead of prompting on the terminal."""
    raise ValueError("the key is encrypted: give a key without a password")
