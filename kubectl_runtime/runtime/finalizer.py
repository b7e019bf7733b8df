"""`finalizer` and `FinalizingReconciler`: clean up an object's external resources before the object is deleted.

What one run does. "Ours": our finalizer is on the object. "Terminating": its deletion was requested.

    ours   terminating   what happens
    no     no            our finalizer is added; the same run calls `apply` with the object that the server returned
    yes    no            `apply` is called
    yes    yes           the object is read live, and `cleanup` is called with it. If `cleanup` returns `await_change`,
                         our finalizer is removed. If it returns `requeue` or `waiting`, our finalizer stays and
                         `cleanup` is called again later. If it raises, our finalizer stays
    no     yes           nothing is called or written: another finalizer holds the object

Each patch of the finalizers tests the uid. A patch that adds our finalizer also tests the whole list of finalizers as
it was read. A patch that removes our finalizer tests only the removed entries, so other changes of the object never
prevent the removal, and other finalizers stay. In a controller's run, the first patch that adds our finalizer also
tests the resourceVersion that the run was given. If that patch succeeds, the change leads to no further run.

    outcome of a patch                what follows
    success                           the run goes on
    not found                         the object is gone: nothing more to do
    a `test` failed (422), conflict   the object is read live, without an error. If it is gone or was re-created,
                                      nothing more to do. If its finalizers are as wanted, the run goes on. Otherwise
                                      the table above applies to the live object
    no answer                         the same: the patch may have been carried out, and only the live object shows it
    422, but the live object passes   the server had another reason, so the error is raised
    the tests
    any other error                   the error is raised

So, unless other clients remove our finalizer, everything that `apply` has begun is cleaned up before the object is
gone, even if the program dies between any two steps. `cleanup` never runs for a new object of the same name. User code
must allow that `apply` and `cleanup` are repeated, and that **`cleanup` is called for an object for which `apply` never
ran** (the program died in between). So `cleanup` must not fail when the external resource does not exist.

Do not use a finalizer with `ListSemantic.ANY`: such a watch may begin in the past, so `apply` may run for an object
that is gone.

RBAC: `patch` on the kind, and `get` for the live reads. Adding the finalizer costs one request per object, removing it
costs two.
"""
from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar

from msgspec.structs import replace

from kubectl_runtime.client.api.api import Api
from kubectl_runtime.client.http.retry import KindNotServedError
from kubectl_runtime.core.base.errors import (
    ApiError,
    OutcomeUnknownError,
    RequestError,
    Status,
    is_lost_test,
    message_of,
)
from kubectl_runtime.core.base.guard import guarded_logger
from kubectl_runtime.core.meta.gvk import ApiResource, ObjectRef
from kubectl_runtime.core.objects.partial import FieldsForm, PartialObjectMeta, PartialView
from kubectl_runtime.core.requests.params import Patch, pointer
from kubectl_runtime.core.requests.request import Place
from kubectl_runtime.core.requests.rights import foresee
from kubectl_runtime.core.scope import current_run
from kubectl_runtime.runtime.reconcile.reconciler import Action, Context, Reconciler, wrong_type

log = guarded_logger(__name__)

ATTEMPTS = 5
"""The number of patches per change before a conflict is raised; each but the first follows a live read."""

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_QUALIFIED_NAME = re.compile(rf"(?=[^/]{{1,253}}/){_LABEL}(\.{_LABEL})*/(?=.{{1,63}}\Z)"
                             r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]|"
                             rf"(?=.{{1,63}}\Z){_LABEL}(\.{_LABEL})+")
"""Kubernetes' rule for finalizers: a DNS subdomain, a slash, up to 63 characters. Names without a dot are reserved for
Kubernetes."""
_FINALIZERS = pointer("metadata", "finalizers")


class Finalizable(Protocol):
    """The attributes that `finalizer` reads; resources, metadata-only objects and views (`with_fields`) have them."""

    @property
    def name(self) -> str:
        """The object's name."""

    @property
    def namespace(self) -> str | None:
        """The object's namespace; None for a cluster-scoped one."""

    @property
    def uid(self) -> str:
        """The object's uid."""

    @property
    def finalizers(self) -> tuple[str, ...]:
        """The finalizers of the object."""

    @property
    def deletion_timestamp(self) -> object | None:
        """When the object's deletion was requested; None if it was not."""


