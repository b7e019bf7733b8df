"""Replicas that share work, on the step function alone: every shard has one owner, soon after whatever happened."""
from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubectl_runtime.manager.lease_machine import LeaseState
from kubectl_runtime.manager.leases import Tick, Wait
from kubectl_runtime.manager.shard_machine import Phase, step
from kubectl_runtime.manager.sharding import FORGOTTEN_AFTER, Listed, Sight
from tests.manager.shard_world import LEASE, RETRY, SLACK, Faults, Replica, World

SETTLED = RETRY + RETRY + SLACK
"""Seconds after which a change that nobody has died of is over: it is seen by the next list, and what was given up by
the next but one."""


def world_of(size: int, *, seed: int = 1, runs: float = 0.0, faults: Faults | None = None, shards: int = 16) -> World:
    """A world in which so many replicas share already."""
    world = World(seed, faults or Faults(), runs)
    for _ in range(size):
        world.join(shards)
    world.run(2 * SETTLED + runs)
    assert world.unowned() == []
    return world


def test_a_single_replica_takes_everything_at_once() -> None:
    world = World(1)
    world.join()
    world.run(SLACK)
    assert world.unowned() == []


@pytest.mark.parametrize("size", [1, 3, 4, 5, 16])
def test_each_shard_has_one_owner_and_nobody_has_two_more_than_another(size: int) -> None:
    world = world_of(size)
    loads = world.loads()
    assert sum(loads) == 16
    assert loads[-1] - loads[0] <= 1
    assert world.faulty == []


def test_with_more_replicas_than_shards_some_have_nothing_to_do() -> None:
    assert world_of(5, shards=3).loads() == [0, 0, 1, 1, 1]


@pytest.mark.parametrize("size", [1, 2, 4, 5])
@pytest.mark.parametrize("seed", range(3))
def test_a_replica_that_joins_gets_its_part_after_the_runs_of_those_who_give_it_up(size: int, seed: int) -> None:
    world = world_of(size, seed=seed, runs=3.0)
    world.join()
    world.run(SETTLED + world.runs)
    loads = world.loads()
    assert loads[-1] - loads[0] <= 1
    assert (world.unowned(), world.faulty) == ([], [])


@pytest.mark.parametrize("size", [2, 3, 4, 8])
@pytest.mark.parametrize("seed", range(2))
def test_the_shards_of_a_dead_replica_are_taken_within_lease_and_retry(size: int, seed: int) -> None:
    world = world_of(size, seed=seed)
    world.run(world.random.uniform(0, 3 * RETRY))
    victim = world.random.choice(world.replicas)
    victim.die()
    world.run(LEASE + RETRY + SLACK)
    assert (world.unowned(), world.faulty) == ([], [])


def expected_in(world: World) -> dict[str, frozenset[int]]:
    """What each living replica expects."""
    return {one.name: one.state.expected(one.rules) for one in world.living()}


def ranged_world(size: int, seed: int = 1, shards: int = 16, by: str = "uid") -> World:
    world = World(seed)
    for _ in range(size):
        world.join(shards, by=by)
    world.run(4 * SETTLED)
    assert world.unowned() == []
    return world


@pytest.mark.parametrize(("size", "deaths", "shards"), [(2, 1, 16), (4, 1, 16), (4, 3, 16), (5, 2, 7)])
@pytest.mark.parametrize("seed", range(2))
def test_who_takes_a_dead_replicas_shard_expects_it_in_time_to_list_it(size: int, deaths: int, shards: int,
                                                                       seed: int) -> None:
    world = ranged_world(size, seed, shards)
    for victim in world.random.sample(world.replicas, deaths):
        world.run(world.random.uniform(0, 0.4))
        victim.die()
    orphans = set(world.unowned())
    assert not any(expected_in(world).values())
    expected_at: dict[tuple[str, int], float] = {}
    died, taken = world.time, dict[tuple[str, int], float]()
    while orphans - {n for _, n in taken}:
        world.run(0.25)
        assert world.time < died + LEASE + RETRY + SLACK
        for one in world.living():
            expected_at.update({(one.name, n): world.time for n in one.state.expected(one.rules)
                                if (one.name, n) not in expected_at})
            taken.update({(one.name, n): world.time for n in orphans & one.state.at_work if (one.name, n) not in taken})
    foreseen = [each for each in taken if each in expected_at]
    assert all(taken[each] - expected_at[each] >= 1.0 for each in foreseen), "time to list it"
    assert len(foreseen) == len(taken)
    assert len(expected_at) == len(taken) or deaths > 1, "nobody else has listed it"
    assert world.faulty == []
    world.run(2 * RETRY)
    assert not any(expected_in(world).values())


