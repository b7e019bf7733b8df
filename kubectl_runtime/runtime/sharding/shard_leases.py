"""`ShardLeases`: carries out what the shard machine asks for, on the Leases of one group.

    coordination.k8s.io/v1 Leases, with the label sharding.kubectl-runtime.dev/name: my-operator

    my-operator-3-of-16             one for each shard; its holder works for it
    my-operator-replica-<mark>      one for each replica, labelled with the number of shards that it divides by

One list tells a replica everything: who there is, and which shards are free. It is consistent (no resourceVersion), as
the rule that two numbers of shards never work side by side needs it to be.
"""
from __future__ import annotations

from http import HTTPStatus

from kubectl_runtime.client.api.api import Api
from kubectl_runtime.client.api.client import Client
from kubectl_runtime.core.base.clock import seconds
from kubectl_runtime.core.base.errors import ApiError, KubeError
from kubectl_runtime.core.requests.params import DeleteParams, ListParams, Preconditions
from kubectl_runtime.resources.coordination_v1 import Lease
from kubectl_runtime.runtime.manager.lease_events import Request, Tick
from kubectl_runtime.runtime.manager.lease_record import LeaseRecord
from kubectl_runtime.runtime.manager.lease_store import LeaseStore, Trouble
from kubectl_runtime.runtime.sharding.shard_events import (
    OWN,
    Action,
    Answered,
    Ask,
    Delete,
    Deleted,
    Input,
    Listed,
    ListLeases,
    NotListed,
    Sight,
)
from kubectl_runtime.runtime.sharding.sharding import Sharding

NAME = "sharding.kubectl-runtime.dev/name"
SHARDS = "sharding.kubectl-runtime.dev/shards"
SHARD = "sharding.kubectl-runtime.dev/shard"
"""Of a shard's Lease alone."""


class ShardLeases:
    """Reads and writes the Leases of a group of replicas. Safe to use from any thread, as long as there is one request
    for each Lease at a time. Raises nothing."""

    def __init__(self, client: Client, sharding: Sharding, namespace: str, own_name: str) -> None:
        """Nothing is sent yet."""
        self._api = Api.namespaced(client, Lease, namespace)
        whose, repeated_within = f"sharding {namespace}/{sharding.name}", seconds(sharding.renew_deadline)
        self.trouble = Trouble(whose, client.clock, repeated_within)
        self._deletions = Trouble(whose, client.clock, repeated_within)
        """No work depends on these."""
        labels = {NAME: sharding.name, SHARDS: str(sharding.shards)}
        self._params = ListParams(label_selector={NAME: sharding.name})
        self._stores = {n: LeaseStore(client, sharding.election(n).name, namespace, self.trouble,
                                      labels={**labels, SHARD: str(n)}) for n in range(sharding.shards)}
        self._stores[OWN] = LeaseStore(client, own_name, namespace, self.trouble, labels=labels)

    def perform(self, action: Action, timeout: float) -> Input:
        """Make the request that is asked for; what came of it."""
        match action:
            case Ask(which, request):
                return self.ask(which, request, timeout)
            case ListLeases():
                return self.list(timeout)
            case Delete(name, version):
                return self.delete(name, version, timeout)
        return Tick()

    def ask(self, which: int, request: Request, timeout: float) -> Answered:
        """Blocks for `timeout` seconds at most, as all of these."""
        return Answered(which, self._stores[which].perform(request, timeout))

    def list(self, timeout: float) -> Listed | NotListed:
        """All Leases of the group."""
        try:
            sights = tuple(sight for lease in self._api.list(self._params, timeout=timeout)
                           if (sight := _sight(lease)) is not None)
        except BaseException as error:  # noqa: BLE001 - layers, credentials and observers are other people's code
            self.trouble.failed("", ListLeases(), error)
            return NotListed()
        self.trouble.worked("", ListLeases())
        return Listed(sights)

    def delete(self, name: str, version: str | None, timeout: float) -> Deleted:
        """Delete a Lease; one that has changed or is gone is left alone. A failure is told, and not more: what is left
        does not count any more when its time is over."""
        guard = None if version is None else Preconditions(resource_version=version)
        try:
            self._api.delete(name, DeleteParams(preconditions=guard), timeout=timeout)
        except BaseException as error:  # noqa: BLE001 - as above
            if not isinstance(error, ApiError) or error.code not in (HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT):
                self._deletions.failed(name, Delete(name, version), error)
        return Deleted(name)


def _sight(lease: Lease) -> Sight | None:
    """None for what has the label and no sense: somebody's else."""
    try:
        shard, shards = lease.labels.get(SHARD), int(lease.labels.get(SHARDS, ""))
        return Sight(lease.name or "", lease.resource_version or "", None if shard is None else int(shard), shards,
                     LeaseRecord.of(lease))
    except (ValueError, KubeError):
        return None
