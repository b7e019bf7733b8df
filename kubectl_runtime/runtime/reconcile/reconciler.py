"""`Reconciler`: the class form of a reconciler. The function form is any `(obj, ctx) -> Action`.

In both forms the annotation `ctx: Context[Deps]` names the type of `ctx.data`. Without `context=` the annotation is
`Context[None]`; see the overloads of `Controller.run`.

`Action`: the result of a reconciler. `TerminalError`: the error for a failure that no retry can cure. `Context`: the
second argument of a reconciler; each run has its own.
"""
from __future__ import annotations

import contextlib
import logging
import random
from abc import ABC, abstractmethod
from collections.abc import Callable, MutableMapping
from datetime import datetime
from math import inf
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeAlias, TypeVar, overload

import msgspec
from msgspec.structs import force_setattr

from kubectl_runtime.client.api.api import Api
from kubectl_runtime.core.base.errors import KubeError, RequestError, class_named
from kubectl_runtime.core.base.guard import GuardedLogger, name_of, not_awaitable
from kubectl_runtime.core.base.observer import RunResult
from kubectl_runtime.core.base.threads import Clock, Duration, duration_of, seconds
from kubectl_runtime.core.meta.gvk import ApiResource, HasApiResource, ObjectRef, api_resource_of
from kubectl_runtime.core.meta.metav1 import Condition
from kubectl_runtime.core.meta.selectors import FieldSelection, LabelSelection
from kubectl_runtime.core.objects.partial import DynamicObject, PartialObjectMeta
from kubectl_runtime.core.objects.resource import Resource
from kubectl_runtime.core.requests.params import LONGEST_MANAGER
from kubectl_runtime.core.requests.request import HasRef
from kubectl_runtime.core.scope import StopToken
from kubectl_runtime.runtime.children.desired import Child
from kubectl_runtime.runtime.children.ensure import Naming, Watched, ensure
from kubectl_runtime.runtime.children.result import Children, NotOurs
from kubectl_runtime.runtime.events.ledger import Reference
from kubectl_runtime.runtime.events.recorder import Recorder
from kubectl_runtime.runtime.lifecycle.lifecycle import Shutdown
from kubectl_runtime.runtime.logs import run_fields
from kubectl_runtime.runtime.queue.runs import KeyBackoff, Known, Run
from kubectl_runtime.runtime.status import is_condition_reason, report, whole_api
from kubectl_runtime.runtime.store.store import Store

if TYPE_CHECKING:
    from kubectl_runtime.client.api.client import Client

