"""Which resource types the server serves: built-in kinds and those that CustomResourceDefinitions add at run time.

`ServedResource` is one served (group, version, plural); versions of one type share `storage` and differ in `version`.
Thread safety: the registry is changed and walked under the cluster's lock, `get` and `by_kind` are safe anywhere; a
`ServedResource` never changes.

`Column`: one column of a server-side table; the registry keeps those of a type, table.py makes rows of them.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any

from kubectl_runtime.apiserver.schemas import Schema
from kubectl_runtime.apiserver.strategy import Strategy
from kubectl_runtime.core.meta.gvk import version_priority

Object = dict[str, Any]
Cell = Callable[[Object, datetime], Any]
"""What a cell shows of an object at the time of a request."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table."""

    name: str
    cell: Cell
    type: str = "string"
    format: str = ""
    priority: int = 0
    description: str = ""

    def definition(self) -> Object:
        """The entry of ``columnDefinitions``."""
        return {"name": self.name, "type": self.type, "format": self.format,
                "description": self.description or self.name, "priority": self.priority}


ALL_VERBS = ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch")


@dataclass(frozen=True)
class Subresource:
    """A subresource as discovery shows it; group and version only where its kind is of another group (Scale)."""

    name: str
    kind: str
    verbs: tuple[str, ...] = ("get", "patch", "update")
    group: str = ""
    version: str = ""


@dataclass(frozen=True, eq=False)
class ServedResource:
    """One served resource type; compared by identity."""

    group: str
    version: str
    kind: str
    plural: str
    singular: str
    namespaced: bool
    verbs: tuple[str, ...] = ALL_VERBS
    list_kind: str = ""
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    subresources: tuple[Subresource, ...] = ()
    strategy: Strategy = field(default_factory=Strategy)
    schema_loader: Callable[[], Schema] | None = None  # called at first use, so that start-up stays quick
    columns: tuple[Column, ...] = ()
    is_custom: bool = False
    storage: str = ""  # the key under which the objects are stored, shared by all versions; "" is "group/plural"
    storage_version_hash: str = ""
    terminating: bool = False  # its definition is being deleted: discovery names fewer verbs
    deprecation: str = ""  # the text of the Warning header that each request of a deprecated version gets

    def __post_init__(self) -> None:
        if not self.list_kind:
            object.__setattr__(self, "list_kind", self.kind + "List")
        if not self.storage:
            object.__setattr__(self, "storage", f"{self.group}/{self.plural}")

    @property
    def api_version(self) -> str:
        """``v1`` or ``apps/v1``."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified(self) -> str:
        """``configmaps`` or ``deployments.apps``: how messages name the type."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def storage_group(self) -> str:
        """The group under which the objects are stored: validation errors name that (core, for events.k8s.io)."""
        return self.storage.partition("/")[0]

    @cached_property
    def schema(self) -> Schema | None:
        """The schema of the kind, if there is one."""
        return self.schema_loader() if self.schema_loader else None

    def subresource(self, name: str) -> Subresource | None:
        """The subresource of that name, if the type has it."""
        return next((sub for sub in self.subresources if sub.name == name), None)

    @cached_property
    def prefix(self) -> bytes:
        """The start of an encoded object: ``{"kind":…,"apiVersion":…,``."""
        return b'{"kind":"%s","apiVersion":"%s",' % (self.kind.encode(), self.api_version.encode())


class Registry:
    """Resource types by (group, version, plural); groups and versions in the order in which discovery lists them."""

    def __init__(self, types: Iterable[ServedResource] = ()) -> None:
        self._types: dict[tuple[str, str, str], ServedResource] = {}
        self._by_kind: dict[tuple[str, str, str], ServedResource] = {}
        self._by_storage: dict[str, list[ServedResource]] = {}
        self._groups: dict[str, list[str]] = {"": []}
        self.revision = 0  # rises with every change, for caches of discovery and OpenAPI
        for resource_type in types:
            self.add(resource_type)

    def add(self, resource_type: ServedResource) -> None:
        """Serve a type, in place of one of the same group, version and plural."""
        key = (resource_type.group, resource_type.version, resource_type.plural)
        if key in self._types:
            self.remove(self._types[key])
        self._types[key] = resource_type
        self._by_kind[resource_type.group, resource_type.version, resource_type.kind] = resource_type
        self._by_storage.setdefault(resource_type.storage, []).append(resource_type)
        versions = self._groups.setdefault(resource_type.group, [])
        if resource_type.version not in versions:
            versions.append(resource_type.version)
            if resource_type.is_custom:
                versions.sort(key=version_priority)
        self.revision += 1

    def remove(self, resource_type: ServedResource) -> None:
        """Serve a type no longer; a version or group without types goes too."""
        key = (resource_type.group, resource_type.version, resource_type.plural)
        if self._types.get(key) is not resource_type:
            return
        del self._types[key]
        if self.by_kind(resource_type.group, resource_type.version, resource_type.kind) is resource_type:
            del self._by_kind[resource_type.group, resource_type.version, resource_type.kind]
        self._by_storage[resource_type.storage].remove(resource_type)
        if not any(group == key[0] and version == key[1] for group, version, _ in self._types):
            self._groups[key[0]].remove(key[1])
            if not self._groups[key[0]] and key[0]:
                del self._groups[key[0]]
        self.revision += 1

    def get(self, group: str, version: str, plural: str) -> ServedResource | None:
        """The type, or None."""
        return self._types.get((group, version, plural))

    def by_kind(self, group: str, version: str, kind: str) -> ServedResource | None:
        """The type of a kind, or None."""
        return self._by_kind.get((group, version, kind))

    def of(self, group: str, version: str) -> list[ServedResource]:
        """The types of a group and version, in order of registration."""
        return [t for t in self._types.values() if t.group == group and t.version == version]

    def of_storage(self, storage: str) -> list[ServedResource]:
        """The served types (one for each version) of a storage key."""
        return list(self._by_storage.get(storage, ()))

    def groups(self) -> list[str]:
        """The groups, the core group "" first."""
        return list(self._groups)

    def versions(self, group: str) -> list[str]:
        """The versions of a group, the preferred one first."""
        return list(self._groups.get(group, ()))

    def plural_of(self, name: str) -> str | None:
        """The plural of a resource that is called by its singular or short name; None for what is none of these."""
        types = list(self)
        if any(t.plural == name for t in types):
            return None
        return next((t.plural for t in types if name == t.singular or name in t.short_names), None)

    def __iter__(self) -> Iterator[ServedResource]:
        return iter(list(self._types.values()))
