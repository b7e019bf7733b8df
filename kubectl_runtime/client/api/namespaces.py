"""`Namespaces`: one kind in several namespaces, as one thing to watch. Made by `Api.namespaces`.

A controller makes one watch of each namespace and one store of all. For verbs take an `Api.namespaced`, or `Api.all`
where the rights are for all namespaces.
"""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from kubectl_runtime.client.api.client import Client
from kubectl_runtime.core.base.clock import Duration
from kubectl_runtime.core.meta.gvk import ApiResource
from kubectl_runtime.core.meta.selectors import FieldSelection, LabelSelection
from kubectl_runtime.core.objects.partial import PartialObjectMeta
from kubectl_runtime.core.requests.params import ListParams, VersionMatch

K = TypeVar("K")


@dataclass(frozen=True)
class Namespaces(Generic[K]):
    """One kind in several namespaces, made by `Api.namespaces`: one watch each, one store; a controller waits for all.

    `apis` has the `Api` of each namespace, in the order given, at least one. Immutable; safe to use from any thread.

    >>> Controller(Api.namespaces(client, ConfigMap, ["default", "kube-system"]))
    <...Controller ...>
    """

    apis: tuple[Any, ...]  # each an `Api[K]`, which makes this class and cannot be known here

    @property
    def client(self) -> Client:
        """The client that all of them share."""
        return self.apis[0].client  # type: ignore[no-any-return]

    @property
    def resource(self) -> ApiResource:
        """The kind's ApiResource."""
        return self.apis[0].resource  # type: ignore[no-any-return]

    @property
    def kind(self) -> type[K]:
        """The kind's resource class."""
        return self.apis[0].kind  # type: ignore[no-any-return]

    @property
    def namespaces(self) -> tuple[str | None, ...]:
        """The names, in the order given."""
        return tuple(api.namespace for api in self.apis)

    def with_metadata_only(self) -> Namespaces[PartialObjectMeta]:
        """An Api of the same namespaces that asks for metadata alone: see `Api.with_metadata_only`."""
        return Namespaces(tuple(api.with_metadata_only() for api in self.apis))

    def with_fields(self, view: type[Any]) -> Namespaces[Any]:
        """An Api of the same namespaces that keeps only the fields of `view`: see `Api.with_fields`."""
        return Namespaces(tuple(api.with_fields(view) for api in self.apis))

    def list_all(self, params: ListParams | None = None, *, label_selector: LabelSelection | None = None,
                 field_selector: FieldSelection | None = None, limit: int | None = None,
                 resource_version: str | None = None, resource_version_match: VersionMatch | None = None,
                 timeout: Duration | None = None) -> Iterator[K]:
        """Iterate over all objects, namespace by namespace and page by page. Arguments and errors as for
        `Api.list_all`: `limit` and `timeout` are for each page."""
        for api in self.apis:
            yield from api.list_all(params, label_selector=label_selector, field_selector=field_selector, limit=limit,
                                    resource_version=resource_version, resource_version_match=resource_version_match,
                                    timeout=timeout)

    def __repr__(self) -> str:
        return f"<Api of {self.resource.full_name} in the namespaces {', '.join(map(str, self.namespaces))}>"
