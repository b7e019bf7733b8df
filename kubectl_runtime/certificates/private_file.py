"""`private_file`: what OpenSSL reads from a file only, keys above all, in a file that nobody else can read.

Where the system has that, it is one in memory, which has no name; so a read-only file system will do.
"""
from __future__ import annotations

import os
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
