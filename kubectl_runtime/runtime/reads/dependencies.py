"""`Dependencies`: what each object of a controller has read, and which objects a change triggers. Pure.

    reader     an object of the controller, by its key
    Node       something that was read: one object by its name, or a selection of objects by namespace and labels
    Shelf      the nodes of one watch, and the contents that are kept for them

A node stores the newest known state of its objects: `members`, with the version of each object. The state comes from
two sources, the answers to reads and the watch:

    input                                         the node's state
    answer to a read of this node                 replaced by the answer, unless the state has changed since the read
                                                  began, or the watch has already passed the answer
    the watch shows the known state               unchanged
    the watch shows a state older than an answer  unchanged: the watch is behind
    the watch shows any other state               replaced by what the watch shows
    a complete list, not older than the answers   replaced by the list

Each change of the state increments `revision`, and triggers every reader that has seen another revision. A reader that
depends only on a value is triggered when the object appears, is deleted, or is replaced by a new object of the same
name. After any other change the reader's value must be compared first (`unsure`, `compared`).

    a run succeeds              its reads replace the earlier reads of its object
    a run fails                 its reads are added to the earlier reads
    the object is deleted       its reads are forgotten

A node without readers is dropped, with all contents that no other node of its shelf needs. Not thread-safe: one lock
guards everything. No user code runs here.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeAlias

from kubectl_runtime.core.base.plain import Key
from kubectl_runtime.core.codec.views import Record
from kubectl_runtime.core.meta.selectors import Selector
from kubectl_runtime.runtime.store.overlay import number_of

Identity: TypeAlias = tuple[str, str]
"""Uid and resourceVersion, which identify one state of one object."""

Shown: TypeAlias = Callable[[Key], Identity | None]
"""Returns the state that the watch has stored for a key, without writes of this process or answers to reads."""

PENDING, OUTDATED = -1, -2
"""Revisions for a reader whose first read of a node is not answered yet, and for a reader whose answer was outdated."""

CHANGED, APPEARED, WENT = "changed", "appeared", "went"


def identity_of(record: Record | None) -> Identity | None:
    """The identity of a record; None if there is no record."""
    return None if record is None else (record.head.uid, record.head.resource_version)


class Seen(NamedTuple):
    """The value that a reader has seen. `of`: the path or function that selects the value."""

    of: Any
    value: Any


class Wanted(NamedTuple):
    """The values that a reader depends on: the values of its last successful run, and those of its latest run."""

    good: tuple[Seen, ...] = ()
    added: tuple[Seen, ...] = ()


class Moved(NamedTuple):
    """The state of the object `key` in a node has changed. `readers` are the readers to trigger."""

    node: Node
    key: Key
    what: str
    """`CHANGED`, `APPEARED` or `WENT`."""
    cause: Identity | None
    """The object's new identity, or its last identity if it was deleted."""
    readers: list[Key]


class Node:
    """One object, or a selection of objects, that was read. Its shelf keeps it up to date."""

    __slots__ = ("ahead", "evaluated", "key", "members", "namespace", "readers", "revision", "selector", "shelf",
                 "values")

    def __init__(self, shelf: Shelf, key: Key | None, namespace: str | None = None,
                 selector: Selector | None = None) -> None:
        """A node for the object `key`, or for the objects in `namespace` (None for all) that `selector` matches."""
        self.shelf = shelf
        self.key = key
        self.namespace = namespace
        self.selector = selector
        self.members: dict[Key, Identity] = {}
        self.ahead: dict[Key, tuple[str, str]] = {}
        """For each object whose answer was newer than the watch: the version that the watch must reach, and the uid if
        the object is gone."""
        self.revision = 0
        """The number of changes; 0 while nothing is known."""
        self.readers: dict[Key, int] = {}
        """The revision that each reader has seen."""
        self.values: dict[Key, Wanted] = {}
        """The readers that depend only on values, with these values."""
        self.evaluated: dict[str, tuple[Identity, Any]] = {}
        """For each path, the last state and the value at the path, so that all readers share one value."""

    def selects(self, key: Key, record: Record) -> bool:
        """Whether this object belongs to the node."""
        if self.selector is None:
            return key == self.key
        return (self.namespace is None or key[0] == self.namespace) and self.selector.matches(record.head.labels)


