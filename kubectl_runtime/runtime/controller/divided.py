"""`DividedWatches`: the watches of a controller whose replicas divide its objects by hash ranges.

    shard         its watches in this replica                               its objects in this replica
    expected      a watch of each divided kind begins; it ends if the       are not visible in the stores, and do not
                  shard is no longer expected                               run
    gained        begin now, unless the shard was expected                  are not visible yet, and do not run
    complete      each has received a complete list                         become visible, and each of them runs
    lost          continue for runs in progress; no new run begins          stay visible; their pending keys are dropped
    left          end, once all runs that may write have ended              are not visible any more

Each divided kind also has an anchor: a watch that selects an empty set of shards, and so no objects. The controller
waits for the anchors before its replica takes part, to see that the kinds can be listed. If an anchor delivers objects,
the server ignores hash ranges. In this case, and whenever another watch delivers objects outside its range, one watch
of all objects replaces the watches of the shards, for the life of the controller. The stores still return only the
objects of the replica's shards.

    divided by    divided kinds                                  the shard of a key
    namespace     the reconciled kind, and the kinds it owns     by the namespace of the key
    uid           the reconciled kind                            by the uid of the key's object in the store

Other kinds are watched as usual, and their triggers are filtered; if objects are divided by uid, the triggered object
must be in the store. If an object was deleted and created again, both objects may be stored here for a moment; stores
return the newer one. The replica that sees a deletion runs `on_gone` whatever the shard, because a deleted object is in
no shard any more.
"""
from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Iterable, Sequence, Set
from functools import partial
from typing import Any, Protocol

from msgspec.structs import replace

from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.base.guard import GuardedLogger
from kubectl_runtime.core.base.plain import Key
from kubectl_runtime.core.base.threads import Clock
from kubectl_runtime.core.codec.views import Record
from kubectl_runtime.core.meta.selectors import ShardField, ShardSelector, part_of_hash
from kubectl_runtime.core.scope import FirstOf, RunScope, StopToken
from kubectl_runtime.runtime.controller.plan import Plan, Planned, WatchPlan
from kubectl_runtime.runtime.queue.runs import SKIPPED, Execute, Outcome, Run
from kubectl_runtime.runtime.reconcile.runner import DividedBy, Of, Partition, PartitionListener
from kubectl_runtime.runtime.store.overlay import number_of
from kubectl_runtime.runtime.store.store import StoreState
from kubectl_runtime.runtime.triggers.shared_watches import Share
from kubectl_runtime.runtime.triggers.triggers import OfHeads, Reason, ReconcileRequest, Subscription, named_after
from kubectl_runtime.runtime.watch.event import Event, obj_of

LOOK_SECONDS = 0.1
"""Seconds between two checks by a thread that waits while another thread changes the stores."""

NOT_DIVIDED = "the server does not divide lists and watches"


class Taken(Protocol):
    """The watches and stores of the controller: `TakenWatches`."""

    def add_part(self, plans: Sequence[WatchPlan]) -> list[Planned]:
        """Take watches for these plans. The watched objects are not visible in the stores yet, and cause no runs."""

    def drop_part(self, planned: Sequence[Planned], reason: str) -> None:
        """Release these watches."""

    def show(self, plan: WatchPlan, states: Sequence[StoreState], only: Callable[[Record], bool] | None, *,
             apart: bool) -> None:
        """Make the store of `plan` read from `states`."""


class Part:
    """The watches of one shard, or of all objects. `plans` are the divided plans; `planned` are their watches."""

    def __init__(self, plans: Sequence[WatchPlan], planned: Sequence[Planned]) -> None:
        self.plans, self.planned = plans, planned
        self.shown = self.dropped = False

    @property
    def is_complete(self) -> bool:
        """Whether each watch of this part has received a complete list."""
        return all(one.share.watch.stored.ready for one in self.planned)

    def states(self, number: int) -> list[StoreState]:
        """The store states of the watches for `plans[number]`; the last plan is the main kind's."""
        return [one.share.watch.stored for one in self.planned if one.scope.plan is self.plans[number]]


