"""`Simulation`: runs whole controllers in one thread, on simulated time, in an order that a seed decides.

Each `step` runs one actor, chosen by the seed. The actors:

- a watch reads a page of a list or the available events, updates its store and triggers runs
- a dispatcher hands due keys to workers
- a worker begins a run, runs user code, or ends the run: three pieces, between which other actors may run
- an event recorder sends one request about an Event
- a controller reads an object again, to compare it with a value that `ctx.read` returned
- a server runs its controllers' work that is due
- a function that a test adds, for example to change objects

When no actor has work, time jumps to the next moment with work, but by 10 s at most. The same program with the same
seed always runs in the same way, so a failure is reproducible. Work takes no simulated time. An endless loop (for
example two controllers that overwrite each other's field) raises an AssertionError that names the objects.

Clients must use `simulation.clock` and connect to their server without threads or sockets. `simulation.serve` and
`simulation.client` make such servers and clients:

    with Simulation(seed=1) as simulation:
        server = simulation.serve(controllers=["*"])
        client = simulation.client(server)

A test may also mount `ApiServer.transport()` or a transport of its own.
"""
from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, overload

from msgspec.structs import replace

from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.base.threads import Clock, Duration, seconds
from kubectl_runtime.core.meta.gvk import ObjectRef
from kubectl_runtime.runtime.controller.assembly import Assembly
from kubectl_runtime.runtime.controller.controller import BoundController, Controller
from kubectl_runtime.runtime.controller.plan import functions_of
from kubectl_runtime.runtime.events.recorder import Recorder
from kubectl_runtime.runtime.reconcile.reconciler import ErrorPolicy, ReconcileFunction, Reconciler
from kubectl_runtime.runtime.store.store import Store
from kubectl_runtime.runtime.triggers.shared_watches import Watch
from kubectl_runtime.testing.asking import Probe
from kubectl_runtime.testing.clock import EPOCH, SimClock, SimExecutor

if TYPE_CHECKING:
    from kubectl_runtime.apiserver.server import ApiServer
    from kubectl_runtime.client.api.client import Client
    from kubectl_runtime.manager.manager import Manager

K = TypeVar("K")


class SimulatedController(Generic[K]):
    """A controller in a simulation, the counterpart of `Running`. Only `Simulation.step` runs its watches."""

    def __init__(self, assembly: Assembly[K], executor: SimExecutor) -> None:
        self.assembly = assembly
        self.executor = executor
        self.bugs: list[BaseException] = []
        """Exceptions of bugs in the library; `Simulation.step` raises the first."""
        self._recorder_closed = False

    @property
    def store(self) -> Store[K]:
        """The store of the kind that the controller reconciles."""
        return self.assembly.store

    @property
    def is_ready(self) -> bool:
        """Whether all stores are complete and reconciling has begun."""
        return self.assembly.gate.is_open

    @property
    def running(self) -> list[ObjectRef]:
        """The objects that are being reconciled now."""
        return [run.request.ref for run in self.assembly.runner.running()]

    @property
    def scheduled(self) -> int:
        """The number of objects that are due or scheduled for later."""
        return self.assembly.runner.depth()

    def trigger(self, item: Any) -> None:
        """Reconcile an object or ObjectRef soon. Raises RequestError for an object of another kind."""
        self.assembly.trigger(item)

    def trigger_all(self) -> None:
        """Reconcile every stored object soon."""
        self.assembly.inbox.trigger_everything()

    def begin_stop(self, grace: Duration = 30) -> None:
        """Begin to stop; runs in progress have `grace` seconds. Later steps carry out the stop."""
        self.assembly.shutdown.begin("stop() was called", seconds(grace))

    def close_recorder(self) -> None:
        """Close the Event recorder if a stop was requested and all runs have ended."""
        shutdown = self.assembly.shutdown
        if shutdown.give_up_at is None or self._recorder_closed or len(self.executor):
            return
        self._recorder_closed = True
        if self.assembly.recording is not None:
            self.assembly.recording.close(shutdown.draining.reason or "stopped", 0)
        self.assembly.recorder.close(max(0.0, shutdown.give_up_at - self.assembly.plan.clock.monotonic()))

    @property
    def has_ended(self) -> bool:
        """Whether the controller has stopped completely."""
        return not len(self.executor) and all(share.has_ended for share in self.assembly.shares)


