"""`step`: a pure function that returns a Lease candidate's next action for its state, an event, and the time.

    phase       event                                     -> phase     action
    standby     the next request is due                                read the Lease
    standby     read: another holder, not expired                      wait until it expires, at most `retry`
    standby     read: no holder, expired, or our own                   write ourselves as the holder
    standby     read: does not exist                                   create it with us as the holder; wait as above if
                                                                       another holder was seen and has not expired
    standby     written                                   -> leading   wait until `retry` after the write began
    standby     conflict, failed                                       wait
    leading     the next request is due                                renew; read first if the last attempt failed
    leading     written                                                wait until `retry` after the write began
    leading     conflict                                               read; wait if a conflict caused the last read
    leading     read: our own, or no holder                            renew
    leading     read: does not exist                                   create it with us as the holder
    leading     read: another holder                      -> lost      nothing
    leading     failed                                                 wait until `retry` after the request began
    leading     the deadline has passed                   -> lost      nothing; later responses are ignored
    lost        Campaign                                  -> standby   the next request is due
    any         Leave                                     -> ended     nothing
    any         Leave with `release`, may be our own      -> releasing the next request is due
    releasing   the next request is due                                read the Lease
    releasing   read: our own                                          write no holder
    releasing   read: does not exist, or another holder   -> ended
    releasing   written: no holder                        -> ended
    releasing   conflict, failed, written: our own                     read; wait first after a failure or a second
                                                                       conflict
    releasing   the time for the release has passed       -> ended     nothing; the Lease expires by itself

The behaviour follows client-go's `tools/leaderelection`. Another holder's Lease has expired when its record has not
changed for the duration written in it, measured by the local clock. The times in the record are ignored, so the clocks
of candidates need not agree. Every write is guarded by the resourceVersion that was read. This module is stricter than
client-go in five points:

- The deadline is measured from the moment at which the last successful renewal *began*. It therefore passes before
  another candidate may lead, however late the response to the renewal was.
- A Lease is read again before it is released; remembered state is not used.
- A deleted Lease is not free for a candidate that has seen another holder: the holder has not noticed the deletion yet,
  and creates the Lease again. (If the Lease is deleted repeatedly, and a standby never reads the new Lease before the
  next deletion, the standby takes the Lease after a whole lease duration. The old holder's next write is then refused.)
- A Lease whose holder was cleared by hand, for example by `kubectl edit`, is not free either: the previous holder takes
  it back at the next renewal. If the previous holder does not, the Lease becomes free when the last renewal seen by
  this candidate would have expired. A Lease that its holder released is recognized by its duration of 1 s, which
  client-go also writes. (client-go takes a cleared Lease at once, so two candidates lead until the old leader notices.)
- A standby reads the Lease every `retry / 2.2` to `retry` seconds, with client-go's jitter factor, but never waits
  longer than `retry`. It sees each renewal within `retry`, and takes over within `lease + retry`.
"""
from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum
from math import inf

from kubectl_runtime.core.base.threads import seconds
from kubectl_runtime.core.meta.metav1 import format_micro_time
from kubectl_runtime.manager.leases import (
    JITTER,
    Action,
    Answer,
    Campaign,
    Conflict,
    Create,
    Failed,
    Get,
    Input,
    LeaderElection,
    LeaseRecord,
    Leave,
    Now,
    Read,
    Request,
    Tick,
    Update,
    Wait,
    Written,
)

MOST_TRANSITIONS = 2**31 - 1
"""The largest value of leaseTransitions, which has 32 bits. Without this limit, no candidate could take a Lease whose
field was edited to the maximum."""

RELEASED_FOR = 1
"""The duration that a released record states, in seconds, as client-go writes it."""


class Phase(StrEnum):
    """The phase of a candidate."""

    STANDBY = "standby"
    LEADING = "leading"
    LOST = "lost"
    RELEASING = "releasing"
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class LeaseState:
    """The state of a candidate. Other code may read `phase` and `deadline`, but must call `leads_at` to decide whether
    the candidate leads."""

    phase: Phase = Phase.STANDBY
    deadline: float = -inf
    """While leading, the time until which this candidate leads; while releasing, the time at which the release is given
    up."""
    seen: LeaseRecord | None = None
    """The record as it was last read or written."""
    seen_at: float = -inf
    """When the record in `seen` was first seen."""
    asked_at: float | None = None
    """When the pending request began."""
    next_at: float = -inf
    """When the next request is due."""
    known: bool = False
    """Whether `seen` should still be current, so that the Lease can be written without reading it first."""
    reread: bool = False
    """Whether a conflict caused the pending read. After a second conflict in a row the machine waits."""
    may_be_ours: bool = False
    """Whether a write of this candidate, answered or not, may have made it the holder."""
    reason: str = ""
    """The reason for the phase, as text; empty if the phase needs no explanation."""

    def leads_at(self, at: float) -> bool:
        """Whether this candidate leads at that moment."""
        return self.phase is Phase.LEADING and at < self.deadline


