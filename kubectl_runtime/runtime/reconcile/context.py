"""`Context`: what a reconciler gets besides the object. One per run; private to it."""
from __future__ import annotations

import logging
import random
from collections.abc import Callable, MutableMapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from kubectl_runtime.core.base.stop import StopToken
from kubectl_runtime.core.meta.gvk import ApiResource, HasApiResource
from kubectl_runtime.core.meta.refs import ObjectRef
from kubectl_runtime.runtime.events.recorder import Recorder
from kubectl_runtime.runtime.events.references import Reference
from kubectl_runtime.runtime.queue.key_backoff import KeyBackoff
from kubectl_runtime.runtime.queue.runs import Run
from kubectl_runtime.runtime.reflector.store import Store
from kubectl_runtime.runtime.shutdown import Shutdown
from kubectl_runtime.runtime.usercode import GuardedLogger

if TYPE_CHECKING:
    from kubectl_runtime.client.api.client import Client

T = TypeVar("T")


class Environment(Generic[T]):
    """What all runs of one controller have in common. Read-only once the controller runs."""

    __slots__ = ("backoff", "client", "data", "logger", "recorder", "rng", "shutdown", "store_of")

    def __init__(self, *, client: Client, data: T, logger: GuardedLogger, shutdown: Shutdown, backoff: KeyBackoff,
                 rng: random.Random, store_of: Callable[[HasApiResource | ApiResource], Store[Any]],
                 recorder: Recorder) -> None:
        self.client = client
        self.data = data
        self.logger = logger
        self.shutdown = shutdown
        self.backoff = backoff
        self.rng = rng
        self.store_of = store_of
        self.recorder = recorder


class Context(Generic[T]):
    """The second argument of a reconciler. Use it in the thread that it was given to, during the run."""

    __slots__ = ("_backoff_delay", "_environment", "_logger", "_reconcile_id", "_run", "_uid", "ref")

    def __init__(self, environment: Environment[T], run: Run, uid: str) -> None:
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
    def data(self) -> T:
        """What was passed as `context=`; shared by all runs, so it has to be safe for several threads."""
        return self._environment.data

    @property
    def attempt(self) -> int:
        """1, plus one for each time in a row that this key has failed. A success starts over, a trigger does not."""
        return self._run.failures + 1

    @property
    def backoff_delay(self) -> float:
        """Seconds that this key will wait if this run fails and the default error policy decides."""
        if self._backoff_delay is None:
            self._backoff_delay = self._environment.backoff.delay(self.attempt, self._environment.rng)
        return self._backoff_delay

    @property
    def reason(self) -> str:
        """Why this run happens, for logs; several reasons may have been merged into this one."""
        return self._run.request.reason

    @property
    def stop(self) -> StopToken:
        """Set when this run should end at once: near the end of the grace period, or at a second stop.

        Wait with `ctx.stop.wait(seconds)`. A run that ignores it is reported as stuck.
        """
        return self._environment.shutdown.aborted

    @property
    def deadline(self) -> float | None:
        """When `stop` will be set, on the clock's `monotonic()`; None as long as no shutdown has begun."""
        return self._environment.shutdown.deadline

    def store(self, kind: HasApiResource | ApiResource) -> Store[Any]:
        """The store of a kind that this controller watches (metadata only for `owns`).

        Raises RequestError for other kinds.
        """
        return self._environment.store_of(kind)

    def record(self, reason: str, note: str, *, warning: bool = False) -> None:
        """Tell people what happened to the object to reconcile, as an Event that `kubectl describe` shows.

        `reason` is one word in CamelCase, such as `BackupFailed`; `note` a sentence. What repeats is one Event with a
        count. Never blocks, never raises: see `Recorder`, also for the rights that it needs.
        """
        self._environment.recorder.publish(Reference.at(self.ref, self._uid), reason, note, warning=warning)

    @property
    def reconcile_id(self) -> str:
        """Names this run in logs: eight hex digits."""
        if not self._reconcile_id:
            self._reconcile_id = f"{self._environment.rng.getrandbits(32):08x}"
        return self._reconcile_id

    @property
    def logger(self) -> ReconcileLogger:
        """Logs with the object and the run's id in front, and as `extra` fields `ref` and `reconcile_id`."""
        if self._logger is None:
            self._logger = ReconcileLogger(self._environment.logger,
                                           {"ref": self.ref, "reconcile_id": self.reconcile_id})
        return self._logger


class ReconcileLogger(logging.LoggerAdapter[GuardedLogger]):
    """Puts the object and the run's id in front of each message."""

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        fields = self.extra or {}
        kwargs["extra"] = {**fields, **(kwargs.get("extra") or {})}
        return f"[{fields.get('ref')} {fields.get('reconcile_id')}] {msg}", kwargs
