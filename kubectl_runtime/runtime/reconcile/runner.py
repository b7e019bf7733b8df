"""`Runner`: the run queue under one lock, an executor for the work, and a dispatcher that waits for timers.

Keys become due by `trigger_all` (in watch threads) and by timers (in the dispatcher). If a key is due and fewer than
`concurrency` workers exist, the thread that noticed this submits another worker. A worker ends one run and takes the
next one without releasing the lock in between, and ends when no key is due. So a loaded queue needs no switch between
threads, and a waiting key occupies no thread.

    closed gate   triggers are collected, nothing runs            open()  -> open
    open          keys run                                        drain() -> draining
    draining      no new runs, pending keys are dropped; idle when the last run in progress has ended

Triggers that arrive while the gate is closed come from the initial list, and run in the background class. No lock is
held during user code, calls of the observer, or submits (the executor may be the user's). Simulations drive `step` and
the workers' generators. The observer is notified between two yields, so that a simulated thread, like a real one,
executes one run at a time.

`Partition`: the objects that this replica owns, if several replicas share the objects. If objects are divided by name,
each replica stores all objects, and only the runs with their writes are divided. If objects are divided by hash ranges,
watches and stores are divided as well (see `controller.divided`).

    a trigger for an object of another replica     the trigger is dropped: the other replica sees the change as well
    a worker takes a key                           ownership is checked again, because the object may have moved
    objects become this replica's                  all of them are triggered, once their store is complete
    objects move to another replica                their pending keys are dropped; runs in progress continue, but
                                                   `ctx.stop` is set, so that they can end early

Executors run the work in the library's threads, in a pool of the user's, or in a simulation. Work is a generator: each
`yield` is a point at which another thread could be scheduled, so a simulation can step many workers in a seeded order.
Threads run the work to its end. The default threads are daemons, not those of a
`concurrent.futures.ThreadPoolExecutor`: Python joins the latter at exit, so one reconciler that never returns would
keep the process alive.
"""
from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Generator, Sequence
from concurrent.futures import Executor as Pool
from concurrent.futures import Future
from contextvars import Context
from inspect import GEN_CREATED, getgeneratorstate
from itertools import count
from math import inf
from queue import SimpleQueue
from typing import Any, Literal, Protocol

from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.base.guard import described, guarded_logger
from kubectl_runtime.core.base.observer import NO_OBSERVER, Observer, callbacks, notify
from kubectl_runtime.core.base.plain import Key
from kubectl_runtime.core.base.threads import Clock, Thread
from kubectl_runtime.core.scope import FirstOf, RunScope, StopToken
from kubectl_runtime.runtime.queue.runs import Execute, Outcome, Run, RunHistory
from kubectl_runtime.runtime.queue.work_queue import QueueLook, WorkQueue
from kubectl_runtime.runtime.triggers.triggers import Inbox, ReconcileRequest, Sink

log = guarded_logger(__name__)

Work = Generator[None, None, None]

_ELSEWHERE = frozenset(("ProcessPoolExecutor", "InterpreterPoolExecutor"))
"""Compared by name, because the first class is slow to import and the second exists only since Python 3.14."""


class Executor(Protocol):
    """Runs work in other threads; never blocks the caller."""

    one_run: bool
    """Whether each submitted piece of work executes only one run, so that other users of the threads get their turn."""

    def submit(self, work: Work) -> None:
        """Accept `work`, which later runs to its end."""


