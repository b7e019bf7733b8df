"""`Dependencies` against a server that is ahead of its watch: nothing read is missed, and nothing else triggers.

The server's history is a list of states of a few objects. The watch has delivered some of it, or lists again; readers
are answered by the server, as it is then, or from what the watch has stored. Answers arrive late, with changes and
events between the question and the answer.
"""
import random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubectl_runtime.core.codec.jsonbytes import decode_object
from kubectl_runtime.core.meta.selectors import Selector
from kubectl_runtime.resources import Secret
from kubectl_runtime.runtime.reads.dependencies import (
    APPEARED,
    CHANGED,
    WENT,
    Dependencies,
    Seen,
    Shelf,
    identity_of,
)

NAMES = ("a", "b")
READERS = (("shop", "r1"), ("shop", "r2"))
WEB = Selector.of("app=web")


def key(name):
    return "shop", name


def record(name, uid, version, app="web"):
    metadata = {"name": name, "namespace": "shop", "uid": uid, "resourceVersion": str(version), "labels": {"app": app}}
    return decode_object(msgspec.json.encode({"metadata": metadata}), Secret.api_resource)


class World:
    """A server, its watch, and readers."""

    def __init__(self, rng):
        self.rng = rng
        self.version = 10
        self.now = {}
        self.history = []
        """(version, key, record or None)."""
        self.stored = {}
        self.delivered = 0
        self.at = 10
        """The version of the watch."""
        self.ready = False
        self.shelf = Shelf()
        self.dependencies = Dependencies()
        self.nodes = {reader: {} for reader in READERS}
        self.asked = {}
        self.read_at = {}
        """By reader and node: the server's version when its last read was answered, and what it saw."""
        self.triggered = set()
        """Readers, and by which node, since they asked for it last."""

    # The server

    def write(self, name, what):
        self.version += 1
        before = self.now.get(name)
        if what == "delete":
            if before is None:
                return
            self.now.pop(name)
            self.history.append((self.version, name, None, before.head.uid))
            return
        app = self.rng.choice(("web", "db"))
        uid = before.head.uid if before is not None else f"uid{self.version}"
        self.now[name] = record(name, uid, self.version, app)
        self.history.append((self.version, name, self.now[name], uid))

    # The watch

    def deliver(self, count):
        """The next events, which are stored together and told one by one."""
        if not self.ready:
            return
        batch = self.history[self.delivered:self.delivered + count]
        self.delivered += len(batch)
        for version, name, found, _ in batch:
            self.at = version
            self._store(name, found)
        for _, name, found, uid in batch:
            self._tell(name, found, uid)

    def list_again(self):
        """The state as it is, by which only differences are told."""
        before, self.stored = self.stored, {key(name): found for name, found in self.now.items()}
        self.delivered, self.at, self.ready = len(self.history), self.version, True
        for there, old in before.items():
            new = self.stored.get(there)
            if new is None or new.head.uid != old.head.uid:
                self._tell(there[1], None, old.head.uid)
        for there, new in self.stored.items():
            old = before.get(there)
            if identity_of(old) != identity_of(new):
                self._tell(there[1], new, new.head.uid)
        self._moved(self.shelf.completed(self.stored.get, str(self.at)))

    def _store(self, name, found):
        if found is None:
            self.stored.pop(key(name), None)
        else:
            self.stored[key(name)] = found

    def _tell(self, name, found, uid):
        now = self.stored.get(key(name))
        if found is None:
            self._moved(self.shelf.touched(key(name), now, uid))
        elif now is not None:
            self._moved(self.shelf.touched(key(name), now))

    def shown(self, there):
        return identity_of(self.stored.get(there)) if self.ready else None

    # Readers

    def ask(self, reader, name):
        """A read begins; None as the name means the selection."""
        if (reader, name) in self.asked:
            return
        self.triggered.discard((reader, name))
        node = self.shelf.one(key(name)) if name else self.shelf.all_of("shop", WEB)
        self.dependencies.begin(reader, node)
        self.nodes[reader][node] = None
        self.asked[reader, name] = [node, node.revision, None, None]

    def serve(self, reader, name, from_memory):
        """The server, or the store, says what there is; the answer is on its way."""
        asked = self.asked.get((reader, name))
        if asked is None or asked[2] is not None:
            return
        source = {one[1]: found for one, found in self.stored.items()} if from_memory and self.ready else self.now
        if from_memory and self.ready:
            asked[1] = asked[0].revision  # both are looked at under one lock
        found = [source[name]] if name and name in source else [] if name else [
            one for one in source.values() if WEB.matches(one.head.labels)]
        asked[2] = {one.key: identity_of(one) for one in found}
        asked[3] = self.at if from_memory and self.ready else self.version

    def answer(self, reader, name):
        asked = self.asked.get((reader, name))
        if asked is None or asked[2] is None:
            return
        del self.asked[reader, name]
        node, before, found, version = asked
        moved, current = self.shelf.answered(node, before, found, self.shown, "" if name else str(version),
                                             progress=str(self.at) if self.ready else "", besides=reader)
        self._moved(moved)
        if self.dependencies.read(reader, node, current=current):
            self.triggered.add((reader, name))
        self.read_at[reader, name] = found

    def end(self, reader, good):
        """Its run is over, with what was answered."""
        if any(asked[0] == reader for asked in self.asked):
            return
        nodes, self.nodes[reader] = self.nodes[reader], {}
        self.dependencies.settle(reader, nodes, good=good)
        if good:
            names = {node.key[1] if node.key else None for node in nodes}
            self.read_at = {one: found for one, found in self.read_at.items() if one[0] != reader or one[1] in names}

    def _moved(self, moved):
        for one in moved:
            for reader in one.readers:
                self.triggered.add((reader, one.node.key[1] if one.node.key else None))

    def state_of(self, name):
        found = [self.now[name]] if name and name in self.now else [] if name else [
            one for one in self.now.values() if WEB.matches(one.head.labels)]
        return {one.key: identity_of(one) for one in found}

    def rest(self):
        """Everything is answered and delivered."""
        for reader, name in [*self.asked]:
            self.serve(reader, name, False)
            self.answer(reader, name)
        if self.ready:
            self.deliver(len(self.history))
        else:
            self.list_again()


