"""`ApiServer`: an embedded Kubernetes API server for tests and demos.

    with ApiServer() as server:
        server.load("manifests.yaml")
        client = server.client()

While the server runs, the `Housekeeper` thread calls the core when work is due on the clock; a simulation calls the
core itself. `load_objects` sends objects through the server's handlers, so that all rules apply; `implant_objects`
stores objects of another server and skips all rules.
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

RETRY = 1.0  # seconds until the next try after a failed step


class Housekeeper:
    """The thread that calls the core's `tick` when compaction or controllers are due.

    A failed step is logged and the thread continues, since deletions would never finish without the controllers.
    """

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
        """End the thread. Blocks for at most `GRACE` seconds and returns the thread's name if it is still alive."""
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
                if not self._core.tick():  # another caller is running a tick
                    with self._condition:
                        if not self._stopping:
                            self._clock.wait(self._condition, RETRY)
            except Exception:  # the thread retries: without the controllers no deletion would finish
                log.exception("a step of the embedded API server's controllers failed")
                with self._condition:
                    if not self._stopping:
                        self._clock.wait(self._condition, RETRY)

    def _left(self) -> float | None:
        """Seconds until the core has work; None if only a write can cause work."""
        due = self._core.next_wakeup()
        return None if due is None else due - self._clock.monotonic()


def _gates_on(given: Mapping[str, bool]) -> frozenset[str]:
    """The enabled feature gates. Raises ValueError for an unknown gate, and for a value that is not a boolean."""
    for name, on in given.items():
        if name not in FEATURE_GATES:
            raise ValueError(f"unrecognized feature gate: {name} (known: {', '.join(FEATURE_GATES)})")
        if not isinstance(on, bool):
            raise ValueError(f"the feature gate {name} must be True or False, not {on!r}")
    return frozenset(name for name, on in {**FEATURE_GATES, **given}.items() if on)


_CRD = "CustomResourceDefinition"


def load_objects(core: ApiCore, manifests: Manifests) -> int:
    """Create or replace all objects. Returns their number.

    Creates missing Namespaces, waits after each CRD until its resources are served, and writes a status through
    /status. Raises OSError, or a ValueError that names the refused object and its document; earlier objects stay.
    """
    count = 0
    for obj, place in read_objects(manifests):
        _load(core, obj, place)
        count += 1
    return count


def _load(core: ApiCore, obj: Object, place: str) -> None:
    api_version, kind, metadata = obj.get("apiVersion") or "", obj.get("kind") or "", obj.get("metadata") or {}
    if not (isinstance(api_version, str) and isinstance(kind, str) and isinstance(metadata, dict)):
        raise ValueError(f"{place} is not a Kubernetes object: apiVersion and kind must be strings, metadata a mapping")
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
    if obj.get("status") and resource_type.subresource("status") and kind != _CRD:  # the server writes a CRD's status
        stored = msgspec.json.decode(response.body)["metadata"]["name"]
        path = path_of(resource_type, namespace, stored, "status")
        _check(title, _send(core, "PATCH", path, {"status": obj["status"]}))
    if kind == _CRD:
        core.serve_definitions()


