"""Bundles of authorities, as PEM: what a client trusts, kept by several servers, each with an authority of its own.

Files that only their owner can read: every file that the library writes.

    private_file(content)           for what OpenSSL reads from a file only, keys above all, while a block lasts; where
                                    the system has that, it is one in memory, so a read-only file system will do
    write_private(path, content)    a file under a name, replaced as a whole
    create_private(path)            a new file, to be written bit by bit

No name leads elsewhere: links are not followed, and devices, pipes and folders are refused and never opened.

From certificates in memory to the ssl module's contexts.
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
"""Certificates of one name in a bundle. Replicas that were killed leave theirs until it expires; those of a program
that crashes for days must not fill the object."""

_BLOCK = re.compile(rb"-----BEGIN CERTIFICATE-----(?:(?!-----BEGIN ).)+?-----END CERTIFICATE-----", re.DOTALL)
_NEVER = datetime.max.replace(tzinfo=UTC)
_UNKNOWN = Described("", _NEVER, _NEVER)


def certificates_in(bundle: bytes) -> list[bytes]:
    """Each certificate of a bundle, ending with a line break."""
    return [block + b"\n" for block in _BLOCK.findall(bundle)]


def joined(bundle: bytes, ours: Iterable[bytes]) -> bytes:
    """`bundle` with those of `ours` that it lacks. Looks into none of them, so it needs no cryptography."""
    there = certificates_in(bundle)
    lacking = [one for one in ours if one not in there]
    return b"".join([*there, *lacking]) if lacking else bundle


def merged(bundle: bytes, ours: Iterable[bytes], gone: Iterable[bytes], *, name: str, now: datetime) -> bytes:
    """`bundle` with `ours`, and without `gone`, what has expired, and the oldest beyond `MOST` of those called `name`.

    What somebody else put there stays. The same bytes if nothing is to be done. Raises `MissingExtra`.
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
    except ValueError:  # not for us to judge
        return _UNKNOWN


@contextmanager
def private_file(content: bytes) -> Iterator[str]:
    """A path with `content`, for as long as the block lasts. Raises OSError."""
    if hasattr(os, "memfd_create") and Path("/proc/self/fd").is_dir():
        descriptor = os.memfd_create("certificate")
        try:
            with os.fdopen(os.dup(descriptor), "wb") as file:
                file.write(content)
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
        return
    import tempfile  # seldom needed, and slow to import

    with tempfile.TemporaryDirectory(prefix="kubectl-runtime-", ignore_cleanup_errors=True) as folder:
        path = Path(folder, "certificate.pem")  # the folder is for this user alone
        path.write_bytes(content)
        yield str(path)


def refuse_special(path: str | os.PathLike[str]) -> None:
    """Raise OSError for a path at which there is anything but a regular file, or nothing. Does not open it."""
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISREG(mode):
        number = errno.EISDIR if stat.S_ISDIR(mode) else errno.EINVAL
        raise OSError(number, "it is there, and is not a regular file", os.fspath(path))


def create_private(path: str | os.PathLike[str]) -> int:
    """A descriptor of a new file, for reading and appending. Raises FileExistsError for a name that is taken, by
    whatever; other OSErrors."""
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_APPEND | getattr(os, "O_NOFOLLOW", 0), 0o600)


def write_private(path: str | os.PathLike[str], content: bytes) -> None:
    """Write a file; one that is there before is replaced as a whole. Raises OSError, also as `refuse_special`."""
    import tempfile

    refuse_special(path)
    folder, name = os.path.split(os.path.abspath(path))
    descriptor, made = tempfile.mkstemp(prefix=f".{name[:100]}.", dir=folder)  # for its owner alone
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
        os.replace(made, path)
    except BaseException:
        os.unlink(made)
        raise


def server_context(certificate: Certificate, client_ca: bytes | None = None) -> ssl.SSLContext:
    """A context of a server with this certificate, which may bring those between it and its root. With `client_ca`,
    clients are asked for a certificate of that authority.

    Raises ssl.SSLError and ValueError for a certificate and key that cannot be used together.
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
    """Called by OpenSSL for an encrypted key, instead of a question on the terminal."""
    raise ValueError("the key is encrypted: give it without a password")
