"""Many threads at queue, store, shared watches, own writes and Recorder at once, for as long as is wanted.

    python -m tests.soak.thread_stress [SECONDS] [SEED]       default 1200, drawn

part              what its threads do                                    what is checked
a work queue      trigger eight keys; four workers run them              no key runs twice at once; each trigger is
                                                                         followed by a run that begins after it
a store           one feeds changes and lists; two read                  whole lists, indexes that agree, no way back
shared watches    two controllers and stores that come and go            each sees every object; all end as the server
own writes        eight workers and two writers over real sockets        a read after an answer is as new as the answer
a recorder        each run publishes, and two threads repeat events      what the server counts and what was lost is
                                                                         what was published

The server runs in the same process, so its threads are under stress as well. It prints one line of JSON. With the GIL
threads change places rarely; for what only happens without it, run this on a free-threaded build.
"""
from __future__ import annotations

import json
import logging
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from kubectl_runtime import Action, Api, Client, Context, Controller, ObjectRef, Recorder, WatcherConfig, watch_store
from kubectl_runtime.core.base.threads import SYSTEM_CLOCK
from kubectl_runtime.core.codec.jsonbytes import decode_object
from kubectl_runtime.core.codec.views import Record
from kubectl_runtime.core.meta.gvk import ApiResource
from kubectl_runtime.resources import ConfigMap
from kubectl_runtime.runtime.queue.runs import SUCCEEDED, Outcome, RetryRateLimit, Run
from kubectl_runtime.runtime.queue.scheduler import Scheduler
from kubectl_runtime.runtime.queue.work_queue import WorkQueue
from kubectl_runtime.runtime.reconcile.runner import Runner, ThreadExecutor
from kubectl_runtime.runtime.store.reflector import Reflector, StoreWriter
from kubectl_runtime.runtime.triggers.triggers import ReconcileRequest
from kubectl_runtime.runtime.watch.event import INIT, INIT_DONE, Apply, Delete, InitApply
from kubectl_runtime.testing import ApiServer

SETTLED = 60.0
"""Seconds that a part has to become quiet."""

EVENT = ApiResource("events.k8s.io", "v1", "Event", "events")


class Stress:
    """Threads that repeat their steps until the time is up, and what they found wrong."""

    def __init__(self, seconds: float, seed: int) -> None:
        self.end, self.seed = time.monotonic() + seconds, seed
        self.wrong: list[str] = []
        self.steps: Counter[str] = Counter()
        self.threads: list[threading.Thread] = []
        self._lock = threading.Lock()

    def found(self, problem: str) -> None:
        with self._lock:
            if len(self.wrong) < 50:
                self.wrong.append(problem)

    def count(self, what: str, number: int) -> None:
        with self._lock:
            self.steps[what] += number

    def repeat(self, name: str, step: Callable[[random.Random], object], threads: int = 1) -> None:
        """Let this many threads repeat `step`."""
        for number in range(threads):
            self.threads.append(threading.Thread(target=self._loop, args=(name, number, step), name=f"{name} {number}"))

    def _loop(self, name: str, number: int, step: Callable[[random.Random], object]) -> None:
        drawn, done = random.Random(f"{self.seed} {name} {number}"), 0
        try:
            while not done or time.monotonic() < self.end:
                step(drawn)
                done += 1
        except BaseException as error:
            self.found(f"{name} {number}: {type(error).__name__}: {error}")
        self.count(name, done)

    def run(self) -> None:
        for thread in self.threads:
            thread.start()
        for thread in self.threads:
            thread.join()

    def settles(self, what: str, wrong: Callable[[], list[str]]) -> None:
        """Note what is still `wrong` after a time that is long enough."""
        end = time.monotonic() + SETTLED
        while (found := wrong()) and time.monotonic() < end:
            time.sleep(0.05)
        for problem in found[:5]:
            self.found(f"{what}: {problem}")


class QueueStress:
    """Each key has a number that grows before each trigger; a run notes the number that it finds."""

    KEYS = 8
    """Few, so that threads meet at the same key."""

    def __init__(self, stress: Stress) -> None:
        self.stress = stress
        self.locks = [threading.Lock() for _ in range(self.KEYS)]
        self.busy = [threading.Lock() for _ in range(self.KEYS)]
        self.wanted, self.seen = [0] * self.KEYS, [0] * self.KEYS
        limit = RetryRateLimit()
        self.executor = ThreadExecutor(4, "stress worker", lambda error: stress.found(f"an executor: {error!r}"))
        self.runner = Runner(WorkQueue(Scheduler(rate_limit=limit), limit), self.execute, self.executor, concurrency=4,
                             clock=SYSTEM_CLOCK)
        self.refs = [ObjectRef.of(ConfigMap, f"k{number}", "default") for number in range(self.KEYS)]
        stress.repeat("queue", self.trigger, 2)

    def start(self) -> None:
        for thread in self.executor.threads:
            thread.start()
        self.runner.open()
        threading.Thread(target=self.runner.dispatch, args=(lambda: None,), name="dispatcher", daemon=True).start()

    def trigger(self, drawn: random.Random) -> None:
        numbers = [drawn.randrange(self.KEYS) for _ in range(drawn.choice((1, 1, 4)))]
        for number in numbers:
            with self.locks[number]:
                self.wanted[number] += 1
        self.runner.trigger_all([ReconcileRequest(self.refs[number], "object updated", (f"u{number}", "1"))
                                 for number in numbers])
        if drawn.random() < 0.2:
            time.sleep(0.001)

    def execute(self, run: Run) -> Outcome:
        number = int(run.request.ref.name[1:])
        if not self.busy[number].acquire(blocking=False):
            self.stress.found(f"a work queue: two runs of k{number} at once")
            return SUCCEEDED
        try:
            self.seen[number] = self.wanted[number]
            outcome = number % 5
            return SUCCEEDED if outcome else Outcome(0.001)
        finally:
            self.busy[number].release()

    def finish(self) -> None:
        self.stress.settles("a work queue", lambda: [
            f"k{number} was triggered {wanted} times, and its last run saw {seen}"
            for number, (wanted, seen) in enumerate(zip(self.wanted, self.seen, strict=True)) if wanted != seen])
        self.runner.drain()
        self.executor.close()


