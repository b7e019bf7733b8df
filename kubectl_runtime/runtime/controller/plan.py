"""`Plan`: the complete configuration of a `Controller` before its start, checked and frozen, for `Assembly`.

The `check_...` functions and `functions_of` refuse user functions that would fail at each run.

`fullest` decides which watch serves a plan of a controller: a watch of whole objects also serves a plan that needs only
parts of these objects. The main objects always get a watch in the requested form. A plan for several namespaces has one
`WatchScope` for each namespace.

`RunningNames` refuses two controllers with the same name on one client, since both would reconcile each object.
"""
from __future__ import annotations

import dataclasses
import os
import threading
import typing
import weakref
from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec.structs import replace

from kubectl_runtime.core.base.errors import KubeError, RequestError
from kubectl_runtime.core.base.guard import check_callback, check_type, is_async, is_generator, misfit, name_of
from kubectl_runtime.core.base.threads import Clock
from kubectl_runtime.core.codec.views import Modify, Record
from kubectl_runtime.core.meta.gvk import ApiResource, ObjectRef
from kubectl_runtime.core.objects.partial import FieldsForm, PartialView
from kubectl_runtime.core.requests.request import list_
from kubectl_runtime.core.scope import StopToken
from kubectl_runtime.runtime.controller.options import ControllerOptions
from kubectl_runtime.runtime.lifecycle.lifecycle import DEFAULT_GRACE
from kubectl_runtime.runtime.queue.work_queue import KeyRate
from kubectl_runtime.runtime.reconcile.invoker import success_function
from kubectl_runtime.runtime.reconcile.reconciler import (
    Context,
    ErrorPolicy,
    ReconcileFunction,
    Reconciler,
    ResultCallback,
)
from kubectl_runtime.runtime.reconcile.runner import Partition
from kubectl_runtime.runtime.recording import RunRecorder, WatchPlace
from kubectl_runtime.runtime.store.indexes import IndexFunctions
from kubectl_runtime.runtime.store.store import Store
from kubectl_runtime.runtime.triggers.predicates import Predicate
from kubectl_runtime.runtime.triggers.shared_watches import Share, form_of, is_whole, selection_of
from kubectl_runtime.runtime.triggers.streams import TriggerSource
from kubectl_runtime.runtime.triggers.triggers import Subscription
from kubectl_runtime.runtime.watch.config import WatcherConfig
from kubectl_runtime.runtime.watch.driver import reader_of
from kubectl_runtime.runtime.watch.states import WatchApi, WatchApis, apis_of, as_configured, namespaces_of, pattern_of

if TYPE_CHECKING:
    from kubectl_runtime.client.api.client import Client

GoneFunction = Callable[[ObjectRef, Context[Any]], object]
"""The type of the function that a controller calls for a key whose object is not in the store."""


class WatchPlan(msgspec.Struct, frozen=True):
    """The plan of one watch, or of one watch for each namespace of a multi-namespace Api: what to watch, and which
    requests a change triggers.

    `store`: the store of the main objects, which exists before the start; None for other plans, whose stores are made
    at the start. `modify` prunes objects before they are stored. `indexes`: the indexes of the kind.
    `declared_by`: the code that declares the indexes, for hints in errors.
    """

    api: WatchApis[Any]
    config: WatcherConfig
    subscription: Subscription
    store: Store[Any] | None = None
    modify: Modify | None = None
    indexes: IndexFunctions[Any] | None = None
    declared_by: str = ""
    is_owned: bool = False
    """Whether the controller `owns` the objects, so that each of them is in the namespace of its owner."""


class StreamPlan(msgspec.Struct, frozen=True):
    """A stream of objects or events that the program makes. The main stream comes from a reflector, which fills the
    store."""

    stream: Iterable[Any]
    subscription: Subscription
    stop: StopToken | None
    is_owned: bool = False


class MainStream(StreamPlan, frozen=True, kw_only=True):
    """The stream of the main objects."""

    store: Store[Any]


