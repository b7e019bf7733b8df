"""`RingFile`: lines in at most two files, of which each can be understood without the other.

    FILE             what is written now
    FILE.1           what was before, of the same process; whatever was before that is gone
    FILE.before, FILE.before.1    the same of the process before this one, which may have crashed for a good reason

Neither grows above half of the limit. When FILE is full it becomes FILE.1, and a new one begins with what was stored at
that moment, which follows from the old file alone (`Folded`). A process may be killed at any time: a file takes its
place when its beginning is whole, and its last line may be torn. For one thread. The files are readable by their owner
only, and locked while they are written, where the system can. Links are not followed; where there is anything but a
regular file at one of the names, nothing is opened.

What no recording holds: the data of Secrets, the tokens of reviews and requests, and what a server says of either.

    the resource says so     secrets, tokenreviews, the token of a service account: all that is sent and answered, also
                             a patch, a Status, and text that is no JSON
    the content says so      an object of such a kind anywhere in a document: in a list, in a watch line, in another
                             object

Keys stay, so that a replayed program finds what it looks for; each value is `WITHHELD`, in base64 where values are. The
annotation in which kubectl keeps an object as it was last applied goes as well.
"""
from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from kubectl_runtime.certificates.bundles import create_private, refuse_special
from kubectl_runtime.core.base.wire import decoded, decoder_of
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


TEXT = "withheld"
BASE64 = "d2l0aGhlbGQ="
"""The same in base64."""

_TOKENS = ("token", "clientKeyData")
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


_KINDS = frozenset({"Secret", "SecretList", "TokenReview", "TokenRequest", "ExecCredential"})
_MARKS = (b'"Secret', b'"Token', b'"ExecCredential', rb"\u00")
"""One of these is in every document that names one of the kinds; an escape may stand for any letter."""


def is_withheld(resource_name: str, subresource: str | None = None) -> bool:
    """Whether objects of this resource, `plural.group`, hold what is not to be recorded."""
    return resource_name in ("secrets", "tokenreviews.authentication.k8s.io") or (
        resource_name == "serviceaccounts" and subresource == "token")


def without_secrets(document: bytes, *, withheld: bool = True) -> bytes:
    """The JSON of an object, a list, a patch or a Status, without the values. `withheld`: it is about a resource that
    is; then what is not JSON is withheld whole. Otherwise the kinds in it decide, and the rest is as it was."""
    if not withheld and not any(mark in document for mark in _MARKS):
        return document
    try:
        return msgspec.json.encode(_cleaned(msgspec.json.decode(document), withheld))
    except DECODE_FAILURES:
        return msgspec.json.encode(TEXT) if withheld else document


def _may_hold_secrets(text: Any) -> bool:
    return isinstance(text, str) and any(mark in text.encode(errors="replace") for mark in _MARKS)


def _cleaned(value: Any, withheld: bool) -> Any:
    if isinstance(value, list):  # a JSON patch, or items
        return [_cleaned(item, withheld) for item in value]
    if not isinstance(value, dict):
        return value
    kind = value.get("kind")
    if not withheld and not (isinstance(kind, str) and kind in _KINDS):
        return {key: TEXT if key == _LAST_APPLIED and _may_hold_secrets(part) else _cleaned(part, False)
                for key, part in value.items()}
    if kind == "Status":
        return {key: TEXT if key == "message" else part for key, part in value.items() if key != "details"}
    if "op" in value and "path" in value:
        return {key: TEXT if key == "value" else part for key, part in value.items()}
    found = {key: _cleaned(part, key in ("items", "object", "rows")) for key, part in value.items()}
    for key, text in (("data", BASE64), ("stringData", TEXT)):
        if isinstance(found.get(key), dict):
            found[key] = {name: None if part is None else text for name, part in found[key].items()}
        elif found.get(key) is not None:
            found[key] = TEXT
    for key in ("spec", "status"):
        if isinstance(part := found.get(key), dict):
            found[key] = part | {name: TEXT for name in _TOKENS if part.get(name) is not None}
    if isinstance(metadata := found.get("metadata"), dict):
        annotations = metadata.get("annotations")
        if isinstance(annotations, dict) and _LAST_APPLIED in annotations:
            found["metadata"] = {**metadata, "annotations": {**annotations, _LAST_APPLIED: TEXT}}
    return found
