"""`watcher`: an endless stream of changes to the objects of one kind.

    watch_steps       the raw steps: events, `Failed`, `Idle`, without any waiting
    watcher           the stream for users: it logs failures, waits after them, and ends only by its stop token
    metadata_watcher  the same with metadata only
    watch_object      one object, or None while it does not exist

A stream never raises errors of a server, a network or an object. One thread must pull from the stream and close it (or
let a `for` loop run to its end). Another thread ends the stream by setting the stop token, even during a blocked read.
Inside a reconciler's run the stream also ends with the run's `ctx.stop`, like every call of the library.

When the server's history has expired, everything is listed again: `Init` ... `InitDone`. Objects that were deleted in
the meantime are missing from the new list (a `reflector` detects these deletions).
"""
from __future__ import annotations

import random
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any, TypeVar, overload

from kubectl_runtime.client.api.api import Api
from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.base.guard import TellingStream, Trouble, check_api, check_type, closing_source
from kubectl_runtime.core.base.threads import SYSTEM_CLOCK, Clock
from kubectl_runtime.core.codec.views import Record
from kubectl_runtime.core.meta.selectors import fields
from kubectl_runtime.core.objects.partial import PartialObjectMeta, PartialView
from kubectl_runtime.core.objects.resource import Resource
from kubectl_runtime.core.requests import request as build
from kubectl_runtime.core.requests.request import Named, Place
from kubectl_runtime.core.scope import StopToken, with_scope
from kubectl_runtime.runtime.watch.backoff import DEFAULT_BACKOFF, IDLE_PAUSE, WatchBackoff, WatchTarget, absent
from kubectl_runtime.runtime.watch.backoff import backoff as backoff_stage
from kubectl_runtime.runtime.watch.config import DEFAULT_CONFIG, WatcherConfig
from kubectl_runtime.runtime.watch.driver import WatchDriver, reader_of, validated
from kubectl_runtime.runtime.watch.event import (
    IDLE,
    Apply,
    Delete,
    Event,
    Failed,
    Idle,
    InitApply,
    InitDone,
    RawStep,
    with_obj,
)

K = TypeVar("K")
N = TypeVar("N", bound=Resource | PartialView)  # never None itself: None is yielded for an absent object


def watch_steps(api: Api[Any], config: WatcherConfig = DEFAULT_CONFIG, stop: StopToken | None = None, *,
                clock: Clock = SYSTEM_CLOCK, rng: random.Random | None = None,
                on_absence: Callable[[Exception | None], None] = lambda _: None) -> Iterator[RawStep[Record]]:
    """Yield the raw steps, with records. After a `Failed` the next pull tries again at once, so the consumer must wait
    before it. `on_absence` is called with the error when the watch begins to wait for an unreachable server, and with
    None when the server has answered."""
    absence: Exception | None = None
    stop = with_scope(stop or StopToken(clock=clock), clock)
    with closing(WatchDriver(api, config, stop, clock, rng or random.Random())) as driver:
        while not stop.is_set():
            out, wait, _ = driver.advance()
            trouble = driver.server_trouble if wait else None
            if trouble is not None or (absence is not None and out and not isinstance(out[-1], Failed)):
                absence = trouble
                on_absence(absence)
            yield from out
            if wait is None:
                yield IDLE
            elif wait:
                stop.wait(wait)


@overload
def watcher(api: Api[K], config: WatcherConfig = ..., stop: StopToken | None = ..., *, backoff: WatchBackoff = ...,
            clock: Clock = ..., rng: random.Random | None = ...) -> Generator[Event[K]]: ...
@overload
def watcher(api: Api[K], config: WatcherConfig = ..., stop: StopToken | None = ..., *, backoff: None,
            clock: Clock = ..., rng: random.Random | None = ...) -> Generator[Event[K] | Failed]: ...
def watcher(api: Api[K], config: WatcherConfig = DEFAULT_CONFIG, stop: StopToken | None = None, *,
            backoff: WatchBackoff | None = DEFAULT_BACKOFF, clock: Clock = SYSTEM_CLOCK,
            rng: random.Random | None = None) -> Generator[Event[K]] | Generator[Event[K] | Failed]:
    """Yield an event for each existing object, then for each change, until `stop` is set or the stream is closed.

    `backoff` sets the wait after a failure; the default is `config.backoff`. With `backoff=None` the stream yields
    failures as `Failed` and neither waits nor logs, so the consumer must wait between attempts. (While no server can be
    reached, the watcher itself waits, together with the other watches of its client.) `rng` draws the jitter. Each
    event has its own object, which the consumer may change; with `config.fields` the event has a view instead. Raises
    RequestError for fields that cannot be kept, and for `config.verify`, since a stream has no store to verify.

    >>> stop = StopToken()
    >>> for event in watcher(Api.namespaced(client, ConfigMap, "default"), stop=stop):
    ...     type(event).__name__
    ...     if isinstance(event, InitDone):
    ...         stop.set()
    'Init'
    'InitApply'
    'InitDone'
    """
    check_api(api, "watcher")
    if not hasattr(api, "list_page"):
        raise RequestError(f"watcher: {api!r} needs several watches, but a stream has only one: pass Api.all or "
                           "Api.namespaced, or use a controller or watch_store")
    check_type("config", config, WatcherConfig, "WatcherConfig(label_selector=\"app=web\")")
    if config.verify is not None:
        raise RequestError(f"verify={config.verify} compares a store with the server, but a stream has no store: use "
                           "verify with controllers")
    of_form: Api[Any] = api if config.fields is None else api.with_fields(config.fields)
    stop = stop or StopToken(clock=clock)
    read = reader_of(of_form.kind)
    target, shown = WatchTarget.of(of_form, config), Trouble()

    def tell(trouble: Exception | None) -> None:
        shown.text = "" if trouble is None else absent(target, trouble)

    steps = watch_steps(of_form, config, stop, clock=clock, rng=rng, on_absence=tell)
    if config.validate:
        steps = _validated(steps, read)
    if backoff is None:
        return readers(_without_idle(steps, stop, clock), read)
    rule = config.failure_backoff if backoff is DEFAULT_BACKOFF else backoff
    waited = backoff_stage(steps, stop, target, rule, clock=clock, rng=rng,
                           on_trouble=lambda text: setattr(shown, "text", text))
    return TellingStream(readers(waited, read), shown)


