"""`Desired`: the checked desired state of a child. It also builds the content of the apply request.

A child is an object of a resource class, a dict, a model of the official client, or a manifest: YAML or JSON text, or
the `Path` of a file or folder. If only the name of a kind is known, the kind is looked up among the watched kinds, then
among the built-in kinds, then once by discovery.

`digest` shows whether the desired state has changed. It is computed from the object's own JSON, which for resource
classes is ten times faster than building the content. The content is built only when it is sent.
"""
from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from kubectl_runtime.core.base.errors import RequestError, class_named
from kubectl_runtime.core.base.guard import items_of, mapping
from kubectl_runtime.core.base.wire import TextValue
from kubectl_runtime.core.codec.jsonbytes import encode_plain
from kubectl_runtime.core.meta.gvk import ApiResource, GroupVersionKind, ObjectRef
from kubectl_runtime.core.meta.metav1 import OwnerReference
from kubectl_runtime.core.objects.partial import dynamic, is_partial
from kubectl_runtime.core.objects.resource import Resource
from kubectl_runtime.core.requests.params import Model, plain_body
from kubectl_runtime.core.requests.request import Place
from kubectl_runtime.runtime.children.decision import controller_in

Child: TypeAlias = Resource | Mapping[str, Any] | Model | str | bytes | Path
"""The types of a child. A text or path may contain several."""

KindFinder: TypeAlias = Callable[[GroupVersionKind], ApiResource]
"""Finds the kind that a child names. Raises DiscoveryError if there is no such kind."""


class Desired:
    """The desired state of one child."""

    __slots__ = ("_body", "_reference", "digest", "kind", "name", "namespace", "ref", "resource")

    def __init__(self, body: Resource | Mapping[str, Any], resource: ApiResource, kind: type[Resource],
                 namespace: str | None, name: str, reference: OwnerReference, digest: bytes) -> None:
        self._body = body
        self._reference = reference
        self.resource = resource
        self.kind = kind
        """The class that reads the child."""
        self.namespace = namespace
        self.name = name
        self.digest = digest
        self.ref = ObjectRef(resource, name, namespace)
        """The ref of the child."""

    @property
    def place(self) -> Place:
        """The target of requests for the child."""
        return Place(self.resource, self.namespace)

    def content(self) -> dict[str, Any]:
        """The content to apply: the child with its owner reference. The top level and the metadata are new dicts."""
        content = plain_body(self._body, defaults=False)
        metadata = dict(mapping(content.get("metadata")))
        owner = {key: value for key, value in msgspec.to_builtins(self._reference).items() if value is not None}
        others = [held for held in metadata.get("ownerReferences") or () if mapping(held).get("uid") != owner["uid"]]
        metadata["ownerReferences"] = [*others, owner]
        return _without_text({**content, "metadata": metadata})


def _without_text(content: dict[str, Any]) -> dict[str, Any]:
    """A Secret with its `stringData` moved to `data`. The server keeps neither `stringData` nor its manager, so changes
    by other managers could not be detected."""
    texts = content.get("stringData")
    if (content.get("kind"), content.get("apiVersion")) != ("Secret", "v1") or not isinstance(texts, Mapping):
        return content
    encoded = {key: b64encode(text.encode()).decode() for key, text in texts.items() if isinstance(text, str)}
    if len(encoded) < len(texts):
        return content  # invalid; the server will refuse it
    rest = {key: value for key, value in content.items() if key != "stringData"}
    return {**rest, "data": {**mapping(content.get("data")), **encoded}}


def desired(owner: Resource, children: Iterable[Child], find: KindFinder) -> list[Desired]:
    """The desired states of the children, in their order.

    Raises RequestError for a child that is not an object, has no name, cannot have this owner, or appears twice. Raises
    ManifestError and OSError for manifests that cannot be read.
    """
    reference = owner.owner_ref()
    whose = msgspec.json.encode(reference)
    found: dict[ObjectRef, Desired] = {}
    own = owner.ref
    for child in children:
        for one in _objects(child):
            wanted = _desired(owner, one, reference, whose, find)
            ref = wanted.ref
            if ref in found:
                raise RequestError(f"{ref} appears twice among the children of {owner.ref}: the second would remove "
                                   "the fields that the first sets")
            if ref == own:
                raise RequestError(f"{ref} cannot be its own child")
            found[ref] = wanted
    return list(found.values())


def _objects(child: Any) -> Iterator[Any]:
    if isinstance(child, Resource | Mapping):
        yield child
    elif isinstance(child, str | bytes):
        yield from _of_text(child)
    elif isinstance(child, Path):
        from kubectl_runtime.manifests.documents import read_objects  # as below

        yield from (content for content, _ in read_objects(child))
    elif child is not None and not isinstance(child, type) and (hasattr(child, "to_dict")):
        yield plain_body(child)
    else:
        raise RequestError(f"a child must be an object of a resource class, a dict or a manifest, not "
                           f"{class_named(child)}: ensure(obj, *children) takes children one by one")