steps = st.lists(st.tuples(st.sampled_from(("write", "write", "delete", "deliver", "deliver", "list", "ask", "served",
                                            "read", "remember", "answer", "good", "bad")),
                           st.sampled_from(NAMES), st.sampled_from(READERS), st.booleans(), st.integers(1, 3)),
                 min_size=5, max_size=40)


def play(world, ops):
    for what, name, reader, selection, count in ops:
        target = None if selection else name
        if what in ("write", "delete"):
            world.write(name, what)
        elif what == "deliver":
            world.deliver(count)
        elif what == "list":
            world.list_again()
        elif what in ("ask", "served", "read", "remember"):
            world.ask(reader, target)
            if what != "ask":
                world.serve(reader, target, what == "remember")
            if what in ("read", "remember"):
                world.answer(reader, target)
        elif what == "answer":
            for asked in [one for one in world.asked if one[0] == reader]:
                world.serve(*asked, False)
                world.answer(*asked)
        else:
            world.end(reader, what == "good")
        consistent(world)


def consistent(world):
    shelf = world.shelf
    assert all(node.readers for node in shelf.nodes()), "a node without readers is kept"
    for key_, kept in shelf.contents.items():
        assert key_ in shelf.singles or any(key_ in node.members for node in shelf.selections.values()), kept
    for node in shelf.selections.values():
        for there in node.members:
            assert node in shelf._memberships[there]
    assert all(node.ahead for node in shelf._behind)
    for there, nodes in shelf._memberships.items():
        assert nodes
        assert all(there in node.members for node in nodes)


@settings(max_examples=300, deadline=None)
@given(steps, st.integers(0, 5))
def test_a_reader_that_has_not_seen_how_things_are_is_triggered(ops, seed):
    world = World(random.Random(seed))
    play(world, ops)
    world.rest()
    consistent(world)
    for (reader, name), found in world.read_at.items():
        if found != world.state_of(name):
            assert (reader, name) in world.triggered, (reader, name, found, world.state_of(name))


