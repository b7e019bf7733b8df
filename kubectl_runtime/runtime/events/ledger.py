"""`Ledger`: counts observations, remembers how many the server has counted, and decides what to send next.

Observations with the same `Subject` are one series: one Event with a rising count. The Event keeps its first note,
because the server allows changes only to the series of an Event. A series ends after SILENCE without an observation.

    the series of an observation   what follows
    does not exist                 a new series begins, due now
    waits to be written            the observation is counted; one request covers all counted observations
    was written                    the observation is counted; the series is due after its pause

The pause after the n-th request of a series doubles from 1 s to 300 s, so that frequent repetitions are cheap and still
counted exactly. Each request sets the count to a fixed number, and is repeated with that number until its outcome is
known; a patch also tests the previous count. So no observation is counted twice, however often a request is sent and
however late it arrives. What happens to the observations of a request (*counted*: by the server):

    outcome of the request        after a create                        after a patch
    DONE                          counted                               counted
    EXISTS                        counted if an earlier attempt may     -
                                  have arrived; otherwise sent again
                                  under another name
    CHANGED (a test failed)       -                                     counted if an earlier attempt may have arrived;
                                                                        otherwise a new Event for the uncounted
                                                                        observations
    MISSING                       lost: the namespace is gone           a new Event for the uncounted observations
    REFUSED                       lost                                  lost, unless the request for a later observation
                                                                        covers them
    LATER, UNKNOWN                sent again after a pause; after TRIES such outcomes, handled like REFUSED

`SpamFilter` limits the new Events of one object, as client-go does. Each object has a bucket of `burst` tokens; a new
Event takes a token, and one token comes back every `refill` seconds. Full buckets are dropped. If there are more than
MOST buckets, the least recently used one is dropped, too.

`Reference` is the object that an Event is about. Only observations with equal References share an Event. A Reference
has no resourceVersion, since repetitions of an event are about one object in many versions.

`cut`, `short`, `qualified_name`, `subdomain` and `event_name` make valid names and texts; their limits are bytes of
UTF-8.

The ledger's owner serialises the calls. Times are seconds of the monotonic clock.
"""
from __future__ import annotations

import heapq
import itertools
import random
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import Enum
from typing import Any, NamedTuple

import msgspec
from cachetools import TTLCache

from kubectl_runtime.core.base.backoff import Backoff
from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.meta.gvk import ApiResource, ObjectRef
from kubectl_runtime.core.requests.params import plain_body

WITHOUT_NAMESPACE = "default"
"""The namespace of Events about cluster-scoped objects; the server accepts no other namespace except kube-system."""


class Reference(NamedTuple):
    """An object that an Event is about: Kubernetes' ObjectReference. Empty fields are not sent.

    `kubectl describe` finds an Event by the uid of its object, so pass the uid if you know it. `field_path` names a
    part of the object: `spec.containers{web}`.
    """

    api_version: str
    kind: str
    name: str
    namespace: str = ""
    uid: str = ""
    field_path: str = ""

    @classmethod
    def of(cls, regarding: Any) -> Reference:
        """The reference to the object `regarding`: an instance of a resource class, a dict or a model of the official
        client (both with apiVersion and kind), an ObjectRef (the reference then has no uid), or a Reference, which is
        returned itself. Raises RequestError for any other type, and for an object without a kind or a name."""
        if isinstance(regarding, cls):
            return regarding
        if isinstance(regarding, ObjectRef):
            return cls.at(regarding)
        resource = getattr(regarding, "api_resource", None)
        if isinstance(resource, ApiResource) and not isinstance(regarding, type):
            return cls._checked(resource.api_version, resource.kind, regarding.name, regarding.namespace, regarding.uid)
        content = plain_body(regarding)
        metadata = content.get("metadata") or {}
        return cls._checked(content.get("apiVersion"), content.get("kind"), metadata.get("name"),
                            metadata.get("namespace"), metadata.get("uid"))

    @classmethod
    def at(cls, ref: ObjectRef, uid: str = "") -> Reference:
        """The reference to the object at `ref`. `uid` distinguishes the object from others of the same name."""
        return cls._checked(ref.resource.api_version, ref.resource.kind, ref.name, ref.namespace, uid)

    @classmethod
    def _checked(cls, api_version: Any, kind: Any, name: Any, namespace: Any, uid: Any) -> Reference:
        texts = tuple(text or "" for text in (api_version, kind, name, namespace, uid))
        if not all(isinstance(text, str) for text in texts) or not all(texts[:3]):
            raise RequestError("an Event needs an object with apiVersion, kind and name: pass publish() an object "
                               "of a resource class, an ObjectRef, or a Reference(api_version, kind, name, ...)")
        return cls(*texts)

    @property
    def home(self) -> str:
        """The namespace in which Events about the object are created."""
        return self.namespace or WITHOUT_NAMESPACE

    def to_dict(self) -> dict[str, str]:
        """The reference as the API represents it."""
        named = {"apiVersion": self.api_version, "kind": self.kind, "namespace": self.namespace, "name": self.name,
                 "uid": self.uid, "fieldPath": self.field_path}
        return {key: value for key, value in named.items() if value}

    def __str__(self) -> str:
        where = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"{self.kind} {where}"


