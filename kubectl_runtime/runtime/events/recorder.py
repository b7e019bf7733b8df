"""`Recorder`: tell people what happened to an object, as an Event that `kubectl describe` shows.

    recorder = Recorder(client, "database-operator")
    recorder.publish(database, "BackupFailed", "the bucket is full", warning=True)

In a reconciler `ctx.record(reason, note)` does it, with the controller's own recorder. Make one, and share it.

    publish   counts in memory, and returns. What repeats within 6 minutes is one Event with a rising count
    thread    "events-of-NAME", begun by the first `publish`: sends it, when the server can be reached. A daemon
    flush     waits until what was published so far is told
    close     flushes, and ends the thread. Before the client is closed. A recorder is a context manager; a program that
              ends without closing it gives it 2 s

What cannot be told is counted in `lost`, by cause, and warned of once: when too many new events wait, when one object
gets too many, when the server refuses them. The process's death loses what was not sent yet; nothing is counted twice.
In the child of a fork a recorder that was used before takes nothing, and logs that once; the parent's goes on.

Rights: `create` and `patch` on `events` in the group `events.k8s.io`, in the namespaces of the objects, and in
`default` for cluster-scoped ones.
"""
from __future__ import annotations

import atexit
import random
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

from kubectl_runtime.core.base.clock import Duration, seconds
from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.base.guard import pass_interrupt
from kubectl_runtime.core.base.interpreter import Thread, renewed_in_children
from kubectl_runtime.runtime.events.ledger import MARK, NOTE, Ledger, Reference, SpamFilter, Subject, cut, short
from kubectl_runtime.runtime.events.sender import Reporter, Sender
from kubectl_runtime.runtime.usercode import check_client, described, guarded

if TYPE_CHECKING:
    from kubectl_runtime.client.api.client import Client

UNSPECIFIED = "Unspecified"
"""The reason of an event that was published without one: the server requires it."""
AT_EXIT = 2.0
"""Seconds for a recorder that was not closed when the program ends."""
JOIN = 1.0
"""Real seconds for the thread to end once its time is over."""