@settings(max_examples=300, deadline=None)
@given(steps, st.lists(st.tuples(st.sampled_from(NAMES), st.booleans()), max_size=3), st.integers(0, 5))
def test_a_reader_of_what_did_not_change_is_not_triggered(ops, quiet, seed):
    """What is written after the reads of one reader ended is something that it has not read."""
    world = World(random.Random(seed))
    for name in NAMES:
        world.write(name, "write")
    if seed % 2:
        world.list_again()
    calm = ("shop", "calm")
    world.nodes[calm] = {}
    for what in ("write", "write", "delete", "write", "write"):
        world.write("still", what)
    for name in dict.fromkeys(["still", *(name for name, _ in quiet)]):
        world.ask(calm, name)
        world.serve(calm, name, False)
        world.answer(calm, name)
    world.end(calm, True)
    kept = {"still", *(name for name, _ in quiet)}
    play(world, [op for op in ops if not (op[0] in ("write", "delete") and op[1] in kept)])
    world.rest()
    assert not [one for one in world.triggered if one[0] == calm]


@pytest.mark.parametrize("version", ["7", "x7"])
def test_every_change_has_its_name(version):
    shelf, reader = Shelf(), ("shop", "r")
    node = shelf.one(key("a"))
    Dependencies.begin(reader, node)
    shelf.answered(node, 0, {}, lambda _: None)
    Dependencies.read(reader, node, current=True)
    first, second = record("a", "u", version), record("a", "u", version + "1")
    assert [(one.what, one.readers) for one in shelf.touched(key("a"), first)] == [(APPEARED, [reader])]
    assert [(one.what, one.cause) for one in shelf.touched(key("a"), second)] == [(CHANGED, ("u", version + "1"))]
    assert not shelf.touched(key("a"), second)
    assert [one.what for one in shelf.touched(key("a"), None, "u")] == [WENT]


def test_a_value_is_compared_only_where_the_object_stays_itself():
    shelf, plain, careful = Shelf(), ("shop", "plain"), ("shop", "careful")
    node = shelf.one(key("a"))
    for reader, seen in ((plain, None), (careful, (Seen("data.x", "1"),))):
        Dependencies.begin(reader, node)
        shelf.answered(node, node.revision, {key("a"): ("u", "1")}, lambda _: None)
        Dependencies.read(reader, node, current=True, seen=seen)
    (changed,) = shelf.touched(key("a"), record("a", "u", 2))
    assert changed.readers == [plain]
    assert shelf.unsure == {key("a"): None}
    (found,) = shelf.to_compare(key("a"))
    assert found[0] == careful
    assert shelf.compared(key("a"), ("u", "2"), [(*found, False)]) is None
    assert not shelf.to_compare(key("a")), "it has seen this state by the comparison"
    shelf.touched(key("a"), record("a", "u", 3))
    assert shelf.compared(key("a"), ("u", "3"), [(*shelf.to_compare(key("a"))[0], True)]).readers == [careful]
    (replaced,) = shelf.touched(key("a"), record("a", "other", 4))
    assert set(replaced.readers) == {plain, careful}
    (gone,) = shelf.touched(key("a"), None, "other")
    assert set(gone.readers) == {plain, careful}


@pytest.mark.parametrize("differs", [True, False])
def test_a_comparison_does_not_speak_for_a_reader_that_has_read_again_meanwhile(differs):
    shelf, reader = Shelf(), ("shop", "r")
    node = shelf.one(key("a"))
    Dependencies.begin(reader, node)
    shelf.answered(node, 0, {key("a"): ("u", "1")}, lambda _: None)
    Dependencies.read(reader, node, current=True, seen=(Seen("data.x", "1"),))
    shelf.touched(key("a"), record("a", "u", 2))
    (compared,) = shelf.to_compare(key("a"))
    Dependencies.read(reader, node, current=False, seen=(Seen("data.y", "1"),))
    assert shelf.compared(key("a"), ("u", "2"), [(*compared, differs)]) is None
    assert [one for one, _ in shelf.to_compare(key("a"))] == [reader], "what it has read last is not compared yet"