class Shelf:
    """The nodes of one watch."""

    def __init__(self, *, whole: bool = False) -> None:
        """`whole`: the watch stores whole objects, so that the shelf need not keep contents."""
        self.whole = whole
        self.singles: dict[Key, Node] = {}
        self.selections: dict[tuple[str | None, str], Node] = {}
        self.contents: dict[Key, Record] = {}
        self.unsure: dict[Key, None] = {}
        """Changed objects with readers whose values must be compared."""
        self._memberships: dict[Key, tuple[Node, ...]] = {}
        """For each object, the selections that contain it."""
        self._anchors: dict[tuple[str | None, tuple[str, str] | None], dict[Node, None]] = {}
        """The selections, by namespace and by one label that they require (None if they require no label)."""
        self._behind: dict[Node, None] = {}
        """The nodes whose state is newer than the watch."""

    def one(self, key: Key) -> Node:
        """The node of one object, created on first use."""
        node = self.singles.get(key)
        if node is None:
            node = self.singles[key] = Node(self, key)
        return node

    def all_of(self, namespace: str | None, selector: Selector) -> Node:
        """The node of a selection, created on first use."""
        name = (namespace, str(selector))
        node = self.selections.get(name)
        if node is None:
            node = self.selections[name] = Node(self, None, namespace, selector)
            self._anchors.setdefault((namespace, _anchor(selector)), {})[node] = None
        return node

    def __len__(self) -> int:
        return len(self.singles) + len(self.selections)

    def nodes(self) -> list[Node]:
        """All nodes."""
        return [*self.singles.values(), *self.selections.values()]

    # Answers to readers

    def answered(self, node: Node, before: int, found: Mapping[Key, Identity], shown: Shown, floor: str = "", *,
                 progress: str = "", besides: Key | None = None) -> tuple[list[Moved], bool]:
        """Record that a read of the node returned `found`. `before`: the node's revision when the read began.

        `floor`: the resourceVersion of the list, if the answer is a list. `progress`: the version up to which the watch
        has shown everything. `besides`: the reader that made the request; its own answer does not trigger it. Returns
        the changes, and whether `found` is the node's current state (False if the state has changed since the read).
        """
        if node.revision != before and node.members != found and not _is_newer(node, found):
            return [], False
        if _is_passed(found, shown, floor, progress):
            return [], False
        moved = [one for key in [key for key in node.members if key not in found]
                 if (one := self._answer(node, key, None, shown, floor, besides)) is not None]
        for key, identity in found.items():
            if node.members.get(key) != identity:
                one = self._answer(node, key, identity, shown, floor, besides)
                moved += () if one is None else (one,)
        node.revision = node.revision or 1
        return moved, True

    def hold(self, key: Key, record: Record) -> None:
        """Keep the content of an object if a node selects the object, unless the watch itself stores whole objects."""
        if not self.whole and (key in self.singles or key in self._memberships):
            self.contents[key] = record

    def held(self, key: Key, identity: Identity) -> Record | None:
        """The content of the object in exactly this state; None if this content is not kept."""
        record = self.contents.get(key)
        return record if record is not None and (record.head.uid, record.head.resource_version) == identity else None

    # What the watch shows

    def touched(self, key: Key, now: Record | None, gone: str | None = None) -> list[Moved]:
        """Process a watch event for `key`. `now`: the record stored now. `gone`: the uid of a deleted object. Returns
        the changes."""
        moved: list[Moved] = []
        single = self.singles.get(key)
        nodes: Iterable[Node] = () if single is None else (single,)
        if self.selections:
            nodes = dict.fromkeys((*nodes, *self._memberships.get(key, ()), *self._selecting(key, now)))
        for node in nodes:
            identity = identity_of(now) if now is not None and node.selects(key, now) else None
            if not self._is_behind(node, key, now, gone):
                one = self._set(node, key, identity, now)
                moved += () if one is None else (one,)
        return moved

    def completed(self, stored: Callable[[Key], Record | None], version: str) -> list[Moved]:
        """Record that the store holds a complete list of this version. Nodes whose state was newer than the watch take
        their state from the list if the list is at least as new. Returns the changes."""
        moved: list[Moved] = []
        listed = number_of(version)
        for node in [*self._behind]:
            for key, (floor, gone) in [*node.ahead.items()]:
                now, least = stored(key), number_of(floor)
                if least is not None and listed is not None and listed < least:
                    continue
                if gone and now is not None and now.head.uid == gone:
                    continue
                self._caught_up(node, key)
                identity = identity_of(now) if now is not None and node.selects(key, now) else None
                one = self._set(node, key, identity, now)
                moved += () if one is None else (one,)
        return moved

    # Values

    def to_compare(self, key: Key) -> list[tuple[Key, Wanted]]:
        """The readers that may not have seen the object's current state, each with the values that it has seen. The
        caller must compare these values with the object's."""
        node = self.singles.get(key)
        if node is None:
            return []
        return [(reader, wanted) for reader, wanted in node.values.items() if node.readers.get(reader) != node.revision]

    def compared(self, key: Key, identity: Identity, results: Iterable[tuple[Key, Wanted, bool]]) -> Moved | None:
        """Record which readers have seen other values than the object has in state `identity`. Returns the readers to
        trigger, if any. `results`: each reader, the values that it has seen, and whether any of these values differ
        from the object's."""
        node = self.singles.get(key)
        if node is None:
            return None
        readers = []
        for reader, wanted, differs in results:
            if node.values.get(reader) is not wanted:
                continue  # the reader has read the object again in the meantime
            if differs:
                readers.append(reader)
            elif node.members.get(key) == identity:
                node.readers[reader] = node.revision
        return Moved(node, key, CHANGED, identity, readers) if readers else None

    # Inside

    def drop(self, node: Node) -> None:
        """Drop a node without readers."""
        self._behind.pop(node, None)
        if node.selector is None:
            key = node.key
            if key is not None and self.singles.get(key) is node:
                del self.singles[key]
                self.unsure.pop(key, None)
                self._free(key)
            return
        name = (node.namespace, str(node.selector))
        if self.selections.get(name) is not node:
            return  # already dropped
        del self.selections[name]
        place = (node.namespace, _anchor(node.selector))
        bucket = self._anchors.get(place, {})
        bucket.pop(node, None)
        if not bucket:
            self._anchors.pop(place, None)
        for key in node.members:
            self._leaves(node, key)

    def _answer(self, node: Node, key: Key, identity: Identity | None, shown: Shown, floor: str,
                besides: Key | None) -> Moved | None:
        before = node.members.get(key)
        if shown(key) != identity:
            version = identity[1] if identity is not None and not floor else floor
            node.ahead[key] = (version, before[0] if identity is None and before is not None else "")
            self._behind[node] = None
        else:
            self._caught_up(node, key)
        return self._set(node, key, identity, None, besides)

    def _is_behind(self, node: Node, key: Key, now: Record | None, gone: str | None) -> bool:
        """Whether the watch shows an older state of the key than the answer that the node's state comes from."""
        ahead = node.ahead.get(key)
        if ahead is None:
            return False
        floor, absent = ahead
        known = node.members.get(key)
        if now is None:
            if known is not None and gone and gone != known[0]:
                return True  # a predecessor
        elif identity_of(now) != known:
            version, least = number_of(now.head.resource_version), number_of(floor)
            if absent and now.head.uid == absent:
                return True
            if version is not None and least is not None and version <= least:
                return True
        self._caught_up(node, key)
        return False

    def _caught_up(self, node: Node, key: Key) -> None:
        if node.ahead.pop(key, None) is not None and not node.ahead:
            self._behind.pop(node, None)

    def _set(self, node: Node, key: Key, identity: Identity | None, record: Record | None,
             besides: Key | None = None) -> Moved | None:
        """Set the state of the key; returns the change. `record`: the object's record, if known."""
        before = node.members.get(key)
        if identity == before:
            return None
        if identity is None:
            del node.members[key]
            if node.selector is not None:
                self._leaves(node, key)
        else:
            node.members[key] = identity
            if before is None and node.selector is not None:
                self._memberships[key] = (*self._memberships.get(key, ()), node)
        kept = self.contents.get(key)
        if kept is not None and identity_of(kept) != identity and _is_stale(kept, identity, record):
            del self.contents[key]
        node.revision += 1
        revision = node.revision
        what = APPEARED if before is None else WENT if identity is None else CHANGED
        readers = [reader for reader, seen in node.readers.items()
                   if seen not in (revision, PENDING) and reader != besides]
        if node.values and before is not None and identity is not None and before[0] == identity[0]:
            readers = [reader for reader in readers if reader not in node.values]
            self.unsure[key] = None
        return Moved(node, key, what, identity or before, readers)

    def _leaves(self, node: Node, key: Key) -> None:
        left = tuple(other for other in self._memberships.get(key, ()) if other is not node)
        if left:
            self._memberships[key] = left
        else:
            self._memberships.pop(key, None)
            self._free(key)

    def _free(self, key: Key) -> None:
        if key not in self.singles and key not in self._memberships:
            self.contents.pop(key, None)

    def _selecting(self, key: Key, record: Record | None) -> Iterable[Node]:
        """The selections that may contain this object."""
        if record is None:
            return
        pairs = [None, *(record.head.labels or {}).items()]
        for namespace in (None, key[0]) if key[0] is not None else (None,):
            for pair in pairs:
                yield from self._anchors.get((namespace, pair), ())


