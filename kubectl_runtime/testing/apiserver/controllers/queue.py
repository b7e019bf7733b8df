"""`KeyQueue`: the objects of one type that a controller has to look at, fed by the changes of that type and of its
children."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kubectl_runtime.testing.apiserver.storage import Bucket, Change, Version

if TYPE_CHECKING:
    from kubectl_runtime.testing.apiserver.core import ApiCore

PER_STEP = 50


class KeyQueue:
    """Base of small controllers: subclasses set `storage` and `children`, and reconcile one object at a time."""

    name = ""
    storage = ""  # the key of the type that is reconciled
    kind = ""  # its kind, as owner references of children name it
    children: tuple[str, ...] = ()  # keys of the types whose changes concern their controller owner

    def __init__(self) -> None:
        self._keys: dict[str, None] = {}
        self._started = False

    def start(self, core: ApiCore) -> None:
        """Look at every object of the type, and observe."""
        self._keys = dict.fromkeys(core.storage.bucket(self.storage).keys)
        if not self._started:
            self._started = True
            core.storage.observers.append(self._observe)

    def _observe(self, bucket: Bucket, change: Change) -> None:
        if bucket.key == self.storage:
            self._keys[change.new.key] = None
        elif bucket.key in self.children:
            for owner in change.new.owners:
                if owner.get("controller") and owner.get("kind") == self.kind:
                    self._keys[f"{change.new.namespace}/{owner.get('name')}"] = None

    def due(self) -> float | None:
        """At once if there is something to look at."""
        return 0.0 if self._keys else None

    def step(self, core: ApiCore) -> None:
        """Reconcile some objects."""
        for _ in range(min(PER_STEP, len(self._keys))):
            key = next(iter(self._keys))
            del self._keys[key]
            version = core.storage.bucket(self.storage).objects.get(key)
            if version is not None:
                self.reconcile(core, version)

    def reconcile(self, core: ApiCore, version: Version) -> None:
        """Bring what belongs to one object in line with it; overridden."""
        raise AssertionError(f"{type(self).__name__} reconciles nothing")


def controlled(core: ApiCore, storage: str, owner: Version,
               wanted: Callable[[Version], bool] = lambda _: True) -> list[Version]:
    """The objects of a type that an object controls."""
    bucket = core.storage.bucket(storage)
    return [version for version in bucket.scan(owner.namespace) if wanted(version)
            and any(ref.get("controller") and ref.get("uid") == owner.uid for ref in version.owners)]
