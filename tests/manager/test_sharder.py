"""Replicas that share work, with threads, against the embedded server: who runs what, what is refused, how it ends."""
from __future__ import annotations

import contextlib
import contextvars
import json
import re
import socket
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any
from urllib.request import urlopen

import pytest

from kubectl_runtime import Action, Api, Client, Context, Controller, LeaderElection, Manager, Patch, RequestError
from kubectl_runtime.apiserver.server import ApiServer
from kubectl_runtime.cli.main import main as run_command
from kubectl_runtime.cli.top_screen import numbers
from kubectl_runtime.core.base.threads import Thread
from kubectl_runtime.errors import NotLeaderError
from kubectl_runtime.manager.leases import Failed
from kubectl_runtime.manager.running import RunningManager
from kubectl_runtime.manager.sharder import NAME, Sharder, ShardLeases
from kubectl_runtime.manager.sharder import SHARDS as NUMBER
from kubectl_runtime.manager.sharding import Answered, NotListed, Sharding, shard_of
from kubectl_runtime.resources import ConfigMap, Secret
from kubectl_runtime.resources.coordination_v1 import Lease
from kubectl_runtime.runtime.children.applied import memory_of
from tests.inherited_contexts import inherit

LIMIT = 40
STEADY: dict[str, Any] = {"lease": 60, "renew_deadline": 40, "retry": 0.3}
"""Of who is to keep his shards, however long a busy machine lets his threads wait."""
QUICK: dict[str, Any] = {"lease": 2, "renew_deadline": 1.5, "retry": 0.3}
"""Where a lease is to run out."""
SHARDS = 8
OBJECTS = 40


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer() as running, running.client() as client:
        maps = Api.namespaced(client, ConfigMap, "default")
        for number in range(OBJECTS):
            maps.create({"metadata": {"name": f"m{number}"}})
        yield running


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    before = set(threading.enumerate())
    yield
    left = [thread for thread in threading.enumerate() if thread not in before and thread.name.startswith("sharding")]
    for thread in left:
        thread.join(LIMIT)
    assert [thread.name for thread in left if thread.is_alive()] == []


def until(done: Callable[[], Any], what: str = "") -> None:
    give_up = time.monotonic() + LIMIT
    while not done():
        assert time.monotonic() < give_up, what or "not in time"
        threading.Event().wait(0.01)


class Group:
    """Replicas of one program, as managers with clients of their own; and what runs where."""

    def __init__(self, server: ApiServer, reconcile: Callable[[Any, Context[Any]], None] | None = None) -> None:
        self.server = server
        self.reconcile = reconcile or (lambda obj, ctx: None)
        self.clients: dict[str, Client] = {}
        self.managers: dict[str, RunningManager] = {}
        self.controllers: dict[str, Controller[ConfigMap]] = {}
        self.lock = threading.Lock()
        self.inside: dict[str, list[str]] = defaultdict(list)
        self.overlaps: list[tuple[str, list[str]]] = []
        self.ran: list[tuple[str, str]] = []

    def join(self, name: str, *, shards: int = SHARDS, concurrency: int = 10, serve: str | None = None,
             **options: Any) -> RunningManager:
        client = self.clients[name] = self.server.client()
        sharding = Sharding("shop", "default", shards=shards, identity=name, **{**STEADY, **options})
        manager = Manager(client, sharding=sharding, serve=serve, grace=5)
        controller = self.controllers[name] = Controller(Api.namespaced(client, ConfigMap, "default"),
                                                         concurrency=concurrency)
        manager.add(controller, self.run, context=name)
        running = self.managers[name] = manager.start()
        return running

    def run(self, obj: ConfigMap, ctx: Context[str]) -> Action:
        assert obj.name is not None
        with self.lock:
            self.ran.append((ctx.data, obj.name))
            self.inside[obj.name].append(ctx.data)
            if len(self.inside[obj.name]) > 1:
                self.overlaps.append((obj.name, list(self.inside[obj.name])))
        try:
            self.reconcile(obj, ctx)
        finally:
            with self.lock:
                self.inside[obj.name].remove(ctx.data)
        return Action.await_change()

    def shards(self) -> list[frozenset[int]]:
        return [running.shards for running in self.managers.values()]

    def is_shared(self) -> bool:
        """Each shard has exactly one owner, and nobody has two more than another."""
        shares = [running.shards for running in self.managers.values() if running.phase == "leading"]
        sizes = [len(share) for share in shares]
        return sum(sizes) == SHARDS == len(frozenset().union(*shares)) and max(sizes) - min(sizes) <= 1

    def leave(self, name: str) -> None:
        assert self.managers.pop(name).stop() == []
        self.clients.pop(name).close()

    def close(self) -> None:
        for name in list(self.managers):
            self.leave(name)