class Dependencies:
    """The reads of each object of one controller. See the module's docstring."""

    def __init__(self) -> None:
        self.nodes_of: dict[Key, tuple[Node, ...]] = {}
        """The nodes that the runs of each object have read. Only this class changes the mapping."""

    def __len__(self) -> int:
        return len(self.nodes_of)

    def first(self, most: int) -> list[tuple[Key, tuple[Node, ...]]]:
        """Up to `most` readers, each with the `Node`s that it has read."""
        return [row for row, _ in zip(self.nodes_of.items(), range(most), strict=False)]

    @staticmethod
    def begin(reader: Key, node: Node) -> None:
        """Record that `reader` is about to read the node."""
        node.readers.setdefault(reader, PENDING)

    @staticmethod
    def read(reader: Key, node: Node, *, current: bool, seen: tuple[Seen, ...] | None = None) -> bool:
        """Record that `reader` has read the node: its current state if `current` is true, else an earlier state.
        `seen`: the values, if the run depends only on values; None if it depends on everything. Returns whether the
        reader must run again because the state is no longer current."""
        before = node.readers.get(reader)
        if seen is None:
            node.values.pop(reader, None)
        elif before == PENDING or reader in node.values:  # the reader does not depend on the whole object
            node.values[reader] = Wanted(node.values.get(reader, Wanted()).good, seen)
        node.readers[reader] = node.revision if current else OUTDATED
        return not current and before != OUTDATED

    def settle(self, reader: Key, nodes: Mapping[Node, tuple[Seen, ...] | None], *, good: bool) -> None:
        """Record the end of a run of `reader` that read these nodes. `nodes`: the nodes, each with the values that
        the run depends on (None for everything)."""
        before = self.nodes_of.get(reader, ())
        if good:
            for node in before:
                if node not in nodes:
                    self._leave(reader, node)
            after = (*nodes,)
            for node, seen in nodes.items():
                if seen is None:
                    node.values.pop(reader, None)
                else:
                    node.values[reader] = Wanted(seen)
        else:
            after = (*before, *(node for node in nodes if node not in before))
        for node in nodes:
            if node.readers.get(reader) == PENDING:  # the read was not answered, and the run continued
                node.readers[reader] = node.revision
        if after != before:
            if after:
                self.nodes_of[reader] = after
            else:
                self.nodes_of.pop(reader, None)

    def forget(self, reader: Key, nodes: Iterable[Node] | None = None) -> None:
        """Forget a reader that is gone or belongs to another replica. `nodes`: what its run read, if not yet
        settled."""
        for node in (*self.nodes_of.pop(reader, ()), *(nodes or ())):
            self._leave(reader, node)

    def abandon(self, shelf: Shelf, namespaces: frozenset[str] | None = None) -> list[Key]:
        """Drop the nodes in these namespaces (None for all), which a watch no longer covers. Returns the nodes'
        readers."""
        nodes = dict.fromkeys(node for node in shelf.nodes() if namespaces is None or (
            node.namespace if node.key is None else node.key[0]) in namespaces)
        readers = dict.fromkeys(reader for node in nodes for reader in node.readers)
        for reader in readers:
            left = tuple(node for node in self.nodes_of.get(reader, ()) if node not in nodes)
            if left:
                self.nodes_of[reader] = left
            else:
                self.nodes_of.pop(reader, None)
        for node in nodes:
            node.readers.clear()
            node.values.clear()
            shelf.drop(node)
        return [*readers]

    @staticmethod
    def _leave(reader: Key, node: Node) -> None:
        node.readers.pop(reader, None)
        node.values.pop(reader, None)
        if not node.readers:
            node.shelf.drop(node)


