"""Whom a client acts as, other than itself."""
from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from kubectl_runtime.core.base.errors import RequestError


@dataclass(frozen=True)
class Impersonation:
    """Whom to act as: sent as `Impersonate-*` headers; needs the right to impersonate. Raises RequestError for groups,
    a uid or extra without a user, and for a value of another type, above all a text where several values belong.
    """

    user: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.user:
            raise RequestError("Impersonation needs a user: groups, uid and extra are only sent beside one")
        if not isinstance(self.extra, Mapping):
            raise RequestError(f"Impersonation: extra is of type {type(self.extra).__name__}, and has to be a mapping")
        lists: dict[str, object] = {"groups": self.groups}
        lists.update((f"extra[{key!r}]", values) for key, values in self.extra.items())
        for name, values in lists.items():
            if isinstance(values, str | bytes | Mapping) or not isinstance(values, Collection):
                raise RequestError(f"Impersonation: {name} is of type {type(values).__name__}, and has to be a list or "
                                   "tuple of texts")
