"""`WebhookServer`: serves a WSGI application over HTTPS to API servers.

    app = webhooks.application({"/quota": Quota()})
    WebhookServer(app, ":9443", certificates="/certs").start()                           # reloads files that change
    WebhookServer(app, certificates=SelfSigned("shop/quota"), client=client).start()     # makes its own CA
    manager.add_server(WebhookServer(...))                                               # starts first, stops last

When the server starts, it listens. With a client, the server also applies the webhook configurations and writes its CA
into them, in separate threads. The server is ready when every object that names it holds the CA; without a client, it
is ready at once. When the server stops, it accepts no new connections, finishes responses in progress, and removes its
CA from the bundles.

The Pod's readiness must depend on the server (a Manager ensures this). While the webhook does not respond, the API
server refuses or allows the requests that match the webhook, depending on the failure policy. After SIGTERM the Service
still routes calls to the Pod for some seconds, so use a `preStop` hook that sleeps for 5 s.

`WebhookSetup` applies the configurations and keeps them applied. A failure is logged and retried after 1 s, doubling up
to 30 s, or sooner when one of the objects changes. If another client deletes or changes an object, `WebhookSetup` logs
this and applies the object again. If its last apply was less than one pause ago, it first waits for one pause. The
pause is 1 s, doubles with each such wait up to 30 s, and is 1 s again after a minute without an apply. Until the object
is applied, the server is not ready. An object that another process applied with the same field manager is left alone,
because another version of the program is being rolled out. A CA file is checked every minute. If the server makes its
own CA, `CaBundles` keeps the CA in the objects. Fields that a webhook's class leaves to the API server's default are
not compared.

`observed` reports the requests of a WSGI application to an observer.
"""
from __future__ import annotations

import base64
import binascii
import os
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any

from kubectl_runtime.certificates.bundles import certificates_in
from kubectl_runtime.client.api.api import Api
from kubectl_runtime.client.api.client import Client
from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.base.guard import described, guarded_logger, pass_interrupt
from kubectl_runtime.core.base.observer import NO_OBSERVER, Observer, is_observed, together
from kubectl_runtime.core.base.threads import SYSTEM_CLOCK, Clock, Duration, Thread, period_of, seconds
from kubectl_runtime.core.requests.rights import Right
from kubectl_runtime.core.scope import StopToken, calls_obey
from kubectl_runtime.resources import CustomResourceDefinition
from kubectl_runtime.runtime.observe.listener import ListenAddress, Listener
from kubectl_runtime.runtime.watch.watcher import watch_object
from kubectl_runtime.webhooks.answering import Application, require_jsonpatch
from kubectl_runtime.webhooks.configurations import (
    CLASSES,
    CONVERSION,
    KINDS,
    CaBundles,
    Object,
    Target,
    apply_webhooks,
    configurations,
)
from kubectl_runtime.webhooks.serving_certificates import (
    CertificateFolder,
    OwnCertificates,
    SelfSigned,
    ServingCertificates,
)

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

ANY = "*"
"""The single metrics label for an application that does not list its webhooks. A label for each requested path could
create any number of series."""


def webhooks_of(application: WSGIApplication) -> tuple[str, ...]:
    """The application's paths, which are its webhooks' names in metrics; `ANY` alone if the paths are unknown."""
    return application.paths if isinstance(application, Application) else (ANY,)