class ThreadExecutor:
    """A fixed number of daemon threads with one work queue. `submit` is safe from any thread.

    Another thread (a watchdog, a debugger) may set an exception in one of these threads. The exception is raised when
    the thread next wakes, perhaps just after it has taken work. Neither the thread nor the work is lost.
    """

    one_run = False

    def __init__(self, size: int, name: str, on_bug: Callable[[BaseException], None]) -> None:
        """`size` threads called `name` plus their number. If the work raises, `on_bug` gets the exception, and the
        thread continues.

        The threads are not started: the owner starts `threads`, and joins them after `close`.
        """
        self._work: SimpleQueue[Work | None] = SimpleQueue()
        self._unbegun: dict[Work, None] = {}
        """Submitted work that no thread has begun."""
        self._closed = False
        self._on_bug = on_bug
        self.threads = [Thread(target=self._run, name=f"{name} {number}", daemon=True)
                        for number in range(1, size + 1)]

    def submit(self, work: Work) -> None:
        """Have `work` run in one of the threads. Does not block."""
        self._unbegun[work] = None
        self._work.put(work)

    def close(self) -> None:
        """Let each thread end once it has nothing to do. Does not wait."""
        self._closed = True
        for _ in self.threads:
            self._work.put(None)

    def _run(self) -> None:
        interrupted = False
        while True:
            try:
                if interrupted:  # this thread may have taken work from the queue without beginning it
                    for work in list(self._unbegun):
                        self._perform(work)
                    interrupted = False
                # `get` waits without a deadline. `close`, which the stop token's callback calls, ends this loop.
                while (taken := self._work.get()) is not None:
                    self._perform(taken)
                return
            except BaseException as error:
                interrupted = True
                if self._closed:  # the interrupt may have lost the None that ends this thread
                    self._work.put(None)
                log.error("thread %r was interrupted from outside by %s; the thread continues",
                          threading.current_thread().name, described(error), exc_info=error)

    def _perform(self, work: Work) -> None:
        """Do `work`, unless another thread has begun it."""
        try:
            if self._unbegun.pop(work, self) is self:
                return
            for _ in work:
                pass
        except BaseException as error:
            if getgeneratorstate(work) == GEN_CREATED:
                self._unbegun[work] = None
                raise
            self._on_bug(error)  # a defect of the library, so notify the owner of the threads


class PoolExecutor:
    """A thread pool of the user's, which other code may use as well. `submit` is safe from any thread.

    The library never shuts the pool down. `close` cancels work that has not begun; running work continues.
    """

    one_run = True
    threads: Sequence[threading.Thread] = ()
    """Empty: the library neither starts nor joins threads of the pool."""

    def __init__(self, pool: Pool, on_bug: Callable[[BaseException], None]) -> None:
        """If the work raises, `on_bug` gets the exception. Raises RequestError for a pool without threads."""
        check_pool(pool)
        self._pool = pool
        self._on_bug = on_bug
        self._lock = threading.Lock()
        self._waiting: dict[Future[None], _Begun] = {}
        self._closing = False

    def submit(self, work: Work) -> None:
        """Have `work` run in the pool. Raises what the pool raises: RuntimeError when it has been shut down."""
        begun = _Begun(work)
        # An empty context, because a thread that the pool starts for this work may keep the caller's context.
        future = Context().run(self._pool.submit, begun.run)
        with self._lock:
            self._waiting[future] = begun
        future.add_done_callback(self._done)

    def close(self) -> None:
        """Cancel work that has not begun. Call it when there is nothing left to run. Does not wait."""
        with self._lock:
            self._closing = True
            waiting = list(self._waiting)
        for future in waiting:
            future.cancel()

    def _done(self, future: Future[None]) -> None:
        with self._lock:
            begun = self._waiting.pop(future)
        error = None if future.cancelled() else future.exception()
        if error is None and not begun.begun and not self._closing:
            error = RuntimeError("other code cancelled a run in the executor of a running controller")
        if error is not None:
            self._on_bug(error)  # ends the controller, so that no new run begins below
        if not begun.begun:
            # The worker is still counted among the workers. Run it: it finds no work, ends, and is no longer counted.
            for _ in begun.work:
                pass


class _Begun:
    """Work, and whether it has begun."""

    __slots__ = ("begun", "work")

    def __init__(self, work: Work) -> None:
        self.work = work
        self.begun = False

    def run(self) -> None:
        self.begun = True
        for _ in self.work:
            pass


def executor_for(pool: Pool | None, size: int, name: str,
                 on_bug: Callable[[BaseException], None]) -> ThreadExecutor | PoolExecutor:
    """An executor for the user's `pool`; without a pool, a new executor with `size` threads. Raises like
    `PoolExecutor`."""
    return ThreadExecutor(size, name, on_bug) if pool is None else PoolExecutor(pool, on_bug)


def check_pool(pool: Any) -> None:
    """Raise RequestError unless `pool` is a thread pool of this interpreter."""
    if any(base.__name__ in _ELSEWHERE for base in type(pool).__mro__):
        raise RequestError(f"executor: {type(pool).__name__} runs its work in other processes or interpreters, where "
                           "the stores, the client and the context do not exist; pass a ThreadPoolExecutor")
    if not isinstance(pool, Pool):
        raise RequestError("executor must be a concurrent.futures.Executor with threads, such as "
                           f"ThreadPoolExecutor(8), not {pool!r}")


FORGET_AT_ONCE = 1000
"""The number of keys that are forgotten under one hold of the lock, which takes a few milliseconds."""


LOOK_AFTER = 60.0
"""Once all workers are busy, the dispatcher looks at them within this many seconds; see `BlockedLog`."""


