"""Controllers over real sockets, with real threads, to whose server everything that can go wrong happens.

    python -m tests.soak.socket_soak [SECONDS] [SEED] [OBJECTS]       default 1200, drawn, 100

The server is a process of its own, so that all threads, descriptors and memory here are the library's. A round breaks
something, meanwhile changes objects, and starts and stops a controller and a store with a client of their own. Then the
faults end, and within `CONVERGED` seconds each parent has its child and each store is what the server has. That is the
moment at which is counted what the process holds: the objects are as many as ever, and so must be all else.

Prints one line of JSON: the seed, what happened, what was wrong, and what was held at the first and the last rounds.
"""
from __future__ import annotations

import gc
import json
import logging
import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any

from kubectl_runtime import Action, Api, Client, Config, Context, Controller, KubeError, WatcherConfig, watch_store
from kubectl_runtime.resources import ConfigMap
from kubectl_runtime.runtime.controller.running import Running
from kubectl_runtime.runtime.queue import own_writes
from kubectl_runtime.runtime.store import overlay
from kubectl_runtime.watch import WatchBackoff

CONTROLLERS = 3
CONVERGED = 60.0
ROOT = Path(__file__).parents[2]
CALMED = WatchBackoff(initial=0.1, maximum=1.0)
"""A round is short, so that many are made; waits of a minute would make it long."""


def watched(role: str) -> WatcherConfig:
    """A stalled watch is given up after 7 s at the most, and a server that went back is noticed after some seconds."""
    return WatcherConfig(label_selector=f"role={role}", timeout=2, verify=3, backoff=CALMED)


def copied(obj: ConfigMap, ctx: Context[None]) -> Action:
    """Each parent has a child with its data."""
    child = ConfigMap(name=f"child-{obj.name}", labels={"role": "child"}, owner_references=[obj.owner_ref()],
                      data=dict(obj.data or {}))
    Api.namespaced(ctx.client, ConfigMap, obj.namespace).apply(child, field_manager="soak", force=True)
    return Action.await_change()


def _shown(obj: ConfigMap | None) -> str:
    if obj is None:
        return "nothing"
    return f"{obj.uid} at {obj.resource_version} of {[owner.uid for owner in obj.owner_references]}"