@lru_cache(64)
def _of_text(text: str | bytes) -> list[Mapping[str, Any]]:
    """The objects in `text`. A text is never used as a file name: it may come from an object that others can write."""
    from kubectl_runtime.manifests.documents import objects_of, read_text  # imported here: few programs need YAML

    return [content for document in read_text(text, "the manifest of a child")
            for content, _ in objects_of(document.value, document.place)]


def _desired(owner: Resource, child: Any, reference: OwnerReference, whose: bytes, find: KindFinder) -> Desired:
    if isinstance(child, Resource):
        if not hasattr(child, "api_resource"):
            raise RequestError(f"{type(child).__name__} is bound to no kind, so its objects cannot be children")
        if is_partial(child):
            raise RequestError(f"{child.ref} cannot be applied, since this object has only a part of its content")
        resource, name, namespace, kind = child.api_resource, child.name, child.namespace, type(child)
        rival = controller_in(child.owner_references)
        other = f"{rival.kind} {rival.name}" if rival is not None and rival.uid != reference.uid else ""
    else:
        resource = find(GroupVersionKind.parse(_text(child, "apiVersion"), _text(child, "kind")))
        metadata = mapping(child.get("metadata"))
        name, namespace, kind = metadata.get("name") or "", metadata.get("namespace") or None, dynamic(resource)
        other = next((f"{held.get('kind')} {held.get('name')}" for held in items_of(metadata, "ownerReferences")
                      if held.get("controller") and held.get("uid") != reference.uid), "")
    if not name:
        raise RequestError(f"a child {resource.kind} of {owner.ref} has no name: child_name(obj, suffix) makes a "
                           "stable name")
    if other:
        raise RequestError(f"{resource.kind} {name} cannot be a child of {owner.ref}: its own owner reference "
                           f"names {other} as its controller")
    return Desired(child, resource, kind, _namespace(owner, resource, namespace, name), name, reference,
                   _digest(child, whose))


def _text(child: Mapping[str, Any], key: str) -> str:
    value = child.get(key)
    if not (isinstance(value, str) and value):
        raise RequestError(f"a child that is a dict or a manifest needs an apiVersion and a kind; {key} is {value!r}")
    return value


def _namespace(owner: Resource, resource: ApiResource, namespace: str | None, name: str) -> str | None:
    """The child's namespace, by default the owner's. Raises RequestError if the owner cannot own a child there."""
    own = owner.namespace
    if not resource.namespaced:
        if owner.api_resource.namespaced:
            raise RequestError(f"{owner.ref} cannot own {resource.kind} {name}, which is cluster-scoped: the garbage "
                               "collector would delete it. Give it a label that names its owner, and give the owner a "
                               "finalizer that deletes it")
        return None
    if not owner.api_resource.namespaced:
        if not namespace:
            raise RequestError(f"{resource.kind} {name} needs a namespace: its owner {owner.ref} is cluster-scoped "
                               "and has none")
        return namespace
    if namespace is None or namespace == own:
        return own
    raise RequestError(f"{owner.ref} cannot own {resource.kind} {name} in namespace {namespace}: an owner must be in "
                       "the namespace of the objects that it owns, or the garbage collector deletes them. Give the "
                       f"{resource.kind} a label that names its owner, and give the owner a finalizer that deletes it")


def _digest(child: Resource | Mapping[str, Any], whose: bytes) -> bytes:
    made = child.made_of if isinstance(child, Resource) else child
    try:
        text = _encode(made) if made is not None else b""
    except (TypeError, ValueError, RecursionError):
        text = b""
    if not text:  # the object was read and changed, or has fields that only the codec can encode
        text = encode_plain(plain_body(child, defaults=False))
    digest = blake2b(whose, digest_size=16)
    digest.update(text)
    return digest.digest()


def _known_here(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, TextValue):
        return str(value)
    raise TypeError(f"this encoder does not encode a value of type {type(value).__name__}")


_encode = msgspec.json.Encoder(order="deterministic", enc_hook=_known_here).encode


def built_in(gvk: GroupVersionKind) -> ApiResource | None:
    """The built-in kind of this name; None if there is no such kind."""
    from kubectl_runtime import resources  # imported here: only manifests of built-in kinds need it

    if gvk.kind not in resources.__all__:
        return None
    found: ApiResource = getattr(resources, gvk.kind).api_resource
    return found if found.gvk == gvk else None