@dataclass(frozen=True, slots=True)
class Rules:
    """An election's times in seconds, and the candidate's identity."""

    identity: str
    lease: int
    renew_deadline: float
    retry: float

    @classmethod
    def of(cls, election: LeaderElection, identity: str) -> Rules:
        """The times of `election`, in seconds, for the candidate `identity`."""
        return cls(identity, int(seconds(election.lease)), seconds(election.renew_deadline), seconds(election.retry))

    def request_timeout(self, state: LeaseState | None, at: float) -> float:
        """The timeout of a request in seconds. As in controller-runtime it is half the renew deadline, so that there is
        time for a second attempt. It never extends past `state.deadline`."""
        longest = max(1.0, self.renew_deadline / 2)
        if state is None or state.phase not in (Phase.LEADING, Phase.RELEASING):
            return longest
        return max(0.0, min(longest, state.deadline - at))


def step(rules: Rules, state: LeaseState, happened: Input, now: Now) -> tuple[LeaseState, Action]:
    """Return the next state and the action. A request in the action counts as begun at `now`.

    Only a Tick or an answer causes a request. A Tick causes none while a request is pending. Pure.
    """
    state = expired(state, now)
    match happened:
        case Campaign():
            if state.phase is Phase.LOST:
                state = replace(state, phase=Phase.STANDBY, next_at=now.at, reason="")
            return state, Wait(state.next_at)
        case Leave(release, within):
            return _left(state, release, within, now), Wait(now.at)
        case Tick():
            pass
        case _:
            asked_at, state = state.asked_at, replace(state, asked_at=None)
            assert asked_at is not None, f"{happened} answers nothing"
            return _answered(rules, state, happened, asked_at, now)
    if state.asked_at is not None or state.phase in (Phase.LOST, Phase.ENDED):
        return state, Wait(state.deadline if state.phase in (Phase.LEADING, Phase.RELEASING) else inf)
    if now.at < state.next_at:
        return state, Wait(state.next_at)
    if state.phase is Phase.LEADING and state.known and state.seen is not None:
        return _ask(state, Update(_ours(rules, state.seen, now)), now)
    return _ask(state, Get(), now)


def expired(state: LeaseState, now: Now) -> LeaseState:
    """End the phase of a leading or releasing state whose deadline has passed. Return any other state unchanged."""
    if now.at < state.deadline:
        return state
    if state.phase is Phase.LEADING:
        return replace(state, phase=Phase.LOST, reason="it could not be renewed before the deadline")
    if state.phase is Phase.RELEASING:
        return replace(state, phase=Phase.ENDED, reason="it could not be released in time, and runs out by itself")
    return state


def _left(state: LeaseState, release: bool, within: float, now: Now) -> LeaseState:
    if state.phase in (Phase.RELEASING, Phase.ENDED):
        return state
    if release and state.may_be_ours:
        return replace(state, phase=Phase.RELEASING, deadline=now.at + within, next_at=now.at, reread=False,
                       reason="")
    return replace(state, phase=Phase.ENDED, reason="")


def _answered(rules: Rules, state: LeaseState, answer: Answer, asked_at: float, now: Now) -> tuple[LeaseState, Action]:
    if isinstance(answer, Read):
        state = noted(state, answer.record, now.at)
    elif isinstance(answer, Written):
        state = replace(state, seen=answer.record, seen_at=asked_at, known=True)
    else:
        state = replace(state, known=False)
    match state.phase:
        case Phase.STANDBY:
            return _standing_by(rules, state, answer, asked_at, now)
        case Phase.LEADING:
            return _leading(rules, state, answer, asked_at, now)
        case Phase.RELEASING:
            return _releasing(rules, state, answer, asked_at, now)
    return state, Wait(inf)


def noted(state: LeaseState, record: LeaseRecord | None, at: float) -> LeaseState:
    """Return the state after a read of the Lease; `record` is None if the Lease does not exist. If the Lease was
    deleted, or its holder was cleared by hand, the state keeps the earlier record."""
    if record is None or (state.seen is not None and state.seen.holder and _is_cleared(record)):
        return replace(state, known=False)
    if record == state.seen:  # only the record is compared, since a change of labels is no renewal
        return replace(state, known=True)
    return replace(state, seen=record, seen_at=at, known=True)


