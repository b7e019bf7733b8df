"""`Snapshot`: what was read of a cluster, for `plan`. Reading it writes nothing.

    declared     the kinds that the controllers of the program watch, and those that are named besides
    around       namespaces, quotas, limits, admission policies, and the program's own webhook configurations
    owners       the kinds of the owners of all these objects, and the built-in kinds that they own (a Deployment's
                 ReplicaSets and their Pods)
    asked for    the kinds that the program asks for while it is rehearsed on what was read so far
    definitions  the CustomResourceDefinitions of all these kinds

Each kind is one LIST in pages, of all namespaces or of those that were named. A LIST that is refused is kept as a gap:
what depends on it is unknown in a plan. Events and Leases are never read.

A saved snapshot is one JSON document, readable by its owner only; `.gz` at the end of its name compresses it.

Values that must not be seen are replaced while they are read, by digests of equal length (`Redaction`): those of
Secrets, copies of them in kubectl's annotation, and the fields that are named. The key of the digests is new for each
snapshot and kept nowhere. Equal values have equal digests, so that a copy of a Secret is still one.
"""
from __future__ import annotations

import base64
import binascii
import gzip
import hashlib
import os
import secrets
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from kubectl_runtime.client.api.api import Api
from kubectl_runtime.client.api.client import Client
from kubectl_runtime.client.http.middleware import Answer, Call, Send
from kubectl_runtime.client.http.retry import KindNotServedError
from kubectl_runtime.core.base.errors import ApiError, KubeError, RequestError
from kubectl_runtime.core.base.version import VERSION
from kubectl_runtime.core.meta.gvk import (
    ApiResource,
    HasApiResource,
    Scope,
    api_resource_of,
    plural_of,
    split_api_version,
)

Object = dict[str, Any]
Build = Callable[[Client], Any]

FORMAT = 1
"""The version of the format of saved snapshots; one of another version is refused."""

DEFINITIONS = ApiResource("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions",
                          Scope.CLUSTER)
_ADMISSION = "admissionregistration.k8s.io"
AROUND = (
    ApiResource("", "v1", "Namespace", "namespaces", Scope.CLUSTER),
    ApiResource("", "v1", "ResourceQuota", "resourcequotas"),
    ApiResource("", "v1", "LimitRange", "limitranges"),
    ApiResource(_ADMISSION, "v1", "ValidatingAdmissionPolicy", "validatingadmissionpolicies", Scope.CLUSTER),
    ApiResource(_ADMISSION, "v1", "ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings",
                Scope.CLUSTER))
_WEBHOOKS = (
    ApiResource(_ADMISSION, "v1", "ValidatingWebhookConfiguration", "validatingwebhookconfigurations", Scope.CLUSTER),
    ApiResource(_ADMISSION, "v1", "MutatingWebhookConfiguration", "mutatingwebhookconfigurations", Scope.CLUSTER))
_PODS = ApiResource("", "v1", "Pod", "pods")
_REPLICA_SETS = ApiResource("apps", "v1", "ReplicaSet", "replicasets")
_JOBS = ApiResource("batch", "v1", "Job", "jobs")
_OWNED = {"deployments.apps": (_REPLICA_SETS,), "replicasets.apps": (_PODS,), "statefulsets.apps": (_PODS,),
          "daemonsets.apps": (_PODS,), "jobs.batch": (_PODS,), "cronjobs.batch": (_JOBS,)}
"""What the cluster's own controllers make for objects of a kind."""
NEVER = frozenset({"events", "events.events.k8s.io", "leases.coordination.k8s.io"})
_ROUNDS = 5
"""How often the program is rehearsed at most to find the kinds that it asks for."""
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_ALPHABET = b"abcdefghijklmnopqrstuvwxyz234567"


class SnapshotError(KubeError):
    """A file holds no snapshot, or one of another version of the format."""