MOST = 4096
"""The maximum number of objects with a bucket, as in client-go."""
_ROUNDING = 1e-9


class _Bucket(msgspec.Struct):
    tokens: float
    since: float


class SpamFilter:
    """Limits the number of new Events of each object by a token bucket. For one thread at a time."""

    def __init__(self, burst: int, refill: float, timer: Callable[[], float]) -> None:
        self._burst = burst
        self._refill = refill
        self._timer = timer
        self._buckets: TTLCache[Reference, _Bucket] = TTLCache(MOST, burst * refill, timer=timer)

    def take(self, regarding: Reference) -> bool:
        """Take a token from the object's bucket; returns False if the bucket is empty. `field_path` is ignored."""
        whole, now = regarding._replace(field_path=""), self._timer()
        bucket = self._buckets.get(whole) or _Bucket(self._burst, now)
        bucket.tokens = min(self._burst, bucket.tokens + (now - bucket.since) / self._refill)
        bucket.since = now
        self._buckets[whole] = bucket  # inserted again, so that it counts as recently used
        if bucket.tokens < 1 - _ROUNDING:
            return False
        bucket.tokens = max(0.0, bucket.tokens - 1)
        return True


SHORT, NOTE = 128, 1024
MARK = "…"
_NAME, _SUBDOMAIN = 63, 253
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NO_NAME = re.compile(r"[^-A-Za-z0-9_.]+")
_NO_SUBDOMAIN = re.compile(r"[^-a-z0-9.]+")


def cut(text: str, limit: int, mark: str = "") -> str:
    """`text`, cut to `limit` bytes if it is longer. The cut is between characters, and `mark` is appended. Lone
    surrogates, which UTF-8 cannot represent, become question marks."""
    raw = text.encode("utf-8", "replace")
    if len(raw) <= limit:
        return raw.decode()
    return raw[:limit - len(mark.encode())].decode("utf-8", "ignore") + mark


def short(text: str, otherwise: str) -> str:
    """Cut `text` (a reason, an action or an instance) to 128 bytes. Returns `otherwise` if `text` is empty."""
    return cut(text, SHORT) or otherwise


def qualified_name(text: str) -> str:
    """The valid qualified name nearest to `text`: `text` itself if it is valid; empty if no character is usable."""
    prefix, _, name = text.rpartition("/")
    name = _trimmed(_NO_NAME.sub("-", name), _NAME)
    domain = subdomain(prefix, _SUBDOMAIN)
    return f"{domain}/{name}" if domain and name else name


def subdomain(text: str, limit: int) -> str:
    """The DNS subdomain of at most `limit` characters nearest to `text`; empty if no character is usable."""
    labels = (label.strip("-") for label in _NO_SUBDOMAIN.sub("-", text.lower()).split("."))
    return _trimmed(".".join(label for label in labels if label), limit)