class Plan(msgspec.Struct, frozen=True):
    """The complete configuration of a controller before its start. Times are seconds."""

    options: ControllerOptions
    client: Client
    clock: Clock
    resource: ApiResource
    main: WatchPlan | MainStream
    related: tuple[WatchPlan, ...] = ()
    streams: tuple[StreamPlan, ...] = ()
    triggers: tuple[TriggerSource, ...] = ()
    bulk_triggers: tuple[TriggerSource, ...] = ()
    reads: tuple[Any, ...] = ()
    """Kinds that the reconciler reads by `ctx.read`; their lists must be complete before the first run."""
    sync_timeout: float | None = None
    resync: float | None = None
    run_timeout: float | None = None
    key_rate: KeyRate | None = None
    on_gone: GoneFunction | None = None
    grace: float = DEFAULT_GRACE
    on_result: ResultCallback | None = None
    signals: bool = False
    stop: StopToken | None = None
    hold: Callable[[Callable[[], None]], None] | None = None
    """Called when all stores are complete, with a function that lets the runs begin. `hold` calls this function when
    runs may begin. None: the runs begin at once."""
    partition: Partition | None = None
    """Decides which objects this replica owns. None: all objects."""
    events: Client | None = None
    """The client that writes Events; None: `client`. If writes of `client` need the leadership, another client writes
    the Events, because Events may be sent after the leadership has ended."""
    housekeeping: bool = False
    """Whether the controller is a part of the library. If so, its start and end are logged at DEBUG, by a
    `kubectl_runtime.housekeeping` logger."""

    @property
    def name(self) -> str:
        """The controller's name."""
        return self.options.name

    def without_record(self) -> Plan:
        """The same plan without a recording."""
        return replace(self, options=dataclasses.replace(self.options, record=None))


class WatchScope(msgspec.Struct, frozen=True):
    """One namespace, or the whole cluster, that a plan watches."""

    plan: WatchPlan
    api: WatchApi[Any]

    @property
    def is_whole(self) -> bool:
        """Whether the watch delivers whole objects."""
        return is_whole(self.api, self.plan.config)

    @property
    def view(self) -> type[PartialView] | None:
        """The view class that the plan requests; None without one."""
        form = as_configured(self.api, self.plan.config).form
        return form.view if isinstance(form, FieldsForm) else None

    def reader(self) -> Callable[[Record], Any]:
        """Returns a function that turns records of the watch that `fullest` chose into objects for user functions."""
        api = as_configured(self.api, self.plan.config)
        read, form = reader_of(api.kind), api.form
        if not isinstance(form, FieldsForm):
            return read
        return lambda record: read(record if record.view is not None else form.decode_object(record.raw))


class Planned(msgspec.Struct, frozen=True):
    """A scope and the watch that serves it. The watch was made for `chosen`, which is this scope or another scope with
    the same objects."""

    share: Share
    chosen: WatchScope
    scope: WatchScope
    name: str
    is_first: bool
    """Whether no earlier scope uses this watch."""

    def record(self, recorder: RunRecorder) -> None:
        """Make `recorder` record the events of this watch."""
        api, config = self.chosen.api, self.chosen.plan.config
        place = api.place
        asked = WatchPlace(list_(place).path, config.label_text or "", config.field_text or "", place.metadata_only)
        self.share.subscribe(recorder.watching(self.name, asked), lambda _: None, partial(recorder.ready, self.name))


def scopes_of(*plans: WatchPlan) -> list[WatchScope]:
    """The scopes that these plans watch: one for each namespace of a multi-namespace plan."""
    return [WatchScope(plan, api) for plan in plans for api in apis_of(plan.api)]


def fullest(scope: WatchScope, scopes: Sequence[WatchScope]) -> WatchScope:
    """Find the scope whose watch serves `scope`: it selects the same objects, if possible as whole objects, otherwise
    in the form that `scope` requests."""
    config = scope.plan.config
    if scope.plan.store is not None or not config.shared:
        return scope
    selection, form = selection_of(scope.api, config), form_of(scope.api, config, None)
    same = [other for other in scopes if other.plan.modify is scope.plan.modify
            and selection_of(other.api, other.plan.config) == selection]
    whole = (other for other in same if other.is_whole)
    return next(whole, None) or next(other for other in same if form_of(other.api, other.plan.config, None) == form)