F = TypeVar("F", bound=Finalizable)


def finalizer(api: Api[F], name: str, obj: F, *, apply: Callable[[F], Action],
              cleanup: Callable[[F], Action]) -> Action:
    """Reconcile `obj` under the finalizer `name`: call `apply`, or `cleanup` when the object is being deleted.

    `api` is an Api of the kind, for the namespace of `obj` or for all namespaces. No other program may use `name`, for
    example `databases.example.com/cleanup`. `apply` and `cleanup` should use the object that is passed to them, which
    may be newer than `obj`. `cleanup` returns `Action.await_change()` when everything is cleaned up.
    `Action.requeue(seconds)` keeps the object and calls `cleanup` again after that time. `Action.waiting(...)` keeps
    it, too, and without `after=` the next change calls `cleanup` again. `apply` and `cleanup` may be called again at
    any time. `cleanup` may also be called for an object that `apply` never saw. Unless other clients remove the
    finalizer, the object stays until `cleanup` is done.

    Returns what `apply` or `cleanup` returned, or `Action.await_change()` when neither was called. Blocks for the
    requests and the call; safe from any thread. Raises whatever `apply` or `cleanup` raises; ApiError (a conflict when
    the finalizers keep changing) and TransportError; TypeError when one of them returns no Action. Raises RequestError,
    before any request, for a name that the server would refuse, for an object that was never on the server, and for an
    Api of another kind or namespace.

    >>> maps = Api.namespaced(client, ConfigMap, "default")
    >>> finalizer(maps, "example.com/cleanup", maps.get("settings"),
    ...           apply=lambda obj: Action.requeue(300), cleanup=lambda obj: Action.await_change())
    Action(requeue_after=300.0)
    >>> maps.get("settings").finalizers
    ('example.com/cleanup',)
    """
    return _finalized(api, name, obj, apply, cleanup)


def _finalized(api: Api[F], name: str, obj: F, apply: Callable[..., Action], cleanup: Callable[..., Action],
               *more: Any) -> Action:
    """`finalizer`; `more` are further arguments of `apply` and `cleanup`, which errors name as the user wrote them."""
    check_finalizer_name(name)
    if "/" not in name:
        _check_bare_name(name, api.resource)
    target = _Target(_api_at(api, obj), name, obj.name, obj.uid)
    foresee(target.api.place, "get", "patch")
    now: F | None = obj
    if name in obj.finalizers and _is_terminating(obj):
        now = target.read()
    elif not _is_terminating(obj):
        now = target.with_finalizer(obj)
    if now is None or name not in now.finalizers:
        log.debug("%s is %s: nothing to clean up for %s", target.ref, "gone" if now is None else "being deleted", name)
        return Action.await_change()
    if not _is_terminating(now):
        action = apply(now, *more)
        if more and not isinstance(action, Action):  # a caller of `finalizer` may drop its result
            raise wrong_type(apply, action, target.ref)
        return action
    action = cleanup(now, *more)
    if not isinstance(action, Action):
        raise wrong_type(cleanup, action, target.ref, "Action.await_change() when all is cleaned up, "
                         "Action.requeue(seconds) to try again")
    if action.requeue_after is None and not action.reason:
        target.without_finalizer(now)
        run: Any = current_run()
        if run is not None and run.key == target.ref.key:
            run.ends_reads = True  # the reads of `cleanup` are not dependencies of the run
        log.debug("%s is cleaned up: removed the finalizer %s", target.ref, name)
    return action


