"""The step function of a candidate for a Lease: each row of its table, and what holds however things go wrong."""
from __future__ import annotations

import random
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubectl_runtime.manager.lease_machine import LeaseState, Phase, Rules, step
from kubectl_runtime.manager.leases import (
    Action,
    Campaign,
    Conflict,
    Create,
    Failed,
    Get,
    Input,
    LeaseRecord,
    Leave,
    Now,
    Read,
    Tick,
    Update,
    Wait,
    Written,
)
from kubectl_runtime.testing.clock import EPOCH
from tests.manager.lease_world import Faults, World

ME = Rules("me", 15, 10, 2)
SKEW = timedelta(days=400)


class One:
    """One candidate, told what happens at which second of its clock."""

    def __init__(self, rules: Rules = ME) -> None:
        self.rules = rules
        self.state = LeaseState()
        self.action: Action = Wait(0)

    def at(self, at: float, happened: Input, chance: float = 0.0) -> Action:
        now = Now(at, EPOCH + SKEW + timedelta(seconds=at), chance)
        self.state, self.action = step(self.rules, self.state, happened, now)
        return self.action

    def leading_since(self, at: float) -> One:
        """Leads by a Lease that it has created."""
        self.at(at, Tick())
        created = self.at(at, Read(None))
        assert isinstance(created, Create)
        self.at(at, Written(created.record))
        assert self.state.phase is Phase.LEADING
        return self


def held(holder: str = "other", renewed: str = "2026-01-01T00:00:00.000000Z", duration: int | None = 15) -> LeaseRecord:
    return LeaseRecord(holder, duration, "2026-01-01T00:00:00.000000Z", renewed, 4)


def written(action: Action) -> LeaseRecord:
    assert isinstance(action, Create | Update)
    return action.record


def test_a_lease_that_does_not_exist_is_created() -> None:
    one = One()
    assert one.at(0, Tick()) == Get()
    record = written(one.at(0.5, Read(None)))
    assert record == LeaseRecord("me", 15, "2027-02-05T00:00:00.500000Z", "2027-02-05T00:00:00.500000Z", 0)
    assert one.at(1, Written(record)) == Wait(2.5)  # `retry` after the request began
    assert (one.state.phase, one.state.deadline) == (Phase.LEADING, 10.5)
    assert one.state.leads_at(10.4)
    assert not one.state.leads_at(10.5)


@pytest.mark.parametrize("free", [
    LeaseRecord("", 1, None, None, 3), LeaseRecord(), held("", duration=None), held("", duration=3600)])
def test_a_free_lease_is_taken_at_once_and_counts_a_transition(free: LeaseRecord) -> None:
    one = One()
    one.at(0, Tick())
    record = written(one.at(0, Read(free)))
    assert (record.holder, record.transitions, record.duration) == ("me", free.transitions + 1, 15)


@pytest.mark.parametrize("transitions", [2**31 - 2, 2**31 - 1])
def test_a_lease_that_counts_no_further_is_taken_all_the_same(transitions: int) -> None:
    one = One()
    one.at(0, Tick())
    assert written(one.at(0, Read(replace(held(""), transitions=transitions)))).transitions == 2**31 - 1


def test_the_duration_in_the_record_counts_not_ones_own() -> None:
    one = One(Rules("me", 10, 8, 2))
    one.at(0, Tick())
    at = 0.0
    while isinstance(action := one.at(at, Read(held(duration=30)), chance=0.5), Wait):
        at = action.until
        assert one.at(at, Tick()) == Get()
    assert at == 30
    assert written(action).holder == "me"


def test_a_record_that_says_no_duration_gets_ones_own() -> None:
    one = One()
    one.at(0, Tick())
    assert isinstance(one.at(0, Read(held(duration=None))), Wait)
    one.at(14.9, Tick())
    assert isinstance(one.at(14.9, Read(held(duration=None))), Wait)
    one.at(15, Tick())
    assert isinstance(one.at(15, Read(held(duration=None))), Update)


def test_a_holder_whose_clock_is_ten_minutes_behind_is_left_alone_while_its_record_changes() -> None:
    one = One()
    for second in range(0, 600, 2):
        one.at(second, Tick())
        renewed = f"2025-12-31T23:{second // 60:02}:{second % 60:02}.0Z"
        assert isinstance(one.at(second, Read(held(renewed=renewed))), Wait)


def test_a_holder_whose_clock_is_ten_minutes_ahead_is_followed_when_its_record_stands_still() -> None:
    one = One()
    ahead = held(renewed="2030-01-01T00:00:00.000000Z")
    one.at(0, Tick())
    assert isinstance(one.at(0, Read(ahead)), Wait)
    one.at(15, Tick())
    assert isinstance(one.at(15, Read(ahead)), Update)


