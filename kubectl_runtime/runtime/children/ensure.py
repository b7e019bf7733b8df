"""`ensure`: creates, restores and prunes the objects of an owner, by the rules of `decision`.

    CREATE    applied without force.
              201: the child was created.
              409: another client was faster; decide again after a live read.
              200: there was an object that the watch had not shown. It is ours if this process has applied this uid
              for the owner before, or if the object was ours right before our apply, or if it did not exist then
              (an earlier attempt, whose answer was lost, created it). Otherwise our apply is undone, unless `adopt`
              may take the object: the fields that our manager had applied before are applied again, under the
              returned version, and the child is REFUSEd
    APPLY     applied by force, bound to the uid that was seen. 409, 422: that object is gone; decide again
    pruning   at the end, if nothing failed: deletes each object that the run has not named, if `owns` declares its
              kind, its controller reference names this owner, and only our manager has applied it. The deletion is
              bound to the uid and version that were seen. 409: decide again after a live read

A complete watch of the child's kind and namespace without selectors shows whether an object with the child's name
exists. Any other watch is trusted only if it has the object; otherwise the object's metadata is read from the server.

All children are checked before anything is sent. If the server refuses one child, the others are still applied, and the
first error, or `NotOurs`, is raised at the end. If the server does not answer, or answers 5xx or 429, the error is
raised at once.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from http import HTTPStatus
from typing import Any, NamedTuple, Protocol

from msgspec.structs import replace

from kubectl_runtime.client.api.api import Api
from kubectl_runtime.client.api.client import Client
from kubectl_runtime.core.base.errors import ApiError, KubeError, RequestError, class_named
from kubectl_runtime.core.base.guard import check_client, guarded_logger, mapping
from kubectl_runtime.core.codec.views import Record
from kubectl_runtime.core.meta.gvk import ApiResource, GroupVersionKind, ObjectRef
from kubectl_runtime.core.meta.problems import DecodeError
from kubectl_runtime.core.objects.resource import Resource
from kubectl_runtime.core.requests import request as build
from kubectl_runtime.core.requests.params import PatchParams, Preconditions, check_flag
from kubectl_runtime.core.requests.rights import foresee
from kubectl_runtime.runtime.children.applied import (
    AppliedMemory,
    ChildKey,
    applied_of,
    child_key,
    memory_of,
    seen_of,
    values_of,
)
from kubectl_runtime.runtime.children.decision import (
    Applied,
    Contest,
    Do,
    Owner,
    Seen,
    decide,
    is_free,
    is_ours,
    is_prunable,
    taken_back,
)
from kubectl_runtime.runtime.children.desired import Child, Desired, built_in, desired
from kubectl_runtime.runtime.children.result import Children, Contested, NotOurs, Refused, whose
from kubectl_runtime.runtime.store.overlay import number_of

log = guarded_logger(__name__)

ROUNDS = 4
"""The most decisions about one child in one call, if others keep changing the child."""


class Found(NamedTuple):
    """What the watches have stored under a name: the record, if any, and how reliable this information is."""

    record: Record | None
    is_complete: bool
    """Whether a missing record proves that the object does not exist."""
    is_whole: bool
    """Whether the watch stores whole objects."""
    may_lag: bool = False
    """Whether the record may be older than the writes of this process."""


class Watched(Protocol):
    """The lookups that `ensure` makes in a controller's watches. Safe to use from any thread."""

    def find(self, resource: ApiResource, namespace: str | None, name: str) -> Found:
        """Look up the object with this name in the watches of this kind."""

    def owned_by(self, uid: str) -> Iterable[Record]:
        """The objects of the controller's owned kinds that have an owner reference with this uid."""

    def owns(self, resource: ApiResource) -> bool:
        """Whether `owned_by` covers this kind."""

    def kind_of(self, gvk: GroupVersionKind) -> ApiResource | None:
        """The kind, if it is watched; else None."""


