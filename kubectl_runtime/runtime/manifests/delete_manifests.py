"""`delete_manifests`: take a set of objects off a server, in the reverse of the order in which they were applied.

    1  everything but Namespaces and CRDs, the last of the source first; all are asked to go, then waited for
    2  the CRDs, then the Namespaces, likewise: while they are there, the others' finalizers can do their work
"""
from __future__ import annotations

from collections.abc import Iterable
from typing import TextIO

from kubectl_runtime.client.api.client import Client
from kubectl_runtime.client.http.failures import KindNotServedError
from kubectl_runtime.core.base.clock import Duration
from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.base.stop import StopToken
from kubectl_runtime.core.requests.params import DeleteParams
from kubectl_runtime.manifests.sources import Manifests
from kubectl_runtime.runtime.manifests.manifest_report import ManifestOutcome, ManifestReport
from kubectl_runtime.runtime.manifests.manifest_run import ManifestRun, Placed
from kubectl_runtime.runtime.manifests.manifest_set import Item, first_ones, other_ones
from kubectl_runtime.runtime.manifests.readiness import gone
from kubectl_runtime.runtime.wait import delete_for_uid


def delete_manifests(client: Client, source: Manifests, *, namespace: str | None = None,
                     wait: Duration | None = 120, params: DeleteParams | None = None, recursive: bool = False,
                     progress: TextIO | bool = True, stop: StopToken | None = None) -> ManifestReport:
    r"""Delete every object of `source` and block until all are gone; what became of each: deleted, or absent.

        delete_manifests(client, "deploy/")

    Only kind, name and namespace of the manifests count. `wait`: at most so long from the call on, for all of them
    together (seconds or `timedelta`); None only asks for the deletions. `params`: of each deletion. An object that is
    not there, or whose kind came with a CRD of the set that is not there, is not an error. `source`, `namespace`,
    `recursive`, `progress` and `stop` are those of `apply_manifests`, and so is what is raised: ManifestsFailed at the
    end names what was refused or did not go, and the finalizers that hold it. Each object is looked up first, and the
    deletion is bound to its uid. Needs the verbs list and delete; to wait, watch.

    >>> text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}"
    >>> report = delete_manifests(client, text, namespace="default", progress=False)
    >>> [outcome.action for outcome in report]
    ['deleted']
    """
    if params is not None and params.dry_run:
        raise RequestError("delete_manifests: a dry run deletes nothing whose end could be awaited")
    with ManifestRun(client, "delete", source, namespace=namespace, recursive=recursive, progress=progress, stop=stop,
                     timeout=client.config.timeout if wait is None else wait) as run:
        first = first_ones(run.items)
        crds, namespaces = [item for item in first if item.is_crd], [item for item in first if item.is_namespace]
        for items in (other_ones(run.items), crds, namespaces):
            going = _delete(run, reversed(items), params)
            if wait is not None:
                run.await_each([(placed, gone(uid)) for placed, uid in going.items()], "gone")
        return run.report()


def _delete(run: ManifestRun, items: Iterable[Item], params: DeleteParams | None) -> dict[Placed, str]:
    """Ask for these to be deleted; the ones that go, with their uids."""
    going: dict[Placed, str] = {}

    def act(placed: Placed) -> ManifestOutcome:
        try:
            uid = delete_for_uid(placed.api, placed.item.name, params)
        except KindNotServedError:
            if not placed.to_come:
                raise
            uid = ""
        if not uid:
            return placed.outcome("absent")
        going[placed] = uid
        return placed.outcome("deleted")

    run.each(items, act)
    return going