class Action(msgspec.Struct, frozen=True):
    """The result of a reconciler or an error policy: run again after some time, or wait for a change.

    Make one with `Action.requeue`, `Action.await_change` or `Action.waiting`. Immutable. The constructor raises like
    `requeue`, so every Action is valid.

    >>> Action.requeue(300)
    Action(requeue_after=300.0)
    >>> Action.requeue(timedelta(minutes=5)) == Action.requeue(300)
    True
    >>> Action.await_change()
    Action(requeue_after=None)
    """

    requeue_after: float | None = None
    """Seconds from the end of this run to the next one; None: run only when something changes."""
    reason: str = ""
    """One word for what the object waits for; empty when it waits for nothing."""
    message: str = ""
    """A sentence for people that says what the object waits for."""

    def __post_init__(self) -> None:
        if self.requeue_after is not None:
            force_setattr(self, "requeue_after", _delay(self.requeue_after))

    def __repr__(self) -> str:
        said = f", reason={self.reason!r}, message={self.message!r}" if self.reason or self.message else ""
        return f"Action(requeue_after={self.requeue_after!r}{said})"

    @classmethod
    def requeue(cls, after: Duration) -> Action:
        """Reconcile again after `after` (seconds or a timedelta) even if nothing changes; a change may start a run
        earlier. After many consecutive requeues of less than 0.1 s, an object waits 0.1 s. Times above 180 days become
        180 days.

        Raises RequestError when `after` is negative, infinite, not a number, or not a duration.
        """
        return cls(_delay(after))

    @classmethod
    def await_change(cls) -> Action:
        """Do nothing until the object, or another object that triggers it, changes."""
        return _AWAIT_CHANGE

    @classmethod
    def waiting(cls, reason: str, message: str, *, after: Duration | None = None) -> Action:
        """Report that the object waits for something. Runs again like `await_change`, or with `after` like `requeue`.
        Returned from a finalizer's `cleanup`, it keeps the object, with and without `after`.

        A controller with `ready="Ready"` then writes the condition Ready with status Unknown, `reason` (one word in
        CamelCase such as `DatabaseStarting`) and `message`, a sentence for people. Raises RequestError for an invalid
        reason, message or delay.

        >>> Action.waiting("DatabaseStarting", "the database restores a backup", after=10)
        Action(requeue_after=10.0, reason='DatabaseStarting', message='the database restores a backup')
        """
        if not isinstance(reason, str) or not is_condition_reason(reason):
            raise RequestError("Action.waiting: a reason must be one word in CamelCase, such as 'DatabaseStarting', "
                               f"not {reason!r}")
        if not isinstance(message, str):
            raise RequestError(f"Action.waiting: a message must be text, not {class_named(message)}")
        return cls(None if after is None else _delay(after), reason, message)


def _delay(after: Duration) -> float:
    delay = duration_of("Action.requeue: the delay", after)
    if delay == inf:
        raise RequestError("Action.requeue: the delay must be finite: Action.await_change() waits for a change")
    return delay


def wrong_type(function: Any, returned: object, ref: object,
               remedy: str = "Action.await_change() or Action.requeue(seconds)") -> TypeError:
    """The error for the user's `function`, which returned no Action. Raises a TypeError for an awaitable or a
    generator."""
    not_awaitable(returned, function)
    return TypeError(f"{name_of(function)} returned {class_named(returned)} for {ref}: return {remedy}")


_AWAIT_CHANGE = Action()
_UNKNOWN = float("nan")


class TerminalError(KubeError):
    """Raise it in a reconciler when retrying cannot help: for example, when the spec asks for something that does not
    exist.

    The run counts as one failure; the error policy is not called, and there is no retry. The object runs again after
    `trigger`, at a resync, and when it has a version that this run neither read nor wrote. It also runs again when a
    related object changes, such as an object that it owns, or that a mapper maps to it. A TerminalError also has this
    effect as the cause of another exception (`raise Mine(...) from TerminalError(...)`).

    >>> def reconcile(obj: ConfigMap, ctx: Context[None]) -> Action:
    ...     if "color" not in obj.data:
    ...         raise TerminalError("there is no color: retrying will not bring one")
    ...     return Action.await_change()
    """


Value: TypeAlias = str | Callable[[Any], object]
"""The part of an object whose changes matter: a path such as `data.tls.crt`, or a function of the object."""

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
R = TypeVar("R")
ResourceKind = TypeVar("ResourceKind", bound=Resource)


class RunReads(Protocol):
    """Answers the reads of runs, and records each read as a dependency of the run's object."""

    def read(self, run: Run, kind: Any, which: Any, value: Value | None) -> Any:
        """Like `Context.read`."""

    def read_all(self, run: Run, kind: Any, namespace: str | None, labels: LabelSelection | None,
                 fields: FieldSelection | None) -> list[Any]:
        """Like `Context.read_all`."""


