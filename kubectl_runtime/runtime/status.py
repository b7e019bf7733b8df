"""Writing status: only the fields of one field manager, and only if they have changed.

    report              writes conditions and fields in one apply; inside a run: `ctx.report`
    apply_condition     deprecated: `report` of one condition
    apply_if_changed    deprecated: `report` of all fields of one manager

These functions use server-side apply, which removes fields that a manager applied before and now leaves out. So each
apply also sends everything else that its manager has applied. Two writers must not share a field manager, or they
remove each other's fields.

The other fields of the manager are read from an object, which may be old. So each apply sends the resourceVersion of
the object from which the apply was computed:

    answer                                   what follows
    the status was written                   done; the answer is kept for a minute
    the object has changed since, or no      the object is read (verb get); if it lacks part of the report, the report
    answer came                              is applied again, up to `ATTEMPTS` times in all
    another manager's update took a field    the report is applied by force, which takes the field back
    another manager applied a field          the conflict is raised, unless `force` is set
    the object is gone, or replaced by a     done: there is no object to report to
    new object of the same name
    there is no status subresource           the whole object is applied, with all fields that the manager owns. This
                                             write increments the generation, so observedGeneration names the next one

A caller may pass the same `obj` again after a write, although it is older than the written object. The client keeps the
server's answer to each write of a status for a minute. A run also keeps the answer to the last write of the object that
it reconciles. If such an answer is newer than `obj`, the report uses the answer instead of `obj`. So a run may report
Progressing, do its work, and then report the end, each time with the object that it was given. If the server converts a
value, such as a quantity, the value is not sent again as long as the answer is kept.
"""
from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Protocol, TypeVar
from weakref import WeakKeyDictionary

import msgspec
from cachetools import TTLCache
from msgspec.structs import replace

from kubectl_runtime.client.api.api import Api
from kubectl_runtime.client.api.client import Client, WriteObservers
from kubectl_runtime.client.http.retry import KindNotServedError
from kubectl_runtime.core.base.errors import (
    FIELD_CONFLICT,
    ApiError,
    KubeError,
    OutcomeUnknownError,
    RequestError,
    class_named,
    did_you_mean,
    is_lost_race,
)
from kubectl_runtime.core.base.guard import condition_of, guarded_logger, mapping, part_of
from kubectl_runtime.core.base.plain import Omit, to_plain
from kubectl_runtime.core.base.threads import ForkSafeLock
from kubectl_runtime.core.base.wire import field_types, is_model, record_in, wire_names
from kubectl_runtime.core.codec.jsonbytes import equal_json
from kubectl_runtime.core.codec.views import Record
from kubectl_runtime.core.meta.gvk import ObjectRef
from kubectl_runtime.core.meta.metav1 import CONDITION_LIMITS, CONDITION_REASON, Condition, set_condition
from kubectl_runtime.core.objects.declare import hints_of
from kubectl_runtime.core.objects.partial import PartialObjectMeta, dynamic, is_partial
from kubectl_runtime.core.objects.resource import Resource, applied_fields
from kubectl_runtime.core.requests import request as build
from kubectl_runtime.core.requests.params import PatchParams
from kubectl_runtime.core.requests.request import Place
from kubectl_runtime.core.requests.rights import foresee
from kubectl_runtime.core.scope import current_run, current_scope

log = guarded_logger(__name__)

K = TypeVar("K", bound=Resource)

MOST_KEPT, KEPT_FOR = 1024, 60.0
"""How many answers to a client's writes are kept, and for how many seconds: until its watches have caught up. Answers
are not kept longer, because a server restored from a backup returns to lower versions."""

ATTEMPTS = 5
"""The number of applies of one report before a conflict is raised; each but the first follows a live read."""

_NOT_THERE: Any = object()


