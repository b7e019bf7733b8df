"""`diff_manifests`: what applying a set would change. `kubectl diff --server-side`, for scripts.

Each object is applied in a dry run, so that the server's defaults and rules and its admission have their say, and what
it answers is compared with what is there. Nothing is changed. What the server cannot judge yet, since its namespace or
its CRD comes with the same set, is shown as new and marked: nobody checked it.
"""
from __future__ import annotations

from typing import TextIO

from kubectl_runtime.client.api.client import Client
from kubectl_runtime.client.http.failures import KindNotServedError
from kubectl_runtime.core.base.errors import ApiError
from kubectl_runtime.core.base.stop import StopToken
from kubectl_runtime.core.requests.params import PatchParams
from kubectl_runtime.manifests.sources import Manifests
from kubectl_runtime.runtime.logs import said
from kubectl_runtime.runtime.manifests.differences import comparable, difference
from kubectl_runtime.runtime.manifests.manifest_report import ManifestAction, ManifestOutcome, ManifestReport
from kubectl_runtime.runtime.manifests.manifest_run import ManifestRun, Placed
from kubectl_runtime.runtime.manifests.manifest_set import first_ones, other_ones


def diff_manifests(client: Client, source: Manifests, *, field_manager: str, namespace: str | None = None,
                   force: bool = False, recursive: bool = False, progress: TextIO | bool = False,
                   stop: StopToken | None = None) -> ManifestReport:
    r"""What `apply_manifests` would do with the same arguments: created, updated or unchanged, and the difference.

        report = diff_manifests(client, "deploy/", field_manager="release")
        print(report.difference, end="")                            # unified diffs of YAML; empty: nothing would change
        sys.exit(report.changed)

    Left out is what the server alone writes (managedFields, uid, resourceVersion, generation, creationTimestamp,
    status); the values of Secrets are stars. Of a stop, errors and what is raised: as `apply_manifests`, conflicts
    between field managers included. Blocks for two calls an object. Needs the verbs get, create and patch.

    >>> text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}\ndata: {color: red}"
    >>> print(diff_manifests(client, text, field_manager="me", namespace="default", force=True).difference)
    ---...
    +++...
    ...
    """
    manager = PatchParams.apply(field_manager).field_manager or ""
    with ManifestRun(client, "diff", source, namespace=namespace, recursive=recursive, progress=progress, stop=stop,
                     timeout=client.config.timeout) as run:
        run.each([*first_ones(run.items), *other_ones(run.items)],
                 lambda placed: _compare(run, placed, manager, force))
        return run.report()


def _compare(run: ManifestRun, placed: Placed, field_manager: str, force: bool) -> ManifestOutcome:
    own_status = "status" in placed.kind.subresources
    try:
        live = placed.api.get_opt(placed.item.name)
        merged = placed.api.apply(placed.body, field_manager=field_manager, force=force, dry_run=True)
    except ApiError as error:
        if not (error.is_not_found and _comes_with_the_set(run, placed, error)):
            raise
        before, after, checked = None, comparable(placed.body, status=own_status), False
    else:
        before = None if live is None else comparable(live.to_dict(), status=own_status)
        after, checked = comparable(merged.to_dict(), status=own_status), True
    shown = difference(f"{said(placed.ref)} ({placed.item.place})", before, after, checked=checked)
    action: ManifestAction = "created" if before is None else "updated" if shown else "unchanged"
    return placed.outcome(action, difference=shown, checked=checked)


def _comes_with_the_set(run: ManifestRun, placed: Placed, error: ApiError) -> bool:
    """Whether it is the namespace or the kind that is missing, which applying the set would make first."""
    if isinstance(error, KindNotServedError):
        return placed.to_come
    return placed.ref.namespace in run.namespaces_to_come
