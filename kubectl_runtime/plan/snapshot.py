"""`Snapshot`: reads a cluster for `plan`, without writing to it. It reads:

- the kinds that the program's controllers watch, and further named kinds
- namespaces, quotas, limits, admission policies with their parameters, and the program's own webhook configurations
- the kinds of these objects' owners, and of the objects that the cluster creates for them (ReplicaSets, Pods)
- claims, volumes and StorageClasses, if a Pod or StatefulSet uses claims or if the program works with claims
- the kinds that the program requests in a trial run with the objects read so far, in the requested namespaces
- the CustomResourceDefinitions of all these kinds

Each kind is read by a LIST in pages, for all namespaces or for each named namespace. If the server forbids a LIST, this
is recorded as a gap, and a plan reports everything that depends on the kind as unknown. Events and Leases are never
read.
"""
from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus
from typing import Any

from kubectl_runtime.client.api.api import Api
from kubectl_runtime.client.api.client import Client
from kubectl_runtime.client.http.middleware import Answer, Call, Send
from kubectl_runtime.client.http.retry import KindNotServedError
from kubectl_runtime.client.server import ServedKind
from kubectl_runtime.core.base.errors import ApiError, KubeError, RequestError
from kubectl_runtime.core.meta.gvk import (
    ApiResource,
    HasApiResource,
    Scope,
    api_resource_of,
    plural_of,
    split_api_version,
)
from kubectl_runtime.plan.program import Program
from kubectl_runtime.plan.running import kinds_asked_for
from kubectl_runtime.plan.stored import (
    AROUND,
    DEFINITIONS,
    STORAGE,
    Build,
    Object,
    ReadKind,
    Redaction,
    StoredSnapshot,
    uses_claims,
)
from kubectl_runtime.testing.lab.recordings import resource_of

_ADMISSION = "admissionregistration.k8s.io"
_WEBHOOKS = (
    ApiResource(_ADMISSION, "v1", "ValidatingWebhookConfiguration", "validatingwebhookconfigurations", Scope.CLUSTER),
    ApiResource(_ADMISSION, "v1", "MutatingWebhookConfiguration", "mutatingwebhookconfigurations", Scope.CLUSTER))
_PODS = ApiResource("", "v1", "Pod", "pods")
_REPLICA_SETS = ApiResource("apps", "v1", "ReplicaSet", "replicasets")
_JOBS = ApiResource("batch", "v1", "Job", "jobs")
_OWNED = {"deployments.apps": (_REPLICA_SETS,), "replicasets.apps": (_PODS,), "statefulsets.apps": (_PODS,),
          "daemonsets.apps": (_PODS,), "jobs.batch": (_PODS,), "cronjobs.batch": (_JOBS,)}
"""By kind of an owner, the kinds of the objects that the cluster's own controllers create for such an owner."""
NEVER = frozenset({"events", "events.events.k8s.io", "leases.coordination.k8s.io"})
_ROUNDS = 5
"""The maximum number of trial runs to find the kinds that the program requests."""


@dataclass(frozen=True)
class Snapshot(StoredSnapshot):
    """The objects that were read from a cluster. Made by `read` or `load`; immutable.

    >>> def main(client):
    ...     return Controller(Api.all(client, ConfigMap)).bind(lambda obj, ctx: Action.await_change())
    >>> snapshot = Snapshot.read(client, main)
    >>> plan(main, snapshot).empty
    True
    """

    @classmethod
    def read(cls, client: Client, build: Build, *, kinds: Iterable[HasApiResource | ApiResource] = (),
             namespaces: Iterable[str] | None = None, redact: Iterable[str] = ()) -> Snapshot:
        """Read the objects that a plan of the program needs.

        `build(client)` makes the program, as for `kubectl-runtime run`. Its client refuses every request except GET and
        HEAD. `kinds`: kinds to read in addition to those that the program watches. `namespaces`: read only these
        namespaces. `redact`: fields whose values are replaced with digests, such as `ConfigMap:data`; Secrets are
        always redacted.

        If the server forbids a LIST, the snapshot lacks the kind's objects, and its attribute `kinds` names the missing
        permission. Blocks for at least one LIST per kind, and for trial runs of the program. Raises ApiError and
        TransportError for other failures of the server, what `build` raises, and TypeError or ValueError for an invalid
        result of `build`.
        """
        return _Reading(client, build, [api_resource_of(kind) for kind in kinds],
                        None if namespaces is None else tuple(namespaces), Redaction(redact)).read()


class WriteRefused(RequestError):
    """The program tried to write to the cluster while it was built; the request was not sent."""


