"""`watcher`: an endless stream of what happens to objects of one kind.

    watch_steps       the raw steps: events, `Failed`, `Idle`, with nothing waited for in between
    watcher           the stream for users: failures are logged and waited out; only its stop token ends it
    metadata_watcher  the same of metadata alone
    watch_object      one object: it, or None while it does not exist

A stream never raises what a server, a network or an object did. Pull it from one thread, and close it (or let a `for`
loop run to its end) in that thread; another thread ends it by setting the token, also while it is blocked in a read.
Within a run of a reconciler it ends with the run's `ctx.stop` as well, as every call of the library does.

After a break the list is made again and `Init` ... `InitDone` come again; deletions during the break show only as
absence from the new list (a `reflector` finds them).
"""
from __future__ import annotations

import random
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any, Protocol, TypeVar, overload

from kubectl_runtime.core.base.clock import SYSTEM_CLOCK, Clock
from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.base.guard import TellingStream, check_api, check_type, closing_source
from kubectl_runtime.core.base.stop import StopToken
from kubectl_runtime.core.codec.views import Record
from kubectl_runtime.core.meta.selectors import fields
from kubectl_runtime.core.requests import request as build
from kubectl_runtime.core.requests.request import Named, Place
from kubectl_runtime.core.scope import with_scope
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
from kubectl_runtime.runtime.watch.states import WatchApi, as_configured

K = TypeVar("K")
K_co = TypeVar("K_co", covariant=True)



class MetadataApi(Protocol[K_co]):
    """An `Api` that can be asked for metadata alone."""

    def with_metadata_only(self) -> WatchApi[K_co]:
        """The same place, where the server is asked for metadata alone."""


def watch_steps(api: WatchApi[Any], config: WatcherConfig = DEFAULT_CONFIG, stop: StopToken | None = None, *,
                clock: Clock = SYSTEM_CLOCK, rng: random.Random | None = None,
                on_absence: Callable[[Exception | None], None] = lambda _: None) -> Iterator[RawStep[Record]]:
    """The raw steps, of records. After a `Failed` the next pull tries again at once: whoever pulls paces it.
    `on_absence` gets what keeps it waiting for the server, and None when it was answered."""
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
def watcher(api: WatchApi[K], config: WatcherConfig = ..., stop: StopToken | None = ..., *, backoff: WatchBackoff = ...,
            clock: Clock = ..., rng: random.Random | None = ...) -> Generator[Event[K]]: ...
@overload
def watcher(api: WatchApi[K], config: WatcherConfig = ..., stop: StopToken | None = ..., *, backoff: None,
            clock: Clock = ..., rng: random.Random | None = ...) -> Generator[Event[K] | Failed]: ...
def watcher(api: WatchApi[K], config: WatcherConfig = DEFAULT_CONFIG, stop: StopToken | None = None, *,
            backoff: WatchBackoff | None = DEFAULT_BACKOFF, clock: Clock = SYSTEM_CLOCK,
            rng: random.Random | None = None) -> Generator[Event[K]] | Generator[Event[K] | Failed]:
    """Yield everything that exists, then everything that changes, until `stop` is set (None: until it is closed).

    `backoff`: the wait after a failure. By default `config.backoff` says it.
    With `backoff=None` failures come out as `Failed` and nothing is waited for or logged: the consumer has to pace it.
    (While nobody answers at all, the watcher itself waits, with the other watches of its client.) `rng` draws the
    jitter. Each event has a reader of its own, which the consumer may change; with `config.fields` it has the view.
    Raises RequestError for fields that cannot be kept and for `config.verify`: there is no store to verify.

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
        raise RequestError(f"watcher: {api!r} is several places to watch, which controllers and watch_store do, but a "
                           "stream is of one: Api.all or Api.namespaced")
    check_type("config", config, WatcherConfig, "WatcherConfig(label_selector=\"app=web\")")
    if config.verify is not None:
        raise RequestError(f"verify={config.verify} compares a store with the server, and a stream has none: it is for "
                           "controllers")
    api = as_configured(api, config)
    stop = stop or StopToken(clock=clock)
    read = reader_of(api.kind)
    target = WatchTarget.of(api, config)

    def tell(trouble: Exception | None) -> None:
        if backoff is not None:
            stream.trouble = "" if trouble is None else absent(target, trouble)

    steps = watch_steps(api, config, stop, clock=clock, rng=rng, on_absence=tell)
    if config.validate:
        steps = _validated(steps, read)
    if backoff is None:
        return readers(_without_idle(steps, stop, clock), read)
    rule = config.failure_backoff if backoff is DEFAULT_BACKOFF else backoff
    waited = backoff_stage(steps, stop, target, rule, clock=clock, rng=rng,
                           on_trouble=lambda text: setattr(stream, "trouble", text))
    stream = TellingStream(readers(waited, read))
    return stream


@overload
def metadata_watcher(api: MetadataApi[K], config: WatcherConfig = ..., stop: StopToken | None = ..., *,
                     backoff: WatchBackoff = ..., clock: Clock = ...,
                     rng: random.Random | None = ...) -> Generator[Event[K]]: ...
@overload
def metadata_watcher(api: MetadataApi[K], config: WatcherConfig = ..., stop: StopToken | None = ..., *, backoff: None,
                     clock: Clock = ..., rng: random.Random | None = ...) -> Generator[Event[K] | Failed]: ...
def metadata_watcher(api: MetadataApi[K], config: WatcherConfig = DEFAULT_CONFIG, stop: StopToken | None = None, *,
                     backoff: WatchBackoff | None = DEFAULT_BACKOFF, clock: Clock = SYSTEM_CLOCK,
                     rng: random.Random | None = None) -> Generator[Event[K]] | Generator[Event[K] | Failed]:
    """What `watcher` yields, but only metadata is requested, sent and kept. Arguments and errors as there.

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


def watch_object(api: WatchApi[K], name: Named, config: WatcherConfig = DEFAULT_CONFIG,
                 stop: StopToken | None = None, *, backoff: WatchBackoff = DEFAULT_BACKOFF, clock: Clock = SYSTEM_CLOCK,
                 rng: random.Random | None = None) -> Generator[K | None]:
    """The object `name` as it is now, then each new version of it; None when it does not exist, and when it goes.

    Nothing is yielded twice, also after breaks; when the object was deleted and made again in the meantime, None comes
    between the two. The field selector of `config` is replaced. `name` may be an object of that name. Raises
    RequestError for a namespaced kind in all namespaces, where several objects may have the name, for what can be no
    name, and as `watcher`.

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
    request = build.get(Place(api.resource, api.namespace), name)  # with a get's checks of its name
    config = replace(config, field_selector=fields({"metadata.name": request.name or ""}))
    return one_object(watcher(api, config, stop, backoff=backoff, clock=clock, rng=rng))


def one_object(events: Iterable[Event[K]]) -> Generator[K | None]:
    """What `watch_object` yields, of the events of a watch that selects one object."""
    said: tuple[str, str] | str | None = "nothing yet"
    listed: K | None = None
    with closing_source(events):
        for event in events:
            if isinstance(event, InitApply):
                listed = event.obj
                continue
            if isinstance(event, Delete) and listed is not None:
                listed = None  # by a streaming list: it was there, and is not any more
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
                yield None  # its predecessor went, unseen
            if version != said:
                said = version
                yield current


def _version(obj: Any) -> tuple[str, str] | None:
    return None if obj is None else (obj.uid, obj.resource_version)


def readers(steps: Iterable[Any], read: Callable[[Record], Any]) -> Generator[Any]:
    """The steps with a reader of its own for each record."""
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