def event_name(regarding: str, moment: datetime, bits: int) -> str:
    """`NAME.SUFFIX`, as for Kubernetes' own Events: the time in nanoseconds, then 32 random `bits`, both as hex.

    Two processes never make the same name. If the server already has an Event of this name, an earlier attempt to
    create it has arrived.
    """
    microseconds = (moment - _EPOCH) // timedelta(microseconds=1)
    suffix = f"{microseconds * 1000:x}{bits:08x}"
    return f"{subdomain(regarding, _SUBDOMAIN - len(suffix) - 1) or 'event'}.{suffix}"


def _trimmed(text: str, limit: int) -> str:
    return text.strip("-_.")[:limit].rstrip("-_.")


SILENCE = 360.0
"""A series ends after this many seconds without an observation, as in client-go and kube-rs."""


TRIES = 12
"""The most temporary errors in a row before a request is given up, as in client-go."""
PAUSE = Backoff(1, 2, 300)
RETRY = Backoff(1, 2, 30, attempts=TRIES)


class Subject(NamedTuple):
    """The fields that two observations of the same Event have in common. The note is not one of them."""

    regarding: Reference
    related: Reference | None
    warning: bool
    reason: str
    action: str


class Result(Enum):
    """The outcome of a request for a series."""

    DONE = "done"
    EXISTS = "exists"
    CHANGED = "changed"
    MISSING = "missing"
    REFUSED = "refused"
    LATER = "later"
    """The server did not carry out the request."""
    UNKNOWN = "unknown"
    """The server may have carried out the request, or may still do so."""


class Lost(Enum):
    """Why observations are lost. The values are for log lines."""

    FULL = "too many were waiting"
    SPAM = "one object had too many"
    REFUSED = "the server refused them"
    CLOSED = "the recorder was closed"
    INVALID = "they were about no object, or no events"


class Series(msgspec.Struct, eq=False):
    """One subject's observations. `count` is the number of all observations; the Event counts only the observations
    after the first `before` observations."""

    subject: Subject
    note: str
    name: str
    begun: datetime
    """The time of the Event."""
    since: datetime
    """The time of the first observation that no request covers yet."""
    last: datetime
    count: int = 1
    reported: int = 0
    """How many observations the server has counted."""
    before: int = 0
    goal: int = 0
    """The value of `reported` once the current request has succeeded; 0 if no request is pending."""
    unsure: bool = False
    """An earlier attempt with this goal may have arrived, or may still arrive."""
    exists: bool = False
    refused: int = 0
    """Observations that count as lost unless a later request covers them."""
    tries: int = 0
    requests: int = 0

    @property
    def unreported(self) -> int:
        """The number of observations that the server does not have yet."""
        return self.count - self.reported