class Environment(Generic[T]):
    """The parts that all runs of one controller share. They do not change while the controller runs."""

    __slots__ = ("backoff", "client", "clock", "controller", "data", "field_manager", "logger", "metadata_store_of",
                 "reads", "recorder", "rng", "run_timeout", "shutdown", "store_of", "stored", "watched")

    def __init__(self, *, controller: str, client: Client, data: T, logger: GuardedLogger, shutdown: Shutdown,
                 backoff: KeyBackoff, rng: random.Random, stored: Known,
                 store_of: Callable[[HasApiResource | ApiResource], Store[Any]],
                 metadata_store_of: Callable[[HasApiResource | ApiResource], Store[PartialObjectMeta]],
                 watched: Watched, clock: Clock, recorder: Recorder, reads: RunReads,
                 run_timeout: float | None = None) -> None:
        self.controller = controller
        self.field_manager = "".join(filter(str.isprintable, controller))[:LONGEST_MANAGER] or None
        """The controller's name, shortened to a valid field manager."""
        self.client = client
        self.data = data
        self.logger = logger
        self.shutdown = shutdown
        self.backoff = backoff
        self.rng = rng
        self.store_of = store_of
        self.metadata_store_of = metadata_store_of
        self.watched = watched
        self.recorder = recorder
        self.reads = reads
        self.stored = stored
        self.clock = clock
        self.run_timeout = run_timeout