def report(api: Api[Any], obj: Any, /, *conditions: Condition, field_manager: str | None = None, force: bool = False,
           **fields: Any) -> bool:
    """Write `conditions` and `fields` into the status of `obj`, in one apply. Returns whether anything was sent: False
    if the object already has all of them.

    Fields are named as in the class or as in the API (`observed_generation=3`, `observedGeneration=3`); None removes a
    field. Other status fields that `field_manager` has applied stay. Without `field_manager`, a run uses the
    controller's name, and other code uses the client's field manager. When a condition's status changes, its
    lastTransitionTime becomes the clock's time; the time in `conditions` is ignored. The list of conditions must be
    keyed by type: `Annotated[list[Condition], MapKeys("type")]` in a class of your own. For a kind without a status
    subresource, the whole object is applied, with all fields that the manager owns.

    `api` is an Api of the kind. `obj` may be old, for example from a store. A missing object is not an error. Fields
    that another manager took by an update are taken back; `force` also takes fields that another manager has applied.
    Blocks for one call, and for two more each time that another client changes the object before the write. Safe from
    any thread. Raises RequestError for a field that the status class lacks, and whatever `Api` raises: ApiError
    (`is_conflict`) when another manager has applied a field.

    >>> site = Api.namespaced(client, Deployment, "default")
    >>> report(site, site.get("web"), Condition(type="Mine", status="True", reason="Seen"), field_manager="me")
    True
    >>> report(site, site.get("web"), Condition(type="Mine", status="True", reason="Seen"), field_manager="me")
    False
    """
    return _Writer.of(api, obj, field_manager, force).write(_Said(_checked(obj, conditions), _plain(api, obj, fields)))


def report_of_run(api: Api[Any], obj: Any, condition: Condition, field_manager: str | None) -> tuple[str, str] | None:
    """Like `report`, for a controller's own condition. Returns the object's versions before and after; None if nothing
    was sent."""
    writer = _Writer.of(api, obj, field_manager, force=False)
    writer.write(_Said((condition,), {}))
    return (writer.replaced, writer.obj.resource_version) if writer.replaced else None


def whole_api(client: Client, obj: Any, ref: ObjectRef) -> Api[Any]:
    """Returns an Api of whole objects for the kind and namespace of `obj`, which a controller passed to a run. If `obj`
    is a view, `ref` names its kind."""
    resource = getattr(obj, "api_resource", ref.resource)  # views do not know their kind
    kind = type(obj) if isinstance(obj, Resource) and not isinstance(obj, PartialObjectMeta) else dynamic(resource)
    return Api(client, kind, Place(resource, obj.namespace))


def apply_condition(api: Api[Any], obj: Any, condition: Condition, *, field_manager: str, force: bool = False) -> bool:
    """Deprecated, removed in 0.4: use `report(api, obj, condition)`, or `ctx.report(obj, condition)` in a run."""
    _warn("apply_condition", "report(api, obj, condition, field_manager=...) or ctx.report(obj, condition)")
    return _Writer.of(api, obj, field_manager, force).write(_Said(_checked(obj, (condition,)), {}))


def apply_if_changed(api: Api[K], obj: K, new_status: Any, *, field_manager: str, force: bool = False) -> K:
    """Deprecated, removed in 0.4: use `report(api, obj, phase=..., count=...)`, or `ctx.report(obj, ...)` in a run.

    Applies `new_status` as all status fields of `field_manager`, and returns the object as it is afterwards. Other
    fields of the manager are removed; its conditions stay unless `new_status` has conditions. If `new_status` is a
    dict, its keys are field names of the API. If it is a Struct or dataclass, fields that equal the class's default are
    left out.
    """
    _warn("apply_if_changed", "report(api, obj, field_manager=..., phase=...) or ctx.report(obj, phase=...)")
    wanted = to_plain(new_status, omit=Omit.NOTHING if isinstance(new_status, Mapping) else Omit.DEFAULTS)
    if not isinstance(wanted, dict):
        raise RequestError(f"{obj.ref}: a status must be a map, Struct or dataclass, not {type(new_status).__name__}")
    writer = _Writer.of(api, obj, field_manager, force)
    writer.write(_Said((), wanted, alone=True))
    found: K = writer.obj
    return found


def _warn(old: str, new: str) -> None:
    warnings.warn(f"status.{old} is deprecated and will be removed in 0.4: use {new}", DeprecationWarning, stacklevel=3)


# What is reported


