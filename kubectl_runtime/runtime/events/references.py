"""`Reference`: the object that an Event is about. Immutable and hashable; part of what makes two events the same.

It has no resourceVersion: repetitions of one event are about one object in many versions.
"""
from __future__ import annotations

from typing import Any, NamedTuple

from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.meta.gvk import ApiResource
from kubectl_runtime.core.meta.refs import ObjectRef
from kubectl_runtime.core.requests.body import plain_body

WITHOUT_NAMESPACE = "default"
"""Where Events about cluster-scoped objects live; the server takes them nowhere else (but in kube-system)."""


class Reference(NamedTuple):
    """An object that an Event is about: Kubernetes' ObjectReference. Empty texts are left out.

    `kubectl describe` finds an Event by the uid of its object, so give it where it is known. `field_path` names a part
    of the object: `spec.containers{web}`.
    """

    api_version: str
    kind: str
    name: str
    namespace: str = ""
    uid: str = ""
    field_path: str = ""

    @classmethod
    def of(cls, regarding: Any) -> Reference:
        """The reference to an object as the library reads it, a dict, a model of the official client (which must name
        its apiVersion and kind), an ObjectRef (which has no uid), or a Reference. Raises RequestError for anything
        else, and for an object without a kind or a name."""
        if isinstance(regarding, cls):
            return regarding
        if isinstance(regarding, ObjectRef):
            return cls.at(regarding)
        resource = getattr(regarding, "api_resource", None)
        if isinstance(resource, ApiResource) and not isinstance(regarding, type):
            return cls._checked(resource.api_version, resource.kind, regarding.name, regarding.namespace, regarding.uid)
        content = plain_body(regarding)
        metadata = content.get("metadata") or {}
        return cls._checked(content.get("apiVersion"), content.get("kind"), metadata.get("name"),
                            metadata.get("namespace"), metadata.get("uid"))

    @classmethod
    def at(cls, ref: ObjectRef, uid: str = "") -> Reference:
        """The reference to the object at `ref`; only a `uid` tells it from namesakes."""
        return cls._checked(ref.resource.api_version, ref.resource.kind, ref.name, ref.namespace, uid)

    @classmethod
    def _checked(cls, api_version: Any, kind: Any, name: Any, namespace: Any, uid: Any) -> Reference:
        texts = tuple(text or "" for text in (api_version, kind, name, namespace, uid))
        if not all(isinstance(text, str) for text in texts) or not all(texts[:3]):
            raise RequestError("an Event is about an object with apiVersion, kind and name: give publish() an object "
                               "of a resource class, an ObjectRef, or a Reference(api_version, kind, name, ...)")
        return cls(*texts)

    @property
    def home(self) -> str:
        """The namespace in which Events about it are written."""
        return self.namespace or WITHOUT_NAMESPACE

    def to_dict(self) -> dict[str, str]:
        """The reference as the API carries it."""
        named = {"apiVersion": self.api_version, "kind": self.kind, "namespace": self.namespace, "name": self.name,
                 "uid": self.uid, "fieldPath": self.field_path}
        return {key: value for key, value in named.items() if value}

    def __str__(self) -> str:
        where = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"{self.kind} {where}"
