"""Which shard an object is in, and what a sharding may be."""
from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubectl_runtime import RequestError
from kubectl_runtime.manager.sharding import MOST_SHARDS, Sharding, shard_of

NAMES = st.text("abcdefghijklmnopqrstuvwxyz-.0123456789", min_size=1, max_size=30)
KEYS = st.tuples(st.none() | NAMES, NAMES)


@given(key=KEYS, shards=st.integers(1, MOST_SHARDS - 1))
def test_with_one_more_shard_an_object_stays_or_goes_to_the_new_one(key: tuple[str | None, str], shards: int) -> None:
    assert shard_of(key, shards + 1) in (shard_of(key, shards), shards)


def test_objects_are_spread_evenly() -> None:
    counts = Counter(shard_of((f"ns-{n % 7}", f"obj-{n}"), 16) for n in range(32_000))
    expected = 32_000 / 16
    chi_squared = sum((count - expected) ** 2 / expected for count in counts.values())
    assert len(counts) == 16
    assert chi_squared < 37.7  # 15 degrees of freedom, one in a thousand


def test_the_shard_is_the_same_in_every_version_of_this_library() -> None:
    """Replicas of two versions work side by side during an update."""
    assert [shard_of(("default", f"obj-{n}"), 16) for n in range(8)] == PINNED
    assert shard_of((None, "node-1"), 16) == shard_of(("", "node-1"), 16)
    assert shard_of(("a", "b-c"), 256) != shard_of(("a-b", "c"), 256)


PINNED = [5, 8, 14, 11, 0, 4, 7, 6]


@pytest.mark.parametrize(("arguments", "says"), [
    (("Shop",), "name of a sharding"), (("",), "name of a sharding"), (("a" * 64,), "name of a sharding"),
    (("a.b",), "name of a sharding"), ((None,), "name of a sharding"), (("shop", "no/such"), "namespace")])
def test_names_that_are_no_label_values_are_refused(arguments: Any, says: str) -> None:
    with pytest.raises(RequestError, match=says):
        Sharding(*arguments)


@pytest.mark.parametrize("options", [
    {"shards": 0}, {"shards": MOST_SHARDS + 1}, {"shards": True}, {"shards": 2.0}, {"shards": "16"},
    {"lease": 10, "renew_deadline": 10}, {"retry": 9}, {"lease": 1.5}, {"identity": ""}])
def test_numbers_and_times_that_make_no_sense_are_refused(options: Any) -> None:
    with pytest.raises(RequestError):
        Sharding("shop", **options)


def test_the_defaults_are_those_of_an_election() -> None:
    election = Sharding("shop", "default").election(3)
    assert (election.name, election.namespace) == ("shop-3-of-16", "default")
    assert (election.lease, election.renew_deadline, election.retry) == (15, 10, 2)