class Runner:
    """Runs the keys of one controller, each at most once at a time. Safe to use from any thread."""

    def __init__(self, queue: WorkQueue, execute: Execute, executor: Executor, *, concurrency: int,
                 clock: Clock, name: str = "", observer: Observer = NO_OBSERVER,
                 on_bug: Callable[[BaseException], None] | None = None) -> None:
        """Allows at most `concurrency` runs at once. Starts with the gate closed. `observer` is notified with this
        `name`, and raises nothing (see `together`). If the executor accepts no work, `on_bug` gets the error; without
        `on_bug` the error is raised."""
        self._queue = queue
        self.execute = execute
        """Runs one key. A simulation may wrap it before the first run."""
        self._executor = executor
        self._concurrency = concurrency
        self._clock = clock
        self._name = name
        self._observer = observer
        self._keys_triggered = callbacks(observer, "keys_triggered", name)
        self._on_bug = on_bug
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._workers: dict[int, Run | None] = {}
        """The active workers by number, each with its current run."""
        self._to_call: list[int] = []
        """The numbers of workers that must still be submitted."""
        self._numbers = count()
        self._open = False
        self._history = RunHistory()
        self._wake_at = inf
        """When the dispatcher will wake by itself. A thread that schedules an earlier key must wake it."""
        self._look_by = -inf
        """When the dispatcher wakes at the latest: without timers it would not notice that all workers are blocked."""
        self._turn_since: float | None = None
        """When the dispatcher's current turn began; None while it waits or does not run."""
        self._woken = False
        """Whether `wake` was called since the dispatcher's housekeeping began."""

    def trigger_all(self, requests: Collection[ReconcileRequest]) -> None:
        """Schedule these requests; free workers start at once. Does not block, and takes the lock once."""
        queue = self._queue
        with self._lock:
            now = self._clock.monotonic()
            initial = not self._open
            queue.trigger_all(requests, now, background=initial)
            due = queue.due(now)
            self._call_worker_if_due(due, now)
        if self._to_call:
            self._submit_called()
        if self._keys_triggered:
            notify(self._keys_triggered, len(requests), due, now)

    def forget(self, of: Callable[[Key], bool]) -> None:
        """Drop all state of the keys for which `of` is true. Their runs in progress will leave no state, either.

        The lock is released between batches.
        """
        with self._lock:
            known = self._queue.keys()
        chosen = [key for key in known if of(key)]
        for begin in range(0, len(chosen), FORGET_AT_ONCE):
            with self._lock:
                for key in chosen[begin:begin + FORGET_AT_ONCE]:
                    self._queue.forget(key)

    def open(self) -> None:
        """Let runs begin: every store is complete."""
        with self._lock:
            self._open = True
            now = self._clock.monotonic()
            self._call_worker_if_due(self._queue.due(now), now)
            self._changed.notify_all()
        self._submit_called()

    def drain(self) -> int:
        """Begin no more runs and drop pending keys. Returns how many keys were due, not counting keys that wait for a
        timer."""
        with self._lock:
            dropped = self._queue.due(self._clock.monotonic())
            self._queue.close()
            self._changed.notify_all()
            return dropped

    def wait_idle(self, until: Callable[[], float]) -> bool:
        """Block until no run is in progress (call `drain` first) or the clock reaches `until()`. Returns whether no run
        is in progress.

        `until` is called again after each `wake`, so another thread can cut the wait short.
        """
        with self._lock:
            while self._workers:
                left = until() - self._clock.monotonic()
                if left <= 0:
                    return False
                self._clock.wait(self._changed, left)
            return True

    def wake(self) -> None:
        """Have `wait_idle` check its deadline again, and `dispatch` call its housekeeping."""
        with self._lock:
            self.wake_locked()

    def wake_locked(self) -> None:
        """Like `wake`, for the queue's `on_forget`, which is called while this runner's lock is held."""
        self._woken = True
        self._changed.notify_all()

    def running(self) -> list[Run]:
        """The runs in progress, in the order in which they began."""
        with self._lock:
            return sorted(self._queue.running, key=lambda run: run.started)

    def depth(self) -> int:
        """The number of scheduled keys, due or not."""
        with self._lock:
            return len(self._queue)

    def failing(self) -> tuple[int, int]:
        """The number of keys whose last run failed, and the number of retries that the rate limit holds back."""
        with self._lock:
            return self._queue.failing, self._queue.held_back

    def held(self) -> tuple[list[Run], int] | None:
        """While all workers are busy: the runs in progress, in the order in which they began, and the number of due
        keys. While a worker is free: None, without taking the lock."""
        if len(self._workers) < self._concurrency:
            return None
        with self._lock:
            return sorted(self._queue.running, key=lambda run: run.started), self._queue.due(self._clock.monotonic())

    def look(self, most: int) -> QueueLook:
        """A snapshot of the queue and the last runs, with up to `most` rows of each kind. For 30 rows the lock is held
        for 50 to 255 µs, with 100 keys as well as with 200,000."""
        with self._lock:
            now = self._clock.monotonic()
            look, history = self._queue.look(now, most), self._history
            look.runs, look.failed = history.runs, history.failed
            look.recent, look.slowest = history.recent(most), history.slowest(most, now)
            return look

    def dispatcher_late(self) -> float:
        """Seconds since the dispatcher's current turn began or, between turns, since the dispatcher should have woken;
        0 if it need not wake yet. This takes no lock, so that it also works while a stuck dispatcher holds the lock."""
        since = self._turn_since
        return max(0.0, self._clock.monotonic() - (self._wake_at if since is None else since))

    def step(self) -> float | None:
        """Do one turn of the dispatcher: start runs of the keys that are due. Returns the seconds until the next key is
        due; None without one."""
        with self._lock:
            delay = self._step()
        self._submit_called()
        return delay

    def dispatch(self, housekeeping: Callable[[], float | None]) -> None:
        """The body of the dispatcher's thread: do a turn whenever a key may be due, until `drain`.

        `housekeeping` is called in between, outside the lock. It returns the seconds until its next call.
        """
        while True:
            self._turn_since = self._clock.monotonic()
            limit = housekeeping()
            with self._lock:
                if self._queue.closed:
                    self._turn_since = None
                    return
                delay = self._step()
                if not self._to_call and not self._woken:
                    now = self._clock.monotonic()
                    look = self._look_by - now
                    waits = [seconds for seconds in (limit, delay, look if look > 0 else None) if seconds is not None]
                    self._wake_at = now + min(waits) if waits else inf
                    self._turn_since = None
                    self._clock.wait(self._changed, min(waits) if waits else None)
                    self._wake_at = inf
                self._woken = False
            self._submit_called()

    def _step(self) -> float | None:
        now = self._clock.monotonic()
        at = self._call_worker_if_due(self._queue.due(now), now)
        return None if at is None else max(0.0, at - now)

    def _call_worker_if_due(self, due: int, now: float) -> float | None:
        """Start a worker if keys are due and fewer than `concurrency` workers exist. Returns when the dispatcher must
        look again, or None if it need not. Wakes the dispatcher if it would otherwise look too late."""
        if not self._open:
            return None
        if due:
            if len(self._workers) < self._concurrency:
                number = next(self._numbers)
                self._workers[number] = None
                self._to_call.append(number)
            elif self._wake_at > now + LOOK_AFTER:
                self._look_by = self._wake_at = now + LOOK_AFTER
                self._changed.notify_all()
        at = self._queue.next_due()
        if at is not None and at < self._wake_at:
            self._wake_at = at
            self._changed.notify_all()
        return at

    def _submit_called(self) -> None:
        """Submit the workers in `_to_call`. The lock must not be held."""
        while self._to_call:
            with self._lock:
                if not self._to_call:
                    return
                number = self._to_call.pop()
            try:
                self._executor.submit(self._work(number))
            except BaseException as error:
                self._lose_worker(number)
                if self._on_bug is None:
                    raise
                self._on_bug(error)

    def _work(self, number: int) -> Generator[None, None, None]:
        try:
            run = self._next(number, None, None)
            while run is not None:
                yield
                outcome = self.execute(run)
                yield
                run = self._next(number, run, outcome)
        except GeneratorExit:
            raise
        except BaseException:  # a bug here, or out of memory: without this, the run would never count as ended
            self._lose_worker(number)
            raise

    def _lose_worker(self, number: int) -> None:
        with self._lock:
            run = self._workers.pop(number, None)
            if run is not None:
                self._queue.abandon(run)
            self._changed.notify_all()

    def _next(self, number: int, ended: Run | None, outcome: Outcome | None) -> Run | None:
        """End one run and take the next one. None means that worker `number` must end."""
        queue, retried = self._queue, False
        with self._lock:
            now = self._clock.monotonic()
            if ended is not None and outcome is not None:
                retried = queue.finish(ended, outcome, now)
                self._history.ended(ended, outcome, now)
            run = self._workers[number] = queue.take(now) if ended is None or not self._executor.one_run else None
            due = queue.due(now)
            if run is None:
                del self._workers[number]
                if queue.closed:  # then `wait_idle` may be waiting for the last worker to end
                    self._changed.notify_all()
            else:
                run.depth = due
            self._call_worker_if_due(due, now)
        if self._to_call:
            self._submit_called()
        if retried and ended is not None and outcome is not None and outcome.delay is not None:
            self._observer.retry_scheduled(self._name, ended.key, ended.failures_if_it_fails, outcome.delay)
        return run


