"""A changing selection of namespaces: one kind in the namespaces that a pattern, labels or a set of names currently
select.

- `NamespaceSet`: names that code changes while a controller runs
- `NamespaceSelection`: a pattern of names, labels of namespaces, or a NamespaceSet
- `SelectedNamespaces`: one kind in the selected namespaces, as a controller watches it; made by `Api.namespaces`

Nothing here makes a request: `runtime.triggers.namespaces_driver` does the watching. Matching a pattern needs only a
namespace's name; matching labels needs the Namespace objects from the server.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec
from msgspec.structs import replace

from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.base.threads import ForkSafeLock
from kubectl_runtime.core.meta.gvk import ApiResource, Scope
from kubectl_runtime.core.meta.selectors import LabelSelection, Selector
from kubectl_runtime.core.requests.request import Place, checked_label

if TYPE_CHECKING:
    from kubectl_runtime.client.api.client import Client

K = TypeVar("K")

NAMESPACE = ApiResource("", "v1", "Namespace", "namespaces", Scope.CLUSTER)

_OF_PATTERNS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-*?")
_LONGEST = 63


class NamespaceSet:
    """A set of namespaces for `Api.namespaces`; watches follow each change of the set. Safe to use from any thread.

    Raises RequestError for an invalid namespace name, and for a string in place of a list of names.

    >>> tenants = NamespaceSet(["team-a"])
    >>> controller = Controller(Api.namespaces(client, ConfigMap, tenants))
    >>> tenants.add("team-b")
    >>> sorted(tenants)
    ['team-a', 'team-b']
    """

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._lock = ForkSafeLock()
        self._names = _checked(names)
        self._listeners: dict[object, Callable[[], None]] = {}

    def set(self, names: Iterable[str]) -> None:
        """Replace the set by these names."""
        found = _checked(names)
        self._change(lambda _: found)

    def add(self, *names: str) -> None:
        """Add these names; names that are already present stay."""
        found = _checked(names)
        self._change(lambda known: known | found)

    def discard(self, *names: str) -> None:
        """Remove these names; names that are not present do no harm."""
        found = _checked(names)
        self._change(lambda known: known - found)

    @property
    def names(self) -> frozenset[str]:
        """The names at this moment."""
        return self._names

    def on_change(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call `listener`, which must neither block nor raise, after each change, in the thread that made the change.
        Returns a function that removes the listener."""
        key = object()
        with self._lock:
            self._listeners[key] = listener

        def forget() -> None:
            with self._lock:
                self._listeners.pop(key, None)
        return forget

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __repr__(self) -> str:
        return f"NamespaceSet({sorted(self._names)})"

    def _change(self, change: Callable[[frozenset[str]], frozenset[str]]) -> None:
        with self._lock:
            before, self._names = self._names, change(self._names)
            listeners = [] if before == self._names else [*self._listeners.values()]
        for listener in listeners:
            listener()


class NamespaceSelection(msgspec.Struct, frozen=True):
    """A selection of namespaces: by a pattern (`*` and `?`), by labels, by both (then both must match), or by a set."""

    like: str | None = None
    labels: str | None = None
    """The label selector as text, as requests send it."""
    chosen: NamespaceSet | None = None

    @classmethod
    def of(cls, like: object, labels: LabelSelection | None) -> NamespaceSelection:
        """A selection by a pattern, labels, or both. Raises RequestError for an invalid or empty pattern or selector;
        an empty selector would select all namespaces."""
        if like is not None and (not isinstance(like, str) or not like or not _OF_PATTERNS.issuperset(like)
                                 or len(like.replace("*", "")) > _LONGEST):
            raise RequestError(f"like must be a pattern of namespace names, such as 'team-*', not {like!r}")
        text = None if labels is None else str(Selector.of(labels))
        if text == "":
            raise RequestError("labels must not be empty: an empty selector selects all namespaces. Give labels, "
                               "such as {'team': 'a'}, or use Api.all")
        return cls(like, text)

    @property
    def decides_by_name(self) -> bool:
        """Whether the name of a namespace alone decides if it is selected."""
        return self.chosen is None and self.labels is None

    def fits(self, name: object) -> bool:
        """Whether a namespace of this name can ever be selected: False only if the pattern excludes the name."""
        if self.like is not None:
            return isinstance(name, str) and fnmatchcase(name, self.like)
        return True

    def __str__(self) -> str:
        if self.chosen is not None:
            return "a set"
        return " and ".join(text for text in (self.like, self.labels and f"labels {self.labels}") if text)


class SelectedNamespaces(Generic[K]):
    """One kind in the currently selected namespaces, made by `Api.namespaces`: for a controller's watches and for
    `watch_store`. To call verbs, use `Api.namespaced`. Immutable; safe to use from any thread.

    >>> Controller(Api.namespaces(client, ConfigMap, like="team-*"))
    <...Controller ...>
    """

    def __init__(self, everywhere: Any, selection: NamespaceSelection) -> None:
        """`everywhere`: the Api of the kind in all namespaces."""
        if not everywhere.resource.namespaced:
            raise RequestError(f"{everywhere.resource.full_name} is cluster-scoped: it has no namespace; use Api.all")
        self.everywhere = everywhere  # an `Api[K]`, but this module cannot import Api, whose module imports it
        self.selection = selection

    @property
    def client(self) -> Client:
        """The client."""
        return self.everywhere.client  # type: ignore[no-any-return]

    @property
    def resource(self) -> ApiResource:
        """The kind's ApiResource."""
        return self.everywhere.resource  # type: ignore[no-any-return]

    @property
    def kind(self) -> type[K]:
        """The kind's resource class."""
        return self.everywhere.kind  # type: ignore[no-any-return]

    @property
    def form(self) -> Any:
        """The `Form` that decodes objects."""
        return self.everywhere.form

    @property
    def place(self) -> Place:
        """The scope of a request for all selected namespaces."""
        return self.everywhere.place  # type: ignore[no-any-return]

    @property
    def namespace(self) -> None:
        """None, since there are several namespaces."""

    @property
    def apis(self) -> tuple[Any, ...]:
        """The Apis that a controller watches: only `self`, because one watch covers all selected namespaces."""
        return (self,)

    def within(self, namespace: str) -> Any:
        """The Api of the same kind in one namespace."""
        api = self.everywhere
        return type(api)(api.client, api.kind, replace(api.place, namespace=namespace), api.form)

    def of_namespaces(self) -> Any:
        """An Api that reads the metadata of the cluster's Namespace objects."""
        return type(self.everywhere).all(self.client, NAMESPACE).with_metadata_only()

    def with_metadata_only(self) -> SelectedNamespaces[Any]:
        """An Api of the same namespaces that requests only metadata: see `Api.with_metadata_only`."""
        return SelectedNamespaces(self.everywhere.with_metadata_only(), self.selection)

    def with_fields(self, view: type[Any]) -> SelectedNamespaces[Any]:
        """An Api of the same namespaces whose objects have only the fields of `view`: see `Api.with_fields`."""
        return SelectedNamespaces(self.everywhere.with_fields(view), self.selection)

    def __repr__(self) -> str:
        return f"<Api of {self.resource.full_name} in the namespaces of {self.selection}>"


def _checked(names: Iterable[str]) -> frozenset[str]:
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise RequestError(f"the names of namespaces must be a list, not {names!r}")
    return frozenset(checked_label(name, "a namespace") for name in names)
