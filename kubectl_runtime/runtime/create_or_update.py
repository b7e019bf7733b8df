"""`create_or_update`: bring one object to what it should be, by reading, changing and replacing it.

controller-runtime's `CreateOrUpdate`. For objects of your own prefer `Api.apply`, which needs no reading and leaves to
others what is theirs; this one is for changes that depend on what is there, and for servers without server-side apply.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeVar

import msgspec

from kubectl_runtime.client.api.api import Api
from kubectl_runtime.core.base.errors import ApiError, RequestError
from kubectl_runtime.core.base.stop import StopToken
from kubectl_runtime.core.codec.jsonvalues import equal_json
from kubectl_runtime.core.objects.resource import Resource
from kubectl_runtime.core.requests.params import PostParams
from kubectl_runtime.core.requests.rights import foresee
from kubectl_runtime.runtime.given import check_api, check_callback
from kubectl_runtime.runtime.retry_on_conflict import is_lost_race, retry_on_conflict
from kubectl_runtime.runtime.usercode import not_awaitable

R = TypeVar("R", bound=Resource)

Outcome = Literal["created", "updated", "unchanged"]


def create_or_update(api: Api[R], name: str, change: Callable[[R], object], *, params: PostParams | None = None,
                     stop: StopToken | None = None) -> tuple[R, Outcome]:
    """Read the object `name`, let `change(obj)` change it, and write it; create it if it does not exist.

    Returns the object as it is afterwards and `created`, `updated` or `unchanged`. When `change` changed nothing, it
    sends nothing. A new object has only its name. If somebody else wrote or created the object meanwhile, it reads and
    changes it again, at most 5 times. So `change` may be called more than once and must depend on its argument only. It
    blocks for those calls. Raises RequestError when `change` is no function of an object, touches name or namespace, or
    returns another object, and what `Api` and `change` raise. A status that has a subresource is not written.

    >>> def change(obj: ConfigMap) -> None:
    ...     obj.data["color"] = "red"
    >>> maps = Api.namespaced(client, ConfigMap, "default")
    >>> obj, outcome = create_or_update(maps, "settings", change)
    >>> obj.data["color"], outcome
    ('red', 'updated')
    """
    check_api(api, "create_or_update")
    check_callback("change", change, "obj")

    def attempt() -> tuple[R, Outcome]:
        found = api.get_opt(name)
        obj = api.kind(name=name, namespace=api.namespace) if found is None else found
        before, place = obj.to_dict(), obj.namespace
        changed = not_awaitable(change(obj), change)
        if isinstance(changed, Resource) and changed is not obj:
            raise RequestError(f"{api.place.words('replace', name)}: change() returned another object, which is "
                               "ignored: change the object that is passed to it")
        if (obj.name, obj.namespace) != (name, place):
            raise RequestError(f"{api.place.words('replace', name)}: change() made it {obj.ref}; "
                               "an object keeps its name and namespace")
        if found is None:
            return api.create(obj, params), "created"
        if equal_json(msgspec.json.decode(obj.to_bytes()), before):
            return obj, "unchanged"
        return api.replace(obj, params), "updated"

    foresee(api.place, "get", "create", "update")
    return retry_on_conflict(attempt, retry=_may_go_on, stop=stop, clock=api.client.clock)


def _may_go_on(error: ApiError) -> bool:
    return error.is_already_exists or is_lost_race(error)
