"""Which versions a run has made itself: what its writes were answered, less those that changed nothing.

    answered version                                        is ours
    the one that was stored before                          no: nothing was changed
    another one, and what was sent stood there before,
    or was sent on top of that very version                 no: somebody else made it, just before the write came
    another one                                             yes
    none, after a deletion: the object is gone              the deletion of this uid is

The middle row costs two decodings, so it is looked at only after a failure, when it matters: the event of an own write
does not bring a retry forward, the change of somebody else does. Where that cannot be told (the object is not watched,
only its metadata or declared fields are, or somebody made exactly the change that was sent), the version is ours.

`OwnEvents`: the changes that are still to come back on a watch, of what a key's last runs wrote and ended well with.

    a run of `key` ended well, having made `versions`    `expect`: remembered
    a change to one of them asks for `key`               `met`: True once, then forgotten
    anything else                                        False
    a run ended, for which the library itself made       `expect`, quiet: remembered
    `versions` on top of what the run was given
    a change to one of them asks for `key`               `met_quiet`: True once; it leads to no run

Such a change tells its key what it knows, so it need not go before others. It must still be looked at: the server may
have made something else of what was sent. Pure; the owner serialises calls.
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
    """The writes of one run. Those of several threads may come at once."""

    __slots__ = ("_compared", "_versions", "begun", "last")

    def __init__(self) -> None:
        self.begun: dict[int, tuple[Key | None, Record | None]] = {}
        """What each thread is going to write, None for a new object, and how that is stored."""
        self._versions: dict[Version, None] = {}
        self._compared: dict[Version, tuple[Record, bytes]] = {}
        self.last: list[tuple[Record | None, Record]] = []
        """The newest two objects that were changed: as stored before, as answered."""

    def __len__(self) -> int:
        return len(self._versions)

    def add(self, write: Write, before: Record | None) -> None:
        """`write` was answered; `before` is how the object was stored then, None when it was not."""
        if not write.uid or (write.record is None and not write.resource_version and write.verb != "delete"):
            return
        version = (write.uid, write.resource_version)
        known = before is not None and before.uid == write.uid
        if known and before is not None and before.resource_version == write.resource_version:
            return
        record, sent = write.record, write.sent
        if known and before is not None and record is not None and sent and len(self._compared) < MOST_COMPARED:
            self._compared[version] = (before, sent)
        self._versions[version] = None  # only now: another thread that sees it finds the comparison
        if record is None:
            return
        self.last = [*self.last[-1:], (before if known else None, record)]

    def versions(self) -> dict[Version, None]:
        """All that were answered, without a look at what they changed."""
        return self._versions.copy()

    def changes(self) -> dict[Version, None]:
        """Those that are ours, see the module. Decodes what was sent."""
        return {version: None for version in self._versions.copy()
                if version not in self._compared or not stood_there(*self._compared[version], version[1])}


def stood_there(before: Record, sent: bytes, answered: str = "") -> bool:
    """Whether to send `sent` (an object, a patch) would have changed nothing in `before`, or has changed nothing in the
    version that it was sent on top of, since `answered` is that one; False when it is unknown."""
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
    """Whether `wanted` is a part of `found`; null stands for what is absent."""
    if isinstance(wanted, dict):
        return isinstance(found, dict) and all(_holds(found.get(key), value) for key, value in wanted.items())
    if isinstance(wanted, list):
        return isinstance(found, list) and all(any(_holds(item, one) for item in found) for one in wanted)
    return type(found) is type(wanted) and bool(found == wanted)


def _done(operation: Any, found: Any) -> bool:
    """Whether one operation of a JSON patch has nothing left to do."""
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
"""Of one controller (about 3 MB); older ones are forgotten, and the event of such a write counts as news."""


class OwnEvents:
    """What one controller's runs wrote and have not heard of yet."""

    __slots__ = ("expected",)

    def __init__(self) -> None:
        self.expected: OrderedDict[tuple[Key, Version], bool] = OrderedDict()
        """And whether they are quiet. Not to be changed by others."""

    def __len__(self) -> int:
        return len(self.expected)

    def expect(self, key: Key, versions: Iterable[Version], *, quiet: bool = False) -> None:
        """A run of `key` made these; `quiet`: its own reconciler did not."""
        expected = self.expected
        for version in versions:
            expected[(key, version)] = quiet
        while len(expected) > MAX_EXPECTED:
            expected.popitem(last=False)

    def met(self, key: Key, cause: Version) -> bool:
        """Whether the change to version `cause`, or the end of its object, is one of those that `key` made."""
        expected = self.expected
        for version in (cause, (cause[0], "")):
            if (key, version) in expected:
                del expected[(key, version)]
                return True
        return False

    def met_quiet(self, key: Key, cause: Version) -> bool:
        """As `met`, of those that are quiet."""
        if not self.expected.get((key, cause)):
            return False
        del self.expected[(key, cause)]
        return True

    def clear(self) -> None:
        """Expect nothing."""
        self.expected.clear()
