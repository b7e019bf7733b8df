"""`ApiCore`: the API server without sockets and threads. `handle` answers a request; time is injected.

The `Cluster` holds the server's state and the one lock that protects it. The core passes each request through access
control, the handlers and output negotiation, and runs the controllers.

`tick()` does the work that is due on the clock (compaction and the controllers' steps); `next_wakeup()` returns when
work is due next. The core starts no thread: the server's housekeeping thread or a simulated transport calls both
functions.
"""
from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from kubectl_runtime.apiserver import discovery, errors, openapi
from kubectl_runtime.apiserver.access import Access, User
from kubectl_runtime.apiserver.access.authn import AUTHENTICATED, MASTERS
from kubectl_runtime.apiserver.context import RequestContext, page_not_found
from kubectl_runtime.apiserver.controllers.accounts import create_defaults
from kubectl_runtime.apiserver.controllers.loop import ControlLoop
from kubectl_runtime.apiserver.crds.controller import STORAGE as DEFINITIONS
from kubectl_runtime.apiserver.crds.controller import ConversionCache, CrdController
from kubectl_runtime.apiserver.crds.definitions import condition
from kubectl_runtime.apiserver.discovery import unready
from kubectl_runtime.apiserver.encoding import PROTOBUF, check_readable
from kubectl_runtime.apiserver.handlers.dispatch import handle_resource
from kubectl_runtime.apiserver.kinds.catalog import builtin_types
from kubectl_runtime.apiserver.kubelet.kubelet import Kubelet
from kubectl_runtime.apiserver.output.negotiation import (
    Media,
    accept,
    encode,
    error_media,
    protobuf_status,
    render,
    wants_protobuf_only,
    warning_headers,
)
from kubectl_runtime.apiserver.query import duration_error
from kubectl_runtime.apiserver.storage import Cluster, ServedResource, Version
from kubectl_runtime.apiserver.webhooks.hooks import Hooks, NoCaller, WebhookCaller
from kubectl_runtime.apiserver.wire import HttpRequest, HttpResponse, RequestInfo, parse
from kubectl_runtime.core.base.guard import guarded_logger
from kubectl_runtime.core.base.threads import SYSTEM_CLOCK, Clock
from kubectl_runtime.core.meta.metav1 import parse_time

_HEALTH = ("/healthz", "/livez", "/readyz")


class Starting:
    """How a kube-apiserver answers while it starts. It is ready after `seconds` on the clock.

    Until then /healthz and /readyz answer 500 and name the failing check; /livez answers normally. During the first
    half of this time every other request gets a 503 with `Retry-After: 5`. During the second half lists and watches get
    a 429 with `Retry-After: 1`, and other requests are served.
    """

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock = clock
        now = clock.monotonic()
        self._knows_paths, self._ready = now + seconds / 2, now + seconds

    def answer(self, request: HttpRequest, info: RequestInfo) -> HttpResponse | None:
        """The 500 for a health check; None to serve the request normally. Raises StatusError for a 503 or 429."""
        now = self._clock.monotonic()
        if now >= self._ready:
            return None
        if request.path.startswith(_HEALTH):
            return None if request.path.startswith("/livez") else unready(request.path.strip("/").partition("/")[0])
        if now < self._knows_paths:
            raise _later(503, "ServiceUnavailable", "the request has been made before all known HTTP paths have been "
                         "installed, please try again", 5)
        if info.is_resource and info.verb in ("list", "watch"):
            raise _later(429, "TooManyRequests", "storage is (re)initializing", 1)
        return None


def _later(code: int, reason: str, message: str, seconds: int) -> errors.StatusError:
    return errors.StatusError(code, reason, message, details={"retryAfterSeconds": seconds},
                              headers=[("Retry-After", str(seconds))])


log = guarded_logger(__name__)

FIRST_RETRY, MAX_RETRY = 1.0, 60.0  # seconds until a controller retries after a failure or a webhook's refusal
DEFAULT_COMPACTION = 300.0  # seconds; the default of kube-apiserver's --etcd-compaction-interval


