"""`Manager`: several controllers and functions in one process, started, stopped and elected together.

    manager = Manager(client, leader=LeaderElection("shop-operator"), serve=":8080")
    manager.add(Controller(Api.all(client, Shop)).owns(Api.all(client, Deployment)), ReconcileShop())
    manager.add_runnable(report_usage, "usage")
    manager.add_check("database", database.ping)
    manager.run()                                    # until SIGINT, SIGTERM, a failure, or the loss of the Lease

The module `running` describes the order of start and stop. `ManagerView` provides a manager's state for `/readyz` and
the status page. `ManagerDefaults` holds values for arguments that a program leaves out, so that the command line can
configure a manager that the program makes. The values apply to managers made inside a `manager_defaults` block.
"""
from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar, overload

from kubectl_runtime.client.api.client import Client
from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.base.guard import check_callback
from kubectl_runtime.core.base.threads import Duration, duration_of
from kubectl_runtime.core.requests.params import check_flag
from kubectl_runtime.core.scope import StopToken
from kubectl_runtime.manager.elector import LeaderLock, elect
from kubectl_runtime.manager.leases import LeaderElection
from kubectl_runtime.manager.members import ControllerMember, Member, RunnableMember
from kubectl_runtime.manager.running import RunningManager
from kubectl_runtime.manager.serving import (
    CONTROLLER,
    ELECTION,
    MANAGER,
    SERVERS,
    SHARDING,
    Checks,
    Server,
    expect_ready,
    metrics_of,
    server_for,
)
from kubectl_runtime.manager.sharding import Sharding, check_divisible
from kubectl_runtime.runtime.controller.controller import BoundController, Controller
from kubectl_runtime.runtime.controller.plan import Plan, check_functions, functions_of
from kubectl_runtime.runtime.lifecycle.lifecycle import Phase, StillRunning
from kubectl_runtime.runtime.observe.debug import (
    MOST_TEXT,
    DebugPage,
    Inspected,
    ManagerState,
    ReplicaRow,
    ShardingState,
    ShardRow,
)
from kubectl_runtime.runtime.observe.health import checked_route
from kubectl_runtime.runtime.observe.health_checks import Check, OwnCheck, TimedCheck, store_checks
from kubectl_runtime.runtime.observe.listener import ListenAddress
from kubectl_runtime.runtime.reconcile.reconciler import ErrorPolicy, Reconciles

if TYPE_CHECKING:
    from wsgiref.types import WSGIApplication

MOST_REPLICAS = 100
"""The maximum number of replicas that the status page lists."""


class ManagerView:
    """The manager's state for `/readyz` and the status page. Thread-safe; takes a lock only to list the members."""

    def __init__(self, running: RunningManager, lock: LeaderLock | None, members: Callable[[], Iterable[Member]], *,
                 sharded: bool, given: Checks, servers: Sequence[Server]) -> None:
        self._running = running
        self._lock = lock
        self._members = members
        self._sharded = sharded
        self._given = given
        self._servers = ({} if not any(hasattr(one, "why_not_ready") for one in servers)
                         else {SERVERS: TimedCheck(SERVERS, partial(expect_ready, servers))})

    def ready_checks(self) -> dict[str, Check]:
        """The readiness checks, by name: the manager, each controller and store, and the checks that the program added.

            manager    servers    election    sharding    controller widget    store pods    database

        The check `servers` covers only the added servers. It is for a Pod whose own webhook must answer before the
        Pod's stores can fill. This method does not block, but the returned checks that call the program's code may
        block.
        """
        running = self._running
        members = [*self._members()]
        controllers = [member.running for member in members
                       if isinstance(member, ControllerMember) and member.running is not None]
        found: dict[str, Check] = {MANAGER: OwnCheck(lambda: running.why_not_serving), **self._servers}
        if (lock := self._lock) is not None:
            found[ELECTION] = OwnCheck(lambda: lock.trouble)
        if self._sharded:
            found[SHARDING] = OwnCheck(lambda: running.part.trouble)
        found |= {f"{CONTROLLER}{member.name}".replace("/", "-"): OwnCheck(member.why_not_working) for member in members
                  if isinstance(member, ControllerMember)}
        return {**found, **store_checks(controllers), **self._given.all()}

    def controllers(self) -> Sequence[Inspected]:
        """The started controllers, in the order of `add`."""
        return [member.running for member in self._members()
                if isinstance(member, ControllerMember) and member.running is not None]

    def manager(self) -> ManagerState:
        """The state of the manager, without its checks, which are user code and may block."""
        running, lock = self._running, self._lock
        phase = "running" if lock is None and running.phase is Phase.LEADING else str(running.phase)
        return ManagerState(phase=phase, reason=running.reason,
                            leader=None if lock is None else running.is_leader,
                            lease="" if lock is None else f"{lock.namespace}/{lock.election.name}",
                            shards=sorted(running.shards) if self._sharded else None, sharding=self._sharding_state())

    def _sharding_state(self) -> ShardingState | None:
        sharder = self._running.part.sharder
        if sharder is None:
            return None
        replicas = sorted(sharder.replicas.items())
        stored: dict[int, tuple[int, int]] = {}
        for controller in self.controllers():
            divided = controller.assembly.divided
            for n, (objects, size) in ({} if divided is None else divided.stored()).items():
                before = stored.get(n, (0, 0))
                stored[n] = before[0] + objects, before[1] + size
        held = {n for _, shards in replicas for n in shards}
        return ShardingState(
            name=f"{sharder.namespace}/{sharder.sharding.name}", by=sharder.by, shards=sharder.parts,
            replicas=[ReplicaRow(name=name[:MOST_TEXT], shards=shards, here=name == sharder.identity)
                      for name, shards in replicas[:MOST_REPLICAS]],
            free=[n for n in range(sharder.parts) if n not in held],
            stored=[ShardRow(shard=n, objects=objects, bytes=size) for n, (objects, size) in sorted(stored.items())])