class Context(Generic[T_co]):
    """The second argument of a reconciler: the client, the stores, the user's own data, and the state of this run.

    Its main attributes are `client`, `api(Kind)`, `data` (the value of `context=`), `read(Kind, name)` and
    `read_all(Kind)` for objects on which this object depends, `store(Kind)`, `report(obj, ...)` for the status,
    `record(reason, note)` for an Event, `logger`, `attempt` (1 is the first), `backoff_delay`, `now()`, `stop`,
    `deadline` and `reconcile_id`. Use the context only in the run's thread and during the run.

    >>> def reconcile(obj: ConfigMap, ctx: Context[str]) -> Action:
    ...     ctx.logger.info("run %s for %s", ctx.attempt, ctx.data)
    ...     ctx.api(Secret).get_opt(obj.name)
    ...     return Action.await_change()
    """

    __slots__ = ("_environment", "_logger", "_naming", "_reconcile_id", "_retry_delay", "_run", "_uid")

    def __init__(self, environment: Environment[T_co], run: Run, uid: str) -> None:
        self._environment = environment
        self._run = run
        self._uid = uid
        self._retry_delay: float | None = _UNKNOWN
        self._logger: ReconcileLogger | None = None
        self._reconcile_id = ""
        self._naming: Naming | None = None

    @property
    def ref(self) -> ObjectRef:
        """The ref of the object to reconcile: its kind, name and namespace."""
        return self._run.request.ref

    @property
    def client(self) -> Client:
        """The client of the controller's main `Api`. In a run, writes by this and any other client use the controller's
        name as their field manager, unless the call names another field manager."""
        return self._environment.client

    @overload
    def api(self, kind: type[ResourceKind]) -> Api[ResourceKind]: ...

    @overload
    def api(self, kind: ApiResource) -> Api[DynamicObject]: ...

    def api(self, kind: Any) -> Api[Any]:
        """The Api of `kind` in the namespace of the object to reconcile; cluster-wide for a cluster-scoped kind.

        Raises RequestError for a namespaced kind if the object to reconcile is cluster-scoped.
        """
        if not api_resource_of(kind).namespaced:
            return Api.all(self.client, kind)
        if self.ref.namespace is None:
            raise RequestError(f"{self.ref} is in no namespace, so ctx.api({api_resource_of(kind).kind}) has no "
                               "namespace to use; write Api.namespaced(ctx.client, kind, namespace)")
        return Api.namespaced(self.client, kind, self.ref.namespace)

    @property
    def data(self) -> T_co:
        """The value of `context=`. All runs share it, so it must be safe for several threads."""
        return self._environment.data

    @property
    def attempt(self) -> int:
        """The number of this attempt: 1 at first, plus 1 for each failed run.

        A successful run resets the number to 1, and so does a new generation or uid of the object. The number does not
        grow if a change starts a run during the backoff and that run fails.
        """
        return self._run.failures + 1

    @property
    def backoff_delay(self) -> float:
        """Seconds that the object will wait if this run fails and the default error policy applies. In the last attempt
        that `KeyBackoff(attempts=…)` allows, the delay is the longest wait."""
        delay = self.retry_delay
        return seconds(self._environment.backoff.maximum) if delay is None else delay

    @property
    def retry_delay(self) -> float | None:
        """Like `backoff_delay`, but None in the last attempt that `KeyBackoff(attempts=…)` allows: when that attempt
        fails, the object waits for a change, whatever an error policy returns."""
        if self._retry_delay is _UNKNOWN:
            failures = self._run.failures_if_it_fails
            self._retry_delay = self._environment.backoff.next(failures, self._environment.rng)
        return self._retry_delay

    def now(self) -> datetime:
        """The current date and time in UTC, with time zone; in a simulation, the simulated time.

        `Action.requeue(due - ctx.now())` requests another run at the time `due`.
        """
        return self._environment.clock.now()

    @property
    def reason(self) -> str:
        """Why this run happens, for logs. If several requests were merged into this run, it is one of their reasons."""
        return self._run.request.reason

    @property
    def stop(self) -> StopToken:
        """A token that is set when this run should end at once: at its `run_timeout`, near the end of the grace period,
        or at a second stop.

        Wait with `ctx.stop.wait(seconds)`. A run that ignores the token during a shutdown is reported as stuck.
        """
        return self._run.stop or self._environment.shutdown.aborted

    @property
    def deadline(self) -> float | None:
        """When `stop` will be set, on the clock's `monotonic()`: by `run_timeout` or a shutdown, whichever comes first;
        None without either."""
        limits = [limit for limit in (self._limit, self._environment.shutdown.deadline) if limit is not None]
        return min(limits, default=None)

    @property
    def _limit(self) -> float | None:
        timeout = self._environment.run_timeout
        return None if timeout is None else self._run.started + timeout

    @overload
    def store(self, kind: type[R]) -> Store[R]: ...

    @overload
    def store(self, kind: HasApiResource | ApiResource) -> Store[Any]: ...

    def store(self, kind: Any) -> Store[Any]:
        """The store of a kind that this controller watches: `ctx.store(ConfigMap)`. It contains whole objects.

        If the controller watches only some fields of a kind, by `.watches(api.with_fields(View), …)` with a subclass
        `View` of `PartialView`, use `ctx.store(View)`. Raises RequestError for a kind that is not watched. Also raises
        RequestError for a kind that is watched as metadata only, as by `owns` without `whole=True`: use
        `metadata_store` for such a kind.
        """
        return self._environment.store_of(kind)

    def report(self, obj: Any, /, *conditions: Condition, force: bool = False, **fields: Any) -> bool:
        """Write `conditions` and `fields` into the status of `obj`, in one apply. Returns whether anything was sent:
        False if the object already has all of them.

        `ctx.report(obj, Condition(type="Synced", status="True", reason="Done"), phase="Running", replicas=3)`. Fields
        are named as in the class or as in the API; None removes a field. Other status fields that the controller has
        applied stay. `obj` is the object to reconcile, or another object; the same `obj` may be passed again after a
        write. A missing object is not an error. Blocks for one call, and for two more each time that another client
        changes the object before the write. Raises RequestError for a field that the status class lacks, and ApiError
        (`is_conflict`) when another manager has applied a field, unless `force` is set. Outside of runs use the
        function `report`.
        """
        api = whole_api(self.client, obj, self.ref)
        return report(api, obj, *conditions, field_manager=self._environment.field_manager, force=force, **fields)
    @overload
    def read(self, kind: type[R], name: str | HasRef | ObjectRef, *,
             value: str | Callable[[R], object] | None = None) -> R | None: ...

    @overload
    def read(self, kind: ApiResource, name: str | HasRef | ObjectRef, *,
             value: Value | None = None) -> DynamicObject | None: ...

    def read(self, kind: Any, name: Any, *, value: Any = None) -> Any:
        """Read an object by ref, or by name in the namespace of the object to reconcile. Returns None if it does not
        exist. The object to reconcile then depends on the read object, and runs again when the read object appears,
        changes or is deleted.

        With `value`, a path such as `"data.tls.crt"` or a function of the object, the object to reconcile runs again
        only when that value changes. The reads of a successful run replace the earlier reads; a failed run adds its
        reads to them.

        The object comes from memory, which a watch of the kind keeps current. If its content is not in memory yet, one
        request reads it: the call blocks at most for that request, and raises what `Api.get` raises. Memory contains
        only contents that runs have read. The caller may change the returned object. With `Controller.reads(kind)` the
        kind's list is complete before the first run. RBAC: `get`, `list` and `watch` on the kind; if only single names
        are permitted, up to 50 of them are watched. Raises RequestError for an invalid name, for a ref of another kind
        and for a view.

        >>> def reconcile(obj: ConfigMap, ctx: Context[None]) -> Action:
        ...     certificate = ctx.read(Secret, "tls", value="data.tls.crt")
        ...     return Action.await_change()
        """
        return self._environment.reads.read(self._run, kind, name, value)

    @overload
    def read_all(self, kind: type[R], *, namespace: str | None = None, labels: LabelSelection | None = None,
                 fields: FieldSelection | None = None) -> list[R]: ...

    @overload
    def read_all(self, kind: ApiResource, *, namespace: str | None = None, labels: LabelSelection | None = None,
                 fields: FieldSelection | None = None) -> list[DynamicObject]: ...

    def read_all(self, kind: Any, *, namespace: str | None = None, labels: LabelSelection | None = None,
                 fields: FieldSelection | None = None) -> list[Any]:
        """Read the objects of a kind that the selectors match, sorted by namespace and name. `namespace` None means all
        namespaces that the controller reconciles. The object to reconcile depends on all these objects, and runs again
        when objects enter or leave the selection, too.

        It works like `read`, but one LIST request reads all contents that are not in memory. `labels` are matched in
        this process. Each selection by `fields` has its own watch; at most 50 such watches are open.

        >>> def reconcile(obj: ConfigMap, ctx: Context[None]) -> Action:
        ...     pods = ctx.read_all(Pod, namespace=obj.namespace, labels={"app": obj.name})
        ...     ctx.logger.info("%d Pods", len(pods))
        ...     return Action.await_change()
        """
        return self._environment.reads.read_all(self._run, kind, namespace, labels, fields)

    def metadata_store(self, kind: HasApiResource | ApiResource) -> Store[PartialObjectMeta]:
        """The store with the metadata of a kind that this controller watches, by `owns` or otherwise.
        `ctx.metadata_store(Job)` contains names, labels and owners. Raises RequestError for a kind that is not
        watched."""
        return self._environment.metadata_store_of(kind)

    def children(self, kind: HasApiResource | ApiResource) -> list[Any]:
        """The objects of a watched kind that have an owner reference to the object to reconcile, found by an index.

        Returns whole objects in no particular order, or `PartialObjectMeta`s if only metadata is kept, as by `owns`
        without `whole=True`. Raises RequestError for a kind that is not watched.
        """
        store = self._environment.metadata_store_of(kind)
        with contextlib.suppress(RequestError):
            store = self._environment.store_of(kind)
        return [store.reader(record) for record in store.owned_by(self._uid)]

    def ensure(self, obj: Resource, *children: Child, prune: bool = False, adopt: bool = False) -> Children:
        """Create these children of `obj`, and keep them as given: each child is applied unless it is up to date.

        A child is an object of a resource class, a dict, an official model or a manifest (text, or a `Path`). It gets
        an owner reference with `controller: true` and, if it names no namespace, its owner's namespace. It is
        applied with the controller's name as field manager.

        - **Nothing is sent** for a child that is still as this process last applied it. Its metadata shows this, so
          `owns(api)` suffices. A new process sends one apply for each child, which changes nothing.
        - **Foreign changes** of our fields (an update, `kubectl edit`, a scale, a removal) are reverted by one apply. A
          field that another *Apply* manager takes by force is taken back once. If the field is taken again within ten
          minutes, the child is `contested`: it is left alone until its desired state or that manager's entry in
          managedFields changes.
        - **Foreign objects** are not changed. An object with a child's name is foreign if it has another controller, or
          if it has no reference to `obj` and this controller has not applied it. After the other children were applied,
          NotOurs is raised, which names the foreign objects. `adopt` takes over foreign objects that have no
          controller.
        - **`prune`**: this call names all children. After the children were applied, the call deletes each other object
          that `obj` controls, if the controller `owns` its kind, only this controller has applied it, and no call of
          this run named it. Objects that `Api.create` made are never pruned. Only one call of a run may prune. A
          warning in the log names each kind among `children` that the controller does not own.

        Nothing is applied for an object that is being deleted, and its children stay. If another process writes under
        our field manager within the same second as our apply, metadata does not reveal the change; whole objects do
        (`owns(api, whole=True)`). Children in another namespace than their owner cannot have an owner reference: use
        labels and a finalizer.

        Blocks for one call for each child that must be applied or read. Returns what was done, and why children are not
        ready yet. Raises NotOurs; RequestError for an invalid child and for a second `prune`; and whatever `Api.apply`
        raises.

        >>> def reconcile(obj: Deployment, ctx: Context[None]) -> Action:
        ...     children = ctx.ensure(obj, ConfigMap(name=child_name(obj, "config"), data={"a": "1"}), prune=True)
        ...     return Action.await_change() if children.ready else Action.requeue(60)
        """
        if self._naming is None:
            self._naming = Naming()
        environment = self._environment
        try:
            found = ensure(environment.client, obj, children, manager=environment.field_manager,
                           watched=environment.watched, naming=self._naming, adopt=adopt, prune=prune)
        except NotOurs as error:
            self._run.waits_for(*error.children.not_ready())
            raise
        if waiting := found.not_ready():
            self._run.waits_for(*waiting)
        return found

    def record(self, reason: str, note: str, *, warning: bool = False) -> None:
        """Publish an Event about the object to reconcile: `kubectl describe` shows it.

        `reason` is one word in CamelCase, such as `BackupFailed`. `note` is a sentence. Repetitions are counted in one
        Event. The call never blocks and never raises. `Recorder` lists the required RBAC rules.
        """
        self._environment.recorder.publish(Reference.at(self.ref, self._uid), reason, note, warning=warning)

    @property
    def controller(self) -> str:
        """The controller's name."""
        return self._environment.controller

    @property
    def reconcile_id(self) -> str:
        """Identifies this run in logs: eight hex digits."""
        if not self._reconcile_id:
            self._reconcile_id = f"{self._environment.rng.getrandbits(32):08x}"
        return self._reconcile_id

    @property
    def logger(self) -> ReconcileLogger:
        """A logger that puts the object and the run's id in front of each message. `kubectl_runtime.observe.logs` lists
        the attributes that its records get."""
        if self._logger is None:
            self._logger = ReconcileLogger(self._environment.logger, run_fields(self))
        return self._logger


