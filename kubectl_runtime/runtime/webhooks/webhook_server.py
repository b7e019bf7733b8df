"""`WebhookServer`: serves a WSGI application over HTTPS, to API servers.

    app = webhooks.application({"/quota": Quota()})
    WebhookServer(app, ":9443", certificates="/certs").start()                           files, followed
    WebhookServer(app, certificates=SelfSigned("shop/quota"), client=client).start()     its own authority
    manager.add_server(WebhookServer(...))                                               before and after all else

    starting   listens; with a client, the configurations are applied and get the authority, in threads of its own
    ready      the authority is in every object that names this server; without a client, at once
    stopping   nobody new; each connection ends with the answer under way; our authority is taken out of the bundles

The Pod's readiness has to depend on it (a Manager sees to that): without a webhook everything is refused, or passes,
as its failure policy says. Between SIGTERM and the last call some seconds pass, in which the Service still leads here:
a `preStop` that sleeps for 5 s keeps the server for them.
"""
from __future__ import annotations

import os
import threading
import time
from types import TracebackType
from typing import TYPE_CHECKING, Any

from kubectl_runtime.client.api.client import Client
from kubectl_runtime.core.base.clock import SYSTEM_CLOCK, Clock, Duration, period_of, seconds
from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.base.guarded_log import guarded_logger
from kubectl_runtime.core.base.observer import NO_OBSERVER, Observer, together
from kubectl_runtime.core.base.stop import StopToken
from kubectl_runtime.core.interpreter.contexts import Thread
from kubectl_runtime.core.requests.rights import Right
from kubectl_runtime.resources import CustomResourceDefinition
from kubectl_runtime.runtime.observe.listen_address import ListenAddress
from kubectl_runtime.runtime.observe.listener import Listener
from kubectl_runtime.runtime.webhooks.ca_bundles import KINDS, CaBundles
from kubectl_runtime.runtime.webhooks.observed_application import observed, webhooks_of
from kubectl_runtime.runtime.webhooks.serving_certificates import (
    CertificateFolder,
    OwnCertificates,
    SelfSigned,
    ServingCertificates,
)
from kubectl_runtime.runtime.webhooks.webhook_setup import WebhookSetup
from kubectl_runtime.webhooks.application import Application
from kubectl_runtime.webhooks.difference import require_jsonpatch

if TYPE_CHECKING:
    from wsgiref.types import WSGIApplication

log = guarded_logger(__name__)

CONNECTIONS = 1000
"""Each API server has one for every call under way; it limits itself to 600 requests by default."""
LONGEST_LOOK = 60.0
"""Seconds between two looks whether the certificate is to be renewed: a machine that was suspended wakes late."""


_USE = "it is for webhooks, and WebhookServer(app, ':9444') says another address"