class Recorder:
    """Publishes Events of the kind that `kubectl describe` shows: `publish` never blocks and never raises.

    Events go through a queue and one thread; the same event again becomes a series, and an object that talks too much
    is held back (`burst`, then one more every `refill` seconds). In a reconciler `ctx.record(reason, note)` does it.
    Safe to use from any thread. A context manager: at its end what is queued is sent, for some seconds.

    >>> pod = Api.namespaced(client, Pod, "default").get("web-0")
    >>> with Recorder(client, "my-operator") as recorder:
    ...     recorder.publish(pod, "Started", "the first request was answered")
    ...     recorder.flush(10)
    True
    """

    def __init__(self, client: Client, controller: str, *, instance: str | None = None, queue: int = 1000,
                 burst: int = 25, refill: Duration = 300, rng: random.Random | None = None) -> None:
        """Nothing is sent, and no thread is started, before the first `publish`.

        `controller`: who says it, such as `example.com/database-operator`; characters that the server would refuse
        become dashes. `instance`: which of its processes, by default the controller and the host's name. `queue`: new
        events that may wait at once; repetitions of what was published take no place. One object may have `burst` new
        events at once, and another one every `refill` seconds. `rng` draws names and pauses; for simulations. Raises
        RequestError when a number makes no sense, or nothing of `controller` can be a name.
        """
        check_client(client, "Recorder")
        if not (isinstance(queue, int) and isinstance(burst, int) and min(queue, burst) >= 1 and seconds(refill) > 0):
            raise RequestError(f"a Recorder needs queue >= 1, burst >= 1 and refill > 0, not queue {queue}, burst "
                               f"{burst}, refill {refill}")
        self._client = client
        self._reporter = Reporter.of(controller, instance)
        self._numbers = (queue, burst, seconds(refill))
        self._rng = rng
        self._closed = False
        # A simulation's clock: waiting beside its thread would move its time, so there whoever steps it drives.
        self._threaded = not getattr(client.clock, "self_advancing", False)
        self._used = self._is_of_parent = False
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self._sender = self._new_sender()
        renewed_in_children(self)

    def renew(self) -> None:
        """In the child of a fork: what was published is the parent's to send, and its threads may hold the locks. For
        that child alone."""
        self._is_of_parent, self._thread = self._used, None
        self._starting, self._sender = threading.Lock(), self._new_sender()
        if self._closed or self._is_of_parent:
            self._closed = True
            self._sender.close(0.0, driven=False)

    def _new_sender(self) -> Sender:
        queue, burst, refill = self._numbers
        rng, timer = self._rng or random.Random(), self._client.clock.monotonic
        return Sender(self._client, self._reporter, Ledger(queue, SpamFilter(burst, refill, timer), rng, timer), rng)

    def publish(self, regarding: Any, reason: str, note: str, *, warning: bool = False, action: str | None = None,
                related: Any = None) -> None:
        """Say that something happened to `regarding`. Never blocks, never raises.

        `regarding`, `related`: an object (of a resource class, a dict, a model of the official client), an ObjectRef,
        or a `Reference`. `reason`: one word in CamelCase, for machines; `action`: what was being done, by default the
        reason; both are cut at 128 bytes. `note`: for people, cut at 1024. The Event is in the object's namespace, for
        a cluster-scoped one in `default`. Two events are the same, and are counted in one, when all but the note agree.
        """
        guarded(None, "publishing an event", self._publish, regarding, reason, note, warning, action, related)

    def flush(self, timeout: Duration) -> bool:
        """Send what has been published so far without further pauses; whether nothing of it is left to send.

        Blocks until then, at most `timeout` seconds. What the server refused is not left: see `lost`.
        """
        return self._sender.flush(seconds(timeout), driven=self._thread is not None)

    def close(self, timeout: Duration = 5) -> bool:
        """Send what was published, as `flush` does, then end: what is left is lost, and so is what is published later.
        Whether nothing was left; else one line in the log says how much was, and the last error. Blocks for at most
        `timeout` seconds; a request that is under way then ends. Safe to repeat."""
        self._closed = True
        atexit.unregister(self._at_exit)
        with self._starting:
            thread = self._thread
        told = self._sender.close(seconds(timeout), driven=thread is not None)
        if thread is not None and thread is not threading.current_thread():
            thread.join(JOIN)
        return told

    @property
    def lost(self) -> Mapping[str, int]:
        """How many events were not told, by cause: `full`, `spam`, `refused`, `closed`, `invalid`."""
        return {why.name.lower(): number for why, number in self._sender.lost.items() if number}

    @property
    def waiting(self) -> int:
        """How many events have not been sent yet."""
        return self._sender.waiting

    def due(self) -> float | None:
        """The seconds until `step` has something to send; None as long as nothing is published. For simulations."""
        return self._sender.due()

    def step(self) -> float | None:
        """Send at most one request, which is what the thread does, and return after how many seconds to call again;
        None when there is nothing to send. For simulations."""
        return self._sender.step()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _publish(self, regarding: Any, reason: str, note: str, warning: bool, action: str | None, related: Any) -> None:
        self._used = True
        try:
            if not isinstance(warning, bool):
                raise TypeError(f"warning is {type(warning).__name__}, where True or False is expected")
            about = Reference.of(regarding)
            also = None if related is None else Reference.of(related)
            why = short(str(reason), UNSPECIFIED)
            subject = Subject(about, also, warning, why, short(str(action or why), why))
            text = cut(str(note), NOTE, MARK)
        except BaseException as error:  # noqa: BLE001 - objects, and what makes texts of them, are user code
            pass_interrupt(error)
            self._sender.reject(f"an event cannot be recorded: {described(error)}")
            return
        self._sender.observe(subject, text)
        if self._is_of_parent:
            self._sender.warn("forked", "nothing is sent: the recorder was used in the process that this one was "
                              "forked from. Make another one here")
        elif self._threaded and self._thread is None and not self._closed:
            self._begin()

    def _begin(self) -> None:
        with self._starting:
            if self._thread is None:
                thread = Thread(target=self._sender.run, name=f"events-of-{self._reporter.controller}", daemon=True)
                try:
                    thread.start()
                except RuntimeError as error:  # no memory, or the interpreter is ending; the next event tries again
                    self._sender.warn("thread", f"no thread can be begun to send them: {error}")
                    return
                self._thread = thread
                atexit.register(self._at_exit)

    def _at_exit(self) -> None:
        """Only flushes: the controller whose recorder it is closes it after its last runs."""
        if not self.flush(AT_EXIT):
            self._sender.warn("exit", f"the program ends, and {self._sender.waiting} were not sent")

    def __repr__(self) -> str:
        return f"<Recorder of {self._reporter.controller}>"