class Redaction:
    """Replaces values by digests of equal length. `fields`: `KIND:PATH`, such as `ConfigMap:data` or
    `Database.example.com:spec.password`; everything below the path is replaced. Secrets always are."""

    def __init__(self, fields: Iterable[str] = ()) -> None:
        """Raises RequestError for a text of another form."""
        self.fields = tuple(fields)
        self._key = secrets.token_bytes(32)
        self._paths: dict[str, list[list[str]]] = {}
        for text in self.fields:
            kind, colon, path = text.partition(":")
            if not (kind and colon and path) or not all(path.split(".")):
                raise RequestError(f"{text!r} names no field: KIND:PATH, such as ConfigMap:data or "
                                   "Database.example.com:spec.password")
            self._paths.setdefault(kind.lower(), []).append(path.split("."))

    def stands_for(self, digest: Any, value: Any) -> bool:
        """Whether a value that is written is the one for which the digest stands."""
        return digest in (self._encoded(value), self._all(value))

    def redact(self, obj: Object) -> Object:
        """The object without such values; what it shares with the one given is not changed."""
        kind, group = str(obj.get("kind", "")), split_api_version(str(obj.get("apiVersion") or "v1"))[0]
        if kind == "Secret" and not group:
            obj = self._secret(obj)
        names = {kind.lower(), f"{kind}.{group}".lower()}
        for path in [path for name in sorted(names) for path in self._paths.get(name, ())]:
            obj = self._below(obj, path)
        return obj

    def _secret(self, obj: Object) -> Object:
        found = dict(obj)
        if isinstance(data := obj.get("data"), Mapping):
            found["data"] = {key: self._encoded(value) for key, value in data.items()}
        if isinstance(plain := obj.get("stringData"), Mapping):
            found["stringData"] = {key: self._digest(value) for key, value in plain.items()}
        return self._without_copy(found)

    def _without_copy(self, obj: Object) -> Object:
        """Kubectl keeps a whole copy of what it applied in an annotation."""
        annotations = (obj.get("metadata") or {}).get("annotations") or {}
        if _LAST_APPLIED not in annotations:
            return obj
        hidden = {**annotations, _LAST_APPLIED: self._digest(annotations[_LAST_APPLIED])}
        return {**obj, "metadata": {**obj["metadata"], "annotations": hidden}}

    def _below(self, obj: Object, path: Sequence[str]) -> Object:
        def change(value: Any, rest: Sequence[str]) -> Any:
            if not rest:
                return self._all(value)
            if isinstance(value, list):
                return [change(item, rest) for item in value]
            if isinstance(value, dict) and rest[0] in value:
                return {**value, rest[0]: change(value[rest[0]], rest[1:])}
            return value
        changed: Object = change(obj, path)
        return self._without_copy(changed)

    def _all(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: self._all(part) for key, part in value.items()}
        if isinstance(value, list):
            return [self._all(part) for part in value]
        if isinstance(value, bool) or value is None:
            return value
        if isinstance(value, int | float):
            digits = "".join(str(byte % 10) for byte in self._bytes(repr(value).encode(), len(str(abs(int(value))))))
            return type(value)(int("1" + digits[1:]))
        return self._digest(str(value))

    def _encoded(self, value: Any) -> str:
        try:
            plain = base64.b64decode(str(value), validate=True)
        except (binascii.Error, ValueError):
            return self._digest(str(value))
        return base64.b64encode(self._bytes(plain, len(plain))).decode()

    def _digest(self, value: Any) -> str:
        text = str(value)
        return self._bytes(text.encode("utf-8", "surrogatepass"), len(text)).decode()

    def _bytes(self, value: bytes, length: int) -> bytes:
        """So many letters, which depend on the value and the key."""
        found = hashlib.shake_256(self._key + len(value).to_bytes(8, "big") + value).digest(length)
        return bytes(_ALPHABET[byte % len(_ALPHABET)] for byte in found)