class _Said(msgspec.Struct, frozen=True):
    """The conditions and fields of one report, as plain JSON values; None removes a field. `alone`: whether the
    manager's other fields are removed."""

    conditions: tuple[Condition, ...]
    fields: Mapping[str, Any]
    alone: bool = False

    def is_shown(self, obj: Resource, owned: dict[str, Any] | None) -> bool:
        """Whether the object already has this report. `owned`: the fields that the manager has applied; None if they
        are unknown."""
        if not all(_says(obj, condition) for condition in self.conditions):
            return False
        if owned is None and self.alone:
            return equal_json(dict(self.fields), dict(part_of(obj, "status")))
        status = part_of(obj, "status")
        for name, value in self.fields.items():
            if value is None:
                if name in (status if owned is None else owned):
                    return False
            elif not (equal_json(value, status.get(name, _NOT_THERE)) or (
                    owned is not None and equal_json(value, owned.get(name, _NOT_THERE)))):
                return False
        return not self.alone or owned is None or owned.keys() - {"conditions"} <= self.fields.keys()

    def status(self, obj: Resource, owned: dict[str, Any], now: Any) -> dict[str, Any]:
        """All status fields that the manager applies."""
        kept = {key: value for key, value in owned.items() if key == "conditions"} if self.alone else owned
        status = {**kept, **{name: value for name, value in self.fields.items() if value is not None}}
        for name, value in self.fields.items():
            if value is None:
                status.pop(name, None)
        entries = [*(status.get("conditions") or ())]
        for condition in self.conditions:
            before = condition_of(obj, condition.type)
            [placed] = set_condition([before] if before else (), condition, now=now)
            at = next((index for index, entry in enumerate(entries) if mapping(entry).get("type") == condition.type),
                      len(entries))
            entries[at:at + 1] = [placed]
        if self.conditions:
            status["conditions"] = entries
        return status


def _named(obj: Any) -> Any:
    return getattr(obj, "ref", obj.name)  # views do not know their kind


def _checked(obj: Any, conditions: tuple[Condition, ...]) -> tuple[Condition, ...]:
    seen = set()
    for condition in conditions:
        if not isinstance(condition, Condition):
            raise RequestError(f"{_named(obj)}: a condition must be a Condition(type='Ready', status='True'), "
                               f"not {class_named(condition)}")
        if not condition.type or not condition.status:
            raise RequestError(f"{_named(obj)}: a condition needs a type and a status: "
                               "Condition(type='Ready', status='True')")
        if condition.type in seen:
            raise RequestError(f"{_named(obj)}: two conditions have the type {condition.type}: pass one of them")
        seen.add(condition.type)
    return conditions


def _plain(api: Api[Any], obj: Any, fields: Mapping[str, Any]) -> dict[str, Any]:
    """`fields` by their names in the API, as plain JSON values. Raises RequestError for other values."""
    if not fields:
        return {}
    kind: Any = api.kind if issubclass(api.kind, Resource) else type(obj)
    declared = _declared(kind)
    found = {}
    for name, value in fields.items():
        if name == "conditions":
            raise RequestError(f"{_named(obj)}: pass conditions by position: report(obj, Condition(...), ...)")
        key, hint = name, Any
        if declared is not None:
            names, types = declared
            key = names.get(name, name)
            if key not in types:
                raise RequestError(f"{_named(obj)}: its status has no field {name}{did_you_mean(name, [*names])}")
            hint = types[key]
        if key in found:
            raise RequestError(f"{_named(obj)}: two values of the field {key} are given, by its name in the class and "
                               "by its name in the API: pass only one of them")
        found[key] = None if value is None else to_plain(value, hint, omit=Omit.DEFAULTS, path=f"$.status.{key}")
    return found


@lru_cache(maxsize=256)
def _declared(kind: type) -> tuple[dict[str, str], dict[str, Any]] | None:
    """The status fields that a class declares: key by name, type by key; None if it declares none."""
    hint = hints_of(kind).get("status", Any)
    record = record_in(hint)
    if record is not None:
        return wire_names(record), field_types(record)
    model = next((part for part in (hint, *getattr(hint, "__args__", ())) if is_model(part)), None)
    if model is None:
        return None
    names = {name: one.serialization_alias or one.alias or name for name, one in model.model_fields.items()}
    return names, dict.fromkeys(names.values(), Any)