@dataclass(slots=True)
class Ledger:
    """The observations, the server's counts, and the next request. Pure; its owner serialises the calls."""

    queue: int
    """The maximum number of waiting new series; further new series are lost."""
    spam: SpamFilter
    rng: random.Random
    timer: Callable[[], float]
    lost: Counter[Lost] = field(default_factory=Counter)
    open: dict[Subject, Series] = field(default_factory=dict)
    """The series with something to send."""
    _new: int = 0
    _known: TTLCache[Subject, Series] = field(init=False)
    _agenda: list[tuple[float, int, Series]] = field(default_factory=list)
    _number: itertools.count[int] = field(default_factory=itertools.count)

    def __post_init__(self) -> None:
        self._known = TTLCache(MOST, SILENCE, timer=self.timer)

    def observe(self, subject: Subject, note: str, moment: datetime) -> Lost | None:
        """Count one observation. Returns why it is lost; None if it is not lost."""
        series = self.open.get(subject) or self._known.get(subject)
        if series is None:
            return self._begin(subject, note, moment)
        if series.count == max(series.reported, series.goal):
            series.since = moment
        series.count += 1
        series.last = moment
        self._known[subject] = series  # inserted again, so that the series expires `SILENCE` seconds from now
        if subject not in self.open:
            self._schedule(series, PAUSE.delay(series.requests, self.rng))
        return None

    def delay(self, *, urgent: bool) -> float | None:
        """Seconds until the next request is due; None if there is nothing to send. `urgent`: ignore the pauses."""
        if not self._agenda:
            return None
        return 0.0 if urgent else max(0.0, self._agenda[0][0] - self.timer())

    def take(self, *, urgent: bool) -> Series | None:
        """Take the series that needs the next request, and set its goal; None if none is due. `settle` must follow."""
        if self.delay(urgent=urgent) != 0:
            return None
        series = heapq.heappop(self._agenda)[2]
        series.goal = series.goal or series.count
        return series

    def settle(self, series: Series, result: Result, *, counts: bool = True) -> Lost | None:
        """Record the outcome of the request. `counts`: whether a temporary failure counts towards TRIES. Returns why
        observations are lost; None if none are lost."""
        if result in (Result.LATER, Result.UNKNOWN):
            series.unsure = series.unsure or result is Result.UNKNOWN
            series.tries += counts
            delay = RETRY.next(series.tries, self.rng) if series.tries else 0.0
            if delay is not None:
                self._schedule(series, delay)
                return None
            result = Result.REFUSED
        series.requests += 1
        series.tries = 0
        if result is Result.DONE or (series.unsure and result in (Result.EXISTS, Result.CHANGED)):
            self._reported(series)
        elif result is Result.EXISTS:
            series.name = self._name_for(series.subject, series.begun)
            self._schedule(series, 0.0)
        elif series.exists and result is Result.REFUSED:
            # Nothing more can be sent now. If the patch may have arrived, the next patch must be the same.
            series.goal = series.goal if series.unsure else 0
            self.open.pop(series.subject, None)
            self._count_refused(series, series.unreported)
        elif series.exists:
            return self._begin_anew(series)
        else:
            return self._drop(series, Lost.REFUSED)
        return None

    def drop_all(self) -> int:
        """Give up the unsent observations, and return their number."""
        dropped = sum(series.unreported - series.refused for series in self.open.values())
        self.lost[Lost.CLOSED] += dropped
        self.open.clear()
        self._agenda.clear()
        self._new = 0
        return dropped

    def _begin(self, subject: Subject, note: str, moment: datetime) -> Lost | None:
        why = Lost.FULL if self._new >= self.queue else None if self.spam.take(subject.regarding) else Lost.SPAM
        if why is not None:
            self.lost[why] += 1
            return why
        series = Series(subject, note, self._name_for(subject, moment), moment, moment, moment)
        self._known[subject] = series
        self._new += 1
        self._schedule(series, 0.0)
        return None

    def _reported(self, series: Series) -> None:
        self._new -= not series.exists
        series.reported, series.goal, series.unsure, series.exists = series.goal, 0, False, True
        self._count_refused(series, min(series.refused, series.unreported))
        if series.unreported:
            self._schedule(series, PAUSE.delay(series.requests, self.rng))
        else:
            self.open.pop(series.subject, None)

    def _begin_anew(self, series: Series) -> Lost | None:
        """Begin a new Event, because the old Event is gone or was changed. Observations that the old Event may have
        counted are not counted again."""
        series.reported = series.goal if series.unsure else series.reported
        self._count_refused(series, min(series.refused, series.unreported))
        if not series.unreported:
            self._forget(series)
            return None
        if not self.spam.take(series.subject.regarding):
            return self._drop(series, Lost.SPAM)
        series.name, series.begun = self._name_for(series.subject, series.since), series.since
        series.before, series.goal, series.unsure = series.reported, 0, False
        series.exists, series.requests = False, 0
        self._new += 1
        self._schedule(series, 0.0)
        return None

    def _drop(self, series: Series, why: Lost) -> Lost:
        self._new -= not series.exists
        self.lost[why] += series.unreported - series.refused
        self._forget(series)
        return why

    def _count_refused(self, series: Series, refused: int) -> None:
        self.lost[Lost.REFUSED] += refused - series.refused
        series.refused = refused

    def _forget(self, series: Series) -> None:
        self.open.pop(series.subject, None)
        if self._known.get(series.subject) is series:
            del self._known[series.subject]

    def _schedule(self, series: Series, delay: float) -> None:
        self.open[series.subject] = series
        heapq.heappush(self._agenda, (self.timer() + delay, next(self._number), series))

    def _name_for(self, subject: Subject, moment: datetime) -> str:
        return event_name(subject.regarding.name, moment, self.rng.getrandbits(32))