DividedBy = Literal["name", "namespace", "uid"]
"""The property of an object that determines its shard."""

Of = Callable[[Key], bool]
"""A function that returns whether a call applies to a key."""


class Listener:
    """How a controller reacts when its replica gains or loses objects. For one thread at a time. Raises nothing. The
    calls block while they go through all objects."""

    def __init__(self, inbox: Inbox, runner: Runner, on_lost: Callable[[Of], None] = lambda _of: None) -> None:
        """`on_lost` is called for lost objects, so that this replica forgets their state."""
        self._inbox = inbox
        self._runner = runner
        self._on_lost = on_lost

    def gained(self, of: Of) -> None:
        """This replica now owns the objects for whose keys `of` is true."""
        self._inbox.trigger_those(of)

    def lost(self, of: Of) -> None:
        """This replica no longer owns the objects for whose keys `of` is true. Their runs may still continue."""
        self._runner.forget(of)
        self._on_lost(of)

    def left(self, of: Of) -> None:
        """No run of these objects can write any more. Stores that contain all objects stay as they are."""

    def expected(self, of: Of) -> None:
        """This replica will probably gain these objects soon. Objects that an earlier call named, but not this call,
        are no longer expected. Stores that contain all objects ignore this call."""


class PartitionListener(Protocol):
    """Is notified of the objects that a replica gains and loses: see `Listener`."""

    def gained(self, of: Any) -> None:
        """Like `Listener.gained`."""

    def lost(self, of: Any) -> None:
        """Like `Listener.lost`."""

    def left(self, of: Any) -> None:
        """Like `Listener.left`."""

    def expected(self, of: Any) -> None:
        """Like `Listener.expected`."""


