"""`RunWrites`: the versions that a run made itself, as its writes returned them. No-ops are left out.

    returned version                                        own version?
    the version that was stored before                      no: nothing was changed
    another version, but the sent content was already
    stored, or the request named that very version          no: another client made this version before the write
    any other version                                       yes
    none, after a deletion: the object is gone              yes: the deletion of this uid

Checking the second row decodes two objects, so it is done only after a failed run. Only then does it matter whose
change an event reports: an own event does not bring the retry forward, but a foreign change does. The version also
counts as own if the object is not watched, if the store has only metadata or declared fields, or if another client made
exactly the change that was sent.

`OwnEvents`: the events of own writes, after successful runs, that a watch has not delivered yet. Such an event seldom
shows anything new for its key, so the key runs after other keys. But the key must run, since the server may have
changed the sent content. Events of *quiet* versions, which the library itself made for a run, request no run.

Pure; the owner serialises the calls.
"""
from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from kubectl_runtime.core.base.plain import Key
from kubectl_runtime.core.codec.views import Record
from kubectl_runtime.core.meta.problems import DECODE_FAILURES

if TYPE_CHECKING:
    from kubectl_runtime.client.api.client import Write

Version: TypeAlias = tuple[str, str]
"""One version of one object: its uid and resourceVersion. An empty version stands for the object's deletion."""

MOST_COMPARED = 1000
"""The number of writes of one run whose bodies are kept for comparison."""

_decode = msgspec.json.Decoder().decode


class RunWrites:
    """The writes of one run. Several threads may use it at once."""

    __slots__ = ("_compared", "_versions", "begun", "last")

    def __init__(self) -> None:
        self.begun: dict[int, tuple[Key | None, Record | None]] = {}
        """For each thread, the key that it is about to write (None: a new object) and the stored object."""
        self._versions: dict[Version, None] = {}
        self._compared: dict[Version, tuple[Record, bytes]] = {}
        self.last: list[tuple[Record | None, Record]] = []
        """The last two written objects, each as it was stored before the write and as it was returned."""

    def __len__(self) -> int:
        return len(self._versions)

    def add(self, write: Write, before: Record | None) -> None:
        """Record an answered write. `before`: the object as stored when the write began; None if it was not stored."""
        if not write.uid or (write.record is None and not write.resource_version and write.verb != "delete"):
            return
        version = (write.uid, write.resource_version)
        known = before is not None and before.uid == write.uid
        if known and before is not None and before.resource_version == write.resource_version:
            return
        record, sent = write.record, write.sent
        if known and before is not None and record is not None and sent and len(self._compared) < MOST_COMPARED:
            self._compared[version] = (before, sent)
        self._versions[version] = None  # set last: a thread that finds the version also reads `_compared`
        if record is None:
            return
        self.last = [*self.last[-1:], (before if known else None, record)]

    def versions(self) -> dict[Version, None]:
        """All versions that the run's writes returned. The contents are not compared."""
        return self._versions.copy()

    def changes(self) -> dict[Version, None]:
        """The versions that the run made itself, as the module's table defines. Decodes the sent bodies."""
        return {version: None for version in self._versions.copy()
                if version not in self._compared or not stood_there(*self._compared[version], version[1])}


def stood_there(before: Record, sent: bytes, answered: str = "") -> bool:
    """True if a write of `sent` (an object or a patch) changes nothing in `before`, or if `sent` names the version
    `answered` as its base. False otherwise, also if `before` or `sent` cannot be decoded."""
    try:
        found = _decode(before.raw)
        wanted = _decode(sent)
    except DECODE_FAILURES:  # `before` has only declared fields, or the body is not JSON
        return False
    if before.enveloped:
        found = found.get("object")
    if isinstance(wanted, list):
        return all(_done(operation, found) for operation in wanted)
    metadata = wanted.get("metadata") if isinstance(wanted, dict) else None
    if isinstance(metadata, dict):
        if answered and metadata.get("resourceVersion") == answered:
            return True
        for server_s in ("resourceVersion", "managedFields", "generation"):
            metadata.pop(server_s, None)
    return _holds(found, wanted)


def _holds(found: Any, wanted: Any) -> bool:
    """Whether `found` contains `wanted`; null stands for an absent value."""
    if isinstance(wanted, dict):
        return isinstance(found, dict) and all(_holds(found.get(key), value) for key, value in wanted.items())
    if isinstance(wanted, list):
        return isinstance(found, list) and all(any(_holds(item, one) for item in found) for one in wanted)
    return type(found) is type(wanted) and bool(found == wanted)


def _done(operation: Any, found: Any) -> bool:
    """Whether one operation of a JSON patch would change nothing."""
    kind = operation.get("op")
    if kind == "test":
        return True
    exists, value = _at(found, operation.get("path", ""))
    if kind == "remove":
        return not exists
    return kind in ("add", "replace") and exists and _holds(value, operation.get("value"))


def _at(found: Any, path: str) -> tuple[bool, Any]:
    for segment in path.split("/")[1:]:
        key = segment.replace("~1", "/").replace("~0", "~")
        if isinstance(found, dict) and key in found:
            found = found[key]
        elif isinstance(found, list) and key.isdecimal() and int(key) < len(found):
            found = found[int(key)]
        else:
            return False, None
    return True, found


MAX_EXPECTED = 10_000
"""The limit of expected versions per controller (about 3 MB). Older versions are forgotten; the event of a forgotten
write counts as new."""


class OwnEvents:
    """The writes of one controller's runs that the watch has not delivered yet."""

    __slots__ = ("expected",)

    def __init__(self) -> None:
        self.expected: OrderedDict[tuple[Key, Version], bool] = OrderedDict()
        """The expected versions of each key, and whether each is quiet. Only this class may change the mapping."""

    def __len__(self) -> int:
        return len(self.expected)

    def expect(self, key: Key, versions: Iterable[Version], *, quiet: bool = False) -> None:
        """Record the versions that a run of `key` made. `quiet`: the library made them, not the reconciler."""
        expected = self.expected
        for version in versions:
            expected[(key, version)] = quiet
        while len(expected) > MAX_EXPECTED:
            expected.popitem(last=False)

    def met(self, key: Key, cause: Version) -> bool:
        """Whether a run of `key` made version `cause` or deleted the object that `cause` names. Forgets this write."""
        expected = self.expected
        for version in (cause, (cause[0], "")):
            if (key, version) in expected:
                del expected[(key, version)]
                return True
        return False

    def met_quiet(self, key: Key, cause: Version) -> bool:
        """Like `met`, for quiet versions."""
        if not self.expected.get((key, cause)):
            return False
        del self.expected[(key, cause)]
        return True

    def clear(self) -> None:
        """Forget all expected events."""
        self.expected.clear()