def observed(application: WSGIApplication, observer: Observer, clock: Clock) -> WSGIApplication:
    """Wrap `application` so that `observer` receives each request to one of its webhooks. Requests to other paths are
    not reported. `observer` must not raise (see `together`)."""
    if not is_observed(observer):
        return application
    webhooks = webhooks_of(application)

    def answer(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        webhook = ANY if webhooks == (ANY,) else environ.get("PATH_INFO") or "/"
        if webhook not in webhooks:
            return application(environ, start_response)
        code = 500  # the server's response when the application raises

        def started(status: str, *more: Any) -> Any:
            nonlocal code
            code = int(status[:3])
            return start_response(status, *more)

        began = clock.monotonic()
        observer.webhook_began(webhook)
        try:
            body = application(environ, started)
            try:
                return [*body]  # reviews are small; the response is complete here
            finally:
                if (close := getattr(body, "close", None)) is not None:
                    close()
        except BaseException:
            code = 500
            raise
        finally:
            observer.webhook_answered(webhook, code, clock.monotonic() - began)

    return answer


log = guarded_logger(__name__)

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0
"""Seconds. The pause between two applies is `FIRST_PAUSE` at first, and doubles each time up to `LONGEST_PAUSE`."""
CALM = 60.0
"""If the last apply was at least this many seconds ago, the pause is `FIRST_PAUSE` again."""
LOOK = 60.0
"""Seconds between two checks of a CA file."""

Named = tuple[str, str]
"""The kind and name of an object."""


class WebhookSetup:
    """Applies a server's webhook configurations and keeps them applied. Thread-safe; only one thread may call `run`."""

    def __init__(self, client: Client, app: Application, name: str, *, service: str | None, url: str | None,
                 ca_bundle: Callable[[], bytes], follows: bool,
                 add_thread: Callable[[str, Callable[[], None]], None] | None = None) -> None:
        """Arguments as for `apply_webhooks`. `follows`: whether to check `ca_bundle` repeatedly. `add_thread` starts a
        named thread, which ends soon after the token of `run` is set. If it is None, changes by others go unnoticed."""
        self._client, self._app, self._name = client, app, name
        self._service, self._url = service, url
        self._ca_bundle, self._follows, self._add_thread = ca_bundle, follows, add_thread
        self._change = threading.Lock()
        self._not_applied = f"the configurations called {name} are not applied yet"
        self._lacking: dict[Named, str] = {}
        """What other clients have changed, by object."""
        self._applied_at: dict[Named, str] = {}
        """When our field manager last applied an object, from the response to our own request."""
        self._news = threading.Event()

    @property
    def why_not_ready(self) -> str:
        """Text that names the configurations that are not applied; empty when all are applied."""
        with self._change:
            return self._not_applied or "; ".join(self._lacking.values())

    def run(self, end: StopToken) -> None:
        """Apply the configurations and keep them applied. Blocks until `end` is set, which also ends a call in
        progress. Returns after the first apply if changes are not observed and the CA is not checked."""
        forget = end.on_set(self._news.set)
        try:
            with calls_obey(end):
                self._keep(end)
        finally:
            forget()

    def _keep(self, end: StopToken) -> None:
        clock = self._client.clock
        pause, applied_at, watched = FIRST_PAUSE, -CALM, False
        while not end.is_set():
            bundle = self._ca_bundle()
            if not self._applied(bundle):
                # The obstacle may be gone when one of the objects changes, for example when a missing CRD is created.
                if not end.wait(FIRST_PAUSE):
                    self._news.wait(pause - FIRST_PAUSE)
                pause = min(2 * pause, LONGEST_PAUSE)
                continue
            if self._add_thread is None and not self._follows:
                return
            if self._add_thread is not None and not watched:
                watched = True
                self._watch(end, self._add_thread)
            if clock.monotonic() - applied_at >= CALM:
                pause = FIRST_PAUSE
            applied_at = clock.monotonic()
            if self._await_news(bundle, end) and clock.monotonic() - applied_at < pause:
                end.wait(pause)
                pause = min(2 * pause, LONGEST_PAUSE)

    def _applied(self, bundle: bytes) -> bool:
        self._news.clear()
        with self._change:
            lacking, first = dict(self._lacking), bool(self._not_applied)
        try:
            found = apply_webhooks(self._client, self._app, self._name, service=self._service, url=self._url,
                                   ca_bundle=bundle, field_manager=self._name, force=True)
        except BaseException as error:  # noqa: BLE001 - any error is logged, and the apply is tried again
            pass_interrupt(error)
            reason = f"the configurations called {self._name} are not applied: {described(error)}"
            with self._change:
                self._not_applied = reason
            log.warning("%s", reason)
            return False
        with self._change:
            self._not_applied = ""
            self._applied_at = {(one.api_resource.kind, one.name or ""): self._time_of(one.to_dict()) for one in found}
            self._lacking = {named: why for named, why in self._lacking.items() if lacking.get(named) != why}
        if first or not lacking:
            log.info("the configurations called %s are applied", self._name)
        for kind, name in lacking:
            log.info("%s %s is correct again", kind, name)
        return True

    def _await_news(self, bundle: bytes, end: StopToken) -> bool:
        """Block until the objects must be applied again; returns whether other clients have changed them."""
        while not end.is_set():
            if self._news.wait(LOOK):
                return not end.is_set()
            if self._follows and self._ca_bundle() != bundle:
                return False
        return False

    # Changes by other clients

    def _watch(self, end: StopToken, add_thread: Callable[[str, Callable[[], None]], None]) -> None:
        target = Target.url(self._url) if self._url is not None else Target.service(self._service or "")
        for manifest in configurations(self._app, self._name, target):
            add_thread(f"webhooks {self._name} {manifest['kind']}", partial(self._follow, manifest, end))

    def _follow(self, manifest: Object, end: StopToken) -> None:
        name = manifest["metadata"]["name"]
        api: Any = Api.all(self._client, CLASSES[manifest["kind"]])
        for found in watch_object(api, name, stop=end, clock=self._client.clock):
            self._look(manifest, None if found is None else found.to_dict())

    def _look(self, manifest: Object, found: Object | None) -> None:
        named = manifest["kind"], manifest["metadata"]["name"]
        why = "was deleted" if found is None else self._difference(manifest, found)
        with self._change:
            before = self._lacking.pop(named, "")
            if why:
                self._lacking[named] = why = f"{named[0]} {named[1]} {why}"
        if why:
            if why != before:
                log.warning("%s; applying it again", why)
            self._news.set()

    def _difference(self, manifest: Object, found: Object) -> str:
        """What others changed in `found`; empty if nothing, or if another process applied it as our field manager."""
        named = manifest["kind"], manifest["metadata"]["name"]
        at = self._time_of(found)
        place = lacking({**manifest, "metadata": {}}, found, "")
        if not place and self._follows and not _holds(found, self._ca_bundle()):
            place = "caBundle"
        with self._change:
            is_another = at not in ("", self._applied_at.get(named, ""))
            if not place and at:
                self._applied_at[named] = at  # another replica has applied the object, with its own CA
        return f"was changed by others at {place}" if place and not is_another else ""

    def _time_of(self, found: Object) -> str:
        """When our field manager last applied the object; empty if the manager owns no fields of the object."""
        manager = f"{self._name}{CONVERSION}" if found["kind"] == "CustomResourceDefinition" else self._name
        times = [str(entry.get("time", "")) for entry in found["metadata"].get("managedFields") or ()
                 if entry.get("manager") == manager and entry.get("operation") == "Apply"]
        return max(times, default="")


def lacking(wanted: Any, found: Any, path: str) -> str:
    """The path of the first value in `wanted` that `found` lacks; empty if `found` has all of them. `found` may have
    more keys, and more objects in lists of named objects.

    >>> lacking({"a": [{"name": "x", "b": 1}]}, {"a": [{"name": "y"}, {"name": "x", "b": 2, "c": 3}]}, "")
    'a.x.b'
    """
    if isinstance(wanted, dict):
        pairs = [(key, value, found.get(key) if isinstance(found, dict) else None) for key, value in wanted.items()]
    elif isinstance(wanted, list) and wanted and all(isinstance(one, dict) and "name" in one for one in wanted):
        there = {one.get("name"): one for one in found or () if isinstance(one, dict)}
        pairs = [(one["name"], one, there.get(one["name"])) for one in wanted]
    elif isinstance(wanted, list) and isinstance(found, list) and len(wanted) == len(found):
        pairs = [(str(index), *both) for index, both in enumerate(zip(wanted, found, strict=True))]
    else:
        return "" if wanted == found else path
    return next((place for key, one, other in pairs
                 if (place := lacking(one, other, f"{path}.{key}" if path else key))), "")


def _holds(found: Object, bundle: bytes) -> bool:
    """Whether each clientConfig of `found` holds the CAs of `bundle`."""
    wanted = set(certificates_in(bundle))
    conversion = ((found.get("spec") or {}).get("conversion") or {}).get("webhook")
    for webhook in [conversion] if conversion else found.get("webhooks") or ():
        try:
            there = base64.b64decode((webhook.get("clientConfig") or {}).get("caBundle") or "")
        except (binascii.Error, ValueError):
            return False
        if not wanted <= set(certificates_in(there)):
            return False
    return True


CONNECTIONS = 1000
"""The maximum number of connections. An API server uses one per call, and handles 600 requests at once by default."""
LONGEST_LOOK = 60.0
"""Maximum seconds between two checks of the certificate's age, because a suspended machine may wake up late."""


_USE = "it is for webhooks; WebhookServer(app, ':9444') sets another address"


class WebhookServer:
    """An HTTPS server for webhooks. It renews its own certificate, or reloads certificate files when they change.

    `app` is an application of `kubectl_runtime.webhooks`, or any WSGI application. `certificates`: a folder with
    tls.crt and tls.key, or `SelfSigned()`. With `SelfSigned` and a `client` the server writes its CA into the webhook
    configurations and CRDs that name the server. `start` does not block. In a `with` block the server listens until the
    end of the block. `Manager.add_server` runs the server in a manager. The size and the duration of requests and
    the number of connections are limited. Thread-safe.

    >>> from kubectl_runtime import webhooks
    >>> class Quota(Admission[Pod]):
    ...     def validate(self, request): ...
    >>> app = webhooks.application({"/quota": Quota()})
    >>> with WebhookServer(app, "127.0.0.1:0", certificates=SelfSigned()) as server_of_mine:
    ...     server_of_mine.port > 0
    True
    """

    def __init__(self, app: WSGIApplication, address: str | tuple[str, int] | None = None, *,
                 certificates: str | os.PathLike[str] | SelfSigned, client: Client | None = None,
                 host: str | None = None, port: int | None = None, configuration: str | None = None,
                 url: str | None = None, limit: Duration = 30, clock: Clock | None = None,
                 observer: Observer | None = None) -> None:
        """Make a server. Before `start` the server reads no files and sends no requests.

        - `app`: a WSGI application from `webhooks.application()`, or any other WSGI application.
        - `address`: `":9443"` (the default: all addresses of this host), `"127.0.0.1:9443"`, `"[::1]:9443"`, or a pair
          of host and port; port 0 is a free port. `host` and `port` are an alternative to `address`.
        - `certificates`: a folder with `tls.crt` and `tls.key`, or `SelfSigned`. The `ca.crt` of a folder is added to
          the CAs that the API server trusts, at the start and whenever it changes.
        - `client`: writes the CA of a SelfSigned into the objects that name this server; the server does not close it.
        - `configuration`: the name under which the configurations of the application's classes are applied at the
          start, for the Service of the SelfSigned or for `url`. Deleted or changed parts are restored, and the server
          is not ready until this is done. If None, the configurations are managed elsewhere.
        - `limit`: seconds for a request to arrive, and again for its response; an API server waits for at most 30.
        - `observer`: is notified of each request (default: the client's observer).

        Raises RequestError for an argument that cannot be used; TypeError for an observer that is not an Observer.
        """
        given: Any = app
        if not callable(given) or isinstance(given, type):
            raise RequestError(f"a WebhookServer needs a WSGI application, not {given!r}: make one by "
                               'webhooks.application({"/quota": Quota()})')
        wanted: Any = certificates
        if not isinstance(wanted, str | os.PathLike | SelfSigned):
            raise RequestError(f"certificates={wanted!r}: must be a folder or SelfSigned()")
        if address is None:
            address = ("" if host is None else host, 9443 if port is None else port)
        elif (host, port) != (None, None):
            raise RequestError(f"address={address!r} has host and port already: leave host= and port= out")
        if configuration is not None:
            if client is None or not isinstance(app, Application):
                raise RequestError("configuration= needs client=, and an app that webhooks.application() has made")
            if url is None and not (isinstance(certificates, SelfSigned) and certificates.service):
                raise RequestError("configuration= needs to know how the API server calls: SelfSigned(service="
                                   "'NAMESPACE/NAME'), or url='https://HOST:PORT'")
        self._app, self._client = app, client
        self._wanted = certificates
        self._address = ListenAddress.of(address)
        self._configuration, self._url = configuration, url
        self._limit = period_of("limit", limit)
        self._clock = clock or (SYSTEM_CLOCK if client is None else client.clock)
        self._observer = together(getattr(client, "observer", NO_OBSERVER) if observer is None else observer)
        self._end = StopToken(clock=self._clock)
        self._change = threading.Lock()
        self._certificates: ServingCertificates | None = None
        self._bundles: CaBundles | None = None
        self._listener: Listener | None = None
        self._is_started = False
        self._threads: list[Thread] = []
        self._owners: list[Callable[[threading.Thread], bool]] = []
        """The `owns` functions of the server's parts. They remain after the parts have ended."""
        self._setup: WebhookSetup | None = None
        self._process = 0

    @property
    def name(self) -> str:
        """The server's name in logs, checks and threads: `webhook server HOST:PORT`."""
        return f"webhook server {self._address}"

    @property
    def app(self) -> WSGIApplication:
        """The served application."""
        return self._app

    @property
    def configuration(self) -> str | None:
        """The name of the configurations that the server applies; None if they are managed elsewhere."""
        return self._configuration

    @property
    def service(self) -> str | None:
        """The Service through which the API server calls this server, as `NAMESPACE/NAME`; None if unknown."""
        wanted = self._wanted
        return wanted.service or None if isinstance(wanted, SelfSigned) else None

    @property
    def certificate_folder(self) -> str | None:
        """The folder of the certificate files; None if the server makes its own certificate."""
        wanted = self._wanted
        return None if isinstance(wanted, SelfSigned) else os.fspath(wanted)

    @property
    def url(self) -> str | None:
        """The argument `url`: the URL under which the API server calls this server, or None."""
        return self._url

    @property
    def port(self) -> int:
        """The port on which the server listens; before `start` the requested port (0 for any free port)."""
        listener = self._listener
        return self._address.port if listener is None else listener.port

    @property
    def ca_bundle(self) -> bytes:
        """The CAs that callers must trust, as PEM: both CAs of a SelfSigned, or `ca.crt` in the folder; empty if
        there is no such file. Raises RequestError before `start`."""
        return self._serving().ca_bundle

    @property
    def why_not_ready(self) -> str:
        """Why the server is not ready, as text; empty when the server is ready. Does not block."""
        if self._end.is_set():
            return f"{self.name} is stopping"
        if self._listener is None:
            return f"{self.name} does not listen"
        not_applied = "" if self._setup is None else self._setup.why_not_ready
        return not_applied or ("" if self._bundles is None else self._bundles.why_not_ready())

    def rights(self) -> list[Right]:
        """The permissions that the server's client needs to apply the configurations and to keep the CA in the
        configurations and CRDs. They are restricted to the known names, except list, watch and create, which cannot
        be restricted."""
        found: dict[Right, None] = {}
        for kind in _callers_of(self._app):
            group, plural = kind.api_resource.group, kind.api_resource.plural
            names = self._names_of(kind) or ("",)
            keeps_authority = self._client is not None and isinstance(self._wanted, SelfSigned)
            if keeps_authority or self._configuration is not None:
                found |= dict.fromkeys(Right(group, plural, verb) for verb in ("list", "watch"))
            if keeps_authority:
                found |= dict.fromkeys(Right(group, plural, "patch", name=name) for name in names)
            if self._configuration is not None:
                found |= dict.fromkeys(Right(group, plural, verb, name=name) for name in names
                                       for verb in ("get", "patch"))
                if kind is not CustomResourceDefinition:
                    found[Right(group, plural, "create")] = None
        return list(found)

    def _names_of(self, kind: Any) -> tuple[str, ...]:
        """The names of the objects that name this server; empty if unknown."""
        if kind is not CustomResourceDefinition:
            return () if self._configuration is None else (self._configuration,)
        names = self._app.definitions if isinstance(self._app, Application) else None
        return () if names is None else names

    def start(self) -> None:
        """Begin to listen, and return.

        Raises OSError if the address is taken or belongs to another host. Raises ConfigError for certificate files that
        cannot be used. Raises MissingExtra if the extra `tls` (for a SelfSigned) or `webhooks` (for a webhook that
        changes objects) is not installed. Raises RequestError on a second call."""
        if isinstance(self._app, Application) and "mutate" in self._app.verbs:
            require_jsonpatch()
        with self._change:  # released before observers and log handlers run
            if self._is_started or self._end.is_set():
                raise RequestError(f"the {self.name} was started or stopped already: make a new one")
            self._is_started = True
        try:
            own = None
            if isinstance(self._wanted, SelfSigned):
                self._certificates = own = OwnCertificates(self._wanted, self._clock)
            else:
                self._certificates = CertificateFolder(self._wanted)
            app = observed(self._app, self._observer, self._clock)
            listener = Listener(self._address.listen(_USE), app, self.name, self._limit,
                                connections=CONNECTIONS, context=self._certificates.context)
        except BaseException:  # the caller may remove the cause, such as a taken address, and call start() again
            self._is_started = False
            raise
        self._observer.webhooks_served(webhooks_of(self._app))
        self._listener, self._process = listener, os.getpid()
        try:
            self._begin(listener, own)
        except BaseException:  # for example, no more threads
            self._end.set("it could not be started")
            self.stop(0)
            raise
        if self._end.is_set():  # another thread has called stop() during the start
            self.stop(0)
        log.info("%s listens at port %d", self.name, self.port)

    def _begin(self, listener: Listener, own: OwnCertificates | None) -> None:
        listener.start()
        self._owners.append(listener.owns)
        if own is not None and isinstance(self._wanted, SelfSigned):
            if self._client is not None:
                self._bundles = CaBundles(self._client, self._wanted, own)
                self._owners.append(self._bundles.owns)
                self._bundles.start({kind: self._names_of(kind) for kind in _callers_of(self._app)}, listener.port)
            self._add_thread(f"{self.name} renewal", lambda: self._renew_in_time(own))
        if self._configuration is not None and self._client is not None and isinstance(self._app, Application):
            service = self._wanted.service if isinstance(self._wanted, SelfSigned) and self._url is None else None
            self._setup = setup = WebhookSetup(
                self._client, self._app, self._configuration, service=service, url=self._url,
                ca_bundle=lambda: self.ca_bundle, follows=own is None, add_thread=self._add_thread)
            self._add_thread(f"{self.name} setup", lambda: setup.run(self._end))

    def owns(self, thread: threading.Thread) -> bool:
        """Whether `thread` belongs to the server or runs one of its webhooks. Such a thread cannot wait for `stop`."""
        return thread in self._threads or any(owns(thread) for owns in self._owners)

    def stop(self, timeout: Duration = 5) -> None:
        """Stop listening, finish the responses in progress, and end. Responses that take longer than `timeout` seconds
        are aborted. Later calls do nothing. If a webhook of this server calls `stop`, the call does not wait for that
        webhook's response. In a forked child, `stop` only closes the child's copy of the parent's socket."""
        deadline = time.monotonic() + seconds(timeout)
        self._end.set("stop() was called")
        with self._change:
            listener, self._listener = self._listener, None
            bundles, self._bundles = self._bundles, None
        if listener is not None:
            listener.stop(max(0.0, deadline - time.monotonic()))
            if os.getpid() != self._process:
                return
            for thread in self._threads:
                if thread is not threading.current_thread():
                    thread.join(max(0.0, deadline - time.monotonic()))
        if bundles is not None:
            bundles.stop(max(0.1, deadline - time.monotonic()))
        if listener is not None:
            self._observer.webhooks_ended(webhooks_of(self._app))
            log.info("%s has stopped", self.name)

    def renew(self) -> None:
        """Switch to the next CA of a SelfSigned now. Raises RequestError before `start`, and if the server uses
        certificate files, because those are renewed elsewhere."""
        own = self._serving()
        if not isinstance(own, OwnCertificates):
            raise RequestError(f"the {self.name} uses certificate files, which renew() does not write")
        own.renew()
        log.info("%s has a new certificate, valid until %s", self.name, own.expires.isoformat(timespec="seconds"))
        if (bundles := self._bundles) is not None:
            bundles.renewed()

    def __enter__(self) -> WebhookServer:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        self.stop()

    def _serving(self) -> ServingCertificates:
        if self._certificates is None:
            raise RequestError(f"the {self.name} has no certificate before its start")
        return self._certificates

    def _add_thread(self, name: str, body: Any) -> None:
        thread = Thread(target=body, name=name, daemon=True)
        thread.start()
        self._threads.append(thread)

    def _renew_in_time(self, own: OwnCertificates) -> None:
        while not self._end.wait(min(max(0.0, own.time_left()), LONGEST_LOOK)):
            if own.time_left() <= 0:  # false if LONGEST_LOOK cut the wait short, or renew() was called during it
                self.renew()


def _callers_of(app: Any) -> list[Any]:
    """The kinds of objects that may name the application; all kinds if its webhooks are not known."""
    if not isinstance(app, Application):
        return list(KINDS)
    return [kind for verb, kind in zip(("validate", "mutate", "convert"), KINDS, strict=True) if verb in app.verbs]