class ReconcileLogger(logging.LoggerAdapter[GuardedLogger]):
    """Puts the object and the run's id in front of each message."""

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        fields = self.extra or {}
        kwargs["extra"] = {**fields, **(kwargs.get("extra") or {})}
        return f"[{fields.get('ref')} {fields.get('reconcile_id')}] {msg}", kwargs


K = TypeVar("K")
D = TypeVar("D")
K_contra = TypeVar("K_contra", contravariant=True)
D_contra = TypeVar("D_contra", contravariant=True)

ReconcileFunction: TypeAlias = Callable[[K, Context[Any]], Action]
ErrorPolicy: TypeAlias = Callable[[K, BaseException, Context[Any]], Action]


class SupportsReconcile(Protocol[K_contra, D_contra]):
    """The protocol of a reconciler: any object with a method `reconcile(obj, ctx) -> Action`.

    >>> class Quiet:
    ...     def reconcile(self, obj: ConfigMap, ctx: Context[None]) -> Action:
    ...         return Action.await_change()
    >>> with Controller(Api.all(client, ConfigMap)).start(Quiet()) as running:
    ...     running.wait_until_ready(10)
    """

    def reconcile(self, obj: K_contra, ctx: Context[D_contra], /) -> Action:
        """Make the cluster match the object, and return when to run again: see `Reconciler.reconcile`."""


