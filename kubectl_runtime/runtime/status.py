"""Writing status: only what is one's own, and only when it has changed.

    apply_condition     one condition of a list that others write as well
    apply_if_changed    all that one manager has to say in the status

Both use server-side apply on the status subresource. There, what a manager applied before and leaves out now is taken
away; so `apply_condition` sends along whatever else its manager has applied, and `apply_if_changed` does not. A field
manager uses one of the two, and is one writer: two that share a name take each other's fields away.

`obj` may be given again after a write, although it is older then: the answers to a client's writes are kept for a
minute, and stand for an object from before. So a run may report Progressing, work, and report that it is done, or
report several conditions, all with the object that it was given.

They block for at most two calls and raise what `Api` raises: ApiError (`is_conflict`) when somebody else owns a field
and `force` is not given. An object that is gone meanwhile is not an error: there is nobody left to tell. Safe from any
thread.
"""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from cachetools import TTLCache

from kubectl_runtime.client.api.api import Api
from kubectl_runtime.client.api.client import WriteObservers
from kubectl_runtime.client.http.retry import KindNotServedError
from kubectl_runtime.core.base.errors import ApiError, RequestError
from kubectl_runtime.core.base.guard import condition_of, guarded_logger, mapping, part_of
from kubectl_runtime.core.base.interpreter import ForkSafeLock
from kubectl_runtime.core.base.plain import Omit, to_plain
from kubectl_runtime.core.codec.sameness import equal_json
from kubectl_runtime.core.codec.views import Record
from kubectl_runtime.core.meta.metav1 import Condition, set_condition
from kubectl_runtime.core.objects.partial import is_partial
from kubectl_runtime.core.objects.resource import Resource, applied_fields
from kubectl_runtime.core.requests.rights import foresee

log = guarded_logger(__name__)

K = TypeVar("K", bound=Resource)

MOST_KEPT, KEPT_FOR = 1024, 60.0
"""Answers that are kept, of the latest writes of a client, and for how many seconds: until its watches have caught up.
Not for ever, since a server that is restored from a backup begins to count its versions from an earlier one."""


def apply_condition(api: Api[K], obj: K, condition: Condition, *, field_manager: str, force: bool = False) -> bool:
    """Put `condition` into `obj`'s status, in place of the one of its type. Returns whether anything was sent.

    Nothing is sent when the same status, reason, message and observedGeneration are there already. lastTransitionTime
    changes only with the status, to the clock's time; the time in `condition` is ignored. Conditions of other types
    stay as they are. For that the list must be keyed by type: `Annotated[list[Condition], MapKeys("type")]` in a class
    of your own. `api` is an Api of the object's namespace.

    `obj` may be old, from a store. It is read again (verb get) only if the manager has applied more of the status than
    this condition, or if `obj` has lost its managedFields.
    """
    if not condition.type or not condition.status:
        raise RequestError(f"{obj.ref}: a condition needs a type and a status: Condition(type='Ready', status='True')")
    foresee(api.place, "get")
    obj = _newest(api, obj)
    if not is_partial(obj):
        if _says(obj, condition):
            return False
        owned = _applied_status(obj, field_manager)
        if owned is not None and not _has_more_than(owned, condition.type):
            return _apply_condition(api, obj, owned, condition, field_manager, force) is not None
    fresh = api.get_opt(obj.name)
    if fresh is None or fresh.uid != obj.uid:
        log.debug("%s is gone: its condition %s is told to nobody", obj.ref, condition.type)
        return False
    if _says(fresh, condition):
        return False
    owned = _applied_status(fresh, field_manager) or {}
    return _apply_condition(api, fresh, owned, condition, field_manager, force) is not None