def test_a_standby_waits_at_most_retry_and_not_past_the_end_of_what_it_has_seen() -> None:
    one = One()
    one.at(0, Tick())
    assert one.at(0, Read(held()), chance=0.0) == Wait(pytest.approx(2 / 2.2))
    one.at(1, Tick())
    assert one.at(1, Read(held()), chance=1.0) == Wait(pytest.approx(3))
    one.at(14, Tick())
    assert one.at(14, Read(held()), chance=1.0) == Wait(15)


def test_a_deleted_lease_is_not_free_for_whoever_has_seen_another_hold_it() -> None:
    one = One()
    one.at(0, Tick())
    one.at(0, Read(held()))
    one.at(2, Tick())
    assert isinstance(one.at(2, Read(None)), Wait)
    one.at(15, Tick())
    record = written(one.at(15, Read(None)))
    assert (record.holder, record.transitions) == ("me", 5)


def test_who_loses_the_race_to_create_stands_by() -> None:
    one = One()
    one.at(0, Tick())
    assert isinstance(one.at(0, Read(None)), Create)
    assert isinstance(one.at(0, Conflict()), Wait)
    assert one.state.phase is Phase.STANDBY


def test_ones_own_lease_is_taken_at_once_without_a_transition_when_the_answer_was_lost() -> None:
    one = One()
    one.at(0, Tick())
    record = written(one.at(0, Read(LeaseRecord("", 1, None, None, 3))))
    one.at(5, Failed())
    one.at(6, Tick())
    again = written(one.at(6, Read(record)))
    assert (again.holder, again.transitions, again.acquire_time) == ("me", 4, record.acquire_time)


def test_an_answer_that_comes_after_the_deadline_makes_nobody_a_leader() -> None:
    one = One()
    one.at(0, Tick())
    record = written(one.at(0, Read(None)))
    one.at(10, Written(record))
    assert one.state.phase is Phase.STANDBY


def test_renewing_is_one_request_and_keeps_the_beginning() -> None:
    one = One().leading_since(0)
    first = one.state.seen
    record = written(one.at(2, Tick()))
    assert first is not None
    assert (record.acquire_time, record.transitions) == (first.acquire_time, 0)
    assert record.renew_time == "2027-02-05T00:00:02.000000Z"
    assert one.at(3, Written(record)) == Wait(4)
    assert one.state.deadline == 12


def test_a_failed_renewal_is_tried_again_until_the_deadline_and_counts_from_its_beginning() -> None:
    one = One().leading_since(0)
    one.at(2, Tick())
    assert one.at(2.1, Failed()) == Wait(4)
    assert one.at(4, Tick()) == Get()  # the write may have been carried out
    assert one.at(9.0, Failed()) == Wait(6)
    assert one.at(9.0, Tick()) == Get()
    assert one.state.leads_at(9.9)
    one.at(10, Failed())
    assert (one.state.phase, one.state.reason) == (Phase.LOST, "it could not be renewed before the deadline")


def test_three_failures_within_the_deadline_do_no_harm() -> None:
    one = One().leading_since(0)
    one.at(2, Tick())
    for second in (2.1, 4.1, 6.1):
        one.at(second, Failed())
        assert one.at(second + 1.9, Tick()) == Get()
    record = written(one.at(8.1, Read(one.state.seen)))
    one.at(8.2, Written(record))
    assert (one.state.phase, one.state.deadline) == (Phase.LEADING, 18.1)


def test_a_conflict_with_ones_own_newer_version_is_renewed_at_once() -> None:
    one = One().leading_since(0)
    one.at(2, Tick())
    assert one.at(2.1, Conflict()) == Get()
    assert isinstance(one.at(2.2, Read(replace(one.state.seen or held(), renew_time="later"))), Update)


def test_a_second_conflict_in_a_row_waits() -> None:
    one = One().leading_since(0)
    one.at(2, Tick())
    one.at(2.1, Conflict())
    one.at(2.2, Read(one.state.seen))
    assert one.at(2.3, Conflict()) == Wait(4.2)


def test_a_conflict_with_another_holder_ends_the_leadership_now() -> None:
    one = One().leading_since(0)
    one.at(2, Tick())
    one.at(2.1, Conflict())
    assert one.at(2.2, Read(held())) == Wait(float("inf"))
    assert (one.state.phase, one.state.reason) == (Phase.LOST, "other holds it")


def test_a_leader_whose_lease_was_deleted_creates_it_anew() -> None:
    one = One().leading_since(0)
    one.at(2, Tick())
    one.at(2.1, Conflict())
    record = written(one.at(2.2, Read(None)))
    assert (record.holder, record.transitions) == ("me", 0)
    one.at(2.3, Conflict())  # another was faster
    assert one.at(4.2, Tick()) == Get()
    one.at(4.3, Read(held()))
    assert one.state.phase is Phase.LOST