def only_reads(_client_send: Send) -> Send:
    """A layer that refuses every request except GET and HEAD, so that building the program writes nothing."""
    def send(call: Call) -> Answer:
        if call.request.method not in ("GET", "HEAD"):
            raise WriteRefused(f"{call.request.operation}: a plan writes nothing, but this request was made while the "
                               "program was built: let reconcilers write instead")
        return _client_send(call)
    return send


class _Reading:
    """Reads a cluster once, for one snapshot."""

    def __init__(self, client: Client, build: Build, kinds: list[ApiResource], namespaces: tuple[str, ...] | None,
                 redaction: Redaction) -> None:
        self._client, self._build, self._named = client.with_layer(only_reads), build, kinds
        self._namespaces, self._redaction = namespaces, redaction
        self._read: dict[str, ReadKind] = {}
        self._objects: dict[tuple[str, str, str], Object] = {}
        self._definitions: dict[str, Object] = {}
        self._all_definitions = True
        self._where: tuple[str, ...] | None = namespaces
        self._tried: set[tuple[str, str | None]] = set()

    def read(self) -> Snapshot:
        at = self._client.clock.now()
        program = Program.built(self._build, self._client)
        if self._namespaces is None:
            self._where = program.namespaces()
        self._read_definitions()
        for kind, namespaces in program.watched():
            self._list(kind, self._namespaces or namespaces)
        for definition in program.definitions():
            spec = definition["spec"]
            version = next((one["name"] for one in spec["versions"] if one["storage"]), spec["versions"][0]["name"])
            self._list(ApiResource(spec["group"], version, spec["names"]["kind"], spec["names"]["plural"],
                                   Scope(spec["scope"])), self._where)
        for kind in [*self._named, *AROUND, *(_WEBHOOKS if program.webhooks else ())]:
            self._list(kind, self._where)
        self._read_parameters()
        self._follow()
        found = self._snapshot(at)
        for _ in range(_ROUNDS):
            before = self._extent()
            for group, version, plural, namespace in sorted(kinds_asked_for(self._build, found)):
                where = self._where
                if self._namespaces is None and where is not None:
                    where = (*where, namespace) if namespace else None
                self._list(self._resolved(group, version, plural), where)
            if self._extent() == before:
                break
            self._follow()
            found = self._snapshot(at)
        return found

    def _extent(self) -> tuple[int, int]:
        """Numbers that grow whenever a further kind or namespace is read."""
        return len(self._read), len(self._tried)

    def _read_parameters(self) -> None:
        """Read the kinds that admission policies use as parameters, in the namespaces that the policies' bindings
        name."""
        policies = {obj["metadata"]["name"]: obj["spec"].get("paramKind") for obj in self._objects.values()
                    if obj["kind"].endswith("AdmissionPolicy")}
        for obj in [obj for obj in self._objects.values() if obj["kind"].endswith("AdmissionPolicyBinding")]:
            wanted, ref = policies.get(obj["spec"].get("policyName")), obj["spec"].get("paramRef")
            if wanted and ref:
                kind = self._of_kind(wanted["apiVersion"], wanted["kind"])
                self._list(kind, (ref["namespace"],) if ref.get("namespace") else self._where)

    def _resolved(self, group: str, version: str, plural: str) -> ApiResource:
        if (read := self._read.get(resource_of(group, plural))) is not None:
            return read.resource
        definition = self._definitions.get(f"{plural}.{group}")
        if definition is not None:
            spec = definition["spec"]
            return ApiResource(group, version, spec["names"]["kind"], plural, Scope(spec["scope"]))
        served = self._served(f"{group}/{version}" if group else version)
        return next((kind.resource for kind in served if kind.resource.plural == plural),
                    ApiResource(group, version, plural, plural))

    def _read_definitions(self) -> None:
        try:
            found = [*Api.all(self._client, DEFINITIONS).list_all()]
        except ApiError as error:
            if not error.is_forbidden:
                raise
            self._all_definitions = False
            self._note(DEFINITIONS, None, 0, refused=_refusal(DEFINITIONS, None))
            return
        self._definitions = {obj.name: _whole(obj, DEFINITIONS) for obj in found}

    def _list(self, kind: ApiResource, namespaces: tuple[str, ...] | None) -> None:
        """Read a kind in these namespaces (None: all), except for namespaces in which it has already been read."""
        known = self._read.get(kind.full_name)
        if kind.full_name in NEVER or kind == DEFINITIONS or (
                known is not None and (known.namespaces is None or not known.served)):
            return
        everywhere = namespaces is None or not kind.namespaced
        where: list[str | None] = [None] if everywhere else [
            one for one in dict.fromkeys(namespaces or ()) if (kind.full_name, one) not in self._tried]
        if not where:
            return
        found: dict[str, None] = {} if known is None else dict.fromkeys(known.namespaces or ())
        count, refused = (0, "") if known is None or everywhere else (known.count, known.refused)
        for namespace in where:
            api = Api.namespaced(self._client, kind, namespace) if namespace else Api.all(self._client, kind)
            self._tried.add((kind.full_name, namespace))
            try:
                for obj in api.list_all():
                    self._keep(_whole(obj, kind))
                    count += 1
                if namespace:
                    found[namespace] = None
            except KindNotServedError:
                self._note(kind, namespaces, 0, served=False)
                return
            except ApiError as error:
                if error.is_forbidden:
                    refused = f"{refused}, {_refusal(kind, namespace)}" if refused else _refusal(kind, namespace)
                elif error.is_not_found or error.code == HTTPStatus.METHOD_NOT_ALLOWED:  # not a listable kind
                    self._note(kind, namespaces, 0, served=False)
                    return
                else:
                    raise
        self._note(kind, None if everywhere else tuple(found), count, refused=refused)

    def _note(self, kind: ApiResource, namespaces: tuple[str, ...] | None, count: int, *, refused: str = "",
              served: bool = True) -> None:
        self._read[kind.full_name] = ReadKind(kind.group, kind.version, kind.kind, kind.plural, kind.namespaced,
                                              namespaces, count, refused, served)

    def _keep(self, obj: Object) -> None:
        obj = self._redaction.redact(obj)
        metadata = obj["metadata"]
        self._objects[f"{obj['apiVersion']}/{obj['kind']}", metadata.get("namespace", ""), metadata["name"]] = obj

    def _follow(self) -> None:
        """Read the kinds of the objects' owners, of the objects that the cluster creates for them, and of their
        storage, until no kind is new."""
        looked_at: set[tuple[str, str, str]] = set()
        while True:
            before = self._extent()
            for name, read in list(self._read.items()):
                for owned in _OWNED.get(name, ()) if read.count else ():
                    self._list(owned, read.namespaces)
            for key in [key for key in self._objects if key not in looked_at]:
                looked_at.add(key)
                if uses_claims(self._objects[key]):
                    self._list(STORAGE[0], None if self._where is None else (key[1],))
                for owner in self._objects[key]["metadata"].get("ownerReferences") or ():
                    self._list(self._of_kind(str(owner.get("apiVersion") or "v1"), str(owner.get("kind") or "Unknown")),
                               None if self._where is None else (key[1],))
            if STORAGE[0].full_name in self._read:
                for kind in STORAGE[1:]:
                    self._list(kind, None)
            if self._extent() == before:
                return

    def _of_kind(self, api_version: str, kind: str) -> ApiResource:
        group, version = split_api_version(api_version)
        for read in self._read.values():
            if (read.group, read.kind) == (group, kind):
                return read.resource
        for definition in self._definitions.values():
            spec = definition["spec"]
            if (spec["group"], spec["names"]["kind"]) == (group, kind):
                return ApiResource(group, version, kind, spec["names"]["plural"], Scope(spec["scope"]))
        return next((one.resource for one in self._served(api_version) if one.resource.kind == kind),
                    ApiResource(group, version, kind, plural_of(kind)))

    def _served(self, api_version: str) -> Sequence[ServedKind]:
        """The kinds of a group version, by the server's discovery; empty if the request fails."""
        try:
            return self._client.discovery.pinned_group(api_version)
        except KubeError:
            return ()

    def _snapshot(self, at: datetime) -> Snapshot:
        definitions = [self._redaction.redact(self._definitions[name]) for name in sorted(self._definitions)
                       if name in self._read]
        version = ""
        with suppress(KubeError):  # the snapshot is useful without the version
            version = self._client.server_version().git_version
        return Snapshot((*definitions, *self._objects.values()), tuple(self._read.values()), at,
                        self._client.config.cluster_url, version, self._redaction.fields,
                        self._all_definitions, redaction=self._redaction)


def _whole(obj: Any, kind: ApiResource) -> Object:
    """The object as a JSON value, with apiVersion and kind, which the items of a list do not have."""
    return {"apiVersion": kind.api_version, "kind": kind.kind, **obj.to_dict()}


def _refusal(kind: ApiResource, namespace: str | None) -> str:
    where = f" in namespace {namespace}" if namespace else ""
    return f"list {kind.full_name}{where}"
