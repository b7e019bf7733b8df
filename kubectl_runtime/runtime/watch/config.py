"""`WatcherConfig`: what a watcher asks for, and how."""
from __future__ import annotations

import random
from dataclasses import dataclass, field
from enum import Enum
from math import inf

from kubectl_runtime.core.base.clock import Duration, seconds
from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.base.guard import check_type
from kubectl_runtime.core.meta.selectors import (
    FieldSelection,
    LabelSelection,
    ShardSelector,
    check_field_selector,
    check_label_selector,
)
from kubectl_runtime.core.objects.partial import PartialView
from kubectl_runtime.core.requests.params import check_flags, keep_selections
from kubectl_runtime.runtime.watch.backoff import DEFAULT_BACKOFF, WatchBackoff


class ListSemantic(Enum):
    """How recent the first list of a watch has to be: the most recent version, or any that the server's cache has.

    >>> config = WatcherConfig(list_semantic=ListSemantic.ANY)
    """

    MOST_RECENT = "most recent"
    """As of now, by a quorum read; paged."""
    ANY = "any"
    """Whatever the server has cached (`resourceVersion=0`), maybe older than what was seen before: cheaper for it.
    Not paged, since servers page only current lists. Every later list is a most recent one, so a store never goes
    back in time."""


class InitialListStrategy(Enum):
    """How a watch asks for its first list: page by page, or as a stream of events.

    >>> WatcherConfig(initial_list_strategy=InitialListStrategy.LIST_WATCH).initial_list_strategy.name
    'LIST_WATCH'
    """

    LIST_WATCH = "list, then watch"
    """In pages, then a watch."""
    STREAMING_LIST = "streaming list"
    """As the first events of a watch (`sendInitialEvents`), which costs the server far less memory. From a server that
    refuses it, or does not end it within 30 s, the resource is listed in pages for an hour."""


@dataclass(frozen=True, slots=True)
class WatcherConfig:
    """How one kind is listed and watched: selectors, page size, freshness, which fields are kept, how failures are
    waited for.

    Immutable. Durations are seconds or `timedelta`. Raises RequestError for a number that is out of range and for a
    selector that every server would refuse; which fields a kind has is the server's to judge.

    >>> web = WatcherConfig(label_selector="app=web", page_size=100)
    >>> with watch_store(Api.all(client, Pod), web) as pods:
    ...     pods.wait_until_ready(10)
    ...     [pod.name for pod in pods]
    ['web-0']
    """

    label_selector: LabelSelection | None = None
    field_selector: FieldSelection | None = None
    page_size: int | None = 500
    """Objects per page of a list (client-go's and kube-rs's number); None asks for one page."""
    timeout: Duration = 290.0
    """The longest a watch request lives before the server ends it and the next one follows. Each is drawn from 80 %
    of this to all of it, [232, 290] s, so that watches which began together do not end together."""
    shared: bool = field(default=True, kw_only=True)
    """Whether one watch serves all users of the client who want the same; False: a watch of one's own."""
    bookmarks: bool = True
    """Ask for events that only move the resourceVersion on, so that a quiet watch can go on after a break."""
    list_semantic: ListSemantic = ListSemantic.MOST_RECENT
    initial_list_strategy: InitialListStrategy = InitialListStrategy.LIST_WATCH
    fields: type[PartialView] | None = None
    """Keep only the fields that this frozen view declares of each object: its readers get the view, read-only.
    Type checkers cannot see that here: an `api.with_fields(View)` is an `Api` of the view, and so are the controller's
    objects and stores that are made with it."""
    validate: bool = False
    """Decode everything that the class declares when an object arrives, so that one with a body that does not fit is
    logged and becomes an `InvalidObject` at once, and not when somebody first looks at it."""
    verify: Duration | None = None
    """Compare the store with a list of metadata so often (see `verifier`), at least every second: for clusters whose
    database may be restored from a copy. None: never. Only where there is a store."""
    shard: ShardSelector | None = field(default=None, kw_only=True)
    """Only the objects in these ranges of a hash. The server is asked for these alone; what it sends besides, as one
    without the feature gate ShardedListAndWatch does, is left out. None: all of them."""
    backoff: WatchBackoff | None = field(default=None, kw_only=True)
    """How long to wait after a failure. None: for what a controller `owns` or `watches` that of its own objects'
    watch, else `WatchBackoff()`."""

    def __post_init__(self) -> None:
        keep_selections(self)
        check_label_selector(self.label_selector)
        check_field_selector(self.field_text or "")  # a watch would ask again for as long as it lives
        check_flags(self, "bookmarks", "shared", "validate")
        size: object = self.page_size  # callers may not check their types
        if size is not None and (not isinstance(size, int) or isinstance(size, bool) or size < 1):
            raise RequestError(f"page_size must be a whole number of at least 1 or None, not {size!r}")
        if not 1 <= seconds(self.timeout) < inf:
            raise RequestError(f"a watch's timeout must be at least 1 s, and finite, not {self.timeout}")
        if self.verify is not None and not seconds(self.verify) >= 1:
            raise RequestError(f"verify must be at least 1 s or None, not {self.verify}")
        if self.backoff is not None:
            check_type("backoff", self.backoff, WatchBackoff, "WatchBackoff(maximum=10)")

    @property
    def failure_backoff(self) -> WatchBackoff:
        """How long a watch of this configuration waits after a failure."""
        return DEFAULT_BACKOFF if self.backoff is None else self.backoff

    @property
    def label_text(self) -> str | None:
        """The label selector as requests carry it; None without one."""
        return str(self.label_selector or "") or None

    @property
    def field_text(self) -> str | None:
        """The field selector as requests carry it; None without one."""
        return str(self.field_selector or "") or None

    def draw_timeout(self, rng: random.Random) -> int:
        """The timeout of the next watch request, in whole seconds as the API takes it."""
        longest = seconds(self.timeout)
        return max(1, round(rng.uniform(0.8 * longest, longest)))


DEFAULT_CONFIG = WatcherConfig()
