"""`ApiServer`: an embedded Kubernetes API server for tests and demos.

    with ApiServer() as server:
        server.load("manifests.yaml")
        client = server.client()

One thread, the `Housekeeper`, drives the core by the clock while the server runs; a simulation drives the core itself.
`load_objects` sends objects through the server's handlers, so that every rule holds for them; `implant_objects` stores
objects of another server and skips all rules.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from weakref import WeakSet

import msgspec

from kubectl_runtime.apiserver.access import ADMIN, Access, AuthorizationMode, Tokens, User, users_by_token
from kubectl_runtime.apiserver.controllers.controller_catalog import build_controllers
from kubectl_runtime.apiserver.core import DEFAULT_COMPACTION, ApiCore, Starting
from kubectl_runtime.apiserver.credentials import Credentials, Issuer, ServerTls, server_tls, write_kubeconfig
from kubectl_runtime.apiserver.kubelet.kubelet import Kubelet
from kubectl_runtime.apiserver.loopback import path_of
from kubectl_runtime.apiserver.storage import FEATURE_GATES, ServedResource, Version, make_version
from kubectl_runtime.apiserver.transport.faults import Faults, Recording
from kubectl_runtime.apiserver.transport.http.connection import GRACE, Listener
from kubectl_runtime.apiserver.transport.webhook_calls import Application, WebhookRouter
from kubectl_runtime.apiserver.wire import HttpRequest, HttpResponse
from kubectl_runtime.certificates.authority import Authority
from kubectl_runtime.core.base.guard import guarded_logger
from kubectl_runtime.core.base.threads import SYSTEM_CLOCK, Clock, Duration, Thread, seconds
from kubectl_runtime.manifests.documents import Manifests, Object, read_objects

if TYPE_CHECKING:
    from kubectl_runtime.apiserver.transport.inprocess import ApiTransport
    from kubectl_runtime.client.api.client import Client
    from kubectl_runtime.client.config.config import Config

log = guarded_logger(__name__)

RETRY = 1.0  # seconds until the next try after a step that failed


class Housekeeper:
    """The thread that calls the core's `tick` for compaction and controllers when they are due. A failed step is
    logged, and the thread goes on: without controllers deletions would never end."""

    def __init__(self, core: ApiCore, clock: Clock, name: str) -> None:
        self._core, self._clock = core, clock
        self._condition = threading.Condition()
        self._stopping = False
        core.on_due(self._wake)
        self._thread = Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _wake(self) -> None:
        with self._condition:
            self._condition.notify_all()

    def stop(self) -> list[str]:
        """End the thread; blocks for at most `GRACE` seconds. Returns its name if it did not end."""
        with self._condition:
            self._stopping = True
            self._condition.notify_all()
        self._thread.join(GRACE)
        return [self._thread.name] if self._thread.is_alive() else []

    def _run(self) -> None:
        while True:
            with self._condition:
                while not self._stopping and (left := self._left()) is not None and left > 0:
                    self._clock.wait(self._condition, left)
                while not self._stopping and self._left() is None:
                    self._clock.wait(self._condition, None)
                if self._stopping:
                    return
            try:
                if not self._core.tick():  # something else also drives the core
                    with self._condition:
                        if not self._stopping:
                            self._clock.wait(self._condition, RETRY)
            except Exception:  # the thread retries: without it no deletion would end
                log.exception("a step of the embedded API server's controllers failed")
                with self._condition:
                    if not self._stopping:
                        self._clock.wait(self._condition, RETRY)

    def _left(self) -> float | None:
        """Seconds until the core has work; None if there is none until the next write."""
        due = self._core.next_wakeup()
        return None if due is None else due - self._clock.monotonic()


def _gates_on(given: Mapping[str, bool]) -> frozenset[str]:
    """The enabled feature gates. Raises ValueError for an unknown gate, and for a value that is not a boolean."""
    for name, on in given.items():
        if name not in FEATURE_GATES:
            raise ValueError(f"unrecognized feature gate: {name} (there is {', '.join(FEATURE_GATES)})")
        if not isinstance(on, bool):
            raise ValueError(f"the feature gate {name} must be True or False, not {on!r}")
    return frozenset(name for name, on in {**FEATURE_GATES, **given}.items() if on)


_CRD = "CustomResourceDefinition"


def load_objects(core: ApiCore, manifests: Manifests) -> int:
    """Load everything; returns the number of objects.

    Creates missing Namespaces, waits until a CRD is established before it goes on, replaces existing objects, and
    writes a status through /status. Raises ValueError that names the refused object and its document (objects before it
    stay loaded), and OSError.
    """
    count = 0
    for obj, place in read_objects(manifests):
        _load(core, obj, place)
        count += 1
    return count


def _load(core: ApiCore, obj: Object, place: str) -> None:
    api_version, kind, metadata = obj.get("apiVersion") or "", obj.get("kind") or "", obj.get("metadata") or {}
    if not (isinstance(api_version, str) and isinstance(kind, str) and isinstance(metadata, dict)):
        raise ValueError(f"{place} is not a Kubernetes object: apiVersion and kind must be texts, metadata a mapping")
    name = metadata.get("name") or metadata.get("generateName") or ""
    if missing := [field for field, value in (("apiVersion", api_version), ("kind", kind)) if not value]:
        raise ValueError(f"cannot load {kind or 'the object'} {name!r} ({place}): it has no {' and no '.join(missing)}")
    group, _, version = api_version.rpartition("/")
    resource_type = core.cluster.registry.by_kind(group, version, kind)
    if resource_type is None:
        raise ValueError(f"cannot load {kind} {name!r} ({place}): the server does not serve {kind!r} of "
                         f"{api_version!r}; load its CustomResourceDefinition first")
    namespace = str(metadata.get("namespace") or "default") if resource_type.namespaced else ""
    title = f"{kind} {namespace + '/' if namespace else ''}{name} ({place})"
    if namespace and core.cluster.storage.get("/namespaces", "", namespace) is None:
        _check(title, _send(core, "POST", "/api/v1/namespaces",
                            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}))
    response = _send(core, "POST", path_of(resource_type, namespace), obj)
    if response.status == 409 and metadata.get("name"):
        response = _replace(core, resource_type, namespace, obj)
    _check(title, response)
    if obj.get("status") and resource_type.subresource("status") and kind != _CRD:  # the server writes that of a CRD
        stored = msgspec.json.decode(response.body)["metadata"]["name"]
        path = path_of(resource_type, namespace, stored, "status")
        _check(title, _send(core, "PATCH", path, {"status": obj["status"]}))
    if core.next_wakeup() == 0.0:
        _settle(core, kind)


def _check(title: str, response: HttpResponse) -> None:
    if response.status >= 300:
        raise ValueError(f"cannot load {title}: {msgspec.json.decode(response.body).get('message', '')}")


def _settle(core: ApiCore, kind: str) -> None:
    """Wait until the CRD that was just loaded is served."""
    if kind != _CRD:
        return
    while core.next_wakeup() == 0.0:
        core.tick()


def _replace(core: ApiCore, resource_type: ServedResource, namespace: str, obj: Object) -> HttpResponse:
    path = path_of(resource_type, namespace, obj["metadata"]["name"])
    current = msgspec.json.decode(_send(core, "GET", path).body)
    metadata = {**obj["metadata"], "resourceVersion": current.get("metadata", {}).get("resourceVersion")}
    return _send(core, "PUT", path, {**obj, "metadata": metadata})


def _send(core: ApiCore, method: str, path: str, body: Object | None = None) -> HttpResponse:
    media = "application/merge-patch+json" if method == "PATCH" else "application/json"
    return core.handle(HttpRequest(method, path, [("fieldValidation", "Ignore")], {
        "user-agent": "load", "content-type": media}, msgspec.json.encode(body) if body is not None else b""),
        user=ADMIN)


def implant_objects(core: ApiCore, manifests: Manifests) -> int:
    """Store objects exactly as they were read from another server, definitions first; returns how many.

    Their uid, resourceVersion, generation, managedFields, timestamps and status stay. Nothing is admitted, defaulted,
    validated or converted: a custom resource counts as stored in the version in which it is given. Objects without a
    resourceVersion get one above all others, objects without a uid a new one. Raises ValueError that names an object
    that cannot be stored, before it stores anything.
    """
    found = list(read_objects(manifests))
    first = [(obj, place) for obj, place in found if obj.get("kind") == _CRD]
    before = core.dump()
    try:
        core.implant(_as_read(core, first))
        core.implant(_as_read(core, [(obj, place) for obj, place in found if obj.get("kind") != _CRD]))
    except ValueError:
        core.restore(before)
        raise
    return len(found)


def _as_read(core: ApiCore, objects: list[tuple[Object, str]]) -> list[tuple[str, Version]]:
    with core.cluster.locked():
        highest = max([core.cluster.storage.rv, *(_version_of(obj, place) for obj, place in objects)])
        versions: dict[tuple[str, str], tuple[str, Version]] = {}
        for obj, place in objects:
            rv = _version_of(obj, place)
            if not rv:
                highest = rv = highest + 1
            key, version = _stored(core, obj, place, rv)
            if (key, version.key) in versions:
                raise ValueError(f"{_title(obj, place)} occurs twice")
            versions[key, version.key] = key, version
        return list(versions.values())


def _stored(core: ApiCore, obj: Object, place: str, rv: int) -> tuple[str, Version]:
    """The storage key of an object's type, and the object as a version."""
    title, metadata = _title(obj, place), dict(obj["metadata"])
    group, _, version = str(obj.get("apiVersion") or "").rpartition("/")
    resource_type = core.cluster.registry.by_kind(group, version, str(obj.get("kind")))
    if resource_type is None:
        raise ValueError(f"{title}: the server does not serve {obj.get('kind')!r} of {obj.get('apiVersion')!r}")
    if bool(metadata.get("namespace")) != resource_type.namespaced:
        raise ValueError(f"{title} {'has no' if resource_type.namespaced else 'cannot have a'} namespace")
    metadata.setdefault("uid", core.cluster.new_uid())
    strategy, whole = resource_type.strategy, {**obj, "metadata": metadata}
    if strategy.converts and not resource_type.is_custom:
        whole = strategy.to_storage(whole, version)
    stored_as = version if resource_type.is_custom else ""
    return resource_type.storage, make_version(whole, rv, strategy.selectable_fields(whole), stored_as)


