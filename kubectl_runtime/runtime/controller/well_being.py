"""`WellBeing`: whether a running controller is ready, and whether it is alive.

    not ready   a store has never been complete, a watch keeps failing, or the controller stops: what it knows is not
                all, or gets old. Comes and goes with the API server
    not alive   a thread that moves it on is stuck, or died of a defect, which only a new process heals. An API server
                that does not answer, and reconcilers that take long, even all at once, are no reason: a restart
                would not help, and would lose work. Of those the log tells (see `blocked_log`)

That a thread is stuck is seen by its progress on the controller's clock: a dispatcher that neither waits nor ends its
turn, a watch whose step takes longer than any request and any silence may.
"""
from __future__ import annotations

import os
from typing import Any

from kubectl_runtime.runtime.controller.assembly import Assembly
from kubectl_runtime.runtime.usercode import described
from kubectl_runtime.runtime.watcher.watch_state import WatchState

DISPATCHER_LIMIT = 60.0
"""Seconds that the dispatcher may be late. Its turn takes microseconds; but it starts threads and logs, and a machine
can be overloaded. A kubelet asks three times, 10 s apart, before it restarts, so that one late answer after the machine
slept does no harm."""


class WellBeing:
    """Whether a running controller is ready and alive: the part of `Running` that says so. Nothing here blocks."""

    error: BaseException | None
    _assembly: Assembly[Any]
    _process: int

    @property
    def _is_elsewhere(self) -> bool:
        """Whether this is the child of a fork: the threads are its parent's, and to stop would end the connections that
        both share."""
        return os.getpid() != self._process

    @property
    def assembly(self) -> Assembly[Any]:
        """Its parts, to look at; for the library."""
        return self._assembly

    @property
    def watch_state(self) -> WatchState | None:
        """What the watch of the main objects does, since when, and its error; None when they come from a given stream.
        """
        return self._assembly.store.watch_state

    @property
    def watch_states(self) -> dict[str, WatchState]:
        """What each watch does, since when, and its error, by what it watches, in words."""
        return {name: watch.state for name, watch in self._assembly.watches.items()}

    @property
    def is_ready(self) -> bool:
        """Whether all stores are complete, reconciling has begun, and no watch is in trouble."""
        return not self.why_not_ready

    @property
    def why_not_ready(self) -> str:
        """Why it is not ready: what is missing or failing, for people; empty when it is ready."""
        assembly = self._assembly
        if self._is_elsewhere:
            return "it runs in the process that this one was forked from"
        if assembly.shutdown.draining.is_set():
            return f"it stops: {assembly.shutdown.draining.reason}"
        if not assembly.gate.is_open:
            return f"it waits for {assembly.gate.missing()}"
        troubles = ((name, watch.trouble) for name, watch in assembly.watches.items())
        return "; ".join(f"{name} {trouble}" for name, trouble in troubles if trouble)

    @property
    def why_stores_not_ready(self) -> dict[str, str]:
        """Each store that it reads, by what it holds, such as `pods`: why it is not ready, empty when it is."""
        assembly = self._assembly
        missing = {} if assembly.gate.is_open else assembly.gate.troubles()
        return {name: f"not complete: {missing[name]}" if name in missing else watch.trouble
                for name, watch in assembly.watches.items()}

    @property
    def why_not_working(self) -> str:
        """What of `why_not_ready` is not about one of its stores; empty when there is nothing."""
        stores = self.why_stores_not_ready
        reason = self.why_not_ready
        return "" if any(stores.values()) and not self._is_elsewhere and \
            not self._assembly.shutdown.draining.is_set() else reason

    @property
    def why_not_alive(self) -> str:
        """What only a new process can heal; empty when all is well, and while it stops because it was asked to. Takes
        no lock that a stuck thread could hold."""
        if self.error is not None:
            return f"it ended by itself: {described(self.error)}"
        assembly = self._assembly
        if assembly.shutdown.draining.is_set():
            return ""
        late = assembly.runner.dispatcher_late()
        stuck = [f"its dispatcher is stuck since {late:.0f} s"] if late > DISPATCHER_LIMIT else []
        stuck += [f"the watch of {name} is stuck since {watch.late:.0f} s"
                  for name, watch in assembly.watches.items() if watch.late]
        return "; ".join(stuck)
