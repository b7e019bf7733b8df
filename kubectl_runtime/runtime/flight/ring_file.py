"""`RingFile`: lines in at most two files, of which each can be understood without the other.

    FILE             what is written now
    FILE.1           what was before, of the same process; whatever was before that is gone
    FILE.before, FILE.before.1    the same of the process before this one, which may have crashed for a good reason

Neither grows above half of the limit. When FILE is full it becomes FILE.1, and a new one begins with what was stored at
that moment, which follows from the old file alone (`Folded`). A process may be killed at any time: a file takes its
place when its beginning is whole, and its last line may be torn. For one thread. The files are readable by their owner
only, and locked while they are written, where the system can. Links are not followed; where there is anything but a
regular file at one of the names, nothing is opened.
"""
from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from kubectl_runtime.certificates.private_file import create_private, refuse_special
from kubectl_runtime.core.base.building import decoded, decoder_of
from kubectl_runtime.core.meta.problems import DECODE_FAILURES

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]


class _Line(msgspec.Struct):
    """What matters of a line for what was stored."""

    k: str = ""
    w: str = ""
    key: str = ""
    o: msgspec.Raw = msgspec.Raw()
    line: msgspec.Raw = msgspec.Raw()


_decode = decoder_of(_Line)


class _Enveloped(msgspec.Struct):
    object: msgspec.Raw


class Folded:
    """What is stored after some lines."""

    def __init__(self) -> None:
        self.held: dict[tuple[str, str], bytes] = {}
        self.ready: dict[str, None] = {}

    def add(self, text: bytes) -> None:
        """One more line; one that is torn changes nothing."""
        try:
            line = _decode(text)
            if line.k in ("apply", "held"):
                self.held[line.w, line.key] = object_of(line.o, line.line)
        except DECODE_FAILURES:
            return
        if line.k == "delete":
            self.held.pop((line.w, line.key), None)
        elif line.k == "ready":
            self.ready[line.w] = None

    def lines(self, now: float) -> list[bytes]:
        """Lines that say what is stored after those that were added: each object once, dated `now`."""
        held = [msgspec.json.encode({"k": "held", "t": now, "w": watch, "key": key, "o": msgspec.Raw(obj)})
                for (watch, key), obj in self.held.items()]
        return [*held, *(msgspec.json.encode({"k": "ready", "t": now, "w": watch}) for watch in self.ready)]


def object_of(plain: bytes | msgspec.Raw, line: bytes | msgspec.Raw) -> bytes:
    """The object of an `apply`: itself, or inside the watch line that brought it."""
    return bytes(plain) if plain else bytes(decoded(line, _Enveloped).object)


class RingFile:
    """A file of lines, and the file before it, neither of which grows beyond half of the limit. For one thread."""

    def __init__(self, path: Path, limit: int, head: Callable[[int, bool], bytes]) -> None:
        """Opens the file; `head(part, partial)` is its first line. Raises OSError; BlockingIOError when somebody else
        writes it."""
        self._path, self._half, self._head = path, limit // 2, head
        self._part, self._size = 1, 0
        self._descriptor = -1
        moves = [(Path(f"{path}{suffix}"), Path(f"{path}.before{suffix}")) for suffix in ("", ".1")]
        for file in (*moves[0], *moves[1]):
            refuse_special(file)
        _refuse_if_locked(path)
        for old, kept in moves:
            kept.unlink(missing_ok=True)
            if old.exists():
                old.replace(kept)
        self._begin([head(1, False)])

    def write(self, lines: Sequence[bytes], now: float) -> int:
        """Append these; how many were too long to be kept. Raises OSError."""
        lost, batch, size = 0, list[bytes](), 0
        for line in lines:
            if len(line) >= self._half // 2:
                lost += 1
                continue
            if self._size + size + len(line) + 1 > self._half and self._size + size:
                self._append(batch, size)
                self._turn(now)
                batch, size = [], 0
            batch.append(line)
            size += len(line) + 1
        self._append(batch, size)
        return lost

    def close(self) -> None:
        """Close the file. Safe to repeat."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _append(self, lines: list[bytes], size: int) -> None:
        if not lines:
            return
        data = memoryview(b"\n".join([*lines, b""]))
        while data:
            data = data[os.write(self._descriptor, data):]
        self._size += size

    def _turn(self, now: float) -> None:
        folded = Folded()
        with os.fdopen(os.dup(self._descriptor), "rb") as file:
            file.seek(0)
            for line in file:
                folded.add(line)
        held = folded.lines(now)
        self._part += 1
        if sum(map(len, held)) + len(held) > self._half // 2:
            held, head = [], self._head(self._part, True)
        else:
            head = self._head(self._part, False)
        before = self._descriptor
        self._begin([head, *held], keep=Path(f"{self._path}.1"))
        os.close(before)

    def _begin(self, lines: list[bytes], keep: Path | None = None) -> None:
        """A new file with these lines takes the place of the present one, which is kept under that name."""
        made = Path(f"{self._path}.new")
        self._descriptor = _created(made)
        self._size = 0
        self._append(lines, sum(map(len, lines)) + len(lines))
        if keep is not None:
            self._path.replace(keep)
        made.replace(self._path)
        if not os.path.samestat(os.fstat(self._descriptor), self._path.lstat()):
            raise BlockingIOError(errno.EWOULDBLOCK, "another process has put its file there", str(self._path))


def _created(path: Path) -> int:
    """A new file, locked. What a killed process has left there, or somebody has put there, is taken away."""
    try:
        descriptor = create_private(path)
    except FileExistsError:
        if stat.S_ISREG(path.lstat().st_mode):
            _refuse_if_locked(path)
        path.unlink()
        descriptor = create_private(path)
    if fcntl is not None:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return descriptor


def _refuse_if_locked(path: Path) -> None:
    if fcntl is None or not path.exists():
        return
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        os.close(descriptor)