def _says(obj: Resource, condition: Condition) -> bool:
    """Whether the object's status already has this condition."""
    there = condition_of(obj, condition.type)
    return (there.get("status"), there.get("reason") or "", there.get("message") or "",
            there.get("observedGeneration")) == (
        condition.status, condition.reason, condition.message, condition.observed_generation)


# How it is written


class _Writer:
    """One report of one manager about one object, by the module's table. For one thread and one use."""

    def __init__(self, api: Api[Any], obj: Any, manager: str, force: bool) -> None:
        self._api, self._manager, self._force = api, manager, force
        self.obj: Any = obj
        """The object as it was last seen."""
        self.replaced = ""
        """The version that `obj` replaced; empty when nothing was written."""
        self.is_gone = False
        self._uid, self._name = obj.uid, obj.name
        self._ref = ObjectRef(api.resource, obj.name, obj.namespace)
        self._whole = _has_no_status(api)
        """Whether the kind has no status subresource, so that the status is written with the object."""

    @classmethod
    def of(cls, api: Api[Any], obj: Any, field_manager: str | None, force: bool) -> _Writer:
        """Make a writer. Raises RequestError if object, Api and manager do not fit together."""
        if not obj.name or not obj.uid:
            raise RequestError("a status needs an object that a controller watches or that Api.get returned: "
                               f"this {type(obj).__name__} has no name and uid from the server yet")
        scope = current_scope()
        manager = field_manager or (scope and scope.field_manager) or api.client.write_defaults.field_manager
        if not manager:
            raise RequestError(f"{_named(obj)}: a status needs a field manager, the name that owns its fields: "
                               "report(..., field_manager='my-program'), or ctx.report in a controller's run")
        placed = _placed(api, obj)
        foresee(placed.place, "get")
        return cls(placed, _newest(placed, obj), manager, force)

    def write(self, said: _Said) -> bool:
        """Write the report. Returns whether anything was sent."""
        refused: KubeError | None = None
        for _ in range(ATTEMPTS):
            if is_partial(self.obj) and not self._read():
                return False
            owned = self._owned()
            if said.is_shown(self.obj, owned):
                return isinstance(refused, OutcomeUnknownError)
            if owned is None:
                if refused is None and not self._read():
                    return False
                owned = self._owned() or {}
            status = said.status(self.obj, owned, self._api.client.clock.now())
            if said.is_shown(self.obj, owned) or self._was_answered_so(status, owned):
                return False
            try:
                refused = self._apply(self._ahead(status, said))
            except KindNotServedError:
                if self._whole or not self._lacks_status():
                    raise
                self._whole = True  # the fields of the manager are in its managedFields entry for the main resource
                return self.write(said)
            if refused is None:
                return not self.is_gone
            if not self._read():
                return False
        assert refused is not None
        raise refused

    def _apply(self, status: dict[str, Any]) -> KubeError | None:
        """Send the apply. Returns None when done or when the object is gone, or an error that a new read may cure.
        Raises all other errors."""
        before = self.obj.resource_version
        try:
            written = self._send(status, before)
        except OutcomeUnknownError as error:
            return error
        except KindNotServedError:
            raise
        except ApiError as error:
            if error.is_not_found:
                log.debug("%s is gone: skipping its status", self._ref)
                self.is_gone = True
                return None
            if is_lost_race(error):
                return error
            if not self._force and _taken_by_updates(error):
                self._force = True
                return self._apply(status)
            raise
        if not self._api.client.write_defaults.dry_run:
            _keep(self._api, written, status)
            self.obj, self.replaced = written, before
        return None

    def _ahead(self, status: dict[str, Any], said: _Said) -> dict[str, Any]:
        """The `status` to send. Writing a whole object increments the generation, so observedGeneration names the next
        one. Otherwise no report would ever have the current generation, and each run would write."""
        present = self.obj.generation
        if not self._whole or present is None:
            return status
        types = {condition.type for condition in said.conditions}
        sent = {**status, **({"observedGeneration": present + 1} if said.fields.get("observedGeneration") == present
                             else {})}
        if types:
            sent["conditions"] = [
                {**entry, "observedGeneration": present + 1}
                if entry.get("type") in types and entry.get("observedGeneration") == present else entry
                for entry in status["conditions"]]
        return sent

    def _send(self, status: dict[str, Any], version: str) -> Any:
        api, body = self._api, {"metadata": {"name": self._name}, "status": status}
        if self._whole:
            owned = applied_fields(self.obj.to_dict(), self._manager) or {}
            body = {**owned, "metadata": {**(owned.get("metadata") or {}), "name": self._name}, "status": status}
        params = api._write_params(PatchParams(field_manager=self._manager, force=self._force), PatchParams)
        return api._ask(build.apply(api.place, body, params, subresource=None if self._whole else "status",
                                    only={"resourceVersion": version} if version else None))

    def _owned(self) -> dict[str, Any] | None:
        """The status fields that the manager has applied; None if they are unknown."""
        if is_partial(self.obj):
            return None
        owned = _applied_status(self.obj, self._manager, self._whole)
        if not owned and not self._whole and self._api.kind.subresources is None:  # unknown yet
            self._whole = bool(_applied_status(self.obj, self._manager, True))
            owned = _applied_status(self.obj, self._manager, self._whole)
        return owned

    def _read(self) -> bool:
        """Read the object; returns whether it still exists."""
        fresh = self._api.get_opt(self._name)
        if fresh is None or fresh.uid != self._uid:
            log.debug("%s is gone: skipping its status", self._ref)
            return False
        self.obj = fresh
        return True

    def _was_answered_so(self, status: dict[str, Any], owned: dict[str, Any]) -> bool:
        """Whether `status` was sent last, and the object still has the values that the server made from it."""
        kept = _kept_of(self._api, self._uid)
        if kept is None or not equal_json(kept[1], status):
            return False
        answered = _applied_status(self._api.kind.from_record(kept[0]), self._manager, self._whole)
        return answered is not None and equal_json(answered, owned)

    def _lacks_status(self) -> bool:
        """Whether the kind is served without a status subresource. The answer is cached."""
        api = self._api
        found = any(kind.resource.gvr == api.resource.gvr and "status" not in kind.subresources
                    for kind in api.client.discovery.kinds())
        if found:
            api.client.refusals.note(("status", api.resource.gvr), api.client.clock.monotonic())
        return found