def test_a_leader_whose_lease_was_emptied_by_mistake_takes_it_back() -> None:
    one = One().leading_since(0)
    one.at(2, Tick())
    one.at(2.1, Conflict())
    assert isinstance(one.at(2.2, Read(LeaseRecord("", 1))), Update)


def test_what_was_lost_stays_lost_until_somebody_campaigns() -> None:
    one = One().leading_since(0)
    assert one.at(10, Tick()) == Wait(float("inf"))
    assert one.at(1000, Tick()) == Wait(float("inf"))
    one.at(1000, Campaign())
    assert one.state.phase is Phase.STANDBY
    assert one.at(1000, Tick()) == Get()
    assert isinstance(one.at(1000, Read(one.state.seen)), Update)


def test_campaigning_changes_nothing_for_a_leader() -> None:
    one = One().leading_since(0)
    state = one.state
    one.at(1, Campaign())
    assert one.state == state


CLEARED = [held(""), held("", renewed="2026-01-01T00:00:02.000000Z"), LeaseRecord(), held("", duration=3600),
           replace(held(""), acquire_time=None, renew_time=None)]
"""A holder that was taken out by hand, and nobody has released."""


@pytest.mark.parametrize("cleared", CLEARED)
def test_a_lease_that_was_cleared_by_hand_is_not_free_before_its_holder_would_have_lost_it(cleared: LeaseRecord
                                                                                          ) -> None:
    one = One()
    one.at(0, Tick())
    one.at(0, Read(held()))
    at = 2.0
    one.at(at, Tick())
    while isinstance(action := one.at(at, Read(cleared), chance=0.5), Wait):
        assert at < 15
        at = action.until
        assert one.at(at, Tick()) == Get()
    assert at == 15
    assert (written(action).holder, written(action).transitions) == ("me", 5)


@pytest.mark.parametrize("cleared", CLEARED)
def test_the_holder_of_a_cleared_lease_takes_it_back_and_the_others_see_that(cleared: LeaseRecord) -> None:
    standby = One()
    standby.at(0, Tick())
    standby.at(0, Read(held()))
    standby.at(2, Tick())
    assert isinstance(standby.at(2, Read(cleared)), Wait)
    standby.at(4, Tick())
    assert isinstance(standby.at(4, Read(held(renewed="2026-01-01T00:00:04.000000Z"))), Wait)
    standby.at(16, Tick())
    assert isinstance(standby.at(16, Read(held(renewed="2026-01-01T00:00:04.000000Z"))), Wait), "renewed at 4"


def test_a_released_lease_is_taken_at_once_by_one_that_has_seen_its_holder() -> None:
    one = One()
    one.at(0, Tick())
    one.at(0, Read(held()))
    one.at(2, Tick())
    assert written(one.at(2, Read(held("", duration=1)))).holder == "me"


def test_a_release_reads_first_and_writes_nobody_with_the_transitions_kept() -> None:
    one = One().leading_since(0)
    one.at(1, Leave(True, 10))
    assert not one.state.leads_at(1)
    assert one.at(1, Tick()) == Get()
    action = one.at(1.1, Read(replace(one.state.seen or held(), transitions=7)))
    record = written(action)
    assert (record.holder, record.duration, record.transitions) == ("", 1, 7)
    one.at(1.2, Written(record))
    assert one.state.phase is Phase.ENDED


@pytest.mark.parametrize("found", [None, held(), LeaseRecord()])
def test_a_release_leaves_alone_what_is_not_ones_own_any_more(found: LeaseRecord | None) -> None:
    one = One().leading_since(0)
    one.at(1, Leave(True, 10))
    one.at(1, Tick())
    one.at(1.1, Read(found))
    assert one.state.phase is Phase.ENDED


def test_a_release_after_a_pause_beyond_the_lease_does_not_wipe_the_successor() -> None:
    one = One().leading_since(0)
    one.at(100, Leave(True, 10))
    assert one.at(100, Tick()) == Get()
    one.at(100, Read(held("successor")))
    assert one.state.phase is Phase.ENDED


def test_a_release_retries_conflicts_and_failures_until_its_time_is_up() -> None:
    one = One().leading_since(0)
    one.at(1, Leave(True, 10))
    one.at(1, Tick())
    one.at(1.1, Read(one.state.seen))
    assert one.at(1.2, Conflict()) == Get()
    one.at(1.3, Read(one.state.seen))
    assert one.at(1.4, Failed()) == Wait(3.3)
    assert one.at(3.3, Tick()) == Get()
    one.at(11, Failed())
    assert one.state.phase is Phase.ENDED
    assert "runs out by itself" in one.state.reason


