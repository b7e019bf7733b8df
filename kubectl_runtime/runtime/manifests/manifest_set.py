"""What a set of manifests holds, before anything is sent: its objects, and in which order they are to be applied.

    first     Namespaces, then CustomResourceDefinitions: what the others need to be there
    then      everything else, in the order of the source

What can be seen to be wrong without a server is told of all objects at once: no kind, no name, one object twice (the
second apply would take away what the first one set).
"""
from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from kubectl_runtime.client.server.served_kinds import ServedKind
from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.meta.gvk import ApiResource, GroupVersionKind, Scope
from kubectl_runtime.manifests.sources import Manifests, read_objects
from kubectl_runtime.runtime.parts import mapping


@dataclass(frozen=True, slots=True, eq=False)
class Item:
    """One object of a set. `namespace` is what it says itself; empty when it says none."""

    content: Mapping[str, Any] = field(repr=False)  # it may be a Secret
    place: str
    gvk: GroupVersionKind
    name: str
    namespace: str

    @property
    def is_crd(self) -> bool:
        """Whether it is a CustomResourceDefinition."""
        return self.gvk.kind == "CustomResourceDefinition" and self.gvk.group == "apiextensions.k8s.io"

    @property
    def is_namespace(self) -> bool:
        """Whether it is a Namespace."""
        return self.gvk.kind == "Namespace" and not self.gvk.group

    @property
    def comes_first(self) -> bool:
        """Whether other objects may need it: a Namespace or a CustomResourceDefinition."""
        return self.is_namespace or self.is_crd


def read_set(source: Manifests, default_namespace: str, *, recursive: bool = False) -> tuple[Item, ...]:
    """The objects of `source`, in its order. Raises ManifestError and OSError as `read_objects`, RequestError that
    lists all that is wrong with the objects, with where they stand."""
    items, problems = [], []
    seen: dict[tuple[str, str, str, str], str] = {}
    for content, place in read_objects(source, recursive=recursive, defaults=False):
        try:
            item = _item(content, place)
        except RequestError as error:
            problems.append(f"{place}: {error}")
            continue
        namespace = "" if item.comes_first else item.namespace or default_namespace
        key = (item.gvk.group, item.gvk.kind, namespace, item.name)
        if key in seen:
            problems.append(f"{place}: {item.gvk.kind} {item.name} stands already in {seen[key]}")
        seen[key] = place
        items.append(item)
    if problems:
        raise RequestError("\n  ".join(["nothing was sent, since the manifests are wrong:", *problems]))
    return tuple(items)


def first_ones(items: Iterable[Item]) -> list[Item]:
    """Of these, the Namespaces, then the CustomResourceDefinitions."""
    return sorted((item for item in items if item.comes_first), key=lambda item: item.is_crd)


def other_ones(items: Iterable[Item]) -> list[Item]:
    """Of these, all but the Namespaces and CustomResourceDefinitions."""
    return [item for item in items if not item.comes_first]


def kinds_to_come(items: Iterable[Item]) -> Iterator[ServedKind]:
    """The kinds that the CRDs of the set define. What is wrong with a CRD is left to the server to say."""
    for item in items:
        if not item.is_crd:
            continue
        spec = mapping(item.content.get("spec"))
        names = mapping(spec.get("names"))
        versions = spec.get("versions")
        for version in map(mapping, versions if isinstance(versions, list) else ()):
            group, name = _text(spec, "group"), _text(version, "name")
            kind, plural = _text(names, "kind"), _text(names, "plural")
            if version.get("served") and group and name and kind and plural:
                scope = Scope.CLUSTER if spec.get("scope") == "Cluster" else Scope.NAMESPACED
                yield ServedKind(ApiResource(group, name, kind, plural, scope),
                                 subresources=tuple(mapping(version.get("subresources"))))


def _item(content: Mapping[str, Any], place: str) -> Item:
    kind, api_version, metadata = content.get("kind"), content.get("apiVersion"), content.get("metadata")
    if not (isinstance(kind, str) and kind and isinstance(api_version, str) and api_version):
        raise RequestError("an object needs an apiVersion and a kind, both texts")
    gvk = GroupVersionKind.parse(api_version, kind)
    if not isinstance(metadata, Mapping):
        raise RequestError(f"a {kind} needs metadata with a name")
    name, namespace = metadata.get("name"), metadata.get("namespace") or ""
    if not name and metadata.get("generateName"):
        raise RequestError(f"a {kind} with a generateName is another one each time; give it a name")
    if not (isinstance(name, str) and name and isinstance(namespace, str)):
        raise RequestError(f"a {kind} needs a name, and its name and namespace are texts: is there a number to quote?")
    return Item(content, place, gvk, name, namespace)


def _text(part: Mapping[str, Any], key: str) -> str:
    value = part.get(key)
    return value if isinstance(value, str) else ""
