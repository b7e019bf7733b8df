"""`ShardFence`: begins no write of a run whose shard is not, or no more, this replica's. Like that of the elected one
(`elected_client`), by the key of the run that writes:

    a write by a run           sent while the shard of its object is this replica's, and begun before the deadline of
                               the shard's Lease; else NotLeaderError, and nothing was sent. A run that began before its
                               shard was lost stays refused: while it lasts, this replica does not take the shard again
    a write by anything else   sent while this replica's own Lease is good, or while it quits: of a thread that a
                               reconciler has started itself nobody knows for which object it works. In a thread to
                               which the context was copied (`contextvars.copy_context`, `asyncio.to_thread`; Python
                               3.14 can be told to do so for every thread) it is the run's, while that lasts
    a read                     sent

A write by a run is refused through the client from outside as well, not only through `ctx.client`.

Between this check and the first byte at the server is the same window as there, and what it leaves open is left to the
object's resourceVersion: a blind write (apply, merge patch, delete without preconditions) has no fence inside of it.
"""
from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import NamedTuple, TypeVar

from kubectl_runtime.client.api.client import Client
from kubectl_runtime.core.interpreter.contexts import RunVariable
from kubectl_runtime.runtime.manager.elected_client import only_while_leading
from kubectl_runtime.runtime.manager.lease_machine import Phase as LeasePhase
from kubectl_runtime.runtime.sharding.shard_state import Phase, ShardState

T = TypeVar("T")


class _Work(NamedTuple):
    """What a thread works for."""

    fence: ShardFence
    shard: int


_work: RunVariable[_Work] = RunVariable("kubectl_runtime_shard")


class ShardFence:
    """Lets a replica write only for objects whose shard is its own. Safe to use from any thread."""

    def __init__(self, state: Callable[[], ShardState], identity: Callable[[], str], group: str) -> None:
        """`state()`: what is known now. `identity()` of this replica and `group`, `namespace/name`, are for errors."""
        self._state = state
        self._identity = identity
        self._group = group

    def guard(self, client: Client) -> Client:
        """`client`, whose writes are refused as the module says."""
        return client.with_layer(only_while_leading(self._may_write_until, self._describe, client.clock))

    def inside(self, shard: int, body: Callable[[], T]) -> T:
        """`body()`, whose writes are those of a run for an object of `shard`."""
        token = _work.set(_Work(self, shard))
        try:
            return body()
        finally:
            _work.reset(token)

    def _may_write_until(self) -> float | None:
        state, work = self._state(), _work.get()
        if work is not None and work.fence is self:
            return state.writes_until(work.shard)
        if state.phase in (Phase.QUITTING, Phase.GONE):
            return inf
        return state.own.deadline if state.own.phase is LeasePhase.LEADING else None

    def _describe(self) -> str:
        work = _work.get()
        if work is not None and work.fence is self:
            return f"shard {work.shard} of {self._group} is not, or no more, that of {self._identity()}"
        return f"{self._identity()} has no Lease of its own in sharding {self._group}"
