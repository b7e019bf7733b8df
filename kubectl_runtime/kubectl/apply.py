"""`apply_manifests`, `delete_manifests`, `diff_manifests`: a set of objects applied, deleted or compared.

`apply_manifests` first applies Namespaces and CRDs and waits until the Namespaces are active and each version of the
CRDs is served. Then it applies everything else in the order of the source, webhook configurations last. With `wait` it
waits for everything that can become ready (see readiness.py). A cluster may have several API servers; a request to a
server that does not know a kind yet is retried. If an object is still being deleted, the applied state would be deleted
with it; therefore, after all other objects are applied, `apply_manifests` waits until that object is gone and applies
it again. One deadline covers all of this.

`delete_manifests` deletes in reverse order: first everything except Namespaces and CRDs, from the last object of the
source to the first; then the CRDs, then the Namespaces, so that finalizers can still do their work.

`diff_manifests` works like `kubectl diff --server-side`: each object is applied in a dry run, with the server's
defaults, rules and admission, and the response is compared with the stored object. An object whose namespace or CRD is
created by the same set is shown as new and marked as unchecked.

Differences are unified diffs of YAML without the fields that only the server writes: managedFields, uid,
resourceVersion, generation, creationTimestamp, selfLink, and the status of kinds with a status subresource. Values of
Secrets, and annotations in which kubectl stores a copy of these values, are shown as stars, as in kubectl: `***`, or
`*** (before)` and `*** (after)` where they differ.
"""
from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TextIO, TypeVar

from kubectl_runtime.client.api.client import Client
from kubectl_runtime.client.http.retry import KindNotServedError
from kubectl_runtime.core.base.errors import ApiError, KubeError, RequestError
from kubectl_runtime.core.base.threads import Duration
from kubectl_runtime.core.codec.jsonbytes import equal_json
from kubectl_runtime.core.requests.params import DeleteParams, PatchParams
from kubectl_runtime.core.scope import StopToken
from kubectl_runtime.kubectl.manifest_run import Item, ManifestRun, Placed, first_ones, other_ones
from kubectl_runtime.kubectl.readiness import gone, is_active, is_established, missing_of
from kubectl_runtime.kubectl.report import ManifestAction, ManifestOutcome, ManifestReport
from kubectl_runtime.manifests.documents import Manifests
from kubectl_runtime.manifests.yaml_text import to_yaml
from kubectl_runtime.runtime.apply_crd import await_served
from kubectl_runtime.runtime.conditions import Condition
from kubectl_runtime.runtime.logs import said
from kubectl_runtime.runtime.wait import delete_for_uid

_SERVERS_OWN = frozenset(("managedFields", "uid", "resourceVersion", "generation", "creationTimestamp", "selfLink"))
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_STARS, _BEFORE, _AFTER = "***", "*** (before)", "*** (after)"


def comparable(content: Mapping[str, Any], *, status: bool) -> dict[str, Any]:
    """An object without the fields that only the server writes. `status` says whether the status is one of these
    fields."""
    kept = {key: value for key, value in content.items() if not (status and key == "status")}
    metadata = content.get("metadata")
    if isinstance(metadata, Mapping):
        kept["metadata"] = {key: value for key, value in metadata.items() if key not in _SERVERS_OWN}
    return kept


def difference(name: str, before: Mapping[str, Any] | None, after: Mapping[str, Any], *, checked: bool = True) -> str:
    """A unified diff of two comparable forms of the object `name`; empty when they are equal. `before` is None for a
    new object. If the server has not `checked` the object, the header of `after` says so."""
    if equal_json(before, after):
        return ""
    if after.get("kind") == "Secret" and after.get("apiVersion") == "v1":
        before, after = _withheld(before, after), _withheld(after, before, mark=_AFTER)
    lines = difflib.unified_diff(_lines(before), _lines(after), f"live: {name}",
                                 f"applied: {name}" if checked else f"applied, unchecked: {name}")
    return "".join(lines)


def _lines(content: Mapping[str, Any] | None) -> list[str]:
    return [] if content is None else to_yaml(content).splitlines(keepends=True)


def _withheld(content: Any, other: Any, *, mark: str = _BEFORE) -> Any:
    """A Secret with stars in place of its values."""
    if content is None:
        return None
    hidden = dict(content)
    for part in ("data", "stringData"):
        if part in hidden:
            hidden[part] = _starred(hidden[part], _part(other, part), mark)
    metadata = hidden.get("metadata")
    if isinstance(metadata, Mapping) and isinstance(annotations := metadata.get("annotations"), Mapping):
        copies = {key: value for key, value in annotations.items() if key == _LAST_APPLIED}
        there = _part(_part(other, "metadata"), "annotations")
        starred = _starred(copies, there, mark) if copies else {}
        hidden["metadata"] = {**metadata, "annotations": {**annotations, **starred}}
    return hidden