class _Unsaid(str):
    """The type of a default value, to distinguish the default from an equal string that a program passes."""

    __slots__ = ()


SERVE: Final[str] = _Unsaid(":8080")
"""The default address of a Manager."""

DEBUG: Final = DebugPage()
"""The default status page of a Manager. If `debug` is this very object, the program left the argument out."""


@dataclass(frozen=True, slots=True)
class ManagerDefaults:
    """The values that a Manager uses for arguments that the program leaves out. Each field is named after an
    argument."""

    leader: LeaderElection | None = None
    serve: str | None = SERVE
    debug: DebugPage | None = DEBUG
    metrics: bool = True

    def for_leader(self, said: LeaderElection | None) -> LeaderElection | None:
        """Return the election that the program passed; if it passed none, return the default."""
        return self.leader if said is None else said

    def for_serve(self, said: str | None) -> str | None:
        """Return the address that the program passed, which may be None; if it passed nothing, return the default."""
        return self.serve if isinstance(said, _Unsaid) else said

    def for_debug(self, said: DebugPage | None) -> DebugPage | None:
        """Return the status page that the program passed, which may be None; if it passed nothing, return the
        default."""
        return self.debug if said is DEBUG else said


current_defaults: ContextVar[ManagerDefaults] = ContextVar("kubectl_runtime_manager_defaults",
                                                           default=ManagerDefaults())  # noqa: B039 - frozen


@contextmanager
def manager_defaults(defaults: ManagerDefaults) -> Iterator[None]:
    """Apply these defaults to every Manager made inside the block."""
    token = current_defaults.set(defaults)
    try:
        yield
    finally:
        current_defaults.reset(token)


K = TypeVar("K")
D = TypeVar("D")


