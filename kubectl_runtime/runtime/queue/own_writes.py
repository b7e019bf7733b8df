"""`RunWrites`: which versions a run made itself. They are the versions that its writes returned, except no-ops.

    returned version                                        own version?
    the version that was stored before                      no: nothing was changed
    another one, but the sent content was already stored,
    or was sent on top of that very version                 no: another client made it just before the write
    another one                                             yes
    none, after a deletion: the object is gone              yes: the deletion of this uid

The second row costs two decodings, so it is checked only after a failure: an own event does not bring a retry forward,
a foreign change does. The version counts as own where the check is impossible: the object is not watched, the store has
only metadata or declared fields, or another client made exactly the change that was sent.

`OwnEvents`: the events of own writes that a watch has not delivered yet, after successful runs. Such an event carries
nothing new for its key, so it may run after others; but the key must run, since the server may have changed what was
sent. Events of *quiet* versions, which the library itself made for a run, lead to no run.

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
"""One version of one object: its uid and resourceVersion. An empty version stands for the end of that object."""

MOST_COMPARED = 1000
"""Writes of one run whose bodies are kept for comparison."""

_decode = msgspec.json.Decoder().decode


class RunWrites:
    """The writes of one run. Several threads may use it at once."""

    __slots__ = ("_compared", "_versions", "begun", "last")

    def __init__(self) -> None:
        self.begun: dict[int, tuple[Key | None, Record | None]] = {}
        """For each thread the key that it is about to write (None: a new object), and the stored object."""
        self._versions: dict[Version, None] = {}
        self._compared: dict[Version, tuple[Record, bytes]] = {}
        self.last: list[tuple[Record | None, Record]] = []
        """The last two changed objects: as stored before, and as returned."""

    def __len__(self) -> int:
        return len(self._versions)

    def add(self, write: Write, before: Record | None) -> None:
        """`write` was answered; `before` is the object as it was stored when the write began, None when it was not."""
        if not write.uid or (write.record is None and not write.resource_version and write.verb != "delete"):
            return
        version = (write.uid, write.resource_version)
        known = before is not None and before.uid == write.uid
        if known and before is not None and before.resource_version == write.resource_version:
            return
        record, sent = write.record, write.sent
        if known and before is not None and record is not None and sent and len(self._compared) < MOST_COMPARED:
            self._compared[version] = (before, sent)
        self._versions[version] = None  # last: another thread that sees the version then finds the comparison
        if record is None:
            return
        self.last = [*self.last[-1:], (before if known else None, record)]

    def versions(self) -> dict[Version, None]:
        """All returned versions, without a comparison of contents."""
        return self._versions.copy()

    def changes(self) -> dict[Version, None]:
        """The own versions, see the module. Decodes what was sent."""
        return {version: None for version in self._versions.copy()
                if version not in self._compared or not stood_there(*self._compared[version], version[1])}


def stood_there(before: Record, sent: bytes, answered: str = "") -> bool:
    """Whether sending `sent` (an object, a patch) to `before` changes nothing, or `sent` names `answered` as the
    version that it is based on. False when this is unknown."""
    try:
        found = _decode(before.raw)
        wanted = _decode(sent)
    except DECODE_FAILURES:  # declared fields only, or a body that is not JSON
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
    """Whether `wanted` is part of `found`; null stands for an absent value."""
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
"""Per controller (about 3 MB). Older versions are forgotten; the event of a forgotten write counts as news."""


class OwnEvents:
    """The writes of one controller's runs that the watch has not delivered yet."""

    __slots__ = ("expected",)

    def __init__(self) -> None:
        self.expected: OrderedDict[tuple[Key, Version], bool] = OrderedDict()
        """The expected versions of each key, and whether they are quiet. To be changed only by this class."""

    def __len__(self) -> int:
        return len(self.expected)

    def expect(self, key: Key, versions: Iterable[Version], *, quiet: bool = False) -> None:
        """A run of `key` made these versions; `quiet`: the library made them, not the reconciler."""
        expected = self.expected
        for version in versions:
            expected[(key, version)] = quiet
        while len(expected) > MAX_EXPECTED:
            expected.popitem(last=False)

    def met(self, key: Key, cause: Version) -> bool:
        """Whether `key` made version `cause` or deleted its object; forgets the version."""
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
