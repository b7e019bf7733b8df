"""Which shard an object is in, and what a sharding may be."""
from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubectl_runtime import Action, Api, Client, Config, Controller, Manager, RequestError, WatcherConfig
from kubectl_runtime.manager.leases import Create, Get, LeaseRecord
from kubectl_runtime.manager.sharder import ShardLeases
from kubectl_runtime.manager.sharding import MOST_SHARDS, Listed, Sharding, shard_of
from kubectl_runtime.params import ShardSelector
from kubectl_runtime.resources import ConfigMap, Node, Secret
from kubectl_runtime.resources.coordination_v1 import Lease
from kubectl_runtime.runtime.store.reflector import store as make_store
from kubectl_runtime.testing import ApiServer

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
    {"by": "kind"}, {"by": None}, {"by": 3}, {"by": ["uid"]},
    {"lease": 10, "renew_deadline": 10}, {"retry": 9}, {"lease": 1.5}, {"identity": ""}])
def test_numbers_and_times_that_make_no_sense_are_refused(options: Any) -> None:
    with pytest.raises(RequestError):
        Sharding("shop", **options)


def test_what_cannot_be_divided_so_is_refused_when_it_is_added() -> None:
    client = Client(Config(cluster_url="http://127.0.0.1:1"))
    maps, nodes = Api.all(client, ConfigMap), Api.all(client, Node)
    store, _ = make_store(ConfigMap)
    part = WatcherConfig(shard=ShardSelector.part("uid", 0, 2))
    refused = [("namespace", Controller(nodes), "cluster-scoped"),
               ("uid", Controller.for_stream([], store, client=client), "stream of the program"),
               ("namespace", Controller.for_stream([], store, client=client), "stream of the program"),
               ("uid", Controller(maps, watch=part), "divides its objects already"),
               ("namespace", Controller(maps).owns(Api.all(client, Secret), watch=part), "divides its objects already")]
    for by, controller, said in refused:
        manager = Manager(client, sharding=Sharding("shop", "default", by=by), serve=None)  # type: ignore[arg-type]
        with pytest.raises(RequestError, match=said):
            manager.add(controller, lambda obj, ctx: Action.await_change())
        manager.add(controller, lambda obj, ctx: Action.await_change(), sharded=False)
    for by, controller in (("uid", Controller(nodes, name="n")), ("name", Controller(nodes, name="m")),
                           ("name", Controller(maps, watch=part, name="p")), ("namespace", Controller(maps, name="o"))):
        Manager(client, sharding=Sharding("shop", "default", by=by), serve=None).add(  # type: ignore[arg-type]
            controller, lambda obj, ctx: Action.await_change())
    client.close()


@pytest.mark.parametrize("by", ["name", "namespace", "uid"])
def test_what_divides_stands_in_the_leases_and_is_read_from_them(by: Any) -> None:
    with ApiServer() as server, server.client() as client:
        sharding = Sharding("shop", "default", shards=16, by=by, identity="a")
        leases = ShardLeases(client, sharding, "default", "shop-replica-a")
        record = LeaseRecord("a", 15)
        leases.ask(3, Get(), 5)
        leases.ask(3, Create(record), 5)
        found = leases.list(5)
        assert isinstance(found, Listed)
        (sight,) = found.leases
        assert (sight.shard, sight.division) == (3, (16, by))
        (lease,) = Api.namespaced(client, Lease, "default").list()
        assert lease.labels["sharding.kubectl-runtime.dev/by"] == by
        number = int(lease.labels["sharding.kubectl-runtime.dev/shards"])
        assert (number == 16) == (by == "name"), "for a version that knows names alone it is another number"


def test_the_defaults_are_those_of_an_election() -> None:
    election = Sharding("shop", "default").election(3)
    assert (election.name, election.namespace) == ("shop-3-of-16", "default")
    assert (election.lease, election.renew_deadline, election.retry) == (15, 10, 2)