def _is_cleared(record: LeaseRecord) -> bool:
    """Whether the record has no holder although no holder has released the Lease."""
    return not record.holder and record.duration != RELEASED_FOR


def _standing_by(rules: Rules, state: LeaseState, answer: Answer, asked_at: float, now: Now
                 ) -> tuple[LeaseState, Action]:
    if isinstance(answer, Read):
        over_at = held_until(rules, state)
        if now.at < over_at:
            return _pause(state, min(jittered(rules, now), over_at))
        # This candidate may already be the holder, if the response to its write was lost or late.
        return _ask(state, _taken(rules, state, answer.record, now), now)
    if isinstance(answer, Written):
        deadline = asked_at + rules.renew_deadline
        if now.at < deadline:
            return _pause(replace(state, phase=Phase.LEADING, deadline=deadline, reread=False), asked_at + rules.retry)
    return _pause(state, jittered(rules, now))


def _leading(rules: Rules, state: LeaseState, answer: Answer, asked_at: float, now: Now) -> tuple[LeaseState, Action]:
    if isinstance(answer, Written):
        return _pause(replace(state, deadline=asked_at + rules.renew_deadline, reread=False), asked_at + rules.retry)
    if isinstance(answer, Read):
        assert state.seen is not None
        if answer.record is None:
            return _ask(state, Create(_ours(rules, state.seen, now)), now)
        if answer.record.holder in (rules.identity, ""):
            return _ask(state, Update(_ours(rules, answer.record, now)), now)
        return replace(state, phase=Phase.LOST, reason=f"{answer.record.holder} holds it"), Wait(inf)
    if isinstance(answer, Conflict) and not state.reread:
        return _ask(replace(state, reread=True), Get(), now)
    return _pause(replace(state, reread=False), asked_at + rules.retry)


def _releasing(rules: Rules, state: LeaseState, answer: Answer, asked_at: float, now: Now
               ) -> tuple[LeaseState, Action]:
    if isinstance(answer, Read):
        if answer.record is None or answer.record.holder != rules.identity:
            return replace(state, phase=Phase.ENDED), Wait(inf)
        date = format_micro_time(now.date)
        free = LeaseRecord("", RELEASED_FOR, date, date, answer.record.transitions)
        return _ask(state, Update(free), now)
    if isinstance(answer, Written) and answer.record.holder != rules.identity:
        return replace(state, phase=Phase.ENDED), Wait(inf)
    if isinstance(answer, Failed) or (isinstance(answer, Conflict) and state.reread):
        return _pause(replace(state, reread=False), asked_at + rules.retry)
    return _ask(replace(state, reread=isinstance(answer, Conflict)), Get(), now)


def held_until(rules: Rules, state: LeaseState) -> float:
    """The time at which another holder's Lease expires, by the records seen so far; `-inf` if no other candidate holds
    it."""
    seen = state.seen
    if seen is None or seen.holder in (rules.identity, ""):
        return -inf
    return state.seen_at + (rules.lease if seen.duration is None else seen.duration)


def jittered(rules: Rules, now: Now) -> float:
    """The time of the next read, with jitter."""
    return now.at + rules.retry * (1 + JITTER * now.chance) / (1 + JITTER)


def _taken(rules: Rules, state: LeaseState, found: LeaseRecord | None, now: Now) -> Request:
    """The request that makes this candidate the holder. The request adds a transition if this candidate was not the
    holder before."""
    seen = state.seen
    if seen is not None and seen.holder == rules.identity:
        record = _ours(rules, seen, now)
    else:
        date = format_micro_time(now.date)
        transitions = 0 if seen is None else min(seen.transitions + 1, MOST_TRANSITIONS)
        record = LeaseRecord(rules.identity, rules.lease, date, date, transitions)
    return Create(record) if found is None else Update(record)


def _ours(rules: Rules, before: LeaseRecord, now: Now) -> LeaseRecord:
    date = format_micro_time(now.date)
    return LeaseRecord(rules.identity, rules.lease, before.acquire_time or date, date, before.transitions)


def _ask(state: LeaseState, request: Request, now: Now) -> tuple[LeaseState, Action]:
    writes = not isinstance(request, Get)
    return replace(state, asked_at=now.at, may_be_ours=state.may_be_ours or writes), request


def _pause(state: LeaseState, until: float) -> tuple[LeaseState, Action]:
    return replace(state, next_at=until), Wait(until)