class Unwatched:
    """No watches, for code without a controller."""

    def find(self, resource: ApiResource, namespace: str | None, name: str) -> Found:  # noqa: ARG002
        """Like `Watched.find`."""
        return NOTHING_KNOWN

    def owned_by(self, uid: str) -> Iterable[Record]:  # noqa: ARG002
        """Like `Watched.owned_by`."""
        return ()

    def owns(self, resource: ApiResource) -> bool:  # noqa: ARG002
        """Like `Watched.owns`."""
        return False

    def kind_of(self, gvk: GroupVersionKind) -> ApiResource | None:  # noqa: ARG002
        """Like `Watched.kind_of`."""
        return None


NOTHING_KNOWN = Found(None, False, False)


class Naming:
    """The children that a run has named so far in all its calls of `ensure`. For one thread."""

    def __init__(self) -> None:
        self.refs: set[ObjectRef] = set()
        self._pruned = ""
        """The uid of the owner whose children a call has pruned."""

    def add(self, refs: Sequence[ObjectRef], owner: str, *, prune: bool) -> None:
        """Record that a call names these children of the owner with the uid `owner`. Raises RequestError if an earlier
        call had `prune`, and this call has `prune` too or names further children of the earlier call's owner."""
        if self._pruned and prune:
            raise RequestError("ensure(..., prune=True) was called twice in one run, but it deletes the children that "
                               "it does not name, so each call would delete the other's children. Name all children in "
                               "one call")
        if self._pruned == owner and (more := [str(ref) for ref in refs if ref not in self.refs]):
            raise RequestError(f"an earlier ensure(..., prune=True) of this run did not name {more[0]}, so the child "
                               "would be deleted and created again in every run. Name it there, or prune only in the "
                               "last call")
        self._pruned = self._pruned or (owner if prune else "")
        self.refs.update(refs)


def ensure_children(client: Client, obj: Resource, *children: Child, field_manager: str | None = None,
                    adopt: bool = False) -> Children:
    """Like `Context.ensure`, for code without a controller.

    Each child's metadata is read before the child is applied, and nothing is pruned. `field_manager`: the manager that
    applies the children; the default is the field manager of the run, if any, or of the client.

    >>> owner = Api.namespaced(client, Deployment, "default").get("web")
    >>> made = ensure_children(client, owner, ConfigMap(name="made", data={"a": "1"}), field_manager="me")
    >>> again = ensure_children(client, owner, ConfigMap(name="made", data={"a": "1"}), field_manager="me")
    >>> made, again
    (<Children: 1 created>, <Children: 1 unchanged>)
    """
    check_client(client, "ensure_children")
    return ensure(client, obj, children, manager=field_manager, watched=UNWATCHED, naming=Naming(), adopt=adopt)


UNWATCHED = Unwatched()


def ensure(client: Client, obj: Resource, children: Sequence[Child], *, manager: str | None, watched: Watched,
           naming: Naming, adopt: bool = False, prune: bool = False) -> Children:
    """See `Context.ensure`, whose docstring has the table of actions."""
    check_flag("adopt", adopt)
    check_flag("prune", prune)
    if not isinstance(obj, Resource) or not hasattr(obj, "api_resource"):
        raise RequestError(f"ensure(obj, *children): the owner must be an object that the server returned, not "
                           f"{class_named(obj)}")
    params = Api.all(client, obj.api_resource)._write_params(None, PatchParams, field_manager=manager)
    if not params.field_manager:
        raise RequestError("ensure_children needs a field_manager: the name under which the children are applied")
    memory = memory_of(client)
    wanted = desired(obj, children, _finder(client, memory, watched))
    naming.add([one.ref for one in wanted], obj.uid, prune=prune)
    resource = obj.api_resource
    owner = Owner(obj.uid, resource.group, resource.kind, obj.name, params.field_manager, obj.namespace)
    call = _Call(client, memory, watched, owner, adopt, params)
    if obj.deletion_timestamp is not None:
        call.children.owner_is_deleted = True
        return call.children
    errors: list[KubeError] = []
    for one in wanted:
        try:
            call.ensure(one)
        except (ApiError, DecodeError, RequestError) as error:
            if isinstance(error, ApiError) and (error.code >= 500 or error.code == HTTPStatus.TOO_MANY_REQUESTS):
                raise
            errors.append(error)
    found = call.children
    if errors:
        for further in (*errors[1:], *found.refused):
            errors[0].add_note(f"besides: {further}")
        raise errors[0]
    if found.refused:
        raise NotOurs(found)
    if prune:
        for one in wanted:  # a later run may prune children of these kinds
            foresee(one.place, "delete")
            if not watched.owns(one.resource) and memory.is_first_warning(owner.manager, one.resource):
                log.warning("prune never deletes %s: no .owns(...) of the controller watches the kind",
                            one.resource.full_name)
        call.prune(naming.refs)
    return found