class StoreStress:
    """One thread writes pairs that belong together, and objects that come and go; readers look whether they do."""

    PAIRS = 20

    def __init__(self, stress: Stress) -> None:
        self.writer: StoreWriter[ConfigMap] = StoreWriter(ConfigMap.api_resource, ConfigMap.from_record)
        self.reflector, self.store, self.version = Reflector(self.writer), self.writer.store, 0
        self.store.add_index("pair", lambda obj: obj.labels["pair"])
        self.relist()
        stress.repeat("store feeder", self.feed)
        for _ in range(2):
            stress.repeat("store reader", Reader(self.store).look)

    def record(self, pair: int, half: str) -> Record:
        metadata = {"name": f"{half}{pair}", "namespace": "default", "uid": f"u-{half}{pair}", "labels": {
            "pair": f"p{pair}"}, "resourceVersion": str(self.version)}
        return decode_object(json.dumps({"metadata": metadata, "data": {"value": str(self.version)}}).encode(),
                             ConfigMap.api_resource)

    def feed(self, drawn: random.Random) -> None:
        if drawn.random() < 0.02:
            self.relist()
            return
        pair = drawn.randrange(self.PAIRS)
        self.version += 1
        self.reflector.feed(Apply(self.record(pair, "a")), Apply(self.record(pair, "b")))
        passing = self.record(pair, "c")
        self.reflector.feed(Apply(passing))
        self.reflector.feed(Delete(passing))

    def relist(self) -> None:
        self.version += 1
        self.reflector.feed(INIT)
        for pair in range(self.PAIRS):
            self.reflector.feed(InitApply(self.record(pair, "a")), InitApply(self.record(pair, "b")))
        self.reflector.feed(INIT_DONE)


class Reader:
    """A thread that reads a `StoreStress`."""

    def __init__(self, store: Any) -> None:
        self.store, self.last = store, Counter[str]()

    def look(self, drawn: random.Random) -> None:
        pair = f"{drawn.randrange(StoreStress.PAIRS)}"
        halves = [obj for obj in self.store.by_index("pair", f"p{pair}") if obj.name[0] in "ab"]
        assert sorted(obj.name for obj in halves) == [f"a{pair}", f"b{pair}"], [obj.name for obj in halves]
        assert len({obj.resource_version for obj in halves}) == 1, [obj.resource_version for obj in halves]
        listed = {obj.name: int(obj.resource_version) for obj in self.store}
        assert sum(name[0] in "ab" for name in listed) == 2 * StoreStress.PAIRS, sorted(listed)
        one = self.store.get(f"a{pair}", "default")
        assert one is not None
        assert one.data == {"value": one.resource_version}
        listed[one.name] = int(one.resource_version)
        for name, version in listed.items():
            if name[0] in "ab":
                assert version >= self.last[name], f"{name} went from {self.last[name]} back to {version}"
                self.last[name] = version