class SimulatedServers:
    """The servers and clients of a simulation. Only the simulation's thread may use them."""

    def __init__(self, clock: Clock, seed: int) -> None:
        self._clock, self._seed = clock, seed
        self._servers: list[ApiServer] = []
        self._clients: list[Client] = []

    def serve(self, arguments: dict[str, Any]) -> ApiServer:
        """Make a server on the simulation's clock, with the simulation's seed unless `arguments` contain another
        seed."""
        from kubectl_runtime.apiserver.server import ApiServer  # imported late, since a simulation may have no server

        server = ApiServer(clock=self._clock, **{"seed": self._seed, **arguments})
        self._servers.append(server)
        return server

    def client(self, server: ApiServer, user: str | None, timeout: Duration) -> Client:
        """Make a client on the simulation's clock. The method `close` of this class closes the client."""
        import requests

        from kubectl_runtime.client.api.client import Client
        from kubectl_runtime.client.config.config import Config

        session = requests.Session()
        session.mount("http://", server.transport())
        config = Config(cluster_url="http://127.0.0.1", token=server.credentials(user).token or None, timeout=timeout)
        client = Client(config, session=session, clock=self._clock)
        self._clients.append(client)
        return client

    def close(self) -> None:
        """Close the clients."""
        while self._clients:
            self._clients.pop().close()

    def work(self, server: ApiServer) -> bool:
        """Do the server's work that is due. Always returns True."""
        server.core.tick()
        return True

    def with_work(self) -> list[ApiServer]:
        """The servers whose controllers have work now."""
        now = self._clock.monotonic()
        return [server for server in self._servers if (due := server.core.next_wakeup()) is not None and due <= now]

    def times(self) -> list[float]:
        """The time of each server's next work, on the monotonic clock."""
        return [due for server in self._servers if (due := server.core.next_wakeup()) is not None]


T = TypeVar("T")

JUMP = 10.0
"""The maximum number of seconds that time moves at once. Idle watches are polled after each move, since a simulated
connection that stalls or times out sends no notification."""

PATIENCE = 3
"""Time moves only after all actors have found nothing to do this many times in a row."""

RESTLESS, FOR_EACH_OBJECT = 100_000, 100
"""Work counts as an endless loop after RESTLESS steps without a pause, plus FOR_EACH_OBJECT steps for each object in
the stores."""

SAMPLE = 1000
"""The number of steps that are run to find the objects of an endless loop."""


class NotDone(AssertionError):
    """Raised by `Simulation.run_until` when the limit is reached."""


