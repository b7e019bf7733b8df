"""`diff_manifests`: what applying a set would change. `kubectl diff --server-side`, for scripts.

Each object is applied in a dry run, so that the server's defaults and rules and its admission have their say, and what
it answers is compared with what is there. Nothing is changed. What the server cannot judge yet, since its namespace or
its CRD comes with the same set, is shown as new and marked: nobody checked it.

The difference between what is on the server and what would be, as a unified diff of YAML: kubectl's `diff`.

Left out is what the server alone writes: managedFields, uid, resourceVersion, generation, creationTimestamp, selfLink,
and the status of kinds that have a subresource for it. Values of Secrets, and annotations in which kubectl keeps a copy
of them, are stars, as kubectl has it: `***`, or `*** (before)` and `*** (after)` where they differ.
"""
from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any, TextIO

from kubectl_runtime.client.api.client import Client
from kubectl_runtime.client.http.retry import KindNotServedError
from kubectl_runtime.core.base.errors import ApiError
from kubectl_runtime.core.base.stop import StopToken
from kubectl_runtime.core.codec.sameness import equal_json
from kubectl_runtime.core.requests.params import PatchParams
from kubectl_runtime.kubectl.manifest_run import ManifestRun, Placed, first_ones, other_ones
from kubectl_runtime.kubectl.report import ManifestAction, ManifestOutcome, ManifestReport
from kubectl_runtime.manifests.documents import Manifests
from kubectl_runtime.manifests.yaml_text import to_yaml
from kubectl_runtime.runtime.logs import said

_SERVERS_OWN = frozenset(("managedFields", "uid", "resourceVersion", "generation", "creationTimestamp", "selfLink"))
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_STARS, _BEFORE, _AFTER = "***", "*** (before)", "*** (after)"


def comparable(content: Mapping[str, Any], *, status: bool) -> dict[str, Any]:
    """An object without what the server alone writes. `status`: whether the status is that."""
    kept = {key: value for key, value in content.items() if not (status and key == "status")}
    metadata = content.get("metadata")
    if isinstance(metadata, Mapping):
        kept["metadata"] = {key: value for key, value in metadata.items() if key not in _SERVERS_OWN}
    return kept


def difference(name: str, before: Mapping[str, Any] | None, after: Mapping[str, Any], *, checked: bool = True) -> str:
    """A unified diff of two comparable forms of the object called `name`; empty when they are alike. `before` is None
    when there is none; `after` says where the server has not `checked` it."""
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
    """A Secret with stars for its values."""
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
