"""Whom a client acts as, other than itself."""
from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from kubectl_runtime.client.config.header_text import fault_of
from kubectl_runtime.core.base.errors import RequestError


@dataclass(frozen=True)
class Impersonation:
    """Whom to act as, sent as `Impersonate-*` headers; needs the right to impersonate. Raises RequestError, which names
    the field, for groups, a uid or extra without a user, for what no header can carry as it is, and for a value of
    another type, such as a single text where a list belongs.

    >>> Impersonation("jane", groups=("developers",)).user
    'jane'
    """

    user: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, problem in faults(self.user, self.groups, self.uid, self.extra):
            raise RequestError(f"Impersonation: {name} {problem}")


def faults(user: object, groups: object, uid: object, extra: object) -> Iterator[tuple[str, str]]:
    """What is wrong with whom to act as: fields (`groups[1]`) and problems, in words that follow the field."""
    if not user:
        yield "user", "is needed: groups, uid and extra are only sent beside one"
    elif problem := fault_of(user, identity=True):
        yield "user", problem
    yield from _list_faults("groups", groups)
    if uid != "" and (problem := fault_of(uid, identity=True)):
        yield "uid", problem
    if not isinstance(extra, Mapping):
        yield "extra", f"is of type {type(extra).__name__}, and has to be a mapping"
        return
    for key, values in extra.items():
        if not isinstance(key, str) or not key:
            yield "extra", f"has the key {key!r}: a text is expected that is not empty"
        elif problem := fault_of(key):
            yield "extra", f"has the key {key!r}, which {problem}"
        yield from _list_faults(f"extra[{key!r}]", values)


def _list_faults(name: str, values: object) -> Iterator[tuple[str, str]]:
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Collection):
        yield name, f"is of type {type(values).__name__}, and has to be a list or tuple of texts"
        return
    for index, value in enumerate(values):
        if problem := fault_of(value, identity=True):
            yield f"{name}[{index}]", problem
