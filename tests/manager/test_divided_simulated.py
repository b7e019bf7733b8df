"""Whole controllers that divide their objects by ranges, in a simulation."""
from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.manager.divided_world import World


@pytest.fixture
def world() -> Iterator[Any]:
    made: list[World] = []

    def make(*arguments: Any, **keywords: Any) -> World:
        made.append(World(*arguments, **keywords))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.mark.parametrize(("by", "gate"), [
    ("uid", True), ("namespace", False), pytest.param("uid", False, marks=pytest.mark.long),
    pytest.param("namespace", True, marks=pytest.mark.long)])
def test_each_object_is_stored_and_reconciled_by_its_owner_whoever_comes_and_goes(world: Any, by: str,
                                                                                  gate: bool) -> None:
    one = world(1, by, gate=gate)
    for _ in range(25):
        one.create()
    one.join("a")
    one.pass_time(4)
    one.check(1)
    one.join("b")
    one.join("c")
    one.pass_time(8)
    one.check(1)
    assert sorted(len(sharder.shards) for sharder in one.sharders.values()) == [2, 2, 2]
    one.die("b")
    for _ in range(10):
        one.change()
    one.pass_time(15 + 2 + 1)
    one.check(1)
    one.leave("a")
    one.pass_time(4)
    one.check(1)


def play(one: World, seed: int, steps: int) -> None:
    """Anything may happen, in any order."""
    dice = one.sim.random
    for _ in range(12):
        one.create()
    names = iter("abcdefghijklmnopqrstuvwxyz" * 9)
    one.join("first")
    for _ in range(steps):
        match dice.choice(("change", "change", "change", "join", "leave", "die", "410", "cut", "time", "time")):
            case "change":
                one.change()
            case "join" if len(one.sharders) < 4:
                one.join(next(names) + str(dice.randrange(10 ** 6)))
            case "leave" if len(one.sharders) > 1:
                one.leave(dice.choice(sorted(one.sharders)))
            case "die" if len(one.sharders) > 1:
                one.die(dice.choice(sorted(one.sharders)))
            case "410":  # all watches end, and what they saw last is too old
                one.server.restart(lose_history=True)
            case "cut":
                one.server.restart()
            case "time":
                one.pass_time(dice.uniform(0, 4))
    one.pass_time(15 + 2 + 5)
    one.check(seed)


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize("gate", [True, False])
@pytest.mark.parametrize("by", ["uid", "namespace"])
def test_whatever_happens_a_store_is_a_filter_of_all_and_an_object_is_its_owners(world: Any, by: str, gate: bool,
                                                                                 seed: int) -> None:
    play(world(seed, by, gate=gate), seed, 10)


def come_and_go(one: World, seed: int, moves: int) -> None:
    """Replicas join and leave at random, also while others still move; objects change meanwhile."""
    dice = one.sim.random
    for _ in range(15):
        one.create()
    one.join("r0")
    for n in range(1, moves + 1):
        if len(one.sharders) < 2 or (len(one.sharders) < 5 and dice.random() < 0.5):
            one.join(f"r{n}")
        else:
            one.leave(dice.choice(sorted(one.sharders)))
        one.change()
        if dice.random() < 0.3:
            one.pass_time(12)
            one.check(seed)
    one.pass_time(12)
    one.check(seed)


@pytest.mark.parametrize(("by", "gate"), [("uid", True), ("namespace", False)])
def test_replicas_join_and_leave_at_random(world: Any, by: str, gate: bool) -> None:
    come_and_go(world(7, by, gate=gate), 7, 5)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("gate", [True, False])
@pytest.mark.parametrize("by", ["uid", "namespace"])
def test_replicas_join_and_leave_at_random_twenty_times(world: Any, by: str, gate: bool, seed: int) -> None:
    come_and_go(world(seed, by, gate=gate), seed, 20)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 130))
@pytest.mark.parametrize("gate", [True, False])
@pytest.mark.parametrize("by", ["uid", "namespace"])
def test_whatever_happens_for_long(world: Any, by: str, gate: bool, seed: int) -> None:
    play(world(seed, by, gate=gate), seed, 40)