def outage(world: World) -> None:
    world.faults.lost_request = 1.0


def silence(world: World) -> None:
    world.run(5)


def goodbye(world: World) -> None:
    world.replicas[0].quit()


@pytest.mark.parametrize(("by", "happens"), [("uid", silence), ("namespace", outage), ("uid", goodbye)])
def test_nothing_is_expected_from_those_who_live_or_while_nothing_is_known(by: str, happens: Any) -> None:
    world = ranged_world(3, by=by)
    happens(world)
    for _ in range(30):
        world.run(0.5)
        assert not any(expected_in(world).values())


def test_a_frozen_replicas_shards_are_expected_until_it_renews_them() -> None:
    world = ranged_world(3)
    frozen = world.replicas[0]
    frozen.suspend()
    world.run(LEASE - 1)
    assert any(expected_in(world).values())
    frozen.resume()
    world.run(2 * RETRY)
    assert not any(expected_in(world).values())
    assert (world.unowned(), world.faulty) == ([], [])


def test_by_name_nothing_is_expected_as_stores_hold_everything() -> None:
    world = ranged_world(3, by="name")
    world.replicas[0].die()
    for _ in range(40):
        world.run(0.5)
        assert not any(expected_in(world).values())


@pytest.mark.parametrize("seed", range(2))
def test_the_shards_of_all_but_one_are_taken_by_the_last(seed: int) -> None:
    world = world_of(4, seed=seed)
    for victim in world.replicas[1:]:
        world.run(world.random.uniform(0, RETRY))
        victim.die()
    world.run(LEASE + RETRY + SLACK)
    assert (world.unowned(), world.loads(), world.faulty) == ([], [16], [])


@pytest.mark.parametrize("seed", range(2))
def test_a_replica_that_quits_gives_each_shard_up_when_its_runs_have_ended(seed: int) -> None:
    world = world_of(4, seed=seed, runs=3.0)
    leaver = world.replicas[1]
    leaver.quit()
    world.run(SETTLED + world.runs)
    assert (world.unowned(), world.faulty) == ([], [])
    assert leaver.state.phase is Phase.GONE
    assert leaver.rules.own_name not in world.leases


def test_a_run_that_does_not_end_keeps_its_shard_for_the_grace_period_and_no_write_gets_through_after() -> None:
    world = World(1)
    first = world.join(grace=25)
    world.run(SLACK)
    first.busy = [1] * 16  # none of them ever ends
    world.join()
    world.run(SETTLED)
    assert world.loads() == [0, 8]  # the others are given up, but not free
    held = first.state.held
    assert len(held) == 16
    world.run(25)
    assert [first.state.writes_until(n) is None for n in sorted(held)].count(True) == 8
    world.run(LEASE + RETRY + SLACK)
    assert (world.unowned(), world.faulty) == ([], [])
    assert world.loads() == [8, 8]


@pytest.mark.parametrize("busy", [range(8, 16), range(8), range(1, 16, 2), [3, 15]], ids=repr)
def test_shards_without_a_run_are_given_up_before_busy_ones(busy: Iterable[int]) -> None:
    world = World(1)
    first = world.join()
    world.run(SLACK)
    busy = set(busy)
    first.busy = [int(shard in busy) for shard in range(16)]
    world.join()
    world.run(SETTLED)
    kept = {shard for shard in range(16) if first.works(shard)}
    assert busy <= kept
    assert first.state.draining == {}, "nothing has to wait for a run"
    assert (world.loads(), world.unowned()) == ([8, 8], [])


@pytest.mark.parametrize(("seen_at", "newer"), [(-1.0, False), (0.0, False), (0.5, True)])
def test_a_list_does_not_overwrite_what_a_request_has_seen_since_it_began(seen_at: float, newer: bool) -> None:
    world = world_of(2)
    replica = world.replicas[0]
    shard = next(n for n in range(16) if not replica.works(n))
    sights = tuple(Sight(name, str(one.version), one.shard, one.shards, one.record)
                   for name, one in world.leases.items())
    listed = next(sight.record for sight in sights if sight.shard == shard)
    assert listed is not None
    known = replace(listed, holder="another one")
    now = replica.now
    lease = LeaseState(seen=known, seen_at=now.at - 1 + seen_at)
    shards = tuple(lease if n == shard else old for n, old in enumerate(replica.state.shards))
    state = replace(replica.state, shards=shards, list_asked=now.at - 1)
    state, _ = step(replica.rules, state, Listed(sights), now, replica.busy)
    assert state.shards[shard].seen == (known if newer else listed)