class ReadKind(msgspec.Struct, frozen=True):
    """A kind that was asked for: in which namespaces (None: all), how many objects came, and why none if the server
    refused. `served` is false where the server does not know it, so that there are none."""

    group: str
    version: str
    kind: str
    plural: str
    namespaced: bool
    namespaces: tuple[str, ...] | None = None
    count: int = 0
    refused: str = ""
    served: bool = True

    @property
    def resource(self) -> ApiResource:
        """The kind, as clients name it."""
        return ApiResource(self.group, self.version, self.kind, self.plural,
                           Scope.NAMESPACED if self.namespaced else Scope.CLUSTER)


class _Saved(msgspec.Struct):
    format: int
    library: str
    read_at: str
    server: str
    server_version: str
    kinds: list[ReadKind]
    redacted: list[str]
    all_definitions: bool
    objects: list[Object]


class _Head(msgspec.Struct):
    format: int | None = None


@dataclass(frozen=True)
class Snapshot:
    """What was read of a cluster. Made by `read` or `load`; it never changes.

    >>> from kubectl_runtime.plan import Snapshot, plan
    >>> def main(client):
    ...     return Controller(Api.all(client, ConfigMap)).bind(lambda obj, ctx: Action.await_change())
    >>> snapshot = Snapshot.read(client, main)
    >>> plan(main, snapshot).empty
    True
    """

    objects: tuple[Object, ...]
    """As the server showed them, but for values that are redacted."""
    kinds: tuple[ReadKind, ...]
    read_at: datetime
    """When the reading began, in UTC."""
    server: str = ""
    """The URL of the server, and its version."""
    server_version: str = ""
    redacted: tuple[str, ...] = ()
    """The fields whose values are digests, besides those of Secrets."""
    all_definitions: bool = True
    """Whether the CustomResourceDefinitions could be read."""
    by_name: Mapping[str, ReadKind] = field(default_factory=dict, repr=False, compare=False)
    """The kinds by `plural.group`."""
    redaction: Redaction | None = field(default=None, repr=False, compare=False)
    """What made the digests; None for a snapshot that was loaded, since their key is never saved."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "by_name", {kind.resource.full_name: kind for kind in self.kinds})

    @classmethod
    def read(cls, client: Client, build: Build, *, kinds: Iterable[HasApiResource | ApiResource] = (),
             namespaces: Iterable[str] | None = None, redact: Iterable[str] = ()) -> Snapshot:
        """Read what a plan of the program needs.

        `build(client)` makes the program, as for `kubectl-runtime run`. It is called with a client that refuses every
        request but reads. `kinds`: more kinds to read, which the program does not watch. `namespaces`: read these only.
        `redact`: fields whose values are replaced by digests, as `ConfigMap:data`; those of Secrets always are.

        A LIST that the server forbids is a gap in the snapshot: `kinds` names the missing right. Blocks for a LIST a
        kind, and for a rehearsal of the program. Raises ApiError and TransportError when the server does not answer
        otherwise, what `build` raises, TypeError and ValueError for what it must not return.
        """
        return _Reading(client, build, [api_resource_of(kind) for kind in kinds],
                        None if namespaces is None else tuple(namespaces), Redaction(redact)).read()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it to a file that only its owner can read. Raises OSError."""
        data = msgspec.json.encode(_Saved(
            FORMAT, VERSION, self.read_at.isoformat(), self.server, self.server_version, list(self.kinds),
            list(self.redacted), self.all_definitions, list(self.objects)))
        if str(path).endswith(".gz"):
            data = gzip.compress(data, mtime=0)
        target = Path(path)
        partial = target.with_name(f".{target.name}.{os.getpid()}")
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
            partial.replace(target)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Snapshot:
        """Read a saved snapshot. Raises SnapshotError for a file that holds none, or one of another version of the
        format; OSError."""
        data = Path(path).read_bytes()
        try:
            if data[:2] == b"\x1f\x8b":
                data = gzip.decompress(data)
            version = msgspec.json.decode(data, type=_Head).format
        except (msgspec.MsgspecError, EOFError, OSError, zlib.error, UnicodeDecodeError) as error:
            raise SnapshotError(f"{path} holds no snapshot: {error}") from None
        if version != FORMAT:
            raise SnapshotError(f"{path} has version {version} of the format of snapshots, and this library "
                                f"({VERSION}) reads version {FORMAT}: read the cluster again")
        try:
            saved = msgspec.json.decode(data, type=_Saved)
            at = datetime.fromisoformat(saved.read_at).astimezone(UTC)
        except (msgspec.MsgspecError, ValueError) as error:
            raise SnapshotError(f"{path} holds a damaged snapshot: {error}") from None
        return cls(tuple(saved.objects), tuple(saved.kinds), at, saved.server, saved.server_version,
                   tuple(saved.redacted), saved.all_definitions)

    def is_same(self, digest: Any, value: Any) -> bool | None:
        """Whether a value is the one for which a digest stands; None where that cannot be known: the snapshot was
        loaded, and both have the same length."""
        if self.redaction is not None:
            return self.redaction.stands_for(digest, value)
        return None if _length(digest) == _length(value) else False

    def __str__(self) -> str:
        count = sum(kind.served for kind in self.kinds)
        return f"{len(self.objects)} objects of {count} kinds, read at {self.read_at:%Y-%m-%d %H:%M:%S} UTC from " \
               f"{self.server or 'a server'}"


