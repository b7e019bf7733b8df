"""A stored snapshot of a cluster, with digests in place of secret values.

A saved snapshot is one JSON document in a file that only its owner can read. It is compressed if the file's name ends
with `.gz`.

`Redaction` replaces secret values with digests of equal length as soon as they are read. It covers the values of
Secrets and the fields named by the caller. In objects with such values it also covers kubectl's last-applied
annotation, which contains copies of the values. Each snapshot has a new key for the digests; the key is never saved.
Equal values have equal digests, so that a copy of a Secret is still recognizable.
"""
from __future__ import annotations

import base64
import binascii
import gzip
import hashlib
import os
import secrets
import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from typing import Annotated, Any, Self

import msgspec

from kubectl_runtime.apiserver.errors import BodyDecodeError
from kubectl_runtime.apiserver.storage import Registry, ServedResource
from kubectl_runtime.client.api.client import Client
from kubectl_runtime.core.base.errors import KubeError, RequestError
from kubectl_runtime.core.base.version import VERSION
from kubectl_runtime.core.base.wire import converted, decoded
from kubectl_runtime.core.codec.jsonbytes import json_copy
from kubectl_runtime.core.meta.gvk import ApiResource, Scope, split_api_version
from kubectl_runtime.core.meta.problems import DECODE_FAILURES
from kubectl_runtime.plan.report import Problem
from kubectl_runtime.testing.lab.recordings import resource_of

Object = dict[str, Any]
Build = Callable[[Client], Any]

FORMAT = 1
"""The format version of saved snapshots; other versions are refused."""

LARGEST = 1 << 30
"""The maximum number of bytes of an uncompressed snapshot."""

DEFINITIONS = ApiResource("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions",
                          Scope.CLUSTER)
_ADMISSION = "admissionregistration.k8s.io"
AROUND = (
    ApiResource("", "v1", "Namespace", "namespaces", Scope.CLUSTER),
    ApiResource("", "v1", "ResourceQuota", "resourcequotas"),
    ApiResource("", "v1", "LimitRange", "limitranges"),
    *(ApiResource(_ADMISSION, "v1", kind, plural, Scope.CLUSTER) for kind, plural in (
        ("ValidatingAdmissionPolicy", "validatingadmissionpolicies"),
        ("ValidatingAdmissionPolicyBinding", "validatingadmissionpolicybindings"),
        ("MutatingAdmissionPolicy", "mutatingadmissionpolicies"),
        ("MutatingAdmissionPolicyBinding", "mutatingadmissionpolicybindings"))))
STORAGE = (
    ApiResource("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims"),
    ApiResource("", "v1", "PersistentVolume", "persistentvolumes", Scope.CLUSTER),
    ApiResource("storage.k8s.io", "v1", "StorageClass", "storageclasses", Scope.CLUSTER))
"""The kinds that the copy needs to bind claims to volumes."""
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_ALPHABET = b"abcdefghijklmnopqrstuvwxyz234567"


class SnapshotError(KubeError):
    """A file holds no snapshot, or a snapshot of another format version.

    >>> Snapshot.load("/dev/null")
    Traceback (most recent call last):
        ...
    SnapshotError: /dev/null holds no snapshot
    """


class Redaction:
    """Replaces values with digests of equal length. `fields`: the fields to redact as `KIND:PATH`, such as
    `ConfigMap:data` or `Database.example.com:spec.password`; all values below the path are replaced. Secrets are always
    redacted."""

    def __init__(self, fields: Iterable[str] = ()) -> None:
        """Raises RequestError for a field that is not of the form `KIND:PATH`."""
        self.fields = tuple(fields)
        self._key = secrets.token_bytes(32)
        self._paths: dict[str, list[list[str]]] = {}
        for text in self.fields:
            kind, colon, path = text.partition(":")
            if not (kind and colon and path) or not all(path.split(".")):
                raise RequestError(f"{text!r} names no field: write KIND:PATH, such as ConfigMap:data or "
                                   "Database.example.com:spec.password")
            self._paths.setdefault(kind.lower(), []).append(path.split("."))

    def stands_for(self, digest: Any, value: Any) -> bool:
        """Whether `digest` is the digest of `value`."""
        return digest in (self._encoded(value), self._all(value))

    def redact(self, obj: Object) -> Object:
        """Return a copy of the object with digests in place of the redacted values."""
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
        """Redact kubectl's annotation, which holds a copy of the applied object."""
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
        """`length` letters and digits, computed from the value and the key."""
        found = hashlib.shake_256(self._key + len(value).to_bytes(8, "big") + value).digest(length)
        return bytes(_ALPHABET[byte % len(_ALPHABET)] for byte in found)