class RunningNames:
    """The names of the running controllers: two controllers on one client cannot have the same name. Safe to use from
    any thread. A forked child process starts without names, because the parent's controllers do not run there."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process = os.getpid()
        self._taken: weakref.WeakKeyDictionary[Any, set[str]] = weakref.WeakKeyDictionary()

    def take(self, client: Client, name: str) -> Callable[[], None]:
        """Take a name. Returns a function that releases it. Raises RequestError when the name is taken. A derived
        client counts as its root client."""
        client = client.root
        if self._process != os.getpid():
            self._lock, self._process = threading.Lock(), os.getpid()
            self._taken = weakref.WeakKeyDictionary()
        with self._lock:
            names = self._taken.setdefault(client, set())
            if name in names:
                raise RequestError(f"a controller named {name!r} is running on this client already: two would "
                                   "reconcile each object at the same time. Stop that controller first, or, if the "
                                   "two watch different objects, give one of them another name=")
            names.add(name)
        return lambda: names.discard(name)


RUNNING = RunningNames()


class ControllerError(KubeError):
    """A controller ended by itself: its stores were not complete in time, its client was closed, a stream ended, or the
    library has a bug.

    >>> raise ControllerError("the client was closed")
    Traceback (most recent call last):
        ...
    ControllerError: the client was closed
    """


def check_functions(reconcile: Any, error_policy: Any, data: Any) -> None:
    """Raise RequestError for a reconciler that does not take `(obj, ctx)`, for an error policy that does not take
    `(obj, error, ctx)`, and if `context=` is missing although the reconciler's annotation, such as `ctx:
    Context[Settings]`, requires it."""
    if (wrong := misfit(reconcile, ("obj", "ctx"))) is not None:
        raise RequestError(f"the reconciler {name_of(reconcile)} {wrong}")
    if error_policy is not None:
        check_callback("the error policy", error_policy, "obj", "error", "ctx")
    if (on_success := success_function(reconcile)) is not None:
        check_callback("on_success", on_success, "obj", "action", "ctx")
    wanted = _data_type(reconcile) if data is None else None
    if wanted is not None:
        raise RequestError(f"the reconciler {name_of(reconcile)} takes a Context[{getattr(wanted, '__name__', wanted)}]"
                           ", but no context= was given")


def check_children(api: Any, owners: Any) -> None:
    """Raise RequestError if the children of `api` are in none of the namespaces of `owners`."""
    children, own, like, own_like = namespaces_of(api), namespaces_of(owners), pattern_of(api), pattern_of(owners)
    if children and own:
        meet = bool(children & own)
    else:  # two patterns may both match a future namespace
        names, pattern = (children, own_like) if children else (own, like)
        meet = not names or not pattern or any(fnmatchcase(name, pattern) for name in names)
    if not meet:
        raise RequestError(f"owns: {api.resource.full_name} of {like or ', '.join(sorted(children))} can have no owner "
                           f"in {own_like or ', '.join(sorted(own))}, where this controller reconciles "
                           f"{owners.resource.full_name}: an owner must be in the namespace of the objects that it "
                           "owns")


def check_predicate(predicate: Any) -> None:
    """Raise RequestError for a value that is not a Predicate. A plain function must be wrapped by `predicates.when`."""
    if predicate is not None:
        check_type("predicate", predicate, Predicate, "predicates.generation or predicates.when(function)")


def functions_of(reconciler: Any,
                 error_policy: ErrorPolicy[Any] | None) -> tuple[ReconcileFunction[Any], ErrorPolicy[Any] | None]:
    """Returns the function to call and the error policy of a reconciler, which is a function or an object. Raises
    RequestError for other values."""
    if isinstance(reconciler, type):
        raise RequestError(f"{reconciler.__name__} is a class: pass an instance of it, {reconciler.__name__}()")
    if not isinstance(reconciler, Reconciler) and not callable(reconciler) and hasattr(reconciler, "reconcile"):
        return functions_of(reconciler.reconcile, error_policy)  # an object that is no Reconciler
    function = reconciler.reconcile if isinstance(reconciler, Reconciler) else reconciler
    if is_async(function):
        raise RequestError(f"{name_of(function)} is async: reconcilers run in threads; write a plain "
                           "function, which may block")
    if is_generator(function):
        raise RequestError(f"{name_of(function)} is a generator, whose body would never run: return an Action")
    if isinstance(reconciler, Reconciler):
        if error_policy is None and type(reconciler).error_policy is not Reconciler.error_policy:
            error_policy = reconciler.error_policy
        return reconciler.reconcile, error_policy
    if not callable(reconciler):
        raise RequestError(f"{reconciler!r} is neither a Reconciler nor a function (obj, ctx)")
    return reconciler, error_policy


def _data_type(function: Any) -> Any:
    """The class of `ctx.data` in a function's annotation; None if it has none or allows None."""
    function = getattr(function, "__func__", function)
    try:
        hints = typing.get_type_hints(function)
    except Exception:  # noqa: BLE001 - names that exist only for type checkers: the class is unknown
        return None
    hints.pop("return", None)
    for hint in hints.values():
        if typing.get_origin(hint) is Context:
            (data,) = typing.get_args(hint)
            return data if isinstance(data, type) and data not in (Any, type(None), object) else None
    return None
