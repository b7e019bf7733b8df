"""`Partition`: the objects of a controller that are this replica's, where several replicas divide them.

    a trigger for an object of another replica     is dropped: that one sees the change as well
    a key whose turn comes                         is asked about once more, as it may have gone meanwhile
    objects become this replica's                  all of them are triggered, when their store is complete
    objects are another's from now on              what waits for them is dropped; runs in progress go on, with
                                                   `ctx.stop` set if they are to end at once

Every replica's stores hold everything: only runs, and the writes that they make, are divided.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from kubectl_runtime.core.base.clock import Clock
from kubectl_runtime.core.base.keys import Key
from kubectl_runtime.core.base.scope import CallScope, FirstOf, enter_scope, leave_scope
from kubectl_runtime.core.base.stop import StopToken
from kubectl_runtime.runtime.queue.runs import SKIPPED, Execute, Outcome, Run
from kubectl_runtime.runtime.reconcile.runner import Runner
from kubectl_runtime.runtime.shutdown import Shutdown
from kubectl_runtime.runtime.triggers.inbox import Inbox
from kubectl_runtime.runtime.triggers.triggers import ReconcileRequest, Sink

Of = Callable[[Key], bool]
"""Whether a key is one of those that it is about."""


MOST_SCOPES = 1000
"""Remembered at once; each time that a shard comes makes one."""


class Listener:
    """What a controller does when objects come and go. For one thread at a time. Raises nothing, blocks as long as it
    takes to go through all of its objects."""

    def __init__(self, inbox: Inbox, runner: Runner) -> None:
        self._inbox = inbox
        self._runner = runner

    def gained(self, of: Of) -> None:
        """The objects whose keys `of` is true for are this replica's from now on."""
        self._inbox.trigger_those(of)

    def lost(self, of: Of) -> None:
        """The objects whose keys `of` is true for are not this replica's any more."""
        self._runner.forget(of)


class Partition(Protocol):
    """Which objects are this replica's. Safe to use from any thread."""

    def owned(self, requests: list[ReconcileRequest]) -> list[ReconcileRequest]:
        """Those of `requests` that are for objects of this replica."""

    def run(self, key: Key, body: Callable[[StopToken], Outcome]) -> Outcome | None:
        """`body(lost)`, during which this thread works for `key`, and nobody else's replica does before `lost` is set;
        None when the object is not this replica's."""

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Tell `listener` from now on; returns a function that takes it back."""


def only_owned(partition: Partition | None, schedule: Sink) -> Sink:
    """`schedule` for what is this replica's; without a partition that is everything."""
    if partition is None:
        return schedule

    def schedule_own(requests: list[ReconcileRequest]) -> None:
        if own := partition.owned(requests):
            schedule(own)

    return schedule_own


def while_owned(partition: Partition | None, execute: Execute, shutdown: Shutdown, clock: Clock) -> Execute:
    """`execute` for what is still this replica's; `ctx.stop` and the library's calls see when it is not any more.
    Without a partition `execute` itself."""
    if partition is None:
        return execute

    scopes: dict[StopToken, CallScope] = {}  # the same for all runs of a shard, unless they have times of their own

    def scope_of(lost: StopToken) -> CallScope:
        found = scopes.get(lost)
        if found is None:
            if len(scopes) >= MOST_SCOPES:
                scopes.clear()
            found = scopes[lost] = CallScope(FirstOf(shutdown.aborted, lost, clock=clock), shutdown.cut)
        return found

    def execute_own(run: Run) -> Outcome:
        def within(lost: StopToken) -> Outcome:
            if run.stop is None:
                calls = scope_of(lost)
            else:
                calls = CallScope(FirstOf(run.stop, lost, clock=clock), shutdown.cut)
            run.stop = calls.stop
            entered = enter_scope(calls)
            try:
                return execute(run)
            finally:
                leave_scope(entered)

        outcome = partition.run(run.key, within)
        return SKIPPED if outcome is None else outcome

    return execute_own
