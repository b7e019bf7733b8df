"""`Entry`: read an object that may not exist, change or make it, then write it (named after kube-rs's entry).

    entry = api.entry("settings").or_insert(lambda: ConfigMap(name="settings"))
    entry.object.data["color"] = "blue"
    entry.commit()

`commit` sends nothing for an unchanged object, `replace` for a changed object, and `create` for an object made by
`or_insert`. The server refuses the write when another client changed (`is_conflict`) or created (`is_already_exists`)
the object since the read. After a commit the entry holds the object from the answer; a dry run leaves the entry
unchanged. `commit` does not retry a refused write; `create_or_update` does. Use an entry in one thread.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from kubectl_runtime.client.api.api_base import ApiBase
from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.base.threads import Duration
from kubectl_runtime.core.requests import request as build
from kubectl_runtime.core.requests.params import FieldValidation, PostParams
from kubectl_runtime.core.requests.rights import foresee

K = TypeVar("K")


class Entry(Generic[K]):
    """One object, by name, that may not exist yet: change it or make it, then `commit`. Made by `Api.entry`.

    It is named after the entries of Rust's maps. Use it in one thread; `commit` blocks for one call.

    >>> maps = Api.namespaced(client, ConfigMap, "default")
    >>> entry = maps.entry("counter").or_insert(lambda: ConfigMap(data={"n": "0"}))
    >>> entry.object.data["n"] = "1"
    >>> entry.commit(field_manager="me").data
    {'n': '1'}
    """

    def __init__(self, api: ApiBase[K], name: str, held: K | None) -> None:
        self._api, self.name = api, name
        self._object = held
        self._new = False
        self._before: dict[str, Any] | None = None if held is None else _plain(held)

    @property
    def exists(self) -> bool:
        """Whether the object existed on the server at this entry's read or last commit."""
        return self._object is not None and not self._new

    @property
    def object(self) -> K:
        """The object, to be changed before `commit`. Raises RequestError while there is no object."""
        if self._object is None:
            raise RequestError(f"{self._api.place.words('get', self.name)}: there is no such object: use or_insert")
        return self._object

    @property
    def is_dirty(self) -> bool:
        """Whether `commit` would send a request."""
        return self._new or (self._object is not None and _plain(self._object) != self._before)

    def or_insert(self, make: Callable[[], K]) -> Entry[K]:
        """Return this entry. When there is no object, `make` is called and its result becomes the object.

        If the new object has no name or namespace, it receives the entry's name or namespace.
        """
        if self._object is None:
            made: Any = make()
            if not made.metadata.name:
                made.metadata.name = self.name
            if not made.metadata.namespace:
                made.metadata.namespace = self._api.namespace
            self._object, self._new = made, True
        return self

    def commit(self, params: PostParams | None = None, *, field_manager: str | None = None,
               field_validation: FieldValidation | None = None, dry_run: bool = False,
               timeout: Duration | None = None) -> K:
        """Create or replace the object on the server if needed, and return the resulting object. Blocks for one call at
        most.

        Raises RequestError when there is no object, or when its name, namespace or generateName was changed;
        ApiError when another client changed (`is_conflict`) or created (`is_already_exists`) the object since the read.
        """
        api, held = self._api, self.object
        params = api._write_params(params, PostParams, field_manager=field_manager, field_validation=field_validation,
                                   dry_run=dry_run)
        self._check(held)
        foresee(api.place, "create", "update")
        if not self.is_dirty:
            return held
        request = (build.create if self._new else build.replace)(api.place, held, params)
        answered = api._ask(request, timeout)
        if not params.dry_run:
            self._object, self._new, self._before = answered, False, _plain(answered)
        return answered

    def _check(self, held: Any) -> None:
        operation = self._api.place.words("commit", self.name)
        if held.metadata.generate_name and self._new:
            raise RequestError(f"{operation}: the object of an entry has a fixed name: it cannot have a generateName")
        if held.name != self.name or (held.namespace or None) != (self._api.namespace or None):
            raise RequestError(f"{operation}: the object was renamed to {held.ref}; name and namespace must not change")


def _plain(held: Any) -> dict[str, Any]:
    plain: dict[str, Any] = held.to_dict()
    return plain
