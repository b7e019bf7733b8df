"""Files that only their owner can read: every file that the library writes.

    private_file(content)           for what OpenSSL reads from a file only, keys above all, while a block lasts; where
                                    the system has that, it is one in memory, so a read-only file system will do
    write_private(path, content)    a file under a name, replaced as a whole
    create_private(path)            a new file, to be written bit by bit

No name leads elsewhere: links are not followed, and devices, pipes and folders are refused and never opened.
"""
from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


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