def _check(title: str, response: HttpResponse) -> None:
    if response.status >= 300:
        raise ValueError(f"cannot load {title}: {msgspec.json.decode(response.body).get('message', '')}")


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
    """Store objects exactly as they were read from another server, CRDs first. Returns their number.

    Their uid, resourceVersion, generation, managedFields, timestamps and status stay. Nothing is admitted, defaulted,
    validated or converted: a custom resource counts as stored in the version of the given object. Objects without a
    resourceVersion get one above all others; objects without a uid get a new uid. Raises ValueError that names an
    object that cannot be stored; in this case nothing is stored.
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
    """The storage key of an object's type, and the object as a `Version`."""
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
    """A Kubernetes API server in this process. It serves HTTP on loopback from `start` to `stop` or in a `with` block.

    `server.client()` returns a client; `server.write_kubeconfig(path)` gives access to kubectl and other programs.
    The data live as long as the `ApiServer`: `restart` keeps them by default, and `restore` goes back to a `snapshot`.
    Safe to use from any thread; call `start`, `stop` and `restart` from one thread at a time.
    """

    def __init__(self, *, port: int = 0, host: str = "127.0.0.1", clock: Clock = SYSTEM_CLOCK,
                 controllers: Iterable[str] = DEFAULT_CONTROLLERS, compaction_interval: float = DEFAULT_COMPACTION,
                 tokens: Tokens | None = None, authorization_mode: AuthorizationMode | str = "AlwaysAllow",
                 anonymous: bool | None = None, tls: bool | Authority | ServerTls = False, faults: Faults | None = None,
                 webhook_services: Mapping[str, str] | None = None, seed: int | None = None,
                 record: bool = True, warn_unobeyed: bool = True,
                 feature_gates: Mapping[str, bool] | None = None, first_create_delay: Duration = 0) -> None:
        """The constructor starts no thread and binds no port.

        `port` 0 takes a free port, which restarts keep. `controllers` names the controllers to run; ``["*"]`` runs all.
        The default is ``garbage-collector``, ``namespace``, ``persistentvolumeclaim-protection``,
        ``persistentvolume-protection`` (without these four, deletions do not finish) and ``resourcequota``. The others
        are ``disruption``, ``persistentvolume-binder``, ``serviceaccount``, ``deployment``, ``replicaset``,
        ``statefulset``, ``daemonset``, ``job``, ``cronjob``, ``endpoint``, ``endpointslice``, ``kubelet`` (runs Pods by
        `kubelet.rules`), ``node-lifecycle`` (taints Nodes that are not ready), ``ttl-after-finished``,
        ``clusterrole-aggregation`` and ``root-ca-certificate-publisher``.

        `compaction_interval` is in seconds on the clock. History reaches back between one and two intervals, or to
        version 1 if the interval is 0. `seed` makes uids, generated names and the server's own faults reproducible.
        With `record`, `requests` contains the received requests. With `warn_unobeyed`, creating an object that the
        server stores but does not act on returns a Warning header. `feature_gates` maps names of a kube-apiserver's
        feature gates to booleans. The only supported gate is ``ShardedListAndWatch`` (off by default), with which lists
        and watches obey ``shardSelector``. If a custom resource's CRD was established less than `first_create_delay`
        seconds ago, the answer to a create is delayed by `first_create_delay` seconds; a kube-apiserver waits 2 s.

        `tokens` maps bearer tokens to users (a `User` or a name), or is the path of a token file. Without tokens and
        RBAC every client is an administrator. `authorization_mode` "RBAC" enforces the Roles and bindings in the
        server; the server's own clients and kubeconfigs then belong to ``system:masters``. `anonymous` admits requests
        without credentials (see `Access`). With `tls` the server serves HTTPS and accepts client certificates; `tls` is
        an `Authority`, a `ServerTls`, or True for a new authority. `faults` is the fault script, by default an empty
        one.

        Webhooks (admission, conversion) are called at the URL in their configuration, or in process if `mount_webhook`
        has an application for that URL. The server runs nothing behind a Service, so `webhook_services` must map each
        webhook's Service to an address: ``{"namespace/name": "https://127.0.0.1:9443"}``.

        Raises ValueError for an unknown mode, controller or feature gate, for an invalid host or port, and for an
        invalid webhook address. Raises TokenFileError and MissingExtra.
        """
        if not host:
            raise ValueError("the host must not be empty: use 127.0.0.1, or 0.0.0.0 to listen on all interfaces")
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
        """Decides how Pods run, and serves their logs, exec and attach; see `Kubelet`."""
        self.requests = Recording(clock) if record else Recording(clock, max_requests=0)
        """The requests so far in order of arrival, without requests of controllers; see `Recording`."""
        if isinstance(controllers, str):
            raise ValueError(f"controllers must be a list of names such as [{controllers!r}], not a single string")
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
        """Bind the port and serve from background threads. Returns the server at once.

        Raises OSError if the port is taken, RuntimeError if the server is already running.
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

        Blocks until all have ended. Idle connections and watches end at once. A request in progress has 5 s to finish;
        after that its connection is broken, and its thread has another 5 s to end. Raises RuntimeError with the names
        of the threads that still run after this time (for example because a function of the fault script blocks).
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
        """Stop and start on the same port, with the same data or as a `fresh` cluster (new uids, low versions).

        Blocks and raises like `stop` and `start`; connections are refused until the server is back. Watches through
        `transport()` end too. A server that is used only through transports, and was never started, binds nothing.

        A kube-apiserver that restarts loses its history, so that watches from earlier versions expire (410);
        `lose_history` does the same here. For `initializing` seconds on the clock the restarted server answers like a
        kube-apiserver that is not ready: 503 for the first half, then 429 to lists and watches. For `loading_roles`
        seconds (about one on a kube-apiserver) a server with RBAC answers 403 to every user outside ``system:masters``,
        as if it had not read its Roles and bindings yet.
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

    # --- access for clients -------------------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        """The server's address, ``http://127.0.0.1:PORT``. Raises RuntimeError before the first start."""
        if not self._port:
            raise RuntimeError("the API server has no address before it is started: use it as a context manager")
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{'https' if self.tls else 'http'}://{host}:{self._port}"

    def credentials(self, user: str | User | None = None, *, certificate: bool = False) -> Credentials:
        """The credentials of a user, by default an administrator: a token, or with `certificate` a client certificate.

        If the server has TLS and no tokens, named users always get certificates. A service account's name
        (``system:serviceaccount:NAMESPACE:NAME``) implies the groups of service accounts. Raises ValueError if the
        server cannot distinguish users.
        """
        return self._issuer.credentials(user, certificate=certificate)

    def config(self, user: str | User | None = None, *, certificate: bool = False, timeout: Duration = 60) -> Config:
        """The server's address with the credentials of `user` or an administrator.

        Use it for a `Client` with arguments that `client` does not take: `Client(server.config(), layers=[...])`.
        `timeout` is the deadline of each call (see `Config`). Use a short timeout if faults leave requests unanswered.
        Raises ValueError like `credentials`, RuntimeError before the first start.
        """
        from kubectl_runtime.client.config.config import Config  # imported here, since only clients need it

        shown = self.credentials(user, certificate=certificate)
        own = shown.certificate
        return Config(cluster_url=self.url, timeout=timeout, ca_data=shown.ca or None, token=shown.token or None,
                      client_certificate_data=own.certificate if own else None,
                      client_key_data=own.key if own else None, origin="ApiServer.config()")

    def client(self, user: str | User | None = None, *, certificate: bool = False, timeout: Duration = 60,
               clock: Clock = SYSTEM_CLOCK) -> Client:
        """A client of this library that uses the `config` for these arguments. The caller must close the client.

        The client works on real time, even if the server has another clock. With `clock`, such as `server.clock`, the
        client and its controllers work on that clock: requeues, retries and timeouts pass when a test moves the clock.
        """
        from kubectl_runtime.client.api.client import Client  # imported here, since only clients need it

        return Client(self.config(user, certificate=certificate, timeout=timeout), clock=clock)

    def write_kubeconfig(self, path: str | Path, user: str | User | None = None, *, certificate: bool = False) -> Path:
        """Write a kubeconfig that kubectl and every client library can use. Returns the path.

        The file embeds everything and contains the credentials of `user` or an administrator; only its owner can read
        it. kubectl and other Go clients send credentials only over HTTPS, so if the server distinguishes users, these
        clients need a server with `tls`.

        Raises ValueError like `credentials`, RuntimeError before the first start, and OSError.
        """
        target = Path(path)
        write_kubeconfig(target, self.url, self.credentials(user, certificate=certificate))
        return target

    def transport(self) -> ApiTransport:
        """A `requests` adapter that calls this server directly, without sockets and threads, for simulation."""
        from kubectl_runtime.apiserver.transport.inprocess import ApiTransport  # imported here, since it loads requests

        transport = ApiTransport(self)
        self._transports.add(transport)
        return transport

    def mount_webhook(self, url_prefix: str, application: Application) -> None:
        """Let a WSGI application answer webhook calls to a URL prefix, in process, without a socket or certificates.

        The prefix is a URL such as ``https://hooks.test``, or ``https://NAME.NAMESPACE.svc`` for webhooks behind a
        Service. The application runs in the request's thread, may use the server, and is never interrupted. An answer
        after the webhook's timeout on the server's clock is too late. The longest matching prefix wins. Raises
        ValueError for an invalid prefix.
        """
        self._webhooks.mount(url_prefix, application)

    # --- data ------------------------------------------------------------------------------------------------------

    def load(self, manifests: Manifests) -> int:
        """Create or replace objects from YAML text, a file or folder path, dicts or resources. Returns their number.

        A one-line string counts as a path if such a file exists. Missing Namespaces are created, a CRD is established
        before the objects that follow it, and a status is written through /status. The server need not be running.
        Blocks until all objects are loaded; other requests are served between two objects. Raises a ValueError that
        names the object that the server refused; objects that were loaded before it stay.
        """
        return load_objects(self.core, manifests)

    def implant(self, objects: Manifests) -> int:
        """Add objects exactly as they were read from another server to the stored objects. Returns their number.

        Unlike `load`, this admits, defaults, validates and renews nothing: uid, resourceVersion, generation,
        managedFields, timestamps and status stay as they are. CRDs are stored first, wherever they occur. An object
        with the same name is replaced. New writes get resourceVersions above those of all objects. Afterwards the
        server's controllers examine all objects. Times in the objects may be in the past or the future of this server's
        clock: `SimClock(start=...)` sets the clock to the moment when the objects were read.

        Watches end, and earlier resourceVersions expire. The server need not be running. Raises ValueError that names
        an object that cannot be stored (its kind is not served, or it occurs twice); in this case nothing is stored.

        >>> obj = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "old", "namespace": "default",
        ...        "uid": "5c0b", "resourceVersion": "123456", "generation": 3}}
        >>> server.implant([obj])
        1
        >>> Api.namespaced(server.client(), ConfigMap, "default").get("old").resource_version
        '123456'
        """
        return implant_objects(self.core, objects)

    def snapshot(self) -> Any:
        """The current state as an opaque value for `restore` on this or another server.

        A snapshot is cheap, since stored objects never change.
        """
        return self.core.dump()

    def restore(self, state: Any, *, rewind: bool = False) -> None:
        """Go back to a snapshot. Watches end, and earlier resourceVersions expire.

        The resourceVersion continues to rise, as after a careful restore of etcd. With `rewind` it goes back too, as
        after a careless restore. The server then accepts a watch from a future version and sends it nothing, not even a
        bookmark, until the server reaches that version.
        """
        self.core.restore(state, rewind=rewind)

    def expire_history(self) -> None:
        """Forget all changes so far: older resourceVersions and continue tokens expire (410).

        Watches continue, except watches that have not yet read all changes.
        """
        self.core.compact()

    def _has_service(self, key: str) -> bool:
        namespace, _, name = key.partition("/")
        with self.core.cluster.locked():
            return self.core.cluster.storage.get("/services", namespace, name) is not None

    def _plural_of(self, name: str) -> str | None:
        return self.core.cluster.registry.plural_of(name)

    def drop_connections(self) -> None:
        """Break all connections like a failing network; new connections are accepted."""
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