class FinalizingReconciler(Reconciler[F], Generic[F]):
    """A reconciler that manages the finalizer `finalizer_name`. Subclasses define `apply` and `cleanup`.

    `apply` is called while the object exists, `cleanup` when it is being deleted; see `finalizer` for the guarantees.
    The reconciler uses the controller's client and kind. It also works in a controller that watches only metadata, or
    only some fields (`with_fields`). A `finalizer_name` that the server would refuse raises RequestError when the class
    is defined; a missing `finalizer_name` raises it when an instance is made.

    >>> class Databases(FinalizingReconciler[ConfigMap]):
    ...     finalizer_name = "databases.example.com/cleanup"
    ...     def apply(self, obj, ctx):
    ...         return Action.requeue(300)              # create the database, or check that it exists
    ...     def cleanup(self, obj, ctx):
    ...         return Action.await_change()            # the database is gone: the object may go, too
    """

    finalizer_name: ClassVar[str] = ""

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        if "finalizer_name" in cls.__dict__:
            check_finalizer_name(cls.finalizer_name)

    def __new__(cls, *_: Any, **__: Any) -> Self:
        check_finalizer_name(cls.finalizer_name)
        return super().__new__(cls)

    @abstractmethod
    def apply(self, obj: F, ctx: Context[Any]) -> Action:
        """Like `Reconciler.reconcile`, for an object that has the finalizer and is not being deleted."""

    @abstractmethod
    def cleanup(self, obj: F, ctx: Context[Any]) -> Action:
        """Remove what `apply` has created. `apply` may never have been called: a missing resource is no failure.

        Returns `Action.await_change()` when everything is gone: the finalizer is then removed, and the server deletes
        the object. Everything else keeps the object: `Action.requeue(seconds)` calls `cleanup` again after that time;
        `Action.waiting(reason, message)` calls it again when something changes, or after its `after=`; an exception
        calls it again with backoff.
        """

    def reconcile(self, obj: F, ctx: Context[Any]) -> Action:
        """Call `apply`, or `cleanup` when the object is being deleted, under the finalizer. Do not override it."""
        return _finalized(_api_of(obj, ctx), self.finalizer_name, obj, self.apply, self.cleanup, ctx)


def check_finalizer_name(name: str) -> None:
    """Raise RequestError, with a remedy, unless servers accept `name` as a finalizer. A domain without a slash
    (`documents.kube.rs`) passes, because servers accept it for custom resources."""
    if not (isinstance(name, str) and _QUALIFIED_NAME.fullmatch(name)):
        raise RequestError(f"{name!r} is not a name for a finalizer: write a domain of yours, a slash, and at most 63 "
                           "letters, digits, '-', '_' or '.', as in 'databases.example.com/cleanup'")


def _check_bare_name(name: str, resource: ApiResource) -> None:
    """Refuse a name without a slash for built-in kinds, and warn about it for other kinds, as the server does."""
    if "." not in resource.group or resource.group.endswith(".k8s.io"):
        raise RequestError(f"{name!r} is not a name for a finalizer of a {resource.kind}: built-in kinds need a "
                           f"domain of yours, a slash and a name, as in '{name}/cleanup'")
    if name not in _warned:
        _warned.add(name)
        log.warning("The finalizer %r has no path: the API prefers a domain, a slash and a name, as in '%s/cleanup'. "
                    "Before you rename it, remove the old finalizer from all objects", name, name)


_warned: set[str] = set()
"""Names that were warned about."""