class Partition(Protocol):
    """Which objects this replica owns. Safe to use from any thread."""

    @property
    def by(self) -> DividedBy:
        """The property of an object that determines its shard: "name"; or, if hash ranges divide the objects,
        "namespace" or "uid"."""

    @property
    def parts(self) -> int:
        """The number of shards."""

    @property
    def shards(self) -> frozenset[int]:
        """The shards whose objects may run here."""

    def begin_in(self, shard: int) -> StopToken | None:
        """Like `begin`, for an object in this shard."""

    def end_in(self, shard: int) -> None:
        """A run of an object in this shard has ended."""

    def owned(self, requests: list[ReconcileRequest]) -> list[ReconcileRequest]:
        """The `requests` for objects of this replica."""

    def begin(self, key: Key) -> StopToken | None:
        """A run of `key` begins. Returns a token that is set when the object moves to another replica; that replica
        waits until the run has ended. If this replica does not own the object, returns None, and `end` is not
        called."""

    def end(self, key: Key) -> None:
        """The run of `key` has ended."""

    def listen(self, listener: PartitionListener) -> Callable[[], None]:
        """Notify `listener` of changes. Returns a function that ends the notifications."""


def only_owned(partition: Partition | None, schedule: Sink) -> Sink:
    """`schedule`, restricted to the objects that this replica owns; without a partition, `schedule` itself."""
    if partition is None:
        return schedule

    def schedule_own(requests: list[ReconcileRequest]) -> None:
        if own := partition.owned(requests):
            schedule(own)

    return schedule_own


class Owned:
    """The run part for partitioned objects. When the object moves to another replica, `ctx.stop` is set, and the
    library's calls in the run end."""

    def __init__(self, partition: Partition, clock: Clock) -> None:
        self._partition = partition
        self._clock = clock

    def begin(self, run: Run, scope: RunScope) -> bool:
        """Like `RunPart.begin`."""
        lost = self._partition.begin(run.key)
        if lost is None:
            return False
        run.stop = scope.stop = lost if scope.stop is None else FirstOf(scope.stop, lost, clock=self._clock)
        return True

    def end(self, run: Run, outcome: Outcome) -> None:  # noqa: ARG002
        """Like `RunPart.end`."""
        self._partition.end(run.key)