Reconciles: TypeAlias = SupportsReconcile[K, D] | Callable[[K, Context[D]], Action]
"""A reconciler of objects of type K whose `ctx.data` has type D: an object with `reconcile`, or a function."""


class Reconciler(ABC, Generic[K]):
    """The base class for reconcilers. `reconcile` makes the cluster, and systems outside of it, match the spec of an
    object.

    All workers share one instance, and call it at the same time. Do not keep the state of an object in the instance:
    write such state into the cluster. Any other state of the instance must be safe for several threads.

    >>> class Greet(Reconciler[Namespace]):
    ...     def reconcile(self, obj: Namespace, ctx: Context[None]) -> Action:
    ...         greeting = ConfigMap(name="greeting", namespace=obj.name, data={"text": f"Welcome to {obj.name}!"})
    ...         greeting.set_owner(obj)
    ...         Api.namespaced(ctx.client, ConfigMap, obj.name).apply(greeting)
    ...         return Action.await_change()
    """

    @abstractmethod
    def reconcile(self, obj: K, ctx: Context[Any]) -> Action:
        """Compare `obj` with the actual state, make the needed changes, and return when to run again.

        It may block. An exception reports a failure; the error policy then decides when to retry. Because it runs again
        after any change, it must reach the same result however often it is called. Two runs for one object never
        overlap.
        """

    def error_policy(self, obj: K, error: BaseException, ctx: Context[Any]) -> Action:  # noqa: ARG002 - for overriding
        """Decide what to do after `reconcile` raised `error`. It runs on the same worker and may block.

        The default waits `ctx.backoff_delay`: 5 ms, doubling up to 1000 s per object, with jitter, and reset by a
        success. The error policy is not called after a TerminalError, nor after the first few conflicts in a row, which
        are retried at once. After the last attempt that `KeyBackoff(attempts=…)` allows, the object waits for a change,
        whatever the returned action is.
        """
        return Action.requeue(ctx.backoff_delay)

    def on_success(self, obj: K, action: Action, ctx: Context[Any]) -> None:
        """Called after `reconcile` has returned `action`, on the same worker, as part of the run. It may block. If it
        raises, the run fails. The default does nothing."""


class RunReport(msgspec.Struct, frozen=True):
    """How one run ended: the argument of the `Controller.on_result` callback. Times are seconds.

    >>> def slow(report: RunReport) -> None:
    ...     if report.duration > 10:
    ...         print(report.ref, report.result)
    >>> controller = Controller(Api.all(client, ConfigMap)).on_result(slow)
    """

    ref: ObjectRef
    result: RunResult
    duration: float
    """Seconds."""
    attempt: int
    """1, plus the number of failures in a row before this run."""
    reason: str
    """Why the run happened, for logs."""
    reconcile_id: str
    requeue_after: float | None
    """Seconds until the next run even if nothing changes; None: the object runs only when something changes."""
    error: BaseException | None
    """The exception that the run raised; None if it raised none."""


ResultCallback: TypeAlias = Callable[[RunReport], object]
