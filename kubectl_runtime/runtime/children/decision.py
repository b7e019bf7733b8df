"""What to do about one child: a pure function of the desired state, the present state, and the last apply.

*We* are this process, under its field manager. To whom does an object with the child's name belong?

    another object is its controller                     not ours, unless that controller was an earlier object of the
                                                         owner's own kind and name, and our manager applied the child
    it has an owner reference to the owner               ours
    our manager has applied it                           ours
    this process has applied that object for the owner   ours, even if the server stores no sign of this: a child
                                                         without content, such as a ServiceAccount, may lose its
                                                         owner reference
    anything else                                        not ours

Which action follows (`decide`)?

    there is no object                                   CREATE: applied without force
    not ours                                             REFUSE; with `adopt`, if it has no controller: APPLY
    ours, but it is being deleted                        WAIT: nothing is written, the name is not free yet
    ours, this process has not applied it yet            APPLY, by force
    ours, the desired state has changed                  APPLY
    ours, the desired state is the same, and the object has
      the version that our apply returned                KEEP
      an older version, while reads may be behind and
      our apply is not older than `LAG`                  KEEP
      another version, but our managedFields entry
      (and, for whole objects, its fields' values) is
      as our apply returned it                           KEEP
      another version and another entry                  APPLY, or CONTESTED

Our entry is the managedFields entry of our manager with operation Apply and no subresource. Its API version, fields and
time are compared. If a client changes one of our fields by update, edit, scale or a forced apply, the field leaves the
entry, so metadata is enough to detect the change. No content is kept. The sent object is never compared with the stored
form, since the server may have changed the content ("1000m" to "1", defaults, webhooks). One change does not show in
metadata: a change by another process under our own manager within the second in which the entry was written. For whole
objects, comparing the values detects this change too.

CONTESTED: less than `PATIENCE` ago this process took a field back from another *Apply* manager (of the object or of its
scale), and that manager owns the field again. Nothing is written until the desired state or that manager's entry
changes. A field that another manager took by an update is always taken back.
"""
from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from hashlib import blake2b
from typing import Any

import msgspec

from kubectl_runtime.core.base.plain import Key
from kubectl_runtime.core.meta.metav1 import OwnerReference
from kubectl_runtime.runtime.store.overlay import number_of

PATIENCE = 600.0
"""In seconds. A field that another manager takes by force twice within this time is contested."""

LAG = 60.0
"""For this many seconds, an older version means that the watch is behind. After that, it may also mean that the server
was restored from a backup: the server then has lower versions again, and the object's state before the apply."""

Fields = frozenset[str]
"""The paths of fields, as text such as `.spec.replicas`."""


class Entry(msgspec.Struct, frozen=True, rename="camel"):
    """An entry of managedFields. `fields_v1` is the JSON of its fields, as received."""

    manager: str = ""
    operation: str = ""
    api_version: str = ""
    subresource: str = ""
    fields_v1: msgspec.Raw = msgspec.Raw(b"{}")
    time: str = ""

    @property
    def is_applied(self) -> bool:
        """Whether the entry comes from applies of the object itself, not of a subresource."""
        return self.operation == "Apply" and not self.subresource

    @property
    def mark(self) -> bytes:
        """A digest that is the same for equal entries, whatever the order of their fields."""
        digest = blake2b(f"{self.api_version} {self.time}".encode(), digest_size=16)
        digest.update(_sorted(_decode(self.fields_v1)))
        return digest.digest()

    def fields(self) -> Fields:
        """The fields that the manager owns."""
        return frozenset(_paths(_decode(self.fields_v1), ""))


_decode = msgspec.json.Decoder().decode
_sorted = msgspec.json.Encoder(order="sorted").encode


def _paths(tree: Mapping[str, Any], at: str) -> Iterator[str]:
    for key, below in tree.items():
        path = at if key == "." else f"{at}.{key[2:]}" if key.startswith("f:") else f"{at}[{key[2:]}]"
        if below:
            yield from _paths(below, path)
        else:
            yield path


class Seen(msgspec.Struct, frozen=True):
    """The known state of the object with the child's name."""

    uid: str
    version: str
    deleting: bool
    owners: tuple[OwnerReference, ...]
    entries: tuple[Entry, ...]

    def entry_of(self, manager: str) -> Entry | None:
        """The entry of the fields that `manager` has applied; None if it has applied none or no longer owns any."""
        return next((entry for entry in self.entries if entry.manager == manager and entry.is_applied), None)

    def rivals_of(self, manager: str) -> list[Entry]:
        """The Apply entries of other managers, except entries of a subresource."""
        return [entry for entry in self.entries if entry.is_applied and entry.manager != manager]

    def takers_from(self, manager: str) -> dict[tuple[str, str], Entry]:
        """The Apply entries that can take fields from `manager`, keyed by their own manager and subresource."""
        return {(entry.manager, entry.subresource): entry for entry in self.entries
                if entry.operation == "Apply" and (entry.manager != manager or entry.subresource)}


class Taken(msgspec.Struct, frozen=True):
    """The fields that were taken back from another Apply manager, and the time at which this happened."""

    manager: str
    fields: Fields
    at: float
    subresource: str = ""


class Contest(msgspec.Struct, frozen=True):
    """A manager that takes our fields again and again, and its managedFields entry at the time of the contest."""

    manager: str
    fields: Fields
    mark: bytes
    subresource: str = ""


