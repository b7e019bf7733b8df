"""Which requests a rule is about: what they must look like (`Match`), and which of those it takes (the conditions,
each a `Filter`).

Conditions form a chain: each sees only the requests that the one before it let pass, and counts those. So
``after(2).first(3)`` takes the third to the fifth request, ``every(2).first(3)`` the second, fourth and sixth.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from kubectl_runtime.apiserver.route import RequestInfo
from kubectl_runtime.apiserver.wire import HttpRequest

VERBS = frozenset(("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"))
"""RBAC's verbs of requests to resources."""

METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))

Words = str | Iterable[str]
"""One word or several; a text may hold several, separated by blanks, commas or bars: ``"get list"``."""


def words(value: Words | None) -> frozenset[str] | None:
    """The words of a `Words`; None stays None."""
    if value is None:
        return None
    return frozenset(re.split(r"[\s,|]+", value.strip())) if isinstance(value, str) else frozenset(value)


def known(what: str, given: frozenset[str] | None, among: frozenset[str], hint: str) -> frozenset[str] | None:
    """The words; raises ValueError for one that no request could ever have, since its rule would do nothing."""
    if strange := sorted((given or frozenset()) - among):
        raise ValueError(f"no request has the {what} {', '.join(map(repr, strange))}: {hint}")
    return given


def glob(pattern: str) -> re.Pattern[str]:
    """A path pattern: ``*`` and ``?`` stay within a segment, ``**`` goes across, the rest is meant literally."""
    parts = re.split(r"(\*\*|\*|\?)", pattern)
    translated = {"**": ".*", "*": "[^/]*", "?": "[^/]"}
    return re.compile("".join(translated.get(part) or re.escape(part) for part in parts))


@dataclass(frozen=True, slots=True)
class Match:
    """What a request must look like; None is anything."""

    verbs: frozenset[str] | None = None
    path: re.Pattern[str] | None = None
    methods: frozenset[str] | None = None
    resources: frozenset[str] | None = None
    namespace: str | None = None
    name: str | None = None
    query: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    where: Callable[[HttpRequest], bool] | None = None

    def matches(self, request: HttpRequest, info: RequestInfo) -> bool:
        """Whether a request is meant."""
        resource = f"{info.resource}/{info.subresource}" if info.subresource else info.resource
        qualified = f"{resource}.{info.group}" if info.group else resource
        return ((self.verbs is None or info.verb in self.verbs)
                and (self.methods is None or request.method in self.methods)
                and (self.path is None or self.path.fullmatch(request.path) is not None)
                and (self.resources is None or resource in self.resources or qualified in self.resources)
                and self.namespace in (None, info.namespace) and self.name in (None, info.name)
                and all(request.has_param(key) and request.param(key) == value for key, value in self.query.items())
                and all(request.headers.get(key.lower()) == value for key, value in self.headers.items())
                and (self.where is None or self.where(request)))


class Filter(Protocol):
    """Takes some of the requests that it is shown; `now` is monotonic seconds."""

    def takes(self, now: float, /) -> bool: ...


@dataclass(slots=True)
class Counted:
    """Takes a request by its number, counted from 1."""

    takes_number: Callable[[int], bool]
    count: int = 0

    def takes(self, _: float, /) -> bool:
        self.count += 1
        return self.takes_number(self.count)


@dataclass(slots=True)
class Chance:
    """Takes a request with a probability; the same seed takes the same ones."""

    probability: float
    source: random.Random

    def takes(self, _: float, /) -> bool:
        return self.source.random() < self.probability


@dataclass(slots=True)
class Lasting:
    """Takes requests for so many seconds, from the first one on."""

    seconds: float
    begun: float | None = None

    def takes(self, now: float) -> bool:
        if self.begun is None:
            self.begun = now
        return now - self.begun < self.seconds