class Simulation:
    """Runs whole controllers and a test's own actors in one thread, on a clock that jumps to the next moment with work.
    `seed` decides the order. Not thread-safe."""

    def __init__(self, seed: int = 0, *, jump: Duration = JUMP, record: bool = True, start: datetime = EPOCH) -> None:
        """`jump`: the maximum number of seconds that time moves at once. `record`: whether controllers with `record=`
        write their recording. `start`: the date at which time begins."""
        self.seed = seed
        self._jump = seconds(jump)
        self._record = record
        self.random = random.Random(seed)
        self.clock = SimClock(start=start, self_advancing=True)
        self._controllers: list[SimulatedController[Any]] = []
        self._resume: dict[Watch[Any], float] = {}
        self._recorders: list[Recorder] = []
        self._world: list[Callable[[], object]] = []
        self._servers = SimulatedServers(self.clock, seed)

    def serve(self, **arguments: Any) -> ApiServer:
        """Make an embedded server with the simulation's clock and seed; `arguments` are the arguments of `ApiServer`.
        The server does not listen; use `client` to make clients for it."""
        return self._servers.serve(arguments)

    def client(self, server: ApiServer, user: str | None = None, *, timeout: Duration = 60) -> Client:
        """Make a client of the server, without sockets and threads, as an administrator or as `user`.
        `Simulation.close` closes the client. Raises ValueError like `ApiServer.credentials`."""
        return self._servers.client(server, user, timeout)

    def close(self) -> None:
        """Close the clients that the simulation made."""
        self._servers.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @overload
    def start(self, controller: BoundController[K]) -> SimulatedController[K]: ...

    @overload
    def start(self, controller: Controller[K], reconciler: Reconciler[K] | ReconcileFunction[K], *,
              error_policy: ErrorPolicy[K] | None = None, context: Any = None) -> SimulatedController[K]: ...

    @overload
    def start(self, controller: Manager) -> list[SimulatedController[Any]]: ...

    def start(self, controller: Any, reconciler: Any = None, *, error_policy: ErrorPolicy[Any] | None = None,
              context: Any = None) -> SimulatedController[Any] | list[SimulatedController[Any]]:
        """Start a controller in this simulation. `reconciler`, `error_policy` and `context` are the arguments of
        `Controller.start`; a `BoundController` already contains them and is passed alone. The controller runs only in
        `step`. Trigger sources that need a thread do not run.

        A Manager is also passed alone. Its controllers are started and returned as a list, in the order of `add`. The
        Manager's election, shards, runnables and servers are ignored.

        Raises RequestError for a controller without a reconciler, and for a reconciler together with a bound
        controller or a Manager."""
        if not isinstance(controller, Controller):
            from kubectl_runtime.manager.manager import Manager  # imported late, since most simulations have no Manager

            if isinstance(controller, BoundController | Manager) and (
                    reconciler, error_policy, context) != (None, None, None):
                raise RequestError("this controller is bound to its reconciler, context and error policy already")
            if isinstance(controller, Manager):
                return [self.start(one) for one in controller.controllers()]
        if isinstance(controller, BoundController):
            return self.start(controller.controller, controller.reconciler, error_policy=controller.error_policy,
                              context=controller.context)
        if reconciler is None:
            raise RequestError("start takes a controller with its reconciler, or a Manager: "
                               "simulation.start(controller, reconcile), "
                               "simulation.start(controller.bind(reconcile)) or simulation.start(manager)")
        reconcile, policy = functions_of(reconciler, error_policy)
        executor = SimExecutor(self.random)
        bugs: list[BaseException] = []
        plan = replace(controller.plan(), clock=self.clock)
        if not self._record:
            plan = plan.without_record()
        assembly: Assembly[Any] = Assembly(plan, reconcile, policy, context, executor=executor,
                                           on_bug=lambda _what, error: bugs.append(error), rng=self.random)
        simulated = SimulatedController(assembly, executor)
        simulated.bugs = bugs
        if assembly.recording is not None:
            assembly.recording.open()
        assembly.subscribe()
        self.add_recorder(assembly.recorder)
        self._controllers.append(simulated)
        self._resume.update(dict.fromkeys(assembly.watches.values(), 0.0))
        return simulated

    def kill(self) -> None:
        """Drop every controller, as if its process were killed: runs in progress are not finished. A test's actors
        continue."""
        for controller in self._controllers:
            if controller.assembly.recording is not None:
                controller.assembly.recording.abandon()
        self._controllers, self._resume, self._recorders = [], {}, []

    def add(self, actor: Callable[[], object]) -> None:
        """Let `step` call `actor` at random times."""
        self._world.append(actor)

    def add_recorder(self, recorder: Recorder) -> None:
        """Let `step` send the Events of a test's own `recorder`, whose client must use this simulation's clock. Events
        of `ctx.record` are sent without this call."""
        self._recorders.append(recorder)

    def step(self) -> bool:
        """Run one step of one actor; returns whether the actor did something.

        Raises what a test's actor raises, or the exception of a bug in the library.
        """
        now = self.clock.monotonic()
        actors: list[Callable[[], object]] = [*self._world]
        for controller in self._controllers:
            for watch in controller.assembly.watches.values():
                self._resume.setdefault(watch, 0.0)  # for a watch that began after the controller's start
            if controller.assembly.reads.values.due() == 0:
                actors.append(controller.assembly.reads.values.step)
            actors += [controller.executor.step] * min(3, len(controller.executor))
            actors.append(partial(self._dispatch, controller))
        actors += [partial(self._watch, watch)
                   for watch, resume in self._resume.items() if resume <= now and not watch.stopped]
        actors += [partial(self._tell, recorder) for recorder in self._recorders if recorder.due() == 0]
        actors += [partial(self._servers.work, server) for server in self._servers.with_work()]
        did = bool(self.random.choice(actors)()) if actors else False
        for controller in self._controllers:
            if controller.bugs:
                raise controller.bugs[0]
            controller.close_recorder()
            if controller.assembly.recording is not None:
                controller.assembly.recording.pump()
        return did

    def run(self, steps: int) -> None:
        """Run `steps` steps without moving the time."""
        for _ in range(steps):
            self.step()

    def settle(self, limit: Duration = 0) -> None:
        """Run the simulation, without the test's actors, until no work is due in the next `limit` simulated seconds.

        Raises AssertionError, which names the seed and the objects, if the work never ends.
        """
        world, self._world = self._world, []
        try:
            end = self.clock.monotonic() + seconds(limit)
            while True:
                self._exhaust()
                now = self.clock.monotonic()
                if now >= end:
                    break
                self.clock.advance(min(self._next_time(), end) - now)
        finally:
            self._world = world

    def run_until(self, done: Callable[[], bool], limit: Duration = 3600) -> None:
        """Run steps and move the time until `done()` is true.

        After `limit` simulated seconds, raises AssertionError, which names the seed. Also raises the errors of
        `settle`.
        """
        end = self.clock.monotonic() + seconds(limit)
        while True:
            self._exhaust(done)
            if done():
                return
            now = self.clock.monotonic()
            if now >= end:
                raise NotDone(f"not done within {seconds(limit):g} simulated seconds (seed {self.seed})")
            self.clock.advance(min(self._next_time(), end) - now)

    def eventually(self, ask: Callable[[], T], until: Callable[[T], object] | None = None,
                   timeout: Duration = 3600) -> T:
        """Call `ask` repeatedly while the simulation runs, and return its result once `until` accepts it, like
        `kubectl_runtime.testing.eventually`. `timeout` is in simulated seconds. Raises AssertionError with the last
        result and the seed."""
        probe = Probe(ask, until)
        try:
            self.run_until(probe.asked, timeout)
        except NotDone as error:
            failure = probe.failure(str(error).removeprefix("not done "))
        else:
            return probe.value
        raise failure

    def _exhaust(self, done: Callable[[], bool] = lambda: False) -> None:
        """Step without moving the time until all actors have had nothing to do several times in a row."""
        idle = worked = 0
        while not done():
            if self.step() or self._busy():
                idle, worked = 0, worked + 1
                if worked % RESTLESS == 0:
                    self._check_for_a_loop(worked)
                continue
            idle += 1
            if idle > PATIENCE * (2 * len(self._controllers) + len(self._resume) + len(self._world)):
                # The seed may have skipped an actor: poll all actors once more before time moves.
                now = self.clock.monotonic()
                late = [self._watch(watch) for watch, at in self._resume.items() if at <= now and not watch.stopped]
                late += [self._dispatch(controller) for controller in self._controllers]
                late += [controller.assembly.reads.values.step() for controller in self._controllers]
                late += [self._tell(recorder) for recorder in self._recorders]
                late += [self._servers.work(server) for server in self._servers.with_work()]
                if not any(late):
                    return

    def _check_for_a_loop(self, worked: int) -> None:
        stored = sum(len(watch.stored.records) for watch in self._resume)
        if worked <= RESTLESS + FOR_EACH_OBJECT * stored:
            return
        ran: Counter[str] = Counter()
        for _ in range(SAMPLE):
            self.step()
            ran.update(f"{controller.assembly.plan.name}: {ref}" for controller in self._controllers
                       for ref in controller.running)
        keys = ", ".join(key for key, _ in ran.most_common(3)) or "no key: a watch has something to read each time"
        raise AssertionError(f"the simulation does not come to rest: {worked} steps without a pause, at "
                             f"{self.clock.monotonic():g} s (seed {self.seed}). Runs cause further runs; most "
                             f"busy: {keys}")

    def _busy(self) -> bool:
        return any(len(controller.executor) for controller in self._controllers)

    def _next_time(self) -> float:
        """The time of the next work, limited by `jump`, since a transport may act without a notification."""
        now = self.clock.monotonic()
        times = [now + self._jump, *(at for watch, at in self._resume.items() if at > now and not watch.stopped)]
        times += [now + delay for recorder in self._recorders if (delay := recorder.due()) is not None]
        times += self._servers.times()
        for controller in self._controllers:
            if not controller.assembly.shutdown.draining.is_set():
                delays = (controller.assembly.runner.step(), controller.assembly.housekeeping(),
                          controller.assembly.reads.values.due())
                times += [now + delay for delay in delays if delay is not None]
        return min(times)

    def _dispatch(self, controller: SimulatedController[Any]) -> bool:
        before = len(controller.executor)
        controller.assembly.runner.step()
        return len(controller.executor) > before

    def _tell(self, recorder: Recorder) -> bool:
        if recorder.due() != 0:
            return False
        recorder.step()
        return True

    def _watch(self, watch: Watch[Any]) -> bool:
        wait = watch.step()
        self._resume[watch] = self.clock.monotonic() + (wait or 0.0)
        return wait == 0