class ClusterStress:
    """Controllers, stores and a recorder of one client, over real sockets."""

    PARENTS = 20

    def __init__(self, stress: Stress, server: ApiServer, client: Client, stack: ExitStack) -> None:
        self.stress, self.client = stress, client
        self.api = Api.namespaced(client, ConfigMap, "default")
        self.published, self._lock = 0, threading.Lock()
        self.recorder = stack.enter_context(Recorder(client, "stress", queue=100, burst=25, refill=0.2))
        for number in range(self.PARENTS):
            self.put(f"p{number}", "first")
        self.children = stack.enter_context(watch_store(self.api, WatcherConfig(label_selector="role=child")))
        self.parents = stack.enter_context(watch_store(self.api, self.PARENT))
        self.children.wait_until_ready(30)
        self.parents.wait_until_ready(30)
        self.running = [
            stack.enter_context(Controller(self.api, name=name, watch=self.PARENT, concurrency=4).start(self.copy_as(
                name))) for name in ("left", "right")]
        stress.repeat("writer", self.write, 2)
        stress.repeat("publisher", self.publish, 2)
        stress.repeat("store that comes and goes", self.come_and_go)

    PARENT = WatcherConfig(label_selector="role=parent")

    def put(self, name: str, value: str) -> ConfigMap:
        return self.api.apply(ConfigMap(name=name, labels={"role": "parent"}, data={"value": value}),
                              field_manager="stress", force=True)

    def as_new(self, store: Any, answer: ConfigMap) -> None:
        """A store of this client has what the client was answered, or something newer."""
        found = store.get(answer.name, "default")
        if found is None or int(found.resource_version) < int(answer.resource_version):
            self.stress.found(f"own writes: {answer.name} was answered in version {answer.resource_version}, and is "
                              f"read in {found and found.resource_version}")

    def write(self, drawn: random.Random) -> None:
        self.as_new(self.parents, self.put(f"p{drawn.randrange(self.PARENTS)}", str(drawn.random())))

    def copy_as(self, name: str) -> Callable[[ConfigMap, Context[None]], Action]:
        def copied(obj: ConfigMap, ctx: Context[None]) -> Action:
            child = ConfigMap(name=f"{name}-{obj.name}", labels={"role": "child"}, data=dict(obj.data or {}))
            api = Api.namespaced(ctx.client, ConfigMap, "default")
            self.as_new(self.children, api.apply(child, field_manager=name, force=True))
            self.record(obj, "Copied", name)
            self.stress.count(f"runs of {name}", 1)
            return Action.await_change()

        return copied

    def record(self, regarding: Any, reason: str, action: str) -> None:
        with self._lock:
            self.published += 1
        self.recorder.publish(regarding, reason, f"by {action}", action=action)

    def publish(self, drawn: random.Random) -> None:
        for _ in range(200):
            self.record(ObjectRef.of(ConfigMap, f"p{drawn.randrange(2)}", "default"), "Repeated", "again")
        time.sleep(0.001)

    def come_and_go(self, drawn: random.Random) -> None:
        """A user more of the shared watch, and sometimes the only one of another."""
        config = self.PARENT if drawn.random() < 0.7 else WatcherConfig(label_selector="role in (parent)")
        with watch_store(self.api, config) as store:
            store.wait_until_ready(30)
            names = {obj.name for obj in store}
            if names != {f"p{number}" for number in range(self.PARENTS)}:
                self.stress.found(f"shared watches: a store has {sorted(names)}")

    def finish(self) -> None:
        self.stress.settles("shared watches", self.differences)
        if not self.recorder.flush(SETTLED):
            self.stress.found(f"a recorder: {self.recorder.waiting} events are left")
        counted = sum(_count_of(event.to_dict()) for event in Api.all(self.client, EVENT).list())
        lost = dict(self.recorder.lost)
        if counted + sum(lost.values()) != self.published:
            self.stress.found(f"a recorder: {self.published} were published, {counted} counted, {lost} lost")

    def differences(self) -> list[str]:
        there = {obj.name: obj for obj in self.api.list()}
        found = [f"{store} is not what the server has" for store, role in (
            (self.parents, "parent"), (self.children, "child"), *((one.store, "parent") for one in self.running))
            if {obj.name: obj.resource_version for obj in store} != {
                name: obj.resource_version for name, obj in there.items() if obj.labels.get("role") == role}]
        return found + [f"{name}-p{number} is not as its parent" for name in ("left", "right")
                        for number in range(self.PARENTS)
                        if (child := there.get(f"{name}-p{number}")) is None or child.data != there[f"p{number}"].data]


def _count_of(event: dict[str, Any]) -> int:
    series: dict[str, int] = event.get("series") or {"count": 1}
    return series["count"]


class Errors(logging.Handler):
    """What the library logged as an error."""

    def __init__(self, stress: Stress) -> None:
        super().__init__(logging.ERROR)
        self.stress = stress

    def emit(self, record: logging.LogRecord) -> None:
        self.stress.found(f"logged by {record.threadName}: {self.format(record)}")


def run(seconds: float, seed: int) -> dict[str, Any]:
    """The result as the script prints it; blocks for `seconds`, and until all is quiet."""
    stress = Stress(seconds, seed)
    handler, library = Errors(stress), logging.getLogger("kubectl_runtime")
    before = threading.excepthook
    threading.excepthook = lambda hook: stress.found(f"{hook.thread}: {hook.exc_value!r}")
    library.addHandler(handler)
    try:
        with ApiServer(record=False) as server, server.client() as client, ExitStack() as stack:
            queue, _, cluster = QueueStress(stress), StoreStress(stress), ClusterStress(stress, server, client, stack)
            queue.start()
            stress.run()
            queue.finish()
            cluster.finish()
    finally:
        library.removeHandler(handler)
        threading.excepthook = before
    gil = getattr(sys, "_is_gil_enabled", lambda: True)()
    return {"stress": "threads", "gil": gil, "seconds": seconds, "seed": seed, "wrong": stress.wrong,
            "published": cluster.published, "steps": dict(sorted(stress.steps.items()))}


def main(seconds: float = 1200, seed: int | None = None) -> None:
    print(json.dumps(run(seconds, random.randrange(1 << 32) if seed is None else seed)), flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