class DividedWatches:
    """The watches of a controller for its replica's shards, and its `Partition`. Safe to use from any thread."""

    def __init__(self, plan: Plan, by: ShardField, group: Partition) -> None:
        """`plan`: the controller's original plan. `group`: the replica's part of the sharding. Call `attach` and
        `listen` once the other parts of the controller exist."""
        self._by, self._parts, self._group = by, group.parts, group
        self.plan = _anchored(plan, by)
        """The plan with anchors in place of the divided watches."""
        self._originals, self._anchors = _divided_of(plan, by), _divided_of(self.plan, by)
        self._clock: Clock = plan.clock
        self._changed = threading.Condition()
        self._shards: dict[int, Part] = {}
        """The parts by shard. The dict is replaced as a whole, because other threads iterate over it."""
        self._held: frozenset[int] = frozenset()
        self._shown: frozenset[int] = frozenset()
        """The shards whose objects are visible in the stores."""
        self._whole: Part | None = None
        """The watches of all objects, if the server ignores hash ranges."""
        self._is_divided_here = False
        self._wanted = self._done = 0
        self._shower: int | None = None
        """The thread that updates the stores. `_wanted` and `_done` count the requested and the finished updates."""
        self._runs: dict[Key, int | None] = {}
        self._gone: set[Key] = set()
        """The keys of objects whose deletion was seen here and for which `on_gone` must be called."""
        self._never = StopToken(clock=plan.clock)

    def attach(self, taken: Taken, *, connect: Callable[[Planned], None], start: Callable[[Share], object],
               expect: Callable[[str], None], arrived: Callable[[str], None], forget: Callable[[Of], None],
               trigger: Callable[[Of], None], draining: StopToken, logger: GuardedLogger) -> None:
        """Connect the rest of the controller. `connect` makes the events of a watch lead to runs; `start` starts a
        watch; `expect` and `arrived` are methods of the gate; `forget` and `trigger` take a function that selects
        keys."""
        self._taken, self._connect, self._start, self._draining = taken, connect, start, draining
        self._expect, self._arrived, self._forget, self._trigger = expect, arrived, forget, trigger
        self._logger = logger

    def begin_anchors(self, planned: Iterable[Planned]) -> None:
        """Find the anchors among `planned`, the watches taken for `plan`. If an anchor delivers objects, this replica
        filters all objects itself."""
        self._anchored = [one for one in planned if any(one.scope.plan is anchor for anchor in self._anchors)]
        for one in self._anchored:
            one.share.watch.when_undivided(self._divide_here)

    # The shard of an object

    def _of_object(self, uid: str, namespace: str | None) -> int:
        return part_of_hash(ShardSelector(self._by).hash_of(uid, namespace), self._parts)

    def is_shown(self, record: Record) -> bool:
        """Whether the object is in a shard that is visible in the stores."""
        return self._of_object(record.uid, record.head.namespace) in self._shown

    def shard_of(self, key: Key) -> int | None:
        """The shard of the object with this key; None if this replica has no such object."""
        if self._by == "namespace":
            return self._of_object("", key[0])
        found: Record | None = None
        whole = self._whole
        parts = [whole] if whole is not None and whole.shown else [
            part for number, part in self._shards.items() if number in self._held]
        for state in (state for part in parts for state in part.states(-1)):
            with state.lock:
                record = state.records.get(key)
            if record is not None and (found is None or _age(found) < _age(record)):
                found = record
        return None if found is None else self._of_object(found.uid, found.head.namespace)

    # As a partition

    @property
    def by(self) -> DividedBy:
        """Like `Partition.by`."""
        return self._by

    @property
    def parts(self) -> int:
        """Like `Partition.parts`."""
        return self._parts

    @property
    def shards(self) -> frozenset[int]:
        """The visible shards. Like `Partition.shards`."""
        return self._group.shards & self._shown

    def begin_in(self, shard: int) -> StopToken | None:
        """Like `Partition.begin_in`."""
        return self._group.begin_in(shard) if shard in self._shown else None

    def end_in(self, shard: int) -> None:
        """Like `Partition.end_in`."""
        self._group.end_in(shard)

    def owned(self, requests: list[ReconcileRequest]) -> list[ReconcileRequest]:
        """Like `Partition.owned`."""
        mine = self.shards
        return [own for request in requests if (own := self._own(request, mine)) is not None]

    def _own(self, request: ReconcileRequest, mine: frozenset[int]) -> ReconcileRequest | None:
        key = request.ref.key
        shard = self.shard_of(key)
        if self._by == "uid" and request.reason in (Reason.OBJECT_DELETED, Reason.OBJECT_GONE):
            if shard is None:  # no object has this name now; a watch of this replica reported the deletion
                if request.reason == Reason.OBJECT_GONE:
                    self._gone.add(key)
                return request
            # The store already has a new object of the same name, perhaps from another watch. So request a run for the
            # new object, if this replica owns it.
            request = ReconcileRequest(request.ref, Reason.OBJECT_UPDATED, None, request.bulk)
        return request if shard in mine else None

    def begin(self, key: Key) -> StopToken | None:
        """Like `Partition.begin`."""
        shard = self.shard_of(key)
        if shard is None:
            if key not in self._gone:
                return None
            self._runs[key] = None
            return self._never
        lost = self._group.begin_in(shard)
        if lost is not None and shard not in self._shown:
            self._group.end_in(shard)
            return None
        if lost is not None:
            self._runs[key] = shard
        return lost

    def shard_of_run(self, key: Key) -> int | None:
        """The shard in which the run of `key` began; None for a run for a deleted object."""
        return self._runs.get(key)

    def end(self, key: Key) -> None:
        """Like `Partition.end`."""
        shard = self._runs.pop(key, None)
        if shard is not None:
            self._group.end_in(shard)

    def went(self, key: Key) -> None:
        """Forget the deleted object `key`: nothing is left to do for it."""
        self._gone.discard(key)

    def listen(self, listener: PartitionListener) -> Callable[[], None]:  # noqa: ARG002 - listens itself
        """Follow the group's shards. Like `Partition.listen`, but with this object as the listener."""
        return self._group.listen(self)

    def stored(self) -> dict[int, tuple[int, int]]:
        """For each shard that has its own watches here: the number of objects and bytes that these watches store."""
        found: dict[int, tuple[int, int]] = {}
        for number, part in self._shards.items():
            states = [one.share.watch.stored for one in part.planned if one.is_first]
            found[number] = sum(len(state.records) for state in states), sum(state.bytes for state in states)
        return found

    # Shards come and go

    def gained(self, of: Any) -> None:
        """Like `Listener.gained`; `of.numbers` are the shards."""
        again: set[int] = set()
        for number in sorted(of.numbers):
            with self._changed:
                self._held |= {number}
                known = self._shards.get(number)
                has_all = self._whole is not None
            if has_all or (known is not None and known.shown):
                again.add(number)
            elif known is not None:
                self._complete(number, known)
            elif not self._draining.is_set():
                self._watch(number)
        if not again:
            return
        with self._changed:
            if self._whole is None or self._whole.shown:
                self._shown |= again
        self._trigger(lambda key: self.shard_of(key) in again)

    def lost(self, of: Any) -> None:
        """Like `Listener.lost`."""
        self._forget(lambda key: self.shard_of(key) in of.numbers)

    def left(self, of: Any) -> None:
        """Like `Listener.left`."""
        with self._changed:
            self._held -= of.numbers
            self._shown -= of.numbers
        self._leave(of.numbers)

    def expected(self, of: Any) -> None:
        """Like `Listener.expected`; `of.numbers` are the shards."""
        with self._changed:
            shards, held = self._shards.keys(), self._held
            is_over = self._whole is not None or self._is_divided_here or self._draining.is_set()
        self._leave(shards - held - of.numbers)
        if not is_over:
            for number in sorted(of.numbers - shards):
                self._watch(number)

    def _leave(self, numbers: Set[int]) -> None:
        """Release the watches of these shards."""
        with self._changed:
            dropped = [part for number, part in self._shards.items() if number in numbers]
            self._shards = {number: part for number, part in self._shards.items() if number not in numbers}
            for part in dropped:
                part.dropped = True
        if self._whole is not None or any(part.shown for part in dropped):
            self._show()
        for part in dropped:
            self._taken.drop_part(part.planned, "its shard is another replica's")

    def _watch(self, number: int) -> None:
        selector = ShardSelector.part(self._by, number, self._parts)
        plans = [replace(plan, config=dataclasses.replace(plan.config, shard=selector)) for plan in self._originals]
        part = Part(plans, self._taken.add_part(plans))
        with self._changed:
            self._shards = {**self._shards, number: part}
        for one in part.planned:
            one.share.watch.when_undivided(self._divide_here)
            one.share.watch.stored.when_ready(partial(self._complete, number, part))
        self._move(part)

    def _move(self, part: Part) -> None:
        if self._draining.is_set():  # the controller has already released its watches
            self._taken.drop_part(part.planned, "the controller ends")
        else:
            for one in part.planned:
                self._start(one.share)

    def _complete(self, number: int, part: Part) -> None:
        with self._changed:
            if part.shown or part.dropped or not part.is_complete or self._whole is not None or \
                    number not in self._held:
                return
            part.shown = True
            self._shown |= {number}
        self._show()
        self._lead_to_runs(part)

    def _lead_to_runs(self, part: Part) -> None:
        for one in part.planned:
            try:
                self._connect(one)
            except RequestError:  # the watch has ended since it was taken
                if not part.dropped and not self._draining.is_set():
                    raise

    # A server that does not divide

    def _divide_here(self) -> None:
        """The server ignores hash ranges, so watch all objects once, and filter them here."""
        with self._changed:
            if self._is_divided_here or self._draining.is_set():
                return
            self._is_divided_here = True
        plans = [replace(plan, subscription=self._of_shown(plan.subscription)) for plan in self._originals]
        kinds = ", ".join(dict.fromkeys(plan.api.resource.full_name for plan in plans))
        self._logger.warning("%s (feature gate ShardedListAndWatch): this replica receives and stores all objects of "
                             "%s, but reconciles only those of its shards", NOT_DIVIDED, kinds)
        whole = Part(plans, self._taken.add_part(plans))
        for name in {one.name for one in whole.planned}:
            self._expect(name)
        with self._changed:
            self._whole = whole
            is_first = not any(part.shown for part in self._shards.values())
        if is_first:
            self._show()
            self._drop_divided()
        for one in whole.planned:
            one.share.watch.stored.when_ready(self._whole_complete)
        self._move(whole)

    def _whole_complete(self) -> None:
        with self._changed:
            whole = self._whole
            assert whole is not None
            if whole.shown or not whole.is_complete:
                return
            whole.shown = True
            self._shown = self._held
        self._show()
        self._lead_to_runs(whole)
        self._drop_divided()
        for name in {one.name for one in whole.planned}:
            self._arrived(name)

    def _drop_divided(self) -> None:
        with self._changed:
            parts, self._shards = [*self._shards.values()], {}
            anchors, self._anchored = self._anchored, []
            for part in parts:
                part.dropped = True
        self._taken.drop_part([one for part in parts for one in part.planned] + anchors, NOT_DIVIDED)
        for one in anchors:
            self._arrived(one.name)

    def _of_shown(self, subscription: Subscription) -> Subscription:
        """`subscription`, limited to objects that are visible in the stores."""
        def requests(event: Event[Any]) -> Iterable[ReconcileRequest]:
            obj = obj_of(event)
            if obj is not None and self._of_object(obj.uid, obj.namespace) not in self._shown:
                return ()
            return subscription(event)

        return OfHeads(requests) if isinstance(subscription, OfHeads) else named_after(subscription, requests)

    # Which objects are visible in the stores

    def _show(self) -> None:
        """Make the objects of the current shards visible in the stores. This calls index functions of the program, so
        no lock is held: one thread updates the stores, and other threads wait for it."""
        me = threading.get_ident()
        with self._changed:
            self._wanted += 1
            mine = self._wanted
            while self._shower is not None and self._shower != me and self._done < mine:
                self._changed.wait(LOOK_SECONDS)  # in real time, because only real threads wait here
            if self._shower == me or self._done >= mine:
                return
            self._shower = me
        try:
            while True:
                with self._changed:
                    seen, whole = self._wanted, self._whole
                    shards = [part for part in self._shards.values() if part.shown]
                only = None if whole is None else self.is_shown
                showing_whole = whole is not None and (whole.shown or not shards)
                for number, anchor in enumerate(self._anchors):
                    if whole is not None and showing_whole:
                        self._taken.show(anchor, whole.states(number), only, apart=True)
                    else:
                        states = [state for part in shards for state in part.states(number)]
                        here = [one.share.watch.stored for one in self._anchored if one.scope.plan is anchor]
                        self._taken.show(anchor, [*here, *states], None, apart=self._by == "namespace")
                with self._changed:
                    self._done = seen
                    if self._wanted == seen:
                        return
        finally:
            with self._changed:
                self._shower = None
                self._changed.notify_all()