class ApiCore:
    """The API server's core. Safe to use from any thread."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK, *, compaction_interval: float = DEFAULT_COMPACTION,
                 controllers: Iterable[ControlLoop] = (), access: Access | None = None,
                 kubelet: Kubelet | None = None, webhooks: WebhookCaller | None = None,
                 seed: int | None = None, warn_unobeyed: bool = True, gates: frozenset[str] = frozenset(),
                 first_create_delay: float = 0.0) -> None:
        """`compaction_interval` is in seconds; 0 keeps the history from version 1. Without `access` every client may do
        everything. `kubelet` runs Pods and serves their logs and streams. `webhooks` calls webhooks; without it every
        webhook call fails.

        `seed` makes uids and generated names reproducible. With `warn_unobeyed`, creating an object that the server
        stores but does not act on returns a Warning. `gates` are the enabled feature gates. If a custom resource's CRD
        was established less than `first_create_delay` seconds ago, the answer to a create is delayed by
        `first_create_delay` seconds.
        """
        self.clock = clock
        # These uids identify the cluster in every answer, like those of kube-apiserver's API Priority and Fairness.
        # They do not come from the seed, since a restarted cluster is another cluster.
        self._flow = (("X-Kubernetes-Pf-Flowschema-Uid", str(uuid.uuid4())),
                      ("X-Kubernetes-Pf-Prioritylevel-Uid", str(uuid.uuid4())))
        self.cluster = Cluster(clock, builtin_types(), self._loopback, seed=seed)
        caller = webhooks or NoCaller()
        self._hooks = Hooks(self.cluster.storage, caller)
        self.access = access or Access()
        self._first_create_delay = first_create_delay
        self.starting: Starting | None = None
        """Answers requests while the server simulates a kube-apiserver's start; None if no start is simulated."""
        self.kubelet = kubelet or Kubelet(clock)
        self.kubelet.rules.on_change(self._wake_up)
        self._wake: Callable[[], None] | None = None
        self._ticking = threading.Lock()
        self._compaction_interval = compaction_interval
        self._next_compaction = clock.monotonic() + compaction_interval
        self._compact_to = 0
        self._definitions = CrdController(caller)
        self._controllers: list[ControlLoop] = [self._definitions, ConversionCache(), *controllers]
        self._again: dict[ControlLoop, tuple[float, float]] = {}  # (time, delay) of the next look_again
        self.cluster.controllers = frozenset(controller.name for controller in self._controllers)
        self.cluster.warns, self.cluster.gates = warn_unobeyed, gates
        with self.cluster.locked():
            for controller in self._controllers:
                controller.start(self.cluster)
            create_defaults(self.cluster)
        self.access.attach(self.cluster)
        if compaction_interval:
            self.compact()  # as on a server that has run for a while: clients can no longer read the first versions

    # --- requests -----------------------------------------------------------------------------------------------------

    def handle(self, request: HttpRequest, *, user: User | None = None) -> HttpResponse:
        """Answer a request. If `user` is given, authentication and authorization are skipped.

        Never raises: an unexpected error is logged and answered with a 500.
        """
        info = parse(request)
        warnings: list[str] = []
        try:
            response = self._answer(request, info, warnings, user)
        except errors.StatusError as error:
            response = refusal(request, error)
        except RecursionError:
            # Go accepts 10,000 levels; Python's stack ends earlier. The real server answers the same at its limit.
            response = refusal(request, errors.bad_request("exceeded max depth"))
        except Exception as error:  # no request may end the server
            log.exception("%s %s failed", request.method, request.path)
            response = refusal(request, errors.internal(f"{type(error).__name__}"))
        response.headers += [("Audit-Id", request.header("audit-id") or str(uuid.uuid4())), *self._flow]
        if warnings:
            response.headers += warning_headers(warnings)
        if self._controllers_due():
            self._wake_up()
        return response

    def _answer(self, request: HttpRequest, info: RequestInfo, warnings: list[str], user: User | None) -> HttpResponse:
        if info.verb != "watch" and (wrong := duration_error(request.param("timeout") or "0")):
            raise errors.bad_request(f"invalid timeout specified in the request URL - {wrong}")
        starting = self.starting
        if starting is not None and (answer := starting.answer(request, info)) is not None:
            return answer
        user = user or self.access.admit(request, info)
        with self.cluster.locked():
            registry = self.cluster.registry
            answer = discovery.respond(registry, request) or openapi.respond(registry, request)
            if answer is not None:
                return answer
            resource_type = self._resource_type(info)
        if resource_type is None:
            return page_not_found()
        if resource_type.deprecation:
            warnings.append(resource_type.deprecation)
        if request.method not in ("GET", "HEAD"):
            check_readable(request)
        media = accept(request, watch=info.verb in ("list", "watch"), custom=resource_type.is_custom)
        ctx = RequestContext(self.cluster, self.access, request, info, resource_type, media, user, self.clock.now(),
                             self.kubelet, self._hooks, warnings=warnings)
        response = handle_resource(ctx)
        if self._first_create_delay and info.verb == "create" and self._is_new(resource_type):
            return replace(response, delay=response.delay + self._first_create_delay)
        return response

    def _is_new(self, resource_type: ServedResource) -> bool:
        """Whether the type belongs to a CRD that was established less than `first_create_delay` seconds ago."""
        with self.cluster.locked():
            name = f"{resource_type.plural}.{resource_type.group}"
            stored = self.cluster.storage.get(DEFINITIONS, "", name) if resource_type.is_custom else None
        since = (condition(stored.decode(), "Established") or {}).get("lastTransitionTime") if stored else None
        return since is not None and (self.clock.now() - parse_time(since)).total_seconds() < self._first_create_delay

    def _resource_type(self, info: RequestInfo) -> ServedResource | None:
        """The type that a path names. If there is none, returns None (plain-text 404) or raises a 404 with a Status."""
        if not info.is_resource:
            return None
        found = self.cluster.registry.get(info.group, info.version, info.resource)
        in_namespace = bool(info.namespace) and (info.resource != "namespaces" or info.name != info.namespace)
        misplaced = found is not None and (found.namespaced if info.name and not info.namespace else
                                           in_namespace and not found.namespaced)
        if found is not None and found.is_custom and found.namespaced and not info.namespace:
            misplaced = info.verb not in ("list", "watch")
        if found is not None and not misplaced:
            return found
        # A group that serves only custom resources answers in plain text.
        builtin = any(not other.is_custom for other in self.cluster.registry if other.group == info.group)
        if builtin:
            raise errors.no_such_resource()
        return None

    def _loopback(self, request: HttpRequest, component: str) -> HttpResponse:
        """Answer a request of one of the cluster's own components, which may do everything. Raises StatusError."""
        info = parse(request)
        resource_type = self.cluster.registry.get(info.group, info.version, info.resource)
        if resource_type is None:
            raise errors.no_such_resource()
        user = User(f"system:{component}", groups=(MASTERS, AUTHENTICATED))
        return handle_resource(RequestContext(self.cluster, self.access, request, info, resource_type, Media(), user,
                                              self.clock.now(), self.kubelet, self._hooks))

    # --- time ---------------------------------------------------------------------------------------------------------

    def on_due(self, wake: Callable[[], None]) -> None:
        """Set the function that the core calls when work is due earlier than `next_wakeup` last returned.

        The core does not hold the lock during the call.
        """
        self._wake = wake

    def _wake_up(self) -> None:
        if self._wake is not None:
            self._wake()

    def _controllers_due(self) -> bool:
        now = self.clock.monotonic()
        for controller in self._controllers:
            due = controller.due()
            if due is not None and due <= now:
                return True
        return False

    def tick(self) -> bool:
        """Do a bounded part of the work that is due now. Afterwards `next_wakeup` returns when more work is due.

        Returns False without doing anything if a tick is already running, either in another thread or in this thread
        (a webhook that the tick calls can call back into the server). The errors of failed steps are raised after all
        other steps are done. A controller whose step failed examines all objects again after a growing delay.
        """
        if not self._ticking.acquire(blocking=False):
            return False
        try:
            self._tick()
        finally:
            self._ticking.release()
        return True

    def _tick(self) -> None:
        now = self.clock.monotonic()
        with self.cluster.locked():
            if self._compaction_interval and now >= self._next_compaction:
                # Like the real server, compact up to the revision that was current one interval ago, so that history
                # reaches back between one and two intervals.
                self.cluster.storage.compact(self._compact_to)
                self._compact_to = self.cluster.storage.rv
                self._next_compaction = now + self._compaction_interval
        failures: list[Exception] = []
        for controller in self._controllers:
            due, again = controller.due(), self._again.get(controller)
            if again is not None and again[0] <= now:
                with self.cluster.locked():
                    controller.look_again(self.cluster)
            elif due is None or due > now:
                continue
            before, failed = self.cluster.turned_away, len(failures)
            try:
                controller.step(self.cluster)
            except Exception as error:  # noqa: BLE001 - a defect in one controller must not stop the others
                failures.append(error)
            self._note_refusals(controller, self.cluster.turned_away - before + len(failures) - failed)
        if failures:
            raise failures[0] if len(failures) == 1 else ExceptionGroup("steps of controllers failed", failures)

    def _note_refusals(self, controller: ControlLoop, count: int) -> None:
        """Have a controller whose step had failures or refusals (`count`) examine all objects after a growing delay."""
        known = self._again.get(controller)
        now = self.clock.monotonic()
        if count:
            delay = min(known[1] * 2, MAX_RETRY) if known else FIRST_RETRY
            self._again[controller] = (now + delay, delay)
        elif known is not None and known[0] <= now:
            del self._again[controller]

    def serve_definitions(self) -> None:
        """Do the work that is due now, until every accepted CRD is served.

        If another thread is running a tick, this function waits for the lock until the running step has ended.
        """
        while True:
            while self.next_wakeup() == 0.0:
                self.tick()
            with self.cluster.locked():
                if self._definitions.due() is None:
                    return

    def compact(self) -> None:
        """Delete the change history: every resourceVersion before the current one expires."""
        with self.cluster.locked():
            self.cluster.storage.compact(self.cluster.storage.rv)

    def next_wakeup(self) -> float | None:
        """When `tick` next has work, in monotonic seconds; None if only a write can cause work."""
        times = [due for controller in self._controllers if (due := controller.due()) is not None]
        times += [when for when, _ in list(self._again.values())]
        if self._compaction_interval:
            times.append(self._next_compaction)
        return min(times, default=None)

    # --- state --------------------------------------------------------------------------------------------------------

    def dump(self) -> Any:
        """The stored objects as an opaque value for `restore`."""
        with self.cluster.locked():
            return self.cluster.storage.dump()

    def restore(self, state: Any, *, rewind: bool = False) -> None:
        """Replace the state with a dumped one. Watches end and older resourceVersions expire.

        The resourceVersion continues from the current one, so that clients notice the restore. With `rewind` the
        resourceVersion goes back too. A watch from a version that now lies in the future then stays silent until the
        server reaches that version.
        """
        with self.cluster.locked():
            self.cluster.storage.load(state, rv=None if rewind else self.cluster.storage.rv + 1)
            for controller in self._controllers:
                controller.start(self.cluster)

    def implant(self, versions: Iterable[tuple[str, Version]]) -> None:
        """Add objects unchanged to the stored objects. `versions` yields pairs (storage key of the type, object).

        Watches end, and resourceVersions before the highest stored one expire.
        """
        with self.cluster.locked():
            rv, buckets = self.cluster.storage.dump()
            for key, version in versions:
                buckets.setdefault(key, {})[version.key] = version
                rv = max(rv, version.rv)
            self.cluster.storage.load((rv, buckets))
            for controller in self._controllers:
                controller.start(self.cluster)


def refusal(request: HttpRequest, error: errors.StatusError) -> HttpResponse:
    status = error.to_status()
    headers = list(error.headers)
    if wants_protobuf_only(request):
        return HttpResponse(error.code, [("Content-Type", PROTOBUF), *headers], protobuf_status(status),
                            delay=error.delay)
    media = error_media(request)
    return HttpResponse(error.code, [("Content-Type", media.content_type), *headers], render(encode(status), media),
                        delay=error.delay)
