"""What is refused at once of what a user gives: it could only fail later, in a thread, again and again."""
from __future__ import annotations

from typing import Any

from kubectl_runtime.core.base.errors import RequestError, class_named
from kubectl_runtime.runtime.usercode import misfit, name_of


def check_api(api: Any, taker: str, *, has: str = "resource") -> None:
    """Raise RequestError for what is likely to be passed instead of an Api: a kind, or the client. What is taken for an
    Api has the attribute `has`."""
    if isinstance(api, type) or not hasattr(api, has):
        given = api.__name__ if isinstance(api, type) else repr(api)
        raise RequestError(f"{taker} takes an Api, such as Api.all(client, Kind) or "
                           f"Api.namespaced(client, Kind, namespace), not {given}")


def check_client(client: Any, taker: str) -> None:
    """Raise RequestError for what is likely to be passed instead of a Client: None, its class, a Config."""
    if isinstance(client, type) or not hasattr(client, "clock"):
        raise RequestError(f"{taker} takes a Client, such as Client.try_default(), not {class_named(client)}")


def check_callback(what: str, callback: Any, *arguments: str) -> None:
    """Raise RequestError for what cannot be called with these arguments."""
    if not callable(callback):
        raise RequestError(f"{what} is a function ({', '.join(arguments)}), not {callback!r}")
    if (wrong := misfit(callback, arguments)) is not None:
        raise RequestError(f"{what}, {name_of(callback)}, {wrong}")


def check_type(what: str, value: Any, kind: type, example: str) -> None:
    """Raise RequestError, with an example of what was meant, for a value that is not of this type."""
    if not isinstance(value, kind):
        raise RequestError(f"{what} is a {kind.__name__}, such as {example}, not {value!r}")