@overload
def metadata_watcher(api: Api[Any], config: WatcherConfig = ..., stop: StopToken | None = ..., *,
                     backoff: WatchBackoff = ..., clock: Clock = ...,
                     rng: random.Random | None = ...) -> Generator[Event[PartialObjectMeta]]: ...
@overload
def metadata_watcher(api: Api[Any], config: WatcherConfig = ..., stop: StopToken | None = ..., *, backoff: None,
                     clock: Clock = ...,
                     rng: random.Random | None = ...) -> Generator[Event[PartialObjectMeta] | Failed]: ...
def metadata_watcher(api: Api[Any], config: WatcherConfig = DEFAULT_CONFIG, stop: StopToken | None = None, *,
                     backoff: WatchBackoff | None = DEFAULT_BACKOFF, clock: Clock = SYSTEM_CLOCK,
                     rng: random.Random | None = None) -> (
        Generator[Event[PartialObjectMeta]] | Generator[Event[PartialObjectMeta] | Failed]):
    """Yield what `watcher` yields, but request and keep only metadata. Arguments and errors as for `watcher`.

    >>> stop = StopToken()
    >>> for obj in applied_objects(metadata_watcher(Api.namespaced(client, ConfigMap, "default"), stop=stop)):
    ...     obj.labels["app"]
    ...     stop.set()
    'web'
    """
    check_api(api, "metadata_watcher", has="with_metadata_only")
    of_metadata = api.with_metadata_only()
    if backoff is None:
        return watcher(of_metadata, config, stop, backoff=None, clock=clock, rng=rng)
    return watcher(of_metadata, config, stop, backoff=backoff, clock=clock, rng=rng)


def watch_object(api: Api[N], name: Named, config: WatcherConfig = DEFAULT_CONFIG,
                 stop: StopToken | None = None, *, backoff: WatchBackoff = DEFAULT_BACKOFF, clock: Clock = SYSTEM_CLOCK,
                 rng: random.Random | None = None) -> Generator[N | None]:
    """Yield the object `name` as it is now, then each new version of it; None while it does not exist.

    No version is yielded twice, even after a lost connection. If the object was deleted and created again while the
    connection was lost, None is yielded in between. A field selector in `config` is replaced. `name` may also be an
    object, whose name is then used. Raises RequestError for an invalid name, and for a namespaced kind in all
    namespaces, where several objects may have the name. Also raises whatever `watcher` raises.

    >>> stop = StopToken()
    >>> for obj in watch_object(Api.namespaced(client, ConfigMap, "default"), "settings", stop=stop):
    ...     obj.data
    ...     stop.set()
    {'color': 'blue'}
    """
    check_api(api, "watch_object")
    check_type("config", config, WatcherConfig, "WatcherConfig()")
    if api.resource.namespaced and api.namespace is None:
        raise RequestError(f"watch {api.resource.full_name} {name}: in all namespaces several objects may have this "
                           "name; use Api.namespaced")
    request = build.get(Place(api.resource, api.namespace), name)  # checks the name as a get does
    config = replace(config, field_selector=fields({"metadata.name": request.name or ""}))
    return one_object(watcher(api, config, stop, backoff=backoff, clock=clock, rng=rng))


def one_object(events: Iterable[Event[K]]) -> Generator[K | None]:
    """The values that `watch_object` yields, from the events of a watch that selects one object."""
    said: tuple[str, str] | str | None = "nothing yet"
    listed: K | None = None
    with closing_source(events):
        for event in events:
            if isinstance(event, InitApply):
                listed = event.obj
                continue
            if isinstance(event, Delete) and listed is not None:
                listed = None  # a streaming list reported the object, and then its deletion
            if isinstance(event, Apply):
                current: K | None = event.obj
            elif isinstance(event, InitDone):
                current, listed = listed, None
            elif isinstance(event, Delete):
                current = None
            else:
                listed = None
                continue
            version = _version(current)
            if version is not None and isinstance(said, tuple) and said[0] != version[0]:
                yield None  # a new uid: the last yielded object was deleted, and the watch did not report its deletion
            if version != said:
                said = version
                yield current


def _version(obj: Any) -> tuple[str, str] | None:
    return None if obj is None else (obj.uid, obj.resource_version)


def readers(steps: Iterable[Any], read: Callable[[Record], Any]) -> Generator[Any]:
    """The steps, with a new object made from each record."""
    with closing_source(steps):
        for step in steps:
            yield with_obj(step, read)


def _validated(steps: Iterable[RawStep[Record]], read: Callable[[Record], Any]) -> Iterator[RawStep[Record]]:
    with closing_source(steps):
        for step in steps:
            yield step if isinstance(step, Failed | Idle) else validated(step, read)


def _without_idle(steps: Iterable[RawStep[Record]], stop: StopToken, clock: Clock) -> Iterator[RawStep[Record]]:
    stop = with_scope(stop, clock)
    with closing_source(steps):
        for step in steps:
            if isinstance(step, Idle):
                stop.wait(IDLE_PAUSE)
            else:
                yield step