class ReadKind(msgspec.Struct, frozen=True):
    """A kind whose objects were listed: the namespaces (None: all), the number of objects, and the missing permission
    if the server forbade the LIST. `served` is False if the server does not serve the kind, so that it has no
    objects."""

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
        """The kind as an ApiResource."""
        return ApiResource(self.group, self.version, self.kind, self.plural,
                           Scope.NAMESPACED if self.namespaced else Scope.CLUSTER)

    def covers(self, namespace: str) -> bool:
        """Whether the objects of a namespace were listed; true for "", which stands for all listed namespaces."""
        return self.namespaces is None or not namespace or namespace in self.namespaces


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


class _Owner(msgspec.Struct):
    uid: str = ""
    apiVersion: str = ""
    kind: str = ""
    name: str = ""


class _Metadata(msgspec.Struct):
    name: Annotated[str, msgspec.Meta(min_length=1)]
    namespace: str | None = None
    uid: str = ""
    generation: int | None = None
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    finalizers: list[str] | None = None
    ownerReferences: list[_Owner] | None = None
    managedFields: list[Object] | None = None


class _Shape(msgspec.Struct):
    """The fields that a plan needs in every object, to check a loaded file."""

    apiVersion: str
    kind: str
    metadata: _Metadata


@dataclass(frozen=True)
class StoredSnapshot:
    """The objects that were read from a cluster; immutable."""

    objects: tuple[Object, ...]
    """The objects as the server returned them, except for redacted values."""
    kinds: tuple[ReadKind, ...]
    read_at: datetime
    """The time in UTC at which the reading of the cluster began."""
    server: str = ""
    """The server's URL; `server_version` is the server's version."""
    server_version: str = ""
    redacted: tuple[str, ...] = ()
    """The fields whose values were replaced with digests, in addition to Secrets."""
    all_definitions: bool = True
    """Whether the CustomResourceDefinitions could be read."""
    by_name: Mapping[str, ReadKind] = field(init=False, repr=False, compare=False)
    """The kinds by `plural.group`."""
    redaction: Redaction | None = field(default=None, repr=False, compare=False)
    """The Redaction that made the digests; None for a loaded snapshot, since the key is never saved."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "by_name", {kind.resource.full_name: kind for kind in self.kinds})

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the snapshot to a file that only its owner can read. Raises OSError."""
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
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a saved snapshot. Raises OSError, and SnapshotError for a file that is no snapshot or has another format
        version."""
        with open(path, "rb") as file:
            data = file.read(LARGEST + 1)
        try:
            if data[:2] == b"\x1f\x8b":
                data = gzip.GzipFile(fileobj=BytesIO(data)).read(LARGEST + 1)
            if len(data) > LARGEST:
                raise SnapshotError(f"{path} holds no snapshot: it has more than {LARGEST >> 20} MiB")
            version = decoded(data, _Head).format
        except (*DECODE_FAILURES, EOFError, OSError, zlib.error) as error:
            raise SnapshotError(f"{path} holds no snapshot: {error}") from None
        if version != FORMAT:
            raise SnapshotError(f"{path} has version {version} of the snapshot format, and this library "
                                f"({VERSION}) reads version {FORMAT}: read the cluster again")
        try:
            saved = decoded(data, _Saved)
            at = datetime.fromisoformat(saved.read_at).astimezone(UTC)
            converted(saved.objects, list[_Shape])
            Redaction(saved.redacted)
        except (*DECODE_FAILURES, RequestError, ValueError, OverflowError) as error:
            raise SnapshotError(f"{path} holds a damaged snapshot: {error}") from None
        return cls(tuple(saved.objects), tuple(saved.kinds), at, saved.server, saved.server_version,
                   tuple(saved.redacted), saved.all_definitions)

    def is_same(self, digest: Any, value: Any) -> bool | None:
        """Whether `digest` is the digest of `value`. For a loaded snapshot this is unknown if the lengths are equal;
        the result is then None."""
        if self.redaction is not None:
            return self.redaction.stands_for(digest, value)
        return None if _length(digest) == _length(value) else False

    def with_other_digests(self) -> Self:
        """Return a copy of this snapshot in which other digests replace the secret values. If a program writes a value
        on the copy that differs from the value on this snapshot, it computed the value from a secret."""
        again = Redaction(self.redacted)
        return replace(self, objects=tuple(again.redact(obj) for obj in self.objects), redaction=None)

    def __str__(self) -> str:
        count = sum(kind.served for kind in self.kinds)
        return f"{len(self.objects)} objects of {count} kinds, read at {self.read_at:%Y-%m-%d %H:%M:%S} UTC from " \
               f"{self.server or 'a server'}"


def _length(value: Any) -> int:
    text = str(value)
    try:
        return len(base64.b64decode(text, validate=True))
    except (binascii.Error, ValueError):
        return len(text)


@contextmanager
def undamaged() -> Iterator[None]:
    """Raise SnapshotError if the block fails because the snapshot contains objects that no server would have stored."""
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, ExceptionGroup) as error:
        raise SnapshotError(f"the snapshot is damaged, and its objects cannot be simulated: {type(error).__name__}: "
                            f"{error}") from error


def uses_claims(obj: Object) -> bool:
    """Whether an object is a Pod with claims or a StatefulSet with claim templates."""
    kind, spec = (obj["apiVersion"], obj["kind"]), obj.get("spec")
    if not isinstance(spec, Mapping):
        return False
    if kind == ("apps/v1", "StatefulSet"):
        return bool(spec.get("volumeClaimTemplates"))
    return kind == ("v1", "Pod") and any(
        isinstance(volume, Mapping) and ("persistentVolumeClaim" in volume or "ephemeral" in volume)
        for volume in spec.get("volumes") or ())


def missing_storage(snapshot: StoredSnapshot) -> str:
    """Why the copy cannot bind claims to volumes; "" if the snapshot has claims, volumes and StorageClasses."""
    reads = {kind.plural: snapshot.by_name.get(kind.full_name) for kind in STORAGE}
    if refused := [read.refused for read in reads.values() if read is not None and read.refused]:
        return f"the right to {', '.join(refused)} is missing"
    unread = [plural for plural, read in reads.items() if read is None or not read.served]
    return f"the snapshot does not have {', '.join(unread)}" if unread else ""


def _without_claim(snapshot: StoredSnapshot) -> set[str]:
    """The names of the volumes whose claims are in namespaces that were not read. The copy does not contain these
    volumes, since it would take their claims for deleted."""
    if missing_storage(snapshot):
        return set()
    claims = snapshot.by_name[STORAGE[0].full_name]
    return {obj["metadata"]["name"] for obj in snapshot.objects
            if (obj["apiVersion"], obj["kind"]) == ("v1", "PersistentVolume")
            and not claims.covers((obj["spec"].get("claimRef") or {}).get("namespace") or "")}


def served_objects(snapshot: StoredSnapshot, registry: Registry) -> tuple[list[Object], Counter[str]]:
    """Return the snapshot's objects in the form in which a server with this registry stores them, with missing CRDs and
    namespaces added. Also return, by kind, the number of objects whose kind the server does not serve."""
    objects: list[Object] = []
    unserved: Counter[str] = Counter()
    served = {(kind.group, kind.version, kind.kind) for kind in registry}
    definitions = [obj for obj in snapshot.objects if obj["kind"] == DEFINITIONS.kind]
    defined = {obj["metadata"]["name"] for obj in definitions}
    custom = {(obj["spec"]["group"], obj["spec"]["names"]["kind"]) for obj in definitions}
    for kind in snapshot.kinds:
        own = (kind.group, kind.version, kind.kind) in served
        if not own and kind.count and kind.resource.full_name not in defined and "." in kind.group:
            objects.append(stand_in(kind.resource))
            custom.add((kind.group, kind.kind))
    namespaces = {obj["metadata"]["name"] for obj in snapshot.objects if obj["kind"] == "Namespace"}
    left_out = _without_claim(snapshot)
    for obj in snapshot.objects:
        group, _, version = obj["apiVersion"].rpartition("/")
        if (group, version, obj["kind"]) not in served and (group, obj["kind"]) not in custom:
            unserved[f"{obj['kind']} of {obj['apiVersion']}"] += 1
            continue
        if (group, obj["kind"]) == ("", "PersistentVolume") and obj["metadata"]["name"] in left_out:
            continue
        namespace = obj["metadata"].get("namespace")
        if namespace and namespace not in namespaces:
            namespaces.add(namespace)
            objects.append({"apiVersion": "v1", "kind": "Namespace", "status": {"phase": "Active"},
                            "spec": {"finalizers": ["kubernetes"]}, "metadata": {
                                "name": namespace, "labels": {"kubernetes.io/metadata.name": namespace}}})
        built_in = registry.by_kind(group, version, obj["kind"])
        objects.append(obj if built_in is None or built_in.is_custom else as_this_server_has_it(obj, built_in))
    return objects, unserved


def gaps(snapshot: StoredSnapshot, registry: Registry, asked: Iterable[tuple[str, str, str, str]],
         there: Collection[str]) -> tuple[list[str], list[Problem]]:
    """Return two lists. The first names kinds that are not simulated because a permission is missing. The second
    reports other kinds that could not be read, and kinds that the program requested but that were not read. `asked`:
    the requested kinds, each as group, version, plural and namespace. `there`: the kinds of the copy's objects, each as
    `plural.group`."""
    not_simulated: list[str] = []
    unknown: list[Problem] = []
    requested = set(asked)
    names = {resource_of(group, plural) for group, _, plural, _ in requested}
    if (why := missing_storage(snapshot)) and (
            STORAGE[0].full_name in there or any(map(uses_claims, snapshot.objects))):
        not_simulated.append(f"storage, so that claims are not bound and Pods do not wait for their claims ({why})")
    if (count := len(_without_claim(snapshot))) and STORAGE[1].full_name in names:
        not_simulated.append(f"{count} of {snapshot.by_name[STORAGE[1].full_name].count} PersistentVolumes, whose "
                             "claims are in namespaces that were not read")
    for read in snapshot.kinds:
        if read.refused and read.resource in STORAGE and read.resource.full_name not in names:
            continue
        if read.refused and read.resource in AROUND:
            not_simulated.append(f"{read.plural} (the right to {read.refused} is missing)")
        elif read.refused:
            unknown.append(Problem(f"{read.kind} objects",
                                   f"could not be read: the right to {read.refused} is missing"))
    for group, version, plural, namespace in sorted(requested):
        name, read_kind = resource_of(group, plural), snapshot.by_name.get(resource_of(group, plural))
        kind = registry.get(group, version, plural)
        if read_kind is not None and not read_kind.covers(namespace):
            unknown.append(Problem(f"{kind.kind if kind else plural} objects in namespace {namespace}", "are requested "
                                   "by the program but were not read: name the namespace when you read the snapshot"))
        if read_kind is not None or name == DEFINITIONS.full_name or group.startswith(("authorization", "authentic")):
            continue
        if kind is not None and kind.is_custom and snapshot.all_definitions:
            continue  # the program installs the kind's CRD, so no objects exist yet
        unknown.append(Problem(f"{kind.kind if kind else plural} objects", "are requested by the program but were not "
                               f"read: name the kind {name} when you read the snapshot"))
    return not_simulated, unknown


def as_this_server_has_it(obj: Object, kind: ServedResource) -> Object:
    """Return a built-in object without the fields that the simulated server does not know, and with the simulated
    server's defaults. Without this, the fields and defaults of another Kubernetes version would appear as changes by
    the program."""
    copy: Object = json_copy(obj)
    try:
        kind.strategy.decode(copy)
        kind.strategy.default(copy)
    except (BodyDecodeError, KeyError, TypeError, ValueError, AttributeError):
        return obj
    return {**copy, "apiVersion": obj["apiVersion"], "kind": obj["kind"]}


def stand_in(kind: ApiResource) -> Object:
    """A CRD that accepts any object, for a kind whose own CRD could not be read."""
    names = {"plural": kind.plural, "singular": kind.kind.lower(), "kind": kind.kind, "listKind": f"{kind.kind}List"}
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    version = {"name": kind.version, "served": True, "storage": True, "schema": schema, "subresources": {"status": {}}}
    conditions = [{"type": text, "status": "True", "reason": "Read", "message": "",
                   "lastTransitionTime": "1970-01-01T00:00:00Z"} for text in ("NamesAccepted", "Established")]
    return {"apiVersion": DEFINITIONS.api_version, "kind": DEFINITIONS.kind, "metadata": {"name": kind.full_name},
            "spec": {"group": kind.group, "names": names, "scope": kind.scope.value, "versions": [version],
                     "conversion": {"strategy": "None"}},
            "status": {"acceptedNames": names, "storedVersions": [kind.version], "conditions": conditions}}