def _anchor(selector: Selector) -> tuple[str, str] | None:
    return next(((one.key, one.values[0]) for one in selector.requirements if one.operator == "="), None)


def _is_newer(node: Node, found: Mapping[Key, Identity]) -> bool:
    """Whether an answer about one object is newer than the node's current state."""
    if node.selector is not None or node.key is None:
        return False
    known, answer = node.members.get(node.key), found.get(node.key)
    if known is None or answer is None:
        return False
    one, other = number_of(known[1]), number_of(answer[1])
    return one is not None and other is not None and other > one


def _is_passed(found: Mapping[Key, Identity], shown: Shown, floor: str, progress: str) -> bool:
    """Whether the watch has already shown everything up to the version of an answer, and shows a different state."""
    reached = number_of(progress)
    if reached is None:
        return False
    for key, identity in found.items():
        version = number_of(floor or identity[1])
        if version is not None and version <= reached and shown(key) != identity:
            return True
    return False


def _is_stale(kept: Record, identity: Identity | None, record: Record | None) -> bool:
    """Whether `kept` is older than the state `identity`. It may be newer, since a read may be ahead of the watch."""
    if identity is None or record is None:
        return True
    one, other = number_of(kept.head.resource_version), number_of(identity[1])
    return one is None or other is None or one < other
