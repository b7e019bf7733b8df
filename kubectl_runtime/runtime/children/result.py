"""`Children`: the result of `ensure`, and what the children still lack. `NotOurs`: the error for refused children."""
from __future__ import annotations

from collections.abc import Iterator

import msgspec

from kubectl_runtime.core.base.errors import KubeError
from kubectl_runtime.core.base.guard import described
from kubectl_runtime.core.codec.views import Record
from kubectl_runtime.core.meta.gvk import ObjectRef
from kubectl_runtime.core.objects.partial import dynamic
from kubectl_runtime.runtime.children.decision import Owner, Seen, controller_in
from kubectl_runtime.runtime.conditions import NeverReady, rule_of
from kubectl_runtime.runtime.logs import said

MOST_NAMED = 5
"""The most children that a text names; further children are only counted."""


class Refused(msgspec.Struct, frozen=True):
    """A child that was not touched because `ref` is an object of another owner; `whose` names that owner."""

    ref: ObjectRef
    whose: str

    @property
    def name(self) -> str:
        """The object's name."""
        return self.ref.name

    def __str__(self) -> str:
        return f"{said(self.ref)} {self.whose}"


class Contested(msgspec.Struct, frozen=True):
    """A child that was left unchanged because another field manager takes our fields by force again and again.

    `manager` is the other manager. `fields` are the paths of the fields, such as `.spec.replicas`.
    """

    ref: ObjectRef
    manager: str
    fields: tuple[str, ...]

    @property
    def name(self) -> str:
        """The object's name."""
        return self.ref.name

    def __str__(self) -> str:
        return f"{said(self.ref)}: {self.manager} takes the fields {', '.join(self.fields[:MOST_NAMED])}"


class Children(msgspec.Struct):
    """The result of `ensure`: the children's refs, grouped by what was done with each child.

    `ready` and `waiting_for()` return whether the children are ready, and what they lack. Use the result only in the
    run that made it.

    >>> owner = Api.namespaced(client, Deployment, "default").get("web")
    >>> children = ensure_children(client, owner, ConfigMap(name="made", data={"a": "1"}), field_manager="me")
    >>> [ref.name for ref in children.created], children.ready, children.waiting_for()
    (['made'], True, '')
    """

    created: list[ObjectRef] = msgspec.field(default_factory=list)
    """Children that this call created."""
    changed: list[ObjectRef] = msgspec.field(default_factory=list)
    """Children that this call changed."""
    unchanged: list[ObjectRef] = msgspec.field(default_factory=list)
    """Children that were up to date: nothing was sent, or the apply changed nothing."""
    deleting: list[ObjectRef] = msgspec.field(default_factory=list)
    """Children that were not written because they are being deleted, so that their names are not free yet."""
    refused: list[Refused] = msgspec.field(default_factory=list)
    """Children whose names belong to objects of other owners; `NotOurs` reports them."""
    contested: list[Contested] = msgspec.field(default_factory=list)
    """Children that were left unchanged because another field manager takes their fields again and again."""
    pruned: list[ObjectRef] = msgspec.field(default_factory=list)
    """Former children that were deleted because they are no longer wanted."""
    owner_is_deleted: bool = False
    """Whether the owner is being deleted, in which case nothing was done."""
    _shown: list[tuple[ObjectRef, Record | None]] = msgspec.field(default_factory=list)

    def show(self, ref: ObjectRef, record: Record | None) -> None:
        """Add the state of a child: the whole object, or None if only its metadata is known. For internal use."""
        if rule_of(ref.resource.gvk) is not None:
            self._shown.append((ref, record))

    @property
    def ready(self) -> bool:
        """Whether all children are ready; see `waiting_for`."""
        return not self.waiting_for()

    def waiting_for(self) -> str:
        """The reasons why children are not ready, as text; empty if all children are ready.

        Workloads (Deployment, StatefulSet, DaemonSet, ReplicaSet, Job, Pod) are ready by kubectl's rules, which read
        the status. Only `owns(api, whole=True)` keeps the status; without it a workload counts as not ready, and the
        text says so. Other kinds are ready when they exist. Children that are refused, contested or being deleted are
        not ready.
        """
        return _first([text for _, text in self._lacking()])

    def not_ready(self) -> list[str]:
        """The children that are not ready, as `Deployment web`."""
        return [f"{ref.kind} {ref.name}" for ref, _ in self._lacking() if ref is not None]

    def _lacking(self) -> Iterator[tuple[ObjectRef | None, str]]:
        if self.owner_is_deleted:
            yield None, "the owner is being deleted"
        for ref in self.deleting:
            yield ref, f"{said(ref)}: it is being deleted"
        yield from ((refused.ref, str(refused)) for refused in self.refused)
        yield from ((contested.ref, str(contested)) for contested in self.contested)
        for ref, record in self._shown:
            if lacks := _lacks(ref, record):
                yield ref, f"{said(ref)}: {lacks}"

    def __repr__(self) -> str:
        counts = [f"{len(getattr(self, name))} {name}" for name in
                  ("created", "changed", "unchanged", "deleting", "refused", "contested", "pruned")
                  if getattr(self, name)]
        return f"<Children: {', '.join(counts) or 'none'}>"


def _first(texts: list[str]) -> str:
    more = f"; and {len(texts) - MOST_NAMED} more" if len(texts) > MOST_NAMED else ""
    return "; ".join(texts[:MOST_NAMED]) + more


def _lacks(ref: ObjectRef, record: Record | None) -> str:
    rule = rule_of(ref.resource.gvk)
    if rule is None:
        return ""
    if record is None:
        return f"its status is not watched: .owns(api of {ref.kind}, whole=True) keeps it"
    try:
        return rule(dynamic(ref.resource).from_record(record))
    except NeverReady as error:
        return str(error)
    except KubeError as error:  # the object does not decode
        return described(error)


class NotOurs(KubeError):
    """Some children's names are taken by objects that belong to another owner; these objects were not touched.

    `refused` lists these objects with their owners. `children` is the full result: the other children were processed as
    usual. A retry succeeds only once these objects are gone. `ensure(..., adopt=True)` takes objects without a
    controller.

    >>> owner = Api.namespaced(client, Deployment, "default").get("web")
    >>> try:
    ...     ensure_children(client, owner, ConfigMap(name="settings"), field_manager="me")
    ... except NotOurs as error:
    ...     print(error.refused[0].name)
    settings
    """

    def __init__(self, children: Children) -> None:
        super().__init__(f"not ours, and left alone: {_first([str(refused) for refused in children.refused])}")
        self.children = children

    @property
    def refused(self) -> list[Refused]:
        """The objects that were not touched."""
        return self.children.refused


def whose(owner: Owner, seen: Seen) -> str:
    """Text to append to the name of an object that is not ours, such as `is controlled by Deployment x`."""
    controller = controller_in(seen.owners)
    if controller is not None and controller.uid != owner.uid:
        same = ", an earlier one of this name" if owner.is_itself(controller) else ""
        return f"is controlled by {controller.kind} {controller.name}{same}"
    managers = list(dict.fromkeys(entry.manager for entry in seen.entries if entry.manager and not entry.subresource))
    by = f"was made by {', '.join(managers[:MOST_NAMED])}" if managers else "was made by others"
    return f"{by}, and is being deleted" if seen.deleting else f"{by}; adopt=True takes it"