def test_the_answer_to_a_renewal_is_not_taken_for_that_of_the_release() -> None:
    one = One().leading_since(0)
    renewal = written(one.at(2, Tick()))
    one.at(2.1, Leave(True, 10))
    assert one.at(2.2, Written(renewal)) == Get()
    assert one.state.phase is Phase.RELEASING


def test_leaving_without_release_or_without_ever_having_written_ends_at_once() -> None:
    one = One().leading_since(0)
    one.at(1, Leave(False, 10))
    other = One()
    other.at(0, Tick())
    other.at(0, Read(held()))
    other.at(1, Leave(True, 10))
    assert (one.state.phase, other.state.phase) == (Phase.ENDED, Phase.ENDED)


# --- however things go wrong ---

SHORT = (2, 1.5, 0.3)


def world_of(seed: int, faults: Faults, size: int, *, fastest: float = 1.25) -> World:
    world = World(seed, faults, fastest)
    for number in range(size):
        world.join(Rules(f"c{number}", *SHORT))
    return world


seeds = st.integers(0, 2**32)
quick = settings(max_examples=20, deadline=None)


@quick
@given(seeds, st.integers(2, 4), st.floats(0, 0.4), st.floats(0, 0.4), st.floats(0, 0.3), st.floats(0, 1))
def test_never_two_lead_and_when_the_faults_end_one_does(seed: int, size: int, lost_request: float, lost_answer: float,
                                                         refused: float, delay: float) -> None:
    world = world_of(seed, Faults(lost_request, lost_answer, refused, delay), size)
    world.run(40)
    assert world.overlaps == []
    world.faults = Faults()
    world.run(2 + 2 * 0.3 + 0.75 + 1)  # the lease, a request that hangs until its timeout, and the next looks
    assert len(world.leaders()) == 1


@quick
@given(seeds)
def test_never_two_lead_while_leaders_die_leave_and_come_back(seed: int) -> None:
    world = world_of(seed, Faults(0.1, 0.1, 0.1, 0.2), 3)
    dice = random.Random(seed)
    numbers = iter(range(1000))
    for _ in range(12):
        world.run(dice.uniform(0, 4))
        one = dice.choice(world.candidates)
        if dice.random() < 0.5:
            one.die()
        else:
            one.leave(dice.random() < 0.8)
        world.candidates = [other for other in world.candidates if other.alive and other.state.phase is not Phase.ENDED]
        world.join(Rules(f"late{next(numbers)}", *SHORT))
    assert world.overlaps == []


@quick
@given(seeds)
def test_never_two_lead_though_the_lease_is_deleted_again_and_again(seed: int) -> None:
    world = world_of(seed, Faults(longest_delay=0.1), 3)
    world.run(3)  # everybody has seen who holds it
    deletions = 0
    for _ in range(10):
        world.run(world.random.uniform(1, 3))  # time enough for each of them to see that it is there again
        deletions += world.record is not None
        world.record = None
    world.run(3)
    assert deletions > 4
    assert world.overlaps == []
    assert len(world.leaders()) == 1
    assert sum(len(one.terms) for one in world.candidates) == 1  # the holder has kept it all the time


@quick
@given(seeds)
def test_a_takeover_comes_within_lease_and_retry(seed: int) -> None:
    world = world_of(seed, Faults(longest_delay=0.0), 3, fastest=1.0)
    world.run(5 + world.random.uniform(0, 1))
    leader, = (one for one in world.candidates if one.leads)
    died = world.time
    leader.die()
    world.run(10)
    taken = min(term for one in world.candidates if one is not leader for term in one.terms)
    assert taken - died <= 2 + 0.3 + 1e-6


@quick
@given(seeds)
def test_a_released_lease_is_taken_within_retry(seed: int) -> None:
    world = world_of(seed, Faults(longest_delay=0.0), 3, fastest=1.0)
    world.run(5)
    leader, = (one for one in world.candidates if one.leads)
    left = world.time
    leader.leave(release=True)
    world.run(5)
    taken = min(term for one in world.candidates if one is not leader for term in one.terms)
    assert taken - left <= 0.3 + 1e-6


def test_a_leader_costs_one_request_for_each_retry() -> None:
    world = world_of(1, Faults(longest_delay=0.0), 1, fastest=1.0)
    world.run(1)
    before = world.requests
    world.run(30)
    assert world.requests - before == pytest.approx(100, abs=1)


def test_a_server_that_is_down_ends_the_leadership_and_the_first_answer_begins_the_next() -> None:
    world = world_of(1, Faults(), 2, fastest=1.0)
    world.run(3)
    assert len(world.leaders()) == 1
    world.faults = Faults(refused=1.0)
    world.run(1.6)
    assert world.leaders() == []
    world.run(100)
    world.faults = Faults()
    world.run(1)
    assert len(world.leaders()) == 1