@pytest.fixture
def group(server: ApiServer) -> Iterator[Callable[..., Group]]:
    made: list[Group] = []

    def make(reconcile: Callable[[Any, Context[Any]], None] | None = None) -> Group:
        made.append(Group(server, reconcile))
        return made[-1]

    yield make
    for one in made:
        one.close()


def owner(group: Group, name: str) -> str | None:
    shard = shard_of(("default", name), SHARDS)
    return next((who for who, running in group.managers.items() if shard in running.shards), None)


def test_four_replicas_come_and_go_and_each_object_has_one_owner_after_each(group: Callable[..., Group]) -> None:
    four = group(lambda obj, ctx: ctx.stop.wait(0.01) and None)
    maps = Api.namespaced(four.server.client(), ConfigMap, "default")
    for name in "abcd":
        four.join(name)
        until(four.is_shared, f"{name} has joined: {four.shards()}")
    for name in ("b", "a"):
        four.leave(name)
        until(four.is_shared, f"{name} has left: {four.shards()}")
    four.join("e")
    until(four.is_shared, f"e has joined: {four.shards()}")
    with four.lock:
        four.ran.clear()
    for number in range(OBJECTS):
        maps.patch(f"m{number}", Patch.merge({"data": {"changed": "yes"}}))
    until(lambda: len({name for _, name in four.ran}) == OBJECTS)
    assert {(owner(four, name), name) for _, name in four.ran} == set(four.ran)  # each ran at its owner
    assert four.overlaps == []
    maps.client.close()


def test_when_a_replica_dies_its_objects_run_at_the_others(group: Callable[..., Group]) -> None:
    two = group()
    two.join("a", **QUICK)
    two.join("b", **QUICK)
    until(two.is_shared)
    lost = two.managers["b"].shards
    with two.lock:
        two.ran.clear()
    sharder = two.managers["b"].part.sharder
    assert sharder is not None
    hang = threading.Event()

    def ask(which: int, *_: Any) -> Answered:
        hang.wait(LIMIT)
        return Answered(which, Failed())

    def list_(_timeout: float) -> NotListed:
        hang.wait(LIMIT)
        return NotListed()

    sharder._leases.ask, sharder._leases.list = ask, list_  # type: ignore[method-assign,assignment]
    until(lambda: len(two.managers["a"].shards) == SHARDS)
    assert two.managers["b"].shards == frozenset()
    expected = {f"m{n}" for n in range(OBJECTS) if shard_of(("default", f"m{n}"), SHARDS) in lost}
    until(lambda: {name for who, name in two.ran if who == "a"} >= expected)
    hang.set()


def test_a_replica_forgets_the_children_of_objects_that_have_gone_to_another(group: Callable[..., Group]) -> None:
    """Another process writes them from then on, under the same manager; what it applied is not known here."""
    two = group(lambda obj, ctx: ctx.ensure(obj, Secret(name=obj.name, data={"a": b"1"})) and None)
    two.join("a")
    first = memory_of(two.clients["a"])
    until(lambda: len(first) == OBJECTS)
    with two.server.client() as client:
        secrets = Api.namespaced(client, Secret, "default")
        versions = {one.name: one.resource_version for one in secrets.list()}
        two.join("b")
        until(two.is_shared)
        kept = [number for number in range(OBJECTS) if owner(two, f"m{number}") == "a"]
        second = memory_of(two.clients["b"])
        until(lambda: (len(first), len(second)) == (len(kept), OBJECTS - len(kept)), "each knows its own")
        two.leave("b")
        until(lambda: len(first) == OBJECTS)
        assert versions == {one.name: one.resource_version for one in secrets.list()}