def _title(obj: Object, place: str) -> str:
    metadata = obj.get("metadata")
    if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str) or not metadata["name"]:
        raise ValueError(f"cannot implant {obj.get('kind') or 'an object'} ({place}): it has no name")
    where = f"{metadata['namespace']}/" if metadata.get("namespace") else ""
    return f"cannot implant {obj.get('kind')} {where}{metadata['name']} ({place})"


def _version_of(obj: Object, place: str) -> int:
    """The object's resourceVersion, 0 for none."""
    title = _title(obj, place)
    text = obj["metadata"].get("resourceVersion") or "0"
    if not (isinstance(text, str) and text.isascii() and text.isdigit()):
        raise ValueError(f"{title}: its resourceVersion {text!r} is not a number")
    return int(text)


DEFAULT_CONTROLLERS = ("garbage-collector", "namespace", "persistentvolumeclaim-protection",
                       "persistentvolume-protection", "resourcequota")


class ApiServer:
    """A Kubernetes API server in this process, which serves HTTP on loopback from `start` to `stop`, or inside a `with`
    block.

    `server.client()` is a client for it; `server.write_kubeconfig(path)` gives access to kubectl and other programs.
    The data live as long as the object: `restart` keeps them by default, and `snapshot`/`restore` go back to a state.
    Safe to use from any thread; call `start`, `stop` and `restart` from one thread at a time.
    """

    def __init__(self, *, port: int = 0, host: str = "127.0.0.1", clock: Clock = SYSTEM_CLOCK,
                 controllers: Iterable[str] = DEFAULT_CONTROLLERS, compaction_interval: float = DEFAULT_COMPACTION,
                 tokens: Tokens | None = None, authorization_mode: AuthorizationMode | str = "AlwaysAllow",
                 anonymous: bool | None = None, tls: bool | Authority | ServerTls = False, faults: Faults | None = None,
                 webhook_services: Mapping[str, str] | None = None, seed: int | None = None,
                 record: bool = True, warn_unobeyed: bool = True,
                 feature_gates: Mapping[str, bool] | None = None, first_create_delay: Duration = 0) -> None:
        """Nothing is started or bound yet.

        `port` 0 takes a free port, which restarts keep. `controllers` is a list of ``garbage-collector``,
        ``namespace``, ``persistentvolumeclaim-protection``, ``persistentvolume-protection`` (without these four
        deletions do not end), ``resourcequota`` (these five are the default), ``disruption``,
        ``persistentvolume-binder``, ``serviceaccount``, ``deployment``, ``replicaset``, ``statefulset``, ``daemonset``,
        ``job``, ``cronjob``, ``endpoint``, ``endpointslice``, ``kubelet`` (Pods run, as `kubelet.rules` say),
        ``node-lifecycle`` (taints of Nodes that are not ready), ``ttl-after-finished``,
        ``root-ca-certificate-publisher``; ``*`` for all. `compaction_interval` is in seconds on the clock; history
        reaches back between one and two intervals, with 0 to version 1. `seed` makes uids, generated names and the
        server's own faults reproducible. `record` keeps requests for `requests`. With `warn_unobeyed` the creation of
        an object that the server stores and does not act on gets a Warning header. `feature_gates` are those of a
        kube-apiserver; the only one is ``ShardedListAndWatch`` (off by default), with which lists and watches obey
        ``shardSelector``.
        `first_create_delay` is the time in seconds for which a create of a custom resource waits, if its definition was
        established less than that time ago; a kube-apiserver waits 2 s.

        `tokens` are the users by bearer token (a `User` or a name), or the path of a token file; without tokens and
        RBAC every client is an administrator. `authorization_mode` "RBAC" enforces the Roles and bindings in the
        server; its own clients and kubeconfigs are then ``system:masters``. `anonymous` admits requests without
        credentials (see `Access`). `tls` serves HTTPS, with an authority of its own or the given one, and accepts
        client certificates. `faults` is the fault script, by default an empty one.

        Webhooks (admission, conversion) are called as their configurations say: at a URL, or in process where
        `mount_webhook` has an application. The server runs nothing behind a Service, so `webhook_services` gives the
        address: ``{"namespace/name": "https://127.0.0.1:9443"}``.

        Raises ValueError for an unknown mode, controller or feature gate, an invalid host or port and an invalid
        webhook address, TokenFileError, and MissingExtra.
        """
        if not host:
            raise ValueError("the host is empty, which would be every network: use 127.0.0.1, or 0.0.0.0 for all")
        if not 0 <= port < 1 << 16:
            raise ValueError(f"the port must be a number from 0 to 65535, not {port}")
        gates = _gates_on(feature_gates or {})
        self._host, self._port = host, port
        self.clock = clock
        self.access = Access(tokens=users_by_token(tokens), mode=authorization_mode, anonymous=anonymous)
        self.tls = server_tls(tls, host)
        """The TLS side of the server, with its authority; None if it serves plain HTTP."""
        self.faults = faults if faults is not None else Faults(seed=seed or 0)
        """The fault script; rules can be added at any time."""
        self.kubelet = Kubelet(clock)
        """Decides how Pods run, and answers their logs, exec and attach; see `Kubelet`."""
        self.requests = Recording(clock) if record else Recording(clock, max_requests=0)
        """The requests so far in order of arrival, without those of controllers; see `Recording`."""
        if isinstance(controllers, str):
            raise ValueError(f"controllers must be a list of names such as [{controllers!r}], not a single text")
        self._webhooks = WebhookRouter(clock, webhook_services or {}, self._has_service)
        certificate, names = self.tls.authority.pem.decode() if self.tls else "", tuple(controllers)
        self._new_core: Callable[[], ApiCore] = lambda: ApiCore(
            clock, compaction_interval=compaction_interval, access=self.access, kubelet=self.kubelet, seed=seed,
            warn_unobeyed=warn_unobeyed, gates=gates, first_create_delay=seconds(first_create_delay),
            webhooks=self._webhooks,
            controllers=build_controllers(names, certificate=certificate, kubelet=self.kubelet))
        self.core = self._new_core()
        self.faults.bind(clock, self.expire_history, self._plural_of)
        self._issuer = Issuer(self.access, self.tls)
        self._listener: Listener | None = None
        self._was_started = False
        self._transports: WeakSet[ApiTransport] = WeakSet()
        self._housekeeper: Housekeeper | None = None

    # --- life ------------------------------------------------------------------------------------------------------

    def start(self) -> Self:
        """Bind and serve from background threads. Returns the server at once.

        Raises OSError if the port is taken, RuntimeError if the server is running.
        """
        if self._listener is not None:
            raise RuntimeError("the API server is already running")
        listener = Listener(self.core.handle, clock=self.clock, host=self._host, port=self._port, faults=self.faults,
                            recording=self.requests, tls=self.tls)
        self._port = listener.port
        self._housekeeper = Housekeeper(self.core, self.clock, f"apiserver-{listener.port}-housekeeper")
        self._listener, self._was_started = listener, True
        listener.start()
        return self

    def stop(self) -> None:
        """End all connections and threads; the data stay. Does nothing if the server is not running.

        Blocks until they have ended: idle connections and watches end at once; an answer under way gets 5 s, and 5 s
        more after its connection is broken off. Raises RuntimeError that names the threads which still run then (for
        example a function of the fault script that blocks).
        """
        listener, self._listener = self._listener, None
        if listener is None:
            return
        housekeeper, self._housekeeper = self._housekeeper, None
        with self._webhooks.closed():
            stuck = listener.stop()
            if housekeeper is not None:
                stuck += housekeeper.stop()
        if stuck:
            raise RuntimeError(f"threads of the API server did not end: {', '.join(stuck)}")

    def restart(self, *, fresh: bool = False, lose_history: bool = False, initializing: Duration = 0,
                loading_roles: Duration = 0) -> None:
        """Stop and start on the same port, with the same data or, if `fresh`, as a new cluster (new uids, low
        versions). Blocks and raises like `stop` and `start`; clients are refused until it is back. Watches of
        transports end too. A server that was never started, and is used only through transports, binds nothing.

        A kube-apiserver that restarts loses its history, so that watches from earlier versions expire (410);
        `lose_history` does the same here. For `initializing` seconds on the clock the server then answers as a
        kube-apiserver that is not ready: 503 for the first half, then 429 to lists and watches. For `loading_roles`
        seconds (about one on a kube-apiserver) a server with RBAC refuses every user outside ``system:masters`` with a
        403, as if it had not read its Roles and bindings yet.
        """
        self.stop()
        if fresh:
            self.core = self._new_core()
        if lose_history:
            self.core.compact()
        self.core.starting = Starting(self.clock, seconds(initializing)) if seconds(initializing) > 0 else None
        self.access.load_roles(seconds(loading_roles))
        for transport in list(self._transports):
            transport.end_watches(broken=False)
        if self._was_started:
            self.start()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *exc: object) -> None:
        self.stop()

    # --- how to reach it -------------------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        """The server's address, ``http://127.0.0.1:PORT``. Raises RuntimeError before the first start."""
        if not self._port:
            raise RuntimeError("the API server has no address before it is started: use it as a context manager")
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{'https' if self.tls else 'http'}://{host}:{self._port}"

    def credentials(self, user: str | User | None = None, *, certificate: bool = False) -> Credentials:
        """The credentials of a user, by default an administrator: a token, or with `certificate` a client certificate.

        A server with TLS and without tokens issues certificates. The name of a service account
        (``system:serviceaccount:NAMESPACE:NAME``) gets its groups. Raises ValueError if the server cannot distinguish
        users.
        """
        return self._issuer.credentials(user, certificate=certificate)

    def config(self, user: str | User | None = None, *, certificate: bool = False, timeout: Duration = 60) -> Config:
        """The address of the server and credentials of an administrator or of `user`, for a `Client` with other
        arguments than `client` has: `Client(server.config(), layers=[...])`.

        `timeout` is the deadline of each call (see `Config`); a short one suits a server whose faults never answer.
        Raises ValueError like `credentials`, RuntimeError before the first start.
        """
        from kubectl_runtime.client.config.config import Config  # the server works without it

        shown = self.credentials(user, certificate=certificate)
        own = shown.certificate
        return Config(cluster_url=self.url, timeout=timeout, ca_data=shown.ca or None, token=shown.token or None,
                      client_certificate_data=own.certificate if own else None,
                      client_key_data=own.key if own else None, origin="ApiServer.config()")

    def client(self, user: str | User | None = None, *, certificate: bool = False, timeout: Duration = 60) -> Client:
        """A client of this library with the `config` of these arguments; the caller closes it."""
        from kubectl_runtime.client.api.client import Client  # the server works without it

        return Client(self.config(user, certificate=certificate, timeout=timeout))

    def write_kubeconfig(self, path: str | Path, user: str | User | None = None, *, certificate: bool = False) -> Path:
        """Write a kubeconfig that kubectl and every client library can use; returns the path.

        The file embeds everything, is readable by its owner only, and holds the credentials of an administrator or of
        `user`. kubectl and other Go clients send credentials over HTTPS only: for them a server that distinguishes
        users needs `tls`. Raises ValueError like `credentials`, RuntimeError before the first start, and OSError.
        """
        target = Path(path)
        write_kubeconfig(target, self.url, self.credentials(user, certificate=certificate))
        return target

    def transport(self) -> ApiTransport:
        """A `requests` adapter over the same data without sockets and threads, for simulation."""
        from kubectl_runtime.apiserver.transport.inprocess import ApiTransport  # imported here, since it loads requests

        transport = ApiTransport(self)
        self._transports.add(transport)
        return transport

    def mount_webhook(self, url_prefix: str, application: Application) -> None:
        """Let a WSGI application answer the webhooks at a URL and below, in process, without a socket or certificates:
        ``https://hooks.test``, or ``https://NAME.NAMESPACE.svc`` for the webhooks of a Service.

        The application is called in the thread of the request, may use the server, and runs to its end; an answer after
        the webhook's timeout, on the server's clock, comes too late. The longest matching prefix wins. Raises
        ValueError for an invalid prefix.
        """
        self._webhooks.mount(url_prefix, application)

    # --- data ------------------------------------------------------------------------------------------------------

    def load(self, manifests: Manifests) -> int:
        """Create or replace objects from YAML text, a path to a file or folder, dicts or resources; returns how many.

        A text of one line counts as a path if such a file exists. Missing Namespaces are created, a CRD is established
        before the objects after it, and a status is written through /status. The server need not run. Blocks until all
        is loaded; other requests are served between two objects. Raises ValueError that names the object which the
        server refused; the objects before it stay.
        """
        return load_objects(self.core, manifests)

    def implant(self, objects: Manifests) -> int:
        """Store objects exactly as they were read from another server, beside the stored ones; returns how many.

        In contrast to `load` nothing is admitted, defaulted, validated or renewed: uid, resourceVersion, generation,
        managedFields, timestamps and status stay as they are. Definitions are stored first, wherever they stand. New
        writes get resourceVersions above all of them. An object with the same name is replaced. The server's
        controllers then look at everything. Times in the objects may lie in the past or the future of this server's
        clock: `SimClock(start=...)` sets the clock to the moment of the reading.

        Watches end, and earlier resourceVersions expire. The server need not run. Raises ValueError that names an
        object that cannot be stored (its kind is not served, or it occurs twice); nothing is stored then.

        >>> obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "old", "namespace": "default",
        ...        "uid": "5c0b", "resourceVersion": "123456", "generation": 3}}
        >>> server.implant([obj])
        1
        >>> Api.namespaced(server.client(), ConfigMap, "default").get("old").resource_version
        '123456'
        """
        return implant_objects(self.core, objects)

    def snapshot(self) -> Any:
        """The present state, opaque, for `restore` of this or another server; cheap, since stored objects never change.
        """
        return self.core.dump()

    def restore(self, state: Any, *, rewind: bool = False) -> None:
        """Go back to a snapshot: watches end, earlier resourceVersions expire.

        The resourceVersion goes on, as after a careful restore of etcd. With `rewind` it goes back too, as after a
        careless restore: the server accepts a watch from a version of the future and sends it nothing, not even a
        bookmark, until it reaches that version.
        """
        self.core.restore(state, rewind=rewind)

    def expire_history(self) -> None:
        """Forget all changes so far: older resourceVersions and continue tokens expire (410).

        Watches go on, except watches that have not read their last changes yet.
        """
        self.core.compact()

    def _has_service(self, key: str) -> bool:
        namespace, _, name = key.partition("/")
        with self.core.cluster.locked():
            return self.core.cluster.storage.get("/services", namespace, name) is not None

    def _plural_of(self, name: str) -> str | None:
        return self.core.cluster.registry.plural_of(name)

    def drop_connections(self) -> None:
        """Break all connections, as a failing network does; new ones are accepted."""
        if self._listener is not None:
            self._listener.drop_connections()
        for transport in list(self._transports):
            transport.end_watches(broken=True)

    def handle(self, request: HttpRequest) -> HttpResponse:
        """Answer a request without HTTP and without faults."""
        entry = self.requests.add(request)
        response = self.core.handle(request)
        self.requests.answered(entry, response.status)
        return response