class WriteRefused(RequestError):
    """The program wrote to the cluster while it was built."""


def only_reads(_client_send: Send) -> Send:
    """A layer that refuses every request but GET: the program that is built writes nothing."""
    def send(call: Call) -> Answer:
        if call.request.method not in ("GET", "HEAD"):
            raise WriteRefused(f"{call.request.operation}: a plan writes nothing, and this request was made while the "
                               "program was built: write where it runs, not where it is made")
        return _client_send(call)
    return send


class _Reading:
    """One reading of a cluster."""

    def __init__(self, client: Client, build: Build, kinds: list[ApiResource], namespaces: tuple[str, ...] | None,
                 redaction: Redaction) -> None:
        self._client, self._build, self._named = client.with_layer(only_reads), build, kinds
        self._namespaces, self._redaction = namespaces, redaction
        self._read: dict[str, ReadKind] = {}
        self._objects: dict[tuple[str, str, str], Object] = {}
        self._definitions: dict[str, Object] = {}
        self._all_definitions = True
        self._where: tuple[str, ...] | None = namespaces

    def read(self) -> Snapshot:
        from kubectl_runtime.plan.program import Program

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
        self._follow()
        found = self._snapshot(at)
        for _ in range(_ROUNDS):
            wanted = [kind for kind in self._asked_for(found) if kind.full_name not in self._read]
            if not wanted:
                break
            for kind in wanted:
                self._list(kind, self._where)
            self._follow()
            found = self._snapshot(at)
        return found

    def _asked_for(self, found: Snapshot) -> list[ApiResource]:
        from kubectl_runtime.plan.running import kinds_asked_for

        return [self._resolved(group, version, plural) for group, version, plural in
                kinds_asked_for(self._build, found)]

    def _resolved(self, group: str, version: str, plural: str) -> ApiResource:
        definition = self._definitions.get(f"{plural}.{group}")
        if definition is not None:
            spec = definition["spec"]
            return ApiResource(group, version, spec["names"]["kind"], plural, Scope(spec["scope"]))
        api_version = f"{group}/{version}" if group else version
        try:
            served = self._client.discovery.pinned_group(api_version)
        except KubeError:
            served = ()
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
        if kind.full_name in self._read or kind.full_name in NEVER or kind == DEFINITIONS:
            return
        where: Sequence[str | None] = namespaces if kind.namespaced and namespaces is not None else (None,)
        count, refused = 0, []
        for namespace in where:
            api = Api.namespaced(self._client, kind, namespace) if namespace else Api.all(self._client, kind)
            try:
                for obj in api.list_all():
                    self._keep(_whole(obj, kind))
                    count += 1
            except KindNotServedError:
                self._note(kind, namespaces, 0, served=False)
                return
            except ApiError as error:
                if error.is_forbidden:
                    refused.append(_refusal(kind, namespace))
                elif error.is_not_found:
                    self._note(kind, namespaces, 0, served=False)
                    return
                else:
                    raise
        self._note(kind, namespaces if kind.namespaced else None, count, refused=", ".join(refused))

    def _note(self, kind: ApiResource, namespaces: tuple[str, ...] | None, count: int, *, refused: str = "",
              served: bool = True) -> None:
        self._read[kind.full_name] = ReadKind(kind.group, kind.version, kind.kind, kind.plural, kind.namespaced,
                                              namespaces, count, refused, served)

    def _keep(self, obj: Object) -> None:
        obj = self._redaction.redact(obj)
        metadata = obj["metadata"]
        self._objects[f"{obj['apiVersion']}/{obj['kind']}", metadata.get("namespace", ""), metadata["name"]] = obj

    def _follow(self) -> None:
        """Read what owns the objects, and what the cluster makes for them, until there is nothing new."""
        looked_at: set[tuple[str, str, str]] = set()
        while True:
            before = len(self._read)
            for name in list(self._read):
                for owned in _OWNED.get(name, ()) if self._read[name].count else ():
                    self._list(owned, self._where)
            for key in [key for key in self._objects if key not in looked_at]:
                looked_at.add(key)
                for owner in self._objects[key]["metadata"].get("ownerReferences") or ():
                    self._list(self._owner(owner), self._where)
            if len(self._read) == before:
                return

    def _owner(self, owner: Mapping[str, Any]) -> ApiResource:
        group, version = split_api_version(str(owner.get("apiVersion") or "v1"))
        kind = str(owner.get("kind") or "Unknown")
        for name, read in self._read.items():
            if (read.group, read.kind) == (group, kind):
                return self._read[name].resource
        for definition in self._definitions.values():
            spec = definition["spec"]
            if (spec["group"], spec["names"]["kind"]) == (group, kind):
                return ApiResource(group, version, kind, spec["names"]["plural"], Scope(spec["scope"]))
        return ApiResource(group, version, kind, plural_of(kind), Scope.CLUSTER if kind == "Node" else Scope.NAMESPACED)

    def _snapshot(self, at: datetime) -> Snapshot:
        definitions = [self._redaction.redact(self._definitions[name]) for name in sorted(self._definitions)
                       if name in self._read]
        version = ""
        with suppress(KubeError):  # no reason not to have the rest
            version = self._client.server_version().git_version
        return Snapshot((*definitions, *self._objects.values()), tuple(self._read.values()), at,
                        _without_user(self._client.config.cluster_url), version, self._redaction.fields,
                        self._all_definitions, redaction=self._redaction)


def _length(value: Any) -> int:
    text = str(value)
    try:
        return len(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError):
        return len(text)


def _without_user(url: str) -> str:
    scheme, separator, rest = url.partition("://")
    host, slash, path = rest.partition("/")
    return f"{scheme}{separator}{host.rpartition('@')[2]}{slash}{path.partition('?')[0]}"


def _whole(obj: Any, kind: ApiResource) -> Object:
    """The object as JSON has it, with its kind, which items of a list leave out."""
    return {"apiVersion": kind.api_version, "kind": kind.kind, **obj.to_dict()}


def _refusal(kind: ApiResource, namespace: str | None) -> str:
    where = f" in namespace {namespace}" if namespace else ""
    return f"list {kind.full_name}{where}"