def _finder(client: Client, memory: AppliedMemory, watched: Watched) -> Callable[[GroupVersionKind], ApiResource]:
    def find(gvk: GroupVersionKind) -> ApiResource:
        found = watched.kind_of(gvk) or memory.kinds.get((gvk.api_version, gvk.kind)) or built_in(gvk)
        if found is None:
            found = client.discovery.resolve_gvk(gvk).resource
        memory.kinds[gvk.api_version, gvk.kind] = found
        return found

    return find


class _Call:
    """One call of `ensure`. For one thread."""

    def __init__(self, client: Client, memory: AppliedMemory, watched: Watched, owner: Owner, adopt: bool,
                 params: PatchParams) -> None:
        self._client = client
        self._memory = memory
        self._watched = watched
        self._owner = owner
        self._adopt = adopt
        self._params = params
        self._now = client.clock.monotonic()
        self._compares = False
        """Whether the values of the present child will be compared, because a watch shows whole objects."""
        self.children = Children()

    def ensure(self, wanted: Desired) -> None:
        """Bring one child to its desired state. Raises errors of the server."""
        manager, resource = self._owner.manager, wanted.resource
        key = child_key(resource, wanted.namespace, wanted.name, manager)
        known = self._memory.get(key)
        record, is_complete, is_whole, may_lag = self._watched.find(resource, wanted.namespace, wanted.name)
        self._compares = is_whole
        if record is not None and known is not None and (
                known.version == record.head.resource_version and known.digest == wanted.digest
                and known.uid == record.head.uid and known.contest is None and not record.head.deletion_timestamp):
            self.children.unchanged.append(wanted.ref)  # the most frequent case: no check of ownership is needed
            self.children.show(wanted.ref, record if is_whole else None)
            return
        applied_here = record is not None and known is not None and known.uid == record.uid
        seen = None if record is None else seen_of(record, whole_truth=applied_here)
        if seen is None and (record is not None or not is_complete):
            record, seen, is_whole = self._look(wanted)
            may_lag = False
        for _ in range(ROUNDS):
            values = values_of(record, manager) if is_whole and record is not None else None
            do, contest = decide(self._owner, wanted.digest, seen, known, self._now, adopt=self._adopt, values=values,
                                 may_lag=may_lag)
            try:
                self._do(do, wanted, seen, known, key, record if is_whole else None, contest, may_lag=may_lag)
                return
            except ApiError as error:
                if not (error.is_conflict or (do is Do.APPLY and _is_about_uid(error))):
                    raise
                conflict = error
            record, seen, is_whole = self._look(wanted)
            may_lag = False
            known = self._memory.get(key)
        raise conflict

    def _do(self, do: Do, wanted: Desired, seen: Seen | None, known: Applied | None, key: ChildKey,
            record: Record | None, contest: Contest | None, *, may_lag: bool) -> None:
        """Carry out the decision. Raises the conflict after which the caller must decide again."""
        children = self.children
        if do is Do.CREATE:
            self._create(wanted, known, key)
            return
        assert seen is not None  # for a missing object the decision is always CREATE
        match do:
            case Do.APPLY:
                answer = self._apply(wanted, force=True, only={"uid": seen.uid})[1]
                self._keep(wanted, known, key, seen, answer)
                same = answer.resource_version == seen.version
                (children.unchanged if same else children.changed).append(wanted.ref)
                record = answer
            case Do.KEEP:
                assert known is not None  # KEEP requires an earlier apply
                if seen.version != known.version and not may_lag:
                    self._memory.remember(key, replace(known, version=seen.version, contest=None))
                children.unchanged.append(wanted.ref)
            case Do.REFUSE:
                self._refuse(wanted, seen)
                return
            case Do.WAIT:
                children.deleting.append(wanted.ref)
                return
            case Do.CONTESTED:
                assert contest is not None
                assert known is not None
                one = Contested(wanted.ref, contest.manager, tuple(sorted(contest.fields)))
                if known.contest is None:
                    log.warning("%s by force again, after this controller had taken them back. The child stays "
                                "unchanged until its desired state changes or %s applies other fields",
                                one, contest.manager)
                if known.contest != contest:
                    self._memory.remember(key, replace(known, contest=contest))
                children.contested.append(one)
        children.show(wanted.ref, record)

    def _create(self, wanted: Desired, known: Applied | None, key: ChildKey) -> None:
        status, answer = self._apply(wanted, force=False)
        is_known = known is not None and known.uid == answer.uid and known.owner == self._owner.key
        if (status != HTTPStatus.CREATED and not is_known and (before := self._before(wanted, answer)) is not None
                and not (self._adopt and is_free(before[0]))):
            if not self._params.dry_run:
                self._take_back(wanted, answer, before[1])
            self._refuse(wanted, before[0])
            return
        children = self.children
        same = known is not None and is_known and known.version == answer.resource_version
        (children.created if status == HTTPStatus.CREATED else children.unchanged if same else children.changed
         ).append(wanted.ref)
        self._keep(wanted, known, key, None, answer)
        children.show(wanted.ref, answer)

    def _before(self, wanted: Desired, answer: Record) -> tuple[Seen, dict[str, Any]] | None:
        """The previous state of an object that an apply unexpectedly found, and the fields that our manager had applied
        to the object for another owner. None if the object was ours, or if the same apply, sent twice, created it."""
        if self._params.dry_run:  # nothing was written: the object is unchanged
            seen = self._look(wanted)[1]
            return None if seen is None or is_ours(self._owner, seen) else (seen, {})
        version = number_of(answer.resource_version)
        if version is not None:
            try:
                page = self._api(wanted).list_page(
                    field_selector=f"metadata.name={wanted.name}", resource_version=str(version - 1),
                    resource_version_match="Exact")
            except ApiError:  # the version is compacted, or listing is forbidden: use the current state
                pass
            else:
                record = next((one for one in page[1] if one.uid == answer.uid), None)
                before = None if record is None else seen_of(record, whole_truth=True)
                if before is None or record is None or is_ours(self._owner, before):
                    return None
                return before, applied_of(record, self._owner.manager)
        after = seen_of(answer, whole_truth=True)
        others = tuple(entry for entry in (after.entries if after else ())
                       if not entry.subresource and entry.manager != self._owner.manager)
        if after is None or not others:
            return None
        return replace(after, owners=tuple(held for held in after.owners if held.uid != self._owner.uid),
                       entries=others), {}

    def _take_back(self, wanted: Desired, answer: Record, applied: dict[str, Any]) -> None:
        """Undo an apply to an object that is not ours: apply again the fields that our manager had `applied` before
        (most often none)."""
        log.warning("%s appeared right before it was applied, and is not ours; undoing the apply", wanted.ref)
        version = answer.resource_version
        content = {**applied, "metadata": {**mapping(applied.get("metadata")), "name": wanted.name}}
        for _ in range(ROUNDS):
            try:
                self._send(wanted, content, force=False, only={"resourceVersion": version})
                break
            except ApiError as error:
                if not error.is_conflict:
                    raise
            now = self._look(wanted)[1]
            if now is None or now.uid != answer.uid or all(held.uid != self._owner.uid for held in now.owners):
                break
            version = now.version

    def _refuse(self, wanted: Desired, seen: Seen) -> None:
        self.children.refused.append(Refused(wanted.ref, whose(self._owner, seen)))

    def _keep(self, wanted: Desired, known: Applied | None, key: ChildKey, before: Seen | None,
              answer: Record) -> None:
        """Remember the apply and its answer."""
        after = seen_of(answer)
        entry = after.entry_of(self._owner.manager) if after is not None else None
        if after is None or entry is None or self._params.dry_run:
            return
        taken = taken_back(self._owner.manager, before, after, known, self._now) if before is not None else ()
        self._memory.remember(key, Applied(
            wanted.digest, answer.uid, answer.resource_version, entry.mark,
            values_of(answer, self._owner.manager) if self._compares else None, self._owner.key, self._now, taken))

    def prune(self, named: Iterable[ObjectRef]) -> None:
        """Delete the children that are no longer wanted."""
        kept = set(named)
        for record in self._watched.owned_by(self._owner.uid):
            seen = None if record.ref in kept else seen_of(record)
            if seen is None or not is_prunable(self._owner, seen):
                continue
            kept.add(record.ref)  # two watches may show the same object
            if self._delete(record.ref, seen):
                log.info("deleted %s, no longer wanted by %s %s", record.ref, self._owner.kind, self._owner.name)
                self.children.pruned.append(record.ref)

    def _delete(self, ref: ObjectRef, seen: Seen) -> bool:
        """Delete a child in the state that was seen. If the child has changed since, decide again by its current state.
        Returns whether it was deleted."""
        api: Api[Any] = _api(self._client, ref.resource, ref.namespace)
        foresee(api.place, "get", "delete")
        now: Seen | None = seen
        for _ in range(ROUNDS):
            if now is None or now.uid != seen.uid or not is_prunable(self._owner, now):
                return False
            try:
                api.delete(ref.name, propagation_policy="Background",
                           preconditions=Preconditions(uid=now.uid, resource_version=now.version))
                return True
            except ApiError as error:
                if error.is_not_found:
                    return False
                if not error.is_conflict:
                    raise
                conflict = error
            found = api.with_metadata_only().get_opt(ref.name)
            now = None if found is None or found.record is None else seen_of(found.record, whole_truth=True)
        raise conflict

    # Requests

    def _api(self, wanted: Desired) -> Api[Any]:
        return Api(self._client, wanted.kind, wanted.place)

    def _look(self, wanted: Desired) -> tuple[Record | None, Seen | None, bool]:
        """Read the metadata from the server. Returns the record, its `Seen`, and False (the record is not whole)."""
        found = self._api(wanted).with_metadata_only().get_opt(wanted.name)
        record = None if found is None else found.record
        return record, None if record is None else seen_of(record, whole_truth=True), False

    def _apply(self, wanted: Desired, *, force: bool, only: dict[str, str] | None = None) -> tuple[int, Record]:
        foresee(wanted.place, "get", "list")
        return self._send(wanted, wanted.content(), force=force, only=only)

    def _send(self, wanted: Desired, content: dict[str, Any], *, force: bool,
              only: dict[str, str] | None) -> tuple[int, Record]:
        params = replace(self._params, force=force)
        return self._api(wanted)._write(build.apply(wanted.place, content, params, only=only))


def _api(client: Client, resource: ApiResource, namespace: str | None) -> Api[Any]:
    return Api.namespaced(client, resource, namespace) if resource.namespaced else Api.all(client, resource)


def _is_about_uid(error: ApiError) -> bool:
    details = error.status.details
    return error.is_invalid and any(cause.field == "metadata.uid" for cause in (details and details.causes) or ())