@pytest.mark.parametrize(("progress", "taken"), [("4", True), ("5", False), ("6", False), ("", True), ("x", True)])
def test_an_answer_that_the_watch_has_reached_and_does_not_show_is_outdated(progress, taken):
    shelf = Shelf()
    for node, floor in ((shelf.one(key("a")), ""), (shelf.all_of("shop", WEB), "5")):
        found = {key("a"): ("u", "5" if not floor else "3")}
        assert shelf.answered(node, 0, found, lambda _: None, floor, progress=progress)[1] is taken


@pytest.mark.parametrize(("asked", "found", "shown_then"), [
    (None, None, ("u", "6")), (("u", "x5"), ("u", "x5"), ("u", "x6")), (("u", "x5"), None, ("u", "x6"))],
    ids=["absent, and then made", "versions that do not compare", "deleted by what it is"])
def test_an_answer_does_not_undo_what_the_watch_has_shown_since_it_was_asked(asked, found, shown_then):
    shelf, reader = Shelf(), ("shop", "r")
    node = shelf.one(key("a"))
    Dependencies.begin(reader, node)
    if asked is not None:
        shelf.answered(node, 0, {key("a"): asked}, lambda _: asked)
    before = node.revision
    shelf.touched(key("a"), record("a", *shown_then))
    moved, current = shelf.answered(node, before, {} if found is None else {key("a"): found}, lambda _: shown_then)
    assert (moved, current) == ([], False)
    assert node.members == {key("a"): shown_then}
    assert Dependencies.read(reader, node, current=current), "the reader runs again"


def test_contents_go_with_the_last_reader_and_with_the_next_version():
    shelf, dependencies, one, two = Shelf(), Dependencies(), ("shop", "1"), ("shop", "2")
    node, all_web = shelf.one(key("a")), shelf.all_of("shop", WEB)
    first = record("a", "u", 5)
    for reader, found in ((one, node), (two, all_web)):
        dependencies.begin(reader, found)
        shelf.answered(found, 0, {key("a"): ("u", "5")}, lambda _: None)
        dependencies.read(reader, found, current=True)
        shelf.hold(key("a"), first)
        dependencies.settle(reader, {found: None}, good=True)
    assert shelf.held(key("a"), ("u", "5")) is first
    dependencies.settle(one, {}, good=True)
    assert shelf.held(key("a"), ("u", "5")) is first, "the selection has it"
    shelf.touched(key("a"), record("a", "u", 6))
    assert not shelf.contents
    shelf.hold(key("a"), record("a", "u", 6))
    dependencies.forget(two)
    assert not shelf.contents
    assert not len(shelf)
    assert not len(dependencies)
    shelf.hold(key("a"), first)
    assert not shelf.contents, "nothing reads it"


def test_a_failed_run_adds_and_a_good_one_replaces():
    shelf, dependencies, reader = Shelf(), Dependencies(), ("shop", "r")

    def run(*names, good):
        nodes = {}
        for name in names:
            node = shelf.one(key(name))
            dependencies.begin(reader, node)
            shelf.answered(node, node.revision, {key(name): (name, "1")}, lambda _: None)
            dependencies.read(reader, node, current=True)
            nodes[node] = None
        dependencies.settle(reader, nodes, good=good)
        return {node.key[1] for node in dependencies.nodes_of.get(reader, ())}

    assert run("a", "b", good=True) == {"a", "b"}
    assert run("c", good=False) == {"a", "b", "c"}
    assert run("b", good=True) == {"b"}
    assert set(shelf.singles) == {key("b")}


def test_a_server_that_went_back_to_older_data_is_believed():
    shelf, reader = Shelf(), ("shop", "r")
    stored = {key("a"): record("a", "u", 9)}
    node = shelf.one(key("a"))
    Dependencies.begin(reader, node)
    shelf.answered(node, 0, {key("a"): ("u", "9")}, lambda there: identity_of(stored.get(there)))
    Dependencies.read(reader, node, current=True)
    assert [one.readers for one in shelf.touched(key("a"), record("a", "u", 4))] == [[reader]]