def test_the_end_of_the_last_run_gives_a_shard_up_without_a_wait_for_the_next_renewal(server: ApiServer) -> None:
    with server.client() as client:
        sharder = Sharder(client, Sharding("shop", "default", shards=2, identity="a", lease=1000, renew_deadline=900,
                                           retry=LIMIT * 5), grace=LIMIT * 5, failed=lambda _: None)
        sharder.join()
        until(lambda: sharder.shards == {0, 1})
        for _ in range(2):
            assert sharder.begin_in(0) is not None
        sharder.quit(LIMIT * 5)
        until(lambda: sharder._state.held == {0} and not sharder._state.delete and not sharder._state.deleting)
        sharder.end_in(0)
        assert not sharder.has_left
        sharder.end_in(0)
        until(lambda: sharder.has_left)
        sharder.close(1)


def test_a_shard_is_given_up_only_after_its_runs_have_ended(group: Callable[..., Group],
                                                               caplog: pytest.LogCaptureFixture) -> None:
    go_on = threading.Event()

    def slow(obj: ConfigMap, ctx: Context[str]) -> None:
        if ctx.data == "a" and not go_on.is_set():
            go_on.wait(LIMIT)
            try:
                assert not ctx.stop.is_set()
                maps = Api.namespaced(ctx.client, ConfigMap, "default")
                maps.patch(obj.name or "", Patch.merge({"data": {"a": "b"}}))
                wrote.append(obj.name)
            except Exception as error:
                wrote.append(error)

    wrote: list[Any] = []
    two = group(slow)
    first = two.join("a", concurrency=OBJECTS)
    until(lambda: sum(map(len, two.inside.values())) == OBJECTS)  # each shard has runs
    second = two.join("b")
    until(lambda: len(first.shards) == SHARDS // 2)
    threading.Event().wait(1)
    assert second.shards == frozenset()
    go_on.set()
    until(two.is_shared)
    assert sorted(wrote) == sorted(f"m{number}" for number in range(OBJECTS))
    assert two.overlaps == []
    assert {record.levelname for record in caplog.records if "; gave up " in record.getMessage()} <= {"INFO"}
    assert not [record for record in caplog.records if "; lost " in record.getMessage()]


@pytest.mark.parametrize("inherited", [False, True], ids=["threads begin empty", "threads have a copy of the context"])
def test_a_run_whose_shard_is_lost_is_told_and_its_writes_are_refused_and_only_its(
        group: Callable[..., Group], monkeypatch: pytest.MonkeyPatch, inherited: bool,
        caplog: pytest.LogCaptureFixture) -> None:
    if inherited:
        inherit(monkeypatch)
    began = threading.Event()
    told: dict[str, Any] = {}

    def writes(obj: ConfigMap, ctx: Context[str]) -> None:
        if obj.name != "m0" or began.is_set():
            return
        began.set()
        told["stopped"] = ctx.stop.wait(LIMIT)
        told["reason"] = ctx.stop.reason
        maps = Api.namespaced(ctx.client, ConfigMap, "default")
        try:
            maps.patch("m0", Patch.merge({"data": {"by": "late"}}))
        except NotLeaderError as error:
            told["error"] = str(error)
        copied = contextvars.copy_context()
        told["copied"] = refused(lambda: copied.run(maps.patch, "m0", Patch.merge({"data": {"by": "late"}})))
        told["outside"] = in_thread(lambda: refused(
            lambda: maps.patch("m1", Patch.merge({"data": {"by": "a thread"}}))))
        done.set()

    done = threading.Event()
    one = group(writes)
    one.join("a")
    assert began.wait(LIMIT)
    shard = shard_of(("default", "m0"), SHARDS)
    leases = Api.namespaced(one.clients["a"], Lease, "default")
    leases.patch(f"shop-{shard}-of-{SHARDS}", Patch.merge(
        {"spec": {"holderIdentity": "thief", "leaseDurationSeconds": 1}}))
    assert done.wait(LIMIT)
    assert told["stopped"]
    assert told["reason"] == f"shard {shard} of shop no longer belongs to this replica"
    assert f"not sent, because shard {shard} of default/shop does not (or no longer) belong to a" in told["error"]
    assert (told["copied"], told["outside"]) == (True, False)  # what a thread of its own writes is known to be nobody's
    until(lambda: len(one.managers["a"].shards) == SHARDS)  # the thief does not renew it
    (line,) = [record for record in caplog.records if "; lost " in record.getMessage()]
    assert line.levelname == "WARNING"
    assert f"; lost {shard}" in line.getMessage()
    assert "gave up" not in line.getMessage()


def refused(write: Callable[[], object]) -> bool:
    try:
        write()
    except NotLeaderError:
        return True
    return False


def in_thread(function: Callable[[], object]) -> object:
    found: list[object] = []
    thread = Thread(target=lambda: found.append(function()))
    thread.start()
    thread.join(LIMIT)
    return found[0]


def test_what_waits_for_an_object_that_has_gone_to_another_replica_is_dropped(server: ApiServer) -> None:
    """A requeue of an object that is another's by then does not run here."""
    ran: list[tuple[str, str]] = []
    clients = [server.client(), server.client()]

    def again(obj: ConfigMap, ctx: Context[str]) -> Action:
        ran.append((ctx.data, obj.name or ""))
        return Action.requeue(1)

    def start(client: Client, name: str) -> RunningManager:
        manager = Manager(client, sharding=Sharding("shop", "default", shards=SHARDS, identity=name, **STEADY),
                          serve=None)
        return manager.add(Controller(Api.namespaced(client, ConfigMap, "default")), again, context=name).start()

    with start(clients[0], "a") as first:
        until(lambda: len(first.shards) == SHARDS and len(ran) >= OBJECTS)
        with start(clients[1], "b") as second:
            until(lambda: len(second.shards) == SHARDS // 2 == len(first.shards))
            ran.clear()
            until(lambda: len({name for _, name in ran}) == OBJECTS)
            for who, running in (("a", first), ("b", second)):
                mine = {name for by, name in ran if by == who}
                assert {shard_of(("default", name), SHARDS) for name in mine} <= running.shards
    for client in clients:
        client.close()


def test_a_replica_takes_nothing_before_its_stores_are_complete(server: ApiServer) -> None:
    ready = threading.Event()

    def blocks(obj: Secret) -> None:
        ready.wait(LIMIT)

    with server.client() as client:
        Api.namespaced(client, Secret, "default").create({"metadata": {"name": "s"}})
        manager = Manager(client, sharding=Sharding("shop", "default", **STEADY), serve=None)
        controller = Controller(Api.namespaced(client, ConfigMap, "default")).watches(
            Api.namespaced(client, Secret, "default"), blocks)
        manager.add(controller, lambda obj, ctx: Action.await_change())
        with manager.start() as running:
            threading.Event().wait(0.5)
            assert running.shards == frozenset()
            assert Api.namespaced(client, Lease, "default").list().items == []
            ready.set()
            until(lambda: len(running.shards) == 16)
            assert running.is_ready


def test_a_controller_that_is_not_to_be_shared_is_as_without_a_sharding(server: ApiServer) -> None:
    ran: list[str] = []

    def note(obj: ConfigMap, ctx: Context[None]) -> Action:
        ran.append(ctx.controller)
        return Action.await_change()

    with server.client() as client:
        maps = Api.namespaced(client, ConfigMap, "default")
        leader = LeaderElection("leader", "default", identity="other", **STEADY)
        manager = Manager(client, sharding=Sharding("shop", "default", identity="me", **STEADY), leader=leader,
                          serve=None)
        manager.add(Controller(maps, name="shared"), note).add(Controller(maps, name="led"), note, sharded=False)
        manager.add(Controller(maps, name="everywhere"), note, sharded=False, needs_leader=False)
        Api.namespaced(client, Lease, "default").create({"metadata": {"name": "leader"}, "spec": {
            "holderIdentity": "somebody", "leaseDurationSeconds": 3600}})
        with manager.start() as running:
            until(lambda: len(running.shards) == 16 and ran.count("shared") >= OBJECTS
                  and ran.count("everywhere") >= OBJECTS)
            assert "led" not in ran


def test_a_controller_that_comes_later_runs_for_the_shards_that_are_held(group: Callable[..., Group]) -> None:
    one = group()
    running = one.join("a")
    until(lambda: len(running.shards) == SHARDS)
    ran: list[str] = []

    def note(obj: ConfigMap, ctx: Context[None]) -> Action:
        ran.append(obj.name or "")
        return Action.await_change()

    with one.server.client() as client:
        manager = Manager(client, sharding=Sharding("late", "default", **STEADY), serve=None)
        with manager.start() as later:
            until(lambda: len(later.shards) == 16)
            manager.add(Controller(Api.namespaced(client, ConfigMap, "default")), note)
            until(lambda: len(set(ran)) == OBJECTS)


@pytest.fixture(params=[True, False], ids=["divides", "does not divide"])
def ranged(request: pytest.FixtureRequest) -> Iterator[ApiServer]:
    with ApiServer(feature_gates={"ShardedListAndWatch": request.param}) as running, running.client() as client:
        for number in range(OBJECTS):
            Api.namespaced(client, ConfigMap, "default").create({"metadata": {"name": f"m{number}"}})
        yield running


def test_replicas_that_divide_by_uid_come_and_go_and_leave_no_thread(ranged: ApiServer) -> None:
    before = set(threading.enumerate())
    group = Group(ranged)
    try:
        for name in "abc":
            group.join(name, by="uid")
            until(group.is_shared, f"{name} has joined: {group.shards()}")
        group.leave("a")
        until(group.is_shared, f"a has left: {group.shards()}")
        with ranged.client() as client:
            maps = Api.namespaced(client, ConfigMap, "default")
            with group.lock:
                group.ran.clear()
            for number in range(OBJECTS):
                maps.patch(f"m{number}", Patch.merge({"data": {"changed": "yes"}}))
            until(lambda: len({name for _, name in group.ran}) == OBJECTS)
        stores = [group.controllers[name].store for name in group.managers]
        until(lambda: sorted(one.name or "" for store in stores for one in store) == sorted(
            f"m{n}" for n in range(OBJECTS)))
        assert group.overlaps == []
    finally:
        group.close()
    left = [thread for thread in threading.enumerate() if thread not in before and "apiserver" not in thread.name]
    for thread in left:
        thread.join(LIMIT)
    assert [thread.name for thread in left if thread.is_alive()] == []


def test_a_controller_that_comes_later_is_told_of_the_shards_that_are_there(ranged: ApiServer) -> None:
    ran: list[str] = []

    def note(obj: ConfigMap, ctx: Context[None]) -> Action:
        ran.append(obj.name or "")
        return Action.await_change()

    with ranged.client() as client:
        manager = Manager(client, sharding=Sharding("late", "default", by="uid", **STEADY), serve=None)
        with manager.start() as later:
            until(lambda: len(later.shards) == 16)
            manager.add(Controller(Api.namespaced(client, ConfigMap, "default")), note)
            until(lambda: len(set(ran)) == OBJECTS)


def test_a_replica_that_may_not_list_takes_no_shard(ranged: ApiServer) -> None:
    rule = ranged.faults.on("list", resource="configmaps").status(403)
    group = Group(ranged)
    try:
        group.join("a", by="uid")
        threading.Event().wait(1.5)
        assert group.managers["a"].shards == frozenset()
        assert "configmaps" in group.managers["a"].why_not_ready
        rule.remove()
        until(group.is_shared)
        until(lambda: len({name for _, name in group.ran}) == OBJECTS)
    finally:
        group.close()


def test_one_replica_of_many_shards_has_a_watch_of_each_and_ends_them_all(ranged: ApiServer) -> None:
    before = set(threading.enumerate())
    with ranged.client() as client:
        ran: set[str] = set()

        def note(obj: ConfigMap, ctx: Context[None]) -> Action:
            ran.add(obj.name or "")
            return Action.await_change()

        manager = Manager(client, sharding=Sharding("many", "default", shards=64, by="uid", **STEADY), serve=None)
        manager.add(Controller(Api.namespaced(client, ConfigMap, "default")), note)
        with manager.start() as running:
            until(lambda: len(running.shards) == 64)
            until(lambda: len(ran) == OBJECTS)
    left = [thread for thread in threading.enumerate() if thread not in before and "apiserver" not in thread.name]
    for thread in left:
        thread.join(LIMIT)
    assert [thread.name for thread in left if thread.is_alive()] == []


def test_the_status_page_says_who_holds_what_and_top_shows_all_replicas(ranged: ApiServer,
                                                                        capsys: pytest.CaptureFixture[str]) -> None:
    group, ports = Group(ranged), free_ports(2)
    urls = [f"127.0.0.1:{port}" for port in ports]
    try:
        for name, url in zip("ab", urls, strict=True):
            group.join(name, by="uid", serve=url)
        until(group.is_shared)

        def seen() -> list[dict[str, Any]]:
            with closing(urlopen(f"http://{urls[0]}/debug/state.json")) as answer:
                rows: list[dict[str, Any]] = json.load(answer)["manager"]["sharding"]["replicas"]
            return rows

        wanted = [{"name": name, "shards": sorted(group.managers[name].shards)} for name in "ab"]
        wanted[0]["here"] = True
        until(lambda: seen() == wanted, "it says who holds which shards")
        with ranged.client() as client:  # anybody who may write Leases may be one of them, under any name
            Api.namespaced(client, Lease, "default").create({"metadata": {"name": "shop-replica-odd", "labels": {
                NAME: "shop", NUMBER: "2008"}}, "spec": {"holderIdentity": "\u001b[2J" + "z" * 50_000,
                                                         "leaseDurationSeconds": 60}})
        until(lambda: len(seen()) == 3)
        assert max(len(row["name"]) for row in seen()) == 200
        assert "\x1b" not in top(urls[:1], capsys)
        text = top(urls, capsys)
        for name in "ab":
            (line,) = [line for line in text.splitlines() if line.startswith(f"{name} ")]
            assert numbers(sorted(group.managers[name].shards)) in line
        assert "8 shards of default/shop by uid" in text
        assert "none of these holds" in top(urls[:1] * 2 + ["127.0.0.1:1"], capsys)
        assert "8 shards of default/shop by uid" in top(urls[:1], capsys)
    finally:
        group.close()


def top(urls: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert run_command(["top", "--once", *urls]) == 0
    return capsys.readouterr().out


def free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def test_a_defect_ends_the_part_of_this_replica_and_its_manager(server: ApiServer,
                                                               monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise AssertionError("planned")

    monkeypatch.setattr(ShardLeases, "list", broken)
    with server.client() as client:
        manager = Manager(client, sharding=Sharding("shop", "default", **STEADY), serve=None)
        with pytest.raises(AssertionError, match="planned"):
            manager.run()


def test_arguments_that_cannot_work_are_refused(server: ApiServer) -> None:
    with server.client() as client:
        with pytest.raises(RequestError, match="is not a Sharding"):
            Manager(client, sharding="shop")  # type: ignore[arg-type]
        with pytest.raises(RequestError, match="no sharding"):
            Manager(client).add(Controller(Api.all(client, ConfigMap)), lambda obj, ctx: Action.await_change(),
                                sharded=True)


@pytest.mark.parametrize("stolen", [1, 3, SHARDS])
def test_shards_that_another_has_taken_are_lost_at_warning(group: Callable[..., Group], stolen: int,
                                                           caplog: pytest.LogCaptureFixture) -> None:
    """A lease that somebody else wrote was not given up."""
    one = group()
    running = one.join("a", retry=0.2)
    until(lambda: len(running.shards) == SHARDS)
    caplog.clear()
    with one.server.client() as client:
        leases = Api.namespaced(client, Lease, "default")
        for number in range(stolen):
            leases.patch(f"shop-{number}-of-{SHARDS}", Patch.merge({"spec": {
                "holderIdentity": "thief", "leaseDurationSeconds": 600, "renewTime": "2126-01-01T00:00:00.000000Z"}}))
        until(lambda: len(running.shards) == SHARDS - stolen)

        def told() -> set[int]:
            texts = [record.getMessage() for record in caplog.records
                     if record.levelname == "WARNING" and "; lost " in record.getMessage()]
            return {int(number) for text in texts for number in re.findall(r"\d+", text.partition("; lost ")[2])}

        until(lambda: told() == set(range(stolen)))
        assert not [record for record in caplog.records if "; gave up " in record.getMessage()]