def test_a_shard_that_is_given_up_is_kept_if_there_is_room_again() -> None:
    world = World(1)
    first = world.join()
    world.run(SLACK)
    first.busy = [1] * 16
    second = world.join()
    world.run(SETTLED)
    assert len(first.state.draining) == 8
    second.quit()
    world.run(SETTLED)
    assert (first.state.draining, world.unowned()) == ({}, [])


@pytest.mark.parametrize("seed", range(3))
def test_a_replica_that_was_frozen_beyond_its_leases_works_for_nothing_when_it_goes_on(seed: int) -> None:
    world = world_of(3, seed=seed, runs=1.0)
    sleeper = world.replicas[seed % 3]
    sleeper.suspend()
    world.run(LEASE + RETRY + SLACK + world.random.uniform(0, 20))
    assert sleeper.active() == []
    others = [one for one in world.replicas if one is not sleeper]
    assert sum(len(one.state.at_work) for one in others) == 16
    sleeper.resume()
    world.run(SETTLED + LEASE)
    assert (world.unowned(), world.faulty) == ([], [])
    assert world.loads() == [5, 5, 6]


def test_one_that_comes_after_a_death_counts_as_the_others_do() -> None:
    """A dead replica's own Lease is deleted by those who have missed it, so that it is not new to anybody."""
    world = world_of(4)
    world.replicas[0].die()
    world.run(LEASE + RETRY + SLACK + RETRY)
    assert len([name for name in world.leases if "replica" in name]) == 3
    world.join()
    world.run(SETTLED)
    assert (world.unowned(), world.loads()) == ([], [4, 4, 4, 4])


def test_replicas_with_another_number_of_shards_take_nothing_until_the_last_of_the_old_ones_has_gone() -> None:
    world = world_of(2, shards=4)
    old = list(world.replicas)
    new = [world.join(6), world.join(6)]
    world.run(60)
    assert [len(one.state.at_work) for one in (*old, *new)] == [2, 2, 0, 0]
    old[0].quit()
    world.run(SETTLED)
    assert [len(one.state.at_work) for one in (*old, *new)] == [0, 2, 0, 0]  # nobody may take them, of whatever number
    old[1].die()
    world.run(LEASE + RETRY + SLACK)
    assert [len(one.state.at_work) for one in new] == [3, 3]
    assert world.faulty == []
    world.run(FORGOTTEN_AFTER * LEASE + SETTLED)
    assert len(world.leases) == 6 + 2  # what the old ones left has been deleted


@pytest.mark.parametrize(("old_by", "new_by"), [("name", "uid"), ("uid", "namespace"), ("namespace", "name")])
def test_replicas_that_divide_by_something_else_take_nothing_until_the_last_of_the_old_ones_has_gone(
        old_by: str, new_by: str) -> None:
    world = World(3)
    old = [world.join(4, by=old_by) for _ in range(2)]
    world.run(SETTLED + 2 * RETRY)
    new = [world.join(4, by=new_by) for _ in range(2)]
    world.run(60)
    assert [len(one.state.at_work) for one in (*old, *new)] == [2, 2, 0, 0]
    assert new[0].state.replicas.other_divisions == [(4, old_by)]
    old[0].quit()
    world.run(SETTLED)
    assert [len(one.state.at_work) for one in new] == [0, 0]
    old[1].die()
    world.run(LEASE + 2 * RETRY + SLACK)
    assert [len(one.state.at_work) for one in new] == [2, 2]
    assert world.faulty == []


@pytest.mark.parametrize("seed", range(5))
def test_of_two_fields_that_come_at_the_same_time_never_both_work(seed: int) -> None:
    world = World(seed)
    world.join(8, by="uid")
    world.run(world.random.uniform(0, 5))
    world.join(8, by="name")
    world.run(60)
    assert world.faulty == []


@pytest.mark.parametrize("seed", range(5))
def test_replicas_by_ranges_that_start_together_share_from_the_beginning(seed: int) -> None:
    world = World(seed)
    for _ in range(4):
        world.run(world.random.uniform(0, 0.3))
        world.join(by="uid")
    most = [0]
    for _ in range(100):
        world.run(0.1)
        most.append(max(len(one.state.held) for one in world.replicas))
    assert (world.loads(), world.unowned(), world.faulty) == ([4, 4, 4, 4], [], [])
    assert max(most) <= 6, "none has taken what was others'"