class Applied(msgspec.Struct, frozen=True):
    """The last apply of one child by this process, and the result. Never changed, only replaced."""

    digest: bytes
    """A digest of the desired state; empty if another write of this process has made it invalid."""
    uid: str
    version: str
    mark: bytes
    """The digest of our managedFields entry in the server's answer to the apply."""
    values: bytes | None = None
    """A digest of the values of our fields in the server's answer; None if only metadata is kept."""
    owner: tuple[str | None, str] = (None, "")
    """Namespace and name of the owner."""
    at: float = 0.0
    """The time of the apply, in seconds of the client's monotonic clock."""
    taken: tuple[Taken, ...] = ()
    contest: Contest | None = None


class Do(Enum):
    """The action for a child; see the module's docstring."""

    CREATE = "create"
    APPLY = "apply"
    KEEP = "keep"
    REFUSE = "refuse"
    WAIT = "wait"
    CONTESTED = "contested"


class Owner(msgspec.Struct, frozen=True):
    """The owner of the children, and the field manager that applies the children."""

    uid: str
    group: str
    kind: str
    name: str
    manager: str
    namespace: str | None = None

    @property
    def key(self) -> Key:
        """Namespace and name."""
        return self.namespace, self.name

    def is_itself(self, reference: OwnerReference) -> bool:
        """Whether a reference names the owner, or an earlier object of the owner's kind and name."""
        return reference.name == self.name and reference.kind == self.kind and reference.group == self.group


def controller_in(owners: Iterable[OwnerReference]) -> OwnerReference | None:
    """The reference with `controller: true`."""
    return next((reference for reference in owners if reference.controller), None)


def is_ours(owner: Owner, seen: Seen, known: Applied | None = None) -> bool:
    """Whether the object belongs to the owner or was applied for the owner; see the module's docstring."""
    controller = controller_in(seen.owners)
    is_applied = seen.entry_of(owner.manager) is not None or (
        known is not None and known.uid == seen.uid and known.owner == owner.key)
    if controller is not None and controller.uid != owner.uid:
        return is_applied and owner.is_itself(controller)
    return is_applied or any(reference.uid == owner.uid for reference in seen.owners)


def is_free(seen: Seen) -> bool:
    """Whether `adopt` may take the object."""
    return controller_in(seen.owners) is None and not seen.deleting


def is_prunable(owner: Owner, seen: Seen) -> bool:
    """Whether the object is the owner's alone: the owner is its controller, and only our manager has applied it."""
    controller = controller_in(seen.owners)
    return (controller is not None and controller.uid == owner.uid and not seen.deleting
            and seen.entry_of(owner.manager) is not None and not seen.rivals_of(owner.manager))


def decide(owner: Owner, digest: bytes, seen: Seen | None, known: Applied | None, now: float, *, adopt: bool = False,
           values: bytes | None = None, may_lag: bool = False) -> tuple[Do, Contest | None]:
    """The action for a child with this desired state, and the contest that prevents the apply, if any.

    `seen`: the object with the child's name; None if there is no such object. `values`: a digest of the values of our
    entry's fields, if available. `may_lag`: whether `seen` may be older than the last apply. `now`: the
    time, in seconds of the client's monotonic clock.
    """
    if seen is None:
        return Do.CREATE, None
    if not is_ours(owner, seen, known):
        return (Do.APPLY if adopt and is_free(seen) else Do.REFUSE), None
    if seen.deleting:
        return Do.WAIT, None
    if known is None or known.digest != digest or known.uid != seen.uid:
        return Do.APPLY, None
    if known.contest is None and (seen.version == known.version or (
            may_lag and now - known.at < LAG and not _is_newer(seen.version, known.version))):
        return Do.KEEP, None
    entry = seen.entry_of(owner.manager)
    if entry is not None and entry.mark == known.mark and (
            values is None or known.values is None or values == known.values):
        return Do.KEEP, None
    contest = _contest(owner.manager, seen, entry, known, now)
    return (Do.APPLY if contest is None else Do.CONTESTED), contest


def _is_newer(version: str, than: str) -> bool:
    one, other = number_of(version), number_of(than)
    return one is None or other is None or one > other


def _contest(manager: str, seen: Seen, entry: Entry | None, known: Applied, now: float) -> Contest | None:
    takers = seen.takers_from(manager)
    before = known.contest
    if before is not None and (taker := takers.get((before.manager, before.subresource))) is not None and (
            taker.mark == before.mark):
        return before
    ours = entry.fields() if entry is not None else frozenset()
    for taken in known.taken:
        taker = takers.get((taken.manager, taken.subresource))
        if taker is None or now - taken.at >= PATIENCE:
            continue
        if fields := (taken.fields & taker.fields()) - ours:
            return Contest(taker.manager, fields, taker.mark, taker.subresource)
    return None


def taken_back(manager: str, before: Seen, after: Seen, known: Applied | None, now: float) -> tuple[Taken, ...]:
    """The fields that this forced apply, or an earlier one less than `PATIENCE` ago, took from other Apply managers.

    `before`: the state before the apply. `after`: the server's answer.
    """
    entry, earlier = after.entry_of(manager), before.entry_of(manager)
    gained = (entry.fields() if entry else frozenset()) - (earlier.fields() if earlier else frozenset())
    found = {(taken.manager, taken.subresource): taken for taken in (known.taken if known is not None else ())
             if now - taken.at < PATIENCE}
    for who, taker in before.takers_from(manager).items():
        if fields := gained & taker.fields():
            held = found.get(who)
            found[who] = Taken(taker.manager, fields | held.fields if held else fields, now, taker.subresource)
    return tuple(found.values())
