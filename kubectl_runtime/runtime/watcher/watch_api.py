"""The little that a watcher needs of an `Api`, so that it can be fed from a script in tests."""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar, cast

from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.base.status import Status
from kubectl_runtime.core.base.stop import StopToken
from kubectl_runtime.core.codec.record import Record
from kubectl_runtime.core.meta.gvk import ApiResource
from kubectl_runtime.core.meta.metav1 import ListMeta
from kubectl_runtime.core.requests.params import ListParams, WatchParams
from kubectl_runtime.core.requests.request import Retry
from kubectl_runtime.runtime.watcher.watcher_config import WatcherConfig

K = TypeVar("K")
K_co = TypeVar("K_co", covariant=True)


class WatchItem(Protocol):
    """One event of a watch as the client decodes it."""

    @property
    def type(self) -> str:
        """The type of the event: ADDED, MODIFIED, DELETED, BOOKMARK or ERROR."""

    @property
    def record(self) -> Record | None:
        """The object; None for a bookmark and an error."""

    @property
    def resource_version(self) -> str | None:
        """Where to resume after this event; None for an error."""

    @property
    def status(self) -> Status | None:
        """What the server says of an error; else None."""

    @property
    def initial_events_end(self) -> bool:
        """Whether this bookmark ends the list with which the watch began."""


WatchBatch: TypeAlias = Sequence[WatchItem]


class WatchApi(Protocol[K_co]):
    """`Api`, as far as watchers use it. An answer that means failure is raised, also by `open_watch` itself.

    The batches end when the watch does, however that happens; RequestTimeout means that nothing came for longer than
    the watch was to live. An empty batch means that nothing is ready (simulated transports only).
    Attributes of theirs, if there are any: `flow_schema` tells servers apart, `broke` says that the connection failed
    (see `client.api.watch.WatchStream`). So does an attribute `client` of this, which knows for all of its watches
    whether the server is there, and `with_fields`, which a config with `fields` needs.
    """

    @property
    def resource(self) -> ApiResource:
        """The kind."""

    @property
    def namespace(self) -> str | None:
        """The namespace; None for all of them."""

    @property
    def kind(self) -> type[K_co]:
        """The class that reads the objects."""

    def list_page(self, params: ListParams, *, stop: StopToken, retry: Retry) -> tuple[ListMeta, list[Record]]:
        """One page of a list, of records. Blocks and raises as `Api.list_page`."""

    def open_watch(self, params: WatchParams, resource_version: str, stop: StopToken) -> Iterator[WatchBatch]:
        """An open watch, whose batches are iterated. Blocks and raises as `Api.open_watch`."""


class WatchApis(Protocol[K_co]):
    """`Namespaces`: several places to watch, whose objects belong into one store."""

    @property
    def resource(self) -> ApiResource:
        """The kind."""

    @property
    def kind(self) -> type[K_co]:
        """The class that reads the objects."""

    @property
    def apis(self) -> Sequence[WatchApi[K_co]]:
        """The Api of each place."""


def apis_of(api: WatchApi[K] | WatchApis[K]) -> Sequence[WatchApi[K]]:
    """What is watched, one place at a time."""
    apis: Sequence[WatchApi[K]] = getattr(api, "apis", None) or (cast(WatchApi[K], api),)
    return apis


def namespaces_of(api: WatchApi[Any] | WatchApis[Any]) -> frozenset[str]:
    """The namespaces that are watched; empty where all are, or the kind has none."""
    found = {getattr(one, "namespace", None) for one in apis_of(api)}
    return frozenset() if None in found or not api.resource.namespaced else frozenset(filter(None, found))


def as_configured(api: WatchApi[Any], config: WatcherConfig) -> WatchApi[Any]:
    """The `api` in the form that `config` asks for. Raises RequestError when it has no such form."""
    if config.fields is None:
        return api
    with_fields = getattr(api, "with_fields", None)
    if with_fields is None:
        raise RequestError(f"fields={config.fields.__name__}: {type(api).__name__} cannot keep single fields")
    found: WatchApi[Any] = with_fields(config.fields)
    return found
