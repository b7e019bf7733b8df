"""`Entry`: an object that may or may not be there, to be changed and written as what it then is (kube-rs's entry).

    entry = api.entry("settings").or_insert(lambda: ConfigMap(name="settings"))
    entry.object.data["color"] = "blue"
    entry.commit()

    what became of the object     commit
    nothing                       no call
    it was found, and changed     replace: refused (`is_conflict`) when somebody else changed it meanwhile
    it was made by or_insert      create: refused (`is_already_exists`) when somebody else made it meanwhile

After a commit the entry holds the object as the server answered; after a dry run it is as before. Nothing is repeated:
`create_or_update` of runtime does that. For one thread.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

from kubectl_runtime.client.api.api_base import ApiBase
from kubectl_runtime.core.base.clock import Duration
from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.requests import request as build
from kubectl_runtime.core.requests.params import FieldValidation, PostParams
from kubectl_runtime.core.requests.rights import foresee

K = TypeVar("K")


class Entry(Generic[K]):
    """One object by its name, which may not exist yet: change it or make it, then `commit`. Made by `Api.entry`.

    It is named after the entries of Rust's maps. For one thread; `commit` blocks for one call.

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
        """Whether the server has the object, as far as this entry knows."""
        return self._object is not None and not self._new

    @property
    def object(self) -> K:
        """The object, which may be changed before `commit`. Raises RequestError while there is no object."""
        if self._object is None:
            raise RequestError(f"{self._api.place.words('get', self.name)}: there is no such object: use or_insert")
        return self._object

    @property
    def is_dirty(self) -> bool:
        """Whether `commit` would send anything."""
        return self._new or (self._object is not None and _plain(self._object) != self._before)

    def or_insert(self, make: Callable[[], K]) -> Entry[K]:
        """This entry, with what `make` makes when there is no object; `make` is called then only.

        A new object without a name, or a namespace, gets the entry's.
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
        """Create or update the object on the server, if it has to be; returns the object as it is then. Blocks for one
        call at most.

        Raises RequestError when there is no object, or when its name or namespace was changed, or a generateName set;
        ApiError (`is_conflict`) when somebody changed the object meanwhile, or created it (`is_already_exists`).
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
            raise RequestError(f"{operation}: an entry has its name: it cannot have a generateName")
        if held.name != self.name or (held.namespace or None) != (self._api.namespace or None):
            raise RequestError(f"{operation}: the object became {held.ref}; an object keeps its name and namespace")


def _plain(held: Any) -> dict[str, Any]:
    plain: dict[str, Any] = held.to_dict()
    return plain
