"""`Context`: what a reconciler gets besides the object. One per run; private to it."""
from __future__ import annotations

import logging
import random
from collections.abc import Callable, MutableMapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from kubectl_runtime.core.base.clock import Clock
from kubectl_runtime.core.base.guarded_log import GuardedLogger
from kubectl_runtime.core.base.stop import StopToken
from kubectl_runtime.core.meta.gvk import ApiResource, HasApiResource
from kubectl_runtime.core.meta.refs import ObjectRef
from kubectl_runtime.runtime.events.recorder import Recorder
from kubectl_runtime.runtime.events.references import Reference
from kubectl_runtime.runtime.logs import run_fields
from kubectl_runtime.runtime.queue.key_backoff import KeyBackoff
from kubectl_runtime.runtime.queue.runs import Known, Run
from kubectl_runtime.runtime.reflector.store import Store
from kubectl_runtime.runtime.shutdown import Shutdown

if TYPE_CHECKING:
    from kubectl_runtime.client.api.client import Client

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
R = TypeVar("R")


class Environment(Generic[T]):
    """What all runs of one controller have in common. Read-only once the controller runs."""

    __slots__ = ("backoff", "client", "clock", "controller", "data", "logger", "recorder", "rng", "run_timeout",
                 "shutdown", "store_of", "stored")

    def __init__(self, *, controller: str, client: Client, data: T, logger: GuardedLogger, shutdown: Shutdown,
                 backoff: KeyBackoff, rng: random.Random, stored: Known,
                 store_of: Callable[[HasApiResource | ApiResource], Store[Any]], clock: Clock,
                 recorder: Recorder, run_timeout: float | None = None) -> None:
        self.controller = controller
        self.client = client
        self.data = data
        self.logger = logger
        self.shutdown = shutdown
        self.backoff = backoff
        self.rng = rng
        self.store_of = store_of
        self.recorder = recorder
        self.stored = stored
        self.clock = clock
        self.run_timeout = run_timeout


class Context(Generic[T_co]):
    """The second argument of a reconciler: the client, the stores, the user's own data, and what is known of this run.

    `client`, `data` (what was given as `context=`), `store(Kind)`, `record(reason, note)` for an Event, `logger`,
    `attempt` (1 is the first), `backoff_delay`, `now()`, `stop`, `deadline`, `reconcile_id`. Use it in the thread that
    it was given to, during the run.

    >>> def reconcile(obj: ConfigMap, ctx: Context[str]) -> Action:
    ...     ctx.logger.info("run %s for %s", ctx.attempt, ctx.data)
    ...     Api.namespaced(ctx.client, Secret, obj.namespace).get_opt(obj.name)
    ...     return Action.await_change()
    """

    __slots__ = ("_backoff_delay", "_environment", "_logger", "_reconcile_id", "_run", "_uid", "ref")

    def __init__(self, environment: Environment[T_co], run: Run, uid: str) -> None:
        self._environment = environment
        self._run = run
        self._uid = uid
        self._backoff_delay: float | None = None
        self._logger: ReconcileLogger | None = None
        self._reconcile_id = ""
        self.ref: ObjectRef = run.request.ref
        """The object to reconcile."""

    @property
    def client(self) -> Client:
        """The client of the controller's main `Api`."""
        return self._environment.client

    @property
    def data(self) -> T_co:
        """What was passed as `context=`; shared by all runs, so it has to be safe for several threads."""
        return self._environment.data

    @property
    def attempt(self) -> int:
        """Which attempt this is: 1 at first, and one more after each failed run.

        A successful run sets it back to 1. So does a new generation or uid of the object. One kind of failure does not
        count: a change may start a run before the backoff is over, and if that run fails, the number stays.
        """
        return self._run.failures + 1

    @property
    def backoff_delay(self) -> float:
        """Seconds that this key will wait if this run fails and the default error policy decides."""
        if self._backoff_delay is None:
            failures = self._run.failures_if_it_fails
            self._backoff_delay = self._environment.backoff.delay(failures, self._environment.rng)
        return self._backoff_delay

    def now(self) -> datetime:
        """The date and time, aware, in UTC: in a simulation its own, which `datetime.now` knows nothing of.

        `Action.requeue(due - ctx.now())` comes back at a time `due`.
        """
        return self._environment.clock.now()

    @property
    def reason(self) -> str:
        """Why this run happens, for logs; several reasons may have been merged into this one."""
        return self._run.request.reason

    @property
    def stop(self) -> StopToken:
        """A token that is set when this run should end at once: after its `run_timeout`, near the end of the grace
        period, or at a second stop.

        Wait with `ctx.stop.wait(seconds)`. A run that ignores it is reported as stuck.
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
        """The store of a kind that this controller watches: `ctx.store(ConfigMap)`. `owns` keeps only metadata.

        A controller may also watch only some fields of a kind: `.watches(api.with_fields(View), …)`, where `View` is
        your subclass of `PartialView`. Its store is `ctx.store(View)`. Raises RequestError for what is not watched.
        """
        return self._environment.store_of(kind)

    def record(self, reason: str, note: str, *, warning: bool = False) -> None:
        """Publish an Event about the object to reconcile: `kubectl describe` shows it.

        `reason` is one word in CamelCase, such as `BackupFailed`. `note` is a sentence. Repetitions are counted in one
        Event. It never blocks and never raises. See `Recorder`, also for the rights that it needs.
        """
        self._environment.recorder.publish(Reference.at(self.ref, self._uid), reason, note, warning=warning)

    @property
    def controller(self) -> str:
        """The controller's name."""
        return self._environment.controller

    @property
    def reconcile_id(self) -> str:
        """Names this run in logs: eight hex digits."""
        if not self._reconcile_id:
            self._reconcile_id = f"{self._environment.rng.getrandbits(32):08x}"
        return self._reconcile_id

    @property
    def logger(self) -> ReconcileLogger:
        """A logger that puts the object and the run's id in front of each message. See `kubectl_runtime.logs` for the
        fields that a record has."""
        if self._logger is None:
            self._logger = ReconcileLogger(self._environment.logger, run_fields(self))
        return self._logger


class ReconcileLogger(logging.LoggerAdapter[GuardedLogger]):
    """Puts the object and the run's id in front of each message."""

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        fields = self.extra or {}
        kwargs["extra"] = {**fields, **(kwargs.get("extra") or {})}
        return f"[{fields.get('ref')} {fields.get('reconcile_id')}] {msg}", kwargs