class WebhookServer:
    """An HTTPS server for webhooks. It renews its own certificate, or reads certificate files again when they change.

    `app` is what `kubectl_runtime.webhooks.application` made, or any WSGI application. `certificates`: a folder with
    tls.crt and tls.key, or `SelfSigned()`. With `SelfSigned` and a `client` it writes its authority into the webhook
    configurations and CRDs that name it. `start` does not block. In a `with` block it listens until the end of the
    block. `Manager.add_server` runs it in a manager. Sizes of requests, times and connections are limited. Safe to use
    from any thread.

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
        """`app`: of `webhooks.application`, or any other. `certificates`: a folder with `tls.crt` and `tls.key`, or
        `SelfSigned`. `client`: writes the authority of a SelfSigned where this server is named; it is not closed.

        `address` is `":9443"` (the default: all addresses of this host), `"127.0.0.1:9443"`, `"[::1]:9443"`, or host
        and port; port 0 is a free one. `host` and `port` say the same in two arguments, in place of `address`.

        `configuration`: the name under which the configurations of the application's classes are applied at the start,
        with the Service of the SelfSigned, or `url`, as the place to call. What others delete or change of them is put
        back, and the server is not ready until it is. None: they are somebody else's. From a folder
        `ca.crt` is added to what the API server trusts, again when it changes. `limit`: seconds for a request to come,
        and as many for its answer; 30 is the longest that an API server waits. `observer`: hears of each request
        (default: the client's).

        Raises RequestError for an argument that cannot be used, and says which can; TypeError for an observer that is
        no Observer. Nothing is read or sent before `start`.
        """
        given: Any = app
        if not callable(given) or isinstance(given, type):
            raise RequestError(f"a WebhookServer serves a WSGI application, not {given!r}: "
                               'webhooks.application({"/quota": Quota()})')
        wanted: Any = certificates
        if not isinstance(wanted, str | os.PathLike | SelfSigned):
            raise RequestError(f"certificates={wanted!r} is neither a folder nor SelfSigned()")
        if address is None:
            address = ("" if host is None else host, 9443 if port is None else port)
        elif (host, port) != (None, None):
            raise RequestError(f"address={address!r} has host and port already: leave host= and port= out")
        if configuration is not None:
            if client is None or not isinstance(app, Application):
                raise RequestError("configuration= needs a client, and an application of webhooks.application")
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
        self._setup: WebhookSetup | None = None
        self._process = 0

    @property
    def name(self) -> str:
        """What it is called in logs and as a check, and its threads: `webhook server HOST:PORT`."""
        return f"webhook server {self._address}"

    @property
    def port(self) -> int:
        """The port at which it listens; before `start` the one that was asked for, 0 for a free one."""
        listener = self._listener
        return self._address.port if listener is None else listener.port

    @property
    def ca_bundle(self) -> bytes:
        """The authorities that a caller has to trust, as PEM: the two of a SelfSigned, or `ca.crt` in the folder, empty
        when there is none. Raises RequestError before `start`."""
        return self._serving().ca_bundle

    @property
    def why_not_ready(self) -> str:
        """Why it is not ready, for people; empty when it is. Does not block."""
        if self._end.is_set():
            return f"{self.name} is stopping"
        if self._listener is None:
            return f"{self.name} does not listen"
        not_applied = "" if self._setup is None else self._setup.why_not_ready
        return not_applied or ("" if self._bundles is None else self._bundles.why_not_ready())

    def rights(self) -> list[Right]:
        """What its client has to be allowed: to keep the authority where it belongs, to apply the configurations. Each
        is for the names that are known: what it only watches, and what is not there yet, has none."""
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
        """What the objects that name this server are called; empty where that is not known."""
        if kind is not CustomResourceDefinition:
            return () if self._configuration is None else (self._configuration,)
        names = self._app.definitions if isinstance(self._app, Application) else None
        return () if names is None else names

    def start(self) -> None:
        """Listen, and return. Raises OSError when the address is taken or not this host's, ConfigError for files that
        cannot be used, MissingExtra for a SelfSigned without the extra `tls` and for a webhook that changes objects
        without `webhooks`, RequestError the second time."""
        if isinstance(self._app, Application) and "mutate" in self._app.verbs:
            require_jsonpatch()
        with self._change:  # only for this: observers and log handlers are told of the start
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
        except BaseException:  # of what can be mended, such as an address that is taken
            self._is_started = False
            raise
        self._observer.webhooks_served(webhooks_of(self._app))
        self._listener, self._process = listener, os.getpid()
        try:
            self._begin(listener, own)
        except BaseException:  # no more threads, say
            self._end.set("it could not be started")
            self.stop(0)
            raise
        if self._end.is_set():  # meanwhile, by another thread, which may have come before what has begun now
            self.stop(0)
        log.info("%s listens at port %d", self.name, self.port)

    def _begin(self, listener: Listener, own: OwnCertificates | None) -> None:
        listener.start()
        if own is not None and isinstance(self._wanted, SelfSigned):
            if self._client is not None:
                self._bundles = CaBundles(self._client, self._wanted, own)
                self._bundles.start({kind: self._names_of(kind) for kind in _callers_of(self._app)},
                                    listener.port)
            self._add_thread(f"{self.name} renewal", lambda: self._renew_in_time(own))
        if self._configuration is not None and self._client is not None and isinstance(self._app, Application):
            service = self._wanted.service if isinstance(self._wanted, SelfSigned) and self._url is None else None
            self._setup = setup = WebhookSetup(
                self._client, self._app, self._configuration, service=service, url=self._url,
                ca_bundle=lambda: self.ca_bundle, follows=own is None, add_thread=self._add_thread)
            self._add_thread(f"{self.name} setup", lambda: setup.run(self._end))

    def stop(self, timeout: Duration = 5) -> None:
        """Stop listening, finish the answers in progress, and end. After `timeout` seconds it breaks them off. Later
        calls do nothing. In the child of a fork it only closes its copy of the parent's socket."""
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
        """Let the next authority of a SelfSigned take over now, and not only when it is time. Raises RequestError for
        files, which are renewed by whoever writes them, and before `start`."""
        own = self._serving()
        if not isinstance(own, OwnCertificates):
            raise RequestError(f"the {self.name} has its certificate from files: renew() does not write them")
        own.renew()
        log.info("%s has a new certificate, until %s", self.name, own.expires.isoformat(timespec="seconds"))
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
            if own.time_left() <= 0:  # somebody may have done it meanwhile
                self.renew()


def _callers_of(app: Any) -> list[Any]:
    """The kinds of objects that may name the application: all of them, if nothing is known of it."""
    if not isinstance(app, Application):
        return list(KINDS)
    return [kind for verb, kind in zip(("validate", "mutate", "convert"), KINDS, strict=True) if verb in app.verbs]