class OwnedPart:
    """The `RunPart` for objects divided by hash ranges. Like `Owned`, but the shard is determined when a run begins."""

    def __init__(self, divided: DividedWatches, clock: Clock) -> None:
        self._divided = divided
        self._clock = clock

    def begin(self, run: Run, scope: RunScope) -> bool:
        """Like `RunPart.begin`."""
        lost = self._divided.begin(run.key)
        if lost is None:
            return False
        scope.shard = self._divided.shard_of_run(run.key)
        run.stop = scope.stop = lost if scope.stop is None else FirstOf(scope.stop, lost, clock=self._clock)
        return True

    def end(self, run: Run, outcome: Outcome) -> None:
        """Like `RunPart.end`."""
        self._divided.end(run.key)
        if outcome.delay is None:
            self._divided.went(run.key)


def unless_lost(gone: Execute) -> Execute:
    """Returns a function that calls `gone`, except for an object that is missing because its shard was lost during the
    run."""
    def invoke(run: Run) -> Outcome:
        return SKIPPED if run.stop is not None and run.stop.is_set() else gone(run)

    return invoke


def _divided_of(plan: Plan, by: ShardField) -> list[WatchPlan]:
    """The plans of the divided kinds; the plan of the main kind is the last."""
    related = [known for known in plan.related if known.is_owned and by == "namespace"]
    return [*related, *([plan.main] if isinstance(plan.main, WatchPlan) else [])]


def _anchored(plan: Plan, by: ShardField) -> Plan:
    nothing = ShardSelector(by, ())

    divided = _divided_of(plan, by)

    def anchored(known: Any) -> Any:
        is_divided = any(known is one for one in divided)
        return replace(known, config=dataclasses.replace(known.config, shard=nothing)) if is_divided else known

    return replace(plan, main=anchored(plan.main), related=tuple(map(anchored, plan.related)))


def _age(record: Record) -> int:
    return number_of(record.resource_version) or 0