def _placed(api: Api[Any], obj: Any) -> Api[Any]:
    """`api` in the namespace of `obj`, for whole objects. Raises RequestError when `api` does not cover `obj`."""
    resource = getattr(obj, "api_resource", api.resource)  # views do not know their kind
    if (resource.group, resource.kind) != (api.resource.group, api.resource.kind):
        raise RequestError(f"{api} is not an Api of {resource.kind}: report() needs an Api of the object's own kind")
    if api.namespace not in (None, obj.namespace):
        raise RequestError(f"{api} does not cover {obj.name} of namespace {obj.namespace}: report() needs an Api of "
                           "the object's own namespace, or of all namespaces")
    whole = isinstance(api.kind, type) and issubclass(api.kind, Resource) and not issubclass(
        api.kind, PartialObjectMeta)
    if whole and api.namespace == obj.namespace:
        return api
    return Api(api.client, api.kind if whole else dynamic(api.resource),
               replace(api.place, namespace=obj.namespace, metadata_only=False))


def _has_no_status(api: Api[Any]) -> bool:
    said = api.kind.subresources
    if said is not None:
        return "status" not in said
    return api.client.refusals.holds(("status", api.resource.gvr), api.client.clock.monotonic())


def _taken_by_updates(error: ApiError) -> bool:
    """Whether all conflicting fields belong to managers that wrote them by update, not by apply. For an update, the
    server's message names the API version that the manager used; for an apply it does not."""
    return error.is_conflict and bool(error.status.causes) and all(
        cause.reason == FIELD_CONFLICT and " using " in (cause.message or "") for cause in error.status.causes)


def _applied_status(obj: Resource, field_manager: str, whole: bool) -> dict[str, Any] | None:
    content = {key: obj[key] for key in ("metadata", "status") if key in obj}
    applied = applied_fields(content, field_manager, "" if whole else "status")
    return None if applied is None else applied.get("status") or {}


_kept: WeakKeyDictionary[WriteObservers, TTLCache[str, tuple[Record, dict[str, Any]]]] = WeakKeyDictionary()
"""By client (derived clients share their observers) and uid: the answer to the last write of a status, and the status
that was sent."""
_keeping = ForkSafeLock()


