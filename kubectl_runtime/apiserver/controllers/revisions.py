"""ControllerRevisions: the previous and current templates of a StatefulSet or DaemonSet.

Each template is kept as a ControllerRevision with an increasing number. If a set returns to an old template, the old
revision gets a new number.
"""
from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass

from kubectl_runtime.apiserver.controllers.deployments import owner_reference
from kubectl_runtime.apiserver.loopback import create, delete, patch
from kubectl_runtime.apiserver.storage import Cluster, Version
from kubectl_runtime.apiserver.wire import Object

REVISIONS = "apps/controllerrevisions"
HASH = "controller-revision-hash"
_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"


@dataclass(slots=True)
class Revision:
    """One ControllerRevision, which holds one template of a set."""

    version: Version
    obj: Object

    @property
    def name(self) -> str:
        """The revision's name, ``SET-HASH``."""
        return self.version.name

    @property
    def number(self) -> int:
        """The revision's number, which increases with each template change."""
        return int(self.obj.get("revision") or 0)

    @property
    def template(self) -> Object:
        template = self.obj["data"]["spec"]["template"]
        return {key: value for key, value in template.items() if key != "$patch"}


def template_hash(data: Object, collisions: int = 0) -> str:
    """The hash of a revision's data as in kube-controller-manager: 32-bit FNV-1, in the alphabet of generated names."""
    text = json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    for sign in "<>&":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    found = 0x811C9DC5
    for byte in (text + str(collisions)).encode():
        found = found * 0x01000193 & 0xFFFFFFFF ^ byte
    return "".join(_ALPHABET[ord(digit) % len(_ALPHABET)] for digit in str(found))


def owned(cluster: Cluster, owner: Version) -> list[Revision]:
    """A set's revisions, oldest first."""
    found = [Revision(version, version.decode()) for version in cluster.storage.bucket(REVISIONS).scan(owner.namespace)
             if any(ref.get("uid") == owner.uid for ref in version.owners)]
    return sorted(found, key=lambda revision: (revision.number, revision.name))


def newest(cluster: Cluster, owner: Version, kind: str, obj: Object, *, label: str) -> list[Revision]:
    """A set's revisions. The last one is the revision of the current template, and is created if missing.

    `label` is the key of the label that holds the template hash. The result is empty if the server refused to store the
    revision.
    """
    template = obj["spec"]["template"]
    known = owned(cluster, owner)
    same = next((revision for revision in reversed(known) if revision.template == template), None)
    if same is not None and same is known[-1]:
        return known
    number = (known[-1].number if known else 0) + 1
    if same is not None:
        patch(cluster, REVISIONS, same.version, {"revision": number})
        return owned(cluster, owner)
    data = {"spec": {"template": {**template, "$patch": "replace"}}}
    collisions = int((obj.get("status") or {}).get("collisionCount") or 0)
    for attempt in range(collisions, collisions + 10):
        name = template_hash(data, attempt)
        full = f"{owner.name}-{name}"
        if cluster.storage.get(REVISIONS, owner.namespace, full) is not None:
            continue
        annotations = dict(obj["metadata"].get("annotations") or {})
        create(cluster, REVISIONS, owner.namespace, {
            "revision": number, "data": data, "metadata": {
                "name": full, "annotations": annotations,
                "labels": {**((template.get("metadata") or {}).get("labels") or {}), label: name},
                "ownerReferences": [owner_reference(owner, kind)]}})
        break
    found = owned(cluster, owner)
    return found if found and found[-1].template == template else []


def forget(cluster: Cluster, revisions: list[Revision], used: Collection[str], limit: int) -> None:
    """Delete the oldest unused revisions until at most `limit` of them remain."""
    unused = [revision for revision in revisions if revision.name not in used]
    for revision in unused[:max(0, len(unused) - limit)]:
        delete(cluster, REVISIONS, revision.version)