class LastLines(logging.Handler):
    """What was logged last."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: deque[str] = deque(maxlen=200)

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(f"{record.relativeCreated / 1000:.2f} {record.threadName}: {record.getMessage()}")


class Server:
    """The other process."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.url = self._read()

    def tell(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()
        if problem := self._read():
            raise RuntimeError(f"{line}: {problem}")

    def _read(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()


@contextmanager
def server_process() -> Iterator[Server]:
    with subprocess.Popen([sys.executable, "-m", "tests.soak.server_process"], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        try:
            yield Server(process)
        finally:
            process.communicate()


def controller_of(client: Client, namespace: str, name: str) -> Running[ConfigMap]:
    api = Api.namespaced(client, ConfigMap, namespace)
    controller = Controller(api, name=name, watch=watched("parent"), concurrency=4)
    return controller.owns(api, watch=watched("child")).start(copied)


class Soak:
    """The world of one run."""

    def __init__(self, server: Server, seed: int, objects: int) -> None:
        self.server, self.random = server, random.Random(seed)
        self.names = [f"p{number}" for number in range(objects // CONTROLLERS)]
        self.done: Counter[str] = Counter()
        self.happenings: list[Callable[[], None]] = [
            self.resets, self.stall, self.expire, self.throttle, self.lose_answers, self.fail, self.away, self.restart,
            self.cut, self.rewind]
        self._deck: list[Callable[[], None]] = []
        self.last = ""
        for number in range(CONTROLLERS):
            self.complete(f"c{number}")
        self.back_up()

    # What happens

    def put(self, namespace: str, name: str) -> None:
        content = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"value": str(self.random.random())},
                   "metadata": {"name": name, "namespace": namespace, "labels": {"role": "parent"}}}
        self.server.tell(f"server.load([{content!r}])")

    def complete(self, namespace: str, there: frozenset[str] = frozenset()) -> None:
        for name in self.names:
            if name not in there:
                self.put(namespace, name)

    def change(self, client: Client) -> None:
        namespace, name = f"c{self.random.randrange(CONTROLLERS)}", self.random.choice(self.names)
        if self.random.random() < 0.7:
            self.put(namespace, name)
            return
        try:  # the faults are for this client as well
            Api.namespaced(client, ConfigMap, namespace).delete(self.random.choice((name, f"child-{name}")), timeout=2)
        except KubeError:
            self.done["a deletion failed"] += 1

    def resets(self) -> None:
        self.server.tell("server.drop_connections()")

    def stall(self) -> None:
        self.server.tell("server.faults.on('watch').first(3).stall_after_headers()")

    def expire(self) -> None:
        self.server.tell("server.expire_history()")

    def throttle(self) -> None:
        self.server.tell("server.faults.on('list watch patch').first(5).throttle(1)")

    def lose_answers(self) -> None:
        self.server.tell("server.faults.on('patch').first(5).lose_answer()")

    def fail(self) -> None:
        self.server.tell(f"server.faults.on().first(5).status({self.random.choice((500, 503, 504))})")

    def cut(self) -> None:
        self.server.tell("server.faults.on('watch').first(4).cut_event(1, at=10)")
        self.server.tell("server.drop_connections()")

    def away(self) -> None:
        self.server.tell("rule = server.faults.connections().drop(); server.drop_connections()")
        time.sleep(1)
        self.server.tell("rule.remove()")

    def restart(self) -> None:
        self.server.tell(f"server.restart(lose_history={self.random.random() < 0.7})")

    def back_up(self) -> None:
        self.server.tell("backup = server.snapshot()")

    def rewind(self) -> None:
        self.server.tell("server.drop_connections(); server.restore(backup, rewind=True)")

    def round(self, client: Client) -> None:
        """One of those, changes, a client that comes and goes, and the end of the faults."""
        self._deck = self._deck or self.random.sample(self.happenings, len(self.happenings))
        what = self._deck.pop()
        what()
        self.done[what.__name__] += 1
        self.last = what.__name__
        with Client(Config(cluster_url=self.server.url, timeout=10)) as passing:
            api = Api.namespaced(passing, ConfigMap, "c0")
            with watch_store(api, watched("parent")), controller_of(passing, "c0", "passing"):
                for _ in range(5):
                    self.change(client)
        self.server.tell("server.faults.clear()")
        self.back_up()

    # What has to be

    def around(self, wrong: list[str], client: Client, controllers: list[Running[ConfigMap]]) -> list[str]:
        """For who looks for the reason: of each object that is wrong what the server has, and what readers see."""
        found = []
        for text in wrong[:5]:
            place, _, name = text.partition(" ")[0].partition("/")
            for one in (name, f"child-{name}") if name else ():
                there = Api.namespaced(client, ConfigMap, place).get_opt(one)
                [controller] = [controller for controller in controllers if controller.name == place]
                found += [f"{place}/{one}: server {_shown(there)}, {what} {_shown(watch.store.get(one, place))}"
                          for what, watch in controller._assembly.watches.items()]
        return found

    def wrong(self, client: Client, controllers: list[Running[ConfigMap]]) -> list[str]:
        """What is not as it has to be; parents that were deleted are made again."""
        found: list[str] = []
        for number, controller in enumerate(controllers):
            objects = list(Api.namespaced(client, ConfigMap, f"c{number}").list())
            parents = {obj.name: obj for obj in objects if obj.labels.get("role") == "parent"}
            children = {obj.name: obj for obj in objects if obj.labels.get("role") == "child"}
            if len(parents) < len(self.names):
                self.complete(f"c{number}", frozenset(parents))
                found.append(f"c{number}: parents had to be made again")
            found += [f"c{number}/{name} has no right child" for name, obj in parents.items()
                      if (child := children.get(f"child-{name}")) is None or child.data != obj.data]
            found += [f"c{number}/{name} is nobody's" for name in children if name[len("child-"):] not in parents]
            if {obj.name: obj.resource_version for obj in controller.store} != {
                    name: obj.resource_version for name, obj in parents.items()}:
                found.append(f"the store of c{number} is not what the server has: {controller.watch_states}")
            if controller.error is not None:
                found.append(f"c{number} ended: {controller.error}")
        return found

    def converge(self, client: Client, controllers: list[Running[ConfigMap]]) -> list[str]:
        """What is still wrong after a time that is long enough."""
        end = time.monotonic() + CONVERGED
        while True:
            try:
                found = self.wrong(client, controllers)
            except KubeError as error:  # the connections of the pool that the last fault broke
                found = [repr(error)]
            if not found or time.monotonic() > end:
                return found
            time.sleep(0.1)


def held() -> dict[str, int]:
    """What the process holds at this moment."""
    gc.collect()
    with open("/proc/self/statm", encoding="ascii") as statm:
        resident = int(statm.read().split()[1]) * os.sysconf("SC_PAGESIZE")
    return {"threads": threading.active_count(), "descriptors": len(os.listdir("/proc/self/fd")),
            "blocks": sys.getallocatedblocks(), "resident_kib": resident // 1024}


def middle(samples: list[dict[str, int]]) -> dict[str, int]:
    return {name: round(median(sample[name] for sample in samples)) for name in samples[0]}


def run(seconds: float, seed: int, objects: int) -> dict[str, Any]:
    # What a store remembers of deletions, and a queue of its own writes, is bounded; with these it is full after a few
    # rounds, and grows no more.
    overlay.REMEMBERED_DELETIONS = 32
    own_writes.MAX_EXPECTED = 64
    end, rounds, wrong = time.monotonic() + seconds, list[dict[str, int]](), list[str]()
    with server_process() as server:
        before = held()
        soak = Soak(server, seed, objects)
        with Client(Config(cluster_url=server.url, timeout=10)) as client, ExitStack() as stack:
            controllers = [stack.enter_context(controller_of(client, f"c{number}", f"c{number}"))
                           for number in range(CONTROLLERS)]
            while not wrong and (time.monotonic() < end or len(rounds) < len(soak.happenings)):
                soak.round(client)
                wrong = soak.converge(client, controllers)
                rounds.append(held())
                LINES.emit(logging.makeLogRecord({"msg": f"round {len(rounds)}: {soak.last}, {len(wrong)} wrong"}))
            reasons = soak.around(wrong, client, controllers)
        del controllers, client
        time.sleep(0.2)  # threads that have said their last words need a moment to be gone
        after = held()
    few = max(1, len(rounds) // 4)
    return {"soak": "sockets", "seed": seed, "objects": objects, "rounds": len(rounds), "happened": dict(soak.done),
            "wrong": wrong, "around": reasons, "log": list(LINES.lines) if wrong else [], "before": before,
            "early": middle(rounds[few:2 * few] or rounds), "late": middle(rounds[-few:]), "after": after,
            "threads_left": sorted(thread.name for thread in threading.enumerate())}


LINES = LastLines()


def main(seconds: float = 1200, seed: int | None = None, objects: int = 100) -> None:
    library = logging.getLogger("kubectl_runtime")
    library.setLevel(logging.INFO)
    library.addHandler(LINES)
    library.propagate = False
    print(json.dumps(run(seconds, random.randrange(1 << 32) if seed is None else seed, objects)), flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