class Manager:
    """Runs several controllers and other functions in one process, with a common start, stop, health, metrics and
    leader election.

    `add` takes a controller and its reconciler; `add_runnable` takes a function, which is called with a StopToken.
    `run` blocks until a signal or the first fatal error, which it raises; `start` does not block. With `leader`,
    controllers reconcile only while this process leads. `serve` is the address of `/healthz`, `/readyz` and `/metrics`
    (None: no server). Stopping takes at most `grace` seconds. A manager runs once. Thread-safe; members added to a
    running manager start at once.

    >>> def reconcile(obj: ConfigMap, ctx: Context[None]) -> Action:
    ...     return Action.await_change()
    >>> manager = Manager(client, serve=None)
    >>> _ = manager.add(Controller(Api.all(client, ConfigMap)), reconcile)
    >>> with manager.start() as running:
    ...     pass
    """

    def __init__(self, client: Client, *, leader: LeaderElection | None = None,
                 sharding: Sharding | None = None, serve: str | None = SERVE, debug: DebugPage | None = DEBUG,
                 grace: Duration = 25, metrics: bool | None = None) -> None:
        """Make a manager. Nothing is started and no request is sent before `run` or `start`.

        - `client`: the client for the Leases. `/metrics` also counts its requests. The manager does not close it.
        - `leader`: the leader election; reconciling begins when this process leads. Default: it begins at once.
        - `sharding`: how several replicas share the controllers' objects. Default: this process reconciles all objects.
        - `serve`: `HOST:PORT` for `/healthz`, `/readyz`, `/metrics` and the routes of `add_route`. None: no server.
        - `debug`: who may read the status page `/debug`, and what it shows. Default: this host only. None: no page.
        - `grace`: seconds for the whole stop. Keep it below the 30 s that Kubernetes gives a Pod.
        - `metrics`: whether `/metrics` is served. Default: yes, unless the command line has `--no-metrics`. `/metrics`
          exports the Metrics that observe the client. If no Metrics observe it, `Metrics.shared()` observes it from the
          manager's start on. The default registry also contains the program's own metrics.

        Raises RequestError for an argument that cannot be used.
        """
        if not hasattr(client, "with_layer"):
            raise RequestError(f"a Manager takes a Client, not {type(client).__name__}")
        defaults = current_defaults.get()
        self._sets_serve = not isinstance(serve, _Unsaid)  # if True, the command line cannot set the address
        leader, serve, debug = defaults.for_leader(leader), defaults.for_serve(serve), defaults.for_debug(debug)
        if leader is not None and not isinstance(leader, LeaderElection):
            raise RequestError(f'leader={leader!r} is not a LeaderElection such as LeaderElection("my-operator")')
        if sharding is not None and not isinstance(sharding, Sharding):
            raise RequestError(f'sharding={sharding!r} is not a Sharding such as Sharding("my-operator", shards=16)')
        if debug is not None and not isinstance(debug, DebugPage):
            raise RequestError(f"debug={debug!r} is not a DebugPage such as DebugPage(remote=True), nor None for no "
                               "page")
        if metrics is not None:
            check_flag("metrics", metrics)
        self._metrics = defaults.metrics if metrics is None else metrics
        self._routes: dict[str, WSGIApplication] = {}
        self._client = client
        self._debug = debug
        self._address = None if serve is None else ListenAddress.parse(serve)
        self._grace = duration_of("grace", grace)
        self._checks = Checks()
        self._lock: LeaderLock | None = None if leader is None else elect(client, leader)
        self._sharding = sharding
        self._running = RunningManager(client, self._lock, sharding, self._grace, self._checks)
        self._members: dict[str, Member] = {}
        self._bound: list[BoundController[Any]] = []
        self._servers: list[Server] = []
        self._started = False
        self._change = threading.Lock()

    @property
    def leader(self) -> LeaderElection | None:
        """The leader election; None without an election."""
        return None if self._lock is None else self._lock.election

    @property
    def sharding(self) -> Sharding | None:
        """How the replicas share the objects; None if they do not."""
        return self._sharding

    @property
    def serve(self) -> str | None:
        """The address of health and metrics as `HOST:PORT`; None for no server."""
        return None if self._address is None else str(self._address)

    @property
    def grace(self) -> float:
        """The grace period: the maximum number of seconds that the stop may take."""
        return self._grace

    @property
    def debug(self) -> DebugPage | None:
        """Who may read `/debug`, and what it shows; None for no page."""
        return self._debug

    @overload
    def add(self, controller: BoundController[Any], *, needs_leader: bool = True,
            sharded: bool | None = None) -> Manager: ...

    @overload
    def add(self, controller: Controller[K], reconciler: Reconciles[K, None], *,
            error_policy: ErrorPolicy[K] | None = None, needs_leader: bool = True,
            sharded: bool | None = None) -> Manager: ...

    @overload
    def add(self, controller: Controller[K], reconciler: Reconciles[K, D], *, context: D,
            error_policy: ErrorPolicy[K] | None = None, needs_leader: bool = True,
            sharded: bool | None = None) -> Manager: ...

    def add(self, controller: Any, reconciler: Any = None, *, context: Any = None,
            error_policy: ErrorPolicy[Any] | None = None, needs_leader: bool = True,
            sharded: bool | None = None) -> Manager:
        """Run `controller` with `reconciler` when the manager runs, or at once if it already runs. Returns the manager.

        `reconciler`, `context` and `error_policy` are the arguments of `Controller.start`. A `BoundController` already
        contains them and is passed alone. Later changes of the controller have no effect. The manager handles signals
        and the grace period, and ignores the controller's own settings for both.

        With an election and `needs_leader`, the stores fill while this process stands by, and runs begin when it leads.
        After the Lease's deadline, `ctx.client` refuses writes with NotLeaderError. Inside a run, the client that the
        program passed to the Manager refuses writes too. A thread that a run starts must use an Api made from
        `ctx.client`, or run in a copy of the run's context (`contextvars.copy_context`).

        With a sharding, unless `sharded=False`, no leader is needed. The controller reconciles the objects of the
        shards that this replica holds, and `ctx.client` refuses a run's writes after the deadline of the shard's Lease.
        `Sharding(by=...)` decides which objects the watches receive.

        Raises RequestError like `Controller.start`. Also raises it for a reconciler together with a bound controller,
        for `sharded=True` without a sharding, for a controller whose objects the sharding cannot divide, for a name
        that is taken, and if the stop has begun.
        """
        if isinstance(controller, BoundController):
            if (reconciler, context, error_policy) != (None, None, None):
                raise RequestError("this controller is bound to its reconciler, context and error policy already")
            bound = controller
        elif isinstance(controller, Controller):
            if reconciler is None:
                raise RequestError("add takes a controller with its reconciler: manager.add(controller, reconcile), or "
                                   "manager.add(controller.bind(reconcile))")
            bound = BoundController(controller, reconciler, error_policy, context)
        else:
            raise RequestError(f"add takes a Controller, not {type(controller).__name__}; functions go to add_runnable")
        check_flag("needs_leader", needs_leader)
        reconcile, policy = functions_of(bound.reconciler, bound.error_policy)
        check_functions(reconcile, policy, bound.context)
        if sharded and self._sharding is None:
            raise RequestError("sharded=True, but the manager has no sharding: Manager(client, sharding=Sharding(...))")
        part = self._running.part if self._sharding is not None and sharded is not False else None
        if part is not None and self._sharding is not None:
            check_divisible(bound.controller.plan(), self._sharding)
        lock = self._lock if needs_leader and part is None else None
        self._add(ControllerMember(bound.controller.plan(), reconcile, policy, bound.context, lock=lock, part=part,
                                   grace=self._grace, failed=self._running.fail))
        self._bound.append(bound)
        return self

    def remove(self, member: str | Controller[Any] | BoundController[Any], *,
               timeout: Duration | None = None) -> list[StillRunning]:
        """Stop and remove one controller or runnable, given by its name, or by the controller itself. The others
        continue.

        Blocks until its runs and its threads have ended, for at most `timeout` seconds (default: the manager's grace
        period). Returns the runs and threads that have not ended. A call from a thread that the stop waits for, for
        example from a run of the controller, only begins the stop and returns an empty list. Watches and stores that
        other members share continue. The name can be used again afterwards. Raises RequestError if there is no member
        of that name.
        """
        bound = member.controller if isinstance(member, BoundController) else member
        name = bound.plan().name if isinstance(bound, Controller) else bound
        within = self._grace if timeout is None else duration_of("timeout", timeout)
        with self._change:
            found = self._members.pop(name, None) if isinstance(name, str) else None
            if found is None:
                raise RequestError(f"there is no controller or runnable {name!r} to remove; the members are: "
                                   f"{', '.join(self._members) or 'none'}")
            self._bound = [one for one in self._bound if one.controller.plan().name != name]
            started = self._started
        return self._running.remove(found, within) if started else []

    def add_runnable(self, fn: Callable[[StopToken], object], name: str, *, needs_leader: bool = True) -> Manager:
        """Call `fn(stop)` in a thread of its own. Once `stop` is set, `fn` must return within the grace period.

        `fn` may return earlier, when its work is done. If `fn` raises, the manager stops, and `run` raises that error.
        With an election and `needs_leader`, `fn` is called only once this process leads. Raises like `add`.
        """
        if not callable(fn):
            raise RequestError(f"add_runnable takes a function of a StopToken, not {type(fn).__name__}")
        check_callback(f"the runnable {name}", fn, "stop")
        check_flag("needs_leader", needs_leader)
        self._add(RunnableMember(fn, name, needs_leader=needs_leader, clock=self._client.clock,
                                 failed=self._running.fail))
        return self

    def add_check(self, name: str, fn: Callable[[], object], *, timeout: Duration = 2) -> Manager:
        """Add a readiness check: each request to `/readyz` calls `fn`. The check fails if `fn` raises, returns False,
        or takes more than `timeout` seconds. `fn` is called in a thread of its own, and never twice at the same time.
        `/readyz?verbose` lists the check by its `name`. Raises RequestError for a name that is taken, has a slash, or
        belongs to the manager (`ping`, `manager`, `servers`, `election`, `sharding`, `controller ...`, `store ...`),
        and for a timeout of 0 seconds or less."""
        self._checks.add(name, fn, timeout)
        return self

    def add_server(self, server: Server) -> Manager:
        """Run `server`, for example a WebhookServer. Servers start before everything else, in the order of
        `add_server`, and stop last. If a server has `why_not_ready`, as a WebhookServer does, the manager is ready only
        when the server is; `/readyz/servers` checks only such servers. Raises RequestError after the start, and for a
        second server of the same name."""
        if self._started:
            raise RequestError(f"{server.name} cannot be added: this manager was started; add servers before that")
        if hasattr(server, "why_not_ready"):
            self._checks.add(server.name, partial(expect_ready, [server]))
        self._servers.append(server)
        return self

    def add_route(self, path: str, application: WSGIApplication) -> Manager:
        """Serve a WSGI application beside `/healthz`, for requests of any method at `path` and below. PATH_INFO is the
        whole path. The application runs in the server's threads, without authentication. A response that takes more
        than 10 s is cut off. If the application raises, the client receives a 500 and the exception is logged. Returns
        the manager. Raises RequestError for a path that is taken or invalid, with `serve=None`, and after the start."""
        if self._address is None:
            raise RequestError(f"{path} cannot be served: this manager serves nothing (serve=None)")
        checked_route(path, application)
        with self._change:
            if self._started:
                raise RequestError(f"{path} cannot be added: this manager was started already; add routes before that")
            if path in self._routes:
                raise RequestError(f"there is a route {path} already")
            self._routes[path] = application
        return self

    @property
    def servers(self) -> tuple[Server, ...]:
        """The added servers, in the order of `add_server`."""
        return tuple(self._servers)

    def plans(self) -> list[Plan]:
        """The added controllers' plans, in the order of `add`. A plan holds what a controller watches and runs."""
        return [member.plan for member in self._members.values() if isinstance(member, ControllerMember)]

    def controllers(self) -> list[BoundController[Any]]:
        """The added controllers with their reconcilers, in the order of `add`. For simulations, which have neither an
        election nor shards."""
        return [*self._bound]

    def runnables(self) -> list[str]:
        """The names of the added functions, in the order of `add_runnable`."""
        return [name for name, member in self._members.items() if isinstance(member, RunnableMember)]

    def run(self) -> None:
        """Start the manager and block until it has ended, after a signal (in the main thread), a failure, the loss of
        the Lease, or a KeyboardInterrupt.

        Raises the first failure: a runnable's own exception, ControllerError, LeadershipLost, or the error that kept a
        server from listening. Raises RequestError on a second call. Returns after SIGINT or SIGTERM; a second signal n
        ends the process with status 128 + n. If a thread still runs after the grace period and the manager handles the
        signals, the manager flushes the logs and ends the process with status 1.
        """
        self._launch(foreground=True).serve(self._grace)

    def start(self) -> RunningManager:
        """Start the manager, and return when the servers listen and every thread is started. Does not handle signals.

        Raises the error that kept a server from listening, and RequestError on a second call.
        """
        return self._launch(foreground=False)

    def _launch(self, *, foreground: bool) -> RunningManager:
        with self._change:
            if self._started:
                raise RequestError("this manager was started already; make a new one")
            self._started = True
            members = list(self._members.values())
        view = ManagerView(self._running, self._lock, self._current_members, sharded=self._sharding is not None,
                           given=self._checks, servers=self._servers)
        own = None if self._address is None else server_for(
            self._address, view.ready_checks, self._why_not_alive, metrics_of(self._client) if self._metrics else None,
            self._debug, view, dict(self._routes), self._client)
        self._running.launch(own, self._servers, members, foreground=foreground)
        return self._running

    def _why_not_alive(self) -> str:
        return "; ".join(reason for member in self._current_members() if (reason := member.why_not_alive()))

    def _current_members(self) -> list[Member]:
        with self._change:
            return list(self._members.values())

    def _add(self, member: Member) -> None:
        with self._change:
            if member.name in self._members:
                raise RequestError(f"there is a controller or runnable called {member.name} already: give it a name of "
                                   "its own")
            self._members[member.name] = member
            started = self._started
        if started:
            self._running.add(member)