@pytest.mark.parametrize("seed", range(5))
def test_of_two_numbers_that_come_at_the_same_time_never_both_work(seed: int) -> None:
    world = World(seed)
    world.join(8)
    world.at(world.random.uniform(0, 0.2), lambda: None)
    world.run(world.random.uniform(0, 0.1))
    world.join(12)
    world.run(60)
    assert world.faulty == []


def test_a_replica_without_a_list_takes_nothing() -> None:
    """It would not know of those that divide differently."""
    world = World(1)
    replica = world.join()
    served = world.served
    world.served = lambda one, action, version: (  # type: ignore[method-assign]
        (one._failure(action), None) if type(action).__name__ == "ListLeases" else served(one, action, version))
    world.run(30)
    assert replica.state.held == frozenset()


def test_a_shards_lease_without_our_labels_is_waited_for_and_then_taken() -> None:
    """It does not show in the list, so the attempt to create it finds it."""
    world = world_of(1)
    stored = world.leases["shop-3-of-16"]
    world.replicas[0].die()
    stored.shard = None
    stored.shards = 99
    world.leases = {"shop-3-of-16": stored}
    sighted = world.served

    def unlabelled(one: Replica, action: object, version: int) -> tuple[object, int | None]:
        answer, new = sighted(one, action, version)  # type: ignore[arg-type]
        if type(action).__name__ == "ListLeases":
            answer = type(answer)(tuple(sight for sight in answer.leases if sight.shards == 16))  # type: ignore
        return answer, new

    world.served = unlabelled  # type: ignore[method-assign, assignment]
    second = world.join()
    world.run(5)
    assert second.state.at_work == frozenset(range(16)) - {3}
    world.run(LEASE + RETRY + SLACK)
    assert second.state.at_work == frozenset(range(16))


def test_what_a_replica_costs_in_requests() -> None:
    world = world_of(4)
    before = world.requests
    world.run(40)
    rounds = 40 / RETRY
    # each: its own Lease, 4 shards, and a list, which comes a little oftener (1.4 times on average)
    assert rounds * 4 * 6 * 0.9 < world.requests - before < rounds * 4 * 6.6 * 1.1


def test_nothing_is_asked_before_it_joins_nor_after_it_has_gone() -> None:
    world = world_of(1)
    replica = world.replicas[0]
    replica.quit()
    world.run(SETTLED)
    before = world.requests
    replica.happen(Tick())
    world.run(100)
    assert world.requests == before
    assert isinstance(replica._step(Tick()), Wait)


STORY = st.lists(st.tuples(st.sampled_from(["join", "quit", "die", "freeze", "wait"]), st.floats(0, 25)), max_size=12)


@given(seed=st.integers(0, 2**32), story=STORY, runs=st.sampled_from([0.0, 2.0]),
       lost_request=st.sampled_from([0.0, 0.1]), lost_answer=st.sampled_from([0.0, 0.1]),
       refused=st.sampled_from([0.0, 0.2]), longest_delay=st.sampled_from([0.05, 2.0]))
@settings(max_examples=15, deadline=None)
def test_never_two_work_for_a_shard_and_when_all_is_quiet_each_has_its_owner(
        seed: int, story: list[tuple[str, float]], runs: float, lost_request: float, lost_answer: float, refused: float,
        longest_delay: float) -> None:
    world = World(seed, Faults(lost_request, lost_answer, refused, longest_delay), runs)
    world.join(shards=6)
    for what, seconds in story:
        tell(world, what)
        world.run(seconds)
    world.faults = Faults()
    if not [one for one in world.living() if not one.suspended]:
        world.join(shards=6)
    world.run(LEASE + RETRY + SETTLED + runs + 25 + RETRY)
    assert world.faulty == []
    assert world.unowned() == []
    loads = [len(one.state.at_work) for one in world.living() if not one.suspended]
    assert max(loads) - min(loads) <= 1


def tell(world: World, what: str) -> None:
    dice = random.Random(world.random.random())
    living = world.living()
    if what == "join" and len(living) < 6:
        world.join(shards=6)
    elif living and what == "quit":
        dice.choice(living).quit()
    elif living and what == "die":
        dice.choice(living).die()
    elif living and what == "freeze":
        sleeper = dice.choice(living)
        sleeper.suspend()
        world.at(dice.uniform(0, 40), sleeper.resume)
