"""`WatcherConfig`: which objects a watcher lists and watches, and how."""
from __future__ import annotations

import random
from dataclasses import dataclass, field
from enum import Enum
from math import inf

from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.base.guard import check_type
from kubectl_runtime.core.base.threads import Duration, seconds
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
    """How recent the first list of a watch must be: the current state, or any state in the server's cache.

    >>> config = WatcherConfig(list_semantic=ListSemantic.ANY)
    """

    MOST_RECENT = "most recent"
    """The current state, by a quorum read. The list is paged."""
    ANY = "any"
    """Any state in the server's cache (`resourceVersion=0`). This list costs the server less, but may be older than a
    state seen before. The list is not paged, since servers page only current lists. Later lists use `MOST_RECENT`, so a
    store never goes back in time."""


class InitialListStrategy(Enum):
    """How a watch requests its first list: page by page, or as a stream of events.

    >>> WatcherConfig(initial_list_strategy=InitialListStrategy.LIST_WATCH).initial_list_strategy.name
    'LIST_WATCH'
    """

    LIST_WATCH = "list, then watch"
    """A paged list, then a watch."""
    STREAMING_LIST = "streaming list"
    """A watch that begins with the existing objects (`sendInitialEvents`), which costs the server far less memory. If
    the server refuses the request or does not complete the list within 30 s, lists of the resource are paged for an
    hour."""


@dataclass(frozen=True, slots=True)
class WatcherConfig:
    """How one kind is listed and watched: selectors, page size, freshness, fields to keep, waits after failures.

    Immutable. Durations are seconds or `timedelta`. Raises RequestError for a number out of range and for a selector
    that every server would refuse. Only the server can check field names.

    >>> web = WatcherConfig(label_selector="app=web", page_size=100)
    >>> with watch_store(Api.all(client, Pod), web) as pods:
    ...     pods.wait_until_ready(10)
    ...     [pod.name for pod in pods]
    ['web-0']
    """

    label_selector: LabelSelection | None = None
    field_selector: FieldSelection | None = None
    page_size: int | None = 500
    """Objects per page of a list (500 as in client-go and kube-rs); None requests everything in one page."""
    timeout: Duration = 290.0
    """The longest lifetime of a watch request. After it, the server ends the request and the next request follows. Each
    timeout is drawn from 80 % to 100 % of this value ([232, 290] s by default), so that watches that began together do
    not end together."""
    shared: bool = field(default=True, kw_only=True)
    """Whether users of the client that need the same watch share it; False opts out."""
    bookmarks: bool = True
    """Request events that only advance the resourceVersion, so that a quiet watch can resume after a break."""
    list_semantic: ListSemantic = ListSemantic.MOST_RECENT
    initial_list_strategy: InitialListStrategy = InitialListStrategy.LIST_WATCH
    fields: type[PartialView] | None = None
    """Keep only the fields that this frozen view declares: events and stores contain read-only views. Type checkers do
    not see this setting. They do see that `api.with_fields(View)` is an `Api` of the view; controllers and stores made
    with that Api are typed by the view, too."""
    validate: bool = False
    """Decode all declared fields when an object arrives. An object that does not fit its class is then logged and
    becomes an `InvalidObject` on arrival, instead of failing at its first use."""
    verify: Duration | None = None
    """Compare the store with a list of metadata at this interval (at least 1 s); None disables the comparison. This
    is meant for clusters whose database may be restored from a copy, and works only for watches with a store."""
    shard: ShardSelector | None = field(default=None, kw_only=True)
    """Request only the objects in these hash ranges; None requests all objects. A server without the feature gate
    ShardedListAndWatch sends the other objects too; they are dropped."""
    backoff: WatchBackoff | None = field(default=None, kw_only=True)
    """How long to wait after a failure. None means `WatchBackoff()`. For the kinds that a controller `owns` or
    `watches`, None means the backoff of the watch for the controller's main kind."""

    def __post_init__(self) -> None:
        keep_selections(self)
        check_label_selector(self.label_selector)
        check_field_selector(self.field_text or "")  # else a watch would repeat the bad request forever
        check_flags(self, "bookmarks", "shared", "validate")
        size: object = self.page_size  # not every caller uses a type checker
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
        """The backoff of a watch with this configuration."""
        return DEFAULT_BACKOFF if self.backoff is None else self.backoff

    @property
    def label_text(self) -> str | None:
        """The label selector as text for requests; None if there is none."""
        return str(self.label_selector or "") or None

    @property
    def field_text(self) -> str | None:
        """The field selector as text for requests; None if there is none."""
        return str(self.field_selector or "") or None

    def draw_timeout(self, rng: random.Random) -> int:
        """Draw the timeout of the next watch request, in whole seconds as the API requires."""
        longest = seconds(self.timeout)
        return max(1, round(rng.uniform(0.8 * longest, longest)))


DEFAULT_CONFIG = WatcherConfig()