def _starred(values: Any, other: Any, mark: str) -> Any:
    if not isinstance(values, Mapping):
        return mark
    there = other if isinstance(other, Mapping) else {}
    return {key: mark if key in there and there[key] != value else _STARS for key, value in values.items()}


def _part(content: Any, key: str) -> Any:
    return content.get(key) if isinstance(content, Mapping) else None


def diff_manifests(client: Client, source: Manifests, *, field_manager: str, namespace: str | None = None,
                   force: bool = False, recursive: bool = False, progress: TextIO | bool = False,
                   stop: StopToken | None = None) -> ManifestReport:
    r"""Return what `apply_manifests` would do with the same arguments: created, updated or unchanged, and the
    difference.

        report = diff_manifests(client, "deploy/", field_manager="release")
        print(report.difference, end="")                            # unified diffs of YAML; empty: nothing would change
        sys.exit(report.changed)

    Fields that only the server writes (managedFields, uid, resourceVersion, generation, creationTimestamp, status) are
    left out; the values of Secrets are stars. `stop` and exceptions are as for `apply_manifests`; conflicts between
    field managers are failures, too. Blocks for two requests per object. Needs the verbs get, create and patch.

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
    """Whether the error is a missing namespace or kind that the set itself would create."""
    if isinstance(error, KindNotServedError):
        return placed.to_come
    return placed.ref.namespace in run.namespaces_to_come


T = TypeVar("T")

PREPARATION = 60.0
"""Seconds to wait for Namespaces, CRDs and objects that are still being deleted, if `wait` is not given."""
_PAUSE = 0.2
"""Seconds until a request for an unknown kind is retried."""


def apply_manifests(client: Client, source: Manifests, *, field_manager: str, namespace: str | None = None,
                    wait: Duration | None = None, ready: Mapping[str, Condition] | None = None, force: bool = False,
                    dry_run: bool = False, recursive: bool = False, progress: TextIO | bool = True,
                    stop: StopToken | None = None) -> ManifestReport:
    r"""Apply every object of `source` by server-side apply as `field_manager`; return the outcome of each.

        apply_manifests(client, "deploy/", field_manager="release", wait=300)

    `source`: a file or folder (`str` or `Path`), ``-`` for standard input, a text of YAML or JSON, a resource object or
    dict, or an iterable of these; `recursive` includes subfolders. `namespace`: the namespace for objects that name
    none; by default the client's. `force` takes over fields of other managers.

    `wait`: block until all objects are ready, for at most this total time (seconds or `timedelta`), counted from the
    call. Ready means: Deployments, StatefulSets and DaemonSets rolled out, ReplicaSets and ReplicationControllers with
    all replicas, Jobs complete, Pods ready. `ready` adds or replaces conditions by kind: `{"Service":
    conditions.is_service_loadbalancer_provisioned, "Certificate.cert-manager.io": is_issued}`. Without `wait`, the
    function blocks for its calls, and for up to 60 s until Namespaces and CRDs can be used.

    `dry_run` changes nothing, and returns what `diff_manifests` returns. `progress`: write a line for each object to
    standard error, and on a terminal also a line that shows what is awaited; or give another stream, or False for no
    output. `stop` ends the wait and skips the rest.

    Raises, before anything is sent, ManifestError and OSError for unreadable manifests, RequestError for objects
    without kind or name and for duplicates, and what discovery raises. After a failure the other objects are still
    tried; all failures are raised together at the end as ManifestsFailed, with the report and each object's position in
    the source. Calls are retried as usual and end within the client's deadline, even if that is later than `wait`.
    Needs the verbs get, create and patch; with `wait` also list and watch, and list on pods to explain why Pods do not
    run. Each call of the function uses one thread, and several calls may run concurrently.

    >>> text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}"
    >>> report = apply_manifests(client, text, field_manager="release", namespace="default", progress=False)
    >>> [(outcome.ref.name, outcome.action) for outcome in report]
    [('a', 'created')]
    """
    manager = PatchParams.apply(field_manager).field_manager or ""
    if ready and wait is None:
        raise RequestError("apply_manifests: `ready` says what to wait for, so `wait` must say for how long")
    if dry_run:
        return diff_manifests(client, source, field_manager=field_manager, namespace=namespace, force=force,
                              recursive=recursive, progress=progress, stop=stop)
    with ManifestRun(client, "apply", source, namespace=namespace, recursive=recursive, progress=progress, stop=stop,
                     timeout=PREPARATION if wait is None else wait) as run:
        _prepare(run, _apply(run, first_ones(run.items), manager, force))
        applied = _apply(run, other_ones(run.items), manager, force)
        if wait is not None:
            found = ((placed, missing_of(placed.item.gvk, ready or {})) for placed in applied)
            run.await_each([(placed, missing) for placed, missing in found if missing is not None], "ready")
        return run.report()


def _apply(run: ManifestRun, items: Iterable[Item], field_manager: str, force: bool) -> list[Placed]:
    """Apply these items; returns the items that now exist and are not being deleted."""
    terminating: dict[Placed, str] = {}

    def act(placed: Placed) -> ManifestOutcome:
        before = _once_served(run, placed, lambda: placed.api.with_metadata_only().get_opt(placed.item.name))
        obj = _once_served(run, placed, lambda: placed.api.apply(placed.body, field_manager=field_manager, force=force))
        if obj.deletion_timestamp is not None:
            terminating[placed] = obj.uid
        if before is None or before.uid != obj.uid:
            return placed.outcome("created")
        return placed.outcome("unchanged" if before.resource_version == obj.resource_version else "updated")

    done = run.each(items, act)
    while terminating:
        done = [placed for placed in done if placed not in terminating]
        left, terminating = terminating, {}
        ended = run.await_each([(placed, gone(uid)) for placed, uid in left.items()], "gone, to be made again")
        done += run.each([placed.item for placed in ended], act)
    return done


def _once_served(run: ManifestRun, placed: Placed, call: Callable[[], T]) -> T:
    """Return the result of `call`. If the kind is known to be served, but this server does not know it yet, `call` is
    repeated."""
    waiting = run.stop or StopToken(clock=run.client.clock)
    while True:
        try:
            return call()
        except KindNotServedError:
            if placed.item.gvk not in run.served or run.left.is_over() or waiting.wait(_PAUSE):
                raise


def _prepare(run: ManifestRun, applied: Iterable[Placed]) -> None:
    """Wait until Namespaces and kinds can be used."""
    crds = [placed for placed in applied if placed.item.is_crd]
    run.await_each([(placed, is_active) for placed in applied if placed.item.is_namespace], "active")
    for placed in run.await_each([(placed, is_established) for placed in crds], "established"):
        crd = placed.api.kind(name=placed.item.name)
        try:
            for version in run.versions_of(placed.item):
                await_served(run.client, version, crd, run.left, run.stop)
                run.served.add(version.gvk)
        except KubeError as error:
            run.fail(placed, error)


def delete_manifests(client: Client, source: Manifests, *, namespace: str | None = None,
                     wait: Duration | None = 120, params: DeleteParams | None = None, recursive: bool = False,
                     progress: TextIO | bool = True, stop: StopToken | None = None) -> ManifestReport:
    r"""Delete every object of `source` and block until all are gone; return the outcome of each: deleted, or absent.

        delete_manifests(client, "deploy/")

    Only kind, name and namespace of the manifests are used. `wait`: the most time for all objects together (seconds or
    `timedelta`), counted from the call; None only requests the deletions. `params`: the options of each deletion. It is
    not an error if an object does not exist, or if the server does not serve its kind and a CRD in the set defines the
    kind. `source`, `namespace`, `recursive`, `progress`, `stop` and the exceptions are as for `apply_manifests`.
    ManifestsFailed, at the end, names the objects whose deletion was refused or that still exist, and the finalizers
    that hold them. Each object is read first, and the deletion is bound to its uid. Needs the verbs list and delete;
    with `wait` also watch.

    >>> text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: settings}"
    >>> report = delete_manifests(client, text, namespace="default", progress=False)
    >>> [outcome.action for outcome in report]
    ['deleted']
    """
    if params is not None and params.dry_run:
        raise RequestError("delete_manifests: a dry run deletes nothing, so there is nothing to wait for")
    with ManifestRun(client, "delete", source, namespace=namespace, recursive=recursive, progress=progress, stop=stop,
                     timeout=client.config.timeout if wait is None else wait) as run:
        first = first_ones(run.items)
        crds, namespaces = [item for item in first if item.is_crd], [item for item in first if item.is_namespace]
        for items in (other_ones(run.items), crds, namespaces):
            terminating = _delete(run, reversed(items), params)
            if wait is not None:
                run.await_each([(placed, gone(uid)) for placed, uid in terminating.items()], "gone")
        return run.report()


def _delete(run: ManifestRun, items: Iterable[Item], params: DeleteParams | None) -> dict[Placed, str]:
    """Request the deletion of these items; returns the objects that are being deleted, with their uids."""
    terminating: dict[Placed, str] = {}

    def act(placed: Placed) -> ManifestOutcome:
        try:
            uid = delete_for_uid(placed.api, placed.item.name, params)
        except KindNotServedError:
            if not placed.to_come:
                raise
            uid = ""
        if not uid:
            return placed.outcome("absent")
        terminating[placed] = uid
        return placed.outcome("deleted")

    run.each(items, act)
    return terminating