@dataclass(frozen=True, slots=True)
class _Target(Generic[F]):
    """Our finalizer on one object. The uid distinguishes the object from others of the same name."""

    api: Api[F]
    finalizer: str
    name: str
    uid: str

    @property
    def ref(self) -> ObjectRef:
        return ObjectRef(self.api.resource, self.name, self.api.namespace)

    def read(self) -> F | None:
        """The live object; None when it is gone, even if a new object has its name."""
        live = self.api.get_opt(self.name)
        return live if live is not None and live.uid == self.uid else None

    def with_finalizer(self, seen: F) -> F | None:
        """Add our finalizer, unless the object is terminating. Returns the object; None when the object is gone."""
        return self._change(seen, lambda obj: self.finalizer in obj.finalizers or _is_terminating(obj), self._adding)

    def without_finalizer(self, seen: F) -> None:
        """Remove our finalizer. Returns once the object lacks it or is gone."""
        self._change(seen, lambda obj: self.finalizer not in obj.finalizers, self._removing)

    def _adding(self, seen: F) -> list[dict[str, Any]]:
        if not seen.finalizers:  # a test against null succeeds for an absent list
            return [_operation("test", _FINALIZERS, None), _operation("add", _FINALIZERS, [self.finalizer])]
        return [_operation("test", _FINALIZERS, list(seen.finalizers)),
                _operation("add", _FINALIZERS + pointer("-"), self.finalizer)]

    def _removing(self, seen: F) -> list[dict[str, Any]]:
        """Remove all entries of our finalizer, since servers allow duplicates; from the end, so that no index moves."""
        places = [_FINALIZERS + pointer(index) for index, held in enumerate(seen.finalizers) if held == self.finalizer]
        return [operation for place in reversed(places)
                for operation in (_operation("test", place, self.finalizer), {"op": "remove", "path": place})]

    def _change(self, seen: F, done: Callable[[F], bool],
                operations: Callable[[F], Sequence[dict[str, Any]]]) -> F | None:
        """Repeat the patch until `done`, by the module's second table. Returns the newest object; None if the object is
        gone."""
        refused: ApiError | OutcomeUnknownError
        version = self._given_version(seen) if operations == self._adding else ""
        for _ in range(ATTEMPTS):
            if done(seen):
                return seen
            try:
                return self._patched(version, operations(seen))
            except KindNotServedError:
                raise
            except OutcomeUnknownError as error:
                refused = error
            except ApiError as error:
                if error.is_not_found:
                    return None
                if not is_lost_test(error):
                    raise
                refused = error
            log.debug("reading %s again: %s", self.ref, refused)
            live = self.read()
            if live is None:
                return None
            unchanged = (live.finalizers == seen.finalizers and _is_terminating(live) == _is_terminating(seen)
                         and version in ("", getattr(live, "resource_version", "")))
            version = ""
            if isinstance(refused, ApiError) and refused.is_invalid and unchanged:
                raise refused  # the patch's `test` operations match `live`: the server has another reason
            seen = live
        if isinstance(refused, OutcomeUnknownError):
            raise refused
        said = f"other clients wrote first {ATTEMPTS} times: {message_of(refused.status)}"
        raise ApiError(Status(status="Failure", reason="Conflict", code=409, message=said), refused.operation)


    def _given_version(self, seen: F) -> str:
        """The version of `seen` if a controller's run was given this object in this version; otherwise empty."""
        run, version = current_run(), getattr(seen, "resource_version", "")
        return version if run is not None and run.is_given(self.uid, version) else ""

    def _patched(self, version: str, operations: Sequence[dict[str, Any]]) -> F:
        """Send the patch; returns the patched object. `version`: the version that the patch tests; if it is empty, the
        patch tests no version."""
        guards = [_operation("test", pointer("metadata", "uid"), self.uid)]
        if version:
            guards.append(_operation("test", pointer("metadata", "resourceVersion"), version))
        changed = self.api.patch(self.name, Patch.json([*guards, *operations]))
        if version and (run := current_run()) is not None:
            run.wrote_quietly(self.uid, version, getattr(changed, "resource_version", version))
        return changed


def _operation(op: str, path: str, value: Any) -> dict[str, Any]:
    return {"op": op, "path": path, "value": value}


def _is_terminating(obj: Finalizable) -> bool:
    return obj.deletion_timestamp is not None


def _api_at(api: Api[F], obj: F) -> Api[F]:
    """`api` in the namespace of `obj`. Raises RequestError when `api` does not cover `obj`."""
    resource = getattr(obj, "api_resource", api.resource)  # views do not know their kind
    if (resource.group, resource.kind) != (api.resource.group, api.resource.kind):
        raise RequestError(f"{api} is not an Api of {resource.kind}: give finalizer() an Api of the object's own kind")
    if not obj.name or not obj.uid:
        raise RequestError(f"this {resource.kind} has no name and uid from the server yet: a finalizer is for an "
                           "object that a controller watches or that Api.get returned")
    if api.namespace == obj.namespace:
        return api
    if api.namespace is not None:
        raise RequestError(f"{api} does not cover {obj.name} of namespace {obj.namespace}: give finalizer() an Api "
                           "of the object's own namespace, or of all namespaces")
    return Api(api.client, api.kind, replace(api.place, namespace=obj.namespace), api.form)


def _api_of(obj: Any, ctx: Context[Any]) -> Api[Any]:
    """An Api whose objects have the form of `obj`, which a controller passed to a reconciler."""
    resource = ctx.ref.resource
    place = Place(resource, ctx.ref.namespace, metadata_only=isinstance(obj, PartialObjectMeta))
    form = _fields_form(resource, type(obj)) if isinstance(obj, PartialView) else None
    return Api(ctx.client, type(obj), place, form)


@lru_cache(maxsize=64)
def _fields_form(resource: ApiResource, view: type[PartialView]) -> FieldsForm[Any]:
    """The form, cached because making its decoders costs more than a run that changes nothing."""
    return FieldsForm(resource, view)