def _keep(api: Api[Any], written: Any, status: dict[str, Any]) -> None:
    if is_partial(written) or written.record is None:
        return
    with _keeping:
        if (kept := _kept.get(api.client.writes)) is None:
            kept = _kept[api.client.writes] = TTLCache(MOST_KEPT, KEPT_FOR, timer=api.client.clock.monotonic)
        kept[written.uid] = (written.record, status)


def _kept_of(api: Api[Any], uid: str) -> tuple[Record, dict[str, Any]] | None:
    with _keeping:
        kept = _kept.get(api.client.writes)
        return None if kept is None else kept.get(uid)


def _newest(api: Api[Any], obj: Any) -> Any:
    """The answer to this client's last write of a status, or to the run's last write of the object, if its version is
    known to be newer than that of `obj`."""
    kept, run = _kept_of(api, obj.uid), current_run()
    for record in (None if kept is None else kept[0], None if run is None else run.latest):
        if record is None or record.uid != obj.uid or record.partial:
            continue
        try:
            is_newer = int(record.resource_version) > int(obj.resource_version)
        except ValueError:  # not a number, which Kubernetes' own servers never send
            continue
        if is_newer:
            obj = api.kind.from_record(record)
    return obj


# The condition of a controller


_NO_REASON = re.compile(r"\A[^A-Za-z]+|[^A-Za-z0-9_,:]|[,:]+\Z")
RECONCILED, CHILDREN_NOT_READY = "Reconciled", "ChildrenNotReady"


def is_condition_reason(text: str) -> bool:
    """Whether all servers accept `text` as the reason of a condition."""
    return 0 < len(text) <= CONDITION_LIMITS["reason"] and re.fullmatch(CONDITION_REASON, text) is not None


class ReadyRun(Protocol):
    """The part of a run that `ReadyCondition` needs."""

    @property
    def waiting_for(self) -> tuple[str, ...]:
        """The children that are not ready."""

    def wrote_quietly(self, uid: str, before: str, after: str) -> None:
        """The library's own write replaced version `before` by `after`; that change must cause no further run."""


class ReadyCondition:
    """The condition that `Controller(ready=...)` writes at the end of a run, unless the object already has it:

        how the run ended                       status     reason                  message
        an Action                               True       Reconciled              empty
        an Action, for a terminating object     nothing is written
        an Action, some children not ready      Unknown    ChildrenNotReady        their names
        Action.waiting                          Unknown    its reason              its message
        an exception                            False      the exception's class   the exception's text
        a conflict that is retried quietly      nothing is written

    Safe to use from any thread."""

    def __init__(self, kind: str, client: Client, manager: str | None) -> None:
        self._kind, self._client, self._manager = kind, client, manager

    def succeeded(self, obj: Any, ref: ObjectRef, run: ReadyRun, reason: str, message: str) -> None:
        """The run ended with an Action. `reason` is set if the Action waits. Blocks and raises like `report`."""
        if reason:
            self._write(obj, ref, run, "Unknown", reason, message)
        elif run.waiting_for:
            self._write(obj, ref, run, "Unknown", CHILDREN_NOT_READY, f"waiting for {', '.join(run.waiting_for)}")
        elif obj.deletion_timestamp is None:
            self._write(obj, ref, run, "True", RECONCILED, "")

    def failed(self, obj: Any, ref: ObjectRef, run: ReadyRun, error: BaseException) -> None:
        """The run ended with `error`. Blocks and raises like `report`, and raises whatever `str(error)` raises."""
        reason = _NO_REASON.sub("", type(error).__name__)[:CONDITION_LIMITS["reason"]] or "Error"
        self._write(obj, ref, run, "False", reason, str(error))

    def _write(self, obj: Any, ref: ObjectRef, run: ReadyRun, status: str, reason: str, message: str) -> None:
        condition = Condition(type=self._kind, status=status, reason=reason,
                              message=message[:CONDITION_LIMITS["message"]], observed_generation=obj.generation)
        replaced = report_of_run(whole_api(self._client, obj, ref), obj, condition, self._manager)
        if replaced is not None:
            run.wrote_quietly(obj.uid, *replaced)