def apply_if_changed(api: Api[K], obj: K, new_status: Any, *, field_manager: str, force: bool = False) -> K:
    """Apply `new_status`, all that `field_manager` has to say in `obj`'s status; the object as it is afterwards.

    `new_status`: a dict with the keys of the API, or the Struct or dataclass that the kind's class declares. Of the
    latter, values that equal the class's default are left out. Nothing is sent when `obj` shows that the manager has
    applied just this; then the object is returned as this client knows it. An object that does not exist any more is no
    error: `obj` is returned. No read is made before the write.
    """
    wanted = to_plain(new_status, omit=Omit.NOTHING if isinstance(new_status, Mapping) else Omit.DEFAULTS)
    if not isinstance(wanted, dict):
        raise RequestError(f"{obj.ref}: a status is a map, a Struct or a dataclass, not {type(new_status).__name__}")
    obj = _newest(api, obj)
    if not is_partial(obj):
        owned = _applied_status(obj, field_manager)
        if equal_json(wanted, part_of(obj, "status") if owned is None else owned):
            return obj
    return _apply(api, obj, wanted, field_manager, force) or obj


def _apply_condition(api: Api[K], obj: K, owned: dict[str, Any], condition: Condition, field_manager: str,
                     force: bool) -> K | None:
    before = condition_of(obj, condition.type)
    [placed] = set_condition([before] if before else (), condition, now=api.client.clock.now())
    others = _other_conditions(owned, condition.type)
    return _apply(api, obj, {**owned, "conditions": [*others, placed]}, field_manager, force)


def _apply(api: Api[K], obj: K, status: dict[str, Any], field_manager: str, force: bool) -> K | None:
    """The object as answered; None when it is gone."""
    try:
        written = api.apply_status({"metadata": {"name": obj.name}, "status": status}, field_manager=field_manager,
                                   force=force)
    except KindNotServedError:
        raise
    except ApiError as error:
        if not error.is_not_found:
            raise
        log.debug("%s is gone: its status is told to nobody", obj.ref)
        return None
    _keep(api, written)
    return written


_kept: WeakKeyDictionary[WriteObservers, TTLCache[str, Record]] = WeakKeyDictionary()
"""By client (those derived from one share their observers) and uid: the answer to the last write of a status."""
_keeping = ForkSafeLock()


def _keep(api: Api[K], written: K) -> None:
    if is_partial(written) or written.record is None:
        return
    with _keeping:
        if (kept := _kept.get(api.client.writes)) is None:
            kept = _kept[api.client.writes] = TTLCache(MOST_KEPT, KEPT_FOR, timer=api.client.clock.monotonic)
        kept[written.uid] = written.record


def _newest(api: Api[K], obj: K) -> K:
    """The answer to this client's last write, if that is newer than `obj` as far as versions can be compared."""
    with _keeping:
        kept = _kept.get(api.client.writes)
        record = kept.get(obj.uid) if kept is not None else None
    if record is None:
        return obj
    try:
        is_newer = int(record.resource_version) > int(obj.resource_version)
    except ValueError:  # no number, which Kubernetes' own servers never send
        is_newer = False
    return api.kind.from_record(record) if is_newer else obj


def _says(obj: Resource, condition: Condition) -> bool:
    """Whether the object's status says just that already."""
    there = condition_of(obj, condition.type)
    return (there.get("status"), there.get("reason") or "", there.get("message") or "",
            there.get("observedGeneration")) == (
        condition.status, condition.reason, condition.message, condition.observed_generation)


def _applied_status(obj: Resource, field_manager: str) -> dict[str, Any] | None:
    """What the manager has applied of the status; None when the object does not tell."""
    applied = applied_fields({key: obj[key] for key in ("metadata", "status") if key in obj}, field_manager, "status")
    return None if applied is None else applied.get("status") or {}


def _other_conditions(owned: dict[str, Any], kind: str) -> list[Any]:
    return [entry for entry in owned.get("conditions") or () if mapping(entry).get("type") != kind]


def _has_more_than(owned: dict[str, Any], kind: str) -> bool:
    """Whether the manager has applied more of the status than the condition of this type."""
    return bool(_other_conditions(owned, kind) or owned.keys() - {"conditions"})
